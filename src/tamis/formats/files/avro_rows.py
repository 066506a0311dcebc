"""A record-by-record Avro decoder: slow, but correct for every schema, and precise about damaged files.

Every length is checked against the remaining bytes, and an array cannot have more elements than there are bytes left,
so that a small file cannot allocate much memory.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tamis.formats.files.avro_schema import to_physical_type, unwrap_nullable
from tamis.formats.files.errors import make_corrupt_file_error

Decode = Callable[["_Bytes"], Any]

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class _Damaged(ValueError):
    """Bytes that do not match the schema."""


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise _Damaged(f"{length} bytes are claimed at offset {self.position}, but {self.left} are left")
        self.position += length
        return self.data[self.position - length : self.position]

    def read_number(self) -> int:
        value = shift = 0
        for byte in self.data[self.position : self.position + 10]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.position += shift // 7
                return (value >> 1) ^ -(value & 1)
        raise _Damaged(f"invalid number at offset {self.position}")


def decode_rows(body: bytes, count: int, schema: Any, location: str) -> pa.Table:
    """Decode records of a resolved schema, which must be a record, in the types of `to_physical_type`."""
    kind = to_physical_type(schema)
    if not pa.types.is_struct(kind):
        raise make_corrupt_file_error(f"'{location}' holds {schema['type']} values, expected records")
    decode = _make_decoder(schema)
    data = _Bytes(body)
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

    def decode(data: _Bytes) -> Any:
        member = data.read_number()
        if not 0 <= member < len(members):
            raise _Damaged(f"invalid union member {member} of {len(members)}")
        value = members[member](data)
        return value if is_plain else {f"member{member}": value}

    return decode


def _make_array_decoder(decode: Decode) -> Decode:
    def decode_array(data: _Bytes) -> list[Any]:
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


def _decode_string(data: _Bytes) -> str:
    return data.take(data.read_number()).decode()


def _make_integer_decoder(bits: int) -> Decode:
    limit = 1 << (bits - 1)

    def decode(data: _Bytes) -> int:
        value = data.read_number()
        if not -limit <= value < limit:
            raise _Damaged(f"{value} is out of range for {bits} bits")
        return value

    return decode


def _decode_boolean(data: _Bytes) -> bool:
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
