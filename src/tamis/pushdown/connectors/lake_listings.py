"""A cache of file listings for handles: rules use them to estimate sizes, and the scan then reads the same files.

An opened table does not change, so its listings stay valid: it is a fixed version, or a directory that is listed on
first use.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace
from typing import cast

import pyarrow as pa

from tamis.expr.nodes import TRUE, Column
from tamis.io.weighted_cache import WeightedCache
from tamis.pushdown.connectors.lake_handle import LakeHandle
from tamis.skipping.metadata import metadata_names
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.tables.source import LEVELS, FileListing, HasFileStatistics

MOST_BYTES = 64 * 1024 * 1024
"""The approximate size of the cache, over all listings."""


def combine_predicates(handle: LakeHandle) -> Predicate:
    """Return the predicate of a handle combined with its pruning predicate, as `Scan` combines them."""
    source = handle.source
    where, pruning = (None if each == TRUE else each for each in (handle.predicate, handle.pruning))
    tested = make_predicate(where, source.schema, source.name, source.partition_columns)
    if pruning is None:
        return tested
    return tested.and_with(make_predicate(pruning, source.schema, source.name, source.partition_columns))


class ListingCache:
    """A thread-safe cache of the file listings of handles, independent of the columns they return."""

    def __init__(self) -> None:
        self._kept = WeightedCache(MOST_BYTES)

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

        Return None if the format has none, or if an engine's workers list the files, which do not return statistics.
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
        self._kept.put(_make_key(handle), kept, int(listing.files.nbytes + listing.partitions.nbytes + rows))


def _make_key(handle: LakeHandle) -> Hashable:
    # A directory that is opened again has the same name and no version, but its files may differ. The cached value
    # holds the source, so that no other source can get the same id.
    return id(handle.source), handle.predicate, handle.pruning
