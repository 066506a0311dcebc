"""Expressions built in Python: `(col("a.b") >= 5) & col("s").startswith("x")`.

Operators build nodes instead of comparing values, so an expression has no truth value: `and`, `or`, `not`, `in` and
chained comparisons raise an error that says what to write instead.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import (
    InvalidArgument,
    MisusedExpression,
    TypeMismatch,
    format_count,
    make_argument_error,
    suggest_arguments,
    suggest_method_arguments,
)
from tamis.expr.functions.table import FUNCTIONS, Function
from tamis.expr.literals import literal
from tamis.expr.nodes import BETWEEN, FALSE, AnyExpr, Call, Column, Leaf, Literal, Name, not_
from tamis.expr.sql.printer import restore_spelling, to_display_sql, to_sql
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.types import type_from_name, type_name

__all__ = ["Expression", "col", "lit"]

_NAME_PART = re.compile(r"(?:`((?:[^`]|``)+)`|([^`.]+))(\.|\Z)")
_PARENTHESES = "Put each comparison in parentheses, as in (col('a') > 1) & (col('b') < 2)"


_COMPARISONS = frozenset(("=", "<>", "<", "<=", ">", ">="))


def _make_operator(function: str, *, is_reflected: bool = False) -> Callable[[Expression, object], Expression]:
    """Return the method of an operator. A reflected one has the expression as its right operand."""

    def build(self: Expression, other: object) -> Expression:
        if other is None and function in _COMPARISONS:
            raise InvalidArgument(
                f"a comparison of {to_display_sql(self.node)} with None is never TRUE: "
                "use .is_null(), .is_not_null() or .eq_null_safe(None)"
            )
        node = _to_predicate(other) if function in ("and", "or") else _to_node(other)
        return Expression(Call(function, (node, self.node) if is_reflected else (self.node, node)))

    return build


@suggest_method_arguments("Expression")
class Expression:
    """A value computed for each row: a column, a constant, or an operator or a function applied to such values."""

    __slots__ = ("node",)

    __array_ufunc__ = None  # a numpy left operand leaves the operator to the expression

    def __init__(self, node: AnyExpr) -> None:
        self.node = node

    def __repr__(self) -> str:
        return f"Expression<{to_sql(restore_spelling(self.node), max_items=10)}>"

    def to_sql(self) -> str:
        """Return the expression as SQL in Spark's dialect."""
        return to_sql(self.node)

    # --- Comparisons

    __eq__, __ne__ = _make_operator("="), _make_operator("<>")  # type: ignore[assignment]  # they build comparisons
    __lt__, __le__ = _make_operator("<"), _make_operator("<=")
    __gt__, __ge__ = _make_operator(">"), _make_operator(">=")

    # `==` builds an expression, so hashing is by identity.
    __hash__ = object.__hash__

    def eq_null_safe(self, other: object) -> Expression:
        """Return whether two values are equal, where NULL equals NULL: `<=>` in SQL."""
        return Expression(Call("<=>", (self.node, _to_node(other))))

    def between(self, low: object, high: object) -> Expression:
        """Return whether the value is between two others, both included."""
        return Expression(Call("and", ((self >= low).node, (self <= high).node), spelling=BETWEEN))

    def isin(self, *values: object) -> Expression:
        """Return whether the value is one of `values`: several arguments, or one list, set, array or other iterable."""
        items = [_to_node(value) for value in _unpack(values)]
        return Expression(Call("in", (self.node, *items)) if items else FALSE)

    def is_null(self) -> Expression:
        """Return whether the value is NULL."""
        return Expression(Call("is_null", (self.node,)))

    def is_not_null(self) -> Expression:
        """Return whether the value is not NULL."""
        return Expression(Call("is_not_null", (self.node,)))

    # --- Logic

    __and__, __rand__ = _make_operator("and"), _make_operator("and", is_reflected=True)
    __or__, __ror__ = _make_operator("or"), _make_operator("or", is_reflected=True)

    def __invert__(self) -> Expression:
        return Expression(not_(self.node))

    def __bool__(self) -> NoReturn:
        raise MisusedExpression(
            f"the expression {to_display_sql(self.node)} has no truth value: "
            "use &, | and ~ instead of and, or and not, .isin([1, 2]) instead of in, and two comparisons instead of "
            f"a < b < c. {_PARENTHESES}"
        )

    # --- Texts

    def startswith(self, prefix: object) -> Expression:
        """Return whether a text starts with a prefix."""
        return Expression(Call("startswith", (self.node, _to_node(prefix))))

    def endswith(self, suffix: object) -> Expression:
        """Return whether a text ends with a suffix."""
        return Expression(Call("endswith", (self.node, _to_node(suffix))))

    def contains(self, part: object) -> Expression:
        """Return whether a text contains another one."""
        return Expression(Call("contains", (self.node, _to_node(part))))

    def like(self, pattern: object, escape: str | None = None) -> Expression:
        """Return whether a text matches a pattern: `%` is any text, `_` any character, `\\` escapes the next one."""
        if escape is None or escape == "\\":
            return Expression(Call("like", (self.node, _to_node(pattern))))
        if not isinstance(escape, str) or len(escape) != 1:
            raise InvalidArgument(f"the escape of a pattern must be one character, found {escape!r}")
        return Expression(Call("like", (self.node, _to_node(pattern), Literal(escape, types.STRING))))

    # --- Other functions of the table

    def __getattr__(self, name: str) -> Callable[..., Expression]:
        """Return a function of the table as a method, as in `col("ts").year()` and `col("ts").date_trunc("month")`."""
        known = FUNCTIONS.get(name)
        if known is None:
            raise AttributeError(f"an expression has no attribute {name!r}")
        return lambda *others: Expression(_build_call(known, self.node, [_to_node(other) for other in others]))

    # --- Numbers and times

    __add__, __radd__ = _make_operator("+"), _make_operator("+", is_reflected=True)
    __sub__, __rsub__ = _make_operator("-"), _make_operator("-", is_reflected=True)
    __mul__, __rmul__ = _make_operator("*"), _make_operator("*", is_reflected=True)
    __truediv__, __rtruediv__ = _make_operator("/"), _make_operator("/", is_reflected=True)
    __mod__, __rmod__ = _make_operator("%"), _make_operator("%", is_reflected=True)

    def __neg__(self) -> Expression:
        return Expression(Call("negate", (self.node,)))

    def cast(self, target: str | pa.DataType) -> Expression:
        """Cast the value to a type, given by its SQL name (`"decimal(10,2)"`) or as an Arrow type."""
        return Expression(Call("cast", (self.node, Literal(_to_type_name(target), types.STRING))))

    # --- Fields

    def field(self, name: str) -> Expression:
        """Return a field of a struct column. Dots in the name are part of the name."""
        if not isinstance(self.node, Name | Column):
            raise InvalidArgument(f"only a column has fields, and {to_display_sql(self.node)} is not a column")
        if not isinstance(name, str) or not name:
            raise InvalidArgument(f"the name of a field must be a text, found {name!r}")
        return Expression(Name((*self.node.path, name), exact=self.node.exact))

    # --- Python protocols that an expression does not support

    def __contains__(self, item: object) -> NoReturn:
        raise MisusedExpression(
            f"`in` cannot look into the expression {to_display_sql(self.node)}: "
            "use .isin(values) for a list, .contains(text) for a part of a text"
        )

    def __iter__(self) -> Iterator[Any]:
        raise MisusedExpression(f"the expression {to_display_sql(self.node)} holds no values to go through")


