"""The reason why a conjunct skipped nothing, as opposed to "it was evaluated, and every unit matches"."""

from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest

from builders.skipping.units import ALL_NULL, DATE, DOUBLE, INT, TEXT, TIMESTAMP, Unit, explain_unused, make_batch
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import NO_UNITS_LEFT, SKIPPED_BEFORE, prune

DAYS = Unit(date(2024, 1, 1), date(2024, 12, 31))


@pytest.mark.parametrize(
    ("data_type", "where", "unit", "reason"),
    [
        # A function without order between the column and the constant.
        (INT, "x % 2 = 0", Unit(1, 9), "function on column: x % 2"),
        (INT, "x / 2 = 3", Unit(1, 9), "function on column: x / 2"),
        (INT, "abs(x) = 3", Unit(1, 9), "function on column: abs(x)"),
        (DATE, "month(x) = 3", DAYS, "function on column: month(x)"),
        (TIMESTAMP, "hour(x) = 3", Unit(0, 10**12), "function on column: hour(x)"),
        (TEXT, "upper(x) = 'A'", Unit("a", "z"), "function on column: upper(x)"),
        (TEXT, "substr(x, 2, 1) = 'a'", Unit("a", "z"), "function on column: substr(x, 2, 1)"),
        (TEXT, "length(x) > 3", Unit("a", "z"), "function on column: length(x)"),
        (DOUBLE, "x * 0 = 1", Unit(1.0, 9.0, 0, 0), "function on column: x * 0"),
        (INT, "coalesce(x, 7) = 7", Unit(1, 9), "function on column: coalesce(x, 7)"),
        # Months have different lengths, so adding them does not keep the order of timestamps.
        (TIMESTAMP, "x + INTERVAL 1 MONTH > TIMESTAMP '2024-01-01'", Unit(0, 1), "function on column"),
        # An unknown function.
        (INT, "my_own(x) = 3", Unit(1, 9), "unknown function: my_own"),
        (INT, "my_own(x)", Unit(1, 9), "unknown function"),
        # A cast that does not keep order, or a text that is cast to a number.
        (TEXT, "CAST(x AS INT) = 3", Unit("1", "9"), "type mismatch"),
        (TEXT, "x = 3", Unit("1", "9"), "type mismatch"),
        (TEXT, "x IN (3, 4)", Unit("1", "9"), "type mismatch"),
        (INT, "CAST(x AS STRING) = '3'", Unit(1, 9), "type mismatch"),
        # A type without order.
        (pa.list_(INT), "x = x", Unit(None, None, 0), "unordered type: x"),
        # Patterns without a known prefix.
        (TEXT, "x LIKE '%a'", Unit("b", "z"), "pattern starts with a wildcard"),
        (TEXT, "x LIKE '_a%'", Unit("b", "z"), "pattern starts with a wildcard"),
        (TEXT, "x NOT LIKE '%a'", Unit("b", "z"), "pattern starts with a wildcard"),
        (TEXT, "contains(x, 'a')", Unit("b", "z"), "bounds cannot answer contains"),
        (TEXT, "endswith(x, 'a')", Unit("b", "z"), "bounds cannot answer endswith"),
        (TEXT, "x LIKE x", Unit("b", "z"), "not a comparison with a constant"),
        # Usable, but without statistics.
        (INT, "x = 5", Unit(None, None, None), "no statistics"),
        (INT, "x IS NULL", Unit(1, 9, None), "no statistics"),
        (TEXT, "x LIKE 'a%'", Unit(None, None, None), "no statistics"),
        (INT, "x = 5 OR x = 7", Unit(None, None, None), "no statistics"),
        # Usable and evaluated, but nothing to skip.
        (INT, "x = 5", Unit(1, 9), "overlaps"),
        (INT, "x IN (1, 5)", Unit(1, 9), "overlaps"),
        (INT, "x IS NULL", Unit(1, 9, 3), "overlaps"),
        (TEXT, "x LIKE 'a%'", Unit("a", "z"), "overlaps"),
        (INT, "x + 1 > 5", Unit(1, 9), "overlaps"),
        (INT, "x >= 1", Unit(1, 9, None), "overlaps"),
        # NaN would be larger, and its count is unknown.
        (DOUBLE, "x > 5", Unit(1.0, 2.0, 0, None), "NaN count is unknown"),
        (DOUBLE, "x > 5", Unit(1.0, 9.0, 0, None), "overlaps"),
    ],
)  # fmt: skip
def test_a_conjunct_that_skipped_nothing_has_a_reason(data_type, where, unit, reason):
    assert (explain_unused(where, data_type, unit) or "").startswith(reason)


@pytest.mark.parametrize(
    ("data_type", "where", "unit"),
    [
        (INT, "x > 0", Unit(1, 9)),
        (INT, "x IS NULL", ALL_NULL),
        (INT, "x IS NOT NULL", Unit(1, 9)),
        (TEXT, "x LIKE 'a%'", Unit("aa", "az")),
        (INT, "x <> 20 OR x % 2 = 0", Unit(1, 9)),
    ],
)
def test_a_conjunct_that_every_unit_satisfies_was_not_unused(data_type, where, unit):
    assert explain_unused(where, data_type, unit) is None


def test_a_conjunct_that_skips_gives_no_reason_even_if_a_part_of_it_was_unusable():
    conjuncts = make_predicate("x > 5 AND x % 2 = 0", pa.schema([("x", INT)]), "t").conjuncts
    pruned = prune(make_batch({"x": (INT, [Unit(1, 3), Unit(4, 9)])}), conjuncts)
    assert [(each.skipped, each.unused_because) for each in pruned.outcomes] == [
        (1, None),
        (0, "function on column: x % 2"),
    ]


def test_no_units_need_no_reason():
    conjuncts = make_predicate("x % 2 = 0", pa.schema([("x", INT)]), "t").conjuncts
    pruned = prune(make_batch({"x": (INT, [])}), conjuncts)
    assert pruned.selection.to_pylist() == []
    assert [each.unused_because for each in pruned.outcomes] == [NO_UNITS_LEFT]


@pytest.mark.parametrize("where", ["a > 5 AND b > 5", "b > 5 AND a > 5"])
def test_a_conjunct_of_units_that_others_skip_says_so(where):
    conjuncts = make_predicate(where, pa.schema([("a", INT), ("b", INT)]), "t").conjuncts
    pruned = prune(make_batch({"a": (INT, [Unit(1, 3)]), "b": (INT, [Unit(7, 9)])}), conjuncts)
    found = {each.predicate: (each.skipped, each.unused_because) for each in pruned.outcomes}
    assert found == {"a > 5": (1, None), "b > 5": (0, NO_UNITS_LEFT)}


def test_a_unit_that_several_conjuncts_skip_counts_for_the_first():
    conjuncts = make_predicate("a > 5 AND b > 5", pa.schema([("a", INT), ("b", INT)]), "t").conjuncts
    low, high = Unit(1, 3), Unit(7, 9)
    pruned = prune(make_batch({"a": (INT, [low, low, high]), "b": (INT, [low, high, high])}), conjuncts)
    assert pruned.selection.to_pylist() == [False, False, True]
    assert [(each.predicate, each.skipped) for each in pruned.outcomes] == [
        ("a > 5", 2),
        ("b > 5", 0),
    ]
    assert [each.unused_because for each in pruned.outcomes] == [None, SKIPPED_BEFORE]
    assert [each.to_pylist() for each in pruned.skipped_by] == [[True, True, False], [False, False, False]]
    assert [each.to_pylist() for each in pruned.fully_matched] == [[True], [True]]
