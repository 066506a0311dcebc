"""Verification on the user's own data: pruning changes what is read, never what is returned.

A scan runs once with every level of pruning switched off, which reads everything and tests every row, and then once
with every subset of the levels switched on. All runs must return the same rows, and count as many.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any, Protocol, runtime_checkable

from tamis.errors import InvalidArgument, VerificationFailed, format_count
from tamis.expr.functions import NOT_DETERMINISTIC
from tamis.expr.nodes import Call, Expr, Literal, walk
from tamis.expr.partition_filter import PartitionFilter
from tamis.expr.sources import to_expr
from tamis.scan.checksum import RowChecksum
from tamis.scan.rows import LazyScan
from tamis.scan.scan import Scan
from tamis.tables.source import LEVELS, TableSource, levels_of_format

MOST_LEVELS_FOR_ALL_SUBSETS = 7
"""Up to 128 runs; with more levels, only those with none, one, all but one, and all."""


@runtime_checkable
class Scannable(Protocol):
    """A table that can be scanned."""

    def scan(
        self,
        where: object = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        levels: Collection[str] = LEVELS,
    ) -> LazyScan: ...


@dataclass(frozen=True, slots=True)
class VerifyResult:
    """One run: its levels, what it returned and what it cost."""

    levels: tuple[str, ...]
    rows: int
    count: int
    """The result of `count()`, which may come from metadata alone."""
    checksum: int
    kept: dict[str, int]
    """How many units each level kept: partitions, files, row groups."""
    bytes_read: int
    """Of column data. Footers are read once, before the first run."""
    requests: int
    same: bool
    """Whether the run returned what the run without pruning did."""
    has_every_level: bool
    """Whether all levels of the format were on."""

    @property
    def name(self) -> str:
        """The levels as text."""
        return "all levels" if self.has_every_level else name_levels(self.levels)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values, as `--json` prints them."""
        return {
            "levels": list(self.levels),
            "rows": self.rows,
            "counted": self.count,
            # As text: many JSON readers have only doubles.
            "checksum": f"{self.checksum:016x}",
            "kept": dict(self.kept),
            "bytes_read": self.bytes_read,
            "requests": self.requests,
            "same": self.same,
        }


def verify(
    table: Scannable | TableSource, where: object = None, columns: Sequence[str] | None = None
) -> list[VerifyResult]:
    """Scan with every subset of the levels switched on, the run without pruning first.

    A difference is in the results, and is not an error: `assert_same_rows` raises one.
    """
    return list(verify_each(table, where, columns))


def verify_each(
    table: Scannable | TableSource, where: object = None, columns: Sequence[str] | None = None
) -> Iterator[VerifyResult]:
    """Yield the results of `verify`, each after its run."""

    # One filter for all runs, so that current_timestamp() is the same in each.
    given = to_expr(where)
    _refuse_nondeterministic(given)

    def scan(levels: Collection[str]) -> LazyScan:
        if isinstance(table, Scannable):
            return table.scan(given, columns, levels=levels)
        return Scan(table, given, columns, levels=levels)

    # Footers are cached. Reading them now makes the costs of the runs comparable.
    plan = scan(()).plan()
    full: VerifyResult | None = None
    every = levels_of_format(plan.report.format)
    for levels in level_subsets(every):
        result = _run(scan, levels, full, is_every=levels == every)
        full = full or result
        yield result


def _refuse_nondeterministic(where: Expr | PartitionFilter | None) -> None:
    """Raise for a filter that keeps other rows each time: a difference would not be one of pruning."""
    calls = () if where is None or isinstance(where, PartitionFilter) else walk(where)
    for call in calls:
        match call:
            case Call("sql", (Literal(str() as text), *_)):
                names = re.findall(r"\b(\w+)\s*\(", text.lower())
            case Call(function):
                names = [function]
            case _:
                continue
        for name in names:
            if name in NOT_DETERMINISTIC:
                raise InvalidArgument(
                    f"the filter is not deterministic: {name}() keeps other rows each time, so that runs cannot be "
                    "compared. Verify without it"
                )


def assert_same_rows(results: Iterable[VerifyResult]) -> None:
    """Raise an error if a run returned other rows than the first, which is the one without pruning."""
    full: VerifyResult | None = None
    for result in results:
        full = full or result
        if not result.same:
            raise VerificationFailed(f"the scan with {result.name} on {_describe_difference(result, full)}")


def level_subsets(levels: Sequence[str]) -> list[tuple[str, ...]]:
    """Return the combinations of levels to run, from none to all.

    >>> level_subsets(("files", "pages"))
    [(), ('files',), ('pages',), ('files', 'pages')]
    """
    count = len(levels)
    sizes = range(count + 1) if count <= MOST_LEVELS_FOR_ALL_SUBSETS else (0, 1, count - 1, count)
    return [subset for size in sizes for subset in combinations(levels, size)]


def name_levels(subset: Sequence[str]) -> str:
    """Return the name of a combination of levels.

    >>> levels_name(()), levels_name(("partitions", "row_groups"))
    ('no level', 'partitions + row_groups')
    """
    return " + ".join(subset) or "no level"


class _MakeScan(Protocol):
    def __call__(self, levels: Collection[str]) -> LazyScan: ...


def _run(make_scan: _MakeScan, levels: tuple[str, ...], full: VerifyResult | None, *, is_every: bool) -> VerifyResult:
    scan = make_scan(levels)
    checksum = RowChecksum()
    checksum.add_all(scan.to_batches())
    report = scan.report
    assert report is not None
    # Another scan, since count() would replace the report of this one.
    counted = make_scan(levels).count()
    rows = full.rows if full is not None else checksum.rows
    value = full.checksum if full is not None else checksum.value
    return VerifyResult(
        levels,
        checksum.rows,
        counted,
        checksum.value,
        {level.level: level.kept for level in report.levels if level.level in LEVELS},
        report.bytes_read or 0,
        report.requests or 0,
        (checksum.rows, counted, checksum.value) == (rows, rows, value),
        is_every,
    )


def _describe_difference(result: VerifyResult, full: VerifyResult) -> str:
    if result.rows != full.rows:
        what = f"returned {format_count(result.rows, 'row')}, without pruning it is {full.rows:,}"
    elif result.count != full.rows:
        what = f"counts {format_count(result.count, 'row')}, but {full.rows:,} match"
    else:
        what = f"returned other rows than without pruning ({result.rows:,} each)"
    return f"{what}. This is a defect of Tamis: please report it, and scan without these levels until it is fixed"
