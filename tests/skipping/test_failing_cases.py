"""Functions that fail for some values: a unit is fully matched only if metadata proves that no row fails."""

from __future__ import annotations

from datetime import date, datetime

import pyarrow as pa
import pytest

from builders.parquet.files import find_rows, write_table
from builders.skipping.units import (
    ALL_NULL,
    BIG,
    DATE,
    DOUBLE,
    FULLY_MATCHED,
    INT,
    KEPT,
    SKIPPED,
    TEXT,
    TIMESTAMP,
    Unit,
    find_outcome,
    find_outcomes,
    make_batch,
)
from tamis.errors import EvaluationError
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.formats.source import LEVELS
from tamis.skipping.handler import ARROW
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite

LARGEST = 2**63 - 1
TIMESTAMPS = Unit(datetime(2024, 1, 1), datetime(2024, 2, 1))
UNBOUNDED = Unit(None, None)


@pytest.mark.parametrize(
    ("data_type", "where", "unit", "expected"),
    [
        # --- The image of the bounds proves that nothing overflows.
        (BIG, "x + 9223372036854775807 IS NOT NULL", Unit(-5, -1), FULLY_MATCHED),
        (BIG, "x + 9223372036854775807 IS NULL", Unit(-5, -1), SKIPPED),
        (BIG, "5 - x IS NOT NULL", Unit(-5, 5), FULLY_MATCHED),
        (BIG, "CAST(x AS TINYINT) IS NOT NULL", Unit(1, 9), FULLY_MATCHED),
        (BIG, "x = 1 OR CAST(x AS TINYINT) > 100", Unit(1, 1), FULLY_MATCHED),
        (TIMESTAMP, "date_trunc('month', x) IS NOT NULL", TIMESTAMPS, FULLY_MATCHED),
        (DATE, "x + INTERVAL 1 DAY IS NOT NULL", Unit(date(2024, 1, 1), date(2024, 2, 1)), FULLY_MATCHED),
        # --- Without bounds there is no image.
        (BIG, "x + 9223372036854775807 IS NOT NULL", UNBOUNDED, KEPT),
        (BIG, "x + 9223372036854775807 IS NULL", UNBOUNDED, KEPT),
        (BIG, "(x + 1 > 5) IS NOT NULL", UNBOUNDED, KEPT),
        (BIG, "CAST(x AS TINYINT) IS NOT NULL", UNBOUNDED, KEPT),
        (BIG, "x + 1 IS NOT NULL", ALL_NULL, SKIPPED),
        (BIG, "x + 1 IS NULL", ALL_NULL, FULLY_MATCHED),
        # --- A function that is not monotone has an image only for a single value.
        (BIG, "abs(x) IS NOT NULL", Unit(1, 9), KEPT),
        (BIG, "abs(x) > 5", Unit(7, 7), FULLY_MATCHED),
        (TEXT, "CAST(x AS BIGINT) IS NOT NULL", Unit("1", "9"), KEPT),
        (TEXT, "CAST(x AS BIGINT) IS NULL", Unit("1", "9"), KEPT),
        (TEXT, "CAST(x AS BOOLEAN) IS NOT NULL", Unit("1", "9"), KEPT),
        (TEXT, "CAST(x AS BOOLEAN) IS NULL", Unit("1", "9"), KEPT),
        # --- A function that only the embedded engine supports may fail or be NULL.
        (TIMESTAMP, "date_trunc('foo', x) IS NOT NULL", TIMESTAMPS, KEPT),
        (TIMESTAMP, "date_trunc('foo', x) IS NULL", TIMESTAMPS, KEPT),
        (DATE, "trunc(x, 'foo') IS NULL", Unit(date(2024, 1, 1), date(2024, 2, 1)), KEPT),
        (TEXT, "year(x) IS NOT NULL", Unit("2024-01-01", "2024-02-01"), KEPT),
        (INT, "x > 0 OR x % 0 = 1", Unit(1, 9), KEPT),
        (INT, "x > 0 OR x % 2 = 1", Unit(1, 9), FULLY_MATCHED),
        (INT, "x > 0 OR 1 / x = 1", Unit(1, 9), FULLY_MATCHED),
        # --- The other side of an OR does not hide a failure.
        (TEXT, "x < 'b' OR CAST(x AS INT) > 5", Unit("a", "aa"), KEPT),
        (BIG, "x > 0 OR abs(x) > 5", Unit(1, 9), KEPT),
        (BIG, "NOT (x < 0 AND abs(x) > 5)", Unit(1, 9), KEPT),
        # --- Some functions never fail.
        (INT, "CAST(x AS BIGINT) IS NOT NULL", UNBOUNDED, FULLY_MATCHED),
        (BIG, "CAST(x AS DOUBLE) IS NOT NULL", UNBOUNDED, FULLY_MATCHED),
        (BIG, "CAST(x AS STRING) IS NOT NULL", UNBOUNDED, FULLY_MATCHED),
        (DOUBLE, "x * 2 + 1 IS NOT NULL", UNBOUNDED, FULLY_MATCHED),
        (TIMESTAMP, "year(x) IS NOT NULL", UNBOUNDED, FULLY_MATCHED),
        (TEXT, "upper(x) IS NOT NULL", UNBOUNDED, FULLY_MATCHED),
        # --- NaN is outside of all bounds, and cannot be cast to an integer.
        (DOUBLE, "CAST(x AS INT) + 1 IS NOT NULL", Unit(1.0, 9.0, 0, 0), FULLY_MATCHED),
        (DOUBLE, "CAST(x AS INT) + 1 IS NOT NULL", Unit(1.0, 9.0, 0, 3), KEPT),
        (DOUBLE, "CAST(x AS INT) + 1 IS NOT NULL", Unit(1.0, 9.0, 0, None), KEPT),
        (DOUBLE, "x < 10 OR CAST(x AS INT) > 0", Unit(1.0, 9.0, 0, None), KEPT),
    ],
)
def test_a_unit_that_may_fail_is_not_fully_matched(data_type, where, unit, expected):
    assert find_outcome(where, data_type, unit) == expected


