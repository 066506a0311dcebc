"""`tamis sql`: a query over tables."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.export import OUTPUT_FORMATS, STDOUT, export, output_format
from tamis.cli.options import assignments, json_option, storage_option
from tamis.cli.output import ROWS_OF_A_TABLE, flush, is_terminal, note, write, write_json_lines, write_lines
from tamis.cli.scan import ROWS_ON_A_TERMINAL
from tamis.errors import InvalidArgument, TableNotFound, counted
from tamis.scan.coalesce import coalesce_batches
from tamis.session import Session, connect
from tamis.table import open_table

_QUERY = re.compile(r"\s*(--.*\n|/\*.*?\*/|\s|\()*(select|with|values|from|table)\b", re.IGNORECASE | re.DOTALL)


@click.command(
    epilog="""\b
Examples:
  tamis sql "SELECT region, sum(amount) FROM orders GROUP BY region" ./orders
  tamis sql "SELECT * FROM o JOIN c ON o.customer = c.id" --table o=s3://lake/orders --table c=./customers
  tamis sql 'SELECT count(*) FROM delta.`s3://lake/orders`' --explain
"""
)
@click.argument("arguments", metavar="QUERY [URI]...", nargs=-1, required=True)
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
@click.option("--policies", metavar="FILE", help="Row filters and masks, in YAML or JSON.")
@click.option("--principal", metavar="NAME", help="Who asks, as the policies name them.")
@click.option("--explain", is_flag=True, help="Show the plan, the rules and what each scan would read; read nothing.")
@storage_option
@json_option("One JSON object a row, each on its line; with --explain, one object.")
@click.option(
    "--output", metavar="FILE", help="Write the rows to a file, .parquet, .arrow, .arrows, .csv or .jsonl; - is stdout."
)
@click.option("--output-format", type=click.Choice(OUTPUT_FORMATS), help="What to write, whatever the file's name.")
@debug_option
def sql(
    arguments: Sequence[str],
    tables: Mapping[str, str] | None,
    attach: Mapping[str, str] | None,
    policies: str | None,
    principal: str | None,
    explain: bool,
    storage_options: Mapping[str, str] | None,
    as_json: bool,
    output: str | None,
    output_format: str | None,
) -> None:
    """Run a query in Spark's SQL over tables of lakes and databases.

    A table on a terminal; tab-separated lines in a pipe, where \\N is NULL.
    """
    if output is None and output_format is not None:
        raise click.UsageError("--output-format goes with --output; for stdout that is --output -")
    if output is not None and (as_json or explain):
        raise click.UsageError(f"--output and --{'json' if as_json else 'explain'} exclude each other")
    if principal is not None and policies is None:
        raise click.UsageError("--principal goes with --policies, which say what it means")
    query, uris = _query_and_uris(arguments)
    session = _session(uris, tables or {}, attach or {}, policies, principal, storage_options)
    try:
        if explain:
            write(session.explain(query, "json" if as_json else "text") + "\n")
            return
        found = session.sql(query)
    except TableNotFound as error:
        raise _about_places(error) from error
    if output is not None:
        _to_file(found, output, output_format)
    elif is_terminal():
        _to_terminal(found, as_json)
    elif as_json:
        reader = found.to_reader()
        _refuse_twins(reader.schema)
        write_json_lines(iter(reader))
    else:
        reader = found.to_reader()
        write_lines(reader.schema, iter(reader))


def _query_and_uris(arguments: Sequence[str]) -> tuple[str, list[str]]:
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


_NOT_GIVEN = re.compile(r"no table '([^']+)' in this session")


def _about_places(error: TableNotFound) -> TableNotFound:
    """That a table was not given whose folder is right here, if that is so: the first mistake that people make."""
    found = _NOT_GIVEN.match(str(error))
    if found is None or not Path(found[1]).exists():
        return error
    # A table is known by the name of its folder.
    name = Path(found[1]).name if Path(found[1]).is_dir() else Path(found[1]).stem
    return TableNotFound(
        f"the table {found[1]!r} was not given: put its place behind the query, as in "
        f'tamis sql "SELECT * FROM {name}" {found[1]}'
    )


def _session(
    uris: Sequence[str],
    tables: Mapping[str, str],
    attached: Mapping[str, str],
    policies: str | None,
    principal: str | None,
    storage_options: Mapping[str, str] | None,
) -> Session:
    session = connect(policies=policies)
    if principal is not None:
        session = session.as_principal(principal)
    named: dict[str, str] = {}
    for uri in uris:
        table = open_table(uri, storage_options=storage_options)
        other = named.setdefault(table.name.casefold(), uri)
        if other is not uri:
            raise click.UsageError(f"{other} and {uri} are both called {table.name!r}: name one with --table NAME=URI")
        session.register(f"`{table.name}`", table)
    for name, uri in tables.items():
        # Policies apply when it is queried, by this name too.
        session.register(name, open_table(uri, storage_options=storage_options))
    for name, uri in attached.items():
        session.attach(name, uri)
    return session


def _to_file(found: Any, output: str, format: str | None) -> None:
    format = output_format(output, format)
    reader = found.to_reader()
    if format == "jsonl":
        _refuse_twins(reader.schema)
    written = export(iter(reader), reader.schema, output, format)
    place = "stdout" if output == STDOUT else output
    note(f"{counted(written, 'row')} written to {place} as {format}")


def _refuse_twins(schema: pa.Schema) -> None:
    """Raise where two columns have one name: of a JSON object, which has each once, readers keep one of them."""
    twins = [name for name in dict.fromkeys(schema.names) if schema.names.count(name) > 1]
    if twins:
        raise InvalidArgument(f"several columns are called {twins[0]!r}, and JSON keeps one: give each its own alias")


def _to_terminal(found: Any, as_json: bool) -> None:
    from tamis.cli.terminal import show_rows

    reader = found.to_reader()
    if as_json:
        _refuse_twins(reader.schema)
    batches = coalesce_batches(iter(reader), enough_rows=ROWS_OF_A_TABLE)
    first = pa.Table.from_batches([*islice(batches, 1)], reader.schema)
    has_more = first.num_rows > ROWS_ON_A_TERMINAL and not as_json
    shown = 0
    head = first.slice(0, ROWS_ON_A_TERMINAL) if has_more else first
    rest = () if has_more else (pa.Table.from_batches([batch]) for batch in batches)
    for rows in chain([head], rest):
        if as_json:
            write_json_lines(rows.to_batches())
        else:
            show_rows(rows)
        shown += rows.num_rows
    # Remarks come after the rows, though they take another way.
    flush()
    count = counted(shown, "row")
    note(f"the first {count}; a LIMIT in the query chooses how many" if has_more else count)
