"""Avro container files: every codec, block layout and type, and a clear error for damaged files."""

from __future__ import annotations

import io
import json
from collections.abc import Collection
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.iceberg.avro_files import CODECS, write_avro
from tamis import TamisError
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.files import avro
from tamis.formats.files.avro import decode_enumerations, decode_rows, open_avro
from tamis.formats.files.avro_schema import resolve, to_polars_schema

PAIR = {
    "type": "record",
    "name": "pair",
    "fields": [{"name": "key", "type": "int"}, {"name": "value", "type": "bytes"}],
}


def make_record(*fields: tuple[str, Any]) -> dict[str, Any]:
    return {
        "type": "record",
        "name": "entry",
        "fields": [
            {"name": name, "type": kind, "field-id": number} for number, (name, kind) in enumerate(fields, start=1)
        ],
    }


SCHEMA = make_record(
    ("status", "int"),
    ("path", "string"),
    ("bounds", ["null", {"type": "array", "items": PAIR, "logicalType": "map"}]),
    ("size", ["long", "null"]),
    ("is_live", "boolean"),
    ("partition", {"type": "record", "name": "r102", "fields": []}),
)
ROWS = [
    {
        "status": number % 3,
        "path": f"s3://bucket/é{number}",
        "bounds": None if number % 5 == 0 else [{"key": key, "value": bytes([key])} for key in range(number % 4)],
        "size": None if number % 7 == 0 else -(2**60) + number,
        "is_live": number % 2 == 0,
        "partition": {},
    }
    for number in range(100)
]


def write_content(tmp_path: Path, schema: Any, rows: list[Any], **options: Any) -> bytes:
    path = tmp_path / "some.avro"
    write_avro(path, schema, rows, **options)
    return path.read_bytes()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("per_block", [1, 7, 1000])
def test_every_codec_and_block_size(tmp_path: Path, codec: str, per_block: int) -> None:
    content = write_content(tmp_path, SCHEMA, ROWS, codec=codec, per_block=per_block)
    file = open_avro(content, "the-file")
    assert file.count == len(ROWS)
    assert file.read().to_pylist() == ROWS


def test_records_equal_those_of_fastavro(tmp_path: Path) -> None:
    content = write_content(tmp_path, SCHEMA, ROWS)
    assert open_avro(content, "the-file").read().to_pylist() == list(fastavro.reader(io.BytesIO(content)))


def test_record_decoder_equals_column_decoder(tmp_path: Path) -> None:
    file = open_avro(write_content(tmp_path, SCHEMA, ROWS), "the-file")
    slow = decode_rows(file.body, file.count, file.schema, "the-file")
    assert slow.to_pylist() == file.read().to_pylist() == ROWS


FIXED = {"type": "fixed", "size": 3, "name": "three"}
RARE_TYPES = [
    ("null", [None, None]),
    ({"type": "map", "values": "long"}, [{"a": 1, "b": -1}, {}]),
    (["null", {"type": "map", "values": FIXED}], [None, {"a": b"abc"}]),
    ({"type": "enum", "name": "color", "symbols": ["RED", "BLUE"]}, ["BLUE", "RED"]),
    (["null", {"type": "array", "items": ["null", "double"]}], [[1.5, None], None]),
    (
        {"type": "record", "name": "inner", "fields": [{"name": "x", "type": ["null", "float"]}]},
        [{"x": 0.5}, {"x": None}],
    ),
]


@pytest.mark.parametrize(("kind", "values"), RARE_TYPES)
def test_types_that_are_rare_in_manifests(tmp_path: Path, kind: Any, values: list[Any]) -> None:
    schema = make_record(("number", "int"), ("x", kind))
    file = open_avro(write_content(tmp_path, schema, [{"number": 1, "x": each} for each in values]), "the-file")
    fast, slow = (
        file.read(),
        decode_enumerations(decode_rows(file.body, file.count, file.schema, "p"), file.schema, "p"),
    )
    assert to_polars_schema(file.schema) is not None
    if kind == "null":
        assert slow["x"].null_count == len(values)
        return
    assert slow.to_pylist() == fast.to_pylist()
    plain = [each if not isinstance(each, dict) or "x" in each else list(each.items()) for each in values]
    found = [
        [(entry["key"], entry["value"]) for entry in each]
        if isinstance(each, list) and each and isinstance(each[0], dict)
        else each
        for each in fast["x"].to_pylist()
    ]
    assert found == plain


