"""The location of an index: beside the folder of the table, or the one of `location=`.

    sales/day=1/0.parquet            the table
    _tamis/sales/index/current.json  its index

Inside the table's folder it would not be hidden from all readers. Measured with a `_tamis` and a `.tamis` folder in it:
pyarrow 26 and Spark 4.2 ignore both, DuckDB 2.0 reads what its pattern matches, hidden or not, and Polars 2.1 rejects a
folder in which any file has another suffix. No file of an index has a suffix that a pattern for data matches.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tamis.errors import InvalidArgument, TableNotFound, add_article, make_argument_error
from tamis.io.listing import has_directory
from tamis.io.storage import OBJECT_STORES, OpenFiles, Storage, open_storage

if TYPE_CHECKING:
    from tamis.index.store import IndexStore
    from tamis.index.table_index import TableIndex

HIDDEN_FOLDER = "_tamis"
"""Spark, Hive, Delta, pyarrow and Tamis ignore names that start with `_`."""
INDEX_FOLDER = "index"


def locate_beside(path: str) -> str:
    """Return the folder of the index of a table, given the table's path or URI.

    >>> locate_beside("/data/sales"), locate_beside("s3://bucket/sales/"), locate_beside("sales")
    ('/data/_tamis/sales/index', 's3://bucket/_tamis/sales/index', '_tamis/sales/index')
    """
    around, slash, name = path.rstrip("/").rpartition("/")
    return f"{around}{slash}{HIDDEN_FOLDER}/{name}/{INDEX_FOLDER}"


def _choose_folder(table: Storage) -> Callable[[str], str]:
    is_bucket = "/" not in table.root and table.filesystem.type_name in OBJECT_STORES
    if not is_bucket and table.root.strip("/"):
        return locate_beside
    # A bucket, or the root of a file system, has no parent folder.
    return lambda path: f"{path.rstrip('/')}/{HIDDEN_FOLDER}/{INDEX_FOLDER}"


def open_store(
    table: Storage, location: str | os.PathLike[str] | None, storage_options: Mapping[str, Any] | None = None
) -> IndexStore:
    """Return the store of a table's index: at `location`, or beside the table."""
    from tamis.index.store import IndexStore

    if location is not None:
        if not isinstance(location, str | os.PathLike):
            raise make_argument_error("location", "the path or the URI of a folder for the index", location)
        return IndexStore(open_storage(location, storage_options))
    folder = _choose_folder(table)
    given = None if table.given is None else (folder(table.given[0]), table.given[1])
    root, uri = folder(table.root), folder(table.uri)
    return IndexStore(replace(table, root=root, uri=uri, given=given, open_files=OpenFiles()))


def find_index(
    table: Storage,
    location: object,
    storage_options: Mapping[str, Any] | None = None,
    *,
    table_id: str | None = None,
) -> TableIndex | None:
    """Return the index of a table, which is read lazily; None if there is none.

    `location` is its folder; None means beside the table; False means no index. An index at a given location must exist
    and be complete.
    """
    if location is False:
        return None
    if location is None and table.is_local and not has_directory(table, _choose_folder(table)(table.root)):
        return None
    # Imported lazily: few tables have an index.
    from tamis.index.table_index import TableIndex

    if location is None:
        return TableIndex(open_store(table, None), table, table_id=table_id)
    if not isinstance(location, str | os.PathLike):
        kind = add_article(type(location).__name__)
        raise InvalidArgument(f"index must be the location of an index, or False for none, found {kind}")
    found = TableIndex(open_store(table, location, storage_options), table, table_id=table_id, is_required=True)
    if found.get_current() is None:
        raise TableNotFound(f"no index at '{found.store.location}': build it with tamis.index.build(…, location=…)")
    return found
