"""Clauses of a query that lack what they are about: the parser takes `JOIN b ON` for a join without a condition."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

from tamis.errors import ParseError

_NEEDS = {
    TokenType.SELECT: "columns",
    TokenType.DISTINCT: "columns",
    TokenType.ON: "a condition",
    TokenType.USING: "columns in brackets",
    TokenType.IN: "a list in brackets",
    TokenType.WHERE: "a condition",
    TokenType.HAVING: "a condition",
    TokenType.GROUP_BY: "columns",
    TokenType.ORDER_BY: "columns",
}

_NEXT_CLAUSE = frozenset((
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT,
    TokenType.JOIN, TokenType.UNION, TokenType.R_PAREN, TokenType.SEMICOLON,
))  # fmt: skip


def refuse_incomplete(tokens: Sequence[Token]) -> None:
    """A ParseError where something must follow a word, and the next clause or the end does."""
    for place, token in enumerate(tokens):
        wanted = _NEEDS.get(token.token_type)
        if wanted is None:
            continue
        if token.token_type is TokenType.DISTINCT and (not place or tokens[place - 1].token_type != TokenType.SELECT):
            continue  # as in IS DISTINCT FROM
        following = [each.token_type for each in tokens[place + 1 : place + 3]]
        is_empty_list = following == [TokenType.L_PAREN, TokenType.R_PAREN] and token.token_type is TokenType.USING
        if not following or following[0] in _NEXT_CLAUSE or is_empty_list:
            raise ParseError(
                f"nothing follows {token.text.upper()!r}",
                position=token.start + 1,
                hint=f"{token.text.upper()} needs {wanted}",
            )
