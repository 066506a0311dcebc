from __future__ import annotations

import inspect
import logging
import math
import sys
import threading
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from builders.values.nodes import call, number, text
from tamis import types
from tamis.errors import InvalidArgument, ParseError
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal, Name, and_, find_columns, not_, or_
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_sql

A, B, C = Name(("a",)), Name(("b",)), Name(("c",))
SECOND = 1_000_000_000


ONE, TWO, X = number(1), number(2), text("x")


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a = 1", call("=", A, ONE)),
        ("a == 1", call("=", A, ONE)),
        ("a <> 1", call("<>", A, ONE)),
        ("a != 1", call("<>", A, ONE)),
        ("a < 1", call("<", A, ONE)),
        ("a <= 1", call("<=", A, ONE)),
        ("a > 1", call(">", A, ONE)),
        ("a >= 1", call(">=", A, ONE)),
        ("a <=> 1", call("<=>", A, ONE)),
        ("a = b < c", call("<", call("=", A, B), C)),
        ("a < b IS NULL", call("is_null", call("<", A, B))),
        ("a IS DISTINCT FROM 1", not_(call("<=>", A, ONE))),
        ("a IS NOT DISTINCT FROM 1", call("<=>", A, ONE)),
        ("a BETWEEN 1 AND 2", and_(call(">=", A, ONE), call("<=", A, TWO))),
        ("a NOT BETWEEN 1 AND 2", not_(and_(call(">=", A, ONE), call("<=", A, TWO)))),
        ("a IN (1, 2)", call("in", A, ONE, TWO)),
        ("a IN (1)", call("in", A, ONE)),
        ("a IN (b, NULL)", call("in", A, B, NULL)),
        ("a NOT IN (1, NULL)", not_(call("in", A, ONE, NULL))),
        ("NOT a IN (1)", not_(call("in", A, ONE))),
        ("a LIKE 'x'", call("like", A, X)),
        ("a LIKE b", call("like", A, B)),
        ("a NOT LIKE 'x'", not_(call("like", A, X))),
        ("a LIKE 'x' ESCAPE '!'", call("like", A, X, text("!"))),
        ("a NOT LIKE 'x' ESCAPE '!'", not_(call("like", A, X, text("!")))),
        (r"a LIKE 'x' ESCAPE '\\'", call("like", A, X)),
        ("like(a, 'x')", call("like", A, X)),
        ("like(a, 'x', '!')", call("like", A, X, text("!"))),
        ("a ILIKE 'aX%'", call("like", call("lower", A), text("ax%"))),
        ("a NOT ILIKE 'X'", not_(call("like", call("lower", A), X))),
        ("a IS NULL", call("is_null", A)),
        ("a IS NOT NULL", call("is_not_null", A)),
        ("isnull(a)", call("is_null", A)),
        ("isnotnull(a)", call("is_not_null", A)),
        ("NOT (a IS NULL)", not_(call("is_null", A))),
        ("a IS TRUE", call("<=>", A, TRUE)),
        ("a IS FALSE", call("<=>", A, FALSE)),
        ("a IS NOT TRUE", not_(call("<=>", A, TRUE))),
        ("NOT a", not_(A)),
        ("! a", not_(A)),
        ("NOT a = b", not_(call("=", A, B))),
        ("NOT a AND b", and_(not_(A), B)),
        ("a AND b AND c", and_(A, B, C)),
        ("a OR b OR c", or_(A, B, C)),
        ("a AND b OR c", or_(and_(A, B), C)),
        ("a AND (b OR c)", and_(A, or_(B, C))),
        ("(a AND b) AND c", and_(and_(A, B), C)),
        ("a AND (b AND c)", and_(A, and_(B, C))),
        ("((a))", A),
    ],
)  # fmt: skip
def test_predicates(sql: str, expected: Expr) -> None:
    assert parse_sql(sql) == expected


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("a + 1 - 2", call("-", call("+", A, ONE), TWO)),
        ("a - (b - c)", call("-", A, call("-", B, C))),
        ("a + b * c", call("+", A, call("*", B, C))),
        ("a / b % c", call("%", call("/", A, B), C)),
        ("mod(a, 2)", call("%", A, TWO)),
        ("-a", call("negate", A)),
        ("+a", A),
        ("-(1)", call("negate", ONE)),
        ("- -1", call("negate", number(-1))),
        ("CASE WHEN a THEN 1 WHEN b THEN 2 ELSE c END", call("case", A, ONE, B, TWO, C)),
        ("CASE WHEN a THEN 1 END", call("case", A, ONE, NULL)),
        ("CASE a WHEN 1 THEN 2 WHEN b THEN c END", call("case", call("=", A, ONE), TWO, call("=", A, B), C, NULL)),
        ("IF(a, 1, 2)", call("case", A, ONE, TWO)),
        ("coalesce(a, b, 1)", call("coalesce", A, B, ONE)),
        ("nvl(a, b)", call("coalesce", A, B)),
        ("ifnull(a, b)", call("coalesce", A, B)),
        ("startswith(a, 'x')", call("startswith", A, X)),
        ("endswith(a, 'x')", call("endswith", A, X)),
        ("contains(a, 'x')", call("contains", A, X)),
        ("YEAR(a)", call("year", A)),
        ("month(a)", call("month", A)),
        ("day(a)", call("day", A)),
        ("dayofmonth(a)", call("day", A)),
        ("hour(a)", call("hour", A)),
        ("minute(a)", call("minute", A)),
        ("EXTRACT(YEAR FROM a)", call("year", A)),
        ("EXTRACT(minute FROM a)", call("minute", A)),
        ("date_part('MONTH', a)", call("month", A)),
        ("date_trunc('MONTH', a)", call("date_trunc", text("month"), A)),
        ("trunc(a, 'MM')", call("trunc", A, text("mm"))),
        ("substring(a, 1, 2)", call("substring", A, ONE, TWO)),
        ("substr(a, 2)", call("substring", A, TWO)),
        ("substring(a FROM 1 FOR 2)", call("substring", A, ONE, TWO)),
        ("left(a, 2)", call("substring", A, ONE, TWO)),
        ("upper(a)", call("upper", A)),
        ("lcase(a)", call("lower", A)),
        ("length(a)", call("length", A)),
        ("char_length(a)", call("length", A)),
        ("abs(a)", call("abs", A)),
    ],
)  # fmt: skip
def test_arithmetic_and_functions(sql: str, expected: Expr) -> None:
    assert parse_sql(sql) == expected


