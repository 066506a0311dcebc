r"""Regular expressions of Java in the notation of RE2, which DuckDB searches with.

Most of what people write means the same to both. Translated is what RE2 writes otherwise (`.`, `\s`, `\u0041`,
`\p{Alpha}`, named groups); refused is what it does not have (look-around, back references, possessive quantifiers, …).
Some things mean the same only for some texts (`$` before a last end of line): a *guard* is a regular expression of the
texts for which they do not, and a text that it matches is an error.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tamis.scan.spark_formats import Refusal

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
_MOST_REPEATED = 1000


@dataclass(frozen=True, slots=True)
class Regexp:
    """A regular expression of Java for RE2."""

    searched: str
    """To find out whether a text has a match."""
    matched: str
    """To find out what matches."""
    search_guard: str | None
    match_guard: str | None
    """Texts for which it would not mean the same."""
    groups: int
    may_be_empty: bool
    """Whether it may match no character at all, next to what it matched before."""
    is_assertion: bool
    """Whether it only ever matches no character at all."""


@dataclass(slots=True)
class _Reader:
    text: str
    place: int = 0
    groups: int = 0
    has_end: bool = False
    has_lines: bool = False
    has_word_end: bool = False
    ignores_case: bool = False
    dot_is_all: bool = False

    def refuse(self, what: str) -> Refusal:
        return Refusal(f"the regular expression {self.text!r} has {what}")

    def ahead(self, count: int = 1) -> str:
        return self.text[self.place : self.place + count]


def regexp_of(text: str) -> Regexp:
    r"""What a regular expression of Java is to RE2; `Refusal` where it is nothing.

    >>> print(regexp_of("^ab$").searched)
    ^ab(?:\r\n|[\n\r\x{85}\x{2028}\x{2029}])?\z
    >>> regexp_of("(a)(?:b)").groups
    1
    """
    reader = _Reader(text)
    flags = re.findall(r"\(\?([a-zA-Z]*)(?:-[a-zA-Z]+)?[:)]", text)
    for letters in flags:
        if set(letters) - set("ims"):
            raise reader.refuse(f"the flags {letters!r}, which mean something else to the embedded engine")
        reader.ignores_case |= "i" in letters
        reader.has_lines |= "m" in letters
        reader.dot_is_all |= "s" in letters
    if reader.dot_is_all and not (text.startswith(f"(?{flags[0]})") and len(flags) == 1):
        raise reader.refuse("the flag s for a part of it")
    if reader.has_lines and not (text.startswith(f"(?{flags[0]})") and len(flags) == 1):
        raise reader.refuse("the flag m for a part of it")
    if reader.ignores_case and not text.isascii():
        raise reader.refuse("letters beyond ASCII whose case is ignored")
    searched: list[str] = []
    matched: list[str] = []
    plain: list[str] = []
    while reader.place < len(text):
        piece = _piece(reader)
        searched.append(piece[0])
        matched.append(piece[1])
        plain.append(piece[2])
    without_assertions = "".join(plain)
    is_assertion = text != "" and re.fullmatch(r"(?:\(\?[a-z]*\))*", without_assertions) is not None
    search_guards, match_guards = _guards(reader)
    return Regexp(
        "".join(searched),
        "".join(matched),
        search_guards,
        match_guards,
        reader.groups,
        may_be_empty=not is_assertion and _may_be_empty(reader, without_assertions),
        is_assertion=is_assertion,
    )


def _guards(reader: _Reader) -> tuple[str | None, str | None]:
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
        raise reader.refuse("something that the embedded engine does not know") from None


def _piece(reader: _Reader) -> tuple[str, str, str]:
    """The next piece: to search, to match, and for Python without what matches between characters."""
    character = reader.ahead()
    if character == "\\":
        return _escape(reader)
    if character == "[":
        found = _class(reader)
        return found, found, "[a]"
    reader.place += 1
    match character:
        case "(":
            return _group(reader)
        case ".":
            found = "." if reader.dot_is_all else f"[^{_LINE_ENDS}]"
            return found, found, "."
        case "^":
            return "^", "^", ""
        case "$":
            return _end(reader)
        case "*" | "+" | "?":
            return _quantified(reader, character)
        case "{":
            reader.place -= 1
            found_count = _QUANTIFIER.match(reader.text, reader.place)
            if found_count is None or max(int(count) for count in found_count.group(1, 3) if count) > _MOST_REPEATED:
                raise reader.refuse("a { that begins no number of repetitions up to 1000")
            reader.place = found_count.end()
            return _quantified(reader, found_count[0])
        case "}" | "]":
            escaped = f"\\{character}"
            return escaped, escaped, "a"
        case "|" | ")":
            return character, character, character
        case _:
            return character, character, "a"


def _quantified(reader: _Reader, quantifier: str) -> tuple[str, str, str]:
    if reader.ahead() == "+":
        raise reader.refuse("a possessive quantifier")
    if reader.ahead() == "?":
        reader.place += 1
        quantifier += "?"
    if reader.ahead() in ("*", "+", "?", "{") and reader.ahead():
        raise reader.refuse("two quantifiers side by side")
    return quantifier, quantifier, quantifier


def _end(reader: _Reader) -> tuple[str, str, str]:
    if reader.has_lines:
        return "$", "$", ""
    if reader.ahead() not in ("", ")", "|"):
        raise reader.refuse("a $ before its end")
    reader.has_end = True
    return rf"(?:\r\n|[{_LINE_ENDS}])?\z", r"\z", ""


def _group(reader: _Reader) -> tuple[str, str, str]:
    if reader.ahead() != "?":
        reader.groups += 1
        return "(", "(", "("
    named = re.compile(r"\?<[A-Za-z][A-Za-z0-9]*>").match(reader.text, reader.place)
    if named is not None:
        reader.place = named.end()
        reader.groups += 1
        return "(", "(", "("
    flagged = re.compile(r"\?[ims]*(?:-[ims]+)?([:)])").match(reader.text, reader.place)
    if flagged is None:
        raise reader.refuse("a group that looks ahead or behind, or is of another kind that RE2 does not have")
    reader.place = flagged.end()
    found = f"({flagged[0]}"
    return found, found, "(?:" if flagged[1] == ":" else ""


def _escape(reader: _Reader) -> tuple[str, str, str]:
    after = reader.text[reader.place + 1 : reader.place + 2]
    if after in ("b", "B") and after:
        reader.place += 2
        reader.has_word_end = True
        return f"\\{after}", f"\\{after}", ""
    if after in ("A", "z") and after:
        reader.place += 2
        return f"\\{after}", f"\\{after}", ""
    if after == "Z":
        reader.place += 2
        return _end(reader)
    if after == "Q":
        end = reader.text.find("\\E", reader.place)
        quoted = reader.text[reader.place + 2 : end if end >= 0 else None]
        reader.place = end + 2 if end >= 0 else len(reader.text)
        found = re.escape(quoted) if quoted.isascii() else quoted
        return found, found, "a" * len(quoted)
    inner, is_negated = _escaped_class(reader)
    found = f"[^{inner}]" if is_negated else inner if len(inner) == 2 and inner[0] == "\\" else f"[{inner}]"
    return found, found, "a"


def _escaped_class(reader: _Reader) -> tuple[str, bool]:
    """What stands in a class of characters for an escape, and whether it is of all others."""
    text, place = reader.text, reader.place
    after = text[place + 1 : place + 2]
    reader.place += 2
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
        found = re.compile(r"u([0-9A-Fa-f]{4})|x([0-9A-Fa-f]{2})|x\{([0-9A-Fa-f]+)\}").match(text, place + 1)
        if found is None:
            raise reader.refuse("a character whose number is not written in hexadecimal digits")
        reader.place = found.end()
        return f"\\x{{{found[1] or found[2] or found[3]}}}", False
    if after in ("p", "P") and after:
        return _property(reader, after == "P")
    if not after or after.isalnum():
        raise reader.refuse(f"\\{after}, which RE2 does not have")
    return f"\\{after}" if after.isascii() else after, False


def _property(reader: _Reader, is_negated: bool) -> tuple[str, bool]:
    found = re.compile(r"\{([A-Za-z_=]+)\}|([LMNPSZ])").match(reader.text, reader.place)
    name = (found[1] or found[2]) if found is not None else ""
    if found is None:
        raise reader.refuse("a property without a name")
    reader.place = found.end()
    if name in _POSIX:
        return _POSIX[name], is_negated
    category = _CATEGORIES.fullmatch(name)
    if category is None:
        raise reader.refuse(f"the property {name!r}, which RE2 does not have")
    return f"\\{'P' if is_negated else 'p'}{{{category[1]}}}", False


def _class(reader: _Reader) -> str:
    """A class of characters. Java has classes within classes, RE2 has none."""
    reader.place += 1
    pieces = ["["]
    if reader.ahead() == "^":
        pieces.append("^")
        reader.place += 1
    if reader.ahead() == "]":
        raise reader.refuse("a bracket as the first character of a class")
    while True:
        character = reader.ahead()
        if not character:
            raise reader.refuse("a class of characters without an end")
        if character == "]":
            reader.place += 1
            return "".join([*pieces, "]"])
        if character == "[" or reader.ahead(2) == "&&":
            raise reader.refuse("a class of characters within another")
        if character == "\\":
            if reader.ahead(2) in ("\\Q", "\\b", "\\B"):
                raise reader.refuse("an escape that RE2 does not have in a class of characters")
            inner, is_negated = _escaped_class(reader)
            if is_negated:
                raise reader.refuse("a class of all other characters within another")
            pieces.append(inner)
            continue
        reader.place += 1
        pieces.append(character)


def replacement_of(text: str, groups: int) -> str:
    r"""The replacement of a regular expression: Java writes groups as `$1` and escapes with a backslash.

    >>> replacement_of("<$1>", 1)
    '<\\1>'
    >>> replacement_of("$10", 1)
    '\\10'
    """
    pieces: list[str] = []
    place = 0
    while place < len(text):
        character, after = text[place], text[place + 1 : place + 2]
        if character == "$":
            if not ("0" <= after <= "9") or after == "":
                raise Refusal(f"a group in the replacement {text!r} is no number")
            if int(after) > groups:
                raise Refusal(f"the replacement {text!r} has the group {after}, and there are {groups}")
            following = text[place + 2 : place + 3]
            if groups > 9 and "0" <= following <= "9":
                raise Refusal(f"a group in the replacement {text!r} is no single digit")
            pieces.append(f"\\{after}")
            place += 2
        elif character == "\\":
            if not after:
                raise Refusal(f"the replacement {text!r} ends with a backslash")
            pieces.append("\\\\" if after == "\\" else after)
            place += 2
        else:
            pieces.append(character)
            place += 1
    return "".join(pieces)
