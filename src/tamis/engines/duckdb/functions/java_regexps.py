r"""Translation of Java's regular expressions to RE2, which DuckDB uses.

Most expressions mean the same to both. Syntax that differs is translated (`.`, `\s`, `\u0041`, `\p{Alpha}`, named
groups); syntax that RE2 lacks is rejected (look-around, back references, possessive quantifiers, …). Some syntax means
the same only for some texts (`$` before a last line terminator): a *guard* is a regular expression that matches the
texts for which the result would differ, and such a text is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tamis.engines.duckdb.functions.datetime_patterns import UnsupportedPattern

_LINE_ENDS = r"\n\r\x{85}\x{2028}\x{2029}"
_BLANKS = r"\t\n\x0B\f\r "
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
    if reader.dot_is_all and not (text.startswith(f"(?{flags[0]})") and len(flags) == 1):
        raise reader.make_unsupported_pattern_error("the flag s for a part of it")
    if reader.has_lines and not (text.startswith(f"(?{flags[0]})") and len(flags) == 1):
        raise reader.make_unsupported_pattern_error("the flag m for a part of it")
    if reader.ignores_case and not text.isascii():
        raise reader.make_unsupported_pattern_error("non-ASCII letters whose case is ignored")
    searched: list[str] = []
    matched: list[str] = []
    plain: list[str] = []
    while reader.position < len(text):
        token = _translate_token(reader)
        searched.append(token[0])
        matched.append(token[1])
        plain.append(token[2])
    without_assertions = "".join(plain)
    is_assertion = text != "" and re.fullmatch(r"(?:\(\?[a-z]*\))*", without_assertions) is not None
    search_guards, match_guards = _make_guards(reader)
    return Regexp(
        "".join(searched),
        "".join(matched),
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
    if after in ("b", "B") and after:
        reader.position += 2
        reader.has_word_end = True
        return f"\\{after}", f"\\{after}", ""
    if after in ("A", "z") and after:
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
    if after in ("d", "w", "D", "W") and after:
        return f"\\{after}", False
    if after in ("s", "S") and after:
        return _BLANKS, after == "S"
    if after in ("t", "n", "r", "f", "a") and after:
        return f"\\{after}", False
    if after in ("h", "H") and after:
        return r" \t\x{A0}\x{1680}\x{180E}\x{2000}-\x{200A}\x{202F}\x{205F}\x{3000}", after == "H"
    if after == "e":
        return r"\x1B", False
    if after in ("x", "u") and after:
        found = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}").match(text, position + 1)
        if found is None:
            raise reader.make_unsupported_pattern_error("a character code that is not hexadecimal")
        reader.position = found.end()
        return f"\\x{{{found[1] or found[2] or found[3]}}}", False
    if after in ("p", "P") and after:
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
