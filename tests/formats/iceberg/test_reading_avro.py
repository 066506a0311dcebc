"""Avro data files: nested types, every codec, blocks of any size, read in parts."""

from __future__ import annotations

import json
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from builders.iceberg.avro_files import write_avro
from builders.iceberg.values import list_of, map_of
from tamis.errors import CorruptFile
from tamis.formats.files.data_files import DataFile, as_type
from tamis.formats.iceberg.schema import arrow_schema, make_field_names
from tamis.io.storage import open_storage
from tamis.tuning import Tuning

FIXED = {"type": "fixed", "name": "f9", "size": 9, "logicalType": "decimal", "precision": 20, "scale": 3}
INNER = {
    "type": "record",
    "name": "inner",
    "fields": [
        {
            "name": "at",
            "type": ["null", {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}],
            "field-id": 11,
        },
        {"name": "price", "type": ["null", FIXED], "field-id": 12},
    ],
}
SCHEMA = {
    "type": "record",
    "name": "table",
    "fields": [
        {"name": "id", "type": "long", "field-id": 1},
        {
            "name": "numbers",
            "type": ["null", {"type": "array", "items": ["null", "int"], "element-id": 21}],
            "field-id": 2,
        },
        {
            "name": "words",
            "type": ["null", {"type": "map", "values": "long", "key-id": 22, "value-id": 23}],
            "field-id": 3,
        },
        {
            "name": "by_number",
            "field-id": 4,
            "type": {
                "type": "array",
                "logicalType": "map",
                "items": {
                    "type": "record",
                    "name": "k24_v25",
                    "fields": [
                        {"name": "key", "type": {"type": "int", "logicalType": "date"}, "field-id": 24},
                        {"name": "value", "type": ["null", INNER], "field-id": 25},
                    ],
                },
            },
        },
        {"name": "inners", "type": {"type": "array", "items": "inner", "element-id": 26}, "field-id": 5},
        {
            "name": "tiny",
            "type": ["null", {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}],
            "field-id": 6,
        },
    ],
}


def make_field(number: int, name: str, kind: Any) -> dict[str, Any]:
    return {"id": number, "name": name, "required": False, "type": kind}


STRUCT = {"type": "struct", "fields": [make_field(11, "at", "timestamptz"), make_field(12, "price", "decimal(20,3)")]}
FIELDS = [
    make_field(6, "small", "decimal(12,2)"),
    make_field(1, "id", "long"),
    make_field(2, "numbers", {"type": "list", "element-id": 21, "element": "long", "element-required": False}),
    make_field(
        3,
        "words",
        {"type": "map", "key-id": 22, "key": "string", "value-id": 23, "value": "long", "value-required": True},
    ),
    make_field(
        4,
        "days",
        {"type": "map", "key-id": 24, "key": "date", "value-id": 25, "value": STRUCT, "value-required": False},
    ),
    make_field(5, "inners", {"type": "list", "element-id": 26, "element": STRUCT, "element-required": True}),
]


def make_inner(number: int) -> dict[str, Any]:
    return {"at": number * 1_000_000, "price": (number * 7).to_bytes(9, "big", signed=True)}


def make_record(number: int) -> dict[str, Any]:
    return {
        "id": number,
        "numbers": None if number % 5 == 0 else [number, None],
        "words": None if number % 7 == 0 else {"a": number, "b": -number},
        "by_number": []
        if number % 3 == 0
        else [{"key": number, "value": make_inner(number)}, {"key": 1, "value": None}],
        "inners": [make_inner(number), make_inner(-number)] if number % 2 else [],
        "tiny": None if number % 4 == 0 else (-number).to_bytes(1 + number % 3, "big", signed=True),
    }


def make_expected_inner(number: int) -> dict[str, Any]:
    return {"at": number * 1_000_000, "price": Decimal(number * 7) / 1000}


def make_expected(number: int) -> dict[str, Any]:
    return {
        "small": None if number % 4 == 0 else Decimal(-number) / 100,
        "id": number,
        "numbers": make_record(number)["numbers"],
        "words": None if number % 7 == 0 else [("a", number), ("b", -number)],
        "days": [] if number % 3 == 0 else [(number, make_expected_inner(number)), (1, None)],
        "inners": [make_expected_inner(number), make_expected_inner(-number)] if number % 2 else [],
    }


