from __future__ import annotations

import copy
import operator
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from tamis import types
from tamis.errors import InvalidArgument, MisusedExpression, TamisError, TypeMismatch
from tamis.expr.builder import Expression, col, lit
from tamis.expr.nodes import FALSE, Call, Literal, Name
from tamis.expr.sql.parse import parse_sql

A, B = col("a"), col("b")


@pytest.mark.parametrize(
    ("built", "sql"),
    [
        (A == 5, "a = 5"),
        (A != 5, "a <> 5"),
        (A < 5, "a < 5"),
        (A <= 5, "a <= 5"),
        (A > 5, "a > 5"),
        (A >= 5, "a >= 5"),
        (operator.lt(5, A), "a > 5"),
        (A == B, "a = b"),
        ((A > 1) & (B < 2), "a > 1 AND b < 2"),
        ((A > 1) | (B < 2), "a > 1 OR b < 2"),
        (~(A > 1), "NOT (a > 1)"),
        (True & A, "TRUE AND a"),
        (False | A, "FALSE OR a"),
        (A & np.bool_(True), "a AND TRUE"),
        (A + 1, "a + 1"),
        (1 + A, "1 + a"),
        (A - 1, "a - 1"),
        (1 - A, "1 - a"),
        (A * 2, "a * 2"),
        (2 * A, "2 * a"),
        (A / 2, "a / 2"),
        (2 / A, "2 / a"),
        (A % 2, "a % 2"),
        (2 % A, "2 % a"),
        (-A, "-a"),
        (A.isin([1, 2]), "a IN (1, 2)"),
        (A.isin(1, 2), "a IN (1, 2)"),
        (A.isin(7), "a IN (7)"),
        (A.isin("xyz"), "a IN ('xyz')"),
        (A.isin(b"x"), "a IN (X'78')"),
        (A.isin(range(3)), "a IN (0, 1, 2)"),
        (A.isin(value for value in (1, None)), "a IN (1, NULL)"),
        (A.isin(pa.array([1, None])), "a IN (1, CAST(NULL AS BIGINT))"),
        (A.isin(pa.chunked_array([["x"], ["y"]]).dictionary_encode()), "a IN ('x', 'y')"),
        (A.isin(np.array([[1, 2], [3, 4]])), "a IN (1, 2, 3, 4)"),
        (A.isin(pd.Series([1.5])), "a IN (1.5D)"),
        (A.isin(B, 1), "a IN (b, 1)"),
        (A.isin(B), "a IN (b)"),
        (A.is_null(), "a IS NULL"),
        (A.is_not_null(), "a IS NOT NULL"),
        (A.startswith("x"), "startswith(a, 'x')"),
        (A.endswith("x"), "endswith(a, 'x')"),
        (A.contains("x"), "contains(a, 'x')"),
        (A.like("x%"), "a LIKE 'x%'"),
        (A.like("x!%", escape="!"), "a LIKE 'x!%' ESCAPE '!'"),
        (A.like("x", escape="\\"), "a LIKE 'x'"),
        (A.cast("LONG"), "CAST(a AS BIGINT)"),
        (A.cast("decimal(10, 2)"), "CAST(a AS DECIMAL(10,2))"),
        (A.cast(pa.timestamp("ms")), "CAST(a AS TIMESTAMP_MS)"),
        (A.eq_null_safe(5), "a <=> 5"),
        (A.eq_null_safe(None), "a <=> NULL"),
        (A.field("b").field("c.d"), "a.b.`c.d`"),
        (lit(5), "5"),
        (lit(5) == A, "5 = a"),
        (lit(None), "NULL"),
        (np.int64(5) < A, "a > 5"),
        (np.float64(0.5) + A, "0.5D + a"),
    ],
)  # fmt: skip
def test_builds_the_same_expression_as_sql(built: Expression, sql: str) -> None:
    assert built.to_sql() == sql
    assert built.node == parse_sql(sql)
    assert repr(built) == f"Expression<{sql}>"


def test_between_is_shown_as_it_was_written() -> None:
    built = A.between(1, 2)
    assert built.node == parse_sql("a BETWEEN 1 AND 2") == parse_sql(built.to_sql())
    assert built.to_sql() == "a >= 1 AND a <= 2"
    assert repr(~built) == "Expression<a NOT BETWEEN 1 AND 2>"


def test_isin_of_an_empty_list_is_false() -> None:
    assert A.isin([]).node == FALSE
    assert A.isin(set()).node == FALSE
    assert A.isin().node == FALSE


