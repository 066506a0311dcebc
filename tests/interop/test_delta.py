"""Tables that Delta on Spark wrote: the same rows as Spark reads, from no more files than Delta itself plans."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import tamis
from builders.delta.spark_tables import TABLES

pytestmark = [
    pytest.mark.interop,
    pytest.mark.filterwarnings("default"),  # those of pyspark are not ours to mend
]

CASES = [(name, where) for name, table in TABLES.items() for where in table.filters]


def rows_of(table: pa.Table) -> Counter[str]:
    names = sorted(table.column_names)
    return Counter(repr(row) for row in table.select(names).to_pylist())


def read_by_spark(spark: Any, path: Path, **options: object) -> Any:
    reader = spark.read.format("delta")
    for name, value in options.items():
        reader = reader.option(name, value)
    return reader.load(str(path))


_WHOLE: dict[tuple[object, ...], Any] = {}


def expected_rows(spark: Any, path: Path, where: str, **options: object) -> Counter[str]:
    """What Spark finds in all rows, read before it knows of the filter, so that Delta has passed over no file."""
    key = (path, *options.items())
    if key not in _WHOLE:
        _WHOLE[key] = read_by_spark(spark, path, **options).localCheckpoint()
    return rows_of(_WHOLE[key].where(where).toArrow())


@pytest.mark.parametrize(("name", "where"), CASES)
def test_same_rows_as_spark(spark: Any, written: Callable[[str], Path], name: str, where: str) -> None:
    path = written(name)
    assert rows_of(tamis.open(path).scan(where).to_arrow()) == expected_rows(spark, path, where)


@pytest.mark.parametrize(("name", "where"), CASES)
def test_count_is_that_of_spark(spark: Any, written: Callable[[str], Path], name: str, where: str) -> None:
    path = written(name)
    assert tamis.open(path).scan(where).count() == expected_rows(spark, path, where).total()


@pytest.mark.parametrize(("name", "where"), [case for case in CASES if case[1] not in TABLES[case[0]].delta_is_bolder])
def test_no_more_files_than_delta_plans(spark: Any, written: Callable[[str], Path], name: str, where: str) -> None:
    path = written(name)
    by_delta = read_by_spark(spark, path).where(where).inputFiles()
    assert tamis.open(path).scan(where).plan(depth="files").files.num_rows <= len(by_delta)


@pytest.mark.parametrize("name", TABLES)
def test_same_schema_as_spark(spark: Any, written: Callable[[str], Path], name: str) -> None:
    path = written(name)
    given, expected = tamis.open(path).schema, read_by_spark(spark, path).limit(0).toArrow().schema
    assert [(field.name, field.type) for field in given] == [(field.name, field.type) for field in expected]


@pytest.mark.parametrize("name", ["deletion_vectors", "v2_checkpoint", "classic_checkpoint", "history"])
def test_D17_every_version_is_that_of_spark(spark: Any, written: Callable[[str], Path], name: str) -> None:
    path = written(name)
    newest = tamis.open(path).version
    assert newest is not None
    for version in range(newest + 1):
        found = rows_of(tamis.open(path, version=version).scan().to_arrow())
        assert found == expected_rows(spark, path, "true", versionAsOf=version), version


def test_history_names_the_operations_of_spark(spark: Any, written: Callable[[str], Path]) -> None:
    path = written("history")
    expected = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").select("version", "operation").toArrow().to_pylist()
    assert tamis.open(path).history().select(["version", "operation"]).to_pylist() == expected
