"""Partition transforms: what a partition value p = f(x) says about its source column x, and what a filter on x says
about p.

*Preimage.* Every row of a file has the partition value of the file. So p bounds x, and the pruning rules for bounds
apply without further rules for predicates:

| transform              | v                       | x is in                                       | null v           |
|------------------------|-------------------------|-----------------------------------------------|------------------|
| identity               | any                     | [v, v]                                        | x is always NULL |
| year, month, day, hour | periods since 1970      | the first to the last instant of the period   | x is always NULL |
| truncate[w]            | a number                | [v, v + w - 1], in units of the last digit    | x is always NULL |
| truncate[w]            | a string shorter than w | [v, v]                                        | x is always NULL |
| truncate[w]            | a string                | [v, the successor of all strings that start   | x is always NULL |
|                        |                         | with v]                                       |                  |
| bucket[n]              | a number                | no bounds                                     | x is always NULL |
| void, unknown          |                         | unknown                                       | unknown          |

A non-null v means that x is never NULL. For a range of values, as in manifest summaries, the smallest value gives the
lower bound and the largest the upper bound. truncate(x) can overflow and wrap to the largest values of the type. If
that is possible, the lower bound is unknown.

Old writers rounded times before 1970 towards 1970, so a period up to number 0 may contain values of the previous one.

*Projection.* A predicate on x gives one on p. A `DerivedColumn` says what f is; Iceberg's transforms (where bounds of x
are not enough) and Delta's generated columns are both derived columns. If a filter allows only the values of x in
[lo, hi], every matching row has

    f(lo) <= p <= f(hi)        where f keeps order

- A list of values maps value by value: `x IN (5, 6)` is TRUE only in the buckets of 5 and 6. Buckets keep no order, and
  hold other values too, so that nothing else follows for them.
- A range maps to a range of one calendar part only within one period of the next larger part. With columns for `year`,
  `month`, `day` the order is that of the tuple: `year > 2023 OR (year = 2023 AND month >= 11)`.
- The first characters of a string decide whether it starts with a prefix. So if they are at least as many as those of
  the prefix, the partition value decides, and `NOT LIKE 'ab%'` skips a file whose strings all start so.
- Where the filter itself contains f(x), the partition column replaces it: `date(x) <> …` becomes `p <> …`.
- x IS NULL implies p IS NULL. Where an empty string is NULL as a partition value, a predicate that holds for the empty
  string keeps NULL too.

AND and OR compose; an operand without an implied predicate leaves an OR without one. `project_predicate` returns an
implied predicate; `project_answers` refines the answers for a node of a predicate, so that NOT composes too. An unknown
transform has no bounds and no projection, and keeps every file.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from itertools import takewhile
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.datetime_text import SECONDS_PER_DAY
from tamis.expr.evaluate import Evaluator, can_evaluate, evaluate_constant, to_physical_value
from tamis.expr.functions.kernels import find_evaluation_type
from tamis.expr.functions.table import FUNCTIONS, find_pattern, type_of
from tamis.expr.nodes import (
    FALSE,
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    and_,
    find_columns,
    fold,
    is_logic,
    or_,
    transform,
    walk,
)
from tamis.expr.patterns import LikePattern, find_successor_of_prefix
from tamis.skipping.answers import Answers, all_of
from tamis.skipping.column_ranges import ValueRange, find_ranges, is_integral, unite_ranges
from tamis.skipping.rewrite import answer_predicate
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

_TRANSFORM = re.compile(r"(identity|void|year|month|day|hour|bucket|truncate)(?:\[(\d{1,10})\])?")
TIMES = ("year", "month", "day", "hour")
UNKNOWN = "unknown"
_SECONDS_PER_HOUR = 3600
_MAX_LONG = 2**63 - 1
_MAX_DIGITS = 38
_MAX_WIDTH = 2**31 - 1

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Transform:
    """A partition transform; an unsupported one is `unsupported`."""

    kind: str
    width: int = 0
    """The number of buckets, or the truncation width."""

    @staticmethod
    def parse(text: str) -> Transform:
        """
        >>> Transform.parse("bucket[16]"), Transform.parse("day"), Transform.parse("zorder[3]").kind
        (Transform(kind='bucket', width=16), Transform(kind='day', width=0), 'unknown')
        """
        match = _TRANSFORM.fullmatch(text.strip().lower())
        if match is None:
            return Transform(UNKNOWN)
        kind, width = match[1], int(match[2] or 0)
        has_width = kind in ("bucket", "truncate")
        return Transform(kind, width) if has_width == bool(width) and width <= _MAX_WIDTH else Transform(UNKNOWN)

    def result_type(self, source: pa.DataType) -> pa.DataType | None:
        """Return the type of partition values for a source type; None if the transform does not support it."""
        is_time = pa.types.is_timestamp(source)
        is_integer = source in (pa.int32(), types.LONG)
        match self.kind:
            case "identity":
                return source
            case "year" | "month" | "day" if is_time or pa.types.is_date(source):
                return pa.int32()
            case "hour" if is_time:
                return pa.int32()
            case "truncate" if pa.types.is_decimal(source):
                # Rounding down may add a digit.
                return pa.decimal128(_MAX_DIGITS, source.scale)
            case "truncate" if is_integer or is_text(source) or pa.types.is_binary(source):
                return source
            case "bucket" if not pa.types.is_floating(source) and not pa.types.is_boolean(source):
                return pa.int32() if types.is_ordered(source) else None
            case _:
                return None

    @property
    def preserves_null(self) -> bool:
        """Return whether a partition value is null exactly if the source is."""
        return self.kind not in ("void", UNKNOWN)

    def lower(self, values: pa.Array, source: pa.DataType, largest: pa.Array | None = None) -> pa.Array | None:
        """Return a lower bound of the source, for partition values from `values` to `largest` (None: equal)."""
        match self.kind:
            case "identity":
                return values
            case "truncate":
                return _compute_truncated_lower(values, values if largest is None else largest, self.width, source)
            case "year" | "month" | "day" | "hour":
                return _compute_period_bounds(self.kind, values, source)[0]
            case _:
                return None

    def upper(self, values: pa.Array, source: pa.DataType) -> pa.Array | None:
        """Return an upper bound of the source, for partition values up to `values`."""
        match self.kind:
            case "identity":
                return values
            case "truncate":
                return _compute_truncated_upper(values, self.width, source)
            case "year" | "month" | "day" | "hour":
                return _compute_period_bounds(self.kind, values, source)[1]
            case _:
                return None

    def derive(self, column: Column, source: Column) -> DerivedColumn | None:
        """Return what projects predicates on the source to partition values; None where bounds say as much."""

        def find_buckets(values: pa.Array, up: bool) -> pa.Array:
            try:
                found = compute_buckets(values.cast(source.type), self.width)
            except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
                found = None  # the column cannot have one of these values
            return pa.array([None] * len(values) if found is None else found, pa.int32())

        def truncate(values: pa.Array, up: bool) -> pa.Array:
            slice_values = pc.utf8_slice_codeunits if is_text(source.type) else pc.binary_slice
            return slice_values(values, 0, self.width)

        if self.kind == "bucket":
            return DerivedColumn(column, source, (find_buckets,), keeps_order=False)
        if self.kind == "truncate" and (is_text(source.type) or is_bytes(source.type)):
            return DerivedColumn(column, source, (truncate,), prefix=self.width)
        return None


# --- Times ------------------------------------------------------------------------------------------------------------


def _compute_period_bounds(kind: str, values: pa.Array, source: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """Return the first and the last instant of periods; null if they are out of the type's range."""
    is_known = np.asarray(values.is_valid())
    periods = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    is_exact = kind == "day" and pa.types.is_date(source)
    first = periods if is_exact else np.where(periods <= 0, periods - 1, periods)
    starts, reaches = _compute_period_start(kind, first, source)
    ends, reach = _compute_period_start(kind, periods + 1, source)
    return _make_times(starts, is_known & reaches, source), _make_times(ends - 1, is_known & reach, source)