def test_references_to_named_types_are_resolved(tmp_path: Path) -> None:
    schema = make_record(("a", FIXED), ("b", ["null", "three"]))
    rows = [{"a": b"abc", "b": b"xyz"}, {"a": b"def", "b": None}]
    assert open_avro(write_content(tmp_path, schema, rows), "the-file").read().to_pylist() == rows


@pytest.mark.parametrize(
    "wanted",
    [("status", "file", "path", "partition"), ("file", "bounds"), ("size", "file"), ("status",), ("file", "empty")],
    ids=" ".join,
)
@pytest.mark.parametrize("is_decoded_one_by_one", [False, True])
def test_unwanted_fields_are_skipped(
    tmp_path: Path, wanted: tuple[str, ...], is_decoded_one_by_one: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    inner = [each for each in SCHEMA["fields"] if each["name"] not in ("status", "size")]
    inner[-1] = {**inner[-1], "type": {**make_record(("day", ["null", "int"]), ("region", "string")), "name": "tuple"}}
    inner.append({"name": "empty", "type": {"type": "record", "name": "nothing", "fields": []}})
    file = {"name": "file", "type": {"type": "record", "name": "inner", "fields": inner}}
    schema = make_record(("status", "int"), ("size", ["long", "null"]))
    schema["fields"].insert(1, file)
    rows = [
        {
            "status": each["status"],
            "size": each["size"],
            "file": {**each, "partition": {"day": number % 3 or None, "region": f"r{number}"}, "empty": {}},
        }
        for number, each in enumerate(ROWS)
    ]
    opened = open_avro(write_content(tmp_path, schema, rows, per_block=7), "file")
    everything = opened.read()
    if is_decoded_one_by_one:
        monkeypatch.setattr(avro, "to_polars_schema", lambda schema: None)
    found, left = opened.read_fields(lambda field: field["name"] in wanted)
    assert [each["name"] for each in left["fields"]] == found.column_names
    names = [each["name"] for each in schema["fields"]]
    assert found.column_names == (names if is_decoded_one_by_one else [name for name in names if name in wanted])
    for name in set(found.column_names) - {"file"}:
        assert found[name].to_pylist() == everything[name].to_pylist()
    if "file" in found.column_names:
        fields = {field["name"]: field["type"] for field in left["fields"]}["file"]["fields"]
        inside = [each["name"] for each in fields]
        assert inside == [each.name for each in found["file"].type]
        assert found["file"].to_pylist() == [
            {key: row[key] for key in inside} for row in everything["file"].to_pylist()
        ]
        assert set(inside) == ({each["name"] for each in inner} if is_decoded_one_by_one else set(wanted) - set(names))


def test_a_union_that_polars_does_not_support_is_decoded_by_record(tmp_path: Path) -> None:
    schema = make_record(("x", ["null", "int", "string"]))
    file = open_avro(write_content(tmp_path, schema, [{"x": 1}, {"x": "a"}, {"x": None}]), "the-file")
    assert to_polars_schema(file.schema) is None
    found = file.read()["x"].to_pylist()
    assert found == [
        {"member0": None, "member1": 1, "member2": None},
        {"member0": None, "member1": None, "member2": "a"},
        {"member0": None, "member1": None, "member2": None},
    ]


def test_logical_types_and_field_ids_in_the_arrow_schema(tmp_path: Path) -> None:
    schema = make_record(
        ("d", {"type": "int", "logicalType": "date"}),
        ("t", ["null", {"type": "long", "logicalType": "timestamp-micros", "adjust-to-utc": True}]),
        ("n", {"type": "long", "logicalType": "timestamp-nanos", "adjust-to-utc": False}),
        ("p", {"type": "fixed", "size": 4, "name": "p4", "logicalType": "decimal", "precision": 9, "scale": 2}),
        ("m", {"type": "array", "items": PAIR, "logicalType": "map"}),
    )
    found = open_avro(write_content(tmp_path, schema, []), "the-file").arrow_schema
    assert found.types[:4] == [pa.date32(), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.decimal128(9, 2)]
    assert pa.types.is_map(found.field("m").type)
    assert [field.metadata[b"PARQUET:field_id"] for field in found] == [b"1", b"2", b"3", b"4", b"5"]
    assert [field.nullable for field in found] == [False, True, False, False, False]


def open_or_error(content: bytes, wanted: Collection[str] | None = None) -> pa.Table | TamisError:
    try:
        file = open_avro(content, "the-file")
        return file.read() if wanted is None else file.read_fields(lambda field: field["name"] in wanted)[0]
    except TamisError as error:
        return error


# --- Damage -----------------------------------------------------------------------------------------------------------


def test_X6_a_file_that_is_not_avro(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="'the-file' is not an Avro file"):
        open_avro(b"PAR1 and so on", "the-file")


def test_an_unsupported_codec_is_named_in_the_error(tmp_path: Path) -> None:
    content = write_content(tmp_path, SCHEMA, ROWS, codec="null").replace(b"\x08null", b"\x08lzma")
    with pytest.raises(UnsupportedFeature, match="'the-file' is compressed with the unsupported codec 'lzma'"):
        open_avro(content, "the-file")


@pytest.mark.parametrize("codec", CODECS)
def test_X6_a_file_truncated_anywhere_is_an_error(tmp_path: Path, codec: str) -> None:
    content = write_content(tmp_path, SCHEMA, ROWS, codec=codec, per_block=10)
    whole_blocks = 0
    for length in range(0, len(content), 97):
        found = open_or_error(content[:length])
        if isinstance(found, TamisError):
            assert "the-file" in str(found)
        else:
            # A file that is truncated at the end of a block looks complete.
            assert len(found) % 10 == 0
            whole_blocks += 1
    assert whole_blocks < 3


def test_X6_a_block_that_claims_more_records_than_it_has_bytes(tmp_path: Path) -> None:
    schema = make_record(("x", {"type": "record", "name": "empty", "fields": []}))
    framed = avro._write_single_block(json.dumps(schema), 2**40, b"")
    with pytest.raises(CorruptFile, match="claims 1099511627776 records in 0 bytes"):
        open_avro(framed, "the-file")


def test_X5_a_block_that_decompresses_beyond_the_limit(tmp_path: Path) -> None:
    rows = [{"x": b"\0" * 5_000_000}]
    for codec in CODECS:
        content = write_content(tmp_path, make_record(("x", "bytes")), rows, codec=codec)
        with pytest.raises(CorruptFile, match="the-file"):
            open_avro(content, "the-file", max_bytes=1_000_000)
        assert open_avro(content, "the-file").count == 1


def test_a_recursive_type_is_rejected(tmp_path: Path) -> None:
    schema = make_record(("next", ["null", "entry"]))
    with pytest.raises(ValueError, match="contain themselves"):
        resolve(schema)


def test_X6_a_string_that_claims_to_be_longer_than_the_file() -> None:
    schema = resolve(make_record(("x", "string")))
    claims = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01"
    with pytest.raises(CorruptFile, match="bytes are claimed"):
        decode_rows(claims, 1, schema, "the-file")


def test_X6_an_array_that_claims_more_than_there_are_bytes() -> None:
    schema = resolve(make_record(("x", {"type": "array", "items": "null"})))
    with pytest.raises(CorruptFile, match="elements are claimed"):
        decode_rows(b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\0", 1, schema, "the-file")


def test_X6_an_array_of_empty_elements_is_checked(tmp_path: Path) -> None:
    for items in ("null", {"type": "record", "name": "r", "fields": [{"name": "x", "type": "null"}]}):
        schema = make_record(("x", {"type": "array", "items": items}))
        claims = b"\xfe\xff\xff\xff\xff\xff\xff\xff\xff\x01" + b"\0"
        with pytest.raises(CorruptFile, match="elements are claimed"):
            open_avro(avro._write_single_block(json.dumps(schema), 1, claims), "the-file").read()


@given(st.data())
@settings(max_examples=150, deadline=None)
def test_a_changed_byte_gives_rows_or_a_tamis_error(data: st.DataObject) -> None:
    content = bytearray(avro._write_single_block(json.dumps(SCHEMA), len(ROWS), _encode_body()))
    start = content.index(b"null\x00") if data.draw(st.booleans()) else len(content) - len(_encode_body())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(start, len(content) - 1))] = data.draw(st.integers(0, 255))
    for wanted in (None, ("path", "size")):
        found = open_or_error(bytes(content), wanted)
        assert not isinstance(found, TamisError) or "the-file" in str(found)


def _encode_body() -> bytes:
    parsed = fastavro.parse_schema(json.loads(json.dumps(SCHEMA)))
    encoded = io.BytesIO()
    for row in ROWS:
        fastavro.schemaless_writer(encoded, parsed, row)
    return encoded.getvalue()
