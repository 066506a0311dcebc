"""File statistics as the unit metadata that pruning uses (see `tamis.skipping.metadata`).

Commits have them as JSON, checkpoints as JSON, as structs, or both, under physical names:

    {"numRecords": 3, "tightBounds": true, "minValues": {"a": {"b": 1}}, "maxValues": …, "nullCount": …}

Each statistic may be missing, and then only that one is unknown: a file without bounds of one column is still pruned by
the bounds of another. Statistics do not cover NaN, so the NaN count is unknown, unless a column has only NULLs.

`tightBounds` is false if rows were deleted later: bounds still hold but are not exact, and a null count holds only if
it is zero or equals the row count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.datetime_text import parse_dates, parse_timestamps
from tamis.expr.nodes import Column
from tamis.expr.patterns import find_successor_of_prefix
from tamis.formats.delta.schema import DeltaField, TableMetadata
from tamis.formats.delta.statistics.statistics_json import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    TIGHT_BOUNDS,
    Path,
    WantedStatistics,
    parse_statistics,
)
from tamis.formats.source import decode_texts
from tamis.parquet.footer.datetime_rebase import widen_legacy_bounds
from tamis.skipping.metadata import ROW_COUNT, drop_inverted_bounds, metadata_name

_LEADING_NUM_RECORDS = r'^\{"numRecords":(?P<count>[0-9]{1,18})[,}]'


def extract_num_records(stats: pa.Array | None, parsed: pa.StructArray | None) -> pa.Int64Array:
    """Return the row count of each file, deleted rows included; null where it is unknown."""
    if stats is None:
        assert parsed is not None, "neither strings nor structs of statistics"
        return _extract_row_count([parsed])
    if parsed is None:
        return _parse_num_records(stats)
    known = _extract_row_count([parsed])
    return pc.coalesce(known, _parse_num_records(pc.if_else(known.is_null(), stats, pa.scalar(None, stats.type))))


def _parse_num_records(stats: pa.Array) -> pa.Int64Array:
    # Nearly all writers write this number first, and finding it there takes a tenth of the time of parsing everything.
    found = pc.struct_field(pc.extract_regex(stats, _LEADING_NUM_RECORDS), ["count"])
    counts = pc.if_else(pc.ends_with(stats, "}"), found, pa.scalar(None, found.type)).cast(types.LONG)
    others = pc.and_(stats.is_valid(), counts.is_null())
    if not pc.any(others, min_count=0).as_py():
        return counts
    rest = parse_statistics(pc.if_else(others, stats, pa.scalar(None, stats.type)), WantedStatistics({}, ()))
    return pc.coalesce(counts, _extract_row_count([rest]))


def make_statistics_metadata(
    stats: pa.Array | None, parsed: pa.StructArray | None, columns: Sequence[Column], metadata: TableMetadata
) -> dict[str, pa.Array]:
    """Return the metadata columns of files, one row per file: `row_count`, and the statistics of each column.

    `stats` are JSON strings, `parsed` are structs of a checkpoint; where a file has both, the struct takes precedence.
    Columns without statistics (partition columns, structs, columns that the table does not have) are left out.
    """
    found = {
        column: field
        for column in columns
        if column.path[0] not in metadata.partition_columns
        and (field := _find_counted_field(column, metadata)) is not None
    }
    paths = {column: metadata.to_physical_path(column.path) for column in found}
    bounded = {paths[column]: field.data_type for column, field in found.items() if has_bounds(field)}
    sources = _read_sources(stats, parsed, WantedStatistics(bounded, tuple(paths.values())))
    row_count = _extract_row_count(sources)
    is_tight = pc.fill_null(_coalesce_leaf(sources, (TIGHT_BOUNDS,), types.BOOLEAN), True)
    arrays = {ROW_COUNT.name: row_count}
    for column, field in found.items():
        arrays |= _make_column_metadata(sources, column, field, paths[column], row_count, is_tight)
    return arrays


def _find_counted_field(column: Column, metadata: TableMetadata) -> DeltaField | None:
    """Return the field of a column that has a null count: not a struct, and not within a list, a map or a variant."""
    for length in range(1, len(column.path)):
        parent = metadata.find_field(column.path[:length])
        if parent is None or parent.kind != "struct":
            return None
    field = metadata.find_field(column.path)
    return None if field is None or field.kind == "struct" else field


def _make_column_metadata(
    sources: Sequence[pa.StructArray],
    column: Column,
    field: DeltaField,
    path: Path,
    row_count: pa.Array,
    is_tight: pa.BooleanArray,
) -> dict[str, pa.Array]:
    counted = _coalesce_leaf(sources, (NULL_COUNT, *path), types.LONG)
    null_count = _check_null_count(counted, field, row_count, is_tight)
    arrays = {metadata_name("null_count", column.path): null_count}
    if not has_bounds(field):
        return arrays
    has_no_value = pc.fill_null(pc.equal(null_count, row_count), False)
    if pa.types.is_floating(field.data_type):
        arrays[metadata_name("nan_count", column.path)] = _set_null_unless(has_no_value, pa.scalar(0, types.LONG))
    pairs = [[_extract_leaf(source, (kind, *path)) for kind in (MIN_VALUES, MAX_VALUES)] for source in sources]
    each = [compute_file_bounds(smallest, largest, field) for smallest, largest in pairs]
    for kind in ("lower", "upper"):
        values = [getattr(bounds, kind) for bounds in each]
        # Exactness belongs to the bound: both come from the same source.
        exact = [
            pc.if_else(value.is_valid(), getattr(bounds, f"{kind}_exact"), None)
            for value, bounds in zip(values, each, strict=True)
        ]
        bound = pc.if_else(has_no_value, pa.scalar(None, field.data_type), pc.coalesce(*values))
        is_exact = pc.and_(pc.coalesce(*exact), is_tight)
        arrays[metadata_name(kind, column.path)] = bound
        arrays[metadata_name(f"{kind}_exact", column.path)] = pc.if_else(
            bound.is_valid(), is_exact, pa.scalar(None, types.BOOLEAN)
        )
    return arrays


def _check_null_count(counted: pa.Array, field: DeltaField, row_count: pa.Array, is_tight: pa.BooleanArray) -> pa.Array:
    none = pc.equal(counted, 0)
    if field.kind in ("list", "map"):
        # Some writers count the NULLs inside, which may be as many as rows or more.
        return _set_null_unless(none, counted)
    possible = pc.and_kleene(pc.greater_equal(counted, 0), pc.fill_null(pc.less_equal(counted, row_count), True))
    holds = pc.or_kleene(is_tight, pc.or_kleene(none, pc.equal(counted, row_count)))
    return _set_null_unless(pc.fill_null(pc.and_kleene(possible, holds), False), counted)


def _extract_row_count(sources: Sequence[pa.StructArray]) -> pa.Int64Array:
    counts = _coalesce_leaf(sources, (NUM_RECORDS,), types.LONG)
    return _set_null_unless(pc.greater_equal(counts, 0), counts)


def _set_null_unless(condition: pa.BooleanArray, counts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.if_else(condition, counts, pa.scalar(None, types.LONG))


# --- Sources of statistics -------------------------------------------------------------------------------------------


def _read_sources(
    stats: pa.Array | None, parsed: pa.StructArray | None, wanted: WantedStatistics
) -> list[pa.StructArray]:
    """Return structs of statistics, one row per file in each; a statistic missing in the first is in the next."""
    if parsed is None:
        assert stats is not None, "neither strings nor structs of statistics"
        return [parse_statistics(stats, wanted)]
    if stats is None:
        return [parsed]
    if _has_all(parsed.type, wanted):
        # Parsing JSON takes most of the time, and here it adds something only for files without a struct.
        stats = pc.if_else(_extract_leaf(parsed, (NUM_RECORDS,)).is_null(), stats, pa.scalar(None, stats.type))
    return [parsed] if stats.null_count == len(stats) else [parsed, parse_statistics(stats, wanted)]


def _has_all(data_type: pa.StructType, wanted: WantedStatistics) -> bool:
    bounds = [(kind, *path) for kind in (MIN_VALUES, MAX_VALUES) for path in wanted.bounds]
    counts = [(NULL_COUNT, *path) for path in wanted.null_counts]
    return all(_find_indices(data_type, path) is not None for path in [(NUM_RECORDS,), *bounds, *counts])


def _coalesce_leaf(sources: Sequence[pa.StructArray], path: Path, data_type: pa.DataType) -> pa.Array:
    is_like = pa.types.is_boolean if pa.types.is_boolean(data_type) else pa.types.is_integer
    leaves = [_extract_leaf(source, path) for source in sources]
    return pc.coalesce(
        *(leaf.cast(data_type) if is_like(leaf.type) else pa.nulls(len(leaf), data_type) for leaf in leaves)
    )


def _extract_leaf(source: pa.StructArray, path: Path) -> pa.Array:
    indices = _find_indices(source.type, path)
    # Unlike `field`, `struct_field` returns null for the fields of a null struct.
    found = pa.nulls(len(source)) if indices is None else pc.struct_field(source, indices)
    return pa.nulls(len(source)) if pa.types.is_nested(found.type) else found


def _find_indices(data_type: pa.DataType, path: Path) -> list[int] | None:
    found = []
    for name in path:
        index = data_type.get_field_index(name) if pa.types.is_struct(data_type) else -1
        if index < 0:
            return None
        found.append(index)
        data_type = data_type.field(index).type
    return found


# --- Min/max bounds in the table's types, from the `minValues` and `maxValues` of file statistics ---------------------
#
# Statistics are only approximately values of the file: writers truncate and round them, and may have written them when
# the column had another type. The bounds are widened, so that every value of the file is within the bounds.
#
# | type                | lower bound                | upper bound                              | exact            |
# |---------------------|----------------------------|------------------------------------------|------------------|
# | integers, dates     | the value                  | the value                                | yes              |
# | dates before 1582   | 12 days less               | 12 days more                             | no               |
# | decimals            | the value; long ones less  | the value; long ones more                | up to 15 digits  |
# | whole, beyond 2^63  | unknown below -2^63        | unknown above 2^63 - 1                   | no               |
# | floats              | the value; zero is -0.0    | the value; zero is 0.0                   | yes; zero is not |
# | doubles, once float | the lesser of two readings | the greater of two readings              | where they agree |
# | timestamps          | truncated to milliseconds  | 999 microseconds more                    | no               |
# | UTC, before 1972    | a minute less              | a minute more                            | no               |
# | UTC, before 1900    | 14 days less               | 14 days more                             | no               |
# | strings             | truncated, so lower        | the successor of the first 32 characters | no               |
#
# Writers truncate strings to 32 characters by default. The limit is configurable and not recorded in the log, so a
# short string may be truncated as well, and no string bound is exact. Timestamps before 1972 may be written with a
# UTC offset truncated to minutes, in a zone whose offset had seconds then. Dates and timestamps before the Gregorian
# calendar may be written in another calendar than the one by which the file is read:
# `tamis.parquet.footer.datetime_rebase` derives how far they move. Decimals of more than 15 digits may have passed
# through a double before they were written to the log.

TRUNCATED_STRING_LENGTH = 32
_REPLACEMENT = "\ufffd"
_REST_OF_MILLISECOND = 999
_MINUTE = 60_000_000
_OFFSETS_WITHOUT_SECONDS_SINCE = 63_676_800_000_000
"""1972-01-08, in microseconds: since then no time zone has seconds in its UTC offset."""
_LAST_MICROSECOND = types.get_integer_range(types.LONG)[1]
_MAX_DIGITS = 76
_DIGITS_OF_A_DOUBLE = 15
_DIGITS_OF_A_BIGINT = 18
_WHOLE = pa.decimal256(_MAX_DIGITS, 0)


@dataclass(frozen=True, slots=True)
class FileBounds:
    """Bounds of a column, one row per file; null means unknown. An exact bound is the value of some row."""

    lower: pa.Array
    upper: pa.Array
    lower_exact: pa.Array
    upper_exact: pa.Array


def has_bounds(field: DeltaField) -> bool:
    """Return whether a field's statistics are bounds: its type is ordered, and strings compare byte by byte."""
    data_type = field.data_type
    return field.kind == "value" and (
        (types.is_text(data_type) and field.collation is None)
        or types.is_number(data_type)
        or pa.types.is_date(data_type)
        or pa.types.is_timestamp(data_type)
    )


