"""Expressions in the words of a database, where it means the same by them; else None, and they stay with us."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa
from sqlglot import exp

from tamis import types
from tamis.expr.functions import COMPARISONS, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, fold
from tamis.expr.patterns import ANY_CHARACTER, ANY_TEXT, DEFAULT_ESCAPE, LikePattern, parse_like
from tamis.tables.database.dialects import Dialect, family_of, is_writable
from tamis.tables.database.query import DatabaseColumn

MOST_ITEMS = 1000
"""The longest list that is written into a query."""

_OPERATORS: dict[str, type[exp.Expr]] = {
    "=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE, "<=>": exp.NullSafeEQ,
}  # fmt: skip

_EQUALITIES = frozenset(("=", "<>", "<=>"))


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a query: its text as a tree, its type here, and what may be made of it."""

    sql: exp.Expr
    type: pa.DataType
    compares: bool
    is_bytewise: bool = False
    literal: Literal | None = None

    @property
    def family(self) -> str | None:
        return family_of(self.type) if self.compares else None


@dataclass(frozen=True, slots=True)
class Named:
    """A column of the source of a query: how it is called there, and what is known of it."""

    sql: exp.Expr
    column: DatabaseColumn


class Translator:
    """Writes expressions over the columns of a source."""

    def __init__(self, dialect: Dialect, columns: Mapping[str, Named]) -> None:
        self._dialect = dialect
        self._columns = columns

    def predicate(self, expr: Expr) -> exp.Expr | None:
        """A condition; None where the database would mean something else by it."""
        piece = fold(expr, self._piece)
        return piece.sql if piece is not None and _is_condition(piece.type) else None

    def value(self, expr: Expr) -> Piece | None:
        """A value of which the database can compute, compare and group."""
        return fold(expr, self._piece)

    def by_bytes(self, piece: Piece) -> exp.Expr:
        """A value such that it is equal and ordered as it is here."""
        if piece.family != "text" or piece.literal is not None:
            return piece.sql
        return exp.Collate(this=_paren(piece.sql), expression=_collation(self._dialect))

    def column(self, name: str) -> Piece | None:
        """A column of the source."""
        return self._column(Column((name,)))

    def equal(self, left: Piece | None, right: Piece | None) -> exp.Expr | None:
        """That two values are equal; None where the database would mean something else by that."""
        found = None if left is None or right is None else self._comparison("=", left, right)
        return None if found is None else found.sql

    # --- Nodes --------------------------------------------------------------------------------------------------------

    def _piece(self, node: Expr, args: tuple[Piece | None, ...]) -> Piece | None:
        match node:
            case Column():
                return self._column(node)
            case Literal():
                return self._literal(node)
            case Call() if any(arg is None for arg in args):
                return None
            case Call(function):
                return self._call(function, node, tuple(arg for arg in args if arg is not None))

    def _column(self, node: Column) -> Piece | None:
        if len(node.path) > 1 or node.path[0] not in self._columns:
            return None
        named = self._columns[node.path[0]]
        compares = named.column.compares and family_of(named.column.type) in self._dialect.families
        return Piece(named.sql.copy(), named.column.type, compares, named.column.is_bytewise)

    def _literal(self, node: Literal) -> Piece | None:
        if node.is_null:
            return Piece(exp.Null(), node.type, family_of(node.type) in (None, *self._dialect.families), literal=node)
        family = family_of(node.type)
        if family is None or family not in self._dialect.families:
            return None
        written = self._dialect.write(node, family)
        return None if written is None else Piece(written, node.type, True, literal=node)

    def _call(self, function: str, node: Call, args: tuple[Piece, ...]) -> Piece | None:
        if function in COMPARISONS:
            return self._comparison(function, *args)
        match function, args:
            case "and" | "or", _ if all(_is_condition(arg.type) for arg in args):
                return _condition(_junction(exp.And if function == "and" else exp.Or, _sql(args)))
            case "not", (arg,) if _is_condition(arg.type):
                return _condition(exp.Not(this=_paren(arg.sql)))
            case "is_null", (arg,):
                return _condition(exp.Is(this=_paren(arg.sql), expression=exp.Null()))
            case "is_not_null", (arg,):
                return _condition(exp.Not(this=exp.Is(this=_paren(arg.sql), expression=exp.Null())))
            case "in", (arg,):
                return self._in(arg, node.args[1:])
            case "like" | "startswith" | "endswith" | "contains", (arg, *_):
                return self._text_test(arg, _pattern(node))
            case _:
                return self._function(function, node, args) if function in self._dialect.functions else None

    def _comparison(self, function: str, left: Piece, right: Piece) -> Piece | None:
        if not self._are_alike(left, right):
            return None
        is_plain = function in _EQUALITIES and all(each.is_bytewise or each.literal for each in (left, right))
        sides = (left.sql, right.sql) if is_plain else (self.by_bytes(left), self.by_bytes(right))
        return _condition(_OPERATORS[function](this=_paren(sides[0]), expression=_paren(sides[1])))

    def _are_alike(self, *pieces: Piece) -> bool:
        """Whether values compare with each other in the database as they do here. NULL goes with all."""
        families = {piece.family for piece in pieces if not _is_bare_null(piece)}
        return len(families) == 1 and None not in families

    def _in(self, value: Piece, items: tuple[Expr, ...]) -> Piece | None:
        if len(items) > MOST_ITEMS or value.family is None:
            return None
        written = [self._literal(item) if isinstance(item, Literal) else None for item in items]
        pieces = [piece for piece in written if piece is not None]
        if len(pieces) < len(items) or not self._are_alike(value, *pieces):
            return None
        tested = value.sql if value.is_bytewise else self.by_bytes(value)
        return _condition(exp.In(this=_paren(tested), expressions=_sql(pieces)))

    def _text_test(self, value: Piece, pattern: LikePattern | None) -> Piece | None:
        if pattern is None or value.family != "text":
            return None
        if not is_writable("".join(part for part in pattern.parts if isinstance(part, str))):
            return None
        tested = _paren(self.by_bytes(value))
        if not self._dialect.has_like:
            return _condition(exp.Glob(this=tested, expression=exp.Literal.string(_glob(pattern))))
        like = exp.Like(this=tested, expression=exp.Literal.string(_like(pattern)))
        return _condition(exp.Escape(this=like, expression=exp.Literal.string(_ESCAPE)))

    def _function(self, function: str, node: Call, args: tuple[Piece, ...]) -> Piece | None:
        match function, args:
            case "length", (arg,) if arg.family == "text":
                return Piece(exp.cast(exp.Length(this=arg.sql), "bigint"), types.LONG, True)
            case "substring", (arg, *_) if arg.family == "text":
                return _substring(arg, node)
            case "cast", (arg, _) if arg.family is not None and _is_wider(type_of(node), arg.type):
                # Values of one family compare whatever their widths, and an index is of use only without the cast.
                return Piece(arg.sql, type_of(node) or arg.type, True, literal=arg.literal)
            case "coalesce", _ if self._are_alike(*args) and (found := type_of(node)) is not None:
                return Piece(exp.Coalesce(this=args[0].sql, expressions=_sql(args[1:])), found, True)
            case "case", _ if (found := type_of(node)) is not None:
                return self._case(args, found)
            case _:
                return None

    def _case(self, args: tuple[Piece, ...], found: pa.DataType) -> Piece | None:
        conditions, values, otherwise = args[0:-1:2], args[1:-1:2], args[-1]
        if not all(_is_condition(each.type) for each in conditions) or not self._are_alike(*values, otherwise):
            return None
        branches = [
            exp.If(this=condition.sql, true=value.sql) for condition, value in zip(conditions, values, strict=True)
        ]
        return Piece(exp.Case(ifs=branches, default=otherwise.sql), found, True)


