from __future__ import annotations

import math
import struct
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlglot import exp

from builders.values.nodes import call, number, text
from tamis import types
from tamis.expr.builder import col
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Expr, Literal, Name, and_, not_, or_
from tamis.expr.sql.parse import parse_sql, to_expression
from tamis.expr.sql.printer import to_sql
from tamis.expr.sql.syntax import parse_expression
from tamis.expr.sql.to_tree import to_tree

A, B, C = Name(("a",)), Name(("b",)), Name(("c",))


def parse_tree(text: str) -> exp.Expr:
    return parse_expression(text, lambda tree: tree)


@pytest.mark.parametrize(
    ("expr", "printed"),
    [
        (call("-", number(1), call("-", number(2), number(3))), "1 - (2 - 3)"),
        (call("-", call("-", number(1), number(2)), number(3)), "1 - 2 - 3"),
        (call("*", call("+", A, B), C), "(a + b) * c"),
        (call("+", call("*", A, B), C), "a * b + c"),
        (call("/", A, call("*", B, C)), "a / (b * c)"),
        (call("negate", A), "-a"),
        (call("negate", number(5)), "-(5)"),
        (call("negate", number(-5)), "-(-5)"),
        (call("negate", call("negate", A)), "-(-a)"),
        (call("negate", call("+", A, B)), "-(a + b)"),
        (call("-", A, number(-5)), "a - -5"),
        (call("=", call("=", A, B), C), "(a = b) = c"),
        (call("=", A, call("<", B, C)), "a = (b < c)"),
        (call("is_null", call("=", A, B)), "(a = b) IS NULL"),
        (call("is_null", call("is_not_null", A)), "(a IS NOT NULL) IS NULL"),
        (not_(call("is_null", A)), "NOT (a IS NULL)"),
        (not_(call("=", A, B)), "NOT (a = b)"),
        (not_(not_(A)), "NOT (NOT a)"),
        (not_(call("in", A, number(1), NULL)), "a NOT IN (1, NULL)"),
        (not_(call("like", A, text("x%"))), "a NOT LIKE 'x%'"),
        (not_(call("like", A, text("x!%"), text("!"))), "a NOT LIKE 'x!%' ESCAPE '!'"),
        (not_(call("<=>", A, B)), "a IS DISTINCT FROM b"),
        (call("<=>", A, not_(call("<=>", B, C))), "a <=> (b IS DISTINCT FROM c)"),
        (or_(and_(A, B), C), "a AND b OR c"),
        (and_(or_(A, B), C), "(a OR b) AND c"),
        (and_(and_(A, B), C), "(a AND b) AND c"),
        (and_(A, and_(B, C)), "a AND (b AND c)"),
        (and_(A, B, C), "a AND b AND c"),
        (call("case", A, number(1), NULL), "CASE WHEN a THEN 1 END"),
        (call("case", A, number(1), B, number(2), C), "CASE WHEN a THEN 1 WHEN b THEN 2 ELSE c END"),
        (call("+", call("case", A, B, C), number(1)), "CASE WHEN a THEN b ELSE c END + 1"),
        (call("cast", A, text("decimal(10,2)")), "CAST(a AS DECIMAL(10,2))"),
        (call("cast", number(5), text("int")), "CAST((5) AS INT)"),
        (call("cast", text("2024-01-01"), text("date")), "CAST(('2024-01-01') AS DATE)"),
        (call("cast", text("x"), text("int")), "CAST('x' AS INT)"),
        (call("try_cast", A, text("int")), "TRY_CAST(a AS INT)"),
        (call("negate", call("cast", number(128), text("tinyint"))), "-(CAST(128 AS TINYINT))"),
        (call("my_function", A, call("+", B, C)), "my_function(a, b + c)"),
        (call("current_date"), "current_date()"),
        (call("sql", text("a || b"), A, B), "(a || b)"),
        (call("=", call("sql", text("a || b"), A, B), text("x")), "(a || b) = 'x'"),
    ],
)  # fmt: skip
def test_prints_minimal_brackets_and_round_trips(expr: Expr, printed: str) -> None:
    assert to_sql(expr) == printed
    assert parse_sql(printed) == expr
    assert to_tree(expr) == parse_tree(printed)


