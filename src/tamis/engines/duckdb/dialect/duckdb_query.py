"""Queries in DuckDB SQL over the tables of a session.

The plan of a query is its text over one plan for each table. Such a plan has the columns that the text names, and the
conditions that a scan evaluates as DuckDB does. These conditions are copied into the scans and also stay in the text,
so DuckDB's own evaluation decides.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, NoReturn

import duckdb
import pyarrow as pa
from sqlglot import exp

from tamis import errors
from tamis.engines.duckdb.dialect.conditions import find_pushable_conditions
from tamis.engines.duckdb.dialect.syntax import (
    Reference,
    Syntax,
    find_names,
    fold_name,
    format_duckdb_error,
    read_syntax,
)
from tamis.engines.duckdb.native_scan import collect_macros, plan_native_scans, quote_duckdb_name
from tamis.engines.duckdb.run.run_plan import (
    BATCH_ROWS,
    RunningQuery,
    make_empty_leaf,
    open_parser_connection,
    raise_keyboard_interrupt,
    start_engine,
)
from tamis.engines.duckdb.translate.functions import write_macro_statements
from tamis.expr.nodes import Column, Expr, or_
from tamis.expr.sql.syntax import refuse_surrogates
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.query.catalog import TABLE_BY_PATH_SYNTAX
from tamis.query.connectors.connector import Connector
from tamis.query.plan.column_ids import ColumnIds
from tamis.query.plan.nodes import Filter, Named, Node, Project, Sql, TableScan, get_outputs, walk_plan
from tamis.query.plan.optimizer import Context
from tamis.query.query import CompiledQuery, Rules, find_disabled_rules
from tamis.query.sql.parameters import Arguments
from tamis.query.sql.planner import PlannedQuery
from tamis.query.sql.scopes import Field
from tamis.query.sql.sources import PlannedSource, Tables
from tamis.tuning import DEFAULT_TUNING, Tuning

_PRUNING_TYPES = (bool, int, float, str, Decimal, date, datetime)
"""Types of parameter values that a scan compares as DuckDB does."""


class DuckdbQuery(CompiledQuery):
    """A query in DuckDB's language."""

    def __init__(
        self,
        text: str,
        tables: Tables,
        connectors: Mapping[str, Connector],
        rules: Rules = True,
        *,
        arguments: Arguments | None = None,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        if not isinstance(text, str):
            raise errors.InvalidArgument(f"expected a query as SQL text, found {text!r}")
        if tables.has_policies:
            raise errors.AccessDenied(
                "a session with policies accepts queries in Spark's dialect only, whose functions are known to read "
                "nothing but their arguments: remove dialect='duckdb'"
            )
        refuse_surrogates(text)
        self.text = text
        self._tables = tables
        self._context = Context(connectors, tuning=tuning)
        self._switched_off = find_disabled_rules(rules, connectors)
        with open_parser_connection() as connection:
            self._syntax = read_syntax(text, connection)
            also_read = _find_table_names(text, connection) if self._syntax.is_opaque else []
        if self._syntax.is_listing:
            raise errors.UnsupportedFeature("SHOW is not supported: c.tables lists the tables of the session")
        self._parameters = _check_parameters(self._syntax.parameters, arguments)
        self._views = _ViewPlanner(tables, self._syntax, _index_by_name(self._parameters)).make_views(text, also_read)
        inputs = tuple((".".join(view.name), view.plan) for view in self._views)
        self._planned = PlannedQuery(Sql(exp.Var(this=text), inputs, ()), None)

    # --- Plans --------------------------------------------------------------------------------------------------------

    @property
    def plain(self) -> PlannedQuery:
        return self._planned

    @cached_property
    def schema(self) -> pa.Schema:
        if self._syntax.has_data_columns:
            running = self.run()
            running.close()
            return running.schema
        return find_result_columns(
            self.text, self._views, self._context.connectors, self._parameters, self._make_rejection_error
        )

    def on_spark(self, zone: object = None, *, is_ansi: bool = True) -> NoReturn:
        raise errors.InvalidArgument(
            "a query in DuckDB's dialect runs on the embedded engine only: do not call to_spark()"
        )

    def to_spark(self, spark: Any) -> NoReturn:
        self.on_spark()

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.run().batches())

    def run(self) -> RunningDuckdbQuery:
        plan = self.optimized.plan
        assert isinstance(plan, Sql)
        pairs = zip(self._views, plan.inputs, strict=True)
        views = [TableView(view.name, node, view.fields) for view, (_, node) in pairs]
        return RunningDuckdbQuery(
            self.text,
            views,
            self._context.connectors,
            self._parameters,
            self._make_rejection_error,
            self._context.tuning,
        )

    # --- Errors -------------------------------------------------------------------------------------------------------

    def check(self, spark: Any = None, *, only_if_doubtful: bool = False) -> None:
        """Raise if DuckDB rejects the query."""
        if not self._syntax.has_data_columns:
            _ = self.schema

    def _make_rejection_error(self, error: BaseException) -> errors.TamisError:
        message = format_duckdb_error(error)
        match error:
            case duckdb.ParserException():
                return errors.ParseError(message)
            case duckdb.CatalogException() if found := re.search(r"Table with name (\S+) does not exist", str(error)):
                return errors.TableNotFound(
                    f"no table {found[1]!r} in this session: register it with c.register(name, table)"
                )
            case duckdb.BinderException() if re.search(r"Referenced column .* not found", str(error)):
                return errors.UnknownColumn(message)
            case duckdb.BinderException() | duckdb.CatalogException():
                return errors.ExpressionError(message)
            case duckdb.PermissionException():
                return errors.UnsupportedFeature(
                    f"{message}. A query can read the tables of the session, but not files: register them with "
                    "c.register(name, table)"
                )
            case _:
                return errors.EvaluationError(f"the embedded engine could not finish the query: {message}")


