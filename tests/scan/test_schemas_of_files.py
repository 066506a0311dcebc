"""Files of one table with different types: a scan returns all rows or an error."""

from __future__ import annotations

from decimal import Decimal
from itertools import permutations
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import CorruptFile, UnknownColumn, UnsupportedFeature
from tamis.parquet.footer.matching import can_hold

NUMBERS: dict[pa.DataType, list[Any]] = {
    pa.int8(): [1, 127, None],
    pa.int32(): [1, 2**31 - 1],
    pa.int64(): [1, 2**40, -(2**62)],
    pa.uint64(): [1, 2**64 - 1],
    pa.float32(): [1.0, 0.5],
    pa.float64(): [1.0, 5.5, 1e300, float("nan")],
    pa.decimal128(5, 2): [Decimal("1.00"), Decimal("999.99")],
    pa.decimal128(30, 10): [Decimal("1.0000000000"), Decimal("5.0000000001")],
}
FILTERS = ["x > 3000000000", "x = 5.5", "x > 126", "x < 0.75", "x <> 1", "x IN (300, 1e300)", "NOT x <= 127.5"]


def write(folder: Path, files: list[pa.Array], *, partitioned: bool) -> Path:
    for index, values in enumerate(files):
        directory = folder / f"p={index}" if partitioned else folder
        directory.mkdir(parents=True, exist_ok=True)
        pq.write_table(pa.table({"x": values}), directory / f"{index}.parquet")
    return folder


def read_rows(folder: Path, where: str, **options: Any) -> list[Any]:
    return tamis.open(folder, **options).scan(where, columns=["x"]).to_arrow()["x"].to_pylist()


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    "where", ["x > 3000000000", "x = 1099511627776", "x IS NOT NULL", "x = 1099511627776 OR x = 7"]
)
def test_T4_a_literal_beyond_the_type_of_the_first_file_loses_no_row_of_a_wider_one(
    tmp_path: Path, where: str, partitioned: bool
) -> None:
    write(tmp_path, [pa.array([1], pa.int32()), pa.array([2**40])], partitioned=partitioned)
    with pytest.raises(
        CorruptFile, match=r"'x' of '.*1\.parquet' is a bigint, which is incompatible with the table's type int"
    ):
        read_rows(tmp_path, where)
    found = read_rows(tmp_path, where, merge_schema=True)
    assert found == ([1, 2**40] if where == "x IS NOT NULL" else [2**40])


def test_T4_an_impossible_side_of_OR_does_not_skip_a_partition(tmp_path: Path) -> None:
    write(tmp_path, [pa.array([1], pa.int32()), pa.array([2**40])], partitioned=True)
    with pytest.raises(CorruptFile, match="is incompatible with the table's type"):
        read_rows(tmp_path, "x > 3000000000 OR p = 0")
    assert read_rows(tmp_path, "x > 3000000000 AND p = 0") == []
    assert read_rows(tmp_path, "x > 3000000000 OR p = 0", merge_schema=True) == [1, 2**40]


@pytest.mark.parametrize("asked", [{"where": "later > 1"}, {"columns": ["later"]}], ids=str)
def test_a_column_that_only_later_files_have_is_an_error_with_a_hint(tmp_path: Path, asked: dict[str, Any]) -> None:
    write(tmp_path, [pa.array([1])], partitioned=False)
    pq.write_table(pa.table({"x": [2], "later": [3]}), tmp_path / "1.parquet")
    with pytest.raises(UnknownColumn) as raised:
        tamis.open(tmp_path).scan(**asked)
    assert "no column 'later'" in str(raised.value)
    assert str(raised.value).endswith(
        "These are the columns of the first file: merge_schema=True (--merge-schema) takes those of all files."
    )
    assert tamis.open(tmp_path, merge_schema=True).scan(**asked).to_arrow()["later"].drop_null().to_pylist() == [3]


