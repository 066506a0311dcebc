"""Answers for units in which every column of a predicate is constant: partitions, and some files.

There any predicate, monotone or not, is answered by evaluating it for that value: `month(day) = 3` cannot be decided
for a range of days, but it can for a partition of one day.
"""

from __future__ import annotations

import pyarrow as pa

from tamis import types
from tamis.expr.evaluate import can_evaluate
from tamis.expr.functions import type_of
from tamis.expr.nodes import FALSE, NULL, Call, Column, Expr, Literal, find_columns, not_, transform
from tamis.skipping.answers import Answers, all_of, any_of
from tamis.skipping.metadata import ROW_COUNT, lower, null_count, upper
from tamis.types import is_ordered

_ZERO = Literal(0, types.LONG)


def answer_constant_unit(predicate: Expr, otherwise: Answers, may_fail: Expr) -> tuple[Answers, Expr]:
    """Return the answers for units in which all columns of the predicate are constant, and whether it may fail there.

    For other units both are the given ones.
    """
    if type_of(predicate) != types.BOOLEAN or not can_evaluate(predicate):
        return otherwise, may_fail
    columns = find_columns(predicate)
    if not columns or not all(_has_value_semantics(column) for column in columns):
        return otherwise, may_fail
    constant = all_of(*(_is_constant(column) for column in columns))
    # In other units the value is NULL, so the predicate is not evaluated (and cannot fail) for a mere bound.
    values = {column: Call("case", (constant, lower(column), NULL)) for column in columns}
    outcome = transform(predicate, lambda node: values[node] if isinstance(node, Column) else node)

    def answer(here: Expr, elsewhere: Expr) -> Expr:
        typed = Literal(None, types.BOOLEAN) if elsewhere == NULL else elsewhere
        return Call("case", (constant, here, typed))

    answers = Answers(
        answer(Call("coalesce", (outcome, FALSE)), otherwise.may_be_true),
        answer(Call("coalesce", (not_(outcome), FALSE)), otherwise.may_be_false),
        answer(Call("is_null", (outcome,)), otherwise.may_be_null),
    )
    # If the predicate fails for the constant, so does the evaluation of these answers.
    return answers, FALSE if may_fail == FALSE else answer(FALSE, may_fail)


def _has_value_semantics(column: Column) -> bool:
    # Bounds of floats hide NaN and the sign of zero, which functions can distinguish.
    return column.type is not None and is_ordered(column.type) and not pa.types.is_floating(column.type)


def _is_constant(column: Column) -> Expr:
    nulls = null_count(column)
    return any_of(
        all_of(Call("=", (nulls, _ZERO)), Call("=", (lower(column), upper(column)))),
        all_of(Call("=", (nulls, ROW_COUNT)), Call("is_null", (lower(column),))),
    )
