"""Spark as the layers below see it: the implementation of `scan.engine.SparkScans` and `query.engine.SparkQueries`."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import tzinfo
from functools import reduce
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis.engines.spark.distributed_scan import build_distributed_frame
from tamis.engines.spark.files_dataframe import FilesDataFrame
from tamis.engines.spark.handler import quote_name
from tamis.engines.spark.jobs import SparkEngine
from tamis.engines.spark.native_scan import (
    NOT_READABLE,
    NativeFiles,
    NativeScan,
    NativeScanFiles,
    can_compare,
    can_scan_natively,
    estimate_bitmap_bytes,
    find_native_files,
)
from tamis.engines.spark.queries import (
    check_query,
    find_time_zone,
    is_ansi,
    make_case_sensitive_dataframe,
    make_query_dataframe,
    make_text_dataframe,
)
from tamis.engines.spark.sessions import (
    check_session,
    is_case_sensitive,
    is_connect,
    name_table_at_version,
    remember_state,
    translate_errors,
)
from tamis.engines.spark.spark_types import to_row_schema, to_spark_schema
from tamis.engines.spark.worker import build_arrow_frame
from tamis.errors import InvalidArgument, to_one_line
from tamis.formats.source import DeletedValues, DeletesByValue, FileListing, TableSource, has_deleted_rows
from tamis.io.listing import check_unchanged
from tamis.scan.planning.plan import PlannedFiles
from tamis.scan.planning.projection import reject_unsupported_types
from tamis.scan.planning.scan_planner import ScanPlanner
from tamis.scan.reading.task_reader import TaskReader
from tamis.skipping.predicate import is_partition_text

# --- Dataframe ------------------------------------------------------------------------------------------------------
#
# A scan as a lazy DataFrame: a union of native scans and Arrow tasks over the files that remain after pruning.
#
# | files                                                              | read by                                     |
# |--------------------------------------------------------------------|---------------------------------------------|
# | that match the table's schema                                      | a native scan (Spark's own Parquet reader)  |
# | with rows that are deleted by position or by value                 | the same, anti-joined with these            |
# | with other names or narrower types                                 | the same, with casts                        |
# | with defaults, types or functions that Spark does not support;     | Arrow tasks: `tamis.engines.spark.worker`   |
# | very selective filters; many small files; files of other types;    |                                             |
# | more deletes than can be broadcast                                 |                                             |
# | more than `Tuning.spark_max_planned_files`                         | `tamis.engines.spark.distributed_scan`      |
#
# Files and partitions are pruned when the DataFrame is created. Nothing is read before Spark computes rows.


logger = logging.getLogger("tamis")

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


def build_frame(spark: Any, wanted: ScanRequest, reader: str) -> Any:
    """Return the DataFrame of a scan. `reader` is `spark`, `arrow`, or `auto` to choose for each file."""
    schema = to_spark_schema(to_row_schema(wanted.reader.output_schema))
    own = NativeScan(spark, wanted.source, wanted.reader.predicate, wanted.reader.projection)
    for_spark, for_tasks = _assign_files(spark, wanted, own, reader)
    frames = []
    frames += [own.frame(files) for files in for_spark]
    tasks = [task for planned in for_tasks for task in planned.tasks()]
    if tasks:
        frames.append(
            build_arrow_frame(
                spark, wanted.source, wanted.reader, tasks, f"tamis: read {name_table_at_version(wanted.source)}"
            )
        )
    if not frames:
        return spark.createDataFrame([], schema)
    found = reduce(lambda one, other: one.unionAll(other), frames)
    if is_connect(spark):
        # It analyses lazily: a file that is gone is an error now.
        _ = found.columns
    # Spark's limits are 32-bit integers.
    return found if wanted.limit is None or wanted.limit >= 2**31 else found.limit(wanted.limit)


MAX_DELETE_SETS = 4
"""The number of different sets of deletes by value for which native scans are used, one scan for each set."""


def _assign_files(
    spark: Any, wanted: ScanRequest, own: NativeScan, reader: str
) -> tuple[list[NativeScanFiles], list[PlannedFiles]]:
    """Return the files for native scans, and the plans of others."""
    listing, scan = wanted.listing, wanted.reader
    tested = (column.path for column in scan.predicate.columns if not is_partition_text(column.path[0]))
    needed = (*scan.projection, *tested)
    readable, deletes = NativeFiles.none(listing.files.num_rows), DeleteSets.none(listing.files.num_rows)
    is_for_spark = reader == SPARK or (reader == AUTO and not _has_many_small_files(wanted))
    if is_for_spark and can_scan_natively(spark, wanted.source, needed) and own.can_test():
        deletes = _find_delete_sets(wanted)
        compared = (path for each in deletes.sets for deleted in each for path in deleted.columns)
        readable = find_native_files(
            wanted.source,
            listing.files,
            (*needed, *compared),
            SparkEngine(spark),
            is_case_sensitive=is_case_sensitive(spark),
        )
        field_set = np.where(deletes.set_of_file == NOT_READABLE, NOT_READABLE, readable.field_set)
        readable = replace(readable, field_set=field_set)
    readable, deleted = _find_deleted_rows(wanted, readable)
    for_spark = np.flatnonzero(readable.field_set >= 0)
    others = listing.take(np.flatnonzero(readable.field_set < 0))
    planned = [wanted.plan(others)] if others.files.num_rows else []
    if reader == AUTO and _may_be_selective(wanted, listing.take(for_spark)):
        left, in_pages = _plan_selective(wanted, listing.take(for_spark))
        if in_pages is not None:
            return [], [*planned, in_pages]
        for_spark = for_spark[left]
    kind_of = np.array(
        [readable.field_set[for_spark], deletes.set_of_file[for_spark], np.isin(for_spark, list(deleted))]
    )
    groups = []
    kinds, kind_of_file = np.unique(kind_of, axis=1, return_inverse=True)
    for number, (fields, delete_set, has_positions) in enumerate(kinds.T.tolist()):
        chosen = for_spark[kind_of_file.reshape(-1) == number]
        rows = [deleted[file] for file in chosen.tolist()] if has_positions else None
        groups.append(NativeScanFiles(listing.take(chosen), readable.fields[fields], rows, deletes.sets[delete_set]))
    return groups, planned


@dataclass(frozen=True)
class DeleteSets:
    """For each file, the index of the deletes by value that apply to it, or `NOT_READABLE`. The first set is empty."""

    set_of_file: npt.NDArray[np.int64]
    sets: Sequence[tuple[DeletedValues, ...]]

    @staticmethod
    def none(count: int) -> DeleteSets:
        return DeleteSets(np.zeros(count, np.int64), [()])


def _find_delete_sets(wanted: ScanRequest) -> DeleteSets:
    """Return the deletes by value that native scans leave out: those of most files, if they can be broadcast."""
    found, source = DeleteSets.none(wanted.listing.files.num_rows), wanted.source
    if not isinstance(source, DeletesByValue):
        return found
    set_of_file, sets = found.set_of_file, list(found.sets)
    left = source.storage.tuning.spark_max_deletion_bytes
    for group in sorted(
        source.read_deleted_values(source.storage, wanted.listing.files), key=lambda one: -len(one.files)
    ):
        size = sum(each.keys.nbytes for each in group.deleted or ())
        is_comparable = group.deleted is not None and all(
            can_compare(field.type) for each in group.deleted for field in each.keys.schema
        )
        if group.deleted is None or not is_comparable or size > left or len(sets) > MAX_DELETE_SETS:
            set_of_file[group.files] = NOT_READABLE
        else:
            set_of_file[group.files] = len(sets)
            sets.append(group.deleted)
            left -= size
    return DeleteSets(set_of_file, sets)


def _find_deleted_rows(wanted: ScanRequest, readable: NativeFiles) -> tuple[NativeFiles, dict[int, BitMap64]]:
    """Return the files for native scans, and their rows that are deleted by position, by their numbers in the listing.

    With too many deleted rows, no native scan reads such files.
    """
    has_deletes = np.flatnonzero(has_deleted_rows(wanted.listing.files) & (readable.field_set >= 0))
    if not len(has_deletes):
        return readable, {}
    listing = wanted.listing.take(has_deletes)
    source, storage = wanted.source, wanted.source.storage
    if isinstance(source, DeletesByValue):
        found = source.read_deleted_positions(storage, listing.files)
    else:
        found = source.read_deleted_rows(storage, listing.files)
    if sum(map(estimate_bitmap_bytes, found.values())) > storage.tuning.spark_max_deletion_bytes:
        field_set = readable.field_set.copy()
        field_set[has_deletes] = NOT_READABLE
        return replace(readable, field_set=field_set), {}
    return readable, {int(has_deletes[index]): rows for index, rows in found.items() if rows}


def _plan_selective(wanted: ScanRequest, listing: FileListing) -> tuple[npt.NDArray[np.int64], PlannedFiles | None]:
    """Return the positions of files with remaining row groups, and a page-level plan if the filter is selective."""
    groups = wanted.plan(listing, to_pages=False).row_groups
    left, first = np.unique(groups.units.file, return_index=True)
    if not len(left):
        return left, None
    tuning = wanted.source.storage.tuning
    files = listing.take(left)
    bytes_left = np.add.reduceat(groups.units.bytes, first)
    # A native scan skips row groups, too.
    narrow = tuning.spark_page_max_share * bytes_left.sum()
    if bytes_left.sum() < tuning.spark_page_min_bytes:
        return left, None
    if len(left) > SAMPLED:
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


__all__ = [
    "check_query",
    "find_frame_schema",
    "find_table",
    "get_settings",
    "make_case_sensitive_dataframe",
    "make_dataframe",
    "make_files_dataframe",
    "make_text_dataframe",
    "make_query_dataframe",
]


def get_settings(spark: Any) -> tuple[tzinfo, bool]:
    """Return the time zone of a Spark session, and whether it is in ANSI mode."""
    return find_time_zone(spark), is_ansi(spark)


def find_frame_schema(frame: Any) -> pa.Schema | None:
    """Return the columns of a Spark DataFrame in Arrow's types; None for any other object."""
    if not type(frame).__module__.startswith("pyspark.sql"):
        return None
    from pyspark.sql.pandas.types import to_arrow_schema

    return to_arrow_schema(frame.schema, timezone="UTC")


