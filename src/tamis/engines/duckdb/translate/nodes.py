"""Translation of syntax that Spark and DuckDB share but evaluate differently: casts, LIKE, `list[index]`, samples."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.functions.datetime_casts import translate_datetime
from tamis.engines.duckdb.functions.intervals import translate_interval
from tamis.engines.duckdb.functions.items import build_subscript
from tamis.engines.duckdb.functions.lambdas import let
from tamis.engines.duckdb.functions.numbers import build_shift
from tamis.engines.duckdb.functions.regexps import build_rlike
from tamis.engines.duckdb.functions.text import build_overlay, build_position, build_substring, build_trim
from tamis.engines.duckdb.translate.calls import (
    MACRO_PREFIX,
    as_text,
    call_by_type,
    call_duckdb,
    call_macro,
    has_aggregate_or_window,
    is_text,
    make_unsupported_error,
    read_string_literal,
)
from tamis.engines.duckdb.translate.operators import (
    resolve_plain_operator,
    translate_in,
    translate_operator,
    widen_floats,
)

_INTEGERS = {"TINYINT": "tinyint", "SMALLINT": "smallint", "INT": "integer", "BIGINT": "bigint"}
_CAST_MACROS = {"BOOLEAN": "boolean", "DOUBLE": "double", "FLOAT": "float", "DECIMAL": "exact_number",
                "BINARY": "binary", "VARBINARY": "binary"}  # fmt: skip
_BACKSLASH = "\\"


def translate_node(node: exp.Expr) -> exp.Expr:
    """Translate a node whose syntax is the same in Spark and DuckDB, and whose semantics is not."""
    found = translate_interval(node) or translate_datetime(node)
    if found is not None:
        return found
    match node:
        case exp.DataType(this=exp.DType.TIMESTAMPNTZ):
            # DuckDB has another type for each precision.
            node.set("expressions", None)
            return node
        case exp.Literal(is_string=False) if _is_wide_integer(node):
            # It is a HUGEINT in DuckDB, which is the type of its sums only here.
            return exp.cast(node.copy(), f"decimal({len(node.name.lstrip('0'))}, 0)")
        case exp.Cast():
            return _translate_cast(node)
        case exp.Anonymous() if (plain := resolve_plain_operator(node)) is not None:
            return plain
        case exp.StrPosition():
            return build_position(node.this, node.args["substr"], node.args.get("position"))
        case exp.Substring():
            return build_substring(node.this, node.args.get("start"), node.args.get("length"))
        case exp.Trim():
            return build_trim(node)
        case exp.Overlay():
            return build_overlay(node)
        case exp.In() if _has_struct(node.this, *node.expressions):
            node.set("expressions", [_strip_field_names(each) for each in node.expressions])
            node.set("this", _strip_field_names(node.this))
            return node
        case exp.In() if node.expressions and not isinstance(node.parent, exp.Pivot):
            return translate_in(node)
        case exp.Between():
            widen_floats(node.this, node.args["low"], node.args["high"])
            return node
        case exp.Concat() if not isinstance(node, exp.ConcatWs):
            return _build_concat(node.expressions)
        case exp.DPipe() if not isinstance(node.parent, exp.DPipe):
            return _build_concat(_list_operands(node))
        case exp.Bracket() if not node.args.get("offset"):
            return build_subscript(node.this, node.expressions[0])
        case exp.LT() | exp.LTE() | exp.GT() | exp.GTE() if any(map(_is_struct_or_list, (node.this, node.expression))):
            # NULL within a struct or a list is the largest value in DuckDB, and the smallest in Spark.
            sides = [_strip_field_names(side) for side in (node.this, node.expression)]
            return type(node)(this=call_macro("whole", sides[0]), expression=call_macro("whole", sides[1]))
        case exp.EQ() | exp.NEQ() | exp.NullSafeEQ() | exp.NullSafeNEQ() if _has_struct(node.this, node.expression):
            sides = [call_macro("plain_comparable", _strip_field_names(side)) for side in (node.this, node.expression)]
            return type(node)(this=sides[0], expression=sides[1])
        case exp.Binary() if (found := translate_operator(node)) is not node:
            return found
        case exp.Struct() if not isinstance(node.parent, exp.Dot) and _is_row(node):
            return call_duckdb("row", *(field.expression for field in node.expressions))
        case exp.Avg() if not isinstance(node.parent, exp.Filter | exp.Window):
            return _build_average(node.this, node, in_window=False)
        case exp.Filter(this=exp.Avg(this=value)) if not isinstance(node.parent, exp.Window):
            return _build_average(value, node, in_window=False)
        case exp.Window(this=exp.Avg(this=value) | exp.Filter(this=exp.Avg(this=value))):
            return _build_average(value, node, in_window=True)
        case exp.RegexpLike():
            return build_rlike(node.this, node.expression)
        case exp.And() | exp.Or() if _may_fail(node.expression) and not _is_condition(node):
            # DuckDB computes both sides for all rows of a projection.
            decided = exp.false() if isinstance(node, exp.And) else exp.true()
            is_over = exp.Is(this=exp.Paren(this=node.this.copy()), expression=decided)
            return exp.Paren(this=exp.Case(ifs=[exp.If(this=is_over, true=decided.copy())], default=node.copy()))
        case exp.BitwiseLeftShift():
            return build_shift("shiftleft", node.this, node.expression)
        case exp.Anonymous(this="shiftrightunsigned", expressions=[value, bits]):
            return build_shift("shiftrightunsigned", value, bits)
        case exp.BitwiseRightShift():
            return build_shift("shiftright", node.this, node.expression)
        case exp.TableSample(args={"percent": exp.Expr()}) if node.args.get("method") is None:
            # Sample rows: DuckDB would sample blocks by default, and a small table is a single block.
            node.set("method", exp.var("BERNOULLI"))
            return node
        case exp.FirstValue() | exp.LastValue() if not _is_windowed(node):
            name = "first" if isinstance(node, exp.FirstValue) else "last"
            return call_duckdb(name, node.this)
        case exp.IgnoreNulls(this=exp.Last() | exp.Anonymous() as call) if not _is_windowed(node):
            value = call.expressions[0] if isinstance(call, exp.Anonymous) else call.this
            is_there = exp.Not(this=exp.Is(this=value.copy(), expression=exp.null()))
            return exp.Filter(this=call, expression=exp.Where(this=is_there))
        case exp.Like() | exp.ILike() if not isinstance(node.parent, exp.Escape):
            return _translate_like(node, exp.Literal.string(_BACKSLASH))
        case exp.Escape(this=exp.Like() | exp.ILike() as like):
            return _translate_like(like, node.expression)
        case _:
            return node


_FALLIBLE_MACROS = frozenset(
    f"{MACRO_PREFIX}{name}"
    for name in ("item", "item_of", "element_at", "element_at_of", "divide", "mod", "div", "quotient", "remainder",
                 "whole_quotient", "quotient_once", "remainder_once", "whole_quotient_once")
)  # fmt: skip
"""Macros that raise an error for some values of their parameter types."""


def _may_fail(node: exp.Expr) -> bool:
    return any(call.name.lower() in _FALLIBLE_MACROS for call in node.find_all(exp.Anonymous))


def _is_condition(node: exp.Expr) -> bool:
    """Return whether a node is a condition of WHERE, HAVING, QUALIFY or JOIN, or a conjunct: these run in turn."""
    around: exp.Expr | None = node
    while isinstance(around, exp.And | exp.Paren):
        around = around.parent
    is_of_rows_alone = isinstance(around, exp.Where | exp.Having | exp.Join | exp.Qualify)
    return is_of_rows_alone and around is not None and not isinstance(around.parent, exp.Filter)


def _is_struct_or_list(node: exp.Expr) -> bool:
    """Return whether a value is written as a struct or a list."""
    return isinstance(node.unnest(), exp.Tuple | exp.Struct | exp.Array) and not isinstance(node, exp.Subquery)


def _build_average(value: exp.Expr, average: exp.Expr, *, in_window: bool) -> exp.Expr:
    """Round an average as Spark does. The macro reads the type of the argument from one value of the group."""
    given = value.expressions[0] if isinstance(value, exp.Distinct) else value
    one = given.copy() if in_window else call_duckdb("max", given.copy())
    return call_macro("mean", one, average.copy())


def _is_wide_integer(number: exp.Literal) -> bool:
    """Return whether an integer literal is a decimal in Spark because no bigint holds it."""
    limit = 2**63 if isinstance(number.parent, exp.Neg) else 2**63 - 1
    return number.name.isdecimal() and limit < int(number.name) < 10**38


def _has_struct(*nodes: exp.Expr) -> bool:
    return any(isinstance(node.unnest(), exp.Struct) for node in nodes)


def _strip_field_names(node: exp.Expr) -> exp.Expr:
    """Remove the field names of a struct: Spark compares fields by their position, DuckDB by their names."""
    struct = node.unnest()
    if not isinstance(struct, exp.Struct):
        return node.copy()
    values = (each.expression if isinstance(each, exp.PropertyEQ) else each for each in struct.expressions)
    return call_duckdb("row", *map(_strip_field_names, values))


def _is_windowed(node: exp.Expr) -> bool:
    while isinstance(node.parent, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        node = node.parent
    return isinstance(node.parent, exp.Window)


def _is_row(node: exp.Struct) -> bool:
    """Return whether a struct names its fields after columns, which have other names in DuckDB."""
    return all(
        isinstance(field, exp.PropertyEQ) and isinstance(field.this, exp.Identifier) for field in node.expressions
    )


def _build_operand(node: exp.Expr, *, is_text: bool) -> exp.Expr:
    if read_string_literal(node) is not None or isinstance(node, exp.Null | exp.DPipe) or _is_text_call(node):
        return node
    if not is_text:
        # The value may be a list: the types of columns are not known here.
        return call_macro("concat_operand", node)
    return call_macro("plain_string" if isinstance(node, exp.Column) else "string", node)


def _is_text_call(node: exp.Expr) -> bool:
    return isinstance(node, exp.Anonymous) and is_text(node)


def _is_text(node: exp.Expr) -> bool:
    """Return whether a value is certainly a text or a number: then its concatenation is not one of lists."""
    if isinstance(node, exp.Paren):
        return _is_text(node.this)
    if isinstance(node, exp.DPipe):
        return any(map(_is_text, _list_operands(node)))
    kinds = exp.Literal, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Upper, exp.Lower, exp.Trim, exp.Substring
    return isinstance(node, kinds) or _is_text_call(node)


def _list_operands(node: exp.DPipe) -> list[exp.Expr]:
    """Return the operands of a chain of `||`."""
    found: list[exp.Expr] = []
    first: exp.Expr = node
    while isinstance(first, exp.DPipe):
        found.append(first.expression)
        first = first.this
    return [first, *reversed(found)]


def _build_concat(parts: Sequence[exp.Expr]) -> exp.Expr:
    if len(parts) == 1 and not isinstance(parts[0], exp.Null):
        return as_text(parts[0]) if _is_text(parts[0]) else call_macro("joined_alone", parts[0])
    is_text = any(map(_is_text, parts))
    if not is_text and not any(isinstance(part, exp.Null) for part in parts):
        return _build_overloaded_concat(parts)
    joined, *rest = (_build_operand(part, is_text=is_text) for part in parts)
    for part in rest:
        joined = exp.DPipe(this=joined, expression=part)
    return exp.Paren(this=joined)


def _build_overloaded_concat(parts: Sequence[exp.Expr]) -> exp.Expr:
    """Concatenate bytes, texts or lists by type; in halves, because DuckDB binds the arguments of overloads twice."""
    if len(parts) == 1:
        return parts[0]
    middle = len(parts) // 2
    return call_macro("joined", _build_overloaded_concat(parts[:middle]), _build_overloaded_concat(parts[middle:]))


def _translate_cast(node: exp.Cast) -> exp.Expr:
    """Translate a cast, which fails for invalid values. sqlglot parses Spark's CAST as one that returns NULL."""
    target = node.args["to"]
    name = getattr(target.this, "name", "")
    is_try = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    if name in ("ARRAY", "LIST", "MAP", "STRUCT") and not isinstance(node.this, exp.Null):
        return _translate_nested_cast(node, name)
    if name in ("TEXT", "VARCHAR", "CHAR") and not _is_formatted_alike(node.this):
        return call_macro("string", node.this)
    is_whole = isinstance(node.this, exp.Literal) and not node.this.is_string and node.this.name.isdecimal()
    if name in _INTEGERS and not is_whole and not isinstance(node.this, exp.Null):
        # A column can be repeated, and DuckDB then names it in its message.
        kind = "try_" if is_try else "plain_" if isinstance(node.this, exp.Column) else ""
        if isinstance(node.this, exp.Literal):
            return call_macro(f"{kind}{_INTEGERS[name]}", node.this)
        if has_aggregate_or_window(node.this):
            made = call_by_type(f"{kind}{_INTEGERS[name]}_cast", exp.column("cast_value"))
            return let("cast_value", node.this, made)
        return call_by_type(f"{kind}{_INTEGERS[name]}_cast", node.this)
    if name in _CAST_MACROS and not isinstance(node.this, exp.Null) and not has_aggregate_or_window(node.this):
        if is_try and _CAST_MACROS[name] == "binary":
            return node
        found = call_by_type(f"{'try_' if is_try else ''}{_CAST_MACROS[name]}", node.this)
        if name != "DECIMAL":
            return found
        return exp.TryCast(this=found, to=target) if is_try else exp.Cast(this=found, to=target)
    if isinstance(node, exp.TryCast) and not is_try:
        return exp.Cast(this=node.this, to=target)
    return node


