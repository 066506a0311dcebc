"""Partition values: from the strings of the log to typed columns.

The log has a map from physical column names to strings for every file. A partition value is an expression over that
map, `partition_value(element_at(add.partitionValues, 'name'), 'type')`; `tamis.expr.functions.partition_values` defines
how strings are parsed. A name that the map lacks is NULL. Partition values in a file's path are ignored.

So a filter on partition columns is a filter on the log's actions (`rewrite_partition_predicate`), and pruning evaluates
just that, once for each distinct map of partition values.

A string that is invalid for the type of its column (a date of the year 999999999, `abc` for an int) makes only that
column unreadable: queries that do not need it are answered.

Checkpoints may also have typed values, but as their writer parsed the strings: a timestamp without a zone was parsed in
the zone of that machine. So strings take precedence if both exist. Typed values without strings become strings.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, EvaluationError, InvalidArgument, suggest_arguments
from tamis.expr.bind import bind
from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.functions.partition_values import (
    InvalidPartitionValue,
    find_invalid_partition_values,
    partition_text,
)
from tamis.expr.interop.from_any import to_expr
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, find_columns, not_, transform
from tamis.expr.wire.partition_filter import resolve_column
from tamis.formats.delta.schema import DeltaField, TableMetadata
from tamis.skipping.metadata import ROW_COUNT, lower, nan_count, null_count, upper
from tamis.skipping.predicate import get_partition_name, is_partition_text, make_partition_text
from tamis.skipping.rewrite import Conjunct

PARTITION_VALUES = Column(("add", "partitionValues"), type=pa.map_(types.STRING, types.STRING))

PHYSICAL_NAME = b"delta.columnMapping.physicalName"
"""The key of a column's physical name in the metadata of its field, as in Delta's own schemas."""


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """The partition values of files: the distinct maps of the log, and which of them each file has."""

    maps: pa.MapArray
    """Distinct maps from physical names to strings, of the partition columns only."""
    codes: npt.NDArray[np.int32] | npt.NDArray[np.int64]
    """The position of each file's map in `maps`."""

    @staticmethod
    def concatenate(each: Sequence[PartitionValues]) -> PartitionValues:
        """Return the values of all files. A map may occur once for each of the given ones."""
        starts = np.cumsum([0, *(len(one.maps) for one in each)])
        codes = [one.codes + start for one, start in zip(each, starts, strict=False)]
        return PartitionValues(pa.concat_arrays([one.maps for one in each]), np.concatenate(codes))

    @property
    def weight(self) -> int:
        return int(self.maps.nbytes + self.codes.nbytes)


def encode_partition_values(
    values: pa.MapArray | None, parsed: pa.StructArray | None, metadata: TableMetadata
) -> PartitionValues:
    """Return the partition values of files as distinct maps.

    `parsed` holds the typed values of a checkpoint, by physical name, for rows whose map is null or was not read.
    """
    fields = [metadata.fields_by_name[name] for name in metadata.partition_columns]
    rows = len(values if values is not None else parsed if parsed is not None else ())
    codes = np.zeros(rows, np.int64)
    distinct: list[pa.Array] = []
    count = min(rows, 1)
    for field in fields:
        encoded = _read_strings(values, parsed, field).dictionary_encode(null_encoding="encode")
        # The pairs of an earlier code and a new one are numbered again, so that no number overflows.
        own = len(encoded.dictionary)
        pairs = pa.array(codes * own + encoded.indices.to_numpy()).dictionary_encode()
        codes, numbers = pairs.indices.to_numpy().astype(np.int64), pairs.dictionary.to_numpy()
        earlier, new = (pa.array(each) for each in np.divmod(numbers, max(own, 1)))
        distinct = [*(each.take(earlier) for each in distinct), encoded.dictionary.take(new)]
        count = len(numbers)
    width = len(fields)
    # The strings of all columns, file by file.
    order = np.arange(count * width).reshape(width, count).T.ravel()
    items = pa.concat_arrays(distinct).take(pa.array(order)) if distinct else pa.array([], types.STRING)
    keys = pa.array([field.physical_name for field in fields] * count, types.STRING)
    offsets = pa.array(np.arange(count + 1) * width, pa.int32())
    return PartitionValues(pa.MapArray.from_arrays(offsets, keys, items), codes.astype(np.int32))


