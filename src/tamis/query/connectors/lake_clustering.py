"""Detect whether a table is clustered by a column, so that a filter on a few of its values prunes much.

| column                                                         | a few of its values                           |
|----------------------------------------------------------------|-----------------------------------------------|
| a partition column, or a source column of a partition          | are in few files                              |
| files have bounds that overlap little                          | are in few files                              |
| row groups or pages have bounds that overlap little, or        | are in few row groups or pages (a sample of   |
| Bloom filters                                                  | files is inspected, if the table is large)    |
| none of these                                                  | may be anywhere, so everything is read        |

Without statistics of the column, the answer is unknown. In object stores, inspecting files would take longer than it
saves, so only partitions are considered there.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import TamisError
from tamis.expr.nodes import Column
from tamis.formats.source import FILE_FORMAT, PARQUET, HasPartitionFields, TableSource
from tamis.parquet.inspect.clustering import measure_overlap
from tamis.parquet.inspect.column_facts import format_path
from tamis.parquet.inspect.inspect_file import ColumnInspection, inspect_file
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.query.connectors.lake_handle import LakeHandle
from tamis.query.connectors.lake_reading import ListingCache
from tamis.skipping.metadata import metadata_name

MAX_OVERLAP = 0.5
"""If a typical value is within more than this share of all ranges, a filter on it prunes too little."""

MAX_COMPARED_FILES = 10_000
"""The overlap is estimated from the bounds of at most this many files."""

MAX_INSPECTED_FILES = 4
"""The number of files that are inspected, spread from the first to the last: each costs a few milliseconds."""


def is_clustered(handle: LakeHandle, column: Column, listings: ListingCache) -> bool | None:
    """Return whether the rows that a handle reads are clustered by a column of the table; None if that is unknown."""
    source = handle.source
    if column.type is None or pa.types.is_nested(column.type):
        return None
    if column.path[0] in source.partition_columns:
        return True
    if isinstance(source, HasPartitionFields) and column.path in source.partition_sources:
        return True
    if not source.storage.is_local:
        return None
    statistics = listings.find_statistics(handle, column)
    if statistics is not None:
        overlap = _estimate_overlap(statistics, column)
        if overlap is not None and overlap <= MAX_OVERLAP:
            return True
    return _is_clustered_in_files(handle, column, listings)


def _estimate_overlap(statistics: pa.Table, column: Column) -> float | None:
    """Return the share of the files that may hold a typical value; None without bounds."""
    lower, upper, nulls = (metadata_name(kind, column.path) for kind in ("lower", "upper", "null_count"))
    if not {lower, upper} <= set(statistics.column_names):
        return None
    if statistics.num_rows > MAX_COMPARED_FILES:
        statistics = statistics.take(pa.array(_choose_sample(statistics.num_rows, MAX_COMPARED_FILES)))
    is_empty = np.zeros(statistics.num_rows, bool)
    if nulls in statistics.column_names:
        is_empty = np.asarray(pc.fill_null(pc.equal(statistics[nulls], statistics["num_records"]), False), bool)
    return measure_overlap(statistics[lower].combine_chunks(), statistics[upper].combine_chunks(), is_empty)


def _is_clustered_in_files(handle: LakeHandle, column: Column, listings: ListingCache) -> bool | None:
    """Return whether a sample of the files is clustered by a column, in row groups or pages; None if unknown."""
    files = listings.of(handle).files
    if FILE_FORMAT in files.column_names and not pc.all(pc.equal(files[FILE_FORMAT], PARQUET)).as_py():
        return None
    if not files.num_rows or pc.sum(files["size"]).as_py() < handle.source.storage.tuning.min_bytes_to_check_clustering:
        return False
    chosen = pa.array(_choose_sample(files.num_rows, MAX_INSPECTED_FILES))
    sample = files.select(["path", "size", "modified_ns"]).take(chosen).to_pylist()
    try:
        found = [each for file in sample for each in _inspect_column(handle.source, column, **file)]
    except TamisError:
        # The scan may not read this file. If it does, it raises the error.
        return None
    if len(found) != len(sample):
        # In some file, another field has this name, for example a struct.
        return None
    if any(pc.any(each.row_groups["bloom_filter"]).as_py() for each in found):
        return True
    ranges = [each.ranges for each in found]
    if len({each.lower.type for each in ranges}) > 1:
        return None
    lower, upper = (
        pa.concat_arrays(bounds) for bounds in zip(*((each.lower, each.upper) for each in ranges), strict=True)
    )
    overlap = measure_overlap(lower, upper, np.concatenate([each.has_no_values for each in ranges]))
    return None if overlap is None else overlap <= MAX_OVERLAP


def _choose_sample(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most `most` positions below `count`, spread from the first to the last."""
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def _inspect_column(
    source: TableSource, column: Column, path: str, size: int, modified_ns: int | None
) -> Sequence[ColumnInspection]:
    # By the physical name: if the logical name differs, nothing is found and the answer is unknown.
    return inspect_file(ParquetFile.load(source.storage, path, size, modified_ns), format_path(column.path)).columns
