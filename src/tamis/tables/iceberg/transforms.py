"""Partition transforms read backwards: a partition value tells what the source column may hold.

Every row of a file has the partition value of the file. So its value v bounds the column x that v is made of, and no
rule for predicates is needed besides those that there are for bounds:

| transform              | v                     | x is in                                        | null v           |
|------------------------|-----------------------|------------------------------------------------|------------------|
| identity               | any                   | [v, v]                                         | x is NULL always |
| year, month, day, hour | periods since 1970    | the first to the last instant of the period    | x is NULL always |
| truncate[w]            | a number              | [v, v + w - 1], in units of the last digit     | x is NULL always |
| truncate[w]            | a text shorter than w | [v, v]                                         | x is NULL always |
| truncate[w]            | a text                | [v, the next text after all that begin with v] | x is NULL always |
| bucket[n]              | a number              | says nothing of order: see `projection`        | x is NULL always |
| void, unknown ones     |                       | nothing is known                               | nothing is known |

A v that is not null means that x is never NULL. Of a range of values, as summaries of manifests have them, the smallest
gives the lower bound and the largest the upper; truncated numbers that overflowed are at the wrong end of it, and where
there may be such, there is no lower bound.

Writers of the past rounded times before 1970 towards it, so that a period up to number 0 may hold what belongs into
the one before.
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
from tamis.expr.patterns import successor_of_bytes, successor_of_prefix
from tamis.tables.iceberg.single_values import SECONDS_PER_DAY
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

_TRANSFORM = re.compile(r"(identity|void|year|month|day|hour|bucket|truncate)(?:\[(\d{1,10})\])?")
TIMES = ("year", "month", "day", "hour")
UNKNOWN = "unknown"
_SECONDS_PER_HOUR = 3600
_LARGEST = 2**63 - 1
_MOST_DIGITS = 38
_MOST_WIDTH = 2**31 - 1

Numbers = npt.NDArray[np.int64]
Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Transform:
    """A transform as a spec names it; one that nobody knows is `unknown`."""

    kind: str
    width: int = 0
    """The number of buckets, or what is truncated to."""

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
        return Transform(kind, width) if has_width == bool(width) and width <= _MOST_WIDTH else Transform(UNKNOWN)

    def result_type(self, source: pa.DataType) -> pa.DataType | None:
        """The type of partition values made of a type; None where there is no such thing, or nobody knows."""
        is_time = pa.types.is_timestamp(source)
        is_whole = source in (pa.int32(), types.LONG)
        match self.kind:
            case "identity":
                return source
            case "year" | "month" | "day" if is_time or pa.types.is_date(source):
                return pa.int32()
            case "hour" if is_time:
                return pa.int32()
            case "truncate" if pa.types.is_decimal(source):
                # A number may have one digit more when it is rounded down.
                return pa.decimal128(_MOST_DIGITS, source.scale)
            case "truncate" if is_whole or is_text(source) or pa.types.is_binary(source):
                return source
            case "bucket" if not pa.types.is_floating(source) and not pa.types.is_boolean(source):
                return pa.int32() if types.is_ordered(source) else None
            case _:
                return None

    @property
    def says_null(self) -> bool:
        """Whether a partition value is null exactly where the source is."""
        return self.kind not in ("void", UNKNOWN)

    def lower(self, values: pa.Array, source: pa.DataType, largest: pa.Array | None = None) -> pa.Array | None:
        """No value of the source is smaller, in files with partition values from these to the `largest` (None: no
        others than these)."""
        match self.kind:
            case "identity":
                return values
            case "truncate":
                return _lower_of_truncated(values, values if largest is None else largest, self.width, source)
            case "year" | "month" | "day" | "hour":
                return _ends(self.kind, values, source)[0]
            case _:
                return None

    def upper(self, values: pa.Array, source: pa.DataType) -> pa.Array | None:
        """No value of the source is larger, in files with partition values no larger than these."""
        match self.kind:
            case "identity":
                return values
            case "truncate":
                return _upper_of_truncated(values, self.width, source)
            case "year" | "month" | "day" | "hour":
                return _ends(self.kind, values, source)[1]
            case _:
                return None


# --- Times ------------------------------------------------------------------------------------------------------------


def _ends(kind: str, values: pa.Array, source: pa.DataType) -> tuple[pa.Array, pa.Array]:
    """The first and the last instant of periods; null where a type does not reach so far."""
    is_known = np.asarray(values.is_valid())
    periods = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64)
    is_exact = kind == "day" and pa.types.is_date(source)
    first = periods if is_exact else np.where(periods <= 0, periods - 1, periods)
    starts, reaches = _start(kind, first, source)
    ends, reach = _start(kind, periods + 1, source)
    return _times(starts, is_known & reaches, source), _times(ends - 1, is_known & reach, source)


def _start(kind: str, periods: Numbers, source: pa.DataType) -> tuple[Numbers, Bits]:
    """The first instant of each period, in the unit of the source, and where it can be told."""
    if kind == "hour":
        return _multiplied(periods, _SECONDS_PER_HOUR * UNITS_PER_SECOND[source.unit])
    days = periods
    if kind != "day":
        unit = "Y" if kind == "year" else "M"
        days = periods.astype(f"datetime64[{unit}]").astype("datetime64[D]").astype(np.int64)
    if pa.types.is_date(source):
        return days, np.abs(days) < 2**31
    return _multiplied(days, SECONDS_PER_DAY * UNITS_PER_SECOND[source.unit])


def _multiplied(values: Numbers, factor: int) -> tuple[Numbers, Bits]:
    fits = np.abs(values) <= _LARGEST // factor
    return np.where(fits, values, 0) * factor, fits


def _times(counts: Numbers, is_known: Bits, source: pa.DataType) -> pa.Array:
    if pa.types.is_date(source):
        return pa.array(np.where(is_known, counts, 0).astype(np.int32), mask=~is_known).view(source)
    return pa.array(counts, mask=~is_known).view(source)


# --- Truncated values -------------------------------------------------------------------------------------------------


def _lower_of_truncated(values: pa.Array, largest: pa.Array, width: int, source: pa.DataType) -> pa.Array:
    if is_text(source) or is_bytes(source):
        return values
    if pa.types.is_decimal(source):
        wide = pa.decimal256(50, source.scale)
        # Beyond what the type has there are no values.
        return pc.max_element_wise(values.cast(wide), pc.negate(_largest(source, wide)), skip_nulls=False).cast(source)
    return pc.if_else(_may_have_wrapped(values, largest, width, source), pa.scalar(None, source), values)


def _may_have_wrapped(values: pa.Array, largest: pa.Array, width: int, source: pa.DataType) -> pa.Array:
    """Whether between two partition values lie those of the smallest numbers of all: rounded down, they come out at the
    other end of their type. What is a long today may have been an int when it was written."""
    found = pa.scalar(False)
    for kind in {pa.int32(), source}:
        end = types.integer_range(kind)[1]
        reaches = pc.greater(largest, pa.scalar(end - (width - 1), types.LONG))
        found = pc.or_kleene(found, pc.and_kleene(reaches, pc.less_equal(values, pa.scalar(end, types.LONG))))
    return found


def _upper_of_truncated(values: pa.Array, width: int, source: pa.DataType) -> pa.Array:
    if is_text(source) or is_bytes(source):
        return _after_prefixes(values, width)
    if pa.types.is_decimal(source):
        wide = pa.decimal256(50, source.scale)
        last = pa.scalar(_decimal(width - 1, source.scale), wide)
        moved = pc.add(values.cast(wide), last).cast(wide)
        return pc.min_element_wise(moved, _largest(source, wide), skip_nulls=False).cast(source)
    room = pa.scalar(types.integer_range(source)[1] - (width - 1), types.LONG)
    return pc.add(pc.min_element_wise(values.cast(types.LONG), room, skip_nulls=False), width - 1).cast(source)


def _largest(source: pa.Decimal128Type, wide: pa.DataType) -> pa.Scalar:
    return pa.scalar(_decimal(10**source.precision - 1, source.scale), wide)


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((0, tuple(map(int, str(unscaled))), -scale))


def _after_prefixes(values: pa.Array, width: int) -> pa.Array:
    """The values themselves where they are shorter than what they were cut to, else what comes after all of those that
    begin so."""
    if is_text(values.type):
        lengths, following = pc.utf8_length(values), _next_texts
    else:
        lengths, following = pc.binary_length(values), _next_bytes
    is_cut = pc.fill_null(pc.greater_equal(lengths, width), False)
    if not pc.any(is_cut, min_count=0).as_py():
        return values
    return pc.if_else(is_cut, following(values), values)


def _next_texts(values: pa.StringArray) -> pa.StringArray:
    """There are as many distinct texts as partitions, and mostly fewer."""
    encoded = pc.dictionary_encode(values)
    after = [None if each is None else successor_of_prefix(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(after, values.type).take(encoded.indices)


def _next_bytes(values: pa.BinaryArray) -> pa.BinaryArray:
    encoded = pc.dictionary_encode(values)
    after = [None if each is None else successor_of_bytes(each) for each in encoded.dictionary.to_pylist()]
    return pa.array(after, values.type).take(encoded.indices)
