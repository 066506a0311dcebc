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
from tamis.errors import EvaluationError, InvalidArgument, TypeMismatch
from tamis.expr.datetime_text import parse_dates, parse_timestamps
from tamis.expr.functions.kernels import Value, find_evaluation_type, to_evaluation_form
from tamis.expr.nodes import Call

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
        return _format_distinct(values, "{:f}".format)
    if pa.types.is_string_view(data_type):
        return values.cast(pa.large_string())
    raise TypeMismatch(f"partition values of column {column!r} have the unsupported type {data_type}")


def _format_distinct(values: pa.Array, format_one: Callable[[Any], str]) -> pa.Array:
    """Format each distinct value once: a partition column has far fewer of them than rows."""
    encoded = values.dictionary_encode()
    distinct = encoded.dictionary
    items = distinct.to_numpy() if pa.types.is_floating(distinct.type) else distinct.to_pylist()
    return pa.array([format_one(item) for item in items], types.STRING).take(encoded.indices)


def parse_double(texts: pa.Array) -> pa.Array:
    """Parse numbers, exponents, infinities and NaN included; null where a text is not a number.

    >>> parse_double(pa.array(["1.5", "-1e3", "Infinity", "1,5", ""])).to_pylist()
    [1.5, -1000.0, inf, None, None]
    """
    is_number = pc.match_substring_regex(texts, _NUMBER)
    return pc.if_else(is_number, texts, pa.scalar(None, texts.type)).cast(types.DOUBLE)


# --- Parsing of partition values from text to typed values: the function `partition_value(text, type)` ----------------
#
# The rules are those of Delta's protocol: the empty text is NULL for every type, and the text `null` has no special
# meaning.
#
# | type           | texts                                                                                           |
# |----------------|-------------------------------------------------------------------------------------------------|
# | boolean        | `true`, `false`, in any case; not `1`, `yes`                                                    |
# | integers       | decimal digits with or without a sign, within the range of the type; not `0x10`, not `1.0`      |
# | float, double  | `1.5`, `1.0E10`, `NaN`, `Infinity`                                                              |
# | decimal        | a number that the type holds without rounding                                                   |
# | date           | `2024-03-01`, and years beyond four digits with a sign                                          |
# | timestamp      | `2024-03-01 10:00:00.5` (UTC), `2024-03-01T10:00:00.5Z`, or with an offset                      |
# | timestamp_ntz  | the same without a zone, or with `Z`, and never shifted                                         |
# | string         | itself                                                                                          |
# | binary         | the UTF-8 bytes of the text                                                                     |

_INTEGER_TEXT = r"^[+-]?[0-9]{1,38}$"
_NUMBER_TEXT = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"
_WIDE = pa.decimal128(38, 0)


class InvalidPartitionValue(EvaluationError):
    """A text that is not a valid value of a type. Evaluation wraps it in an error that names the expression."""

    def __init__(self, text: str, data_type: pa.DataType) -> None:
        super().__init__(f"the partition value {text!r} is not a valid {types.type_name(data_type)}")
        self.text = text


def partition_value(call: Call, args: list[Value]) -> Value:
    """Parse texts, or one text, as the type whose name is the second argument: the kernel of `partition_value`."""
    return _apply_to_texts(parse_partition_values, args)


def try_partition_value(call: Call, args: list[Value]) -> Value:
    """Parse texts as `partition_value` does, NULL where one is invalid: the kernel of `try_partition_value`."""
    return _apply_to_texts(try_parse_partition_values, args)


def _apply_to_texts(parse: Callable[[pa.Array, pa.DataType], pa.Array], args: list[Value]) -> Value:
    target = types.type_from_name(args[1].as_py())
    texts = args[0]
    if isinstance(texts, pa.Scalar):
        return parse(pa.array([texts.as_py()], types.STRING), target)[0]
    return parse(texts, target)


