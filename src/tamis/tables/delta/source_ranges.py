"""Which values of a column can be in a row for which a predicate is TRUE: a few ranges, as narrow as can be told.

`x >= 5` is a range as it stands. `year(ts) = 2024` is one because `year` keeps the order: its ends are found by
bisection, which asks the same kernels that rows are evaluated with, so there is no inverse of any function to write.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError
from tamis.expr.evaluate import Evaluator, can_evaluate, physical_value
from tamis.expr.functions import monotone_argument
from tamis.expr.nodes import Call, Column, Expr, Literal, transform
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like
from tamis.expr.temporal import SECONDS_PER_DAY, days_of
from tamis.parquet.old_calendar import beyond_old, first_new
from tamis.types import UNITS_PER_SECOND, integer_range, is_text

Range = tuple[Literal | None, Literal | None]
"""No smaller than the first, no larger than the second; None: without such an end."""

_PROBES = 256

_MOST_SEARCHES = 16
"""So many items of a list are looked up by bisection; of more, only the smallest and the largest."""


def source_of(leaf: Expr) -> Column | None:
    """The one column that a comparison, a list, or a test of a prefix is about."""
    match leaf:
        case Call("=" | "<" | "<=" | ">" | ">=" | "<=>" | "in", (value, *items)):
            return _column_of(value) if all(isinstance(item, Literal) for item in items) else None
        case Call("is_null" | "is_not_null", (Column() as column,)):
            return column
        case Call("startswith" | "like", (Column() as column, Literal(), *_)):
            return column
        case _:
            return None


def _column_of(value: Expr) -> Column | None:
    while isinstance(value, Call):
        monotone = monotone_argument(value)
        if monotone is None or not monotone.keeps_order:
            return None
        value = value.args[monotone.argument]
    return value if isinstance(value, Column) and value.type is not None else None


def ranges_of(leaf: Expr, column: Column) -> list[Range] | None:
    """The ranges of the column, if it may not have any value; a column without an order here has none.

    What a partition value was made of may be named by another calendar than the row: ends of long ago are moved out, as
    `tamis.parquet.old_calendar` derives.
    """
    found = _ranges_of(leaf, column)
    if found is None or column.type is None or not _may_be_old(column.type):
        return found
    return [(_beyond_old(low, up=False), _beyond_old(high, up=True)) for low, high in found]


def _may_be_old(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_date32(data_type) or (pa.types.is_timestamp(data_type) and data_type.tz is not None))


def _beyond_old(end: Literal | None, *, up: bool) -> Literal | None:
    if end is None or end.value >= first_new(end.type):
        return end
    counts = pa.array([end.value], pa.int32() if pa.types.is_date32(end.type) else pa.int64())
    moved = beyond_old(counts.view(end.type), up=up)[0]
    return Literal(physical_value(moved[0]), end.type) if moved[0].is_valid else None


def _ranges_of(leaf: Expr, column: Column) -> list[Range] | None:
    if not (_is_counted(column.type) or is_text(column.type)):
        return None
    match leaf:
        case Call("in", (value, *items)):
            present = [item for item in items if isinstance(item, Literal) and not item.is_null]
            if value == column:
                return [(item, item) for item in present]
            if len(present) > _MOST_SEARCHES:
                ordered = sorted(present, key=lambda item: item.value)
                return _both(_searched(">=", value, ordered[0], column), _searched("<=", value, ordered[-1], column))
            found = [_compared("=", value, item, column) for item in present]
            return None if any(each is None for each in found) else [each for each in found if each is not None]
        case Call("=" | "<" | "<=" | ">" | ">=" | "<=>" as operator, (value, Literal() as item)) if not item.is_null:
            one = _compared("=" if operator == "<=>" else operator, value, item, column)
            return None if one is None else [one]
        case Call("like", (_, Literal(value=str() as pattern))):
            parsed = parse_like(pattern, DEFAULT_ESCAPE)
            start = Literal(parsed.prefix, column.type)
            return [(start, start if parsed.is_exact else None)]
        case Call("startswith", (_, Literal(value=str()) as prefix)):
            return [(prefix, None)]
        case _:
            return None


def prefix_of(leaf: Expr) -> str | None:
    """What every text starts with for which a test of a prefix is TRUE."""
    match leaf:
        case Call("startswith", (Column(), Literal(value=str() as prefix))):
            return prefix
        case Call("like", (Column(), Literal(value=str() as pattern))):
            return parse_like(pattern, DEFAULT_ESCAPE).prefix
        case _:
            return None


def intersected(one: list[Range] | None, other: list[Range] | None) -> list[Range] | None:
    """The ranges that are in both; of two long lists only the shorter, which is no less."""
    if one is None or other is None:
        return one if other is None else other
    if len(one) > 1 and len(other) > 1:
        return min(one, other, key=len)
    pairs = [(_tighter(a[0], b[0], max), _tighter(a[1], b[1], min)) for a in one for b in other]
    return [(low, high) for low, high in pairs if low is None or high is None or low.value <= high.value]


def _tighter(one: Literal | None, other: Literal | None, choose: Callable[..., Any]) -> Literal | None:
    if one is None or other is None:
        return one if other is None else other
    chosen: Literal = choose(one, other, key=lambda literal: literal.value)
    return chosen


def _both(one: Range | None, other: Range | None) -> list[Range] | None:
    return intersected(None if one is None else [one], None if other is None else [other])


def _compared(operator: str, value: Expr, item: Literal, column: Column) -> Range | None:
    if value != column:
        return _searched(operator, value, item, column)
    # Between two neighbours of a type that counts there is nothing.
    step = 1 if _is_counted(column.type) else 0
    match operator:
        case "=":
            return item, item
        case "<":
            return None, _moved(item, -step)
        case "<=":
            return None, item
        case ">":
            return _moved(item, step), None
        case _:
            return item, None


def _moved(item: Literal, step: int) -> Literal:
    return Literal(item.value + step, item.type) if step else item


def _is_counted(data_type: pa.DataType | None) -> bool:
    """Whether values are whole numbers inside: those themselves, dates and timestamps."""
    return data_type is not None and bool(
        pa.types.is_integer(data_type) or pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type)
    )


# --- Bisection --------------------------------------------------------------------------------------------------------


def _searched(operator: str, value: Expr, item: Literal, column: Column) -> Range | None:
    """The range of the column in which a function of it that keeps the order compares so; None where it fails."""
    if not _is_counted(column.type) or not can_evaluate(value):
        return None
    smallest, largest = _domain(column.type)
    try:
        lower = (
            _first(">" if operator == ">" else ">=", value, item, column) if operator in ("=", ">", ">=") else smallest
        )
        after = _first(">=" if operator == "<" else ">", value, item, column) if operator in ("=", "<", "<=") else None
    except EvaluationError:
        return None
    # Beyond the domain the order still holds: what is not reached at its end is reached, if at all, after it.
    start = largest if lower is None else lower
    end = None if after is None else max(after - 1, smallest)
    return (
        None if start == smallest else Literal(start, column.type),
        None if end is None else Literal(end, column.type),
    )


def _first(operator: str, value: Expr, item: Literal, column: Column) -> int | None:
    """The first value of the column, in its domain, from which on the function of it compares so with the item."""
    probe = Column(("probe",), type=column.type)
    compared = transform(Call(operator, (value, item)), lambda node: probe if node == column else node)
    is_reached = Evaluator(compared)
    low, high = _domain(column.type)
    while True:
        # Its ends and what lies between them in equal steps: few rounds of many values cost less than many of one.
        steps = min(_PROBES, high - low)
        probes = [low + (high - low) * step // steps for step in range(steps + 1)] if steps else [low]
        counts = pa.array(probes, pa.int32() if pa.types.is_date32(column.type) else pa.int64())
        values = counts.cast(column.type) if pa.types.is_integer(column.type) else counts.view(column.type)
        place = int(pc.index(is_reached(pa.record_batch({"probe": values})), True).as_py())
        if place < 0:
            return None
        if place == 0 or probes[place] == probes[place - 1] + 1:
            return probes[place]
        low, high = probes[place - 1] + 1, probes[place]


def _domain(data_type: pa.DataType) -> tuple[int, int]:
    if pa.types.is_integer(data_type):
        return integer_range(data_type)
    first, last = days_of(1, 1, 1), days_of(9999, 12, 31)
    if pa.types.is_date32(data_type):
        return first, last
    per_day = SECONDS_PER_DAY * UNITS_PER_SECOND[data_type.unit]
    if data_type.unit == "ns":
        return -(2**62), 2**62
    return first * per_day, (last + 1) * per_day - 1
