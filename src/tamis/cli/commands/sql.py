"""`tamis sql`: run a query over tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.export import (
    STDOUT,
    check_no_overwrite,
    check_output_options,
    choose_output_format,
    export,
    output_options,
    print_written_note,
)
from tamis.cli.options import Limit, json_option, limit_option, parse_assignments, parse_catalog, table_options
from tamis.cli.output import ROWS_ON_A_TERMINAL, is_terminal, write, write_json_lines, write_lines
from tamis.errors import InvalidArgument, TableNotFound, to_one_line
from tamis.formats.database.open_database import find_database_file
from tamis.formats.source import TABLE_FORMATS
from tamis.query.connectors.lake_handle import LakeHandle
from tamis.query.plan.nodes import TableScan, walk_plan
from tamis.query.query import Query, get_compiled_query
from tamis.session import Session, connect
from tamis.table import Table, open_table

_QUERY = re.compile(
    r"\s*(--.*\n|/\*.*?\*/|\s|\()*(select|with|values|from|table|pivot|unpivot|describe|summarize)\b",
    re.IGNORECASE | re.DOTALL,
)


@click.command(
    epilog="""\b
Examples:
  tamis sql "SELECT region, sum(amount) FROM orders GROUP BY region" ./orders
  tamis sql "SELECT * FROM o JOIN c ON o.customer = c.id" --table o=s3://lake/orders --table c=./customers
  tamis sql 'SELECT count(*) FROM delta.`s3://lake/orders` VERSION AS OF 3' --explain
  tamis sql "SELECT count(*) FROM prod.shop.orders" --catalog prod
