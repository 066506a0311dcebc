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

*Projection.* Where bounds of x are not enough, a predicate on x gives one on p:

- `x = 5` is TRUE only in the bucket of 5, and `x IN (5, 6)` only in the buckets of 5 and 6. The projection says nothing
  more, because a bucket holds other values too.
- The first characters of a string decide whether it starts with a prefix. So if the truncation width is at least the
  length of the prefix, the partition value decides, and `NOT LIKE 'ab%'` skips a file whose strings all start so.
- Truncation keeps the order of strings and bytes: x >= 'ac' only if truncated x is not below truncated 'ac'. As a bound
  of x, the truncated value 'ab' extends to 'ac' itself, because there is no last string before 'ac'; so the bound alone
  would not rule it out.

Projections refine the answers for a node of the predicate. They hold in addition to the answers from bounds, and are
combined with them through AND, OR and NOT. An unknown transform has no bounds and no projection, and keeps every file.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.datetime_text import SECONDS_PER_DAY
from tamis.expr.functions.kernels import to_arrow_array
from tamis.expr.functions.table import find_pattern
from tamis.expr.nodes import NULL, Call, Column, Expr, Literal
from tamis.expr.patterns import LikePattern, find_successor_of_prefix
from tamis.skipping import answers
from tamis.skipping.answers import Answers, all_of
from tamis.skipping.atoms import answer_call
from tamis.skipping.ranges import compute_range
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


@dataclass(frozen=True, slots=True)
class TransformedColumn:
    """A column of partition values, and the column from which a transform computes them."""

    transform: Transform
    source: Column
    column: Column

    @property
    def is_projectable(self) -> bool:
        """Return whether predicates on the source say more about the column than its bounds do."""
        is_string = is_text(self.source.type) or is_bytes(self.source.type)
        return self.transform.kind == "bucket" or (self.transform.kind == "truncate" and is_string)


def project_answers(node: Expr, known: Answers, fields: Collection[TransformedColumn]) -> Answers:
    """Return the answers for a node of a predicate, refined by what it implies for transformed columns."""
    for field in fields:
        more = _project_call(node, field)
        if more is not None:
            known = Answers(
                _combine(known.may_be_true, more.may_be_true),
                _combine(known.may_be_false, more.may_be_false),
                _combine(known.may_be_null, more.may_be_null),
            )
    return known


def _combine(one: Expr, other: Expr) -> Expr:
    return one if other == NULL else all_of(one, other)


def _project_call(node: Expr, field: TransformedColumn) -> Answers | None:
    match node:
        case Call(_, (Column(path=path), *_)) if path == field.source.path:
            if field.transform.kind == "bucket":
                return _project_bucket(node, field)
            return _project_prefix(node, field) or _project_truncation(node, field)
        case _:
            return None


def _list_compared_values(call: Call) -> list[Literal] | None:
    """Return the literals, one of them equal to the column if the call is TRUE; None for other calls."""
    match call:
        case Call("=" | "<=>", (_, Literal() as item)):
            items: Sequence[Expr] = (item,)
        case Call("in", (_, *rest)):
            items = rest
        case _:
            return None
    values = [item for item in items if isinstance(item, Literal) and not item.is_null]
    has_null = any(isinstance(item, Literal) and item.is_null for item in items)
    if len(values) + has_null < len(items) or not values or (call.function == "<=>" and has_null):
        return None
    return values


def _project_bucket(call: Call, field: TransformedColumn) -> Answers | None:
    values = _list_compared_values(call)
    if values is None:
        return None
    try:
        buckets = compute_buckets(to_arrow_array(tuple(values)).cast(field.source.type), field.transform.width)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None  # the column cannot have this value
    if buckets is None:
        return None
    literals = tuple(Literal(bucket, pa.int32()) for bucket in sorted(set(buckets)))
    found = _answer_call(Call("in", (field.column, *literals)))
    return _keep_true(found)


def _project_truncation(call: Call, field: TransformedColumn) -> Answers | None:
    match call:
        case Call(">" | ">=", (_, Literal(value=str() | bytes() as value))):
            found = _answer_call(Call(">=", (field.column, _truncate(value, field))))
        case _:
            values = _list_compared_values(call)
            if values is None or not all(isinstance(each.value, str | bytes) for each in values):
                return None
            literals = dict.fromkeys(_truncate(each.value, field) for each in values)
            found = _answer_call(Call("in", (field.column, *literals)))
    return _keep_true(found)


def _truncate(value: str | bytes, field: TransformedColumn) -> Literal:
    return Literal(value[: field.transform.width], field.column.type)


def _project_prefix(call: Call, field: TransformedColumn) -> Answers | None:
    found = project_prefix(call, field.column, field.transform.width)
    if found is None:
        return None
    predicate, is_equivalent = found
    return _answer_call(predicate) if is_equivalent else _keep_true(_answer_call(predicate))


def project_prefix(call: Expr, column: Column, width: int) -> tuple[Call, bool] | None:
    """Return what a prefix test implies for the first `width` characters, and whether it is equivalent; None for other
    calls.

    The prefix is a prefix of these characters, or they are a prefix of it.

    >>> test = Call("startswith", (Column(("s",), type=types.STRING), Literal("abcd", types.STRING)))
    >>> project_prefix(test, Column(("p",), type=types.STRING), 3)
    (Call<p = 'abc'>, False)
    """
    match call, find_pattern(call):
        case Call(_, (Column(), *_)), LikePattern(prefix=str() as prefix) as pattern if prefix:
            operator = "=" if len(prefix) >= width else "startswith"
            projected = Call(operator, (column, Literal(prefix[:width], types.STRING)))
            return projected, pattern.is_prefix and len(prefix) <= width
        case _:
            return None


def _keep_true(found: Answers) -> Answers:
    """Return the answers of a predicate that is TRUE wherever another one is, as answers of that one."""
    return Answers(found.may_be_true, answers.UNKNOWN.may_be_false, answers.UNKNOWN.may_be_null)


def _answer_call(call: Call) -> Answers:
    known = tuple((answers.UNKNOWN, compute_range(arg, ())) for arg in call.args)
    return answer_call(call, known)[0]


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
