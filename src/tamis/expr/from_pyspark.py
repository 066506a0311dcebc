"""Columns of PySpark as expressions of Tamis: those of classic sessions, which live in Spark's JVM, and of Connect.

Both kinds of Columns are trees of unresolved names, literals, casts, CASE and functions by name, and PySpark shows
neither of them to others: the classic ones are read through Py4J (`_jc.node()`), those of Connect as Python objects
(`_expr`). Every node becomes either an expression or a list of parts with a function that puts them together, so that
no depth is too deep. A function means here what it means in SQL text, because that is how it is looked up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from tamis import types
from tamis.errors import ExpressionError, one_line
from tamis.expr.builder import split_name
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, not_, transform, walk
from tamis.expr.printer import to_sql
from tamis.expr.temporal import parse_timestamp

_WAY_OUT = "write the filter as SQL text"

_OPERATORS = {
    **{name: name for name in ("=", "<>", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%", "and", "or")},
    "==": "=", "!=": "<>", "&&": "and", "||": "or", "isnull": "is_null", "isnotnull": "is_not_null", "!": "not",
    "not": "not", "negative": "negate",
}  # fmt: skip
_WRITTEN_BETWEEN = {"&": "&", "|": "|", "^": "^", "ilike": "ILIKE"}
"""What SQL writes between two arguments, and what is no function of ours."""


def is_pyspark_column(value: object) -> bool:
    """Whether it is a Column, found out by name so that PySpark need not be there."""
    return any(kind.__name__ == "Column" and kind.__module__.startswith("pyspark.sql.") for kind in type(value).__mro__)


def from_pyspark(column: Any) -> Expr:
    """Translate a Column that was made of names and functions, as `F.col("a.b") > 5` is.

    Python's functions, windows, lambda functions and subqueries have no meaning here and are refused by name.
    """
    is_classic = hasattr(column, "_jc")
    shape_of: Callable[[Any], Expr | _Parts] = _classic_shape if is_classic else _connect_shape
    done: list[Expr] = []
    stack: list[Any] = [column._jc.node() if is_classic else column._expr]
    while stack:
        item = stack.pop()
        if isinstance(item, _Build):
            first = len(done) - item.count
            parts = tuple(done[first:])
            del done[first:]
            done.append(item.build(parts))
            continue
        shape = shape_of(item)
        if isinstance(shape, _Parts):
            stack.append(_Build(len(shape.parts), shape.build))
            stack.extend(reversed(shape.parts))
        else:
            done.append(shape)
    return done[0]


@dataclass(frozen=True, slots=True)
class _Parts:
    """A node whose parts must be translated first."""

    parts: Sequence[Any]
    build: Callable[[tuple[Expr, ...]], Expr]


@dataclass(frozen=True, slots=True)
class _Build:
    """The end of a node on the way back up: so many translated parts are put together."""

    count: int
    build: Callable[[tuple[Expr, ...]], Expr]


# --- What both kinds have in common -------------------------------------------------------------------------------


def _function(name: str, args: tuple[Expr, ...]) -> Expr:
    """A call by the name that PySpark has for it."""
    lowered = name.lower()
    if lowered == "in":
        return Call("in", args) if len(args) > 1 else FALSE
    if lowered == "!=" and len(args) == 2:
        return not_(Call("=", args))
    operator = _OPERATORS.get(lowered)
    if operator is not None:
        return Call(operator, args)
    if lowered in _WRITTEN_BETWEEN and len(args) == 2:
        return _from_text(f"{{}} {_WRITTEN_BETWEEN[lowered]} {{}}", args)
    called = _name_in_sql(name).replace("{", "{{").replace("}", "}}")
    return _from_text(f"{called}({', '.join(['{}'] * len(args))})", args, name)


def _cast(target: str, is_try: bool) -> Callable[[tuple[Expr, ...]], Expr]:
    return lambda args: _from_text(f"{'TRY_CAST' if is_try else 'CAST'}({{}} AS {target})", args)


def _case(parts: tuple[Expr, ...]) -> Expr:
    return Call("case", parts)


def _extract(parts: tuple[Expr, ...]) -> Expr:
    """A field of a struct by its name, an element of an array by its number."""
    match parts:
        case Column(path=path), Literal(value=str() as name):
            return Column((*path, name), exact=True)
        case _:
            return _from_text("{}[{}]", parts)


def _from_text(template: str, args: tuple[Expr, ...], function: str = "") -> Expr:
    """What SQL text means by a call of arguments that are expressions already.

    Constants and columns are written out, because the meaning of the text may hang on them; whatever else is an
    argument has its place held by a column, so that nested functions are not read again at each level.
    """
    holders = {Column((f"\0{place}",)): arg for place, arg in enumerate(args) if isinstance(arg, Call)}
    by_argument = {id(arg): holder for holder, arg in holders.items()}
    parsed = _parsed(template.format(*(to_sql(by_argument.get(id(arg), arg)) for arg in args)), function)
    if any(isinstance(node, Call) and node.function == "sql" for node in walk(parsed)):
        # Syntax that is kept as its text has to be the whole text.
        return _parsed(template.format(*(_bracketed(arg) for arg in args)), function)
    return transform(parsed, lambda node: holders.get(node, node) if isinstance(node, Column) else node)


def _bracketed(arg: Expr) -> str:
    return f"({to_sql(arg)})" if isinstance(arg, Call) else to_sql(arg)


def _parsed_sql(text: str) -> Expr:
    # It imports sqlglot, which few Columns need.
    from tamis.expr.sql import parse_sql

    return parse_sql(text)


def _parsed(text: str, function: str) -> Expr:
    try:
        return _parsed_sql(text)
    except ExpressionError as error:
        named = f"the function {function!r}" if function else text.replace("\0", "…")
        raise ExpressionError(f"{named} of a PySpark Column cannot be used: {one_line(error)}") from error


def _name_in_sql(name: str) -> str:
    return name if name.replace("_", "a").isalnum() and name.isascii() else to_sql(Column((name,), exact=True))


def _unknown(what: str) -> ExpressionError:
    return ExpressionError(f"{what} of a PySpark Column has no counterpart here: {_WAY_OUT}")


def _from_microseconds(value: int) -> Literal:
    return Literal((0, 0, value * 1000), types.INTERVAL)


# --- Classic sessions ---------------------------------------------------------------------------------------------


def _classic_shape(node: Any) -> Expr | _Parts:
    match node.productPrefix():
        case "Literal":
            return _classic_literal(node.value())
        case "UnresolvedAttribute":
            return Column(tuple(_items(node.nameParts())), exact=True)
        case "UnresolvedFunction":
            name = str(node.functionName())
            if node.isDistinct():
                raise _unknown(f"the aggregate {name!r}")
            return _Parts(_items(node.arguments()), lambda args: _function(name, args))
        case "Alias":
            return _Parts([node.child()], lambda args: args[0])
        case "Cast":
            mode = node.evalMode()
            is_try = mode.isDefined() and str(mode.get().getClass().getName()).endswith("$Try$")
            return _Parts([node.child()], _cast(str(node.dataType().sql()), is_try))
        case "SqlExpression":
            return _parsed_sql(str(node.expression()))
        case "CaseWhenOtherwise":
            parts = [part for branch in _items(node.branches()) for part in (branch._1(), branch._2())]
            if not node.otherwise().isDefined():
                return _Parts(parts, lambda args: _case((*args, Literal(None))))
            return _Parts([*parts, node.otherwise().get()], _case)
        case "UnresolvedExtractValue":
            return _Parts([node.child(), node.extraction()], _extract)
        case "ExpressionColumnNode":
            return _resolved(node.expression())
        case kind:
            raise _unknown(f"the part {kind}")


def _resolved(expression: Any) -> Expr:
    """What a DataFrame made of a name, as in `df.x`: its column."""
    kind = expression.getClass().getSimpleName()
    if kind != "AttributeReference":
        name = expression.prettyName() if kind != "PythonUDF" else expression.name()
        raise _unknown(f"the function {name!r} ({kind})")
    return Column((str(expression.name()),), exact=True)


def _items(sequence: Any) -> list[Any]:
    """The items of a sequence of Scala."""
    found = []
    iterator = sequence.iterator()
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def _classic_literal(value: Any) -> Literal:
    """A literal as Py4J hands it over: numbers and texts as Python's, dates and the like as objects of Java."""
    if value is None or isinstance(value, bool | int | float | str | bytes | Decimal):
        return literal(value)
    if isinstance(value, bytearray):
        return literal(bytes(value))
    match value.getClass().getName():
        case "java.sql.Date":
            return Literal(value.toLocalDate().toEpochDay(), types.DATE)
        case "java.time.LocalDate":
            return Literal(value.toEpochDay(), types.DATE)
        case "java.sql.Timestamp":
            # Its milliseconds and its nanoseconds both hold the fraction of the second.
            return Literal(value.getTime() // 1000 * 1_000_000 + value.getNanos() // 1000, types.TIMESTAMP)
        case "java.time.Instant":
            return Literal(value.getEpochSecond() * 1_000_000 + value.getNano() // 1000, types.TIMESTAMP)
        case "java.time.LocalDateTime":
            parsed = parse_timestamp(value.toString().replace("T", " "))
            assert parsed is not None
            return Literal(parsed[0] // 1000, types.TIMESTAMP_NTZ)
        case "java.time.LocalTime":
            return Literal(value.toNanoOfDay() // 1000, types.TIME)
        case "java.time.Duration":
            return _from_microseconds(value.getSeconds() * 1_000_000 + value.getNano() // 1000)
        case "java.time.Period":
            return Literal((12 * value.getYears() + value.getMonths(), value.getDays(), 0), types.INTERVAL)
        case kind:
            raise _unknown(f"a literal of {kind}")


# --- Connect sessions ---------------------------------------------------------------------------------------------


def _connect_shape(node: Any) -> Expr | _Parts:
    match type(node).__name__:
        case "LiteralExpression":
            return _connect_literal(node)
        case "ColumnReference":
            return Column(split_name(node._unparsed_identifier), exact=True)
        case "UnresolvedFunction" | "CallFunction":
            name = str(node._name)
            if getattr(node, "_is_distinct", False):
                raise _unknown(f"the aggregate {name!r}")
            return _Parts(list(node._args), lambda args: _function(name, args))
        case "ColumnAlias":
            return _Parts([node._child], lambda args: args[0])
        case "CastExpression":
            target = node._data_type
            text = target if isinstance(target, str) else str(target.simpleString())
            return _Parts([node._expr], _cast(text, node._eval_mode == "try"))
        case "SQLExpression":
            return _parsed_sql(node._expr)
        case "CaseWhen":
            parts = [part for branch in node._branches for part in branch]
            if node._else_value is None:
                return _Parts(parts, lambda args: _case((*args, Literal(None))))
            return _Parts([*parts, node._else_value], _case)
        case "UnresolvedExtractValue":
            return _Parts([node._child, node._extraction], _extract)
        case "CommonInlineUserDefinedFunction":
            raise _unknown(f"the function {node._function_name!r} (written in Python)")
        case kind:
            raise _unknown(f"the part {kind}")


def _connect_literal(node: Any) -> Literal:
    """A literal of Connect, which holds days, micro- and nanoseconds for times."""
    value = node._value
    match type(node._dataType).__name__:
        case _ if value is None:
            return Literal(None)
        case "DateType":
            return Literal(value, types.DATE)
        case "TimestampType":
            return Literal(value, types.TIMESTAMP)
        case "TimestampNTZType":
            return Literal(value, types.TIMESTAMP_NTZ)
        case "TimeType":
            return Literal(value // 1000, types.TIME)
        case "DayTimeIntervalType":
            return _from_microseconds(value)
        case "ArrayType":
            raise _unknown("a literal array")
        case _:
            return literal(bytes(value) if isinstance(value, bytearray) else value)
