"""Questions about the values of one column, for Bloom filters and dictionaries, which answer more than bounds.

Bounds answer a predicate atom by atom. A dictionary has the *set* of a column's values in a unit and can answer any
predicate on that column; a Bloom filter can prove that given values are not in the set. Both answer the same questions.
A question is a sub-predicate on one column, and its answers are three more metadata columns, about the rows in which
the column is not NULL:

| column    | meaning                                            | by a dictionary | by a Bloom filter               |
|-----------|----------------------------------------------------|-----------------|---------------------------------|
| `true:2`  | question 2 may be TRUE for some value              | TRUE or FALSE   | FALSE if no item is present     |
| `false:2` | it may be FALSE for some value                     | TRUE or FALSE   |                                 |
| `null:2`  | it may be NULL, as `3 IN (1, NULL)` is             | TRUE or FALSE   |                                 |

A null, or a missing column, means unknown. For rows in which the column is NULL, a question has one constant value, and
`null_count` says whether it occurs. The answers of the question and those from bounds both hold, and their conjunction
propagates through AND, OR and NOT like any answer:

    x = 5 OR y = 6     is skipped if both `true:0` and `true:1` are FALSE, or one of them and the other's bounds
    NOT (x = 5)        gains nothing from `true:0`

Questions are the largest sub-predicates on one column, the equalities and IN lists within them, and the combination of
several parts of an AND (or an OR) on one column: that neither 1 nor 9 satisfies `x > 3 AND x < 8` follows from no part
alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress, islice

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import EvaluationError
from tamis.expr.evaluate import can_evaluate, evaluate_constant
from tamis.expr.functions.kernels import to_arrow_array
from tamis.expr.functions.table import find_pattern, type_of
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Column, Expr, Literal, fold, not_, split_conjuncts, transform
from tamis.skipping.answers import Answers, all_of, any_of
from tamis.skipping.handler import ARROW, CompiledPredicates, ExpressionHandler
from tamis.skipping.metadata import null_count
from tamis.skipping.rewrite import Conjunct, rewrite

_ZERO = Literal(0, types.LONG)


@dataclass(frozen=True)
class Question:
    """A predicate on one column, to be evaluated for the set of that column's values in a unit."""

    number: int
    predicate: Expr
    column: Column
    items: tuple[Literal, ...] | None
    """The values that make the predicate TRUE; None if it is not an equality or IN list."""
    at_null: Literal
    """The value of the predicate for a NULL column."""
    _compiled: CompiledPredicates = field(init=False, default_factory=CompiledPredicates, compare=False, repr=False)

    @property
    def true_name(self) -> str:
        return self.names[0]

    @property
    def names(self) -> tuple[str, str, str]:
        return f"true:{self.number}", f"false:{self.number}", f"null:{self.number}"

    @property
    def values(self) -> pa.Array:
        """The items as one array of the column's type."""
        assert self.items is not None
        assert self.column.type is not None
        values = to_arrow_array(self.items)
        if pa.types.is_timestamp(values.type):
            return values.view(self.column.type)
        return values.cast(self.column.type) if pa.types.is_float16(self.column.type) else values

    @property
    def answers(self) -> Answers:
        """The three answers as expressions over the question's metadata columns."""
        has_nulls = Call(">", (null_count(self.column), _ZERO))
        pairs = zip(self.names, (True, False, None), strict=True)
        columns = ((Column((name,), type=types.BOOLEAN), self.at_null.value is value) for name, value in pairs)
        return Answers(*(any_of(column, has_nulls if holds_at_null else FALSE) for column, holds_at_null in columns))

    @cached_property
    def _of_value(self) -> Expr:
        """The predicate over a batch with the column `value`."""
        given = Column(("value",), type=self.column.type)
        return transform(self.predicate, lambda node: given if node == self.column else node)

    @cached_property
    def _false_of_value(self) -> Expr:
        return not_(self._of_value)

    def evaluate_values(self, values: pa.Array, handler: ExpressionHandler = ARROW) -> tuple[bool, bool, bool] | None:
        """Return whether the predicate is TRUE, FALSE or NULL for some of the values, which have the column's type.

        None if the evaluation fails for a value, because that value may be in no row.
        """
        batch = pa.record_batch({"value": values.drop_null()})
        count = batch.num_rows
        try:
            true = self._compiled.evaluate(self._of_value, batch, handler).true_count
            # Without nulls, what is not TRUE is FALSE, unless a list has a NULL.
            false = self._compiled.evaluate(self._false_of_value, batch, handler).true_count if true < count else 0
        except EvaluationError:
            return None
        return true > 0, false > 0, true + false < count


