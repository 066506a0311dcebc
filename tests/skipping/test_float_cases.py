"""F: floats. NaN is larger than every number, equal to itself, outside the bounds, and mostly not counted."""

from __future__ import annotations

import math

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from builders.skipping.units import DOUBLE, FULLY_MATCHED, KEPT, SKIPPED, Unit, find_outcome, find_outcomes
from tamis.expr.nodes import Column
from tamis.skipping.metadata import make_constant_bounds

INFINITY = math.inf
SINGLE = pa.float32()


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        # In [1, 2] without a count, NaN may be there, and it is above every number.
        ("x <> 1.5", KEPT),
        ("x <> 3", FULLY_MATCHED),
        ("NOT (x < 3)", KEPT),
        ("NOT (x <= 3)", KEPT),
        ("NOT (x = 3)", FULLY_MATCHED),
        ("x > 3", KEPT),
        ("x >= 3", KEPT),
        ("x NOT IN (1, 2, 3)", KEPT),
        ("x NOT BETWEEN 0 AND 9", KEPT),
        ("x = double('NaN')", KEPT),
        ("x <=> double('NaN')", KEPT),
        ("x IN (7, double('NaN'))", KEPT),
        ("x > double('Infinity')", KEPT),
        ("-x > -1", KEPT),
        ("x + 1 > 9", KEPT),
        # But NaN is not below anything.
        ("x < 1", SKIPPED),
        ("x <= 0.5", SKIPPED),
        ("x = 3", SKIPPED),
        ("x IN (3, 4)", SKIPPED),
        ("x < 3", KEPT),
        ("NOT (x > 3)", KEPT),
        ("x > double('NaN')", SKIPPED),
        ("NOT (x <= double('NaN'))", SKIPPED),
    ],
)
def test_F1_an_uncounted_nan_may_be_above_the_bounds(where, expected):
    assert find_outcome(where, DOUBLE, Unit(1.0, 2.0, 0, None)) == expected


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        # A value with an upper bound is not NaN, so the other conjunct can ignore NaN.
        ("x BETWEEN 3 AND 4", Unit(1.0, 2.0), SKIPPED),
        ("x >= 3 AND x < double('NaN')", Unit(1.0, 2.0), SKIPPED),
        ("x BETWEEN 3 AND 4 OR x BETWEEN 5 AND 6", Unit(1.0, 2.0), SKIPPED),
        ("x <> 1 AND x < 9", Unit(1.0, 1.0), SKIPPED),
        ("x NOT IN (1, 2) AND x < 9", Unit(1.0, 1.0), SKIPPED),
        ("x BETWEEN 1 AND 9", Unit(1.0, 2.0), KEPT),
        ("x BETWEEN 3 AND 4", Unit(None, None, 0, 10), SKIPPED),
        ("x BETWEEN 3 AND 4", Unit(1.0, 3.5), KEPT),
        ("NOT (x BETWEEN 3 AND 4)", Unit(3.0, 4.0), KEPT),
        ("NOT (x BETWEEN 3 AND 4)", Unit(3.0, 4.0, 0, 0), SKIPPED),
        ("x >= 3 AND x <= double('NaN')", Unit(1.0, 2.0), KEPT),
        ("x >= 3 OR x <= 0", Unit(1.0, 2.0), KEPT),
        ("(x >= 3 AND x <= 4) IS NULL", Unit(1.0, 2.0, 0), SKIPPED),
        ("x >= 3 AND (x <= 4 OR x IS NULL)", Unit(1.0, 2.0), KEPT),
    ],
)
def test_F1_a_range_with_both_bounds_excludes_nan(where, unit, expected):
    assert find_outcome(where, DOUBLE, unit) == expected


def test_F1_a_bound_on_one_column_does_not_affect_another():
    columns = {"a": (DOUBLE, [Unit(1.0, 2.0)]), "b": (DOUBLE, [Unit(1.0, 2.0)])}
    assert find_outcomes("a >= 3 AND b <= 4", columns) == [KEPT]
    assert find_outcomes("a >= 3 AND a <= 4 AND b >= 1", columns) == [SKIPPED]


