"""Evaluation of bound expressions over Arrow batches, column at a time, without recursion.

An `Evaluator` is a small program: one step for each distinct sub-expression, arguments first, so that a repeated
sub-expression is computed once.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.functions.kernels import (
    Value,
    find_evaluation_type,
    to_arrow_array,
    to_arrow_scalar,
    to_evaluation_form,
)
from tamis.expr.functions.table import find_function, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, get_operands, make_unbound_error
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


_OUT_OF_RANGE = re.compile(
    r"(?:Float|Integer) value (\S+) (?:was truncated converting to (\w+)|not in range: (-?\d+) to (-?\d+))"
)
_CAST_ADVICE = "Leave such values out, or make them NULL with TRY_CAST"


def _explain(reason: str) -> str:
    """Return Arrow's reason for a failure, and what to do if that is known.

    >>> _explain("Float value nan was truncated converting to int32")
    'nan is out of the range of int. Leave such values out, or make them NULL with TRY_CAST'
    """
    if reason == "overflow":
        return (
            "overflow, the result does not fit into 64 bits. Cast an operand, as in CAST(… AS DECIMAL(38,0)) or "
            "CAST(… AS DOUBLE)"
        )
    found = _OUT_OF_RANGE.search(reason)
    if found is None:
        return f"a value is out of the range of its type. {_CAST_ADVICE}" if "out of bounds" in reason else reason
    value = f"{float(found[1]):g}" if "." in found[1] else found[1]
    wanted = f"of {types.type_name(pa.type_for_alias(found[2]))}" if found[2] else f"{found[3]} to {found[4]}"
    return f"{value} is out of the range {wanted}. {_CAST_ADVICE}"


class Evaluator:
    """A bound expression, compiled to run over batches of one schema.

    With `absent_as_null`, a column that a batch lacks is NULL: missing metadata is unknown. Errors show `shown`, by
    default the expression.
    """

    def __init__(self, expr: Expr, *, absent_as_null: bool = False, shown: Expr | None = None) -> None:
        self._shown = expr if shown is None else shown
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
                        values.append(self._make_constant(node, len(values)))
                    case Call():
                        inputs = [values[arg] for arg in args]
                        values.append(_compute(node, inputs if items is None else [*inputs, items]))
                    case _:
                        raise make_unbound_error(node)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, EvaluationError) as error:
            raise EvaluationError(f"cannot evaluate {to_display_sql(self._shown)}: {_explain(str(error))}") from error
        found = values[self._result]
        return pa.repeat(found, batch.num_rows) if isinstance(found, pa.Scalar) else found

    def _make_constant(self, literal: Literal, step: int) -> pa.Scalar:
        """Return a constant as a scalar, created on first use because many predicates are never evaluated."""
        found = self._constants.get(step)
        if found is None:
            found = self._constants[step] = to_arrow_scalar(literal)
        return found

    def _read(self, batch: pa.RecordBatch, column: Column) -> Value:
        index = batch.schema.get_field_index(column.path[0])
        if index < 0:
            if self._absent_as_null:
                return pa.scalar(None, find_evaluation_type(column.type or types.NULL))
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
