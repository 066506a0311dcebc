"""The tables of a session as a principal sees them."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tamis.errors import TableError, UnsupportedFeature
from tamis.pushdown.catalog import Catalog
from tamis.pushdown.connectors.database import DatabaseConnector
from tamis.pushdown.nodes import Node, TableScan
from tamis.pushdown.policies import Policies, apply_policies
from tamis.pushdown.policies.reach import refuse_outside_access, refuse_system_tables
from tamis.pushdown.policies.reading import REVEALING_ERRORS, UNREADABLE
from tamis.pushdown.sql_sources import PlannedSource
from tamis.pushdown.symbols import ColumnIds


class VisibleTables:
    """Resolves tables, and applies their policies directly above their scans."""

    def __init__(self, catalog: Catalog, policies: Policies | None, principal: str | None) -> None:
        self._catalog = catalog
        self._others = catalog.unregistered()
        self._policies = policies
        self._principal = principal

    @property
    def has_policies(self) -> bool:
        return self._policies is not None

    def check(self, text: str, tree: exp.Expr) -> None:
        if self._policies is not None:
            refuse_outside_access(text, tree)

    def scan(self, name: tuple[str, ...], column_ids: ColumnIds) -> PlannedSource | None:
        try:
            return self._catalog.scan(name, column_ids, self._others, self._apply_policies)
        except (*REVEALING_ERRORS, UnsupportedFeature):
            # A database may read values to find the type of a column, so its error may reveal them.
            if self._policies is None:
                raise
            raise TableError(UNREADABLE) from None

    def _apply_policies(self, scan: TableScan, names: Sequence[str]) -> Node:
        connector = self._catalog.connectors[scan.connector]
        doubles: Sequence[Sequence[str]] = ()
        if self._policies is not None:
            if isinstance(connector, DatabaseConnector):
                refuse_system_tables(scan.connector, connector.names(scan.handle), connector.database.dialect.name)
            doubles = self._catalog.find_duplicate_names(scan)
        return apply_policies(scan, self._policies, self._principal, connector, names, doubles)
