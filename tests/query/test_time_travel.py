"""`VERSION AS OF` and `TIMESTAMP AS OF`: earlier states of tables, registered, by path and in catalogs."""

from __future__ import annotations

import json
import os
import re
import shutil
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import deltalake
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet as pq
import pytest
from sqlglot import exp

import tamis
from tamis.errors import AccessDenied, InvalidArgument, TableNotFound, TamisError, UnsupportedFeature, VersionNotFound
from tamis.query.sql.planner import read_query
from tamis.query.sql.table_versions import move_versions_into_names


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A table of three versions, one day apart. Version 0 has id 0, version 1 ids 0 and 1, version 2 ids 0 to 2."""
    for version in range(3):
        rows = pa.table({"id": [version], "label": [f"v{version}"]})
        deltalake.write_deltalake(tmp_path / "orders", rows, mode="append")
        commit = tmp_path / "orders" / "_delta_log" / f"{version:020}.json"
        timestamp = int(datetime(2024, 3, 1 + version, 12, tzinfo=UTC).timestamp() * 1000)
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            action.get("commitInfo", {})["timestamp"] = timestamp
        commit.write_text("\n".join(map(json.dumps, actions)))
        os.utime(commit, (timestamp / 1000, timestamp / 1000))
    return tmp_path / "orders"


@pytest.fixture
def session(path: Path) -> tamis.Session:
    return tamis.connect().register("orders", path).register("sales.orders", path)


def read_ids(session: tamis.Session, query: str) -> list[int]:
    return sorted(session.sql(query).to_arrow()[0].to_pylist())


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("SELECT id FROM orders", [0, 1, 2]),
        ("SELECT id FROM orders VERSION AS OF 1", [0, 1]),
        ("SELECT orders.id FROM orders VERSION AS OF 0", [0]),
        ("SELECT o.id FROM orders FOR VERSION AS OF '1' AS o WHERE o.id > 0", [1]),
        ("SELECT sales.orders.id FROM sales.orders VERSION AS OF 1", [0, 1]),
        ("SELECT id FROM orders TIMESTAMP AS OF '2024-03-02 18:00:00'", [0, 1]),
        ("SELECT id FROM orders TIMESTAMP AS OF DATE '2024-03-02'", [0]),
        ("SELECT id FROM orders TIMESTAMP AS OF TIMESTAMP '2024-03-03 12:00:00' - INTERVAL 1 DAY", [0, 1]),
        ("SELECT id FROM orders FOR SYSTEM_TIME AS OF current_timestamp()", [0, 1, 2]),
        ("SELECT n.id FROM orders n LEFT ANTI JOIN orders VERSION AS OF 1 o ON n.id = o.id", [2]),
        ("SELECT count(*) FROM orders VERSION AS OF 1", [2]),
        ("SELECT max(id) OVER () FROM orders VERSION AS OF 1", [1, 1]),
        ("SELECT orders.id + row_number() OVER (ORDER BY id) FROM orders VERSION AS OF 1", [1, 3]),
        ("WITH old AS (SELECT * FROM orders VERSION AS OF 0) SELECT id FROM old", [0]),
    ],
)
def test_an_earlier_state_is_read(session: tamis.Session, query: str, expected: list[int]) -> None:
    assert read_ids(session, query) == expected
    assert read_ids(session, f"SELECT * FROM ({query})") == expected


def test_an_earlier_state_of_a_table_by_path(path: Path) -> None:
    session = tamis.connect()
    assert read_ids(session, f"SELECT id FROM delta.`{path}` VERSION AS OF 1") == [0, 1]
    assert read_ids(session, f"SELECT id FROM delta.`{path}`") == [0, 1, 2]


def test_a_path_is_the_newest_version_and_a_name_the_registered_one(session: tamis.Session, path: Path) -> None:
    by_path = f"SELECT id FROM delta.`{path}`"
    earlier = session.sql(by_path)
    assert read_ids(session, by_path) == [0, 1, 2]
    deltalake.write_deltalake(path, pa.table({"id": [3], "label": ["v3"]}), mode="append")
    assert read_ids(session, by_path) == [0, 1, 2, 3]
    assert sorted(earlier.to_arrow()["id"].to_pylist()) == [0, 1, 2]
    assert read_ids(session, "SELECT id FROM orders") == [0, 1, 2]
    assert read_ids(session, "SELECT id FROM orders VERSION AS OF 3") == [0, 1, 2, 3]


def test_a_name_registered_again_has_the_versions_of_the_new_table(session: tamis.Session, tmp_path: Path) -> None:
    assert read_ids(session, "SELECT id FROM orders VERSION AS OF 0") == [0]
    deltalake.write_deltalake(tmp_path / "other", pa.table({"id": [70]}))
    session.register("orders", tmp_path / "other")
    assert read_ids(session, "SELECT id FROM orders VERSION AS OF 0") == [70]


def test_a_table_that_replaced_another_is_read(path: Path) -> None:
    session = tamis.connect()
    query = f"SELECT id FROM delta.`{path}` VERSION AS OF 0"
    assert read_ids(session, query) == [0]
    shutil.rmtree(path)
    deltalake.write_deltalake(path, pa.table({"id": [70], "label": ["other"]}))
    assert read_ids(session, query) == [70]


def test_paths_are_case_sensitive_and_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number, name in enumerate(("a/Orders", "a/orders", "b/orders")):
        deltalake.write_deltalake(tmp_path / name, pa.table({"id": [number]}))
    session = tamis.connect()
    both = f"SELECT id FROM delta.`{tmp_path}/a/Orders` UNION ALL SELECT id FROM delta.`{tmp_path}/a/orders`"
    assert read_ids(session, both) == [0, 1]
    for folder, expected in (("a", 1), ("b", 2)):
        monkeypatch.chdir(tmp_path / folder)
        assert read_ids(session, "SELECT id FROM delta.`orders`") == [expected]
    shutil.rmtree(tmp_path / "b" / "orders")
    (tmp_path / "b" / "orders").mkdir()
    pq.write_table(pa.table({"id": [70]}), tmp_path / "b" / "orders" / "x.parquet")
    by_files = "SELECT id FROM parquet.`orders`"
    assert read_ids(session, by_files) == read_ids(session, by_files) == [70]


def test_texts_and_dates_are_in_the_zone_of_the_query() -> None:
    berlin = datetime(2024, 7, 1, 15, tzinfo=ZoneInfo("Europe/Berlin"))
    for timestamp, expected in (
        ("'2024-07-01 12:00:00'", "2024-07-01T10:00:00+00:00"),
        ("'2024-07-01 12:00:00Z'", "2024-07-01 12:00:00Z"),
        ("TIMESTAMP '2024-07-01 12:00:00'", "2024-07-01T10:00:00+00:00"),
        ("DATE '2024-07-01'", "2024-06-30T22:00:00+00:00"),
        ("current_date()", "2024-06-30T22:00:00+00:00"),
    ):
        tree = read_query(f"SELECT * FROM t TIMESTAMP AS OF {timestamp}")
        move_versions_into_names(tree, berlin)
        table = tree.find(exp.Table)
        assert table is not None
        assert table.name == f"t TIMESTAMP AS OF {expected}"


def test_explain_shows_the_version(session: tamis.Session) -> None:
    assert "delta table 'orders' at version 1" in session.explain("SELECT label FROM orders VERSION AS OF 1")


@pytest.mark.parametrize(
    ("query", "kind", "message"),
    [
        ("SELECT * FROM orders VERSION AS OF 9", VersionNotFound, "no version 9 .*versions 0 to 2"),
        ("SELECT * FROM orders VERSION AS OF 'main'", InvalidArgument, "must be a number, found 'main'"),
        ("SELECT * FROM orders VERSION AS OF id", InvalidArgument, "expected a version number"),
        ("SELECT * FROM orders TIMESTAMP AS OF '2001-01-01'", VersionNotFound, "the oldest version, 0"),
        ("SELECT * FROM orders TIMESTAMP AS OF 'soon'", InvalidArgument, "invalid timestamp 'soon'"),
        ("SELECT * FROM orders TIMESTAMP AS OF id", InvalidArgument, "or a constant expression"),
        (
            "SELECT * FROM orders TIMESTAMP AS OF DATE '9999-12-31' + INTERVAL 2 DAYS",
            InvalidArgument,
            "or a constant expression",
        ),
        ("SELECT * FROM orders TIMESTAMP AS OF NULL", InvalidArgument, "expected a timestamp"),
        ("SELECT * FROM orders TIMESTAMP AS OF TRUE", InvalidArgument, "a date or a timestamp"),
        ("SELECT * FROM ordres VERSION AS OF 1", TableNotFound, "no table 'ordres VERSION AS OF 1'"),
        ("WITH r AS (SELECT 1) SELECT * FROM r VERSION AS OF 1", TableNotFound, "no table 'r VERSION"),
        ("SELECT * FROM memory VERSION AS OF 1", UnsupportedFeature, "is not a lake table"),
        ("SELECT * FROM files VERSION AS OF 1", UnsupportedFeature, "a hive table has no versions"),
    ],
)
def test_mistakes(session: tamis.Session, tmp_path: Path, query: str, kind: type[TamisError], message: str) -> None:
    pyarrow.dataset.write_dataset(pa.table({"id": [1]}), tmp_path / "files", format="parquet")
    session.register("memory", pa.table({"id": [1]})).register("files", tmp_path / "files")
    with pytest.raises(kind) as raised:
        session.sql(query).to_arrow()
    assert re.search(message, str(raised.value))


def test_sessions_with_policies_read_the_registered_version_only(path: Path) -> None:
    session = tamis.connect(policies={"default": "allow", "tables": {}}).register("orders", path)
    assert read_ids(session, "SELECT id FROM orders") == [0, 1, 2]
    with pytest.raises(AccessDenied, match="not at other versions"):
        session.sql("SELECT id FROM orders VERSION AS OF 0")
