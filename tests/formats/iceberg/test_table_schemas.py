"""Schema evolution of Iceberg tables: by field id, by name mapping, by default, by partition value."""

from __future__ import annotations

import datetime
import json
import uuid
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.tables import File, IcebergFolder
from builders.iceberg.values import field, list_of, map_of, to_arrow_type


def plan_files(table: tamis.Table, where: object) -> set[str]:
    return {Path(path).stem for path in table.scan(where).plan("files").files["path"].to_pylist()}


def test_I5_rename_reorder_and_drop_and_add_again(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "a", "string"), field(3, "b", "string")])
    table.commit(table.data_file("old.parquet", pa.table({"id": [1], "a": ["first a"], "b": ["first b"]})))
    table.evolve([field(3, "was b", "string"), field(1, "id", "long"), field(4, "a", "int"), field(5, "b", "string")])
    table.commit(
        table.data_file(
            "new.parquet", pa.table({"was b": ["x"], "id": [2], "a": pa.array([7], pa.int32()), "b": ["second b"]})
        )
    )
    opened = tamis.open(tmp_path)
    assert opened.schema.names == ["was b", "id", "a", "b"]
    assert sorted(opened.scan().to_arrow().to_pylist(), key=lambda row: row["id"]) == [
        {"was b": "first b", "id": 1, "a": None, "b": None},
        {"was b": "x", "id": 2, "a": 7, "b": "second b"},
    ]
    assert opened.scan("b = 'first b'").count() == 0
    assert opened.scan("`was b` = 'first b'").to_arrow()["id"].to_pylist() == [1]
    assert plan_files(opened, "a IS NULL") == plan_files(opened, "b IS NULL") == {"old"}
    assert opened.scan("a IS NULL AND b IS NULL").count() == 1


def make_mapped_folder(folder: Path, **properties: str) -> IcebergFolder:
    return IcebergFolder(
        folder,
        [field(1, "id", "long"), field(2, "name", "string"), field(3, "st", [field(4, "x", "int")])],
        properties=properties,
    )


MAPPING = [
    {"field-id": 1, "names": ["id", "number"]},
    {"field-id": 2, "names": ["called"]},
    {"field-id": 3, "names": ["st"], "fields": [{"field-id": 4, "names": ["x", "was x"]}]},
]


def test_I5_files_without_ids_are_read_by_the_name_mapping(tmp_path: Path) -> None:
    table = make_mapped_folder(tmp_path, **{"schema.name-mapping.default": json.dumps(MAPPING)})
    fields = [field(1, "number", "long"), field(2, "called", "string"), field(3, "st", [field(4, "was x", "int")])]
    inner = pa.array([{"was x": 1}, None], pa.struct([("was x", pa.int32())]))
    rows = pa.table({"number": [1, 2], "called": ["a", "b"], "st": inner, "name": ["no", "no"]})
    table.commit(table.data_file("1.parquet", rows, fields=fields, with_ids=False))
    opened = tamis.open(tmp_path)
    assert opened.scan().to_arrow().to_pylist() == [
        {"id": 1, "name": "a", "st": {"x": 1}},
        {"id": 2, "name": "b", "st": None},
    ]
    assert opened.scan("name = 'b'").to_arrow()["id"].to_pylist() == [2]
    assert opened.scan("st.x = 1").to_arrow()["id"].to_pylist() == [1]


def test_I5_a_column_missing_from_the_name_mapping_is_null(tmp_path: Path) -> None:
    table = make_mapped_folder(tmp_path, **{"schema.name-mapping.default": json.dumps(MAPPING[:1])})
    rows = pa.table({"id": [1], "name": ["a"]})
    table.commit(table.data_file("1.parquet", rows, with_ids=False, metrics={}))
    assert tamis.open(tmp_path).scan().to_arrow().to_pylist() == [{"id": 1, "name": None, "st": None}]


def test_I5_field_ids_take_precedence_over_the_name_mapping(tmp_path: Path) -> None:
    table = make_mapped_folder(tmp_path, **{"schema.name-mapping.default": json.dumps(MAPPING)})
    fields = [field(2, "id", "string"), field(1, "called", "long")]
    table.commit(table.data_file("1.parquet", pa.table({"id": ["a"], "called": [1]}), fields=fields))
    assert tamis.open(tmp_path).scan().to_arrow().to_pylist() == [{"id": 1, "name": "a", "st": None}]


