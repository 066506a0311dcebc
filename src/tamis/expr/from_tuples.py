"""Conditions as tuples, the `filters` of pyarrow, pandas and others.

    ("id", "=", 5)                              one condition
    [("id", ">", 5), ("region", "in", ["eu"])]  AND
    [[("id", "=", 5)], [("id", "=", 7)]]        OR of the lists, AND within a list (see `sources`)

Column names and values are those of `tamis.col`. NULL is as in pyarrow: a comparison with NULL drops the row, while a
list matches NULL if it contains None, so that `not in` without None keeps the rows in which the column is NULL.
"""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable, Iterable
from typing import Any, TypeGuard

from tamis.errors import InvalidArgument
from tamis.expr.builder import Expression, col
from tamis.expr.nodes import Column, Expr, and_, not_, or_

Condition = tuple[object, str, object]

_COMPARISONS: dict[str | None, Callable[[Any, Any], Expression]] = {
    "=": operators.eq, "==": operators.eq, "!=": operators.ne, "<>": operators.ne,
    "<": operators.lt, "<=": operators.le, ">": operators.gt, ">=": operators.ge,
}  # fmt: skip
_LISTS = ("in", "not in")
_OPERATORS = (*_COMPARISONS, *_LISTS)
_FOREIGN_OPERATOR = re.compile(
    r"[^\w\s'\"`()]{1,3}|(?:not |r|i)?like|is|is not|between|contains|startswith|eq|ne|gt|ge|lt|le"
)
"""Operators of other libraries, which cannot be filters themselves."""


def is_condition(item: object) -> TypeGuard[Condition]:
    """Return whether a value is one condition: a name, an operator, a value."""
    return (
        isinstance(item, tuple) and len(item) == 3 and _is_name(item[0]) and _normalise_operator(item[1]) in _OPERATORS
    )


def refuse_malformed(item: list[object] | tuple[object, ...]) -> None:
    """Raise for a malformed condition, which would be treated as a list of filters."""
    if len(item) not in (2, 3) or not _is_name(item[0]):
        return
    operator = _normalise_operator(item[1])
    if operator in _OPERATORS:
        example = (*item[:2], "…") if len(item) == 2 else tuple(item)
        raise InvalidArgument(f"where has {item!r}: a condition is a tuple of three, as in {example!r}")
    if operator is not None and _FOREIGN_OPERATOR.fullmatch(operator):
        known = " ".join(str(each) for each in _OPERATORS)
        raise InvalidArgument(
            f"where has {item!r}, but conditions have no operator {item[1]!r}. Operators: {known}; "
            "for others write SQL text, such as \"name LIKE 'a%'\", or use tamis.col"
        )


def _is_name(item: object) -> bool:
    is_path = isinstance(item, tuple | list) and bool(item) and all(isinstance(part, str) for part in item)
    return isinstance(item, str | Expression | Column) or is_path


def _normalise_operator(item: object) -> str | None:
    return " ".join(item.lower().split()) if isinstance(item, str) else None


def from_condition(condition: Condition) -> Expr:
    name, sign, value = condition
    operator = _normalise_operator(sign)
    column = _to_column(name)
    if operator in _LISTS:
        if isinstance(value, str | bytes) or not isinstance(value, Iterable):
            raise InvalidArgument(
                f"the condition {condition!r} needs a list of values after {sign!r}, as in {(name, sign, [value])!r}"
            )
        return _build_membership(column, list(value), is_in=operator == "in")
    if value is None:
        raise InvalidArgument(
            f"the condition {condition!r} is never TRUE: write SQL text, as in '{column.to_sql()} IS NULL', "
            f"or .is_null() of tamis.col"
        )
    return _COMPARISONS[operator](column, value).node


def _build_membership(column: Expression, values: list[object], *, is_in: bool) -> Expr:
    present = [value for value in values if value is not None]
    found = column.isin(present).node
    has_none = len(present) < len(values)
    if is_in:
        return or_(found, column.is_null().node) if has_none else found
    return and_(not_(found), column.is_not_null().node) if has_none else or_(not_(found), column.is_null().node)


def _to_column(name: object) -> Expression:
    match name:
        case Expression():
            return name
        case str():
            return col(name)
        case Column():
            return Expression(name)
        case [*path]:
            return Expression(Column(tuple(str(part) for part in path)))
        case _:
            raise AssertionError(f"not the name of a column: {name!r}")
