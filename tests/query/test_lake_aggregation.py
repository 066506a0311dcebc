"""Counts, minima and maxima from metadata and boundary files equal those of DuckDB over the same rows (O1, O2)."""

from __future__ import annotations

import math
import tempfile
from datetime import date
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.oracle import evaluate_predicates
from builders.delta.cases import draw_delta_case
from builders.delta.log import DeltaLog
from builders.delta.tables import data_file
from builders.hive.cases import PARTITIONING, draw_hive_case
from builders.iceberg.cases import draw_iceberg_case
from builders.iceberg.tables import IcebergFolder
from builders.iceberg.values import field
from builders.query.aggregates import aggregate_with_duckdb, draw_aggregates, format_rows
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate
from tamis.expr.nodes import Column
from tamis.formats.source import LEVELS
from tamis.scan.aggregation.aggregate_scan import aggregate
from tamis.scan.aggregation.measures import Measure
from tamis.scan.scan import get_planner
from tamis.tuning import DEFAULT_TUNING

FEWER = settings(max_examples=max(1, settings().max_examples // 6))
"""A whole table is written for each example."""


def filter_rows(rows: pa.Table, said: OraclePredicate) -> pa.Table:
    (answers,) = evaluate_predicates(rows, [said.sql])
    return rows.filter(pa.array([answer is True for answer in answers], pa.bool_()))


def check(choices: Choices, table: tamis.Table, rows: pa.Table, said: list[OraclePredicate], keys: list[str]) -> None:
    for each in [None, *said]:
        expected = rows if each is None else filter_rows(rows, each)
        for only_extremes in (False, True):
            asked = draw_aggregates(choices, rows.schema, keys, only_extremes=only_extremes)
            levels = choices.one_of([LEVELS, LEVELS, ("partitions", "files"), ("row_groups",), ()])
            scan = table.scan(None if each is None else each.expr, levels=levels)
            found = aggregate(get_planner(scan), asked.keys, asked.measures)
            assert format_rows(found) == aggregate_with_duckdb(expected, asked), (each, asked, levels)


@FEWER
@given(st.data())
def test_S1_F1_D15_D16_aggregates_of_delta_tables_with_deletion_vectors_equal_duckdb(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(choices, Path(folder), predicates=2)
        check(choices, tamis.open(folder), case.rows(), case.predicates, ["p", "q"])


@FEWER
@given(st.data())
def test_S1_I3_I6_I7_aggregates_of_iceberg_tables_with_deletes_equal_duckdb(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_iceberg_case(choices, Path(folder), predicates=2)
        table = tamis.open(folder)
        keys = [path[0] for path in table._source.layout.identity_columns]  # type: ignore[attr-defined]
        check(choices, table, case.rows(), case.predicates, keys)


@FEWER
@given(st.data())
def test_F1_S1_aggregates_of_hive_tables_equal_duckdb(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        said = draw_hive_case(choices, Path(folder), predicates=2)
        table = tamis.open(folder, partitioning=PARTITIONING)
        check(choices, table, table.scan().to_arrow(), said, list(PARTITIONING))


# --- What is read -----------------------------------------------------------------------------------------------------

ID = Column(("id",), type=pa.int64())
TEXT = Column(("text",), type=pa.string())
DAY = Column(("day",), type=pa.int32())


def write_delta_table(folder: Path, **options: object) -> tamis.Table:
    """Write ten files of ten rows in two partitions, with statistics in the log."""
    log = DeltaLog(folder, {"id": "long", "text": "string", "day": "integer"}, partition_columns=["day"])
    parts = [pa.table({"id": range(start, start + 10), "text": [f"{start:03} {'x' * 50}"] * 10})
             for start in range(0, 100, 10)]  # fmt: skip
    log.commit(
        *(
            data_file(log, f"{number}.parquet", part, {"day": str(number % 2)}, **options)  # type: ignore[arg-type]
            for number, part in enumerate(parts)
        )
    )
    return tamis.open(folder)


def aggregate_rows(
    table: tamis.Table, where: str | None, keys: list[Column], measures: list[Measure]
) -> list[list[object]]:
    return [list(row.values()) for row in aggregate(get_planner(table.scan(where)), keys, measures).to_pylist()]


def remove_files(folder: Path, *kept: str) -> None:
    for path in folder.rglob("*.parquet"):
        if path.name not in kept and "_delta_log" not in path.parts:
            path.unlink()


def test_aggregates_of_a_delta_table_need_no_files(tmp_path: Path) -> None:
    table = write_delta_table(tmp_path)
    remove_files(tmp_path)
    measures = [Measure("count"), Measure("count", TEXT), Measure("min", ID), Measure("max", ID)]
    assert aggregate_rows(table, None, [], measures) == [[100, 100, 0, 99]]
    assert aggregate_rows(table, "id >= 50", [], measures) == [[50, 50, 50, 99]]
    assert sorted(aggregate_rows(table, "id < 40", [DAY], measures)) == [[0, 20, 20, 0, 29], [1, 20, 20, 10, 39]]
    assert aggregate_rows(table, "day = 1 AND id < 20", [], measures) == [[10, 10, 10, 19]]
    assert aggregate_rows(table, "id < 0", [], measures) == [[0, 0, None, None]]
    assert aggregate_rows(table, "id < 0", [DAY], measures) == []


@pytest.mark.parametrize(
    ("query", "rows"),
    [
        ("SELECT year(day) AS y, count(*), max(id) FROM t GROUP BY year(day)", [(2023, 3, 2), (2024, 6, 8)]),
        ("SELECT date_trunc('month', day) > DATE '2024-01-01' AS late, count(id) FROM t GROUP BY 1",
         [(False, 6), (True, 3)]),
        ("SELECT y FROM (SELECT year(day) AS y FROM t) GROUP BY y", [(2023,), (2024,)]),
        ("SELECT year(day) + month(day) AS k, min(id) FROM t WHERE id >= 3 GROUP BY 1 HAVING count(*) > 1",
         [(2025, 3), (2026, 6)]),
        ("SELECT day, month(day), count(*) FROM t WHERE day > DATE '2024-01-15' GROUP BY day, month(day)",
         [(date(2024, 2, 2), 2, 3)]),
    ],
)  # fmt: skip
def test_groups_by_expressions_of_partition_columns_need_no_files(
    tmp_path: Path, query: str, rows: list[tuple[object, ...]]
) -> None:
    log = DeltaLog(tmp_path, {"id": "long", "day": "date"}, partition_columns=["day"])
    days = ("2023-12-31", "2024-01-01", "2024-02-02")
    parts = [pa.table({"id": range(3 * number, 3 * number + 3)}) for number in range(3)]
    files = zip(days, parts, strict=True)
    log.commit(*(data_file(log, f"{day}.parquet", part, {"day": day}) for day, part in files))
    session = tamis.connect()
    session.register("t", tamis.open(tmp_path))
    with_files = [session.sql(query, rules=on).to_arrow() for on in (True, False)]
    remove_files(tmp_path)
    found = session.sql(query).to_arrow()
    assert sorted(tuple(row.values()) for row in found.to_pylist()) == rows
    assert all(each.schema == found.schema and each.num_rows == found.num_rows for each in with_files)


def test_groups_by_expressions_of_other_columns_and_sums_read_files(tmp_path: Path) -> None:
    session = tamis.connect()
    session.register("t", write_delta_table(tmp_path))
    for query in ("SELECT id % 2, count(*) FROM t GROUP BY 1", "SELECT day + 1, sum(id) FROM t GROUP BY 1",
                  "SELECT day + 1, count(DISTINCT id) FROM t GROUP BY 1"):  # fmt: skip
        assert "aggregated from metadata" not in session.explain(query)
        assert sum(row[1] > 0 for row in map(list, map(dict.values, session.sql(query).to_arrow().to_pylist()))) == 2


def test_only_files_at_the_boundary_are_read(tmp_path: Path) -> None:
    table = write_delta_table(tmp_path)
    remove_files(tmp_path, "4.parquet", "7.parquet")
    measures = [Measure("count"), Measure("min", ID), Measure("max", ID)]
    assert aggregate_rows(table, "id >= 45 AND id < 73", [], measures) == [[28, 45, 72]]


def test_a_file_that_cannot_hold_the_maximum_is_not_read(tmp_path: Path) -> None:
    table = write_delta_table(tmp_path)
    remove_files(tmp_path)
    # The file with 45 matches partly, but the largest value is in another file.
    assert aggregate_rows(table, "id >= 45", [], [Measure("max", ID)]) == [[99]]


def test_S1_files_with_truncated_bounds_are_read(tmp_path: Path) -> None:
    table = write_delta_table(tmp_path)
    assert aggregate_rows(table, None, [], [Measure("max", TEXT)]) == [[f"090 {'x' * 50}"]]
    remove_files(tmp_path, "9.parquet", "8.parquet")
    with pytest.raises(tamis.errors.MissingFile):
        aggregate_rows(table, None, [], [Measure("min", TEXT)])


def test_D16_a_deleted_minimum_is_not_the_result(tmp_path: Path) -> None:
    log = DeltaLog(tmp_path, {"id": "long"}, features=["deletionVectors"])
    log.commit(
        data_file(log, "0.parquet", pa.table({"id": [1, 2, None]}), deleted=[0]),
        data_file(log, "1.parquet", pa.table({"id": [5, 9]})),
    )
    table = tamis.open(tmp_path)
    measures = [Measure("count"), Measure("count", ID), Measure("min", ID), Measure("max", ID)]
    assert aggregate_rows(table, None, [], measures) == [[4, 3, 2, 9]]
    remove_files(tmp_path)
    # The log has the row count, and proves that no deleted row has the largest value.
    assert aggregate_rows(table, None, [], [Measure("count")]) == [[4]]
    assert aggregate_rows(table, None, [], [Measure("max", ID)]) == [[9]]


def test_fully_matched_row_groups_are_not_read(tmp_path: Path) -> None:
    rows = pa.table({"id": range(1000), "text": [f"{number:04}" for number in range(1000)]})
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=100)
    scan = tamis.open(tmp_path / "f.parquet").scan("id >= 100 AND id < 900")
    found = aggregate(get_planner(scan), [], [Measure("count"), Measure("min", ID), Measure("max", ID)])
    assert found.to_pylist() == [{"m0": 800, "m1": 100, "m2": 899}]
    assert scan.report is not None
    footer = pq.read_metadata(tmp_path / "f.parquet").serialized_size
    assert scan.report.bytes_read is not None
    # The footer, and the bytes that are read with it.
    assert scan.report.bytes_read <= max(footer + 8, 64 * 1024)
    scan = tamis.open(tmp_path / "f.parquet").scan("id >= 150 AND id < 900")
    assert aggregate(get_planner(scan), [], [Measure("count")]).to_pylist() == [{"m0": 750}]


def test_F1_the_maximum_of_floats_is_nan_if_there_is_one(tmp_path: Path) -> None:
    rows = pa.table({"x": [1.0, float("nan"), 2.0, None], "y": [float("nan"), None, float("nan"), None]})
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=1)
    table = tamis.open(tmp_path / "f.parquet")
    x, y = (Column((name,), type=pa.float64()) for name in ("x", "y"))
    measures = [Measure("min", x), Measure("max", x), Measure("min", y), Measure("count", y)]
    ((smallest, largest, other, count),) = aggregate_rows(table, None, [], measures)
    assert (smallest, count) == (1.0, 2)
    assert isinstance(largest, float)
    assert math.isnan(largest)
    assert isinstance(other, float)
    assert math.isnan(other)


def test_I3_a_count_of_an_iceberg_table_opens_no_file_and_a_maximum_opens_few(tmp_path: Path) -> None:
    fields = [field(1, "id", "long"), field(2, "day", "int"), field(3, "text", "string")]
    folder = IcebergFolder(tmp_path, fields, specs=[[(2, "identity", "day")]])
    parts = [
        pa.table({"id": range(start, start + 10), "day": pa.array([start % 20] * 10, pa.int32()), "text": ["x"] * 10})
        for start in range(0, 300, 10)
    ]
    folder.commit(*(folder.data_file(f"{number}.parquet", part) for number, part in enumerate(parts)))
    table = tamis.open(tmp_path)
    measures = [Measure("count"), Measure("count", TEXT), Measure("count", DAY)]
    last = [f"{number}.parquet" for number in range(30 - DEFAULT_TUNING.min_files_per_round, 30)]
    remove_files(tmp_path, *last)
    # The bounds of a file decide which files to read first; only its footer proves that they are values.
    assert aggregate_rows(table, None, [], [Measure("max", ID)]) == [[299]]
    remove_files(tmp_path)
    assert aggregate_rows(table, None, [], measures) == [[300, 300, 300]]
    assert aggregate_rows(table, "id < 100", [], measures) == [[100, 100, 100]]
    assert sorted(aggregate_rows(table, "id < 100", [DAY], measures)) == [[0, 50, 50, 50], [10, 50, 50, 50]]
    with pytest.raises(tamis.errors.MissingFile):
        aggregate_rows(table, "id < 105", [], measures)
