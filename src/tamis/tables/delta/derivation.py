"""What generation expressions do to values: a partition column that is a function of one other column.

A generation expression is read as a chain of calls, each with one argument that is not a constant:
`year(cast(ts AS date))` is `cast`, then `year`. Every call of a chain keeps the order of its argument, or is a field of
the calendar (`month`, `day`, `hour`), which keeps it within a period. Anything else says nothing here.

*Time zones.* Spark evaluates these expressions in the session's time zone, and the log does not say which that was when
a row was written: two writers may have used different ones. What is known is that a clock differs from UTC by
at most 18 hours, and that a time which a clock skips (a change to summer time, a day left out at the date line) is
moved forward, by at most a day. So a step that reads the wall clock of a timestamp is given the range
[value − 18 h, value + 18 h]; one that reads a date or a timestamp_ntz *through* a timestamp (`date_format`,
`date_trunc`) is given [value, value + 24 h]; and a timestamp made from a wall clock is in
[value − 18 h, value + 18 h + 24 h]. Delta on Spark assumes that all sessions have the zone of the current one.
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
from tamis.expr.evaluate import Evaluator, evaluate_constant, is_supported, physical_value
from tamis.expr.functions import type_of
from tamis.expr.kernels import literal_array
from tamis.expr.nodes import Call, Column, Expr, Literal, transform
from tamis.expr.temporal import SECONDS_PER_DAY, date_of
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

HOUR = 3600
_DAY = SECONDS_PER_DAY

Shift = tuple[int, int]
"""Seconds by which the lower and the upper end of a range move."""

_NONE: Shift = (0, 0)
_ANY_CLOCK: Shift = (-18 * HOUR, 18 * HOUR)
_SKIPPED_TIME: Shift = (0, _DAY)
_ANY_INSTANT: Shift = (-18 * HOUR, 18 * HOUR + _DAY)

FIELDS = ("year", "month", "day", "hour")
"""The parts of a time, each of which starts anew with the one before it."""

_PATTERNS = ("yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyy-MM-dd-HH", "yyyy-MM-dd HH", "yyyyMM", "yyyyMMdd", "yyyyMMddHH")
"""Patterns of `date_format` whose texts have the order of the times, while the year has four digits."""

_PIECES = re.compile("yyyy|MM|dd|HH")

_LONGEST = 2000
"""So many characters an expression has at most that is used: what is understood here is a few calls of one column, and
to parse texts of any length would take every plan as long as whoever wrote them likes."""


@dataclass(frozen=True, slots=True)
class Step:
    """One call of a chain, and by how much its argument and its result are uncertain."""

    call: Call
    argument: int
    before: Shift
    after: Shift

    @property
    def is_field(self) -> bool:
        return self.call.function in FIELDS[1:]

    def of(self, value: Literal) -> Literal | None:
        """The call of a value; None where it has no value, or one whose text does not have the order of its time."""
        if self.call.function == "date_format":
            return _formatted(value, str(getattr(self.call.args[1], "value", "")))
        args = tuple(value if place == self.argument else arg for place, arg in enumerate(self.call.args))
        try:
            if _is_date_as_text(self.call):
                return _formatted(value, "yyyy-MM-dd")
            found = evaluate_constant(Call(self.call.function, args))
        except EvaluationError:
            return None
        return None if found.is_null else found


@dataclass(frozen=True)
class Derived:
    """A partition column and what it is made of."""

    column: Column
    source: Column
    expression: Expr
    steps: tuple[Step, ...]

    @property
    def is_exact(self) -> bool:
        """Whether the value of the source alone decides that of the partition column, wherever it was written."""
        return all(step.before == step.after == _NONE for step in self.steps)

    @property
    def is_field(self) -> bool:
        return bool(self.steps) and self.steps[-1].is_field

    @property
    def field(self) -> str | None:
        """The part of the source's own time that this is."""
        return self.steps[0].call.function if len(self.steps) == 1 and self.steps[0].call.function in FIELDS else None

    @cached_property
    def is_formatted(self) -> bool:
        """Whether it is a time as text, in which years beyond 9999 start with a plus, and so come first."""
        return any(step.call.function == "date_format" or _is_date_as_text(step.call) for step in self.steps)

    @property
    def may_be_empty(self) -> bool:
        """Whether it may be an empty text (or no bytes), which Delta writes as NULL into partition values."""
        data_type = self.column.type or types.NULL
        return (is_text(data_type) or is_bytes(data_type)) and not self.is_formatted

    def end(self, value: Literal, side: int) -> Literal | None:
        """No smaller (side 0) or no larger (side 1) than this is what is made of a value; None for not known."""
        return _through(self.steps, value, side)

    def images(self, values: Sequence[Literal]) -> list[Literal] | None:
        """What is made of each of many values, without repetition, where that is certain; None where it is not."""
        if self.is_formatted:
            found = [self.end(value, 0) for value in values]
        else:
            value = Column(("value",), type=self.source.type)
            expression = transform(self.expression, lambda node: value if node == self.source else node)
            try:
                made = Evaluator(expression)(pa.record_batch({"value": literal_array(tuple(values))}))
            except EvaluationError:
                return None
            data_type = type_of(expression) or made.type
            found = [Literal(physical_value(each), data_type) for each in pc.unique(made)]
        if any(each is None or each.is_null for each in found):
            return None
        return list(dict.fromkeys(each for each in found if each is not None))

    def before_field(self, value: Literal, side: int) -> Literal | None:
        """The end of what the field, which is the last step, is read from."""
        found = _through(self.steps[:-1], value, side)
        return None if found is None else shifted(found, self.steps[-1].before[side])


