"""Scans as DataFrames: the rows of `to_arrow`, the schema of the table, and nothing left behind."""

from __future__ import annotations

import tempfile
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from pyspark import cloudpickle
from pyspark.sql.types import LongType, StringType, StructField, StructType

import tamis
from builders.delta.cases import draw_delta_case
from builders.delta.deltalake_cases import draw_deltalake_case
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.engines import dying_workers
from builders.hive.tables import write_hive_table
from builders.values.choices import SeededChoices
from tamis import PartitionFilter
from tamis.engines.spark import engine as to_spark
from tamis.engines.spark import worker as task_runner
from tamis.engines.spark.spark_types import convert_rows, to_row_schema
from tamis.engines.spark.worker import SMALLEST, make_worker_function, pack_tasks
from tamis.errors import InvalidArgument, MissingFile, UnsupportedFeature
from tamis.formats.source import FileListing
from tamis.scan.planning.plan import PlannedFiles
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.scan import get_planner
from tamis.tuning import DEFAULT_TUNING, Tuning


def format_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def read_expected_rows(scan: tamis.Scan) -> pa.Table:
    """Return the rows of a scan, in the types of Spark."""
    schema = to_row_schema(scan.schema)
    return pa.Table.from_batches([convert_rows(batch, schema) for batch in scan.to_batches()], schema)


def check(spark: Any, scan: tamis.Scan, *context: object, reader: str = "auto") -> Any:
    """Return the DataFrame of a scan, after checking that it has the rows of the scan."""
    frame = scan.to_spark(spark, reader=reader)
    expected = read_expected_rows(scan)
    found = frame.toArrow()
    assert found.column_names == expected.column_names, context
    assert format_rows(found.cast(expected.schema)) == format_rows(expected), (reader, *context)
    return frame


def explain_plan(frame: Any) -> str:
    """Return the plan of Spark."""
    return str(frame._explain_string(extended=True)) if hasattr(frame, "_explain_string") else _print_plan(frame)


def _print_plan(frame: Any) -> str:
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain(extended=True)
    return printed.getvalue()


def uses_tasks(frame: Any) -> bool:
    return "MapInArrow" in explain_plan(frame)


def uses_sparks_reader(frame: Any) -> bool:
    return "FileScan parquet" in explain_plan(frame)


def compare_delta_tables(spark: Any, seed: int, predicates: int) -> None:
    """Compare random tables with deletion vectors, mapped and widened columns, under random filters."""
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(SeededChoices(seed), Path(folder), predicates)
        table = tamis.open(folder)
        check(spark, table.scan(), seed)
        for said in case.predicates:
            check(spark, table.scan(said.expr), seed, said.sql)


def compare_deltalake_tables(spark: Any, seed: int, predicates: int) -> None:
    """Compare random tables of another writer; most of them are read by native scans."""
    with tempfile.TemporaryDirectory() as folder:
        case = draw_deltalake_case(SeededChoices(seed), Path(folder), predicates)
        table = tamis.open(folder)
        check(spark, table.scan(), seed)
        for said in case.predicates:
            check(spark, table.scan(said.expr), seed, said.sql)


@pytest.mark.parametrize("seed", [1, 2])
def test_O8_D6_D16_D19_random_delta_tables_have_the_rows_of_a_local_scan(connect_spark: Any, seed: int) -> None:
    compare_delta_tables(connect_spark, seed, predicates=2)


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_O8_random_tables_of_deltalake_have_the_rows_of_a_local_scan(connect_spark: Any, seed: int) -> None:
    compare_deltalake_tables(connect_spark, seed, predicates=3)


def make_every_type(count: int) -> pa.Table:
    """Return rows of all types that Tamis and Spark support."""
    numbers = range(count)
    inner = pa.struct([("x", pa.int32()), ("t", pa.timestamp("us", "UTC"))])
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "small": pa.array([n % 100 for n in numbers], pa.int8()),
            "unsigned": pa.array([2**64 - 1 - n for n in numbers], pa.uint64()),
            "half": pa.array([n / 2 for n in numbers], pa.float32()),
            "amount": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(10, 2)),
            "text": pa.array([None if n % 7 == 0 else f"t{n:03d}" for n in numbers]),
            "bytes": pa.array([bytes([n % 256]) for n in numbers], pa.binary()),
            "day": pa.array([date(1969, 12, 25).toordinal() - 719163 + n for n in numbers], pa.int32()).cast(
                pa.date32()
            ),
            "created_at": pa.array([n * 3_600_000_000 - 1 for n in numbers], pa.timestamp("us", "UTC")),
            "clock": pa.array([n * 3_600_000_000 - 1 for n in numbers], pa.timestamp("us")),
            "flag": pa.array([n % 3 == 0 for n in numbers]),
            "list": pa.array([[n, None] if n % 2 else None for n in numbers], pa.list_(pa.int64())),
            "map": pa.array([[("k", n)] for n in numbers], pa.map_(pa.string(), pa.int64())),
            "nest": pa.array([None if n % 5 == 0 else {"x": n, "t": n} for n in numbers], inner),
        }
    )


