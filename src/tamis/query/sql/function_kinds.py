"""Classification of SQL functions: scalar functions, aggregates, and generators.

An unknown function may be any of these: the SQL around it is unsupported, and runs as text.
"""

from __future__ import annotations

from functools import cache

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from tamis.expr.functions.table import FUNCTIONS, NOT_DETERMINISTIC
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

_SCALAR = frozenset(name.lower() for name in Spark.Parser.FUNCTIONS) | FUNCTIONS.keys() | {
    "bigint", "int", "smallint", "tinyint", "float", "double", "string", "boolean", "binary", "decimal", "len",
    "date", "timestamp", "timestamp_ntz", "timestamp_ltz", "isnull", "isnotnull", "mod", "negative", "nvl", "ifnull",
    "ucase", "lcase", "char_length", "character_length", "dayofmonth", "dateadd", "datediff", "date_diff", "if",
    "nullif", "nvl2", "named_struct", "concat", "concat_ws", "replace", "reverse", "repeat", "translate", "lpad",
    "rpad", "ltrim", "rtrim", "trim", "btrim", "instr", "locate", "position", "ascii", "hex", "unhex", "sqrt", "cbrt",
    "exp", "pow", "power", "greatest", "least", "quarter", "second", "last_day", "next_day", "hour", "minute",
    "weekofyear", "dayofyear", "make_date", "make_timestamp", "size", "cardinality", "slice", "sort_array",
    "array_sort", "array_union", "map_keys", "map_values", "map_from_arrays", "sin", "cos", "tan", "asin", "acos",
    "atan", "atan2", "sinh", "cosh", "tanh", "degrees", "radians", "pi", "e", "md5", "sha", "sha1", "sha2", "crc32",
    "initcap", "soundex", "regexp_extract", "regexp_like", "regexp", "rlike", "rint", "bround", "current_date",
    "current_timestamp", "now", "curdate", "localtimestamp", "unix_micros", "timestamp_seconds", "timestamp_millis",
    "try_add", "try_divide", "try_subtract", "try_multiply",
}  # fmt: skip


def is_aggregate(name: str) -> bool:
    return name.lower() in AGGREGATES


def is_scalar(name: str) -> bool:
    """Return whether a function is known to be scalar: one value for one row, independent of other rows."""
    lowered = name.lower()
    if lowered in _SPARK_AGGREGATES or lowered in _NOT_SCALAR:
        return False
    if lowered in FUNCTIONS or lowered in NOT_DETERMINISTIC:
        return True
    return lowered in _list_scalar_functions() and lowered not in _SQLGLOT_AGGREGATES


@cache
def _list_scalar_functions() -> frozenset[str]:
    return _SCALAR | frozenset(query_engine().list_scalar_functions())


def is_known(name: str) -> bool:
    """Return whether a function is known. An engine may have others."""
    lowered = name.lower()
    known = (
        _list_scalar_functions(),
        FUNCTIONS,
        NOT_DETERMINISTIC,
        _SPARK_AGGREGATES,
        _NOT_SCALAR,
        _SQLGLOT_AGGREGATES,
    )
    return any(lowered in each for each in known)
