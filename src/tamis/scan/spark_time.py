"""Spark's functions of dates, timestamps, times of day and intervals in DuckDB's words.

`MACROS` has macros of the embedded connection, `BUILDERS` makes a call of one (or other words) of the arguments, and
`SAME` names the functions for which sqlglot's translation, or DuckDB's function of that name, means what Spark means.

Read `spark_time_texts` (casts of texts), `spark_formats` (patterns), `spark_time_macros`, then this module;
`spark_time_casts` has the casts and EXTRACT, `spark_intervals` the arithmetic of intervals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from tamis.scan.spark_calls import Build, Macros, macro, macro_call, own_call, refusal, text_of
from tamis.scan.spark_formats import DATE_UNITS, TIME_UNITS, Parsed, Refusal, parse_pattern, print_pattern
from tamis.scan.spark_intervals import fields_of
from tamis.scan.spark_time_casts import MACROS as _CAST_MACROS
from tamis.scan.spark_time_casts import part_of
from tamis.scan.spark_time_macros import DAY, HOUR, MINUTE
from tamis.scan.spark_time_macros import MACROS as _TIME_MACROS

MACROS: Macros = {**_TIME_MACROS, **_CAST_MACROS}


def _macro(name: str) -> Build:
    return macro(name, MACROS)


def _of(name: str, *kinds: str) -> Build:
    """A macro whose arguments are first cast to a date, a timestamp or another kind; an empty kind stays as it is.

    The casts have overloads, and a macro may not call those with an argument whose type it does not know.
    """

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != len(kinds):
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        return macro_call(
            name, *(macro_call(f"as_{kind}", arg) if kind else arg for kind, arg in zip(kinds, args, strict=True))
        )

    return build


def _part(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """`date_part('field', x)`."""
    if len(args) != 2:
        return None
    name = text_of(args[0])
    if name is None:
        raise refusal("date_part", "its field is no constant")
    return part_of(name, args[1])


def _function_of_part(name: str, macro_name: str, *, is_interval: bool = False) -> Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 1:
            return None
        if isinstance(args[0], exp.Null):
            return exp.Null()
        if fields_of(args[0]) is not None and not is_interval:
            raise refusal(name, "it takes a date or a timestamp: write EXTRACT for an interval")
        return macro_call(macro_name, args[0])

    return build


def _truncation(args: Sequence[exp.Expr], name: str, units: dict[str, str], macro_name: str) -> exp.Expr | None:
    if len(args) != 2:
        return None
    value, unit = args
    if isinstance(unit, exp.Null) or isinstance(value, exp.Null):
        return exp.Null()
    text = text_of(unit)
    if text is None:
        raise refusal(name, "its unit is no constant")
    if text.lower() not in units:
        # Spark gives NULL, and DuckDB knows decades and centuries: it is a mistake in both.
        known = ", ".join(dict.fromkeys(units.values()))
        raise refusal(name, f"'{text}' is no unit of time. Units: {known}")
    unit = exp.Literal.string(units[text.lower()])
    return macro_call(macro_name, value if name == "trunc" else macro_call("as_timestamp", value), unit)


def _constant(name: str, role: str, node: exp.Expr) -> str:
    text = text_of(node)
    if text is None:
        raise refusal(name, f"its {role} is no constant")
    return text


def _printed(name: str, value: exp.Expr, pattern: str) -> exp.Expr:
    try:
        pieces = print_pattern(pattern)
    except Refusal as reason:
        raise refusal(name, str(reason)) from None
    found: list[exp.Expr] = [
        exp.Literal.string(text)
        if kind == "text"
        else own_call("strftime", value.copy(), exp.Literal.string(text))
        if kind == "strftime"
        else macro_call(f"format_{kind}", value.copy(), exp.Literal.number(text))
        for kind, text in pieces
    ]
    if not found or all(isinstance(piece, exp.Literal) for piece in found):
        # NULL stays NULL.
        found.append(own_call("left", own_call("strftime", value, exp.Literal.string("%Y")), exp.Literal.number(0)))
    joined = found[0]
    for piece in found[1:]:
        joined = exp.DPipe(this=joined, expression=piece)
    return exp.Paren(this=joined)


def _date_format(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        return None
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    return _printed("date_format", macro_call("as_clock", args[0]), _constant("date_format", "pattern", args[1]))


def _to_char(name: str) -> Build:
    """`to_char` of dates and times; of numbers it has a pattern of digits."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            return None
        pattern = _constant(name, "pattern", args[1])
        if re.fullmatch(r"[09.,GDSLMIPR$]+", pattern) and re.search("[09]", pattern):
            raise refusal(name, "numbers have no pattern here")
        return _printed(name, macro_call("as_printed", args[0]), pattern)

    return build


