"""The skipping rewrite: a predicate over rows becomes three predicates over the metadata of units.

For a unit (a partition, a file, a row group, a page) and a predicate p there are three questions:

    may p be TRUE for some row?    may p be FALSE?    may p be NULL?

Each is answered by an expression over the unit's metadata (see `tamis.skipping.metadata`), whose own value is TRUE,
FALSE, or NULL where the metadata does not tell. They compose exactly:

| p       | may be TRUE   | may be FALSE  | may be NULL                                   |
|---------|---------------|---------------|-----------------------------------------------|
| NOT a   | aF            | aT            | aN                                            |
| a AND b | aT and bT     | aF or bF      | (aN and (bT or bN)) or (bN and (aT or aN))    |
| a OR b  | aT or bT      | aF and bF     | (aN and (bF or bN)) or (bN and (aF or aN))    |

"and" and "or" here are Kleene's, so an unknown answer stays unknown only while it matters. The answers contain no
negation of another answer: making any piece of metadata unknown can turn an answer only into unknown or TRUE, never
into FALSE. That is why missing or wider statistics never lose a unit.

A unit is *skipped* when p may not be TRUE. It *matches whole* when p may be neither FALSE nor NULL, and the metadata
proves that no part of p fails for a row (overflows, casts what does not fit): an error must not depend on statistics.

Worked example, `x < 10` for a nullable integer column x:

    may be TRUE    lower:x < 10 and null_count:x < row_count
    may be FALSE   upper:x >= 10 and null_count:x < row_count
    may be NULL    null_count:x > 0

A unit with x in [12, 40] is skipped; one with x in [1, 5] and no nulls matches whole.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from tamis import types
from tamis.expr.evaluate import Evaluator
from tamis.expr.functions import type_of
from tamis.expr.nodes import FALSE, TRUE, Call, Column, Expr, Literal, columns_of, conjuncts_of, fold
from tamis.expr.printer import shown
from tamis.skipping.answers import UNKNOWN, Answers, all_of, any_of, negate
from tamis.skipping.atoms import answer_boolean, answer_call
from tamis.skipping.constant_units import answer_constant_unit
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.nan_free import assume_no_nan, columns_without_nan
from tamis.skipping.ranges import Range, range_of


@dataclass(frozen=True)
class Conjunct:
    """One part of a filter: every row of the result satisfies it, so each part alone may skip a unit."""

    predicate: Expr
    may_be_true: Expr
    """TRUE, FALSE or (unknown) NULL for each unit."""
    matches_whole: Expr
    """TRUE for the units in which every row satisfies the predicate."""
    reason: str | None
    """Why the predicate cannot be answered from bounds at all, where that is so."""
    label: Expr | None = None
    """What people see in its place."""

    @cached_property
    def text(self) -> str:
        return shown(self.predicate if self.label is None else self.label)

    @property
    def keeps(self) -> Expr:
        """TRUE for the units that must be kept."""
        return Call("coalesce", (self.may_be_true, TRUE))

    @cached_property
    def metadata_names(self) -> frozenset[str]:
        """The metadata columns that its answers are about, `row_count` apart."""
        answers = (self.may_be_true, self.matches_whole)
        return frozenset(column.path[0] for answer in answers for column in columns_of(answer)) - {ROW_COUNT.name}

    @cached_property
    def evaluate_keeps(self) -> Evaluator:
        return Evaluator(self.keeps, absent_as_null=True)

    @cached_property
    def evaluate_matches_whole(self) -> Evaluator:
        return Evaluator(self.matches_whole, absent_as_null=True)


def rewrite(predicate: Expr) -> tuple[Conjunct, ...]:
    """Rewrite a normalised predicate, conjunct by conjunct."""
    parts = conjuncts_of(predicate)
    no_nan = columns_without_nan(parts)
    return tuple(_rewrite_conjunct(part, no_nan) for part in parts if part != TRUE)


def _rewrite_conjunct(predicate: Expr, no_nan: frozenset[Column]) -> Conjunct:
    failures: dict[Expr, None] = {}
    answered = fold(predicate, lambda node, args: _answer(node, args, failures))
    answers = assume_no_nan(predicate, answered.answers, no_nan)
    whole = negate(any_of(answers.may_be_false, answers.may_be_null, *failures))
    has_rows = Call(">", (ROW_COUNT, Literal(0, types.LONG)))
    return Conjunct(
        predicate,
        all_of(answers.may_be_true, has_rows),
        Call("coalesce", (whole, FALSE)),
        answered.reason,
    )


@dataclass(frozen=True, slots=True)
class _Answered:
    """What is known of a node: of a predicate the three answers, of a value its range, of a boolean both."""

    answers: Answers
    range: Range | None
    reason: str | None


def _answer(node: Expr, args: tuple[_Answered, ...], failures: dict[Expr, None]) -> _Answered:
    """Answer a node from what is known of its arguments, and note whether a predicate may fail for some row."""
    reason = next((arg.reason for arg in args if arg.reason is not None), None)
    match node:
        case Literal(value=bool() as value):
            answers = Answers(TRUE if value else FALSE, FALSE if value else TRUE, FALSE)
            return _Answered(answers, range_of(node, ()), None)
        case Literal() | Column():
            found = range_of(node, ())
            is_boolean = type_of(node) == types.BOOLEAN
            answers = answer_boolean(found) if is_boolean else UNKNOWN
            if isinstance(node, Literal) and node.is_null:
                answers = Answers(FALSE, FALSE, TRUE)
            return _Answered(answers, found, None)
        case Call("not"):
            return _Answered(args[0].answers.negated(), None, reason)
        case Call("and", parts):
            no_nan = columns_without_nan(parts)
            each = [assume_no_nan(part, arg.answers, no_nan) for part, arg in zip(parts, args, strict=True)]
            return _Answered(Answers.conjunction(each), None, reason)
        case Call("or"):
            return _Answered(Answers.disjunction([arg.answers for arg in args]), None, reason)
        case Call():
            answers, why = answer_call(node, tuple((arg.answers, arg.range) for arg in args))
            found_range = range_of(node, tuple(arg.range for arg in args))
            may_fail = found_range.failure.possible
            if why is not None:
                answers, may_fail = answer_constant_unit(node, answers, may_fail)
            if type_of(node) in (types.BOOLEAN, None):
                failures[may_fail] = None
            return _Answered(answers, found_range, why)
