"""DataFusion expressions as filters: what they translate to, what is refused, and that files are pruned by them."""

from __future__ import annotations

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import ExpressionError
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import Call, Literal, Name
from tamis.expr.sql.printer import to_display_sql
from tamis.parquet import PruneRequest

datafusion = pytest.importorskip("datafusion", reason="datafusion is not installed: `make test-interop` installs it")
pytestmark = pytest.mark.interop
col, lit, functions = datafusion.col, datafusion.lit, datafusion.functions


def show(expression: Any) -> str:
    found = to_expr(expression)
    assert isinstance(found, Name | Literal | Call)
    return to_display_sql(found).replace("`", "")


@pytest.fixture(scope="module")
def frame() -> Any:
    return datafusion.SessionContext().from_pydict({"a": [1], "s": ["x"], "f": [1.0]})


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("a != 3", "a <> 3"),
        ("NOT a > 1 AND s <= 'x'", "NOT (a > 1) AND s <= 'x'"),
        ("s LIKE 'x%'", "s LIKE 'x%'"),
        ("s NOT LIKE 'a%'", "s NOT LIKE 'a%'"),
        ("s LIKE 'x!%' ESCAPE '!'", "s LIKE 'x!%' ESCAPE '!'"),
        ("-a > 1", "-a > 1"),
        ("(a > 1) IS TRUE", "(a > 1) <=> TRUE"),
        ("(a > 1) IS NOT FALSE", "(a > 1) IS DISTINCT FROM FALSE"),
        ("(a > 1) IS UNKNOWN", "(a > 1) IS NULL"),
        ("a IS NOT NULL", "a IS NOT NULL"),
        ("a BETWEEN 1 AND 2", "a BETWEEN 1 AND 2"),
        ("a NOT IN (1, 2)", "a NOT IN (1, 2)"),
        ("a IN (1, NULL)", "a IN (1, NULL)"),
        ("a = 1 OR a IS NOT DISTINCT FROM 2", "a = 1 OR a <=> 2"),
        ("CASE WHEN a > 1 THEN true END", "CASE WHEN a > 1 THEN TRUE END"),
        (
            "CASE a WHEN 1 THEN true WHEN 2 THEN false ELSE true END",
            "CASE WHEN a = 1 THEN TRUE WHEN a = 2 THEN FALSE ELSE TRUE END",
        ),
        ("a % 2 = 1", "a % 2 = 1"),
        ("a / 2.0 > 1", "a / 2.0 > 1"),
        ("a + 1 > 3", "a + 1 > 3"),
        ("DATE '2020-01-01' > a", "DATE '2020-01-01' > a"),
        ("starts_with(s, 'x')", "startswith(s, 'x')"),
        ("length(s) > 3", "length(s) > 3"),
        ("coalesce(a, 1) = 2", "coalesce(a, 1) = 2"),
        ("isnan(f)", "f = CAST('NaN' AS DOUBLE)"),
    ],
)
def test_parsed_expressions_have_their_counterpart(frame: Any, sql: str, text: str) -> None:
    assert show(frame.parse_sql_expr(sql)) == text


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (col("st")["x"]["y"] > lit(1), "st.x.y > 1"),
        (col("d") == lit(date(2020, 1, 1)), "d = DATE '2020-01-01'"),
        (col("t") < lit(datetime(2020, 1, 1)), "t < TIMESTAMP_NTZ '2020-01-01 00:00:00'"),
        (col("a") == lit(None), "a = NULL"),
        (col("a") == lit(float("nan")), "a = CAST('NaN' AS DOUBLE)"),
        (functions.in_list(col("a"), [lit(1)], negated=True), "a NOT IN (1)"),
        (col('"A b"') < lit(pa.scalar(3, pa.int8())), "A b < 3"),
        (col("t.a") > lit(1), "a > 1"),
        ((col("a") > lit(1)).alias("q"), "a > 1"),
    ],
)
def test_built_expressions_have_their_counterpart(expression: Any, text: str) -> None:
    assert show(expression) == text


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("s ILIKE 'x'", "operator 'ILIKE' has no counterpart here: write the filter as SQL text"),
        ("s ~ 'x'", "operator '~'"),
        ("a || s = 'x'", r"operator '\|\|'"),
        ("a & 1 = 1", "operator '&'"),
        ("date_trunc('day', s) = s", "function 'date_trunc'"),
        ("EXISTS (SELECT 1)", "node 'Exists'"),
        ("CAST(a AS DOUBLE) > 1", "cast to Float64, which depends on the type of a column"),
        ("CAST('x' AS DATE) > a", "literal cannot be cast to Date32"),
        ("a / 2 > 1", "divides integers, which truncates there"),
        ("a / 0.0 > 1", "may be zero"),
        ("a % f = 1", "% by something that may be zero"),
        ("a + f > 3", r"\+ of two columns, which may be texts or dates"),
    ],
)
def test_what_would_mean_something_else_is_refused(frame: Any, sql: str, text: str) -> None:
    with pytest.raises(ExpressionError, match=text):
        to_expr(frame.parse_sql_expr(sql))


def test_a_deep_expression_works() -> None:
    joined = col("a") > lit(0)
    for number in range(1_000):
        joined = joined & (col("a") > lit(number))
    assert isinstance(to_expr(joined), Call)


def test_files_are_pruned_by_an_expression(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    pq.write_table(pa.table({"a": range(100)}), path, row_group_size=10)
    expression = (col("a") >= lit(35)) & (col("a") < lit(37))
    assert PruneRequest(path).with_predicate(expression).prune().row_groups == (3,)
    assert tamis.open(path).scan(expression).to_arrow()["a"].to_pylist() == [35, 36]
