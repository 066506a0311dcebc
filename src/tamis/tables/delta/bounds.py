"""Bounds in the type of the table, from the smallest and the largest values that statistics of files name.

Statistics name *values*, more or less: what a writer cut or rounded, and what an older type of the column spelled
otherwise, has to be put right, so that no value of the file is outside.

| type                | lower bound                   | upper bound                                 | exact            |
|---------------------|-------------------------------|---------------------------------------------|------------------|
| whole numbers, dates| the value                     | the value                                   | yes              |
| dates before 1582   | 12 days less                  | 12 days more                                | no               |
| decimals            | the value; long ones less     | the value; long ones more                   | up to 15 digits  |
| floats              | the value; zero is -0.0       | the value; zero is 0.0                      | yes; zero is not |
| doubles, once float | the lesser of two readings    | the greater of two readings                 | where they agree |
| timestamps          | cut to milliseconds, so lower | 999 microseconds more                       | no               |
| of long ago         | a minute less                 | a minute more                               | no               |
| before 1900, of UTC | 14 days less                  | 14 days more                                | no               |
| texts               | cut, so lower                 | the next text after the first 32 characters | no               |

Texts are cut at 32 characters unless the writer was told another number, and nothing in the log tells: a short text may
be cut as well, so that none is exact. Timestamps of long ago may be spelled with an offset cut to minutes, of a zone
that had seconds then. Dates of long ago may be named by another calendar than that by which the file is read:
`tamis.parquet.old_calendar` derives how far they are moved. Decimals beyond 15 digits may have been a double on their
way into the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.patterns import successor_of_prefix
from tamis.expr.time_texts import read_dates, read_timestamps
from tamis.parquet.old_calendar import beyond_old
from tamis.tables.delta.fields import DeltaField

LENGTH_OF_CUT_TEXTS = 32
_REPLACEMENT = "\ufffd"
_REST_OF_MILLISECOND = 999
_MINUTE = 60_000_000
_WITHOUT_SECONDS = 63_676_800_000_000
"""1972-01-08, in microseconds: no zone has seconds in its offset from then on."""
_LAST_MICROSECOND = types.integer_range(types.LONG)[1]
_MOST_DIGITS = 76
_DIGITS_OF_A_DOUBLE = 15
_WHOLE = pa.decimal256(_MOST_DIGITS, 0)


@dataclass(frozen=True, slots=True)
class FileBounds:
    """Bounds of a column in files, a row each: null is unknown. Exact ones are the value of some row."""

    lower: pa.Array
    upper: pa.Array
    lower_exact: pa.Array
    upper_exact: pa.Array


def has_bounds(field: DeltaField) -> bool:
    """Whether statistics of a field mean something to us: it has an order, and that is the one of its bytes."""
    data_type = field.data_type
    return field.kind == "value" and (
        (types.is_text(data_type) and field.collation is None)
        or types.is_number(data_type)
        or pa.types.is_date(data_type)
        or pa.types.is_timestamp(data_type)
    )


def file_bounds(smallest: pa.Array, largest: pa.Array, field: DeltaField) -> FileBounds:
    """The bounds that a pair of statistics gives, in whatever types they came."""
    target = field.data_type
    low, high = _converted(smallest, target), _converted(largest, target)
    if pa.types.is_floating(target):
        return _float_bounds(low, high, may_be_single="float" in field.former_types)
    if pa.types.is_timestamp(target) and target.tz is not None:
        low, high = _a_minute_off(low, -_MINUTE), _a_minute_off(high, _MINUTE)
    low, high = _in_order(low, high)
    if pa.types.is_date(target):
        (low, low_is_old), (high, high_is_old) = beyond_old(low, up=False), beyond_old(high, up=True)
        return FileBounds(low, high, pc.and_not(low.is_valid(), low_is_old), pc.and_not(high.is_valid(), high_is_old))
    if pa.types.is_timestamp(target) and target.tz is not None:
        low, high = beyond_old(low, up=False)[0], beyond_old(high, up=True)[0]
    if pa.types.is_timestamp(target):
        return _inexact(low, _to_end_of_millisecond(high))
    if types.is_text(target):
        return _inexact(low, _above_cut_texts(high))
    if pa.types.is_decimal(target):
        return _decimal_bounds(low, high)
    return FileBounds(low, high, low.is_valid(), high.is_valid())


def _inexact(lower: pa.Array, upper: pa.Array) -> FileBounds:
    no = pa.repeat(pa.scalar(False), len(lower))
    return FileBounds(lower, upper, no, no)


def _in_order(low: pa.Array, high: pa.Array) -> tuple[pa.Array, pa.Array]:
    """Without the pairs of which the smallest is above the largest: one of them is wrong, and nobody knows which."""
    is_wrong = pc.fill_null(pc.greater(low, high), False)
    if not pc.any(is_wrong, min_count=0).as_py():
        return low, high
    return _without(low, is_wrong), _without(high, is_wrong)


def _without(values: pa.Array, where: pa.BooleanArray) -> pa.Array:
    return pc.if_else(where, pa.scalar(None, values.type), values)


# --- To the type of the table ----------------------------------------------------------------------------------------


def _converted(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Values in the type of the table; null where they are none of it."""
    source = values.type
    if pa.types.is_null(source):
        return pa.nulls(len(values), target)
    if pa.types.is_timestamp(target):
        return _timestamps(values, target)
    if pa.types.is_date(target):
        return read_dates(values) if types.is_text(source) else _cast_or_unknown(values, target)
    if types.is_text(target):
        return _valid_texts(values) if types.is_text(source) else pa.nulls(len(values), target)
    if pa.types.is_floating(target):
        is_number = types.is_number(source) and not pa.types.is_decimal(source)
        return values.cast(target, safe=False) if is_number else pa.nulls(len(values), target)
    if not types.is_number(source) or pa.types.is_floating(source):
        return pa.nulls(len(values), target)
    return _numbers(values, target)


