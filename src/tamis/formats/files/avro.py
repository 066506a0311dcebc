"""A reader of Avro object container files: it parses the container, and polars decodes the records column by column.

A container is a header (metadata with schema and codec, and a sync marker of 16 bytes) followed by blocks: record
count, byte count, compressed records, and the sync marker again. polars is slow for files with one block per record,
and does not have all codecs. So this module decompresses all blocks and passes them to polars as one uncompressed
block, under an equivalent schema that polars supports: see `avro_schema`. Files that polars still rejects are decoded
record by record, at the end of this module.

A damaged file may contain any length, so every length is checked against the available bytes before use.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import UnsupportedFeature, format_count, to_one_line
from tamis.formats.errors import make_corrupt_file_error
from tamis.formats.files.avro_schema import arrow_type, resolve, to_physical_type, to_polars_schema, unwrap_nullable
from tamis.formats.source import to_single_array
from tamis.parquet.footer.thrift import encode_integer

_MAGIC = b"Obj\x01"
_SYNC_MARKER_SIZE = 16
_MAX_DIGITS = 9
MAX_BYTES = 2**30
"""The largest decompressed size of the blocks of one file: a small file can claim any size."""


@dataclass(frozen=True)
class AvroFile:
    """A decompressed Avro file, or a part of one."""

    location: str
    metadata: Mapping[str, bytes]
    count: int
    body: bytes
    """The records, one after another."""

    @cached_property
    def schema(self) -> Any:
        """The resolved schema of a record, as JSON without references to named types."""
        try:
            return resolve(json.loads(self.metadata["avro.schema"]))
        except (KeyError, ValueError, RecursionError) as error:
            raise make_corrupt_file_error(
                f"'{self.location}' has an invalid Avro schema: {to_one_line(error)}"
            ) from error

    def text(self, name: str) -> str | None:
        """Return an entry of the file metadata as text, or None."""
        found = self.metadata.get(name)
        return None if found is None else found.decode(errors="replace")

    def number(self, name: str) -> int | None:
        """Return an entry of the file metadata that is an id, or None."""
        found = self.text(name)
        if found is None:
            return None
        if not (found.isascii() and found.isdecimal() and len(found) <= _MAX_DIGITS):
            raise make_corrupt_file_error(
                f"'{self.location}' has the {name} {found[:80]!r}, expected a number: the file is damaged"
            )
        return int(found)

    def read(self) -> pa.Table:
        """Decode all records. Maps become lists of `key` and `value`, and times become plain numbers."""
        text = to_polars_schema(self.schema)
        found = None if text is None else self._read_with_polars(text)
        return decode_enumerations(self._read_by_record() if found is None else found, self.schema, self.location)

    def read_fields(self, is_wanted: Callable[[Mapping[str, Any]], bool]) -> tuple[pa.Table, Any]:
        """Decode the wanted fields of the records and of the records directly inside them, and return their schema.

        Skipping the other fields saves two thirds of the time. If skipping is not possible, all fields are returned.
        """
        if self.schema["type"] != "record":
            return self._read_by_record(), self.schema
        flattened = FlattenedRecord.of(self.schema, is_wanted)
        text = to_polars_schema(flattened.schema)
        found = None if text is None else self._read_with_polars(text, flattened.names)
        if found is None:
            return self._read_by_record(), self.schema
        return flattened.rebuild(found), flattened.wanted_schema

    def _read_with_polars(self, schema: str, names: list[str] | None = None) -> pa.Table | None:
        """Decode the records with polars; None if polars cannot decode them."""
        import polars
        from polars.exceptions import PanicException, PolarsError

        if not self.count:
            return None
        try:
            found = polars.read_avro(BytesIO(_write_single_block(schema, self.count, self.body)), columns=names)
        except (PolarsError, PanicException, OSError, ValueError):
            # Decoding the records one by one finds out whether the file is damaged.
            return None
        return found.to_arrow() if found.height == self.count else None

    def _read_by_record(self) -> pa.Table:
        return decode_rows(self.body, self.count, self.schema, self.location)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The Arrow schema with logical types, and with Iceberg's field ids as metadata."""
        try:
            return pa.schema(list(arrow_type(self.schema)))
        except (KeyError, TypeError, ValueError) as error:
            raise make_corrupt_file_error(
                f"'{self.location}' has an Avro schema with invalid types: {to_one_line(error)}"
            ) from error


