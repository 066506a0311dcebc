"""A filter prepared for a table: bound, normalised, and rewritten once for all levels."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from tamis.errors import InvalidArgument, TypeMismatch, suggest_arguments
from tamis.expr.bind import bind, format_expression_position
from tamis.expr.evaluate import can_evaluate
from tamis.expr.functions.table import type_of
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import TRUE, Call, Column, Expr, and_, find_columns
from tamis.expr.normalise import normalise
from tamis.expr.sql.printer import to_display_sql
from tamis.expr.wire.expression_json import expression_from_json, expression_to_json
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.skipping.handler import ARROW, ExpressionHandler
from tamis.skipping.rewrite import Conjunct, rewrite
from tamis.types import type_name_with_article


@dataclass(frozen=True)
class Predicate:
    """The filter of a scan: rows must satisfy every conjunct, in partitions that the partition filter keeps."""

    expr: Expr
    partition_filter: PartitionFilter | None = None
    mentioned: tuple[Column, ...] = ()
    """Every column that the filter mentions, even if normalisation removed it."""

    on_partitions: Expr = TRUE
    """The part of the filter that does not depend on the types of data columns, which files may store wider than the
    table: `x > 3000000000` is never TRUE for an int, but must not prune a partition before its files are checked."""

    bound: Expr = field(default=TRUE, compare=False, repr=False)
    """The filter before normalisation, which assumes the default string comparison; a table may define another one.
    It is not sent to other processes."""

    handler: ExpressionHandler = field(default=ARROW, compare=False, repr=False)
    """The handler that evaluates the rewritten filter at every level. It is not sent to other processes, which use
    Arrow's."""

    @cached_property
    def conjuncts(self) -> tuple[Conjunct, ...]:
        return rewrite(self.expr)

    @cached_property
    def partition_conjuncts(self) -> tuple[Conjunct, ...]:
        """The conjuncts of `on_partitions`, labelled like the corresponding conjuncts of the whole filter."""
        if self.on_partitions == self.expr:
            return self.conjuncts
        parts = rewrite(self.on_partitions)
        if len(parts) != len(self.conjuncts):
            return parts
        pairs = zip(parts, self.conjuncts, strict=True)
        return tuple(
            replace(part, label=whole.predicate) if _has_same_columns(part, whole) else part for part, whole in pairs
        )

    def and_with(self, other: Predicate) -> Predicate:
        """Return the conjunction of both predicates: the conjuncts of this one first, without merging any."""
        assert other.partition_filter is None
        return Predicate(
            and_(*(each.predicate for each in (*self.conjuncts, *other.conjuncts))),
            self.partition_filter,
            tuple(dict.fromkeys((*self.mentioned, *other.mentioned))),
            and_(self.on_partitions, other.on_partitions),
            and_(self.bound, other.bound),
            self.handler,
        )

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(find_columns(self.expr))

    @property
    def is_trivial(self) -> bool:
        """Whether every row satisfies the predicate."""
        return self.expr == TRUE

    @property
    def text(self) -> str | None:
        parts = [] if self.is_trivial else [to_display_sql(self.expr)]
        if self.partition_filter is not None:
            parts.append(f"partition filter {self.partition_filter.to_json()}")
        return " AND ".join(parts) or None


def make_predicate(
    where: object,
    schema: pa.Schema,
    table: str,
    partition_columns: Collection[str] = (),
    handler: ExpressionHandler | None = None,
) -> Predicate:
    """Build the predicate for a `where` argument: SQL text, a supported expression object, or a partition filter.

    `handler` evaluates it over metadata, by default Arrow's.
    """
    handler = handler or ARROW
    given = to_expr(where)
    if given is None:
        return Predicate(TRUE, handler=handler)
    if isinstance(given, PartitionFilter):
        return Predicate(TRUE, given, handler=handler)
    bound = bind(given, schema, table)
    data_type = type_of(bound)
    if data_type is not None and not pa.types.is_boolean(data_type) and not pa.types.is_null(data_type):
        raise TypeMismatch(
            f"the filter {to_display_sql(bound)} is {type_name_with_article(data_type)}, not a "
            f"predicate{format_expression_position(bound)}. "
            f"Compare it with something, as in {to_display_sql(bound)} = …"
        )
    expr, mentioned = normalise(bound), tuple(find_columns(bound))
    if all(column.path[0] in partition_columns for column in mentioned):
        on_partitions = expr
    else:
        on_partitions = normalise(bind(given, schema, table, typed=partition_columns)) if partition_columns else TRUE
    return Predicate(expr, mentioned=mentioned, on_partitions=on_partitions, bound=bound, handler=handler)


