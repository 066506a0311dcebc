"""Parameters of queries: values, never SQL."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import InvalidArgument, ParseError

ROWS = pa.table(
    {
        "id": [1, 2, 3, 4],
        "region": ["eu", "us", "eu", "a'b"],
        "day": [date(2024, 1, day) for day in (1, 2, 3, 4)],
    }
)


@pytest.fixture
def session(tmp_path: Path) -> tamis.Session:
    pq.write_table(ROWS, tmp_path / "t.parquet", row_group_size=1)
    return tamis.connect().register("t", tmp_path / "t.parquet")


@pytest.mark.parametrize(
    ("query", "args", "expected"),
    [
        ("SELECT id FROM t WHERE id = ?", [2], [2]),
        ("SELECT id FROM t WHERE region = :r AND id > :least", {"r": "eu", "least": 1}, [3]),
        ("SELECT id FROM t WHERE region = :r OR region = :r", {"r": "us"}, [2]),
        ("WITH x AS (SELECT * FROM t WHERE id > ?) SELECT id * ? FROM x WHERE region = ?", [0, 10, "us"], [20]),
        ("SELECT id FROM t WHERE day >= ?", [date(2024, 1, 3)], [3, 4]),
        ("SELECT id FROM t WHERE region = ?", ["x' OR '1' = '1"], []),
        ("SELECT id FROM t WHERE region = ?", ["a'b"], [4]),
        ("SELECT id FROM t WHERE id IN (:ids)", {"ids": [1, 4]}, [1, 4]),
        ("SELECT id FROM t WHERE id IN (2, :ids, 3)", {"ids": (1,)}, [1, 2, 3]),
        ("SELECT id FROM t WHERE id IN (:ids)", {"ids": []}, []),
        ("SELECT id FROM t WHERE id IN (?)", [range(2, 4)], [2, 3]),
        ("SELECT id FROM t WHERE id IN (?)", [pa.array([2, 9])], [2]),
        ("SELECT id FROM t WHERE id IN (?)", [np.array([2, 9])], [2]),
        ("SELECT id FROM t WHERE day IN (?)", [np.array(["2024-01-02"], "datetime64[ns]")], [2]),
        ("SELECT id FROM t WHERE day = ? AND id = ?", [np.datetime64("2024-01-03", "ns"), np.int64(3)], [3]),
        ("SELECT id FROM t WHERE id NOT IN (:ids)", {"ids": []}, [1, 2, 3, 4]),
        ("SELECT id FROM t ORDER BY id LIMIT ?", [2], [1, 2]),
        ("SELECT id - ? FROM t WHERE id = 1", [-3], [4]),
        ("SELECT ?::int + ?::bigint", ["1", 2], [3]),
        ("SELECT id FROM t WHERE id > ? -- and '?' and :that", [3], [4]),
        ("SELECT count(*) FROM t WHERE region <> '?' AND region <> ':r' AND id < ?", [4], [3]),
        ("SELECT max(id) OVER () FROM t WHERE id < ?", [3], [2, 2]),
    ],
)
def test_values(
    session: tamis.Session, query: str, args: Mapping[str, Any] | Sequence[Any], expected: list[int]
) -> None:
    assert sorted(session.sql(query, args).to_arrow()[0].to_pylist()) == expected


@pytest.mark.parametrize(
    "value",
    [None, True, 0, -(2**63), 1.5, float("inf"), Decimal("-1.50"), "", "`'\\", b"\x00'", date(1, 1, 1),
     datetime(2024, 3, 1, 12, 30, 1, 5)],
)  # fmt: skip
def test_a_value_round_trips(session: tamis.Session, value: object) -> None:
    assert session.sql("SELECT ? AS v", [value]).to_arrow()["v"].to_pylist() == [value]


def test_parameters_prune_as_literals_do(session: tamis.Session) -> None:
    given = session.explain("SELECT id FROM t WHERE id = :id", args={"id": 2})
    written = session.explain("SELECT id FROM t WHERE id = 2")
    assert given.split("Optimized plan")[1].split("Rules")[0] == written.split("Optimized plan")[1].split("Rules")[0]
    assert given.split("Scans")[1] == written.split("Scans")[1]


def test_an_unclosed_text_is_a_parse_error(session: tamis.Session) -> None:
    with pytest.raises(ParseError, match="never closed"):
        session.sql("SELECT '?")


@pytest.mark.parametrize(
    ("query", "args", "message"),
    [
        ("SELECT ?", None, "? number 1 of the query has no value: pass it as in c.sql(query, args=[value, …])"),
        ("SELECT ?, ?", [1], "? number 2 of the query has no value"),
        ("SELECT :x", {"y": 1}, ":x of the query has no value (args= has :y)"),
        ("SELECT 1", [1], "args= has a value for ? number 1, but the query has no such parameter"),
        ("SELECT :x", {"x": 1, "z": 2}, "args= has a value for :z"),
        ("SELECT :x", {"x": [1, 2]}, "is a list, which only IN"),
        ("SELECT ?", [object()], "the value of the parameter ? number 1 has no SQL literal"),
        ("SELECT ?", "abc", "found a str"),
        ("SELECT ?", 5, "found an int"),
    ],
)
def test_mistakes(session: tamis.Session, query: str, args: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=re.escape(message)):
        session.sql(query, args)


@pytest.mark.parametrize(
    "query", ["SELECT id FROM :a", "SELECT id FROM :a.b", "SELECT 1 FROM (SELECT 1) JOIN :a ON TRUE"]
)
@pytest.mark.parametrize("args", [None, {"a": "t"}])
def test_a_parameter_cannot_name_a_table(session: tamis.Session, query: str, args: Any) -> None:
    with pytest.raises(ParseError, match=r"expected a table name, found the parameter :a.* can only be a value"):
        session.sql(query, args)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("t1@v12", "t1 VERSION AS OF 12"),
        ("t1@3", "t1 VERSION AS OF 3"),
        ("lake.t1@20240301120000000", "t1 TIMESTAMP AS OF '2024"),
    ],
)
def test_a_version_after_an_at_sign_is_an_error_with_the_correct_syntax(
    session: tamis.Session, table: str, message: str
) -> None:
    with pytest.raises(ParseError, match=f"is not a valid table name. Write the version of a table as in {message}"):
        session.sql(f"SELECT count(*) FROM {table}")