def test_an_unknown_column_of_one_file_or_a_merged_schema_gets_no_hint(tmp_path: Path) -> None:
    write(tmp_path, [pa.array([1])], partitioned=False)
    for table in (tamis.open(tmp_path / "0.parquet"), tamis.open(tmp_path, merge_schema=True)):
        with pytest.raises(UnknownColumn) as raised:
            table.scan("later > 1")
        assert "merge" not in str(raised.value)


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(("first", "second"), list(permutations(NUMBERS, 2)), ids=str)
@pytest.mark.one_in(6)
def test_T11_files_of_two_number_types_give_all_rows_or_an_error(
    tmp_path: Path, first: pa.DataType, second: pa.DataType, partitioned: bool
) -> None:
    """Return the matching rows of each file, opened alone with its own schema."""
    types = (first, second)
    files = [pa.array(NUMBERS[each], each) for each in types]
    write(tmp_path, files, partitioned=partitioned)
    for where in FILTERS:
        singles = [tamis.open(path).scan(where).count() for path in sorted(tmp_path.rglob("*.parquet"))]
        for options in ({}, {"merge_schema": True}):
            try:
                found = len(read_rows(tmp_path, where, **options))
            except (CorruptFile, UnsupportedFeature):
                assert options or not can_hold(first, second)
                continue
            assert found == sum(singles), (where, options)


@pytest.mark.parametrize(
    ("table", "file", "expected"),
    [
        (pa.int64(), pa.int32(), True),
        (pa.int64(), pa.uint32(), True),
        (pa.int64(), pa.uint64(), False),
        (pa.int32(), pa.float64(), False),
        (pa.float64(), pa.int32(), True),
        (pa.float64(), pa.int64(), False),
        (pa.float32(), pa.int32(), False),
        (pa.float64(), pa.float32(), True),
        (pa.float64(), pa.decimal128(10, 2), False),
        (pa.float64(), pa.decimal128(10, 0), True),
        (pa.decimal128(10, 2), pa.int32(), False),
        (pa.decimal128(12, 2), pa.int32(), True),
        (pa.decimal128(12, 2), pa.decimal128(12, 3), False),
        (pa.int32(), pa.decimal128(9, 0), True),
        (pa.int32(), pa.decimal128(10, 0), False),
        (pa.timestamp("us"), pa.timestamp("ms"), True),
        (pa.timestamp("us"), pa.timestamp("ns"), False),
        (pa.timestamp("us"), pa.date32(), True),
        (pa.date32(), pa.timestamp("us"), False),
        (pa.string(), pa.large_string(), True),
        (pa.string(), pa.dictionary(pa.int32(), pa.string()), True),
        (pa.string(), pa.binary(), False),
        (pa.binary(), pa.string(), True),
        (pa.int32(), pa.string(), False),
        (pa.string(), pa.int32(), False),
        (pa.int32(), pa.null(), True),
        (pa.list_(pa.int32()), pa.list_(pa.int64()), True),
    ],
)
def test_T11_which_types_of_files_a_type_of_the_table_holds(
    table: pa.DataType, file: pa.DataType, expected: bool
) -> None:
    assert can_hold(table, file) is expected


@pytest.mark.parametrize("partitioned", [False, True])
def test_T5_a_finer_unit_in_a_later_file_is_an_error_and_merges(tmp_path: Path, partitioned: bool) -> None:
    coarse, fine = pa.array([1], pa.timestamp("us")), pa.array([1_500], pa.timestamp("ns"))
    write(tmp_path, [coarse, fine], partitioned=partitioned)
    where = "x = TIMESTAMP_NTZ '1970-01-01 00:00:00.000001500'"
    with pytest.raises(CorruptFile, match="timestamp_ns, which is incompatible"):
        tamis.open(tmp_path).scan(where).count()
    assert tamis.open(tmp_path, merge_schema=True).scan(where).count() == 1