def _is_formatted_alike(node: exp.Expr) -> bool:
    """Return whether DuckDB formats a constant as Spark does: all but doubles."""
    return isinstance(node, exp.Null) or (
        isinstance(node, exp.Literal) and (node.is_string or "e" not in node.name.lower())
    )


def _translate_nested_cast(node: exp.Cast, name: str) -> exp.Expr:
    """Translate a cast of a list, a map or a struct: each of its values is cast as Spark does."""
    kinds = node.args["to"].expressions
    depth = sum(1 for _ in node.args["to"].find_all(exp.DataType))
    item = exp.to_identifier(f"cast_{depth}")

    def cast(value: exp.Expr, target: exp.Expr) -> exp.Expr:
        return translate_node(type(node)(**{**node.args, "this": value, "to": target.copy()}))

    def each(values: exp.Expr, target: exp.Expr) -> exp.Expr:
        body = cast(exp.column(item.copy()), target)
        return call_duckdb("list_transform", values, exp.Lambda(this=body, expressions=[item.copy()]))

    if name in ("ARRAY", "LIST") and len(kinds) == 1:
        return each(node.this, kinds[0])
    whole = exp.column(exp.to_identifier(f"cast_whole_{depth}"))
    if name == "MAP" and len(kinds) == 2:
        sides = zip(("map_keys", "map_values"), kinds, strict=True)
        body: exp.Expr = call_duckdb("map", *(each(call_duckdb(part, whole.copy()), kind) for part, kind in sides))
    elif name == "STRUCT" and kinds and all(isinstance(kind, exp.ColumnDef) for kind in kinds):
        fields = [
            exp.PropertyEQ(
                this=exp.Literal.string(kind.name),
                expression=cast(
                    call_duckdb("struct_extract_at", whole.copy(), exp.Literal.number(index + 1)), kind.kind
                ),
            )
            for index, kind in enumerate(kinds)
        ]
        made = call_macro("of_fields", whole.copy(), exp.Literal.number(len(kinds)), exp.Struct(expressions=fields))
        is_there = exp.Not(this=exp.Is(this=whole.copy(), expression=exp.null()))
        body = exp.Case(ifs=[exp.If(this=is_there, true=made)])
    else:
        raise make_unsupported_error(
            "CAST", "the target type must name the types of the values of a list, map or struct"
        )
    return let(whole.this, node.this, body)


