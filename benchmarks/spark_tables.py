"""Writes TPC-H's lineitem for Spark: as Delta and Hive-style tables, sorted by ship date and unsorted."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
from table_writers import ensure_table

ROWS_OF_A_FILE = 2_000_000
ROWS_OF_A_GROUP = 500_000

FORMATS = ("delta", "hive")
ORDERS = ("sorted", "unsorted")


def ensure_line_items(data: Path, scale: float) -> dict[tuple[str, str], Path]:
    """Return the tables by format and order, and write those that do not exist."""
    raw = ensure_table(data / f"tpch-lineitem-{scale:g}", lambda folder: _generate(folder, scale))
    return {
        (form, order): ensure_table(data / f"lineitem-{form}-{order}-{scale:g}", _make_writer(form, order, raw))
        for form in FORMATS
        for order in ORDERS
    }


def _generate(folder: Path, scale: float) -> None:
    program = Path(sys.executable).with_name("tpchgen-cli")
    command = [str(program), "parquet", "--scale-factor", f"{scale:g}", "--tables", "lineitem"]
    subprocess.run([*command, "--output-dir", str(folder)], check=True, capture_output=True)


def _make_writer(form: str, order: str, raw: Path) -> Callable[[Path], None]:
    def write(folder: Path) -> None:
        connection = duckdb.connect()
        # Sorts that exceed the memory spill to a folder beside the table.
        connection.execute(f"SET temp_directory = '{folder / 'sorting'}'; SET memory_limit = '6GB'")
        by = " ORDER BY l_shipdate, l_orderkey" if order == "sorted" else ""
        reader = connection.sql(f"SELECT * FROM read_parquet('{raw}/**/*.parquet'){by}").to_arrow_reader(250_000)
        (_write_delta if form == "delta" else _write_hive)(folder, reader)
        connection.close()
        shutil.rmtree(folder / "sorting", ignore_errors=True)

    return write


def _write_delta(folder: Path, reader: pa.RecordBatchReader) -> None:
    properties = deltalake.WriterProperties(compression="ZSTD", max_row_group_size=ROWS_OF_A_GROUP)
    for batches in _split_into_files(reader):
        deltalake.write_deltalake(folder, pa.Table.from_batches(batches), mode="append", writer_properties=properties)


def _write_hive(folder: Path, reader: pa.RecordBatchReader) -> None:
    """Write a table that is partitioned by ship mode, which has seven values."""
    for number, batches in enumerate(_split_into_files(reader)):
        table = pa.Table.from_batches(batches)
        for mode in table["l_shipmode"].unique().to_pylist():
            own = table.filter(pa.compute.equal(table["l_shipmode"], mode)).drop_columns(["l_shipmode"])
            directory = folder / f"l_shipmode={mode}"
            directory.mkdir(exist_ok=True)
            pq.write_table(
                own,
                directory / f"part-{number:04}.parquet",
                compression="zstd",
                row_group_size=ROWS_OF_A_GROUP,
                write_page_index=True,
            )


def _split_into_files(reader: pa.RecordBatchReader) -> Iterator[list[pa.RecordBatch]]:
    waiting: list[pa.RecordBatch] = []
    rows = 0
    for batch in reader:
        waiting.append(batch)
        rows += batch.num_rows
        if rows >= ROWS_OF_A_FILE:
            yield waiting
            waiting, rows = [], 0
    if waiting:
        yield waiting
