"""File statistics as the unit metadata that pruning uses (see `tamis.skipping.metadata`).

Commits have them as JSON, checkpoints as JSON, as structs, or both, under physical names:

    {"numRecords": 3, "tightBounds": true, "minValues": {"a": {"b": 1}}, "maxValues": …, "nullCount": …}

Each statistic may be missing, and then only that one is unknown: a file without bounds of one column is still pruned by
the bounds of another. Statistics do not cover NaN, so the NaN count is unknown, unless a column has only NULLs.

`tightBounds` is false where rows were deleted later: bounds still hold but are not exact, and a null count holds only
if it is zero or equals the row count.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.tables.delta.bounds import compute_file_bounds, has_bounds
from tamis.tables.delta.fields import DeltaField
from tamis.tables.delta.schema import TableMetadata
from tamis.tables.delta.statistics_json import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    TIGHT_BOUNDS,
    Path,
    WantedStatistics,
    parse_statistics,
)

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
        arrays[metadata_name("nan_count", column.path)] = _null_unless(has_no_value, pa.scalar(0, types.LONG))
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
        return _null_unless(none, counted)
    possible = pc.and_kleene(pc.greater_equal(counted, 0), pc.fill_null(pc.less_equal(counted, row_count), True))
    holds = pc.or_kleene(is_tight, pc.or_kleene(none, pc.equal(counted, row_count)))
    return _null_unless(pc.fill_null(pc.and_kleene(possible, holds), False), counted)


def _extract_row_count(sources: Sequence[pa.StructArray]) -> pa.Int64Array:
    counts = _coalesce_leaf(sources, (NUM_RECORDS,), types.LONG)
    return _null_unless(pc.greater_equal(counts, 0), counts)


def _null_unless(condition: pa.BooleanArray, counts: pa.Array | pa.Scalar) -> pa.Array:
    """Return the counts where a condition holds, null elsewhere."""
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