_DEFAULT = "yyyy-MM-dd HH:mm:ss"


def _from_unixtime(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (1, 2):
        return None
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    pattern = _constant("from_unixtime", "pattern", args[1]) if len(args) == 2 else _DEFAULT
    seconds = macro_call("timestamp_seconds", exp.cast(args[0], "bigint"))
    return _printed("from_unixtime", macro_call("as_clock", seconds), pattern)


def _parse(name: str, args: Sequence[exp.Expr], *, is_try: bool, wants_time: bool = False) -> exp.Expr:
    """The timestamp of a text in a pattern, without its zone unless the text has one."""
    try:
        parsed: Parsed = parse_pattern(_constant(name, "pattern", args[1]))
    except Refusal as reason:
        raise refusal(name, str(reason)) from None
    shape = exp.Literal.string(parsed.shape)
    # All arguments are bound before an overload is chosen, also where the value is a date.
    # It is the engine's own cast: that of Spark may fail, and TRY takes nothing that fails by itself.
    text = own_call("cast_to_type", args[0].copy(), exp.Literal.string(""))
    groups = {
        letter: own_call("regexp_extract", text.copy(), shape.copy(), exp.Literal.number(number))
        for letter, number in parsed.groups.items()
    }
    parts = [groups.get(letter, exp.Literal.string("")) for letter in ("y", "r", "M", "N", "d", "D", "H", "h", "a")]
    parts += [groups.get(letter, exp.Literal.string("")) for letter in ("m", "s", "S", "z")]
    prefix = "try_" if is_try else ""
    kind = "time" if wants_time else "timestamp"
    return macro_call(f"{prefix}parsed_{kind}", text, shape, *parts)


def _reading(name: str, kind: str, *, is_try: bool = False) -> Build:
    """`to_timestamp(x)` is a cast; with a pattern it is not."""
    cast = f"{'try_' if is_try else ''}as_{kind}"

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) not in (1, 2):
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        if len(args) == 1:
            return macro_call("to_timestamp_of" if cast == "as_timestamp" else cast, args[0])
        if kind == "time":
            return _parse(name, args, is_try=is_try, wants_time=True)
        found = macro_call("pick_timestamp", args[0], _parse(name, args, is_try=is_try))
        return found if kind == "timestamp" else macro_call(f"as_{kind}", found)

    return build


def _unix_timestamp(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (1, 2):
        return None
    if isinstance(args[0], exp.Null):
        return exp.Null()
    pattern = args[1] if len(args) == 2 else exp.Literal.string(_DEFAULT)
    if isinstance(pattern, exp.Null):
        return exp.Null()
    parsed = _parse("unix_timestamp", [args[0], pattern], is_try=False)
    return macro_call("whole_seconds", macro_call("pick_timestamp", args[0], parsed))


_MONTHS_OF = {"month": 1, "quarter": 3, "year": 12}
_MICROSECONDS_OF = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "dayofyear": DAY,
    "week": 7 * DAY,
}


