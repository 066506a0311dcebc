"""Polars expressions as filters: what they translate to, what is refused, and that the rows are those of Polars."""

from __future__ import annotations

import functools
import operator
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import ExpressionError, InvalidArgument, TypeMismatch
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import Call, Literal, Name
from tamis.expr.sql.printer import to_display_sql
from tamis.parquet import PruneRequest

a, s = pl.col("a"), pl.col("s")


def show(expression: pl.Expr) -> str:
    found = to_expr(expression)
    assert isinstance(found, Name | Literal | Call)
    return to_display_sql(found).replace("`", "")


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (a > 5, "a > 5"),
        (pl.lit(5) < a, "5 < a"),
        ((a >= 5) & (s != "x"), "a >= 5 AND s <> 'x'"),
        ((a < 2.5) | ~(s == "x"), "a < 2.5 OR s <> 'x'"),
        (a.is_null(), "a IS NULL"),
        (a.is_not_null(), "a IS NOT NULL"),
        (a.eq_missing(3), "a <=> 3"),
        (a.ne_missing(None), "a IS DISTINCT FROM NULL"),
        (a.is_in([1, 2, None]), "a IN (1, 2)"),
        (a.is_in([1, None], nulls_equal=True), "a IS NULL OR a IN (1)"),
        (a.is_in([1], nulls_equal=True), "a IS NOT NULL AND a IN (1)"),
        (s.is_in(pl.Series(["x", "y"])), "s IN ('x', 'y')"),
        (a.is_in([]), "a <> a"),
        (a.is_between(1, 5), "a >= 1 AND a <= 5"),
        (a.is_between(1, 5, closed="right"), "a > 1 AND a <= 5"),
        (s.str.starts_with("x"), "startswith(s, 'x')"),
        (s.str.ends_with(pl.col("t")), "endswith(s, t)"),
        (s.str.contains("a.b", literal=True), "contains(s, 'a.b')"),
        (s.str.contains("ab"), "contains(s, 'ab')"),
        (s.str.to_lowercase() == "x", "lower(s) = 'x'"),
        (s.str.len_chars() > 3, "length(s) > 3"),
        (a == date(2020, 1, 2), "a = DATE '2020-01-02'"),
        (a < datetime(2020, 1, 1, 2, 3, 4, 5), "a < TIMESTAMP_NTZ '2020-01-01 02:03:04.000005'"),
        (a < datetime(2020, 1, 1, tzinfo=UTC), "a < TIMESTAMP '2020-01-01 00:00:00Z'"),
        (a == Decimal("-1.50"), "a = -1.50"),
        (a == b"ab", "a = X'6162'"),
        (a + 1 > 2, "a + 1 > 2"),
        (a / 2 > 1, "a / 2 > 1"),
        (-a.abs() > -3, "-abs(a) > -3"),
        (pl.col("st").struct.field("x").struct.field("y") > 5, "st.x.y > 5"),
        (a.fill_null(3) == 3, "coalesce(a, 3) = 3"),
        (pl.coalesce("a", "b") > 3, "coalesce(a, b) > 3"),
        ((a > 1).alias("z"), "a > 1"),
        (pl.when(a > 1).then(a > 2).otherwise(False), "CASE WHEN a > 1 THEN a > 2 ELSE FALSE END"),
        (pl.all_horizontal(a > 1, s == "x"), "a > 1 AND s = 'x'"),
        (pl.any_horizontal(a > 1, s == "x"), "a > 1 OR s = 'x'"),
        (a.is_nan(), "a = CAST('NaN' AS DOUBLE)"),
        (a < float("nan"), "a < CAST('NaN' AS DOUBLE)"),
        (a == float("inf"), "a = CAST('Infinity' AS DOUBLE)"),
        (pl.col("d").dt.year() == 2020, "year(d) = 2020"),
        (pl.col("d").dt.date() == date(2020, 1, 2), "CAST(d AS DATE) = DATE '2020-01-02'"),
        (a.cast(pl.Float64) / 2 > 1, "CAST(a AS DOUBLE) / 2 > 1"),
        (a.cast(pl.Int32, strict=False) == 1, "TRY_CAST(a AS INT) = 1"),
        (s.str.len_bytes() == 3, "octet_length(s) = 3"),
    ],
)
def test_expressions_have_their_counterpart(expression: pl.Expr, text: str) -> None:
    shown = show(expression)
    assert shown in (text, text.replace("s <> 'x'", "NOT (s = 'x')"))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (a / pl.col("b") > 1, "may be zero, which is infinite in Polars"),
        (a / 0 > 1, "may be zero"),
        (a + pl.col("b") > 1, r"\+ of two columns, which may be texts or dates"),
        (s + "x" == "yx", r"\+ of two columns"),
        (
            a.cast(pl.Decimal(10, 2)) > 3,
            "cast to {'Decimal': .*} has no counterpart here: write the filter as SQL text",
        ),
        (a.cast(pl.Int8, wrap_numerical=True) > 3, "node 'Cast'"),
        (a.round(2) == 1, "function 'Round"),
        (a % pl.col("b") > 1, "% of two columns"),
        (pl.col("d").dt.iso_year() == 2020, "function 'TemporalExpr.IsoYear'"),
        (
            (a < float("inf")) & (a > float("-inf")),
            "several of NaN, infinity and -infinity, which its JSON does not tell",
        ),
        (a.sum() > 3, "node 'Agg'"),
        (a.shift() > 3, "function 'Shift'"),
        (a.fill_null(strategy="forward") > 3, "function 'FillNullWithStrategy.Forward'"),
        (s.str.contains("a.b"), "regular expression: pass literal=True"),
        (a.is_in(pl.col("b")), "items of a Polars is_in are not a list"),
        (pl.col("a", "b") > 1, "selects columns by a pattern or a position: name one column"),
        (pl.nth(0) > 1, "selects columns"),
        (pl.col("^a.*$") > 1, "selects columns"),
        (a.over("b") > 1, "node 'Over'"),
    ],
)
def test_what_would_mean_something_else_is_refused(expression: pl.Expr, text: str) -> None:
    with pytest.raises(ExpressionError, match=text):
        to_expr(expression)


