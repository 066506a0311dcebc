"""The table of the functions that are not scalar: aggregates, window functions and functions that return several rows.

A row says what Spark's SQL allows, for the parser of queries and filters, and what the rules of the optimizer need.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Literal as OneOf

import pyarrow as pa

from tamis import types
from tamis.expr.functions.table import UNBOUNDED
from tamis.types import is_number


class Kind(Enum):
    """Which rows a function depends on, or how many rows it returns."""

    AGGREGATE = "one value for a group of rows, or for a window"
    GROUPING = "whether a group key is part of a grouping set"
    WINDOW = "a value for a row in its window: a call without OVER has no meaning"
    POSITION = "a value that depends on where a row is read"
    GENERATOR = "several rows for one row, in SELECT, in FROM or as a lateral view"
    TABLE = "a table, from its arguments alone"


@dataclass(frozen=True, slots=True)
class Aggregate:
    """All that Tamis knows of a function that is not scalar."""

    name: str
    kind: Kind = Kind.AGGREGATE
    fewest: int = 0
    most: int = UNBOUNDED
    takes: OneOf["any", "boolean", "number"] = "any"
    """The kind of value that a single argument must be; DuckDB also converts others."""
    returns: Callable[[pa.DataType | None], pa.DataType | None] = lambda first: None
    """The type of the result for the type of the first argument; None where it is not known."""
    combined_by: str | None = None
    """The aggregate that computes the value of a group from the values of its parts."""
    has_flag: bool = False
    """Whether the second argument is a flag: whether NULL is ignored, or which value is picked."""
    is_ordered_set: bool = False
    """Whether WITHIN GROUP (ORDER BY …) may follow."""
    needs_whole_partition: bool = False
    """Whether its window cannot have an order or a frame."""
    returns_list: bool = False
    """Whether the result is a list of the values, which is empty for no rows."""


def _get_same_type(first: pa.DataType | None) -> pa.DataType | None:
    return first


def _get_bigint(first: pa.DataType | None) -> pa.DataType | None:
    return types.LONG


def _find_sum_type(first: pa.DataType | None) -> pa.DataType | None:
    if first is None or not is_number(first):
        return None
    if pa.types.is_decimal(first):
        return pa.decimal128(min(38, first.precision + 10), first.scale)
    return types.DOUBLE if pa.types.is_floating(first) else types.LONG


def _find_average_type(first: pa.DataType | None) -> pa.DataType | None:
    return types.DOUBLE if first is not None and is_number(first) else None


def _make_numeric(*names: str) -> tuple[Aggregate, ...]:
    return tuple(Aggregate(name, fewest=1, most=1, takes="number") for name in names)


def _make_pair(*names: str) -> tuple[Aggregate, ...]:
    return tuple(Aggregate(name, fewest=2, most=2) for name in names)


def _make_several(kind: Kind, names: str) -> tuple[Aggregate, ...]:
    return tuple(Aggregate(name, kind) for name in names.split())


_ROWS = (
    Aggregate("count", fewest=1, returns=_get_bigint, combined_by="sum"),
    Aggregate("count_if", fewest=1, most=1, takes="boolean", returns=_get_bigint),
    *(Aggregate(name, fewest=1, most=1, returns=_get_same_type, combined_by=name) for name in ("min", "max")),
    Aggregate("sum", fewest=1, most=1, takes="number", returns=_find_sum_type),
    Aggregate("avg", fewest=1, most=1, takes="number", returns=_find_average_type),
    *_make_numeric("mean", "try_sum", "try_avg", "std", "stddev", "stddev_pop", "stddev_samp", "variance", "var_pop"),
    *_make_numeric("var_samp", "skewness", "kurtosis"),
    *(
        Aggregate(name, fewest=1, most=2, returns=_get_same_type, has_flag=True)
        for name in ("any_value", "first", "last")
    ),
    *(Aggregate(name, fewest=1, most=2, has_flag=True) for name in ("first_value", "last_value")),
    *(Aggregate(name, fewest=1, most=1, takes="boolean") for name in ("any", "some", "every", "bool_and", "bool_or")),
    *(Aggregate(name, fewest=1, most=1) for name in ("bit_and", "bit_or", "bit_xor")),
    *(Aggregate(name, fewest=1, most=1, returns_list=True) for name in ("array_agg", "collect_list", "collect_set")),
    *_make_pair("corr", "covar_pop", "covar_samp", "histogram_numeric", "regr_avgx", "regr_avgy", "regr_count"),
    *_make_pair("regr_intercept", "regr_r2", "regr_slope", "regr_sxx", "regr_sxy", "regr_syy"),
    *(Aggregate(name, fewest=2, most=3) for name in ("approx_percentile", "max_by", "min_by", "percentile_approx")),
    Aggregate("percentile", fewest=2, most=3, needs_whole_partition=True),
    Aggregate("median", fewest=1, most=1, needs_whole_partition=True),
    *(
        Aggregate(name, fewest=1, most=1, is_ordered_set=True, needs_whole_partition=True)
        for name in ("percentile_cont", "percentile_disc")
    ),
    Aggregate("mode", most=2, has_flag=True, is_ordered_set=True),
    *(Aggregate(name, fewest=1, most=2, is_ordered_set=True) for name in ("listagg", "string_agg")),
    Aggregate("approx_count_distinct", fewest=1, most=2),
    Aggregate("count_min_sketch", fewest=4, most=4),
    Aggregate("grouping", Kind.GROUPING, 1, 1),
    Aggregate("grouping_id", Kind.GROUPING),
    *(Aggregate(name, Kind.WINDOW, 0, 0) for name in ("row_number", "cume_dist")),
    *_make_several(Kind.WINDOW, "rank dense_rank percent_rank"),
    Aggregate("ntile", Kind.WINDOW, 0, 1),
    *(Aggregate(name, Kind.WINDOW, 0, 4) for name in ("lag", "lead")),
    Aggregate("nth_value", Kind.WINDOW, 2, 3),
    *_make_several(
        Kind.POSITION,
        "window session_window window_time input_file_name input_file_block_start input_file_block_length "
        "spark_partition_id monotonically_increasing_id generate_subscripts",
    ),
    *_make_several(
        Kind.GENERATOR, "explode explode_outer posexplode posexplode_outer inline inline_outer stack json_tuple"
    ),
    *_make_several(Kind.TABLE, "range generate_series unnest variant_explode variant_explode_outer"),
)

AGGREGATES = {row.name: row for row in _ROWS}
"""The rows, by name."""


def find_aggregate(name: str) -> Aggregate | None:
    """Return the row of a function that is not scalar, in any case."""
    return AGGREGATES.get(name.lower())


def is_of_kind(name: str, *kinds: Kind) -> bool:
    row = find_aggregate(name)
    return row is not None and row.kind in kinds


def is_aggregate(name: str) -> bool:
    """Return whether a function has one value for a group of rows."""
    return is_of_kind(name, Kind.AGGREGATE, Kind.GROUPING)
