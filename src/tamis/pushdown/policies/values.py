"""Values of expressions for the rows of a batch: by Arrow where it has the functions, else by DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.nodes import Column, Expr, find_columns
from tamis.pushdown.nodes import Named

if TYPE_CHECKING:
    import duckdb

_ROWS = "rows_of_batch"
_EACH_ROW = "each row"


class Projection:
    """Computes expressions for batches, as columns of one schema. Any number of threads may use it."""

    def __init__(self, outputs: Sequence[Named], schema: pa.Schema) -> None:
        self._schema = schema
        others = [output for output in outputs if not _has_arrow_kernels(output.expr)]
        self._columns = [_make_reader(output.expr) if _has_arrow_kernels(output.expr) else None for output in outputs]
        self._engine = _Engine([output.expr for output in others]) if others else None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        computed = iter(self._engine(batch) if self._engine is not None else ())
        arrays = [next(computed) if column is None else column(batch) for column in self._columns]
        if not arrays:
            return batch.select([])
        typed = [_cast(array, field.type) for array, field in zip(arrays, self._schema, strict=True)]
        return pa.RecordBatch.from_arrays(typed, schema=self._schema)


def _has_arrow_kernels(expr: Expr) -> bool:
    return isinstance(expr, Column) or can_evaluate(expr)


def _make_reader(expr: Expr) -> Callable[[pa.RecordBatch], pa.Array]:
    if not isinstance(expr, Column):
        return Evaluator(expr)
    name, *fields = expr.path
    if not fields:
        return lambda batch: batch.column(name)
    return lambda batch: pc.struct_field(batch.column(name), fields)


def _cast(array: pa.Array, data_type: pa.DataType) -> pa.Array:
    return array if array.type == data_type else pc.cast(array, data_type)


class _Engine:
    """Computes expressions for which Arrow has no kernels, with DuckDB."""

    def __init__(self, expressions: Sequence[Expr]) -> None:
        from tamis.scan.embedded import to_duckdb_sql

        selected = [f"({to_duckdb_sql(expr)}) AS value{index}" for index, expr in enumerate(expressions)]
        self._query = f"SELECT {', '.join(selected)} FROM {_ROWS}"
        self._names = list(dict.fromkeys(column.path[0] for expr in expressions for column in find_columns(expr)))
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
            from tamis.scan.embedded import open_isolated_connection

            found = self._connections.connection = open_isolated_connection(self._query)
        return found
