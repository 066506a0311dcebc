"""The interface of connectors: each `push_*` call moves an operation into a handle, or returns None if it cannot.

A handle is a value that describes what a scan will read: immutable, hashable, and equal to every handle that describes
the same scan. A call without effect returns None, never an equal handle, so that the rules terminate. The part of an
operation that the connector does not accept stays above the scan. A connector implements what it supports; the defaults
of `Connector` decline everything else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

import pyarrow as pa

from tamis.errors import TableError
from tamis.expr.nodes import TRUE, AnyExpr, Expr
from tamis.query.plan.nodes import AggregateCall, JoinKind, Named, Output, SortKey
from tamis.scan.reading.bloom_join_filter import BloomJoinFilter
from tamis.types import type_name

if TYPE_CHECKING:
    from tamis.query.plan.optimizer import Rule

Handle = object


@dataclass(frozen=True, slots=True)
class PushedFilter:
    """A handle that returns fewer rows. `remaining` is the residual filter to apply above the scan, or TRUE."""

    handle: Handle
    remaining: Expr = TRUE
    projections: tuple[Named, ...] = ()
    """Additional columns that the scan returns for the residual filter."""


@dataclass(frozen=True, slots=True)
class PushedProjection:
    """A handle that returns other columns, and for each requested output an expression over those columns."""

    handle: Handle
    columns: tuple[Output, ...]
    outputs: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class PushedAggregation:
    """A handle that returns groups: its columns are all keys, then all aggregates, in their order.

    With `is_partial` several rows may belong to one group, and `combined_by` names for each aggregate the function that
    combines its values. With `values` the columns are keys and intermediate states, such as the sum and the count of an
    average. The two options exclude each other.
    """

    handle: Handle
    columns: tuple[Output, ...]
    is_partial: bool = False
    combined_by: tuple[str, ...] = ()
    values: tuple[Expr, ...] = ()
    """For each aggregate an expression over the handle's columns; empty if the columns are the aggregates."""


@dataclass(frozen=True, slots=True)
class PushedRows:
    """A handle that returns fewer rows, for a limit or a top-n. The node stays above the scan unless `guaranteed`."""

    handle: Handle
    guaranteed: bool


@dataclass(frozen=True, slots=True)
class PushedJoin:
    """One handle for two: its columns are those of the left side, then (unless it is semi or anti) of the right side.

    Each side keeps the column order of its handle. The names are free, since both sides may have an `id`.
    """

    handle: Handle
    columns: tuple[Output, ...]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Properties:
    """Statistics of a handle that are available before anything is read. None means unknown."""

    rows: int | None = None
    """The maximum number of rows."""
    rows_are_exact: bool = False
    bytes: int | None = None
    enforced_predicate: Expr = TRUE
    """A predicate that every row satisfies, including the pushed filter."""
    is_filtered: bool | None = None
    """Whether the handle returns fewer rows than the table has."""
    partitioned_by: tuple[str, ...] = ()
    """Columns with few distinct values, by which rows are stored: `push_aggregation` groups by them cheaply."""
    sorted_by: tuple[SortKey, ...] = ()
    """The order in which `read` returns rows. It is a promise: sorts that it satisfies are dropped."""
    unique_keys: tuple[tuple[str, ...], ...] = ()
    """Sets of columns whose values, NULL included, no two rows share. A promise too: DISTINCT over one is dropped."""
    clustered_by: tuple[str, ...] = ()
    """Columns by which the table declares to be clustered or sorted. No promise: its rows may be in any order."""


