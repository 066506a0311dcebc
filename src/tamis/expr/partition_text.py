"""Partition values as text: formatting of Python and Arrow values, and parsing of text as numbers.

The format is that of partition directories and of Delta's partition values as Spark writes them:
`true`, `2024`, `2024-03-01`, `2024-03-01 10:00:00.5` (UTC), `1.50` for a decimal of scale 2, `1.0` and `1.0E10`.
"""

from __future__ import annotations

import datetime
import decimal
from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, TypeMismatch

_INTEGER = r"^[+-]?[0-9]+$"
_SHORT_INTEGER = r"^-?[0-9]{1,18}$"
_NUMBER = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))$"


def format_partition_value(value: object) -> str:
    """Return the text of a Python value in a partition directory.

    >>> [format_partition_value(value) for value in (True, 7, 1e10, datetime.date(2024, 3, 1))]
    ['true', '7', '1.0E10', '2024-03-01']
    """
    match value:
        case None:
            raise InvalidArgument("a partition filter cannot compare with None: use is_null() or is_not_null()")
        case str():
            return value
        case bool() | np.bool_():
            return "true" if value else "false"
        case int() | np.integer():
            return str(int(value))
        case float() | np.floating():
            return _format_float(value)
        case decimal.Decimal() if value.is_finite():
            return format(value, "f")
        case datetime.datetime():
            return _format_timestamp(value)
        case datetime.date():
            return value.isoformat()
        case _:
            raise InvalidArgument(
                f"a partition filter cannot format {value!r} ({type(value).__name__}): give its text, "
                "or a str, bool, int, float, Decimal, date or datetime"
            )


def _format_float(value: Any) -> str:
    magnitude = abs(value)
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return str(np.format_float_positional(value, unique=True, trim="0"))
    scientific = np.format_float_scientific(value, unique=True, trim="0", exp_digits=1)
    return str(scientific).replace("e+", "E").replace("e", "E")


def _format_decimal(value: decimal.Decimal) -> str:
    return format(value, "f")


def _format_timestamp(value: datetime.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if "." in text else text


def partition_text(values: pa.Array, column: str) -> pa.Array:
    """Return typed partition values as texts; `column` is named in the error for an unsupported type."""
    data_type = values.type
    if pa.types.is_string(data_type) or pa.types.is_large_string(data_type):
        return values
    if pa.types.is_dictionary(data_type):
        return partition_text(values.dictionary, column).take(values.indices)
    if pa.types.is_null(data_type):
        return pa.nulls(len(values), types.STRING)
    if pa.types.is_boolean(data_type) or pa.types.is_integer(data_type):
        return values.cast(types.STRING)
    if pa.types.is_date(data_type):
        return values.cast(types.DATE).cast(types.STRING)
    if pa.types.is_timestamp(data_type):
        # Dropping the time zone keeps the instant, which then prints in UTC.
        texts = values.cast(pa.timestamp(data_type.unit)).cast(types.STRING)
        return pc.replace_substring_regex(texts, r"(\.[0-9]*[1-9])0+$|\.0+$", r"\1")
    if pa.types.is_floating(data_type):
        return _format_distinct(values.cast(pa.float32()) if data_type == pa.float16() else values, _format_float)
    if pa.types.is_decimal(data_type):
        return _format_distinct(values, _format_decimal)
    if pa.types.is_string_view(data_type):
        return values.cast(pa.large_string())
    raise TypeMismatch(f"partition values of column {column!r} have the unsupported type {data_type}")


def _format_distinct(values: pa.Array, format_one: Callable[[Any], str]) -> pa.Array:
    """Format each distinct value once: a partition column has far fewer of them than rows."""
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    items = distinct.to_numpy() if pa.types.is_floating(distinct.type) else distinct.to_pylist()
    return pa.array([format_one(item) for item in items], types.STRING).take(encoded.indices)


def parse_long(texts: pa.Array) -> pa.Array:
    """Parse integers; null where a text is not an integer or does not fit 64 bits.

    >>> parse_long(pa.array(["007", "+5", "1.0", "9223372036854775808"])).to_pylist()
    [7, 5, None, None]
    """
    if pc.all(pc.match_substring_regex(texts, _SHORT_INTEGER), min_count=0).as_py():
        return texts.cast(types.LONG)
    is_negative = pc.starts_with(texts, "-")
    digits = pc.replace_substring_regex(texts, r"^[+-]?0*", "")
    length = pc.binary_length(digits)
    # Texts of nineteen digits compare like numbers.
    limit = pc.if_else(is_negative, "9223372036854775808", "9223372036854775807").cast(texts.type)
    fits = pc.or_(pc.less(length, 19), pc.and_(pc.equal(length, 19), pc.less_equal(digits, limit)))
    is_number = pc.and_(pc.match_substring_regex(texts, _INTEGER), fits)
    sign = pc.if_else(is_negative, "-0", "0").cast(texts.type)
    signed = pc.binary_join_element_wise(sign, digits, pa.scalar("", texts.type))
    return pc.if_else(is_number, signed, pa.scalar(None, texts.type)).cast(types.LONG)


def parse_double(texts: pa.Array) -> pa.Array:
    """Parse numbers, exponents, infinities and NaN included; null where a text is not a number.

    >>> parse_double(pa.array(["1.5", "-1e3", "Infinity", "1,5", ""])).to_pylist()
    [1.5, -1000.0, inf, None, None]
    """
    is_number = pc.match_substring_regex(texts, _NUMBER)
    return pc.if_else(is_number, texts, pa.scalar(None, texts.type)).cast(types.DOUBLE)
