"""Many small row groups and files are read together, with the same rows, errors and counts as separately."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

import tamis
from builders.hive.tables import write_hive_table
from tamis.errors import CorruptFile
from tamis.parquet.footer.footer import FOOTERS
from tamis.scan.planning.tasks import MAX_BYTES_PER_GROUP, MAX_TASKS_PER_GROUP, ScanTask, group_tasks
from tamis.tuning import DEFAULT_TUNING

FILES = 20


def make_task(size: int = 100, rows: int = 10) -> ScanTask:
    return ScanTask("a.parquet", 10**9, 1, 0, rows, size, {}, ())


def group_lengths(tasks: list[ScanTask], most_rows: int | None = None) -> list[int]:
    groups = list(group_tasks(tasks, most_rows))
    assert [each for group in groups for each in group] == tasks
    return [len(group) for group in groups]


def test_small_tasks_are_put_together_up_to_a_number() -> None:
    assert group_lengths([]) == []
    assert group_lengths([make_task()] * (2 * MAX_TASKS_PER_GROUP + 3)) == [MAX_TASKS_PER_GROUP, MAX_TASKS_PER_GROUP, 3]


def test_large_tasks_stay_alone() -> None:
    large, half = make_task(MAX_BYTES_PER_GROUP * 5), make_task(MAX_BYTES_PER_GROUP // 2)
    assert group_lengths([large, large, half, half, half, large, make_task()]) == [1, 1, 2, 1, 1, 1]


def test_a_group_ends_where_it_has_the_rows_that_are_wanted() -> None:
    assert group_lengths([make_task(rows=10)] * 5, most_rows=20) == [2, 2, 1]
    assert group_lengths([make_task(rows=10)] * 3, most_rows=1) == [1, 1, 1]


def make_part(number: int) -> pa.Table:
    return pa.table({"id": range(number * 10, number * 10 + 10), "name": [f"n{number}"] * 10})


@pytest.fixture
def small_files(tmp_path: Path) -> Path:
    for number in range(FILES):
        pq.write_table(make_part(number), tmp_path / f"{number:02d}.parquet")
    return tmp_path


def test_a_small_file_is_read_once_with_its_footer(small_files: Path) -> None:
    table = tamis.open(small_files)
    FOOTERS.clear()
    first, second = table.scan("id >= 0"), table.scan("id >= 0")
    assert first.to_arrow()["id"].to_pylist() == list(range(FILES * 10))
    assert first.report is not None
    assert first.report.requests == FILES
    assert first.report.bytes_read == sum(file.stat().st_size for file in small_files.iterdir())
    # The footers are cached, so only the columns are read.
    assert second.to_arrow() == first.to_arrow()
    assert second.report is not None
    assert second.report.requests == FILES
    assert second.report.bytes_read == second.plan().bytes


def test_a_remote_small_file_costs_one_opening_and_one_read() -> None:
    remote = pafs._MockFileSystem()
    remote.create_dir("table")
    for number in range(FILES):
        with remote.open_output_stream(f"table/{number:02d}.parquet") as sink:
            pq.write_table(make_part(number), sink)
    table = tamis.open("table", storage_options={"filesystem": remote})
    FOOTERS.clear()
    scan = table.scan()
    assert scan.to_arrow()["id"].to_pylist() == list(range(FILES * 10))
    assert scan.report is not None
    # The file that provided the schema may still be open.
    assert 2 * FILES - 2 <= (scan.report.requests or 0) <= 2 * FILES
    again = table.scan(columns=["name"])
    assert again.to_arrow()["name"].to_pylist() == [f"n{number}" for number in range(FILES) for _ in range(10)]
    assert again.report is not None
    # The footers are cached: open the file, look up its time (this store does not return it), read the column.
    assert (again.report.requests or 0) <= 3 * FILES


def test_a_plan_holds_no_contents_of_files(small_files: Path) -> None:
    table = tamis.open(small_files)
    FOOTERS.clear()
    scan = table.scan("id < 50")
    assert [each.content for each in scan.plan().tasks] == [None] * 5
    assert scan.to_arrow()["id"].to_pylist() == list(range(50))


def test_a_larger_file_is_not_kept_whole(tmp_path: Path) -> None:
    pq.write_table(make_part(0), tmp_path / "0.parquet")
    count = DEFAULT_TUNING.max_whole_file_bytes
    rows = pa.table({"id": range(count), "name": ["x"] * count})
    pq.write_table(rows, tmp_path / "1.parquet", compression="none", use_dictionary=False)
    table = tamis.open(tmp_path)
    FOOTERS.clear()
    scan = table.scan(columns=["name"])
    assert scan.to_arrow().num_rows == 10 + count
    assert scan.report is not None
    assert scan.report.requests == 3


def test_rows_keep_their_order_over_partitions_schemas_and_remaining_filters(tmp_path: Path) -> None:
    parts = []
    for number in range(12):
        rows = make_part(number)
        if number % 3 == 1:
            rows = rows.select(["name", "id"])
        elif number % 3 == 2:
            rows = pa.table({"id": rows["id"].cast(pa.int32())})
        parts.append(({"p": str(number // 4)}, rows))
    table = tamis.open(write_hive_table(tmp_path / "t", parts, row_group_size=4))
    expected = [
        {"id": number, "name": None if number // 10 % 3 == 2 else f"n{number // 10}", "p": number // 40}
        for number in range(120)
    ]
    assert table.scan().to_arrow().to_pylist() == expected
    # Some row groups are fully matched, others are not, and one column has no statistics.
    where = "(id < 33 OR id > 87) AND (name IS NULL OR name <> 'n0')"
    kept = [row for row in expected if (row["id"] < 33 or row["id"] > 87) and row["name"] != "n0"]
    assert table.scan(where).to_arrow().to_pylist() == kept
    assert table.scan(where).count() == len(kept)
    assert table.scan(where, columns=["p"]).to_arrow()["p"].to_pylist() == [row["p"] for row in kept]
    for limit in (1, 7, 40):
        assert table.scan(where, limit=limit).to_arrow().to_pylist() == kept[:limit]


def test_dictionaries_that_do_not_fit_into_one_are_not_joined(tmp_path: Path) -> None:
    texts = [f"t{number}" for number in range(300)]
    small = pa.dictionary(pa.int8(), pa.string())
    for number in range(3):
        column = pa.array(texts[number * 100 : number * 100 + 100]).dictionary_encode().cast(small)
        pq.write_table(pa.table({"k": column}), tmp_path / f"{number}.parquet")
    scan = tamis.open(tmp_path).scan()
    assert scan.schema.field("k").type == small
    assert [value for batch in scan.to_batches() for value in batch["k"].to_pylist()] == texts


def test_E8_a_damaged_row_group_among_small_ones_is_named(tmp_path: Path) -> None:
    for number in range(3):
        pq.write_table(make_part(number), tmp_path / f"{number}.parquet", row_group_size=5, compression="snappy")
    damaged = tmp_path / "1.parquet"
    start = pq.read_metadata(damaged).row_group(1).column(0).data_page_offset
    raw = bytearray(damaged.read_bytes())
    raw[start : start + 12] = b"\xff" * 12
    damaged.write_bytes(raw)
    table = tamis.open(tmp_path)
    with pytest.raises(CorruptFile, match=r"row group 1 of '.*1\.parquet' cannot be decoded"):
        table.scan().to_arrow()
    assert table.scan("id < 15").to_arrow().num_rows == 15
