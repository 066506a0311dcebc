"""Tables of lakes that a query names though nobody registered them.

| in the query                                    | what it is                                              |
|-------------------------------------------------|---------------------------------------------------------|
| ``delta.`s3://lake/orders` ``                   | a table by its place                                    |
| `prod.shop.orders`                              | one of an Iceberg catalog that is attached as `prod`    |
| `orders VERSION AS OF 3`, `… TIMESTAMP AS OF …` | a table, registered or not, as it was                   |

Each is opened once for a query, at its newest state; what the queries before opened is only brought up to date.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Protocol

from tamis.errors import TamisError, UnsupportedFeature
from tamis.pushdown.connectors.lake_handle import LakeHandle
from tamis.pushdown.time_travel import State, split_state
from tamis.tables.source import TableSource, Versioned

Name = tuple[str, ...]

PLACES = ("delta", "iceberg", "parquet", "hive")
"""As in Spark, a path between back-ticks after the name of a format is a table."""

MOST_REMEMBERED = 64
"""Tables of earlier queries."""


class AttachedCatalog(Protocol):
    """A catalog of tables of lakes."""

    def open(self, name: Sequence[str]) -> TableSource: ...

    def names(self, source: TableSource) -> Sequence[str]:
        """All names that lead to a table, without that of the catalog in the session: policies go by each of them."""
        ...

    def is_same(self, other: AttachedCatalog) -> bool:
        """Whether another has the same tables."""
        ...

    def table_names(self) -> Sequence[str]: ...


class Opener(Protocol):
    """Opens tables as a session does, or says that it may not."""

    def open_place(self, path: str, format: str) -> TableSource: ...

    def open_state(self, source: Versioned, state: State) -> TableSource: ...


class EarlierTables:
    """What queries opened, for the ones to come."""

    def __init__(self) -> None:
        self._sources: dict[Name, TableSource] = {}
        self._lock = Lock()

    def get(self, name: Name) -> TableSource | None:
        return self._sources.get(name)

    def forget(self) -> None:
        """A name may mean another table from now on."""
        with self._lock:
            self._sources.clear()

    def keep(self, name: Name, source: TableSource) -> None:
        with self._lock:
            self._sources.pop(name, None)
            self._sources[name] = source
            while len(self._sources) > MOST_REMEMBERED:
                del self._sources[next(iter(self._sources))]


class UnregisteredTables:
    """Those of one query."""

    def __init__(
        self,
        opener: Opener,
        catalogs: dict[str, AttachedCatalog],
        earlier: EarlierTables,
        registered: Callable[[Name], tuple[TableSource, Sequence[str]] | None],
    ) -> None:
        self._opener = opener
        self._catalogs = catalogs
        self._earlier = earlier
        self._registered = registered
        self._found: dict[Name, tuple[TableSource, Sequence[str]]] = {}

    def find(self, name: Name) -> tuple[LakeHandle, Sequence[str]] | None:
        """The handle of a table and all names that lead to it; None where there is none."""
        found = self._source(name)
        return None if found is None else (LakeHandle.of(name, found[0]), found[1])

    def _source(self, name: Name) -> tuple[TableSource, Sequence[str]] | None:
        # Places, and names in catalogs, may differ by case alone.
        if name not in self._found:
            found = self._opened(name)
            if found is None:
                return None
            self._found[name] = found
            self._earlier.keep(_key(name), found[0])
        return self._found[name]

    def _opened(self, name: Name) -> tuple[TableSource, Sequence[str]] | None:
        split = split_state(name[-1])
        if split is not None:
            return self._as_it_was((*name[:-1], split[0]), split[1], self._earlier.get(_key(name)))
        if len(name) < 2:
            return None
        first, *rest = name
        for attached, catalog in self._catalogs.items():
            if attached.casefold() == first.casefold():
                source = self._refreshed(name) or catalog.open(rest)
                twins = (each for each, other in self._catalogs.items() if other.is_same(catalog))
                in_session = (f"{each}.{'.'.join(rest)}" for each in dict.fromkeys((attached, *twins)))
                return source, (*in_session, *catalog.names(source))
        if first.casefold() in PLACES and len(rest) == 1:
            source = self._refreshed(name) or self._opener.open_place(rest[0], first.casefold())
            return source, (f"{first.casefold()}.`{rest[0]}`", source.storage.uri)
        return None

    def _refreshed(self, name: Name) -> TableSource | None:
        known = self._earlier.get(_key(name))
        try:
            return known.refresh() if isinstance(known, Versioned) else None
        except TamisError:
            # Something else may be there now: it is opened anew, or that says what is wrong.
            return None

    def _as_it_was(
        self, name: Name, state: State, known: TableSource | None
    ) -> tuple[TableSource, Sequence[str]] | None:
        found = self._registered(name) or self._source(name)
        if found is None:
            return None
        now, names = found
        if not isinstance(now, Versioned):
            raise UnsupportedFeature(
                f"a {now.format} table has no versions, so that {'.'.join(name)} is only there as it is now"
            )
        then = self._opener.open_state(now, state)
        if known is None or not _is_same_state(then, known):
            return then, names
        # What was read of that state stays of use.
        return known, names


def _key(name: Name) -> Name:
    """A name by which a table is known in later queries: a relative path leads elsewhere from another folder."""
    is_relative = name[0].casefold() in PLACES and "://" not in name[-1] and not Path(name[-1]).is_absolute()
    return (*name, str(Path.cwd())) if is_relative else name


def _is_same_state(then: TableSource, known: TableSource) -> bool:
    return isinstance(then, Versioned) and then.is_same_state(known)
