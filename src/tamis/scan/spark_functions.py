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

import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from tamis.errors import EvaluationError
from tamis.expr.sql_syntax import SparkText
from tamis.scan.spark_formats import (
    DATE_UNITS,
    TIME_UNITS,
    Refusal,
    parsing_format,
    printing_format,
    replacement_of,
    searched_pattern,
)
from tamis.scan.spark_macros import FUNCTIONS, MACROS, REFUSED

_PREFIX = "spark_"
ARGUMENT = "once"
"""What an argument is called inside of a macro."""
_WAY_OUT = "Write it with the functions that docs/expressions.md lists, or filter the rows after the scan"

_PARTS = {
    **dict.fromkeys(("dow", "dayofweek"), "dayofweek"),
    **dict.fromkeys(("second", "seconds", "s", "sec", "secs"), "seconds"),
}
"""Parts of a date or timestamp of which DuckDB has another idea, and the macro."""


def to_duckdb(text: str, *, names_fields: bool = False) -> str:
    """Text in Spark's dialect in DuckDB's words; `EvaluationError` where it has none with Spark's meaning.

    With `names_fields` structs have the names of their fields, which matter to whoever sees them.
    """
    tree: exp.Expr = sqlglot.parse_one(text, read=_SparkMeaning)
    # From the leaves to the root: a node is rewritten when all within it are.
    for node in reversed(list(tree.dfs())):
        meant = node if names_fields and isinstance(node, exp.Struct) else _meant(node)
        if meant is node:
            continue
        if node is tree:
            tree = meant
        else:
            node.replace(meant)
    # What sqlglot has no words for it would leave out with a mere warning.
    return tree.sql(dialect="duckdb", unsupported_level=ErrorLevel.RAISE)


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
    found = re.findall(rf"\b{_PREFIX}(\w+)\(", query, re.IGNORECASE)
    return [name for name in dict.fromkeys(name.lower() for name in found) if name in MACROS]


def _definition(name: str) -> str:
    parameters, body = MACROS[name]
    bound, uses = re.subn(r"\bx\b", ARGUMENT, body)
    if uses > 1 and not name.startswith("plain_"):
        # A macro is text: of nested ones that use an argument n times, DuckDB would see n^depth copies of it.
        body = f"list_transform([x], lambda {ARGUMENT}: {bound})[1]"
    return f"CREATE TEMP MACRO {_PREFIX}{name}({', '.join(parameters)}) AS {body}"


def _call(name: str, *args: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=f"{_PREFIX}{name}", expressions=list(args))


def _refusal(name: str, reason: str) -> EvaluationError:
    return EvaluationError(f"the embedded engine has no words for Spark's {name}: {reason}. {_WAY_OUT}")


def _text_of(node: exp.Expr | None) -> str | None:
    return str(node.this) if isinstance(node, exp.Literal) and node.is_string else None


# --- Calls ------------------------------------------------------------------------------------------------------------

_Build = Callable[[Sequence[exp.Expr]], exp.Expr | None]


def _macro(name: str) -> _Build:
    arity = len(MACROS[name][0])
    return lambda args: _call(name, *args) if len(args) == arity else None


def _refused(name: str, reason: str) -> _Build:
    def refuse(args: Sequence[exp.Expr]) -> exp.Expr | None:
        raise _refusal(name, reason)

    return refuse


