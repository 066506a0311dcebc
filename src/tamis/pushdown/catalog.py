"""The tables of a session, by name: those that were registered, and those of attached connectors."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Sequence
from typing import Any

from tamis.errors import InvalidArgument, TableError, TableNotFound
from tamis.pushdown.connector import Connector, Handle
from tamis.pushdown.connectors.lake import LakeConnector
from tamis.pushdown.connectors.memory import MemoryConnector
from tamis.pushdown.nodes import Node, Output, TableScan, outputs_of
from tamis.pushdown.scopes import Field
from tamis.pushdown.sql_sources import Planned
from tamis.pushdown.symbols import Symbols
from tamis.tables.source import TableSource

_LAKE, _MEMORY = "lake", "memory"
_SHOWN_TABLES = 12


class Catalog:
    """Names of tables, and the connectors that they belong to."""

    def __init__(self, open_path: Callable[[str, str], TableSource]) -> None:
        self._lake = LakeConnector(_LAKE)
        self._memory = MemoryConnector(_MEMORY)
        self.connectors: dict[str, Connector] = {_LAKE: self._lake, _MEMORY: self._memory}
        self._open_path = open_path
        self._registered: dict[tuple[str, ...], tuple[str, Handle]] = {}
        self._spelled: dict[tuple[str, ...], str] = {}
        self._known_as: dict[tuple[str, Handle], list[str]] = {}
        self._by_place: set[tuple[str, ...]] = set()
        """Tables that a query named by their place: nobody gave them a name."""

    def register_source(self, name: str, source: TableSource, others: Sequence[str] = ()) -> None:
        """Let a table of a lake be known by a name, in place of another that had it; `others` it is known by too."""
        parts = parts_of_name(name)
        self._lake.add(parts, source)
        self._remember(parts, _LAKE, self._lake.table(parts), *others)

    def register_rows(self, name: str, rows: Any) -> None:
        """Let rows in memory be known by a name."""
        parts = parts_of_name(name)
        self._remember(parts, _MEMORY, self._memory.add(".".join(parts), rows))

    def attach(self, name: str, connector: Connector) -> None:
        """Let the tables of a connector be known as `name.table`."""
        if not isinstance(name, str) or not name.strip() or "." in name:
            raise InvalidArgument(f"a database is attached under a name without dots, not {name!r}")
        if name.casefold() in map(str.casefold, self.connectors):
            raise InvalidArgument(f"there is something called {name!r} already: attach it under another name")
        if isinstance(connector, type):
            raise InvalidArgument(f"{connector.__name__} is a class: attach a connector that was made of it")
        missing = [call for call in vars(Connector) if call[0] != "_" and not hasattr(connector, call)]
        if missing:
            raise InvalidArgument(
                f"the connector {type(connector).__name__} has no {missing[0]}(): derive it from "
                "tamis.pushdown.connector.Connector, which says no to whatever you leave out"
            )
        self.connectors[name] = connector

    def _remember(self, parts: tuple[str, ...], connector: str, handle: Handle, *others: str) -> None:
        assert handle is not None
        self._registered[_folded(parts)] = connector, handle
        self._spelled[_folded(parts)] = ".".join(parts)
        known = self._known_as.setdefault((connector, handle), [])
        known += [name for name in (".".join(parts), *others) if name not in known]

    # --- Finding ------------------------------------------------------------------------------------------------------

    def find(self, parts: Sequence[str]) -> tuple[str, Handle] | None:
        """The connector and the handle of a table; None where there is no such table."""
        found = self._registered.get(_folded(parts))
        if found is not None or len(parts) < 2:
            return found
        first, *rest = parts
        for name, connector in self.connectors.items():
            if name.casefold() == first.casefold() and name not in (_LAKE, _MEMORY):
                handle = connector.table(tuple(rest))
                if handle is None:
                    return None
                known = self._known_as.setdefault((name, handle), [])
                # A policy is about a table, whichever of its names a query uses, and however that is spelled.
                others = [f"{name}.{other}" for other in _own_names(connector, handle, rest)]
                known += [full for full in (*others, ".".join((name, *rest))) if full not in known]
                return name, handle
        if first.casefold() in ("delta", "iceberg", "parquet", "hive") and len(rest) == 1:
            # As in Spark, a path between back-ticks after the name of a format is a table.
            format = first.casefold()
            source = self._open_path(rest[0], format if format != "parquet" else "")
            self.register_source(f"{format}.`{rest[0]}`", source, [source.storage.uri])
            self._by_place.add(_folded((format, rest[0])))
            return self._registered.get(_folded((first, rest[0])))
        return None

    def scan(self, parts: tuple[str, ...], symbols: Symbols, protect: Callable[[TableScan], Node]) -> Planned | None:
        """All of a table, as somebody may see it."""
        found = self.find(parts)
        if found is None:
            self._refuse(parts)
            return None
        name, handle = found
        schema = self.connectors[name].columns(handle)
        named = symbols.fresh_scan(parts[-1] if "/" not in parts[-1] else "table", schema.names)
        columns = (Output(symbol, _value_type(field)) for symbol, field in zip(named, schema, strict=True))
        node = protect(TableScan(name, handle, tuple(columns)))
        outputs = outputs_of(node)
        fields = (Field.of(column, output.name, output.type)
                  for column, output in zip(schema.names, outputs, strict=True))  # fmt: skip
        return Planned(node, tuple(fields))

    def names_of(self, scan: TableScan) -> Sequence[str]:
        """All names under which a table is known."""
        return self._known_as.get((scan.connector, scan.handle), [])

    def doubles_of(self, scan: TableScan) -> Sequence[Sequence[str]]:
        """The names of a table in each other database of the session that is the same one, attached again."""
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
        attached = (f"{name}.{table}" for name in self._attached() for table in self.connectors[name].table_names())
        return sorted((*self._given_names(), *attached))

    def _given_names(self) -> list[str]:
        return [name for parts, name in self._spelled.items() if parts not in self._by_place]

    def _attached(self) -> list[str]:
        return [name for name in self.connectors if name not in (_LAKE, _MEMORY)]

    def _refuse(self, parts: Sequence[str]) -> None:
        name = ".".join(parts)
        attached = self._attached()
        database = next((each for each in attached if len(parts) > 1 and _same(each, parts[0])), None)
        if database is not None:
            known = list(self.connectors[database].table_names())
            raise TableNotFound(f"no table {'.'.join(parts[1:])!r} in {database}.{_near(parts[-1], known, database)}")
        if len(parts) == 1 and (meant := next((each for each in attached if _same(each, name)), None)):
            tables = _near("", [f"{meant}.{each}" for each in self.connectors[meant].table_names()])
            raise TableNotFound(f"{meant} is a database and no table: write {meant}.table.{tables}")
        near = _near(name, self._given_names())
        if len(parts) > 1 and attached:
            close = difflib.get_close_matches(parts[0].casefold(), attached, n=1, cutoff=0.6)
            hint = f" Did you mean {'.'.join((close[0], *parts[1:]))!r}?" if close else ""
            near = f"{hint or near} Databases: {', '.join(sorted(attached))}."
        raise TableNotFound(
            f"no table {name!r} in this session.{near} Register one with c.register(name, table), or write "
            "delta.`path`, iceberg.`path` or parquet.`path`"
        )


def _own_names(connector: Connector, handle: Handle, asked: Sequence[str]) -> Sequence[str]:
    """The names that a connector has for a table. The first means this table alone: a function that is asked for a
    policy is given no other."""
    short, *longer = connector.names(handle) or (".".join(asked),)
    means_it = len(asked) == 1 or connector.table((asked[-1],)) == handle
    return (short, *longer) if means_it else (*longer, short)


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
