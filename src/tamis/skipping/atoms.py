"""The three answers for the leaves of a predicate: comparisons, lists, patterns, NULL tests, boolean columns."""

from __future__ import annotations

from collections.abc import Callable

from tamis import types
from tamis.expr.functions import FUNCTIONS, Nulls, type_of
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like, successor_of_bytes, successor_of_prefix
from tamis.expr.printer import shown
from tamis.skipping.answers import UNKNOWN, Answers, all_of, any_of, negate
from tamis.skipping.ranges import Range, range_of
from tamis.types import is_ordered

Known = tuple[Answers, Range | None]
Reason = Callable[[], str]
"""A text that is made when it is asked for: it may show a long expression, and most reasons are never shown."""
Answer = tuple[Answers, Reason | None]
"""The answers, and the reason where the bounds cannot be used."""


def answer_call(call: Call, args: tuple[Known, ...]) -> Answer:
    """Answer a call that is a predicate, from what is known of its arguments."""
    if type_of(call) not in (types.BOOLEAN, None):
        return UNKNOWN, _unusable(call, args)
    rule = _RULES.get(call.function)
    return rule(call, args) if rule is not None else (UNKNOWN, lambda: f"unknown function {call.function}")


def _unusable(call: Call, args: tuple[Known, ...]) -> Reason | None:
    """Why a value has no bounds; None where it has."""
    found = args and all(known[1] is not None for known in args)
    return None if found else lambda: f"function on column: {shown(call)}"


def answer_boolean(values: Range) -> Answers:
    """A boolean column is a predicate by itself; FALSE comes before TRUE."""
    return Answers(
        all_of(values.has_value, _compared("=", values.upper, TRUE)),
        all_of(values.has_value, _compared("=", values.lower, FALSE)),
        values.may_be_null,
    )


def _compared(operator: str, left: Expr, right: Expr) -> Expr:
    return NULL if NULL in (left, right) else Call(operator, (left, right))


# --- Comparisons ----------------------------------------------------------------------------------------------------


def _comparison(call: Call, args: tuple[Known, ...]) -> Answer:
    left, right = args[0][1], args[1][1]
    match call.function, call.args:
        case "<=>", (Call() as predicate, Literal(value=bool() as value)) if type_of(predicate) == types.BOOLEAN:
            answers = args[0][0] if value else args[0][0].negated()
            return Answers(answers.may_be_true, any_of(answers.may_be_false, answers.may_be_null), FALSE), None
    if left is None or right is None:
        return UNKNOWN, _reason_for(call.args)
    return compare_ranges(call.function, left, right), _bounds_reason(call.args, (left, right))


def compare_ranges(operator: str, left: Range, right: Range) -> Answers:
    """Compare two ranges. NaN is a value above all others, so it adds a case to each answer."""
    match operator:
        case "<":
            return _less(left, right)
        case ">":
            return _less(right, left)
        case ">=":
            return _less(left, right).negated()
        case "<=":
            return _less(right, left).negated()
        case "=":
            return _equal(left, right)
        case "<>":
            return _equal(left, right).negated()
        case _:
            return _null_safe_equal(left, right)


def _less(left: Range, right: Range) -> Answers:
    both = all_of(left.has_value, right.has_value)
    return Answers(
        # Some row is less exactly when the smallest left may be below the largest right, or only the right is NaN.
        any_of(
            all_of(both, _compared("<", left.lower, right.upper)),
            all_of(left.has_value, right.may_be_nan),
        ),
        # Some row is not less when the largest left may reach the smallest right, or the left is NaN.
        any_of(
            all_of(both, _compared(">=", left.upper, right.lower)),
            all_of(left.may_be_nan, right.may_be_present),
        ),
        any_of(left.may_be_null, right.may_be_null),
    )


def _equal(left: Range, right: Range) -> Answers:
    both = all_of(left.has_value, right.has_value)
    return Answers(
        any_of(
            all_of(both, _compared("<=", left.lower, right.upper), _compared(">=", left.upper, right.lower)),
            all_of(left.may_be_nan, right.may_be_nan),
        ),
        # All rows are equal only where all four bounds are one value: neither side can be below the other.
        any_of(
            all_of(
                both,
                any_of(_compared("<", left.lower, right.upper), _compared(">", left.upper, right.lower)),
            ),
            all_of(left.may_be_nan, right.has_value),
            all_of(left.has_value, right.may_be_nan),
        ),
        any_of(left.may_be_null, right.may_be_null),
    )


def _null_safe_equal(left: Range, right: Range) -> Answers:
    equal = _equal(left, right)
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