def make_scan_file_batch(maps: pa.MapArray) -> pa.RecordBatch:
    """Return maps of partition values as they are in the log: `add.partitionValues`."""
    return pa.record_batch({"add": pa.StructArray.from_arrays([maps], names=["partitionValues"])})


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
    """Return the partition columns in their declared types, by logical name; see `encode_partition_values`."""
    return type_partition_values(encode_partition_values(values, parsed, metadata), metadata)


def type_partition_values(given: PartitionValues, metadata: TableMetadata) -> TypedPartitionValues:
    """Return the partition columns in their declared types, by logical name."""
    codes = pa.array(given.codes)
    arrays: dict[str, pa.Array] = {}
    wrong: dict[str, pa.StringArray] = {}
    for name in metadata.partition_columns:
        found, texts = _parse_texts(given.maps, metadata.fields_by_name[name])
        arrays[name] = found.take(codes)
        if texts is not None:
            wrong[name] = texts.take(codes)
    if not arrays:
        return TypedPartitionValues(pa.table({"rows": pa.nulls(len(codes))}).select([]), {})
    return TypedPartitionValues(pa.table(arrays), wrong)


def make_unreadable_value_error(text: str, name: str, metadata: TableMetadata) -> CorruptFile:
    """Return the error for a query that needs a partition column with a string that is invalid for its type."""
    data_type = metadata.fields_by_name[name].data_type
    return CorruptFile(
        f"the partition value {text!r} of column {name!r} in the Delta table {metadata.location} is not a valid "
        f"{types.type_name(data_type)}. Only queries that do not need the column can be answered"
    )


def get_partition_strings(values: pa.MapArray, name: str, metadata: TableMetadata) -> pa.StringArray:
    """Return the log's strings of a partition column; an empty string is NULL."""
    if values.null_count:
        raise CorruptFile(
            f"a checkpoint of the Delta table {metadata.location} has typed partition values only, and no strings for "
            "a PartitionFilter to compare: filter with SQL, or write a new checkpoint"
        )
    return _evaluate(values, metadata.fields_by_name[name].physical_name, types.STRING)


@suggest_arguments("tamis.delta.rewrite_partition_predicate")
def rewrite_partition_predicate(predicate: object, schema: pa.Schema) -> Expr:
    """Return a predicate over partition columns as a predicate over the log's actions, which have a column `add`.

    `schema` has the partition columns with their types. The metadata of a field may have its physical name, under
    `delta.columnMapping.physicalName`, as in the schemas of Delta tables with column mapping.

    >>> rewrite_partition_predicate("day > 5", pa.schema([("day", pa.int64())]))
    Call<partition_value(element_at(add.partitionValues, 'day'), 'bigint') > 5>
    """
    given = to_expr(predicate)
    if given is None:
        raise InvalidArgument("predicate must be SQL text or an expression over partition columns, found None")
    table = "the partition schema"
    bound = bind(
        given, schema, table, get_text=lambda name: make_partition_text(resolve_column(name, schema.names, table))
    )
    texts = [column for column in find_columns(bound) if is_partition_text(column.path[0])]
    return substitute_partition_values(bound, _add_texts(schema, texts))


def substitute_partition_values(predicate: Expr, schema: pa.Schema) -> Expr:
    """Return a bound predicate with partition values in the place of the columns of a schema."""
    values = {field.name: make_partition_expression(_get_physical_name(field), field.type) for field in schema}
    return transform(predicate, lambda node: values.get(node.path[0], node) if isinstance(node, Column) else node)


def rewrite_conjunct(conjunct: Conjunct, schema: pa.Schema) -> Conjunct:
    """Return a conjunct with answers over the log's actions; each action is one unit of one row.

    A conjunct on partition columns alone is evaluated as it is. In others, the value of a partition column is both of
    its bounds, and nothing is known about the other columns.
    """
    columns = [column for column in find_columns(conjunct.predicate) if column.path[0] in schema.names]
    if not columns:
        return conjunct
    if len(columns) == len(find_columns(conjunct.predicate)) and can_evaluate(conjunct.predicate):
        value = substitute_partition_values(conjunct.predicate, schema)
        is_true = Call("coalesce", (value, FALSE))
        return replace(
            conjunct,
            may_be_true=is_true,
            fully_matches=is_true,
            may_be_false=Call("coalesce", (not_(value), FALSE)),
        )
    known = {name: value for column in columns for name, value in _make_bounds(column, schema).items()}

    def substitute(answer: Expr) -> Expr:
        return transform(answer, lambda node: known.get(node, node) if isinstance(node, Column) else node)

    return replace(
        conjunct,
        may_be_true=substitute(conjunct.may_be_true),
        fully_matches=substitute(conjunct.fully_matches),
        may_be_false=substitute(conjunct.may_be_false),
    )


