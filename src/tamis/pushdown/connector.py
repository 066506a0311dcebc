"""What a connector offers to the rules: each call takes more into a handle, or says that it cannot.

A handle is a value that says what a scan will read: immutable, hashable, equal to every other that says the same. A
call that has no effect returns None, never the same handle again, so that the rules come to an end. What remains of an
operation stays above the scan. A connector implements what it can do; `Connector` says no to everything else.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import pyarrow as pa

from tamis.errors import TableError
from tamis.expr.nodes import TRUE, Expr
from tamis.pushdown.nodes import AggregateCall, JoinKind, Named, Output, SortKey
from tamis.scan.key_sieve import KeySieve
from tamis.types import type_name

Handle = object


@dataclass(frozen=True, slots=True)
class PushedFilter:
    """A handle that returns fewer rows. `remaining` is still to be tested above; TRUE where nothing is."""

    handle: Handle
    remaining: Expr = TRUE
    projections: tuple[Named, ...] = ()
    """Columns that the scan returns in addition, of which the remaining filter makes use."""


@dataclass(frozen=True, slots=True)
class PushedProjection:
    """A handle that returns other columns, and for each output that was asked for an expression over those."""

    handle: Handle
    columns: tuple[Output, ...]
    outputs: tuple[Named, ...]


@dataclass(frozen=True, slots=True)
class PushedAggregation:
    """A handle that returns groups: all keys and aggregates in their order, as columns.

    With `is_partial` several rows may belong to one group, and `combined_by` names the function that makes one of the
    values of each aggregate. With `values` the columns are keys, and parts of which aggregates are made: an average of
    a sum and a count. Not with both.
    """

    handle: Handle
    columns: tuple[Output, ...]
    is_partial: bool = False
    combined_by: tuple[str, ...] = ()
    values: tuple[Expr, ...] = ()
    """For each aggregate an expression over columns of the handle; none where the columns are the aggregates."""


@dataclass(frozen=True, slots=True)
class PushedRows:
    """A handle that returns fewer rows, for a limit or a top-n. Where it is not guaranteed, the node stays above."""

    handle: Handle
    guaranteed: bool


@dataclass(frozen=True, slots=True)
class PushedJoin:
    """One handle for two: its columns are those of the left side, then (unless it is semi or anti) of the right.

    Both sides in the order of their handles, under whatever names: both may have an `id`.
    """

    handle: Handle
    columns: tuple[Output, ...]
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Properties:
    """What is known of the rows of a handle before anything is read. None: not known."""

    rows: int | None = None
    """At most so many."""
    rows_are_exact: bool = False
    bytes: int | None = None
    satisfied: Expr = TRUE
    """What every row satisfies, the filter that was pushed included."""
    is_filtered: bool | None = None
    """Whether there are fewer rows than the table has."""
    partitioned_by: tuple[str, ...] = ()
    sorted_by: tuple[SortKey, ...] = ()
    distinct: Mapping[str, int] = field(default_factory=dict)


def as_told(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """A batch under the names that a plan has for its columns; an error where they are not those that were told."""
    try:
        return pa.RecordBatch.from_arrays(batch.columns, schema=schema)
    except (ValueError, TypeError, pa.ArrowException) as error:
        given = ", ".join(f"{each.name} {type_name(each.type)}" for each in batch.schema) or "none"
        told = ", ".join(f"{each.name} {type_name(each.type)}" for each in schema)
        raise TableError(
            f"a connector read the columns {given} where it told of {told}: its read() gives what its columns() tells"
        ) from error


class Connector(Protocol):
    """A kind of tables. Write one in a file: subclass this, give it a name, and answer what it can do."""

    name: str

    # --- Tables -------------------------------------------------------------------------------------------------------

    def table(self, name: tuple[str, ...]) -> Handle | None:
        """The handle of a table by the name it has here; None where there is none."""
        return None

    def table_names(self) -> Sequence[str]:
        """The names of tables that can be told, for people who look for one; a table need not be among them."""
        return ()

    def names(self, handle: Handle) -> Sequence[str]:
        """All names that lead to the table of a handle: policies go by each of them."""
        return ()

    def identity(self) -> Hashable | None:
        """Equal for two connectors that have the same tables, so that policies of one follow to the other; None
        where nothing else has them."""
        return None

    def columns(self, handle: Handle) -> pa.Schema:
        """The columns that a scan of the handle returns, in this order."""
        raise NotImplementedError

    def properties(self, handle: Handle) -> Properties:
        return Properties()

    def lies_together(self, handle: Handle, column: Expr) -> bool | None:
        """Whether some values of a column lie in little of what a scan reads, so that it gains by knowing them.

        None where that is not known: then it is taken to gain.
        """
        return None

    def satisfied(self, handle: Handle) -> Expr:
        """What every row satisfies, where that is told without looking at the table."""
        return TRUE

    def describe(self, handle: Handle) -> str:
        """What a scan of the handle reads, in a line for people."""
        return repr(handle)

    # --- Pushdown -----------------------------------------------------------------------------------------------------

    def push_filter(self, handle: Handle, predicate: Expr) -> PushedFilter | None:
        return None

    def push_pruning(self, handle: Handle, predicate: Expr) -> Handle | None:
        """A handle that may leave out rows for which the predicate is not TRUE, because somebody drops them anyway.

        So a scan need not test its rows one by one where the predicate is long.
        """
        return None

    def push_keys(self, handle: Handle, column: Expr, keys: KeySieve) -> Handle | None:
        """A handle that may leave out rows whose column is none of very many keys."""
        return None

    def push_projection(self, handle: Handle, outputs: Sequence[Named]) -> PushedProjection | None:
        return None

    def push_aggregation(
        self, handle: Handle, partial: bool, keys: Sequence[Named], aggregates: Sequence[AggregateCall]
    ) -> PushedAggregation | None:
        """All of the aggregates, or none; there is a key or an aggregate at least. With `partial` the groups are finer
        than those that were asked for, and are combined above: worth it where that needs no rows. A handle that has
        groups already takes no such ones."""
        return None

    def sums_rows(self, handle: Handle) -> bool:
        """Whether rows of a handle would be read here for a sum: whoever has workers that read them sums there."""
        return False

    def push_limit(self, handle: Handle, count: int) -> PushedRows | None:
        return None

    def push_top_n(self, handle: Handle, keys: Sequence[SortKey], count: int) -> PushedRows | None:
        return None

    def push_join(
        self, left: Handle, right: Handle, kind: JoinKind, criteria: Sequence[tuple[Expr, Expr]]
    ) -> PushedJoin | None:
        return None

    # --- Policies -----------------------------------------------------------------------------------------------------

    def additional_filter(self, handle: Handle, principal: str | None) -> Expr | None:
        """What rows must satisfy for somebody to see them; None where all may be seen."""
        return None

    def masks(self, handle: Handle, principal: str | None) -> Mapping[str, Expr]:
        """What somebody sees in place of columns."""
        return {}

    # --- Reading ------------------------------------------------------------------------------------------------------

    def read(self, handle: Handle) -> Iterator[pa.RecordBatch]:
        """The rows of a handle, batch by batch, with exactly `columns(handle)`."""
        raise NotImplementedError
