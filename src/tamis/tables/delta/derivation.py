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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError, ExpressionError
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator, evaluate_constant, is_supported, to_physical_value
from tamis.expr.functions import type_of
from tamis.expr.kernels import to_arrow_array
from tamis.expr.nodes import Call, Column, Expr, Literal, transform
from tamis.expr.temporal import SECONDS_PER_DAY, date_from_days
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

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
        """Apply the call to a value; None where the result is unknown, NULL, or a string that does not sort like its
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
        """Whether the source's value alone determines the partition value, in whatever time zone it was written."""
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
        """Return the distinct partition values of source values; None where one of them is unknown."""
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
    from tamis.expr.sql import parse_sql

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
    """Return a time that many seconds later; dates move by whole days. None where the result is out of range."""
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