class _ViewPlanner:
    """Finds the tables of a query, and the columns and conditions of each."""

    def __init__(self, tables: Tables, syntax: Syntax, parameters: Mapping[str, Any]) -> None:
        self._tables = tables
        self._syntax = syntax
        self._parameters = parameters
        self._column_ids = ColumnIds()
        self._found: dict[tuple[str, ...], tuple[tuple[str, ...], PlannedSource]] = {}

    def make_views(self, text: str, also_read: Sequence[tuple[str, ...]]) -> tuple[TableView, ...]:
        syntax = self._syntax
        for reference in syntax.references:
            self._find(reference.name)
        for name in (*also_read, *(find_names(text) if syntax.is_opaque and not syntax.references else ())):
            self._find_optional(name)
        conditions = self._find_conditions()
        return tuple(self._make_view(key, *found, conditions.get(key)) for key, found in self._found.items())

    def _find(self, name: tuple[str, ...]) -> None:
        if self._is_common(name):
            # The name may also refer to a table: inside of the common table expression itself, or in another query.
            self._find_optional(name)
            return
        key = _fold_parts(name)
        try:
            planned = self._tables.scan(name, self._column_ids)
        except errors.TableNotFound as error:
            # DuckDB quotes names with double quotes.
            raise errors.TableNotFound(
                str(error).replace(TABLE_BY_PATH_SYNTAX, TABLE_BY_PATH_SYNTAX.replace("`", '"'))
            ) from error
        known = self._found.setdefault(key, (name, planned))
        if known[0] != name and _find_handles(known[1].node) != _find_handles(planned.node):
            raise errors.InvalidArgument(
                f"{'.'.join(known[0])} and {'.'.join(name)} are two tables with the same name in DuckDB: "
                "register one of them under another name"
            )

    def _find_optional(self, name: tuple[str, ...]) -> None:
        if _fold_parts(name) in self._found:
            return
        # The name may not refer to a table.
        with suppress(errors.TableError):
            self._found[_fold_parts(name)] = name, self._tables.scan(name, self._column_ids)

    def _is_common(self, name: tuple[str, ...]) -> bool:
        return len(name) == 1 and fold_name(name[0]) in self._syntax.commons

    # --- Conditions ---------------------------------------------------------------------------------------------------

    def _find_conditions(self) -> dict[tuple[str, ...], Expr]:
        """Return for each table the disjunction of the conditions of all references to it."""
        if self._syntax.is_opaque:
            return {}
        of_reference: dict[Reference, Expr] = {}
        for block in self._syntax.blocks:
            of_reference |= find_pushable_conditions(block, self._get_fields, self._parameters)
        found: dict[tuple[str, ...], list[Expr | None]] = {}
        for reference in self._syntax.references:
            if not self._is_common(reference.name):
                found.setdefault(_fold_parts(reference.name), []).append(of_reference.get(reference))
        return {
            key: or_(*(each for each in dict.fromkeys(conditions) if each is not None))
            for key, conditions in found.items()
            if None not in conditions
        }

    def _get_fields(self, reference: Reference) -> Sequence[Field] | None:
        found = None if self._is_common(reference.name) else self._found.get(_fold_parts(reference.name))
        return None if found is None else found[1].fields

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _make_view(
        self, key: tuple[str, ...], name: tuple[str, ...], planned: PlannedSource, condition: Expr | None
    ) -> TableView:
        uses = [each for each in self._syntax.references if _fold_parts(each.name) == key]
        needs_all = (
            self._syntax.is_opaque or self._is_common(name) or any(each.needs_all or each.is_renamed for each in uses)
        )
        fields = planned.fields
        if not needs_all:
            fields = tuple(each for each in fields if fold_name(each.name) in self._syntax.mentioned)
        _refuse_case_collisions(fields)
        node: Node = planned.node
        if condition is not None:
            node = Filter(node, condition)
        if len(fields) < len(planned.fields):
            node = Project(node, tuple(Named(_get_column_id(each), each.value) for each in fields))
        return TableView(name, node, fields)


def _get_column_id(field: Field) -> str:
    assert isinstance(field.value, Column)  # a scan without policies returns columns
    return field.value.path[0]


