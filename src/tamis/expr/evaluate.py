"""Evaluation of bound expressions over Arrow batches, column at a time, without recursion.

An `Evaluator` is a small program: one step a distinct sub-expression, in the order in which values are needed,
so that what occurs twice is computed once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr import casts
from tamis.expr.functions import FUNCTIONS, type_of
from tamis.expr.kernels import (
    DATE_TRUNC_UNITS,
    KERNELS,
    TRUNC_UNITS,
    Value,
    evaluation_type,
    literal_array,
    literal_value,
    to_evaluation_form,
)
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, operands_of
from tamis.expr.partition_values import partition_value
from tamis.expr.printer import shown
from tamis.types import integer_range, is_bytes, is_number, is_ordered, is_text

_KERNELS = KERNELS | {
    "cast": casts.cast,
    "try_cast": casts.try_cast,
    "partition_value": partition_value,
}


def can_evaluate(expr: Expr) -> bool:
    """Whether Arrow's kernels give this expression the meaning that it has here.

    What they cannot do (unknown functions, division, casts of numbers to text, …) is left to the embedded engine.
    """
    return fold(expr, _can_evaluate, lambda node: () if _is_settled(node) else operands_of(node))


def _is_settled(node: Expr) -> bool:
    return isinstance(node, Call) and node._evaluable is not None


def _can_evaluate(node: Expr, operands: tuple[bool, ...]) -> bool:
    if not isinstance(node, Call):
        return True
    if node._evaluable is None:
        object.__setattr__(node, "_evaluable", all(operands) and is_supported(node))
    return bool(node._evaluable)


def has_kernel(function: str) -> bool:
    """Whether there is an implementation of a function here, whatever it makes of its arguments."""
    return function in _KERNELS


def is_supported(call: Call) -> bool:
    """Whether Arrow can evaluate the call itself, given its arguments by whomever."""
    if call.function not in _KERNELS:
        return False
    known = FUNCTIONS.get(call.function)
    if known is not None and not known.fewest <= len(call.args) <= known.most:
        return False
    check = _CHECKS.get(call.function)
    return check is None or check(call)


def _same_ordered_types(call: Call) -> bool:
    left, right = (_evaluated_type(arg) for arg in call.args)
    if left is None or right is None:
        return False
    return pa.types.is_null(left) or pa.types.is_null(right) or (is_ordered(left) and left == right)


def _evaluated_type(expr: Expr) -> pa.DataType | None:
    data_type = type_of(expr)
    return None if data_type is None else evaluation_type(data_type)


def _literal_list(call: Call) -> bool:
    data_type = _evaluated_type(call.args[0])
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
            continue  # a hundred thousand items mostly share one object as their type
        if evaluation_type(item.type) != data_type:
            return False
        checked = item.type
    return True


def _text_and_constants(call: Call) -> bool:
    data_type = _evaluated_type(call.args[0])
    if data_type is None:
        return False
    value = str if is_text(data_type) else bytes if is_bytes(data_type) and call.function != "like" else None
    return value is not None and all(
        isinstance(item, Literal) and isinstance(item.value, value) for item in call.args[1:]
    )


def _substring(call: Call) -> bool:
    data_type = _evaluated_type(call.args[0])
    return (
        data_type is not None
        and is_text(data_type)
        and all(isinstance(item, Literal) and isinstance(item.value, int) for item in call.args[1:])
        # A negative position counts from the end; the embedded engine knows how.
        and isinstance(call.args[1], Literal)
        and call.args[1].value >= 0
    )


MAY_FAIL = frozenset(("+", "-", "*", "negate", "abs", "cast", "date_trunc", "trunc", "partition_value"))
"""Functions that fail on some values: they overflow, or the value does not fit."""

_ARITHMETIC = frozenset(("+", "-", "*", "negate", "abs"))


def may_fail(expr: Expr) -> bool:
    """Whether some part of the expression may fail on a value."""
    return fold(expr, _may_fail, lambda node: () if _has_fallibility(node) else operands_of(node))


def _has_fallibility(node: Expr) -> bool:
    return isinstance(node, Call) and node._fallible is not None


def _may_fail(node: Expr, operands: tuple[bool, ...]) -> bool:
    if not isinstance(node, Call):
        return False
    if node._fallible is None:
        object.__setattr__(node, "_fallible", any(operands) or may_call_fail_on_a_value(node))
    return bool(node._fallible)


def may_call_fail_on_a_value(call: Call) -> bool:
    """Whether a function that Arrow evaluates may fail on a value of its arguments' types."""
    if call.function not in MAY_FAIL:
        return False
    target = type_of(call)
    if target is None:
        return True
    if call.function in _ARITHMETIC:
        # Floats have infinities, and the type of a sum or a product of decimals has room for every result.
        return not (pa.types.is_floating(target) or pa.types.is_decimal(target))
    if call.function == "cast":
        source = _evaluated_type(call.args[0])
        return source is None or not _always_fits(source, target)
    return True


