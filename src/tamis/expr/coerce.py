"""Exact coercion of literals to the type of the column they are compared with.

A literal may not exist in the column's type: no integer is 5.5, no tinyint is 300, no date is noon. Then it is
*between* two neighbours of that type, or beyond its last value, and every comparison still has an exact meaning:

    c =  5.5   never TRUE            c <  5.5   c <= 5           c <  300 (tinyint)   TRUE unless NULL
    c <> 5.5   TRUE unless NULL      c >  5.5   c >= 6           c >  300 (tinyint)   never TRUE

Binary floats are the exception, because users write `x = 0.1` and mean the nearest double: numbers are rounded to
the nearest double first, as in Spark and DuckDB. The neighbours of a 32-bit float are those of that double.

Conversely, a decimal or an integer is compared with a double as the double that is nearest to it. So `price = 0.1D`
is TRUE for the decimal 0.10, which no double equals, and a double beyond 2^53 equals *several* bigints.
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
from tamis.expr.literals import parse_number, parse_special_float, parse_timestamp
from tamis.expr.nodes import Literal
from tamis.expr.temporal import parse_time
from tamis.types import UNITS_PER_SECOND, integer_range, is_bytes, is_number, is_text

_UUID = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_NANOSECONDS_PER_DAY = 86_400 * 10**9


@dataclass(frozen=True, slots=True)
class Neighbours:
    """The neighbours of a literal among the values of a type.

    `below` is the largest value that is not greater than the literal, `above` the smallest that is not less. They are
    the same value if the literal is a value of the type, and the last and the first if it equals several values. None
    means that the type has no value on that side.
    """

    below: Any
    above: Any

    @property
    def is_exact(self) -> bool:
        return self.below is not None and (self.below == self.above or self.below != self.below)

    @property
    def is_range(self) -> bool:
        """Whether the literal equals several values, from `above` to `below`."""
        return self.below is not None and self.above is not None and bool(self.above < self.below)


def find_neighbours(literal: Literal, target: pa.DataType) -> Neighbours | None:
    """Return the neighbours of a non-NULL literal among the values of a type; None if the two cannot be compared."""
    value, source = literal.value, literal.type
    if pa.types.is_dictionary(target):
        return find_neighbours(literal, target.value_type)
    if is_number(target):
        number = _to_number(value, source)
        if number is None:
            return None
        is_double = pa.types.is_floating(source) or (is_text(source) and pa.types.is_decimal(target))
        return _neighbours_of_double(number, target) if is_double else _neighbours_of_number(number, target)
    if pa.types.is_date(target) or pa.types.is_timestamp(target):
        nanoseconds = _to_nanoseconds(value, source)
        return None if nanoseconds is None else _neighbours_of_time(nanoseconds, target)
    if pa.types.is_time(target):
        nanoseconds = _to_nanoseconds_of_day(value, source)
        return None if nanoseconds is None else _neighbours_of_time(nanoseconds, target)
    if pa.types.is_boolean(target):
        return _neighbours_of_boolean(value)
    if is_text(target):
        return _exact(value) if isinstance(value, str) else None
    if is_bytes(target):
        return _exact(_to_bytes(value, target)) if isinstance(value, str | bytes) else None
    return _exact(value) if source == target else None


def _to_bytes(value: str | bytes, target: pa.DataType) -> bytes:
    """Return the bytes of a text, or of a UUID.

    A text in UUID format is a UUID if the type has 16 bytes: as a text it has 36, and so equals no value of the type.
    """
    if isinstance(value, bytes):
        return value
    is_uuid = pa.types.is_fixed_size_binary(target) and target.byte_width == 16 and _UUID.fullmatch(value)
    return UUID(value).bytes if is_uuid else value.encode()


def _exact(value: Any) -> Neighbours:
    return Neighbours(value, value)


def _neighbours_of_boolean(value: Any) -> Neighbours | None:
    if isinstance(value, bool):
        return _exact(value)
    if isinstance(value, str) and value.strip().lower() in ("true", "false"):
        return _exact(value.strip().lower() == "true")
    return None


def _to_number(value: Any, source: pa.DataType) -> int | float | Fraction | None:
    """Return a literal as an exact number; only infinities and NaN stay floats."""
    if isinstance(value, bool) or not (is_number(source) or is_text(source)):
        return None
    if isinstance(value, str):
        special = parse_special_float(value)
        if special is not None:
            return special
        value = parse_number(value)
        if value is None:
            return None
        if abs(value.adjusted()) > 400:
            # Out of the range of every number type. The exact fraction would have as many digits as the exponent says.
            return math.copysign(math.inf, value) if value.adjusted() > 0 and value else 0
    if isinstance(value, float) and not math.isfinite(value):
        return value
    return value if isinstance(value, int) else Fraction(value)


def _neighbours_of_number(number: int | float | Fraction, target: pa.DataType) -> Neighbours:
    if pa.types.is_floating(target):
        return _neighbours_of_float(number, target)
    if number != number:
        number = math.inf  # NaN is larger than every number
    if pa.types.is_decimal(target):
        largest = 10**target.precision - 1
        found = _neighbours_of_integer(number * 10**target.scale, -largest, largest)
        return Neighbours(*(_to_decimal(unscaled, target.scale) for unscaled in (found.below, found.above)))
    return _neighbours_of_integer(number, *integer_range(target))


def _neighbours_of_double(number: int | float | Fraction, target: pa.DataType) -> Neighbours:
    """Return the neighbours of a double among numbers, which are compared as their nearest doubles."""
    if pa.types.is_floating(target) or isinstance(number, float):
        return _neighbours_of_number(number, target)  # which handles infinities and NaN
    try:
        nearest = float(number)
    except OverflowError:
        return _neighbours_of_number(number, target)
    is_decimal = pa.types.is_decimal(target)
    scale = target.scale if is_decimal else 0
    largest = 10**target.precision - 1 if is_decimal else integer_range(target)[1]
    smallest = -largest if is_decimal else integer_range(target)[0]
    last, first = _last_not_greater(nearest, scale), -_last_not_greater(-nearest, scale)
    below = None if last < smallest else min(last, largest)
    above = None if first > largest else max(first, smallest)
    if is_decimal:
        return Neighbours(*(_to_decimal(unscaled, scale) for unscaled in (below, above)))
    return Neighbours(below, above)


def _last_not_greater(double: float, scale: int) -> int:
    """Return the largest unscaled value with `scale` digits whose nearest double is not greater than a double."""
    # Rounding keeps order, and a value halfway between two doubles is rounded to the even one.
    following = math.nextafter(double, math.inf)
    halfway = Fraction(double) if math.isinf(following) else (Fraction(double) + Fraction(following)) / 2
    last: int = math.floor(halfway * 10**scale)
    return last if Fraction(last, 10**scale) < halfway or float(halfway) <= double else last - 1


def _to_decimal(unscaled: int | None, scale: int) -> Decimal | None:
    # Arithmetic would round to the precision of the decimal context, so the value is built from its digits.
    return None if unscaled is None else Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _neighbours_of_integer(number: int | float | Fraction, smallest: int, largest: int) -> Neighbours:
    if number > largest:
        return Neighbours(largest, None)
    if number < smallest:
        return Neighbours(None, smallest)
    below, above = math.floor(number), math.ceil(number)
    return Neighbours(below, above)


def _neighbours_of_float(number: int | float | Fraction, target: pa.DataType) -> Neighbours:
    try:
        nearest = float(number)
    except OverflowError:
        nearest = math.copysign(math.inf, number)
    if pa.types.is_float64(target) or not math.isfinite(nearest):
        return _exact(nearest)
    # The largest 32-bit float and infinity are neighbours, and numpy warns on the step between them.
    with np.errstate(over="ignore"):
        single = np.float32(nearest)
        if float(single) == nearest:
            return _exact(nearest)
        if float(single) < nearest:
            return Neighbours(float(single), float(np.nextafter(single, np.float32(np.inf))))
        return Neighbours(float(np.nextafter(single, np.float32(-np.inf))), float(single))


def _to_nanoseconds(value: Any, source: pa.DataType) -> int | None:
    """Return a date, a timestamp or a text as nanoseconds since the epoch; without a time zone it is in UTC."""
    if is_text(source):
        parsed = parse_timestamp(value)
        return None if parsed is None else parsed[0]
    if pa.types.is_date(source):
        return int(value) * _NANOSECONDS_PER_DAY
    if pa.types.is_timestamp(source):
        return int(value) * (10**9 // UNITS_PER_SECOND[source.unit])
    return None


def _to_nanoseconds_of_day(value: Any, source: pa.DataType) -> int | None:
    if is_text(source):
        return parse_time(value)
    return int(value) * (10**9 // UNITS_PER_SECOND[source.unit]) if pa.types.is_time(source) else None


def _neighbours_of_time(nanoseconds: int, target: pa.DataType) -> Neighbours:
    step = _NANOSECONDS_PER_DAY if pa.types.is_date(target) else 10**9 // UNITS_PER_SECOND[target.unit]
    limits = integer_range(pa.int32() if pa.types.is_date(target) or pa.types.is_time32(target) else types.LONG)
    return _neighbours_of_integer(Fraction(nanoseconds, step), *limits)
