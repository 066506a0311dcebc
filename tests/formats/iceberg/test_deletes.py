"""Row-level deletes: position deletes, deletion vectors, equality deletes."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tamis
from builders.iceberg.deletes import deletion_vectors, equality_deletes, position_deletes
from builders.iceberg.tables import IcebergFolder, write_rows
from builders.iceberg.values import field
from builders.parquet.tuning import PRUNE_PAGES
from tamis.errors import CorruptFile
from tamis.formats.iceberg.deletes.deleted_rows import DeletedKeys
from tamis.formats.source import LEVELS

FIELDS = [field(1, "id", "long"), field(2, "name", "string")]
FORMATS = ("parquet", "orc", "avro")


def make_rows(*numbers: int) -> pa.Table:
    return pa.table({"id": pa.array(numbers, pa.int64()), "name": [f"n{number}" for number in numbers]})


def find_ids(folder: Path, where: str | None = None, **options: Any) -> list[int]:
    return sorted(tamis.open(folder).scan(where, **options).to_arrow()["id"].to_pylist())


# --- Positions and vectors --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "deletes"), list(itertools.product(FORMATS, FORMATS)))
def test_I6_position_deletes_of_every_format_delete_from_files_of_every_format(
    tmp_path: Path, data: str, deletes: str
) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    files = [table.data_file(f"{start}.{data}", make_rows(*range(start, start + 5))) for start in (0, 10)]
    table.commit(*files)
    table.commit(position_deletes(table, f"d.{deletes}", [(files[0].path, 1), (files[1].path, 0), (files[1].path, 4)]))
    assert find_ids(tmp_path) == [0, 2, 3, 4, 11, 12, 13]
    assert find_ids(tmp_path, "id > 3 AND name <> 'n12'") == [4, 11, 13]
    assert tamis.open(tmp_path).scan("id > 3").count() == 4
    assert tamis.open(tmp_path).scan().count() == 7


def test_I6_position_deletes_do_not_touch_files_of_later_commits(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    first, second = (table.data_file(f"{start}.parquet", make_rows(start, start + 1)) for start in (0, 10))
    table.commit(first)
    table.commit(position_deletes(table, "d.parquet", [(first.path, 0), (second.path, 0)]))
    table.commit(second)
    assert find_ids(tmp_path) == [1, 10, 11]


@pytest.mark.parametrize("levels", [(), ("row_groups",), LEVELS], ids=str)
def test_I6_P5_vectors_delete_by_position_in_the_file_whatever_is_skipped(
    tmp_path: Path, levels: tuple[str, ...]
) -> None:
    table = IcebergFolder(tmp_path, FIELDS, version=3)
    pages = {"row_group_size": 100, "max_rows_per_page": 10, "write_page_index": True}
    file = table.data_file("a.parquet", make_rows(*range(1000)), options=pages)
    other = table.data_file("b.parquet", make_rows(*range(1000, 1010)))
    table.commit(file, other)
    gone = [0, 99, 100, 543, 545, *range(700, 800), 999]
    table.commit(
        *deletion_vectors(table, "v.puffin", {file.path: gone, other.path: [9]}, {file.path: file, other.path: other})
    )
    left = sorted({*range(1009)} - set(gone))
    options = {"levels": levels, "tuning": PRUNE_PAGES}
    assert find_ids(tmp_path, **options) == left
    assert find_ids(tmp_path, "id BETWEEN 540 AND 547", **options) == [540, 541, 542, 544, 546, 547]
    assert find_ids(tmp_path, "id BETWEEN 690 AND 805", **options) == [*range(690, 700), *range(800, 806)]
    assert tamis.open(tmp_path).scan("id >= 99", **options).count() == len([each for each in left if each >= 99])


def test_I10_position_deletes_of_a_moved_table_use_old_locations(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS, location="s3://bucket/warehouse/t")
    file = table.data_file("a.parquet", make_rows(1, 2, 3))
    table.commit(file)
    assert file.path.startswith("s3://bucket")
    table.commit(position_deletes(table, "d.parquet", [(file.path, 1)]))
    assert find_ids(tmp_path) == [1, 3]


def test_a_position_beyond_the_end_of_a_file_is_an_error(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    file = table.data_file("a.parquet", make_rows(1, 2, 3))
    table.commit(file)
    table.commit(position_deletes(table, "d.parquet", [(file.path, 3)]))
    with pytest.raises(CorruptFile, match=r"row 3 of '.*a\.parquet' is recorded as deleted, but the file has 3 rows"):
        find_ids(tmp_path)


def test_position_deletes_without_field_ids_are_matched_by_name(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    file = table.data_file("a.parquet", make_rows(1, 2, 3))
    table.commit(file)
    deletes = position_deletes(table, "d.parquet", [(file.path, 1)])
    plain = pa.table({"file_path": [file.path], "pos": pa.array([1], pa.int64()), "row": [None]})
    path = tmp_path / "data" / "d.parquet"
    pq.write_table(plain, path)
    table.commit(deletes.__class__(**{**get_fields(deletes), "size": path.stat().st_size}))
    assert find_ids(tmp_path) == [1, 3]


def get_fields(file: Any) -> dict[str, Any]:
    return {name: getattr(file, name) for name in file.__dataclass_fields__}


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"file_path": ["x"]}, "lacks the required column 'pos'"),
        ({"file_path": ["x"], "pos": pa.array([None], pa.int64())}, "position deletes without a path or a position"),
        ({"file_path": ["x"], "pos": pa.array([-1], pa.int64())}, "deletes row -1"),
    ],
    ids=["no column", "no position", "negative"],
)
def test_damaged_position_deletes_are_errors(tmp_path: Path, columns: dict[str, Any], message: str) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    file = table.data_file("a.parquet", make_rows(1, 2, 3))
    table.commit(file)
    deletes = position_deletes(table, "d.parquet", [(file.path, 1)])
    path = tmp_path / "data" / "d.parquet"
    pq.write_table(pa.table(columns), path)
    table.commit(deletes.__class__(**{**get_fields(deletes), "size": path.stat().st_size}))
    with pytest.raises(CorruptFile, match=message):
        find_ids(tmp_path)


# --- Equality ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("data", "deletes"), list(itertools.product(FORMATS, FORMATS)))
def test_I6_equality_deletes_of_every_format_delete_from_files_of_every_format(
    tmp_path: Path, data: str, deletes: str
) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    table.commit(table.data_file(f"a.{data}", make_rows(*range(6))))
    table.commit(equality_deletes(table, f"d.{deletes}", pa.table({"id": pa.array([1, 4, 77], pa.int64())})))
    assert find_ids(tmp_path) == [0, 2, 3, 5]
    assert tamis.open(tmp_path).scan("name <> 'n5'", columns=["name"]).to_arrow()["name"].to_pylist() == [
        "n0",
        "n2",
        "n3",
    ]
    assert tamis.open(tmp_path).scan().count() == 4


def test_I6_equality_deletes_apply_to_strictly_earlier_rows(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    table.commit(table.data_file("a.parquet", make_rows(1, 2)))
    table.commit(
        table.data_file("b.parquet", make_rows(1, 3)),
        equality_deletes(table, "d.parquet", pa.table({"id": pa.array([1, 3], pa.int64())})),
    )
    assert find_ids(tmp_path) == [1, 2, 3]


def test_I6_each_file_has_the_equality_deletes_that_came_after_it(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    for number in range(6):
        rows = make_rows(*range(10)).set_column(1, "name", pa.array([f"v{number}"] * 10))
        deleted = pa.table({"id": pa.array([number, 9], pa.int64())})
        table.commit(table.data_file(f"{number}.parquet", rows), equality_deletes(table, f"d{number}.parquet", deleted))
    found = tamis.open(tmp_path).scan().to_arrow()
    expected = {
        (number, f"v{commit}")
        for commit in range(6)
        for number in range(10)
        if not (commit < number < 6 or (number == 9 and commit < 5))
    }
    assert set(zip(found["id"].to_pylist(), found["name"].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)


def test_I6_equality_deletes_with_several_column_sets_all_apply(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    table.commit(table.data_file("a.parquet", make_rows(*range(8))))
    one = equality_deletes(table, "d1.parquet", pa.table({"id": pa.array([1], pa.int64())}))
    other = equality_deletes(table, "d2.parquet", pa.table({"name": ["n2", "n3"]}))
    both = equality_deletes(
        table, "d3.parquet", make_rows(5).append_column("extra", pa.array(["x"])).select(["id", "name"])
    )
    unlike = equality_deletes(table, "d4.parquet", pa.table({"id": pa.array([6], pa.int64()), "name": ["n7"]}))
    table.commit(one, other, both, unlike)
    assert find_ids(tmp_path) == [0, 4, 6, 7]


def test_I6_columns_of_a_delete_file_beyond_its_equality_ids_are_ignored(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    table.commit(table.data_file("a.parquet", make_rows(1, 2, 3)))
    table.commit(
        equality_deletes(table, "d.parquet", pa.table({"id": pa.array([2], pa.int64()), "name": ["other"]}), ids=[1])
    )
    assert find_ids(tmp_path) == [1, 3]


def test_I6_positions_vectors_and_equality_deletes_combine(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    first = table.data_file("a.parquet", make_rows(*range(6)))
    table.commit(first)
    table.commit(
        position_deletes(table, "p.parquet", [(first.path, 0), (first.path, 3)]),
        equality_deletes(table, "d.parquet", pa.table({"id": pa.array([3, 5], pa.int64())})),
    )
    assert find_ids(tmp_path) == [1, 2, 4]


def test_I6_null_and_nan_equal_themselves_and_signed_zeros_differ(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "x", "double")])
    values = [None, math.nan, 0.0, -0.0, 1.5]
    table.commit(table.data_file("a.parquet", pa.table({"id": pa.array(range(5), pa.int64()), "x": values})))
    table.commit(equality_deletes(table, "d.parquet", pa.table({"x": pa.array([None, math.nan, -0.0], pa.float64())})))
    assert find_ids(tmp_path) == [2, 4]


def test_I6_equality_deletes_by_renamed_promoted_and_dropped_columns(tmp_path: Path) -> None:
    old = [field(1, "id", "int"), field(2, "name", "string"), field(3, "gone", "string")]
    table = IcebergFolder(tmp_path, old)
    rows = pa.table({"id": pa.array(range(6), pa.int32()), "name": list("abcdef"), "gone": list("uvwxyz")})
    table.commit(table.data_file("a.parquet", rows))
    by_gone = equality_deletes(table, "d1.parquet", pa.table({"gone": ["v"]}))
    by_both = equality_deletes(table, "d2.parquet", pa.table({"id": pa.array([2], pa.int32()), "gone": ["w"]}))
    table.evolve([field(1, "key", "long"), field(2, "id", "string"), field(4, "gone", "long")])
    by_key = equality_deletes(table, "d3.parquet", pa.table({"key": pa.array([3], pa.int64())}))
    table.commit(by_gone, by_both, by_key)
    assert tamis.open(tmp_path).scan().to_arrow().to_pydict() == {
        "key": [0, 4, 5], "id": ["a", "e", "f"], "gone": [None, None, None]
    }  # fmt: skip


def test_I6_equality_deletes_by_a_struct_field(tmp_path: Path) -> None:
    kind = {"type": "struct", "fields": [field(3, "x", "long"), field(4, "y", "string")]}
    table = IcebergFolder(tmp_path, [field(1, "id", "long"), field(2, "s", kind)])
    structs = [{"x": 1, "y": "a"}, {"x": 2, "y": "b"}, None, {"x": None, "y": "c"}]
    stored = pa.struct([("x", pa.int64()), ("y", pa.string())])
    rows = pa.table({"id": pa.array(range(4), pa.int64()), "s": pa.array(structs, stored)})
    table.commit(table.data_file("a.parquet", rows))
    deleted = pa.table({"s": pa.array([{"x": 2, "y": "other"}], stored)})
    table.commit(equality_deletes(table, "d1.parquet", deleted, ids=[3]))
    assert find_ids(tmp_path) == [0, 2, 3]
    # NULL is equal to NULL, also where the struct is NULL.
    table.commit(equality_deletes(table, "d2.parquet", pa.table({"s": pa.array([None], stored)}), ids=[3]))
    assert find_ids(tmp_path) == [0]


def test_I5_I6_an_initial_default_is_compared_by_equality_deletes(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS, version=3)
    table.commit(table.data_file("a.parquet", make_rows(1, 2)))
    added = field(3, "kind", "string") | {"initial-default": "old", "write-default": "new"}
    table.evolve([*FIELDS, added])
    table.commit(table.data_file("b.parquet", make_rows(3, 4).append_column("kind", pa.array(["new", "old"]))))
    table.commit(equality_deletes(table, "d.parquet", pa.table({"kind": ["old"]})))
    assert find_ids(tmp_path) == [3]


def test_a_delete_file_without_its_column_is_an_error(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    table.commit(table.data_file("a.parquet", make_rows(1, 2)))
    table.commit(equality_deletes(table, "d.parquet", pa.table({"name": ["n1"]}), ids=[1], metrics={}))
    with pytest.raises(CorruptFile, match=r"d\.parquet' lacks the required column"):
        find_ids(tmp_path)


def test_a_field_that_no_schema_has_is_an_error(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    table.commit(table.data_file("a.parquet", make_rows(1, 2)))
    table.commit(equality_deletes(table, "d.parquet", pa.table({"name": ["n1"]}), ids=[99], metrics={}))
    with pytest.raises(CorruptFile, match="compare the field 99, which no schema of the table has"):
        find_ids(tmp_path)


VALUES: dict[pa.DataType, Sequence[Any]] = {
    pa.int64(): [None, 0, 1, -(2**63)],
    pa.float32(): [None, math.nan, 0.0, -0.0, math.inf],
    pa.float64(): [None, math.nan, 0.0, -0.0, 1e300],
    pa.string(): [None, "", "a", "日"],
    pa.binary(): [None, b"", b"\xff"],
    pa.binary(2): [None, b"ab", b"ac"],
    pa.bool_(): [None, True, False],
    pa.decimal128(20, 2): [None, Decimal("1.00"), Decimal("-0.01")],
    pa.date32(): [None, 0, -1],
    pa.time64("us"): [None, 0, 1],
    pa.timestamp("us", "UTC"): [None, 0, -1],
    pa.timestamp("ns"): [None, 0, 1],
}


@given(st.data())
def test_I6_deleted_rows_equal_those_of_a_row_by_row_comparison(data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.sampled_from(list(VALUES)), min_size=1, max_size=4))

    def draw_rows(most: int) -> list[tuple[Any, ...]]:
        return data.draw(st.lists(st.tuples(*(st.sampled_from(VALUES[kind]) for kind in kinds)), max_size=most))

    deleted, given_rows = [draw_rows(4), draw_rows(4), draw_rows(4)], draw_rows(30)
    keys = DeletedKeys([make_table(kinds, each) for each in deleted])
    for files in (None, [0], [2, 0], [0, 1, 2], []):
        looked = [row for number in (range(3) if files is None else files) for row in deleted[number]]
        expected = [
            index for index, row in enumerate(given_rows) if any(all(map(is_same, row, other)) for other in looked)
        ]
        assert keys.find(make_table(kinds, given_rows), files).tolist() == expected


def make_table(kinds: list[pa.DataType], rows: list[tuple[Any, ...]]) -> pa.Table:
    arrays = [pa.array([row[index] for row in rows], kind) for index, kind in enumerate(kinds)]
    return pa.table(arrays, names=[str(index) for index in range(len(kinds))])


def is_same(one: Any, other: Any) -> bool:
    if isinstance(one, float) and isinstance(other, float):
        return bool(np.float64(one).tobytes() == np.float64(other).tobytes())
    return type(one) is type(other) and bool(one == other)


def test_deletes_are_read_once_for_all_data_files(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    files = [table.data_file(f"{number}.parquet", make_rows(number, 1000 + number)) for number in range(100)]
    table.commit(*files)
    table.commit(
        position_deletes(table, "p.parquet", [(file.path, 1) for file in files]),
        equality_deletes(table, "e.parquet", pa.table({"id": pa.array([5, 7], pa.int64())})),
    )
    scan = tamis.open(tmp_path).scan()
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [number for number in range(100) if number not in (5, 7)]
    assert scan.report is not None
    # Files are planned in several parts, and each part needs the deletes.
    assert scan.report.requests is not None
    assert scan.report.requests < 4 * len(files)


def test_write_rows_is_used_for_other_formats(tmp_path: Path) -> None:
    """The builder must write the named format: otherwise the tests above would test Parquet nine times."""
    for ending, magic in (("parquet", b"PAR1"), ("orc", b"ORC"), ("avro", b"Obj")):
        write_rows(tmp_path / f"a.{ending}", make_rows(1), FIELDS)
        assert (tmp_path / f"a.{ending}").read_bytes().startswith(magic)


def test_equality_deletes_are_evaluated_in_kept_row_groups_only(tmp_path: Path) -> None:
    table = IcebergFolder(tmp_path, FIELDS)
    file = table.data_file("a.parquet", make_rows(*range(10_000)), options={"row_group_size": 1000})
    table.commit(file)
    table.commit(equality_deletes(table, "d.parquet", pa.table({"name": ["n5005", "n7"]})))
    everything, few = tamis.open(tmp_path).scan(), tamis.open(tmp_path).scan("id BETWEEN 5003 AND 5006")
    assert everything.to_arrow().num_rows == 9_998
    assert few.to_arrow()["id"].to_pylist() == [5003, 5004, 5006]
    assert everything.report is not None
    assert few.report is not None
    assert everything.report.bytes_read is not None
    assert few.report.bytes_read is not None
    assert few.report.bytes_read < everything.report.bytes_read / 3
