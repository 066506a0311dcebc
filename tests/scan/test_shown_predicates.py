"""Reports, reasons and splits show a filter in the words of its user, never in those that Tamis rewrites it to."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from datetime import date, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis import col
from tamis.expr.nodes import AnyExpr, Call, split_conjuncts
from tamis.expr.sql.parse import parse_sql
from tamis.expr.sql.printer import to_sql
from tamis.expr.wire.expression_json import expression_from_json, expression_to_json
from tamis.expressions import split_predicate
from tamis.parquet import Pruner

ROWS = pa.table(
    {
        "name": ["ab", "cd"],
        "x": [1, 2],
        "f": [0.5, 1.5],
        "d": [date(2024, 1, 1), date(2024, 3, 3)],
        "ts": [datetime(2024, 1, 1), datetime(2024, 3, 3)],
        "b": [True, False],
        "p": pa.array([1, 2], pa.int32()),
        "l": [[1], [2]],
    }
)

SQL = [
    "name ILIKE 'A%'",
    "name NOT ILIKE '%a'",
    "name ILIKE 'a!%%' ESCAPE '!'",
    "name NOT LIKE 'a%b'",
    "name RLIKE 'a.b'",
    "nvl(x, 0) > 5",
    "ifnull(x, 0) > 5",
    "nvl(nvl(x, p), 0) > 5 AND ifnull(x, p) = 1",
    "isnull(x)",
    "isnotnull(x)",
    "NOT isnull(nvl(x, p))",
    "if(x > 1, x, 0) = 4",
    "CASE WHEN nvl(x, 0) > 1 THEN 1 ELSE 0 END = 1",
    "x <=> 3",
    "NOT (x <=> 3)",
    "x IS NOT DISTINCT FROM 3",
    "x BETWEEN 1 AND 3",
    "x NOT BETWEEN 1 AND 3",
    "mod(x, 2) BETWEEN 1 AND 3",
    "len(name) NOT BETWEEN 1 AND 3",
    "NOT (x > 3 AND f < 2)",
    "NOT (len(name) > 3 OR f < 2)",
    "mod(x, 2) = 1",
    "x % 2 = 1",
    "5 < abs(x)",
    "len(name) > 3",
    "char_length(name) > 3",
    "ucase(name) IN ('AB', 'CD')",
    "substr(name, 1, 2) = 'ab'",
    "substr(name, 2) = 'b'",
    "left(name, 2) = 'ab'",
    "contains(name, 'b') OR startswith(name, 'a')",
    "extract(month FROM d) = 3",
    "date_part('month', d) = 3",
    "dayofmonth(d) = 3",
    "to_date(ts) = '2024-01-01'",
    "month(to_date(ts)) = 3",
    "month(date_add(ts, 3)) = 4",
    "date_sub(d, 3) > '2024-01-01'",
    "string(x) = '3'",
    "length(string(x)) = 3",
    "int(name) = 3",
    "name > 3",
    "x = name",
    "abs(x) = abs(f)",
    "isnan(f)",
    "isnan(f / 2)",
    "b IS NOT TRUE",
    "nvl(b, false)",
    "array_contains(l, 1) AND p = 1",
    "hour(ts) = 3 OR nvl(p, 0) = 1",
]
BUILT = [
    (col("x").between(1, 3), ""),
    (~col("x").between(1, 3), ""),
    (col("x").coalesce(0) > 5, "coalesce"),
    (col("x").is_null() | (col("x") % 2 == 1), ""),
    (col("ts").month() == 3, "month"),
    (col("ts").cast("date").month() == 3, "cast month"),
    (col("name").length() > col("f"), "length"),
    (col("name") > col("x"), ""),
    (~(col("x").eq_null_safe(3)), ""),
    (~col("name").like("%a") & (col("p") == 1), ""),
]
KEYWORDS = {"and", "or", "not", "in", "like", "ilike", "when", "then", "else", "between"}


def list_functions(text: str) -> set[str]:
    return set(re.findall(r"([a-z_]\w*)\(", text.lower())) - KEYWORDS


def list_reasons(reasons: Any) -> Iterator[str]:
    """Yield the expressions in reasons."""
    for reason in filter(None, reasons):
        for part in reason.split("; "):
            yield from re.findall(r"^(?:function on column|unsupported syntax): (.*)$", part)
            yield from re.findall(r"^type mismatch: (.*) as \w+ does not preserve order$", part)
            yield from (
                f"{name}(x, x)" for name in re.findall(r"^(?:unknown function:|bounds cannot answer) (\w+)$", part)
            )


def read_repr(expr: AnyExpr) -> str:
    return re.sub(r"^Call<(.*)>$", r"\1", repr(expr))


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> tamis.Table:
    path: Path = tmp_path_factory.mktemp("shown") / "t.parquet"
    pq.write_table(ROWS, path)
    return tamis.open(path)


CASES = [(where, where) for where in SQL] + BUILT


@pytest.mark.parametrize(("where", "written"), CASES, ids=[str(where) for where, _ in CASES])
def test_a_filter_is_shown_in_the_words_of_its_user(table: tamis.Table, where: Any, written: str) -> None:
    functions = list_functions(written) if isinstance(where, str) else set(written.split())
    given = parse_sql(where) if isinstance(where, str) else where.node
    report = table.scan(where).plan("pages").report.to_dict()
    entries = [entry for level in report["levels"] for entry in level["by_predicate"]]
    compiled = Pruner(ROWS.schema, where).compile_result
    split = split_predicate(where, ROWS.schema, ["p"])

    conditions = list(dict.fromkeys(entry["predicate"] for entry in entries))
    assert conditions == list(compiled.conjuncts)
    assert [part for each in conditions for part in split_conjuncts(parse_sql(each))] == split_conjuncts(given)
    assert {each.predicate for each in compiled.errors} <= set(conditions)
    reasons = [entry["unused_because"] for entry in entries] + [each.reason for each in compiled.errors]
    parts = [read_repr(part) for part in (split.partition, split.data, split.residual) if isinstance(part, Call)]
    for shown in [report["where"], *conditions, *list_reasons(reasons), *parts]:
        parse_sql(shown)
        # A typed literal is printed as a cast.
        assert list_functions(shown) - {"cast"} <= functions, shown


@pytest.mark.parametrize("where", SQL)
def test_another_process_shows_the_same(where: str) -> None:
    given = parse_sql(where)
    assert repr(pickle.loads(pickle.dumps(given))) == repr(given)
    assert repr(expression_from_json(expression_to_json(given))) == repr(given)


def test_every_spelling_prunes_as_the_function_that_tamis_calls() -> None:
    for written, called in {
        "substr(name, 1, 2) = 'ab'": "substring(name, 1, 2) = 'ab'",
        "left(name, 2) = 'ab'": "substring(name, 1, 2) = 'ab'",
        "to_date(ts) = '2024-01-01'": "CAST(ts AS DATE) = '2024-01-01'",
        "date_part('year', d) = 2024": "year(d) = 2024",
        "isnull(x)": "x IS NULL",
    }.items():
        assert parse_sql(written) == parse_sql(called)
        assert not Pruner(ROWS.schema, written).compile_result.errors


def test_a_reason_names_the_whole_condition_around_an_implicit_call() -> None:
    errors = Pruner(ROWS.schema, "name ILIKE 'a%' AND month(date_add(ts, 3)) = 4").compile_result.errors
    assert [str(each) for each in errors] == [
        "name ILIKE 'a%': function on column: name ILIKE 'a%'",
        "month(date_add(ts, 3)) = 4: function on column: month(date_add(ts, 3))",
    ]


def test_sql_for_engines_has_the_functions_that_tamis_calls() -> None:
    assert col("x").between(1, 3).to_sql() == "x >= 1 AND x <= 3"
    assert to_sql(parse_sql("nvl(x, 0) > 5")) == "coalesce(x, 0) > 5"
