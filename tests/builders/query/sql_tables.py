"""A few tables in three formats for tests of SQL, and a DuckDB connection with the same rows."""

from __future__ import annotations

import math
from collections import Counter
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

import tamis
from tamis.tuning import DEFAULT_TUNING, Tuning


def make_orders() -> pa.Table:
    count = 240
    numbers = range(count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "customer": pa.array([None if n % 11 == 0 else n % 9 for n in numbers], pa.int32()),
            "day": pa.array([date(2024, 1, 1) + timedelta(days=n // 10) for n in numbers]),
            "amount": pa.array([None if n % 17 == 0 else n * 1.25 for n in numbers], pa.float64()),
            "price": pa.array([Decimal(n) / 4 for n in numbers], pa.decimal128(12, 2)),
            "note": pa.array([None if n % 13 == 0 else f"note {n % 7}" for n in numbers]),
            "created_at": pa.array([datetime(2024, 1, 1) + timedelta(hours=n) for n in numbers], pa.timestamp("us")),
            "region": pa.array([("eu", "us", "asia")[n % 3] for n in numbers]),
        }
    )


def make_customers() -> pa.Table:
    return pa.table(
        {
            "Id": pa.array(range(12), pa.int32()),
            "name": pa.array([f"customer {n}" for n in range(12)]),
            "region": pa.array([("eu", "us", None)[n % 3] for n in range(12)]),
            "address": pa.array([{"city": f"city {n % 4}", "zip": n} for n in range(12)]),
            "tags": pa.array([[f"t{n % 3}", "all"] if n % 4 else [] for n in range(12)]),
        }
    )


def make_events() -> pa.Table:
    values = [1.0, math.nan, -0.0, 0.0, None, math.inf, -math.inf, 2.5]
    return pa.table(
        {
            "order_id": pa.array([n * 7 % 240 for n in range(80)], pa.int64()),
            "kind": pa.array([("click", "view", "buy")[n % 3] for n in range(80)]),
            "value": pa.array([values[n % 8] for n in range(80)], pa.float64()),
        }
    )


def write_tables(folder: Path) -> dict[str, Path]:
    """Write `orders` as a Hive table, `customers` as a Delta table, `events` as one Parquet file."""
    paths = {name: folder / name for name in ("orders", "customers", "events")}
    rows = make_orders()
    for region in ("eu", "us", "asia"):
        own = rows.filter(pa.compute.equal(rows["region"], region)).drop_columns(["region"])
        for part in range(2):
            path = paths["orders"] / f"region={region}"
            path.mkdir(parents=True, exist_ok=True)
            half = own.slice(part * 40, 40)
            pq.write_table(half, path / f"part-{part}.parquet", row_group_size=16)
    deltalake.write_deltalake(str(paths["customers"]), make_customers())
    pq.write_table(make_events(), paths["events"].with_suffix(".parquet"), row_group_size=20)
    paths["events"] = paths["events"].with_suffix(".parquet")
    return paths


def open_session(paths: dict[str, Path], tuning: Tuning = DEFAULT_TUNING) -> tamis.Session:
    connection = tamis.connect(tuning=tuning)
    for name, path in paths.items():
        connection.register(name, connection.open(path))
    return connection


def open_duckdb() -> duckdb.DuckDBPyConnection:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows in (("orders", make_orders()), ("customers", make_customers()), ("events", make_events())):
        connection.register(f"{name}_rows", rows)
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_rows")
    return connection


def to_plain(value: Any) -> Any:
    """Return a comparable value: NaN equals itself, and floats are rounded, as sums depend on the order."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case float() if math.isfinite(value):
            return float(f"{value:.10g}") + 0.0
        case Decimal():
            return float(f"{float(value):.10g}")
        case dict():
            return tuple((key, to_plain(each)) for key, each in value.items())
        case list() | tuple():
            return tuple(map(to_plain, value))
        case _:
            return value


def list_rows(table: pa.Table) -> list[tuple[Any, ...]]:
    columns = [column.to_pylist() for column in table.columns]
    return [tuple(to_plain(value) for value in row) for row in zip(*columns, strict=True)]


def has_same_rows(one: pa.Table, other: pa.Table, *, ordered: bool = False) -> bool:
    """Return whether two results have the same rows, in the same order if `ordered`."""
    mine, theirs = list_rows(one), list_rows(other)
    return mine == theirs if ordered else Counter(mine) == Counter(theirs)


def has_types_of_duckdb(found: pa.Table, expected: pa.Table) -> bool:
    """Return whether a result has DuckDB's types, except that sums have Spark's: a bigint, or fewer digits."""

    def is_same(own: pa.DataType, theirs: pa.DataType) -> bool:
        if not pa.types.is_decimal(theirs) or theirs.precision < 38:
            return bool(own == theirs)
        return bool(own == pa.int64() if theirs.scale == 0 else pa.types.is_decimal(own) and own.scale == theirs.scale)

    pairs = zip(found.schema.types, expected.schema.types, strict=True)
    return all(is_same(own, theirs) for own, theirs in pairs)
