"""The files of a snapshot that are left, and how much was there at each stage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile
from tamis.skipping.account import SWITCHED_OFF, LevelReport, merge_outcomes
from tamis.skipping.prune import ConjunctOutcome
from tamis.tables.delta.file_request import NOTES, Request

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much some files are. Rows are those that are left after deletes, None where that is not known."""

    files: int = 0
    bytes: int = 0
    rows: int | None = 0

    def __add__(self, other: Sizes) -> Sizes:
        rows = None if self.rows is None or other.rows is None else self.rows + other.rows
        return Sizes(self.files + other.files, self.bytes + other.bytes, rows)

    @staticmethod
    def of(sizes: pa.Array, rows: pa.Array | None = None) -> Sizes:
        return Sizes(len(sizes), pc.sum(sizes).as_py() or 0, None if rows is None else total_rows(rows))


def total_rows(rows: pa.Array) -> int | None:
    """The sum of numbers of rows, None where one of them is unknown."""
    return None if rows.null_count else int(pc.sum(rows).as_py() or 0)


@dataclass(frozen=True, slots=True)
class Chosen:
    """What is left of one or more pieces."""

    files: pa.Table
    """`path` (as in the log), `size`, `deletion_vector`, `num_records`, `logical_rows`."""
    partitions: pa.Table
    """The typed partition values; those of `unreadable` columns mean nothing."""
    matched: Bits
    """`matched[i]`: every row of file i satisfies the filter."""
    total: Sizes
    after_partitions: Sizes
    after_statistics: Sizes
    of_partitions: tuple[ConjunctOutcome, ...]
    of_filter: tuple[ConjunctOutcome, ...]
    of_statistics: tuple[ConjunctOutcome, ...]
    unreadable: Mapping[str, CorruptFile] = field(default_factory=dict)
    """Partition columns with a value, in some of the files, that their type cannot represent."""

    def take(self, rows: npt.NDArray[np.int64]) -> Chosen:
        """Some of the files."""
        taken = pa.array(rows)
        files = self.files.take(taken)
        left = Sizes.of(files["size"].combine_chunks(), files["logical_rows"].combine_chunks())
        partitions = self.partitions.take(taken)
        return replace(self, files=files, partitions=partitions, matched=self.matched[rows], after_statistics=left)

    @staticmethod
    def joined(each: Sequence[Chosen]) -> Chosen:
        first, *others = each
        if not others:
            return first
        return Chosen(
            # Of pieces without statistics of a column there is nothing to come along.
            pa.concat_tables([one.files for one in each], promote_options="default"),
            pa.concat_tables([one.partitions for one in each]),
            np.concatenate([one.matched for one in each]),
            sum((one.total for one in others), first.total),
            sum((one.after_partitions for one in others), first.after_partitions),
            sum((one.after_statistics for one in others), first.after_statistics),
            _merged([one.of_partitions for one in each]),
            _merged([one.of_filter for one in each]),
            _merged([one.of_statistics for one in each]),
            {name: error for one in reversed(each) for name, error in one.unreadable.items()},
        )


def _merged(outcomes: Sequence[tuple[ConjunctOutcome, ...]]) -> tuple[ConjunctOutcome, ...]:
    found: tuple[ConjunctOutcome, ...] = ()
    for each in outcomes:
        found = merge_outcomes(found, each)
    return found


def level_reports(
    chosen: Chosen, request: Request, has_partitions: bool, notes: Sequence[str] = ()
) -> list[LevelReport]:
    """The account of both levels, in bytes and rows, the last one with more notes."""
    reports = []
    total, between, left = chosen.total, chosen.after_partitions, chosen.after_statistics
    if has_partitions:
        outcomes = (*chosen.of_partitions, *chosen.of_filter)
        note = None if request.by_partitions else SWITCHED_OFF
        sizes = (total.files, between.files, total.bytes, between.bytes)
        # The rows of files that partition values rule out are in statistics, which nobody reads for them.
        rows = (between.rows if total.files == between.files else None, between.rows)
        reports.append(LevelReport("partitions", *sizes, outcomes, note, *(rows if request.with_rows else ())))
    sizes = (between.files, left.files, between.bytes, left.bytes)
    rows = (between.rows, left.rows) if request.with_rows else (None, None)
    # What asks for other columns than those of partitions would have been answered by statistics.
    note = NOTES[request.way] if request.by_statistics or not request.data_columns else SWITCHED_OFF
    reports.append(LevelReport("files", *sizes, chosen.of_statistics, "; ".join([note, *notes]), *rows))
    return reports
