"""Generated partition columns: from their SQL expressions to the derived columns of `tamis.skipping.transforms`.

A filter on `ts` implies one on a partition column `date(ts)`, which prunes partitions before any statistics are read.

A generation expression is parsed into a chain of calls, each with one argument that is not constant:
`year(cast(ts AS date))` is `cast`, then `year`. Every call of a chain keeps order; the last one may be a calendar part
(`month`, `day`, `hour`, `minute`), which is ordered within a period. Other expressions are not used.

- An empty string is NULL as a partition value.
- Formatted times sort like times from year 0 to 9999. Later years start with `+`, which sorts before all digits.
- A partition value may have been derived in another calendar than that of the row: ends of ranges before the Gregorian
  calendar are moved out, as `tamis.parquet.footer.datetime_rebase` derives.

*Time zones.* Spark evaluates these expressions in the session's time zone, which the log does not record: two writers
may have used different zones. A local time differs from UTC by at most 18 hours, and a local time that does not exist
(a change to summer time, a day skipped at the date line) moves forward, by at most a day. So the argument of a step
that reads the local time of a timestamp is in [value − 18 h, value + 18 h]; the argument of a step that reads a date or
a timestamp_ntz *through* a timestamp (`date_format`, `date_trunc`) is in [value, value + 24 h]; and a timestamp that is
computed from a local time is in [value − 18 h, value + 18 h + 24 h]. Delta on Spark, in contrast, assumes that all
sessions have the zone of the current one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import lru_cache, partial

import pyarrow as pa

from tamis import types
from tamis.errors import ExpressionError
from tamis.expr.bind import bind
from tamis.expr.datetime_text import SECONDS_PER_DAY, date_from_days
from tamis.expr.evaluate import is_supported
from tamis.expr.functions.table import FUNCTIONS, find_monotone_argument, is_instant, may_call_fail, type_of
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal, Unbound, split_conjuncts
from tamis.expr.normalise import normalise
from tamis.parquet.footer.datetime_rebase import widen_legacy_bounds
from tamis.skipping.transforms import DerivedColumn, Step, make_call_step, project_predicate
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text


def derive_partition_predicates(
    predicate: Expr,
    generated: Mapping[str, str],
    schema: pa.Schema,
    partition_columns: Collection[str],
    *,
    collated: Collection[tuple[str, ...]] = (),
) -> list[Expr]:
    """Return predicates on partition columns that hold for every row for which a bound, normalised predicate is TRUE.

    `generated` holds the generation expressions (SQL) by column name. `collated` holds the paths of columns with a
    collation, which are not used. The result is bound to the schema. It is empty if nothing is implied.
    """
    found = [_derive(name, text, schema) for name, text in generated.items() if name in partition_columns]
    derived = [
        each
        for each in found
        if each is not None and each.source.path not in collated and each.column.path not in collated
    ]
    if not derived:
        return []
    implied = project_predicate(predicate, derived, frozenset((name,) for name in partition_columns))
    return [part for part in split_conjuncts(normalise(bind(implied, schema))) if part != TRUE]


_MAX_CHARACTERS = 2000
"""Longer expressions are ignored. Supported ones are a few calls of one column, and parsing a very long one would slow
down every plan."""


@lru_cache(maxsize=256)
def _parse(text: str) -> Unbound | None:
    if len(text) > _MAX_CHARACTERS:
        return None
    # Imported here because it imports sqlglot, and few tables have generated columns.
    from tamis.expr.sql.parse import parse_sql

    try:
        return parse_sql(text)
    except ExpressionError:
        return None


def _derive(name: str, text: str, schema: pa.Schema) -> DerivedColumn | None:
    index, parsed = schema.get_field_index(name), _parse(text)
    if index < 0 or parsed is None:
        return None
    try:
        expression = bind(parsed, schema)
    except ExpressionError:
        return None
    column = Column((name,), type=schema.field(index).type)
    part = expression.function if isinstance(expression, Call) and _is_calendar_part(expression) else None
    steps: list[Step] = []
    is_exact, is_formatted, prefix = True, False, 0
    node = expression
    while isinstance(node, Call):
        argument = _find_argument(node)
        if argument is None and not (node is expression and part):
            return None
        value = node.args[argument or 0]
        before, after = _find_uncertainty(node, type_of(value))
        is_exact = is_exact and before == after == _NONE
        if node is not expression or part is None:
            pattern = _find_pattern(node)
            is_formatted = is_formatted or pattern is not None
            call = make_call_step(node, argument or 0) if pattern is None else partial(_format_times, pattern)
            steps += [partial(_shift_times, after), call]
        steps.append(partial(_shift_times, before))
        match node:
            case Call("substring", (Column(), _, Literal(value=int() as length))) if node is expression:
                prefix = length
        node = value
    if not isinstance(node, Column) or node.path == column.path or not _have_same_type(column, expression):
        return None
    if _is_time(node.type) and (pa.types.is_date32(node.type) or is_instant(node.type)):
        steps.append(lambda values, up: widen_legacy_bounds(values, up=up)[0])
    empty_is_null = (is_text(column.type) or is_bytes(column.type)) and not is_formatted
    return DerivedColumn(
        column,
        node,
        tuple(reversed(steps)),
        expression,
        is_exact,
        part,
        prefix=prefix,
        is_formatted=is_formatted,
        empty_is_null=empty_is_null,
    )


def _have_same_type(column: Column, expression: Expr) -> bool:
    """Return whether the partition column has the expression's type, or an equivalent one."""
    is_format = isinstance(expression, Call) and _find_pattern(expression) is not None
    column_type, expression_type = column.type, types.STRING if is_format else type_of(expression)
    if column_type is None or expression_type is None:
        return False
    both_integers = pa.types.is_integer(column_type) and pa.types.is_integer(expression_type)
    both_texts = is_text(column_type) and is_text(expression_type)
    return both_integers or both_texts or bool(column_type == expression_type)


