"""`--output`: whole files or none, in every format."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner, Result

import tamis
from tamis.cli.application import program
from tamis.cli.export import OUTPUT_FORMATS
from tamis.errors import CorruptFile
from tamis.scan.scan import Scan


def run(*arguments: str) -> Result:
    return CliRunner().invoke(program, arguments, prog_name="tamis")


def list_names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def orders(folder: Path) -> str:
    return str(folder / "orders")


@pytest.fixture
def expected(orders: str) -> pa.Table:
    return tamis.open(orders).scan("region = 'eu'").to_arrow()


def scan_to(orders: str, *output: str) -> Result:
    result = run("scan", orders, "--where", "region = 'eu'", "--output", *output)
    assert result.exit_code == 0, result.stderr
    return result


def test_arrow_file(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    result = scan_to(orders, str(tmp_path / "eu.arrow"))
    assert pa.ipc.open_file(tmp_path / "eu.arrow").read_all().equals(expected)
    assert result.stdout == ""
    assert result.stderr == f"300 rows written to {tmp_path}/eu.arrow as arrow\n"


def test_feather_file(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    scan_to(orders, str(tmp_path / "eu.feather"))
    assert pyarrow.feather.read_table(tmp_path / "eu.feather").equals(expected)


def test_arrow_stream(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    scan_to(orders, str(tmp_path / "eu.arrows"))
    assert pa.ipc.open_stream(tmp_path / "eu.arrows").read_all().equals(expected)


def test_parquet_joins_small_batches_into_one_row_group(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    scan_to(orders, str(tmp_path / "EU.PARQUET"))
    with pq.ParquetFile(tmp_path / "EU.PARQUET") as file:
        assert file.num_row_groups == 1
        assert file.read().equals(expected)


def test_csv_distinguishes_null_and_the_empty_string(tmp_path: Path) -> None:
    rows = pa.table({"text": ["a,b", "", None], "bytes": [b"\xff", b"", None], "flag": [True, None, False]})
    pq.write_table(rows, tmp_path / "rows.parquet")
    assert run("scan", str(tmp_path / "rows.parquet"), "--output", str(tmp_path / "rows.csv")).exit_code == 0
    assert (tmp_path / "rows.csv").read_text() == '"text","bytes","flag"\n"a,b","X\'ff\'",true\n"","X\'\'",\n,,false\n'


def test_csv_of_a_table_reads_back(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    scan_to(orders, str(tmp_path / "eu.csv"))
    assert pyarrow.csv.read_csv(tmp_path / "eu.csv").cast(expected.schema).equals(expected)


def test_json_lines(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    scan_to(orders, str(tmp_path / "eu.jsonl"))
    rows = [json.loads(line) for line in (tmp_path / "eu.jsonl").read_text().splitlines()]
    assert rows == [row | {"day": str(row["day"])} for row in expected.to_pylist()]


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_no_rows_make_a_valid_file(orders: str, format: str, tmp_path: Path) -> None:
    output = tmp_path / f"none.{format}"
    result = run("scan", orders, "--where", "region = 'xx'", "--output", str(output))
    assert result.stderr == f"0 rows written to {output} as {format}\n"
    if format == "parquet":
        assert pq.read_table(output).num_rows == 0
    elif format == "csv":
        assert output.read_text() == '"id","amount","region","day"\n'
    else:
        assert output.exists()


@pytest.mark.parametrize("format", ["arrow", "arrows", "parquet"])
def test_stdout_takes_every_format(orders: str, expected: pa.Table, format: str) -> None:
    stdout = pa.BufferReader(scan_to(orders, "-", "--output-format", format).stdout_bytes)
    readers = {
        "arrow": lambda: pa.ipc.open_file(stdout).read_all(),
        "arrows": lambda: pa.ipc.open_stream(stdout).read_all(),
        "parquet": lambda: pq.read_table(stdout),
    }
    assert readers[format]().equals(expected)


def test_format_may_differ_from_the_file_extension(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    scan_to(orders, str(tmp_path / "data"), "--output-format", "parquet")
    assert pq.read_table(tmp_path / "data").equals(expected)


def test_nested_column_in_csv_is_named_with_alternatives(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "tags": [["a"]]}), tmp_path / "rows.parquet")
    result = run("scan", str(tmp_path / "rows.parquet"), "--output", str(tmp_path / "rows.csv"))
    assert result.exit_code == 1
    assert "column 'tags'" in result.stderr
    assert "leave it out" in result.stderr
    assert list_names(tmp_path) == ["rows.parquet"]


@pytest.mark.parametrize(
    ("output", "words"),
    [
        (["out.xyz"], ["'out.xyz'", ".parquet", "--output-format"]),
        (["-"], ["--output-format", "arrows"]),
        (["no_folder/out.csv"], ["no_folder", "create it"]),
        (["."], ["'.'", "directory"]),
        ([".", "--output-format", "csv"], ["'.'", "directory"]),
        (["s3://bucket/out.csv"], ["s3://bucket/out.csv", "local"]),
    ],
    ids=lambda given: " ".join(given),
)
def test_wrong_outputs_are_named(
    orders: str, output: list[str], words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run("scan", orders, "--output", *output)
    assert (result.exit_code, result.stdout) == (1, "")
    (line,) = result.stderr.splitlines()
    assert all(word in line for word in words), line
    assert list_names(tmp_path) == []


@pytest.mark.parametrize("format", OUTPUT_FORMATS)
def test_failed_run_leaves_the_old_file_and_no_half_one(
    format: str, orders: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    output = tmp_path / f"out.{format}"

    def break_off(scan: Scan) -> Iterator[pa.RecordBatch]:
        # More than enough rows for a first batch to be written.
        yield pa.RecordBatch.from_pylist([{"id": 1}] * 200_000, scan.schema)
        assert any(name.startswith(f".{output.name}.") for name in list_names(tmp_path))
        raise CorruptFile("row group 1 of 'x' cannot be decoded")

    output.write_text("old")
    monkeypatch.setattr(Scan, "to_batches", break_off)
    result = run("scan", orders, "--columns", "id", "--output", str(output))
    assert (result.exit_code, result.stderr) == (1, "tamis: row group 1 of 'x' cannot be decoded\n")
    del result
    gc.collect()  # a discarded writer may still write
    assert list_names(tmp_path) == [output.name]
    assert output.read_text() == "old"


def test_existing_file_is_replaced_also_behind_a_link(orders: str, expected: pa.Table, tmp_path: Path) -> None:
    (tmp_path / "real.parquet").write_text("old")
    (tmp_path / "link.parquet").symlink_to("real.parquet")
    scan_to(orders, str(tmp_path / "link.parquet"))
    assert (tmp_path / "link.parquet").is_symlink()
    assert pq.read_table(tmp_path / "real.parquet").equals(expected)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="only Linux has a device that is always full")
def test_E6_full_disk_is_named_and_devices_are_not_replaced(orders: str) -> None:
    result = run("scan", orders, "--output", "/dev/full", "--output-format", "csv")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr == "tamis: cannot write to '/dev/full': No space left on device\n"
    assert Path("/dev/full").is_char_device()


def test_output_into_the_table_that_is_read_is_refused(tmp_path: Path) -> None:
    table, outside = tmp_path / "t", tmp_path / "outside"
    for folder in (table, outside):
        folder.mkdir()
    pq.write_table(pa.table({"a": [1, 2]}), outside / "b.parquet")
    pq.write_table(pa.table({"a": [3]}), table / "a.parquet")
    (table / "b.parquet").symlink_to(outside / "b.parquet")
    (tmp_path / "link").symlink_to(table)
    before = (outside / "b.parquet").read_bytes()
    for output in (table / "new.parquet", table / "a.parquet", tmp_path / "link" / "x.csv", outside / "b.parquet"):
        result = run("scan", str(table), "--allow-outside", "--output", str(output))
        assert result.exit_code == 1, output
        assert "is inside the table" in result.stderr
    assert list_names(table) == ["a.parquet", "b.parquet"]
    assert (outside / "b.parquet").read_bytes() == before
    arguments = ("scan", str(table), "--output", str(outside / "c.parquet"))
    assert "leads out of the table's folder" in run(*arguments).stderr
    assert run(*arguments, "--allow-outside").exit_code == 0


def test_output_over_the_input_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": [1, 2]}), file)
    before = file.read_bytes()
    for arguments in (["scan", str(file), "--output"], ["inspect", str(file), "--column", "a", "--svg"]):
        result = run(*arguments, str(file))
        assert result.exit_code == 1
        assert "is the input file" in result.stderr
    assert file.read_bytes() == before
    assert run("scan", str(file), "--output", str(tmp_path / "b.parquet")).exit_code == 0