@pytest.mark.parametrize(
    ("value", "data_type", "printed"),
    [
        (None, types.NULL, "NULL"),
        (None, pa.int32(), "CAST(NULL AS INT)"),
        (None, pa.decimal128(10, 2), "CAST(NULL AS DECIMAL(10,2))"),
        (None, types.INTERVAL, "CAST(NULL AS INTERVAL)"),
        (5, types.LONG, "5"),
        (-(2**63), types.LONG, "-9223372036854775808"),
        (5, pa.int8(), "CAST(5 AS TINYINT)"),
        (-128, pa.int8(), "CAST(-128 AS TINYINT)"),
        (5, pa.int16(), "CAST(5 AS SMALLINT)"),
        (5, pa.int32(), "CAST(5 AS INT)"),
        (2**64 - 1, pa.uint64(), "CAST(18446744073709551615 AS UBIGINT)"),
        (200, pa.uint8(), "CAST(200 AS UTINYINT)"),
        (1.5, types.DOUBLE, "1.5D"),
        (-0.0, types.DOUBLE, "-0.0D"),
        (1e300, types.DOUBLE, "1e300"),
        (5e-324, types.DOUBLE, "5e-324"),
        (math.nan, types.DOUBLE, "CAST('NaN' AS DOUBLE)"),
        (-math.inf, types.DOUBLE, "CAST('-Infinity' AS DOUBLE)"),
        (math.inf, pa.float32(), "CAST('Infinity' AS FLOAT)"),
        (struct.unpack("f", struct.pack("f", 0.1))[0], pa.float32(), "0.1F"),
        (Decimal("1.50"), pa.decimal128(3, 2), "1.50"),
        (Decimal("-0.05"), pa.decimal128(2, 2), "-0.05"),
        (Decimal("1.50"), pa.decimal128(10, 2), "CAST(1.50 AS DECIMAL(10,2))"),
        (Decimal(5), pa.decimal128(1, 0), "CAST(5 AS DECIMAL(1,0))"),
        (Decimal(10**20), pa.decimal128(21, 0), "100000000000000000000"),
        (Decimal(10**50), pa.decimal256(51, 0), "1" + "0" * 50),
        ("it's \\ \"x\"\n\t\0é", types.STRING, "'it\\'s \\\\ \"x\"\\n\\t\\u0000é'"),
        (b"\x00\xff", types.BINARY, "X'00FF'"),
        (b"", types.BINARY, "X''"),
        (0, types.DATE, "DATE '1970-01-01'"),
        (10_000_000, types.DATE, "DATE '+29349-01-26'"),
        (-1_000_000, types.DATE, "DATE '-0768-02-04'"),
        (0, types.TIMESTAMP, "TIMESTAMP '1970-01-01 00:00:00Z'"),
        (-1, types.TIMESTAMP, "TIMESTAMP '1969-12-31 23:59:59.999999Z'"),
        (500_000, types.TIMESTAMP_NTZ, "TIMESTAMP_NTZ '1970-01-01 00:00:00.5'"),
        (5, pa.timestamp("ns"), "TIMESTAMP_NTZ '1970-01-01 00:00:00.000000005'"),
        (0, pa.timestamp("ns", "UTC"), "TIMESTAMP '1970-01-01 00:00:00.000000000Z'"),
        (5, pa.timestamp("s"), "CAST('1970-01-01 00:00:05' AS TIMESTAMP_S)"),
        (5, pa.timestamp("ms"), "CAST('1970-01-01 00:00:00.005' AS TIMESTAMP_MS)"),
        (5, pa.timestamp("ms", "UTC"), "CAST('1970-01-01 00:00:00.005Z' AS TIMESTAMP_MS)"),
        (2**62, types.TIMESTAMP, "TIMESTAMP '+148108-07-06 14:00:27.387904Z'"),
        ((0, 3, 0), types.INTERVAL, "INTERVAL '3' DAY"),
        ((-14, 0, 0), types.INTERVAL, "INTERVAL '-14' MONTH"),
        ((0, 0, -1_500_000_000), types.INTERVAL, "INTERVAL '-1.5' SECOND"),
        ((1, -2, 3), types.INTERVAL, "CAST('1 months -2 days 0.000000003 seconds' AS INTERVAL)"),
        ((0, 0, 0), types.INTERVAL, "INTERVAL '0' DAY"),
        ((0, 0, 86_400 * 10**9), types.INTERVAL, "CAST('86400 seconds' AS INTERVAL)"),
    ],
)  # fmt: skip
def test_literals_print_with_their_type_and_round_trip(value: Any, data_type: pa.DataType, printed: str) -> None:
    expr = Literal(value, data_type)
    assert to_sql(expr) == printed
    assert parse_sql(printed) == expr
    assert to_tree(expr) == parse_tree(printed)
    again = parse_sql(printed)
    assert isinstance(again, Literal)
    assert again.type == data_type


@pytest.mark.parametrize(
    ("value", "data_type", "printed"),
    [
        (90, pa.duration("s"), "INTERVAL '90' SECOND"),
        ("x", pa.large_string(), "'x'"),
        (0, pa.timestamp("us", "Europe/Paris"), "TIMESTAMP '1970-01-01 00:00:00Z'"),
        (None, pa.timestamp("s", "UTC"), "CAST(NULL AS TIMESTAMP)"),
        (None, pa.large_binary(), "CAST(NULL AS BINARY)"),
        (0, pa.date64(), "DATE '1970-01-01'"),
    ],
)
def test_literals_without_sql_syntax_print_as_the_nearest_form(
    value: Any, data_type: pa.DataType, printed: str
) -> None:
    assert to_sql(Literal(value, data_type)) == printed
    assert to_tree(Literal(value, data_type)) == parse_tree(printed)


