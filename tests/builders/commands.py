"""Run the command line: as a process with pipes, as a process on a terminal, or in this process."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from contextlib import chdir
from pathlib import Path

from click.testing import CliRunner, Result

from tamis.cli.application import program

PROGRAM = (sys.executable, "-m", "tamis")

# Without this variable output is buffered, as for most users: errors of a pipe or a disk come late.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}

_COLOURS = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


def run_here(*arguments: str, folder: Path) -> Result:
    """Run `tamis` in this process, which is much faster than a process of its own."""
    with chdir(folder):
        return CliRunner().invoke(program, arguments, prog_name="tamis")


def run_in_pipe(*arguments: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run `tamis` with its output in pipes."""
    return subprocess.run(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=ENVIRONMENT | environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        check=False,
    )


def run_on_terminal(*arguments: str, folder: Path, columns: int = 100, **environment: str) -> tuple[int, str]:
    """Run `tamis` on a pseudo-terminal, and return its exit code and its output, stdout and stderr together."""
    terminal, its_side = pty.openpty()
    settings = {"COLUMNS": str(columns), "LINES": "50", "TERM": "xterm-256color"}
    with subprocess.Popen(
        [*PROGRAM, *arguments],
        cwd=folder,
        env=ENVIRONMENT | settings | environment,
        stdin=its_side,
        stdout=its_side,
        stderr=its_side,
    ) as process:
        os.close(its_side)
        shown = b""
        while part := _read(terminal):
            shown += part
        os.close(terminal)
    return process.returncode, shown.decode().replace("\r\n", "\n")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65_536)
    except OSError:  # the other side is closed
        return b""


def strip_colours(shown: str) -> str:
    return _COLOURS.sub("", shown)
