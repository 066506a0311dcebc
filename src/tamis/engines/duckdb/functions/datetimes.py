"""Spark's functions of dates, timestamps, times of day and intervals as DuckDB expressions.

The macros are in `engines.duckdb.macros.datetime_macros`. Beside this module, `datetime_patterns` translates patterns,
`datetime_casts` translates casts and EXTRACT, and `intervals` translates the arithmetic of intervals.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from sqlglot import exp

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
from tamis.engines.duckdb.translate.calls import (
    Build,
    BuildNamed,
    CallMacro,
    CallTyped,
    Rows,
    Same,
    call_duckdb,
    call_macro,
    call_typed,
    has_null,
    join_texts,
    make_unsupported_error,
    read_constant,
)

_FIELD_MACROS = {"weekofyear": "part_week", "dayofyear": "part_doy", "second": "whole_second"}


def _build_field(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    if infer_interval_fields(args[0]) is not None:
        raise make_unsupported_error(name, "it takes a date or a timestamp: write EXTRACT for an interval")
    return call_macro(_FIELD_MACROS.get(name, f"part_{name}"), args[0])


def _build_truncation(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    (value, unit), units, macro = (
        (args, DATE_UNITS, "truncated_date") if name == "trunc" else (args[::-1], TIME_UNITS, "truncated")
    )
    text = read_constant(name, "unit", unit)
    if text.lower() not in units:
        # Spark returns NULL, and DuckDB supports decades and centuries: an unknown unit is a mistake in both.
        known = ", ".join(dict.fromkeys(units.values()))
        raise make_unsupported_error(name, f"'{text}' is not a unit of time. Units: {known}")
    unit = exp.Literal.string(units[text.lower()])
    return call_macro(macro, value if name == "trunc" else call_macro("as_timestamp", value), unit)


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
    return join_texts(*parts)


def _build_date_format(args: Sequence[exp.Expr]) -> exp.Expr | None:
    return _build_formatting(
        "date_format", call_macro("as_clock", args[0]), read_constant("date_format", "pattern", args[1])
    )


def build_time_text(name: str, value: exp.Expr, pattern: str) -> exp.Expr:
    """Build the text of a date or a timestamp; a pattern of digits would format a number."""
    if re.fullmatch(r"[09.,GDSLMIPR$]+", pattern) and re.search("[09]", pattern):
        raise make_unsupported_error(name, "patterns of digits are not supported here")
    return _build_formatting(name, call_macro("as_printed", value), pattern)


_DEFAULT_PATTERN = "yyyy-MM-dd HH:mm:ss"


def _build_from_unixtime(args: Sequence[exp.Expr]) -> exp.Expr | None:
    pattern = read_constant("from_unixtime", "pattern", args[1]) if len(args) == 2 else _DEFAULT_PATTERN
    seconds = call_macro("timestamp_seconds", exp.cast(args[0], "bigint"))
    return _build_formatting("from_unixtime", call_macro("as_clock", seconds), pattern)


def _build_parsing(name: str, args: Sequence[exp.Expr], *, is_try: bool, wants_time: bool = False) -> exp.Expr:
    """Build the timestamp of a text in a pattern, in the zone of the text if it has one."""
    try:
        parsed: ParsedPattern = compile_parse_pattern(read_constant(name, "pattern", args[1]))
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


def _build_cast_or_parsing(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Build `to_timestamp` and the like: a cast without a pattern, and else a parser."""
    kind, is_try = name.removeprefix("try_").removeprefix("to_").removesuffix("_ltz"), name.startswith("try_")
    cast = f"{'try_' if is_try else ''}as_{kind}"
    if len(args) == 1:
        return call_macro("to_timestamp_of" if cast == "as_timestamp" else cast, args[0])
    if kind == "time":
        return _build_parsing(name, args, is_try=is_try, wants_time=True)
    found = call_macro("pick_timestamp", args[0], _build_parsing(name, args, is_try=is_try))
    return found if kind == "timestamp" else call_macro(f"as_{kind}", found)