@pytest.mark.parametrize(
    ("path", "printed"),
    [
        (("a",), "a"),
        (("a", "b"), "a.b"),
        (("A1_",), "A1_"),
        (("date",), "date"),
        (("timestamp", "index"), "timestamp.index"),
        (("a.b", "c"), "`a.b`.c"),
        (("my col",), "`my col`"),
        (("a`b",), "`a``b`"),
        (("it's",), "`it's`"),
        (('say "x"',), '`say "x"`'),
        (("a; DROP TABLE t; --",), "`a; DROP TABLE t; --`"),
        (("/* x */",), "`/* x */`"),
        (("1a",), "`1a`"),
        (("é",), "`é`"),
        (("select",), "`select`"),
        (("case",), "`case`"),
        (("interval",), "`interval`"),
        (("any",), "`any`"),
        (("current_date",), "`current_date`"),
        (("line\nbreak\\",), "`line\nbreak\\`"),
        (("a", "b", "c", "d", "e", "f"), "a.b.c.d.e.f"),
    ],
)
def test_X10_names_are_quoted_where_needed_and_round_trip(path: tuple[str, ...], printed: str) -> None:
    assert to_sql(Name(path)) == printed
    assert parse_sql(printed) == Name(path)
    assert to_tree(Name(path)) == parse_tree(printed)


HARMLESS = [
    "date", "time", "timestamp", "comment", "format", "index", "offset", "percent", "row", "rows", "text", "uuid",
]  # fmt: skip


@pytest.mark.parametrize("name", [*HARMLESS, "year", "day", "name", "value", "key", "level", "count", "user_id"])
@pytest.mark.parametrize(
    "template",
    [
        "{}", "{} = 1", "1 = {}", "{}.x = 1", "a.{} = 1", "{} IN (1, 2)", "1 IN ({}, 2)", "NOT {}", "-{}", "{} IS NULL",
        "{} LIKE 'x'", "'a' LIKE {}", "{} + 1", "1 - {}", "{} - 1", "{} * 2", "f({}, 1)", "f(1, {})",
        "CASE WHEN {} THEN {} ELSE {} END", "CAST({} AS INT)", "{} <=> 1", "{} IS DISTINCT FROM 1", "{} < {}",
        "date_trunc('month', {})", "{} >= DATE '2024-01-01' AND {} <= 2", "{} = INTERVAL '1' DAY", "{} NOT IN (1)",
    ],
)  # fmt: skip
def test_names_printed_without_quotes_parse_as_names_everywhere(name: str, template: str) -> None:
    plain = parse_sql(template.replace("{}", name))
    assert plain == parse_sql(template.replace("{}", f"`{name}`"))
    assert f"`{name}`" not in to_sql(plain)


def test_long_lists_are_shortened_for_display() -> None:
    expr = col("k").isin(range(1, 101)).node
    assert to_sql(expr, max_items=3) == "k IN (1, 2, 3, … 97 more)"
    assert to_sql(not_(expr), max_items=3) == "k NOT IN (1, 2, 3, … 97 more)"
    assert to_sql(col("k").isin(1, 2, 3).node, max_items=3) == "k IN (1, 2, 3)"
    assert to_sql(expr).count(",") == 99


def test_X11_ten_thousand_levels_print_and_round_trip() -> None:
    nested: Expr = call("=", A, number(0))
    for level in range(10_000):
        nested = not_(nested) if level % 2 else or_(nested, call("=", A, number(level)))
    assert parse_sql(to_sql(nested)) == nested


def test_an_interval_does_not_absorb_the_literal_added_to_it() -> None:
    day = Literal((0, 1, 0), types.INTERVAL)
    for added in (number(5), text("5"), day, call("*", number(5), A)):
        for left in (day, call("+", A, day), call("*", A, day)):
            expr = call("+", left, added)
            assert parse_sql(to_sql(expr)) == expr


# --- Any expression -------------------------------------------------------------------------------------------------

CASTABLE = [
    "boolean", "tinyint", "smallint", "int", "bigint", "utinyint", "usmallint", "uint", "ubigint", "float", "double",
    "string", "binary", "date", "timestamp", "timestamp_ntz", "timestamp_s", "timestamp_ms", "timestamp_ns", "interval",
    "decimal(10,2)", "decimal(38,0)", "void",
]  # fmt: skip

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def integers_of(data_type: pa.DataType) -> st.SearchStrategy[Literal]:
    smallest, largest = types.get_integer_range(data_type)
    return st.integers(smallest, largest).map(lambda value: Literal(value, data_type))


