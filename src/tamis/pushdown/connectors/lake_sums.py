"""Predicates for engines: which lake scans compute sums while reading."""

from __future__ import annotations

import pyarrow as pa

from tamis.pushdown.connectors.lake_handle import LakeHandle
from tamis.pushdown.nodes import Node, TableScan
from tamis.scan.measures import Measure


def is_sum_scan(node: Node) -> bool:
    """Return whether a node is a scan that reads rows to compute sums."""
    return isinstance(node, TableScan) and isinstance(node.handle, LakeHandle) and node.handle.sums_rows


def find_integer_sums(node: Node) -> list[str]:
    """Return the names of the columns of a scan that are sums of integers."""
    if not isinstance(node, TableScan) or not isinstance(node.handle, LakeHandle):
        return []
    aggregation = node.handle.aggregation
    if aggregation is None:
        return []
    pairs = zip(node.columns[len(aggregation.keys) :], aggregation.measures, strict=True)
    return [column.name for column, measure in pairs if _is_integer_sum(measure)]


def _is_integer_sum(measure: Measure) -> bool:
    own = None if measure.column is None else measure.column.type
    return measure.function == "sum" and own is not None and pa.types.is_integer(own)
