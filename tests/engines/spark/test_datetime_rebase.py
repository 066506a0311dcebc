"""Datetime rebase: dates that Spark wrote in its legacy mode are read as Spark reads them."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog, add
from tamis.parquet.footer.datetime_rebase import FIRST_GREGORIAN_DAY
from tamis.scan.scan import Scan

DAY = 86_400_000_000
_WRITING = {
    "spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY",
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
}

Rows = list[tuple[int, int, int]]


@pytest.fixture(scope="module")
def folder(spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file with dates over two thousand years, written in the legacy mode and the zone UTC."""
    choice = random.Random(1582)
    edges = [
        FIRST_GREGORIAN_DAY - 11,
        FIRST_GREGORIAN_DAY - 1,
        FIRST_GREGORIAN_DAY,
        FIRST_GREGORIAN_DAY + 1,
        -719162,
        -354285,
        -354284,
    ]
    days = [*edges, *(choice.randrange(-719162, 20_000) for _ in range(500))]
    rows = pa.table({"id": range(len(days)), "day": days, "at": [day * DAY + choice.randrange(DAY) for day in days]})
    path = tmp_path_factory.mktemp("old") / "t"
    before = {name: spark.conf.get(name) for name in _WRITING}
    for name, value in _WRITING.items():
        spark.conf.set(name, value)
    try:
        frame = spark.createDataFrame(rows).selectExpr(
            "id", "date_from_unix_date(day) AS d", "timestamp_micros(at) AS ts"
        )
        frame.coalesce(1).write.parquet(str(path))
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    return path


def read_with_spark(frame: Any) -> Rows:
    found = frame.selectExpr("id", "unix_date(d) AS d", "unix_micros(ts) AS ts").toArrow()
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True))


def read_locally(scan: Scan) -> Rows:
    found = scan.to_arrow()
    columns = found["id"], found["d"].cast(pa.int32()), found["ts"].cast(pa.int64())
    return sorted(zip(*(column.to_pylist() for column in columns), strict=True))


FILTERS = [
    "d = DATE'1582-10-04' OR d BETWEEN DATE'0900-02-01' AND DATE'1300-07-01'",
    "ts < TIMESTAMP'1300-01-01 00:00:00Z'",
]


def test_O8_T6_old_dates_are_rebased_as_spark_does(spark: Any, folder: Path) -> None:
    table = tamis.open(folder)
    written = read_with_spark(spark.read.parquet(str(folder)))
    assert read_locally(table.scan()) == written
    for where in FILTERS:
        expected = read_with_spark(spark.read.parquet(str(folder)).where(where))
        assert expected
        assert read_locally(table.scan(where)) == expected
        assert read_with_spark(table.scan(where).to_spark(spark)) == expected


def test_O8_T6_statistics_in_the_log_match_the_dates_in_the_file(spark: Any, folder: Path, tmp_path: Path) -> None:
    file = next(folder.glob("*.parquet"))
    log = DeltaLog(tmp_path / "t", {"id": "long", "d": "date", "ts": "timestamp"})
    shutil.copy(file, log.table / "old.parquet")
    bounds = {"minValues": {"d": "0001-01-01"}, "maxValues": {"d": "2024-10-03"}, "nullCount": {"d": 0}}
    log.commit(add("old.parquet", size=file.stat().st_size, stats=json.dumps({"numRecords": 507, **bounds})))
    table = tamis.open(log.table)
    for where in FILTERS:
        expected = read_with_spark(spark.read.parquet(str(folder)).where(where))
        assert read_locally(table.scan(where)) == expected
        assert read_with_spark(table.scan(where).to_spark(spark, reader="spark")) == expected
