"""Default values: their JSON single-value serialization, and files that lack the fields."""

from __future__ import annotations

import math
import pickle
from datetime import UTC, date, datetime, time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.iceberg.schema import arrow_schema, arrow_type, make_field_names, parse_default
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.types import UnsupportedType, find_unsupported_field

LIST = {"type": "list", "element-id": 9, "element": "int", "element-required": False}
MAP = {"type": "map", "key-id": 8, "key": "string", "value-id": 9, "value": "long", "value-required": False}


@pytest.mark.parametrize(
    ("kind", "given", "expected"),
    [
        ("boolean", True, True),
        ("int", -3, -3),
        ("long", 2**62, 2**62),
        ("float", 1, 1.0),
        ("double", 2.5, 2.5),
        ("decimal(9,2)", "14.20", Decimal("14.20")),
        ("date", "2017-11-16", date(2017, 11, 16)),
        ("date", "1969-12-31", date(1969, 12, 31)),
        ("time", "22:31:08.123456", time(22, 31, 8, 123456)),
        ("timestamp", "2017-11-16T22:31:08.123456", datetime(2017, 11, 16, 22, 31, 8, 123456)),
        ("timestamp", "1960-01-01T00:00:00", datetime(1960, 1, 1)),
        ("timestamptz", "2017-11-16T22:31:08.123456+00:00", datetime(2017, 11, 16, 22, 31, 8, 123456, UTC)),
        ("timestamptz", "2017-11-16T22:31:08+02:00", datetime(2017, 11, 16, 20, 31, 8, tzinfo=UTC)),
        ("string", "iceberg", "iceberg"),
        ("uuid", "f79c3e09-677c-4bbd-a479-3f349cb785e7", bytes.fromhex("f79c3e09677c4bbda4793f349cb785e7")),
        ("fixed[3]", "000102", b"\0\1\2"),
        ("binary", "00ff", b"\0\xff"),
        (LIST, [1, None, 3], [1, None, 3]),
        (MAP, {"keys": ["a", "b"], "values": [1, None]}, [("a", 1), ("b", None)]),
    ],
    ids=lambda value: str(value)[:30],
)
def test_I5_defaults_are_read_from_json(kind: Any, given: Any, expected: Any) -> None:
    found = parse_default(given, kind, arrow_type(kind), "c")
    assert found.type == arrow_type(kind)
    assert found.as_py() == expected


def test_I5_nanoseconds_are_kept() -> None:
    found = parse_default("2017-11-16T22:31:08.123456789", "timestamp_ns", pa.timestamp("ns"), "c")
    assert found.cast(pa.int64()).as_py() == 1510871468123456789


@pytest.mark.parametrize(
    ("kind", "given"),
    [("int", "x"), ("int", True), ("boolean", 1), ("date", "16.11.2017"), ("timestamp", "2017-11-16"), ("string", 5),
     ("fixed[3]", "0001"), ("uuid", "f79c"), ("int", 2**40), ("decimal(4,2)", "1000.00"), ("time", 5)],
)  # fmt: skip
def test_invalid_defaults_are_errors(kind: str, given: Any) -> None:
    with pytest.raises(CorruptFile, match=r"column 'c' has the default .*, which is not a valid"):
        parse_default(given, kind, arrow_type(kind), "c")


@pytest.mark.parametrize("kind", ["decimal(99,2)", "text"])
def test_an_invalid_type_is_reported_with_its_column(kind: str) -> None:
    with pytest.raises(UnsupportedFeature, match=r"column 'c' of orders has the type .*, which is not an Iceberg type"):
        arrow_schema({"fields": [field(1, "c", kind)]}, "orders")


@pytest.mark.parametrize("kind", ["geometry(srid:4326)", "variant", "fixed[1048577]"])
def test_unsupported_types_keep_their_names(kind: str) -> None:
    schema = arrow_schema({"fields": [field(1, "c", kind)]}, "orders")
    assert schema.field("c").type == UnsupportedType(kind)
    sent = pa.ipc.read_schema(schema.serialize())
    assert find_unsupported_field(sent) == find_unsupported_field(pickle.loads(pickle.dumps(schema))) == ("c", kind)


