"""A random expression has the same value in every context: alone, beside a window, under a lateral view, in a CASE, in
a filter of a query and of a scan, and without FROM, where constants replace the columns.

A context may refuse an expression by an error of Tamis. Alone and beside a window it succeeds or fails alike.
"""

from __future__ import annotations

import datetime
import math
import re
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from tamis.errors import TamisError

_UTC = datetime.UTC

ROWS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int32()),
        "i": pa.array([5, -7, None], pa.int32()),
        "l": pa.array([12345678901, -3, 17], pa.int64()),
        "d": pa.array([1.5, -2.25, None], pa.float64()),
        "m": pa.array([Decimal("12.34"), Decimal("-0.05"), None], pa.decimal128(8, 2)),
        "s": pa.array(["Hello", "", None]),
        "b": pa.array([True, False, None]),
        "dt": pa.array([datetime.date(2024, 2, 29), datetime.date(1969, 12, 31), None]),
        "ts": pa.array(
            [
                datetime.datetime(2024, 2, 29, 12, 34, 56, tzinfo=_UTC),
                datetime.datetime(1999, 12, 31, tzinfo=_UTC),
                None,
            ],
            pa.timestamp("us", "UTC"),
        ),
        "xs": pa.array([[3, 1, None], [2], None], pa.list_(pa.int32())),
        "mi": pa.array([[(1, "one"), (5, "five")], [(0, "zero")], None], pa.map_(pa.int32(), pa.string())),
        "mt": pa.array([[("Hello", 1)], [("", 2)], None], pa.map_(pa.string(), pa.int32())),
    }
)

LITERALS = {
    "id": ["CAST(1 AS INT)", "CAST(2 AS INT)", "CAST(3 AS INT)"],
    "i": ["CAST(5 AS INT)", "CAST(-7 AS INT)", "CAST(NULL AS INT)"],
    "l": ["12345678901L", "-3L", "17L"],
    "d": ["1.5D", "-2.25D", "CAST(NULL AS DOUBLE)"],
    "m": ["CAST(12.34 AS DECIMAL(8, 2))", "CAST(-0.05 AS DECIMAL(8, 2))", "CAST(NULL AS DECIMAL(8, 2))"],
    "s": ["'Hello'", "''", "CAST(NULL AS STRING)"],
    "b": ["true", "false", "CAST(NULL AS BOOLEAN)"],
    "dt": ["DATE '2024-02-29'", "DATE '1969-12-31'", "CAST(NULL AS DATE)"],
    "ts": [
        "TIMESTAMP '2024-02-29 12:34:56'",
        "TIMESTAMP '1999-12-31 00:00:00'",
        "CAST(NULL AS TIMESTAMP)",
    ],
    "xs": ["array(3, 1, NULL)", "array(2)", "CAST(NULL AS ARRAY<INT>)"],
    "mi": ["map(1, 'one', 5, 'five')", "map(0, 'zero')", "CAST(NULL AS MAP<INT, STRING>)"],
    "mt": ["map('Hello', 1)", "map('', 2)", "CAST(NULL AS MAP<STRING, INT>)"],
}
"""The constants that replace a column without FROM, one for each row."""

_LEAVES = {
    "int": ["{i}", "{id}", "{i}", "3", "0", "CAST(NULL AS INT)"],
    "long": ["{l}", "7L"],
    "double": ["{d}", "0.5D"],
    "decimal": ["{m}", "1.25"],
    "text": ["{s}", "'ab'", "'a,b'"],
    "bool": ["{b}", "true"],
    "date": ["{dt}", "DATE '2023-12-31'"],
    "time": ["{ts}", "TIMESTAMP '2020-01-31 10:00:00'"],
    "list": ["{xs}", "array(1, 2, 3)"],
    "map_of_ints": ["{mi}", "map(1, 'x')"],
    "map_of_texts": ["{mt}", "map('ab', 4)"],
}

