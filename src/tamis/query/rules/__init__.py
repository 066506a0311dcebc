"""The optimizer rules, in the order in which they run in each round (`ALL`). Each rule is a module of its name.

Reading order:

- `filters`           predicate pushdown
- `columns`           projection pushdown and column pruning
- `limits`            limits and top-n
- `sorts`             sorts of rows that come in order
- `joins`             joins in one connector, and dynamic filters
- `aggregates`        aggregations
- `scan_expressions`  column ids of a plan as column names of a handle, and back
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tamis.errors import InvalidArgument
from tamis.query.connectors.connector import Connector
from tamis.query.plan.nodes import Filter, Node, Project, TableScan, walk_plan
from tamis.query.plan.optimizer import Context, Rule, is_final
from tamis.query.rules.aggregates.drop_distinct import DropDistinct
from tamis.query.rules.aggregates.group_by_partitions import GroupByPartitions
from tamis.query.rules.aggregates.push_aggregation_into_scan import PushAggregationIntoScan
from tamis.query.rules.columns.extract_dereferences import ExtractDereferences
from tamis.query.rules.columns.prune_columns import PruneColumns
from tamis.query.rules.columns.push_projection_into_scan import PushProjectionIntoScan
from tamis.query.rules.filters.drop_residual import DropResidual
from tamis.query.rules.filters.merge_filters import MergeFilters
from tamis.query.rules.filters.push_filter_into_scan import PushFilterIntoScan
from tamis.query.rules.filters.push_filter_through_aggregate import PushFilterThroughAggregate
from tamis.query.rules.filters.push_filter_through_filter import PushFilterThroughFilter
from tamis.query.rules.filters.push_filter_through_join import PushFilterThroughJoin
from tamis.query.rules.filters.push_filter_through_project import PushFilterThroughProject
from tamis.query.rules.filters.push_filter_through_union import PushFilterThroughUnion
from tamis.query.rules.joins.prune_with_dynamic_filters import PruneWithDynamicFilters
from tamis.query.rules.joins.push_join_into_scan import PushJoinIntoScan
from tamis.query.rules.limits.push_limit_into_scan import PushLimitIntoScan
from tamis.query.rules.limits.push_limit_through_project import PushLimitThroughProject
from tamis.query.rules.limits.push_limit_through_union import PushLimitThroughUnion
from tamis.query.rules.limits.push_top_n_into_scan import PushTopNIntoScan
from tamis.query.rules.sorts.drop_sort import DropSort
from tamis.query.rules.sorts.replace_top_n_by_limit import ReplaceTopNByLimit

ALL: tuple[Rule, ...] = (
    # Filters first: a limit or an aggregation must not be pushed into a scan before them.
    MergeFilters(),
    PushFilterThroughProject(),
    PushFilterThroughFilter(),
    PushFilterThroughJoin(),
    PushFilterThroughUnion(),
    PushFilterThroughAggregate(),
    PushFilterIntoScan(),
    DropResidual(),
    # Then columns, so that a scan returns only the columns that the query reads.
    PruneColumns(),
    ExtractDereferences(),
    PushProjectionIntoScan(),
    # Then operations that reduce the number of rows.
    PushLimitThroughProject(),
    PushLimitThroughUnion(),
    PushLimitIntoScan(),
    PushTopNIntoScan(),
    PushJoinIntoScan(),
    # Last, when no other rule fires: a pushed aggregation blocks filters above it, and dynamic filters need the sizes
    # of filtered tables.
    GroupByPartitions(),
    PushAggregationIntoScan(),
    DropDistinct(),
    PruneWithDynamicFilters(),
    # Sorts last, because a scan in order accepts fewer operations.
    ReplaceTopNByLimit(),
    DropSort(),
)


# --- Rules of connectors ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ConnectorRule:
    """A rule that a connector brings. It sees the nodes that only read tables of this connector without policies."""

    connector: str
    rule: Rule

    @property
    def name(self) -> str:
        return self.rule.name

    @property
    def is_final(self) -> bool:
        return is_final(self.rule)

    def apply(self, node: Node, context: Context) -> Node | None:
        return self.rule.apply(node, context) if self._is_own(node) else None

    def _is_own(self, node: Node) -> bool:
        scans = 0
        for each in walk_plan(node):
            match each:
                case TableScan():
                    if each.connector != self.connector or each.is_protected:
                        return False
                    scans += 1
                case Filter(protects=True) | Project(protects=True):
                    return False
        return scans > 0


def collect_rules(connectors: Mapping[str, Connector]) -> tuple[Rule, ...]:
    """Return all rules: those of Tamis, then those of connectors; raise InvalidArgument if two have the same name.

    Connectors of one class share the names of their rules.
    """
    found: list[Rule] = list(ALL)
    owners: dict[str, object] = dict.fromkeys((rule.name for rule in ALL), "Tamis")
    for name, connector in list(connectors.items()):  # other threads may attach meanwhile
        for rule in connector.rules():
            owner = owners.setdefault(rule.name, type(connector))
            if owner is not type(connector):
                of = owner if isinstance(owner, str) else getattr(owner, "__name__", owner)
                raise InvalidArgument(
                    f"{type(connector).__name__} has a rule {rule.name!r}, and so has {of}: give it another name"
                )
            found.append(ConnectorRule(name, rule))
    return tuple(found)
