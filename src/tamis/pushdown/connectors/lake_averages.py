"""Averages, made of sums and counts: those of parts of a table can be put together.

    avg(x)  ─▶  CAST(sum(x) AS double) / CAST(count(x) AS double)

An average of decimals has four digits more after the point than they have, as in Spark.
So the embedded engine makes averages without keys; those of groups it may round otherwise in their last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tamis.expr.functions import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.expr.printer import shown
from tamis.pushdown.nodes import AggregateCall, Output
from tamis.types import LONG, STRING


def is_average(call: AggregateCall) -> bool:
    return call.function == "avg" and not call.distinct and len(call.args) == 1


@dataclass(frozen=True)
class Parts:
    """Aggregates without averages, each of them once, and the places of those that make each one that was asked for."""

    calls: tuple[AggregateCall, ...]
    places: tuple[tuple[int, ...], ...]
    scales: tuple[int | None, ...]
    """For each that was asked for, the digits after the point of the decimals that an average is made of."""

    @staticmethod
    def of(aggregates: Sequence[AggregateCall]) -> Parts:
        found: dict[AggregateCall, int] = {}
        places = []
        for call in aggregates:
            functions = ("sum", "count") if is_average(call) else (call.function,)
            parts = (replace(call, name="", function=function) for function in functions)
            places.append(tuple(found.setdefault(part, len(found)) for part in parts))
        calls = tuple(replace(call, name=f"{call.function}({_argument(call)})") for call in found)
        return Parts(calls, tuple(places), tuple(map(_scale, aggregates)))

    def values(self, columns: Sequence[Output]) -> tuple[Expr, ...]:
        """What was asked for, as expressions over columns with the parts."""
        return tuple(
            _value([Column((columns[place].name,), type=columns[place].type) for place in places], scale)
            for places, scale in zip(self.places, self.scales, strict=True)
        )


def _scale(call: AggregateCall) -> int | None:
    averaged = type_of(call.args[0]) if is_average(call) else None
    return averaged.scale if averaged is not None and pa.types.is_decimal(averaged) else None


def _argument(call: AggregateCall) -> str:
    return ", ".join(each.name if isinstance(each, Column) else shown(each) for each in call.args) or "*"


def _value(parts: Sequence[Column], scale: int | None) -> Expr:
    if len(parts) == 1:
        return parts[0]
    quotient = Call("/", tuple(Call("cast", (part, Literal("double", STRING))) for part in parts))
    return quotient if scale is None else Call("round", (quotient, Literal(scale + 4, LONG)))
