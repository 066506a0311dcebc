"""Inspection of a Parquet file: row groups, storage and statistics of columns, pages.

    found = inspect("orders.parquet", "id")
    found.columns[0].clustering, found.columns[0].pages

This reads the footer, the page indexes and the headers of Bloom filters whose length is not in the footer; it reads no
data. Missing metadata is unknown, not an error. An inconsistent footer or offset index is an error.
"""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import AmbiguousColumn, TableNotFound, UnknownColumn, suggest_arguments
from tamis.expr.builder import split_name
from tamis.io.listing import find_file, has_directory
from tamis.io.storage import open_storage
from tamis.parquet.footer.chunks import ByteRange, ChunkLayout, read_chunk_layouts
from tamis.parquet.footer.statistics import can_trust_bytes, sum_compressed_sizes
from tamis.parquet.indexes.bloom_filter import MAX_HEADER_BYTES, BloomHeader, parse_header
from tamis.parquet.indexes.page_index import (
    PageLocations,
    decode_offset_index,
    get_readable_range,
    try_decode_column_index,
)
from tamis.parquet.inspection.clustering import Clustering, Mask, measure_clustering
from tamis.parquet.inspection.column_facts import (
    InspectedLeaf,
    LocatedChunk,
    format_path,
    has_no_values,
    list_leaves,
    tabulate_chunks,
    tabulate_pages,
)
from tamis.parquet.reading.parquet_file import ParquetFile

Numbers = npt.NDArray[np.int64]
PAGES, ROW_GROUPS = "pages", "row_groups"


@dataclass(frozen=True, slots=True, eq=False)
class Ranges:
    """The value ranges of pages in file order, or of row groups if not all of them have a page index."""

    unit: str
    first_rows: Numbers
    rows: Numbers
    lower: pa.Array
    upper: pa.Array
    has_no_values: Mask


@dataclass(frozen=True, eq=False)
class ColumnInspection:
    """One leaf column of a file."""

    name: str
    """The dotted path; inside lists and maps it is Parquet's path, `tags.list.element`."""
    physical: str
    logical: str | None
    row_groups: pa.Table = field(repr=False)
    """The storage and the statistics of the column in each row group.

    `min` and `max` are bounds; `min_exact` and `max_exact` say whether a row has that value, null if unknown.
    `dictionary` is `all pages`, `yes` (for some pages, or unknown which) or `no`; `page_index` is `yes`, `locations
    only` if bounds of the pages are missing or invalid, or `no`.
    """
    pages: pa.Table = field(repr=False)
    """The locations and the statistics of the pages in row groups with a page index.

    Bounds of strings and bytes may be truncated; a page index does not record it.
    """
    remarks: tuple[str, ...] = ()
    """Descriptions of invalid metadata that was ignored."""

    @cached_property
    def ranges(self) -> Ranges:
        """The bounds of the pages of the column, or of its row groups if too few pages have bounds."""
        groups, pages = self.row_groups, self.pages
        is_complete = pc.all(pc.or_(pc.equal(groups["page_index"], "yes"), pc.equal(groups["rows"], 0))).as_py()
        lower, upper = groups["min"].combine_chunks(), groups["max"].combine_chunks()
        # If some pages have no bounds, row groups are more informative, unless they have no bounds at all.
        if pages.num_rows and (is_complete or lower.null_count == len(lower)):
            return Ranges(
                PAGES,
                _as_int64(pages["first_row"]),
                _as_int64(pages["rows"]),
                pages["min"].combine_chunks(),
                pages["max"].combine_chunks(),
                ~np.asarray(pages["has_values"]),
            )
        rows = _as_int64(groups["rows"])
        return Ranges(ROW_GROUPS, _count_rows_before(rows), rows, lower, upper, np.asarray(has_no_values(groups)))

    @cached_property
    def clustering(self) -> Clustering | None:
        """The overlap of the ranges; None if no bounds are known."""
        ranges = self.ranges
        return measure_clustering(ranges.lower, ranges.upper, ranges.has_no_values, ranges.unit)

    @cached_property
    def summary(self) -> pa.RecordBatch:
        """The whole column in one row. A sum or a bound is null if it is unknown for some row group."""
        groups = self.row_groups
        compressed, uncompressed = _sum_if_known(groups["compressed"]), _sum_if_known(groups["uncompressed"])
        filled = groups.filter(pc.greater(groups["values"], 0))
        filters = groups.filter(groups["bloom_filter"])
        clustering = self.clustering
        facts: dict[str, tuple[Any, pa.DataType]] = {
            "name": (self.name, types.STRING),
            "physical_type": (self.physical, types.STRING),
            "logical_type": (self.logical, types.STRING),
            "codecs": (_drop_duplicates(groups["codec"].to_pylist()), pa.list_(types.STRING)),
            "encodings": (
                _drop_duplicates(chain.from_iterable(groups["encodings"].to_pylist())),
                pa.list_(types.STRING),
            ),
            "compressed": (compressed, types.LONG),
            "uncompressed": (uncompressed, types.LONG),
            "ratio": (round(uncompressed / compressed, 3) if compressed and uncompressed else None, types.DOUBLE),
            "dictionary": (_summarise(filled["dictionary"].to_pylist()), types.STRING),
            "dictionary_bytes": (pc.sum(groups["dictionary_bytes"], min_count=0).as_py(), types.LONG),
            "page_index": (_summarise(filled["page_index"].to_pylist()), types.STRING),
            "page_count": (_sum_if_known(groups["page_count"]), types.LONG),
            "bloom_filters": (filters.num_rows, types.LONG),
            "bloom_filter_bytes": (_sum_if_known(filters["bloom_filter_bytes"]), types.LONG),
            "overlap": (None if clustering is None else clustering.overlap, types.DOUBLE),
            "overlap_of": (None if clustering is None else clustering.unit, types.STRING),
            "overlap_units": (None if clustering is None else clustering.units, types.LONG),
            "nulls": (_sum_if_known(groups["nulls"]), types.LONG),
            # Row groups may share values, so that their counts do not add up.
            "max_distinct_count": (pc.max(groups["distinct_count"]).as_py(), types.LONG),
        }
        arrays = {name: pa.array([value], data_type) for name, (value, data_type) in facts.items()}
        return pa.record_batch(arrays | _combine_bounds(groups))

    def to_dict(self) -> dict[str, Any]:
        """Return all values. Bounds of numbers and booleans keep their type, bytes are hexadecimal, others strings."""
        return {
            **_to_plain_rows(pa.Table.from_batches([self.summary]))[0],
            "remarks": list(self.remarks),
            "row_groups": _to_plain_rows(self.row_groups),
            "pages": _to_plain_rows(self.pages),
        }


