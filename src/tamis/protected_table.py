"""Tables that a session with policies opens: they show what a principal may see."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import PurePosixPath
from typing import Any, NoReturn

import pyarrow as pa

from tamis.errors import (
    AccessDenied,
    TableError,
)
from tamis.expr.nodes import TRUE
from tamis.expr.normalise import normalise
from tamis.pushdown.policies.applying import BoundPolicy, bind_policy
from tamis.pushdown.policies.model import Policies
from tamis.pushdown.policies.reading import TELLING, UNREADABLE, silence
from tamis.pushdown.policies.scan import ProtectedScan, visible_schema
from tamis.scan.residual import check_functions
from tamis.scan.scan import Scan
from tamis.table import Table
from tamis.tables.source import LEVELS, Catalogued, TableSource


def names_of(source: TableSource) -> tuple[str, ...]:
    """The names by which policies know a table: its place, also where links lead to another, and its own, which is also
    that in its catalog."""
    places = [source.storage.uri]
    if source.storage.is_local:
        places.append(os.path.realpath(source.storage.uri))
    in_catalog = source.names_in_catalog if isinstance(source, Catalogued) else ()
    return tuple(dict.fromkeys((*places, source.name, *in_catalog)))


@contextmanager
def unreadable_under(policies: Policies | None) -> Iterator[None]:
    """What damage is found while a table of a catalog is opened is told to nobody where there are policies."""
    try:
        yield
    except TELLING:
        if policies is None:
            raise
        raise TableError(UNREADABLE) from None


@contextmanager
def opening(place: str | os.PathLike[str], policies: Policies | None, principal: str | None) -> Iterator[None]:
    """What damage is found while a table is opened says which file and what is in it: to whom may see all of it."""
    try:
        yield
    except TELLING:
        if policies is None:
            raise
        uri = os.fspath(place)
        found = policies.policy_of((uri, os.path.realpath(uri), PurePosixPath(uri).name), principal)
        if found is None or (normalise(found.rows) == TRUE and not found.masks):
            raise
        raise TableError(UNREADABLE) from None


Around = Callable[[TableSource], Sequence[Sequence[str]]]
"""The names of tables that a table is, or is a part of."""


def _around_nothing(source: TableSource) -> Sequence[Sequence[str]]:
    return ()


def protect_table(
    table: Table, policies: Policies | None, principal: str | None, around: Around = _around_nothing
) -> Table:
    """The table as a principal may see it; AccessDenied where he may not."""
    if policies is None:
        return table
    found = policies.policy_of(names_of(table._source), principal, around(table._source))
    if found is None or not bind_policy(found, table.schema, table.name, principal).restricts:
        return table
    return ProtectedTable(table._source, policies, principal, around)


class ProtectedTable(Table):
    """A table under a policy, which is looked up for each scan."""

    def __init__(
        self, source: TableSource, policies: Policies, principal: str | None, around: Around = _around_nothing
    ) -> None:
        super().__init__(source)
        self._policies = policies
        self._principal = principal
        self._around = around

    @property
    def schema(self) -> pa.Schema:
        return visible_schema(self._source.schema, self._policy())

    def scan(
        self,
        where: object = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        levels: Collection[str] = LEVELS,
    ) -> Scan:
        policy = self._policy()
        scan = ProtectedScan(self._source, policy, where, columns, limit, levels)
        check_functions(scan._predicate.expr, visible_schema(self._source.schema, policy))
        return scan

    def refresh(self) -> Table:
        versioned = self._versioned("refresh")
        with silence():
            source = versioned.refresh()
        return ProtectedTable(source, self._policies, self._principal, self._around)

    def history(self, limit: int | None = None) -> NoReturn:
        self._refuse("its history")

    def files(self, where: object = None, *, levels: Collection[str] = LEVELS) -> NoReturn:
        self._refuse("its files")

    def files_dataframe(self, spark: Any, columns: Sequence[str] | None = None) -> NoReturn:
        self._refuse("its files")

    def _policy(self) -> BoundPolicy:
        found = self._policies.policy_of(names_of(self._source), self._principal, self._around(self._source))
        if found is None:
            return BoundPolicy()
        return bind_policy(found, self._source.schema, self._source.name, self._principal)

    def _refuse(self, what: str) -> NoReturn:
        raise AccessDenied(f"{self.name} is under a policy: {what} would tell of rows that it hides")
