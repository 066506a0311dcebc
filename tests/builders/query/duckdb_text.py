"""DuckDB's SQL of a text in Spark's dialect."""

from __future__ import annotations

import sqlglot

from tamis.engines.duckdb.translate.functions import to_duckdb
from tamis.expr.sql.dialect import SparkCalls


def translate_to_duckdb(text: str, *, of_query: bool = False, has_nested: bool = True) -> str:
    return to_duckdb(sqlglot.parse_one(text, read=SparkCalls), of_query=of_query, has_nested=has_nested).text
