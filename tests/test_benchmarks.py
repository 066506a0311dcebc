"""The benchmarks run, compare results and write their metrics. No test checks their speed."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

import tamis
from tamis.scan.scan import get_planner

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(BENCHMARKS / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.mark.interop
def test_quick_benchmarks_run_and_write_a_section_each(tmp_path: Path) -> None:
    results = tmp_path / "results.md"
    done = run("rewrite", "full_scan", "--quick", "--data", str(tmp_path / "data"), "--results", str(results))
    assert done.returncode == 0, done.stderr

    text = results.read_text()
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Skipping rewrite",
        "## Full scan without a predicate",
    ]
    assert text.count("| by hand, IN by binary search, null counts ") == 2
    assert text.count("| pyarrow.dataset ") == text.count("| DuckDB ") == 4
    assert str(tmp_path) not in text
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == [
        "line-items-snappy-20000",
        "line-items-zstd-20000",
    ]


def test_section_of_a_later_run_replaces_the_older_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    harness = importlib.import_module("harness")
    results = tmp_path / "results.md"
    for name, about in (("one", "first"), ("two", "second"), ("one", "third")):
        harness.write_section(harness.Section(name, name.title(), about), f"run {name}", results)
    lines = results.read_text().splitlines()
    assert [line for line in lines if line in ("## One", "## Two", "first", "second", "third")] == [
        "## One",
        "third",
        "## Two",
        "second",
    ]


def test_contenders_that_find_different_things_stop_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    harness = importlib.import_module("harness")
    contenders = [harness.here("one", lambda: 1), harness.here("two", lambda: 2)]
    with pytest.raises(SystemExit, match="found different things"):
        harness.interleave(contenders, rounds=1)


@pytest.mark.parametrize(
    ("ours", "verdict"),
    [([1.0, 1.0, 1.0], "met"), ([3.0, 3.0, 3.0], "**missed**"), ([1.0, 9.0, 9.0], "**unsettled**")],
)
def test_target_is_decided_only_if_both_medians_agree(
    ours: list[float], verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    harness = importlib.import_module("harness")
    timings = [
        harness.Timings(name, tuple(harness.Measured(each, each, None) for each in seconds))
        for name, seconds in (("theirs", [2.0, 10.0, 2.0]), ("ours", ours))
    ]
    assert harness.Target("as fast", harness.ratio(*timings), at_least=1).verdict == verdict


@pytest.mark.interop
def test_partition_benchmark_lists_few_directories_and_removes_its_tree(tmp_path: Path) -> None:
    done = run("hive_listing", "--quick", "--data", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "of 41 directories, tamis lists the wanted one and, to learn the columns, some 64 more: met" in done.stdout
    assert list(tmp_path.iterdir()) == []


@pytest.mark.interop
def test_lookups_through_pages_find_the_same_rows_and_report_exact_bytes(tmp_path: Path) -> None:
    done = run("pages", "--quick", "--data", str(tmp_path))
    assert done.returncode == 0, done.stderr
    counted = done.stdout.split("### Bytes and requests of Tamis")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:3]] for line in counted.splitlines() if line.startswith("| ")]
    assert rows[2:] == [["point on the sorted key", "1"], ["point on a random key, Bloom filter", "1"]]


@pytest.mark.interop
def test_the_object_store_counts_what_everyone_asks_it_for(tmp_path: Path) -> None:
    for name in ("moto", "flask", "flask_cors"):
        pytest.importorskip(name, reason="the S3 server of the benchmarks comes with tamis[bench]")
    done = run("object_store", "--quick", "--data", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "point on the sorted key: dependent round trips: met, 3 trips" in done.stdout
    page = done.stdout.split("### What Tamis asks for")[1]
    requested = [line.split("|")[1].strip() for line in page.splitlines() if line.startswith("| ")][2:]
    assert requested == ["HEAD /bench/rows.parquet", *["GET /bench/rows.parquet"] * 2]


@pytest.mark.interop
def test_plans_of_delta_logs_find_the_same_files_and_only_small_logs_stay(tmp_path: Path) -> None:
    pytest.importorskip("deltalake", reason="the peer in planning Delta tables comes with tamis[test]")
    done = run("delta", "--quick", "--large", "--data", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("| deltalake ") == 11
    assert "Not measured: left out with `--quick`." in done.stdout
    alone = done.stdout.split("new process, tamis alone")[1]
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in alone.splitlines() if line.startswith("| ")]
    assert [(row[0], row[-1]) for row in rows[2:]] == [("partition and ids", "1"), ("one id", "1")]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["delta-2-parts-1000", "delta-20-commits-100"]


@pytest.mark.interop
def test_plans_of_iceberg_tables_find_the_same_files(tmp_path: Path) -> None:
    pytest.importorskip("pyiceberg", reason="the peer in planning Iceberg tables comes with tamis[test]")
    done = run("iceberg", "--quick", "--data", str(tmp_path))
    assert done.returncode == 0, done.stderr
    # One query, cold and warm, on two tables. Pyiceberg cannot plan the third, which has equality deletes.
    assert done.stdout.count("| pyiceberg ") == 4
    assert done.stdout.count("\n| tamis ") == 6
    assert str(tmp_path) not in done.stdout
    assert len(list(tmp_path.iterdir())) == 3
    (by_values,) = tmp_path.glob("*-by-values")
    planned = get_planner(tamis.open(by_values).scan("id = 10500")).listing.files
    # The values of the delete are of the first ids of its data file.
    assert [len(each or []) for each in planned["deletes"].to_pylist()] == [1]
    assert get_planner(tamis.open(by_values).scan("id = 11500")).listing.files["deletes"].null_count == 1


def test_round_trips_are_the_longest_chain_of_requests_that_wait_for_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS)
    server = importlib.import_module("object_store_server")

    def trips(*times: tuple[float, float]) -> int:
        requests = [server.Request("GET", "/", None, 206, 1, began, answered) for began, answered in times]
        found = server.dependent_round_trips(requests)
        assert isinstance(found, int)
        return found

    assert trips() == 0
    assert trips((0, 3), (3, 6), (6, 9)) == 3
    assert trips((0, 3), (1, 4), (2, 5)) == 1
    # One long request beside two short ones in a row, then one that waited for all.
    assert trips((0, 9), (0, 3), (4, 8), (9, 12)) == 3


def test_unknown_benchmark_is_refused_with_the_names_that_exist(tmp_path: Path) -> None:
    done = run("speed", "--data", str(tmp_path))
    assert done.returncode == 2
    known = "rewrite, full_scan, hive_listing, row_groups, pages, object_store, memory, delta"
    assert f"no benchmark 'speed'; there are {known}" in done.stderr


def test_every_benchmark_is_run_and_documented() -> None:
    names = {path.stem.removeprefix("bench_") for path in BENCHMARKS.glob("bench_*.py")}
    page = (BENCHMARKS / "README.md").read_text()
    runner = (BENCHMARKS / "run.py").read_text()
    assert all(f"| `{name}` |" in page and f'"{name}"' in runner for name in names)
