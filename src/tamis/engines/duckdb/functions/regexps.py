"""Spark's functions of regular expressions as DuckDB expressions, and their translation to RE2."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from sqlglot import exp

from tamis.engines.duckdb.functions.datetime_patterns import UnsupportedPattern
from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import (
    Build,
    BuildNamed,
    Macros,
    Rows,
    as_int,
    as_text,
    call_duckdb,
    call_macro,
    has_null,
    make_unsupported_error,
    read_string_literal,
)

# --- Java regexps ---------------------------------------------------------------------------------------------------
#
# Translation of Java's regular expressions to RE2, which DuckDB uses.
#
# Most expressions mean the same to both. Syntax that differs is translated (`.`, `\s`, `\u0041`, `\p{Alpha}`, named
# groups); syntax that RE2 lacks is rejected (look-around, back references, possessive quantifiers, …). Some syntax
# means the same only for some texts (`$` before a last line terminator): a *guard* is a regular expression that matches
# the texts for which the result would differ, and such a text is an error.


_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_BLANKS = r"\t\n\x0B\f\r "
_HORIZONTAL_BLANKS = r" \t\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}"
_CLASS_ESCAPES = {
    **{letter: (f"\\{letter}", False) for letter in "dwDWtnrfa"},
    "s": (_BLANKS, False), "S": (_BLANKS, True), "h": (_HORIZONTAL_BLANKS, False), "H": (_HORIZONTAL_BLANKS, True),
    "e": (r"\x1B", False),
}  # fmt: skip
"""The content of a character class for an escape, and whether the class is negated."""
_POSIX = {
    "Lower": "a-z", "Upper": "A-Z", "Alpha": "A-Za-z", "Digit": "0-9", "Alnum": "A-Za-z0-9", "XDigit": "0-9A-Fa-f",
    "Space": _BLANKS, "Blank": r" \t", "ASCII": r"\x00-\x7F", "Cntrl": r"\x00-\x1F\x7F",
    "Punct": r"!-/:-@\[-`{-~", "Graph": "!-~", "Print": " -~",
}  # fmt: skip
_CATEGORIES = re.compile(r"(?:Is|gc=|general_category=)?(L|Lu|Ll|Lt|Lm|Lo|M|Mn|Mc|Me|N|Nd|Nl|No|P|Pc|Pd|Ps|Pe|Pi|Pf|Po"
                         r"|S|Sm|Sc|Sk|So|Z|Zs|Zl|Zp)")  # fmt: skip
_QUANTIFIER = re.compile(r"\{(\d+)(,(\d*))?\}")
_MAX_REPETITIONS = 1000


@dataclass(frozen=True, slots=True)
class Regexp:
    """A regular expression of Java, translated to RE2."""

    search_pattern: str
    """The expression that tests whether a text has a match."""
    match_pattern: str
    """The expression that finds the match itself."""
    search_guard: str | None
    match_guard: str | None
    """Regular expressions of the texts for which a search, or a match, would differ from Java."""
    groups: int
    may_be_empty: bool
    """Whether it may match the empty text, next to other matches."""
    is_assertion: bool
    """Whether it matches only the empty text."""


@dataclass(slots=True)
class _Reader:
    text: str
    position: int = 0
    groups: int = 0
    has_end: bool = False
    has_lines: bool = False
    has_word_end: bool = False
    ignores_case: bool = False
    dot_is_all: bool = False

    def make_unsupported_pattern_error(self, what: str) -> UnsupportedPattern:
        return UnsupportedPattern(f"the regular expression {self.text!r} has {what}")

    def peek(self, count: int = 1) -> str:
        return self.text[self.position : self.position + count]


def translate_regexp(text: str) -> Regexp:
    r"""Translate a regular expression of Java to RE2; raise `UnsupportedPattern` if RE2 lacks its syntax.

    >>> print(translate_regexp("^ab$").search_pattern)
    ^ab(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z
    >>> translate_regexp("(a)(?:b)").groups
    1
    """
    reader = _Reader(text)
    flags = re.findall(r"\(\?([a-zA-Z]*)(?:-[a-zA-Z]+)?[:)]", text)
    for letters in flags:
        if set(letters) - set("ims"):
            raise reader.make_unsupported_pattern_error(
                f"the flags {letters!r}, which mean something else to the embedded engine"
            )
        reader.ignores_case |= "i" in letters
        reader.has_lines |= "m" in letters
        reader.dot_is_all |= "s" in letters
    is_for_all = len(flags) == 1 and text.startswith(f"(?{flags[0]})")
    for flag, is_set in (("s", reader.dot_is_all), ("m", reader.has_lines)):
        if is_set and not is_for_all:
            raise reader.make_unsupported_pattern_error(f"the flag {flag} for a part of it")
    if reader.ignores_case and not text.isascii():
        raise reader.make_unsupported_pattern_error("non-ASCII letters whose case is ignored")
    tokens: list[tuple[str, str, str]] = []
    while reader.position < len(text):
        tokens.append(_translate_token(reader))
    searched, matched, without_assertions = ("".join(token[kind] for token in tokens) for kind in range(3))
    is_assertion = text != "" and re.fullmatch(r"(?:\(\?[a-z]*\))*", without_assertions) is not None
    search_guards, match_guards = _make_guards(reader)
    return Regexp(
        searched,
        matched,
        search_guards,
        match_guards,
        reader.groups,
        may_be_empty=not is_assertion and _may_be_empty(reader, without_assertions),
        is_assertion=is_assertion,
    )


def _make_guards(reader: _Reader) -> tuple[str | None, str | None]:
    guards: list[str] = []
    if reader.has_lines:
        guards.append(r"[\r\x{85}\x{2028}\x{2029}]|\n\z")
    if reader.has_word_end:
        guards.append(r"[^\x00-\x7F]")
    if reader.ignores_case:
        guards.append(r"[\x{17F}\x{212A}]")
    ends = [rf"[{_LINE_ENDS}]\z"] if reader.has_end and not reader.has_lines else []
    return "|".join(guards) or None, "|".join(guards + ends) or None


def _may_be_empty(reader: _Reader, plain: str) -> bool:
    try:
        return re.fullmatch(plain, "") is not None
    except (re.error, OverflowError):
        raise reader.make_unsupported_pattern_error("syntax that the embedded engine does not support") from None


def _translate_token(reader: _Reader) -> tuple[str, str, str]:
    """Translate the next token: for searches, for matches, and for Python without zero-width assertions."""
    character = reader.peek()
    if character == "\\":
        return _translate_escape(reader)
    if character == "[":
        found = _translate_class(reader)
        return found, found, "[a]"
    reader.position += 1
    match character:
        case "(":
            return _translate_group(reader)
        case ".":
            found = "." if reader.dot_is_all else f"[^{_LINE_ENDS}]"
            return found, found, "."
        case "^":
            return "^", "^", ""
        case "$":
            return _translate_end(reader)
        case "*" | "+" | "?":
            return _translate_quantifier(reader, character)
        case "{":
            reader.position -= 1
            found_count = _QUANTIFIER.match(reader.text, reader.position)
            if found_count is None or max(int(count) for count in found_count.group(1, 3) if count) > _MAX_REPETITIONS:
                raise reader.make_unsupported_pattern_error("a { that does not start a repetition count up to 1000")
            reader.position = found_count.end()
            return _translate_quantifier(reader, found_count[0])
        case "}" | "]":
            escaped = f"\\{character}"
            return escaped, escaped, "a"
        case "|" | ")":
            return character, character, character
        case _:
            return character, character, "a"


def _translate_quantifier(reader: _Reader, quantifier: str) -> tuple[str, str, str]:
    if reader.peek() == "+":
        raise reader.make_unsupported_pattern_error("a possessive quantifier")
    if reader.peek() == "?":
        reader.position += 1
        quantifier += "?"
    if reader.peek() in ("*", "+", "?", "{") and reader.peek():
        raise reader.make_unsupported_pattern_error("two quantifiers side by side")
    return quantifier, quantifier, quantifier


def _translate_end(reader: _Reader) -> tuple[str, str, str]:
    if reader.has_lines:
        return "$", "$", ""
    if reader.peek() not in ("", ")", "|"):
        raise reader.make_unsupported_pattern_error("a $ before its end")
    reader.has_end = True
    return rf"(?:\r\n|[{_LINE_ENDS}])?\z", r"\z", ""


def _translate_group(reader: _Reader) -> tuple[str, str, str]:
    if reader.peek() != "?":
        reader.groups += 1
        return "(", "(", "("
    named = re.compile(r"\?<[A-Za-z][A-Za-z0-9]*>").match(reader.text, reader.position)
    if named is not None:
        reader.position = named.end()
        reader.groups += 1
        return "(", "(", "("
    flagged = re.compile(r"\?[ims]*(?:-[ims]+)?([:)])").match(reader.text, reader.position)
    if flagged is None:
        raise reader.make_unsupported_pattern_error(
            "a group that looks ahead or behind, or is of another kind that RE2 does not support"
        )
    reader.position = flagged.end()
    found = f"({flagged[0]}"
    return found, found, "(?:" if flagged[1] == ":" else ""


def _translate_escape(reader: _Reader) -> tuple[str, str, str]:
    after = reader.text[reader.position + 1 : reader.position + 2]
    if after in ("b", "B"):
        reader.position += 2
        reader.has_word_end = True
        return f"\\{after}", f"\\{after}", ""
    if after in ("A", "z"):
        reader.position += 2
        return f"\\{after}", f"\\{after}", ""
    if after == "Z":
        reader.position += 2
        return _translate_end(reader)
    if after == "Q":
        end = reader.text.find("\\E", reader.position)
        quoted = reader.text[reader.position + 2 : end if end >= 0 else None]
        reader.position = end + 2 if end >= 0 else len(reader.text)
        found = re.escape(quoted) if quoted.isascii() else quoted
        return found, found, "a" * len(quoted)
    inner, is_negated = _translate_class_escape(reader)
    found = f"[^{inner}]" if is_negated else inner if len(inner) == 2 and inner[0] == "\\" else f"[{inner}]"
    return found, found, "a"


def _translate_class_escape(reader: _Reader) -> tuple[str, bool]:
    """Return the content of a character class for an escape, and whether the class is negated."""
    text, position = reader.text, reader.position
    after = text[position + 1 : position + 2]
    reader.position += 2
    if after in _CLASS_ESCAPES:
        return _CLASS_ESCAPES[after]
    if after in ("x", "u"):
        found = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}").match(text, position + 1)
        if found is None:
            raise reader.make_unsupported_pattern_error("a character code that is not hexadecimal")
        reader.position = found.end()
        return f"\\x{{{found[1] or found[2] or found[3]}}}", False
    if after in ("p", "P"):
        return _translate_property(reader, after == "P")
    if not after or after.isalnum():
        raise reader.make_unsupported_pattern_error(f"\\{after}, which RE2 does not support")
    return f"\\{after}" if after.isascii() else after, False


def _translate_property(reader: _Reader, is_negated: bool) -> tuple[str, bool]:
    found = re.compile(r"\{([A-Za-z_=]+)\}|([LMNPSZ])").match(reader.text, reader.position)
    name = (found[1] or found[2]) if found is not None else ""
    if found is None:
        raise reader.make_unsupported_pattern_error("a property without a name")
    reader.position = found.end()
    if name in _POSIX:
        return _POSIX[name], is_negated
    category = _CATEGORIES.fullmatch(name)
    if category is None:
        raise reader.make_unsupported_pattern_error(f"the property {name!r}, which RE2 does not support")
    return f"\\{'P' if is_negated else 'p'}{{{category[1]}}}", False


def _translate_class(reader: _Reader) -> str:
    """Translate a character class. RE2 does not support the nested classes of Java."""
    reader.position += 1
    parts = ["["]
    if reader.peek() == "^":
        parts.append("^")
        reader.position += 1
    if reader.peek() == "]":
        raise reader.make_unsupported_pattern_error("a bracket as the first character of a character class")
    while True:
        character = reader.peek()
        if not character:
            raise reader.make_unsupported_pattern_error("an unclosed character class")
        if character == "]":
            reader.position += 1
            return "".join([*parts, "]"])
        if character == "[" or reader.peek(2) == "&&":
            raise reader.make_unsupported_pattern_error("a nested character class")
        if character == "\\":
            if reader.peek(2) in ("\\Q", "\\b", "\\B"):
                raise reader.make_unsupported_pattern_error("an escape that RE2 does not support in a character class")
            inner, is_negated = _translate_class_escape(reader)
            if is_negated:
                raise reader.make_unsupported_pattern_error("a negated class in a character class")
            parts.append(inner)
            continue
        reader.position += 1
        parts.append(character)


def translate_replacement(text: str, groups: int) -> str:
    r"""Translate the replacement of a regular expression: Java writes groups as `$1` and escapes with a backslash.

    >>> translate_replacement("<$1>", 1)
    '<\\1>'
    >>> translate_replacement("$10", 1)
    '\\10'
    """
    parts: list[str] = []
    offset = 0
    while offset < len(text):
        character, after = text[offset], text[offset + 1 : offset + 2]
        if character == "$":
            if not ("0" <= after <= "9") or after == "":
                raise UnsupportedPattern(f"a group in the replacement {text!r} is not a number")
            if int(after) > groups:
                raise UnsupportedPattern(f"the replacement {text!r} has the group {after}, and there are {groups}")
            following = text[offset + 2 : offset + 3]
            if groups > 9 and "0" <= following <= "9":
                raise UnsupportedPattern(f"a group in the replacement {text!r} is not a single digit")
            parts.append(f"\\{after}")
            offset += 2
        elif character == "\\":
            if not after:
                raise UnsupportedPattern(f"the replacement {text!r} ends with a backslash")
            parts.append("\\\\" if after == "\\" else after)
            offset += 2
        else:
            parts.append(character)
            offset += 1
    return "".join(parts)


# --- Macros --------------------------------------------------------------------------------------------------------

_SAFE = (
    r"(?:[^\\$.^|?*+(){}\[\]]|\\[^A-Za-z0-9]|\\[dwDW]|\[\^?[^\\\[\]&]+\]|\((?:[^?\\$.^|*+(){}\[\]]|\\[^A-Za-z0-9]|\\[dw]"
    r"|\[\^?[^\\\[\]&]+\])|\^|\||\)"
    r"|[*+?](?:[^?*+{\\$.^|(){}\[\]]|$)|[*+?]\)|[*+?]\|)*"
)
"""The non-constant regular expressions that certainly mean the same in Java and RE2."""
_GROUP_COUNT = r"length(regexp_replace(regexp_replace(pattern, '\\.|\[[^\]]*\]', '', 'g'), '[^(]', '', 'g'))"
_UTF_16 = r"length({0}) + length(regexp_replace({0}, '[^\x{{10000}}-\x{{10FFFF}}]', '', 'g'))"

MACROS: Macros = define_macros(
    rf"""
    pattern(pattern):
        CASE WHEN regexp_full_match(pattern, '{_SAFE}') THEN pattern WHEN pattern IS NOT NULL
        THEN error('a regular expression that is not a constant may only have letters, classes, groups
        and * + ? |') END
    filled_pattern(pattern):
        -- Java and RE2 place empty matches differently.
        CASE WHEN regexp_matches('', pattern)
        THEN error('a regular expression that is not a constant must not match the empty text') ELSE pattern END
    guarded(x, guard):
        CASE WHEN regexp_matches(x, guard) THEN error('a text has ends of lines or letters for which the
        regular expression means something else to the embedded engine') ELSE x END
    group(pattern, n):
        CASE WHEN n BETWEEN 0 AND {_GROUP_COUNT} THEN pattern WHEN n IS NOT NULL AND pattern IS NOT NULL
        THEN error('the regular expression does not have that group') END
    regexp_replace_from(x, pattern, replacement, start):
        CASE WHEN start > length(x) THEN x
        ELSE left(x, start - 1) || regexp_replace(substring(x, start), pattern, replacement, 'g') END
    regexp_extract_all(x, pattern, n): list_transform(regexp_extract_all(x, pattern, n), lambda e: coalesce(e, ''))
    regexp_count(x, pattern): CAST(len(regexp_extract_all(x, pattern)) AS INTEGER)
    regexp_instr(x, pattern):
        CAST(CASE WHEN x IS NULL OR pattern IS NULL THEN NULL WHEN NOT regexp_matches(x, pattern) THEN 0
        ELSE 1 + spark_code_unit_count(regexp_extract(x, '(?s:^(.*?))(?:' || pattern || ')', 1)) END AS INTEGER)
    regexp_substr(x, pattern): nullif(regexp_extract(x, pattern), '')
    split(x, pattern): CASE WHEN pattern IS NULL THEN NULL ELSE str_split_regex(x, pattern) END
    split_up_to(x, pattern, most):
        CASE WHEN x IS NULL OR pattern IS NULL OR most IS NULL THEN NULL WHEN most <= 0
        THEN str_split_regex(x, pattern) WHEN len(str_split_regex(x, pattern)) <= most
        THEN str_split_regex(x, pattern) ELSE list_append(str_split_regex(x, pattern)[1:most - 1],
        substring(x, 1 + length(array_to_string(str_split_regex(x, pattern)[1:most - 1], ''))
        + length(array_to_string(regexp_extract_all(x, pattern, 0)[1:most - 1], '')))) END
    characters(x, most):
        CASE WHEN x IS NULL OR most IS NULL THEN NULL WHEN most <= 0 OR length(x) <= most THEN string_split(x, '')
        WHEN most = 1 THEN [x] ELSE list_append(string_split(left(x, most - 1), ''), substring(x, most)) END
    """
) | {"code_unit_count": (("x",), _UTF_16.format("x"))}


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
    if isinstance(text, exp.Null) or isinstance(pattern, exp.Null):
        return exp.Null()
    found = _prepare_match("RLIKE", text, pattern, is_search=True)
    return call_duckdb("regexp_matches", found.text, found.pattern)


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


def _build_extract(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    finds_all = name == "regexp_extract_all"
    found = _prepare_match(name, args[0], args[1], is_global=finds_all)
    pattern, number = _read_group_number(name, args, found)
    return (call_macro if finds_all else call_duckdb)(name, found.text, pattern, number)


def _build_replace(args: Sequence[exp.Expr]) -> exp.Expr | None:
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


def _build_instr(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `regexp_instr`. Spark ignores its third argument, a group."""
    found = _prepare_match("regexp_instr", args[0], args[1])
    if found.known is not None and "(?" in str(found.pattern.this)[:2] and str(found.pattern.this)[2:3] != ":":
        raise make_unsupported_error("regexp_instr", "the regular expression has flags")
    return call_macro("regexp_instr", found.text, found.pattern)


def _build_match(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    found = _prepare_match(name, args[0], args[1], is_global=name == "regexp_count")
    return call_macro(name, found.text, found.pattern)


def _build_split(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if has_null(args):
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


ROWS: Rows = (
    ("regexp_like regexp rlike", Build(lambda args: build_rlike(args[0], args[1]), (2,))),
    ("regexp_extract regexp_extract_all", BuildNamed(_build_extract, (2, 3), propagates_null=True)),
    ("regexp_replace", Build(_build_replace, (3, 4), propagates_null=True)),
    ("regexp_instr", Build(_build_instr, (2, 3), propagates_null=True)),
    ("regexp_count regexp_substr", BuildNamed(_build_match, (2,), propagates_null=True)),
    ("split", Build(_build_split, (2, 3))),
)
