"""Rows of a table under a policy, with the policy applied before any engine sees them.

An engine may test conditions in any order. With the row filter and the user's conditions in one query, DuckDB or Spark
might test the user's condition first, on hidden rows, and fail on one. So an engine gets a stream of visible rows with
masked values, and errors during the read are redacted: messages about values, paths or files would reveal what is
hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import (
    AccessDenied,
    CorruptFile,
    EvaluationError,
    MissingFile,
    PartitionLayoutError,
    StorageError,
    TableError,
)
from tamis.expr.evaluate import Evaluator, can_evaluate
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Column, Expr, split_conjuncts
from tamis.query.connectors.connector import Connector
from tamis.query.plan.nodes import Filter, Limit, Named, Node, Project, TableScan, get_outputs, get_sources
from tamis.scan.engine import get_embedded_engine
from tamis.scan.reading.residual import Residual

T = TypeVar("T")

UNREADABLE = (
    "a table under a policy cannot be read. The reason is not shown, since it could reveal what the policy hides: a "
    "principal who may read all of it gets the reason"
)

REVEALING_ERRORS = (CorruptFile, MissingFile, PartitionLayoutError, StorageError, EvaluationError)
"""Errors whose messages have paths and values."""


def is_protected(node: Node) -> bool:
    """Return whether `read_protected_batches` reads a node: the scan of a protected table, or a step of its policy."""
    match node:
        case TableScan(is_protected=True):
            return True
        case Filter(protects=True) | Project(protects=True):
            while isinstance(node, Filter | Project | Limit):
                node = node.source
            return isinstance(node, TableScan) and node.is_protected
        case _:
            return False


def check_protected(plan: Node) -> None:
    """Raise where an engine would apply a policy among the user's conditions: no rule may cause that."""
    waiting = [plan]
    while waiting:
        node = waiting.pop()
        if is_protected(node):
            continue
        if isinstance(node, Filter | Project) and node.protects:
            raise AccessDenied(
                "a policy cannot be applied before the rest of the query. This is a defect of Tamis: please report it"
            )
        waiting += get_sources(node)


def make_protected_schema(node: Node, connectors: Mapping[str, Connector]) -> pa.Schema:
    """Return the columns of `read_protected_batches`, under the names of the node's outputs."""
    match node:
        case TableScan():
            given = connectors[node.connector].columns(node.handle)
            return pa.schema([field.with_name(output.name) for field, output in zip(given, node.columns, strict=True)])
        case Filter() | Limit():
            return make_protected_schema(node.source, connectors)
        case Project():
            below = make_protected_schema(node.source, connectors)
            return pa.schema([pa.field(output.name, _type(output.expr, below)) for output in node.outputs])
        case _:
            raise TypeError(f"{type(node).__name__} is not part of a protected scan")


def _type(expr: Expr, schema: pa.Schema) -> pa.DataType:
    if isinstance(expr, Column):
        fields: pa.Schema | pa.DataType = schema
        for name in expr.path:
            fields = fields.field(name).type
        return fields
    found = type_of(expr)
    assert found is not None  # masks are cast to the types of their columns
    return found


def read_protected_batches(node: Node, connectors: Mapping[str, Connector]) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows of a protected scan, with masked values."""
    with redact_errors():
        batches = _batches(node, connectors)
    yield from redact_errors_of(batches)


def redact_errors_of(batches: Iterator[T]) -> Iterator[T]:
    """Yield from an iterator, and redact its errors."""
    while True:
        # Errors of the consumer are not redacted.
        with redact_errors():
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


@contextmanager
def redact_errors() -> Iterator[None]:
    """Replace errors by one that reveals nothing."""
    try:
        yield
    except AccessDenied:
        raise
    except Exception:  # noqa: BLE001 - the message of any error may be about a hidden row
        raise TableError(UNREADABLE) from None


def _batches(node: Node, connectors: Mapping[str, Connector]) -> Iterator[pa.RecordBatch]:
    match node:
        case TableScan():
            return _read_scan(node, connectors[node.connector])
        case Filter():
            return _filter_batches(_batches(node.source, connectors), node)
        case Project():
            projection = Projection(node.outputs, make_protected_schema(node, connectors))
            return map(projection, _batches(node.source, connectors))
        case Limit():
            return _limit_batches(_batches(node.source, connectors), node)
        case _:
            raise TypeError(f"{type(node).__name__} is not part of a protected scan")


def _read_scan(scan: TableScan, connector: Connector) -> Iterator[pa.RecordBatch]:
    names = [output.name for output in get_outputs(scan)]
    for batch in connector.read(scan.handle):
        # Rows without columns may come with one column that carries their number.
        yield batch.rename_columns(names) if names else batch.select([])


def _filter_batches(batches: Iterator[pa.RecordBatch], node: Filter) -> Iterator[pa.RecordBatch]:
    residual = Residual(split_conjuncts(node.predicate))
    for batch in batches:
        yield residual.filter(batch)


def _limit_batches(batches: Iterator[pa.RecordBatch], node: Limit) -> Iterator[pa.RecordBatch]:
    skipped, remaining = node.offset, node.count
    for batch in batches:
        kept = batch.slice(skipped, remaining)
        skipped = max(0, skipped - batch.num_rows)
        remaining -= kept.num_rows
        yield kept
        if not remaining:
            return


# --- Values of expressions for the rows of a batch: by Arrow where it has the functions, else by DuckDB ---------------


class Projection:
    """Computes expressions for batches, as columns of one schema. Any number of threads may use it."""

    def __init__(self, outputs: Sequence[Named], schema: pa.Schema) -> None:
        self._schema = schema
        others = [output for output in outputs if not _has_arrow_kernels(output.expr)]
        self._columns = [_make_reader(output.expr) if _has_arrow_kernels(output.expr) else None for output in outputs]
        self._engine = get_embedded_engine().compile_expressions([output.expr for output in others]) if others else None

    def __call__(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        computed = iter(self._engine(batch) if self._engine is not None else ())
        arrays = [next(computed) if column is None else column(batch) for column in self._columns]
        if not arrays:
            return batch.select([])
        typed = [
            array if array.type == field.type else pc.cast(array, field.type)
            for array, field in zip(arrays, self._schema, strict=True)
        ]
        return pa.RecordBatch.from_arrays(typed, schema=self._schema)


def _has_arrow_kernels(expr: Expr) -> bool:
    return isinstance(expr, Column) or can_evaluate(expr)


def _make_reader(expr: Expr) -> Callable[[pa.RecordBatch], pa.Array]:
    if not isinstance(expr, Column):
        return Evaluator(expr)
    name, *fields = expr.path
    if not fields:
        return lambda batch: batch.column(name)
    return lambda batch: pc.struct_field(batch.column(name), fields)
