"""The Spark implementation of the protocol in `tamis.skipping.handler`: predicates over metadata as Columns.

The rewritten predicate that Arrow evaluates over a batch becomes a Column over a DataFrame of files, and the JVM
evaluates it where the metadata is. `predicate_evaluator` sends a batch to Spark and back, for tests and for few units;
`keeps` returns the Column for a cached DataFrame.

Both return exactly what Arrow returns. What Spark's expressions compute differently (`upper`, strings as dates,
partition values of some types) becomes a Column that executors compute with Arrow's kernels: an Arrow UDF. Only batches
with types that Spark lacks, such as timestamps in nanoseconds, go to executors as an item of a job.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.engines.spark.columns import ColumnCompiler, CompiledColumn, to_sql_type
from tamis.engines.spark.jobs import SparkEngine
from tamis.engines.spark.sessions import check_session, import_functions, make_arrow_udf
from tamis.engines.spark.spark_types import convert_metadata, to_metadata_type, to_spark_schema
from tamis.errors import EvaluationError, InvalidArgument
from tamis.expr.evaluate import Evaluator, has_kernel
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, find_columns, replace_columns, walk
from tamis.expr.sql.printer import to_sql
from tamis.expr.wire.expression_json import bound_from_json, expression_to_json
from tamis.formats.jobs import Arguments, Item, Job, read_table
from tamis.skipping.handler import ArrowExpressionHandler, check_batch
from tamis.types import type_name_with_article

_ROW, _VALUE, _FAILED = "row", "value", "failed"
_EVALUATED = f"struct<{_VALUE}: boolean, {_FAILED}: boolean>"
_EVALUATED_TYPE = pa.struct([(_VALUE, pa.bool_()), (_FAILED, pa.bool_())])


def quote_name(name: str) -> str:
    """Quote the name of a DataFrame column.

    >>> quote_name("lower:`a.b`")
    '`lower:``a.b```'
    """
    return "`" + name.replace("`", "``") + "`"


class SparkExpressionHandler:
    """Evaluates predicates with Spark, over DataFrames or over batches that it sends to Spark."""

    def __init__(self, spark: Any) -> None:
        self.spark = check_session(spark)
        self.functions = import_functions(spark)

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        """Return a selection vector: one boolean per row, without nulls."""
        return ArrowExpressionHandler().create_selection_vector(booleans)

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> SparkPredicateEvaluator:
        """Return the evaluator of a predicate over batches with a schema."""
        return SparkPredicateEvaluator(self, schema, predicate)

    def compile(self, predicate: Expr, names: Mapping[str, Any] | Collection[str]) -> CompiledColumn:
        """Return a predicate over metadata as a Column for a DataFrame that has some of its columns.

        `names` are the metadata columns of the DataFrame, or a mapping of them to its column names or to Columns.
        Missing ones are unknown.
        """
        known = names if isinstance(names, Mapping) else {name: name for name in names}
        functions = self.functions

        def read(column: Column) -> Any:
            found = known.get(column.path[0])
            if found is not None:
                value = functions.col(quote_name(found)) if isinstance(found, str) else found
                for part in column.path[1:]:
                    value = value.getField(part)
                return value
            stored = to_metadata_type(column.type or types.NULL) or types.NULL
            return functions.lit(None) if pa.types.is_null(stored) else functions.lit(None).cast(to_sql_type(stored))

        try:
            return ColumnCompiler(functions, read).compile(predicate)
        except EvaluationError:
            _check_kernels(predicate)
        columns = [column for column in find_columns(predicate) if column.path[0] in known]
        renamed = {column: Column((str(number),), type=column.type) for number, column in enumerate(columns)}
        own = replace_columns(predicate, lambda column: renamed.get(column, column))
        evaluate = make_kernel_function(expression_to_json(own), [column.type for column in columns])
        # A UDF needs an argument.
        arguments = [read(column) for column in columns] or [functions.lit(0)]
        found = make_arrow_udf(self.spark, evaluate, _EVALUATED)(*arguments)
        return CompiledColumn(found.getField(_VALUE), found.getField(_FAILED))

    def compile_keep(self, may_be_true: Expr, names: Mapping[str, Any] | Collection[str]) -> Any:
        """Return a Column that is TRUE for the units to keep, and never NULL: units with an unknown result are kept."""
        compiled = self.compile(may_be_true, names)
        kept = self.functions.coalesce(compiled.value, self.functions.lit(True))
        return kept if compiled.failed is None else kept | compiled.failed


class SparkPredicateEvaluator:
    def __init__(self, handler: SparkExpressionHandler, schema: pa.Schema, predicate: Expr) -> None:
        data_type = type_of(predicate)
        if data_type is not None and not (pa.types.is_boolean(data_type) or pa.types.is_null(data_type)):
            raise InvalidArgument(f"{_shorten(predicate)} is {type_name_with_article(data_type)} and not a predicate")
        self._handler = handler
        self._schema = schema
        self._predicate = predicate
        paths = {
            node.path: node for node in walk(predicate) if isinstance(node, Column) and node.path[0] in schema.names
        }
        # Numbers replace paths: Spark does not distinguish `a` from `A`, and nested fields become columns.
        self._names = {path: f"column_{number}" for number, path in enumerate(paths)}
        self._compiled = self._compile()

    def _compile(self) -> CompiledColumn | None:
        """Return the predicate as a Column; None if Spark has no type for a column of the batch."""
        if not all(_is_exact(_get_field_type(self._schema, path)) for path in self._names):
            return None
        # Columns get the types of the batch: a predicate that was built by hand may lack them.
        return self._handler.compile(replace_columns(self._predicate, self._rename), list(self._names.values()))

    def _rename(self, column: Column) -> Column:
        name = self._names.get(column.path)
        return column if name is None else Column((name,), column.type or _get_field_type(self._schema, column.path))

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Return the selection of rows that were selected before and for which the predicate is TRUE."""
        check_batch(self._schema, batch, selection)
        if not batch.num_rows:
            return pa.array([], pa.bool_())
        is_true = (
            self._evaluate_with_kernels(batch)
            if self._compiled is None
            else self._evaluate_with_columns(batch, self._compiled)
        )
        return is_true if selection is None else pc.and_(selection, is_true)

    def _evaluate_with_columns(self, batch: pa.RecordBatch, compiled: CompiledColumn) -> pa.BooleanArray:
        functions = self._handler.functions
        fitted = convert_metadata(
            pa.record_batch(
                {name: _extract_values(batch, path) for path, name in self._names.items()}
                or {_ROW: pa.nulls(len(batch))}
            )
        )
        columns = {name: fitted.column(name) for name in self._names.values()}
        given = pa.table({_ROW: pa.array(range(batch.num_rows), pa.int64())} | columns)
        failed = functions.lit(False) if compiled.failed is None else compiled.failed
        value = functions.coalesce(compiled.value.cast("boolean"), functions.lit(False))
        frame = self._handler.spark.createDataFrame(given, to_spark_schema(given.schema))
        found = (
            frame.select(_ROW, value.alias(_VALUE), functions.coalesce(failed, functions.lit(False)).alias(_FAILED))
            .toArrow()
            .sort_by(_ROW)
        )
        if pc.any(found[_FAILED], min_count=0).as_py():
            raise EvaluationError(
                f"cannot evaluate {_shorten(self._predicate)}: it overflows, or a value is out of the range of its type"
            )
        return found[_VALUE].combine_chunks()

    def _evaluate_with_kernels(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """Evaluate the predicate with Arrow's kernels in an executor."""
        schema = pa.schema([(_VALUE, pa.bool_())])
        job = Job(EVALUATE, {"predicate": expression_to_json(self._predicate)}, schema, "evaluate a predicate")
        found = [each for _, each in SparkEngine(self._handler.spark).run(job, [Item.from_table(batch)])]
        return pa.Table.from_batches(found, schema)[_VALUE].combine_chunks()


def _check_kernels(predicate: Expr) -> None:
    """Raise if neither Spark nor Arrow evaluates a function of the predicate."""
    for node in walk(predicate):
        if isinstance(node, Call) and not has_kernel(node.function):
            raise EvaluationError(
                f"neither Spark nor Arrow supports the function {node.function!r} in {_shorten(predicate)}"
            )


def make_kernel_function(predicate: Any, data_types: Sequence[pa.DataType | None]) -> Callable[..., pa.Array]:
    """Return a function for an Arrow UDF: from the columns `0`, `1`, … of a predicate to its values and failures."""

    def evaluate(*columns: pa.Array) -> pa.Array:
        from tamis.engines.spark.handler import evaluate_with_kernels

        return evaluate_with_kernels(predicate, data_types, columns)

    return evaluate


def evaluate_with_kernels(
    predicate: Any, data_types: Sequence[pa.DataType | None], columns: Sequence[pa.Array]
) -> pa.StructArray:
    """Return the value of a predicate for each row, NULL where it fails, and whether it fails there."""
    evaluator = Evaluator(bound_from_json(predicate), absent_as_null=True)

    def evaluate(rows: pa.RecordBatch) -> list[pa.StructArray]:
        try:
            arrays = [
                # Spark has one type for several of Arrow's: see `tamis.engines.spark.spark_types`.
                column if data_type is None or pa.types.is_nested(data_type) else column.cast(data_type)
                for column, data_type in zip(rows.columns, data_types, strict=False)
            ]
            named = {str(number): array for number, array in enumerate(arrays)}
            value = evaluator(pa.record_batch(named) if named else rows).cast(pa.bool_())
        except (EvaluationError, pa.ArrowInvalid):
            if rows.num_rows > 1:
                middle = rows.num_rows // 2
                return evaluate(rows.slice(0, middle)) + evaluate(rows.slice(middle))
            return [pa.array([{_VALUE: None, _FAILED: True}], _EVALUATED_TYPE)]
        failed = pa.repeat(pa.scalar(False), rows.num_rows)
        return [pa.StructArray.from_arrays([value, failed], fields=list(_EVALUATED_TYPE))]

    given = pa.record_batch(list(columns), names=[str(number) for number in range(len(columns))])
    return pa.concat_arrays(evaluate(given)) if given.num_rows else pa.array([], _EVALUATED_TYPE)


EVALUATE = "tamis.engines.spark.handler:evaluate_batch"


def evaluate_batch(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield a selection of the rows of a batch for which a predicate is TRUE. It is the function of a job."""
    (batch,) = read_table(item).combine_chunks().to_batches()
    evaluator = ArrowExpressionHandler().predicate_evaluator(batch.schema, arguments.memoise(_parse_predicate))
    yield pa.record_batch([evaluator.eval(batch)], names=[_VALUE])


def _parse_predicate(arguments: Arguments) -> Expr:
    return bound_from_json(arguments["predicate"])


def _get_field_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """Return the type of a column or struct field; NULL if the field does not exist."""
    found = types.find_field_type(schema.field(path[0]).type, path[1:]) or types.NULL
    return found.value_type if pa.types.is_dictionary(found) else found


def _is_exact(data_type: pa.DataType) -> bool:
    """Return whether Spark represents all values of a type exactly. Missing fields (type NULL) are left to Arrow."""
    if pa.types.is_null(data_type):
        return False
    if pa.types.is_timestamp(data_type) and data_type.unit != "us":
        return False
    return to_metadata_type(data_type) is not None


def _extract_values(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    values = batch.column(batch.schema.get_field_index(path[0]))
    values = pc.struct_field(values, list(path[1:])) if len(path) > 1 else values
    return _drop_repeated_keys(values) if pa.types.is_map(values.type) else values


def _drop_repeated_keys(maps: pa.MapArray) -> pa.MapArray:
    """Return maps with only the last of repeated keys, which wins: Spark rejects maps with duplicate keys."""
    offsets = maps.offsets.to_numpy()
    first, end = int(offsets[0]), int(offsets[-1])
    codes = pc.dictionary_encode(maps.keys.slice(first, end - first)).indices.to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    # Entries with the same row and key have the same number. The first of the reversed numbers is the last entry.
    numbers = rows * (codes.max(initial=0) + 1) + codes
    kept = np.sort(len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1])
    if len(kept) == len(numbers):
        return maps
    ends = np.searchsorted(rows[kept], np.arange(len(maps) + 1))
    chosen = pa.array(kept + first)
    mask = maps.is_null() if maps.null_count else None
    keys, items = maps.keys.take(chosen), maps.items.take(chosen)
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), keys, items, mask=mask)


def _shorten(predicate: Expr) -> str:
    return to_sql(predicate, max_items=5)
