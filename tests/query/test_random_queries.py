"""Random queries have the same rows with the rules on, with them off, and on DuckDB over the same rows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tamis
from builders.query import sql_queries, sql_tables
from tamis.tuning import Tuning

EXAMPLES = settings.default.max_examples if settings.default is not None else 60
MODEST = settings(max_examples=max(10, EXAMPLES // 2), suppress_health_check=[*HealthCheck])
FEW = settings(max_examples=max(8, EXAMPLES // 6), suppress_health_check=[*HealthCheck])


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return sql_tables.write_tables(tmp_path_factory.mktemp("tables"))


@pytest.fixture(scope="module")
def session(paths: dict[str, Path]) -> tamis.Session:
    return sql_tables.open_session(paths)


@pytest.fixture(scope="module")
def sessions(paths: dict[str, Path]) -> dict[bool, tamis.Session]:
    """A session whose engine reads files by itself, and one that gets all rows from Tamis."""
    sizes = {True: 0, False: 2**60}
    return {
        is_native: sql_tables.open_session(paths, Tuning(min_native_bytes=size)) for is_native, size in sizes.items()
    }


@pytest.fixture(scope="module")
def peer() -> Iterator[duckdb.DuckDBPyConnection]:
    connection = sql_tables.open_duckdb()
    yield connection
    connection.close()


def to_duckdb(query: str) -> str:
    return query.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")


@MODEST
@given(query=sql_queries.queries(), is_native=st.booleans())
def test_rules_change_no_row_and_duckdb_agrees(
    sessions: dict[bool, tamis.Session], peer: duckdb.DuckDBPyConnection, query: str, is_native: bool
) -> None:
    expected = peer.sql(to_duckdb(query)).to_arrow_table()
    session = sessions[is_native]
    found = session.sql(query).to_arrow()
    assert sql_tables.has_same_rows(found, expected), f"{query}\n{session.explain(query)}"
    assert sql_tables.has_types_of_duckdb(found, expected), query
    without = session.sql(query, rules=False).to_arrow()
    assert sql_tables.has_same_rows(without, expected), f"{query}\n{session.explain(query, rules=False)}"


@FEW
@given(data=st.data())
def test_O2_a_predicate_its_negation_and_its_null_part_all_rows(session: tamis.Session, data: st.DataObject) -> None:
    source = data.draw(sql_queries.sources())
    predicate = data.draw(sql_queries.predicates(source.columns))
    columns = ", ".join(f"{name} AS x{index}" for index, name in enumerate(source.columns))
    whole = session.sql(f"SELECT {columns} FROM {source.text}").to_arrow()
    parts: Counter[object] = Counter()
    for condition in (predicate, f"NOT ({predicate})", f"({predicate}) IS NULL"):
        found = session.sql(f"SELECT {columns} FROM {source.text} WHERE {condition}").to_arrow()
        parts.update(sql_tables.list_rows(found))
        counted = session.sql(f"SELECT count(*) FROM {source.text} WHERE {condition}").to_arrow()
        assert counted[0][0].as_py() == found.num_rows, f"{source.text} WHERE {condition}"
    assert parts == Counter(sql_tables.list_rows(whole)), f"{source.text} WHERE {predicate}"


@FEW
@given(data=st.data())
def test_a_predicate_keeps_the_rows_for_which_it_is_true(session: tamis.Session, data: st.DataObject) -> None:
    source = data.draw(sql_queries.sources())
    predicate = data.draw(sql_queries.predicates(source.columns))
    kept = session.sql(f"SELECT count(*) FROM {source.text} WHERE {predicate}").to_arrow()[0][0].as_py()
    summed = session.sql(f"SELECT sum(CASE WHEN {predicate} THEN 1 ELSE 0 END) FROM {source.text}").to_arrow()
    assert kept == int(summed[0][0].as_py() or 0), f"{source.text} WHERE {predicate}"
