"""Generation expressions of partition columns that are functions of one other column.

A generation expression is parsed into a chain of calls, each with one argument that is not constant:
`year(cast(ts AS date))` is `cast`, then `year`. Every call of a chain is monotone, or is a calendar field (`month`,
`day`, `hour`), which is monotone within a period. Other expressions are not used.

*Time zones.* Spark evaluates these expressions in the session's time zone, which the log does not record: two writers
may have used different zones. A local time differs from UTC by at most 18 hours, and a local time that does not exist
(a change to summer time, a day skipped at the date line) moves forward, by at most a day. So the argument of a step
that reads the local time of a timestamp is in [value − 18 h, value + 18 h]; the argument of a step that reads a date or
a timestamp_ntz *through* a timestamp (`date_format`, `date_trunc`) is in [value, value + 24 h]; and a timestamp that is
computed from a local time is in [value − 18 h, value + 18 h + 24 h]. Delta on Spark, in contrast, assumes that all
sessions have the zone of the current one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError, ExpressionError
from tamis.expr.bind import bind
from tamis.expr.datetime_text import SECONDS_PER_DAY, date_from_days, days_from_date
from tamis.expr.evaluate import Evaluator, can_evaluate, evaluate_constant, is_supported, to_physical_value
from tamis.expr.functions.kernels import to_arrow_array
from tamis.expr.functions.table import find_monotone_argument, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, transform
from tamis.expr.patterns import DEFAULT_ESCAPE, parse_like
from tamis.parquet.footer.datetime_rebase import get_rebase_limit, widen_legacy_bounds
from tamis.types import UNITS_PER_SECOND, integer_range, is_bytes, is_text

HOUR = 3600
_DAY = SECONDS_PER_DAY

Shift = tuple[int, int]
"""The seconds by which the lower and the upper end of a range move."""

_NONE: Shift = (0, 0)
_ANY_ZONE: Shift = (-18 * HOUR, 18 * HOUR)
_SKIPPED_TIME: Shift = (0, _DAY)
_ANY_INSTANT: Shift = (-18 * HOUR, 18 * HOUR + _DAY)

CALENDAR_FIELDS = ("year", "month", "day", "hour")
"""Calendar fields, from large to small: each restarts with every period of the one before it."""

_PATTERNS = ("yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyy-MM-dd-HH", "yyyy-MM-dd HH", "yyyyMM", "yyyyMMdd", "yyyyMMddHH")
"""Patterns of `date_format` whose strings sort like the times, as long as the year has four digits."""

_PATTERN_PARTS = re.compile("yyyy|MM|dd|HH")

_MOST_CHARACTERS = 2000
"""Longer expressions are ignored. Supported ones are a few calls of one column, and parsing a very long one would slow
down every plan."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a chain, and the uncertainty of its argument (`before`) and of its result (`after`)."""

    call: Call
    argument: int
    before: Shift
    after: Shift

    @property
    def is_field(self) -> bool:
        return self.call.function in CALENDAR_FIELDS[1:]

    def apply(self, value: Literal) -> Literal | None:
        """Apply the call to a value; None if the result is unknown, NULL, or a string that does not sort like its
        time."""
        if self.call.function == "date_format":
            return _format_time(value, str(getattr(self.call.args[1], "value", "")))
        args = tuple(value if position == self.argument else arg for position, arg in enumerate(self.call.args))
        try:
            if _is_date_as_text(self.call):
                return _format_time(value, "yyyy-MM-dd")
            found = evaluate_constant(Call(self.call.function, args))
        except EvaluationError:
            return None
        return None if found.is_null else found