def _build_unix_timestamp(args: Sequence[exp.Expr]) -> exp.Expr:
    pattern = args[1] if len(args) == 2 else exp.Literal.string(_DEFAULT_PATTERN)
    parsed = _build_parsing("unix_timestamp", [args[0], pattern], is_try=False)
    return call_macro("whole_seconds", call_macro("pick_timestamp", args[0], parsed))


_UNIT_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_TIME_UNIT_MICROSECONDS = {"hour": HOUR, "minute": MINUTE, "second": 1_000_000, "millisecond": 1_000, "microsecond": 1}
_UNIT_MICROSECONDS = _TIME_UNIT_MICROSECONDS | {"day": DAY, "dayofyear": DAY, "week": 7 * DAY}


def _read_unit(name: str, node: exp.Expr) -> str:
    """Return the unit of `dateadd(HOUR, 1, x)`, which has no quotes."""
    found = node.name.lower() if isinstance(node, exp.Column | exp.Var | exp.Identifier) else ""
    if found not in _UNIT_MONTHS and found not in _UNIT_MICROSECONDS:
        units = ", ".join((*_UNIT_MICROSECONDS, *_UNIT_MONTHS)).upper()
        raise make_unsupported_error(name, f"{node.sql('spark')} is not a unit. Units, without quotes: {units}")
    return found


