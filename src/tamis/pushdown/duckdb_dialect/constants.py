"""Constants of a DuckDB query, and the values that columns of each type are compared with.

A constant has a value only if DuckDB and a scan always agree: no cast of the column, no rounding of the constant, no
string that is parsed as a number.
"""

from __future__ import annotations

import math
import re
import struct
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa

from tamis.expr.nodes import Literal
from tamis.pushdown.duckdb_dialect.syntax import Json

_EXACT_DIGITS = 15
"""An integer of this many digits is an exact double, and divided by a power of ten gives the nearest double."""
_EXACT_INTEGER = 2**53
_DECIMAL_DIGITS = 18

_DATE = re.compile(r"\d{4}-\d\d-\d\d", re.ASCII)
_TIMESTAMP = re.compile(r"\d{4}-\d\d-\d\d(?:[ T]\d\d:\d\d:\d\d(?:\.\d{1,6})?)?", re.ASCII)


@dataclass(frozen=True, slots=True)
class Constant:
    """A constant, and whether it has a type in DuckDB: a string without one is cast to the type of the column."""

    value: Any
    is_typed: bool


class NotPushable(Exception):
    """A condition that is not pushed down."""


def read_literal(kind: str, text: str) -> Constant:
    """Read a constant as DuckDB 2.0 and later serialise it."""
    match kind:
        case "STRING":
            return Constant(text, is_typed=False)
        case "INTEGER":
            return Constant(int(text), is_typed=True)
        case "NUMERIC":
            is_double = not re.fullmatch(r"[+-]?\d*\.?\d*", text, re.ASCII)
            return Constant(float(text) if is_double else Decimal(text), is_typed=True)
        case "BOOLEAN" if text in ("true", "false"):
            return Constant(text == "true", is_typed=True)
        case _:
            raise NotPushable


def read_stored_value(kind: str, value: Any, type_info: Any) -> Constant:
    """Read a constant as DuckDB before 2.0 serialises it."""
    match kind, value:
        case "VARCHAR", str():
            return Constant(value, is_typed=False)
        case "INTEGER" | "BIGINT", int():
            return Constant(value, is_typed=True)
        case "BOOLEAN", bool():
            return Constant(value, is_typed=True)
        case "DOUBLE", float():
            return Constant(value, is_typed=True)
        case "DECIMAL", int() if isinstance(type_info, dict) and isinstance(type_info.get("scale"), int):
            return Constant(Decimal(value).scaleb(-type_info["scale"]), is_typed=True)
        case _:
            raise NotPushable


def read_cast_type(node: Json) -> str:
    """Return the name of the type that a constant is cast to."""
    match node:
        case {"type_expr": {"type_name": str() as name, "children": []}}:
            return name.upper()
        case {"cast_type": {"id": str() as name}}:
            return name.upper()
        case _:
            raise NotPushable


def cast_constant(given: Constant, target: str) -> Constant:
    """Cast a string to a type, if its format is unambiguous."""
    text = given.value
    if not isinstance(text, str) or given.is_typed:
        raise NotPushable
    match target:
        case "DATE" if _DATE.fullmatch(text):
            return Constant(date.fromisoformat(text), is_typed=True)
        case "TIMESTAMP" if _TIMESTAMP.fullmatch(text):
            return Constant(datetime.fromisoformat(text), is_typed=True)
        case "TIMESTAMPTZ" | "TIMESTAMP WITH TIME ZONE" if _TIMESTAMP.fullmatch(text):
            # The engine's time zone is UTC.
            return Constant(datetime.fromisoformat(text).replace(tzinfo=UTC), is_typed=True)
        case "BOOLEAN" if text in ("t", "f"):
            return Constant(text == "t", is_typed=True)
        case _:
            raise NotPushable


# --- Families of types ------------------------------------------------------------------------------------------------


def to_comparable_value(given: Constant, data_type: pa.DataType | None) -> Any:
    """Return the value that a column of a type is compared with; None if DuckDB and a scan might disagree."""
    value = given.value
    if data_type is None:
        return None
    if pa.types.is_boolean(data_type):
        return value if isinstance(value, bool) else None
    if isinstance(value, bool):
        return None
    if is_text(data_type):
        return value if isinstance(value, str) else None
    if pa.types.is_date32(data_type):
        return _as_date(given)
    if pa.types.is_timestamp(data_type):
        return _as_timestamp(given, data_type)
    if pa.types.is_integer(data_type):
        return _as_number(value)
    if pa.types.is_decimal128(data_type):
        number = _as_number(value)
        return number if number is None or _get_scale(number) <= data_type.scale else None
    if pa.types.is_float64(data_type):
        return _as_double(value)
    if pa.types.is_float32(data_type):
        double = _as_double(value)
        return double if double is not None and _is_exact_float(double) else None
    return None


def _is_exact_float(double: float) -> bool:
    """Return whether a double is exactly a float, so that comparing either type gives the same result."""
    return abs(double) < 1e30 and bool(struct.unpack("f", struct.pack("f", double))[0] == double)


def is_cast_independent(data_type: pa.DataType | None, value: Literal) -> bool:
    """Return whether a comparison with a value has the same result in any type that DuckDB may cast the column to."""
    if data_type is None:
        return False
    if pa.types.is_integer(data_type):
        return isinstance(value.value, int) and abs(value.value) <= _EXACT_INTEGER
    return bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type) or pa.types.is_floating(data_type))


def is_text(data_type: pa.DataType | None) -> bool:
    return data_type is not None and (pa.types.is_string(data_type) or pa.types.is_large_string(data_type))


def _as_number(value: Any) -> int | Decimal | None:
    match value:
        case int() if -(2**63) <= value < 2**63:
            return value
        case Decimal() if value.is_finite() and _count_digits(value) <= _DECIMAL_DIGITS:
            return value
        case _:
            return None


def _count_digits(value: Decimal) -> int:
    found = value.as_tuple()
    assert isinstance(found.exponent, int)
    return max(len(found.digits), -found.exponent) if found.exponent <= 0 else len(found.digits) + found.exponent


def _get_scale(value: int | Decimal) -> int:
    exponent = Decimal(value).as_tuple().exponent
    assert isinstance(exponent, int)
    return max(0, -exponent)


def _as_double(value: Any) -> float | None:
    match value:
        case float() if math.isfinite(value):
            return value
        case int() if abs(value) <= _EXACT_INTEGER:
            return float(value)
        case Decimal() if value.is_finite() and _count_digits(value) <= _EXACT_DIGITS:
            return float(value)
        case _:
            return None


def _as_date(given: Constant) -> date | None:
    match given.value:
        case str() as text if not given.is_typed and _DATE.fullmatch(text):
            return date.fromisoformat(text)
        case datetime():
            return None
        case date() as value:
            return value
        case _:
            return None


def _as_timestamp(given: Constant, data_type: pa.DataType) -> datetime | None:
    if data_type.unit != "us":
        # DuckDB has a type for each unit, and casts between them.
        return None
    value = given.value
    if isinstance(value, str) and not given.is_typed and _TIMESTAMP.fullmatch(value):
        value = datetime.fromisoformat(value)
        return value if data_type.tz is None else value.replace(tzinfo=UTC)
    if isinstance(value, date) and not isinstance(value, datetime) and data_type.tz is None:
        return datetime(value.year, value.month, value.day)
    if not isinstance(value, datetime) or (value.tzinfo is None) != (data_type.tz is None):
        return None
    return value
