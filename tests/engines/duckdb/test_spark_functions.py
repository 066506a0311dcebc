"""Functions on the embedded engine return the values of Spark 4.2."""

from __future__ import annotations

import datetime
import math
from decimal import Decimal

import pyarrow as pa
import pytest

from builders.parquet.files import find_rows, write_table
from builders.query.duckdb_text import translate_to_duckdb
from tamis.engines.duckdb.translate.functions import write_macro_statements
from tamis.errors import EvaluationError

COLUMNS = {
    "day": pa.array([datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), None, datetime.date(2023, 12, 31)]),
    "other": pa.array([datetime.date(2024, 2, 28), datetime.date(2024, 3, 31), None, datetime.date(1960, 1, 31)]),
    "ts": pa.array([1709251199999999, -500000, None, -143508554876544], pa.timestamp("us", "UTC")),
    "text": pa.array(["a_b", "ab\n", None, "Éa,b"]),
    "d": pa.array([math.nan, math.inf, None, -1.5]),
    "e": pa.array([1.005, 1e10, None, -0.00025]),
    "i": pa.array([-1, 300, None, 5], pa.int32()),
    "money": pa.array([Decimal("1.50"), Decimal("-2.55"), None, Decimal("0.99")]),
    "bytes": pa.array([b"abc", "é".encode(), None, b""]),
    "list": pa.array([[3, 1, 3], [None, 1], None, []], pa.list_(pa.int32())),
    "second": pa.array([[3, 9], [None], [1], None], pa.list_(pa.int32())),
    "lists": pa.array([[[1], [2]], [None, [1]], None, []], pa.list_(pa.list_(pa.int32()))),
    "json": pa.array(['{"a": 1}', "[1, 2]", None, "{}"]),
    "url": pa.array(["a b*c~d", "a+b", None, ""]),
}  # fmt: skip

VALUES = [
    # Dates
    ("dayofweek(day)", pa.array([5, 4, None, 1])),
    ("weekday(day)", pa.array([3, 2, None, 6])),
    ("dayofweek(ts)", pa.array([5, 4, None, 3])),
    ("dayname(day)", pa.array(["Thu", "Wed", None, "Sun"])),
    ("monthname(day)", pa.array(["Feb", "Dec", None, "Dec"])),
    ("date_part('dow', day)", pa.array([5, 4, None, 1])),
    ("extract(dayofweek FROM day)", pa.array([5, 4, None, 1])),
    ("extract(second FROM ts)", pa.array([Decimal("59.999999"), Decimal("59.5"), None, Decimal("45.123456")])),
    ("unix_seconds(ts)", pa.array([1709251199, -1, None, -143508555])),
    ("unix_timestamp(ts)", pa.array([1709251199, 0, None, -143508554])),
    ("trunc(ts, 'MM') = date_trunc('MM', ts)", pa.array([True, True, None, True])),
    ("unix_millis(ts)", pa.array([1709251199999, -500, None, -143508554877])),
    ("date_format(ts, 'dd/MM/yy HH.SSS')", pa.array(["29/02/24 23.999", "31/12/69 23.500", None, "15/06/65 00.123"])),
    ("months_between(day, other)", pa.array([0.03225806, -651.0, None, 767.0])),
    ("hour(from_utc_timestamp(ts, 'Asia/Tokyo'))", pa.array([8, 8, None, 9])),
    ("hour(to_utc_timestamp(ts, 'Asia/Tokyo'))", pa.array([14, 14, None, 15])),
    # Numbers
    ("floor(d)", pa.array([0, 2**63 - 1, None, -2])),
    ("ceil(d)", pa.array([0, 2**63 - 1, None, -1])),
    ("isnan(d)", pa.array([True, False, False, False])),
    ("ln(d)", pa.array([math.nan, math.inf, None, None])),
    ("log10(d + 2.5 * 0)", pa.array([math.nan, math.inf, None, None])),
    ("bit_count(i)", pa.array([64, 4, None, 2])),
    ("factorial(i + 1)", pa.array([1, None, None, 720])),
    ("pmod(i, -4)", pa.array([-1, 0, None, 1])),
    ("nanvl(d, 7)", pa.array([7.0, math.inf, None, -1.5])),
    ("bround(e, 2)", pa.array([1.0, 1e10, None, 0.0])),
    ("format_number(e, 3)", pa.array(["1.005", "10,000,000,000.000", None, "-0.000"])),
    ("format_number(money, 1)", pa.array(["1.5", "-2.6", None, "1.0"])),
    ("round(e, 2)", pa.array([1.01, 1e10, None, -0.0])),
    # Texts
    ("CAST(d AS STRING)", pa.array(["NaN", "Infinity", None, "-1.5"])),
    ("CAST(e AS STRING)", pa.array(["1.005", "1.0E10", None, "-2.5E-4"])),
    ("concat(e, '')", pa.array(["1.005", "1.0E10", None, "-2.5E-4"])),
    ("e || ''", pa.array(["1.005", "1.0E10", None, "-2.5E-4"])),
    ("octet_length(text)", pa.array([3, 3, None, 5])),
    ("length(bytes)", pa.array([3, 2, None, 0])),
    ("substring_index(text, 'b', -1)", pa.array(["", "\n", None, ""])),
    ("CAST(bytes AS STRING)", pa.array(["abc", "é", None, ""])),
    ("CAST(sqrt(abs(money)) * 1.7D AS INT)", pa.array([2, 2, None, 1])),
    ("char(i)", pa.array(["", ",", None, "\x05"])),
    ("right(text, i)", pa.array(["", "ab\n", None, "Éa,b"])),
    ("substr(text, i, 2)", pa.array(["b", "", None, ""])),
    ("locate('b', text, i)", pa.array([0, 0, 0, 0])),
    ("format_string('%s|%05d', text, i)", pa.array(["a_b|-0001", "ab\n|00300", "null| null", "Éa,b|00005"])),
    ("regexp_replace(text, '(a)(.)', '$2$1')", pa.array(["_ab", "ba\n", None, "É,ab"])),
    ("text RLIKE 'b$'", pa.array([True, True, None, True])),
    ("text ILIKE 'A\\\\_B'", pa.array([True, False, None, False])),
    ("split_part(text, '', 1)", pa.array(["a_b", "ab\n", None, "Éa,b"])),
    ("url_encode(url)", pa.array(["a+b*c%7Ed", "a%2Bb", None, ""])),
    ("url_decode(url)", pa.array(["a b*c~d", "a b", None, ""])),
    # Lists
    ("array_contains(list, 3)", pa.array([True, None, None, False])),
    ("array_position(list, 1)", pa.array([2, 2, None, 0])),
    ("array_distinct(list)", pa.array([[3, 1], [None, 1], None, []], pa.list_(pa.int32()))),
    ("array_intersect(list, second)", pa.array([[3], [None], None, None], pa.list_(pa.int32()))),
    ("array_except(list, second)", pa.array([[1], [1], None, None], pa.list_(pa.int32()))),
    ("array_remove(list, 3)", pa.array([[1], [None, 1], None, []], pa.list_(pa.int32()))),
    ("array_insert(list, 3, 9)", pa.array([[3, 1, 9, 3], [None, 1, 9], None, [None, None, 9]], pa.list_(pa.int32()))),
    ("flatten(lists)", pa.array([[1, 2], None, None, []], pa.list_(pa.int32()))),
    ("transform(list, (x, k) -> x + k)", pa.array([[3, 2, 5], [None, 2], None, []], pa.list_(pa.int32()))),
    ("filter(list, (x, k) -> k > 0)", pa.array([[1, 3], [1], None, []], pa.list_(pa.int32()))),
    ("size(sequence(3, 1))", pa.array([3, 3, 3, 3])),
    ("exists(list, x -> x > 2)", pa.array([True, None, None, False])),
    ("forall(list, x -> x > 0)", pa.array([True, None, None, True])),
    ("arrays_overlap(list, second)", pa.array([True, None, None, None])),
    ("array_union(list, second)", pa.array([[3, 1, 9], [None, 1], None, None], pa.list_(pa.int32()))),
    ("reverse(list)", pa.array([[3, 1, 3], [1, None], None, []], pa.list_(pa.int32()))),
    ("get_json_object(json, '$.a')", pa.array(["1", None, None, None])),
    ("json_array_length(json)", pa.array([None, 2, None, None])),
]  # fmt: skip