@dataclass(frozen=True)
class DerivedColumn:
    """A generated partition column and the column that it is derived from."""

    column: Column
    source: Column
    expression: Expr
    steps: tuple[Step, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the source's value alone determines the partition value, regardless of the writer's time zone."""
        return all(step.before == step.after == _NONE for step in self.steps)

    @property
    def is_field(self) -> bool:
        return bool(self.steps) and self.steps[-1].is_field

    @property
    def field(self) -> str | None:
        """The calendar field of the source that this column is; None for another expression."""
        return (
            self.steps[0].call.function
            if len(self.steps) == 1 and self.steps[0].call.function in CALENDAR_FIELDS
            else None
        )

    @cached_property
    def is_formatted(self) -> bool:
        """Whether it is a time as a string, in which years beyond 9999 start with a plus and so sort first."""
        return any(step.call.function == "date_format" or _is_date_as_text(step.call) for step in self.steps)

    @property
    def may_be_empty(self) -> bool:
        """Whether it may be an empty string or binary, which Delta writes as NULL into partition values."""
        data_type = self.column.type or types.NULL
        return (is_text(data_type) or is_bytes(data_type)) and not self.is_formatted

    def compute_bound(self, value: Literal, side: int) -> Literal | None:
        """Return a lower (side 0) or upper (side 1) bound of the partition values of a source value; None if
        unknown."""
        return _apply_steps(self.steps, value, side)

    def compute_images(self, values: Sequence[Literal]) -> list[Literal] | None:
        """Return the distinct partition values of source values; None if one of them is unknown."""
        if self.is_formatted:
            found = [self.compute_bound(value, 0) for value in values]
        else:
            value = Column(("value",), type=self.source.type)
            expression = transform(self.expression, lambda node: value if node == self.source else node)
            try:
                results = Evaluator(expression)(pa.record_batch({"value": to_arrow_array(tuple(values))}))
            except EvaluationError:
                return None
            data_type = type_of(expression) or results.type
            found = [Literal(to_physical_value(each), data_type) for each in pc.unique(results)]
        if any(each is None or each.is_null for each in found):
            return None
        return list(dict.fromkeys(each for each in found if each is not None))

    def compute_field_input(self, value: Literal, side: int) -> Literal | None:
        """Return a bound of the time from which the last step, a calendar field, is extracted."""
        found = _apply_steps(self.steps[:-1], value, side)
        return None if found is None else shift_time(found, self.steps[-1].before[side])


def find_derived_columns(
    generated: Iterable[tuple[str, str]], schema: pa.Schema, partition_columns: Iterable[str]
) -> list[DerivedColumn]:
    """Return the partition columns whose generation expressions are supported; others are left out."""
    wanted = set(partition_columns)
    found = [_derive(name, text, schema) for name, text in generated if name in wanted]
    return [each for each in found if each is not None]


@lru_cache(maxsize=256)
def _parse(text: str) -> Expr | None:
    """Parse a generation expression; None for SQL that is not supported."""
    if len(text) > _MOST_CHARACTERS:
        return None
    # Imported here because it imports sqlglot, and few tables have generated columns.
    from tamis.expr.sql.parse import parse_sql

    try:
        return parse_sql(text)
    except ExpressionError:
        return None


def _derive(name: str, text: str, schema: pa.Schema) -> DerivedColumn | None:
    index = schema.get_field_index(name)
    if index < 0:
        return None
    parsed = _parse(text)
    if parsed is None:
        return None
    try:
        expression = bind(parsed, schema)
    except ExpressionError:
        return None
    column = Column((name,), type=schema.field(index).type)
    steps: list[Step] = []
    node = expression
    while isinstance(node, Call):
        step = _to_step(node)
        if step is None:
            return None
        steps.insert(0, step)
        node = node.args[step.argument]
    if not isinstance(node, Column) or node == column or any(step.is_field for step in steps[:-1]):
        return None
    return DerivedColumn(column, node, expression, tuple(steps)) if _has_same_type(column, expression) else None


def _has_same_type(column: Column, expression: Expr) -> bool:
    """Whether the partition column has the expression's type, or an equivalent one."""
    column_type, expression_type = column.type, _infer_type(expression)
    if column_type is None or expression_type is None:
        return False
    both_integers = pa.types.is_integer(column_type) and pa.types.is_integer(expression_type)
    both_texts = is_text(column_type) and is_text(expression_type)
    return both_integers or both_texts or bool(column_type == expression_type)


def _infer_type(expression: Expr) -> pa.DataType | None:
    if isinstance(expression, Call) and expression.function == "date_format":
        return types.STRING
    return type_of(expression)


def _to_step(call: Call) -> Step | None:
    """Convert a call to a step; None for a call that is not supported."""
    match call:
        case Call("date_format", (value, Literal(value=str() as pattern))) if pattern in _PATTERNS:
            source = type_of(value)
            return Step(call, 0, _get_uncertainty(source, through_instant=True), _NONE) if _is_time(source) else None
        case Call("month" | "day" | "hour", (value,)) if _is_time(type_of(value)) and is_supported(call):
            return Step(call, 0, _get_uncertainty(type_of(value)), _NONE)
        case Call("year" | "trunc", (value, *_)) if _is_time(type_of(value)) and is_supported(call):
            return Step(call, 0, _get_uncertainty(type_of(value)), _NONE)
        case Call("date_trunc", (_, value)) if _is_time(type_of(value)) and is_supported(call):
            return Step(call, 1, _get_uncertainty(type_of(value), through_instant=True), _ANY_INSTANT)
        case Call("substring", (_, Literal(value=0 | 1), Literal(value=int() as length))) if length > 0:
            return Step(call, 0, _NONE, _NONE) if is_supported(call) else None
        case Call("cast", (value, Literal(value=str()))):
            return _to_cast_step(call, type_of(value), type_of(call))
        case _:
            return None


def _to_cast_step(call: Call, source: pa.DataType | None, target: pa.DataType | None) -> Step | None:
    """Convert a cast that never fails or overflows in Spark; casts from strings may fail and are not supported."""
    if source is None or target is None:
        return None
    if _is_date_as_text(call) or source == target or (is_text(source) and is_text(target)):
        return Step(call, 0, _NONE, _NONE)
    if pa.types.is_signed_integer(source) and pa.types.is_signed_integer(target):
        return Step(call, 0, _NONE, _NONE) if source.bit_width <= target.bit_width else None
    if not (_is_time(source) and _is_time(target)):
        return None
    if _is_instant(source) == _is_instant(target):
        return Step(call, 0, _NONE, _NONE)
    return Step(call, 0, _ANY_ZONE, _NONE) if _is_instant(source) else Step(call, 0, _NONE, _ANY_INSTANT)


def _is_date_as_text(call: Call) -> bool:
    source = type_of(call.args[0]) if call.function == "cast" else None
    return source is not None and bool(pa.types.is_date32(source)) and is_text(type_of(call) or types.NULL)


def _is_time(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))


