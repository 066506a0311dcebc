"""Footer statistics of row groups as metadata batches, in the layout of `tamis.skipping.metadata`.

Statistics come from pyarrow's raw values and are validated here, because pyarrow's `min` and `max` decode strings and
raise on invalid ones. pyarrow does not expose whether bounds of strings and bytes are exact, so they never count as
exact, nor the number of NaN, so it is unknown unless NaN is impossible.

Which statistics are trusted:
- pyarrow omits min and max if the deprecated fields have the wrong order for the type, or if the file has no column
  orders; `tamis.parquet.footer.validation` removes the deprecated ones of decimals, which pyarrow would return;
- bounds of bytes (strings, binary, decimals in bytes) are used only if the writer is known and is not parquet-mr before
  1.10: before 1.8 it mixed up its buffers, and until 1.10 it compared bytes as signed.
"""

from __future__ import annotations

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
from tamis.parquet.footer.bounds import UNKNOWN, BoundsReader, make_bounds_reader
from tamis.parquet.footer.chunks import MAX_SLACK, may_be_short
from tamis.parquet.footer.footer import Footer
from tamis.parquet.footer.leaves import FieldPath, FileSchema, Leaf, get_file_schema
from tamis.skipping.metadata import ROW_COUNT, concatenate_metadata, make_constant_bounds, metadata_name

_WRITER = re.compile(r"(?P<application>.+?)\s+version\s+(?:[a-z]+-|v)?(?P<version>\d{1,9}(?:\.\d{1,9})*)")
_MAX_WRITER_LENGTH = 200
_FIRST_TRUSTED_PARQUET_MR = (1, 10, 0)
_WRITERS_OF_ORDERED_BOUNDS = frozenset(
    ("parquet-mr", "parquet-cpp-arrow", "parquet-rs", "delta-rs", "DuckDB", "Polars (python)")
)


def read_row_group_metadata(
    metadata: pq.FileMetaData,
    columns: Sequence[Column],
    row_groups: Sequence[int] | None = None,
    *,
    names: Mapping[FieldPath, FieldPath] | None = None,
    location: str = "the file",
) -> pa.RecordBatch:
    """Return the metadata of the row groups (None: of all, in order), one row each.

    `columns` are the table's, with the table's types. `names` gives the path in the file where it differs from the
    one in the table. A column that the file lacks is NULL in every row. A column without statistics (a list, a struct,
    an ambiguous name) has no metadata, which means unknown.
    """
    wanted = range(metadata.num_row_groups) if row_groups is None else row_groups
    groups = [metadata.row_group(index) for index in wanted]
    schema = get_file_schema(metadata, location)
    arrays = {ROW_COUNT.name: pa.array([group.num_rows for group in groups], types.LONG)}
    for column in columns:
        path = names.get(column.path, column.path) if names else column.path
        arrays |= _read_column_metadata(metadata, schema, column, path, groups)
    return pa.RecordBatch.from_arrays(list(arrays.values()), names=list(arrays))


MANY_ROW_GROUPS = 8
"""The number of row groups from which a file's statistics are cached: reading them again would be slow."""


def list_row_counts(footer: Footer) -> list[int]:
    """Return the number of rows of each row group of a file. The list is cached: do not modify it."""

    def read() -> list[int]:
        return [group.num_rows for group in _list_row_groups(footer.metadata)]

    return footer.get_cached("row_counts", read) if footer.metadata.num_row_groups >= MANY_ROW_GROUPS else read()


def group_similar_footers(footers: Iterable[Footer]) -> list[list[Footer]]:
    """Group consecutive files that `collect_column_metadata` can process together, to create fewer Arrow arrays.

    The files of a group have one schema, equally trusted writers, and few row groups each.
    """

    def kind(footer: Footer) -> tuple[int, bool]:
        is_large = footer.metadata.num_row_groups >= MANY_ROW_GROUPS
        return id(footer if is_large else footer.schema), _trusts_bytes_of(_parse_writer(footer.metadata))

    return [list(alike) for _, alike in groupby(footers, kind)]


