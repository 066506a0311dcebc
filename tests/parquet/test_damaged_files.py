"""Whole files with damage at every position: the right rows or a TamisError, in bounded memory and time.

`builders.parquet.damage` describes what each damaged part must give. The tests run in separate processes, since the
worst outcome is a crash.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import tamis
from builders.answers.same_rows import has_same_rows
from builders.parquet.damage import FILES, FILTERS, Target, write_file
from builders.parquet.tuning import BY_PAGES
from tamis.errors import CorruptFile
from tamis.parquet import Pruner

TESTS = Path(__file__).parents[1]
TIMES, MORE_TIMES = 120, 400
SECONDS = 600
"""Far more than it takes: only what never ends runs into it."""


@pytest.mark.parametrize("times", [TIMES, pytest.param(MORE_TIMES, marks=pytest.mark.interop)])
@pytest.mark.parametrize("name", FILES)
@pytest.mark.one_in(3)
def test_X1_X3_X4_X5_damage_anywhere_is_an_error_or_harmless(name: str, times: int) -> None:
    paths = os.pathsep.join([str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "builders.parquet.damage", name, str(times), "1"],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=False,
        timeout=SECONDS,
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    # Both outcomes must occur: if all files were refused, or all were read, the test would prove nothing.
    assert "'read'" in done.stdout
    assert "'refused'" in done.stdout


@pytest.mark.parametrize("by_pages", [True, False], ids=["by pages", "by row groups"])
@pytest.mark.parametrize("name", ["second version", "without an index"])
def test_pages_with_a_wrong_checksum_are_an_error_in_both_readers(name: str, by_pages: bool, tmp_path: Path) -> None:
    tuning, where = (BY_PAGES, "n >= 0 AND n <> 41") if by_pages else (None, None)
    target = Target(write_file(name))
    bodies = target.regions["bodies"]
    path = tmp_path / "f.parquet"
    for number, at in enumerate(bodies[:: len(bodies) // 12]):
        changed = bytearray(target.content)
        changed[at] ^= 1
        path = tmp_path / f"{number}.parquet"
        path.write_bytes(changed)
        with pytest.raises(CorruptFile, match=path.name):
            tamis.open(path, tuning=tuning).scan(where).to_arrow()


def test_files_without_damage_are_read_and_pruned(tmp_path: Path) -> None:
    for name in FILES:
        target = Target(write_file(name))
        path = tmp_path / f"{name}.parquet"
        path.write_bytes(target.content)
        pruned = 0
        for where, given in FILTERS.items():
            expected = target.expected[where]
            assert 0 < expected.num_rows < 30
            assert has_same_rows(tamis.open(path, tuning=BY_PAGES).scan(given).to_arrow(), expected)
            left = Pruner(expected.schema, given, tuning=BY_PAGES).prune(path).row_selection.row_count
            assert expected.num_rows <= left
            pruned += left < 40
        assert pruned >= 3
