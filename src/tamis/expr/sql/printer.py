"""Expressions as SQL in Spark's dialect, which `tamis.expr.sql.parse` parses back into the same expression.

The text is exact for everything that SQL can express. Other literals print as the nearest form: durations,
decimals of more than 38 digits in a wider type than they need, one of several types with the same values
(`large_string`), and the unit of a NULL timestamp with a time zone.

Brackets are added where precedence requires them, and where they prevent a call from being parsed as a literal: see
`tamis.expr.sql.parse`. Nothing recurses, and the work is linear in the length of the text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache
from typing import Literal as OneOf

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import TypeMismatch
from tamis.expr.datetime_text import NANOSECONDS, format_date, format_interval, format_time, format_timestamp
from tamis.expr.foreign import remove_mark
from tamis.expr.functions.table import FUNCTIONS, Precedence
from tamis.expr.literals import cast_literal, literal
from tamis.expr.nodes import BETWEEN, IMPLICIT, AnyExpr, Call, Column, Leaf, Literal, Name, Spelling, transform
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text, type_from_name, type_name

SPECIAL_SYNTAX = frozenset({"substring", "position", "trim"})
"""Functions with a second syntax, as in `substring(a FROM 1)`: conditions among their arguments need brackets."""

Form = OneOf["cast", "prefix", "suffix"]

_Part = str | tuple[AnyExpr, int]
"""Text, or an expression with the precedence below which it needs brackets."""


def to_sql(expr: AnyExpr, max_items: int | None = None) -> str:
    """Return the SQL text of an expression; `max_items` shortens longer IN lists, which is for display only.

    >>> from tamis.expr.sql.parse import parse_sql
    >>> to_sql(parse_sql("NOT (a = 1 AND `b c` - (2 - x.y) IN (1, 2, 3))"))
    'NOT (a = 1 AND `b c` - (2 - x.y) IN (1, 2, 3))'
    >>> to_sql(parse_sql("a IN (1, 2, 3, 4)"), max_items=2)
    'a IN (1, 2, … 2 more)'
    """
    fragments: list[str] = []
    stack: list[_Part] = [(expr, 0)]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            fragments.append(part)
            continue
        node, needed = part
        match node:
            case Name(path) | Column(path):
                fragments.append(".".join(map(quote_name if node.exact else _format_name, path)))
            case Literal():
                text = format_literal(node)
                fragments.append(f"({text})" if _continues_interval(fragments, text) else text)
            case Call():
                precedence, parts = _lay_out(node, max_items)
                stack.extend(reversed(parts) if precedence >= needed else [")", *reversed(parts), "("])
    return "".join(fragments)


def _continues_interval(fragments: list[str], text: str) -> bool:
    """Return whether `INTERVAL '1' DAY + text` would be parsed as one interval."""
    follows = len(fragments) > 1 and fragments[-1] == " + " and fragments[-2].startswith("INTERVAL ")
    return follows and (text[0].isdigit() or text[0] == "'" or text.startswith("INTERVAL "))


# --- Calls ----------------------------------------------------------------------------------------------------------


MAX_DISPLAY_ITEMS = 5
MAX_DISPLAY_CHARACTERS = 400


def to_display_sql(expr: AnyExpr, *, as_written: bool = True) -> str:
    """Return the text of an expression for display: literals without types, long lists and long texts shortened.

    It has the functions that the user wrote, or those that Tamis calls if `as_written` is False.

    >>> to_display_sql(Call("<", (Name(("a",)), Literal(5, pa.int8()))))
    'a < 5'
    """
    shown = restore_spelling(expr) if as_written else expr
    text = to_sql(transform(shown, _simplify_literals), max_items=MAX_DISPLAY_ITEMS)
    if len(text) <= MAX_DISPLAY_CHARACTERS:
        return text
    return f"{text[:MAX_DISPLAY_CHARACTERS]} … ({len(text) - MAX_DISPLAY_CHARACTERS:,} more characters)"


def restore_spelling(expr: AnyExpr) -> AnyExpr:
    """Return an expression with the functions that its user wrote; it can be printed, but not bound.

    >>> from tamis.expr.sql.parse import parse_sql
    >>> found = parse_sql("nvl(a, 0) > 5 OR b BETWEEN 1 AND 2")
    >>> to_sql(found), to_sql(restore_spelling(found))
    ('coalesce(a, 0) > 5 OR b >= 1 AND b <= 2', 'nvl(a, 0) > 5 OR b BETWEEN 1 AND 2')
    """
    return transform(expr, _restore_call)


def _restore_call(node: AnyExpr) -> AnyExpr:
    match node:
        case Call("and", (Call(">=", (value, low)), Call("<=", (same, high))), spelling=spelling) if (
            spelling == BETWEEN and value == same
        ):
            return Call("between", (value, low, high))
        case Call(args=args, spelling=Spelling() as written) if written != BETWEEN:
            if written == IMPLICIT:
                return args[0]
            if written.args is None:
                return Call(written.function, args)
            given = (Literal(arg, types.STRING) if isinstance(arg, str) else args[arg] for arg in written.args)
            return Call(written.function, tuple(given))
        case _:
            return node


def _simplify_literals(node: AnyExpr) -> AnyExpr:
    """Return numeric literals in types that print without a cast or a suffix."""
    match node:
        case Literal(value=int() as value) if pa.types.is_integer(node.type):
            return Literal(value, types.LONG if abs(value) < 2**63 else pa.decimal128(38, 0))
        case Literal(value=float() as value) if math.isfinite(value) and "e" not in repr(value):
            return _to_decimal_literal(Decimal(repr(value)))
        case Literal(value=Decimal() as value):
            return _to_decimal_literal(value)
        case Call("in", (value, *items)):
            # The items that are shown, and one more. Of the rest only the number is printed.
            plain = [
                _simplify_literals(item) if isinstance(item, Literal) else item
                for item in items[: MAX_DISPLAY_ITEMS + 1]
            ]
            return Call("in", (value, *plain, *items[MAX_DISPLAY_ITEMS + 1 :]))
        case _:
            return remove_mark(node)


def _to_decimal_literal(value: Decimal) -> Literal:
    _, digits, exponent = value.as_tuple()
    scale = max(0, -exponent) if isinstance(exponent, int) else 0
    return Literal(value, pa.decimal128(min(38, max(len(digits), scale, 1)), scale))


def _lay_out(node: Call[Leaf], max_items: int | None) -> tuple[int, list[_Part]]:
    """Return the precedence of a call, and its parts in order."""
    match node:
        case Call("between" | "in" | "like" | "ilike" | "is") if predicate := _list_predicate_parts(
            node, max_items, ""
        ):
            return Precedence.COMPARISON, predicate
        case Call("and" | "or" as function, (_, _, *_) as args):
            precedence = Precedence.AND if function == "and" else Precedence.OR
            return precedence, _join_parts([(arg, precedence + 1) for arg in args], f" {function.upper()} ")
        case Call("not", (Call("between" | "in" | "like" | "ilike" | "is" | "<=>") as inner,)) if (
            negated := _list_predicate_parts(inner, max_items, "NOT ")
        ):
            return Precedence.COMPARISON, negated
        case Call("not", (arg,)):
            return Precedence.NOT, ["NOT ", (arg, Precedence.CALL)]
        case Call("is_null", (arg,)):
            return Precedence.COMPARISON, [(arg, Precedence.SUM), " IS NULL"]
        case Call("is_not_null", (arg,)):
            return Precedence.COMPARISON, [(arg, Precedence.SUM), " IS NOT NULL"]
        case Call(function, (left, right)) if (infix := find_infix_precedence(function)) is not None:
            # Comparisons do not chain; the other operators are left-associative.
            left_precedence = Precedence.SUM if infix == Precedence.COMPARISON else infix
            return infix, [(left, left_precedence), f" {function} ", (right, infix + 1)]
        case Call("negate", (Literal() | Call("cast" | "try_cast") as arg,)):
            # A minus before a literal, or before the cast of one, would become part of it.
            return Precedence.SIGN, ["-(", (arg, 0), ")"]
        case Call("negate", (arg,)):
            return Precedence.SIGN, ["-", (arg, Precedence.CALL)]
        case Call("cast" | "try_cast" as function, (value, Literal(str() as target))):
            return Precedence.CALL, _cast_parts(function, value, target)
        case Call("case", (_, _, _, *rest)) if len(rest) % 2 == 0:
            return Precedence.CALL, _split_case(node.args)
        case Call("extract", (Literal(str() as field), value)):
            return Precedence.CALL, [f"EXTRACT({field.upper()} FROM ", (value, 0), ")"]
        case Call("sql", (Literal(str() as text), *_)):
            return Precedence.CALL, [f"({text})"]
        case Call("partition_filter", (_, Literal(str() as text))) if max_items is not None:
            # Display shows the filter as its user wrote it.
            return Precedence.CALL, [f"partition filter {text}"]
        case Call(function, args):
            needed = Precedence.SUM if function in SPECIAL_SYNTAX else 0
            return Precedence.CALL, [
                f"{function if _SIMPLE_NAME.fullmatch(function) else quote_name(function)}(",
                *_join_parts([(arg, needed) for arg in args], ", "),
                ")",
            ]


def find_infix_precedence(function: str) -> Precedence | None:
    """Return how tightly an operator between two arguments binds; None for other functions."""
    known = FUNCTIONS.get(function)
    return known.operator if known is not None and known.is_infix else None


def _list_predicate_parts(node: Call[Leaf], max_items: int | None, negation: str) -> list[_Part] | None:
    match node:
        case Call("between", (value, low, high)):
            return [
                (value, Precedence.SUM),
                f" {negation}BETWEEN ",
                (low, Precedence.SUM),
                " AND ",
                (high, Precedence.SUM),
            ]
        case Call("in", (value, _, *_)):
            return [(value, Precedence.SUM), f" {negation}IN (", *_list_item_parts(node.args[1:], max_items), ")"]
        case Call("like" | "ilike" as function, (value, pattern)):
            return [(value, Precedence.SUM), f" {negation}{function.upper()} ", (pattern, Precedence.SUM)]
        case Call("like" | "ilike" as function, (value, pattern, Literal(str()) as escape)):
            name = f" {negation}{function.upper()} "
            return [(value, Precedence.SUM), name, (pattern, Precedence.SUM), " ESCAPE ", (escape, 0)]
        case Call("is", (value, constant)):
            return [(value, Precedence.SUM), f" IS {negation}", (constant, 0)]
        case Call("<=>", (left, right)):
            return [(left, Precedence.SUM), " IS DISTINCT FROM ", (right, Precedence.SUM)]
        case _:
            return None


def _list_item_parts(items: tuple[AnyExpr, ...], max_items: int | None) -> list[_Part]:
    if max_items is None or len(items) <= max_items:
        return _join_parts([(item, 0) for item in items], ", ")
    shown: list[_Part] = [(item, 0) for item in items[:max_items]]
    return _join_parts([*shown, f"… {len(items) - max_items} more"], ", ")


def _join_parts(parts: list[_Part], separator: str) -> list[_Part]:
    spread: list[_Part] = [separator] * (2 * len(parts) - 1)
    spread[::2] = parts
    return spread


def _cast_parts(function: str, value: AnyExpr, target: str) -> list[_Part]:
    opening, closing = ("((", ")") if is_folded(value, target) else ("(", "")
    return [f"{function.upper()}{opening}", (value, 0), f"{closing} AS {target.upper()})"]


def is_folded(value: AnyExpr, target: str) -> bool:
    """Return whether the cast of a value, written without brackets, would be parsed as a literal of that type."""
    try:
        return isinstance(value, Literal) and cast_literal(value, type_from_name(target)) is not None
    except TypeMismatch:
        return False


def _split_case(args: tuple[AnyExpr, ...]) -> list[_Part]:
    parts: list[_Part] = ["CASE"]
    for condition, value in zip(args[0:-1:2], args[1:-1:2], strict=True):
        parts += [" WHEN ", (condition, 0), " THEN ", (value, 0)]
    if args[-1] != Literal(None):
        parts += [" ELSE ", (args[-1], 0)]
    return [*parts, " END"]


# --- Names ----------------------------------------------------------------------------------------------------------

_SIMPLE_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_HARMLESS_KEYWORDS = frozenset(
    {"DATE", "TIME", "TIMESTAMP", "COMMENT", "FORMAT", "INDEX", "OFFSET", "PERCENT", "ROW", "ROWS", "TEXT", "UUID"}
)
"""Keywords that are common column names, and that can only be names in an expression: they need no quotes."""


@cache
def _load_keywords() -> frozenset[str]:
    # The import takes a seventh of a second, and filters that are not text need it only when they are printed.
    from sqlglot.dialects.spark import Spark

    return frozenset(Spark.Tokenizer.KEYWORDS) | {"ANY", "IF", "SESSION_USER", "CURRENT_ROLE"}


@lru_cache(maxsize=4096)
def _format_name(name: str) -> str:
    return name if is_simple_name(name) else quote_name(name)


def is_simple_name(name: str) -> bool:
    upper = name.upper()
    return _SIMPLE_NAME.fullmatch(name) is not None and (upper in _HARMLESS_KEYWORDS or upper not in _load_keywords())


def quote_name(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


# --- Literals -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LiteralSpelling:
    """How SQL writes a literal: a number, a word or a text in quotes, and the type that it is written with."""

    text: str
    is_string: bool = False
    type: str | None = None
    form: Form = "cast"
    """Where the type is written: `CAST(5 AS INT)`, `DATE '2024-01-01'` or `1.5D`."""

    def __str__(self) -> str:
        plain = _quote_text(self.text) if self.is_string else self.text
        if self.type is None:
            return plain
        match self.form:
            case "cast":
                return f"CAST({plain} AS {self.type})"
            case "prefix":
                return f"{self.type} {plain}"
            case "suffix":
                return f"{plain}{self.type[0]}"


def format_literal(value: Literal) -> str:
    if value.is_null or not is_bytes(value.type):
        interval = find_interval_text(value)
        return str(spell_literal(value)) if interval is None else _format_interval_literal(interval)
    return f"X'{value.value.hex().upper()}'"


def spell_literal(value: Literal) -> LiteralSpelling:
    """Return how SQL writes a literal that is neither bytes nor an INTERVAL literal."""
    data_type = value.type
    if value.is_null:
        return LiteralSpelling("NULL", type=None if data_type == types.NULL else _name_null_type(data_type))
    if data_type == types.LONG:
        return LiteralSpelling(str(value.value))
    if is_text(data_type):
        return LiteralSpelling(value.value, is_string=True)
    if pa.types.is_boolean(data_type):
        return LiteralSpelling("TRUE" if value.value else "FALSE")
    if pa.types.is_integer(data_type):
        return LiteralSpelling(str(value.value), type=type_name(data_type).upper())
    if pa.types.is_floating(data_type):
        return _spell_float(value.value, data_type)
    if pa.types.is_decimal(data_type):
        return _spell_decimal(value.value, data_type)
    return _spell_temporal(value.value, data_type)


def find_interval_text(value: Literal) -> str | None:
    """Return the text of a value that an INTERVAL literal can write; None for other values.

    An INTERVAL literal has either months or days and times, of one sign, and no nanoseconds. Its hours beyond a day are
    days.
    """
    match value.value:
        case int() as count if pa.types.is_duration(value.type):
            parts = (0, 0, count * (NANOSECONDS // UNITS_PER_SECOND[value.type.unit]))
        case (int() as months, int() as days, int() as nanoseconds) if abs(nanoseconds) < 86_400 * NANOSECONDS:
            parts = (months, days, nanoseconds)
        case _:
            return None
    is_mixed = (parts[0] and any(parts[1:])) or parts[2] % 1_000 or parts[1] * parts[2] < 0
    return None if is_mixed else format_interval(parts)


def _name_null_type(data_type: pa.DataType) -> str:
    if is_text(data_type):
        return "STRING"
    if is_bytes(data_type):
        return "BINARY"
    if pa.types.is_timestamp(data_type) and data_type.tz is not None:
        return "TIMESTAMP"
    name = type_name(data_type)
    return name.upper() if _SIMPLE_NAME.match(name) and "[" not in name else name


_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}


def _quote_text(text: str) -> str:
    if text.isprintable() and "\\" not in text and "'" not in text:
        return f"'{text}'"
    return "'" + "".join(_ESCAPES.get(character) or _escape_invisible(character) for character in text) + "'"


def _escape_invisible(character: str) -> str:
    code = ord(character)
    if character.isprintable() or 0xD800 <= code <= 0xDFFF:
        return character
    return f"\\u{code:04X}" if code <= 0xFFFF else f"\\U{code:08X}"


def _spell_float(value: float, data_type: pa.DataType) -> LiteralSpelling:
    name = type_name(data_type).upper()
    if not np.isfinite(value):
        text = "NaN" if np.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return LiteralSpelling(text, is_string=True, type=name)
    text = repr(value)
    if data_type != types.DOUBLE:
        shortest = str(np.float32(value))
        text = shortest if float(np.float32(float(shortest))) == value else text
        return LiteralSpelling(text.replace("e+", "e"), type="FLOAT", form="suffix")
    is_double = "e" in text
    return LiteralSpelling(text.replace("e+", "e"), type=None if is_double else "DOUBLE", form="suffix")


def _spell_decimal(value: Decimal, data_type: pa.DataType) -> LiteralSpelling:
    text = format(value, "f")
    parsed = literal(Decimal(text) if "." in text else int(text))
    return LiteralSpelling(text, type=None if parsed.type == data_type else type_name(data_type).upper())


def _spell_temporal(value: object, data_type: pa.DataType) -> LiteralSpelling:
    match value:
        case int() if pa.types.is_date(data_type):
            return LiteralSpelling(format_date(value), is_string=True, type="DATE", form="prefix")
        case int() if pa.types.is_timestamp(data_type):
            # An instant has an explicit zone, so that an engine with another session time zone reads the same instant.
            keyword, zone = ("TIMESTAMP_NTZ", "") if data_type.tz is None else ("TIMESTAMP", "Z")
            return _spell_by_unit(keyword, "TIMESTAMP", data_type.unit, format_timestamp, value, zone)
        case int() if pa.types.is_time(data_type):
            return _spell_by_unit("TIME", "TIME", data_type.unit, format_time, value)
        case int() if pa.types.is_duration(data_type):
            text = format_interval((0, 0, value * (NANOSECONDS // UNITS_PER_SECOND[data_type.unit])))
            return LiteralSpelling(text, is_string=True, type="INTERVAL")
        case (int() as months, int() as days, int() as nanoseconds):
            return LiteralSpelling(format_interval((months, days, nanoseconds)), is_string=True, type="INTERVAL")
        case _:
            return LiteralSpelling(str(value), is_string=True, type=type_name(data_type).upper())


def _spell_by_unit(
    keyword: str, name: str, unit: str, format_value: Callable[..., str], value: int, zone: str = ""
) -> LiteralSpelling:
    """Return the literal of a timestamp or a time. Nine digits mark the unit as nanoseconds."""
    if unit in ("us", "ns"):
        text = format_value(value, unit) if unit == "us" else format_value(value, unit, digits=9)
        return LiteralSpelling(text + zone, is_string=True, type=keyword, form="prefix")
    return LiteralSpelling(format_value(value, unit) + zone, is_string=True, type=f"{name}_{unit.upper()}")


def _format_interval_literal(text: str) -> str:
    amount, _, unit = text.partition(" ")
    return f"INTERVAL '{text}'" if " " in unit else f"INTERVAL '{amount}' {unit.removesuffix('s').upper()}"
