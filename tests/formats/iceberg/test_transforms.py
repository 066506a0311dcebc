"""The inverse of partition transforms: values are within the bounds of their pyiceberg partition values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyiceberg import transforms as theirs
from pyiceberg import types as iceberg

from tamis.skipping.transforms import Transform, compute_buckets

INTS = st.integers(-(2**31), 2**31 - 1)
SOME_INTS = st.integers(-(2**31) + 10, 2**31 - 1)
LONGS = st.integers(-(2**63), 2**63 - 1)
SOME_LONGS = st.integers(-(2**63) + 10, 2**63 - 1)
SOME_UNSCALED = st.integers(-(10**9) + 100, 10**9 - 1)
TIMESTAMPS = st.integers(-(10**16), 10**16)
NANOSECONDS = st.integers(-(9 * 10**18), 9 * 10**18)
DAYS = st.integers(-700_000, 2_000_000)
TEXTS = st.text(st.sampled_from("ab\u00e9\uffff\U0010ffff\0"), max_size=6)

Case = tuple[Any, pa.DataType, Any, str, st.SearchStrategy[Any]]
CASES: list[Case] = [
    (iceberg.IntegerType(), pa.int32(), theirs.IdentityTransform(), "identity", INTS),
    (iceberg.IntegerType(), pa.int32(), theirs.TruncateTransform(10), "truncate[10]", SOME_INTS),
    (iceberg.LongType(), pa.int64(), theirs.TruncateTransform(7), "truncate[7]", SOME_LONGS),
    (iceberg.StringType(), pa.string(), theirs.TruncateTransform(2), "truncate[2]", TEXTS),
    (iceberg.BinaryType(), pa.binary(), theirs.TruncateTransform(2), "truncate[2]", st.binary(max_size=4)),
    (iceberg.DecimalType(9, 2), pa.decimal128(9, 2), theirs.TruncateTransform(50), "truncate[50]", SOME_UNSCALED),
    *((iceberg.DateType(), pa.date32(), each, str(each), DAYS) for each in
      (theirs.YearTransform(), theirs.MonthTransform(), theirs.DayTransform())),
    *((iceberg.TimestampType(), pa.timestamp("us"), each, str(each), TIMESTAMPS) for each in
      (theirs.YearTransform(), theirs.MonthTransform(), theirs.DayTransform(), theirs.HourTransform())),
    *((iceberg.TimestamptzNanoType(), pa.timestamp("ns", "UTC"), each, str(each), NANOSECONDS) for each in
      (theirs.YearTransform(), theirs.MonthTransform(), theirs.DayTransform(), theirs.HourTransform())),
]  # fmt: skip


def make_decimal(unscaled: int, scale: int) -> Decimal:
    """Return a decimal without the rounding of Python's decimal context."""
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def make_array(values: list[Any], data_type: pa.DataType) -> pa.Array:
    if pa.types.is_temporal(data_type):
        plain = pa.int32() if data_type.bit_width == 32 else pa.int64()
        return pa.array(values, plain).view(data_type)
    if pa.types.is_decimal(data_type):
        return pa.array([None if each is None else make_decimal(each, data_type.scale) for each in values], data_type)
    return pa.array(values, data_type)


def to_plain(values: pa.Array) -> list[Any]:
    if pa.types.is_temporal(values.type):
        return list(values.view(pa.int32() if values.type.bit_width == 32 else pa.int64()).to_pylist())
    return list(values.to_pylist())


@pytest.mark.parametrize(("kind", "data_type", "their", "text", "values"), CASES, ids=[f"{c[3]}-{c[0]}" for c in CASES])
@pytest.mark.one_in(3)
def test_T6_a_value_is_within_the_bounds_of_its_partition(
    kind: Any, data_type: pa.DataType, their: Any, text: str, values: st.SearchStrategy[Any]
) -> None:
    ours = Transform.parse(text)
    function = their.transform(kind)
    result = ours.result_type(data_type)
    assert result is not None

    @given(st.lists(values, min_size=1, max_size=8))
    @settings(max_examples=80, deadline=None)
    def check(drawn: list[Any]) -> None:
        if pa.types.is_decimal(data_type):
            drawn = [make_decimal(each, data_type.scale) for each in drawn]
            source = pa.array(drawn, data_type)
        else:
            source = make_array(drawn, data_type)
        partitions = pa.array([function(each) for each in drawn], result if not pa.types.is_temporal(result) else None)
        if pa.types.is_temporal(result):
            partitions = partitions.cast(pa.int32()).view(result)
        lower, upper = ours.lower(partitions, data_type), ours.upper(partitions, data_type)
        assert lower is not None
        assert upper is not None
        assert lower.type == upper.type == data_type
        for value, low, high in zip(to_plain(source), to_plain(lower), to_plain(upper), strict=True):
            assert low is None or low <= value
            assert high is None or value <= high

    check()