WHERES = (
    "id < 20 AND region = 'eu'",
    "created_at >= TIMESTAMP '1970-01-01 05:00:00Z' AND date(created_at) = DATE '1970-01-01'",
    "clock < TIMESTAMP_NTZ '1970-01-01 03:00:00' OR region = 'us' AND nest.x IN (55, 57, 61)",
    "text LIKE 't01%' AND NOT flag",
    "unsigned > 18446744073709551600",
    "amount = 2.5 OR bytes = X'07' OR half <=> 4.5",
    "day IN (DATE '1969-12-31', DATE '1970-01-01')",
    "year(created_at) = 1969 OR hour(created_at) = 3",
    "concat(text, '!') = 't008!'",
)


@pytest.fixture(scope="module")
def hive_table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rows = make_every_type(80)
    parts = [
        ({"region": "eu"}, rows.slice(0, 40)),
        ({"region": "us"}, rows.slice(40, 20)),
        ({"region": None}, rows.slice(60)),
    ]
    return write_hive_table(tmp_path_factory.mktemp("hive") / "a table, 100% é+b", parts, row_group_size=15)


def test_rows_are_the_same_by_both_readers(any_spark: Any, hive_table: Path) -> None:
    table = tamis.open(hive_table)
    is_connect = "connect" in type(any_spark).__module__
    # Classic and Connect sessions differ in how Columns are created; a few cases are enough.
    for where in (None, *WHERES) if is_connect else (WHERES[2], WHERES[7]):
        frame = check(any_spark, table.scan(where), where)
        # Functions that only the embedded engine supports are not pushed to Spark.
        assert uses_sparks_reader(frame) == ("concat" not in (where or "")), where
    check(any_spark, table.scan(WHERES[1], ["region", "nest.t", "id"]), reader="arrow")
    check(any_spark, table.scan(WHERES[0], ["text"], limit=1000))
    assert table.scan(limit=7).to_spark(any_spark).count() == 7
    assert check(any_spark, table.scan("id > 1000")).schema.names == table.schema.names


def test_T7_the_session_time_zone_has_no_effect(connect_spark: Any, hive_table: Path) -> None:
    table = tamis.open(hive_table)
    before = connect_spark.conf.get("spark.sql.session.timeZone")
    connect_spark.conf.set("spark.sql.session.timeZone", "America/Los_Angeles")
    try:
        for where in (*WHERES[1:3], WHERES[7]):
            scan = table.scan(where, ["id"])
            found = scan.to_spark(connect_spark).toArrow()
            assert format_rows(found) == format_rows(scan.to_arrow())
    finally:
        connect_spark.conf.set("spark.sql.session.timeZone", before)


def test_the_filter_reaches_sparks_reader(connect_spark: Any, hive_table: Path) -> None:
    where = "id >= 30 AND created_at > TIMESTAMP '1970-01-01 05:00:00Z' AND region <> 'us'"
    text = explain_plan(tamis.open(hive_table).scan(where, ["text"]).to_spark(connect_spark))
    (pushed,) = (line for line in text.splitlines() if "PushedFilters" in line)
    assert "GreaterThanOrEqual(id,30)" in pushed
    assert "GreaterThan(created_at,1970-" in pushed  # Spark cuts long lists
    # Partition values decide their conjunct, so it is not evaluated for rows.
    assert "region#" not in text


def write_mixed_table(folder: Path) -> Path:
    """Write a Delta table with deleted rows in one file."""
    rows = pa.table({"id": pa.array(range(10), pa.int64()), "name": [f"n{n}" for n in range(10)]})
    fields = [
        {"name": "id", "type": "long", "nullable": False, "metadata": {}},
        {"name": "p", "type": "string", "nullable": True, "metadata": {}},
        {"name": "name", "type": "string", "nullable": True, "metadata": {}},
    ]
    log = DeltaLog(folder, fields, partition_columns=["p"], features=["deletionVectors"])
    whole = data_file(log, "p=a/whole.parquet", rows, {"p": "a"})
    partial = data_file(log, "p=b/partial.parquet", rows, {"p": "b"}, deleted=[0, 3, 9])
    log.commit(whole, partial)
    return folder


