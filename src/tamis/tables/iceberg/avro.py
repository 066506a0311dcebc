"""Avro files, whole columns at a time: the container taken apart here, its records decoded by polars.

A container is a header (metadata, among it schema and codec, and a mark of 16 bytes) and blocks: how many records, how
many bytes, the bytes as the codec left them, the mark once more. Some writers make a block of every record, on which
polars is slow, and some use codecs that it does not have. So all blocks are decompressed here and handed to polars as
one block without a codec, under a schema that says the same in words that polars understands: see `avro_schema`. What
it refuses all the same is decoded record by record, see `avro_rows`.

Lengths in a damaged file say anything. None of them is believed before it is compared with the bytes at hand.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from typing import Any

import pyarrow as pa

from tamis.errors import CorruptFile, UnsupportedFeature, one_line
from tamis.tables.iceberg.avro_enumerations import with_symbols
from tamis.tables.iceberg.avro_inlined import Inlined
from tamis.tables.iceberg.avro_rows import decode_rows
from tamis.tables.iceberg.avro_schema import arrow_type, resolve, text_for_polars

_MAGIC = b"Obj\x01"
_MARK = 16
_MOST_DIGITS = 9
MOST_BYTES = 2**30
"""The most bytes that the blocks of one file may have when they are decompressed: a small file can claim any size."""

PART_BYTES = 64 * 1024 * 1024
"""How many bytes of a large file are decompressed together."""


@dataclass(frozen=True)
class AvroFile:
    """An Avro file, decompressed."""

    place: str
    metadata: Mapping[str, bytes]
    count: int
    """How many records it has."""
    body: bytes
    """The records, one after another."""

    @cached_property
    def schema(self) -> Any:
        """The type of a record: JSON, with named types in the place of their names."""
        try:
            return resolve(json.loads(self.metadata["avro.schema"]))
        except (KeyError, ValueError, RecursionError) as error:
            raise CorruptFile(f"'{self.place}' has no schema that is one: {one_line(error)}") from error

    def text(self, name: str) -> str | None:
        """An entry of the metadata."""
        found = self.metadata.get(name)
        return None if found is None else found.decode(errors="replace")

    def number(self, name: str) -> int | None:
        """An entry of the metadata that is an id."""
        found = self.text(name)
        if found is None:
            return None
        if not (found.isascii() and found.isdecimal() and len(found) <= _MOST_DIGITS):
            raise CorruptFile(f"'{self.place}' has the {name} {found[:80]!r}, which is no number: it is damaged")
        return int(found)

    def read(self) -> pa.Table:
        """All records as Arrow has them: maps are lists of `key` and `value`, times are plain numbers."""
        text = text_for_polars(self.schema)
        found = None if text is None else self._read_with_polars(text)
        return with_symbols(self._read_one_by_one() if found is None else found, self.schema, self.place)

    def read_fields(self, is_wanted: Callable[[Mapping[str, Any]], bool]) -> tuple[pa.Table, Any]:
        """Some fields of the records, and of records inside of them, with the schema that is left.

        Others are passed over, which takes a third of the time. Where that cannot be done there are all of them.
        """
        if self.schema["type"] != "record":
            return self._read_one_by_one(), self.schema
        inlined = Inlined.of(self.schema, is_wanted)
        text = text_for_polars(inlined.schema)
        found = None if text is None else self._read_with_polars(text, inlined.names)
        if found is None:
            return self._read_one_by_one(), self.schema
        return inlined.table(found), inlined.wanted_schema

    def _read_with_polars(self, schema: str, names: list[str] | None = None) -> pa.Table | None:
        """None where the bytes do not fit the schema."""
        import polars
        from polars.exceptions import PanicException, PolarsError

        if not self.count:
            return None
        try:
            found = polars.read_avro(BytesIO(_framed(schema, self.count, self.body)), columns=names)
        except (PolarsError, PanicException, OSError, ValueError):
            # Whose fault it is shows when the records are decoded one by one.
            return None
        return found.to_arrow() if found.height == self.count else None

    def _read_one_by_one(self) -> pa.Table:
        return decode_rows(self.body, self.count, self.schema, self.place)

    @cached_property
    def arrow_schema(self) -> pa.Schema:
        """The types that the logical types of the schema mean, with the ids of Iceberg's fields."""
        try:
            return pa.schema(list(arrow_type(self.schema)))
        except (KeyError, TypeError, ValueError) as error:
            raise CorruptFile(f"'{self.place}' has a schema with types that are none: {one_line(error)}") from error


def open_avro(content: bytes | pa.Buffer, place: str) -> AvroFile:
    """Take an Avro file apart. Everything that its lengths claim is checked."""
    (file,) = avro_parts(content, place, None)
    return file


