"""Evaluation of bound expressions over Arrow batches, column at a time, without recursion.

An `Evaluator` is a small program: one step for each distinct sub-expression, arguments first, so that a repeated
sub-expression is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.functions import kernels
from tamis.expr.functions.kernels import (
    DATE_TRUNC_UNITS,
    KERNELS,
    TRUNC_UNITS,
    Value,
    evaluation_type,
    to_arrow_array,
    to_arrow_scalar,
    to_evaluation_form,
)
from tamis.expr.functions.partition_values import partition_value
from tamis.expr.functions.table import FUNCTIONS, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, get_operands
from tamis.expr.sql.printer import to_display_sql
from tamis.types import integer_range, is_bytes, is_number, is_ordered, is_text

_KERNELS = KERNELS | {
    "cast": kernels.cast,
    "try_cast": kernels.try_cast,
    "partition_value": partition_value,
}


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
    return function in _KERNELS


def is_supported(call: Call) -> bool:
    """Return whether Arrow can evaluate the call itself, apart from its arguments."""
    if call.function not in _KERNELS:
        return False
    known = FUNCTIONS.get(call.function)
    if known is not None and not known.fewest <= len(call.args) <= known.most:
        return False
    check = _CHECKS.get(call.function)
    return check is None or check(call)


def _has_same_ordered_types(call: Call) -> bool:
    left, right = (_get_evaluation_type(arg) for arg in call.args)
    if left is None or right is None:
        return False
    return pa.types.is_null(left) or pa.types.is_null(right) or (is_ordered(left) and left == right)


def _get_evaluation_type(expr: Expr) -> pa.DataType | None:
    data_type = type_of(expr)
    return None if data_type is None else evaluation_type(data_type)


def _has_literal_list(call: Call) -> bool:
    data_type = _get_evaluation_type(call.args[0])
    return (
        data_type is not None
        and (is_ordered(data_type) or pa.types.is_null(data_type))
        and _are_literals_of(data_type, call.args[1:])
    )


def _are_literals_of(data_type: pa.DataType, items: tuple[Expr, ...]) -> bool:
    checked: pa.DataType | None = None
    for item in items:
        if not isinstance(item, Literal):
            return False
        if item.is_null or item.type is checked:
            continue  # a hundred thousand items usually share one type object
        if evaluation_type(item.type) != data_type:
            return False
        checked = item.type
    return True


def _has_text_and_constants(call: Call) -> bool:
    data_type = _get_evaluation_type(call.args[0])
    if data_type is None:
        return False
    value = str if is_text(data_type) else bytes if is_bytes(data_type) and call.function != "like" else None
    return value is not None and all(
        isinstance(item, Literal) and isinstance(item.value, value) for item in call.args[1:]
    )


def _is_supported_substring(call: Call) -> bool:
    data_type = _get_evaluation_type(call.args[0])
    return (
        data_type is not None
        and is_text(data_type)
        and all(isinstance(item, Literal) and isinstance(item.value, int) for item in call.args[1:])
        # A negative position counts from the end; the embedded engine evaluates it.
        and isinstance(call.args[1], Literal)
        and call.args[1].value >= 0
    )


MAY_FAIL = frozenset(("+", "-", "*", "negate", "abs", "cast", "date_trunc", "trunc", "partition_value"))
"""Functions that fail on some values: on overflow, or on values out of range."""

_ARITHMETIC = frozenset(("+", "-", "*", "negate", "abs"))


def may_fail(expr: Expr) -> bool:
    """Return whether any sub-expression may fail on a value."""
    return fold(expr, _may_fail, lambda node: () if _has_fallibility(node) else get_operands(node))


def _has_fallibility(node: Expr) -> bool:
    return isinstance(node, Call) and node._fallible is not None


def _may_fail(node: Expr, operands: tuple[bool, ...]) -> bool:
    if not isinstance(node, Call):
        return False
    if node._fallible is None:
        object.__setattr__(node, "_fallible", any(operands) or may_call_fail(node))
    return bool(node._fallible)


def may_call_fail(call: Call) -> bool:
    """Return whether a function that Arrow evaluates may fail on a value of its arguments' types."""
    if call.function not in MAY_FAIL:
        return False
    target = type_of(call)
    if target is None:
        return True
    if call.function in _ARITHMETIC:
        # Floats overflow to infinity, and the result type of a sum or a product of decimals holds every result.
        return not (pa.types.is_floating(target) or pa.types.is_decimal(target))
    if call.function == "cast":
        source = _get_evaluation_type(call.args[0])
        return source is None or not _always_fits(source, target)
    return True


