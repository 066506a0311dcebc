"""Push filters on grouping keys below the aggregation.

    Filter(Aggregate(x, keys k, count(*)), k > 5 AND count > 1)  ─▶  Filter(Aggregate(Filter(x, k > 5), …), count > 1)

An aggregation without keys returns one group even for no rows, so nothing is pushed below it. A conjunct without
columns stays above for the same reason: below, it would remove rows but not that group.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.query.plan.column_ids import collect_column_ids, is_deterministic, substitute
from tamis.query.plan.nodes import Aggregate, Filter, Node
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import add_filter, list_conjuncts


class PushFilterThroughAggregate:
    name = "push_filter_through_aggregate"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Aggregate() as aggregate, predicate, protects=False):
                keys = {each.name: each.expr for each in aggregate.keys if is_deterministic(each.expr)}
                conjuncts = list_conjuncts(predicate)
                below = [
                    each
                    for each in conjuncts
                    if collect_column_ids(each) and collect_column_ids(each) <= set(keys) and is_deterministic(each)
                ]
                if not below:
                    return None
                source = add_filter(aggregate.source, (substitute(conjunct, keys) for conjunct in below))
                moved = replace(aggregate, source=source)
                return add_filter(moved, (conjunct for conjunct in conjuncts if conjunct not in below))
            case _:
                return None
