"""Queries on Spark: pruned scans as DataFrames, and the remaining plan as Spark SQL over them."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import tzinfo
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import Token, TokenType, exp
from sqlglot.errors import SqlglotError

from tamis import types
from tamis.engines.duckdb.run.run_plan import find_leaf_schema, read_leaf
from tamis.engines.spark.handle_frames import aggregate_rows, answer_aggregation, build_handle_frame, cut_rows, to_frame
from tamis.engines.spark.handler import quote_name
from tamis.engines.spark.jobs import name_jobs
from tamis.engines.spark.sessions import (
    check_session,
    hide_size,
    is_case_sensitive,
    list_spark_exceptions,
    translate_errors,
)
from tamis.engines.spark.spark_types import convert_rows, to_ddl, to_row_schema, to_spark_schema
from tamis.engines.spark.worker import INPUT, make_worker_function, pack_tasks, read_tasks, serialize_tasks
from tamis.errors import AccessDenied, EngineError, TamisError, to_one_line
from tamis.expr.functions.table import FUNCTIONS, type_of
from tamis.expr.nodes import Call, Expr, Literal, split_conjuncts, transform
from tamis.expr.sql.dialect import SparkCalls
from tamis.expr.sql.printer import to_sql
from tamis.expr.sql.syntax import to_sql_text
from tamis.expr.wire.expression_json import bound_from_json, expression_to_json, schema_from_text, schema_to_text
from tamis.formats.jobs import Arguments, read_table
from tamis.query.connectors.connector import Connector
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.connectors.lake_handle import Aggregation, LakeHandle
from tamis.query.connectors.memory_connector import MemoryConnector
from tamis.query.plan.nodes import Filter, Named, Node, Output, Project, TableScan, Values, get_outputs
from tamis.query.plan.time_zones import parse_zone
from tamis.query.plan.to_sql import build_plan_tree
from tamis.query.policies.protected_reading import (
    Projection,
    check_protected,
    is_protected,
    make_protected_schema,
    redact_errors,
    redact_errors_of,
)
from tamis.query.query import CompiledQuery
from tamis.query.rules.joins.prune_with_dynamic_filters import apply_dynamic_filters
from tamis.query.sql.parameters import index_by_name
from tamis.query.sql.sources import Tables
from tamis.query.sql.tables_in_text import TablesInText, find_tables_in_text
from tamis.scan.planning.scan_planner import ScanPlanner
from tamis.scan.planning.task_data import reader_from_json, reader_to_json, tasks_from_table
from tamis.scan.reading.residual import Residual
from tamis.scan.scan import get_planner
from tamis.types import type_name

# --- Protected rows -------------------------------------------------------------------------------------------------
#
# Tables under policies on Spark: executors read them, and apply the policy before Spark sees a row.
#
#     tasks ─▶ raw rows ─▶ row filter ─▶ masks ─▶ a DataFrame
#     └────────────── in a Python worker ─────────────┘
#
# Spark moves no condition of a query below such a step, and knows only the columns of its result. What Spark shows must
# not depend on hidden rows either: there are always `spark.sql.shuffle.partitions` tasks, some of them without work,
# and errors are redacted. The driver reads metadata, and the rows of a limit or top-n with steps of a policy above it.


Step = Callable[[pa.RecordBatch], pa.RecordBatch]


def make_protected_frame(spark: Any, node: Node, connectors: Mapping[str, Connector]) -> Any | None:
    """Return the visible rows of a protected scan as a lazy DataFrame; None if the driver has to read them."""
    steps: list[Filter | Project] = []
    below = node
    while isinstance(below, Filter | Project):
        steps.append(below)
        below = below.source
    if not isinstance(below, TableScan) or not below.columns:
        return None
    connector, handle = connectors[below.connector], below.handle
    if not isinstance(connector, LakeConnector) or not isinstance(handle, LakeHandle):
        return None
    if handle.aggregation is not None:
        return None if steps else _aggregate_protected(spark, below, handle, handle.aggregation, connectors)
    if steps and (handle.is_limited or handle.order):
        return None
    with redact_errors():
        scan = connector.to_row_scan(handle)
        paths = [(output.name, each.path) for output, each in zip(below.columns, handle.columns, strict=True)]
        schema = make_protected_schema(node, connectors)
        planner = get_planner(scan)
        reader = reader_to_json(planner.reader)
        more = {
            "columns": paths,
            "steps": [_step_to_json(each, connectors) for each in reversed(steps)],
            "output": schema_to_text(schema),
        }
        given = _assign_tasks(planner, int(spark.conf.get("spark.sql.shuffle.partitions")))
    title = re.sub(r"\W+", "_", f"tamis: read {planner.source.name}")
    runner = make_worker_function(
        __name__, read_visible_rows.__name__, json.dumps({**reader, **more}, allow_nan=False), title
    )
    frame = (
        spark.createDataFrame(given, to_spark_schema(INPUT))
        .repartitionById(given.num_rows, "task")
        .mapInArrow(runner, to_spark_schema(to_row_schema(schema)))
    )
    # Its size would tell how many rows are hidden.
    return cut_rows(spark, hide_size(spark, frame), handle, [output.name for output in get_outputs(node)])


def _aggregate_protected(
    spark: Any, leaf: TableScan, handle: LakeHandle, aggregation: Aggregation, connectors: Mapping[str, Connector]
) -> Any | None:
    """Return an aggregation of visible rows: from metadata if that answers all of it, else by Spark."""
    with redact_errors():
        answered, rest = answer_aggregation(handle, aggregation)
    if not rest.files.num_rows:
        return to_frame(spark, answered, [output.name for output in leaf.columns])
    rows = handle.without_aggregation(aggregation)
    outputs = tuple(Output(each.name, each.type) for each in rows.columns)
    visible = make_protected_frame(spark, replace(leaf, handle=rows, columns=outputs), connectors)
    if visible is None:
        return None
    return aggregate_rows(spark, visible, rows, aggregation).toDF(*(output.name for output in leaf.columns))


def _assign_tasks(planner: ScanPlanner, count: int) -> pa.Table:
    """Return the tasks of a scan in `count` groups. Some groups may be empty."""
    groups = pack_tasks(planner.plan_listing(planner.listing).tasks())
    shares = [[task for group in groups[number::count] for task in group] for number in range(count)]
    texts = [serialize_tasks(planner.reader, share) if share else b"" for share in shares]
    return pa.table([pa.array(range(count), pa.int32()), pa.array(texts, pa.binary())], schema=INPUT)


def _step_to_json(step: Filter | Project, connectors: Mapping[str, Connector]) -> dict[str, Any]:
    """Return a step of a policy as JSON values."""
    if isinstance(step, Filter):
        return {"filter": expression_to_json(step.predicate)}
    outputs = [[output.name, expression_to_json(output.expr)] for output in step.outputs]
    return {"outputs": outputs, "schema": schema_to_text(make_protected_schema(step, connectors))}


# --- On workers -------------------------------------------------------------------------------------------------------


def read_visible_rows(arguments: str, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the visible rows of one Spark task."""
    yield from redact_errors_of(_read_visible(Arguments(arguments), batches))