def make_field_with_default(number: int, name: str, kind: Any, value: Any) -> dict[str, Any]:
    return field(number, name, kind) | {"initial-default": value, "write-default": value}


@pytest.mark.parametrize("ending", ["parquet", "orc", "avro"])
def test_I5_missing_fields_have_their_defaults_also_inside_structs_lists_and_maps(tmp_path: Path, ending: str) -> None:
    def make_nested(*fields: dict[str, Any]) -> list[dict[str, Any]]:
        struct = {"type": "struct", "fields": list(fields)}
        found = [field(1, "id", "long"), field(2, "s", struct)]
        if ending != "avro":  # the builder writes no lists there
            found.append(field(3, "l", {**LIST, "element-id": 20, "element": renumber(struct, 30)}))
            found.append(field(4, "m", {**MAP, "key-id": 21, "value-id": 22, "value": renumber(struct, 40)}))
        return found

    table = IcebergFolder(tmp_path, make_nested(field(10, "x", "int")), version=3)
    kind = pa.struct([("x", pa.int32())])
    one, two = {"x": 1}, {"x": 2}
    rows = {"id": pa.array([1, 2, 3], pa.int64()), "s": pa.array([one, None, two], kind)}
    expected_inner = [{"a": "new", "x": 1}, None, {"a": "new", "x": 2}]
    if ending != "avro":
        rows["l"] = pa.array([[one, None], None, []], pa.list_(pa.field("element", kind)))
        rows["m"] = pa.array([[("k", one)], [], [("k", None)]], pa.map_(pa.string(), kind))
    table.commit(table.data_file(f"a.{ending}", pa.table(rows), metrics={}))
    empty = {"type": "struct", "fields": [make_field_with_default(51, "p", "int", 5), field(52, "q", "string")]}
    table.evolve(
        [
            *make_nested(make_field_with_default(11, "a", "string", "new"), field(10, "x", "long")),
            make_field_with_default(50, "there", empty, {}),
            field(53, "absent", {"type": "struct", "fields": [make_field_with_default(54, "p", "int", 5)]}),
            make_field_with_default(55, "day", "date", "2020-02-29"),
        ]
    )
    found = tamis.open(tmp_path).scan().to_arrow()
    assert found["s"].to_pylist() == expected_inner
    assert found["there"].to_pylist() == [{"p": 5, "q": None}] * 3
    assert found["absent"].to_pylist() == [None] * 3
    assert found["day"].to_pylist() == [date(2020, 2, 29)] * 3
    if ending != "avro":
        assert found["l"].to_pylist() == [[{"a": "new", "x": 1}, None], None, []]
        assert found["m"].to_pylist() == [[("k", {"a": "new", "x": 1})], [], [("k", None)]]
    for where, count in [
        ("s.a = 'new'", 2), ("s.a <> 'new'", 0), ("s.a IS NULL", 1), ("there.p = 5", 3), ("there.p IS NULL", 0),
        ("there.q IS NULL", 3), ("absent.p = 5", 0), ("absent.p IS NULL", 3), ("day = DATE'2020-02-29'", 3),
        ("day > DATE'2020-02-29'", 0), ("absent IS NULL", 3), ("there IS NULL", 0),
    ]:  # fmt: skip
        scan = tamis.open(tmp_path).scan(where)
        assert (scan.count(), scan.to_arrow().num_rows) == (count, count), where


def renumber(kind: dict[str, Any], start: int) -> dict[str, Any]:
    return {**kind, "fields": [{**each, "id": start + each["id"] - 10} for each in kind["fields"]]}