@dataclass(frozen=True, slots=True)
class SplitPredicate:
    """The parts of a predicate by what decides them; their conjunction is the predicate."""

    partition: Expr
    """What the values of partition columns decide. Rows need not be tested for it."""
    data: Expr
    """What statistics can decide for some units. Rows of the others are tested."""
    residual: Expr
    """What no metadata decides: all rows are tested."""


@suggest_arguments("tamis.expressions.split_predicate")
def split_predicate(predicate: object, schema: pa.Schema, partition_columns: Collection[str]) -> SplitPredicate:
    """Split a predicate over the columns of a schema into what partition values, statistics and only rows decide.

    >>> schema = pa.schema([("day", pa.int64()), ("id", pa.int64())])
    >>> found = split_predicate("day = 5 AND id > 7 AND id % 2 = 0", schema, ["day"])
    >>> found.partition, found.data, found.residual
    (Call<day = 5>, Call<id > 7>, Call<id % 2 = 0>)
    """
    unknown = [name for name in partition_columns if name not in schema.names]
    if unknown:
        raise InvalidArgument(f"no partition column {unknown[0]!r} in the schema. Columns: {', '.join(schema.names)}")
    bound = make_predicate(predicate, schema, "the schema", partition_columns)
    if bound.partition_filter is not None:
        raise InvalidArgument("a PartitionFilter has only a partition part: give SQL text or an expression")
    parts: dict[str, list[Expr]] = {"partition": [], "data": [], "residual": []}
    for each in bound.conjuncts:
        if all(column.path[0] in partition_columns for column in find_columns(each.predicate)):
            parts["partition" if can_evaluate(each.predicate) else "residual"].append(each.predicate)
        else:
            parts["data" if each.reason is None else "residual"].append(each.predicate)
    return SplitPredicate(**{name: and_(*conjuncts) for name, conjuncts in parts.items()})


def _has_same_columns(one: Conjunct, other: Conjunct) -> bool:
    return find_columns(one.predicate) == find_columns(other.predicate)


# --- JSON serialisation of predicates, so that other processes prune identically --------------------------------------


def predicate_to_json(predicate: Predicate) -> dict[str, Any]:
    """Return a predicate as JSON-compatible values."""
    partition_filter = predicate.partition_filter
    return {
        "expr": expression_to_json(predicate.expr),
        "partition_filter": None if partition_filter is None else partition_filter.to_json(),
        # The columns are serialised as the arguments of a call.
        "mentioned": expression_to_json(Call("mentioned", predicate.mentioned)),
        "on_partitions": None
        if predicate.on_partitions == predicate.expr
        else expression_to_json(predicate.on_partitions),
    }


def predicate_from_json(given: Mapping[str, Any]) -> Predicate:
    """Build the predicate from the result of `predicate_to_json`."""
    partition_filter = given["partition_filter"]
    mentioned = expression_from_json(given["mentioned"])
    assert isinstance(mentioned, Call)
    expr = expression_from_json(given["expr"])
    return Predicate(
        expr,
        None if partition_filter is None else PartitionFilter.from_json(partition_filter),
        tuple(column for column in mentioned.args if isinstance(column, Column)),
        expr if given["on_partitions"] is None else expression_from_json(given["on_partitions"]),
    )
