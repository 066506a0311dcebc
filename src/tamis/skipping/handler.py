"""The protocol for evaluating expressions over metadata, and its Arrow implementation.

Another engine can implement the protocol: the functions `element_at` and `partition_value` are calls like any other, so
it may use its own fast implementation of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError, InvalidArgument
from tamis.expr.evaluate import Evaluator, has_kernel
from tamis.expr.nodes import Call, Expr, walk
from tamis.expr.sql.printer import to_sql
from tamis.types import type_name_with_article


class PredicateEvaluator(Protocol):
    """A predicate prepared for batches of one schema."""

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Return which rows were selected before and satisfy the predicate."""
        ...


class ExpressionHandler(Protocol):
    """An engine that evaluates expressions over batches with an optional selection vector."""

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray: ...

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> PredicateEvaluator: ...


class ArrowExpressionHandler:
    """A handler that evaluates with Arrow's vectorised kernels."""

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        """Return a selection vector: one boolean per row, without nulls."""
        try:
            vector = booleans if isinstance(booleans, pa.BooleanArray) else pa.array(booleans, pa.bool_())
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise InvalidArgument(f"a selection vector must contain booleans: {error}") from error
        if vector.null_count:
            raise InvalidArgument("a selection vector must not contain nulls")
        return vector

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> ArrowPredicateEvaluator:
        return ArrowPredicateEvaluator(schema, predicate)


def check_batch(schema: pa.Schema, batch: pa.RecordBatch, selection: pa.BooleanArray | None) -> None:
    """Raise if a batch does not have the evaluator's schema, or the selection vector does not match it."""
    if not batch.schema.equals(schema):
        raise InvalidArgument(
            f"this evaluator expects batches with the columns {schema.names}, found {batch.schema.names}"
        )
    if selection is not None and len(selection) != batch.num_rows:
        raise InvalidArgument(f"the selection vector has {len(selection)} entries, the batch {batch.num_rows} rows")
    if selection is not None and selection.null_count:
        raise InvalidArgument("a selection vector must not contain nulls")


class ArrowPredicateEvaluator:
    def __init__(self, schema: pa.Schema, predicate: Expr) -> None:
        for node in walk(predicate):
            if isinstance(node, Call) and not has_kernel(node.function):
                raise EvaluationError(f"Arrow does not support the function {node.function!r} in {_shorten(predicate)}")
        self._schema = schema
        self._predicate = predicate
        self._evaluate = Evaluator(predicate, absent_as_null=True)

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Return which rows were selected before and satisfy the predicate."""
        check_batch(self._schema, batch, selection)
        answer = self._evaluate(batch)
        if pa.types.is_null(answer.type):
            answer = answer.cast(pa.bool_())
        if not pa.types.is_boolean(answer.type):
            raise InvalidArgument(
                f"{_shorten(self._predicate)} is {type_name_with_article(answer.type)}, not a predicate"
            )
        is_true = pc.fill_null(answer, False)
        return is_true if selection is None else pc.and_(selection, is_true)


def _shorten(predicate: Expr) -> str:
    return to_sql(predicate, max_items=5)
