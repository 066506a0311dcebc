"""A filter prepared for a table: bound, normalised, and rewritten once for all levels."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import pyarrow as pa

from tamis.errors import InvalidArgument, TypeMismatch, UnknownColumn, suggest_arguments
from tamis.expr.bind import bind, format_expression_position
from tamis.expr.evaluate import can_evaluate
from tamis.expr.functions.table import type_of
from tamis.expr.interop.from_any import to_expr
from tamis.expr.names import resolve
from tamis.expr.nodes import (
    BETWEEN,
    TRUE,
    AnyExpr,
    Call,
    Column,
    Expr,
    Literal,
    Name,
    and_,
    find_columns,
    replace_columns,
    split_conjuncts,
    walk,
)
from tamis.expr.normalise import normalise
from tamis.expr.sql.printer import to_display_sql
from tamis.expr.wire.expression_json import bound_from_json, expression_to_json
from tamis.expr.wire.partition_filter import resolve_column
from tamis.skipping.handler import ARROW, ExpressionHandler
from tamis.skipping.metrics import IMPLIED_BY
from tamis.skipping.rewrite import Conjunct, rewrite
from tamis.types import STRING, is_text, type_name_with_article


@dataclass(frozen=True, slots=True)
class Condition:
    """A conjunct of a filter as it was written."""

    written: AnyExpr
    bound: Expr
    """The same bound to the table, before normalisation."""


@dataclass(frozen=True)
class Predicate:
    """The filter of a scan: rows must satisfy every conjunct."""

    expr: Expr
    mentioned: tuple[Column, ...] = ()
    """Every column of the table that the filter mentions, even if normalisation removed it."""

    on_partitions: Expr = TRUE
    """The part of the filter that does not depend on the types of data columns, which files may store wider than the
    table: `x > 3000000000` is never TRUE for an int, but must not prune a partition before its files are checked."""

    conditions: tuple[Condition, ...] = field(default=(), compare=False, repr=False)
    """The filter as it was written. It is not sent to other processes: their metrics have the texts of conjuncts, and
    the process that makes a report finds the `labels` of these."""

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
        return Predicate(
            and_(*(each.predicate for each in (*self.conjuncts, *other.conjuncts))),
            tuple(dict.fromkeys((*self.mentioned, *other.mentioned))),
            and_(self.on_partitions, other.on_partitions),
            (*self.conditions, *other.conditions),
            self.handler,
        )

    @property
    def bound(self) -> Expr:
        """The filter before normalisation, which assumes the default string comparison; a table may define another."""
        return and_(*(each.bound for each in self.conditions))

    @cached_property
    def labels(self) -> Mapping[str, str]:
        """What reports show for the text of a conjunct: the condition as it was written that it is part of.

        A conjunct that normalisation merged from several conditions has all of them that mention its columns.
        """
        return {
            to_display_sql(part, as_written=False): self._format_conditions(numbers)
            for part, numbers in self._sources.items()
        }

    @cached_property
    def implied(self) -> Mapping[str, str]:
        """The conditions that are part of no conjunct, as they were written, with the reason: others imply them."""
        used = {number for numbers in self._sources.values() for number in numbers}
        others = [number for number in range(len(self.conditions)) if number not in used]
        # Only comparisons of a column imply others, so that deep conditions cost nothing here.
        calls = (each for each in split_conjuncts(self.expr) if others and isinstance(each, Call))
        leaves = [each for each in calls if any(isinstance(arg, Column) for arg in each.args)]
        shown = set(self.labels.values())
        found: dict[str, str] = {}
        for number in others:
            text, bound = self._format_conditions([number]), self.conditions[number].bound
            if text not in shown and (reason := self._find_implying(bound, leaves)):
                found[text] = f"{IMPLIED_BY} {reason}"
        return found

    def _find_implying(self, bound: Expr, leaves: Sequence[Expr]) -> str:
        """Return the written text of the conjuncts that imply a condition; empty if there are none."""
        mentioned = set(find_columns(bound))
        near = [each for each in leaves if mentioned & set(find_columns(each))][:10]
        single = [each for each in near if normalise(and_(each, bound)) == each]
        texts = (self.labels[to_display_sql(each, as_written=False)] for each in single[:1] or near)
        return " AND ".join(dict.fromkeys(texts))

    @cached_property
    def _sources(self) -> Mapping[Expr, Sequence[int]]:
        """The positions of the conditions that each conjunct is part of."""
        sources: dict[Expr, list[int]] = {}
        mentions: dict[tuple[str, ...], list[int]] = {}
        everything = range(len(self.conditions))
        conjuncts = dict.fromkeys(split_conjuncts(self.expr))
        if len(self.conditions) > 1:
            for number, condition in enumerate(self.conditions):
                parts = split_conjuncts(condition.bound)
                if not conjuncts.keys() >= set(parts):
                    parts = split_conjuncts(normalise(condition.bound))
                for part in parts:
                    sources.setdefault(part, [number])
                for column in find_columns(condition.bound):
                    mentions.setdefault(column.path, []).append(number)

        def find_conditions(part: Expr) -> Sequence[int]:
            found = {number for column in find_columns(part) for number in mentions.get(column.path, ())}
            return sources.get(part) or sorted(found) or everything

        return {
            part: find_conditions(part) for part in (*split_conjuncts(self.on_partitions), *conjuncts) if part != TRUE
        }

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(find_columns(self.expr))

    @cached_property
    def partition_texts(self) -> tuple[Column, ...]:
        """The texts of partition values that the filter mentions. They are not columns of the table."""
        named = dict.fromkeys((*self.mentioned, *self.columns))
        return tuple(column for column in named if is_partition_text(column.path[0]))

    def list_data_columns(self, partition_columns: Collection[str]) -> tuple[Column, ...]:
        """Return the columns that the filter tests and whose values are in files."""
        constants = {*partition_columns, *(column.path[0] for column in self.partition_texts)}
        return tuple(column for column in self.columns if column.path[0] not in constants)

    @property
    def is_trivial(self) -> bool:
        """Return whether every row satisfies the predicate."""
        return self.expr == TRUE

    @property
    def text(self) -> str | None:
        """The filter as it was written, for reports; None if every row satisfies it."""
        return None if self.is_trivial else self._format_conditions(range(len(self.conditions)))

    def _format_conditions(self, numbers: Iterable[int]) -> str:
        written: AnyExpr = and_(*(self.conditions[each].written for each in numbers))
        # Back-ticks select one of several names that differ by case, which the table has done by now.
        return to_display_sql(replace_columns(written, lambda leaf: Name(leaf.path)))


def make_predicate(
    where: object,
    schema: pa.Schema,
    table: str,
    partition_columns: Collection[str] = (),
    handler: ExpressionHandler | None = None,
    *,
    partition_texts: Collection[str] | None = None,
) -> Predicate:
    """Build the predicate for a `where` argument, such as SQL text or a supported expression object.

    `handler` evaluates it over metadata, by default Arrow's. `partition_texts` are the names that a partition filter
    may use. None means a file without partitions, whose columns have the values.
    """
    handler = handler or ARROW
    given = to_expr(where)
    if given is None:
        return Predicate(TRUE, handler=handler)
    get_text = _make_text_resolver(schema, table, partition_texts)
    bound = bind(given, schema, table, get_text=get_text)
    data_type = type_of(bound)
    if data_type is not None and not pa.types.is_boolean(data_type) and not pa.types.is_null(data_type):
        raise TypeMismatch(
            f"the filter {to_display_sql(bound)} is {type_name_with_article(data_type)}, not a "
            f"predicate{format_expression_position(bound)}. "
            f"Compare it with something, as in {to_display_sql(bound)} = …"
        )
    expr = normalise(bound)
    mentioned = tuple(column for column in find_columns(bound) if not is_partition_text(column.path[0]))
    if all(column.path[0] in partition_columns for column in mentioned):
        on_partitions = expr
    elif partition_columns:
        on_partitions = normalise(bind(given, schema, table, typed=partition_columns, get_text=get_text))
    else:
        on_partitions = TRUE
    return Predicate(expr, mentioned, on_partitions, tuple(_list_conditions(given, bound)), handler)


def _list_conditions(given: AnyExpr, bound: Expr) -> Iterator[Condition]:
    """Yield the conjuncts of a filter. BETWEEN is one, although it is an AND of two comparisons."""
    stack = [(given, bound)]
    while stack:
        written, same = stack.pop()
        if isinstance(written, Call) and written.function == "and" and written.spelling != BETWEEN:
            # Binding changes the arguments of AND, but neither their number nor their order.
            assert isinstance(same, Call)
            stack.extend(reversed(list(zip(written.args, same.args, strict=True))))
        else:
            yield Condition(written, same)


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

    The conjuncts are those of the predicate, as they were written. One that several parts decide, as in
    `NOT (day = 5 OR id > 7)`, is split. The text that a `PartitionFilter` compares is `partition_text('day')` in the
    parts, which a table binds.

    >>> schema = pa.schema([("day", pa.int64()), ("id", pa.int64())])
    >>> found = split_predicate("day = 5 AND id > 7 AND id % 2 = 0", schema, ["day"])
    >>> found.partition, found.data, found.residual
    (Call<day = 5>, Call<id > 7>, Call<id % 2 = 0>)
    """
    unknown = [name for name in partition_columns if name not in schema.names]
    if unknown:
        raise InvalidArgument(f"no partition column {unknown[0]!r} in the schema. Columns: {', '.join(schema.names)}")
    bound = make_predicate(predicate, schema, "the schema", partition_columns, partition_texts=partition_columns)
    constants = {*partition_columns, *(column.path[0] for column in bound.partition_texts)}
    parts: dict[str, list[Expr]] = {"partition": [], "data": [], "residual": []}
    for condition in bound.conditions:
        found: dict[str, list[Expr]] = {}
        for each in rewrite(normalise(condition.bound)):
            found.setdefault(_find_part(each, constants), []).append(each.predicate)
        for name, conjuncts in found.items():
            # A column that normalisation removes may be none of this part.
            is_whole = len(found) == 1 and set(find_columns(condition.bound)) == set(find_columns(and_(*conjuncts)))
            parts[name] += [condition.bound] if is_whole else conjuncts
    if bound.partition_texts:
        parts = {name: [restore_partition_texts(each) for each in conjuncts] for name, conjuncts in parts.items()}
    return SplitPredicate(**{name: and_(*conjuncts) for name, conjuncts in parts.items()})


