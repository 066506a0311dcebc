"""The assignment of deletes to data files equals a test of every delete against every file."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.expr.nodes import Column
from tamis.formats.iceberg.deletes.deletes_index import MAX_PAIRS_AT_ONCE, assign_deletes
from tamis.formats.iceberg.deletes.position_deletes import PATH_ID

COLUMNS = {1: Column(("x",), type=pa.int32()), 2: Column(("y",), type=pa.float64())}
GLOBAL = {0: True, 1: False, 2: False}
PATHS = [f"s3://b/{name}" for name in "abcdefgh"]

Bounds = tuple[int, int] | None


@dataclass(frozen=True)
class Data:
    path: str
    sequence: int
    spec: int = 1
    key: bytes = b""
    x: Bounds = None
    nulls: int | None = None
    gone: bytes | None = b""


@dataclass(frozen=True)
class Delete:
    content: int
    sequence: int
    spec: int = 1
    key: bytes = b""
    file_format: str = "parquet"
    referenced: str | None = None
    paths: tuple[str | None, str | None] = (None, None)
    ids: tuple[int, ...] | None = None
    x: Bounds = None
    nulls: int | None = None
    count: int | None = 3
    gone: bytes | None = b""

    def is_for(self, data: Data) -> bool:
        """Return whether the delete applies to the file, by the rules of the specification."""
        same = (self.spec, self.key) == (data.spec, data.key)
        if self.content == 2:
            same = same and (self.gone == data.gone or self.gone is None or data.gone is None)
            if not data.sequence < self.sequence or not (GLOBAL[self.spec] or same):
                return False
            if 1 not in (self.ids or ()) or self.x is None or data.x is None:
                return True
            both_null = self.nulls != 0 and data.nulls != 0
            return both_null or not (data.x[1] < self.x[0] or self.x[1] < data.x[0])
        if data.sequence > self.sequence:
            return False
        if self.file_format == "puffin":
            return self.referenced == data.path
        low, high = self.paths
        if self.referenced is not None or (low is not None and low == high):
            return data.path == (self.referenced or low)
        return same and (low is None or low <= data.path) and (high is None or data.path <= high)


def encode_number(value: int | None) -> bytes | None:
    return None if value is None else value.to_bytes(4, "little", signed=True)


def make_statistics(files: list[Any]) -> dict[str, pa.Array]:
    return {
        "lower:1": pa.array([encode_number(each.x[0] if each.x else None) for each in files], pa.binary()),
        "upper:1": pa.array([encode_number(each.x[1] if each.x else None) for each in files], pa.binary()),
        "nulls:1": pa.array([each.nulls for each in files], pa.int64()),
    }


def make_data_table(files: list[Data]) -> pa.Table:
    return pa.table(
        {
            "location": pa.array([each.path for each in files], pa.string()),
            "sequence_number": pa.array([each.sequence for each in files], pa.int64()),
            "spec_id": pa.array([each.spec for each in files], pa.int32()),
            "partition_key": pa.array([each.key for each in files], pa.binary()),
            "dropped_key": pa.array([each.gone for each in files], pa.binary()),
            **make_statistics(files),
        }
    )


def make_delete_table(deletes: list[Delete]) -> pa.Table:
    return pa.table(
        {
            "location": pa.array([f"d{index}" for index in range(len(deletes))], pa.string()),
            "sequence_number": pa.array([each.sequence for each in deletes], pa.int64()),
            "spec_id": pa.array([each.spec for each in deletes], pa.int32()),
            "partition_key": pa.array([each.key for each in deletes], pa.binary()),
            "dropped_key": pa.array([each.gone for each in deletes], pa.binary()),
            "content": pa.array([each.content for each in deletes], pa.int8()),
            "file_format": pa.array([each.file_format for each in deletes], pa.string()),
            "record_count": pa.array([each.count for each in deletes], pa.int64()),
            "size": pa.array([100 + index for index in range(len(deletes))], pa.int64()),
            "referenced": pa.array([each.referenced for each in deletes], pa.string()),
            "offset": pa.array([4 for _ in deletes], pa.int64()),
            "length": pa.array([40 for _ in deletes], pa.int64()),
            "equality_ids": pa.array([each.ids for each in deletes], pa.list_(pa.int32())),
            f"lower:{PATH_ID}": pa.array([_encode(each.paths[0]) for each in deletes], pa.binary()),
            f"upper:{PATH_ID}": pa.array([_encode(each.paths[1]) for each in deletes], pa.binary()),
            **make_statistics(deletes),
        }
    )


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def assign(
    data: list[Data], deletes: list[Delete], max_pairs: int = MAX_PAIRS_AT_ONCE
) -> tuple[list[set[str]], list[int | None]]:
    table = make_delete_table(deletes)
    resolved = table["location"].combine_chunks()
    found = assign_deletes(make_data_table(data), table, resolved, COLUMNS, GLOBAL, max_pairs)
    found.deletes.validate(full=True)
    paths = [{each["path"] for each in own or ()} for own in found.deletes.to_pylist()]
    assert all(own is None or own for own in found.deletes.to_pylist())
    return paths, found.deleted.to_pylist()


def assign_naively(data: list[Data], deletes: list[Delete]) -> list[set[str]]:
    names = []
    for file in data:
        own = [index for index, each in enumerate(deletes) if each.is_for(file)]
        vectors = [index for index in own if deletes[index].file_format == "puffin"]
        if vectors:
            newest = max(vectors, key=lambda index: deletes[index].sequence)
            own = [newest, *(index for index in own if deletes[index].content == 2)]
        names.append({f"d{index}" for index in own})
    return names


BOUNDS = st.none() | st.tuples(st.integers(-5, 5), st.integers(0, 4)).map(lambda each: (each[0], each[0] + each[1]))
PARTITIONS = st.tuples(st.sampled_from([0, 1, 2]), st.sampled_from([b"", b"1:a", b"1:b"]))
COUNTS = st.sampled_from([None, 0, 2])
GONE = st.sampled_from([b"", None, b"1:a"])
SEQUENCES = st.integers(0, 4)


@st.composite
def data_files(draw: st.DrawFn) -> Data:
    spec, key = draw(PARTITIONS)
    return Data(draw(st.sampled_from(PATHS)), draw(SEQUENCES), spec, key, draw(BOUNDS), draw(COUNTS), draw(GONE))


@st.composite
def delete_files(draw: st.DrawFn) -> Delete:
    spec, key = draw(PARTITIONS)
    match draw(st.sampled_from(["position", "named", "one", "equality"])):
        case "equality":
            ids = draw(st.sampled_from([(1,), (2,), (1, 2), (7,)]))
            nulls, gone = draw(COUNTS), draw(GONE)
            return Delete(2, draw(SEQUENCES), spec, key, ids=ids, x=draw(BOUNDS), nulls=nulls, gone=gone)
        case "named":
            return Delete(1, draw(SEQUENCES), spec, key, referenced=draw(st.sampled_from(PATHS)))
        case "one":
            path = draw(st.sampled_from(PATHS))
            return Delete(1, draw(SEQUENCES), spec, key, paths=(path, path))
        case _:
            low, high = sorted([draw(st.sampled_from(PATHS)), draw(st.sampled_from(PATHS))])
            cut = draw(st.sampled_from([None, 5, 6, 7]))
            low = low if cut is None else low[:cut]
            paths = (draw(st.sampled_from([None, low])), draw(st.sampled_from([None, high])))
            return Delete(1, draw(SEQUENCES), spec, key, paths=paths)


@given(
    st.lists(data_files(), max_size=12), st.lists(delete_files(), max_size=8), st.sampled_from([3, MAX_PAIRS_AT_ONCE])
)
@settings(max_examples=300, deadline=None)
def test_I6_deletes_apply_to_the_files_that_the_specification_names(
    data: list[Data], deletes: list[Delete], max_pairs: int
) -> None:
    found, counts = assign(data, deletes, max_pairs)
    assert found == assign_naively(data, deletes)
    assert counts == [0 if not own else None for own in found]


@given(
    st.lists(data_files(), max_size=8, unique_by=lambda each: each.path),
    st.lists(delete_files(), max_size=4),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_I6_a_deletion_vector_supersedes_position_deletes(
    data: list[Data], deletes: list[Delete], more: st.DataObject
) -> None:
    vectors = [
        Delete(1, more.draw(SEQUENCES), each.spec, each.key, "puffin", each.path, count=index + 1)
        for index, each in enumerate(data)
        if more.draw(st.booleans())
    ]
    everything = deletes + vectors
    found, counts = assign(data, everything)
    assert found == assign_naively(data, everything)
    for own, count in zip(found, counts, strict=True):
        kinds = [everything[int(name[1:])] for name in own]
        only_vector = [each for each in kinds if each.file_format == "puffin"] if len(kinds) == 1 else []
        assert count == (0 if not kinds else only_vector[0].count if only_vector else None)


def test_a_file_that_is_listed_twice_gets_its_deletes_twice() -> None:
    data = [Data("a", 1), Data("b", 1), Data("a", 2)]
    found, _ = assign(data, [Delete(1, 2, referenced="a")])
    assert found == [{"d0"}, set(), {"d0"}]


def test_I6_equality_deletes_apply_to_strictly_older_files_and_position_deletes_to_the_same_age() -> None:
    data = [Data("a", 1), Data("b", 2)]
    found, _ = assign(data, [Delete(2, 2, ids=(1,)), Delete(1, 2)])
    assert found == [{"d0", "d1"}, {"d1"}]


def test_I6_equality_deletes_of_an_unpartitioned_spec_are_global_and_position_deletes_are_not() -> None:
    data = [Data("a", 1, 1, b"1:a"), Data("b", 1, 0)]
    found, _ = assign(data, [Delete(2, 2, 0, ids=(1,)), Delete(1, 2, 0)])
    assert found == [{"d0"}, {"d0", "d1"}]


@pytest.mark.parametrize(("nulls", "kept"), [(0, False), (1, True), (None, True)])
def test_I6_nulls_are_equal_whatever_the_bounds_say(nulls: int | None, kept: bool) -> None:
    found, _ = assign([Data("a", 1, x=(1, 2), nulls=nulls)], [Delete(2, 2, ids=(1,), x=(5, 6), nulls=None)])
    assert found == [{"d0"} if kept else set()]


def test_only_deletion_vectors_have_an_offset_and_a_length() -> None:
    data = make_data_table([Data("a", 1), Data("b", 1)])
    table = make_delete_table([Delete(1, 1, file_format="puffin", referenced="a"), Delete(1, 1, paths=("b", "b"))])
    found = assign_deletes(data, table, pa.array(["/d/0", "/d/1"]), COLUMNS, GLOBAL).deletes.to_pylist()
    assert [(own[0]["path"], own[0]["offset"], own[0]["length"]) for own in found] == [
        ("/d/0", 4, 40),
        ("/d/1", None, None),
    ]


def test_I6_deletes_that_reference_a_file_may_have_another_partition() -> None:
    data = [Data("a", 1, key=b"1:a"), Data("b", 1, key=b"1:a")]
    found, _ = assign(data, [Delete(1, 2, key=b"-", referenced="a"), Delete(1, 2, key=b"-", paths=("b", "b"))])
    assert found == [{"d0"}, {"d1"}]


def test_I6_row_counts_with_a_vector_of_unknown_cardinality_are_unknown() -> None:
    deletes = [Delete(1, 1, file_format="puffin", referenced="a", count=None)]
    assert assign([Data("a", 1), Data("b", 1)], deletes) == ([{"d0"}, set()], [None, 0])


def test_an_upsert_stream_has_each_delete_described_once() -> None:
    count = 300
    data = [Data(f"{'x' * 500}/{number}", number) for number in range(count)]
    table = make_delete_table([Delete(2, number, ids=(1,)) for number in range(count)])
    paths = pa.array([f"{'y' * 500}/{number}" for number in range(count)])
    found = assign_deletes(make_data_table(data), table, paths, COLUMNS, GLOBAL).deletes
    assert pc.list_value_length(found).to_pylist() == [*range(count - 1, 0, -1), None]
    pairs = count * (count - 1) // 2
    assert found.values.indices.nbytes == 4 * pairs
    assert len(found.values.dictionary) == count
    assert found.slice(10, 20).take(pa.array([1]))[0].values.dictionary.equals(found.values.dictionary)