def _always_fits(source: pa.DataType, target: pa.DataType) -> bool:
    """Whether every value of a type has one in another."""
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


def _guards_nothing(call: Call) -> bool:
    """Whether a CASE may be computed for all rows at once: a branch that may fail is only for the rows it is meant for.

    The embedded engine takes the others.
    """
    return _is_of_one_type((*call.args[1:-1:2], call.args[-1])) and not any(may_fail(arg) for arg in call.args[1:])


def _known_type(call: Call) -> bool:
    return _is_of_one_type(call.args)


def _is_of_one_type(args: tuple[Expr, ...]) -> bool:
    """Whether all values have a known type, and no two of them different ones: Arrow would cast them its own way."""
    known = {type_of(arg) for arg in args} - {types.NULL}
    return None not in known and len(known) <= 1


def _one_text(call: Call) -> bool:
    data_type = _evaluated_type(call.args[0])
    return data_type is not None and is_text(data_type)


def _arithmetic(call: Call) -> bool:
    if type_of(call) in (None, types.NULL):
        return False
    intervals = [arg for arg in call.args if (_evaluated_type(arg) or types.NULL) == types.INTERVAL]
    if not intervals:
        return True
    interval = intervals[0]
    if not isinstance(interval, Literal) or interval.is_null:
        return False
    if call.function == "-" and call.args[1] is not interval:
        return False
    return not pa.types.is_date(type_of(call)) or interval.value[2] == 0


def _number(call: Call) -> bool:
    data_type = _evaluated_type(call.args[0])
    return data_type is not None and is_number(data_type) and not pa.types.is_uint64(data_type)


def _date_or_timestamp(call: Call) -> bool:
    data_type = _evaluated_type(call.args[0])
    return data_type is not None and (pa.types.is_date(data_type) or pa.types.is_timestamp(data_type))


def _timestamp(call: Call) -> bool:
    return bool(pa.types.is_timestamp(_evaluated_type(call.args[0]) or types.NULL))


def _date_trunc(call: Call) -> bool:
    unit, value = call.args
    return isinstance(unit, Literal) and unit.value in DATE_TRUNC_UNITS and _date_or_timestamp(Call("year", (value,)))


def _trunc(call: Call) -> bool:
    return _date_or_timestamp(call) and isinstance(call.args[1], Literal) and call.args[1].value in TRUNC_UNITS


def _element_at(call: Call) -> bool:
    source = type_of(call.args[0])
    return (
        source is not None
        and bool(pa.types.is_map(source) and is_text(source.key_type))
        and isinstance(call.args[1], Literal)
        and isinstance(call.args[1].value, str)
    )


def _cast(call: Call) -> bool:
    source, target = type_of(call.args[0]), type_of(call)
    return source is not None and target is not None and casts.can_cast(source, target)


def _try_cast(call: Call) -> bool:
    source, target = type_of(call.args[0]), type_of(call)
    return source is not None and target is not None and casts.can_try_cast(source, target)