def _find_part(conjunct: Conjunct, constants: Collection[str]) -> str:
    """Return the part of a `SplitPredicate` in which a conjunct is; `constants` are constant in each file."""
    if all(column.path[0] in constants for column in find_columns(conjunct.predicate)):
        return "partition" if can_evaluate(conjunct.predicate) else "residual"
    return "data" if conjunct.reason is None else "residual"


def _has_same_columns(one: Conjunct, other: Conjunct) -> bool:
    # On partitions the types of data columns are unknown.
    return [each.path for each in find_columns(one.predicate)] == [each.path for each in find_columns(other.predicate)]


# --- The texts of partition values ------------------------------------------------------------------------------------
#
# `partition_text('year')` is bound to a column of its own, which is constant in a file as partition columns are. Only
# planning sees it: a format adds it to the partition values of files if the filter has it.

_TEXT_PREFIX = "\x1fpartition_text:"


def make_partition_text(name: str) -> Column:
    """Return the column with the texts of the partition values of a partition column, or of a partition field."""
    return Column((_TEXT_PREFIX + name,), type=STRING)


def is_partition_text(column: str) -> bool:
    """Return whether a column has the texts of partition values."""
    return column.startswith(_TEXT_PREFIX)


def reads_partition_text(expr: Expr) -> bool:
    """Return whether an expression that is not bound to a table reads the text of a partition value."""
    return any(isinstance(node, Call) and node.function == "partition_text" for node in walk(expr))