@pytest.mark.parametrize("where", ["x <> 1", "x NOT IN (1)", "NOT (x = 1)", "x > 1", "x IS DISTINCT FROM 1"])
def test_F1_a_unit_of_one_value_may_hide_nan(where):
    assert find_outcome(where, DOUBLE, Unit(1.0, 1.0, 0, None)) == KEPT
    assert find_outcome(where, DOUBLE, Unit(1.0, 1.0, 0, 0)) == SKIPPED


@pytest.mark.parametrize(
    ("where", "nans", "expected"),
    [
        ("x > 3", 0, SKIPPED),
        ("x > 3", 4, KEPT),
        ("x >= 0", 4, FULLY_MATCHED),  # NaN is above 0 as well
        ("x > 3", None, KEPT),
        ("x < 3", 0, FULLY_MATCHED),
        ("x < 3", 4, KEPT),
        ("x < 3", None, KEPT),
        ("x <> 3", 0, FULLY_MATCHED),
        ("x <> 3", 4, FULLY_MATCHED),
        ("x <> 3", None, FULLY_MATCHED),
        ("x = double('NaN')", 0, SKIPPED),
        ("x = double('NaN')", 4, KEPT),
        ("x <> double('NaN')", 0, FULLY_MATCHED),
        ("x <> double('NaN')", 4, KEPT),
        ("x < double('NaN')", 0, FULLY_MATCHED),
        ("x < double('NaN')", None, KEPT),
        ("x <= double('NaN')", None, FULLY_MATCHED),
    ],
)
def test_F3_a_missing_nan_count_is_not_zero(where, nans, expected):
    assert find_outcome(where, DOUBLE, Unit(1.0, 2.0, 0, nans)) == expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("x = double('NaN')", FULLY_MATCHED),
        ("x <=> double('NaN')", FULLY_MATCHED),
        ("x > 3", FULLY_MATCHED),
        ("x <> 3", FULLY_MATCHED),
        ("x IN (3, double('NaN'))", FULLY_MATCHED),
        ("x NOT IN (3, double('NaN'))", SKIPPED),
        ("x NOT IN (3, 4)", FULLY_MATCHED),
        ("x < 3", SKIPPED),
        ("x = 3", SKIPPED),
        ("x IS NULL", SKIPPED),
        ("x IS NOT NULL", FULLY_MATCHED),
        ("x < double('NaN')", SKIPPED),
    ],
)
def test_F3_a_unit_with_only_nan_needs_no_bounds(where, expected):
    assert find_outcome(where, DOUBLE, Unit(None, None, 0, 10)) == expected


@pytest.mark.parametrize("data_type", [SINGLE, DOUBLE, pa.float16()])
@pytest.mark.parametrize("zero", [0.0, -0.0])
@pytest.mark.parametrize("literal", ["0.0D", "-0.0D", "0"])
def test_F4_both_zeros_are_one_value(data_type, zero, literal):
    above, below, only = Unit(zero, 5.0, 0, 0), Unit(-5.0, zero, 0, 0), Unit(zero, zero, 0, 0)
    units = {"x": (data_type, [above, below, only])}
    assert find_outcomes(f"x = {literal}", units) == [KEPT, KEPT, FULLY_MATCHED]
    assert find_outcomes(f"x < {literal}", units) == [SKIPPED, KEPT, SKIPPED]
    assert find_outcomes(f"x > {literal}", units) == [KEPT, SKIPPED, SKIPPED]
    assert find_outcomes(f"x >= {literal}", units) == [FULLY_MATCHED, KEPT, FULLY_MATCHED]
    assert find_outcomes(f"x <> {literal}", units) == [KEPT, KEPT, SKIPPED]
    assert find_outcomes(f"x IN ({literal}, 77)", units) == [KEPT, KEPT, FULLY_MATCHED]
    assert find_outcomes(f"x NOT IN ({literal}, 77)", units) == [KEPT, KEPT, SKIPPED]


def test_F4_bounds_of_two_different_zeros_are_one_value():
    assert find_outcome("x = 0", DOUBLE, Unit(-0.0, 0.0, 0, 0)) == FULLY_MATCHED
    assert find_outcome("x <> 0", DOUBLE, Unit(0.0, -0.0, 0, 0)) == SKIPPED


