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
from tamis.expr.evaluate import Evaluator
from tamis.expr.functions.table import type_of
from tamis.expr.nodes import Call, Column, Expr, Literal, Name, Unbound, find_columns, replace_columns, walk
from tamis.expr.sql.parse import parse_sql
from tamis.skipping.rewrite import rewrite


def pickle_and_load(value: Expr | Expression) -> Expr | Expression:
    return pickle.loads(pickle.dumps(value))


@pytest.mark.parametrize("again", [pickle_and_load, copy.copy, copy.deepcopy], ids=["pickle", "copy", "deepcopy"])
@pytest.mark.parametrize(
    "node",
    [
        Column(("a", "b.c"), pa.int32(), position=7, exact=True),
        Column(("a",), None),
        Name(("a", "b.c"), position=7, exact=True),
        Call("=", (Name(("a",)), Column(("a",), pa.int32()))),
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
    assert [(leaf, leaf.position, leaf.exact) for leaf in find_columns(found)] == [
        (leaf, leaf.position, leaf.exact) for leaf in find_columns(node)
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
    shared: Unbound = Name(("x",))
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
    def double(levels: int) -> Unbound:
        found: Unbound = Name(("a",))
        for _ in range(levels):
            found = Call("and", (found, found))
        return found

    assert double(200) == double(200)
    assert double(200) != double(201)


# --- Names and columns ------------------------------------------------------------------------------------------------


INTEGER, TEXT = Column(("a",), pa.int64()), Column(("a",), pa.string())


def test_columns_of_one_path_and_different_types_are_different() -> None:
    assert Column(("a",), pa.int64(), position=5, exact=True) == INTEGER
    assert len({INTEGER, TEXT, Column(("a",), None), Name(("a",))}) == 4
    assert Call("is_null", (INTEGER,)) != Call("is_null", (TEXT,))
    assert Call("is_null", (INTEGER,)) != Call("is_null", (Name(("a",)),))
    assert find_columns(Call("=", (INTEGER, TEXT))) == [INTEGER, TEXT]


def test_names_are_equal_by_their_path() -> None:
    assert Name(("a", "b")) == Name(("a", "b"), position=5, exact=True)
    assert Name(("a", "b")) != Name(("a.b",))


def test_what_is_computed_for_one_type_is_not_used_for_another() -> None:
    plus = {column: Call("+", (column, Literal(1, types.LONG))) for column in (INTEGER, Column(("a",), types.DOUBLE))}
    assert [type_of(each) for each in plus.values()] == [types.LONG, types.DOUBLE]
    values = {Call("is_null", (column,)): column.type for column in (INTEGER, TEXT)}
    assert values[Call("is_null", (TEXT,))] == pa.string()


@pytest.mark.parametrize("where", ["a", "a > 5", "a + 1 > 5 OR a IN (1, 2)", "upper(b) = 'X'", "a[0] = 1"])
def test_an_unbound_expression_is_refused_where_a_bound_one_is_needed(where: str) -> None:
    unbound = parse_sql(where)
    batch = pa.record_batch({"a": [1], "b": ["x"]})
    with pytest.raises(TypeError, match=r"expected a bound expression, found the unbound Name\(path=\('[ab]',\)\)"):
        Evaluator(unbound)(batch)
    with pytest.raises(TypeError, match="expected a bound expression"):
        rewrite(unbound)


def test_columns_are_replaced_by_other_expressions() -> None:
    found = replace_columns(parse_sql("a + 1 > b AND c IN (1, 2)"), lambda name: Column(name.path, types.LONG))
    assert find_columns(found) == [Column((name,), types.LONG) for name in "abc"]
    assert replace_columns(found, lambda column: column) is found
