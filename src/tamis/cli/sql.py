"""`tamis sql`: a query over tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.export import OUTPUT_FORMATS, STDOUT, export, output_format
from tamis.cli.options import Limit, assignments, catalog_of, json_option, limit_option, table_options
from tamis.cli.output import (
    ROWS_OF_A_TABLE,
    ROWS_ON_A_TERMINAL,
    flush,
    is_terminal,
    note,
    note_shown,
    write,
    write_json_lines,
    write_lines,
)
from tamis.cli.sql_tables import GivenTables, about_places
from tamis.errors import InvalidArgument, TableNotFound, counted, one_line
from tamis.scan.coalesce import coalesce_batches

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
@click.option("--file", "query_file", metavar="FILE", help="Read the query from a file in place of QUERY; - is stdin.")
@click.option(
    "--table",
    "tables",
    metavar="NAME=URI",
    callback=assignments,
    multiple=True,
    help="A table under a name; one that is given as URI alone has the name of its folder. May be repeated.",
)
@click.option(
    "--attach",
    metavar="NAME=URI",
    callback=assignments,
    multiple=True,
    help="A database, whose tables are NAME.table, as in pg=postgresql://host/sales; may be repeated.",
)
@click.option(
    "--catalog",
    metavar="NAME|KEY=VALUE",
    callback=catalog_of,
    multiple=True,
    help="An Iceberg catalog, whose tables are NAME.namespace.table: a configured one of pyiceberg, or its properties, "
    "among them name=…, type=… and uri=…. A URI without slashes is a table of it too.",
)
@click.option("--policies", metavar="FILE", help="Row filters and masks, in YAML or JSON.")
@click.option("--principal", metavar="NAME", help="Who asks, as the policies name them.")
@limit_option(f"At most so many rows, or 'all'.  [default: {ROWS_ON_A_TERMINAL} on a terminal, else all]")
@click.option(
    "--dialect",
    type=click.Choice(("spark", "duckdb")),
    default="spark",
    show_default=True,
    help="The language of the query, with its meaning.",
)
@click.option("--explain", is_flag=True, help="Show the plan, the rules and what each scan would read; read nothing.")
@table_options("format", "relocate", "allow_outside", "partitioning", "merge_schema", "int96", "storage_options")
@json_option("One JSON object a row, each on its line; with --explain, one object.")
@click.option(
    "--output", metavar="FILE", help="Write the rows to a file, .parquet, .arrow, .arrows, .csv or .jsonl; - is stdout."
)
@click.option("--output-format", type=click.Choice(OUTPUT_FORMATS), help="What to write, whatever the file's name.")
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
    """Run a query in Spark's SQL, or DuckDB's, over lakes and databases.

    A table on a terminal; tab-separated lines in a pipe, where \\N is NULL. Options about tables are for all that are
    given by URI; another version is asked for in the query: orders VERSION AS OF 3, TIMESTAMP AS OF '2024-03-01'.
    """
    if output is None and output_format is not None:
        raise click.UsageError("--output-format goes with --output; for stdout that is --output -")
    if output is not None and (as_json or explain):
        raise click.UsageError(f"--output and --{'json' if as_json else 'explain'} exclude each other")
    if principal is not None and policies is None:
        raise click.UsageError("--principal goes with --policies, which say what it means")
    query, uris = _query_and_uris(arguments) if query_file is None else (_query_of(query_file), arguments)
    given = GivenTables(uris, tables or {}, attach or {}, catalog, options)
    session = given.session(policies, principal)
    try:
        if explain:
            write(session.explain(query, format="json" if as_json else "text", dialect=dialect) + "\n")
            return
        found = session.sql(query, dialect=dialect)
    except TableNotFound as error:
        raise about_places(error) from error
    if output is not None and output != STDOUT:
        given.refuse_to_overwrite(found, output)
    if output is not None:
        _to_file(found, limit, output, output_format)
    elif is_terminal():
        _to_terminal(found, limit, as_json)
    else:
        reader = found.to_reader()
        batches = _first_rows(reader, limit)
        if as_json:
            _refuse_twins(reader.schema)
            write_json_lines(batches)
        else:
            write_lines(reader.schema, batches)


def _query_of(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InvalidArgument(f"--file {file}: no query can be read from it: {one_line(error)}") from error


def _query_and_uris(arguments: Sequence[str]) -> tuple[str, list[str]]:
    if not arguments:
        raise click.UsageError('give a query between quotes, as in "SELECT * FROM orders", or --file FILE')
    queries = [each for each in arguments if _QUERY.match(each)]
    # What is of several words and no place is a query that is misspelt: its own error says how.
    queries = queries or [each for each in arguments if len(each.split()) > 1 and not Path(each).exists()]
    if len(queries) > 1:
        given = " and ".join(repr(" ".join(each.split())) for each in queries[:2])
        raise click.UsageError(f"give one query, not several: {given}")
    if not queries:
        given = ", ".join(map(repr, arguments))
        raise click.UsageError(f'no query among {given}: give one between quotes, as in "SELECT * FROM orders"')
    return queries[0], [each for each in arguments if each is not queries[0]]


def _first_rows(batches: Iterable[pa.RecordBatch], limit: Limit) -> Iterator[pa.RecordBatch]:
    left = limit if isinstance(limit, int) else None
    if left == 0:
        return
    for batch in batches:
        yield batch if left is None else batch.slice(0, left)
        left = None if left is None else left - batch.num_rows
        if left is not None and left <= 0:
            return


def _to_file(found: Any, limit: Limit, output: str, format: str | None) -> None:
    format = output_format(output, format)
    reader = found.to_reader()
    if format == "jsonl":
        _refuse_twins(reader.schema)
    written = export(_first_rows(reader, limit), reader.schema, output, format)
    place = "stdout" if output == STDOUT else output
    note(f"{counted(written, 'row')} written to {place} as {format}")


def _refuse_twins(schema: pa.Schema) -> None:
    """Raise where two columns have one name: of a JSON object, which has each once, readers keep one of them."""
    twins = [name for name in dict.fromkeys(schema.names) if schema.names.count(name) > 1]
    if twins:
        raise InvalidArgument(f"several columns are called {twins[0]!r}, and JSON keeps one: give each its own alias")


def _to_terminal(found: Any, limit: Limit, as_json: bool) -> None:
    from tamis.cli.terminal import show_rows

    reader = found.to_reader()
    if as_json:
        _refuse_twins(reader.schema)
    is_default = limit is None
    # One row more tells whether there are more.
    wanted = _first_rows(reader, ROWS_ON_A_TERMINAL + 1 if is_default else limit)
    batches = coalesce_batches(wanted, enough_rows=ROWS_OF_A_TABLE)
    first = pa.Table.from_batches([*islice(batches, 1)], reader.schema)
    has_more = is_default and first.num_rows > ROWS_ON_A_TERMINAL
    shown = 0
    hidden: list[str] = []
    head = first.slice(0, ROWS_ON_A_TERMINAL) if is_default else first
    for rows in chain([head], (pa.Table.from_batches([batch]) for batch in batches)):
        if as_json:
            write_json_lines(rows.to_batches())
        else:
            hidden = show_rows(rows)
        shown += rows.num_rows
    # Remarks come after the rows, though they take another way.
    flush()
    note_shown(shown, hidden, len(reader.schema), has_more=has_more, way_out="name others in the query")
