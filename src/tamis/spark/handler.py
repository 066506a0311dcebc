"""The Spark implementation of the protocol in `tamis.skipping.handler`: predicates over metadata as Columns.

The same rewritten predicate that Arrow evaluates over a batch becomes a Column over a DataFrame of files, and the JVM
evaluates it where the metadata is. `predicate_evaluator` sends a batch there and back: that is for tests and for few
units; `keeps` makes the Column for a DataFrame that stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.engines.sessions import check_session, session_functions
from tamis.errors import EvaluationError, InvalidArgument
from tamis.expr.functions import type_of
from tamis.expr.nodes import Column, Expr
from tamis.expr.printer import to_sql
from tamis.skipping.handler import ArrowExpressionHandler, check_batch
from tamis.spark.columns import ColumnCompiler, Compiled
from tamis.spark.constants import sql_type
from tamis.spark.types import fit_metadata, metadata_type, spark_schema
from tamis.types import a_type

_ROW, _VALUE, _FAILED = "row", "value", "failed"


def quoted(name: str) -> str:
    """A name of a DataFrame's column, whatever characters it has.

    >>> quoted("lower:`a.b`")
    '`lower:``a.b```'
    """
    return "`" + name.replace("`", "``") + "`"


class SparkExpressionHandler:
    """Evaluates with Spark, over DataFrames or over batches that are sent there."""

    def __init__(self, spark: Any) -> None:
        self.spark = check_session(spark)
        self.functions = session_functions(spark)

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        return ArrowExpressionHandler().create_selection_vector(booleans)

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> SparkPredicateEvaluator:
        return SparkPredicateEvaluator(self, schema, predicate)

    def compile(self, predicate: Expr, names: Mapping[str, Any] | Collection[str]) -> Compiled:
        """A predicate over metadata as a Column of a DataFrame that has (some of) its columns.

        `names` are the metadata columns that the DataFrame has, or a mapping of them to what it calls them, or to
        Columns. What it does not have is unknown.
        """
        known = names if isinstance(names, Mapping) else {name: name for name in names}
        functions = self.functions

        def read(column: Column) -> Any:
            found = known.get(column.path[0])
            if found is not None and len(column.path) == 1:
                return functions.col(quoted(found)) if isinstance(found, str) else found
            stored = metadata_type(column.type or types.NULL) or types.NULL
            return functions.lit(None) if pa.types.is_null(stored) else functions.lit(None).cast(sql_type(stored))

        return ColumnCompiler(functions, read).compile(predicate)

    def keeps(self, may_be_true: Expr, names: Mapping[str, Any] | Collection[str]) -> Any:
        """A Column that is TRUE for the units that must be kept, never NULL: also where the answer is not known."""
        compiled = self.compile(may_be_true, names)
        kept = self.functions.coalesce(compiled.value, self.functions.lit(True))
        return kept if compiled.failed is None else kept | compiled.failed


class SparkPredicateEvaluator:
    def __init__(self, handler: SparkExpressionHandler, schema: pa.Schema, predicate: Expr) -> None:
        data_type = type_of(predicate)
        if data_type is not None and not (pa.types.is_boolean(data_type) or pa.types.is_null(data_type)):
            raise InvalidArgument(f"{_short(predicate)} is {a_type(data_type)} and not a predicate")
        self._handler = handler
        self._schema = schema
        self._predicate = predicate
        # Numbers in place of names, because Spark does not tell `a` from `A`.
        present = [name for name, stored in zip(schema.names, map(metadata_type, schema.types), strict=True) if stored]
        self._names = {name: f"column_{number}" for number, name in enumerate(present)}
        self._compiled = handler.compile(predicate, self._names)

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Which rows are selected: those that were, and for which the predicate is TRUE."""
        check_batch(self._schema, batch, selection)
        if not batch.num_rows:
            return pa.array([], pa.bool_())
        is_true = self._evaluated(batch)
        return is_true if selection is None else pc.and_(selection, is_true)

    def _evaluated(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        functions = self._handler.functions
        fitted = fit_metadata(batch)
        columns = {name: fitted.column(given) for given, name in self._names.items()}
        given = pa.table({_ROW: pa.array(range(batch.num_rows), pa.int64())} | columns)
        failed = functions.lit(False) if self._compiled.failed is None else self._compiled.failed
        value = functions.coalesce(self._compiled.value.cast("boolean"), functions.lit(False))
        frame = self._handler.spark.createDataFrame(given, spark_schema(given.schema))
        found = (
            frame.select(_ROW, value.alias(_VALUE), functions.coalesce(failed, functions.lit(False)).alias(_FAILED))
            .toArrow()
            .sort_by(_ROW)
        )
        if pc.any(found[_FAILED], min_count=0).as_py():
            raise EvaluationError(
                f"cannot evaluate {_short(self._predicate)}: it overflows, or a value does not fit its type"
            )
        return found[_VALUE].combine_chunks()


def _short(predicate: Expr) -> str:
    return to_sql(predicate, max_items=5)
