"""Records of Avro decoded one by one: slow, and right for every schema. It also tells what is wrong with a damaged one.

No length is believed before it is compared with the bytes at hand, and no array claims more elements than there are
bytes left, so that nothing large is made of little.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.tables.iceberg.avro_schema import nullable, physical_type

Decode = Callable[["_Bytes"], Any]

_FLOAT = struct.Struct("<f")
_DOUBLE = struct.Struct("<d")


class _Damaged(ValueError):
    """Bytes that are not what the schema says."""


class _Bytes:
    def __init__(self, data: bytes) -> None:
        self.data = data
        self.position = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.position

    def take(self, length: int) -> bytes:
        if not 0 <= length <= self.left:
            raise _Damaged(f"{length} bytes are named at {self.position}, {self.left} are left")
        self.position += length
        return self.data[self.position - length : self.position]

    def number(self) -> int:
        value = shift = 0
        for byte in self.data[self.position : self.position + 10]:
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                self.position += shift // 7
                return (value >> 1) ^ -(value & 1)
        raise _Damaged(f"there is no number at {self.position}")


def decode_rows(body: bytes, count: int, schema: Any, place: str) -> pa.Table:
    """Records of a resolved schema, whose type is a record, in the types of `physical_type`."""
    kind = physical_type(schema)
    if not pa.types.is_struct(kind):
        raise CorruptFile(f"'{place}' holds no records, but {schema['type']} values")
    decode = _decoder(schema)
    data = _Bytes(body)
    try:
        rows = [decode(data) for _ in range(count)]
        found = pa.array(rows, kind)
    except (_Damaged, UnicodeDecodeError, OverflowError, pa.ArrowInvalid) as error:
        raise CorruptFile(f"'{place}' is damaged: its records are not what its schema says ({error})") from error
    if data.left:
        raise CorruptFile(f"'{place}' is damaged: {data.left} bytes are left behind its {count} records")
    return pa.Table.from_struct_array(found)


def _decoder(schema: Any) -> Decode:
    if isinstance(schema, list):
        return _union(schema)
    match schema["type"]:
        case "record":
            fields = [(each["name"], _decoder(each["type"])) for each in schema["fields"]]
            return lambda data: {name: decode(data) for name, decode in fields}
        case "array":
            return _array(_decoder(schema["items"]))
        case "map":
            value = _decoder(schema["values"])
            return _array(lambda data: {"key": _text(data), "value": value(data)})
        case "fixed":
            size = schema["size"]
            return lambda data: data.take(size)
        case kind:
            return _PRIMITIVES[kind]


def _union(schema: list[Any]) -> Decode:
    members = [_decoder(each) for each in schema]
    is_plain = not isinstance(nullable(schema)[0], list)

    def decode(data: _Bytes) -> Any:
        member = data.number()
        if not 0 <= member < len(members):
            raise _Damaged(f"a union of {len(members)} types has no member {member}")
        value = members[member](data)
        return value if is_plain else {f"member{member}": value}

    return decode


def _array(decode: Decode) -> Decode:
    def decode_array(data: _Bytes) -> list[Any]:
        found: list[Any] = []
        while (count := data.number()) != 0:
            if count < 0:
                count = -count
                data.number()  # the bytes of the block, for whoever skips it
            if count > data.left:
                raise _Damaged(f"{count} elements are named at {data.position}, {data.left} bytes are left")
            found += [decode(data) for _ in range(count)]
        return found

    return decode_array


def _text(data: _Bytes) -> str:
    return data.take(data.number()).decode()


def _whole(bits: int) -> Decode:
    limit = 1 << (bits - 1)

    def decode(data: _Bytes) -> int:
        value = data.number()
        if not -limit <= value < limit:
            raise _Damaged(f"{value} is no number of {bits} bits")
        return value

    return decode


def _boolean(data: _Bytes) -> bool:
    value = data.take(1)
    if value not in (b"\0", b"\1"):
        raise _Damaged(f"{value!r} is neither true nor false")
    return value == b"\1"


_PRIMITIVES: dict[str, Decode] = {
    "null": lambda data: None,
    "boolean": _boolean,
    "int": _whole(32),
    "enum": _whole(32),
    "long": _whole(64),
    "float": lambda data: _FLOAT.unpack(data.take(4))[0],
    "double": lambda data: _DOUBLE.unpack(data.take(8))[0],
    "bytes": lambda data: data.take(data.number()),
    "string": _text,
}
