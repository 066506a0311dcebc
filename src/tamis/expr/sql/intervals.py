"""Interval literals by Spark's grammar: `INTERVAL 1 day 2 hours`, `INTERVAL '1-2' YEAR TO MONTH`, `INTERVAL '2 weeks'`.

An interval is of one of two kinds: months (years and months), or microseconds (days to seconds). A literal that mixes
them is an error. Its type also has a first and a last field, on which its text and the sum with a date depend:

    DATE '2024-01-01' + INTERVAL '1' DAY             is a date
    DATE '2024-01-01' + INTERVAL '1 00' DAY TO HOUR  is a timestamp

Each literal has one canonical text, `INTERVAL '1 days 2 hours'`, in which each field from the first to the last occurs
once. So it survives printing and parsing.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sqlglot import exp

MONTH_FIELDS = ("year", "month")
TIME_FIELDS = ("day", "hour", "minute", "second")
_SIZES = {"year": 12, "month": 1}
_MICROSECONDS = {"day": 86_400_000_000, "hour": 3_600_000_000, "minute": 60_000_000, "second": 1_000_000}
_UNITS: dict[str, tuple[str, int]] = {
    **{field: (field, size) for field, size in _SIZES.items()},
    "week": ("day", 7 * _MICROSECONDS["day"]),
    **{field: (field, size) for field, size in _MICROSECONDS.items()},
    "millisecond": ("second", 1_000),
    "microsecond": ("second", 1),
}
"""The units of literals: the field of each, and its size in months or microseconds."""

UNITS = frozenset(_UNITS) | {f"{unit}s" for unit in _UNITS} | {"nanosecond", "nanoseconds"}
"""The words that are parsed as a unit; nanoseconds then raise an error."""

_BLANKS = "\t\n\x0b\x0c\r \x00"
_PART = re.compile(r"[\s\x00]*([+-]?)[\s\x00]*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[\s\x00]+([A-Za-z]+)(?=[\s\x00]|$)")
_SECONDS = r"([0-9]{1,2})(?:\.([0-9]{1,9}))?"
_SPANS = {
    ("year", "month"): re.compile(r"([+-]?)([0-9]+)-([0-9]+)"),
    ("day", "hour"): re.compile(r"([+-]?)([0-9]+) +([0-9]{1,2})"),
    ("day", "minute"): re.compile(r"([+-]?)([0-9]+) +([0-9]{1,2}):([0-9]{1,2})"),
    ("day", "second"): re.compile(rf"([+-]?)([0-9]+) +([0-9]{{1,2}}):([0-9]{{1,2}}):{_SECONDS}"),
    ("hour", "minute"): re.compile(r"([+-]?)([0-9]+):([0-9]{1,2})"),
    ("hour", "second"): re.compile(rf"([+-]?)([0-9]+):([0-9]{{1,2}}):{_SECONDS}"),
    ("minute", "second"): re.compile(r"([+-]?)([0-9]+):([0-9]{1,2})(?:\.([0-9]{1,9}))?"),
}
_MAX_VALUES = {"month": 11, "hour": 23, "minute": 59, "second": 59}


def _pad_number(value: str) -> str:
    whole, point, fraction = value.partition(".")
    return f"{whole:0>2}{point}{fraction}"


class InvalidInterval(ValueError):
    """The reason why a text is not an interval."""


def make_unknown_unit_error(word: str) -> InvalidInterval:
    return InvalidInterval(f"{word or 'nothing'} is not a unit. Units: {', '.join(_UNITS)}")


@dataclass(frozen=True, slots=True)
class IntervalLiteral:
    """A count of months (`first` is year or month) or of microseconds, and the fields of its type."""

    count: int
    first: str
    last: str

    @property
    def has_months(self) -> bool:
        return self.first in MONTH_FIELDS

    def __str__(self) -> str:
        """Return the canonical text.

        >>> str(IntervalLiteral(93_784_500_000, "day", "second")), str(IntervalLiteral(-14, "year", "month"))
        ('1 days 2 hours 3 minutes 4.5 seconds', '-1 years -2 months')
        """
        sizes = _SIZES if self.has_months else _MICROSECONDS
        sign, rest = ("-", -self.count) if self.count < 0 else ("", self.count)
        parts = []
        for field in self.fields:
            whole, rest = divmod(rest, sizes[field])
            fraction = f".{rest:06}".rstrip("0") if field == "second" and rest else ""
            parts.append(f"{sign}{whole}{fraction} {field}s")
        return " ".join(parts)

    def to_node(self) -> exp.Interval:
        """Return sqlglot's node of the literal, as Spark prints it.

        >>> IntervalLiteral(-93_784_500_000, "day", "second").to_node().sql()
        "INTERVAL '-1 02:03:04.5' DAY TO SECOND"
        """
        values = [part.lstrip("-") for part in str(self).split(" ")[::2]]
        sign = "-" if self.count < 0 else ""
        if self.has_months:
            text = "-".join(values)
        else:
            values = [
                value if field == "day" else _pad_number(value)
                for field, value in zip(self.fields, values, strict=True)
            ]
            days = [values.pop(0)] if self.first == "day" else []
            text = " ".join([*days, *([":".join(values)] if values else [])])
        unit: exp.Expr = exp.var(self.first.upper())
        if self.first != self.last:
            unit = exp.IntervalSpan(this=unit, expression=exp.var(self.last.upper()))
        return exp.Interval(this=exp.Literal.string(sign + text), unit=unit)

    @property
    def fields(self) -> tuple[str, ...]:
        fields = MONTH_FIELDS if self.has_months else TIME_FIELDS
        return fields[fields.index(self.first) : fields.index(self.last) + 1]


def interval_from_text(text: str) -> IntervalLiteral:
    """Return the interval of a text with its units: `'3 days 4 hours'`, `'interval 1 year'`.

    >>> interval_from_text("1 week -1.5 seconds")
    IntervalLiteral(count=604798500000, first='day', last='second')
    """
    trimmed = text.strip(_BLANKS)
    if re.match(r"interval[\s\x00]", trimmed, re.IGNORECASE):
        trimmed = trimmed[len("interval") :]
    parts: list[tuple[str, str, str]] = []
    position = 0
    while position < len(trimmed):
        match = _PART.match(trimmed, position)
        if match is None:
            raise InvalidInterval("an interval needs numbers with units, as in '3 days 4.5 seconds'")
        parts.append((match[1], match[2], match[3]))
        position = match.end()
    return _interval_from_parts(parts)


def interval_from_node(node: exp.Expr) -> IntervalLiteral | None:
    """Return the literal of a sqlglot node; None for other nodes and for the type INTERVAL."""
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    text, unit = node.this.name, node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return interval_from_range(text, unit.this.name, unit.expression.name)
    return interval_from_text(text) if unit is None else interval_from_units([(text, unit.name)])


def interval_from_units(values: list[tuple[str, str]]) -> IntervalLiteral:
    """Return the interval of values, each with its unit: `INTERVAL 1 day '2' hours`."""
    parts = []
    for value, unit in values:
        match = re.fullmatch(r"[\s\x00]*([+-]?)[\s\x00]*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)[\s\x00]*", value)
        if match is None:
            raise InvalidInterval(f"'{value}' is not a number")
        parts.append((match[1], match[2], unit))
    return _interval_from_parts(parts)


def _interval_from_parts(parts: list[tuple[str, str, str]]) -> IntervalLiteral:
    if not parts:
        raise InvalidInterval("the text is empty")
    months = microseconds = 0
    fields: set[str] = set()
    for sign, number, word in parts:
        unit = word.lower()
        unit = unit if unit in _UNITS else unit.removesuffix("s")
        if unit not in _UNITS:
            raise make_unknown_unit_error(word)
        whole, point, fraction = number.partition(".")
        if point and unit != "second":
            raise InvalidInterval("only seconds may have a fraction")
        if len(fraction) > 9:
            raise InvalidInterval("a second has at most nine digits after the point")
        field, size = _UNITS[unit]
        count = int(whole or 0) * size + int(fraction.ljust(9, "0")) // 1_000
        fields.add(field)
        if field in MONTH_FIELDS:
            months += -count if sign == "-" else count
        else:
            microseconds += -count if sign == "-" else count
    ordered = [field for field in (*MONTH_FIELDS, *TIME_FIELDS) if field in fields]
    if ordered[0] in MONTH_FIELDS and ordered[-1] in TIME_FIELDS:
        raise InvalidInterval("an interval cannot mix years and months with days and times: add two intervals")
    return _check_range(months or microseconds, ordered[0], ordered[-1])


def interval_from_range(text: str, first: str, last: str) -> IntervalLiteral:
    """Return the interval of `INTERVAL '1 02:03' DAY TO MINUTE`.

    >>> interval_from_range("-1-2", "year", "month")
    IntervalLiteral(count=-14, first='year', last='month')
    """
    first, last = first.lower(), last.lower()
    pattern = _SPANS.get((first, last))
    if pattern is None:
        raise InvalidInterval(f"Spark's SQL has no interval {first.upper()} TO {last.upper()}")
    match = pattern.fullmatch(text.strip(_BLANKS))
    if match is None:
        raise InvalidInterval(
            f"'{text}' is not a valid {first.upper()} TO {last.upper()}, as in {_EXAMPLES[first, last]}"
        )
    fields: tuple[str, ...] = MONTH_FIELDS if first == "year" else TIME_FIELDS
    sizes = _SIZES if first == "year" else _MICROSECONDS
    fields = fields[fields.index(first) : fields.index(last) + 1]
    sign, *values = match.groups()
    count = 0
    for field, value in zip(fields, values, strict=False):
        if field != first and int(value) > _MAX_VALUES[field]:
            raise InvalidInterval(f"{field} {value} is greater than {_MAX_VALUES[field]}")
        count += int(value) * sizes[field]
    if last == "second" and values[-1] is not None:
        count += int(values[-1].ljust(9, "0")) // 1_000
    return _check_range(-count if sign == "-" else count, first, last)


_EXAMPLES = {
    ("year", "month"): "'1-2'",
    ("day", "hour"): "'1 02'",
    ("day", "minute"): "'1 02:03'",
    ("day", "second"): "'1 02:03:04.5'",
    ("hour", "minute"): "'02:03'",
    ("hour", "second"): "'02:03:04.5'",
    ("minute", "second"): "'03:04.5'",
}


def _check_range(count: int, first: str, last: str) -> IntervalLiteral:
    bits = 31 if first in MONTH_FIELDS else 63
    if not -(2**bits) <= count < 2**bits:
        raise InvalidInterval("the interval is too large")
    return IntervalLiteral(count, first, last)
