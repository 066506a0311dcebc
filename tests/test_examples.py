"""The programs under examples/ run as they stand."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow.compute
import pyarrow.dataset
import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
GET_STARTED = Path(__file__).parents[1] / "docs" / "get-started.md"
SIZE = re.compile(r" *\d+(\.\d+)? (B|KiB|MiB)")


def run(name: str, folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("query_budget.py", "The careless one is refused"),
        ("duckdb_on_a_scan.py", "cellar"),
        ("delta_time_travel.py", "version 4, UPDATE  18 heavy pieces"),
    ],
)
def test_small_example_runs(name: str, expected: str, tmp_path: Path) -> None:
    assert expected in run(name, tmp_path)


def test_every_example_is_tested() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == {
        "demo.py",
        "query_budget.py",
        "duckdb_on_a_scan.py",
        "delta_time_travel.py",
        "spark_pipeline.py",
    }


@pytest.mark.interop
def test_the_pipeline_on_spark_prunes_and_writes(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("Spark needs Java")
    check_pipeline(run("spark_pipeline.py", tmp_path, "job"), tmp_path / "job")


def check_pipeline(printed: str, folder: Path) -> None:
    """Compare what the example printed and wrote with what pyarrow reads."""
    assert "index: 12 files read, 0 reused" in printed
    assert "index: 4 files read, 12 reused" in printed
    assert re.search(r"files +4 +1 ", printed)
    orders = pyarrow.dataset.dataset(folder / "orders", partitioning="hive", format="parquet")
    ids = (pyarrow.compute.field("id") >= 160_000) & (pyarrow.compute.field("id") <= 165_000)
    wanted = ids & (pyarrow.compute.field("region") == "europe") & (pyarrow.compute.field("amount") > 900)
    expected = orders.to_table(filter=wanted)["id"].to_pylist()
    written = pyarrow.dataset.dataset(folder / "large_orders").to_table()
    assert sorted(written["id"].to_pylist()) == sorted(expected)
    assert expected
    assert f"wrote {len(expected)} large orders" in printed
    assert "| europe| 50000|199999|" in printed


def get_modification_times(table: Path) -> dict[Path, int]:
    return {path: path.stat().st_mtime_ns for path in table.glob("*/*/*.parquet")}


def test_demo_finds_its_rows_and_rewrites_the_table_only_if_it_is_incomplete(tmp_path: Path) -> None:
    table = tmp_path / "demo-data" / "flights"
    first = run("demo.py", tmp_path)
    flights = pyarrow.dataset.dataset(table, partitioning="hive")
    assert (len(flights.files), flights.count_rows()) == (36, 336_776)
    (funnel,) = re.findall(r"^```text\n(flights \(hive\).*?)^```$", GET_STARTED.read_text(), re.MULTILINE | re.DOTALL)
    assert SIZE.sub(" SIZE", funnel) in SIZE.sub(" SIZE", first)
    assert [line for line in first.splitlines() if line.endswith((" rows", " not shown"))] == [
        "15 rows, 7 of them not shown",
        "65 rows, 57 of them not shown",
        "5 rows",
    ]

    written = get_modification_times(table)
    assert "Found demo-data/flights" in run("demo.py", tmp_path)
    assert get_modification_times(table) == written

    (table / "origin=JFK" / "month=7" / "part-00000.parquet").unlink()
    assert "Wrote demo-data/flights" in run("demo.py", tmp_path)
    assert get_modification_times(table).keys() == written.keys()
    assert [path.name for path in (tmp_path / "demo-data").iterdir()] == ["flights"]
