"""The arguments of Spark's functions as Spark casts them, for the rows of the function table."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sqlglot import exp

from tamis.scan.spark_calls import OWN_PREFIX, PREFIX, Build, macro_call, own_call, refusal

LARGEST_INT = 2**31 - 1


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
    """Whether a value in DuckDB's words is a text for sure.

    Then no overload is chosen for it, which costs time: DuckDB binds the arguments of one twice, of nested ones more.
    """
    value = node.unnest()
    match value:
        case exp.Literal():
            return bool(value.is_string)
        case exp.Cast():
            return value.to.is_type("text", "varchar")
        case exp.Anonymous():
            name = value.name.lower()
            is_macro = name.startswith(PREFIX) and name.removeprefix(PREFIX) in _TEXT_MACROS
            return is_macro or (name.startswith(OWN_PREFIX) and name.removeprefix(OWN_PREFIX) in _TEXT_FUNCTIONS)
        case exp.DPipe():
            return is_text(value.this) or is_text(value.expression)
        case _:
            return False


def as_text(value: exp.Expr) -> exp.Expr:
    """A value as the text that Spark casts it to."""
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "varchar")
    return value if is_text(value) else macro_call("text", value)


def as_bytes(value: exp.Expr) -> exp.Expr:
    """Bytes, or those of a text in UTF-8."""
    return own_call("encode", value) if is_text(value) else macro_call("bytes", value)


def as_int(value: exp.Expr) -> exp.Expr:
    """A value as the whole number that Spark casts it to."""
    if isinstance(value, exp.Null):
        return exp.cast(exp.null(), "int")
    number = value.this if isinstance(value, exp.Neg) else value
    is_small = isinstance(number, exp.Literal) and not number.is_string and number.name.isdecimal()
    if is_small and int(number.name) <= LARGEST_INT:
        return value
    return macro_call("plain_integer" if isinstance(value, exp.Column) else "integer", value)


def is_constant(node: exp.Expr) -> bool:
    """Whether a value is the same for all rows."""
    return not any(node.find_all(exp.Column, exp.Subquery, exp.Select))


def _as_is(value: exp.Expr) -> exp.Expr:
    return value


_CASTS: dict[str, Callable[[exp.Expr], exp.Expr]] = {"t": as_text, "i": as_int, "a": _as_is}


def with_types(
    name: str, kinds: str, *, own: str | None = None, fewest: int | None = None, of_texts: str | None = None
) -> Build:
    """A call of a macro (or DuckDB's `own` function) with its arguments cast: to a text (t), an int (i), or as is (a).

    A literal NULL among them makes the result NULL. Where all that are taken as is are texts, the macro `of_texts`
    is called, or DuckDB's function if its name begins with a dot.
    """

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        least = len(kinds) if fewest is None else fewest
        if not least <= len(args) <= len(kinds):
            wanted = f"{least}" if least == len(kinds) else f"{least} to {len(kinds)}"
            raise refusal(name, f"it takes {wanted} arguments, and {len(args)} are given")
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        given = [_CASTS[kind](arg) for kind, arg in zip(kinds, args, strict=False)]
        if of_texts is not None and all(is_text(arg) for kind, arg in zip(kinds, args, strict=False) if kind == "a"):
            return own_call(of_texts[1:], *given) if of_texts[0] == "." else macro_call(of_texts, *given)
        return own_call(own, *given) if own is not None else macro_call(name, *given)

    return build


def refused(name: str, reason: str) -> Build:
    """A function that has no counterpart."""

    def refuse(args: Sequence[exp.Expr]) -> exp.Expr | None:
        raise refusal(name, reason)

    return refuse


def needs(name: str, args: Sequence[exp.Expr], *counts: int) -> None:
    """Refuse a call with another number of arguments."""
    if len(args) not in counts:
        wanted = " or ".join(map(str, counts))
        raise refusal(name, f"it takes {wanted} arguments, and {len(args)} are given")
