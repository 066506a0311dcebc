"""Reads of very many small files on Spark: planned by the driver, and by the executors that read them."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from harness import Section, Settings, Target, format_mebibytes, make_markdown_table
from new_process import Work, measure
from spark_sessions import start_local_session
from table_writers import ensure_table

NAME = "distributed_plan"

MEMORY = "1g"
"""The memory of Spark's driver. In `local[2]` its executors share it."""
REAL_FILES = 2_000
"""The number of files that exist. More paths lead to them through links to their folder."""
ROWS = 10
FILES_PER_PART = 100_000
FEW, MANY, LARGE = 20_000, 200_000, 5_000_000
MAX_BYTES = 1024 * 1024 * 1024
"""The memory that the Python process of a driver may take."""

# --- The table --------------------------------------------------------------------------------------------------------


def write_table(folder: Path, files: int) -> None:
    """Write a Delta table whose files have ten rows each. File n has the ids from 10 (n modulo `REAL_FILES`) on."""
    real = folder / "d0"
    real.mkdir(parents=True)
    for number in range(REAL_FILES):
        ids = pa.array(range(ROWS * number, ROWS * (number + 1)), pa.int64())
        pq.write_table(pa.table({"id": ids}), real / f"{number}.parquet")
    for number in range(1, -(-files // REAL_FILES)):
        (folder / f"d{number}").symlink_to("d0", target_is_directory=True)
    sizes = np.array([(real / f"{number}.parquet").stat().st_size for number in range(REAL_FILES)])
    log = folder / "_delta_log"
    log.mkdir()
    starts = range(0, files, FILES_PER_PART)
    for part, start in enumerate(starts):
        rows = _make_adds(np.arange(start, min(start + FILES_PER_PART, files)), sizes)
        if not part:
            rows = pa.concat_tables([_make_table_rows(), rows], promote_options="default")
        pq.write_table(rows, log / f"{1:020}.checkpoint.{part + 1:010}.{len(starts):010}.parquet")
    (log / f"{1:020}.json").write_text(json.dumps({"commitInfo": {}}) + "\n")
    (log / "_last_checkpoint").write_text(json.dumps({"version": 1, "size": files + 2, "parts": len(starts)}))


_MAP = pa.map_(pa.string(), pa.string())


def _make_table_rows() -> pa.Table:
    fields = [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]
    metadata = {
        "id": NAME,
        "format": {"provider": "parquet"},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": [],
    }
    kind = pa.struct(
        [
            ("id", pa.string()),
            ("format", pa.struct([("provider", pa.string())])),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", _MAP),
        ]
    )
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
    return pa.table(
        {
            "protocol": pa.array([{"minReaderVersion": 1, "minWriterVersion": 2}, None], protocol),
            "metaData": pa.array([None, metadata], kind),
        }
    )


def _make_adds(numbers: np.ndarray, sizes: np.ndarray) -> pa.Table:
    own = numbers % REAL_FILES
    folders, names, lowest, highest = (
        pa.array(each).cast(pa.string()) for each in (numbers // REAL_FILES, own, ROWS * own, ROWS * own + ROWS - 1)
    )
    join = pc.binary_join_element_wise
    paths = join("d", folders, "/", names, ".parquet", "")
    count = '{"numRecords":10,"minValues":{"id":'
    statistics = join(count, lowest, '},"maxValues":{"id":', highest, '},"nullCount":{"id":0}}', "")
    none = pa.array([], pa.string())
    no_values = pa.MapArray.from_arrays(np.zeros(len(own) + 1, np.int32), none, none)
    add = pa.StructArray.from_arrays(
        [paths, no_values, pa.array(sizes[own]), pa.array(np.zeros(len(own), np.int64)), statistics],
        ["path", "partitionValues", "size", "modificationTime", "stats"],
    )
    return pa.table({"add": add})


# --- Preparations: they start Spark; only the work is measured --------------------------------------------------------


def prepare_count(path: str, where: str, **tuning: int) -> Work:
    """Return work that counts the rows of a filter on Spark, and the seconds until the DataFrame existed."""
    import tamis

    spark = start_local_session("", MEMORY)
    # A lambda is pickled by value. Workers do not have this module.
    spark.range(100).mapInArrow(lambda batches: batches, "id long").count()

    def work() -> tuple[float, int]:
        started = time.perf_counter()
        frame: Any = tamis.open(path, tuning=tamis.Tuning(**tuning)).scan(where).to_spark(spark)
        made = time.perf_counter() - started
        return made, frame.count()

    return work


# --- Measurements -----------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    section = Section(
        NAME,
        "Plans that stay distributed",
        f"A Delta table of many files of {ROWS} rows, in a checkpoint with {FILES_PER_PART:,} files in each part. The "
        f"filter `id >= 0` keeps all files; their rows are counted. {REAL_FILES:,} files exist: other paths lead to "
        f"them through links. Spark is `local[2]` with a driver of {MEMORY}, which its executors share. *DataFrame* is "
        "the time of `to_spark`; *memory* is the peak of the Python process that calls it. One round.",
    )
    if settings.quick:
        section.remark("Not measured with `--quick`: this needs Java.")
        return section
    never = 1 << 40
    ways = [
        (FEW, "the driver plans", {"spark_max_planned_files": never}),
        (FEW, "executors plan", {"spark_max_planned_files": 0}),
        (FEW, "executors list and plan", {"spark_max_planned_files": 0, "spark_max_listed_files": 0}),
        (MANY, "executors plan", {}),
        (MANY, "executors list and plan", {"spark_max_listed_files": 0}),
        *([(LARGE, "executors list and plan", {})] if settings.large else []),
    ]
    rows = []
    for files, way, tuning in ways:
        path = ensure_table(settings.data / f"small-files-{files}", partial(write_table, files=files))
        measured = measure(prepare_count, path=str(path), where="id >= 0", **tuning)
        made, count = measured.found
        assert count == files * ROWS, count
        more = measured.peak_memory - measured.memory_before
        peak = f"{format_mebibytes(measured.peak_memory)} (+ {format_mebibytes(more)})"
        rows.append([f"{files:,}", way, f"{made:.1f} s", f"{measured.seconds:.1f} s", peak])
        if way == "executors list and plan":
            wanted = f"{files:,} files: the Python process takes at most {format_mebibytes(MAX_BYTES)}"
            section.targets.append(Target(wanted, MAX_BYTES / measured.peak_memory, at_least=1))
    section.add("id >= 0", make_markdown_table(["files", "plan", "DataFrame", "rows counted", "memory"], rows))
    return section
