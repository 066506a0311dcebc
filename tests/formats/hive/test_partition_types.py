"""Types of partition columns: H4 (strings are kept), H5 (inferred as in Spark, a declared type wins)."""

import datetime
import itertools
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tamis import types
from tamis.errors import InvalidArgument, PartitionLayoutError
from tamis.formats.hive.partition_types import add_partition_columns, infer_type, parse_values

INT, LONG, DOUBLE, STRING, DATE, TIMESTAMP = (
    pa.int32(), types.LONG, types.DOUBLE, types.STRING, types.DATE, types.TIMESTAMP,
)  # fmt: skip


def make_texts(*values: str | None) -> pa.StringArray:
    return pa.array(values, pa.string())


ONE_VALUE = [
    ("0", INT), ("7", INT), ("-7", INT), ("+7", INT), ("007", INT), ("-0", INT), ("0" * 30, INT),
    ("2147483647", INT), ("2147483648", LONG), ("-2147483648", INT), ("-2147483649", LONG),
    ("9223372036854775807", LONG), ("-9223372036854775808", LONG),
    ("9223372036854775808", pa.decimal128(19, 0)), ("-9223372036854775809", pa.decimal128(19, 0)),
    ("9" * 38, pa.decimal128(38, 0)), ("9" * 39, DOUBLE),
    ("1e5", pa.decimal128(6, 0)), ("1.5e1", pa.decimal128(2, 0)), ("5.", pa.decimal128(1, 0)),
    ("1.5", DOUBLE), (".5", DOUBLE), ("-1.55e1", DOUBLE), ("1e-3", DOUBLE), ("1e400", DOUBLE), ("1e99999", DOUBLE),
    ("NaN", DOUBLE), ("Infinity", DOUBLE), ("-Infinity", DOUBLE), ("4d", DOUBLE), ("4F", DOUBLE), (" 15", DOUBLE),
    ("nan", STRING), ("inf", STRING), (".", STRING), ("+", STRING), ("-", STRING), ("1_000", STRING),
    ("0x10", STRING), ("1,5", STRING), ("١", STRING), ("true", STRING), ("e5", STRING), ("", STRING),
    ("2024-03-01", DATE), ("1969-12-31", DATE), ("0001-01-01", DATE),
    ("2024-02-30", STRING), ("2024-3-1", STRING), ("2024-03", STRING), ("20240301", INT), ("2024-03-01x", STRING),
    ("2024-03-01 10:30:00", TIMESTAMP), ("2024-03-01 10:30:00.5", TIMESTAMP),
    ("2024-03-01 10:30:00.123456789", TIMESTAMP), ("2024-03-01 25:00:00", STRING),
    ("2024-03-01T10:30:00", STRING), ("2024-03-01 10:30", STRING), ("2024-03-01 10:30:00Z", STRING),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), ONE_VALUE)
def test_H5_one_value_has_the_type_that_spark_infers(text: str, expected: pa.DataType) -> None:
    assert infer_type(make_texts(text)) == expected
    assert infer_type(make_texts(None, text, text)) == expected


BIG = "12345678901234567890"  # twenty digits
SAMPLES = {"int": "1", "long": "3000000000", "decimal": BIG, "double": "1.5", "date": "2024-03-01",
           "timestamp": "2024-03-01 10:00:00", "string": "x"}  # fmt: skip
PAIRS = {
    ("int", "long"): LONG, ("int", "decimal"): pa.decimal128(20, 0), ("int", "double"): DOUBLE,
    ("long", "decimal"): pa.decimal128(20, 0), ("date", "timestamp"): TIMESTAMP,
}  # fmt: skip
"""Where Spark finds a type wider than both; for every other two kinds it is string."""


@pytest.mark.parametrize(("left", "right"), list(itertools.combinations(SAMPLES, 2)))
def test_H5_two_types_become_the_wider_one_or_string(left: str, right: str) -> None:
    expected = PAIRS.get((left, right), STRING)
    assert infer_type(make_texts(SAMPLES[left], SAMPLES[right])) == expected
    assert infer_type(make_texts(SAMPLES[right], None, SAMPLES[left])) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (("1", "3000000000", "1.5"), STRING),
        (("1", "3000000000", BIG), pa.decimal128(20, 0)),
        (("1", "9223372036854775808"), pa.decimal128(19, 0)),
        (("3000000000", "9223372036854775808"), pa.decimal128(20, 0)),
        (("1", "1e5"), pa.decimal128(10, 0)),
        (("9" * 39, BIG), STRING),
        (("9" * 39, "1"), DOUBLE),
        (("1", "NaN"), DOUBLE),
        (("2024-03-01", "2024-03-01 10:00:00", "x"), STRING),
        (("2024-03-01", "2024-02-30"), STRING),
        ((None, None), STRING),
        ((), STRING),
    ],
)
def test_H5_three_types_and_none(values: tuple[str | None, ...], expected: pa.DataType) -> None:
    for order in itertools.permutations(values):
        assert infer_type(make_texts(*order)) == expected


@pytest.mark.parametrize(("text", "expected"), ONE_VALUE)
def test_H5_every_inferred_type_can_parse_what_it_was_inferred_from(text: str, expected: pa.DataType) -> None:
    parsed = parse_values(make_texts(text, None), expected, "c")
    assert parsed.type == expected
    assert (parsed.null_count, parsed[0].is_valid) == (1, True)


