"""One column of a file as a table with a row per page: its location and its page index statistics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.expr.nodes import Column
from tamis.parquet.chunk_facts import make_unknown_bounds, normalise_zeros
from tamis.parquet.every_leaf import InspectedLeaf
from tamis.parquet.page_index import ColumnIndex, PageLocations, make_pages_metadata
from tamis.skipping.metadata import metadata_name

LocatedChunk = tuple[int, PageLocations, ColumnIndex | None]
"""A row group, the page locations of a column in it, and its column index if it is valid."""


def tabulate_pages(
    leaf: InspectedLeaf,
    chunks: Sequence[LocatedChunk],
    first_rows: npt.NDArray[np.int64],
    *,
    trust_bytes: bool,
    is_ordered: bool,
) -> pa.Table:
    """Return the pages of all chunks, in file order. `first_rows` are the first rows of the row groups."""
    column = Column(leaf.leaf.path, type=leaf.display_type)
    metadata = make_pages_metadata(
        [(index, pages) for _, pages, index in chunks],
        column,
        leaf.leaf,
        trust_bytes=trust_bytes,
        is_ordered=is_ordered,
    )
    counts = np.array([pages.num_pages for _, pages, _ in chunks], np.int64)
    nulls = metadata[metadata_name("null_count", column.path)]
    if leaf.is_repeated:
        # The null counts above are capped by the number of rows, but a repeated column has many values per row.
        nulls = pa.concat_arrays(
            [pa.nulls(0, types.LONG), *(_get_stored_nulls(pages, index) for _, pages, index in chunks)]
        )
    lower, upper = (
        metadata.get(metadata_name(kind, column.path), make_unknown_bounds(leaf, int(counts.sum())))
        for kind in ("lower", "upper")
    )
    return pa.table(
        {
            "row_group": pa.array(np.repeat(np.array([group for group, _, _ in chunks], np.int64), counts)),
            "page": pa.array(_concatenate(np.arange(count) for count in counts.tolist())),
            "first_row": pa.array(_concatenate(first_rows[group] + pages.first_rows for group, pages, _ in chunks)),
            "rows": pa.array(_concatenate(pages.row_counts for _, pages, _ in chunks)),
            "offset": pa.array(_concatenate(pages.offsets for _, pages, _ in chunks)),
            "bytes": pa.array(_concatenate(pages.lengths for _, pages, _ in chunks)),
            "nulls": nulls,
            "has_values": pa.array(_has_values(leaf, chunks)),
            "min": normalise_zeros(lower),
            "max": normalise_zeros(upper),
        }
    )


def _concatenate(parts: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _get_stored_nulls(pages: PageLocations, index: ColumnIndex | None) -> pa.Array:
    if index is None or index.null_counts is None:
        return pa.nulls(pages.num_pages, types.LONG)
    return pa.array(index.null_counts, types.LONG)


def _has_values(leaf: InspectedLeaf, chunks: Sequence[LocatedChunk]) -> npt.NDArray[np.bool_]:
    """Return which pages have values other than NULL; pages without statistics count as having values."""
    parts = [np.empty(0, np.bool_)]
    for _, pages, index in chunks:
        has_rows = pages.row_counts > 0
        parts.append(has_rows if index is None else has_rows & ~index.null_pages)
    found = np.concatenate(parts)
    return np.zeros_like(found) if pa.types.is_null(leaf.leaf.arrow_type) else found
