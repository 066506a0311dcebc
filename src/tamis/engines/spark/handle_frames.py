"""Lake handles as DataFrames: Spark aggregates, sorts and cuts the rows that metadata cannot answer for.

| handle      | frame                                                                                              |
|-------------|----------------------------------------------------------------------------------------------------|
| aggregation | a local relation of what metadata answers, united with Spark's aggregate of all other files        |
| top-n       | the files whose bounds may have its rows; the node above sorts and cuts them                       |
| sort, limit | all rows, sorted and limited by Spark                                                              |

The driver reads metadata alone. Nothing else is read before Spark computes rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pyarrow as pa

from tamis.engines.spark.sessions import import_functions
from tamis.engines.spark.spark_types import to_row_schema, to_spark_schema
from tamis.expr.nodes import TRUE
from tamis.expr.sql.printer import quote_name
from tamis.formats.source import FileListing
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.connectors.lake_handle import Aggregation, LakeColumn, LakeHandle, OrderKey
from tamis.scan.aggregation.aggregate_scan import answer_whole_files
from tamis.scan.aggregation.measures import Measure
from tamis.scan.planning.scan_planner import ScanPlanner
from tamis.scan.scan import Scan

NOTHING = "nothing"
"""The name of the only column of rows without columns."""

MAX_SPARK_LIMIT = 2**31 - 1
"""Spark's limits are 32-bit integers."""


def build_handle_frame(spark: Any, handle: LakeHandle, connector: LakeConnector, names: Sequence[str]) -> Any:
    """Return the rows of a handle as a lazy DataFrame with these column names."""
    if handle.aggregation is not None:
        return _build_aggregate(spark, handle, handle.aggregation).toDF(*names)
    if not handle.columns:
        handle = _with_cheapest_column(handle)
        rows = cut_rows(spark, connector.to_row_scan(handle).to_spark(spark), handle, [])
        return rows.select(import_functions(spark).lit(None).alias(NOTHING))
    rows = select_columns(connector.to_row_scan(handle).to_spark(spark), handle.columns, names)
    return cut_rows(spark, rows, handle, names)


def cut_rows(spark: Any, frame: Any, handle: LakeHandle, names: Sequence[str]) -> Any:
    """Return the rows of a handle in its order, and not more than its limit. `names` are the columns of the frame."""
    functions = import_functions(spark)
    paths = [each.path for each in handle.columns]
    if handle.order:
        keys = ((functions.col(quote_name(names[paths.index(each.column.path)])), each) for each in handle.order)
        frame = frame.orderBy(*(_to_sort_key(column, key) for column, key in keys))
    return frame if handle.limit is None or handle.limit > MAX_SPARK_LIMIT else frame.limit(handle.limit)


def _to_sort_key(column: Any, key: OrderKey) -> Any:
    direction, end = "desc" if key.descending else "asc", "first" if key.nulls_first else "last"
    return getattr(column, f"{direction}_nulls_{end}")()


def select_columns(frame: Any, columns: Sequence[LakeColumn], names: Sequence[str]) -> Any:
    """Return the columns of a handle, which may be struct fields of the columns that the scan returns."""
    pairs = zip(columns, names, strict=True)
    texts = [f"{'.'.join(map(quote_name, each.path))} AS {quote_name(name)}" for each, name in pairs]
    # One call of the JVM, instead of some for each column.
    return frame.selectExpr(*texts)


def _with_cheapest_column(handle: LakeHandle) -> LakeHandle:
    """Return a handle with one column, for rows without any: a partition column, or one of few bytes."""

    def cost(field: pa.Field) -> tuple[bool, int]:
        is_stored = field.name not in handle.source.partition_columns
        return is_stored, field.type.bit_width if pa.types.is_primitive(field.type) else 1 << 20

    cheapest = min(handle.source.schema, key=cost)
    return replace(handle, columns=(LakeColumn(cheapest.name, (cheapest.name,), cheapest.type),))


