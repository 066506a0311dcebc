"""Plans that no engine needs to run: all of the query was taken into one scan, which gives the rows of the answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tamis.pushdown.connector import Connector, as_told
from tamis.pushdown.nodes import Node, TableScan
from tamis.pushdown.own_files import is_plain_type, own_files
from tamis.scan.coalesce import coalesce_batches


class Direct:
    """The rows of a scan, as a run of the engine would give them."""

    def __init__(self, scan: TableScan, names: Sequence[str] | None, connector: Connector) -> None:
        self._scan = scan
        self._connector = connector
        given = connector.columns(scan.handle)
        told = [output.name for output in scan.columns] if names is None else names
        self.schema = pa.schema([(name, each.type) for name, each in zip(told, given, strict=True)])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in coalesce_batches(self._connector.read(self._scan.handle)):
            if batch.num_rows:
                yield as_told(batch, self.schema)

    def close(self) -> None:
        """Nothing is held."""


def direct(plan: Node, names: Sequence[str] | None, connectors: Mapping[str, Connector]) -> Direct | None:
    """The plan as a scan alone; None where there is more to do, or where the engine reads faster."""
    if not isinstance(plan, TableScan) or plan.protects or not plan.columns:
        return None
    connector = connectors[plan.connector]
    if not all(is_plain_type(each.type) for each in connector.columns(plan.handle)):
        return None
    return Direct(plan, names, connector) if own_files(plan, connector) is None else None
