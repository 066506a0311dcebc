"""Read the rows of a lake handle, and compute its properties before reading."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator
from dataclasses import replace
from functools import partial
from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError
from tamis.expr.nodes import FALSE, TRUE, Column, Expr, and_, find_columns, split_conjuncts
from tamis.formats.source import (
    LEVELS,
    FileListing,
    HasClustering,
    HasFileStatistics,
    HasPartitionFields,
    TableSource,
    make_table_predicate,
)
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.footer.leaves import FieldPath
from tamis.parquet.reading.row_group_reader import make_dummy_batches
from tamis.query.connectors.connector import Properties
from tamis.query.connectors.lake_handle import Aggregation, LakeHandle, Path, TopRows
from tamis.query.plan.column_ids import replace_paths
from tamis.query.plan.nodes import SortKey
from tamis.scan.aggregation.aggregate_scan import aggregate
from tamis.scan.aggregation.sorted_rows import SortedRuns, plan_sorted_runs, read_sorted_rows
from tamis.scan.aggregation.top_n import SortOrder, choose_top_files, read_top_rows
from tamis.scan.planning.scan_planner import ScanPlanner
from tamis.scan.reading.bloom_join_filter import apply_join_filter
from tamis.scan.scan import Scan, get_planner
from tamis.skipping.metadata import metadata_names
from tamis.skipping.predicate import Predicate, reads_partition_text
from tamis.types import type_name


def read_handle(handle: LakeHandle, listings: ListingCache) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a handle as record batches."""
    if handle.aggregation is not None:
        yield from _read_aggregation(handle, handle.aggregation)
    elif FALSE in (*split_conjuncts(handle.predicate), *split_conjuncts(handle.pruning)):
        # A dynamic filter without keys.
        return
    elif not handle.columns:
        yield from (
            batch.select([])
            for batch in make_dummy_batches(build_scan(handle, listings).count(), handle.source.storage.tuning)
        )
    else:
        batches = _read_in_order(handle) if handle.order else _read_in_any_order(handle, listings)
        for column, keys in handle.bloom_filters:
            batches = apply_join_filter(batches, keys, column.path)
        for batch in batches:
            yield _select_columns(batch, handle)


def _read_in_any_order(handle: LakeHandle, listings: ListingCache) -> Iterator[pa.RecordBatch]:
    scan = build_scan(handle, listings)
    return scan.to_batches() if handle.top is None else _read_top_rows(scan, handle.top)


def _read_in_order(handle: LakeHandle) -> Iterator[pa.RecordBatch]:
    where, pruning, columns = _get_scan_arguments(handle)

    def read(listing: FileListing) -> pa.Table:
        return Scan(handle.source, where, columns, pruning=pruning, listing=lambda _: listing).to_arrow()

    return read_sorted_rows(_plan_runs(handle), _get_orders(handle), read, handle.limit)


def is_cheap_to_sort(handle: LakeHandle) -> bool:
    """Return whether few files at a time must be sorted to read a handle in its order."""
    if handle.source.planning is not None:
        # Workers of an engine list the files, and return no statistics of them.
        return False
    runs = _plan_runs(handle)
    return len(runs.starts) > 1 and int(runs.sizes.max()) <= handle.source.storage.tuning.max_sorted_run_bytes


def _plan_runs(handle: LakeHandle) -> SortedRuns:
    where, pruning, _ = _get_scan_arguments(handle)
    return plan_sorted_runs(ScanPlanner(handle.source, where, pruning=pruning), _get_orders(handle))


def _get_orders(handle: LakeHandle) -> list[SortOrder]:
    return [SortOrder(key.column.column, key.descending, key.nulls_first) for key in handle.order]


def _read_aggregation(handle: LakeHandle, aggregation: Aggregation) -> Iterator[pa.RecordBatch]:
    where = None if handle.predicate == TRUE else handle.predicate
    found = aggregate(ScanPlanner(handle.source, where), aggregation.keys, aggregation.measures)
    # Sums are computed with 38 digits. Their type in Spark has fewer.
    columns = [_cast_sum(column, field) for column, field in zip(found.columns, handle.schema, strict=True)]
    yield from pa.table(columns, schema=handle.schema).to_batches()


