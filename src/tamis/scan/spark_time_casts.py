"""Casts to dates, timestamps and times of day, and `EXTRACT`, in DuckDB's words."""

from __future__ import annotations

import re

from sqlglot import exp

from tamis.scan.spark_calls import PREFIX, macro_call, own_call, refusal, text_of, without_brackets
from tamis.scan.spark_intervals import field_of_interval, fields_of

_FIELDS = {
    **dict.fromkeys(("year", "y", "years", "yr", "yrs"), "year"),
    "yearofweek": "yearofweek",
    **dict.fromkeys(("quarter", "qtr"), "quarter"),
    **dict.fromkeys(("month", "mon", "mons", "months"), "month"),
    **dict.fromkeys(("week", "w", "weeks"), "week"),
    **dict.fromkeys(("day", "d", "days"), "day"),
    **dict.fromkeys(("dayofweek", "dow"), "dayofweek"),
    **dict.fromkeys(("dayofweek_iso", "dow_iso"), "dayofweek_iso"),
    "doy": "doy",
    **dict.fromkeys(("hour", "h", "hours", "hr", "hrs"), "hour"),
    **dict.fromkeys(("minute", "m", "min", "mins", "minutes"), "minute"),
    **dict.fromkeys(("second", "s", "sec", "seconds", "secs"), "second"),
}
"""The fields of `extract` by all their spellings."""


def part_of(name: str, value: exp.Expr) -> exp.Expr:
    """Return a field of a date, a timestamp, a time of day or an interval."""
    field = _FIELDS.get(name.lower())
    if field is None:
        raise refusal("EXTRACT", f"there is no field {name}. Fields: {', '.join(dict.fromkeys(_FIELDS.values()))}")
    if isinstance(value, exp.Null):
        return exp.Null()
    if fields_of(value) is not None:
        return field_of_interval(field, value)
    return macro_call(f"part_{field}", value)


_KINDS = {
    "DATE": "date",
    "TIMESTAMP": "timestamp",
    "TIMESTAMPTZ": "timestamp",
    "TIMESTAMPLTZ": "timestamp",
    "TIMESTAMPNTZ": "timestamp_ntz",
    "TIME": "time",
}
_SPECIAL = {"epoch": None, "now": 0, "today": 0, "tomorrow": 1, "yesterday": -1}
"""Constants that Spark reads as days: how many after today, None for the first of 1970."""
_NUMBERS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL"))
_TIME_CALLS = frozenset(f"{PREFIX}{name}" for name in ("as_time", "cut_time", "make_time", "text_time", "parsed_time"))
_EXACT_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def meant_time(node: exp.Expr) -> exp.Expr | None:
    """Return what a cast to a date, a timestamp or a time of day means to DuckDB, or `EXTRACT`; None for others."""
    if isinstance(node, exp.Extract):
        return part_of(node.this.name, node.expression)
    if not isinstance(node, exp.Cast):
        return None
    target = node.args["to"]
    name = getattr(target.this, "name", "")
    kind = _KINDS.get(name)
    value = without_brackets(node.this)
    if name in _NUMBERS and isinstance(value, exp.Anonymous) and value.name.lower() in _TIME_CALLS:
        seconds = macro_call("time_to_seconds", value)
        return exp.Cast(this=seconds if name == "DECIMAL" else own_call("trunc", seconds), to=target)
    if kind is None or target.args.get("nested"):
        return None
    if isinstance(value, exp.Null):
        return None
    if fields_of(value) is not None:
        raise refusal("CAST", f"an interval is not a {kind}")
    is_try = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    prefix = "try_" if is_try else ""
    text = text_of(value)
    if kind == "date" and text is not None and _EXACT_DATE.fullmatch(text):
        return exp.TryCast(this=value, to=target) if is_try else exp.Cast(this=value, to=target)
    if kind == "time":
        found = macro_call(f"{prefix}as_time", node.this)
        digits = int(target.expressions[0].name) if target.expressions else 6
        if digits > 6:
            raise refusal("TIME", "a time of day has at most 6 digits of a second")
        if digits == 6 or text is not None:
            return found
        return macro_call("cut_time", found, exp.Literal.number(10 ** (6 - digits)))
    if text is not None and text.strip().lower() in _SPECIAL:
        days = _SPECIAL[text.strip().lower()]
        day: exp.Expr = exp.cast(exp.Literal.string("1970-01-01"), "date") if days is None else exp.CurrentDate()
        if text.strip().lower() == "now" and kind != "date":
            return exp.Cast(this=exp.CurrentTimestamp(), to=target)
        return exp.Cast(this=exp.Paren(this=exp.Add(this=day, expression=exp.Literal.number(days or 0))), to=target)
    if text is not None:
        return macro_call(f"{prefix}text_{kind}", node.this)
    return None
