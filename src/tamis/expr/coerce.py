"""Literals in the type of the column they are compared with, exactly.

A literal may not exist in the column's type: no integer is 5.5, no tinyint is 300, no date is noon. Then it lies
*between* two neighbours of that type, or beyond its last value, and every comparison still has an exact meaning:

    c =  5.5   never TRUE            c <  5.5   c <= 5           c <  300 (tinyint)   TRUE unless NULL
    c <> 5.5   TRUE unless NULL      c >  5.5   c >= 6           c >  300 (tinyint)   never TRUE

Binary floats are the exception, because people write `x = 0.1` and mean the nearest double: numbers are rounded to
the nearest double first, as Spark and DuckDB do, and then placed between the neighbours of a 32-bit float.

The same holds the other way round: a decimal or an integer is compared with a double as the double that is nearest to
it. So `price = 0.1D` is TRUE for the decimal 0.10, which no double is, and a double beyond 2^53 equals *several*
bigints.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import Any
from uuid import UUID

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.expr.literals import number_in_text, parse_timestamp, special_float_in_text
from tamis.expr.nodes import Literal
from tamis.expr.temporal import parse_time
from tamis.types import UNITS_PER_SECOND, integer_range, is_bytes, is_number, is_text

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NANOSECONDS_PER_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a literal lies among the values of a type.

    `below` is the largest value that is not greater than the literal, `above` the smallest that is not less: the same
    value where the literal is one of them, and the last and the first where it equals several. None on a side means
    that no value of the type is there.
    """

    below: Any
    above: Any

    @property
    def is_exact(self) -> bool:
        return self.below is not None and (self.below == self.above or self.below != self.below)

    @property
    def is_range(self) -> bool:
        """Whether the literal equals several values: all from `above` to `below`."""
        return self.below is not None and self.above is not None and bool(self.above < self.below)


def place(literal: Literal, target: pa.DataType) -> Placed | None:
    """Place a literal that is not NULL among the values of a type; None where the two cannot be compared."""
    value, source = literal.value, literal.type
    if pa.types.is_dictionary(target):
        return place(literal, target.value_type)
    if is_number(target):
        number = _number(value, source)
        if number is None:
            return None
        is_double = pa.types.is_floating(source) or (is_text(source) and pa.types.is_decimal(target))
        return _place_double(number, target) if is_double else _place_number(number, target)
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        nanoseconds = _nanoseconds(value, source)
        return None if nanoseconds is None else _place_time(nanoseconds, target)
    if pa.types.is_time(target):
        nanoseconds = _nanoseconds_of_day(value, source)
        return None if nanoseconds is None else _place_time(nanoseconds, target)
    if pa.types.is_boolean(target):
        return _place_boolean(value)
    if is_text(target):
        return _exactly(value) if isinstance(value, str) else None
    if is_bytes(target):
        return _exactly(_bytes(value, target)) if isinstance(value, str | bytes) else None
    return _exactly(value) if source == target else None


def _bytes(value: str | bytes, target: pa.DataType) -> bytes:
    """A text is its bytes. Only the text of a UUID is the UUID where that is as long as the values of the type: no text
    so written is any of them."""
    if isinstance(value, bytes):
        return value
    is_uuid = pa.types.is_fixed_size_binary(target) and target.byte_width == 16 and _UUID.fullmatch(value)
    return UUID(value).bytes if is_uuid else value.encode()


def _exactly(value: Any) -> Placed:
    return Placed(value, value)