def conform_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return a batch with the column names of `schema`; raise TableError if number or types of columns differ."""
    try:
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except (ValueError, TypeError, pa.ArrowException) as error:
        given = ", ".join(f"{each.name} {type_name(each.type)}" for each in batch.schema) or "none"
        expected = ", ".join(f"{each.name} {type_name(each.type)}" for each in schema)
        raise TableError(
            f"a connector's read() returned the columns {given}, expected {expected}: "
            "return exactly what columns() describes"
        ) from error


class Connector(Protocol):
    """A kind of table. To write one, subclass this, give it a name, and override what the connector supports."""

    name: str

    # --- Tables -------------------------------------------------------------------------------------------------------

    def table(self, name: tuple[str, ...]) -> Handle | None:
        """Return the handle of the table with this name; None if there is none."""
        return None

    def table_names(self) -> Sequence[str]:
        """Return the table names that can be listed. They serve messages only: a table need not be among them."""
        return ()

    def names(self, handle: Handle) -> Sequence[str]:
        """Return every name of a handle's table. Policies apply under each of them."""
        return ()

    def identity(self) -> Hashable | None:
        """Return a value that is equal for two connectors with the same tables, so that the policies of one apply to
        the other; None if no other connector can have them."""
        return None

    def columns(self, handle: Handle) -> pa.Schema:
        """Return the columns that a scan of the handle returns, in this order."""
        raise NotImplementedError

    def properties(self, handle: Handle) -> Properties:
        """Return what is known about the rows of a handle: counts, sizes and order."""
        return Properties()

    def is_clustered(self, handle: Handle, column: Expr) -> bool | None:
        """Return whether the table is clustered by a column, so that a filter on some of its values skips much data.

        None means unknown; callers then assume that it is.
        """
        return None

    def enforced_predicate(self, handle: Handle) -> Expr:
        """Return a predicate that holds for every row of the handle. This does no I/O."""
        return TRUE

    def describe(self, handle: Handle) -> str:
        """Return one line of text that says what a scan of the handle reads."""
        return repr(handle)

    # --- Pushdown -----------------------------------------------------------------------------------------------------

    def push_filter(self, handle: Handle, predicate: Expr) -> PushedFilter | None:
        """Return a handle with a filter, and what remains to be filtered above; None if nothing is taken."""
        return None

    def push_pruning(self, handle: Handle, predicate: Expr) -> Handle | None:
        """Return a handle that may skip rows for which the predicate is not TRUE.

        A node above drops such rows anyway, so the scan need not evaluate a long predicate row by row.
        """
        return None

    def push_join_keys(self, handle: Handle, column: Expr, keys: BloomJoinFilter) -> Handle | None:
        """Return a handle that may skip rows whose column value is not among very many keys."""
        return None

    def push_projection(self, handle: Handle, outputs: Sequence[Named]) -> PushedProjection | None:
        """Return a handle with other columns, and the outputs as expressions over these; None if that saves nothing."""
        return None

    def push_aggregation(
        self, handle: Handle, partial: bool, keys: Sequence[Named], aggregates: Sequence[AggregateCall]
    ) -> PushedAggregation | None:
        """Push all of the aggregates, or return None. There is at least one key or aggregate.

        With `partial` the groups are finer than requested and are combined above the scan, which pays off if it reads
        no rows. A handle that has groups already accepts no partial ones.
        """
        return None

    def must_read_rows(self, handle: Handle) -> bool:
        """Return whether this process would read rows to aggregate the handle. An engine with workers aggregates there
        instead."""
        return False

    def push_limit(self, handle: Handle, count: int) -> PushedRows | None:
        """Return a handle with at most so many rows; None if it cannot stop early."""
        return None

    def push_top_n(self, handle: Handle, keys: Sequence[SortKey], count: int) -> PushedRows | None:
        """Return a handle with the first rows of an order; None if it cannot find them."""
        return None

    def push_sort(self, handle: Handle, keys: Sequence[SortKey]) -> Handle | None:
        """Return a handle whose rows come in an order, and whose `properties` say so; None if that would not pay off.

        The sort above is dropped, so the order must not depend on what a table merely declares.
        """
        return None

    def push_join(
        self, left: Handle, right: Handle, kind: JoinKind, criteria: Sequence[tuple[Expr, Expr]]
    ) -> PushedJoin | None:
        """Return one handle for the join of two; None if the source cannot join them."""
        return None

    def rules(self) -> Sequence[Rule]:
        """Return the connector's own optimizer rules. Their names differ from those of all other rules.

        The optimizer offers them only nodes that read nothing but tables of this connector, none of them under a
        policy. They run after the rules of Tamis, with the same checks.
        """
        return ()

    # --- Policies -----------------------------------------------------------------------------------------------------

    def additional_filter(self, handle: Handle, principal: str | None) -> AnyExpr | None:
        """Return the row filter for a principal; None if all rows are visible."""
        return None

    def masks(self, handle: Handle, principal: str | None) -> Mapping[str, AnyExpr]:
        """Return the column masks for a principal: an expression for each masked column."""
        return {}

    # --- Reading ------------------------------------------------------------------------------------------------------

    def read(self, handle: Handle) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a handle as batches with exactly `columns(handle)`."""
        raise NotImplementedError