_RULES = {
    "int": [
        "({int} + {int})", "({int} - {int})", "(- {int})", "abs({int})", "CASE WHEN {bool} THEN {int} ELSE {int} END",
        "coalesce({int}, {int})", "length({text})", "year({date})", "month({time})", "day({date})", "hour({time})",
        "datediff({date}, {date})", "{map_of_texts}[{text}]", "get({list}, {int})", "size({list})",
        "element_at({map_of_texts}, {text})", "CAST({bool} AS INT)", "(8 | {int} & 3)", "nullif({int}, {int})",
        "greatest({int}, {int})", "aggregate({list}, 0, (a, x) -> a + coalesce(x, 1), a -> a + 1)",
        "array_max({list})", "try_element_at({list}, 2)", "dayofweek({date})",
    ],
    "long": ["({long} + {int})", "({int} div 2)", "CAST({int} AS BIGINT)", "array_position({list}, 1)"],
    "double": ["({double} + {int})", "({int} / 4)", "CAST({int} AS DOUBLE)", "(- {double})", "abs({double})"],
    "decimal": ["({decimal} + {decimal})", "({decimal} * {int})", "CAST({int} AS DECIMAL(10, 2))"],
    "text": [
        "concat({text}, {text})", "upper({text})", "CAST({int} AS STRING)", "CAST({date} AS STRING)",
        "substring({text}, {int}, 2)", "{map_of_ints}[{int}]", "coalesce({text}, 'z')", "CAST({double} AS STRING)",
        "CASE WHEN {bool} THEN {text} END", "array_join({list}, '-', 'n')", "({text} || {int})", "trim({text})",
        "element_at({map_of_ints}, {int})", "reverse({text})", "CAST({decimal} AS STRING)", "CAST({time} AS STRING)",
    ],
    "bool": [
        "({int} > {int})", "({text} = {text})", "({date} <= {date})", "({bool} AND {bool})", "(NOT {bool})",
        "({int} IS NULL)", "({int} IN (1, 5, {int}))", "({text} LIKE '%l%')", "array_contains({list}, 3)",
        "exists({list}, x -> x > {int})", "({int} BETWEEN 0 AND 9)", "({int} <=> {int})", "({double} < {int})",
        "map_contains_key({map_of_ints}, 1)", "({time} < {time})", "({decimal} >= {int})",
    ],
    "date": [
        "date_add({date}, 3)", "({date} + 1)", "add_months({date}, 1)", "last_day({date})", "CAST({time} AS DATE)",
        "trunc({date}, 'month')",
    ],
    "time": ["({time} + INTERVAL 1 HOUR)", "({time} - INTERVAL 2 DAYS)", "date_trunc('day', {time})"],
    "list": [
        "array({int}, {int})", "array_sort({list})", "transform({list}, (x, n) -> x + n)", "slice({list}, 1, 2)",
        "filter({list}, x -> x > {int})", "array_distinct({list})", "concat({list}, {list})",
        "array_sort({list}, (l, r) -> coalesce(r, 0) - coalesce(l, 0))", "zip_with({list}, {list}, (p, q) -> p + q)",
        "sort_array({list}, false)", "array_except({list}, {list})", "map_values({map_of_texts})",
    ],
    "map_of_ints": ["map({id}, {text})", "map_filter({map_of_ints}, (k, v) -> k > 0)"],
    "map_of_texts": ["map('k', {int})", "transform_values({map_of_texts}, (k, v) -> v + 1)"],
}  # fmt: skip

_HOLE = re.compile(r"\{(\w+)\}")


@st.composite
def expressions(draw: st.DrawFn, kind: str | None = None, depth: int = 3) -> str:
    """The text of an expression, in which `{i}` is the column i."""
    found = kind or draw(st.sampled_from(sorted(_RULES)))
    if depth == 0 or (kind is not None and draw(st.integers(0, 3)) == 0):
        return draw(st.sampled_from(_LEAVES[found]))
    rule = draw(st.sampled_from(_RULES[found]))
    return _HOLE.sub(lambda hole: draw(expressions(hole[1], depth - 1)) if hole[1] in _RULES else hole[0], rule)


def _to_plain(value: Any) -> Any:
    """Return a value for the comparison of two contexts. Numbers of different types can be equal."""
    match value:
        case float() if math.isnan(value):
            return "NaN"
        case list():
            return [_to_plain(each) for each in value]
        case tuple():
            return tuple(map(_to_plain, value))
        case _:
            return value


