"""A file may store a partition column with other values than its partition has. Every interface sees the same rows.

In Iceberg tables the rows decide, because a file has all columns. In Delta tables and Hive directories the partition
value decides, because files lack the column, and one that they have is ignored.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.hive.tables import write_hive_table
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field

PARTS = [(1, [2, 2, 3]), (2, [2, 2]), (None, [1]), (3, [None, 3]), (4, [4, 4])]
"""The partition value of each file, and the values that it stores."""


def make_rows(number: int, values: list[int | None]) -> pa.Table:
    ids = range(10 * number, 10 * number + len(values))
    return pa.table({"id": pa.array(ids, pa.int64()), "k": pa.array(values, pa.int32())})


def write_iceberg(folder: Path, **options: Any) -> None:
    table = IcebergFolder(folder, [field(1, "id", "long"), field(2, "k", "int")], specs=[[(2, "identity", "k")]])
    for number, (key, values) in enumerate(PARTS):
        table.commit(table.data_file(f"{number}.parquet", make_rows(number, values), partition=(key,), **options))


def write_iceberg_without_statistics(folder: Path) -> None:
    write_iceberg(folder, metrics={})


def write_hive(folder: Path) -> None:
    parts = [
        ({"k": None if key is None else str(key)}, make_rows(number, values))
        for number, (key, values) in enumerate(PARTS)
    ]
    write_hive_table(folder, parts)


def write_delta(folder: Path) -> None:
    log = DeltaLog(folder, {"id": "long", "k": "integer"}, partition_columns=["k"])
    files = [
        data_file(log, f"{number}.parquet", make_rows(number, values), {"k": None if key is None else str(key)})
        for number, (key, values) in enumerate(PARTS)
    ]
    log.commit(*files)


WRITERS: dict[str, Callable[[Path], object]] = {
    "iceberg": write_iceberg,
    "iceberg_without_statistics": write_iceberg_without_statistics,
    "delta": write_delta,
    "hive": write_hive,
}
FILTERS = ("true", "k = 1", "k = 2", "k IN (1, 3)", "k IS NULL", "k IS NOT NULL", "k <> 2", "k >= 2 AND id < 35")


@pytest.fixture(scope="module", params=WRITERS)
def table(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tamis.Table:
    folder = tmp_path_factory.mktemp(request.param) / "t"
    WRITERS[request.param](folder)
    return tamis.open(folder)


@pytest.mark.parametrize("where", FILTERS)
def test_every_interface_answers_for_the_same_rows(table: tamis.Table, where: str) -> None:
    scan = table.scan(where)
    rows = scan.to_arrow()
    keys = rows["k"].to_pylist()
    numbers = sorted(key for key in keys if key is not None)
    assert scan.count() == rows.num_rows
    assert table.scan(where, limit=3).to_arrow().num_rows == min(3, rows.num_rows)
    session = tamis.connect().register("t", table)

    def query(text: str) -> list[tuple[Any, ...]]:
        found = session.sql(text.format(f"FROM t WHERE {where}")).to_arrow()
        return list(zip(*(column.to_pylist() for column in found.columns), strict=True))

    assert query("SELECT count(*), count(k), sum(k), min(k), max(k) {}") == [
        (len(keys), len(numbers), sum(numbers) if numbers else None, min(numbers, default=None),
         max(numbers, default=None))
    ]  # fmt: skip
    assert dict(query("SELECT k, count(*) {} GROUP BY k")) == Counter(keys)
    assert query("SELECT count(DISTINCT k) {}") == [(len(set(numbers)),)]
    assert [key for (key,) in query("SELECT k {} ORDER BY k DESC NULLS LAST LIMIT 2")] == (
        numbers[::-1] + [None] * (len(keys) - len(numbers))
    )[:2]
    assert sorted(id_ for (id_,) in query("SELECT id {}")) == sorted(rows["id"].to_pylist())


def test_rows_decide_in_an_iceberg_table(tmp_path: Path) -> None:
    write_iceberg(tmp_path)
    table = tamis.open(tmp_path)
    assert sorted(table.scan().to_arrow()["k"].to_pylist(), key=str) == [1, 2, 2, 2, 2, 3, 3, 4, 4, None]
    # Statistics of the file confirm the partition value, so that no file is read.
    counted = table.scan("k = 4")
    assert counted.count() == 2
    assert counted.report.to_dict()["bytes_read"] == 0


@pytest.mark.parametrize("write", [write_delta, write_hive])
def test_partition_values_decide_in_other_tables(tmp_path: Path, write: Callable[[Path], object]) -> None:
    write(tmp_path)
    assert Counter(tamis.open(tmp_path).scan().to_arrow()["k"].to_pylist()) == {1: 3, 2: 2, None: 1, 3: 2, 4: 2}
