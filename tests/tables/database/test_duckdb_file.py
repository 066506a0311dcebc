"""Databases of DuckDB: what is wrong with one is an error of ours."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

import tamis
from tamis.errors import TableError


def test_a_view_of_a_table_that_is_gone_is_an_error_that_names_the_database(tmp_path: Path) -> None:
    place = tmp_path / "shop.duckdb"
    with duckdb.connect(str(place)) as connection:
        connection.execute("CREATE TABLE t AS SELECT 1 AS x; CREATE VIEW v AS SELECT x FROM t; DROP TABLE t")
    session = tamis.connect().attach("shop", f"duckdb:///{place}")
    with pytest.raises(TableError, match=r"shop\.duckdb did not answer a query"):
        session.sql("SELECT * FROM shop.v")
