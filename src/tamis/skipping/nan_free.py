"""Conjunctions that exclude NaN.

`x >= 3 AND x <= 4`: NaN is above 3, so the first conjunct alone keeps every unit without a NaN count, and most writers
do not count NaN. But the second conjunct bounds x from above, and NaN is above everything: for a row that satisfies
both, x is not NaN. So *whether the first conjunct may be TRUE* is answered as if there were no NaN.
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


def find_columns_without_nan(parts: Sequence[Expr]) -> frozenset[Column]:
    """Return the float columns that are not NaN in any row that satisfies all parts of a conjunction."""
    return frozenset(column for part in parts if (column := _find_column_bounded_above(part)) is not None)


def _find_column_bounded_above(part: Expr) -> Column | None:
    match part:
        case Call("<" | "<=" | "=", (Column(type=data_type) as column, Literal(value=float() as value))):
            is_number = value == value or part.function == "<"
            return column if is_number and data_type is not None and pa.types.is_floating(data_type) else None
        case _:
            return None


def assume_no_nan(part: Expr, answers: Answers, columns: frozenset[Column]) -> Answers:
    """Return the answers for a part of a conjunction that is TRUE only if these columns are not NaN."""
    if _find_column_bounded_above(part) is not None:
        return answers
    match part:
        case Call(_, (Column() as column, *_)) | Call("not", (Call(_, (Column() as column, *_)),)) if column in columns:
            count = nan_count(column)
            may_be_true = transform(answers.may_be_true, lambda node: _NONE if node == count else node)
            return replace(answers, may_be_true=may_be_true)
        case _:
            return answers
