"""Words of a query that stand for others: `TABLE t` for `SELECT * FROM t`, and `|` for `|>`."""

from __future__ import annotations

from collections.abc import Sequence

from sqlglot import Token, TokenType

_SET_WORDS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_OPERATORS = ("EXTEND", "SET", "DROP", "AGGREGATE")
_KEYWORDS = frozenset((
    TokenType.SELECT, TokenType.WHERE, TokenType.ORDER_BY, TokenType.LIMIT, TokenType.OFFSET, TokenType.JOIN,
    TokenType.INNER, TokenType.CROSS, TokenType.NATURAL, TokenType.FULL, TokenType.UNION, TokenType.EXCEPT,
    TokenType.INTERSECT, TokenType.ALIAS, TokenType.PIVOT, TokenType.UNPIVOT, TokenType.TABLE_SAMPLE,
    TokenType.SORT_BY, TokenType.CLUSTER_BY, TokenType.DISTRIBUTE_BY,
))  # fmt: skip


def spell_out(tokens: Sequence[Token]) -> list[Token]:
    """The words of a query in which `TABLE t`, and `FROM t` or `VALUES …` where a query begins, have a SELECT, and in
    which a `|` that begins an operator is `|>`."""
    found: list[Token] = []
    for index, token in enumerate(tokens):
        kind = token.token_type
        if kind is TokenType.ALL and _is_column(tokens, index):
            # A name between back-ticks stays one when it is printed.
            found.append(_like(token, TokenType.IDENTIFIER, token.text))
            continue
        if kind is TokenType.PIPE and _is_pipe(tokens, index):
            found.append(_like(token, TokenType.PIPE_GT, "|>"))
            continue
        starts = kind in (TokenType.TABLE, TokenType.FROM, TokenType.VALUES) and _begins_query(tokens, index)
        if starts and _needs_select(tokens, index):
            found += [_like(token, TokenType.SELECT, "SELECT"), _like(token, TokenType.STAR, "*")]
            found.append(_like(token, TokenType.FROM, "FROM"))
            if kind is TokenType.VALUES:
                found.append(token)
            continue
        found.append(token)
    return found


def _like(token: Token, kind: TokenType, text: str) -> Token:
    return Token(kind, text, line=token.line, col=token.col, start=token.start, end=token.end)


def _kind(tokens: Sequence[Token], index: int) -> TokenType | None:
    return tokens[index].token_type if 0 <= index < len(tokens) else None


def _is_column(tokens: Sequence[Token], index: int) -> bool:
    """Whether ALL after SELECT is a column: nothing of what it would be said about follows."""
    ends = (TokenType.COMMA, TokenType.FROM, None)
    return _kind(tokens, index - 1) is TokenType.SELECT and _kind(tokens, index + 1) in ends


def _begins_query(tokens: Sequence[Token], index: int) -> bool:
    before = _kind(tokens, index - 1)
    if before is None or before in _SET_WORDS:
        return True
    if before in (TokenType.ALL, TokenType.DISTINCT):
        return _kind(tokens, index - 2) in _SET_WORDS
    if before is TokenType.R_PAREN:
        # The end of a WITH: nothing else has a bracket before TABLE, and FROM or VALUES follow brackets often.
        return tokens[0].token_type is TokenType.WITH and _ends_with(tokens, index)
    return before is TokenType.L_PAREN and _kind(tokens, index - 2) not in _NAMES


def _ends_with(tokens: Sequence[Token], index: int) -> bool:
    """Whether the bracket before a word closes the last common table expression of a WITH."""
    depth = 0
    for place in range(index - 1, -1, -1):
        kind = tokens[place].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth == 0:
            if kind is TokenType.L_PAREN and _kind(tokens, place - 1) is TokenType.ALIAS:
                before = tokens[place - 2].token_type if place > 1 else None
                return before in _NAMES or before is TokenType.R_PAREN
            return False
    return False


def _needs_select(tokens: Sequence[Token], index: int) -> bool:
    if tokens[index].token_type is TokenType.TABLE:
        return _kind(tokens, index + 1) not in (TokenType.L_PAREN, TokenType.DOT, None)
    is_bracketed = _kind(tokens, index - 1) is TokenType.L_PAREN
    depth = 0
    for token in tokens[index + 1 :]:
        depth += (token.token_type is TokenType.L_PAREN) - (token.token_type is TokenType.R_PAREN)
        if depth < 0 or (depth == 0 and token.token_type in _SET_WORDS):
            break
        if depth == 0 and token.token_type is TokenType.PIPE_GT:
            return True
        if depth == 0 and token.token_type is TokenType.SELECT:
            return False  # FROM t SELECT x
    return tokens[index].token_type is TokenType.VALUES and not is_bracketed


def _is_pipe(tokens: Sequence[Token], index: int) -> bool:
    """Whether `|` begins an operator rather than being one of numbers."""
    after = _kind(tokens, index + 1)
    if after in _KEYWORDS:
        return True
    if after is None or tokens[index + 1].text.upper() not in _OPERATORS:
        return False
    first = tokens[0].token_type
    pipes = (TokenType.PIPE, TokenType.PIPE_GT)
    selects = [place for place in range(index) if tokens[place].token_type is TokenType.SELECT]
    if first in (TokenType.TABLE, TokenType.FROM) and all(_kind(tokens, place - 1) in pipes for place in selects):
        return True
    following = _kind(tokens, index + 2)
    if following in (TokenType.NUMBER, TokenType.STRING):
        return True
    return following in _NAMES and _kind(tokens, index + 3) not in (
        None, TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.PIPE_GT, TokenType.PIPE,
    )  # fmt: skip
