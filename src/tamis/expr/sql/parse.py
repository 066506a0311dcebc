"""SQL text to expressions: sqlglot's tree, converted to Tamis nodes without recursion.

A function of `tamis.expr.functions.table` becomes a call of that function. Any other function stays a call by its own
name.
Other syntax (`a[0]`, lambda functions, `RLIKE`, `||`, …) becomes `sql('its text', columns…)`: it prints, binds and
runs like the rest, but cannot skip data.

A literal is folded where the text writes it directly: `-5`, `5L`, `DATE '2024-01-01'`, `CAST(5 AS INT)`. Brackets
prevent that: `-(5)` negates 5, and `CAST((5) AS INT)` casts it. The printer relies on this.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from decimal import Decimal
from typing import Any

from sqlglot import errors as sqlglot_errors
from sqlglot import exp, parse_one

from tamis import types
from tamis.errors import InvalidArgument, ParseError, TypeMismatch, add_article, format_count
from tamis.expr.datetime_text import format_timestamp, parse_interval, parse_timestamp
from tamis.expr.functions.table import ALIASES, FUNCTIONS
from tamis.expr.interop.translate_tree import Parts, translate_tree
from tamis.expr.literals import MAX_DIGITS, cast_literal, literal
from tamis.expr.nodes import FALSE, IMPLICIT, NULL, TRUE, Call, Literal, Name, Spelling, Unbound, between, not_
from tamis.expr.sql.dialect import SparkText
from tamis.expr.sql.intervals import IntervalLiteral, InvalidInterval, interval_from_node
from tamis.expr.sql.refusals import find_position, refuse, refuse_aggregate, refuse_foreign_value, refuse_reserved
from tamis.expr.sql.syntax import is_in_double_quotes, parse_expression
from tamis.types import type_from_name, type_name

# --- Building blocks for converting SQL: nodes that wait for their arguments, columns, and unsupported syntax ---------


Conversion = Unbound | Parts
"""The result of converting one node of sqlglot's tree."""


def defer_call(function: str, *parts: exp.Expr, spelling: Spelling | None = None) -> Parts:
    return Parts(parts, lambda args: Call(function, args, spelling=spelling))


def to_opaque_call(node: exp.Expr) -> Unbound:
    """Convert unsupported syntax to a call that holds its text and its columns."""
    columns: dict[Name, None] = {}
    quoted: list[Name] = []
    for inner in node.dfs():
        refuse(inner)
        quoted += _find_quoted(inner)
        if isinstance(inner, exp.Column):
            while isinstance(inner.parent, exp.Dot) and isinstance(inner.parent.expression, exp.Identifier):
                inner = inner.parent
            columns[to_column(inner)] = None
        elif isinstance(inner, exp.Cast):
            _pin_to_utc(inner)
    try:
        text = OpaqueSql(
            node.sql(
                SparkText, comments=False, normalize_functions=False, unsupported_level=sqlglot_errors.ErrorLevel.RAISE
            )
        )
    except sqlglot_errors.UnsupportedError as error:
        raise ParseError(f"Spark's SQL has no such syntax: {error}", position=find_position(node)) from error
    text.tree = node.copy()
    opaque = Literal(text, types.STRING, tuple(quoted))
    return Call("sql", (opaque, *sorted(columns, key=lambda column: column.position or 0)))


class OpaqueSql(str):
    """The text of unsupported syntax, with the tree that it was printed from. It is pickled as a plain text."""

    tree: exp.Expr

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)


def read_opaque(text: str) -> exp.Expr:
    """Return a new tree of unsupported syntax. Only a text without a tree is parsed."""
    return text.tree.copy() if isinstance(text, OpaqueSql) else parse_expression(text, lambda tree: tree)


def list_functions(text: str) -> set[str]:
    """Return the names of the functions that unsupported syntax calls."""
    tree = text.tree if isinstance(text, OpaqueSql) else read_opaque(text)
    calls = tree.find_all(exp.Func)
    return {(call.name if isinstance(call, exp.Anonymous) else call.sql_name()).lower() for call in calls}