def collect_column_metadata(footers: Sequence[Footer], column: Column, path: FieldPath) -> dict[str, pa.Array]:
    """Return the metadata of a table's column, at `path` in a group of `group_similar_footers`, per row group."""
    first = footers[0]

    def read() -> dict[str, pa.Array]:
        groups = [group for footer in footers for group in _list_row_groups(footer.metadata)]
        return _read_column_metadata(first.metadata, first.schema, column, path, groups)

    if len(footers) > 1 or first.metadata.num_row_groups < MANY_ROW_GROUPS:
        return read()
    return first.get_cached(("column_metadata", column.path, column.type, path), read)


def collect_metadata(footers: Sequence[Footer], columns: Sequence[Column]) -> dict[str, pa.Array]:
    """Return the metadata of a table's columns in all row groups of files, in order."""
    alike = group_similar_footers(footers)
    parts = []
    for group in alike:
        schema = group[0].schema
        found: dict[str, pa.Array] = {}
        for column in columns:
            found |= collect_column_metadata(group, column, schema.find(column.path) or column.path)
        parts.append(found)
    return concatenate_metadata(parts, [sum(each.metadata.num_row_groups for each in group) for group in alike])


def get_compressed_sizes(footer: Footer, leaf_indices: Sequence[int]) -> list[int]:
    """Return the compressed bytes of these leaves in each row group of a file, cached for large files."""
    if footer.metadata.num_row_groups < MANY_ROW_GROUPS:
        return sum_compressed_sizes(footer.metadata, leaf_indices)

    def read(leaf: int) -> npt.NDArray[np.int64]:
        return np.array(sum_compressed_sizes(footer.metadata, [leaf]), np.int64)

    none = np.zeros(footer.metadata.num_row_groups, np.int64)
    each = (footer.get_cached(("compressed_sizes", leaf), partial(read, leaf)) for leaf in leaf_indices)
    sizes: list[int] = sum(each, none).tolist()
    return sizes


def _list_row_groups(metadata: pq.FileMetaData) -> list[pq.RowGroupMetaData]:
    return [metadata.row_group(index) for index in range(metadata.num_row_groups)]


def _read_column_metadata(
    metadata: pq.FileMetaData, schema: FileSchema, column: Column, path: FieldPath, groups: list[pq.RowGroupMetaData]
) -> dict[str, pa.Array]:
    leaf = schema.leaves.get(path)
    rows = [group.num_rows for group in groups]
    if leaf is None and not schema.lacks(path):
        # A required struct, list or map has no definition level for NULL, so the file cannot contain one.
        is_required = _is_required(schema.arrow, path)
        return {metadata_name("null_count", column.path): pa.array([0] * len(rows), types.LONG)} if is_required else {}
    if leaf is None:
        return _make_missing_metadata(column, pa.array(rows, types.LONG), *schema.get_missing_value(path))
    reader = make_bounds_reader(leaf, column.type, trust_bytes=can_trust_bytes(metadata))
    return _read_leaf_metadata(column, leaf, reader, groups, rows)


def _is_required(schema: pa.Schema, path: FieldPath) -> bool:
    """Return whether a field and every struct around it are required."""
    fields = list(schema)
    for part in path:
        found = [field for field in fields if field.name == part]
        if len(found) != 1 or found[0].nullable:
            return False
        fields = list(found[0].type) if pa.types.is_struct(found[0].type) else []
    return True


def _read_leaf_metadata(
    column: Column, leaf: Leaf, reader: BoundsReader | None, groups: list[pq.RowGroupMetaData], rows: list[int]
) -> dict[str, pa.Array]:
    found = [group.column(leaf.index).statistics for group in groups]
    if pa.types.is_null(leaf.arrow_type):
        null_counts: list[int | None] = list(rows)
    else:
        # A required column has no NULL, whether counted or not.
        missing = None if leaf.nullable else 0
        counts = [missing if statistics is None else statistics.null_count for statistics in found]
        null_counts = [
            missing if count is None else count if 0 <= count <= total else None
            for count, total in zip(counts, rows, strict=True)
        ]
    arrays = {metadata_name("null_count", column.path): pa.array(null_counts, types.LONG)}
    if reader is not None:
        if pa.types.is_floating(reader.target):
            # An integer column that the table promoted to floats has no NaN, nor has a column without values.
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