@dataclass(frozen=True, slots=True, eq=False)
class FileInspection:
    """A file, and those of its columns that were requested."""

    location: str
    size: int
    rows: int
    created_by: str | None
    format_version: str
    footer_size: int
    key_value_metadata: tuple[str, ...]
    """The keys only: values may be large and are specific to the writer."""
    row_groups: pa.Table = field(repr=False)
    """The totals over all columns: `row_group`, `first_row`, `rows`, `compressed`, `uncompressed`."""
    columns: tuple[ColumnInspection, ...]

    @property
    def facts(self) -> dict[str, Any]:
        """The properties of the file as a whole."""
        return {
            "file": self.location,
            "size": self.size,
            "rows": self.rows,
            "created_by": self.created_by,
            "format_version": self.format_version,
            "footer_size": self.footer_size,
            "key_value_metadata": list(self.key_value_metadata),
        }

    def to_dict(self) -> dict[str, Any]:
        """Return all values, with bounds as in `ColumnInspection.to_dict`."""
        return {
            **self.facts,
            "row_groups": self.row_groups.to_pylist(),
            "columns": [column.to_dict() for column in self.columns],
        }


def _as_int64(column: pa.ChunkedArray) -> Numbers:
    return np.asarray(column, np.int64)


def _count_rows_before(rows: Numbers) -> Numbers:
    return np.cumsum(rows) - rows


def _sum_if_known(column: pa.ChunkedArray) -> int | None:
    total: int | None = None if column.null_count else pc.sum(column, min_count=0).as_py()
    return total


def _drop_duplicates(names: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(names))


def _summarise(answers: list[str]) -> str:
    """Return one answer for all row groups that have values; different answers become `yes`."""
    distinct = _drop_duplicates(answers)
    return distinct[0] if len(distinct) == 1 else "yes" if distinct else "no"