@pytest.mark.parametrize(("expression", "values"), VALUES, ids=[expression for expression, _ in VALUES])
def test_a_function_returns_the_value_of_spark(tmp_path, expression, values):
    table = write_table(tmp_path, {**COLUMNS, "expected": values}, rows=4)
    assert find_rows(table, f"({expression}) <=> expected") == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("hash(i) = 1", "Spark's hash: a filter does not pass the types of its columns to the engine. Write it with"),
        ("xxhash64(text) = 1", "Spark's xxhash64"),
        ("to_json(struct(i)) = '{}'", "to_json: the embedded engine writes values of this type differently"),
        ("date_format(ts, 'w') = '1'", "'w' in the pattern 'w' is not supported"),
        ("date_trunc('decade', ts) = ts", "'decade' is not a unit of time. Units: year, quarter"),
        ("get_json_object(json, '$.*') = '1'", "the path '$.*' has more than names and indexes"),
        ("printf('%e', d) = '1'", "%e means something else"),
        ("text RLIKE '[a-z&&[^b]]'", "has a nested character class"),
        ("list[i] = 1", "the index is out of bounds of the list"),
        ("e || d = 'y'", "with CAST AS STRING"),
        ("CAST(list AS STRING) = ''", "lists, maps and structs cannot be cast to a text here"),
    ],
)
def test_an_unsupported_use_is_an_error_that_names_it(tmp_path, where, message):
    table = write_table(tmp_path, COLUMNS, rows=4)
    with pytest.raises(EvaluationError) as caught:
        find_rows(table, where)
    assert message in str(caught.value)


def test_macros_are_created_in_the_order_of_their_dependencies():
    created = [statement.split("(")[0].split("_", 1)[1] for statement in write_macro_statements({"printed_text"})]
    assert created.index("number_text") < created.index("string") < created.index("printed_text")
    assert created[-1] == "printed_text"
    assert write_macro_statements(()) == []


def test_nested_functions_do_not_multiply_their_text():
    assert len(translate_to_duckdb("dayofweek(add_months(a, 1)) + " + "floor(" * 12 + "a" + ")" * 12)) < 500


def test_deeply_nested_functions_run_in_little_time(tmp_path):
    table = write_table(tmp_path, {"d": pa.array([1.5, 2.5])})
    assert find_rows(table, "floor(" * 8 + "d" + ")" * 8 + " = 2") == [1]
