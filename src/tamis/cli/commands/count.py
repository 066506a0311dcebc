"""`tamis count`: count the matching rows."""

from __future__ import annotations

import click

from tamis.cli.errors import debug_option
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import write, write_json
from tamis.cli.progress import is_interactive, make_bytes_meter, show_progress


@click.command(epilog='Example: tamis count orders --where "id < 150"')
@request_options(
    columns="Columns that must exist. They do not change the count.",
    limit="Stop counting at this number, or 'all'.  [default: all]",
)
@json_option('A JSON object: {"count": 150}.')
@debug_option
def count(request: Request, as_json: bool) -> None:
    """Count the matching rows.

    If metadata proves that all rows of a row group match, none of its columns is read.
    """
    scan = request.scan()
    with show_progress(make_bytes_meter("counting", scan), is_wanted=is_interactive()):
        found = scan.count()
    if as_json:
        write_json({"count": found})
    else:
        write(f"{found}\n")
