import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tamis.errors import TypeMismatch
from tamis.expr.functions.kernels import look_up_key

TEXT_MAP = pa.map_(pa.string(), pa.string())


def test_the_last_of_repeated_keys_counts():
    maps = pa.array([[("a", "1"), ("b", "2"), ("a", "3")], [("a", "4")]], TEXT_MAP)
    assert look_up_key(maps, "a").to_pylist() == ["3", "4"]


def test_a_null_map_an_empty_map_a_missing_key_and_a_null_value_are_null():
    maps = pa.array([None, [], [("b", "1")], [("a", None)], [("a", "x")]], TEXT_MAP)
    assert look_up_key(maps, "a").to_pylist() == [None, None, None, None, "x"]


def test_a_null_value_of_a_repeated_key_hides_earlier_values():
    maps = pa.array([[("a", "1"), ("a", None)]], TEXT_MAP)
    assert look_up_key(maps, "a").to_pylist() == [None]


def test_entries_of_a_null_map_are_ignored():
    entries = pa.array(["a", "a"]), pa.array(["hidden", "seen"])
    maps = pa.MapArray.from_arrays(pa.array([0, 1, 2], pa.int32()), *entries, mask=pa.array([True, False]))
    assert look_up_key(maps, "a").to_pylist() == [None, "seen"]


def test_a_slice_sees_its_own_rows_only():
    maps = pa.array([[("a", "1")], [("a", "2")], [], [("b", "3"), ("a", "4")], [("a", "5")]], TEXT_MAP)
    assert look_up_key(maps.slice(1, 3), "a").to_pylist() == ["2", None, "4"]


def test_no_rows():
    assert look_up_key(pa.array([], TEXT_MAP), "a").to_pylist() == []


def test_keys_and_values_of_other_types():
    maps = pa.array([[(1, 1.5), (2, 2.5)], [(3, 3.5)]], pa.map_(pa.int32(), pa.float64()))
    assert look_up_key(maps, 2).to_pylist() == [2.5, None]


def test_dictionary_encoded_keys():
    keys = pa.array(["a", "b", "a"]).dictionary_encode()
    maps = pa.MapArray.from_arrays(pa.array([0, 2, 3], pa.int32()), keys, pa.array([1, 2, 3]))
    assert look_up_key(maps, "a").to_pylist() == [1, 3]


def test_a_column_that_is_not_a_map_is_an_error_that_names_the_type():
    with pytest.raises(TypeMismatch, match="int64"):
        look_up_key(pa.array([1]), "a")


maps_of_texts = st.lists(
    st.none() | st.lists(st.tuples(st.sampled_from("abc"), st.none() | st.sampled_from("xyz")), max_size=4), max_size=12
)


@given(maps_of_texts, st.integers(0, 12), st.integers(0, 12))
def test_it_equals_arrows_map_lookup_on_any_slice(rows, offset, length):
    maps = pa.array(rows, TEXT_MAP).slice(min(offset, len(rows)), length)
    assert look_up_key(maps, "a").equals(pc.map_lookup(maps, "a", "last"))
