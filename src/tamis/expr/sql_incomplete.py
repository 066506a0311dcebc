"""Errors for texts that are not queries, incomplete clauses and misspelt keywords.

The parser accepts `JOIN b ON` as a join without a condition, and `id form orders` as a column with an alias.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence

from sqlglot import Token, TokenType

from tamis.errors import ParseError, Position, find_lone_surrogate

_NEEDED_OPERANDS = {
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

_AFTER_LIST = frozenset((TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.ORDER_BY, TokenType.GROUP_BY))


def refuse_incomplete(tokens: Sequence[Token]) -> None:
    """Raise `ParseError` if the next clause or the end follows a keyword that needs an operand."""
    for index, token in enumerate(tokens):
        after = tokens[index + 1].token_type if index + 1 < len(tokens) else None
        if token.token_type is TokenType.COMMA and after in _AFTER_LIST:
            raise ParseError("nothing follows ','", position=token_position(token), hint="Leave it out")
        wanted = _NEEDED_OPERANDS.get(token.token_type)
        if wanted is None or (index and tokens[index - 1].token_type is TokenType.DOT):
            continue  # as in orders.from, which is a column
        if token.token_type is TokenType.DISTINCT and (not index or tokens[index - 1].token_type != TokenType.SELECT):
            continue  # as in IS DISTINCT FROM
        following = [each.token_type for each in tokens[index + 1 : index + 3]]
        is_empty_list = following == [TokenType.L_PAREN, TokenType.R_PAREN] and token.token_type is TokenType.USING
        if not following or following[0] in _NEXT_CLAUSE or is_empty_list:
            raise ParseError(
                f"nothing follows {token.text.upper()!r}",
                position=token_position(token),
                hint=f"{token.text.upper()} needs {wanted}",
            )


def token_position(token: Token) -> Position:
    # sqlglot records the column in which a token ends.
    return Position(token.start + 1, token.line, token.col - (token.end - token.start))


# --- Keywords ---------------------------------------------------------------------------------------------------------

_FIRST_TOKENS = frozenset(
    (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM, TokenType.L_PAREN, TokenType.TABLE)
)
_FIRST_WORDS = ("SELECT", "WITH", "VALUES")
_KEYWORDS = (
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

_ALTERNATIVES = {
    "SHOW": "c.tables lists the tables of a session",
    "DESCRIBE": "c.open(uri).schema tells the columns of a table",
    "DESC": "c.open(uri).schema tells the columns of a table",
    "EXPLAIN": "c.explain(query) tells how a query runs",
}


def refuse_other_statements(tokens: Sequence[Token]) -> None:
    """Raise `ParseError` if a text does not start like a query; the parser would only log a warning."""
    first = tokens[0]
    if first.token_type in _FIRST_TOKENS:
        return
    word = first.text.split()[0].upper() if first.text.strip() else first.text
    only = f"Only queries run here: {', '.join(_FIRST_WORDS)}"
    if first.token_type in (TokenType.VAR, TokenType.IDENTIFIER, TokenType.STRING, TokenType.NUMBER):
        keyword = _find_close_match(first.text, _FIRST_WORDS)
        hint = f"Did you mean {keyword}?" if keyword else f"{only}, as in SELECT * FROM orders"
        raise ParseError(f"a query cannot start with {first.text!r}", position=token_position(first), hint=hint)
    other = _ALTERNATIVES.get(word)
    raise ParseError(f"{word} is not a query", hint=f"{only}; {other}" if other else only)


def suggest_keyword(tokens: Sequence[Token], index: int) -> str | None:
    """Return a hint if the token at which the parser failed, or one next to it, is a misspelt keyword."""
    for token in tokens[max(index - 1, 0) : index + 2]:
        if token.token_type is not TokenType.VAR:
            continue
        if token.text.upper() == "TOP":
            return "There is no TOP: write LIMIT at the end"
        if token.text.upper() in ("GROUP", "ORDER"):
            return f"Write {token.text.upper()} BY"
        keyword = _find_close_match(token.text, _KEYWORDS)
        # `orders` starts with ORDER, but is a likely name of a table.
        if keyword is not None and not token.text.upper().startswith(keyword):
            return f"Did you mean {keyword}?"
    return None


def _find_close_match(word: str, words: Sequence[str]) -> str | None:
    return next(iter(difflib.get_close_matches(word.upper(), words, n=1, cutoff=0.7)), None)


def refuse_surrogates(text: str) -> None:
    """Raise `ParseError` if a text has a lone surrogate, which cannot be encoded as UTF-8."""
    found = find_lone_surrogate(text)
    if found is not None:
        line_start = text.rfind("\n", 0, found)
        raise ParseError(
            f"the character \\u{ord(text[found]):04x} is a lone surrogate, which is not valid Unicode",
            position=Position(found + 1, text.count("\n", 0, found) + 1, found - line_start),
            hint="Remove it, or decode the text with the encoding in which it was written",
        )
