"""Iceberg tables on Spark: plans of executors equal local plans (O8), DataFrames have the rows of a scan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.engines.worker_engine import assert_same_plans, make_fresh_plan
from builders.iceberg.cases import draw_iceberg_case
from builders.iceberg.deletes import deletion_vectors, equality_deletes, position_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.values.choices import SeededChoices
from tamis.engines.spark.spark_types import convert_rows, to_row_schema


@pytest.fixture(scope="module")
def orders(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight files in several manifests of two specs, with three kinds of deletes and a column that was added later."""
    fields = [field(1, "id", "long"), field(2, "region", "string")]
    mapping = [{"field-id": 1, "names": ["id"]}, {"field-id": 2, "names": ["region"]}]
    table = IcebergFolder(
        tmp_path_factory.mktemp("spark") / "orders",
        fields,
        specs=[[], [(2, "identity", "region")]],
        version=3,
        properties={"schema.name-mapping.default": json.dumps(mapping)},
        location="s3://elsewhere/orders",
    )
    files = []
    for number in range(8):
        region = "eu" if number % 2 else "us"
        rows = pa.table({"id": range(number * 10, number * 10 + 10), "region": [region] * 10})
        ending = "avro" if number == 3 else "parquet"
        files.append(table.data_file(f"{number}.{ending}", rows, spec=number // 4, with_ids=number != 6))
    table.commit(*files[:4], per_manifest=2)
    table.commit(*files[4:], per_manifest=2)
    table.commit(
        position_deletes(table, "p.parquet", [(files[0].path, 3), (files[3].path, 9)], spec=0),
        equality_deletes(table, "e.parquet", pa.table({"id": [11, 47]}), spec=0),
        *deletion_vectors(table, "v.puffin", {files[6].path: [0, 1]}, {files[6].path: files[6]}),
    )
    default = {"initial-default": "none", "write-default": "none"}
    table.evolve([field(2, "area", "string"), field(1, "id", "long"), field(3, "note", "string", **default)])
    rows = pa.table({"area": ["eu"], "id": [100], "note": [None]}, schema=table.arrow_schema)
    table.commit(table.data_file("8.parquet", rows, spec=0))
    return table.folder


WHERE = (None, "id = 47", "area = 'eu' AND id > 25", "id IN (3, 39, 60, 62, 100)", "note = 'none' AND id < 20")


def test_scans_that_are_planned_on_spark_use_the_cached_rows(spark: Any, orders: Path) -> None:
    on_spark, local = tamis.connect(spark=spark, planning="spark").open(orders), tamis.open(orders)
    uses = {}
    with on_spark.files_dataframe(spark) as files:
        assert files.name == f"Iceberg Table State with Stats #{local.version} - {local.uri}"
        for where in WHERE:
            scan, expected = on_spark.scan(where), local.scan(where)
            assert scan.to_arrow().sort_by("id") == expected.to_arrow().sort_by("id"), where
            assert scan.count() == expected.count(), where
            planned = [each.plan("files") for each in (scan, expected)]
            paths = [set(each.files["path"].to_pylist()) for each in planned]
            assert paths[0] == paths[1], where
            uses[where] = "files cached in Spark" in str(planned[0].report.level("files").note)
    # All manifests are needed without a filter, so that a plan reads them in executors.
    assert uses == {where: where is not None for where in WHERE}


def test_O8_a_plan_of_an_iceberg_table_on_spark_is_the_local_one(any_spark: Any, orders: Path) -> None:
    on_spark = tamis.connect(spark=any_spark, planning="spark").open(orders)
    local = tamis.open(orders)
    for where in WHERE[:2]:
        assert_same_plans(make_fresh_plan(on_spark, where, "files"), make_fresh_plan(local, where, "files"))
    assert_same_plans(make_fresh_plan(on_spark, WHERE[2], "pages"), make_fresh_plan(local, WHERE[2], "pages"))
    assert sorted(on_spark.scan(WHERE[3]).to_arrow()["id"].to_pylist()) == [62, 100]


def test_dataframes_have_the_rows_of_the_scan(any_spark: Any, orders: Path) -> None:
    table = tamis.open(orders)
    for where in WHERE:
        check(any_spark, table.scan(where))
    check(any_spark, table.scan(columns=["note"]))
    assert table.scan().count() == 75


@pytest.mark.interop
def test_the_data_source_reads_iceberg_tables(spark: Any, orders: Path) -> None:
    tamis.spark.register(spark)
    frame = spark.read.format("tamis").load(str(orders))
    assert sorted(row["id"] for row in frame.where("area = 'us' AND id > 40").collect()) == sorted(
        tamis.open(orders).scan("area = 'us' AND id > 40").to_arrow()["id"].to_pylist()
    )
    first = min(tamis.open(orders).history()["snapshot_id"].to_pylist())
    assert spark.read.format("tamis").option("snapshot_id", first).load(str(orders)).count() == 40


def check_files(files: Any, table: tamis.Table, where: object, *context: object) -> Any:
    """Return the files that Spark finds, after checking that they are those of a local plan."""
    found = files.files_for_scan(where)
    local = table.scan(where).plan("files").files.sort_by("path")
    names = ["path", "size", "num_records"]
    assert found.files.sort_by("path").select(names).to_pylist() == local.select(names).to_pylist(), (where, *context)
    return found


def test_O8_files_as_a_dataframe_are_those_of_a_local_plan(spark: Any, orders: Path) -> None:
    table = tamis.open(orders)
    with table.files_dataframe(spark, columns=["id"]) as files:
        found = [check_files(files, table, where) for where in (WHERE[1], WHERE[2], "FALSE")]
    assert [each.after_statistics.files for each in found] == [1, 4, 0]
    assert found[2].total == found[0].total
    assert (found[0].total.files, found[0].after_partitions, found[0].total.rows) == (9, found[0].total, None)


@pytest.mark.interop
@pytest.mark.parametrize("version", [1, 2])
def test_O8_I1_files_as_a_dataframe_by_buckets_and_truncated_texts(spark: Any, tmp_path: Path, version: int) -> None:
    fields = [field(1, "id", "long"), field(2, "s", "string"), field(3, "day", "date")]
    specs = [[(1, "bucket[4]", "by_id")], [(2, "truncate[2]", "by_s"), (3, "month", "by_day")]]
    table = IcebergFolder(tmp_path, fields, specs=specs, version=version)
    table.counts_anew = version == 1
    for number in range(8):
        values = {"id": [number], "s": [f"a{number}x"], "day": pa.array([number * 30], pa.date32())}
        # No statistics: only partition values are known.
        table.commit(table.data_file(f"{number}.parquet", pa.table(values), spec=number % 2, metrics={}))
    opened = tamis.open(tmp_path)
    with opened.files_dataframe(spark) as files:
        for where in ("id = 4", "s = 'a3x'", "s LIKE 'a5%'", "day < DATE '1970-03-01'", "id IN (1, 6) AND s > 'a4'"):
            found = files.files_for_scan(where).files["path"].to_pylist()
            local = opened.scan(where).plan("files").files["path"].to_pylist()
            assert set(local) <= set(found), where
            assert version == 1 or len(local) == len(found), where
        assert files.files_for_scan("id = 4 AND s = 'a4x'").after_statistics.files < 8


def check(spark: Any, scan: tamis.Scan, *context: object) -> None:
    schema = to_row_schema(scan.schema)
    expected = pa.Table.from_batches([convert_rows(batch, schema) for batch in scan.to_batches()], schema)
    found = scan.to_spark(spark).toArrow()
    assert found.column_names == expected.column_names, context
    rows = [sorted(map(repr, each.to_pylist())) for each in (found.cast(expected.schema), expected)]
    assert rows[0] == rows[1], context


@pytest.mark.interop
@pytest.mark.parametrize("seed", range(12))
def test_O8_random_tables_have_the_local_plans_and_rows(spark: Any, tmp_path: Path, seed: int) -> None:
    case = draw_iceberg_case(SeededChoices(seed), tmp_path, predicates=2)
    on_spark, local = tamis.connect(spark=spark, planning="spark").open(tmp_path), tamis.open(tmp_path)
    for where in (None, *(said.expr for said in case.predicates)):
        assert_same_plans(make_fresh_plan(on_spark, where, "pages"), make_fresh_plan(local, where, "pages"))
        check(spark, local.scan(where), case.done, where)
    with local.files_dataframe(spark) as files:
        for said in case.predicates:
            found = set(files.files_for_scan(said.expr).files["path"].to_pylist())
            assert set(local.scan(said.expr).plan("files").files["path"].to_pylist()) <= found, (case.done, said)