def _make_bounds(column: Column, schema: pa.Schema) -> dict[Column, Expr]:
    """Return the metadata of a unit of one row as expressions over the value of a partition column."""
    value = bound = substitute_partition_values(column, schema)
    one, none = Literal(1, types.LONG), Literal(0, types.LONG)
    found: dict[Column, Expr] = {null_count(column): Call("case", (Call("is_null", (value,)), one, none))}
    if column.type is not None and pa.types.is_floating(column.type):
        is_nan = Call("coalesce", (Call("=", (value, Literal(float("nan"), column.type))), FALSE))
        found[nan_count(column)] = Call("case", (is_nan, one, none))
        bound = Call("case", (is_nan, Literal(None, column.type), value))
    return found | {lower(column): bound, upper(column): bound, ROW_COUNT: one}


def _get_physical_name(field: pa.Field) -> str:
    found = (field.metadata or {}).get(PHYSICAL_NAME)
    return str(field.name) if found is None else found.decode()


def make_partition_schema(
    metadata: TableMetadata, texts: Sequence[Column] = (), without: Collection[str] = ()
) -> pa.Schema:
    """Return the partition columns of a table, except some, and texts of them, with their physical names in the fields'
    metadata."""
    fields = [metadata.fields_by_name[name] for name in metadata.partition_columns]
    schema = pa.schema(
        [pa.field(each.name, each.data_type, metadata={PHYSICAL_NAME: each.physical_name}) for each in fields]
    )
    return pa.schema([each for each in _add_texts(schema, texts) if each.name not in without])


def _add_texts(schema: pa.Schema, texts: Sequence[Column]) -> pa.Schema:
    """Return partition columns with the texts of some of them, which have the same physical names."""
    for column in texts:
        name = _get_physical_name(schema.field(get_partition_name(column)))
        schema = schema.append(pa.field(column.name, types.STRING, metadata={PHYSICAL_NAME: name}))
    return schema


def make_partition_expression(physical_name: str, data_type: pa.DataType) -> Call:
    """Return the value of a partition column as an expression over the log's actions."""
    text = Call("element_at", (PARTITION_VALUES, Literal(physical_name, types.STRING)))
    return Call("partition_value", (text, Literal(types.type_name(data_type), types.STRING)))


@lru_cache(maxsize=256)
def _make_evaluator(physical_name: str, data_type: pa.DataType) -> Evaluator:
    return Evaluator(make_partition_expression(physical_name, data_type))


def _evaluate(values: pa.MapArray, physical_name: str, data_type: pa.DataType) -> pa.Array:
    found = _make_evaluator(physical_name, data_type)(make_scan_file_batch(values))
    # Expressions have a single type for UTC timestamps.
    return found if found.type == data_type else found.view(data_type)


def _read_strings(values: pa.MapArray | None, parsed: pa.StructArray | None, field: DeltaField) -> pa.StringArray:
    """Return the strings of a column; typed values as strings where the log has no map."""
    if values is None:
        assert parsed is not None, "neither strings nor typed values"
        return _format_parsed_column(parsed, field)
    texts = _evaluate(values, field.physical_name, types.STRING)
    if parsed is None or not values.null_count:
        return texts
    return pc.if_else(pc.is_null(values), _format_parsed_column(parsed, field), texts)


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


def _format_parsed_column(parsed: pa.StructArray, field: DeltaField) -> pa.StringArray:
    if parsed.type.get_field_index(field.physical_name) < 0:
        return pa.nulls(len(parsed), types.STRING)
    found = pc.struct_field(parsed, [field.physical_name])
    if pa.types.is_timestamp(found.type) and found.type != field.data_type:
        found = found.cast(pa.timestamp("us", found.type.tz), safe=False).cast(types.LONG)
    try:
        typed = found.cast(field.data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        # Arrow does not say which of the values are invalid. As strings, those are.
        return pa.array([None if each is None else str(each) for each in found.to_pylist()], types.STRING)
    if types.is_bytes(typed.type):
        # Bytes may be no text, which only reading them as text would notice.
        return typed.cast(types.BINARY).cast(types.STRING, safe=False)
    return partition_text(typed, field.name).cast(types.STRING)
