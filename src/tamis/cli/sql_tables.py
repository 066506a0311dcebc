"""The tables of a `tamis sql` command, and the session that queries them."""

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
    """The tables, databases and the catalog of a command line."""

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
        """Create a session with all of the tables, databases and the catalog."""
        session = connect(policies=policies, storage_options=self._options["storage_options"])
        if principal is not None:
            session = session.as_principal(principal)
        named: dict[str, str] = {}
        for uri in self._uris:
            table = self._open(uri)
            other = named.setdefault(table.name.casefold(), uri)
            if other is not uri:
                raise click.UsageError(
                    f"{other} and {uri} are both named {table.name!r}: name one of them with --table NAME=URI"
                )
            for name in _find_names(table):
                session.register(name, table)
        for name, uri in self._tables.items():
            # Policies apply when the table is queried, under this name too.
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
        """Raise an error if the output would overwrite, or be inside of, a table that the query reads."""
        for node in walk_plan(compiled_query(query).plan):
            match node:
                case TableScan(handle=LakeHandle(source=source)):
                    refuse_to_overwrite(source.storage.uri, output, files=Table(source).files)
        for uri in (*self._uris, *self._tables.values()):
            refuse_to_overwrite(uri, output)
        for uri in self._attached.values():
            scheme, sign, path = uri.partition("://")
            if not sign or scheme in ("sqlite", "duckdb"):
                # Three slashes precede a relative path, four an absolute one.
                refuse_to_overwrite(path.removeprefix("/") if sign else uri, output)


def _find_names(table: Table) -> list[str]:
    """Return the names under which a query finds a table: for a single file, with and without its extension."""
    if table.format != "parquet":
        return [f"`{table.name}`"]
    stem, _, ending = table.name.rpartition(".")
    return [f"`{table.name}`", *([f"`{stem}`", f"`{stem}`.`{ending}`"] if stem else [])]


_NOT_GIVEN = re.compile(r"no table '([^']+)' in this session")


def about_places(error: TableNotFound) -> TableNotFound:
    """Return an error that suggests to pass the URI, if a missing table is a local path; else the same error.

    Forgetting the URI is the most common mistake.
    """
    found = _NOT_GIVEN.match(str(error))
    if found is None or not Path(found[1]).exists():
        return error
    # A table is named after its directory.
    name = Path(found[1]).name if Path(found[1]).is_dir() else Path(found[1]).stem
    return TableNotFound(
        f"the table {found[1]!r} was not given: pass its URI after the query, as in "
        f'tamis sql "SELECT * FROM {name}" {found[1]}'
    )
