"""Read the rows of a lake handle, and compute its properties before reading."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.nodes import FALSE, TRUE, Column, Expr, and_, find_columns, split_conjuncts
from tamis.parquet.row_group_rows import make_dummy_batches
from tamis.pushdown.connector import Properties
from tamis.pushdown.connectors.lake_handle import Aggregation, LakeHandle, Path, TopRows
from tamis.pushdown.connectors.lake_listings import ListingCache
from tamis.pushdown.paths import replace_paths
from tamis.scan.aggregation import aggregate
from tamis.scan.key_sieve import sieved
from tamis.scan.scan import Scan, planner_of
from tamis.scan.scan_planner import ScanPlanner
from tamis.scan.top_n import top_rows
from tamis.tables.source import FileListing


def read_handle(handle: LakeHandle, listings: ListingCache) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a handle as record batches."""
    if handle.aggregation is not None:
        yield from _read_aggregation(handle, handle.aggregation)
    elif FALSE in (*split_conjuncts(handle.predicate), *split_conjuncts(handle.pruning)):
        # A dynamic filter without keys.
        return
    elif not handle.columns:
        yield from (batch.select([]) for batch in make_dummy_batches(build_scan(handle, listings).count()))
    else:
        scan = build_scan(handle, listings)
        batches = scan.to_batches() if handle.top is None else _read_top_rows(scan, handle.top)
        for column, keys in handle.bloom_filters:
            batches = sieved(batches, keys, column.path)
        for batch in batches:
            yield _select_columns(batch, handle)


def _read_aggregation(handle: LakeHandle, aggregation: Aggregation) -> Iterator[pa.RecordBatch]:
    where = None if handle.predicate == TRUE else handle.predicate
    found = aggregate(ScanPlanner(handle.source, where), aggregation.keys, aggregation.measures)
    yield from pa.table(found.columns, schema=handle.schema).to_batches()


def build_scan(handle: LakeHandle, listings: ListingCache) -> Scan:
    where = None if handle.predicate == TRUE else handle.predicate
    columns = [each.column for each in handle.columns]
    pruning = None if handle.pruning == TRUE else handle.pruning
    # With a limit any rows will do, so the table may list fewer files.
    listing = None if handle.limit is not None else partial(listings.of, handle)
    return Scan(handle.source, where, columns or None, handle.limit, pruning=pruning, listing=listing)


def _read_top_rows(scan: Scan, top: TopRows) -> Iterator[pa.RecordBatch]:
    return top_rows(
        planner_of(scan),
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
    is_exact = rows is not None and listing.matched is not None and bool(listing.matched.all()) and not limits
    is_exact = is_exact and handle.pruning == TRUE
    if handle.limit is not None:
        rows = handle.limit if rows is None else min(rows, handle.limit)
    if handle.aggregation is not None:
        rows = _find_group_bound(handle.aggregation, listing, rows)
    partitions = {(name,) for name in source.partition_columns}
    return Properties(
        rows=rows,
        rows_are_exact=is_exact and handle.aggregation is None,
        bytes=int(pc.sum(listing.files["size"]).as_py() or 0),
        enforced_predicate=find_satisfied_predicate(handle),
        is_filtered=handle.predicate != TRUE or handle.is_limited,
        partitioned_by=tuple(each.name for each in handle.columns if each.path[:1] in partitions),
    )


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
        if known and conjunct != TRUE:
            found.append(replace_paths(conjunct, by_path))
    return and_(*found)
