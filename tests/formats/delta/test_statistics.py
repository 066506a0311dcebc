"""Statistics of Delta files as metadata for pruning: which bounds hold, which are exact, what is unknown."""

from __future__ import annotations

import json
import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import tamis
from builders.delta.statistics import field, mapping, table_metadata
from tamis import types
from tamis.expr.nodes import Column
from tamis.formats.delta.schema import TableMetadata
from tamis.formats.delta.statistics.file_statistics import extract_num_records, make_statistics_metadata
from tamis.skipping.metadata import KINDS, metadata_name
from tamis.skipping.predicate import make_predicate
from tamis.skipping.prune import prune

PHYSICAL = {pa.date32(): pa.int32(), types.TIMESTAMP: pa.int64(), types.TIMESTAMP_NTZ: pa.int64()}


MINUTE = 60_000_000
"""How far bounds of long ago may be off: see `test_T8_an_offset_without_its_seconds_does_not_lose_the_row`."""


def describe_column(
    table: TableMetadata,
    stats: list[str | None] | None,
    *path: str,
    parsed: pa.StructArray | None = None,
) -> dict[str, list[Any]]:
    """Return the metadata of one column by kind, with values in physical form."""
    data_type = table.schema.field(path[0]).type
    for name in path[1:]:
        data_type = data_type.field(name).type
    texts = None if stats is None else pa.array(stats, pa.string())
    found = make_statistics_metadata(texts, parsed, [Column(path, type=data_type)], table)
    kinds = {kind: found[metadata_name(kind, path)] for kind in KINDS if metadata_name(kind, path) in found}
    for kind, array in kinds.items():
        expected = data_type if kind in ("lower", "upper") else types.LONG if "count" in kind else types.BOOLEAN
        assert array.type == expected
    pa.record_batch(found).validate(full=True)
    plain = {kind: array.cast(PHYSICAL.get(array.type, array.type)).to_pylist() for kind, array in kinds.items()}
    return {"row_count": found["row_count"].to_pylist(), **plain}


def describe_file(data_type: Any, smallest: Any, largest: Any, **metadata: Any) -> dict[str, Any]:
    """Return the metadata of the column `x` of one file; values are JSON, so that they are not reformatted."""
    table = table_metadata(field("x", data_type, **metadata))
    text = f'{{"numRecords":10,"minValues":{{"x":{smallest}}},"maxValues":{{"x":{largest}}},"nullCount":{{"x":1}}}}'
    found = describe_column(table, [text], "x")
    return {kind: values[0] for kind, values in found.items()}


def read_bounds(data_type: Any, smallest: Any, largest: Any, **metadata: Any) -> tuple[Any, Any, Any, Any]:
    found = describe_file(data_type, smallest, largest, **metadata)
    return found["lower"], found["upper"], found["lower_exact"], found["upper_exact"]


def quote(text: str) -> str:
    return json.dumps(text)


# --- Types ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("data_type", [pa.int8(), pa.int16(), pa.int32(), pa.int64()], ids=str)
def test_integers_are_exact(data_type: pa.DataType) -> None:
    smallest, largest = types.get_integer_range(data_type)
    assert read_bounds(data_type, smallest, largest) == (smallest, largest, True, True)


def test_integers_out_of_range_are_unknown() -> None:
    assert read_bounds(pa.int8(), -129, 127) == (None, 127, None, True)
    assert read_bounds(pa.int64(), 2**63, 2**64) == (None, None, None, None)


def test_integers_in_other_spellings() -> None:
    assert read_bounds(pa.int32(), '"-5"', "1.2E1") == (-5, 12, True, True)
    assert read_bounds(pa.int32(), "0.5", "true") == (None, None, None, None)


def test_T2_decimals_are_read_digit_by_digit() -> None:
    exact = (Decimal("123456789012.345"), Decimal("999999999999.999"), True, True)
    assert read_bounds("decimal(18,3)", "123456789012.345", "999999999999.999") == exact
    assert read_bounds("decimal(5,2)", "-0.05", '"1.5"') == (Decimal("-0.05"), Decimal("1.50"), True, True)
    assert read_bounds("decimal(38,18)", "0E-18", "1E-7") == (Decimal(0), Decimal("1E-7"), True, True)


