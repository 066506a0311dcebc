"""The index as the file level of folders and Hive-style tables."""

from __future__ import annotations

import datetime
import logging
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.hive.indexed import get_index_folder, list_data_files, make_rows, make_unreadable, write_files
from builders.hive.tables import write_hive_table
from builders.parquet.footers import remove_statistics
from tamis.errors import CorruptFile, InvalidArgument
from tamis.io.storage import open_storage
from tamis.parquet.reading.parquet_file import ParquetFile


def get_files_level(scan: tamis.Scan) -> dict[str, object]:
    report = scan.plan("files").report.to_dict()
    return next(level for level in report["levels"] if level["level"] == "files")


def test_a_table_plans_and_counts_without_opening_a_single_file(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(200))
    tamis.index.build(root)
    expected = [
        (task.path, task.row_group, task.row_count, task.bytes, task.residual)
        for task in tamis.open(root, index=False).scan("id BETWEEN 705 AND 731", columns=["name"]).plan().tasks
    ]
    make_unreadable(list_data_files(root))
    table = tamis.open(root)
    assert table.schema.names == ["id", "name", "x"]
    assert table.files()["num_records"].to_pylist() == [10] * 200
    assert table.files("id BETWEEN 705 AND 731")["num_records"].to_pylist() == [10] * 4
    scan = table.scan("id BETWEEN 705 AND 731", columns=["name"])
    tasks = scan.plan().tasks
    assert [(task.path, task.row_group, task.row_count, task.bytes, task.residual) for task in tasks] == expected
    assert scan.plan("files").num_files == 4
    assert table.scan("id >= 0").count() == table.scan().count() == 2000
    assert table.scan("id < 0").to_arrow().num_rows == 0
    with pytest.raises(CorruptFile):
        scan.to_arrow()


def test_the_report_shows_what_the_index_did(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(5))
    before = get_files_level(tamis.open(root).scan("id = 23 AND name <> 'a' AND upper(name) = 'N1'"))
    assert [each["unused_because"] for each in before["by_predicate"]] == ["no statistics"] * 3
    assert before["note"] is None
    tamis.index.build(root)
    write_files(root, [5])
    level = get_files_level(tamis.open(root).scan("id = 23 AND name <> 'a' AND upper(name) = 'N1'"))
    assert (level["total"], level["kept"]) == (6, 2)
    assert level["bytes_kept"] < level["bytes_total"]
    first, second, third = level["by_predicate"]
    assert (first["skipped"], first["unused_because"]) == (4, None)
    assert (second["skipped"], second["unused_because"]) == (0, None)
    assert third["unused_because"].startswith("function on column")
    assert level["note"] == "index of 5 of 6 files"


def test_an_index_that_is_absent_or_disabled_changes_nothing(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(3))
    plain = tamis.open(root).scan("id = 23").plan().report.to_dict()
    tamis.index.build(root, columns=["name"])
    assert tamis.open(root, index=False).scan("id = 23").plan().report.to_dict() == plain
    level = get_files_level(tamis.open(root).scan("id = 23"))
    assert (level["kept"], level["by_predicate"][0]["unused_because"]) == (3, "no statistics")
    switched_off = tamis.open(root).scan("name = 'a'", levels=["row_groups"]).plan().report
    assert switched_off.level("files").kept == 3


def test_the_folder_of_the_index_is_not_listed_as_data(tmp_path: Path) -> None:
    parts = [({"day": str(day)}, make_rows(day)) for day in range(3)]
    for root in (write_hive_table(tmp_path / "partitioned", parts), write_files(tmp_path / "flat", range(3))):
        before = tamis.open(root).files()["path"].to_pylist()
        tamis.index.build(root)
        assert tamis.open(root).files()["path"].to_pylist() == before
        assert tamis.hive.table_info(root).directories.num_rows in (1, 3)
        assert sorted(pq.read_table(root)["id"].to_pylist()) == list(range(30))


def test_row_counts_of_files_are_known_for_every_filter(tmp_path: Path) -> None:
    write_hive_table(tmp_path, [({"day": str(day)}, make_rows(day)) for day in range(3)])
    tamis.index.build(tmp_path)
    table = tamis.open(tmp_path)
    assert table.files("day = 1")["num_records"].to_pylist() == [10]
    with pytest.raises(InvalidArgument, match="no level"):
        table.files(levels=["file"])


def test_partition_values_and_indexed_bounds_are_used_together(tmp_path: Path) -> None:
    parts = [({"region": region}, make_rows(number)) for number, region in enumerate(["eu", "us", "eu", None])]
    root = write_hive_table(tmp_path / "t", parts)
    tamis.index.build(root)
    table = tamis.open(root)
    plan = table.scan("(region = 'eu' AND id < 5) OR (region = 'us' AND id > 100)").plan("files")
    assert [Path(path).name for path in plan.files["path"].to_pylist()] == ["part-0000.parquet"]
    assert table.scan("region IS NULL AND id < 30").plan("files").num_files == 0
    assert table.scan("region = 'eu' AND id < 30").count() == 20