@pytest.mark.parametrize(
    ("sql", "name"),
    [
        ("CAST(a AS INT)", "int"),
        ("CAST(a AS integer)", "int"),
        ("CAST(a AS LONG)", "bigint"),
        ("CAST(a AS BYTE)", "tinyint"),
        ("CAST(a AS DECIMAL(10, 2))", "decimal(10,2)"),
        ("CAST(a AS DECIMAL)", "decimal(10,0)"),
        ("CAST(a AS VARCHAR(10))", "string"),
        ("CAST(a AS TIMESTAMP)", "timestamp"),
        ("CAST(a AS TIMESTAMP_LTZ)", "timestamp"),
        ("CAST(a AS TIMESTAMP_NTZ)", "timestamp_ntz"),
        ("CAST(a AS TIMESTAMP_NS)", "timestamp_ns"),
        ("CAST(a AS UBIGINT)", "ubigint"),
        ("CAST(a AS VOID)", "void"),
        ("a::double", "double"),
        ("bigint(a)", "bigint"),
        ("string(a)", "string"),
        ("date(a)", "date"),
        ("to_date(a)", "date"),
        ("to_timestamp(a)", "timestamp"),
    ],
)  # fmt: skip
def test_casts_use_canonical_type_names(sql: str, name: str) -> None:
    assert parse_sql(sql) == call("cast", A, text(name))


def test_try_cast() -> None:
    assert parse_sql("TRY_CAST(a AS INT)") == call("try_cast", A, text("int"))
    assert parse_sql("TRY_CAST('5' AS INT)") == call("try_cast", text("5"), text("int"))