def _is_instant(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_timestamp(data_type)) and data_type.tz is not None


def _get_uncertainty(source: pa.DataType | None, *, through_instant: bool = False) -> Shift:
    return _ANY_ZONE if _is_instant(source) else _SKIPPED_TIME if through_instant else _NONE


# --- Values -----------------------------------------------------------------------------------------------------------


def _apply_steps(steps: Iterable[Step], value: Literal, side: int) -> Literal | None:
    found: Literal | None = value
    for step in steps:
        if found is not None:
            found = shift_time(found, step.before[side])
        if found is not None:
            found = step.apply(found)
        if found is not None:
            found = shift_time(found, step.after[side])
    return found


def shift_time(value: Literal, seconds: int) -> Literal | None:
    """Return a time that many seconds later; dates move by whole days. None if the result is out of range."""
    if seconds == 0:
        return value
    is_date = bool(pa.types.is_date32(value.type))
    moved = value.value + (seconds // _DAY if is_date else seconds * UNITS_PER_SECOND[value.type.unit])
    limit = 2**31 if is_date else 2**63
    return Literal(moved, value.type) if -limit <= moved < limit else None


def _format_time(value: Literal, pattern: str) -> Literal | None:
    """Format a time; None for years without four digits, because their strings do not sort like the times."""
    seconds = value.value * _DAY if pa.types.is_date32(value.type) else value.value // UNITS_PER_SECOND[value.type.unit]
    days, second_of_day = divmod(seconds, _DAY)
    year, month, day = date_from_days(days)
    if not 0 <= year <= 9999:
        return None
    parts = {"yyyy": f"{year:04}", "MM": f"{month:02}", "dd": f"{day:02}", "HH": f"{second_of_day // HOUR:02}"}
    return Literal(_PATTERN_PARTS.sub(lambda match: parts[match[0]], pattern), types.STRING)


# --- The ranges of a column's values for which a predicate can be TRUE ------------------------------------------------
#
# `x >= 5` is a range directly. `year(ts) = 2024` is a range because `year` is monotone: its ends are found by
# bisection, which calls the same kernels that evaluate rows, so that no function needs an inverse.

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
    """Return the ranges of the column; None if it may have any value, or if its type is not supported.

    A partition value may have been derived in another calendar than that of the row: ends before the Gregorian calendar
    are moved out, as `tamis.parquet.footer.datetime_rebase` derives.
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
    """Find, by bisection, the values of the column for which a monotone function satisfies the comparison; None on an
    error."""
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
