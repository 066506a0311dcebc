"""Nodes as values: copies and pickles of any depth are equal, and shared nodes stay shared."""

from __future__ import annotations

import copy
import math
import pickle
import subprocess
import sys
from decimal import Decimal

import pyarrow as pa
import pytest

from tamis import col, types
from tamis.expr.builder import Expression
from tamis.expr.nodes import Call, Column, Expr, Literal, walk
from tamis.expr.sql.parse import parse_sql


def pickle_and_load(value: Expr | Expression) -> Expr | Expression:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("again", [pickle_and_load, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize(
    "node",
    [
        Column(("a", "b.c"), position=7, type=pa.int32()),
        Literal(math.nan, types.DOUBLE),
        Literal(Decimal("1.50"), pa.decimal128(5, 2)),
        Literal((1, 2, 3), types.INTERVAL),
        parse_sql("a.b IN (1, 2, NULL) AND NOT (ts >= TIMESTAMP '2024-01-01 00:00:00' OR s LIKE 'a%')"),
        Call("now", ()),
    ],
)
def test_a_copy_is_equal(again, node):
    found = again(node)
    assert found == node
    assert hash(found) == hash(node)
    assert [(column.position, column.type) for column in walk(found) if isinstance(column, Column)] == [
        (column.position, column.type) for column in walk(node) if isinstance(column, Column)
    ]


@pytest.mark.parametrize("again", [pickle_and_load, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
def test_X11_an_expression_of_ten_thousand_levels_is_copied(again):
    deep = col("x") > 0
    for level in range(5_000):
        deep = (deep & (col("x") != level)) | col("y").is_null()
    found = again(deep)
    assert isinstance(found, Expression)
    assert found.node == deep.node


@pytest.mark.parametrize("again", [pickle_and_load, copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_shared_node_stays_shared(again):
    shared: Expr = Column(("x",))
    for _ in range(60):
        # Without sharing, this would be 2^60 columns.
        shared = Call("+", (shared, shared))
    assert len(list(walk(again(shared)))) == 61


def test_a_pickle_is_equal_in_another_process(tmp_path):
    node = parse_sql("a = 'text' AND b IN ('x', 'y')")
    path = tmp_path / "node.pickle"
    path.write_bytes(pickle.dumps(node))
    program = (
        "import pathlib, pickle, sys\n"
        "from tamis.expr.sql.parse import parse_sql\n"
        "node = pickle.loads(pathlib.Path(sys.argv[1]).read_bytes())\n"
        "assert node in {parse_sql(sys.argv[2])}"
    )
    subprocess.run([sys.executable, "-c", program, str(path), "a = 'text' AND b IN ('x', 'y')"], check=True)


def test_X11_calls_that_share_their_arguments_are_compared_in_time() -> None:
    def double(levels: int) -> Expr:
        found: Expr = Column(("a",))
        for _ in range(levels):
            found = Call("and", (found, found))
        return found

    assert double(200) == double(200)
    assert double(200) != double(201)
