"""Syntax that Spark and DuckDB share and that does not mean the same in both: casts, LIKE, `list[index]`, samples."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tamis.scan.spark_calls import PARTS, PREFIX, macro_call, refusal, text_of
from tamis.scan.spark_formats import Refusal, searched_pattern

_INTEGERS = {"TINYINT": "tinyint", "SMALLINT": "smallint", "INT": "integer", "BIGINT": "bigint"}
_BACKSLASH = "\\"


def meant(node: exp.Expr) -> exp.Expr:
    """A node whose syntax is the same in Spark and DuckDB and whose meaning is not."""
    match node:
        case exp.Cast():
            return _cast(node)
        case exp.Extract():
            macro = PARTS.get(node.this.name.lower())
            return node if macro is None else macro_call(macro, node.expression)
        case exp.StrPosition() if node.args.get("position") is not None:
            return macro_call("locate", node.args["substr"], node.this, node.args["position"])
        case exp.Substring(args={"start": exp.Literal(this="0") as start}):
            # Position 0 is the first character in Spark, and one before it in DuckDB.
            start.replace(exp.Literal.number(1))
            return node
        case exp.Substring() if not all(map(_is_number, (node.args.get("start"), node.args.get("length")))):
            length = node.args.get("length") or exp.Literal.number(2**31 - 1)
            return macro_call("substring", node.this, node.args.get("start") or exp.Literal.number(1), length)
        case exp.Transform() | exp.ArrayFilter():
            return _over_items(node)
        case exp.IntDiv():
            return macro_call("div", node.this, node.expression)
        case exp.Concat() if not isinstance(node, exp.ConcatWs):
            return node if len(node.expressions) == 1 else _joined(node.expressions)
        case exp.DPipe() if not isinstance(node.parent, exp.DPipe):
            return _joined(_operands(node))
        case exp.Bracket() if not node.args.get("offset") and not isinstance(node.expressions[0], exp.Literal):
            key = macro_call("key", node.this.copy(), node.expressions[0])
            return exp.Bracket(this=node.this, expressions=[key], offset=1)
        case exp.Struct() if not isinstance(node.parent, exp.Dot) and _is_row(node):
            return exp.Anonymous(this="row", expressions=[field.expression for field in node.expressions])
        case exp.RegexpExtractAll():
            return macro_call("found", node.copy())
        case exp.ArrayToString():
            return exp.ArrayToString(**{**node.args, "this": macro_call("listed", node.this)})
        case exp.RegexpLike():
            return _regular(node)
        case exp.BitwiseLeftShift():
            return macro_call("shiftleft", node.this, node.expression)
        case exp.BitwiseRightShift():
            return macro_call("shiftright", node.this, node.expression)
        case exp.TableSample(args={"percent": exp.Expr()}) if node.args.get("method") is None:
            # Each row for itself: the engine would take a share of blocks, which are all or nothing of a small table.
            node.set("method", exp.var("BERNOULLI"))
            return node
        case exp.FirstValue() | exp.LastValue() if not _is_windowed(node):
            name = "first" if isinstance(node, exp.FirstValue) else "last"
            return exp.Anonymous(this=name, expressions=[node.this])
        case exp.IgnoreNulls(this=exp.Last() | exp.Anonymous() as call) if not _is_windowed(node):
            value = call.expressions[0] if isinstance(call, exp.Anonymous) else call.this
            is_there = exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))
            return exp.Filter(this=call, expression=exp.Where(this=is_there))
        case exp.Like() | exp.ILike() if not isinstance(node.parent, exp.Escape):
            return _escaped(node)
        case _:
            return node


def _is_number(node: exp.Expr | None) -> bool:
    return node is None or isinstance(node.this if isinstance(node, exp.Neg) else node, exp.Literal)


def _is_windowed(node: exp.Expr) -> bool:
    while isinstance(node.parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        node = node.parent
    return isinstance(node.parent, exp.Window)


def _is_row(node: exp.Struct) -> bool:
    """Whether a struct names its fields after columns, which have other names in the engine."""
    return all(
        isinstance(field, exp.PropertyEQ) and isinstance(field.this, exp.Identifier) for field in node.expressions
    )


def _piece(node: exp.Expr, *, is_text: bool) -> exp.Expr:
    if text_of(node) is not None or isinstance(node, exp.Null | exp.DPipe) or _is_printed(node):
        return node
    if not is_text:
        # Perhaps a list: nobody knows what a column is.
        return macro_call("piece", node)
    return macro_call("plain_string" if isinstance(node, exp.Column) else "string", node)


def _is_printed(node: exp.Expr) -> bool:
    names = ("string", "plain_string", "padded")
    return isinstance(node, exp.Anonymous) and node.name in [f"{PREFIX}{name}" for name in names]


def _is_text(node: exp.Expr) -> bool:
    """Whether a value is a text or a number for sure, so that all that it is joined with is no list."""
    if isinstance(node, exp.Paren):
        return _is_text(node.this)
    if isinstance(node, exp.DPipe):
        return any(map(_is_text, _operands(node)))
    kinds = exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Upper, exp.Lower, exp.Trim, exp.Substring
    return isinstance(node, kinds) or _is_printed(node)


def _operands(node: exp.DPipe) -> list[exp.Expr]:
    """What a chain of `||` joins."""
    found: list[exp.Expr] = []
    first: exp.Expr = node
    while isinstance(first, exp.DPipe):
        found.append(first.expression)
        first = first.this
    return [first, *reversed(found)]


def _joined(parts: Sequence[exp.Expr]) -> exp.Expr:
    is_text = any(map(_is_text, parts))
    joined, *rest = (_piece(part, is_text=is_text) for part in parts)
    for part in rest:
        joined = exp.DPipe(this=joined, expression=part)
    return exp.Paren(this=joined)


def _over_items(node: exp.Expr) -> exp.Expr:
    """`filter` and `transform`: their index counts from 0 in Spark and from 1 in DuckDB."""
    function = node.expression
    if not isinstance(function, exp.Lambda) or len(function.expressions) != 2:
        return node
    index = function.expressions[1].name
    for found in list(function.this.find_all(exp.Identifier)):
        if found.name.lower() != index.lower():
            continue
        if isinstance(found.parent, exp.Dot) or (isinstance(found.parent, exp.Lambda) and found.parent is not function):
            raise refusal("filter and transform", f"{index} has two meanings in it")
        found.replace(exp.Paren(this=exp.Sub(this=found.copy(), expression=exp.Literal.number(1))))
    return node


def _regular(node: exp.RegexpLike) -> exp.Expr:
    pattern = text_of(node.expression)
    if pattern is None:
        return node
    try:
        node.expression.set("this", searched_pattern(pattern))
    except Refusal as reason:
        raise refusal("RLIKE", str(reason)) from None
    return node


def _cast(node: exp.Cast) -> exp.Expr:
    """A cast that fails where a value does not fit (sqlglot reads Spark's as one that makes NULL), as Spark prints."""
    target = node.args["to"]
    name = getattr(target.this, "name", "")
    is_try = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    if name in ("TEXT", "VARCHAR", "CHAR") and not isinstance(node.this, exp.Literal | exp.Null):
        return macro_call("string", node.this)
    is_whole = isinstance(node.this, exp.Literal) and not node.this.is_string and node.this.name.isdecimal()
    if name in _INTEGERS and not is_whole and not isinstance(node.this, exp.Null):
        # A column may be written many times, and then DuckDB's message names it.
        kind = "try_" if is_try else "plain_" if isinstance(node.this, exp.Column) else ""
        return macro_call(f"{kind}{_INTEGERS[name]}", node.this)
    if isinstance(node, exp.TryCast) and not is_try:
        return exp.Cast(this=node.this, to=target)
    return node


def _escaped(node: exp.Expr) -> exp.Expr:
    """A LIKE in which the backslash escapes, as it does in Spark unless another character is named."""
    pattern = node.expression
    escape = exp.Literal.string(_BACKSLASH)
    if not isinstance(pattern, exp.Any | exp.All):
        return exp.Escape(this=node.copy(), expression=escape)
    texts = [text_of(item) for item in pattern.this.expressions] if isinstance(pattern.this, exp.Tuple) else [None]
    if any(text is None or _BACKSLASH in text for text in texts):
        raise refusal("LIKE ANY and LIKE ALL", "they take constants without a backslash")
    return node
