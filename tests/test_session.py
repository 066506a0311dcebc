"""Sessions: what `tamis.connect` takes and opens. Those on Spark are in `tests/spark`."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from tamis.errors import InvalidArgument, MissingDependency


def test_a_session_without_spark_opens_tables_as_open_does(tmp_path: Path) -> None:
    (tmp_path / "day=1").mkdir()
    pq.write_table(pa.table({"id": [1, 2]}), tmp_path / "day=1" / "a.parquet")
    session = tamis.connect()
    table = session.open(tmp_path, partitioning={"day": "string"})
    assert table.schema == tamis.open(tmp_path, partitioning={"day": "string"}).schema
    assert table.scan("id = 2").to_arrow().to_pydict() == {"id": [2], "day": ["1"]}
    assert (session.planning, session.engine.name) == ("local", "local")
    assert repr(session) == "<tamis.Session on local, planning='local'>"


@pytest.mark.parametrize("planning", ["cluster", None, 1])
def test_planning_is_one_of_three(planning: object) -> None:
    with pytest.raises(InvalidArgument, match=r"no planning .*Planning: auto, local, spark"):
        tamis.connect(planning=planning)


def test_planning_on_spark_needs_a_session() -> None:
    with pytest.raises(InvalidArgument, match=r"planning='spark' needs a Spark session: tamis.connect\(spark="):
        tamis.connect(planning="spark")


def test_something_that_is_no_spark_session_is_refused() -> None:
    pytest.importorskip("pyspark")
    with pytest.raises(InvalidArgument, match="spark is a SparkSession, not a str"):
        tamis.connect(spark="local[2]")


def test_without_pyspark_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyspark", None)
    with pytest.raises(MissingDependency, match=r"pip install 'tamis\[spark\]'"):
        tamis.connect(spark=object())
