"""The 99 queries of TPC-DS, in DuckDB's own words and unchanged: the same rows as DuckDB itself over the same files."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import closing
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis

pytestmark = pytest.mark.interop

SCALE = "0.01"
ROOT = Path(__file__).parents[2]
PROGRAM = ROOT / "tests" / "builders" / "query" / "tpcds_by_duckdb.py"
QUERIES = range(1, 100)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the tables as Parquet files, and the texts of the queries."""
    python = Path(os.environ.get("TAMIS_TPCDS_PYTHON") or ROOT / ".venv-tpcds" / "bin" / "python")
    if not python.exists():
        pytest.skip(f"no {python}: `make test-interop` makes an environment with DuckDB's TPC-DS extension")
    folder = tmp_path_factory.mktemp("tpcds")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(python), str(PROGRAM), str(folder), SCALE]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr[-4000:]
    return folder


@pytest.fixture(scope="module")
def texts(world: Path) -> dict[int, str]:
    found = dict(json.loads((world / "queries.json").read_text()))
    assert sorted(found) == list(QUERIES)
    return found


@pytest.fixture(scope="module")
def peer(world: Path) -> Iterator[duckdb.DuckDBPyConnection]:
    with closing(duckdb.connect()) as connection:
        for path in sorted(world.glob("*.parquet")):
            connection.execute(f"CREATE VIEW {path.stem} AS FROM read_parquet('{path}')")
        yield connection


@pytest.fixture(scope="module", params=["parquet", "delta"])
def session(world: Path, request: pytest.FixtureRequest) -> tamis.Session:
    c = tamis.connect()
    paths = sorted(world.glob("*.parquet"))
    assert len(paths) == 24
    for path in paths:
        location = path
        if request.param == "delta":
            location = world / "delta" / path.stem
            if not location.exists():
                deltalake.write_deltalake(str(location), pq.read_table(path))
        c.register(path.stem, str(location))
    return c


def comparable(table: pa.Table) -> list[tuple[str, ...]]:
    """Rows in an order of their own. Sums of doubles depend on the order of the rows, in the last digits."""

    def format_value(value: Any) -> str:
        return f"{float(value):.6g}" if isinstance(value, float | Decimal) else str(value)

    rows = zip(*(column.to_pylist() for column in table.columns), strict=True)
    return sorted(tuple(map(format_value, row)) for row in rows)


@pytest.mark.parametrize("number", QUERIES)
def test_a_query_runs_unchanged(
    session: tamis.Session, peer: duckdb.DuckDBPyConnection, texts: dict[int, str], number: int
) -> None:
    found = session.sql(texts[number], dialect="duckdb").to_arrow()
    wanted = peer.sql(texts[number]).to_arrow_table()
    assert found.column_names == wanted.column_names
    assert comparable(found) == comparable(wanted)
