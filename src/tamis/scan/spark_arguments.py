"""Implicit casts of the arguments of Spark's functions, and checks of their number."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from tamis.scan.spark_calls import (
    DUCKDB_PREFIX,
    MACRO_PREFIX,
    CallBuilder,
    call_duckdb,
    call_macro,
    make_unsupported_error,
)

MAX_INT = 2**31 - 1


_TEXT_MACROS = frozenset({
    "text", "string", "plain_string", "only_text", "text_part", "left_text", "right", "overlay_text", "split_part",
    "substring_index", "upper", "lower", "initcap", "reverse_text", "padded_text", "masked", "char", "chr", "soundex",
    "hex", "bin", "base64", "conv", "decode", "url_encode", "url_decode", "try_url_decode", "parse_url",
    "try_parse_url", "regexp_substr", "regexp_replace_from", "guarded", "formatted", "format_number", "by_pattern",
    "printed_text",
    "in_width", "printed_whole", "printed_hex", "printed_float", "sha2", "string_or_null", "json_value",
})  # fmt: skip
_TEXT_FUNCTIONS = frozenset({
    "trim", "ltrim", "rtrim", "replace", "translate", "repeat", "concat_ws", "regexp_extract", "regexp_replace", "md5",
    "sha1", "strftime", "nfc_normalize", "substring", "upper", "left", "decode", "hex",
})  # fmt: skip


def is_text(node: exp.Expr) -> bool:
    """Whether a DuckDB expression is certainly a text.

    Such a value needs no overloaded macro, which costs time: DuckDB binds the arguments of an overloaded macro twice,
    and those of nested ones more often.
    """
    value = node.unnest()
    match value:
        case exp.Literal():
            return bool(value.is_string)
        case exp.Cast():
            return value.to.is_type("text", "varchar")
        case exp.Anonymous():
            name = value.name.lower()
            is_macro = name.startswith(MACRO_PREFIX) and name.removeprefix(MACRO_PREFIX) in _TEXT_MACROS
            return is_macro or (name.startswith(DUCKDB_PREFIX) and name.removeprefix(DUCKDB_PREFIX) in _TEXT_FUNCTIONS)
        case exp.DPipe():
            return is_text(value.this) or is_text(value.expression)
        case _:
            return False


def as_text(value: exp.Expr) -> exp.Expr:
    """Cast a value to a text as Spark does."""
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "varchar")
    return value if is_text(value) else call_macro("text", value)


def as_bytes(value: exp.Expr) -> exp.Expr:
    """Return bytes, or the UTF-8 encoding of a text."""
    return call_duckdb("encode", value) if is_text(value) else call_macro("bytes", value)


def as_int(value: exp.Expr) -> exp.Expr:
    """Cast a value to an int as Spark does."""
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "int")
    number = value.this if isinstance(value, exp.Neg) else value
    is_small = isinstance(number, exp.Literal) and not number.is_string and number.name.isdecimal()
    if is_small and int(number.name) <= MAX_INT:
        return value
    return call_macro("plain_integer" if isinstance(value, exp.Column) else "integer", value)


def is_constant(node: exp.Expr) -> bool:
    """Whether a value is the same for all rows."""
    return not any(node.find_all(exp.Column, exp.Subquery, exp.Select))


def _keep(value: exp.Expr) -> exp.Expr:
    return value


_CASTS: dict[str, Callable[[exp.Expr], exp.Expr]] = {"t": as_text, "i": as_int, "a": _keep}


def make_typed_builder(
    name: str, kinds: str, *, own: str | None = None, fewest: int | None = None, of_texts: str | None = None
) -> CallBuilder:
    """Return a builder that calls a macro, or DuckDB's function `own`, with cast arguments.

    Each letter of `kinds` is one argument: cast to a text (t), cast to an int (i), or unchanged (a). A literal NULL
    makes the result NULL. Where all unchanged arguments are texts, the builder calls the macro `of_texts` instead, or
    DuckDB's function of that name if it starts with a dot.
    """

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        least = len(kinds) if fewest is None else fewest
        if not least <= len(args) <= len(kinds):
            wanted = f"{least}" if least == len(kinds) else f"{least} to {len(kinds)}"
            raise make_unsupported_error(name, f"it takes {wanted} arguments, not {len(args)}")
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        given = [_CASTS[kind](arg) for kind, arg in zip(kinds, args, strict=False)]
        if of_texts is not None and all(is_text(arg) for kind, arg in zip(kinds, args, strict=False) if kind == "a"):
            return call_duckdb(of_texts[1:], *given) if of_texts[0] == "." else call_macro(of_texts, *given)
        return call_duckdb(own, *given) if own is not None else call_macro(name, *given)

    return build


def make_refusing_builder(name: str, reason: str) -> CallBuilder:
    """Return a builder that rejects every call of an unsupported function."""

    def refuse(args: Sequence[exp.Expr]) -> exp.Expr | None:
        raise make_unsupported_error(name, reason)

    return refuse


def require_argument_count(name: str, args: Sequence[exp.Expr], *counts: int) -> None:
    """Raise an error unless a call has one of these numbers of arguments."""
    if len(args) not in counts:
        wanted = " or ".join(map(str, counts))
        raise make_unsupported_error(name, f"it takes {wanted} arguments, not {len(args)}")