def test_D16_files_with_and_without_deleted_rows_are_one_frame(any_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_mixed_table(tmp_path))
    for where, columns in ((None, None), ("id > 2 AND p = 'b' OR id = 1", ["p", "id"]), ("id = 3", ["name"])):
        frame = check(any_spark, table.scan(where, columns), where)
        assert not uses_tasks(frame)
        assert uses_sparks_reader(frame)
    assert frame.schema.names == ["name"]
    # Files older than a column have NULL there, regardless of the current schema.
    expected = StructType(
        [StructField("id", LongType()), StructField("p", StringType()), StructField("name", StringType())]
    )
    for where in (None, "p = 'a'", "p = 'b'", "id > 100"):
        assert table.scan(where).to_spark(any_spark).schema == expected


def test_columns_are_nullable_and_filters_after_to_spark_reach_the_files(spark: Any, tmp_path: Path) -> None:
    element = pa.field("element", pa.int32(), nullable=False)
    schema = pa.schema(
        [
            pa.field("id", pa.int64(), nullable=False),
            pa.field("list", pa.list_(element), nullable=False),
            pa.field("inner", pa.struct([pa.field("x", pa.int8(), nullable=False), pa.field("y", pa.date32())])),
            pa.field("map", pa.map_(pa.string(), pa.field("value", pa.float64(), nullable=False))),
        ]
    )
    row = {"id": 5, "list": [1, 2], "inner": {"x": 1, "y": None}, "map": [("a", 1.5)]}
    pq.write_table(pa.Table.from_pylist([row], schema), tmp_path / "nested.parquet")
    frame = check(spark, tamis.open(tmp_path / "nested.parquet").scan(), reader="spark")
    assert not uses_tasks(frame)
    assert all(field.nullable for field in frame.schema)
    text = explain_plan(frame.where("id = 5").select("inner.x"))
    assert "EqualTo(id,5)" in text
    assert "ReadSchema: struct<id:bigint,inner:struct<x:tinyint>>" in text


def test_a_null_in_a_required_column_is_null(any_spark: Any, tmp_path: Path) -> None:
    schema = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    pq.write_table(pa.table([[1]], schema=schema), tmp_path / "0.parquet")
    pq.write_table(pa.table({"id": pa.array([None], pa.int64())}), tmp_path / "1.parquet")
    for reader in ("spark", "arrow"):
        frame = tamis.open(tmp_path).scan().to_spark(any_spark, reader=reader)
        assert sorted(frame.collect(), key=repr) == [(1,), (None,)]


def test_a_selective_filter_reads_pages(connect_spark: Any, tmp_path: Path) -> None:
    rows = pa.table({"id": pa.array(range(400_000), pa.int64()), "text": [f"text {n % 1000}" for n in range(400_000)]})
    pq.write_table(
        rows, tmp_path / "many.parquet", row_group_size=200_000, write_page_index=True, use_dictionary=["text"]
    )
    where = "id BETWEEN 250000 AND 250009"
    assert not uses_tasks(check(connect_spark, tamis.open(tmp_path / "many.parquet").scan(where)))
    tuning = Tuning(spark_page_min_bytes=100_000, spark_page_max_share=0.2)
    table = tamis.open(tmp_path / "many.parquet", tuning=tuning)
    assert uses_tasks(check(connect_spark, table.scan(where)))
    assert not uses_tasks(check(connect_spark, table.scan(where), reader="spark"))
    assert not uses_tasks(table.scan("id > 1000").to_spark(connect_spark))