def _translate_like(node: exp.Expr, escape: exp.Expr) -> exp.Expr:
    """Translate LIKE, in which the backslash is the escape character unless ESCAPE names another one."""
    pattern = node.expression
    if isinstance(pattern, exp.Any | exp.All):
        listed = pattern.this.unnest()
        items = listed.expressions if isinstance(listed, exp.Tuple) else [listed]
        if not items or isinstance(listed, exp.Query | exp.Array):
            raise make_unsupported_error("LIKE ANY and LIKE ALL", "they take a list of patterns")
        join = exp.or_ if isinstance(pattern, exp.Any) else exp.and_
        each = [type(node)(**{**node.args, "this": node.this.copy(), "expression": item}) for item in items]
        return exp.Paren(this=join(*(_translate_like(one, escape.copy()) for one in each), copy=False))
    if isinstance(pattern, exp.Null) or isinstance(node.this, exp.Null):
        return exp.Null()
    character = read_string_literal(escape)
    if character is None or len(character) != 1:
        raise make_unsupported_error("LIKE", "ESCAPE takes a constant of one character")
    _check_escapes(read_string_literal(pattern), character)
    sides = [as_text(node.this), as_text(pattern)]
    if read_string_literal(pattern) is None:
        sides[1] = call_macro("like_pattern", sides[1], escape.copy())
    if isinstance(node, exp.ILike):
        sides = [call_macro("lower", side) for side in sides]
    found = exp.Like(this=sides[0], expression=sides[1], negate=node.args.get("negate"))
    return exp.Escape(this=found, expression=escape)


def _check_escapes(pattern: str | None, escape: str) -> None:
    """Raise an error where the escape character precedes a character other than %, _ and itself, as Spark does."""
    rest = pattern or ""
    while escape in rest:
        _, _, after = rest.partition(escape)
        if after[:1] not in ("_", "%", escape) or not after:
            raise make_unsupported_error(
                "LIKE", f"in the pattern {pattern!r} the escape character must precede %, _ or itself"
            )
        rest = after[1:]
