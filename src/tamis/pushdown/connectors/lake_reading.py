"""What lake tables return for a handle, and what is known of it before."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.nodes import FALSE, TRUE, Column, Expr, and_, columns_of, conjuncts_of
from tamis.parquet.row_group_rows import rows_without_columns
from tamis.pushdown.connector import Properties
from tamis.pushdown.connectors.lake_handle import Aggregation, LakeHandle, Path, TopRows
from tamis.pushdown.connectors.lake_listings import Listings
from tamis.pushdown.paths import replace_paths
from tamis.scan.aggregation import aggregate
from tamis.scan.key_sieve import sieved
from tamis.scan.scan import Scan, planner_of
from tamis.scan.scan_planner import ScanPlanner
from tamis.scan.top_n import top_rows
from tamis.tables.source import FileListing


def read_handle(handle: LakeHandle, listings: Listings) -> Iterator[pa.RecordBatch]:
    """The rows, batch by batch."""
    if handle.aggregation is not None:
        yield from _aggregated(handle, handle.aggregation)
    elif FALSE in (*conjuncts_of(handle.predicate), *conjuncts_of(handle.pruning)):
        # Keys of a join of which there are none.
        return
    elif not handle.columns:
        yield from (batch.select([]) for batch in rows_without_columns(scan_of_rows(handle, listings).count()))
    else:
        scan = scan_of_rows(handle, listings)
        batches = scan.to_batches() if handle.top is None else _first_rows(scan, handle.top)
        for column, keys in handle.sieves:
            batches = sieved(batches, keys, column.path)
        for batch in batches:
            yield _shaped(batch, handle)


def _aggregated(handle: LakeHandle, aggregation: Aggregation) -> Iterator[pa.RecordBatch]:
    where = None if handle.predicate == TRUE else handle.predicate
    found = aggregate(ScanPlanner(handle.source, where), aggregation.keys, aggregation.measures)
    yield from pa.table(found.columns, schema=handle.schema).to_batches()


def scan_of_rows(handle: LakeHandle, listings: Listings) -> Scan:
    where = None if handle.predicate == TRUE else handle.predicate
    columns = [each.column for each in handle.columns]
    pruning = None if handle.pruning == TRUE else handle.pruning
    # Of a limit any rows will do, for which the table may know fewer files.
    listing = None if handle.limit is not None else partial(listings.of, handle)
    return Scan(handle.source, where, columns or None, handle.limit, pruning=pruning, listing=listing)


def _first_rows(scan: Scan, top: TopRows) -> Iterator[pa.RecordBatch]:
    return top_rows(
        planner_of(scan),
        top.column.column,
        top.count,
        descending=top.descending,
        nulls_first=top.nulls_first,
        with_ties=top.with_ties,
    )


def _shaped(batch: pa.RecordBatch, handle: LakeHandle) -> pa.RecordBatch:
    """The columns of a handle out of those of the table."""
    arrays = [_array(batch, each.path) for each in handle.columns]
    return pa.RecordBatch.from_arrays(arrays, schema=handle.schema)


def _array(batch: pa.RecordBatch, path: Path) -> pa.Array:
    values = batch.column(path[0])
    return pc.struct_field(values, list(path[1:])) if len(path) > 1 else values


def properties_of(handle: LakeHandle, listings: Listings) -> Properties:
    source = handle.source
    listing = listings.of(handle)
    is_counted = listing.rows is not None and not listing.rows.null_count
    rows = int(pc.sum(listing.rows).as_py() or 0) if is_counted and listing.rows is not None else None
    limits = [each for each in (handle.limit, handle.top.count if handle.top else None) if each is not None]
    if handle.aggregation is not None and not handle.aggregation.keys:
        limits.append(1)
    is_exact = rows is not None and listing.matched is not None and bool(listing.matched.all()) and not limits
    is_exact = is_exact and handle.pruning == TRUE
    if handle.limit is not None:
        rows = handle.limit if rows is None else min(rows, handle.limit)
    if handle.aggregation is not None:
        rows = _most_groups(handle.aggregation, listing, rows)
    partitions = {(name,) for name in source.partition_columns}
    return Properties(
        rows=rows,
        rows_are_exact=is_exact and handle.aggregation is None,
        bytes=int(pc.sum(listing.files["size"]).as_py() or 0),
        satisfied=satisfied_by(handle),
        is_filtered=handle.predicate != TRUE or handle.has_cut,
        partitioned_by=tuple(each.name for each in handle.columns if each.path[:1] in partitions),
    )


def _most_groups(aggregation: Aggregation, listing: FileListing, rows: int | None) -> int | None:
    if not aggregation.keys:
        return 1
    if not all(key.path[0] in listing.partitions.column_names for key in aggregation.keys):
        return rows
    # A file has rows of one group.
    files = int(listing.files.num_rows)
    return files if rows is None else min(rows, files)


def satisfied_by(handle: LakeHandle) -> Expr:
    """The conjuncts of the filter that columns of the handle can say."""
    if handle.aggregation is not None:
        return TRUE
    by_path = {each.path: Column((each.name,), type=each.type) for each in handle.columns}
    found = []
    for conjunct in conjuncts_of(handle.predicate):
        known = all(
            any(column.path[:length] in by_path for length in range(1, len(column.path) + 1))
            for column in columns_of(conjunct)
        )
        if known and conjunct != TRUE:
            found.append(replace_paths(conjunct, by_path))
    return and_(*found)
