"""The tables of a session by name: registered tables, and the tables of attached connectors and catalogs."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from pathlib import Path
from threading import Lock
from typing import Any, Protocol, TypeVar

from sqlglot import exp

from tamis.errors import InvalidArgument, TableError, TableNotFound, TamisError, UnsupportedFeature, find_lone_surrogate
from tamis.expr.names import decode_type
from tamis.expr.nodes import TRUE, Unbound
from tamis.formats.open_source import FORMATS, AttachedCatalog
from tamis.formats.source import TableSource, Versioned
from tamis.query.connectors.connector import Connector, Handle
from tamis.query.connectors.database_connector import DatabaseConnector
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.connectors.lake_handle import LakeHandle
from tamis.query.connectors.memory_connector import FrameRows, MemoryConnector
from tamis.query.plan.column_ids import ColumnIds
from tamis.query.plan.nodes import Node, Output, TableScan, get_outputs
from tamis.query.policies import Policies, apply_policies
from tamis.query.policies.protected_reading import REVEALING_ERRORS, UNREADABLE
from tamis.query.policies.reach import refuse_outside_access, refuse_system_tables
from tamis.query.rules import collect_rules
from tamis.query.sql.scopes import Field, fold_parts, is_same_name
from tamis.query.sql.sources import PlannedSource
from tamis.query.sql.table_versions import TableState, split_table_state

_LAKE, _MEMORY = "lake", "memory"
_SHOWN_TABLES = 12

Found = TypeVar("Found")


class Catalog:
    """Table names and the connector that each one belongs to. It is safe to use from several threads."""

    def __init__(self, opener: Opener, find_frame: Callable[[Sequence[str]], FrameRows | None] | None = None) -> None:
        self._find_frame = find_frame
        """Finds a view or table of a Spark session."""
        self._lake = LakeConnector(_LAKE)
        self._memory = MemoryConnector(_MEMORY)
        self.connectors: dict[str, Connector] = {_LAKE: self._lake, _MEMORY: self._memory}
        self._opener = opener
        self._lake_catalogs: dict[str, AttachedCatalog] = {}
        self._earlier = OpenedTableCache()
        self._registered: dict[tuple[str, ...], tuple[str, Handle]] = {}
        self._spellings: dict[tuple[str, ...], str] = {}
        self._names: dict[tuple[str, Handle], list[str]] = {}
        self._lock = Lock()
        """Held while names change, but never while a table or a database is read."""

    def register_source(self, name: str, source: TableSource, others: Sequence[str] = ()) -> None:
        """Register a lake table under a name, replacing an earlier table of that name; `others` are its aliases."""
        parts = split_table_name(name)
        self._store(parts, _LAKE, self._lake.add(parts, source), *others)

    def register_rows(self, name: str, rows: Any) -> None:
        parts = split_table_name(name)
        self._store(parts, _MEMORY, self._memory.add(".".join(parts), rows))

    def attach(self, name: str, connector: Connector) -> None:
        """Attach a connector, so that queries name its tables as `name.table`."""
        if isinstance(connector, type):
            raise InvalidArgument(f"expected a connector, found the class {connector.__name__}: attach an instance")
        missing = [call for call in vars(Connector) if call[0] != "_" and not hasattr(connector, call)]
        if missing:
            raise InvalidArgument(
                f"the connector {type(connector).__name__} has no {missing[0]}(): derive it from "
                "tamis.query.connectors.connector.Connector, which has a default for every method"
            )
        with self._lock:
            self._check_name_is_free(name)
            collect_rules({**self.connectors, name: connector})
            self.connectors[name] = connector

    def attach_lake(self, name: str, catalog: AttachedCatalog) -> None:
        """Attach a catalog of lake tables, so that queries name its tables as `name.namespace.table`."""
        with self._lock:
            self._check_name_is_free(name)
            self._lake_catalogs[name] = catalog

    def _check_name_is_free(self, name: str) -> None:
        if not isinstance(name, str) or not name.strip() or "." in name:
            raise InvalidArgument(f"a database needs a non-empty name without dots, found {name!r}")
        if name.casefold() in map(str.casefold, (*self.connectors, *self._lake_catalogs, *FORMATS)):
            raise InvalidArgument(f"the name {name!r} is already in use: attach the database under another name")

    def _store(self, parts: tuple[str, ...], connector: str, handle: Handle, *others: str) -> None:
        with self._lock:
            self._registered[fold_parts(parts)] = connector, handle
            self._spellings[fold_parts(parts)] = ".".join(parts)
            self._add_names(connector, handle, (".".join(parts), *others))

    def _add_names(self, connector: str, handle: Handle, names: Sequence[str]) -> None:
        known = self._names.get((connector, handle), [])
        # A new list, because other threads may be iterating over the old one.
        self._names[connector, handle] = [*known, *(name for name in dict.fromkeys(names) if name not in known)]

    def unregister(self, name: str) -> None:
        parts = fold_parts(split_table_name(name))
        with self._lock:
            known = self._registered.pop(parts, None)
            if known is not None:
                del self._spellings[parts]
                self._names.pop(known, None)
        if known is None:
            raise TableNotFound(f"no table {name!r} is registered.{_suggest(name, self._list_registered())}")

    def detach(self, name: str) -> None:
        found = next((each for each in self._list_databases() if is_same_name(each, name)), None)
        if found is None:
            attached = ", ".join(sorted(self._list_databases())) or "nothing"
            raise InvalidArgument(f"nothing is attached as {name!r}; attached: {attached}")
        self._remove(found)

    def _remove(self, name: str) -> None:
        self._earlier.forget()
        with self._lock:
            is_lake = self._lake_catalogs.pop(name, None) is not None
            connector = None if is_lake else self.connectors.pop(name, None)
        close = getattr(connector, "close", None)
        if close is not None:
            close()

    def detach_all(self) -> None:
        for name in self._list_databases():
            self._remove(name)

    # --- Finding ------------------------------------------------------------------------------------------------------

    def find(self, parts: Sequence[str]) -> tuple[str, Handle] | None:
        """Return a table's connector name and handle; None if there is no such table."""
        found = self._registered.get(fold_parts(parts))
        if found is not None or len(parts) < 2:
            return found
        first, *rest = parts
        for name, connector in list(self.connectors.items()):  # other threads may attach meanwhile
            if name.casefold() == first.casefold() and name not in (_LAKE, _MEMORY):
                handle = connector.table(tuple(rest))
                if handle is None:
                    return None
                # A policy applies to a table under each of its names, however a query spells them.
                others = [f"{name}.{other}" for other in _order_names(connector, handle, rest)]
                with self._lock:
                    self._add_names(name, handle, (*others, ".".join((name, *rest))))
                return name, handle
        return None

    def check_spelling(self, parts: Sequence[str]) -> None:
        """Raise TableNotFound if a registered table has this name in another case."""
        if self._spellings.get(fold_parts(parts), ".".join(parts)) != ".".join(parts):
            raise self._make_not_found_error(parts)

    def _find_in_spark(self, parts: Sequence[str]) -> tuple[str, Handle] | None:
        """Return a view or table of the Spark session that no table of this session hides."""
        rows = None if self._find_frame is None else self._find_frame(parts)
        if rows is None:
            return None
        known = self._memory.table(tuple(parts))
        before = None if known is None else self._memory.get_frame(known)
        # The view may have been replaced.
        if known is None or before is None or not before.sameSemantics(rows.frame):
            known = self._memory.add(".".join(parts), rows)
        return _MEMORY, known

    def make_resolver(self) -> UnregisteredTables:
        """Return a resolver for tables that a query names without registering them."""
        return UnregisteredTables(self._opener, dict(self._lake_catalogs), self._earlier, self._find_source)

    def _find_source(self, parts: tuple[str, ...]) -> tuple[TableSource, Sequence[str]] | None:
        found = self.find(parts)
        if found is None:
            return None
        name, handle = found
        if not isinstance(handle, LakeHandle):
            raise UnsupportedFeature(
                f"{'.'.join(parts)} is not a lake table and has no versions: query its current state"
            )
        return handle.source, self._names[name, handle]

    def scan(
        self,
        parts: tuple[str, ...],
        column_ids: ColumnIds,
        others: UnregisteredTables,
        protect: Callable[[TableScan, Sequence[str]], Node],
    ) -> PlannedSource:
        """Return the scan of a whole table as the user may see it; raise TableNotFound if there is no such table.

        `others` resolves unregistered tables. `protect` applies policies to the scan, for all names of the table.
        """
        found = self.find(parts)
        other = others.find(parts) if found is None else None
        found = (_LAKE, other[0]) if other is not None else found or self._find_in_spark(parts)
        if found is None:
            raise self._make_not_found_error(parts)
        name, handle = found
        names = other[1] if other is not None else self._names.get((name, handle), [".".join(parts)])
        schema = self.connectors[name].columns(handle)
        named = column_ids.allocate_scan(parts[-1] if "/" not in parts[-1] else "table", schema.names)
        columns = (Output(column_id, decode_type(field.type)) for column_id, field in zip(named, schema, strict=True))
        node = protect(TableScan(name, handle, tuple(columns)), names)
        outputs = get_outputs(node)
        fields = (Field.of(column, output.name, output.type)
                  for column, output in zip(schema.names, outputs, strict=True))  # fmt: skip
        return PlannedSource(node, tuple(fields))

    def find_duplicate_names(self, scan: TableScan) -> Sequence[Sequence[str]]:
        """Return the other names of the scanned table: one list for each other alias of its database, or for each
        registered lake table whose folder contains it."""
        if isinstance(scan.handle, LakeHandle):
            return self.find_enclosing_names(scan.handle.source)
        others = [name for name in self._list_connectors() if name != scan.connector]
        identity = self._identify(scan.connector) if others else None
        own = self.connectors[scan.connector].names(scan.handle)
        found: list[Sequence[str]] = []
        for name in others if identity is not None and own else ():
            connector = self.connectors[name]
            if self._identify(name) == identity:
                means_it = connector.table((own[0],)) == scan.handle
                found.append([f"{name}.{each}" for each in (own if means_it else reversed(own))])
        return found

    def find_enclosing_names(self, source: TableSource) -> Sequence[Sequence[str]]:
        """Return the names of each registered lake table whose location is, or contains, that of `source`."""
        location = _resolve_location(source)
        return [
            names
            for (_, handle), names in list(self._names.items())  # other threads may register meanwhile
            if isinstance(handle, LakeHandle) and f"{location}/".startswith(f"{_resolve_location(handle.source)}/")
        ]

    def _identify(self, name: str) -> Hashable:
        try:
            return self.connectors[name].identity()
        except TableError as error:
            raise TableError(
                f"cannot identify the database {name!r}, which policies need because they apply to a database under "
                f"each of its names: {error}; attach it again, or leave it out of the session"
            ) from error

    def table_names(self) -> list[str]:
        """Return the names of all tables that are registered or that an attached database can list."""
        attached = (f"{name}.{table}" for name in self._list_databases() for table in self._list_tables(name))
        return sorted((*self._list_registered(), *attached))

    def _list_databases(self) -> list[str]:
        return [*self._list_connectors(), *list(self._lake_catalogs)]

    def _list_tables(self, database: str) -> Sequence[str]:
        return (self._lake_catalogs.get(database) or self.connectors[database]).table_names()

    def _list_registered(self) -> list[str]:
        return list(self._spellings.values())

    def _list_connectors(self) -> list[str]:
        return [name for name in list(self.connectors) if name not in (_LAKE, _MEMORY)]

    def _make_not_found_error(self, parts: Sequence[str]) -> TableNotFound:
        name = ".".join(parts)
        attached = self._list_databases()
        database = next((each for each in attached if len(parts) > 1 and is_same_name(each, parts[0])), None)
        if database is not None:
            known = list(self._list_tables(database))
            return TableNotFound(
                f"no table {'.'.join(parts[1:])!r} in {database}.{_suggest(parts[-1], known, database)}"
            )
        if len(parts) == 1 and (meant := next((each for each in attached if is_same_name(each, name)), None)):
            tables = _suggest("", [f"{meant}.{each}" for each in self._list_tables(meant)])
            return TableNotFound(f"{meant} is a database, not a table: write {meant}.table.{tables}")
        near = _suggest(name, self._list_registered())
        if len(parts) > 1 and attached:
            close = difflib.get_close_matches(parts[0].casefold(), attached, n=1, cutoff=0.6)
            hint = f" Did you mean {'.'.join((close[0], *parts[1:]))!r}?" if close else ""
            near = f"{hint or near} Databases: {', '.join(sorted(attached))}."
        return TableNotFound(
            f"no table {name!r} in this session.{near} Register one with c.register(name, table), or write "
            f"{TABLE_BY_PATH_SYNTAX}"
        )


