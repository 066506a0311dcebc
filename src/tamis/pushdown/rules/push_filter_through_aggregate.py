"""A filter over keys of groups drops rows before they are grouped.

    Filter(Aggregate(x, keys k, count(*)), k > 5 AND count > 1)  ─▶  Filter(Aggregate(Filter(x, k > 5), …), count > 1)

Without keys there is one group even of no rows, and no conjunct is only about keys. A conjunct without any column stays
for the same reason: a group must not come back with nothing in it, nor be lost.
"""

from __future__ import annotations

from dataclasses import replace

from tamis.pushdown.nodes import Aggregate, Filter, Node
from tamis.pushdown.optimizer import Context
from tamis.pushdown.paths import symbols_of
from tamis.pushdown.rules.conjuncts import filtered, parts_of
from tamis.pushdown.symbols import is_deterministic, substitute


class PushFilterThroughAggregate:
    name = "push_filter_through_aggregate"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Aggregate() as aggregate, predicate, protects=False):
                keys = {each.name: each.expr for each in aggregate.keys if is_deterministic(each.expr)}
                parts = parts_of(predicate)
                below = [
                    part
                    for part in parts
                    if symbols_of(part) and symbols_of(part) <= set(keys) and is_deterministic(part)
                ]
                if not below:
                    return None
                source = filtered(aggregate.source, (substitute(part, keys) for part in below))
                moved = replace(aggregate, source=source)
                return filtered(moved, (part for part in parts if part not in below))
            case _:
                return None