def parse_partition_values(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse partition values into the evaluation form of a type; NULL where a text is empty or null.

    >>> parse_partition_values(pa.array(["007", "", None, "7"]), pa.int8()).to_pylist()
    [7, None, None, 7]
    """
    parsed = try_parse_partition_values(texts, target)
    if parsed.null_count:
        wrong = _replace_empty_by_null(texts.filter(parsed.is_null())).drop_null()
        if len(wrong):
            raise InvalidPartitionValue(wrong[0].as_py(), target)
    return parsed


def try_parse_partition_values(texts: pa.Array, target: pa.DataType) -> pa.Array:
    """Parse partition values as `parse_partition_values` does, NULL also where a text is invalid for the type.

    >>> try_parse_partition_values(pa.array(["007", "", None, "abc", "300"]), pa.int8()).to_pylist()
    [7, None, None, None, None]
    """
    texts = _replace_empty_by_null(texts)
    if types.is_text(target):
        return texts.cast(find_evaluation_type(target))
    # A partition column has few distinct values, so each is parsed once.
    encoded = pc.dictionary_encode(texts)
    return to_evaluation_form(_find_reader(target)(encoded.dictionary, target)).take(encoded.indices)


def find_invalid_partition_values(texts: pa.StringArray, target: pa.DataType) -> pa.StringArray:
    """Return the texts that are not valid values of a type; NULL where a text is valid, empty or null.

    >>> find_invalid_partition_values(pa.array(["7", "", None, "abc", "300"]), pa.int8()).to_pylist()
    [None, None, None, 'abc', '300']
    """
    texts = _replace_empty_by_null(texts)
    if types.is_text(target):
        return pa.nulls(len(texts), types.STRING)
    encoded = pc.dictionary_encode(texts)
    is_wrong = pc.is_null(_find_reader(target)(encoded.dictionary, target))
    return pc.if_else(is_wrong, encoded.dictionary, pa.scalar(None, types.STRING)).take(encoded.indices)


def _replace_empty_by_null(texts: pa.Array) -> pa.StringArray:
    texts = texts if texts.type == types.STRING else texts.cast(types.STRING)
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, types.STRING), texts)


Reader = Callable[[pa.StringArray, pa.DataType], pa.Array]
"""A parser of texts into values of a type; null where a text is invalid."""


def _find_reader(data_type: pa.DataType) -> Reader:
    if pa.types.is_boolean(data_type):
        return _parse_booleans
    if pa.types.is_integer(data_type):
        return _parse_integers
    if pa.types.is_floating(data_type):
        return lambda texts, data_type: parse_double(texts).cast(data_type, safe=False)
    if pa.types.is_decimal(data_type):
        return _parse_decimals
    if pa.types.is_date(data_type):
        return lambda texts, _: parse_dates(texts)
    if data_type in (types.TIMESTAMP, types.TIMESTAMP_NTZ):
        return parse_timestamps
    if types.is_bytes(data_type):
        return lambda texts, target: texts.cast(types.BINARY).cast(target)
    if pa.types.is_null(data_type):
        return lambda texts, target: pa.nulls(len(texts), target)
    # Types that no table format supports for partitions: Arrow casts them.
    return lambda texts, target: pc.cast(texts, target)


def _parse_booleans(texts: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    lowered = pc.utf8_lower(texts)
    known = pc.is_in(lowered, value_set=pa.array(["true", "false"]))
    return pc.if_else(known, pc.equal(lowered, "true"), pa.scalar(None, data_type))


def _parse_integers(texts: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    smallest, largest = (pa.array([limit], _WIDE)[0] for limit in types.get_integer_range(data_type))
    numbers = _keep_matching(texts, _INTEGER_TEXT).cast(_WIDE)
    fits = pc.and_(pc.greater_equal(numbers, smallest), pc.less_equal(numbers, largest))
    return pc.if_else(fits, numbers, pa.scalar(None, _WIDE)).cast(data_type)


def _parse_decimals(texts: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    numbers = _keep_matching(texts, _NUMBER_TEXT)
    try:
        return numbers.cast(data_type)
    except pa.ArrowInvalid:
        return pa.array([_parse_decimal(text, data_type) for text in numbers.to_pylist()], data_type)


def _parse_decimal(text: str | None, data_type: pa.DataType) -> object:
    try:
        return pa.scalar(text).cast(data_type).as_py()
    except pa.ArrowInvalid:
        return None


def _keep_matching(texts: pa.StringArray, pattern: str) -> pa.StringArray:
    kept = pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, texts.type))
    # Arrow does not accept a leading plus.
    return pc.utf8_ltrim(kept, characters="+")
