"""Rules that use the layout of a table, groups by partition and DISTINCT over unique keys, change no row."""

from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyiceberg.schema import Schema
from pyiceberg.types import IntegerType, LongType, NestedField, StringType

import tamis
from builders.pyiceberg.tables import create_table, make_spec
from builders.query.sql_tables import has_same_rows

EXAMPLES = settings.default.max_examples if settings.default is not None else 60
MODEST = settings(max_examples=max(20, EXAMPLES), deadline=None, suppress_health_check=[*HealthCheck])
ROWS = pa.table(
    {
        "day": pa.array([None if n % 8 == 7 else n // 20 for n in range(120)], pa.int32()),
        "region": pa.array([("eu", "us", None)[n % 3] for n in range(120)]),
        "id": pa.array(range(120), pa.int64()),
    }
)
PARTITIONS = ["day", "region"]


def write_iceberg(folder: Path) -> None:
    schema = Schema(
        NestedField(1, "day", IntegerType()), NestedField(2, "region", StringType()), NestedField(3, "id", LongType())
    )
    table = create_table(folder, schema, make_spec(schema, ("day", "identity"), ("region", "identity")))
    table.append(ROWS.slice(0, 70))
    table.append(ROWS.slice(70))


def write_hive(folder: Path) -> None:
    pq.write_to_dataset(ROWS, folder, partition_cols=PARTITIONS)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    folder = tmp_path_factory.mktemp("tables")
    deltalake.write_deltalake(str(folder / "delta"), ROWS, partition_by=PARTITIONS)
    deltalake.write_deltalake(str(folder / "empty"), ROWS.slice(0, 0), partition_by=PARTITIONS)
    deltalake.write_deltalake(str(folder / "flat"), ROWS)
    write_iceberg(folder / "iceberg")
    write_hive(folder / "hive")
    found = tamis.connect()
    for name in ("delta", "empty", "flat", "iceberg", "hive"):
        found.register(name, found.open(folder / name))
    return found


def count_applied(session: tamis.Session, query: str) -> dict[str, int]:
    found = json.loads(session.explain(query, format="json"))
    return {each["rule"]: each["applied"] for each in found["rules"]}


AGGREGATES = (
    "count(DISTINCT day)",
    "count(DISTINCT region)",
    "count(DISTINCT day, region)",
    "sum(DISTINCT day)",
    "count(DISTINCT id)",
    "count(*)",
    "count(id)",
    "min(id)",
    "max(region)",
    "sum(id)",
    "count(DISTINCT day) FILTER (WHERE id > 50)",
)


@MODEST
@given(data=st.data())
def test_aggregates_of_distinct_values_are_the_same_with_the_rules_and_without(
    session: tamis.Session, data: st.DataObject
) -> None:
    table = data.draw(st.sampled_from(("delta", "empty", "flat", "iceberg", "hive")))
    calls = data.draw(st.lists(st.sampled_from(AGGREGATES), min_size=1, max_size=3, unique=True))
    keys = data.draw(st.lists(st.sampled_from(("day", "region", "id % 2")), max_size=2, unique=True))
    where = data.draw(st.sampled_from(("", "WHERE id < 77", "WHERE day > 1 OR region IS NULL", "WHERE day = 99")))
    selected = ", ".join(f"{each} AS x{number}" for number, each in enumerate((*keys, *calls)))
    groups = f"GROUP BY {', '.join(keys)}" if keys else ""
    distinct = data.draw(st.sampled_from(("", "DISTINCT ")))
    query = f"SELECT {distinct}{selected} FROM {table} {where} {groups}"
    found, expected = (session.sql(query, rules=rules).to_arrow() for rules in (True, False))
    assert has_same_rows(found, expected), f"{query}\n{session.explain(query)}"
    assert found.schema.types == expected.schema.types, query


@pytest.mark.parametrize("table", ["delta", "iceberg", "hive"])
def test_distinct_values_of_partition_columns_are_grouped_by_partition(session: tamis.Session, table: str) -> None:
    query = f"SELECT region, count(DISTINCT day) AS days, count(*) AS n FROM {table} GROUP BY region"
    applied = count_applied(session, query)
    assert (applied["group_by_partitions"], applied["push_aggregation_into_scan"]) == (1, 1)
    expected = ROWS.group_by("region").aggregate([("day", "count_distinct", pc.CountOptions(mode="only_valid"))])
    found = session.sql(query).to_arrow()
    assert dict(zip(found["region"].to_pylist(), found["days"].to_pylist(), strict=True)) == dict(
        zip(expected["region"].to_pylist(), expected["day_count_distinct"].to_pylist(), strict=True)
    )


def test_distinct_values_of_partition_columns_need_no_data_file(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), ROWS, partition_by=PARTITIONS)
    for file in tmp_path.glob("t/*/*/*.parquet"):
        file.unlink()
    session = tamis.connect()
    session.register("t", session.open(tmp_path / "t"))
    assert session.sql("SELECT count(DISTINCT region), count(DISTINCT day) FROM t").to_arrow().to_pylist() == [
        {"count(DISTINCT region)": 2, "count(DISTINCT day)": 6}
    ]


def test_other_columns_are_not_grouped_by_partition(session: tamis.Session) -> None:
    for query in (
        "SELECT count(DISTINCT id) FROM delta",
        "SELECT count(DISTINCT day) FROM flat",
        "SELECT id, count(DISTINCT day) FROM delta GROUP BY id",
    ):
        assert count_applied(session, query)["group_by_partitions"] == 0


def test_distinct_over_pushed_groups_disappears(session: tamis.Session) -> None:
    query = "SELECT DISTINCT day, n FROM (SELECT day, count(*) AS n FROM delta GROUP BY day)"
    assert count_applied(session, query)["drop_distinct"] == 1
    found, expected = (session.sql(query, rules=rules).to_arrow() for rules in (True, False))
    assert has_same_rows(found, expected)
    assert (
        count_applied(session, "SELECT DISTINCT n FROM (SELECT day, count(*) AS n FROM delta GROUP BY day)")[
            "drop_distinct"
        ]
        == 0
    )


def test_A4_partitions_of_a_table_under_a_policy_are_not_used(session: tamis.Session, tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path / "t"), ROWS, partition_by=PARTITIONS)
    policy = {"tables": {"t": [{"principals": ["ana"], "rows": "id < 30"}]}}
    protected = tamis.connect(policies=policy).as_principal("ana")
    protected.register("t", protected.open(tmp_path / "t"))
    assert protected.sql("SELECT count(DISTINCT day) AS n FROM t").to_arrow().to_pylist() == [{"n": 2}]
