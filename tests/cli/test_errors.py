"""Errors: one line on stderr that names the cause, an exit code, no traceback."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result

import tamis
from tamis.cli import options
from tamis.cli.application import program
from tamis.cli.errors import show_unexpected_error
from tamis.errors import CorruptFile
from tamis.formats.source import TABLE_FORMATS
from tamis.scan.scan import Scan


@pytest.fixture(autouse=True)
def _working_directory(in_folder: Path) -> None:
    (in_folder / "empty").mkdir(exist_ok=True)
    (in_folder / "broken.parquet").write_bytes(b"no Parquet file at all")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, arguments, prog_name="tamis")


@pytest.mark.parametrize("command", ["plan", "scan", "count", "files", "verify"])
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere"], ["nowhere"]),
        (["empty"], ["empty"]),
        (["broken.parquet"], ["broken.parquet", "Parquet"]),
        ([""], ["empty", "path or a URI"]),
        (["foo://bar"], ["foo://", "s3://"]),
        (["orders", "--where", "ammount > 5"], ["ammount", "amount", "orders"]),
        (["orders", "--where", "amount >"], [">", "character 8"]),
        (["orders", "--where", "amount"], ["amount", "double", "predicate"]),
        (["orders", "--where", "amount > 'x'"], ["'x'", "double"]),
        (["orders", "--partitioning", "day=dat"], ["'dat'", "date"]),
        (["orders", "--partitioning", "month=int"], ["'month'", "day"]),
        (["orders", "--storage-option", "colour=blue"], ["colour"]),
    ],
    ids=lambda given: " ".join(given) if given and given[0] != given[-1] else "",
)
def test_wrong_input_is_one_line_and_exit_code_1(command: str, arguments: list[str], words: list[str]) -> None:
    result = run(command, *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.startswith("tamis: ")
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["scan", "orders", "--columns", "id,ammount"], ["ammount", "amount"]),
        (["plan", "orders", "--columns", "id,id"], ["id", "twice"]),
        (["files", "orders", "--columns", "pth"], ["'pth'", "path, size"]),
    ],
    ids=lambda given: given[0],
)
def test_wrong_columns_are_one_line_and_exit_code_1(arguments: list[str], words: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["plam", "orders"], ["plam"]),
        (["scan"], ["URI"]),
        (["scan", "orders", "--wher", "id = 1"], ["--wher"]),
        (["scan", "orders", "--limit", "-1"], ["--limit", "'-1'", "all"]),
        (["scan", "orders", "--limit", "ten"], ["--limit", "'ten'"]),
        (["scan", "orders", "--columns", "id,"], ["--columns", "empty name"]),
        (["scan", "orders", "--levels", "pags"], ["'pags'", "row_groups"]),
        (["scan", "orders", "--format", "orc"], ["orc", "hive"]),
        (["scan", "orders", "--partitioning", "day"], ["--partitioning", "COLUMN=TYPE"]),
        (["scan", "orders", "--partitioning", "day=date", "--partitioning", "day=int"], ["'day'", "twice"]),
        (["scan", "orders", "--json", "--output", "x.csv"], ["--json", "--output", "jsonl"]),
        (["scan", "orders", "--output-format", "csv"], ["--output-format", "--output -"]),
        (["plan", "orders", "--depth", "rows"], ["rows", "row_groups"]),
        (["verify", "orders", "--limit", "5"], ["--limit"]),
        (["scan", "orders", "--version", "abc"], ["Usage: tamis scan", "'abc' is not a valid integer."]),
        (["scan", "orders", "--where"], ["Usage: tamis scan", "--where"]),
    ],
    ids=lambda given: " ".join(given) if given and given[0] in program.commands else "",
)
def test_misuse_is_exit_code_2(arguments: list[str], words: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert "Usage: " in result.stderr
    assert all(word in result.stderr for word in words), result.stderr


def test_secrets_are_not_repeated() -> None:
    assert "hunter2" not in run("scan", "orders", "--storage-option", "hunter2").stderr


def test_debug_shows_the_traceback_before_or_after_the_command() -> None:
    for arguments in (["--debug", "scan", "nowhere"], ["scan", "nowhere", "--debug"]):
        result = run(*arguments)
        assert result.exit_code == 1
        assert "Traceback (most recent call last)" in result.stderr
        assert result.stderr.splitlines()[-1].startswith("tamis: ")


def test_error_in_the_middle_of_the_rows_keeps_written_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    def break_off(scan: Scan) -> Iterator[pa.RecordBatch]:
        yield pa.record_batch({"id": range(10_000)})
        raise CorruptFile("row group 1 of 'x' cannot be decoded")

    monkeypatch.setattr(Scan, "to_batches", break_off)
    result = run("scan", "orders", "--columns", "id")
    assert result.exit_code == 1
    assert len(result.stdout.splitlines()) == 10_001
    assert result.stderr == "tamis: row group 1 of 'x' cannot be decoded\n"


def test_X10_messages_stay_on_one_line_and_move_no_cursor() -> None:
    result = run("scan", "no\nwhere\x1b[2J")
    (line,) = result.stderr.splitlines()
    assert "\x1b" not in line


def test_interruption_is_exit_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(scan: Scan) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(Scan, "count", interrupt)
    result = run("count", "orders")
    assert (result.exit_code, result.stderr) == (130, "tamis: interrupted\n")


def test_unexpected_error_is_not_hidden(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(scan: Scan) -> int:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(Scan, "count", fail)
    result = run("count", "orders")
    assert isinstance(result.exception, ZeroDivisionError)
    show_unexpected_error(ZeroDivisionError, result.exception, None)
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("tamis: unexpected ZeroDivisionError: division by zero")
    assert "--debug" in line


def test_debug_restores_the_exception_hook_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "excepthook", show_unexpected_error)
    run("count", "orders", "--debug")
    assert sys.excepthook is sys.__excepthook__


class LosesRows:
    """A table that loses rows if row groups are pruned."""

    def __init__(self, table: tamis.Table) -> None:
        self._table = table
        self.name = table.name
        self.format = table.format

    def scan(self, where: object = None, columns: object = None, limit: int | None = None, *, levels: object) -> Scan:
        assert isinstance(levels, tuple)
        return self._table.scan("id > 10" if "row_groups" in levels else None, levels=levels)


def test_failed_verification_names_the_subset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(options, "open_table", lambda *given, **named: LosesRows(tamis.open("orders")))
    result = run("verify", "orders")
    assert result.exit_code == 1
    lines = result.stdout.splitlines()
    assert [line.split()[-1] for line in lines[1:5]] == ["same", "same", "same", "DIFFERENT"]
    # Only combinations that differ have a line.
    assert sum(line.endswith("DIFFERENT") for line in lines) == 2 ** (len(TABLE_FORMATS["hive"].levels) - 1)
    assert sum(line.endswith("same") for line in lines) == len(TABLE_FORMATS["hive"].levels)
    expected = "tamis: the scan with row_groups on returned 889 rows, expected 900 (without pruning)"
    assert result.stderr.startswith(expected)
    as_json = run("verify", "orders", "--json")
    assert as_json.exit_code == 1
    assert '"same": false' in as_json.stdout


def test_every_one_of_repeated_columns_is_looked_up() -> None:
    result = run("count", "orders", "--columns", "id", "--columns", "nosuch")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "no column 'nosuch' in orders" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["count", "orders", "--format", "parquet"], ["open it without --format"]),
        (["count", "foo://bar"], ["others can be opened from Python"]),
        (["count", "gs://bucket/t", "--storage-option", "AWS_REGION=x"], ["storage options for 'gs://'"]),
        (["count", "orders", "--where", "id = :x"], ["Put the value into the text"]),
        (["count", "orders", "--where", "\"region\" = 'eu'"], ["Write `region`"]),
        (["count", "orders", "--where", "amout > 5"], ["--merge-schema takes those of all files"]),
        (["files", "orders", "--columns", "pth"], ["Did you mean 'path'?"]),
        (["count", "orders", "--where", "id.x = 1"], ["not a struct. These are the columns"]),
        (["count", "orders", "--index", "nowhere"], ["build it with tamis index build URI --location FOLDER"]),
        (["count", "orders/*/*.parquet"], ["patterns are not supported", "orders'"]),
    ],
    ids=lambda given: given[-1],
)
def test_messages_refer_to_command_line_options(arguments: list[str], words: list[str]) -> None:
    result = run(*arguments)
    assert result.exit_code == 1
    (line,) = result.stderr.splitlines()
    assert all(word in line for word in words), line
    assert not any(word in line for word in ("format=", "storage_options", "col(", "merge_schema"))


def test_an_empty_file_has_one_message(in_folder: Path) -> None:
    (in_folder / "nothing.parquet").touch()
    messages = {run(command, "nothing.parquet").stderr for command in ("count", "inspect")}
    assert len(messages) == 1
    assert "is empty: it has 0 bytes" in messages.pop()


def test_verify_refuses_a_nondeterministic_filter() -> None:
    result = run("verify", "orders", "--where", "id > 5 AND rand() < 0.5")
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert "not deterministic" in line
    assert "rand()" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["sql", "SELECT cout(*) FROM orders", "orders"], "DuckDB's functions run with --dialect duckdb"),
        (["sql", "SELECT * FROM read_parquet('a.parquet')"],
         "Write parquet.`a.parquet`, or pass its URI after the query, or --table NAME=URI"),
        (["sql", "--dialect", "duckdb", "SELECT * FROM read_parquet('a.parquet')"],
         "but not files: pass their URIs after the query, or --table NAME=URI"),
        (["history", "orders"], "a hive table has no versions, so it has no history"),
    ],
)  # fmt: skip
def test_advice_is_for_the_command_line(arguments: list[str], message: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.endswith(f"{message}\n")