def get_partition_name(text: Column) -> str:
    """Return the name of the partition column, or the partition field, of a `make_partition_text`."""
    return text.path[0].removeprefix(_TEXT_PREFIX)


def restore_partition_texts(expr: Expr) -> Expr:
    """Return a bound expression with `partition_text('name')` again, for another scan to bind."""

    def restore(column: Column) -> Expr:
        if is_partition_text(column.path[0]):
            return Call("partition_text", (Literal(get_partition_name(column), STRING),))
        return column

    return replace_columns(expr, restore)


def _make_text_resolver(schema: pa.Schema, table: str, known: Collection[str] | None) -> Callable[[str], Expr]:
    if known is None:
        return lambda name: _read_text_of_column(name, schema, table)
    taken = [name for name in schema.names if is_partition_text(name)]
    if taken:

        def refuse(name: str) -> Expr:
            raise InvalidArgument(
                f"{table} has a column {taken[0]!r}, whose name partition filters use for themselves: write the filter "
                "as SQL over the partition column"
            )

        return refuse
    return lambda name: make_partition_text(resolve_column(name, known, table))


def _read_text_of_column(name: str, schema: pa.Schema, table: str) -> Expr:
    """Return the text of a column's values; raise an error if there is no such column, which may be in the path."""
    if not any(each.casefold() == name.casefold() for each in schema.names):
        raise UnknownColumn(
            f"no column {name!r} in {table}, as used in a partition filter. Files do not store partition columns: "
            "prune the table with tamis.open(…).scan(…), or give schema= with the column if files lack it. "
            f"Columns: {', '.join(schema.names)}"
        )
    column = resolve(Name((resolve_column(name, schema.names, table),), exact=True), schema, table)
    is_plain = column.type is not None and is_text(column.type)
    return column if is_plain else Call("cast", (column, Literal("string", STRING)))


# --- JSON serialisation of predicates, so that other processes prune identically --------------------------------------


def predicate_to_json(predicate: Predicate) -> dict[str, Any]:
    """Return a predicate as JSON-compatible values."""
    return {
        "expr": expression_to_json(predicate.expr),
        # The columns are serialised as the arguments of a call.
        "mentioned": expression_to_json(Call("mentioned", predicate.mentioned)),
        "on_partitions": None
        if predicate.on_partitions == predicate.expr
        else expression_to_json(predicate.on_partitions),
    }


def predicate_from_json(given: Mapping[str, Any]) -> Predicate:
    """Build the predicate from the result of `predicate_to_json`."""
    mentioned = bound_from_json(given["mentioned"])
    assert isinstance(mentioned, Call)
    expr = bound_from_json(given["expr"])
    return Predicate(
        expr,
        tuple(column for column in mentioned.args if isinstance(column, Column)),
        expr if given["on_partitions"] is None else bound_from_json(given["on_partitions"]),
        (Condition(expr, expr),),
    )
