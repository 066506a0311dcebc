"""Project struct fields directly above the scan, below operations that cannot be pushed into it.

Project(Filter(scan(a, b), f(b)), a.x)  ─▶  Project(Filter(Project(scan(a, b), a.x, b), f(b)), a.x)
"""

from __future__ import annotations

from dataclasses import replace

from tamis.query.plan.column_ids import replace_paths
from tamis.query.plan.nodes import Aggregate, AggregateCall, Named, Node, Project, get_expressions
from tamis.query.plan.optimizer import Context
from tamis.query.rules.columns.narrowing import Narrowed, narrow_project, narrow_source


class ExtractDereferences:
    name = "extract_dereferences"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Project():
                return narrow_project(node, nested=True)
            case Aggregate():
                narrowed = narrow_source(node.source, get_expressions(node), nested=True)
                return None if narrowed is None else _narrow_aggregate(node, narrowed)
            case _:
                return None


def _narrow_aggregate(aggregate: Aggregate, source: Narrowed) -> Aggregate:
    keys = tuple(Named(each.name, replace_paths(each.expr, source.replacements)) for each in aggregate.keys)
    return Aggregate(source.node, keys, tuple(_rewrite_call(each, source) for each in aggregate.aggregates))


def _rewrite_call(call: AggregateCall, source: Narrowed) -> AggregateCall:
    return replace(
        call,
        args=tuple(replace_paths(arg, source.replacements) for arg in call.args),
        filter=None if call.filter is None else replace_paths(call.filter, source.replacements),
    )