@pytest.mark.parametrize(
    ("sql", "value", "data_type"),
    [
        ("5", 5, types.LONG),
        ("-5", -5, types.LONG),
        ("9223372036854775807", 2**63 - 1, types.LONG),
        ("-9223372036854775808", -(2**63), types.LONG),
        ("9223372036854775808", Decimal(2**63), pa.decimal128(19, 0)),
        ("1.50", Decimal("1.50"), pa.decimal128(3, 2)),
        (".5", Decimal("0.5"), pa.decimal128(1, 1)),
        ("1.", Decimal(1), pa.decimal128(1, 0)),
        ("1e3", 1000.0, types.DOUBLE),
        ("-1.5E-2", -0.015, types.DOUBLE),
        ("5L", 5, types.LONG),
        ("5S", 5, pa.int16()),
        ("5Y", 5, pa.int8()),
        ("-128Y", -128, pa.int8()),
        ("5D", 5.0, types.DOUBLE),
        ("0.1F", float(np.float32(0.1)), pa.float32()),
        ("1.5BD", Decimal("1.5"), pa.decimal128(2, 1)),
        ("CAST(5 AS INT)", 5, pa.int32()),
        ("CAST(-5 AS TINYINT)", -5, pa.int8()),
        ("CAST(5 AS DECIMAL(5,2))", Decimal("5.00"), pa.decimal128(5, 2)),
        ("CAST(0.1 AS DOUBLE)", 0.1, types.DOUBLE),
        ("CAST('NaN' AS DOUBLE)", math.nan, types.DOUBLE),
        ("CAST('Infinity' AS FLOAT)", math.inf, pa.float32()),
        ("CAST('-Infinity' AS DOUBLE)", -math.inf, types.DOUBLE),
        ("CAST(NULL AS INT)", None, pa.int32()),
        ("TRUE", True, types.BOOLEAN),
        ("NULL", None, types.NULL),
        ("'x'", "x", types.STRING),
        ('"x"', "x", types.STRING),
        ("'it''s'", "it's", types.STRING),
        (r"'it\'s'", "it's", types.STRING),
        (r"'a\tb\\c\u0041'", "a\tb\\cA", types.STRING),
        (r"'50\%'", r"50\%", types.STRING),
        (r"r'a\b'", r"a\b", types.STRING),
        ("'a' 'b'", "ab", types.STRING),
        ("X'1F'", b"\x1f", types.BINARY),
        ("x'f'", b"\x0f", types.BINARY),
        ("X''", b"", types.BINARY),
        ("DATE '2024-01-31'", 19_753, types.DATE),
        ("date '1969-12-31'", -1, types.DATE),
        ("DATE '+10000-01-01'", 2_932_897, types.DATE),
        ("CAST('2024-01-31' AS DATE)", 19_753, types.DATE),
        ("date('2024-01-31')", 19_753, types.DATE),
        ("TIMESTAMP '1970-01-01 00:00:01'", 1_000_000, types.TIMESTAMP),
        ("TIMESTAMP '1970-01-01T02:00:00+02:00'", 0, types.TIMESTAMP),
        ("TIMESTAMP '1970-01-01 01:00:00 Europe/Paris'", 0, types.TIMESTAMP),
        ("TIMESTAMP '1970-01-01 00:00:00.000000001'", 1, pa.timestamp("ns", "UTC")),
        ("TIMESTAMP '9999-12-31 23:59:59.999999999'", 253_402_300_800 * SECOND - 1, pa.timestamp("ns", "UTC")),
        ("TIMESTAMP_NTZ '1970-01-01 00:00:01'", 1_000_000, types.TIMESTAMP_NTZ),
        ("TIMESTAMP_NTZ '1970-01-01 00:00:00.0000000'", 0, pa.timestamp("ns")),
        ("TIMESTAMP_LTZ '1970-01-01'", 0, types.TIMESTAMP),
        ("INTERVAL 1 DAY", (0, 1, 0), types.INTERVAL),
        ("INTERVAL '1' DAY", (0, 1, 0), types.INTERVAL),
        ("INTERVAL -1 DAY", (0, -1, 0), types.INTERVAL),
        ("-INTERVAL '1' DAY", (0, -1, 0), types.INTERVAL),
        ("INTERVAL '2 days 3 hours'", (0, 2, 10_800 * SECOND), types.INTERVAL),
        ("INTERVAL 2 days 3 hours", (0, 2, 10_800 * SECOND), types.INTERVAL),
        ("INTERVAL '1-2' YEAR TO MONTH", (14, 0, 0), types.INTERVAL),
        ("INTERVAL '1 02:03:04.5' DAY TO SECOND", (0, 1, 7_384_500_000_000), types.INTERVAL),
        ("INTERVAL '1.5' SECOND", (0, 0, 1_500_000_000), types.INTERVAL),
        ("INTERVAL 3 weeks", (0, 21, 0), types.INTERVAL),
    ],
)  # fmt: skip
def test_literals(sql: str, value: Any, data_type: pa.DataType) -> None:
    found = parse_sql(sql)
    assert found == Literal(value, data_type)
    assert isinstance(found, Literal)
    assert found.type == data_type
    assert type(found.value) is type(value)


