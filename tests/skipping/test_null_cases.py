"""N: NULL and NOT. Values of a unit that its bounds do not show, and the meaning of a missing count."""

from __future__ import annotations

import pyarrow as pa
import pytest

from builders.skipping.units import (
    ALL_NULL,
    DOUBLE,
    FULLY_MATCHED,
    INT,
    KEPT,
    SKIPPED,
    TEXT,
    Unit,
    find_outcome,
    find_outcomes,
    make_batch,
)
from tamis.skipping.metadata import metadata_name
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune

UNCOUNTED = Unit(1, 9, None)
NOTHING_KNOWN = Unit(None, None, None, None, 10)


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x IS NULL", UNCOUNTED, KEPT),
        ("x IS NOT NULL", UNCOUNTED, KEPT),
        ("x IS NULL", NOTHING_KNOWN, KEPT),
        ("x IS NOT NULL", NOTHING_KNOWN, KEPT),
        ("x <=> NULL", UNCOUNTED, KEPT),
        ("(x > 20) IS NULL", UNCOUNTED, KEPT),
        ("x > 0", UNCOUNTED, KEPT),  # all values match, but a NULL among them would not
        ("x > 20", UNCOUNTED, SKIPPED),
        ("NOT (x > 0)", UNCOUNTED, SKIPPED),
        ("x IS DISTINCT FROM 20", UNCOUNTED, FULLY_MATCHED),
        ("x IS DISTINCT FROM 5", Unit(5, 5, None), KEPT),
        ("x IS NOT NULL OR x > 3", UNCOUNTED, KEPT),
    ],
)
def test_N1_a_missing_null_count_is_unknown_and_not_zero(where, unit, expected):
    assert find_outcome(where, INT, unit) == expected


def test_N1_an_absent_null_count_column_is_unknown_too():
    schema = pa.schema([("x", INT)])
    batch = pa.record_batch({"row_count": pa.array([10]), metadata_name("lower", ("x",)): pa.array([1], INT)})
    for where in ("x IS NULL", "x IS NOT NULL", "x >= 1", "x <=> NULL"):
        pruned = prune(batch, make_predicate(where, schema, "t").conjuncts)
        assert pruned.selection.to_pylist() == [True]
        assert pruned.fully_matched[0].to_pylist() == [False]


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x NOT IN ('foo')", Unit("foo", "foo", 3), SKIPPED),  # {'foo', NULL}: neither satisfies it
        ("x NOT IN ('foo')", Unit("foo", "foo", None), SKIPPED),
        ("x NOT IN ('foo')", Unit("foo", "goo", 3), KEPT),
        ("x NOT IN ('foo')", Unit("goo", "hoo", 3), KEPT),
        ("x NOT IN ('foo')", Unit("goo", "hoo", 0), FULLY_MATCHED),
        ("x NOT IN ('foo', 'goo')", Unit("foo", "goo", 3), KEPT),  # 'fox' may lie between them
        ("x NOT IN ('foo')", Unit(None, None, 3), KEPT),
        ("x <> 'foo'", Unit("foo", "foo", 3), SKIPPED),
    ],
)
def test_N2_not_in_over_a_value_and_null(where, unit, expected):
    assert find_outcome(where, TEXT, unit) == expected


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x IN (5, NULL)", Unit(1, 9), KEPT),
        ("x IN (5, NULL)", Unit(5, 5), FULLY_MATCHED),
        ("x IN (5, NULL)", Unit(5, 5, 1), KEPT),
        ("x IN (5, NULL)", Unit(6, 9), SKIPPED),
        ("x IN (5, NULL)", NOTHING_KNOWN, KEPT),
        # With a NULL in the list, NOT IN is FALSE for what is found and NULL for the rest: TRUE for nothing.
        ("x NOT IN (5, NULL)", Unit(1, 9), SKIPPED),
        ("x NOT IN (5, NULL)", Unit(6, 9), SKIPPED),
        ("x NOT IN (5, NULL)", NOTHING_KNOWN, SKIPPED),
        ("NOT (x IN (5, NULL))", Unit(6, 9), SKIPPED),
        ("(x IN (5, NULL)) IS NULL", Unit(6, 9), FULLY_MATCHED),
        ("(x IN (5, NULL)) IS NULL", Unit(5, 5), SKIPPED),
        ("(x IN (5, NULL)) IS NULL", Unit(1, 9), KEPT),
        ("(x IN (5, NULL)) IS NOT NULL", Unit(6, 9), SKIPPED),
        ("(x NOT IN (5, NULL)) IS NULL", Unit(5, 5), SKIPPED),
        ("x IN (5, NULL) OR x = 7", Unit(6, 9), KEPT),
    ],
)
def test_N3_a_null_in_the_list(where, unit, expected):
    assert find_outcome(where, INT, unit) == expected


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x <> 'M'", Unit("A", "Z"), KEPT),
        ("x <> 'M'", Unit("M", "Z"), KEPT),
        ("x <> 'M'", Unit("A", "M"), KEPT),
        ("x <> 'M'", Unit("M", "M"), SKIPPED),
        ("x <> 'M'", Unit("N", "Z"), FULLY_MATCHED),
        ("NOT (x = 'M')", Unit("A", "Z"), KEPT),
    ],
)
def test_N4_unequal_keeps_where_the_constant_lies_inside(where, unit, expected):
    assert find_outcome(where, TEXT, unit) == expected


