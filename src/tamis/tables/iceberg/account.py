"""The account of a plan: how many manifests and files there were at each stage, and what each conjunct did."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import counted
from tamis.skipping.account import SWITCHED_OFF, LevelReport, merge_outcomes
from tamis.skipping.prune import ConjunctOutcome

Outcomes = tuple[ConjunctOutcome, ...]


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many things there are, and their bytes: None where those are not known."""

    count: int = 0
    bytes: int | None = 0

    def __add__(self, other: Sizes) -> Sizes:
        known = None if self.bytes is None or other.bytes is None else self.bytes + other.bytes
        return Sizes(self.count + other.count, known)

    @staticmethod
    def of(sizes: pa.Array | pa.ChunkedArray) -> Sizes:
        return Sizes(len(sizes), pc.sum(sizes).as_py() or 0)


@dataclass(frozen=True, slots=True)
class Account:
    """What became of the files of some manifests."""

    total: Sizes = Sizes()
    after_partitions: Sizes = Sizes()
    after_statistics: Sizes = Sizes()
    of_partitions: Outcomes = ()
    of_statistics: Outcomes = ()
    wrong_lengths: int = 0
    """How many manifests have another length than the manifest list says."""

    def __add__(self, other: Account) -> Account:
        return Account(
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
    def from_json(given: Mapping[str, Any]) -> Account:
        total, between, left = (Sizes(**given[name]) for name in ("total", "after_partitions", "after_statistics"))
        of_partitions, of_statistics = (
            tuple(ConjunctOutcome(**each) for each in given[name]) for name in ("of_partitions", "of_statistics")
        )
        return Account(total, between, left, of_partitions, of_statistics, given["wrong_lengths"])


@dataclass(frozen=True, slots=True)
class ManifestAccount:
    """What became of manifests."""

    total: Sizes = Sizes()
    kept: Sizes = Sizes()
    skipped_files: int = 0
    """How many files those have that were skipped, as far as anybody counted."""
    outcomes: Outcomes = ()
    outcomes_in_files: Outcomes = ()
    """The same, in files in place of manifests."""

    def __add__(self, other: ManifestAccount) -> ManifestAccount:
        return ManifestAccount(
            self.total + other.total,
            self.kept + other.kept,
            self.skipped_files + other.skipped_files,
            merge_outcomes(self.outcomes, other.outcomes),
            merge_outcomes(self.outcomes_in_files, other.outcomes_in_files),
        )


def level_reports(
    manifests: ManifestAccount,
    files: Account,
    *,
    has_partitions: bool,
    by_manifests: bool,
    by_partitions: bool,
    by_statistics: bool,
    note: str | None,
    rows: tuple[int | None, int | None] = (None, None),
) -> list[LevelReport]:
    """The levels of a plan, in order. Files of manifests that were skipped were ruled out by their partitions."""
    reports = []
    if has_partitions:
        skipped = Sizes(manifests.skipped_files, None if manifests.skipped_files else 0)
        outcomes = files.of_partitions
        if by_partitions:
            total, outcomes = files.total + skipped, _joined(outcomes, manifests.outcomes_in_files)
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
        f"the manifest list has a wrong length for {counted(files.wrong_lengths, 'manifest')}"
        if files.wrong_lengths
        else None
    )
    told = "; ".join(each for each in (None if by_manifests else SWITCHED_OFF, note, lengths) if each)
    reports.append(
        LevelReport(
            "manifests",
            manifests.total.count,
            manifests.kept.count,
            manifests.total.bytes,
            manifests.kept.bytes,
            manifests.outcomes,
            told or None,
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


def _joined(of_files: Outcomes, of_manifests: Outcomes) -> Outcomes:
    return merge_outcomes(of_files, of_manifests)


def with_reason(outcomes: Sequence[ConjunctOutcome], reason: str, applies: Sequence[bool]) -> Outcomes:
    """The outcomes, with a reason why some of them skipped nothing."""
    return tuple(
        replace(outcome, unused_because=reason) if is_so else outcome
        for outcome, is_so in zip(outcomes, applies, strict=True)
    )
