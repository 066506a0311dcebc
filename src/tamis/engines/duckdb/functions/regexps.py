"""Spark's functions of regular expressions as DuckDB expressions; `java_regexps` translates the expressions to RE2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tamis.engines.duckdb.functions.datetime_patterns import UnsupportedPattern
from tamis.engines.duckdb.functions.java_regexps import Regexp, translate_regexp, translate_replacement
from tamis.engines.duckdb.translate.calls import (
    CallBuilder,
    Macros,
    as_int,
    as_text,
    call_duckdb,
    call_macro,
    make_unsupported_error,
    read_string_literal,
    require_argument_count,
)

# --- Macros --------------------------------------------------------------------------------------------------------

_SAFE = (
    r"(?:[^\\$.^|?*+(){}\[\]]|\\[^A-Za-z0-9]|\\[dwDW]|\[\^?[^\\\[\]&]+\]|\((?:[^?\\$.^|*+(){}\[\]]|\\[^A-Za-z0-9]|\\[dw]"
    r"|\[\^?[^\\\[\]&]+\])|\^|\||\)"
    r"|[*+?](?:[^?*+{\\$.^|(){}\[\]]|$)|[*+?]\)|[*+?]\|)*"
)
"""The non-constant regular expressions that certainly mean the same in Java and RE2."""
_GROUP_COUNT = r"length(regexp_replace(regexp_replace(pattern, '\\.|\[[^\]]*\]', '', 'g'), '[^(]', '', 'g'))"
_UTF_16 = r"length({0}) + length(regexp_replace({0}, '[^\x{{10000}}-\x{{10FFFF}}]', '', 'g'))"

MACROS: Macros = {
    "pattern": (
        ("pattern",),
        f"CASE WHEN regexp_full_match(pattern, '{_SAFE}') THEN pattern WHEN pattern IS NOT NULL "
        "THEN error('a regular expression that is not a constant may only have letters, classes, groups "
        "and * + ? |') END",
    ),
    "filled_pattern": (
        # Java and RE2 place empty matches differently.
        ("pattern",),
        "CASE WHEN regexp_matches('', pattern) "
        "THEN error('a regular expression that is not a constant must not match the empty text') ELSE pattern END",
    ),
    "guarded": (
        ("x", "guard"),
        "CASE WHEN regexp_matches(x, guard) THEN error('a text has ends of lines or letters for which the "
        "regular expression means something else to the embedded engine') ELSE x END",
    ),
    "group": (
        ("pattern", "n"),
        f"CASE WHEN n BETWEEN 0 AND {_GROUP_COUNT} THEN pattern WHEN n IS NOT NULL AND pattern IS NOT NULL "
        "THEN error('the regular expression does not have that group') END",
    ),
    "regexp_replace_from": (
        ("x", "pattern", "replacement", "start"),
        "CASE WHEN start > length(x) THEN x "
        "ELSE left(x, start - 1) || regexp_replace(substring(x, start), pattern, replacement, 'g') END",
    ),
    "regexp_extract_all": (
        ("x", "pattern", "n"),
        "list_transform(regexp_extract_all(x, pattern, n), lambda e: coalesce(e, ''))",
    ),
    "regexp_count": (("x", "pattern"), "CAST(len(regexp_extract_all(x, pattern)) AS INTEGER)"),
    "regexp_instr": (
        ("x", "pattern"),
        "CAST(CASE WHEN x IS NULL OR pattern IS NULL THEN NULL WHEN NOT regexp_matches(x, pattern) THEN 0 "
        "ELSE 1 + spark_code_unit_count(regexp_extract(x, '(?s:^(.*?))(?:' || pattern || ')', 1)) END AS INTEGER)",
    ),
    "code_unit_count": (("x",), _UTF_16.format("x")),
    "regexp_substr": (("x", "pattern"), "nullif(regexp_extract(x, pattern), '')"),
    "split": (("x", "pattern"), "CASE WHEN pattern IS NULL THEN NULL ELSE str_split_regex(x, pattern) END"),
    "split_up_to": (
        ("x", "pattern", "most"),
        "CASE WHEN x IS NULL OR pattern IS NULL OR most IS NULL THEN NULL WHEN most <= 0 "
        "THEN str_split_regex(x, pattern) WHEN len(str_split_regex(x, pattern)) <= most "
        "THEN str_split_regex(x, pattern) ELSE list_append(str_split_regex(x, pattern)[1:most - 1], "
        "substring(x, 1 + length(array_to_string(str_split_regex(x, pattern)[1:most - 1], '')) "
        "+ length(array_to_string(regexp_extract_all(x, pattern, 0)[1:most - 1], '')))) END",
    ),
    "characters": (
        ("x", "most"),
        "CASE WHEN x IS NULL OR most IS NULL THEN NULL WHEN most <= 0 OR length(x) <= most THEN string_split(x, '') "
        "WHEN most = 1 THEN [x] ELSE list_append(string_split(left(x, most - 1), ''), substring(x, most)) END",
    ),
}


# --- Calls ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Match:
    """The text and the regular expression of a call, as DuckDB expressions."""

    text: exp.Expr
    pattern: exp.Expr
    known: Regexp | None


def _prepare_match(
    name: str, text: exp.Expr, pattern: exp.Expr, *, is_search: bool = False, is_global: bool = False
) -> _Match:
    subject = as_text(text)
    constant = read_string_literal(pattern)
    if constant is None:
        checked = call_macro("pattern", as_text(pattern))
        return _Match(subject, call_macro("filled_pattern", checked) if is_global else checked, None)
    try:
        known = translate_regexp(constant)
    except UnsupportedPattern as reason:
        raise make_unsupported_error(name, str(reason)) from None
    if is_global and known.may_be_empty and constant:
        raise make_unsupported_error(name, f"the regular expression {constant!r} matches the empty text too")
    guard = known.search_guard if is_search else known.match_guard
    if guard is not None:
        subject = call_macro("guarded", subject, exp.Literal.string(guard))
    return _Match(subject, exp.Literal.string(known.search_pattern if is_search else known.match_pattern), known)


def build_rlike(text: exp.Expr, pattern: exp.Expr) -> exp.Expr:
    """Build `text RLIKE pattern`."""
    if isinstance(text, exp.Null) or isinstance(pattern, exp.Null):
        return exp.Null()
    found = _prepare_match("RLIKE", text, pattern, is_search=True)
    return call_duckdb("regexp_matches", found.text, found.pattern)


def _build_regexp_like(args: Sequence[exp.Expr]) -> exp.Expr | None:
    require_argument_count("regexp_like", args, 2)
    return build_rlike(args[0], args[1])


def _read_group_number(name: str, args: Sequence[exp.Expr], found: _Match) -> tuple[exp.Expr, exp.Expr]:
    """Return the regular expression and the number of the requested group."""
    number = args[2] if len(args) == 3 else exp.Literal.number(1)
    if not isinstance(number, exp.Literal) or not number.name.isdecimal():
        raise make_unsupported_error(name, "its group must be a constant that is not negative")
    if found.known is None:
        return call_macro("group", found.pattern, number), number
    if int(number.name) > found.known.groups:
        raise make_unsupported_error(name, f"the regular expression has {found.known.groups} groups, not {number.name}")
    return found.pattern, exp.Literal.number(int(number.name))


def _build_extract(args: Sequence[exp.Expr]) -> exp.Expr | None:
    require_argument_count("regexp_extract", args, 2, 3)
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    found = _prepare_match("regexp_extract", args[0], args[1])
    pattern, number = _read_group_number("regexp_extract", args, found)
    return call_duckdb("regexp_extract", found.text, pattern, number)


def _build_extract_all(args: Sequence[exp.Expr]) -> exp.Expr | None:
    require_argument_count("regexp_extract_all", args, 2, 3)
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    found = _prepare_match("regexp_extract_all", args[0], args[1], is_global=True)
    pattern, number = _read_group_number("regexp_extract_all", args, found)
    return call_macro("regexp_extract_all", found.text, pattern, number)


def _build_replace(args: Sequence[exp.Expr]) -> exp.Expr | None:
    require_argument_count("regexp_replace", args, 3, 4)
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    found = _prepare_match("regexp_replace", args[0], args[1], is_global=True)
    text = read_string_literal(args[2])
    try:
        by = (
            call_macro("replacement", as_text(args[2]))
            if text is None
            else exp.Literal.string(translate_replacement(text, 9 if found.known is None else found.known.groups))
        )
    except UnsupportedPattern as reason:
        raise make_unsupported_error("regexp_replace", str(reason)) from None
    if len(args) == 3 or (isinstance(args[3], exp.Literal) and args[3].name == "1"):
        return call_duckdb("regexp_replace", found.text, found.pattern, by, exp.Literal.string("g"))
    if not isinstance(args[3], exp.Literal) or not args[3].name.isdecimal() or int(args[3].name) < 1:
        raise make_unsupported_error("regexp_replace", "its position must be a constant greater than 0")
    constant = read_string_literal(args[1])
    if constant is None or re.search(r"\^|\\[AbB]", constant):
        raise make_unsupported_error(
            "regexp_replace", "with a position, its regular expression must be a constant without ^, \\A and \\b"
        )
    return call_macro("regexp_replace_from", found.text, found.pattern, by, as_int(args[3]))


def _build_count(args: Sequence[exp.Expr]) -> exp.Expr | None:
    require_argument_count("regexp_count", args, 2)
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    found = _prepare_match("regexp_count", args[0], args[1], is_global=True)
    return call_macro("regexp_count", found.text, found.pattern)


def _build_instr(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `regexp_instr`. Spark ignores its third argument, a group."""
    require_argument_count("regexp_instr", args, 2, 3)
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    found = _prepare_match("regexp_instr", args[0], args[1])
    if found.known is not None and "(?" in str(found.pattern.this)[:2] and str(found.pattern.this)[2:3] != ":":
        raise make_unsupported_error("regexp_instr", "the regular expression has flags")
    return call_macro("regexp_instr", found.text, found.pattern)


