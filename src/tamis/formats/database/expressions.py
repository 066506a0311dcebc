"""The translation of expressions to a database's SQL. Tamis itself evaluates an expression that the database would
evaluate differently.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import pyarrow as pa
import sqlglot
from sqlglot import exp

from tamis import types
from tamis.expr.functions.table import FUNCTIONS, find_pattern, is_comparison, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold
from tamis.expr.patterns import ANY_CHARACTER, ANY_TEXT, LikePattern
from tamis.formats.database.database_query import DatabaseColumn
from tamis.formats.database.dialects import Dialect, find_type_family, is_writable

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
"""The type families of the kinds of arguments in the table of functions."""


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
