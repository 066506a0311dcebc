"""Partition predicates from generated columns: a filter on `ts` implies one on a partition column `date(ts)`.

For a partition column p = f(x) and a filter that allows only the values of x in [lo, hi], every matching row has

    f(lo) <= p <= f(hi)        where f is monotone (for time zones see below)

so this predicate can prune partitions, before any statistics are read. Nothing more is concluded:

- A list of values maps value by value. A range maps to a range of one calendar field only within one period of the next
  larger field: days from the 5th to the 9th of one month are `day BETWEEN 5 AND 9`. With columns for `year`, `month`,
  `day`, `hour` the order is that of the tuple: `year > 2023 OR (year = 2023 AND month >= 11)`.
- Where the filter itself contains f(x), the partition column replaces it: `date(ts) <> …` becomes `p <> …`.
- x IS NULL implies p IS NULL. An empty string is NULL as a partition value, so a predicate that holds for the empty
  string keeps NULL too.
- Formatted times sort like times from year 0 to 9999. Later years start with `+`, which sorts before all digits: a
  lower bound without an upper one also keeps strings below `'0'`.

AND and OR compose; an operand without an implied predicate leaves an OR without one.

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
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError, ExpressionError
from tamis.expr.bind import bind
from tamis.expr.datetime_text import SECONDS_PER_DAY, date_from_days
from tamis.expr.evaluate import Evaluator, can_evaluate, evaluate_constant, is_supported, to_physical_value
from tamis.expr.functions.kernels import to_arrow_array
from tamis.expr.functions.table import FUNCTIONS, find_pattern, type_of
from tamis.expr.nodes import (
    FALSE,
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    Unbound,
    and_,
    find_columns,
    fold,
    or_,
    split_conjuncts,
    transform,
    walk,
)
from tamis.expr.normalise import normalise
from tamis.parquet.footer.datetime_rebase import get_rebase_limit, widen_legacy_bounds
from tamis.skipping.column_ranges import ValueRange, find_ranges, is_integral, unite_ranges
from tamis.skipping.transforms import project_prefix
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

_MAX_RANGES = 100
"""Above this many ranges, neighbours are merged: each range costs an evaluation of the expression at both ends."""

_BEFORE_DIGITS = Literal("0", types.STRING)

Range = tuple[Literal | None, Literal | None]
"""An inclusive lower and upper end; None for an open end."""


def derive_partition_predicates(
    predicate: Expr,
    generated: Mapping[str, str],
    schema: pa.Schema,
    partition_columns: Collection[str],
    *,
    collated: Collection[tuple[str, ...]] = (),
) -> list[Expr]:
    """Return predicates on partition columns that hold for every row for which a bound, normalised predicate is TRUE.

    `generated` holds the generation expressions (SQL) by column name. `collated` holds the paths of columns with a
    collation, which are not used. The result is bound to the schema. It is empty if nothing is implied.
    """
    derived = [
        each
        for each in find_derived_columns(generated.items(), schema, partition_columns)
        if each.source.path not in collated and each.column.path not in collated
    ]
    if not derived:
        return []
    known = frozenset((name,) for name in partition_columns)

    def imply(node: Expr, args: tuple[Expr, ...]) -> Expr:
        match node:
            case Call("and", parts):
                leaves = [part for part in parts if not _is_junction(part)]
                return _make_conjunction([*_imply_from_leaves(leaves, derived, known), *args])
            case Call("or"):
                return TRUE if TRUE in args else or_(*args)
            case _:
                return _make_conjunction(_imply_from_leaves([node], derived, known))

    found = fold(predicate, imply, _get_junctions)
    bound = normalise(bind(found, schema))
    return [part for part in split_conjuncts(bound) if part != TRUE]


def _get_junctions(node: Expr) -> tuple[Expr, ...]:
    """Return the children to fold before a node; the leaves of an AND are handled together with it."""
    match node:
        case Call("and", parts):
            return tuple(part for part in parts if _is_junction(part))
        case Call("or", parts):
            return parts
        case _:
            return ()


def _is_junction(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in ("and", "or")


def _make_conjunction(parts: Sequence[Expr]) -> Expr:
    return and_(*(part for part in dict.fromkeys(parts) if part != TRUE))


def _imply_from_leaves(
    leaves: Sequence[Expr], derived: Sequence[DerivedColumn], known: Collection[tuple[str, ...]]
) -> list[Expr]:
    """Return the predicates that follow from `leaves`, which all hold; `known` has the paths of partition columns."""
    found = [_substitute(leaf, derived, known) for leaf in leaves]
    for source in dict.fromkeys(each.source for each in derived):
        columns = [each for each in derived if each.source == source]
        own_leaves = [leaf for leaf in leaves if set(find_columns(leaf)) == {source}]
        found += [_imply_prefix_test(leaf, each) for leaf in own_leaves for each in columns]
        allowed = find_ranges([leaf for leaf in own_leaves if find_pattern(leaf) is None], source)
        if not allowed.ranges:
            # Without any value left, no row satisfies the leaves.
            found += [_make_null_test(each.column) for each in columns] if allowed.may_be_null else [FALSE]
        elif not allowed.may_be_null:
            if Call("is_not_null", (source,)) in own_leaves:
                found += [Call("is_not_null", (each.column,)) for each in columns if not each.may_be_empty]
            is_bounded = allowed.ranges[0].lower is not None or allowed.ranges[-1].upper is not None
            if is_bounded and (is_integral(source.type) or is_text(source.type)):
                # Between two neighbours there is no value, and no row.
                ranges = _close_ranges(allowed.ranges)
                found += _imply_from_ranges(ranges, columns) if ranges else []
    return found


# --- The partition column instead of its expression -------------------------------------------------------------------


def _substitute(leaf: Expr, derived: Sequence[DerivedColumn], known: Collection[tuple[str, ...]]) -> Expr:
    exact = [each for each in derived if each.is_exact]
    columns = {each.expression: each.column for each in exact}
    found = transform(leaf, lambda node: columns.get(node, node))
    used = find_columns(found)
    if found is leaf or not {each.path for each in used} <= set(known) or not _is_supported(found):
        return TRUE
    empty = [each.column for each in exact if each.column in used and _holds_for_empty(leaf, each)]
    return or_(found, *map(_make_null_test, empty))


def _is_supported(leaf: Expr) -> bool:
    """Return whether every function is supported: another one might not be deterministic."""
    return all(node.function in FUNCTIONS for node in walk(leaf) if isinstance(node, Call))


def _holds_for_empty(leaf: Expr, derived: DerivedColumn) -> bool:
    """Return whether the predicate may be TRUE for an empty string in the partition column, which is stored as NULL."""
    if not derived.may_be_empty:
        return False
    if not is_text(derived.column.type or types.NULL):
        return True
    empty = Literal("", types.STRING)
    constant = transform(leaf, lambda node: empty if node == derived.expression else node)
    if find_columns(constant) or not can_evaluate(constant):
        return True
    try:
        return evaluate_constant(constant).value is True
    except EvaluationError:
        return True


# --- NULL and prefixes ------------------------------------------------------------------------------------------------


def _make_null_test(column: Column) -> Expr:
    return Call("is_null", (column,))


def _imply_prefix_test(leaf: Expr, derived: DerivedColumn) -> Expr:
    """Imply a predicate from a prefix test, for a substring from the start, which is a truncated string."""
    match derived.expression:
        case Call("substring", (Column(), _, Literal(value=int() as length))):
            found = project_prefix(leaf, derived.column, length)
            return TRUE if found is None else found[0]
        case _:
            return TRUE


# --- Ranges -----------------------------------------------------------------------------------------------------------


def _imply_from_ranges(ranges: list[Range], columns: Sequence[DerivedColumn]) -> list[Expr]:
    field_columns = _find_field_columns(columns)
    found = [_imply_for_tuple(ranges, field_columns)] if len(field_columns) > 1 else []
    for each in columns:
        if len(field_columns) < 2 or each not in field_columns:
            found.append(_imply_for_column(ranges, each))
    return found


def _imply_for_column(ranges: list[Range], derived: DerivedColumn) -> Expr:
    if derived.is_exact and all(low is not None and low == high for low, high in ranges):
        return _make_in_list([low for low, _ in ranges if low is not None], derived)
    return _make_ranges_test(derived, [_map_range(each, derived) for each in _group_ranges(ranges)])


def _make_in_list(values: list[Literal], derived: DerivedColumn) -> Expr:
    """Return `p IN (…)` with the images of single values."""
    images = derived.compute_images(values)
    if images is None:
        return TRUE
    is_empty = derived.may_be_empty and any(not image.value for image in images)
    return or_(Call("in", (derived.column, *images)), *([_make_null_test(derived.column)] if is_empty else []))


def _map_range(given: Range, derived: DerivedColumn) -> Range:
    low, high = given
    if derived.is_field and not _is_in_one_period(given, derived):
        return None, None
    return (
        None if low is None else derived.compute_bound(low, 0),
        None if high is None else derived.compute_bound(high, 1),
    )


def _is_in_one_period(given: Range, derived: DerivedColumn) -> bool:
    """Return whether both ends are in the same year (for months), month (for days) or day (for hours)."""
    low, high = given
    if low is None or high is None:
        return False
    ends = derived.compute_field_input(low, 0), derived.compute_field_input(high, 1)
    field = derived.steps[-1].call.function
    larger = CALENDAR_FIELDS[: CALENDAR_FIELDS.index(field)]
    return None not in ends and _extract_fields(ends[0], larger) == _extract_fields(ends[1], larger)


def _extract_fields(value: Literal | None, fields: Sequence[str]) -> list[int] | None:
    try:
        return None if value is None else [evaluate_constant(Call(field, (value,))).value for field in fields]
    except EvaluationError:
        return None


def _make_ranges_test(derived: DerivedColumn, ranges: list[Range]) -> Expr:
    column = derived.column
    points: list[Literal] = []
    parts: list[Expr] = []
    for each in unite_ranges(ValueRange(*ends) for ends in ranges):
        low, high = each.lower, each.upper
        if low is not None and low == high:
            points.append(low)
            continue
        above: Expr = TRUE if low is None else Call(">=", (column, low))
        if low is not None and high is None and derived.is_formatted:
            above = or_(above, Call("<", (column, _BEFORE_DIGITS)))
        below: Expr = TRUE if high is None else Call("<=", (column, high))
        part = _make_conjunction([above, below])
        if part == TRUE:
            return TRUE
        if derived.may_be_empty and (low is None or low.value == ""):
            part = or_(part, _make_null_test(column))
        parts.append(part)
    if points:
        parts.append(Call("in", (column, *points)))
        if derived.may_be_empty and any(not point.value for point in points):
            parts.append(_make_null_test(column))
    return or_(*parts)


def _group_ranges(ranges: Sequence[Range]) -> list[Range]:
    """Return the same ranges, which are in order, or, where there are many, those around neighbouring ones."""
    size = -(-len(ranges) // _MAX_RANGES)
    groups = [ranges[start : start + size] for start in range(0, len(ranges), size)]
    return [(group[0][0], group[-1][1]) for group in groups]


# --- Year, month, day, hour -------------------------------------------------------------------------------------------


def _find_field_columns(columns: Sequence[DerivedColumn]) -> list[DerivedColumn]:
    """Return the columns that are year, month, day and hour of the source, up to the first that is missing."""
    by_field = {each.field: each for each in reversed(columns)}
    found: list[DerivedColumn] = []
    for field in CALENDAR_FIELDS:
        if field not in by_field:
            break
        found.append(by_field[field])
    return found


def _imply_for_tuple(ranges: list[Range], columns: list[DerivedColumn]) -> Expr:
    names = [each.column for each in columns]
    parts = [_make_tuple_range(names, *_map_to_tuples(given, columns)) for given in _group_ranges(ranges)]
    return TRUE if TRUE in parts else or_(*dict.fromkeys(parts))


def _map_to_tuples(given: Range, columns: list[DerivedColumn]) -> tuple[list[Literal] | None, list[Literal] | None]:
    found: list[list[Literal] | None] = []
    for side, end in enumerate(given):
        values = [None if end is None else each.compute_bound(end, side) for each in columns]
        found.append(None if None in values else [value for value in values if value is not None])
    return found[0], found[1]


def _make_tuple_range(columns: list[Column], low: list[Literal] | None, high: list[Literal] | None) -> Expr:
    equal = 0
    if low is not None and high is not None:
        while equal < len(columns) and low[equal] == high[equal]:
            equal += 1
    same = [Call("=", (column, value)) for column, value in zip(columns[:equal], (low or [])[:equal], strict=True)]
    rest = columns[equal:]
    if not rest:
        return _make_conjunction(same)
    above = TRUE if low is None else _make_tuple_bound(">", rest, low[equal:])
    below = TRUE if high is None else _make_tuple_bound("<", rest, high[equal:])
    return _make_conjunction([*same, above, below])


def _make_tuple_bound(operator: str, columns: list[Column], values: list[Literal]) -> Expr:
    """Return the predicate that the tuple of columns is >= (for `>`) or <= (for `<`) the tuple of values."""
    found: Expr = Call(f"{operator}=", (columns[-1], values[-1]))
    for column, value in zip(columns[-2::-1], values[-2::-1], strict=True):
        found = or_(Call(operator, (column, value)), and_(Call("=", (column, value)), found))
    return found


# --- Generation expressions -------------------------------------------------------------------------------------------

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

_MAX_CHARACTERS = 2000
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
        """Return whether the source's value alone determines the partition value, in every time zone of a writer."""
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
        """Return whether it is a time as a string, in which years beyond 9999 start with a plus and so sort first."""
        return any(step.call.function == "date_format" or _is_date_as_text(step.call) for step in self.steps)

    @property
    def may_be_empty(self) -> bool:
        """Return whether it may be an empty string or binary, which Delta writes as NULL into partition values."""
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
def _parse(text: str) -> Unbound | None:
    """Parse a generation expression; None for SQL that is not supported."""
    if len(text) > _MAX_CHARACTERS:
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
    if not isinstance(node, Column) or node.path == column.path or any(step.is_field for step in steps[:-1]):
        return None
    return DerivedColumn(column, node, expression, tuple(steps)) if _has_same_type(column, expression) else None


