"""The benchmarks run, compare equal results and write their account; how fast anything is, no test asks."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", str(BENCHMARKS / "run.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_quick_benchmarks_run_and_write_a_section_each_which_the_next_run_replaces(tmp_path: Path) -> None:
    results = tmp_path / "results.md"
    arguments = ("--quick", "--data", str(tmp_path / "data"), "--results", str(results))
    first = run("rewrite", "full_scan", *arguments)
    assert first.returncode == 0, first.stderr
    again = run("rewrite", *arguments)
    assert again.returncode == 0, again.stderr

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


def test_partition_benchmark_lists_few_directories_and_removes_its_tree(tmp_path: Path) -> None:
    done = run("hive_listing", "--quick", "--data", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert "of 41 directories, tamis lists the wanted one and, to learn the columns, some 64 more: met" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_unknown_benchmark_is_refused_with_the_names_that_exist(tmp_path: Path) -> None:
    done = run("speed", "--data", str(tmp_path))
    assert done.returncode == 2
    assert "no benchmark 'speed'; there are rewrite, full_scan, hive_listing, row_groups, memory" in done.stderr


def test_every_benchmark_is_run_and_told_of() -> None:
    names = {path.stem.removeprefix("bench_") for path in BENCHMARKS.glob("bench_*.py")}
    told = (BENCHMARKS / "README.md").read_text()
    runner = (BENCHMARKS / "run.py").read_text()
    assert all(f"| `{name}` |" in told and f'"{name}"' in runner for name in names)