@pytest.mark.parametrize("codec", ["null", "deflate", "snappy", "zstandard"])
@pytest.mark.parametrize("per_block", [1, 7, 1000])
def test_nested_values_of_avro_files_are_read(tmp_path: Path, codec: str, per_block: int) -> None:
    path = tmp_path / "a.avro"
    size = write_avro(path, SCHEMA, map(make_record, range(100)), codec=codec, per_block=per_block)
    schema = {"fields": FIELDS}
    wanted = pa.Table.from_pylist(list(map(make_expected, range(100))), arrow_schema(schema))
    names = make_field_names(schema)
    for part_bytes in (2**26, 500):
        storage = open_storage(tmp_path).with_tuning(Tuning(max_avro_bytes_together=part_bytes))
        file = DataFile(storage, str(path), size, "AVRO", 100)
        batches = list(file.read(arrow_schema(schema), names))
        assert pa.Table.from_batches(batches).equals(wanted)
        assert (len(batches) > 1) is (part_bytes == 500 and per_block < 1000)
        starts = [start for start, _ in file.read_with_positions(arrow_schema(schema), names)]
        assert starts[0] == 0
        assert starts[-1] == sum(batch.num_rows for batch in batches[:-1])


def test_only_the_wanted_columns_are_converted(tmp_path: Path) -> None:
    path = tmp_path / "a.avro"
    size = write_avro(path, SCHEMA, map(make_record, range(10)))
    schema = {"fields": [make_field(99, "later", "string"), FIELDS[1]]}
    file = DataFile(open_storage(tmp_path), str(path), size, "avro", 10)
    (batch,) = file.read(arrow_schema(schema), make_field_names(schema), {("later",): pa.scalar("now")})
    assert batch.to_pydict() == {"later": ["now"] * 10, "id": list(range(10))}


