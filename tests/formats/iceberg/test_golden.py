"""Tables by other writers, moved from where they were written: the same rows as a slow reference reader."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from decimal import Decimal
from functools import cache
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tamis
from builders.iceberg.reference_reader import ReferenceTable
from tamis.errors import TamisError

ROWS = {
    "custom_write_paths": 0,
    "equality_deletes/warehouse/mydb/mytable": 2,
    "equality_deletes/warehouse/mydb/mytable_partitioned": 3,
    "hive_partitioned_table": 6,
    "iceberg/lineitem_iceberg": 51793,
    "is_null_is_not_null": 8,
    "map_stats/default.db/map_stats": 2,
    "name_mapping/warehouse_1/mydb/t1": 10000,
    "partition_bigint": 2,
    "partition_binary": 2,
    "partition_bool": 2,
    "partition_decimal_integer": 3,
    "partition_double": 2,
    "partition_timestamp/default.db/partition_timestamp": 2,
}
"""The row count of each table, so that a common mistake of both readers is found."""


def list_tables(golden: Path) -> Iterator[tuple[str, Path]]:
    for name in ROWS:
        yield name, golden / "iceberg" / "data" / "persistent" / name


@cache
def read_by_hand(folder: Path, snapshot: int | None = None) -> pa.Table:
    return ReferenceTable(folder).rows(snapshot)


def has_same_rows(found: pa.Table, expected: pa.Table) -> bool:
    """Compare rows in any order: row by row if there are few, and with nested columns."""
    if len(expected) < 1_000:
        return Counter(map(repr, found.to_pylist())) == Counter(map(repr, expected.to_pylist()))
    order = [(name, "ascending") for name in expected.column_names]
    optional = pa.table(found.columns, names=found.column_names)
    return bool(optional.sort_by(order).equals(expected.sort_by(order)))


def test_every_golden_table_is_tested(golden: Path) -> None:
    root = golden / "iceberg" / "data" / "persistent"
    found = {str(each.parents[1].relative_to(root)) for each in root.rglob("*.metadata.json")}
    assert found == ROWS.keys()


def test_I6_I10_every_table_equals_the_reference_reader(golden: Path) -> None:
    for name, folder in list_tables(golden):
        expected = read_by_hand(folder)
        opened = tamis.open(folder)
        rows = opened.scan().to_arrow()
        assert opened.format == "iceberg"
        assert rows.schema.names == opened.schema.names == expected.schema.names, name
        assert rows.schema.types == expected.schema.types, name
        assert has_same_rows(rows, expected), name
        assert opened.scan().count() == rows.num_rows == ROWS[name], name


def test_I8_every_snapshot_has_its_rows(golden: Path) -> None:
    seen = 0
    for name, folder in list_tables(golden):
        slow = ReferenceTable(folder)
        for number, snapshot in slow.snapshots.items():
            if not slow.resolve_path(snapshot["manifest-list"]).exists():
                with pytest.raises(TamisError, match=Path(snapshot["manifest-list"]).name):
                    tamis.open(folder, snapshot_id=number).scan().to_arrow()
                continue
            seen += 1
            opened = tamis.open(folder, snapshot_id=number)
            assert opened.version == number
            assert has_same_rows(opened.scan().to_arrow(), read_by_hand(folder, number)), (name, number)
    assert seen > 20


def test_rows_are_the_same_by_every_column_alone(golden: Path) -> None:
    for name, folder in list_tables(golden):
        expected = read_by_hand(folder)
        opened = tamis.open(folder)
        for column in expected.column_names:
            rows = opened.scan(columns=[f"`{column}`"]).to_arrow()
            assert has_same_rows(rows, expected.select([column])), (name, column)


def test_every_value_finds_its_rows(golden: Path) -> None:
    """Partition values and bounds of every type: a wrong one would skip the file of an existing value."""
    for name, folder in list_tables(golden):
        opened = tamis.open(folder)
        expected = read_by_hand(folder)
        for field in opened.schema:
            if pa.types.is_nested(field.type):
                continue
            values = expected[field.name]
            for value in values.slice(0, 200).unique().slice(0, 4 if len(expected) < 100 else 1):
                column = tamis.col(field.name)
                where = column.is_null() if not value.is_valid else column == value.as_py()
                wanted = pc.sum(pc.equal(values, value)).as_py() if value.is_valid else values.null_count
                assert opened.scan(where).count() == wanted, (name, field, value)


def test_partitions_alone_choose_files(golden: Path) -> None:
    root = golden / "iceberg" / "data" / "persistent"
    for name, where, kept, total in (
        ("partition_bigint", "partition_col = 9223372036854775807", 1, 2),
        ("partition_bool", "partition_col", 1, 2),
        ("partition_binary", "partition_col = X'010203'", 1, 2),
        ("partition_decimal_integer", "partition_col BETWEEN 1 AND 50", 2, 3),
        ("partition_double", "partition_col < 3", 1, 2),
        ("partition_timestamp/default.db/partition_timestamp", "date(partition_col) = DATE '2023-05-15'", 1, 2),
        ("hive_partitioned_table", "event_date = DATE '2024-01-02' OR event_type = 'purchase'", 3, 6),
        ("equality_deletes/warehouse/mydb/mytable_partitioned", "name IN ('a', 'f')", 2, 6),
    ):  # fmt: skip
        opened = tamis.open(root / name)
        plan = opened.scan(where, levels=["partitions", "manifests"]).plan("files")
        assert (plan.num_files, opened.files().num_rows) == (kept, total), name


def test_tpch_query_6_has_the_revenue_of_spark(golden: Path) -> None:
    table = tamis.open(golden / "iceberg" / "data" / "persistent" / "iceberg" / "lineitem_iceberg")
    rows = table.scan(
        "l_shipdate >= DATE '1994-01-01' AND l_shipdate < DATE '1995-01-01' AND "
        "l_discount BETWEEN 0.05 AND 0.07 AND l_quantity < 24",
        columns=["l_extendedprice", "l_discount"],
    ).to_arrow()
    assert rows.num_rows
    found = duckdb.connect().register("rows", rows).sql("SELECT sum(l_extendedprice * l_discount) FROM rows")
    ((revenue,),) = found.fetchall()
    assert revenue == Decimal("1077536.9101")


def test_I10_moved_tables_are_reported_and_can_be_rejected(golden: Path) -> None:
    folder = golden / "iceberg" / "data" / "persistent" / "partition_bool"
    assert "data/persistent/partition_bool" in tamis.open(folder).scan().explain()
    with pytest.raises(TamisError, match="data/persistent/partition_bool") as found:
        tamis.open(folder, relocate=False)
    assert str(folder) in str(found.value)
