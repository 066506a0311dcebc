"""The SQL text of queries, in a database's dialect."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from tamis import types
from tamis.expr.nodes import TRUE, Expr
from tamis.formats.database.database_query import (
    AggregatedColumn,
    DatabaseColumn,
    DatabaseTable,
    Query,
    QueryJoin,
    SelectedColumn,
    list_source_columns,
)
from tamis.formats.database.dialects import GROUPABLE, Dialect
from tamis.formats.database.expressions import SourceColumn, Translator, TypedSql
from tamis.types import type_name


def render_select(query: Query, dialect: Dialect) -> str | None:
    """Return the SQL text of a query; None if the database would evaluate a part of it differently.

    Columns that are fetched in the database's text representation are cast in the outermost SELECT only.
    """
    tree = _Writer(dialect).select(query, is_outermost=True)
    # By default sqlglot drops what a dialect does not support, with only a warning.
    return None if tree is None else tree.sql(dialect=dialect.name, unsupported_level=ErrorLevel.RAISE)


def can_select(query: Query, dialect: Dialect) -> bool:
    """Return whether the database evaluates a query as Tamis does."""
    return _Writer(dialect).select(query, is_outermost=True) is not None


def can_push_filter(query: Query, condition: Expr, dialect: Dialect) -> bool:
    """Return whether the database evaluates a condition over a query's source as Tamis does."""
    return (
        Translator(dialect, _bind_columns("t", list_source_columns(query.source))).translate_predicate(condition)
        is not None
    )


@dataclass(frozen=True, slots=True)
class _Relation:
    sql: exp.Expr
    columns: dict[str, SourceColumn]
    joined: exp.Expr | None = None


@dataclass
class _Writer:
    dialect: Dialect
    numbers: count[int] = field(default_factory=lambda: count(1))

    def select(self, query: Query, *, is_outermost: bool) -> exp.Select | None:
        relation = self._write_source(query.source)
        if relation is None:
            return None
        translator = Translator(self.dialect, relation.columns)
        outputs = [self._write_column(each, translator, query, is_outermost) for each in query.selected]
        outputs += [self._write_aggregate(each, translator) for each in query.aggregates]
        written = [output for output in outputs if output is not None]
        if len(written) < len(outputs):
            return None
        # SQL has no SELECT without columns, but a query may need rows without any, for example to count them.
        selected = exp.select(*(written or [exp.alias_(exp.Literal.number(1), "each_row")]), copy=False)
        selected = selected.from_(relation.sql, copy=False)
        if isinstance(query.source, QueryJoin):
            condition = self._write_join_condition(query.source, translator)
            if condition is None or relation.joined is None:
                return None
            selected = selected.join(relation.joined, on=condition, join_type=query.source.kind, copy=False)
        if query.where != TRUE:
            condition = translator.translate_predicate(query.where)
            if condition is None:
                return None
            selected = selected.where(condition.unnest(), copy=False)
        if query.is_grouped:
            keys = [self._write_group_key(each, translator) for each in query.selected]
            selected = selected.group_by(*(key for key in keys if key is not None), copy=False)
        return self._write_order(selected, query, translator)

    # --- Sources ------------------------------------------------------------------------------------------------------

    def _write_source(self, source: DatabaseTable | Query | QueryJoin) -> _Relation | None:
        match source:
            case DatabaseTable():
                alias = self._next_alias()
                name = exp.to_identifier(alias, quoted=True)
                table = exp.table_(source.name, db=source.schema, quoted=True, alias=name)
                return _Relation(table, _cast_columns(_bind_columns(alias, source.columns)))
            case Query():
                alias = self._next_alias()
                inner = self.select(source, is_outermost=False)
                if inner is None:
                    return None
                subquery = inner.subquery(exp.to_identifier(alias, quoted=True), copy=False)
                return _Relation(subquery, _bind_columns(alias, source.columns))
            case QueryJoin():
                left, right = self._write_source(source.left), self._write_source(source.right)
                if left is None or right is None:
                    return None
                both = (*left.columns.values(), *right.columns.values())
                columns = zip(source.names, both, list_source_columns(source), strict=True)
                named_columns = {name: SourceColumn(named.sql, column) for name, named, column in columns}
                return _Relation(left.sql, named_columns, right.sql)

    def _write_join_condition(self, source: QueryJoin, translator: Translator) -> exp.Expr | None:
        if source.kind not in self.dialect.joins:
            return None
        count_of_left = len(source.left.columns)
        left = dict(zip((each.name for each in source.left.columns), source.names[:count_of_left], strict=True))
        right = dict(zip((each.name for each in source.right.columns), source.names[count_of_left:], strict=True))
        pairs = [
            (translator.translate_column(left[one]), translator.translate_column(right[other]))
            for one, other in source.criteria
        ]
        conditions = [condition for pair in pairs if (condition := translator.translate_equality(*pair)) is not None]
        return exp.and_(*conditions) if len(conditions) == len(pairs) else None

    def _next_alias(self) -> str:
        return f"t{next(self.numbers)}"

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _write_column(
        self, each: SelectedColumn, translator: Translator, query: Query, is_outermost: bool
    ) -> exp.Expr | None:
        if query.is_grouped:
            return _add_alias(self._write_group_key(each, translator), each.column)
        typed = translator.translate(each.expr)
        if typed is None:
            return None
        sql = exp.cast(typed.sql, "text") if each.column.reads_as_text and is_outermost else typed.sql
        return _add_alias(sql, each.column)

    def _write_group_key(self, each: SelectedColumn, translator: Translator) -> exp.Expr | None:
        typed = translator.translate(each.expr)
        if typed is None or typed.family not in GROUPABLE:
            return None
        return translator.collate_bytewise(typed)

    def _write_aggregate(self, each: AggregatedColumn, translator: Translator) -> exp.Expr | None:
        typed_args = [translator.translate(arg) for arg in each.args]
        call = _translate_aggregate(
            each, [typed for typed in typed_args if typed is not None], translator, self.dialect
        )
        if call is None or any(typed is None for typed in typed_args):
            return None
        if each.filter is not None:
            condition = translator.translate_predicate(each.filter)
            if condition is None:
                return None
            where = exp.Where(this=condition)
            if isinstance(call, exp.Cast):
                call.set("this", exp.Filter(this=call.this, expression=where))
            else:
                call = exp.Filter(this=call, expression=where)
        return _add_alias(call, each.column)

    def _write_order(self, selected: exp.Select, query: Query, translator: Translator) -> exp.Select | None:
        for key in query.order:
            typed = translator.translate(key.expr)
            if typed is None or typed.family is None:
                return None
            ordered = exp.Ordered(
                this=translator.collate_bytewise(typed), desc=key.descending, nulls_first=key.nulls_first
            )
            selected = selected.order_by(ordered, copy=False)
        return selected if query.limit is None else selected.limit(query.limit, copy=False)


