"""Joins with dynamic filters return the same rows, and read less."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.oracle import evaluate_predicates
from builders.delta.cases import ROW, draw_delta_case
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.query import sql_queries, sql_tables
from builders.values.choices import Choices
from tamis.expr.nodes import Column
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.plan.nodes import Join, Output, TableScan, Values
from tamis.query.plan.optimizer import Context
from tamis.query.rules.joins import prune_with_dynamic_filters
from tamis.query.rules.joins.prune_with_dynamic_filters import build_key_predicate, push_dynamic_filters
from tamis.scan.scan import Scan
from tamis.tuning import DEFAULT_TUNING, Tuning

MODEST = settings(max_examples=max(5, settings().max_examples // 6), suppress_health_check=[*HealthCheck])


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    """A session in which dynamic filters are lists and ranges of few keys, for joins of any size."""
    tuning = Tuning(min_join_size_ratio=0, max_listed_keys=4, max_tested_keys=2, max_key_ranges=3)
    return sql_tables.open_session(sql_tables.write_tables(tmp_path_factory.mktemp("tables")), tuning)


@pytest.fixture(scope="module")
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = sql_tables.open_duckdb()
    yield connection
    connection.close()


@pytest.fixture(scope="module")
def _always() -> Iterator[None]:
    """Apply dynamic filters to each join that supports them, whether or not it would be worth it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prune_with_dynamic_filters, "is_filtered", lambda node, context: True)
        patch.setattr(prune_with_dynamic_filters, "may_prune", lambda scan, column, context: True)
        yield


@pytest.mark.usefixtures("_always")
@MODEST
@given(query=sql_queries.queries())
def test_joins_with_dynamic_filters_return_the_rows_of_duckdb(
    session: tamis.Session, peer: duckdb.DuckDBPyConnection, query: str
) -> None:
    text = query.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    expected = peer.sql(text).to_arrow_table()
    assert sql_tables.has_same_rows(session.sql(query).to_arrow(), expected), f"{query}\n{session.explain(query)}"


@MODEST
@given(st.data())
def test_a_pruning_predicate_drops_no_row_that_satisfies_it(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    choices = Choices(data.draw)
    folder = tmp_path_factory.mktemp("table")
    case = draw_delta_case(choices, folder, predicates=2)
    tested, pruning = case.predicates
    rows = case.rows()
    kept, needed = evaluate_predicates(rows, [tested.sql, pruning.sql])
    scan = Scan(tamis.open(folder)._source, tested.expr, pruning=pruning.expr)
    found = scan.to_arrow()[ROW].to_pylist()
    ids = rows[ROW].to_pylist()
    assert set(found) <= {number for number, is_kept in zip(ids, kept, strict=True) if is_kept}
    assert set(found) >= {
        number for number, *both in zip(ids, kept, needed, strict=True) if all(each is True for each in both)
    }
    assert len(found) == len(set(found))


# --- What is read -----------------------------------------------------------------------------------------------------


def write_star(folder: Path, tuning: Tuning = DEFAULT_TUNING) -> tamis.Session:
    """Write a hundred files of facts, clustered by the key of a dimension of a thousand rows."""
    log = DeltaLog(folder / "fact", {"key": "long", "value": "long"})
    parts = [
        pa.table({"key": [10 * number + each % 10 for each in range(50)], "value": range(50)}) for number in range(100)
    ]
    log.commit(*(data_file(log, f"{number}.parquet", part) for number, part in enumerate(parts)))
    names = pa.table({"key": range(1000), "name": [f"n{each}" for each in range(1000)]})
    log = DeltaLog(folder / "dimension", {"key": "long", "name": "string"})
    log.commit(data_file(log, "0.parquet", names))
    session = tamis.connect(tuning=tuning)
    session.register("fact", session.open(folder / "fact"))
    session.register("dimension", session.open(folder / "dimension"))
    return session


@pytest.mark.parametrize(
    ("condition", "kept", "rows"),
    [("name = 'n427'", {"42"}, 5), ("name IN ('n0', 'n999')", {"0", "99"}, 10), ("name = 'nobody'", set(), 0)],
)
def test_files_without_a_key_are_not_opened(tmp_path: Path, condition: str, kept: set[str], rows: int) -> None:
    session = write_star(tmp_path)
    for path in (tmp_path / "fact").glob("*.parquet"):
        if path.stem not in kept:
            path.unlink()
    query = f"SELECT sum(value), count(*) FROM fact JOIN dimension ON fact.key = dimension.key WHERE {condition}"
    assert session.sql(query).to_arrow()[1][0].as_py() == rows


def test_many_keys_prune_by_ranges(tmp_path: Path) -> None:
    session = write_star(tmp_path, Tuning(max_listed_keys=5))
    for path in (tmp_path / "fact").glob("*.parquet"):
        if path.stem not in {"42", "7", "8"}:
            path.unlink()
    wanted = ", ".join(f"'n{each}'" for each in (70, 71, 79, 80, 85, 89, 420, 429))
    query = f"SELECT count(*) FROM fact JOIN dimension ON fact.key = dimension.key WHERE name IN ({wanted})"
    assert session.sql(query).to_arrow()[0][0].as_py() == 40


def test_a_long_list_is_not_tested_row_by_row(tmp_path: Path) -> None:
    write_star(tmp_path)
    source = tamis.open(tmp_path / "fact")._source
    lake = LakeConnector("lake")
    lake.add(("fact",), source)
    handle = lake.table(("fact",))
    assert handle is not None
    column = handle.columns[0].column
    filter_of_keys = build_key_predicate(column, pa.array([3, 4]))
    assert filter_of_keys is not None
    made = lake.push_pruning(handle, filter_of_keys)
    assert made is not None
    # One file of fifty rows; no row is tested.
    assert sum(batch.num_rows for batch in lake.read(made)) == 50


def test_a_bloom_join_filter_drops_rows_that_ranges_keep(tmp_path: Path) -> None:
    write_star(tmp_path)
    lake = LakeConnector("lake")
    lake.add(("fact",), tamis.open(tmp_path / "fact")._source)
    handle = lake.table(("fact",))
    assert handle is not None
    scan = TableScan("lake", handle, (Output("f.key", pa.int64()), Output("f.value", pa.int64())))
    on = ((Column(("f.key",), type=pa.int64()), Column(("d.key",), type=pa.int64())),)
    join = Join(
        scan, Values(pa.table({"k": [1]}), (Output("d.key", pa.int64()),)), "inner", on, dynamic_filter_side="left"
    )
    context = Context({"lake": lake}, tuning=Tuning(max_listed_keys=5, max_tested_keys=5))
    found = push_dynamic_filters(join, pa.table({"k": list(range(0, 1000, 100))}), context)
    assert isinstance(found, TableScan)
    rows = pa.Table.from_batches(lake.read(found.handle), lake.columns(found.handle))
    # Ten files contain a key: five of the fifty rows of each file.
    assert set(range(0, 1000, 100)) <= set(rows["key"].to_pylist())
    assert 50 <= rows.num_rows < 500
