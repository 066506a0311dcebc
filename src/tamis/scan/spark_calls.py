"""Calls of the macros that compute what Spark computes, and what is said where there is none."""

from __future__ import annotations

from sqlglot import exp

from tamis.errors import EvaluationError

PREFIX = "spark_"
_WAY_OUT = "Write it with the functions that docs/expressions.md lists, or filter the rows after the scan"

PARTS = {
    **dict.fromkeys(("dow", "dayofweek"), "dayofweek"),
    **dict.fromkeys(("second", "seconds", "s", "sec", "secs"), "seconds"),
}
"""Parts of a date or timestamp of which DuckDB has another idea, and the macro."""


def macro_call(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=f"{PREFIX}{name}", expressions=list(args))


def refusal(name: str, reason: str) -> EvaluationError:
    return EvaluationError(f"the embedded engine has no words for Spark's {name}: {reason}. {_WAY_OUT}")


def text_of(node: exp.Expr | None) -> str | None:
    """The text that a literal is."""
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None
