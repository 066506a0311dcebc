"""Spark's datetime patterns, translated to DuckDB: to format timestamps and to parse texts.

Only pattern letters that are known to mean the same are translated; all others raise `UnsupportedPattern`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tamis.engines.duckdb.macros.define_macros import define_macros
from tamis.engines.duckdb.translate.calls import Macros

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
"""The units to which Spark truncates dates and timestamps, and DuckDB's names for them."""

_TOKENS = re.compile(r"'(?P<quoted>(?:[^']|'')*)'|(?P<letters>([A-Za-z])\3*)|(?P<other>[^A-Za-z'])")

_STRFTIME = {
    "yyyy": "%Y", "yy": "%y", "MM": "%m", "LL": "%m", "MMM": "%b", "LLL": "%b", "MMMM": "%B", "LLLL": "%B",
    "M": "%-m", "L": "%-m", "dd": "%d", "d": "%-d", "DDD": "%j", "D": "%-j", "HH": "%H", "H": "%-H", "hh": "%I",
    "h": "%-I", "mm": "%M", "m": "%-M", "ss": "%S", "s": "%-S", "a": "%p", "E": "%a", "EE": "%a", "EEE": "%a",
    "EEEE": "%A",
}  # fmt: skip
_FORMAT_MACROS = {
    **{"y" * count: ("year", count) for count in (1, 3, 5, 6)},
    **{"G" * count: ("era", count) for count in (1, 2, 3, 4)},
    **{letter * count: ("quarter", count) for letter in "Qq" for count in (1, 2)},
    "QQQ": ("quarter", 3), "QQQQ": ("quarter", 4),
    "F": ("week_day", 1), "DD": ("day_of_year", 2),
    **{"k" * count: ("clock_hour", count) for count in (1, 2)},
    **{"K" * count: ("half_hour", count) for count in (1, 2)},
    **{"S" * count: ("fraction", count) for count in range(1, 10)},
}  # fmt: skip
"""Pattern letters that a macro `format_<name>(timestamp, count)` formats."""

_ZONE_TEXTS = {
    "VV": "UTC", "z": "UTC", "zz": "UTC", "zzz": "UTC", "zzzz": "Coordinated Universal Time", "O": "GMT",
    "OOOO": "GMT", **{"X" * count: "Z" for count in range(1, 6)}, "x": "+00", "xx": "+0000", "xxx": "+00:00",
    "xxxx": "+0000", "xxxxx": "+00:00", "Z": "+0000", "ZZ": "+0000", "ZZZ": "+0000", "ZZZZ": "GMT", "ZZZZZ": "Z",
}  # fmt: skip
"""Pattern letters for the time zone, which is UTC in every session."""

MACROS: Macros = define_macros(
    r"""
    format_year(t, n):
        CASE WHEN year(t) < 1 THEN error('a year before 1 cannot be formatted here')
        WHEN n > 3 AND length(CAST(year(t) AS VARCHAR)) > n THEN '+' || year(t)
        ELSE lpad(CAST(year(t) AS VARCHAR), CAST(greatest(n, length(CAST(year(t) AS VARCHAR))) AS INTEGER), '0') END
    format_era(t, n):
        CASE WHEN t IS NULL THEN NULL WHEN n = 4 THEN CASE WHEN year(t) < 1 THEN 'Before Christ' ELSE
        'Anno Domini' END
        WHEN year(t) < 1 THEN 'BC' ELSE 'AD' END
    format_quarter(t, n):
        CASE n WHEN 1 THEN CAST(quarter(t) AS VARCHAR) WHEN 2 THEN '0' || quarter(t) WHEN 3 THEN 'Q' || quarter(t)
        ELSE ['1st', '2nd', '3rd', '4th'][quarter(t)] || ' quarter' END
    format_week_day(t, n): CAST((day(t) - 1) % 7 + 1 AS VARCHAR)
    format_day_of_year(t, n):
        CASE WHEN dayofyear(t) > 99 THEN error('DD prints two digits: write DDD') ELSE strftime(t, '%j')[2:] END
    format_clock_hour(t, n):
        lpad(CAST(CASE WHEN hour(t) = 0 THEN 24 ELSE hour(t) END AS VARCHAR),
        CAST(greatest(n, CASE WHEN hour(t) BETWEEN 1 AND 9 THEN 1 ELSE 2 END) AS INTEGER), '0')
    format_half_hour(t, n):
        lpad(CAST(hour(t) % 12 AS VARCHAR), CAST(greatest(n, CASE WHEN hour(t) % 12 > 9 THEN 2 ELSE 1
        END) AS INTEGER), '0')
    format_fraction(t, n): left(lpad(CAST(microsecond(t) % 1000000 AS VARCHAR), 6, '0') || '000', CAST(n AS INTEGER))
    """
)
_MONTHS = "jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec"
_MONTH_NAMES = "january|february|march|april|may|june|july|august|september|october|november|december"
_OFFSET = r"[+-]\d{2}(?::?\d{2}(?::?\d{2})?)?"
_PARSERS = {
    "y": ("y", r"\d{1,6}"), "yy": ("r", r"\d{2}"), "yyy": ("y", r"\d{3,6}"), "yyyy": ("y", r"\d{4}"),
    "yyyyy": ("y", r"\d{5}"), "yyyyyy": ("y", r"\d{6}"),
    **{letter * 2: ("M", r"\d{2}") for letter in "ML"}, **dict.fromkeys("ML", ("M", r"\d{1,2}")),
    **{letter * 3: ("N", _MONTHS) for letter in "ML"}, **{letter * 4: ("N", _MONTH_NAMES) for letter in "ML"},
    "dd": ("d", r"\d{2}"), "d": ("d", r"\d{1,2}"), "D": ("D", r"\d{1,3}"), "DD": ("D", r"\d{2,3}"),
    "DDD": ("D", r"\d{3}"), "HH": ("H", r"\d{2}"), "H": ("H", r"\d{1,2}"), "hh": ("h", r"\d{2}"),
    "h": ("h", r"\d{1,2}"), "a": ("a", "am|pm"), "mm": ("m", r"\d{2}"), "m": ("m", r"\d{1,2}"),
    "ss": ("s", r"\d{2}"), "s": ("s", r"\d{1,2}"),
    **{"S" * count: ("S", rf"\d{{1,{count}}}") for count in range(1, 10)},
    **{"X" * count: ("z", rf"Z|{_OFFSET}") for count in range(1, 6)},
    **{"x" * count: ("z", _OFFSET) for count in range(1, 6)},
    **{"Z" * count: ("z", _OFFSET) for count in range(1, 4)}, "ZZZZZ": ("z", rf"Z|{_OFFSET}"),
    **{"z" * count: ("z", "UTC|GMT|UT|[A-Z]{3}") for count in range(1, 4)},
    "VV": ("z", rf"[A-Za-z_]+(?:/[A-Za-z0-9_/+-]+)?|(?:UTC|GMT|UT)?{_OFFSET}"),
}  # fmt: skip
"""Pattern letters that can be parsed: the part of a timestamp that they name, and a regular expression for its text."""


