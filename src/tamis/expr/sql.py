"""SQL text to expressions: the tree that sqlglot read, turned into our nodes without recursion.

What `tamis.expr.functions` models becomes a call of that function. Any other function stays a call of its own name.
Syntax that is no call at all (`a[0]`, lambda functions, `RLIKE`, `||`, …) becomes `sql('its text', columns…)`: it
prints, binds and runs like the rest, and only cannot skip anything.

A literal is folded where the text spells it out: `-5`, `5L`, `DATE '2024-01-01'`, `CAST(5 AS INT)`. Brackets keep a
call a call: `-(5)` negates 5, and `CAST((5) AS INT)` casts it. The printer relies on that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sqlglot import exp

from tamis.errors import InvalidArgument, ParseError, with_article
from tamis.expr.nodes import Call, Expr, not_
from tamis.expr.sql_foreign import refuse_foreign_value
from tamis.expr.sql_functions import FUNCTION_SHAPES
from tamis.expr.sql_literals import LITERALS
from tamis.expr.sql_parts import Pending, Shape, call, column_or_opaque, opaque
from tamis.expr.sql_refusals import position_of, refuse, refuse_reserved
from tamis.expr.sql_syntax import read


def parse_sql(text: str) -> Expr:
    """The expression that a text in Spark's SQL means; `ParseError` with a position and a hint otherwise.

    >>> parse_sql("ts >= DATE '2024-01-01' AND NOT a.b IN (1, 2)")
    Call<ts >= DATE '2024-01-01' AND a.b NOT IN (1, 2)>
    """
    if not isinstance(text, str):
        raise InvalidArgument(f"SQL must be a text, not {with_article(type(text).__name__)}: {text!r}")
    return read(text, _converted)


def _converted(tree: exp.Expr) -> Expr:
    refuse_reserved(tree)
    for node in tree.walk():
        refuse_foreign_value(node)
    return _convert(tree)


def expression_of(tree: exp.Expr) -> Expr:
    """The expression that a part of a tree means which `sql_syntax` read; `ParseError` where none of ours does."""
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
        shape = _shape(item)
        if isinstance(shape, Pending):
            stack.append(shape)
            stack.extend(reversed(shape.parts))
        else:
            done.append(shape)
    return done[0]


def _shape(node: exp.Expr) -> Shape:
    while isinstance(node, exp.Paren):
        node = node.this
    convert = _SHAPES.get(type(node))
    if convert is not None:
        return convert(node)
    if isinstance(node, exp.Func) and not any(node.args.values()):
        return Call(node.sql_name().lower(), ())
    return opaque(node)


def _junction(node: exp.Expr) -> Pending:
    """All operands of `a AND b AND c`, which arrives nested to the left; brackets end the chain."""
    kind = type(node)
    operands: list[exp.Expr] = []
    stack = [node]
    while stack:
        part = stack.pop()
        if type(part) is kind:
            stack += [part.expression, part.this]
        else:
            operands.append(part)
    return call("and" if kind is exp.And else "or", *operands)


def _not(node: exp.Expr) -> Pending:
    inner = node.this
    if isinstance(inner, exp.Is) and isinstance(inner.expression, exp.Null):
        return call("is_not_null", inner.this)
    return call("not", inner)


def _is(node: exp.Expr) -> Pending:
    match node.expression:
        case exp.Null():
            # Other versions of sqlglot say IS NOT NULL this way.
            return call("is_not_null" if node.args.get("negate") else "is_null", node.this)
        case exp.Boolean():
            return call("<=>", node.this, node.expression)
        case _:
            raise ParseError(
                "IS stands before NULL, TRUE, FALSE or DISTINCT FROM",
                position=position_of(node),
                hint="Compare with = or with <=>, for which NULL equals NULL",
            )


def _in(node: exp.Expr) -> Shape:
    items = node.expressions
    if node.args.get("query") is not None:
        refuse(node.args["query"])
    if not items:
        raise ParseError("IN needs a list", position=position_of(node), hint="Write it in brackets, as in a IN (1, 2)")
    if isinstance(node.this, exp.Tuple) or any(isinstance(item, exp.Tuple) for item in items):
        return opaque(node)
    return call("in", node.this, *items)


def _between(node: exp.Expr) -> Shape:
    if node.args.get("symmetric"):
        return opaque(node)

    def build(args: tuple[Expr, ...]) -> Expr:
        value, low, high = args
        return Call("and", (Call(">=", (value, low)), Call("<=", (value, high))))

    return Pending((node.this, node.args["low"], node.args["high"]), build)


def _distinct(node: exp.Expr) -> Pending:
    return Pending((node.this, node.expression), lambda args: not_(Call("<=>", args)))


def _operator(function: str) -> Callable[[exp.Expr], Shape]:
    return lambda node: call(function, node.this, node.expression)


_OPERATORS: dict[type[exp.Expr], str] = {
    exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.NullSafeEQ: "<=>",
    exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%",
}  # fmt: skip

_SHAPES: dict[type[exp.Expr], Callable[[Any], Shape]] = {
    **LITERALS,
    **FUNCTION_SHAPES,
    **{kind: _operator(function) for kind, function in _OPERATORS.items()},
    exp.Column: column_or_opaque,
    exp.Dot: column_or_opaque,
    exp.And: _junction,
    exp.Or: _junction,
    exp.Not: _not,
    exp.Is: _is,
    exp.In: _in,
    exp.Between: _between,
    exp.NullSafeNEQ: _distinct,
}
