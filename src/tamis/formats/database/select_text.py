"""The SQL text of queries, in a database's dialect."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count

import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import ErrorLevel

from tamis import types
from tamis.expr.functions.table import FUNCTIONS, find_pattern, is_comparison, type_of
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal, fold
from tamis.expr.patterns import ANY_CHARACTER, ANY_TEXT, LikePattern
from tamis.formats.database.database_query import (
    AggregatedColumn,
    DatabaseColumn,
    DatabaseTable,
    Query,
    QueryJoin,
    SelectedColumn,
    list_source_columns,
)
from tamis.formats.database.dialects import GROUPABLE, Dialect, find_type_family, is_writable
from tamis.types import type_name

# --- The translation of expressions to a database's SQL. Tamis itself evaluates an expression that the database would
#
# evaluate differently.

# --- Templates ------------------------------------------------------------------------------------------------------
#
# SQL expressions with numbered arguments, as in `power({0}, {1})`: how databases spell a function of the table.


_ARGUMENT = re.compile(r"\{(\d+)\}")
_TEMPLATE_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Null, exp.Boolean, exp.Func)


def fill_template(template: str, dialect: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Return the tree of an expression in a dialect of sqlglot, with the arguments in their places.

    >>> fill_template("{0} * 2", "duckdb", [exp.column("a") + 1]).sql("duckdb")
    '(a + 1) * 2'
    """

    def replace(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Placeholder):
            return node
        arg = args[int(node.name.removeprefix("argument"))].copy()
        return arg if isinstance(arg, _TEMPLATE_ATOMS) and not isinstance(arg, exp.Binary) else exp.Paren(this=arg)

    return _parse(template, dialect).transform(replace)


@cache
def _parse(template: str, dialect: str) -> exp.Expr:
    return sqlglot.parse_one(_ARGUMENT.sub(r":argument\1", template), read=dialect)


MAX_IN_LIST_ITEMS = 1000
"""The longest IN list that is pushed down."""


@dataclass(frozen=True, slots=True)
class TypedSql:
    """A translated expression: its SQL tree, its type in Tamis, and how the database compares it."""

    sql: exp.Expr
    type: pa.DataType
    compares: bool
    is_bytewise: bool = False
    literal: Literal | None = None

    @property
    def family(self) -> str | None:
        return find_type_family(self.type) if self.compares else None


@dataclass(frozen=True, slots=True)
class SourceColumn:
    """A column of a query's source: its SQL reference and its properties."""

    sql: exp.Expr
    column: DatabaseColumn


