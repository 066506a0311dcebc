"""`tamis inspect`: tables for readers, JSON for programs, a chart, and one-line errors."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

from builders.commands import run_here, run_on_terminal, strip_colours
from builders.parquet.page_files import parquet_bytes
from tamis.cli.application import program

Run = Callable[..., Result]

ROWS = 1_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("inspect")
    numbers = range(ROWS)
    table = pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "shuffled": [number * 7_919 % ROWS for number in numbers],
            "price": pa.array([Decimal(number) / 4 for number in numbers], pa.decimal128(30, 2)),
            "word": [f"w{number % 20:02}" for number in numbers],
            "place": [{"city": f"c{number // 100}", "zip": number} for number in numbers],
            "empty": pa.nulls(ROWS, pa.float64()),
        }
    )
    (folder / "orders.parquet").write_bytes(parquet_bytes(table, row_group_size=500, max_rows_per_page=50))
    (folder / "bare.parquet").write_bytes(parquet_bytes(table, write_statistics=False, write_page_index=False))
    (folder / "text.parquet").write_text("no Parquet file at all")
    (folder / "cut.parquet").write_bytes((folder / "orders.parquet").read_bytes()[:5_000])
    (folder / "encrypted.parquet").write_bytes((folder / "orders.parquet").read_bytes()[:-4] + b"PARE")
    with pq.ParquetWriter(folder / "none.parquet", table.schema):
        pass
    return folder


@pytest.fixture
def run(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(folder)
    return lambda *arguments: CliRunner().invoke(program, ["inspect", *arguments], prog_name="tamis")


def find_lines(text: str, start: str) -> list[list[str]]:
    """Return the cells of the lines that start with a word."""
    return [re.split(" {3,}", line) for line in text.splitlines() if line.startswith(start)]


def test_distinct_counts_are_shown_where_the_file_has_them(run: Run, folder: Path) -> None:
    duckdb.sql(f"COPY (SELECT i % 7 AS few, i AS id FROM range(2100) t(i)) TO '{folder}/counted.parquet'")
    few, other = (find_lines(run("counted.parquet").stdout, name)[1] for name in ("few ", "id "))
    assert few == ["few", "0", "7", "0", "6"]
    assert other == ["id", "0", "–", "0", "2099"]
    listed = run("counted.parquet", "--column", "few").stdout.partition("row groups of few\n")[2].splitlines()
    assert re.split(" {3,}", listed[0].strip()) == ["row group", "rows", "nulls", "distinct", "min", "max"]
    assert "distinct" not in run("orders.parquet").stdout


def test_tables_in_a_pipe(run: Run) -> None:
    result = run("orders.parquet")
    assert (result.exit_code, result.stderr) == (0, "")
    text = result.stdout
    assert "orders.parquet: 1,000 rows in 2 row groups, " in text.splitlines()[0]
    assert "key-value metadata: ARROW:schema" in text
    stored, bounds, helps = find_lines(text, "id ")
    assert stored[:3] == ["id", "INT64", "SNAPPY"]
    assert bounds == ["id", "0", "0", "999"]
    assert helps[:3] == ["id", "yes", "20"]
    assert helps[-1] == "5.0 % of 20 pages"
    assert find_lines(text, "shuffled ")[2][-1] == "100 % of 20 pages"
    assert find_lines(text, "empty ")[2][-1] == "–"
    assert len(find_lines(text, "place.city ")) == len(find_lines(text, "place.zip ")) == 3
    assert text.count("overlap: the share of pages") == 1


def test_column_narrows_to_it_and_shows_its_row_groups(run: Run) -> None:
    text = run("orders.parquet", "--column", "ID").stdout
    assert "row groups of id" in text
    assert "shuffled" not in text
    assert "pages of id" not in text


def test_column_of_fields_shows_each_of_them(run: Run) -> None:
    text = run("orders.parquet", "--column", "place").stdout
    assert "row groups of place.city" in text
    assert "row groups of place.zip" in text
    assert "row groups of place.city" not in run("orders.parquet", "--column", "place.zip").stdout


def test_pages_are_listed(run: Run) -> None:
    text = run("orders.parquet", "--column", "id", "--pages").stdout
    listed = text.partition("pages of id\n")[2].splitlines()
    assert listed[0].split() == [
        "row",
        "group",
        "page",
        "first",
        "row",
        "rows",
        "offset",
        "bytes",
        "nulls",
        "min",
        "max",
    ]
    cells = [line.replace(",", "").split() for line in listed[1:21]]
    assert [cell[2] for cell in cells] == [str(row) for row in range(0, ROWS, 50)]
    assert [cell[-2:] for cell in cells] == [[str(row), str(row + 49)] for row in range(0, ROWS, 50)]


def test_pages_of_a_file_without_a_page_index_are_unknown(run: Run) -> None:
    result = run("bare.parquet", "--column", "id", "--pages")
    assert result.exit_code == 0
    assert "pages of id: unknown, the file has no page index" in result.stdout


@pytest.mark.parametrize("name", ["orders.parquet", "bare.parquet", "none.parquet"])
@pytest.mark.parametrize("options", [[], ["--pages"], ["--column", "word"], ["--column", "word", "--pages"]], ids=str)
def test_text_and_json_of_every_kind_of_file(run: Run, name: str, options: list[str]) -> None:
    assert run(name, *options).exit_code == 0
    result = run(name, *options, "--json")
    assert (result.exit_code, result.stderr) == (0, "")
    found = json.loads(result.stdout, object_pairs_hook=_check_duplicates)
    assert {column["name"] for column in found["columns"]} >= {"word"}
    assert all(("pages" in column) == ("--pages" in options) for column in found["columns"])


def _check_duplicates(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len({name for name, _ in pairs}) == len(pairs), pairs
    return dict(pairs)


def test_json_has_all_facts(run: Run, folder: Path) -> None:
    found = json.loads(run("orders.parquet", "--json", "--pages").stdout, parse_float=Decimal)
    assert found["file"] == str(folder / "orders.parquet")
    assert (found["rows"], found["size"]) == (ROWS, (folder / "orders.parquet").stat().st_size)
    assert [group["first_row"] for group in found["row_groups"]] == [0, 500]
    by_name = {column["name"]: column for column in found["columns"]}
    price = by_name["price"]
    assert (price["min"], price["max"]) == (Decimal("0.00"), Decimal("249.75"))
    assert (price["min_exact"], price["max_exact"]) == (True, True)
    assert (price["physical_type"], price["logical_type"]) == ("FIXED_LEN_BYTE_ARRAY(13)", "DECIMAL(30, 2)")
    assert (price["page_count"], len(price["pages"]), len(price["row_groups"])) == (20, 20, 2)
    assert by_name["word"]["dictionary"] == "all pages"
    assert (by_name["empty"]["nulls"], by_name["empty"]["min"], by_name["empty"]["overlap"]) == (ROWS, None, None)
    assert by_name["id"]["overlap"] == Decimal("0.05")


def test_truncated_bounds_are_marked(golden: Path, run: Run) -> None:
    text = run(str(golden / "parquet" / "binary_truncated_min_max.parquet")).stdout
    assert find_lines(text, "utf8_full_truncation ")[1][-2:] == ["≥ Al", "≤ Kf"]
    assert find_lines(text, "utf8_no_truncation ")[1][-1] == "Ke"
    assert "≥ ≤ a truncated bound" in text
    unsaid = run(str(golden / "parquet" / "data_index_bloom_encoding_stats.parquet")).stdout
    assert "Hello ?" in unsaid
    assert "yes, 1.0 KiB" in unsaid


def test_every_golden_file_is_shown_or_refused_in_one_line(golden: Path, run: Run) -> None:
    shown = 0
    for path in sorted((golden / "parquet").rglob("*.parquet")):
        for options in ([], ["--json"], ["--pages"]):
            result = run(str(path), *options)
            if path.parent.name == "bad_data" and result.exit_code:
                assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (1, "", 1)
            else:
                assert result.exit_code == 0, (path.name, options, result.output)
                shown += 1
    assert shown >= 60


# --- The chart -------------------------------------------------------------------------------------------------------


def test_chart_is_written_beside_the_tables(run: Run, tmp_path: Path) -> None:
    result = run("orders.parquet", "--column", "id", "--svg", str(tmp_path / "id.svg"))
    assert result.exit_code == 0
    assert "row groups of id" in result.stdout
    assert result.stderr == f"chart written to {tmp_path / 'id.svg'}\n"
    root = ElementTree.parse(tmp_path / "id.svg").getroot()
    assert root.findtext("{http://www.w3.org/2000/svg}title") == "Ranges of the column id in orders.parquet"


def test_chart_on_stdout_is_the_only_output(run: Run) -> None:
    result = run("orders.parquet", "--column", "place.city", "--svg", "-")
    assert (result.exit_code, result.stderr) == (0, "")
    assert ElementTree.fromstring(result.stdout).tag.endswith("svg")


def test_chart_and_json_can_be_combined(run: Run, tmp_path: Path) -> None:
    result = run("orders.parquet", "--column", "id", "--json", "--svg", str(tmp_path / "id.svg"))
    assert json.loads(result.stdout)["rows"] == ROWS
    assert (tmp_path / "id.svg").exists()


def test_failed_chart_leaves_no_file(run: Run, tmp_path: Path) -> None:
    result = run("orders.parquet", "--column", "empty", "--svg", str(tmp_path / "x.svg"))
    assert (result.exit_code, result.stdout) == (1, "")
    assert list(tmp_path.iterdir()) == []


# --- Errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nowhere.parquet"], ["nowhere.parquet", "a Parquet file"]),
        (["."], ["is a folder", "one of its files", "tamis files"]),
        (["text.parquet"], ["text.parquet", "not a Parquet file"]),
        (["cut.parquet"], ["cut.parquet", "truncated"]),
        (["encrypted.parquet"], ["encrypted"]),
        ([""], ["empty"]),
        (["foo://bar"], ["foo://", "s3://"]),
        (["orders.parquet", "--storage-option", "colour=blue"], ["colour"]),
        (["orders.parquet", "--column", "wrd"], ["'wrd'", "'word'", "orders.parquet"]),
        (["orders.parquet", "--column", "place.cit"], ["'place.cit'", "'place.city'"]),
        (["orders.parquet", "--column", "a..b"], ["'a..b'"]),
        (["orders.parquet", "--column", "place", "--svg", "x.svg"], ["place.city", "place.zip"]),
        (["orders.parquet", "--column", "empty", "--svg", "x.svg"], ["'empty'", "no bounds"]),
        (["bare.parquet", "--column", "id", "--svg", "x.svg"], ["'id'", "without statistics"]),
        (["orders.parquet", "--column", "id", "--svg", "no/x.svg"], ["no/x.svg", "no directory"]),
        (["orders.parquet", "--column", "id", "--svg", "s3://b/x.svg"], ["--svg", "local files"]),
    ],
    ids=lambda given: " ".join(given) if given and (".parquet" in given[0] or "--" in given) else "",
)
def test_wrong_input_is_one_line_and_exit_code_1(run: Run, arguments: list[str], words: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert line.startswith("tamis: ")
    assert all(word in line for word in words), line


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["FILE"]),
        (["orders.parquet", "--svg", "x.svg"], ["--svg", "--column"]),
        (["orders.parquet", "--column", "id", "--json", "--svg", "-"], ["--json", "--svg -"]),
        (["orders.parquet", "--where", "id = 1"], ["--where"]),
    ],
    ids=["no file", "no column", "both to stdout", "no such option"],
)
def test_misuse_is_exit_code_2(run: Run, arguments: list[str], words: list[str]) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (2, "")
    assert all(word in result.stderr for word in words), result.stderr


# --- On a terminal ---------------------------------------------------------------------------------------------------


def test_tables_on_a_terminal(folder: Path) -> None:
    code, shown = run_on_terminal("inspect", "orders.parquet", "--column", "id", "--pages", folder=folder)
    assert code == 0
    text = strip_colours(shown)
    assert "───" in text
    assert "5.0 % of 20 pages" in text
    assert "pages of id" in text


@pytest.mark.parametrize("columns", [120, 80, 60, 40])
def test_numbers_are_whole_on_a_narrow_terminal(tmp_path: Path, columns: int) -> None:
    rows = pa.table({
        "dec9": pa.array([Decimal(number) / 100 for number in range(5000)], pa.decimal128(9, 2)),
        "wide": pa.array([Decimal(10**37 + number) for number in range(5000)], pa.decimal128(38, 0)),
    })  # fmt: skip
    (tmp_path / "f.parquet").write_bytes(parquet_bytes(rows))
    piped = run_here("inspect", "f.parquet", "--column", "dec9", folder=tmp_path).stdout
    (ratio,) = re.findall(r"\d+\.\d×", piped)
    code, shown = run_on_terminal("inspect", "f.parquet", "--column", "dec9", folder=tmp_path, columns=columns)
    assert code == 0
    assert all(text in strip_colours(shown) for text in (ratio, "49.99", "5,000"))
    code, shown = run_on_terminal("inspect", "f.parquet", "--column", "wide", folder=tmp_path, columns=columns)
    lines = strip_colours(shown).splitlines()
    assert code == 0
    assert max(map(len, lines)) <= columns
    # A value that does not fit on its own line continues on the next.
    digits = "".join(re.findall(r"\d+", "".join(lines)))
    assert str(10**37 + 4999) in digits


def test_many_row_groups_are_truncated_on_a_terminal_but_not_in_a_pipe(tmp_path: Path) -> None:
    (tmp_path / "many.parquet").write_bytes(parquet_bytes(pa.table({"x": range(100)}), row_group_size=2))
    code, shown = run_on_terminal("inspect", "many.parquet", folder=tmp_path)
    assert code == 0
    assert "… 30 more: use a pipe or --json to see all" in strip_colours(shown)
    piped = run_here("inspect", "many.parquet", folder=tmp_path)
    assert len([line for line in piped.stdout.splitlines() if line.strip().startswith("49 ")]) == 1


def test_X10_names_and_values_cannot_send_control_sequences(tmp_path: Path) -> None:
    table = pa.table({"na\x1b[31mme\n": ["\x1b[2J", "\x07"]})
    (tmp_path / "f.parquet").write_bytes(parquet_bytes(table))
    result = run_here("inspect", "f.parquet", "--pages", folder=tmp_path)
    assert result.exit_code == 0
    assert "\x1b" not in result.stdout
    assert "\x07" not in result.stdout
    assert "\\x1b[31m" in result.stdout
    _, shown = run_on_terminal("inspect", "f.parquet", "--pages", folder=tmp_path)
    assert "\x1b[2J" not in shown


def test_a_pipe_gets_bounds_whole(tmp_path: Path) -> None:
    number = Decimal("1234567890123456789012345678901.2345678")
    pq.write_table(pa.table({"d": pa.array([number], pa.decimal128(38, 7))}), tmp_path / "d.parquet")
    result = CliRunner().invoke(program, ["inspect", str(tmp_path / "d.parquet")], prog_name="tamis")
    assert str(number) in result.stdout
    assert "…" not in result.stdout
