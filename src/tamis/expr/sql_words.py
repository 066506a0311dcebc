"""Expansion of shorthand syntax in queries: `TABLE t` for `SELECT * FROM t`, and `|` for `|>`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_OPERATORS = ("EXTEND", "SET", "DROP", "AGGREGATE")
_KEYWORDS = frozenset((
    TokenType.SELECT, TokenType.WHERE, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.JOIN,
    TokenType.INNER, TokenType.CROSS, TokenType.NATURAL, TokenType.FULL, TokenType.UNION, TokenType.EXCEPT,
    TokenType.INTERSECT, TokenType.ALIAS, TokenType.PIVOT, TokenType.UNPIVOT, TokenType.TABLE_SAMPLE,
    TokenType.SORT_BY, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY,
))  # fmt: skip


def expand_shorthand(tokens: Sequence[Token]) -> list[Token]:
    """Return the tokens of a query with shorthand syntax expanded.

    `TABLE t`, and `FROM t` or `VALUES …` at the start of a query, get a SELECT. A `|` before a pipe operator is `|>`.
    """
    found: list[Token] = []
    for index, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.ALL and _is_column_named_all(tokens, index):
            # A quoted name stays a name when it is printed.
            found.append(_replace_token(token, TokenType.IDENTIFIER, token.text))
            continue
        if kind is TokenType.PIPE and _is_pipe_operator(tokens, index):
            found.append(_replace_token(token, TokenType.PIPE_GT, "|>"))
            continue
        starts = kind in (TokenType.TABLE, TokenType.FROM, TokenType.VALUES) and _starts_query(tokens, index)
        if starts and _needs_select(tokens, index):
            found += [_replace_token(token, TokenType.SELECT, "SELECT"), _replace_token(token, TokenType.STAR, "*")]
            found.append(_replace_token(token, TokenType.FROM, "FROM"))
            if kind is TokenType.VALUES:
                found.append(token)
            continue
        found.append(token)
    return found


def _replace_token(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, line=token.line, col=token.col, start=token.start, end=token.end)


def _token_type_at(tokens: Sequence[Token], index: int) -> TokenType | None:
    return tokens[index].token_type if 0 <= index < len(tokens) else None


def _is_column_named_all(tokens: Sequence[Token], index: int) -> bool:
    """Return whether ALL after SELECT is a column: no columns follow to which the keyword ALL would apply."""
    ends = (TokenType.COMMA, TokenType.FROM, None)
    return _token_type_at(tokens, index - 1) is TokenType.SELECT and _token_type_at(tokens, index + 1) in ends


def _starts_query(tokens: Sequence[Token], index: int) -> bool:
    before = _token_type_at(tokens, index - 1)
    if before is None or before in _SET_OPERATIONS:
        return True
    if before in (TokenType.ALL, TokenType.DISTINCT):
        return _token_type_at(tokens, index - 2) in _SET_OPERATIONS
    if before is TokenType.R_PAREN:
        # The end of a WITH. A bracket before TABLE occurs only there, but FROM or VALUES often follow brackets.
        return tokens[0].token_type is TokenType.WITH and _follows_with_clause(tokens, index)
    return before is TokenType.L_PAREN and _token_type_at(tokens, index - 2) not in _NAMES


def _follows_with_clause(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the bracket before a token closes the last common table expression of a WITH."""
    depth = 0
    for start in range(index - 1, -1, -1):
        kind = tokens[start].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth == 0:
            if kind is TokenType.L_PAREN and _token_type_at(tokens, start - 1) is TokenType.ALIAS:
                before = tokens[start - 2].token_type if start > 1 else None
                return before in _NAMES or before is TokenType.R_PAREN
            return False
    return False


def _needs_select(tokens: Sequence[Token], index: int) -> bool:
    if tokens[index].token_type is TokenType.TABLE:
        return _token_type_at(tokens, index + 1) not in (TokenType.L_PAREN, TokenType.DOT, None)
    is_bracketed = _token_type_at(tokens, index - 1) is TokenType.L_PAREN
    depth = 0
    for token in tokens[index + 1 :]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth < 0 or (depth == 0 and token.token_type in _SET_OPERATIONS):
            break
        if depth == 0 and token.token_type is TokenType.PIPE_GT:
            return True
        if depth == 0 and token.token_type is TokenType.SELECT:
            return False  # FROM t SELECT x
    return tokens[index].token_type is TokenType.VALUES and not is_bracketed


def _is_pipe_operator(tokens: Sequence[Token], index: int) -> bool:
    """Return whether `|` starts a pipe operator and is not the bitwise OR."""
    after = _token_type_at(tokens, index + 1)
    if after in _KEYWORDS:
        return True
    if after is None or tokens[index + 1].text.upper() not in _OPERATORS:
        return False
    first = tokens[0].token_type
    pipes = (TokenType.PIPE, TokenType.PIPE_GT)
    selects = [start for start in range(index) if tokens[start].token_type is TokenType.SELECT]
    if first in (TokenType.TABLE, TokenType.FROM) and all(
        _token_type_at(tokens, start - 1) in pipes for start in selects
    ):
        return True
    following = _token_type_at(tokens, index + 2)
    if following in (TokenType.NUMBER, TokenType.STRING):
        return True
    return following in _NAMES and _token_type_at(tokens, index + 3) not in (
        None, TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.PIPE_GT, TokenType.PIPE,
    )  # fmt: skip
