"""The program `tamis`: its commands, and what happens around each of them."""

from __future__ import annotations

import sys

import click

import tamis
from tamis.cli.count import count
from tamis.cli.errors import Program, show_unexpected_error
from tamis.cli.files import files
from tamis.cli.history import history
from tamis.cli.index import index
from tamis.cli.inspect import inspect
from tamis.cli.options import debug_option
from tamis.cli.plan import plan
from tamis.cli.scan import scan
from tamis.cli.sql import sql
from tamis.cli.verify import verify

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


for _command in (plan, scan, count, files, history, index, inspect, sql, verify):
    program.add_command(_command)


def main() -> None:
    """What the script `tamis` runs."""
    sys.excepthook = show_unexpected_error
    program(prog_name="tamis")
