"""A filter made ready for a table: bound, normalised, rewritten once for every level."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from tamis.errors import TypeMismatch
from tamis.expr.bind import bind, place_of
from tamis.expr.functions import type_of
from tamis.expr.nodes import TRUE, Column, Expr, and_, columns_of
from tamis.expr.normalise import normalise
from tamis.expr.partition_filter import PartitionFilter
from tamis.expr.printer import shown
from tamis.expr.sources import to_expr
from tamis.skipping.rewrite import Conjunct, rewrite
from tamis.types import a_type


@dataclass(frozen=True)
class Predicate:
    """What a scan keeps: rows for which every conjunct is TRUE, in partitions that the partition filter admits."""

    expr: Expr
    partition_filter: PartitionFilter | None = None
    mentioned: tuple[Column, ...] = ()
    """Every column that the filter names, also where normalising found that it does not matter."""

    on_partitions: Expr = TRUE
    """The filter as far as it holds whatever the types of data columns are, which a file may have wider than the
    table: `x > 3000000000` is never TRUE of an int, and yet no reason to pass over a partition unseen."""

    bound: Expr = field(default=TRUE, compare=False, repr=False)
    """The filter before it was simplified by how values compare here: a table may say that texts compare otherwise.
    It does not travel to other processes."""

    @cached_property
    def conjuncts(self) -> tuple[Conjunct, ...]:
        return rewrite(self.expr)

    @cached_property
    def partition_conjuncts(self) -> tuple[Conjunct, ...]:
        """The parts of `on_partitions`, under the texts that the same parts of the whole filter have."""
        if self.on_partitions == self.expr:
            return self.conjuncts
        parts = rewrite(self.on_partitions)
        if len(parts) != len(self.conjuncts):
            return parts
        pairs = zip(parts, self.conjuncts, strict=True)
        return tuple(
            replace(part, label=whole.predicate) if _same_columns(part, whole) else part for part, whole in pairs
        )

    def and_also(self, other: Predicate) -> Predicate:
        """Both predicates: the conjuncts of this one come first, and none of them is merged with those of the other."""
        assert other.partition_filter is None
        return Predicate(
            and_(*(each.predicate for each in (*self.conjuncts, *other.conjuncts))),
            self.partition_filter,
            tuple(dict.fromkeys((*self.mentioned, *other.mentioned))),
            and_(self.on_partitions, other.on_partitions),
            and_(self.bound, other.bound),
        )

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(columns_of(self.expr))

    @property
    def is_trivial(self) -> bool:
        """Every row satisfies it."""
        return self.expr == TRUE

    @property
    def text(self) -> str | None:
        parts = [] if self.is_trivial else [shown(self.expr)]
        if self.partition_filter is not None:
            parts.append(f"partition filter {self.partition_filter.to_json()}")
        return " AND ".join(parts) or None

    def part(self, indices: Sequence[int]) -> Expr:
        """The conjunction of some of the conjuncts."""
        return and_(*(self.conjuncts[index].predicate for index in indices))


def make_predicate(where: object, schema: pa.Schema, table: str, partition_columns: Collection[str] = ()) -> Predicate:
    """The predicate that a `where` argument means: SQL text, an expression of ours or of others, a partition filter."""
    given = to_expr(where)
    if given is None:
        return Predicate(TRUE)
    if isinstance(given, PartitionFilter):
        return Predicate(TRUE, given)
    bound = bind(given, schema, table)
    data_type = type_of(bound)
    if data_type is not None and not pa.types.is_boolean(data_type) and not pa.types.is_null(data_type):
        raise TypeMismatch(
            f"the filter {shown(bound)} is {a_type(data_type)}, not a predicate{place_of(bound)}. "
            f"Compare it with something, as in {shown(bound)} = …"
        )
    expr, mentioned = normalise(bound), tuple(columns_of(bound))
    if all(column.path[0] in partition_columns for column in mentioned):
        on_partitions = expr
    else:
        on_partitions = normalise(bind(given, schema, table, typed=partition_columns)) if partition_columns else TRUE
    return Predicate(expr, mentioned=mentioned, on_partitions=on_partitions, bound=bound)


def _same_columns(one: Conjunct, other: Conjunct) -> bool:
    return columns_of(one.predicate) == columns_of(other.predicate)
