"""The Spark engine: jobs in executors, their names, their failures. Both kinds of sessions, one JVM."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import tamis
from builders.delta.log import DeltaLog, add
from builders.engines import dying_workers
from builders.engines.dying_workers import Dies, DiesOnce, Stumbles, Unknown, WaitsForNews
from tamis.engines.jobs import LocalEngine
from tamis.engines.spark import jobs as spark_engine
from tamis.engines.spark.jobs import SparkEngine
from tamis.errors import CorruptFile, EngineError, MissingDependency, MissingFile
from tamis.formats.hive.tree import _SCHEMA as LISTED
from tamis.formats.hive.tree import FUNCTION as LIST
from tamis.formats.jobs import Item, Job, storage_to_arguments
from tamis.io.counters import IoCounters
from tamis.io.storage import open_storage
from tamis.skipping.handler import ArrowExpressionHandler


@pytest.fixture(autouse=True, scope="module")
def _by_value() -> Iterator[None]:
    cloudpickle.register_pickle_by_value(dying_workers)
    yield
    cloudpickle.unregister_pickle_by_value(dying_workers)


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("folders")
    for number in range(5):
        (root / str(number)).mkdir()
        for file in range(number):
            (root / str(number) / f"{file}.parquet").write_bytes(b"x" * file)
    return root


def make_listing_job(root: Path, what: str = "list 5 directories") -> tuple[Job, list[Item]]:
    """Return a job that lists directories, one for each call."""
    job = Job(LIST, storage_to_arguments(open_storage(root)), LISTED, what, IoCounters())
    return job, [Item.from_json([f"{root}/{number}"], size=number) for number in range(5)]


def test_batches_are_in_the_order_of_items_as_on_the_local_engine(any_spark: Any, folders: Path) -> None:
    engine = SparkEngine(any_spark, tasks=2)
    job, items = make_listing_job(folders)
    local, _ = make_listing_job(folders)
    found, expected = list(engine.run(job, items)), list(LocalEngine().run(local, items))
    assert [number for number, _ in found] == [1, 2, 3, 4]
    assert [number for number, _ in expected] == [1, 2, 3, 4]
    for (_, batch), (_, other) in zip(found, expected, strict=True):
        assert batch.equals(other)
    assert (job.counters.listing_calls, job.counters.requests) == (5, 5)
    assert local.counters.counts() == job.counters.counts()
    assert engine.last_sizes["items"] == 5
    assert engine.last_sizes["listing_calls"] == 5
    assert engine.last_sizes["bytes_sent"] > 0
    assert list(engine.run(job, [])) == []


def test_a_job_is_named_after_what_it_does(spark: Any, folders: Path) -> None:
    spark.sparkContext.setJobGroup("mine", "my own work")
    try:
        tracker = spark.sparkContext.statusTracker()
        assert list(tracker.getJobIdsForGroup("tamis: list orders@17")) == []
        list(SparkEngine(spark, tasks=4).run(*make_listing_job(folders, "list orders@17")))
        jobs = list(tracker.getJobIdsForGroup("tamis: list orders@17"))
        assert jobs
        # Spark records the end of a job a little later.
        assert {tracker.getJobInfo(job).status for job in jobs} <= {"RUNNING", "SUCCEEDED"}
        stages = [stage for job in jobs for stage in tracker.getJobInfo(job).stageIds]
        # Spark does not merge the tasks.
        assert max(tracker.getStageInfo(stage).numTasks for stage in stages if tracker.getStageInfo(stage)) == 4
        # The job group of the caller is restored.
        assert spark.sparkContext.getLocalProperty("spark.jobGroup.id") == "mine"
        assert spark.sparkContext.getLocalProperty("spark.job.description") == "my own work"
    finally:
        for name in ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel"):
            spark.sparkContext.setLocalProperty(name, None)


def test_on_connect_a_job_is_tagged_for_as_long_as_it_runs(
    connect_spark: Any, folders: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tags = []
    make = connect_spark.createDataFrame
    monkeypatch.setattr(
        connect_spark, "createDataFrame", lambda *given: tags.extend(connect_spark.getTags()) or make(*given)
    )
    connect_spark.addTag("mine")
    try:
        list(SparkEngine(connect_spark, tasks=2).run(*make_listing_job(folders, "list a, b")))
        assert sorted(tags) == ["mine", "tamis: list a; b"]
        assert connect_spark.getTags() == {"mine"}
    finally:
        connect_spark.clearTags()


def test_an_error_of_ours_arrives_as_it_was_raised(any_spark: Any, folders: Path) -> None:
    job, items = make_listing_job(folders)
    items[3] = Item.from_json([f"{folders}/nowhere"])
    with pytest.raises(MissingFile) as local:
        list(LocalEngine().run(job, items))
    with pytest.raises(MissingFile) as caught:
        list(SparkEngine(any_spark).run(job, items))
    assert str(caught.value) == str(local.value)
    assert caught.value.__cause__ is None


def test_a_corrupt_part_in_an_executor_is_an_error_of_ours_on_the_driver(any_spark: Any, tmp_path: Path) -> None:
    log = DeltaLog(tmp_path / "orders", {"id": "long"})
    log.commit(*(add(f"{number}.parquet") for number in range(4)))
    part = log.checkpoint(parts=2)[1]
    log.commit()
    table = tamis.connect(spark=any_spark, planning="spark").open(log.table)
    # The footer is valid, so the file opens; the pages are not valid.
    content = bytearray(part.read_bytes())
    content[4:600] = bytes(596)
    part.write_bytes(content)
    with pytest.raises(CorruptFile) as caught:
        table.scan().plan("files")
    assert part.name in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_report_says_that_executors_do_not_have_a_handler(spark: Any, tmp_path: Path) -> None:
    class Own(ArrowExpressionHandler):
        """A handler of one's own."""

    pq.write_table(pa.table({"id": range(9)}), tmp_path / "a.parquet")
    for handler, expected in ((Own(), True), (None, False)):
        table = tamis.connect(spark=spark, planning="spark", handler=handler).open(tmp_path)
        assert ("Arrow's kernels: Own stays in this process" in str(table.scan("id > 5").plan().report)) is expected
    report = tamis.open(tmp_path, handler=Own()).scan("id > 5").plan().report
    assert "stays in this process" not in str(report)