@dataclass(frozen=True)
class QuestionedPredicate:
    """The conjuncts of a predicate, extended by questions; one for each conjunct of `rewrite`, in the same order.

    Without answers, each is equivalent to the conjunct of `rewrite`.
    """

    conjuncts: tuple[Conjunct, ...]
    questions: tuple[Question, ...]

    def select(self, is_chosen: Sequence[bool]) -> QuestionedPredicate:
        """Return some of the conjuncts with their questions, which may be about other conjuncts too."""
        numbers = {question.number for asked in compress(self.asked, is_chosen) for question in asked}
        return QuestionedPredicate(
            tuple(compress(self.conjuncts, is_chosen)),
            tuple(question for question in self.questions if question.number in numbers),
        )

    @cached_property
    def asked(self) -> tuple[tuple[Question, ...], ...]:
        """The questions of each conjunct."""
        by_name = {question.true_name: question for question in self.questions}
        return tuple(
            tuple(sorted((by_name[name] for name in each.metadata_names & by_name.keys()), key=lambda one: one.number))
            for each in self.conjuncts
        )


def collect_questions(predicate: Expr) -> QuestionedPredicate:
    """Rewrite a normalised predicate, extended by its questions."""
    asked = _QuestionCollector(predicate)
    parts = [part for part in split_conjuncts(predicate) if part != TRUE]
    for part in parts:
        asked.find(part)
    combine = asked.combine("and", parts)
    conjuncts = []
    for conjunct in rewrite(predicate, asked.refine):
        # All conjuncts hold for every row of the result, so those on one column can be combined.
        joint = [question for group, question in combine if conjunct.predicate in group]
        may_be_true = all_of(conjunct.may_be_true, *(question.answers.may_be_true for question in joint))
        conjuncts.append(replace(conjunct, may_be_true=may_be_true))
    return QuestionedPredicate(tuple(conjuncts), tuple(asked.numbered))


def find_skippable_units(
    units: pa.RecordBatch,
    conjunct: Conjunct,
    names: Iterable[str],
    certain: Mapping[str, pa.BooleanArray] | None = None,
    handler: ExpressionHandler = ARROW,
) -> pa.BooleanArray:
    """Return the units that a conjunct would skip if all answers with these names were FALSE.

    No other answers skip more (see `tamis.skipping.rewrite`), so the other units need no answers. `certain` has those
    that are known to be TRUE for some units.
    """
    best = pa.repeat(pa.scalar(False), units.num_rows)
    known = {name: units.column(name) for name in units.schema.names}
    try:
        answered = pa.record_batch(known | dict.fromkeys(names, best) | dict(certain or {}))
        kept = conjunct.evaluate(conjunct.keeps, answered, handler)
    except EvaluationError:
        return best
    return pc.invert(kept)


