"""Shredded variants in Parquet files: all of them are read as the structs that store them."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from tamis.errors import UnsupportedFeature

METADATA = b"\x01\0\0"
_VARIANT = b"\x5c\x0c\x20\x13\x01\x00\x00"
"""The bytes after the number of children of a group: field 10, a union with field 16, with version 1."""


def make_shredded_type(data_type: pa.DataType) -> pa.StructType:
    return pa.struct([pa.field("value", pa.binary()), pa.field("typed_value", data_type)])


def make_typed_value(value: Any) -> dict[str, Any]:
    return {"value": None, "typed_value": value}


_INTEGER = make_shredded_type(pa.int32())
TYPES: dict[str, tuple[pa.DataType, Any]] = {
    "boolean": (pa.bool_(), True),
    "int8": (pa.int8(), 1),
    "int16": (pa.int16(), 1),
    "int32": (pa.int32(), 1),
    "int64": (pa.int64(), 1),
    "unsigned": (pa.uint32(), 1),
    "float": (pa.float32(), 1.5),
    "double": (pa.float64(), 1.5),
    "date": (pa.date32(), date(2024, 1, 1)),
    "time": (pa.time64("us"), 1),
    "timestamp": (pa.timestamp("us", "UTC"), 0),
    "timestamp without zone": (pa.timestamp("us"), 0),
    "nanoseconds": (pa.timestamp("ns", "UTC"), 0),
    "decimal4": (pa.decimal128(9, 4), Decimal("1.5")),
    "decimal8": (pa.decimal128(18, 4), Decimal("1.5")),
    "decimal16": (pa.decimal128(38, 4), Decimal("1.5")),
    "binary": (pa.binary(), b"a"),
    "string": (pa.string(), "a"),
    "fixed": (pa.binary(4), b"abcd"),
    "uuid": (pa.uuid(), b"a" * 16),
    "object": (
        pa.struct([("a", _INTEGER), ("b", make_shredded_type(pa.string()))]),
        {"a": make_typed_value(1), "b": {"value": b"x", "typed_value": None}},
    ),
    "object in object": (
        pa.struct([("c", make_shredded_type(pa.struct([("b", make_shredded_type(pa.string()))])))]),
        {"c": make_typed_value({"b": make_typed_value("q")})},
    ),
    "object of one typed field": (
        pa.struct([("a", pa.struct([("typed_value", pa.int32())]))]),
        {"a": {"typed_value": 1}},
    ),
    "list": (pa.list_(_INTEGER), [make_typed_value(1), {"value": b"z", "typed_value": None}]),
    "list of objects": (
        pa.list_(make_shredded_type(pa.struct([("a", _INTEGER)]))),
        [make_typed_value({"a": make_typed_value(3)})],
    ),
    "list of lists": (pa.list_(make_shredded_type(pa.list_(_INTEGER))), [make_typed_value([make_typed_value(3)])]),
}


def write(path: Path, name: str, *, has_value: bool = True, is_annotated: bool = True) -> pa.Table:
    data_type, value = TYPES[name]
    fields = [pa.field("metadata", pa.binary(), nullable=False)]
    fields += [pa.field("value", pa.binary())] if has_value else []
    parts = [pa.array([METADATA] * 3), *([pa.array([None, None, b"\0"])] if has_value else [])]
    # Arrays of extension types are built from their storage type.
    storage = data_type.storage_type if isinstance(data_type, pa.BaseExtensionType) else data_type
    values = pa.array([value, None, None], storage).cast(data_type)
    fields.append(pa.field("typed_value", data_type))
    variant = pa.StructArray.from_arrays([*parts, values], fields=fields, mask=pa.array([False, True, False]))
    pq.write_table(pa.table({"id": range(3), "var": variant}), path, store_schema=False)
    if is_annotated:
        annotate(path)
    return pq.read_table(path, arrow_extensions_enabled=False)


def annotate(path: Path) -> None:
    """Annotate the group `var` as a variant, as writers of variants do."""
    content = path.read_bytes()
    start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    before, mark, after = content[start:-8].partition(b"\x18\x03var\x15")
    footer = before + mark + after[:1] + _VARIANT + after[1:]
    path.write_bytes(content[:start] + footer + len(footer).to_bytes(4, "little") + b"PAR1")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("has_value", [True, False], ids=["value", "no value"])
def test_every_shape_of_a_shredded_variant_is_read_as_its_struct(tmp_path: Path, name: str, has_value: bool) -> None:
    for is_annotated in (True, False):
        path = tmp_path / "f.parquet"
        expected = write(path, name, has_value=has_value, is_annotated=is_annotated)
        table = tamis.open(path)
        assert table.scan().to_arrow().to_pylist() == expected.to_pylist()
        assert table.scan("id = 0 AND var IS NOT NULL").to_arrow().to_pylist() == expected.slice(0, 1).to_pylist()
        assert table.scan("var.typed_value IS NOT NULL").count() == 1
        narrowed = table.scan(columns=["var.metadata", "var.value"] if has_value else ["var.metadata"]).to_arrow()
        assert [None if row is None else row["metadata"] for row in narrowed["var"].to_pylist()] == [
            METADATA,
            None,
            METADATA,
        ]


@pytest.mark.parametrize("name", TYPES)
def test_a_table_with_a_variant_column_rejects_every_shape_by_name(tmp_path: Path, name: str) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "var": "variant"}, features=["variantType", "variantShredding"])
    rows = write(tmp_path / "rows.parquet", name, is_annotated=False)
    (tmp_path / "rows.parquet").unlink()
    log.commit(data_file(log, "1.parquet", rows))
    table = tamis.open(tmp_path)
    with pytest.raises(UnsupportedFeature, match="column 'var' has shredded variants"):
        table.scan().to_arrow()
    assert table.scan(columns=["id"]).to_arrow()["id"].to_pylist() == [0, 1, 2]


def test_shredded_variants_in_lists_are_refused_and_not_null(tmp_path: Path) -> None:
    variants = {"type": "array", "elementType": "variant", "containsNull": True}
    columns = [{"name": "vs", "type": variants, "nullable": True, "metadata": {}}]
    log = DeltaLog(tmp_path, columns, features=["variantType", "variantShredding"])
    element = pa.struct([("metadata", pa.binary()), ("value", pa.binary()), ("typed_value", pa.int64())])
    rows = pa.table({"vs": pa.array([[{"metadata": METADATA, "value": None, "typed_value": 5}]], pa.list_(element))})
    log.commit(data_file(log, "1.parquet", rows))
    with pytest.raises(UnsupportedFeature, match=r"column 'vs\.element' has shredded variants"):
        tamis.open(tmp_path).scan().to_arrow()