def test_T2_a_decimal_that_overflows_in_its_scale_is_unknown() -> None:
    # Arrow's own reader would overflow to a small number.
    assert read_bounds("decimal(38,2)", "9" * 38, "9" * 38) == (None, None, None, None)
    assert read_bounds("decimal(5,2)", "-1000", "1000.00") == (None, None, None, None)


def test_T2_digits_beyond_the_scale_are_rounded_outwards() -> None:
    assert read_bounds("decimal(5,2)", "1.205", "1.295") == (Decimal("1.20"), Decimal("1.30"), True, True)


def test_long_decimals_may_have_been_doubles() -> None:
    # The largest value was 99999999999999999.99, and the smallest 12345678901234567.89.
    lower, upper, lower_exact, upper_exact = read_bounds(
        "decimal(20,2)", "1.2345678901234568e+16", "9.999999999999998e+16"
    )
    assert lower <= Decimal("12345678901234567.89")
    assert upper >= Decimal("99999999999999999.99")
    assert (lower_exact, upper_exact) == (False, False)
    assert Decimal("12345678901234000") < lower < upper < Decimal("100000000000001000")


def test_dates() -> None:
    assert read_bounds("date", '"1970-01-01"', '"2024-03-01"') == (0, 19783, True, True)
    assert read_bounds("date", '"-0001-12-31"', '"+12024-01-01"') == (None, 3_672_148, None, True)
    # Before 1582-10-15 the calendar is unknown, see D21.
    assert read_bounds("date", '"0100-01-01"', '"1582-10-14"') == (-683_003 - 12, -141_428 + 12, False, False)
    assert read_bounds("date", '"1582-10-15"', '"1582-10-15"') == (-141_427, -141_427, True, True)
    assert read_bounds("date", '"yesterday"', "7") == (None, None, None, None)


def test_F4_zeros_take_the_sign_further_out() -> None:
    lower, upper, lower_exact, upper_exact = read_bounds("double", "0.0", "-0.0")
    assert (math.copysign(1, lower), math.copysign(1, upper)) == (-1.0, 1.0)
    assert (lower_exact, upper_exact) == (False, False)


def test_F2_F3_nan_is_not_a_bound_and_never_counted() -> None:
    # Spark: NaN is the largest value, and Jackson quotes it.
    found = describe_file("double", "1.5", '"NaN"')
    assert (found["lower"], found["upper"], found["nan_count"]) == (1.5, None, None)
    assert read_bounds("double", '"NaN"', "5.0") == (None, None, None, None)
    assert read_bounds("float", '"-Infinity"', '"Infinity"') == (-math.inf, math.inf, True, True)
    assert read_bounds("double", "NaN", "Infinity") == (None, None, None, None)
    assert read_bounds("double", "-1e400", "1e400") == (None, None, None, None)
    assert describe_file("double", "1.0", "2.0")["nan_count"] is None


def test_a_text_named_like_nan_beside_floats() -> None:
    table = table_metadata(field("x", "double"), field("s", "string"))
    stats = [
        '{"numRecords":1,"minValues":{"x":1.0,"s":"NaN"},"maxValues":{"x":"NaN","s":"a:\\"NaN\\""}}',
        '{"numRecords":1,"minValues":{"x":2.0,"s":"Infinity"},"maxValues":{"x":"Infinity","s":"b"}}',
    ]
    columns = [Column(("x",), type=pa.float64()), Column(("s",), type=pa.string())]
    found = make_statistics_metadata(pa.array(stats), None, columns, table)
    assert found["lower:x"].to_pylist() == [1.0, 2.0]
    assert found["upper:x"].to_pylist() == [None, math.inf]
    assert found["upper:s"].to_pylist() == ['a:"NaN"', "b"]
    assert found["lower:s"][1].as_py() in (None, "Infinity")


@pytest.mark.parametrize("declared", ["boolean", "binary", "variant"])
def test_types_without_bounds_have_null_counts_only(declared: str) -> None:
    found = describe_file(declared, "1", "2")
    assert {kind for kind in found if kind != "row_count"} == {"null_count"}
    assert found["null_count"] == 1