@st.composite
def decimals(draw: st.DrawFn) -> Literal:
    precision = draw(st.integers(1, 38))
    scale = draw(st.integers(0, precision))
    unscaled = draw(st.integers(-(10**precision) + 1, 10**precision - 1))
    value = Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
    return Literal(value, pa.decimal128(precision, scale))


def timestamps() -> st.SearchStrategy[Literal]:
    kinds = [pa.timestamp(unit, tz) for unit in types.UNITS_PER_SECOND for tz in (None, "UTC")]
    near = st.integers(-(10**18), 10**18)
    return st.tuples(near | st.integers(-(2**58), 2**58), st.sampled_from(kinds)).map(lambda pair: Literal(*pair))


def nulls() -> st.SearchStrategy[Literal]:
    named = [types.type_from_name(name) for name in CASTABLE]
    return st.sampled_from(named).map(lambda data_type: Literal(None, data_type))


LITERALS = st.one_of(
    st.sampled_from([TRUE, FALSE, NULL]),
    *(
        integers_of(pa.type_for_alias(name))
        for name in ("int8", "int16", "int32", "int64", "uint8", "uint32", "uint64")
    ),
    st.floats().map(lambda value: Literal(value, types.DOUBLE)),
    st.floats(width=32).map(lambda value: Literal(value, pa.float32())),
    decimals(),
    TEXTS.map(text),
    st.binary(max_size=6).map(lambda value: Literal(value, types.BINARY)),
    st.integers(-(2**31), 2**31 - 1).map(lambda value: Literal(value, types.DATE)),
    timestamps(),
    st.tuples(st.integers(-999, 999), st.integers(-999, 999), st.integers(-(2**63), 2**63 - 1)).map(
        lambda value: Literal(value, types.INTERVAL)
    ),
    nulls(),
)

NAMES = st.sampled_from(["a", "b", "Date", "select", "x y", "a.b", "ü", "`", "'"]) | TEXTS.filter(bool)
COLUMNS = st.lists(NAMES, min_size=1, max_size=6).map(lambda path: Name(tuple(path)))
UNITS = st.sampled_from(["year", "month", "day", "hour"]).map(text)
ESCAPES = st.sampled_from(["!", "#", "'", "é"]).map(text)


def calls(inner: st.SearchStrategy[Expr]) -> st.SearchStrategy[Expr]:
    def fixed(names: list[str], *args: st.SearchStrategy[Any]) -> st.SearchStrategy[Expr]:
        return st.builds(Call, st.sampled_from(names), st.tuples(*args))

    def several(names: list[str], fewest: int, most: int) -> st.SearchStrategy[Expr]:
        return st.builds(Call, st.sampled_from(names), st.lists(inner, min_size=fewest, max_size=most).map(tuple))

    cases = st.tuples(inner, inner, inner) | st.tuples(inner, inner, inner, inner, inner)
    return st.one_of(
        several(["and", "or"], 2, 4),
        several(["in"], 2, 4),
        several(["coalesce"], 1, 3),
        several(["substring"], 2, 3),
        several(["my_function", "current_date", "concat"], 0, 3),
        fixed(["not", "is_null", "is_not_null", "negate", "abs"], inner),
        fixed(["year", "month", "day", "hour", "minute", "upper", "lower", "length"], inner),
        fixed(["=", "<>", "<", "<=", ">", ">=", "<=>", "+", "-", "*", "/", "%"], inner, inner),
        fixed(["like", "startswith", "endswith", "contains"], inner, inner),
        fixed(["like"], inner, inner, ESCAPES),
        fixed(["cast", "try_cast"], inner, st.sampled_from(CASTABLE).map(text)),
        fixed(["date_trunc"], UNITS, inner),
        fixed(["trunc"], inner, UNITS),
        cases.map(lambda args: Call("case", args)),
    )


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(LITERALS)
def test_any_literal_round_trips_with_its_type(value: Literal) -> None:
    again = parse_sql(to_sql(value))
    assert again == value
    assert isinstance(again, Literal)
    assert again.type == value.type
    assert type(again.value) is type(value.value)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.recursive(LITERALS | COLUMNS, calls, max_leaves=12))
@example(call("negate", call("cast", number(128), text("tinyint"))))
@example(call("cast", call("negate", number(5)), text("string")))
@example(call("-", call("negate", number(1)), call("negate", number(-1))))
@example(call("+", Literal(None, types.LONG), Name(("a",))))
def test_any_expression_round_trips(expr: Expr) -> None:
    assert parse_sql(to_sql(expr)) == expr
    tree = to_tree(expr)
    assert to_expression(tree) == expr
    if "INTERVAL" not in to_sql(expr):
        # A text has brackets around what an interval before it would absorb.
        assert tree == parse_tree(to_sql(expr))
