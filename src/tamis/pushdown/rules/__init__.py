"""The rules, in the order in which they run in each round."""

from __future__ import annotations

from tamis.pushdown.optimizer import Rule
from tamis.pushdown.rules.drop_residual import DropResidual
from tamis.pushdown.rules.extract_dereferences import ExtractDereferences
from tamis.pushdown.rules.merge_filters import MergeFilters
from tamis.pushdown.rules.prune_columns import PruneColumns
from tamis.pushdown.rules.prune_joins_at_run_time import PruneJoinsAtRunTime
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
    # Filters sink first: nothing that counts or cuts rows may go into a scan before them.
    MergeFilters(),
    PushFilterThroughProject(),
    PushFilterThroughFilter(),
    PushFilterThroughJoin(),
    PushFilterThroughUnion(),
    PushFilterThroughAggregate(),
    PushFilterIntoScan(),
    DropResidual(),
    # Then columns, so that a scan knows what is read of it.
    PruneColumns(),
    ExtractDereferences(),
    PushProjectionIntoScan(),
    # What makes fewer rows of many.
    PushLimitThroughProject(),
    PushLimitThroughUnion(),
    PushLimitIntoScan(),
    PushTopNIntoScan(),
    PushJoinIntoScan(),
    # When all others are done: an aggregation keeps filters above it, and sizes are those of filtered tables.
    PushAggregationIntoScan(),
    PruneJoinsAtRunTime(),
)
