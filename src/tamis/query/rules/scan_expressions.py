"""Translate expressions between the column ids of a plan and the column names of a connector's handle."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tamis.expr.nodes import TRUE, Column, Expr, and_, split_conjuncts
from tamis.query.plan.column_ids import substitute
from tamis.query.plan.nodes import Filter, Named, Node, Output, TableScan
from tamis.query.plan.optimizer import Context


@dataclass(frozen=True)
class ScanNames:
    """Mappings between the columns of a scan and those of its handle, which match by position."""

    to_handle: dict[str, Expr]
    to_plan: dict[str, Expr]

    @staticmethod
    def of(scan: TableScan, context: Context) -> ScanNames:
        fields = list(context.connector(scan.connector).columns(scan.handle))
        pairs = list(zip(scan.columns, fields, strict=True))
        return ScanNames(
            {output.name: Column((field.name,), type=field.type, exact=True) for output, field in pairs},
            {field.name: Column((output.name,), type=output.type or field.type) for output, field in pairs},
        )

    def to_handle_expr(self, expr: Expr) -> Expr:
        return substitute(expr, self.to_handle)

    def to_plan_expr(self, expr: Expr) -> Expr:
        return substitute(expr, self.to_plan)

    def to_handle_outputs(self, outputs: Iterable[Named]) -> list[Named]:
        return [Named(each.name, self.to_handle_expr(each.expr)) for each in outputs]


def rename_columns(columns: Sequence[Output], names: Sequence[str]) -> tuple[Output, ...]:
    """Return the columns of a handle under the column ids of a plan."""
    return tuple(Output(name, column.type) for name, column in zip(names, columns, strict=True))


# --- Split predicates into conjuncts, and build filters from conjuncts ------------------------------------------------


def list_conjuncts(predicate: Expr | None) -> list[Expr]:
    """Return the distinct conjuncts of a predicate, without TRUE."""
    if predicate is None:
        return []
    return [conjunct for conjunct in dict.fromkeys(split_conjuncts(predicate)) if conjunct != TRUE]


def add_filter(source: Node, conjuncts: Iterable[Expr], *, protects: bool = False) -> Node:
    """Return a filter over a node that keeps the rows for which all conjuncts are TRUE.

    Without conjuncts, return the node itself.
    """
    kept = [conjunct for conjunct in dict.fromkeys(conjuncts) if conjunct != TRUE]
    return Filter(source, and_(*kept), protects) if kept else source
