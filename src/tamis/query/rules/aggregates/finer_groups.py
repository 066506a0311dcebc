"""Groups computed from finer groups: counts are added, minima and maxima compared again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.query.plan.nodes import Aggregate, AggregateCall, Named, Node, Output, Project
from tamis.types import LONG, STRING

_COMBINING_FUNCTIONS = {"count": "sum", "min": "min", "max": "max"}


def can_combine(call: AggregateCall) -> bool:
    """Return whether an aggregate can be computed from its values for finer groups."""
    return call.function in _COMBINING_FUNCTIONS and not call.distinct


def combine_finer_groups(
    source: Node,
    keys: Sequence[Named],
    calls: Sequence[AggregateCall],
    parts: Mapping[str, Output],
    functions: Mapping[str, str] | None = None,
) -> Node:
    """Return the groups by some keys of a node with finer groups.

    `parts` has the outputs of the node with the values of calls, by their names. Other calls are made as they are.
    `functions` has the functions that combine these values; the default is that of `can_combine`.
    """
    chosen = functions or {call.name: _COMBINING_FUNCTIONS[call.function] for call in calls if call.name in parts}
    combined = [_combine(call, parts[call.name], chosen[call.name]) if call.name in parts else call for call in calls]
    groups = Aggregate(source, tuple(keys), tuple(combined))
    counts = {call.name for call in calls if call.function == "count" and call.name in parts}
    if not counts:
        return groups
    # The sum of counts is a count: engines return a wider type for sums.
    outputs = [Named(key.name, Column((key.name,), type=type_of(key.expr))) for key in keys]
    for each in combined:
        value: Expr = Column((each.name,), type=each.type)
        if each.name in counts:
            value = Call("cast", (value, Literal("bigint", STRING)))
            # Without keys there is one group, even if there are no finer ones.
            value = value if keys else Call("coalesce", (value, Literal(0, LONG)))
        outputs.append(Named(each.name, value))
    return Project(groups, tuple(outputs))


def _combine(call: AggregateCall, part: Output, function: str) -> AggregateCall:
    return AggregateCall(call.name, function, (Column((part.name,), type=part.type),), type=part.type)
