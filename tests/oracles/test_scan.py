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
from builders.answers.judge import truths
from builders.hive.tables import write_hive_table
from builders.values.by_type import array_of, judge_column, narrower_types, values_that_fit
from builders.values.choices import Choices
from builders.values.predicates import Said, Subject
from builders.values.random_rows import (
    random_column,
    random_predicate,
    random_schema,
    random_type,
    random_values,
    subject_of,
)
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import Call, not_
from tamis.formats.source import LEVELS

ROW = "row_id"
PARTITION_TEXTS = ["eu", "us", "a=b", "x%y", "é", "1", "01", "", None]
PARTITION_TYPES = {"region": pa.string(), "day": pa.int32()}

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@dataclass
class Case:
    """A table as files and as the rows that it must have, and predicates about it."""

    parts: list[tuple[dict[str, str | None], pa.Table]]
    rows: pa.Table
    said: list[Said]
    options: dict[str, Any]
    choices: Choices


@st.composite
def cases(draw: st.DrawFn, predicates: int = 3) -> Case:
    choices = Choices(draw)
    fields = list(random_schema(choices))
    if choices.flag(3):
        fields.append(pa.field("st", pa.struct([("x", random_type(choices)), ("y", pa.string())])))
    if choices.flag(4):
        fields.append(pa.field("li", pa.list_(pa.int32())))
    names = ["region", "day"][: choices.one_of([0, 0, 1, 2])]
    values = {field.name: _leaf_values(choices, field.type) for field in fields}
    parts: list[tuple[dict[str, str | None], pa.Table]] = []
    whole: list[pa.Table] = []
    for index in range(choices.number(1, 3)):
        count = choices.one_of([*range(1, 13), 0])
        texts = {"region": choices.one_of(PARTITION_TEXTS), "day": choices.one_of(["1", "2", "10", None])}
        used = {name: texts[name] for name in names}
        numbers = pa.array(range(sum(map(len, whole)), sum(map(len, whole)) + count), pa.int64())
        stored = {field.name: _column(choices, field.type, values[field.name], count) for field in fields}
        expected = dict(stored)
        if index and not names:
            # The first file says what the types are; the others may have narrower ones, or lack the column.
            _vary(choices, fields, stored, expected, count)
        parts.append((used, pa.table(stored | {ROW: numbers})))
        partition = {name: _partition_column(name, texts[name] or None, count) for name in names}
        whole.append(pa.table(expected | {ROW: numbers} | partition))
    rows = pa.concat_tables(whole)
    subjects = list(_subjects(rows))
    options = {
        "row_group_size": choices.number(1, 6),
        "data_page_version": choices.one_of(["1.0", "2.0"]),
        "use_dictionary": choices.flag(),
        "write_statistics": choices.one_of([True, True, True, ["c0"], False]),
        "write_page_index": choices.flag(),
        "max_rows_per_page": choices.one_of([1, 2, 3, 1000]),
        "write_batch_size": 1,
    }
    if all("c0" in part.column_names for _, part in parts) and not pa.types.is_boolean(fields[0].type):
        # Filters so small that they take many values for present that are not there.
        options["bloom_filter_options"] = choices.one_of([None, {"c0": {"ndv": 1, "fpp": 0.2}}])
    said = [random_predicate(choices, subjects) for _ in range(predicates)]
    return Case(parts, rows, said, options, choices)


def _leaf_values(choices: Choices, data_type: pa.DataType) -> list[Any]:
    if pa.types.is_struct(data_type):
        return [_leaf_values(choices, child.type) for child in data_type]
    if pa.types.is_list(data_type):
        return [[], [1], [None, -3], [2, 2, 2]]
    return random_values(choices, data_type)


def _column(choices: Choices, data_type: pa.DataType, values: list[Any], count: int) -> pa.Array:
    if pa.types.is_struct(data_type):
        children = [_column(choices, child.type, own, count) for child, own in zip(data_type, values, strict=True)]
        absent = pa.array([choices.flag(4) for _ in range(count)], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(data_type), mask=absent)
    if pa.types.is_list(data_type):
        return pa.array([choices.one_of([*values, None]) for _ in range(count)], data_type)
    return array_of(data_type, random_column(choices, values, count))


