"""Expressions over metadata: the handler that evaluates them, the parts of a filter, and the nodes of expressions.

`tamis.open(handler=…)` and `tamis.connect(handler=…)` accept an `ExpressionHandler` of one's own.
"""

from tamis.expr.nodes import FALSE, NULL, TRUE, AnyExpr, Call, Column, Expr, Literal, Name
from tamis.scan.planning.plan import FilteredBatch
from tamis.skipping.handler import ArrowExpressionHandler, ExpressionHandler, PredicateEvaluator
from tamis.skipping.predicate import SplitPredicate, split_predicate

__all__ = [
    "ExpressionHandler",
    "PredicateEvaluator",
    "ArrowExpressionHandler",
    "FilteredBatch",
    "SplitPredicate",
    "split_predicate",
    "Call",
    "Column",
    "Name",
    "Expr",
    "AnyExpr",
    "Literal",
    "FALSE",
    "NULL",
    "TRUE",
]
