"""A scan of a table under a policy: it returns what may be seen, and tells nothing else."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument
from tamis.expr.functions import type_of
from tamis.expr.nodes import Column, Expr, and_, columns_of, conjuncts_of
from tamis.io.counters import IoCounters
from tamis.pushdown.nodes import Named
from tamis.pushdown.policies.applying import BoundPolicy
from tamis.pushdown.policies.leakproof import is_leakproof
from tamis.pushdown.policies.reading import in_silence, silence
from tamis.pushdown.policies.values import Projection
from tamis.scan.plan import ScanPlan, describe_files
from tamis.scan.projection import Path, narrow, projected_paths
from tamis.scan.report import Report
from tamis.scan.residual import Residual
from tamis.scan.scan import Scan, checked_limit
from tamis.skipping.predicate import make_predicate
from tamis.tables.source import LEVELS, TableSource

NOT_TOLD = "The table is under a policy: what is read of it is not told."


def visible_schema(schema: pa.Schema, policy: BoundPolicy) -> pa.Schema:
    """The columns of a table as somebody sees them under a policy."""
    return pa.schema(
        [
            field.with_type(type_of(policy.masks[field.name])) if field.name in policy.masks else field
            for field in schema
        ]
    )


class ProtectedScan(Scan):
    """A scan that applies a policy first. The user's filter and columns are about what is visible."""

    def __init__(
        self,
        source: TableSource,
        policy: BoundPolicy,
        where: object = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        levels: Collection[str] = LEVELS,
    ) -> None:
        limit = checked_limit(limit)
        self._source = source
        # Counts of its own, which stay at nothing: what is read of hidden rows is not told.
        self._storage = replace(source.storage, counters=IoCounters())
        visible = visible_schema(source.schema, policy)
        predicate = make_predicate(where, visible, source.name)
        if predicate.partition_filter is not None:
            raise InvalidArgument(
                f"{source.name} is under a policy, where partition filters have no meaning: write the filter as SQL"
            )
        self._predicate = predicate
        self._projection = projected_paths(columns, visible, source.name)
        self._schema = narrow(visible, self._projection)
        below: list[Expr] = []
        above: list[Expr] = []
        for conjunct in conjuncts_of(predicate.expr):
            is_raw = all(column.path[0] not in policy.masks for column in columns_of(conjunct))
            (below if is_raw and is_leakproof(conjunct) else above).append(conjunct)
        self._residual = Residual(above) if above else None
        paths = [*self._projection, *(column.path for column in columns_of(and_(*above)))]
        self._inner = Scan(
            source,
            and_(policy.rows, *below),
            _needed(paths, policy, source.schema),
            limit if not above else None,
            levels,
        )
        self._limit = limit
        self._masked = _masking(paths, policy, self._inner.schema)

    @property
    def schema(self) -> pa.Schema:
        return self._schema

    def plan(self, depth: str = "pages") -> ScanPlan:
        """What was asked for. What would be read of a table under a policy is not told."""
        names = tuple(".".join(path) for path in self._projection)
        report = Report(self._source.name, self._source.format, self._predicate.text, names, note=NOT_TOLD)
        nothing = pa.table({name: pa.array([], pa.string() if name == "path" else pa.int64()) for name in _OF_FILES})
        return ScanPlan(describe_files(nothing, pa.table({})), depth, report)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        remaining = self._limit
        for batch in in_silence(map(self._masked, self._inner.to_batches())):
            visible = batch if self._residual is None else self._residual.filter(batch)
            visible = _narrowed(visible, self._schema).slice(0, remaining)
            if remaining is not None:
                remaining -= visible.num_rows
            if visible.num_rows:
                yield visible
            if remaining == 0:
                return

    def count(self) -> int:
        if self._residual is None:
            with silence():
                return self._inner.count()
        return sum(batch.num_rows for batch in self.to_batches())

    def to_spark(self, spark: Any, *, reader: str = "auto") -> Any:
        """The rows as a Spark DataFrame. They are read here: what Spark's executors read, its plans would tell of."""
        return spark.createDataFrame(self.to_arrow())

    @property
    def report(self) -> Report | None:
        return None


_OF_FILES = ("path", "size")


def _needed(paths: Sequence[Path], policy: BoundPolicy, schema: pa.Schema) -> list[Any]:
    """The raw columns that a scan must read for visible ones."""
    needed: dict[Path, None] = {}
    for path in paths:
        mask = policy.masks.get(path[0])
        for raw in [path] if mask is None else [column.path for column in columns_of(mask)]:
            needed[raw] = None
    # A mask may be a constant, and still there is a row for each row.
    return [Column(path, exact=True) for path in needed or [(schema.names[0],)]]


def _masking(paths: Sequence[Path], policy: BoundPolicy, schema: pa.Schema) -> Projection:
    """Makes visible columns of raw ones."""
    names = list(dict.fromkeys(path[0] for path in paths))
    outputs = [Named(name, policy.masks.get(name, Column((name,)))) for name in names]
    types = [type_of(policy.masks[name]) if name in policy.masks else schema.field(name).type for name in names]
    return Projection(outputs, pa.schema(list(zip(names, types, strict=True))))


def _narrowed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, of structs only the fields that it has."""
    return pa.RecordBatch.from_arrays(
        [_fields_of(batch.column(each.name), each.type) for each in schema], schema=schema
    )


def _fields_of(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted or not pa.types.is_struct(wanted):
        return array
    inner = [_fields_of(pc.struct_field(array, each.name), each.type) for each in wanted]
    return pa.StructArray.from_arrays(inner, fields=list(wanted), mask=array.is_null())
