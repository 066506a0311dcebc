"""A scan of a table under a policy: it returns visible rows, and reveals nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, suggest_method_arguments
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, and_, find_columns, split_conjuncts, transform
from tamis.expr.sql.printer import to_display_sql
from tamis.formats.source import TableSource
from tamis.query.plan.nodes import Named
from tamis.query.policies.apply_policies import BoundPolicy
from tamis.query.policies.leakproof import is_leakproof
from tamis.query.policies.protected_reading import Projection, redact_errors, redact_errors_of
from tamis.scan.planning.plan import ScanPlan, describe_files
from tamis.scan.planning.projection import Path, narrow_schema, resolve_projection
from tamis.scan.reading.residual import Residual, check_functions
from tamis.scan.report.report import Report
from tamis.scan.scan import LazyScan, Scan, ScanRequest, describe_scan
from tamis.skipping.predicate import get_partition_name, is_partition_text, make_predicate
from tamis.types import STRING

REDACTED_SCAN_NOTE = "The table is under a policy: what is read of it is not shown."


def mask_schema(schema: pa.Schema, policy: BoundPolicy) -> pa.Schema:
    """Return the columns of a table as a principal sees them under a policy."""
    return pa.schema(
        [
            field.with_type(type_of(policy.masks[field.name])) if field.name in policy.masks else field
            for field in schema
        ]
    )


@suggest_method_arguments("Scan")
class ProtectedScan(LazyScan):
    """A scan that applies a policy first. The user's filter sees visible rows and masked values only.

    `scan_again` makes the scan of another request, under the policy of that time.
    """

    def __init__(
        self,
        source: TableSource,
        policy: BoundPolicy,
        request: ScanRequest,
        scan_again: Callable[[ScanRequest], ProtectedScan],
    ) -> None:
        self._request = request
        self._scan_again = scan_again
        self._table = source.name
        self._format = source.format
        visible = mask_schema(source.schema, policy)
        # A partition field may have values of a masked column, so only partition columns are compared as text.
        texts = [name for name in source.partition_columns if name not in policy.masks]
        predicate = make_predicate(request.where, visible, source.name, partition_texts=texts)
        check_functions(predicate.expr, visible)
        self._predicate = predicate
        self._projection = resolve_projection(request.columns, visible, source.name)
        self._schema = narrow_schema(visible, self._projection)
        below: list[Expr] = []
        above: list[Expr] = []
        for conjunct in split_conjuncts(predicate.expr):
            is_raw = all(column.path[0] not in policy.masks for column in find_columns(conjunct))
            is_below = is_raw and is_leakproof(conjunct)
            if not is_below and any(is_partition_text(column.path[0]) for column in find_columns(conjunct)):
                raise InvalidArgument(
                    f"{source.name} is under a policy, where a partition filter cannot be combined with OR with "
                    f"conditions that are tested after it, as in {to_display_sql(conjunct)}: write the filter as SQL"
                )
            (below if is_below else above).append(_restore_partition_texts(conjunct))
        self._residual = Residual(above) if above else None
        paths = [*self._projection, *(column.path for column in find_columns(and_(*above)))]
        self._scan = Scan(
            source,
            and_(policy.rows, *below),
            _find_raw_columns(paths, policy, source.schema),
            request.limit if not above else None,
            request.levels,
        )
        self._masked = _make_masking(paths, policy, self._scan.schema)

    @property
    def schema(self) -> pa.Schema:
        """The columns that the scan returns."""
        return self._schema

    def filter(self, where: object) -> ProtectedScan:
        """Return this scan with one more filter."""
        return self._scan_again(self._request.filter(where))

    def select(self, *columns: Any) -> ProtectedScan:
        """Return a scan of some of the columns: `scan.select("id", "address.city")`, or a list of names."""
        return self._scan_again(self._request.select(columns, self._schema, self._table))

    def limit(self, count: int) -> ProtectedScan:
        """Return a scan of at most `count` of the visible rows."""
        return self._scan_again(self._request.limit_rows(count))

    def head(self, count: int = 5) -> ProtectedScan:
        """Return a scan of at most `count` of the visible rows, as `limit` does."""
        return self.limit(count)

    def plan(self, depth: str = "pages") -> ScanPlan:
        """Return the request. The plan does not show what would be read of a table under a policy."""
        names = tuple(".".join(path) for path in self._projection)
        report = Report(self._table, self._format, self._predicate.text, names, note=REDACTED_SCAN_NOTE)
        nothing = pa.table(
            {name: pa.array([], pa.string() if name == "path" else pa.int64()) for name in _FILE_COLUMNS}
        )
        return ScanPlan(describe_files(nothing, pa.table({})), depth, report)

    def explain(self) -> str:
        """Return the request as text."""
        return str(self.plan())

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the visible rows, batch by batch."""
        remaining = self._request.limit
        for batch in redact_errors_of(map(self._masked, self._scan.to_batches())):
            visible = batch if self._residual is None else self._residual.filter(batch)
            visible = _narrow_batch(visible, self._schema).slice(0, remaining)
            if remaining is not None:
                remaining -= visible.num_rows
            if visible.num_rows:
                yield visible
            if remaining == 0:
                return

    def count(self) -> int:
        """Return how many visible rows match."""
        if self._residual is None:
            with redact_errors():
                return self._scan.count()
        return sum(batch.num_rows for batch in self.to_batches())

    def to_spark(self, spark: Any, *, reader: str = "auto") -> Any:
        """Return the visible rows as a Spark DataFrame. They are read here: Spark's plans would show hidden files."""
        return spark.createDataFrame(self.to_arrow())

    @property
    def report(self) -> Report | None:
        """None: a report would describe hidden rows."""
        return None

    @property
    def bytes_read(self) -> int:
        """0: the number would describe hidden rows."""
        return 0

    def __repr__(self) -> str:
        return describe_scan(self._table, self._schema, self._predicate.text, self._request.limit)

    def _repr_html_(self) -> str:
        return self.plan()._repr_html_()


