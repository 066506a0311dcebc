"""Queries: planned when they are made, run when they are asked for rows.

`Query` is what people hold. `CompiledQuery` is the plan behind it, which the engines run.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, tzinfo
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
from sqlglot import exp

from tamis.errors import (
    EvaluationError,
    InvalidArgument,
    TamisError,
    TypeMismatch,
    suggest_method_arguments,
    suggest_name,
)
from tamis.expr.nodes import Column
from tamis.expr.sql.refusals import refuse_reserved
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.query.connectors.connector import Connector, conform_batch
from tamis.query.engine import QueryEngine, Running, UntranslatableQuery, query_engine, spark_queries
from tamis.query.plan.explain import explain
from tamis.query.plan.nodes import Aggregate, AggregateCall, Node, Project, Sql, TableScan, walk_plan
from tamis.query.plan.optimizer import Context, Optimized, optimize
from tamis.query.rules import collect_rules
from tamis.query.rules.joins.prune_with_dynamic_filters import apply_dynamic_filters
from tamis.query.sql.grouping import refuse_maps
from tamis.query.sql.name_errors import find_name_error, find_quoted_name_error, has_unknown_function
from tamis.query.sql.normalise_query import normalise_query
from tamis.query.sql.parameters import Arguments, fill_parameters, index_by_name, number_parameters
from tamis.query.sql.partition_conditions import move_partition_conditions_into_tables
from tamis.query.sql.planner import PlannedQuery, plan_query, read_query
from tamis.query.sql.scopes import QueryTime
from tamis.query.sql.sources import Tables
from tamis.query.sql.table_versions import move_versions_into_names
from tamis.query.sql.trees import mark_maps, replace_current_user
from tamis.scan.reading.pipeline import coalesce_batches
from tamis.scan.scan import Rows
from tamis.tuning import DEFAULT_TUNING, Tuning

if TYPE_CHECKING:
    import duckdb

logger = logging.getLogger("tamis")

Rules = Mapping[str, bool] | bool


class CompiledQuery:
    """The plan of a query over the tables of a session.

    `rules` switches rules off by name, or all of them with False; rules never change the rows of the result.
    `current_user()` is the principal, NULL without one; without `knows_principal` the engine answers it. The plan is
    one for the embedded engine, or for Spark with `on_spark`: `zone` is the time zone of the Spark session, and with
    `is_ansi` it raises an error for a value that does not fit its type.
    """

    def __init__(
        self,
        text: str,
        tables: Tables,
        connectors: Mapping[str, Connector],
        rules: Rules = True,
        *,
        arguments: Arguments | None = None,
        principal: str | None = None,
        knows_principal: bool = True,
        on_spark: bool = False,
        zone: tzinfo = UTC,
        is_ansi: bool = True,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        if not isinstance(text, str):
            raise InvalidArgument(f"a query must be a text in SQL, found {text!r}")
        self.text = text
        self._tables = tables
        self._context = Context(connectors, has_workers=on_spark, is_utc=zone is UTC, is_ansi=is_ansi, tuning=tuning)
        self._switched_off = find_disabled_rules(rules, connectors)
        self._started_at = datetime.now(zone)
        # The type of a condition is all that Spark needs to name columns.
        self.arguments = {name: True if isinstance(value, PartitionFilter) else value
                          for name, value in index_by_name(arguments).items()}  # fmt: skip
        tree = read_query(number_parameters(text))
        if not on_spark:
            refuse_reserved(tree)
        fill_parameters(tree, arguments)
        tree = normalise_query(tree)
        move_versions_into_names(tree, self._started_at)
        self._tree = replace_current_user(tree, principal) if knows_principal else tree
        move_partition_conditions_into_tables(self._tree, tables)
        tables.check(text, self._tree)
        self._planned = plan_query(self._tree, tables, now=self._now)
        scans = [node for node in walk_plan(self.plan) if isinstance(node, TableScan)]
        types = [(output.name.rpartition(".")[2], output.type) for scan in scans for output in scan.columns]
        maps = {name.casefold() for name, kind in types if kind is not None and pa.types.is_map(kind)}
        maps -= {name.casefold() for name, kind in types if kind is None or not pa.types.is_map(kind)}
        if maps and mark_maps(self._tree, maps):
            self._planned = plan_query(self._tree, tables, now=self._now)
        if (error := find_quoted_name_error(self._tree, tables)) is not None:
            if not on_spark:
                raise error
            # Spark accepts it.
            logger.warning("%s", error)

    # --- Plans --------------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Node:
        """The plan before the rules."""
        return self._planned.plan

    @property
    def tables(self) -> Tables:
        """The tables of the session that the user may see."""
        return self._tables

    @property
    def has_policies(self) -> bool:
        """Return whether policies decide what may be seen."""
        return self._tables.has_policies

    @property
    def _now(self) -> QueryTime:
        return QueryTime(self._started_at, on_spark=self._context.has_workers)

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None if the engine decides them."""
        return self._planned.names

    @cached_property
    def optimized(self) -> Optimized:
        """The plan after the rules, with the effect of each rule."""
        return self._optimize(self._planned)

    def _optimize(self, planned: PlannedQuery) -> Optimized:
        rules = collect_rules(self._context.connectors)
        return optimize(planned.plan, rules, self._context, switched_off=self._switched_off)

    @cached_property
    def plain(self) -> PlannedQuery:
        """The query as one SQL text over its tables, for engines that do not accept the plan."""
        return plan_query(self._tree, self._tables, now=self._now, plain=True)

    @cached_property
    def schema(self) -> pa.Schema:
        """The columns of the result, in the types of the embedded engine. No table is read for it."""
        connectors = self._context.connectors
        try:
            return query_engine().find_result_schema(self.plan, self.names, connectors)
        except UntranslatableQuery:
            try:
                return query_engine().find_result_schema(self.plain.plan, self.plain.names, connectors)
            except UntranslatableQuery as error:
                raise self.make_rejection_error(error.__cause__ or error, _make_engine_error) from error

    @property
    def context(self) -> Context:
        """What the rules know about the tables and the engine."""
        return self._context

    def on_spark(self, zone: tzinfo = UTC, *, is_ansi: bool = True) -> CompiledQuery:
        """Return the same query with a plan for Spark, whose session is in a time zone."""
        context = replace(self._context, has_workers=True, is_utc=zone is UTC, is_ansi=is_ansi)
        if context == self._context and self._started_at.tzinfo == zone:
            return self
        found = CompiledQuery.__new__(CompiledQuery)
        vars(found).update(vars(self))
        for name, member in vars(CompiledQuery).items():
            if isinstance(member, cached_property):
                vars(found).pop(name, None)
        found._context = context
        found._started_at = self._started_at.astimezone(zone)
        found._planned = plan_query(found._tree, found._tables, now=found._now)
        return found

    def explain(self, format: str = "text") -> str:
        """Return the plan before and after the rules, the effect of each rule, and what each scan will read."""
        found = self.optimized
        connectors = self._context.connectors
        return explain(self.text, self.plan, found.plan, found.rule_metrics, connectors, format, self.names)

    # --- Mistakes -----------------------------------------------------------------------------------------------------

    def check(self, spark: Any = None, *, only_if_doubtful: bool = False) -> None:
        """Raise the error of the embedded engine, or of Spark, for a query that it does not accept.

        This loads the engine. With `only_if_doubtful`, it is loaded only if Tamis does not know a name, a type or a
        function of the query.
        """
        if only_if_doubtful and not self._is_doubtful:
            return
        if spark is not None:
            spark_queries().check_query(spark, self)
            return
        _ = self.schema
        self._refuse_invalid_texts()

    def _refuse_invalid_texts(self) -> None:
        """Raise for a comparison with a text that is not a value of the type, which the engine finds only in a run."""
        for doubt in self._planned.binder_errors:
            if isinstance(doubt, TypeMismatch) and doubt.failing_cast is not None:
                cast = CompiledQuery(f"SELECT {doubt.failing_cast}", self._tables, self._context.connectors)
                try:
                    list(cast.run().batches())
                except TamisError as error:
                    raise query_engine().explain_failure(self._tree, [doubt], doubt) from error

    @property
    def _is_doubtful(self) -> bool:
        if not any(isinstance(node, Sql) for node in walk_plan(self.plan)):
            return False
        is_known = not self._planned.binder_errors and not has_unknown_function(self._tree)
        return not is_known or find_name_error(self._tree, self._tables) is not None

    def make_rejection_error(self, error: BaseException, otherwise: Callable[[str], TamisError]) -> TamisError:
        """Return the error for a query that an engine does not accept, in terms of the query.

        `otherwise` makes the error if only the engine's own message is known.
        """
        return query_engine().explain_rejection(self._tree, self._tables, self._planned.binder_errors, error, otherwise)

    def _make_failure_error(self, error: BaseException) -> TamisError:
        return query_engine().explain_failure(self._tree, self._planned.binder_errors, error)

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def run(self) -> Running:
        """Start the query on the embedded engine."""
        return self._run_translated(self._planned, lambda: self.plain)

    def count(self) -> int:
        """Return the number of rows, from metadata where possible."""
        if self._compares_rows:
            # The columns must be known, to refuse maps.
            return sum(batch.num_rows for batch in self.run().batches())
        running = self._run_translated(_count_of(self._planned), lambda: _count_of(self.plain))
        (counted,) = (value for batch in running.batches() for value in batch.column(0).to_pylist())
        return int(counted)

    def to_spark(self, spark: Any) -> Any:
        """Return the rows as a lazy Spark DataFrame: pruned scans, and the rest of the query as Spark's SQL."""
        zone, is_ansi = spark_queries().get_settings(spark)
        return spark_queries().make_query_dataframe(spark, self.on_spark(zone, is_ansi=is_ansi))

    def _run_translated(self, planned: PlannedQuery, plain: Callable[[], PlannedQuery]) -> Running:
        try:
            plan = self.optimized.plan if planned is self._planned else self._optimize(planned).plan
            return self._run_plan(plan, planned.names)
        except UntranslatableQuery as error:
            logger.info("the engine does not accept the plan, so the query runs as text: %s", error)
        try:
            # Whatever is wrong with the plan, the engine may still accept the query as it was written.
            return self._run_plan(self._optimize(plain()).plan, plain().names)
        except UntranslatableQuery as error:
            raise self.make_rejection_error(error.__cause__ or error, _make_engine_error) from error

    def _run_plan(self, plan: Node, names: Sequence[str] | None) -> Running:
        running = self._start(apply_dynamic_filters(plan, self._context, self._run_to_table), names)
        try:
            self._refuse_compared_maps(running.schema)
        except TamisError:
            running.close()
            raise
        return running

    def _start(self, plan: Node, names: Sequence[str] | None) -> Running:
        connectors = self._context.connectors
        engine = query_engine()
        return find_direct_result(plan, names, connectors, engine) or engine.start(
            plan, names, connectors, self._make_failure_error, is_guarded=self.has_policies, tuning=self._context.tuning
        )

    def _refuse_compared_maps(self, schema: pa.Schema) -> None:
        """Raise for DISTINCT over maps. Only the engine knows the types of parts that stayed text."""
        if self._compares_rows:
            refuse_maps(schema.types, "DISTINCT and set operations compare rows")

    @property
    def _compares_rows(self) -> bool:
        tree = self._tree
        is_union_all = isinstance(tree, exp.Union) and not tree.args.get("distinct")
        return bool(tree.args.get("distinct")) or (isinstance(tree, exp.SetOperation) and not is_union_all)

    def _run_to_table(self, plan: Node, most_rows: int) -> pa.Table | None:
        running = self._start(plan, None)
        batches: list[pa.RecordBatch] = []
        rows = 0
        for batch in running.batches():
            rows += batch.num_rows
            if rows > most_rows:
                running.close()
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches, running.schema)