def test_I5_T11_pruning_uses_defaults_and_promotions(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "a", "int"), field(2, "x", "float")], version=3)
    rows = pa.table({"a": pa.array(range(100), pa.int32()), "x": pa.array([0.1] * 100, pa.float32())})
    table.commit(table.data_file("a.parquet", rows, metrics={}, options={"row_group_size": 10}))
    table.evolve([field(1, "a", "long"), field(2, "x", "double"), make_field_with_default(3, "c", "int", 7)])
    opened = tamis.open(tmp_path)
    assert opened.scan("c <> 7").plan().tasks == []
    assert opened.scan("c IS NULL").plan().tasks == []
    assert len(opened.scan("c = 7 AND a = 55").plan().tasks) == 1
    assert opened.scan("a > 3000000000").plan().tasks == []
    assert opened.scan("a = 3000000000 OR c = 7").count() == 100
    assert opened.scan("x = 0.1").count() == 0
    assert opened.scan("x > 0.1").count() == 100
    assert math.isclose(opened.scan(limit=1).to_arrow()["x"][0].as_py(), 0.1, rel_tol=1e-6)


def test_field_names_are_serializable() -> None:
    struct = {
        "type": "struct",
        "fields": [make_field_with_default(5, "d", "decimal(9,2)", "1.50"), field(6, "e", "string")],
    }
    fields = [make_field_with_default(1, "ts", "timestamp_ns", "2017-11-16T22:31:08.123456789"), field(2, "s", struct),
              field(3, "l", {**LIST, "element": struct}), make_field_with_default(4, "l2", LIST, [1, 2])]  # fmt: skip
    mapping = '[{"field-id": 1, "names": ["old", "older"]}, {"field-id": 2, "names": ["s"], "fields": []}]'
    names = make_field_names({"fields": fields}, mapping)
    again = ColumnMapping.from_json(names.to_json())
    assert again.to_json() == names.to_json()
    assert again.defaults == names.defaults
    assert set(names.defaults) == {("ts",), ("s", "d"), ("l", "element", "d"), ("l2",)}
    assert names.without_ids is not None
    assert set(names.without_ids.fields) == {"old", "older", "s"}


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '["x"]',
        '[{"field-id": 1}]',
        '[{"field-id": 1, "names": "a"}]',
        '[{"field-id": 1, "names": ["x"]}, {"field-id": 2, "names": ["x"]}]',
        "5",
    ],
)
def test_I5_only_files_without_ids_need_the_name_mapping(tmp_path: Path, text: str) -> None:
    fields = [field(1, "a", "int"), field(2, "b", "int")]
    names = make_field_names({"fields": fields}, text)
    assert ColumnMapping.from_json(names.to_json()).mapping_error == names.mapping_error
    table = IcebergFolder(tmp_path, fields, properties={"schema.name-mapping.default": text})
    rows = pa.table({"a": pa.array([1], pa.int32()), "b": pa.array([2], pa.int32())})
    table.commit(table.data_file("with.parquet", rows))
    opened = tamis.open(tmp_path)
    assert opened.scan("a = 1").to_arrow().to_pylist() == [{"a": 1, "b": 2}]
    level = opened.scan().plan("files").report.level("manifests")
    assert level is not None
    assert "schema.name-mapping.default is not a valid name mapping" in str(level.note)
    table.commit(table.data_file("without.parquet", rows, with_ids=False))
    with pytest.raises(
        CorruptFile,
        match=r"without\.parquet' has no field ids, .* schema\.name-mapping\.default is not a valid name mapping",
    ):
        tamis.open(tmp_path).scan().to_arrow()


def test_I5_a_required_field_is_null_in_a_file_that_lacks_it(tmp_path: Path) -> None:
    """A required field may still be missing in files that are older than the field."""
    late = field(2, "late", "int", required=True)
    table = IcebergFolder(tmp_path, [field(1, "a", "int"), late])
    table.commit(table.data_file("old.parquet", pa.table({"a": pa.array([1, 2], pa.int32())})))
    opened = tamis.open(tmp_path)
    for where, rows in {"late IS NULL": 2, "late IS NOT NULL": 0, "late <=> NULL": 2}.items():
        scan = opened.scan(where)
        assert (scan.count(), scan.to_arrow().num_rows) == (rows, rows), where
