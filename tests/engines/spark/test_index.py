"""An index built in executors equals a local one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from builders.delta.log import DeltaLog
from builders.delta.statistics import field, mapping
from builders.delta.tables import data_file
from builders.hive.indexed import write_files


def read_entries(folder: Path) -> pa.Table:
    tables = [pq.read_table(path) for path in folder.glob("part-*.tamis")]
    return pa.concat_tables([table.replace_schema_metadata(None) for table in tables]).sort_by("path")


def test_O8_an_index_built_on_spark_is_the_one_built_locally(any_spark: Any, tmp_path: Path) -> None:
    folder = write_files(tmp_path / "folder", range(40))
    settings = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "2"}
    columns = [field("id", "long", **mapping(1, "col-1")), field("x", "long", **mapping(2, "col-2"))]
    log = DeltaLog(tmp_path / "delta", columns, configuration=settings, features=["columnMapping"])
    for number in range(3):
        rows = pa.table({"col-1": [number], "col-2": [number * 10]})
        log.commit(data_file(log, f"{number}.parquet", rows, stats=None))
    (folder / "0040.parquet").write_bytes(b"no Parquet file")
    for root, where, bloom in ((folder, "id = 25", ["name"]), (log.table, "x = 20", ["x"])):
        here = tamis.index.build(root, bloom=bloom, location=tmp_path / f"{root.name}-here")
        there = tamis.index.build(root, bloom=bloom, engine=any_spark, location=tmp_path / f"{root.name}-there")
        assert {**there.to_dict(), "location": "", "seconds": 0, "index_bytes": 0} == {
            **here.to_dict(),
            "location": "",
            "seconds": 0,
            "index_bytes": 0,
        }
        assert read_entries(Path(there.location)).equals(read_entries(Path(here.location)))
        kept = tamis.open(root, index=there.location).scan(where).plan("files").num_files
        assert kept == (2 if root == folder else 1)