def open_avro(content: bytes | pa.Buffer, location: str, max_bytes: int = MAX_BYTES) -> AvroFile:
    """Parse and decompress an Avro file. All lengths are checked."""
    (file,) = open_avro_parts(content, location, None, max_bytes)
    return file


def open_avro_parts(
    content: bytes | pa.Buffer, location: str, most: int | None, max_bytes: int = MAX_BYTES
) -> Iterator[AvroFile]:
    """Yield an Avro file in parts of about `most` bytes (None: as one part), at least one.

    So a large file is not decompressed as a whole. A part of more than `max_bytes` is an error.
    """
    data = memoryview(content).cast("B")
    if bytes(data[:4]) != _MAGIC:
        raise make_corrupt_file_error(
            f"'{location}' is not an Avro file: expected the magic bytes {_MAGIC!r}, found {bytes(data[:4])!r}"
        )
    try:
        yield from _read_parts(_Reader(data, 4), location, most, max_bytes)
    except _Damaged as error:
        raise make_corrupt_file_error(f"'{location}' is damaged or truncated: {error}") from error


def _read_parts(reader: _Reader, location: str, most: int | None, max_bytes: int) -> Iterator[AvroFile]:
    decode_entries = _make_array_decoder(
        lambda data: (data.take(data.read_number()).decode(errors="replace"), data.take(data.read_number()))
    )
    metadata: dict[str, bytes] = dict(decode_entries(reader))
    sync_marker = reader.take(_SYNC_MARKER_SIZE)
    codec = metadata.get("avro.codec", b"null").decode(errors="replace")
    decompress = _CODECS.get(codec)
    if decompress is None:
        raise UnsupportedFeature(
            f"'{location}' is compressed with the unsupported codec {codec!r}. Write it again with one of: "
            f"{', '.join(_CODECS)}"
        )
    count, size, blocks = 0, 0, []
    while reader.left:
        records, length = reader.read_number(), reader.read_number()
        block = reader.take(length)
        try:
            body = decompress(block, max_bytes - size)
        except (zlib.error, pa.ArrowException, OSError, ValueError, EOFError) as error:
            raise make_corrupt_file_error(
                f"'{location}' has a block with invalid {codec} data: {to_one_line(error)}"
            ) from error
        size += len(body)
        if records < 0 or size > max_bytes:
            raise make_corrupt_file_error(
                f"'{location}' has a block of {records} records, or more than {max_bytes} bytes without compression: "
                "the file is damaged, or too large"
            )
        if reader.take(_SYNC_MARKER_SIZE) != sync_marker:
            raise make_corrupt_file_error(
                f"'{location}' has a block without a sync marker: the file is damaged or truncated"
            )
        count += records
        blocks.append(body)
        if most is not None and size >= most and reader.left:
            yield _make_part(location, metadata, count, blocks)
            count, size, blocks = 0, 0, []
    yield _make_part(location, metadata, count, blocks)


def _make_part(location: str, metadata: Mapping[str, bytes], count: int, blocks: list[bytes]) -> AvroFile:
    file = AvroFile(location, metadata, count, b"".join(blocks))
    if count > len(file.body) and count > 0:
        # Records without any bytes carry no data, and a damaged file could claim any number of them.
        raise make_corrupt_file_error(
            f"'{location}' claims {count} records in {len(file.body)} bytes: the file is damaged"
        )
    return file


class _Damaged(ValueError):
    """Bytes that do not match the schema, or lengths that do not fit."""


