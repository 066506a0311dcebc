"""Direct results: plans that need no engine, because the whole query was pushed into one scan."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tamis.expr.nodes import Column
from tamis.query.connectors.connector import Connector, conform_batch
from tamis.query.engine import QueryEngine
from tamis.query.plan.nodes import Node, Project, TableScan
from tamis.scan.reading.pipeline import coalesce_batches


class DirectResult:
    """The rows of a scan, with its columns renamed and reordered, as a run of the engine would return them."""

    def __init__(self, scan: TableScan, columns: Sequence[tuple[str, int]], connector: Connector) -> None:
        """`columns` are output names, each with the position of its column in the scan."""
        self._scan = scan
        self._connector = connector
        given = connector.columns(scan.handle)
        self._positions = [position for _, position in columns]
        self._given = given
        self.schema = pa.schema([(name, given.field(position).type) for name, position in columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in coalesce_batches(self._connector.read(self._scan.handle)):
            if batch.num_rows:
                checked = conform_batch(batch, self._given)
                arrays = [checked.column(position) for position in self._positions]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def close(self) -> None:
        """Do nothing: a direct result holds no resources."""


def find_direct_result(
    plan: Node, names: Sequence[str] | None, connectors: Mapping[str, Connector], engine: QueryEngine
) -> DirectResult | None:
    """Return the result of a plan that only selects columns of a scan; None for other plans, or for a native scan."""
    found = _find_scan_columns(plan)
    if found is None:
        return None
    scan, columns = found
    if scan.is_protected or not columns:
        return None
    connector = connectors[scan.connector]
    if not all(engine.can_round_trip(each.type) for each in connector.columns(scan.handle)):
        return None
    if names is not None:
        columns = [(name, position) for name, (_, position) in zip(names, columns, strict=True)]
    return None if engine.reads_natively(scan, connector) else DirectResult(scan, columns, connector)


def _find_scan_columns(plan: Node) -> tuple[TableScan, list[tuple[str, int]]] | None:
    """Return the scan that a plan only selects columns from, with each name and its column's position in the scan."""
    match plan:
        case TableScan():
            return plan, [(output.name, position) for position, output in enumerate(plan.columns)]
        case Project(protects=False):
            below = _find_scan_columns(plan.source)
            if below is None:
                return None
            positions = dict(below[1])
            columns = [
                (each.name, positions[each.expr.path[0]])
                for each in plan.outputs
                if isinstance(each.expr, Column) and len(each.expr.path) == 1
            ]
            return (below[0], columns) if len(columns) == len(plan.outputs) else None
        case _:
            return None
