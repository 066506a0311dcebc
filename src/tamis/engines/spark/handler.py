"""The Spark implementation of the protocol in `tamis.skipping.handler`: predicates over metadata as Columns.

The rewritten predicate that Arrow evaluates over a batch becomes a Column over a DataFrame of files, and the JVM
evaluates it where the metadata is. `predicate_evaluator` sends a batch to Spark and back, for tests and for few units;
`keeps` returns the Column for a cached DataFrame.

A batch evaluator returns exactly what Arrow returns. If Spark's expressions differ (`upper`, strings as dates,
timestamps in nanoseconds), the executors use Arrow's kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.engines.spark.columns import ColumnCompiler, CompiledColumn, to_sql_type
from tamis.engines.spark.jobs import SparkEngine
from tamis.engines.spark.sessions import check_session, import_functions
from tamis.engines.spark.spark_types import convert_metadata, to_metadata_type, to_spark_schema
from tamis.errors import EvaluationError, InvalidArgument
from tamis.expr.evaluate import has_kernel
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, transform, walk
from tamis.expr.sql.printer import to_sql
from tamis.expr.wire.expression_json import expression_from_json, expression_to_json
from tamis.formats.jobs import Arguments, Item, Job, read_table
from tamis.skipping.handler import ArrowExpressionHandler, check_batch
from tamis.types import type_name_with_article

_ROW, _VALUE, _FAILED = "row", "value", "failed"


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
        return ArrowExpressionHandler().create_selection_vector(booleans)

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> SparkPredicateEvaluator:
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

        return ColumnCompiler(functions, read).compile(predicate)

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
        """Return the predicate as Spark expressions; None if some of them have no equivalent."""
        if not all(_is_exact(_get_field_type(self._schema, path)) for path in self._names):
            return None
        # Columns get the types of the batch: a predicate that was built by hand may lack them.
        renamed = transform(self._predicate, self._rename)
        try:
            return self._handler.compile(renamed, list(self._names.values()))
        except EvaluationError:
            for node in walk(self._predicate):
                if isinstance(node, Call) and not has_kernel(node.function):
                    raise
            return None

    def _rename(self, node: Expr) -> Expr:
        name = self._names.get(node.path) if isinstance(node, Column) else None
        if not isinstance(node, Column) or name is None:
            return node
        return Column((name,), type=node.type or _get_field_type(self._schema, node.path))

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


EVALUATE = "tamis.engines.spark.handler:evaluate_batch"


def evaluate_batch(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield a selection of the rows of a batch for which a predicate is TRUE. It is the function of a job."""
    (batch,) = read_table(item).combine_chunks().to_batches()
    evaluator = ArrowExpressionHandler().predicate_evaluator(batch.schema, arguments.memoise(_parse_predicate))
    yield pa.record_batch([evaluator.eval(batch)], names=[_VALUE])


def _parse_predicate(arguments: Arguments) -> Expr:
    return expression_from_json(arguments["predicate"])


def _get_field_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """Return the type of a column or struct field; NULL if the field does not exist."""
    found = schema.field(path[0]).type
    for part in path[1:]:
        if not pa.types.is_struct(found) or found.get_field_index(part) < 0:
            return types.NULL
        found = found.field(part).type
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