def _build_difference(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    if len(args) == 2:
        return call_typed("days_between", args, CallTyped("date date"))
    unit = _read_unit(name, args[0])
    macro, size = (
        ("between_months", _UNIT_MONTHS[unit]) if unit in _UNIT_MONTHS else ("between_units", _UNIT_MICROSECONDS[unit])
    )
    return call_typed(macro, [*args[1:], exp.Literal.number(size)], CallTyped("clock clock any"))


def _build_addition(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) == 2:
        return _build_day("date_add", args)
    unit = _read_unit(name, args[0])
    if has_null(args):
        return exp.Null()
    if unit in _UNIT_MONTHS:
        function, size = "to_months", _UNIT_MONTHS[unit]
    elif unit in ("day", "dayofyear", "week"):
        function, size = "to_days", _UNIT_MICROSECONDS[unit] // DAY
    else:
        function, size = "to_microseconds", _UNIT_MICROSECONDS[unit]
    count = exp.cast(exp.Paren(this=args[1]), "bigint")
    total: exp.Expr = exp.Paren(this=exp.Mul(this=count, expression=exp.Literal.number(size)))
    total = total if function == "to_microseconds" else exp.cast(total, "int")
    return call_macro("moved", args[2], call_duckdb(function, total))


def _build_day(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    days = args[1].unnest()
    digits = days.this if isinstance(days, exp.Neg) else days
    is_fraction = isinstance(digits, exp.Literal) and not digits.is_string and not digits.name.isdecimal()
    kind = getattr(days.args["to"].this, "name", "") if isinstance(days, exp.Cast) else ""
    if is_fraction or kind in ("BIGINT", "DECIMAL", "DOUBLE", "FLOAT") or infer_interval_fields(days) is not None:
        raise make_unsupported_error(name, "days must be an int, a smallint or a tinyint")
    return call_typed(name, args, CallTyped("date any"))


def _build_months_between(args: Sequence[exp.Expr]) -> exp.Expr:
    rounds = [exp.true()] if len(args) == 2 else []
    return call_typed("months_between", [*args, *rounds], CallTyped("clock clock any"))


def _build_convert_timezone(args: Sequence[exp.Expr]) -> exp.Expr:
    kinds = "any timestamp_ntz" if len(args) == 2 else "any any timestamp_ntz"
    return call_typed("convert_timezone", args, CallTyped(kinds))


_INTERVAL_FIELDS = {"make_dt_interval": 4, "make_ym_interval": 2, "make_interval": 7, "try_make_interval": 7}


def _build_interval(name: str, args: Sequence[exp.Expr]) -> exp.Expr:
    """Build an interval from its fields; missing ones are 0."""
    return call_macro(name, *args, *(exp.Literal.number(0) for _ in range(_INTERVAL_FIELDS[name] - len(args))))


def _build_time(name: str, args: Sequence[exp.Expr]) -> exp.Expr | None:
    """Build `time_trunc` or `time_diff`, whose unit is a text."""
    unit = _TIME_UNIT_MICROSECONDS.get(read_constant(name, "unit", args[0]).lower())
    if unit is None:
        raise make_unsupported_error(
            name, f"{args[0].sql('spark')} is not a unit. Units: {', '.join(_TIME_UNIT_MICROSECONDS)}"
        )
    if name == "time_trunc":
        return call_macro("cut_time", call_macro("as_time", args[1]), exp.Literal.number(unit))
    return call_typed("between_units", [*args[1:], exp.Literal.number(unit)], CallTyped("time time any"))


def _build_time_bucket(args: Sequence[exp.Expr]) -> exp.Expr | None:
    if len(args) != 2:
        raise make_unsupported_error("time_bucket", "it takes an interval and a timestamp here: buckets start at 1970")
    return call_duckdb("timezone", exp.Literal.string("UTC"), call_typed("time_bucket", args, CallTyped("any clock")))


ROWS: Rows = (
    (
        "dayname monthname weekday last_day unix_date date_from_unix_date make_date timestamp_seconds timestamp_millis "
        "timestamp_micros make_timestamp make_timestamp_ltz make_timestamp_ntz try_make_timestamp "
        "try_make_timestamp_ltz try_make_timestamp_ntz make_time time_from_micros time_from_millis time_from_seconds",
        CallMacro(),
    ),
    ("add_months next_day", CallTyped("date any")),
    ("unix_micros unix_seconds unix_millis", CallTyped("instant")),
    ("from_utc_timestamp", CallTyped("timestamp any")),
    ("to_utc_timestamp", CallTyped("clock any")),
    ("convert_timezone", Build(_build_convert_timezone, (2, 3))),
    ("time_to_micros time_to_millis time_to_seconds", CallTyped("time")),
    *(
        (name, BuildNamed(_build_interval, tuple(range(most + 1)), propagates_null=True))
        for name, most in _INTERVAL_FIELDS.items()
    ),
    ("date_sub", BuildNamed(_build_day, (2,))),
    (
        "date_part datepart",
        Build(lambda args: extract_field(read_constant("date_part", "field", args[0]), args[1]), (2,)),
    ),
    (
        "year quarter month weekofyear dayofweek dayofyear hour minute second",
        BuildNamed(_build_field, (1,), propagates_null=True),
    ),
    ("day", CallTyped("any", "part_day")),
    ("months_between", Build(_build_months_between, (2, 3), propagates_null=True)),
    ("date_trunc trunc", BuildNamed(_build_truncation, (2,), propagates_null=True)),
    ("date_format", Build(_build_date_format, (2,), propagates_null=True)),
    ("from_unixtime", Build(_build_from_unixtime, (1, 2), propagates_null=True)),
    (
        "to_timestamp to_timestamp_ltz to_timestamp_ntz try_to_timestamp to_date try_to_date to_time try_to_time",
        BuildNamed(_build_cast_or_parsing, (1, 2), propagates_null=True),
    ),
    ("unix_timestamp to_unix_timestamp", Build(_build_unix_timestamp, (1, 2), propagates_null=True)),
    ("datediff date_diff", BuildNamed(_build_difference, (2, 3))),
    ("timestampdiff timediff", BuildNamed(_build_difference, (3,))),
    ("date_add dateadd", BuildNamed(_build_addition, (2, 3))),
    ("timestampadd", BuildNamed(_build_addition, (3,))),
    ("time_trunc", BuildNamed(_build_time, (2,), propagates_null=True)),
    ("time_diff", BuildNamed(_build_time, (3,), propagates_null=True)),
    ("time_bucket", Build(_build_time_bucket)),
    ("curdate current_date current_time current_timestamp extract localtimestamp now", Same()),
)
