"""Tables that a session with policies opens: scans return and reveal only visible rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import duckdb
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.query.protected import EU, POLICIES, ROWS, write_orders
from tamis.errors import AccessDenied, InvalidArgument, TableError, TamisError, UnknownColumn
from tamis.expr.wire.partition_filter import PartitionFilter
from tamis.query.policies.protected_table import ProtectedTable
from tamis.table import Table


@pytest.fixture(scope="module", params=["hive", "delta", "iceberg"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_orders(tmp_path_factory.mktemp(request.param), request.param)


def open_table(path: Path, who: str = "ana", policies: Any = POLICIES) -> Table:
    return tamis.connect(policies=policies).as_principal(who).open(path)


def test_a_scan_returns_visible_rows_with_masked_values(path: Path) -> None:
    found = open_table(path).scan(columns=["id", "card", "salary"]).to_arrow().sort_by("id")
    assert found["id"].to_pylist() == EU
    assert found["card"].to_pylist() == [f"****{number:04}" for number in EU]
    assert found["salary"].null_count == 6
    assert found.schema.field("salary").type == pa.float64()
    assert open_table(path, "admin").scan().count() == 12
    assert type(open_table(path, "admin")) is Table


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("y = 12", [4]),
        ("y >= 20", []),
        ("card = '****0004'", [4]),
        ("card = 'card-0004'", []),
        ("card LIKE 'card%' OR id = 2", [2]),
        ("salary IS NULL AND id < 4", [0, 2]),
        ("salary >= 0", []),
        ("y > 15 AND y * 600000000000000000 > 0", []),
        ("y * 600000000000000000 > 0", EU),
        ("CAST(CASE WHEN y > 15 THEN owner ELSE '1' END AS INT) = 1", EU),
        ("upper(region) = 'EU' AND right(card, 1) = '4'", [4]),
        ("region <> 'eu'", []),
    ],
)
def test_a_filter_is_about_what_is_visible(path: Path, where: str, expected: list[int]) -> None:
    scan = open_table(path).scan(where, columns=["id"])
    assert sorted(scan.to_arrow()["id"].to_pylist()) == expected
    assert scan.count() == len(expected)


def test_a_limit_is_one_of_visible_rows(path: Path) -> None:
    table = open_table(path)
    assert table.scan(limit=4).to_arrow().num_rows == 4
    assert table.scan(limit=40).to_arrow().num_rows == 6
    assert table.scan("right(card, 1) = '4'", limit=2).to_arrow().num_rows == 1
    assert (table.scan(limit=4).count(), table.scan("right(card, 4) > '0003'", limit=3).count()) == (4, 3)
    with pytest.raises(InvalidArgument, match="limit"):
        table.scan(limit=-1)


def test_every_result_of_a_scan_is_under_the_policy(path: Path) -> None:
    scan = open_table(path).scan(columns=["id", "card"])
    expected = scan.to_arrow().sort_by("id")
    assert sorted(polars.DataFrame(scan)["id"].to_list()) == EU
    assert sorted(scan.to_polars()["id"].to_list()) == EU
    assert sorted(scan.to_pandas()["id"]) == EU
    assert sorted(row[0] for row in scan.to_duckdb(duckdb.connect()).fetchall()) == EU
    assert pa.table(scan).sort_by("id") == expected
    assert pa.Table.from_batches(scan.to_batches()).sort_by("id") == expected


def test_A5_plans_reports_and_errors_reveal_nothing_of_hidden_rows(path: Path, tmp_path: Path) -> None:
    table = open_table(path)
    scan = table.scan("y >= 20")
    plan = scan.plan()
    assert (plan.files.num_rows, plan.tasks, plan.bytes, plan.report.levels) == (0, [], 0, [])
    scan.to_arrow()
    assert scan.report is None
    texts = [
        str(plan),
        scan.explain(),
        repr(scan),
        scan._repr_html_(),
        repr(plan),
        json.dumps(plan.report.to_dict()),
        repr(table),
    ]
    for text in texts:
        assert not any(secret in text for secret in ("'eu'", "region=", "parquet", "****", "concat"))
    assert "not shown" in scan.explain()
    # The output does not depend on the matching rows.
    assert scan.explain().replace("20", "99") == table.scan("y >= 99").explain()
    for ask in (table.files, table.history, lambda: table.files_dataframe(None)):
        with pytest.raises(AccessDenied):
            ask()


def test_A5_a_file_that_cannot_be_read_is_not_named(tmp_path: Path) -> None:
    path = write_orders(tmp_path, "hive")
    table = open_table(path)
    (path / "region=eu" / "part-0.parquet").write_bytes(b"nothing")
    for ask in (lambda: table.scan("id >= 0").to_arrow(), lambda: table.scan("right(card, 1) = '1'").count()):
        with pytest.raises(TableError, match="not shown") as caught:
            ask()
        assert "part-0" not in str(caught.value)
        assert caught.value.__suppress_context__


def test_A6_a_table_that_the_principal_may_not_read_cannot_be_opened(path: Path) -> None:
    with pytest.raises(AccessDenied):
        open_table(path, "zoe")
    with pytest.raises(AccessDenied):
        tamis.connect(policies=POLICIES).open(path)
    with pytest.raises(AccessDenied):
        open_table(path, "ana", lambda table, principal: {"rows": "no_such_column = 1"})


def test_a_removed_policy_denies_the_next_scan(path: Path) -> None:
    allowed = ["ana"]
    table = open_table(path, "ana", lambda table, who: {"rows": "region = 'eu'"} if who in allowed else None)
    assert isinstance(table, ProtectedTable)
    assert table.scan().count() == 6
    allowed.clear()
    with pytest.raises(AccessDenied):
        table.scan()


def test_structs_are_masked_whole_and_narrowed_otherwise(tmp_path: Path) -> None:
    rows = pa.table(
        {"id": [1, 2], "place": [{"city": "a", "n": 1}, None], "home": [{"city": "x", "n": 5}, {"city": "y", "n": 6}]}
    )
    pq.write_table(rows, tmp_path / "people.parquet")
    policy = {"rows": "id > 0", "masks": {"home": "NULL"}}
    table = open_table(tmp_path / "people.parquet", "ana", lambda table, principal: policy)
    assert table.schema == rows.schema
    found = table.scan(columns=["place.city", "home.city"]).to_arrow()
    assert found.to_pylist() == [
        {"place": {"city": "a"}, "home": None},
        {"place": None, "home": None},
    ]
    assert table.scan("place.n = 1 AND upper(place.city) = 'A'", columns=["id"]).to_arrow().to_pylist() == [{"id": 1}]
    assert table.scan("home.city = 'x'").count() == 0
    assert table.scan(columns=["home"]).to_arrow()["home"].null_count == 2


def test_a_partition_filter_is_about_visible_rows_and_columns(tmp_path: Path) -> None:
    path = write_orders(tmp_path, "hive")

    def find_ids(where: Any) -> list[int]:
        return sorted(open_table(path).scan(where, columns=["id"]).to_arrow()["id"].to_pylist())

    eu = PartitionFilter.eq("region", "eu")
    assert (find_ids(eu), find_ids(~eu), find_ids([eu, "y = 12"]), find_ids([[~eu], ["y = 12"]])) == (EU, [], [4], [4])
    with pytest.raises(InvalidArgument, match="cannot be combined with OR"):
        find_ids([[eu], ["card = '****0004'"]])
    masked = {"tables": {"orders": [{"principals": ["ana"], "masks": {"region": "'hidden'"}}]}}
    with pytest.raises(UnknownColumn, match="no partition column 'region'"):
        open_table(path, policies=masked).scan(eu)


def test_what_has_no_meaning_under_a_policy_is_refused(path: Path) -> None:
    table = open_table(path)
    with pytest.raises(UnknownColumn, match="no partition column 'card'"):
        table.scan(PartitionFilter.eq("card", "card-0004"))
    with pytest.raises(TamisError, match="no column"):
        table.scan("nothing = 1")


def test_a_table_opened_under_policies_cannot_be_taken_to_a_session_without(path: Path) -> None:
    with pytest.raises(AccessDenied):
        tamis.connect().register("orders", open_table(path))
    connection = tamis.connect(policies=POLICIES)
    connection.register("orders", connection.as_principal("ana").open(path))
    assert connection.as_principal("ben").sql("SELECT id FROM orders").to_arrow().num_rows == 6
    assert ROWS.num_rows == connection.as_principal("admin").sql("SELECT id FROM orders").to_arrow().num_rows
