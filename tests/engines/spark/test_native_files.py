"""Files whose physical column names differ from the table: native scans are used if they return the same rows."""

from __future__ import annotations

import datetime
import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")

import tamis
from builders.delta.log import DeltaLog
from builders.delta.statistics import field as delta_field
from builders.delta.statistics import mapping
from builders.delta.tables import data_file
from builders.iceberg.cases import draw_iceberg_case
from builders.iceberg.deletes import deletion_vectors, equality_deletes, position_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field, list_of
from builders.values.choices import SeededChoices
from tamis.engines.spark import native_scan as readable_files
from tamis.engines.spark.spark_types import convert_rows, to_row_schema
from tamis.tuning import DEFAULT_TUNING, Tuning

SPARK, TASKS = "FileScan parquet", "MapInArrow"


def find_readers(
    spark: Any,
    path: Path,
    where: str | None = None,
    columns: list[str] | None = None,
    tuning: Tuning = DEFAULT_TUNING,
) -> set[str]:
    """Return the readers that Spark uses, after checking that its rows are those of a scan."""
    scan = tamis.open(path, tuning=tuning).scan(where, columns)
    schema = to_row_schema(scan.schema)
    expected = pa.Table.from_batches([convert_rows(batch, schema) for batch in scan.to_batches()], schema)
    frame = scan.to_spark(spark, reader="spark")
    found = frame.toArrow()
    assert found.column_names == expected.column_names
    rows = [sorted(map(repr, each.to_pylist())) for each in (found.cast(expected.schema), expected)]
    assert rows[0] == rows[1], where
    plan = frame._jdf.queryExecution().toString()
    return {each for each in (SPARK, TASKS) if each in plan}


def test_files_that_match_the_table_are_scanned_natively(spark: Any, tmp_path: Path) -> None:
    columns = {
        "id": ("long", [1, 2, None]),
        "few": ("int", [3, None, 5]),
        "part": ("float", [float("nan"), -0.0, 1.5]),
        "amount": ("decimal(20, 3)", [Decimal("1.500"), None, Decimal("-2.125")]),
        "text": ("string", ["a", "", None]),
        "bytes": ("binary", [b"a", None, b""]),
        "short": ("fixed[2]", [b"ab", b"cd", None]),
        "day": ("date", [datetime.date(1200, 1, 8), None, datetime.date(2020, 1, 1)]),
        "created_at": ("timestamptz", [0, 1, None]),
        "clock": ("timestamp", [0, -1, None]),
        "flag": ("boolean", [True, None, False]),
    }
    fields = [field(number, name, kind) for number, (name, (kind, _)) in enumerate(columns.items(), 1)]
    fields.append(field(20, "list", list_of(21, "long")))
    inner = [field(31, "x", "int"), field(32, "y", "string")]
    fields.append(field(30, "nest", {"type": "struct", "fields": inner}))
    table = IcebergFolder(tmp_path, fields)
    values = {name: given for name, (_, given) in columns.items()}
    values |= {"list": [[1, None], None, []], "nest": [{"x": 1, "y": "a"}, None, {"x": None, "y": "b"}]}
    table.commit(table.data_file("1.parquet", pa.table(values, schema=table.arrow_schema)))
    for where in (None, "part = double('NaN') OR part = 0", "nest.x = 1 AND id < 5", "day < DATE'1300-01-01'"):
        assert find_readers(spark, tmp_path, where) == {SPARK}, where
    assert find_readers(spark, tmp_path, "id = 2 OR nest.y = 'b'", ["nest.x", "short"]) == {SPARK}


@pytest.mark.parametrize(
    "tuning", [DEFAULT_TUNING, Tuning(spark_max_local_footers=0)], ids=["read here", "read by executors"]
)
def test_I5_swapped_names_are_read_and_filtered_by_their_ids(spark: Any, tmp_path: Path, tuning: Tuning) -> None:
    table = IcebergFolder(tmp_path, [field(1, "a", "long"), field(2, "b", "long")])
    table.commit(table.data_file("1.parquet", pa.table({"a": [1, 2, 3], "b": [10, 20, 30]})))
    table.evolve([field(1, "b", "long"), field(2, "a", "long")])
    table.commit(table.data_file("2.parquet", pa.table({"b": [4, 5], "a": [40, 50]})))
    for where in (None, "a = 20", "b = 2", "a > 25 AND b < 5"):
        assert find_readers(spark, tmp_path, where, tuning=tuning) == {SPARK}, where
    scan = tamis.open(tmp_path, tuning=tuning).scan("a = 20")
    assert scan.to_spark(spark, reader="spark").toArrow()["b"].to_pylist() == [2]


