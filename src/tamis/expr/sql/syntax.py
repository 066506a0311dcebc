"""SQL text to a sqlglot tree: Spark's syntax, errors with a position and a hint, and bounded work for hostile text.

sqlglot's parser is recursive, some twenty Python frames for each bracket. Text that nests deeper than a few brackets is
therefore parsed in a separate thread with a large stack, up to `MAX_NESTING` levels.
"""

from __future__ import annotations

import difflib
import re
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from typing import TypeVar

from sqlglot import Token, TokenType, exp
from sqlglot import errors as sqlglot_errors
from sqlglot.dialects.spark import Spark

from tamis.errors import ParseError, Position, find_lone_surrogate
from tamis.expr.names import CURLY_QUOTES
from tamis.expr.sql.dialect import SparkCalls, SparkText
from tamis.expr.sql.refusals import refuse_foreign_stars, refuse_foreign_tokens, refuse_unrepresentable_numbers

T = TypeVar("T")

MAX_NESTING = 20_000
"""The maximum nesting depth of brackets, NOT and CASE."""
MAX_LAMBDAS = 200
"""sqlglot walks the whole body of each lambda function, so nested ones cost the square of their number."""
MAX_TYPE_DEPTH = 50
"""The same holds for `ARRAY<ARRAY<…>>`."""

_SHALLOW = 16
_FRAMES_PER_LEVEL = 40
_STACK_PER_LEVEL = 24 * 1024
_MIN_STACK = 64 * 1024 * 1024


_DIALECT = SparkCalls()

_OPENING = frozenset({TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.CASE})
_CLOSING = frozenset({TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.END})
_END_OF_NOT = frozenset({TokenType.AND, TokenType.OR, TokenType.COMMA, TokenType.THEN, TokenType.ELSE, TokenType.WHEN})
_OPERANDS = frozenset({TokenType.VAR, TokenType.IDENTIFIER, TokenType.NUMBER, TokenType.STRING, TokenType.R_PAREN})
_OPERATORS = _END_OF_NOT | {TokenType.NOT, TokenType.IN, TokenType.LIKE, TokenType.IS, TokenType.BETWEEN, TokenType.END}
_SUSPECT = frozenset(
    {
        TokenType.SELECT,
        TokenType.SEMICOLON,
        TokenType.STRING,
        TokenType.PLACEHOLDER,
        TokenType.PARAMETER,
        TokenType.L_BRACE,
        TokenType.COLON,
    }
)
_PARAMETER = (
    "a parameter has no value here",
    "Put the value into the text, or build the filter with col('name') == value",
)
_DOUBLE_QUOTES = "Double quotes delimit a text in this dialect: write a name as `name`"


def parse_expression(text: str, convert: Callable[[exp.Expr], T]) -> T:
    """Parse one expression and convert its tree, both with a stack that is large enough."""
    tokens = _tokenize(text)
    depth = _measure_depth(tokens)
    _refuse_invalid_tokens(text, tokens, depth)
    refuse_foreign_tokens(tokens, partial(_locate, text))
    _mark_functions(tokens)
    return _run_with_stack(lambda: convert(_parse_condition(text, tokens)), depth)


def parse_statement(text: str, convert: Callable[[exp.Expr], T]) -> T:
    """Parse one statement of any kind and convert its tree, both with a stack that is large enough."""
    tokens = expand_shorthand(_tokenize(text))
    if not tokens:
        raise ParseError("the text is empty", position=1, hint="Write a query, such as SELECT * FROM orders")
    depth = _measure_depth(tokens)
    if depth > MAX_NESTING:
        raise _make_too_deep_error()
    refuse_other_statements(tokens)
    refuse_incomplete(tokens)
    position_at = partial(_locate, text)
    for refuse in (refuse_foreign_tokens, refuse_foreign_stars, refuse_unrepresentable_numbers):
        refuse(tokens, position_at)
    _mark_functions(tokens)
    return _run_with_stack(lambda: convert(_parse_statement(text, tokens)), depth)


