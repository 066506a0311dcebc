"""The ranges of a column's values for which a predicate can be TRUE.

`x >= 5` is a range directly. `year(ts) = 2024` is a range because `year` is monotone: its ends are found by bisection,
which calls the same kernels that evaluate rows, so that no function needs an inverse.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError
from tamis.expr.evaluate import Evaluator, can_evaluate, to_physical_value
from tamis.expr.functions import find_monotone_argument
from tamis.expr.nodes import Call, Column, Expr, Literal, transform
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like
from tamis.expr.temporal import SECONDS_PER_DAY, days_from_date
from tamis.parquet.old_calendar import get_rebase_limit, widen_legacy_bounds
from tamis.types import UNITS_PER_SECOND, integer_range, is_text

Range = tuple[Literal | None, Literal | None]
"""An inclusive lower and upper end; None for an open end."""

_PROBES = 256

_MOST_SEARCHES = 16
"""Up to this many items of a list are searched by bisection; of longer lists only the smallest and the largest."""


def find_source_column(leaf: Expr) -> Column | None:
    """Return the only column of a comparison, an IN list, a NULL test or a prefix test; None for other predicates."""
    match leaf:
        case Call("=" | "<" | "<=" | ">" | ">=" | "<=>" | "in", (value, *items)):
            return _find_column(value) if all(isinstance(item, Literal) for item in items) else None
        case Call("is_null" | "is_not_null", (Column() as column,)):
            return column
        case Call("startswith" | "like", (Column() as column, Literal(), *_)):
            return column
        case _:
            return None


def _find_column(value: Expr) -> Column | None:
    while isinstance(value, Call):
        monotone = find_monotone_argument(value)
        if monotone is None or not monotone.keeps_order:
            return None
        value = value.args[monotone.argument]
    return value if isinstance(value, Column) and value.type is not None else None


def find_ranges(leaf: Expr, column: Column) -> list[Range] | None:
    """Return the ranges of the column; None where it may have any value, or where its type is not supported.

    A partition value may have been derived in another calendar than that of the row: ends before the Gregorian calendar
    are moved out, as `tamis.parquet.old_calendar` derives.
    """
    found = _find_ranges(leaf, column)
    if found is None or column.type is None or not _may_be_old(column.type):
        return found
    return [(_move_end(low, up=False), _move_end(high, up=True)) for low, high in found]


def _may_be_old(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date32(data_type) or (pa.types.is_timestamp(data_type) and data_type.tz is not None))


def _move_end(end: Literal | None, *, up: bool) -> Literal | None:
    if end is None or end.value >= get_rebase_limit(end.type):
        return end
    counts = pa.array([end.value], pa.int32() if pa.types.is_date32(end.type) else pa.int64())
    moved = widen_legacy_bounds(counts.view(end.type), up=up)[0]
    return Literal(to_physical_value(moved[0]), end.type) if moved[0].is_valid else None


def _find_ranges(leaf: Expr, column: Column) -> list[Range] | None:
    if not (_is_integral(column.type) or is_text(column.type)):
        return None
    match leaf:
        case Call("in", (value, *items)):
            present = [item for item in items if isinstance(item, Literal) and not item.is_null]
            if value == column:
                return [(item, item) for item in present]
            if len(present) > _MOST_SEARCHES:
                ordered = sorted(present, key=lambda item: item.value)
                return _intersect_two(
                    _search_range(">=", value, ordered[0], column), _search_range("<=", value, ordered[-1], column)
                )
            found = [_to_range("=", value, item, column) for item in present]
            return None if any(each is None for each in found) else [each for each in found if each is not None]
        case Call("=" | "<" | "<=" | ">" | ">=" | "<=>" as operator, (value, Literal() as item)) if not item.is_null:
            one = _to_range("=" if operator == "<=>" else operator, value, item, column)
            return None if one is None else [one]
        case Call("like", (_, Literal(value=str() as pattern))):
            parsed = parse_like(pattern, DEFAULT_ESCAPE)
            start = Literal(parsed.prefix, column.type)
            return [(start, start if parsed.is_exact else None)]
        case Call("startswith", (_, Literal(value=str()) as prefix)):
            return [(prefix, None)]
        case _:
            return None


def find_prefix(leaf: Expr) -> str | None:
    """Return the prefix of all strings for which a prefix test is TRUE; None for other predicates."""
    match leaf:
        case Call("startswith", (Column(), Literal(value=str() as prefix))):
            return prefix
        case Call("like", (Column(), Literal(value=str() as pattern))):
            return parse_like(pattern, DEFAULT_ESCAPE).prefix
        case _:
            return None


def intersect_ranges(one: list[Range] | None, other: list[Range] | None) -> list[Range] | None:
    """Return the intersection of two lists of ranges; of two long lists the shorter one, which contains it."""
    if one is None or other is None:
        return one if other is None else other
    if len(one) > 1 and len(other) > 1:
        return min(one, other, key=len)
    pairs = [(_choose_tighter(a[0], b[0], max), _choose_tighter(a[1], b[1], min)) for a in one for b in other]
    return [(low, high) for low, high in pairs if low is None or high is None or low.value <= high.value]


def _choose_tighter(one: Literal | None, other: Literal | None, choose: Callable[..., Any]) -> Literal | None:
    if one is None or other is None:
        return one if other is None else other
    chosen: Literal = choose(one, other, key=lambda literal: literal.value)
    return chosen


def _intersect_two(one: Range | None, other: Range | None) -> list[Range] | None:
    return intersect_ranges(None if one is None else [one], None if other is None else [other])


def _to_range(operator: str, value: Expr, item: Literal, column: Column) -> Range | None:
    if value != column:
        return _search_range(operator, value, item, column)
    # An integral type has no values between two neighbours.
    step = 1 if _is_integral(column.type) else 0
    match operator:
        case "=":
            return item, item
        case "<":
            return None, _move(item, -step)
        case "<=":
            return None, item
        case ">":
            return _move(item, step), None
        case _:
            return item, None


def _move(item: Literal, step: int) -> Literal:
    return Literal(item.value + step, item.type) if step else item


def _is_integral(data_type: pa.DataType | None) -> bool:
    """Whether values are stored as integers: integers, dates and timestamps."""
    return data_type is not None and bool(
        pa.types.is_integer(data_type) or pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)
    )


# --- Bisection --------------------------------------------------------------------------------------------------------


def _search_range(operator: str, value: Expr, item: Literal, column: Column) -> Range | None:
    """Search the range of the column in which a monotone function of it satisfies the comparison; None on an error."""
    if not _is_integral(column.type) or not can_evaluate(value):
        return None
    smallest, largest = _get_domain(column.type)
    try:
        lower = (
            _find_first(">" if operator == ">" else ">=", value, item, column)
            if operator in ("=", ">", ">=")
            else smallest
        )
        after = (
            _find_first(">=" if operator == "<" else ">", value, item, column) if operator in ("=", "<", "<=") else None
        )
    except EvaluationError:
        return None
    # The function is monotone beyond the domain too: a value not reached at the end can only be reached after it.
    start = largest if lower is None else lower
    end = None if after is None else max(after - 1, smallest)
    return (
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
        return integer_range(data_type)
    first, last = days_from_date(1, 1, 1), days_from_date(9999, 12, 31)
    if pa.types.is_date32(data_type):
        return first, last
    per_day = SECONDS_PER_DAY * UNITS_PER_SECOND[data_type.unit]
    if data_type.unit == "ns":
        return -(2**62), 2**62
    return first * per_day, (last + 1) * per_day - 1
