"""Averages from sums and counts, which can be combined across files.

    avg(x)  ─▶  CAST(sum(x) AS double) / CAST(count(x) AS double)

The average of decimals has four more digits after the decimal point than they have, as in Spark.
DuckDB computes averages without keys like this; averages of groups may differ in their last bit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tamis.expr.functions import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal
from tamis.expr.printer import to_display_sql
from tamis.pushdown.nodes import AggregateCall, Output
from tamis.types import LONG, STRING


def is_average(call: AggregateCall) -> bool:
    return call.function == "avg" and not call.distinct and len(call.args) == 1


@dataclass(frozen=True)
class PartialAggregates:
    """The distinct aggregates without averages, and the positions of those that each requested one is computed from."""

    calls: tuple[AggregateCall, ...]
    positions: tuple[tuple[int, ...], ...]
    scales: tuple[int | None, ...]
    """For each requested average of decimals, the scale of these decimals; else None."""

    @staticmethod
    def of(aggregates: Sequence[AggregateCall]) -> PartialAggregates:
        found: dict[AggregateCall, int] = {}
        positions = []
        for call in aggregates:
            functions = ("sum", "count") if is_average(call) else (call.function,)
            parts = (replace(call, name="", function=function) for function in functions)
            positions.append(tuple(found.setdefault(part, len(found)) for part in parts))
        calls = tuple(replace(call, name=f"{call.function}({_format_arguments(call)})") for call in found)
        return PartialAggregates(calls, tuple(positions), tuple(map(_find_scale, aggregates)))

    def values(self, columns: Sequence[Output]) -> tuple[Expr, ...]:
        """Return the requested aggregates as expressions over the columns of the partial results."""
        return tuple(
            _to_value([Column((columns[position].name,), type=columns[position].type) for position in positions], scale)
            for positions, scale in zip(self.positions, self.scales, strict=True)
        )


def _find_scale(call: AggregateCall) -> int | None:
    averaged = type_of(call.args[0]) if is_average(call) else None
    return averaged.scale if averaged is not None and pa.types.is_decimal(averaged) else None


def _format_arguments(call: AggregateCall) -> str:
    return ", ".join(each.name if isinstance(each, Column) else to_display_sql(each) for each in call.args) or "*"


def _to_value(parts: Sequence[Column], scale: int | None) -> Expr:
    if len(parts) == 1:
        return parts[0]
    quotient = Call("/", tuple(Call("cast", (part, Literal("double", STRING))) for part in parts))
    return quotient if scale is None else Call("round", (quotient, Literal(scale + 4, LONG)))
