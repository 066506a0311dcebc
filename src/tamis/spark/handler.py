"""The Spark implementation of the protocol in `tamis.skipping.handler`: predicates over metadata as Columns.

The same rewritten predicate that Arrow evaluates over a batch becomes a Column over a DataFrame of files, and the JVM
evaluates it where the metadata is. `predicate_evaluator` sends a batch there and back: that is for tests and for few
units; `keeps` makes the Column for a DataFrame that stays.

An evaluator of batches answers whatever Arrow answers. What Spark's own expressions do not mean alike (`upper`, texts
as dates, timestamps of a nanosecond) the executors evaluate with Arrow's kernels.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.engines.sessions import check_session, session_functions
from tamis.engines.spark import SparkEngine
from tamis.errors import EvaluationError, InvalidArgument
from tamis.expr.evaluate import has_kernel
from tamis.expr.expression_json import expression_from_json, expression_to_json
from tamis.expr.functions import type_of
from tamis.expr.nodes import Call, Column, Expr, transform, walk
from tamis.expr.printer import to_sql
from tamis.skipping.handler import ArrowExpressionHandler, check_batch
from tamis.spark.columns import ColumnCompiler, Compiled
from tamis.spark.constants import sql_type
from tamis.spark.types import fit_metadata, metadata_type, spark_schema
from tamis.tables.jobs import Arguments, Item, Job, read_table
from tamis.types import a_type

_ROW, _VALUE, _FAILED = "row", "value", "failed"


def quoted(name: str) -> str:
    """A name of a DataFrame's column, whatever characters it has.

    >>> quoted("lower:`a.b`")
    '`lower:``a.b```'
    """
    return "`" + name.replace("`", "``") + "`"


class SparkExpressionHandler:
    """Evaluates with Spark, over DataFrames or over batches that are sent there."""

    def __init__(self, spark: Any) -> None:
        self.spark = check_session(spark)
        self.functions = session_functions(spark)

    def create_selection_vector(self, booleans: Sequence[bool] | pa.BooleanArray) -> pa.BooleanArray:
        return ArrowExpressionHandler().create_selection_vector(booleans)

    def predicate_evaluator(self, schema: pa.Schema, predicate: Expr) -> SparkPredicateEvaluator:
        return SparkPredicateEvaluator(self, schema, predicate)

    def compile(self, predicate: Expr, names: Mapping[str, Any] | Collection[str]) -> Compiled:
        """A predicate over metadata as a Column of a DataFrame that has (some of) its columns.

        `names` are the metadata columns that the DataFrame has, or a mapping of them to what it calls them, or to
        Columns. What it does not have is unknown.
        """
        known = names if isinstance(names, Mapping) else {name: name for name in names}
        functions = self.functions

        def read(column: Column) -> Any:
            found = known.get(column.path[0])
            if found is not None:
                value = functions.col(quoted(found)) if isinstance(found, str) else found
                for part in column.path[1:]:
                    value = value.getField(part)
                return value
            stored = metadata_type(column.type or types.NULL) or types.NULL
            return functions.lit(None) if pa.types.is_null(stored) else functions.lit(None).cast(sql_type(stored))

        return ColumnCompiler(functions, read).compile(predicate)

    def keeps(self, may_be_true: Expr, names: Mapping[str, Any] | Collection[str]) -> Any:
        """A Column that is TRUE for the units that must be kept, never NULL: also where the answer is not known."""
        compiled = self.compile(may_be_true, names)
        kept = self.functions.coalesce(compiled.value, self.functions.lit(True))
        return kept if compiled.failed is None else kept | compiled.failed


class SparkPredicateEvaluator:
    def __init__(self, handler: SparkExpressionHandler, schema: pa.Schema, predicate: Expr) -> None:
        data_type = type_of(predicate)
        if data_type is not None and not (pa.types.is_boolean(data_type) or pa.types.is_null(data_type)):
            raise InvalidArgument(f"{_short(predicate)} is {a_type(data_type)} and not a predicate")
        self._handler = handler
        self._schema = schema
        self._predicate = predicate
        paths = {
            node.path: node for node in walk(predicate) if isinstance(node, Column) and node.path[0] in schema.names
        }
        # A number in place of each path: Spark does not tell `a` from `A`, and nested fields come as columns.
        self._names = {path: f"column_{number}" for number, path in enumerate(paths)}
        self._compiled = self._compile()

    def _compile(self) -> Compiled | None:
        """The predicate in Spark's own expressions; None where those do not mean all of it alike."""
        if not all(_is_exact(_field_type(self._schema, path)) for path in self._names):
            return None
        # Types of columns as the batch has them: a predicate made by hand may know none.
        renamed = transform(self._predicate, self._renamed)
        try:
            return self._handler.compile(renamed, list(self._names.values()))
        except EvaluationError:
            for node in walk(self._predicate):
                if isinstance(node, Call) and not has_kernel(node.function):
                    raise
            return None

    def _renamed(self, node: Expr) -> Expr:
        name = self._names.get(node.path) if isinstance(node, Column) else None
        if not isinstance(node, Column) or name is None:
            return node
        return Column((name,), type=node.type or _field_type(self._schema, node.path))

    def eval(self, batch: pa.RecordBatch, selection: pa.BooleanArray | None = None) -> pa.BooleanArray:
        """Which rows are selected: those that were, and for which the predicate is TRUE."""
        check_batch(self._schema, batch, selection)
        if not batch.num_rows:
            return pa.array([], pa.bool_())
        is_true = self._by_kernels(batch) if self._compiled is None else self._by_columns(batch, self._compiled)
        return is_true if selection is None else pc.and_(selection, is_true)

    def _by_columns(self, batch: pa.RecordBatch, compiled: Compiled) -> pa.BooleanArray:
        functions = self._handler.functions
        fitted = fit_metadata(
            pa.record_batch(
                {name: _values(batch, path) for path, name in self._names.items()} or {_ROW: pa.nulls(len(batch))}
            )
        )
        columns = {name: fitted.column(name) for name in self._names.values()}
        given = pa.table({_ROW: pa.array(range(batch.num_rows), pa.int64())} | columns)
        failed = functions.lit(False) if compiled.failed is None else compiled.failed
        value = functions.coalesce(compiled.value.cast("boolean"), functions.lit(False))
        frame = self._handler.spark.createDataFrame(given, spark_schema(given.schema))
        found = (
            frame.select(_ROW, value.alias(_VALUE), functions.coalesce(failed, functions.lit(False)).alias(_FAILED))
            .toArrow()
            .sort_by(_ROW)
        )
        if pc.any(found[_FAILED], min_count=0).as_py():
            raise EvaluationError(
                f"cannot evaluate {_short(self._predicate)}: it overflows, or a value does not fit its type"
            )
        return found[_VALUE].combine_chunks()

    def _by_kernels(self, batch: pa.RecordBatch) -> pa.BooleanArray:
        """The answer of Arrow's kernels in an executor."""
        schema = pa.schema([(_VALUE, pa.bool_())])
        job = Job(EVALUATE, {"predicate": expression_to_json(self._predicate)}, schema, "evaluate a predicate")
        found = [each for _, each in SparkEngine(self._handler.spark).run(job, [Item.of_table(batch)])]
        return pa.Table.from_batches(found, schema)[_VALUE].combine_chunks()