class _QuestionCollector:
    """The questions found so far, deduplicated by predicate."""

    def __init__(self, predicate: Expr) -> None:
        self.numbered: list[Question] = []
        self._by_predicate: dict[Expr, Question | None] = {}
        self._joint: dict[Expr, list[Question]] = {}
        self._columns: dict[Expr, Column | None] = {}
        fold(predicate, self._record_column)

    def _record_column(self, node: Expr, args: tuple[frozenset[Column], ...]) -> frozenset[Column]:
        # Two columns mean "several", and sets of at most two columns keep the cost constant from leaves to root.
        found = frozenset((node,)) if isinstance(node, Column) else frozenset(islice(set().union(*args), 2))
        self._columns[node] = next(iter(found)) if len(found) == 1 else None
        return found

    def find(self, predicate: Expr) -> None:
        """Collect the largest parts with one column, the equalities within them, and combinations of parts."""
        # Within a part that is a question, only equalities are collected.
        stack: list[tuple[Expr, bool]] = [(predicate, False)]
        seen: set[int] = set()
        while stack:
            node, inside = stack.pop()
            if id(node) in seen or not isinstance(node, Call):
                continue
            seen.add(id(node))
            if not inside or _find_items(node) is not None:
                inside = self._get_question(node, self._columns[node]) is not None or inside
            if node.function not in ("and", "or", "not"):
                continue
            if not inside and node.function != "not":
                self._joint[node] = [question for _, question in self.combine(node.function, node.args)]
            stack.extend((arg, inside) for arg in reversed(node.args))

    def combine(self, junction: str, parts: Sequence[Expr]) -> list[tuple[frozenset[Expr], Question]]:
        """Combine the parts of an AND or OR that are on one column: return the parts, and their question."""
        by_column: dict[Column, list[Expr]] = {}
        for part in parts:
            question = self._get_question(part, self._columns[part])
            if question is not None:
                by_column.setdefault(question.column, []).append(part)
        found = []
        for column, group in by_column.items():
            question = self._get_question(Call(junction, tuple(group)), column) if len(group) > 1 else None
            if question is not None:
                found.append((frozenset(group), question))
        return found

    def refine(self, node: Expr, answers: Answers) -> Answers:
        """Return the answers for a node, combined with those of its questions."""
        if not isinstance(node, Call):
            return answers
        for question in self._joint.get(node, ()):
            # Whether a conjunction may be FALSE, or a disjunction TRUE, depends on the parts alone.
            if node.function == "and":
                answers = replace(answers, may_be_true=all_of(answers.may_be_true, question.answers.may_be_true))
            else:
                answers = replace(answers, may_be_false=all_of(answers.may_be_false, question.answers.may_be_false))
        asked = self._by_predicate.get(node)
        if asked is None:
            return answers
        found = asked.answers
        return Answers(
            all_of(answers.may_be_true, found.may_be_true),
            all_of(answers.may_be_false, found.may_be_false),
            all_of(answers.may_be_null, found.may_be_null),
        )

    def _get_question(self, predicate: Expr, column: Column | None) -> Question | None:
        if predicate not in self._by_predicate:
            question = None if column is None else _make_question(len(self.numbered), predicate, column)
            self._by_predicate[predicate] = question
            if question is not None:
                self.numbered.append(question)
        return self._by_predicate[predicate]


def _make_question(number: int, predicate: Expr, column: Column) -> Question | None:
    """Return a question for a predicate on one column; None if it is not boolean or cannot be evaluated."""
    if not isinstance(predicate, Call) or type_of(predicate) != types.BOOLEAN or not can_evaluate(predicate):
        return None
    if column.type is None:
        return None
    items = _find_items(predicate)
    if items is not None:
        return Question(number, predicate, column, items, FALSE if predicate.function == "<=>" else NULL)
    null = Literal(None, column.type)
    try:
        at_null = evaluate_constant(transform(predicate, lambda node: null if node == column else node))
    except EvaluationError:
        return None
    return Question(number, predicate, column, None, at_null)


def _find_items(predicate: Expr) -> tuple[Literal, ...] | None:
    match predicate:
        case Call("=" | "<=>", (Column(), Literal() as item)) if not item.is_null:
            return (item,)
        case Call("in", (Column(), *items)) if all(isinstance(item, Literal) for item in items):
            return tuple(item for item in items if isinstance(item, Literal) and not item.is_null)
        case Call(_, (Column(), *_)) if (pattern := find_pattern(predicate)) is not None and pattern.is_exact:
            return (Literal(pattern.prefix, types.STRING),)
        case _:
            return None
