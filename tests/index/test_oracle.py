"""Scans with an index against the oracle: rows are those of a full scan, even if files changed after the build."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.oracle import evaluate_predicates
from builders.hive.scan_cases import ROW, HiveCase, draw_scan_case
from builders.values.choices import Choices
from oracles.formats.indexed import build_hive_index

EXAMPLES = max(5, settings().max_examples // 5)


@st.composite
def cases(draw: st.DrawFn) -> HiveCase:
    return draw_scan_case(Choices(draw), predicates=3)


def open_table(case: HiveCase, folder: str) -> tamis.Table:
    case.write(Path(folder) / "t")
    return tamis.open(Path(folder) / "t", partitioning=case.partitioning)


def reopen(case: HiveCase, table: tamis.Table) -> tamis.Table:
    return tamis.open(table.uri, partitioning=case.partitioning)


@settings(max_examples=EXAMPLES)
@given(cases())
def test_O5_what_is_left_of_a_file_by_the_index_is_what_its_footer_leaves(case: HiveCase) -> None:
    with tempfile.TemporaryDirectory() as folder:
        plain = open_table(case, folder)
        build_hive_index(case, plain)
        table = reopen(case, plain)
        for predicate in case.predicates:
            with_index, without = (each.scan(predicate.expr).plan("row_groups") for each in (table, plain))
            listed = set(table.scan(predicate.expr).plan("files").files["path"].to_pylist())
            expected = [task for task in without.tasks if task.path in listed]
            assert [replace(task, residual=()) for task in with_index.tasks] == [
                replace(task, residual=()) for task in expected
            ]
            # The index counts NaN, so it may prove more conjuncts than a footer.
            for found, other in zip(with_index.tasks, expected, strict=True):
                assert set(found.residual) <= set(other.residual)


@settings(max_examples=EXAMPLES)
@given(cases())
def test_E1_files_that_changed_since_the_index_was_built_are_read_as_they_are(case: HiveCase) -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = open_table(case, folder)
        build_hive_index(case, table)
        # The first file defines the columns.
        first, *others = table.files()["path"].to_pylist()
        for path in others:
            _change(case, Path(path), Path(first))
        changed = reopen(case, table)
        rows = tamis.open(table.uri, partitioning=case.partitioning, index=False).scan().to_arrow()
        for predicate, answers in zip(
            case.predicates, evaluate_predicates(rows, [predicate.sql for predicate in case.predicates]), strict=True
        ):
            expected = [row for row, answer in zip(rows[ROW].to_pylist(), answers, strict=True) if answer is True]
            found = changed.scan(predicate.expr)
            assert sorted(found.to_arrow()[ROW].to_pylist()) == sorted(expected), predicate
            assert found.count() == len(expected), predicate


def _change(case: HiveCase, path: Path, first: Path) -> None:
    """Remove a file, overwrite it with rows of another, add a file, or only touch it."""
    what = case.choices.one_of(["nothing", "remove", "replace", "add", "touch"])
    rows = pq.ParquetFile(path).read()
    other = pq.ParquetFile(first).read()
    if what == "remove":
        path.unlink()
    elif what == "replace":
        pq.write_table(other, path)
    elif what == "add":
        pq.write_table(rows, path.with_name(f"{path.stem}-more.parquet"))
    elif what == "touch":
        os.utime(path)
