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

from collections.abc import Mapping, Sequence
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
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, find_columns, not_, replace_columns
from tamis.expr.wire.partition_filter import resolve_column
from tamis.formats.delta.schema import DeltaField, TableMetadata
from tamis.skipping.metadata import ROW_COUNT, lower, nan_count, null_count, upper
from tamis.skipping.predicate import get_partition_name, is_partition_text, make_partition_text
from tamis.skipping.rewrite import Conjunct

PARTITION_VALUES = Column(("add", "partitionValues"), type=pa.map_(types.STRING, types.STRING))
PARSED_PARTITION_VALUES = ("add", "partitionValues_parsed")

PHYSICAL_NAME = b"delta.columnMapping.physicalName"
"""The key of a column's physical name in the metadata of its field, as in Delta's own schemas."""


@dataclass(frozen=True, slots=True)
class TypedPartitionValues:
    """Partition values in their declared types, by logical column name."""

    values: pa.Table
    wrong: Mapping[str, pa.StringArray]
    """The invalid strings of each column that has any; NULL beside valid values. In `values`, an invalid string is
    NULL, which is not its value."""

    def take(self, rows: npt.NDArray[np.integer]) -> TypedPartitionValues:
        indices = pa.array(rows)
        arrays = {name: self.values[name].take(indices) for name in self.values.column_names}
        wrong = {name: texts.take(indices) for name, texts in self.wrong.items()}
        return TypedPartitionValues(_make_table(arrays, len(indices)), wrong)


@dataclass(frozen=True, slots=True)
class PartitionValues:
    """The partition values of files: the distinct ones, and which of them each file has."""

    strings: pa.Table
    """The strings of the log, by physical column name; each row occurs once."""
    codes: npt.NDArray[np.int32]
    """The row of each file in `strings`."""
    typed: TypedPartitionValues
    """The typed values of each row of `strings`."""
    has_strings: bool = True
    """Whether the log has all values as strings. The strings of others are made of typed values."""

    @staticmethod
    def concatenate(each: Sequence[PartitionValues], metadata: TableMetadata) -> PartitionValues:
        """Return the values of all files."""
        if len(each) == 1:
            return each[0]
        if not metadata.partition_columns:
            # Tables without columns lose their number of rows when they are concatenated.
            first = max(each, key=lambda one: len(one.codes))
            return replace(first, codes=np.concatenate([one.codes for one in each]))
        starts = np.cumsum([0, *(one.strings.num_rows for one in each)])
        codes = np.concatenate([one.codes + start for one, start in zip(each, starts, strict=False)])
        strings = pa.concat_tables([one.strings for one in each])
        found = _encode_strings(strings, metadata, has_strings=all(one.has_strings for one in each))
        return replace(found, codes=found.codes[codes])

    def expand(self) -> TypedPartitionValues:
        """Return the typed values of each file."""
        return self.typed.take(self.codes)

    @property
    def weight(self) -> int:
        parts = (self.strings, self.codes, self.typed.values, *self.typed.wrong.values())
        return sum(int(each.nbytes) for each in parts)


def _make_table(arrays: Mapping[str, pa.Array | pa.ChunkedArray], rows: int) -> pa.Table:
    return pa.table(arrays) if arrays else pa.table({"rows": pa.nulls(rows)}).select([])


def encode_partition_values(
    values: pa.MapArray | None, parsed: pa.StructArray | None, metadata: TableMetadata
) -> PartitionValues:
    """Return the partition values of files, each of the distinct ones once.

    `parsed` holds the typed values of a checkpoint, by physical name, for rows whose map is null or was not read.
    """
    fields = [metadata.fields_by_name[name] for name in metadata.partition_columns]
    rows = len(values if values is not None else parsed if parsed is not None else ())
    strings = {field.physical_name: _read_strings(values, parsed, field) for field in fields}
    has_strings = values is not None and not values.null_count
    return _encode_strings(_make_table(strings, rows), metadata, has_strings=has_strings)


