"""`tamis index`: build, show or drop the statistics index of a table."""

from __future__ import annotations

from typing import Any

import click

from tamis.cli.application import unblock_pandas
from tamis.cli.errors import INVALID_INPUT, debug_option
from tamis.cli.options import json_option, names_option, storage_option, table_options
from tamis.cli.output import print_note, write, write_json
from tamis.cli.progress import Meter, is_interactive, show_progress
from tamis.errors import format_count
from tamis.index import operations as indexes
from tamis.scan.report.report import format_bytes

_location_option = click.option(
    "--location", metavar="FOLDER", help="Folder of the index.  [default: _tamis/TABLE/index next to the table]"
)
_TABLE_OPTIONS = ("format", "allow_outside", "partitioning", "merge_schema", "int96")


@click.group(
    short_help="Build, show or drop the statistics index of a table.",
    epilog="""\b
Examples:
  tamis index build  orders --bloom customer
  tamis index status orders
  tamis index drop   orders
""",
)
def index() -> None:
    """The statistics index of a table: column statistics from the footers of its files, and Bloom filters.

    Queries use it to skip files without opening them.
    """


@index.command(
    epilog="""\b
Examples:
  tamis index build orders
  tamis index build orders --columns id,day --bloom customer
  tamis index build s3://bucket/orders --engine spark --json
""",
)
@click.argument("uri", metavar="URI")
@names_option("--columns", "Columns to index the bounds of, as in id,amount; may be repeated.  [default: all]")
@names_option("--bloom", "Columns to build a Bloom filter of for each file; may be repeated. Their values are read.")
@names_option("--count-nan", "Float columns to count NaN in, so that x > 5 can skip files; may be repeated.")
@click.option(
    "--false-positives",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="False positive rate of the Bloom filters.  [default: 0.01]",
)
@click.option(
    "--engine",
    type=click.Choice(["local", "spark"]),
    default="local",
    show_default=True,
    help="Engine that reads the files.",
)
@_location_option
@table_options(*_TABLE_OPTIONS)
@storage_option
@json_option("A JSON object with the result.")
@debug_option
def build(engine: str, as_json: bool, **options: Any) -> None:
    """Build the index, or update it: only new and rewritten files are read.

    Options that are not given keep their values from the existing index. After an interruption, the next run continues.
    """
    if engine == "spark":
        unblock_pandas()
    meter = BuildMeter()
    with show_progress(meter, is_wanted=is_interactive()):
        done = indexes.build(engine=engine, progress=meter.take, **options)
    if as_json:
        write_json(done.to_dict())
        return
    write(f"{format_count(done.files, 'file')}, {format_count(done.rows, 'row')} in the index at {done.location}\n")
    write(f"{done.collected:,} read, {done.reused:,} reused, {done.removed:,} removed\n")
    if done.left_out:
        print_note(f"{format_count(done.left_out, 'file')} not indexed: {done.left_out_because}")


@index.command(epilog="Example: tamis index status orders --json")
@click.argument("uri", metavar="URI")
@_location_option
@table_options(*_TABLE_OPTIONS)
@storage_option
@json_option("A JSON object.")
@debug_option
def status(as_json: bool, **options: Any) -> None:
    """Show what is indexed, and how many files of the table are up to date in the index."""
    found = indexes.status(**options)
    if as_json:
        write_json(found.to_dict())
    elif not found.exists:
        reason = "" if found.is_useful else ", and none is needed: the manifests have the statistics of the files"
        write(f"no index at {found.location}{reason}\n")
    if not found.exists:
        raise click.exceptions.Exit(INVALID_INPUT)
    if as_json:
        return
    lines = {
        "location": found.location,
        "built": found.built_at,
        "version": None if found.version is None else str(found.version),
        "columns": ", ".join(found.columns),
        "bloom": ", ".join(found.bloom),
        "NaN counted": ", ".join(found.count_nan),
        "size": f"{format_bytes(found.index_bytes)} in {format_count(found.parts, 'part')}",
        "files": f"{found.fresh_files:,} of {found.table_files:,} in the table",
    }
    for name, text in lines.items():
        if text:
            write(f"{name:<12} {text}\n")
    if not found.is_complete:
        print_note(
            f"{format_count(found.table_files - found.fresh_files, 'file')} new or changed: run tamis index build again"
        )


@index.command(epilog="Example: tamis index drop orders")
@click.argument("uri", metavar="URI")
@_location_option
@storage_option
@json_option('A JSON object: {"dropped": true}.')
@debug_option
def drop(as_json: bool, **options: Any) -> None:
    """Remove the index, even a damaged one. The table does not change."""
    was_there = indexes.drop(**options)
    if as_json:
        write_json({"dropped": was_there})
    else:
        write("dropped\n" if was_there else "there was no index\n")


class BuildMeter(Meter):
    """The progress of a build: files, bytes, and files per second."""

    def __init__(self) -> None:
        self._progress = indexes.Progress(0, 0, 0, 0)
        super().__init__("indexing", lambda: self._progress.files)

    def take(self, progress: indexes.Progress) -> None:
        self._progress = progress
        self.total = progress.total_files

    def list_facts(self, done: int, seconds: float) -> list[str]:
        now = self._progress
        if not now.total_files:
            return ["listing"]
        return [
            f"{now.files:,} of {format_count(now.total_files, 'file')}",
            f"{format_bytes(now.bytes)} of {format_bytes(now.total_bytes)}",
            f"{now.files / max(seconds, 0.001):,.0f} files/s",
        ]