def _translate_aggregate(
    each: AggregatedColumn, args: list[TypedSql], translator: Translator, dialect: Dialect
) -> exp.Expr | None:
    match each.function, args:
        case "count", []:
            return None if each.distinct else exp.Count(this=exp.Star())
        case "count", [arg]:
            if not each.distinct:
                return exp.Count(this=arg.sql)
            if arg.family not in GROUPABLE:
                return None
            return exp.Count(this=exp.Distinct(expressions=[translator.collate_bytewise(arg)]))
        case "min" | "max", [arg] if arg.family is not None and arg.family != "boolean":
            return (exp.Min if each.function == "min" else exp.Max)(this=translator.collate_bytewise(arg))
        case "sum", [arg] if not each.distinct and arg.family in ("integer", "decimal") and dialect.has_wide_sums:
            # The database fails where the sum does not fit its type, as Tamis does.
            is_exact = each.column.type == types.LONG or (
                pa.types.is_decimal(each.column.type) and each.column.type.precision == 38
            )
            return exp.cast(exp.Sum(this=arg.sql), type_name(each.column.type)) if is_exact else None
        case _:
            return None


def _bind_columns(alias: str, columns: tuple[DatabaseColumn, ...]) -> dict[str, SourceColumn]:
    return {column.name: SourceColumn(exp.column(column.name, table=alias, quoted=True), column) for column in columns}


def _cast_columns(columns: dict[str, SourceColumn]) -> dict[str, SourceColumn]:
    """Return a table's columns with their casts, so that all expressions refer to the cast values."""
    return {
        name: SourceColumn(_write_casts(named.sql, named.column.casts), named.column) for name, named in columns.items()
    }


def _write_casts(sql: exp.Expr, casts: tuple[str, ...]) -> exp.Expr:
    for each in casts:
        # The type name is copied verbatim, because sqlglot does not support every database type.
        sql = exp.Cast(this=sql, to=exp.Var(this=each))
    return sql


def _add_alias(sql: exp.Expr | None, column: DatabaseColumn) -> exp.Expr | None:
    return None if sql is None else exp.alias_(sql, column.name, quoted=True, copy=False)