def _count_of(planned: PlannedQuery) -> PlannedQuery:
    """Return the plan that counts the rows of another."""
    counted = AggregateCall("count", "count", type=pa.int64())
    return replace(planned, plan=Aggregate(planned.plan, (), (counted,)), names=("count",))


@suggest_method_arguments("Query")
class Query(Rows):
    """A query over the tables of a session. It reads nothing before one of its methods asks for rows.

    `Session.sql` makes it.
    """

    def __init__(self, compiled: CompiledQuery) -> None:
        self._compiled = compiled

    @property
    def text(self) -> str:
        """The query as it was written."""
        return self._compiled.text

    @property
    def schema(self) -> pa.Schema:
        """The columns of the result. No table is read for it."""
        return self._compiled.schema

    def explain(self, format: str = "text") -> str:
        """Return the plan before and after the rules, the effect of each rule, and what each scan will read."""
        return self._compiled.explain(format)

    def count(self) -> int:
        """Return the number of rows, from metadata where possible."""
        return self._compiled.count()

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows, batch by batch."""
        return self._compiled.run().batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """Return the rows as an Arrow reader, which knows their columns before the first batch."""
        running = self._compiled.run()
        return pa.RecordBatchReader.from_batches(running.schema, running.batches())

    def to_arrow(self) -> pa.Table:
        """Return all rows as one Arrow table."""
        running = self._compiled.run()
        return pa.Table.from_batches(running.batches(), running.schema)

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """Return the rows as a DuckDB relation, which runs the query each time it is used."""
        return super().to_duckdb(connection)

    def to_spark(self, spark: Any) -> Any:
        """Return the rows as a lazy Spark DataFrame: pruned scans, and the rest of the query as Spark's SQL."""
        return self._compiled.to_spark(spark)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a query cannot be pickled: send its text, or its rows, as in query.to_arrow()")

    def __repr__(self) -> str:
        return f"<tamis.Query {' '.join(self.text.split())}>"