def _encode_strings(strings: pa.Table, metadata: TableMetadata, *, has_strings: bool) -> PartitionValues:
    codes = np.zeros(strings.num_rows, np.int64)
    rows = np.zeros(min(strings.num_rows, 1), np.int64)
    for column in strings.columns:
        encoded = column.combine_chunks().dictionary_encode(null_encoding="encode")
        # The pairs of an earlier code and a new one are numbered again, so that no number overflows.
        pairs = codes * len(encoded.dictionary) + encoded.indices.to_numpy()
        _, rows, codes = np.unique(pairs, return_index=True, return_inverse=True)
    strings = strings.take(pa.array(rows)) if strings.num_columns else strings.slice(0, len(rows))
    parsed = {
        name: _parse_texts(strings[metadata.fields_by_name[name].physical_name].combine_chunks(), metadata, name)
        for name in metadata.partition_columns
    }
    wrong = {name: texts for name, (_, texts) in parsed.items() if texts is not None}
    values = _make_table({name: found for name, (found, _) in parsed.items()}, len(rows))
    return PartitionValues(strings, codes.astype(np.int32), TypedPartitionValues(values, wrong), has_strings)


def make_scan_file_batch(strings: pa.Table) -> pa.RecordBatch:
    """Return strings of partition values as they are in the log: `add.partitionValues`."""
    rows, width = strings.num_rows, strings.num_columns
    keys = pa.array(strings.column_names, types.STRING).take(pa.array(np.tile(np.arange(width), rows)))
    # The strings of all columns, file by file.
    order = np.arange(rows * width).reshape(width, rows).T.ravel()
    items = pa.concat_arrays([column.combine_chunks() for column in strings.columns]).take(pa.array(order))
    maps = pa.MapArray.from_arrays(pa.array(np.arange(rows + 1) * width, pa.int32()), keys, items)
    return _make_action_batch("partitionValues", maps)


def _make_action_batch(name: str, values: pa.Array) -> pa.RecordBatch:
    return pa.record_batch({"add": pa.StructArray.from_arrays([values], names=[name])})


def make_parsed_batch(values: pa.Table) -> pa.RecordBatch:
    """Return typed partition values as they are in some checkpoints, but with logical names:
    `add.partitionValues_parsed`."""
    arrays = [column.combine_chunks() for column in values.columns]
    parsed = pa.StructArray.from_arrays(arrays, names=values.column_names)
    return _make_action_batch("partitionValues_parsed", parsed)


def make_unreadable_value_error(text: str, name: str, metadata: TableMetadata) -> CorruptFile:
    """Return the error for a query that needs a partition column with a string that is invalid for its type."""
    data_type = metadata.fields_by_name[name].data_type
    return CorruptFile(
        f"the partition value {text!r} of column {name!r} in the Delta table {metadata.location} is not a valid "
        f"{types.type_name(data_type)}. Only queries that do not need the column can be answered"
    )


def get_partition_strings(values: PartitionValues, name: str, metadata: TableMetadata) -> pa.ChunkedArray:
    """Return the log's strings of a partition column, each of the distinct ones; an empty string is NULL."""
    if not values.has_strings:
        raise CorruptFile(
            f"a checkpoint of the Delta table {metadata.location} has typed partition values only, and no strings for "
            "a PartitionFilter to compare: filter with SQL, or write a new checkpoint"
        )
    return values.strings[metadata.fields_by_name[name].physical_name]


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


def substitute_partition_values(predicate: Expr, schema: pa.Schema, *, parsed: bool = False) -> Expr:
    """Return a bound predicate with partition values in the place of the columns of a schema; `parsed` as in
    `rewrite_conjunct`."""
    values = {
        field.name: Column((*PARSED_PARTITION_VALUES, field.name), type=field.type)
        if parsed
        else make_partition_expression(_get_physical_name(field), field.type)
        for field in schema
    }
    return replace_columns(predicate, lambda column: values.get(column.path[0], column))


