"""Partition values: from the texts of the log to typed columns.

The log has a map from physical names to texts for every file, and a value is the expression
`partition_value(element_at(partitionValues, 'name'), 'type')` over it: see `tamis.expr.partition_values` for what texts
mean. A name that the map lacks is NULL. What the path of a file says counts for nothing.

Checkpoints may have the values in their types too, but as whoever wrote them understood the texts: a timestamp without
a zone was read in the zone of that machine. So the texts are what counts wherever they are at hand.
"""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, EvaluationError
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import Call, Column, Literal
from tamis.expr.partition_values import WrongPartitionText
from tamis.tables.delta.fields import DeltaField
from tamis.tables.delta.schema import TableMetadata

PARTITION_VALUES = Column(("partitionValues",))


def typed_partition_values(
    values: pa.MapArray | None, parsed: pa.StructArray | None, metadata: TableMetadata
) -> pa.Table:
    """A column in its declared type for each partition column, by its logical name.

    `parsed` are the typed values of a checkpoint, by physical names, for rows whose map is null or was not read.
    A text that is no value of its column's type is a CorruptFile.
    """
    arrays = {
        name: _column(values, parsed, metadata.fields_by_name[name], metadata.place)
        for name in metadata.partition_columns
    }
    if not arrays:
        rows = len(values if values is not None else parsed if parsed is not None else ())
        return pa.table({"rows": pa.nulls(rows)}).select([])
    return pa.table(arrays)


def partition_texts(values: pa.MapArray, metadata: TableMetadata) -> dict[str, pa.StringArray]:
    """The texts of each partition column as they are in the log, by its logical name; an empty text is NULL."""
    if metadata.partition_columns and values.null_count:
        raise CorruptFile(
            f"a checkpoint of the Delta table {metadata.place} has partition values in their types alone, and no texts "
            "for a PartitionFilter to compare: filter with SQL, or have the table's writer make a checkpoint anew"
        )
    return {
        name: _evaluated(values, metadata.fields_by_name[name].physical_name, types.STRING)
        for name in metadata.partition_columns
    }


def partition_expression(physical_name: str, data_type: pa.DataType) -> Call:
    """The value of a partition column, as an expression over the maps of the log."""
    text = Call("element_at", (PARTITION_VALUES, Literal(physical_name, types.STRING)))
    return Call("partition_value", (text, Literal(types.type_name(data_type), types.STRING)))


@lru_cache(maxsize=256)
def _evaluator(physical_name: str, data_type: pa.DataType) -> Evaluator:
    return Evaluator(partition_expression(physical_name, data_type))


def _evaluated(values: pa.MapArray, physical_name: str, data_type: pa.DataType) -> pa.Array:
    found = _evaluator(physical_name, data_type)(pa.record_batch([values], names=[PARTITION_VALUES.name]))
    # Expressions know timestamps in UTC by their instants alone.
    return found if found.type == data_type else found.view(data_type)


def _column(
    values: pa.MapArray | None, parsed: pa.StructArray | None, field: DeltaField, place: str
) -> pa.Array | pa.ChunkedArray:
    typed = None if parsed is None else _parsed_column(parsed, field, place)
    if values is None:
        assert parsed is not None, "neither texts nor typed values"
        return pa.nulls(len(parsed), field.data_type) if typed is None else typed
    read = _typed_texts(values, field, place)
    if typed is None or not values.null_count:
        return read
    return pc.if_else(pc.is_null(values), typed, read)


def _typed_texts(values: pa.MapArray, field: DeltaField, place: str) -> pa.Array:
    try:
        return _evaluated(values, field.physical_name, field.data_type)
    except EvaluationError as error:
        if not isinstance(error.__cause__, WrongPartitionText):
            raise
        raise CorruptFile(
            f"the partition value {error.__cause__.text!r} of column {field.name!r} in the Delta table {place} is no "
            f"{types.type_name(field.data_type)}"
        ) from error


def _parsed_column(parsed: pa.StructArray, field: DeltaField, place: str) -> pa.Array | None:
    if parsed.type.get_field_index(field.physical_name) < 0:
        return None
    found = pc.struct_field(parsed, [field.physical_name])
    if pa.types.is_timestamp(found.type) and found.type != field.data_type:
        found = found.cast(pa.timestamp("us", found.type.tz), safe=False).cast(types.LONG)
    try:
        typed = found.cast(field.data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise CorruptFile(
            f"a checkpoint of the Delta table {place} has partition values of column {field.name!r} as "
            f"{types.type_name(found.type)}, and they are no {types.type_name(field.data_type)}: {error}"
        ) from error
    if not types.is_text(typed.type):
        return typed
    return pc.if_else(pc.equal(typed, ""), pa.scalar(None, typed.type), typed)
