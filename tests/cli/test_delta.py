"""Versions of Delta tables on the command line: time travel in every command, and `tamis history`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from builders.commands import run_on_terminal, strip_colours
from builders.delta.log import DeltaLog, add, commit_info, remove
from tamis.cli.application import program
from tamis.cli.commands.history import VERSIONS_ON_A_TERMINAL

Run = Callable[..., Result]

NOON = 1_709_294_400_000
"""2024-03-01T12:00:00Z, at which version 0 was made; each later one an hour after."""
HOUR = 3_600_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Delta table `events`. Its versions have ten rows, twenty rows, and only the second ten."""
    folder = tmp_path_factory.mktemp("delta")
    log = DeltaLog(folder / "events", {"id": "long", "day": "string"}, partition_columns=["day"])
    adds = []
    for number, day in enumerate(("a", "b")):
        path = f"day={day}/part-{number}.parquet"
        (folder / "events" / path).parent.mkdir()
        pq.write_table(pa.table({"id": range(number * 10, number * 10 + 10)}), folder / "events" / path)
        bounds = {"minValues": {"id": number * 10}, "maxValues": {"id": number * 10 + 9}, "nullCount": {"id": 0}}
        stats = json.dumps({"numRecords": 10, **bounds})
        adds.append(add(path, {"day": day}, size=(folder / "events" / path).stat().st_size, stats=stats))
    parameters = {"mode": "Append", "partitionBy": '["day"]'}
    log.commit(commit_info(operation="CREATE", operationParameters=parameters), adds[0], milliseconds=NOON)
    log.commit(commit_info(userName="Käthe", engineInfo="hand\x1b[2J"), adds[1], milliseconds=NOON + HOUR)
    log.commit(
        commit_info(operation="DELETE", operationParameters="no JSON", readVersion=1, isBlindAppend=False),
        remove("day=a/part-0.parquet"),
        milliseconds=NOON + 2 * HOUR,
    )
    many = DeltaLog(folder / "many")
    for _ in range(VERSIONS_ON_A_TERMINAL + 1):
        many.commit(commit_info())
    pq.write_table(pa.table({"id": [1]}), folder / "single.parquet")
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)

    def run_program(*arguments: str) -> Result:
        return CliRunner().invoke(program, arguments, prog_name="tamis")

    return run_program


def name_case(given: object) -> str:
    """Return the id of a case: its arguments."""
    return " ".join(given) if isinstance(given, list) else str(given)


# --- Time travel -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ([], 10),
        (["--format", "delta"], 10),
        (["--version", "0"], 10),
        (["--version", "1"], 20),
        (["--timestamp", "2024-03-01T12:00:00Z"], 10),
        (["--timestamp", "2024-03-01 13:59:59"], 20),
        (["--timestamp", "2024-03-01T15:30:00+01:00"], 10),
        (["--timestamp", "2099-01-01"], 10),
    ],
    ids=name_case,
)
def test_D17_count_is_that_of_the_version(run: Run, options: list[str], rows: int) -> None:
    assert run("count", "events", *options).stdout == f"{rows}\n"


def test_D17_every_command_sees_the_version(run: Run) -> None:
    older = ("events", "--version", "0")
    assert run("scan", *older, "--limit", "2").stdout == "id\tday\n0\ta\n1\ta\n"
    assert run("files", *older, "--columns", "day").stdout == "day\na\n"
    (file,) = json.loads(run("plan", *older, "--json").stdout)["files"]
    assert file["path"].endswith("events/day=a/part-0.parquet")
    runs = json.loads(run("verify", *older, "--where", "id > 3", "--json").stdout)
    assert runs["same"]
    assert {each["rows"] for each in runs["runs"]} == {6}
    assert run("scan", "events", "--limit", "1").stdout == "id\tday\n10\tb\n"


