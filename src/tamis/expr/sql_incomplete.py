"""Texts that are no queries, and clauses that lack what they are about or are misspelt.

The parser takes `JOIN b ON` for a join without a condition, and `id form orders` for a column with an alias.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot import Token, TokenType

from tamis.errors import ParseError, Position, lone_surrogate

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
    TokenType.FROM: "a table",
    TokenType.JOIN: "a table",
}

_NEXT_CLAUSE = frozenset((
    TokenType.FROM, TokenType.WHERE, TokenType.GROUP_BY, TokenType.HAVING, TokenType.ORDER_BY, TokenType.LIMIT,
    TokenType.JOIN, TokenType.UNION, TokenType.R_PAREN, TokenType.SEMICOLON,
))  # fmt: skip

_NO_ITEM = frozenset((TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.ORDER_BY, TokenType.GROUP_BY))


def refuse_incomplete(tokens: Sequence[Token]) -> None:
    """A ParseError where something must follow a word, and the next clause or the end does."""
    for place, token in enumerate(tokens):
        after = tokens[place + 1].token_type if place + 1 < len(tokens) else None
        if token.token_type is TokenType.COMMA and after in _NO_ITEM:
            raise ParseError("nothing follows ','", position=place_of_token(token), hint="Leave it out")
        wanted = _NEEDS.get(token.token_type)
        if wanted is None or (place and tokens[place - 1].token_type is TokenType.DOT):
            continue  # as in orders.from, which is a column
        if token.token_type is TokenType.DISTINCT and (not place or tokens[place - 1].token_type != TokenType.SELECT):
            continue  # as in IS DISTINCT FROM
        following = [each.token_type for each in tokens[place + 1 : place + 3]]
        is_empty_list = following == [TokenType.L_PAREN, TokenType.R_PAREN] and token.token_type is TokenType.USING
        if not following or following[0] in _NEXT_CLAUSE or is_empty_list:
            raise ParseError(
                f"nothing follows {token.text.upper()!r}",
                position=place_of_token(token),
                hint=f"{token.text.upper()} needs {wanted}",
            )


def place_of_token(token: Token) -> Position:
    # sqlglot tells the column in which a word ends.
    return Position(token.start + 1, token.line, token.col - (token.end - token.start))


# --- Words ------------------------------------------------------------------------------------------------------------

_FIRST = frozenset(
    (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM, TokenType.L_PAREN, TokenType.TABLE)
)
_FIRST_WORDS = ("SELECT", "WITH", "VALUES")
_WORDS = (
    *_FIRST_WORDS,
    "FROM",
    "WHERE",
    "GROUP",
    "ORDER",
    "HAVING",
    "LIMIT",
    "JOIN",
    "UNION",
    "INNER",
    "LEFT",
    "RIGHT",
)

_OTHER_WAYS = {
    "SHOW": "c.tables lists the tables of a session",
    "DESCRIBE": "c.open(uri).schema tells the columns of a table",
    "DESC": "c.open(uri).schema tells the columns of a table",
    "EXPLAIN": "c.explain(query) tells what becomes of one",
}


def refuse_no_query(tokens: Sequence[Token]) -> None:
    """A ParseError where a text does not begin as queries do; the parser would warn of it, and not say what it is."""
    first = tokens[0]
    if first.token_type in _FIRST:
        return
    word = first.text.split()[0].upper() if first.text.strip() else first.text
    only = f"Only queries run here: {', '.join(_FIRST_WORDS)}"
    if first.token_type in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER):
        meant = _near(first.text, _FIRST_WORDS)
        hint = f"Did you mean {meant}?" if meant else f"{only}, as in SELECT * FROM orders"
        raise ParseError(f"{first.text!r} begins no query", position=place_of_token(first), hint=hint)
    other = _OTHER_WAYS.get(word)
    raise ParseError(f"{word} is not a query", hint=f"{only}; {other}" if other else only)


def misspelt_word(tokens: Sequence[Token], place: int) -> str | None:
    """What a word at a place where the parser stumbled, or right before it, was meant to be."""
    for token in tokens[max(place - 1, 0) : place + 2]:
        if token.token_type is not TokenType.VAR:
            continue
        if token.text.upper() == "TOP":
            return "There is no TOP: write LIMIT at the end"
        if token.text.upper() in ("GROUP", "ORDER"):
            return f"Write {token.text.upper()} BY"
        meant = _near(token.text, _WORDS)
        # As orders does with ORDER, whose name is a good one for a table.
        if meant is not None and not token.text.upper().startswith(meant):
            return f"Did you mean {meant}?"
    return None


def _near(word: str, words: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word.upper(), words, n=1, cutoff=0.7)), None)


def refuse_surrogates(text: str) -> None:
    """Raise `ParseError` where a text has half of a surrogate pair, which no engine and no file can hold."""
    found = lone_surrogate(text)
    if found is not None:
        line_start = text.rfind("\n", 0, found)
        raise ParseError(
            f"the character \\u{ord(text[found]):04x} is half of a surrogate pair, which is not valid Unicode",
            position=Position(found + 1, text.count("\n", 0, found) + 1, found - line_start),
            hint="Remove it, or decode the text anew with the encoding that it was written in",
        )