def test_F1_counted_nan_lets_files_of_floats_be_skipped(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    for number, values in enumerate([[1.0, 2.0], [3.0, float("nan")], [None, -0.0]]):
        pq.write_table(pa.table({"x": pa.array(values, pa.float64())}), root / f"{number}.parquet")
    tamis.index.build(root)
    assert tamis.open(root).scan("x > 100").plan("files").num_files == 3
    tamis.index.build(root, count_nan=["x"])
    table = tamis.open(root)
    assert table.scan("x > 100").plan("files").num_files == table.scan("x > 100").count() == 1
    assert table.scan("x = 0.0").plan("files").num_files == table.scan("x = 0.0").count() == 1
    assert table.scan("x <> 3").count() == 4


def test_bloom_filters_skip_files_that_bounds_cannot(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(50))
    tamis.index.build(root, bloom=["name"], false_positives=0.0001)
    table = tamis.open(root)
    wanted = make_rows(17)["name"][3].as_py()
    scan = table.scan(f"name = '{wanted}'")
    assert scan.plan("files").num_files == scan.count() == 1
    several = ", ".join(f"'{make_rows(number)['name'][0].as_py()}'" for number in (3, 9))
    assert table.scan(f"name IN ({several})").plan("files").num_files == 2
    assert table.scan(f"name = '{wanted}' OR id = 5").plan("files").num_files == 2
    assert table.scan(f"NOT name = '{wanted}'").plan("files").num_files == 50
    assert table.scan(f"name = '{wanted}'", levels=["files"]).plan("files").num_files > 10


def test_T4_a_file_whose_type_does_not_fit_is_the_error_that_it_is_without_an_index(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"x": pa.array([1], pa.int32()), "y": [1]}), root / "0.parquet")
    pq.write_table(pa.table({"x": pa.array([4_000_000_000], pa.int64()), "y": [2]}), root / "1.parquet")
    tamis.index.build(root)
    for where in ("x > 3000000000", "y = 1 OR x > 3000000000", "x = 7"):
        with pytest.raises(CorruptFile, match="is incompatible with the table's type int"):
            tamis.open(root).scan(where).to_arrow()
        with pytest.raises(CorruptFile, match="is incompatible with the table's type int"):
            tamis.open(root).scan(where).plan()
    assert tamis.open(root).scan("y = 1").to_arrow().num_rows == 1
    assert tamis.open(root, merge_schema=True).scan("x > 3000000000").count() == 1


