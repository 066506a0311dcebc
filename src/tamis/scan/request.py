"""What the user asks of a scan: a filter, columns, a limit, and the levels of pruning."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa

from tamis.errors import InvalidArgument
from tamis.expr.nodes import Column, Expr
from tamis.expr.partition_filter import PartitionFilter
from tamis.expr.sources import to_expr
from tamis.scan.projection import projected_paths
from tamis.scan.scan_planner import check_limit
from tamis.tables.source import LEVELS


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """What the user asks of a scan. Each method returns a new request."""

    where: Expr | PartitionFilter | None = None
    columns: Sequence[object] | None = None
    limit: int | None = None
    levels: Collection[str] = LEVELS

    @staticmethod
    def parse(
        where: object = None,
        columns: Sequence[object] | None = None,
        limit: int | None = None,
        levels: Collection[str] = LEVELS,
    ) -> ScanRequest:
        """Return the request that the arguments of `Table.scan` mean."""
        return ScanRequest(to_expr(where), columns, check_limit(limit), levels)

    def filter(self, where: object) -> ScanRequest:
        """Keep only the rows for which `where` is TRUE too."""
        if self.limit is not None:
            raise InvalidArgument(
                "the scan has a limit already, and a filter would drop some of the rows that it returns: call filter() "
                "before limit()"
            )
        return replace(self, where=to_expr([self.where, to_expr(where)]))

    def select(self, columns: Sequence[object], schema: pa.Schema, table: str) -> ScanRequest:
        """Return only some of the columns in `schema`, which are those of this request."""
        if len(columns) == 1 and isinstance(columns[0], Iterable) and not isinstance(columns[0], str):
            columns = list(columns[0])
        paths = projected_paths(columns, schema, table)
        return replace(self, columns=[Column(path, exact=True) for path in paths])

    def first_rows(self, count: int) -> ScanRequest:
        """Return at most `count` rows."""
        limit = check_limit(count)
        limits = [each for each in (self.limit, limit) if each is not None]
        return replace(self, limit=min(limits, default=None))
