"""Rows in other libraries: every Parquet type is converted, or rejected with the name of its column."""

from __future__ import annotations

from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError, UnsupportedFeature

HALF = np.float16(1.5)
WIDE = Decimal("1.5")

COLUMNS: dict[str, pa.Array] = {
    "null": pa.nulls(2),
    "boolean": pa.array([True, None]),
    **{
        str(each): pa.array([1, None], each)
        for each in (
            *(pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64()),
            *(pa.float32(), pa.float64(), pa.date32(), pa.time32("ms"), pa.time64("us"), pa.time64("ns")),
            *(pa.timestamp(unit, zone) for unit in ("s", "ms", "us", "ns") for zone in (None, "UTC", "Europe/Berlin")),
            *(pa.duration(unit) for unit in ("s", "ms", "us", "ns")),
        )
    },
    "half": pa.array([HALF, None], pa.float16()),
    "date64": pa.array([86_400_000, None], pa.date64()),
    "string": pa.array(["a", None]),
    "large string": pa.array(["a", None], pa.large_string()),
    "string view": pa.array(["a", None], pa.string_view()),
    "binary": pa.array([b"a", None]),
    "large binary": pa.array([b"a", None], pa.large_binary()),
    "fixed binary": pa.array([b"ab", None], pa.binary(2)),
    "dictionary": pa.array(["a", None]).dictionary_encode(),
    "decimal of 9 digits": pa.array([WIDE, None], pa.decimal128(9, 2)),
    "decimal of 38 digits": pa.array([WIDE, None], pa.decimal256(38, 2)),
    "decimal of 50 digits": pa.array([WIDE, None], pa.decimal256(50, 2)),
    "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([b"0" * 16, None], pa.binary(16))),
    "json": pa.ExtensionArray.from_storage(pa.json_(), pa.array(["{}", None])),
    "list": pa.array([[1], None]),
    "list view": pa.array([[1], None], pa.list_view(pa.int64())),
    "fixed list": pa.array([[1, 2], None], pa.list_(pa.int64(), 2)),
    "struct": pa.array([{"a": 1}, None]),
    "map": pa.array([[("a", 1)], None], pa.map_(pa.string(), pa.int64())),
    "list of halves": pa.array([[HALF], None], pa.list_(pa.float16())),
    "struct of a half": pa.array([{"h": HALF}, None], pa.struct([("h", pa.float16())])),
    "list of durations": pa.array([[1], None], pa.list_(pa.duration("us"))),
    "list of decimals of 50 digits": pa.array([[WIDE], None], pa.list_(pa.decimal256(50, 2))),
}


@pytest.fixture(params=COLUMNS, ids=str)
def table(request: pytest.FixtureRequest, tmp_path: Path) -> tamis.Table:
    pq.write_table(pa.table({"i": [1, 2], "x": COLUMNS[request.param]}), tmp_path / "f.parquet")
    return tamis.open(tmp_path / "f.parquet")


@pytest.mark.parametrize("method", ["to_arrow", "to_pandas", "to_polars", "to_duckdb"])
@pytest.mark.parametrize(
    "query", [None, "SELECT x FROM t", "SELECT x FROM t ORDER BY i DESC"], ids=["scan", "all", "ordered"]
)
def test_every_type_is_converted_or_refused_by_name(table: tamis.Table, query: str | None, method: str) -> None:
    refusal = find_error(table, query, method)
    assert refusal is None or ("column 'x'" in refusal and "to_arrow()" in refusal), refusal


def find_error(table: tamis.Table, query: str | None, method: str) -> str | None:
    """Return the message of the error, or None if all rows were converted."""
    try:
        found = table.scan(columns=["x"]) if query is None else tamis.connect().register("t", table).sql(query)
        rows = getattr(found, method)()
    except TamisError as error:
        return str(error)
    try:
        count = len(rows.fetchall() if method == "to_duckdb" else rows)
    except duckdb.Error as error:
        # A DuckDB relation raises errors of values while it reads, as DuckDB errors that wrap errors of Tamis.
        return str(error)
    return None if count == 2 else f"{count} rows"


def write_and_connect(tmp_path: Path, **columns: pa.Array) -> tamis.Session[Any]:
    pq.write_table(pa.table(columns), tmp_path / "f.parquet")
    return tamis.connect().register("t", tamis.open(tmp_path / "f.parquet"))


def test_a_duration_of_a_query_is_a_duration_of_polars(tmp_path: Path) -> None:
    spans = [timedelta(microseconds=1), None, timedelta(days=-400, seconds=3)]
    found = write_and_connect(tmp_path, x=pa.array(spans, pa.duration("us"))).sql("SELECT x FROM t").to_polars()
    assert found["x"].dtype == polars.Duration("us")
    assert found["x"].to_list() == spans


def test_an_interval_with_months_is_refused_by_polars_with_its_name(tmp_path: Path) -> None:
    query = write_and_connect(tmp_path, i=pa.array([1])).sql("SELECT make_ym_interval(0, i) AS months FROM t")
    with pytest.raises(UnsupportedFeature, match=r"the column 'months', an interval: .* with months"):
        query.to_polars()


def test_two_columns_of_one_name_are_refused_by_polars_with_the_name(tmp_path: Path) -> None:
    query = write_and_connect(tmp_path, i=pa.array([1])).sql("SELECT i AS a, i + 1 AS a FROM t")
    assert query.to_arrow().num_columns == 2
    with pytest.raises(UnsupportedFeature, match=r"found 'a' twice: .* AS"):
        query.to_polars()


def test_a_day_that_python_does_not_have_is_refused_by_pandas_with_its_name(tmp_path: Path) -> None:
    session = write_and_connect(tmp_path, i=pa.array([1]), day=pa.array([2_932_897], pa.date32()))
    with pytest.raises(UnsupportedFeature, match=r"pandas cannot hold the column 'day', a date: year 10000"):
        session.sql("SELECT * FROM t").to_pandas()


def test_nanoseconds_of_a_duration_are_an_error_of_queries_and_not_dropped(tmp_path: Path) -> None:
    session = write_and_connect(tmp_path, x=pa.array([1001], pa.duration("ns")))
    with pytest.raises(UnsupportedFeature, match=r"column 'x' holds a value that cannot be cast to duration\[us\]"):
        session.sql("SELECT x FROM t").to_arrow()


def test_a_relation_of_a_half_has_floats(tmp_path: Path) -> None:
    pq.write_table(pa.table({"h": COLUMNS["half"]}), tmp_path / "f.parquet")
    relation = tamis.open(tmp_path / "f.parquet").scan(columns=["h"]).to_duckdb()
    assert relation.fetchall() == relation.fetchall() == [(1.5,), (None,)]