@pytest.mark.parametrize(("unit", "kind"), [("us", iceberg.TimestampType()), ("ns", iceberg.TimestampNanoType())])
@pytest.mark.parametrize("name", ["year", "month", "day", "hour"])
def test_bounds_of_a_period_after_1970_are_its_first_and_last_instant(unit: str, kind: Any, name: str) -> None:
    ours, their = Transform.parse(name), getattr(theirs, f"{name.title()}Transform")().transform(kind)
    periods = pa.array([1, 13, 54], pa.int32())
    source = pa.timestamp(unit)
    lower, upper = ours.lower(periods, source), ours.upper(periods, source)
    assert lower is not None
    assert upper is not None
    for period, low, high in zip(periods.to_pylist(), to_plain(lower), to_plain(upper), strict=True):
        assert (their(low), their(high)) == (period, period)
        assert (their(low - 1), their(high + 1)) == (period - 1, period + 1)


def test_T6_periods_up_to_1970_may_contain_values_rounded_towards_it() -> None:
    day, hour = Transform("day"), Transform("hour")
    source = pa.timestamp("us")
    lower = day.lower(pa.array([0, -1, 1], pa.int32()), source)
    assert lower is not None
    assert to_plain(lower) == [-86_400_000_000, -2 * 86_400_000_000, 86_400_000_000]
    upper = hour.upper(pa.array([0, -1], pa.int32()), source)
    assert upper is not None
    assert to_plain(upper) == [3_600_000_000 - 1, -1]
    # A day of a date is the date itself.
    dates = day.lower(pa.array([0, -1], pa.int32()), pa.date32())
    assert dates is not None
    assert to_plain(dates) == [0, -1]


def test_periods_out_of_range_of_a_type_are_unknown() -> None:
    hours = Transform("hour").upper(pa.array([2**31 - 2, None], pa.int32()), pa.timestamp("ns"))
    assert hours is not None
    assert to_plain(hours) == [None, None]
    years = Transform("year").lower(pa.array([2**31 - 2], pa.int32()), pa.date32())
    assert years is not None
    assert to_plain(years) == [None]


def test_bounds_of_truncated_numbers_stay_in_range() -> None:
    upper = Transform("truncate", 10).upper(pa.array([2**31 - 8, None, -10], pa.int32()), pa.int32())
    assert upper is not None
    assert upper.to_pylist() == [2**31 - 1, None, -1]
    widest = Transform("truncate", 9_999_999_999).upper(pa.array([-(2**31), 0], pa.int32()), pa.int32())
    assert widest is not None
    assert widest.to_pylist() == [2**31 - 1, 2**31 - 1]
    values = pa.array([Decimal("9.95"), Decimal("-10.00")], pa.decimal128(38, 2))
    money = Transform("truncate", 500)
    lower, upper = money.lower(values, pa.decimal128(3, 2)), money.upper(values, pa.decimal128(3, 2))
    assert lower is not None
    assert upper is not None
    assert lower.to_pylist() == [Decimal("9.95"), Decimal("-9.99")]
    assert upper.to_pylist() == [Decimal("9.99"), Decimal("-5.01")]


def test_T4_the_smallest_numbers_overflow_when_truncated() -> None:
    lower = Transform("truncate", 10).lower(pa.array([2**63 - 4, 2**63 - 18, -20], pa.int64()), pa.int64())
    assert lower is not None
    assert lower.to_pylist() == [None, 2**63 - 18, -20]
    # A column of type long may have been written as an int.
    for source in (pa.int32(), pa.int64()):
        lower = Transform("truncate", 10).lower(pa.array([2**31 - 2, 2**31 - 18], source), source)
        assert lower is not None
        assert lower.to_pylist() == [None, 2**31 - 18]
    lower = Transform("truncate", 10).lower(pa.array([2**31], pa.int64()), pa.int64())
    assert lower is not None
    assert lower.to_pylist() == [2**31]


