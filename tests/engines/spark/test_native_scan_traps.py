"""Cases in which a native scan would return other rows than a local scan: it must not be used there."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.parquet.footers import GROUP_ROWS, add_to_numbers
from tamis.errors import CorruptFile, InvalidArgument, MissingFile, TamisError

NAN = float("nan")


def assert_same(spark: Any, path: Path, where: str | None, columns: list[str] | None = None, **options: Any) -> None:
    """Check that Spark, with native scans where possible, returns the rows of a local scan."""
    scan = tamis.open(path, **options).scan(where, columns)
    expected = sorted(map(repr, scan.to_arrow().to_pylist()))
    found = scan.to_spark(spark, reader="spark")
    assert sorted(map(repr, found.toArrow().to_pylist())) == expected, where


@contextmanager
def set_conf(spark: Any, name: str, value: str) -> Iterator[None]:
    before = spark.conf.get(name)
    spark.conf.set(name, value)
    try:
        yield
    finally:
        spark.conf.set(name, before)


@pytest.mark.parametrize("kind", [pa.float64(), pa.float32()])
def test_N1_NaN_is_not_in_bounds_and_not_lost(spark: Any, tmp_path: Path, kind: pa.DataType) -> None:
    pq.write_table(pa.table({"x": pa.array([1, 2, NAN], kind)}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": pa.array([5, 5, NAN], kind)}), tmp_path / "b.parquet")
    for where in ("x > 5", "x <> 5", "x = double('NaN')"):
        assert tamis.open(tmp_path).scan(where).count() > 0
        assert_same(spark, tmp_path, where)


def test_N2_zeros_of_either_sign_are_equal(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"x": [-0.0, -0.0]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"x": [0.0, 0.0, 1.0]}), tmp_path / "b.parquet")
    for where in ("x = 0.0D", "x <= -0.0D", "x IN (0.0D, 3.0D)"):
        assert tamis.open(tmp_path).scan(where).count() >= 4
        assert_same(spark, tmp_path, where)


def test_T_files_of_other_types_are_not_misread(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": pa.array([1, 2], pa.int8())}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"id": pa.array([300], pa.int32())}), tmp_path / "b.parquet")
    with pytest.raises(CorruptFile):
        tamis.open(tmp_path).scan().to_arrow()
    with pytest.raises(PySparkException, match=r"is an int, which is incompatible with the table's type tinyint"):
        tamis.open(tmp_path).scan().to_spark(spark, reader="spark").collect()
    merged = tmp_path / "merged"
    merged.mkdir()
    pq.write_table(pa.table({"x": [1, 2]}), merged / "a.parquet")
    pq.write_table(pa.table({"x": [0.5], "y": [1]}), merged / "b.parquet")
    assert_same(spark, merged, None, merge_schema=True)


def test_columns_that_differ_by_case(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    pq.write_table(pa.table({"ID": [3, 4]}), tmp_path / "b.parquet")
    assert_same(spark, tmp_path, "id > 1")
    with set_conf(spark, "spark.sql.caseSensitive", "true"):
        assert_same(spark, tmp_path, "id > 1")


def test_unreadable_files_are_never_skipped(spark: Any, tmp_path: Path) -> None:
    for number in range(2):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    for name in ("spark.sql.files.ignoreMissingFiles", "spark.sql.files.ignoreCorruptFiles"):
        with set_conf(spark, name, "true"):
            frame = tamis.open(tmp_path).scan().to_spark(spark)
            content = (tmp_path / "1.parquet").read_bytes()
            if name.endswith("MissingFiles"):
                (tmp_path / "1.parquet").unlink()
            else:
                (tmp_path / "1.parquet").write_bytes(bytes(len(content)))
            try:
                with pytest.raises(Exception, match=r"1\.parquet"):
                    frame.collect()
            finally:
                (tmp_path / "1.parquet").write_bytes(content)


def test_E2_a_missing_file_of_a_log_is_named_with_its_version(spark: Any, tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"})
    log.commit(data_file(log, "f.parquet", pa.table({"id": [1, 2]})))
    table = tamis.open(tmp_path)
    (tmp_path / "f.parquet").unlink()
    with pytest.raises(MissingFile, match=r"^the file '.*f.parquet' is gone, and version 0 of .* needs it") as caught:
        table.scan().to_spark(spark, reader="spark")
    assert "\n" not in str(caught.value)


def test_a_struct_has_only_the_requested_fields(spark: Any, tmp_path: Path) -> None:
    rows = [{"s": {"a": 1, "b": 2, "c": {"d": 1, "e": 2}}}, {"s": None}, {"s": {"a": 3, "b": 4, "c": None}}]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    for where, columns in (
        ("s.b > 1", ["s.a"]),
        ("s.c.e = 2 OR s.a = 3", ["s.a", "s.c.d"]),
        ("s.b IS NULL", ["s.c.d"]),
    ):
        assert_same(spark, tmp_path, where, columns)


def test_internal_column_names_do_not_collide(spark: Any, tmp_path: Path) -> None:
    for part in ("p=1", "p=2"):
        (tmp_path / part).mkdir()
        pq.write_table(pa.table({"tamis file": [1], "tamis value 0": [2]}), tmp_path / part / "a.parquet")
    assert_same(spark, tmp_path, "p >= 1")


def test_a_limit_beyond_32_bits_is_ignored(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "a.parquet")
    found = tamis.open(tmp_path).scan(limit=3_000_000_000).to_spark(spark)
    assert found.count() == 2
    assert "Limit" not in found._jdf.queryExecution().toString()


@pytest.fixture
def checkpointed(tmp_path: Path) -> Path:
    """A Delta table without commits after its checkpoint."""
    deltalake = pytest.importorskip("deltalake")
    path = tmp_path / "t"
    for number in range(3):
        deltalake.write_deltalake(path, pa.table({"id": [number]}), mode="append")
    deltalake.DeltaTable(path).create_checkpoint()
    return path


def test_files_of_a_checkpoint_without_later_commits(spark: Any, checkpointed: Path) -> None:
    with tamis.open(checkpointed).files_dataframe(spark) as files:
        assert files.files_for_scan("id = 1").files.num_rows == 1
        assert files.dataframe.count() == 3
    with pytest.raises(InvalidArgument, match="create them again"):
        files.files_for_scan("id = 1")
    with pytest.raises(InvalidArgument, match=r"columns must be a list of names, as in \['id'\]"):
        tamis.open(checkpointed).files_dataframe(spark, columns="id")


def test_files_of_an_empty_table(spark: Any, tmp_path: Path) -> None:
    columns = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    DeltaLog(tmp_path, columns).commit()
    with tamis.open(tmp_path).files_dataframe(spark) as files:
        assert files.files_for_scan("id = 1").files.num_rows == 0


@pytest.mark.interop
def test_E2_files_that_cannot_be_read_again_are_an_error(spark: Any, checkpointed: Path) -> None:
    with tamis.open(checkpointed).files_dataframe(spark) as files:
        assert files.files_for_scan().files.num_rows == 3
        spark.catalog.clearCache()
        (checkpoint,) = (checkpointed / "_delta_log").glob("*.checkpoint.parquet")
        shutil.copy(checkpointed / "_delta_log" / "00000000000000000000.json", checkpoint)
        with pytest.raises(TamisError):
            files.files_for_scan()
        with pytest.raises(Exception, match="cannot read the files of"):
            files.dataframe.collect()


def test_files_with_deleted_rows_and_narrow_structs_are_one_table(spark: Any, tmp_path: Path) -> None:
    inner = {"type": "struct", "fields": [
        {"name": name, "type": "long", "nullable": True, "metadata": {}} for name in ("a", "b")
    ]}  # fmt: skip
    log = DeltaLog(
        tmp_path, [{"name": "s", "type": inner, "nullable": True, "metadata": {}}], features=["deletionVectors"]
    )
    rows = pa.table({"s": [{"a": 1, "b": 2}, {"a": 3, "b": 4}]})
    log.commit(data_file(log, "0.parquet", rows, {}), data_file(log, "1.parquet", rows, {}, deleted=[0]))
    assert_same(spark, tmp_path, "s.b > 1", ["s.a"])


@pytest.mark.parametrize("reader", ["auto", "spark", "arrow"])
def test_P11_rows_that_contradict_each_other_are_an_error(spark: Any, tmp_path: Path, reader: str) -> None:
    for number in range(2):
        pq.write_table(pa.table({"id": range(300)}), tmp_path / f"{number}.parquet", row_group_size=100)
    add_to_numbers(tmp_path / "1.parquet", GROUP_ROWS, -100, 0)
    with pytest.raises((CorruptFile, PySparkException), match="has 300 rows for the file"):
        tamis.open(tmp_path).scan().to_spark(spark, reader=reader).collect()


@pytest.mark.parametrize("reader", ["auto", "spark", "arrow"])
def test_P10_the_last_page_is_read_completely(spark: Any, golden: Path, reader: str) -> None:
    path = golden / "parquet" / "nation.dict-malformed.parquet"
    expected = pq.read_table(path)["name"].to_pylist()
    found = tamis.open(path).scan(columns=["name"]).to_spark(spark, reader=reader).toArrow()
    assert sorted(found["name"].to_pylist()) == sorted(expected)
