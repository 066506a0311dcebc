"""The rest of a filter, tested row by row: by Arrow's kernels where they know the functions, else by DuckDB."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from sqlglot.errors import SqlglotError

from tamis.errors import EvaluationError
from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.nodes import Column, Expr, and_, columns_of
from tamis.expr.printer import to_sql


class Residual:
    """A conjunction that rows must satisfy. Any number of threads may use it."""

    def __init__(self, conjuncts: Sequence[Expr]) -> None:
        by_arrow = [conjunct for conjunct in conjuncts if can_evaluate(conjunct)]
        by_engine = [conjunct for conjunct in conjuncts if not can_evaluate(conjunct)]
        self.columns: tuple[Column, ...] = tuple(columns_of(and_(*conjuncts)))
        self._evaluator = Evaluator(and_(*by_arrow)) if by_arrow else None
        self._engine = _EmbeddedFilter(and_(*by_engine)) if by_engine else None

    def filter(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows for which every conjunct is TRUE."""
        # Arrow goes first: fewer rows reach the engine, and its functions are the costly ones.
        if self._evaluator is not None:
            batch = batch.filter(self._evaluator(batch))
        if self._engine is not None and batch.num_rows:
            batch = batch.filter(self._engine.evaluate(batch))
        return batch


class _EmbeddedFilter:
    """A predicate that DuckDB evaluates over Arrow batches, one connection a thread."""

    def __init__(self, predicate: Expr) -> None:
        self._text = to_sql(predicate, max_items=5)
        try:
            translated = sqlglot.transpile(to_sql(predicate), read="spark", write="duckdb")[0]
        except SqlglotError as error:
            raise EvaluationError(f"the embedded engine has no words for {self._text}: {error}") from error
        self._query = f"SELECT ({translated}) AS is_true FROM batch"
        self._connections = threading.local()

    def evaluate(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        connection = self._connection()
        connection.register("batch", pa.Table.from_batches([batch]))
        try:
            found = connection.sql(self._query).to_arrow_table()["is_true"].combine_chunks()
        except duckdb.Error as error:
            reason = str(error).splitlines()[0]
            raise EvaluationError(f"the embedded engine cannot evaluate {self._text}: {reason}") from error
        finally:
            connection.unregister("batch")
        return pc.fill_null(pc.cast(found, pa.bool_()), False)

    def _connection(self) -> duckdb.DuckDBPyConnection:
        found: duckdb.DuckDBPyConnection | None = getattr(self._connections, "connection", None)
        if found is None:
            # One thread keeps the order of rows; UTC makes the answer independent of where it runs.
            found = duckdb.connect(":memory:", config={"threads": 1})
            found.execute("SET TimeZone = 'UTC'")
            self._connections.connection = found
        return found
