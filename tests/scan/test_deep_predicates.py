"""X11: predicates of thousands of levels, and lists of 100,000 values, through every level of a scan."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.tuning import BY_PAGES
from tamis import col, types
from tamis.expr.builder import Expression
from tamis.expr.nodes import Call, Expr, Literal

ROWS = 4_000
DEPTH = 200
FEW = 500

A = np.arange(ROWS)
B = np.random.default_rng(1).integers(0, 50, ROWS)
C = [f"k{number:03d}" for number in np.random.default_rng(2).integers(0, 300, ROWS)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("deep") / "f.parquet"
    pq.write_table(
        pa.table({"a": A, "b": B, "c": C}),
        path,
        row_group_size=1_000,
        write_page_index=True,
        max_rows_per_page=100,
        use_dictionary=["b", "c"],
        bloom_filter_options={"c": {"ndv": 300, "fpp": 1e-6}},
    )
    return path


def make_likely(level: int) -> Expression:
    return col("b") != 1_000 - level


def make_unlikely(level: int) -> Expression:
    """Return a predicate that no row matches and that bounds cannot exclude: its string is between others."""
    return col("c") == f"k{level % 300:03d}x"


def make_alternating(depth: int) -> Expr:
    found = col("a") < FEW
    for level in range(depth):
        found = (found & make_likely(level)) if level % 2 else (found | make_unlikely(level))
    return found.node


def make_negated(depth: int) -> Expr:
    found = col("a") < FEW
    for level in range(depth):
        found = ~(found & make_likely(level)) if level % 2 else ~(found | make_unlikely(level))
    return found.node


def make_cases(depth: int) -> Expr:
    found: Expr = (col("a") < FEW).node
    for level in range(depth):
        if level % 2:
            found = Call("case", (make_likely(level).node, found, Literal(True, types.BOOLEAN)))
        else:
            found = Call("case", (make_unlikely(level).node, Literal(True, types.BOOLEAN), found))
    return found


@pytest.mark.parametrize("make", [make_alternating, make_negated, make_cases])
def test_X11_a_deep_predicate_of_three_columns_passes_all_levels(file: Path, make: Callable[[int], Expr]) -> None:
    gone = [1_000 - level for level in range(1, DEPTH, 2)]
    assert not np.isin(B, gone).any()
    scan = tamis.open(file, tuning=BY_PAGES).scan(make(DEPTH))
    assert scan.to_arrow()["a"].to_pylist() == list(range(FEW))
    assert scan.count() == FEW
    levels = {level["level"]: level for level in scan.plan().report.to_dict()["levels"]}
    if make is not make_cases:
        # A CASE cannot be decided by bounds, only by rows.
        assert (levels["bloom"]["total"], levels["bloom"]["kept"]) == (4, 1)
        assert (levels["dictionary"]["total"], levels["dictionary"]["kept"]) == (10, 5)
    assert tamis.open(file, tuning=BY_PAGES).scan(make(DEPTH), levels=()).count() == FEW


def test_X11_lists_of_100_000_values_pass_all_levels(file: Path) -> None:
    numbers = range(0, 300_000, 3)
    texts = [*(f"k{number:06d}" for number in range(100_000)), "k007"]
    scan = tamis.open(file, tuning=BY_PAGES).scan(col("a").isin(numbers) & ~col("c").isin(texts) & (col("b") != 7))
    expected = [row for row in range(0, ROWS, 3) if B[row] != 7 and C[row] != "k007"]
    assert scan.to_arrow()["a"].to_pylist() == expected