def test_a_merged_schema_has_the_columns_of_all_files_in_one_spelling(tmp_path: Path) -> None:
    pq.write_table(pa.table({"Id": [1], "a": ["x"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"b": [2.5], "ID": pa.array([2], pa.int32())}), tmp_path / "2.parquet")
    table = tamis.open(tmp_path, merge_schema=True)
    assert table.schema == pa.schema({"Id": pa.int64(), "a": pa.string(), "b": pa.float64()})
    assert table.scan("b > 2 AND id < 3").to_arrow().to_pylist() == [{"Id": 2, "a": None, "b": 2.5}]
    with pytest.raises(tamis.TamisError, match="no column 'b'"):
        tamis.open(tmp_path).scan("b > 2")


def test_a_merged_schema_needs_a_type_that_holds_both(tmp_path: Path) -> None:
    write(tmp_path, [pa.array([1]), pa.array(["a"])], partitioned=False)
    with pytest.raises(UnsupportedFeature, match=r"'x' is bigint in '.*0\.parquet' and string in '.*1\.parquet'"):
        tamis.open(tmp_path, merge_schema=True)


def test_types_that_only_data_columns_have_do_not_stop_partitions_from_being_pruned(tmp_path: Path) -> None:
    write(tmp_path, [pa.array([index], pa.int32()) for index in range(4)], partitioned=True)
    report = tamis.open(tmp_path).scan("p >= 2 AND x > 3000000000").plan("files").report
    assert (report.levels[0].level, report.levels[0].total, report.levels[0].kept) == ("partitions", 4, 2)
    contradiction = tamis.open(tmp_path).scan("x > 5 AND x < 3").plan("files").report
    assert contradiction.levels[0].kept == 0


def test_columns_of_one_file_that_differ_by_case_are_not_merged_into_one(tmp_path: Path) -> None:
    pq.write_table(pa.table({"A": [1], "a": [2]}), tmp_path / "1.parquet")
    with pytest.raises(UnsupportedFeature, match="has columns 'A', 'a' that differ only by case"):
        tamis.open(tmp_path, merge_schema=True)
    assert tamis.open(tmp_path).schema.names == ["A", "a"]


def test_a_merged_column_may_be_null_though_the_first_file_requires_it(tmp_path: Path) -> None:
    required = pa.schema([pa.field("x", pa.int64(), nullable=False)])
    pq.write_table(pa.table({"x": [1]}, schema=required), tmp_path / "1.parquet")
    pq.write_table(pa.table({"x": pa.array([None], pa.int64())}), tmp_path / "2.parquet")
    table = tamis.open(tmp_path, merge_schema=True)
    assert table.schema.field("x").nullable
    assert table.scan("x IS NULL").count() == 1


@pytest.mark.parametrize(
    ("first", "other"),
    [
        (pa.array([1], pa.int32()), pa.array(["7", "08"])),
        (pa.array(["a"]), pa.array([7])),
        (pa.array([True]), pa.array([7])),
        (pa.array([1], pa.date32()), pa.array([7], pa.int32())),
        (pa.array([[1]]), pa.array([["7"]])),
    ],
    ids=lambda values: str(values.type),
)
def test_a_file_of_another_kind_of_type_is_refused_with_a_filter_and_without(
    tmp_path: Path, first: pa.Array, other: pa.Array
) -> None:
    write(tmp_path, [first, other], partitioned=False)
    with pytest.raises(CorruptFile, match=r"column 'x(.element)?' of '.*1\.parquet' .* write the file again with"):
        tamis.open(tmp_path).scan().to_arrow()


def test_a_file_of_a_wider_number_is_read_where_its_values_fit(tmp_path: Path) -> None:
    write(tmp_path, [pa.array([1], pa.int32()), pa.array([7], pa.int64())], partitioned=False)
    assert tamis.open(tmp_path).scan().to_arrow()["x"].to_pylist() == [1, 7]


def test_a_misfit_names_merging_only_where_it_helps(tmp_path: Path) -> None:
    write(tmp_path / "wider", [pa.array([1], pa.int32()), pa.array([2**40])], partitioned=False)
    with pytest.raises(
        CorruptFile, match=r"with merge_schema=True \(--merge-schema\), which makes it bigint, or write"
    ):
        read_rows(tmp_path / "wider", "x > 1")
    write(tmp_path / "text", [pa.array([1], pa.int32()), pa.array(["a"])], partitioned=False)
    with pytest.raises(CorruptFile) as caught:
        read_rows(tmp_path / "text", "x > 1")
    assert "merge" not in str(caught.value)