def test_I5_a_dropped_column_is_not_a_new_one_of_the_same_name(spark: Any, tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "x", "long")])
    table.commit(table.data_file("1.parquet", pa.table({"id": [1, 2], "x": [10, 20]})))
    table.evolve([field(1, "id", "long"), field(3, "x", "long")])
    table.commit(table.data_file("2.parquet", pa.table({"id": [3], "x": [30]})))
    for where in (None, "x IS NULL", "x = 10", "x >= 20"):
        assert find_readers(spark, tmp_path, where) in ({SPARK}, set()), where
    assert tamis.open(tmp_path).scan("x IS NULL").to_spark(spark).toArrow()["id"].to_pylist() == [1, 2]


def test_files_that_lack_a_column_with_a_default_are_read_by_tasks(spark: Any, tmp_path: Path) -> None:
    later = IcebergFolder(tmp_path / "default", [field(1, "id", "long")], version=3)
    later.commit(later.data_file("1.parquet", pa.table({"id": [1, 2]})))
    note = field(2, "note", "string", **{"initial-default": "none", "write-default": "none"})
    later.evolve([field(1, "id", "long"), note])
    later.commit(later.data_file("2.parquet", pa.table({"id": [3], "note": ["x"]})))
    assert find_readers(spark, later.folder) == {SPARK, TASKS}
    assert find_readers(spark, later.folder, columns=["id"]) == {SPARK}
    by_region = [[(2, "identity", "region")]]
    fields = [field(1, "id", "long"), field(2, "region", "string")]
    identity = IcebergFolder(tmp_path / "identity", fields, specs=by_region)
    identity.commit(
        identity.data_file("1.parquet", pa.table({"id": [1]}), fields=fields[:1], partition=("eu",)),
        identity.data_file("2.parquet", pa.table({"id": [2], "region": ["us"]})),
    )
    assert find_readers(spark, identity.folder) == {SPARK, TASKS}
    assert find_readers(spark, identity.folder, "region = 'eu'", ["id"]) == {TASKS}


def test_narrower_types_are_cast_and_other_formats_are_left_to_tasks(spark: Any, tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "int"), field(2, "x", "float")], version=3)
    files = [
        table.data_file(name, pa.table({"id": [number], "x": [number / 4]}, schema=table.arrow_schema))
        for number, name in enumerate(["1.parquet", "2.avro", "3.orc"])
    ]
    table.commit(*files)
    table.evolve([field(1, "id", "long"), field(2, "x", "double")])
    assert find_readers(spark, tmp_path) == {SPARK, TASKS}
    assert find_readers(spark, tmp_path, "id < 1 AND x < 0.1") == {SPARK}
    rows = pa.table({"id": [10, 11, 12], "x": [0.5, 1.5, 2.5]})
    late = [table.data_file(f"{number}.parquet", rows) for number in range(4, 8)]
    table.commit(*late)
    table.commit(
        position_deletes(table, "p.parquet", [(late[0].path, 1)]),
        *deletion_vectors(table, "v.puffin", {late[1].path: [2]}, {late[1].path: late[1]}),
    )
    assert find_readers(spark, tmp_path, "id >= 10") == {SPARK}
    table.commit(equality_deletes(table, "e.parquet", pa.table({"id": [11]})))
    assert find_readers(spark, tmp_path, "id >= 10") == {SPARK}


def test_I5_fields_inside_of_structs_that_evolved_are_cast(spark: Any, tmp_path: Path) -> None:
    def make_struct(*names: tuple[int, str]) -> dict[str, Any]:
        return {"type": "struct", "fields": [field(number, name, "long") for number, name in names]}

    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "s", make_struct((3, "a"), (4, "b")))])
    rows = pa.table({"id": [1, 2, 3], "s": [{"a": 1, "b": 2}, None, {"a": None, "b": None}]})
    table.commit(table.data_file("1.parquet", rows))
    for inner in (((3, "b"), (4, "a")), ((3, "a"), (5, "b")), ((3, "a"), (4, "b"), (5, "c"))):
        table.evolve([field(1, "id", "long"), field(2, "s", make_struct(*inner))])
        table.commit()
        assert find_readers(spark, tmp_path) == {SPARK}, inner
        assert find_readers(spark, tmp_path, "s.b IS NOT NULL") == {SPARK}
        assert find_readers(spark, tmp_path, "s.a = 1 OR s.b = 1", ["id", "s.a"]) == {SPARK}
    # Without any field of it, Spark could not tell where the struct is NULL.
    assert find_readers(spark, tmp_path, columns=["s.c"]) == {TASKS}
    assert find_readers(spark, tmp_path, columns=["id"]) == {SPARK}


