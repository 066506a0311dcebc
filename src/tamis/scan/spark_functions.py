"""Spark's meaning of functions in DuckDB: the same name may mean something else there.

A filter is text in Spark's dialect, and `dayofweek` of a Sunday is 1 in Spark and 0 in DuckDB. Three things can happen
to a function here:

    translated   sqlglot's words for it mean the same, or it does not exist in DuckDB and DuckDB says so
    own words    a macro of the embedded connection, `spark_<name>`, computes what Spark computes
    refused      DuckDB has a function of that name with another meaning, and no words for Spark's

Own words are macros rather than rewritten text, so that an argument is written once, however often it is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import duckdb
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from tamis.errors import EvaluationError
from tamis.expr.sql_syntax import SparkText
from tamis.scan.spark_calls import PARTS, PREFIX, macro_call, refusal, text_of
from tamis.scan.spark_formats import (
    DATE_UNITS,
    TIME_UNITS,
    Refusal,
    parsing_format,
    printing_format,
    replacement_of,
)
from tamis.scan.spark_macros import FUNCTIONS, MACROS, REFUSED
from tamis.scan.spark_nodes import meant

ARGUMENT = "once"
"""What an argument is called inside of a macro."""


def to_duckdb(text: str, *, of_query: bool = False) -> str:
    """Text in Spark's dialect in DuckDB's words; `EvaluationError` where it has none with Spark's meaning.

    The text `of_query` is one whose result people see: its structs have the names of their fields, and a function of
    which DuckDB has only its own idea is computed in that way, which changes the meaning of no other.
    """
    tree: exp.Expr = sqlglot.parse_one(text, read=_LenientMeaning if of_query else _SparkMeaning)
    # From the leaves to the root: a node is rewritten when all within it are.
    for node in reversed(list(tree.dfs())):
        found = node if of_query and isinstance(node, exp.Struct) else _meant(node, is_lenient=of_query)
        if found is node:
            continue
        if node is tree:
            tree = found
        else:
            node.replace(found)
    # What sqlglot has no words for it would leave out with a mere warning.
    return tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.IGNORE if of_query else ErrorLevel.RAISE)


def _meant(node: exp.Expr, *, is_lenient: bool) -> exp.Expr:
    try:
        return meant(node)
    except EvaluationError:
        if is_lenient:
            return node
        raise


def macros_of(query: str) -> list[str]:
    """The statements that create the macros which a query uses, those they use themselves first."""
    needed: dict[str, None] = {}
    stack = _macro_names(query)
    while stack:
        name = stack.pop()
        # Whoever is needed again goes to the end, behind all that use it.
        needed.pop(name, None)
        needed[name] = None
        stack += _macro_names(MACROS[name][1])
    return [_definition(name) for name in reversed(needed)]


def _macro_names(query: str) -> list[str]:
    found = re.findall(rf"\b{PREFIX}(\w+)\(", query, re.IGNORECASE)
    return [name for name in dict.fromkeys(name.lower() for name in found) if name in MACROS]


def _definition(name: str) -> str:
    parameters, body = MACROS[name]
    bound, uses = re.subn(r"\bx\b", ARGUMENT, body)
    if uses > 1 and not name.startswith("plain_"):
        # A macro is text: of nested ones that use an argument n times, DuckDB would see n^depth copies of it.
        body = f"list_transform([x], lambda {ARGUMENT}: {bound})[1]"
    return f"CREATE TEMP MACRO {PREFIX}{name}({', '.join(parameters)}) AS {body}"


# --- Calls ------------------------------------------------------------------------------------------------------------

_Build = Callable[[Sequence[exp.Expr]], exp.Expr | None]


def _macro(name: str) -> _Build:
    arity = len(MACROS[name][0])
    return lambda args: macro_call(name, *args) if len(args) == arity else None


def _refused(name: str, reason: str) -> _Build:
    def refuse(args: Sequence[exp.Expr]) -> exp.Expr | None:
        raise refusal(name, reason)

    return refuse


def _months_between(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return (
        macro_call("months_between", *args, *([exp.true()] if len(args) == 2 else [])) if len(args) in (2, 3) else None
    )


def _logarithm(args: Sequence[exp.Expr]) -> exp.Expr | None:
    names = {1: "ln", 2: "log"}
    return macro_call(names[len(args)], *args) if len(args) in names else None


def _part(args: Sequence[exp.Expr]) -> exp.Expr | None:
    part = text_of(args[0]) if len(args) == 2 else None
    macro = PARTS.get((part or "").lower())
    return macro_call(macro, args[1]) if macro is not None else None


def _truncation(name: str, units: dict[str, str], unit_first: bool) -> _Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            return None
        unit, value = args if unit_first else reversed(args)
        text = text_of(unit)
        if text is None:
            raise refusal(name, "its unit is no constant")
        if text.lower() not in units:
            # Spark gives NULL, and DuckDB knows decades and centuries.
            known_units = ", ".join(dict.fromkeys(units.values()))
            raise refusal(name, f"'{text.upper()}' is no unit of time. Units: {known_units}")
        known = exp.Literal.string(units[text.lower()])
        cut = exp.Anonymous(this="date_trunc", expressions=[known, value])
        return cut if unit_first else exp.cast(cut, "date")

    return build


def _printed(name: str, instant: Callable[[exp.Expr], exp.Expr]) -> _Build:
    """A timestamp as text, by a constant pattern."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            return None
        pattern = _constant(name, "pattern", args[1])
        try:
            text = printing_format(pattern)
        except Refusal as reason:
            raise refusal(name, str(reason)) from None
        value = exp.Cast(this=instant(args[0]), to=exp.DataType.build("timestamp", dialect="duckdb"))
        return exp.Anonymous(this="strftime", expressions=[value, exp.Literal.string(text)])

    return build


