"""Texts with half of a surrogate pair cannot be stored: each use of them is a Tamis error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

import tamis
from tamis import PartitionFilter, col
from tamis.cli.application import program
from tamis.errors import ParseError, TamisError

HALF = "\ud800"

QUERIES = [
    f"SELECT '{HALF}'",
    f"SELECT '{HALF}' FROM t",
    f"SELECT r'{HALF}'",
    f"SELECT a FROM t WHERE s = '{HALF}'",
    f"SELECT a FROM t WHERE s LIKE 'x{HALF}%'",
    f"SELECT rank() OVER (ORDER BY a) FROM t WHERE s = '{HALF}'",
    f"SELECT `{HALF}` FROM t",
    f"SELECT {HALF} FROM t",
    f"SELECT a AS `{HALF}` FROM t",
    f"SELECT * FROM `{HALF}`",
    f"SELECT * FROM parquet.`/{HALF}`",
    f"SELECT a -- {HALF}\nFROM t",
    f"{HALF}",
]


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("rows") / "t.parquet"
    pq.write_table(pa.table({"a": [1, 2], "s": ["x", "y"]}), path)
    return path


def connect(path: Path, *, has_policies: bool) -> tamis.Session:
    rules = {"tables": {"t": [{"principals": ["*"], "rows": "a > 1"}]}}
    c = tamis.connect(policies=rules if has_policies else None)
    c.register("t", str(path))
    return c.as_principal("ann") if has_policies else c


@pytest.mark.parametrize("has_policies", [False, True])
@pytest.mark.parametrize("query", QUERIES, ids=ascii)
def test_X15_in_queries(path: Path, query: str, has_policies: bool) -> None:
    c = connect(path, has_policies=has_policies)
    for ask in (lambda: c.sql(query).to_arrow(), lambda: c.explain(query)):
        with pytest.raises(ParseError, match="surrogate") as caught:
            ask()
        str(caught.value).encode()
    if not has_policies:
        with pytest.raises(ParseError, match="surrogate"):
            c.sql(query, dialect="duckdb")


def test_X15_the_position_is_that_of_the_character(path: Path) -> None:
    with pytest.raises(ParseError, match=r"line 2, character 3") as caught:
        connect(path, has_policies=False).sql(f"SELECT\n '{HALF}'")
    assert "\\ud800" in str(caught.value)


@pytest.mark.parametrize("has_policies", [False, True])
@pytest.mark.parametrize(
    ("query", "values"),
    [
        ("SELECT :x", {"x": HALF}),
        ("SELECT a FROM t WHERE s = ?", [HALF]),
        ("SELECT a FROM t WHERE s IN (?)", [["a", HALF]]),
        ("SELECT a FROM t", {HALF: 1}),
        ("SELECT a FROM t WHERE s = :x", {HALF: 1}),
    ],
)
def test_X15_in_parameters(path: Path, query: str, values: Any, has_policies: bool) -> None:
    with pytest.raises(TamisError):
        connect(path, has_policies=has_policies).sql(query, values).to_arrow()


def test_X15_in_parameters_of_the_other_dialect(path: Path) -> None:
    c = connect(path, has_policies=False)
    for values in ({"x": HALF}, {"x": [HALF]}, {"x": {"a": HALF}}, {HALF: 1}):
        with pytest.raises(TamisError):
            c.sql("SELECT $x", values, dialect="duckdb").to_arrow()


FILTERS: list[Callable[[], Any]] = [
    lambda: f"s = '{HALF}'",
    lambda: f"s IN ('a', '{HALF}')",
    lambda: f"`{HALF}` = 1",
    lambda: f"{HALF} = 1",
    lambda: col("s") == HALF,
    lambda: col("s").startswith(HALF),
    lambda: col("s").like(f"{HALF}%"),
    lambda: col("s").isin(["a", HALF]),
    lambda: col(HALF) == 1,
    lambda: PartitionFilter.eq("s", HALF),
    lambda: [("s", "=", HALF)],
]


@pytest.mark.parametrize("made", FILTERS)
def test_X15_in_filters(path: Path, made: Callable[[], Any]) -> None:
    with pytest.raises(TamisError):
        tamis.open(path).scan(made()).to_arrow()


def test_X15_in_names(path: Path) -> None:
    c = connect(path, has_policies=False)
    for ask in (
        lambda: c.register(HALF, str(path)),
        lambda: c.register(f"a.{HALF}", pa.table({"a": [1]})),
        lambda: c.attach(HALF, "sqlite:///x.db"),
        lambda: c.unregister(HALF),
        lambda: tamis.open(path).scan(columns=[HALF]).to_arrow(),
        lambda: tamis.open(f"/tmp/{HALF}"),
    ):
        with pytest.raises(TamisError):
            ask()


def test_escapes_are_those_of_spark(path: Path) -> None:
    # Java writes half of a pair as a question mark.
    found = connect(path, has_policies=False).sql(r"SELECT '\ud800' AS a, '\uD83D\uDE00' AS b").to_arrow()
    assert found.to_pylist() == [{"a": "?", "b": "😀"}]


def test_X15_on_the_command_line(path: Path) -> None:
    # Bytes of an argument that are not UTF-8 come as halves of pairs.
    found = CliRunner().invoke(program, ["sql", "SELECT '\udcff' FROM t", str(path)])
    assert found.exit_code == 1
    assert "surrogate" in found.stderr


@pytest.mark.parametrize("uri", [f"/tmp/{HALF}", f"/tmp/{HALF}.parquet", f"file:///tmp/{HALF}"])
def test_a_path_with_a_lone_surrogate_is_a_printable_error(uri: str) -> None:
    with pytest.raises(TamisError, match="surrogate") as raised:
        tamis.open(uri)
    assert "\\ud800" in str(raised.value)
    str(raised.value).encode()