EVALUATE = "tamis.spark.handler:evaluate_batch"


def evaluate_batch(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Which rows of a batch a predicate is TRUE for: a job."""
    (batch,) = read_table(item).combine_chunks().to_batches()
    evaluator = ArrowExpressionHandler().predicate_evaluator(batch.schema, arguments.once(_predicate))
    yield pa.record_batch([evaluator.eval(batch)], names=[_VALUE])


def _predicate(arguments: Arguments) -> Expr:
    return expression_from_json(arguments["predicate"])


def _field_type(schema: pa.Schema, path: tuple[str, ...]) -> pa.DataType:
    """The type of a column, or of a field inside of structs; NULL where there is no such field."""
    found = schema.field(path[0]).type
    for part in path[1:]:
        if not pa.types.is_struct(found) or found.get_field_index(part) < 0:
            return types.NULL
        found = found.field(part).type
    return found.value_type if pa.types.is_dictionary(found) else found


def _is_exact(data_type: pa.DataType) -> bool:
    """Whether Spark computes with all values of a type as they are. What is no field at all is left to Arrow."""
    if pa.types.is_null(data_type):
        return False
    if pa.types.is_timestamp(data_type) and data_type.unit != "us":
        return False
    return metadata_type(data_type) is not None


def _values(batch: pa.RecordBatch, path: tuple[str, ...]) -> pa.Array:
    values = batch.column(batch.schema.get_field_index(path[0]))
    values = pc.struct_field(values, list(path[1:])) if len(path) > 1 else values
    return _with_distinct_keys(values) if pa.types.is_map(values.type) else values


def _with_distinct_keys(maps: pa.MapArray) -> pa.MapArray:
    """The maps with the last of repeated keys, which counts: Spark takes no map that has a key twice."""
    offsets = maps.offsets.to_numpy()
    first, end = int(offsets[0]), int(offsets[-1])
    codes = pc.dictionary_encode(maps.keys.slice(first, end - first)).indices.to_numpy().astype(np.int64)
    rows = np.repeat(np.arange(len(maps)), np.diff(offsets))
    # Two entries are of the same row and key where their numbers are the same; of the reversed ones the first is last.
    numbers = rows * (codes.max(initial=0) + 1) + codes
    kept = np.sort(len(numbers) - 1 - np.unique(numbers[::-1], return_index=True)[1])
    if len(kept) == len(numbers):
        return maps
    ends = np.searchsorted(rows[kept], np.arange(len(maps) + 1))
    taken = pa.array(kept + first)
    mask = maps.is_null() if maps.null_count else None
    return pa.MapArray.from_arrays(pa.array(ends, pa.int32()), maps.keys.take(taken), maps.items.take(taken), mask=mask)


def _short(predicate: Expr) -> str:
    return to_sql(predicate, max_items=5)
