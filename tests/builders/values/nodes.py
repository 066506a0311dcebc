"""Short constructors of nodes, for expected expressions."""

from __future__ import annotations

from tamis import types
from tamis.expr.nodes import Call, Expr, Literal


def number(value: int | None) -> Literal:
    return Literal(value, types.LONG)


def text(value: str | None) -> Literal:
    return Literal(value, types.STRING)


def call(function: str, *args: Expr) -> Call:
    return Call(function, args)
