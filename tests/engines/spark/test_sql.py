"""SQL on Spark: pruned scans, and the remaining plan as Spark SQL."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.query import sql_tables
from tamis.errors import InvalidArgument

QUERIES = (
    "SELECT id, region, amount FROM orders WHERE region = 'eu' AND id < 50",
    "SELECT o.id, c.name FROM orders o JOIN customers c ON o.customer = c.id WHERE c.region = 'eu'",
    "SELECT id, rank() OVER (PARTITION BY region ORDER BY id) AS r FROM orders o WHERE o.id < 20",
)
MORE_QUERIES = (
    "SELECT region, count(*) AS n, sum(amount) AS total FROM orders GROUP BY region",
    "SELECT count(*), min(id), max(day) FROM orders WHERE region = 'us'",
    "SELECT c.name FROM customers c LEFT ANTI JOIN orders o ON o.customer = c.id",
    "SELECT id FROM orders WHERE amount > (SELECT avg(amount) FROM orders WHERE region = 'eu')",
    "WITH eu AS (SELECT * FROM orders WHERE region = 'eu') SELECT a.id FROM eu a JOIN eu b ON a.id = b.id + 3",
    "SELECT c.id, t.tag FROM customers c LATERAL VIEW explode(tags) t AS tag",
    "SELECT region FROM orders UNION SELECT region FROM customers",
    "SELECT address.city, count(*) FROM customers GROUP BY address.city",
    "SELECT value, count(*) FROM events WHERE NOT value > 1 GROUP BY value",
    "SELECT '{braces}' AS text, id FROM orders WHERE note = 'note 1' AND id < 30",
)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sql_tables.write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def on_spark(spark: Any, paths: dict[str, Path]) -> tamis.Session:
    session = tamis.connect(spark=spark)
    for name, path in paths.items():
        session.register(name, session.open(path))
    session.register("labels", pa.table({"region": ["eu", "us"], "label": ["Europe", "America"]}))
    return session


@pytest.mark.parametrize(
    "query", [*QUERIES, *(pytest.param(query, marks=pytest.mark.interop) for query in MORE_QUERIES)]
)
def test_rows_equal_those_of_the_embedded_engine(
    on_spark: tamis.Session, paths: dict[str, Path], query: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", logger="tamis")
    embedded = sql_tables.open_session(paths).sql(query).to_arrow()
    found = on_spark.sql(query)
    # Spark names the result of count(*) after what it computes.
    assert found.columns == [name.replace("count(*)", "count(1)") for name in embedded.column_names]
    assert sql_tables.has_same_rows(found.toArrow(), embedded)
    assert "rejects the plan" not in caplog.text


def test_sums_are_sparks_own_with_its_types(on_spark: tamis.Session, paths: dict[str, Path], spark: Any) -> None:
    query = "SELECT sum(id) AS a, avg(price) AS b, sum(price) AS c, avg(amount) AS d, count(*) AS n FROM orders"
    found = on_spark.sql(query)
    (spark.read.parquet(str(paths["orders"]))).createOrReplaceTempView("orders_of_spark")
    try:
        theirs = spark.sql(query.replace("FROM orders", "FROM orders_of_spark"))
        assert found.dtypes == theirs.dtypes
        assert found.collect() == theirs.collect()
    finally:
        spark.catalog.dropTempView("orders_of_spark")
    assert "Aggregate sum(" in on_spark.explain(query).split("Optimized plan")[1]
    # A query of a session without Spark has the same sums.
    embedded = sql_tables.open_session(paths).sql(query)
    assert "summed while reading" in embedded.explain()
    assert embedded.to_spark(spark).dtypes == theirs.dtypes


def test_order_and_limit_hold(on_spark: tamis.Session) -> None:
    found = on_spark.sql(
        "SELECT id, amount FROM orders WHERE region = 'eu' ORDER BY amount DESC NULLS LAST, id LIMIT 4"
    )
    assert [row.id for row in found.collect()] == [237, 234, 231, 228]


def test_rows_in_memory_join_tables_of_a_lake(on_spark: tamis.Session) -> None:
    found = on_spark.sql("SELECT label, count(*) AS n FROM orders JOIN labels USING (region) GROUP BY label")
    assert {(row.label, row.n) for row in found.collect()} == {("Europe", 80), ("America", 80)}


def test_no_views_are_left(on_spark: tamis.Session, spark: Any) -> None:
    before = {table.name for table in spark.catalog.listTables()}
    on_spark.sql("SELECT count(*) FROM orders o JOIN customers c ON o.customer = c.id").collect()
    assert {table.name for table in spark.catalog.listTables()} == before


@pytest.mark.interop
def test_a_connect_session_runs_the_same(connect_spark: Any, paths: dict[str, Path]) -> None:
    session = tamis.connect(spark=connect_spark)
    for name, path in paths.items():
        session.register(name, session.open(path))
    query = (
        "SELECT c.name, count(*) AS n FROM orders o JOIN customers c ON o.customer = c.id "
        "WHERE o.id < 90 GROUP BY c.name"
    )
    embedded = sql_tables.open_session(paths).sql(query).to_arrow()
    assert sql_tables.has_same_rows(session.sql(query).toArrow(), embedded)


def test_functions_that_only_spark_has(on_spark: tamis.Session) -> None:
    found = on_spark.sql("SELECT id, xxhash64(id) AS h FROM orders WHERE id < 3 ORDER BY id")
    assert [row.id for row in found.collect()] == [0, 1, 2]


@pytest.mark.parametrize(
    ("query", "message"),
    [
        (
            "SELECT no_such_function(id) FROM orders",
            r"unknown function no_such_function \(at: query, character 8\)",
        ),
        ("SELECT idd FROM orders", r"no column 'idd' in orders \(at: query, character 8\). Did you mean 'id'\?"),
        ("SELECT region, id, rand() FROM orders GROUP BY region", "'id' is neither grouped by nor"),
    ],
)
def test_queries_that_spark_rejects_are_one_error(on_spark: tamis.Session, query: str, message: str) -> None:
    for ask in (on_spark.sql, on_spark.explain) if "GROUP" not in query else (on_spark.sql,):
        with pytest.raises(tamis.TamisError, match=message) as raised:
            ask(query)
        assert "\n" not in str(raised.value)


def test_current_user_is_the_principal_or_else_sparks(on_spark: tamis.Session, spark: Any) -> None:
    (ours,) = on_spark.as_principal("ana").sql("SELECT current_user() AS who").collect()
    (theirs,) = on_spark.sql("SELECT current_user() AS who").collect()
    assert (ours.who, [theirs]) == ("ana", spark.sql("SELECT current_user() AS who").collect())


def test_braces_in_queries_without_tables(on_spark: tamis.Session) -> None:
    assert on_spark.sql("SELECT '{\"a\": 1}' AS j").collect() == [('{"a": 1}',)]


def test_parameters_and_versions(on_spark: tamis.Session, tmp_path: Path) -> None:
    for number in range(3):
        deltalake.write_deltalake(tmp_path / "d", pa.table({"id": [number]}), mode="append")
    on_spark.register("versions", tmp_path / "d")
    found = on_spark.sql("SELECT id FROM versions VERSION AS OF 1 WHERE id >= :least", {"least": 1})
    assert found.collect() == [(1,)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT count(*) AS n FROM orders TABLESAMPLE (100 PERCENT) REPEATABLE (3)", None),
        ("TABLE customers", None),
        ("SELECT id FROM orders QUALIFY row_number() OVER (ORDER BY id DESC) = 1", None),
        ("SELECT id FROM orders WHERE upper(id) = '7'", [(7,)]),
        ("SELECT count(*) FROM orders WHERE day - DATE '2024-01-01' >= INTERVAL '0' DAY", None),
        ("SELECT id, a, b FROM orders LATERAL VIEW inline(array(struct(1, 'x'), struct(2, 'y'))) t AS a, b "
         "WHERE id < 1", [(0, 1, "x"), (0, 2, "y")]),
    ],
)  # fmt: skip
def test_queries_that_spark_accepts_are_not_refused(
    on_spark: tamis.Session, spark: Any, paths: dict[str, Path], query: str, expected: list[tuple[object, ...]] | None
) -> None:
    found = sorted(map(tuple, on_spark.sql(query).collect()))
    if expected is None:
        for name in ("orders", "customers"):
            on_spark.sql(f"SELECT * FROM {name}").createOrReplaceTempView(name)
        expected = sorted(map(tuple, spark.sql(query).collect()))
        for name in ("orders", "customers"):
            spark.catalog.dropTempView(name)
    assert found == expected


def test_unsupported_sql_runs_as_text_on_spark(
    on_spark: tamis.Session, spark: Any, tmp_path: Path, paths: dict[str, Path]
) -> None:
    on_spark.register("texts", pa.table({"id": [1, 2], "js": ['{"a": 5}', '{"a": 7}']}))
    query = "SELECT texts.id, parse_json(js):a::int AS a FROM texts WHERE id > 1"
    assert on_spark.sql(query).collect() == [(2, 7)]
    assert on_spark.sql("SELECT parse_json(t.js):a::int AS a FROM texts t JOIN texts u ON t.id = u.id").count() == 2
    assert sorted(on_spark.sql("SELECT TRANSFORM(id) USING 'cat' AS (b) FROM texts").collect()) == [("1",), ("2",)]
    for wrong in ("SELECT parse_json(js):a:: FROM texts", "SELECT js:a FROM nothing", "SELEC js:a FROM texts"):
        with pytest.raises(tamis.TamisError):
            on_spark.sql(wrong)
    # Only queries are accepted, and none under policies.
    for statement in (
        "FROM texts INSERT INTO other SELECT js:a",
        "WITH x AS (SELECT js:a FROM texts) INSERT INTO y SELECT 1",
    ):
        with pytest.raises(tamis.TamisError):
            on_spark.sql(statement)
    protected = tamis.connect(spark=spark, policies={"default": "allow", "tables": {}})
    with pytest.raises(tamis.TamisError):
        protected.register("texts", pa.table({"js": ["{}"]})).sql("SELECT parse_json(js):a::int FROM texts")


def test_parameters_are_never_read_as_anything_else(on_spark: tamis.Session) -> None:
    for text in ("${env:HOME}", "${spark.app.name} ${x}", "`tamis_scan_1`", "{tamis_scan_1}", "${"):
        assert on_spark.sql("SELECT :a AS x FROM orders LIMIT 1", {"a": text}).collect() == [(text,)]


def test_rows_after_a_batch_without_rows_are_not_lost(spark: Any) -> None:
    batches = [pa.record_batch({"id": pa.array(values, pa.int64())}) for values in ([1], [], [2])]
    session = tamis.connect(spark=spark).register("m", pa.Table.from_batches(batches))
    assert sorted(session.sql("SELECT id FROM m").collect()) == [(1,), (2,)]
    nothing = pa.table({"s": pa.array([], pa.struct([("a", pa.list_(pa.int64()))]))})
    assert session.register("n", nothing).sql("SELECT s FROM n").collect() == []


DECIMAL = pa.decimal128(10, 2)
OF_ALL_TYPES = pa.table(
    {
        "id": pa.array(range(6), pa.int32()),
        "i": pa.array([0, 1, -7, 2**31 - 1, 86400, None], pa.int32()),
        "l": pa.array([0, 2, -7, 2**53 + 1, 1_600_000_000, None], pa.int64()),
        "f": pa.array([0.1, -0.0, float("nan"), 1.5, 16777216.0, None], pa.float32()),
        "d": pa.array([0.1, -0.0, float("nan"), 1.5, 1e15, None], pa.float64()),
        "c": pa.array([Decimal("0.10"), Decimal("1.50"), Decimal("-2.55"), Decimal(0), Decimal(7), None], DECIMAL),
        "s": pa.array(["ß", "é", "2020-1-1", " 5", "1e3", None]),
        "dt": pa.array([0, 18321, -1, 20087, None, 18262], pa.date32()),
        "ts": pa.array([0, 1583020799999999, -1, 1604208600000000, 1583650800000000, None], pa.timestamp("us", "UTC")),
        "ntz": pa.array([0, 1583020799999999, -1, 1604208600000000, 1583650800000000, None], pa.timestamp("us")),
    }
)
CONDITIONS = (
    *("upper(s) = 'SS'", "lower(s) = 'é' AND id < 5", "CAST(s AS BINARY) = X'C39F'", "try_cast(s AS INT) = 5"),
    *("CAST(l AS TIMESTAMP) > TIMESTAMP '2020-01-01 00:00:00'", "try_cast(s AS DATE) = DATE '2020-01-01'"),
    *("l = 9007199254740993D", "l IN (2, 9007199254740993D)", "c = 0.1D", "f = 0.1", "i % 2 = 1", "f + f > 0.2"),
    *("dt = '2020-02-29 10:00:00'", "dt = TIMESTAMP '1970-01-01 00:00:00'", "ntz < TIMESTAMP '2020-03-08 02:30:00'"),
)  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", pytest.param("America/New_York", marks=pytest.mark.interop)])
def test_filters_have_the_semantics_of_plain_spark(spark: Any, tmp_path: Path, zone: str) -> None:
    pq.write_table(OF_ALL_TYPES, tmp_path / "t.parquet")
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.read.parquet(str(tmp_path / "t.parquet")).createOrReplaceTempView("plain_types")
    try:
        session = tamis.connect(spark=spark)
        session.register("types", tmp_path / "t.parquet")
        # One query tests all conditions, because each query on Spark takes a second.
        found, expected = (
            " UNION ALL ".join(
                f"SELECT {index} AS place, id FROM {table} WHERE {condition}"
                for index, condition in enumerate(CONDITIONS)
            )
            for table in ("types", "plain_types")
        )
        assert sorted(session.sql(found).collect()) == sorted(spark.sql(expected).collect())
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.catalog.dropTempView("plain_types")


def test_overflows_without_ansi_are_sparks(spark: Any, tmp_path: Path) -> None:
    pq.write_table(OF_ALL_TYPES, tmp_path / "t.parquet")
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        session = tamis.connect(spark=spark)
        session.register("types", tmp_path / "t.parquet")
        found = session.sql("SELECT id FROM types WHERE i + 1 < -7 OR CAST(s AS INT) = 1000")
        assert found.collect() == [(3,)]
    finally:
        spark.conf.unset("spark.sql.ansi.enabled")


def test_windows_of_time(spark: Any, on_spark: tamis.Session) -> None:
    query = (
        "SELECT window.start AS start, count(*) AS n FROM (SELECT id, CAST(day AS TIMESTAMP) AS ts FROM orders) "
        "GROUP BY window(ts, '2 days') ORDER BY window.start"
    )
    found = on_spark.sql(query).collect()
    assert sum(row.n for row in found) == on_spark.sql("SELECT count(*) AS n FROM orders").collect()[0].n
    assert [row.start for row in found] == sorted({row.start for row in found})


def test_none_is_not_a_spark_session(paths: dict[str, Path]) -> None:
    query = sql_tables.open_session(paths).sql("SELECT id FROM orders")
    with pytest.raises(tamis.TamisError, match="spark must be a SparkSession, found a NoneType"):
        query.to_spark(None)


def test_the_duckdb_dialect_is_refused_on_spark(spark: Any) -> None:
    connection = tamis.connect(spark=spark)
    connection.register("rows", pa.table({"a": [1]}))
    for ask in (connection.sql, connection.explain):
        with pytest.raises(InvalidArgument, match="dialect='duckdb' runs on the embedded engine"):
            ask("FROM rows", dialect="duckdb")


def test_conditions_on_the_texts_of_partition_values(spark: Any, tmp_path: Path) -> None:
    rows = pa.table({"month": ["01", "02"] * 5, "id": pa.array(range(10), pa.int64())})
    deltalake.write_deltalake(str(tmp_path / "sales"), rows, partition_by=["month"])
    session = tamis.connect(spark=spark)
    session.register("sales", session.open(tmp_path / "sales"))
    for query in (
        "SELECT id FROM sales WHERE partition_text('month') = '02' AND id > 3",
        "SELECT id FROM (SELECT id, rank() OVER (ORDER BY id) FROM sales "
        "WHERE partition_text('month') > '01') WHERE id > 3",
    ):
        assert sorted(session.sql(query).toArrow()["id"].to_pylist()) == [5, 7, 9]
    counted = session.sql("SELECT count(*) FROM sales WHERE ?", [tamis.PartitionFilter.eq("month", "02")])
    assert counted.toArrow().to_pydict() == {"count(1)": [5]}