def _compute_period_start(kind: str, periods: Numbers, source: pa.DataType) -> tuple[Numbers, Bits]:
    """Return the first instant of each period in the unit of the source, and whether it is in range."""
    if kind == "hour":
        return _multiply(periods, _SECONDS_PER_HOUR * UNITS_PER_SECOND[source.unit])
    days = periods
    if kind != "day":
        unit = "Y" if kind == "year" else "M"
        days = periods.astype(f"datetime64[{unit}]").astype("datetime64[D]").astype(np.int64)
    if pa.types.is_date(source):
        return days, np.abs(days) < 2**31
    return _multiply(days, SECONDS_PER_DAY * UNITS_PER_SECOND[source.unit])


def _multiply(values: Numbers, factor: int) -> tuple[Numbers, Bits]:
    fits = np.abs(values) <= _MAX_LONG // factor
    return np.where(fits, values, 0) * factor, fits


def _make_times(counts: Numbers, is_known: Bits, source: pa.DataType) -> pa.Array:
    if pa.types.is_date(source):
        return pa.array(np.where(is_known, counts, 0).astype(np.int32), mask=~is_known).view(source)
    return pa.array(counts, mask=~is_known).view(source)


# --- Truncated values -------------------------------------------------------------------------------------------------


def _compute_truncated_lower(values: pa.Array, largest: pa.Array, width: int, source: pa.DataType) -> pa.Array:
    if is_text(source) or is_bytes(source):
        return values
    if pa.types.is_decimal(source):
        wide = pa.decimal256(50, source.scale)
        # The type has no values beyond its range.
        return pc.max_element_wise(
            values.cast(wide), pc.negate(_get_largest_decimal(source, wide)), skip_nulls=False
        ).cast(source)
    return pc.if_else(_may_have_overflowed(values, largest, width, source), pa.scalar(None, source), values)


