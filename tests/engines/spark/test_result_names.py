"""The columns of `c.sql` on Spark have the names and types of Spark, and its case sensitivity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import EngineError

ROWS = pa.table({"k": [1, 2, 3], "v": ["a", "b", "c"], "Mixed": [4, 5, 6]})

QUERIES = [
    "SELECT count(*), max(k), k + 1 FROM {t} GROUP BY k",
    "SELECT count(1), sum(k), avg(k), upper(v), `Mixed` FROM {t} GROUP BY v, Mixed",
    "SELECT K, mixed FROM {t}",
    "SELECT t.K, x.* FROM {t} AS t JOIN (SELECT k, count(*) FROM {t} GROUP BY k) x ON t.k = x.k",
    "SELECT CAST(k AS INT), k / 2, -k, k = 1 AND true, CASE WHEN k = 1 THEN 2 END, 'x', DATE '2020-01-01' FROM {t}",
    "SELECT count(DISTINCT k), min(v), first(k), stddev(k), count(*) FILTER (WHERE k > 3) FROM {t}",
    "SELECT max(k) OVER (PARTITION BY v), row_number() OVER (ORDER BY k) FROM {t}",
    "SELECT substring(v, 1, 2), k IN (1, 2), k BETWEEN 1 AND 2, v LIKE 'a%', NOT (k = 1), k IS NULL FROM {t}",
    "WITH x AS (SELECT k, count(*) FROM {t} GROUP BY k) SELECT * FROM x",
    "SELECT k + 1 FROM {t} UNION ALL SELECT Mixed FROM {t}",
    "SELECT max(Mixed) - 1 FROM {t} WHERE k > 1 HAVING count(*) > 0",
]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("names") / "rows.parquet"
    pq.write_table(ROWS, path)
    return path


@pytest.fixture
def plain_view(any_spark: Any, file: Path) -> Iterator[str]:
    any_spark.read.parquet(str(file)).createOrReplaceTempView("plain_rows")
    yield "plain_rows"
    any_spark.catalog.dropTempView("plain_rows")


@pytest.fixture
def session(any_spark: Any, file: Path) -> Any:
    found = tamis.connect(any_spark)
    found.register("own_rows", file)
    return found


@pytest.mark.parametrize("query", QUERIES)
def test_names_and_types_are_those_of_spark(any_spark: Any, session: Any, plain_view: str, query: str) -> None:
    expected = any_spark.sql(query.format(t=plain_view))
    found = session.sql(query.format(t="own_rows"))
    assert found.columns == expected.columns
    assert [field.dataType for field in found.schema] == [field.dataType for field in expected.schema]
    assert sorted(map(str, found.collect())) == sorted(map(str, expected.collect()))


def test_parameters_show_their_values(any_spark: Any, session: Any) -> None:
    assert session.sql("SELECT k + :more FROM own_rows", {"more": 5}).columns == ["(k + 5)"]
    assert session.sql("SELECT k + ?, k AS ok FROM own_rows", [7]).columns == ["(k + 7)", "ok"]


def test_a_query_of_a_scan_alone_needs_no_text_of_spark(
    any_spark: Any, session: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = []
    run = type(any_spark).sql

    def record(self: Any, text: str, *given: Any, **frames: Any) -> Any:
        texts.append(text)
        return run(self, text, *given, **frames)

    monkeypatch.setattr(type(any_spark), "sql", record)
    for query in ("SELECT k, v AS w FROM own_rows WHERE k > 1", "SELECT * FROM own_rows"):
        assert session.sql(query).columns
    assert not texts


@pytest.fixture
def case_sensitive(any_spark: Any) -> Iterator[None]:
    any_spark.conf.set("spark.sql.caseSensitive", "true")
    yield
    any_spark.conf.unset("spark.sql.caseSensitive")


@pytest.mark.usefixtures("case_sensitive")
@pytest.mark.parametrize(
    "query",
    [
        "SELECT K FROM own_rows",
        "SELECT k FROM own_rows WHERE K = 3",
        "SELECT count(*) AS n FROM own_rows GROUP BY mixed",
        "SELECT k FROM own_rows ORDER BY V",
        "SELECT K FROM (SELECT k FROM own_rows)",
    ],
)
def test_names_in_another_case_are_unknown_in_a_case_sensitive_session(session: Any, query: str) -> None:
    with pytest.raises(EngineError, match="cannot be resolved"):
        session.sql(query)


@pytest.mark.usefixtures("case_sensitive")
def test_names_that_differ_by_case_are_two_columns_in_a_case_sensitive_session(session: Any) -> None:
    rows = session.sql("SELECT a, A FROM (SELECT k AS a, v AS A FROM own_rows WHERE Mixed = 5)").collect()
    assert [tuple(row) for row in rows] == [(2, "b")]