DEFAULTS: list[tuple[str, Any, Any, str]] = [
    ("int", 34, 34, "x = 34"),
    ("long", 34, 34, "x BETWEEN 30 AND 40"),
    ("boolean", True, True, "x"),
    ("double", 1.5, 1.5, "x > 1"),
    ("decimal(9, 2)", "14.20", "14.20", "x = 14.2"),
    ("string", "iceberg", "iceberg", "x LIKE 'ice%'"),
    ("binary", "000102ff", b"\x00\x01\x02\xff", "x = X'000102FF'"),
    ("fixed[2]", "0001", b"\x00\x01", "x = X'0001'"),
    ("uuid", str(uuid.UUID(int=7)), uuid.UUID(int=7).bytes, "x IS NOT NULL"),
    ("date", "2017-11-16", datetime.date(2017, 11, 16), "year(x) = 2017"),
    ("time", "22:31:08.123456", datetime.time(22, 31, 8, 123456), "x IS NOT NULL"),
    ("timestamp", "2017-11-16T22:31:08.123456", datetime.datetime(2017, 11, 16, 22, 31, 8, 123456),
     "x > TIMESTAMP '2017-11-16 22:31:08'"),
    ("timestamptz", "2017-11-16T22:31:08.123456+00:00",
     datetime.datetime(2017, 11, 16, 22, 31, 8, 123456, datetime.UTC), "x > TIMESTAMP '2017-11-16 22:31:08Z'"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "default", "value", "where"), DEFAULTS)
def test_I5_a_missing_column_has_its_initial_default(
    tmp_path: Path, kind: str, default: Any, value: Any, where: str
) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")], version=3)
    table.commit(table.data_file("old.parquet", pa.table({"id": [1, 2]})))
    table.evolve(
        [field(1, "id", "long"), field(2, "x", kind, **{"initial-default": default, "write-default": default})]
    )
    table.commit(table.data_file("new.parquet", pa.table({"id": [3], "x": pa.nulls(1, to_arrow_type(kind))})))
    opened = tamis.open(tmp_path)
    expected = pa.scalar(value).cast(to_arrow_type(kind)).as_py() if isinstance(value, str) else value
    rows = sorted(opened.scan().to_arrow().to_pylist(), key=lambda row: row["id"])
    assert [row["x"] for row in rows] == [expected, expected, None]
    assert opened.scan("x IS NULL").to_arrow()["id"].to_pylist() == [3]
    assert sorted(opened.scan(where).to_arrow()["id"].to_pylist()) == [1, 2]
    assert opened.scan(where).count() == 2
    assert opened.scan(f"NOT ({where})").count() == (1 if "NULL" in where else 0)


def test_I5_defaults_of_struct_fields_do_not_apply_to_null_structs(tmp_path: Path) -> None:
    before = [field(1, "id", "long"), field(2, "st", [field(3, "a", "int")])]
    table = IcebergFolder(tmp_path, before, version=3)
    rows = pa.table({"id": [1, 2], "st": pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())]))})
    table.commit(table.data_file("1.parquet", rows))
    inner = [field(4, "b", "string", **{"initial-default": "new", "write-default": "new"}), field(3, "a", "long")]
    table.evolve([field(1, "id", "long"), field(2, "st", inner)])
    opened = tamis.open(tmp_path)
    assert opened.scan().to_arrow().to_pylist() == [{"id": 1, "st": {"b": "new", "a": 1}}, {"id": 2, "st": None}]
    assert opened.scan("st.b = 'new'").to_arrow()["id"].to_pylist() == [1]
    assert opened.scan("st.b IS NULL").to_arrow()["id"].to_pylist() == [2]
    assert opened.scan("st.b = 'old'").count() == 0


def test_I5_fields_inside_lists_and_maps_evolve_by_id(tmp_path: Path) -> None:
    def make_fields(inner: list[Any]) -> list[Any]:
        kind = {"type": "struct", "fields": inner}
        return [field(1, "id", "long"), field(2, "l", list_of(3, kind)), field(6, "m", map_of(7, 8, "string", "int"))]

    table = IcebergFolder(tmp_path, make_fields([field(4, "a", "int"), field(5, "b", "string")]))
    rows = pa.Table.from_pylist(
        [{"id": 1, "l": [{"a": 1, "b": "x"}, None], "m": [("k", 1)]}, {"id": 2, "l": None, "m": []}],
        schema=table.arrow_schema,
    )
    table.commit(table.data_file("1.parquet", rows))
    table.evolve(make_fields([field(9, "a", "string"), field(5, "was b", "string"), field(4, "was a", "long")]))
    assert tamis.open(tmp_path).scan().to_arrow().to_pylist() == [
        {"id": 1, "l": [{"a": None, "was b": "x", "was a": 1}, None], "m": [("k", 1)]},
        {"id": 2, "l": None, "m": []},
    ]