def _may_have_overflowed(values: pa.Array, largest: pa.Array, width: int, source: pa.DataType) -> pa.Array:
    """Return whether a range of partition values may include overflowed ones.

    The smallest numbers of a type overflow when they are rounded down, to the other end of the type. A column that is a
    long now may have been an int when the file was written.
    """
    found = pa.scalar(False)
    for kind in {pa.int32(), source}:
        end = types.get_integer_range(kind)[1]
        reaches = pc.greater(largest, pa.scalar(end - (width - 1), types.LONG))
        found = pc.or_kleene(found, pc.and_kleene(reaches, pc.less_equal(values, pa.scalar(end, types.LONG))))
    return found


def _compute_truncated_upper(values: pa.Array, width: int, source: pa.DataType) -> pa.Array:
    if is_text(source) or is_bytes(source):
        return _compute_prefix_upper(values, width)
    if pa.types.is_decimal(source):
        wide = pa.decimal256(50, source.scale)
        last = pa.scalar(_make_decimal(width - 1, source.scale), wide)
        moved = pc.add(values.cast(wide), last).cast(wide)
        return pc.min_element_wise(moved, _get_largest_decimal(source, wide), skip_nulls=False).cast(source)
    room = pa.scalar(types.get_integer_range(source)[1] - (width - 1), types.LONG)
    return pc.add(pc.min_element_wise(values.cast(types.LONG), room, skip_nulls=False), width - 1).cast(source)


def _get_largest_decimal(source: pa.Decimal128Type, wide: pa.DataType) -> pa.Scalar:
    return pa.scalar(_make_decimal(10**source.precision - 1, source.scale), wide)


def _make_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((0, tuple(map(int, str(unscaled))), -scale))


def _compute_prefix_upper(values: pa.Array, width: int) -> pa.Array:
    """Return values shorter than the truncation width unchanged, others as the successor of all with that prefix."""
    lengths = pc.utf8_length(values) if is_text(values.type) else pc.binary_length(values)
    is_truncated = pc.fill_null(pc.greater_equal(lengths, width), False)
    if not pc.any(is_truncated, min_count=0).as_py():
        return values
    # Distinct values are as many as partitions, mostly fewer than files.
    encoded = pc.dictionary_encode(values)
    after = [None if each is None else find_successor_of_prefix(each) for each in encoded.dictionary.to_pylist()]
    return pc.if_else(is_truncated, pa.array(after, values.type).take(encoded.indices), values)