def _months_between(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return _call("months_between", *args, *([exp.true()] if len(args) == 2 else [])) if len(args) in (2, 3) else None


def _logarithm(args: Sequence[exp.Expr]) -> exp.Expr | None:
    names = {1: "ln", 2: "log"}
    return _call(names[len(args)], *args) if len(args) in names else None


def _part(args: Sequence[exp.Expr]) -> exp.Expr | None:
    part = _text_of(args[0]) if len(args) == 2 else None
    macro = _PARTS.get((part or "").lower())
    return _call(macro, args[1]) if macro is not None else None


def _truncation(name: str, units: dict[str, str], unit_first: bool) -> _Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            return None
        unit, value = args if unit_first else reversed(args)
        text = _text_of(unit)
        if text is None:
            raise _refusal(name, "its unit is no constant")
        if text.lower() not in units:
            # Spark gives NULL, and DuckDB knows decades and centuries.
            known_units = ", ".join(dict.fromkeys(units.values()))
            raise _refusal(name, f"'{text.upper()}' is no unit of time. Units: {known_units}")
        known = exp.Literal.string(units[text.lower()])
        return exp.Anonymous(this="date_trunc", expressions=[known, value])

    return build


def _printed(name: str, instant: Callable[[exp.Expr], exp.Expr]) -> _Build:
    """A timestamp as text, by a constant pattern."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            return None
        pattern = _constant(name, "pattern", args[1])
        try:
            text = printing_format(pattern)
        except Refusal as refusal:
            raise _refusal(name, str(refusal)) from None
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
        except Refusal as refusal:
            raise _refusal(name, str(refusal)) from None
        return _call(macro, args[0], exp.Literal.string(format_), exp.Literal.string(shape))

    return build


def _constant(name: str, role: str, node: exp.Expr) -> str:
    text = _text_of(node)
    if text is None:
        raise _refusal(name, f"its {role} is no constant")
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
                raise _refusal(name, "only %s and %d mean the same to the embedded engine")
            if kind is None or kind == "%":
                pieces.append(exp.Literal.string(match[0] if kind is None else "%"))
                continue
            if not values or (kind == "s" and match[0] != "%s"):
                raise _refusal(name, f"{match[0]} has no value to print, or a width")
            value = values.pop(0)
            width = exp.Literal.number(match["width"] or 0)
            macro = {"s": "padded", "d": "padded_number"}[kind]
            pieces.append(_call(macro, value, width, exp.Literal.string(match["flags"])))
        joined = pieces[0]
        for piece in pieces[1:]:
            joined = exp.DPipe(this=joined, expression=piece)
        return exp.Paren(this=joined)

    return build


def _replaced(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) < 3:
        return None
    text = _text_of(args[2])
    try:
        replacement = _call("replacement", args[2]) if text is None else exp.Literal.string(replacement_of(text))
    except Refusal as refusal:
        raise _refusal("regexp_replace", str(refusal)) from None
    return _default("REGEXP_REPLACE", [*args[:2], replacement, *args[3:]])


def _json_path(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        return None
    path = _constant("get_json_object", "path", args[1])
    if re.fullmatch(r"\$(\.[A-Za-z_]\w*|\[\d+\]|\['[^'*]+'\])*", path) is None:
        raise _refusal("get_json_object", f"the path {path!r} has more than names and places")
    return None


def _needs(name: str, arity: int) -> _Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != arity:
            raise _refusal(name, f"it takes {arity} arguments here")
        return None

    return build


def _sequence(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) == 3 and isinstance(args[2], exp.Interval):
        raise _refusal("sequence", "months are counted differently")
    return _call("sequence", *args) if len(args) == 2 else None


def _round(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return _call("round_unknown", *args) if len(args) == 2 else None


def _seconds_of_text(args: Sequence[exp.Expr]) -> exp.Expr | None:
    pattern = [exp.Literal.string("yyyy-MM-dd HH:mm:ss")] if len(args) == 1 else []
    return _parsed("unix_timestamp", "parsed_seconds")([*args, *pattern])


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
    "to_date": _parsed("to_date", "parsed_date"),
    "unix_timestamp": _seconds_of_text,
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


# --- Syntax of its own ------------------------------------------------------------------------------------------------

_INTEGERS = {"TINYINT": "tinyint", "SMALLINT": "smallint", "INT": "integer", "BIGINT": "bigint"}
_BACKSLASH = "\\"


def _meant(node: exp.Expr) -> exp.Expr:
    """A node whose syntax is the same in Spark and DuckDB and whose meaning is not."""
    match node:
        case exp.Cast():
            return _cast(node)
        case exp.Extract():
            macro = _PARTS.get(node.this.name.lower())
            return node if macro is None else _call(macro, node.expression)
        case exp.StrPosition() if node.args.get("position") is not None:
            return _call("locate", node.args["substr"], node.this, node.args["position"])
        case exp.Substring() if not all(map(_is_number, (node.args.get("start"), node.args.get("length")))):
            length = node.args.get("length")
            start = node.args.get("start") or exp.Literal.number(1)
            return _call("substring", node.this, start, length if length is not None else exp.Literal.number(2**31 - 1))
        case exp.Transform() | exp.ArrayFilter():
            return _over_items(node)
        case exp.IntDiv():
            return _call("div", node.this, node.expression)
        case exp.Concat() if not isinstance(node, exp.ConcatWs):
            return node if len(node.expressions) == 1 else _joined(node.expressions)
        case exp.DPipe():
            return exp.DPipe(this=_piece(node.this), expression=_piece(node.expression))
        case exp.Bracket() if not node.args.get("offset") and not isinstance(node.expressions[0], exp.Literal):
            key = _call("key", node.this.copy(), node.expressions[0])
            return exp.Bracket(this=node.this, expressions=[key], offset=1)
        case exp.Struct() if not isinstance(node.parent, exp.Dot) and _is_row(node):
            return exp.Anonymous(this="row", expressions=[field.expression for field in node.expressions])
        case exp.RegexpExtractAll():
            return _call("found", node.copy())
        case exp.ArrayToString():
            return exp.ArrayToString(**{**node.args, "this": _call("listed", node.this)})
        case exp.RegexpLike():
            return _regular(node)
        case exp.BitwiseLeftShift():
            return _call("shiftleft", node.this, node.expression)
        case exp.BitwiseRightShift():
            return _call("shiftright", node.this, node.expression)
        case exp.Like() | exp.ILike() if not isinstance(node.parent, exp.Escape):
            return _escaped(node)
        case _:
            return node


def _is_number(node: exp.Expr | None) -> bool:
    return node is None or isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _is_row(node: exp.Struct) -> bool:
    """Whether a struct names its fields after columns, which have other names in the engine."""
    return all(
        isinstance(field, exp.PropertyEQ) and isinstance(field.this, exp.Identifier) for field in node.expressions
    )


def _piece(node: exp.Expr) -> exp.Expr:
    return node if isinstance(node, exp.Literal | exp.DPipe) or _is_text(node) else _call("piece", node)


def _is_text(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and node.name in (f"{_PREFIX}string", f"{_PREFIX}padded")


def _joined(parts: Sequence[exp.Expr]) -> exp.Expr:
    joined, *rest = map(_piece, parts)
    for part in rest:
        joined = exp.DPipe(this=joined, expression=part)
    return exp.Paren(this=joined)


def _over_items(node: exp.Expr) -> exp.Expr:
    """`filter` and `transform`: their index counts from 0 in Spark and from 1 in DuckDB."""
    function = node.expression
    if not isinstance(function, exp.Lambda) or len(function.expressions) != 2:
        return node
    index = function.expressions[1].name
    for found in list(function.this.find_all(exp.Identifier)):
        if found.name.lower() != index.lower():
            continue
        if isinstance(found.parent, exp.Dot) or (isinstance(found.parent, exp.Lambda) and found.parent is not function):
            raise _refusal("filter and transform", f"{index} has two meanings in it")
        found.replace(exp.Paren(this=exp.Sub(this=found.copy(), expression=exp.Literal.number(1))))
    return node


def _regular(node: exp.RegexpLike) -> exp.Expr:
    pattern = _text_of(node.expression)
    if pattern is None:
        return node
    try:
        node.expression.set("this", searched_pattern(pattern))
    except Refusal as refusal:
        raise _refusal("RLIKE", str(refusal)) from None
    return node


def _cast(node: exp.Cast) -> exp.Expr:
    """A cast that fails where a value does not fit (sqlglot reads Spark's as one that makes NULL), as Spark prints."""
    target = node.args["to"]
    name = getattr(target.this, "name", "")
    is_try = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    if name in ("TEXT", "VARCHAR", "CHAR") and not isinstance(node.this, exp.Literal | exp.Null):
        return _call("string", node.this)
    is_whole = isinstance(node.this, exp.Literal) and not node.this.is_string and node.this.name.isdecimal()
    if name in _INTEGERS and not is_whole and not isinstance(node.this, exp.Null):
        # A column may be written many times, and then DuckDB's message names it.
        kind = "try_" if is_try else "plain_" if isinstance(node.this, exp.Column) else ""
        return _call(f"{kind}{_INTEGERS[name]}", node.this)
    if isinstance(node, exp.TryCast) and not is_try:
        return exp.Cast(this=node.this, to=target)
    return node


def _escaped(node: exp.Expr) -> exp.Expr:
    """A LIKE in which the backslash escapes, as it does in Spark unless another character is named."""
    pattern = node.expression
    escape = exp.Literal.string(_BACKSLASH)
    if not isinstance(pattern, exp.Any | exp.All):
        return exp.Escape(this=node.copy(), expression=escape)
    texts = [_text_of(item) for item in pattern.this.expressions] if isinstance(pattern.this, exp.Tuple) else [None]
    if any(text is None or _BACKSLASH in text for text in texts):
        raise _refusal("LIKE ANY and LIKE ALL", "they take constants without a backslash")
    return node
