"""Whole scans against the judge: O1 to O3 over random schemas, data, layouts and predicates."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.judge import truth
from builders.predicates import PRIMITIVES, Said, array_of, predicates, values
from builders.tables import write_hive_table
from tamis.expr.nodes import Call, not_
from tamis.tables.source import LEVELS

ROW = "row_id"
PARTITION_TEXTS = ["eu", "us", "a=b", "x%y", "é", "1", "01", "", None]


@dataclass
class Case:
    """A table as files and as the rows that it must have."""

    parts: list[tuple[dict[str, str | None], pa.Table]]
    rows: pa.Table
    row_group_size: int
    said: Said
    options: dict[str, Any]


@st.composite
def cases(draw: st.DrawFn) -> Case:
    types = draw(st.lists(st.sampled_from(PRIMITIVES), min_size=1, max_size=3))
    fields = [pa.field(f"c{index}", each) for index, each in enumerate(types)]
    nested = draw(st.booleans())
    if nested:
        inner = draw(st.sampled_from(PRIMITIVES))
        fields.append(pa.field("st", pa.struct([("x", inner), ("y", pa.string())])))
    if draw(st.booleans()):
        fields.append(pa.field("li", pa.list_(pa.int32())))
    partitioned = draw(st.sampled_from([0, 0, 1, 2]))
    names = ["region", "day"][:partitioned]
    parts: list[tuple[dict[str, str | None], pa.Table]] = []
    whole: list[pa.Table] = []
    next_row = 0
    for _ in range(draw(st.integers(1, 3))):
        count = draw(st.integers(0, 12))
        texts = {"region": draw(st.sampled_from(PARTITION_TEXTS)), "day": draw(st.sampled_from(["1", "2", "10", None]))}
        columns = {field.name: draw(_column(field, count)) for field in fields}
        columns[ROW] = pa.array(range(next_row, next_row + count), pa.int64())
        next_row += count
        rows = pa.table(columns)
        used = {name: texts[name] for name in names}
        parts.append((used, rows))
        for name in names:
            # Hive cannot tell an empty text from NULL.
            rows = rows.append_column(name, _partition_column(name, texts[name] or None, count))
        whole.append(rows)
    rows = pa.concat_tables(whole)
    columns_by_path: dict[tuple[str, ...], pa.DataType] = {}
    for field in rows.schema:
        if pa.types.is_struct(field.type):
            columns_by_path |= {(field.name, child.name): child.type for child in field.type}
        elif not pa.types.is_list(field.type) and field.name != ROW:
            columns_by_path[(field.name,)] = field.type
    said = draw(predicates(columns_by_path))
    options = {"data_page_version": draw(st.sampled_from(["1.0", "2.0"])), "use_dictionary": draw(st.booleans())}
    return Case(parts, rows, draw(st.integers(1, 6)), said, options)


def _partition_column(name: str, text: str | None, count: int) -> pa.Array:
    if name == "region":
        return pa.array([text] * count, pa.string())
    return pa.array([None if text is None else int(text)] * count, pa.int32())


@st.composite
def _column(draw: st.DrawFn, field: pa.Field, count: int) -> pa.Array:
    if pa.types.is_struct(field.type):
        children = [draw(_column(child, count)) for child in field.type]
        absent = draw(st.lists(st.booleans(), min_size=count, max_size=count))
        return pa.StructArray.from_arrays(children, fields=list(field.type), mask=pa.array(absent, pa.bool_()))
    if pa.types.is_list(field.type):
        lists = st.one_of(st.none(), st.lists(st.one_of(st.none(), st.integers(-3, 3)), max_size=3))
        return pa.array(draw(st.lists(lists, min_size=count, max_size=count)), field.type)
    physical = draw(st.lists(st.one_of(values(field.type), st.none()), min_size=count, max_size=count))
    if draw(st.booleans()):
        physical = sorted(physical, key=lambda value: (value is None, value != value, 0 if value is None else value))
    return array_of(field.type, physical)


def opened(case: Case, folder: Path) -> tamis.Table:
    partitioning = {name: {"region": "string", "day": "int"}[name] for name in case.parts[0][0]}
    root = write_hive_table(folder / "t", case.parts, row_group_size=case.row_group_size, **case.options)
    return tamis.open(root, partitioning=partitioning)


def row_ids(table: pa.Table) -> Counter[int]:
    return Counter(table[ROW].to_pylist())


def expected_ids(case: Case, sql: str) -> Counter[int]:
    answers = truth(case.rows, sql)
    return Counter(row for row, answer in zip(case.rows[ROW].to_pylist(), answers, strict=True) if answer is True)


SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@settings(deadline=None)
@given(cases())
def test_O1_every_subset_of_levels_returns_the_rows_of_a_full_scan(case: Case) -> None:
    expected = expected_ids(case, case.said.sql)
    with tempfile.TemporaryDirectory() as folder:
        table = opened(case, Path(folder))
        for levels in SUBSETS:
            scan = table.scan(case.said.expr, levels=levels)
            assert row_ids(scan.to_arrow()) == expected
            assert scan.count() == expected.total()


@settings(deadline=None)
@given(cases())
def test_O2_rows_of_p_and_not_p_and_p_is_null_are_all_rows(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = opened(case, Path(folder))
        wheres = (case.said.expr, not_(case.said.expr), Call("is_null", (case.said.expr,)))
        found = [table.scan(where) for where in wheres]
        together = sum((row_ids(scan.to_arrow()) for scan in found), Counter())
        assert together == row_ids(case.rows)
        assert sum(scan.count() for scan in found) == case.rows.num_rows


@settings(deadline=None)
@given(cases())
def test_rows_come_back_with_the_values_that_were_written(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = opened(case, Path(folder))
        found = table.scan(case.said.expr, columns=case.rows.column_names).to_arrow().sort_by(ROW)
        wanted = expected_ids(case, case.said.sql)
        kept = case.rows.filter(pa.array([row in wanted for row in case.rows[ROW].to_pylist()], pa.bool_()))
        assert found.schema.names == kept.schema.names
        assert repr(found.to_pylist()) == repr(kept.to_pylist())
