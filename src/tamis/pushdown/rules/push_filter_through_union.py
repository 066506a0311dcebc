"""A filter of all rows of several nodes is one of the rows of each.

    Filter(Union(x, y), p)  ─▶  Union(Filter(x, p), Filter(y, p))

Only over columns that have one type in all of them, since a union may convert values.
"""

from __future__ import annotations

from tamis.expr.nodes import Column, Expr
from tamis.pushdown.nodes import Filter, Node, Union, outputs_of
from tamis.pushdown.optimizer import Context
from tamis.pushdown.paths import symbols_of
from tamis.pushdown.rules.conjuncts import filtered, parts_of
from tamis.pushdown.symbols import is_deterministic, substitute


class PushFilterThroughUnion:
    name = "push_filter_through_union"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Union() as union, predicate, protects=False):
                parts = parts_of(predicate)
                plain = _columns_of_one_type(union)
                below = [part for part in parts if is_deterministic(part) and symbols_of(part) <= plain]
                if not below:
                    return None
                sources = tuple(_filtered_source(source, union, below) for source in union.sources)
                moved = Union(sources, union.columns)
                return filtered(moved, (part for part in parts if part not in below))
            case _:
                return None


def _columns_of_one_type(union: Union) -> frozenset[str]:
    outputs = [outputs_of(source) for source in union.sources]
    return frozenset(
        column.name
        for place, column in enumerate(union.columns)
        if column.type is not None and all(own[place].type == column.type for own in outputs)
    )


def _filtered_source(source: Node, union: Union, conjuncts: list[Expr]) -> Node:
    outputs = outputs_of(source)
    own: dict[str, Expr] = {
        column.name: Column((output.name,), type=output.type)
        for column, output in zip(union.columns, outputs, strict=True)
    }
    return filtered(source, (substitute(part, own) for part in conjuncts))