def test_N9_null_counts_of_lists_and_maps_only_say_that_there_is_none() -> None:
    table = table_metadata(field("l", pa.list_(pa.int64())), field("m", pa.map_(pa.string(), pa.int64())))
    stats = ['{"numRecords":2,"nullCount":{"l":2,"m":0}}', '{"numRecords":2,"nullCount":{"l":0,"m":1}}']
    assert describe_column(table, stats, "l")["null_count"] == [None, 0]  # type: ignore[comparison-overlap]
    assert describe_column(table, stats, "m")["null_count"] == [0, None]


# --- Texts ------------------------------------------------------------------------------------------------------------


def test_S1_strings_are_bounds_and_never_exact() -> None:
    assert read_bounds("string", '"a"', '"b"') == ("a", "b", False, False)


def test_S1_the_largest_text_may_be_a_mere_prefix() -> None:
    prefix = "x" * 31 + "b"
    for largest in (prefix, prefix + "\x7f", prefix + "\U0010ffff", prefix + "b" * 20 + "\x7f"):
        assert read_bounds("string", quote("a" * 32), quote(largest)) == ("a" * 32, "x" * 31 + "c", False, False)
    assert read_bounds("string", '"a"', quote("x" * 31))[1] == "x" * 31


def test_S1_a_tie_breaker_that_is_not_above_every_character() -> None:
    # Old writers appended U+FFFD, which is below 😀 in UTF-8. In Java 16 emoji are 32 characters.
    assert read_bounds("string", '"a"', quote("😀" * 16 + "\ufffd"))[1] == "😀" * 14 + "😁"
    assert read_bounds("string", '"a"', quote("x" * 32 + "\ufffd"))[1] == "x" * 30 + "y"
    assert read_bounds("string", '"a"', quote("\ufffd"))[1] is None


def test_S8_a_prefix_without_a_successor_is_unknown() -> None:
    assert read_bounds("string", '"a"', quote("\U0010ffff" * 32))[1] is None


def test_S9_collated_texts_have_no_bounds() -> None:
    found = describe_file("string", '"a"', '"b"', __COLLATIONS={"x": "UTF8_LCASE"})
    assert {kind for kind in found if kind != "row_count"} == {"null_count"}
    assert read_bounds("string", '"a"', '"b"', __COLLATIONS={"x": "UTF8_BINARY"})[:2] == ("a", "b")


def test_S3_texts_that_are_not_utf8_are_unknown() -> None:
    table = table_metadata(field("x", "string"))
    raw = [b'{"numRecords":1,"minValues":{"x":"a"},"maxValues":{"x":"\xff\xfe"}}', b'{"numRecords":2}']
    offsets = pa.py_buffer(b"".join(n.to_bytes(4, "little") for n in (0, len(raw[0]), len(raw[0]) + len(raw[1]))))
    stats = pa.StringArray.from_buffers(2, offsets, pa.py_buffer(b"".join(raw)))
    found = make_statistics_metadata(stats, None, [Column(("x",), type=pa.string())], table)
    assert (found["lower:x"][0].as_py(), found["upper:x"][0].as_py()) in (("a", None), (None, None))
    assert found["row_count"][1].as_py() == 2


# --- Timestamps -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "2024-01-01T08:00:00.123Z",
        "2024-01-01T08:00:00.123+00:00",
        "2024-01-01T00:00:00.123-08:00",
        "2024-01-01 08:00:00.123",
        "2024-01-01T08:00:00.123",
        "2024-01-01T15:52:58.123+07:52:58",
    ],
)
def test_T7_T8_timestamps_are_instants_cut_to_milliseconds(text: str) -> None:
    timestamp = 1_704_096_000_123_000
    assert read_bounds("timestamp", quote(text), quote(text)) == (timestamp, timestamp + 999, False, False)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("1850-01-01T01:01:01.000+00:53", "1850-01-01 00:07:33"),  # in Stockholm, 28 seconds more
        ("1880-01-01T11:00:00.000-07:52", "1880-01-01 18:52:58"),  # in Los Angeles, 58 seconds more
    ],
)
def test_T8_an_offset_without_its_seconds_does_not_lose_the_row(text: str, truth: str) -> None:
    table = table_metadata(field("ts", "timestamp"))
    stats = f'{{"numRecords":1,"minValues":{{"ts":"{text}"}},"maxValues":{{"ts":"{text}"}}}}'
    for comparison in ("=", "<=", ">="):
        assert prune_files(table, [stats], f"ts {comparison} TIMESTAMP '{truth}'") == [True]
    assert prune_files(table, [stats], f"ts > TIMESTAMP '{truth}' + INTERVAL '15' DAY") == [False]


