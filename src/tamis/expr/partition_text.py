"""Partition values as text: how Python and Arrow values are spelled, and how text is read back as a number.

The spelling is the one of partition directories and of Delta's partition values as Spark writes them:
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

_WHOLE_NUMBER = r"^[+-]?[0-9]+$"
_SHORT_WHOLE_NUMBER = r"^-?[0-9]{1,18}$"
_NUMBER = r"^[+-]?(?:(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?|(?i:nan|inf|infinity))$"


def spell(value: object) -> str:
    """The text of a Python value, as a partition directory spells it.

    >>> spell(True), spell(7), spell(1e10), spell(datetime.date(2024, 3, 1))
    ('true', '7', '1.0E10', '2024-03-01')
    """
    match value:
        case None:
            raise InvalidArgument("a partition filter does not compare with None: use is_null() or is_not_null()")
        case str():
            return value
        case bool() | np.bool_():
            return "true" if value else "false"
        case int() | np.integer():
            return str(int(value))
        case float() | np.floating():
            return _spell_float(value)
        case decimal.Decimal() if value.is_finite():
            return format(value, "f")
        case datetime.datetime():
            return _spell_timestamp(value)
        case datetime.date():
            return value.isoformat()
        case _:
            raise InvalidArgument(
                f"a partition filter cannot spell {value!r} ({type(value).__name__}): give its text, "
                "or a str, bool, int, float, Decimal, date or datetime"
            )


def _spell_float(value: Any) -> str:
    magnitude = abs(value)
    if np.isnan(value):
        return "NaN"
    if np.isinf(value):
        return "Infinity" if value > 0 else "-Infinity"
    if magnitude == 0 or 1e-3 <= magnitude < 1e7:
        return str(np.format_float_positional(value, unique=True, trim="0"))
    scientific = np.format_float_scientific(value, unique=True, trim="0", exp_digits=1)
    return str(scientific).replace("e+", "E").replace("e", "E")


def _spell_decimal(value: decimal.Decimal) -> str:
    return format(value, "f")


def _spell_timestamp(value: datetime.datetime) -> str:
    if value.tzinfo is not None:
        value = value.astimezone(datetime.UTC).replace(tzinfo=None)
    text = value.isoformat(sep=" ")
    return text.rstrip("0") if "." in text else text


def partition_text(values: pa.Array, column: str) -> pa.Array:
    """The texts of typed partition values; `column` names them in the error for a type that no partition has."""
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
        # Dropping the zone keeps the instant, which then prints as UTC.
        texts = values.cast(pa.timestamp(data_type.unit)).cast(types.STRING)
        return pc.replace_substring_regex(texts, r"(\.[0-9]*[1-9])0+$|\.0+$", r"\1")
    if pa.types.is_floating(data_type):
        return _spell_distinct(values.cast(pa.float32()) if data_type == pa.float16() else values, _spell_float)
    if pa.types.is_decimal(data_type):
        return _spell_distinct(values, _spell_decimal)
    if pa.types.is_string_view(data_type):
        return values.cast(pa.large_string())
    raise TypeMismatch(f"partition values of column {column!r} have the type {data_type}, which has no partition text")


def _spell_distinct(values: pa.Array, spell_one: Callable[[Any], str]) -> pa.Array:
    """Spell each distinct value once: a partition column has far fewer of them than rows."""
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    items = distinct.to_numpy() if pa.types.is_floating(distinct.type) else distinct.to_pylist()
    return pa.array([spell_one(item) for item in items], types.STRING).take(encoded.indices)


def parse_long(texts: pa.Array) -> pa.Array:
    """The whole numbers that texts spell; null where a text is something else or does not fit 64 bits.

    >>> parse_long(pa.array(["007", "+5", "1.0", "9223372036854775808"])).to_pylist()
    [7, 5, None, None]
    """
    if pc.all(pc.match_substring_regex(texts, _SHORT_WHOLE_NUMBER), min_count=0).as_py():
        return texts.cast(types.LONG)
    is_negative = pc.starts_with(texts, "-")
    digits = pc.replace_substring_regex(texts, r"^[+-]?0*", "")
    length = pc.binary_length(digits)
    # Texts of nineteen digits compare like the numbers.
    limit = pc.if_else(is_negative, "9223372036854775808", "9223372036854775807").cast(texts.type)
    fits = pc.or_(pc.less(length, 19), pc.and_(pc.equal(length, 19), pc.less_equal(digits, limit)))
    is_number = pc.and_(pc.match_substring_regex(texts, _WHOLE_NUMBER), fits)
    sign = pc.if_else(is_negative, "-0", "0").cast(texts.type)
    signed = pc.binary_join_element_wise(sign, digits, pa.scalar("", texts.type))
    return pc.if_else(is_number, signed, pa.scalar(None, texts.type)).cast(types.LONG)


def parse_double(texts: pa.Array) -> pa.Array:
    """The numbers that texts spell, exponents, infinities and NaN included; null where a text is something else.

    >>> parse_double(pa.array(["1.5", "-1e3", "Infinity", "1,5", ""])).to_pylist()
    [1.5, -1000.0, inf, None, None]
    """
    is_number = pc.match_substring_regex(texts, _NUMBER)
    return pc.if_else(is_number, texts, pa.scalar(None, texts.type)).cast(types.DOUBLE)
