"""Functions in SQL: other names for the ones that are modelled, and calls of all others as they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import exp

from tamis import types
from tamis.errors import ParseError, counted
from tamis.expr.functions import FUNCTIONS
from tamis.expr.literals import cast_literal
from tamis.expr.nodes import Call, Expr, Literal, not_
from tamis.expr.sql_literals import cast_to, constant_of
from tamis.expr.sql_parts import Pending, Shape, call, opaque
from tamis.expr.sql_refusals import position_of, refuse_aggregate
from tamis.types import type_from_name

_SAME_FUNCTIONS = {
    "isnull": "is_null", "isnotnull": "is_not_null", "mod": "%", "negative": "negate", "nvl": "coalesce",
    "ifnull": "coalesce", "ucase": "upper", "lcase": "lower", "char_length": "length", "character_length": "length",
    "len": "length", "dayofmonth": "day",
}  # fmt: skip
_CASTING_FUNCTIONS = {
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


def _function(node: exp.Expr) -> Shape:
    name = node.name.lower()
    args = node.expressions
    refuse_aggregate(node)
    if name == "sql" or not all(map(_is_plain, args)):
        return opaque(node)
    if name in _CASTING_FUNCTIONS and len(args) == 1:
        constant = constant_of(args[0])
        target = _CASTING_FUNCTIONS[name]
        folded = cast_literal(constant, type_from_name(target)) if constant is not None else None
        return folded if folded is not None else cast_to(target, args[0])
    match name, args:
        case ("date_trunc", [unit, value]) | ("trunc", [value, unit]):
            return _truncation(node, name, unit, value)
        case "left", [text, length]:
            return call("substring", text, exp.Literal.number(1), length)
        case (("date_part" | "datepart"), [exp.Literal(is_string=True) as part, value]):
            function = _CALENDAR_PARTS.get(part.this.lower())
            return call(function, value) if function is not None else call(name, *args)
        case (("date_add" | "dateadd" | "date_sub"), [day, count]):
            return _moved_date("-" if name == "date_sub" else "+", day, count)
        case "like", [value, pattern, escape]:
            return _like(exp.Escape(this=exp.Like(this=value, expression=pattern), expression=escape))
        case _:
            return _known_or_not(node, _SAME_FUNCTIONS.get(name, name), args)


def _is_plain(argument: exp.Expr) -> bool:
    """Whether an argument is a value; lambda functions, names of arguments and aliases are not."""
    is_value = isinstance(argument, exp.Condition | exp.Interval | exp.Tuple)
    return is_value and not isinstance(argument, exp.Kwarg | exp.PropertyEQ)


def _known_or_not(node: exp.Expr, name: str, args: Sequence[exp.Expr]) -> Pending:
    known = FUNCTIONS.get(name)
    if known is not None and not known.fewest <= len(args) <= known.most:
        wanted = counted(known.fewest, "argument")
        least = "" if known.fewest == known.most else "at least "
        raise ParseError(f"{name} takes {least}{wanted}, not {len(args)}", position=position_of(node))
    if known is not None:
        return call(name, *args)
    position = position_of(node)
    return Pending(args, lambda converted: Call(name, converted, position))


def _truncation(node: exp.Expr, name: str, unit: exp.Expr, value: exp.Expr) -> Shape:
    constant = constant_of(unit)
    if constant is None or not isinstance(constant.value, str):
        return opaque(node)
    lowered = Literal(constant.value.lower(), types.STRING)
    if name == "trunc":
        return Pending((value,), lambda args: Call(name, (args[0], lowered)))
    return Pending((value,), lambda args: Call(name, (lowered, args[0])))


def _moved_date(operator: str, day: exp.Expr, count: exp.Expr) -> Pending:
    """A date so many days later or earlier; of a timestamp or a text, its date."""

    def build(args: tuple[Expr, ...]) -> Expr:
        start, days = args
        if isinstance(start, Literal):
            start = cast_literal(start, types.DATE) or start
        if not (isinstance(start, Literal) and start.type == types.DATE):
            start = Call("cast", (start, Literal("date", types.STRING)))
        return Call(operator, (start, days))

    return Pending((day, count), build)


def _like(node: exp.Expr) -> Shape:
    escape = None
    like = node
    if isinstance(node, exp.Escape):
        like = node.this
        escape = constant_of(node.expression)
        if escape is None or not isinstance(escape.value, str) or len(escape.value) != 1:
            raise ParseError("ESCAPE needs a text of one character", position=position_of(node))
    pattern = constant_of(like.expression)
    in_any_case = isinstance(like, exp.ILike)
    if isinstance(like.expression, exp.Any | exp.All) or (in_any_case and not _can_lower(pattern, escape)):
        return opaque(node)

    def build(args: tuple[Expr, ...]) -> Expr:
        value, matched = args
        if in_any_case and pattern is not None:
            value, matched = Call("lower", (value,)), Literal(pattern.value.lower(), types.STRING)
        found = like_call(value, matched, escape)
        return not_(found) if like.args.get("negate") else found

    return Pending((like.this, like.expression), build)


def _can_lower(pattern: Literal | None, escape: Literal | None) -> bool:
    """Whether a pattern in small letters means the same to every engine: beyond ASCII they disagree."""
    texts = [part.value for part in (pattern, escape) if part is not None]
    is_ascii = all(isinstance(text, str) and text.isascii() for text in texts)
    return pattern is not None and is_ascii and (escape is None or not escape.value.isalpha())


def like_call(value: Expr, pattern: Expr, escape: Literal | None = None) -> Call:
    """A LIKE; the backslash escapes unless another character is named, and so it is left out."""
    if escape is None or escape.value == "\\":
        return Call("like", (value, pattern))
    return Call("like", (value, pattern, escape))


def _extract(node: exp.Expr) -> Shape:
    function = _CALENDAR_PARTS.get(node.this.name.lower())
    return opaque(node) if function is None else call(function, node.expression)


def _substring(node: exp.Expr) -> Pending:
    parts = [node.args.get(key) for key in ("this", "start", "length", "zero_start")]
    return _known_or_not(node, "substring", [part for part in parts if part is not None])


def _trim(node: exp.Expr) -> Shape:
    is_plain = all(value is None for key, value in node.args.items() if key != "this")
    return call("trim", node.this) if is_plain else opaque(node)


def _position(node: exp.Expr) -> Pending:
    parts = [node.args.get(key) for key in ("substr", "this", "position")]
    return call("position", *[part for part in parts if part is not None])


def _case(node: exp.Expr) -> Pending:
    branches = node.args["ifs"]
    subject = node.args.get("this")
    otherwise = node.args.get("default") or exp.Null()
    parts = [part for branch in branches for part in (branch.this, branch.args["true"])]
    if subject is None:
        return call("case", *parts, otherwise)

    def build(args: tuple[Expr, ...]) -> Expr:
        value, *rest = args
        matched = [Call("=", (value, arg)) if place % 2 == 0 else arg for place, arg in enumerate(rest[:-1])]
        return Call("case", (*matched, rest[-1]))

    return Pending((subject, *parts, otherwise), build)


def _if(node: exp.Expr) -> Pending:
    return call("case", node.this, node.args["true"], node.args.get("false") or exp.Null())


def _coalesce(node: exp.Expr) -> Pending:
    return call("coalesce", node.this, *node.expressions)


FUNCTION_SHAPES: dict[type[exp.Expr], Callable[[Any], Shape]] = {
    exp.Anonymous: _function,
    exp.Like: _like,
    exp.ILike: _like,
    exp.Escape: _like,
    exp.Extract: _extract,
    exp.Substring: _substring,
    exp.Trim: _trim,
    exp.StrPosition: _position,
    exp.Case: _case,
    exp.If: _if,
    exp.Coalesce: _coalesce,
}
"""What sqlglot's nodes for functions become: one for calls by name, and those with a syntax of their own."""
