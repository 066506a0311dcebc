"""One column of a file as a table with a row per row group: its storage and its footer statistics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis import types
from tamis.parquet.bounds import UNKNOWN, Bounds, BoundsReader, make_bounds_reader
from tamis.parquet.chunks import CODECS, ChunkLayout
from tamis.parquet.every_leaf import InspectedLeaf
from tamis.parquet.page_index import PageLocations, find_dictionary_range
from tamis.parquet.statistics import can_trust_bytes

_ENCODINGS = (
    "PLAIN",
    "GROUP_VAR_INT",
    "PLAIN_DICTIONARY",
    "RLE",
    "BIT_PACKED",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "RLE_DICTIONARY",
    "BYTE_STREAM_SPLIT",
)
_DICTIONARY_ENCODINGS = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


def tabulate_chunks(
    leaf: InspectedLeaf,
    layouts: Sequence[ChunkLayout],
    metadata: pq.FileMetaData,
    located: Sequence[PageLocations | None],
    have_bounds: Sequence[bool],
    filter_sizes: Sequence[int | None],
) -> pa.Table:
    """Return the column chunks of a leaf, one row per row group.

    `located` are the page locations, `have_bounds` tells for each chunk whether its pages have valid bounds, and
    `filter_sizes` are the sizes of the Bloom filters in bytes, where known.
    """
    dictionaries = [find_dictionary_range(layout, pages) for layout, pages in zip(layouts, located, strict=True)]
    columns: dict[str, tuple[Sequence[Any], pa.DataType]] = {
        "row_group": ([layout.row_group for layout in layouts], types.LONG),
        "rows": ([metadata.row_group(layout.row_group).num_rows for layout in layouts], types.LONG),
        "values": ([layout.num_values for layout in layouts], types.LONG),
        "compressed": ([layout.total_compressed_size for layout in layouts], types.LONG),
        "uncompressed": ([layout.total_uncompressed_size for layout in layouts], types.LONG),
        "codec": ([_name_of_number(CODECS, layout.codec, "CODEC") for layout in layouts], types.STRING),
        "encodings": ([_list_encodings(layout) for layout in layouts], pa.list_(types.STRING)),
        "nulls": ([_null_count(leaf, layout) for layout in layouts], types.LONG),
        "dictionary": ([_describe_dictionary(layout) for layout in layouts], types.STRING),
        "dictionary_bytes": ([None if found is None else found[1] for found in dictionaries], types.LONG),
        "page_index": (list(map(_describe_page_index, located, have_bounds)), types.STRING),
        "page_count": ([None if pages is None else pages.num_pages for pages in located], types.LONG),
        "bloom_filter": ([layout.bloom_filter is not None for layout in layouts], types.BOOLEAN),
        "bloom_filter_bytes": (filter_sizes, types.LONG),
    }
    arrays = {name: pa.array(values, data_type) for name, (values, data_type) in columns.items()}
    return pa.table(arrays | _read_bounds(leaf, layouts, metadata))


def has_no_values(chunks: pa.Table) -> pa.ChunkedArray:
    """Return for each chunk whether it has only NULLs."""
    return pc.equal(chunks["values"], pc.fill_null(chunks["nulls"], -1))


def _name_of_number(names: Sequence[str], number: int, kind: str) -> str:
    return names[number] if 0 <= number < len(names) else f"{kind}_{number}"


def _list_encodings(layout: ChunkLayout) -> list[str]:
    return list(dict.fromkeys(_name_of_number(_ENCODINGS, encoding, "ENCODING") for encoding in layout.encodings))


def _describe_dictionary(layout: ChunkLayout) -> str:
    if layout.all_dictionary:
        return "all pages"
    return "no" if _DICTIONARY_ENCODINGS.isdisjoint(_list_encodings(layout)) else "yes"


def _describe_page_index(pages: PageLocations | None, has_bounds: bool) -> str:
    return "no" if pages is None else "yes" if has_bounds else "locations only"


def _null_count(leaf: InspectedLeaf, layout: ChunkLayout) -> int | None:
    if pa.types.is_null(leaf.leaf.arrow_type):
        return layout.num_values
    if not leaf.leaf.nullable:
        return 0
    return layout.null_count if layout.null_count is not None and layout.null_count <= layout.num_values else None


def _read_bounds(leaf: InspectedLeaf, layouts: Sequence[ChunkLayout], metadata: pq.FileMetaData) -> dict[str, pa.Array]:
    reader = make_bounds_reader(leaf.leaf, leaf.display_type, trust_bytes=can_trust_bytes(metadata))
    if reader is None:
        values, flags = make_unknown_bounds(leaf, len(layouts)), pa.nulls(len(layouts), types.BOOLEAN)
        return {"min": values, "max": values, "min_exact": flags, "max_exact": flags}
    bounds = []
    for layout in layouts:
        statistics = metadata.row_group(layout.row_group).column(leaf.leaf.index).statistics
        has_bounds = statistics is not None and statistics.has_min_max
        raw = (statistics.min_raw, statistics.max_raw) if has_bounds else None
        bounds.append(UNKNOWN if raw is None else _convert_bounds(reader, layout, *raw))
    lower, upper = (reader.array([bound[position] for bound in bounds]) for position in range(2))
    return {
        "min": normalise_zeros(lower),
        "max": normalise_zeros(upper),
        "min_exact": pa.array([bound[2] for bound in bounds], types.BOOLEAN),
        "max_exact": pa.array([bound[3] for bound in bounds], types.BOOLEAN),
    }


def _convert_bounds(reader: BoundsReader, layout: ChunkLayout, smallest: Any, largest: Any) -> Bounds:
    """Convert bounds, with the exactness flags of the file; pruning is stricter and does not rely on these flags."""
    lower, upper, _, _ = reader.bounds(smallest, largest)
    may_be_truncated = types.is_bytes(reader.source)
    exact: list[bool | None] = []
    for value, raw, flag in ((lower, smallest, layout.min_exact), (upper, largest, layout.max_exact)):
        if value is None:
            exact.append(None)
        elif not may_be_truncated:
            # Numbers are never truncated, and most writers omit the flag.
            exact.append(flag is not False)
        else:
            is_as_stored = (value.encode() if isinstance(value, str) else value) == raw
            exact.append(flag if is_as_stored else False)
    return lower, upper, exact[0], exact[1]


def make_unknown_bounds(leaf: InspectedLeaf, count: int) -> pa.Array:
    return pa.nulls(count, pa.null() if leaf.display_type is None else leaf.display_type)


def normalise_zeros(bounds: pa.Array) -> pa.Array:
    """Return the bounds with -0.0 as 0.0: pruning uses the outer zero, which users would mistake for the value."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    unknown = np.asarray(bounds.is_null())
    numbers = np.where(unknown, 0, bounds.fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(np.where(numbers == 0, np.zeros_like(numbers), numbers), bounds.type, mask=unknown)