def test_nodes_are_accepted_as_operands() -> None:
    assert (Name(("b",)) == A).node == Call("=", (Name(("a",)), Name(("b",))))
    assert (A & Call("is_null", (Name(("b",)),))).to_sql() == "a AND b IS NULL"
    assert (Literal(5, pa.int8()) == A).to_sql() == "a = CAST(5 AS TINYINT)"


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("a", ("a",)),
        ("a.b.c", ("a", "b", "c")),
        ("`a.b`", ("a.b",)),
        ("`a.b`.c", ("a.b", "c")),
        ("a.`b ``c``.d`", ("a", "b `c`.d")),
        ("my col", ("my col",)),
        ("it's; --", ("it's; --",)),
        ('"a"', ('"a"',)),
        ("<b>&", ("<b>&",)),
    ],
)
def test_X10_col_splits_at_dots_outside_back_ticks(name: str, path: tuple[str, ...]) -> None:
    assert col(name).node == Name(path)
    assert parse_sql(col(name).to_sql()) == Name(path)


@pytest.mark.parametrize("name", ["", ".", "a.", ".a", "a..b", "`a", "a`", "a`b`", "`a`b", "``", 5, None])
def test_col_refuses_invalid_names(name: Any) -> None:
    with pytest.raises(InvalidArgument, match="name"):
        col(name)


@pytest.mark.parametrize(
    "misuse",
    [
        lambda: bool(A == 1),
        lambda: (A > 1) and (B > 1),
        lambda: (A > 1) or (B > 1),
        lambda: not A,
        lambda: 1 < A < 5,
        lambda: 5 in A,
        lambda: A in [B],
        lambda: list(A),
        lambda: (A > 1) & 5,
        lambda: 1 & (B > 1),
        lambda: (A > 1) | "x",
        lambda: A & None,
    ],
)
def test_python_logic_on_expressions_is_an_error_with_a_hint(misuse: Callable[[], object]) -> None:
    with pytest.raises(TypeError, match=r"&|isin|go through") as caught:
        misuse()
    assert isinstance(caught.value, MisusedExpression)
    assert isinstance(caught.value, TamisError)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("method", ["__eq__", "__ne__", "__lt__", "__ge__"])
def test_comparison_with_none_points_at_is_null(method: str) -> None:
    with pytest.raises(InvalidArgument, match=r"is_null\(\)"):
        getattr(A, method)(None)


def test_between_none_points_at_is_null() -> None:
    with pytest.raises(InvalidArgument, match=r"is_null\(\)"):
        A.between(None, 5)


@pytest.mark.parametrize(
    ("misuse", "error"),
    [
        (lambda: object() == A, TypeMismatch),
        (lambda: A == [1, 2], TypeMismatch),
        (lambda: A.isin([[1]]), TypeMismatch),
        (lambda: A.cast("foo"), TypeMismatch),
        (lambda: A.cast(pa.list_(pa.int8())), TypeMismatch),
        (lambda: A.cast(pa.large_string()), TypeMismatch),
        (lambda: A.like("x", escape="ab"), InvalidArgument),
        (lambda: (A + 1).field("b"), InvalidArgument),
        (lambda: A.field(""), InvalidArgument),
    ],
)
def test_wrong_arguments_are_clear_errors(misuse: Callable[[], object], error: type[TamisError]) -> None:
    with pytest.raises(error):
        misuse()


def test_the_operator_in_raises_with_a_hint_to_isin() -> None:
    with pytest.raises(MisusedExpression, match=r"a = 1 has no truth value: .*\.isin\(\[1, 2\]\) instead of in"):
        _ = A in [1, 2]
    with pytest.raises(MisusedExpression, match=r"\.isin\(values\)"):
        _ = 1 in A


def test_expressions_hash_by_identity_and_can_be_copied() -> None:
    first, second = A == 1, A == 1
    assert len({first, second, first}) == 2
    assert {first: "x"}[first] == "x"
    assert pickle.loads(pickle.dumps(first)).node == first.node
    assert copy.deepcopy(first).node == first.node


def test_X11_a_loop_of_ten_thousand_ors_nests_and_prints() -> None:
    built = A == 0
    for value in range(1, 10_001):
        built = built | (value == A)
    depth, node = 0, built.node
    while isinstance(node, Call) and node.function == "or":
        depth, node = depth + 1, node.args[0]
    assert depth == 10_000
    assert built.to_sql().endswith(" OR a = 9999) OR a = 10000")


def test_X11_a_hundred_thousand_values() -> None:
    node = A.isin(np.arange(100_000)).node
    assert isinstance(node, Call)
    assert len(node.args) == 100_001
    assert node.args[-1] == Literal(99_999, types.LONG)