def compute_file_bounds(smallest: pa.Array, largest: pa.Array, field: DeltaField) -> FileBounds:
    """Return the bounds that minimum and maximum statistics imply; the statistics may be of any type."""
    target = field.data_type
    low, high = _to_table_type(smallest, target), _to_table_type(largest, target)
    if pa.types.is_floating(target):
        return _widen_floats(low, high, may_be_single="float" in field.former_types)
    if pa.types.is_timestamp(target) and target.tz is not None:
        low, high = _move_before_1972(low, -_MINUTE), _move_before_1972(high, _MINUTE)
    low, high = drop_inverted_bounds(low, high)
    if pa.types.is_date(target):
        (low, low_is_old), (high, high_is_old) = widen_legacy_bounds(low, up=False), widen_legacy_bounds(high, up=True)
        return FileBounds(low, high, pc.and_not(low.is_valid(), low_is_old), pc.and_not(high.is_valid(), high_is_old))
    if pa.types.is_timestamp(target) and target.tz is not None:
        low, high = widen_legacy_bounds(low, up=False)[0], widen_legacy_bounds(high, up=True)[0]
    if pa.types.is_timestamp(target):
        return _make_inexact(low, _to_end_of_millisecond(high))
    if types.is_text(target):
        return _make_inexact(low, _compute_upper_strings(high))
    if pa.types.is_decimal(target):
        return _widen_decimals(low, high)
    return FileBounds(low, high, low.is_valid(), high.is_valid())


