"""What translations from other libraries share: the walk over a tree, and the checks of arithmetic.

The walk does not recurse, because the user decides how deep a tree is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from tamis.expr.nodes import Call, Expr, Literal


@dataclass(frozen=True, slots=True)
class Parts:
    """A node whose parts must be translated before it is built."""

    parts: Sequence[Any]
    build: Callable[[tuple[Expr, ...]], Expr]


@dataclass(frozen=True, slots=True)
class _Build:
    """The second visit of a node: it combines its `count` translated parts."""

    count: int
    build: Callable[[tuple[Expr, ...]], Expr]


def translate_tree(root: Any, translate: Callable[[Any], Expr | Parts]) -> Expr:
    """Return the expression for a tree; `translate` turns one node into an expression, or into its parts."""
    done: list[Expr] = []
    stack: list[Any] = [root]
    while stack:
        item = stack.pop()
        if isinstance(item, _Build):
            first = len(done) - item.count
            parts = tuple(done[first:])
            del done[first:]
            done.append(item.build(parts))
            continue
        translated = translate(item)
        if isinstance(translated, Parts):
            stack.append(_Build(len(translated.parts), translated.build))
            stack.extend(reversed(translated.parts))
        else:
            done.append(translated)
    return done[0]


_ARITHMETIC = frozenset(("+", "-", "*", "/", "negate", "abs", "length"))


def is_number_by_form(expr: Expr) -> bool:
    """Return whether an expression is a number, whatever its columns are.

    The types of columns are unknown during a translation. Elsewhere `+` also joins texts and moves dates, which it does
    not do here; where one operand is a number, the other library accepts only numbers.
    """
    match expr:
        case Literal(type=data_type):
            return bool(
                pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)
            )
        case Call(function):
            return function in _ARITHMETIC
        case _:
            return False


def is_divisor_other_than_zero(expr: Expr) -> bool:
    """Return whether an expression is a number other than zero: here a division by zero is NULL."""
    return isinstance(expr, Literal) and is_number_by_form(expr) and bool(expr.value) and expr.value == expr.value