def _write_parsing(bad: str, attempt: str) -> tuple[str, str, str]:
    """Write SQL for the date, the time of day and the timestamp of parsed parts.

    Missing parts are those of 1970-01-01 00:00:00.
    """
    year = "CASE WHEN y <> '' THEN CAST(y AS INTEGER) WHEN r <> '' THEN 2000 + CAST(r AS INTEGER) ELSE 1970 END"
    month = (
        "CASE WHEN mo <> '' THEN CAST(mo AS INTEGER) WHEN n <> '' THEN CAST(list_position(['jan', 'feb', 'mar', 'apr', "
        "'may', 'jun', 'jul', 'aug', 'sep', 'oct', 'nov', 'dec'], lower(left(n, 3))) AS INTEGER) ELSE 1 END"
    )
    day = "CASE WHEN d <> '' THEN CAST(d AS INTEGER) ELSE 1 END"
    by_number = f"make_date({year}, 1, 1) + (CAST(doy AS INTEGER) - 1)"
    # A day of the year must be in range, and agree with the month and the day if the text has them too.
    is_wrong = (
        f"CAST(doy AS INTEGER) NOT BETWEEN 1 AND dayofyear(make_date({year}, 12, 31)) "
        f"OR ((mo <> '' OR n <> '') AND month({by_number}) <> {month}) OR (d <> '' AND day({by_number}) <> {day})"
    )
    date = (
        f"CASE WHEN doy = '' THEN {attempt}(make_date({year}, {month}, {day})) WHEN {is_wrong} THEN "
        f"{bad} ELSE {by_number} END"
    )
    hour = (
        "CASE WHEN h <> '' THEN CAST(h AS INTEGER) WHEN hh <> '' THEN CAST(hh AS INTEGER) % 12 "
        "+ CASE WHEN lower(a) = 'pm' THEN 12 ELSE 0 END ELSE 0 END"
    )
    minute, second = (f"CASE WHEN {part} <> '' THEN CAST({part} AS INTEGER) ELSE 0 END" for part in ("mi", "s"))
    is_invalid_time = (
        f"{hour} > 23 OR {minute} > 59 OR {second} > 59 OR (hh <> '' AND CAST(hh AS INTEGER) NOT BETWEEN 1 AND 12)"
    )
    fraction = "CASE WHEN f <> '' THEN CAST(left(rpad(f, 6, '0'), 6) AS BIGINT) ELSE 0 END"
    clock = (
        f"CASE WHEN {is_invalid_time} THEN {bad} "
        f"ELSE to_microseconds(({hour} * 3600 + {minute} * 60 + {second}) * 1000000::BIGINT + {fraction}) END"
    )
    return date, clock, f"{date} + {clock}"