def rewrite_conjunct(conjunct: Conjunct, schema: pa.Schema, *, parsed: bool = False) -> Conjunct:
    """Return a conjunct with answers over the log's actions; each action is one unit of one row.

    A conjunct on partition columns alone is evaluated as it is. In others, the value of a partition column is both of
    its bounds, and nothing is known about the other columns. With `parsed`, actions are those of `make_parsed_batch`.
    """
    columns = [column for column in find_columns(conjunct.predicate) if column.path[0] in schema.names]
    if not columns:
        return conjunct
    if len(columns) == len(find_columns(conjunct.predicate)) and can_evaluate(conjunct.predicate):
        value = substitute_partition_values(conjunct.predicate, schema, parsed=parsed)
        is_true = Call("coalesce", (value, FALSE))
        return replace(
            conjunct,
            may_be_true=is_true,
            fully_matches=is_true,
            may_be_false=Call("coalesce", (not_(value), FALSE)),
        )
    known = {name: value for column in columns for name, value in _make_bounds(column, schema, parsed).items()}

    def substitute(answer: Expr) -> Expr:
        return replace_columns(answer, lambda column: known.get(column, column))

    return replace(
        conjunct,
        may_be_true=substitute(conjunct.may_be_true),
        fully_matches=substitute(conjunct.fully_matches),
        may_be_false=substitute(conjunct.may_be_false),
    )


def _make_bounds(column: Column, schema: pa.Schema, parsed: bool) -> dict[Column, Expr]:
    """Return the metadata of a unit of one row as expressions over the value of a partition column."""
    value = bound = substitute_partition_values(column, schema, parsed=parsed)
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


def make_partition_schema(metadata: TableMetadata, texts: Sequence[Column] = ()) -> pa.Schema:
    """Return the partition columns of a table and texts of them, with their physical names in the fields' metadata."""
    fields = [metadata.fields_by_name[name] for name in metadata.partition_columns]
    schema = pa.schema(
        [pa.field(each.name, each.data_type, metadata={PHYSICAL_NAME: each.physical_name}) for each in fields]
    )
    return _add_texts(schema, texts)


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
def _make_reader(physical_name: str) -> Evaluator:
    return Evaluator(make_partition_expression(physical_name, types.STRING))


@lru_cache(maxsize=256)
def _make_parser(data_type: pa.DataType) -> Evaluator:
    text = Column(("text",), type=types.STRING)
    return Evaluator(Call("partition_value", (text, Literal(types.type_name(data_type), types.STRING))))


def _read_strings(values: pa.MapArray | None, parsed: pa.StructArray | None, field: DeltaField) -> pa.StringArray:
    """Return the strings of a column; typed values as strings where the log has no map."""
    if values is None:
        assert parsed is not None, "neither strings nor typed values"
        return _format_parsed_column(parsed, field)
    texts = _make_reader(field.physical_name)(_make_action_batch("partitionValues", values))
    if parsed is None or not values.null_count:
        return texts
    return pc.if_else(pc.is_null(values), _format_parsed_column(parsed, field), texts)


def _parse_texts(texts: pa.StringArray, metadata: TableMetadata, name: str) -> tuple[pa.Array, pa.StringArray | None]:
    """Return the values of strings, and the strings that are invalid, if there are any."""
    data_type = metadata.fields_by_name[name].data_type
    wrong = None
    try:
        found = _make_parser(data_type)(pa.record_batch({"text": texts}))
    except EvaluationError as error:
        if not isinstance(error.__cause__, InvalidPartitionValue):
            raise
        wrong = find_invalid_partition_values(texts, data_type)
        right = pc.if_else(wrong.is_valid(), pa.scalar(None, types.STRING), texts)
        found = _make_parser(data_type)(pa.record_batch({"text": right}))
    # Expressions have a single type for UTC timestamps.
    return found if found.type == data_type else found.view(data_type), wrong


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
