"""Casts from and to dates, timestamps and times of day, and `EXTRACT`, as DuckDB expressions.

Spark casts between timestamps and numbers of seconds since 1970. It does not cast dates and timestamps without a time
zone from or to numbers.
"""

from __future__ import annotations

import re

from sqlglot import exp

from tamis.engines.duckdb.functions.intervals import extract_interval_field, infer_interval_fields
from tamis.engines.duckdb.functions.lambdas import let
from tamis.engines.duckdb.translate import calls
from tamis.expr.functions.table import ENGINE_FUNCTIONS, FUNCTIONS

_FIELDS = {
    **{field: row.name for row in (*FUNCTIONS.values(), *ENGINE_FUNCTIONS.values()) for field in row.extracted_as},
    "yearofweek": "yearofweek",
    **dict.fromkeys(("week", "w", "weeks"), "week"),
    **dict.fromkeys(("dayofweek", "dow"), "dayofweek"),
    **dict.fromkeys(("dayofweek_iso", "dow_iso"), "dayofweek_iso"),
    "doy": "doy",
}
"""The fields of `extract` by their names and aliases."""


_FLOOR_SECONDS = "(epoch_us(x) - (epoch_us(x) % 1000000 + 1000000) % 1000000) // 1000000"


def _define_datetime_casts(prefix: str) -> calls.Macros:
    """Return casts of values of any type. Casts with the prefix `try_` return NULL for invalid values, but fail for
    other types."""
    cast = "TRY_CAST" if prefix else "CAST"

    def no_cast(target: str) -> str:
        found = f"error(lower(typeof(x)) || ' cannot be cast to a {target.lower().split()[0]}')"
        return f"CASE WHEN x IS NOT NULL THEN CAST({found} AS {target}) END"

    def of_micros(number: str) -> str:
        return f"make_timestamptz({cast}({number} AS BIGINT))"

    invalid = (
        "NULL" if prefix else "error('a number that is not finite is not a timestamp: correct it, or use TRY_CAST')"
    )
    found = calls.define_by_type(
        f"{prefix}date_cast",
        {
            "VARCHAR": f"spark_{prefix}text_date(x)",
            "DATE | TIMESTAMP | TIMESTAMPTZ": "CAST(x AS DATE)",
            "": no_cast("DATE"),
        },
    )
    found |= calls.define_by_type(
        f"{prefix}timestamp_cast",
        {
            "VARCHAR": f"spark_{prefix}text_timestamp(x)",
            "DATE | TIMESTAMP | TIMESTAMPTZ": "CAST(x AS TIMESTAMPTZ)",
            "BIGINT | HUGEINT": of_micros("CAST(x AS HUGEINT) * 1000000"),
            "DOUBLE | FLOAT": f"CASE WHEN isfinite(CAST(x AS DOUBLE)) "
            f"THEN {of_micros('trunc(CAST(x AS DOUBLE) * 1000000)')} WHEN x IS NOT NULL THEN {invalid} END",
            "DECIMAL(18, 3)": "CASE WHEN CAST(x AS DECIMAL(28, 9)) <> x "
            "THEN error('a timestamp has at most 6 digits of a second: round the number') "
            f"ELSE {of_micros('trunc(CAST(x AS DECIMAL(28, 9)) * CAST(1000000 AS DECIMAL(7, 0)))')} END",
            "": no_cast("TIMESTAMP WITH TIME ZONE"),
        },
    )
    found |= calls.define_by_type(
        f"{prefix}timestamp_ntz_cast",
        {
            "VARCHAR": f"spark_{prefix}text_timestamp_ntz(x)",
            "DATE | TIMESTAMP": "CAST(x AS TIMESTAMP)",
            "TIMESTAMPTZ": "timezone('UTC', x)",
            "": no_cast("TIMESTAMP"),
        },
    )
    return found


def _define_integer_casts() -> calls.Macros:
    found: calls.Macros = {}
    for prefix, cast in {"": "CAST", "plain_": "CAST", "try_": "TRY_CAST"}.items():
        for name in ("tinyint", "smallint", "integer", "bigint"):
            bodies = {"TIMESTAMPTZ": f"{cast}({_FLOOR_SECONDS} AS {name})", "": f"spark_{prefix}{name}(x)"}
            found |= calls.define_by_type(f"{prefix}{name}_cast", bodies)
    return found


MACROS: calls.Macros = {**_define_datetime_casts(""), **_define_datetime_casts("try_"), **_define_integer_casts()}