# --- Projection of predicates -----------------------------------------------------------------------------------------

Step = Callable[[pa.Array, bool], pa.Array]
"""Maps lower bounds (or upper ones, if the second argument is True) to bounds of its results; null is unknown."""


@dataclass(frozen=True)
class DerivedColumn:
    """A partition column p = f(x): what f is made of, and what it does to order, equality, NULL and empty strings."""

    column: Column
    source: Column
    steps: tuple[Step, ...]
    """The functions that f applies, one after the other. A step that widens bounds stands for what is not known."""
    expression: Expr | None = None
    """f(x) in the language of filters."""
    is_exact: bool = False
    """Whether the expression has one value for all writers, so that the column may replace it in a filter."""
    part: str | None = None
    """The calendar part that f extracts from the result of the steps, as in `month(x)`."""
    keeps_order: bool = True
    """Whether x <= y implies f(x) <= f(y). If not, as for buckets, only equal values have known results."""
    prefix: int = 0
    """The number of characters, if f returns the first ones of a string."""
    is_formatted: bool = False
    """Whether it is a time as a string, in which years beyond 9999 start with a plus and so sort first."""
    empty_is_null: bool = False
    """Whether an empty string, or binary, is NULL as a partition value."""

    def compute_bounds(self, ends: Sequence[Literal | None], *, up: bool) -> pa.Array:
        """Return lower (with `up`, upper) bounds of the results of the steps; null where an end is open or unknown."""
        data_type = find_evaluation_type(self.source.type or types.NULL)
        values = [None if end is None or not _is_in_range(end.value, data_type) else end.value for end in ends]
        found = pa.array(values, data_type)
        for step in self.steps:
            found = step(found, up)
        return found


def _is_in_range(value: object, data_type: pa.DataType) -> bool:
    """Return whether a type holds a value. It lacks the one after its largest, and some literals of wider types."""
    if not is_integral(data_type) or not isinstance(value, int):
        return True
    kind = data_type if pa.types.is_integer(data_type) else pa.int32() if data_type.bit_width == 32 else pa.int64()
    smallest, largest = types.get_integer_range(kind)
    return smallest <= value <= largest


def make_call_step(call: Call, argument: int) -> Step:
    """Return the step that computes a call from one of its arguments; a result that fails is unknown."""
    value = Column(("value",), type=type_of(call.args[argument]))
    args = tuple(value if position == argument else arg for position, arg in enumerate(call.args))
    evaluate = Evaluator(Call(call.function, args))

    def apply(values: pa.Array, up: bool) -> pa.Array:
        try:
            return evaluate(pa.record_batch({"value": values}))
        except EvaluationError:
            if len(values) > 1:
                return pa.concat_arrays([apply(values.slice(row, 1), up) for row in range(len(values))])
            return pa.nulls(1, find_evaluation_type(type_of(call) or types.NULL))

    return apply


def project_predicate(
    predicate: Expr, derived: Sequence[DerivedColumn], partition_columns: Collection[tuple[str, ...]]
) -> Expr:
    """Return what a bound, normalised predicate implies for partition columns, which have these paths."""

    def project(node: Expr, args: tuple[Expr, ...]) -> Expr:
        match node:
            case Call("and", parts):
                leaves = [part for part in parts if not _is_junction(part)]
                return _join([*_project_leaves(leaves, derived, partition_columns), *args])
            case Call("or"):
                return TRUE if TRUE in args else or_(*args)
            case _:
                return _join(_project_leaves([node], derived, partition_columns))

    return fold(predicate, project, _get_junctions)


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


def _join(parts: Iterable[Expr]) -> Expr:
    return and_(*(part for part in dict.fromkeys(parts) if part != TRUE))


