"""Aggregates, top-n, sorts and limits on Spark: the driver reads metadata alone, and no job runs before an action."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from deltalake import write_deltalake

pytest.importorskip("pyspark")

import tamis

ROWS = 50_000
FILES = 6

QUERIES = [
    "SELECT count(*), max(x), min(s) FROM t",
    "SELECT count(*) AS n, max(x) AS m FROM t WHERE id >= 70000",
    "SELECT max(f), min(f), count(f) FROM t WHERE id BETWEEN 30000 AND 120000",
    "SELECT p, count(*) AS n, max(id) AS m FROM t WHERE id > 60000 GROUP BY p ORDER BY p",
    "SELECT DISTINCT p FROM t WHERE id > 60000 ORDER BY p",
    "SELECT id, x FROM t ORDER BY id DESC LIMIT 5",
    "SELECT id, s FROM t WHERE x > 10 ORDER BY id LIMIT 7",
    "SELECT f, id FROM t ORDER BY f DESC NULLS LAST, id LIMIT 5",
    "SELECT count(*) FROM (SELECT id FROM t ORDER BY id) WHERE id < 10",
    "SELECT 1 FROM t WHERE id < 3",
    "SELECT count(*) FROM (SELECT x FROM t WHERE id > 299990 LIMIT 4)",
    "SELECT avg(x), sum(id) FROM t WHERE id > 1000",
    "SELECT count(*) FROM t WHERE id < 0",
    "SELECT p, min(x) FROM t WHERE id < 0 GROUP BY p",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake") / "t"
    made = np.random.default_rng(7)
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        floats = pa.array(made.random(ROWS), mask=made.random(ROWS) < 0.1)
        rows = {"id": ids, "x": made.integers(0, 1000, ROWS), "s": np.char.add("s", ids.astype(str)), "f": floats}
        part = pa.array(np.where(ids % 2 == 0, "even", "odd"))
        write_deltalake(folder, pa.table({**rows, "p": part}), mode="append", partition_by=["p"])
    return folder


@contextmanager
def count_reads(spark: Any) -> Iterator[dict[str, int]]:
    """Count the bytes that this process reads, and the jobs that it starts."""
    found: dict[str, int] = {}
    group = "counted"
    spark.sparkContext.setJobGroup(group, group)
    before = _count_bytes()
    try:
        yield found
    finally:
        found["bytes"] = _count_bytes() - before
        found["jobs"] = len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))
        spark.sparkContext.setLocalProperty("spark.jobGroup.id", None)


def _count_bytes() -> int:
    if not Path("/proc/self/io").exists():
        return 0  # only Linux counts them
    lines = Path("/proc/self/io").read_text().splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("rchar")))


@pytest.mark.parametrize("query", QUERIES)
def test_no_row_is_read_by_the_driver(spark: Any, table: Path, query: str) -> None:
    embedded = tamis.connect()
    embedded.register("t", tamis.open(table))
    session = tamis.connect(spark=spark)
    session.register("t", tamis.open(table))
    session.sql(query)  # for its imports, which read files too
    with count_reads(spark) as found:
        frame = session.sql(query)
    assert found["jobs"] == 0
    # Each file has 150 KB of its shortest column; footers and answers of Spark are smaller.
    assert found["bytes"] < 100_000, found
    expected = embedded.sql(query).to_arrow()
    rows = [tuple(row) for row in frame.collect()]
    wanted = [tuple(row.values()) for row in expected.to_pylist()]
    if "avg(x)" in query:
        assert [pytest.approx(row) for row in wanted] == [tuple(map(float, row)) for row in rows]
    else:
        assert rows == wanted


def test_files_that_metadata_answers_for_are_not_read(spark: Any, table: Path) -> None:
    session = tamis.connect(spark=spark)
    session.register("t", tamis.open(table))
    frame = session.sql("SELECT count(*), max(x) FROM t WHERE id >= 70000")
    assert len(frame.inputFiles()) == 2
    assert len(session.sql("SELECT count(*), max(x) FROM t").inputFiles()) == 0
    # The last files prove that no other one has a larger id.
    assert len(session.sql("SELECT id, x FROM t ORDER BY id DESC LIMIT 5").inputFiles()) <= 2


def test_aggregates_of_visible_rows_are_lazy(spark: Any, table: Path) -> None:
    policies = {"tables": {"t": [{"principals": ["ana"], "rows": "id < 120000"}]}}
    session = tamis.connect(spark=spark, policies=policies)
    session.register("t", tamis.open(table))
    seen = session.as_principal("ana")
    with count_reads(spark) as found:
        frames = [
            seen.sql("SELECT count(*), max(id) FROM t WHERE x < 2000"),
            seen.sql("SELECT p, max(id) FROM t GROUP BY p ORDER BY p"),
            seen.sql("SELECT id FROM t ORDER BY id DESC LIMIT 2"),
            seen.sql("SELECT count(*) FROM (SELECT id FROM t LIMIT 10)"),
        ]
    assert found["jobs"] == 0
    assert found["bytes"] < 400_000, found
    rows = [[tuple(row) for row in frame.collect()] for frame in frames]
    assert rows == [[(120000, 119999)], [("even", 119998), ("odd", 119999)], [(119999,), (119998,)], [(10,)]]
