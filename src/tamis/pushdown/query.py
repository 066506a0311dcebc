"""Queries as people hold them: planned when they are made, run when they are asked for rows."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from tamis.errors import EvaluationError, InvalidArgument
from tamis.pushdown.connector import Connector
from tamis.pushdown.direct import Direct, direct
from tamis.pushdown.embedded import CannotTranslate, Running
from tamis.pushdown.explain import explain
from tamis.pushdown.nodes import Node
from tamis.pushdown.optimizer import Context, Optimized, optimize
from tamis.pushdown.rules import ALL
from tamis.pushdown.run_time import prune_joins
from tamis.pushdown.sql_plan import PlannedQuery, plan_query, read_query
from tamis.pushdown.sql_sources import Tables
from tamis.scan.results import duckdb_relation, polars_frame

if TYPE_CHECKING:
    import duckdb
    import pandas
    import polars

logger = logging.getLogger("tamis")

Rules = Mapping[str, bool] | bool


class Query:
    """A query over the tables of a session. It reads nothing before one of its methods asks for rows.

    `rules` switches rules off by name, or all of them with False; the rows are the same with any.
    """

    def __init__(self, text: str, tables: Tables, connectors: Mapping[str, Connector], rules: Rules = True) -> None:
        if not isinstance(text, str):
            raise InvalidArgument(f"a query is a text in SQL, not {text!r}")
        self.text = text
        self._tables = tables
        self._context = Context(connectors)
        self._switched_off = _switched_off(rules)
        self._moment = datetime.now(UTC)
        self._tree = read_query(text)
        self._planned = plan_query(self._tree, tables, moment=self._moment)

    # --- Plans --------------------------------------------------------------------------------------------------------

    @property
    def plan(self) -> Node:
        """The plan as it was asked for."""
        return self._planned.plan

    @property
    def names(self) -> tuple[str, ...] | None:
        """The names of the columns; None where only the engine knows them."""
        return self._planned.names

    @cached_property
    def optimized(self) -> Optimized:
        """The plan after the rules, and what they did."""
        return self._optimize(self._planned)

    def _optimize(self, planned: PlannedQuery) -> Optimized:
        return optimize(planned.plan, ALL, self._context, switched_off=self._switched_off)

    @cached_property
    def plain(self) -> PlannedQuery:
        """The query as one text over its tables, for engines that cannot take the plan."""
        return plan_query(self._tree, self._tables, moment=self._moment, plain=True)

    @property
    def context(self) -> Context:
        return self._context

    def explain(self, format: str = "text") -> str:
        """The plan before and after the rules, what each rule did, and what each scan will read."""
        found = self.optimized
        return explain(self.text, self.plan, found.plan, found.accounts, self._context.connectors, format)

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def _run(self) -> Running | Direct:
        try:
            return self._run_plan(self.optimized.plan, self.names)
        except CannotTranslate as error:
            logger.info("the engine does not take the plan, so the query runs as it was written: %s", error)
        try:
            # Whatever is wrong with the plan, the engine may still take the query as it was written.
            return self._run_plan(self._optimize(self.plain).plan, self.plain.names)
        except CannotTranslate as error:
            raise EvaluationError(f"the embedded engine does not take the query: {error}") from error

    def _run_plan(self, plan: Node, names: Sequence[str] | None) -> Running | Direct:
        pruned = prune_joins(plan, self._context, self._run_to_table)
        connectors = self._context.connectors
        return direct(pruned, names, connectors) or Running(pruned, names, connectors)

    def _run_to_table(self, plan: Node, most_rows: int) -> pa.Table | None:
        running = Running(plan, None, self._context.connectors)
        batches: list[pa.RecordBatch] = []
        rows = 0
        for batch in running.batches():
            rows += batch.num_rows
            if rows > most_rows:
                running.close()
                return None
            batches.append(batch)
        return pa.Table.from_batches(batches, running.schema)

    def to_batches(self) -> Iterator[pa.RecordBatch]:
        """The rows, batch by batch."""
        return self._run().batches()

    def to_reader(self) -> pa.RecordBatchReader:
        """The rows as an Arrow reader, which knows their columns before the first batch."""
        running = self._run()
        return pa.RecordBatchReader.from_batches(running.schema, running.batches())

    def to_arrow(self) -> pa.Table:
        """All rows as one Arrow table."""
        running = self._run()
        return pa.Table.from_batches(running.batches(), running.schema)

    def to_pandas(self) -> pandas.DataFrame:
        """All rows as a pandas DataFrame."""
        return self.to_arrow().to_pandas()

    def to_polars(self) -> polars.DataFrame:
        """All rows as a polars DataFrame."""
        return polars_frame(self.to_arrow())

    def to_duckdb(self, connection: duckdb.DuckDBPyConnection | None = None) -> duckdb.DuckDBPyRelation:
        """The rows as a DuckDB relation, which runs the query each time it is used."""
        return duckdb_relation(self, connection)

    def to_spark(self, spark: Any) -> Any:
        """The rows as a lazy Spark DataFrame: pruned scans, and the rest of the query as Spark's SQL."""
        # A layer above this one, found by its name.
        from importlib import import_module

        return import_module("tamis.spark.queries").frame_of(spark, self)

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        """The rows as an Arrow C stream, so that polars, duckdb, pyarrow and others take a query as it is."""
        return self.to_reader().__arrow_c_stream__(requested_schema)

    def __repr__(self) -> str:
        return f"<tamis.Query {' '.join(self.text.split())}>"


def _switched_off(rules: Rules) -> frozenset[str]:
    if isinstance(rules, bool):
        return frozenset() if rules else frozenset(rule.name for rule in ALL)
    return frozenset(name for name, is_on in rules.items() if not is_on)