@pytest.mark.parametrize(
    ("source", "smallest", "largest", "lower"),
    [
        (pa.int32(), 0, 2**31 - 2, None),
        (pa.int32(), 0, 2**31 - 18, 0),
        (pa.int32(), 0, None, None),
        (pa.int64(), 0, 2**31 - 2, None),
        (pa.int64(), 0, 2**40, None),
        (pa.int64(), 0, 2**31 - 18, 0),
        (pa.int64(), 2**31 + 2, 2**40, 2**31 + 2),
        (pa.int64(), 2**31 + 2, 2**63 - 4, None),
    ],
)
def test_T4_a_range_that_may_have_overflowed_has_no_lower_bound(
    source: pa.DataType, smallest: int, largest: int | None, lower: int | None
) -> None:
    found = Transform("truncate", 10).lower(pa.array([smallest], source), source, pa.array([largest], source))
    assert found is not None
    assert found.to_pylist() == [lower]


def test_S8_truncated_texts_end_before_the_next_prefix() -> None:
    upper = Transform("truncate", 2).upper(
        pa.array(["ab", "a", "", "a\U0010ffff", "\U0010ffff\U0010ffff"]), pa.string()
    )
    assert upper is not None
    assert upper.to_pylist() == ["ac", "a", "", "b", None]
    binary = Transform("truncate", 2).upper(pa.array([b"a\xff", b"\xff\xff", b"z"]), pa.binary())
    assert binary is not None
    assert binary.to_pylist() == [b"b", None, b"z"]


@pytest.mark.parametrize(
    "text",
    [
        "void",
        "zorder",
        "bucket",
        "bucket[0]",
        "bucket[2147483648]",
        "day[3]",
        "truncate[x]",
        "truncate[9999999999]",
        "",
    ],
)
def test_I2_unknown_transforms_give_no_bounds(text: str) -> None:
    found = Transform.parse(text)
    assert found.kind == ("void" if text == "void" else "unknown")
    assert not found.preserves_null
    assert found.result_type(pa.int32()) is None
    assert found.lower(pa.array([1]), pa.int32()) is None


@pytest.mark.parametrize(
    ("text", "source"),
    [
        ("hour", pa.date32()),
        ("day", pa.int32()),
        ("truncate[3]", pa.float64()),
        ("bucket[3]", pa.float64()),
        ("bucket[3]", pa.bool_()),
    ],
)
def test_transforms_of_unsupported_types_give_no_bounds(text: str, source: pa.DataType) -> None:
    assert Transform.parse(text).result_type(source) is None


# --- Buckets ----------------------------------------------------------------------------------------------------------

BUCKETED: list[tuple[Any, pa.DataType, st.SearchStrategy[Any]]] = [
    (iceberg.IntegerType(), pa.int32(), INTS),
    (iceberg.LongType(), pa.int64(), LONGS),
    (iceberg.DateType(), pa.date32(), INTS),
    (iceberg.TimeType(), pa.time64("us"), st.integers(0, 86_399_999_999)),
    (iceberg.TimestampType(), pa.timestamp("us"), LONGS),
    (iceberg.TimestamptzType(), pa.timestamp("us", "UTC"), LONGS),
    (iceberg.TimestampNanoType(), pa.timestamp("ns"), LONGS),
    (iceberg.StringType(), pa.string(), st.text(max_size=20)),
    (iceberg.BinaryType(), pa.binary(), st.binary(max_size=20)),
    (iceberg.FixedType(5), pa.binary(5), st.binary(min_size=5, max_size=5)),
    (iceberg.DecimalType(9, 2), pa.decimal128(9, 2), st.integers(-(10**9) + 1, 10**9 - 1)),
    (iceberg.DecimalType(38, 0), pa.decimal128(38, 0), st.integers(-(10**38) + 1, 10**38 - 1)),
]


@pytest.mark.parametrize(("kind", "data_type", "values"), BUCKETED, ids=[str(kind) for kind, _, _ in BUCKETED])
@pytest.mark.one_in(3)
def test_buckets_equal_those_of_pyiceberg(kind: Any, data_type: pa.DataType, values: st.SearchStrategy[Any]) -> None:
    @given(st.lists(values, min_size=1, max_size=10), st.integers(1, 1000), st.integers(0, 3))
    @settings(max_examples=60, deadline=None)
    def check(drawn: list[Any], count: int, start: int) -> None:
        function = theirs.BucketTransform(count).transform(kind)
        found = compute_buckets(make_array(drawn, data_type).slice(start), count)
        assert found is not None
        if pa.types.is_decimal(data_type):
            drawn = [make_decimal(each, data_type.scale) for each in drawn]
        assert found == [function(each) for each in drawn[start:]]

    check()


def test_floats_have_no_buckets() -> None:
    assert compute_buckets(pa.array([1.5]), 4) is None