@pytest.fixture(scope="module")
def session():
    found = tamis.connect()
    found.register("t", ROWS)
    return found


def _query_values(session: Any, query: str) -> list[Any] | None:
    """Return the values of a query, or None if it is refused."""
    try:
        return [_to_plain(value) for value in session.sql(query).to_arrow()["v"].to_pylist()]
    except TamisError:
        return None


@settings(max_examples=max(1, settings().max_examples // 2))
@given(template=expressions())
def test_an_expression_has_one_value_in_every_context(session, tmp_path_factory, template):
    _check(session, tmp_path_factory.mktemp("lake"), template)


@pytest.mark.parametrize(
    "template",
    [
        "({m} / 3)", "({l} % 7)", "({i} % 3)", "(1 | {i} ^ 3)", "({dt} + INTERVAL 1 MONTH)",
        "ceil({d})", "named_struct('a', {i}).a", "struct({i} AS x, {s}).x", "({i} IN ('5', 7))",
        "if({b}, {i}, {d})", "coalesce({i}, {d})", "nvl({m}, {i})", "date_format({ts}, 'yyyy-MM')", "array({i}, {d})",
        "sequence({dt}, {dt} + 2)", "{mi}[{i}]", "{mi}[5]", "{mt}['Hello']", "map({id}, {s})[{id}]", "{xs}[0]",
        "array({xs}, array({i}))[1][0]", "substring({s}, -3, 2)", "({d} < {m})", "pmod({i}, 3)",
        "to_json(named_struct('a', {i}))", "struct({i}, {s}) = struct({i}, {s})", "split({s}, 'l')[0]",
        "arrays_zip({xs}, {xs})[0]", "aggregate({xs}, {i}, (a, x) -> a + coalesce(x, 0), a -> a * 2)",
    ],
)  # fmt: skip
@pytest.mark.one_in(4)
def test_Q1_chosen_expressions_have_one_value_in_every_context(session, tmp_path, template):
    _check(session, tmp_path, template)


def _check(session: Any, folder: Any, template: str) -> None:
    text = template.format(**{name: name for name in LITERALS})
    plain = _query_values(session, f"SELECT {text} AS v FROM t ORDER BY id")
    beside = _query_values(session, f"SELECT {text} AS v, row_number() OVER (ORDER BY id) AS n FROM t ORDER BY id")
    assert plain == beside, text
    if plain is None:
        return
    others = {
        "lateral view": f"SELECT {text} AS v, y FROM t LATERAL VIEW explode(array(1)) e AS y ORDER BY id",
        "case": f"SELECT CASE WHEN id > 0 THEN {text} END AS v FROM t ORDER BY id",
        "subquery": f"SELECT v FROM (SELECT id, {text} AS v FROM t) ORDER BY id",
    }
    for context, query in others.items():
        assert _query_values(session, query) in (plain, None), f"{text} in {context}"
    for row, expected in enumerate(plain):
        alone = template.format(**{name: literals[row] for name, literals in LITERALS.items()})
        assert _query_values(session, f"SELECT {alone} AS v") in ([expected], None), f"{alone} without FROM"
    _check_filters(session, folder, text)


def _check_filters(session: Any, folder: Any, text: str) -> None:
    """Check that an expression has the same values in a filter as in a projection."""
    values = session.sql(f"SELECT {text} AS v FROM t ORDER BY id").to_arrow()["v"]
    if pa.types.is_null(values.type) or pa.types.is_map(values.type):
        return
    with_values = ROWS.append_column("expected", values)
    pq.write_table(with_values, folder / "part.parquet")
    session.register("with_values", with_values)
    query = f"SELECT id AS v FROM with_values WHERE ({text}) IS NOT DISTINCT FROM expected ORDER BY id"
    assert _query_values(session, query) in ([1, 2, 3], None), f"{text} in the filter of a query"
    try:
        found = tamis.open(str(folder)).scan(f"({text}) <=> expected").to_arrow()["id"].to_pylist()
    except TamisError:
        return
    assert sorted(found) == [1, 2, 3], f"{text} in the filter of a scan"