TABLE_BY_PATH_SYNTAX = " or ".join((", ".join(f"{each}.`path`" for each in FORMATS[:-1]), f"{FORMATS[-1]}.`path`"))
"""How a query names unregistered tables."""


def _order_names(connector: Connector, handle: Handle, asked: Sequence[str]) -> Sequence[str]:
    """Return a connector's names for a table. The first is unambiguous: a policy function receives only that one."""
    short, *longer = connector.names(handle) or (".".join(asked),)
    means_it = len(asked) == 1 or connector.table((asked[-1],)) == handle
    return (short, *longer) if means_it else (*longer, short)


def _resolve_location(source: TableSource) -> str:
    """Return the location of a table with symbolic links resolved."""
    uri = source.storage.uri
    return os.path.realpath(uri) if source.storage.is_local else uri.rstrip("/")


def split_table_name(name: str) -> tuple[str, ...]:
    """Split a table name at the dots outside of back-ticks.

    >>> split_table_name("sales.orders"), split_table_name("delta.`/lake/a.b`")
    (('sales', 'orders'), ('delta', '/lake/a.b'))
    """
    if not isinstance(name, str) or not name.strip():
        raise InvalidArgument(f"expected a table name, found {name!r}")
    if find_lone_surrogate(name) is not None:
        raise InvalidArgument(f"the table name {name!r} is not valid Unicode: it has half of a surrogate pair")
    parts, is_quoted = [""], False
    for sign in name:
        if sign == "`":
            is_quoted = not is_quoted
        elif sign == "." and not is_quoted:
            parts.append("")
        else:
            parts[-1] += sign
    if not all(parts):
        raise InvalidArgument(f"invalid table name {name!r}: it has an empty part between dots")
    return tuple(parts)


