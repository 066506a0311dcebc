"""Functions in SQL: aliases of the supported functions, and calls of all other functions by name."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from tamis import types
from tamis.errors import ParseError, format_count
from tamis.expr.functions import FUNCTIONS
from tamis.expr.literals import cast_literal
from tamis.expr.nodes import Call, Expr, Literal, not_
from tamis.expr.sql_literals import pending_cast, to_constant
from tamis.expr.sql_parts import Conversion, Pending, pending_call, to_opaque_call
from tamis.expr.sql_refusals import find_position, refuse_aggregate
from tamis.types import type_from_name

_ALIASES = {
    "isnull": "is_null", "isnotnull": "is_not_null", "mod": "%", "negative": "negate", "nvl": "coalesce",
    "ifnull": "coalesce", "ucase": "upper", "lcase": "lower", "char_length": "length", "character_length": "length",
    "len": "length", "dayofmonth": "day",
}  # fmt: skip
_CAST_FUNCTIONS = {
    **dict.fromkeys(("date", "to_date"), "date"),
    **dict.fromkeys(("timestamp", "to_timestamp", "timestamp_ltz"), "timestamp"),
    **{name: name for name in ("bigint", "int", "smallint", "tinyint", "float", "double", "string", "boolean",
                               "binary", "timestamp_ntz")},
    "decimal": "decimal(10,0)",
}  # fmt: skip
_CALENDAR_PARTS = {
    **dict.fromkeys(("year", "years", "y", "yr", "yrs"), "year"),
    **dict.fromkeys(("month", "months", "mon", "mons"), "month"),
    **dict.fromkeys(("day", "days", "d"), "day"),
    **dict.fromkeys(("hour", "hours", "h", "hr", "hrs"), "hour"),
    **dict.fromkeys(("minute", "minutes", "m", "min", "mins"), "minute"),
}


def _convert_function(node: exp.Expr) -> Conversion:
    name = node.name.lower()
    args = node.expressions
    refuse_aggregate(node)
    if name == "sql" or not all(map(_is_plain, args)):
        return to_opaque_call(node)
    if name in _CAST_FUNCTIONS and len(args) == 1:
        constant = to_constant(args[0])
        target = _CAST_FUNCTIONS[name]
        folded = cast_literal(constant, type_from_name(target)) if constant is not None else None
        return folded if folded is not None else pending_cast(target, args[0])
    match name, args:
        case ("date_trunc", [unit, value]) | ("trunc", [value, unit]):
            return _convert_truncation(node, name, unit, value)
        case "left", [text, length]:
            return pending_call("substring", text, exp.Literal.number(1), length)
        case (("date_part" | "datepart"), [exp.Literal(is_string=True) as part, value]):
            function = _CALENDAR_PARTS.get(part.this.lower())
            return pending_call(function, value) if function is not None else pending_call(name, *args)
        case (("date_add" | "dateadd" | "date_sub"), [day, count]):
            return _convert_date_shift("-" if name == "date_sub" else "+", day, count)
        case "like", [value, pattern, escape]:
            return _convert_like(exp.Escape(this=exp.Like(this=value, expression=pattern), expression=escape))
        case _:
            return _pending_function(node, _ALIASES.get(name, name), args)


def _is_plain(argument: exp.Expr) -> bool:
    """Return whether an argument is a value, and not a lambda function, a named argument or an alias."""
    is_value = isinstance(argument, exp.Condition | exp.Interval | exp.Tuple)
    return is_value and not isinstance(argument, exp.Kwarg | exp.PropertyEQ)


def _pending_function(node: exp.Expr, name: str, args: Sequence[exp.Expr]) -> Pending:
    known = FUNCTIONS.get(name)
    if known is not None and not known.fewest <= len(args) <= known.most:
        wanted = format_count(known.fewest, "argument")
        least = "" if known.fewest == known.most else "at least "
        raise ParseError(f"{name} takes {least}{wanted}, not {len(args)}", position=find_position(node))
    if known is not None:
        return pending_call(name, *args)
    position = find_position(node)
    return Pending(args, lambda converted: Call(name, converted, position))


def _convert_truncation(node: exp.Expr, name: str, unit: exp.Expr, value: exp.Expr) -> Conversion:
    constant = to_constant(unit)
    if constant is None or not isinstance(constant.value, str):
        return to_opaque_call(node)
    lowered = Literal(constant.value.lower(), types.STRING)
    if name == "trunc":
        return Pending((value,), lambda args: Call(name, (args[0], lowered)))
    return Pending((value,), lambda args: Call(name, (lowered, args[0])))


def _convert_date_shift(operator: str, day: exp.Expr, count: exp.Expr) -> Pending:
    """Convert `date_add` and `date_sub`, which cast a timestamp or a text to a date first."""

    def build(args: tuple[Expr, ...]) -> Expr:
        start, days = args
        if isinstance(start, Literal):
            start = cast_literal(start, types.DATE) or start
        if not (isinstance(start, Literal) and start.type == types.DATE):
            start = Call("cast", (start, Literal("date", types.STRING)))
        return Call(operator, (start, days))

    return Pending((day, count), build)


def _convert_like(node: exp.Expr) -> Conversion:
    escape = None
    like = node
    if isinstance(node, exp.Escape):
        like = node.this
        escape = to_constant(node.expression)
        if escape is None or not isinstance(escape.value, str) or len(escape.value) != 1:
            raise ParseError("ESCAPE needs a text of one character", position=find_position(node))
    pattern = to_constant(like.expression)
    ignores_case = isinstance(like, exp.ILike)
    if isinstance(like.expression, exp.Any | exp.All) or (ignores_case and not _can_lower(pattern, escape)):
        return to_opaque_call(node)

    def build(args: tuple[Expr, ...]) -> Expr:
        value, matched = args
        if ignores_case and pattern is not None:
            value, matched = Call("lower", (value,)), Literal(pattern.value.lower(), types.STRING)
        found = build_like(value, matched, escape)
        return not_(found) if like.args.get("negate") else found

    return Pending((like.this, like.expression), build)


def _can_lower(pattern: Literal | None, escape: Literal | None) -> bool:
    """Return whether a lower-case pattern means the same in every engine: beyond ASCII they disagree."""
    texts = [part.value for part in (pattern, escape) if part is not None]
    is_ascii = all(isinstance(text, str) and text.isascii() for text in texts)
    return pattern is not None and is_ascii and (escape is None or not escape.value.isalpha())


def build_like(value: Expr, pattern: Expr, escape: Literal | None = None) -> Call:
    """Return a LIKE call, without the escape character if it is the default backslash."""
    if escape is None or escape.value == "\\":
        return Call("like", (value, pattern))
    return Call("like", (value, pattern, escape))


def _convert_extract(node: exp.Expr) -> Conversion:
    function = _CALENDAR_PARTS.get(node.this.name.lower())
    return to_opaque_call(node) if function is None else pending_call(function, node.expression)


def _convert_substring(node: exp.Expr) -> Pending:
    parts = [node.args.get(key) for key in ("this", "start", "length", "zero_start")]
    return _pending_function(node, "substring", [part for part in parts if part is not None])


def _convert_trim(node: exp.Expr) -> Conversion:
    is_plain = all(value is None for key, value in node.args.items() if key != "this")
    return pending_call("trim", node.this) if is_plain else to_opaque_call(node)


def _convert_position(node: exp.Expr) -> Pending:
    parts = [node.args.get(key) for key in ("substr", "this", "position")]
    return pending_call("position", *[part for part in parts if part is not None])


def _convert_case(node: exp.Expr) -> Pending:
    branches = node.args["ifs"]
    subject = node.args.get("this")
    otherwise = node.args.get("default") or exp.Null()
    parts = [part for branch in branches for part in (branch.this, branch.args["true"])]
    if subject is None:
        return pending_call("case", *parts, otherwise)

    def build(args: tuple[Expr, ...]) -> Expr:
        value, *rest = args
        matched = [Call("=", (value, arg)) if index % 2 == 0 else arg for index, arg in enumerate(rest[:-1])]
        return Call("case", (*matched, rest[-1]))

    return Pending((subject, *parts, otherwise), build)


def _convert_if(node: exp.Expr) -> Pending:
    return pending_call("case", node.this, node.args["true"], node.args.get("false") or exp.Null())


def _convert_coalesce(node: exp.Expr) -> Pending:
    return pending_call("coalesce", node.this, *node.expressions)


FUNCTION_CONVERTERS: dict[type[exp.Expr], Callable[[Any], Conversion]] = {
    exp.Anonymous: _convert_function,
    exp.Like: _convert_like,
    exp.ILike: _convert_like,
    exp.Escape: _convert_like,
    exp.Extract: _convert_extract,
    exp.Substring: _convert_substring,
    exp.Trim: _convert_trim,
    exp.StrPosition: _convert_position,
    exp.Case: _convert_case,
    exp.If: _convert_if,
    exp.Coalesce: _convert_coalesce,
}
"""Converters of sqlglot's nodes for functions: calls by name, and functions with their own syntax."""
