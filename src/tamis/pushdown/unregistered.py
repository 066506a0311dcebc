"""Unregistered lake tables that a query names directly.

| in the query                                    | what it is                                              |
|-------------------------------------------------|---------------------------------------------------------|
| ``delta.`s3://lake/orders` ``                   | a table by its location                                 |
| `prod.shop.orders`                              | a table of an Iceberg catalog attached as `prod`        |
| `orders VERSION AS OF 3`, `… TIMESTAMP AS OF …` | an earlier state of a table, registered or not          |

A query opens each table once, in its newest state. Tables that earlier queries opened are only refreshed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol

from tamis.errors import TamisError, UnsupportedFeature
from tamis.pushdown.connectors.lake_handle import LakeHandle
from tamis.pushdown.time_travel import TableState, split_table_state
from tamis.tables.source import TableSource, Versioned

Name = tuple[str, ...]

PATH_FORMATS = ("delta", "iceberg", "parquet", "hive")
"""Format names that, as in Spark, precede the back-ticked path of a table."""

MAX_CACHED_TABLES = 64
"""The maximum number of cached tables of earlier queries."""


class AttachedCatalog(Protocol):
    """A catalog of lake tables."""

    def open(self, name: Sequence[str]) -> TableSource: ...

    def names(self, source: TableSource) -> Sequence[str]:
        """Return every name of a table, without the catalog's name in the session. Policies apply under each one."""
        ...

    def is_same(self, other: AttachedCatalog) -> bool:
        """Return whether another catalog has the same tables."""
        ...

    def table_names(self) -> Sequence[str]: ...


class Opener(Protocol):
    """Opens tables for a session, or raises if the session forbids it."""

    def open_path(self, path: str, format: str) -> TableSource: ...

    def open_state(self, source: Versioned, state: TableState) -> TableSource: ...


class OpenedTableCache:
    """A cache of the tables that earlier queries opened."""

    def __init__(self) -> None:
        self._sources: dict[Name, TableSource] = {}
        self._lock = Lock()

    def get(self, name: Name) -> TableSource | None:
        return self._sources.get(name)

    def forget(self) -> None:
        """Clear the cache, because a name may now refer to another table."""
        with self._lock:
            self._sources.clear()

    def keep(self, name: Name, source: TableSource) -> None:
        with self._lock:
            self._sources.pop(name, None)
            self._sources[name] = source
            while len(self._sources) > MAX_CACHED_TABLES:
                del self._sources[next(iter(self._sources))]


class UnregisteredTables:
    """The unregistered tables of one query."""

    def __init__(
        self,
        opener: Opener,
        catalogs: dict[str, AttachedCatalog],
        earlier: OpenedTableCache,
        registered: Callable[[Name], tuple[TableSource, Sequence[str]] | None],
    ) -> None:
        self._opener = opener
        self._catalogs = catalogs
        self._earlier = earlier
        self._registered = registered
        self._found: dict[Name, tuple[TableSource, Sequence[str]]] = {}

    def find(self, name: Name) -> tuple[LakeHandle, Sequence[str]] | None:
        """Return the handle of a table and all of its names; None if there is no such table."""
        found = self._find_source(name)
        return None if found is None else (LakeHandle.of(name, found[0]), found[1])

    def _find_source(self, name: Name) -> tuple[TableSource, Sequence[str]] | None:
        # Paths, and names in catalogs, are case-sensitive.
        if name not in self._found:
            found = self._open(name)
            if found is None:
                return None
            self._found[name] = found
            self._earlier.keep(_make_cache_key(name), found[0])
        return self._found[name]

    def _open(self, name: Name) -> tuple[TableSource, Sequence[str]] | None:
        split = split_table_state(name[-1])
        if split is not None:
            return self._open_at_state((*name[:-1], split[0]), split[1], self._earlier.get(_make_cache_key(name)))
        if len(name) < 2:
            return None
        first, *rest = name
        for attached, catalog in self._catalogs.items():
            if attached.casefold() == first.casefold():
                source = self._refresh(name) or catalog.open(rest)
                twins = (each for each, other in self._catalogs.items() if other.is_same(catalog))
                in_session = (f"{each}.{'.'.join(rest)}" for each in dict.fromkeys((attached, *twins)))
                return source, (*in_session, *catalog.names(source))
        if first.casefold() in PATH_FORMATS and len(rest) == 1:
            source = self._refresh(name) or self._opener.open_path(rest[0], first.casefold())
            return source, (f"{first.casefold()}.`{rest[0]}`", source.storage.uri)
        return None

    def _refresh(self, name: Name) -> TableSource | None:
        known = self._earlier.get(_make_cache_key(name))
        try:
            return known.refresh() if isinstance(known, Versioned) else None
        except TamisError:
            # Another table may have replaced it: opening it again succeeds, or reports the error.
            return None

    def _open_at_state(
        self, name: Name, state: TableState, known: TableSource | None
    ) -> tuple[TableSource, Sequence[str]] | None:
        found = self._registered(name) or self._find_source(name)
        if found is None:
            return None
        now, names = found
        if not isinstance(now, Versioned):
            raise UnsupportedFeature(
                f"a {now.format} table has no versions: query {'.'.join(name)} without VERSION or TIMESTAMP AS OF"
            )
        then = self._opener.open_state(now, state)
        if known is None or not _has_same_state(then, known):
            return then, names
        # The known source has the metadata of that state cached.
        return known, names


def _make_cache_key(name: Name) -> Name:
    """Return the cache key of a name. A relative path depends on the working directory."""
    is_relative = name[0].casefold() in PATH_FORMATS and "://" not in name[-1] and not Path(name[-1]).is_absolute()
    return (*name, str(Path.cwd())) if is_relative else name


def _has_same_state(then: TableSource, known: TableSource) -> bool:
    return isinstance(then, Versioned) and then.is_same_state(known)
