"""Classification of SQL functions: scalar functions, aggregates, and generators.

An unknown function may be any of these: the SQL around it is unsupported, and runs as text.
"""

from __future__ import annotations

from functools import cache

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from tamis.expr.functions.table import ALIASES, FUNCTIONS, NOT_DETERMINISTIC
from tamis.expr.sql.refusals import AGGREGATES as _SPARK_AGGREGATES
from tamis.query.engine import query_engine

_SQLGLOT_AGGREGATES = frozenset(
    name.lower() for kind in exp.ALL_FUNCTIONS if issubclass(kind, exp.AggFunc) for name in kind.sql_names()
)

AGGREGATES = _SPARK_AGGREGATES - {"grouping", "grouping_id"}
"""Aggregate functions that a plan can contain."""

_NOT_SCALAR = frozenset({
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
    "unnest", "generate_series", "range", "variant_explode", "variant_explode_outer", "generate_subscripts",
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value", "window",
    "session_window", "window_time", "input_file_name", "input_file_block_start", "input_file_block_length",
    "spark_partition_id", "monotonically_increasing_id",
})  # fmt: skip
"""Functions that return several rows, and functions whose value depends on other rows or on the position of a row."""


def is_aggregate(name: str) -> bool:
    return name.lower() in AGGREGATES


def is_scalar(name: str) -> bool:
    """Return whether a function is known to be scalar: one value for one row, independent of other rows."""
    lowered = name.lower()
    if lowered in _SPARK_AGGREGATES or lowered in _NOT_SCALAR:
        return False
    if lowered in FUNCTIONS or lowered in ALIASES or lowered in NOT_DETERMINISTIC:
        return True
    return lowered in _list_scalar_functions() and lowered not in _SQLGLOT_AGGREGATES


@cache
def _list_scalar_functions() -> frozenset[str]:
    return frozenset(name.lower() for name in Spark.Parser.FUNCTIONS) | query_engine().list_scalar_functions()


def is_known(name: str) -> bool:
    """Return whether a function is known. An engine may have others."""
    lowered = name.lower()
    known = (
        _list_scalar_functions(),
        FUNCTIONS,
        ALIASES,
        NOT_DETERMINISTIC,
        _SPARK_AGGREGATES,
        _NOT_SCALAR,
        _SQLGLOT_AGGREGATES,
    )
    return any(lowered in each for each in known)