@pytest.mark.parametrize("expression", [(a & 1) == 1, ~a == 3])
def test_bits_are_not_taken_for_logic(expression: pl.Expr, tmp_path: Path) -> None:
    pl.DataFrame({"a": [1, 2]}).write_parquet(tmp_path / "f.parquet")
    with pytest.raises(TypeMismatch):
        tamis.open(tmp_path).scan(expression).to_arrow()


def test_any_number_of_conditions_works() -> None:
    joined = functools.reduce(operator.and_, [a > number for number in range(3_000)])
    found = to_expr(joined)
    assert isinstance(found, Call)
    assert show(a.is_in(list(range(50_000)))).startswith("a IN (0, 1, ")


FRAME = pl.DataFrame(
    {
        "i": [1, 2, None, -7, 5, 2**60],
        "f": [1.0, float("nan"), None, -0.0, float("inf"), 2.5],
        "s": ["x", "", None, "äx", "xyz", "X"],
        "b": [True, False, None, True, False, None],
        "d": [date(2020, 1, 1), None, date(1969, 12, 31), date(2024, 2, 29), date(2020, 1, 2), date(1, 1, 1)],
        "t": [datetime(2020, 1, 1, 12), None, datetime(1969, 12, 31), datetime.max, datetime(2020, 1, 1), datetime.min],
        "st": [{"x": 1}, {"x": None}, None, {"x": 3}, {"x": 1}, {"x": 9}],
        "row": [0, 1, 2, 3, 4, 5],
    },
    schema_overrides={"t": pl.Datetime("us")},
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("polars") / "f.parquet"
    FRAME.write_parquet(path, row_group_size=2)
    return path


@pytest.mark.parametrize(
    "make",
    [
        lambda c: c("f") > 1.5,
        lambda c: c("f").is_nan(),
        lambda c: ~c("f").is_nan(),
        lambda c: c("f").is_finite(),
        lambda c: c("f").is_infinite(),
        lambda c: c("f") == 0.0,
        lambda c: c("f").is_in([0.0, float("nan")]),
        lambda c: ~c("i").is_in([1, None]),
        lambda c: ~c("i").is_in([1, None], nulls_equal=True),
        lambda c: ~c("i").is_in([]),
        lambda c: ~c("i").is_in([], nulls_equal=True),
        lambda c: c("s").is_in(["x", None], nulls_equal=True),
        lambda c: ~c("s").is_in(["x", None]),
        lambda c: c("s").is_in(pl.Series(["x", None, "X"], dtype=pl.Categorical).cast(pl.String)),
        lambda c: c("d").is_in([date(2020, 1, 1), None]),
        lambda c: c("t").is_in([datetime(2020, 1, 1), None], nulls_equal=True),
        lambda c: c("b").is_in([True, None], nulls_equal=True),
        lambda c: c("b") & (c("i") > 0),
        lambda c: c("b") | (c("i") > 0),
        lambda c: c("b").ne_missing(True),
        lambda c: c("b").fill_null(True),
        lambda c: pl.when(c("i") > 1).then(c("b")),
        lambda c: c("s").str.starts_with("x"),
        lambda c: ~c("s").str.contains("x", literal=True),
        lambda c: c("s").str.len_chars() == 2,
        lambda c: c("d") >= date(2020, 1, 1),
        lambda c: c("d") < datetime(2020, 1, 1, 1),
        lambda c: c("t") == datetime(2020, 1, 1, 12),
        lambda c: c("st").struct.field("x").is_null(),
        lambda c: c("st").struct.field("x") >= 3,
        lambda c: c("i") * 2 - 1 > 3,
        lambda c: c("i") / 2 < 1,
        lambda c: c("i").is_between(1, c("f")),
    ],
)
def test_rows_are_those_of_polars(file: Path, make: Callable[[Any], pl.Expr]) -> None:
    expression = make(pl.col)
    expected = FRAME.filter(expression)["row"].to_list()
    found = tamis.open(file).scan(expression).to_arrow()["row"].to_pylist()
    assert found == expected
    result = PruneRequest(file).with_predicate(expression).prune()
    kept = result.row_selection.in_file(result.row_groups, [2, 2, 2]).to_indices().tolist()
    assert set(expected) <= set(kept)


def test_a_frame_is_not_an_expression(file: Path) -> None:
    with pytest.raises(InvalidArgument, match=r"where cannot be a polars.*: give SQL text"):
        tamis.open(file).scan(FRAME["b"])


NUMBERS = pl.DataFrame(
    {
        "g": [0.1, float("nan"), None, 16777216.0, float("inf"), 0.5],
        "f": [0.1, float("nan"), None, 10.0, 100.0, 0.5],
        "k": [1, 2, None, 127, -128, 0],
        "m": [Decimal("0.10"), Decimal("0.12"), None, Decimal("0.13"), Decimal("1.00"), Decimal("0.00")],
        "d": [date(2020, 1, 1), date(2020, 1, 2), None, None, None, None],
        "row": [0, 1, 2, 3, 4, 5],
    },
    schema_overrides={"g": pl.Float32, "k": pl.Int8, "m": pl.Decimal(10, 2)},
)
g, f, k, m = (pl.col(name) for name in "gfkm")


@pytest.mark.parametrize(
    "expression",
    [
        g == 0.1,
        g > 0.1,
        g <= 0.1,
        pl.lit(0.1) < g,
        g.eq_missing(0.1),
        g.ne_missing(0.1),
        g == 16777217,
        g == 1e300,
        g == pl.lit(0.1, dtype=pl.Float64),
        g == pl.lit(0.1, dtype=pl.Float32),
        g == pl.lit(0.05) * 2,
        g == f,
        g.is_between(0.1, 0.5),
        g.is_in([0.1]),
        g.is_in(pl.Series([0.1], dtype=pl.Float32).implode()),
        g * 2 > 0.2,
        g * 0.1 == 0.05,
        g * pl.lit(3, dtype=pl.Int8) == 0.3,
        g * pl.lit(3, dtype=pl.Int64) == 0.3,
        g / 3 == 1 / 6,
        f / 3 == 33.33333333333333,
        f / 3 == 10 / 3,
        -g == -0.1,
        g.abs() == 0.1,
        g.fill_null(0.1) == 0.1,
        pl.when(k > 1).then(0.1).otherwise(g) == 0.1,
        k > 300,
        k < 300,
        k == 1.5,
        k < 1.5,
        m == 0.1,
        m > 0.125,
        m / 2.0 == 0.05,
        pl.col("d") < datetime(2020, 1, 1, 12),
    ],
    ids=str,
)
def test_numbers_have_the_types_that_polars_gives_them(expression: pl.Expr, tmp_path: Path) -> None:
    NUMBERS.write_parquet(tmp_path / "f.parquet", row_group_size=1)
    for each in (expression, ~expression):
        expected = NUMBERS.filter(each)["row"].to_list()
        assert tamis.open(tmp_path / "f.parquet").scan(each).to_arrow()["row"].to_pylist() == expected


def test_a_decimal_that_polars_divides_is_an_error(tmp_path: Path) -> None:
    NUMBERS.write_parquet(tmp_path / "f.parquet")
    with pytest.raises(ExpressionError, match="divides a decimal, which Polars rounds"):
        tamis.open(tmp_path / "f.parquet").scan(m / 3 > 0.33).to_arrow()


def _draw_rows(seed: int) -> pl.DataFrame:
    """Return rows with NULL, NaN, negative numbers and the ends of types."""
    draw = random.Random(seed)
    specials = (float("nan"), float("inf"), -float("inf"), -0.0, 0.5, 1.5, 2.5, -2.5, 1e300, 9.3e18, 2.0**31, -128.9)
    makers: dict[str, Callable[[], object]] = {
        "i": lambda: draw.choice((draw.randint(-10, 10), draw.randint(-(2**62), 2**62), 127, 128, -129)),
        "k": lambda: draw.randint(-128, 127),
        "u": lambda: draw.randint(0, 255),
        "f": lambda: draw.choice((*specials, draw.uniform(-1e3, 1e3), draw.gauss(0, 3))),
        "g": lambda: draw.choice((*specials[:8], draw.gauss(0, 3))),
        "b": lambda: draw.random() < 0.5,
        "c": lambda: draw.random() < 0.5,
        "s": lambda: draw.choice(("", "a", "Äö", "ß", "ΑΣ", "ﬁ", "İ", "日本")),
        "d": lambda: date.fromordinal(draw.randint(1, 3_652_059)),
        "t": lambda: datetime(1, 1, 1) + timedelta(microseconds=draw.randint(0, 3_652_058 * 86_400 * 10**6)),
        "z": lambda: datetime(1900, 1, 1, tzinfo=UTC) + timedelta(microseconds=draw.randint(0, 10**16)),
    }
    columns = {name: [None if draw.random() < 0.15 else make() for _ in range(40)] for name, make in makers.items()}
    overrides = {"k": pl.Int8, "u": pl.UInt8, "g": pl.Float32}
    return pl.DataFrame({"row": range(40), **columns}, schema_overrides=overrides)


_CAST_TYPES = (pl.Float64, pl.Float32, pl.Int64, pl.Int32, pl.Int16, pl.Int8, pl.UInt8)
_PARTS_OF_DATES = ("year", "month", "day", "quarter", "ordinal_day", "date")
VALUES = {
    **{f"{name} % {by}": pl.col(name) % by for name in "ik" for by in (3, -3, 7, -1, 100)},
    **{f"{name} // {by}": pl.col(name) // by for name in "iku" for by in (3, 7, 100)},
    **{f"{name} // {by}": pl.col(name) // by for name in "ik" for by in (-3, -100)},
    **{f"{name} as {kind}": pl.col(name).cast(kind, strict=False) for name in "ikufgb" for kind in _CAST_TYPES},
    **{f"{name} as {kind}": pl.col(name).cast(kind) for name in "kub" for kind in (pl.Float64, pl.Int16, pl.String)},
    **{f"{part}({name})": getattr(pl.col(name).dt, part)() for name in "dtz" for part in _PARTS_OF_DATES},
    **{f"{part}({name})": getattr(pl.col(name).dt, part)() for name in "tz" for part in ("hour", "minute", "second")},
    **{
        f"round({name}, {mode})": pl.col(name).round(mode=mode)
        for name in "ifg"
        for mode in ("half_to_even", "half_away_from_zero")
    },
    "d as timestamp": pl.col("d").cast(pl.Datetime("us")),
    "t as date": pl.col("t").cast(pl.Date),
    "bytes": s.str.len_bytes(),
    "characters": s.str.len_chars(),
    "lower": s.str.to_lowercase(),
    "upper": s.str.to_uppercase(),
    "xor": pl.col("b") ^ pl.col("c"),
    "constant": pl.col("g") * (pl.lit(7) % -3) + pl.lit(-7) // 2,
}


@pytest.mark.parametrize("seed", range(2))
def test_values_are_those_of_polars(seed: int, tmp_path: Path) -> None:
    frame = _draw_rows(seed)
    frame.write_parquet(tmp_path / "f.parquet", row_group_size=7)
    table = tamis.open(tmp_path / "f.parquet")
    draw = random.Random(seed)
    for name, value in VALUES.items():
        computed = frame.select(value.alias("value"))["value"]
        present = computed.drop_nulls().to_list()
        for test in (value == draw.choice(present), value < draw.choice(present), value.is_null()):
            expected = frame.filter(test)["row"].to_list()
            assert table.scan(test).to_arrow()["row"].to_pylist() == expected, (name, str(test))


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        (pl.col("f") % 3 > 1, "has % of a double"),
        (pl.col("f") // 3 > 1, "has div of a double"),
        (pl.col("i") % 2.5 > 1, "has % of a bigint"),
        (pl.col("f").cast(pl.String) == "1.0", "has cast of a double to string"),
        (pl.col("s").cast(pl.Int64) == 1, "has cast of a large_string to bigint"),
        (pl.col("f").cast(pl.Boolean), "has cast of a double to boolean"),
        (pl.col("d").dt.hour() == 1, "has hour of a date"),
        (pl.col("i") ^ 3 == 1, "has xor of a bigint"),
        (pl.col("s").str.to_lowercase().round() == 1, "has bround of a string"),
    ],
    ids=str,
)
def test_types_for_which_polars_computes_otherwise_are_refused(expression: pl.Expr, text: str, tmp_path: Path) -> None:
    _draw_rows(0).write_parquet(tmp_path / "f.parquet")
    with pytest.raises(ExpressionError, match=text):
        tamis.open(tmp_path / "f.parquet").scan(expression).to_arrow()


def test_parts_of_instants_in_a_local_zone_are_refused(tmp_path: Path) -> None:
    paris = pa.array([datetime(2024, 1, 1)], pa.timestamp("us", "Europe/Paris"))
    pq.write_table(pa.table({"p": paris}), tmp_path / "f.parquet")
    for expression in (pl.col("p").dt.hour() == 0, pc.hour(pc.field("p")) == 0):
        with pytest.raises(ExpressionError, match="has hour of"):
            tamis.open(tmp_path / "f.parquet").scan(expression).to_arrow()


def test_T5_nanoseconds_are_not_rounded(tmp_path: Path) -> None:
    rows = pa.table({"t": pa.array([-1, 0, 86_399_999_999_999, 4_000_000_000], pa.timestamp("ns"))})
    pq.write_table(rows, tmp_path / "f.parquet")
    table, frame = tamis.open(tmp_path / "f.parquet"), pl.from_arrow(rows)
    t = pl.col("t")
    for exact in (t.dt.hour() > 3, t.dt.year() == 1969, pc.hour(pc.field("t")) > 3, pc.year(pc.field("t")) == 1969):
        expected = frame.filter(exact) if isinstance(exact, pl.Expr) else pl.from_arrow(rows.filter(exact))
        assert table.scan(exact).to_arrow().num_rows == len(expected)
    rounded = (
        t.dt.second() > 3, t.dt.quarter() == 1, t.dt.ordinal_day() == 1,
        t.cast(pl.Datetime("us")) < datetime(1970, 1, 1),
        t.cast(pl.Date) == date(1969, 12, 31), pc.second(pc.field("t")) > 3, pc.day_of_year(pc.field("t")) == 1,
    )  # fmt: skip
    for expression in rounded:
        with pytest.raises(ExpressionError, match="which SQL computes otherwise"):
            table.scan(expression).to_arrow()


def test_infinity_beside_a_typed_null_is_translated() -> None:
    expression = (a == float("inf")) & (pl.col("b") == pl.lit(None, dtype=pl.Float64))
    assert show(expression) == "a = CAST('Infinity' AS DOUBLE) AND b = NULL"