def _cast_sum(values: pa.ChunkedArray, field: pa.Field) -> pa.ChunkedArray:
    try:
        return values if values.type == field.type else values.cast(field.type)
    except pa.ArrowInvalid:
        raise EvaluationError(
            f"{field.name} is out of the range of {type_name(field.type)}: sum a wider type, as in "
            "sum(CAST(x AS DECIMAL(28, 0)))"
        ) from None


def build_scan(handle: LakeHandle, listings: ListingCache) -> Scan:
    where, pruning, columns = _get_scan_arguments(handle)
    # With a limit any rows will do, so the table may list fewer files.
    listing = None if handle.limit is not None else partial(listings.of, handle)
    return Scan(handle.source, where, columns, handle.limit, pruning=pruning, listing=listing)


def build_row_scan(handle: LakeHandle, listings: ListingCache) -> Scan:
    """Return a scan of the rows that a handle sorts, cuts or aggregates, for an engine that does these itself.

    With a top-n, the scan leaves out files whose bounds prove that they have none of its rows.
    """
    rows = replace(handle, top=None, order=(), limit=None)
    if handle.top is None:
        return build_scan(rows, listings)
    where, pruning, columns = _get_scan_arguments(rows)
    order = SortOrder(handle.top.column.column, handle.top.descending, handle.top.nulls_first)
    listing = choose_top_files(ScanPlanner(handle.source, where, pruning=pruning), order, handle.top.count)
    return Scan(handle.source, where, columns, pruning=pruning, listing=lambda _: listing)


def _get_scan_arguments(handle: LakeHandle) -> tuple[Expr | None, Expr | None, list[Column] | None]:
    """Return the filter, the pruning predicate and the columns of a scan."""
    where, pruning = (None if each == TRUE else each for each in (handle.predicate, handle.pruning))
    return where, pruning, [each.column for each in handle.columns] or None


def _read_top_rows(scan: Scan, top: TopRows) -> Iterator[pa.RecordBatch]:
    return read_top_rows(
        get_planner(scan),
        top.column.column,
        top.count,
        descending=top.descending,
        nulls_first=top.nulls_first,
        with_ties=top.with_ties,
    )


def _select_columns(batch: pa.RecordBatch, handle: LakeHandle) -> pa.RecordBatch:
    """Return a batch with the columns of a handle, extracted from those of the table."""
    arrays = [_extract_array(batch, each.path) for each in handle.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=handle.schema)


def _extract_array(batch: pa.RecordBatch, path: Path) -> pa.Array:
    values = batch.column(path[0])
    return pc.struct_field(values, list(path[1:])) if len(path) > 1 else values


def find_properties(handle: LakeHandle, listings: ListingCache) -> Properties:
    source = handle.source
    listing = listings.of(handle)
    is_counted = listing.rows is not None and not listing.rows.null_count
    rows = int(pc.sum(listing.rows).as_py() or 0) if is_counted and listing.rows is not None else None
    limits = [each for each in (handle.limit, handle.top.count if handle.top else None) if each is not None]
    if handle.aggregation is not None and not handle.aggregation.keys:
        limits.append(1)
    is_exact = rows is not None and bool(listing.fully_matched.all()) and not limits
    is_exact = is_exact and handle.pruning == TRUE
    if handle.limit is not None:
        rows = handle.limit if rows is None else min(rows, handle.limit)
    if handle.aggregation is not None:
        rows = _find_group_bound(handle.aggregation, listing, rows)
    partitions = find_constant_columns(source)
    return Properties(
        rows=rows,
        rows_are_exact=is_exact and handle.aggregation is None,
        bytes=int(pc.sum(listing.files["size"]).as_py() or 0),
        enforced_predicate=find_satisfied_predicate(handle),
        is_filtered=handle.predicate != TRUE or handle.is_limited,
        partitioned_by=tuple(each.name for each in handle.columns if each.path in partitions),
        unique_keys=_find_unique_keys(handle),
        clustered_by=_find_clustering(handle),
        sorted_by=tuple(
            SortKey(Column((each.name,), type=each.type), key.descending, key.nulls_first)
            for key in handle.order
            for each in handle.columns
            if each.path == key.column.path
        ),
    )


def _find_clustering(handle: LakeHandle) -> tuple[str, ...]:
    """Return the columns of a handle by which its table declares to be clustered, the most significant first."""
    if handle.aggregation is not None or not isinstance(handle.source, HasClustering):
        return ()
    names = {each.path: each.name for each in handle.columns}
    return tuple(names[path] for path in handle.source.clustering_columns if path in names)


