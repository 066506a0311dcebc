"""The program as a process: in pipes, and on a terminal."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.commands import ENVIRONMENT, PROGRAM, run_in_pipe, run_on_terminal, strip_colours
from tamis.formats.source import TABLE_FORMATS


def test_pipe_gets_plain_lines_even_where_colours_are_forced(folder: Path) -> None:
    forced = {"FORCE_COLOR": "1", "TTY_COMPATIBLE": "1", "PYTHONIOENCODING": "ascii", "NO_COLOR": ""}
    done = run_in_pipe("plan", "orders", "--where", "region = 'eu'", folder=folder, **forced)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\x1b" not in done.stdout
    assert "─" not in done.stdout
    assert done.stdout.startswith("orders (hive) where region = 'eu'\n")
    assert "–" in done.stdout


def test_wrong_input_in_a_process_has_no_traceback(folder: Path) -> None:
    done = run_in_pipe("scan", "orders", "--where", "ammount > 5", folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tamis: no column 'ammount' in orders")
    assert done.stderr.count("\n") == 1


def test_unexpected_error_in_a_process_is_one_line(folder: Path) -> None:
    script = (
        "import sys, tamis.scan.scan as module\n"
        "module.Scan.count = lambda scan: 1 // 0\n"
        "sys.argv = ['tamis', 'count', 'orders']\n"
        "from tamis.cli import main\n"
        "main()\n"
    )
    done = subprocess.run([PROGRAM[0], "-c", script], cwd=folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("tamis: unexpected ZeroDivisionError: ")
    assert done.stderr.count("\n") == 1


def run_into(stdout: IO[bytes], *arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=ENVIRONMENT,
        stdout=stdout,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("rows", [1, 20_000])
def test_closed_pipe_ends_the_program_quietly(rows: int, tmp_path: Path) -> None:
    pq.write_table(pa.table({"text": ["x" * 100] * rows}), tmp_path / "rows.parquet")
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as pipe:
        done = run_into(pipe, "scan", "rows.parquet", folder=tmp_path)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_E6_full_disk_behind_stdout_is_named(folder: Path) -> None:
    with Path("/dev/full").open("wb") as full:
        done = run_into(full, "count", "orders", folder=folder)
    assert (done.returncode, done.stderr) == (1, "tamis: cannot write to stdout: No space left on device\n")


def test_terminal_shows_twenty_rows_as_a_table(folder: Path) -> None:
    code, shown = run_on_terminal("scan", "orders", folder=folder)
    assert code == 0
    assert "\x1b[1m" in shown
    lines = strip_colours(shown).splitlines()
    assert lines[0].split() == ["id", "amount", "region", "day"]
    assert set(lines[1]) == {"─"}
    assert [line.split()[0] for line in lines[2:22]] == [str(number) for number in range(20)]
    assert lines[2].split() == ["0", "NULL", "ap", "2024-03-01"]
    assert lines[22] == "the first 20 rows; --limit N shows more, --limit all shows all"
    assert len(lines) == 23


def test_terminal_shows_what_fits_and_names_the_rest(folder: Path) -> None:
    code, shown = run_on_terminal("scan", "orders", "--where", "id < 2", folder=folder, columns=20)
    lines = strip_colours(shown).splitlines()
    assert code == 0
    assert lines[0].split() == ["id", "amount"]
    assert lines[4] == "2 rows"
    assert lines[5].startswith("2 of 4 columns fit")
    assert lines[5].endswith("region, day")


def test_terminal_shows_more_where_more_is_asked_for(folder: Path) -> None:
    code, shown = run_on_terminal("scan", "orders", "--columns", "id", "--limit", "30", folder=folder)
    assert code == 0
    assert strip_colours(shown).splitlines()[-2:] == ["29", "30 rows"]


def test_X10_terminal_gets_no_control_sequences_from_values(tmp_path: Path) -> None:
    pq.write_table(pa.table({"na\x1b[31mme": ["\x1b[2Jcleared", "[bold]markup[/bold]"]}), tmp_path / "rows.parquet")
    code, shown = run_on_terminal("scan", "rows.parquet", folder=tmp_path)
    assert code == 0
    assert "\x1b[31m" not in shown
    assert "\x1b[2J" not in shown
    lines = [line.strip() for line in strip_colours(shown).splitlines()]
    # On a busy machine, a progress bar may be printed first.
    start = lines.index("na\\x1b[31mme")
    assert lines[start + 2 : start + 4] == ["\\x1b[2Jcleared", "[bold]markup[/bold]"]


def test_terminal_shows_the_funnel_and_the_predicates(folder: Path) -> None:
    code, shown = run_on_terminal("plan", "orders", "--where", "region = 'eu' AND id < 320", folder=folder)
    lines = [line.split() for line in strip_colours(shown).splitlines()]
    assert code == 0
    assert ["level", "total", "kept", "bytes", "kept", "bytes"] in lines
    assert ["partitions", "5", "3", "–", "–"] in lines
    assert any(line[:4] == ["row_groups", "15", "1", line[3]] for line in lines if len(line) > 4)
    assert ["partitions", "region", "=", "'eu'", "skipped", "2"] in lines


def test_terminal_shows_the_verification_as_a_table(folder: Path) -> None:
    code, shown = run_on_terminal("verify", "orders", "--where", "id < 20", folder=folder)
    lines = strip_colours(shown).splitlines()
    assert code == 0
    assert sum(line.split()[-1] == "same" for line in lines if line.strip()) == len(TABLE_FORMATS["hive"].levels) + 2
    assert lines[-1] == "64 runs return the same 20 rows"


def test_terminal_refuses_binary_formats(folder: Path) -> None:
    arguments = ("scan", "orders", "--output", "-", "--output-format", "arrow")
    code, shown = run_on_terminal(*arguments, folder=folder)
    assert (code, shown.count("\n")) == (1, 1)
    assert shown.startswith("tamis: arrow is a binary format")


def test_terminal_hides_unknown_row_counts(folder: Path) -> None:
    code, shown = run_on_terminal("files", "orders", "--where", "region = 'eu'", folder=folder, columns=120)
    assert code == 0
    assert "NULL" not in shown
    (heading,) = (line for line in strip_colours(shown).splitlines() if line.startswith("path"))
    assert "num_records" not in heading
    assert "num_records is not shown: it is known only inside the files, and none was opened" in shown
    assert "3 files, " in shown
    # Who asks for it gets it, and in a pipe the columns are always the same.
    assert "NULL" in run_on_terminal("files", "orders", "--columns", "path,num_records", folder=folder)[1]
    assert "num_records" in run_in_pipe("files", "orders", folder=folder).stdout.splitlines()[0]


def test_one_file_is_reported_in_the_singular(folder: Path) -> None:
    where = "region = 'eu' AND day = DATE '2024-03-01'"
    assert "1 file, " in run_on_terminal("files", "orders", "--where", where, folder=folder)[1]
    assert "1 of 9 files, " in run_on_terminal("files", "orders", "--limit", "1", folder=folder)[1]
