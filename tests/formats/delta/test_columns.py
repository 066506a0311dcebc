"""Columns of a Delta table in files that have other names or older types for them, or lack them."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import tamis
from builders.delta.log import DeltaLog, metadata
from builders.delta.statistics import field, mapping
from builders.delta.tables import data_file, write_vector
from builders.parquet.tuning import BY_PAGES
from tamis import PartitionFilter
from tamis.errors import CorruptFile


def make_ids(start: int, end: int) -> pa.Table:
    return pa.table({"id": pa.array(range(start, end), pa.int64())})


def find_ids(table: tamis.Table, where: object = None, **options: Any) -> list[int]:
    return sorted(table.scan(where, **options).to_arrow()["id"].to_pylist())


def plan_files(table: tamis.Table, where: object = None) -> list[str]:
    """Return the names of the files that a scan plans."""
    return sorted(Path(path).name for path in table.scan(where).plan("files").files["path"].to_pylist())


def test_D4_D5_partition_columns_have_their_declared_position_and_type(tmp_path: Path) -> None:
    declared = {
        "day": "date", "id": "long", "amount": "decimal(7,2)", "at": "timestamp", "local": "timestamp_ntz",
        "flag": "boolean", "name": "string", "raw": "binary", "small": "byte", "real": "float",
    }  # fmt: skip
    partitions = [name for name in declared if name != "id"]
    log = DeltaLog(tmp_path, declared, partition_columns=partitions, features=["timestampNtz"])
    texts = {
        "day": "2024-02-29", "amount": "1.50", "at": "2024-01-01T10:00:00.000001Z", "local": "2024-01-01 10:00:00",
        "flag": "true", "name": "null", "raw": "\u0001ab", "small": "-3", "real": "NaN",
    }  # fmt: skip
    # Partition values in the path are ignored.
    log.commit(
        data_file(log, "day=1999-01-01/1.parquet", make_ids(0, 1), texts),
        data_file(log, "day=1999-01-01/2.parquet", make_ids(1, 2), dict.fromkeys(texts, "")),
        data_file(log, "day=1999-01-01/3.parquet", make_ids(2, 3), dict.fromkeys(texts, None)),
    )
    table = tamis.open(tmp_path)
    rows = table.scan().to_arrow()
    assert rows.column_names == list(declared)
    assert rows.schema.types == [
        pa.date32(), pa.int64(), pa.decimal128(7, 2), pa.timestamp("us", "UTC"), pa.timestamp("us"), pa.bool_(),
        pa.string(), pa.binary(), pa.int8(), pa.float32(),
    ]  # fmt: skip
    first, *others = rows.sort_by("id").to_pylist()
    assert str(first.pop("real")) == "nan"
    assert first == {
        "day": date(2024, 2, 29), "id": 0, "amount": Decimal("1.50"),
        "at": datetime(2024, 1, 1, 10, 0, 0, 1, tzinfo=UTC), "local": datetime(2024, 1, 1, 10), "flag": True,
        "name": "null", "raw": b"\x01ab", "small": -3,
    }  # fmt: skip
    assert others == [dict.fromkeys(declared) | {"id": 1}, dict.fromkeys(declared) | {"id": 2}]
    assert find_ids(table, "day = DATE '2024-02-29' AND small < 0 AND name = 'null'") == [0]
    assert find_ids(table, "day IS NULL") == [1, 2]


def make_mapped_log(log_folder: Path, mode: str) -> DeltaLog:
    """Return the log of a table whose columns have other names in its files, also inside structs, lists and maps."""
    inner = {"type": "struct", "fields": [field("b", "string", **mapping(4, "col-4"))]}
    elements = {"type": "struct", "fields": [field("c", "long", **mapping(6, "col-6"))]}
    fields = [
        field("p", "string", **mapping(1, "col-1")),
        field("id", "long", **mapping(2, "col-2")),
        field("s", inner, **mapping(3, "col-3")),
        field("l", {"type": "array", "elementType": elements, "containsNull": True}, **mapping(5, "col-5")),
        field("added", "double", **mapping(7, "col-7")),
    ]
    return DeltaLog(
        log_folder,
        fields,
        partition_columns=["p"],
        features=["columnMapping"],
        configuration={"delta.columnMapping.mode": mode},
    )


def make_stored_field(name: str, data_type: pa.DataType, number: int) -> pa.Field:
    return pa.field(name, data_type, metadata={"PARQUET:field_id": str(number)})


@pytest.mark.parametrize("mode", ["name", "id"])
def test_D6_columns_are_found_by_name_or_id_at_every_level(tmp_path: Path, mode: str) -> None:
    log = make_mapped_log(tmp_path, mode)
    # If columns are matched by id, the name is ignored, even if it is the name of another column.
    names = ["col-2", "col-3", "col-4", "col-5", "col-6"] if mode == "name" else ["s", "id", "c", "p", "b"]
    numbers = [2, 3, 4, 5, 6] if mode == "id" else [20, 30, 40, 50, 60]
    kinds = [make_stored_field(names[2], pa.string(), numbers[2]), make_stored_field(names[4], pa.int64(), numbers[4])]
    schema = pa.schema(
        [
            make_stored_field(names[0], pa.int64(), numbers[0]),
            make_stored_field(names[1], pa.struct([kinds[0]]), numbers[1]),
            make_stored_field(names[3], pa.list_(pa.struct([kinds[1]])), numbers[3]),
            make_stored_field("dropped", pa.string(), 99),
        ]
    )
    for number in (1, 2):
        row = [number], [{names[2]: f"t{number}"}], [[{names[4]: number}]], ["gone"]
        rows = pa.table([pa.array(each, one.type) for each, one in zip(row, schema, strict=True)], schema=schema)
        text = json.dumps(
            {
                "numRecords": 1,
                "minValues": {"col-2": number, "col-3": {"col-4": f"t{number}"}},
                "maxValues": {"col-2": number, "col-3": {"col-4": f"t{number}"}},
                "nullCount": {"col-2": 0, "col-3": {"col-4": 0}, "col-7": 1},
            }
        )
        log.commit(data_file(log, f"{number}.parquet", rows, {"col-1": "a" if number == 1 else ""}, stats=text))
    table = tamis.open(tmp_path)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [
        {"p": "a", "id": 1, "s": {"b": "t1"}, "l": [{"c": 1}], "added": None},
        {"p": None, "id": 2, "s": {"b": "t2"}, "l": [{"c": 2}], "added": None},
    ]
    assert plan_files(table, "s.b = 't2'") == ["2.parquet"]
    assert plan_files(table, "id < 2") == plan_files(table, "p = 'a'") == ["1.parquet"]
    assert find_ids(table, "s.b = 't2' AND added IS NULL") == [2]
    assert find_ids(table, PartitionFilter.eq("p", "a")) == [1]
    assert find_ids(table, PartitionFilter.is_null("p")) == [2]
    assert table.scan(columns=["s.b"]).to_arrow().to_pylist() == [{"s": {"b": "t1"}}, {"s": {"b": "t2"}}]


def test_D6_a_column_that_was_dropped_and_added_again_is_a_new_column(tmp_path: Path) -> None:
    def make_metadata(number: int) -> Any:
        columns = [field("id", "long", **mapping(1, "col-1")), field("x", "long", **mapping(number, f"col-{number}"))]
        return metadata(columns, configuration={"delta.columnMapping.mode": "name"})

    log = DeltaLog(tmp_path, features=["columnMapping"])
    log.start = (log.start[0], make_metadata(2))

    def make_rows(start: int, name: str) -> pa.Table:
        return pa.table({"col-1": pa.array([start], pa.int64()), name: pa.array([start], pa.int64())})

    log.commit(data_file(log, "1.parquet", make_rows(1, "col-2")))
    log.commit(make_metadata(3), data_file(log, "2.parquet", make_rows(2, "col-3")))
    table = tamis.open(tmp_path)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "x": None}, {"id": 2, "x": 2}]
    assert find_ids(table, "x IS NULL") == [1]
    assert find_ids(table, "x = 1") == []
    assert tamis.open(tmp_path, version=0).scan().to_arrow().to_pylist() == [{"id": 1, "x": 1}]


def make_schema_with_ids(*fields: tuple[str, pa.DataType, int | None]) -> pa.Schema:
    """Return the schema of a file in which all or some fields have ids."""
    return pa.schema(
        [
            pa.field(name, data_type, metadata=None if number is None else {"PARQUET:field_id": str(number)})
            for name, data_type, number in fields
        ]
    )


@pytest.mark.parametrize("is_inside", [False, True])
def test_D6_a_column_without_its_field_id_is_an_error(tmp_path: Path, is_inside: bool) -> None:
    inner = [field("a", "long", **mapping(1, "x")), field("b", "long", **mapping(2, "y"))]
    element = {"type": "array", "elementType": {"type": "struct", "fields": inner}, "containsNull": True}
    columns = [field("l", element, **mapping(3, "z"))] if is_inside else inner
    more = field("p", "string", **mapping(4, "p"))
    properties = {"delta.columnMapping.mode": "id"}
    log = DeltaLog(tmp_path, [*columns, more], partition_columns=["p"], configuration=properties, reader=2)

    def write(name: str, *fields: tuple[str, pa.DataType, int | None]) -> dict[str, Any]:
        row = {field_name: 5 if data_type == pa.int64() else "p" for field_name, data_type, _ in fields}
        schema = make_schema_with_ids(*fields)
        if is_inside:
            schema = make_schema_with_ids(("z", pa.list_(pa.field("element", pa.struct(list(schema)))), 3))
            row = {"z": [row]}
        return data_file(log, name, pa.Table.from_pylist([row], schema), {"p": "here"}, stats=None)

    # A column that the table does not have may lack an id, and so may a partition column.
    right = [("x", pa.int64(), 1), ("q", pa.int64(), 2), ("y", pa.int64(), None), ("_row_id", pa.int64(), None)]
    log.commit(write("1.parquet", *right, *([] if is_inside else [("p", pa.string(), None)])))
    expected = {"a": 5, "b": 5}
    expected_row = {"l": [expected], "p": "here"} if is_inside else {**expected, "p": "here"}
    assert tamis.open(tmp_path).scan().to_arrow().to_pylist() == [expected_row]
    log.commit(write("2.parquet", ("x", pa.int64(), 1), ("y", pa.int64(), None)))
    with pytest.raises(CorruptFile, match=r"2\.parquet' has no field id for its column 'y', and its table maps"):
        tamis.open(tmp_path).scan().to_arrow()


def test_D14_columns_added_later_are_null_in_older_files_and_dropped_ones_are_not_read(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "old": "string"})
    log.commit(data_file(log, "1.parquet", pa.table({"id": pa.array([1], pa.int64()), "old": ["x"]})))
    log.commit(
        metadata({"id": "long", "new": "string"}),
        data_file(log, "2.parquet", pa.table({"id": pa.array([2], pa.int64()), "new": ["y"]})),
    )
    table = tamis.open(tmp_path)
    assert table.scan().to_arrow().sort_by("id").to_pylist() == [{"id": 1, "new": None}, {"id": 2, "new": "y"}]
    assert find_ids(table, "new IS NULL") == [1]
    assert find_ids(table, "new IS NULL OR new = 'y'") == [1, 2]
    assert find_ids(table, "NOT new = 'y'") == []


def test_D19_files_and_statistics_of_an_older_type(tmp_path: Path) -> None:
    def make_widened_field(name: str, before: str, after: str) -> dict[str, Any]:
        return field(name, after, **{"delta.typeChanges": [{"fromType": before, "toType": after}]})

    pairs = [("i", "byte", "long"), ("d", "float", "double"), ("n", "decimal(5,2)", "decimal(9,4)"),
             ("t", "date", "timestamp_ntz"), ("w", "integer", "double")]  # fmt: skip
    older = DeltaLog(
        tmp_path,
        {"id": "long"} | {name: before for name, before, _ in pairs},
        features=["typeWidening", "timestampNtz"],
    )
    first = pa.table(
        {
            "id": pa.array([1], pa.int64()),
            "i": pa.array([5], pa.int8()),
            "d": pa.array([0.1], pa.float32()),
            "n": pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
            "t": pa.array([date(2024, 1, 1)]),
            "w": pa.array([7], pa.int32()),
        }
    )
    second = pa.table(
        {
            "id": pa.array([2], pa.int64()),
            "i": pa.array([2**40], pa.int64()),
            "d": pa.array([1e300], pa.float64()),
            "n": pa.array([Decimal("12345.6789")], pa.decimal128(9, 4)),
            "t": pa.array([datetime(2024, 1, 1, 0, 0, 1)], pa.timestamp("us")),
            "w": pa.array([0.5], pa.float64()),
        }
    )
    older.commit(data_file(older, "1.parquet", first))
    older.commit(
        metadata([field("id", "long"), *(make_widened_field(*pair) for pair in pairs)]),
        data_file(older, "2.parquet", second),
    )
    table = tamis.open(tmp_path)
    rows = table.scan().to_arrow().sort_by("id")
    assert rows.schema.types[1:] == second.schema.types[1:]
    assert rows.to_pylist() == first.cast(rows.schema).to_pylist() + second.cast(rows.schema).to_pylist()
    for where, expected in [
        ("i = 5", [1]), ("i > 127", [2]), ("n = 1.25", [1]), ("n > 2", [2]), ("w = 7", [1]), ("w < 1", [2]),
        ("t = TIMESTAMP_NTZ '2024-01-01 00:00:00'", [1]), ("t > TIMESTAMP_NTZ '2024-01-01 00:00:00'", [2]),
        ("d < 1", [1]), ("d = CAST(CAST(0.1 AS FLOAT) AS DOUBLE)", [1]),
    ]:  # fmt: skip
        assert find_ids(table, where) == expected, where
        assert table.scan(where).count() == 1, where


def test_P5_deletion_vectors_with_filters_that_skip_row_groups(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, features=["deletionVectors"])
    options = {"row_group_size": 10, "write_page_index": True, "max_rows_per_page": 3, "write_batch_size": 1}
    action = data_file(log, "1.parquet", make_ids(0, 100), options=options)
    action["add"]["deletionVector"] = write_vector(tmp_path, [0, 33, 34, 35, 99, *range(50, 60)])
    log.commit(action)
    table = tamis.open(tmp_path)
    gone = {0, 33, 34, 35, 99, *range(50, 60)}
    assert find_ids(table) == [number for number in range(100) if number not in gone]
    assert find_ids(table, "id BETWEEN 32 AND 61") == [number for number in range(32, 62) if number not in gone]
    assert find_ids(table, "id BETWEEN 50 AND 59") == []
    assert table.scan("id >= 95").count() == 4
    assert find_ids(table, columns=["id"], limit=3) == [1, 2, 3]


def test_files_rewritten_by_deltalake_have_another_string_type(tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(20), pa.int64()), "s": [f"t{n}" for n in range(20)], "b": [b"x"] * 20})
    write_deltalake(tmp_path, rows)
    peer = DeltaTable(tmp_path)
    peer.delete("id = 3")
    table = tamis.open(tmp_path, tuning=BY_PAGES)
    (path,) = table.files()["path"].to_pylist()
    assert pq.read_schema(path).field("s").type == pa.string_view()
    assert table.scan().to_arrow().schema == rows.schema
    for where, expected in (("id IN (2, 3, 4)", [2, 4]), ("s = 't7'", [7]), ("id < 5 AND s <> 't1'", [0, 2, 4])):
        found = table.scan(where).to_arrow()
        assert (found["id"].to_pylist(), found["s"].to_pylist()) == (expected, [f"t{number}" for number in expected])
        assert found.schema == rows.schema
