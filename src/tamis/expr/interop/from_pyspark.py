"""Translation of PySpark Columns, of classic sessions (they live in Spark's JVM) and of Spark Connect.

Both kinds of Columns are trees of unresolved names, literals, casts, CASE and functions by name. PySpark has no public
API for either: the classic ones are read through Py4J (`_jc.node()`), those of Connect as Python objects (`_expr`).
Every node becomes either an expression or a list of parts with a function that combines them, so that any depth works.
A function has the semantics of SQL text, because it is translated through SQL text.
"""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from typing import Any

from tamis import types
from tamis.errors import ExpressionError, to_one_line
from tamis.expr.builder import split_name
from tamis.expr.datetime_text import parse_timestamp
from tamis.expr.functions.table import ALIASES, FUNCTIONS
from tamis.expr.interop.translate_tree import ADVICE, Parts, translate_tree
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, Call, Literal, Name, Unbound, not_, replace_columns, walk
from tamis.expr.sql.printer import to_sql

_INFIX_SYNTAX = {"&": "&", "|": "|", "^": "^", "ilike": "ILIKE"}
"""Functions that SQL writes between two arguments, and that are not in `tamis.expr.functions.table`."""


def from_pyspark(column: Any) -> Unbound:
    """Translate a Column that was built from names and functions, such as `F.col("a.b") > 5`.

    Python UDFs, windows, lambda functions and subqueries are not supported, and raise an error that names them.
    """
    is_classic = hasattr(column, "_jc")
    translate: Callable[[Any], Unbound | Parts] = _translate_classic if is_classic else _translate_connect
    return translate_tree(column._jc.node() if is_classic else column._expr, translate)


# --- Both kinds ---------------------------------------------------------------------------------------------------


def _build_function(name: str, args: tuple[Unbound, ...]) -> Unbound:
    """Build a call from PySpark's name of the function."""
    lowered = name.lower()
    if lowered == "in":
        return Call("in", args) if len(args) > 1 else FALSE
    if lowered == "!=" and len(args) == 2:
        return not_(Call("=", args))
    known = FUNCTIONS.get(ALIASES.get(lowered, lowered))
    if known is not None and known.operator is not None and known.accepts(len(args)):
        return Call(known.name, args)
    if lowered in _INFIX_SYNTAX and len(args) == 2:
        return _build_from_text(f"{{}} {_INFIX_SYNTAX[lowered]} {{}}", args)
    called = _quote_name(name).replace("{", "{{").replace("}", "}}")
    return _build_from_text(f"{called}({', '.join(['{}'] * len(args))})", args, name)


def _build_cast(target: str, is_try: bool) -> Callable[[tuple[Unbound, ...]], Unbound]:
    return lambda args: _build_from_text(f"{'TRY_CAST' if is_try else 'CAST'}({{}} AS {target})", args)


def _split_case(parts: list[Any], otherwise: Any) -> Parts:
    """Return the parts of a CASE, whose last value is NULL where `otherwise` is None."""
    if otherwise is None:
        return Parts(parts, lambda args: Call("case", (*args, Literal(None))))
    return Parts([*parts, otherwise], lambda args: Call("case", args))


def _build_extract(parts: tuple[Unbound, ...]) -> Unbound:
    """Build the access to a struct field by name, or to an array element by index."""
    match parts:
        case Name(path=path), Literal(value=str() as name):
            return Name((*path, name), exact=True)
        case _:
            return _build_from_text("{}[{}]", parts)


def _build_from_text(template: str, args: tuple[Unbound, ...], function: str = "") -> Unbound:
    """Build a call through SQL text, from arguments that are already expressions.

    Literals and columns are written into the text, because its meaning may depend on them. Calls are replaced by
    placeholder columns, so that nested functions are not parsed again at each level.
    """
    placeholders = {Name((f"\0{index}",)): arg for index, arg in enumerate(args) if isinstance(arg, Call)}
    by_argument = {id(arg): placeholder for placeholder, arg in placeholders.items()}
    parsed = _parse(template.format(*(to_sql(by_argument.get(id(arg), arg)) for arg in args)), function)
    if any(isinstance(node, Call) and node.function == "sql" for node in walk(parsed)):
        # Syntax that is kept as text must be the whole text, without placeholders.
        return _parse(template.format(*(_to_bracketed_sql(arg) for arg in args)), function)
    return replace_columns(parsed, lambda name: placeholders.get(name, name))


def _to_bracketed_sql(arg: Unbound) -> str:
    return f"({to_sql(arg)})" if isinstance(arg, Call) else to_sql(arg)


def _parse_sql(text: str) -> Unbound:
    # The import loads sqlglot, which few Columns need.
    from tamis.expr.sql.parse import parse_sql

    return parse_sql(text)


