"""Sessions: what `tamis.connect` takes and opens. Those on Spark are in `tests/engines/spark`."""

from __future__ import annotations

import pickle
import sqlite3
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.catalog.sql import SqlCatalog

import tamis
from tamis.errors import AccessDenied, InvalidArgument, MissingDependency, TableNotFound, TamisError, UnsupportedFeature


def test_a_session_without_spark_opens_tables_as_open_does(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "day=1" / "a.parquet")
    session = tamis.connect()
    table = session.open(tmp_path, partitioning={"day": "string"})
    assert table.schema == tamis.open(tmp_path, partitioning={"day": "string"}).schema
    assert table.scan("id = 2").to_arrow().to_pydict() == {"id": [2], "day": ["1"]}
    assert (session.planning, session.engine.name) == ("local", "local")
    assert repr(session) == "<tamis.Session on local, planning='local'>"


@pytest.mark.parametrize("planning", ["cluster", None, 1])
def test_planning_is_one_of_three(planning: object) -> None:
    with pytest.raises(InvalidArgument, match=r"unknown planning mode .*: expected auto, local, spark"):
        tamis.connect(planning=planning)


def test_planning_on_spark_needs_a_session() -> None:
    with pytest.raises(InvalidArgument, match=r"planning='spark' needs a Spark session: tamis.connect\(spark="):
        tamis.connect(planning="spark")


def test_an_object_that_is_not_a_spark_session_is_refused() -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(InvalidArgument, match="spark must be a SparkSession, found a str"):
        tamis.connect(spark="local[2]")


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    with pytest.raises(MissingDependency, match=r"pip install 'tamis\[spark\]'"):
        tamis.connect(spark=object())


def test_tables_and_databases_are_given_back(tmp_path: Path) -> None:
    path = tmp_path / "shop.duckdb"
    with duckdb.connect(str(path)) as database:
        database.execute(
            "CREATE SCHEMA other; CREATE TABLE other.far (id INTEGER); CREATE TABLE near AS SELECT 1 AS id"
        )
    with tamis.connect() as session:
        session.attach("shop", f"duckdb:///{path}").register("t", pa.table({"id": [1]}))
        assert session.tables == ["shop.near", "shop.other.far", "t"]
        query = session.sql("SELECT id FROM t")
        assert session.unregister("T").tables == ["shop.near", "shop.other.far"]
        assert query.to_arrow().num_rows == 1
        with pytest.raises(TableNotFound):
            session.sql("SELECT id FROM t")
        with pytest.raises(TableNotFound, match="no table 't' is registered"):
            session.unregister("t")
    # The file is no longer open: it can be written.
    with duckdb.connect(str(path)) as database:
        database.execute("INSERT INTO near VALUES (2)")
    with pytest.raises(TableNotFound):
        session.sql("SELECT * FROM shop.near")


def test_the_schema_of_a_query_is_known_without_reading(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1, 2], "day": [date(2024, 1, 1)] * 2}), tmp_path / "t.parquet")
    session = tamis.connect().register("t", tmp_path / "t.parquet")
    for text in (
        "SELECT id, day AS d, id + 1 AS next FROM t",
        "SELECT day, count(*) AS n, sum(id), max(id) FROM t GROUP BY day",
        "SELECT rank() OVER (ORDER BY id) AS r FROM t",
    ):
        query = session.sql(text)
        schema = query.schema
        assert schema == query.to_arrow().schema
    query = session.sql("SELECT id FROM t")
    (tmp_path / "t.parquet").unlink()
    assert query.schema.names == ["id"]