def _run_with_stack(work: Callable[[], T], depth: int) -> T:
    if depth <= _SHALLOW:
        try:
            return work()
        except RecursionError:
            # Long chains of operators nest without brackets, and the caller's own stack may be deep.
            depth = MAX_NESTING
    return with_large_stack(work, depth)


_large_stack = threading.Lock()
_THREAD = "tamis-sql"


def with_large_stack(work: Callable[[], T], depth: int) -> T:
    """Run work that recurses over a text of this depth in a thread with a stack that is large enough."""
    if threading.current_thread().name.startswith(_THREAD):
        # This thread already has a large stack, and would wait for itself.
        return work()
    # Both limits are global to the process, so only one text is parsed with a large stack at a time.
    with _large_stack:
        frames_before = sys.getrecursionlimit()
        stack_before = threading.stack_size(_MIN_STACK + depth * _STACK_PER_LEVEL)
        try:
            sys.setrecursionlimit(max(frames_before, 10_000 + depth * _FRAMES_PER_LEVEL))
            with ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD) as pool:
                return pool.submit(work).result()
        except RecursionError:
            raise _make_too_deep_error() from None
        finally:
            threading.stack_size(stack_before)
            sys.setrecursionlimit(frames_before)


def retry_with_large_stack(work: Callable[[], T]) -> T:
    """Run work that may recurse over a deep tree: again with a large stack where the caller's stack is too small."""
    try:
        return work()
    except RecursionError:
        return with_large_stack(work, MAX_NESTING)


def to_sql_text(tree: exp.Expr) -> str:
    """Return a tree as text in Spark's dialect."""
    return retry_with_large_stack(lambda: str(tree.sql(SparkText, comments=False, normalize_functions=False)))


def _make_too_deep_error() -> ParseError:
    return ParseError(
        f"the text nests deeper than {MAX_NESTING} levels",
        hint="Write a long list of values with IN, and join conditions with AND or OR without brackets",
    )


def _tokenize(text: str) -> list[Token]:
    refuse_surrogates(text)
    try:
        return _DIALECT.tokenize(text)
    except sqlglot_errors.TokenError as error:
        raise _make_tokenize_error(text) from error


def _measure_depth(tokens: Sequence[Token]) -> int:
    """Return the nesting depth of the text: brackets and CASE, and the prefix operators before them."""
    deepest = depth = 0
    prefixes = 0
    outer: list[int] = []
    for token in tokens:
        kind = token.token_type
        if kind in _OPENING:
            outer.append(prefixes)
            depth += prefixes + 1
            prefixes = 0
        elif kind in _CLOSING:
            depth -= outer.pop() + 1 if outer else 0
            prefixes = 0
        elif kind in (TokenType.NOT, TokenType.DASH, TokenType.TILDE, TokenType.PLUS):
            prefixes += 1
        elif kind in _END_OF_NOT:
            prefixes = 0
        deepest = max(deepest, depth + prefixes)
    return deepest


def _refuse_invalid_tokens(text: str, tokens: Sequence[Token], depth: int) -> None:
    """Raise for text whose tokens already show that it is invalid."""
    if not tokens:
        raise ParseError("the text is empty", position=1, hint="Write a condition, such as amount > 5")
    if tokens[0].token_type is TokenType.WHERE:
        position = _locate(text, tokens[0].start)
        raise ParseError("unexpected WHERE", position=position, hint="Give the condition alone, without WHERE")
    if depth > MAX_NESTING:
        raise _make_too_deep_error()
    kinds = [token.token_type for token in tokens]
    for index, kind in enumerate(kinds):
        if kind is TokenType.NOT and index and _is_misspelt_not_equal(tokens[index - 1 : index + 2]):
            position = _locate(text, tokens[index - 1].start)
            raise ParseError("invalid operator '=!'", position=position, hint="Did you mean !=?")
        if kind in _SUSPECT and (found := _find_refusal(kinds, index)) is not None:
            message, hint = found
            start = tokens[index].start
            raise ParseError(
                message, position=_locate(text, start), hint=_DOUBLE_QUOTES if text[start] == '"' else hint
            )
    if kinds.count(TokenType.ARROW) > MAX_LAMBDAS:
        raise ParseError(f"the text has more than {MAX_LAMBDAS} lambda functions")
    nested_types = Spark.Parser.NESTED_TYPE_TOKENS
    nestings = sum(kind in nested_types and after is TokenType.LT for kind, after in pairwise(kinds))
    if nestings > MAX_TYPE_DEPTH:
        raise ParseError(f"the text has more than {MAX_TYPE_DEPTH} nested types")


