"""The data source `tamis`: rows, pushed filters, narrowed schemas, views, versions, and its messages."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

pytest.importorskip("pyspark")
from pyspark.errors import PySparkException
from pyspark.sql import datasource
from pyspark.sql.types import LongType, StringType, StructField, StructType

import tamis
import tamis.spark
from builders.delta.log import DeltaLog, remove
from builders.delta.tables import data_file
from tamis.engines.spark.data_source import (
    PUSHDOWN,
    PushdownReader,
    SourceOptions,
    expression_from_filter,
    limit_tasks,
    resolve_schema_columns,
)
from tamis.errors import InvalidArgument
from tamis.expr.sql.parse import parse_sql
from tamis.expr.wire.expression_json import expression_from_json
from tamis.scan.planning.tasks import ScanTask

ROWS = pa.table(
    {
        "id": pa.array(range(12), pa.int64()),
        "text": [None if n == 5 else f"t{n:02d}" for n in range(12)],
        "created_at": pa.array([n * 3_600_000_000 for n in range(12)], pa.timestamp("us", "UTC")),
        "day": pa.array([n * 10 for n in range(12)], pa.date32()),
        "ratio": pa.array([float("nan") if n == 3 else n / 2 for n in range(12)]),
    }
)
FIELDS = {"id": "long", "text": "string", "created_at": "timestamp", "day": "date", "ratio": "double", "p": "string"}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Delta table: three files in version 0, one of them with deleted rows; version 1 has one file less."""
    folder = tmp_path_factory.mktemp("source") / "a table"
    columns = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in FIELDS.items()]
    log = DeltaLog(folder, columns, partition_columns=["p"], features=["deletionVectors"])
    first = data_file(log, "p=a/0.parquet", ROWS.slice(0, 4), {"p": "a"})
    second = data_file(log, "p=b/1.parquet", ROWS.slice(4, 4), {"p": "b"}, deleted=[2])
    third = data_file(log, "p=b/2.parquet", ROWS.slice(8), {"p": "b"})
    log.commit(first, second, third)
    log.commit(remove("p=a/0.parquet"))
    return folder


@pytest.fixture
def registered(any_spark: Any) -> Iterator[Any]:
    before = any_spark.conf.get(PUSHDOWN, "false")
    tamis.spark.register(any_spark)
    yield any_spark
    any_spark.conf.set(PUSHDOWN, before)


def format_rows(rows: pa.Table) -> list[str]:
    return sorted(map(repr, rows.to_pylist()))


def read(spark: Any, table: Path, **options: str) -> Any:
    return spark.read.format("tamis").options(**options).load(str(table))


def leaves_to_spark(frame: Any) -> bool:
    """Return whether Spark filters the rows again."""
    import contextlib
    import io

    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        frame.explain()
    return "Filter" in printed.getvalue().replace("RuntimeFilters", "")


@pytest.mark.interop
def test_rows_versions_filters_and_narrow_schemas(connect_spark: Any, table: Path) -> None:
    spark = connect_spark
    tamis.spark.register(spark)
    newest = read(spark, table)
    assert newest.schema.simpleString().startswith("struct<id:bigint,text:string,created_at:timestamp,")
    assert format_rows(newest.toArrow()) == format_rows(tamis.open(table).scan().to_arrow())
    old = tamis.open(table, version=0)
    where = (
        "id > 1 AND created_at < TIMESTAMP '1970-01-01 09:00:00Z' AND p <=> 'b' AND text LIKE 't0%' AND ratio <> 2.5"
    )
    pushed = read(spark, table, version="0", pushdown="true").where(where)
    assert format_rows(pushed.toArrow()) == format_rows(old.scan(where).to_arrow())
    assert not leaves_to_spark(pushed)
    either = "id = 1 OR date(created_at) = DATE '1970-01-01' AND id > 9"
    left = read(spark, table, version="0", pushdown="true").where(either)
    assert leaves_to_spark(left)
    narrow = (
        spark.read.format("tamis").options(version="0", filter=either).schema("P string, id bigint").load(str(table))
    )
    assert narrow.columns == ["P", "id"]
    found = narrow.toArrow().rename_columns(["p", "id"])
    assert (
        format_rows(found)
        == format_rows(old.scan(either, ["p", "id"]).to_arrow())
        == format_rows(left.select("p", "id").toArrow())
    )
    assert read(spark, table).where("id > 100").count() == 0