def test_T8_the_last_microseconds_of_a_millisecond_are_found() -> None:
    table = table_metadata(field("ts", "timestamp"), field("s", pa.struct([("ts", types.TIMESTAMP_NTZ)])))
    stats = (
        '{"numRecords":1,"minValues":{"ts":"2024-01-01T00:00:00.000Z","s":{"ts":"2024-01-01T00:00:00.000"}},'
        '"maxValues":{"ts":"2024-01-01T00:00:00.123Z","s":{"ts":"2024-01-01T00:00:00.123"}}}'
    )
    for column in ("ts", "s.ts"):
        literal = "TIMESTAMP" if column == "ts" else "TIMESTAMP_NTZ"
        assert prune_files(table, [stats], f"{column} > {literal} '2024-01-01 00:00:00.123998'") == [True]
        assert prune_files(table, [stats], f"{column} > {literal} '2024-01-01 00:00:00.123999'") == [False]


def test_T7_timestamps_without_a_zone_never_shift() -> None:
    timestamp = 1_704_096_000_123_000
    for text in ("2024-01-01T08:00:00.123", "2024-01-01 08:00:00.123", "2024-01-01T08:00:00.123Z"):
        assert read_bounds("timestamp_ntz", quote(text), quote(text))[:2] == (timestamp, timestamp + 999)
    assert read_bounds("timestamp_ntz", *[quote("2024-01-01T08:00:00.123-08:00")] * 2)[:2] == (None, None)


def test_T6_timestamps_before_1970_and_beyond_9999() -> None:
    found = read_bounds("timestamp", quote("1969-12-31T23:59:59.999Z"), quote("+10000-01-01T00:00:00.000Z"))
    assert found[:2] == (-1_000 - MINUTE, 253_402_300_800_000_999)


def test_the_last_timestamp_does_not_overflow() -> None:
    assert read_bounds("timestamp", quote("1970-01-01T00:00:00Z"), quote("+294247-01-10T04:00:54.775Z"))[1] == 2**63 - 1


def test_digits_beyond_the_microsecond() -> None:
    found = read_bounds("timestamp", *[quote("1973-01-01T00:00:00.123456789Z")] * 2)
    assert found[:2] == (94_694_400_123_456, 94_694_400_124_455)


# --- Former types -----------------------------------------------------------------------------------------------------


def test_D19_statistics_of_a_narrower_type() -> None:
    changes = {"delta.typeChanges": [{"fromType": "date", "toType": "timestamp_ntz"}]}
    assert read_bounds("timestamp_ntz", '"2024-09-09"', '"2024-09-09"', **changes)[0] == 1_725_840_000_000_000
    assert read_bounds("decimal(20,5)", "67.89", "67.89")[:2] == (Decimal("67.89"), Decimal("67.89"))
    assert read_bounds("decimal(11,1)", "3", "3")[:2] == (Decimal(3), Decimal(3))
    assert read_bounds("double", "5", "5")[:2] == (5.0, 5.0)
    assert read_bounds("long", "-128", "127")[:2] == (-128, 127)


def test_D19_a_float_differs_from_the_double_of_the_same_text() -> None:
    changes = {"delta.typeChanges": [{"fromType": "float", "toType": "double"}]}
    single = 3.4000000953674316
    lower, upper, lower_exact, upper_exact = read_bounds("double", "3.4", "3.4", **changes)
    assert (lower, upper) == (3.4, single)
    assert (lower_exact, upper_exact) == (False, False)
    assert read_bounds("double", "0.5", "2.5", **changes) == (0.5, 2.5, True, True)
    # In a column that always was a double it is exact.
    assert read_bounds("double", "3.4", "3.4") == (3.4, 3.4, True, True)


