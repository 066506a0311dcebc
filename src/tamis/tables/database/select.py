"""Queries as SQL text in the dialect of a database."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import count

import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from tamis.expr.nodes import TRUE, Expr
from tamis.tables.database.dialects import GROUPABLE, Dialect
from tamis.tables.database.expressions import Named, Piece, Translator
from tamis.tables.database.query import (
    Aggregated,
    DatabaseColumn,
    DatabaseTable,
    JoinOf,
    Query,
    Selected,
    source_columns,
)


def select(query: Query, dialect: Dialect) -> str | None:
    """The text of a query; None where the database would mean something else by a part of it.

    Columns that the database must spell out as texts are fetched so; in between they stay what they are.
    """
    tree = _Writer(dialect).select(query, is_outermost=True)
    # What sqlglot has no words for it would leave out with a mere warning.
    return None if tree is None else tree.sql(dialect=dialect.name, unsupported_level=ErrorLevel.RAISE)


def can_select(query: Query, dialect: Dialect) -> bool:
    """Whether the database means by a query what is meant here."""
    return _Writer(dialect).select(query, is_outermost=True) is not None


def can_test(query: Query, condition: Expr, dialect: Dialect) -> bool:
    """Whether the database means by a condition over the source of a query what is meant here."""
    return Translator(dialect, _named("t", source_columns(query.source))).predicate(condition) is not None


@dataclass(frozen=True, slots=True)
class _Relation:
    """What a query reads from, the columns that it has there, and what is joined to it."""

    sql: exp.Expr
    columns: dict[str, Named]
    joined: exp.Expr | None = None


@dataclass
class _Writer:
    dialect: Dialect
    numbers: count[int] = field(default_factory=lambda: count(1))

    def select(self, query: Query, *, is_outermost: bool) -> exp.Select | None:
        relation = self._source(query.source)
        if relation is None:
            return None
        translator = Translator(self.dialect, relation.columns)
        outputs = [self._selected(each, translator, query, is_outermost) for each in query.selected]
        outputs += [self._aggregated(each, translator) for each in query.aggregates]
        written = [output for output in outputs if output is not None]
        if len(written) < len(outputs):
            return None
        # There is no SELECT without columns, and yet there may be a need for rows without any.
        selected = exp.select(*(written or [exp.alias_(exp.Literal.number(1), "each_row")]), copy=False)
        selected = selected.from_(relation.sql, copy=False)
        if isinstance(query.source, JoinOf):
            condition = self._criteria(query.source, translator)
            if condition is None or relation.joined is None:
                return None
            selected = selected.join(relation.joined, on=condition, join_type=query.source.kind, copy=False)
        if query.where != TRUE:
            condition = translator.predicate(query.where)
            if condition is None:
                return None
            selected = selected.where(condition.unnest(), copy=False)
        if query.is_grouped:
            keys = [self._key(each, translator) for each in query.selected]
            selected = selected.group_by(*(key for key in keys if key is not None), copy=False)
        return self._ordered(selected, query, translator)

    # --- Sources ------------------------------------------------------------------------------------------------------

    def _source(self, source: DatabaseTable | Query | JoinOf) -> _Relation | None:
        match source:
            case DatabaseTable():
                alias = self._alias()
                name = exp.to_identifier(alias, quoted=True)
                table = exp.table_(source.name, db=source.schema, quoted=True, alias=name)
                return _Relation(table, _cast_columns(_named(alias, source.columns)))
            case Query():
                alias = self._alias()
                inner = self.select(source, is_outermost=False)
                return None if inner is None else _Relation(_derived(inner, alias), _named(alias, source.columns))
            case JoinOf():
                left, right = self._source(source.left), self._source(source.right)
                if left is None or right is None:
                    return None
                both = (*left.columns.values(), *right.columns.values())
                columns = zip(source.names, both, source_columns(source), strict=True)
                named_columns = {name: Named(named.sql, column) for name, named, column in columns}
                return _Relation(left.sql, named_columns, right.sql)

    def _criteria(self, source: JoinOf, translator: Translator) -> exp.Expr | None:
        if source.kind not in self.dialect.joins:
            return None
        count_of_left = len(source.left.columns)
        left = dict(zip((each.name for each in source.left.columns), source.names[:count_of_left], strict=True))
        right = dict(zip((each.name for each in source.right.columns), source.names[count_of_left:], strict=True))
        pairs = [(translator.column(left[one]), translator.column(right[other])) for one, other in source.criteria]
        conditions = [condition for pair in pairs if (condition := translator.equal(*pair)) is not None]
        return exp.and_(*conditions) if len(conditions) == len(pairs) else None

    def _alias(self) -> str:
        return f"t{next(self.numbers)}"

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _selected(self, each: Selected, translator: Translator, query: Query, is_outermost: bool) -> exp.Expr | None:
        if query.is_grouped:
            return _aliased(self._key(each, translator), each.column)
        piece = translator.value(each.expr)
        if piece is None:
            return None
        sql = exp.cast(piece.sql, "text") if each.column.reads_as_text and is_outermost else piece.sql
        return _aliased(sql, each.column)

    def _key(self, each: Selected, translator: Translator) -> exp.Expr | None:
        piece = translator.value(each.expr)
        if piece is None or piece.family not in GROUPABLE:
            return None
        return translator.by_bytes(piece)

    def _aggregated(self, each: Aggregated, translator: Translator) -> exp.Expr | None:
        pieces = [translator.value(arg) for arg in each.args]
        call = _aggregate(each, [piece for piece in pieces if piece is not None], translator, self.dialect)
        if call is None or any(piece is None for piece in pieces):
            return None
        if each.filter is not None:
            condition = translator.predicate(each.filter)
            if condition is None:
                return None
            where = exp.Where(this=condition)
            if isinstance(call, exp.Cast):
                call.set("this", exp.Filter(this=call.this, expression=where))
            else:
                call = exp.Filter(this=call, expression=where)
        return _aliased(call, each.column)

    def _ordered(self, selected: exp.Select, query: Query, translator: Translator) -> exp.Select | None:
        for key in query.order:
            piece = translator.value(key.expr)
            if piece is None or piece.family is None:
                return None
            ordered = exp.Ordered(this=translator.by_bytes(piece), desc=key.descending, nulls_first=key.nulls_first)
            selected = selected.order_by(ordered, copy=False)
        return selected if query.limit is None else selected.limit(query.limit, copy=False)


def _aggregate(each: Aggregated, args: list[Piece], translator: Translator, dialect: Dialect) -> exp.Expr | None:
    match each.function, args:
        case "count", []:
            return None if each.distinct else exp.Count(this=exp.Star())
        case "count", [arg]:
            if not each.distinct:
                return exp.Count(this=arg.sql)
            if arg.family not in GROUPABLE:
                return None
            return exp.Count(this=exp.Distinct(expressions=[translator.by_bytes(arg)]))
        case "min" | "max", [arg] if arg.family is not None and arg.family != "boolean":
            return (exp.Min if each.function == "min" else exp.Max)(this=translator.by_bytes(arg))
        case "sum", [arg] if not each.distinct and arg.family in ("integer", "decimal") and dialect.has_wide_sums:
            # Decimals of 38 digits hold every sum, so that none overflows that would not here.
            is_wide = pa.types.is_decimal(each.column.type) and each.column.type.precision == 38
            return exp.cast(exp.Sum(this=arg.sql), _sum_type(each.column)) if is_wide else None
        case _:
            return None


def _sum_type(column: DatabaseColumn) -> str:
    return f"decimal({column.type.precision}, {column.type.scale})"


def _named(alias: str, columns: tuple[DatabaseColumn, ...]) -> dict[str, Named]:
    return {column.name: Named(exp.column(column.name, table=alias, quoted=True), column) for column in columns}


def _cast_columns(columns: dict[str, Named]) -> dict[str, Named]:
    """Return the columns of a table as the types that they are cast to, so that everything above means those."""
    return {name: Named(_cast(named.sql, named.column.casts), named.column) for name, named in columns.items()}


def _cast(sql: exp.Expr, casts: tuple[str, ...]) -> exp.Expr:
    for each in casts:
        # The text stands as it is: not every type of a database is one that sqlglot knows.
        sql = exp.Cast(this=sql, to=exp.Var(this=each))
    return sql


def _derived(inner: exp.Select, alias: str) -> exp.Expr:
    return inner.subquery(exp.to_identifier(alias, quoted=True), copy=False)


def _aliased(sql: exp.Expr | None, column: DatabaseColumn) -> exp.Expr | None:
    return None if sql is None else exp.alias_(sql, column.name, quoted=True, copy=False)
