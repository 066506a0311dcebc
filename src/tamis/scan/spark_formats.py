"""Spark's patterns for dates, and its replacements in regular expressions, in DuckDB's notation.

Only what is known to mean the same is translated; `Refusal` says what is not.
"""

from __future__ import annotations

import re

DATE_UNITS = {
    **dict.fromkeys(("year", "yyyy", "yy"), "year"),
    "quarter": "quarter",
    **dict.fromkeys(("month", "mon", "mm"), "month"),
    "week": "week",
}
TIME_UNITS = DATE_UNITS | {
    **dict.fromkeys(("day", "dd"), "day"),
    **{unit: unit for unit in ("hour", "minute", "second", "millisecond", "microsecond")},
}
"""Units to which Spark cuts dates and timestamps, and DuckDB's names of them."""

_PIECES = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")

_PRINTED = {
    "yyyy": "%Y", "y": "%Y", "yy": "%y", "MM": "%m", "M": "%-m", "MMM": "%b", "MMMM": "%B", "dd": "%d", "d": "%-d",
    "DDD": "%j", "D": "%-j", "HH": "%H", "H": "%-H", "hh": "%I", "h": "%-I", "mm": "%M", "m": "%-M",
    "ss": "%S", "s": "%-S", "SSS": "%g", "SSSSSS": "%f", "a": "%p",
    "E": "%a", "EE": "%a", "EEE": "%a", "EEEE": "%A",
}  # fmt: skip
_PARSED = {
    "yyyy": ("%Y", r"\d{4}"), "MM": ("%m", r"\d{2}"), "M": ("%m", r"\d{1,2}"), "dd": ("%d", r"\d{2}"),
    "d": ("%d", r"\d{1,2}"), "HH": ("%H", r"\d{2}"), "H": ("%H", r"\d{1,2}"), "mm": ("%M", r"\d{2}"),
    "ss": ("%S", r"\d{2}"), "SSS": ("%g", r"\d{3}"), "SSSSSS": ("%f", r"\d{6}"),
}  # fmt: skip


class Refusal(ValueError):
    """Why a pattern has no counterpart."""


def printing_format(pattern: str) -> str:
    """The format of `strftime` for a pattern of Spark.

    >>> printing_format("dd/MM/yyyy'T'HH")
    '%d/%m/%YT%H'
    """
    return "".join(
        _PRINTED[part] if is_letters else part.replace("%", "%%")
        for part, is_letters in _pieces(pattern, frozenset(_PRINTED))
    )


def parsing_format(pattern: str) -> tuple[str, str]:
    """The format of `strptime` for a pattern of Spark, and the regular expression of the texts that Spark takes.

    >>> print(*parsing_format("yyyy-MM"))
    %Y-%m \\d{4}\\-\\d{2}
    """
    pieces = [
        _PARSED[part] if is_letters else (part.replace("%", "%%"), re.escape(part))
        for part, is_letters in _pieces(pattern, frozenset(_PARSED))
    ]
    return "".join(format_ for format_, _ in pieces), "".join(shape for _, shape in pieces)


def _pieces(pattern: str, known: frozenset[str]) -> list[tuple[str, bool]]:
    """The letters of a pattern that stand for something, and the text between them."""
    pieces: list[tuple[str, bool]] = []
    place = 0
    while place < len(pattern):
        match = _PIECES.match(pattern, place)
        if match is None:
            raise Refusal(f"the pattern {pattern!r} has a quote without an end")
        place = match.end()
        if (letters := match["letters"]) is not None:
            if letters not in known:
                raise Refusal(f"{letters!r} in the pattern {pattern!r} has no counterpart")
            pieces.append((letters, True))
        elif match["quoted"] is not None:
            pieces.append((match["quoted"].replace("''", "'") or "'", False))
        elif match["other"] in "[]#{}":
            raise Refusal(f"{match['other']!r} in the pattern {pattern!r} has no counterpart")
        else:
            pieces.append((match["other"], False))
    return pieces


def replacement_of(text: str) -> str:
    r"""The replacement of a regular expression: Java writes groups as `$1` and escapes with a backslash.

    >>> replacement_of("<$1>")
    '<\\1>'
    """
    pieces: list[str] = []
    place = 0
    while place < len(text):
        character, after = text[place], text[place + 1 : place + 2]
        if character == "$":
            if not ("0" <= after <= "9") or "0" <= text[place + 2 : place + 3] <= "9":
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


def searched_pattern(text: str) -> str:
    """A regular expression of Java that is searched for: there `$` also stands before a last end of line.

    >>> print(searched_pattern("^ab$"))
    ^ab(?:\\r\\n|[\\n\\r])?\\z
    """
    if "(?i" in text and not text.isascii():
        raise Refusal(f"{text!r} ignores the case of letters beyond ASCII")
    pieces: list[str] = []
    in_class = False
    place = 0
    while place < len(text):
        character = text[place]
        if character == "\\":
            pieces.append(text[place : place + 2])
            place += 2
            continue
        if in_class and (character == "[" or text.startswith("&&", place)):
            raise Refusal(f"{text!r} has a class of characters within another")
        if character == "[":
            # A bracket that closes at once is one of the characters.
            start = place + 1 + text.startswith("^", place + 1)
            in_class = True
            if text.startswith("]", start):
                raise Refusal(f"{text!r} has a bracket as the first character of a class")
        elif character == "]":
            in_class = False
        is_end = character == "$" and not in_class and "(?m" not in text and "(?s" not in text
        pieces.append(r"(?:\r\n|[\n\r])?\z" if is_end else character)
        place += 1
    return "".join(pieces)