"""
)
@click.argument("arguments", metavar="QUERY [URI]...", nargs=-1)
@click.option("--file", "query_file", metavar="FILE", help="Read the query from a file instead of QUERY; - is stdin.")
@click.option(
    "--table",
    "tables",
    metavar="NAME=URI",
    callback=parse_assignments,
    multiple=True,
    help="A table and its name; without a name, a table is named after its directory. May be repeated.",
)
@click.option(
    "--attach",
    metavar="NAME=URI",
    callback=parse_assignments,
    multiple=True,
    help="A database, as in pg=postgresql://host/sales; its tables are NAME.table. May be repeated.",
)
@click.option(
    "--catalog",
    metavar="NAME|KEY=VALUE",
    callback=parse_catalog,
    multiple=True,
    help="An Iceberg catalog, whose tables are NAME.namespace.table: one configured for pyiceberg, or its properties, "
    "such as name=…, type=… and uri=…. A URI without slashes is also a table of it.",
)
@click.option("--policies", metavar="FILE", help="Row filters and masks, in YAML or JSON.")
@click.option("--principal", metavar="NAME", help="The user or role to apply policies for, as named in the policies.")
@limit_option(f"At most this many rows, or 'all'.  [default: {ROWS_ON_A_TERMINAL} on a terminal, else all]")
@click.option(
    "--dialect",
    type=click.Choice(("spark", "duckdb")),
    default="spark",
    show_default=True,
    help="SQL dialect of the query.",
)
@click.option(
    "--explain", is_flag=True, help="Show the plan, the rules and what each scan would read, without running it."
)
@table_options("format", "relocate", "allow_outside", "partitioning", "merge_schema", "int96", "storage_options")
@json_option("One JSON object for each row, each on its own line; with --explain, a single object.")
@output_options
@debug_option
def sql(
    arguments: Sequence[str],
    query_file: str | None,
    tables: Mapping[str, str] | None,
    attach: Mapping[str, str] | None,
    catalog: Mapping[str, str] | str | None,
    policies: str | None,
    principal: str | None,
    limit: Limit,
    dialect: str,
    explain: bool,
    as_json: bool,
    output: str | None,
    output_format: str | None,
    **options: Any,
) -> None:
    """Run a query in Spark SQL or DuckDB SQL over tables and databases.

    The output is a table on a terminal, and tab-separated lines in a pipe, where \\N is NULL. Table options apply to
    all tables given by URI. The query chooses versions: orders VERSION AS OF 3, TIMESTAMP AS OF '2024-03-01'.
    """
    check_output_options(output, output_format)
    if output is not None and (as_json or explain):
        raise click.UsageError(f"--output and --{'json' if as_json else 'explain'} exclude each other")
    if principal is not None and policies is None:
        raise click.UsageError("--principal requires --policies")
    query, uris = _split_arguments(arguments) if query_file is None else (_read_query(query_file), arguments)
    given = CommandTables(uris, tables or {}, attach or {}, catalog, options)
    session = given.session(policies, principal)
    try:
        if explain:
            write(session.explain(query, format="json" if as_json else "text", dialect=dialect) + "\n")
            return
        found = session.sql(query, dialect=dialect)
    except TableNotFound as error:
        raise suggest_uri(error) from error
    if output is not None and output != STDOUT:
        given.refuse_to_overwrite(found, output)
    if output is not None:
        _write_file(found, limit, output, output_format)
    elif is_terminal():
        _show(found, limit, as_json)
    else:
        reader = found.to_reader()
        batches = _limit_rows(reader, limit)
        if as_json:
            _check_distinct_names(reader.schema)
            write_json_lines(batches)
        else:
            write_lines(reader.schema, batches)


def _read_query(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"--file {file}: cannot read the query: {to_one_line(error)}") from error


def _split_arguments(arguments: Sequence[str]) -> tuple[str, list[str]]:
    if not arguments:
        raise click.UsageError('pass a query in quotes, as in "SELECT * FROM orders", or --file FILE')
    queries = [each for each in arguments if _QUERY.match(each)]
    # Several words that are not an existing path are a misspelt query: parsing it reports the error.
    queries = queries or [each for each in arguments if len(each.split()) > 1 and not Path(each).exists()]
    if len(queries) > 1:
        given = " and ".join(repr(" ".join(each.split())) for each in queries[:2])
        raise click.UsageError(f"pass one query, not several: {given}")
    if not queries:
        given = ", ".join(map(repr, arguments))
        raise click.UsageError(f'no query among {given}: pass one in quotes, as in "SELECT * FROM orders"')
    return queries[0], [each for each in arguments if each is not queries[0]]


def _limit_rows(batches: Iterable[pa.RecordBatch], limit: Limit) -> Iterator[pa.RecordBatch]:
    left = limit if isinstance(limit, int) else None
    if left == 0:
        return
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        if left is not None and left <= 0:
            return


def _write_file(found: Any, limit: Limit, output: str, format: str | None) -> None:
    format = choose_output_format(output, format)
    reader = found.to_reader()
    if format == "jsonl":
        _check_distinct_names(reader.schema)
    written = export(_limit_rows(reader, limit), reader.schema, output, format)
    print_written_note(written, output, format)


def _check_distinct_names(schema: pa.Schema) -> None:
    """Raise an error if two columns have the same name: readers of a JSON object would keep only one of them."""
    repeated = [name for name in dict.fromkeys(schema.names) if schema.names.count(name) > 1]
    if repeated:
        raise InvalidArgument(
            f"several columns are named {repeated[0]!r}, and JSON keeps only one of them: give each its own alias"
        )


def _show(found: Any, limit: Limit, as_json: bool) -> None:
    from tamis.cli.terminal import show_result

    reader = found.to_reader()
    if as_json:
        _check_distinct_names(reader.schema)
    is_default = limit is None
    wanted = _limit_rows(reader, ROWS_ON_A_TERMINAL + 1 if is_default else limit)
    show_result(
        reader.schema,
        wanted,
        is_default=is_default,
        as_json=as_json,
        way_out="name others in the query",
        reading=nullcontext(),
    )


# --- The tables of a `tamis sql` command, and the session that queries them -------------------------------------------


@dataclass(frozen=True)
class CommandTables:
    """The tables, databases and the catalog of a command line."""

    uris: Sequence[str]
    tables: Mapping[str, str]
    attached: Mapping[str, str]
    catalog: Mapping[str, str] | str | None
    options: Mapping[str, Any]

    def session(self, policies: str | None, principal: str | None) -> Session:
        """Create a session with all of the tables, databases and the catalog."""
        session = connect(policies=policies, storage_options=self.options["storage_options"])
        if principal is not None:
            session = session.as_principal(principal)
        named: dict[str, str] = {}
        for uri in self.uris:
            try:
                table = self._open(uri)
            except TableNotFound as error:
                raise _suggest_table_option(uri, error) from error
            other = named.setdefault(table.name.casefold(), uri)
            if other is not uri:
                raise click.UsageError(
                    f"{other} and {uri} are both named {table.name!r}: name one of them with --table NAME=URI"
                )
            for name in _find_names(table):
                session.register(name, table)
        for name, uri in self.tables.items():
            # Policies apply when the table is queried, under this name too.
            session.register(name, self._open(uri))
        for name, uri in self.attached.items():
            session.attach(name, uri)
        if self.catalog is not None:
            name = self.catalog if isinstance(self.catalog, str) else self.catalog.get("name", "catalog")
            options = {each: self.options[each] for each in ("relocate", "allow_outside")}
            session.attach(name, catalog=self.catalog, **options)
        return session

    def _open(self, uri: str) -> Table:
        is_in_catalog = self.catalog is not None and "/" not in uri and not Path(uri).exists()
        return open_table(uri, **self.options, catalog=self.catalog if is_in_catalog else None)

    def refuse_to_overwrite(self, query: Query, output: str) -> None:
        """Raise an error if the output would overwrite, or be inside of, a table that the query reads."""
        for node in walk_plan(get_compiled_query(query).plan):
            match node:
                case TableScan(handle=LakeHandle(source=source)):
                    check_no_overwrite(source.storage.uri, output, files=Table(source).files)
        for uri in (*self.uris, *self.tables.values()):
            check_no_overwrite(uri, output)
        for uri in self.attached.values():
            file = find_database_file(uri)
            if file is not None:
                check_no_overwrite(str(file), output)


def _find_names(table: Table) -> list[str]:
    """Return the names under which a query finds a table: for a single file, with and without its extension."""
    if not TABLE_FORMATS[table.format].is_single_file:
        return [f"`{table.name}`"]
    stem, _, ending = table.name.rpartition(".")
    return [f"`{table.name}`", *([f"`{stem}`", f"`{stem}`.`{ending}`"] if stem else [])]


def _suggest_table_option(uri: str, error: TableNotFound) -> TableNotFound:
    """Return an error that suggests `--table` for an argument such as `t=orders`; else the same error."""
    name, _, location = uri.partition("=")
    if not name.isidentifier() or not location or not ("://" in location or Path(location).exists()):
        return error
    return TableNotFound(f"nothing at {uri!r}: to name a table in the query, write --table {uri}")


_NOT_GIVEN = re.compile(r"no table '([^']+)' in this session")


def suggest_uri(error: TableNotFound) -> TableNotFound:
    """Return an error that suggests to pass the URI, if a missing table is a local path; else the same error.

    Forgetting the URI is the most common mistake.
    """
    found = _NOT_GIVEN.match(str(error))
    if found is None or not Path(found[1]).exists():
        return error
    # A table is named after its directory.
    name = Path(found[1]).name if Path(found[1]).is_dir() else Path(found[1]).stem
    return TableNotFound(
        f"the table {found[1]!r} was not given: pass its URI after the query, as in "
        f'tamis sql "SELECT * FROM {name}" {found[1]}'
    )