_CHECKS: dict[str, Callable[[Call], bool]] = {
    **dict.fromkeys(("=", "<>", "<", "<=", ">", ">=", "<=>"), _same_ordered_types),
    "in": _literal_list,
    **dict.fromkeys(("like", "startswith", "endswith", "contains"), _text_and_constants),
    "substring": _substring,
    **dict.fromkeys(("upper", "lower", "length"), _one_text),
    **dict.fromkeys(("+", "-", "*"), _arithmetic),
    **dict.fromkeys(("negate", "abs"), _number),
    **dict.fromkeys(("year", "month", "day"), _date_or_timestamp),
    **dict.fromkeys(("hour", "minute"), _timestamp),
    "date_trunc": _date_trunc,
    "trunc": _trunc,
    "cast": _cast,
    "try_cast": _try_cast,
    "element_at": _element_at,
    "partition_value": _one_text,
    "case": _guards_nothing,
    "coalesce": _known_type,
}


_WAY_OUT_OF_OVERFLOW = (
    ", the result does not fit into 64 bits. Cast a part of it, as in CAST(… AS DECIMAL(38,0)) or CAST(… AS DOUBLE)"
)


class Evaluator:
    """A bound expression made ready to run over batches of one schema.

    With `absent_as_null`, a column that a batch lacks is NULL: metadata that does not exist is unknown.
    """

    def __init__(self, expr: Expr, *, absent_as_null: bool = False) -> None:
        self._expr = expr
        self._absent_as_null = absent_as_null
        self._steps: list[tuple[Expr, tuple[int, ...], pa.Array | None]] = []
        slots: dict[Expr, int] = {}

        def place(node: Expr, args: tuple[int, ...]) -> int:
            step = len(self._steps)
            slot = slots.setdefault(node, step)
            if slot == step:
                self._steps.append((node, args, _item_array(node)))
            return slot

        self._result = fold(expr, place)
        self._constants: dict[int, pa.Scalar] = {}

    def __call__(self, batch: pa.RecordBatch) -> pa.Array:
        """The value of the expression for each row of the batch."""
        values: list[Value] = []
        try:
            for node, args, items in self._steps:
                match node:
                    case Column():
                        values.append(self._read(batch, node))
                    case Literal():
                        values.append(self._constant(node, len(values)))
                    case Call(function):
                        given = [values[arg] for arg in args]
                        values.append(_KERNELS[function](node, given if items is None else [*given, items]))
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError, EvaluationError) as error:
            way_out = _WAY_OUT_OF_OVERFLOW if str(error) == "overflow" else ""
            raise EvaluationError(f"cannot evaluate {shown(self._expr)}: {error}{way_out}") from error
        return _as_array(values[self._result], batch.num_rows)

    def _constant(self, literal: Literal, step: int) -> pa.Scalar:
        """Made when it is first needed, since whoever makes a predicate need not evaluate it."""
        found = self._constants.get(step)
        if found is None:
            found = self._constants[step] = literal_value(literal)
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


def _item_array(node: Expr) -> pa.Array | None:
    """The items of a list of literals, as the one array that they are."""
    items = node.args[len(operands_of(node)) :] if isinstance(node, Call) else ()
    return literal_array(items) if items else None


def _as_array(value: Value, length: int) -> pa.Array:
    return pa.repeat(value, length) if isinstance(value, pa.Scalar) else value


def evaluate_constant(expr: Expr) -> Literal:
    """The value of an expression without columns. Raises EvaluationError where it has none."""
    value = Evaluator(expr)(_ONE_ROW)[0]
    return Literal(physical_value(value), type_of(expr) or value.type)


_ONE_ROW = pa.RecordBatch.from_arrays([pa.nulls(1)], names=["_"])


def physical_value(value: pa.Scalar) -> Any:
    """A scalar in the physical form of literals."""
    if not value.is_valid:
        return None
    if pa.types.is_timestamp(value.type) or pa.types.is_time(value.type) or pa.types.is_duration(value.type):
        return value.value
    if pa.types.is_date(value.type):
        return value.cast(types.DATE).value
    return value.as_py()