@suggest_arguments("tamis.col")
def col(name: str) -> Expression:
    """Return a column by name; a dot selects a struct field, and back-ticks quote a name with dots.

    >>> col("a.b").node.path, col("`a.b`.c").node.path
    (('a', 'b'), ('a.b', 'c'))
    """
    if not isinstance(name, str):
        raise InvalidArgument(f"the name of a column must be a text, found {name!r}")
    return Expression(to_name(name))


def to_name(name: str) -> Name:
    """Return the name that a text spells, with its struct fields: see `split_name`."""
    return Name(split_name(name), exact="`" in name)


@suggest_arguments("tamis.lit")
def lit(value: Any) -> Expression:
    """Return a constant."""
    return Expression(literal(value))


def split_name(name: str) -> tuple[str, ...]:
    """Split a column name at the dots outside back-ticks; a doubled back-tick inside them stands for one.

    >>> split_name("a.`b.``c`.d")
    ('a', 'b.`c', 'd')
    """
    parts: list[str] = []
    offset = 0
    is_last = False
    while not is_last:
        match = _NAME_PART.match(name, offset)
        if match is None:
            raise InvalidArgument(
                f"{name!r} does not name a column: write a.b for a field, and put a name with dots or back-ticks "
                "into back-ticks, as in `a.b` (a back-tick inside is doubled)"
            )
        quoted, plain, end = match.groups()
        parts.append(plain if quoted is None else quoted.replace("``", "`"))
        offset = match.end()
        is_last = not end
    return tuple(parts)


def _build_call(function: Function, value: AnyExpr, others: list[AnyExpr]) -> Call[Leaf]:
    """Return a call whose first argument that is not a literal is the value."""
    if not function.accepts(len(others) + 1):
        least = "" if function.fewest == function.most else "at least "
        wanted = format_count(function.fewest - 1, "argument")
        raise InvalidArgument(f".{function.name}() takes {least}{wanted}, found {len(others)}")
    position = next(index for index, kind in enumerate(function.arguments) if kind != "literal")
    return Call(function.name, (*others[:position], value, *others[position:]))


def _to_node(value: object) -> AnyExpr:
    match value:
        case Expression():
            return value.node
        case Name() | Column() | Literal() | Call():
            return value
        case _:
            return literal(value)


def _to_predicate(value: object) -> AnyExpr:
    if isinstance(value, PartitionFilter):
        return value.to_expr()
    if isinstance(value, Expression | Name | Column | Literal | Call | bool | np.bool_):
        return _to_node(value)
    raise MisusedExpression(f"& and | combine conditions, but {value!r} is not a condition. {_PARENTHESES}")


_SINGLE_VALUES = (str, bytes, bytearray, memoryview, Expression, pa.Scalar)


def _unpack(values: tuple[object, ...]) -> Iterable[object]:
    match values:
        case (np.ndarray() as array,):
            return array.ravel()
        case (Iterable() as items,) if not isinstance(items, _SINGLE_VALUES):
            return items
        case _:
            return values


def _to_type_name(target: str | pa.DataType) -> str:
    if not isinstance(target, str | pa.DataType):
        raise make_argument_error(
            "the target of a cast", "the name of a type, as in 'bigint', or an Arrow type", target
        )
    name = target if isinstance(target, str) else type_name(target)
    found = type_from_name(name)
    if isinstance(target, pa.DataType) and found != target:
        raise TypeMismatch(f"no SQL type is {target}: use {type_name(found)!r}")
    return type_name(found)