class Translator:
    """The translator of expressions over the columns of a source."""

    def __init__(self, dialect: Dialect, columns: Mapping[str, SourceColumn]) -> None:
        self._dialect = dialect
        self._columns = columns

    def translate_predicate(self, expr: Expr) -> exp.Expr | None:
        """Translate a condition; None if the database would evaluate it differently."""
        typed = fold(expr, self._translate_node)
        return typed.sql if typed is not None and _is_condition(typed.type) else None

    def translate(self, expr: Expr) -> TypedSql | None:
        """Translate a value; None if the database would compute it differently."""
        return fold(expr, self._translate_node)

    def collate_bytewise(self, typed: TypedSql) -> exp.Expr:
        """Write a value such that the database compares and orders it as Tamis does."""
        if typed.family != "text" or typed.literal is not None:
            return typed.sql
        return exp.Collate(
            this=_parenthesise(typed.sql), expression=exp.to_identifier(self._dialect.collation, quoted=True)
        )

    def translate_column(self, name: str) -> TypedSql | None:
        """Translate a column of the source."""
        return self._translate_path((name,))

    def translate_equality(self, left: TypedSql | None, right: TypedSql | None) -> exp.Expr | None:
        """Write an equality of two values; None if the database would evaluate it differently."""
        found = None if left is None or right is None else self._translate_comparison("=", left, right)
        return None if found is None else found.sql

    # --- Nodes --------------------------------------------------------------------------------------------------------

    def _translate_node(self, node: Expr, args: tuple[TypedSql | None, ...]) -> TypedSql | None:
        match node:
            case Column():
                return self._translate_path(node.path)
            case Literal():
                return self._translate_literal(node)
            case Call() if any(arg is None for arg in args):
                return None
            case Call(function):
                return self._translate_call(function, node, tuple(arg for arg in args if arg is not None))

    def _translate_path(self, path: tuple[str, ...]) -> TypedSql | None:
        if len(path) > 1 or path[0] not in self._columns:
            return None
        named = self._columns[path[0]]
        compares = named.column.is_comparable and find_type_family(named.column.type) in self._dialect.families
        return TypedSql(named.sql.copy(), named.column.type, compares, named.column.is_bytewise)

    def _translate_literal(self, node: Literal) -> TypedSql | None:
        if node.is_null:
            return TypedSql(
                exp.Null(), node.type, find_type_family(node.type) in (None, *self._dialect.families), literal=node
            )
        family = find_type_family(node.type)
        if family is None or family not in self._dialect.families:
            return None
        written = self._dialect.write(node, family)
        return None if written is None else TypedSql(written, node.type, True, literal=node)

    def _translate_call(self, function: str, node: Call, args: tuple[TypedSql, ...]) -> TypedSql | None:
        if is_comparison(node):
            return self._translate_comparison(function, *args)
        match function, args:
            case "and" | "or", _ if all(_is_condition(arg.type) for arg in args):
                return _make_condition(_join_balanced(exp.And if function == "and" else exp.Or, _list_sql(args)))
            case "not", (arg,) if _is_condition(arg.type):
                return _make_condition(exp.Not(this=_parenthesise(arg.sql)))
            case "is_null", (arg,):
                return _make_condition(exp.Is(this=_parenthesise(arg.sql), expression=exp.Null()))
            case "is_not_null", (arg,):
                return _make_condition(exp.Not(this=exp.Is(this=_parenthesise(arg.sql), expression=exp.Null())))
            case "in", (arg,):
                return self._translate_in(arg, node.args[1:])
            case _ if (pattern := find_pattern(node)) is not None:
                return self._translate_pattern_match(args[0], pattern)
            case _:
                return self._translate_function(node, args)

    def _translate_comparison(self, function: str, left: TypedSql, right: TypedSql) -> TypedSql | None:
        if not self._are_comparable(left, right):
            return None
        # An equality is the same with its sides exchanged.
        is_plain = FUNCTIONS[function].mirrored == function and all(
            each.is_bytewise or each.literal for each in (left, right)
        )
        sides = (left.sql, right.sql) if is_plain else (self.collate_bytewise(left), self.collate_bytewise(right))
        return _make_condition(fill_template(f"{{0}} {function} {{1}}", "spark", sides))

    def _are_comparable(self, *operands: TypedSql) -> bool:
        """Return whether values compare in the database as they do in Tamis. NULL is comparable with every value."""
        families = {typed.family for typed in operands if typed.literal is None or not typed.literal.is_null}
        return len(families) == 1 and None not in families

    def _translate_in(self, value: TypedSql, items: tuple[Expr, ...]) -> TypedSql | None:
        if len(items) > MAX_IN_LIST_ITEMS or value.family is None:
            return None
        written = [self._translate_literal(item) if isinstance(item, Literal) else None for item in items]
        operands = [typed for typed in written if typed is not None]
        if len(operands) < len(items) or not self._are_comparable(value, *operands):
            return None
        tested = value.sql if value.is_bytewise else self.collate_bytewise(value)
        return _make_condition(exp.In(this=_parenthesise(tested), expressions=_list_sql(operands)))

    def _translate_pattern_match(self, value: TypedSql, pattern: LikePattern) -> TypedSql | None:
        if value.family != "text" or not isinstance(pattern.prefix, str):
            return None
        if not is_writable("".join(part for part in pattern.parts if isinstance(part, str))):
            return None
        tested = _parenthesise(self.collate_bytewise(value))
        if not self._dialect.has_like:
            return _make_condition(exp.Glob(this=tested, expression=exp.Literal.string(_format_glob(pattern))))
        like = exp.Like(this=tested, expression=exp.Literal.string(_format_like(pattern)))
        return _make_condition(exp.Escape(this=like, expression=exp.Literal.string(_ESCAPE)))

    def _translate_function(self, node: Call, args: tuple[TypedSql, ...]) -> TypedSql | None:
        """Translate a function by the SQL in its row. COALESCE and CASE are in all databases; widening casts vanish."""
        found = type_of(node)
        if found is None:
            return None
        match node.function, args:
            case "cast", (arg, _):
                # Values of one family compare whatever their widths, and the cast would prevent the use of an index.
                is_kept = arg.family is not None and _is_widening_cast(found, arg.type)
                return TypedSql(arg.sql, found, True, literal=arg.literal) if is_kept else None
            case "coalesce", _ if self._are_comparable(*args):
                return TypedSql(exp.Coalesce(this=args[0].sql, expressions=_list_sql(args[1:])), found, True)
            case "case", _:
                return self._translate_case(args, found)
        known = FUNCTIONS[node.function]
        template = known.databases.sql.get(self._dialect.name)
        kinds = (*known.arguments, *known.arguments[-1:] * len(args))
        if template is None or not all(map(_is_of_kind, kinds, args)):
            return None
        if known.databases.is_same is not None and not known.databases.is_same(node):
            return None
        return TypedSql(_parenthesise(fill_template(template, self._dialect.name, _list_sql(args))), found, True)

    def _translate_case(self, args: tuple[TypedSql, ...], found: pa.DataType) -> TypedSql | None:
        conditions, values, otherwise = args[0:-1:2], args[1:-1:2], args[-1]
        if not all(_is_condition(each.type) for each in conditions) or not self._are_comparable(*values, otherwise):
            return None
        branches = [
            exp.If(this=condition.sql, true=value.sql) for condition, value in zip(conditions, values, strict=True)
        ]
        return TypedSql(exp.Case(ifs=branches, default=otherwise.sql), found, True)


