"""Rows deleted by position are never read, with any other pruning, at every level."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from tamis.errors import CorruptFile
from tamis.formats.hive.table import HiveTable
from tamis.formats.source import LEVELS
from tamis.io.storage import Storage, open_storage
from tamis.scan.scan import Scan
from tamis.tuning import Tuning

ROWS, ROWS_PER_GROUP = 3_000, 500
TUNING = Tuning(min_bytes_to_prune_pages=0, max_batch_rows=64)
SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@dataclass(frozen=True)
class WithDeletes(HiveTable):
    """A folder of files with deleted rows, by file name."""

    gone: Mapping[str, Any] = None  # type: ignore[assignment]

    def read_deleted_rows(self, storage: Storage, files: pa.Table, row_groups: object = None) -> dict[int, Any]:
        names = [Path(path).name for path in files["path"].to_pylist()]
        return {index: BitMap64(self.gone[name]) for index, name in enumerate(names) if name in self.gone}


def make_rows(number: int) -> pa.Table:
    first = number * ROWS
    return pa.table({"id": np.arange(first, first + ROWS), "kind": [f"k{n % 7}" for n in range(ROWS)]})


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number in range(3):
        pq.write_table(
            make_rows(number),
            tmp_path / f"{number}.parquet",
            row_group_size=ROWS_PER_GROUP,
            max_rows_per_page=50,
            write_page_index=True,
        )
    return tmp_path


def open_with_deletes(folder: Path, gone: Mapping[str, Any]) -> WithDeletes:
    plain = HiveTable.open(open_storage(folder).with_tuning(TUNING))
    return WithDeletes(plain.storage, plain.layout, plain.schema, gone=gone)


GONE = {
    "0.parquet": [0, 1, 499, 500, 2_999],
    "1.parquet": [*range(500, 1_000), 1_000, 1_777],
    "2.parquet": [],
}


@pytest.mark.parametrize("levels", [*SUBSETS[::5], LEVELS], ids=str)
@pytest.mark.parametrize(
    "where", [None, "id < 40", "id BETWEEN 4450 AND 4800", "kind = 'k3' AND id > 3499", "id IN (0, 1, 2, 4777)"]
)
def test_P5_deleted_rows_do_not_come_back(folder: Path, where: str | None, levels: tuple[str, ...]) -> None:
    everything = pa.concat_tables([make_rows(number) for number in range(3)])
    deleted = {number * ROWS + row for number in range(3) for row in GONE[f"{number}.parquet"]}
    plain = Scan(HiveTable.open(open_storage(folder).with_tuning(TUNING)), where, levels=levels).to_arrow()
    expected = [row for row in plain.to_pylist() if row["id"] not in deleted]
    scan = Scan(open_with_deletes(folder, GONE), where, levels=levels)
    assert scan.to_arrow().to_pylist() == expected
    assert scan.count() == len(expected)
    assert len(expected) <= everything.num_rows - (0 if where else len(deleted))


def test_a_row_group_without_any_row_left_is_not_read(folder: Path) -> None:
    plan = Scan(open_with_deletes(folder, GONE)).plan()
    assert (1, 1) not in {(int(Path(task.path).stem), task.row_group) for task in plan.tasks}
    assert len(plan.tasks) == 17
    assert sum(task.row_count for task in plan.tasks) == 3 * ROWS - 507


def test_P5_the_only_row_left_of_a_row_group_is_read(folder: Path) -> None:
    gone = {f"{number}.parquet": [row for row in range(ROWS) if row % ROWS_PER_GROUP != 7] for number in range(3)}
    assert Scan(open_with_deletes(folder, gone)).to_arrow()["id"].to_pylist() == list(
        range(7, 3 * ROWS, ROWS_PER_GROUP)
    )


def test_a_limit_counts_rows_that_are_left(folder: Path) -> None:
    gone = {f"{number}.parquet": list(range(ROWS - 2)) for number in range(3)}
    scan = Scan(open_with_deletes(folder, gone), limit=5)
    assert scan.to_arrow()["id"].to_pylist() == [2998, 2999, 5998, 5999, 8998]


def test_D16_a_deleted_row_that_the_file_does_not_have_is_an_error(folder: Path) -> None:
    table = open_with_deletes(folder, {"0.parquet": [5, ROWS]})
    with pytest.raises(
        CorruptFile, match=r"row 3000 of '.*0\.parquet' is recorded as deleted, but the file has 3,000 rows"
    ):
        Scan(table).count()


def test_deleted_rows_do_not_affect_other_tables(folder: Path) -> None:
    table = open_with_deletes(folder, GONE)
    assert Scan(replace(table, gone={})).count() == 3 * ROWS