def _make_missing_metadata(
    column: Column, row_count: pa.Array, value: pa.Scalar | None, is_everywhere: bool
) -> dict[str, pa.Array]:
    """Return the metadata of a column that files lack: it is NULL, or has the table's default."""
    if value is not None and column.type is not None and types.is_ordered(column.type):
        values = pa.repeat(value.cast(column.type), len(row_count))
        return make_constant_bounds(column, values, row_count, or_null=not is_everywhere)
    if value is not None:
        none = pa.array(np.zeros(len(row_count), np.int64))
        return {metadata_name("null_count", column.path): none} if is_everywhere else {}
    arrays = {metadata_name("null_count", column.path): row_count}
    if column.type is not None:
        nothing = pa.nulls(len(row_count), column.type)
        arrays |= {metadata_name(kind, column.path): nothing for kind in ("lower", "upper")}
        if pa.types.is_floating(column.type):
            arrays[metadata_name("nan_count", column.path)] = pa.array([0] * len(row_count), types.LONG)
    return arrays


def _read_created_by(metadata: pq.FileMetaData) -> str | None:
    """Return the writer of the file; None if that is not valid UTF-8."""
    try:
        return (metadata.created_by or "")[:_MAX_WRITER_LENGTH]
    except UnicodeDecodeError:
        return None


def _parse_writer(metadata: pq.FileMetaData) -> re.Match[str] | None:
    """Return application and version of the writer; None if they cannot be parsed."""
    return _WRITER.match(_read_created_by(metadata) or "")


def can_trust_bytes(metadata: pq.FileMetaData) -> bool:
    """Return whether bounds of bytes in this file can be trusted."""
    return _trusts_bytes_of(_parse_writer(metadata))


def has_ordered_bounds(metadata: pq.FileMetaData) -> bool:
    """Return whether the writer uses the min/max fields with a defined order for bytes, not the deprecated ones.

    Tamis never reads the deprecated fields, but other readers do if the newer ones are missing.
    """
    writer = _parse_writer(metadata)
    return _trusts_bytes_of(writer) and writer is not None and writer["application"] in _WRITERS_OF_ORDERED_BOUNDS


def _trusts_bytes_of(writer: re.Match[str] | None) -> bool:
    if writer is None or writer["application"] != "parquet-mr":
        return writer is not None
    return tuple(map(int, writer["version"].split("."))) >= _FIRST_TRUSTED_PARQUET_MR


def sum_compressed_sizes(metadata: pq.FileMetaData, leaf_indices: Sequence[int]) -> list[int]:
    """Return the compressed bytes of these leaves in each row group."""
    return [
        sum([max(0, group.column(leaf).total_compressed_size) for leaf in leaf_indices])
        for group in _list_row_groups(metadata)
    ]


def has_short_chunks(metadata: pq.FileMetaData) -> bool:
    """Return whether column chunks may be longer than the footer states: see `may_be_short`."""
    return may_be_short(_read_created_by(metadata))


def find_chunk_ranges(
    metadata: pq.FileMetaData,
    row_group: int,
    leaf_indices: Sequence[int],
    *,
    size: int | None = None,
    location: str = "the file",
) -> list[tuple[int, int]]:
    """Return the byte ranges `(offset, length)` of these leaves' column chunks, dictionaries included.

    A chunk outside the file raises CorruptFile; its end is checked only if `size`, the file's size, is given.
    """
    group = metadata.row_group(row_group)
    short = has_short_chunks(metadata)
    ranges = []
    for leaf in leaf_indices:
        chunk = group.column(leaf)
        start, length = chunk.data_page_offset, chunk.total_compressed_size
        dictionary = chunk.dictionary_page_offset
        # Some writers state 0 for "no dictionary".
        if dictionary is not None and 0 < dictionary < start:
            start = dictionary
        if start < 0 or length < 0 or (size is not None and start + length > size):
            raise CorruptFile(
                f"row group {row_group} of {location} has column {leaf} at bytes {start} to {start + length} "
                f"of a file of {'unknown size' if size is None else f'{size} bytes'}; write the file again"
            )
        if short:
            length += MAX_SLACK if size is None else min(MAX_SLACK, size - start - length)
        ranges.append((start, length))
    return ranges
