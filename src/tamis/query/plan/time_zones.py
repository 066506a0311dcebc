"""Session time zones. Spark interprets timestamps without a zone in the session time zone, and computes in it.

Tables and pushed-down filters only know instants: the planner converts the timestamps of a query from its zone to
instants. Other expressions that depend on a zone (`hour(ts)`, `CAST(ts AS DATE)`) stay with Spark unless the zone is
UTC.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import pyarrow as pa
from sqlglot import exp

from tamis import types
from tamis.errors import InvalidArgument
from tamis.expr.datetime_text import parse_timestamp
from tamis.expr.functions.spark_semantics import find_column_type
from tamis.expr.functions.table import is_comparison, is_instant, type_of
from tamis.expr.nodes import Call, Column, Literal, Name, Unbound, replace_columns, transform
from tamis.formats.time_travel import EPOCH

_UTC_NAMES = frozenset(("utc", "etc/utc", "gmt", "etc/gmt", "z", "uct", "etc/uct", "zulu", "etc/zulu", "universal"))
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.IGNORECASE)


_JAVA_NAMES = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's legacy short names of time zones."""


def parse_zone(name: str) -> tzinfo:
    """Return the time zone of a name that Spark accepts.

    >>> parse_zone("Etc/UTC"), parse_zone("GMT+02:00"), parse_zone("Europe/Berlin")
    (datetime.timezone.utc, datetime.timezone(datetime.timedelta(seconds=7200)), zoneinfo.ZoneInfo(key='Europe/Berlin'))
    """
    if name.casefold() in _UTC_NAMES:
        return UTC
    name = _JAVA_NAMES.get(name, name)
    offset = _OFFSET.fullmatch(name)
    if offset is not None:
        sign, *parts = offset.groups(default="0")
        hours, minutes, seconds = map(int, parts)
        shift = timedelta(hours=hours, minutes=minutes, seconds=seconds)
        return timezone(-shift if sign == "-" else shift) if shift else UTC
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError) as error:
        raise InvalidArgument(
            f"unknown time zone {name!r} of the Spark session: set spark.sql.session.timeZone to "
            "another name for it, as in Europe/Berlin or +02:00"
        ) from error


# --- Times without a zone ---------------------------------------------------------------------------------------------

_INSTANTS = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
_FOLDED_FUNCTIONS = frozenset(
    ("to_timestamp", "try_to_timestamp", "to_timestamp_ltz", "timestamp", "date_trunc", "to_date")
)
"""Functions whose constant calls are folded while a query is parsed."""


def add_zone_to_literals(tree: exp.Expr, zone: tzinfo) -> bool:
    """Add the zone to timestamp literals without one, in place; return whether all of them have a zone now."""
    for each in tree.find_all(exp.Cast):
        text = each.this
        if each.to.this in _INSTANTS and isinstance(text, exp.Literal) and text.is_string:
            placed = parse_instant(text.this, zone)
            if placed is not None:
                text.set("this", (EPOCH + timedelta(microseconds=placed)).isoformat())
    calls = (call for call in tree.find_all(exp.Anonymous) if call.name.lower() in _FOLDED_FUNCTIONS)
    return not any(isinstance(arg, exp.Literal | exp.Cast) for call in calls for arg in call.expressions)


def convert_to_instants(expr: Unbound, columns: Mapping[str, pa.DataType | None], zone: tzinfo) -> Unbound:
    """Convert strings and dates that are compared with instants to instants of a zone, in an unbound expression."""

    def data_type(node: Unbound) -> pa.DataType | None:
        if isinstance(node, Name):
            return find_column_type(node, columns)
        # Functions of columns are left to binding, because they may depend on the zone themselves.
        return type_of(replace_columns(node, lambda name: Column(name.path, None)))

    def convert(node: Unbound) -> Unbound:
        if not isinstance(node, Call) or not (is_comparison(node) or node.function == "in"):
            return node
        if not any(is_instant(data_type(arg)) for arg in node.args):
            return node
        return Call(
            node.function, tuple(_to_instant(arg, zone) if isinstance(arg, Literal) else arg for arg in node.args)
        )

    return transform(expr, convert)


def _to_instant(value: Literal, zone: tzinfo) -> Literal:
    found: int | None = None
    if value.is_null or value.type is None:
        return value
    if isinstance(value.value, str):
        found = parse_instant(value.value, zone)
    elif pa.types.is_date32(value.type):
        found = to_instant(EPOCH + timedelta(days=value.value), zone)
    elif pa.types.is_timestamp(value.type) and value.type.tz is None and value.type.unit == "us":
        found = to_instant(EPOCH + timedelta(microseconds=value.value), zone)
    return value if found is None else Literal(found, types.TIMESTAMP)


def parse_instant(text: str, zone: tzinfo) -> int | None:
    """Return the microsecond of a timestamp text without a zone; None if it has a zone or is not a timestamp."""
    parsed = parse_timestamp(text)
    if parsed is None or parsed[1]:
        return None
    return to_instant(EPOCH + timedelta(microseconds=parsed[0] // 1000), zone)


def to_instant(local: datetime, zone: tzinfo) -> int:
    # As in Java, an hour that daylight saving skips is the one after it, and of a repeated hour the first one counts.
    return (local.replace(tzinfo=zone) - EPOCH) // timedelta(microseconds=1)
