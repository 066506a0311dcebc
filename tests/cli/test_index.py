"""`tamis index`: build, status, drop, and `--index` of the other commands."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from rich.console import Console

import tamis
from builders.commands import run_here, run_on_terminal, strip_colours
from builders.hive.indexed import list_data_files, write_files
from tamis.cli.commands.index import BuildMeter
from tamis.index.operations import Progress


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return write_files(tmp_path / "orders", range(5))


def run(root: Path, *arguments: str) -> str:
    result = run_here(*arguments, folder=root.parent)
    assert result.exit_code == 0, result.stderr
    assert result.stderr == ""
    return result.stdout


def test_an_index_is_built_used_shown_and_dropped(root: Path) -> None:
    location = root.parent / "_tamis" / root.name / "index"
    built = run(root, "index", "build", "orders", "--bloom", "name", "--columns", "id,x")
    assert built == f"5 files, 50 rows in the index at {location}\n5 read, 0 reused, 0 removed\n"
    plan = json.loads(run(root, "plan", "orders", "--where", "id = 23", "--json"))
    assert next(level["kept"] for level in plan["levels"] if level["level"] == "files") == 1
    list_data_files(root)[0].unlink()
    status = json.loads(run(root, "index", "status", "orders", "--json"))
    assert (status["files"], status["table_files"], status["is_complete"]) == (5, 4, True)
    assert (status["columns"], status["bloom"]) == (["id", "x", "name"], ["name"])
    again = json.loads(run(root, "index", "build", "orders", "--json"))
    assert (again["files"], again["collected"], again["reused"], again["removed"]) == (4, 0, 4, 1)
    assert run(root, "index", "drop", "orders") == "dropped\n"
    assert json.loads(run(root, "index", "drop", "orders", "--json")) == {"dropped": False}
    for arguments in ((), ("--json",)):
        missing = run_here("index", "status", "orders", *arguments, folder=root.parent)
        assert (missing.exit_code, missing.stderr) == (1, "")
        assert str(location) in missing.stdout


def test_the_page_lists_the_keys_of_a_build(root: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "reference" / "cli.md").read_text()
    listed = page.split("An interrupted build continues where it stopped. `--json`")[1].split("\n\n")[0]
    assert re.findall(r"`(\w+)`", listed) == list(json.loads(run(root, "index", "build", "orders", "--json")))


@pytest.mark.interop
def test_an_index_elsewhere_is_named(root: Path) -> None:
    run(root, "index", "build", "orders", "--location", "aside")
    for location, kept in (("aside", 1), ("none", 5)):
        plan = json.loads(run(root, "plan", "orders", "--where", "id = 23", "--index", location, "--json"))
        assert next(level["kept"] for level in plan["levels"] if level["level"] == "files") == kept
    text = run(root, "index", "status", "orders", "--location", "aside")
    assert "files        5 of 5 in the table" in text.splitlines()


def test_columns_inside_of_structs_are_named_by_their_paths(tmp_path: Path) -> None:
    for number in range(2):
        inner = pa.array([{"a": {"b": number * 100 + each}, "c d": "x"} for each in range(10)])
        path = tmp_path / "nested" / f"{number}.parquet"
        path.parent.mkdir(exist_ok=True)
        pq.write_table(pa.table({"s": inner, "id": range(10)}), path)
    root = tmp_path / "nested"
    run(root, "index", "build", "nested", "--columns", "s.a.b,s.`c d`", "--bloom", "s.a.b")
    status = tamis.index.status(root)
    assert (status.columns, status.bloom, status.fresh_files) == (("s.a.b", "s.c d"), ("s.a.b",), 2)
    scan = tamis.open(root).scan("s.a.b = 103")
    assert (scan.plan("files").num_files, scan.count()) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        (("build", "nowhere"), 1, "nothing at"),
        (("build", "orders", "--columns", "nope"), 1, "no column 'nope' in orders"),
        (("build", "orders", "--engine", "moon"), 2, "'moon' is not one of 'local', 'spark'"),
        (("build", "orders", "--false-positives", "2"), 2, "0<x<1"),
        (("status", "nowhere"), 1, "nothing at"),
        (("polish", "orders"), 2, "No such command"),
    ],
)
def test_errors_are_one_line_and_a_code(root: Path, arguments: tuple[str, ...], code: int, text: str) -> None:
    result = run_here("index", *arguments, folder=root.parent)
    assert (result.exit_code, result.stdout) == (code, "")
    assert text in result.stderr
    assert "Traceback" not in result.stderr


def test_unindexed_and_stale_files_are_reported(root: Path) -> None:
    (root / "0003.parquet").write_bytes(b"no Parquet file")
    result = run_here("index", "build", "orders", folder=root.parent)
    assert result.exit_code == 0
    assert "1 file not indexed: '" in result.stderr
    status = run_here("index", "status", "orders", folder=root.parent)
    assert "files        4 of 5 in the table" in status.stdout
    assert "1 file new or changed: run tamis index build again" in status.stderr


def test_a_terminal_shows_the_same(root: Path) -> None:
    code, shown = run_on_terminal("index", "build", "orders", folder=root.parent, columns=200)
    assert code == 0
    assert "5 files, 50 rows in the index" in strip_colours(shown)


def test_the_bar_has_files_bytes_and_a_rate() -> None:
    meter = BuildMeter()
    console = Console(width=160, color_system=None)
    with console.capture() as capture:
        console.print(meter)
        meter.take(Progress(1500, 3000, 2**20, 2**21))
        console.print(meter)
    listing, building = capture.get().splitlines()
    assert "listing" in listing
    assert "1,500 of 3,000 files" in building
    assert "1.0 MiB of 2.0 MiB" in building
    assert "files/s" in building