@pytest.mark.parametrize(
    "sql",
    [
        "CAST(300 AS TINYINT)",
        "CAST(1.55 AS DECIMAL(2,1))",
        "CAST(1.5 AS INT)",
        "CAST('5' AS INT)",
        "CAST('2024-02-30' AS DATE)",
        "CAST((5) AS INT)",
        "TRY_CAST(5 AS INT)",
    ],
)
def test_T4_casts_that_could_fail_stay_casts(sql: str) -> None:
    found = parse_sql(sql)
    assert isinstance(found, Call)
    assert found.function in ("cast", "try_cast")


@pytest.mark.parametrize(
    ("sql", "path", "position"),
    [
        ("a", ("a",), 1),
        ("  a.b", ("a", "b"), 3),
        ("a.b.c.d", ("a", "b", "c", "d"), 1),
        ("a.b.c.d.e.f.g", ("a", "b", "c", "d", "e", "f", "g"), 1),
        ("`a.b`.c", ("a.b", "c"), 1),
        ("`a``b`", ("a`b",), 1),
        ("`it's; -- \"x\"`", ("it's; -- \"x\"",), 1),
        ("a.`select`", ("a", "select"), 1),
        ("date", ("date",), 1),
        ("`日本`", ("日本",), 1),
        ("\n\t(ÄÖ)", ("ÄÖ",), 4),
    ],
)  # fmt: skip
def test_X10_columns_keep_their_path_and_position(sql: str, path: tuple[str, ...], position: int) -> None:
    found = parse_sql(sql)
    assert isinstance(found, Name)
    assert (found.path, found.position) == (path, position)


def test_positions_of_columns_are_characters_of_the_text() -> None:
    sql = "x = 'ä' AND\n f(`y z`) IS NULL\r\n OR z.w IN (a)"
    found = {column.name: column.position for column in find_columns(parse_sql(sql))}
    assert found == {"x": 1, "y z": sql.index("`") + 1, "z.w": sql.index("z.w") + 1, "a": sql.index("(a)") + 2}


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("my_function(a, 1)", call("my_function", A, ONE)),
        ("My_Function()", call("my_function")),
        ("regexp_extract(a, 'x', 1)", call("regexp_extract", A, X, ONE)),
        ("element_at(a, 'x')", call("element_at", A, X)),
        ("date_add(a, 1)", call("+", call("cast", A, Literal("date", types.STRING)), ONE)),
        ("dateadd(a, 1)", call("+", call("cast", A, Literal("date", types.STRING)), ONE)),
        ("date_sub(a, 1)", call("-", call("cast", A, Literal("date", types.STRING)), ONE)),
        ("date_sub('1970-01-02', a)", call("-", Literal(1, types.DATE), A)),
        ("date_add(a)", call("date_add", A)),
        ("round(a, 1) = 2", call("=", call("round", A, ONE), TWO)),
        ("concat(a, b)", call("concat", A, B)),
        ("decode(a, 1, 2)", call("decode", A, ONE, TWO)),
        ("to_date(a, 'x')", call("to_date", A, X)),
        ("trim(a)", call("trim", A)),
        ("current_date", call("current_date")),
        ("current_date()", call("current_date")),
        ("`my function`(a)", call("my function", A)),
    ],
)
def test_unsupported_functions_stay_calls_by_name(sql: str, expected: Expr) -> None:
    assert parse_sql(sql) == expected
    assert parse_sql(to_sql(expected)) == expected