def _pin_to_utc(node: exp.Cast) -> None:
    """Add the time zone to a timestamp text: here it is UTC, but the engine that runs the text may use another."""
    text = node.this
    is_instant = getattr(node.to.this, "name", None) in ("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ")
    parsed = parse_timestamp(text.this) if is_instant and isinstance(text, exp.Literal) and text.is_string else None
    if parsed is not None and not parsed[1]:
        text.set("this", format_timestamp(parsed[0], "ns") + "Z")


def to_column_or_opaque(node: exp.Expr) -> Unbound:
    inner = node
    while isinstance(inner, exp.Dot) and isinstance(inner.expression, exp.Identifier):
        inner = inner.this
    is_plain = isinstance(inner, exp.Column) and isinstance(inner.this, exp.Identifier)
    return to_column(node) if is_plain else to_opaque_call(node)


def to_column(node: exp.Expr) -> Name:
    """Convert `a.b.c` to a column: sqlglot parses the first parts as catalog, database and table, and others as Dot."""
    fields: list[exp.Expr] = []
    while isinstance(node, exp.Dot):
        fields.append(node.expression)
        node = node.this
    refuse(node.this)
    parts = [node.args[key] for key in ("catalog", "db", "table", "this") if node.args.get(key)]
    parts += reversed(fields)
    is_exact = any(part.args.get("quoted") for part in parts)
    return Name(tuple(part.name for part in parts), position=find_position(parts[0]), exact=is_exact)


# --- Functions in SQL: aliases of the supported functions, and calls of all other functions by name -------------------

_CAST_FUNCTIONS = {
    **dict.fromkeys(("date", "to_date"), "date"),
    **dict.fromkeys(("timestamp", "to_timestamp", "timestamp_ltz"), "timestamp"),
    **{name: name for name in ("bigint", "int", "smallint", "tinyint", "float", "double", "string", "boolean",
                               "binary", "timestamp_ntz")},
    "decimal": "decimal(10,0)",
}  # fmt: skip
_CALENDAR_PARTS = {field: row.name for row in FUNCTIONS.values() for field in row.extracted_as}


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
        return folded if folded is not None else defer_cast(target, args[0], spelling=Spelling(name, (0,)))
    match name, args:
        case ("date_trunc", [unit, value]) | ("trunc", [value, unit]):
            return _convert_truncation(node, name, unit, value)
        case "left", [text, length]:
            return defer_call("substring", text, exp.Literal.number(1), length, spelling=Spelling(name, (0, 2)))
        case (("date_part" | "datepart"), [exp.Literal(is_string=True) as part, value]):
            function = _CALENDAR_PARTS.get(part.this.lower())
            if function is None:
                return defer_call(name, *args)
            return defer_call(function, value, spelling=Spelling(name, (part.this, 0)))
        case (("date_add" | "dateadd" | "date_sub"), [day, count]):
            return _convert_date_shift("-" if name == "date_sub" else "+", day, count, Spelling(name))
        case "like", [value, pattern, escape]:
            return _convert_like(exp.Escape(this=exp.Like(this=value, expression=pattern), expression=escape))
        case _:
            known = ALIASES.get(name)
            return _defer_function(node, known or name, args, None if known is None else Spelling(name))


def _is_plain(argument: exp.Expr) -> bool:
    """Return whether an argument is a value, and not a lambda function, a named argument or an alias."""
    is_value = isinstance(argument, exp.Condition | exp.Interval | exp.Tuple)
    return is_value and not isinstance(argument, exp.Kwarg | exp.PropertyEQ)