def _find_unique_keys(handle: LakeHandle) -> tuple[tuple[str, ...], ...]:
    """Return the keys of an aggregation. Formats declare keys of rows, but do not enforce them."""
    if handle.aggregation is None:
        return ()
    return (tuple(each.name for each in handle.columns[: len(handle.aggregation.keys)]),)


def find_constant_columns(source: TableSource) -> Collection[FieldPath]:
    """Return the columns that have a single value within most files."""
    if isinstance(source, HasPartitionFields):
        return source.identity_columns
    return {(name,) for name in source.partition_columns}


def _find_group_bound(aggregation: Aggregation, listing: FileListing, rows: int | None) -> int | None:
    if not aggregation.keys:
        return 1
    if not all(key.path[0] in listing.partitions.column_names for key in aggregation.keys):
        return rows
    # All rows of a file are in one group.
    files = int(listing.files.num_rows)
    return files if rows is None else min(rows, files)


def find_satisfied_predicate(handle: LakeHandle) -> Expr:
    """Return the conjuncts of the pushed filter that the columns of the handle can express."""
    if handle.aggregation is not None:
        return TRUE
    by_path = {each.path: Column((each.name,), type=each.type) for each in handle.columns}
    found = []
    for conjunct in split_conjuncts(handle.predicate):
        known = all(
            any(column.path[:length] in by_path for length in range(1, len(column.path) + 1))
            for column in find_columns(conjunct)
        )
        if known and conjunct != TRUE and not reads_partition_text(conjunct):
            found.append(replace_paths(conjunct, by_path))
    return and_(*found)


# --- A cache of file listings for handles: rules use them to estimate sizes, and the scan then reads the same files
#
# An opened table does not change, so its listings stay valid: it is a fixed version, or a directory that is listed on
# first use.

MAX_BYTES = 64 * 1024 * 1024
"""The approximate size of the cache, over all listings."""


def combine_predicates(handle: LakeHandle) -> Predicate:
    """Return the predicate of a handle combined with its pruning predicate, as `Scan` combines them."""
    source = handle.source
    where, pruning = (None if each == TRUE else each for each in (handle.predicate, handle.pruning))
    tested = make_table_predicate(where, source)
    if pruning is None:
        return tested
    return tested.and_with(make_table_predicate(pruning, source))


class ListingCache:
    """A thread-safe cache of the file listings of handles, independent of the columns they return."""

    def __init__(self) -> None:
        self._kept = WeightedCache(MAX_BYTES)

    def of(self, handle: LakeHandle, with_rows: bool = True) -> FileListing:
        """Return the files that may hold a row of a handle, with their row counts if known and requested.

        A handle with a limit or top-n may need fewer files.
        """
        try:
            _, found = self._kept.get(_make_key(handle))
        except KeyError:
            found = handle.source.list_files(combine_predicates(handle), LEVELS, with_rows=with_rows)
            if with_rows:
                self._keep(handle, found)
        return cast(FileListing, found)

    def find_statistics(self, handle: LakeHandle, column: Column) -> pa.Table | None:
        """Return the table format's statistics of a column for each file, in the layout of `tamis.skipping.metadata`.

        Return None if the format has no statistics, or if workers of an engine list the files: they return no
        statistics.
        """
        source = handle.source
        if source.planning is not None or not isinstance(source, HasFileStatistics):
            return None
        listing = source.list_files_with_statistics(combine_predicates(handle), LEVELS, [column])
        names = metadata_names([column], listing.files.column_names)
        others = [name for name in listing.files.column_names if name not in names]
        self._keep(handle, replace(listing, files=listing.files.select(others)))
        return listing.files.select([*names, "num_records"])

    def _keep(self, handle: LakeHandle, listing: FileListing) -> None:
        rows = 0 if listing.rows is None else listing.rows.nbytes
        kept = handle.source, listing
        self._kept.put(_make_key(handle), kept, int(listing.files.nbytes + rows))


def _make_key(handle: LakeHandle) -> Hashable:
    # A directory that is opened again has the same name and no version, but its files may differ. The cached value
    # holds the source, so that no other source can get the same id.
    return id(handle.source), handle.predicate, handle.pruning
