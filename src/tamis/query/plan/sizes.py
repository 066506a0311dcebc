"""Size estimates of nodes from table statistics, before anything is read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tamis.query.plan.nodes import (
    Filter,
    Join,
    Limit,
    Node,
    Sql,
    TableScan,
    TopN,
    Union,
    Values,
    get_sources,
    walk_plan,
)
from tamis.query.plan.optimizer import Context
from tamis.tuning import Tuning


@dataclass(frozen=True, slots=True)
class Size:
    """An estimate of the size of a node's result, from metadata. None means unknown."""

    rows: int | None
    bytes: int | None

    def can_build(self, tuning: Tuning) -> bool:
        """Return whether a join side of this size may be read to build a dynamic filter."""
        if self.rows is not None:
            return self.rows <= tuning.max_build_rows
        return self.bytes is not None and self.bytes <= tuning.max_build_bytes

    def is_much_smaller_than(self, other: Size, ratio: float) -> bool:
        """Return whether the other size is more than `ratio` times this one, or unknown."""
        if self.rows is not None and other.rows is not None:
            return ratio * self.rows < other.rows
        if self.bytes is not None and other.bytes is not None:
            return ratio * self.bytes < other.bytes
        return True

    @property
    def sort_key(self) -> tuple[bool, int]:
        return self.rows is None, self.rows if self.rows is not None else self.bytes or 0


def estimate_size(node: Node, context: Context) -> Size:
    match node:
        case TableScan():
            known = context.properties(node)
            return Size(known.rows, known.bytes)
        case Values():
            return Size(node.rows.num_rows, node.rows.nbytes)
        case Limit() | TopN():
            below = estimate_size(node.source, context)
            return Size(node.count if below.rows is None else min(node.count, below.rows), below.bytes)
        case Join(kind="semi" | "anti"):
            return estimate_size(node.left, context)
        case _:
            # A guess for joins: most are on a unique key of one side. The executor stops a side that grows too large.
            sizes = [estimate_size(source, context) for source in get_sources(node)]
            if isinstance(node, Union | Sql):
                return Size(_sum(size.rows for size in sizes), _sum(size.bytes for size in sizes))
            return Size(_find_largest(size.rows for size in sizes), _find_largest(size.bytes for size in sizes))


def _sum(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else sum(number for number in found if number is not None)


def _find_largest(numbers: Iterable[int | None]) -> int | None:
    found = list(numbers)
    return None if None in found else max((number for number in found if number is not None), default=0)


def is_filtered(node: Node, context: Context) -> bool:
    """Return whether a node returns, or may return, fewer rows than the tables below it have."""
    for each in walk_plan(node):
        match each:
            case TableScan():
                if context.properties(each).is_filtered is not False:
                    return True
            case Filter() | Limit() | TopN() | Sql() | Join(kind="semi" | "anti"):
                return True
            case _:
                pass
    return False