def test_options_of_the_storage_are_for_tables_that_have_none(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[object] = []

    def refuse(uri: str, *arguments: object, **options: object) -> None:
        given.append(options.get("storage_options", arguments[5] if len(arguments) > 5 else None))
        raise InvalidArgument("not now")

    monkeypatch.setattr("tamis.session.open_source", refuse)
    session = tamis.connect(storage_options={"region": "all"})
    for open_it in (
        lambda: session.open("s3://lake/a"),
        lambda: session.open("s3://lake/a", storage_options={"region": "own"}),
        lambda: session.open("s3://lake/a", None, None, None, None, None, {"region": "third"}),
        lambda: session.sql("SELECT * FROM delta.`s3://lake/a`"),
    ):
        with pytest.raises(InvalidArgument, match="not now"):
            open_it()
    assert given == [{"region": "all"}, {"region": "own"}, {"region": "third"}, {"region": "all"}]


def test_an_object_that_cannot_be_pickled_names_an_alternative(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t.parquet")
    session = tamis.connect()
    table = session.open(tmp_path / "t.parquet")
    query = session.register("t", table).sql("SELECT id FROM t")
    for made, way_out in ((session, "tamis.connect"), (table, "tamis.open"), (table.scan(), "URI"), (query, "text")):
        with pytest.raises(TypeError, match=f"cannot be pickled: .*{way_out}"):
            pickle.dumps(made)


def test_a_query_on_a_detached_database_raises_an_error(tmp_path: Path) -> None:
    with duckdb.connect(str(tmp_path / "d.duckdb")) as database:
        database.execute("CREATE TABLE t AS SELECT 1 AS id")
    session = tamis.connect().attach("d", f"duckdb:///{tmp_path}/d.duckdb")
    query = session.sql("SELECT id FROM d.t")
    session.detach("d")
    with pytest.raises(TamisError, match="closed"):
        query.to_arrow()


def test_types_that_the_engine_does_not_take(tmp_path: Path) -> None:
    wide = pa.array([Decimal(7)], pa.decimal256(50, 0))
    narrow = pa.array([Decimal(7)], pa.decimal256(20, 0))
    rows = pa.table({"half": pa.array([1.5], pa.float16()), "wide": wide, "narrow": narrow})
    session = tamis.connect().register("t", rows)
    found = session.sql("SELECT half + 0 AS h, narrow, rank() OVER (ORDER BY half) AS r FROM t").to_arrow().to_pylist()
    assert found == [{"h": 1.5, "narrow": 7, "r": 1}]
    with pytest.raises(UnsupportedFeature, match="'wide' is a decimal of 50 digits"):
        session.sql("SELECT wide FROM t").to_arrow()
    with pytest.raises(InvalidArgument, match="several columns named 'a'"):
        session.register("twins", pa.Table.from_arrays([pa.array([1]), pa.array([2])], ["a", "a"]))


def test_a_part_of_a_registered_table_is_under_its_policy(tmp_path: Path) -> None:
    for region in ("eu", "us"):
        (tmp_path / "orders" / f"region={region}").mkdir(parents=True)
        pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "orders" / f"region={region}" / "a.parquet")
    policies = {"default": "allow", "tables": {"sales": [{"principals": ["ana"], "rows": "id > 1"}]}}
    session = tamis.connect(policies=policies).register("sales", tmp_path / "orders")
    ana = session.as_principal("ana")
    assert ana.open(tmp_path / "orders" / "region=us").scan().count() == 1
    assert ana.open(tmp_path / "orders" / "region=us" / "a.parquet").scan().count() == 1
    session.register("part", tmp_path / "orders" / "region=us")
    assert ana.sql("SELECT count(*) AS n FROM part").to_arrow()["n"].to_pylist() == [1]
    with pytest.raises(AccessDenied):
        session.as_principal("ben").open(tmp_path / "orders" / "region=us")


# --- Many threads -----------------------------------------------------------------------------------------------------


def run_at_once(*calls: Callable[[], Any]) -> list[Any]:
    """Run calls at the same time, each in its own thread, and return their results. Raise the first error."""
    start = threading.Barrier(len(calls), timeout=60)
    with ThreadPoolExecutor(len(calls)) as pool:

        def run(call: Callable[[], Any]) -> Any:
            start.wait()
            return call()

        return [future.result() for future in [pool.submit(run, call) for call in calls]]


class MissedByAll(dict[str, Any]):
    """A dictionary in which the first failed look-up of each thread waits for those of all other threads."""

    def __init__(self, threads: int) -> None:
        super().__init__()
        self._barrier = threading.Barrier(threads, timeout=60)
        self._thread = threading.local()

    def _wait(self) -> None:
        if not getattr(self._thread, "was_here", False):
            self._thread.was_here = True
            self._barrier.wait()

    def get(self, key: str, default: Any = None) -> Any:
        found = super().get(key, default)
        if found is None:
            self._wait()
        return found

    def __contains__(self, key: object) -> bool:
        found = super().__contains__(key)
        if not found:
            self._wait()
        return found


def test_E12_threads_that_register_at_once_lose_no_table() -> None:
    threads = 8
    session = tamis.connect()
    session._catalog_of = MissedByAll(threads)
    rows = [pa.table({"x": [number]}) for number in range(threads)]
    run_at_once(*(partial(session.register, f"t{number}", each) for number, each in enumerate(rows)))
    assert session.tables == [f"t{number}" for number in range(threads)]
    found = [session.sql(f"SELECT x FROM t{number}").to_arrow()["x"].to_pylist() for number in range(threads)]
    assert found == [[number] for number in range(threads)]


def test_E12_rows_that_are_registered_at_once_keep_their_names() -> None:
    session, threads, each = tamis.connect(), 8, 25
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)

    def register(thread: int) -> None:
        for number in range(each):
            session.register(f"t{thread}_{number}", pa.table({"x": [thread * each + number]}))
            assert session.tables
            session.as_principal("ana").register(f"u{thread}_{number}", pa.table({"x": [-1]}))
            session.unregister(f"u{thread}_{number}")

    try:
        run_at_once(*(partial(register, thread) for thread in range(threads)))
    finally:
        sys.setswitchinterval(before)
    catalog = session._catalog
    for thread in range(threads):
        for number in range(each):
            connector, handle = catalog.find((f"t{thread}_{number}",))  # type: ignore[misc]
            table = catalog.connectors[connector]._tables[handle.version]  # type: ignore[attr-defined]
            assert table["x"].to_pylist() == [thread * each + number]
    assert len(session.tables) == threads * each