@pytest.mark.parametrize(("where", "is_narrow"), [("id % 1000 = 5", False), ("id IN (5, 500, 999999)", True)])
def test_page_indexes_of_many_files_are_read_if_a_sample_is_worth_it(
    tmp_path: Path, where: str, is_narrow: bool
) -> None:
    for number in range(20):
        # Every file has small and large numbers, but each page has a narrow range.
        ids = pa.array(range(number, 1_000_000, 20), pa.int64())
        pq.write_table(
            pa.table({"id": ids}), tmp_path / f"{number}.parquet", write_page_index=True, use_dictionary=False,
            compression="none", data_page_size=4096, write_batch_size=500,
        )  # fmt: skip
    scan = tamis.open(tmp_path, tuning=Tuning(spark_page_min_bytes=10_000, spark_page_max_share=0.2)).scan(where)
    planned: list[tuple[int, bool]] = []

    def plan(listing: FileListing, *, to_pages: bool = True) -> PlannedFiles:
        planned.append((listing.files.num_rows, to_pages))
        return get_planner(scan).plan_listing(listing, to_pages=to_pages)

    wanted = to_spark.ScanRequest(
        get_planner(scan).source, get_planner(scan).reader, get_planner(scan).listing, None, plan
    )
    left, in_pages = to_spark._plan_selective(wanted, get_planner(scan).listing)
    assert (in_pages is not None) == is_narrow
    assert len(left) == 20
    assert planned == [(20, False), (to_spark.SAMPLED, True), *([(20, True)] if is_narrow else [])]


def test_golden_delta_tables_have_the_rows_of_a_local_scan(connect_spark: Any, golden: Path) -> None:
    names = (
        "data-reader-nested-struct", "data-reader-partition-values", "data-reader-primitives", "parquet-all-types",
        "data-reader-timestamp_ntz-name-mode", "dv-partitioned-with-checkpoint", "kernel-timestamp-timestamp_millis",
        "table-with-columnmapping-mode-name",
    )  # fmt: skip
    for name in names:
        check(connect_spark, tamis.open(golden / "delta" / name / "delta").scan(), name)


