"""A PostgreSQL server for tests, in a temporary folder, reached by a socket."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_FOLDERS = "/usr/lib/postgresql"


def find_programs() -> Path | None:
    """Return the folder of `initdb` and `pg_ctl`, or None if PostgreSQL is not installed."""
    found = shutil.which("initdb")
    if found is not None and shutil.which("pg_ctl") is not None:
        return Path(found).resolve().parent
    versions = sorted(Path(_FOLDERS).glob("*/bin/initdb"), key=lambda each: each.parts[-3].zfill(4))
    return versions[-1].parent if versions else None


@contextmanager
def run_server() -> Iterator[str]:
    """Run a server during the body, and yield its URI."""
    programs = find_programs()
    assert programs is not None
    # The path of a socket must be short.
    folder = Path(tempfile.mkdtemp(prefix="pg-", dir="/tmp"))
    as_user = _find_another_user(folder)
    data = folder / "data"
    try:
        _run(
            as_user,
            [programs / "initdb", "--pgdata", data, "--auth", "trust", "--username", "tests", "--encoding", "UTF8",
             "--locale", "C", "--no-sync"],
        )  # fmt: skip
        options = f"-c listen_addresses='' -c unix_socket_directories={folder} -c fsync=off -c max_connections=40"
        _run(
            as_user,
            [programs / "pg_ctl", "--pgdata", data, "--log", folder / "log", "--wait", "--options", options, "start"],
        )
        try:
            yield f"postgresql:///postgres?host={folder}&user=tests"
        finally:
            _run(as_user, [programs / "pg_ctl", "--pgdata", data, "--mode", "immediate", "--wait", "stop"])
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_another_user(folder: Path) -> list[str]:
    """Return the command prefix that runs as another user if this is root, as PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    user = (
        "postgres" if subprocess.run(["id", "postgres"], capture_output=True, check=False).returncode == 0 else "nobody"
    )
    shutil.chown(folder, user)
    return ["setpriv", "--reuid", user, "--regid", "nogroup" if user == "nobody" else user, "--clear-groups"]


def _run(as_user: list[str], command: list[str | Path]) -> None:
    # The server would keep inherited pipes open, so its output goes to a file.
    with tempfile.TemporaryFile("w+") as output:
        done = subprocess.run([*as_user, *map(str, command)], stdout=output, stderr=output, check=False, cwd="/")
        output.seek(0)
        assert done.returncode == 0, output.read()
