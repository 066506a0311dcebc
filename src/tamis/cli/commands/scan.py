"""`tamis scan`: print or export the matching rows."""

from __future__ import annotations

import sys
from itertools import chain, islice

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.export import OUTPUT_FORMATS, STDOUT, check_no_overwrite, choose_output_format, export
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import (
    ROWS_ON_A_TERMINAL,
    ROWS_PER_TABLE,
    flush,
    is_terminal,
    print_note,
    print_shown_note,
    write_json_lines,
    write_lines,
)
from tamis.cli.progress import is_interactive, make_bytes_meter, set_total_bytes, show_progress
from tamis.errors import format_count
from tamis.scan.reading.pipeline import coalesce_batches


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
    "policies",
    "principal",
    limit=f"At most this many rows, or 'all'.  [default: {ROWS_ON_A_TERMINAL} on a terminal, else all]",
)
@json_option("One JSON object for each row, each on its own line.")
@click.option(
    "--output",
    metavar="FILE",
    help="Write the rows to a .parquet, .arrow, .arrows, .csv or .jsonl file; - is stdout.",
)
@click.option(
    "--output-format", type=click.Choice(OUTPUT_FORMATS), help="Format to write, regardless of the file extension."
)
@debug_option
def scan(request: Request, as_json: bool, output: str | None, output_format: str | None) -> None:
    """Print or export the matching rows.

    The output is a table on a terminal, and tab-separated lines in a pipe, where \\N is NULL.
    """
    if output is None and output_format is not None:
        raise click.UsageError("--output-format requires --output; for stdout use --output -")
    if output is not None and as_json:
        raise click.UsageError("--json and --output exclude each other; --output-format jsonl writes JSON to a file")
    if output is not None:
        _write_file(request, output, output_format)
    elif is_terminal():
        _show(request, as_json)
    elif as_json:
        write_json_lines(request.scan().to_batches())
    else:
        rows = request.scan()
        write_lines(rows.schema, rows.to_batches())


def _write_file(request: Request, output: str, format: str | None) -> None:
    format = choose_output_format(output, format)
    table = request.open()
    if output != STDOUT:
        check_no_overwrite(table.uri, output, files=table.files)
    rows = request.scan_table(table)
    is_wanted = output != STDOUT and sys.stderr.isatty()
    with show_progress(make_bytes_meter("scanning", rows), is_wanted=is_wanted) as meter:
        if is_wanted and request.row_limit is None:
            set_total_bytes(meter, rows)
        written = export(rows.to_batches(), rows.schema, output, format)
    target = "stdout" if output == STDOUT else output
    print_note(f"{format_count(written, 'row')} written to {target} as {format}")


def _show(request: Request, as_json: bool) -> None:
    from tamis.cli.terminal import show_rows

    is_default = request.limit is None
    # Ask for one more row, to know whether there are more.
    scan = (request.with_limit(ROWS_ON_A_TERMINAL + 1) if is_default else request).scan()
    batches = coalesce_batches(scan.to_batches(), enough_rows=ROWS_PER_TABLE)
    with show_progress(make_bytes_meter("scanning", scan), is_wanted=is_interactive()):
        first = pa.Table.from_batches([*islice(batches, 1)], scan.schema)
    has_more = is_default and first.num_rows > ROWS_ON_A_TERMINAL
    shown = 0
    hidden: list[str] = []
    for rows in chain([first.slice(0, ROWS_ON_A_TERMINAL) if is_default else first], map(_to_table, batches)):
        if as_json:
            write_json_lines(rows.to_batches())
        else:
            hidden = show_rows(rows)
        shown += rows.num_rows
    # Flush, so that the notes on stderr appear after the rows.
    flush()
    print_shown_note(shown, hidden, len(scan.schema), has_more=has_more, way_out="--columns chooses others")


def _to_table(batch: pa.RecordBatch) -> pa.Table:
    return pa.Table.from_batches([batch])
