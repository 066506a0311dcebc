"""Queries that only Spark can read, given to it as they were written, with whole tables in the place of their names."""

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
    """The DataFrame of a query that is not understood here; None where Spark does not understand it either.

    `frame_of` gives the tables of the session by their names, each with all of its rows.
    """
    from pyspark.errors import AnalysisException, ParseException

    try:
        tokens = SparkCalls().tokenize(text)
    except SqlglotError:
        return None
    if not tokens or tokens[0].token_type not in (TokenType.SELECT, TokenType.WITH) or _may_write(tokens):
        return None
    pieces: list[str] = []
    frames: dict[str, Any] = {}
    place = 0
    for number, token in enumerate(tokens):
        frame = frame_of(token.text) if _may_be_table(tokens, number) else None
        if frame is None:
            continue
        name = f"table_{len(frames) + 1}"
        frames[name] = frame
        alias = "" if _has_alias(tokens, number) else f" AS `{token.text.replace('`', '``')}`"
        pieces += [doubled_braces(text[place : token.start]), f"{{{name}}}{alias}"]
        place = token.end + 1
    if not frames:
        return None
    try:
        found = spark.sql("".join([*pieces, doubled_braces(text[place:])]), **frames)
        _ = found.columns
    except (AnalysisException, ParseException):
        return None
    logger.info("the query is not understood here, so Spark runs it as it was written, over whole tables")
    return found


def _may_write(tokens: Sequence[Token]) -> bool:
    quoted = (TokenType.STRING, TokenType.IDENTIFIER)
    return any(token.text.upper() in _OTHER_THAN_QUERIES for token in tokens if token.token_type not in quoted)


def _may_be_table(tokens: Sequence[Token], number: int) -> bool:
    """Whether a name stands where that of a table does, and is not the first part of a longer one."""
    has_parts = number + 1 < len(tokens) and tokens[number + 1].token_type in (TokenType.DOT, TokenType.L_PAREN)
    follows = number > 0 and tokens[number - 1].token_type in _BEFORE_TABLES
    return tokens[number].token_type in _NAMES and follows and not has_parts


def _has_alias(tokens: Sequence[Token], number: int) -> bool:
    following = tokens[number + 1].token_type if number + 1 < len(tokens) else None
    return following == TokenType.ALIAS or following in _NAMES
