"""The oracle: DuckDB evaluates a predicate for each row to TRUE, FALSE or NULL."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import duckdb
import pyarrow as pa
import pyarrow.compute as pc

from builders.values.by_type import to_oracle_column

_AT_ONCE = 200


def evaluate_predicate(rows: pa.Table, sql: str) -> list[bool | None]:
    """Return the value of a predicate for every row, in order."""
    (answers,) = evaluate_predicates(rows, [sql])
    return answers


def evaluate_predicates(rows: pa.Table, predicates: Sequence[str]) -> list[list[bool | None]]:
    """Return the values of each predicate for every row, in order."""
    if not rows.num_rows:
        return [[] for _ in predicates]
    seen = pa.table(
        {name: _to_plain(rows[name].combine_chunks()) for name in rows.column_names}
        | {"__row": pa.array(range(len(rows)), pa.int64())}
    )
    connection = _connect()
    connection.register("rows", seen)
    found: list[list[bool | None]] = []
    try:
        for start in range(0, len(predicates), _AT_ONCE):
            answers = ", ".join(f"CAST(({sql}) AS BOOLEAN)" for sql in predicates[start : start + _AT_ONCE])
            table = connection.execute(f"SELECT {answers} FROM rows ORDER BY __row").fetchall()
            found.extend(map(list, zip(*table, strict=True)))
    finally:
        connection.unregister("rows")
    return found


@cache
def _connect() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect(":memory:", config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    # DuckDB 2.0 turns -x < NaN into FALSE when it optimises.
    connection.execute("PRAGMA disable_optimizer")
    return connection


def _to_plain(values: pa.Array | pa.ChunkedArray) -> pa.Array:
    if isinstance(values, pa.ChunkedArray):
        values = pa.concat_arrays(values.chunks) if values.num_chunks else pa.array([], values.type)
    if pa.types.is_struct(values.type):
        children = [_to_plain(child) for child in values.flatten()]
        return pa.StructArray.from_arrays(children, names=[field.name for field in values.type], mask=values.is_null())
    if pa.types.is_nested(values.type):
        # Predicates only test whether lists and maps are NULL.
        return pc.if_else(values.is_valid(), True, None)
    return to_oracle_column(values)
