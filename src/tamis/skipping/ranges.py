"""The range of a value expression over a unit: bounds, and whether it may be NULL or NaN."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa

from tamis import types
from tamis.expr.evaluate import can_evaluate
from tamis.expr.functions import FUNCTIONS, Nulls, monotone_argument, type_of
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal
from tamis.skipping.answers import all_of, any_of
from tamis.skipping.metadata import ROW_COUNT, lower, nan_count, null_count, upper
from tamis.types import is_ordered

ZERO = Literal(0, types.LONG)


@dataclass(frozen=True, slots=True)
class Range:
    """All values of an expression in a unit lie in [lower, upper], apart from NULL and NaN.

    Every field is an expression over metadata; NULL is unknown.
    """

    lower: Expr
    upper: Expr
    may_be_null: Expr
    may_be_nan: Expr
    has_value: Expr
    """May some row hold a value that is neither NULL nor NaN?"""

    @property
    def may_be_present(self) -> Expr:
        """May some row hold something other than NULL?"""
        return any_of(self.has_value, self.may_be_nan)


def range_of(node: Expr, args: tuple[Range | None, ...]) -> Range:
    """The range of a node, given the ranges of its arguments."""
    match node:
        case Column():
            return _column(node)
        case Literal():
            return _literal(node)
        case Call():
            return _call(node, args)


def _column(column: Column) -> Range:
    data_type = column.type
    nulls, nans = null_count(column), nan_count(column)
    may_be_null = Call(">", (nulls, ZERO))
    present = Call("<", (nulls, ROW_COUNT))
    if data_type is None or not is_ordered(data_type):
        # Other types without an order, such as dictionaries, may hold floats.
        is_no_float = data_type is not None and (pa.types.is_nested(data_type) or pa.types.is_interval(data_type))
        return Range(NULL, NULL, may_be_null, FALSE if is_no_float else NULL, present)
    if not pa.types.is_floating(data_type):
        return Range(lower(column), upper(column), may_be_null, FALSE, present)
    # Bounds leave NaN out, and most writers do not count it. Where they do, a unit may turn out to hold nothing else.
    not_only_nan = Call("<", (Call("+", (nulls, nans)), ROW_COUNT))
    return Range(
        lower(column),
        upper(column),
        may_be_null,
        all_of(Call(">", (nans, ZERO)), present),
        all_of(present, not_only_nan),
    )


def _literal(literal: Literal) -> Range:
    if literal.is_null:
        return Range(NULL, NULL, TRUE, FALSE, FALSE)
    if literal.value != literal.value:
        return Range(NULL, NULL, FALSE, TRUE, FALSE)
    return Range(literal, literal, FALSE, FALSE, TRUE)


_NOTHING_KNOWN = Range(NULL, NULL, NULL, NULL, NULL)


def _call(call: Call, args: tuple[Range | None, ...]) -> Range:
    known = FUNCTIONS.get(call.function)
    ranges = [arg for arg in args if arg is not None]
    if known is None or known.nulls is not Nulls.PROPAGATES or len(ranges) < len(args):
        return _NOTHING_KNOWN
    # NULL exactly when an argument is NULL: this holds whatever the function does to values.
    may_be_null = any_of(*(arg.may_be_null for arg in ranges))
    present = all_of(*(arg.may_be_present for arg in ranges))
    result = type_of(call)
    if result is None:
        return Range(NULL, NULL, may_be_null, NULL, present)
    is_float = pa.types.is_floating(result)
    monotone = monotone_argument(call)
    if monotone is None or not can_evaluate(call):
        return Range(NULL, NULL, may_be_null, NULL if is_float else FALSE, present)
    inner = ranges[monotone.argument]
    # A monotone function of the bounds bounds the function, however either is rounded.
    low, high = (_apply(call, monotone.argument, bound) for bound in (inner.lower, inner.upper))
    if not monotone.keeps_order:
        low, high = high, low
    if not is_float:
        # A cast of NaN to a whole number fails: a unit that may hold one must be read, so that it does.
        may_be_null = any_of(may_be_null, inner.may_be_nan)
    return Range(low, high, may_be_null, inner.may_be_nan if is_float else FALSE, inner.has_value)


def _apply(call: Call, argument: int, bound: Expr) -> Expr:
    if bound == NULL:
        return NULL
    args = list(call.args)
    args[argument] = bound
    return Call(call.function, tuple(args))
