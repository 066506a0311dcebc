"""Top-n over random tables, with ties, NULL and NaN, without reading the rest."""

from __future__ import annotations

import math
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
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
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Column
from tamis.scan.aggregation.measures import can_compare
from tamis.scan.aggregation.top_n import read_top_rows
from tamis.scan.scan import get_planner
from tamis.tuning import Tuning

FEWER = settings(max_examples=max(1, settings().max_examples // 6))
"""A whole table is written for each example."""

FILE_BY_FILE = Tuning(min_files_per_round=1)


def rank_values(values: pa.Array, *, descending: bool, nulls_first: bool) -> list[tuple[int, int]]:
    """Return the sort rank of each value. NaN is larger than every number."""
    plain = [to_physical_value(value) for value in values]
    known = sorted({value for value in plain if value is not None and not is_nan(value)}, reverse=descending)
    ranks = {value: rank for rank, value in enumerate(known)}

    def rank_value(value: Any) -> tuple[int, int]:
        if value is None:
            return (-1 if nulls_first else 9, 0)
        if is_nan(value):
            return (0 if descending else 8, 0)
        return (1, ranks[value])

    return [rank_value(value) for value in plain]


def is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


def get_values(rows: pa.Table, column: Column) -> pa.Array:
    chunks = rows[column.path[0]].chunks
    values = pa.concat_arrays(chunks) if chunks else pa.array([], rows.schema.field(column.path[0]).type)
    return pc.struct_field(values, list(column.path[1:])) if len(column.path) > 1 else values


def format_rows(rows: pa.Table) -> list[str]:
    """Return rows as strings, with timestamps as numbers, because Python does not support all of them."""
    columns = [
        column.cast(pa.int64()) if pa.types.is_timestamp(column.type) else column.cast(pa.int32())
        if pa.types.is_date(column.type) else column
        for column in rows.columns
    ]  # fmt: skip
    return [repr(row) for row in pa.table(columns, names=rows.column_names).to_pylist()]


def check(
    choices: Choices, table: tamis.Table, rows: pa.Table, said: list[OraclePredicate], keys: object = None
) -> None:
    columns = [Column((field.name,), type=field.type) for field in rows.schema if can_compare(field.type)]
    for each in [None, *said]:
        expected = rows
        if each is not None:
            (answers,) = evaluate_predicates(rows, [each.sql])
            expected = rows.filter(pa.array([answer is True for answer in answers], pa.bool_()))
        column = choices.one_of(columns)
        order = {"descending": choices.flag(), "nulls_first": choices.flag()}
        count, with_ties = choices.number(1, 5), choices.flag()
        scan = table.scan(None if each is None else each.expr)
        batches = list(read_top_rows(get_planner(scan), column, count, **order, with_ties=with_ties))
        found = pa.Table.from_batches(batches, scan.schema)
        context = (each, column, order, count, with_ties)
        # All rows exist in the table, and each comes once.
        assert not Counter(format_rows(found)) - Counter(format_rows(expected)), context
        wanted = sorted(rank_values(get_values(expected, column), **order))[:count]
        all_ranks = dict(zip(format_rows(expected), rank_values(get_values(expected, column), **order), strict=True))
        assert sorted(all_ranks[text] for text in format_rows(found))[:count] == wanted, context
        if with_ties and wanted:
            needed = Counter(text for text in format_rows(expected) if all_ranks[text] <= wanted[-1])
            assert not needed - Counter(format_rows(found)), context


@FEWER
@given(st.data())
def test_D15_D16_top_n_of_delta_tables(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(choices, Path(folder), predicates=2)
        check(choices, tamis.open(folder, tuning=FILE_BY_FILE), case.rows(), case.predicates)


@FEWER
@given(st.data())
def test_I6_I7_top_n_of_iceberg_tables(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_iceberg_case(choices, Path(folder), predicates=2)
        check(choices, tamis.open(folder, tuning=FILE_BY_FILE), case.rows(), case.predicates)


@FEWER
@given(st.data())
def test_F1_F4_top_n_of_hive_tables(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        said = draw_hive_case(choices, Path(folder), predicates=2)
        table = tamis.open(folder, partitioning=PARTITIONING, tuning=FILE_BY_FILE)
        check(choices, table, table.scan().to_arrow(), said)


# --- What is read -----------------------------------------------------------------------------------------------------


def write_clustered_table(folder: Path) -> tamis.Table:
    """Write a Delta table of ten files with consecutive ranges of `id`, and their bounds in the log."""
    log = DeltaLog(folder, {"id": "long", "text": "string"})
    rows = [pa.table({"id": range(start, start + 10), "text": ["x" * 50] * 10}) for start in range(0, 100, 10)]
    log.commit(*(data_file(log, f"{number}.parquet", part) for number, part in enumerate(rows)))
    return tamis.open(folder, tuning=FILE_BY_FILE)


@pytest.mark.parametrize(("descending", "files"), [(True, {"9.parquet"}), (False, {"0.parquet"})])
def test_only_the_file_at_the_end_of_the_order_is_opened(tmp_path: Path, descending: bool, files: set[str]) -> None:
    table = write_clustered_table(tmp_path)
    for path in tmp_path.glob("*.parquet"):
        if path.name not in files:
            path.unlink()
    scan = table.scan()
    order = Column(("id",), type=pa.int64())
    found = list(
        read_top_rows(get_planner(scan), order, 3, descending=descending, nulls_first=not descending, with_ties=False)
    )
    ids = sorted(pa.Table.from_batches(found)["id"].to_pylist(), reverse=descending)
    assert ids[:3] == ([99, 98, 97] if descending else [0, 1, 2])


def test_row_groups_beyond_the_limit_are_not_read(tmp_path: Path) -> None:
    rows = pa.table({"id": range(10_000), "text": [f"text {number}" for number in range(10_000)]})
    pq.write_table(rows, tmp_path / "f.parquet", row_group_size=100)
    scan = tamis.open(tmp_path / "f.parquet", tuning=FILE_BY_FILE).scan()
    order = Column(("id",), type=pa.int64())
    found = list(read_top_rows(get_planner(scan), order, 5, descending=True, nulls_first=False, with_ties=True))
    assert pa.Table.from_batches(found)["id"].to_pylist() == list(range(9995, 10_000))
    assert scan.report is not None
    rows_level = scan.report.level("rows")
    assert rows_level is not None
    assert rows_level.total == 100