def extract_field(name: str, value: exp.Expr) -> exp.Expr:
    """Return a field of a date, a timestamp, a time of day or an interval."""
    field = _FIELDS.get(name.lower())
    if field is None:
        raise calls.make_unsupported_error(
            "EXTRACT", f"there is no field {name}. Fields: {', '.join(dict.fromkeys(_FIELDS.values()))}"
        )
    if isinstance(value, exp.Null):
        return exp.Null()
    if infer_interval_fields(value) is not None:
        return extract_interval_field(field, value)
    return calls.call_macro(f"part_{field}", value)


_KINDS = {
    **dict.fromkeys(("TIMESTAMP", "TIMESTAMPTZ", "TIMESTAMPLTZ"), "timestamp"),
    **{"DATE": "date", "TIMESTAMPNTZ": "timestamp_ntz", "TIME": "time"},
}
_SPECIAL_DATES = {"epoch": None, "now": 0, "today": 0, "tomorrow": 1, "yesterday": -1}
"""Constants that Spark reads as days: their distance from today in days, None for 1970-01-01."""
_NUMBERS = frozenset(("TINYINT", "SMALLINT", "INT", "BIGINT", "DECIMAL"))
_TIME_CALLS = frozenset(
    f"{calls.MACRO_PREFIX}{name}" for name in ("as_time", "cut_time", "make_time", "text_time", "parsed_time")
)
_EXACT_DATE = re.compile("[0-9]{4}-[0-9]{2}-[0-9]{2}")


def translate_datetime(node: exp.Expr) -> exp.Expr | None:
    """Translate `EXTRACT` or a cast to a date, a timestamp or a time of day; return None for other nodes."""
    if isinstance(node, exp.Extract):
        return extract_field(node.this.name, node.expression)
    if not isinstance(node, exp.Cast):
        return None
    target = node.args["to"]
    name = getattr(target.this, "name", "")
    kind = _KINDS.get(name)
    value = calls.strip_parentheses(node.this)
    if name in _NUMBERS and isinstance(value, exp.Anonymous) and value.name.lower() in _TIME_CALLS:
        seconds = calls.call_macro("time_to_seconds", value)
        return exp.Cast(this=seconds if name == "DECIMAL" else calls.call_duckdb("trunc", seconds), to=target)
    if kind is None or target.args.get("nested") or isinstance(value, exp.Null):
        return None
    if infer_interval_fields(value) is not None:
        raise calls.make_unsupported_error("CAST", f"an interval cannot be cast to a {kind}")
    is_try = isinstance(node, exp.TryCast) and bool(node.args.get("safe"))
    prefix = "try_" if is_try else ""
    text = calls.read_string_literal(value)
    if kind == "date" and text is not None and _EXACT_DATE.fullmatch(text):
        return exp.TryCast(this=value, to=target) if is_try else exp.Cast(this=value, to=target)
    if kind == "time":
        found = calls.call_macro(f"{prefix}as_time", node.this)
        digits = int(target.expressions[0].name) if target.expressions else 6
        if digits > 6:
            raise calls.make_unsupported_error("TIME", "a time of day has at most 6 digits of a second")
        if digits == 6 or text is not None:
            return found
        return calls.call_macro("cut_time", found, exp.Literal.number(10 ** (6 - digits)))
    if text is not None and text.strip().lower() in _SPECIAL_DATES:
        days = _SPECIAL_DATES[text.strip().lower()]
        day: exp.Expr = exp.cast(exp.Literal.string("1970-01-01"), "date") if days is None else exp.CurrentDate()
        if text.strip().lower() == "now" and kind != "date":
            return exp.Cast(this=exp.CurrentTimestamp(), to=target)
        return exp.Cast(this=exp.Paren(this=exp.Add(this=day, expression=exp.Literal.number(days or 0))), to=target)
    if text is not None:
        return calls.call_macro(f"{prefix}text_{kind}", node.this)
    # The outer cast repeats the type, which shows it to the operators around the value.
    if calls.has_aggregate_or_window(value):
        # DuckDB knows the type of an aggregate only if it is bound to a name.
        inner = calls.call_by_type(f"{prefix}{kind}_cast", exp.column("cast_value"))
        return let("cast_value", node.this, exp.Cast(this=inner, to=target))
    return exp.Cast(this=calls.call_by_type(f"{prefix}{kind}_cast", node.this), to=target)
