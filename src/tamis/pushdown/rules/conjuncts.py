"""Conjuncts of filters: which of them may move, and what stays behind."""

from __future__ import annotations

from collections.abc import Iterable

from tamis.expr.nodes import TRUE, Expr, and_, conjuncts_of
from tamis.pushdown.nodes import Filter, Node


def parts_of(predicate: Expr | None) -> list[Expr]:
    """The conjuncts of a predicate, each once; none of TRUE."""
    if predicate is None:
        return []
    return [part for part in dict.fromkeys(conjuncts_of(predicate)) if part != TRUE]


def filtered(source: Node, conjuncts: Iterable[Expr], *, protects: bool = False) -> Node:
    """The rows of a node for which all conjuncts are TRUE; the node itself where there are none."""
    kept = [part for part in dict.fromkeys(conjuncts) if part != TRUE]
    return Filter(source, and_(*kept), protects) if kept else source
