"""The columns of `c.sql` on Spark have the names and types of Spark, and its case sensitivity."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import EngineError, TableNotFound

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
    "SELECT count(*) FROM {t} TABLESAMPLE (10 ROWS)",
    "SELECT count(*), max(k) FROM {t} TABLESAMPLE (100 PERCENT)",
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


@pytest.fixture
def folded(any_spark: Any, tmp_path: Path) -> Any:
    """A session with tables whose columns differ only by case."""
    pq.write_table(
        pa.table(
            {
                "a": [1, 2],
                "A": [10, 20],
                "st": pa.array([{"a": 5, "A": 50}, {"a": 6, "A": 60}]),
            }
        ),
        tmp_path / "t.parquet",
    )
    pq.write_table(pa.table({"a": [1], "one": pa.array([{"a": 7}])}), tmp_path / "u.parquet")
    found = tamis.connect(any_spark)
    found.register("t", tmp_path / "t.parquet")
    found.register("u", tmp_path / "u.parquet")
    return found


@pytest.mark.usefixtures("case_sensitive")
@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT a, A FROM t WHERE A = 20", [(2, 20)]),
        ("SELECT A FROM t WHERE a = 1", [(10,)]),
        ("SELECT st.A FROM t WHERE st.a = 5", [(50,)]),
        ("SELECT a FROM t WHERE EXISTS (SELECT 1 FROM u WHERE A = 10)", [(1,)]),
        ("SELECT count(*) AS n FROM t", [(2,)]),
        ("SELECT a AS b, b AS B FROM (SELECT a, A AS b FROM t WHERE a = :a) x", [(1, 10)]),
    ],
)
def test_spark_resolves_names_in_a_case_sensitive_session(folded: Any, query: str, rows: list[tuple[int, ...]]) -> None:
    arguments = {"a": 1} if ":a" in query else None
    assert [tuple(row) for row in folded.sql(query, arguments).collect()] == rows


@pytest.mark.usefixtures("case_sensitive")
@pytest.mark.parametrize("query", ["SELECT one.A FROM u", "WITH x AS (SELECT a FROM u) SELECT * FROM X"])
def test_fields_and_tables_in_another_case_are_unknown_in_a_case_sensitive_session(folded: Any, query: str) -> None:
    with pytest.raises(EngineError, match=r"No such struct field|cannot be found"):
        folded.sql(query)


@pytest.mark.usefixtures("case_sensitive")
def test_a_registered_table_has_one_name_in_a_case_sensitive_session(folded: Any) -> None:
    with pytest.raises(TableNotFound, match=r"no table 'T'.*Did you mean 't'"):
        folded.sql("SELECT a FROM T")


@pytest.mark.usefixtures("case_sensitive")
def test_spark_reads_files_with_exact_names_in_a_case_sensitive_session(any_spark: Any, file: Path) -> None:
    scan = tamis.open(file).scan("k > 1", columns=["v", "Mixed"])
    frame = scan.to_spark(any_spark)
    expected = scan.to_spark(any_spark, reader="arrow")
    assert sorted(frame.collect()) == sorted(expected.collect())
    if hasattr(frame, "_jdf"):
        plan = frame._jdf.queryExecution().executedPlan().toString()
        assert "FileScan parquet" in plan
        assert "MapInArrow" not in plan
