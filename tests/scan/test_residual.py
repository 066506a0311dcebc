"""Residual filters are evaluated row by row by Arrow or the embedded engine, with the same semantics."""

from __future__ import annotations

import re
from decimal import Decimal

import pyarrow as pa
import pytest

from tamis.errors import EvaluationError
from tamis.expr.bind import bind
from tamis.expr.sql.parse import parse_sql
from tamis.scan.reading.residual import Residual

ROWS = pa.record_batch(
    {
        "n": pa.array([1, 2, 3, None], pa.int64()),
        "s": pa.array(["a_b", "axb", "a\\b", None]),
        "part0": pa.array([10, 20, 30, 40], pa.int64()),
        "l": pa.array([[1], [], None, [1, 2]]),
        "d": pa.array([Decimal("2.70"), Decimal("-2.70"), Decimal("0.30"), None], pa.decimal128(10, 2)),
        "f": pa.array([2.7, -2.7, 0.3, None]),
        "g": pa.array([2.7, float("nan"), 1e300, None]),
        "t": pa.array(["7", "n/a", "1", None]),
    }
)


def find_kept(*conjuncts: str) -> list[int]:
    found = Residual([bind(parse_sql(text), ROWS.schema) for text in conjuncts]).filter(ROWS)
    return found["part0"].to_pylist()


@pytest.mark.parametrize(
    ("conjuncts", "expected"),
    [
        (["n > 1"], [20, 30]),
        (["levenshtein(s, 'axb') = 0"], [20]),
        (["levenshtein(s, 'axb') = 0 OR n = 1"], [10, 20]),
        (["NOT (levenshtein(s, 'axb') = 0 AND n = 2)"], [10, 30]),
        (["levenshtein(s, 'axb') < 5", "n < 3"], [10, 20]),
        # LIKE escapes with a backslash, in either engine.
        (["s LIKE 'a\\\\_b'"], [10]),
        (["concat(s, '') LIKE 'a\\\\_b'"], [10]),
        (["(concat(s, '') = 'axb') IS NULL"], [40]),
        (["levenshtein(s, 'axb') = 0 OR part0 = 40"], [20, 40]),
        (["size(l) = 1"], [10]),
        (["n / 2 = 1"], [20]),
        (["n % 2 = 1"], [10, 30]),
        # A cast of a fraction to an integer truncates, in either engine and in both casts.
        (["CAST(d AS int) = 2"], [10]),
        (["CAST(d AS int) = -2"], [20]),
        (["CAST(f AS int) = 2"], [10]),
        (["TRY_CAST(f AS int) = 2"], [10]),
        (["TRY_CAST(g AS int) IS NULL"], [20, 30, 40]),
        # An expression that may fail is evaluated only for the rows of its branch.
        (["CASE WHEN n > 2 THEN 0 ELSE n * 2 END = 4"], [20]),
        (["CASE WHEN s = 'axb' THEN CAST(n AS int) ELSE CAST('7' AS int) END = 2"], [20]),
        (["CASE WHEN t <> 'n/a' THEN CAST(t AS int) ELSE 0 END > 5"], [10]),
        (["t <> 'n/a'", "CAST(t AS int) > 5"], [10]),
        (["CAST(t AS int) > 5", "t <> 'n/a'"], [10]),
        (["substring(trim(t), 0, 1) = '7'"], [10]),
        (["greatest(n, 1) IN (3, '2')"], [20, 30]),
        # Text functions cast numbers to texts, as Spark does.
        (["lower(n) = '1'"], [10]),
    ],
)
def test_rows_that_satisfy_all_conjuncts(conjuncts: list[str], expected: list[int]) -> None:
    assert find_kept(*conjuncts) == expected


