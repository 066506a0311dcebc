"""Queries on Spark: pruned scans as DataFrames, and the rest of a plan as Spark's SQL over them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import tzinfo
from typing import Any

import pyarrow as pa
from sqlglot import TokenType

from tamis.engines.sessions import check_session, session_functions
from tamis.errors import AccessDenied, EngineError, one_line
from tamis.expr.sql_dialect import SparkCalls
from tamis.pushdown.connector import Connector
from tamis.pushdown.connectors.lake import LakeConnector
from tamis.pushdown.embedded import leaf_schema, read_leaf
from tamis.pushdown.nodes import Node, TableScan, Values, outputs_of
from tamis.pushdown.plan_sql import print_plan, quoted
from tamis.pushdown.policies.reading import check_protected, is_protected
from tamis.pushdown.query import CompiledQuery
from tamis.pushdown.run_time import prune_joins
from tamis.pushdown.zones import zone_called
from tamis.spark.protected_rows import protected_frame
from tamis.spark.types import row_schema, spark_schema

logger = logging.getLogger("tamis")


def zone_of(spark: Any) -> tzinfo:
    """The zone in which a session reads times that name none."""
    check_session(spark)
    return zone_called(str(spark.conf.get("spark.sql.session.timeZone")))


def is_ansi(spark: Any) -> bool:
    """Whether what overflows is an error in a session, and not another number."""
    return str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"


def frame_of(spark: Any, query: CompiledQuery) -> Any:
    """The DataFrame of a query. Scans are planned now, and read when Spark is asked for rows."""
    check_session(spark)
    from pyspark.errors import AnalysisException, ParseException

    def run(plan: Node, most_rows: int) -> pa.Table | None:
        rows = _frame(spark, query, plan).limit(most_rows + 1).toArrow()
        return None if rows.num_rows > most_rows else rows

    try:
        plan = prune_joins(query.optimized.plan, query.context, run)
        return _named(_frame(spark, query, plan), query.names)
    except (AnalysisException, ParseException) as error:
        logger.info("Spark does not take the plan, so the query runs as it was written: %s", one_line(error))
    try:
        # Whatever is wrong with the plan, Spark may still take the query as it was written.
        return _named(_frame(spark, query, query.plain.plan), query.plain.names)
    except (AnalysisException, ParseException) as error:
        raise query.refusal(error, _not_taken) from error


def _not_taken(reason: str) -> EngineError:
    return EngineError(f"Spark does not take the query: {reason}")


def check(spark: Any, query: CompiledQuery) -> None:
    """Raise where Spark does not take a query. Nothing is read: Spark analyses it over empty tables."""
    check_session(spark)
    from pyspark.errors import AnalysisException, ParseException

    try:
        _frame(spark, query, query.plan, _empty)
    except (AnalysisException, ParseException):
        try:
            _frame(spark, query, query.plain.plan, _empty)
        except (AnalysisException, ParseException) as error:
            raise query.refusal(error, _not_taken) from error


def _named(frame: Any, names: Sequence[str] | None) -> Any:
    return frame if names is None else frame.toDF(*names)


_Leaf = Callable[[Any, Node, Mapping[str, Connector]], Any]


def _frame(spark: Any, query: CompiledQuery, plan: Node, leaf_of: _Leaf | None = None) -> Any:
    check_protected(plan)
    printed = print_plan(plan, is_leaf=is_protected)
    if query.has_policies and "${" in printed.text:
        # Spark puts settings in its place, its own and those of its process, also between quotes.
        raise AccessDenied("${…} may look at more than the tables of the session, which has policies: leave it away")
    leaf_of = leaf_of or _leaf
    frames = {name: leaf_of(spark, leaf, query.context.connectors) for name, leaf in printed.leaves}
    found = spark.sql(_with_frames(printed.text, frames), **frames)
    # Spark analyses a Connect plan when it is asked: whoever can take the query in another way must know now.
    _ = found.columns
    return found


def _with_frames(text: str, frames: Collection[str]) -> str:
    """A text in which names between braces stand for DataFrames: Spark makes views of them, and drops them again.

    Where there are none, it does not look for braces.
    """
    if not frames:
        return text
    pieces, place = [], 0
    for token in SparkCalls().tokenize(text):
        if token.token_type == TokenType.IDENTIFIER and token.text in frames:
            pieces += [doubled_braces(text[place : token.start]), f"{{{token.text}}}"]
            place = token.end + 1
    return "".join([*pieces, doubled_braces(text[place:])])


def doubled_braces(text: str) -> str:
    """A text in which Spark takes braces for braces."""
    return text.replace("{", "{{").replace("}", "}}")


def _leaf(spark: Any, leaf: Node, connectors: Mapping[str, Connector]) -> Any:
    names = [output.name for output in outputs_of(leaf)]
    if isinstance(leaf, Values):
        return _small(spark, leaf.rows, names)
    if isinstance(leaf, TableScan) and not leaf.protects:
        connector = connectors[leaf.connector]
        scan = connector.scan_of(leaf.handle) if isinstance(connector, LakeConnector) else None
        if scan is not None and names:
            return _renamed(spark, scan.to_spark(spark), leaf.handle, names)
    if is_protected(leaf) and names:
        # Spark's optimizer tests conditions in the order that it likes: what a policy hides never gets there.
        frame = protected_frame(spark, leaf, connectors)
        if frame is not None:
            return frame
    return _small(spark, pa.Table.from_batches(read_leaf(leaf, connectors), leaf_schema(leaf, connectors)), names)


def _empty(spark: Any, leaf: Node, connectors: Mapping[str, Connector]) -> Any:
    schema = leaf.rows.schema if isinstance(leaf, Values) else leaf_schema(leaf, connectors)
    return _small(spark, schema.empty_table(), [output.name for output in outputs_of(leaf)])


def _renamed(spark: Any, frame: Any, handle: Any, names: Sequence[str]) -> Any:
    """The columns of a handle, which may be fields inside of those that the scan returns."""
    functions = session_functions(spark)
    paths = [".".join(map(quoted, column.path)) for column in handle.columns]
    return frame.select(*(functions.col(path).alias(name) for path, name in zip(paths, names, strict=True)))


def _small(spark: Any, rows: pa.Table, names: Sequence[str]) -> Any:
    """Rows that are at hand as a DataFrame."""
    if not names:
        return spark.range(rows.num_rows).toDF("nothing")
    schema = spark_schema(row_schema(rows.schema))
    if not rows.num_rows:
        return spark.createDataFrame([], schema=schema).toDF(*names)
    # Spark takes the first batch without rows for the last of all.
    return spark.createDataFrame(rows.combine_chunks(), schema=schema).toDF(*names)
