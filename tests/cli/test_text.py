"""Values as text: for readers, and as JSON that equals the output of Python's json module."""

from __future__ import annotations

import datetime
import json
import math
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.cli.text import escape_control_characters, format_cells, format_json, format_json_objects, join_lines

NOON = datetime.datetime(2024, 3, 3, 12, 30, 0, 250_000)


@pytest.mark.parametrize(
    ("values", "data_type", "expected"),
    [
        ([1, None], pa.int8(), ["1", None]),
        ([2**64 - 1], pa.uint64(), ["18446744073709551615"]),
        ([True, False, None], pa.bool_(), ["true", "false", None]),
        ([5.0, -0.0, 0.1, 1e20, None], pa.float64(), ["5.0", "-0.0", "0.1", "1e+20", None]),
        ([math.nan, math.inf, -math.inf], pa.float64(), ["NaN", "Infinity", "-Infinity"]),
        ([0.1], pa.float32(), ["0.1"]),
        ([1.5], pa.float16(), ["1.5"]),
        ([Decimal("1.10"), Decimal("-0.05")], pa.decimal128(10, 2), ["1.10", "-0.05"]),
        (["a\tb", "", None, "nan", "inf"], pa.string(), ["a\tb", "", None, "nan", "inf"]),
        (["é"], pa.large_string(), ["é"]),
        (["a"], pa.string_view(), ["a"]),
        (["a", None, "a"], pa.dictionary(pa.int8(), pa.string()), ["a", None, "a"]),
        ([b"\x00\xff", b"", None], pa.binary(), ["X'00ff'", "X''", None]),
        ([b"ab", None], pa.binary(2), ["X'6162'", None]),
        ([datetime.date(2024, 3, 3), datetime.date(1969, 12, 31)], pa.date32(), ["2024-03-03", "1969-12-31"]),
        ([NOON], pa.timestamp("us"), ["2024-03-03T12:30:00.250000"]),
        ([NOON], pa.timestamp("us", "UTC"), ["2024-03-03T12:30:00.250000Z"]),
        ([NOON.replace(microsecond=0)], pa.timestamp("ns", "UTC"), ["2024-03-03T12:30:00Z"]),
        ([NOON.replace(microsecond=0)], pa.timestamp("s"), ["2024-03-03T12:30:00"]),
        ([datetime.time(1, 2, 3)], pa.time32("s"), ["01:02:03"]),
        ([1500, None], pa.duration("ms"), ["1500 ms", None]),
        ([[1, None], [], None], pa.list_(pa.int8()), ["[1, null]", "[]", None]),
        ([{"a": "x"}, None], pa.struct({"a": pa.string()}), ['{"a": "x"}', None]),
        ([None, None], pa.null(), [None, None]),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
def test_text_of_a_cell(values: list[Any], data_type: pa.DataType, expected: list[str | None]) -> None:
    array = pa.array(values, data_type)
    assert format_cells(array).to_pylist() == expected
    assert format_cells(pa.concat_arrays([array, array])[len(array) :]).to_pylist() == expected


def test_instant_of_another_zone_is_shown_in_utc() -> None:
    array = pa.array([NOON], pa.timestamp("us", "UTC")).cast(pa.timestamp("us", "America/New_York"))
    assert format_cells(array).to_pylist() == ["2024-03-03T12:30:00.250000Z"]


@pytest.mark.parametrize(
    ("values", "data_type", "expected"),
    [
        ([math.nan, math.inf, None], pa.float64(), '["NaN", "Infinity", null]'),
        ([Decimal("12345678901234567890.10")], pa.decimal128(38, 2), "[12345678901234567890.10]"),
        ([b"\x00"], pa.binary(), "[\"X'00'\"]"),
        ([datetime.date(2024, 3, 3)], pa.date32(), '["2024-03-03"]'),
        ([[("k", 1), ("l", None)], [], None], pa.map_(pa.string(), pa.int8()), '[{"k": 1, "l": null}, {}, null]'),
        ([[(1, "x")]], pa.map_(pa.int8(), pa.string()), '[[{"key": 1, "value": "x"}]]'),
        ([[1, 2], None], pa.list_(pa.int8(), 2), "[[1, 2], null]"),
        ([[1], None, [2, 3]], pa.list_view(pa.int8()), "[[1], null, [2, 3]]"),
        ([{}, None], pa.struct([]), "[{}, null]"),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
def test_json_of_values_that_python_cannot_write(values: list[Any], data_type: pa.DataType, expected: str) -> None:
    assert "[" + ", ".join(format_json(pa.array(values, data_type)).to_pylist()) + "]" == expected


SCALARS: list[tuple[pa.DataType, st.SearchStrategy[Any]]] = [
    (pa.int64(), st.integers(-(2**63), 2**63 - 1)),
    (pa.bool_(), st.booleans()),
    (pa.float64(), st.floats(allow_nan=False, allow_infinity=False)),
    (pa.string(), st.text()),
]
Column = tuple[pa.DataType, st.SearchStrategy[Any]]


def nested(inner: st.SearchStrategy[Column]) -> st.SearchStrategy[Column]:
    def list_of(column: Column) -> Column:
        return pa.list_(column[0]), st.lists(st.none() | column[1], max_size=4)

    def struct_of(columns: list[Column]) -> Column:
        fields = {f'f"{index}': column for index, column in enumerate(columns)}
        values = st.fixed_dictionaries({name: st.none() | strategy for name, (_, strategy) in fields.items()})
        return pa.struct([(name, data_type) for name, (data_type, _) in fields.items()]), values

    return inner.map(list_of) | st.lists(inner, min_size=1, max_size=3).map(struct_of)


@given(st.data())
def test_json_equals_the_output_of_python(data: st.DataObject) -> None:
    data_type, values = data.draw(st.recursive(st.sampled_from(SCALARS), nested, max_leaves=4))
    rows = data.draw(st.lists(st.none() | values, max_size=6))
    skipped = data.draw(st.integers(0, len(rows)))
    array = pa.array(rows, data_type)[skipped:]
    assert [json.loads(text) for text in format_json(array).to_pylist()] == array.to_pylist()


def test_every_sign_that_json_escapes_is_escaped() -> None:
    texts = [*map(chr, range(0x80)), 'a\\"b', "\\n", "\\\\", "\u2028é𝄞"]
    assert [json.loads(text) for text in format_json(pa.array(texts)).to_pylist()] == texts


def test_names_are_escaped_in_json_objects() -> None:
    texts = format_json_objects(['a "b"\n', "é"], [pa.array([1]), pa.array(["x"])], 1)
    assert texts.to_pylist() == ['{"a \\"b\\"\\n": 1, "é": "x"}']


def test_S3_text_that_is_not_utf8_is_shown_with_the_replacement_character() -> None:
    offsets = pa.array([0, 2, 3], pa.int32()).buffers()[1]
    broken = pa.Array.from_buffers(pa.string(), 2, [None, offsets, pa.py_buffer(b"a\xffb")])
    assert format_cells(broken).to_pylist() == ["a\ufffd", "b"]
    assert format_json(broken).to_pylist() == ['"a\ufffd"', '"b"']


def test_lines_of_a_slice_are_those_of_the_slice() -> None:
    batch = pa.record_batch({"a": ["x", "y", "z"]})
    assert bytes(join_lines(batch[1:], batch[1:].column(0))) == b"y\nz\n"
    assert bytes(join_lines(batch[:0], batch[:0].column(0))) == b""


def test_X10_printable_text_has_no_control_characters() -> None:
    assert escape_control_characters("plain é 中") == "plain é 中"
    assert escape_control_characters("\x1b]0;title\x07\n\u202e") == "\\x1b]0;title\\x07\\n\\u202e"
