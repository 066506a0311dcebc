"""Which of the user's conditions may be tested on rows that a policy hides.

A condition may run below a policy only if it cannot fail for any value, because an error would reveal the value. The
error of `y = 20 AND 1 / (y - 20) = 0` would reveal that there is a hidden 20.

    leakproof   a = 5   a <= 5   a <=> NULL   a IN (1, 2)   a IS NULL   s LIKE 'p%'   flag
                and AND, OR, NOT of those; `a` is a column, or a field of one, of the type of the literals
    not         functions, arithmetic, casts, columns compared with columns, everything else
"""

from __future__ import annotations

import pyarrow as pa

from tamis.expr.evaluate import can_evaluate
from tamis.expr.functions.table import FUNCTIONS, may_call_fail, may_fail
from tamis.expr.nodes import Call, Column, Expr, Literal, fold, get_conditions, is_logic, walk


def is_leakproof(predicate: Expr) -> bool:
    """Return whether a bound predicate can be tested on any row without revealing it.

    >>> from tamis import types
    >>> from tamis.expr.nodes import Literal
    >>> y = Column(("y",), type=types.LONG)
    >>> five = Literal(5, types.LONG)
    >>> is_leakproof(Call("<", (y, five))), is_leakproof(Call("<", (Call("+", (y, five)), five)))
    (True, False)
    """
    has_leakproof_form = fold(predicate, _has_leakproof_form, get_conditions)
    # Without the types of its columns a comparison might convert a value, and fail.
    return has_leakproof_form and can_evaluate(predicate) and not may_fail(predicate)


def policy_may_fail(expr: Expr) -> bool:
    """Return whether a row filter or a mask may fail on a value. The error would reveal hidden rows."""
    return any(may_call_fail(node) and not _is_cast_to_text(node) for node in walk(expr) if isinstance(node, Call))


def _is_cast_to_text(call: Call) -> bool:
    match call:
        case Call("cast", (_, Literal("string"))):
            return True
        case _:
            return False


def _has_leakproof_form(node: Expr, operands: tuple[bool, ...]) -> bool:
    match node:
        case Literal(type=data_type) | Column(type=data_type):
            return data_type is not None and bool(pa.types.is_boolean(data_type) or pa.types.is_null(data_type))
        case Call() if is_logic(node):
            return all(operands)
        case Call(function, args):
            known = FUNCTIONS.get(function)
            return known is not None and known.is_leakproof is not None and known.is_leakproof(args)
