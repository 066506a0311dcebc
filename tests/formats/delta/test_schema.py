"""Schemas of Delta tables: types, names, column mapping, and the metadata of fields."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.delta.statistics import field, mapping, table_metadata
from tamis import types
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.delta.schema import VARIANT, TableMetadata, parse_metadata
from tamis.formats.delta.snapshot import parse_protocol


def make_struct(*fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def make_array(element: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": element, "containsNull": True}


def make_map(key: Any, value: Any) -> dict[str, Any]:
    return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}


def parse_schema_text(text: Any) -> TableMetadata:
    return parse_metadata({"schemaString": text, "partitionColumns": [], "configuration": {}}, "s3://lake/t")


@pytest.mark.parametrize(
    ("declared", "expected"),
    [
        ("byte", pa.int8()),
        ("short", pa.int16()),
        ("integer", pa.int32()),
        ("long", pa.int64()),
        ("float", pa.float32()),
        ("double", pa.float64()),
        ("decimal(38,18)", pa.decimal128(38, 18)),
        ("decimal(5, 0)", pa.decimal128(5, 0)),
        ("string", pa.string()),
        ("varchar(10)", pa.string()),
        ("char(3)", pa.string()),
        ("boolean", pa.bool_()),
        ("binary", pa.binary()),
        ("date", pa.date32()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestamp_ntz", pa.timestamp("us")),
        ("variant", VARIANT),
        ({"type": "variant"}, VARIANT),
        (make_array("integer"), pa.list_(pa.field("element", pa.int32()))),
        (make_map("string", make_array("date")), pa.map_(pa.string(), pa.list_(pa.field("element", pa.date32())))),
        (make_struct(field("a", "long")), pa.struct([("a", pa.int64())])),
        (make_struct(), pa.struct([])),
    ],
    ids=str,
)
def test_types(declared: Any, expected: pa.DataType) -> None:
    assert table_metadata(field("c", declared)).schema.field("c").type == expected


@pytest.mark.parametrize("name", ["interval day to second", "geometry(OGC:CRS84)", "decimal(10,-2)x", "LONG"])
def test_an_unsupported_type_names_the_column(name: str) -> None:
    with pytest.raises(UnsupportedFeature, match=r"column s\.c of the Delta table t has the type '"):
        table_metadata(field("s", make_struct(field("c", name))))


def test_columns_without_a_type_are_left_out_as_spark_does() -> None:
    found = table_metadata(field("id", "long"), field("v", "void"), field("s", make_struct(field("n", "void"))))
    assert found.schema.names == ["id", "s"]
    assert found.schema.field("s").type == pa.struct([])
    with pytest.raises(UnsupportedFeature, match="column l of the Delta table t is a list or a map of void"):
        table_metadata(field("l", make_array("void")))


def test_a_table_without_a_schema_has_no_columns() -> None:
    assert parse_schema_text(None).schema == pa.schema([])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "not json",
        "[]",
        '{"type":"array"}',
        '{"type":"struct"}',
        '{"type":"struct","fields":[{"type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a"}]}',
        '{"type":"struct","fields":[{"name":"a","type":{"type":"array"}}]}',
        '{"type":"struct","fields":[{"name":"a","type":"decimal(39,0)"}]}',
        '{"type":"struct","fields":[{"name":"a","type":"decimal(3,5)"}]}',
        '{"type":"struct","fields":[{"name":"a","type":"long"},{"name":"a","type":"long"}]}',
        '{"type":"struct","fields":[{"name":"a","type":"long","metadata":[1]}]}',
        "[" * 100_000,
        7,
    ],
    ids=lambda text: str(text)[:70],
)
def test_an_invalid_schema_is_corrupt(text: Any) -> None:
    with pytest.raises(CorruptFile, match="s3://lake/t"):
        parse_schema_text(text)


def test_a_schema_with_excessive_nesting_is_refused() -> None:
    deep: Any = "long"
    for _ in range(250):
        deep = make_array(deep)
    with pytest.raises(UnsupportedFeature, match="nested more than 200 levels deep at c"):
        table_metadata(field("c", deep))


# --- Names ------------------------------------------------------------------------------------------------------------


NESTED = (
    field("id", "long", **mapping(1, "col-1")),
    field(
        "s",
        make_struct(
            field("a.b", "long", **mapping(3, "col-3")),
            field("t", make_struct(field("id", "string", **mapping(5, "col-5"))), **mapping(4, "col-4")),
        ),
        **mapping(2, "col-2"),
    ),
    field(
        "l",
        make_array(make_map("string", make_struct(field("x", "date", **mapping(7, "col-7"))))),
        **mapping(6, "col-6"),
        **{
            "delta.columnMapping.nested.ids": {
                "col-6.element": 100,
                "col-6.element.key": 101,
                "col-6.element.value": 102,
            }
        },
    ),
)


def find_field_id(found: TableMetadata, *path: str) -> int | None:
    field = found.find_field(path)
    assert field is not None
    return field.field_id


@pytest.mark.parametrize("mode", ["id", "name"])
def test_D6_names_are_mapped_at_every_level(mode: str) -> None:
    found = table_metadata(*NESTED, delta__columnMapping__mode=mode)
    assert found.mapping_mode == mode
    assert found.schema.names == ["id", "s", "l"]
    assert found.schema.field("s").type.field("t").type == pa.struct([("id", pa.string())])
    assert found.to_physical_path(("id",)) == ("col-1",)
    assert found.to_physical_path(("s", "a.b")) == ("col-2", "col-3")
    assert found.to_physical_path(("s", "t", "id")) == ("col-2", "col-4", "col-5")
    assert found.to_physical_path(("l", "element", "value", "x")) == ("col-6", "element", "value", "col-7")
    assert [find_field_id(found, *path) for path in [("id",), ("s", "t", "id"), ("l",)]] == [1, 5, 6]
    assert find_field_id(found, "l", "element") == 100
    assert find_field_id(found, "l", "element", "key") == 101
    assert find_field_id(found, "l", "element", "value", "x") == 7


def test_D6_without_a_mode_the_logical_names_are_the_physical_ones() -> None:
    for found in (table_metadata(*NESTED), table_metadata(*NESTED, delta__columnMapping__mode="none")):
        assert found.mapping_mode == "none"
        assert found.to_physical_path(("s", "t", "id")) == ("s", "t", "id")
        assert find_field_id(found, "s") is None


def test_D6_a_mapping_mode_without_the_protocol_feature_is_ignored() -> None:
    action = {
        "schemaString": json.dumps(make_struct(*NESTED)),
        "configuration": {"delta.columnMapping.mode": "name"},
        "partitionColumns": [],
    }
    protocol = parse_protocol({"minReaderVersion": 1, "minWriterVersion": 2})
    found = parse_metadata(action, "t", has_column_mapping=protocol.has_column_mapping)
    assert found.to_physical_path(("id",)) == ("id",)


def test_a_mapped_column_without_a_physical_name_is_corrupt() -> None:
    with pytest.raises(CorruptFile, match=r"column s\.a of the Delta table t lacks delta.columnMapping.physicalName"):
        table_metadata(
            field("s", make_struct(field("a", "long")), **mapping(1, "col-1")), delta__columnMapping__mode="name"
        )


def test_D6_two_columns_with_one_physical_name_are_corrupt() -> None:
    with pytest.raises(CorruptFile, match="two fields named 'col-1'"):
        table_metadata(
            field("a", "long", **mapping(1, "col-1")),
            field("b", "long", **mapping(2, "col-1")),
            delta__columnMapping__mode="name",
        )


def test_an_unknown_mode_is_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="has the column mapping mode 'hash'"):
        table_metadata(field("a", "long"), delta__columnMapping__mode="hash")


def test_a_path_without_a_field() -> None:
    found = table_metadata(field("a", "long"))
    assert found.find_field(("a", "b")) is None
    assert found.find_field(("b",)) is None
    assert found.find_field(()) is None
    with pytest.raises(KeyError):
        found.to_physical_path(("b",))


# --- Metadata of fields -----------------------------------------------------------------------------------------------


def test_metadata_of_fields() -> None:
    found = table_metadata(
        field("ts", "timestamp"),
        field("day", "date", **{"delta.generationExpression": "CAST(ts AS DATE)"}),
        field("code", "string", __CHAR_VARCHAR_TYPE_STRING="char(3)"),
        field("name", "string", __COLLATIONS={"name": "ICU.de_DE"}),
        field("plain", "string", __COLLATIONS={"plain": "spark.UTF8_BINARY"}),
        field("x.value", "string", __COLLATIONS={"x.value": "UTF8_LCASE"}),
        field("tags", make_array("string"), __COLLATIONS={"tags.element": "UTF8_LCASE"}),
        field("spelled", "string collate UNICODE_CI"),
    )
    assert found.generated == {"day": "CAST(ts AS DATE)"}
    collations = {each.name: each.collation for each in found.fields if types.is_text(each.data_type)}
    assert collations == {
        "code": None,
        "name": "ICU.de_DE",
        "plain": None,
        "x.value": "UTF8_LCASE",
        "spelled": "UNICODE_CI",
    }
    element = found.find_field(("tags", "element"))
    assert element is not None
    assert element.collation == "UTF8_LCASE"


def test_D19_former_types_belong_to_the_part_that_changed() -> None:
    changes = [
        {"fromType": "byte", "toType": "integer", "tableVersion": 1},
        {"fromType": "integer", "toType": "long"},
    ]
    inside = [{"fromType": "float", "toType": "double", "fieldPath": "value.element"}]
    found = table_metadata(
        field("a", "long", **{"delta.typeChanges": changes}),
        field("m", make_map("string", make_array("double")), **{"delta.typeChanges": inside}),
    )
    assert found.fields_by_name["a"].former_types == {"byte", "integer"}
    assert found.fields_by_name["m"].former_types == frozenset()
    element = found.find_field(("m", "value", "element"))
    assert element is not None
    assert element.former_types == {"float"}


def test_partition_columns_are_columns() -> None:
    found = table_metadata(field("a", "long"), field("Day", "date"), partitioned_by=["Day"])
    assert found.partition_columns == ("Day",)
    with pytest.raises(CorruptFile, match="partitioned by 'b', which is not in its schema"):
        table_metadata(field("a", "long"), partitioned_by=["b"])
    with pytest.raises(CorruptFile, match="partitioned by 's', which is a struct"):
        table_metadata(field("s", make_struct()), partitioned_by=["s"])


def test_D3_partition_columns_in_another_case_are_an_error_if_values_use_these_names() -> None:
    columns = [field("a", "long"), field("Day", "date")]
    with pytest.raises(CorruptFile, match="partitioned by 'day', and its schema spells that column 'Day'"):
        table_metadata(*columns, partitioned_by=["day"])
    mapped_columns = [field("a", "long", **mapping(1, "x")), field("Day", "date", **mapping(2, "y"))]
    found = table_metadata(*mapped_columns, partitioned_by=["day"], **{"delta.columnMapping.mode": "name"})
    assert found.partition_columns == ("Day",)


@pytest.mark.parametrize("given", [5, -1, "day", True, {"day": 1}, 1.5])
def test_X8_metadata_of_other_types_is_an_error(given: Any) -> None:
    action = {"schemaString": json.dumps(make_struct(field("day", "date")))}
    with pytest.raises(CorruptFile, match="the partitionColumns of the Delta table t are not a list"):
        parse_metadata(action | {"partitionColumns": given}, "t")
    if not isinstance(given, dict):
        with pytest.raises(CorruptFile, match="the format of the Delta table t is not an object"):
            parse_metadata(action | {"format": given}, "t")


def test_D6_two_fields_with_one_id_are_an_error_if_files_are_read_by_ids() -> None:
    twice = [field("a", "long", **mapping(1, "x")), field("b", "long", **mapping(1, "y"))]
    inside = field("s", make_struct(*twice), **mapping(2, "z"))
    by_id = {"delta.columnMapping.mode": "id"}
    with pytest.raises(CorruptFile, match=r"the schema of the Delta table .* has two fields with the id 1"):
        table_metadata(*twice, **by_id)
    with pytest.raises(CorruptFile, match=r"column s of the Delta table .* has two fields with the id 1"):
        table_metadata(inside, **by_id)
    assert table_metadata(*twice, **{"delta.columnMapping.mode": "name"}).schema.names == ["a", "b"]


def test_X8_names_with_half_of_a_surrogate_pair_are_an_error() -> None:
    by_name = {"delta.columnMapping.mode": "name"}
    for columns in (
        [field("\ud800", "long", **mapping(1, "x"))],
        [field("a", "long", **mapping(1, "\ud800"))],
        [field("s", make_struct(field("\ud800", "long", **mapping(2, "y"))), **mapping(1, "x"))],
    ):
        with pytest.raises(
            CorruptFile, match=r"has the name '\\ud800', which contains half of a surrogate pair"
        ) as caught:
            table_metadata(*columns, **by_name)
        assert str(caught.value).encode()


def test_X8_a_duplicate_among_many_names_is_found_quickly() -> None:
    columns = [field(f"c{number}", "long") for number in range(10_000)]
    with pytest.raises(CorruptFile, match="has two fields named 'c9999'"):
        table_metadata(*columns, columns[-1])


def test_data_files_of_another_format_are_refused() -> None:
    with pytest.raises(UnsupportedFeature, match="'orc' data files; Tamis supports parquet"):
        parse_metadata({"schemaString": None, "format": {"provider": "orc"}}, "t")


def test_metadata_of_a_checkpoint_comes_as_pairs() -> None:
    found = parse_metadata(
        {"schemaString": json.dumps(make_struct(field("a", "long"))), "configuration": [("delta.appendOnly", "true")]},
        "t",
    )
    assert found.configuration == {"delta.appendOnly": "true"}
    assert found.partition_columns == ()


def test_every_schema_of_the_golden_tables_is_read(golden: Path) -> None:
    count = 0
    for action in _read_metadata_actions(golden):
        found = parse_metadata(action, "golden")
        declared = json.loads(action["schemaString"])["fields"] if action["schemaString"] else []
        assert found.schema.names == [each["name"] for each in declared if each["type"] != "void"]
        assert set(found.partition_columns) == set(action["partitionColumns"] or [])
        for each in found.fields:
            assert (found.to_physical_path((each.name,)) != (each.name,)) <= (found.mapping_mode != "none")
        count += 1
    assert count > 50


def _read_metadata_actions(golden: Path) -> list[dict[str, Any]]:
    found = []
    for path in sorted(golden.glob("delta*/**/_delta_log/*.json")):
        for line in path.read_text().splitlines():
            if line.startswith('{"metaData"'):
                found.append({"schemaString": None, "partitionColumns": []} | json.loads(line)["metaData"])
    for path in sorted(golden.glob("delta*/**/_delta_log/*.parquet")):
        if path.stat().st_size:
            file = pq.ParquetFile(path)
            if "metaData" in file.schema_arrow.names:
                found += [row for row in file.read(["metaData"])["metaData"].to_pylist() if row is not None]
    return found