_ESCAPE = "!"
"""What makes a sign of a LIKE pattern stand for itself. No database gives it another meaning, as some do to `\\`."""


def _like(pattern: LikePattern) -> str:
    return "".join(
        part.sign if not isinstance(part, str) else f"{_ESCAPE}{part}" if part in ("%", "_", _ESCAPE) else part
        for part in pattern.parts
    )


def _glob(pattern: LikePattern) -> str:
    signs = {ANY_TEXT: "*", ANY_CHARACTER: "?"}
    return "".join(
        signs[part] if not isinstance(part, str) else f"[{part}]" if part in ("*", "?", "[") else part
        for part in pattern.parts
    )


def _pattern(node: Call) -> LikePattern | None:
    match node:
        case Call("like", (_, Literal(str() as text))):
            return parse_like(text, DEFAULT_ESCAPE)
        case Call("like", (_, Literal(str() as text), Literal(str() as escape))):
            return parse_like(text, escape)
        case Call("startswith", (_, Literal(str() as text))):
            return LikePattern((*text, ANY_TEXT))
        case Call("endswith", (_, Literal(str() as text))):
            return LikePattern((ANY_TEXT, *text))
        case Call("contains", (_, Literal(str() as text))):
            return LikePattern((ANY_TEXT, *text, ANY_TEXT))
        case _:
            return None


def _substring(text: Piece, node: Call) -> Piece | None:
    """Positions from 1 mean the same everywhere; those below count from the end, or from before the beginning."""
    match node.args:
        case (_, Literal(int() as start), Literal(int() as length)) if (
            start >= 1 and length >= 0 and start + length < 2**31
        ):
            numbers = {"start": exp.Literal.number(start), "length": exp.Literal.number(length)}
            return Piece(exp.Substring(this=text.sql, **numbers), types.STRING, True)
        case _:
            return None


def _is_wider(target: pa.DataType | None, source: pa.DataType) -> bool:
    """Whether a cast changes no value: to a wider type of the same kind."""
    if target is None:
        return False
    if pa.types.is_integer(source) and pa.types.is_signed_integer(target):
        return bool(target.bit_width >= source.bit_width)
    return bool(pa.types.is_float32(source) and pa.types.is_float64(target))


def _collation(dialect: Dialect) -> exp.Expr:
    return exp.to_identifier(dialect.collation, quoted=True)


def _is_condition(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_boolean(data_type) or pa.types.is_null(data_type))


def _is_bare_null(piece: Piece) -> bool:
    return piece.literal is not None and piece.literal.is_null


_ATOMS = (exp.Column, exp.Literal, exp.Paren, exp.Null, exp.Boolean, exp.Cast)


def _paren(sql: exp.Expr) -> exp.Expr:
    return sql if isinstance(sql, _ATOMS) else exp.Paren(this=sql)


def _junction(kind: type[exp.Connector], parts: list[exp.Expr]) -> exp.Expr:
    """All parts, nested as a balanced tree: a chain of thousands would be as deep as it is long."""
    while len(parts) > 1:
        pairs = zip(parts[0::2], parts[1::2], strict=False)
        rest = parts[-1:] if len(parts) % 2 else []
        parts = [_paren(kind(this=left, expression=right)) for left, right in pairs] + rest
    return parts[0]


def _condition(sql: exp.Expr) -> Piece:
    return Piece(_paren(sql), types.BOOLEAN, True)


def _sql(pieces: tuple[Piece, ...] | list[Piece]) -> list[exp.Expr]:
    return [piece.sql for piece in pieces]
