"""A scan as a lazy DataFrame: a union of native scans and Arrow tasks over the files that remain after pruning.

| files                                                              | read by                                     |
|--------------------------------------------------------------------|---------------------------------------------|
| that match the table's schema                                      | a native scan (Spark's own Parquet reader)  |
| with deleted rows, renamed struct fields, widened types, types or  | Arrow tasks: `tamis.engines.spark.worker`      |
| functions that Spark does not support; very selective filters;     |                                             |
| many small files; files of other types than the table's            |                                             |

Files and partitions are pruned when the DataFrame is created. Nothing is read before Spark computes rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from tamis.engines.spark.jobs import SparkEngine
from tamis.engines.spark.native_scan import NativeFiles, NativeScan, PhysicalNames, can_scan_natively, find_native_files
from tamis.engines.spark.sessions import check_session, translate_errors
from tamis.engines.spark.spark_types import to_row_schema, to_spark_schema
from tamis.engines.spark.worker import build_arrow_frame
from tamis.errors import InvalidArgument
from tamis.formats.source import FileListing, TableSource
from tamis.scan.planning.plan import PlannedFiles
from tamis.scan.reading.task_reader import TaskReader
from tamis.skipping.predicate import is_partition_text

AUTO, SPARK, ARROW = "auto", "spark", "arrow"
READERS = (AUTO, SPARK, ARROW)

SAMPLED = 8
"""The page indexes of this many files are read first, to decide whether to read the page indexes of all files."""


class Planner(Protocol):
    """Plans files down to their pages, or only to their row groups."""

    def __call__(self, listing: FileListing, *, to_pages: bool = True) -> PlannedFiles: ...


@dataclass(frozen=True)
class ScanRequest:
    """The files and columns that a scan needs, and a function that plans its files further."""

    source: TableSource
    reader: TaskReader
    listing: FileListing
    limit: int | None
    plan: Planner


def build_frame(spark: Any, wanted: ScanRequest, reader: str = AUTO) -> Any:
    """Return the DataFrame of a scan. `reader` is `spark`, `arrow`, or `auto` to choose for each file."""
    check_session(spark)
    if reader not in READERS:
        raise InvalidArgument(f"no reader {reader!r}. Readers: {', '.join(READERS)}")
    with translate_errors(f"tamis: read {wanted.source.name}"):
        return _build_frame(spark, wanted, reader)


def _build_frame(spark: Any, wanted: ScanRequest, reader: str) -> Any:
    schema = to_spark_schema(to_row_schema(wanted.reader.output_schema))
    own = NativeScan(spark, wanted.source, wanted.reader.predicate, wanted.reader.projection)
    for_spark, for_tasks = _assign_files(spark, wanted, own, reader)
    frames = []
    for listing, names in for_spark:
        frames.append(own.frame(listing, names))
    tasks = [task for planned in for_tasks for task in planned.tasks()]
    if tasks:
        frames.append(build_arrow_frame(spark, wanted.reader, tasks, f"tamis: read {wanted.source.name}"))
    if not frames:
        return spark.createDataFrame([], schema)
    found = reduce(lambda one, other: one.unionAll(other), frames)
    # Spark's limits are 32-bit integers.
    return found if wanted.limit is None or wanted.limit >= 2**31 else found.limit(wanted.limit)


def _assign_files(
    spark: Any, wanted: ScanRequest, own: NativeScan, reader: str
) -> tuple[list[tuple[FileListing, PhysicalNames]], list[PlannedFiles]]:
    """Return the files for native scans, grouped by physical column names, and the plans of all others."""
    listing, scan = wanted.listing, wanted.reader
    tested = (column.path for column in scan.predicate.columns if not is_partition_text(column.path[0]))
    needed = (*scan.projection, *tested)
    readable = NativeFiles.none(listing.files.num_rows)
    is_for_spark = reader == SPARK or (reader == AUTO and not _has_many_small_files(wanted))
    if is_for_spark and can_scan_natively(spark, wanted.source, needed) and own.can_test():
        readable = find_native_files(wanted.source, listing.files, needed, SparkEngine(spark))
    for_spark = np.flatnonzero(readable.name_set >= 0)
    others = listing.take(np.flatnonzero(readable.name_set < 0))
    planned = [wanted.plan(others)] if others.files.num_rows else []
    if reader == AUTO and _may_be_selective(wanted, listing.take(for_spark)):
        left, in_pages = _plan_selective(wanted, listing.take(for_spark))
        if in_pages is not None:
            return [], [*planned, in_pages]
        for_spark = for_spark[left]
    of_one = [for_spark[readable.name_set[for_spark] == number] for number in range(len(readable.names))]
    return [
        (listing.take(each), names) for each, names in zip(of_one, readable.names, strict=True) if len(each)
    ], planned


def _plan_selective(wanted: ScanRequest, listing: FileListing) -> tuple[npt.NDArray[np.int64], PlannedFiles | None]:
    """Return the positions of files with remaining row groups, and a page-level plan if the filter is selective."""
    groups = wanted.plan(listing, to_pages=False).row_groups
    left, first = np.unique(groups.units.file, return_index=True)
    narrow = wanted.source.storage.tuning.spark_page_max_share * (groups.report.bytes_total or 0)
    if not len(left):
        return left, None
    files = listing.take(left)
    bytes_left = np.add.reduceat(groups.units.bytes, first)
    if len(left) > SAMPLED and bytes_left.sum() > narrow:
        sample = np.linspace(0, len(left) - 1, SAMPLED).astype(np.int64)
        in_pages = int(wanted.plan(files.take(sample)).row_groups.units.bytes.sum())
        # The plan of all files then shows whether the filter is as selective everywhere.
        if in_pages * bytes_left.sum() > 2 * narrow * max(1, bytes_left[sample].sum()):
            return left, None
    planned = wanted.plan(files)
    return left, planned if int(planned.row_groups.units.bytes.sum()) <= narrow else None


def _has_many_small_files(wanted: ScanRequest) -> bool:
    sizes = wanted.listing.files["size"]
    tuning, is_local = wanted.source.storage.tuning, wanted.source.storage.is_local
    small = tuning.spark_small_local_file_bytes if is_local else tuning.spark_small_file_bytes
    return bool(len(sizes) > tuning.spark_few_files and (pc.sum(sizes).as_py() or 0) < small * len(sizes))


def _may_be_selective(wanted: ScanRequest, listing: FileListing) -> bool:
    tested = {column.path[0] for column in wanted.reader.predicate.columns}
    is_tested = bool(tested - set(listing.partitions.column_names))
    size = pc.sum(listing.files["size"]).as_py() or 0
    tuning = wanted.source.storage.tuning
    has_few_footers = 0 < listing.files.num_rows <= tuning.spark_max_footers
    return is_tested and has_few_footers and size >= tuning.spark_page_min_bytes
