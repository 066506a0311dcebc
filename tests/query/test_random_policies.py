"""Random queries under policies return the rows of DuckDB over tables with only the visible rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import tamis
from builders.query import sql_queries, sql_tables

# By table: the row filter and the masks, in SQL that DuckDB accepts too. Row filters that metadata, Arrow or only an
# engine can evaluate; masks that are constants, NULL, other columns, and functions.
POLICIES = [
    {
        "orders": ("region = 'eu'", {"note": "'hidden'", "amount": "NULL"}),
        "customers": ("Id < 8", {}),
        "events": ("kind <> 'buy'", {"value": "1.5"}),
    },
    {
        "orders": ("reverse(region) <> 'su' AND id >= 30", {"price": "price * 0", "customer": "id % 4"}),
        "customers": ("name LIKE 'customer%' AND region IS NOT NULL", {"name": "concat('c', right(name, 1))"}),
        "events": ("order_id % 2 = 0", {"kind": "upper(kind)"}),
    },
    {
        "orders": ("day BETWEEN DATE '2024-01-05' AND DATE '2024-01-15'", {"region": "note", "note": "region"}),
        "customers": ("region = 'eu' OR Id IN (1, 2, 3)", {"region": "NULL"}),
        "events": ("value > 0", {}),
    },
]

MODEST = settings(
    max_examples=max(10, (settings.default.max_examples if settings.default is not None else 60) // 2),
    suppress_health_check=[*HealthCheck],
)

Pair = tuple[tamis.Session, duckdb.DuckDBPyConnection]


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Pair]]:
    """A session for each policy, and DuckDB with its visible rows."""
    paths = sql_tables.write_tables(tmp_path_factory.mktemp("tables"))
    found = [(_make_session(paths, policy), _make_peer(policy)) for policy in POLICIES]
    yield found
    for _, peer in found:
        peer.close()


def _make_session(paths: dict[str, Path], policy: dict[str, tuple[str, dict[str, str]]]) -> tamis.Session:
    rules = {name: [{"principals": ["ana"], "rows": rows, "masks": masks}] for name, (rows, masks) in policy.items()}
    connection = tamis.connect(policies={"tables": rules})
    for name, path in paths.items():
        connection.register(name, tamis.open(path))
    return connection.as_principal("ana")


def _make_peer(policy: dict[str, tuple[str, dict[str, str]]]) -> duckdb.DuckDBPyConnection:
    peer = sql_tables.open_duckdb()
    for name, (rows, masks) in policy.items():
        kinds = {row[0]: row[1] for row in peer.execute(f"DESCRIBE {name}").fetchall()}
        columns = ", ".join(f'CAST({masks.get(each, each)} AS {kind}) AS "{each}"' for each, kind in kinds.items())
        peer.execute(f"CREATE OR REPLACE TABLE {name} AS SELECT {columns} FROM {name} WHERE {rows}")
    return peer


@MODEST
@given(query=sql_queries.queries(), index=st.integers(0, len(POLICIES) - 1))
def test_O7_a_query_returns_only_visible_rows(pairs: list[Pair], query: str, index: int) -> None:
    session, peer = pairs[index]
    in_duckdb = query.replace("LEFT SEMI JOIN", "SEMI JOIN").replace("LEFT ANTI JOIN", "ANTI JOIN")
    expected = peer.sql(in_duckdb).to_arrow_table()
    found = session.sql(query).to_arrow()
    assert sql_tables.has_same_rows(found, expected), query
    assert sql_tables.has_types_of_duckdb(found, expected), query
