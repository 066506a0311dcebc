"""The files of a snapshot that remain after pruning, with the counts of each pruning level."""

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
from tamis.tables.delta.file_request import SKIPPING_NOTES, Request

Bits = npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The number of files with their bytes and rows. Rows exclude deleted ones; None means unknown."""

    files: int = 0
    bytes: int = 0
    rows: int | None = 0

    def __add__(self, other: Sizes) -> Sizes:
        rows = None if self.rows is None or other.rows is None else self.rows + other.rows
        return Sizes(self.files + other.files, self.bytes + other.bytes, rows)

    @staticmethod
    def of(sizes: pa.Array, rows: pa.Array | None = None) -> Sizes:
        return Sizes(len(sizes), pc.sum(sizes).as_py() or 0, None if rows is None else sum_rows(rows))


def sum_rows(rows: pa.Array) -> int | None:
    """Return the sum of row counts; None where one of them is unknown."""
    return None if rows.null_count else int(pc.sum(rows).as_py() or 0)


@dataclass(frozen=True, slots=True)
class PrunedFiles:
    """The files that remain of one or more parts of a snapshot."""

    files: pa.Table
    """`path` (as in the log), `size`, `deletion_vector`, `extract_num_records`, `compute_logical_rows`."""
    partitions: pa.Table
    """The typed partition values; those of `unreadable` columns are meaningless."""
    fully_matched: Bits
    """`matched[i]`: file i is fully matched, every row of it satisfies the filter."""
    total: Sizes
    after_partitions: Sizes
    after_statistics: Sizes
    partition_outcomes: tuple[ConjunctOutcome, ...]
    partition_filter_outcomes: tuple[ConjunctOutcome, ...]
    statistics_outcomes: tuple[ConjunctOutcome, ...]
    unreadable: Mapping[str, CorruptFile] = field(default_factory=dict)
    """The error of each partition column with a value, in some of the files, that is invalid for its type."""

    def take(self, rows: npt.NDArray[np.int64]) -> PrunedFiles:
        """Return the files at these rows."""
        indices = pa.array(rows)
        files = self.files.take(indices)
        left = Sizes.of(files["size"].combine_chunks(), files["logical_rows"].combine_chunks())
        partitions = self.partitions.take(indices)
        return replace(
            self, files=files, partitions=partitions, fully_matched=self.fully_matched[rows], after_statistics=left
        )

    @staticmethod
    def concatenate(each: Sequence[PrunedFiles]) -> PrunedFiles:
        first, *others = each
        if not others:
            return first
        return PrunedFiles(
            # Parts without statistics of a column lack the columns of those statistics.
            pa.concat_tables([one.files for one in each], promote_options="default"),
            pa.concat_tables([one.partitions for one in each]),
            np.concatenate([one.fully_matched for one in each]),
            sum((one.total for one in others), first.total),
            sum((one.after_partitions for one in others), first.after_partitions),
            sum((one.after_statistics for one in others), first.after_statistics),
            _merge_all([one.partition_outcomes for one in each]),
            _merge_all([one.partition_filter_outcomes for one in each]),
            _merge_all([one.statistics_outcomes for one in each]),
            {name: error for one in reversed(each) for name, error in one.unreadable.items()},
        )


def _merge_all(outcomes: Sequence[tuple[ConjunctOutcome, ...]]) -> tuple[ConjunctOutcome, ...]:
    found: tuple[ConjunctOutcome, ...] = ()
    for each in outcomes:
        found = merge_outcomes(found, each)
    return found


def report_levels(
    chosen: PrunedFiles, request: Request, has_partitions: bool, notes: Sequence[str] = ()
) -> list[LevelReport]:
    """Return the reports of the partition level, if the table is partitioned, and of the file level; `notes` go to the
    latter."""
    reports = []
    total, between, left = chosen.total, chosen.after_partitions, chosen.after_statistics
    if has_partitions:
        outcomes = (*chosen.partition_outcomes, *chosen.partition_filter_outcomes)
        note = None if request.by_partitions else SWITCHED_OFF
        sizes = (total.files, between.files, total.bytes, between.bytes)
        # Row counts are in the statistics, which are not read for files that partition pruning skips.
        rows = (between.rows if total.files == between.files else None, between.rows)
        reports.append(LevelReport("partitions", *sizes, outcomes, note, *(rows if request.with_rows else ())))
    sizes = (between.files, left.files, between.bytes, left.bytes)
    rows = (between.rows, left.rows) if request.with_rows else (None, None)
    # A predicate on data columns would have used statistics if they were not switched off.
    note = SKIPPING_NOTES[request.skipping] if request.by_statistics or not request.data_columns else SWITCHED_OFF
    reports.append(LevelReport("files", *sizes, chosen.statistics_outcomes, "; ".join([note, *notes]), *rows))
    return reports
