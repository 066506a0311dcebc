"""Who evaluates expressions over metadata: a narrow protocol, and its Arrow implementation.

Another engine implements the protocol in its own way: the functions `element_at` and `partition_value`
are calls like any other, so that it may use its own fast implementation of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import Expr


class PredicateEvaluator(Protocol):
    """A predicate made ready for batches of one schema."""

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Which rows are selected: those that were, and for which the predicate is TRUE."""
        ...


class ExpressionHandler(Protocol):
    """An engine that evaluates expressions over batches with a selection vector beside them."""

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray: ...

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> PredicateEvaluator: ...


class ArrowExpressionHandler:
    """Evaluates with Arrow's kernels, whole columns at a time."""

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        """A selection vector: one boolean a row, none of them null."""
        vector = booleans if isinstance(booleans, pa.BooleanArray) else pa.array(booleans, pa.bool_())
        if vector.null_count:
            raise InvalidArgument("a selection vector says TRUE or FALSE for each row; this one has nulls")
        return vector

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> ArrowPredicateEvaluator:
        return ArrowPredicateEvaluator(schema, predicate)


class ArrowPredicateEvaluator:
    def __init__(self, schema: pa.Schema, predicate: Expr) -> None:
        self._schema = schema
        self._evaluate = Evaluator(predicate, absent_as_null=True)

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Which rows are selected: those that were, and for which the predicate is TRUE."""
        if not batch.schema.equals(self._schema):
            raise InvalidArgument(
                f"this evaluator was made for batches of {self._schema.names}, got {batch.schema.names}"
            )
        if selection is not None and len(selection) != batch.num_rows:
            raise InvalidArgument(f"the selection vector has {len(selection)} entries, the batch {batch.num_rows} rows")
        is_true = pc.fill_null(self._evaluate(batch), False)
        return is_true if selection is None else pc.and_(selection, is_true)
