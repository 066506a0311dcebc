"""Conjunctions that no NaN satisfies.

`x >= 3 AND x <= 4`: NaN is above 3, so that the first part alone keeps every unit in which NaN is not counted, and most
writers count none. But the second part bounds x from above, and NaN is above everything: for a row that satisfies
both, x is no NaN. So *whether the first part may be TRUE* is asked as if there were none.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pyarrow as pa

from tamis import types
from tamis.expr.nodes import Call, Column, Expr, Literal, transform
from tamis.skipping.answers import Answers
from tamis.skipping.metadata import nan_count

_NONE = Literal(0, types.LONG)


def columns_without_nan(parts: Sequence[Expr]) -> frozenset[Column]:
    """The columns of floats that are no NaN in any row that satisfies all parts of a conjunction."""
    return frozenset(column for part in parts if (column := _bounded_above(part)) is not None)


def _bounded_above(part: Expr) -> Column | None:
    match part:
        case Call("<" | "<=" | "=", (Column(type=data_type) as column, Literal(value=float() as value))):
            is_number = value == value or part.function == "<"
            return column if is_number and data_type is not None and pa.types.is_floating(data_type) else None
        case _:
            return None


def assume_no_nan(part: Expr, answers: Answers, columns: frozenset[Column]) -> Answers:
    """The answers for a part of a conjunction that is TRUE only where these columns are no NaN."""
    if _bounded_above(part) is not None:
        return answers
    match part:
        case Call(_, (Column() as column, *_)) | Call("not", (Call(_, (Column() as column, *_)),)) if column in columns:
            counted = nan_count(column)
            asked = transform(answers.may_be_true, lambda node: _NONE if node == counted else node)
            return replace(answers, may_be_true=asked)
        case _:
            return answers
