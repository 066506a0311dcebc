r"""Types of partition columns: declared by the user, or inferred from the values as Spark does.

Each value has the first type of this list that it parses as, and then all types of a column become one:

| type        | a value such as                                                                        |
|-------------|----------------------------------------------------------------------------------------|
| `int`       | `7`, `-7`, `+7`, `007`                                                                  |
| `bigint`    | a whole number beyond 32 bits                                                           |
| `decimal`   | a whole number beyond 64 bits, up to 38 digits; also `1e5`                              |
| `double`    | `1.5`, `NaN`, `-Infinity`, and, as Java has it, `1d` and `1f`                           |
| `timestamp` | `2024-03-01 10:30:00`, `2024-03-01 10:30:00.5`                                          |
| `date`      | `2024-03-01`                                                                            |
| `string`    | everything else                                                                         |

    int    < bigint < decimal       whole numbers take the widest
    int    + double    = double     every int is a double
    bigint + double    = string     (decimal alike) a double would lose digits
    date   + timestamp = timestamp
    any other two      = string
    NULL   + anything  = the other; only NULLs = string
    an empty text      = string: writers write one for texts alone

A column keeps its text beside its value, so that `hour=01` is '01' where a string is asked for. A column that files
store too has the type that it has there, if that is one that all texts can have: a writer that keeps the column in its
files knows more than its directories tell. The empty text is '' for a column of texts, and NULL for any other.
Spark also takes digits of other scripts and hexadecimal floats for numbers; here they are strings.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, PartitionLayoutError
from tamis.expr.time_texts import read_dates, read_timestamps
from tamis.types import without_views

INT = pa.int32()

_WHOLE = r"^[+-]?\d+$"
_DIGITS = r"(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_NUMBER = rf"^[+-]?{_DIGITS}$"
_NUMBER_PARTS = r"^[+-]?(?P<whole>\d*)(?:\.(?P<fraction>\d*))?(?:[eE](?P<exponent>[+-]?\d{1,4}))?$"
# Java's parseDouble leaves out control characters and blanks around the number.
_BLANKS = r"[\x00-\x20]*"
_DOUBLE = rf"^{_BLANKS}[+-]?(?:NaN|Infinity|{_DIGITS}[fFdD]?){_BLANKS}$"
# pyarrow and DuckDB write nan and inf; Spark's cast takes them, its inference does not.
_DECLARED_DOUBLE = rf"^{_BLANKS}[+-]?(?:(?i:nan|inf|infinity)|{_DIGITS}[fFdD]?){_BLANKS}$"
_DATE = r"^\d{4}-\d{2}-\d{2}$"
_TIMESTAMP = r"^\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2}(?:\.\d{1,9})?$"
_ZONE = r":\d{2}(?:\.\d+)? ?(?:Z|[+-]\d{2}(?::?\d{2})?)$"

_ZEROS_LOST = r"^[+-]?0\d+$"

_UTC = frozenset({"UTC", "Z", "+00:00", "Etc/UTC"})

_WIDEST_DECIMAL = pa.decimal128(38, 0)
_DIGITS_BESIDE_DECIMAL = {INT: 10, types.LONG: 20}


def infer_type(raw: pa.StringArray) -> pa.DataType:
    """The one type of all values of a column, by the table above.

    >>> infer_type(pa.array(["01", "2"])), infer_type(pa.array(["1", "2024-03-01"]))
    (DataType(int32), DataType(string))
    """
    texts = pc.drop_null(pc.unique(raw))
    if len(texts) == 0:
        return types.STRING
    is_number = pc.match_substring_regex(texts, _NUMBER)
    others = texts.filter(pc.invert(is_number))
    numbers = _number_types(texts.filter(is_number))
    if len(others) == 0:
        return _widest_number(numbers)
    if _all(pc.match_substring_regex(others, _DOUBLE)):
        return _widest_number(numbers | {types.DOUBLE})
    return types.STRING if numbers else _time_type(others)


def _number_types(texts: pa.StringArray) -> set[pa.DataType]:
    """The distinct types of texts that are numbers."""
    if len(texts) == 0:
        return set()
    found: set[pa.DataType] = set()
    precision = _whole_digits(texts)
    fits_decimal = pc.fill_null(pc.less_equal(precision, 38), False)
    if not _all(fits_decimal):
        found.add(types.DOUBLE)
    texts, precision = texts.filter(fits_decimal), precision.filter(fits_decimal)
    values = pc.cast(_without_plus(texts), _WIDEST_DECIMAL)
    is_whole = pc.match_substring_regex(texts, _WHOLE)
    is_int, is_long = (pc.and_(is_whole, _within(values, data_type)) for data_type in (INT, types.LONG))
    if _any(is_int):
        found.add(INT)
    if _any(pc.and_not(is_long, is_int)):
        found.add(types.LONG)
    beyond = precision.filter(pc.invert(is_long))
    if len(beyond):
        found.add(pa.decimal128(pc.max(beyond).as_py(), 0))
    return found


def _whole_digits(texts: pa.StringArray) -> pa.Int64Array:
    """How many digits a number has as a whole number, at least 1; null where it has a fraction.

    Java's BigDecimal is `digits * 10^-scale`, whole where the scale is not above 0: `1.5e1` is 15, and `5.` is 5.
    """
    parts = pc.extract_regex(texts, _NUMBER_PARTS)
    whole, fraction, exponent = (pc.struct_field(parts, name) for name in ("whole", "fraction", "exponent"))
    power = pc.cast(pc.if_else(pc.equal(exponent, ""), "0", _without_plus(exponent)), pa.int64())
    scale = pc.subtract(pc.cast(pc.utf8_length(fraction), pa.int64()), power)
    digits = pc.utf8_length(pc.utf8_ltrim(pc.binary_join_element_wise(whole, fraction, ""), characters="0"))
    precision = pc.subtract(pc.max_element_wise(pc.cast(digits, pa.int64()), 1), scale)
    return pc.if_else(pc.less_equal(scale, 0), precision, pa.scalar(None, pa.int64()))


def _within(values: pa.Array, data_type: pa.DataType) -> pa.BooleanArray:
    smallest, largest = (pa.scalar(limit).cast(_WIDEST_DECIMAL) for limit in types.integer_range(data_type))
    return pc.and_(pc.greater_equal(values, smallest), pc.less_equal(values, largest))


def _widest_number(found: set[pa.DataType]) -> pa.DataType:
    wider = found - {INT}
    if types.DOUBLE in found:
        return types.DOUBLE if wider == {types.DOUBLE} else types.STRING
    decimals = wider - {types.LONG}
    if not decimals:
        return types.LONG if wider else INT
    digits = {data_type.precision for data_type in decimals}
    digits |= {_DIGITS_BESIDE_DECIMAL[data_type] for data_type in found - decimals}
    return pa.decimal128(max(digits), 0)


def _time_type(texts: pa.StringArray) -> pa.DataType:
    is_date = pc.match_substring_regex(texts, _DATE)
    if not _all(pc.or_(is_date, pc.match_substring_regex(texts, _TIMESTAMP))):
        return types.STRING
    data_type = types.DATE if _all(is_date) else types.TIMESTAMP
    try:
        _parse(texts, data_type)
    except pa.ArrowInvalid:  # the 30th of February
        return types.STRING
    return data_type


def with_partition_columns(data: pa.Schema, partitions: pa.Schema) -> pa.Schema:
    """The columns of a table: those of its files, then the partition columns.

    A column that is both, whatever its case, is the partition column, in the place that the files give it: the
    directory is what the table was partitioned by, and a file may hold anything under that name.
    """
    remaining = {field.name.lower(): field for field in partitions}
    plain = (field.with_type(without_views(field.type)) for field in data.remove_metadata())
    fields = [remaining.pop(field.name.lower(), field) for field in plain]
    return pa.schema([*fields, *remaining.values()])


def stored_type(found: pa.DataType) -> pa.DataType | None:
    """The type that a partition column has where files store it as `found`; None where directories decide alone.

    Bytes and times of day are not among them: their texts differ from writer to writer.
    """
    plain = without_views(found.value_type if pa.types.is_dictionary(found) else found)
    if types.is_text(plain):
        return types.STRING
    is_timestamp = pa.types.is_timestamp(plain) and (plain.tz is None or plain.tz in _UTC)
    is_plain = pa.types.is_integer(plain) or pa.types.is_floating(plain) or pa.types.is_decimal(plain)
    return plain if is_plain or is_timestamp or pa.types.is_boolean(plain) or pa.types.is_date32(plain) else None


def can_parse(raw: pa.StringArray, data_type: pa.DataType) -> bool:
    """Whether all texts are values of a type."""
    try:
        _parse(raw, data_type)
    except pa.ArrowInvalid:
        return False
    return True


def loses_zeros(raw: pa.StringArray, data_type: pa.DataType) -> bool:
    """Whether some text begins with zeros that its value does not have.

    >>> loses_zeros(pa.array(["01234"]), pa.int32()), loses_zeros(pa.array(["0", "0.5"]), pa.float64())
    (True, False)
    """
    if types.is_text(data_type) or not len(raw):
        return False
    is_number = pa.types.is_integer(data_type) or pa.types.is_floating(data_type) or pa.types.is_decimal(data_type)
    return is_number and _any(pc.match_substring_regex(raw, _ZEROS_LOST))


def check_declared(column: str, data_type: pa.DataType) -> None:
    """An error for a type that no text can have."""
    if _parser(data_type) is None:
        raise InvalidArgument(
            f"partition column {column!r} cannot be {types.type_name(data_type)}: declare a number, a string, "
            "binary, boolean, date or timestamp"
        )


def parse_values(raw: pa.StringArray, data_type: pa.DataType, column: str) -> pa.Array:
    """The texts of a partition column as values of its type; null stays null.

    Times without a zone are UTC. A date may also be written as Spark's casts take it: `2024-3-1`, `2024-03`, `2024`.

    >>> parse_values(pa.array(["01", None]), pa.int32(), "hour").to_pylist()
    [1, None]
    """
    check_declared(column, data_type)
    try:
        return _parse(raw, data_type)
    except pa.ArrowInvalid as error:
        wrong = _first_wrong(raw, data_type)
        raise PartitionLayoutError(
            f"the value {wrong!r} of partition column {column!r} is not of type {types.type_name(data_type)}. "
            f'Declare another type: partitioning={{"{column}": "string"}}, on the command line '
            f"--partitioning {column}=string"
        ) from error


def _first_wrong(raw: pa.StringArray, data_type: pa.DataType) -> str:
    """The first text that does not parse, found by halving: all before `low` parse, and up to `high` one does not."""
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
    parser = _parser(data_type)
    assert parser is not None, data_type
    if parser is not _parse_text:
        # pyarrow, Polars and DuckDB write the empty text as it is; no other type has one.
        raw = pc.if_else(pc.equal(raw, ""), pa.scalar(None, raw.type), raw)
    return parser(raw, data_type)


Parser = Callable[[pa.StringArray, pa.DataType], pa.Array]


def _parser(data_type: pa.DataType) -> Parser | None:
    if types.is_text(data_type) or types.is_bytes(data_type):
        return _parse_text
    if pa.types.is_integer(data_type):
        return _parse_whole
    if pa.types.is_floating(data_type):
        return _parse_floating
    if pa.types.is_decimal(data_type):
        return _parse_decimal
    if pa.types.is_boolean(data_type):
        return _parse_boolean
    if pa.types.is_date(data_type):
        return _parse_date
    if pa.types.is_timestamp(data_type):
        return _parse_timestamp
    return None


def _parse_text(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    return pc.cast(pc.cast(raw, pa.binary()), data_type) if types.is_bytes(data_type) else pc.cast(raw, data_type)


def _parse_boolean(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    return pc.cast(raw, data_type)


def _parse_whole(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    # Arrow alone would also take hexadecimal numbers.
    _require(raw, _WHOLE)
    return pc.cast(_without_plus(raw), data_type)


def _parse_floating(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    _require(raw, _DECLARED_DOUBLE)
    bare = pc.replace_substring_regex(raw, rf"^{_BLANKS}|{_BLANKS}$", "")
    bare = pc.replace_substring_regex(bare, r"([\d.])[fFdD]$", r"\1")
    return pc.cast(pc.cast(_without_plus(bare), types.DOUBLE), data_type, safe=False)


def _parse_decimal(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    _require(raw, _NUMBER)
    return pc.cast(_without_plus(raw), data_type)


def _parse_date(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    padded = pc.replace_substring_regex(raw, r"^(\d{4})-(\d)(-|$)", r"\1-0\2\3")
    padded = pc.replace_substring_regex(padded, r"^(\d{4}-\d{2})-(\d)$", r"\1-0\2")
    padded = pc.replace_substring_regex(padded, r"^(\d{4})$", r"\1-01")
    padded = pc.replace_substring_regex(padded, r"^(\d{4}-\d{2})$", r"\1-01")
    return pc.cast(_all_read(padded, read_dates(padded)), data_type)


def _parse_timestamp(raw: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    if data_type.unit == "us":
        # Any year that the type can hold; digits beyond the microsecond are cut, as Spark cuts them.
        target = types.TIMESTAMP if data_type.tz is not None else types.TIMESTAMP_NTZ
        return pc.cast(_all_read(raw, read_timestamps(raw, target)), data_type)
    naive_type = pa.timestamp(data_type.unit)
    if data_type.tz is None:
        return pc.cast(raw, naive_type)
    nothing = pa.scalar(None, raw.type)
    has_zone = pc.match_substring_regex(raw, _ZONE)
    zoned = pc.cast(pc.if_else(has_zone, raw, nothing), data_type)
    naive = pc.cast(pc.if_else(has_zone, nothing, raw), naive_type)
    return pc.coalesce(zoned, pc.cast(pc.assume_timezone(naive, "UTC"), data_type))


def _all_read(texts: pa.StringArray, values: pa.Array) -> pa.Array:
    if values.null_count != texts.null_count:
        raise pa.ArrowInvalid(f"a text is no {values.type}")
    return values


def _require(raw: pa.StringArray, pattern: str) -> None:
    if not _all(pc.match_substring_regex(raw, pattern)):
        raise pa.ArrowInvalid(f"a text does not match {pattern}")


def _without_plus(texts: pa.StringArray) -> pa.StringArray:
    # Arrow does not take a leading plus.
    return pc.utf8_ltrim(texts, characters="+")


def _all(booleans: pa.BooleanArray) -> bool:
    """Whether no value is false."""
    return bool(pc.all(booleans, min_count=0).as_py())


def _any(booleans: pa.BooleanArray) -> bool:
    return bool(pc.any(booleans, min_count=0).as_py())
