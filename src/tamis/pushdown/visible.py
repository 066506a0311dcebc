"""The tables of a session as one principal sees them."""

from __future__ import annotations

from sqlglot import exp

from tamis.pushdown.catalog import Catalog
from tamis.pushdown.nodes import Node, TableScan
from tamis.pushdown.policies import Policies, apply_policies
from tamis.pushdown.policies.reach import refuse_to_reach_out
from tamis.pushdown.sql_sources import Planned
from tamis.pushdown.symbols import Symbols


class VisibleTables:
    """Finds tables, and puts their policies right above their scans."""

    def __init__(self, catalog: Catalog, policies: Policies | None, principal: str | None) -> None:
        self._catalog = catalog
        self._policies = policies
        self._principal = principal

    def check(self, tree: exp.Expr) -> None:
        if self._policies is not None:
            refuse_to_reach_out(tree)

    def scan(self, name: tuple[str, ...], symbols: Symbols) -> Planned | None:
        return self._catalog.scan(name, symbols, self._protected)

    def _protected(self, scan: TableScan) -> Node:
        catalog = self._catalog
        return apply_policies(
            scan, self._policies, self._principal, catalog.connectors, catalog.names_of, catalog.doubles_of
        )
