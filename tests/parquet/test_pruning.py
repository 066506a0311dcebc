"""Pruning of one file: row groups and rows, from metadata alone, without losing a matching row."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from tamis import PartitionFilter, Tuning, col
from tamis.errors import CorruptFile, InvalidArgument, TableNotFound, TypeMismatch, UnknownColumn
from tamis.io.ranges import RangedFile
from tamis.parquet import PruneOptions, Pruner, PruneRequest, PruneResult, RowSelection, read_selection

ROWS = 6_000
ROWS_PER_GROUP = 1_500
ROWS_PER_PAGE = 100


@pytest.fixture(scope="module")
def rows() -> pa.Table:
    random = np.random.default_rng(5)
    return pa.table(
        {
            "id": np.arange(ROWS),
            "half": pa.array([None if i % 7 == 0 else i // 2 for i in range(ROWS)]),
            "hash": random.integers(0, 2**60, ROWS),
            "name": [f"name{i:05d}" for i in range(ROWS)],
            "kind": random.choice(["a", "c", "e"], ROWS),
            "late": pa.array([None if i < 3_000 else i for i in range(ROWS)]),
            "place": pa.array([{"x": i, "y": ROWS - i} for i in range(ROWS)]),
        }
    )


@pytest.fixture(scope="module")
def file(rows: pa.Table, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("pruning") / "f.parquet"
    pq.write_table(
        rows,
        path,
        row_group_size=ROWS_PER_GROUP,
        max_rows_per_page=ROWS_PER_PAGE,
        write_page_index=True,
        bloom_filter_options={"hash": {"ndv": ROWS_PER_GROUP, "fpp": 0.001}},
    )
    return path


def make_request(file: Path, where: object, schema: pa.Schema | None = None) -> PruneRequest:
    return (
        PruneRequest(file, schema).with_predicate(where).enable_page_index().enable_bloom_filter().enable_dictionary()
    )


def list_positions(result: PruneResult) -> list[int]:
    return result.row_selection.in_file(result.row_groups, [ROWS_PER_GROUP] * 4).to_indices().tolist()


FILTERS = [
    "id = 3210",
    "id BETWEEN 1490 AND 1510",
    "id < 5 OR id > 5990",
    "half = 700",
    "half IS NULL AND id < 100",
    "NOT (half > 50)",
    "late IS NULL",
    "late IS NOT NULL AND id < 3100",
    "name LIKE 'name000%'",
    "name LIKE 'name0_0%'",
    "name >= 'name05990'",
    "kind = 'b'",
    "kind IN ('b', 'd')",
    "kind <> 'a' AND kind <> 'c' AND kind <> 'e'",
    "upper(kind) = 'B'",
    "id = 100 AND kind = 'b'",
    "id = 100 OR kind = 'b'",
    "hash = 17",
    "id > half",
    "id < half + 10",
    "place.x = 50 OR place.y = 50",
    "place.x > 5900 AND place.y > 50",
    "half <=> NULL AND id > 5950",
    "id % 2 = 0",
    "FALSE",
    "TRUE",
]


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize(
    "levels", [(), ("pages",), ("bloom",), ("dictionary",), ("pages", "bloom", "dictionary")], ids=str
)
def test_O1_no_row_that_matches_is_left_out(file: Path, where: str, levels: str) -> None:
    made = PruneRequest(file).with_predicate(where)
    made = made.enable_page_index("pages" in levels).enable_bloom_filter("bloom" in levels)
    result = made.enable_dictionary("dictionary" in levels).prune()
    matching = duckdb.sql(f"SELECT id FROM '{file}' WHERE {where.replace('<=>', 'IS NOT DISTINCT FROM')}").fetchall()
    assert {row for (row,) in matching} <= set(list_positions(result))


@pytest.mark.parametrize(
    ("where", "most"),
    [
        ("id = 3210", ROWS_PER_PAGE),
        ("id BETWEEN 1490 AND 1510", 2 * ROWS_PER_PAGE),
        ("id < 5 OR id > 5990", 2 * ROWS_PER_PAGE),
        ("half = 700", 2 * ROWS_PER_PAGE),
        ("name LIKE 'name000%'", ROWS_PER_PAGE),
        ("kind = 'b'", 0),
        ("kind <> 'a' AND kind <> 'c' AND kind <> 'e'", 0),
        ("upper(kind) = 'B'", 0),
        ("id = 100 OR kind = 'b'", ROWS_PER_PAGE),
        ("hash = 17", 0),
        ("place.x = 50 OR place.y = 50", 2 * ROWS_PER_PAGE),
        ("place.x > 5900 AND place.y > 50", ROWS_PER_PAGE),
        ("late IS NULL", 3_000),
        ("FALSE", 0),
    ],
)
def test_little_more_than_the_pages_with_matches_is_kept(file: Path, where: str, most: int) -> None:
    assert len(list_positions(make_request(file, where).prune())) <= most


def test_a_hash_is_found_in_the_one_row_group_whose_filter_has_it(file: Path, rows: pa.Table) -> None:
    wanted = rows["hash"][4_000].as_py()
    without = PruneRequest(file).with_predicate(col("hash") == wanted).enable_bloom_filter(False).prune()
    assert without.row_groups == (0, 1, 2, 3)
    with_filter = PruneRequest(file).with_predicate(col("hash") == wanted).enable_bloom_filter().prune()
    assert with_filter.row_groups == (2,)
    assert with_filter.row_selection == RowSelection.all(ROWS_PER_GROUP)


def test_P6_the_selection_counts_over_the_row_groups_that_are_left(file: Path) -> None:
    result = make_request(file, "id = 5999").emit_roaring().prune()
    assert result.row_groups == (3,)
    assert result.row_selection.total == ROWS_PER_GROUP
    assert result.row_selection.ranges() == [(1_400, 1_500)]
    assert list(result.roaring_bitmap or ()) == list(range(5_900, 6_000))


def test_unanswerable_conjuncts_are_reported_with_a_reason(file: Path) -> None:
    result = make_request(file, "id % 2 = 0 AND id < 10").prune()
    assert [str(error) for error in result.compile_result.errors] == ["id % 2 = 0: function on column: id % 2"]
    assert result.compile_result.conjuncts == ("id % 2 = 0", "id < 10")
    assert result.required_columns == ("id",)
    assert len(list_positions(result)) == ROWS_PER_PAGE


def test_every_level_has_a_report(file: Path) -> None:
    levels = {level.level: level for level in make_request(file, "id = 3210 AND kind = 'b'").prune().levels}
    assert list(levels) == ["row_groups", "bloom", "pages", "dictionary"]
    assert (levels["row_groups"].total, levels["row_groups"].kept) == (4, 1)
    assert [each.unused_because for each in levels["bloom"].by_predicate] == ["no Bloom filter", "no Bloom filter"]
    assert [each.skipped for each in levels["pages"].by_predicate] == [14, 0]
    assert levels["pages"].bytes_kept < levels["pages"].bytes_total
    assert levels["dictionary"].kept == 0


def test_a_file_without_indexes_and_statistics_is_kept(tmp_path: Path, rows: pa.Table) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(rows, path, write_statistics=False, use_dictionary=False)
    result = make_request(path, "id = 3210 AND kind = 'b'").prune()
    assert result.row_selection == RowSelection.all(ROWS)
    reasons = {level.level: {each.unused_because for each in level.by_predicate} for level in result.levels}
    assert reasons["pages"] == {"not available"}
    assert reasons["dictionary"] == {"not available"}
    assert reasons["bloom"] == {"no Bloom filter"}


def test_metadata_that_pyarrow_has_read_prunes_row_groups(file: Path) -> None:
    result = PruneRequest(pq.read_metadata(file)).with_predicate("id = 3210").enable_page_index().prune()
    assert result.row_groups == (2,)
    assert result.row_selection == RowSelection.all(ROWS_PER_GROUP)


def test_a_pruner_serves_many_files(file: Path, tmp_path: Path, rows: pa.Table) -> None:
    other = tmp_path / "other.parquet"
    pq.write_table(rows.set_column(0, "ID", pc.add(rows["id"], 100_000)), other, write_page_index=True)
    pruner = Pruner(rows.schema, "id = 3210")
    assert pruner.prune(file).row_groups == (2,)
    assert pruner.prune(other).row_groups == ()


def test_a_column_that_the_file_lacks_is_null_in_it(file: Path, rows: pa.Table) -> None:
    schema = rows.schema.append(pa.field("later", pa.int64()))
    for where, kept in (("later = 5", 0), ("later IS NULL AND id < 5", ROWS_PER_PAGE), ("later IS NOT NULL", 0)):
        made = PruneRequest(file, schema).with_predicate(where).enable_page_index()
        assert len(list_positions(made.prune())) == kept, where


def test_T4_a_file_whose_type_is_wider_than_the_schemas_is_an_error(file: Path) -> None:
    with pytest.raises(CorruptFile, match=r"'id' .* is a bigint, which is incompatible with the table's type int"):
        PruneRequest(file, pa.schema({"id": pa.int32()})).with_predicate("id > 3000000000").prune()


@pytest.mark.parametrize(
    ("where", "error", "text"),
    [("nope = 1", UnknownColumn, "no column 'nope'"), ("id", TypeMismatch, "not a predicate")],
)
def test_a_wrong_predicate_is_an_error(file: Path, where: str, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make_request(file, where).prune()


def test_an_invalid_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(TableNotFound, match="give the path of one Parquet file"):
        make_request(tmp_path / "missing.parquet", "id = 1").prune()


def test_a_partition_filter_compares_texts_and_a_column_of_the_schema_may_be_missing(file: Path) -> None:
    def count(filter: PartitionFilter | list[object], schema: pa.Schema | None = None) -> int:
        return make_request(file, filter, schema=schema).prune().row_selection.row_count

    every = count(PartitionFilter.and_())
    assert every > 0
    assert count([PartitionFilter.is_not_null("id"), "id < 0"]) == 0
    with_year = pa.schema([*pq.read_schema(file), pa.field("year", pa.string())])
    for filter, expected in {
        PartitionFilter.eq("year", "5"): 0,
        PartitionFilter.neq("year", "5"): every,
        PartitionFilter.is_null("year"): every,
        PartitionFilter.is_not_null("year"): 0,
        PartitionFilter.in_("year", ["5"]): 0,
        ~PartitionFilter.gt("year", "5"): every,
    }.items():
        assert count(filter, with_year) == count([filter, "id >= 0"], with_year) == expected
        # It may be in the path of the file, perhaps with this value.
        with pytest.raises(UnknownColumn, match=r"no column 'year' in the file.*do not store partition columns"):
            count(filter)


def test_a_conjunct_that_others_imply_is_listed(file: Path) -> None:
    result = make_request(file, "3 < id AND id < 7 AND id > 5 AND id > 5").prune()
    assert result.compile_result.conjuncts == ("id > 5", "id < 7", "3 < id")
    assert result.compile_result.errors == ()
    assert "3 < id: implied by id > 5" in result.compile_result.diagnostics
    (first, *_) = result.levels
    assert [each.predicate for each in first.by_predicate] == ["id > 5", "id < 7", "3 < id"]
    assert first.by_predicate[-1].unused_because == "implied by id > 5"
    report = tamis.open(file).scan("id IN (5, 6) AND id BETWEEN 5 AND 9").plan().report
    assert "id BETWEEN 5 AND 9   implied by id IN (5, 6)" in str(report)
    # What is always TRUE is not listed.
    assert make_request(file, "id > 5 AND 1 = 1").prune().compile_result.conjuncts == ("id > 5",)


def test_requests_are_values(file: Path) -> None:
    first: Any = PruneRequest(file)
    second = first.with_predicate("id = 1").enable_page_index()
    assert first.predicate is None
    assert first.options == Pruner(pa.schema([])).options == PruneOptions()
    assert second.enable_page_index(False).options == PruneOptions(page_index=False)
    assert second.options == first.options


def test_P5_kept_rows_are_read_with_their_positions_in_the_file(file: Path, rows: pa.Table) -> None:
    result = make_request(file, "id BETWEEN 1490 AND 1510 OR id = 5999").prune()
    batches = read_selection(file, result.row_groups, result.row_selection, ["place", "id"], positions="at")
    found = pa.Table.from_batches(batches)
    assert found["at"].to_pylist() == found["id"].to_pylist() == list_positions(result)
    assert found.column_names == ["place", "id", "at"]
    assert found["place"].equals(rows["place"].take(found["at"]))


def test_reading_a_selection_rejects_mismatched_arguments(file: Path) -> None:
    everything = RowSelection.all(ROWS_PER_GROUP)
    assert sum(batch.num_rows for batch in read_selection(file, [1], everything)) == ROWS_PER_GROUP
    with pytest.raises(InvalidArgument, match="has 1500 rows in total, and the row groups have 3000"):
        read_selection(file, [1, 2], everything)
    with pytest.raises(InvalidArgument, match=r"no row group 5 in .*, which has 4"):
        read_selection(file, [5], everything)
    with pytest.raises(InvalidArgument, match=r"selection must be a RowSelection, .* found a NoneType"):
        read_selection(file, [1], None)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match=r"file must be a path, a URI or .* found an int"):
        make_request(5, "id = 1").prune()  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="columns is empty"):
        read_selection(file, [1], everything, [])
    with pytest.raises(UnknownColumn, match="no column 'nope'"):
        read_selection(file, [1], everything, ["nope"])
    with pytest.raises(InvalidArgument, match="a column 'id' already exists"):
        read_selection(file, [1], everything, positions="id")


def test_P9_chunks_without_an_offset_index_are_fetched_once_for_all_batches(
    tmp_path: Path, rows: pa.Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "plain.parquet"
    pq.write_table(rows, path)
    fetched: list[int] = []
    plainly = RangedFile.read

    def read(self: RangedFile, ranges: Any, **options: Any) -> list[pa.Buffer]:
        fetched.append(len(ranges))
        return plainly(self, ranges, **options)

    monkeypatch.setattr(RangedFile, "read", read)
    chosen = RowSelection.from_ranges([(50, 1_000), (2_000, 2_500)], len(rows))
    tuning = Tuning(max_batch_rows=100)
    batches = list(read_selection(path, [0], chosen, ["id", "place"], positions="at", tuning=tuning))
    assert [batch.num_rows for batch in batches] == [100] * 14 + [50]
    found = pa.Table.from_batches(batches)
    assert found["at"].to_pylist() == chosen.to_indices().tolist()
    assert found.select(["id", "place"]).equals(rows.select(["id", "place"]).take(found["at"]))
    assert sum(fetched) == 4  # the footer, and three chunks
