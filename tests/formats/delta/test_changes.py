"""The change data feed equals what deltalake reads, and prunes by commits and partitions."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import tamis
from builders.delta.tables import make_inline_vector

ENABLED = {"delta.enableChangeDataFeed": "true"}


def write_history(path: Path, seed: int, *, partitioned: bool) -> DeltaTable:
    """Write a table with random appends, deletes, updates, merges and overwrites."""
    chance = random.Random(seed)

    def make_rows(start: int) -> pa.Table:
        ids = range(start, start + chance.randint(1, 30))
        return pa.table(
            {
                "id": pa.array(ids, pa.int64()),
                "day": pa.array([None if chance.random() < 0.1 else f"d{id % 3}" for id in ids], pa.string()),
                "amount": pa.array([chance.choice([None, id / 2]) for id in ids], pa.float64()),
            }
        )

    by = ["day"] if partitioned else None
    write_deltalake(path, make_rows(0), configuration=ENABLED, partition_by=by)
    for number in range(1, 9):
        table = DeltaTable(path)
        first = chance.randint(0, 20)
        match chance.choice(["append", "delete", "update", "merge", "overwrite", "optimize"]):
            case "append":
                write_deltalake(path, make_rows(number * 100), mode="append")
            case "delete":
                table.delete(f"id >= {first} AND id < {first + 15}")
            case "update":
                table.update(predicate=f"id % 3 = {first % 3}", updates={"amount": "amount + 1"})
            case "merge":
                merge = table.merge(make_rows(first), "s.id = t.id", source_alias="s", target_alias="t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            case "overwrite":
                write_deltalake(path, make_rows(number * 100), mode="overwrite")
            case "optimize":
                table.optimize.compact()
    return DeltaTable(path)


def read_with_deltalake(table: DeltaTable, first: int, last: int) -> list[dict[str, Any]]:
    """Read each version apart: deltalake mixes up versions that have the same file."""
    found = []
    for version in range(first, last + 1):
        found += pa.table(table.load_cdf(starting_version=version, ending_version=version).read_all()).to_pylist()
    return found


def list_rows(rows: list[dict[str, Any]]) -> list[str]:
    columns = ("id", "day", "amount", "_change_type", "_commit_version")
    return sorted(str([row[name] for name in columns]) for row in rows)


@pytest.mark.parametrize("seed", range(8))
def test_changes_are_those_that_deltalake_reads(tmp_path: Path, seed: int) -> None:
    table = write_history(tmp_path, seed, partitioned=seed % 2 == 0)
    newest = table.version()
    for first, last in ((0, newest), (newest // 2, newest), (2, 2)):
        changes = tamis.open(tmp_path, changes=(first, last))
        expected = read_with_deltalake(table, first, last)
        assert list_rows(changes.scan().to_arrow().to_pylist()) == list_rows(expected)
        assert changes.scan().count() == len(expected)


@pytest.mark.parametrize("seed", range(4))
def test_changes_added_up_are_the_rows_of_the_table(tmp_path: Path, seed: int) -> None:
    write_history(tmp_path, seed, partitioned=seed % 2 == 0)
    sums: Counter[str] = Counter()
    for row in tamis.open(tmp_path, changes=(0, None)).scan().to_arrow().to_pylist():
        values = str([row[name] for name in ("id", "day", "amount")])
        sums[values] += 1 if row["_change_type"] in ("insert", "update_postimage") else -1
    rows = tamis.open(tmp_path).scan().to_arrow().to_pylist()
    assert +sums == Counter(str([row[name] for name in ("id", "day", "amount")]) for row in rows)
    assert not -sums


FILTERS = [
    "_commit_version > 3",
    "_change_type = 'insert'",
    "_change_type <> 'insert' AND day = 'd1'",
    "day IS NULL OR _commit_version = 2",
    "NOT (_change_type LIKE 'update%' AND amount > 10)",
    "_commit_timestamp IS NULL",
    "id < 12 AND _change_type IN ('delete', 'update_preimage')",
]


@pytest.mark.parametrize("where", FILTERS)
@pytest.mark.parametrize("partitioned", [True, False])
def test_O1_filters_on_any_column_find_the_rows_of_a_full_scan(tmp_path: Path, where: str, partitioned: bool) -> None:
    write_history(tmp_path, 7, partitioned=partitioned)
    changes = tamis.open(tmp_path, changes=(0, None))
    rows = duckdb.from_arrow(changes.scan().to_arrow())
    expected = rows.filter(where).to_arrow_table()
    found = changes.scan(where)
    assert list_rows(found.to_arrow().to_pylist()) == list_rows(expected.to_pylist())
    assert found.count() == expected.num_rows


def test_O1_every_subset_of_levels_returns_the_same_changes(tmp_path: Path) -> None:
    write_history(tmp_path, 7, partitioned=True)
    runs = tamis.open(tmp_path, changes=(0, None)).verify("day = 'd1' AND _change_type <> 'insert' AND id < 12")
    assert all(run.same for run in runs)


def test_other_commits_are_skipped_before_their_files_are_opened(tmp_path: Path) -> None:
    write_history(tmp_path, 3, partitioned=False)
    plan = tamis.open(tmp_path, changes=(0, None)).scan("_commit_version = 0").plan("files")
    assert plan.num_files == 1
    [level, *_] = plan.report.to_dict()["levels"]
    assert (level["level"], level["kept"]) == ("partitions", 1)
    assert level["total"] > 1


def test_changes_are_queried_by_sql(tmp_path: Path) -> None:
    write_history(tmp_path, 3, partitioned=True)
    session = tamis.connect()
    session.register("changes", session.open(tmp_path, changes=(0, None)))
    found = session.sql("SELECT _change_type, count(*) AS n FROM changes GROUP BY ALL ORDER BY 1").to_arrow()
    rows = session.open(tmp_path, changes=(0, None)).scan().to_arrow()["_change_type"].to_pylist()
    assert found.to_pylist() == [{"_change_type": name, "n": count} for name, count in sorted(Counter(rows).items())]


# --- Deletion vectors: written by hand, because deltalake writes none -------------------------------------------------


def write_vectors(path: Path, steps: list[list[int] | None]) -> None:
    """Write a table of ten rows, then a commit for each set of deleted rows of its one file."""
    write_deltalake(path, pa.table({"id": range(10)}), configuration=ENABLED)
    log = path / "_delta_log"
    actions = [json.loads(line) for line in (log / f"{0:020}.json").read_text().splitlines()]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors", "changeDataFeed"],
    }
    actions = [{"protocol": protocol} if "protocol" in each else each for each in actions]
    (log / f"{0:020}.json").write_text("".join(f"{json.dumps(each)}\n" for each in actions))
    add = next(each["add"] for each in actions if "add" in each)
    before = None
    for version, rows in enumerate(steps, 1):
        vector = None if rows is None else make_inline_vector(rows)
        old = {name: add[name] for name in ("path", "size", "partitionValues")} | {"dataChange": True}
        new = {**add, "dataChange": True}
        old |= {} if before is None else {"deletionVector": before}
        new |= {} if vector is None else {"deletionVector": vector}
        (log / f"{version:020}.json").write_text(f"{json.dumps({'remove': old})}\n{json.dumps({'add': new})}\n")
        before = vector


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ([[1, 3]], {1: {"delete": [1, 3]}}),
        ([[1], [1, 5, 9]], {1: {"delete": [1]}, 2: {"delete": [5, 9]}}),
        ([[1, 2], [2]], {1: {"delete": [1, 2]}, 2: {"insert": [1]}}),
        ([[1, 2], None], {1: {"delete": [1, 2]}, 2: {"insert": [1, 2]}}),
        ([[1, 2], [2, 3]], {1: {"delete": [1, 2]}, 2: {"delete": [3], "insert": [1]}}),
        ([list(range(10))], {1: {"delete": list(range(10))}}),
    ],
)
def test_D16_deleted_and_restored_rows_are_those_in_which_vectors_differ(
    tmp_path: Path, steps: list[list[int] | None], expected: dict[int, dict[str, list[int]]]
) -> None:
    write_vectors(tmp_path, steps)
    found: dict[int, dict[str, list[int]]] = {}
    for row in tamis.open(tmp_path, changes=(1, None)).scan().to_arrow().to_pylist():
        found.setdefault(row["_commit_version"], {}).setdefault(row["_change_type"], []).append(row["id"])
    assert {version: {name: sorted(ids) for name, ids in kinds.items()} for version, kinds in found.items()} == expected
    counts = {version: sum(map(len, kinds.values())) for version, kinds in expected.items()}
    for version, count in counts.items():
        assert tamis.open(tmp_path, changes=(version, version)).scan().count() == count


# --- Errors -----------------------------------------------------------------------------------------------------------


def test_a_table_without_a_feed_is_an_error_that_names_the_property(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    with pytest.raises(tamis.errors.UnsupportedFeature, match=r"delta\.enableChangeDataFeed=true"):
        tamis.open(tmp_path, changes=(0, None)).scan().to_arrow()


def test_versions_before_the_feed_are_an_error(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1]}))
    DeltaTable(tmp_path).alter.set_table_properties(ENABLED)
    write_deltalake(tmp_path, pa.table({"id": [2]}), mode="append")
    with pytest.raises(tamis.errors.UnsupportedFeature, match="from 0 to 2"):
        tamis.open(tmp_path, changes=(0, None)).scan().to_arrow()
    assert tamis.open(tmp_path, changes=(2, None)).scan().to_arrow()["id"].to_pylist() == [2]


@pytest.mark.parametrize("changes", [5, "0", (3,), (None, 1), (True, 2), (-1, 0), (2, 1), (99, None)])
def test_an_invalid_range_is_an_error(tmp_path: Path, changes: Any) -> None:
    write_history(tmp_path, 1, partitioned=False)
    with pytest.raises(tamis.errors.InvalidArgument, match="changes must"):
        tamis.open(tmp_path, changes=changes)


@pytest.mark.parametrize("kind", ["upsert", "", None])
def test_a_change_of_an_unknown_kind_is_an_error_and_not_a_lost_row(tmp_path: Path, kind: str | None) -> None:
    write_deltalake(tmp_path, pa.table({"id": [1, 2]}), configuration=ENABLED)
    DeltaTable(tmp_path).update(predicate="id = 1", updates={"id": "5"})
    [path] = (tmp_path / "_change_data").glob("*.parquet")
    rows = pq.read_table(path)
    position = rows.column_names.index("_change_type")
    kinds = pa.array([kind, *rows["_change_type"].to_pylist()[1:]], pa.string())
    pq.write_table(rows.set_column(position, "_change_type", kinds), path)
    log = tmp_path / "_delta_log" / f"{1:020}.json"
    actions = [json.loads(line) for line in log.read_text().splitlines()]
    for each in actions:
        if "cdc" in each:
            each["cdc"]["size"] = path.stat().st_size
    log.write_text("".join(f"{json.dumps(each)}\n" for each in actions))
    changes = tamis.open(tmp_path, changes=(1, 1))
    for where in (None, "_change_type = 'update_postimage'", "id = 5"):
        with pytest.raises(tamis.errors.CorruptFile, match=f"has a change of the kind {kind!r}, expected insert"):
            changes.scan(where).to_arrow()


def test_a_range_and_a_version_are_not_given_together(tmp_path: Path) -> None:
    write_history(tmp_path, 1, partitioned=False)
    with pytest.raises(tamis.errors.InvalidArgument, match="without version="):
        tamis.open(tmp_path, version=1, changes=(0, 1))


def test_a_column_of_the_name_of_a_feed_is_an_error(tmp_path: Path) -> None:
    write_deltalake(tmp_path, pa.table({"_change_type": ["a"]}))
    with pytest.raises(tamis.errors.TamisError, match=r"rename it|enableChangeDataFeed"):
        tamis.open(tmp_path, changes=(0, 0)).scan().to_arrow()


def test_folders_have_no_changes(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "a.parquet")
    with pytest.raises(tamis.errors.UnsupportedFeature, match="changes="):
        tamis.open(tmp_path, changes=(0, None))