def _parsed(name: str, macro: str) -> _Build:
    """A text as timestamp, by a constant pattern."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            return None
        try:
            format_, shape = parsing_format(_constant(name, "pattern", args[1]))
        except Refusal as reason:
            raise refusal(name, str(reason)) from None
        return macro_call(macro, args[0], exp.Literal.string(format_), exp.Literal.string(shape))

    return build


def _constant(name: str, role: str, node: exp.Expr) -> str:
    text = text_of(node)
    if text is None:
        raise refusal(name, f"its {role} is no constant")
    return text


_CONVERSION = re.compile(r"%(?P<flags>[-0]?)(?P<width>\d*)(?P<kind>[sd%])|%|[^%]+")


def _formatted(name: str) -> _Build:
    """`format_string`, piece by piece: NULL is the text null there."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if not args:
            return None
        pieces: list[exp.Expr] = [exp.Literal.string("")]
        values = list(args[1:])
        for match in _CONVERSION.finditer(_constant(name, "format", args[0])):
            kind = match["kind"]
            if kind is None and match[0] == "%":
                raise refusal(name, "only %s and %d mean the same to the embedded engine")
            if kind is None or kind == "%":
                pieces.append(exp.Literal.string(match[0] if kind is None else "%"))
                continue
            if not values or (kind == "s" and match[0] != "%s"):
                raise refusal(name, f"{match[0]} has no value to print, or a width")
            value = values.pop(0)
            width = exp.Literal.number(match["width"] or 0)
            macro = {"s": "padded", "d": "padded_number"}[kind]
            pieces.append(macro_call(macro, value, width, exp.Literal.string(match["flags"])))
        joined = pieces[0]
        for piece in pieces[1:]:
            joined = exp.DPipe(this=joined, expression=piece)
        return exp.Paren(this=joined)

    return build


def _replaced(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) < 3:
        return None
    text = text_of(args[2])
    try:
        replacement = macro_call("replacement", args[2]) if text is None else exp.Literal.string(replacement_of(text))
    except Refusal as reason:
        raise refusal("regexp_replace", str(reason)) from None
    return _default("REGEXP_REPLACE", [*args[:2], replacement, *args[3:]])