def _defer_function(node: exp.Expr, name: str, args: Sequence[exp.Expr], spelling: Spelling | None = None) -> Parts:
    known = FUNCTIONS.get(name)
    if known is not None and not known.accepts(len(args)):
        wanted = format_count(known.fewest, "argument")
        least = "" if known.fewest == known.most else "at least "
        shown = name if spelling is None else spelling.function
        raise ParseError(f"{shown} takes {least}{wanted}, not {len(args)}", position=find_position(node))
    if known is not None:
        return defer_call(name, *args, spelling=spelling)
    position = find_position(node)
    return Parts(args, lambda converted: Call(name, converted, position))


def _convert_truncation(node: exp.Expr, name: str, unit: exp.Expr, value: exp.Expr) -> Conversion:
    constant = to_constant(unit)
    if constant is None or not isinstance(constant.value, str):
        return to_opaque_call(node)
    lowered = Literal(constant.value.lower(), types.STRING)
    if name == "trunc":
        return Parts((value,), lambda args: Call(name, (args[0], lowered)))
    return Parts((value,), lambda args: Call(name, (lowered, args[0])))


def _convert_date_shift(operator: str, day: exp.Expr, count: exp.Expr, spelling: Spelling) -> Parts:
    """Convert `date_add` and `date_sub`, which cast a timestamp or a text to a date first."""

    def build(args: tuple[Unbound, ...]) -> Unbound:
        start, days = args
        if isinstance(start, Literal):
            start = cast_literal(start, types.DATE) or start
        if not (isinstance(start, Literal) and start.type == types.DATE):
            start = Call("cast", (start, Literal("date", types.STRING)), spelling=IMPLICIT)
        return Call(operator, (start, days), spelling=spelling)

    return Parts((day, count), build)


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

    def build(args: tuple[Unbound, ...]) -> Unbound:
        value, matched = args
        if ignores_case and pattern is not None:
            lowered = Literal(pattern.value.lower(), types.STRING)
            found = build_like(Call("lower", (value,), spelling=IMPLICIT), lowered, escape)
            found = replace(found, spelling=Spelling("ilike", (0, pattern.value, *range(2, len(found.args)))))
        else:
            found = build_like(value, matched, escape)
        return not_(found) if like.args.get("negate") else found

    return Parts((like.this, like.expression), build)


def _can_lower(pattern: Literal | None, escape: Literal | None) -> bool:
    """Return whether a lower-case pattern means the same in every engine: beyond ASCII they disagree."""
    texts = [part.value for part in (pattern, escape) if part is not None]
    is_ascii = all(isinstance(text, str) and text.isascii() for text in texts)
    return pattern is not None and is_ascii and (escape is None or not escape.value.isalpha())


def build_like(value: Unbound, pattern: Unbound, escape: Literal | None = None) -> Call[Name]:
    """Return a LIKE call, without the escape character if it is the default backslash."""
    if escape is None or escape.value == "\\":
        return Call("like", (value, pattern))
    return Call("like", (value, pattern, escape))


def _convert_extract(node: exp.Expr) -> Conversion:
    function = _CALENDAR_PARTS.get(node.this.name.lower())
    if function is None:
        return to_opaque_call(node)
    return defer_call(function, node.expression, spelling=Spelling("extract", (node.this.name, 0)))


def _convert_substring(node: exp.Expr) -> Parts:
    parts = [node.args.get(key) for key in ("this", "start", "length", "zero_start")]
    name = node.meta.get("name")
    return _defer_function(
        node, "substring", [part for part in parts if part is not None], None if name is None else Spelling(name)
    )


def _convert_trim(node: exp.Expr) -> Conversion:
    is_plain = all(value is None for key, value in node.args.items() if key != "this")
    return defer_call("trim", node.this) if is_plain else to_opaque_call(node)


def _convert_position(node: exp.Expr) -> Parts:
    parts = [node.args.get(key) for key in ("substr", "this", "position")]
    return defer_call("position", *[part for part in parts if part is not None])


