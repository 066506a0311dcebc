"""Registered tables of a session, explain, and rules that are switched off."""

from __future__ import annotations

import json
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import deltalake
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import InvalidArgument, TableError, TableNotFound, UnsupportedFeature
from tamis.query.connectors.connector import Connector
from tamis.query.query import get_compiled_query
from tamis.query.rules import ALL


def write(path: Path, **columns: list[object]) -> Path:
    pq.write_table(pa.table(columns), path)
    return path


def test_a_table_is_registered_as_object_as_path_and_as_rows(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", id=[1, 2, 3])
    session = tamis.connect()
    session.register("opened", session.open(path)).register("placed", path).register("text", str(path))
    session.register("arrow", pa.table({"id": [1, 2, 3]}))
    session.register("frame", polars.DataFrame({"id": [1, 2, 3]}))
    session.register("pandas", pa.table({"id": [1, 2, 3]}).to_pandas())
    session.register("scan", session.open(path).scan("id > 0"))
    session.register("query", session.sql("SELECT id FROM arrow"))
    for name in ("opened", "placed", "text", "arrow", "frame", "pandas", "scan", "query"):
        assert session.sql(f"SELECT sum(id) AS s FROM {name}").to_arrow()["s"][0].as_py() == 6


def test_table_names_have_parts_and_ignore_case(tmp_path: Path) -> None:
    session = tamis.connect()
    session.register("Sales.Orders", pa.table({"id": [7]}))
    session.register("`a.b`", pa.table({"id": [8]}))
    assert session.sql("SELECT id FROM sales.ORDERS").to_arrow()["id"].to_pylist() == [7]
    assert session.sql("SELECT id FROM `a.b`").to_arrow()["id"].to_pylist() == [8]


def test_registering_a_name_again_does_not_affect_existing_queries() -> None:
    session = tamis.connect()
    session.register("t", pa.table({"id": [1]}))
    before = session.sql("SELECT id FROM t")
    session.register("t", pa.table({"id": [2]}))
    assert session.sql("SELECT id FROM t").to_arrow()["id"].to_pylist() == [2]
    assert before.to_arrow()["id"].to_pylist() == [1]


@pytest.mark.parametrize("format", ["parquet", "hive", "delta"])
def test_a_path_after_the_name_of_a_format_is_a_table(tmp_path: Path, format: str) -> None:
    import deltalake

    rows = pa.table({"id": [1, 2]})
    path = tmp_path / "t"
    if format == "delta":
        deltalake.write_deltalake(str(path), rows)
    else:
        path.mkdir()
        pq.write_table(rows, path / "a.parquet")
    assert tamis.connect().sql(f"SELECT count(*) AS n FROM {format}.`{path}`").to_arrow()["n"][0].as_py() == 2


@pytest.mark.parametrize("name", ["", " ", "a..b", 5])
def test_an_invalid_table_name_is_refused(name: object) -> None:
    with pytest.raises(InvalidArgument):
        tamis.connect().register(name, pa.table({"id": [1]}))  # type: ignore[arg-type]


def test_an_unsupported_table_object_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="anything Arrow can read, found an int"):
        tamis.connect().register("t", 5)


def test_an_unknown_table_is_reported_with_the_known_ones() -> None:
    session = tamis.connect().register("orders", pa.table({"id": [1]}))
    with pytest.raises(TableNotFound, match=r"no table 'ordes'.*Did you mean 'orders'\? Tables: orders\."):
        session.sql("SELECT * FROM ordes")


def test_explain_shows_plans_rules_and_scans(tmp_path: Path) -> None:
    session = tamis.connect().register("t", write(tmp_path / "t.parquet", id=[1, 2, 3], x=[1.0, 2.0, 3.0]))
    query = "SELECT x FROM t WHERE id > 1"
    text = session.explain(query)
    asked, runs = text.split("Optimized plan")
    assert "Filter `t.id` > 1" in asked
    assert "Filter" not in runs
    assert "push_filter_into_scan" in runs
    explained = json.loads(session.explain(query, format="json"))
    assert [explained["before"]["node"], explained["after"]["node"]] == ["Project", "TableScan"]
    assert {rule["rule"] for rule in explained["rules"]} == {rule.name for rule in ALL}
    assert [scan["connector"] for scan in explained["scans"]] == ["lake"]
    with pytest.raises(InvalidArgument, match="no format 'xml'"):
        session.explain(query, format="xml")


def test_rules_are_switched_off_by_name(tmp_path: Path) -> None:
    session = tamis.connect().register("t", write(tmp_path / "t.parquet", id=[1, 2, 3]))
    query = "SELECT id FROM t WHERE id > 1"
    assert "Filter" in session.explain(query, rules={"push_filter_into_scan": False}).split("Optimized plan")[1]
    assert "none applied" in session.explain(query, rules=False)
    with pytest.raises(InvalidArgument, match=r"no rule 'push_it'\. Rules: "):
        session.sql(query, rules={"push_it": False}).to_arrow()


def test_a_query_is_lazy(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", id=[1, 2, 3])
    session = tamis.connect().register("t", path)
    query = session.sql("SELECT id FROM t")
    assert repr(query) == "<tamis.Query SELECT id FROM t>"
    assert get_compiled_query(query).names == ("id",)
    batches = query.to_batches()
    assert next(batches).num_rows == 3


def test_several_queries_run_concurrently(tmp_path: Path) -> None:
    from concurrent.futures import ThreadPoolExecutor

    session = tamis.connect().register("t", write(tmp_path / "t.parquet", id=list(range(1000))))

    def count(number: int) -> object:
        return session.sql(f"SELECT count(*) AS n FROM t WHERE id % 10 < {number}").to_arrow()["n"][0].as_py()

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(count, range(8))) == [number * 100 for number in range(8)]