# --- Counts -----------------------------------------------------------------------------------------------------------


def test_D15_wide_bounds_are_inexact_and_null_counts_hold_only_if_none_or_all() -> None:
    table = table_metadata(field("x", "long"))
    stats: list[str | None] = [
        f'{{"numRecords":10,"tightBounds":{tight},"minValues":{{"x":1}},"maxValues":{{"x":5}},"nullCount":{{"x":{nulls}}}}}'
        for tight in ("true", "false", "null")
        for nulls in (0, 3, 10)
    ]
    found = describe_column(table, stats, "x")
    assert found["null_count"] == [0, 3, 10, 0, None, 10, 0, 3, 10]
    assert found["lower_exact"] == [True, True, None, False, False, None, True, True, None]
    assert found["lower"] == [1, 1, None] * 3
    assert found["upper"] == [5, 5, None] * 3


def test_impossible_null_counts_are_unknown() -> None:
    table = table_metadata(field("x", "double"))
    counts = ("-1", "11", "10", "1.5", '"a"', "{}", "null")
    stats = [f'{{"numRecords":10,"nullCount":{{"x":{count}}}}}' for count in counts]
    found = describe_column(table, [*stats, '{"nullCount":{"x":4}}'], "x")
    assert found["null_count"] == [None, None, 10, None, None, None, None, 4]
    assert found["nan_count"] == [None, None, 0, None, None, None, None, None]
    assert found["row_count"] == [10] * 7 + [None]


def test_num_records() -> None:
    stats = pa.array(['{"numRecords":3}', None, "{}", "{", '{"numRecords":-1}', '{"numRecords":"4"}'])
    assert extract_num_records(stats, None).to_pylist() == [3, None, None, None, None, 4]
    elsewhere = pa.array(['{"tightBounds":true,"numRecords":5}', '{"numRecords":6,', '{ "numRecords" : 7 }'])
    assert extract_num_records(elsewhere, None).to_pylist() == [5, None, 7]
    parsed = pa.array([{"numRecords": 7}, None], pa.struct([("numRecords", pa.int64())]))
    assert extract_num_records(None, parsed).to_pylist() == [7, None]
    assert extract_num_records(stats.slice(0, 2), parsed).to_pylist() == [7, None]
    assert extract_num_records(stats.slice(0, 2), parsed.take([1, 0])).to_pylist() == [3, 7]
    assert extract_num_records(pa.array([], pa.string()), None).to_pylist() == []


# --- Which columns ----------------------------------------------------------------------------------------------------


def test_D6_statistics_are_found_under_physical_names_at_every_level() -> None:
    inner = {"type": "struct", "fields": [field("b", "long", **mapping(2, "col-2"))]}
    table = table_metadata(
        field("a", inner, **mapping(1, "col-1")), field("b", "long", **mapping(3, "col-3")),
        delta__columnMapping__mode="name",
    )  # fmt: skip
    stats: list[str | None] = [
        '{"numRecords":2,"minValues":{"col-1":{"col-2":1},"col-3":5,"b":7,"a":{"b":8}},'
        '"maxValues":{"col-1":{"col-2":2},"col-3":6},"nullCount":{"col-1":{"col-2":0},"col-3":1}}'
    ]
    assert describe_column(table, stats, "a", "b")["lower"] == [1]
    assert describe_column(table, stats, "a", "b")["null_count"] == [0]
    assert describe_column(table, stats, "b")["lower"] == [5]


def test_columns_without_statistics_are_left_out() -> None:
    table = table_metadata(
        field("p", "long"), field("s", pa.struct([("a", pa.int64())])), field("v", "variant"),
        field("l", pa.list_(pa.struct([("a", pa.int64())]))), partitioned_by=["p"],
    )  # fmt: skip
    stats = pa.array(['{"numRecords":1,"nullCount":{"p":0,"s":{"a":0},"v":1,"l":0}}'])
    columns = [Column(path, None) for path in [("p",), ("s",), ("v", "value"), ("l", "element", "a"), ("gone",)]]
    assert list(make_statistics_metadata(stats, None, columns, table)) == ["row_count"]


