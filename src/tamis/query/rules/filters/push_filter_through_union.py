"""Push filters into each source of a union.

    Filter(Union(x, y), p)  ─▶  Union(Filter(x, p), Filter(y, p))

Only filters over columns that have the same type in all sources are pushed, because a union may convert values.
"""

from __future__ import annotations

from tamis.expr.nodes import Expr
from tamis.query.plan.column_ids import collect_column_ids, is_deterministic, substitute
from tamis.query.plan.nodes import Filter, Node, Union, get_outputs
from tamis.query.plan.optimizer import Context
from tamis.query.rules.scan_expressions import add_filter, list_conjuncts


class PushFilterThroughUnion:
    name = "push_filter_through_union"

    def apply(self, node: Node, context: Context) -> Node | None:
        match node:
            case Filter(Union() as union, predicate, protects=False):
                conjuncts = list_conjuncts(predicate)
                unconverted = _find_unconverted_columns(union)
                below = [
                    each for each in conjuncts if is_deterministic(each) and collect_column_ids(each) <= unconverted
                ]
                if not below:
                    return None
                sources = tuple(_filter_source(source, union, below) for source in union.sources)
                moved = Union(sources, union.columns)
                return add_filter(moved, (conjunct for conjunct in conjuncts if conjunct not in below))
            case _:
                return None


def _find_unconverted_columns(union: Union) -> frozenset[str]:
    outputs = [get_outputs(source) for source in union.sources]
    return frozenset(
        column.name
        for position, column in enumerate(union.columns)
        if column.type is not None and all(own[position].type == column.type for own in outputs)
    )


def _filter_source(source: Node, union: Union, conjuncts: list[Expr]) -> Node:
    outputs = get_outputs(source)
    own: dict[str, Expr] = {column.name: output.column for column, output in zip(union.columns, outputs, strict=True)}
    return add_filter(source, (substitute(conjunct, own) for conjunct in conjuncts))
