"""Files with many columns or row groups: planning and reading make a number of calls that grows linearly."""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis


def count_calls(action: Callable[[], object]) -> int:
    """Return the number of calls that an action makes, of Python and C functions, in all threads that it starts."""
    calls = itertools.count()

    def record(frame: FrameType, event: str, argument: object) -> None:
        if event in ("call", "c_call"):
            next(calls)

    threading.setprofile(record)
    sys.setprofile(record)
    try:
        action()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]
    return next(calls)


def write_columns(folder: Path, count: int) -> Path:
    path = folder / f"{count} columns.parquet"
    # Names that no other file has: columns that were seen before are validated faster.
    names = ["c0", *(f"c{number} of {path}" for number in range(1, count))]
    pq.write_table(pa.table({name: [1, 2, 3] for name in names}), path)
    return path


def write_row_groups(folder: Path, count: int) -> Path:
    path = folder / f"{count} row groups.parquet"
    pq.write_table(pa.table({"c0": range(count), "c1": range(count)}), path, row_group_size=1)
    return path


ACTIONS: dict[str, Callable[[Path], object]] = {
    "plan": lambda path: tamis.open(path).scan("c0 >= 1").plan("pages"),
    "read": lambda path: tamis.open(path).scan("c0 >= 1").to_arrow(),
}


@pytest.mark.parametrize("action", ACTIONS)
def test_X12_work_is_linear_in_the_number_of_columns(tmp_path: Path, action: str) -> None:
    check_linear(ACTIONS[action], [write_columns(tmp_path, count) for count in (50, 100, 400)])


@pytest.mark.parametrize("action", ACTIONS)
def test_X13_work_is_linear_in_the_number_of_row_groups(tmp_path: Path, action: str) -> None:
    check_linear(ACTIONS[action], [write_row_groups(tmp_path, count) for count in (50, 100, 400)])


def check_linear(action: Callable[[Path], object], paths: list[Path]) -> None:
    first, small, large = paths
    action(first)  # imports, and fills caches that do not depend on the file
    few, many = (count_calls(lambda path=path: action(path)) for path in (small, large))
    # Four times as many, and a little: a square would be sixteen times as many.
    assert many < 6 * few
