"""One table with values of every kind in SQLite, DuckDB and PostgreSQL, in the types of each database."""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa

from builders.values.by_type import TEXTS, list_values, make_array
from tamis import types

MORE_TEXTS = (
    "A", "Ab", "ABC", "ä", "Ä", "ß", "ss", "a*", "a?", "a[", "[a]", "!", "a!b", "'", '"', "a'b", "\\", "a\\b", "\\%",
    "%", "_", "a ", " a", "-- x", "'; DROP TABLE t; --", "a\tb", "😀", "e\u0301",
)  # fmt: skip

_DAYS = [day for day in list_values(pa.date32()) if -719162 <= day <= 2932896]
_TIMESTAMPS = [ticks for ticks in list_values(types.TIMESTAMP_NTZ) if abs(ticks) < 2 * 10**17]
_DECIMAL = pa.decimal128(10, 2)
_DECIMALS = [Decimal(value).scaleb(-2) for value in (0, 1, -1, 100, 150, -150, 9999999999, -9999999999)]

COLUMNS: dict[str, tuple[pa.DataType, Sequence[Any]]] = {
    "narrow": (pa.int16(), list_values(pa.int16())),
    "whole": (pa.int64(), list_values(pa.int64())),
    "single": (pa.float32(), list_values(pa.float32())),
    "number": (pa.float64(), (*list_values(pa.float64()), 0.1, 1 / 3, 0.30000000000000004, 1e308)),
    "amount": (_DECIMAL, _DECIMALS),
    "name": (pa.string(), (*TEXTS, *MORE_TEXTS)),
    "title": (pa.string(), (*MORE_TEXTS, *TEXTS)),
    "day": (pa.date32(), _DAYS),
    "created_at": (types.TIMESTAMP_NTZ, _TIMESTAMPS),
    "instant": (types.TIMESTAMP, _TIMESTAMPS),
    "flag": (pa.bool_(), (True, False)),
}
"""Columns by name: the type and the values. `title` has a case-insensitive collation if the database has one."""

IN_SQLITE = {
    "whole": "INTEGER",
    "number": "REAL",
    "name": "TEXT",
    "title": "TEXT COLLATE NOCASE",
    "day": "DATE",
    "flag": "BOOLEAN",
}


def make_rows(names: Sequence[str], count: int = 120) -> pa.Table:
    """Return rows in which every value occurs, and NULL in every column."""
    columns = {"id": pa.array(range(count), pa.int64())}
    for position, name in enumerate(names):
        data_type, values = COLUMNS[name]
        cells = (*values, None)
        # Steps of different lengths, so that values of two columns meet in many combinations.
        columns[name] = make_array(
            data_type, [cells[(row * (position + 1) + position) % len(cells)] for row in range(count)]
        )
    return pa.table(columns)


def write_sqlite(path: Path) -> pa.Table:
    """Write the table `t` to a SQLite file, and return its rows."""
    rows = make_rows(list(IN_SQLITE))
    numbers = rows["number"].to_pylist()
    # SQLite has neither NaN nor a negative zero.
    kept = [None if value is None or math.isnan(value) else value + 0.0 for value in numbers]
    rows = rows.set_column(rows.column_names.index("number"), "number", pa.array(kept, pa.float64()))
    with sqlite3.connect(path) as connection:
        declared = ", ".join(f"{name} {kind}" for name, kind in IN_SQLITE.items())
        connection.execute(f"CREATE TABLE t (id INTEGER PRIMARY KEY, {declared})")
        marks = ", ".join("?" * rows.num_columns)
        for row in rows.to_pylist():
            row["day"] = None if row["day"] is None else row["day"].isoformat()
            connection.execute(f"INSERT INTO t VALUES ({marks})", list(row.values()))
    connection.close()
    return rows


def write_duckdb(path: Path) -> pa.Table:
    """Write the table `t` to a DuckDB file, and return its rows."""
    rows = make_rows(list(COLUMNS))
    connection = duckdb.connect(str(path))
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("given", rows)
    connection.execute("CREATE TABLE t AS SELECT * FROM given")
    connection.close()
    return rows


def write_postgresql(uri: str) -> pa.Table:
    """Write the table `t` to PostgreSQL, and return its rows."""
    from adbc_driver_postgresql import dbapi

    rows = make_rows(list(COLUMNS))
    written = rows.set_column(rows.column_names.index("amount"), "amount", rows["amount"].cast(pa.string()))
    with dbapi.connect(uri, autocommit=True) as connection, connection.cursor() as cursor:
        cursor.execute("DROP TABLE IF EXISTS t")
        cursor.execute(
            "CREATE COLLATION IF NOT EXISTS whatever_case "
            "(provider = icu, locale = 'und-u-ks-level2', deterministic = false)"
        )
        cursor.adbc_ingest("t", written, mode="create")
        cursor.execute("ALTER TABLE t ALTER amount TYPE numeric(10, 2) USING amount::numeric(10, 2)")
        cursor.execute("ALTER TABLE t ALTER title TYPE text COLLATE whatever_case")
    return rows
