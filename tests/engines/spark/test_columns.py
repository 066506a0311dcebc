"""Columns of PySpark as predicates: each has the semantics of the SQL beside it, on classic and Connect."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis import types
from tamis.errors import ExpressionError, UnknownColumn
from tamis.expr.interop.from_pyspark import from_pyspark
from tamis.expr.nodes import Call, Expr, Literal, Name
from tamis.expr.sql.parse import parse_sql


@pytest.fixture
def f(any_spark: Any) -> Any:
    """`pyspark.sql.functions` for the kind of session."""
    if "connect" in type(any_spark).__module__:
        from pyspark.sql.connect import functions

        return functions
    from pyspark.sql import functions

    return functions


Build = Callable[[Any], Any]

SAME_AS_TEXT: dict[str, Build] = {
    "x > 5": lambda f: f.col("x") > 5,
    "x < 5": lambda f: f.col("x") < 5,
    "x = 1099511627776": lambda f: f.col("x") == 2**40,
    "NOT (x = 1.5D)": lambda f: f.col("x") != 1.5,
    "(NOT (x < 3) AND a.b = 't') OR `a.b` IS NULL": lambda f: (
        (~(f.col("x") < 3) & (f.col("a.b") == "t")) | f.col("`a.b`").isNull()
    ),
    "x IN (1, 2, NULL)": lambda f: f.col("x").isin(1, 2, None),
    "false": lambda f: f.col("x").isin([]),
    "x >= 1 AND x <= 2": lambda f: f.col("x").between(1, 2),
    "s LIKE 'a\\\\_%'": lambda f: f.col("s").like("a\\_%"),
    "s ILIKE 'A%'": lambda f: f.col("s").ilike("A%"),
    "startswith(s, 'q')": lambda f: f.col("s").startswith("q"),
    "endswith(s, 'q')": lambda f: f.col("s").endswith("q"),
    "contains(s, 'it''s')": lambda f: f.col("s").contains("it's"),
    "rlike(s, 'a.b')": lambda f: f.col("s").rlike("a.b"),
    "CAST(x AS BIGINT) = 3": lambda f: f.col("x").cast("bigint") == 3,
    "CAST(x AS DECIMAL(10,2)) IS NOT NULL": lambda f: f.col("x").cast("decimal(10,2)").isNotNull(),
    "TRY_CAST(s AS INT) = 3": lambda f: f.col("s").try_cast("int") == 3,
    "x = 1.50": lambda f: f.col("x") == Decimal("1.50"),
    "b = X'6162'": lambda f: f.col("b") == f.lit(b"ab"),
    "d = DATE '1969-12-31'": lambda f: f.col("d") == date(1969, 12, 31),
    "ts >= TIMESTAMP '1969-12-31 23:59:59.999999Z'": lambda f: (
        f.col("ts") >= datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)
    ),
    "d = to_date('2024-02-01')": lambda f: f.col("d") == f.to_date(f.lit("2024-02-01")),
    "to_date(ts) = DATE '2024-02-01'": lambda f: f.to_date("ts") == date(2024, 2, 1),
    "x <=> NULL": lambda f: f.col("x").eqNullSafe(None),
    "NULL = x": lambda f: f.lit(None) == f.col("x"),
    "x > 3 OR length(y) < 2": lambda f: f.expr("x > 3 or length(y) < 2"),
    "CASE WHEN x > 1 THEN true WHEN x < 0 THEN false END": lambda f: f.when(f.col("x") > 1, True).when(
        f.col("x") < 0, False
    ),
    "CASE WHEN x > 1 THEN true ELSE false END": lambda f: f.when(f.col("x") > 1, True).otherwise(False),
    "year(d) = 2024": lambda f: f.year("d") == 2024,
    "date_trunc('MONTH', ts) = TIMESTAMP '2024-02-01 00:00:00Z'": lambda f: (
        f.date_trunc("MONTH", "ts") == datetime(2024, 2, 1, tzinfo=UTC)
    ),
    "trunc(d, 'year') = DATE '2024-01-01'": lambda f: f.trunc("d", "year") == date(2024, 1, 1),
    "st.f = 1": lambda f: f.col("st").getField("f") == 1,
    "st.f.g = 1": lambda f: f.col("st")["f"]["g"] == 1,
    "`arr`[0] = 1": lambda f: f.col("arr")[0] == 1,
    "substring(s, 1, 2) = 'ab'": lambda f: f.substring("s", 1, 2) == "ab",
    "((x + 1) * 2) % 3 - 1 / x > 4": lambda f: (f.col("x") + 1) * 2 % 3 - 1 / f.col("x") > 4,
    "-(x) < 1": lambda f: -f.col("x") < 1,
    "coalesce(x, y + 1) = 1": lambda f: f.coalesce(f.col("x"), f.col("y") + 1) == 1,
    "nvl(x, 1) = 1": lambda f: f.nvl(f.col("x"), f.lit(1)) == 1,
    "upper(concat(s, lower(t))) = 'A'": lambda f: f.upper(f.concat("s", f.lower("t"))) == "A",
    "isnan(x)": lambda f: f.isnan("x"),
    "x = DOUBLE('NaN')": lambda f: f.col("x") == float("nan"),
    "x > 5 AND true": lambda f: (f.col("x") > 5).alias("named") & f.lit(True),
    "date_sub(d, 3) = DATE '2024-01-01'": lambda f: f.date_sub("d", 3) == date(2024, 1, 1),
    "(`x` & 3) = 1": lambda f: f.col("x").bitwiseAND(3) == 1,
    "`a ``strange`` name` > 1": lambda f: f.col("`a ``strange`` name`") > 1,
}


def lower_names(expr: Expr) -> Expr:
    """Return the expression with lower-case function names: `isnan` and `isNaN` are one."""
    from tamis.expr.nodes import transform

    return transform(expr, lambda node: Call(node.function.lower(), node.args) if isinstance(node, Call) else node)


def test_columns_mean_the_same_as_the_text(f: Any) -> None:
    wrong = {
        text: repr(found)
        for text, build in SAME_AS_TEXT.items()
        if lower_names(found := from_pyspark(build(f))) != lower_names(parse_sql(text))
    }
    assert wrong == {}


def test_literals_without_a_text_of_their_own(f: Any) -> None:
    found = from_pyspark(f.col("t") == f.lit(time(1, 2, 3, 4)))
    assert found == Call("=", (Name(("t",)), Literal(3_723_000_004, types.TIME)))
    found = from_pyspark(f.col("ts") + f.lit(timedelta(days=1, microseconds=5)) > f.col("u"))
    interval = Literal((0, 0, 86_400_000_005_000), types.INTERVAL)
    assert found == Call(">", (Call("+", (Name(("ts",)), interval)), Name(("u",))))


def test_columns_of_a_data_frame_are_names(any_spark: Any) -> None:
    frame = any_spark.range(1)
    assert from_pyspark(frame.id > 1) == parse_sql("id > 1")
    assert from_pyspark(frame["id"].isNull()) == parse_sql("id IS NULL")


def test_a_function_without_a_counterpart_is_refused_by_name(f: Any) -> None:
    double = f.udf(lambda value: 2 * value, "int")
    refused: dict[str, Any] = {
        "LambdaFunction": f.exists("arr", lambda value: value > 3),
        "<lambda>": double("x") > 3,
        "count": f.count("x") > 1,
    }
    for name, column in refused.items():
        with pytest.raises(ExpressionError, match=name):
            from_pyspark(column)


def test_a_deeply_nested_column_is_accepted(connect_spark: Any) -> None:
    from pyspark.sql.connect import functions as f

    column = f.col("x")
    for _ in range(1000):
        column = ~column
    assert from_pyspark(column).function == "not"


def test_a_scan_takes_columns(f: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [1, 6, None, 9], "s": ["a", "b", "c", "d"]}), tmp_path / "t.parquet")
    table = tamis.open(tmp_path / "t.parquet")
    found = table.scan([f.col("X") > 5, f.col("s") != "d"], columns=["s"]).to_arrow()
    assert found.to_pydict() == {"s": ["b"]}
    with pytest.raises(UnknownColumn, match="no column 'y'"):
        table.scan(f.col("y") == 1)