def test_closing_an_unfinished_reader_releases_the_engine(tmp_path: Path) -> None:
    session = tamis.connect().register("t", pa.table({"id": range(1_000_000)}))
    batches = session.sql("SELECT id FROM t").to_batches()
    assert next(batches).num_rows > 0
    batches.close()  # type: ignore[attr-defined]
    assert session.sql("SELECT count(*) AS n FROM t").to_arrow()["n"][0].as_py() == 1_000_000


def test_unknown_tables_of_attached_databases_are_reported_with_the_nearest(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "shop.sqlite") as shop:
        shop.execute("CREATE TABLE customers (id INTEGER)")
    shop.close()
    session = tamis.connect().register("orders", pa.table({"id": [1]})).attach("shop", tmp_path / "shop.sqlite")
    for query, message in (
        ("shop.custmers", "no table 'custmers' in shop. Did you mean 'shop.customers'? Tables: customers."),
        ("shp.customers", "Did you mean 'shop.customers'? Databases: shop."),
        ("shop", "shop is a database, not a table: write shop.table. Tables: shop.customers."),
        ("ordrs", "no table 'ordrs' in this session. Did you mean 'orders'? Tables: orders."),
    ):
        with pytest.raises(TableNotFound, match=re.escape(message)):
            session.sql(f"SELECT * FROM {query}")
    assert session.tables == ["orders", "shop.customers"]


def test_tables_named_by_path_are_not_listed(tmp_path: Path) -> None:
    path = write(tmp_path / "t.parquet", id=[1, 2, 3])
    session = tamis.connect().register("rows", pa.table({"id": [1]}))
    assert session.sql(f"SELECT count(*) AS n FROM parquet.`{path}`").to_arrow()["n"].to_pylist() == [3]
    assert session.tables == ["rows"]


def test_a_delta_table_is_not_read_as_its_parquet_files(tmp_path: Path) -> None:
    deltalake.write_deltalake(tmp_path / "orders", pa.table({"id": [1]}))
    session = tamis.connect()
    for dialect, quote in (("spark", "`"), ("duckdb", '"')):
        with pytest.raises(
            UnsupportedFeature, match="is a delta table, whose files alone are not its rows: write delta"
        ):
            session.sql(f"SELECT * FROM parquet.{quote}{tmp_path}/orders{quote}", dialect=dialect)
        found = session.sql(f"SELECT * FROM delta.{quote}{tmp_path}/orders{quote}", dialect=dialect)
        assert found.to_arrow().num_rows == 1


def test_a_database_needs_a_unique_name(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "shop.sqlite").close()
    (tmp_path / "shop.sqlite").touch()
    session = tamis.connect().attach("shop", tmp_path / "shop.sqlite")
    for name in ("", "a.b", "SHOP"):
        with pytest.raises(InvalidArgument):
            session.attach(name, tmp_path / "shop.sqlite")


def test_invalid_rules_are_reported() -> None:
    session = tamis.connect()
    with pytest.raises(InvalidArgument, match="rules= must be True, False, or a mapping of rules"):
        session.sql("SELECT 1", rules="none")  # type: ignore[arg-type]


class Letters(Connector):
    """One table, which declares two columns and reads those that its constructor received."""

    name = "letters"

    def __init__(self, **read: list[object]) -> None:
        self._read = read

    def table(self, name: tuple[str, ...]) -> str | None:
        return "abc" if name == ("abc",) else None

    def table_names(self) -> list[str]:
        return ["abc"]

    def columns(self, handle: object) -> pa.Schema:
        return pa.schema([("letter", pa.string()), ("place", pa.int64())])

    def read(self, handle: object) -> Iterator[pa.RecordBatch]:
        yield pa.RecordBatch.from_pydict(self._read)


def test_attaching_an_invalid_connector_is_an_error() -> None:
    class Reads:
        def push_filter(self) -> None: ...
        def read(self) -> None: ...

    with pytest.raises(InvalidArgument, match="found the class Letters"):
        tamis.connect().attach("x", Letters)
    with pytest.raises(InvalidArgument, match=r"the connector Reads has no \w+\(\): derive it from"):
        tamis.connect().attach("x", Reads())


@pytest.mark.parametrize("query", ["SELECT * FROM x.abc", "SELECT upper(letter), place FROM x.abc"])
def test_a_connector_that_reads_other_columns_than_declared_is_an_error(query: str) -> None:
    assert tamis.connect().attach("x", Letters(letter=["a"], place=[1])).sql(query).to_arrow().num_rows == 1
    for read in ({"letter": ["a"]}, {"letter": [["a"]], "place": ["b"]}):
        session = tamis.connect().attach("x", Letters(**read))
        with pytest.raises(
            TableError, match=r"a connector's read\(\) returned the columns letter .* return exactly what"
        ):
            session.sql(query).to_arrow()
    with pytest.raises(TableNotFound, match=r"no table 'acb' in x. Did you mean 'x.abc'\?"):
        session.sql("SELECT * FROM x.acb")
