"""`tamis scan`: print or export the matching rows."""

from __future__ import annotations

import sys
from dataclasses import replace

import click

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
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import ROWS_ON_A_TERMINAL, is_terminal, write_json_lines, write_lines
from tamis.cli.progress import is_interactive, make_bytes_meter, set_total_bytes, show_progress


@click.command(
    epilog="""\b
Examples:
  tamis scan orders --where "region = 'eu'" --columns id,amount --limit 5
  tamis scan orders --where "region = 'eu'" --output eu.parquet
  tamis scan orders --json | jq .amount
"""
)
@request_options(
    limit=f"At most this many rows, or 'all'.  [default: {ROWS_ON_A_TERMINAL} on a terminal, else all]",
)
@json_option("One JSON object for each row, each on its own line.")
@output_options
@debug_option
def scan(request: Request, as_json: bool, output: str | None, output_format: str | None) -> None:
    """Print or export the matching rows.

    The output is a table on a terminal, and tab-separated lines in a pipe, where \\N is NULL.
    """
    check_output_options(output, output_format)
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
    is_wanted = output != STDOUT and sys.stderr is not None and sys.stderr.isatty()
    with show_progress(make_bytes_meter("scanning", rows), is_wanted=is_wanted) as meter:
        if is_wanted and request.row_limit is None:
            set_total_bytes(meter, rows)
        written = export(rows.to_batches(), rows.schema, output, format)
    print_written_note(written, output, format)


def _show(request: Request, as_json: bool) -> None:
    from tamis.cli.terminal import show_result

    is_default = request.limit is None
    scan = (replace(request, limit=ROWS_ON_A_TERMINAL + 1) if is_default else request).scan()
    show_result(
        scan.schema,
        scan.to_batches(),
        is_default=is_default,
        as_json=as_json,
        way_out="--columns chooses others",
        reading=show_progress(make_bytes_meter("scanning", scan), is_wanted=is_interactive()),
    )
