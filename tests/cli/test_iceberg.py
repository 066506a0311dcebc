"""Iceberg tables on the command line: snapshots in every command, moved tables, catalogs, `tamis history`."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from click.testing import CliRunner, Result
from pyiceberg.catalog.sql import SqlCatalog

from builders.commands import run_on_terminal
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from tamis.cli.application import program
from tamis.formats.source import TABLE_FORMATS
from tamis.scan.verify import list_level_subsets

Run = Callable[..., Result]


@pytest.fixture
def table(tmp_path: Path) -> IcebergFolder:
    """Two snapshots of a moved table, and a tag for the first."""
    made = IcebergFolder(tmp_path / "t", [field(1, "id", "long")], location="s3://bucket/t")
    for number in range(2):
        made.commit(made.data_file(f"{number}.parquet", pa.table({"id": [number, number + 10]})))
    made.tag("first", made.snapshots[0].number)
    return made


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return lambda *arguments: CliRunner().invoke(program, [*map(str, arguments)])


def test_snapshots_by_id_by_ref_and_by_timestamp(table: IcebergFolder, run: Run) -> None:
    first = table.snapshots[0].number
    assert run("count", table.folder).output == "4\n"
    assert run("count", table.folder, "--snapshot-id", first).output == "2\n"
    assert run("count", table.folder, "--ref", "first").output == "2\n"
    assert run("count", table.folder, "--timestamp", "2023-11-14T22:13:20.500Z").output == "2\n"
    assert run("count", table.folder, "--format", "iceberg", "--where", "id > 9").output == "2\n"


@pytest.mark.parametrize(
    ("options", "message", "code"),
    [
        (["--snapshot-id", "1", "--ref", "main"], "--snapshot-id and --ref exclude each other", 2),
        (["--version", "1"], "has no snapshot 1", 1),
        (["--ref", "other"], "no branch or tag 'other'", 1),
        (["--no-relocate"], "omit --no-relocate", 1),
        (["--catalog", "type=sql"], "the catalog cannot be opened", 1),
    ],
)
def test_errors_refer_to_command_line_options(
    table: IcebergFolder, run: Run, options: list[str], message: str, code: int
) -> None:
    found = run("count", table.folder, *options)
    assert found.exit_code == code
    assert message in found.output


def test_the_history_is_that_of_snapshots(table: IcebergFolder, run: Run) -> None:
    found = json.loads(run("history", table.folder, "--json").output)
    assert [each["snapshot_id"] for each in found] == [each.number for each in table.snapshots[::-1]]
    assert found[0]["summary"] == {}
    assert run("history", table.folder, "--ref", "first", "--columns", "operation").output.split() == [
        "operation",
        "append",
    ]


def test_a_catalog_by_its_properties(tmp_path: Path, run: Run) -> None:
    from pyiceberg.catalog import load_catalog

    properties = {"type": "sql", "uri": f"sqlite:///{tmp_path}/c.db", "warehouse": f"file://{tmp_path}/warehouse"}
    catalog = load_catalog("c", **properties)
    catalog.create_namespace("ns")
    rows = pa.table({"id": [1, 2, 3]})
    catalog.create_table("ns.t", rows.schema).append(rows)
    options = [part for name, value in {**properties, "name": "c"}.items() for part in ("--catalog", f"{name}={value}")]
    assert run("count", "ns.t", *options).output == "3\n"


def test_manifests_are_a_level_of_a_plan(table: IcebergFolder, run: Run) -> None:
    plan = json.loads(run("plan", table.folder, "--where", "id = 1", "--json").output)
    assert [each["level"] for each in plan["levels"]][:2] == ["manifests", "files"]
    assert "moved: the metadata records 's3://bucket/t'" in plan["levels"][0]["note"]


def test_O1_verify_calls_one_combination_of_levels_all(tmp_path: Path, run: Run) -> None:
    levels = TABLE_FORMATS["iceberg"].levels
    assert len(list_level_subsets(levels)) == 128
    # None, each alone, all but one, all.
    assert [len(subset) for subset in list_level_subsets(levels, max_for_all=6)] == [0, *[1] * 7, *[6] * 7, 7]
    made = IcebergFolder(tmp_path / "t", [field(1, "id", "long")])
    made.commit(made.data_file("1.parquet", pa.table({"id": [1, 2]})))
    lines = run("verify", made.folder, "--where", "id = 1").output.splitlines()
    assert [line.split("  ")[0] for line in lines[1:-2]] == [
        "no level", "partitions", "manifests", "files", "row_groups", "bloom", "pages", "dictionary", "all levels",
    ]  # fmt: skip
    assert lines[-1] == "128 runs return the same 1 row"


def test_an_index_is_not_needed(table: IcebergFolder, run: Run) -> None:
    assert "and none is needed: the manifests have the statistics" in run("index", "status", table.folder).output
    assert json.loads(run("index", "status", table.folder, "--json").output)["is_useful"] is False


def test_columns_of_the_file_list_that_do_not_fit_are_named_with_an_option_to_see_them(table: IcebergFolder) -> None:
    _, shown = run_on_terminal("files", str(table.folder), folder=table.folder, columns=24)
    assert "--columns chooses others, --json shows all" in " ".join(shown.split())


def test_I10_a_moved_and_registered_table_is_refused_on_request(tmp_path: Path, table: IcebergFolder, run: Run) -> None:
    catalog = SqlCatalog("here", uri=f"sqlite:///{tmp_path}/catalog.db", warehouse=str(tmp_path))
    catalog.create_namespace("ns")
    catalog.register_table("ns.t", str(table.save()))
    given = ["--catalog", "name=here", "--catalog", f"uri=sqlite:///{tmp_path}/catalog.db"]
    assert run("count", "ns.t", *given).output == "4\n"
    assert "omit --no-relocate" in run("count", "ns.t", "--no-relocate", *given).output
