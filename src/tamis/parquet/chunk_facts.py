"""One column of a file, a row for each row group: how it is stored, and what the footer says of its values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis import types
from tamis.parquet.bounds import UNKNOWN, Bounds, BoundsOfColumn, bounds_of_column
from tamis.parquet.chunks import CODECS, ChunkLayout
from tamis.parquet.every_leaf import AnyLeaf
from tamis.parquet.page_index import PageLocations, dictionary_range
from tamis.parquet.statistics import trusts_bytes

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


def chunk_facts(
    leaf: AnyLeaf,
    layouts: Sequence[ChunkLayout],
    metadata: pq.FileMetaData,
    located: Sequence[PageLocations | None],
    have_bounds: Sequence[bool],
    filter_sizes: Sequence[int | None],
) -> pa.Table:
    """The chunks of a leaf in all row groups.

    `located` are the places of their pages, `have_bounds` says whether there are believable bounds for those, and
    `filter_sizes` are the bytes of their Bloom filters as far as known.
    """
    places = [dictionary_range(layout, pages) for layout, pages in zip(layouts, located, strict=True)]
    columns: dict[str, tuple[Sequence[Any], pa.DataType]] = {
        "row_group": ([layout.row_group for layout in layouts], types.LONG),
        "rows": ([metadata.row_group(layout.row_group).num_rows for layout in layouts], types.LONG),
        "values": ([layout.num_values for layout in layouts], types.LONG),
        "compressed": ([layout.total_compressed_size for layout in layouts], types.LONG),
        "uncompressed": ([layout.total_uncompressed_size for layout in layouts], types.LONG),
        "codec": ([_named(CODECS, layout.codec, "CODEC") for layout in layouts], types.STRING),
        "encodings": ([_encodings(layout) for layout in layouts], pa.list_(types.STRING)),
        "nulls": ([_null_count(leaf, layout) for layout in layouts], types.LONG),
        "dictionary": ([_dictionary(layout) for layout in layouts], types.STRING),
        "dictionary_bytes": ([None if place is None else place[1] for place in places], types.LONG),
        "page_index": (list(map(_page_index, located, have_bounds)), types.STRING),
        "page_count": ([None if pages is None else pages.num_pages for pages in located], types.LONG),
        "bloom_filter": ([layout.bloom_filter is not None for layout in layouts], types.BOOLEAN),
        "bloom_filter_bytes": (filter_sizes, types.LONG),
    }
    arrays = {name: pa.array(values, data_type) for name, (values, data_type) in columns.items()}
    return pa.table(arrays | _bounds(leaf, layouts, metadata))


def without_values(chunks: pa.Table) -> pa.ChunkedArray:
    """Which chunks have no values but NULL."""
    return pc.equal(chunks["values"], pc.fill_null(chunks["nulls"], -1))


def _named(names: Sequence[str], number: int, kind: str) -> str:
    return names[number] if 0 <= number < len(names) else f"{kind}_{number}"


def _encodings(layout: ChunkLayout) -> list[str]:
    return list(dict.fromkeys(_named(_ENCODINGS, encoding, "ENCODING") for encoding in layout.encodings))


def _dictionary(layout: ChunkLayout) -> str:
    if layout.all_dictionary:
        return "all pages"
    return "no" if _DICTIONARY_ENCODINGS.isdisjoint(_encodings(layout)) else "yes"


def _page_index(pages: PageLocations | None, has_bounds: bool) -> str:
    return "no" if pages is None else "yes" if has_bounds else "places only"


def _null_count(leaf: AnyLeaf, layout: ChunkLayout) -> int | None:
    if pa.types.is_null(leaf.leaf.arrow_type):
        return layout.num_values
    if not leaf.leaf.nullable:
        return 0
    return layout.null_count if layout.null_count is not None and layout.null_count <= layout.num_values else None


def _bounds(leaf: AnyLeaf, layouts: Sequence[ChunkLayout], metadata: pq.FileMetaData) -> dict[str, pa.Array]:
    reader = bounds_of_column(leaf.leaf, leaf.shown_type, trust_bytes=trusts_bytes(metadata))
    if reader is None:
        values, flags = nothing_known(leaf, len(layouts)), pa.nulls(len(layouts), types.BOOLEAN)
        return {"min": values, "max": values, "min_exact": flags, "max_exact": flags}
    bounds = []
    for layout in layouts:
        statistics = metadata.row_group(layout.row_group).column(leaf.leaf.index).statistics
        has_bounds = statistics is not None and statistics.has_min_max
        raw = (statistics.min_raw, statistics.max_raw) if has_bounds else None
        bounds.append(UNKNOWN if raw is None else _judged(reader, layout, *raw))
    lower, upper = (reader.array([bound[position] for bound in bounds]) for position in range(2))
    return {
        "min": with_plain_zeros(lower),
        "max": with_plain_zeros(upper),
        "min_exact": pa.array([bound[2] for bound in bounds], types.BOOLEAN),
        "max_exact": pa.array([bound[3] for bound in bounds], types.BOOLEAN),
    }


def _judged(reader: BoundsOfColumn, layout: ChunkLayout, smallest: Any, largest: Any) -> Bounds:
    """Bounds with what the file itself says of their exactness: pruning knows less, it must not rely on more."""
    lower, upper, _, _ = reader.bounds(smallest, largest)
    is_cuttable = types.is_bytes(reader.source)
    exact: list[bool | None] = []
    for value, raw, flag in ((lower, smallest, layout.min_exact), (upper, largest, layout.max_exact)):
        if value is None:
            exact.append(None)
        elif not is_cuttable:
            # Numbers are never cut short, and most writers do not bother to say so.
            exact.append(flag is not False)
        else:
            is_as_stored = (value.encode() if isinstance(value, str) else value) == raw
            exact.append(flag if is_as_stored else False)
    return lower, upper, exact[0], exact[1]


def nothing_known(leaf: AnyLeaf, count: int) -> pa.Array:
    return pa.nulls(count, pa.null() if leaf.shown_type is None else leaf.shown_type)


def with_plain_zeros(bounds: pa.Array) -> pa.Array:
    """The bounds with one kind of zero: pruning takes the one further out, which people would take for the value."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    unknown = np.asarray(bounds.is_null())
    numbers = np.where(unknown, 0, bounds.fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(np.where(numbers == 0, np.zeros_like(numbers), numbers), bounds.type, mask=unknown)
