"""Which functions of a query see one row, which see a group, and which make several rows of one.

A function of which nothing is known may be any of them: what it stands in is not modelled, and runs as text.
"""

from __future__ import annotations

from sqlglot import exp
from sqlglot.dialects.spark import Spark

from tamis.expr.functions import FUNCTIONS, NOT_DETERMINISTIC
from tamis.expr.sql_refusals import AGGREGATES as _SPARK_AGGREGATES
from tamis.scan.spark_collections import BUILDERS as _OF_COLLECTIONS
from tamis.scan.spark_macros import FUNCTIONS as _MACROS
from tamis.scan.spark_text import BUILDERS as _TEXTS
from tamis.scan.spark_time import BUILDERS as _TIMES

_OF_SQLGLOT = frozenset(
    name.lower() for kind in exp.ALL_FUNCTIONS if issubclass(kind, exp.AggFunc) for name in kind.sql_names()
)

AGGREGATES = _SPARK_AGGREGATES - {"grouping", "grouping_id"}
"""Functions that see a group, of which a plan can have calls."""

_MANY_ROWS = frozenset({
    "explode", "explode_outer", "posexplode", "posexplode_outer", "inline", "inline_outer", "stack", "json_tuple",
    "unnest", "generate_series", "range", "variant_explode", "variant_explode_outer", "generate_subscripts",
    "row_number", "rank", "dense_rank", "percent_rank", "cume_dist", "ntile", "lag", "lead", "nth_value", "window",
    "session_window", "window_time", "input_file_name", "input_file_block_start", "input_file_block_length",
    "spark_partition_id", "monotonically_increasing_id",
})  # fmt: skip
"""Functions that make several rows of one, or whose value depends on other rows or on where a row is read."""

_SCALAR = frozenset(name.lower() for name in Spark.Parser.FUNCTIONS) | FUNCTIONS.keys() | _MACROS.keys() | {
    *_OF_COLLECTIONS, *_TEXTS, *_TIMES,
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
    """Whether a function is known to give one value for one row, and nothing of other rows."""
    lowered = name.lower()
    if lowered in _SPARK_AGGREGATES or lowered in _MANY_ROWS:
        return False
    if lowered in FUNCTIONS or lowered in NOT_DETERMINISTIC:
        return True
    return lowered in _SCALAR and lowered not in _OF_SQLGLOT


def is_known(name: str) -> bool:
    """Whether anything is known of a function; an engine may have others."""
    lowered = name.lower()
    known = (_SCALAR, FUNCTIONS, NOT_DETERMINISTIC, _SPARK_AGGREGATES, _MANY_ROWS, _OF_SQLGLOT)
    return any(lowered in each for each in known)