@pytest.mark.interop
def test_views_come_and_go(registered: Any, table: Path) -> None:
    spark = registered
    before = {each.name for each in spark.catalog.listTables()}
    spark.sql(
        f"CREATE TEMPORARY VIEW tamis_orders (id BIGINT, p STRING) USING tamis "
        f"OPTIONS (path '{table}', version '0', filter 'id < 3 OR id = 10')"
    )
    try:
        found = spark.sql("SELECT p, sum(id) AS total FROM tamis_orders WHERE id > 0 GROUP BY p ORDER BY p").collect()
        assert [tuple(row) for row in found] == [("a", 3), ("b", 10)]
    finally:
        spark.catalog.dropTempView("tamis_orders")
    assert {each.name for each in spark.catalog.listTables()} == before


def test_errors_name_the_cause(connect_spark: Any, table: Path) -> None:
    tamis.spark.register(connect_spark)
    with pytest.raises(PySparkException, match="no option 'filtr'"):
        read(connect_spark, table, filtr="id < 2").collect()
    with pytest.raises(PySparkException, match="no column 'ammount'"):
        connect_spark.read.format("tamis").option("filter", "ammount = 1").schema("id bigint").load(
            str(table)
        ).collect()


@pytest.mark.interop
def test_filters_are_left_to_spark_if_the_conf_is_off(connect_spark: Any, table: Path) -> None:
    tamis.spark.register(connect_spark)
    assert connect_spark.conf.get(PUSHDOWN) == "true"
    connect_spark.conf.set(PUSHDOWN, "false")
    try:
        with pytest.raises(PySparkException, match=PUSHDOWN):
            read(connect_spark, table, pushdown="true").collect()
        frame = read(connect_spark, table, filter="id > 5").where("id < 9")
        assert sorted(row.id for row in frame.collect()) == [7, 8]
        assert leaves_to_spark(frame)
    finally:
        tamis.spark.register(connect_spark)


def test_a_frame_and_a_view_run_several_queries(registered: Any, tmp_path: Path) -> None:
    """Spark applies the filters of the first query again, if the data source accepted them."""
    for key in range(1, 6):
        pq.write_table(pa.table({"k": [key], "v": [key * 10]}), tmp_path / f"{key}.parquet")
    frame = read(registered, tmp_path)
    assert frame.where("k = 3").count() == 1
    assert frame.count() == 5
    assert sorted(row.k for row in frame.where("k = 1").union(frame.where("k = 5")).collect()) == [1, 5]
    frame.createOrReplaceTempView("tamis_asked_again")
    try:
        counts = [
            registered.sql(f"SELECT count(*) FROM tamis_asked_again {where}").collect()[0][0]
            for where in ("WHERE k = 3", "", "WHERE k = 1 OR k = 5")
        ]
    finally:
        registered.catalog.dropTempView("tamis_asked_again")
    assert counts == [1, 5, 2]


@pytest.mark.interop
def test_golden_tables_by_the_data_source(connect_spark: Any, golden: Path) -> None:
    tamis.spark.register(connect_spark)
    for name in ("data-reader-primitives", "dv-partitioned-with-checkpoint", "table-with-columnmapping-mode-name"):
        path = golden / "delta" / name / "delta"
        assert format_rows(read(connect_spark, path).toArrow()) == format_rows(tamis.open(path).scan().to_arrow()), name


# --- Without Spark ----------------------------------------------------------------------------------------------------


def test_every_filter_of_spark_means_the_same_here() -> None:
    a = ("st", "a")
    instant = datetime(2024, 3, 1, tzinfo=UTC)
    for given, text in (
        (datasource.EqualTo(a, 5), "st.a = 5"),
        (datasource.EqualNullSafe(a, None), "st.a <=> NULL"),
        (datasource.GreaterThan(a, 1.5), "st.a > 1.5D"),
        (datasource.GreaterThanOrEqual(a, date(2024, 3, 1)), "st.a >= DATE '2024-03-01'"),
        (datasource.LessThan(a, instant), "st.a < TIMESTAMP '2024-03-01 00:00:00Z'"),
        (datasource.LessThanOrEqual(a, "x"), "st.a <= 'x'"),
        (datasource.In(a, (1, 2)), "st.a IN (1, 2)"),
        (datasource.In(a, ()), "false"),
        (datasource.IsNull(a), "st.a IS NULL"),
        (datasource.Not(datasource.IsNotNull(a)), "NOT (st.a IS NOT NULL)"),
        (datasource.StringStartsWith(a, "x"), "startswith(st.a, 'x')"),
        (datasource.StringEndsWith(a, "x"), "endswith(st.a, 'x')"),
        (datasource.Not(datasource.StringContains(a, "x")), "NOT contains(st.a, 'x')"),
    ):
        assert expression_from_filter(given) == parse_sql(text), text
    assert expression_from_filter(datasource.EqualTo(a, object())) is None
    assert expression_from_filter(object()) is None


