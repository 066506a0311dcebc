"""The program `tamis` and its commands."""

from __future__ import annotations

import sys

import click

import tamis
from tamis.cli.errors import Program, debug_option, show_unexpected_error

COMMANDS = {
    "plan": "Show what a scan would read, and what it would skip and why.",
    "scan": "Print or export the matching rows.",
    "count": "Count the matching rows.",
    "files": "List the files of a table, or those that may match a filter.",
    "history": "List the versions of a Delta or Iceberg table.",
    "index": "Build, show or drop the statistics index of a table.",
    "inspect": "Show the metadata of a Parquet file, down to its pages.",
    "sql": "Run a query in Spark SQL or DuckDB SQL over tables and databases.",
    "verify": "Check that pruning does not lose rows of a table.",
}
"""The purpose of each command. Its module has the same name and is imported lazily: most imports take half a second."""

_EXAMPLES = """\b
Examples:
  tamis plan   orders --where "day = DATE '2024-03-03' AND amount > 40"
  tamis scan   orders --where "region = 'eu'" --columns id,amount --limit 5
  tamis scan   s3://bucket/orders --where "region = 'eu'" --output eu.parquet
  tamis count  orders --where "id < 150"
  tamis files  orders --where "region <> 'us'"
  tamis scan   orders --version 12 --limit 5
  tamis count  shop.orders --catalog lake --ref main --where "id < 150"
  tamis sql    "SELECT region, sum(amount) FROM orders GROUP BY region" orders
  tamis history orders --limit 5
  tamis verify orders --where "region = 'eu' AND id BETWEEN 2800 AND 2850"
  tamis index build orders --bloom customer
  tamis inspect part-0.parquet --column id --svg id.svg
"""


@click.group(cls=Program, epilog=_EXAMPLES, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(tamis.__version__, prog_name="tamis", message="%(prog)s %(version)s")
@debug_option
def program() -> None:
    """Read only the data that can hold a matching row, and report what was skipped and why.

    URI is a Delta or Iceberg table, a directory of Parquet files, a Hive-style table (directories like day=2024-03-03)
    or a single Parquet file: a local path or s3://, gs://, abfss://, hdfs://. With --catalog, it is the name of an
    Iceberg table.
    """


for _name, _purpose in COMMANDS.items():
    program.add_command(click.Command(_name, short_help=_purpose))


def main() -> None:
    """Run the program `tamis`. It is the entry point of the script."""
    sys.excepthook = show_unexpected_error
    block_pandas()
    program(prog_name="tamis")


# --- Keep pandas from being imported by the command line --------------------------------------------------------------
#
# If pandas is installed, pyarrow imports it with the first Python value that it converts, to recognise values of
# pandas. That takes a third of a second and 40 MiB, more than most commands need for everything else.

_NAME = "pandas"


class _NotInstalled:
    """An import finder that runs before all others, and reports that pandas is not installed."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == _NAME:
            raise ModuleNotFoundError(f"No module named {_NAME!r}", name=_NAME)


def block_pandas() -> None:
    """Make this process behave as if pandas were not installed."""
    sys.meta_path.insert(0, _NotInstalled)


def unblock_pandas() -> None:
    """Undo `block_pandas`, for Spark, which transfers Arrow batches only if pandas is installed."""
    if _NotInstalled in sys.meta_path:
        sys.meta_path.remove(_NotInstalled)
