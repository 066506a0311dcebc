"""Tables of other tools are read as these tools read them, and their readers ignore an index beside the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable, write_deltalake
from pyiceberg.table import StaticTable

import tamis
from builders.hive.partition_kinds import KINDS, Kind
from builders.pyiceberg.tables import create_table, find_latest_metadata
from tamis import col

Read = Callable[[Path], pa.Table]


def write_with_pyarrow(root: Path, rows: pa.Table) -> None:
    partitioning = ds.partitioning(pa.schema([rows.schema.field("p")]), flavor="hive")
    ds.write_dataset(rows, root, format="parquet", partitioning=partitioning)


def write_with_polars(root: Path, rows: pa.Table) -> None:
    frame = pl.from_arrow(rows)
    assert isinstance(frame, pl.DataFrame)
    frame.write_parquet(root, partition_by="p", mkdir=True)


def write_with_duckdb(root: Path, rows: pa.Table, options: str = "") -> None:
    with duckdb.connect() as connection:
        connection.register("rows", rows)
        connection.execute(f"COPY (SELECT * FROM rows) TO '{root}' (FORMAT parquet, PARTITION_BY (p){options})")


def write_with_duckdb_and_keep_the_column(root: Path, rows: pa.Table) -> None:
    write_with_duckdb(root, rows, ", WRITE_PARTITION_COLUMNS true")


def read_with_pyarrow(root: Path) -> pa.Table:
    return ds.dataset(root, partitioning="hive").to_table()


def read_with_polars(root: Path) -> pa.Table:
    return pl.scan_parquet(root, hive_partitioning=True).collect().to_arrow()


def read_with_polars_by_a_pattern(root: Path) -> pa.Table:
    return pl.scan_parquet(f"{root}/**/*.parquet", hive_partitioning=True).collect().to_arrow()


def read_with_duckdb(root: Path) -> pa.Table:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        return connection.sql(
            f"SELECT * FROM read_parquet('{root}/**/*.parquet', hive_partitioning = true)"
        ).to_arrow_table()


WRITERS: Mapping[str, tuple[Callable[[Path, pa.Table], None], Read]] = {
    "pyarrow": (write_with_pyarrow, read_with_pyarrow),
    "polars": (write_with_polars, read_with_polars),
    "duckdb": (write_with_duckdb, read_with_duckdb),
    "duckdb, column kept": (write_with_duckdb_and_keep_the_column, read_with_duckdb),
}
READERS: Mapping[str, Read] = {
    "pyarrow": read_with_pyarrow,
    "polars": read_with_polars,
    "polars, pattern": read_with_polars_by_a_pattern,
    "duckdb": read_with_duckdb,
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writer", WRITERS)
def test_H1_H3_H9_H10_folders_are_read_as_their_writer_reads_them(tmp_path: Path, writer: str, kind: str) -> None:
    write, read = WRITERS[writer]
    given, root = KINDS[kind], tmp_path / "table"
    write(root, given.rows)
    written = given.by_id(given.rows)
    table = tamis.open(root)
    assert given.by_id(table.scan().to_arrow()) == given.by_id(read(root)) == written
    assert table.scan().count() == len(written)
    declared = tamis.open(root, partitioning={"p": given.name})
    check_values(declared, given)
    assert str(declared.schema.field("p").type) in (str(given.type), f"large_{given.type}")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("writer", WRITERS)
def test_H11_an_index_disturbs_no_other_reader(tmp_path: Path, writer: str, kind: str) -> None:
    write, _ = WRITERS[writer]
    given, root = KINDS[kind], tmp_path / "table"
    write(root, given.rows)
    before = {name: find_outcome(read, root, given) for name, read in READERS.items()}
    tamis.index.build(root, bloom=["id"])
    assert {name: find_outcome(read, root, given) for name, read in READERS.items()} == before
    assert given.by_id(tamis.open(root).scan("id >= 0").to_arrow()) == given.by_id(given.rows)


@pytest.mark.parametrize("kind", KINDS)
def test_delta_tables_are_read_as_deltalake_reads_them(tmp_path: Path, kind: str) -> None:
    given, root = KINDS[kind], tmp_path / "table"
    write_deltalake(root, given.rows, partition_by=["p"])

    def by_deltalake() -> dict[int, object]:
        return given.by_id(DeltaTable(root).to_pyarrow_table())

    def by_polars() -> dict[int, object]:
        return given.by_id(pl.read_delta(str(root)).to_arrow())

    before = by_deltalake(), by_polars()
    table = tamis.open(root)
    assert given.by_id(table.scan().to_arrow()) == before[0]
    # In a partition column of Delta an empty text is NULL.
    if "" not in given.values:
        assert before[0] == given.by_id(given.rows)
        check_values(table, given)
    tamis.index.build(root)
    assert (by_deltalake(), by_polars()) == before
    assert given.by_id(tamis.open(root).scan("id >= 0").to_arrow()) == before[0]


@pytest.mark.parametrize("kind", KINDS)
def test_iceberg_tables_are_read_as_pyiceberg_reads_them(tmp_path: Path, kind: str) -> None:
    given, root = KINDS[kind], tmp_path / "table"
    if given.type == pa.float64():
        # pyiceberg cannot write NaN as a partition value of Avro that it compares with itself.
        given = Kind([value for value in given.values if value == value], given.type, given.name, given.meaning)
    written = create_table(root, given.rows.schema)
    with written.update_spec() as spec:
        spec.add_identity("p")
    written.append(given.rows)
    own = StaticTable.from_metadata(str(find_latest_metadata(root))).scan().to_arrow()
    table = tamis.open(root)
    assert given.by_id(table.scan().to_arrow()) == given.by_id(own) == given.by_id(given.rows)
    check_values(table, given)


def check_values(table: tamis.Table, given: Kind) -> None:
    """Check that each value is read as it was written, and that a filter by it finds exactly its rows."""
    written = given.by_id(given.rows)
    assert given.by_id(table.scan().to_arrow()) == written
    if given.name == "string":
        found = table.scan().to_arrow().sort_by("id")["p"].to_pylist()
        assert found == list(given.values)
    for number, value in enumerate(given.values):
        where = col("p").is_null() if value is None else col("p") == value
        scan = table.scan(where, ["id"])
        assert scan.to_arrow()["id"].to_pylist() == [number], value
        assert scan.count() == 1
        assert scan.plan("files").num_files == 1


def find_outcome(read: Read, root: Path, given: Kind) -> object:
    """Return the values that a reader finds in a folder, or the class of its error."""
    try:
        return given.by_id(read(root))
    except (pa.ArrowException, pl.exceptions.PolarsError, duckdb.Error, pa.lib.ArrowTypeError) as error:
        return type(error).__name__