def find_table(spark: Any, parts: Sequence[str]) -> Any | None:
    """Return a view or table of the Spark session as a DataFrame; None if Spark has no table of this name."""
    from pyspark.errors import AnalysisException, ParseException

    name = ".".join(map(quote_name, parts))
    try:
        return spark.table(name) if spark.catalog.tableExists(name) else None
    except (AnalysisException, ParseException) as error:
        # Its first part is no catalog of the session, or it has more parts than a name may have.
        logger.debug("Spark cannot resolve %s: %s", name, to_one_line(error))
        return None


def make_files_dataframe(spark: Any, source: TableSource, columns: Sequence[str] | None) -> FilesDataFrame:
    """Return the files of a table as a cached DataFrame."""
    return FilesDataFrame(spark, source, columns)


def make_dataframe(spark: Any, planner: ScanPlanner, reader: str) -> Any:
    """Return the rows of a scan as a lazy DataFrame."""
    reject_unsupported_types(planner.source.schema, planner.projection)
    check_session(spark)
    if reader not in READERS:
        raise InvalidArgument(f"no reader {reader!r}. Readers: {', '.join(READERS)}")
    remember_state(planner.source)
    with planner.name_version_of_missing_file(), translate_errors(f"tamis: read {planner.source.name}"):
        found = None if reader == SPARK else build_distributed_frame(spark, planner)
        if found is not None:
            return found
        # Spark would read another file under the same path without an error.
        check_unchanged(planner.storage, planner.listing.files)
        wanted = ScanRequest(planner.source, planner.reader, planner.listing, planner.limit, planner.plan_listing)
        return build_frame(spark, wanted, reader)