def _in(call: Call, args: tuple[Known, ...]) -> Answer:
    values = args[0][1]
    if values is None or not all(isinstance(item, Literal) for item in call.args[1:]):
        return UNKNOWN, _reason_for(call.args[:1])
    items = [item for item in call.args[1:] if isinstance(item, Literal) and not item.is_null]
    has_null = len(items) < len(call.args) - 1
    numbers = [item for item in items if item.value == item.value]
    lists_nan = len(numbers) < len(items)
    # Some row is in the list when an item lies within the bounds.
    found = Call("any_between", (values.lower, values.upper, *numbers)) if values.lower != NULL and numbers else NULL
    may_be_found = any_of(
        all_of(values.has_value, found if numbers else FALSE),
        values.may_be_nan if lists_nan else FALSE,
    )
    # Some row is outside unless the bounds are one value, and that one is an item.
    outside = (
        any_of(_compared("<", values.lower, values.upper), negate(Call("in", (values.lower, *numbers))))
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
    return answers, _bounds_reason(call.args[:1], (values,))


# --- Text -----------------------------------------------------------------------------------------------------------


def _startswith(call: Call, args: tuple[Known, ...]) -> Answer:
    values = args[0][1]
    match values, call.args[1]:
        case Range(), Literal(value=str() | bytes() as prefix):
            return _with_prefix(values, prefix), _bounds_reason(call.args[:1], (values,))
        case _:
            return UNKNOWN, _reason_for(call.args)


def _with_prefix(values: Range, prefix: str | bytes) -> Answers:
    """The texts with a prefix are those from the prefix itself up to, without it, the prefix's successor."""
    data_type = types.STRING if isinstance(prefix, str) else types.BINARY
    start = Literal(prefix, data_type)
    successor = successor_of_prefix(prefix) if isinstance(prefix, str) else successor_of_bytes(prefix)
    end = None if successor is None else Literal(successor, data_type)
    return Answers(
        all_of(
            values.has_value,
            _compared(">=", values.upper, start),
            TRUE if end is None else _compared("<", values.lower, end),
        ),
        all_of(
            values.has_value,
            any_of(
                _compared("<", values.lower, start),
                FALSE if end is None else _compared(">=", values.upper, end),
            ),
        ),
        values.may_be_null,
    )


def _like(call: Call, args: tuple[Known, ...]) -> Answer:
    values = args[0][1]
    match values, call.args[1:]:
        case Range(), (Literal(value=str() as text),):
            pattern = parse_like(text, DEFAULT_ESCAPE)
        case Range(), (Literal(value=str() as text), Literal(value=str() as escape)):
            pattern = parse_like(text, escape)
        case _:
            return UNKNOWN, _reason_for(call.args)
    assert values is not None
    reason = _bounds_reason(call.args[:1], (values,))
    if pattern.is_exact:
        exact = Literal(pattern.prefix, types.STRING)
        return _equal(values, Range(exact, exact, FALSE, FALSE, TRUE)), reason
    answers = _with_prefix(values, pattern.prefix)
    if pattern.is_prefix:
        return answers, reason
    # Every match has the prefix, but not everything with the prefix matches.
    answers = Answers(answers.may_be_true, values.has_value, values.may_be_null)
    return answers, reason or (None if pattern.prefix else lambda: "pattern starts with a wildcard")


def _other_text_test(call: Call, args: tuple[Known, ...]) -> Answer:
    values = args[0][1]
    if values is None:
        return UNKNOWN, _reason_for(call.args)
    return _anything_but_null(call, args), lambda: f"{call.function} has no order"


# --- NULL -----------------------------------------------------------------------------------------------------------


def _is_null(call: Call, args: tuple[Known, ...]) -> Answer:
    answers, values = args[0]
    argument = call.args[0]
    if isinstance(argument, Call) and type_of(argument) == types.BOOLEAN:
        return Answers(answers.may_be_null, any_of(answers.may_be_true, answers.may_be_false), FALSE), None
    if values is None:
        return UNKNOWN, _reason_for(call.args)
    return Answers(values.may_be_null, values.may_be_present, FALSE), None


def _is_not_null(call: Call, args: tuple[Known, ...]) -> Answer:
    answers, reason = _is_null(call, args)
    return answers.negated(), reason


# --- Everything else ------------------------------------------------------------------------------------------------


def _other(call: Call, args: tuple[Known, ...]) -> Answer:
    """A known function that gives a boolean (`case`, `coalesce`, …): what it does to NULL is all that is known."""
    return _anything_but_null(call, args), _reason_for(call.args)


def _anything_but_null(call: Call, args: tuple[Known, ...]) -> Answers:
    ranges = [values for _, values in args if values is not None]
    if FUNCTIONS[call.function].nulls is not Nulls.PROPAGATES or len(ranges) < len(args):
        return UNKNOWN
    present = all_of(*(values.may_be_present for values in ranges))
    may_fail = range_of(call, tuple(ranges)).failure.possible
    return Answers(present, present, any_of(*(values.has_null for values in ranges), may_fail))


def _bounds_reason(exprs: tuple[Expr, ...], ranges: tuple[Range, ...]) -> Reason | None:
    """Why a comparison cannot use bounds: one side has none."""
    for expr, values in zip(exprs, ranges, strict=True):
        if values.lower == NULL and values.upper == NULL and not isinstance(expr, Literal):
            return _reason_for((expr,))
    return None


def _reason_for(exprs: tuple[Expr, ...]) -> Reason:
    return lambda: _reason_text(exprs)


def _reason_text(exprs: tuple[Expr, ...]) -> str:
    for expr in exprs:
        match expr:
            case Call("try_cast" | "cast", (argument, Literal(value=str() as target))):
                return f"type mismatch: {shown(argument)} as {target} keeps no order"
            case Call(function) if function not in FUNCTIONS:
                return f"unknown function: {function}"
            case Call():
                return f"function on column: {shown(expr)}"
            case Column(type=data_type) if data_type is not None and not is_ordered(data_type):
                return f"type has no order: {expr.name}"
            case _:
                continue
    return "not a comparison with a constant"


_RULES: dict[str, Callable[[Call, tuple[Known, ...]], Answer]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _comparison),
    "in": _in,
    "startswith": _startswith,
    "like": _like,
    "endswith": _other_text_test,
    "contains": _other_text_test,
    "is_null": _is_null,
    "is_not_null": _is_not_null,
    "case": _other,
    "coalesce": _other,
    "cast": _other,
    "try_cast": _other,
}