def get_compiled_query(query: Query) -> CompiledQuery:
    return query._compiled


def _make_engine_error(reason: str) -> EvaluationError:
    return EvaluationError(f"the embedded engine does not accept the query: {reason}")


def find_disabled_rules(rules: Rules, connectors: Mapping[str, Connector]) -> frozenset[str]:
    """Return the names of the rules that `rules=` switches off."""
    known = list(dict.fromkeys(rule.name for rule in collect_rules(connectors)))
    if isinstance(rules, bool):
        return frozenset() if rules else frozenset(known)
    if not isinstance(rules, Mapping):
        raise InvalidArgument(
            f"rules= must be True, False, or a mapping of rules to True or False, as in "
            f"{{'push_limit_into_scan': False}}, found {rules!r}"
        )
    for name, is_on in rules.items():
        if name not in known:
            raise InvalidArgument(f"no rule {name!r}.{suggest_name(name, known)} Rules: {', '.join(known)}")
        if not isinstance(is_on, bool):
            raise InvalidArgument(f"rules= must switch the rule {name!r} to True or False, found {is_on!r}")
    return frozenset(name for name, is_on in rules.items() if not is_on)


# --- Direct results: plans that need no engine, because the whole query was pushed into one scan ----------------------


class DirectResult:
    """The rows of a scan, with its columns renamed and reordered, as a run of the engine would return them."""

    def __init__(self, scan: TableScan, columns: Sequence[tuple[str, int]], connector: Connector) -> None:
        """`columns` are output names, each with the position of its column in the scan."""
        self._scan = scan
        self._connector = connector
        given = connector.columns(scan.handle)
        self._positions = [position for _, position in columns]
        self._given = given
        self.schema = pa.schema([(name, given.field(position).type) for name, position in columns])

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in coalesce_batches(self._connector.read(self._scan.handle)):
            if batch.num_rows:
                checked = conform_batch(batch, self._given)
                arrays = [checked.column(position) for position in self._positions]
                yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def close(self) -> None:
        """Do nothing: a direct result holds no resources."""