class _Reader:
    """A sequential reader that checks every length."""

    def __init__(self, data: bytes | memoryview, position: int = 0) -> None:
        self._data = data
        self.position = position

    @property
    def left(self) -> int:
        return len(self._data) - self.position

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise _Damaged(f"{length} bytes are claimed at offset {self.position}, but {self.left} are left")
        self.position += length
        return bytes(self._data[self.position - length : self.position])

    def read_number(self) -> int:
        """Read a zigzag varint."""
        value = shift = 0
        for byte in self._data[self.position : self.position + 10]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.position += shift // 7
                return (value >> 1) ^ -(value & 1)
        raise _Damaged(f"invalid number at offset {self.position}")


def _decompress_deflate(block: bytes, room: int) -> bytes:
    inflater = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    found = inflater.decompress(block, room + 1)
    if not inflater.eof and len(found) <= room:
        raise EOFError("the data is truncated")
    return found


def _decompress_snappy(block: bytes, room: int) -> bytes:
    """Decompress Snappy data, which starts with its decompressed size; Avro appends a checksum."""
    content, checksum = block[:-4], block[-4:]
    size = shift = 0
    for byte in content[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > room:
        raise ValueError(f"the decompressed data is larger than {room} bytes")
    found = bytes(pa.decompress(pa.py_buffer(content), size, codec="snappy"))
    if zlib.crc32(found).to_bytes(4, "big") != checksum:
        raise ValueError("the checksum does not match")
    return found


def _decompress_zstandard(block: bytes, room: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(block)), "zstd") as stream:
        return bytes(stream.read(room + 1))


_CODECS: dict[str, Callable[[bytes, int], bytes]] = {
    "null": lambda block, room: block,
    "deflate": _decompress_deflate,
    "snappy": _decompress_snappy,
    "zstandard": _decompress_zstandard,
}


def _write_single_block(schema: str, count: int, body: bytes) -> bytes:
    """Return an Avro file with one uncompressed block."""
    sync_marker = bytes(_SYNC_MARKER_SIZE)
    entries = {"avro.schema": schema.encode(), "avro.codec": b"null"}
    header = b"".join(
        encode_integer(len(name)) + name.encode() + encode_integer(len(value)) + value
        for name, value in entries.items()
    )
    start = _MAGIC + encode_integer(len(entries)) + header + encode_integer(0) + sync_marker
    return b"".join((start, encode_integer(count), encode_integer(len(body)), body, sync_marker))


# --- Avro records whose nested records are flattened, which does not change their bytes -------------------------------
#
# polars can skip columns, but not fields of a column. So the fields of a nested record become columns, the wanted
# columns are read, and the nested records are rebuilt from them.


@dataclass(frozen=True)
class _Field:
    """A field of a record: a column, or a nested record with its wanted fields."""

    schema: Mapping[str, Any]
    column: str | None
    nested: Sequence[_Field] = ()

    @property
    def wanted_schema(self) -> Mapping[str, Any]:
        if self.column is not None:
            return self.schema
        return {**self.schema, "type": {**self.schema["type"], "fields": [each.schema for each in self.nested]}}


