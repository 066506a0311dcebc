"""The inverse of partition transforms: the bounds of a source column that follow from a partition value.

Every row of a file has the partition value of the file. So the partition value v bounds the source column x, and the
pruning rules for bounds apply without further rules for predicates:

| transform              | v                       | x is in                                       | null v           |
|------------------------|-------------------------|-----------------------------------------------|------------------|
| identity               | any                     | [v, v]                                        | x is always NULL |
| year, month, day, hour | periods since 1970      | the first to the last instant of the period   | x is always NULL |
| truncate[w]            | a number                | [v, v + w - 1], in units of the last digit    | x is always NULL |
| truncate[w]            | a string shorter than w | [v, v]                                        | x is always NULL |
| truncate[w]            | a string                | [v, the successor of all strings that start   | x is always NULL |
|                        |                         | with v]                                       |                  |
| bucket[n]              | a number                | no bounds: see `partition_bounds`             | x is always NULL |
| void, unknown          |                         | unknown                                       | unknown          |

A non-null v means that x is never NULL. For a range of values, as in manifest summaries, the smallest value gives the
lower bound and the largest the upper bound. truncate(x) can overflow and wrap to the largest values of the type. If
that is possible, the lower bound is unknown.

Old writers rounded times before 1970 towards 1970, so a period up to number 0 may contain values of the previous one.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.patterns import find_successor_of_bytes, find_successor_of_prefix
from tamis.formats.iceberg.manifests.single_values import SECONDS_PER_DAY
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
        """Whether a partition value is null exactly if the source is."""
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
        end = types.integer_range(kind)[1]
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
    room = pa.scalar(types.integer_range(source)[1] - (width - 1), types.LONG)
    return pc.add(pc.min_element_wise(values.cast(types.LONG), room, skip_nulls=False), width - 1).cast(source)


def _get_largest_decimal(source: pa.Decimal128Type, wide: pa.DataType) -> pa.Scalar:
    return pa.scalar(_make_decimal(10**source.precision - 1, source.scale), wide)


def _make_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((0, tuple(map(int, str(unscaled))), -scale))


def _compute_prefix_upper(values: pa.Array, width: int) -> pa.Array:
    """Return values shorter than the truncation width unchanged, others as the successor of all with that prefix."""
    if is_text(values.type):
        lengths, following = pc.utf8_length(values), _compute_next_texts
    else:
        lengths, following = pc.binary_length(values), _compute_next_bytes
    is_truncated = pc.fill_null(pc.greater_equal(lengths, width), False)
    if not pc.any(is_truncated, min_count=0).as_py():
        return values
    return pc.if_else(is_truncated, following(values), values)


def _compute_next_texts(values: pa.StringArray) -> pa.StringArray:
    """Return the successor of each string's prefix. Distinct strings are as many as partitions, mostly fewer."""
    encoded = pc.dictionary_encode(values)
    after = [None if each is None else find_successor_of_prefix(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(after, values.type).take(encoded.indices)


def _compute_next_bytes(values: pa.BinaryArray) -> pa.BinaryArray:
    encoded = pc.dictionary_encode(values)
    after = [None if each is None else find_successor_of_bytes(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(after, values.type).take(encoded.indices)