def _unit(name: str, node: exp.Expr) -> str:
    """The unit of `dateadd(HOUR, 1, x)`, which stands without quotes."""
    found = node.name.lower() if isinstance(node, exp.Column | exp.Var | exp.Identifier) else ""
    if found not in _MONTHS_OF and found not in _MICROSECONDS_OF:
        units = ", ".join((*_MICROSECONDS_OF, *_MONTHS_OF)).upper()
        raise refusal(name, f"{node.sql('spark')} is not a unit. Units, without quotes: {units}")
    return found


def _difference(name: str) -> Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) == 2 and name != "timestampdiff":
            return _of("days_between", "date", "date")(args)
        if len(args) != 3:
            return None
        unit = _unit(name, args[0])
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        if unit in _MONTHS_OF:
            return _of("between_months", "clock", "clock", "")([*args[1:], exp.Literal.number(_MONTHS_OF[unit])])
        return _of("between_units", "clock", "clock", "")([*args[1:], exp.Literal.number(_MICROSECONDS_OF[unit])])

    return build


def _addition(name: str) -> Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) == 2 and name != "timestampadd":
            return _days("date_add")(args)
        if len(args) != 3:
            return None
        unit = _unit(name, args[0])
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        count = exp.cast(exp.Paren(this=args[1]), "bigint")
        if unit in _MONTHS_OF:
            months = exp.Mul(this=count, expression=exp.Literal.number(_MONTHS_OF[unit]))
            return macro_call("moved", args[2], own_call("to_months", exp.cast(exp.Paren(this=months), "int")))
        if unit in ("day", "dayofyear", "week"):
            days = exp.Mul(this=count, expression=exp.Literal.number(_MICROSECONDS_OF[unit] // DAY))
            return macro_call("moved", args[2], own_call("to_days", exp.cast(exp.Paren(this=days), "int")))
        micros = exp.Mul(this=count, expression=exp.Literal.number(_MICROSECONDS_OF[unit]))
        return macro_call("moved", args[2], own_call("to_microseconds", exp.Paren(this=micros)))

    return build


def _days(name: str) -> Build:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            raise refusal(name, "it takes a date and a number of days")
        days = args[1].unnest()
        digits = days.this if isinstance(days, exp.Neg) else days
        is_fraction = isinstance(digits, exp.Literal) and not digits.is_string and not digits.name.isdecimal()
        kind = getattr(days.args["to"].this, "name", "") if isinstance(days, exp.Cast) else ""
        if is_fraction or kind in ("BIGINT", "DECIMAL", "DOUBLE", "FLOAT") or fields_of(days) is not None:
            raise refusal(name, "days are an int, a smallint or a tinyint")
        return _of(name, "date", "")(args)

    return build


def _months_between(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (2, 3):
        return None
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    return _of("months_between", "clock", "clock", "")([*args, *([exp.true()] if len(args) == 2 else [])])


def _zeros(name: str, size: int) -> Build:
    """A function whose missing arguments are 0."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) > size:
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        missing = [exp.Literal.number(0) for _ in range(size - len(args))]
        return macro_call(name, *args, *missing)

    return build


_TIME_UNITS = {"hour": HOUR, "minute": MINUTE, "second": 1_000_000, "millisecond": 1_000, "microsecond": 1}


def _of_time(name: str) -> Build:
    """`time_trunc` and `time_diff`, whose unit is a text."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != (2 if name == "time_trunc" else 3):
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        unit = _TIME_UNITS.get(_constant(name, "unit", args[0]).lower())
        if unit is None:
            raise refusal(name, f"{args[0].sql('spark')} is not a unit. Units: {', '.join(_TIME_UNITS)}")
        if name == "time_trunc":
            return macro_call("cut_time", macro_call("as_time", args[1]), exp.Literal.number(unit))
        return _of("time_between", "time", "time", "")([*args[1:], exp.Literal.number(unit)])

    return build


def _bucket(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        raise refusal("time_bucket", "it takes an interval and a timestamp here: buckets begin at 1970")
    found = _of("time_bucket", "", "clock")(args)
    return None if found is None else own_call("timezone", exp.Literal.string("UTC"), found)


BUILDERS: dict[str, Build] = {
    **{
        name: _macro(name)
        for name in (
            "dayname",
            "monthname",
            "weekday",
            "last_day",
            "unix_date",
            "date_from_unix_date",
            "make_date",
            "timestamp_seconds",
            "timestamp_millis",
            "timestamp_micros",
            "make_timestamp",
            "make_timestamp_ltz",
            "make_timestamp_ntz",
            "try_make_timestamp",
            "try_make_timestamp_ltz",
            "try_make_timestamp_ntz",
            "make_time",
            "time_from_micros",
            "time_from_millis",
            "time_from_seconds",
        )
    },
    "add_months": _of("add_months", "date", ""),
    "next_day": _of("next_day", "date", ""),
    **{name: _of(name, "instant") for name in ("unix_micros", "unix_seconds", "unix_millis")},
    "from_utc_timestamp": _of("from_utc_timestamp", "timestamp", ""),
    "to_utc_timestamp": _of("to_utc_timestamp", "clock", ""),
    "convert_timezone": lambda args: (
        _of("convert_timezone", "", "timestamp_ntz")(args) or _of("convert_timezone", "", "", "timestamp_ntz")(args)
    ),
    **{name: _of(name, "time") for name in ("time_to_micros", "time_to_millis", "time_to_seconds")},
    "make_dt_interval": _zeros("make_dt_interval", 4),
    "make_ym_interval": _zeros("make_ym_interval", 2),
    "make_interval": _zeros("make_interval", 7),
    "try_make_interval": _zeros("try_make_interval", 7),
    "date_sub": _days("date_sub"),
    **dict.fromkeys(("date_part", "datepart"), _part),
    "year": _function_of_part("year", "part_year"),
    "quarter": _function_of_part("quarter", "part_quarter"),
    "month": _function_of_part("month", "part_month"),
    "weekofyear": _function_of_part("weekofyear", "part_week"),
    **{name: _function_of_part(name, "part_day", is_interval=True) for name in ("day", "dayofmonth")},
    "dayofweek": _function_of_part("dayofweek", "part_dayofweek"),
    "dayofyear": _function_of_part("dayofyear", "part_doy"),
    "hour": _function_of_part("hour", "part_hour"),
    "minute": _function_of_part("minute", "part_minute"),
    "second": _function_of_part("second", "whole_second"),
    "months_between": _months_between,
    "date_trunc": lambda args: _truncation(args[::-1], "date_trunc", TIME_UNITS, "truncated"),
    "trunc": lambda args: _truncation(args, "trunc", DATE_UNITS, "truncated_date"),
    "date_format": _date_format,
    **{name: _to_char(name) for name in ("to_char", "to_varchar")},
    "from_unixtime": _from_unixtime,
    **{name: _reading(name, "timestamp") for name in ("to_timestamp", "to_timestamp_ltz")},
    "to_timestamp_ntz": _reading("to_timestamp_ntz", "timestamp_ntz"),
    "try_to_timestamp": _reading("try_to_timestamp", "timestamp", is_try=True),
    "to_date": _reading("to_date", "date"),
    "try_to_date": _reading("try_to_date", "date", is_try=True),
    "to_time": _reading("to_time", "time"),
    "try_to_time": _reading("try_to_time", "time", is_try=True),
    "date": _reading("date", "date"),
    "timestamp": _reading("timestamp", "timestamp"),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), _unix_timestamp),
    **{name: _difference(name) for name in ("datediff", "date_diff")},
    **{name: _difference("timestampdiff") for name in ("timestampdiff", "timediff")},
    **{name: _addition(name) for name in ("date_add", "dateadd", "timestampadd")},
    **{name: _of_time(name) for name in ("time_trunc", "time_diff")},
    "time_bucket": _bucket,
}

SAME = frozenset({
    "curdate", "current_date", "current_time", "current_timestamp", "extract", "localtimestamp", "now",
})  # fmt: skip
