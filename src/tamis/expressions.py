"""Expressions over metadata: the handler that evaluates them, and the nodes that they consist of.

`tamis.open(handler=…)` and `tamis.connect(handler=…)` accept an `ExpressionHandler` of one's own.
"""

from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal
from tamis.skipping.handler import ArrowExpressionHandler, ExpressionHandler, PredicateEvaluator

__all__ = [
    "ExpressionHandler",
    "PredicateEvaluator",
    "ArrowExpressionHandler",
    "Call",
    "Column",
    "Expr",
    "Literal",
    "FALSE",
    "NULL",
    "TRUE",
]