def test_E4_a_worker_that_dies_in_the_middle_of_a_job_loses_and_repeats_nothing(
    spark: Any, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grave = tmp_path / "grave"
    make = spark_engine.JobRunner
    monkeypatch.setattr(spark_engine, "JobRunner", lambda *given: DiesOnce(make(*given), grave))
    job, items = make_listing_job(folders)
    found = list(SparkEngine(spark, tasks=2).run(job, items))
    assert grave.exists()
    assert [number for number, _ in found] == [1, 2, 3, 4]
    for (_, batch), (_, other) in zip(found, LocalEngine().run(job, items), strict=True):
        assert batch.equals(other)


def test_progress_is_reported_while_tasks_run(
    any_spark: Any, folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, heard, shares = spark_engine.JobRunner, tmp_path / "heard", []
    monkeypatch.setattr(spark_engine, "JobRunner", lambda *given: WaitsForNews(make(*given), tmp_path / "first", heard))

    def record_share(share: float) -> None:
        shares.append(share)
        if share == 0.5:
            heard.touch()

    job, items = make_listing_job(folders)
    list(SparkEngine(any_spark, tasks=2).run(replace(job, progress=record_share), items))
    assert 0.5 in shares
    assert shares == sorted(shares)


@pytest.mark.parametrize(
    ("runner", "error", "message"),
    [
        (Unknown("tamis.engines.of_tomorrow"), MissingDependency, "tamis.spark.ship(spark)"),
        (Unknown("no_such_package"), MissingDependency, "the package 'no_such_package' is not installed on Spark's"),
        (Dies(), EngineError, "its Python workers died repeatedly"),
        (Stumbles(), EngineError, "'tamis: list 5 directories' failed: ZeroDivisionError: "),
    ],
    ids=["without tamis", "without a package", "a death", "a bug"],
)
def test_a_failure_of_workers_is_reported_in_one_line(
    any_spark: Any, folders: Path, runner: Any, error: type[Exception], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_engine, "JobRunner", lambda *given: runner)
    with pytest.raises(error) as caught:
        list(SparkEngine(any_spark, tasks=1).run(*make_listing_job(folders)))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.fixture
def own_session(spark: Any, connect_spark: Any) -> Any:
    """A separate session: artifacts stay within it, while classic sessions would share them."""
    port = spark.conf.get("spark.connect.grpc.binding.port")
    return type(connect_spark).builder.remote(f"sc://127.0.0.1:{port}").create()


def test_tamis_can_be_sent_to_the_workers(own_session: Any) -> None:
    name = tamis.spark.ship(own_session)
    assert name == tamis.spark.ship(own_session)

    def report_paths(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import sys

        # A worker may have imported the installed package for an earlier job, so its path proves nothing.
        for _ in batches:
            yield pa.record_batch({"paths": [" ".join(sys.path)]})

    found = own_session.range(2).mapInArrow(report_paths, "paths string").toArrow()["paths"].to_pylist()
    assert all(name in paths for paths in found)