def _suggest(name: str, known: Sequence[str], prefix: str = "") -> str:
    """Return the end of a "not found" message: the closest name, and the names that exist."""
    near = difflib.get_close_matches(name.casefold(), [each.casefold() for each in known], n=1, cutoff=0.6)
    meant = next((each for each in known if near and each.casefold() == near[0]), None)
    full = f"{prefix}.{meant}" if prefix else meant
    names = sorted(set(known))
    shown = names[:_SHOWN_TABLES]
    more = f", … {len(names) - len(shown)} more" if len(names) > len(shown) else ""
    return (f" Did you mean {full!r}?" if meant else "") + (f" Tables: {', '.join(shown)}{more}." if shown else "")


# --- Unregistered lake tables that a query names directly -------------------------------------------------------------
#
# | in the query                                    | what it is                                              |
# |-------------------------------------------------|---------------------------------------------------------|
# | ``delta.`s3://lake/orders` ``                   | a table by its location                                 |
# | `prod.shop.orders`                              | a table of an Iceberg catalog attached as `prod`        |
# | `orders VERSION AS OF 3`, `… TIMESTAMP AS OF …` | an earlier state of a table, registered or not          |
#
# A query opens each table once, in its newest state. Tables that earlier queries opened are only refreshed.

Name = tuple[str, ...]