def _combine_bounds(groups: pa.Table) -> dict[str, pa.Array]:
    lacking = has_no_values(groups)
    found: dict[str, pa.Array] = {}
    for name, order in (("min", "ascending"), ("max", "descending")):
        values, exact = groups[name].combine_chunks(), groups[f"{name}_exact"].combine_chunks()
        is_known = len(values) > values.null_count and pc.all(pc.or_(values.is_valid(), lacking)).as_py()
        # Row groups without bounds sort last.
        first = pc.array_sort_indices(values, order=order)[:1] if is_known else pa.array([None], pa.uint64())
        found[name], found[f"{name}_exact"] = values.take(first), exact.take(first)
    return found


def _to_plain_rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows whose bounds are strings where Python's types cannot represent every date and decimal of a file."""
    for name in ("min", "max"):
        values = table[name].combine_chunks()
        if types.is_bytes(values.type):
            values = pa.array([None if value is None else value.hex() for value in values.to_pylist()], types.STRING)
        elif pa.types.is_duration(values.type):
            values = pc.cast(values.view(types.LONG), types.STRING)
        elif pa.types.is_temporal(values.type) or pa.types.is_decimal(values.type):
            values = pc.cast(values, types.STRING)
        table = table.set_column(table.column_names.index(name), name, values)
    rows: list[dict[str, Any]] = table.to_pylist()
    return rows


# --- Reading the metadata --------------------------------------------------------------------------------------------


@suggest_arguments("tamis.parquet.inspect")
def inspect(
    uri: str | os.PathLike[str], column: str | None = None, *, storage_options: Mapping[str, Any] | None = None
) -> FileInspection:
    """Inspect the file at a path or URI. `column` restricts the result to one column, or to all columns inside it."""
    storage = open_storage(uri, storage_options)
    found = find_file(storage, storage.root)
    if found is None:
        is_folder = has_directory(storage, storage.root)
        what = "is a folder: give one of its files" if is_folder else "is not a file: give the path of a Parquet file"
        raise TableNotFound(f"'{storage.uri}' {what}; `tamis files` lists those of a table")
    return inspect_file(ParquetFile.load(storage, found.path, found.size, found.modified_ns), column)


def inspect_file(source: ParquetFile, column: str | None = None) -> FileInspection:
    """Inspect a file whose footer is already loaded."""
    leaves = list_leaves(source.footer.schema)
    wanted = leaves if column is None else find_leaves(leaves, column, source.location)
    metadata = source.footer.metadata
    rows = source.map.rows
    sizes = [max(0, metadata.row_group(index).total_byte_size) for index in range(metadata.num_row_groups)]
    return FileInspection(
        location=source.location,
        size=source.size,
        rows=int(rows.sum()),
        created_by=None if source.created_by is None else source.created_by.decode(errors="replace"),
        format_version=str(metadata.format_version),
        footer_size=len(source.footer.content),
        key_value_metadata=tuple(name.decode(errors="replace") for name in metadata.metadata or {}),
        row_groups=pa.table(
            {
                "row_group": pa.array(np.arange(len(rows))),
                "first_row": pa.array(_count_rows_before(rows)),
                "rows": pa.array(rows),
                "compressed": pa.array(sum_compressed_sizes(metadata, range(len(leaves))), types.LONG),
                "uncompressed": pa.array(sizes, types.LONG),
            }
        ),
        columns=_inspect_columns(source, wanted),
    )


def _inspect_columns(source: ParquetFile, leaves: list[InspectedLeaf]) -> tuple[ColumnInspection, ...]:
    groups = range(len(source.map.rows))
    layouts = {}
    if groups:
        layouts = read_chunk_layouts(
            source.map, [each.leaf.index for each in leaves], None, source.size, source.location
        )
    fetched = _fetch_metadata(source, layouts.values())
    return tuple(
        _inspect_column(source, each, [layouts[group, each.leaf.index] for group in groups], fetched) for each in leaves
    )


def _fetch_metadata(source: ParquetFile, layouts: Iterable[ChunkLayout]) -> dict[ByteRange, pa.Buffer]:
    """Read page indexes and Bloom filter headers, all in one round."""
    ranges = sorted(
        {
            found
            for layout in layouts
            for found in (
                get_readable_range(layout.offset_index),
                get_readable_range(layout.column_index),
                _filter_header_range(layout, source.size),
            )
            if found is not None
        }
    )
    if not ranges:
        return {}
    with source.open() as opened:
        return dict(zip(ranges, opened.read(ranges), strict=True))


def _filter_header_range(layout: ChunkLayout, file_size: int) -> ByteRange | None:
    """Return the range of a Bloom filter's header if the footer does not state the length of the filter."""
    if layout.bloom_filter is None or layout.bloom_filter[1] is not None:
        return None
    offset = layout.bloom_filter[0]
    return offset, min(MAX_HEADER_BYTES, file_size - offset)