@pytest.mark.parametrize(
    "where",
    [
        "x = 5", "x <> 5", "x < 5", "x <= 5", "x > 5", "x >= 5", "NOT (x = 5)", "x BETWEEN 1 AND 9", "x IN (5, 6)",
        "x NOT IN (5, 6)", "x <=> 5", "x IS NOT NULL", "x + 1 > 0", "-x < 5", "x = x", "x < 300000000000",
        "CAST(x AS DOUBLE) > 0", "NOT (x NOT BETWEEN 1 AND 9)", "x = 5 AND x IS NULL",
    ],
)  # fmt: skip
@pytest.mark.parametrize("bounds", [(None, None), (1, 9)])
def test_N5_no_comparison_is_true_in_a_unit_of_nulls(where, bounds):
    assert find_outcome(where, INT, Unit(*bounds, 10)) == SKIPPED


@pytest.mark.parametrize(
    "where", ["x IS NULL", "x <=> NULL", "(x = 5) IS NULL", "NOT (x IS NOT NULL)", "x IS DISTINCT FROM 5"]
)
def test_N5_a_unit_of_nulls_satisfies_tests_for_null(where):
    assert find_outcome(where, INT, ALL_NULL) == FULLY_MATCHED


def test_N5_a_unit_of_nulls_skips_every_test_of_texts_and_floats():
    for where in ("x LIKE 'a%'", "x NOT LIKE 'a%'", "startswith(x, 'a')", "NOT startswith(x, '')", "x LIKE '%'"):
        assert find_outcome(where, TEXT, ALL_NULL) == SKIPPED
    for where in ("x > 3", "x <> 3", "NOT (x < 3)", "x = double('NaN')", "x NOT IN (1, 2)"):
        assert find_outcome(where, DOUBLE, ALL_NULL) == SKIPPED


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x <=> NULL", Unit(1, 9, 0), SKIPPED),
        ("x <=> NULL", Unit(1, 9, 1), KEPT),
        ("NOT (x <=> NULL)", Unit(1, 9, 0), FULLY_MATCHED),
        ("NOT (x <=> NULL)", ALL_NULL, SKIPPED),
        ("x IS DISTINCT FROM NULL", Unit(1, 9, 1), KEPT),
        ("x IS DISTINCT FROM 5", Unit(5, 5, 0), SKIPPED),
        ("x IS DISTINCT FROM 5", Unit(5, 5, 1), KEPT),
        ("x IS DISTINCT FROM 5", Unit(1, 9, 0), KEPT),
        ("x IS DISTINCT FROM 5", Unit(6, 9, 5), FULLY_MATCHED),
        ("x IS DISTINCT FROM 5", ALL_NULL, FULLY_MATCHED),
        ("x IS NOT DISTINCT FROM 5", ALL_NULL, SKIPPED),
        ("x <=> 5.5", Unit(1, 9, 3), SKIPPED),
        ("x IS DISTINCT FROM 5.5", Unit(1, 9, 3), FULLY_MATCHED),
        ("(x <=> 5) IS NULL", Unit(1, 9, 3), SKIPPED),
    ],
)
def test_N6_null_safe_comparison(where, unit, expected):
    assert find_outcome(where, INT, unit) == expected


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x NOT LIKE 'ab%'", Unit("ab", "abz", 0), SKIPPED),
        ("x NOT LIKE 'ab%'", Unit("ab", "abz", 5), SKIPPED),  # NULL NOT LIKE is NULL
        ("x NOT LIKE 'ab%'", Unit("ab", "ac", 0), KEPT),
        ("x NOT LIKE 'ab%'", Unit("aa", "abz", 0), KEPT),
        ("x NOT LIKE 'ab%'", Unit("b", "c", 5), KEPT),
        ("x NOT LIKE 'ab%'", Unit("b", "c", 0), FULLY_MATCHED),
        ("x NOT LIKE 'ab%'", Unit("ab", "abz", None), SKIPPED),
        ("NOT startswith(x, 'ab')", Unit("ab", "abz", 5), SKIPPED),
        ("NOT startswith(x, 'ab')", Unit("aa", "abz", 5), KEPT),
        ("x NOT LIKE 'ab%c'", Unit("ab", "abz", 0), KEPT),  # not all that starts with ab ends in c
        ("x NOT LIKE 'ab_'", Unit("ab", "abz", 0), KEPT),
        ("x NOT LIKE '%'", Unit("a", "z", 5), SKIPPED),
        ("x NOT LIKE 'ab%' OR x IS NULL", Unit("ab", "abz", 5), KEPT),
    ],
)
def test_N7_not_like_with_a_shared_prefix_and_nulls(where, unit, expected):
    assert find_outcome(where, TEXT, unit) == expected


