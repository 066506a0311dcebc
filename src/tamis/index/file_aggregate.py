"""Metadata of files from the metadata of their row groups.

| of the file             | from its row groups                                                                     |
|-------------------------|-----------------------------------------------------------------------------------------|
| rows, NULLs, NaN        | the sum, unknown if one of them is                                                      |
| lower and upper bound   | the minimum and maximum, unknown if a row group that may have values has none           |
| exact                   | that of the row group with the bound                                                    |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.index.spec import IndexedColumn
from tamis.skipping.metadata import ROW_COUNT

Array = np.ndarray[Any, Any]


class FileAggregator:
    """Aggregates row groups by file; `counts` are the row group counts of the files, in order."""

    def __init__(self, counts: npt.NDArray[np.int64]) -> None:
        self._has_any = counts > 0
        starts = np.cumsum(counts) - counts
        self._starts = starts[self._has_any]
        # The position among the files that have row groups; null for those that have none.
        positions = np.cumsum(self._has_any) - 1
        self._positions = pa.array(np.maximum(positions, 0), mask=~self._has_any)

    def aggregate(self, groups: Mapping[str, pa.Array], columns: tuple[IndexedColumn, ...]) -> dict[str, pa.Array]:
        """Return the metadata of files, under the names of the metadata of row groups."""
        rows = groups[ROW_COUNT.name]
        found = {ROW_COUNT.name: self._sum(rows)}
        for column in columns:
            nulls, nans = (groups.get(column.metadata_name(kind)) for kind in ("null_count", "nan_count"))
            for kind, counts in (("null_count", nulls), ("nan_count", nans)):
                if counts is not None:
                    found[column.metadata_name(kind)] = self._sum(counts)
            is_empty = _has_no_value(rows, nulls, nans)
            for kind in ("lower", "upper"):
                bounds = groups.get(column.metadata_name(kind))
                if bounds is None:
                    continue
                picked = self._pick(bounds, is_empty, smallest=kind == "lower")
                found[column.metadata_name(kind)] = bounds.take(picked)
                exact = groups.get(column.metadata_name(f"{kind}_exact"))
                if exact is not None:
                    found[column.metadata_name(f"{kind}_exact")] = exact.take(picked)
        return found

    def _sum(self, counts: pa.Array) -> pa.Array:
        if not len(self._starts):
            return pa.array(np.zeros(len(self._has_any), np.int64))
        totals = np.add.reduceat(np.asarray(pc.fill_null(counts, 0), np.int64), self._starts)
        is_unknown = np.logical_or.reduceat(np.asarray(counts.is_null()), self._starts)
        each = pa.array(totals, types.LONG, mask=is_unknown).take(self._positions)
        return pc.if_else(pa.array(self._has_any), each, pa.scalar(0, types.LONG))

    def _pick(self, bounds: pa.Array, is_empty: Array, *, smallest: bool) -> pa.Array:
        """Return the row group that has the bound of its file; null if the file has none."""
        if not len(self._starts):
            return pa.nulls(len(self._has_any), types.LONG)
        count = len(bounds)
        order = np.asarray(pc.sort_indices(_to_sortable(bounds)), np.int64)
        rank = np.empty(count, np.int64)
        rank[order] = np.arange(count)
        is_null = np.asarray(bounds.is_null())
        rank[is_null] = count if smallest else -1
        best = (np.minimum if smallest else np.maximum).reduceat(rank, self._starts)
        is_unknown = np.logical_or.reduceat(is_null & ~is_empty, self._starts) | (best < 0) | (best >= count)
        picked = order[np.where(is_unknown, 0, best)]
        return pa.array(picked, mask=is_unknown).take(self._positions)


def _to_sortable(bounds: pa.Array) -> pa.Array:
    """Return the bounds in a type that Arrow can sort."""
    if pa.types.is_float16(bounds.type):
        return bounds.cast(pa.float32())
    if pa.types.is_decimal(bounds.type) and bounds.type.bit_width < 128:
        return bounds.cast(pa.decimal128(bounds.type.precision, bounds.type.scale))
    return bounds


def _has_no_value(rows: pa.Array, nulls: pa.Array | None, nans: pa.Array | None) -> Array:
    """Return the row groups that have only NULL and NaN: there, missing bounds mean 'no value', not 'unknown'."""
    found = pc.equal(rows, 0)
    if nulls is not None:
        found = pc.or_kleene(found, pc.equal(nulls, rows))
        if nans is not None:
            found = pc.or_kleene(found, pc.equal(pc.add(nulls, nans), rows))
    return np.asarray(pc.fill_null(found, False))
