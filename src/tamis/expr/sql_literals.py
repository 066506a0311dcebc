"""Literals in SQL: numbers, texts, bytes, intervals, and the casts of literals that are literals themselves."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import exp

from tamis import types
from tamis.errors import ParseError, TypeMismatch
from tamis.expr.interval_literals import IntervalLiteral, NotAnInterval, of_node
from tamis.expr.literals import MOST_DIGITS, cast_literal, literal
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Expr, Literal
from tamis.expr.sql_parts import Pending, Shape, call, opaque
from tamis.expr.sql_refusals import position_of
from tamis.expr.temporal import parse_interval
from tamis.types import type_from_name, type_name


def _literal(node: exp.Expr) -> Literal:
    return Literal(node.this, types.STRING) if node.args.get("is_string") else _number(node, negative=False)


def _number(node: exp.Expr, *, negative: bool) -> Literal:
    text = f"-{node.this}" if negative else node.this
    if len(text) < 19 and text.isdecimal():
        # Long lists are made of these, and they need no search for their type.
        return Literal(int(text), types.LONG)
    if len(text) > MOST_DIGITS + 10:
        raise ParseError(f"a number has more than {MOST_DIGITS} digits", position=position_of(node))
    try:
        value = float(text) if "e" in text.lower() else Decimal(text) if "." in text else int(text)
        found = literal(value)
    except TypeMismatch as error:
        raise ParseError(str(error), position=position_of(node)) from error
    except (ValueError, ArithmeticError) as error:
        raise ParseError(f"{text} is not a number", position=position_of(node)) from error
    if isinstance(value, float) and math.isinf(value):
        raise ParseError(f"the number {text} is too large for a double", position=position_of(node))
    return found


def constant_of(node: exp.Expr) -> Literal | None:
    """The literal that a node spells out, signs included; None for everything else, brackets too."""
    match node:
        case exp.Literal():
            return _literal(node)
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return _number(number, negative=True)
        case exp.Null():
            return NULL
        case exp.Boolean():
            return TRUE if node.this else FALSE
        case exp.RawString():
            return Literal(node.this, types.STRING)
        case exp.HexString():
            return _binary(node)
        case _:
            return None


def _constant(node: exp.Expr) -> Literal:
    found = constant_of(node)
    assert found is not None
    return found


def _binary(node: exp.Expr) -> Literal:
    digits = node.this
    # An odd number of digits starts with half a byte, as in Spark.
    return Literal(bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits), types.BINARY)


def _joined_texts(node: exp.Expr) -> Expr:
    texts = [constant_of(part) for part in node.expressions]
    return Literal("".join(text.value for text in texts if text is not None), types.STRING)


def _negation(node: exp.Expr) -> Shape:
    inner = node.this
    if (number := constant_of(node)) is not None:
        return number
    if isinstance(inner, exp.Interval) and (interval := of_node(inner)) is not None:
        return _interval_literal(IntervalLiteral(-interval.count, interval.first, interval.last), node)
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.this.is_string:
        # `-128Y` is a tinyint although 128 is none.
        name = _type_name(inner)
        folded = cast_literal(_number(inner.this, negative=True), type_from_name(name)) if name else None
        if folded is not None and not inner.args.get("safe"):
            return folded
    return call("negate", inner)


def _interval(node: exp.Expr) -> Expr:
    try:
        found = of_node(node)
    except NotAnInterval as reason:
        raise ParseError(f"invalid interval: {reason}", position=position_of(node)) from reason
    return opaque(node) if found is None else _interval_literal(found, node)


def _interval_literal(interval: IntervalLiteral, node: exp.Expr) -> Expr:
    """The literal; the text as it stands where a value without its fields would be of another type.

    A date and `INTERVAL '1 00' DAY TO HOUR` make a timestamp, a date and one day make a date.
    """
    if interval.has_months:
        return Literal((interval.count, 0, 0), types.INTERVAL)
    days, microseconds = divmod(abs(interval.count), 86_400_000_000)
    if interval.last != "day" and not microseconds:
        return opaque(node)
    sign = -1 if interval.count < 0 else 1
    return Literal((0, sign * days, sign * microseconds * 1_000), types.INTERVAL)


# --- Casts ----------------------------------------------------------------------------------------------------------

_TYPE_NAMES = {
    "TEXT": "string",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
    "NULL": "void",
}


_ARITHMETIC = (exp.Add, exp.Sub, exp.Mul, exp.Mod, exp.IntDiv)
"""Operators for which `200L` is not `200`: an engine gives the plain literal the type of the other operand."""


def _cast(node: exp.Expr) -> Shape:
    name = _type_name(node)
    if name is None:
        return opaque(node)
    is_try = bool(node.args.get("safe"))
    constant = constant_of(node.this)
    if name == "interval" and constant is not None and isinstance(constant.value, str):
        # The one spelling of an interval that has both months and days.
        interval = parse_interval(constant.value)
        return opaque(node) if interval is None else Literal(interval, types.INTERVAL)
    if constant is not None and not is_try:
        folded = cast_literal(constant, type_from_name(name))
        if folded is not None and not (name == "bigint" and isinstance(node.parent, _ARITHMETIC)):
            return folded
        # sqlglot makes a plain Cast of `DATE '…'`, and its subclass TryCast of `CAST(… AS DATE)`.
        if type(node) is exp.Cast and name.startswith(("date", "time")):
            raise _not_a_time(name, constant.value, node)
    return cast_to(name, node.this, "try_cast" if is_try else "cast")


def cast_to(name: str, part: exp.Expr, function: str = "cast") -> Pending:
    target = Literal(name, types.STRING)
    return Pending((part,), lambda args: Call(function, (args[0], target)))


def _not_a_time(name: str, value: Any, node: exp.Expr) -> ParseError:
    if name == "timestamp_ntz" and cast_literal(Literal(value, types.STRING), types.TIMESTAMP) is not None:
        hint = "TIMESTAMP_NTZ has no time zone: leave it out, or write TIMESTAMP"
    else:
        example = "10:30:00.5" if name == "time" else "2024-01-31" if name == "date" else "2024-01-31 10:30:00.5"
        hint = f"Write {name.upper()} '{example}'"
    return ParseError(f"{value!r} is not a {name}", position=position_of(node), hint=hint)


def _type_name(node: exp.Expr) -> str | None:
    """The name of the type that a cast asks for; None for arrays, maps and structs, which are not modelled."""
    target = node.args["to"]
    if target.args.get("nested") or isinstance(target.this, exp.Interval):
        return None
    if target.this is exp.DType.TIME and target.expressions:
        # Of fewer digits than a time of day has here.
        return None
    kind = target.args.get("kind") or getattr(target.this, "name", target.this)
    spelled = _TYPE_NAMES.get(kind, kind)
    if target.expressions:
        spelled += f"({','.join(parameter.name for parameter in target.expressions)})"
    try:
        return type_name(type_from_name(spelled))
    except TypeMismatch as error:
        raise ParseError(str(error), position=position_of(node)) from error


LITERALS: dict[type[exp.Expr], Callable[[Any], Shape]] = {
    exp.Literal: _literal,
    exp.Null: _constant,
    exp.Boolean: _constant,
    exp.RawString: _constant,
    exp.HexString: _constant,
    exp.Concat: _joined_texts,
    exp.Neg: _negation,
    exp.Add: lambda node: call("+", node.this, node.expression),
    exp.Interval: _interval,
    exp.Cast: _cast,
    exp.TryCast: _cast,
}
"""What sqlglot's nodes for literals and casts become; signs are here because literals may be made of them."""
