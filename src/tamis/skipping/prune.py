"""Pruning of one batch of units by the conjuncts of a filter, with metrics for each conjunct."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError, to_one_line
from tamis.skipping.handler import ARROW, ExpressionHandler
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.rewrite import Conjunct

Bits = npt.NDArray[np.bool_]

NO_STATISTICS = "no statistics"
OVERLAPS = "overlaps"
SKIPPED_BEFORE = "earlier conditions skip the same units"
NO_UNITS_LEFT = "no units left"
UNKNOWN_NAN_COUNT = "NaN count is unknown, and NaN is larger than every number"


@dataclass(frozen=True, slots=True)
class ConjunctOutcome:
    """The effect of one conjunct, or of another cause such as a limit."""

    predicate: str
    skipped: int
    """The number of units that it skips and that no earlier conjunct skips, so that numbers of a level add up."""
    unused_because: str | None
    """The reason why it skipped nothing; None if it skipped some, or if every unit is fully matched."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """The remaining units, and the conjuncts by which each of them is fully matched."""

    selection: pa.BooleanArray
    fully_matched: tuple[pa.BooleanArray, ...]
    """For each conjunct and each *remaining* unit, whether it is TRUE for every row; empty if not requested."""
    outcomes: tuple[ConjunctOutcome, ...]
    remaining: pa.RecordBatch
    skipped_by: tuple[pa.BooleanArray, ...]
    """For each conjunct, the units that it skips and no earlier conjunct does: each skipped unit counts once."""

    @property
    def matched(self) -> Bits:
        """`matched[i, j]`: remaining unit i is fully matched by conjunct j."""
        found = np.zeros((self.remaining.num_rows, len(self.fully_matched)), bool)
        for position, each in enumerate(self.fully_matched):
            found[:, position] = np.asarray(each)
        return found


def prune(
    units: pa.RecordBatch,
    conjuncts: Sequence[Conjunct],
    *,
    handler: ExpressionHandler = ARROW,
    with_matches: bool = True,
    proven: Bits | None = None,
) -> Pruned:
    """Skip the units of a metadata batch in which some conjunct cannot be TRUE; `handler` evaluates all answers.

    `proven[i, j]`: unit i is part of a unit that is fully matched by conjunct j, which is not evaluated for it.
    """
    is_asked = [_find_asked(proven, position) for position in range(len(conjuncts))]
    asked = [_select_units(units, conjunct, mask) for conjunct, mask in zip(conjuncts, is_asked, strict=True)]
    answers = [_evaluate_keeps(own, conjunct, handler) for own, conjunct in zip(asked, conjuncts, strict=True)]
    selection = _repeat(True, units)
    skipped_by = []
    for (answer, _), mask in zip(answers, is_asked, strict=True):
        kept = _add_proven(answer, mask)
        skipped_by.append(pc.and_not(selection, kept))
        selection = pc.and_(selection, kept)
    # Full matches matter only for the units that are read, usually few.
    is_all = selection.true_count == units.num_rows
    remaining = units if is_all else units.filter(selection)
    is_left = [mask if mask is None or is_all else mask[np.asarray(selection)] for mask in is_asked]
    matches = [
        lru_cache(partial(_evaluate_matches, remaining, conjunct, handler, mask))
        for conjunct, mask in zip(conjuncts, is_left, strict=True)
    ]
    outcomes = tuple(
        _make_outcome(own, conjunct, handler, kept, skipped.true_count, whole, error, has_proofs=mask is not None)
        for own, conjunct, (kept, error), skipped, whole, mask in zip(
            asked, conjuncts, answers, skipped_by, matches, is_asked, strict=True
        )
    )
    fully_matched = tuple(whole() for whole in matches) if with_matches else ()
    return Pruned(selection, fully_matched, outcomes, remaining, tuple(skipped_by))


def _find_asked(proven: Bits | None, position: int) -> Bits | None:
    """Return the units for which a conjunct is evaluated; None for all."""
    return None if proven is None or not proven[:, position].any() else ~proven[:, position]


def _select_units(units: pa.RecordBatch, conjunct: Conjunct, is_asked: Bits | None) -> pa.RecordBatch:
    """Return the units for which a conjunct is evaluated, with the metadata that it uses."""
    if is_asked is None:
        return units
    used = [name for name in units.schema.names if name in conjunct.metadata_names or name == ROW_COUNT.name]
    return units.select(used).filter(pa.array(is_asked))


def _add_proven(answer: pa.BooleanArray, is_asked: Bits | None) -> pa.BooleanArray:
    """Return an answer for all units: TRUE for those for which the conjunct was not evaluated."""
    if is_asked is None:
        return answer
    everything = np.ones(len(is_asked), bool)
    everything[is_asked] = np.asarray(answer)
    return pa.array(everything)


def _repeat(value: bool, units: pa.RecordBatch) -> pa.BooleanArray:
    return pa.repeat(pa.scalar(value), units.num_rows)


def _evaluate_keeps(
    units: pa.RecordBatch, conjunct: Conjunct, handler: ExpressionHandler
) -> tuple[pa.BooleanArray, EvaluationError | None]:
    if _has_no_metadata(units, conjunct):
        return _repeat(True, units), None
    try:
        return conjunct.evaluate(conjunct.keeps, units, handler), None
    except EvaluationError as error:
        # A bound for which the predicate fails (for example by overflow) proves nothing; evaluating the rows decides.
        return _repeat(True, units), error


def _evaluate_matches(
    units: pa.RecordBatch, conjunct: Conjunct, handler: ExpressionHandler, is_asked: Bits | None
) -> pa.BooleanArray:
    return _add_proven(_match_units(_select_units(units, conjunct, is_asked), conjunct, handler), is_asked)


def _match_units(units: pa.RecordBatch, conjunct: Conjunct, handler: ExpressionHandler) -> pa.BooleanArray:
    if _has_no_metadata(units, conjunct):
        return _repeat(False, units)
    try:
        # For a long predicate, "may be NULL" takes several times as long to evaluate as "may be FALSE", and most units
        # may be FALSE.
        if conjunct.is_nested:
            may_hold_false = conjunct.evaluate(conjunct.may_hold_false, units, handler)
            if may_hold_false.true_count == units.num_rows:
                return _repeat(False, units)
        return conjunct.evaluate(conjunct.fully_matches, units, handler)
    except EvaluationError:
        return _repeat(False, units)


def _has_no_metadata(units: pa.RecordBatch, conjunct: Conjunct) -> bool:
    """Return whether the batch is empty, or lacks all metadata of the conjunct, as partitions do for data columns."""
    names = conjunct.metadata_names
    return not units.num_rows or (bool(names) and names.isdisjoint(units.schema.names))


def _make_outcome(
    units: pa.RecordBatch,
    conjunct: Conjunct,
    handler: ExpressionHandler,
    kept: pa.BooleanArray,
    skipped: int,
    whole: Callable[[], pa.BooleanArray],
    error: EvaluationError | None,
    *,
    has_proofs: bool,
) -> ConjunctOutcome:
    if error is not None:
        # The message of the error itself shows the rewritten predicate, which means nothing to users.
        reason: str | None = f"not computable from bounds: {to_one_line(error.__cause__ or error)}"
    elif kept.true_count < units.num_rows:
        reason = None if skipped else SKIPPED_BEFORE
    elif has_proofs and not units.num_rows:
        reason = None
    else:
        reason = _explain_unused(units, conjunct, handler, whole)
    return ConjunctOutcome(conjunct.text, skipped, reason)


def _explain_unused(
    units: pa.RecordBatch, conjunct: Conjunct, handler: ExpressionHandler, whole: Callable[[], pa.BooleanArray]
) -> str | None:
    if not units.num_rows:
        return NO_UNITS_LEFT
    if not any(_is_known(units, name) for name in conjunct.metadata_names):
        return conjunct.reason or NO_STATISTICS
    if not len(whole()):
        return conjunct.reason or NO_UNITS_LEFT
    if pc.all(whole()).as_py():
        return None
    if conjunct.reason is not None:
        return conjunct.reason
    return UNKNOWN_NAN_COUNT if _would_skip_without_nan(units, conjunct, handler) else OVERLAPS


def _would_skip_without_nan(units: pa.RecordBatch, conjunct: Conjunct, handler: ExpressionHandler) -> bool:
    unknown = [name for name in conjunct.metadata_names if name.startswith("nan_count:") and not _is_known(units, name)]
    if not unknown:
        return False
    none = pa.repeat(pa.scalar(0, types.LONG), units.num_rows)
    others = {name: units.column(name) for name in units.schema.names if name not in unknown}
    without_nan = pa.record_batch(others | dict.fromkeys(unknown, none))
    return not pc.all(conjunct.evaluate(conjunct.keeps, without_nan, handler), min_count=0).as_py()


def _is_known(units: pa.RecordBatch, name: str) -> bool:
    index = units.schema.get_field_index(name)
    return bool(index >= 0 and units.column(index).null_count < units.num_rows)