def project_answers(node: Expr, known: Answers, fields: Collection[DerivedColumn]) -> Answers:
    """Return the answers for a node of a predicate, refined by what it implies for derived columns."""
    if is_logic(node):
        return known
    columns = find_columns(node)
    for field in fields:
        if [column.path for column in columns] != [field.source.path]:
            continue
        test = project_prefix(node, field.column, field.prefix)
        implied = _join(_project_leaves([node], [replace(field, source=columns[0])], ())) if test is None else test[0]
        if implied != TRUE:
            more = answer_predicate(implied)
            is_equivalent = test is not None and test[1]
            may_be_false = all_of(known.may_be_false, more.may_be_false) if is_equivalent else known.may_be_false
            known = Answers(all_of(known.may_be_true, more.may_be_true), may_be_false, known.may_be_null)
    return known


def _project_leaves(
    leaves: Sequence[Expr], derived: Sequence[DerivedColumn], partition_columns: Collection[tuple[str, ...]]
) -> list[Expr]:
    """Return the predicates that follow from leaves which all hold."""
    found = [_substitute(leaf, derived, partition_columns) for leaf in leaves]
    for source in dict.fromkeys(each.source for each in derived):
        columns = [each for each in derived if each.source == source]
        own = [leaf for leaf in leaves if set(find_columns(leaf)) == {source}]
        tests = [project_prefix(leaf, each.column, each.prefix) for leaf in own for each in columns]
        found += [test[0] for test in tests if test is not None]
        allowed = find_ranges([leaf for leaf in own if find_pattern(leaf) is None], source)
        if not allowed.ranges:
            # Without any value left, no row satisfies the leaves.
            found += [Call("is_null", (each.column,)) for each in columns] if allowed.may_be_null else [FALSE]
        elif not allowed.may_be_null:
            if Call("is_not_null", (source,)) in own:
                found += [Call("is_not_null", (each.column,)) for each in columns if not each.empty_is_null]
            is_bounded = allowed.ranges[0].lower is not None or allowed.ranges[-1].upper is not None
            if is_bounded and source.type is not None and not pa.types.is_floating(source.type):
                found += _project_ranges(allowed.ranges, columns)
    return found


def _substitute(leaf: Expr, derived: Sequence[DerivedColumn], partition_columns: Collection[tuple[str, ...]]) -> Expr:
    """Return a predicate with partition columns instead of their expressions; TRUE if it has other columns too."""
    columns: dict[Expr, Expr] = {each.expression: each.column for each in derived if each.expression and each.is_exact}
    found = transform(leaf, lambda node: columns.get(node, node))
    if found is leaf or not {each.path for each in find_columns(found)} <= set(partition_columns):
        return TRUE
    # A function without a row might return another value for each call.
    is_known = all(node.function in FUNCTIONS for node in walk(found) if isinstance(node, Call))
    return _keep_empty(found, derived) if is_known else TRUE


def _keep_empty(predicate: Expr, derived: Iterable[DerivedColumn]) -> Expr:
    """Return a predicate that also keeps NULL in those columns in which it may hold for an empty string."""
    used = find_columns(predicate)
    columns = [each.column for each in derived if each.empty_is_null and each.column in used]
    return or_(predicate, *(Call("is_null", (each,)) for each in columns if _may_hold_for_empty(predicate, each)))


def _may_hold_for_empty(predicate: Expr, column: Column) -> bool:
    empty = Literal(b"" if is_bytes(column.type) else "", column.type)
    constant = transform(predicate, lambda node: empty if node == column else node)
    if find_columns(constant) or not can_evaluate(constant):
        return True
    try:
        return evaluate_constant(constant).value is True
    except EvaluationError:
        return True


# --- Projection of prefixes -------------------------------------------------------------------------------------------


def project_prefix(call: Expr, column: Column, width: int) -> tuple[Call, bool] | None:
    """Return what a prefix test implies for the first `width` characters, and whether it is equivalent; None for other
    calls, and without a width.

    The prefix is a prefix of these characters, or they are a prefix of it.

    >>> test = Call("startswith", (Column(("s",), type=types.STRING), Literal("abcd", types.STRING)))
    >>> project_prefix(test, Column(("p",), type=types.STRING), 3)
    (Call<p = 'abc'>, False)
    """
    match call, find_pattern(call):
        case Call(_, (Column(), *_)), LikePattern(prefix=str() as prefix) as pattern if prefix and width:
            operator = "=" if len(prefix) >= width else "startswith"
            projected = Call(operator, (column, Literal(prefix[:width], types.STRING)))
            return projected, pattern.is_prefix and len(prefix) <= width
        case _:
            return None


