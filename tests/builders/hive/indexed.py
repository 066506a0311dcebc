"""Small tables for tests of the statistics index."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.parquet.footer.footer import FOOTERS

ROWS = 10


def make_rows(number: int, count: int = ROWS) -> pa.Table:
    """Return rows whose ids follow the order of files, names in no order, and a float."""
    ids = range(number * count, (number + 1) * count)
    return pa.table(
        {
            "id": pa.array(ids, pa.int64()),
            "name": [f"n{(each * 7919) % 100_003}" for each in ids],
            "x": pa.array([float(each % 7) for each in ids], pa.float64()),
        }
    )


def write_files(root: Path, numbers: Iterable[int], **options: object) -> Path:
    """Write a flat folder with one file of ten rows for each number."""
    root.mkdir(parents=True, exist_ok=True)
    for number in numbers:
        pq.write_table(make_rows(number), root / f"{number:04}.parquet", row_group_size=4, **options)
    return root


def get_index_folder(root: Path) -> Path:
    return root.parent / "_tamis" / root.name / "index"


def list_data_files(root: Path) -> list[Path]:
    return sorted(path for path in root.rglob("*.parquet"))


def make_unreadable(paths: Iterable[Path]) -> None:
    """Overwrite files with zeros and keep their sizes and times, so that a read of one fails."""
    for path in paths:
        seen = path.stat()
        path.write_bytes(bytes(seen.st_size))
        os.utime(path, ns=(seen.st_atime_ns, seen.st_mtime_ns))
    FOOTERS.clear()
