"""The files of handles, listed once: the rules ask how large a scan is, and then it is read.

A table that was opened does not change, so what was listed of it stays true: it is of one version, or a folder whose
directories were listed when somebody first asked for them.
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
from tamis.tables.source import LEVELS, Describing, FileListing

MOST_BYTES = 64 * 1024 * 1024
"""The most that is kept of all listings together, about."""


def predicate_of(handle: LakeHandle) -> Predicate:
    """What the rows of a handle satisfy, and then what it may be pruned by: as `Scan` puts them together."""
    source = handle.source
    where, pruning = (None if each == TRUE else each for each in (handle.predicate, handle.pruning))
    tested = make_predicate(where, source.schema, source.name, source.partition_columns)
    if pruning is None:
        return tested
    return tested.and_also(make_predicate(pruning, source.schema, source.name, source.partition_columns))


class Listings:
    """What was listed for handles, whatever columns they return. Any thread may use it."""

    def __init__(self) -> None:
        self._kept = WeightedCache(MOST_BYTES)

    def of(self, handle: LakeHandle, with_rows: bool = True) -> FileListing:
        """The files that may hold a row of a handle, and how many rows they have, where that is known and asked for.

        A limit, or the first rows by an order, may need fewer of them.
        """
        try:
            _, found = self._kept.get(_key(handle))
        except KeyError:
            found = handle.source.list_files(predicate_of(handle), LEVELS, with_rows=with_rows)
            if with_rows:
                self._keep(handle, found)
        return cast(FileListing, found)

    def described(self, handle: LakeHandle, column: Column) -> pa.Table | None:
        """What the format knows of a column in each of the files, as `tamis.skipping.metadata` lays it out.

        None where it knows nothing, or where other processes list the files, who do not tell.
        """
        source = handle.source
        if source.planning is not None or not isinstance(source, Describing):
            return None
        listing = source.list_described(predicate_of(handle), LEVELS, [column])
        names = metadata_names([column], listing.files.column_names)
        others = [name for name in listing.files.column_names if name not in names]
        self._keep(handle, replace(listing, files=listing.files.select(others)))
        return listing.files.select([*names, "num_records"])

    def _keep(self, handle: LakeHandle, listing: FileListing) -> None:
        rows = 0 if listing.rows is None else listing.rows.nbytes
        kept = handle.source, listing
        self._kept.put(_key(handle), kept, int(listing.files.nbytes + listing.partitions.nbytes + rows))


def _key(handle: LakeHandle) -> Hashable:
    # A folder that is opened again has the same name and no version, but maybe other files. What is kept has the
    # source along, so that no other comes to stand where it stands.
    return id(handle.source), handle.predicate, handle.pruning
