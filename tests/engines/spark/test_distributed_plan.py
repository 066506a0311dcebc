"""Scans of more files than the driver should plan: executors list, plan and read them, and no row is lost."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark")

from pyspark.errors import PythonException

import tamis
from builders.delta.cases import draw_delta_case
from builders.delta.log import DeltaLog, remove
from builders.delta.tables import data_file
from builders.hive.cases import PARTITIONING, draw_hive_case
from builders.hive.tables import write_hive_table
from builders.iceberg.cases import draw_iceberg_case
from builders.iceberg.deletes import equality_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.values.choices import SeededChoices
from tamis import PartitionFilter, Tuning
from tamis.engines.spark.spark_types import convert_rows, to_row_schema
from tamis.errors import EvaluationError, TamisError
from tamis.scan.scan import get_planner

LISTED = Tuning(spark_max_planned_files=0, spark_max_listed_files=0)
"""Executors list all files."""
LISTED_WITHOUT_DELETES = Tuning(spark_max_planned_files=0, spark_max_listed_files=0)
"""The same, for tables whose files the driver lists if they have delete files."""
PLANNED = Tuning(spark_max_planned_files=0)
"""The driver lists files, and executors plan them."""
UNKNOWN = 2**62


def format_rows(rows: pa.Table, schema: pa.Schema) -> list[str]:
    """Return rows as texts, in types that Spark has."""
    batches = [convert_rows(batch, schema) for batch in rows.cast(rows.schema).to_batches()]
    return sorted(map(repr, pa.Table.from_batches(batches, schema).to_pylist()))


def check(spark: Any, table: tamis.Table, where: object, tuning: Tuning, *context: object) -> Any:
    """Return the DataFrame of a scan whose plan is distributed, after checking that it has the rows of a local scan."""
    scan = table.scan(where, tuning=tuning)
    try:
        expected = table.scan(where).to_arrow()
    except EvaluationError as error:
        # Spark wraps the errors of rows.
        with pytest.raises((PythonException, EvaluationError), match=re.escape(str(error))):
            scan.to_spark(spark).toArrow()
        return None
    frame = scan.to_spark(spark)
    found = frame.toArrow()
    schema = to_row_schema(expected.schema)
    assert format_rows(found.cast(schema), schema) == format_rows(expected, schema), (where, context)
    if tuning is LISTED and expected.num_rows:
        assert not has_listed(scan), (where, context)
    return frame


def has_listed(scan: tamis.Scan) -> bool:
    """Return whether the driver has listed the files of a scan."""
    return "unchecked_listing" in vars(get_planner(scan))


def estimate_size(frame: Any) -> int:
    return int(frame._jdf.queryExecution().optimizedPlan().stats().sizeInBytes())


def count_jobs(spark: Any, what: str) -> int:
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(f"tamis: {what}"))


def write_delta_table(folder: Path) -> Path:
    """Write forty files in a checkpoint of two parts, some with deletion vectors; newer commits replace some."""
    columns = {"id": "long", "x": "double", "p": "string"}
    log = DeltaLog(folder, columns, partition_columns=["p"], features=["deletionVectors"])

    def add(number: int, **options: Any) -> Any:
        part = "ab"[number % 2]
        values = pa.array(range(10 * number, 10 * number + 10), pa.int64())
        rows = pa.table({"id": values, "x": values.cast(pa.float64())})
        return data_file(log, f"p={part}/{number}.parquet", rows, {"p": part}, **options)

    log.commit(*(add(number, **({"deleted": [1, 3]} if number % 5 == 0 else {})) for number in range(40)))
    log.checkpoint(parts=2)
    log.commit(remove("p=b/1.parquet"), add(40), add(41, deleted=[0, 1]))
    return folder


FILTERS = (None, "id > 105", "p = 'a' AND id < 77", "p = 'b' OR x = 3", PartitionFilter.eq("p", "b"))


@pytest.mark.parametrize("tuning", [LISTED, PLANNED], ids=["listed", "planned"])
def test_delta_rows_are_those_of_a_local_scan(any_spark: Any, tmp_path: Path, tuning: Tuning) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    for where in FILTERS:
        check(any_spark, table, where, tuning)


@pytest.mark.parametrize("seed", range(4))
def test_O8_random_delta_tables_have_the_rows_of_a_local_scan(spark: Any, tmp_path: Path, seed: int) -> None:
    case = draw_delta_case(SeededChoices(seed), tmp_path, 2)
    table = tamis.open(tmp_path)
    for said in case.predicates:
        check(spark, table, said.expr, LISTED, seed, said.sql)
    check(spark, table, case.predicates[0].expr, PLANNED, seed)


@pytest.mark.parametrize("seed", range(4))
def test_O8_random_hive_tables_have_the_rows_of_a_local_scan(spark: Any, tmp_path: Path, seed: int) -> None:
    predicates = draw_hive_case(SeededChoices(seed), tmp_path, predicates=2)
    table = tamis.open(tmp_path, partitioning=PARTITIONING)
    for said in predicates:
        check(spark, table, said.expr, LISTED, seed, said.sql)
    check(spark, table, predicates[0].expr, PLANNED, seed)


@pytest.mark.parametrize("seed", range(4))
def test_O8_random_iceberg_tables_have_the_rows_of_a_local_scan(spark: Any, tmp_path: Path, seed: int) -> None:
    case = draw_iceberg_case(SeededChoices(seed), tmp_path, 2)
    table = tamis.open(tmp_path)
    for said in case.predicates:
        check(spark, table, said.expr, PLANNED, seed, said.sql)
        check(spark, table, said.expr, LISTED_WITHOUT_DELETES, seed, said.sql)


def write_iceberg_table(folder: Path, *, with_deletes: bool) -> Path:
    fields = [field(1, "id", "long"), field(2, "region", "string")]
    table = IcebergFolder(folder, fields, specs=[[(2, "identity", "region")]], location="s3://elsewhere/t")
    files = []
    for number in range(8):
        region = "eu" if number % 2 else "us"
        rows = pa.table({"id": range(number * 10, number * 10 + 10), "region": [region] * 10})
        files.append(table.data_file(f"{number}.parquet", rows, spec=0))
    table.commit(*files, per_manifest=2)
    if with_deletes:
        table.commit(equality_deletes(table, "e.parquet", pa.table({"id": [11, 47]}), spec=0, partition=("eu",)))
    table.save()
    return folder


ICEBERG_FILTERS = (None, "id = 47", "region = 'eu' AND id > 25", PartitionFilter.eq("region", "us"))


def test_manifests_of_an_iceberg_table_are_listed_by_executors(any_spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_iceberg_table(tmp_path / "t", with_deletes=False))
    for where in ICEBERG_FILTERS:
        check(any_spark, table, where, LISTED)


def test_an_iceberg_table_with_delete_files_is_listed_by_the_driver(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_iceberg_table(tmp_path / "t", with_deletes=True))
    for where in ICEBERG_FILTERS:
        check(spark, table, where, PLANNED)
    scan = table.scan("region = 'eu'", tuning=LISTED)
    assert scan.to_spark(spark).count() == 39
    assert has_listed(scan)


def test_the_driver_lists_no_file_and_runs_few_jobs_before_rows_are_read(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    what = f"list 2 checkpoint parts of {table.name}@1"
    scan = table.scan("id > 105", tuning=LISTED)
    frame = scan.to_spark(spark)
    # One that counts the cores and one that counts the files, each in two stages.
    assert count_jobs(spark, what) <= 4
    assert frame.count() == 302
    assert not has_listed(scan)


def test_the_size_of_rows_is_unknown_and_they_are_not_broadcast(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    for tuning in (LISTED, PLANNED):
        frame = table.scan(tuning=tuning).to_spark(spark)
        assert estimate_size(frame) > UNKNOWN
        joined = frame.join(frame.withColumnRenamed("x", "y"), "id")
        assert "BroadcastHashJoin" not in joined._jdf.queryExecution().executedPlan().toString()
        assert joined.count() == 392


def test_tasks_are_packed_by_the_bytes_of_files(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    weight = sum(size + 64 * 1024 for size in table.files()["size"].to_pylist())
    frame = table.scan(tuning=LISTED).to_spark(spark).repartition(1)
    assert f"RoundRobinPartitioning({math.ceil(weight / (1024 * 1024))})" in frame._jdf.queryExecution().toString()


def test_few_remaining_files_are_listed_by_the_driver(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path))
    tuning = Tuning(spark_max_planned_files=10, spark_max_listed_files=0)
    scan = table.scan("id > 400", tuning=tuning)
    assert sorted(scan.to_spark(spark).toArrow()["id"].to_pylist()) == sorted(scan.to_arrow()["id"].to_pylist())
    assert has_listed(scan)
    many = table.scan("id > 100", tuning=tuning)
    assert many.to_spark(spark).count() == table.scan("id > 100").count()
    assert not has_listed(many)


def test_a_table_with_fewer_files_is_listed_by_the_driver(spark: Any, tmp_path: Path) -> None:
    scan = tamis.open(write_delta_table(tmp_path)).scan()
    assert scan.to_spark(spark).count() == 392
    assert has_listed(scan)


def test_a_limit_and_a_projection_apply(spark: Any, tmp_path: Path) -> None:
    table = tamis.open(write_delta_table(tmp_path), tuning=LISTED)
    frame = table.scan("id >= 100", columns=["p", "id"], limit=7).to_spark(spark)
    assert frame.columns == ["p", "id"]
    assert [row["id"] >= 100 for row in frame.collect()] == [True] * 7
    assert table.scan(columns=["p"]).to_spark(spark).distinct().count() == 2


def test_sql_on_spark_reads_the_same_rows(spark: Any, tmp_path: Path) -> None:
    session = tamis.connect(spark=spark)
    session.register("t", tamis.open(write_delta_table(tmp_path), tuning=LISTED))
    expected = tamis.open(tmp_path).scan("id > 105 AND p = 'a'").count()
    assert session.sql("SELECT id FROM t WHERE id > 105 AND p = 'a'").toArrow().num_rows == expected
    assert session.sql("SELECT count(x) FROM t WHERE id > 105 AND p = 'a'").toArrow().to_pylist()[0] == {
        "count(x)": expected
    }


def test_spark_reads_the_files_itself_if_it_should(spark: Any, tmp_path: Path) -> None:
    scan = tamis.open(write_delta_table(tmp_path), tuning=LISTED).scan()
    assert scan.to_spark(spark, reader="spark").count() == 392
    assert has_listed(scan)


def test_a_damaged_part_of_the_metadata_is_an_error_of_ours(spark: Any, tmp_path: Path) -> None:
    parts = [({"day": str(number)}, pa.table({"id": [number]})) for number in range(4)]
    table = tamis.open(write_hive_table(tmp_path / "t", parts), partitioning={"day": "int"}, tuning=LISTED)
    deeper = tmp_path / "t" / "day=2" / "hour=1"
    deeper.mkdir()
    with pytest.raises(TamisError, match="leaf directories are at different depths"):
        table.scan("id >= 0").to_spark(spark)
    deeper.rmdir()
    damaged = next((tmp_path / "t" / "day=3").glob("*.parquet"))
    damaged.write_bytes(damaged.read_bytes()[:-4] + b"ABCD")
    fresh = tamis.open(tmp_path / "t", partitioning={"day": "int"}, tuning=LISTED)
    with pytest.raises(PythonException, match=f"CorruptFile.*{damaged.name}"):
        fresh.scan("id >= 0").to_spark(spark).count()
