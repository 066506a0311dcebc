"""Native scans of the embedded engine return the rows of Tamis's own scans, and are used only where they do."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.statistics import field as delta_field
from builders.delta.statistics import mapping
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from builders.iceberg.deletes import equality_deletes
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.query.sql_tables import has_same_rows
from tamis.engines.duckdb import native_scan as own_files
from tamis.query.plan.nodes import TableScan, walk_plan
from tamis.query.query import get_compiled_query
from tamis.tuning import Tuning

ROWS = pa.table(
    {
        "id": pa.array([1, 2, None, 4], pa.int64()),
        "value": [1.0, math.nan, None, -0.5],
        "text": ["a", "b", None, "d"],
        "price": pa.array([Decimal("1.25"), None, Decimal("2.50"), Decimal("9.75")], pa.decimal128(10, 2)),
    }
)


NATIVE, STREAMED = Tuning(min_native_bytes=0), Tuning(min_native_bytes=2**60)


def connect(path: Path, tuning: Tuning) -> tamis.Session:
    session = tamis.connect(tuning=tuning)
    session.register("t", session.open(path))
    return session


def read_both(path: Path, query: str) -> tuple[pa.Table, pa.Table, bool]:
    """Return the rows of a native scan, the rows of a stream, and whether a native scan was used."""
    made = connect(path, NATIVE).sql(query)
    scans = [node for node in walk_plan(get_compiled_query(made).optimized.plan) if isinstance(node, TableScan)]
    given = [
        own_files.plan_native_scan(scan, get_compiled_query(made).context.connectors[scan.connector]) for scan in scans
    ]
    streamed = connect(path, STREAMED).sql(query).to_arrow()
    return made.to_arrow(), streamed, all(each is not None for each in given)


def write_file(folder: Path) -> Path:
    pq.write_table(ROWS, folder / "t.parquet")
    return folder / "t.parquet"


def write_hive(folder: Path) -> Path:
    return write_hive_table(folder / "t", [({"region": name}, ROWS) for name in ("eu", "us", None)])


def write_delta(folder: Path) -> Path:
    for name in ("eu", "us"):
        rows = ROWS.append_column("region", pa.array([name] * 4))
        deltalake.write_deltalake(str(folder / "t"), rows, partition_by=["region"], mode="append")
    return folder / "t"


def write_iceberg_folder(folder: Path) -> IcebergFolder:
    """Write two files with swapped physical names of two columns."""
    region = field(9, "region", "string")
    known = {"id": "long", "value": "double", "text": "string", "price": "decimal(10, 2)"}
    before = [field(number, name, kind) for number, (name, kind) in enumerate(known.items(), 1)]
    before[0]["name"], before[2]["name"] = "text", "id"
    table = IcebergFolder(folder / "t", [*before, region], specs=[[(9, "identity", "region")]])
    rows = ROWS.append_column("region", pa.array(["eu"] * 4))
    table.commit(table.data_file("1.parquet", rows.rename_columns(["text", "value", "id", "price", "region"])))
    table.evolve([*(field(number, name, kind) for number, (name, kind) in enumerate(known.items(), 1)), region])
    table.commit(table.data_file("2.parquet", rows))
    return table


def write_iceberg(folder: Path) -> Path:
    return write_iceberg_folder(folder).folder


@pytest.mark.parametrize("table", [write_file, write_hive, write_delta, write_iceberg])
@pytest.mark.parametrize(
    "query",
    [
        "SELECT * FROM t",
        "SELECT sum(price), avg(value), max(text) FROM t WHERE value >= 1",
        "SELECT id, text FROM t WHERE NOT value > 1",
        "SELECT a.id, b.value FROM t a JOIN t b ON a.value = b.value",
        "SELECT value FROM t ORDER BY value DESC NULLS LAST",
    ],
)
def test_a_native_scan_returns_the_rows_of_a_stream(tmp_path: Path, table: Callable[[Path], Path], query: str) -> None:
    from_files, streamed, _ = read_both(table(tmp_path), query)
    assert has_same_rows(from_files, streamed)
    assert from_files.schema.types == streamed.schema.types


def test_a_whole_table_is_scanned_natively(tmp_path: Path) -> None:
    assert read_both(write_file(tmp_path), "SELECT * FROM t")[2]
    assert read_both(write_hive(tmp_path / "hive"), "SELECT * FROM t")[2]


def test_I5_files_are_read_by_their_physical_names(tmp_path: Path) -> None:
    table = write_iceberg_folder(tmp_path)
    expected = [1, 1, 2, 2, 4, 4, None, None]
    found, _, is_given = read_both(table.folder, "SELECT id FROM t ORDER BY id NULLS LAST")
    assert (found["id"].to_pylist(), is_given) == (expected, True)
    found, _, is_given = read_both(table.folder, "SELECT id, region FROM t WHERE text >= 'b' AND id < 3")
    assert (found.to_pylist(), is_given) == ([{"id": 2, "region": "eu"}] * 2, True)
    # Files that lack a column, have other types or have deleted rows are streamed by Tamis.
    table.evolve([*table.fields, field(10, "late", "long")])
    table.commit()
    assert not read_both(table.folder, "SELECT id, late FROM t")[2]
    assert read_both(table.folder, "SELECT id FROM t")[2]
    table.commit(equality_deletes(table, "e.parquet", pa.table({"id": [4]}), partition=("eu",)))
    found, streamed, is_given = read_both(table.folder, "SELECT id FROM t")
    assert has_same_rows(found, streamed)
    assert not is_given


def test_D6_mapped_columns_of_delta_are_scanned_natively(tmp_path: Path) -> None:
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    columns = [delta_field("id", "long", **mapping(1, "x")), delta_field("x", "long", **mapping(2, "col-2"))]
    log = DeltaLog(tmp_path, columns, configuration=settings, features=["columnMapping"])
    log.commit(data_file(log, "1.parquet", pa.table({"x": [1, 2], "col-2": [10, None]}), stats=None))
    found, _, is_given = read_both(tmp_path, "SELECT x, id FROM t WHERE id > 1")
    assert (found.to_pylist(), is_given) == ([{"x": None, "id": 2}], True)


def test_nan_is_larger_than_the_maximum_in_file_statistics(tmp_path: Path) -> None:
    path = write_file(tmp_path)
    # Tamis prunes by constants; the dynamic filters of the engine must handle NaN as well.
    found, _, is_given = read_both(path, "SELECT id FROM t WHERE value > 1")
    assert (found["id"].to_pylist(), is_given) == ([2], False)
    joined = "SELECT a.id FROM t a JOIN t b ON a.value = b.value WHERE b.id = 2"
    assert read_both(path, joined)[0]["id"].to_pylist() == [2]
    sorted_ = "SELECT value FROM t ORDER BY value DESC NULLS LAST, id OFFSET 0"
    found, _, is_given = read_both(path, sorted_)
    assert math.isnan(found["value"][0].as_py())
    assert is_given


def test_files_with_unreliable_bounds_are_not_scanned_natively(tmp_path: Path) -> None:
    path = write_file(tmp_path)
    by_bytes = ("SELECT id FROM t WHERE text >= 'a'", "SELECT id FROM t WHERE price >= 1")
    assert not read_both(path, "SELECT id FROM t WHERE value >= 1")[2]
    assert read_both(path, "SELECT text, price FROM t WHERE id >= 1")[2]
    assert all(read_both(path, query)[2] for query in by_bytes)
    # A writer whose byte order is unknown.
    written = path.read_bytes()
    path.write_bytes(written.replace(b"parquet-cpp-arrow", b"parquet-cpp-other"))
    assert not any(read_both(path, query)[2] for query in by_bytes)
    assert read_both(path, "SELECT text, price FROM t WHERE id >= 1")[2]


def test_partition_values_are_added(tmp_path: Path) -> None:
    found, _, is_given = read_both(write_hive(tmp_path), "SELECT DISTINCT region, id FROM t WHERE id = 1")
    assert is_given
    assert {row["region"] for row in found.to_pylist()} == {"eu", "us", None}


def test_files_that_lack_a_column_are_streamed(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), ROWS.select(["id"]))
    deltalake.write_deltalake(str(tmp_path / "t"), ROWS, mode="append", schema_mode="merge")
    found, _, is_given = read_both(tmp_path / "t", "SELECT id, text FROM t")
    assert not is_given
    assert found.num_rows == 8


def test_a_deleted_row_is_not_read_again(tmp_path: Path, golden: Path) -> None:
    paths = [path.parents[1] for path in golden.rglob("_delta_log/*.json") if "deletionVector" in path.read_text()]
    assert paths, "some golden table has deletion vectors"
    for path in sorted(set(paths))[:3]:
        session = connect(path, NATIVE)
        assert (
            session.sql("SELECT count(*) AS n FROM t").to_arrow()["n"][0].as_py() == session.open(path).scan().count()
        )
        assert session.sql("SELECT * FROM t").to_arrow().num_rows == session.open(path).scan().count()


def test_a_selective_filter_a_limit_and_nested_columns_are_streamed(tmp_path: Path) -> None:
    rows = pa.table({"id": range(10_000), "nested": [{"x": 1}] * 10_000})
    pq.write_table(rows, tmp_path / "t.parquet", row_group_size=1_000)
    path = tmp_path / "t.parquet"
    assert not read_both(path, "SELECT id FROM t WHERE id < 50")[2]
    assert not read_both(path, "SELECT id FROM t LIMIT 5")[2]
    assert not read_both(path, "SELECT nested.x FROM t")[2]
    assert read_both(path, "SELECT id FROM t WHERE id > 50")[2]


def test_a_native_scan_reads_no_other_files(tmp_path: Path) -> None:
    path = write_file(tmp_path)
    pq.write_table(pa.table({"secret": [1]}), tmp_path / "other.parquet")
    session: Any = connect(path, NATIVE)
    query = f"SELECT (SELECT max(secret) FROM read_parquet('{tmp_path}/other.parquet')) AS s, id, rank() OVER () FROM t"
    with pytest.raises(tamis.TamisError):
        session.sql(query).to_arrow()


def test_small_files_beside_large_ones_are_scanned_natively_too(tmp_path: Path) -> None:
    counts = {"large": 40_000, "small": 40}
    for name, count in counts.items():
        pq.write_table(pa.table({"id": range(count), "name": [f"n{n % 7}" for n in range(count)]}), tmp_path / name)
    size = (tmp_path / "large").stat().st_size
    session, streaming = tamis.connect(tuning=Tuning(min_native_bytes=size)), tamis.connect(tuning=STREAMED)
    for name in counts:
        session.register(name, session.open(tmp_path / name))
        streaming.register(name, streaming.open(tmp_path / name))
    queries = [
        "SELECT count(*), max(a.name) FROM large l JOIN small a ON l.id = a.id WHERE a.id > 3",
        # The same rows under several names, with and without a filter.
        "SELECT count(*), max(b.name) FROM large l JOIN small a ON l.id = a.id JOIN small b ON b.name = a.name",
        "SELECT count(*) FROM large l JOIN small a ON l.id = a.id JOIN small b ON b.id = a.id AND b.name = 'n3'",
        "SELECT l.id, a.id, b.id FROM large l JOIN small a ON l.id = a.id JOIN small b ON l.id = b.id + 1",
    ]
    for query in queries:
        made = session.sql(query)
        scans = [node for node in walk_plan(get_compiled_query(made).optimized.plan) if isinstance(node, TableScan)]
        leaves = [(str(number), scan) for number, scan in enumerate(scans)]
        assert len(own_files.plan_native_scans(leaves, get_compiled_query(made).context.connectors)) == len(leaves)
        assert has_same_rows(made.to_arrow(), streaming.sql(query, rules=False).to_arrow())
    alone = session.sql("SELECT * FROM small")
    (scan,) = (node for node in walk_plan(get_compiled_query(alone).optimized.plan) if isinstance(node, TableScan))
    assert own_files.plan_native_scans([("s", scan)], get_compiled_query(alone).context.connectors) == {}