def _is_misspelt_not_equal(tokens: Sequence[Token]) -> bool:
    """Return whether `=!` is a misspelt `!=`: `flag =!other` is a valid comparison with NOT other."""
    equals, negation, *after = tokens
    is_one_word = equals.token_type is TokenType.EQ and negation.text == "!" and negation.start == equals.end + 1
    return is_one_word and not (after and after[0].start == negation.end + 1 and after[0].token_type is TokenType.VAR)


def _find_refusal(kinds: Sequence[TokenType], index: int) -> tuple[str, str | None] | None:
    """Return a message and a hint if a filter cannot contain the token, or None."""
    before = kinds[index - 1] if index else None
    after = kinds[index + 1] if index + 1 < len(kinds) else None
    match kinds[index]:
        case TokenType.SELECT if before is not TokenType.DOT:
            hint = "Run it first and compare with its values. A column of that name is written `select`"
            return "a subquery cannot be part of a filter", hint
        case TokenType.SEMICOLON if after is not None:
            return "a filter is one expression, but another follows", "Join conditions with AND or OR"
        case TokenType.STRING if TokenType.DOT in (before, after):
            return "a text has no fields", None
        case TokenType.PLACEHOLDER | TokenType.PARAMETER | TokenType.L_BRACE:
            return _PARAMETER
        case TokenType.COLON if before not in _OPERANDS:
            return _PARAMETER
        case _:
            return None


def _mark_functions(tokens: Sequence[Token]) -> None:
    """Mark `decimal(x)` as a function: sqlglot parses it as a type first, and nested ones 2^n times."""
    kinds: list[TokenType | None] = [*(token.token_type for token in tokens), *[None] * 6]
    number, end = TokenType.NUMBER, TokenType.R_PAREN
    for index, token in enumerate(tokens):
        if kinds[index] is TokenType.WINDOW and kinds[index + 1] in (TokenType.L_PAREN, TokenType.DOT):
            # A named window of a query is followed by its name instead.
            token.token_type = TokenType.VAR
            continue
        if kinds[index + 1] is not TokenType.L_PAREN or kinds[index] not in Spark.Parser.TYPE_TOKENS:
            continue
        arguments = kinds[index + 2 : index + 6]
        is_type = arguments[:2] == [number, end] or arguments == [number, TokenType.COMMA, number, end]
        if not is_type and kinds[index] not in (TokenType.IDENTIFIER, TokenType.INTERVAL):
            token.token_type = TokenType.VAR