def test_H4_leading_zeros_are_kept_for_a_string_and_dropped_for_a_number() -> None:
    assert parse_values(make_texts("01", "1"), STRING, "hour").to_pylist() == ["01", "1"]
    assert parse_values(make_texts("01", "1"), INT, "hour").to_pylist() == [1, 1]
    # A conflict makes all of them strings, as they were written.
    mixed = make_texts("-0", "00", "AA")
    assert parse_values(mixed, infer_type(mixed), "hour").to_pylist() == ["-0", "00", "AA"]


UTC = datetime.UTC
PARSED: list[tuple[str, pa.DataType, Any]] = [
    ("+7", pa.int8(), 7),
    ("-128", pa.int8(), -128),
    ("18446744073709551615", pa.uint64(), 2**64 - 1),
    ("1.5", pa.float32(), 1.5),
    ("4d", DOUBLE, 4.0),
    (" -Infinity\t", DOUBLE, -math.inf),
    ("-inf", DOUBLE, -math.inf),
    ("", INT, None),
    ("", DATE, None),
    ("", pa.bool_(), None),
    ("", types.STRING, ""),
    ("+1.50", pa.decimal128(5, 1), Decimal("1.5")),
    ("1e5", pa.decimal128(10, 0), Decimal(100000)),
    ("TRUE", pa.bool_(), True),
    ("x", pa.binary(), b"x"),
    ("x", pa.large_string(), "x"),
    ("2024-3-1", DATE, datetime.date(2024, 3, 1)),
    ("2024-03", DATE, datetime.date(2024, 3, 1)),
    ("2024", DATE, datetime.date(2024, 1, 1)),
    ("1969-12-31", pa.date64(), datetime.date(1969, 12, 31)),
    ("2024-03-01 10:30:00.123456789", TIMESTAMP, datetime.datetime(2024, 3, 1, 10, 30, 0, 123456, UTC)),
    ("2024-03-01", TIMESTAMP, datetime.datetime(2024, 3, 1, tzinfo=UTC)),
    ("2024-03-01T10:30:00Z", TIMESTAMP, datetime.datetime(2024, 3, 1, 10, 30, tzinfo=UTC)),
    ("2024-03-01 10:30:00+02:00", TIMESTAMP, datetime.datetime(2024, 3, 1, 8, 30, tzinfo=UTC)),
    ("2024-03-01 10:30:00", types.TIMESTAMP_NTZ, datetime.datetime(2024, 3, 1, 10, 30)),
    ("2024-03-01 10:30:00.123", pa.timestamp("ms"), datetime.datetime(2024, 3, 1, 10, 30, 0, 123000)),
]


@pytest.mark.parametrize(("text", "data_type", "value"), PARSED)
def test_H5_a_declared_type_wins_and_reads_what_spark_reads(text: str, data_type: pa.DataType, value: Any) -> None:
    parsed = parse_values(make_texts(text), data_type, "c")
    assert parsed.type == data_type
    assert parsed[0].as_py() == value


@pytest.mark.parametrize(
    ("values", "data_type", "wrong"),
    [
        (("1", "2", "x", "4", "y"), INT, "x"),
        (("1", "0x10"), INT, "0x10"),
        (("300",), pa.int8(), "300"),
        (("-1",), pa.uint8(), "-1"),
        (("1", " 2"), INT, " 2"),
        (("1.5", "nano"), DOUBLE, "nano"),
        (("1.55",), pa.decimal128(5, 1), "1.55"),
        (("2024-03-01", "2024-02-30"), DATE, "2024-02-30"),
        (("2024-03-01 10:00:00+01:00",), types.TIMESTAMP_NTZ, "2024-03-01 10:00:00+01:00"),
        (("perhaps",), pa.bool_(), "perhaps"),
    ],
)
def test_H5_the_error_for_an_invalid_value_names_column_value_and_remedy(
    values: tuple[str, ...], data_type: pa.DataType, wrong: str
) -> None:
    with pytest.raises(PartitionLayoutError) as caught:
        parse_values(make_texts(None, *values), data_type, "hour")
    message = str(caught.value)
    assert f"the value {wrong!r} of partition column 'hour' is not a valid " in message
    assert 'partitioning={"hour": "string"}' in message
    assert message.endswith("on the command line --partitioning hour=string")


def test_a_type_that_cannot_be_parsed_is_rejected() -> None:
    with pytest.raises(InvalidArgument, match="partition column 'a' cannot be array"):
        parse_values(make_texts("1"), pa.list_(pa.int8()), "a")


def test_H6_a_column_of_both_files_and_directories_is_the_partition_column_whatever_its_case() -> None:
    data = pa.schema([("id", LONG), ("Day", STRING), ("x", DOUBLE)], metadata={"a": "b"})
    partitions = pa.schema([("region", STRING), ("day", DATE)])
    merged = add_partition_columns(data, partitions)
    assert merged == pa.schema([("id", LONG), ("day", DATE), ("x", DOUBLE), ("region", STRING)])
    assert merged.metadata is None
