"""Paths only: the table that most tests of the command line work on."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from builders.hive.tables import write_hive_table

REGIONS = ("ap", "eu", "us")
DAYS = ("2024-03-01", "2024-03-02", "2024-03-03")
ROWS_PER_FILE = 100


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the table `orders`: nine files of five row groups, 900 rows, ids in the order of the files."""
    folder = tmp_path_factory.mktemp("cli")
    parts = []
    for index, (region, day) in enumerate((region, day) for region in REGIONS for day in DAYS):
        ids = range(index * ROWS_PER_FILE, (index + 1) * ROWS_PER_FILE)
        rows = pa.table({"id": pa.array(ids, pa.int64()), "amount": [None if i % 10 == 0 else i / 2 for i in ids]})
        parts.append(({"region": region, "day": day}, rows))
    write_hive_table(folder / "orders", parts, row_group_size=20)
    return folder


@pytest.fixture
def in_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The same, as the working directory."""
    monkeypatch.chdir(folder)
    return folder