def avro_parts(content: bytes | pa.Buffer, place: str, most: int | None) -> Iterator[AvroFile]:
    """The same in parts of about so many bytes (None: in one), so that a large file is not decompressed all at once.

    There is one part at least.
    """
    data = memoryview(content).cast("B")
    if bytes(data[:4]) != _MAGIC:
        raise CorruptFile(f"'{place}' is no Avro file: it does not begin as one")
    reader = _Reader(data, 4, place)
    metadata = reader.metadata()
    mark = reader.take(_MARK)
    codec = metadata.get("avro.codec", b"null").decode(errors="replace")
    decompress = _CODECS.get(codec)
    if decompress is None:
        raise UnsupportedFeature(
            f"'{place}' is compressed with {codec!r}, which Tamis does not read. Codecs: {', '.join(_CODECS)}"
        )
    count, size, blocks = 0, 0, []
    while not reader.is_done:
        records, length = reader.number(), reader.number()
        block = reader.take(length)
        try:
            body = decompress(block, MOST_BYTES - size)
        except (zlib.error, pa.ArrowException, OSError, ValueError, EOFError) as error:
            raise CorruptFile(f"'{place}' has a block that is no {codec} data: {one_line(error)}") from error
        size += len(body)
        if records < 0 or size > MOST_BYTES:
            raise CorruptFile(f"'{place}' claims more than an Avro file of {len(data)} bytes can hold: it is damaged")
        if reader.take(_MARK) != mark:
            raise CorruptFile(f"'{place}' has a block without the mark at its end: it is damaged or cut off")
        count += records
        blocks.append(body)
        if most is not None and size >= most and not reader.is_done:
            yield _part(place, metadata, count, blocks)
            count, size, blocks = 0, 0, []
    yield _part(place, metadata, count, blocks)


def _part(place: str, metadata: Mapping[str, bytes], count: int, blocks: list[bytes]) -> AvroFile:
    file = AvroFile(place, metadata, count, b"".join(blocks))
    if count > len(file.body) and count > 0:
        # Records without a single byte are of no use to anybody, and could be any number of them.
        raise CorruptFile(f"'{place}' claims {count} records in {len(file.body)} bytes: it is damaged")
    return file


class _Reader:
    """Takes bytes one after another, none of which lies behind the end."""

    def __init__(self, data: memoryview, position: int, place: str) -> None:
        self._data = data
        self._position = position
        self._place = place

    @property
    def is_done(self) -> bool:
        return self._position >= len(self._data)

    def take(self, length: int) -> memoryview:
        end = self._position + length
        if length < 0 or end > len(self._data):
            raise CorruptFile(
                f"'{self._place}' names {length} bytes at {self._position}, and has {len(self._data)}: "
                "it is damaged or cut off"
            )
        found = self._data[self._position : end]
        self._position = end
        return found

    def number(self) -> int:
        """A whole number, of which a byte holds seven bits and the lowest is the sign."""
        data, position = self._data, self._position
        value = shift = 0
        for byte in data[position : position + 10]:
            position += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                self._position = position
                return (value >> 1) ^ -(value & 1)
            shift += 7
        raise CorruptFile(f"'{self._place}' has no number where one should be, at {self._position}: it is damaged")

    def metadata(self) -> dict[str, bytes]:
        found: dict[str, bytes] = {}
        while (count := self.number()) != 0:
            if count < 0:
                count = -count
                self.number()  # the bytes of the block, for whoever skips it
            if count > len(self._data):
                raise CorruptFile(f"'{self._place}' claims {count} entries of metadata: it is damaged")
            for _ in range(count):
                name = bytes(self.take(self.number())).decode(errors="replace")
                found[name] = bytes(self.take(self.number()))
        return found


def _inflate(block: memoryview, room: int) -> bytes:
    inflater = zlib.decompressobj(wbits=-zlib.MAX_WBITS)
    found = inflater.decompress(block, room + 1)
    if not inflater.eof and len(found) <= room:
        raise EOFError("it ends too soon")
    return found


def _uncompress_snappy(block: memoryview, room: int) -> bytes:
    """Snappy says how long the result is, and Avro puts a checksum of it behind."""
    content, checksum = block[:-4], bytes(block[-4:])
    size = shift = 0
    for byte in content[:5]:
        size |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            break
    if size > room:
        return _too_much(room)
    found = bytes(pa.decompress(pa.py_buffer(content), size, codec="snappy"))
    if zlib.crc32(found).to_bytes(4, "big") != checksum:
        raise ValueError("its checksum is that of other bytes")
    return found


def _unzstandard(block: memoryview, room: int) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(pa.py_buffer(block)), "zstd") as stream:
        return bytes(stream.read(room + 1))


def _too_much(room: int) -> bytes:
    raise ValueError(f"it claims more than {room} bytes")


_CODECS: dict[str, Callable[[memoryview, int], bytes]] = {
    "null": lambda block, room: bytes(block),
    "deflate": _inflate,
    "snappy": _uncompress_snappy,
    "zstandard": _unzstandard,
}


def _framed(schema: str, count: int, body: bytes) -> bytes:
    """A file of one block, without a codec."""
    mark = bytes(_MARK)
    entries = {"avro.schema": schema.encode(), "avro.codec": b"null"}
    header = b"".join(
        _number(len(name)) + name.encode() + _number(len(value)) + value for name, value in entries.items()
    )
    parts: Iterable[bytes] = (
        _MAGIC,
        _number(len(entries)),
        header,
        _number(0),
        mark,
        _number(count),
        _number(len(body)),
        body,
        mark,
    )
    return b"".join(parts)


def _number(value: int) -> bytes:
    """A number that is not negative, as Avro writes it."""
    rest = value << 1
    found = bytearray()
    while rest >= 0x80:
        found.append((rest & 0x7F) | 0x80)
        rest >>= 7
    found.append(rest)
    return bytes(found)
