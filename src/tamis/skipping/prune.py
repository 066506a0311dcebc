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
from tamis.skipping.rewrite import Conjunct

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
    """The metadata of the remaining units."""
    skipped_by: tuple[pa.BooleanArray, ...]
    """For each conjunct, the units that it skips and no earlier conjunct does: each skipped unit counts once."""

    @property
    def matched(self) -> npt.NDArray[np.bool_]:
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
) -> Pruned:
    """Skip the units of a metadata batch in which some conjunct cannot be TRUE; `handler` evaluates all answers."""
    answers = [_evaluate_keeps(units, conjunct, handler) for conjunct in conjuncts]
    selection = _repeat(True, units)
    skipped_by = []
    for kept, _ in answers:
        skipped_by.append(pc.and_not(selection, kept))
        selection = pc.and_(selection, kept)
    # Full matches matter only for the units that are read, usually few.
    remaining = units if selection.true_count == units.num_rows else units.filter(selection)
    matches = [lru_cache(partial(_evaluate_matches, remaining, conjunct, handler)) for conjunct in conjuncts]
    outcomes = tuple(
        _make_outcome(units, conjunct, handler, kept, skipped.true_count, whole, error)
        for conjunct, (kept, error), skipped, whole in zip(conjuncts, answers, skipped_by, matches, strict=True)
    )
    fully_matched = tuple(whole() for whole in matches) if with_matches else ()
    return Pruned(selection, fully_matched, outcomes, remaining, tuple(skipped_by))


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


def _evaluate_matches(units: pa.RecordBatch, conjunct: Conjunct, handler: ExpressionHandler) -> pa.BooleanArray:
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
    """Return whether the batch lacks all metadata of the conjunct, as partitions do for data columns."""
    return bool(conjunct.metadata_names) and conjunct.metadata_names.isdisjoint(units.schema.names)


def _make_outcome(
    units: pa.RecordBatch,
    conjunct: Conjunct,
    handler: ExpressionHandler,
    kept: pa.BooleanArray,
    skipped: int,
    whole: Callable[[], pa.BooleanArray],
    error: EvaluationError | None,
) -> ConjunctOutcome:
    if error is not None:
        # The message of the error itself shows the rewritten predicate, which means nothing to users.
        reason: str | None = f"not computable from bounds: {to_one_line(error.__cause__ or error)}"
    elif kept.true_count < units.num_rows:
        reason = None if skipped else SKIPPED_BEFORE
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
