"""Avro container files, framed by hand: every codec, and as many records to a block as a test wants.

Records are encoded by fastavro; files are read back by fastavro too, which knows nothing of the reader under test.
"""

from __future__ import annotations

import io
import json
import os
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import fastavro
import pyarrow as pa

MAGIC = b"Obj\x01"
SYNC = bytes(range(16))

CODECS: dict[str, Callable[[bytes], bytes]] = {
    "null": lambda data: data,
    "deflate": lambda data: _deflate(data),
    "snappy": lambda data: _compress("snappy", data) + zlib.crc32(data).to_bytes(4, "big"),
    "zstandard": lambda data: _compress("zstd", data),
}


def _deflate(data: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(data) + packer.flush()


def _compress(codec: str, data: bytes) -> bytes:
    return bytes(pa.Codec(codec).compress(data, asbytes=True))


def write_avro(
    path: Path,
    schema: Mapping[str, Any],
    records: Iterable[Mapping[str, Any]],
    metadata: Mapping[str, str] | None = None,
    *,
    codec: str = "deflate",
    per_block: int = 1000,
) -> int:
    """Write a file and return its size. The schema is written as given, with field ids and other attributes."""
    parsed = fastavro.parse_schema(json.loads(json.dumps(schema)), named_schemas={})
    encoded = []
    for record in records:
        buffer = io.BytesIO()
        fastavro.schemaless_writer(buffer, parsed, record)
        encoded.append(buffer.getvalue())
    header = {"avro.schema": json.dumps(schema), "avro.codec": codec, **(metadata or {})}
    content = MAGIC + _encode_map(header) + SYNC + b"".join(_encode_blocks(encoded, codec, per_block))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return len(content)


def read_avro(path: str | os.PathLike[str]) -> list[dict[str, Any]]:
    return list(fastavro.reader(_decompress_blocks(Path(path).read_bytes())))


def edit_avro(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]], **options: Any) -> int:
    """Change the records of a file in place, and return its new size."""
    reader = fastavro.reader(_decompress_blocks(path.read_bytes()))
    metadata = dict(reader.metadata)
    records = change(list(reader))
    schema = json.loads(metadata.pop("avro.schema"))
    codec = metadata.pop("avro.codec", "null")
    return write_avro(path, schema, records, metadata, **{"codec": codec} | options)


def _decompress_blocks(content: bytes) -> io.BytesIO:
    """Return the file with uncompressed blocks if fastavro would need another library to read it."""
    name = next((each for each in _BY_ARROW if _encode_codec(each) in content), None)
    if name is None:
        return io.BytesIO(content)
    header, left = content.split(SYNC, 1)
    made = header.replace(_encode_codec(name), _encode_codec("null")) + SYNC
    while left:
        count, left = _decode_number(left)
        size, left = _decode_number(left)
        data = _BY_ARROW[name](left[:size])
        made += encode_number(count) + encode_number(len(data)) + data + SYNC
        left = left[size + len(SYNC) :]
    return io.BytesIO(made)


def _decompress_snappy(data: bytes) -> bytes:
    # It begins with the length of the data, seven bits a byte; four bytes of a checksum follow.
    length, _ = _decode_unsigned(data)
    return bytes(pa.Codec("snappy").decompress(data[:-4], length, asbytes=True))


def _decompress_zstandard(data: bytes) -> bytes:
    with pa.CompressedInputStream(pa.BufferReader(data), "zstd") as stream:
        return bytes(stream.read())


_BY_ARROW = {"snappy": _decompress_snappy, "zstandard": _decompress_zstandard}


def _encode_codec(name: str) -> bytes:
    """Return the entry of the header that names a codec."""
    return _encode_text("avro.codec") + _encode_text(name)


def _decode_unsigned(data: bytes) -> tuple[int, bytes]:
    length = next(index for index, byte in enumerate(data) if byte < 0x80) + 1
    return sum((byte & 0x7F) << 7 * index for index, byte in enumerate(data[:length])), data[length:]


def _decode_number(data: bytes) -> tuple[int, bytes]:
    """Return a zigzag integer, and the bytes that follow it."""
    value, rest = _decode_unsigned(data)
    return value >> 1, rest


def _encode_blocks(encoded: Sequence[bytes], codec: str, per_block: int) -> Iterator[bytes]:
    for start in range(0, len(encoded), per_block):
        some = encoded[start : start + per_block]
        data = CODECS[codec](b"".join(some))
        yield encode_number(len(some)) + encode_number(len(data)) + data + SYNC


def _encode_map(values: Mapping[str, str]) -> bytes:
    return (
        encode_number(len(values))
        + b"".join(_encode_text(key) + _encode_text(value) for key, value in values.items())
        + b"\0"
    )


def _encode_text(text: str) -> bytes:
    data = text.encode()
    return encode_number(len(data)) + data


def encode_number(value: int) -> bytes:
    """Return an integer as Avro encodes it: zigzag, seven bits a byte."""
    left = value << 1 if value >= 0 else (-value << 1) - 1
    found = bytearray()
    while left > 0x7F:
        found.append(left & 0x7F | 0x80)
        left >>= 7
    found.append(left)
    return bytes(found)