def find_direct_result(
    plan: Node, names: Sequence[str] | None, connectors: Mapping[str, Connector], engine: QueryEngine
) -> DirectResult | None:
    """Return the result of a plan that only selects columns of a scan; None for other plans, or for a native scan."""
    found = _find_scan_columns(plan)
    if found is None:
        return None
    scan, columns = found
    if scan.is_protected or not columns:
        return None
    connector = connectors[scan.connector]
    if not all(engine.can_round_trip(each.type) for each in connector.columns(scan.handle)):
        return None
    if names is not None:
        columns = [(name, position) for name, (_, position) in zip(names, columns, strict=True)]
    return None if engine.reads_natively(scan, connector) else DirectResult(scan, columns, connector)


def _find_scan_columns(plan: Node) -> tuple[TableScan, list[tuple[str, int]]] | None:
    """Return the scan that a plan only selects columns from, with each name and its column's position in the scan."""
    match plan:
        case TableScan():
            return plan, [(output.name, position) for position, output in enumerate(plan.columns)]
        case Project(protects=False):
            below = _find_scan_columns(plan.source)
            if below is None:
                return None
            positions = dict(below[1])
            columns = [
                (each.name, positions[each.expr.path[0]])
                for each in plan.outputs
                if isinstance(each.expr, Column) and len(each.expr.path) == 1
            ]
            return (below[0], columns) if len(columns) == len(plan.outputs) else None
        case _:
            return None