def _read_visible(arguments: Arguments, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    reader = reader_from_json(arguments)
    columns = [(name, tuple(path)) for name, path in arguments["columns"]]
    steps = [_make_step(given) for given in arguments["steps"]]
    schema = to_row_schema(schema_from_text(arguments["output"]))
    shares = (share for batch in batches for share in batch.column("tasks").to_pylist() if share)
    for share in shares:
        for batch in read_tasks(reader, tasks_from_table(read_table(share))):
            visible = _rename_scan_columns(batch, columns)
            for step in steps:
                visible = step(visible)
            yield convert_rows(visible, schema)


def _make_step(given: Mapping[str, Any]) -> Step:
    if "filter" in given:
        return Residual(split_conjuncts(bound_from_json(given["filter"]))).filter
    outputs = [Named(name, bound_from_json(expr)) for name, expr in given["outputs"]]
    return Projection(outputs, schema_from_text(given["schema"]))


def _rename_scan_columns(batch: pa.RecordBatch, columns: Sequence[tuple[str, tuple[str, ...]]]) -> pa.RecordBatch:
    """Return the columns of a scan under their names in the plan; some are fields inside structs."""
    arrays = [
        pc.struct_field(batch.column(first), list(inner)) if inner else batch.column(first)
        for _, (first, *inner) in columns
    ]
    return pa.RecordBatch.from_arrays(arrays, [name for name, _ in columns])


logger = logging.getLogger("tamis")


def find_time_zone(spark: Any) -> tzinfo:
    """Return the time zone of a session, which applies to timestamps without one."""
    check_session(spark)
    return parse_zone(str(spark.conf.get("spark.sql.session.timeZone")))


def is_ansi(spark: Any) -> bool:
    """Return whether a session is in ANSI mode, so that an overflow is an error."""
    return str(spark.conf.get("spark.sql.ansi.enabled")).lower() == "true"


def make_query_dataframe(spark: Any, query: CompiledQuery) -> Any:
    """Return the DataFrame of a query. Scans are planned now, and read when Spark computes rows."""
    check_session(spark)
    from pyspark.errors import AnalysisException, ParseException

    def run(plan: Node, most_rows: int) -> pa.Table | None:
        frame = _build_frame(spark, query, plan).limit(most_rows + 1)
        title = "tamis: read the small side of a join"
        with translate_errors(title), name_jobs(spark, title):
            rows = frame.toArrow()
        return None if rows.num_rows > most_rows else rows

    try:
        plan = apply_dynamic_filters(query.optimized.plan, query.context, run)
        frame = _build_frame(spark, query, plan)
        return _rename_columns(frame, _find_spark_names(spark, query) or query.names)
    except (AnalysisException, ParseException) as error:
        logger.info("Spark rejects the plan, so the query runs as text: %s", to_one_line(error))
    try:
        # Spark may still accept the text of the query.
        frame = _build_frame(spark, query, query.plain.plan)
        return _rename_columns(frame, _find_spark_names(spark, query) or query.plain.names)
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


def _find_spark_names(spark: Any, query: CompiledQuery) -> Sequence[str] | None:
    """Return the names that Spark gives to the columns of a query, such as `count(1)`; None if Tamis' names are these.

    Spark analyses the text over empty tables. In a case-sensitive session that also finds names in another case.
    """
    from pyspark.errors import AnalysisException

    may_differ = is_case_sensitive(spark)
    found = find_tables_in_text(query.text, query.tables)
    if found is None or not (may_differ or any(_may_be_named(each, query.names) for each in found.outputs)):
        return None
    # A subquery costs one call of the JVM; an empty DataFrame for each table would cost dozens.
    text = _replace_tables(found, [f"({_write_empty_table(table.schema)})" for table in found.tables], str)
    try:
        names: list[str] = spark.sql(text, query.arguments or None).columns
    except list_spark_exceptions() as error:
        is_unresolved = isinstance(error, AnalysisException) and _UNRESOLVED.search(str(error))
        if may_differ and is_unresolved:
            raise query.make_rejection_error(error, _make_engine_error) from error
        logger.debug("Spark cannot name the columns of the text: %s", to_one_line(error))
        return None
    return names if query.names is None or len(names) == len(query.names) else None


_UNRESOLVED = re.compile(r"UNRESOLVED_COLUMN|FIELD_NOT_FOUND|TABLE_OR_VIEW_NOT_FOUND")


def _replace_tables(found: TablesInText, replacements: Sequence[str], write: Callable[[str], str]) -> str:
    """Return the text with other tables, under the same names. `write` writes the text between them."""
    fragments: list[str] = []
    offset = 0
    for table, replacement in zip(found.tables, replacements, strict=True):
        # A sample stands before the alias.
        sampled = None if table.has_alias else _SAMPLE.match(found.text, table.end)
        end = table.end if sampled is None else sampled.end()
        alias = "" if table.has_alias else f" AS {quote_name(table.name)}"
        sample = write(found.text[table.end : end])
        fragments += [write(found.text[offset : table.start]), replacement, sample, alias]
        offset = end
    return "".join([*fragments, write(found.text[offset:])])


_SAMPLE = re.compile(r"\s*TABLESAMPLE\s*\([^()]*\)(?:\s*REPEATABLE\s*\([^()]*\))?", re.IGNORECASE)


def _write_empty_table(schema: pa.Schema) -> str:
    fields = to_spark_schema(to_row_schema(schema)).fields
    columns = (f"CAST(NULL AS {to_ddl(field.dataType)}) AS {quote_name(field.name)}" for field in fields)
    return f"SELECT {', '.join(columns)} WHERE false"


def _may_be_named(output: exp.Expr, names: Collection[str] | None) -> bool:
    """Return whether Spark's name of an output may differ from that of Tamis."""
    if isinstance(output, exp.Column) and not isinstance(output.this, exp.Star):
        return names is None or output.name not in names
    return not isinstance(output, exp.Alias | exp.Star | exp.Column)


def _rename_columns(frame: Any, names: Sequence[str] | None) -> Any:
    return frame if names is None or frame.columns == list(names) else frame.toDF(*names)


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
    if any(leaf is plan for _, leaf in found.leaves) and get_outputs(plan):
        return next(iter(frames.values()))
    frame = spark.sql(_mark_frames(text, frames), **frames)
    # Spark Connect analyses lazily: force it now, so that the caller can fall back to the text of the query.
    _ = frame.columns
    return frame


def _write_expression(expr: Expr) -> str:
    spelled: Expr = transform(expr, _spell_function)
    return to_sql(spelled)


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
        return to_frame(spark, leaf.rows, names)
    if isinstance(leaf, TableScan) and not leaf.is_protected:
        connector, handle = connectors[leaf.connector], leaf.handle
        if isinstance(connector, LakeConnector) and isinstance(handle, LakeHandle):
            return build_handle_frame(spark, handle, connector, names)
        frame = connector.find_frame(handle) if isinstance(connector, MemoryConnector) else None
        if frame is not None:
            return frame.toDF(*names) if names else frame
    if is_protected(leaf) and names:
        # Spark's optimizer may reorder conditions, so rows that a policy hides must never reach Spark.
        frame = make_protected_frame(spark, leaf, connectors)
        if frame is not None:
            return frame
    return to_frame(
        spark, pa.Table.from_batches(read_leaf(leaf, connectors), find_leaf_schema(leaf, connectors)), names
    )


def _build_empty_leaf(spark: Any, leaf: Node, connectors: Mapping[str, Connector]) -> Any:
    schema = leaf.rows.schema if isinstance(leaf, Values) else find_leaf_schema(leaf, connectors)
    return to_frame(spark, schema.empty_table(), [output.name for output in get_outputs(leaf)])


# --- Case-sensitive sessions ------------------------------------------------------------------------------------------
#
# Tamis resolves names without regard to case. Where no two names of a query and its tables differ only by case, each
# name means the same with regard to it, or nothing. All other queries are Spark's to resolve, over whole tables.


def make_case_sensitive_dataframe(
    spark: Any,
    text: str,
    arguments: Mapping[str, Any] | Sequence[Any] | None,
    tables: Tables,
    make_frame: Callable[[str], Any],
    check_name: Callable[[Sequence[str]], None],
) -> Any | None:
    """Return the DataFrame of a query in a case-sensitive session, if some of its names differ only by case.

    None for all other queries and sessions. `make_frame` returns the rows of a table by its name in SQL; `check_name`
    raises an error for a table that has another spelling.
    """
    check_session(spark)
    if not is_case_sensitive(spark):
        return None
    from pyspark.errors import AnalysisException, ParseException

    try:
        found = find_tables_in_text(text, tables)
    except TamisError as error:
        logger.debug("the query is checked without regard to case first: %s", error)
        return None
    if found is None:
        return None
    for table in found.tables:
        tokens = SparkCalls().tokenize(found.text[table.start : table.end])
        check_name([token.text for token in tokens if token.token_type != TokenType.DOT])
    if not _has_names_that_differ_by_case(found):
        return None
    frames = {
        f"table_{number}": make_frame(found.text[table.start : table.end])
        for number, table in enumerate(found.tables, start=1)
    }
    written = _replace_tables(found, [f"{{{name}}}" for name in frames], escape_braces if frames else str)
    try:
        rows = spark.sql(written, index_by_name(arguments) or None, **frames)
        _ = rows.columns
    except ParseException:
        return None  # it has something that only Tamis reads
    except AnalysisException as error:
        # The plan follows.
        raise _make_engine_error(str(error).splitlines()[0].rstrip(";")) from error
    logger.info("names of the query differ only by case, so Spark runs its text over whole tables")
    return rows


def _has_names_that_differ_by_case(found: TablesInText) -> bool:
    tokens = SparkCalls().tokenize(found.text)
    known = {name for table in found.tables for name in _list_names(table.schema)}
    folded = {name.casefold() for name in known}
    for number, token in enumerate(tokens):
        is_call = number + 1 < len(tokens) and tokens[number + 1].token_type == TokenType.L_PAREN
        is_name = token.token_type == TokenType.IDENTIFIER or (token.token_type == TokenType.VAR and not is_call)
        # Words of the language may be names of columns, too. Functions have one name in any case.
        is_column = token.token_type != TokenType.STRING and not is_call and token.text.casefold() in folded
        if is_name or is_column:
            known.add(token.text)
    return len({name.casefold() for name in known}) < len(known)


def _list_names(schema: pa.Schema) -> Iterator[str]:
    """Yield the names of all columns, and of the fields inside."""
    waiting = list(schema)
    while waiting:
        field = waiting.pop()
        yield field.name
        waiting += [field.type.field(index) for index in range(field.type.num_fields)]


# --- Run unsupported SQL as text on Spark, with DataFrames of whole tables in place of their names --------------------

_BEFORE_TABLES = (TokenType.FROM, TokenType.JOIN)
_NAMES = (TokenType.VAR, TokenType.IDENTIFIER)
_OTHER_THAN_QUERIES = frozenset(
    ("INSERT", "OVERWRITE", "MERGE", "UPDATE", "DELETE", "CREATE", "DROP", "ALTER", "TRUNCATE", "LOAD", "CALL")
)


def make_text_dataframe(spark: Any, text: str, frame_of: Callable[[str], Any | None]) -> Any | None:
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