@pytest.mark.parametrize(
    ("where", "lower", "upper", "expected"),
    [
        ("x < -1", -2.0, -1.5, FULLY_MATCHED),  # as bytes, negative halves sort backwards
        ("x < -1.75", -2.0, -1.5, KEPT),
        ("x < 0", 0.5, 65504.0, SKIPPED),
        ("x > 100", -65504.0, 99.0, SKIPPED),
        ("x = 0.1", 0.0, 1.0, SKIPPED),  # no half float is 0.1
        ("x = 0.5", 0.0, 1.0, KEPT),
        ("x < 70000", -1.0, 65504.0, FULLY_MATCHED),
        ("x > 70000", -1.0, 65504.0, SKIPPED),
        ("x IN (0.5, 0.25)", 0.3, 0.4, SKIPPED),
    ],
)
def test_F6_half_floats_have_the_order_of_numbers(where, lower, upper, expected):
    assert find_outcome(where, pa.float16(), Unit(lower, upper, 0, 0)) == expected


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x < 9", Unit(1.0, 2.0, 0, 0), FULLY_MATCHED),
        ("x < 9", Unit(1.0, 2.0, 0, 1), KEPT),
        ("x < 9", Unit(1.0, 2.0, 0, None), KEPT),
        ("x < 9", Unit(1.0, 2.0, 1, 0), KEPT),
        ("x < 9", Unit(1.0, 2.0, None, 0), KEPT),
        ("x > 0", Unit(1.0, 2.0, 0, 1), FULLY_MATCHED),
        ("x > 0", Unit(1.0, 2.0, 0, None), FULLY_MATCHED),
        ("x > 0", Unit(1.0, 2.0, 1, 1), KEPT),
        ("x BETWEEN 0 AND 9", Unit(1.0, 2.0, 0, None), KEPT),
        ("x = 1", Unit(1.0, 1.0, 0, None), KEPT),
        ("x = 1", Unit(1.0, 1.0, 0, 0), FULLY_MATCHED),
        ("x IN (1, 2)", Unit(1.0, 1.0, 0, None), KEPT),
        ("x NOT IN (7, 8)", Unit(1.0, 2.0, 0, None), FULLY_MATCHED),
        ("x IS DISTINCT FROM 7", Unit(1.0, 2.0, None, None), FULLY_MATCHED),
    ],
)
def test_F7_fully_matched_where_nan_or_null_may_be_present(where, unit, expected):
    assert find_outcome(where, DOUBLE, unit) == expected


@pytest.mark.parametrize(
    ("data_type", "where", "lower", "upper", "expected"),
    [
        # 0.1 as a decimal literal means the nearest double, as it does in Spark and DuckDB.
        (DOUBLE, "x = 0.1", 0.1, 0.1, FULLY_MATCHED),
        (DOUBLE, "x = 0.1", math.nextafter(0.1, 1), 1.0, SKIPPED),
        (DOUBLE, "x < 0.1", 0.1, 1.0, SKIPPED),
        (DOUBLE, "x <= 0.1", 0.1, 1.0, KEPT),
        # The nearest 32-bit float to 0.1 is above it.
        (SINGLE, "x = 0.1", 0.1, 0.1, SKIPPED),
        (SINGLE, "x > 0.1", 0.1, 0.1, FULLY_MATCHED),
        (SINGLE, "x <= 0.1", 0.1, 0.1, SKIPPED),
        (SINGLE, "x = float(0.1)", 0.1, 0.1, FULLY_MATCHED),
        (SINGLE, "x IN (0.1, 0.5)", 0.1, 0.25, SKIPPED),
        # Beyond the largest 32-bit float.
        (SINGLE, "x < 1e39", 1.0, 3e38, FULLY_MATCHED),
        (SINGLE, "x > 1e39", 1.0, 3e38, SKIPPED),
        (SINGLE, "x > 1e39", 1.0, INFINITY, KEPT),
        (SINGLE, "x >= -1e39", -INFINITY, 1.0, KEPT),
        (SINGLE, "x < -1e39", -3e38, 1.0, SKIPPED),
        (SINGLE, "x = 1e39", 1.0, INFINITY, SKIPPED),
        (
            DOUBLE,
            "x = 9007199254740993",
            9007199254740992.0,
            9007199254740992.0,
            FULLY_MATCHED,
        ),  # rounded to a double first
        (DOUBLE, "x > 5.0", 1.0, 5.0, SKIPPED),
        (DOUBLE, "x >= 5", 1.0, 5.0, KEPT),
    ],
)
def test_F8_floats_against_decimal_literals(data_type, where, lower, upper, expected):
    assert find_outcome(where, data_type, Unit(lower, upper, 0, 0)) == expected


