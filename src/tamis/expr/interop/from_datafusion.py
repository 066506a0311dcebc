"""Translation of DataFusion expressions.

Most nodes have a class with their parts (`to_variant`). Functions have none: their name and arguments come from
`rex_call_operator` and `rex_call_operands`.
"""

from __future__ import annotations

import re
from typing import Any

import pyarrow as pa

from tamis.errors import ExpressionError, to_one_line
from tamis.expr.foreign import AS_DATAFUSION, mark
from tamis.expr.interop.translate_tree import (
    ADVICE,
    NAN,
    Build,
    Library,
    Parts,
    build_field,
    is_divisor_other_than_zero,
    translate_tree,
)
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, TRUE, Call, Literal, Name, Unbound, between, not_


def from_datafusion(expression: Any) -> Unbound:
    """Translate a logical `datafusion.Expr`; a node without a counterpart is an error that names it.

    The translation is TRUE, FALSE and NULL where the expression is in DataFusion, and NaN equals itself and is larger
    than every number in both. Two exceptions have the semantics of Tamis: integers are computed in 64 bits and do not
    wrap around, and they are compared with floats exactly. The table of a qualified column is ignored.

    Not translated, because the meaning would differ: casts of columns, and sums of two columns, whose types are unknown
    here; a division that may be one of integers, which DataFusion truncates, or by zero; `%` by zero.
    """
    return translate_tree(expression, _translate)


def _translate(node: Any) -> Unbound | Parts:
    kind = node.variant_name()
    if kind == "ScalarFunction":
        return Parts(node.rex_call_operands(), _DATAFUSION.get_translation("function", node.rex_call_operator()))
    if kind == "Literal":
        return _translate_literal(node)
    try:
        parts = node.to_variant()
    except ValueError as error:
        raise _DATAFUSION.make_unsupported_error(f"node {kind!r}") from error
    match kind:
        case "Column":
            return Name((parts.name(),), exact=True)
        case "Alias":
            return Parts([parts.expr()], lambda args: args[0])
        case "BinaryExpr":
            return Parts([parts.left(), parts.right()], _DATAFUSION.get_translation("operator", parts.op()))
        case "InList":
            return Parts([parts.expr(), *parts.list()], _negate_if(parts.negated(), _build_membership))
        case "Between":
            return Parts(
                [parts.expr(), parts.low(), parts.high()], _negate_if(parts.negated(), lambda args: between(*args))
            )
        case "Like":
            if "ilike" in node.rex_call_operator():
                raise _DATAFUSION.make_unsupported_error("operator 'ILIKE'")
            escape = [] if parts.escape_char() is None else [literal(parts.escape_char())]
            build = _negate_if(parts.negated(), lambda args: Call("like", (*args, *escape)))
            return Parts([parts.expr(), parts.pattern()], build)
        case "Case":
            return _translate_case(parts)
        case "Cast" | "TryCast":
            return Parts([parts.expr()], _build_cast(str(node)))
        case _:
            build = _DATAFUSION.get_translation("node", kind)  # first, because other nodes may have no such part
            return Parts([parts.expr()], build)


def _translate_literal(node: Any) -> Literal:
    try:
        return literal(node.python_value())
    except (NotImplementedError, ValueError, pa.ArrowException) as error:
        raise ExpressionError(f"a DataFusion literal cannot be translated ({to_one_line(error)}): {ADVICE}") from error


def _negate_if(negated: bool, build: Build) -> Build:
    return (lambda args: not_(build(args))) if negated else build


def _build_membership(args: tuple[Unbound, ...]) -> Unbound:
    return Call("in", args) if len(args) > 1 else FALSE


def _build_division(args: tuple[Unbound, ...]) -> Unbound:
    divisor = args[1]
    is_floating = isinstance(divisor, Literal) and pa.types.is_floating(divisor.type)
    if not is_floating or not is_divisor_other_than_zero(divisor):
        raise ExpressionError(
            "a DataFusion expression divides integers, which truncates there, or by something that may be zero: "
            f"divide by a float such as lit(2.0), or {ADVICE}"
        )
    return mark(AS_DATAFUSION, Call("/", args))


def _build_remainder(args: tuple[Unbound, ...]) -> Unbound:
    if not is_divisor_other_than_zero(args[1]):
        raise ExpressionError(
            "a DataFusion expression has % by something that may be zero, which fails there and is NULL here: "
            f"use a number, or {ADVICE}"
        )
    return Call("%", args)


_DATAFUSION = Library("DataFusion", AS_DATAFUSION, lambda row: row.datafusion, {
    "IS DISTINCT FROM": lambda args: not_(Call("<=>", args)),
    "/": _build_division,
    "%": _build_remainder,
    "IsTrue": lambda args: Call("<=>", (args[0], TRUE)),
    "IsFalse": lambda args: Call("<=>", (args[0], FALSE)),
    "IsNotTrue": lambda args: not_(Call("<=>", (args[0], TRUE))),
    "IsNotFalse": lambda args: not_(Call("<=>", (args[0], FALSE))),
    "isnan": lambda args: Call("=", (args[0], NAN)),
    "get_field": lambda args: _build_field(*args),
})  # fmt: skip


def _build_field(value: Unbound, name: Unbound) -> Unbound:
    match name:
        case Literal(value=str() as field):
            return build_field(value, field, "DataFusion")
        case _:
            raise _DATAFUSION.make_unsupported_error("function 'get_field' of anything but a column and a name")


def _translate_case(parts: Any) -> Parts:
    pairs, otherwise = parts.when_then_expr(), parts.else_expr()
    subject = parts.expr()
    found = [each for pair in pairs for each in pair] + ([] if otherwise is None else [otherwise])

    def build(args: tuple[Unbound, ...]) -> Unbound:
        if subject is not None:
            compared, *args_of_pairs = args
            split = 2 * len(pairs)
            conditions = (Call("=", (compared, each)) for each in args_of_pairs[:split:2])
            values = args_of_pairs[1:split:2]
            args = tuple(each for pair in zip(conditions, values, strict=True) for each in pair)
            args = (*args, *args_of_pairs[split:])
        return Call("case", args if otherwise is not None else (*args, Literal(None)))

    return Parts(found if subject is None else [subject, *found], build)


_ARROW_TYPES = {
    **{f"{sign}Int{bits}": getattr(pa, f"{sign.lower()}int{bits}")() for sign in ("", "U") for bits in (8, 16, 32, 64)},
    "Float32": pa.float32(),
    "Float64": pa.float64(),
    "Utf8": pa.string(),
    "Utf8View": pa.string(),
    "Date32": pa.date32(),
    **{f"Timestamp({shown})": pa.timestamp(unit) for shown, unit in (("ms", "ms"), ("µs", "us"), ("ns", "ns"))},
}


def _build_cast(shown: str) -> Build:
    """Build the cast of a literal, as in `DATE '2024-01-01'`; the type is in the text of the node, and nowhere else."""
    target = re.search(r" AS ([^ ]+)\)\)$", shown)
    name = "an unknown type" if target is None else target[1]

    def build(args: tuple[Unbound, ...]) -> Unbound:
        if not isinstance(args[0], Literal) or name not in _ARROW_TYPES:
            raise _DATAFUSION.make_unsupported_error(f"cast to {name}, which depends on the type of a column,")
        try:
            return literal(pa.scalar(args[0].value, args[0].type).cast(_ARROW_TYPES[name]))
        except pa.ArrowException as error:
            raise ExpressionError(
                f"a DataFusion literal cannot be cast to {name} ({to_one_line(error)}): {ADVICE}"
            ) from error

    return build
