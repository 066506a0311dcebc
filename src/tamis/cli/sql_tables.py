"""The tables that `tamis sql` is given, and the session that knows them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from tamis.cli.export import refuse_to_overwrite
from tamis.errors import TableNotFound
from tamis.pushdown.connectors.lake_handle import LakeHandle
from tamis.pushdown.nodes import TableScan, walk_plan
from tamis.pushdown.query import Query, compiled_query
from tamis.session import Session, connect
from tamis.table import Table, open_table


class GivenTables:
    """Tables, databases and a catalog as the command line names them."""

    def __init__(
        self,
        uris: Sequence[str],
        tables: Mapping[str, str],
        attached: Mapping[str, str],
        catalog: Mapping[str, str] | str | None,
        options: Mapping[str, Any],
    ) -> None:
        self._uris = uris
        self._tables = tables
        self._attached = attached
        self._catalog = catalog
        self._options = options

    def session(self, policies: str | None, principal: str | None) -> Session:
        """A session that knows all of them."""
        session = connect(policies=policies, storage_options=self._options["storage_options"])
        if principal is not None:
            session = session.as_principal(principal)
        named: dict[str, str] = {}
        for uri in self._uris:
            table = self._open(uri)
            other = named.setdefault(table.name.casefold(), uri)
            if other is not uri:
                raise click.UsageError(
                    f"{other} and {uri} are both called {table.name!r}: name one with --table NAME=URI"
                )
            for name in _names(table):
                session.register(name, table)
        for name, uri in self._tables.items():
            # Policies apply when it is queried, by this name too.
            session.register(name, self._open(uri))
        for name, uri in self._attached.items():
            session.attach(name, uri)
        if self._catalog is not None:
            name = self._catalog if isinstance(self._catalog, str) else self._catalog.get("name", "catalog")
            options = {each: self._options[each] for each in ("relocate", "allow_outside")}
            session.attach(name, catalog=self._catalog, **options)
        return session

    def _open(self, uri: str) -> Table:
        is_in_catalog = self._catalog is not None and "/" not in uri and not Path(uri).exists()
        return open_table(uri, **self._options, catalog=self._catalog if is_in_catalog else None)

    def refuse_to_overwrite(self, query: Query, output: str) -> None:
        """Raise where a file would be written over what the query reads, or into it."""
        for node in walk_plan(compiled_query(query).plan):
            match node:
                case TableScan(handle=LakeHandle(source=source)):
                    refuse_to_overwrite(source.storage.uri, output, files=Table(source).files)
        for uri in (*self._uris, *self._tables.values()):
            refuse_to_overwrite(uri, output)
        for uri in self._attached.values():
            scheme, sign, path = uri.partition("://")
            if not sign or scheme in ("sqlite", "duckdb"):
                # Three slashes stand before a relative path, and four before one from the root.
                refuse_to_overwrite(path.removeprefix("/") if sign else uri, output)


def _names(table: Table) -> list[str]:
    """How a query may call a table that has no other name; a single file also without its ending, or with it."""
    if table.format != "parquet":
        return [f"`{table.name}`"]
    stem, _, ending = table.name.rpartition(".")
    return [f"`{table.name}`", *([f"`{stem}`", f"`{stem}`.`{ending}`"] if stem else [])]


_NOT_GIVEN = re.compile(r"no table '([^']+)' in this session")


def about_places(error: TableNotFound) -> TableNotFound:
    """That a table was not given whose folder is right here, if that is so: the first mistake that people make."""
    found = _NOT_GIVEN.match(str(error))
    if found is None or not Path(found[1]).exists():
        return error
    # A table is known by the name of its folder.
    name = Path(found[1]).name if Path(found[1]).is_dir() else Path(found[1]).stem
    return TableNotFound(
        f"the table {found[1]!r} was not given: put its place behind the query, as in "
        f'tamis sql "SELECT * FROM {name}" {found[1]}'
    )