def _has_same_type(column: Column, expression: Expr) -> bool:
    """Return whether the partition column has the expression's type, or an equivalent one."""
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


def _close_ranges(ranges: Iterable[ValueRange]) -> list[Range]:
    """Return ranges with their ends.

    A partition value may have been derived in another calendar than that of the row: ends before the Gregorian calendar
    are moved out, as `tamis.parquet.footer.datetime_rebase` derives.
    """
    closed = [
        (_close_end(each.lower, int(not each.includes_lower)), _close_end(each.upper, -int(not each.includes_upper)))
        for each in ranges
    ]
    return [
        (_move_end(low, up=False), _move_end(high, up=True))
        for low, high in closed
        if low is None or high is None or low.value <= high.value
    ]


def _close_end(end: Literal | None, step: int) -> Literal | None:
    # An integral type has no values between two neighbours.
    return Literal(end.value + step, end.type) if end is not None and step and is_integral(end.type) else end


def _move_end(end: Literal | None, *, up: bool) -> Literal | None:
    if end is None or not (pa.types.is_date32(end.type) or _is_instant(end.type)):
        return end
    if end.value >= get_rebase_limit(end.type):
        return end
    counts = pa.array([end.value], pa.int32() if pa.types.is_date32(end.type) else pa.int64())
    moved = widen_legacy_bounds(counts.view(end.type), up=up)[0]
    return Literal(to_physical_value(moved[0]), end.type) if moved[0].is_valid else None
