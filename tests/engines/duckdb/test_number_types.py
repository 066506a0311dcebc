"""Operators and functions of numbers of several types have the values and types of Spark 4.2 in ANSI mode.

DuckDB has other types for a float beside a decimal, for a literal beside a tinyint and for a quotient of decimals.
Each expression runs in a plain query, beside a window and under a lateral view.
"""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import TamisError

LARGEST = 2**63 - 1
ROWS = pa.table(
    {
        "id": pa.array([0, 1, 2], pa.int32()),
        "f": pa.array([0.1, 0.5, 16_777_216], pa.float32()),
        "g": pa.array([None, 0.5, 0.1], pa.float32()),
        "c": pa.array([Decimal("0.10"), Decimal("0.50"), Decimal("99.99")], pa.decimal128(5, 2)),
        "m": pa.array([Decimal("8.750"), Decimal("1.250"), None], pa.decimal128(12, 3)),
        "w": pa.array([Decimal("99999999.99"), Decimal("1.10"), Decimal("50.85")], pa.decimal128(10, 2)),
        "e": pa.array([Decimal("1.5"), Decimal("2.123456789012345678"), None], pa.decimal128(38, 18)),
        "b": [True, False, None],
        "i": pa.array([1, 2, 16_777_217], pa.int32()),
        "s": pa.array([32_767, 1, 2], pa.int16()),
        "t": pa.array([99, 1, 2], pa.int8()),
        "l": pa.array([LARGEST, -7, 2**53 + 1], pa.int64()),
        "u": pa.array([4_000_000_000, 1, None], pa.uint32()),
        "k": ["a", "b", "a"],
    }
)
SINGLE = 0.10000000149011612
"""The 32-bit float that is nearest to 0.1."""

EXPRESSIONS: dict[str, Sequence[Any]] = {
    # --- A float is rounded by the decimal digits of the double that it is
    "round(CAST(1.005 AS FLOAT), 2)": (1.0, 1.0, 1.0),
    "bround(CAST(2.675 AS FLOAT), 2)": (2.6700000762939453,) * 3,
    "round(CAST(l AS DOUBLE), -17)": (9.2e18, 0.0, 0.0),
    # --- A float beside another number is a double
    "f + i": (1.1000000014901161, 2.5, 33_554_433.0),
    "f + 1": (1.1000000014901161, 1.5, 16_777_217.0),
    "f + 0.1": (0.20000000149011612, 0.6, 16_777_216.1),
    "f - c": (1.4901161138336505e-09, 0.0, 16_777_116.01),
    "f / 3": (0.033333333830038704, 0.16666666666666666, 5_592_405.333333333),
    "f / f": (1.0, 1.0, 1.0),
    "f * f": (0.010000000707805157, 0.25, 281_474_976_710_656.0),
    "try_add(f, 1)": (1.1000000014901161, 1.5, 16_777_217.0),
    "try_divide(f, 3)": (0.033333333830038704, 0.16666666666666666, 5_592_405.333333333),
    "f = 0.1": (False, False, False),
    "f = c": (False, True, False),
    "f IN (0.1, 0.5)": (False, True, False),
    "f <=> 0.1": (False, False, False),
    "CAST(0.1 AS FLOAT) = 0.1": (False, False, False),
    "CAST(0.1 AS FLOAT) IN (0.1)": (False, False, False),
    "CAST(0.1 AS FLOAT) BETWEEN 0.05 AND 0.1": (False, False, False),
    "f BETWEEN 0.1 AND 1": (True, True, False),
    "0.1 BETWEEN f AND 1": (False, False, False),
    "nullif(f, 0.1)": (SINGLE, 0.5, 16_777_216.0),
    "decode(f, 0.1, 1)": (None, None, None),
    "coalesce(g, 0.1)": (0.1, 0.5, SINGLE),
    "least(g, 0.1)": (0.1, 0.1, 0.1),
    "if(b, f, 0.1)": (SINGLE, 0.1, 0.1),
    "CASE WHEN b THEN f ELSE 0.1 END": (SINGLE, 0.1, 0.1),
    "CASE f WHEN 0.1 THEN 1 ELSE 2 END": (2, 2, 2),
    "array(f, 0.1)": ([SINGLE, 0.1], [0.5, 0.1], [16_777_216.0, 0.1]),
    # --- A decimal or a bigint and a double are compared as doubles
    "c = 1e-1": (True, False, False),
    "c <= 99.99D": (True, True, True),
    "c IN (0.1D, 0.5D)": (True, True, False),
    "c BETWEEN 0.1D AND 0.5D": (True, True, False),
    "c <> 0.1D": (False, True, True),
    "c <=> 0.1D": (True, False, False),
    "CASE c WHEN 1e-1 THEN 'y' ELSE 'n' END": ("y", "n", "n"),
    "l = 9223372036854775807E0": (True, False, False),
    "l = 9007199254740992E0": (False, False, True),
    "l > 9007199254740992E0": (True, False, False),
    # --- A literal keeps its own type
    "i * 200L": (200, 400, 3_355_443_400),
    "i * CAST(200 AS BIGINT)": (200, 400, 3_355_443_400),
    "i + 2147483646L": (2_147_483_647, 2_147_483_648, 2_164_260_863),
    "s * 2": (65_534, 2, 4),
    "2 * s": (65_534, 2, 4),
    "s + 1": (32_768, 2, 3),
    "s * 3000000000": (98_301_000_000_000, 3_000_000_000, 6_000_000_000),
    "t + 100": (199, 101, 102),
    "try_multiply(s, 2)": (65_534, 2, 4),
    "u * 2": (8_000_000_000, 2, None),
    "u - 2": (3_999_999_998, -1, None),
    "-u": (-4_000_000_000, -1, None),
    # --- Quotients and products of decimals have Spark's digits
    "c / 3": (0.033333, 0.166667, 33.33),
    "m / 3": (2.916667, 0.416667, None),
    "m / 0.1": (87.5, 12.5, None),
    "try_divide(m, 3)": (2.916667, 0.416667, None),
    "m * 1.23456789012345": (Decimal("10.80246903858018750"), Decimal("1.54320986265431250"), None),
    "m * 1.2345678901234567890": (Decimal("10.80246903858024690375"), Decimal("1.54320986265432098625"), None),
    "w * w": (Decimal("9999999998000000.0001"), Decimal("1.2100"), Decimal("2585.7225")),
    "w * w * w > 0": (True, True, True),
    "l div 2": (4_611_686_018_427_387_903, -3, 4_503_599_627_370_496),
    "c div 3": (0, 0, 33),
}
CONTEXTS = {
    "plain": "SELECT {} AS v FROM n ORDER BY id",
    "beside a window": "SELECT {} AS v, row_number() OVER (ORDER BY id) AS r FROM n ORDER BY id",
    "lateral view": "SELECT {} AS v FROM n LATERAL VIEW explode(array(1)) AS z ORDER BY id",
}


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> tamis.Session:
    path: Path = tmp_path_factory.mktemp("numbers") / "n.parquet"
    pq.write_table(ROWS, path)
    return tamis.connect().register("n", tamis.open(path))


