from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import CorruptFile
from tamis.parquet.footer.leaves import find_leaf_indices, get_file_schema

POINT = pa.struct({"x": pa.int32(), "y": pa.float64()})


def make_metadata(schema: pa.Schema, **options: Any) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(schema.empty_table(), sink, **options)
    return pq.read_metadata(sink)


NESTED = pa.schema(
    {
        "id": pa.int64(),
        "a.b": pa.string(),
        "a": pa.struct({"b": pa.int32(), "c": pa.struct({"d": pa.string(), "d.e": pa.bool_()}), "l": pa.list_(POINT)}),
        "m": pa.map_(pa.string(), POINT),
        "l": pa.list_(pa.list_(pa.int8())),
        "a.c": pa.struct({"d": pa.date32()}),
        "z": pa.float32(),
    }
)


def test_H8_leaves_are_found_by_path_and_not_by_dotted_text() -> None:
    leaves = get_file_schema(make_metadata(NESTED)).leaves
    assert {path: leaf.index for path, leaf in leaves.items()} == {
        ("id",): 0,
        ("a.b",): 1,
        ("a", "b"): 2,
        ("a", "c", "d"): 3,
        ("a", "c", "d.e"): 4,
        ("a.c", "d"): 11,
        ("z",): 12,
    }
    assert leaves["a.b",].arrow_type == pa.string()
    assert leaves["a", "b"].arrow_type == pa.int32()
    assert leaves["a.c", "d"].logical == "DATE"


def test_N9_leaves_in_lists_and_maps_are_left_out() -> None:
    leaves = get_file_schema(make_metadata(NESTED)).leaves
    assert not any(path[0] in ("m", "l") or path[:2] == ("a", "l") for path in leaves)


def test_a_leaf_has_its_storage_type() -> None:
    schema = pa.schema(
        [
            pa.field("required", pa.int32(), nullable=False),
            pa.field("small", pa.uint8()),
            pa.field("time", pa.timestamp("us", "Europe/Paris")),
            pa.field("decimal", pa.decimal128(30, 4)),
            pa.field("duration", pa.duration("ms")),
            pa.field("category", pa.dictionary(pa.int32(), pa.string())),
        ]
    )
    leaves = {path[0]: leaf for path, leaf in get_file_schema(make_metadata(schema)).leaves.items()}
    assert (leaves["required"].nullable, leaves["small"].nullable) == (False, True)
    assert (leaves["small"].logical, leaves["small"].parameters["isSigned"]) == ("INT", False)
    assert leaves["time"].parameters["isAdjustedToUTC"]
    assert leaves["time"].parameters["timeUnit"] == "microseconds"
    assert (leaves["decimal"].physical, leaves["decimal"].length) == ("FIXED_LEN_BYTE_ARRAY", 13)
    assert (leaves["decimal"].precision, leaves["decimal"].scale) == (30, 4)
    assert leaves["duration"].arrow_type == pa.duration("ms")
    assert leaves["category"].physical == "BYTE_ARRAY"


def test_a_required_field_in_an_optional_struct_is_nullable() -> None:
    schema = pa.schema({"s": pa.struct([pa.field("x", pa.int32(), nullable=False)])})
    assert get_file_schema(make_metadata(schema)).leaves["s", "x"].nullable


def test_an_ambiguous_name_is_left_out_and_not_missing() -> None:
    schema = pa.schema([pa.field("a", pa.int32()), pa.field("b", pa.int8()), pa.field("a", pa.string())])
    metadata = make_metadata(schema)
    assert list(get_file_schema(metadata).leaves) == [("b",)]
    assert not get_file_schema(metadata).lacks(("a",))
    assert [leaf.physical for leaf in get_file_schema(metadata).types] == ["INT32", "INT32", "BYTE_ARRAY"]


def test_a_struct_beside_a_leaf_of_its_name_is_left_out() -> None:
    schema = pa.schema([pa.field("a", pa.int32()), pa.field("a", POINT)])
    metadata = make_metadata(schema)
    assert get_file_schema(metadata).leaves == {}
    assert not get_file_schema(metadata).lacks(("a",))
    assert not get_file_schema(metadata).lacks(("a", "x"))