def _fold_parts(name: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(fold_name, name))


def _find_handles(node: Node) -> object:
    return [(each.connector, each.handle) for each in walk_plan(node) if isinstance(each, TableScan)]


def _refuse_case_collisions(fields: Sequence[Field]) -> None:
    known: dict[str, str] = {}
    for name in (each.name for each in fields):
        other = known.setdefault(fold_name(name), name)
        if other is not name:
            raise errors.AmbiguousColumn(
                f"the columns {other!r} and {name!r} have the same name in DuckDB, which ignores case: "
                "use Spark's dialect, or register a table with other names"
            )


def _find_table_names(text: str, connection: duckdb.DuckDBPyConnection) -> list[tuple[str, ...]]:
    """Return the tables that DuckDB finds in a query; none if it fails."""
    try:
        found = connection.get_table_names(text, qualified=True)
    except duckdb.Error:
        return []
    return [name for each in sorted(found) for name in find_names(each)]


# --- Parameters -------------------------------------------------------------------------------------------------------


def _check_parameters(wanted: frozenset[str], arguments: Arguments | None) -> Parameters:
    """Return the values of all parameters in the form DuckDB accepts; raise if they do not match the text."""
    given: dict[str, Any] = {}
    if isinstance(arguments, Mapping):
        given = {str(name): _to_python(value) for name, value in arguments.items()}
    elif isinstance(arguments, Sequence) and not isinstance(arguments, str | bytes):
        given = {str(number): _to_python(value) for number, value in enumerate(arguments, 1)}
    elif arguments is not None:
        raise errors.InvalidArgument(
            f"args= must be a mapping for $name, or a list for ?, found {errors.add_article(type(arguments).__name__)}"
        )
    missing = sorted(wanted - given.keys())
    if missing:
        name = missing[0]
        example = "args=[value, …]" if name.isdecimal() else f"args={{{name!r}: value}}"
        raise errors.MissingValue(
            f"the parameter ${name} of the query has no value: pass it as in c.sql(query, {example}, dialect='duckdb')"
        )
    unused = [name for name in given if name not in wanted]
    if unused:
        raise errors.InvalidArgument(f"args= has a value for ${unused[0]}, but the query has no such parameter")
    for name, value in given.items():
        if isinstance(value, PartitionFilter):
            raise errors.InvalidArgument(
                f"${name} is a PartitionFilter, which a query in DuckDB's dialect cannot test: "
                "register table.scan(filter) under a name, or use Spark's dialect"
            )
        if isinstance(value, str) and errors.find_lone_surrogate(value) is not None:
            raise errors.InvalidArgument(
                f"the value of ${name} is not valid Unicode, it has half of a surrogate pair: {value!r}"
            )
    return given if not isinstance(arguments, Sequence) else list(given.values())


def _to_python(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _index_by_name(parameters: Parameters) -> dict[str, Any]:
    """Return the parameters that scans may compare with, by name."""
    if parameters is None:
        return {}
    pairs = (
        parameters.items()
        if isinstance(parameters, Mapping)
        else zip(map(str, range(1, len(parameters) + 1)), parameters, strict=True)
    )
    return {name: value for name, value in pairs if type(value) in _PRUNING_TYPES}


# --- Execution of a DuckDB SQL query on its own engine ----------------------------------------------------------------
#
# The engine is started for the query and closed after it. It reads Arrow streams of scans, the files of native scans,
# and nothing else. Each table of the query is a view with the name that the query uses, in a schema and a database of
# that name, so that the text needs no change:
#
#     orders → memory.main.orders      sales.orders → memory.sales.orders      pg.public.orders → pg.public.orders

Parameters = Mapping[str, Any] | Sequence[Any] | None

_BUILT_IN_DATABASES = frozenset(("memory", "temp", "system"))


@dataclass(frozen=True, slots=True)
class TableView:
    """A table of a query: its name, its plan, and the columns of the plan that the view has."""

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
        tuning: Tuning,
    ) -> None:
        self._explain = explain
        self._tuning = tuning
        self._failures: list[BaseException] = []
        leaves = _make_leaves(text, views)
        named = [(leaf.name, leaf.scan) for leaf in leaves]
        own = plan_native_scans(named, connectors)
        self._connection = start_engine([path for files in own.values() for path in files.paths])
        try:
            with _translate_errors(self._explain_failure):
                _configure(self._connection)
                for macro in write_macro_statements(collect_macros(own)):
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
    """Return a query as a lazy relation of DuckDB; raise DuckDB's error with its position."""
    try:
        return connection.sql(text) if not parameters else connection.sql(text, params=parameters)
    except (duckdb.BinderException, duckdb.CatalogException):
        # A relation does not tell the position. A query that cannot be bound does not run here either.
        connection.execute(text, parameters or None)
        raise


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
        raise errors.InvalidArgument(
            f"{name} is a built-in database of DuckDB, so no table can be called {name}.…: use another name"
        )


def _quote_path(path: Sequence[str]) -> str:
    return ".".join(map(quote_duckdb_name, path))
