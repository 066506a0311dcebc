"""The program `tamis`: its commands, and what happens around each of them."""

from __future__ import annotations

import sys

import click

import tamis
from tamis.cli.errors import Program, debug_option, show_unexpected_error
from tamis.cli.pandas_left_out import leave_pandas_out

COMMANDS = {
    "plan": "Show what would be read, and why the rest is not.",
    "scan": "Return the rows that match.",
    "count": "Count the rows that match.",
    "files": "List the files of the table, or those that a filter keeps.",
    "history": "List the versions of a Delta or Iceberg table, and what made them.",
    "index": "Build, look at or drop the statistics index of a table.",
    "inspect": "Show what a Parquet file says of itself, down to its pages.",
    "sql": "Run a query in Spark's SQL, or DuckDB's, over lakes and databases.",
    "verify": "Prove that pruning loses no row of this table.",
}
"""What each is for. A command is in a module of its own name, imported when it is run: most need half a second."""

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
    """Reads of a table only what can hold a matching row, and tells what it skipped and why.

    URI is a Delta or an Iceberg table, a folder of Parquet files, a Hive-style table (directories like day=2024-03-03)
    or a single Parquet file: a local path or s3://, gs://, abfss://, hdfs://. With --catalog it is the name of an
    Iceberg table.
    """


for _name, _purpose in COMMANDS.items():
    program.add_command(click.Command(_name, short_help=_purpose))


def main() -> None:
    """What the script `tamis` runs."""
    sys.excepthook = show_unexpected_error
    leave_pandas_out()
    program(prog_name="tamis")