# --- Projection of ranges ---------------------------------------------------------------------------------------------

_MAX_RANGES = 100
"""Above this many ranges, neighbours are merged: each one costs two comparisons in every partition."""

_BEFORE_DIGITS = Literal("0", types.STRING)


def _project_ranges(ranges: Sequence[ValueRange], columns: Sequence[DerivedColumn]) -> list[Expr]:
    closed = [
        (_close_end(each.lower, int(not each.includes_lower)), _close_end(each.upper, -int(not each.includes_upper)))
        for each in ranges
    ]
    # Between two neighbours there is no value, and no row.
    ends = [(low, high) for low, high in closed if low is None or high is None or low == high or low.value < high.value]
    if not ends:
        return []
    lows, highs = zip(*ends, strict=True)
    by_time: dict[Expr, list[DerivedColumn]] = {}
    for each in columns:
        if each.part is not None and isinstance(each.expression, Call):
            by_time.setdefault(each.expression.args[0], []).append(each)
    found = [_project_to_parts(lows, highs, group) for group in by_time.values()]
    return found + [_project_to_column(lows, highs, each) for each in columns if each.part is None]


def _close_end(end: Literal | None, step: int) -> Literal | None:
    # An integral type has no values between two neighbours.
    return Literal(end.value + step, end.type) if end is not None and step and is_integral(end.type) else end


def _project_to_column(lows: Sequence[Literal | None], highs: Sequence[Literal | None], derived: DerivedColumn) -> Expr:
    column = derived.column
    if not derived.keeps_order and (None in lows or lows != highs):
        return TRUE
    lower = _to_literals(derived.compute_bounds(lows, up=False))
    if not derived.keeps_order and None in lower:
        return TRUE
    upper = _to_literals(derived.compute_bounds(highs, up=True)) if derived.keeps_order else lower
    # Many values may have one result: a hundred thousand of them are in sixteen buckets.
    united = unite_ranges(ValueRange(*each) for each in dict.fromkeys(zip(lower, upper, strict=True)))
    points = [each.lower for each in united if each.is_single and each.lower is not None]
    parts: list[Expr] = [Call("in", (column, *points))] if points else []
    for low, high in _group([(each.lower, each.upper) for each in united if not each.is_single]):
        above: Expr = TRUE if low is None else Call(">=", (column, low))
        if low is not None and high is None and derived.is_formatted:
            above = or_(above, Call("<", (column, _BEFORE_DIGITS)))
        parts.append(_join([above, TRUE if high is None else Call("<=", (column, high))]))
    return TRUE if TRUE in parts else _keep_empty(or_(*parts), [derived])


def _to_literals(values: pa.Array) -> list[Literal | None]:
    distinct = pc.dictionary_encode(values)
    literals = [Literal(to_physical_value(each), values.type) for each in distinct.dictionary]
    return [None if index is None else literals[index] for index in distinct.indices.to_pylist()]


_End = TypeVar("_End")


