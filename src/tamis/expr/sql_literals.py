"""Literals in SQL: numbers, texts, bytes, intervals, and casts of literals that are folded to literals."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from typing import Any

from sqlglot import exp

from tamis import types
from tamis.errors import ParseError, TypeMismatch
from tamis.expr.interval_literals import IntervalLiteral, InvalidInterval, interval_from_node
from tamis.expr.literals import MAX_DIGITS, cast_literal, literal
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Expr, Literal
from tamis.expr.sql_parts import Conversion, Pending, pending_call, to_opaque_call
from tamis.expr.sql_refusals import find_position
from tamis.expr.temporal import parse_interval
from tamis.types import type_from_name, type_name


def _to_literal(node: exp.Expr) -> Literal:
    return Literal(node.this, types.STRING) if node.args.get("is_string") else _to_number(node, negative=False)


def _to_number(node: exp.Expr, *, negative: bool) -> Literal:
    text = f"-{node.this}" if negative else node.this
    if len(text) < 19 and text.isdecimal():
        # Fast path for long lists of integers.
        return Literal(int(text), types.LONG)
    if len(text) > MAX_DIGITS + 10:
        raise ParseError(f"a number has more than {MAX_DIGITS} digits", position=find_position(node))
    try:
        value = float(text) if "e" in text.lower() else Decimal(text) if "." in text else int(text)
        found = literal(value)
    except TypeMismatch as error:
        raise ParseError(str(error), position=find_position(node)) from error
    except (ValueError, ArithmeticError) as error:
        raise ParseError(f"{text} is not a number", position=find_position(node)) from error
    if isinstance(value, float) and math.isinf(value):
        raise ParseError(f"the number {text} is too large for a double", position=find_position(node))
    return found


def to_constant(node: exp.Expr) -> Literal | None:
    """Return the literal that a node writes directly, signs included; None for other nodes, bracketed ones included."""
    match node:
        case exp.Literal():
            return _to_literal(node)
        case exp.Neg(this=exp.Literal(is_string=False) as number):
            return _to_number(number, negative=True)
        case exp.Null():
            return NULL
        case exp.Boolean():
            return TRUE if node.this else FALSE
        case exp.RawString():
            return Literal(node.this, types.STRING)
        case exp.HexString():
            return _to_binary(node)
        case _:
            return None


def _convert_constant(node: exp.Expr) -> Literal:
    found = to_constant(node)
    assert found is not None
    return found


def _to_binary(node: exp.Expr) -> Literal:
    digits = node.this
    # With an odd number of digits, the first byte has one digit, as in Spark.
    return Literal(bytes.fromhex(digits if len(digits) % 2 == 0 else "0" + digits), types.BINARY)


def _join_texts(node: exp.Expr) -> Expr:
    texts = [to_constant(part) for part in node.expressions]
    return Literal("".join(text.value for text in texts if text is not None), types.STRING)


def _convert_negation(node: exp.Expr) -> Conversion:
    inner = node.this
    if (number := to_constant(node)) is not None:
        return number
    if isinstance(inner, exp.Interval) and (interval := interval_from_node(inner)) is not None:
        return _to_interval_literal(IntervalLiteral(-interval.count, interval.first, interval.last), node)
    if isinstance(inner, exp.Cast) and isinstance(inner.this, exp.Literal) and not inner.this.is_string:
        # `-128Y` is a tinyint although 128 is not.
        name = _target_type_name(inner)
        folded = cast_literal(_to_number(inner.this, negative=True), type_from_name(name)) if name else None
        if folded is not None and not inner.args.get("safe"):
            return folded
    return pending_call("negate", inner)


def _convert_interval(node: exp.Expr) -> Expr:
    try:
        found = interval_from_node(node)
    except InvalidInterval as reason:
        raise ParseError(f"invalid interval: {reason}", position=find_position(node)) from reason
    return to_opaque_call(node) if found is None else _to_interval_literal(found, node)


def _to_interval_literal(interval: IntervalLiteral, node: exp.Expr) -> Expr:
    """Return the literal, or the unchanged text where a value without its fields would have another type.

    A date plus `INTERVAL '1 00' DAY TO HOUR` is a timestamp; a date plus one day is a date.
    """
    if interval.has_months:
        return Literal((interval.count, 0, 0), types.INTERVAL)
    days, microseconds = divmod(abs(interval.count), 86_400_000_000)
    if interval.last != "day" and not microseconds:
        return to_opaque_call(node)
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
"""Operators for which `200L` differs from `200`: an engine gives a plain literal the type of the other operand."""


def _convert_cast(node: exp.Expr) -> Conversion:
    name = _target_type_name(node)
    if name is None:
        return to_opaque_call(node)
    is_try = bool(node.args.get("safe"))
    constant = to_constant(node.this)
    if name == "interval" and constant is not None and isinstance(constant.value, str):
        # The only syntax for an interval with both months and days.
        interval = parse_interval(constant.value)
        return to_opaque_call(node) if interval is None else Literal(interval, types.INTERVAL)
    if constant is not None and not is_try:
        folded = cast_literal(constant, type_from_name(name))
        if folded is not None and not (name == "bigint" and isinstance(node.parent, _ARITHMETIC)):
            return folded
        # sqlglot represents `DATE '…'` as a plain Cast, and `CAST(… AS DATE)` as its subclass TryCast.
        if type(node) is exp.Cast and name.startswith(("date", "time")):
            raise _invalid_time_error(name, constant.value, node)
    return pending_cast(name, node.this, "try_cast" if is_try else "cast")


def pending_cast(name: str, part: exp.Expr, function: str = "cast") -> Pending:
    target = Literal(name, types.STRING)
    return Pending((part,), lambda args: Call(function, (args[0], target)))


def _invalid_time_error(name: str, value: Any, node: exp.Expr) -> ParseError:
    if name == "timestamp_ntz" and cast_literal(Literal(value, types.STRING), types.TIMESTAMP) is not None:
        hint = "TIMESTAMP_NTZ has no time zone: leave it out, or write TIMESTAMP"
    else:
        example = "10:30:00.5" if name == "time" else "2024-01-31" if name == "date" else "2024-01-31 10:30:00.5"
        hint = f"Write {name.upper()} '{example}'"
    return ParseError(f"{value!r} is not a {name}", position=find_position(node), hint=hint)


def _target_type_name(node: exp.Expr) -> str | None:
    """Return the name of a cast's target type; None for arrays, maps and structs, which are not supported here."""
    target = node.args["to"]
    if target.args.get("nested") or isinstance(target.this, exp.Interval):
        return None
    if target.this is exp.DType.TIME and target.expressions:
        # TIME(p) has fewer digits than the type `time` of Tamis.
        return None
    kind = target.args.get("kind") or getattr(target.this, "name", target.this)
    spelled = _TYPE_NAMES.get(kind, kind)
    if target.expressions:
        spelled += f"({','.join(parameter.name for parameter in target.expressions)})"
    try:
        return type_name(type_from_name(spelled))
    except TypeMismatch as error:
        raise ParseError(str(error), position=find_position(node)) from error


LITERAL_CONVERTERS: dict[type[exp.Expr], Callable[[Any], Conversion]] = {
    exp.Literal: _to_literal,
    exp.Null: _convert_constant,
    exp.Boolean: _convert_constant,
    exp.RawString: _convert_constant,
    exp.HexString: _convert_constant,
    exp.Concat: _join_texts,
    exp.Neg: _convert_negation,
    exp.Add: lambda node: pending_call("+", node.this, node.expression),
    exp.Interval: _convert_interval,
    exp.Cast: _convert_cast,
    exp.TryCast: _convert_cast,
}
"""Converters of sqlglot's nodes for literals and casts. Signs are included because they may be part of a literal."""