_FILE_COLUMNS = ("path", "size")


def _restore_partition_texts(conjunct: Expr) -> Expr:
    """Return a bound conjunct for another scan, which binds the texts of partition values itself."""

    def restore(node: Expr) -> Expr:
        if isinstance(node, Column) and is_partition_text(node.path[0]):
            return Call("partition_text", (Literal(get_partition_name(node), STRING),))
        return node

    return transform(conjunct, restore)


def _find_raw_columns(paths: Sequence[Path], policy: BoundPolicy, schema: pa.Schema) -> list[Any]:
    """Return the raw columns that a scan must read for visible ones."""
    needed: dict[Path, None] = {}
    for path in paths:
        mask = policy.masks.get(path[0])
        for raw in [path] if mask is None else [column.path for column in find_columns(mask)]:
            needed[raw] = None
    # Where all masks are constants, one column carries the number of rows.
    return [Column(path, exact=True) for path in needed or [(schema.names[0],)]]


def _make_masking(paths: Sequence[Path], policy: BoundPolicy, schema: pa.Schema) -> Projection:
    """Return the projection from raw to visible columns."""
    names = list(dict.fromkeys(path[0] for path in paths))
    outputs = [Named(name, policy.masks.get(name, Column((name,)))) for name in names]
    types = [type_of(policy.masks[name]) if name in policy.masks else schema.field(name).type for name in names]
    return Projection(outputs, pa.schema(list(zip(names, types, strict=True))))


def _narrow_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema, and of structs only its fields."""
    return pa.RecordBatch.from_arrays(
        [_narrow_array(batch.column(each.name), each.type) for each in schema], schema=schema
    )


def _narrow_array(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if array.type == wanted or not pa.types.is_struct(wanted):
        return array
    inner = [_narrow_array(pc.struct_field(array, each.name), each.type) for each in wanted]
    return pa.StructArray.from_arrays(inner, fields=list(wanted), mask=array.is_null())
