"""Expressions built in Python: `(col("a.b") >= 5) & col("s").startswith("x")`.

Operators build nodes and compare nothing, so an expression has no truth value: `and`, `or`, `not`, `in` and chained
comparisons are errors that say what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import InvalidArgument, MisusedExpression, TypeMismatch, wrong_argument
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, not_
from tamis.expr.printer import shown, to_sql
from tamis.types import type_from_name, type_name

__all__ = ["Expression", "col", "lit"]

_PART_OF_NAME = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.]+))(\.|\Z)")
_PARENTHESES = "Put each comparison in parentheses, as in (col('a') > 1) & (col('b') < 2)"


class Expression:
    """A value that each row has: a column, a constant, or what operators and methods make of them."""

    __slots__ = ("node",)

    __array_ufunc__ = None  # numpy on the left leaves the operator to the expression

    def __init__(self, node: Expr) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"Expression<{to_sql(self.node, max_items=10)}>"

    def to_sql(self) -> str:
        """The expression as SQL in Spark's dialect."""
        return to_sql(self.node)

    # --- Comparisons

    def __eq__(self, other: object) -> Expression:  # type: ignore[override]  # it builds a comparison
        return self._compared("=", other)

    def __ne__(self, other: object) -> Expression:  # type: ignore[override]
        return self._compared("<>", other)

    # Equality builds an expression, so two of them cannot be told apart by it: each is a key of its own.
    __hash__ = object.__hash__

    def __lt__(self, other: object) -> Expression:
        return self._compared("<", other)

    def __le__(self, other: object) -> Expression:
        return self._compared("<=", other)

    def __gt__(self, other: object) -> Expression:
        return self._compared(">", other)

    def __ge__(self, other: object) -> Expression:
        return self._compared(">=", other)

    def eq_null_safe(self, other: object) -> Expression:
        """Equality for which NULL equals NULL, `<=>` in SQL."""
        return Expression(Call("<=>", (self.node, _node(other))))

    def between(self, low: object, high: object) -> Expression:
        """Whether the value lies between two others, both included."""
        return Expression(Call("and", ((self >= low).node, (self <= high).node)))

    def isin(self, *values: object) -> Expression:
        """Whether the value is one of those given one by one, or as one list, set, array or other iterable."""
        items = [_node(value) for value in _unpacked(values)]
        return Expression(Call("in", (self.node, *items)) if items else FALSE)

    def is_null(self) -> Expression:
        return Expression(Call("is_null", (self.node,)))

    def is_not_null(self) -> Expression:
        return Expression(Call("is_not_null", (self.node,)))

    def _compared(self, function: str, other: object) -> Expression:
        if other is None:
            raise InvalidArgument(
                f"a comparison of {shown(self.node)} with None is never TRUE: "
                "use .is_null(), .is_not_null() or .eq_null_safe(None)"
            )
        return Expression(Call(function, (self.node, _node(other))))

    # --- Logic

    def __and__(self, other: object) -> Expression:
        return Expression(Call("and", (self.node, _predicate(other))))

    def __rand__(self, other: object) -> Expression:
        return Expression(Call("and", (_predicate(other), self.node)))

    def __or__(self, other: object) -> Expression:
        return Expression(Call("or", (self.node, _predicate(other))))

    def __ror__(self, other: object) -> Expression:
        return Expression(Call("or", (_predicate(other), self.node)))

    def __invert__(self) -> Expression:
        return Expression(not_(self.node))

    def __bool__(self) -> NoReturn:
        raise MisusedExpression(
            f"the expression {shown(self.node)} has no truth value: "
            "use &, | and ~ instead of and, or and not, .isin([1, 2]) instead of in, and two comparisons instead of "
            f"a < b < c. {_PARENTHESES}"
        )

    # --- Texts

    def startswith(self, prefix: object) -> Expression:
        return Expression(Call("startswith", (self.node, _node(prefix))))

    def endswith(self, suffix: object) -> Expression:
        return Expression(Call("endswith", (self.node, _node(suffix))))

    def contains(self, part: object) -> Expression:
        return Expression(Call("contains", (self.node, _node(part))))

    def like(self, pattern: object, escape: str | None = None) -> Expression:
        """Whether a text fits a pattern: `%` is any text, `_` any character, `\\` takes the next one as it is."""
        if escape is None or escape == "\\":
            return Expression(Call("like", (self.node, _node(pattern))))
        if not isinstance(escape, str) or len(escape) != 1:
            raise InvalidArgument(f"the escape of a pattern is one character, not {escape!r}")
        return Expression(Call("like", (self.node, _node(pattern), Literal(escape, types.STRING))))

    # --- Numbers and times

    def __add__(self, other: object) -> Expression:
        return Expression(Call("+", (self.node, _node(other))))

    def __radd__(self, other: object) -> Expression:
        return Expression(Call("+", (_node(other), self.node)))

    def __sub__(self, other: object) -> Expression:
        return Expression(Call("-", (self.node, _node(other))))

    def __rsub__(self, other: object) -> Expression:
        return Expression(Call("-", (_node(other), self.node)))

    def __mul__(self, other: object) -> Expression:
        return Expression(Call("*", (self.node, _node(other))))

    def __rmul__(self, other: object) -> Expression:
        return Expression(Call("*", (_node(other), self.node)))

    def __truediv__(self, other: object) -> Expression:
        return Expression(Call("/", (self.node, _node(other))))

    def __rtruediv__(self, other: object) -> Expression:
        return Expression(Call("/", (_node(other), self.node)))

    def __mod__(self, other: object) -> Expression:
        return Expression(Call("%", (self.node, _node(other))))

    def __rmod__(self, other: object) -> Expression:
        return Expression(Call("%", (_node(other), self.node)))

    def __neg__(self) -> Expression:
        return Expression(Call("negate", (self.node,)))

    def cast(self, target: str | pa.DataType) -> Expression:
        """The value as another type, named as in SQL (`"decimal(10,2)"`) or given as an Arrow type."""
        return Expression(Call("cast", (self.node, Literal(_type_name(target), types.STRING))))

    # --- Fields

    def field(self, name: str) -> Expression:
        """A field of a struct column; the name is taken as it is, dots and all."""
        if not isinstance(self.node, Column):
            raise InvalidArgument(f"only a column has fields, and {shown(self.node)} is none")
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"the name of a field is a text, not {name!r}")
        return Expression(Column((*self.node.path, name), exact=self.node.exact))

    # --- What an expression is not

    def __contains__(self, item: object) -> NoReturn:
        raise MisusedExpression(
            f"`in` cannot look into the expression {shown(self.node)}: "
            "use .isin(values) for a list, .contains(text) for a part of a text"
        )

    def __iter__(self) -> Iterator[Any]:
        raise MisusedExpression(f"the expression {shown(self.node)} holds no values to go through")


