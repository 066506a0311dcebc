"""A table of values that are hard to compare, and random conditions on it in DuckDB's SQL."""

from __future__ import annotations

import math
import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

ROWS = pa.table({
    "n": pa.array([0, 1, -1, 5, 7, None, 2**53, 2**53 + 1, -(2**63), 2**63 - 1, 300, 10], pa.int64()),
    "small": pa.array([0, 1, -1, 5, 7, None, 127, -128, 3, 2, 100, 10], pa.int8()),
    "x": pa.array([0.0, -0.0, math.nan, math.inf, -math.inf, None, 0.1, 0.5, 1.0, 2.5, 1e300, 5.0], pa.float64()),
    "f": pa.array([0.0, -0.0, math.nan, math.inf, -math.inf, None, 0.1, 0.5, 1.0, 2.5, 16777216.0, 5.0], pa.float32()),
    "d": pa.array(
        [Decimal(text) if text else None for text in
         ("0.00", "0.10", "-1.50", "5.00", "7.25", None, "99.99", "0.01", "2.50", "1.00", "10.00", "5.50")],
        pa.decimal128(10, 2),
    ),
    "s": pa.array(["", "a", "A", "10", "5", None, "ab", "a%b", "a_b", "a\\b", "ñandú", "é"], pa.string()),
    "b": pa.array([True, False, None] * 4, pa.bool_()),
    "day": pa.array(
        [date(2024, 1, 1), date(1969, 12, 31), date(1, 1, 1), date(9999, 12, 31), date(2024, 2, 29), None] * 2,
        pa.date32(),
    ),
    "ts": pa.array(
        [datetime(2024, 1, 1), datetime(2024, 1, 1, 12, 30), datetime(1969, 12, 31, 23, 59, 59, 999999), None] * 3,
        pa.timestamp("us"),
    ),
    "tz": pa.array(
        [datetime(2024, 1, 1, tzinfo=UTC), datetime(2024, 1, 1, 12, 30, tzinfo=UTC), None] * 4,
        pa.timestamp("us", "UTC"),
    ),
})  # fmt: skip

NUMBERS = ("0", "1", "-1", "5", "7", "0.1", "0.5", "2.5", "5.00", "300", "9007199254740993", "9223372036854775807",
           "99999999999999999999", "1e0", "0.10000000000000000555", "5.005", "NULL")  # fmt: skip
TEXTS = ("''", "'a'", "'A'", "'5'", "'10'", "'ab'", "'ñandú'", "'é'", "NULL", "'zz'")
PATTERNS = ("'a%'", "'%b'", "'a_b'", "'a\\%b'", "'a\\b'", "''", "'%'", "'_'", "'é%'")
DAYS = ("'2024-01-01'", "DATE '2024-01-01'", "DATE '1969-12-31'", "'0001-01-01'", "DATE '2024-02-29'", "NULL",
        "TIMESTAMP '2024-01-01 12:00:00'")  # fmt: skip
TIMES = ("'2024-01-01'", "'2024-01-01 12:30:00'", "TIMESTAMP '2024-01-01 12:30:00'", "DATE '2024-01-01'", "NULL",
         "'1969-12-31 23:59:59.999999'", "TIMESTAMPTZ '2024-01-01 12:30:00'")  # fmt: skip

CONSTANTS = {"n": NUMBERS, "small": NUMBERS[:9], "x": NUMBERS, "f": NUMBERS, "d": NUMBERS, "s": TEXTS, "day": DAYS,
             "ts": TIMES, "tz": TIMES}  # fmt: skip
SIGNS = ("=", "<>", "<", "<=", ">", ">=", "IS DISTINCT FROM", "IS NOT DISTINCT FROM")


def write_rows(path: Path) -> Path:
    """Write a file with three rows in each row group, so that conditions skip some."""
    pq.write_table(ROWS, path, row_group_size=3)
    return path


def draw_condition(chance: random.Random, depth: int = 2) -> str:
    """Return a condition for DuckDB, mostly of parts that scans can push down."""
    kind = chance.randrange(12)
    if depth and kind < 3:
        word = chance.choice((" AND ", " OR "))
        return "(" + word.join(draw_condition(chance, depth - 1) for _ in range(2)) + ")"
    if depth and kind == 3:
        return f"NOT ({draw_condition(chance, depth - 1)})"
    if kind == 4:
        return f"{chance.choice(ROWS.column_names)} IS {chance.choice(('', 'NOT '))}NULL"
    if kind == 5:
        return chance.choice(("b", "b = true", "b <> false", "NOT b", "x + 0 > 1", "lower(s) = 'a'", "length(s) < 2"))
    if kind == 6:
        return f"s {chance.choice(('', 'NOT '))}LIKE {chance.choice(PATTERNS)}"
    name = chance.choice(list(CONSTANTS))
    constants = CONSTANTS[name]
    if kind == 7:
        low, high = chance.choice(constants), chance.choice(constants)
        return f"{name} {chance.choice(('', 'NOT '))}BETWEEN {low} AND {high}"
    if kind == 8:
        items = ", ".join(chance.choice(constants) for _ in range(3))
        return f"{name} {chance.choice(('', 'NOT '))}IN ({items})"
    sides = [name, chance.choice(SIGNS), chance.choice(constants)]
    return " ".join(sides if chance.randrange(4) else [sides[2], sides[1], sides[0]])