def _group(ranges: Sequence[tuple[_End, _End]]) -> list[tuple[_End, _End]]:
    """Return the same ranges, which are in order, or, where there are many, those around neighbouring ones."""
    size = -(-len(ranges) // _MAX_RANGES) or 1
    groups = [ranges[start : start + size] for start in range(0, len(ranges), size)]
    return [(group[0][0], group[-1][1]) for group in groups]


# Year, month, day, hour: together they have the order of a tuple. A part without a column is known only where it is the
# same at both ends of a range: days from the 5th to the 9th of one month are `day BETWEEN 5 AND 9`.


def _project_to_parts(
    lows: Sequence[Literal | None], highs: Sequence[Literal | None], derived: Sequence[DerivedColumn]
) -> Expr:
    columns = {each.part: each.column for each in reversed(derived) if each.part is not None}
    parts = max(((*(FUNCTIONS[part].larger_parts or ()), part) for part in columns), key=len)
    lower = _extract_parts(derived[0].compute_bounds(lows, up=False), parts)
    upper = _extract_parts(derived[0].compute_bounds(highs, up=True), parts)
    ranges = list(dict.fromkeys(zip(lower, upper, strict=True)))
    found = [_compare_tuples([columns.get(part) for part in parts], *each) for each in _group(ranges)]
    return TRUE if TRUE in found else or_(*dict.fromkeys(found))


def _extract_parts(values: pa.Array, parts: Sequence[str]) -> list[tuple[Literal, ...] | None]:
    time = Column(("time",), type=values.type)
    extracted = [_to_literals(make_call_step(Call(part, (time,)), 0)(values, False)) for part in parts]
    return [None if None in each else each for each in zip(*extracted, strict=True)]


def _compare_tuples(
    columns: Sequence[Column | None], low: tuple[Literal, ...] | None, high: tuple[Literal, ...] | None
) -> Expr:
    """Return the predicate that a tuple of columns, of which some are unknown, is between two tuples."""
    equal = 0
    if low is not None and high is not None:
        while equal < len(columns) and low[equal] == high[equal]:
            equal += 1
    rest = list(takewhile(lambda column: column is not None, columns[equal:]))
    found: list[Expr] = [
        Call("=", (column, value)) for column, value in zip(columns[:equal], low or (), strict=False) if column
    ]
    for operator, end in ((">", low), ("<", high)):
        if end is not None and rest:
            found.append(_compare_tuple(operator, [each for each in rest if each], end[equal:]))
    return _join(found)


def _compare_tuple(operator: str, columns: Sequence[Column], values: Sequence[Literal]) -> Expr:
    """Return the predicate that the tuple of columns is >= (for `>`) or <= (for `<`) the tuple of values."""
    (*larger, (column, value)) = zip(columns, values, strict=False)
    found: Expr = Call(f"{operator}=", (column, value))
    for column, value in reversed(larger):
        found = or_(Call(operator, (column, value)), and_(Call("=", (column, value)), found))
    return found


# --- Buckets ----------------------------------------------------------------------------------------------------------


def compute_buckets(values: pa.Array, count: int) -> list[int] | None:
    """Return the Iceberg bucket of each value; None for types without buckets. Values must not be null."""
    # Only Iceberg tables have buckets, and pyiceberg depends on this library.
    import mmh3

    encoded = _encode_for_hash(values)
    return None if encoded is None else [(mmh3.hash(each) & 0x7FFFFFFF) % count for each in encoded]


def _encode_for_hash(values: pa.Array) -> list[bytes] | None:
    """Return the bytes that Iceberg hashes: 8 of an integer or a time, the fewest possible of a decimal."""
    data_type = values.type
    if types.is_text(data_type) or types.is_bytes(data_type):
        found: list[bytes] = values.cast(types.BINARY).to_pylist()
        return found
    if pa.types.is_decimal128(data_type):
        content = values.buffers()[1].to_pybytes()
        starts = range(16 * values.offset, 16 * (values.offset + len(values)), 16)
        unscaled = [int.from_bytes(content[start : start + 16], "little", signed=True) for start in starts]
        return [each.to_bytes((each ^ (each >> 127)).bit_length() // 8 + 1, "big", signed=True) for each in unscaled]
    if pa.types.is_timestamp(data_type) or pa.types.is_time64(data_type):
        # Nanoseconds are truncated to microseconds before hashing.
        units = UNITS_PER_SECOND[data_type.unit] // UNITS_PER_SECOND["us"]
        if not units:
            return None
        counts = np.floor_divide(values.view(types.LONG).to_numpy(), units).tolist()
    elif pa.types.is_date32(data_type) or pa.types.is_signed_integer(data_type):
        counts = values.cast(pa.int32()).to_pylist() if pa.types.is_date32(data_type) else values.to_pylist()
    else:
        return None
    return [each.to_bytes(8, "little", signed=True) for each in counts]
