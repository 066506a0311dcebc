"""Where indexes are: in a folder of the table that other readers pass over, or wherever somebody put them."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tamis.errors import InvalidArgument, TableNotFound, with_article
from tamis.io.open_files import OpenFiles
from tamis.io.storage import Storage, open_storage

if TYPE_CHECKING:
    from tamis.indexing.store import IndexStore
    from tamis.indexing.table_index import TableIndex

HIDDEN_FOLDER = "_tamis"
FOLDER = f"{HIDDEN_FOLDER}/index"
"""Names that start with `_` are no data for Spark, Hive, Delta and Tamis."""


def store_for(
    table: Storage, place: str | os.PathLike[str] | None, storage_options: Mapping[str, Any] | None = None
) -> IndexStore:
    """The folder of a table's index: `place`, or the one beside its data."""
    from tamis.indexing.store import IndexStore

    if place is not None:
        return IndexStore(open_storage(place, storage_options))
    given = None if table.given is None else (f"{table.given[0].rstrip('/')}/{FOLDER}", table.given[1])
    root, uri = (f"{each.rstrip('/')}/{FOLDER}" for each in (table.root, table.uri))
    return IndexStore(replace(table, root=root, uri=uri, given=given, open_files=OpenFiles()))


def find_index(
    table: Storage,
    place: object,
    storage_options: Mapping[str, Any] | None = None,
    *,
    table_id: str | None = None,
    has_directory: Callable[[str], bool] | None = None,
) -> TableIndex | None:
    """The index of a table, read when it is needed. `has_directory` tells what is in the table's folder, if known.

    `place` is where it is; None looks beside the table, where there may be none; False uses none. One that was named
    must be there and be whole.
    """
    is_known_to_lack = place is None and has_directory is not None and not has_directory(HIDDEN_FOLDER)
    if place is False or is_known_to_lack:
        return None
    # Few tables have one.
    from tamis.indexing.table_index import TableIndex

    if place is None:
        return TableIndex(store_for(table, None), table, table_id=table_id)
    if not isinstance(place, str | os.PathLike):
        kind = with_article(type(place).__name__)
        raise InvalidArgument(f"index is the place of an index, or False to use none, not {kind}")
    found = TableIndex(store_for(table, place, storage_options), table, table_id=table_id, is_required=True)
    if found.current() is None:
        raise TableNotFound(f"no index at '{found.store.place}': build it with tamis.index.build(…, to=…)")
    return found
