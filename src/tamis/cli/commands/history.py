"""`tamis history`: list the versions of a Delta table, or the snapshots of an Iceberg table, with their operations."""

from __future__ import annotations

import json

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import flush, is_terminal, print_note, select_columns, write, write_lines
from tamis.cli.text import format_json
from tamis.errors import format_count

VERSIONS_ON_A_TERMINAL = 20

_DOCUMENTS = ("operation_parameters", "operation_metrics", "summary")
"""Columns whose values are JSON documents."""


@click.command(
    short_help="List the versions of a Delta or Iceberg table.",
    epilog="""\b
Examples:
  tamis history events --limit 5
  tamis history events --json | jq '.[] | select(.operation == "DELETE") | .version'
""",
)
@request_options(
    "columns",
    "limit",
    columns="Only these columns of the list, as in version,operation.  [default: all]",
    limit=f"At most this many versions, or 'all'.  [default: {VERSIONS_ON_A_TERMINAL} on a terminal, else all]",
)
@json_option("A JSON array with an object for each version.")
@debug_option
def history(request: Request, as_json: bool) -> None:
    """List the versions of a Delta table, newest first: the time, the operation and the writer of each.

    For an Iceberg table, the versions are its snapshots. Only versions whose commits are still in the log are known.
    `timestamp` is the time that --timestamp uses, `written_at` is the time that the writer recorded.
    """
    table = request.open()
    is_default = request.limit is None and is_terminal()
    most = VERSIONS_ON_A_TERMINAL if is_default else request.row_limit
    # Ask for one more, to know whether there are more.
    found = table.history(most + 1 if is_default and most is not None else most)
    has_more = is_default and found.num_rows > VERSIONS_ON_A_TERMINAL
    found = found.slice(0, most)
    if request.columns is not None:
        found = select_columns(found, request.columns, of="the history")
    if as_json:
        write(_format_json(found))
    elif not is_terminal():
        write_lines(found.schema, found.to_batches())
    else:
        from tamis.cli.terminal import show_rows

        known = found if request.columns is not None else _drop_empty_columns(found)
        hidden = show_rows(known)
        flush()
        count = format_count(found.num_rows, "version")
        print_note(f"the newest {count}; --limit N shows more, --limit all shows all" if has_more else count)
        if hidden:
            print_note(f"columns that do not fit: {', '.join(hidden)}; --columns chooses others, --json shows all")


def _drop_empty_columns(found: pa.Table) -> pa.Table:
    """Drop columns that no writer recorded. In a pipe all columns stay."""
    unknown = [name for name in found.column_names if found[name].null_count == found.num_rows]
    return found.drop_columns(unknown) if found.num_rows else found


def _format_json(found: pa.Table) -> str:
    columns = [_format_json_values(name, found[name].combine_chunks()) for name in found.column_names]
    rows = [
        ", ".join(f'"{name}": {text}' for name, text in zip(found.column_names, row, strict=True))
        for row in zip(*columns, strict=True)
    ]
    return "[\n" + ",\n".join(f"{{{row}}}" for row in rows) + "\n]\n" if rows else "[]\n"


def _format_json_values(name: str, column: pa.Array) -> list[str]:
    texts: list[str] = format_json(column).to_pylist()
    if name not in _DOCUMENTS:
        return texts
    # Documents are embedded as JSON instead of strings, unless they are invalid: writers may put anything there.
    return [
        text if own is None or not _is_json(own) else own for own, text in zip(column.to_pylist(), texts, strict=True)
    ]


def _is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return False
    return True


def _reject_constant(name: str) -> None:
    raise ValueError(f"{name} is not valid JSON")
