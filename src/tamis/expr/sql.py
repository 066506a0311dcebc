"""SQL text to expressions: sqlglot's tree, converted to Tamis nodes without recursion.

A function of `tamis.expr.functions` becomes a call of that function. Any other function stays a call by its own name.
Other syntax (`a[0]`, lambda functions, `RLIKE`, `||`, …) becomes `sql('its text', columns…)`: it prints, binds and
runs like the rest, but cannot skip data.

A literal is folded where the text writes it directly: `-5`, `5L`, `DATE '2024-01-01'`, `CAST(5 AS INT)`. Brackets
prevent that: `-(5)` negates 5, and `CAST((5) AS INT)` casts it. The printer relies on this.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from tamis.errors import InvalidArgument, ParseError, add_article
from tamis.expr.nodes import Call, Expr, not_
from tamis.expr.sql_foreign import refuse_foreign_value
from tamis.expr.sql_functions import FUNCTION_CONVERTERS
from tamis.expr.sql_literals import LITERAL_CONVERTERS
from tamis.expr.sql_parts import Conversion, Pending, pending_call, to_column_or_opaque, to_opaque_call
from tamis.expr.sql_refusals import find_position, refuse, refuse_reserved
from tamis.expr.sql_syntax import parse_expression


def parse_sql(text: str) -> Expr:
    """Parse an expression in Spark's SQL; raise `ParseError` with a position and a hint if it is invalid.

    >>> parse_sql("ts >= DATE '2024-01-01' AND NOT a.b IN (1, 2)")
    Call<ts >= DATE '2024-01-01' AND a.b NOT IN (1, 2)>
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"SQL must be a string, not {add_article(type(text).__name__)}: {text!r}")
    return parse_expression(text, _check_and_convert)


def _check_and_convert(tree: exp.Expr) -> Expr:
    refuse_reserved(tree)
    for node in tree.walk():
        refuse_foreign_value(node)
    return _convert(tree)


def to_expression(tree: exp.Expr) -> Expr:
    """Convert a part of a tree that `sql_syntax` parsed; raise `ParseError` if it is unsupported."""
    return _convert(tree)


def _convert(tree: exp.Expr) -> Expr:
    done: list[Expr] = []
    stack: list[exp.Expr | Pending] = [tree]
    while stack:
        item = stack.pop()
        if isinstance(item, Pending):
            first = len(done) - len(item.parts)
            args = tuple(done[first:])
            del done[first:]
            done.append(item.build(args))
            continue
        converted = _convert_node(item)
        if isinstance(converted, Pending):
            stack.append(converted)
            stack.extend(reversed(converted.parts))
        else:
            done.append(converted)
    return done[0]


def _convert_node(node: exp.Expr) -> Conversion:
    while isinstance(node, exp.Paren):
        node = node.this
    convert = _CONVERTERS.get(type(node))
    if convert is not None:
        return convert(node)
    if isinstance(node, exp.Func) and not any(node.args.values()):
        return Call(node.sql_name().lower(), ())
    return to_opaque_call(node)


def _and_or(node: exp.Expr) -> Pending:
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
    return pending_call("and" if kind is exp.And else "or", *operands)


def _not(node: exp.Expr) -> Pending:
    inner = node.this
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return pending_call("is_not_null", inner.this)
    return pending_call("not", inner)


def _is(node: exp.Expr) -> Pending:
    match node.expression:
        case exp.Null():
            # Other versions of sqlglot represent IS NOT NULL by this flag.
            return pending_call("is_not_null" if node.args.get("negate") else "is_null", node.this)
        case exp.Boolean():
            return pending_call("<=>", node.this, node.expression)
        case _:
            raise ParseError(
                "IS must be followed by NULL, TRUE, FALSE or DISTINCT FROM",
                position=find_position(node),
                hint="Compare with = or with <=>, for which NULL equals NULL",
            )


def _in(node: exp.Expr) -> Conversion:
    items = node.expressions
    if node.args.get("query") is not None:
        refuse(node.args["query"])
    if not items:
        raise ParseError(
            "IN needs a list", position=find_position(node), hint="Write it in brackets, as in a IN (1, 2)"
        )
    if isinstance(node.this, exp.Tuple) or any(isinstance(item, exp.Tuple) for item in items):
        return to_opaque_call(node)
    return pending_call("in", node.this, *items)


def _between(node: exp.Expr) -> Conversion:
    if node.args.get("symmetric"):
        return to_opaque_call(node)

    def build(args: tuple[Expr, ...]) -> Expr:
        value, low, high = args
        return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))))

    return Pending((node.this, node.args["low"], node.args["high"]), build)


def _distinct(node: exp.Expr) -> Pending:
    return Pending((node.this, node.expression), lambda args: not_(Call("<=>", args)))


def _operator(function: str) -> Callable[[exp.Expr], Conversion]:
    return lambda node: pending_call(function, node.this, node.expression)


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
    exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip

_CONVERTERS: dict[type[exp.Expr], Callable[[Any], Conversion]] = {
    **LITERAL_CONVERTERS,
    **FUNCTION_CONVERTERS,
    **{kind: _operator(function) for kind, function in _OPERATORS.items()},
    exp.Column: to_column_or_opaque,
    exp.Dot: to_column_or_opaque,
    exp.And: _and_or,
    exp.Or: _and_or,
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.NullSafeNEQ: _distinct,
}
