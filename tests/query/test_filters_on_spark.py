"""Filters that are pushed into scans on Spark, instead of being tested by Spark."""

from __future__ import annotations

from datetime import UTC, tzinfo
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.expr.nodes import TRUE
from tamis.query.connectors.lake_handle import LakeHandle
from tamis.query.plan.nodes import TableScan, walk_plan
from tamis.query.query import get_compiled_query

NEW_YORK = ZoneInfo("America/New_York")
COLUMNS = pa.schema(
    [
        *(("i", pa.int32()), ("l", pa.int64()), ("f", pa.float32()), ("d", pa.float64()), ("c", pa.decimal128(10, 2))),
        *(("c38", pa.decimal128(38, 10)), ("s", pa.string()), ("b", pa.binary()), ("dt", pa.date32())),
        *(("ts", pa.timestamp("us", "UTC")), ("ntz", pa.timestamp("us"))),
    ]
)


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    path = tmp_path_factory.mktemp("types") / "t.parquet"
    pq.write_table(COLUMNS.empty_table(), path)
    session = tamis.connect()
    session.register("t", session.open(path))
    return session


def is_pushed(session: tamis.Session, condition: str, zone: tzinfo = UTC, *, is_ansi: bool = True) -> bool:
    query = get_compiled_query(session.sql(f"SELECT s FROM t WHERE {condition}")).on_spark(zone, is_ansi=is_ansi)
    (scan,) = (node for node in walk_plan(query.optimized.plan) if isinstance(node, TableScan))
    assert isinstance(scan.handle, LakeHandle)
    return scan.handle.predicate != TRUE


@pytest.mark.parametrize(
    "condition",
    [
        *("i = 5", "i = '5'", "l = 2.5D", "l IN (1, 2.5, NULL)", "f > 0.1", "f = 5", "d = 0.1", "d >= '5'", "c = 1.5"),
        *("l = 9007199254740993D", "l IN (1, 9007199254740993D)", "c = 0.1D", "c IN (0.1D)", "c38 = 1.5D"),
        *("c = 1.5D", "c38 = 5", "i < l", "l = d", "i + 1 > 5", "d * 2 > 5", "c * 2 > 5", "-d < 0", "abs(c) > 1"),
        *("s = 'ß'", "s LIKE 'a%'", "substring(s, 1, 2) = 'ab'", "length(s) = 1", "s IN ('a', NULL)", "b = X'61'"),
        *("dt = '2024-01-31'", "ts > '2024-01-31 10:00:00'", "year(dt) = 2024", "date_trunc('month', ts) = ts"),
        *("CAST(i AS BIGINT) = 5", "CAST(i AS STRING) = '5'", "CAST(d AS INT) = 5", "CAST(ts AS DATE) = dt"),
        *("dt + 1 > DATE '2024-01-31'", "ts + INTERVAL 1 DAY > TIMESTAMP '2024-01-31 00:00:00'", "dt < ts"),
    ],
)  # fmt: skip
def test_filters_with_the_same_semantics_on_spark_are_pushed(session: tamis.Session, condition: str) -> None:
    assert is_pushed(session, condition)


@pytest.mark.parametrize(
    "condition",
    [
        *("upper(s) = 'SS'", "lower(s) = 'ss'", "coalesce(upper(s), 'x') = 'SS'", "NOT upper(s) = 'SS'"),
        *("c < d", "f = 16777217", "i < f", "f + f > 1", "i / 2 > 1", "i % 2 = 1", "s = 1", "s IN ('1', 2)"),
        *("i = '05'",),
        *("i = '1.5'", "d IN ('1')", "ts IN ('2024-01-31')", "dt = '2024-01-31 10:00:00'", "dt = '2024-1-1'"),
        *("CAST(s AS BINARY) = X'61'", "CAST(l AS TIMESTAMP) > ts", "CAST(s AS INT) = 5", "try_cast(s AS DATE) = dt"),
        *("CAST(d AS STRING) = '1.0'", "CAST(c AS DOUBLE) = 0.1D", "CAST(s AS BOOLEAN)", "b = 'a'"),
        *("substring(s, -2) = 'ab'", "date_trunc('decade', ts) = ts", "year(s) = 2024"),
    ],
)  # fmt: skip
def test_filters_with_other_semantics_on_spark_are_not_pushed(session: tamis.Session, condition: str) -> None:
    assert not is_pushed(session, condition)


def test_the_other_conjuncts_are_pushed(session: tamis.Session) -> None:
    assert is_pushed(session, "f = 16777217 AND i = 5")
    assert is_pushed(session, "upper(s) = 'SS' AND i = 5")


@pytest.mark.parametrize("condition", ["i + 1 > 5", "CAST(l AS INT) = 5", "CAST(d AS INT) = 5"])
def test_an_overflow_is_an_error_only_in_ansi_mode(session: tamis.Session, condition: str) -> None:
    assert is_pushed(session, condition)
    assert not is_pushed(session, condition, is_ansi=False)


@pytest.mark.parametrize("condition", ["dt = TIMESTAMP '2024-01-31 00:00:00'", "ntz < TIMESTAMP '2024-01-31 00:00:00'"])
def test_timestamps_in_another_zone_are_compared_by_spark(session: tamis.Session, condition: str) -> None:
    assert is_pushed(session, condition)
    assert not is_pushed(session, condition, NEW_YORK)
    assert is_pushed(session, "ts = TIMESTAMP '2024-01-31 00:00:00'", NEW_YORK)


def test_all_filters_are_pushed_for_the_embedded_engine(session: tamis.Session) -> None:
    assert "where upper(`s`) = 'SS'" in session.sql("SELECT s FROM t WHERE upper(s) = 'SS'").explain()