def _build_substr(args: Sequence[exp.Expr]) -> exp.Expr | None:
    require_argument_count("regexp_substr", args, 2)
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    found = _prepare_match("regexp_substr", args[0], args[1])
    return call_macro("regexp_substr", found.text, found.pattern)


def _build_split(args: Sequence[exp.Expr]) -> exp.Expr | None:
    require_argument_count("split", args, 2, 3)
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.cast(exp.null(), "array<text>")
    most = as_int(args[2]) if len(args) == 3 else exp.Literal.number(-1)
    if read_string_literal(args[1]) == "":
        return call_macro("characters", as_text(args[0]), most)
    found = _prepare_match("split", args[0], args[1], is_global=True)
    if found.known is not None and found.known.is_assertion:
        raise make_unsupported_error("split", "its regular expression matches between characters")
    if len(args) == 2:
        return call_macro("split", found.text, found.pattern)
    return call_macro("split_up_to", found.text, found.pattern, most)


BUILDERS: dict[str, CallBuilder] = {
    **dict.fromkeys(("regexp_like", "regexp", "rlike"), _build_regexp_like),
    "regexp_extract": _build_extract,
    "regexp_extract_all": _build_extract_all,
    "regexp_replace": _build_replace,
    "regexp_count": _build_count,
    "regexp_instr": _build_instr,
    "regexp_substr": _build_substr,
    "split": _build_split,
}
