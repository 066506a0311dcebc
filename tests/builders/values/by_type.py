"""Values of every type that tests use, and the plain form in which the oracle (DuckDB) reads them.

Values are in the physical form of literals. The oracle reads timestamps as nanoseconds since the epoch and floats
as doubles, so that its results depend neither on its own types and casts nor on our binding and coercion.
"""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types

DAY = 86_400 * 10**9
NANOSECONDS = {"s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}

INTEGERS = (pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64())
FLOATS = (pa.float32(), pa.float64())
DECIMALS = (pa.decimal128(5, 2), pa.decimal128(18, 4), pa.decimal128(38, 10))
TIMESTAMPS = tuple(pa.timestamp(unit, tz) for unit in NANOSECONDS for tz in (None, "UTC"))
TEXTUAL = (pa.string(), pa.large_string(), pa.binary())
FAMILIES = (FLOATS, FLOATS, INTEGERS, TEXTUAL, DECIMALS, TIMESTAMPS, (pa.date32(),), (pa.bool_(),))
"""Types by what can go wrong with them, most of all with floats; an example picks a family before a type."""
PRIMITIVES = tuple(dict.fromkeys(each for family in FAMILIES for each in family))

TEXTS = (
    "a", "ab", "abc", "abd", "ac", "b", "", "a%", "a_c", "é", "éa", "zz", "Z", "\ud7ff", "\ue000", "\U0010ffff",
    "a\U0010ffff", "日本", "a\nb",
)  # fmt: skip
BYTES = (b"a", b"a\x00", b"ab", b"ac", b"b", b"", b"\xff", b"\xff\xff", b"\x80", b"a\xff")


@cache
def list_values(data_type: pa.DataType) -> tuple[Any, ...]:
    """Return a few values of a type, extremes included. They are few, so that equal ones are common."""
    if pa.types.is_boolean(data_type):
        return (False, True)
    if pa.types.is_integer(data_type):
        smallest, largest = types.get_integer_range(data_type)
        edges = (smallest, largest, smallest + 1, largest - 1, largest // 2 + 1, 2**24 + 1, 2**53 + 1)
        return tuple(dict.fromkeys((*range(max(smallest, -3), 8), *(each for each in edges if each <= largest))))
    if pa.types.is_floating(data_type):
        tiny = 1e-45 if pa.types.is_float32(data_type) else 5e-324
        plain = (0.0, 1.0, -0.0, math.nan, -1.0, math.inf, -math.inf, 2.5, 3.0, 0.5, tiny, 1e30, -1e30, 16777216.0)
        return tuple(_round_float(each, data_type) for each in plain)
    if pa.types.is_decimal(data_type):
        limit = 10**data_type.precision - 1
        unscaled = (*range(-3, 4), 100, 150, 200, -150, 10**data_type.scale, limit, -limit, limit - 1)
        return tuple(make_decimal(each, data_type.scale) for each in dict.fromkeys(unscaled))
    if pa.types.is_date(data_type):
        return (*range(-3, 4), 30, 31, -31, 364, 365, -366, -25567, 19785, 2932896, -719162)
    if pa.types.is_timestamp(data_type):
        per_day = DAY // NANOSECONDS[data_type.unit]
        days = (0, 1, -1, 31, 365, -365, 19785)
        # Parquet has no seconds: they are stored as milliseconds, which must fit.
        limit = 2**63 - 1 if data_type.unit != "s" else (2**63 - 1) // 1000
        return tuple(dict.fromkeys((*(day * per_day + rest for rest in (0, -1, 1) for day in days), limit, -limit)))
    return BYTES if types.is_bytes(data_type) else TEXTS


def list_special_values(data_type: pa.DataType) -> tuple[Any, ...]:
    """Return the values that need special rules, such as NaN and zeros."""
    return (math.nan, 0.0, -0.0, math.inf, -math.inf) if pa.types.is_floating(data_type) else ()


def list_neighbours(value: Any, data_type: pa.DataType) -> list[Any]:
    """Return the values of a type next to a value, or near it."""
    if pa.types.is_boolean(data_type) or value != value:
        return []
    if pa.types.is_floating(data_type):
        if pa.types.is_float32(data_type):
            single = np.float32(value)
            with np.errstate(over="ignore"):
                return [float(np.nextafter(single, np.float32(end))) for end in (math.inf, -math.inf)]
        return [math.nextafter(value, end) for end in (math.inf, -math.inf)]
    if pa.types.is_decimal(data_type):
        unscaled = _get_unscaled(value, data_type.scale)
        limit = 10**data_type.precision
        return [make_decimal(each, data_type.scale) for each in (unscaled + 1, unscaled - 1) if -limit < each < limit]
    if types.is_bytes(data_type):
        return [value + b"\x00", value[:-1]]
    if types.is_text(data_type):
        return [value + "\x01", value[:-1]]
    smallest, largest = get_integer_limits(data_type)
    return [each for each in (value + 1, value - 1) if smallest <= each <= largest]


def get_integer_limits(data_type: pa.DataType) -> tuple[int, int]:
    """Return the smallest and the largest physical value of an integer, date or timestamp type."""
    if pa.types.is_integer(data_type):
        return types.get_integer_range(data_type)
    values = list_values(data_type)
    return min(values), max(values)


def is_extreme(value: Any, data_type: pa.DataType) -> bool:
    """Return whether arithmetic on an integer or a timestamp may overflow."""
    limit = 2**55 if pa.types.is_integer(data_type) else 20_001 * DAY // NANOSECONDS[data_type.unit]
    return bool(abs(value) > limit)


def list_narrower_types(data_type: pa.DataType) -> tuple[pa.DataType, ...]:
    """Return the types that widen to the given one, which older files of a table may have."""
    if pa.types.is_integer(data_type):
        lowest, highest = types.get_integer_range(data_type)
        ranges = {each: types.get_integer_range(each) for each in INTEGERS if each != data_type}
        return tuple(each for each, (low, high) in ranges.items() if lowest <= low and high <= highest)
    if pa.types.is_float64(data_type):
        return (pa.float32(), pa.int32(), pa.uint8())
    if pa.types.is_float32(data_type):
        return (pa.int8(), pa.int16(), pa.uint16())
    if pa.types.is_decimal(data_type):
        return tuple(
            each
            for each in DECIMALS
            if each != data_type
            and each.scale <= data_type.scale
            and each.precision - each.scale <= data_type.precision - data_type.scale
        )
    if pa.types.is_timestamp(data_type):
        coarser = tuple(
            pa.timestamp(unit, data_type.tz) for unit, tick in NANOSECONDS.items() if tick > NANOSECONDS[data_type.unit]
        )
        return coarser if data_type.tz else (*coarser, pa.date32())
    return {pa.string(): (pa.large_string(),), pa.large_string(): (pa.string(),)}.get(data_type, ())


@cache
def list_values_that_fit(narrow: pa.DataType, wide: pa.DataType) -> tuple[Any, ...]:
    """Return the values of a narrower type that the wider one can hold."""
    found = []
    for value in list_values(narrow):
        try:
            make_array(narrow, [value]).cast(wide)
        except pa.ArrowInvalid:
            continue
        found.append(value)
    return tuple(found)


def _round_float(value: float, data_type: pa.DataType) -> float:
    return float(np.float32(value)) if pa.types.is_float32(data_type) else value


def make_decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _get_unscaled(value: Decimal, scale: int) -> int:
    sign, digits, exponent = value.as_tuple()
    assert exponent == -scale
    return (-1 if sign else 1) * int("".join(map(str, digits)))


def make_array(data_type: pa.DataType, physical: list[Any]) -> pa.Array:
    if pa.types.is_date(data_type):
        return pa.array(physical, pa.int32()).cast(data_type)
    return pa.array(physical, data_type)


# --- Values for the oracle ------------------------------------------------------------------------------------------


def to_oracle_column(values: pa.Array) -> pa.Array:
    """Return a column as the oracle reads it."""
    data_type = values.type
    if pa.types.is_timestamp(data_type):
        counts = values.cast(pa.int64()).cast(pa.decimal128(19, 0))
        tick = pa.scalar(Decimal(NANOSECONDS[data_type.unit]), pa.decimal128(10, 0))
        return pc.multiply(counts, tick).cast(pa.decimal128(38, 0))
    if pa.types.is_floating(data_type):
        return values.cast(pa.float64())
    if pa.types.is_large_string(data_type):
        return values.cast(pa.string())
    return values


def to_oracle_literal(value: Any, data_type: pa.DataType) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return str(value).upper()
    if isinstance(value, float):
        text = "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf") if math.isinf(value) else repr(value)
        return f"CAST('{text}' AS DOUBLE)"
    if isinstance(value, Decimal):
        return f"CAST('{value:f}' AS DECIMAL(38, {max(0, -value.as_tuple().exponent)}))"
    if isinstance(value, bytes):
        return "CAST('" + "".join(f"\\x{byte:02x}" for byte in value) + "' AS BLOB)"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    if pa.types.is_timestamp(data_type):
        return f"CAST('{value * NANOSECONDS[data_type.unit]}' AS DECIMAL(38, 0))"
    if pa.types.is_date(data_type):
        return f"(DATE '1970-01-01' + {value})"
    return f"CAST('{value}' AS HUGEINT)"


def to_oracle_operands(name: str, data_type: pa.DataType, value: Any, literal_type: pa.DataType) -> tuple[str, str]:
    """Return SQL for a column and a literal that compares them exactly, or both as doubles."""
    if value is None or data_type == literal_type:
        return name, to_oracle_literal(value, literal_type)
    if pa.types.is_floating(data_type):
        return name, to_oracle_literal(float(value), types.DOUBLE)
    if types.is_number(data_type):
        if isinstance(value, float):
            return f"CAST({name} AS DOUBLE)", to_oracle_literal(value, types.DOUBLE)
        exact = Decimal(value)
        own = data_type.scale if pa.types.is_decimal(data_type) else 0
        scale = max(own, -exact.as_tuple().exponent)
        return f"CAST({name} AS DECIMAL(38, {scale}))", f"CAST('{exact:f}' AS DECIMAL(38, {scale}))"
    if pa.types.is_date(data_type) or pa.types.is_timestamp(data_type):
        instant = value * (DAY if pa.types.is_date(literal_type) else NANOSECONDS[literal_type.unit])
        if pa.types.is_date(data_type):
            days = f"CAST(date_diff('day', DATE '1970-01-01', {name}) AS HUGEINT)"
            return f"{days} * {DAY}", f"CAST('{instant}' AS HUGEINT)"
        return name, f"CAST('{instant}' AS DECIMAL(38, 0))"
    return name, to_oracle_literal(value, literal_type)
