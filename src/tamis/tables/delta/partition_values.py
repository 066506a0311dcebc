"""Partition values: from the texts of the log to typed columns.

The log has a map from physical names to texts for every file. An empty text is NULL for every type, and so is a null or
a name that the map lacks; the text `null` is a text like any other. What the path of a file says counts for nothing.

Checkpoints may have the values in their types too, but as whoever wrote them understood the texts: a timestamp without
a zone was read in the zone of that machine. So the texts are what counts wherever they are at hand.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.map_lookup import map_element
from tamis.expr.partition_text import parse_double
from tamis.tables.delta.fields import DeltaField
from tamis.tables.delta.schema import TableMetadata
from tamis.tables.delta.time_texts import read_dates, read_timestamps

_WHOLE = r"^[+-]?[0-9]{1,38}$"
_NUMBER = r"^[+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?$"
_WIDE = pa.decimal128(38, 0)


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


def _column(
    values: pa.MapArray | None, parsed: pa.StructArray | None, field: DeltaField, place: str
) -> pa.Array | pa.ChunkedArray:
    typed = None if parsed is None else _parsed_column(parsed, field, place)
    if values is None:
        assert parsed is not None, "neither texts nor typed values"
        return pa.nulls(len(parsed), field.data_type) if typed is None else typed
    read = typed_texts(map_element(values, field.physical_name), field, place)
    if typed is None or not values.null_count:
        return read
    return pc.if_else(pc.is_null(values), typed, read)


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
    return _empty_as_null(typed) if types.is_text(typed.type) else typed


def typed_texts(texts: pa.StringArray, field: DeltaField, place: str) -> pa.Array:
    """The partition values that texts spell, in the type of their column."""
    texts = _empty_as_null(texts.cast(types.STRING))
    if types.is_text(field.data_type):
        return texts
    # A partition column has few distinct values, so each is read once.
    encoded = pc.dictionary_encode(texts)
    distinct = _reader(field.data_type)(encoded.dictionary, field.data_type)
    if distinct.null_count:
        wrong = encoded.dictionary.filter(pc.is_null(distinct))[0].as_py()
        raise CorruptFile(
            f"the partition value {wrong!r} of column {field.name!r} in the Delta table {place} is no "
            f"{types.type_name(field.data_type)}"
        )
    return distinct.take(encoded.indices)


def _empty_as_null(texts: pa.StringArray) -> pa.StringArray:
    return pc.if_else(pc.equal(texts, ""), pa.scalar(None, texts.type), texts)


Reader = Callable[[pa.StringArray, pa.DataType], pa.Array]
"""From texts to values of a type; null where a text is none."""


def _reader(data_type: pa.DataType) -> Reader:
    if pa.types.is_boolean(data_type):
        return _booleans
    if pa.types.is_integer(data_type):
        return _whole_numbers
    if pa.types.is_floating(data_type):
        return _floats
    if pa.types.is_decimal(data_type):
        return _decimals
    if pa.types.is_date(data_type):
        return lambda texts, _: read_dates(texts)
    if pa.types.is_timestamp(data_type):
        return read_timestamps
    # Delta on Spark spells bytes as the text that they are in UTF-8.
    return lambda texts, target: texts.cast(types.BINARY).cast(target)


def _booleans(texts: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    lowered = pc.utf8_lower(texts)
    known = pc.is_in(lowered, value_set=pa.array(["true", "false"]))
    return pc.if_else(known, pc.equal(lowered, "true"), pa.scalar(None, data_type))


def _whole_numbers(texts: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    smallest, largest = (pa.scalar(limit).cast(_WIDE) for limit in types.integer_range(data_type))
    numbers = _only(texts, _WHOLE).cast(_WIDE)
    fits = pc.and_(pc.greater_equal(numbers, smallest), pc.less_equal(numbers, largest))
    return pc.if_else(fits, numbers, pa.scalar(None, _WIDE)).cast(data_type)


def _floats(texts: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    return parse_double(texts).cast(data_type, safe=False)


def _decimals(texts: pa.StringArray, data_type: pa.DataType) -> pa.Array:
    numbers = _only(texts, _NUMBER)
    try:
        return numbers.cast(data_type)
    except pa.ArrowInvalid:
        return pa.array([_decimal(text, data_type) for text in numbers.to_pylist()], data_type)


def _decimal(text: str | None, data_type: pa.DataType) -> object:
    try:
        return pa.scalar(text).cast(data_type).as_py()
    except pa.ArrowInvalid:
        return None


def _only(texts: pa.StringArray, pattern: str) -> pa.StringArray:
    kept = pc.if_else(pc.match_substring_regex(texts, pattern), texts, pa.scalar(None, texts.type))
    # Arrow does not take a leading plus.
    return pc.utf8_ltrim(kept, characters="+")