def read_values(session: tamis.Session, query: str, column: int = 0) -> list[Any]:
    found: list[Any] = session.sql(query).to_arrow().column(column).to_pylist()
    return found


@pytest.mark.parametrize("context", CONTEXTS)
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_Q5_numbers_of_several_types(session: tamis.Session, expression: str, context: str) -> None:
    assert read_values(session, CONTEXTS[context].format(expression)) == list(EXPRESSIONS[expression])


GROUPED: dict[str, Any] = {
    "sum(w) / count(*)": 33_333_350.646666666666666667,
    "sum(w) / sum(id)": 33_333_350.646666666666666667,
    "sum(CASE WHEN k = 'b' THEN w ELSE 0 END) / sum(w)": 1.10 / 100_000_051.94,
    "100.0 * sum(CASE WHEN k = 'b' THEN w ELSE 0 END) / sum(w)": 0.000001099999,
    "max(f * i)": 281_474_993_487_872.0,
    "sum(f + 0.1)": 16_777_216.900000002,
    "sum(s * 2)": 65_540,
    "sum(w) = 100000051.94E0": True,
    "sum(w * w)": Decimal("9999999998002586.9326"),
}


@pytest.mark.parametrize("expression", GROUPED)
def test_Q5_groups_of_numbers(session: tamis.Session, expression: str) -> None:
    (found,) = read_values(session, f"SELECT {expression} FROM n")
    assert found == (pytest.approx(GROUPED[expression], abs=1e-15) if isinstance(found, float) else GROUPED[expression])


def test_Q5_a_product_of_more_than_38_digits_is_rounded(session: tamis.Session) -> None:
    assert read_values(session, "SELECT e * e FROM n ORDER BY id") == [2.25, 4.509069, None]


@pytest.mark.parametrize(
    ("condition", "ids"),
    [
        ("f / 3 = 0.5 / 3", []),  # a decimal of six digits, and a double
        ("f + 0.1 = 0.6", [1]),
        ("s * 2 > 65000", [0]),
        ("c = 1e-1", [0]),
        ("l div 2 = 4611686018427387903", [0]),
        ("l IN (9223372036854775807E0, -7)", [0, 1]),
        ("c = '0.10000000000000000001'", [0]),
    ],
)
def test_Q5_conditions_in_scans_and_queries(session: tamis.Session, condition: str, ids: list[int]) -> None:
    assert read_values(session, f"SELECT id FROM n WHERE {condition} ORDER BY id") == ids
    assert read_values(session, f"SELECT id, {condition} AS v FROM n ORDER BY id", 1) == [
        each in ids for each in range(3)
    ]


@pytest.mark.parametrize("expression", ["f div 3", "CAST(i AS DOUBLE) div 3"])
def test_div_of_floats_is_rejected(session: tamis.Session, expression: str) -> None:
    with pytest.raises(TamisError, match="div divides whole numbers and decimals"):
        session.sql(f"SELECT {expression} FROM n").to_arrow()
