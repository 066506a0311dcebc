"""The commands of `tamis`. Each module is named after its command.

Reading order:

- `plan`, `scan`, `count`, `files`  one table, with a filter: what would be read, its rows, their number, its files
- `sql`                             a query over tables
- `history`                         versions and snapshots of a table
- `inspect`                         the metadata of one Parquet file
- `index`                           the statistics index of a table
- `verify`                          a check that pruning loses no row
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import click


def load_command(name: str) -> click.Command:
    """Import a command on first use: the imports of all commands together take half a second."""
    command: click.Command
    match name:
        case "count":
            from tamis.cli.commands.count import count as command
        case "files":
            from tamis.cli.commands.files import files as command
        case "history":
            from tamis.cli.commands.history import history as command
        case "index":
            from tamis.cli.commands.index import index as command
        case "inspect":
            from tamis.cli.commands.inspect import inspect as command
        case "plan":
            from tamis.cli.commands.plan import plan as command
        case "scan":
            from tamis.cli.commands.scan import scan as command
        case "sql":
            from tamis.cli.commands.sql import sql as command
        case "verify":
            from tamis.cli.commands.verify import verify as command
        case _:
            raise LookupError(f"no command {name!r}")
    return command
