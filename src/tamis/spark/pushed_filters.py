"""Convert the filters that Spark pushes into a data source to expressions.

They are conjuncts: comparisons of a column with a constant, IN, NULL tests, string prefixes and the like, and NOT of
one of these. Their semantics are the same as here, including NULL and NaN.
"""

from __future__ import annotations

from typing import Any

from tamis.errors import TamisError
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, Call, Column, Expr, not_

_COMPARISONS = {
    "EqualTo": "=",
    "EqualNullSafe": "<=>",
    "GreaterThan": ">",
    "GreaterThanOrEqual": ">=",
    "LessThan": "<",
    "LessThanOrEqual": "<=",
    "StringStartsWith": "startswith",
    "StringEndsWith": "endswith",
    "StringContains": "contains",
}
_NULL_TESTS = {"IsNull": "is_null", "IsNotNull": "is_not_null"}


def from_filter(given: Any) -> Expr | None:
    """Return the expression of a filter of `pyspark.sql.datasource`; None if it is unsupported."""
    kind = type(given).__name__
    if kind == "Not":
        inner = from_filter(given.child)
        return None if inner is None else not_(inner)
    if kind not in (*_COMPARISONS, *_NULL_TESTS, "In"):
        return None
    column = Column(tuple(given.attribute), exact=True)
    if kind in _NULL_TESTS:
        return Call(_NULL_TESTS[kind], (column,))
    try:
        items = [literal(item) for item in (given.value if kind == "In" else (given.value,))]
    except TamisError:
        return None  # a constant of an unsupported type
    if kind == "In":
        return Call("in", (column, *items)) if items else FALSE
    return Call(_COMPARISONS[kind], (column, *items))
