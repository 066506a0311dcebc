"""The three answers about a predicate, their algebra, and self-simplifying expressions over metadata."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Expr, Literal


@dataclass(frozen=True, slots=True)
class Answers:
    """Whether a predicate may be TRUE, FALSE or NULL for some row of a unit, as expressions over its metadata."""

    may_be_true: Expr
    may_be_false: Expr
    may_be_null: Expr

    def invert(self) -> Answers:
        return Answers(self.may_be_false, self.may_be_true, self.may_be_null)

    @staticmethod
    def conjunction(parts: Sequence[Answers]) -> Answers:
        # A conjunction is NULL for a row if some part is NULL and no part is FALSE. The metadata of single parts can
        # only show that some part may be NULL, and that each part may be something else than FALSE.
        return Answers(
            all_of(*(part.may_be_true for part in parts)),
            any_of(*(part.may_be_false for part in parts)),
            all_of(
                any_of(*(part.may_be_null for part in parts)),
                *(any_of(part.may_be_true, part.may_be_null) for part in parts),
            ),
        )

    @staticmethod
    def disjunction(parts: Sequence[Answers]) -> Answers:
        return Answers.conjunction([part.invert() for part in parts]).invert()


UNKNOWN = Answers(NULL, NULL, NULL)


def all_of(*parts: Expr) -> Expr:
    """Return Kleene's AND. FALSE absorbs, TRUE is neutral, NULL stays: another part may still be FALSE."""
    return _combine("and", FALSE, TRUE, parts)


def any_of(*parts: Expr) -> Expr:
    """Return Kleene's OR."""
    return _combine("or", TRUE, FALSE, parts)


def _combine(function: str, absorbing: Literal, neutral: Literal, parts: tuple[Expr, ...]) -> Expr:
    flat: dict[Expr, None] = {}
    for part in parts:
        for operand in part.args if isinstance(part, Call) and part.function == function else (part,):
            if isinstance(operand, Literal):  # comparing a whole call with a constant costs more
                if operand == absorbing:
                    return absorbing
                if operand == neutral:
                    continue
            flat[operand] = None
    match list(flat):
        case []:
            return neutral
        case [only]:
            return only
        case operands:
            return Call(function, tuple(operands))
