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

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property

from tamis import types
from tamis.expr.evaluate import Evaluator
from tamis.expr.functions import type_of
from tamis.expr.nodes import FALSE, TRUE, Call, Column, Expr, Literal, columns_of, conjuncts_of, fold, operands_of, walk
from tamis.expr.printer import shown
from tamis.skipping.answers import UNKNOWN, Answers, all_of, any_of, negate
from tamis.skipping.atoms import Reason, answer_boolean, answer_call
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
    may_be_false: Expr
    """FALSE wherever `matches_whole` is TRUE, and quicker to find out."""
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
    def evaluate_may_be_false(self) -> Evaluator:
        return Evaluator(Call("coalesce", (self.may_be_false, TRUE)), absent_as_null=True)

    @property
    def is_nested(self) -> bool:
        """Whether it has predicates or functions inside, so that its answers may be long."""
        return isinstance(self.predicate, Call) and any(isinstance(arg, Call) for arg in self.predicate.args)

    @cached_property
    def evaluate_matches_whole(self) -> Evaluator:
        return Evaluator(self.matches_whole, absent_as_null=True)


Refine = Callable[[Expr, Answers], Answers]
"""The answers for a node, given those from bounds: what is known besides."""


def rewrite(predicate: Expr, refine: Refine | None = None) -> tuple[Conjunct, ...]:
    """Rewrite a normalised predicate, conjunct by conjunct."""
    parts = conjuncts_of(predicate)
    no_nan = columns_without_nan(parts)
    return tuple(_rewrite_conjunct(part, no_nan, refine) for part in parts if part != TRUE)


def _rewrite_conjunct(predicate: Expr, no_nan: frozenset[Column], refine: Refine | None) -> Conjunct:
    failures = _Failures()
    outermost = {id(part) for part in _parts_of(predicate)}

    def answer(node: Expr, args: tuple[_Answered, ...]) -> _Answered:
        found = _answer(node, args, id(node) in outermost, failures)
        return found if refine is None else replace(found, answers=refine(node, found.answers))

    answered = fold(predicate, answer)
    answers = assume_no_nan(predicate, answered.answers, no_nan)
    whole = negate(any_of(answers.may_be_false, answers.may_be_null, *failures.of_parts))
    has_rows = Call(">", (ROW_COUNT, Literal(0, types.LONG)))
    return Conjunct(
        predicate,
        all_of(answers.may_be_true, has_rows),
        Call("coalesce", (whole, FALSE)),
        answers.may_be_false,
        answered.reason() if answered.reason is not None else None,
    )


def _parts_of(predicate: Expr) -> list[Expr]:
    """The predicates that AND, OR and NOT combine."""
    return [node for node in walk(predicate, _logic_operands) if not _is_logic(node)]


def _logic_operands(node: Expr) -> tuple[Expr, ...]:
    return operands_of(node) if _is_logic(node) else ()


def _is_logic(node: Expr) -> bool:
    return isinstance(node, Call) and node.function in ("and", "or", "not")


@dataclass(frozen=True, slots=True)
class _Answered:
    """What is known of a node: of a predicate the three answers, of a value its range, of a boolean both."""

    answers: Answers
    range: Range | None
    reason: Reason | None
    is_partial: bool = False
    """Whether the bounds do not tell all that a value would."""


@dataclass(frozen=True, slots=True)
class _Failures:
    """May some row fail? The answers that a walk from the leaves up found."""

    inside: dict[Expr, None] = field(default_factory=dict)
    """Of predicates inside the part that the walk is in."""
    of_parts: dict[Expr, None] = field(default_factory=dict)
    """Of the parts that AND, OR and NOT combine, and that are done."""


def _answer(node: Expr, args: tuple[_Answered, ...], is_part: bool, failures: _Failures) -> _Answered:
    """Answer a node from what is known of its arguments, and note whether a predicate may fail for some row."""
    reason = next((arg.reason for arg in args if arg.reason is not None), None)
    is_partial = any(arg.is_partial for arg in args)
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
            return _Answered(args[0].answers.negated(), None, reason, is_partial)
        case Call("and", parts):
            no_nan = columns_without_nan(parts)
            each = [assume_no_nan(part, arg.answers, no_nan) for part, arg in zip(parts, args, strict=True)]
            return _Answered(Answers.conjunction(each), None, reason, is_partial)
        case Call("or"):
            return _Answered(Answers.disjunction([arg.answers for arg in args]), None, reason, is_partial)
        case Call():
            answers, why = answer_call(node, tuple((arg.answers, arg.range) for arg in args))
            found_range = range_of(node, tuple(arg.range for arg in args))
            is_partial = is_partial or why is not None
            if type_of(node) in (types.BOOLEAN, None):
                failures.inside[found_range.failure.possible] = None
                found_range = found_range.with_failure_as_null()
            if is_part:
                may_fail = any_of(*failures.inside)
                failures.inside.clear()
                if is_partial:
                    # Once for the whole part: each of the predicates inside would repeat the work of those in it.
                    answers, may_fail = answer_constant_unit(node, answers, may_fail)
                failures.of_parts[may_fail] = None
            return _Answered(answers, found_range, why, is_partial)
