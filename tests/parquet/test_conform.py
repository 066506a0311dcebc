"""Conversion of batches to the table's schema: structs within lists and maps."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from tamis.errors import CorruptFile
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.reading.conform import conform_batch

OLD = pa.struct([("a", pa.int32()), ("b", pa.string())])
BY_ID = ColumnMapping({}, by_id=True)


def conform(values: pa.Array, target: pa.DataType, names: ColumnMapping | None = None) -> pa.Array:
    found = conform_batch(pa.record_batch({"x": values}), pa.schema([("x", target)]), {}, "'f'", names).column(0)
    found.validate(full=True)
    return found


def make_row(a: int, b: str) -> dict[str, Any]:
    return {"a": a, "b": b}


LISTS: list[Any] = [[make_row(1, "x"), None], None, [], [make_row(2, "y"), make_row(3, "z")], [make_row(4, "w")]]
SHAPES = [
    [("b", pa.string()), ("a", pa.int64())],
    [("c", pa.string()), ("b", pa.string())],
    [("b", pa.string())],
    [("c", pa.date32()), ("a", pa.int32())],
    [("c", pa.date32()), ("d", pa.string())],
    [("c", pa.date32())],
]


def reshape(value: Any, shape: list[tuple[str, pa.DataType]]) -> Any:
    return None if value is None else {name: value.get(name) for name, _ in shape}


@pytest.mark.parametrize("names", [None, BY_ID])
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("start", "length"), [(0, 5), (1, 3), (3, 2), (2, 0)])
def test_structs_within_lists_and_maps_are_matched_by_name(
    shape: list[tuple[str, pa.DataType]], start: int, length: int, names: ColumnMapping | None
) -> None:
    target = pa.struct(shape)
    some = LISTS[start : start + length]
    lists = pa.array(LISTS, pa.list_(OLD)).slice(start, length)
    expected = [None if each is None else [reshape(one, shape) for one in each] for each in some]
    assert conform(lists, pa.list_(target), names).to_pylist() == expected
    large = lists.cast(pa.large_list(OLD))
    assert conform(large, pa.list_(target), names).to_pylist() == expected
    twice = pa.array([LISTS, None, LISTS], pa.list_(pa.list_(OLD))).slice(1)
    whole = [None if each is None else [reshape(one, shape) for one in each] for each in LISTS]
    assert conform(twice, pa.list_(pa.list_(target)), names).to_pylist() == [None, whole]
    pairs = [None if each is None else [(f"k{n}", one) for n, one in enumerate(each)] for each in LISTS]
    maps = pa.array(pairs, pa.map_(pa.string(), OLD)).slice(start, length)
    assert conform(maps, pa.map_(pa.string(), target), names).to_pylist() == [
        None if each is None else [(f"k{n}", one) for n, one in enumerate(each)] for each in expected
    ]


def test_names_within_lists_match_ignoring_case_unless_the_table_has_ids() -> None:
    values = pa.array([[{"A": 1}]], pa.list_(pa.struct([("A", pa.int32())])))
    target = pa.list_(pa.struct([("a", pa.int32())]))
    assert conform(values, target).to_pylist() == [[{"a": 1}]]
    assert conform(values, target, BY_ID).to_pylist() == [[{"a": None}]]


def test_an_incompatible_type_within_a_list_is_named() -> None:
    values = pa.array([[{"a": "x"}]], pa.list_(pa.struct([("a", pa.string())])))
    target = pa.list_(pa.struct([("a", pa.int32())]))
    with pytest.raises(
        CorruptFile, match=r"column 'x.element.a' of 'f' is a string, which is incompatible with the table's type int"
    ):
        conform(values, target)
    with pytest.raises(CorruptFile, match="incompatible with the table's type int") as caught:
        conform(values, target, BY_ID)
    assert "merge_schema" not in str(caught.value)
