"""The values that a predicate leaves to each column: for generated columns, and for sources that look up ranges.

    (day >= 5 AND day < 9 OR day = 12) AND level IN ('a', 'b')
    ─▶  day: [5, 9), [12, 12], not NULL;  level: ['a', 'a'], ['b', 'b'], not NULL

The answer is a superset: every row for which the predicate is TRUE has values within the ranges, but not every row
with such values satisfies the predicate. So a source may skip what is outside, and the predicate is still tested.

`year(ts) = 2024` is a range of `ts` because `year` is monotone: the ends are found by bisection, which calls the
kernels that evaluate rows, so that no function needs an inverse.

Ends of ranges are *cuts* between values: one directly before a value, one directly after it. Then intersections and
unions only compare cuts, and whether an end is included needs no cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError
from tamis.expr.datetime_text import SECONDS_PER_DAY, days_from_date
from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.functions.table import (
    FUNCTIONS,
    Nulls,
    find_monotone_argument,
    find_pattern,
    is_comparison,
    mirror,
)
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, find_columns, fold, transform
from tamis.expr.normalise import normalise, sort_key
from tamis.expr.patterns import find_successor_of_prefix
from tamis.types import UNITS_PER_SECOND, get_integer_range, is_ordered


@dataclass(frozen=True, slots=True)
class ValueRange:
    """A range of values. An end of None is open: there is no smallest, or no largest value. NaN is the largest number.

    Values are in the physical form of literals: `to_arrow_scalar` converts them.
    """

    lower: Literal | None = None
    upper: Literal | None = None
    includes_lower: bool = True
    includes_upper: bool = True

    @property
    def is_single(self) -> bool:
        """Return whether the range has exactly one value, which is `lower`."""
        return self.lower is not None and self.lower == self.upper

    def contains(self, value: object) -> bool:
        """Return whether a value, in the physical form of literals, is in the range."""
        return _cut_before(self) <= (0, sort_key(value), 0) and (0, sort_key(value), 1) <= _cut_after(self)

    def __str__(self) -> str:
        from tamis.expr.sql.printer import to_display_sql

        ends = ("" if end is None else to_display_sql(end) for end in (self.lower, self.upper))
        left = "[" if self.includes_lower and self.lower is not None else "("
        right = "]" if self.includes_upper and self.upper is not None else ")"
        return f"{left}{', '.join(ends)}{right}"


@dataclass(frozen=True, slots=True)
class ColumnRanges:
    """The values that a column may have: `ranges` from the smallest to the largest, without overlaps, and NULL."""

    ranges: tuple[ValueRange, ...]
    may_be_null: bool

    @property
    def values(self) -> tuple[Literal, ...] | None:
        """The values, if they are finitely many; None if some range has more than one."""
        found = tuple(each.lower for each in self.ranges if each.is_single and each.lower is not None)
        return found if len(found) == len(self.ranges) else None

    def contains(self, value: object) -> bool:
        """Return whether the column may have a value, in the physical form of literals; None is NULL."""
        return self.may_be_null if value is None else any(each.contains(value) for each in self.ranges)

    def __str__(self) -> str:
        parts = [*map(str, self.ranges), *(["NULL"] if self.may_be_null else [])]
        return ", ".join(parts) or "nothing"


def column_ranges(predicate: Expr) -> dict[Column, ColumnRanges]:
    """Return the values that the columns of a predicate may have where it is TRUE; a superset.

    A column that is not in the result may have any value, NULL included. The predicate must be bound, as those that
    connectors receive are: comparisons of a column with literals of other types constrain nothing.
    """
    found = fold(normalise(predicate), _combine, _get_parts)
    if found is None:
        return {column: ColumnRanges((), may_be_null=False) for column in find_columns(predicate)}
    return {column: each for column, each in found.items() if each != _ANYTHING}


def find_ranges(leaves: Iterable[Expr], column: Column) -> ColumnRanges:
    """Return the values that a column may have where all of some leaves of a normalised predicate are TRUE."""
    found = _intersect_all(map(_read_leaf, leaves))
    return ColumnRanges((), may_be_null=False) if found is None else found.get(column, _ANYTHING)


_Found: TypeAlias = "Mapping[Column, ColumnRanges] | None"
"""What is known of columns where a predicate is TRUE; None if it is never TRUE."""

_ALL = (ValueRange(),)
_ANYTHING = ColumnRanges(_ALL, may_be_null=True)
_PRESENT = ColumnRanges(_ALL, may_be_null=False)
_NULL_ONLY = ColumnRanges((), may_be_null=True)


def _get_parts(node: Expr) -> tuple[Expr, ...]:
    """Return the parts of AND and OR; other nodes are leaves."""
    return node.args if isinstance(node, Call) and node.function in ("and", "or") else ()


def _combine(node: Expr, parts: tuple[_Found, ...]) -> _Found:
    match node:
        case Call("and"):
            return _intersect_all(parts)
        case Call("or"):
            return _unite_all(parts)
        case _:
            return _read_leaf(node)


def _intersect_all(parts: Iterable[_Found]) -> _Found:
    found: dict[Column, ColumnRanges] = {}
    for part in parts:
        if part is None:
            return None
        for column, each in part.items():
            known = found.get(column, _ANYTHING)
            ranges = each.ranges if known is _ANYTHING else _intersect(known.ranges, each.ranges)
            found[column] = ColumnRanges(ranges, known.may_be_null and each.may_be_null)
            if not ranges and not found[column].may_be_null:
                return None
    return found


def _unite_all(parts: Iterable[_Found]) -> _Found:
    possible = [part for part in parts if part is not None]
    if not possible:
        return None
    # A column that one alternative does not constrain may have any value.
    shared = [column for column in possible[0] if all(column in part for part in possible)]
    return {
        column: ColumnRanges(
            unite_ranges([each for part in possible for each in part[column].ranges]),
            any(part[column].may_be_null for part in possible),
        )
        for column in shared
    }


# --- Leaves -----------------------------------------------------------------------------------------------------------


def _read_leaf(leaf: Expr) -> _Found:
    if leaf == FALSE or (isinstance(leaf, Literal) and leaf.is_null):
        return None
    present: dict[Column, ColumnRanges] = dict.fromkeys(_find_columns_with_values(leaf), _PRESENT)
    constrained = _read_constraint(leaf)
    if constrained is None:
        return present
    column, ranges = constrained
    return {**present, column: ranges} if ranges.ranges or ranges.may_be_null else None


def _find_columns_with_values(leaf: Expr) -> frozenset[Column]:
    """Return the columns without which a leaf is NULL, and so not TRUE."""

    def combine(node: Expr, args: tuple[frozenset[Column], ...]) -> frozenset[Column]:
        match node:
            case Column():
                return frozenset((node,))
            case Call():
                known = FUNCTIONS.get(node.function)
                propagates = known is not None and known.nulls is Nulls.PROPAGATES
                return frozenset().union(*args) if propagates else frozenset()
            case _:
                return frozenset()

    return fold(leaf, combine)


def _read_constraint(leaf: Expr) -> tuple[Column, ColumnRanges] | None:
    """Return the column of a leaf that compares it with literals of its type, and the values for which it is TRUE."""
    match leaf:
        case Column(type=kind) if kind is not None and pa.types.is_boolean(kind):
            return leaf, _to_present(_make_points([Literal(True, kind)]))
        case Call("not", (Column(type=kind) as column,)) if kind is not None and pa.types.is_boolean(kind):
            return column, _to_present(_make_points([Literal(False, kind)]))
        case Call("is_null", (Column() as column,)):
            return column, _NULL_ONLY
        case Call("is_not_null", (Column() as column,)):
            return column, _PRESENT
        case Call(_, (Literal(), Column())) if is_comparison(leaf):
            return _read_constraint(mirror(leaf))
        case Call("<=>", (Column() as column, Literal(value=None))):
            return column, _NULL_ONLY
        case Call(("=" | "<>" | "<" | "<=" | ">" | ">=" | "<=>") as function, (Column() as column, Literal() as item)):
            return (column, _to_present(_compare(function, item))) if _is_of_type(column, [item]) else None
        case Call("in", (Column() as column, *items)):
            # NULL in a list makes no row TRUE.
            literals = [item for item in items if isinstance(item, Literal) and not item.is_null]
            is_known = all(isinstance(item, Literal) for item in items) and _is_of_type(column, literals)
            return (column, _to_present(_make_points(literals))) if is_known else None
        case Call("not", (Call("in", (Column() as column, *items)),)):
            literals = [item for item in items if isinstance(item, Literal)]
            if any(item.is_null for item in literals):
                # The value may be the unknown one.
                return column, _to_present(())
            if len(literals) < len(items) or not _is_of_type(column, literals):
                return None
            return column, _to_present(_exclude(_make_points(literals)))
        case Call("=" | "<" | "<=" | ">" | ">=" | "<=>", (Call(), Literal(value=value))) if value is not None:
            return _invert(leaf)
        case Call("in", (Call(), *items)) if all(isinstance(item, Literal) for item in items):
            return _invert(leaf)
        case Call(_, (Column() as column, Literal() as item, *_)) if (pattern := find_pattern(leaf)) is not None:
            prefix = Literal(pattern.prefix, item.type)
            ranges = _make_points([prefix]) if pattern.is_exact else _start_with(prefix)
            return (column, _to_present(ranges)) if _is_of_type(column, [item]) else None
        case _:
            return None


def _is_of_type(column: Column, items: Iterable[Literal]) -> bool:
    """Return whether a column and literals have one ordered type: then they compare as their physical values do."""
    kind = column.type
    if kind is None or not is_ordered(kind):
        return False
    return all(
        not item.is_null and (item.type == kind or (pa.types.is_integer(kind) and pa.types.is_integer(item.type)))
        for item in items
    )


def _to_present(ranges: tuple[ValueRange, ...]) -> ColumnRanges:
    return ColumnRanges(ranges, may_be_null=False)


def _compare(function: str, item: Literal) -> tuple[ValueRange, ...]:
    match function:
        case "=" | "<=>":
            return _make_points([item])
        case "<>":
            return _exclude(_make_points([item]))
        case "<" | "<=":
            return (ValueRange(None, item, includes_upper=function == "<="),)
        case _:
            return (ValueRange(item, None, includes_lower=function == ">="),)


def _make_points(items: Iterable[Literal]) -> tuple[ValueRange, ...]:
    return unite_ranges([ValueRange(item, item) for item in items])


def _start_with(prefix: Literal) -> tuple[ValueRange, ...]:
    after = find_successor_of_prefix(prefix.value)
    upper = None if after is None else Literal(after, prefix.type)
    return (ValueRange(prefix, upper, includes_upper=False),)


# --- Monotone functions -----------------------------------------------------------------------------------------------

_PROBES = 256

_MAX_SEARCHES = 16
"""Up to this many items of a list are searched by bisection; of longer lists only the smallest and the largest."""


def _invert(leaf: Call) -> tuple[Column, ColumnRanges] | None:
    """Return the column of a monotone function that a leaf compares with literals, and the values for which it may be
    TRUE; None if they are unknown."""
    value, *items = leaf.args
    column = _find_argument(value)
    if column is None or not can_evaluate(value):
        return None
    known = [item for item in items if isinstance(item, Literal) and not item.is_null]
    present = sorted(known, key=lambda item: sort_key(item.value))
    try:
        if leaf.function == "in" and len(present) > _MAX_SEARCHES:
            found = [_search_range(">=", value, present[0], column), _search_range("<=", value, present[-1], column)]
            ranges = _intersect((found[0],), (found[1],))
        else:
            operator = "=" if leaf.function in ("in", "<=>") else leaf.function
            ranges = unite_ranges([_search_range(operator, value, item, column) for item in present])
    except EvaluationError:
        return None
    return column, ColumnRanges(ranges, may_be_null=column not in _find_columns_with_values(value))


def _find_argument(value: Expr) -> Column | None:
    """Return the column of an integral type of which an expression is a function that keeps its order."""
    while isinstance(value, Call):
        monotone = find_monotone_argument(value)
        if monotone is None or not monotone.keeps_order:
            return None
        value = value.args[monotone.argument]
    return value if isinstance(value, Column) and is_integral(value.type) else None


def is_integral(data_type: pa.DataType | None) -> bool:
    """Return whether values are stored as integers: integers, dates and timestamps."""
    return data_type is not None and bool(
        pa.types.is_integer(data_type) or pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)
    )


def _search_range(operator: str, value: Expr, item: Literal, column: Column) -> ValueRange:
    """Find, by bisection, the values of the column for which a monotone function satisfies the comparison."""
    smallest, largest = _get_domain(column.type)
    lower = (
        _find_first(">" if operator == ">" else ">=", value, item, column) if operator in ("=", ">", ">=") else smallest
    )
    after = _find_first(">=" if operator == "<" else ">", value, item, column) if operator in ("=", "<", "<=") else None
    # The function is monotone beyond the domain too: a value not reached at the end can only be reached after it.
    start = largest if lower is None else lower
    end = None if after is None else max(after - 1, smallest)
    return ValueRange(
        None if start == smallest else Literal(start, column.type),
        None if end is None else Literal(end, column.type),
    )


def _find_first(operator: str, value: Expr, item: Literal, column: Column) -> int | None:
    """Return the first value of the column, in its domain, from which on the comparison holds; None if there is
    none."""
    probe = Column(("probe",), type=column.type)
    compared = transform(Call(operator, (value, item)), lambda node: probe if node == column else node)
    is_reached = Evaluator(compared)
    low, high = _get_domain(column.type)
    while True:
        # Probes both ends and equal steps between them: few rounds of many values cost less than many rounds of one.
        steps = min(_PROBES, high - low)
        probes = [low + (high - low) * step // steps for step in range(steps + 1)] if steps else [low]
        counts = pa.array(probes, pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        values = counts.cast(column.type) if pa.types.is_integer(column.type) else counts.view(column.type)
        position = int(pc.index(is_reached(pa.record_batch({"probe": values})), True).as_py())
        if position < 0:
            return None
        if position == 0 or probes[position] == probes[position - 1] + 1:
            return probes[position]
        low, high = probes[position - 1] + 1, probes[position]


def _get_domain(data_type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_integer(data_type):
        return get_integer_range(data_type)
    first, last = days_from_date(1, 1, 1), days_from_date(9999, 12, 31)
    if pa.types.is_date32(data_type):
        return first, last
    per_day = SECONDS_PER_DAY * UNITS_PER_SECOND[data_type.unit]
    if data_type.unit == "ns":
        return -(2**62), 2**62
    return first * per_day, (last + 1) * per_day - 1


# --- Sets of ranges ---------------------------------------------------------------------------------------------------

_Cut: TypeAlias = tuple[Any, ...]
"""`(0, key of a value, 0 before or 1 after it)`; `(-1,)` is before all values, `(1,)` after them."""


def _cut_before(each: ValueRange) -> _Cut:
    return (-1,) if each.lower is None else (0, sort_key(each.lower.value), 0 if each.includes_lower else 1)


def _cut_after(each: ValueRange) -> _Cut:
    return (1,) if each.upper is None else (0, sort_key(each.upper.value), 1 if each.includes_upper else 0)


def _begin(other: ValueRange, each: ValueRange) -> ValueRange:
    """Return a range that begins as the first one and ends as the second one."""
    return ValueRange(other.lower, each.upper, other.includes_lower, each.includes_upper)


def _intersect(left: tuple[ValueRange, ...], right: tuple[ValueRange, ...]) -> tuple[ValueRange, ...]:
    found = []
    one = other = 0
    while one < len(left) and other < len(right):
        begins = max(left[one], right[other], key=_cut_before)
        ends = min(left[one], right[other], key=_cut_after)
        if _cut_before(begins) < _cut_after(ends):
            found.append(_begin(begins, ends))
        if ends is left[one]:
            one += 1
        else:
            other += 1
    return tuple(found)


def unite_ranges(ranges: Iterable[ValueRange]) -> tuple[ValueRange, ...]:
    """Return the same values as ranges in order that do not touch each other."""
    found: list[ValueRange] = []
    for each in sorted(ranges, key=_cut_before):
        if not _cut_before(each) < _cut_after(each):
            continue
        if found and _cut_before(each) <= _cut_after(found[-1]):
            found[-1] = _begin(found[-1], max(found[-1], each, key=_cut_after))
        else:
            found.append(each)
    return tuple(found)


def _exclude(points: tuple[ValueRange, ...]) -> tuple[ValueRange, ...]:
    """Return the ranges between some single values."""
    ends = [None, *(each.lower for each in points), None]
    pairs = pairwise(ends)
    return tuple(ValueRange(lower, upper, lower is None, upper is None) for lower, upper in pairs)