def _always_fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether every value of a type can be cast to another."""
    if source == evaluation_type(target) or is_text(target):
        return True
    if pa.types.is_boolean(source):
        return is_number(target)
    if pa.types.is_floating(target):
        return is_number(source)
    if pa.types.is_integer(source) and pa.types.is_integer(target):
        smallest, largest = integer_range(source)
        lowest, highest = integer_range(target)
        return lowest <= smallest and largest <= highest
    return False


def _can_compute_all_branches(call: Call) -> bool:
    """Return whether a CASE can compute all branches for all rows: no branch may fail on a row of another branch.

    The embedded engine evaluates the others.
    """
    return _have_one_type((*call.args[1:-1:2], call.args[-1])) and not any(may_fail(arg) for arg in call.args[1:])


def _has_one_type(call: Call) -> bool:
    return _have_one_type(call.args)


def _have_one_type(args: tuple[Expr, ...]) -> bool:
    """Return whether all values have the same known type: Arrow would cast different types by its own rules."""
    known = {type_of(arg) for arg in args} - {types.NULL}
    return None not in known and len(known) <= 1


def _has_text(call: Call) -> bool:
    data_type = _get_evaluation_type(call.args[0])
    return data_type is not None and is_text(data_type)


def _is_supported_arithmetic(call: Call) -> bool:
    if type_of(call) in (None, types.NULL):
        return False
    intervals = [arg for arg in call.args if (_get_evaluation_type(arg) or types.NULL) == types.INTERVAL]
    if not intervals:
        return True
    interval = intervals[0]
    if not isinstance(interval, Literal) or interval.is_null:
        return False
    if call.function == "-" and call.args[1] is not interval:
        return False
    return not pa.types.is_date(type_of(call)) or interval.value[2] == 0


def _has_number(call: Call) -> bool:
    data_type = _get_evaluation_type(call.args[0])
    return data_type is not None and is_number(data_type) and not pa.types.is_uint64(data_type)


def _has_date_or_timestamp(call: Call) -> bool:
    data_type = _get_evaluation_type(call.args[0])
    return data_type is not None and (pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _has_timestamp(call: Call) -> bool:
    return bool(pa.types.is_timestamp(_get_evaluation_type(call.args[0]) or types.NULL))


def _can_date_trunc(call: Call) -> bool:
    unit, value = call.args
    return (
        isinstance(unit, Literal) and unit.value in DATE_TRUNC_UNITS and _has_date_or_timestamp(Call("year", (value,)))
    )


def _can_trunc(call: Call) -> bool:
    return _has_date_or_timestamp(call) and isinstance(call.args[1], Literal) and call.args[1].value in TRUNC_UNITS


def _has_text_key(call: Call) -> bool:
    source = type_of(call.args[0])
    return (
        source is not None
        and bool(pa.types.is_map(source) and is_text(source.key_type))
        and isinstance(call.args[1], Literal)
        and isinstance(call.args[1].value, str)
    )


def _can_cast(call: Call) -> bool:
    source, target = type_of(call.args[0]), type_of(call)
    return source is not None and target is not None and kernels.can_cast(source, target)


def _can_try_cast(call: Call) -> bool:
    source, target = type_of(call.args[0]), type_of(call)
    return source is not None and target is not None and kernels.can_try_cast(source, target)


_CHECKS: dict[str, Callable[[Call], bool]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _has_same_ordered_types),
    "in": _has_literal_list,
    **dict.fromkeys(("like", "startswith", "endswith", "contains"), _has_text_and_constants),
    "substring": _is_supported_substring,
    **dict.fromkeys(("upper", "lower", "length"), _has_text),
    **dict.fromkeys(("+", "-", "*"), _is_supported_arithmetic),
    **dict.fromkeys(("negate", "abs"), _has_number),
    **dict.fromkeys(("year", "month", "day"), _has_date_or_timestamp),
    **dict.fromkeys(("hour", "minute"), _has_timestamp),
    "date_trunc": _can_date_trunc,
    "trunc": _can_trunc,
    "cast": _can_cast,
    "try_cast": _can_try_cast,
    "element_at": _has_text_key,
    "partition_value": _has_text,
    "case": _can_compute_all_branches,
    "coalesce": _has_one_type,
}


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
                    case Call(function):
                        inputs = [values[arg] for arg in args]
                        values.append(_KERNELS[function](node, inputs if items is None else [*inputs, items]))
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