def col(name: str) -> Expression:
    """A column by name; a dot leads into a struct, and back-ticks keep a name with dots together.

    >>> col("a.b").node.path, col("`a.b`.c").node.path
    (('a', 'b'), ('a.b', 'c'))
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a column is a text, not {name!r}")
    return Expression(Column(split_name(name), exact="`" in name))


def lit(value: Any) -> Expression:
    """A constant."""
    return Expression(literal(value))


def split_name(name: str) -> tuple[str, ...]:
    """The parts of a name: split at the dots outside back-ticks, in which a doubled back-tick is one.

    >>> split_name("a.`b.``c`.d")
    ('a', 'b.`c', 'd')
    """
    parts: list[str] = []
    place = 0
    is_last = False
    while not is_last:
        match = _PART_OF_NAME.match(name, place)
        if match is None:
            raise InvalidArgument(
                f"{name!r} does not name a column: write a.b for a field, and put a name with dots or back-ticks "
                "into back-ticks, as in `a.b` (a back-tick inside is doubled)"
            )
        quoted, plain, end = match.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        place = match.end()
        is_last = not end
    return tuple(parts)


def _node(value: object) -> Expr:
    match value:
        case Expression():
            return value.node
        case Column() | Literal() | Call():
            return value
        case _:
            return literal(value)


def _predicate(value: object) -> Expr:
    if isinstance(value, Expression | Column | Literal | Call | bool | np.bool_):
        return _node(value)
    raise MisusedExpression(f"& and | combine conditions, and {value!r} is none. {_PARENTHESES}")


_SINGLE_VALUES = (str, bytes, bytearray, memoryview, Expression, pa.Scalar)


def _unpacked(values: tuple[object, ...]) -> Iterable[object]:
    match values:
        case (np.ndarray() as array,):
            return array.ravel()
        case (Iterable() as several,) if not isinstance(several, _SINGLE_VALUES):
            return several
        case _:
            return values


def _type_name(target: str | pa.DataType) -> str:
    if not isinstance(target, str | pa.DataType):
        raise wrong_argument("the target of a cast", "the name of a type, as in 'bigint', or an Arrow type", target)
    name = target if isinstance(target, str) else type_name(target)
    found = type_from_name(name)
    if isinstance(target, pa.DataType) and found != target:
        raise TypeMismatch(f"no SQL type is {target}: use {type_name(found)!r}")
    return type_name(found)
