"""Run unsupported SQL as text on Spark, with DataFrames of whole tables in place of their names."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

from sqlglot import Token, TokenType
from sqlglot.errors import SqlglotError

from tamis.expr.sql_dialect import SparkCalls
from tamis.spark.queries import doubled_braces

logger = logging.getLogger("tamis")

_BEFORE_TABLES = (TokenType.FROM, TokenType.JOIN)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_OTHER_THAN_QUERIES = frozenset(
    ("INSERT", "OVERWRITE", "MERGE", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "TRUNCATE", "LOAD", "CALL")
)


def frame_as_written(spark: Any, text: str, frame_of: Callable[[str], Any | None]) -> Any | None:
    """Return the DataFrame of a query that Tamis does not support; None if Spark does not support it either.

    `frame_of` returns the DataFrame of a table of the session by its name, with all of its rows.
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        tokens = SparkCalls().tokenize(text)
    except SqlglotError:
        return None
    if not tokens or tokens[0].token_type not in (TokenType.SELECT, TokenType.WITH) or _may_write(tokens):
        return None
    fragments: list[str] = []
    frames: dict[str, Any] = {}
    offset = 0
    for number, token in enumerate(tokens):
        frame = frame_of(token.text) if _may_be_table(tokens, number) else None
        if frame is None:
            continue
        name = f"table_{len(frames) + 1}"
        frames[name] = frame
        alias = "" if _has_alias(tokens, number) else f" AS `{token.text.replace('`', '``')}`"
        fragments += [doubled_braces(text[offset : token.start]), f"{{{name}}}{alias}"]
        offset = token.end + 1
    if not frames:
        return None
    try:
        found = spark.sql("".join([*fragments, doubled_braces(text[offset:])]), **frames)
        _ = found.columns
    except (AnalysisException, ParseException):
        return None
    logger.info("Tamis does not support the query, so Spark runs its text over whole tables, without pruning")
    return found


def _may_write(tokens: Sequence[Token]) -> bool:
    quoted = (TokenType.STRING, TokenType.IDENTIFIER)
    return any(token.text.upper() in _OTHER_THAN_QUERIES for token in tokens if token.token_type not in quoted)


def _may_be_table(tokens: Sequence[Token], number: int) -> bool:
    """Return whether a token is in the position of a table name, and is not the first part of a qualified name."""
    has_parts = number + 1 < len(tokens) and tokens[number + 1].token_type in (TokenType.DOT, TokenType.L_PAREN)
    follows = number > 0 and tokens[number - 1].token_type in _BEFORE_TABLES
    return tokens[number].token_type in _NAMES and follows and not has_parts


def _has_alias(tokens: Sequence[Token], number: int) -> bool:
    following = tokens[number + 1].token_type if number + 1 < len(tokens) else None
    return following == TokenType.ALIAS or following in _NAMES
