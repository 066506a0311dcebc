"""Spark's functions of dates, timestamps, times of day and intervals as DuckDB expressions.

`MACROS` holds the macros, `BUILDERS` builds a macro call or another DuckDB expression from the arguments of a function,
and `SAME` names the functions that sqlglot's translation, or DuckDB's function of that name, computes as Spark does.

The macros are in `engines.duckdb.macros.datetime_macros`. Beside this module, `datetime_patterns` translates patterns,
`datetime_casts` translates casts and EXTRACT, and `intervals` translates the arithmetic of intervals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

from tamis.engines.duckdb.functions.datetime_casts import MACROS as _CAST_MACROS
from tamis.engines.duckdb.functions.datetime_casts import extract_field
from tamis.engines.duckdb.functions.datetime_patterns import (
    DATE_UNITS,
    TIME_UNITS,
    ParsedPattern,
    UnsupportedPattern,
    compile_parse_pattern,
    split_format_pattern,
)
from tamis.engines.duckdb.functions.intervals import infer_interval_fields
from tamis.engines.duckdb.macros.datetime_macros import DAY, HOUR, MINUTE
from tamis.engines.duckdb.macros.datetime_macros import MACROS as _TIME_MACROS
from tamis.engines.duckdb.translate.calls import (
    CallBuilder,
    Macros,
    call_duckdb,
    call_macro,
    make_macro_builder,
    make_unsupported_error,
    read_string_literal,
)

MACROS: Macros = {**_TIME_MACROS, **_CAST_MACROS}


def _make_macro_builder(name: str) -> CallBuilder:
    return make_macro_builder(name, MACROS)


def _make_casting_builder(name: str, *kinds: str) -> CallBuilder:
    """Return a builder that casts each argument to a kind (date, timestamp, …) before it calls a macro.

    An argument with an empty kind stays unchanged. The macro cannot cast by itself: the casts have overloads, which a
    macro must not call with an argument of unknown type.
    """

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != len(kinds):
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        return call_macro(
            name, *(call_macro(f"as_{kind}", arg) if kind else arg for kind, arg in zip(kinds, args, strict=True))
        )

    return build


def _build_date_part(args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `date_part('field', x)`."""
    if len(args) != 2:
        return None
    name = read_string_literal(args[0])
    if name is None:
        raise make_unsupported_error("date_part", "its field must be a constant")
    return extract_field(name, args[1])


def _make_field_builder(name: str, macro_name: str, *, is_interval: bool = False) -> CallBuilder:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 1:
            return None
        if isinstance(args[0], exp.Null):
            return exp.Null()
        if infer_interval_fields(args[0]) is not None and not is_interval:
            raise make_unsupported_error(name, "it takes a date or a timestamp: write EXTRACT for an interval")
        return call_macro(macro_name, args[0])

    return build


def _build_truncation(args: Sequence[exp.Expr], name: str, units: dict[str, str], macro_name: str) -> exp.Expr | None:
    if len(args) != 2:
        return None
    value, unit = args
    if isinstance(unit, exp.Null) or isinstance(value, exp.Null):
        return exp.Null()
    text = read_string_literal(unit)
    if text is None:
        raise make_unsupported_error(name, "its unit must be a constant")
    if text.lower() not in units:
        # Spark returns NULL, and DuckDB supports decades and centuries: an unknown unit is a mistake in both.
        known = ", ".join(dict.fromkeys(units.values()))
        raise make_unsupported_error(name, f"'{text}' is not a unit of time. Units: {known}")
    unit = exp.Literal.string(units[text.lower()])
    return call_macro(macro_name, value if name == "trunc" else call_macro("as_timestamp", value), unit)


def _read_constant(name: str, role: str, node: exp.Expr) -> str:
    text = read_string_literal(node)
    if text is None:
        raise make_unsupported_error(name, f"its {role} must be a constant")
    return text


