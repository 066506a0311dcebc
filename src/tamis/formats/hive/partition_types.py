r"""Types of partition columns: declared by the user, or inferred from the values as in Spark.

Each value has the first type of this list that it parses as, and then all types of a column are merged into one:

| type        | a value such as                                                                        |
|-------------|----------------------------------------------------------------------------------------|
| `int`       | `7`, `-7`, `+7`, `007`                                                                  |
| `bigint`    | an integer beyond 32 bits                                                               |
| `decimal`   | an integer beyond 64 bits, up to 38 digits; also `1e5`                                  |
| `double`    | `1.5`, `NaN`, `-Infinity`, and, as in Java, `1d` and `1f`                               |
| `timestamp` | `2024-03-01 10:30:00`, `2024-03-01 10:30:00.5`                                          |
| `date`      | `2024-03-01`                                                                            |
| `string`    | everything else                                                                         |

    int    < bigint < decimal       integers become the widest
    int    + double    = double     every int is a double
    bigint + double    = string     (also decimal + double) a double would lose digits
    date   + timestamp = timestamp
    any other two      = string
    NULL   + anything  = the other; only NULLs = string
    an empty string    = string: writers write one for strings only

A column keeps its strings beside its values, so that `hour=01` is '01' where a string is needed. If files store the
column too, it has the type of the files, provided that all strings are valid for that type: the file's type is more
precise than one inferred from directory names. The empty string is '' for a string column, and NULL for any other.
Spark also parses digits of other scripts and hexadecimal floats as numbers; here they are strings.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, PartitionLayoutError
from tamis.expr.datetime_text import parse_dates, parse_timestamps
from tamis.types import replace_view_types

INT = pa.int32()

_WHOLE = r"^[+-]?\d+$"
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = rf"^[+-]?{_DIGITS}$"
_NUMBER_PARTS = r"^[+-]?(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d{1,4}))?$"
# Java's parseDouble ignores control characters and blanks around the number.
_BLANKS = r"[\x00-\x20]*"
_DOUBLE = rf"^{_BLANKS}[+-]?(?:NaN|Infinity|{_DIGITS}[fFdD]?){_BLANKS}$"
# pyarrow and DuckDB write nan and inf; Spark's cast accepts them, its inference does not.
_DECLARED_DOUBLE = rf"^{_BLANKS}[+-]?(?:(?i:nan|inf|infinity)|{_DIGITS}[fFdD]?){_BLANKS}$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_TIMESTAMP = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?$"
_ZONE = r":\d{2}(?:\.\d+)? ?(?:Z|[+-]\d{2}(?::?\d{2})?)$"

_ZEROS_LOST = r"^[+-]?0\d+$"

_UTC = frozenset({"UTC", "Z", "+00:00", "Etc/UTC"})

_WIDEST_DECIMAL = pa.decimal128(38, 0)
_DIGITS_BESIDE_DECIMAL = {INT: 10, types.LONG: 20}


def infer_type(raw: pa.StringArray) -> pa.DataType:
    """Return the common type of all values of a column, by the table above.

    >>> infer_type(pa.array(["01", "2"])), infer_type(pa.array(["1", "2024-03-01"]))
    (DataType(int32), DataType(string))
    """
    texts = pc.drop_null(pc.unique(raw))
    if len(texts) == 0:
        return types.STRING
    is_number = pc.match_substring_regex(texts, _NUMBER)
    others = texts.filter(pc.invert(is_number))
    numbers = _infer_number_types(texts.filter(is_number))
    if len(others) == 0:
        return _merge_number_types(numbers)
    if _are_all(pc.match_substring_regex(others, _DOUBLE)):
        return _merge_number_types(numbers | {types.DOUBLE})
    return types.STRING if numbers else _infer_time_type(others)


def _infer_number_types(texts: pa.StringArray) -> set[pa.DataType]:
    """Return the distinct types of strings that are numbers."""
    if len(texts) == 0:
        return set()
    found: set[pa.DataType] = set()
    precision = _count_integer_digits(texts)
    fits_decimal = pc.fill_null(pc.less_equal(precision, 38), False)
    if not _are_all(fits_decimal):
        found.add(types.DOUBLE)
    texts, precision = texts.filter(fits_decimal), precision.filter(fits_decimal)
    values = pc.cast(_strip_plus(texts), _WIDEST_DECIMAL)
    is_whole = pc.match_substring_regex(texts, _WHOLE)
    is_int, is_long = (pc.and_(is_whole, _is_within(values, data_type)) for data_type in (INT, types.LONG))
    if _is_any(is_int):
        found.add(INT)
    if _is_any(pc.and_not(is_long, is_int)):
        found.add(types.LONG)
    beyond = precision.filter(pc.invert(is_long))
    if len(beyond):
        found.add(pa.decimal128(pc.max(beyond).as_py(), 0))
    return found


def _count_integer_digits(texts: pa.StringArray) -> pa.Int64Array:
    """Return the number of digits of each integer, at least 1; null where the number has a fraction.

    Java's BigDecimal is `digits * 10^-scale`, whole where the scale is not above 0: `1.5e1` is 15, and `5.` is 5.
    """
    parts = pc.extract_regex(texts, _NUMBER_PARTS)
    whole, fraction, exponent = (pc.struct_field(parts, name) for name in ("whole", "fraction", "exponent"))
    power = pc.cast(pc.if_else(pc.equal(exponent, ""), "0", _strip_plus(exponent)), pa.int64())
    scale = pc.subtract(pc.cast(pc.utf8_length(fraction), pa.int64()), power)
    digits = pc.utf8_length(pc.utf8_ltrim(pc.binary_join_element_wise(whole, fraction, ""), characters="0"))
    precision = pc.subtract(pc.max_element_wise(pc.cast(digits, pa.int64()), 1), scale)
    return pc.if_else(pc.less_equal(scale, 0), precision, pa.scalar(None, pa.int64()))


def _is_within(values: pa.Array, data_type: pa.DataType) -> pa.BooleanArray:
    smallest, largest = (pa.scalar(limit).cast(_WIDEST_DECIMAL) for limit in types.get_integer_range(data_type))
    return pc.and_(pc.greater_equal(values, smallest), pc.less_equal(values, largest))


def _merge_number_types(found: set[pa.DataType]) -> pa.DataType:
    wider = found - {INT}
    if types.DOUBLE in found:
        return types.DOUBLE if wider == {types.DOUBLE} else types.STRING
    decimals = wider - {types.LONG}
    if not decimals:
        return types.LONG if wider else INT
    digits = {data_type.precision for data_type in decimals}
    digits |= {_DIGITS_BESIDE_DECIMAL[data_type] for data_type in found - decimals}
    return pa.decimal128(max(digits), 0)


def _infer_time_type(texts: pa.StringArray) -> pa.DataType:
    is_date = pc.match_substring_regex(texts, _DATE)
    if not _are_all(pc.or_(is_date, pc.match_substring_regex(texts, _TIMESTAMP))):
        return types.STRING
    data_type = types.DATE if _are_all(is_date) else types.TIMESTAMP
    try:
        _parse(texts, data_type)
    except pa.ArrowInvalid:  # the 30th of February
        return types.STRING
    return data_type


def add_partition_columns(data: pa.Schema, partitions: pa.Schema) -> pa.Schema:
    """Return the columns of a table: those of its files, then the partition columns.

    If files also store a partition column (in any case), the value of the directory wins, and the column keeps its
    position in the files. The directory is what the table was partitioned by; a file may hold anything under that name.
    """
    remaining = {field.name.lower(): field for field in partitions}
    plain = (field.with_type(replace_view_types(field.type)) for field in data.remove_metadata())
    fields = [remaining.pop(field.name.lower(), field) for field in plain]
    return pa.schema([*fields, *remaining.values()])


def to_partition_type(found: pa.DataType) -> pa.DataType | None:
    """Return the type of a partition column that files store as `found`; None if the directory names decide.

    The result is never binary or time of day, because their strings differ between writers.
    """
    plain = replace_view_types(found.value_type if pa.types.is_dictionary(found) else found)
    if types.is_text(plain):
        return types.STRING
    is_timestamp = pa.types.is_timestamp(plain) and (plain.tz is None or plain.tz in _UTC)
    is_plain = pa.types.is_integer(plain) or pa.types.is_floating(plain) or pa.types.is_decimal(plain)
    return plain if is_plain or is_timestamp or pa.types.is_boolean(plain) or pa.types.is_date32(plain) else None


def can_parse(raw: pa.StringArray, data_type: pa.DataType) -> bool:
    """Return whether all strings are valid for a type."""
    try:
        _parse(raw, data_type)
    except pa.ArrowInvalid:
        return False
    return True


def has_leading_zeros(raw: pa.StringArray, data_type: pa.DataType) -> bool:
    """Return whether some string has leading zeros that its value loses.

    >>> has_leading_zeros(pa.array(["01234"]), pa.int32()), has_leading_zeros(pa.array(["0", "0.5"]), pa.float64())
    (True, False)
    """
    if types.is_text(data_type) or not len(raw):
        return False
    is_number = pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)
    return is_number and _is_any(pc.match_substring_regex(raw, _ZEROS_LOST))


def check_declared(column: str, data_type: pa.DataType) -> None:
    """Raise InvalidArgument for a type that cannot be parsed from a string."""
    if _find_parser(data_type) is None:
        raise InvalidArgument(
            f"partition column {column!r} cannot be {types.type_name(data_type)}: declare a number, a string, "
            "binary, boolean, date or timestamp"
        )


def parse_values(raw: pa.StringArray, data_type: pa.DataType, column: str) -> pa.Array:
    """Parse the strings of a partition column to values of its type; null stays null.

    Times without a zone are UTC. Dates may also have the short forms of Spark's cast: `2024-3-1`, `2024-03`, `2024`.

    >>> parse_values(pa.array(["01", None]), pa.int32(), "hour").to_pylist()
    [1, None]
    """
    check_declared(column, data_type)
    try:
        return _parse(raw, data_type)
    except pa.ArrowInvalid as error:
        wrong = _find_first_invalid(raw, data_type)
        raise PartitionLayoutError(
            f"the value {wrong!r} of partition column {column!r} is not a valid {types.type_name(data_type)}. "
            f'Declare another type: partitioning={{"{column}": "string"}}, on the command line '
            f"--partitioning {column}=string"
        ) from error


def _find_first_invalid(raw: pa.StringArray, data_type: pa.DataType) -> str:
    """Find the first string that does not parse, by bisection: all before `low` parse, and one before `high` does
    not."""
    low, high = 0, len(raw)
    while high - low > 1:
        middle = (low + high) // 2
        try:
            _parse(raw.slice(low, middle - low), data_type)
        except pa.ArrowInvalid:
            high = middle
        else:
            low = middle
    return str(raw[low].as_py())


def _parse(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    parser = _find_parser(data_type)
    assert parser is not None, data_type
    if parser is not _parse_text:
        # pyarrow, Polars and DuckDB write the empty string unchanged; no other type has one.
        raw = pc.if_else(pc.equal(raw, ""), pa.scalar(None, raw.type), raw)
    return parser(raw, data_type)


Parser = Callable[[pa.StringArray, pa.DataType], pa.Array]


def _find_parser(data_type: pa.DataType) -> Parser | None:
    if types.is_text(data_type) or types.is_bytes(data_type):
        return _parse_text
    if pa.types.is_integer(data_type) or pa.types.is_decimal(data_type):
        return _parse_exact_number
    if pa.types.is_floating(data_type):
        return _parse_floating
    if pa.types.is_boolean(data_type):
        return pc.cast  # type: ignore[no-any-return]
    if pa.types.is_date(data_type):
        return _parse_date
    if pa.types.is_timestamp(data_type):
        return _parse_timestamp
    return None


def _parse_text(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    return pc.cast(pc.cast(raw, pa.binary()), data_type) if types.is_bytes(data_type) else pc.cast(raw, data_type)


def _parse_exact_number(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    # Arrow's cast also accepts hexadecimal numbers.
    _check_pattern(raw, _WHOLE if pa.types.is_integer(data_type) else _NUMBER)
    return pc.cast(_strip_plus(raw), data_type)


def _parse_floating(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    _check_pattern(raw, _DECLARED_DOUBLE)
    bare = pc.replace_substring_regex(raw, rf"^{_BLANKS}|{_BLANKS}$", "")
    bare = pc.replace_substring_regex(bare, r"([\d.])[fFdD]$", r"\1")
    return pc.cast(pc.cast(_strip_plus(bare), types.DOUBLE), data_type, safe=False)


def _parse_date(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    padded = pc.replace_substring_regex(raw, r"^(\d{4})-(\d)(-|$)", r"\1-0\2\3")
    padded = pc.replace_substring_regex(padded, r"^(\d{4}-\d{2})-(\d)$", r"\1-0\2")
    padded = pc.replace_substring_regex(padded, r"^(\d{4})$", r"\1-01")
    padded = pc.replace_substring_regex(padded, r"^(\d{4}-\d{2})$", r"\1-01")
    return pc.cast(_check_all_read(padded, parse_dates(padded)), data_type)


def _parse_timestamp(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    if data_type.unit == "us":
        # Any year in the type's range; digits beyond the microsecond are truncated, as in Spark.
        target = types.TIMESTAMP if data_type.tz is not None else types.TIMESTAMP_NTZ
        return pc.cast(_check_all_read(raw, parse_timestamps(raw, target)), data_type)
    naive_type = pa.timestamp(data_type.unit)
    if data_type.tz is None:
        return pc.cast(raw, naive_type)
    nothing = pa.scalar(None, raw.type)
    has_zone = pc.match_substring_regex(raw, _ZONE)
    zoned = pc.cast(pc.if_else(has_zone, raw, nothing), data_type)
    naive = pc.cast(pc.if_else(has_zone, nothing, raw), naive_type)
    return pc.coalesce(zoned, pc.cast(pc.assume_timezone(naive, "UTC"), data_type))


def _check_all_read(texts: pa.StringArray, values: pa.Array) -> pa.Array:
    if values.null_count != texts.null_count:
        raise pa.ArrowInvalid(f"a string is not a valid {values.type}")
    return values


def _check_pattern(raw: pa.StringArray, pattern: str) -> None:
    if not _are_all(pc.match_substring_regex(raw, pattern)):
        raise pa.ArrowInvalid(f"a string does not match {pattern}")


def _strip_plus(texts: pa.StringArray) -> pa.StringArray:
    # Arrow's cast rejects a leading plus.
    return pc.utf8_ltrim(texts, characters="+")


def _are_all(booleans: pa.BooleanArray) -> bool:
    """Return whether no value is false."""
    return bool(pc.all(booleans, min_count=0).as_py())


def _is_any(booleans: pa.BooleanArray) -> bool:
    return bool(pc.any(booleans, min_count=0).as_py())