@pytest.mark.parametrize(
    ("sql", "printed", "columns"),
    [
        ("a[0]", "a[0]", [A]),
        ("array(a, b)[1]", "array(a, b)[1]", [A, B]),
        ("list[0]", "list[0]", [Name(("list",))]),
        ("a['k'].b", "a['k'].b", [A]),
        ("a.b[c]", "a.b[c]", [Name(("a", "b")), C]),
        ("f(a).b", "f(a).b", [A]),
        ("transform(a, x -> x + b)", "transform(a, x -> x + b)", [A, B]),
        ("filter(a, x -> x.b > b)", "filter(a, x -> x.b > b)", [A, B]),
        ("a RLIKE b", "a RLIKE b", [A, B]),
        ("b || a || b", "b || a || b", [B, A]),
        ("a DIV 2", "a DIV 2", [A]),
        ("a & b", "a & b", [A, B]),
        ("EXTRACT(SECOND FROM a)", "EXTRACT(SECOND FROM a)", [A]),
        ("date_trunc(b, a)", "date_trunc(b, a)", [B, A]),
        ("a ILIKE 'É%'", "a ILIKE 'É%'", [A]),
        ("a ILIKE b", "a ILIKE b", [A, B]),
        ("a LIKE ANY ('x', b)", "a LIKE ANY ('x', b)", [A, B]),
        ("(a, b) IN ((1, 2))", "(a, b) IN ((1, 2))", [A, B]),
        ("CAST(a AS ARRAY<INT>)", "CAST(a AS ARRAY<INT>)", [A]),
        ("trim(BOTH 'x' FROM a)", "TRIM(BOTH 'x' FROM a)", [A]),
        ("f(x -> x < TIMESTAMP '2024-01-01')", "f(x -> x < CAST('2024-01-01 00:00:00Z' AS TIMESTAMP))", []),
        ("sql('a', b)", "sql('a', b)", [B]),
        ("a.b.c.d.e.f[0]", "a.b.c.d.e.f[0]", [Name(("a", "b", "c", "d", "e", "f"))]),
    ],
)  # fmt: skip
def test_unsupported_syntax_keeps_its_text_and_columns(sql: str, printed: str, columns: list[Column]) -> None:
    expected = call("sql", text(printed), *columns)
    assert parse_sql(sql) == expected
    assert parse_sql(f"coalesce({sql}, 1)") == call("coalesce", expected, ONE)
    assert parse_sql(to_sql(expected)) == expected


def test_comments_and_a_final_semicolon_are_ignored() -> None:
    assert parse_sql("a = 1 -- first\n AND /* b */ a[0] = 2;") == parse_sql("a = 1 AND a[0] = 2")