def _convert_case(node: exp.Expr) -> Parts:
    branches = node.args["ifs"]
    subject = node.args.get("this")
    otherwise = node.args.get("default") or exp.Null()
    parts = [part for branch in branches for part in (branch.this, branch.args["true"])]
    if subject is None:
        return defer_call("case", *parts, otherwise)

    def build(args: tuple[Unbound, ...]) -> Unbound:
        value, *rest = args
        matched = [Call("=", (value, arg)) if index % 2 == 0 else arg for index, arg in enumerate(rest[:-1])]
        return Call("case", (*matched, rest[-1]))

    return Parts((subject, *parts, otherwise), build)


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
    exp.If: lambda node: defer_call(
        "case", node.this, node.args["true"], node.args.get("false") or exp.Null(), spelling=Spelling("if")
    ),
    exp.Coalesce: lambda node: defer_call("coalesce", node.this, *node.expressions),
}
"""Converters of sqlglot's nodes for functions: calls by name, and functions with their own syntax."""

# --- Literals in SQL: numbers, texts, bytes, intervals, and casts of literals that are folded to literals -------------


def _to_literal(node: exp.Expr) -> Literal:
    if not node.args.get("is_string"):
        return _to_number(node, negative=False)
    return Literal(node.this, types.STRING, _find_quoted(node))


def _find_quoted(node: exp.Expr) -> tuple[Name, ...]:
    """Return the name that a text in double quotes may be meant as."""
    return (Name((node.this,), position=find_position(node)),) if is_in_double_quotes(node) else ()


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


def _join_texts(node: exp.Expr) -> Unbound:
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
        name = _get_target_type_name(inner)
        folded = cast_literal(_to_number(inner.this, negative=True), type_from_name(name)) if name else None
        if folded is not None and not inner.args.get("safe"):
            return folded
    return defer_call("negate", inner)


def _convert_interval(node: exp.Expr) -> Unbound:
    try:
        found = interval_from_node(node)
    except InvalidInterval as reason:
        raise ParseError(f"invalid interval: {reason}", position=find_position(node)) from reason
    return to_opaque_call(node) if found is None else _to_interval_literal(found, node)


def _to_interval_literal(interval: IntervalLiteral, node: exp.Expr) -> Unbound:
    """Return the literal, or the unchanged text if a value without its fields would have another type.

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
    name = _get_target_type_name(node)
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
        is_typed = name == "bigint" and not constant.is_null and isinstance(node.parent, _ARITHMETIC)
        if folded is not None and not is_typed:
            return folded
        # sqlglot represents `DATE '…'` as a plain Cast, and `CAST(… AS DATE)` as its subclass TryCast.
        if type(node) is exp.Cast and name.startswith(("date", "time")):
            raise _make_invalid_time_error(name, constant.value, node)
    return defer_cast(name, node.this, "try_cast" if is_try else "cast")


def defer_cast(name: str, part: exp.Expr, function: str = "cast", spelling: Spelling | None = None) -> Parts:
    target = Literal(name, types.STRING)
    return Parts((part,), lambda args: Call(function, (args[0], target), spelling=spelling))


def _make_invalid_time_error(name: str, value: Any, node: exp.Expr) -> ParseError:
    if name == "timestamp_ntz" and cast_literal(Literal(value, types.STRING), types.TIMESTAMP) is not None:
        hint = "TIMESTAMP_NTZ has no time zone: leave it out, or write TIMESTAMP"
    else:
        example = "10:30:00.5" if name == "time" else "2024-01-31" if name == "date" else "2024-01-31 10:30:00.5"
        hint = f"Write {name.upper()} '{example}'"
    return ParseError(f"{value!r} is not a {name}", position=find_position(node), hint=hint)


def _get_target_type_name(node: exp.Expr) -> str | None:
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
    exp.Interval: _convert_interval,
    exp.Cast: _convert_cast,
    exp.TryCast: _convert_cast,
}
"""Converters of sqlglot's nodes for literals and casts. Signs are included because they may be part of a literal."""