def _vary(
    choices: Choices, fields: list[pa.Field], stored: dict[str, pa.Array], expected: dict[str, pa.Array], count: int
) -> None:
    for field in fields:
        narrower = narrower_types(field.type)
        if choices.flag(8):
            del stored[field.name]
            expected[field.name] = pa.nulls(count, field.type)
        elif narrower and choices.flag(3):
            narrow = choices.one_of(narrower)
            own = choices.some_of(values_that_fit(narrow, field.type), 1, 3)
            stored[field.name] = array_of(narrow, random_column(choices, own, count))
            expected[field.name] = stored[field.name].cast(field.type)


def _partition_column(name: str, text: str | None, count: int) -> pa.Array:
    # Hive cannot tell an empty text from NULL.
    value = text if text is None or name == "region" else int(text)
    return pa.array([value] * count, PARTITION_TYPES[name])


def _subjects(rows: pa.Table) -> list[Subject]:
    found = []
    for field in rows.schema:
        if pa.types.is_struct(field.type):
            for child in field.type:
                values = pa.concat_arrays(rows[field.name].chunks).field(child.name)
                found.append(subject_of((field.name, child.name), child.type, map(to_physical_value, values)))
        elif not pa.types.is_list(field.type) and field.name != ROW:
            found.append(subject_of((field.name,), field.type, map(to_physical_value, rows[field.name])))
    return found


def opened(case: Case, folder: str) -> tamis.Table:
    partitioning = {name: {"region": "string", "day": "int"}[name] for name in case.parts[0][0]}
    root = write_hive_table(Path(folder) / "t", case.parts, **case.options)
    return tamis.open(root, partitioning=partitioning)


def row_ids(table: pa.Table) -> Counter[int]:
    return Counter(table[ROW].to_pylist())


def expected_ids(case: Case) -> list[Counter[int]]:
    """The rows for which each predicate is TRUE."""
    numbers = case.rows[ROW].to_pylist()
    return [
        Counter(row for row, answer in zip(numbers, answers, strict=True) if answer is True)
        for answers in truths(case.rows, [said.sql for said in case.said])
    ]


@given(cases())
def test_O1_every_subset_of_levels_returns_the_rows_of_a_full_scan(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = opened(case, folder)
        for said, expected in zip(case.said, expected_ids(case), strict=True):
            for levels in (LEVELS, case.choices.one_of(SUBSETS)):
                scan = table.scan(said.expr, levels=levels)
                assert row_ids(scan.to_arrow()) == expected, said
                assert scan.count() == expected.total(), said


@settings(max_examples=max(1, settings().max_examples // 10))
@given(cases(predicates=1))
def test_O1_no_subset_of_levels_is_an_exception(case: Case) -> None:
    (expected,) = expected_ids(case)
    with tempfile.TemporaryDirectory() as folder:
        table = opened(case, folder)
        for levels in SUBSETS:
            assert row_ids(table.scan(case.said[0].expr, levels=levels).to_arrow()) == expected, levels


@given(cases(predicates=2))
def test_O2_rows_of_p_and_not_p_and_p_is_null_are_all_rows(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = opened(case, folder)
        for said in case.said:
            found = [table.scan(where) for where in (said.expr, not_(said.expr), Call("is_null", (said.expr,)))]
            together = sum((row_ids(scan.to_arrow()) for scan in found), Counter())
            assert together == row_ids(case.rows)
            assert sum(scan.count() for scan in found) == case.rows.num_rows


@given(cases(predicates=2))
def test_rows_come_back_with_the_values_that_were_written(case: Case) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = opened(case, folder)
        for said, wanted in zip(case.said, expected_ids(case), strict=True):
            found = table.scan(said.expr, columns=case.rows.column_names).to_arrow().sort_by(ROW)
            kept = case.rows.filter(pa.array([row in wanted for row in case.rows[ROW].to_pylist()], pa.bool_()))
            assert found.schema.names == kept.schema.names
            assert texts_of(found) == texts_of(kept), said


def texts_of(rows: pa.Table) -> list[str]:
    """Rows as texts, which tell NaN and the sign of zero; timestamps as nanoseconds, in any unit."""

    def plain(values: pa.Array) -> pa.Array:
        if pa.types.is_struct(values.type):
            children = [plain(child) for child in values.flatten()]
            return pa.StructArray.from_arrays(
                children, names=list(map(str, range(len(children)))), mask=values.is_null()
            )
        return judge_column(values) if pa.types.is_timestamp(values.type) else values

    columns = {name: plain(pa.concat_arrays(rows[name].chunks)) for name in rows.column_names if rows.num_rows}
    return [repr(row) for row in pa.table(columns).to_pylist()]