def test_names_with_dots_quotes_and_other_scripts() -> None:
    for name in ("a.b", 'say "x"', "größe", "a`b", "\\", "日本"):
        table = table_metadata(field(name, "long"))
        text = json.dumps({"numRecords": 1, "minValues": {name: 1}, "maxValues": {name: 2}, "nullCount": {name: 0}})
        found = describe_column(table, [text], name)
        assert (found["lower"], found["upper"], found["null_count"]) == ([1], [2], [0])


# --- Invalid statistics -----------------------------------------------------------------------------------------------


GOOD = '{"numRecords":10,"minValues":{"x":1,"y":1.5},"maxValues":{"x":5,"y":2.5},"nullCount":{"x":0,"y":0}}'
BAD: tuple[str | None, ...] = (
    None, "", " ", "null", "[]", "7", '"text"', "{", "}", "{}{}", GOOD[:-1], GOOD + GOOD, GOOD[:40], "{" + GOOD,
    '{"numRecords":10,"numRecords":1,"minValues":{"x":9}}', '{"minValues":{"x":1,"x":9}}', '{"a":' * 5000 + "1}",
    "[" * 100_000, '{"z":"}', '{","q":1}', '{"minValues":{"x":"\\ud800"}}',
)  # fmt: skip


@pytest.mark.parametrize("bad", BAD, ids=lambda text: repr(text)[:40])
def test_D14_an_invalid_string_is_unknown_and_affects_no_other(bad: str | None) -> None:
    table = table_metadata(field("x", "long"), field("y", "double"))
    stats: list[str | None] = [GOOD, bad, *[GOOD] * 40, bad, GOOD]
    for column, smallest in (("x", 1), ("y", 1.5)):
        found = describe_column(table, stats, column)
        wrong = {1, 42}
        assert [found["lower"][row] for row in range(len(stats)) if row not in wrong] == [smallest] * 42
        assert [found["row_count"][row] for row in range(len(stats)) if row not in wrong] == [10] * 42
        assert {found["lower"][row] for row in wrong} == {None}


def test_D14_two_invalid_strings_do_not_shift_the_rows_between() -> None:
    table = table_metadata(field("x", "long"))
    files = [f'{{"numRecords":{number},"minValues":{{"x":{number}}}}}' for number in range(1, 100)]
    # There are as many objects as files in total.
    stats = [*files[:10], files[10] + files[11], *files[12:20], "", *files[20:]]
    found = describe_column(table, stats, "x")
    assert found["row_count"] == [*range(1, 11), None, *range(13, 21), None, *range(21, 100)]


def test_only_values_of_the_wrong_type_are_unknown() -> None:
    table = table_metadata(field("x", "long"), field("s", "string"), field("n", pa.struct([("a", pa.int64())])))
    text = (
        '{"numRecords":10,"minValues":{"x":"abc","s":7,"n":5},"maxValues":{"x":9,"s":"z","n":{"a":3}},'
        '"nullCount":[],"tightBounds":"no"}'
    )
    assert describe_column(table, [text], "x")["upper"] == [9]
    assert describe_column(table, [text], "x")["lower"] == [None]
    assert describe_column(table, [text], "x")["upper_exact"] == [False]
    assert describe_column(table, [text], "s")["upper"] == ["z"]
    assert describe_column(table, [text], "s")["lower"] == [None]
    assert describe_column(table, [text], "n", "a")["upper"] == [3]
    assert describe_column(table, [text], "n", "a")["row_count"] == [10]


def test_T10_bounds_that_contradict_each_other_are_unknown() -> None:
    assert read_bounds("long", "5", "1") == (None, None, None, None)
    assert read_bounds("string", '"b"', '"a"') == (None, None, None, None)
    assert read_bounds("double", "5.0", "1.0") == (None, None, None, None)


