"""Row groups as metadata batches: what the footer says of each, laid out as `tamis.skipping.metadata` describes.

Everything that pyarrow says is taken from its raw values and judged here; its own `min` and `max` decode text and
raise on bytes that are none. Two things it does not say: whether bounds of text and bytes are exact, so they never
count as such, and how many NaN there are, so that stays unknown
except where there can be none.

Which statistics are believed at all:
- pyarrow gives no min and max where the deprecated fields have the wrong order for the type, or where the file names
  no order of its columns; `tamis.parquet.vetting` removes the deprecated ones of decimals, which it would give;
- bounds of bytes (text, binary, decimals in bytes) count only where the writer says who it is, and is not
  parquet-mr before 1.10: before 1.8 it mixed up its buffers, and until 1.10 it compared bytes as signed.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from itertools import groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.parquet.bounds import UNKNOWN, BoundsOfColumn, bounds_of_column
from tamis.parquet.chunks import MOST_SLACK, may_be_short
from tamis.parquet.footer import Footer
from tamis.parquet.leaves import FieldPath, FileSchema, Leaf, file_schema
from tamis.skipping.metadata import ROW_COUNT, constant_bounds, metadata_name

_WRITER = re.compile(r"(?P<application>.+?)\s+version\s+(?:[a-z]+-|v)?(?P<version>\d{1,9}(?:\.\d{1,9})*)")
_LONGEST_WRITER = 200
_FIRST_TRUSTED_PARQUET_MR = (1, 10, 0)
_WRITERS_OF_ORDERED_BOUNDS = frozenset(
    ("parquet-mr", "parquet-cpp-arrow", "parquet-rs", "delta-rs", "DuckDB", "Polars (python)")
)


def row_group_metadata(
    metadata: pq.FileMetaData,
    columns: Sequence[Column],
    row_groups: Sequence[int] | None = None,
    *,
    names: Mapping[FieldPath, FieldPath] | None = None,
    place: str = "the file",
) -> pa.RecordBatch:
    """What is known of the row groups (None: of all, in order), one row each.

    `columns` are the table's, with the table's types. `names` gives the path in the file where it differs from the
    one in the table. A column that the file has not is NULL in every row; one that is there and cannot be described
    (a list, a struct, a name that comes twice) has no metadata, which means unknown.
    """
    wanted = range(metadata.num_row_groups) if row_groups is None else row_groups
    groups = [metadata.row_group(index) for index in wanted]
    schema = file_schema(metadata, place)
    arrays = {ROW_COUNT.name: pa.array([group.num_rows for group in groups], types.LONG)}
    for column in columns:
        path = names.get(column.path, column.path) if names else column.path
        arrays |= _column_metadata(metadata, schema, column, path, groups)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


MANY_ROW_GROUPS = 8
"""From so many on, what is read of a file's row groups is kept: to read it again would take longer than it is large."""


def row_counts(footer: Footer) -> list[int]:
    """How many rows each row group of a file has. Not to be changed."""

    def read() -> list[int]:
        return [group.num_rows for group in _row_groups(footer.metadata)]

    return footer.keep("row_counts", read) if footer.metadata.num_row_groups >= MANY_ROW_GROUPS else read()


def described_alike(footers: Iterable[Footer]) -> list[list[Footer]]:
    """Files one after another that `column_metadata` takes together, as an array costs more than what is in it.

    They have one schema, their writers are equally trusted, and none of them has many row groups.
    """

    def kind(footer: Footer) -> tuple[int, bool]:
        is_large = footer.metadata.num_row_groups >= MANY_ROW_GROUPS
        return id(footer if is_large else footer.schema), _bytes_are_trusted(_writer(footer.metadata))

    return [list(alike) for _, alike in groupby(footers, kind)]


def column_metadata(footers: Sequence[Footer], column: Column, path: FieldPath) -> dict[str, pa.Array]:
    """What is known of a column of the table, which is at `path` in files described alike, in all their row groups."""
    first = footers[0]

    def read() -> dict[str, pa.Array]:
        groups = [group for footer in footers for group in _row_groups(footer.metadata)]
        return _column_metadata(first.metadata, first.schema, column, path, groups)

    if len(footers) > 1 or first.metadata.num_row_groups < MANY_ROW_GROUPS:
        return read()
    return first.keep(("column_metadata", column.path, column.type, path), read)