def test_E12_of_threads_that_attach_one_name_one_succeeds(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    sqlite3.connect(database).close()
    session = tamis.connect()

    def attach() -> bool:
        try:
            session.attach("db", f"sqlite:///{database}")
        except InvalidArgument:
            return False
        return True

    assert sum(run_at_once(*[attach] * 8)) == 1
    session.close()


def write_as(format: str, folder: Path) -> Path:
    rows = pa.table({"id": range(100), "p": [number % 4 for number in range(100)]})
    if format == "delta":
        deltalake.write_deltalake(folder, rows, partition_by=["p"])
    elif format == "iceberg":
        catalog = SqlCatalog("here", uri=f"sqlite:///{folder}.db", warehouse=str(folder))
        catalog.create_namespace("n")
        made = catalog.create_table("n.t", rows.schema)
        made.append(rows)
        made.delete("id = 99")
        made.append(rows.slice(99))
        return Path(made.location().removeprefix("file://"))
    else:
        pq.write_to_dataset(rows, folder, partition_cols=["p"])
    return folder


@pytest.mark.parametrize("format", ["delta", "iceberg", "hive"])
def test_E12_one_table_and_one_session_from_many_threads_from_the_first_call_on(tmp_path: Path, format: str) -> None:
    folder = write_as(format, tmp_path / "t")
    table, session = tamis.open(folder), tamis.connect()
    scan = table.scan("p = 1")
    calls: list[Callable[[], Any]] = [
        lambda: table.scan("id < 50").count(),
        lambda: table.scan("id < 50").to_arrow().num_rows,
        lambda: table.files().num_rows > 0,
        lambda: table.schema.names,
        lambda: scan.count(),
        lambda: scan.to_arrow().num_rows,
        lambda: scan.plan().num_files,
        lambda: session.register("t", table).sql("SELECT count(*) AS n FROM t").to_arrow()["n"].to_pylist(),
    ]
    found = run_at_once(*calls, *calls)
    expected = [50, 50, True, ["id", "p"], 25, 25, scan.plan().num_files, [100]]
    assert found == [*expected, *expected]


def test_register_takes_the_name_first(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1]}), tmp_path / "one.parquet")
    session = tamis.connect()
    for rows in (session.open(tmp_path / "one.parquet"), pa.table({"id": [1]})):
        with pytest.raises(InvalidArgument, match=r"takes the name first, found a Table: c\.register\('d', …\)"):
            session.register(rows, "d")  # type: ignore[arg-type]
