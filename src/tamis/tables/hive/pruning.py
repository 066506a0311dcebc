"""Partition filters applied level by level: each conjunct as soon as all of its columns are known."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pyarrow as pa

from tamis.expr.partition_filter import PartitionFilter


def make_level_filter(
    partition_filter: PartitionFilter, columns: Collection[str]
) -> Callable[[pa.Table], pa.BooleanArray]:
    """Return a function that evaluates, at each level of directories, the conjuncts whose columns are known there."""
    conjuncts = [(each, frozenset(each.columns) & frozenset(columns)) for each in _split_conjuncts(partition_filter)]

    def keep(raw: pa.Table) -> pa.BooleanArray:
        known = frozenset(raw.column_names)
        usable = [conjunct for conjunct, needed in conjuncts if needed <= known]
        return PartitionFilter.and_(usable).evaluate(raw)

    return keep


def _split_conjuncts(partition_filter: PartitionFilter) -> list[PartitionFilter]:
    found: list[PartitionFilter] = []
    waiting = [partition_filter]
    while waiting:
        current = waiting.pop()
        if current.op == "and":
            waiting.extend(reversed(current.filters))
        else:
            found.append(current)
    return found
