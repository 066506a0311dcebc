"""Evaluation of bound expressions over Arrow batches, column at a time, without recursion.

An `Evaluator` is a small program: one step for each distinct sub-expression, arguments first, so that a repeated
sub-expression is computed once.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.functions.kernels import Value, evaluation_type, to_arrow_array, to_arrow_scalar, to_evaluation_form
from tamis.expr.functions.table import find_function, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, get_operands
from tamis.expr.sql.printer import to_display_sql


def can_evaluate(expr: Expr) -> bool:
    """Return whether Arrow's kernels evaluate this expression with Spark's semantics.

    The embedded engine evaluates all others (unsupported functions, division, casts of numbers to text, …).
    """
    return fold(expr, _can_evaluate, lambda node: () if _has_evaluability(node) else get_operands(node))


def _has_evaluability(node: Expr) -> bool:
    return isinstance(node, Call) and node._evaluable is not None


def _can_evaluate(node: Expr, operands: tuple[bool, ...]) -> bool:
    if not isinstance(node, Call):
        return True
    if node._evaluable is None:
        object.__setattr__(node, "_evaluable", all(operands) and is_supported(node))
    return bool(node._evaluable)


def has_kernel(function: str) -> bool:
    """Return whether a function has a kernel, whether or not it supports the given arguments."""
    known = find_function(function)
    return known is not None and known.kernel is not None


def is_supported(call: Call) -> bool:
    """Return whether Arrow can evaluate the call itself, apart from its arguments."""
    known = find_function(call.function)
    if known is None or known.kernel is None or not known.accepts(len(call.args)):
        return False
    return known.supports is None or known.supports(call)


_OVERFLOW_ADVICE = (
    ", the result does not fit into 64 bits. Cast an operand, as in CAST(… AS DECIMAL(38,0)) or CAST(… AS DOUBLE)"
)


class Evaluator:
    """A bound expression, compiled to run over batches of one schema.

    With `absent_as_null`, a column that a batch lacks is NULL: missing metadata is unknown.
    """

    def __init__(self, expr: Expr, *, absent_as_null: bool = False) -> None:
        self._expr = expr
        self._absent_as_null = absent_as_null
        self._steps: list[tuple[Expr, tuple[int, ...], pa.Array | None]] = []
        slots: dict[Expr, int] = {}

        def add_step(node: Expr, args: tuple[int, ...]) -> int:
            step = len(self._steps)
            slot = slots.setdefault(node, step)
            if slot == step:
                self._steps.append((node, args, _make_item_array(node)))
            return slot

        self._result = fold(expr, add_step)
        self._constants: dict[int, pa.Scalar] = {}

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the value of the expression for each row of the batch."""
        values: list[Value] = []
        try:
            for node, args, items in self._steps:
                match node:
                    case Column():
                        values.append(self._read(batch, node))
                    case Literal():
                        values.append(self._constant(node, len(values)))
                    case Call():
                        inputs = [values[arg] for arg in args]
                        values.append(_compute(node, inputs if items is None else [*inputs, items]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, EvaluationError) as error:
            advice = _OVERFLOW_ADVICE if str(error) == "overflow" else ""
            raise EvaluationError(f"cannot evaluate {to_display_sql(self._expr)}: {error}{advice}") from error
        return _as_array(values[self._result], batch.num_rows)

    def _constant(self, literal: Literal, step: int) -> pa.Scalar:
        """Return a constant as a scalar, created on first use because many predicates are never evaluated."""
        found = self._constants.get(step)
        if found is None:
            found = self._constants[step] = to_arrow_scalar(literal)
        return found

    def _read(self, batch: pa.RecordBatch, column: Column) -> Value:
        index = batch.schema.get_field_index(column.path[0])
        if index < 0:
            if self._absent_as_null:
                return pa.scalar(None, evaluation_type(column.type or types.NULL))
            raise EvaluationError(f"the batch has no column {column.name!r}")
        values = batch.column(index)
        if len(column.path) > 1:
            values = pc.struct_field(values, list(column.path[1:]))
        return to_evaluation_form(values)


def _compute(call: Call, inputs: list[Value]) -> Value:
    known = find_function(call.function)
    if known is None or known.kernel is None:
        raise EvaluationError(f"Arrow has no kernel for the function {call.function}")
    return known.kernel(call, inputs)


def _make_item_array(node: Expr) -> pa.Array | None:
    """Return the items of a list of literals as one array, or None."""
    items = node.args[len(get_operands(node)) :] if isinstance(node, Call) else ()
    return to_arrow_array(items) if items else None


def _as_array(value: Value, length: int) -> pa.Array:
    return pa.repeat(value, length) if isinstance(value, pa.Scalar) else value


def evaluate_constant(expr: Expr) -> Literal:
    """Return the value of an expression without columns. Raise EvaluationError if it fails."""
    value = Evaluator(expr)(_ONE_ROW)[0]
    return Literal(to_physical_value(value), type_of(expr) or value.type)


_ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["_"])


def to_physical_value(value: pa.Scalar) -> Any:
    """Return the value of a scalar in the physical form of literals."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type) or pa.types.is_time(value.type) or pa.types.is_duration(value.type):
        return value.value
    if pa.types.is_date(value.type):
        return value.cast(types.DATE).value
    return value.as_py()
