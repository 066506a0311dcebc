"""Scans with a limit list only as many partitions, and read only as many footers, as hold enough rows."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

import tamis
from builders.hive.tables import write_hive_table
from tamis.scan.scan import Scan, get_planner

PARTITIONS = 40


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a table with ten rows in each partition, but none in the first."""
    parts = [
        (
            {"p": f"{number:02}"},
            pa.table({"id": pa.array(range(number * 10, number * 10 + 10 if number else 0), pa.int64())}),
        )
        for number in range(PARTITIONS)
    ]
    return write_hive_table(tmp_path_factory.mktemp("hive") / "t", parts)


def count_listings(scan: Scan) -> tuple[int, tamis.ScanPlan]:
    """Return how many directories planning lists, and the plan."""
    counters = get_planner(scan).source.storage.counters
    before = counters.listing_calls
    plan = scan.plan("files")
    return counters.listing_calls - before, plan


@pytest.mark.parametrize(("where", "limit"), [(None, 25), ("p >= '05'", 25), ("p >= '05' AND p <> '06'", 1)])
def test_partitions_beyond_a_limit_are_not_listed(table: Path, where: str | None, limit: int) -> None:
    listings, plan = count_listings(tamis.open(table).scan(where, limit=limit))
    assert listings <= 7
    assert sum(row["size"] > 0 for row in plan.files.to_pylist()) == plan.num_files <= 4
    *_, files = plan.report.to_dict()["levels"]
    assert "partitions were not listed" in files["note"]
    assert sum(each["skipped"] for each in files["by_predicate"]) == files["total"] - files["kept"]


@pytest.mark.parametrize("where", [None, "p >= '05'", "id >= 0", "p >= '05' OR id < 3"])
@pytest.mark.parametrize("limit", [0, 1, 10, 11, 395, 10_000])
def test_a_limit_returns_as_many_rows_as_without_an_early_stop(table: Path, where: str | None, limit: int) -> None:
    expected = min(limit, tamis.open(table).scan(where).count())
    found = tamis.open(table).scan(where, limit=limit).to_arrow()
    assert found.num_rows == expected == len(set(found["id"].to_pylist()))
    assert found.equals(tamis.open(table).scan(where, limit=limit).to_arrow())
    assert tamis.open(table).scan(where, limit=limit).count() == expected


@pytest.mark.parametrize("where", ["id >= 300", "p >= '05' OR id < 3"])
def test_a_filter_that_partitions_do_not_prove_lists_all_of_them(table: Path, where: str) -> None:
    _, plan = count_listings(tamis.open(table).scan(where, limit=5))
    assert plan.num_files == PARTITIONS


def test_a_limit_stops_early_only_if_partitions_are_tested(table: Path) -> None:
    found = tamis.open(table).scan("p = '30'", limit=5, levels=["files"])
    assert found.plan("files").num_files == PARTITIONS
    assert found.to_arrow()["id"].to_pylist() == [300, 301, 302, 303, 304]


def test_many_footers_are_not_read_for_a_limit(table: Path) -> None:
    scan = tamis.open(table, tuning=tamis.Tuning(max_footers_for_limit=3)).scan(limit=100)
    assert scan.plan("files").num_files == PARTITIONS
    assert scan.to_arrow().num_rows == 100
