"""The three answers for the atoms of a predicate: comparisons, IN lists, patterns, NULL tests, boolean columns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from tamis import types
from tamis.expr.evaluate import can_evaluate, is_supported
from tamis.expr.functions.table import (
    FUNCTIONS,
    Nulls,
    find_monotone_argument,
    find_pattern,
    may_call_fail,
    negate,
    type_of,
)
from tamis.expr.nodes import FALSE, IMPLICIT, NULL, TRUE, Call, Column, Expr, Literal
from tamis.expr.patterns import find_successor_of_prefix
from tamis.expr.sql.printer import to_display_sql
from tamis.skipping.answers import UNKNOWN, Answers, all_of, any_of
from tamis.skipping.metadata import ROW_COUNT, lower, nan_count, null_count, upper
from tamis.types import is_number, is_ordered

# --- The value range of an expression in a unit: bounds, and whether it may be NULL or NaN ----------------------------

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


Known = tuple[Answers, Range | None]
Reason = Callable[[], str]
"""A reason that is rendered lazily: it may contain a long expression, and most reasons are never shown."""
Answer = tuple[Answers, Reason | None]
"""The answers, and the reason if the bounds cannot be used."""


def answer_call(call: Call, args: tuple[Known, ...]) -> Answer:
    """Return the answers for a call, from the answers and ranges of its arguments."""
    data_type = type_of(call)
    if data_type not in (types.BOOLEAN, None):
        return UNKNOWN, _explain_missing_bounds(call, args)
    known = FUNCTIONS.get(call.function)
    if known is None or not known.accepts(len(call.args)):
        return UNKNOWN, lambda: _explain_unknown(call)
    if known.mirrored is not None:
        return _answer_comparison(call, args)
    otherwise = _answer_other if known.pattern is None else _answer_text_test
    return _RULES.get(call.function, otherwise)(call, args)


def _explain_unknown(call: Call) -> str:
    # Syntax that is kept as text is a call of `sql`, a name that users have never written.
    return (
        f"unsupported syntax: {to_display_sql(call)}"
        if call.function == "sql"
        else f"unknown function: {_get_written_name(call)}"
    )


def _get_written_name(call: Call) -> str:
    return call.function if call.spelling is None else call.spelling.function


def _explain_missing_bounds(call: Call, args: tuple[Known, ...]) -> Reason | None:
    found = args and all(known[1] is not None for known in args)
    return None if found else lambda: f"function on column: {to_display_sql(call)}"


def answer_boolean(values: Range) -> Answers:
    """Return the answers for a boolean column used as a predicate; FALSE sorts before TRUE."""
    return Answers(
        all_of(values.has_value, _compare("=", values.upper, TRUE)),
        all_of(values.has_value, _compare("=", values.lower, FALSE)),
        values.may_be_null,
    )


def _compare(operator: str, left: Expr, right: Expr) -> Expr:
    return NULL if NULL in (left, right) else Call(operator, (left, right))


# --- Comparisons ----------------------------------------------------------------------------------------------------


def _answer_comparison(call: Call, args: tuple[Known, ...]) -> Answer:
    left, right = args[0][1], args[1][1]
    match call.function, call.args:
        case "<=>", (Call() as predicate, Literal(value=bool() as value)) if type_of(predicate) == types.BOOLEAN:
            answers = args[0][0] if value else args[0][0].invert()
            return Answers(answers.may_be_true, any_of(answers.may_be_false, answers.may_be_null), FALSE), None
    if left is None or right is None:
        return UNKNOWN, _explain_lazily(call, call.args)
    return compare_ranges(call.function, left, right), _explain_bounds(call, (left, right))


def compare_ranges(operator: str, left: Range, right: Range) -> Answers:
    """Return the answers for a comparison of two ranges. NaN is above all other values and adds a case to each."""
    match operator:
        case "<":
            return _answer_less(left, right)
        case ">":
            return _answer_less(right, left)
        case ">=":
            return _answer_less(left, right).invert()
        case "<=":
            return _answer_less(right, left).invert()
        case "=":
            return _answer_equal(left, right)
        case "<>":
            return _answer_equal(left, right).invert()
        case _:
            return _answer_null_safe_equal(left, right)


def _answer_less(left: Range, right: Range) -> Answers:
    both = all_of(left.has_value, right.has_value)
    return Answers(
        # Some row may be less if the left minimum may be below the right maximum, or only the right is NaN.
        any_of(
            all_of(both, _compare("<", left.lower, right.upper)),
            all_of(left.has_value, right.may_be_nan),
        ),
        # Some row may be not less if the left maximum may reach the right minimum, or the left is NaN.
        any_of(
            all_of(both, _compare(">=", left.upper, right.lower)),
            all_of(left.may_be_nan, right.may_be_present),
        ),
        any_of(left.may_be_null, right.may_be_null),
    )


def _answer_equal(left: Range, right: Range) -> Answers:
    both = all_of(left.has_value, right.has_value)
    return Answers(
        any_of(
            all_of(both, _compare("<=", left.lower, right.upper), _compare(">=", left.upper, right.lower)),
            all_of(left.may_be_nan, right.may_be_nan),
        ),
        # All rows are equal only if all four bounds are one value: neither side can be below the other.
        any_of(
            all_of(
                both,
                any_of(_compare("<", left.lower, right.upper), _compare(">", left.upper, right.lower)),
            ),
            all_of(left.may_be_nan, right.has_value),
            all_of(left.has_value, right.may_be_nan),
        ),
        any_of(left.may_be_null, right.may_be_null),
    )


def _answer_null_safe_equal(left: Range, right: Range) -> Answers:
    equal = _answer_equal(left, right)
    return Answers(
        any_of(equal.may_be_true, all_of(left.may_be_null, right.may_be_null)),
        any_of(
            equal.may_be_false,
            all_of(left.may_be_null, right.may_be_present),
            all_of(left.may_be_present, right.may_be_null),
        ),
        FALSE,
    )


# --- Lists ----------------------------------------------------------------------------------------------------------


def _answer_in(call: Call, args: tuple[Known, ...]) -> Answer:
    values = args[0][1]
    if values is None or not all(isinstance(item, Literal) for item in call.args[1:]):
        return UNKNOWN, _explain_lazily(call, call.args[:1])
    items = [item for item in call.args[1:] if isinstance(item, Literal) and not item.is_null]
    has_null = len(items) < len(call.args) - 1
    numbers = [item for item in items if item.value == item.value]
    lists_nan = len(numbers) < len(items)
    # Some row may be in the list if an item lies within the bounds.
    found = Call("any_between", (values.lower, values.upper, *numbers)) if values.lower != NULL and numbers else NULL
    may_be_found = any_of(
        all_of(values.has_value, found if numbers else FALSE),
        values.may_be_nan if lists_nan else FALSE,
    )
    # Some row may be outside unless the bounds are one value, and that value is an item.
    outside = (
        any_of(_compare("<", values.lower, values.upper), negate(Call("in", (values.lower, *numbers))))
        if values.lower != NULL and numbers
        else (NULL if numbers else TRUE)
    )
    may_be_outside = any_of(
        all_of(values.has_value, outside),
        FALSE if lists_nan else values.may_be_nan,
    )
    # `x IN (1, NULL)` is NULL, not FALSE, for an x outside: it might equal the NULL.
    answers = Answers(
        may_be_found,
        FALSE if has_null else may_be_outside,
        any_of(values.may_be_null, may_be_outside if has_null else FALSE),
    )
    return answers, _explain_bounds(call, (values,))


# --- Text -----------------------------------------------------------------------------------------------------------


def _answer_text_test(call: Call, args: tuple[Known, ...]) -> Answer:
    values, pattern = args[0][1], find_pattern(call)
    if values is None or pattern is None:
        return _answer_other(call, args)
    reason = _explain_bounds(call, (values,))
    data_type = types.STRING if isinstance(pattern.prefix, str) else types.BINARY
    if pattern.is_exact:
        exact = Literal(pattern.prefix, data_type)
        return _answer_equal(values, Range(exact, exact, FALSE, FALSE, TRUE)), reason
    if not pattern.prefix and not pattern.is_prefix:
        is_like = call.function == "like"
        why = "pattern starts with a wildcard" if is_like else f"bounds cannot answer {_get_written_name(call)}"
        return _answer_from_nulls(call, args), reason or (lambda: why)
    answers = _answer_prefix(values, Literal(pattern.prefix, data_type))
    if pattern.is_prefix:
        return answers, reason
    # Every match has the prefix, but not everything with the prefix matches.
    return Answers(answers.may_be_true, values.has_value, values.may_be_null), reason


def _answer_prefix(values: Range, start: Literal) -> Answers:
    """Return the answers for a prefix test: texts with a prefix are those in [prefix, successor of prefix)."""
    successor = find_successor_of_prefix(start.value)
    end = None if successor is None else Literal(successor, start.type)
    return Answers(
        all_of(
            values.has_value,
            _compare(">=", values.upper, start),
            TRUE if end is None else _compare("<", values.lower, end),
        ),
        all_of(
            values.has_value,
            any_of(
                _compare("<", values.lower, start),
                FALSE if end is None else _compare(">=", values.upper, end),
            ),
        ),
        values.may_be_null,
    )


# --- NULL -----------------------------------------------------------------------------------------------------------


def _answer_is_null(call: Call, args: tuple[Known, ...]) -> Answer:
    answers, values = args[0]
    argument = call.args[0]
    if isinstance(argument, Call) and type_of(argument) == types.BOOLEAN:
        return Answers(answers.may_be_null, any_of(answers.may_be_true, answers.may_be_false), FALSE), None
    if values is None:
        return UNKNOWN, _explain_lazily(call, call.args)
    return Answers(values.may_be_null, values.may_be_present, FALSE), None


def _answer_is_not_null(call: Call, args: tuple[Known, ...]) -> Answer:
    answers, reason = _answer_is_null(call, args)
    return answers.invert(), reason


def _answer_partition_filter(call: Call, args: tuple[Known, ...]) -> Answer:
    """Return the answers for a partition filter: those of its expression, which is never NULL for a row."""
    answers, _ = args[0]
    return Answers(answers.may_be_true, any_of(answers.may_be_false, answers.may_be_null), FALSE), None


# --- Everything else ------------------------------------------------------------------------------------------------


def _answer_other(call: Call, args: tuple[Known, ...]) -> Answer:
    """Return the answers for another boolean function (`case`, `coalesce`, …), from its NULL behaviour alone."""
    return _answer_from_nulls(call, args), _explain_lazily(call, call.args)


def _answer_from_nulls(call: Call, args: tuple[Known, ...]) -> Answers:
    ranges = [values for _, values in args if values is not None]
    if FUNCTIONS[call.function].nulls is not Nulls.PROPAGATES or len(ranges) < len(args):
        return UNKNOWN
    present = all_of(*(values.may_be_present for values in ranges))
    may_fail = compute_range(call, tuple(ranges)).failure.possible
    return Answers(present, present, any_of(*(values.has_null for values in ranges), may_fail))


def _explain_bounds(call: Call, ranges: tuple[Range, ...]) -> Reason | None:
    """Return why a call cannot use the bounds of its first arguments: one of them has none."""
    for expr, values in zip(call.args, ranges, strict=False):
        if values.lower == NULL and values.upper == NULL and not isinstance(expr, Literal):
            return _explain_lazily(call, (expr,))
    return None


def _explain_lazily(call: Call, args: tuple[Expr, ...]) -> Reason:
    return lambda: _explain(call, args)


def _explain(call: Call, args: tuple[Expr, ...]) -> str:
    """Return why a call cannot use the bounds of these arguments, in the words of its user."""
    for expr in args:
        match expr:
            case Call("try_cast" | "cast", (argument, Literal(value=str() as target))):
                return f"type mismatch: {to_display_sql(argument)} as {target} does not preserve order"
            case Call(function) if function not in FUNCTIONS:
                return _explain_unknown(expr)
            case Call(spelling=spelling):
                # Its user wrote the call around an implicit one.
                return f"function on column: {to_display_sql(call if spelling == IMPLICIT else expr)}"
            case Column(type=data_type) if data_type is not None and not is_ordered(data_type):
                return f"unordered type: {expr.name}"
            case _:
                continue
    return "not a comparison with a constant"


_RULES: dict[str, Callable[[Call, tuple[Known, ...]], Answer]] = {
    "in": _answer_in,
    "is_null": _answer_is_null,
    "is_not_null": _answer_is_not_null,
    "partition_filter": _answer_partition_filter,
}
