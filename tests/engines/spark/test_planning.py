"""Plans made in Spark's executors equal local plans, including reports (O8)."""

from __future__ import annotations

import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.delta.cases import draw_delta_case
from builders.delta.log import DeltaLog, remove
from builders.delta.tables import data_file
from builders.engines.worker_engine import assert_same_plans, make_fresh_plan
from builders.hive.cases import PARTITIONING, draw_hive_case
from builders.hive.tables import write_hive_table
from builders.values.choices import Choices
from tamis.errors import InvalidArgument
from tamis.formats.delta.planning.file_batches import FILE_BATCH_CACHE
from tamis.tuning import Tuning

SEVERAL = settings(max_examples=max(1, settings().max_examples // 30), deadline=None)
"""Each example takes several jobs."""


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Twelve files in a checkpoint of three parts; a later commit removes one, deletes rows of one and adds one."""
    log = DeltaLog(
        tmp_path_factory.mktemp("spark") / "orders",
        {"id": "long", "amount": "decimal(10,2)", "day": "date"},
        partition_columns=["day"],
        features=["deletionVectors"],
    )

    def add_file(number: int, **more: Any) -> dict[str, Any]:
        day = f"2024-03-0{number % 3 + 1}"
        ids = range(number * 10, number * 10 + 10)
        amounts = pa.array([Decimal(each) for each in ids], pa.decimal128(10, 2))
        rows = pa.table({"id": pa.array(ids, pa.int64()), "amount": amounts})
        return data_file(log, f"day={day}/{number}.parquet", rows, {"day": day}, **more)

    log.commit(*(add_file(number) for number in range(12)))
    log.checkpoint(parts=3)
    gone, changed = (add_file(number)["add"]["path"] for number in (4, 5))
    log.commit(remove(gone), remove(changed), add_file(5, deleted=[0, 3]), add_file(12))
    return log.table


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Nine directories with a file each."""
    parts = [
        ({"region": region, "day": str(day)}, pa.table({"id": list(range(day * 10, day * 10 + 10))}))
        for region in ("eu", "us", None)
        for day in range(3)
    ]
    return write_hive_table(tmp_path_factory.mktemp("spark") / "events", parts, row_group_size=4)


def test_O8_a_plan_of_a_delta_table_on_spark_is_the_local_one(any_spark: Any, orders: Path) -> None:
    on_spark = tamis.connect(spark=any_spark, planning="spark").open(orders)
    local = tamis.open(orders)
    for where, depth in (
        (None, "files"),
        ("amount < 30.5 AND day > '2024-03-01'", "files"),
        ("id IN (3, 57, 118) OR amount IS NULL", "pages"),
    ):
        assert_same_plans(make_fresh_plan(on_spark, where, depth), make_fresh_plan(local, where, depth))
    scan = on_spark.scan("id IN (3, 50, 57, 118)")
    assert sorted(scan.to_arrow()["id"].to_pylist()) == [3, 57, 118]
    assert scan.report.to_dict()["levels"][0]["total"] == 12


def test_O8_a_plan_of_a_hive_table_on_spark_is_the_local_one(any_spark: Any, events: Path) -> None:
    tuning = Tuning(files_per_slice=2, directories_per_call=2)
    session = tamis.connect(spark=any_spark, planning="spark", tuning=tuning)
    on_spark = session.open(events, partitioning=PARTITIONING)
    local = tamis.open(events, partitioning=PARTITIONING, tuning=tuning)
    for where in (None, "region = 'eu' AND id > 25"):
        assert_same_plans(make_fresh_plan(on_spark, where, "pages"), make_fresh_plan(local, where, "pages"))
    assert make_fresh_plan(on_spark, "region = 'eu' AND id > 25", "pages").num_files == 1


@SEVERAL
@given(data=st.data())
def test_O8_plans_of_random_tables_are_the_local_ones(spark: Any, data: st.DataObject) -> None:
    choices = Choices(data.draw)
    session = tamis.connect(spark=spark, planning="spark")
    with tempfile.TemporaryDirectory() as folder:
        delta, hive = Path(folder) / "delta", Path(folder) / "hive"
        delta.mkdir()
        said = draw_delta_case(choices, delta, predicates=1).predicates
        on_spark, local = session.open(delta), tamis.open(delta)
        assert_same_plans(
            make_fresh_plan(on_spark, said[0].expr, "pages"), make_fresh_plan(local, said[0].expr, "pages")
        )
        said = draw_hive_case(choices, hive, predicates=1)
        on_spark, local = (each(hive, partitioning=PARTITIONING) for each in (session.open, tamis.open))
        assert_same_plans(
            make_fresh_plan(on_spark, said[0].expr, "pages"), make_fresh_plan(local, said[0].expr, "pages")
        )


def count_jobs(spark: Any, what: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(f"tamis: {what}"))


def test_auto_plans_on_spark_from_its_thresholds_on(spark: Any, orders: Path) -> None:
    what = "read 3 checkpoint parts of orders@1"
    table = tamis.connect(spark=spark).open(orders)
    before = count_jobs(spark, what)
    small = make_fresh_plan(table, "id = 57", "files")
    assert count_jobs(spark, what) == before
    tuning = Tuning(spark_planning_min_bytes=1, spark_planning_min_parts=3)
    table = tamis.connect(spark=spark, tuning=tuning).open(orders)
    large = make_fresh_plan(table, "id = 57", "files")
    assert count_jobs(spark, what) > before
    assert_same_plans(small, large)
    # Cached files are not read again.
    FILE_BATCH_CACHE.clear()
    tamis.open(orders).scan().plan("files")
    before = count_jobs(spark, what)
    table.scan("id = 58").plan("files")
    assert count_jobs(spark, what) == before
    make_fresh_plan(tamis.connect(spark=spark, planning="local", tuning=tuning).open(orders), "id = 57", "files")
    assert count_jobs(spark, what) == before


def test_a_file_system_object_cannot_be_sent_to_executors(spark: Any, orders: Path) -> None:
    options = {"storage_options": {"filesystem": pafs.LocalFileSystem()}}
    with pytest.raises(InvalidArgument, match=r"opened with a file system object.*planning='local'"):
        tamis.connect(spark=spark, planning="spark").open(orders, **options).scan().plan("files")
    FILE_BATCH_CACHE.clear()
    tuning = Tuning(spark_planning_min_bytes=1, spark_planning_min_parts=1)
    table = tamis.connect(spark=spark, tuning=tuning).open(orders, **options)
    assert table.scan("id = 57").plan("files").num_files == 1


def test_a_session_shows_where_it_plans(spark: Any, connect_spark: Any) -> None:
    assert repr(tamis.connect(spark=spark)) == "<tamis.Session on spark, planning='auto'>"
    assert repr(tamis.connect(spark=spark, planning="local")) == "<tamis.Session on local, planning='local'>"
    assert repr(tamis.connect(spark=spark).engine) == "<tamis.SparkEngine classic>"
    assert repr(tamis.connect(spark=connect_spark).engine) == "<tamis.SparkEngine Connect>"
