"""Partition filters level by level: a part of one counts as soon as all of its columns are known."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa

from tamis.expr.partition_filter import PartitionFilter


def known_parts(partition_filter: PartitionFilter, columns: Collection[str]) -> Callable[[pa.Table], pa.BooleanArray]:
    """What the filter says at each level of directories, given the texts of the columns known there."""
    parts = [(part, frozenset(part.columns) & frozenset(columns)) for part in _conjuncts(partition_filter)]

    def keep(raw: pa.Table) -> pa.BooleanArray:
        known = frozenset(raw.column_names)
        usable = [part for part, needed in parts if needed <= known]
        return PartitionFilter.and_(usable).evaluate(raw)

    return keep


def _conjuncts(partition_filter: PartitionFilter) -> list[PartitionFilter]:
    found: list[PartitionFilter] = []
    waiting = [partition_filter]
    while waiting:
        part = waiting.pop()
        if part.op == "and":
            waiting.extend(reversed(part.filters))
        else:
            found.append(part)
    return found
