"""The skipping rewrite: a predicate over rows becomes three predicates over the metadata of units.

For a unit (a partition, a file, a row group, a page) and a predicate p there are three questions:

    may p be TRUE for some row?    may p be FALSE?    may p be NULL?

Each is answered by an expression over the unit's metadata (see `tamis.skipping.metadata`), whose own value is TRUE,
FALSE, or NULL if the metadata is insufficient. They compose exactly:

| p       | may be TRUE   | may be FALSE  | may be NULL                                   |
|---------|---------------|---------------|-----------------------------------------------|
| NOT a   | aF            | aT            | aN                                            |
| a AND b | aT and bT     | aF or bF      | (aN and (bT or bN)) or (bN and (aT or aN))    |
| a OR b  | aT or bT      | aF and bF     | (aN and (bF or bN)) or (bN and (aF or aN))    |

"and" and "or" here are Kleene's, so an unknown answer stays unknown only while it matters. The answers contain no
negation of another answer: making any metadata value unknown can turn an answer only into unknown or TRUE, never into
FALSE. That is why missing or wider statistics never lose a unit.

A unit is *skipped* if p cannot be TRUE. It is *fully matched* if p can be neither FALSE nor NULL, and the metadata
proves that no part of p fails for a row (by overflow or an invalid cast): an error must not depend on statistics.

Worked example, `x < 10` for a nullable integer column x:

    may be TRUE    lower:x < 10 and null_count:x < row_count
    may be FALSE   upper:x >= 10 and null_count:x < row_count
    may be NULL    null_count:x > 0

A unit with x in [12, 40] is skipped; one with x in [1, 5] and no nulls is fully matched.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import pyarrow as pa

from tamis import types
from tamis.expr.evaluate import can_evaluate
from tamis.expr.functions.table import negate, type_of
from tamis.expr.nodes import (
    FALSE,
    NULL,
    TRUE,
    Call,
    Column,
    Expr,
    Literal,
    find_columns,
    fold,
    get_conditions,
    is_logic,
    make_unbound_error,
    not_,
    replace_columns,
    split_conjuncts,
    transform,
    walk,
)
from tamis.expr.sql.printer import to_display_sql
from tamis.skipping.answers import UNKNOWN, Answers, all_of, any_of
from tamis.skipping.atoms import ZERO, Range, Reason, answer_boolean, answer_call, compute_range
from tamis.skipping.handler import CompiledPredicates, ExpressionHandler
from tamis.skipping.metadata import ROW_COUNT, lower, nan_count, null_count, upper
from tamis.types import is_ordered


@dataclass(frozen=True)
class Conjunct:
    """One conjunct of a filter: every row of the result satisfies it, so each conjunct alone may skip a unit."""

    predicate: Expr
    may_be_true: Expr
    """TRUE, FALSE or (unknown) NULL for each unit."""
    fully_matches: Expr
    """TRUE for the units in which every row satisfies the predicate."""
    may_be_false: Expr
    """FALSE wherever `fully_matches` is TRUE, and faster to evaluate."""
    reason: str | None
    """The reason why bounds cannot answer the predicate at all; None if they can."""
    label: Expr | None = None
    """The predicate that metrics name instead of this one, which is the same with less known about types."""
    _compiled: CompiledPredicates = field(init=False, default_factory=CompiledPredicates, compare=False, repr=False)

    @cached_property
    def text(self) -> str:
        """The name of the conjunct in metrics. Equal conjuncts have one text, however they were written."""
        return to_display_sql(self.predicate if self.label is None else self.label, as_written=False)

    @cached_property
    def keeps(self) -> Expr:
        """TRUE for the units that must be kept."""
        return Call("coalesce", (self.may_be_true, TRUE))

    @cached_property
    def may_hold_false(self) -> Expr:
        """TRUE for the units that may hold a row for which the predicate is FALSE."""
        return Call("coalesce", (self.may_be_false, TRUE))

    @cached_property
    def metadata_names(self) -> frozenset[str]:
        """The metadata columns that its answers use, except `row_count`."""
        answers = (self.may_be_true, self.fully_matches)
        return frozenset(column.path[0] for answer in answers for column in find_columns(answer)) - {ROW_COUNT.name}

    def evaluate(self, answer: Expr, units: pa.RecordBatch, handler: ExpressionHandler) -> pa.BooleanArray:
        """Return for which units one of the answers is TRUE: `keeps`, `may_hold_false` or `fully_matches`."""
        return self._compiled.evaluate(answer, units, handler)

    @property
    def is_nested(self) -> bool:
        """Return whether the predicate has nested calls, which make the rewritten predicate large."""
        return isinstance(self.predicate, Call) and any(isinstance(arg, Call) for arg in self.predicate.args)


Refine = Callable[[Expr, Answers], Answers]
"""Returns the answers for a node, given those from bounds, with additional knowledge."""


def rewrite(predicate: Expr, refine: Refine | None = None) -> tuple[Conjunct, ...]:
    """Rewrite a normalised predicate, conjunct by conjunct."""
    parts = split_conjuncts(predicate)
    no_nan = find_columns_without_nan(parts)
    return tuple(_rewrite_conjunct(part, no_nan, refine) for part in parts if part != TRUE)


def _rewrite_conjunct(predicate: Expr, no_nan: frozenset[Column], refine: Refine | None) -> Conjunct:
    failures = _Failures()
    outermost = {id(node) for node in walk(predicate, get_conditions) if not is_logic(node)}

    def answer(node: Expr, args: tuple[_NodeResult, ...]) -> _NodeResult:
        found = _answer(node, args, id(node) in outermost, failures)
        return found if refine is None else replace(found, answers=refine(node, found.answers))

    answered = fold(predicate, answer)
    answers = assume_no_nan(predicate, answered.answers, no_nan)
    whole = negate(any_of(answers.may_be_false, answers.may_be_null, *failures.of_parts))
    has_rows = Call(">", (ROW_COUNT, ZERO))
    return Conjunct(
        predicate,
        all_of(answers.may_be_true, has_rows),
        Call("coalesce", (whole, FALSE)),
        answers.may_be_false,
        answered.reason() if answered.reason is not None else None,
    )


def answer_predicate(predicate: Expr) -> Answers:
    """Return the answers of a predicate that does not fail for any row."""
    failures = _Failures()
    return fold(predicate, lambda node, args: _answer(node, args, False, failures)).answers


@dataclass(frozen=True, slots=True)
class _NodeResult:
    """The result for a node: the three answers of a predicate, the range of a value, both for a boolean value."""

    answers: Answers
    range: Range | None
    reason: Reason | None
    is_partial: bool = False
    """Whether the value would allow more precise answers than its bounds."""


@dataclass(frozen=True, slots=True)
class _Failures:
    """Whether some row may fail: the answers that a bottom-up walk found."""

    inside: dict[Expr, None] = field(default_factory=dict)
    """The answers for predicates inside the current part."""
    of_parts: dict[Expr, None] = field(default_factory=dict)
    """The answers for the completed parts that AND, OR and NOT combine."""


def _answer(node: Expr, args: tuple[_NodeResult, ...], is_part: bool, failures: _Failures) -> _NodeResult:
    """Return the result for a node from those of its arguments, and record whether it may fail for some row."""
    reason = next((arg.reason for arg in args if arg.reason is not None), None)
    is_partial = any(arg.is_partial for arg in args)
    match node:
        case Literal(value=bool() as value):
            answers = Answers(TRUE if value else FALSE, FALSE if value else TRUE, FALSE)
            return _NodeResult(answers, compute_range(node, ()), None)
        case Literal() | Column():
            found = compute_range(node, ())
            is_boolean = type_of(node) == types.BOOLEAN
            answers = answer_boolean(found) if is_boolean else UNKNOWN
            if isinstance(node, Literal) and node.is_null:
                answers = Answers(FALSE, FALSE, TRUE)
            return _NodeResult(answers, found, None)
        case Call("not"):
            return _NodeResult(args[0].answers.invert(), None, reason, is_partial)
        case Call("and", parts):
            no_nan = find_columns_without_nan(parts)
            each = [assume_no_nan(part, arg.answers, no_nan) for part, arg in zip(parts, args, strict=True)]
            return _NodeResult(Answers.conjunction(each), None, reason, is_partial)
        case Call("or"):
            return _NodeResult(Answers.disjunction([arg.answers for arg in args]), None, reason, is_partial)
        case Call():
            answers, why = answer_call(node, tuple((arg.answers, arg.range) for arg in args))
            found_range = compute_range(node, tuple(arg.range for arg in args))
            is_partial = is_partial or why is not None
            if type_of(node) in (types.BOOLEAN, None):
                failures.inside[found_range.failure.possible] = None
                found_range = found_range.with_failure_as_null()
            if is_part:
                may_fail = any_of(*failures.inside)
                failures.inside.clear()
                if is_partial:
                    # Once for the whole part: each predicate inside would repeat the work of its own parts.
                    answers, may_fail = answer_constant_unit(node, answers, may_fail)
                failures.of_parts[may_fail] = None
            return _NodeResult(answers, found_range, why, is_partial)
        case _:
            raise make_unbound_error(node)


# --- Answers for units in which every column of a predicate is constant: partitions, and some files -------------------
#
# There any predicate, monotone or not, is answered by evaluating it for that value: `month(day) = 3` cannot be decided
# for a range of days, but it can for a partition of one day.


def answer_constant_unit(predicate: Expr, otherwise: Answers, may_fail: Expr) -> tuple[Answers, Expr]:
    """Return the answers for units in which all columns of the predicate are constant, and whether it may fail there.

    For other units, return the given answers and the given failure.
    """
    if type_of(predicate) != types.BOOLEAN or not can_evaluate(predicate):
        return otherwise, may_fail
    columns = find_columns(predicate)
    # Bounds of floats hide NaN and the sign of zero, which functions can distinguish.
    if not columns or not all(each.type is not None and is_ordered(each.type) for each in columns):
        return otherwise, may_fail
    if any(pa.types.is_floating(column.type) for column in columns):
        return otherwise, may_fail
    constant = all_of(*(_is_constant(column) for column in columns))
    # In other units the value is NULL, so the predicate is not evaluated (and cannot fail) for a mere bound.
    values = {column: Call("case", (constant, lower(column), NULL)) for column in columns}
    outcome = replace_columns(predicate, lambda column: values[column])

    def answer(here: Expr, elsewhere: Expr) -> Expr:
        typed = Literal(None, types.BOOLEAN) if elsewhere == NULL else elsewhere
        return Call("case", (constant, here, typed))

    answers = Answers(
        answer(Call("coalesce", (outcome, FALSE)), otherwise.may_be_true),
        answer(Call("coalesce", (not_(outcome), FALSE)), otherwise.may_be_false),
        answer(Call("is_null", (outcome,)), otherwise.may_be_null),
    )
    # If the predicate fails for the constant, so does the evaluation of these answers.
    return answers, FALSE if may_fail == FALSE else answer(FALSE, may_fail)


def _is_constant(column: Column) -> Expr:
    nulls = null_count(column)
    return any_of(
        all_of(Call("=", (nulls, ZERO)), Call("=", (lower(column), upper(column)))),
        all_of(Call("=", (nulls, ROW_COUNT)), Call("is_null", (lower(column),))),
    )


# --- Conjunctions that exclude NaN ------------------------------------------------------------------------------------
#
# `x >= 3 AND x <= 4`: NaN is above 3, so the first conjunct alone keeps every unit without a NaN count, and most
# writers do not count NaN. But the second conjunct bounds x from above, and NaN is above everything: for a row that
# satisfies both, x is not NaN. So *whether the first conjunct may be TRUE* is answered as if there were no NaN.


def find_columns_without_nan(parts: Sequence[Expr]) -> frozenset[Column]:
    """Return the float columns that are not NaN in any row that satisfies all parts of a conjunction."""
    return frozenset(column for part in parts if (column := _find_column_bounded_above(part)) is not None)


def _find_column_bounded_above(part: Expr) -> Column | None:
    match part:
        case Call("<" | "<=" | "=", (Column(type=data_type) as column, Literal(value=float() as value))):
            is_number = value == value or part.function == "<"
            return column if is_number and data_type is not None and pa.types.is_floating(data_type) else None
        case _:
            return None


def assume_no_nan(part: Expr, answers: Answers, columns: frozenset[Column]) -> Answers:
    """Return the answers for a part of a conjunction that is TRUE only if these columns are not NaN."""
    if _find_column_bounded_above(part) is not None:
        return answers
    match part:
        case Call(_, (Column() as column, *_)) | Call("not", (Call(_, (Column() as column, *_)),)) if column in columns:
            count = nan_count(column)
            may_be_true = transform(answers.may_be_true, lambda node: ZERO if node == count else node)
            return replace(answers, may_be_true=may_be_true)
        case _:
            return answers
