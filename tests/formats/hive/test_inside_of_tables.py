"""Directories inside Delta and Iceberg tables: they hold the files of all versions, with deleted rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from tamis.errors import UnsupportedFeature


def test_a_partition_directory_of_a_delta_table_is_rejected_unless_format_is_hive(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path / "events", {"id": "long", "day": "string"}, partition_columns=["day"])
    (tmp_path / "events" / "day=a").mkdir()
    rows = pa.table({"id": pa.array([1, 2], pa.int64())})
    log.commit(data_file(log, "day=a/1.parquet", rows, {"day": "a"}))
    # This applies to the log too: the error must not advise to remove its other files.
    for folder in ("day=a", "_delta_log"):
        with pytest.raises(UnsupportedFeature, match=r"is inside the Delta table .*events.*format='hive'"):
            tamis.open(tmp_path / "events" / folder)
    assert tamis.open(tmp_path / "events" / "day=a", format="hive").scan().count() == 2
    assert tamis.open(tmp_path / "events" / "day=a" / "1.parquet").scan().count() == 2
    assert tamis.open(tmp_path / "events").scan("day = 'a'").count() == 2


def test_the_data_directory_of_an_iceberg_table_is_rejected(tmp_path: Path) -> None:
    (tmp_path / "t" / "metadata").mkdir(parents=True)
    (tmp_path / "t" / "metadata" / "v1.metadata.json").write_text("{}")
    (tmp_path / "t" / "data").mkdir()
    pq.write_table(pa.table({"id": [1]}), tmp_path / "t" / "data" / "1.parquet")
    for folder in ("data", "metadata"):
        with pytest.raises(UnsupportedFeature, match="is inside the Iceberg table"):
            tamis.open(tmp_path / "t" / folder)
