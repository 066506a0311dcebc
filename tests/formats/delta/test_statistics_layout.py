"""Strings of the same layout are read as the parser reads them; strings of another layout are left to the parser."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.formats.delta.statistics import statistics_json
from tamis.formats.delta.statistics.statistics_json import WantedStatistics, parse_statistics, read_same_layout

WANTED = WantedStatistics(
    {
        ("id",): pa.int64(),
        ("x",): pa.float64(),
        ("d",): pa.decimal128(10, 2),
        ("name",): pa.string(),
        ("s", "a"): pa.int32(),
    },
    (("id",), ("x",), ("d",), ("name",), ("s", "a"), ("flag",)),
)


def dump_compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def make_statistics(number: int, **other: Any) -> dict[str, Any]:
    low = {"id": number, "other": f"o{number}", "x": number / 8, "d": 1.25, "name": f"n{number}", "s": {"a": 1, "b": 2}}
    high = low | {"id": number + 9, "x": number + 0.5}
    nulls = {"id": 0, "other": 0, "x": number % 3, "d": 0, "name": 1, "s": {"a": 0, "b": 0}, "flag": 2}
    return {"numRecords": 10, "minValues": low, "maxValues": high, "nullCount": nulls, "tightBounds": True} | other


def read_with_parser(texts: Sequence[str | None], wanted: WantedStatistics = WANTED) -> list[Any]:
    """Read with the parser, since layouts of so few strings are not compared."""
    assert len(texts) < statistics_json._MIN_STRINGS_TO_COMPARE
    return [_flatten(each) for each in parse_statistics(pa.array(texts, pa.string()), wanted).to_pylist()]


def _flatten(value: Any, path: tuple[str, ...] = ()) -> dict[tuple[str, ...], Any]:
    """Flatten a struct; a missing object equals one without values."""
    if not isinstance(value, dict):
        return {} if value is None else {path: value}
    return {key: leaf for name, each in value.items() for key, leaf in _flatten(each, (*path, name)).items()}


def read_without_parser(texts: list[str], wanted: WantedStatistics = WANTED) -> list[Any]:
    """Read without the parser; the value is "parser" where the string needs the parser."""
    found = read_same_layout(pa.array(texts, pa.string()), wanted.schema)
    if found is None:
        return ["parser"] * len(texts)
    values, is_alike = found
    assert len(values) == is_alike.sum()
    each = iter(values.to_pylist())
    return [_flatten(next(each)) if is_found else "parser" for is_found in is_alike]


def test_strings_of_one_writer_are_all_read_without_the_parser() -> None:
    texts = [dump_compact(make_statistics(number)) for number in range(20)]
    assert read_without_parser(texts) == read_with_parser(texts)
    assert read_with_parser(texts)[7]["minValues", "id"] == 7


def test_only_wanted_keys_matter_and_keys_may_be_missing_from_all() -> None:
    wanted = WantedStatistics({("id",): pa.int64(), ("gone",): pa.string()}, (("id",), ("gone",)))
    texts = [dump_compact({"numRecords": 1, "minValues": {"id": number, "other": "a"}}) for number in range(3)]
    assert read_without_parser(texts, wanted) == read_with_parser(texts, wanted)
    assert [each["minValues", "id"] for each in read_without_parser(texts, wanted)] == [0, 1, 2]


def test_null_and_values_of_any_length() -> None:
    lows = [{"id": None, "name": None}, {"id": -(2**63), "name": ""}, {"id": 0, "name": "é" * 40}]
    texts = [dump_compact(make_statistics(1, minValues=make_statistics(1)["minValues"] | low)) for low in lows]
    assert read_without_parser(texts) == read_with_parser(texts)
    assert ("minValues", "id") not in read_without_parser(texts)[0]


@pytest.mark.parametrize(
    "other",
    [
        dump_compact(make_statistics(2, minValues={"id": 2})),
        dump_compact(make_statistics(2, tightBounds=False) | {"more": 1}),
        dump_compact(
            make_statistics(2, minValues={"other": "o", "id": 5, "x": 1, "d": 1, "name": "n", "s": {"a": 1, "b": 2}})
        ),
        dump_compact(make_statistics(2)).replace('"o2"', r'"\"id\":7"'),
        dump_compact(make_statistics(2)).replace('"o2"', '"a,"'),
        dump_compact(make_statistics(2)).replace('"o2"', '"{"'),
        dump_compact(make_statistics(2)).replace('"o2"', '"}"'),
        dump_compact(make_statistics(2)).replace('"n2"', r'"\u0041"'),
        dump_compact(make_statistics(2)).replace('"x":0.25', '"x":"NaN"'),
        dump_compact(make_statistics(2)).replace('"id":2,', '"id":"2",'),
        dump_compact(make_statistics(2)).replace('"id":2,', '"id":2.0,'),
        dump_compact(make_statistics(2)).replace('"id":2,', '"id":9223372036854775808,'),
        dump_compact(make_statistics(2)).replace('"tightBounds":true', '"tightBounds":1'),
        dump_compact(make_statistics(2)).replace('"s":{"a":1,"b":2}', '"s":{"b":2,"a":1}'),
        dump_compact(make_statistics(2)).replace(',"s":{"a":1,"b":2}', ',"s":{"c":{"a":1}},"b":2'),
        json.dumps(make_statistics(2)),
        dump_compact(make_statistics(2))[:-1],
        dump_compact(make_statistics(2)) + dump_compact(make_statistics(2)),
        "",
        "{}",
        "[]",
        '"',
    ],
)
def test_a_string_of_another_layout_is_left_to_the_parser(other: str) -> None:
    texts = [dump_compact(make_statistics(number)) for number in (1, 3)]
    for mixed in ([texts[0], other, texts[1]], [*texts, other], [other, *texts]):
        found, expected = read_without_parser(mixed), read_with_parser(mixed)
        assert [each for each in found if each != "parser"] == [
            each for each, said in zip(expected, found, strict=True) if said != "parser"
        ]
        if mixed[0] != other:
            assert found[mixed.index(other)] == "parser"


@pytest.mark.parametrize("wanted", ["id", "name"])
def test_X8_a_key_twice_in_one_object_is_left_to_the_parser(wanted: str) -> None:
    twice = dump_compact(make_statistics(2)).replace('"other":"o2"', f'"{wanted}":"o2"')
    columns = WantedStatistics({(wanted,): pa.string()}, ())
    assert read_without_parser([dump_compact(make_statistics(1)), twice], columns)[1] == "parser"
    assert read_without_parser([twice, dump_compact(make_statistics(1))], columns)[0] == "parser"


def test_a_wanted_key_that_only_other_strings_have_is_not_missed() -> None:
    texts = ['{"numRecords":1,"minValues":{"id":1,"z":2}}', '{"numRecords":1,"minValues":{"id":1,"y":3}}']
    wanted = WantedStatistics({("y",): pa.int64()}, ())
    assert read_without_parser(texts, wanted) == [{("numRecords",): 1}, "parser"]


@pytest.mark.parametrize(
    "first", ['{"numRecords":[1],"minValues":{}}', '{"a":1,"a":2}', "{}", "", '{"a":{},"b":1}', "1"]
)
def test_no_string_matches_the_layout_of_an_unsupported_one(first: str) -> None:
    assert read_same_layout(pa.array([first, first]), WANTED.schema) is None


def test_many_strings_of_several_layouts_are_returned_in_order() -> None:
    kinds = [
        lambda number: dump_compact(make_statistics(number)),
        lambda number: dump_compact(make_statistics(number, maxValues={})),
        lambda number: dump_compact({"numRecords": number, "nullCount": {"id": number}}),
        lambda number: json.dumps(make_statistics(number)),
        lambda number: "no JSON",
        lambda number: None,
    ]
    chosen = np.random.default_rng(1).integers(0, len(kinds), 3 * statistics_json._MIN_STRINGS_TO_COMPARE)
    texts = [kinds[kind](number) for number, kind in enumerate(chosen)]
    found = [_flatten(each) for each in parse_statistics(pa.array(texts, pa.string()), WANTED).to_pylist()]
    expected = [read_with_parser([text])[0] for text in texts]
    assert found == expected


VALUES = {
    "id": st.integers(-(2**63), 2**63 - 1) | st.none() | st.integers(-9, 9),
    "x": st.floats(allow_nan=False, allow_infinity=False) | st.none() | st.just("Infinity"),
    "d": st.integers(-(10**7), 10**7).map(lambda number: number / 100) | st.just(10**30),
    "name": st.text(st.characters(exclude_categories=["Cs"]), max_size=5) | st.sampled_from([",", '"', "{}", "a,b"]),
    "other": st.text(max_size=3) | st.integers() | st.none() | st.sampled_from(['"id":', "},", ",", "{"]),
}


@given(st.data())
def test_values_read_without_the_parser_equal_those_of_the_parser(data: st.DataObject) -> None:
    def draw_statistics(number: int) -> str:
        names = data.draw(st.sampled_from([["id", "other", "x", "d", "name"], ["id", "other", "name"], ["name", "id"]]))
        objects = [{name: data.draw(VALUES[name]) for name in names} for _ in range(2)]
        counts = dict.fromkeys(names, 0)
        return dump_compact(
            {"numRecords": number, "minValues": objects[0], "maxValues": objects[1], "nullCount": counts}
        )

    texts = [draw_statistics(number) for number in range(data.draw(st.integers(1, 6)))]
    for found, expected in zip(read_without_parser(texts), read_with_parser(texts), strict=True):
        assert found in ("parser", expected)
