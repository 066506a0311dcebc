"""The handle of the lake connector: a value that describes what a scan of a lake table reads."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from tamis.expr.nodes import TRUE, Column, Expr
from tamis.formats.source import TableSource
from tamis.query.plan.nodes import Node, TableScan
from tamis.scan.aggregation.measures import Measure, needs_rows
from tamis.scan.reading.bloom_join_filter import BloomJoinFilter

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column of a handle: a table column, a struct field, or (without a path) an aggregate."""

    name: str
    path: Path
    type: pa.DataType = field(compare=False)

    @property
    def column(self) -> Column:
        """The column of the table."""
        return Column(self.path, type=self.type, exact=True)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Measures of the matching rows, grouped by keys. The columns of the handle are the keys, then the measures."""

    keys: tuple[Column, ...]
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class TopRows:
    """A top-n by one column of the handle. `with_ties` keeps the ties of its last row, for sort keys applied above."""

    column: LakeColumn
    descending: bool
    nulls_first: bool
    count: int
    with_ties: bool


@dataclass(frozen=True, slots=True)
class OrderKey:
    """A column of the handle in whose order rows are read."""

    column: LakeColumn
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class LakeHandle:
    """A scan of a table at one version.

    Rows are filtered first, and then aggregated, sorted, limited or reduced to a top-n.
    """

    name: tuple[str, ...]
    uri: str
    version: int | None
    source: TableSource = field(compare=False, repr=False)
    columns: tuple[LakeColumn, ...]
    predicate: Expr = TRUE
    """The filter, over columns of the table."""
    pruning: Expr = TRUE
    """A pruning predicate, over columns of the table: rows for which it is not TRUE may be dropped."""
    bloom_filters: tuple[tuple[LakeColumn, BloomJoinFilter], ...] = ()
    """Bloom join filters on columns of the handle: rows with other values may be dropped."""
    limit: int | None = None
    top: TopRows | None = None
    order: tuple[OrderKey, ...] = ()
    """The order in which rows are read; empty for any order."""
    aggregation: Aggregation | None = None

    @staticmethod
    def of(name: tuple[str, ...], source: TableSource) -> LakeHandle:
        columns = tuple(LakeColumn(each.name, (each.name,), each.type) for each in source.schema)
        return LakeHandle(name, source.storage.uri, source.version, source, columns)

    @property
    def is_limited(self) -> bool:
        """Return whether the handle has a limit or top-n, so that no further filter may be pushed."""
        return self.limit is not None or self.top is not None

    @property
    def sums_rows(self) -> bool:
        """Return whether rows are read to compute sums; sums of partition columns come from metadata."""
        measures = () if self.aggregation is None else self.aggregation.measures
        return needs_rows(measures, self.source.partition_columns)

    def without_aggregation(self, aggregation: Aggregation) -> LakeHandle:
        """Return a handle of the rows that this one aggregates, with the columns that the aggregation needs."""
        asked = (*aggregation.keys, *(measure.column for measure in aggregation.measures))
        columns = {each.path: each.type for each in asked if each is not None}
        named = tuple(LakeColumn(f"c{number}", *column) for number, column in enumerate(columns.items()))
        return replace(self, columns=named, aggregation=None)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(each.name, each.type) for each in self.columns])

    def column(self, name: str) -> LakeColumn | None:
        return next((each for each in self.columns if each.name == name), None)

    def find(self, expr: Expr) -> LakeColumn | None:
        """Return the column that an expression is; None for other expressions, also for a field of a column."""
        return self.column(expr.path[0]) if isinstance(expr, Column) and len(expr.path) == 1 else None


# --- Predicates for engines: which lake scans compute sums while reading ----------------------------------------------


def is_sum_scan(node: Node) -> bool:
    """Return whether a node is a scan that reads rows to compute sums."""
    return isinstance(node, TableScan) and isinstance(node.handle, LakeHandle) and node.handle.sums_rows


def find_integer_sums(node: Node) -> list[str]:
    """Return the names of the columns of a scan that are sums of integers with 38 digits."""
    if not isinstance(node, TableScan) or not isinstance(node.handle, LakeHandle):
        return []
    aggregation = node.handle.aggregation
    if aggregation is None:
        return []
    pairs = zip(node.columns[len(aggregation.keys) :], aggregation.measures, strict=True)
    return [column.name for column, measure in pairs if _is_integer_sum(measure) and column.type == measure.type]


def _is_integer_sum(measure: Measure) -> bool:
    own = None if measure.column is None else measure.column.type
    return measure.function == "sum" and own is not None and pa.types.is_integer(own)
