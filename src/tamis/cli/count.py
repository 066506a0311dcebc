"""`tamis count`: how many rows match."""

from __future__ import annotations

import click

from tamis.cli.errors import debug_option
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import write, write_json
from tamis.cli.progress import bytes_meter, is_watched, show_progress


@click.command(epilog='Example: tamis count orders --where "id < 150"')
@request_options(
    "where",
    "columns",
    "limit",
    "levels",
    "policies",
    "principal",
    columns="Checked to exist; a count does not depend on them.",
    limit="Count no further than this.  [default: all]",
)
@json_option('A JSON object: {"count": 150}.')
@debug_option
def count(request: Request, as_json: bool) -> None:
    """Count the rows that match.

    Where metadata proves that all rows of a row group match, none of its columns is read.
    """
    scan = request.scan()
    with show_progress(bytes_meter("counting", scan), is_wanted=is_watched()):
        found = scan.count()
    if as_json:
        write_json({"count": found})
    else:
        write(f"{found}\n")