def _json_path(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        return None
    path = _constant("get_json_object", "path", args[1])
    if re.fullmatch(r"\$(\.[A-Za-z_]\w*|\[\d+\]|\['[^'*]+'\])*", path) is None:
        raise refusal("get_json_object", f"the path {path!r} has more than names and places")
    return macro_call("json_value", *args)


def _needs(name: str, arity: int) -> _Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != arity:
            raise refusal(name, f"it takes {arity} arguments here")
        return None

    return build


def _sequence(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) == 3 and isinstance(args[2], exp.Interval):
        raise refusal("sequence", "months are counted differently")
    return macro_call("sequence", *args) if len(args) == 2 else None


def _round(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return macro_call("round_unknown", *args) if len(args) == 2 else None


def _seconds_of_text(args: Sequence[exp.Expr]) -> exp.Expr | None:
    pattern = [exp.Literal.string("yyyy-MM-dd HH:mm:ss")] if len(args) == 1 else []
    return _parsed("unix_timestamp", "parsed_seconds")([*args, *pattern])


def _cast_to(name: str, otherwise: _Build) -> _Build:
    """`to_date(x)` is a cast; with a pattern it is not."""
    return lambda args: exp.cast(args[0], name) if len(args) == 1 else otherwise(args)


def _is_null(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return exp.Paren(this=exp.Is(this=args[0], expression=exp.null())) if len(args) == 1 else None


def _is_not_null(args: Sequence[exp.Expr]) -> exp.Expr | None:
    found = _is_null(args)
    return None if found is None else exp.Not(this=found)


def _over_all(macro: str) -> _Build:
    """`exists` and `forall`: what a function says of all items of a list, of which some may be NULL."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2 or not isinstance(args[1], exp.Lambda):
            return None
        return macro_call(macro, exp.Transform(this=args[0], expression=args[1]))

    return build


def _count(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """`count(a, b)`: the rows in which none of them is NULL."""
    if len(args) < 2:
        return None
    is_null = exp.or_(*(exp.Is(this=each, expression=exp.null()) for each in args))
    return exp.Count(this=exp.Case(ifs=[exp.If(this=is_null, true=exp.null())], default=exp.Literal.number(1)))


def _half_even(args: Sequence[exp.Expr]) -> exp.Expr | None:
    digits = [exp.Literal.number(0)] if len(args) == 1 else []
    return macro_call("bround_unknown", *args, *digits) if len(args) in (1, 2) else None


def _day(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """The difference of two moments has days too."""
    value = args[0].unnest() if len(args) == 1 else None
    return macro_call("day_of_difference", *args) if isinstance(value, exp.Sub) else None


# What counts the entries of maps counts the items of lists too, but not before DuckDB 2.
_SIZE = "cardinality" if int(duckdb.__version__.split(".", 1)[0]) >= 2 else "len"


def _size(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return macro_call("signed", exp.Anonymous(this=_SIZE, expressions=list(args))) if len(args) == 1 else None


def _trimmed(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return exp.Anonymous(this="trim", expressions=[*args, *([exp.Literal.string(" ")] if len(args) == 1 else [])])


def _called(name: str, arity: int) -> _Build:
    """A function that DuckDB has under another name."""
    return lambda args: exp.Anonymous(this=name, expressions=list(args)) if len(args) == arity else None


_BUILDERS: dict[str, _Build] = {
    **{name: _macro(name) for name in FUNCTIONS},
    **{name: _refused(name, reason) for name, reason in REFUSED.items()},
    "months_between": _months_between,
    **dict.fromkeys(("log", "ln"), _logarithm),
    **dict.fromkeys(("date_part", "datepart"), _part),
    "date_trunc": _truncation("date_trunc", TIME_UNITS, unit_first=True),
    "trunc": _truncation("trunc", DATE_UNITS, unit_first=False),
    "ceiling": _macro("ceil"),
    "date_format": _printed("date_format", lambda value: value),
    "from_unixtime": _printed("from_unixtime", lambda value: exp.Anonymous(this="to_timestamp", expressions=[value])),
    "to_timestamp": _parsed("to_timestamp", "parsed"),
    "to_date": _cast_to("date", _parsed("to_date", "parsed_date")),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), _seconds_of_text),
    **dict.fromkeys(("day", "dayofmonth"), _day),
    "isnull": _is_null,
    "isnotnull": _is_not_null,
    "exists": _over_all("any_of"),
    "forall": _over_all("all_of"),
    "count": _count,
    # Those of the engine leave out rows in which the first argument is NULL.
    "max_by": _called("arg_max_null", 2),
    "min_by": _called("arg_min_null", 2),
    "bround": _half_even,
    **dict.fromkeys(("size", "cardinality"), _size),
    "btrim": _trimmed,
    "e": lambda args: exp.Literal.number("2.718281828459045e0") if not args else None,
    "negative": lambda args: exp.Neg(this=exp.Paren(this=args[0])) if len(args) == 1 else None,
    "replace": lambda args: (
        exp.Anonymous(this="replace", expressions=[*args, exp.Literal.string("")]) if len(args) == 2 else None
    ),
    "get_json_object": _json_path,
    "convert_timezone": _needs("convert_timezone", 3),
    "sequence": _sequence,
    "round": _round,
    "signum": _macro("sign"),
    "regexp_replace": _replaced,
    **{name: _formatted(name) for name in ("format_string", "printf")},
}


def _default(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """What sqlglot makes of a call."""
    build: Any = SparkText.Parser.FUNCTIONS.get(name)
    if build is None:
        return exp.Anonymous(this=name, expressions=list(args))
    takes_dialect = "dialect" in getattr(getattr(build, "__code__", None), "co_varnames", ())
    found: exp.Expr = build(list(args), dialect=SparkText()) if takes_dialect else build(list(args))
    return found


def _builder(name: str, build: _Build) -> Callable[[list[exp.Expr]], exp.Expr]:
    return lambda args: build(args) or _default(name, args)


def _lenient_builder(name: str, build: _Build) -> Callable[[list[exp.Expr]], exp.Expr]:
    def found(args: list[exp.Expr]) -> exp.Expr:
        try:
            return build(args) or _default(name, args)
        except EvaluationError:
            return _default(name, args)

    return found


class _SparkMeaning(SparkText):
    """Spark's dialect, in which the functions that DuckDB understands differently are calls of macros."""

    class Parser(SparkText.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = SparkText.Parser.FUNCTIONS | {
            name.upper(): _builder(name.upper(), build) for name, build in _BUILDERS.items()
        }
        # Those of them that have a syntax of their own are plain calls here.
        FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
            name: parse for name, parse in SparkText.Parser.FUNCTION_PARSERS.items() if name.lower() not in _BUILDERS
        }


class _LenientMeaning(_SparkMeaning):
    """The same, in which a function without words for Spark's meaning is DuckDB's own."""

    class Parser(_SparkMeaning.Parser):
        FUNCTIONS: ClassVar[dict[str, Any]] = _SparkMeaning.Parser.FUNCTIONS | {
            name.upper(): _lenient_builder(name.upper(), build) for name, build in _BUILDERS.items()
        }
