"""Values of any expressions for the rows of a batch: by Arrow where it knows the functions, else by DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.nodes import Column, Expr, columns_of
from tamis.pushdown.nodes import Named

if TYPE_CHECKING:
    import duckdb

_ROWS = "rows_of_batch"
_EACH_ROW = "each row"


class Projection:
    """Some expressions, computed for batch after batch as columns of one schema. Any number of threads may use it."""

    def __init__(self, outputs: Sequence[Named], schema: pa.Schema) -> None:
        self._schema = schema
        others = [output for output in outputs if not _is_of_arrow(output.expr)]
        self._columns = [_column(output.expr) if _is_of_arrow(output.expr) else None for output in outputs]
        self._engine = _Engine([output.expr for output in others]) if others else None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        computed = iter(self._engine(batch) if self._engine is not None else ())
        arrays = [next(computed) if column is None else column(batch) for column in self._columns]
        if not arrays:
            return batch.select([])
        typed = [_of_type(array, field.type) for array, field in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=self._schema)


def _is_of_arrow(expr: Expr) -> bool:
    return isinstance(expr, Column) or can_evaluate(expr)


def _column(expr: Expr) -> Callable[[pa.RecordBatch], pa.Array]:
    if not isinstance(expr, Column):
        return Evaluator(expr)
    name, *fields = expr.path
    if not fields:
        return lambda batch: batch.column(name)
    return lambda batch: pc.struct_field(batch.column(name), fields)


def _of_type(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    return array if array.type == data_type else pc.cast(array, data_type)


class _Engine:
    """Expressions that Arrow has no kernels for."""

    def __init__(self, expressions: Sequence[Expr]) -> None:
        from tamis.scan.embedded import duckdb_sql

        selected = [f"({duckdb_sql(expr)}) AS value{index}" for index, expr in enumerate(expressions)]
        self._query = f"SELECT {', '.join(selected)} FROM {_ROWS}"
        self._names = list(dict.fromkeys(column.path[0] for expr in expressions for column in columns_of(expr)))
        self._connections = threading.local()

    def __call__(self, batch: pa.RecordBatch) -> list[pa.Array]:
        connection = self._connection()
        given = {_EACH_ROW: pa.nulls(batch.num_rows)} | {name: batch.column(name) for name in self._names}
        connection.register(_ROWS, pa.table(given))
        try:
            found = connection.sql(self._query).to_arrow_table()
        finally:
            connection.unregister(_ROWS)
        return [column.combine_chunks() for column in found.columns]

    def _connection(self) -> duckdb.DuckDBPyConnection:
        found: duckdb.DuckDBPyConnection | None = getattr(self._connections, "connection", None)
        if found is None:
            from tamis.scan.embedded import sealed_connection

            found = self._connections.connection = sealed_connection(self._query)
        return found