@dataclass(frozen=True)
class FlattenedRecord:
    """A flattened record, and how to rebuild the original."""

    schema: Any
    """The schema of the same bytes, as a record of columns."""
    _fields: Sequence[_Field]

    @staticmethod
    def of(schema: Any, is_wanted: Callable[[Mapping[str, Any]], bool]) -> FlattenedRecord:
        columns: list[dict[str, Any]] = []

        def add_column(field: Mapping[str, Any]) -> _Field:
            name = f"c{len(columns)}"
            columns.append({"name": name, "type": field["type"]})
            return _Field(field, name)

        fields = []
        for field in schema["fields"]:
            kind = field["type"]
            if isinstance(kind, Mapping) and kind["type"] == "record":
                nested = [(each, add_column(each)) for each in kind["fields"] if not _is_empty(each["type"])]
                empty = [(each, _Field(each, None)) for each in kind["fields"] if _is_empty(each["type"])]
                wanted = [flattened for each, flattened in (*nested, *empty) if is_wanted(each)]
                flattened = _Field(field, None, wanted)
            else:
                flattened = add_column(field)
            if is_wanted(field):
                fields.append(flattened)
        return FlattenedRecord({"type": "record", "name": "flattened", "fields": columns}, fields)

    @property
    def names(self) -> list[str]:
        """The names of the wanted columns."""
        each = (inner for field in self._fields for inner in (field, *field.nested))
        return [field.column for field in each if field.column is not None]

    @property
    def wanted_schema(self) -> Any:
        return {"type": "record", "name": "wanted", "fields": [field.wanted_schema for field in self._fields]}

    def rebuild(self, columns: pa.Table) -> pa.Table:
        """Rebuild the records from the wanted columns."""
        arrays = [_rebuild_array(field, columns) for field in self._fields]
        return pa.table(arrays, [field.schema["name"] for field in self._fields])


def _is_empty(schema: Any) -> bool:
    """Return whether a type is a record without fields. It takes no bytes, so polars can ignore it."""
    return isinstance(schema, Mapping) and schema["type"] == "record" and not schema["fields"]


def _rebuild_array(field: _Field, columns: pa.Table) -> pa.Array:
    if field.column is not None:
        return to_single_array(columns[field.column])
    if not field.nested:
        return pa.Array.from_buffers(pa.struct([]), columns.num_rows, [None])
    arrays = [_rebuild_array(each, columns) for each in field.nested]
    return pa.StructArray.from_arrays(arrays, [each.schema["name"] for each in field.nested])


# --- Avro enumerations: a record stores the index of a symbol in the schema's list ------------------------------------


def decode_enumerations(table: pa.Table, schema: Any, location: str) -> pa.Table:
    """Replace the enumeration indices in decoded records of a resolved schema by their symbols."""
    if not _has_enumeration(schema):
        return table
    columns = [
        _decode_symbols(column.combine_chunks(), field["type"], location)
        for column, field in zip(table.columns, schema["fields"], strict=True)
    ]
    return pa.table(columns, names=table.column_names)


def _has_enumeration(schema: Any) -> bool:
    inner, _ = unwrap_nullable(schema)
    if isinstance(inner, list):
        return False  # a union of several types is not a table column
    match inner["type"]:
        case "enum":
            return True
        case "record":
            return any(_has_enumeration(field["type"]) for field in inner["fields"])
        case "array":
            return _has_enumeration(inner["items"])
        case "map":
            return _has_enumeration(inner["values"])
        case _:
            return False


def _decode_symbols(values: pa.Array, schema: Any, location: str) -> pa.Array:
    if not _has_enumeration(schema):
        return values
    inner, _ = unwrap_nullable(schema)
    match inner["type"]:
        case "enum":
            symbols = inner["symbols"]
            try:
                return pa.array(symbols, types.STRING).take(values)
            except pa.ArrowIndexError as error:
                raise make_corrupt_file_error(
                    f"'{location}' has an enumeration value outside its {format_count(len(symbols), 'symbol')}: the "
                    "file is damaged"
                ) from error
        case "record":
            children = [
                _decode_symbols(values.field(index), field["type"], location)
                for index, field in enumerate(inner["fields"])
            ]
            names = [field.name for field in values.type]
            return pa.StructArray.from_arrays(children, names, mask=values.is_null())
        case "array":
            child = _decode_symbols(values.values, inner["items"], location)
        case _:
            keys, items = values.values.field(0), values.values.field(1)
            child = pa.StructArray.from_arrays(
                [keys, _decode_symbols(items, inner["values"], location)], ["key", "value"]
            )
    kind = pa.large_list(child.type) if pa.types.is_large_list(values.type) else pa.list_(child.type)
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        kind, len(values), [validity, offsets], null_count=values.null_count, offset=values.offset, children=[child]
    )


