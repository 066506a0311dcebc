"""`tamis files`: list the files of a table, or those that may match a filter."""

from __future__ import annotations

import click
import pyarrow as pa

from tamis.cli.errors import debug_option
from tamis.cli.options import Request, json_option, request_options
from tamis.cli.output import format_json_array, is_terminal, print_note, select_columns, write, write_lines
from tamis.cli.progress import is_interactive, make_bytes_meter, show_progress
from tamis.errors import format_count
from tamis.scan.report.report import format_bytes


@click.command(
    short_help="List the files of a table, or those that may match a filter.",
    epilog="""\b
Examples:
  tamis files orders --where "region <> 'us'"
  tamis files orders --columns path | tail -n +2 | xargs ls -l
""",
)
@request_options(
    "where",
    "columns",
    "limit",
    "levels",
    where="Only files that may hold a row for which this is true, as far as known without opening them.",
    columns="Only these columns of the list, as in path,size.  [default: all]",
    limit="At most this many files, or 'all'.  [default: all]",
)
@json_option("A JSON array with an object for each file.")
@debug_option
def files(request: Request, as_json: bool) -> None:
    """List the files of a table: their paths, sizes in bytes and partition values.

    No file is opened: `tamis plan` also uses the metadata inside of files.
    """
    table = request.open()
    scan = table.scan(request.filter, levels=request.levels)
    with show_progress(make_bytes_meter("listing", scan), is_wanted=is_interactive()):
        found = table.files(request.filter, levels=request.levels)
    total = found.num_rows
    found = found.slice(0, request.row_limit)
    size = sum(found["size"].to_pylist())
    if request.columns is not None:
        found = select_columns(found, request.columns, of="the list of files")
    if as_json:
        write(format_json_array(found) + "\n")
    elif not is_terminal():
        write_lines(found.schema, found.to_batches())
    else:
        from tamis.cli.terminal import show_rows

        known = found if request.columns is not None else _drop_unknown_counts(found)
        hidden = show_rows(_shorten_paths(known, table.uri))
        files_found = format_count(total, "file")
        shown = f"{found.num_rows:,} of {files_found}" if found.num_rows < total else files_found
        print_note(f"{shown}, {format_bytes(size)}, in {table.uri}")
        if known.num_columns < found.num_columns:
            print_note(f"{_RECORDS} is not shown: it is known only inside the files, and none was opened")
        if hidden:
            print_note(f"columns that do not fit: {', '.join(hidden)}; --columns chooses others, --json shows all")


_RECORDS = "num_records"


def _drop_unknown_counts(found: pa.Table) -> pa.Table:
    """Drop the column of row counts if all are NULL, which could be read as no rows. In a pipe all columns stay."""
    is_known = _RECORDS not in found.column_names or found[_RECORDS].null_count < found.num_rows
    return found if is_known or not found.num_rows else found.drop_columns([_RECORDS])


def _shorten_paths(found: pa.Table, uri: str) -> pa.Table:
    """Return the files with paths relative to the table."""
    if "path" not in found.column_names:
        return found
    root = uri.rpartition("://")[2].rstrip("/") + "/"
    short = [path.removeprefix(root) for path in found["path"].to_pylist()]
    return found.set_column(found.column_names.index("path"), "path", pa.array(short, pa.string()))
