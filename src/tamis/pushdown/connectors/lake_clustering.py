"""Whether some values of a column lie in few of the files of a table, so that to know them saves reading.

| where the column is                                            | some of its values                            |
|----------------------------------------------------------------|-----------------------------------------------|
| a partition column, or what partitions are made of             | are in few files                              |
| in files whose ranges overlap little                           | are in few files                              |
| in row groups or pages whose ranges overlap little, or that    | are in few places: some files are looked at,  |
| have Bloom filters                                             | of a table of some size                       |
| in none of these                                               | may be anywhere, and everything is read       |

Nobody knows of files that tell nothing of the column. To fetch what is not needed from afar takes longer than any
planning: nothing is said of columns there but what partitions tell.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import TamisError
from tamis.expr.nodes import Column
from tamis.parquet.clustering import range_overlap
from tamis.parquet.every_leaf import name_of
from tamis.parquet.file import ParquetFile
from tamis.parquet.inspection import ColumnInspection, inspect_file
from tamis.pushdown.connectors.lake_handle import LakeHandle, Path
from tamis.pushdown.connectors.lake_listings import Listings
from tamis.skipping.metadata import metadata_name
from tamis.tables.source import FILE_FORMAT, PARQUET, TableSource

MOST_OVERLAP = 0.5
"""Where the ranges of a typical value are more than so much of all, to know it leaves out little."""

MOST_COMPARED = 10_000
"""The bounds of so many files tell enough of how they overlap."""

MOST_LOOKED_AT = 4
"""Into so many files, from the first to the last: each costs a few milliseconds."""

WORTH_LOOKING = 8 * 1024 * 1024
"""Of fewer bytes, files are sooner read than looked into."""


def lies_together(handle: LakeHandle, column: Column, listings: Listings) -> bool | None:
    """Whether some values of a column of the table lie in little of what a handle reads; None where nobody knows."""
    source = handle.source
    if column.type is None or pa.types.is_nested(column.type):
        return None
    if column.path[0] in source.partition_columns or column.path in _partition_sources(source):
        return True
    if not source.storage.is_local:
        return None
    described = listings.described(handle, column)
    if described is not None:
        overlap = _overlap(described, column)
        if overlap is not None and overlap <= MOST_OVERLAP:
            return True
    return _lies_together_in_files(handle, column, listings)


def _partition_sources(source: TableSource) -> frozenset[Path]:
    """The columns of which the partitions of an Iceberg table are made."""
    if source.format != "iceberg":
        return frozenset()
    # Few need what it imports.
    from tamis.tables.iceberg.table import IcebergTable

    if not isinstance(source, IcebergTable):
        return frozenset()
    layout = source.layout
    numbers = {field["source_id"] for spec in layout.described_specs for field in spec["fields"]}
    return frozenset(layout.columns[number].path for number in numbers if number in layout.columns)


def _overlap(described: pa.Table, column: Column) -> float | None:
    """The share of the files in which a typical value may be; None where no bounds are known."""
    lower, upper, nulls = (metadata_name(kind, column.path) for kind in ("lower", "upper", "null_count"))
    if not {lower, upper} <= set(described.column_names):
        return None
    if described.num_rows > MOST_COMPARED:
        described = described.take(pa.array(_some(described.num_rows, MOST_COMPARED)))
    is_empty = np.zeros(described.num_rows, bool)
    if nulls in described.column_names:
        is_empty = np.asarray(pc.fill_null(pc.equal(described[nulls], described["num_records"]), False), bool)
    return range_overlap(described[lower].combine_chunks(), described[upper].combine_chunks(), is_empty)


def _lies_together_in_files(handle: LakeHandle, column: Column, listings: Listings) -> bool | None:
    """The same as some of the files tell, by their row groups or pages."""
    files = listings.of(handle).files
    if FILE_FORMAT in files.column_names and not pc.all(pc.equal(files[FILE_FORMAT], PARQUET)).as_py():
        return None
    if not files.num_rows or pc.sum(files["size"]).as_py() < WORTH_LOOKING:
        return False
    chosen = pa.array(_some(files.num_rows, MOST_LOOKED_AT))
    some = files.select(["path", "size", "modified_ns"]).take(chosen).to_pylist()
    try:
        found = [each for file in some for each in _inspected(handle.source, column, **file)]
    except TamisError:
        # It need not be one of those that are read, and whoever reads it tells what is wrong with it.
        return None
    if len(found) != len(some):
        # Files call something else so, a struct say.
        return None
    if any(pc.any(each.row_groups["bloom_filter"]).as_py() for each in found):
        return True
    ranges = [each.ranges for each in found]
    if len({each.lower.type for each in ranges}) > 1:
        return None
    lower, upper = (
        pa.concat_arrays(bounds) for bounds in zip(*((each.lower, each.upper) for each in ranges), strict=True)
    )
    overlap = range_overlap(lower, upper, np.concatenate([each.without_values for each in ranges]))
    return None if overlap is None else overlap <= MOST_OVERLAP


def _some(count: int, most: int) -> npt.NDArray[np.int64]:
    """The places of some of so many, from the first to the last."""
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def _inspected(
    source: TableSource, column: Column, path: str, size: int, modified_ns: int | None
) -> Sequence[ColumnInspection]:
    # By the name that the file has: where the table has another, nobody knows.
    return inspect_file(ParquetFile.load(source.storage, path, size, modified_ns), name_of(column.path)).columns