def test_statistics_with_blanks_and_newlines() -> None:
    table = table_metadata(field("x", "long"))
    pretty = json.dumps(json.loads(GOOD), indent=2)
    assert describe_column(table, [pretty, f"\n{pretty} ", GOOD], "x")["lower"] == [1, 1, 1]


def test_large_texts_and_slices() -> None:
    table = table_metadata(field("x", "long"))
    stats = pa.array([f'{{"numRecords":{number}}}' for number in range(50)], pa.large_string()).slice(7, 5)
    assert make_statistics_metadata(stats, None, [], table)["row_count"].to_pylist() == [7, 8, 9, 10, 11]
    plain = pa.array([None if number % 3 else f'{{"numRecords":{number}}}' for number in range(50)]).slice(6, 4)
    found = make_statistics_metadata(plain, None, [Column(("x",), type=pa.int64())], table)
    assert found["row_count"].to_pylist() == [6, None, None, 9]


# --- Structs of checkpoints -------------------------------------------------------------------------------------------


def make_parsed_statistics(smallest: pa.Array, largest: pa.Array, nulls: list[int | None]) -> pa.StructArray:
    inner = [pa.StructArray.from_arrays([values], names=["x"]) for values in (smallest, largest)]
    counts = pa.StructArray.from_arrays([pa.array(nulls, pa.int64())], names=["x"])
    rows = pa.array([10] * len(nulls), pa.int64())
    return pa.StructArray.from_arrays(
        [rows, *inner, counts], names=["numRecords", "minValues", "maxValues", "nullCount"]
    )


def test_D14_structs_alone() -> None:
    table = table_metadata(field("x", "timestamp"), field("other", "long"))
    times = pa.array([1_500_000_999, -1, None], pa.timestamp("ns"))
    found = describe_column(table, None, "x", parsed=make_parsed_statistics(times, times, [0, 0, 10]))
    assert found["lower"] == [1_500_000 - MINUTE, -1 - MINUTE, None]
    assert found["upper"] == [1_500_999 + MINUTE, 998 + MINUTE, None]
    assert found["null_count"] == [0, 0, 10]
    unknown = describe_column(table, None, "other", parsed=make_parsed_statistics(times, times, [0, 0, 10]))
    assert unknown["lower"] == unknown["null_count"] == [None] * 3


@pytest.mark.parametrize(
    ("declared", "values", "expected"),
    [
        ("long", pa.array([3], pa.int32()), 3),
        ("byte", pa.array([300], pa.int64()), None),
        ("decimal(20,5)", pa.array([Decimal("1.5")], pa.decimal128(10, 2)), Decimal("1.5")),
        ("decimal(5,2)", pa.array([7], pa.int32()), Decimal(7)),
        ("timestamp_ntz", pa.array([1], pa.int32()).cast(pa.date32()), 86_400_000_000),
        ("timestamp_ntz", pa.array([1], types.TIMESTAMP), None),
        ("timestamp", pa.array([94_694_400_001], pa.timestamp("ms")), 94_694_400_001_000),
        ("timestamp", pa.array([2**62], pa.timestamp("s")), None),
        ("date", pa.array([1], pa.int32()).cast(pa.date32()), 1),
        ("double", pa.array([0.5], pa.float32()), 0.5),
        ("string", pa.array(["a"], pa.large_string()), "a"),
        ("string", pa.array([1], pa.int32()), None),
        ("long", pa.array(["1"]), None),
        ("long", pa.array([0.5]), None),
        ("long", pa.array([Decimal(1)]), None),
        ("double", pa.array([Decimal(1)]), None),
        ("date", pa.array([True]), None),
    ],
    ids=str,
)
def test_D19_structs_in_other_types(declared: str, values: pa.Array, expected: Any) -> None:
    found = describe_column(
        table_metadata(field("x", declared)), None, "x", parsed=make_parsed_statistics(values, values, [0])
    )
    assert found["lower"] == [expected]