_PART_NAMES = ("y", "r", "mo", "n", "d", "doy", "h", "hh", "a", "mi", "s", "f", "z")
for _prefix, _bad, _attempt in (("", "error('a text does not match the pattern')", ""), ("try_", "NULL", "TRY")):
    _date, _clock, _both = _write_parsing(_bad, _attempt)
    MACROS |= {
        f"{_prefix}parsed_timestamp": (
            ("x", "shape", *_PART_NAMES),
            "CASE WHEN x IS NULL THEN NULL WHEN regexp_full_match(x, shape) "
            f"THEN spark_{_prefix}at_zone({_both}, z) ELSE {_bad} END",
        ),
        f"{_prefix}parsed_time": (
            ("x", "shape", *_PART_NAMES),
            "CASE WHEN x IS NULL THEN NULL WHEN regexp_full_match(x, shape) "
            f"THEN TIME '00:00:00' + {_clock} ELSE {_bad} END",
        ),
    }


class UnsupportedPattern(ValueError):
    """The reason why a pattern cannot be translated."""


def split_format_pattern(pattern: str) -> list[tuple[str, str]]:
    """Return the parts of a pattern: a text, a format of `strftime`, or a macro and how often its letter is repeated.

    >>> split_format_pattern("dd/MM'T'SSS")
    [('strftime', '%d'), ('text', '/'), ('strftime', '%m'), ('text', 'T'), ('fraction', '3')]
    """
    known = frozenset(_STRFTIME) | frozenset(_FORMAT_MACROS) | frozenset(_ZONE_TEXTS)
    found: list[tuple[str, str]] = []
    for part, is_letters in _split_pattern(pattern, known):
        if part in "[]" and is_letters:
            continue
        if not is_letters:
            found.append(("text", part))
        elif part in _STRFTIME:
            found.append(("year", "4") if part == "yyyy" else ("strftime", _STRFTIME[part]))
        elif part in _ZONE_TEXTS:
            found.append(("text", _ZONE_TEXTS[part]))
        else:
            name, count = _FORMAT_MACROS[part]
            found.append((name, str(count)))
    return found


@dataclass(frozen=True, slots=True)
class ParsedPattern:
    """A regular expression for the texts that a pattern parses, and the group number of each part of a timestamp."""

    shape: str
    groups: dict[str, int]


def compile_parse_pattern(pattern: str) -> ParsedPattern:
    """Return the regular expression that parses texts of a pattern.

    >>> compile_parse_pattern("yyyy-MM")
    ParsedPattern(shape='(?i)(\\\\d{4})\\\\-(\\\\d{2})', groups={'y': 1, 'M': 2})
    """
    shape = "(?i)"
    groups: dict[str, int] = {}
    tokens = _split_pattern(pattern, frozenset(_PARSERS))
    for position, (part, is_letters) in enumerate(tokens):
        if is_letters and part in "[]":
            shape += "(?:" if part == "[" else ")?"
        elif not is_letters:
            shape += re.escape(part)
        else:
            name, text = _PARSERS[part]
            if name in groups:
                raise UnsupportedPattern(f"{part!r} in the pattern {pattern!r} occurs twice")
            after = tokens[position + 1] if position + 1 < len(tokens) else ("", False)
            if name == "S" and after[1] and after[0] not in "[]":
                # A fraction that other digits follow has all its digits.
                text = rf"\d{{{len(part)}}}"
            if after[1] and after[0] not in "[]" and "," in text and name != "z":
                raise UnsupportedPattern(
                    f"{part!r} in the pattern {pattern!r} has no fixed end: write a separator after it"
                )
            groups[name] = len(groups) + 1
            shape += f"({text})"
    return ParsedPattern(shape, groups)


def _split_pattern(pattern: str, known: frozenset[str]) -> list[tuple[str, bool]]:
    """Split a pattern into runs of letters or brackets (True) and literal text (False)."""
    tokens: list[tuple[str, bool]] = []
    offset = depth = 0
    while offset < len(pattern):
        match = _TOKENS.match(pattern, offset)
        if match is None:
            raise UnsupportedPattern(f"the pattern {pattern!r} has an unclosed quote")
        offset = match.end()
        if (letters := match["letters"]) is not None:
            if letters not in known:
                raise UnsupportedPattern(f"{letters!r} in the pattern {pattern!r} is not supported")
            tokens.append((letters, True))
        elif match["quoted"] is not None:
            tokens.append((match["quoted"].replace("''", "'") or "'", False))
        elif match["other"] in "[]":
            # Brackets enclose an optional part.
            depth += 1 if match["other"] == "[" else -1
            if depth < 0:
                raise UnsupportedPattern(f"a closing bracket in the pattern {pattern!r} has no opening one")
            tokens.append((match["other"], True))
        elif match["other"] in "#{}":
            raise UnsupportedPattern(f"{match['other']!r} in the pattern {pattern!r} is reserved")
        else:
            tokens.append((match["other"], False))
    if depth:
        raise UnsupportedPattern(f"a bracket in the pattern {pattern!r} is never closed")
    return tokens
