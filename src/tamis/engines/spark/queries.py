"""Queries on Spark: pruned scans as DataFrames, and the remaining plan as Spark SQL over them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import tzinfo
from typing import Any

import pyarrow as pa
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from tamis import types
from tamis.engines.duckdb.run.run_plan import find_leaf_schema, read_leaf
from tamis.engines.spark.protected_rows import make_protected_frame
from tamis.engines.spark.sessions import check_session, import_functions
from tamis.engines.spark.spark_types import to_row_schema, to_spark_schema
from tamis.errors import AccessDenied, EngineError, to_one_line
from tamis.expr.functions.table import FUNCTIONS, type_of
from tamis.expr.nodes import Call, Expr, Literal, transform
from tamis.expr.sql.dialect import SparkCalls
from tamis.expr.sql.printer import quote_name, to_sql
from tamis.expr.sql.syntax import to_sql_text
from tamis.query.connectors.connector import Connector
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.plan.nodes import Node, TableScan, Values, get_outputs
from tamis.query.plan.time_zones import parse_zone
from tamis.query.plan.to_sql import build_plan_tree
from tamis.query.policies.protected_reading import check_protected, is_protected
from tamis.query.query import CompiledQuery
from tamis.query.rules.joins.prune_with_dynamic_filters import apply_dynamic_filters
from tamis.types import type_name

logger = logging.getLogger("tamis")


def find_time_zone(spark: Any) -> tzinfo:
    """Return the time zone of a session, which applies to timestamps without one."""
    check_session(spark)
    return parse_zone(str(spark.conf.get("spark.sql.session.timeZone")))


def is_ansi(spark: Any) -> bool:
    """Return whether a session is in ANSI mode, so that an overflow is an error."""
    return str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"


def build_frame(spark: Any, query: CompiledQuery) -> Any:
    """Return the DataFrame of a query. Scans are planned now, and read when Spark computes rows."""
    check_session(spark)
    from pyspark.errors import AnalysisException, ParseException

    def run(plan: Node, most_rows: int) -> pa.Table | None:
        rows = _build_frame(spark, query, plan).limit(most_rows + 1).toArrow()
        return None if rows.num_rows > most_rows else rows

    try:
        plan = apply_dynamic_filters(query.optimized.plan, query.context, run)
        return _rename_columns(_build_frame(spark, query, plan), query.names)
    except (AnalysisException, ParseException) as error:
        logger.info("Spark rejects the plan, so the query runs as text: %s", to_one_line(error))
    try:
        # Spark may still accept the text of the query.
        return _rename_columns(_build_frame(spark, query, query.plain.plan), query.plain.names)
    except (AnalysisException, ParseException) as error:
        raise query.make_rejection_error(error, _make_engine_error) from error


def _make_engine_error(reason: str) -> EngineError:
    return EngineError(f"Spark rejects the query: {reason}")


def check_query(spark: Any, query: CompiledQuery) -> None:
    """Raise an error if Spark rejects a query. Nothing is read: Spark analyses it over empty tables."""
    check_session(spark)
    from pyspark.errors import AnalysisException, ParseException

    try:
        _build_frame(spark, query, query.plan, _build_empty_leaf)
    except (AnalysisException, ParseException):
        try:
            _build_frame(spark, query, query.plain.plan, _build_empty_leaf)
        except (AnalysisException, ParseException) as error:
            raise query.make_rejection_error(error, _make_engine_error) from error


def _rename_columns(frame: Any, names: Sequence[str] | None) -> Any:
    return frame if names is None else frame.toDF(*names)


_Leaf = Callable[[Any, Node, Mapping[str, Connector]], Any]


def _build_frame(spark: Any, query: CompiledQuery, plan: Node, leaf_of: _Leaf | None = None) -> Any:
    check_protected(plan)
    # Spark reads expressions as Tamis prints them.
    found = build_plan_tree(plan, lambda expr: exp.Var(this=_write_expression(expr)), is_leaf=is_protected)
    text = to_sql_text(found.tree)
    if query.has_policies and "${" in text:
        # Spark substitutes settings and environment variables for it, even inside of quotes.
        raise AccessDenied("${…} may read settings, which a session with policies does not allow: remove it")
    leaf_of = leaf_of or _build_leaf
    frames = {name: leaf_of(spark, leaf, query.context.connectors) for name, leaf in found.leaves}
    frame = spark.sql(_mark_frames(text, frames), **frames)
    # Spark Connect analyses lazily: force it now, so that the caller can fall back to the text of the query.
    _ = frame.columns
    return frame


def _write_expression(expr: Expr) -> str:
    return to_sql(transform(expr, _spell_function))


def _spell_function(node: Expr) -> Expr:
    """Return a call of Spark's function instead of one that Spark does not have."""
    known = FUNCTIONS.get(node.function) if isinstance(node, Call) else None
    if not isinstance(node, Call) or known is None or known.spark.function in (None, known.name, *known.aliases):
        return node
    call, data_type = Call(str(known.spark.function), node.args), type_of(node)
    return call if data_type is None else Call("cast", (call, Literal(type_name(data_type), types.STRING)))


