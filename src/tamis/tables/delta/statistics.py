"""Statistics of files as the metadata that pruning asks for (see `tamis.skipping.metadata`).

They come as JSON text in every commit, and in checkpoints as text, as structs, or both, under physical names:

    {"numRecords": 3, "tightBounds": true, "minValues": {"a": {"b": 1}}, "maxValues": …, "nullCount": …}

Every piece may be missing by itself, and then it alone is unknown: a file without bounds of one column is still pruned
by those of another. Of NaN they say nothing, so that its count is unknown, unless a column has no values at all.

`tightBounds` is false where rows were deleted since: bounds hold, but no longer for the value of some row, and of the
count of NULLs only "none" and "all" do.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.tables.delta.bounds import file_bounds, has_bounds
from tamis.tables.delta.fields import DeltaField
from tamis.tables.delta.schema import TableMetadata
from tamis.tables.delta.statistics_json import (
    MAX_VALUES,
    MIN_VALUES,
    NULL_COUNT,
    NUM_RECORDS,
    TIGHT_BOUNDS,
    Path,
    Wanted,
    read_json,
)

_BEGINS_WITH_RECORDS = r'^\{"numRecords":(?P<count>[0-9]{1,18})[,}]'


def num_records(stats: pa.Array | None, parsed: pa.StructArray | None) -> pa.Int64Array:
    """The rows of each file, deleted ones included; null where that is unknown."""
    if stats is None:
        assert parsed is not None, "neither texts nor structs of statistics"
        return _row_count([parsed])
    if parsed is None:
        return _records_in_texts(stats)
    known = _row_count([parsed])
    return pc.coalesce(known, _records_in_texts(pc.if_else(known.is_null(), stats, pa.scalar(None, stats.type))))


def _records_in_texts(stats: pa.Array) -> pa.Int64Array:
    # Nearly all writers begin with this number, and to find it there takes a tenth of the time of reading all.
    found = pc.struct_field(pc.extract_regex(stats, _BEGINS_WITH_RECORDS), ["count"])
    counts = pc.if_else(pc.ends_with(stats, "}"), found, pa.scalar(None, found.type)).cast(types.LONG)
    others = pc.and_(stats.is_valid(), counts.is_null())
    if not pc.any(others, min_count=0).as_py():
        return counts
    rest = read_json(pc.if_else(others, stats, pa.scalar(None, stats.type)), Wanted({}, ()))
    return pc.coalesce(counts, _row_count([rest]))


def statistics_metadata(
    stats: pa.Array | None, parsed: pa.StructArray | None, columns: Sequence[Column], metadata: TableMetadata
) -> dict[str, pa.Array]:
    """The metadata columns of files, a row each: `row_count`, and what is known of each column of a predicate.

    `stats` are texts, `parsed` are structs of a checkpoint; where a file has both, the struct counts. Columns of which
    statistics say nothing (partition columns, structs, what the table does not have) are left out.
    """
    found = {
        column: field
        for column in columns
        if column.path[0] not in metadata.partition_columns and (field := _counted_field(column, metadata)) is not None
    }
    paths = {column: metadata.physical(column.path) for column in found}
    bounded = {paths[column]: field.data_type for column, field in found.items() if has_bounds(field)}
    sources = _sources(stats, parsed, Wanted(bounded, tuple(paths.values())))
    row_count = _row_count(sources)
    is_tight = pc.fill_null(_combined(sources, (TIGHT_BOUNDS,), types.BOOLEAN), True)
    arrays = {ROW_COUNT.name: row_count}
    for column, field in found.items():
        arrays |= _column_metadata(sources, column, field, paths[column], row_count, is_tight)
    return arrays


def _counted_field(column: Column, metadata: TableMetadata) -> DeltaField | None:
    """The field of a column of which writers count NULLs: not a struct, and not inside a list, a map or a variant."""
    for length in range(1, len(column.path)):
        around = metadata.field(column.path[:length])
        if around is None or around.kind != "struct":
            return None
    field = metadata.field(column.path)
    return None if field is None or field.kind == "struct" else field


def _column_metadata(
    sources: Sequence[pa.StructArray],
    column: Column,
    field: DeltaField,
    path: Path,
    row_count: pa.Array,
    is_tight: pa.BooleanArray,
) -> dict[str, pa.Array]:
    counted = _combined(sources, (NULL_COUNT, *path), types.LONG)
    null_count = _null_count(counted, field, row_count, is_tight)
    arrays = {metadata_name("null_count", column.path): null_count}
    if not has_bounds(field):
        return arrays
    has_no_value = pc.fill_null(pc.equal(null_count, row_count), False)
    if pa.types.is_floating(field.data_type):
        arrays[metadata_name("nan_count", column.path)] = _where(has_no_value, pa.scalar(0, types.LONG))
    pairs = [[_leaf(source, (kind, *path)) for kind in (MIN_VALUES, MAX_VALUES)] for source in sources]
    each = [file_bounds(smallest, largest, field) for smallest, largest in pairs]
    for kind in ("lower", "upper"):
        values = [getattr(bounds, kind) for bounds in each]
        # Exactness belongs to the bound: both are taken from the same source.
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


def _null_count(counted: pa.Array, field: DeltaField, row_count: pa.Array, is_tight: pa.BooleanArray) -> pa.Array:
    none = pc.equal(counted, 0)
    if field.kind in ("list", "map"):
        # Some writers count the NULLs inside, of which there may be as many as rows or more.
        return _where(none, counted)
    possible = pc.and_kleene(pc.greater_equal(counted, 0), pc.fill_null(pc.less_equal(counted, row_count), True))
    meant = pc.or_kleene(is_tight, pc.or_kleene(none, pc.equal(counted, row_count)))
    return _where(pc.fill_null(pc.and_kleene(possible, meant), False), counted)


def _row_count(sources: Sequence[pa.StructArray]) -> pa.Int64Array:
    counts = _combined(sources, (NUM_RECORDS,), types.LONG)
    return _where(pc.greater_equal(counts, 0), counts)


def _where(condition: pa.BooleanArray, counts: pa.Array | pa.Scalar) -> pa.Array:
    """The counts where a condition holds, unknown elsewhere."""
    return pc.if_else(condition, counts, pa.scalar(None, types.LONG))


# --- Where statistics come from --------------------------------------------------------------------------------------


def _sources(stats: pa.Array | None, parsed: pa.StructArray | None, wanted: Wanted) -> list[pa.StructArray]:
    """The structs in which statistics are found, a row for each file in all of them; what the first lacks is next."""
    if parsed is None:
        assert stats is not None, "neither texts nor structs of statistics"
        return [read_json(stats, wanted)]
    if stats is None:
        return [parsed]
    if _has_all(parsed.type, wanted):
        # Texts cost most of the time, and here they add something only where there is no struct.
        stats = pc.if_else(_leaf(parsed, (NUM_RECORDS,)).is_null(), stats, pa.scalar(None, stats.type))
    return [parsed] if stats.null_count == len(stats) else [parsed, read_json(stats, wanted)]


def _has_all(data_type: pa.StructType, wanted: Wanted) -> bool:
    bounds = [(kind, *path) for kind in (MIN_VALUES, MAX_VALUES) for path in wanted.bounds]
    counts = [(NULL_COUNT, *path) for path in wanted.null_counts]
    return all(_indices(data_type, path) is not None for path in [(NUM_RECORDS,), *bounds, *counts])


def _combined(sources: Sequence[pa.StructArray], path: Path, data_type: pa.DataType) -> pa.Array:
    is_like = pa.types.is_boolean if pa.types.is_boolean(data_type) else pa.types.is_integer
    leaves = [_leaf(source, path) for source in sources]
    return pc.coalesce(
        *(leaf.cast(data_type) if is_like(leaf.type) else pa.nulls(len(leaf), data_type) for leaf in leaves)
    )


def _leaf(source: pa.StructArray, path: Path) -> pa.Array:
    indices = _indices(source.type, path)
    # Unlike `field`, `struct_field` makes the fields of a null struct null.
    found = pa.nulls(len(source)) if indices is None else pc.struct_field(source, indices)
    return pa.nulls(len(source)) if pa.types.is_nested(found.type) else found


def _indices(data_type: pa.DataType, path: Path) -> list[int] | None:
    found = []
    for name in path:
        index = data_type.get_field_index(name) if pa.types.is_struct(data_type) else -1
        if index < 0:
            return None
        found.append(index)
        data_type = data_type.field(index).type
    return found
