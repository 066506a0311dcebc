"""The tables of a session, by name: those that were registered, and those of attached connectors."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any

from tamis.errors import InvalidArgument, TableError, TableNotFound, UnsupportedFeature, lone_surrogate
from tamis.pushdown.connector import Connector, Handle
from tamis.pushdown.connectors.lake import LakeConnector
from tamis.pushdown.connectors.lake_handle import LakeHandle
from tamis.pushdown.connectors.memory import MemoryConnector
from tamis.pushdown.nodes import Node, Output, TableScan, outputs_of
from tamis.pushdown.scopes import Field
from tamis.pushdown.sql_sources import Planned
from tamis.pushdown.symbols import Symbols
from tamis.pushdown.unregistered import PLACES, AttachedCatalog, EarlierTables, Opener, UnregisteredTables
from tamis.tables.source import TableSource

_LAKE, _MEMORY = "lake", "memory"
_SHOWN_TABLES = 12


class Catalog:
    """Names of tables, and the connectors that they belong to. Any number of threads may use it."""

    def __init__(self, opener: Opener) -> None:
        self._lake = LakeConnector(_LAKE)
        self._memory = MemoryConnector(_MEMORY)
        self.connectors: dict[str, Connector] = {_LAKE: self._lake, _MEMORY: self._memory}
        self._opener = opener
        self._lake_catalogs: dict[str, AttachedCatalog] = {}
        self._earlier = EarlierTables()
        self._registered: dict[tuple[str, ...], tuple[str, Handle]] = {}
        self._spelled: dict[tuple[str, ...], str] = {}
        self._known_as: dict[tuple[str, Handle], list[str]] = {}
        self._lock = Lock()
        """Held while names change, and never while a table or a database is read."""

    def register_source(self, name: str, source: TableSource, others: Sequence[str] = ()) -> None:
        """Let a table of a lake be known by a name, in place of another that had it; `others` it is known by too."""
        parts = parts_of_name(name)
        self._remember(parts, _LAKE, self._lake.add(parts, source), *others)

    def register_rows(self, name: str, rows: Any) -> None:
        """Let rows in memory be known by a name."""
        parts = parts_of_name(name)
        self._remember(parts, _MEMORY, self._memory.add(".".join(parts), rows))

    def attach(self, name: str, connector: Connector) -> None:
        """Let the tables of a connector be known as `name.table`."""
        if isinstance(connector, type):
            raise InvalidArgument(f"{connector.__name__} is a class: attach a connector that was made of it")
        missing = [call for call in vars(Connector) if call[0] != "_" and not hasattr(connector, call)]
        if missing:
            raise InvalidArgument(
                f"the connector {type(connector).__name__} has no {missing[0]}(): derive it from "
                "tamis.pushdown.connector.Connector, which says no to whatever you leave out"
            )
        with self._lock:
            self._check_new(name)
            self.connectors[name] = connector

    def attach_lake(self, name: str, catalog: AttachedCatalog) -> None:
        """Let the tables of a catalog of lake tables be known as `name.namespace.table`."""
        with self._lock:
            self._check_new(name)
            self._lake_catalogs[name] = catalog

    def _check_new(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip() or "." in name:
            raise InvalidArgument(f"a database is attached under a name without dots, not {name!r}")
        if name.casefold() in map(str.casefold, (*self.connectors, *self._lake_catalogs, *PLACES)):
            raise InvalidArgument(f"there is something called {name!r} already: attach it under another name")

    def _remember(self, parts: tuple[str, ...], connector: str, handle: Handle, *others: str) -> None:
        with self._lock:
            self._registered[_folded(parts)] = connector, handle
            self._spelled[_folded(parts)] = ".".join(parts)
            self._know_as(connector, handle, (".".join(parts), *others))

    def _know_as(self, connector: str, handle: Handle, names: Sequence[str]) -> None:
        known = self._known_as.get((connector, handle), [])
        # A new list: others may go through the one that was there.
        self._known_as[connector, handle] = [*known, *(name for name in dict.fromkeys(names) if name not in known)]

    def unregister(self, name: str) -> None:
        """Forget a registered table."""
        parts = _folded(parts_of_name(name))
        with self._lock:
            known = self._registered.pop(parts, None)
            if known is not None:
                del self._spelled[parts]
                self._known_as.pop(known, None)
        if known is None:
            raise TableNotFound(f"no table {name!r} is registered.{_near(name, self._given_names())}")

    def detach(self, name: str) -> None:
        """Forget a database, or a catalog of lake tables."""
        found = next((each for each in self._databases() if _same(each, name)), None)
        if found is None:
            attached = ", ".join(sorted(self._databases())) or "nothing"
            raise InvalidArgument(f"nothing is attached as {name!r}; attached: {attached}")
        self._forget(found)

    def _forget(self, name: str) -> None:
        self._earlier.forget()
        with self._lock:
            is_lake = self._lake_catalogs.pop(name, None) is not None
            connector = None if is_lake else self.connectors.pop(name, None)
        close = getattr(connector, "close", None)
        if close is not None:
            close()

    def detach_all(self) -> None:
        for name in self._databases():
            self._forget(name)

    # --- Finding ------------------------------------------------------------------------------------------------------

    def find(self, parts: Sequence[str]) -> tuple[str, Handle] | None:
        """The connector and the handle of a table; None where there is no such table."""
        found = self._registered.get(_folded(parts))
        if found is not None or len(parts) < 2:
            return found
        first, *rest = parts
        for name, connector in list(self.connectors.items()):  # others may attach meanwhile
            if name.casefold() == first.casefold() and name not in (_LAKE, _MEMORY):
                handle = connector.table(tuple(rest))
                if handle is None:
                    return None
                # A policy is about a table, whichever of its names a query uses, and however that is spelled.
                others = [f"{name}.{other}" for other in _own_names(connector, handle, rest)]
                with self._lock:
                    self._know_as(name, handle, (*others, ".".join((name, *rest))))
                return name, handle
        return None

    def unregistered(self) -> UnregisteredTables:
        """The tables that a query names without their being registered here."""
        return UnregisteredTables(self._opener, dict(self._lake_catalogs), self._earlier, self._source_of)

    def _source_of(self, parts: tuple[str, ...]) -> tuple[TableSource, Sequence[str]] | None:
        found = self.find(parts)
        if found is None:
            return None
        name, handle = found
        if not isinstance(handle, LakeHandle):
            raise UnsupportedFeature(f"{'.'.join(parts)} is no table of a lake, so that it has no versions")
        return handle.source, self._known_as[name, handle]

    def scan(
        self,
        parts: tuple[str, ...],
        symbols: Symbols,
        others: UnregisteredTables,
        protect: Callable[[TableScan, Sequence[str]], Node],
    ) -> Planned | None:
        """All of a table, registered or one of the others, as somebody may see it: `protect` is given its names."""
        found = self.find(parts)
        if found is not None:
            name, handle = found
            names: Sequence[str] = self._known_as.get((name, handle), [])
        else:
            other = others.find(parts)
            if other is None:
                self._refuse(parts)
                return None
            name, (handle, names) = _LAKE, other
        schema = self.connectors[name].columns(handle)
        named = symbols.fresh_scan(parts[-1] if "/" not in parts[-1] else "table", schema.names)
        columns = (Output(symbol, _value_type(field)) for symbol, field in zip(named, schema, strict=True))
        node = protect(TableScan(name, handle, tuple(columns)), names)
        outputs = outputs_of(node)
        fields = (Field.of(column, output.name, output.type)
                  for column, output in zip(schema.names, outputs, strict=True))  # fmt: skip
        return Planned(node, tuple(fields))

    def doubles_of(self, scan: TableScan) -> Sequence[Sequence[str]]:
        """The names of a table in each other database of the session that is the same one, attached again, and those
        under which a table of a lake is registered besides."""
        if isinstance(scan.handle, LakeHandle):
            return self.names_around(scan.handle.source)
        others = [name for name in self._attached() if name != scan.connector]
        identity = self._identity_of(scan.connector) if others else None
        own = self.connectors[scan.connector].names(scan.handle)
        found: list[Sequence[str]] = []
        for name in others if identity is not None and own else ():
            connector = self.connectors[name]
            if self._identity_of(name) == identity:
                means_it = connector.table((own[0],)) == scan.handle
                found.append([f"{name}.{each}" for each in (own if means_it else reversed(own))])
        return found

    def names_around(self, source: TableSource) -> Sequence[Sequence[str]]:
        """The names of registered tables of lakes that a table is, or is a part of."""
        place = _real_place(source)
        return [
            names
            for (_, handle), names in list(self._known_as.items())  # others may register meanwhile
            if isinstance(handle, LakeHandle) and f"{place}/".startswith(f"{_real_place(handle.source)}/")
        ]

    def _identity_of(self, name: str) -> Hashable:
        try:
            return self.connectors[name].identity()
        except TableError as error:
            raise TableError(
                f"the database {name!r} does not tell which one it is, and policies follow a database to all of its "
                f"names: {error}; attach it anew, or leave it out of the session"
            ) from error

    def table_names(self) -> list[str]:
        """The names of all tables, as far as those who have them tell."""
        attached = (f"{name}.{table}" for name in self._databases() for table in self._names_in(name))
        return sorted((*self._given_names(), *attached))

    def _databases(self) -> list[str]:
        return [*self._attached(), *list(self._lake_catalogs)]

    def _names_in(self, database: str) -> Sequence[str]:
        return (self._lake_catalogs.get(database) or self.connectors[database]).table_names()

    def _given_names(self) -> list[str]:
        return list(self._spelled.values())

    def _attached(self) -> list[str]:
        return [name for name in list(self.connectors) if name not in (_LAKE, _MEMORY)]

    def _refuse(self, parts: Sequence[str]) -> None:
        name = ".".join(parts)
        attached = self._databases()
        database = next((each for each in attached if len(parts) > 1 and _same(each, parts[0])), None)
        if database is not None:
            known = list(self._names_in(database))
            raise TableNotFound(f"no table {'.'.join(parts[1:])!r} in {database}.{_near(parts[-1], known, database)}")
        if len(parts) == 1 and (meant := next((each for each in attached if _same(each, name)), None)):
            tables = _near("", [f"{meant}.{each}" for each in self._names_in(meant)])
            raise TableNotFound(f"{meant} is a database and no table: write {meant}.table.{tables}")
        near = _near(name, self._given_names())
        if len(parts) > 1 and attached:
            close = difflib.get_close_matches(parts[0].casefold(), attached, n=1, cutoff=0.6)
            hint = f" Did you mean {'.'.join((close[0], *parts[1:]))!r}?" if close else ""
            near = f"{hint or near} Databases: {', '.join(sorted(attached))}."
        raise TableNotFound(
            f"no table {name!r} in this session.{near} Register one with c.register(name, table), or write {BY_PLACE}"
        )


BY_PLACE = "delta.`path`, iceberg.`path` or parquet.`path`"
"""How a query names tables that nobody registered."""


def _own_names(connector: Connector, handle: Handle, asked: Sequence[str]) -> Sequence[str]:
    """The names that a connector has for a table. The first means this table alone: a function that is asked for a
    policy is given no other."""
    short, *longer = connector.names(handle) or (".".join(asked),)
    means_it = len(asked) == 1 or connector.table((asked[-1],)) == handle
    return (short, *longer) if means_it else (*longer, short)


def _real_place(source: TableSource) -> str:
    """Where a table is, with links followed."""
    uri = source.storage.uri
    return os.path.realpath(uri) if source.storage.is_local else uri.rstrip("/")


def _value_type(field: Any) -> Any:
    import pyarrow as pa

    return field.type.value_type if pa.types.is_dictionary(field.type) else field.type


def parts_of_name(name: str) -> tuple[str, ...]:
    """The parts of a name, between dots that stand outside of back-ticks.

    >>> parts_of_name("sales.orders"), parts_of_name("delta.`/lake/a.b`")
    (('sales', 'orders'), ('delta', '/lake/a.b'))
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidArgument(f"a table needs a name, not {name!r}")
    if lone_surrogate(name) is not None:
        raise InvalidArgument(f"the name {name!r} has half of a surrogate pair, which is not valid Unicode")
    parts, is_quoted = [""], False
    for sign in name:
        if sign == "`":
            is_quoted = not is_quoted
        elif sign == "." and not is_quoted:
            parts.append("")
        else:
            parts[-1] += sign
    if not all(parts):
        raise InvalidArgument(f"{name!r} is no name of a table: it has an empty part")
    return tuple(parts)


def _near(name: str, known: Sequence[str], prefix: str = "") -> str:
    """What may have been meant, and what there is."""
    near = difflib.get_close_matches(name.casefold(), [each.casefold() for each in known], n=1, cutoff=0.6)
    meant = next((each for each in known if near and each.casefold() == near[0]), None)
    full = f"{prefix}.{meant}" if prefix else meant
    shown = sorted(known)[:_SHOWN_TABLES]
    more = f", … {len(known) - len(shown)} more" if len(known) > len(shown) else ""
    return (f" Did you mean {full!r}?" if meant else "") + (f" Tables: {', '.join(shown)}{more}." if shown else "")


def _same(one: str, other: str) -> bool:
    return one.casefold() == other.casefold()


def _folded(parts: Sequence[str]) -> tuple[str, ...]:
    return tuple(part.casefold() for part in parts)