def _mark_frames(text: str, frames: Collection[str]) -> str:
    """Return the text with the names of DataFrames in braces: Spark creates views for them, and drops them again.

    Without DataFrames, Spark does not interpret braces, so the text is unchanged.
    """
    if not frames:
        return text
    fragments, offset = [], 0
    for token in SparkCalls().tokenize(text):
        if token.token_type == TokenType.IDENTIFIER and token.text in frames:
            fragments += [escape_braces(text[offset : token.start]), f"{{{token.text}}}"]
            offset = token.end + 1
    return "".join([*fragments, escape_braces(text[offset:])])


def escape_braces(text: str) -> str:
    """Return the text with escaped braces, which Spark then takes literally."""
    return text.replace("{", "{{").replace("}", "}}")


def _build_leaf(spark: Any, leaf: Node, connectors: Mapping[str, Connector]) -> Any:
    names = [output.name for output in get_outputs(leaf)]
    if isinstance(leaf, Values):
        return _to_frame(spark, leaf.rows, names)
    if isinstance(leaf, TableScan) and not leaf.is_protected:
        connector = connectors[leaf.connector]
        scan = connector.to_scan(leaf.handle) if isinstance(connector, LakeConnector) else None
        if scan is not None and names:
            return _select_handle_columns(spark, scan.to_spark(spark), leaf.handle, names)
    if is_protected(leaf) and names:
        # Spark's optimizer may reorder conditions, so rows that a policy hides must never reach Spark.
        frame = make_protected_frame(spark, leaf, connectors)
        if frame is not None:
            return frame
    return _to_frame(
        spark, pa.Table.from_batches(read_leaf(leaf, connectors), find_leaf_schema(leaf, connectors)), names
    )


def _build_empty_leaf(spark: Any, leaf: Node, connectors: Mapping[str, Connector]) -> Any:
    schema = leaf.rows.schema if isinstance(leaf, Values) else find_leaf_schema(leaf, connectors)
    return _to_frame(spark, schema.empty_table(), [output.name for output in get_outputs(leaf)])


def _select_handle_columns(spark: Any, frame: Any, handle: Any, names: Sequence[str]) -> Any:
    """Return the columns of a handle, which may be struct fields of the columns that the scan returns."""
    functions = import_functions(spark)
    paths = [".".join(map(quote_name, column.path)) for column in handle.columns]
    return frame.select(*(functions.col(path).alias(name) for path, name in zip(paths, names, strict=True)))


def _to_frame(spark: Any, rows: pa.Table, names: Sequence[str]) -> Any:
    """Return rows in memory as a DataFrame."""
    if not names:
        return spark.range(rows.num_rows).toDF("nothing")
    schema = to_spark_schema(to_row_schema(rows.schema))
    if not rows.num_rows:
        return spark.createDataFrame([], schema=schema).toDF(*names)
    # Combine the chunks: Spark stops at the first batch without rows.
    return spark.createDataFrame(rows.combine_chunks(), schema=schema).toDF(*names)


# --- Run unsupported SQL as text on Spark, with DataFrames of whole tables in place of their names --------------------

_BEFORE_TABLES = (TokenType.FROM, TokenType.JOIN)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_OTHER_THAN_QUERIES = frozenset(
    ("INSERT", "OVERWRITE", "MERGE", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "TRUNCATE", "LOAD", "CALL")
)


def build_text_frame(spark: Any, text: str, frame_of: Callable[[str], Any | None]) -> Any | None:
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
        fragments += [escape_braces(text[offset : token.start]), f"{{{name}}}{alias}"]
        offset = token.end + 1
    if not frames:
        return None
    try:
        found = spark.sql("".join([*fragments, escape_braces(text[offset:])]), **frames)
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
