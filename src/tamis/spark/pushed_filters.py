"""The filters that Spark hands to a data source, as expressions.

They are leaves joined by AND: comparisons of a column with a constant, IN, NULL tests, prefixes and the like, and NOT
of one of them. Spark means by them what is meant here, NULL and NaN included.
"""

from __future__ import annotations

from typing import Any

from tamis.errors import TamisError
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, Call, Column, Expr, not_

_COMPARED = {
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
    """The expression that a filter of `pyspark.sql.datasource` means; None for one that is not known here."""
    kind = type(given).__name__
    if kind == "Not":
        inner = from_filter(given.child)
        return None if inner is None else not_(inner)
    if kind not in (*_COMPARED, *_NULL_TESTS, "In"):
        return None
    column = Column(tuple(given.attribute), exact=True)
    if kind in _NULL_TESTS:
        return Call(_NULL_TESTS[kind], (column,))
    try:
        items = [literal(item) for item in (given.value if kind == "In" else (given.value,))]
    except TamisError:
        return None  # a constant of a type that is not known here
    if kind == "In":
        return Call("in", (column, *items)) if items else FALSE
    return Call(_COMPARED[kind], (column, *items))