def test_I5_fields_inside_of_lists_and_maps_that_evolved_are_cast(spark: Any, tmp_path: Path) -> None:
    def make_fields(kind: str, first: str, second: str) -> list[dict[str, Any]]:
        inner = {"type": "struct", "fields": [field(10, first, kind), field(11, second, "string")]}
        pairs = {
            "type": "map",
            "key-id": 5,
            "key": "string",
            "value-id": 6,
            "value": {"type": "struct", "fields": [field(12, first, kind)]},
            "value-required": False,
        }
        return [field(1, "id", "long"), field(2, "xs", list_of(4, inner)), field(3, "m", pairs)]

    table = IcebergFolder(tmp_path, make_fields("int", "a", "b"))
    rows = pa.table(
        {
            "id": [1, 2, 3],
            "xs": [[{"a": 1, "b": "x"}, None], None, []],
            "m": [[("k", {"a": 1})], [("k", None)], None],
        },
        schema=table.arrow_schema,
    )
    table.commit(table.data_file("1.parquet", rows))
    table.evolve(make_fields("long", "b", "a"))
    table.commit()
    assert find_readers(spark, tmp_path) == {SPARK}
    assert find_readers(spark, tmp_path, "id >= 2", ["xs", "m"]) == {SPARK}


def test_names_that_differ_only_by_case_are_not_confused(spark: Any, tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "a", "long"), field(2, "A", "long")])
    table.commit(table.data_file("1.parquet", pa.table({"a": [1, 2], "A": [10, 20]})))
    table.evolve([field(1, "a", "long"), field(2, "b", "long")])
    table.commit()
    assert find_readers(spark, tmp_path, "b = 20") == {TASKS}
    assert find_readers(spark, tmp_path, "a = 2", ["a"]) == {TASKS}


def test_I5_files_without_ids_are_read_by_the_mapping_of_names(spark: Any, tmp_path: Path) -> None:
    names = [{"field-id": 1, "names": ["id", "old"]}, {"field-id": 2, "names": ["x"]}]
    properties = {"schema.name-mapping.default": json.dumps(names)}
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "y", "long")], properties=properties)
    for number, name in enumerate(("id", "old")):
        rows = pa.table({name: [number], "x": [number * 10], "y": [99]})
        fields = [field(1, name, "long"), field(2, "x", "long"), field(9, "y", "long")]
        table.commit(table.data_file(f"{name}.parquet", rows, fields=fields, with_ids=False))
    assert find_readers(spark, tmp_path, "y >= 0") == {SPARK}
    assert sorted(tamis.open(tmp_path).scan().to_spark(spark).toArrow()["y"].to_pylist()) == [0, 10]


def test_T6_old_dates_of_iceberg_are_not_rebased(spark: Any, tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "d", "date")])
    file = table.data_file("1.parquet", pa.table({"id": [1], "d": [datetime.date(1200, 1, 8)]}))
    path = tmp_path / "data" / "1.parquet"
    rows = pq.read_table(path)
    with pq.ParquetWriter(path, rows.schema, store_schema=False) as writer:
        writer.write_table(rows)
        writer.add_key_value_metadata({"org.apache.spark.version": "2.4.8"})
    table.commit(replace(file, size=path.stat().st_size))
    assert find_readers(spark, tmp_path) == {TASKS}
    assert find_readers(spark, tmp_path, columns=["id"]) == {SPARK}


def test_many_sets_of_physical_names_use_a_few_scans_and_tasks(spark: Any, tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "x0", "long")])
    kinds = readable_files.MAX_FIELD_SETS + 2
    for number in range(kinds):
        rows = pa.table({"id": [number], f"x{number}": [number * 10]})
        table.commit(table.data_file(f"{number}.parquet", rows))
        table.evolve([field(1, "id", "long"), field(2, f"x{number + 1}", "long")])
    table.commit()
    assert find_readers(spark, tmp_path) == {SPARK, TASKS}