_ESCAPE = "!"
"""The escape character of LIKE patterns. No database gives it another meaning, as some do to `\\`."""


def _format_like(pattern: LikePattern) -> str:
    return "".join(
        part.sign if not isinstance(part, str) else f"{_ESCAPE}{part}" if part in ("%", "_", _ESCAPE) else part
        for part in pattern.parts
    )


def _format_glob(pattern: LikePattern) -> str:
    signs = {ANY_TEXT: "*", ANY_CHARACTER: "?"}
    return "".join(
        signs[part] if not isinstance(part, str) else f"[{part}]" if part in ("*", "?", "[") else part
        for part in pattern.parts
    )


_KINDS = {
    "boolean": {"boolean"},
    "number": {"integer", "single", "double", "decimal"},
    "text": {"text"},
    "time": {"date", "timestamp", "instant"},
}


def _is_of_kind(kind: str, typed: TypedSql) -> bool:
    if kind == "literal":
        return typed.literal is not None
    return typed.family is not None if kind == "any" else typed.family in _KINDS.get(kind, ())


def _is_widening_cast(target: pa.DataType, source: pa.DataType) -> bool:
    """Return whether a cast only widens a type within its kind, so that no value changes."""
    if pa.types.is_integer(source) and pa.types.is_signed_integer(target):
        return bool(target.bit_width >= source.bit_width)
    return bool(pa.types.is_float32(source) and pa.types.is_float64(target))


def _is_condition(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(data_type) or pa.types.is_null(data_type))


_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Null, exp.Boolean, exp.Cast)


def _parenthesise(sql: exp.Expr) -> exp.Expr:
    return sql if isinstance(sql, _ATOMS) else exp.Paren(this=sql)


def _join_balanced(kind: type[exp.Connector], parts: list[exp.Expr]) -> exp.Expr:
    """Join conditions with AND or OR as a balanced tree: a chain of thousands would be as deep as it is long."""
    while len(parts) > 1:
        pairs = zip(parts[0::2], parts[1::2], strict=False)
        rest = parts[-1:] if len(parts) % 2 else []
        parts = [_parenthesise(kind(this=left, expression=right)) for left, right in pairs] + rest
    return parts[0]


def _make_condition(sql: exp.Expr) -> TypedSql:
    return TypedSql(_parenthesise(sql), types.BOOLEAN, True)


def _list_sql(operands: tuple[TypedSql, ...] | list[TypedSql]) -> list[exp.Expr]:
    return [typed.sql for typed in operands]


# --- The SQL text of queries, in a database's dialect -----------------------------------------------------------------


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