# --- A record-by-record Avro decoder: slow, but correct for every schema, and precise about damaged files -------------
#
# Every length is checked against the remaining bytes, and an array cannot have more elements than there are bytes left,
# so that a small file cannot allocate much memory.

Decode = Callable[[_Reader], Any]

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


def decode_rows(body: bytes, count: int, schema: Any, location: str) -> pa.Table:
    """Decode records of a resolved schema, which must be a record, in the types of `to_physical_type`."""
    kind = to_physical_type(schema)
    if not pa.types.is_struct(kind):
        raise make_corrupt_file_error(f"'{location}' holds {schema['type']} values, expected records")
    decode = _make_decoder(schema)
    data = _Reader(body)
    try:
        rows = [decode(data) for _ in range(count)]
        found = pa.array(rows, kind)
    except (_Damaged, UnicodeDecodeError, OverflowError, pa.ArrowInvalid) as error:
        raise make_corrupt_file_error(
            f"'{location}' is damaged: its records do not match its schema ({error})"
        ) from error
    if data.left:
        raise make_corrupt_file_error(f"'{location}' is damaged: {data.left} bytes are left after its {count} records")
    return pa.Table.from_struct_array(found)


def _make_decoder(schema: Any) -> Decode:
    if isinstance(schema, list):
        return _make_union_decoder(schema)
    match schema["type"]:
        case "record":
            fields = [(each["name"], _make_decoder(each["type"])) for each in schema["fields"]]
            return lambda data: {name: decode(data) for name, decode in fields}
        case "array":
            return _make_array_decoder(_make_decoder(schema["items"]))
        case "map":
            value = _make_decoder(schema["values"])
            return _make_array_decoder(lambda data: {"key": _decode_string(data), "value": value(data)})
        case "fixed":
            size = schema["size"]
            return lambda data: data.take(size)
        case kind:
            return _PRIMITIVES[kind]


def _make_union_decoder(schema: list[Any]) -> Decode:
    members = [_make_decoder(each) for each in schema]
    is_plain = not isinstance(unwrap_nullable(schema)[0], list)

    def decode(data: _Reader) -> Any:
        member = data.read_number()
        if not 0 <= member < len(members):
            raise _Damaged(f"invalid union member {member} of {len(members)}")
        value = members[member](data)
        return value if is_plain else {f"member{member}": value}

    return decode


def _make_array_decoder(decode: Decode) -> Decode:
    def decode_array(data: _Reader) -> list[Any]:
        found: list[Any] = []
        while (count := data.read_number()) != 0:
            if count < 0:
                count = -count
                data.read_number()  # the size of the block in bytes, only needed to skip it
            if count > data.left:
                raise _Damaged(
                    f"{count} elements are claimed at offset {data.position}, but {data.left} bytes are left"
                )
            found += [decode(data) for _ in range(count)]
        return found

    return decode_array


def _decode_string(data: _Reader) -> str:
    return data.take(data.read_number()).decode()


def _make_integer_decoder(bits: int) -> Decode:
    limit = 1 << (bits - 1)

    def decode(data: _Reader) -> int:
        value = data.read_number()
        if not -limit <= value < limit:
            raise _Damaged(f"{value} is out of range for {bits} bits")
        return value

    return decode


def _decode_boolean(data: _Reader) -> bool:
    value = data.take(1)
    if value not in (b"\0", b"\1"):
        raise _Damaged(f"invalid boolean {value!r}")
    return value == b"\1"


_PRIMITIVES: dict[str, Decode] = {
    "null": lambda data: None,
    "boolean": _decode_boolean,
    "int": _make_integer_decoder(32),
    "enum": _make_integer_decoder(32),
    "long": _make_integer_decoder(64),
    "float": lambda data: _FLOAT.unpack(data.take(4))[0],
    "double": lambda data: _DOUBLE.unpack(data.take(8))[0],
    "bytes": lambda data: data.take(data.read_number()),
    "string": _decode_string,
}