def test_filters_that_do_not_fit_the_table_are_left_to_spark(table: Path) -> None:
    reader = PushdownReader(SourceOptions(str(table)), StructType([StructField("id", LongType())]))
    filters = [datasource.EqualTo(("id",), 5), datasource.EqualTo(("nothing",), 5), datasource.IsNull(("text",))]
    left = list(reader.pushFilters(filters))
    assert len(left) == 1
    assert left[0] is filters[1]
    assert [expression_from_json(each) for each in reader.pushed] == [parse_sql("id = 5"), parse_sql("text IS NULL")]
    assert reader.options.version == 1
    (partition,) = reader.partitions()
    assert [batch.num_rows for batch in reader.read(partition)] == [1]


def test_a_limit_takes_only_the_tasks_that_it_needs() -> None:
    def make_task(rows: int, residual: tuple[int, ...] = ()) -> ScanTask:
        return ScanTask("f", 1, 0, 0, rows, 1, {}, residual)

    tasks = [make_task(5), make_task(5, (0,)), make_task(5), make_task(5)]
    assert [len(list(limit_tasks(tasks, limit))) for limit in (0, 5, 6, 100, None)] == [1, 1, 3, 4, 4]


def test_options_are_checked() -> None:
    options = SourceOptions.of({"PATH": "s3://bucket/t", "storage.aws_region": "eu-west-1", "version": "3"})
    assert options == SourceOptions("s3://bucket/t", version=3, storage=(("aws_region", "eu-west-1"),))
    for given, message in (
        ({}, "needs the path"),
        ({"path": "t", "version": "two"}, "version must be a nonnegative integer"),
        ({"path": "t", "filtr": "x"}, "no option 'filtr'. Options: path, filter"),
        ({"path": "t", "pushdown": "yes"}, "pushdown must be true or false, found 'yes'"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            SourceOptions.of(given)


def test_options_are_those_of_open_in_the_spellings_of_spark(tmp_path: Path) -> None:
    for day, names in (("01", ["id"]), ("02", ["id", "more"])):
        folder = tmp_path / "orders" / f"day=2024-03-{day}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({name: [1] for name in names}), folder / "part.parquet")
    path = str(tmp_path / "orders")
    given = {"path": path, "mergeSchema": "TRUE", "partitioning.day": "string", "index": "false"}
    table = SourceOptions.of(given).open()
    assert table.schema.names == ["id", "more", "day"]
    assert table.schema.field("day").type == pa.string()
    assert SourceOptions.of({"path": path, "versionAsOf": "3"}).version == 3
    assert SourceOptions.of({"path": path, "timestampAsOf": "2024-03-01"}).timestamp == "2024-03-01"
    with pytest.raises(InvalidArgument, match="the option version is given twice, once as 'versionAsOf'"):
        SourceOptions.of({"path": path, "version": "3", "versionAsOf": "3"})


def test_a_schema_must_name_columns_of_the_table(tmp_path: Path) -> None:
    pq.write_table(pa.table({"a.b": [1], "x": [2], "X": [3]}), tmp_path / "t.parquet")
    table = tamis.open(tmp_path / "t.parquet")
    asked = StructType([StructField("X", LongType()), StructField("a.b", LongType())])
    assert resolve_schema_columns(asked, table) == ["`X`", "`a.b`"]
    for fields, message in (
        ([], "the schema has no columns"),
        ([StructField("y", LongType())], "which t.parquet does not have. Columns: a.b, x, X"),
        ([StructField("x", StringType())], "has x as string, but in t.parquet it is bigint"),
    ):
        with pytest.raises(InvalidArgument, match=message):
            resolve_schema_columns(StructType(fields), table)


def test_a_view_of_a_table_is_created_in_one_line(spark: Any, table: Path) -> None:
    scan = tamis.open(table).scan("id >= 9")
    for given, expected in ((str(table), 7), (table, 7), (tamis.open(table, version=0), 11), (scan, 3)):
        tamis.spark.create_view(spark, "tamis_view", given)
        assert spark.sql("SELECT count(*) AS n FROM tamis_view").first().n == expected, given
    found = spark.sql("SELECT id FROM tamis_view WHERE p = 'a'")
    assert found.count() == 0
    spark.catalog.dropTempView("tamis_view")
    with pytest.raises(InvalidArgument, match="a path, a Table or a Scan"):
        tamis.spark.create_view(spark, "tamis_view", 5)


def test_create_table_says_what_to_write_instead(spark: Any, table: Path) -> None:
    tamis.spark.register(spark)
    with pytest.raises(PySparkException, match=r"tamis\.spark\.create_view"):
        spark.sql(f"CREATE TABLE lost USING tamis OPTIONS (path '{table}')")
