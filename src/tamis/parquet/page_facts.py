"""One column of a file, a row for each page: where it is, and what the page index says of its values."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis import types
from tamis.expr.nodes import Column
from tamis.parquet.chunk_facts import nothing_known, with_plain_zeros
from tamis.parquet.every_leaf import AnyLeaf
from tamis.parquet.page_index import ColumnIndex, PageLocations, pages_metadata
from tamis.skipping.metadata import metadata_name

LocatedChunk = tuple[int, PageLocations, ColumnIndex | None]
"""A row group, the places of the pages of a column in it, and what is in those, where that can be believed."""


def page_facts(
    leaf: AnyLeaf,
    chunks: Sequence[LocatedChunk],
    first_rows: npt.NDArray[np.int64],
    *,
    trust_bytes: bool,
    is_ordered: bool,
) -> pa.Table:
    """The pages of all chunks, in the order of the file. `first_rows` are those of the row groups."""
    column = Column(leaf.leaf.path, type=leaf.shown_type)
    described = pages_metadata(
        [(index, pages) for _, pages, index in chunks],
        column,
        leaf.leaf,
        trust_bytes=trust_bytes,
        is_ordered=is_ordered,
    )
    counts = np.array([pages.num_pages for _, pages, _ in chunks], np.int64)
    nulls = described[metadata_name("null_count", column.path)]
    if leaf.is_repeated:
        # Those were held against rows, of which each may have many values.
        nulls = pa.concat_arrays(
            [pa.nulls(0, types.LONG), *(_stored_nulls(pages, index) for _, pages, index in chunks)]
        )
    lower, upper = (
        described.get(metadata_name(kind, column.path), nothing_known(leaf, int(counts.sum())))
        for kind in ("lower", "upper")
    )
    return pa.table(
        {
            "row_group": pa.array(np.repeat(np.array([group for group, _, _ in chunks], np.int64), counts)),
            "page": pa.array(_joined(np.arange(count) for count in counts.tolist())),
            "first_row": pa.array(_joined(first_rows[group] + pages.first_rows for group, pages, _ in chunks)),
            "rows": pa.array(_joined(pages.row_counts for _, pages, _ in chunks)),
            "offset": pa.array(_joined(pages.offsets for _, pages, _ in chunks)),
            "bytes": pa.array(_joined(pages.lengths for _, pages, _ in chunks)),
            "nulls": nulls,
            "has_values": pa.array(_has_values(leaf, chunks)),
            "min": with_plain_zeros(lower),
            "max": with_plain_zeros(upper),
        }
    )


def _joined(parts: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _stored_nulls(pages: PageLocations, index: ColumnIndex | None) -> pa.Array:
    if index is None or index.null_counts is None:
        return pa.nulls(pages.num_pages, types.LONG)
    return pa.array(index.null_counts, types.LONG)


def _has_values(leaf: AnyLeaf, chunks: Sequence[LocatedChunk]) -> npt.NDArray[np.bool_]:
    """Which pages have values other than NULL; those of which nobody knows have."""
    parts = [np.empty(0, np.bool_)]
    for _, pages, index in chunks:
        has_rows = pages.row_counts > 0
        parts.append(has_rows if index is None else has_rows & ~index.null_pages)
    found = np.concatenate(parts)
    return np.zeros_like(found) if pa.types.is_null(leaf.leaf.arrow_type) else found
