"""SQL text to a sqlglot tree: Spark's syntax, errors with a position and a hint, and bounded work for hostile text.

sqlglot's parser is recursive, some twenty Python frames for each bracket. Text that nests deeper than a few brackets
is therefore parsed in a separate thread with a large stack, up to `DEEPEST` levels.
"""

from __future__ import annotations

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

from tamis.errors import ParseError, Position
from tamis.expr.sql_dialect import SparkCalls
from tamis.expr.sql_foreign import refuse_foreign_stars, refuse_foreign_tokens, refuse_unrepresentable_numbers
from tamis.expr.sql_incomplete import refuse_incomplete, refuse_other_statements, refuse_surrogates, suggest_keyword
from tamis.expr.sql_words import expand_shorthand

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
    refuse_foreign_tokens(tokens, partial(_position, text))
    _mark_functions(tokens)
    return _run_with_stack(lambda: convert(_parse_condition(text, tokens)), depth)


def parse_statement(text: str, convert: Callable[[exp.Expr], T]) -> T:
    """Parse one statement of any kind and convert its tree, both with a stack that is large enough."""
    tokens = expand_shorthand(_tokenize(text))
    if not tokens:
        raise ParseError("the text is empty", position=1, hint="Write a query, such as SELECT * FROM orders")
    depth = _measure_depth(tokens)
    if depth > MAX_NESTING:
        raise _too_deep_error()
    refuse_other_statements(tokens)
    refuse_incomplete(tokens)
    position_at = partial(_position, text)
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
            raise _too_deep_error() from None
        finally:
            threading.stack_size(stack_before)
            sys.setrecursionlimit(frames_before)


def _too_deep_error() -> ParseError:
    return ParseError(
        f"the text nests deeper than {MAX_NESTING} levels",
        hint="Write a long list of values with IN, and join conditions with AND or OR without brackets",
    )


def _tokenize(text: str) -> list[Token]:
    refuse_surrogates(text)
    try:
        return _DIALECT.tokenize(text)
    except sqlglot_errors.TokenError as error:
        raise _tokenize_error(text) from error


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
        position = _position(text, tokens[0].start)
        raise ParseError("unexpected WHERE", position=position, hint="Give the condition alone, without WHERE")
    if depth > MAX_NESTING:
        raise _too_deep_error()
    kinds = [token.token_type for token in tokens]
    for index, kind in enumerate(kinds):
        if kind is TokenType.NOT and index and _is_misspelt_not_equal(tokens[index - 1 : index + 2]):
            position = _position(text, tokens[index - 1].start)
            raise ParseError("invalid operator '=!'", position=position, hint="Did you mean !=?")
        if kind in _SUSPECT and (found := _find_refusal(kinds, index)) is not None:
            message, hint = found
            start = tokens[index].start
            raise ParseError(
                message, position=_position(text, start), hint=_DOUBLE_QUOTES if text[start] == '"' else hint
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
        raise _parse_error(text, tokens, error) from error
    tree = trees[0] if trees else None
    if tree is None:
        raise ParseError("the text has no expression", position=1, hint="Write a condition, such as amount > 5")
    return tree


def _parse_statement(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = [tree for tree in _DIALECT.parser().parse(tokens, text) if tree is not None]
    except sqlglot_errors.ParseError as error:
        raise _parse_error(text, tokens, error, is_query=True) from error
    if len(trees) != 1:
        raise ParseError("the text has several statements", hint="Give one query at a time")
    return trees[0]


# --- Errors ----------------------------------------------------------------------------------------------------------


def _position(text: str, start: int) -> Position:
    return Position(start + 1, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


def _tokenize_error(text: str) -> ParseError:
    """Return the error for text that cannot be tokenized: an unclosed quote or comment, or invalid binary digits."""
    index = 0
    while index < len(text):
        character = text[index]
        if character in "'\"`":
            end = _find_closing_quote(text, index)
            if end is None:
                hint = "Double it if it is part of a text" if character != "`" else "Close the name with a back-tick"
                return ParseError(f"the quote {character} is never closed", position=_position(text, index), hint=hint)
            if text[index - 1 : index] in ("x", "X") and re.fullmatch("[0-9a-fA-F]*", text[index + 1 : end]) is None:
                hint = "Write two hexadecimal digits for each byte, as in X'1F'"
                return ParseError(
                    f"{text[index - 1 : end + 1]} is not binary", position=_position(text, index - 1), hint=hint
                )
            index = end
        elif text.startswith("--", index):
            index = text.find("\n", index) if "\n" in text[index:] else len(text)
        elif text.startswith("/*", index):
            end = text.find("*/", index + 2)
            if end < 0:
                return ParseError(
                    "the comment is never closed", position=_position(text, index), hint="Close it with */"
                )
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


def _parse_error(
    text: str, tokens: list[Token], error: sqlglot_errors.ParseError, *, is_query: bool = False
) -> ParseError:
    found = error.errors[0] if error.errors else {}
    description = str(found.get("description") or error)
    indices = [n for n, token in enumerate(tokens) if (token.line, token.col) == (found.get("line"), found.get("col"))]
    index = indices[0] if indices else len(tokens) - 1
    token, before = tokens[index], tokens[index - 1] if index else None
    position = _position(text, token.start)
    unclosed = _find_unclosed(tokens)
    if unclosed is not None and ("Expecting )" in description or "Expected END" in description):
        closing = "END" if unclosed.token_type is TokenType.CASE else "]" if unclosed.text == "[" else ")"
        return ParseError(f"{unclosed.text} is never closed by {closing}", position=_position(text, unclosed.start))
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
_HINTS = {
    TokenType.DAMP: "Write AND",
    TokenType.COLON: "Write a field as a.b",
}

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