@pytest.mark.parametrize(
    ("where", "unit", "expected"),
    [
        ("x = 5", Unit(None, None, 0), KEPT),
        ("x = 5", Unit(None, None, 3), KEPT),
        ("x IS NULL", Unit(None, None, 0), SKIPPED),
        ("x IS NULL", Unit(None, None, 3), KEPT),
        ("x IS NOT NULL", Unit(None, None, 0), FULLY_MATCHED),
        ("x IN (5, 6)", Unit(None, None, 3), KEPT),
        ("x NOT IN (5, 6)", Unit(None, None, 0), KEPT),
        ("x < 5", Unit(7, None, 0), SKIPPED),  # one bound alone is worth its comparison
        ("x > 5", Unit(7, None, 0), FULLY_MATCHED),
        ("x > 5", Unit(None, 3, 0), SKIPPED),
        ("x < 5", Unit(None, 3, 0), FULLY_MATCHED),
        ("x = 5", Unit(7, None, 0), SKIPPED),
        ("x = 5", Unit(5, None, 0), KEPT),
        ("x IN (5, 6)", Unit(7, None, 0), KEPT),
        ("x BETWEEN 1 AND 6", Unit(7, None, 0), SKIPPED),
    ],
)
def test_N8_bounds_absent_while_the_null_count_is_present(where, unit, expected):
    assert find_outcome(where, INT, unit) == expected


def test_N9_a_field_of_a_struct_has_bounds_and_nulls_of_its_own():
    schema = pa.schema([("s", pa.struct([("a", INT), ("b", INT)]))])
    batch = pa.record_batch(
        {
            "row_count": pa.array([10, 10, 10]),
            metadata_name("lower", ("s", "a")): pa.array([1, 6, None], INT),
            metadata_name("upper", ("s", "a")): pa.array([4, 9, None], INT),
            # The field of a NULL struct is NULL and is counted.
            metadata_name("null_count", ("s", "a")): pa.array([2, 0, 10]),
        }
    )
    expected = {
        "s.a > 5": ([False, True, False], [True]),
        "s.a IS NULL": ([True, False, True], [False, True]),
        "s.a IS NOT NULL": ([True, True, False], [False, True]),
        "NOT (s.a > 5)": ([True, False, False], [False]),
        # Nothing is known of the struct as a whole, nor of its other field.
        "s IS NULL": ([True, True, True], [False, False, False]),
        "s.b = 1": ([True, True, True], [False, False, False]),
    }
    for where, (kept, whole) in expected.items():
        pruned = prune(batch, make_predicate(where, schema, "t").conjuncts)
        assert pruned.selection.to_pylist() == kept, where
        assert pruned.fully_matched[0].to_pylist() == whole, where


def test_N9_a_list_has_no_bounds():
    schema = pa.schema([("l", pa.list_(INT)), ("x", INT)])
    batch = pa.record_batch({"row_count": pa.array([10]), metadata_name("null_count", ("l",)): pa.array([0])})
    for where in ("l IS NOT NULL", "size(l) = 3", "array_contains(l, 3)", "l[0] = 3"):
        assert prune(batch, make_predicate(where, schema, "t").conjuncts).selection.to_pylist() == [True]


@pytest.mark.parametrize("other", [Unit(None, None, None), Unit(None, None, 0), Unit(1, None, None), Unit(None, 9, 0)])
@pytest.mark.parametrize(
    "where", ["a = 5 AND b = 5", "b = 5 AND a = 5", "a = 5 AND b IS NULL", "a = 5 AND NOT (b < 3)"]
)
def test_N10_a_missing_statistic_does_not_switch_off_the_other_conjunct(where, other):
    assert find_outcomes(where, {"a": (INT, [Unit(6, 9)]), "b": (INT, [other])}) == [SKIPPED]


def test_N10_a_missing_statistic_under_or_keeps():
    assert find_outcomes("a = 5 OR b = 5", {"a": (INT, [Unit(6, 9)]), "b": (INT, [Unit(None, None, None)])}) == [KEPT]


def test_N10_an_unknown_function_does_not_switch_off_the_other_conjunct():
    columns = {"a": (INT, [Unit(6, 9), Unit(1, 9)]), "b": (INT, [Unit(1, 9), Unit(1, 9)])}
    assert find_outcomes("a = 5 AND my_own(b) = 3", columns) == [SKIPPED, KEPT]
    assert find_outcomes("a = 5 OR my_own(b) = 3", columns) == [KEPT, KEPT]


def test_units_of_one_batch_do_not_influence_each_other():
    units = [Unit(1, 4), Unit(None, None, None), Unit(6, 9, 1), ALL_NULL, Unit(6, 9), Unit(None, None, 0, None, 0)]
    assert find_outcomes("x > 5", {"x": (INT, units)}) == [SKIPPED, KEPT, KEPT, SKIPPED, FULLY_MATCHED, SKIPPED]
    assert make_batch({"x": (INT, units)}).num_rows == 6
