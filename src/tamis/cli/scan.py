"""`tamis scan`: the rows."""

from __future__ import annotations

import sys

import click
import pyarrow as pa

from tamis.cli.export import OUTPUT_FORMATS, STDOUT, export, output_format
from tamis.cli.options import Request, debug_option, json_option, request_options
from tamis.cli.output import flush, is_terminal, note, show_rows, write_json_lines, write_lines
from tamis.cli.progress import bytes_meter, expect_bytes, is_watched, show_progress

ROWS_ON_A_TERMINAL = 20


@click.command(
    epilog="""\b
Examples:
  tamis scan orders --where "region = 'eu'" --columns id,amount --limit 5
  tamis scan orders --where "region = 'eu'" --output eu.parquet
  tamis scan orders --json | jq .amount
"""
)
@request_options(
    "where",
    "columns",
    "limit",
    "levels",
    limit=f"At most so many rows, or 'all'.  [default: {ROWS_ON_A_TERMINAL} on a terminal, else all]",
)
@json_option("One JSON object a row, each on its line.")
@click.option(
    "--output",
    metavar="FILE",
    help="Write the rows to a file, .parquet, .arrow, .arrows, .csv or .jsonl; - is stdout.",
)
@click.option("--output-format", type=click.Choice(OUTPUT_FORMATS), help="What to write, whatever the file's name.")
@debug_option
def scan(request: Request, as_json: bool, output: str | None, output_format: str | None) -> None:
    """Return the rows that match.

    A table on a terminal; tab-separated lines in a pipe, where \\N is NULL.
    """
    if output is None and output_format is not None:
        raise click.UsageError("--output-format goes with --output; for stdout that is --output -")
    if output is not None and as_json:
        raise click.UsageError("--json and --output exclude each other; --output-format jsonl writes JSON to a file")
    if output is not None:
        _to_file(request, output, output_format)
    elif is_terminal():
        _to_terminal(request, as_json)
    elif as_json:
        write_json_lines(request.scan().to_batches())
    else:
        rows = request.scan()
        write_lines(rows.schema, rows.to_batches())


def _to_file(request: Request, output: str, format: str | None) -> None:
    format = output_format(output, format)
    rows = request.scan()
    is_wanted = is_watched() or (output != STDOUT and sys.stderr.isatty())
    with show_progress(bytes_meter("scanning", rows), is_wanted=is_wanted) as meter:
        if is_wanted and request.most_rows is None:
            expect_bytes(meter, rows)
        written = export(rows.to_batches(), rows.schema, output, format)
    place = "stdout" if output == STDOUT else output
    note(f"{written:,} {'row' if written == 1 else 'rows'} written to {place} as {format}")


def _to_terminal(request: Request, as_json: bool) -> None:
    most = request.most_rows
    if request.limit is None:
        most = ROWS_ON_A_TERMINAL
        # One row more tells whether there are more.
        request = request.with_limit(most + 1)
    found = request.scan()
    with show_progress(bytes_meter("scanning", found), is_wanted=is_watched()):
        rows = found.to_arrow()
    has_more = most is not None and rows.num_rows > most
    rows = rows.slice(0, most)
    hidden: list[str] = []
    if as_json:
        write_json_lines(rows.to_batches())
        flush()
    else:
        hidden = show_rows(rows)
    _footer(rows, has_more=has_more, hidden=hidden)


def _footer(rows: pa.Table, *, has_more: bool, hidden: list[str]) -> None:
    count = f"{rows.num_rows:,} {'row' if rows.num_rows == 1 else 'rows'}"
    note(f"the first {count}; --limit N shows more, --limit all shows all" if has_more else count)
    if hidden:
        shown = rows.num_columns - len(hidden)
        columns = f"{shown} of {rows.num_columns} columns fit"
        note(f"{columns}; --columns chooses others, --json shows all. Not shown: {', '.join(hidden)}")