def _build_formatting(name: str, value: exp.Expr, pattern: str) -> exp.Expr:
    try:
        tokens = split_format_pattern(pattern)
    except UnsupportedPattern as reason:
        raise make_unsupported_error(name, str(reason)) from None
    parts: list[exp.Expr] = [
        exp.Literal.string(text)
        if kind == "text"
        else call_duckdb("strftime", value.copy(), exp.Literal.string(text))
        if kind == "strftime"
        else call_macro(f"format_{kind}", value.copy(), exp.Literal.number(text))
        for kind, text in tokens
    ]
    if not parts or all(isinstance(part, exp.Literal) for part in parts):
        # This part is empty, and NULL if the value is NULL.
        parts.append(
            call_duckdb("left", call_duckdb("strftime", value, exp.Literal.string("%Y")), exp.Literal.number(0))
        )
    joined = parts[0]
    for part in parts[1:]:
        joined = exp.DPipe(this=joined, expression=part)
    return exp.Paren(this=joined)


def _build_date_format(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        return None
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    return _build_formatting(
        "date_format", call_macro("as_clock", args[0]), _read_constant("date_format", "pattern", args[1])
    )


def _make_to_char_builder(name: str) -> CallBuilder:
    """Return a builder for `to_char` of dates and times; a pattern of digits would format a number."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            return None
        pattern = _read_constant(name, "pattern", args[1])
        if re.fullmatch(r"[09.,GDSLMIPR$]+", pattern) and re.search("[09]", pattern):
            raise make_unsupported_error(name, "patterns of digits are not supported here")
        return _build_formatting(name, call_macro("as_printed", args[0]), pattern)

    return build


_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"


def _build_from_unixtime(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (1, 2):
        return None
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    pattern = _read_constant("from_unixtime", "pattern", args[1]) if len(args) == 2 else _DEFAULT_PATTERN
    seconds = call_macro("timestamp_seconds", exp.cast(args[0], "bigint"))
    return _build_formatting("from_unixtime", call_macro("as_clock", seconds), pattern)


def _build_parsing(name: str, args: Sequence[exp.Expr], *, is_try: bool, wants_time: bool = False) -> exp.Expr:
    """Build the timestamp of a text in a pattern, in the zone of the text if it has one."""
    try:
        parsed: ParsedPattern = compile_parse_pattern(_read_constant(name, "pattern", args[1]))
    except UnsupportedPattern as reason:
        raise make_unsupported_error(name, str(reason)) from None
    shape = exp.Literal.string(parsed.shape)
    # DuckDB binds all arguments before it picks an overload, even where the value is a date. This is DuckDB's cast,
    # because Spark's may raise an error, and TRY does not accept that.
    text = call_duckdb("cast_to_type", args[0].copy(), exp.Literal.string(""))
    groups = {
        letter: call_duckdb("regexp_extract", text.copy(), shape.copy(), exp.Literal.number(number))
        for letter, number in parsed.groups.items()
    }
    parts = [groups.get(letter, exp.Literal.string("")) for letter in ("y", "r", "M", "N", "d", "D", "H", "h", "a")]
    parts += [groups.get(letter, exp.Literal.string("")) for letter in ("m", "s", "S", "z")]
    prefix = "try_" if is_try else ""
    kind = "time" if wants_time else "timestamp"
    return call_macro(f"{prefix}parsed_{kind}", text, shape, *parts)


def _make_parsing_builder(name: str, kind: str, *, is_try: bool = False) -> CallBuilder:
    """Return a builder for `to_timestamp` and the like: a cast without a pattern, and else a parser."""
    cast = f"{'try_' if is_try else ''}as_{kind}"

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) not in (1, 2):
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        if len(args) == 1:
            return call_macro("to_timestamp_of" if cast == "as_timestamp" else cast, args[0])
        if kind == "time":
            return _build_parsing(name, args, is_try=is_try, wants_time=True)
        found = call_macro("pick_timestamp", args[0], _build_parsing(name, args, is_try=is_try))
        return found if kind == "timestamp" else call_macro(f"as_{kind}", found)

    return build


def _build_unix_timestamp(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (1, 2):
        return None
    if isinstance(args[0], exp.Null):
        return exp.Null()
    pattern = args[1] if len(args) == 2 else exp.Literal.string(_DEFAULT_PATTERN)
    if isinstance(pattern, exp.Null):
        return exp.Null()
    parsed = _build_parsing("unix_timestamp", [args[0], pattern], is_try=False)
    return call_macro("whole_seconds", call_macro("pick_timestamp", args[0], parsed))


_UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_UNIT_MICROSECONDS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "dayofyear": DAY,
    "week": 7 * DAY,
}


def _read_unit(name: str, node: exp.Expr) -> str:
    """Return the unit of `dateadd(HOUR, 1, x)`, which has no quotes."""
    found = node.name.lower() if isinstance(node, exp.Column | exp.Var | exp.Identifier) else ""
    if found not in _UNIT_MONTHS and found not in _UNIT_MICROSECONDS:
        units = ", ".join((*_UNIT_MICROSECONDS, *_UNIT_MONTHS)).upper()
        raise make_unsupported_error(name, f"{node.sql('spark')} is not a unit. Units, without quotes: {units}")
    return found


def _make_difference_builder(name: str) -> CallBuilder:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) == 2 and name != "timestampdiff":
            return _make_casting_builder("days_between", "date", "date")(args)
        if len(args) != 3:
            return None
        unit = _read_unit(name, args[0])
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        if unit in _UNIT_MONTHS:
            return _make_casting_builder("between_months", "clock", "clock", "")(
                [*args[1:], exp.Literal.number(_UNIT_MONTHS[unit])]
            )
        return _make_casting_builder("between_units", "clock", "clock", "")(
            [*args[1:], exp.Literal.number(_UNIT_MICROSECONDS[unit])]
        )

    return build


def _make_addition_builder(name: str) -> CallBuilder:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) == 2 and name != "timestampadd":
            return _make_day_builder("date_add")(args)
        if len(args) != 3:
            return None
        unit = _read_unit(name, args[0])
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        count = exp.cast(exp.Paren(this=args[1]), "bigint")
        if unit in _UNIT_MONTHS:
            months = exp.Mul(this=count, expression=exp.Literal.number(_UNIT_MONTHS[unit]))
            return call_macro("moved", args[2], call_duckdb("to_months", exp.cast(exp.Paren(this=months), "int")))
        if unit in ("day", "dayofyear", "week"):
            days = exp.Mul(this=count, expression=exp.Literal.number(_UNIT_MICROSECONDS[unit] // DAY))
            return call_macro("moved", args[2], call_duckdb("to_days", exp.cast(exp.Paren(this=days), "int")))
        micros = exp.Mul(this=count, expression=exp.Literal.number(_UNIT_MICROSECONDS[unit]))
        return call_macro("moved", args[2], call_duckdb("to_microseconds", exp.Paren(this=micros)))

    return build


def _make_day_builder(name: str) -> CallBuilder:
    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != 2:
            raise make_unsupported_error(name, "it takes a date and a number of days")
        days = args[1].unnest()
        digits = days.this if isinstance(days, exp.Neg) else days
        is_fraction = isinstance(digits, exp.Literal) and not digits.is_string and not digits.name.isdecimal()
        kind = getattr(days.args["to"].this, "name", "") if isinstance(days, exp.Cast) else ""
        if is_fraction or kind in ("BIGINT", "DECIMAL", "DOUBLE", "FLOAT") or infer_interval_fields(days) is not None:
            raise make_unsupported_error(name, "days must be an int, a smallint or a tinyint")
        return _make_casting_builder(name, "date", "")(args)

    return build


def _build_months_between(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) not in (2, 3):
        return None
    if any(isinstance(arg, exp.Null) for arg in args):
        return exp.Null()
    return _make_casting_builder("months_between", "clock", "clock", "")(
        [*args, *([exp.true()] if len(args) == 2 else [])]
    )


def _make_zero_filled_builder(name: str, size: int) -> CallBuilder:
    """Return a builder for a function whose missing arguments are 0."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) > size:
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        missing = [exp.Literal.number(0) for _ in range(size - len(args))]
        return call_macro(name, *args, *missing)

    return build


_TIME_UNIT_MICROSECONDS = {"hour": HOUR, "minute": MINUTE, "second": 1_000_000, "millisecond": 1_000, "microsecond": 1}


def _make_time_builder(name: str) -> CallBuilder:
    """Return a builder for `time_trunc` or `time_diff`, whose unit is a text."""

    def build(args: Sequence[exp.Expr]) -> exp.Expr | None:
        if len(args) != (2 if name == "time_trunc" else 3):
            return None
        if any(isinstance(arg, exp.Null) for arg in args):
            return exp.Null()
        unit = _TIME_UNIT_MICROSECONDS.get(_read_constant(name, "unit", args[0]).lower())
        if unit is None:
            raise make_unsupported_error(
                name, f"{args[0].sql('spark')} is not a unit. Units: {', '.join(_TIME_UNIT_MICROSECONDS)}"
            )
        if name == "time_trunc":
            return call_macro("cut_time", call_macro("as_time", args[1]), exp.Literal.number(unit))
        return _make_casting_builder("between_units", "time", "time", "")([*args[1:], exp.Literal.number(unit)])

    return build


def _build_time_bucket(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        raise make_unsupported_error("time_bucket", "it takes an interval and a timestamp here: buckets start at 1970")
    found = _make_casting_builder("time_bucket", "", "clock")(args)
    return None if found is None else call_duckdb("timezone", exp.Literal.string("UTC"), found)


BUILDERS: dict[str, CallBuilder] = {
    **{
        name: _make_macro_builder(name)
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
    "add_months": _make_casting_builder("add_months", "date", ""),
    "next_day": _make_casting_builder("next_day", "date", ""),
    **{name: _make_casting_builder(name, "instant") for name in ("unix_micros", "unix_seconds", "unix_millis")},
    "from_utc_timestamp": _make_casting_builder("from_utc_timestamp", "timestamp", ""),
    "to_utc_timestamp": _make_casting_builder("to_utc_timestamp", "clock", ""),
    "convert_timezone": lambda args: (
        _make_casting_builder("convert_timezone", "", "timestamp_ntz")(args)
        or _make_casting_builder("convert_timezone", "", "", "timestamp_ntz")(args)
    ),
    **{name: _make_casting_builder(name, "time") for name in ("time_to_micros", "time_to_millis", "time_to_seconds")},
    "make_dt_interval": _make_zero_filled_builder("make_dt_interval", 4),
    "make_ym_interval": _make_zero_filled_builder("make_ym_interval", 2),
    "make_interval": _make_zero_filled_builder("make_interval", 7),
    "try_make_interval": _make_zero_filled_builder("try_make_interval", 7),
    "date_sub": _make_day_builder("date_sub"),
    **dict.fromkeys(("date_part", "datepart"), _build_date_part),
    "year": _make_field_builder("year", "part_year"),
    "quarter": _make_field_builder("quarter", "part_quarter"),
    "month": _make_field_builder("month", "part_month"),
    "weekofyear": _make_field_builder("weekofyear", "part_week"),
    **{name: _make_field_builder(name, "part_day", is_interval=True) for name in ("day", "dayofmonth")},
    "dayofweek": _make_field_builder("dayofweek", "part_dayofweek"),
    "dayofyear": _make_field_builder("dayofyear", "part_doy"),
    "hour": _make_field_builder("hour", "part_hour"),
    "minute": _make_field_builder("minute", "part_minute"),
    "second": _make_field_builder("second", "whole_second"),
    "months_between": _build_months_between,
    "date_trunc": lambda args: _build_truncation(args[::-1], "date_trunc", TIME_UNITS, "truncated"),
    "trunc": lambda args: _build_truncation(args, "trunc", DATE_UNITS, "truncated_date"),
    "date_format": _build_date_format,
    **{name: _make_to_char_builder(name) for name in ("to_char", "to_varchar")},
    "from_unixtime": _build_from_unixtime,
    **{name: _make_parsing_builder(name, "timestamp") for name in ("to_timestamp", "to_timestamp_ltz")},
    "to_timestamp_ntz": _make_parsing_builder("to_timestamp_ntz", "timestamp_ntz"),
    "try_to_timestamp": _make_parsing_builder("try_to_timestamp", "timestamp", is_try=True),
    "to_date": _make_parsing_builder("to_date", "date"),
    "try_to_date": _make_parsing_builder("try_to_date", "date", is_try=True),
    "to_time": _make_parsing_builder("to_time", "time"),
    "try_to_time": _make_parsing_builder("try_to_time", "time", is_try=True),
    **dict.fromkeys(("unix_timestamp", "to_unix_timestamp"), _build_unix_timestamp),
    **{name: _make_difference_builder(name) for name in ("datediff", "date_diff")},
    **{name: _make_difference_builder("timestampdiff") for name in ("timestampdiff", "timediff")},
    **{name: _make_addition_builder(name) for name in ("date_add", "dateadd", "timestampadd")},
    **{name: _make_time_builder(name) for name in ("time_trunc", "time_diff")},
    "time_bucket": _build_time_bucket,
}

SAME = frozenset({
    "curdate", "current_date", "current_time", "current_timestamp", "extract", "localtimestamp", "now",
})  # fmt: skip