@pytest.mark.parametrize(
    ("sql", "message", "position"),
    [
        ("", "empty", 1),
        ("   \n", "empty", 1),
        ("-- nothing", "empty", 1),
        ("WHERE a = 1", "without WHERE", 1),
        ("a = ", "missing next to '='", 3),
        ("= 1", "missing", 3),
        ("a 1", "operator such as = missing", 3),
        ("a = 1 b = 2", "operator such as = missing", 7),
        ("a = 'x", "quote ' is never closed", 5),
        ("a = \"it's", 'quote " is never closed', 5),
        ("`a = 1", "quote ` is never closed", 1),
        ("a = 1 /* x", "comment is never closed", 7),
        ("a = X'GG'", "not binary", 5),
        ('"a" b = 1', "write a name as `name`", 5),
        ('"a"."b" = 1', "write a name as `name`", 1),
        ('a."b" = 1', "write a name as `name`", 3),
        ("'a'.b = 1", "a text has no fields", 1),
        ("(a = 1", "( is never closed", 1),
        ("a = 1)", "There is no ( before it", 6),
        ("a IN (1, 2", "( is never closed", 6),
        ("CASE WHEN a THEN 1", "never closed by END", 1),
        ("a, b", "join conditions with AND", 2),
        ("a = 1; b = 2", "one expression", 6),
        ("a AS b", "no alias", 3),
        ("a = 1 && b = 2", "Write AND", 7),
        ("from = 1", "write `from`", 1),
        ("a = 1 AND order = 2 AND select = 3", "subquery", 25),
        ("a IN (SELECT 1)", "subquery", 7),
        ("EXISTS (SELECT 1)", "subquery", 9),
        ("a IN b", "IN needs a list", 1),
        ("a IN ()", "", None),
        ("a IS 5", "IS must be followed by", 1),
        ("a = ?", "parameter", 5),
        ("a = :name", "parameter", 5),
        ("a = ${name}", "parameter", 5),
        ("b = 1 AND count(a) > 1", "count is an aggregate function", 11),
        ("b + sum(a)[0] > 1", "sum is an aggregate function", 5),
        ("any(a)", "any is an aggregate function", None),
        ("row_number() OVER (ORDER BY a) = 1", "window function", 1),
        ("*", "* is not a value", 1),
        ("t.* = 1", "* is not a value", 3),
        ("f(*)", "* is not a value", 3),
        ("a AT TIME ZONE 'UTC'", "no AT TIME ZONE", 1),
        ("b = CAST(a AS foo)", "no type 'foo'", 10),
        ("CAST(a AS ARRAY<TIME>)", "a TIME is not supported inside of this syntax", None),
        ("TIME '25:00:00'", "'25:00:00' is not a time", 6),
        ("ts > now() - INTERVAL 3 FOO", "Units: year, month, week", 14),
        ("id =! 5", "Did you mean !=?", 4),
        ("id => 5", "Did you mean >=?", 4),
        ("id =< 5", "Did you mean <=?", 5),
        ("id = ", "as in amount > 5", 4),
        ("a = + . 2.5", "not a number", None),
        ("CAST(a AS DECIMAL(50, 2))", "1 to 38 digits", 6),
        ("b > DATE '2024-02-30'", "'2024-02-30' is not a date", 10),
        ("TIMESTAMP '2024-01-01 25:00'", "is not a timestamp", 11),
        ("TIMESTAMP_NTZ '2024-01-01 00:00:00Z'", "has no time zone", 15),
        ("INTERVAL '1.5' DAY", "only seconds may have a fraction", 1),
        ("INTERVAL 'x'", "invalid interval", 1),
        ("1e400", "too large", 1),
        ("9" * 80, "more than 76 digits", 1),
        ("a LIKE 'x' ESCAPE 'ab'", "one character", 1),
        ("upper(a, b)", "upper takes 1 argument", 1),
        ("year()", "year takes 1 argument", 1),
        ("a -> b", "unexpected '->'", 3),
    ],
)  # fmt: skip
def test_errors_have_a_message_a_position_and_a_hint(sql: str, message: str, position: int | None) -> None:
    with pytest.raises(ParseError) as caught:
        parse_sql(sql)
    shown = str(caught.value)
    assert message in shown
    assert "\x1b" not in shown
    assert "sqlglot" not in shown
    assert "<class" not in shown
    assert "\n" not in shown
    if position is not None:
        assert caught.value.position == position


def test_error_position_counts_characters_over_lines() -> None:
    sql = "a = 'é'\r\nAND b =\n  AND c"
    with pytest.raises(ParseError) as caught:
        parse_sql(sql)
    assert caught.value.position == sql.rindex("AND") + 1


