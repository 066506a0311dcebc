"""The three answers about a predicate, their algebra, and expressions over metadata that simplify themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tamis.expr.functions import NEGATIONS
from tamis.expr.nodes import FALSE, NULL, TRUE, Call, Expr, Literal, not_


@dataclass(frozen=True, slots=True)
class Answers:
    """May a predicate be TRUE, FALSE, NULL for some row of a unit? Each an expression over the unit's metadata."""

    may_be_true: Expr
    may_be_false: Expr
    may_be_null: Expr

    def negated(self) -> Answers:
        return Answers(self.may_be_false, self.may_be_true, self.may_be_null)

    @staticmethod
    def conjunction(parts: Sequence[Answers]) -> Answers:
        # A conjunction is NULL for a row where some part is NULL and no part is FALSE. That some part may be NULL and
        # each part may be something else than FALSE is the most that metadata of single parts can say.
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
        return Answers.conjunction([part.negated() for part in parts]).negated()


UNKNOWN = Answers(NULL, NULL, NULL)


def all_of(*parts: Expr) -> Expr:
    """Kleene's and. FALSE decides, TRUE is nothing, NULL stays: the rest may still turn out FALSE."""
    return _junction("and", FALSE, TRUE, parts)


def any_of(*parts: Expr) -> Expr:
    """Kleene's or."""
    return _junction("or", TRUE, FALSE, parts)


def _junction(function: str, absorbing: Literal, neutral: Literal, parts: tuple[Expr, ...]) -> Expr:
    flat: dict[Expr, None] = {}
    for part in parts:
        for piece in part.args if isinstance(part, Call) and part.function == function else (part,):
            if isinstance(piece, Literal):  # to compare a whole call with a constant costs more
                if piece == absorbing:
                    return absorbing
                if piece == neutral:
                    continue
            flat[piece] = None
    match list(flat):
        case []:
            return neutral
        case [only]:
            return only
        case pieces:
            return Call(function, tuple(pieces))


def negate(expr: Expr) -> Expr:
    match expr:
        case Call(function, args) if function in NEGATIONS:
            return Call(NEGATIONS[function], args)
        case _ if expr == TRUE:
            return FALSE
        case _ if expr == FALSE:
            return TRUE
        case _ if expr == NULL:
            return NULL
        case _:
            return not_(expr)
