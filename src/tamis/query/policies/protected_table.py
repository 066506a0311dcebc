"""Tables under policies: they show what a principal may see."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from functools import partial
from pathlib import PurePosixPath
from typing import Any, NoReturn

import pyarrow as pa

from tamis.errors import AccessDenied, TableError, suggest_method_arguments
from tamis.expr.nodes import TRUE
from tamis.expr.normalise import normalise
from tamis.formats.source import LEVELS, HasCatalogNames, TableSource
from tamis.query.policies.apply_policies import BoundPolicy, bind_policy
from tamis.query.policies.model import Policies
from tamis.query.policies.protected_reading import REVEALING_ERRORS, UNREADABLE, redact_errors
from tamis.query.policies.protected_scan import ProtectedScan, mask_schema
from tamis.scan.scan import ScanRequest
from tamis.table import Table, TableDescription, get_source
from tamis.tuning import Tuning, check_tuning


def list_policy_names(source: TableSource) -> tuple[str, ...]:
    """Return the names under which policies find a table: its location, also with links resolved, its name, and its
    names in its catalog."""
    locations = [source.storage.uri]
    if source.storage.is_local:
        locations.append(os.path.realpath(source.storage.uri))
    in_catalog = source.names_in_catalog if isinstance(source, HasCatalogNames) else ()
    return tuple(dict.fromkeys((*locations, source.name, *in_catalog)))


@contextmanager
def redact_catalog_errors(policies: Policies | None) -> Iterator[None]:
    """Redact errors while a table of a catalog is opened, where there are policies."""
    try:
        yield
    except REVEALING_ERRORS:
        if policies is None:
            raise
        raise TableError(UNREADABLE) from None


@contextmanager
def redact_opening_errors(
    location: str | os.PathLike[str], policies: Policies | None, principal: str | None
) -> Iterator[None]:
    """Redact errors about files while a table is opened, unless the principal may read all of it."""
    try:
        yield
    except REVEALING_ERRORS:
        if policies is None:
            raise
        uri = os.fspath(location)
        found = policies.find_policy((uri, os.path.realpath(uri), PurePosixPath(uri).name), principal)
        if found is None or (normalise(found.rows) == TRUE and not found.masks):
            raise
        raise TableError(UNREADABLE) from None


Around = Callable[[TableSource], Sequence[Sequence[str]]]
"""Returns the names of registered tables that are a table, or contain it."""


def _refuse_names(source: TableSource) -> Sequence[Sequence[str]]:
    return ()


def protect_table(
    table: Table, policies: Policies | None, principal: str | None, around: Around = _refuse_names
) -> Table | ProtectedTable:
    """Return the table as a principal may see it; AccessDenied where the principal may not see it at all."""
    if policies is None:
        return table
    source = get_source(table)
    found = policies.find_policy(list_policy_names(source), principal, around(source))
    if found is None or not bind_policy(found, table.schema, table.name, principal).restricts:
        return table
    return ProtectedTable(table, policies, principal, around)


@suggest_method_arguments("Table")
class ProtectedTable:
    """A table under a policy, which is looked up for each scan. It has a table, and exposes only the methods below: see
    `tests/test_protected_interface.py`.
    """

    def __init__(self, table: Table, policies: Policies, principal: str | None, around: Around = _refuse_names) -> None:
        self._table = table
        self._source = get_source(table)
        self._policies = policies
        self._principal = principal
        self._around = around

    @property
    def name(self) -> str:
        """The name of the table."""
        return self._table.name

    @property
    def format(self) -> str:
        """`delta`, `iceberg`, `hive` or `parquet`."""
        return self._table.format

    @property
    def uri(self) -> str:
        """Where the table is."""
        return self._table.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns as the principal sees them: a masked column has the type of its mask."""
        return mask_schema(self._source.schema, self._policy())

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """The partition columns, as those of a `Table`."""
        return self._table.partition_columns

    @property
    def version(self) -> int | None:
        """The version that was opened; of an Iceberg table the snapshot."""
        return self._table.version

    @property
    def num_files(self) -> NoReturn:
        """Raise AccessDenied."""
        self._refuse("its files")

    @property
    def size_in_bytes(self) -> NoReturn:
        """Raise AccessDenied."""
        self._refuse("its files")

    @property
    def column_mapping_mode(self) -> NoReturn:
        """Raise AccessDenied."""
        self._refuse("its files")

    def stats_column(self, kind: str, column: str | None = None) -> NoReturn:
        """Raise AccessDenied."""
        self._refuse("its statistics")

    def scan(
        self,
        where: object = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        levels: Collection[str] = LEVELS,
        tuning: Tuning | None = None,
    ) -> ProtectedScan:
        """Return a lazy scan of the visible rows for which `where` is TRUE."""
        source = self._source if tuning is None else self._source.with_tuning(check_tuning(tuning))
        return self._scan(source, ScanRequest.parse(where, columns, limit, levels))

    def _scan(self, source: TableSource, request: ScanRequest) -> ProtectedScan:
        return ProtectedScan(source, self._policy(), request, partial(self._scan, source))

    def refresh(self) -> ProtectedTable:
        """Return the table at its newest version, under the same policies."""
        with redact_errors():
            table = self._table.refresh()
        return ProtectedTable(table, self._policies, self._principal, self._around)

    def count(self) -> int:
        """Return how many rows are visible."""
        return self.scan().count()

    def head(self, count: int = 5) -> ProtectedScan:
        """Return a scan of at most `count` visible rows."""
        return self.scan(limit=count)

    def describe(self) -> TableDescription:
        """Return what is visible of the table. Files, bytes and rows are not."""
        return TableDescription(
            self.name, self.format, self.uri, self.version, self.schema, self.partition_columns, None, None, None
        )

    def at(
        self, version: int | None = None, timestamp: datetime | str | None = None, ref: str | None = None
    ) -> NoReturn:
        """Raise AccessDenied: a policy is about the table as it was opened, and may not fit an older version."""
        self._refuse("another version")

    def history(self, limit: int | None = None) -> NoReturn:
        """Raise AccessDenied."""
        self._refuse("its history")

    def files(self, where: object = None, *, levels: Collection[str] = LEVELS) -> NoReturn:
        """Raise AccessDenied."""
        self._refuse("its files")

    def files_dataframe(self, spark: Any, columns: Sequence[str] | None = None) -> NoReturn:
        """Raise AccessDenied."""
        self._refuse("its files")

    def _policy(self) -> BoundPolicy:
        found = self._policies.find_policy(list_policy_names(self._source), self._principal, self._around(self._source))
        if found is None:
            return BoundPolicy()
        return bind_policy(found, self._source.schema, self._source.name, self._principal)

    def _refuse(self, what: str) -> NoReturn:
        raise AccessDenied(f"{self.name} is under a policy: {what} would reveal rows that it hides")

    def __reduce__(self) -> NoReturn:
        raise TypeError("a table cannot be pickled: send its URI, and its version, and open it there with tamis.open")

    def __repr__(self) -> str:
        return repr(self._table)


def get_unprotected_source(table: Table | ProtectedTable) -> TableSource:
    """Return the format's implementation of a table, for a session that applies its own policies."""
    return table._source if isinstance(table, ProtectedTable) else get_source(table)