def test_D14_texts_fill_what_structs_lack() -> None:
    table = table_metadata(field("x", "long"), field("y", "double"))
    parsed = make_parsed_statistics(pa.array([7, None]), pa.array([8, None]), [0, None])
    parsed = pa.array([parsed[0].as_py(), None], parsed.type)
    assert describe_column(table, [GOOD, GOOD], "x", parsed=parsed)["lower"] == [7, 1]
    # The struct lacks the column.
    assert describe_column(table, [GOOD, None], "y", parsed=parsed)["lower"] == [1.5, None]
    assert describe_column(table, [GOOD, None], "y", parsed=parsed)["row_count"] == [10, None]


# --- Pruning ----------------------------------------------------------------------------------------------------------


def prune_files(table: TableMetadata, stats: list[str | None], where: str) -> list[bool]:
    predicate = make_predicate(where, table.schema, "t")
    found = make_statistics_metadata(pa.array(stats, pa.string()), None, predicate.columns, table)
    return prune(pa.record_batch(found), predicate.conjuncts).selection.to_pylist()  # type: ignore[no-any-return]


def test_N10_one_missing_statistic_does_not_stop_the_others() -> None:
    table = table_metadata(field("x", "long"), field("y", "long"), field("z", "string"))
    stats: list[str | None] = [
        '{"numRecords":10,"minValues":{"x":1},"maxValues":{"x":5},"nullCount":{"x":0}}',
        '{"numRecords":10,"minValues":{"y":1},"maxValues":{"x":5},"nullCount":{"y":0}}',
        '{"minValues":{"y":1},"maxValues":{"x":5}}',
        '{"numRecords":10,"nullCount":{"y":0,"z":10}}',
        None,
    ]
    assert prune_files(table, stats, "x > 5 AND y = 3 AND z = 'a'") == [False, False, False, False, True]
    assert prune_files(table, stats, "x > 4 AND y = 3") == [True] * 5
    assert prune_files(table, stats, "z IS NOT NULL") == [True, True, True, False, True]


def test_D14_statistics_of_former_columns_keep_the_file() -> None:
    table = table_metadata(field("new", "long"))
    assert prune_files(table, ['{"numRecords":10,"minValues":{"old":1},"maxValues":{"old":5}}'], "new > 100") == [True]


def test_F1_floats_are_not_pruned_from_above() -> None:
    table = table_metadata(field("x", "double"))
    stats: list[str | None] = ['{"numRecords":2,"minValues":{"x":1.0},"maxValues":{"x":5.0},"nullCount":{"x":0}}']
    # A writer that leaves NaN out may have left one out here, and NaN is above 100.
    assert prune_files(table, stats, "x > 100") == [True]
    assert prune_files(table, stats, "x < 1") == [False]
    assert prune_files(table, stats, "x BETWEEN 6 AND 7") == [False]


@pytest.mark.parametrize("checkpointed", [False, True])
@pytest.mark.parametrize(
    ("digits", "values"),
    [
        (20, (12345678901234567891, 12345678901234567893)),
        (19, (2**63 - 2, 2**63)),
        (19, (-(2**63), -(2**63) - 2)),
        (38, (-(10**37) - 1, 5)),
        (38, (-(10**38) + 1, 10**38 - 1)),
        (18, (10**18 - 1, -(10**18) + 1)),
    ],
)
def test_D25_whole_decimals_beyond_a_bigint_lose_no_row(
    tmp_path: Path, digits: int, values: tuple[int, ...], checkpointed: bool
) -> None:
    rows = pa.table({"x": pa.array([Decimal(each) for each in values], pa.decimal128(digits, 0))})
    write_deltalake(tmp_path / "t", rows)
    if checkpointed:
        DeltaTable(tmp_path / "t").create_checkpoint()
    table = tamis.open(tmp_path / "t")
    for literal in (each + step for each in values for step in (-1, 0, 1) if abs(each + step) < 10**38):
        for operator, holds in (("=", int.__eq__), ("<", int.__lt__), (">=", int.__ge__), ("<>", int.__ne__)):
            expected = sum(holds(each, literal) for each in values)
            scan = table.scan(f"x {operator} {literal}")
            assert (scan.count(), scan.to_arrow().num_rows) == (expected, expected), (operator, literal)
