"""Plans that no engine needs to run: all of the query was taken into one scan, which gives the rows of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tamis.expr.nodes import Column
from tamis.pushdown.connector import Connector, as_told
from tamis.pushdown.nodes import Node, Project, TableScan
from tamis.pushdown.own_files import is_plain_type, own_files
from tamis.scan.coalesce import coalesce_batches


class Direct:
    """The rows of a scan, as a run of the engine would give them: columns of it under other names, in any order."""

    def __init__(self, scan: TableScan, columns: Sequence[tuple[str, int]], connector: Connector) -> None:
        """`columns` are names, and the places of what they name among the columns of the scan."""
        self._scan = scan
        self._connector = connector
        given = connector.columns(scan.handle)
        self._places = [place for _, place in columns]
        self._given = given
        self.schema = pa.schema([(name, given.field(place).type) for name, place in columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in coalesce_batches(self._connector.read(self._scan.handle)):
            if batch.num_rows:
                told = as_told(batch, self._given)
                yield pa.RecordBatch.from_arrays([told.column(place) for place in self._places], schema=self.schema)

    def close(self) -> None:
        """Nothing is held."""


def direct(plan: Node, names: Sequence[str] | None, connectors: Mapping[str, Connector]) -> Direct | None:
    """The plan as columns of a scan alone; None where there is more to do, or where the engine reads faster."""
    found = _columns_of_scan(plan)
    if found is None:
        return None
    scan, columns = found
    if scan.protects or not columns:
        return None
    connector = connectors[scan.connector]
    if not all(is_plain_type(each.type) for each in connector.columns(scan.handle)):
        return None
    if names is not None:
        columns = [(name, place) for name, (_, place) in zip(names, columns, strict=True)]
    return Direct(scan, columns, connector) if own_files(scan, connector) is None else None


def _columns_of_scan(plan: Node) -> tuple[TableScan, list[tuple[str, int]]] | None:
    """The scan of which a plan only names columns, with each name and the place of its column there."""
    match plan:
        case TableScan():
            return plan, [(output.name, place) for place, output in enumerate(plan.columns)]
        case Project(protects=False):
            below = _columns_of_scan(plan.source)
            if below is None:
                return None
            places = dict(below[1])
            columns = [
                (each.name, places[each.expr.path[0]])
                for each in plan.outputs
                if isinstance(each.expr, Column) and len(each.expr.path) == 1
            ]
            return (below[0], columns) if len(columns) == len(plan.outputs) else None
        case _:
            return None