def test_only_text_is_parsed() -> None:
    with pytest.raises(InvalidArgument, match="must be a string, found an int"):
        parse_sql(5)  # type: ignore[arg-type]


def test_parsing_logs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(ParseError):
        parse_sql("if = 3")
    assert caplog.records == []


# --- Depth and width ------------------------------------------------------------------------------------------------

DEEP = 10_000


@pytest.mark.parametrize(
    ("before", "inside", "after"),
    [
        ("(", "a = 1", ")"),
        ("(", "a = 0", " OR a = 1)"),
        ("(a = 1 OR ", "a = 0", ")"),
        ("NOT ", "a", ""),
        ("NOT (", "a", ")"),
        ("f(", "a", ")"),
        ("CASE WHEN a THEN ", "a", " END"),
        ("a[", "0", "]"),
    ],
)
@pytest.mark.one_in(4)
def test_X11_ten_thousand_levels_are_parsed(before: str, inside: str, after: str) -> None:
    limits = sys.getrecursionlimit(), threading.stack_size()
    found = parse_sql(before * DEEP + inside + after * DEEP)
    assert find_columns(found) == [A]
    assert (sys.getrecursionlimit(), threading.stack_size()) == limits


def test_X11_a_long_chain_is_one_call() -> None:
    found = parse_sql(" OR ".join(f"a = {value}" for value in range(DEEP)))
    assert isinstance(found, Call)
    assert found.function == "or"
    assert len(found.args) == DEEP
    assert found.args[-1] == call("=", A, number(DEEP - 1))


def test_X11_a_long_sum_is_parsed() -> None:
    found = parse_sql(" + ".join(["a"] * DEEP))
    assert isinstance(found, Call)
    assert found.args[1] == A
    assert isinstance(parse_sql(" || ".join(["a"] * DEEP)), Call)


def test_X11_a_hundred_thousand_values_are_parsed() -> None:
    found = parse_sql(f"a IN ({', '.join(map(str, range(100_000)))})")
    assert isinstance(found, Call)
    assert found.args[1:] == tuple(map(number, range(100_000)))


def test_X11_deeper_nesting_is_an_error() -> None:
    with pytest.raises(ParseError, match="deeper than 20000 levels"):
        parse_sql("(" * 20_001 + "a" + ")" * 20_001)
    with pytest.raises(ParseError, match="deeper than 20000 levels"):
        parse_sql("NOT " * 20_001 + "a")


@pytest.mark.parametrize("function", ["decimal", "struct", "map", "array", "date", "int", "my_function"])
def test_X2_nested_type_names_are_parsed_in_time(function: str) -> None:
    # sqlglot alone parses these as types first, and parses the innermost 2^60 times.
    found = parse_sql(f"{function}(" * 60 + "a" + ")" * 60)
    assert find_columns(found) == [A]


def test_X2_nested_types_and_lambdas_are_bounded() -> None:
    with pytest.raises(ParseError, match="nested types"):
        parse_sql(f"CAST(a AS {'ARRAY<' * 1000}INT{'>' * 1000})")
    with pytest.raises(ParseError, match="lambda"):
        parse_sql("f(x -> " * 1000 + "x" + ")" * 1000)


def test_X11_errors_in_deep_text_come_back_from_its_thread() -> None:
    with pytest.raises(ParseError, match="is never closed"):
        parse_sql("(" * 500 + "a" + ")" * 499)


def test_X11_text_is_parsed_on_a_deep_stack_of_the_caller() -> None:
    def descend(levels: int) -> Expr:
        return descend(levels - 1) if levels else parse_sql("a = 1 AND (b = 2)")

    used = len(inspect.stack())
    assert descend(sys.getrecursionlimit() - used - 60) == parse_sql("a = 1 AND (b = 2)")


def test_X11_several_threads_parse_deep_text_at_once() -> None:
    found: list[Expr] = []
    sql = "(" * 300 + "a = 1" + ")" * 300
    threads = [threading.Thread(target=lambda: found.append(parse_sql(sql))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == [call("=", A, ONE)] * 4
