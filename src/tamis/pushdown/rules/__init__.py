"""The optimizer rules, in the order in which they run in each round."""

from __future__ import annotations

from tamis.pushdown.optimizer import Rule
from tamis.pushdown.rules.drop_residual import DropResidual
from tamis.pushdown.rules.extract_dereferences import ExtractDereferences
from tamis.pushdown.rules.merge_filters import MergeFilters
from tamis.pushdown.rules.prune_columns import PruneColumns
from tamis.pushdown.rules.prune_joins_at_run_time import PruneWithDynamicFilters
from tamis.pushdown.rules.push_aggregation_into_scan import PushAggregationIntoScan
from tamis.pushdown.rules.push_filter_into_scan import PushFilterIntoScan
from tamis.pushdown.rules.push_filter_through_aggregate import PushFilterThroughAggregate
from tamis.pushdown.rules.push_filter_through_filter import PushFilterThroughFilter
from tamis.pushdown.rules.push_filter_through_join import PushFilterThroughJoin
from tamis.pushdown.rules.push_filter_through_project import PushFilterThroughProject
from tamis.pushdown.rules.push_filter_through_union import PushFilterThroughUnion
from tamis.pushdown.rules.push_join_into_scan import PushJoinIntoScan
from tamis.pushdown.rules.push_limit_into_scan import PushLimitIntoScan
from tamis.pushdown.rules.push_limit_through_project import PushLimitThroughProject
from tamis.pushdown.rules.push_limit_through_union import PushLimitThroughUnion
from tamis.pushdown.rules.push_projection_into_scan import PushProjectionIntoScan
from tamis.pushdown.rules.push_top_n_into_scan import PushTopNIntoScan

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
    PushAggregationIntoScan(),
    PruneWithDynamicFilters(),
)
