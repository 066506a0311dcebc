"""What a scan of a lake table reads: a value that says it, and how it changes with what is pushed into it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeAlias

import pyarrow as pa

from tamis.expr.nodes import TRUE, Column, Expr
from tamis.scan.key_sieve import KeySieve
from tamis.scan.measures import Measure, needs_rows
from tamis.tables.source import TableSource

Path: TypeAlias = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LakeColumn:
    """A column of a handle: one of the table, or a field inside of one; without a path, what was computed."""

    name: str
    path: Path
    type: pa.DataType = field(compare=False)

    @property
    def column(self) -> Column:
        """As the table knows it."""
        return Column(self.path, type=self.type, exact=True)


@dataclass(frozen=True, slots=True)
class Aggregation:
    """Measures of the matching rows by keys; the columns of the handle are those, in this order."""

    keys: tuple[Column, ...]
    measures: tuple[Measure, ...]


@dataclass(frozen=True, slots=True)
class TopRows:
    """The first rows by one or more columns of the handle."""

    column: LakeColumn
    descending: bool
    nulls_first: bool
    count: int
    with_ties: bool


@dataclass(frozen=True, slots=True)
class LakeHandle:
    """A scan of a table at one version.

    Rows are filtered first; then they are aggregated, or limited, or the first of them by an order are taken.
    """

    name: tuple[str, ...]
    uri: str
    version: int | None
    source: TableSource = field(compare=False, repr=False)
    columns: tuple[LakeColumn, ...]
    predicate: Expr = TRUE
    """Over columns of the table."""
    pruning: Expr = TRUE
    """Over columns of the table too: rows for which it is not TRUE may be left out."""
    sieves: tuple[tuple[LakeColumn, KeySieve], ...] = ()
    """Keys by columns of the handle: rows with another value may be left out."""
    limit: int | None = None
    top: TopRows | None = None
    aggregation: Aggregation | None = None

    @staticmethod
    def of(name: tuple[str, ...], source: TableSource) -> LakeHandle:
        columns = tuple(LakeColumn(each.name, (each.name,), each.type) for each in source.schema)
        return LakeHandle(name, source.storage.uri, source.version, source, columns)

    @property
    def has_cut(self) -> bool:
        """Whether which rows there are depends on more than the filter, so that a further one comes too late."""
        return self.limit is not None or self.top is not None

    @property
    def sums_rows(self) -> bool:
        """Whether rows are read to be summed: of partition columns metadata tells the sums."""
        measures = () if self.aggregation is None else self.aggregation.measures
        return needs_rows(measures, self.source.partition_columns)

    def of_rows(self, aggregation: Aggregation) -> LakeHandle:
        """The rows that this handle aggregates, with the columns that are needed for it."""
        asked = (*aggregation.keys, *(measure.column for measure in aggregation.measures))
        columns = {each.path: each.type for each in asked if each is not None}
        named = tuple(LakeColumn(f"c{number}", *column) for number, column in enumerate(columns.items()))
        return replace(self, columns=named, aggregation=None)

    @property
    def schema(self) -> pa.Schema:
        return pa.schema([(each.name, each.type) for each in self.columns])

    def column(self, name: str) -> LakeColumn | None:
        return next((each for each in self.columns if each.name == name), None)
