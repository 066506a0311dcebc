"""Conversion of every supported form of a `where` to one expression."""

from __future__ import annotations

import operator as operators
import re
from collections.abc import Callable, Iterable
from itertools import chain
from typing import Any, TypeGuard

import numpy as np
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, add_article
from tamis.expr.builder import Expression, col
from tamis.expr.interop.from_datafusion import from_datafusion
from tamis.expr.interop.from_polars import from_polars
from tamis.expr.interop.from_pyarrow import from_pyarrow
from tamis.expr.interop.from_pyiceberg import from_pyiceberg
from tamis.expr.interop.from_pyspark import from_pyspark
from tamis.expr.nodes import AnyExpr, Call, Column, Literal, Name, and_, not_, or_
from tamis.expr.normalise import freeze_current_time
from tamis.expr.wire.partition_filter import PartitionFilter

_KINDS = (
    "SQL text, a tamis expression such as col('a') > 5, a PartitionFilter, an expression of pyarrow, pyiceberg, Polars "
    "or DataFusion, a PySpark Column, a condition such as ('a', '>', 5), or a list of these"
)


def to_expr(where: object) -> AnyExpr | None:
    """Return a `where` as an expression; None for no filter.

    A list is the AND of its items, and a list of lists the OR of the lists, as in pyarrow. The current time in the
    filter is the time of this call.
    """
    groups = _to_groups(where)
    return freeze_current_time(or_(*(and_(*group) for group in groups))) if groups else None


def _to_groups(where: object) -> list[list[AnyExpr]]:
    """Return the filters in groups: a row must pass all filters of at least one group. No groups mean no filter."""
    items = _list_items(where)
    lists = [item for item in items if _is_list(item) and item]
    if not lists:
        group = [_to_filter(item) for item in items if not _is_list(item)]
        return [group] if group else []
    if len(lists) < len(items):
        raise InvalidArgument(
            "a where list mixes lists, which are combined with OR, with other filters, which are combined with AND: "
            "join them with | and &, as in (col('a') == 1) | (col('b') == 2), or write SQL text"
        )
    inner = [_list_items(each) for each in lists]
    if any(map(_is_list, chain(*inner))):
        raise InvalidArgument(
            "a where has lists inside of lists of lists: a list of lists is the OR of the lists, a list the AND. "
            "Join filters with | and &, as in (col('a') == 1) | (col('b') == 2), or write SQL text"
        )
    return [[_to_filter(item) for item in each] for each in inner if each]


def _list_items(where: object) -> list[object]:
    """Return the items of a list without None; a single filter is a list of one."""
    if not _is_list(where):
        return [] if where is None else [where]
    refuse_malformed(where)
    return [item for item in where if item is not None]


def _is_list(item: object) -> TypeGuard[list[object] | tuple[object, ...]]:
    return isinstance(item, list | tuple) and not is_condition(item)


def _to_filter(where: object) -> AnyExpr:
    match where:
        case tuple() if is_condition(where):
            return from_condition(where)
        case str():
            # The import loads sqlglot, which only text filters need.
            from tamis.expr.sql.parse import parse_sql

            return parse_sql(where)
        case Expression():
            return where.node
        case Name() | Column() | Literal() | Call():
            return where
        case PartitionFilter():
            return where.to_expr()
        case pc.Expression():
            return from_pyarrow(where)
        case bool() | np.bool_():
            raise InvalidArgument(
                f"where is the Python value {where}: Python evaluated the comparison, which built no expression. "
                "Compare col('name'), as in col('name') == 5, and combine with &, | and ~"
            )
        case _ if (translate := _find_translation(where)) is not None:
            return translate(where)
        case _:
            kind = f"{type(where).__module__}.{type(where).__qualname__}"
            raise InvalidArgument(f"where cannot be {add_article(kind.removeprefix('builtins.'))}: give {_KINDS}")


_LIBRARIES: tuple[tuple[tuple[str, ...], str, Callable[[Any], AnyExpr]], ...] = (
    (("BooleanExpression",), "pyiceberg.", from_pyiceberg),
    (("Column",), "pyspark.sql.", from_pyspark),
    (("Expr",), "polars.", from_polars),
    (("Expr", "RawExpr"), "datafusion.", from_datafusion),
)
"""The names and the package of the classes of expressions of other libraries."""


def _find_translation(where: object) -> Callable[[Any], AnyExpr] | None:
    """Return what translates an expression of another library: by its class, so that no library need be installed."""
    for names, package, translate in _LIBRARIES:
        if any(kind.__name__ in names and f"{kind.__module__}.".startswith(package) for kind in type(where).__mro__):
            return translate
    return None


# --- Conditions as tuples, the `filters` of pyarrow, pandas and others ------------------------------------------------
#
#     ("id", "=", 5)                              one condition
#     [("id", ">", 5), ("region", "in", ["eu"])]  AND
#     [[("id", "=", 5)], [("id", "=", 7)]]        OR of the lists, AND within a list (see `sources`)
#
# Column names and values are those of `tamis.col`. NULL is as in pyarrow: a comparison with NULL drops the row, while a
# list matches NULL if it contains None, so that `not in` without None keeps the rows in which the column is NULL.

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
    return isinstance(item, str | Expression | Name | Column) or is_path


def _normalise_operator(item: object) -> str | None:
    return " ".join(item.lower().split()) if isinstance(item, str) else None


def from_condition(condition: Condition) -> AnyExpr:
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


def _build_membership(column: Expression, values: list[object], *, is_in: bool) -> AnyExpr:
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
        case Name() | Column():
            return Expression(name)
        case [*path]:
            return Expression(Name(tuple(str(part) for part in path)))
        case _:
            raise AssertionError(f"not the name of a column: {name!r}")
