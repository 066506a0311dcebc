"""SQL text to a sqlglot tree: Spark's syntax, errors with a place and a hint, and bounded work for hostile text.

sqlglot reads by recursion, some twenty Python frames a bracket. Text that nests deeper than a few brackets is
therefore read in a thread of its own with a large stack, up to `DEEPEST` levels.
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
from tamis.expr.sql_incomplete import misspelt_word, refuse_incomplete, refuse_no_query, refuse_surrogates
from tamis.expr.sql_words import spell_out

T = TypeVar("T")

DEEPEST = 20_000
"""How many levels of brackets, NOT and CASE a text may nest."""
MOST_LAMBDAS = 200
"""sqlglot goes over the whole body of each lambda function, so nested ones cost the square of their number."""
DEEPEST_TYPE = 50
"""The same holds for `ARRAY<ARRAY<…>>`."""

_SHALLOW = 16
_FRAMES_PER_LEVEL = 40
_STACK_PER_LEVEL = 24 * 1024
_LEAST_STACK = 64 * 1024 * 1024


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
_DOUBLE_QUOTES = "Double quotes make a text in this dialect: write a name as `name`"


def read(text: str, convert: Callable[[exp.Expr], T]) -> T:
    """Read one expression and convert its tree, both with a stack that is large enough for it."""
    tokens = _tokens_of(text)
    depth = _depth_of(tokens)
    _refuse(text, tokens, depth)
    refuse_foreign_tokens(tokens, partial(_position, text))
    _keep_functions(tokens)
    return _with_room(lambda: convert(_tree_of(text, tokens)), depth)


def read_statement(text: str, convert: Callable[[exp.Expr], T]) -> T:
    """Read one statement, whatever it is, and convert its tree, with a stack that is large enough."""
    tokens = spell_out(_tokens_of(text))
    if not tokens:
        raise ParseError("the text is empty", position=1, hint="Write a query, such as SELECT * FROM orders")
    depth = _depth_of(tokens)
    if depth > DEEPEST:
        raise _too_deep()
    refuse_no_query(tokens)
    refuse_incomplete(tokens)
    place = partial(_position, text)
    for refuse in (refuse_foreign_tokens, refuse_foreign_stars, refuse_unrepresentable_numbers):
        refuse(tokens, place)
    _keep_functions(tokens)
    return _with_room(lambda: convert(_statement_of(text, tokens)), depth)


def _with_room(work: Callable[[], T], depth: int) -> T:
    if depth <= _SHALLOW:
        try:
            return work()
        except RecursionError:
            # Long chains of operators nest without brackets, and the caller may itself stand on a deep stack.
            depth = DEEPEST
    return with_large_stack(work, depth)


_large_stack = threading.Lock()
_THREAD = "tamis-sql"


def with_large_stack(work: Callable[[], T], depth: int) -> T:
    """Do what recurses over a text that nests so deep, in a thread with a stack that is large enough."""
    if threading.current_thread().name.startswith(_THREAD):
        # It already stands on one, and would wait for itself.
        return work()
    # Both limits belong to the process, so only one text is read this way at a time.
    with _large_stack:
        frames_before = sys.getrecursionlimit()
        stack_before = threading.stack_size(_LEAST_STACK + depth * _STACK_PER_LEVEL)
        try:
            sys.setrecursionlimit(max(frames_before, 10_000 + depth * _FRAMES_PER_LEVEL))
            with ThreadPoolExecutor(max_workers=1, thread_name_prefix=_THREAD) as pool:
                return pool.submit(work).result()
        except RecursionError:
            raise _too_deep() from None
        finally:
            threading.stack_size(stack_before)
            sys.setrecursionlimit(frames_before)


def _too_deep() -> ParseError:
    return ParseError(
        f"the text nests deeper than {DEEPEST} levels",
        hint="Write a long list of values with IN, and join conditions with AND or OR without brackets",
    )


def _tokens_of(text: str) -> list[Token]:
    refuse_surrogates(text)
    try:
        return _DIALECT.tokenize(text)
    except sqlglot_errors.TokenError as error:
        raise _unreadable(text) from error


def _depth_of(tokens: Sequence[Token]) -> int:
    """How deep the text nests: brackets and CASE, and the prefix operators that stand before them."""
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


def _refuse(text: str, tokens: Sequence[Token], depth: int) -> None:
    """Raise for text that no parser needs to see."""
    if not tokens:
        raise ParseError("the text is empty", position=1, hint="Write a condition, such as amount > 5")
    if tokens[0].token_type is TokenType.WHERE:
        position = _position(text, tokens[0].start)
        raise ParseError("unexpected WHERE", position=position, hint="Give the condition alone, without WHERE")
    if depth > DEEPEST:
        raise _too_deep()
    kinds = [token.token_type for token in tokens]
    for place, kind in enumerate(kinds):
        if kind is TokenType.NOT and place and _is_misplaced_not(tokens[place - 1 : place + 2]):
            position = _position(text, tokens[place - 1].start)
            raise ParseError("'=!' is no comparison", position=position, hint="Did you mean !=?")
        if kind in _SUSPECT and (found := _refusal(kinds, place)) is not None:
            message, hint = found
            start = tokens[place].start
            raise ParseError(
                message, position=_position(text, start), hint=_DOUBLE_QUOTES if text[start] == '"' else hint
            )
    if kinds.count(TokenType.ARROW) > MOST_LAMBDAS:
        raise ParseError(f"the text has more than {MOST_LAMBDAS} lambda functions")
    nested_types = Spark.Parser.NESTED_TYPE_TOKENS
    nestings = sum(kind in nested_types and after is TokenType.LT for kind, after in pairwise(kinds))
    if nestings > DEEPEST_TYPE:
        raise ParseError(f"the text has more than {DEEPEST_TYPE} nested types")


def _is_misplaced_not(tokens: Sequence[Token]) -> bool:
    """Whether `=!` was meant as `!=`: `flag =!other` is the comparison with NOT other."""
    equals, negation, *after = tokens
    is_one_word = equals.token_type is TokenType.EQ and negation.text == "!" and negation.start == equals.end + 1
    return is_one_word and not (after and after[0].start == negation.end + 1 and after[0].token_type is TokenType.VAR)


def _refusal(kinds: Sequence[TokenType], place: int) -> tuple[str, str | None] | None:
    """What a token would mean that a filter cannot have, and the way out."""
    before = kinds[place - 1] if place else None
    after = kinds[place + 1] if place + 1 < len(kinds) else None
    match kinds[place]:
        case TokenType.SELECT if before is not TokenType.DOT:
            hint = "Run it first and compare with its values. A column of that name is written `select`"
            return "a subquery cannot be part of a filter", hint
        case TokenType.SEMICOLON if after is not None:
            return "a filter is one expression, and another follows", "Join conditions with AND or OR"
        case TokenType.STRING if TokenType.DOT in (before, after):
            return "a text has no fields", None
        case TokenType.PLACEHOLDER | TokenType.PARAMETER | TokenType.L_BRACE:
            return _PARAMETER
        case TokenType.COLON if before not in _OPERANDS:
            return _PARAMETER
        case _:
            return None


def _keep_functions(tokens: Sequence[Token]) -> None:
    """Let `decimal(x)` be a function at once: sqlglot reads it as a type first, and nested ones 2^n times."""
    kinds: list[TokenType | None] = [*(token.token_type for token in tokens), *[None] * 6]
    number, end = TokenType.NUMBER, TokenType.R_PAREN
    for place, token in enumerate(tokens):
        if kinds[place] is TokenType.WINDOW and kinds[place + 1] in (TokenType.L_PAREN, TokenType.DOT):
            # The windows that a query names have a name there.
            token.token_type = TokenType.VAR
            continue
        if kinds[place + 1] is not TokenType.L_PAREN or kinds[place] not in Spark.Parser.TYPE_TOKENS:
            continue
        arguments = kinds[place + 2 : place + 6]
        is_type = arguments[:2] == [number, end] or arguments == [number, TokenType.COMMA, number, end]
        if not is_type and kinds[place] not in (TokenType.IDENTIFIER, TokenType.INTERVAL):
            token.token_type = TokenType.VAR


def _tree_of(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = _DIALECT.parser().parse_into(exp.Condition, tokens, text)
    except sqlglot_errors.ParseError as error:
        raise _misread(text, tokens, error) from error
    tree = trees[0] if trees else None
    if tree is None:
        raise ParseError("the text has no expression", position=1, hint="Write a condition, such as amount > 5")
    return tree


def _statement_of(text: str, tokens: list[Token]) -> exp.Expr:
    try:
        trees = [tree for tree in _DIALECT.parser().parse(tokens, text) if tree is not None]
    except sqlglot_errors.ParseError as error:
        raise _misread(text, tokens, error, is_query=True) from error
    if len(trees) != 1:
        raise ParseError("the text has several statements", hint="Give one query at a time")
    return trees[0]


# --- What went wrong ------------------------------------------------------------------------------------------------


def _position(text: str, start: int) -> Position:
    return Position(start + 1, text.count("\n", 0, start) + 1, start - text.rfind("\n", 0, start))


def _unreadable(text: str) -> ParseError:
    """Why text cannot be cut into words: a quote or a comment without an end, or bytes that are none."""
    place = 0
    while place < len(text):
        character = text[place]
        if character in "'\"`":
            end = _end_of_quoted(text, place)
            if end is None:
                hint = "Double it if it is part of a text" if character != "`" else "A name ends with a back-tick too"
                return ParseError(f"the quote {character} is never closed", position=_position(text, place), hint=hint)
            if text[place - 1 : place] in ("x", "X") and re.fullmatch("[0-9a-fA-F]*", text[place + 1 : end]) is None:
                hint = "Write two hexadecimal digits a byte, as in X'1F'"
                return ParseError(
                    f"{text[place - 1 : end + 1]} is not binary", position=_position(text, place - 1), hint=hint
                )
            place = end
        elif text.startswith("--", place):
            place = text.find("\n", place) if "\n" in text[place:] else len(text)
        elif text.startswith("/*", place):
            end = text.find("*/", place + 2)
            if end < 0:
                return ParseError(
                    "the comment is never closed", position=_position(text, place), hint="Close it with */"
                )
            place = end + 1
        place += 1
    return ParseError("the text cannot be read as SQL", hint="Look for characters that SQL does not use")


def _end_of_quoted(text: str, start: int) -> int | None:
    """Where the quoted text that starts here ends; a doubled quote looks like an end and a new start, which is fine."""
    quote = text[start]
    place = start + 1
    while place < len(text):
        if text[place] == "\\" and quote != "`":
            place += 1
        elif text[place] == quote:
            return place
        place += 1
    return None


def _misread(text: str, tokens: list[Token], error: sqlglot_errors.ParseError, *, is_query: bool = False) -> ParseError:
    found = error.errors[0] if error.errors else {}
    description = str(found.get("description") or error)
    places = [n for n, token in enumerate(tokens) if (token.line, token.col) == (found.get("line"), found.get("col"))]
    place = places[0] if places else len(tokens) - 1
    token, before = tokens[place], tokens[place - 1] if place else None
    position = _position(text, token.start)
    unclosed = _unclosed(tokens)
    if unclosed is not None and ("Expecting )" in description or "Expected END" in description):
        closing = "END" if unclosed.token_type is TokenType.CASE else "]" if unclosed.text == "[" else ")"
        return ParseError(f"{unclosed.text} is never closed by {closing}", position=_position(text, unclosed.start))
    if description.startswith("invalid interval"):
        return ParseError(description, position=position)
    guess = (misspelt_word(tokens, place) if is_query else None) or _hint(text, tokens, place, is_query=is_query)
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


def _unclosed(tokens: Sequence[Token]) -> Token | None:
    stack: list[Token] = []
    for token in tokens:
        if token.token_type in _OPENING:
            stack.append(token)
        elif token.token_type in _CLOSING and stack:
            stack.pop()
    return stack[-1] if stack else None


_HINTS_OF_FILTERS = {
    TokenType.COMMA: "A filter is one expression: join conditions with AND or OR",
    TokenType.ALIAS: "An expression in a filter has no alias",
}
_HINTS = {
    TokenType.DAMP: "Write AND",
    TokenType.COLON: "Write a field as a.b",
}

_MISSPELLED = {"=!": "!=", "=<": "<=", "=>": ">=", "><": "<>", "=<>": "<>"}
"""Comparisons as people write them by mistake, and what they mean."""


def _meant_operator(tokens: Sequence[Token], place: int) -> str | None:
    """The comparison that a token and what follows it without a blank were meant to be."""
    token = tokens[place]
    after = tokens[place + 1] if place + 1 < len(tokens) else None
    if after is not None and after.start == token.end + 1 and token.text + after.text in _MISSPELLED:
        return _MISSPELLED[token.text + after.text]
    return _MISSPELLED.get(token.text)


def _hint(text: str, tokens: Sequence[Token], place: int, *, is_query: bool) -> str | None:
    token, before = tokens[place], tokens[place - 1] if place else None
    if meant := _meant_operator(tokens, place) or (_meant_operator(tokens, place - 1) if place else None):
        return f"Did you mean {meant}?"
    around = [near for near in (before, token) if near is not None]
    if any(text[near.start : near.start + 1] == '"' for near in around):
        return _DOUBLE_QUOTES
    if hint := _HINTS.get(token.token_type) or (None if is_query else _HINTS_OF_FILTERS.get(token.token_type)):
        return hint
    if token.token_type is TokenType.R_PAREN:
        return "No ( stands before it" if _unclosed(tokens[:place]) is None else None
    follows_operand = before is not None and before.token_type in _OPERANDS
    if token.token_type in _OPERANDS:
        missing = "a comma or an operator" if is_query else "an operator such as ="
        return f"Is {missing} missing between the two?" if follows_operand else None
    if not follows_operand and token.token_type not in _OPERATORS and re.fullmatch(r"\w+", token.text):
        return f"If it is the name of a column, write `{token.text}`"
    return None