A, B, C = field(10, "a", "int"), field(11, "b", "string"), field(12, "c", "date")


@pytest.mark.parametrize("ending", ["parquet", "orc"])
@pytest.mark.parametrize("inner", [[B, A], [C, B], [C], [field(10, "b", "long"), field(11, "a", "string")]])
def test_I5_structs_inside_lists_and_maps_are_reordered_and_replaced(
    tmp_path: Path, inner: list[Any], ending: str
) -> None:
    def make_fields(inner: list[Any]) -> list[Any]:
        kind = {"type": "struct", "fields": inner}
        other = {"type": "struct", "fields": [{**each, "id": each["id"] + 20} for each in inner]}
        return [field(1, "id", "long"), field(2, "l", list_of(3, kind)), field(6, "m", map_of(7, 8, "string", other))]

    table = IcebergFolder(tmp_path, make_fields([A, B]))
    one = {"a": 1, "b": "x"}
    rows = pa.Table.from_pylist(
        [{"id": 1, "l": [one, None], "m": [("k", one)]}, {"id": 2, "l": None, "m": []}], schema=table.arrow_schema
    )
    table.commit(table.data_file(f"1.{ending}", rows, metrics={}))
    table.evolve(make_fields(inner))
    was = {10: 1, 11: "x"}
    expected = {each["name"]: was.get(each["id"]) for each in inner}
    assert tamis.open(tmp_path).scan().to_arrow().to_pylist() == [
        {"id": 1, "l": [expected, None], "m": [("k", expected)]},
        {"id": 2, "l": None, "m": []},
    ]


@pytest.mark.parametrize(
    ("older", "newer", "value"),
    [
        ("int", "long", 5),
        ("float", "double", 0.5),
        ("decimal(5, 2)", "decimal(20, 2)", "1.25"),
        ("date", "timestamp", datetime.date(2024, 3, 1)),
        ("date", "timestamp_ns", datetime.date(1969, 3, 1)),
    ],
)
def test_T11_promoted_columns(tmp_path: Path, older: str, newer: str, value: Any) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "x", older)], version=3)
    column = pa.array([value, None]).cast(to_arrow_type(older))
    table.commit(table.data_file("1.parquet", pa.table({"id": [1, 2], "x": column})))
    table.evolve([field(1, "id", "long"), field(2, "x", newer)])
    opened = tamis.open(tmp_path)
    rows = opened.scan().to_arrow()
    assert rows["x"].combine_chunks().equals(column.cast(to_arrow_type(newer)))
    assert opened.scan(tamis.col("x") == rows["x"][0].as_py()).to_arrow()["id"].to_pylist() == [1]
    assert opened.scan("x IS NULL").to_arrow()["id"].to_pylist() == [2]


def test_identity_partition_values_fill_missing_columns(tmp_path: Path) -> None:
    fields = [field(1, "id", "long"), field(2, "region", "string"), field(3, "day", "date")]
    table = IcebergFolder(
        tmp_path, fields, specs=[[(2, "identity", "region"), (3, "day", "d")], [(3, "identity", "day")]]
    )

    def make_file(number: int, spec: int, partition: tuple[Any, ...], **columns: Any) -> File:
        return table.data_file(
            f"{number}.parquet", pa.table({"id": [number], **columns}), spec=spec, partition=partition
        )

    date = datetime.date(2024, 3, 1)
    days = (date - datetime.date(1970, 1, 1)).days
    table.commit(
        make_file(1, 0, ("eu", days)),
        make_file(2, 0, (None, days)),
        make_file(3, 0, ("eu", days), region=["from the file"]),
        make_file(4, 1, (days,), region=["us"]),
    )
    opened = tamis.open(tmp_path)
    rows = {row["id"]: (row["region"], row["day"]) for row in opened.scan().to_arrow().to_pylist()}
    # Only the identity transform gives the value of a column that a file lacks.
    assert rows == {1: ("eu", None), 2: (None, None), 3: ("from the file", None), 4: ("us", date)}
    assert opened.scan("region = 'eu'").to_arrow()["id"].to_pylist() == [1]