@pytest.mark.parametrize("text", ["CAST(s AS bigint) = 1", "CAST(concat(s, '') AS bigint) = 1"])
def test_a_cast_that_does_not_fit_is_an_error_in_either_engine(text: str) -> None:
    with pytest.raises(EvaluationError, match="cannot evaluate CAST"):
        find_kept(text)
    assert find_kept(text.replace("CAST", "TRY_CAST") + " OR n = 3") == [30]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("frobnicate(n)", "there is no function frobnicate with Spark's meaning on the embedded engine. The refer"),
        ("flor(f) = 2", "there is no function flor with Spark's meaning on the embedded engine. Did you mean floor? "),
        ("floor(s) = 1", "floor(s) = 1: floor does not take string. Cast the argument, as in CAST(x AS DOUBLE)"),
        ("n % 0 = 1", "n % 0 = 1: division by zero. Leave such rows out, or make them NULL, as in a % nullif(b, 0)"),
        ("n / 0 = 1", "division by zero. Leave such rows out, or make them NULL, as in a / nullif(b, 0)"),
        ("n DIV 0 = 1", "division by zero. Leave such rows out, or make them NULL, as in a DIV nullif(b, 0)"),
        (
            "CAST(d AS DECIMAL(38, 0)) * CAST('9e37' AS DECIMAL(38, 0)) > 1",
            "has more than 38 digits. Cast an operand, as in CAST(a AS DOUBLE), or make such values NULL with try_mult",
        ),
        (
            "CAST(concat(t, '') AS INT) = 1",
            "could not convert string 'n/a' to INT32. Leave such values out, or make them NULL with TRY_CAST",
        ),
        (
            "CASE WHEN n > 0 THEN CAST(t AS INT) ELSE 0 END = 1",
            "END = 1: could not convert string 'n/a' to INT32, of t. Leave such values out, or make them NULL with TRY",
        ),
        ("greatest(n, s) = 1", "greatest(n, s) = 1: cannot combine types"),
        ("s RLIKE '['", "use of Spark's RLIKE: the regular expression '[' has an unclosed character class"),
        ("from_json(s) = 1", "does not support this use of Spark's from_json: it takes a text and a constant schema"),
        ("to_number(s, '9') = 1", "to_number(s, '9') = 1: a text does not match the format of to_number. "),
    ],
)
def test_an_engine_error_is_one_line_with_a_remedy(where: str, message: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        find_kept(where)
    text = str(raised.value)
    assert "the embedded engine" in text
    assert message in re.sub(r" \(at: where, character \d+\)(?=: |\. )", "", text)
    assert "\n" not in text
    assert "\x1b" not in text
    assert "given" not in text


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            "CAST(g AS INT) = 1",
            "CAST(g AS INT) = 1: nan is out of the range of int. Leave such values out, or make them ",
        ),
        (
            "CAST(g AS INT) = 1 OR levenshtein(s, 'x') = 9",
            "OR levenshtein(s, 'x') = 9: nan is out of the range of int. ",
        ),
        ("CAST(n + 3000000000 AS INT) = 1", ": 3000000001 is out of the range -2147483648 to 2147483647. Leave such "),
        ("CAST(CAST('9e37' AS DECIMAL(38, 0)) AS BIGINT) = n", "a value is out of the range of its type. Leave such "),
    ],
)
def test_a_value_out_of_range_is_an_error_with_a_remedy(where: str, message: str) -> None:
    with pytest.raises(EvaluationError) as raised:
        find_kept(where)
    assert message in str(raised.value)
    assert "given" not in str(raised.value)
    assert find_kept(re.sub(r"^CAST", "TRY_CAST", where)) == []


def test_X11_a_case_of_many_levels_is_computed_by_the_engine() -> None:
    deep = "0"
    for level in range(200):
        # Only the engine evaluates a branch that may fail for the rows of that branch alone.
        deep = f"CASE WHEN n = {level} THEN ({deep}) ELSE n + {level} END"
    assert find_kept(f"{deep} = 202") == [30]


@pytest.mark.parametrize("where", ["CASE WHEN n > 1 THEN NULL END", "NULL", "NOT (n = NULL)", "if(n > 1, NULL, NULL)"])
def test_a_filter_that_is_always_null_keeps_no_row(where: str) -> None:
    assert find_kept(where) == []
