"""Tables that Delta on Spark wrote: the rows that Spark read, and the errors for broken tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder

import tamis
from tamis.errors import CorruptFile, MissingFile, TamisError

IN_ANOTHER_ZONE = "data-reader-partition-values"
"""Spark wrote it, and its expected rows, in a session of the Pacific; a string without a zone is in UTC here."""

NOT_WITH_DELTALAKE = {
    "type-widening": "deltalake does not know the feature",
    "with_checkpoint_no_last_checkpoint": "its data files are not there",
    "trino-old_timestamps": "deltalake does not rebase timestamps before 1582: see test_datetime_rebase",
}

METADATA_ONLY = {
    "canonicalized-paths-normal-a": (1, []),
    "canonicalized-paths-normal-b": (1, []),
    "checkpoint": (14, ["15"]),
    "delete-re-add-same-file-different-transactions": (3, ["bar", "foo"]),
    "deltalog-commit-info": (0, ["abc"]),
    "log-replay-special-characters-b": (0, ["special p@#h"]),
    "update-deleted-directory": (0, ["1", "10", "2", "3", "4", "5", "6", "7", "8", "9"]),
}
"""Tables that have only a log: their version and the names of their files."""


def list_labelled_tables(golden: Path) -> Iterator[tuple[str, Path, pa.Table]]:
    for folder in sorted(golden.glob("delta/*/expected")):
        expected = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
        yield folder.parent.name, folder.parent / "delta", pa.concat_tables(expected, promote_options="default")


def count_rows(rows: pa.Table) -> Counter[str]:
    return Counter(map(repr, rows.to_pylist()))


def test_every_table_has_the_rows_that_spark_found_in_it(golden: Path) -> None:
    found = 0
    for name, table, expected in list_labelled_tables(golden):
        opened = tamis.open(table)
        rows = opened.scan().to_arrow()
        assert opened.schema.names == rows.column_names, name
        assert set(rows.column_names) == set(expected.column_names), name
        assert opened.scan().count() == expected.num_rows, name
        if name != IN_ANOTHER_ZONE:
            assert count_rows(rows.select(expected.column_names)) == count_rows(expected), name
        found += 1
    assert found > 30


def test_D5_T7_a_partition_value_without_zone_is_in_utc(golden: Path) -> None:
    tables = {name: (table, expected) for name, table, expected in list_labelled_tables(golden)}
    table, expected = tables[IN_ANOTHER_ZONE]
    rows = tamis.open(table).scan().to_arrow().select(expected.column_names)
    others = [name for name in expected.column_names if name != "as_timestamp"]
    assert count_rows(rows.select(others)) == count_rows(expected.select(others))
    pacific = timedelta(hours=7)
    assert sorted(rows["as_timestamp"].drop_null().to_pylist()) == [
        timestamp - pacific for timestamp in sorted(expected["as_timestamp"].drop_null().to_pylist())
    ]


def test_rows_are_the_same_by_every_column_alone(golden: Path) -> None:
    for name, table, expected in list_labelled_tables(golden):
        opened = tamis.open(table)
        for column in opened.schema.names:
            if (name, column) == (IN_ANOTHER_ZONE, "as_timestamp"):
                continue
            rows = opened.scan(columns=[f"`{column}`"]).to_arrow()
            assert count_rows(rows) == count_rows(expected.select([column])), (name, column)


def test_D6_statistics_of_every_table_keep_each_existing_value(golden: Path) -> None:
    for name, table, _ in list_labelled_tables(golden):
        opened = tamis.open(table)
        rows = opened.scan().to_arrow()
        for field in opened.schema:
            if pa.types.is_nested(field.type) or pa.types.is_null(field.type) or not rows.num_rows:
                continue
            nulls = rows[field.name].null_count
            assert opened.scan(tamis.col(field.name).is_null()).count() == nulls, (name, field.name)
            for value in rows[field.name].drop_null().unique()[:2]:
                wanted = pc.sum(pc.equal(rows[field.name], value)).as_py()
                found = opened.scan(tamis.col(field.name) == value.as_py())
                assert found.to_arrow().num_rows == wanted == found.count(), (name, field.name, value)


@pytest.mark.parametrize("name", METADATA_ONLY)
def test_the_files_of_a_table_that_has_only_a_log(golden: Path, name: str) -> None:
    version, files = METADATA_ONLY[name]
    opened = tamis.open(golden / "delta" / name / "delta")
    assert opened.version == version
    assert sorted(Path(path).name for path in opened.files()["path"].to_pylist()) == files
    if files:
        with pytest.raises((MissingFile, CorruptFile), match="|".join(files)):
            opened.scan().to_arrow()


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("deltalog-state-reconstruction-from-checkpoint-missing-protocol", CorruptFile, "no protocol action"),
        ("deltalog-state-reconstruction-without-metadata", CorruptFile, "no metaData action"),
    ],
)
def test_a_log_that_lacks_what_a_table_needs_is_an_error(
    golden: Path, name: str, error: type[TamisError], message: str
) -> None:
    with pytest.raises(error, match=message):
        tamis.open(golden / "delta" / name / "delta")


def test_a_folder_without_a_log_is_not_a_delta_table(golden: Path) -> None:
    folder = golden / "delta" / "no-delta-log-folder" / "delta"
    with pytest.raises(TamisError, match="_delta_log"):
        tamis.open(folder, format="delta")
    assert tamis.open(folder).format == "hive"


def list_unlabelled_tables(golden: Path) -> Iterator[Path]:
    for log in sorted([*golden.glob("delta-unlabelled/**/_delta_log"), *golden.glob("delta/hive/**/_delta_log")]):
        yield log.parent


def test_tables_without_expected_rows_have_the_rows_that_deltalake_finds(golden: Path) -> None:
    compared = 0
    for folder in list_unlabelled_tables(golden):
        if folder.name in NOT_WITH_DELTALAKE:
            continue
        opened = tamis.open(folder)
        rows = opened.scan().to_arrow()
        peer = DeltaTable(folder)
        theirs = pa.table(QueryBuilder().register("t", peer).execute("SELECT * FROM t").read_all())
        assert opened.version == peer.version(), folder.name
        # Delta on Spark does not show columns that are always NULL.
        shown = [field.name for field in peer.schema().fields if str(field.type) != 'PrimitiveType("void")']
        assert opened.schema.names == shown, folder.name
        assert count_rows(rows) == count_rows(theirs.select(rows.column_names)), folder.name
        assert opened.scan().count() == theirs.num_rows, folder.name
        compared += 1
    assert compared > 20


def test_D19_type_widening_reads_files_of_both_types(golden: Path) -> None:
    folder = golden / "delta-unlabelled" / "type-widening"
    opened = tamis.open(folder)
    files = [pq.read_table(path) for path in sorted(folder.glob("*.parquet"))]
    assert files[0].schema.types != files[1].schema.types
    assert any(each.schema.types != opened.schema.types for each in files)
    expected = pa.concat_tables([each.cast(opened.schema) for each in files])
    assert count_rows(opened.scan().to_arrow()) == count_rows(expected)
    assert opened.scan().count() == expected.num_rows


def test_E2_missing_data_files(golden: Path) -> None:
    opened = tamis.open(golden / "delta-unlabelled" / "with_checkpoint_no_last_checkpoint")
    with pytest.raises(MissingFile, match=r"part-0000.*\.parquet"):
        opened.scan().to_arrow()


def test_D22_pretty_printed_commits_have_the_rows_that_deltalake_finds(golden: Path) -> None:
    folder = golden / "delta-unlabelled" / "duckdb-null_constraints_lists" / "delta_lake"
    if not folder.is_dir():
        pytest.skip(f"no golden table at {folder}")
    opened, peer = tamis.open(folder), DeltaTable(folder)
    theirs = pa.table(QueryBuilder().register("t", peer).execute("SELECT * FROM t").read_all())
    assert opened.version == peer.version() == 1
    assert count_rows(opened.scan().to_arrow()) == count_rows(theirs)
    assert opened.scan("i >= 5").count() == opened.scan("i >= 5").to_arrow().num_rows
    assert opened.history()["operation"].to_pylist() == ["SET TBLPROPERTIES", "CREATE TABLE AS SELECT"]
