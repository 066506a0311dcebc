"""The pruning metrics of a plan: the number of manifests and files at each stage, and what each conjunct skipped."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import format_count
from tamis.skipping.metrics import SWITCHED_OFF, LevelReport, merge_outcomes
from tamis.skipping.prune import ConjunctOutcome

Outcomes = tuple[ConjunctOutcome, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """A number of files or manifests, and their total bytes: None if unknown."""

    count: int = 0
    bytes: int | None = 0

    def __add__(self, other: Sizes) -> Sizes:
        known = None if self.bytes is None or other.bytes is None else self.bytes + other.bytes
        return Sizes(self.count + other.count, known)

    @staticmethod
    def of(sizes: pa.Array | pa.ChunkedArray) -> Sizes:
        return Sizes(len(sizes), pc.sum(sizes).as_py() or 0)


@dataclass(frozen=True, slots=True)
class FileMetrics:
    """The pruning metrics of the files in some manifests."""

    total: Sizes = Sizes()
    after_partitions: Sizes = Sizes()
    after_statistics: Sizes = Sizes()
    of_partitions: Outcomes = ()
    of_statistics: Outcomes = ()
    wrong_lengths: int = 0
    """The number of manifests whose length differs from the one in the manifest list."""

    def __add__(self, other: FileMetrics) -> FileMetrics:
        return FileMetrics(
            self.total + other.total,
            self.after_partitions + other.after_partitions,
            self.after_statistics + other.after_statistics,
            merge_outcomes(self.of_partitions, other.of_partitions),
            merge_outcomes(self.of_statistics, other.of_statistics),
            self.wrong_lengths + other.wrong_lengths,
        )

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(json: Mapping[str, Any]) -> FileMetrics:
        total, between, left = (Sizes(**json[name]) for name in ("total", "after_partitions", "after_statistics"))
        of_partitions, of_statistics = (
            tuple(ConjunctOutcome(**each) for each in json[name]) for name in ("of_partitions", "of_statistics")
        )
        return FileMetrics(total, between, left, of_partitions, of_statistics, json["wrong_lengths"])


@dataclass(frozen=True, slots=True)
class ManifestMetrics:
    """The pruning metrics of manifests."""

    total: Sizes = Sizes()
    kept: Sizes = Sizes()
    skipped_files: int = 0
    """The number of files in the skipped manifests, as far as the manifest list records it."""
    outcomes: Outcomes = ()
    outcomes_in_files: Outcomes = ()
    """`outcomes`, counted in files instead of manifests."""

    def __add__(self, other: ManifestMetrics) -> ManifestMetrics:
        return ManifestMetrics(
            self.total + other.total,
            self.kept + other.kept,
            self.skipped_files + other.skipped_files,
            merge_outcomes(self.outcomes, other.outcomes),
            merge_outcomes(self.outcomes_in_files, other.outcomes_in_files),
        )


def describe_levels(
    manifests: ManifestMetrics,
    files: FileMetrics,
    *,
    has_partitions: bool,
    by_manifests: bool,
    by_partitions: bool,
    by_statistics: bool,
    note: str | None,
    rows: tuple[int | None, int | None] = (None, None),
) -> list[LevelReport]:
    """Describe the levels of a plan, in order. Files of skipped manifests count as pruned by partition values."""
    reports = []
    if has_partitions:
        skipped = Sizes(manifests.skipped_files, None if manifests.skipped_files else 0)
        outcomes = files.of_partitions
        if by_partitions:
            total, outcomes = files.total + skipped, merge_outcomes(outcomes, manifests.outcomes_in_files)
        else:
            total = files.total
        reports.append(
            LevelReport(
                "partitions",
                total.count,
                files.after_partitions.count,
                total.bytes,
                files.after_partitions.bytes,
                outcomes,
                None if by_partitions else SWITCHED_OFF,
            )
        )
    lengths = (
        f"the manifest list has a wrong length for {format_count(files.wrong_lengths, 'manifest')}"
        if files.wrong_lengths
        else None
    )
    notes = "; ".join(each for each in (None if by_manifests else SWITCHED_OFF, note, lengths) if each)
    reports.append(
        LevelReport(
            "manifests",
            manifests.total.count,
            manifests.kept.count,
            manifests.total.bytes,
            manifests.kept.bytes,
            manifests.outcomes,
            notes or None,
        )
    )
    reports.append(
        LevelReport(
            "files",
            files.after_partitions.count,
            files.after_statistics.count,
            files.after_partitions.bytes,
            files.after_statistics.bytes,
            files.of_statistics,
            None if by_statistics else SWITCHED_OFF,
            *rows,
        )
    )
    return reports


def with_reason(outcomes: Sequence[ConjunctOutcome], reason: str, applies: Sequence[bool]) -> Outcomes:
    """Return the outcomes; if `applies` is true for a conjunct, it gets a reason why it skipped nothing."""
    return tuple(
        replace(outcome, unused_because=reason) if applies_here else outcome
        for outcome, applies_here in zip(outcomes, applies, strict=True)
    )