def test_decimals_of_any_width_keep_their_sign() -> None:
    numbers = [0, 1, -1, 127, -128, 128, 2**63, -(2**63) - 1, 10**37]
    given = [
        None if number is None else number.to_bytes(17, "big", signed=True)[-width:]
        for number in numbers
        for width in (16,)
    ]
    short = [number.to_bytes((number.bit_length() + 8) // 8, "big", signed=True) for number in numbers]
    target = pa.decimal128(38, 2)
    for stored in (given, short, [*short, None, b""]):
        values = as_type(pa.array(stored, pa.binary()), target, "f")
        found = [None if each is None else int(each.scaleb(2)) for each in values.to_pylist()]
        assert found == numbers + [None, 0][: len(stored) - len(numbers)]
        assert as_type(pa.array(stored, pa.binary()).slice(3), target, "f").equals(values.slice(3))


def test_a_decimal_that_is_too_wide_is_an_error() -> None:
    with pytest.raises(CorruptFile, match="a decimal of 17 bytes"):
        as_type(pa.array([b"\0" * 17]), pa.decimal128(9, 2), "f")
    with pytest.raises(CorruptFile, match="does not fit into"):
        as_type(pa.array([(10**9).to_bytes(8, "big")]), pa.decimal128(9, 2), "f")


COLOURS = {"type": "enum", "name": "colour", "symbols": ["RED", "GREEN", "BLUE"]}


def read_column(kind: Any, iceberg: Any, values: list[Any], folder: Path) -> list[Any]:
    path = folder / "a.avro"
    schema = {"type": "record", "name": "r", "fields": [{"name": "c", "type": kind, "field-id": 1}]}
    size = write_avro(path, schema, [{"c": value} for value in values])
    table = {"fields": [make_field(1, "c", iceberg)]}
    file = DataFile(open_storage(folder), str(path), size, "avro", len(values))
    found = pa.Table.from_batches(file.read(arrow_schema(table), make_field_names(table)))
    return found["c"].to_pylist()


LIST = {"type": "list", "element-id": 2, "element": "string", "element-required": False}
MAP = {"type": "map", "key-id": 2, "key": "string", "value-id": 3, "value": "string", "value-required": False}


@pytest.mark.parametrize(
    ("kind", "iceberg", "values"),
    [
        (COLOURS, "string", ["BLUE", "RED"]),
        (["null", COLOURS], "string", ["GREEN", None, "RED"]),
        ([COLOURS, "null"], "string", [None, "RED"]),
        (
            {"type": "array", "items": ["null", COLOURS], "element-id": 2},
            LIST,
            [["RED", None], [], ["BLUE"]],
        ),
        (["null", {"type": "array", "items": COLOURS, "element-id": 2}], LIST, [["RED"], None]),
        (
            {
                "type": "record",
                "name": "inner",
                "fields": [{"name": "a", "type": "int", "field-id": 2}, {"name": "b", "type": COLOURS, "field-id": 3}],
            },
            {"type": "struct", "fields": [make_field(3, "b", "string"), make_field(2, "a", "long")]},
            [{"b": "GREEN", "a": 1}],
        ),
    ],
)
def test_enumerations_are_read_as_their_symbols(tmp_path: Path, kind: Any, iceberg: Any, values: list[Any]) -> None:
    assert read_column(kind, iceberg, values, tmp_path) == values


def test_enumerations_within_maps_are_read_as_their_symbols(tmp_path: Path) -> None:
    kind = {"type": "map", "values": COLOURS, "key-id": 2, "value-id": 3}
    assert read_column(kind, MAP, [{"a": "BLUE", "b": "RED"}, {}], tmp_path) == [[("a", "BLUE"), ("b", "RED")], []]


def test_an_enumeration_value_out_of_range_is_an_error(tmp_path: Path) -> None:
    fewer = {**COLOURS, "symbols": ["RED"]}
    path = tmp_path / "a.avro"
    schema = {"type": "record", "name": "r", "fields": [{"name": "c", "type": COLOURS, "field-id": 1}]}
    write_avro(path, schema, [{"c": "RED"}, {"c": "BLUE"}], codec="null")
    symbols = json.dumps(COLOURS["symbols"]).encode()
    content = path.read_bytes()
    assert symbols in content
    # The schema is as long as before.
    path.write_bytes(content.replace(symbols, json.dumps(fewer["symbols"]).encode().ljust(len(symbols))))
    table = {"fields": [make_field(1, "c", "string")]}
    file = DataFile(open_storage(tmp_path), str(path), len(content), "avro", 2)
    with pytest.raises(CorruptFile, match="an enumeration value outside its 1 symbol"):
        list(file.read(arrow_schema(table), make_field_names(table)))


@pytest.mark.parametrize(
    ("kind", "iceberg", "given", "expected"),
    [
        (["string"], "string", "x", "x"),
        (
            {"type": "long", "logicalType": "local-timestamp-millis"},
            "timestamp",
            1500,
            datetime(1970, 1, 1, 0, 0, 1, 500_000),
        ),
    ],
)
def test_types_of_foreign_files(tmp_path: Path, kind: Any, iceberg: Any, given: Any, expected: Any) -> None:
    assert read_column(kind, iceberg, [given], tmp_path) == [expected]


def test_a_union_of_several_types_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match=r"a\.avro' has an Avro schema with invalid types: a union of several types"):
        read_column(["null", "int", "long"], "long", [5], tmp_path)


def _make_pair(name: str, first: int) -> dict[str, Any]:
    """Return a record of `a` and `b`, with ids from `first` on."""
    kinds = {"a": "int", "b": "string"}
    fields = [
        {"name": each, "type": ["null", kind], "field-id": first + number}
        for number, (each, kind) in enumerate(kinds.items())
    ]
    return {"type": "record", "name": name, "fields": fields}


def test_I5_structs_inside_lists_and_maps_evolve_by_id(tmp_path: Path) -> None:
    entry = {
        "type": "record",
        "name": "entry",
        "fields": [
            {"name": "key", "type": "int", "field-id": 31},
            {"name": "value", "type": ["null", _make_pair("third", 40)], "field-id": 32},
        ],
    }
    kinds = {
        "l": {"type": "array", "element-id": 4, "items": ["null", _make_pair("first", 10)]},
        "m": {"type": "map", "key-id": 5, "value-id": 6, "values": ["null", _make_pair("second", 20)]},
        "n": {"type": "array", "logicalType": "map", "items": entry},
    }
    fields = [
        {"name": name, "type": ["null", kind], "field-id": 1 + index}
        for index, (name, kind) in enumerate(kinds.items())
    ]
    one = {"a": 1, "b": "x"}
    rows = [
        {"l": [one, None], "m": {"k": one}, "n": [{"key": 5, "value": one}, {"key": 6, "value": None}]},
        {"l": None, "m": {}, "n": None},
    ]
    size = write_avro(tmp_path / "1.avro", {"type": "record", "name": "t", "fields": fields}, rows)

    def make_struct(first: int) -> dict[str, Any]:
        # The names have changed positions, one is wider, and one is new.
        return {
            "type": "struct",
            "fields": [
                make_field(first + 1, "a", "string"),
                make_field(first + 5, "c", "date"),
                make_field(first, "b", "long"),
            ],
        }

    schema = {
        "fields": [
            make_field(1, "l", list_of(4, make_struct(10))),
            make_field(2, "m", map_of(5, 6, "string", make_struct(20))),
            make_field(3, "n", map_of(31, 32, "int", make_struct(40))),
        ]
    }
    file = DataFile(open_storage(tmp_path), str(tmp_path / "1.avro"), size, "avro", 2)
    (batch,) = file.read(arrow_schema(schema), make_field_names(schema, None))
    changed = {"a": "x", "c": None, "b": 1}
    assert batch.to_pylist() == [
        {"l": [changed, None], "m": [("k", changed)], "n": [(5, changed), (6, None)]},
        {"l": None, "m": [], "n": None},
    ]