def test_plan_prunes_by_partitions_and_statistics_of_the_version(run: Run) -> None:
    where = ("--where", "day = 'b' AND id < 5", "--json")
    levels = {
        version: [
            (level["level"], level["total"], level["kept"])
            for level in json.loads(run("plan", "events", "--version", version, *where).stdout)["levels"]
        ][:2]
        for version in ("0", "1")
    }
    assert levels["0"] == [("partitions", 1, 0), ("files", 0, 0)]
    assert levels["1"] == [("partitions", 2, 1), ("files", 1, 0)]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["events", "--version", "3"], ["no version 3", "events", "0 to 2"]),
        (["events", "--timestamp", "2024-03-01T11:59:59Z"], ["2024-03-01T11:59:59", "oldest", "2024-03-01T12:00:00"]),
        (["events", "--timestamp", "yesterday"], ["'yesterday'", "2024-03-01T12:30:00Z"]),
        (["single.parquet", "--version", "0"], ["version"]),
        (["single.parquet", "--timestamp", "2024-03-01"], ["timestamp"]),
        (["single.parquet", "--format", "delta"], ["single.parquet"]),
    ],
    ids=name_case,
)
@pytest.mark.parametrize("command", ["plan", "scan", "count", "files", "verify", "history"])
def test_wrong_version_is_one_line_and_exit_code_1(
    run: Run, command: str, arguments: list[str], words: list[str]
) -> None:
    result = run(command, *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("tamis: ")
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--version", "0", "--timestamp", "2024-03-01"], ["--version", "--timestamp", "exclude"]),
        (["--version", "-1"], ["--version", "-1"]),
        (["--version", "newest"], ["--version", "newest"]),
    ],
    ids=name_case,
)
@pytest.mark.parametrize("command", ["plan", "scan", "count", "files", "verify", "history"])
def test_misuse_is_exit_code_2(run: Run, command: str, options: list[str], words: list[str]) -> None:
    result = run(command, "events", *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(word in result.stderr for word in words), result.stderr


def test_files_outside_of_the_folder_are_read_only_where_that_is_allowed(
    run: Run, folder: Path, tmp_path: Path
) -> None:
    file = folder / "events" / "day=b" / "part-1.parquet"
    log = DeltaLog(tmp_path / "shallow", {"id": "long"})
    log.commit(add(file.as_uri(), size=file.stat().st_size))
    refused = run("count", str(tmp_path / "shallow"), "--where", "id > 12")
    assert refused.exit_code == 1
    assert "outside of the table's directory" in refused.stderr
    assert run("count", str(tmp_path / "shallow"), "--where", "id > 12", "--allow-outside").stdout == "7\n"


# --- History ---------------------------------------------------------------------------------------------------------


def test_history_in_a_pipe_is_lines_newest_first(run: Run) -> None:
    lines = run("history", "events", "--columns", "version,timestamp,operation,user_name,read_version").stdout
    assert lines.splitlines() == [
        "version\ttimestamp\toperation\tuser_name\tread_version",
        "2\t2024-03-01T14:00:00Z\tDELETE\t\\N\t1",
        "1\t2024-03-01T13:00:00Z\tWRITE\tKäthe\t\\N",
        "0\t2024-03-01T12:00:00Z\tCREATE\t\\N\t\\N",
    ]
    assert len(run("history", "events").stdout.splitlines()[0].split("\t")) == 13


def test_history_as_json_has_parameters_as_objects_and_invalid_json_as_text(run: Run) -> None:
    found = json.loads(run("history", "events", "--json").stdout)
    assert [each["version"] for each in found] == [2, 1, 0]
    assert found[0]["operation_parameters"] == "no JSON"
    assert found[0]["is_blind_append"] is False
    assert found[1]["operation_parameters"] is None
    assert found[2]["operation_parameters"] == {"mode": "Append", "partitionBy": '["day"]'}
    assert found[2]["timestamp"] == "2024-03-01T12:00:00Z"
    assert found[2]["written_at"] == "2023-11-14T22:13:20Z"


def test_history_stops_at_the_limit_and_at_the_version(run: Run) -> None:
    newest = json.loads(run("history", "events", "--json", "--limit", "1").stdout)
    assert [each["version"] for each in newest] == [2]
    older = json.loads(run("history", "events", "--json", "--version", "1").stdout)
    assert [each["version"] for each in older] == [1, 0]
    assert json.loads(run("history", "events", "--json", "--limit", "0").stdout) == []
    assert len(run("history", "many").stdout.splitlines()) == 1 + VERSIONS_ON_A_TERMINAL + 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["single.parquet"], ["parquet table", "no versions", "no history"]),
        (["nowhere"], ["nowhere"]),
        (["events", "--columns", "verson"], ["the history has no column 'verson'", "version, timestamp"]),
    ],
    ids=name_case,
)
def test_wrong_history_is_one_line_and_exit_code_1(run: Run, arguments: list[str], words: list[str]) -> None:
    result = run("history", *arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert all(word in line for word in words), line


def test_X10_history_on_a_terminal_is_an_aligned_table_without_empty_columns(folder: Path) -> None:
    code, shown = run_on_terminal("history", "events", folder=folder, columns=200)
    text = strip_colours(shown)
    assert code == 0
    assert "\x1b[2J" not in shown
    assert re.split(" {3,}", text.splitlines()[0].strip()) == [
        "version",
        "timestamp",
        "operation",
        "operation_parameters",
        "user_name",
        "engine_info",
        "read_version",
        "is_blind_append",
        "written_at",
    ]
    assert re.search(r"^ +1   2024-03-01T13:00:00Z   WRITE +NULL +Käthe +hand\\x1b\[2J", text, re.MULTILINE)
    assert text.splitlines()[-1] == "3 versions"


def test_many_versions_are_cut_on_a_terminal(folder: Path) -> None:
    code, shown = run_on_terminal("history", "many", folder=folder)
    assert code == 0
    assert "the newest 20 versions; --limit N shows more, --limit all shows all" in strip_colours(shown)


def test_half_of_a_surrogate_pair_in_a_commit_is_not_an_error(run: Run, tmp_path: Path) -> None:
    log = DeltaLog(tmp_path / "odd")
    log.commit(commit_info())
    log.write(1, '{"commitInfo":{"operation":"W\\ud800","operationParameters":{"a":"\\udfff"}}}\n')
    found = json.loads(run("history", str(tmp_path / "odd"), "--json", "--limit", "1").stdout)
    assert (found[0]["operation"], found[0]["operation_parameters"]) == ("W?", {"a": "?"})