def derived_columns(
    generated: Iterable[tuple[str, str]], schema: pa.Schema, partition_columns: Iterable[str]
) -> list[Derived]:
    """The partition columns whose generation expressions can be used; others are left out."""
    wanted = set(partition_columns)
    found = [_derived(name, text, schema) for name, text in generated if name in wanted]
    return [each for each in found if each is not None]


@lru_cache(maxsize=256)
def _parsed(text: str) -> Expr | None:
    """The expression that a text is; None for SQL that is not ours to understand: it says nothing."""
    if len(text) > _LONGEST:
        return None
    # It imports sqlglot, and few tables have generated columns.
    from tamis.expr.sql import parse_sql

    try:
        return parse_sql(text)
    except ExpressionError:
        return None


def _derived(name: str, text: str, schema: pa.Schema) -> Derived | None:
    index = schema.get_field_index(name)
    if index < 0:
        return None
    parsed = _parsed(text)
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
        step = _step(node)
        if step is None:
            return None
        steps.insert(0, step)
        node = node.args[step.argument]
    if not isinstance(node, Column) or node == column or any(step.is_field for step in steps[:-1]):
        return None
    return Derived(column, node, expression, tuple(steps)) if _holds(column, expression) else None


def _holds(column: Column, expression: Expr) -> bool:
    """Whether the partition column has values of the expression's own type, or as good as that."""
    of_column, of_expression = column.type, _result_type(expression)
    if of_column is None or of_expression is None:
        return False
    both_integers = pa.types.is_integer(of_column) and pa.types.is_integer(of_expression)
    both_texts = is_text(of_column) and is_text(of_expression)
    return both_integers or both_texts or bool(of_column == of_expression)


def _result_type(expression: Expr) -> pa.DataType | None:
    if isinstance(expression, Call) and expression.function == "date_format":
        return types.STRING
    return type_of(expression)


def _step(call: Call) -> Step | None:
    """The step that a call is, or None for one that is not understood."""
    match call:
        case Call("date_format", (value, Literal(value=str() as pattern))) if pattern in _PATTERNS:
            source = type_of(value)
            return Step(call, 0, _clock(source, through_instant=True), _NONE) if _is_time(source) else None
        case Call("month" | "day" | "hour", (value,)) if _is_time(type_of(value)) and is_supported(call):
            return Step(call, 0, _clock(type_of(value)), _NONE)
        case Call("year" | "trunc", (value, *_)) if _is_time(type_of(value)) and is_supported(call):
            return Step(call, 0, _clock(type_of(value)), _NONE)
        case Call("date_trunc", (_, value)) if _is_time(type_of(value)) and is_supported(call):
            return Step(call, 1, _clock(type_of(value), through_instant=True), _ANY_INSTANT)
        case Call("substring", (_, Literal(value=0 | 1), Literal(value=int() as length))) if length > 0:
            return Step(call, 0, _NONE, _NONE) if is_supported(call) else None
        case Call("cast", (value, Literal(value=str()))):
            return _cast_step(call, type_of(value), type_of(call))
        case _:
            return None


def _cast_step(call: Call, source: pa.DataType | None, target: pa.DataType | None) -> Step | None:
    """Casts that Spark never fails or wraps on; a cast of a text is not one of them."""
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
    return Step(call, 0, _ANY_CLOCK, _NONE) if _is_instant(source) else Step(call, 0, _NONE, _ANY_INSTANT)


def _is_date_as_text(call: Call) -> bool:
    source = type_of(call.args[0]) if call.function == "cast" else None
    return source is not None and bool(pa.types.is_date32(source)) and is_text(type_of(call) or types.NULL)


def _is_time(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))


def _is_instant(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_timestamp(data_type)) and data_type.tz is not None


def _clock(source: pa.DataType | None, *, through_instant: bool = False) -> Shift:
    return _ANY_CLOCK if _is_instant(source) else _SKIPPED_TIME if through_instant else _NONE


# --- Values -----------------------------------------------------------------------------------------------------------


def _through(steps: Iterable[Step], value: Literal, side: int) -> Literal | None:
    found: Literal | None = value
    for step in steps:
        if found is not None:
            found = shifted(found, step.before[side])
        if found is not None:
            found = step.of(found)
        if found is not None:
            found = shifted(found, step.after[side])
    return found


def shifted(value: Literal, seconds: int) -> Literal | None:
    """A time so many seconds later; dates move by whole days. None beyond what its type holds."""
    if seconds == 0:
        return value
    is_date = bool(pa.types.is_date32(value.type))
    moved = value.value + (seconds // _DAY if is_date else seconds * UNITS_PER_SECOND[value.type.unit])
    limit = 2**31 if is_date else 2**63
    return Literal(moved, value.type) if -limit <= moved < limit else None


def _formatted(value: Literal, pattern: str) -> Literal | None:
    """A time as text; None for years that do not have four digits, because their texts sort elsewhere."""
    seconds = value.value * _DAY if pa.types.is_date32(value.type) else value.value // UNITS_PER_SECOND[value.type.unit]
    days, second_of_day = divmod(seconds, _DAY)
    year, month, day = date_of(days)
    if not 0 <= year <= 9999:
        return None
    parts = {"yyyy": f"{year:04}", "MM": f"{month:02}", "dd": f"{day:02}", "HH": f"{second_of_day // HOUR:02}"}
    return Literal(_PIECES.sub(lambda piece: parts[piece[0]], pattern), types.STRING)