def _numbers(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Whole numbers and decimals: those that the type has."""
    if values.type == target:
        return values
    if pa.types.is_integer(target):
        if not pa.types.is_integer(values.type):
            return pa.nulls(len(values), target)
        smallest, largest = (pa.scalar(limit, types.LONG) for limit in types.integer_range(target))
        values = values.cast(types.LONG)
        return _without(values, pc.or_(pc.less(values, smallest), pc.greater(values, largest))).cast(target)
    wide = pa.decimal256(_MOST_DIGITS, target.scale)
    exact = _cast_or_unknown(values.cast(_WHOLE) if pa.types.is_integer(values.type) else values, wide)
    limit = pa.scalar(Decimal((0, (1,), target.precision - target.scale)), wide)
    return _without(exact, pc.greater_equal(pc.abs(exact), limit)).cast(target)


def _cast_or_unknown(values: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return values.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), target)


def _timestamps(values: pa.Array, target: pa.TimestampType) -> pa.Array:
    source = values.type
    if types.is_text(source):
        return read_timestamps(values, target)
    if pa.types.is_date(source) and target.tz is None:
        return _cast_or_unknown(values, target)
    # What Spark stores in 96 bits has no zone in Arrow, and is an instant.
    if not pa.types.is_timestamp(source) or (source.tz is not None and target.tz is None):
        return pa.nulls(len(values), target)
    if source.unit == "ns":
        counts = np.floor_divide(pc.fill_null(values.cast(types.LONG), 0).to_numpy(), 1000)
        return _without(pa.array(counts, types.LONG), values.is_null()).cast(target)
    return _cast_or_unknown(values.cast(pa.timestamp(source.unit)), types.TIMESTAMP_NTZ).cast(types.LONG).cast(target)


def _valid_texts(values: pa.Array) -> pa.Array:
    texts = values.cast(types.STRING)
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        return pa.array([_text_or_unknown(each) for each in texts.cast(types.BINARY).to_pylist()], types.STRING)
    return texts


def _text_or_unknown(value: bytes | None) -> str | None:
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return None


# --- What writers cut off --------------------------------------------------------------------------------------------


def _decimal_bounds(low: pa.Array, high: pa.Array) -> FileBounds:
    """Some writers divide by the scale in double precision, and may note the double below the largest value.

    That is less than 1 in 10^15 away, and decimals of up to 15 digits survive it.
    """
    lower, upper = _moved(low, pc.subtract), _moved(high, pc.add)
    return FileBounds(lower, upper, pc.equal(low, lower), pc.equal(high, upper))


def _moved(values: pa.Array, move: Callable[[pa.Array, pa.Array], pa.Array]) -> pa.Array:
    """Decimals moved as far as a double may be off; null where that leads out of their type."""
    target = values.type
    if target.precision <= _DIGITS_OF_A_DOUBLE:
        return values
    wide = pa.decimal256(_MOST_DIGITS - 1, target.scale)
    magnitudes = pc.abs(values.cast(wide))
    is_long = pc.greater_equal(magnitudes, _power_of_ten(_DIGITS_OF_A_DOUBLE, wide))
    if not pc.any(is_long, min_count=0).as_py():
        return values
    slack = pa.repeat(pa.scalar(Decimal(0), wide), len(values))
    for digits in range(_DIGITS_OF_A_DOUBLE, target.precision):
        step = _power_of_ten(digits + 1 - _DIGITS_OF_A_DOUBLE, wide)
        slack = pc.if_else(pc.greater_equal(magnitudes, _power_of_ten(digits, wide)), step, slack)
    return _numbers(move(values.cast(wide), slack), target)


def _power_of_ten(digits: int, data_type: pa.DataType) -> pa.Scalar:
    """The smallest decimal of a type that has more digits than given, its scale included."""
    return pa.scalar(Decimal((0, (1,), digits - data_type.scale)), data_type)


def _float_bounds(low: pa.Array, high: pa.Array, *, may_be_single: bool) -> FileBounds:
    low, high = (_without(each, pc.is_nan(each)) for each in (low, high))
    # Spark holds NaN for the largest value: where it is the smallest there is no other. And where some other writer
    # took it for the smallest, its largest is not to be trusted either.
    low, high = _in_order(low, _without(high, low.is_null()))
    if may_be_single:
        # 0.1 in single precision is spelled like 0.1 in double precision, and is a little larger.
        singles = [each.cast(pa.float32(), safe=False).cast(low.type) for each in (low, high)]
        exact = [pc.equal(each, single) for each, single in zip((low, high), singles, strict=True)]
        low, high = pc.min_element_wise(low, singles[0]), pc.max_element_wise(high, singles[1])
    else:
        exact = [low.is_valid(), high.is_valid()]
    # Writers that hold both zeros for equal may note either, so each bound takes the zero further out.
    zeros = [pc.equal(each, 0.0) for each in (low, high)]
    return FileBounds(
        pc.if_else(zeros[0], pa.scalar(-0.0, low.type), low),
        pc.if_else(zeros[1], pa.scalar(0.0, low.type), high),
        *(pc.and_not(is_exact, is_zero) for is_exact, is_zero in zip(exact, zeros, strict=True)),
    )


def _to_end_of_millisecond(values: pa.TimestampArray) -> pa.TimestampArray:
    counts = values.cast(types.LONG)
    limit = pa.scalar(_LAST_MICROSECOND - _REST_OF_MILLISECOND, types.LONG)
    ends = pc.add(pc.min_element_wise(counts, limit, skip_nulls=False), _REST_OF_MILLISECOND)
    return ends.cast(values.type)


def _a_minute_off(values: pa.TimestampArray, step: int) -> pa.TimestampArray:
    """Instants of long ago moved by a step; null where they are so long ago that there is none before them."""
    counts = values.cast(types.LONG)
    is_old = pc.less(counts, _WITHOUT_SECONDS)
    if not pc.any(is_old, min_count=0).as_py():
        return values
    first = pa.scalar(-_LAST_MICROSECOND + _MINUTE, types.LONG)
    moved = pc.add(_without(counts, pc.less(counts, first)), step)
    return pc.if_else(is_old, moved, counts).cast(values.type)


def _above_cut_texts(largest: pa.StringArray) -> pa.StringArray:
    """Texts that no value is above, from the largest value of each file, cut as its writer cut it.

    Writers of today cut at 32 characters and put a character behind that is above what followed; others just cut. So
    every value is below whatever comes after all texts with those 32 characters. Writers of the past put U+FFFD behind,
    which is *not* above all other characters, and they may have cut a pair of surrogates in two: what comes before the
    last two characters, and no more than 31 of it, is true of them too.
    """
    is_replaced = pc.ends_with(largest, _REPLACEMENT)
    is_cut = pc.or_(is_replaced, pc.greater_equal(pc.utf8_length(largest), LENGTH_OF_CUT_TEXTS))
    if not pc.any(is_cut, min_count=0).as_py():
        return largest
    before = pc.utf8_slice_codeunits(largest, 0, LENGTH_OF_CUT_TEXTS)
    if pc.any(is_replaced, min_count=0).as_py():
        shorter = pc.utf8_slice_codeunits(pc.utf8_slice_codeunits(largest, 0, -2), 0, LENGTH_OF_CUT_TEXTS - 1)
        before = pc.if_else(is_replaced, shorter, before)
    return pc.if_else(is_cut, _next_texts(before), largest)


def _next_texts(prefixes: pa.StringArray) -> pa.StringArray:
    """The text after all those that start with a prefix: its last character becomes the next; null where it has none.

    There are few distinct last characters, whatever the texts.
    """
    last = pc.dictionary_encode(pc.utf8_slice_codeunits(prefixes, -1))
    following = pa.array([successor_of_prefix(each) for each in last.dictionary.to_pylist()], types.STRING)
    head = pc.utf8_slice_codeunits(prefixes, 0, -1)
    return pc.binary_join_element_wise(head, following.take(last.indices), "")
