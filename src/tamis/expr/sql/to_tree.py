"""Expressions as sqlglot trees: the tree of an expression is the one that its text is parsed to.

An engine translates the tree, so that nothing is printed and parsed again on the way to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sqlglot import exp

from tamis.expr.functions.table import Precedence
from tamis.expr.nodes import NULL, AnyExpr, Call, Column, Leaf, Literal, Name, fold, get_operands
from tamis.expr.sql.intervals import interval_from_text
from tamis.expr.sql.parse import read_opaque
from tamis.expr.sql.printer import (
    SPECIAL_SYNTAX,
    find_infix_precedence,
    find_interval_text,
    is_folded,
    is_simple_name,
    spell_literal,
)
from tamis.expr.sql.syntax import parse_expression
from tamis.types import is_bytes

_Built = tuple[exp.Expr, int]
"""A tree, and the precedence of its operator."""

_KINDS: dict[str, type[exp.Binary]] = {
    "=": exp.EQ, "<>": exp.NEQ, "<": exp.LT, "<=": exp.LTE, ">": exp.GT, ">=": exp.GTE, "<=>": exp.NullSafeEQ,
    "+": exp.Add, "-": exp.Sub, "*": exp.Mul, "/": exp.Div, "%": exp.Mod,
}  # fmt: skip


def to_tree(expr: AnyExpr) -> exp.Expr:
    """Return a new tree of an expression.

    >>> from tamis.expr.sql.parse import parse_sql
    >>> to_tree(parse_sql("a = 1 AND NOT (b - (2 - x.y) IN (1, 2))")).sql()
    'a = 1 AND NOT b - (2 - x.y) IN (1, 2)'
    """
    return fold(expr, _build, lambda node: () if _is_opaque(node) else get_operands(node))[0]


def _is_opaque(node: AnyExpr) -> bool:
    return isinstance(node, Call) and node.function == "sql"


def _build(node: AnyExpr, args: tuple[_Built, ...]) -> _Built:
    match node:
        case Name() | Column():
            return _build_column(node), Precedence.CALL
        case Literal():
            return _build_literal(node), Precedence.CALL
        case Call():
            return _build_call(
                node, [*args, *((_build_literal(item), Precedence.CALL) for item in _list_items(node, args))]
            )


def _list_items(node: Call[Leaf], args: Sequence[_Built]) -> Sequence[Literal]:
    """Return the literals that `get_operands` leaves out."""
    items = () if _is_opaque(node) else node.args[len(args) :]
    return [item for item in items if isinstance(item, Literal)]


def _take(built: _Built, needed: int = 0) -> exp.Expr:
    """Return a tree to put into another, in brackets if it binds less tightly than needed."""
    tree, precedence = built
    # An expression that occurs twice as the same object is built once, and a tree has one parent.
    tree = tree if tree.parent is None else tree.copy()
    return tree if precedence >= needed else exp.Paren(this=tree)


def _build_call(node: Call[Leaf], args: list[_Built]) -> _Built:
    match node:
        case Call("and" | "or" as function, (_, _, *_)):
            precedence, kind = (Precedence.AND, exp.And) if function == "and" else (Precedence.OR, exp.Or)
            tree, *others = (_take(arg, precedence + 1) for arg in args)
            for other in others:
                tree = kind(this=tree, expression=other)
            return tree, precedence
        case Call("not", (Call("in" | "like" | "<=>"),)) if (negated := _negate(_take(args[0]))) is not None:
            return negated, Precedence.COMPARISON
        case Call("not", (_,)):
            return exp.Not(this=_take(args[0], Precedence.CALL)), Precedence.NOT
        case Call("is_null" | "is_not_null" as function, (_,)):
            is_null = exp.Is(this=_take(args[0], Precedence.SUM), expression=exp.Null())
            return (is_null if function == "is_null" else exp.Not(this=is_null)), Precedence.COMPARISON
        case Call("in", (_, _, *_)):
            return exp.In(
                this=_take(args[0], Precedence.SUM), expressions=[_take(arg) for arg in args[1:]]
            ), Precedence.COMPARISON
        case Call("like", (_, _)) | Call("like", (_, _, Literal(str()))):
            like = exp.Like(this=_take(args[0], Precedence.SUM), expression=_take(args[1], Precedence.SUM))
            return (exp.Escape(this=like, expression=_take(args[2])) if args[2:] else like), Precedence.COMPARISON
        case Call(function, (_, _)) if (infix := find_infix_precedence(function)) is not None:
            left = _take(args[0], Precedence.SUM if infix == Precedence.COMPARISON else infix)
            options = {"typed": False, "safe": True} if function == "/" else {}
            return _KINDS[function](this=left, expression=_take(args[1], infix + 1), **options), infix
        case Call("negate", (Literal() | Call("cast" | "try_cast"),)):
            return exp.Neg(this=exp.Paren(this=_take(args[0]))), Precedence.SIGN
        case Call("negate", (_,)):
            return exp.Neg(this=_take(args[0], Precedence.CALL)), Precedence.SIGN
        case Call("cast" | "try_cast" as function, (value, Literal(str() as target))):
            needed = Precedence.CALL + 1 if is_folded(value, target) else 0
            safe = {"safe": True} if function == "try_cast" else {}
            return exp.TryCast(this=_take(args[0], needed), to=build_type(target), **safe), Precedence.CALL
        case Call("case", (_, _, _, *rest)) if len(rest) % 2 == 0:
            pairs = zip(args[0:-1:2], args[1:-1:2], strict=True)
            branches = [exp.If(this=_take(condition), true=_take(value)) for condition, value in pairs]
            otherwise = {} if node.args[-1] == NULL else {"default": _take(args[-1])}
            return exp.Case(ifs=branches, **otherwise), Precedence.CALL
        case Call("sql", (Literal(str() as text), *_)):
            return exp.Paren(this=read_opaque(text)), Precedence.CALL
        case Call(function):
            return _build_function(function, args), Precedence.CALL


def _negate(tree: exp.Expr) -> exp.Expr | None:
    """Return `a NOT IN (…)`, `a NOT LIKE b` or `a IS DISTINCT FROM b`; None if the call was written as a function."""
    match tree:
        case exp.In():
            return exp.Not(this=tree)
        case exp.Like() | exp.Escape(this=exp.Like()):
            tree.find(exp.Like).set("negate", True)  # type: ignore[union-attr]  # it is one, or its first part is
            return tree
        case exp.NullSafeEQ():
            return exp.NullSafeNEQ(this=tree.this, expression=tree.expression)
        case _:
            return None


_SPECIAL: dict[str, tuple[type[exp.Expr], tuple[str, ...]]] = {
    **dict.fromkeys(("substring", "substr"), (exp.Substring, ("this", "start", "length"))),
    "position": (exp.StrPosition, ("substr", "this", "position")),
    "overlay": (exp.Overlay, ("this", "expression", "from_", "for_")),
    "if": (exp.If, ("this", "true", "false")),
}
"""Functions that sqlglot parses to nodes of their own, and the parts of these nodes."""


def _build_function(function: str, args: Sequence[_Built]) -> exp.Expr:
    name = function.lower()
    needed = Precedence.SUM if name in SPECIAL_SYNTAX else 0
    parts = [_take(arg, needed) for arg in args]
    if name == "trim" and 1 <= len(parts) <= 2:
        return exp.Trim(this=parts[-1], expression=parts[0] if len(parts) == 2 else None)
    kind, keys = _SPECIAL.get(name, (None, ()))
    if kind is not None and 1 <= len(parts) <= len(keys):
        return kind(**dict(zip(keys, parts, strict=False)))
    is_plain = function.isascii() and function.isidentifier()
    return exp.Anonymous(this=function if is_plain else exp.to_identifier(function, quoted=True), expressions=parts)


def _build_column(column: Leaf) -> exp.Expr:
    parts = [exp.to_identifier(name, quoted=column.exact or not is_simple_name(name)) for name in column.path]
    head, fields = parts[:4], parts[4:]
    tree: exp.Expr = exp.Column(**dict(zip(("this", "table", "db", "catalog"), reversed(head), strict=False)))
    for each in fields:
        tree = exp.Dot(this=tree, expression=each)
    return tree


_WORDS = {"NULL": exp.null, "TRUE": exp.true, "FALSE": exp.false}


def _build_literal(value: Literal) -> exp.Expr:
    if not value.is_null and is_bytes(value.type):
        return exp.HexString(this=value.value.hex().upper())
    interval = find_interval_text(value)
    if interval is not None:
        return interval_from_text(interval).to_node()
    spelled = spell_literal(value)
    if spelled.is_string:
        plain: exp.Expr = exp.Literal.string(spelled.text)
    elif spelled.text in _WORDS:
        plain = _WORDS[spelled.text]()
    else:
        plain = exp.Literal(this=spelled.text.removeprefix("-"), is_string=False)
        plain = exp.Neg(this=plain) if spelled.text.startswith("-") else plain
    if spelled.type is None:
        return plain
    # sqlglot parses `DATE '…'` to a plain Cast, and `CAST(… AS DATE)` to its subclass TryCast.
    return (exp.Cast if spelled.form == "prefix" else exp.TryCast)(this=plain, to=build_type(spelled.type))


def build_type(name: str) -> exp.DataType:
    """Return a new tree of a type of Spark's dialect, or of Tamis's additional types."""
    return _parse_type(name).copy()


@lru_cache(maxsize=1024)
def _parse_type(name: str) -> exp.DataType:
    return parse_expression(f"CAST(NULL AS {name})", lambda tree: tree).args["to"]  # type: ignore[no-any-return]