def test_T11_bounds_of_files_with_narrower_types_are_those_of_the_table(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    pq.write_table(pa.table({"x": pa.array([2**40], pa.int64())}), root / "0.parquet")
    pq.write_table(pa.table({"x": pa.array([7, None], pa.int8())}), root / "1.parquet")
    pq.write_table(pa.table({"y": pa.array([7], pa.int8())}), root / "2.parquet")
    tamis.index.build(root, bloom=["x"])
    table = tamis.open(root)
    assert [table.scan(where).plan("files").num_files for where in ("x = 7", "x IS NULL", "x = 8", "x > 100")] == [
        1,
        2,
        0,
        1,
    ]
    assert table.scan("x IS NULL").count() == 2


def test_a_column_that_the_table_has_in_another_type_today_is_not_answered(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    for number in range(3):
        rows = pa.table({"id": pa.array([number], pa.int32()), "name": [f"n{number}"]})
        pq.write_table(rows, root / f"{number}.parquet")
    tamis.index.build(root)
    pq.write_table(pa.table({"id": pa.array([2**40], pa.int64()), "name": ["a"]}), root / "9.parquet")
    table = tamis.open(root, merge_schema=True)
    assert table.schema.field("id").type == pa.int64()
    assert table.scan("id > 100").count() == 1
    assert table.scan("id > 100").plan("files").num_files == 4
    assert table.scan("name = 'zzz'").plan("files").num_files == 1


@pytest.mark.parametrize("length", [10, 64, 65, 500])
def test_S1_bounds_of_long_texts_are_truncated_and_the_texts_still_found(tmp_path: Path, length: int) -> None:
    root = tmp_path / "t"
    root.mkdir()
    texts = ["a" * length, "a" * (length - 1) + "b", "\U0010ffff" * length, "b"]
    for number, text in enumerate(texts):
        rows = pa.table({"s": [text], "b": pa.array([text.encode()], pa.binary())})
        pq.write_table(rows, root / f"{number}.parquet")
    tamis.index.build(root)
    part = pq.read_table(next(get_index_folder(root).glob("part-*")))
    assert max(map(len, part["lower:s"].to_pylist())) <= 64
    table = tamis.open(root)
    for text in texts:
        assert table.scan(tamis.col("s") == text).count() == 1
        assert table.scan(tamis.col("b") == text.encode()).count() == 1
        assert table.scan(tamis.col("s") >= text).count() == sum(other >= text for other in texts)
    assert table.scan("s < 'a'").plan("files").num_files == 0


def test_every_type_with_an_order_can_be_indexed_and_filtered(tmp_path: Path) -> None:
    root = tmp_path / "t"
    root.mkdir()
    timestamp = datetime.datetime(2024, 3, 1, 12, tzinfo=datetime.UTC)
    values = {
        pa.bool_(): True,
        pa.uint64(): 2**63 + 1,
        pa.float16(): 1.5,
        pa.float32(): 1.5,
        pa.decimal128(20, 3): "1.500",
        pa.decimal256(50, 3): "1.500",
        pa.date32(): timestamp.date(),
        pa.timestamp("s"): timestamp.replace(tzinfo=None),
        pa.timestamp("ns", "UTC"): timestamp,
        pa.time32("s"): timestamp.time(),
        pa.time64("ns"): timestamp.time(),
        pa.binary(3): b"abc",
        pa.large_string(): "abc",
        pa.duration("us"): datetime.timedelta(seconds=3),
    }
    arrays = {}
    for number, (data_type, value) in enumerate(values.items()):
        wide = pa.array([value]).cast(data_type) if isinstance(value, str) else pa.array([value], data_type)
        arrays[f"c{number}"] = wide
    pq.write_table(pa.table(arrays), root / "0.parquet")
    pq.write_table(pa.table({name: array.slice(0, 0) for name, array in arrays.items()}), root / "1.parquet")
    pq.write_table(pa.table({name: pa.nulls(2, array.type) for name, array in arrays.items()}), root / "2.parquet")
    tamis.index.build(root, bloom=[f"c{number}" for number in range(1, len(values))])
    table = tamis.open(root)
    for name, array in arrays.items():
        column = tamis.col(name)
        assert table.scan(column.is_null()).count() == 2
        assert table.scan(column.is_not_null()).plan("files").num_files == 1, name
        if not pa.types.is_duration(array.type):
            assert table.scan(column == array[0].as_py()).count() == 1, name
            assert table.scan(column == array[0].as_py()).plan("files").num_files == 1, name


def test_a_table_that_is_moved_keeps_its_index(tmp_path: Path) -> None:
    root = write_files(tmp_path / "before", range(4))
    tamis.index.build(root)
    moved = root.rename(tmp_path / "after")
    get_index_folder(root).parent.rename(get_index_folder(moved).parent)
    assert tamis.open(moved).scan("id = 5").plan("files").num_files == 1


def test_an_index_elsewhere_is_used_where_it_is_named(tmp_path: Path) -> None:
    root, location = write_files(tmp_path / "t", range(4)), tmp_path / "elsewhere" / "orders"
    result = tamis.index.build(root, location=location)
    assert result.location == str(location)
    assert not (tmp_path / "_tamis").exists()
    assert tamis.open(root, index=location).scan("id = 5").plan("files").num_files == 1
    assert tamis.open(root).scan("id = 5").plan("files").num_files == 4
    assert tamis.index.status(root, location=location).is_complete
    with pytest.raises(tamis.TamisError, match="no index at"):
        tamis.open(root, index=tmp_path / "nowhere")
    with pytest.raises(tamis.TamisError, match="index must be the location of an index"):
        tamis.open(root, index=5)  # type: ignore[arg-type]
    assert tamis.index.drop(root, location=location)
    assert not tamis.index.status(root, location=location).exists


def test_opening_a_table_without_an_index_logs_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    root = write_files(tmp_path / "t", range(2))
    with caplog.at_level(logging.INFO, "tamis"):
        assert tamis.open(root).scan("id = 5").count() == 1
    assert caplog.records == []


def test_page_indexes_have_statistics_that_footers_lack(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(6), write_page_index=True, max_rows_per_page=3)
    for path in list_data_files(root):
        remove_statistics(path)
        assert pq.ParquetFile(path).metadata.row_group(0).column(0).statistics is None
    assert pq.read_table(root).num_rows == 60
    tamis.index.build(root)
    table = tamis.open(root)
    for where, files in (("id = 23", 1), ("id BETWEEN 15 AND 24", 2), ("id < 0", 0), ("name = 'zzz'", 0)):
        assert table.scan(where).plan("files").num_files == files, where
        assert table.scan(where).to_arrow().equals(tamis.open(root, index=False).scan(where).to_arrow())
    make_unreadable(list_data_files(root)[:1])
    assert table.scan("id IS NULL").plan("files").num_files == 0


def test_a_damaged_page_index_is_ignored(tmp_path: Path) -> None:
    root = write_files(tmp_path / "t", range(2), write_page_index=True)
    for path in list_data_files(root):
        remove_statistics(path)
        data = bytearray(path.read_bytes())
        file = ParquetFile.load(open_storage(path), str(path), len(data), None)
        for group in range(3):
            start, length = file.chunk(group, 0).column_index or (0, 0)
            assert length
            data[start : start + length] = bytes(length)
        path.write_bytes(data)
    tamis.index.build(root)
    assert tamis.open(root).scan("id = 3").plan("files").num_files == 2
    assert tamis.open(root).scan("name = 'zzz'").plan("files").num_files == 0
