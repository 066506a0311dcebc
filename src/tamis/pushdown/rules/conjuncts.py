"""Split predicates into conjuncts, and build filters from conjuncts."""

from __future__ import annotations

from collections.abc import Iterable

from tamis.expr.nodes import TRUE, Expr, and_, split_conjuncts
from tamis.pushdown.nodes import Filter, Node


def list_conjuncts(predicate: Expr | None) -> list[Expr]:
    """Return the distinct conjuncts of a predicate, without TRUE."""
    if predicate is None:
        return []
    return [conjunct for conjunct in dict.fromkeys(split_conjuncts(predicate)) if conjunct != TRUE]


def add_filter(source: Node, conjuncts: Iterable[Expr], *, protects: bool = False) -> Node:
    """Return a filter over a node that keeps the rows for which all conjuncts are TRUE.

    Without conjuncts, return the node itself.
    """
    kept = [conjunct for conjunct in dict.fromkeys(conjuncts) if conjunct != TRUE]
    return Filter(source, and_(*kept), protects) if kept else source