@pytest.mark.parametrize("mode", ["name", "id"])
def test_D6_mapped_columns_of_delta_are_read_by_their_physical_names(spark: Any, tmp_path: Path, mode: str) -> None:
    settings = {"delta.columnMapping.mode": mode, "delta.columnMapping.maxColumnId": "4"}
    # The table was partitioned by `x`, and files have a column `x` that was renamed later.
    columns = [
        delta_field("id", "long", **mapping(1, "col-1")),
        delta_field("y", "long", **mapping(2, "x")),
        delta_field("x", "string", **mapping(3, "col-3")),
    ]
    log = DeltaLog(tmp_path, columns, partition_columns=["x"], configuration=settings, features=["columnMapping"])
    ids = {"col-1": b"1", "x": b"2"}
    for number in range(4):
        schema = pa.schema([pa.field(name, pa.int64(), metadata={b"PARQUET:field_id": ids[name]}) for name in ids])
        rows = pa.table([[number, number + 10], [number, None]], schema=schema)
        log.commit(data_file(log, f"{number}.parquet", rows, {"col-3": "ab"[number % 2]}, stats=None))
    for where in (None, "x = 'a' AND y IS NULL", "y = 3", "id > 10 AND x = 'b'"):
        assert find_readers(spark, tmp_path, where) == {SPARK}, where


def test_D6_mapped_fields_inside_of_structs_are_cast(spark: Any, tmp_path: Path) -> None:
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "4"}
    fields = [delta_field("a", "long", **mapping(2, "col-2")), delta_field("col-2", "string", **mapping(4, "a"))]
    inner = {"type": "struct", "fields": fields}
    listed = {"type": "array", "elementType": inner, "containsNull": True}
    columns = [
        delta_field("id", "long", **mapping(3, "col-3")),
        delta_field("s", inner, **mapping(1, "col-1")),
        delta_field("xs", listed, **mapping(5, "col-5")),
    ]
    log = DeltaLog(tmp_path, columns, configuration=settings, features=["columnMapping"])
    own = {"a": "text", "col-2": 1}
    rows = pa.table({"col-1": [own, None], "col-3": [5, 6], "col-5": [[own, None], []]})
    log.commit(data_file(log, "1.parquet", rows, stats=None))
    # A file without the second field, which was added later.
    log.commit(data_file(log, "2.parquet", pa.table({"col-1": [{"col-2": 7}], "col-3": [8]}), stats=None))
    assert find_readers(spark, tmp_path) == {SPARK}
    assert find_readers(spark, tmp_path, "s.a = 1 OR s.a = 7") == {SPARK}
    assert find_readers(spark, tmp_path, "s.`col-2` IS NULL", ["id"]) == {SPARK}


def test_D19_widened_columns_of_delta_are_cast(spark: Any, tmp_path: Path) -> None:
    columns = {"id": "long", "x": "double", "d": "decimal(12,3)", "at": "timestamp_ntz"}
    log = DeltaLog(tmp_path, columns, features=["typeWidening", "timestampNtz"])
    day = datetime.date(2024, 5, 1)
    narrow = pa.table(
        {
            "id": pa.array([1, None], pa.int32()),
            "x": pa.array([1.5, None], pa.float32()),
            "d": pa.array([Decimal("1.25"), None], pa.decimal128(5, 2)),
            "at": pa.array([day, None], pa.date32()),
        }
    )
    noon = datetime.datetime(2024, 5, 1, 12)
    wide = pa.table(
        {
            "id": [2**40, None],
            "x": [0.1, None],
            "d": pa.array([Decimal("99.125"), None], pa.decimal128(12, 3)),
            "at": pa.array([noon, None], pa.timestamp("us")),
        }
    )
    log.commit(data_file(log, "1.parquet", narrow, stats=None), data_file(log, "2.parquet", wide, stats=None))
    for where in (None, "id = 1", "x = 1.5", "d > 1.2", "at >= TIMESTAMP_NTZ '2024-05-01 00:00:00'"):
        assert find_readers(spark, tmp_path, where) == {SPARK}, where


@pytest.mark.parametrize("seed", range(3))
def test_random_iceberg_tables_have_the_rows_of_a_scan(spark: Any, tmp_path: Path, seed: int) -> None:
    compare_random(spark, tmp_path, seed)


@pytest.mark.interop
@pytest.mark.parametrize("seed", range(3, 40))
def test_more_random_iceberg_tables_have_the_rows_of_a_scan(spark: Any, tmp_path: Path, seed: int) -> None:
    compare_random(spark, tmp_path, seed)


def compare_random(spark: Any, tmp_path: Path, seed: int) -> None:
    case = draw_iceberg_case(SeededChoices(seed), tmp_path, predicates=3)
    for where in (None, *(said.expr for said in case.predicates)):
        find_readers(spark, tmp_path, where)
