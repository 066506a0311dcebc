"""Footers of Parquet files: read with few requests, and cached.

A footer is at the end of its file, followed by four bytes with its length and four bytes of magic. One read of the last
64 KiB contains most footers completely; for a larger one exactly the missing bytes are read. A second read of a local
file is cheap, so there the first read is a quarter of that.

The result is pyarrow's `FileMetaData`, validated for safe use: see `tamis.parquet.footer.validation`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import CorruptFile, UnsupportedFeature, to_one_line
from tamis.io.ranges import RangedFile, is_immutable
from tamis.io.storage import Storage
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.footer.chunks import FooterMap, FooterMemory
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.leaves import FileSchema, get_file_schema
from tamis.parquet.footer.validation import validate_footer

TAIL_LENGTH = 64 * 1024
LOCAL_TAIL_LENGTH = 16 * 1024
"""The number of bytes at the end of a file that are read first."""

FILE_SUFFIXES = (".parquet", ".parq", ".pq")

MAGIC = b"PAR1"
ENCRYPTED_MAGIC = b"PARE"
_TRAILER = 8  # the length of the footer, then the magic
_SHORTEST_FILE = len(MAGIC) + _TRAILER


T = TypeVar("T")


@dataclass(frozen=True, slots=True, eq=False)
class Footer:
    """The footer of one file, with a cache for values derived from it. It is thread-safe."""

    content: bytes
    """The bytes in the file, without length and magic."""
    metadata: pq.FileMetaData
    schema: FileSchema
    map: FooterMap
    names: ColumnMapping | None = None
    """The column mapping of the table, if the schema has logical names."""
    _cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def get_cached(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """Return the cached result of `work_out`. Results must not be None and should be smaller than the footer."""
        found: T | None = self._cache.get(key)
        if found is None:
            # Two threads may both compute it; their results are equal.
            found = self._cache[key] = work_out()
        return found


def load_footer(
    storage: Storage, path: str, size: int, modified_ns: int | None, names: ColumnMapping | None = None
) -> tuple[Footer, pa.Buffer | None]:
    """Return the footer of a file, and the whole file if it is small and was read now.

    Footers are cached by size and modification time; a file without a known modification time (None) is read each time.
    With `names` its schema has logical names.
    """
    # A cached footer may have been read for a caller with other permissions for links.
    storage.check_links(path)
    footer, content = _load(storage, path, size, modified_ns)
    if names is None:
        return footer, content
    names.check(footer.schema, storage.format_path(path))

    def rename() -> Footer:
        return replace(footer, schema=names.with_logical_names(footer.schema), names=names, _cache={})

    return footer.get_cached(("renamed", names), rename), content


FOOTERS = WeightedCache(capacity=256 * 1024 * 1024)
"""The footer cache of this process. Its values are footers with their file systems, which are not hashable."""

MEMORY_PER_BYTE = 10
"""Memory per byte of a footer in the file: the byte itself, and 9 more for the parsed form of many small chunks."""


def _load(storage: Storage, path: str, size: int, modified_ns: int | None) -> tuple[Footer, pa.Buffer | None]:
    key = (storage.filesystem.type_name, path, size, modified_ns)
    try:
        filesystem, footer = FOOTERS.get(key)
    except KeyError:
        filesystem = None
    # Two file systems of one type may differ in their endpoints and credentials.
    if filesystem is not None and filesystem == storage.filesystem:
        return footer, None
    content, tail = _read_footer_bytes(storage, path, size, modified_ns)
    footer = footer_from_bytes(content, storage.format_path(path))
    if modified_ns is not None:
        FOOTERS.put(key, (storage.filesystem, footer), len(content) * MEMORY_PER_BYTE)
    return footer, tail if size <= storage.tuning.max_whole_file_bytes else None


def _read_footer_bytes(storage: Storage, path: str, size: int, modified_ns: int | None) -> tuple[bytes, pa.Buffer]:
    """Read the footer; also return the end of the file that was read with it."""
    location = storage.format_path(path)
    # Readers of data check that the file is the one that was listed; for the footer alone it does not matter.
    with RangedFile(storage, path, size, modified_ns if is_immutable(modified_ns) else None) as file:
        _check_size(size, location)
        is_short = storage.is_local and size > storage.tuning.max_whole_file_bytes
        tail = file.read_tail(LOCAL_TAIL_LENGTH if is_short else TAIL_LENGTH)
        length = _read_footer_length(tail[-_TRAILER:].to_pybytes(), size, location)
        missing = length + _TRAILER - tail.size
        if missing > 0:
            before = file.read([(size - length - _TRAILER, missing)])[0]
            return before.to_pybytes() + tail[:-_TRAILER].to_pybytes(), tail
        return tail[-_TRAILER - length : -_TRAILER].to_pybytes(), tail


def describe_empty_file(location: str) -> str:
    return (
        f"the file '{location}' is empty: it has 0 bytes, but a Parquet file without rows has a footer. "
        "Its writer did not finish: write it again"
    )


def _suggest_fix(location: str) -> str:
    if location.lower().endswith(FILE_SUFFIXES):
        return "If its writer did not finish, write it again"
    other = re.search(r"\.(csv|tsv|json|jsonl|ndjson|orc|avro|xlsx)(\.\w+)?$", location.lower())
    if other is not None:
        return (
            f"{other[1].upper()} is not supported: convert the file to Parquet. If it is not table data, hide it with "
            "a name that starts with _ or ."
        )
    return "If it is not table data, hide it with a name that starts with _ or ."


def _check_size(size: int, location: str) -> None:
    if not size:
        raise CorruptFile(describe_empty_file(location))
    if size < _SHORTEST_FILE:
        raise CorruptFile(
            f"'{location}' is not a Parquet file: it has {size} bytes, expected at least {_SHORTEST_FILE}. "
            f"{_suggest_fix(location)}"
        )


def _read_footer_length(trailer: bytes, size: int, location: str) -> int:
    magic = trailer[4:]
    if magic == ENCRYPTED_MAGIC:
        raise UnsupportedFeature(
            f"'{location}' has an encrypted footer, which is not supported; decrypt the file first"
        )
    if magic != MAGIC:
        raise CorruptFile(
            f"'{location}' is not a Parquet file, or is truncated: it does not end in PAR1. {_suggest_fix(location)}"
        )
    length = int.from_bytes(trailer[:4], "little")
    if not 0 < length <= size - _SHORTEST_FILE:
        raise CorruptFile(
            f"'{location}' is damaged: its footer has {length} bytes in a file of {size}; write the file again"
        )
    return length


def footer_from_bytes(content: bytes, location: str, memory: FooterMemory | None = None) -> Footer:
    """Parse and validate the bytes of a footer, without length and magic; `location` names the file in messages.

    `memory` is that of other footers with the same schema, None for that of the process.
    """
    metadata = _parse(content, location)
    schema = get_file_schema(metadata, location)
    validated, where = validate_footer(content, schema.types, location, memory or schema.memory)
    metadata = metadata if validated is content else _parse(validated, location)
    rows = int(where.rows.sum())
    if metadata.num_rows != rows:
        raise CorruptFile(
            f"the footer of '{location}' has {metadata.num_rows:,} rows for the file, but {rows:,} in its row groups; "
            "write the file again"
        )
    # One column of each row group is enough to detect a wrong number of rows; others are checked when read.
    leaf = next((number for number, each in enumerate(schema.types) if not each.repetition_level), 0)
    for number in range(metadata.num_row_groups if schema.types else 0):
        check_value_count(metadata, schema, number, leaf, location)
    return Footer(content, metadata, schema, where)


def check_value_count(metadata: pq.FileMetaData, schema: FileSchema, row_group: int, leaf: int, location: str) -> None:
    """Raise if a column has fewer values than its row group has rows, or more without being repeated."""
    group = metadata.row_group(row_group)
    rows, values = group.num_rows, group.column(leaf).num_values
    if values == rows or (values > rows and schema.types[leaf].repetition_level):
        return
    name = schema.parquet.column(leaf).path
    raise CorruptFile(
        f"the footer of '{location}' has {rows:,} rows in row group {row_group}, but {values:,} values in its column "
        f"{name!r}; write the file again"
    )


def _parse(footer: bytes, location: str) -> pq.FileMetaData:
    try:
        return _read_metadata(footer)
    except NotImplementedError as error:
        wide = _find_wide_integers(footer) if "more than 64 bits" in str(error) else []
        if not wide:
            raise UnsupportedFeature(f"'{location}' cannot be read: {to_one_line(error)}") from error
        names, casts = " and ".join(map(repr, wide)), ", ".join(f"{name!r}: polars.Decimal(38, 0)" for name in wide)
        raise UnsupportedFeature(
            f"'{location}' cannot be read, because Arrow has no integers of 128 bits ({names}): write it again with "
            f"decimals, as in polars.read_parquet(…).cast({{{casts}}}).write_parquet(…), or without "
            f"{'them' if len(wide) > 1 else 'the column'}"
        ) from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"the footer of '{location}' is damaged: {to_one_line(error)}") from error


def _read_metadata(footer: bytes) -> pq.FileMetaData:
    source = pa.BufferReader(footer + len(footer).to_bytes(4, "little") + MAGIC)
    # No list or string in a footer can be longer than the footer itself.
    limits = {"thrift_string_size_limit": len(footer), "thrift_container_size_limit": len(footer)}
    return open_reader(source, **limits).metadata


def _find_wide_integers(footer: bytes) -> list[str]:
    """Return the columns that hold 128 bits without a logical type, as Polars writes such integers."""
    try:
        # Without the embedded Arrow schema, pyarrow derives the types from Parquet's.
        schema = _read_metadata(footer.replace(b"ARROW:schema", b"ARROW.schema")).schema
    except (pa.ArrowException, OSError, ValueError):
        return []
    leaves = [schema.column(number) for number in range(len(schema))]
    wide = [leaf for leaf in leaves if leaf.length == 16 and leaf.logical_type.type == "NONE"]
    return list(dict.fromkeys(leaf.path.partition(".")[0] for leaf in wide))


# --- pyarrow's low-level Parquet reader, the one that `pyarrow.parquet.ParquetFile` wraps -----------------------------
#
# `ParquetFile` also builds a lookup of columns by name. That takes as long as opening a small file, and callers that
# address leaf columns by number do not need it.


def open_reader(source: object, *, pool: pa.MemoryPool | None = None, **options: Any) -> pq.ParquetReader:
    """Open a reader for a file that the caller closes; `options` are those of `ParquetFile`."""
    reader = pq.ParquetReader(pool)
    # `ParquetFile` has another default for the first option. `tamis.parquet.footer.leaves` explains the second.
    defaults = {"arrow_extensions_enabled": True, "coerce_int96_timestamp_unit": "us"}
    reader.open(source, **defaults | options)
    return reader
