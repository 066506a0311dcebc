"""A query in DuckDB's language, over the tables of a session.

It is planned as one text over one plan for each table: the plan has the columns that the text names, and the conditions
that mean the same to a scan as to DuckDB. Those are copied, never moved, so that the answer is what DuckDB makes of the
text over all rows.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, NoReturn

import duckdb
import pyarrow as pa

from tamis.errors import (
    AccessDenied,
    AmbiguousColumn,
    EvaluationError,
    ExpressionError,
    InvalidArgument,
    MissingValue,
    ParseError,
    TableError,
    TableNotFound,
    TamisError,
    UnknownColumn,
    UnsupportedFeature,
    lone_surrogate,
    with_article,
)
from tamis.expr.nodes import Column, Expr, or_
from tamis.expr.sql_incomplete import refuse_surrogates
from tamis.pushdown.catalog import BY_PLACE
from tamis.pushdown.connector import Connector
from tamis.pushdown.duckdb_dialect.conditions import conditions_of
from tamis.pushdown.duckdb_dialect.running import (
    Parameters,
    RunningDuckdb,
    TableView,
    columns_of_answer,
)
from tamis.pushdown.duckdb_dialect.syntax import Reference, Syntax, fold_name, names_in, read_syntax, said_by
from tamis.pushdown.embedded import parsing_connection
from tamis.pushdown.nodes import Filter, Named, Node, Project, Sql, TableScan, walk_plan
from tamis.pushdown.optimizer import Context, Optimized
from tamis.pushdown.parameters import Arguments
from tamis.pushdown.query import CompiledQuery, Rules, switched_off
from tamis.pushdown.scopes import Field
from tamis.pushdown.sql_plan import PlannedQuery
from tamis.pushdown.sql_sources import Planned, Tables
from tamis.pushdown.symbols import Symbols

_PRUNING_TYPES = (bool, int, float, str, Decimal, date, datetime)
"""Values of parameters that mean the same to a scan as to DuckDB."""


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
    ) -> None:
        if not isinstance(text, str):
            raise InvalidArgument(f"a query is a text in SQL, not {text!r}")
        if tables.has_policies:
            raise AccessDenied(
                "a session with policies takes queries in Spark's dialect alone, whose functions are known to see "
                "nothing but their arguments: leave dialect='duckdb' away"
            )
        refuse_surrogates(text)
        self.text = text
        self._tables = tables
        self._context = Context(connectors)
        self._switched_off = switched_off(rules)
        with parsing_connection() as connection:
            self._syntax = read_syntax(text, connection)
            also_read = _names_that_are_read(text, connection) if self._syntax.is_opaque else []
        if self._syntax.is_listing:
            raise UnsupportedFeature("SHOW lists what the engine has: c.tables lists the tables of the session")
        self._parameters = _given_parameters(self._syntax.parameters, arguments)
        self._views = _Views(tables, self._syntax, _by_name(self._parameters)).of_query(text, also_read)
        inputs = tuple((".".join(view.name), view.plan) for view in self._views)
        self._planned = PlannedQuery(Sql(text, inputs, ()), None)

    # --- Plans --------------------------------------------------------------------------------------------------------

    @cached_property
    def optimized(self) -> Optimized:
        return self._optimize(self._planned)

    @property
    def plain(self) -> PlannedQuery:
        return self._planned

    @cached_property
    def schema(self) -> pa.Schema:
        if self._syntax.has_data_columns:
            running = self.run()
            running.close()
            return running.schema
        return columns_of_answer(self.text, self._views, self._context.connectors, self._parameters, self._refusal)

    def on_spark(self, zone: object = None, *, is_ansi: bool = True) -> NoReturn:
        raise InvalidArgument("a query in DuckDB's dialect runs on the embedded engine alone: leave to_spark() away")

    def to_spark(self, spark: Any) -> NoReturn:
        self.on_spark()

    # --- Rows ---------------------------------------------------------------------------------------------------------

    def count(self) -> int:
        return sum(batch.num_rows for batch in self.run().batches())

    def run(self) -> RunningDuckdb:
        plan = self.optimized.plan
        assert isinstance(plan, Sql)
        pairs = zip(self._views, plan.inputs, strict=True)
        views = [TableView(view.name, node, view.fields) for view, (_, node) in pairs]
        return RunningDuckdb(self.text, views, self._context.connectors, self._parameters, self._refusal)

    # --- Mistakes -----------------------------------------------------------------------------------------------------

    def check(self, spark: Any = None, *, only_if_doubtful: bool = False) -> None:
        """Raise where DuckDB does not take the query."""
        if not self._syntax.has_data_columns:
            _ = self.schema

    def _refusal(self, error: BaseException) -> TamisError:
        said = said_by(error)
        match error:
            case duckdb.ParserException():
                return ParseError(said)
            case duckdb.CatalogException() if found := re.search(r"Table with name (\S+) does not exist", str(error)):
                return TableNotFound(f"no table {found[1]!r} in this session: register it with c.register(name, table)")
            case duckdb.BinderException() if re.search(r"Referenced column .* not found", str(error)):
                return UnknownColumn(said)
            case duckdb.BinderException() | duckdb.CatalogException():
                return ExpressionError(said)
            case duckdb.PermissionException():
                return UnsupportedFeature(
                    f"{said}. A query reads the tables of the session, and no files: register them with "
                    "c.register(name, table)"
                )
            case _:
                return EvaluationError(f"the embedded engine could not finish the query: {said}")


class _Views:
    """Finds the tables of a query, and what it asks of each."""

    def __init__(self, tables: Tables, syntax: Syntax, parameters: Mapping[str, Any]) -> None:
        self._tables = tables
        self._syntax = syntax
        self._parameters = parameters
        self._symbols = Symbols()
        self._found: dict[tuple[str, ...], tuple[tuple[str, ...], Planned]] = {}

    def of_query(self, text: str, also_read: Sequence[tuple[str, ...]]) -> tuple[TableView, ...]:
        syntax = self._syntax
        for reference in syntax.references:
            self._find(reference.name)
        for name in (*also_read, *(names_in(text) if syntax.is_opaque and not syntax.references else ())):
            self._look_for(name)
        conditions = self._conditions()
        return tuple(self._view(key, *found, conditions.get(key)) for key, found in self._found.items())

    def _find(self, name: tuple[str, ...]) -> None:
        if self._is_common(name):
            # Inside of itself, and where another query gave the name, it is the table.
            self._look_for(name)
            return
        key = _key(name)
        try:
            planned = self._tables.scan(name, self._symbols)
        except TableNotFound as error:
            # Its names stand between double quotes.
            raise TableNotFound(str(error).replace(BY_PLACE, BY_PLACE.replace("`", '"'))) from error
        if planned is None:
            raise TableNotFound(f"no table {'.'.join(name)!r}: register it with c.register(name, table)")
        known = self._found.setdefault(key, (name, planned))
        if known[0] != name and _handles(known[1].node) != _handles(planned.node):
            raise InvalidArgument(
                f"{'.'.join(known[0])} and {'.'.join(name)} are two tables, whose names are the same to DuckDB: "
                "register one of them under another name"
            )

    def _look_for(self, name: tuple[str, ...]) -> None:
        try:
            planned = None if _key(name) in self._found else self._tables.scan(name, self._symbols)
        except TableError:
            # It was no table.
            return
        if planned is not None:
            self._found[_key(name)] = name, planned

    def _is_common(self, name: tuple[str, ...]) -> bool:
        return len(name) == 1 and fold_name(name[0]) in self._syntax.commons

    # --- Conditions ---------------------------------------------------------------------------------------------------

    def _conditions(self) -> dict[tuple[str, ...], Expr]:
        """For each table what its rows must satisfy in at least one of the places where the query reads it."""
        if self._syntax.is_opaque:
            return {}
        of_reference: dict[Reference, Expr] = {}
        for block in self._syntax.blocks:
            of_reference |= conditions_of(block, self._fields_of, self._parameters)
        found: dict[tuple[str, ...], list[Expr | None]] = {}
        for reference in self._syntax.references:
            if not self._is_common(reference.name):
                found.setdefault(_key(reference.name), []).append(of_reference.get(reference))
        return {
            key: or_(*(each for each in dict.fromkeys(conditions) if each is not None))
            for key, conditions in found.items()
            if None not in conditions
        }

    def _fields_of(self, reference: Reference) -> Sequence[Field] | None:
        found = None if self._is_common(reference.name) else self._found.get(_key(reference.name))
        return None if found is None else found[1].fields

    # --- Columns ------------------------------------------------------------------------------------------------------

    def _view(self, key: tuple[str, ...], name: tuple[str, ...], planned: Planned, condition: Expr | None) -> TableView:
        uses = [each for each in self._syntax.references if _key(each.name) == key]
        needs_all = (
            self._syntax.is_opaque or self._is_common(name) or any(each.needs_all or each.is_renamed for each in uses)
        )
        fields = planned.fields
        if not needs_all:
            fields = tuple(each for each in fields if fold_name(each.name) in self._syntax.mentioned)
        _refuse_twins(fields)
        node: Node = planned.node
        if condition is not None:
            node = Filter(node, condition)
        if len(fields) < len(planned.fields):
            node = Project(node, tuple(Named(_symbol(each), each.value) for each in fields))
        return TableView(name, node, fields)


def _symbol(field: Field) -> str:
    assert isinstance(field.value, Column)  # a scan without policies returns columns
    return field.value.path[0]


def _key(name: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(map(fold_name, name))


def _handles(node: Node) -> object:
    return [(each.connector, each.handle) for each in walk_plan(node) if isinstance(each, TableScan)]


def _refuse_twins(fields: Sequence[Field]) -> None:
    known: dict[str, str] = {}
    for name in (each.name for each in fields):
        other = known.setdefault(fold_name(name), name)
        if other is not name:
            raise AmbiguousColumn(
                f"the columns {other!r} and {name!r} have the same name to DuckDB, which compares names without regard "
                "to case: use Spark's dialect, or register a table with other names"
            )


def _names_that_are_read(text: str, connection: duckdb.DuckDBPyConnection) -> list[tuple[str, ...]]:
    """The tables that the engine finds in a query, where it can tell."""
    try:
        found = connection.get_table_names(text, qualified=True)
    except duckdb.Error:
        return []
    return [name for each in sorted(found) for name in names_in(each)]


# --- Parameters -------------------------------------------------------------------------------------------------------


def _given_parameters(wanted: frozenset[str], arguments: Arguments | None) -> Parameters:
    """The values of all parameters as the engine takes them, each checked against the text."""
    given: dict[str, Any]
    match arguments:
        case None:
            given = {}
        case Mapping():
            given = {str(name): _plain_value(value) for name, value in arguments.items()}
        case str() | bytes():
            raise InvalidArgument(
                f"args= is a mapping for $name, or a list for ?, not {with_article(type(arguments).__name__)}"
            )
        case Sequence():
            given = {str(number): _plain_value(value) for number, value in enumerate(arguments, 1)}
        case _:
            raise InvalidArgument(
                f"args= is a mapping for $name, or a list for ?, not {with_article(type(arguments).__name__)}"
            )
    missing = sorted(wanted - given.keys())
    if missing:
        name = missing[0]
        way = "args=[value, …]" if name.isdecimal() else f"args={{{name!r}: value}}"
        raise MissingValue(
            f"the parameter ${name} of the query has no value: give it as in c.sql(query, {way}, dialect='duckdb')"
        )
    unused = [name for name in given if name not in wanted]
    if unused:
        raise InvalidArgument(f"the query has no parameter ${unused[0]}, for which args= has a value")
    for name, value in given.items():
        if isinstance(value, str):
            _refuse_surrogates_of(name, value)
    return given if not isinstance(arguments, Sequence) else list(given.values())


def _refuse_surrogates_of(name: str, value: str) -> None:
    if lone_surrogate(value) is not None:
        raise InvalidArgument(
            f"the value of ${name} has half of a surrogate pair, which is not valid Unicode: {value!r}"
        )


def _plain_value(value: Any) -> Any:
    return value.as_py() if isinstance(value, pa.Scalar) else value


def _by_name(parameters: Parameters) -> dict[str, Any]:
    """The values that scans may compare with."""
    if parameters is None:
        return {}
    pairs = (
        parameters.items()
        if isinstance(parameters, Mapping)
        else zip(map(str, range(1, len(parameters) + 1)), parameters, strict=True)
    )
    return {name: value for name, value in pairs if type(value) in _PRUNING_TYPES}
