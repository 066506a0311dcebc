"""Translation of pyiceberg expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError
from tamis.expr.foreign import AS_ICEBERG
from tamis.expr.functions.table import find_foreign_function, is_comparison
from tamis.expr.interop.translate_tree import NAN, Parts, translate_tree
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, TRUE, Call, Literal, Name, Unbound, and_, not_, or_


def from_pyiceberg(expression: Any) -> Unbound:
    """Translate an unbound `BooleanExpression` into a predicate for the rows that a pyiceberg scan returns.

    A pyiceberg scan filters rows with pyarrow, which treats NULL as follows, also below `Not`:

    | pyiceberg                                 | of NULL | here                              |
    |-------------------------------------------|---------|-----------------------------------|
    | EqualTo, NotEqualTo, LessThan, …          | NULL    | the operator                      |
    | StartsWith, NotStartsWith, IsNaN, NotNaN  | NULL    | `startswith`, `= NaN`, and NOT    |
    | In (of two values or more)                | FALSE   | `x IS NOT NULL AND x IN (…)`      |
    | NotIn (of two values or more)             | TRUE    | `x IS NULL OR NOT x IN (…)`       |

    pyiceberg itself turns `In` and `NotIn` of one value into `EqualTo` and `NotEqualTo`. Literals get the type of the
    column, comparisons with NaN are FALSE, and a comparison with a number out of the range of the column's type is TRUE
    or FALSE also for NULL: see `tamis.expr.foreign`. Unlike in a pyiceberg scan, `In` finds -0.0 where it has 0.0.
    """
    return translate_tree(expression, _translate)


def _translate(node: Any) -> Unbound | Parts:
    from pyiceberg import expressions as iceberg

    match node:
        case iceberg.And():
            return Parts([node.left, node.right], lambda args: and_(*args))
        case iceberg.Or():
            return Parts([node.left, node.right], lambda args: or_(*args))
        case iceberg.Not():
            return Parts([node.child], lambda args: not_(*args))
        case iceberg.AlwaysTrue():
            return TRUE
        case iceberg.AlwaysFalse():
            return FALSE
        case iceberg.UnboundPredicate():
            column = _to_column(node.term)
        case _:
            raise ExpressionError(
                f"the pyiceberg expression {type(node).__name__} cannot be translated: "
                "pass it unbound, as it is before bind(), or write the filter as SQL text"
            )
    match node:
        case iceberg.IsNaN():
            return Call(AS_ICEBERG, (Call("=", (column, NAN)),))
        case iceberg.NotNaN():
            return Call(AS_ICEBERG, (Call("<>", (column, NAN)),))
        case iceberg.In():
            return _build_membership(column, node)
        case iceberg.NotIn():
            return not_(_build_membership(column, node))
        case iceberg.NotStartsWith():
            return not_(Call("startswith", (column, _to_literal(node.literal))))
        case _:
            kind = type(node).__name__
            named = find_foreign_function(kind, lambda row: row.classes)
            if named is None:
                raise ExpressionError(
                    f"the pyiceberg predicate {kind} has no counterpart here: write the filter as SQL text"
                )
            if named.most == 1:
                return Call(named.name, (column,))
            call = Call(named.name, (column, _to_literal(node.literal)))
            return Call(AS_ICEBERG, (call,)) if is_comparison(call) else call


def _to_column(term: Any) -> Name:
    from pyiceberg.expressions import Reference

    if not isinstance(term, Reference):
        raise ExpressionError(f"the pyiceberg term {type(term).__name__} is not a column: write the filter as SQL text")
    parts = tuple(term.name.split("."))
    # A dot separates the fields of a nested column; a name that starts or ends with a dot is one name.
    return Name(parts if all(parts) else (term.name,), exact=True)


def _build_membership(column: Name, node: Any) -> Call[Name]:
    # pyiceberg holds a set, whose order changes from run to run.
    members = sorted(node.literals, key=lambda member: (type(member).__name__, member.value))
    return Call(AS_ICEBERG, (Call("in", (column, *(_to_literal(member) for member in members))),))


def _to_literal(value: Any) -> Literal:
    """Translate a pyiceberg literal, which holds days and microseconds for times, as Tamis does."""
    from pyiceberg.expressions import literals as iceberg

    match value:
        case iceberg.DateLiteral():
            return Literal(value.value, types.DATE)
        case iceberg.TimeLiteral():
            return Literal(value.value, pa.time64("us"))
        case iceberg.TimestampLiteral():
            return Literal(value.value, types.TIMESTAMP_NTZ)
        case iceberg.FloatLiteral():
            return Literal(float(np.float32(value.value)), pa.float32())
        case (
            iceberg.BooleanLiteral()
            | iceberg.LongLiteral()
            | iceberg.DoubleLiteral()
            | iceberg.DecimalLiteral()
            | iceberg.StringLiteral()
        ):
            return literal(value.value)
        case iceberg.UUIDLiteral() | iceberg.FixedLiteral() | iceberg.BinaryLiteral():
            return Literal(value.value, types.BINARY)
        case _:
            raise ExpressionError(
                f"the pyiceberg literal {type(value).__name__} has no counterpart here: write the filter as SQL text"
            )
