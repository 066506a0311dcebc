"""Metrics of one pruning level: the units before and after, and the effect of each conjunct.

An entry of `by_predicate` has one of three forms:

- `skipped > 0`: the conjunct skipped units;
- `skipped == 0` and `unused_because` is None: it was evaluated and skipped nothing, because every unit matches;
- `unused_because` is a string: the reason why it skipped nothing, such as `no statistics`, `function on column: …`,
  `not a partition column`, `overlaps` (the bounds of every unit overlap the constant), `fully matched by the file` (a
  level above has proven it for every row, so it was not tested again), or `no units left` (other conjuncts or a level
  above have skipped them all).

The `skipped` of all entries add up to `total - kept`. A unit that several conjuncts rule out counts for the first of
them. Units that are skipped for another reason than a conjunct have an entry of their own: a partition filter, or a
limit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from tamis.skipping.prune import NO_UNITS_LEFT, ConjunctOutcome
from tamis.skipping.rewrite import Conjunct

SWITCHED_OFF = "switched off"

MATCHED_BY_FILE, MATCHED_BY_ROW_GROUP = "fully matched by the file", "fully matched by the row group"
"""Why a conjunct was not tested: a level above has proven it for every row."""
_NOT_NEEDED = frozenset((MATCHED_BY_FILE, MATCHED_BY_ROW_GROUP, NO_UNITS_LEFT))

IMPLIED_BY = "implied by"
"""How the reason begins why a condition was not tested: another one is TRUE for fewer rows."""

NOT_A_PARTITION_COLUMN = "not a partition column"
"""The reason why a conjunct is unused for partitions."""


@dataclass(slots=True)
class LevelReport:
    """The metrics of one pruning level. Bytes and rows are None if the level does not know them."""

    level: str
    total: int
    kept: int
    bytes_total: int | None = None
    bytes_kept: int | None = None
    by_predicate: tuple[ConjunctOutcome, ...] = ()
    note: str | None = None
    rows_total: int | None = None
    """The number of rows after deletes, for levels that know it."""
    rows_kept: int | None = None

    def to_dict(self) -> dict[str, Any]:
        numbers = ("total", "kept", "bytes_total", "bytes_kept", "rows_total", "rows_kept")
        outcomes = [asdict(each) for each in self.by_predicate]
        return {
            "level": self.level,
            **{name: getattr(self, name) for name in numbers},
            "by_predicate": outcomes,
            "note": self.note,
        }

    def narrow(self, cause: str, kept: int, bytes_kept: int | None, rows_kept: int | None = None) -> LevelReport:
        """Return the metrics after another step than the filter, such as a limit, has left `kept` units."""
        skipped = self.kept - kept
        outcomes = (*self.by_predicate, ConjunctOutcome(cause, skipped, None)) if skipped else self.by_predicate
        return replace(self, kept=kept, bytes_kept=bytes_kept, rows_kept=rows_kept, by_predicate=outcomes)

    def add_bypassed(self, units: int, size: int) -> None:
        """Add units that bypassed the level, so that its totals cover all units."""
        self.total += units
        self.kept += units
        self.bytes_total = add_known(self.bytes_total, size)
        self.bytes_kept = add_known(self.bytes_kept, size)

    def add(self, other: LevelReport) -> None:
        """Add the metrics of more units of the same level."""
        self.by_predicate = merge_outcomes(self.by_predicate, other.by_predicate, first=self.total == 0)
        self.total += other.total
        self.kept += other.kept
        self.bytes_total = add_known(self.bytes_total, other.bytes_total)
        self.bytes_kept = add_known(self.bytes_kept, other.bytes_kept)
        self.rows_total = add_known(self.rows_total, other.rows_total)
        self.rows_kept = add_known(self.rows_kept, other.rows_kept)
        self.note = self.note or other.note


def add_known(left: int | None, right: int | None) -> int | None:
    return None if left is None or right is None else left + right


def merge_outcomes(
    left: tuple[ConjunctOutcome, ...], right: tuple[ConjunctOutcome, ...], *, first: bool = False
) -> tuple[ConjunctOutcome, ...]:
    """Merge the outcomes of the same conjuncts over two sets of units. A conjunct that skipped any unit was used.

    One side may have further entries, such as a partition filter: they stay.
    """
    if first or not left:
        return right
    if not right:
        return left
    merged = []
    rest = list(right)
    for one in left:
        other = next((each for each in rest if each.predicate == one.predicate), None)
        if other is None:
            merged.append(one)
            continue
        rest.remove(other)
        skipped = one.skipped + other.skipped
        reason = None if skipped else _choose_reason(one.unused_because, other.unused_because)
        merged.append(ConjunctOutcome(one.predicate, skipped, reason))
    return (*merged, *rest)


def _choose_reason(one: str | None, other: str | None) -> str | None:
    """Return the reason for both sets of units. That some are proven does not explain why others are kept."""
    if NO_UNITS_LEFT in (one, other):
        return other if one == NO_UNITS_LEFT else one
    return other or one if one in _NOT_NEEDED else one or other


def label_outcomes(
    outcomes: Sequence[ConjunctOutcome], labels: Mapping[str, str], implied: Mapping[str, str]
) -> tuple[ConjunctOutcome, ...]:
    """Return the outcomes by what the user wrote, one for each condition.

    `labels` and `implied` are those of the `Predicate`.
    """
    found: dict[str, list[ConjunctOutcome]] = {}
    for each in outcomes:
        found.setdefault(labels.get(each.predicate, each.predicate), []).append(each)
    merged = [_merge_parts(label, parts) for label, parts in found.items()]
    return (*merged, *(ConjunctOutcome(text, 0, reason) for text, reason in implied.items() if merged))


def _merge_parts(label: str, parts: Sequence[ConjunctOutcome]) -> ConjunctOutcome:
    """Merge the outcomes of the conjuncts of one condition over the same units."""
    skipped = sum(each.skipped for each in parts)
    reasons = dict.fromkeys(each.unused_because for each in parts if each.unused_because is not None)
    if skipped or not reasons:
        return ConjunctOutcome(label, skipped, None)
    explaining = [each for each in reasons if each not in _NOT_NEEDED]
    return ConjunctOutcome(label, 0, "; ".join(explaining) or next(iter(reasons)))


def is_not_needed(outcome: ConjunctOutcome) -> bool:
    """Return whether the conjunct had nothing to do: it was proven above, others imply it, or no unit was left."""
    reason = outcome.unused_because or ""
    return reason in _NOT_NEEDED or reason.startswith(IMPLIED_BY)


def add_matched_conjuncts(
    outcomes: Sequence[ConjunctOutcome], conjuncts: Sequence[Conjunct], is_tested: Sequence[bool], reason: str
) -> tuple[ConjunctOutcome, ...]:
    """Return the outcomes of all conjuncts, given those of the tested ones; the others were proven before."""
    found = iter(outcomes)
    return tuple(
        next(found) if tested else ConjunctOutcome(conjunct.text, 0, reason)
        for conjunct, tested in zip(conjuncts, is_tested, strict=True)
    )
