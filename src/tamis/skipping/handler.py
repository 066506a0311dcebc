"""The protocol for evaluating expressions over metadata, and its Arrow implementation.

Another engine can implement the protocol: the functions `element_at` and `partition_value` are calls like any other, so
it may use its own fast implementation of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable
from weakref import WeakValueDictionary

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError, InvalidArgument, TamisError, make_argument_error, make_user_code_error
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

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        """Return a selection vector: one boolean per row, without nulls."""
        ...

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> PredicateEvaluator:
        """Return the evaluator of a predicate over batches with a schema."""
        ...


@runtime_checkable
class TakesParsedValues(Protocol):
    """An ExpressionHandler that may have partition values already parsed.

    If so, its predicates have a column `add.partitionValues_parsed.day` in the place of the call
    `partition_value(element_at(add.partitionValues, 'day'), 'date')`. Parsing is most of a plan with many values.
    """

    takes_parsed_values: bool


class ArrowExpressionHandler:
    """A handler that evaluates with Arrow's vectorised kernels."""

    takes_parsed_values = True

    def __init__(self) -> None:
        # Compiled predicates fit batches of any schema. They live as long as an evaluator that uses them, and hold
        # their predicate, so that no other one has its id.
        self._compiled: WeakValueDictionary[int, Evaluator] = WeakValueDictionary()

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
        """Return the evaluator of a predicate over batches with a schema."""
        compiled = self._compiled.get(id(predicate))
        if compiled is None:
            compiled = self._compiled[id(predicate)] = _compile(predicate)
        return ArrowPredicateEvaluator(schema, predicate, compiled)


ARROW = ArrowExpressionHandler()
"""The handler of tables that are opened without one, and of all executors."""


def check_handler(handler: ExpressionHandler | None) -> ExpressionHandler | None:
    """Return a `handler` argument; raise if it is not an ExpressionHandler."""
    methods = ("create_selection_vector", "predicate_evaluator")
    if handler is not None and not all(callable(getattr(handler, name, None)) for name in methods):
        raise make_argument_error("handler", f"an ExpressionHandler, with the methods {' and '.join(methods)}", handler)
    return handler


class CompiledPredicates:
    """The predicates that handlers have compiled for batches of a schema, each at its first use."""

    def __init__(self) -> None:
        self._compiled: list[tuple[Expr, ExpressionHandler, pa.Schema, PredicateEvaluator]] = []

    def evaluate(self, predicate: Expr, batch: pa.RecordBatch, handler: ExpressionHandler) -> pa.BooleanArray:
        """Return the selection of rows for which a predicate is TRUE."""
        # Few batches differ in their schema, and comparing schemas is faster than hashing one.
        schema = batch.schema
        try:
            for known, owner, own_schema, compiled in self._compiled:
                if known is predicate and owner is handler and own_schema.equals(schema):
                    evaluator = compiled
                    break
            else:
                evaluator = handler.predicate_evaluator(schema, predicate)
                self._compiled.append((predicate, handler, schema, evaluator))
            found = evaluator.eval(batch)
        except TamisError:
            raise
        except Exception as error:
            if handler is ARROW:
                raise
            raise make_user_code_error(handler, f"evaluate {_shorten(predicate)}", error) from error
        if not isinstance(found, pa.BooleanArray) or len(found) != batch.num_rows or found.null_count:
            shown = f"{len(found)} values, {found.null_count} of them null" if isinstance(found, pa.Array) else found
            raise InvalidArgument(
                f"a PredicateEvaluator must return a pyarrow.BooleanArray without nulls, one value for each of the "
                f"{batch.num_rows} rows; that of {type(handler).__name__} returned {shown}"
            )
        return found


def _compile(predicate: Expr) -> Evaluator:
    for node in walk(predicate):
        if isinstance(node, Call) and not has_kernel(node.function):
            raise EvaluationError(f"Arrow does not support the function {node.function!r} in {_shorten(predicate)}")
    return Evaluator(predicate, absent_as_null=True)


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
    def __init__(self, schema: pa.Schema, predicate: Expr, compiled: Evaluator) -> None:
        self._schema = schema
        self._predicate = predicate
        self._evaluate = compiled

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Return which rows were selected before and satisfy the predicate."""
        check_batch(self._schema, batch, selection)
        answer = self._evaluate(batch)
        if pa.types.is_null(answer.type):
            answer = answer.cast(pa.bool_())
        if not isinstance(answer, pa.BooleanArray):
            raise InvalidArgument(
                f"{_shorten(self._predicate)} is {type_name_with_article(answer.type)}, not a predicate"
            )
        is_true = pc.fill_null(answer, False) if answer.null_count else answer
        return is_true if selection is None else pc.and_(selection, is_true)


def _shorten(predicate: Expr) -> str:
    return to_sql(predicate, max_items=5)