@pytest.mark.interop
def test_E4_a_worker_that_dies_while_reading_loses_and_repeats_no_row(
    spark: Any, hive_table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    grave = tmp_path / "grave"
    cloudpickle.register_pickle_by_value(dying_workers)
    monkeypatch.setattr(
        task_runner, "make_worker_function", lambda *given: dying_workers.DiesOnce(make_worker_function(*given), grave)
    )
    check(spark, tamis.open(hive_table).scan(), reader="arrow")
    assert grave.exists()


def test_many_local_files_are_listed_by_the_driver_and_the_setting_is_restored(spark: Any, tmp_path: Path) -> None:
    for number in range(40):
        pq.write_table(pa.table({"id": [number] * 3}), tmp_path / f"{number}.parquet")
    name = "spark.sql.sources.parallelPartitionDiscovery.threshold"
    before = spark.conf.getAll
    tracker = spark.sparkContext.statusTracker()
    jobs = set(tracker.getJobIdsForGroup(None))
    frame = tamis.open(tmp_path).scan().to_spark(spark, reader="spark")
    assert set(tracker.getJobIdsForGroup(None)) == jobs
    assert spark.conf.getAll == before
    assert frame.count() == 120
    spark.conf.set(name, "7")
    try:
        tamis.open(tmp_path).scan().to_spark(spark, reader="spark")
        assert spark.conf.get(name) == "7"
    finally:
        spark.conf.unset(name)


def list_cached_files(spark: Any) -> list[str]:
    """Return the names of the cached files of tables."""
    named = (each.name() for each in spark.sparkContext._jsc.getPersistentRDDs().values())
    return [name for name in named if name is not None and "Table State with Stats" in name]


def test_nothing_is_left_behind(spark: Any, hive_table: Path, tmp_path: Path) -> None:
    before = {each.name for each in spark.catalog.listTables()}
    table = tamis.open(write_mixed_table(tmp_path))
    table.scan("id > 3").to_spark(spark).count()
    assert {each.name for each in spark.catalog.listTables()} == before
    assert list_cached_files(spark) == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["_delta_log", "p=a", "p=b"]


def test_E2_a_missing_file_is_an_error(connect_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_mixed_table(tmp_path))
    (tmp_path / "p=b" / "partial.parquet").unlink()
    with pytest.raises(MissingFile, match=r"partial\.parquet.*version 0"):
        table.scan().to_spark(connect_spark)


def test_two_scans_of_the_same_files_can_be_joined_by_their_columns(spark: Any, tmp_path: Path) -> None:
    pq.write_table(pa.table({"k": [1, 2, 3], "v": [3, 1, 2]}), tmp_path / "rows.parquet")
    table = tamis.open(tmp_path / "rows.parquet")
    left, right = table.scan().to_spark(spark), table.scan().to_spark(spark)
    joined = left.join(right, left.k == right.v).select(left.v, right.k)
    assert sorted(map(tuple, joined.collect())) == [(1, 3), (2, 1), (3, 2)]


def test_H12_a_replaced_file_is_read_anew_by_later_scans(spark: Any, tmp_path: Path) -> None:
    file = tmp_path / "rows.parquet"
    for count in (3, 5, 4):
        pq.write_table(pa.table({"k": list(range(count))}), file)
        assert tamis.open(file).scan("k >= 0").to_spark(spark).count() == count


def test_types_that_spark_does_not_support_are_refused(connect_spark: Any, tmp_path: Path) -> None:
    rows = pa.table({"id": [1], "at": pa.array([5], pa.time64("us")), "fine": pa.array([-1], pa.timestamp("ns"))})
    pq.write_table(rows, tmp_path / "t.parquet")
    table = tamis.open(tmp_path / "t.parquet")
    with pytest.raises(UnsupportedFeature, match="the column 'at' is time"):
        table.scan().to_spark(connect_spark)
    frame = table.scan(columns=["id", "fine"]).to_spark(connect_spark)
    assert frame.collect()[0].fine == datetime(1969, 12, 31, 23, 59, 59, 999_999)
    with pytest.raises(InvalidArgument, match="no reader 'fast'"):
        table.scan().to_spark(connect_spark, reader="fast")
    with pytest.raises(InvalidArgument, match="spark must be a SparkSession"):
        table.scan().to_spark("local")


def test_tasks_are_packed_by_their_bytes() -> None:
    def make_task(size: int) -> ScanTask:
        return ScanTask("f", 10 * size, 0, 0, 1, size, {}, ())

    small = [make_task(SMALLEST // 4)] * 8
    assert [len(group) for group in pack_tasks(small)] == [4, 4]
    huge = [make_task(200 * SMALLEST)] * 3
    assert [len(group) for group in pack_tasks(huge)] == [1, 1, 1]
    assert pack_tasks([]) == []


def test_timestamps_are_in_utc(connect_spark: Any, tmp_path: Path) -> None:
    instant = datetime(2024, 3, 10, 10, 30, tzinfo=UTC)
    pq.write_table(pa.table({"at": pa.array([instant], pa.timestamp("ms", "UTC"))}), tmp_path / "t.parquet")
    scan = tamis.open(tmp_path / "t.parquet").scan("at = TIMESTAMP '2024-03-10 10:30:00Z'")
    for reader in ("spark", "arrow"):
        frame = scan.to_spark(connect_spark, reader=reader)
        assert frame.toArrow()["at"].to_pylist() == [instant]


def test_many_small_files_are_read_by_tasks_and_larger_ones_by_spark(spark: Any, tmp_path: Path) -> None:
    for number in range(DEFAULT_TUNING.spark_few_files + 1):
        pq.write_table(pa.table({"id": [number]}), tmp_path / f"{number}.parquet")
    table = tamis.open(tmp_path)
    assert uses_tasks(check(spark, table.scan()))
    assert uses_sparks_reader(check(spark, table.scan(tuning=Tuning(spark_small_local_file_bytes=100))))


@pytest.mark.parametrize("levels", [("partitions", "files"), ()])
@pytest.mark.parametrize("reader", ["spark", "arrow", "auto"])
def test_a_partition_filter_keeps_the_same_rows(
    spark: Any, tmp_path: Path, reader: str, levels: tuple[str, ...]
) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "n": "integer"}, partition_columns=["n"])
    for number, text in enumerate(["1", "01", "10", "9", None]):
        rows = pa.table({"id": pa.array([number, number + 10], pa.int64())})
        log.commit(data_file(log, f"{number}.parquet", rows, {"n": text}))
    table = tamis.open(tmp_path)
    by_number = PartitionFilter.gt("n", "5").with_type("long")
    wheres: list[tuple[Any, list[int]]] = [
        (PartitionFilter.eq("n", "01"), [1, 11]),
        ([[PartitionFilter.neq("n", "1"), "id < 10"], ["id = 10"]], [1, 2, 3, 4, 10]),
        ([by_number, "n > 9"], [2, 12]),
        ([[by_number], [PartitionFilter.gte("n", "0.5").with_type("double"), "id = 0"]], [0, 2, 3, 12, 13]),
    ]
    for where, expected in wheres:
        frame = check(spark, table.scan(where, ["id"], levels=levels), where, reader=reader)
        assert sorted(frame.toArrow()["id"].to_pylist()) == expected, where