def _parse(text: str, function: str) -> Unbound:
    try:
        return _parse_sql(text)
    except ExpressionError as error:
        named = f"the function {function!r}" if function else text.replace("\0", "…")
        raise ExpressionError(f"{named} of a PySpark Column cannot be used: {to_one_line(error)}") from error


def _quote_name(name: str) -> str:
    return name if name.replace("_", "a").isalnum() and name.isascii() else to_sql(Name((name,), exact=True))


def _make_unsupported_error(what: str) -> ExpressionError:
    return ExpressionError(f"{what} of a PySpark Column has no counterpart here: {ADVICE}")


def _from_microseconds(value: int) -> Literal:
    return Literal((0, 0, value * 1000), types.INTERVAL)


# --- Classic sessions ---------------------------------------------------------------------------------------------


def _translate_classic(node: Any) -> Unbound | Parts:
    match node.productPrefix():
        case "Literal":
            return _translate_classic_literal(node.value())
        case "UnresolvedAttribute":
            return Name(tuple(_to_list(node.nameParts())), exact=True)
        case "UnresolvedFunction":
            name = str(node.functionName())
            if node.isDistinct():
                raise _make_unsupported_error(f"the aggregate {name!r}")
            return Parts(_to_list(node.arguments()), lambda args: _build_function(name, args))
        case "Alias":
            return Parts([node.child()], lambda args: args[0])
        case "Cast":
            mode = node.evalMode()
            is_try = mode.isDefined() and str(mode.get().getClass().getName()).endswith("$Try$")
            return Parts([node.child()], _build_cast(str(node.dataType().sql()), is_try))
        case "SqlExpression":
            return _parse_sql(str(node.expression()))
        case "CaseWhenOtherwise":
            parts = [part for branch in _to_list(node.branches()) for part in (branch._1(), branch._2())]
            return _split_case(parts, node.otherwise().get() if node.otherwise().isDefined() else None)
        case "UnresolvedExtractValue":
            return Parts([node.child(), node.extraction()], _build_extract)
        case "ExpressionColumnNode":
            return _resolve_attribute(node.expression())
        case kind:
            raise _make_unsupported_error(f"the part {kind}")


def _resolve_attribute(expression: Any) -> Unbound:
    """Return the column of an attribute that a DataFrame resolved, as in `df.x`."""
    kind = expression.getClass().getSimpleName()
    if kind != "AttributeReference":
        name = expression.prettyName() if kind != "PythonUDF" else expression.name()
        raise _make_unsupported_error(f"the function {name!r} ({kind})")
    return Name((str(expression.name()),), exact=True)


def _to_list(sequence: Any) -> list[Any]:
    """Return the items of a Scala sequence."""
    found = []
    iterator = sequence.iterator()
    while iterator.hasNext():
        found.append(iterator.next())
    return found


def _translate_classic_literal(value: Any) -> Literal:
    """Translate a literal as Py4J returns it: numbers and texts as Python values, dates and times as Java objects."""
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
            # Both its milliseconds and its nanoseconds include the fraction of the second.
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
            raise _make_unsupported_error(f"a literal of {kind}")


# --- Connect sessions ---------------------------------------------------------------------------------------------


def _translate_connect(node: Any) -> Unbound | Parts:
    match type(node).__name__:
        case "LiteralExpression":
            return _translate_connect_literal(node)
        case "ColumnReference":
            return Name(split_name(node._unparsed_identifier), exact=True)
        case "UnresolvedFunction" | "CallFunction":
            name = str(node._name)
            if getattr(node, "_is_distinct", False):
                raise _make_unsupported_error(f"the aggregate {name!r}")
            return Parts(list(node._args), lambda args: _build_function(name, args))
        case "ColumnAlias":
            return Parts([node._child], lambda args: args[0])
        case "CastExpression":
            target = node._data_type
            text = target if isinstance(target, str) else str(target.simpleString())
            return Parts([node._expr], _build_cast(text, node._eval_mode == "try"))
        case "SQLExpression":
            return _parse_sql(node._expr)
        case "CaseWhen":
            parts = [part for branch in node._branches for part in branch]
            return _split_case(parts, node._else_value)
        case "UnresolvedExtractValue":
            return Parts([node._child, node._extraction], _build_extract)
        case "CommonInlineUserDefinedFunction":
            raise _make_unsupported_error(f"the function {node._function_name!r} (written in Python)")
        case kind:
            raise _make_unsupported_error(f"the part {kind}")


def _translate_connect_literal(node: Any) -> Literal:
    """Translate a literal of Connect, which holds days, micro- and nanoseconds for times."""
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
            raise _make_unsupported_error("a literal array")
        case _:
            return literal(bytes(value) if isinstance(value, bytearray) else value)
