"""Execution of a DuckDB SQL query on its own engine.

The engine is started for the query and closed after it. It reads Arrow streams of scans, the files of native scans, and
nothing else. Each table of the query is a view with the name that the query uses, in a schema and a database of that
name, so that the text needs no change:

    orders → memory.main.orders      sales.orders → memory.sales.orders      pg.public.orders → pg.public.orders
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import duckdb
import pyarrow as pa

from tamis.errors import InvalidArgument
from tamis.expr.nodes import Column
from tamis.pushdown.connector import Connector
from tamis.pushdown.duckdb_dialect.syntax import fold_name
from tamis.pushdown.embedded import BATCH_ROWS, RunningQuery, make_empty_leaf, raise_keyboard_interrupt, start_engine
from tamis.pushdown.nodes import Filter, Node, Project, TableScan, get_outputs
from tamis.pushdown.own_files import plan_native_scans, quote_duckdb_name
from tamis.pushdown.scopes import Field
from tamis.scan.spark_functions import write_macro_statements

Parameters = Mapping[str, Any] | Sequence[Any] | None

_BUILT_IN_DATABASES = frozenset(("memory", "temp", "system"))


@dataclass(frozen=True, slots=True)
class TableView:
    """A table of a query: its name there, the plan of its rows, and its columns over that plan."""

    name: tuple[str, ...]
    plan: Node
    fields: tuple[Field, ...]


@dataclass(frozen=True, slots=True)
class _Leaf:
    """The scan of a table under a generated name, with its columns' names in the query."""

    name: str
    scan: TableScan
    columns: tuple[tuple[str, str], ...]
    """The name of each column in the query and in the scan."""


class RunningDuckdbQuery(RunningQuery):
    """One run of a text over views. Its batches can be read once."""

    def __init__(
        self,
        text: str,
        views: Sequence[TableView],
        connectors: Mapping[str, Connector],
        parameters: Parameters,
        explain: Callable[[BaseException], BaseException],
    ) -> None:
        self._explain = explain
        self._failures: list[BaseException] = []
        leaves = _make_leaves(text, views)
        named = [(leaf.name, leaf.scan) for leaf in leaves]
        own = plan_native_scans(named, connectors)
        self._connection = start_engine([path for files in own.values() for path in files.paths])
        try:
            with _translate_errors(self._explain_failure):
                _configure(self._connection)
                for macro in write_macro_statements("; ".join(files.query for files in own.values())):
                    self._connection.execute(macro)
            self._register_all(named, own, connectors)
            with _translate_errors(self._explain_failure), raise_keyboard_interrupt():
                _create_views(self._connection, views, leaves)
                self._reader = make_relation(self._connection, text, parameters).to_arrow_reader(BATCH_ROWS)
        except BaseException:
            self._connection.close()
            raise
        self.schema = self._reader.schema


def find_result_columns(
    text: str,
    views: Sequence[TableView],
    connectors: Mapping[str, Connector],
    parameters: Parameters,
    explain: Callable[[BaseException], BaseException],
) -> pa.Schema:
    """Return the columns that a text returns. Nothing is read: the tables are empty here."""
    leaves = _make_leaves(text, views)
    connection = start_engine(())
    try:
        with _translate_errors(explain):
            _configure(connection)
            for leaf in leaves:
                connection.register(leaf.name, make_empty_leaf(leaf.scan, connectors))
            _create_views(connection, views, leaves)
            # Table functions would run without a limit.
            return make_relation(connection, text, parameters).limit(0).to_arrow_reader().schema
    finally:
        connection.close()


def make_relation(connection: duckdb.DuckDBPyConnection, text: str, parameters: Parameters) -> duckdb.DuckDBPyRelation:
    return connection.sql(text) if not parameters else connection.sql(text, params=parameters)


@contextmanager
def _translate_errors(explain: Callable[[BaseException], BaseException]) -> Iterator[None]:
    try:
        yield
    except duckdb.Error as error:
        raise explain(error) from error


def _configure(connection: duckdb.DuckDBPyConnection) -> None:
    connection.execute("SET TimeZone = 'UTC'; SET python_enable_replacements = false")


def _make_leaves(text: str, views: Sequence[TableView]) -> list[_Leaf]:
    prefix = "tamis"
    while prefix in text.lower() or any(prefix in part.lower() for view in views for part in view.name):
        # A generated name would shadow a table of the query.
        prefix += "_"
    found = []
    for number, view in enumerate(views, 1):
        scan, names = _find_scan(view.plan)
        columns = []
        for field in view.fields:
            assert isinstance(field.value, Column)
            columns.append((field.name, names[field.value.path[0]]))
        found.append(_Leaf(f"{prefix}_scan_{number}", scan, tuple(columns)))
    return found


def _find_scan(plan: Node) -> tuple[TableScan, dict[str, str]]:
    """Return the scan below a plan, and for each output of the plan the column of the scan.

    Filters are dropped: the text of the query has all of their conditions.
    """
    names = {output.name: output.name for output in get_outputs(plan)}
    while not isinstance(plan, TableScan):
        match plan:
            case Filter(protects=False):
                pass
            case Project(protects=False):
                below = {each.name: each.expr.path[0] for each in plan.outputs if isinstance(each.expr, Column)}
                names = {output: below[name] for output, name in names.items() if name in below}
            case _:
                raise TypeError(f"expected the plan of a single table, found {type(plan).__name__}")
        plan = plan.source
    return plan, names


def _create_views(connection: duckdb.DuckDBPyConnection, views: Sequence[TableView], leaves: Sequence[_Leaf]) -> None:
    databases = {fold_name(view.name[0]): view.name[0] for view in views if len(view.name) > 2}
    for folded, name in databases.items():
        _refuse_built_in_database(folded, name)
        connection.execute(f"ATTACH ':memory:' AS {quote_duckdb_name(name)}")
    for view, leaf in zip(views, leaves, strict=True):
        match view.name:
            case (table,):
                path = ("memory", "main", table)
            case (first, table) if fold_name(first) in databases:
                path = (first, "main", table)
            case (schema, table):
                _refuse_built_in_database(fold_name(schema), schema)
                path = ("memory", schema, table)
            case (database, schema, table):
                path = (database, schema, table)
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {_quote_path(path[:2])}")
        columns = ", ".join(f"{quote_duckdb_name(own)} AS {quote_duckdb_name(name)}" for name, own in leaf.columns)
        connection.execute(
            f"CREATE VIEW {_quote_path(path)} AS SELECT {columns or '*'} FROM temp.main.{quote_duckdb_name(leaf.name)}"
        )


def _refuse_built_in_database(folded: str, name: str) -> None:
    if folded in _BUILT_IN_DATABASES:
        raise InvalidArgument(
            f"{name} is a built-in database of DuckDB, so no table can be called {name}.…: use another name"
        )


def _quote_path(path: Sequence[str]) -> str:
    return ".".join(map(quote_duckdb_name, path))