def _inspect_column(
    source: ParquetFile, leaf: InspectedLeaf, layouts: list[ChunkLayout], fetched: Mapping[ByteRange, pa.Buffer]
) -> ColumnInspection:
    located: list[PageLocations | None] = []
    chunks: list[LocatedChunk] = []
    have_bounds: list[bool] = []
    remarks: list[str] = []
    for layout in layouts:
        offset_index, bounds = get_readable_range(layout.offset_index), get_readable_range(layout.column_index)
        pages, index = None, None
        if offset_index is not None:
            rows = source.count_rows(layout.row_group)
            pages = decode_offset_index(fetched[offset_index].to_pybytes(), layout, rows, source.location)
        if pages is not None and bounds is not None:
            what = f"column {leaf.name!r} in row group {layout.row_group}"
            content = fetched[bounds].to_pybytes()
            index, wrong = try_decode_column_index(content, pages, what, is_repeated=leaf.is_repeated)
            remarks += [] if wrong is None else [wrong]
        if pages is not None:
            chunks.append((layout.row_group, pages, index))
        located.append(pages)
        have_bounds.append(index is not None)
    metadata = source.footer.metadata
    sizes = [_get_filter_size(layout, source.size, fetched) for layout in layouts]
    is_ordered = source.map.read_column_order(leaf.leaf.index) is not None
    first_rows = _count_rows_before(source.map.rows)
    return ColumnInspection(
        name=leaf.name,
        physical=leaf.physical,
        logical=leaf.logical,
        row_groups=tabulate_chunks(leaf, layouts, metadata, located, have_bounds, sizes),
        pages=tabulate_pages(leaf, chunks, first_rows, trust_bytes=can_trust_bytes(metadata), is_ordered=is_ordered),
        remarks=tuple(remarks),
    )


def _get_filter_size(layout: ChunkLayout, file_size: int, fetched: Mapping[ByteRange, pa.Buffer]) -> int | None:
    """Return the size of a Bloom filter in bytes; None if the chunk has none, or it is unknown."""
    header_range = _filter_header_range(layout, file_size)
    if header_range is None:
        return None if layout.bloom_filter is None else layout.bloom_filter[1]
    header = parse_header(fetched[header_range].to_pybytes())
    return header.size + header.bitset_size if isinstance(header, BloomHeader) else None


# --- Lookup of a file's leaf columns by name --------------------------------------------------------------------------

_SHOWN_COLUMNS = 12


def find_leaves(leaves: Sequence[InspectedLeaf], name: str, location: str) -> list[InspectedLeaf]:
    """Return the leaf of this name, or all leaves inside the struct, list or map of this name.

    Names match ignoring case, as in filters, unless that is ambiguous.
    """
    # A name with dots may also be the complete name of one column.
    for path in dict.fromkeys((split_name(name), (name,))):
        for fold in (False, True):
            spell = str.casefold if fold else str
            wanted = [spell(part) for part in path]
            found = [each for each in leaves if [spell(part) for part in each.leaf.path[: len(path)]] == wanted]
            meant = list(dict.fromkeys(each.leaf.path[: len(path)] for each in found))
            if len(meant) > 1:
                spelled = ", ".join(repr(format_path(each)) for each in meant)
                raise AmbiguousColumn(
                    f"the name {name!r} matches several columns of '{location}': {spelled}. Write one of these"
                )
            if found:
                return found
    raise _make_unknown_column_error(leaves, name, location)


def _make_unknown_column_error(leaves: Sequence[InspectedLeaf], name: str, location: str) -> UnknownColumn:
    paths = [each.leaf.path[:depth] for each in leaves for depth in range(1, len(each.leaf.path) + 1)]
    names = {format_path(path).casefold(): format_path(path) for path in paths}
    near = difflib.get_close_matches(name.casefold(), names, n=3, cutoff=0.6)
    hint = f" Did you mean {' or '.join(repr(names[each]) for each in near)}?" if near else ""
    shown = [each.name for each in leaves[:_SHOWN_COLUMNS]]
    if len(leaves) > _SHOWN_COLUMNS:
        shown.append(f"… {len(leaves) - _SHOWN_COLUMNS} more")
    return UnknownColumn(f"no column {name!r} in '{location}'.{hint} Columns: {', '.join(shown) or 'none'}.")
