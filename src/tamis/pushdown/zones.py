"""The zone of whoever asks. Spark reads times without a zone in that of its session, and computes in it.

Tables, and what is pushed into them, know instants alone: times of a query are placed in its zone when it is planned,
and what depends on a zone beyond that (`hour(ts)`, `CAST(ts AS DATE)`) stays with Spark, unless the zone is UTC.
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
from tamis.expr.functions import COMPARISONS, type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, transform, walk
from tamis.expr.temporal import parse_timestamp
from tamis.tables.moments import EPOCH

_SAME_AS_UTC = frozenset(("utc", "etc/utc", "gmt", "etc/gmt", "z", "uct", "etc/uct", "zulu", "etc/zulu", "universal"))
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{2}))?(?::?(\d{2}))?", re.IGNORECASE)


_OF_JAVA = {
    "ACT": "Australia/Darwin", "AET": "Australia/Sydney", "AGT": "America/Argentina/Buenos_Aires",
    "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo", "BST": "Asia/Dhaka",
    "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "EST": "-05:00", "HST": "-10:00",
    "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata", "JST": "Asia/Tokyo", "MIT": "Pacific/Apia",
    "MST": "-07:00", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles",
    "SST": "Pacific/Guadalcanal", "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Short names, which Java has from the time when there were no others."""


def zone_called(name: str) -> tzinfo:
    """The zone of a name, as Spark takes them.

    >>> zone_called("Etc/UTC"), zone_called("GMT+02:00"), zone_called("Europe/Berlin")
    (datetime.timezone.utc, datetime.timezone(datetime.timedelta(seconds=7200)), zoneinfo.ZoneInfo(key='Europe/Berlin'))
    """
    if name.casefold() in _SAME_AS_UTC:
        return UTC
    name = _OF_JAVA.get(name, name)
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
            f"the Spark session is in the zone {name!r}, which is not known here: set spark.sql.session.timeZone to "
            "another name for it, as in Europe/Berlin or +02:00"
        ) from error


# --- Times without a zone ---------------------------------------------------------------------------------------------

_INSTANTS = (exp.DType.TIMESTAMPTZ, exp.DType.TIMESTAMPLTZ)
_OF_TEXTS = frozenset(("to_timestamp", "try_to_timestamp", "to_timestamp_ltz", "timestamp", "date_trunc", "to_date"))
"""Functions of which constants are computed while a query is read."""


def name_zones(tree: exp.Expr, zone: tzinfo) -> bool:
    """Let the timestamps that a query writes without a zone name that of the query, in place; whether all do now."""
    for each in tree.find_all(exp.Cast):
        text = each.this
        if each.to.this in _INSTANTS and isinstance(text, exp.Literal) and text.is_string:
            placed = instant_of_text(text.this, zone)
            if placed is not None:
                text.set("this", (EPOCH + timedelta(microseconds=placed)).isoformat())
    calls = (call for call in tree.find_all(exp.Anonymous) if call.name.lower() in _OF_TEXTS)
    return not any(isinstance(arg, exp.Literal | exp.Cast) for call in calls for arg in call.expressions)


def place_times(expr: Expr, columns: Mapping[str, pa.DataType | None], zone: tzinfo) -> Expr:
    """Texts and dates that are compared with instants, as instants of a zone. Columns are not bound yet."""

    def data_type(node: Expr) -> pa.DataType | None:
        return column_type(node, columns) if isinstance(node, Column) else type_of(node)

    def placed(node: Expr) -> Expr:
        if not isinstance(node, Call) or (node.function not in COMPARISONS and node.function != "in"):
            return node
        if not any(is_instant(data_type(arg)) for arg in node.args):
            return node
        return Call(node.function, tuple(_placed(arg, zone) if isinstance(arg, Literal) else arg for arg in node.args))

    return transform(expr, placed)


def column_type(column: Column, columns: Mapping[str, pa.DataType | None]) -> pa.DataType | None:
    """The type of a column, or of a field inside of it, that is not bound yet."""
    found = columns.get(column.path[0])
    for name in column.path[1:]:
        index = found.get_field_index(name) if found is not None and pa.types.is_struct(found) else -1
        found = found.field(index).type if index >= 0 and found is not None else None
    return found


def _placed(value: Literal, zone: tzinfo) -> Literal:
    found: int | None = None
    if value.is_null or value.type is None:
        return value
    if isinstance(value.value, str):
        found = instant_of_text(value.value, zone)
    elif pa.types.is_date32(value.type):
        found = instant(EPOCH + timedelta(days=value.value), zone)
    elif pa.types.is_timestamp(value.type) and value.type.tz is None and value.type.unit == "us":
        found = instant(EPOCH + timedelta(microseconds=value.value), zone)
    return value if found is None else Literal(found, types.TIMESTAMP)


def instant_of_text(text: str, zone: tzinfo) -> int | None:
    """The microsecond that a text without a zone means; None for one that has a zone, or is no time."""
    parsed = parse_timestamp(text)
    if parsed is None or parsed[1]:
        return None
    return instant(EPOCH + timedelta(microseconds=parsed[0] // 1000), zone)


def instant(local: datetime, zone: tzinfo) -> int:
    # An hour that a clock leaves out is the one after it, and one that it has twice is the first, as in Java.
    return (local.replace(tzinfo=zone) - EPOCH) // timedelta(microseconds=1)


# --- What depends on a zone -------------------------------------------------------------------------------------------

_OF_ANY_VALUE = COMPARISONS | {"in", "and", "or", "not", "is_null", "is_not_null", "coalesce", "case", "element_at"}


def depends_on_zone(expr: Expr) -> bool:
    """Whether an expression may mean something else in another zone."""
    return any(isinstance(node, Call) and call_depends_on_zone(node) for node in walk(expr))


def call_depends_on_zone(call: Call) -> bool:
    """The same of a function, whatever its arguments do."""
    given = [type_of(arg) for arg in call.args]
    if call.function in _OF_ANY_VALUE:
        # What is compared with an instant must be one.
        known = [each for each in given if each is not None and not pa.types.is_null(each)]
        is_test = call.function in COMPARISONS or call.function == "in"
        return is_test and any(map(is_instant, known)) and not all(map(is_instant, known))
    return any(map(is_instant, (*given, type_of(call))))


def is_instant(data_type: pa.DataType | None) -> bool:
    return data_type is not None and pa.types.is_timestamp(data_type) and data_type.tz is not None
