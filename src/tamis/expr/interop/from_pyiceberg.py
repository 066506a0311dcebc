"""Translation of pyiceberg expressions."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError
from tamis.expr.functions.table import FUNCTIONS
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, TRUE, Call, Column, Expr, Literal, and_, not_, or_

_NAN = Literal(float("nan"), types.DOUBLE)


def from_pyiceberg(expression: Any) -> Expr:
    """Translate an unbound `BooleanExpression` into a predicate for the rows that a pyiceberg scan returns.

    A pyiceberg scan filters rows with pyarrow, which treats NULL as follows, also below `Not`:

    | pyiceberg                                 | of NULL | here                              |
    |-------------------------------------------|---------|-----------------------------------|
    | EqualTo, NotEqualTo, LessThan, …          | NULL    | the operator                      |
    | StartsWith, NotStartsWith, IsNaN, NotNaN  | NULL    | `startswith`, `= NaN`, and NOT    |
    | In (of two values or more)                | FALSE   | `x IS NOT NULL AND x IN (…)`      |
    | NotIn (of two values or more)             | TRUE    | `x IS NULL OR NOT x IN (…)`       |

    pyiceberg itself turns `In` and `NotIn` of one value into `EqualTo` and `NotEqualTo`. NaN is larger than every
    number and equal to itself, as everywhere in Tamis; in a pyiceberg scan every comparison with NaN is false.
    """
    from pyiceberg import expressions as iceberg

    results: list[Expr] = []
    # AND, OR and NOT are visited twice: first to push their operands, then to combine the results.
    stack: list[tuple[Any, bool]] = [(expression, False)]
    while stack:
        node, has_results = stack.pop()
        match node:
            case iceberg.And() | iceberg.Or() if has_results:
                right, left = results.pop(), results.pop()
                results.append(and_(left, right) if isinstance(node, iceberg.And) else or_(left, right))
            case iceberg.Not() if has_results:
                results.append(not_(results.pop()))
            case iceberg.And() | iceberg.Or():
                stack += [(node, True), (node.right, False), (node.left, False)]
            case iceberg.Not():
                stack += [(node, True), (node.child, False)]
            case _:
                results.append(_translate_leaf(node))
    return results[0]


def _translate_leaf(node: Any) -> Expr:
    from pyiceberg import expressions as iceberg

    match node:
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
            return Call("=", (column, _NAN))
        case iceberg.NotNaN():
            return Call("<>", (column, _NAN))
        case iceberg.In():
            return and_(Call("is_not_null", (column,)), _build_membership(column, node))
        case iceberg.NotIn():
            return or_(Call("is_null", (column,)), not_(_build_membership(column, node)))
        case iceberg.NotStartsWith():
            return not_(Call("startswith", (column, _to_literal(node.literal))))
        case _:
            kind = type(node).__name__
            named = next((known for known in FUNCTIONS.values() if kind in known.classes), None)
            if named is None:
                raise ExpressionError(
                    f"the pyiceberg predicate {kind} has no counterpart here: write the filter as SQL text"
                )
            return Call(named.name, (column,) if named.most == 1 else (column, _to_literal(node.literal)))


def _to_column(term: Any) -> Column:
    from pyiceberg.expressions import Reference

    if not isinstance(term, Reference):
        raise ExpressionError(f"the pyiceberg term {type(term).__name__} is not a column: write the filter as SQL text")
    parts = tuple(term.name.split("."))
    # A dot separates the fields of a nested column; a name that starts or ends with a dot is one name.
    return Column(parts if all(parts) else (term.name,), exact=True)


def _build_membership(column: Column, node: Any) -> Call:
    # pyiceberg holds a set, whose order changes from run to run.
    members = sorted(node.literals, key=lambda member: (type(member).__name__, member.value))
    return Call("in", (column, *(_to_literal(member) for member in members)))


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
