"""The value range of an expression in a unit: bounds, and whether it may be NULL or NaN."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pyarrow as pa

from tamis import types
from tamis.expr.evaluate import can_evaluate, is_supported
from tamis.expr.functions.table import FUNCTIONS, Nulls, find_monotone_argument, may_call_fail, type_of
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal
from tamis.skipping.answers import all_of, any_of
from tamis.skipping.metadata import ROW_COUNT, lower, nan_count, null_count, upper
from tamis.types import is_number, is_ordered

ZERO = Literal(0, types.LONG)


@dataclass(frozen=True, slots=True)
class Failure:
    """Whether the evaluation may fail for some row."""

    outside: Expr = FALSE
    """Whether it may overflow or leave the range of its type."""
    on_nan: Expr = FALSE
    """Whether it may convert NaN to an integer. Bounds cannot show this, because they exclude NaN."""

    @property
    def possible(self) -> Expr:
        return any_of(self.outside, self.on_nan)


@dataclass(frozen=True, slots=True)
class Range:
    """The range [lower, upper] of all values of an expression in a unit, except NULL and NaN.

    Every field is an expression over metadata; NULL is unknown.
    """

    lower: Expr
    upper: Expr
    has_null: Expr
    """Whether some row may be NULL because an argument is NULL."""
    may_be_nan: Expr
    has_value: Expr
    """Whether some row may have a value that is neither NULL nor NaN."""
    failure: Failure = Failure()

    @property
    def may_be_null(self) -> Expr:
        """Return whether some row may have no value. A failing row has none: the unit is read, and raises the error."""
        return any_of(self.has_null, self.failure.possible)

    @property
    def may_be_present(self) -> Expr:
        """Return whether some row may have something other than NULL."""
        return any_of(self.has_value, self.may_be_nan)

    def with_failure_as_null(self) -> Range:
        """Return the range of a predicate whose failure was recorded; failures of nested predicates would add up."""
        may_be_null = self.may_be_null
        is_long = isinstance(may_be_null, Call) and len(may_be_null.args) > _MAX_OPERANDS
        return replace(self, has_null=NULL if is_long else may_be_null, failure=Failure())


_MAX_OPERANDS = 16


def compute_range(node: Expr, args: tuple[Range | None, ...]) -> Range:
    """Return the range of a node, given the ranges of its arguments."""
    match node:
        case Column():
            return _find_column_range(node)
        case Literal():
            return _find_literal_range(node)
        case Call():
            return _call_range(node, args)


def _find_column_range(column: Column) -> Range:
    data_type = column.type
    nulls, nans = null_count(column), nan_count(column)
    may_be_null = Call(">", (nulls, ZERO))
    present = Call("<", (nulls, ROW_COUNT))
    if data_type is None or not is_ordered(data_type):
        # Other unordered types, such as dictionaries, may contain floats.
        is_no_float = data_type is not None and (pa.types.is_nested(data_type) or pa.types.is_interval(data_type))
        return Range(NULL, NULL, may_be_null, FALSE if is_no_float else NULL, present)
    if not pa.types.is_floating(data_type):
        return Range(lower(column), upper(column), may_be_null, FALSE, present)
    # Bounds exclude NaN, and most writers do not count it. If they do, a unit may prove to contain only NaN and NULL.
    not_only_nan = Call("<", (Call("+", (nulls, nans)), ROW_COUNT))
    return Range(
        lower(column),
        upper(column),
        may_be_null,
        all_of(Call(">", (nans, ZERO)), present),
        all_of(present, not_only_nan),
    )


def _find_literal_range(literal: Literal) -> Range:
    if literal.is_null:
        return Range(NULL, NULL, TRUE, FALSE, FALSE)
    if literal.value != literal.value:
        return Range(NULL, NULL, FALSE, TRUE, FALSE)
    return Range(literal, literal, FALSE, FALSE, TRUE)


def _call_range(call: Call, args: tuple[Range | None, ...]) -> Range:
    known = FUNCTIONS.get(call.function)
    failure = _find_failure(call, args)
    ranges = [arg for arg in args if arg is not None]
    if known is None or known.nulls is not Nulls.PROPAGATES or len(ranges) < len(args):
        return Range(NULL, NULL, NULL, NULL, NULL, failure)
    # The result is NULL exactly if an argument is NULL, whatever the function does to values.
    has_null = any_of(*(arg.has_null for arg in ranges))
    present = all_of(*(arg.may_be_present for arg in ranges))
    result = type_of(call)
    if result is None:
        return Range(NULL, NULL, has_null, NULL, present, failure)
    is_float = pa.types.is_floating(result)
    image = _map_bounds(call, args)
    if image is None:
        return Range(NULL, NULL, has_null, NULL if is_float else FALSE, present, failure)
    may_be_nan = image.of.may_be_nan if is_float else FALSE
    return Range(image.lower, image.upper, has_null, may_be_nan, image.of.has_value, failure)


@dataclass(frozen=True, slots=True)
class _Image:
    """The bounds of a monotone function, computed from the bounds of its argument."""

    lower: Expr
    upper: Expr
    of: Range


def _map_bounds(call: Call, args: tuple[Range | None, ...]) -> _Image | None:
    monotone = find_monotone_argument(call)
    inner = args[monotone.argument] if monotone is not None else None
    if monotone is None or inner is None or not can_evaluate(call):
        return None
    # A monotone function applied to the bounds gives bounds of the function, however either is rounded.
    low, high = (_apply(call, monotone.argument, bound) for bound in (inner.lower, inner.upper))
    return _Image(low, high, inner) if monotone.keeps_order else _Image(high, low, inner)


def _find_failure(call: Call, args: tuple[Range | None, ...]) -> Failure:
    """Return whether the call, or one of its arguments, may fail for some row."""
    inherited = [arg.failure for arg in args if arg is not None]
    on_nan = any_of(*(each.on_nan for each in inherited))
    never_fails = not may_call_fail(call) if is_supported(call) else _is_harmless_division(call)
    if never_fails:
        return Failure(any_of(*(each.outside for each in inherited)), on_nan)
    image = _map_bounds(call, args)
    if image is None:
        return Failure(NULL, on_nan)
    # A monotone function fails first at the ends of a range (overflow). If it has a value for both bounds, it has one
    # for every row, and so have its arguments. (If it fails for a bound, so does the evaluation of this answer, and the
    # unit is kept.)
    unknown = any_of(*(NULL if bound == NULL else Call("is_null", (bound,)) for bound in (image.lower, image.upper)))
    if not pa.types.is_floating(type_of(call) or types.NULL):
        on_nan = any_of(on_nan, image.of.may_be_nan)
    return Failure(all_of(image.of.has_value, unknown), on_nan)


def _is_harmless_division(call: Call) -> bool:
    """Return whether the embedded engine divides without failing; filters often contain `x % 2`."""
    if not all(is_number(type_of(arg) or types.NULL) for arg in call.args):
        return False
    match call:
        case Call("/"):
            return True
        case Call("%", (_, Literal(value=divisor))):
            # The remainder by 0 is an error, and the remainder of the smallest integer by -1 overflows.
            return divisor not in (0, -1)
        case _:
            return False


def _apply(call: Call, argument: int, bound: Expr) -> Expr:
    if bound == NULL:
        return NULL
    args = list(call.args)
    args[argument] = bound
    return Call(call.function, tuple(args))
