"""Verification: runs are equal if pruning is correct; otherwise the wrong level is named."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.hive.tables import write_hive_table
from tamis.errors import EvaluationError, InvalidArgument, UnknownColumn, VerificationFailed
from tamis.formats.hive.table import HiveTable
from tamis.formats.source import TABLE_FORMATS, FileListing
from tamis.io.storage import open_storage
from tamis.scan.scan import Scan, get_planner
from tamis.scan.verify import assert_same_rows, list_level_subsets, name_levels, verify
from tamis.skipping.predicate import Predicate


@pytest.fixture
def table(tmp_path: Path) -> Path:
    parts = [
        ({"region": region}, pa.table({"id": range(start, start + 100), "name": [f"n{i % 7}" for i in range(100)]}))
        for start, region in ((0, "ap"), (100, "eu"), (200, "us"))
    ]
    return write_hive_table(tmp_path / "t", parts, row_group_size=10)


class ListsTooFew:
    """A table that loses its last file if a level is switched on, like a wrong pruning rule."""

    def __init__(self, table: HiveTable, level: str) -> None:
        self._table = table
        self._level = level

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        listing = self._table.list_files(predicate, levels, limit, with_rows=with_rows)
        if self._level not in levels:
            return listing
        return FileListing(listing.files[:-1], listing.levels)


def test_every_subset_of_levels_runs_once_and_returns_the_same_rows(table: Path) -> None:
    results = tamis.open(table).verify("region = 'eu' AND id BETWEEN 120 AND 124", ["id"])
    assert [result.levels for result in results] == list_level_subsets(TABLE_FORMATS["hive"].levels)
    assert {(result.rows, result.count, result.same) for result in results} == {(5, 5, True)}
    assert len({result.checksum for result in results}) == 1
    assert_same_rows(results)


def test_results_report_what_each_run_kept_and_read(table: Path) -> None:
    first, *_, last = verify(tamis.open(table), "region = 'eu' AND id BETWEEN 120 AND 124")
    assert first.kept == {"partitions": 3, "files": 3, "row_groups": 30}
    assert last.kept == {"partitions": 1, "files": 1, "row_groups": 1}
    assert 0 < last.bytes_read < first.bytes_read
    assert first.to_dict() | {"checksum": ""} == {
        "levels": [],
        "rows": 5,
        "counted": 5,
        "checksum": "",
        "kept": {"partitions": 3, "files": 3, "row_groups": 30},
        "bytes_read": first.bytes_read,
        "requests": first.requests,
        "same": True,
    }


def test_costs_do_not_depend_on_which_run_came_first(table: Path) -> None:
    results = {result.levels: result.bytes_read for result in verify(tamis.open(table))}
    assert len(set(results.values())) == 1


def test_only_the_named_columns_are_compared(table: Path) -> None:
    narrow = verify(tamis.open(table), columns=["name"])[0]
    wide = verify(tamis.open(table))[0]
    assert narrow.rows == wide.rows
    assert narrow.checksum != wide.checksum
    assert narrow.bytes_read < wide.bytes_read


@pytest.mark.parametrize("level", ["partitions", "files", "row_groups"])
def test_first_subset_that_loses_rows_is_named(table: Path, level: str) -> None:
    source = ListsTooFew(HiveTable.open(open_storage(table)), level)
    results = verify(source)
    assert [result.same for result in results] == [level not in result.levels for result in results]
    with pytest.raises(VerificationFailed, match=rf"the scan with {level} on returned 200 rows, .* 300"):
        assert_same_rows(results)


def test_different_rows_are_detected(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    batches = Scan.to_batches

    def repeat_one_file(scan: Scan) -> Any:
        for batch in batches(scan):
            ids = batch.column("id")
            yield (
                batch
                if not get_planner(scan).levels
                else batch.set_column(0, "id", pa.array([i.as_py() % 100 for i in ids]))
            )

    monkeypatch.setattr(Scan, "to_batches", repeat_one_file)
    with pytest.raises(
        VerificationFailed, match=r"partitions on returned other rows than without pruning \(300 each\)"
    ):
        assert_same_rows(verify(tamis.open(table)))


def test_wrong_count_from_metadata_is_detected(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Scan, "count", lambda scan: 299 if "row_groups" in get_planner(scan).levels else 300)
    with pytest.raises(VerificationFailed, match="row_groups on counts 299 rows, but 300 match"):
        assert_same_rows(verify(tamis.open(table)))


def test_errors_of_the_scan_are_raised_unchanged(table: Path) -> None:
    with pytest.raises(UnknownColumn):
        verify(tamis.open(table), "nmae = 'n1'")
    with pytest.raises(EvaluationError):
        verify(tamis.open(table), "CAST(name AS INT) = 1")


def test_many_levels_run_in_few_subsets() -> None:
    assert len(list_level_subsets("abcdef")) == 64
    assert len(list_level_subsets("abcdefg")) == 128
    assert list_level_subsets("abcdefgh")[:3] == [(), ("a",), ("b",)]
    assert len(list_level_subsets("abcdefgh")) == 1 + 8 + 8 + 1
    assert list_level_subsets("abcdefgh")[-1] == tuple("abcdefgh")
    assert name_levels(("partitions",)) == "partitions"


@pytest.mark.parametrize("where", ["rand() < 0.5", "id = 1 OR uuid() = 'a'", "name RLIKE uuid()"])
def test_a_filter_that_is_not_deterministic_cannot_be_verified(table: Path, where: str) -> None:
    with pytest.raises(InvalidArgument, match=r"not deterministic: (rand|uuid)\(\)"):
        verify(tamis.open(table), where)


def test_the_current_time_is_the_same_in_all_runs(table: Path) -> None:
    assert_same_rows(verify(tamis.open(table), "now() > TIMESTAMP '2024-01-01 00:00:00' AND id < 5"))
