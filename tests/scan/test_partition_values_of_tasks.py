"""Partition values from plan to rows: exact, even if Python cannot represent them."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from tamis.scan.planning.task_data import get_task_reader, tasks_from_table, tasks_to_table
from tamis.scan.planning.tasks import ScanTask, read_partition_values


def write_partitions(folder: Path, declared: str, *texts: str | None) -> tamis.Table:
    """Write a Delta table with a file for each partition value; ids count from 0."""
    log = DeltaLog(folder, {"id": "long", "p": declared}, partition_columns=["p"], features=["timestampNtz"])
    log.commit(
        *(
            data_file(log, f"{number}.parquet", pa.table({"id": pa.array([number], pa.int64())}), {"p": text})
            for number, text in enumerate(texts)
        )
    )
    return tamis.open(folder)


def read_through_table(scan: tamis.Scan, schema: pa.Schema) -> pa.Table:
    """Return the rows of a scan whose tasks were converted to a table and back, as for another process."""
    reader = get_task_reader(scan)
    tasks = tasks_from_table(tasks_to_table(scan.plan("row_groups").tasks, reader.schema, reader.partition_columns))
    return pa.Table.from_batches(reader.read(tasks), schema)


@pytest.mark.parametrize(
    ("declared", "text", "number"),
    [
        ("date", "+10000-01-01", 2932897),
        ("date", "-0044-03-15", -735525),
        ("date", "0000-12-31", -719163),
        ("timestamp", "+10000-01-01 00:00:00", 253402300800000000),
        ("timestamp_ntz", "+294247-01-10 04:00:54", 9223372036854000000),
    ],
)
def test_D5_values_beyond_the_calendar_of_python_are_read(
    tmp_path: Path, declared: str, text: str, number: int
) -> None:
    today = "2024-01-01" if declared == "date" else "2024-01-01 00:00:00"
    table = write_partitions(tmp_path, declared, text, today)
    scan = table.scan()
    for found in (scan.to_arrow(), read_through_table(scan, table.schema)):
        values = found["p"].cast(pa.int32() if declared == "date" else pa.int64())
        by_id = dict(zip(found["id"].to_pylist(), values.to_pylist(), strict=True))
        assert by_id[0] == number
    assert table.scan("id = 0", columns=["id"]).to_arrow()["id"].to_pylist() == [0]


def test_F4_zeros_of_both_signs_stay_apart_in_one_read(tmp_path: Path) -> None:
    table = write_partitions(tmp_path, "double", "-0.0", "0.0", "-0.0", "NaN", "NaN", None)
    expected = [struct.pack("<d", value) for value in (-0.0, 0.0, -0.0)]
    scan = table.scan()
    for found in (scan.to_arrow(), read_through_table(scan, table.schema)):
        found = found.sort_by("id")
        assert [struct.pack("<d", value) for value in found["p"].to_pylist()[:3]] == expected
        assert str(found["p"].to_pylist()[3:]) == "[nan, nan, None]"


@pytest.mark.parametrize(
    ("values", "runs"),
    [
        (pa.array(["a", "a", None, None, "", "a"]), [0, 0, 1, 1, 2, 3]),
        (pa.array([0.0, 0.0, -0.0, float("nan"), float("nan"), None], pa.float32()), [0, 0, 1, 2, 2, 3]),
        (pa.array([True, None, False, False]), [0, 1, 2, 2]),
        (pa.array([2**40, 5, 5], pa.timestamp("us", "UTC")), [0, 1, 1]),
        (pa.array([b"a", b"a", b"b"]), [0, 0, 1]),
        (pa.array([None, None], pa.null()), [0, 0]),
        (pa.array(["a", "a", "b"]).dictionary_encode(), [0, 0, 1]),
        (pa.array([], pa.string()), []),
    ],
)
def test_adjacent_tasks_with_the_same_values_share_them(values: pa.Array, runs: list[int]) -> None:
    found = read_partition_values(pa.table({"p": values, "same": pa.repeat(pa.scalar(1), len(values))}))
    identities = [id(each) for each in found]
    assert [list(dict.fromkeys(identities)).index(each) for each in identities] == runs
    assert all(each["p"].equals(value) or str(value) == "nan" for each, value in zip(found, values, strict=True))


def test_tasks_without_partitions_go_through_a_table() -> None:
    tasks = [ScanTask("a", 1, 2, number, 3, 4, {}, ()) for number in range(2)]
    schema = pa.schema([("id", pa.int64())])
    assert tasks_from_table(tasks_to_table(tasks, schema, ())) == tasks