MAX_CACHED_TABLES = 64
"""The maximum number of cached tables of earlier queries."""


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
        if first.casefold() in FORMATS and len(rest) == 1:
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
        if known is None or not (isinstance(then, Versioned) and then.is_same_state(known)):
            return then, names
        # The known source has the metadata of that state cached.
        return known, names


def _make_cache_key(name: Name) -> Name:
    """Return the cache key of a name. A relative path depends on the working directory."""
    is_relative = name[0].casefold() in FORMATS and "://" not in name[-1] and not Path(name[-1]).is_absolute()
    return (*name, str(Path.cwd())) if is_relative else name


# --- The tables of a session as a principal sees them -----------------------------------------------------------------


class VisibleTables:
    """Resolves tables, and applies their policies directly above their scans."""

    def __init__(self, catalog: Catalog, policies: Policies | None, principal: str | None) -> None:
        self._catalog = catalog
        self._others = catalog.make_resolver()
        self._policies = policies
        self._principal = principal
        self._filtered: dict[tuple[str, ...], tuple[tuple[str, ...], Unbound]] = {}

    @property
    def has_policies(self) -> bool:
        return self._policies is not None

    def check(self, text: str, tree: exp.Expr) -> None:
        if self._policies is not None:
            refuse_outside_access(text, tree)

    def find_source(self, name: tuple[str, ...]) -> TableSource | None:
        found = self._catalog.find(name) or ("", (self._redact(lambda: self._others.find(name)) or (None,))[0])
        return found[1].source if isinstance(found[1], LakeHandle) else None

    def add_partition_filter(self, name: tuple[str, ...], filtered: tuple[str, ...], where: Unbound) -> None:
        self._filtered[filtered] = name, where

    def scan(self, name: tuple[str, ...], column_ids: ColumnIds) -> PlannedSource:
        name, where = self._filtered.get(name, (name, TRUE))
        protect = partial(self._apply_policies, where=where)
        return self._redact(lambda: self._catalog.scan(name, column_ids, self._others, protect))

    def _redact(self, find: Callable[[], Found]) -> Found:
        try:
            return find()
        except (*REVEALING_ERRORS, UnsupportedFeature):
            # A database may read values to find the type of a column, so its error may reveal them.
            if self._policies is None:
                raise
            raise TableError(UNREADABLE) from None

    def _apply_policies(self, scan: TableScan, names: Sequence[str], where: Unbound) -> Node:
        connector = self._catalog.connectors[scan.connector]
        doubles: Sequence[Sequence[str]] = ()
        if self._policies is not None:
            if isinstance(connector, DatabaseConnector):
                prefix = connector.database.dialect.system_prefix
                refuse_system_tables(scan.connector, connector.names(scan.handle), prefix)
            doubles = self._catalog.find_duplicate_names(scan)
        return apply_policies(scan, self._policies, self._principal, connector, names, doubles, where)