def test_where_the_function_fails_on_a_bound_nothing_is_proved():
    for where in ("x + 9223372036854775807 IS NOT NULL", "x + 9223372036854775807 IS NULL", "abs(x) > 5"):
        conjuncts = make_predicate(where, pa.schema([("x", BIG)]), "t").conjuncts
        pruned = prune(make_batch({"x": (BIG, [Unit(-(2**63), -(2**63)), Unit(1, 1)])}), conjuncts)
        assert pruned.selection.to_pylist() == [True, True]
        assert pruned.fully_matched[0].to_pylist() == [False, False]


def test_one_argument_that_may_fail_is_enough():
    bounded = (BIG, [Unit(1, 9)])
    assert find_outcomes("a + 1 < b + 9", {"a": bounded, "b": (BIG, [UNBOUNDED])}) == [KEPT]
    assert find_outcomes("coalesce(a + 1, b) = 5 OR a > 0", {"a": bounded, "b": bounded}) == [FULLY_MATCHED]
    assert find_outcomes("coalesce(a + 1, b) = 5 OR b > 0", {"a": (BIG, [UNBOUNDED]), "b": bounded}) == [KEPT]


@pytest.mark.parametrize("levels", [(), LEVELS])
@pytest.mark.parametrize(
    "where",
    [
        "x + 9223372036854775807 IS NOT NULL",
        "x + 9223372036854775807 IS NULL",
        "date_trunc('foo', ts) IS NOT NULL",
        "date_trunc('foo', ts) IS NULL",
        "x > 0 OR CAST(s AS INT) > 5",
    ],
)
def test_a_failing_row_is_an_error_with_and_without_pruning(tmp_path, levels, where):
    columns = {"x": pa.array([1, 2]), "ts": pa.array([0, 1], pa.timestamp("us")), "s": pa.array(["1", "one"])}
    table = write_table(tmp_path, columns)
    with pytest.raises(EvaluationError):
        table.scan(where, levels=levels).to_arrow()
    with pytest.raises(EvaluationError):
        table.scan(where, levels=levels).count()


def test_rows_that_do_not_fail_are_found(tmp_path):
    table = write_table(tmp_path, {"x": pa.array([-3, None, -1, -2], pa.int64())})
    assert find_rows(table, "x + 9223372036854775807 IS NOT NULL") == [0, 2, 3]
    assert find_rows(table, "x + 9223372036854775807 IS NULL") == [1]


def test_X11_a_sum_of_two_thousand_terms_is_rewritten():
    total: Expr = Column(("x",), type=BIG)
    for _ in range(2_000):
        total = Call("+", (total, Literal(1, BIG)))
    (conjunct,) = rewrite(Call(">", (total, Literal(2_005, BIG))))
    batch = make_batch({"x": (BIG, [Unit(1, 5), Unit(1, 6), Unit(6, 9), Unit(None, None)])})
    assert conjunct.evaluate(conjunct.keeps, batch, ARROW).to_pylist() == [False, True, True, True]
    assert conjunct.evaluate(conjunct.fully_matches, batch, ARROW).to_pylist() == [False, False, True, False]


def test_X11_a_thousand_levels_that_may_fail_are_rewritten():
    x = Column(("x",), type=BIG)
    deep: Expr = Call(">", (x, Literal(0, BIG)))
    for level in range(1_000):
        shifted = Call(">", (Call("+", (x, Literal(level, BIG))), Literal(0, BIG)))
        deep = Call("or" if level % 2 else "and", (deep, shifted))
    (conjunct,) = rewrite(Call("not", (deep,)))
    batch = make_batch({"x": (BIG, [Unit(1, 5), Unit(-9_000, -8_000)])})
    assert conjunct.evaluate(conjunct.keeps, batch, ARROW).to_pylist() == [False, True]
    assert conjunct.evaluate(conjunct.fully_matches, batch, ARROW).to_pylist() == [False, True]