def compressed_sizes(footer: Footer, leaf_indices: Sequence[int]) -> list[int]:
    """The compressed bytes of these leaves in each row group of a file."""
    if footer.metadata.num_row_groups < MANY_ROW_GROUPS:
        return row_group_sizes(footer.metadata, leaf_indices)

    def read(leaf: int) -> npt.NDArray[np.int64]:
        return np.array(row_group_sizes(footer.metadata, [leaf]), np.int64)

    none = np.zeros(footer.metadata.num_row_groups, np.int64)
    each = (footer.keep(("compressed_sizes", leaf), partial(read, leaf)) for leaf in leaf_indices)
    sizes: list[int] = sum(each, none).tolist()
    return sizes


def _row_groups(metadata: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    return [metadata.row_group(index) for index in range(metadata.num_row_groups)]


def _column_metadata(
    metadata: pq.FileMetaData, schema: FileSchema, column: Column, path: FieldPath, groups: list[pq.RowGroupMetaData]
) -> dict[str, pa.Array]:
    leaf = schema.leaves.get(path)
    rows = [group.num_rows for group in groups]
    if leaf is None and not schema.lacks(path):
        # A required struct, list or map has no level for NULL: the file cannot even write one.
        is_required = _is_required(schema.arrow, path)
        return {metadata_name("null_count", column.path): pa.array([0] * len(rows), types.LONG)} if is_required else {}
    if leaf is None:
        return _absent(column, pa.array(rows, types.LONG), *schema.value_lacking(path))
    reader = bounds_of_column(leaf, column.type, trust_bytes=trusts_bytes(metadata))
    return _described(column, leaf, reader, groups, rows)


def _is_required(schema: pa.Schema, path: FieldPath) -> bool:
    """Whether a file says of a field, and of every struct around it, that it is never NULL."""
    fields = list(schema)
    for part in path:
        found = [field for field in fields if field.name == part]
        if len(found) != 1 or found[0].nullable:
            return False
        fields = list(found[0].type) if pa.types.is_struct(found[0].type) else []
    return True


def _described(
    column: Column, leaf: Leaf, reader: BoundsOfColumn | None, groups: list[pq.RowGroupMetaData], rows: list[int]
) -> dict[str, pa.Array]:
    found = [group.column(leaf.index).statistics for group in groups]
    if pa.types.is_null(leaf.arrow_type):
        null_counts: list[int | None] = list(rows)
    else:
        # A column that is required has no NULL, counted or not.
        missing = None if leaf.nullable else 0
        counted = [missing if statistics is None else statistics.null_count for statistics in found]
        null_counts = [
            missing if count is None else count if 0 <= count <= total else None
            for count, total in zip(counted, rows, strict=True)
        ]
    arrays = {metadata_name("null_count", column.path): pa.array(null_counts, types.LONG)}
    if reader is not None:
        if pa.types.is_floating(reader.target):
            # A column of whole numbers that the table promoted has no NaN, nor has one without values.
            may_be_nan = pa.types.is_floating(reader.source)
            nan_counts = [
                None if may_be_nan and nulls != total else 0 for nulls, total in zip(null_counts, rows, strict=True)
            ]
            arrays[metadata_name("nan_count", column.path)] = pa.array(nan_counts, types.LONG)
        bounds = [
            reader.bounds(statistics.min_raw, statistics.max_raw)
            if statistics is not None and statistics.has_min_max
            else UNKNOWN
            for statistics in found
        ]
        for position, kind in enumerate(("lower", "upper")):
            arrays[metadata_name(kind, column.path)] = reader.array([bound[position] for bound in bounds])
        for position, kind in enumerate(("lower_exact", "upper_exact"), start=2):
            arrays[metadata_name(kind, column.path)] = pa.array([bound[position] for bound in bounds], types.BOOLEAN)
    return arrays


def _absent(column: Column, row_count: pa.Array, value: pa.Scalar | None, is_everywhere: bool) -> dict[str, pa.Array]:
    """What is known of a column that files lack: it is NULL, or has a value that the table tells."""
    if value is not None:
        return _constant(column, row_count, value, is_everywhere)
    arrays = {metadata_name("null_count", column.path): row_count}
    if column.type is not None:
        nothing = pa.nulls(len(row_count), column.type)
        arrays |= {metadata_name(kind, column.path): nothing for kind in ("lower", "upper")}
        if pa.types.is_floating(column.type):
            arrays[metadata_name("nan_count", column.path)] = pa.array([0] * len(row_count), types.LONG)
    return arrays


def _constant(column: Column, row_count: pa.Array, value: pa.Scalar, is_everywhere: bool) -> dict[str, pa.Array]:
    if column.type is None or not types.is_ordered(column.type):
        none = pa.array(np.zeros(len(row_count), np.int64))
        return {metadata_name("null_count", column.path): none} if is_everywhere else {}
    arrays = constant_bounds(column, pa.repeat(value.cast(column.type), len(row_count)), row_count)
    if not is_everywhere:
        # How many rows have it depends on how many have the struct around it.
        del arrays[metadata_name("null_count", column.path)]
        if pa.types.is_floating(column.type) and math.isnan(value.as_py()):
            del arrays[metadata_name("nan_count", column.path)]
    return arrays


def _created_by(metadata: pq.FileMetaData) -> str | None:
    """What the file says about its writer; None where that is not text."""
    try:
        return (metadata.created_by or "")[:_LONGEST_WRITER]
    except UnicodeDecodeError:
        return None


def _writer(metadata: pq.FileMetaData) -> re.Match[str] | None:
    """Who wrote the file; None where that cannot be read."""
    return _WRITER.match(_created_by(metadata) or "")


def trusts_bytes(metadata: pq.FileMetaData) -> bool:
    """Whether bounds of bytes in this file may be believed."""
    return _bytes_are_trusted(_writer(metadata))


def notes_ordered_bounds(metadata: pq.FileMetaData) -> bool:
    """Whether the writer is known to note bounds of bytes in the fields whose order is defined, not in the older ones.

    We never read the older ones, but other readers do where the newer are missing.
    """
    writer = _writer(metadata)
    return _bytes_are_trusted(writer) and writer is not None and writer["application"] in _WRITERS_OF_ORDERED_BOUNDS


def _bytes_are_trusted(writer: re.Match[str] | None) -> bool:
    return writer is not None and not _is_parquet_mr_before(writer, _FIRST_TRUSTED_PARQUET_MR)


def _is_parquet_mr_before(writer: re.Match[str] | None, version: tuple[int, ...]) -> bool:
    if writer is None or writer["application"] != "parquet-mr":
        return False
    return tuple(map(int, writer["version"].split("."))) < version


def row_group_sizes(metadata: pq.FileMetaData, leaf_indices: Sequence[int]) -> list[int]:
    """The compressed bytes of these leaves in each row group."""
    return [
        sum([max(0, group.column(leaf).total_compressed_size) for leaf in leaf_indices])
        for group in _row_groups(metadata)
    ]


def has_short_chunks(metadata: pq.FileMetaData) -> bool:
    """Whether column chunks may be longer than the footer says: see `may_be_short`."""
    return may_be_short(_created_by(metadata))


def chunk_ranges(
    metadata: pq.FileMetaData,
    row_group: int,
    leaf_indices: Sequence[int],
    *,
    size: int | None = None,
    place: str = "the file",
) -> list[tuple[int, int]]:
    """Where the column chunks of these leaves are in the file: `(offset, length)` each, dictionary included.

    A chunk that would lie outside the file is a CorruptFile; its end is checked where `size` says how long that is.
    """
    group = metadata.row_group(row_group)
    short = has_short_chunks(metadata)
    ranges = []
    for leaf in leaf_indices:
        chunk = group.column(leaf)
        start, length = chunk.data_page_offset, chunk.total_compressed_size
        dictionary = chunk.dictionary_page_offset
        # Some writers note 0 for "no dictionary".
        if dictionary is not None and 0 < dictionary < start:
            start = dictionary
        if start < 0 or length < 0 or (size is not None and start + length > size):
            raise CorruptFile(
                f"row group {row_group} of {place} has column {leaf} at bytes {start} to {start + length}, "
                f"in a file of {'unknown size' if size is None else f'{size} bytes'}; write the file again"
            )
        if short:
            length += MOST_SLACK if size is None else min(MOST_SLACK, size - start - length)
        ranges.append((start, length))
    return ranges