@pytest.mark.parametrize(
    ("where", "lower", "upper", "expected"),
    [
        ("x < double('Infinity')", 1.0, INFINITY, KEPT),
        ("x < double('Infinity')", 1.0, 2.0, FULLY_MATCHED),
        ("x = double('Infinity')", 1.0, 2.0, SKIPPED),
        ("x > double('-Infinity')", -INFINITY, -INFINITY, SKIPPED),
        ("x >= double('-Infinity')", -INFINITY, 1.0, FULLY_MATCHED),
        ("x + 1 = double('Infinity')", INFINITY, INFINITY, FULLY_MATCHED),
        ("x * -2 < -1e300", 1.0, INFINITY, KEPT),
        ("x * 0 = 0", 1.0, 2.0, KEPT),  # zero times infinity is NaN, so a product with zero has no order
        ("x + double('NaN') > 5", 1.0, 2.0, KEPT),
        ("x + double('Infinity') > 5", -INFINITY, 2.0, KEPT),
    ],
)
def test_infinities_are_numbers(where, lower, upper, expected):
    assert find_outcome(where, DOUBLE, Unit(lower, upper, 0, 0)) == expected


def test_F2_a_partition_value_of_nan_is_counted_and_never_a_bound():
    values = pa.array([1.0, math.nan, None], DOUBLE)
    found = make_constant_bounds(Column(("x",), type=DOUBLE), values, pa.array([10, 10, 10]))
    assert found["nan_count:x"].to_pylist() == [0, 10, 0]
    assert found["null_count:x"].to_pylist() == [0, 0, 10]
    assert found["lower:x"].to_pylist() == found["upper:x"].to_pylist() == [1.0, None, None]
    assert not pc.any(pc.is_nan(found["lower:x"])).as_py()


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        # isnan(x) is TRUE for NaN and FALSE for all else, NULL included, as x <=> NaN is.
        ("isnan(x)", Unit(1.0, 2.0, 0, 0), SKIPPED),
        ("isnan(x)", Unit(1.0, 2.0, 3, 0), SKIPPED),
        ("isnan(x)", Unit(None, None, 10, None), SKIPPED),
        ("isnan(x)", Unit(1.0, 2.0, 0, None), KEPT),
        ("isnan(x)", Unit(1.0, 2.0, 0, 1), KEPT),
        ("isnan(x)", Unit(None, None, 0, 10), FULLY_MATCHED),
        ("isnan(x)", Unit(None, None, 1, 9), KEPT),
        ("NOT isnan(x)", Unit(None, None, 0, 10), SKIPPED),
        ("NOT isnan(x)", Unit(None, None, 1, 9), KEPT),
        ("NOT isnan(x)", Unit(1.0, 2.0, 0, 0), FULLY_MATCHED),
        ("NOT isnan(x)", Unit(None, None, 10, None), FULLY_MATCHED),
        ("NOT isnan(x)", Unit(1.0, 2.0, 0, None), KEPT),
        ("NOT isnan(x)", Unit(1.0, 2.0, None, 0), FULLY_MATCHED),
        ("isnan(x) IS NULL", Unit(1.0, 2.0, 3, None), SKIPPED),
        ("isnan(x) OR x IS NULL", Unit(1.0, 2.0, 0, 0), SKIPPED),
    ],
)
def test_F3_isnan_is_answered_by_counts(where, unit, expected):
    assert find_outcome(where, DOUBLE, unit) == expected


def test_F3_isnan_of_a_whole_number_is_never_true():
    assert find_outcome("isnan(x)", pa.int64(), Unit(1, 2, 1)) == SKIPPED
    assert find_outcome("NOT isnan(x)", pa.int64(), Unit(1, 2, 1)) == FULLY_MATCHED