# --- Calls ------------------------------------------------------------------------------------------------------------

Shift = tuple[int, int]
"""The seconds by which the lower and the upper end of a range move."""

_HOUR, _DAY = 3600, SECONDS_PER_DAY
_NONE: Shift = (0, 0)
_ANY_ZONE: Shift = (-18 * _HOUR, 18 * _HOUR)
_SKIPPED_TIME: Shift = (0, _DAY)
_ANY_INSTANT: Shift = (-18 * _HOUR, 18 * _HOUR + _DAY)

_PATTERNS = ("yyyy", "yyyy-MM", "yyyy-MM-dd", "yyyy-MM-dd-HH", "yyyy-MM-dd HH", "yyyyMM", "yyyyMMdd", "yyyyMMddHH")
"""Patterns of `date_format` whose strings sort like the times, as long as the year has four digits."""

_PATTERN_PARTS = re.compile("yyyy|MM|dd|HH")


def _is_calendar_part(call: Call) -> bool:
    row = FUNCTIONS.get(call.function)
    return row is not None and row.larger_parts is not None and is_supported(call) and _is_time(type_of(call.args[0]))


def _find_argument(call: Call) -> int | None:
    """Return the argument whose order a call keeps; None for a call that is not supported.

    A call that may fail on a value could wrap around, or be NULL, in Spark. Out of the range of times it fails there.
    """
    if _find_pattern(call) is not None:
        return 0
    monotone = (
        find_monotone_argument(call) if is_supported(call) and FUNCTIONS[call.function].operator is None else None
    )
    if monotone is None or not monotone.keeps_order:
        return None
    of_times = _is_time(type_of(call.args[monotone.argument])) and _is_time(type_of(call))
    match call:
        case Call("substring", (_, _, Literal(value=0))):
            return None
        case _:
            return monotone.argument if of_times or not may_call_fail(call) else None


def _find_pattern(call: Call) -> str | None:
    """Return the pattern of a call that formats times; None for other calls."""
    match call:
        case Call("date_format", (value, Literal(value=str() as pattern))) if pattern in _PATTERNS:
            return pattern if _is_time(type_of(value)) else None
        case Call("cast", (value, _)) if is_text(type_of(call) or types.NULL):
            return "yyyy-MM-dd" if pa.types.is_date32(type_of(value) or types.NULL) else None
        case _:
            return None


def _find_uncertainty(call: Call, source: pa.DataType | None) -> tuple[Shift, Shift]:
    """Return by how much the argument and the result of a call differ between the time zones of writers."""
    is_local = _is_time(source) and not is_instant(source)
    match call:
        case Call("cast") if is_instant(source) == is_instant(type_of(call)) or not _is_time(source):
            return _NONE, _NONE
        case Call("cast"):
            return (_NONE, _ANY_INSTANT) if is_local else (_ANY_ZONE, _NONE)
        case Call("date_trunc"):
            return _SKIPPED_TIME if is_local else _ANY_ZONE, _ANY_INSTANT
        case Call("date_format") if is_local:
            return _SKIPPED_TIME, _NONE
        case _:
            return _ANY_ZONE if is_instant(source) else _NONE, _NONE


def _is_time(data_type: pa.DataType | None) -> bool:
    return data_type is not None and bool(pa.types.is_date32(data_type) or pa.types.is_timestamp(data_type))


# --- Steps ------------------------------------------------------------------------------------------------------------


def _list_counts(times: pa.Array) -> list[int | None]:
    found: list[int | None] = times.view(pa.int32() if pa.types.is_date32(times.type) else pa.int64()).to_pylist()
    return found


def _shift_times(shift: Shift, times: pa.Array, up: bool) -> pa.Array:
    """Return times that many seconds later; dates move by whole days. Null if the result is out of range."""
    if shift == _NONE:
        return times
    is_date = pa.types.is_date32(times.type)
    ticks = shift[up] // _DAY if is_date else shift[up] * UNITS_PER_SECOND[times.type.unit]
    limit = 2**31 if is_date else 2**63
    moved = [None if each is None else each + ticks for each in _list_counts(times)]
    return pa.array([each if each is None or -limit <= each < limit else None for each in moved], times.type)


def _format_times(pattern: str, times: pa.Array, up: bool) -> pa.Array:
    """Format times; null for years without four digits, because their strings do not sort like the times."""

    def format_time(count: int | None) -> str | None:
        if count is None:
            return None
        is_date = pa.types.is_date32(times.type)
        days, second = (count, 0) if is_date else divmod(count // UNITS_PER_SECOND[times.type.unit], _DAY)
        year, month, day = date_from_days(days)
        parts = {"yyyy": f"{year:04}", "MM": f"{month:02}", "dd": f"{day:02}", "HH": f"{second // _HOUR:02}"}
        return _PATTERN_PARTS.sub(lambda match: parts[match[0]], pattern) if 0 <= year <= 9999 else None

    return pa.array(map(format_time, _list_counts(times)), types.STRING)