def _place_boolean(value: Any) -> Placed | None:
    if isinstance(value, bool):
        return _exactly(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return _exactly(value.strip().lower() == "true")
    return None


def _number(value: Any, source: pa.DataType) -> int | float | Fraction | None:
    """A literal as an exact number; only infinities and NaN stay floats."""
    if isinstance(value, bool) or not (is_number(source) or is_text(source)):
        return None
    if isinstance(value, str):
        special = special_float_in_text(value)
        if special is not None:
            return special
        value = number_in_text(value)
        if value is None:
            return None
        if abs(value.adjusted()) > 400:
            # Beyond every number type; the exact fraction would be as long as the exponent says.
            return math.copysign(math.inf, value) if value.adjusted() > 0 and value else 0
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return value if isinstance(value, int) else Fraction(value)


def _place_number(number: int | float | Fraction, target: pa.DataType) -> Placed:
    if pa.types.is_floating(target):
        return _place_float(number, target)
    if number != number:
        number = math.inf  # NaN is larger than every number
    if pa.types.is_decimal(target):
        largest = 10**target.precision - 1
        placed = _place_whole(number * 10**target.scale, -largest, largest)
        return Placed(*(_decimal(unscaled, target.scale) for unscaled in (placed.below, placed.above)))
    return _place_whole(number, *integer_range(target))


def _place_double(number: int | float | Fraction, target: pa.DataType) -> Placed:
    """Place a double among numbers that are compared with it as the doubles that are nearest to them."""
    if pa.types.is_floating(target) or isinstance(number, float):
        return _place_number(number, target)  # which has infinities and NaN, too
    try:
        nearest = float(number)
    except OverflowError:
        return _place_number(number, target)
    is_decimal = pa.types.is_decimal(target)
    scale = target.scale if is_decimal else 0
    largest = 10**target.precision - 1 if is_decimal else integer_range(target)[1]
    smallest = -largest if is_decimal else integer_range(target)[0]
    last, first = _last_not_greater(nearest, scale), -_last_not_greater(-nearest, scale)
    below = None if last < smallest else min(last, largest)
    above = None if first > largest else max(first, smallest)
    if is_decimal:
        return Placed(*(_decimal(unscaled, scale) for unscaled in (below, above)))
    return Placed(below, above)


def _last_not_greater(double: float, scale: int) -> int:
    """Return the largest unscaled value with `scale` digits whose nearest double is not greater than a double."""
    # Rounding keeps order, and what lies halfway to the next double is rounded to the even one of the two.
    following = math.nextafter(double, math.inf)
    halfway = Fraction(double) if math.isinf(following) else (Fraction(double) + Fraction(following)) / 2
    last: int = math.floor(halfway * 10**scale)
    return last if Fraction(last, 10**scale) < halfway or float(halfway) <= double else last - 1


def _decimal(unscaled: int | None, scale: int) -> Decimal | None:
    # Built from digits, because arithmetic on decimals rounds to the context's precision.
    return None if unscaled is None else Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _place_whole(number: int | float | Fraction, smallest: int, largest: int) -> Placed:
    if number > largest:
        return Placed(largest, None)
    if number < smallest:
        return Placed(None, smallest)
    below, above = math.floor(number), math.ceil(number)
    return Placed(below, above)


def _place_float(number: int | float | Fraction, target: pa.DataType) -> Placed:
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.copysign(math.inf, number)
    if pa.types.is_float64(target) or not math.isfinite(nearest):
        return _exactly(nearest)
    # The largest number of 32 bits and infinity are neighbours, and numpy warns on the step from one to the other.
    with np.errstate(over="ignore"):
        single = np.float32(nearest)
        if float(single) == nearest:
            return _exactly(nearest)
        if float(single) < nearest:
            return Placed(float(single), float(np.nextafter(single, np.float32(np.inf))))
        return Placed(float(np.nextafter(single, np.float32(-np.inf))), float(single))


def _nanoseconds(value: Any, source: pa.DataType) -> int | None:
    """A date, a timestamp or a text as nanoseconds since the epoch; without a zone it is UTC."""
    if is_text(source):
        parsed = parse_timestamp(value)
        return None if parsed is None else parsed[0]
    if pa.types.is_date(source):
        return int(value) * _NANOSECONDS_PER_DAY
    if pa.types.is_timestamp(source):
        return int(value) * (10**9 // UNITS_PER_SECOND[source.unit])
    return None


def _nanoseconds_of_day(value: Any, source: pa.DataType) -> int | None:
    if is_text(source):
        return parse_time(value)
    return int(value) * (10**9 // UNITS_PER_SECOND[source.unit]) if pa.types.is_time(source) else None


def _place_time(nanoseconds: int, target: pa.DataType) -> Placed:
    step = _NANOSECONDS_PER_DAY if pa.types.is_date(target) else 10**9 // UNITS_PER_SECOND[target.unit]
    limits = integer_range(pa.int32() if pa.types.is_date(target) or pa.types.is_time32(target) else types.LONG)
    return _place_whole(Fraction(nanoseconds, step), *limits)
