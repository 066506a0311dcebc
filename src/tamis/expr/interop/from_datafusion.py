"""Translation of DataFusion expressions.

Most nodes have a class with their parts (`to_variant`). Functions have none: their name and arguments come from
`rex_call_operator` and `rex_call_operands`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError, to_one_line
from tamis.expr.interop.translate_tree import Parts, is_divisor_other_than_zero, is_number_by_form, translate_tree
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, TRUE, Call, Column, Expr, Literal, and_, not_

_ADVICE = "write the filter as SQL text"
_NAN = Literal(float("nan"), types.DOUBLE)


def is_datafusion_expression(value: object) -> bool:
    """Return whether it is a DataFusion expression, by the class name, so that DataFusion need not be installed."""
    kind = type(value)
    return kind.__name__ in ("Expr", "RawExpr") and kind.__module__.partition(".")[0] == "datafusion"


def from_datafusion(expression: Any) -> Expr:
    """Translate a logical `datafusion.Expr`; a node without a counterpart is an error that names it.

    The translation is TRUE, FALSE and NULL where the expression is in DataFusion, and NaN equals itself and is larger
    than every number in both. Two exceptions have the semantics of Tamis: integers are computed in 64 bits and do not
    wrap around, and they are compared with floats exactly. The table of a qualified column is ignored.

    Not translated, because the meaning would differ: casts of columns, and sums of two columns, whose types are unknown
    here; a division that may be one of integers, which DataFusion truncates, or by zero; `%` by zero.
    """
    return translate_tree(expression, _translate)


def _translate(node: Any) -> Expr | Parts:
    kind = node.variant_name()
    if kind == "ScalarFunction":
        return _translate_function(node)
    if kind == "Literal":
        return _translate_literal(node)
    try:
        parts = node.to_variant()
    except ValueError as error:
        raise _make_unsupported_error(f"node {kind!r}") from error
    match kind:
        case "Column":
            return Column((parts.name(),), exact=True)
        case "Alias":
            return Parts([parts.expr()], lambda args: args[0])
        case "BinaryExpr":
            operator = parts.op()
            if operator not in _OPERATORS:
                raise _make_unsupported_error(f"operator {operator!r}")
            return Parts([parts.left(), parts.right()], _OPERATORS[operator])
        case "InList":
            return Parts([parts.expr(), *parts.list()], _negate_if(parts.negated(), _build_membership))
        case "Between":
            return Parts([parts.expr(), parts.low(), parts.high()], _negate_if(parts.negated(), _build_between))
        case "Like":
            if "ilike" in node.rex_call_operator():
                raise _make_unsupported_error("operator 'ILIKE'")
            escape = [] if parts.escape_char() is None else [literal(parts.escape_char())]
            return Parts(
                [parts.expr(), parts.pattern()], _negate_if(parts.negated(), lambda args: _build_like(args, escape))
            )
        case "Case":
            return _translate_case(parts)
        case "Cast" | "TryCast":
            return Parts([parts.expr()], _build_cast(str(node)))
        case _ if kind in _TESTS:
            return Parts([parts.expr()], _TESTS[kind])
        case _:
            raise _make_unsupported_error(f"node {kind!r}")


def _make_unsupported_error(what: str) -> ExpressionError:
    return ExpressionError(f"the DataFusion {what} has no counterpart here: {_ADVICE}")


def _translate_literal(node: Any) -> Literal:
    try:
        return literal(node.python_value())
    except (NotImplementedError, ValueError, pa.ArrowException) as error:
        raise ExpressionError(f"a DataFusion literal cannot be translated ({to_one_line(error)}): {_ADVICE}") from error


_Build = Callable[[tuple[Expr, ...]], Expr]


def _rename(function: str) -> _Build:
    return lambda args: Call(function, args)


def _negate_if(negated: bool, build: _Build) -> _Build:
    return (lambda args: not_(build(args))) if negated else build


def _build_membership(args: tuple[Expr, ...]) -> Expr:
    return Call("in", args) if len(args) > 1 else FALSE


def _build_between(args: tuple[Expr, ...]) -> Expr:
    value, low, high = args
    return and_(Call(">=", (value, low)), Call("<=", (value, high)))


def _build_like(args: tuple[Expr, ...], escape: list[Literal]) -> Expr:
    return Call("like", (*args, *escape))


def _build_arithmetic(function: str) -> _Build:
    def build(args: tuple[Expr, ...]) -> Expr:
        if not any(map(is_number_by_form, args)):
            raise ExpressionError(f"a DataFusion expression has {function} of columns, which may be dates: {_ADVICE}")
        return Call(function, args)

    return build


def _build_division(args: tuple[Expr, ...]) -> Expr:
    divisor = args[1]
    is_floating = isinstance(divisor, Literal) and pa.types.is_floating(divisor.type)
    if not is_floating or not is_divisor_other_than_zero(divisor):
        raise ExpressionError(
            "a DataFusion expression divides integers, which truncates there, or by something that may be zero: "
            f"divide by a float such as lit(2.0), or {_ADVICE}"
        )
    return Call("/", args)


def _build_remainder(args: tuple[Expr, ...]) -> Expr:
    if not is_divisor_other_than_zero(args[1]):
        raise ExpressionError(
            "a DataFusion expression has % by something that may be zero, which fails there and is NULL here: "
            f"use a number, or {_ADVICE}"
        )
    return Call("%", args)


_OPERATORS: dict[str, _Build] = {
    **{name: _rename(name) for name in ("=", "<", "<=", ">", ">=")},
    "!=": _rename("<>"),
    "AND": _rename("and"),
    "OR": _rename("or"),
    "IS NOT DISTINCT FROM": _rename("<=>"),
    "IS DISTINCT FROM": lambda args: not_(Call("<=>", args)),
    "+": _build_arithmetic("+"),
    "-": _build_arithmetic("-"),
    "*": _build_arithmetic("*"),
    "/": _build_division,
    "%": _build_remainder,
}

_TESTS: dict[str, _Build] = {
    "Not": _rename("not"),
    "Negative": _rename("negate"),
    "IsNull": _rename("is_null"),
    "IsUnknown": _rename("is_null"),
    "IsNotNull": _rename("is_not_null"),
    "IsNotUnknown": _rename("is_not_null"),
    "IsTrue": lambda args: Call("<=>", (args[0], TRUE)),
    "IsFalse": lambda args: Call("<=>", (args[0], FALSE)),
    "IsNotTrue": lambda args: not_(Call("<=>", (args[0], TRUE))),
    "IsNotFalse": lambda args: not_(Call("<=>", (args[0], FALSE))),
}

_FUNCTIONS: dict[str, tuple[int | None, _Build]] = {
    "starts_with": (2, _rename("startswith")),
    "ends_with": (2, _rename("endswith")),
    "contains": (2, _rename("contains")),
    "lower": (1, _rename("lower")),
    "upper": (1, _rename("upper")),
    "character_length": (1, _rename("length")),
    "abs": (1, _rename("abs")),
    "coalesce": (None, _rename("coalesce")),
    "isnan": (1, lambda args: Call("=", (args[0], _NAN))),
    "get_field": (2, lambda args: _build_field(*args)),
}
"""For each function: its number of arguments (None: any number), and its translation."""


def _translate_function(node: Any) -> Parts:
    name, arguments = node.rex_call_operator(), node.rex_call_operands()
    expected, build = _FUNCTIONS.get(name, (0, None))
    if build is None or expected not in (None, len(arguments)):
        raise _make_unsupported_error(f"function {name!r}")
    return Parts(arguments, build)


def _build_field(value: Expr, name: Expr) -> Expr:
    match value, name:
        case Column(path=path), Literal(value=str() as field):
            return Column((*path, field), exact=True)
        case _:
            raise _make_unsupported_error("function 'get_field' of anything but a column and a name")


def _translate_case(parts: Any) -> Parts:
    pairs, otherwise = parts.when_then_expr(), parts.else_expr()
    subject = parts.expr()
    found = [each for pair in pairs for each in pair] + ([] if otherwise is None else [otherwise])

    def build(args: tuple[Expr, ...]) -> Expr:
        if subject is not None:
            compared, *args_of_pairs = args
            split = 2 * len(pairs)
            conditions = (Call("=", (compared, each)) for each in args_of_pairs[:split:2])
            values = args_of_pairs[1:split:2]
            args = tuple(each for pair in zip(conditions, values, strict=True) for each in pair)
            args = (*args, *args_of_pairs[split:])
        return Call("case", args if otherwise is not None else (*args, Literal(None)))

    return Parts(found if subject is None else [subject, *found], build)


_ARROW_TYPES = {
    **{f"{sign}Int{bits}": getattr(pa, f"{sign.lower()}int{bits}")() for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Utf8": pa.string(),
    "Utf8View": pa.string(),
    "Date32": pa.date32(),
    **{f"Timestamp({shown})": pa.timestamp(unit) for shown, unit in (("ms", "ms"), ("µs", "us"), ("ns", "ns"))},
}


def _build_cast(shown: str) -> _Build:
    """Build the cast of a literal, as in `DATE '2024-01-01'`; the type is in the text of the node, and nowhere else."""
    target = re.search(r" AS ([^ ]+)\)\)$", shown)
    name = "an unknown type" if target is None else target[1]

    def build(args: tuple[Expr, ...]) -> Expr:
        if not isinstance(args[0], Literal) or name not in _ARROW_TYPES:
            raise _make_unsupported_error(f"cast to {name}, which depends on the type of a column,")
        try:
            return literal(pa.scalar(args[0].value, args[0].type).cast(_ARROW_TYPES[name]))
        except pa.ArrowException as error:
            raise ExpressionError(
                f"a DataFusion literal cannot be cast to {name} ({to_one_line(error)}): {_ADVICE}"
            ) from error

    return build