def test_values_of_rare_types_are_read(tmp_path: Path) -> None:
    fields = [
        field(1, "u", "uuid"), field(2, "f", "fixed[4]"), field(3, "t", "time"), field(4, "n", "timestamp_ns"),
        field(5, "z", "timestamptz_ns"),
    ]  # fmt: skip
    table = IcebergFolder(tmp_path, fields, version=3)
    rows = pa.table(
        {
            "u": pa.array([b"\x01" * 16, None], pa.binary(16)),
            "f": pa.array([b"abcd", None], pa.binary(4)),
            "t": pa.array([1, None], pa.time64("us")),
            "n": pa.array([1, None], pa.timestamp("ns")),
            "z": pa.array([-1, None], pa.timestamp("ns", "UTC")),
        }
    )
    table.commit(table.data_file("1.parquet", rows))
    opened = tamis.open(tmp_path)
    assert opened.schema.types == [to_arrow_type(each["type"]) for each in fields]
    assert opened.scan().to_arrow().equals(rows)


@pytest.mark.parametrize("ending", ["orc", "avro"])
def test_data_files_of_other_formats(tmp_path: Path, ending: str) -> None:
    fields = [field(1, "id", "long"), field(2, "s", "string"), field(3, "d", "decimal(9, 2)"), field(4, "day", "date"),
              field(5, "ts", "timestamp"), field(6, "tz", "timestamptz"), field(7, "x", "double"),
              field(8, "b", "boolean"), field(9, "st", [field(10, "y", "int")])]  # fmt: skip
    mapping = [
        {"field-id": each["id"], "names": [each["name"]]}
        | ({"fields": [{"field-id": 10, "names": ["y"]}]} if each["id"] == 9 else {})
        for each in fields
    ]
    table = IcebergFolder(tmp_path, fields, properties={"schema.name-mapping.default": json.dumps(mapping)})
    instant = datetime.datetime(1969, 12, 31, 23, 59, 59, 999999)
    rows = pa.Table.from_pylist(
        [
            {"id": 1, "s": "a", "d": "1.50", "day": instant.date(), "ts": instant, "tz": instant, "x": 0.5, "b": True,
             "st": {"y": 1}},
            {"id": 2},
            {"id": 3, "s": "", "x": float("nan"), "st": {"y": None}},
        ],
        schema=pa.schema([each.with_type(pa.string()) if each.name == "d" else each for each in table.arrow_schema]),
    )  # fmt: skip
    rows = rows.set_column(2, "d", rows["d"].cast(pa.decimal128(9, 2)))
    table.commit(table.data_file(f"1.{ending}", rows), table.data_file("2.parquet", rows.slice(0, 1)))
    opened = tamis.open(tmp_path)
    found = opened.scan().to_arrow()
    assert sorted(map(repr, found.to_pylist())) == sorted(map(repr, [*rows.to_pylist(), rows.to_pylist()[0]]))
    assert opened.scan("s = ''").to_arrow()["id"].to_pylist() == [3]
    assert opened.scan("id >= 2 AND x IS NULL", columns=["s", "id"]).to_arrow()["id"].to_pylist() == [2]
    assert opened.scan().count() == 4
    assert opened.scan("st.y = 1").count() == 2
    assert opened.scan(limit=2).to_arrow().num_rows == 2


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
def test_rows_of_files_without_any_needed_column(tmp_path: Path, ending: str) -> None:
    table = IcebergFolder(tmp_path, [field(1, "x", "long"), field(2, "y", "long")])
    table.commit(table.data_file(f"1.{ending}", pa.table({"x": [1, 2, 3]}), metrics={}))
    opened = tamis.open(tmp_path)
    for where, count in (("rand() < 2", 3), ("NULL", 0), ("coalesce(y, 5) = 5", 3), ("y = 1", 0)):
        assert opened.scan(where, levels=[]).count() == count, where
        assert opened.scan(where, columns=["y"], levels=[]).to_arrow().num_rows == count, where


def test_columns_of_the_unknown_type_are_null(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long")], version=3)
    table.commit(table.data_file("1.parquet", pa.table({"id": [1, 2]})))
    table.evolve([field(1, "id", "long"), field(2, "u", "unknown")])
    opened = tamis.open(tmp_path)
    assert opened.scan().to_arrow().to_pylist() == [{"id": 1, "u": None}, {"id": 2, "u": None}]
    assert opened.scan("u IS NULL").count() == 2
    assert opened.scan("u IS NULL AND id = 1").to_arrow()["id"].to_pylist() == [1]
    for where in ("u IS NOT NULL", "u = 5", "NOT (u = 5)", "u = 'a'", "u IN (1, 2)"):
        assert opened.scan(where).to_arrow().num_rows == opened.scan(where).count() == 0