def _parse_condition(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = _DIALECT.parser().parse_into(exp.Condition, tokens, text)
    except sqlglot_errors.ParseError as error:
        raise _make_parse_error(text, tokens, error) from error
    tree = trees[0] if trees else None
    if tree is None:
        raise ParseError("the text has no expression", position=1, hint="Write a condition, such as amount > 5")
    return _mark_double_quotes(tree, text)


def _parse_statement(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = [tree for tree in _DIALECT.parser().parse(tokens, text) if tree is not None]
    except sqlglot_errors.ParseError as error:
        raise _make_parse_error(text, tokens, error, is_query=True) from error
    if len(trees) != 1:
        raise ParseError("the text has several statements", hint="Give one query at a time")
    return _mark_double_quotes(trees[0], text)


_IN_DOUBLE_QUOTES = "in_double_quotes"


def _mark_double_quotes(tree: exp.Expr, text: str) -> exp.Expr:
    """Mark the texts that were written in double quotes, which in other dialects delimit a name."""
    if '"' in text:
        for each in tree.find_all(exp.Literal):
            if each.is_string and text[each.meta.get("start", 0)] == '"':
                each.meta[_IN_DOUBLE_QUOTES] = True
    return tree


def is_in_double_quotes(node: exp.Expr) -> bool:
    """Return whether a node is a text that was written in double quotes."""
    return isinstance(node, exp.Literal) and _IN_DOUBLE_QUOTES in node.meta


# --- Errors ----------------------------------------------------------------------------------------------------------


def _locate(text: str, start: int) -> Position:
    return Position(start + 1, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


def _make_tokenize_error(text: str) -> ParseError:
    """Return the error for text that cannot be tokenized: an unclosed quote or comment, or invalid binary digits."""
    index = 0
    while index < len(text):
        character = text[index]
        if character in "'\"`":
            end = _find_closing_quote(text, index)
            if end is None:
                hint = "Double it if it is part of a text" if character != "`" else "Close the name with a back-tick"
                return ParseError(f"the quote {character} is never closed", position=_locate(text, index), hint=hint)
            if text[index - 1 : index] in ("x", "X") and re.fullmatch("[0-9a-fA-F]*", text[index + 1 : end]) is None:
                hint = "Write two hexadecimal digits for each byte, as in X'1F'"
                return ParseError(
                    f"{text[index - 1 : end + 1]} is not binary", position=_locate(text, index - 1), hint=hint
                )
            index = end
        elif text.startswith("--", index):
            index = text.find("\n", index) if "\n" in text[index:] else len(text)
        elif text.startswith("/*", index):
            end = text.find("*/", index + 2)
            if end < 0:
                return ParseError("the comment is never closed", position=_locate(text, index), hint="Close it with */")
            index = end + 1
        index += 1
    return ParseError("the text is not valid SQL", hint="Remove characters that SQL does not use")


def _find_closing_quote(text: str, start: int) -> int | None:
    """Return the index of the closing quote, or None. A doubled quote counts as an end and a new start."""
    quote = text[start]
    index = start + 1
    while index < len(text):
        if text[index] == "\\" and quote != "`":
            index += 1
        elif text[index] == quote:
            return index
        index += 1
    return None


def _make_parse_error(
    text: str, tokens: list[Token], error: sqlglot_errors.ParseError, *, is_query: bool = False
) -> ParseError:
    found = error.errors[0] if error.errors else {}
    description = str(found.get("description") or error)
    indices = [n for n, token in enumerate(tokens) if (token.line, token.col) == (found.get("line"), found.get("col"))]
    index = indices[0] if indices else len(tokens) - 1
    token, before = tokens[index], tokens[index - 1] if index else None
    position = _locate(text, token.start)
    unclosed = _find_unclosed(tokens)
    if unclosed is not None and ("Expecting )" in description or "Expected END" in description):
        closing = "END" if unclosed.token_type is TokenType.CASE else "]" if unclosed.text == "[" else ")"
        return ParseError(f"{unclosed.text} is never closed by {closing}", position=_locate(text, unclosed.start))
    if description.startswith("invalid interval"):
        return ParseError(description, position=position)
    guess = (suggest_keyword(tokens, index) if is_query else None) or _suggest_fix(
        text, tokens, index, is_query=is_query
    )
    if "Expected table name" in description:
        return ParseError(f"the name of a table is missing after {token.text!r}", position=position)
    if "Required keyword" in description or "required" in description.lower():
        message = f"an operand is missing next to {token.text!r}"
        is_count = token.token_type in (TokenType.LIMIT, TokenType.OFFSET)
        hint = guess or ("Write a number there" if is_count else "Write a value or a column there, as in amount > 5")
        return ParseError(message, position=position, hint=hint)
    if "Expected TYPE" in description:
        return ParseError(f"{token.text!r} is not a type", position=position, hint="Write CAST(x AS INT), for example")
    if "Unexpected token" in description:
        shown = token.text if token.token_type is not TokenType.STRING else text[token.start : token.end + 1]
        after = f" after {before.text!r}" if before is not None else ""
        return ParseError(f"unexpected {shown!r}{after}", position=position, hint=guess)
    plain = re.sub(r"\x1b\[[0-9;]*m|<class '[^']*'>", "", description).strip().rstrip(".")
    return ParseError(plain[:1].lower() + plain[1:], position=position, hint=guess)


def _find_unclosed(tokens: Sequence[Token]) -> Token | None:
    stack: list[Token] = []
    for token in tokens:
        if token.token_type in _OPENING:
            stack.append(token)
        elif token.token_type in _CLOSING and stack:
            stack.pop()
    return stack[-1] if stack else None


_FILTER_HINTS = {
    TokenType.COMMA: "A filter is one expression: join conditions with AND or OR",
    TokenType.ALIAS: "An expression in a filter has no alias",
}
_HINTS = {TokenType.DAMP: "Write AND", TokenType.COLON: "Write a field as a.b"}

_MISSPELLED = {"=!": "!=", "=<": "<=", "=>": ">=", "><": "<>", "=<>": "<>"}
"""Common misspellings of comparison operators, and the operators they mean."""


def _suggest_operator(tokens: Sequence[Token], index: int) -> str | None:
    """Return the comparison that a token and the next one, without a space between, may be a misspelling of."""
    token = tokens[index]
    after = tokens[index + 1] if index + 1 < len(tokens) else None
    if after is not None and after.start == token.end + 1 and token.text + after.text in _MISSPELLED:
        return _MISSPELLED[token.text + after.text]
    return _MISSPELLED.get(token.text)


def _suggest_fix(text: str, tokens: Sequence[Token], index: int, *, is_query: bool) -> str | None:
    token, before = tokens[index], tokens[index - 1] if index else None
    if operator := _suggest_operator(tokens, index) or (_suggest_operator(tokens, index - 1) if index else None):
        return f"Did you mean {operator}?"
    neighbours = [each for each in (before, token) if each is not None]
    if any(each.text.startswith(CURLY_QUOTES) or each.text.endswith(CURLY_QUOTES) for each in neighbours):
        return "Use straight quotes for a text, as in 'a'"
    if any(text[each.start : each.start + 1] == '"' for each in neighbours):
        return _DOUBLE_QUOTES
    if hint := _HINTS.get(token.token_type) or (None if is_query else _FILTER_HINTS.get(token.token_type)):
        return hint
    if token.token_type is TokenType.R_PAREN:
        return "There is no ( before it" if _find_unclosed(tokens[:index]) is None else None
    follows_operand = before is not None and before.token_type in _OPERANDS
    if token.token_type in _OPERANDS:
        missing = "a comma or an operator" if is_query else "an operator such as ="
        return f"Is {missing} missing between the two?" if follows_operand else None
    if not follows_operand and token.token_type not in _OPERATORS and re.fullmatch(r"\w+", token.text):
        return f"If it is the name of a column, write `{token.text}`"
    return None


# --- Expansion of shorthand syntax in queries: `TABLE t` for `SELECT * FROM t`, and `|` for `|>` ----------------------

_SET_OPERATIONS = (TokenType.UNION, TokenType.EXCEPT, TokenType.INTERSECT)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_WORD_OPERATORS = ("EXTEND", "SET", "DROP", "AGGREGATE")
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


def _get_token_type_at(tokens: Sequence[Token], index: int) -> TokenType | None:
    return tokens[index].token_type if 0 <= index < len(tokens) else None


def _is_column_named_all(tokens: Sequence[Token], index: int) -> bool:
    """Return whether ALL after SELECT is a column: no columns follow to which the keyword ALL would apply."""
    ends = (TokenType.COMMA, TokenType.FROM, None)
    return _get_token_type_at(tokens, index - 1) is TokenType.SELECT and _get_token_type_at(tokens, index + 1) in ends


def _starts_query(tokens: Sequence[Token], index: int) -> bool:
    before = _get_token_type_at(tokens, index - 1)
    if before is None or before in _SET_OPERATIONS:
        return True
    if before in (TokenType.ALL, TokenType.DISTINCT):
        return _get_token_type_at(tokens, index - 2) in _SET_OPERATIONS
    if before is TokenType.R_PAREN:
        # The end of a WITH. A bracket before TABLE occurs only there, but FROM or VALUES often follow brackets.
        return tokens[0].token_type is TokenType.WITH and _follows_with_clause(tokens, index)
    return before is TokenType.L_PAREN and _get_token_type_at(tokens, index - 2) not in _NAMES


def _follows_with_clause(tokens: Sequence[Token], index: int) -> bool:
    """Return whether the bracket before a token closes the last common table expression of a WITH."""
    depth = 0
    for start in range(index - 1, -1, -1):
        kind = tokens[start].token_type
        depth += (kind is TokenType.R_PAREN) - (kind is TokenType.L_PAREN)
        if depth == 0:
            if kind is TokenType.L_PAREN and _get_token_type_at(tokens, start - 1) is TokenType.ALIAS:
                before = tokens[start - 2].token_type if start > 1 else None
                return before in _NAMES or before is TokenType.R_PAREN
            return False
    return False


def _needs_select(tokens: Sequence[Token], index: int) -> bool:
    if tokens[index].token_type is TokenType.TABLE:
        return _get_token_type_at(tokens, index + 1) not in (TokenType.L_PAREN, TokenType.DOT, None)
    is_bracketed = _get_token_type_at(tokens, index - 1) is TokenType.L_PAREN
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
    after = _get_token_type_at(tokens, index + 1)
    if after in _KEYWORDS:
        return True
    if after is None or tokens[index + 1].text.upper() not in _WORD_OPERATORS:
        return False
    first = tokens[0].token_type
    pipes = (TokenType.PIPE, TokenType.PIPE_GT)
    selects = [start for start in range(index) if tokens[start].token_type is TokenType.SELECT]
    if first in (TokenType.TABLE, TokenType.FROM) and all(
        _get_token_type_at(tokens, start - 1) in pipes for start in selects
    ):
        return True
    following = _get_token_type_at(tokens, index + 2)
    if following in (TokenType.NUMBER, TokenType.STRING):
        return True
    return following in _NAMES and _get_token_type_at(tokens, index + 3) not in (
        None, TokenType.COMMA, TokenType.FROM, TokenType.R_PAREN, TokenType.PIPE_GT, TokenType.PIPE,
    )  # fmt: skip


# --- Errors for texts that are not queries, incomplete clauses and misspelt keywords ----------------------------------
#
# The parser accepts `JOIN b ON` as a join without a condition, and `id form orders` as a column with an alias.

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
            raise ParseError("nothing follows ','", position=get_token_position(token), hint="Leave it out")
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
                position=get_token_position(token),
                hint=f"{token.text.upper()} needs {wanted}",
            )


def get_token_position(token: Token) -> Position:
    # sqlglot records the column in which a token ends.
    return Position(token.start + 1, token.line, token.col - (token.end - token.start))


# --- Keywords ---------------------------------------------------------------------------------------------------------

_FIRST_TOKENS = frozenset(
    (TokenType.SELECT, TokenType.WITH, TokenType.VALUES, TokenType.FROM, TokenType.L_PAREN, TokenType.TABLE)
)
_FIRST_WORDS = ("SELECT", "WITH", "VALUES")
_CLAUSE_KEYWORDS = (
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
        raise ParseError(f"a query cannot start with {first.text!r}", position=get_token_position(first), hint=hint)
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
        keyword = _find_close_match(token.text, _CLAUSE_KEYWORDS)
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
