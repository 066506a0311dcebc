"""A protected table wraps a table, and exposes what is listed here: a new method is an error until it is listed."""

from __future__ import annotations

from inspect import signature
from pathlib import Path
from typing import Any

import pytest

import tamis
from builders.parquet.tuning import BY_PAGES
from builders.query.protected import POLICIES, write_orders
from tamis.errors import AccessDenied, InvalidArgument
from tamis.query.policies.protected_table import ProtectedScan, ProtectedTable
from tamis.scan.scan import Scan
from tamis.table import Table

ALLOWED_OF_TABLES = {
    "name", "format", "uri", "schema", "partition_columns", "version", "scan", "refresh", "count", "head", "describe",
}  # fmt: skip
REFUSED_OF_TABLES: dict[str, tuple[Any, ...]] = {
    "history": (), "files": (), "files_dataframe": (None,), "at": (0,), "verify": (),
    "num_files": (), "size_in_bytes": (), "column_mapping_mode": (), "stats_column": ("min", "id"),
}  # fmt: skip

# The result of a scan is visible; `plan`, `explain`, `report` and `bytes_read` show nothing hidden.
ALLOWED_OF_SCANS = {
    "schema", "filter", "select", "limit", "head", "plan", "explain", "count", "report", "bytes_read",
    "to_batches", "to_reader", "to_arrow", "to_pandas", "to_polars", "to_duckdb", "to_spark",
}  # fmt: skip


def list_public_names(kind: type) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = write_orders(tmp_path_factory.mktemp("orders"), "delta")
    return tamis.connect(policies=POLICIES).as_principal("ana").open(path)


def test_every_attribute_of_a_table_is_allowed_or_refused() -> None:
    assert list_public_names(Table) == ALLOWED_OF_TABLES | REFUSED_OF_TABLES.keys()
    assert list_public_names(ProtectedTable) == list_public_names(Table)
    assert not issubclass(ProtectedTable, Table)


def test_every_attribute_of_a_scan_is_allowed() -> None:
    assert list_public_names(Scan) == ALLOWED_OF_SCANS
    assert list_public_names(ProtectedScan) == list_public_names(Scan)
    assert not issubclass(ProtectedScan, Scan)


@pytest.mark.parametrize("name", REFUSED_OF_TABLES)
def test_what_is_refused_is_an_error(table: Any, name: str) -> None:
    with pytest.raises(AccessDenied, match="under a policy"):
        getattr(table, name)(*REFUSED_OF_TABLES[name])


def test_what_is_allowed_shows_nothing_hidden(table: Any, tmp_path: Path) -> None:
    scan = table.scan("y >= 20")
    scan.to_arrow()
    assert (scan.report, scan.bytes_read, scan.plan().num_files) == (None, 0, 0)
    assert type(table.refresh()) is ProtectedTable
    assert (table.count(), table.count("y >= 20"), table.head(2).count()) == (6, scan.count(), 2)
    described = table.describe()
    assert (described.files, described.bytes, described.rows) == (None, None, None)
    assert described.schema == table.schema
    for derived in (scan.filter("id > 0"), scan.select("id"), scan.limit(1), scan.head(1)):
        assert type(derived) is ProtectedScan


@pytest.mark.parametrize("method", ["scan", "count", "head", "refresh"])
def test_methods_of_both_tables_have_the_same_parameters(method: str) -> None:
    own, other = (signature(getattr(kind, method)).parameters for kind in (Table, ProtectedTable))
    assert list(own) == list(other)


def test_a_scan_with_other_thresholds_is_under_the_policy(table: Any) -> None:
    scan, usual = table.scan("id > 0", tuning=BY_PAGES), table.scan("id > 0")
    assert type(scan) is ProtectedScan
    assert scan.to_arrow().equals(usual.to_arrow())
    assert scan.count() == usual.count() > 0
    assert type(scan.limit(1)) is ProtectedScan
    assert scan.filter("y < 20").to_arrow().equals(usual.filter("y < 20").to_arrow())
    with pytest.raises(InvalidArgument, match=r"tuning must be a tamis\.Tuning, found a dict"):
        table.scan(tuning={})


def test_scans_made_of_a_scan_are_under_the_policy_of_their_time(tmp_path: Path) -> None:
    allowed = ["ana"]
    path = write_orders(tmp_path, "hive")
    policies = lambda table, who: {"rows": "region = 'eu'"} if who in allowed else None  # noqa: E731
    scan = tamis.connect(policies=policies).as_principal("ana").open(path).scan()
    assert (scan.filter("id > 0").count(), scan.limit(2).count(), scan.head(3).count()) == (5, 2, 3)
    assert scan.select(["id", "y"]).schema.names == ["id", "y"]
    allowed.clear()
    with pytest.raises(AccessDenied):
        scan.limit(1)