@pytest.mark.parametrize(
    ("path", "lacks"),
    [
        (("new",), True),
        (("new", "deeper"), True),
        (("a", "new"), True),
        (("a", "c", "new"), True),
        (("a", "c", "new", "deeper"), True),
        (("id",), False),
        (("a",), False),
        (("a", "b"), False),
        (("a.b",), False),
        (("a", "c.d"), True),
        (("l",), False),
        (("m",), False),
        (("l", "element"), False),
        (("a", "l", "x"), False),
        (("id", "deeper"), False),
    ],
)
def test_a_column_is_missing_only_if_nothing_is_at_its_path(path: tuple[str, ...], lacks: bool) -> None:
    assert get_file_schema(make_metadata(NESTED)).lacks(path) is lacks


def test_files_of_one_schema_share_their_leaves_and_others_do_not() -> None:
    first, second = make_metadata(NESTED), make_metadata(NESTED)
    assert get_file_schema(first).leaves is get_file_schema(second).leaves
    # Names and Parquet types are equal: only Arrow's own schema distinguishes durations from numbers.
    numbers, durations = pa.schema({"a": pa.int64()}), pa.schema({"a": pa.duration("us")})
    assert get_file_schema(make_metadata(numbers)).leaves["a",].arrow_type == pa.int64()
    assert get_file_schema(make_metadata(durations)).leaves["a",].arrow_type == pa.duration("us")
    bare = make_metadata(durations, store_schema=False)
    assert get_file_schema(bare).leaves["a",].arrow_type == pa.int64()
    assert get_file_schema(make_metadata(pa.schema({"a": pa.int32()}))).leaves["a",].physical == "INT32"


def test_structs_of_other_names_with_the_same_fields_are_distinguished(tmp_path: Path) -> None:
    # Without Arrow's schema, as Spark writes them, pyarrow calls the two schemas equal.
    for name in ("first", "second"):
        rows = pa.table({name: [{"x": 1}, {"x": 2}]})
        pq.write_table(rows, tmp_path / f"{name}.parquet", store_schema=False)
        assert tamis.open(tmp_path / f"{name}.parquet").scan(f"{name}.x = 2").to_arrow().to_pylist() == [
            {name: {"x": 2}}
        ]
    required = pa.schema([pa.field("s", pa.struct([pa.field("x", pa.int32())]), nullable=False)])
    optional = pa.schema([pa.field("s", pa.struct([pa.field("x", pa.int32(), nullable=False)]))])
    assert get_file_schema(make_metadata(required, store_schema=False)).arrow.equals(required)
    assert get_file_schema(make_metadata(optional, store_schema=False)).arrow.equals(optional)


def test_X10_a_group_with_an_invalid_name_is_an_error(tmp_path: Path) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"lists": [[1]]}), sink, store_schema=False)
    path = tmp_path / "f.parquet"
    path.write_bytes(sink.getvalue().replace(b"lists", b"lis\xf4s"))
    with pytest.raises(CorruptFile, match=r"schema of '.*f\.parquet' is damaged"):
        tamis.open(path)


@pytest.mark.parametrize(
    ("paths", "indices"),
    [
        ([("id",)], [0]),
        ([("a.b",)], [1]),
        ([("a", "b")], [2]),
        ([("a", "c")], [3, 4]),
        ([("a",)], [2, 3, 4, 5, 6]),
        ([("a", "l")], [5, 6]),
        ([("m",)], [7, 8, 9]),
        ([("l",)], [10]),
        ([("a.c", "d"), ("z",), ("id",)], [0, 11, 12]),
        ([("a", "b"), ("a",), ("a", "b")], [2, 3, 4, 5, 6]),
        ([("a", "l", "element", "x")], [5, 6]),
        ([("m", "value", "y")], [7, 8, 9]),
        ([("new",), ("a", "new"), ("a", "b", "new")], [2]),
        ([], []),
    ],
)
def test_leaf_indices_of_projected_paths(paths: list[tuple[str, ...]], indices: list[int]) -> None:
    metadata = make_metadata(NESTED)
    assert find_leaf_indices(metadata.schema.to_arrow_schema(), paths) == indices
    assert metadata.num_columns == 13


def test_leaf_indices_count_extension_and_dictionary_types() -> None:
    schema = pa.schema(
        {"u": pa.uuid(), "d": pa.dictionary(pa.int8(), pa.string()), "f": pa.list_(pa.int8(), 2), "z": pa.int8()}
    )
    metadata = make_metadata(schema)
    assert find_leaf_indices(metadata.schema.to_arrow_schema(), [("z",)]) == [3]
    assert {path: leaf.index for path, leaf in get_file_schema(metadata).leaves.items()} == {
        ("u",): 0,
        ("d",): 1,
        ("z",): 3,
    }
