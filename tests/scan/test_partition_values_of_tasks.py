"""Partition values from plan to rows: exact, even if Python cannot represent them."""

from __future__ import annotations

import struct
from pathlib import Path

import pyarrow as pa
import pytest

import tamis
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from tamis.formats.constants import (
    add_partitions,
    list_absent,
    make_absent_values,
    name_absent,
    read_constants,
    read_partitions,
)
from tamis.scan.planning.task_data import get_task_reader, tasks_from_table, tasks_to_table
from tamis.scan.planning.tasks import ScanTask


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
    tasks = sent(scan.plan("row_groups").tasks)
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


def test_constants_of_files_are_those_of_their_tasks() -> None:
    values = pa.array([0.0, -0.0, float("nan"), None], pa.float32())
    files = add_partitions(pa.table({"path": ["a", "b", "c", "d"]}), pa.table({"p": values, "path": [1, 2, 3, 4]}))
    is_unknown = pa.array([False, False, True, False])
    known = make_absent_values(pa.array([5, None, 6, None]), is_unknown)
    files = files.append_column(name_absent(("s", "[b]")), known).append_column("other:p", known)
    assert read_partitions(files).column_names == ["p", "path"]
    assert list_absent(files) == {("s", "[b]"): 'absent:["s", "[b]"]'}
    found = [{path: str(value) for path, value in each.items()} for each in read_constants(files)]
    assert found == [
        {("p",): "0.0", ("path",): "1", ("s", "[b]"): "5"},
        {("p",): "-0.0", ("path",): "2", ("s", "[b]"): "None"},
        {("p",): "nan", ("path",): "3"},
        {("p",): "None", ("path",): "4", ("s", "[b]"): "None"},
    ]
    tasks = [ScanTask("a", 1, 2, 0, 3, 4, constants, ()) for constants in read_constants(files)]
    back = [{path: str(value) for path, value in task.constants.items()} for task in sent(tasks)]
    assert back == found


def sent(tasks: list[ScanTask]) -> list[ScanTask]:
    return tasks_from_table(tasks_to_table(tasks))


def test_tasks_without_partitions_go_through_a_table() -> None:
    tasks = [ScanTask("a", 1, 2, number, 3, 4, {}, ()) for number in range(2)]
    assert sent(tasks) == tasks
