"""Partition values: from the strings of the log to typed columns.

The log has a map from physical column names to strings for every file. A partition value is the expression
`partition_value(element_at(partitionValues, 'name'), 'type')` over that map: `tamis.expr.functions.partition_values`
defines how strings are parsed. A name that the map lacks is NULL. Partition values in a file's path are ignored.

A string that is invalid for the type of its column (a date of the year 999999999, `abc` for an int) makes only that
column unreadable: queries that do not need it are answered.

Checkpoints may also have typed values, but as their writer parsed the strings: a timestamp without a zone was parsed in
the zone of that machine. So strings take precedence if both exist.
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
from tamis.expr.functions.partition_values import InvalidPartitionValue, find_invalid_partition_values
from tamis.expr.nodes import Call, Column, Literal
from tamis.formats.delta.schema import DeltaField, TableMetadata

PARTITION_VALUES = Column(("partitionValues",))


@dataclass(frozen=True, slots=True)
class TypedPartitionValues:
    """The partition values of files in their declared types, by logical column name."""

    values: pa.Table
    wrong: Mapping[str, pa.StringArray]
    """The invalid strings of each column that has any; NULL for files with valid values. In `values`, a file with an
    invalid string has NULL, which is not its value."""


def parse_partition_values(
    values: pa.MapArray | None, parsed: pa.StructArray | None, metadata: TableMetadata
) -> TypedPartitionValues:
    """Return the partition columns in their declared types, by logical name.

    `parsed` holds the typed values of a checkpoint, by physical name, for rows whose map is null or was not read.
    """
    arrays: dict[str, pa.Array] = {}
    wrong: dict[str, pa.StringArray] = {}
    for name in metadata.partition_columns:
        arrays[name], texts = _read_column(values, parsed, metadata.fields_by_name[name])
        if texts is not None and texts.null_count < len(texts):
            wrong[name] = texts
    if not arrays:
        rows = len(values if values is not None else parsed if parsed is not None else ())
        return TypedPartitionValues(pa.table({"rows": pa.nulls(rows)}).select([]), {})
    return TypedPartitionValues(pa.table(arrays), wrong)


def make_unreadable_value_error(text: str, name: str, metadata: TableMetadata) -> CorruptFile:
    """Return the error for a query that needs a partition column with a string that is invalid for its type."""
    data_type = metadata.fields_by_name[name].data_type
    return CorruptFile(
        f"the partition value {text!r} of column {name!r} in the Delta table {metadata.location} is not a valid "
        f"{types.type_name(data_type)}. Only queries that do not need the column can be answered"
    )


def get_partition_strings(values: pa.MapArray, metadata: TableMetadata) -> dict[str, pa.StringArray]:
    """Return the log's strings of each partition column, by logical name; an empty string is NULL."""
    if metadata.partition_columns and values.null_count:
        raise CorruptFile(
            f"a checkpoint of the Delta table {metadata.location} has typed partition values only, and no strings for "
            "a PartitionFilter to compare: filter with SQL, or write a new checkpoint"
        )
    return {
        name: _evaluate(values, metadata.fields_by_name[name].physical_name, types.STRING)
        for name in metadata.partition_columns
    }


def make_partition_expression(physical_name: str, data_type: pa.DataType) -> Call:
    """Return the value of a partition column as an expression over the log's maps."""
    text = Call("element_at", (PARTITION_VALUES, Literal(physical_name, types.STRING)))
    return Call("partition_value", (text, Literal(types.type_name(data_type), types.STRING)))


@lru_cache(maxsize=256)
def _make_evaluator(physical_name: str, data_type: pa.DataType) -> Evaluator:
    return Evaluator(make_partition_expression(physical_name, data_type))


def _evaluate(values: pa.MapArray, physical_name: str, data_type: pa.DataType) -> pa.Array:
    found = _make_evaluator(physical_name, data_type)(pa.record_batch([values], names=[PARTITION_VALUES.name]))
    # Expressions have a single type for UTC timestamps.
    return found if found.type == data_type else found.view(data_type)


def _read_column(
    values: pa.MapArray | None, parsed: pa.StructArray | None, field: DeltaField
) -> tuple[pa.Array, pa.StringArray | None]:
    """Return the values of a column, and its invalid strings where it has any."""
    if values is None:
        assert parsed is not None, "neither strings nor typed values"
        return _read_parsed_column(parsed, field)
    read, wrong = _parse_texts(values, field)
    if parsed is None or not values.null_count:
        return read, wrong
    typed, wrong_typed = _read_parsed_column(parsed, field)
    no_texts = pc.is_null(values)
    if wrong is not None or wrong_typed is not None:
        none = pa.nulls(len(read), types.STRING)
        wrong = pc.if_else(no_texts, none if wrong_typed is None else wrong_typed, none if wrong is None else wrong)
    return pc.if_else(no_texts, typed, read), wrong


def _parse_texts(values: pa.MapArray, field: DeltaField) -> tuple[pa.Array, pa.StringArray | None]:
    try:
        return _evaluate(values, field.physical_name, field.data_type), None
    except EvaluationError as error:
        if not isinstance(error.__cause__, InvalidPartitionValue):
            raise
    texts = _evaluate(values, field.physical_name, types.STRING)
    wrong = find_invalid_partition_values(texts, field.data_type)
    right = pc.if_else(wrong.is_valid(), pa.scalar(None, types.STRING), texts)
    names = pa.array([field.physical_name] * len(texts), types.STRING)
    maps = pa.MapArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), names, right)
    return _evaluate(maps, field.physical_name, field.data_type), wrong


def _read_parsed_column(parsed: pa.StructArray, field: DeltaField) -> tuple[pa.Array, pa.StringArray | None]:
    if parsed.type.get_field_index(field.physical_name) < 0:
        return pa.nulls(len(parsed), field.data_type), None
    found = pc.struct_field(parsed, [field.physical_name])
    if pa.types.is_timestamp(found.type) and found.type != field.data_type:
        found = found.cast(pa.timestamp("us", found.type.tz), safe=False).cast(types.LONG)
    try:
        typed = found.cast(field.data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Arrow does not say which of the values are invalid, so all of them count as invalid.
        shown = pa.array([None if each is None else str(each) for each in found.to_pylist()], types.STRING)
        return pa.nulls(len(parsed), field.data_type), shown
    if not types.is_text(typed.type):
        return typed, None
    return pc.if_else(pc.equal(typed, ""), pa.scalar(None, typed.type), typed), None