# --- Aggregates -------------------------------------------------------------------------------------------------------


def _build_aggregate(spark: Any, handle: LakeHandle, aggregation: Aggregation) -> Any:
    answered, rest = answer_aggregation(handle, aggregation)
    if not rest.files.num_rows:
        return to_frame(spark, answered, answered.column_names)
    rows_handle = handle.without_aggregation(aggregation)
    if not rows_handle.columns:
        rows_handle = _with_cheapest_column(rows_handle)
    where = None if handle.predicate == TRUE else handle.predicate
    scan = Scan(handle.source, where, [each.column for each in rows_handle.columns], listing=lambda _: rest)
    names = [each.name for each in rows_handle.columns]
    rows = select_columns(scan.to_spark(spark), rows_handle.columns, names)
    measured = aggregate_rows(spark, rows, rows_handle, aggregation)
    if _is_nothing(answered, aggregation):
        return measured
    known = to_frame(spark, answered, answered.column_names)
    return _merge_aggregates(spark, known.unionAll(measured), aggregation)


def _is_nothing(answered: pa.Table, aggregation: Aggregation) -> bool:
    """Return whether the answer of metadata is that of no rows: no group, or one row of zeros and NULLs."""
    if aggregation.keys:
        return not answered.num_rows
    pairs = zip(answered.columns, aggregation.measures, strict=True)
    return all(column[0].as_py() is None if each.is_extreme else column[0].as_py() == 0 for column, each in pairs)


def answer_aggregation(handle: LakeHandle, aggregation: Aggregation) -> tuple[pa.Table, FileListing]:
    """Return what metadata answers of an aggregation, and the files whose rows must be read."""
    where = None if handle.predicate == TRUE else handle.predicate
    return answer_whole_files(ScanPlanner(handle.source, where), aggregation.keys, aggregation.measures)


def aggregate_rows(spark: Any, rows: Any, handle: LakeHandle, aggregation: Aggregation) -> Any:
    """Return the measures of the rows of a handle by keys: columns `k0`, … and `m0`, …."""
    functions = import_functions(spark)
    names = {each.path: each.name for each in handle.columns}

    def measure(each: Measure) -> Any:
        value = functions.lit(1) if each.column is None else functions.col(names[each.column.path])
        return getattr(functions, each.function)(value)

    keys = [functions.col(names[key.path]).alias(f"k{number}") for number, key in enumerate(aggregation.keys)]
    measures = [measure(each).alias(f"m{number}") for number, each in enumerate(aggregation.measures)]
    return _group(rows, keys, measures)


def _merge_aggregates(spark: Any, parts: Any, aggregation: Aggregation) -> Any:
    """Return one row per group of measures that were computed in parts."""
    functions = import_functions(spark)

    def merge(number: int, each: Measure) -> Any:
        column = functions.col(f"m{number}")
        # Counts add up; a table that Spark reads never has sums in its handle.
        found = getattr(functions, each.function)(column) if each.is_extreme else functions.sum(column)
        return found.alias(f"m{number}")

    keys = [functions.col(f"k{number}") for number in range(len(aggregation.keys))]
    return _group(parts, keys, [merge(number, each) for number, each in enumerate(aggregation.measures)])


def _group(frame: Any, keys: Sequence[Any], measures: Sequence[Any]) -> Any:
    grouped = frame.groupBy(*keys)
    return grouped.agg(*measures) if measures else frame.select(*keys).distinct()


def to_frame(spark: Any, rows: pa.Table, names: Sequence[str]) -> Any:
    """Return rows in memory as a DataFrame."""
    if not names:
        return spark.range(rows.num_rows).toDF(NOTHING)
    schema = to_spark_schema(to_row_schema(rows.schema))
    if not rows.num_rows:
        return spark.createDataFrame([], schema=schema).toDF(*names)
    # Combine the chunks: Spark stops at the first batch without rows.
    return spark.createDataFrame(rows.combine_chunks(), schema=schema).toDF(*names)
