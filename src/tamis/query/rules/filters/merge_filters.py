"""Merge adjacent filters, and remove filters that are TRUE.

    Filter(Filter(x, p), q)  ─▶  Filter(x, p AND q)

The row filter of a policy is not merged: the user's predicate must not be evaluated on rows that it hides.
"""

from __future__ import annotations

from tamis.expr.nodes import TRUE
from tamis.query.plan.nodes import Filter, Node
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import add_filter, list_conjuncts


class MergeFilters:
    name = "merge_filters"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(source, predicate, protects=False) if predicate == TRUE:
                return source
            case Filter(Filter(source, inner, protects=False), outer, protects=False):
                return add_filter(source, (*list_conjuncts(inner), *list_conjuncts(outer)))
            case _:
                return None
