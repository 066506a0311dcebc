"""Partition values: from the texts of the log to typed columns.

The log has a map from physical names to texts for every file, and a value is the expression
`partition_value(element_at(partitionValues, 'name'), 'type')` over it: see `tamis.expr.partition_values` for what texts
mean. A name that the map lacks is NULL. What the path of a file says counts for nothing.

A text that the type of its column cannot represent (a date of the year 999999999, `abc` for an int) makes that column
unreadable, and no other: queries that do not need it are answered.

Checkpoints may have the values in their types too, but as whoever wrote them understood the texts: a timestamp without
a zone was read in the zone of that machine. So the texts are what counts wherever they are at hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, EvaluationError
from tamis.expr.evaluate import Evaluator
from tamis.expr.nodes import Call, Column, Literal
from tamis.expr.partition_values import WrongPartitionText, wrong_partition_texts
from tamis.tables.delta.fields import DeltaField
from tamis.tables.delta.schema import TableMetadata

PARTITION_VALUES = Column(("partitionValues",))


@dataclass(frozen=True, slots=True)
class TypedPartitionValues:
    """The partition values of files in their declared types, by the logical names of the columns."""

    values: pa.Table
    wrong: Mapping[str, pa.StringArray]
    """Columns with a text that their type cannot represent: the texts of such files, NULL for the others. In `values`
    such a file has NULL, which is not its value."""


def typed_partition_values(
    values: pa.MapArray | None, parsed: pa.StructArray | None, metadata: TableMetadata
) -> TypedPartitionValues:
    """A column in its declared type for each partition column, by its logical name.

    `parsed` are the typed values of a checkpoint, by physical names, for rows whose map is null or was not read.
    """
    arrays: dict[str, pa.Array] = {}
    wrong: dict[str, pa.StringArray] = {}
    for name in metadata.partition_columns:
        arrays[name], texts = _column(values, parsed, metadata.fields_by_name[name])
        if texts is not None and texts.null_count < len(texts):
            wrong[name] = texts
    if not arrays:
        rows = len(values if values is not None else parsed if parsed is not None else ())
        return TypedPartitionValues(pa.table({"rows": pa.nulls(rows)}).select([]), {})
    return TypedPartitionValues(pa.table(arrays), wrong)


def unreadable_value(text: str, name: str, metadata: TableMetadata) -> CorruptFile:
    """The error for a query that needs a partition column with a text that its type cannot represent."""
    data_type = metadata.fields_by_name[name].data_type
    return CorruptFile(
        f"the partition value {text!r} of column {name!r} in the Delta table {metadata.place} is no "
        f"{types.type_name(data_type)}. Queries that do not need the column can be answered"
    )


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
    values: pa.MapArray | None, parsed: pa.StructArray | None, field: DeltaField
) -> tuple[pa.Array, pa.StringArray | None]:
    """The values of a column, and the texts that are none where some are."""
    if values is None:
        assert parsed is not None, "neither texts nor typed values"
        return _parsed_column(parsed, field)
    read, wrong = _typed_texts(values, field)
    if parsed is None or not values.null_count:
        return read, wrong
    typed, wrong_typed = _parsed_column(parsed, field)
    no_texts = pc.is_null(values)
    if wrong is not None or wrong_typed is not None:
        none = pa.nulls(len(read), types.STRING)
        wrong = pc.if_else(no_texts, none if wrong_typed is None else wrong_typed, none if wrong is None else wrong)
    return pc.if_else(no_texts, typed, read), wrong


def _typed_texts(values: pa.MapArray, field: DeltaField) -> tuple[pa.Array, pa.StringArray | None]:
    try:
        return _evaluated(values, field.physical_name, field.data_type), None
    except EvaluationError as error:
        if not isinstance(error.__cause__, WrongPartitionText):
            raise
    texts = _evaluated(values, field.physical_name, types.STRING)
    wrong = wrong_partition_texts(texts, field.data_type)
    right = pc.if_else(wrong.is_valid(), pa.scalar(None, types.STRING), texts)
    names = pa.array([field.physical_name] * len(texts), types.STRING)
    maps = pa.MapArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), names, right)
    return _evaluated(maps, field.physical_name, field.data_type), wrong


def _parsed_column(parsed: pa.StructArray, field: DeltaField) -> tuple[pa.Array, pa.StringArray | None]:
    if parsed.type.get_field_index(field.physical_name) < 0:
        return pa.nulls(len(parsed), field.data_type), None
    found = pc.struct_field(parsed, [field.physical_name])
    if pa.types.is_timestamp(found.type) and found.type != field.data_type:
        found = found.cast(pa.timestamp("us", found.type.tz), safe=False).cast(types.LONG)
    try:
        typed = found.cast(field.data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Which of them the type holds does not show, so none of them counts.
        shown = pa.array([None if each is None else str(each) for each in found.to_pylist()], types.STRING)
        return pa.nulls(len(parsed), field.data_type), shown
    if not types.is_text(typed.type):
        return typed, None
    return pc.if_else(pc.equal(typed, ""), pa.scalar(None, typed.type), typed), None