def parse_sql(text: str) -> Unbound:
    """Parse an expression in Spark's SQL; raise `ParseError` with a position and a hint if it is invalid.

    >>> parse_sql("ts >= DATE '2024-01-01' AND NOT a.b IN (1, 2)")
    Call<ts >= DATE '2024-01-01' AND a.b NOT IN (1, 2)>
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"SQL must be a string, found {add_article(type(text).__name__)}: {text!r}")
    return parse_expression(text, _check_and_convert)


def _check_and_convert(tree: exp.Expr) -> Unbound:
    refuse_reserved(tree)
    for node in tree.walk():
        refuse_foreign_value(node)
    return to_expression(tree)


def to_expression(tree: exp.Expr) -> Unbound:
    """Convert a part of a tree that `expr.sql.syntax` parsed; raise `ParseError` if it is unsupported."""
    return translate_tree(tree, _convert_node)


def _convert_node(node: exp.Expr) -> Conversion:
    while isinstance(node, exp.Paren):
        node = node.this
    convert = _CONVERTERS.get(type(node))
    if convert is not None:
        return convert(node)
    if isinstance(node, exp.Func) and not any(node.args.values()):
        return Call(node.sql_name().lower(), ())
    return to_opaque_call(node)


def _parse_and_or(node: exp.Expr) -> Parts:
    """Convert `a AND b AND c`, which sqlglot nests to the left, into one call; brackets end the chain."""
    kind = type(node)
    operands: list[exp.Expr] = []
    stack = [node]
    while stack:
        part = stack.pop()
        if type(part) is kind:
            stack += [part.expression, part.this]
        else:
            operands.append(part)
    return defer_call("and" if kind is exp.And else "or", *operands)


def _not(node: exp.Expr) -> Parts:
    inner = node.this
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return defer_call("is_not_null", inner.this)
    return defer_call("not", inner)


def _is(node: exp.Expr) -> Parts:
    match node.expression:
        case exp.Null():
            # Other versions of sqlglot represent IS NOT NULL by this flag.
            return defer_call("is_not_null" if node.args.get("negate") else "is_null", node.this)
        case exp.Boolean():
            return defer_call("<=>", node.this, node.expression, spelling=Spelling("is"))
        case _:
            raise ParseError(
                "IS must be followed by NULL, TRUE, FALSE or DISTINCT FROM",
                position=find_position(node),
                hint="Compare with = or with <=>, for which NULL equals NULL",
            )


def _parse_in(node: exp.Expr) -> Conversion:
    items = node.expressions
    if node.args.get("query") is not None:
        refuse(node.args["query"])
    if not items:
        raise ParseError(
            "IN needs a list", position=find_position(node), hint="Write it in brackets, as in a IN (1, 2)"
        )
    if isinstance(node.this, exp.Tuple) or any(isinstance(item, exp.Tuple) for item in items):
        return to_opaque_call(node)
    return defer_call("in", node.this, *items)


def _parse_between(node: exp.Expr) -> Conversion:
    if node.args.get("symmetric"):
        return to_opaque_call(node)
    return Parts((node.this, node.args["low"], node.args["high"]), lambda args: between(*args))


def _parse_operator(function: str) -> Callable[[exp.Expr], Conversion]:
    return lambda node: defer_call(function, node.this, node.expression)


_CONVERTERS: dict[type[exp.Expr], Callable[[Any], Conversion]] = {
    **LITERAL_CONVERTERS,
    **FUNCTION_CONVERTERS,
    **{
        type(parse_one(f"a {known.name} b", read=SparkText)): _parse_operator(known.name)
        for known in FUNCTIONS.values()
        if known.is_infix
    },
    exp.Column: to_column_or_opaque,
    exp.Dot: to_column_or_opaque,
    exp.And: _parse_and_or,
    exp.Or: _parse_and_or,
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _parse_in,
    exp.Between: _parse_between,
    exp.NullSafeNEQ: lambda node: Parts((node.this, node.expression), lambda args: not_(Call("<=>", args))),
}
