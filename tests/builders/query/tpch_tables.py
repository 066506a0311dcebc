"""The tables of TPC-H in three formats, and DuckDB's results over the plain files."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.schema import Schema

import tamis
from builders.pyiceberg.tables import create_table
from builders.query import tpch
from tamis.types import replace_view_types


def _split_rows(rows: pa.Table) -> Iterator[pa.Table]:
    """Yield the rows in a few parts, like daily appends."""
    size = max(1, -(-rows.num_rows // 4))
    return (rows.slice(start, size) for start in range(0, rows.num_rows, size))


def _write_delta(rows: pa.Table, location: Path) -> Path:
    for part in _split_rows(rows):
        deltalake.write_deltalake(str(location), part, mode="append")
    return location


def _write_iceberg(rows: pa.Table, location: Path) -> Path:
    from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
    from pyiceberg.schema import assign_fresh_schema_ids

    schema: Schema = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(rows.schema))
    table = create_table(location, schema)
    for part in _split_rows(rows):
        table.append(part.cast(schema_to_pyarrow(schema, include_field_ids=False)))
    return location


def _write_hive(rows: pa.Table, location: Path) -> Path:
    """Write a table, partitioned by a column of few values if it has one, else in several row groups."""
    keys = {"lineitem": "l_returnflag", "orders": "o_orderstatus", "customer": "c_mktsegment"}
    key = keys.get(location.name)
    location.mkdir(parents=True)
    if key is None:
        pq.write_table(rows, location / "part-0.parquet", row_group_size=2_000)
        return location
    # The partition column comes last, as everywhere.
    for value in pc.unique(rows[key]).to_pylist():
        folder = location / f"{key}={value}"
        folder.mkdir()
        own = rows.filter(pc.equal(rows[key], value)).drop_columns([key])
        pq.write_table(own, folder / "part-0.parquet", row_group_size=5_000)
    return location


FORMATS: dict[str, Callable[[pa.Table, Path], Path]] = {
    "delta": _write_delta,
    "iceberg": _write_iceberg,
    "hive": _write_hive,
}


def _generate_tables(folder: Path, scale: float) -> dict[str, pa.Table]:
    files = tpch.write_tables(folder, scale)
    read = {name: pq.read_table(path) for name, path in files.items()}
    return {
        name: rows.cast(pa.schema([field.with_type(replace_view_types(field.type)) for field in rows.schema]))
        for name, rows in read.items()
    }


class World:
    """The tables of one scale, and DuckDB's results over them."""

    def __init__(self, folder: Path, scale: float) -> None:
        self._folder = folder
        self._rows = _generate_tables(folder / "plain", scale)
        self._peer = duckdb.connect()
        for name in self._rows:
            self._peer.execute(f"CREATE VIEW {name} AS SELECT * FROM '{folder / 'plain' / name}.parquet'")
        self._answers: dict[int, pa.Table] = {}
        self._sessions: dict[str, tamis.Session] = {}

    def answer(self, number: int) -> pa.Table:
        if number not in self._answers:
            self._answers[number] = self._peer.sql(tpch.QUERIES[number]).to_arrow_table()
        return self._answers[number]

    def session(self, format: str, spark: Any = None) -> tamis.Session:
        kind = f"{format}{'' if spark is None else ' on spark'}"
        if kind not in self._sessions:
            made = tamis.connect(spark=spark)
            for name, rows in self._rows.items():
                location = self._folder / format / name
                if not location.exists():
                    FORMATS[format](rows, location)
                made.register(name, made.open(location))
            self._sessions[kind] = made
        return self._sessions[kind]
