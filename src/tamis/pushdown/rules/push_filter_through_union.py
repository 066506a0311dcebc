"""Push filters into each source of a union.

    Filter(Union(x, y), p)  ─▶  Union(Filter(x, p), Filter(y, p))

Only filters over columns that have the same type in all sources are pushed, because a union may convert values.
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
                conjuncts = parts_of(predicate)
                unconverted = _find_unconverted_columns(union)
                below = [each for each in conjuncts if is_deterministic(each) and symbols_of(each) <= unconverted]
                if not below:
                    return None
                sources = tuple(_filter_source(source, union, below) for source in union.sources)
                moved = Union(sources, union.columns)
                return filtered(moved, (conjunct for conjunct in conjuncts if conjunct not in below))
            case _:
                return None


def _find_unconverted_columns(union: Union) -> frozenset[str]:
    outputs = [outputs_of(source) for source in union.sources]
    return frozenset(
        column.name
        for position, column in enumerate(union.columns)
        if column.type is not None and all(own[position].type == column.type for own in outputs)
    )


def _filter_source(source: Node, union: Union, conjuncts: list[Expr]) -> Node:
    outputs = outputs_of(source)
    own: dict[str, Expr] = {
        column.name: Column((output.name,), type=output.type)
        for column, output in zip(union.columns, outputs, strict=True)
    }
    return filtered(source, (substitute(conjunct, own) for conjunct in conjuncts))
