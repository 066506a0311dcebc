"""The judge: DuckDB says for each row whether a predicate is TRUE, FALSE or NULL."""

from __future__ import annotations

from functools import cache

import duckdb
import pyarrow as pa

from builders.predicates import judge_column


def truth(rows: pa.Table, sql: str) -> list[bool | None]:
    """The value of a predicate for every row, in order."""
    seen = pa.table(
        {name: _plain(rows[name].combine_chunks()) for name in rows.column_names}
        | {"__row": pa.array(range(len(rows)), pa.int64())}
    )
    connection = _connection()
    connection.register("rows", seen)
    try:
        found = connection.execute(f"SELECT CAST(({sql}) AS BOOLEAN) AS answer FROM rows ORDER BY __row")
        return [answer for (answer,) in found.fetchall()]
    finally:
        connection.unregister("rows")


@cache
def _connection() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    return connection


def _plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_struct(values.type):
        children = [_plain(child) for child in values.flatten()]
        return pa.StructArray.from_arrays(children, names=[field.name for field in values.type], mask=values.is_null())
    return judge_column(values)