def _make_inexact(lower: pa.Array, upper: pa.Array) -> FileBounds:
    no = pa.repeat(pa.scalar(False), len(lower))
    return FileBounds(lower, upper, no, no)


def _set_null_where(values: pa.Array, where: pa.BooleanArray) -> pa.Array:
    return pc.if_else(where, pa.scalar(None, values.type), values)


# --- Conversion to the table's type ----------------------------------------------------------------------------------


def _to_table_type(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert values to the table's type; null where a value cannot be converted."""
    source = values.type
    if pa.types.is_null(source):
        return pa.nulls(len(values), target)
    if pa.types.is_timestamp(target):
        return _to_timestamps(values, target)
    if pa.types.is_date(target):
        return parse_dates(values) if types.is_text(source) else _cast_or_null(values, target)
    if types.is_text(target):
        return decode_texts(values.cast(types.BINARY)) if types.is_text(source) else pa.nulls(len(values), target)
    if pa.types.is_floating(target):
        is_number = types.is_number(source) and not pa.types.is_decimal(source)
        return values.cast(target, safe=False) if is_number else pa.nulls(len(values), target)
    if not types.is_number(source) or pa.types.is_floating(source):
        return pa.nulls(len(values), target)
    return _cast_numbers(values, target)


def _cast_numbers(values: pa.Array, target: pa.DataType) -> pa.Array:
    """Cast integers and decimals; null where a value is out of the target's range."""
    if values.type == target:
        return values
    if pa.types.is_integer(target):
        if not pa.types.is_integer(values.type):
            return pa.nulls(len(values), target)
        smallest, largest = (pa.scalar(limit, types.LONG) for limit in types.get_integer_range(target))
        values = values.cast(types.LONG)
        return _set_null_where(values, pc.or_(pc.less(values, smallest), pc.greater(values, largest))).cast(target)
    wide = pa.decimal256(_MAX_DIGITS, target.scale)
    exact = _cast_or_null(values.cast(_WHOLE) if pa.types.is_integer(values.type) else values, wide)
    limit = pa.scalar(Decimal((0, (1,), target.precision - target.scale)), wide)
    return _set_null_where(exact, pc.greater_equal(pc.abs(exact), limit)).cast(target)


def _cast_or_null(values: pa.Array, target: pa.DataType) -> pa.Array:
    try:
        return values.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(len(values), target)


def _to_timestamps(values: pa.Array, target: pa.TimestampType) -> pa.Array:
    source = values.type
    if types.is_text(source):
        return parse_timestamps(values, target)
    if pa.types.is_date(source) and target.tz is None:
        return _cast_or_null(values, target)
    # Spark's INT96 timestamps have no zone in Arrow, but are instants.
    if not pa.types.is_timestamp(source) or (source.tz is not None and target.tz is None):
        return pa.nulls(len(values), target)
    if source.unit == "ns":
        counts = np.floor_divide(pc.fill_null(values.cast(types.LONG), 0).to_numpy(), 1000)
        return _set_null_where(pa.array(counts, types.LONG), values.is_null()).cast(target)
    return _cast_or_null(values.cast(pa.timestamp(source.unit)), types.TIMESTAMP_NTZ).cast(types.LONG).cast(target)


# --- Truncation and rounding by writers ------------------------------------------------------------------------------


def _widen_decimals(low: pa.Array, high: pa.Array) -> FileBounds:
    """Widen bounds of decimals by the error of a double.

    Some writers divide by the scale in double precision, and may write the double below the maximum. The error is less
    than 1 in 10^15, so decimals of up to 15 digits are exact. Whole decimals may have passed through a bigint too,
    which deltalake clamps to its range: the first and the last bigint may stand for any value beyond them.
    """
    if low.type.scale == 0 and low.type.precision > _DIGITS_OF_A_BIGINT:
        first, last = (pa.scalar(Decimal(each), low.type) for each in types.get_integer_range(types.LONG))
        low, high = _set_null_where(low, pc.less_equal(low, first)), _set_null_where(high, pc.greater_equal(high, last))
    lower, upper = _move_beyond_double_error(low, pc.subtract), _move_beyond_double_error(high, pc.add)
    return FileBounds(lower, upper, pc.equal(low, lower), pc.equal(high, upper))


def _move_beyond_double_error(values: pa.Array, move: Callable[[pa.Array, pa.Array], pa.Array]) -> pa.Array:
    """Move decimals by the largest error of a double; null where the result is out of range."""
    target = values.type
    if target.precision <= _DIGITS_OF_A_DOUBLE:
        return values
    wide = pa.decimal256(_MAX_DIGITS - 1, target.scale)
    magnitudes = pc.abs(values.cast(wide))
    is_long = pc.greater_equal(magnitudes, _make_power_of_ten(_DIGITS_OF_A_DOUBLE, wide))
    if not pc.any(is_long, min_count=0).as_py():
        return values
    slack = pa.repeat(pa.scalar(Decimal(0), wide), len(values))
    for digits in range(_DIGITS_OF_A_DOUBLE, target.precision):
        step = _make_power_of_ten(digits + 1 - _DIGITS_OF_A_DOUBLE, wide)
        slack = pc.if_else(pc.greater_equal(magnitudes, _make_power_of_ten(digits, wide)), step, slack)
    return _cast_numbers(move(values.cast(wide), slack), target)


def _make_power_of_ten(digits: int, data_type: pa.DataType) -> pa.Scalar:
    """Return the smallest decimal of a type with more than `digits` digits, scale included."""
    return pa.scalar(Decimal((0, (1,), digits - data_type.scale)), data_type)


def _widen_floats(low: pa.Array, high: pa.Array, *, may_be_single: bool) -> FileBounds:
    low, high = (_set_null_where(each, pc.is_nan(each)) for each in (low, high))
    # In Spark NaN is the largest value: if it is the minimum, there is no other value. If another writer treats NaN as
    # the smallest value, its maximum is not reliable either.
    low, high = drop_inverted_bounds(low, _set_null_where(high, low.is_null()))
    if may_be_single:
        # The float 0.1 is written like the double 0.1, and is slightly larger.
        singles = [each.cast(pa.float32(), safe=False).cast(low.type) for each in (low, high)]
        exact = [pc.equal(each, single) for each, single in zip((low, high), singles, strict=True)]
        low, high = pc.min_element_wise(low, singles[0]), pc.max_element_wise(high, singles[1])
    else:
        exact = [low.is_valid(), high.is_valid()]
    # Writers that treat both zeros as equal may write either, so each bound becomes the outer zero.
    zeros = [pc.equal(each, 0.0) for each in (low, high)]
    return FileBounds(
        pc.if_else(zeros[0], pa.scalar(-0.0, low.type), low),
        pc.if_else(zeros[1], pa.scalar(0.0, low.type), high),
        *(pc.and_not(is_exact, is_zero) for is_exact, is_zero in zip(exact, zeros, strict=True)),
    )


def _to_end_of_millisecond(values: pa.TimestampArray) -> pa.TimestampArray:
    counts = values.cast(types.LONG)
    limit = pa.scalar(_LAST_MICROSECOND - _REST_OF_MILLISECOND, types.LONG)
    ends = pc.add(pc.min_element_wise(counts, limit, skip_nulls=False), _REST_OF_MILLISECOND)
    return ends.cast(values.type)


def _move_before_1972(values: pa.TimestampArray, step: int) -> pa.TimestampArray:
    """Move instants before 1972 by a step; null where the result may be out of range."""
    counts = values.cast(types.LONG)
    is_old = pc.less(counts, _OFFSETS_WITHOUT_SECONDS_SINCE)
    if not pc.any(is_old, min_count=0).as_py():
        return values
    first = pa.scalar(-_LAST_MICROSECOND + _MINUTE, types.LONG)
    moved = pc.add(_set_null_where(counts, pc.less(counts, first)), step)
    return pc.if_else(is_old, moved, counts).cast(values.type)


def _compute_upper_strings(largest: pa.StringArray) -> pa.StringArray:
    """Return upper bounds from the maximum of each file, which its writer may have truncated.

    Current writers truncate to 32 characters and append a character above the one that followed; others only truncate.
    So every value is below the successor of all strings with those 32 characters. Old writers append U+FFFD, which is
    *not* above all other characters, and they may have split a surrogate pair: for them, use the prefix before the last
    two characters, at most 31 characters of it.
    """
    is_replaced = pc.ends_with(largest, _REPLACEMENT)
    is_cut = pc.or_(is_replaced, pc.greater_equal(pc.utf8_length(largest), TRUNCATED_STRING_LENGTH))
    if not pc.any(is_cut, min_count=0).as_py():
        return largest
    before = pc.utf8_slice_codeunits(largest, 0, TRUNCATED_STRING_LENGTH)
    if pc.any(is_replaced, min_count=0).as_py():
        shorter = pc.utf8_slice_codeunits(pc.utf8_slice_codeunits(largest, 0, -2), 0, TRUNCATED_STRING_LENGTH - 1)
        before = pc.if_else(is_replaced, shorter, before)
    return pc.if_else(is_cut, _compute_successors(before), largest)


def _compute_successors(prefixes: pa.StringArray) -> pa.StringArray:
    """Return the smallest string above all that start with each prefix: replace its last character by the next one.

    The result is null where there is no next character. Last characters have few distinct values, so they are
    dictionary-encoded first.
    """
    last = pc.dictionary_encode(pc.utf8_slice_codeunits(prefixes, -1))
    following = pa.array([find_successor_of_prefix(each) for each in last.dictionary.to_pylist()], types.STRING)
    head = pc.utf8_slice_codeunits(prefixes, 0, -1)
    return pc.binary_join_element_wise(head, following.take(last.indices), "")
