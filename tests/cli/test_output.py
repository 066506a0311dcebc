"""What the commands print, as JSON, as lines and as text."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import tamis
from tamis.cli.application import program
from tamis.cli.terminal import count_fitting_columns
from tamis.formats.source import TABLE_FORMATS

Run = Callable[..., Result]


@pytest.fixture
def run(in_folder: Path) -> Run:
    def run_program(*arguments: str) -> Result:
        result = CliRunner().invoke(program, arguments, prog_name="tamis")
        assert result.exit_code == 0, result.stderr
        return result

    return run_program


def test_count_prints_the_number_alone(run: Run) -> None:
    assert run("count", "orders", "--where", "id < 150").stdout == "150\n"
    assert json.loads(run("count", "orders", "--where", "id < 150", "--json").stdout) == {"count": 150}


def test_count_stops_at_the_limit(run: Run) -> None:
    assert run("count", "orders", "--limit", "7").stdout == "7\n"
    assert run("count", "orders", "--limit", "all").stdout == "900\n"


def test_rows_in_a_pipe_are_tab_separated_without_a_limit(run: Run) -> None:
    lines = run("scan", "orders", "--columns", "region,id,amount").stdout.splitlines()
    assert len(lines) == 901
    assert lines[:3] == ["region\tid\tamount", "ap\t0\t\\N", "ap\t1\t0.5"]


def test_rows_as_json_lines(run: Run) -> None:
    lines = run("scan", "orders", "--where", "id BETWEEN 299 AND 300", "--json").stdout.splitlines()
    assert [json.loads(line) for line in lines] == [
        {"id": 299, "amount": 149.5, "region": "ap", "day": "2024-03-03"},
        {"id": 300, "amount": None, "region": "eu", "day": "2024-03-01"},
    ]


def test_limit_zero_prints_the_names_alone(run: Run) -> None:
    assert run("scan", "orders", "--columns", "id", "--limit", "0").stdout == "id\n"
    assert run("scan", "orders", "--columns", "id", "--limit", "0", "--json").stdout == ""


def test_plan_in_a_pipe_is_the_report_as_text(run: Run) -> None:
    where = "region = 'eu' AND id < 320"
    expected = str(tamis.open("orders").scan(where).plan())
    assert run("plan", "orders", "--where", where).stdout == expected + "\n"


def test_plan_as_json_is_the_report_and_the_files(run: Run) -> None:
    where = "region = 'eu' AND id < 320"
    found = json.loads(run("plan", "orders", "--where", where, "--json").stdout)
    report = tamis.open("orders").scan(where).plan().report.to_dict()
    assert {name: found[name] for name in report} == report
    assert found["depth"] == "pages"
    (file,) = found["files"]
    assert file["path"].endswith("orders/region=eu/day=2024-03-01/part-0003.parquet")
    assert (file["region"], file["day"], file["row_groups_to_read"]) == ("eu", "2024-03-01", 1)


def test_plan_to_files_opens_none(run: Run) -> None:
    found = json.loads(run("plan", "orders", "--where", "id < 20", "--depth", "files", "--json").stdout)
    assert len(found["files"]) == 9
    assert [level["level"] for level in found["levels"]] == ["partitions", "files"]


def test_files_are_those_that_a_filter_keeps(run: Run) -> None:
    everything = json.loads(run("files", "orders", "--json").stdout)
    kept = json.loads(run("files", "orders", "--where", "region = 'eu' AND id < 5", "--json").stdout)
    assert len(everything) == 9
    assert [(file["region"], file["day"]) for file in kept] == [
        ("eu", "2024-03-01"),
        ("eu", "2024-03-02"),
        ("eu", "2024-03-03"),
    ]
    assert all(file["size"] == Path(file["path"]).stat().st_size for file in everything)


def test_files_in_a_pipe_are_lines(run: Run, folder: Path) -> None:
    lines = run("files", "orders", "--columns", "region,path", "--limit", "2").stdout.splitlines()
    assert lines == [
        "region\tpath",
        f"ap\t{folder}/orders/region=ap/day=2024-03-01/part-0000.parquet",
        f"ap\t{folder}/orders/region=ap/day=2024-03-02/part-0001.parquet",
    ]


def test_no_files_are_an_empty_array(run: Run) -> None:
    assert json.loads(run("files", "orders", "--where", "region = 'xx'", "--json").stdout) == []


def test_levels_can_be_switched_off(run: Run) -> None:
    found = {}
    for levels in ("none", "partitions", "partitions,row_groups"):
        text = run("plan", "orders", "--where", "region = 'eu' AND id < 320", "--levels", levels, "--json").stdout
        found[levels] = {level["level"]: level["kept"] for level in json.loads(text)["levels"]}
        is_off = {level["level"]: level["note"] == "switched off" for level in json.loads(text)["levels"]}
        assert is_off == {level: level not in levels for level in ("partitions", "files", "row_groups")}
    assert found["none"] == {"partitions": 9, "files": 9, "row_groups": 45}
    assert found["partitions"] == {"partitions": 3, "files": 3, "row_groups": 15}
    assert found["partitions,row_groups"] == {"partitions": 3, "files": 3, "row_groups": 1}


def test_partition_types_can_be_declared(run: Run) -> None:
    text = run("scan", "orders", "--columns", "day", "--partitioning", "day=timestamp", "--limit", "1", "--json").stdout
    assert json.loads(text) == {"day": "2024-03-01T00:00:00Z"}


def test_verify_prints_a_line_for_each_level_and_for_all_together(run: Run) -> None:
    lines = run("verify", "orders", "--where", "region = 'eu' AND id < 320").stdout.splitlines()
    assert lines[0].split() == ["levels", "rows", "files", "row_groups", "bytes", "read", "result"]
    assert lines[1].split()[:5] == ["no", "level", "20", "9", "45"]
    assert lines[8].split()[:5] == ["all", "levels", "20", "3", "1"]
    assert [line.split()[0] for line in lines[2:8]] == list(TABLE_FORMATS["hive"].levels)
    assert all(line.endswith("same") for line in lines[1:9])
    assert lines[9:] == ["", "64 runs return the same 20 rows"]
    assert len({line.index("same") for line in lines[1:9]}) == 1


def test_verify_as_json(run: Run) -> None:
    found = json.loads(run("verify", "orders", "--where", "id < 20", "--columns", "id", "--json").stdout)
    assert found["same"] is True
    assert [set(each["levels"]) for each in found["runs"]][:2] == [set(), {"partitions"}]
    assert {(each["rows"], each["counted"]) for each in found["runs"]} == {(20, 20)}


ODD = {
    "text": pa.array(["tab\tline\nback\\slash", "", None]),
    "number": pa.array([math.nan, -math.inf, None]),
    "money": pa.array([Decimal("12345678901234567.10"), None, Decimal("0.00")], pa.decimal128(20, 2)),
    "bytes": pa.array([b"\x00\xff", b"", None]),
    "created_at": pa.array([datetime.datetime(2024, 3, 3, 12), None, None], pa.timestamp("us", "UTC")),
    "list": pa.array([[1, None], [], None], pa.list_(pa.int64())),
    "struct": pa.array([{"a": "x\ty"}, None, {"a": None}], pa.struct({"a": pa.string()})),
    "two\twords": pa.array(["NULL", "\\N", None]),
}


@pytest.fixture
def odd(in_folder: Path, tmp_path: Path) -> str:
    pq.write_table(pa.table(ODD), tmp_path / "odd.parquet")
    return str(tmp_path / "odd.parquet")


def test_lines_distinguish_null_from_every_string(run: Run, odd: str) -> None:
    lines = run("scan", odd).stdout.splitlines()
    assert lines == [
        "text\tnumber\tmoney\tbytes\tcreated_at\tlist\tstruct\ttwo\\twords",
        "tab\\tline\\nback\\\\slash\tNaN\t12345678901234567.10\tX'00ff'\t2024-03-03T12:00:00Z\t[1, null]\t"
        '{"a": "x\\\\ty"}\tNULL',
        "\t-Infinity\t\\N\tX''\t\\N\t[]\t\\N\t\\\\N",
        '\\N\t\\N\t0.00\t\\N\t\\N\t\\N\t{"a": null}\t\\N',
    ]


def test_json_is_valid_for_values_without_a_json_form(run: Run, odd: str) -> None:
    def refuse(constant: str) -> Any:
        raise AssertionError(f"{constant} is not JSON")

    lines = run("scan", odd, "--json").stdout.splitlines()
    rows = [json.loads(line, parse_constant=refuse, parse_float=Decimal) for line in lines]
    assert rows[0] == {
        "text": "tab\tline\nback\\slash",
        "number": "NaN",
        "money": Decimal("12345678901234567.10"),
        "bytes": "X'00ff'",
        "created_at": "2024-03-03T12:00:00Z",
        "list": [1, None],
        "struct": {"a": "x\ty"},
        "two\twords": "NULL",
    }
    assert rows[2] == dict.fromkeys(ODD) | {"money": Decimal("0.00"), "struct": {"a": None}}


def test_columns_with_commas_are_quoted_in_backticks(run: Run, tmp_path: Path) -> None:
    pq.write_table(pa.table({"a,b": [1], "c": [2]}), tmp_path / "t.parquet")
    assert run("scan", str(tmp_path / "t.parquet"), "--columns", "`a,b`,c").stdout == "a,b\tc\n1\t2\n"


def test_columns_that_do_not_fit_are_dropped_from_the_right() -> None:
    columns = [["x" * 10], ["y" * 10], ["z" * 100]]
    assert count_fitting_columns(["a", "b", "c"], columns, 200) == 3
    assert count_fitting_columns(["a", "b", "c"], columns, 60) == 2
    assert count_fitting_columns(["a", "b", "c"], columns, 22) == 1
    assert count_fitting_columns(["a", "b", "c"], columns, 5) == 1
    assert count_fitting_columns([], [], 80) == 0


def test_version_and_help_are_short(run: Run) -> None:
    assert run("--version").stdout == f"tamis {tamis.__version__}\n"
    text = run("--help").stdout
    assert len(text.splitlines()) < 40
    for command in ("plan", "scan", "count", "files", "verify"):
        assert f"  tamis {command}" in text
        assert f"tamis {command} orders" in run(command, "--help").stdout


def test_a_filter_that_is_repeated_means_both(run: Run) -> None:
    both = ("--where", "id >= 100", "--where", "region = 'ap' OR region = 'us'")
    assert run("count", "orders", *both).stdout == "500\n"
    assert len(run("scan", "orders", *both).stdout.splitlines()) == 501
    assert len(run("files", "orders", *both).stdout.splitlines()) == 7
    assert "id >= 100 AND (region = 'ap' OR region = 'us')" in run("plan", "orders", *both).stdout
    assert "the same 500 rows" in run("verify", "orders", *both).stdout


def test_columns_that_are_repeated_add_up(run: Run) -> None:
    lines = run("scan", "orders", "--columns", "id", "--columns", "region,amount", "--limit", "1").stdout.splitlines()
    assert lines == ["id\tregion\tamount", "0\tap\t\\N"]
