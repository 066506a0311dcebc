"""Scans of Iceberg tables against the judge: O1 to O6 over random tables, written by hand and by pyiceberg."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.judge import truths
from builders.delta.cases import ROW
from builders.iceberg.cases import IcebergCase, random_iceberg_case
from builders.iceberg.less_known import know_less
from builders.parquet.by_pages import read_by_pages
from builders.pyiceberg.cases import random_pyiceberg_case
from builders.values.choices import Choices, SeededChoices
from builders.values.predicates import Said, negated
from tamis.expr.nodes import Call, not_
from tamis.formats.source import LEVELS
from tamis.scan.scan import planner_of

FEWER = settings(max_examples=max(1, settings().max_examples // 6))
"""A whole table is written for each example."""

FEWEST = settings(max_examples=max(1, settings().max_examples // 12))
"""Pyiceberg takes its time for each commit."""

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@pytest.fixture(autouse=True, scope="module")
def _by_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_by_pages(patch)
        yield


def true_rows(rows: pa.Table, said: list[Said]) -> list[pa.Table]:
    """The rows for which each predicate is TRUE."""
    found = truths(rows, [each.sql for each in said])
    return [rows.filter(pa.array([answer is True for answer in answers], pa.bool_())) for answers in found]


def row_ids(rows: pa.Table) -> Counter[int]:
    return Counter(rows[ROW].to_pylist())


def check_rows(found: pa.Table, expected: pa.Table, *context: object) -> None:
    assert found.schema.equals(expected.schema)
    # By values: what lies below a struct that is NULL may be anything.
    rows = [list(map(repr, each.to_pylist())) for each in (found.sort_by(ROW), expected)]
    assert rows[0] == rows[1], (*context, *rows)


@FEWER
@given(st.data())
def test_O1_I1_I3_I5_I6_I7_I9_I10_every_subset_of_levels_returns_the_rows_of_a_full_scan(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_iceberg_case(choices, Path(folder), predicates=3)
        rows = case.rows()
        table = tamis.open(folder)
        check_rows(table.scan().to_arrow(), rows, case.done)
        assert table.scan().count() == rows.num_rows, case.done
        for said, expected in zip(case.said, true_rows(rows, case.said), strict=True):
            for levels in (LEVELS, choices.one_of(SUBSETS)):
                check_rows(table.scan(said.expr, levels=levels).to_arrow(), expected, said, levels, case.done)
                assert table.scan(said.expr, levels=levels).count() == expected.num_rows, (said, levels, case.done)


@FEWER
@given(st.data())
def test_O1_I8_every_snapshot_has_its_rows(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_iceberg_case(choices, Path(folder), predicates=1)
        for state in choices.some_of(range(len(case.states)), 1, 3):
            number, _ = case.states[state]
            table = tamis.open(folder, snapshot_id=number)
            assert table.version == number
            (expected,) = true_rows(case.rows(state), case.said)
            check_rows(table.scan(case.said[0].expr).to_arrow(), expected, case.said, number, case.done)
            newest = table.refresh()
            (expected,) = true_rows(case.rows(), case.said)
            check_rows(newest.scan(case.said[0].expr).to_arrow(), expected, case.said, "refreshed", case.done)


@FEWER
@given(st.data())
def test_O2_rows_of_p_and_not_p_and_p_is_null_are_all_rows(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = random_iceberg_case(Choices(data.draw), Path(folder), predicates=2)
        table = tamis.open(folder)
        for said in case.said:
            found = [table.scan(where) for where in (said.expr, not_(said.expr), Call("is_null", (said.expr,)))]
            assert sum((row_ids(scan.to_arrow()) for scan in found), Counter()) == row_ids(case.rows()), said
            assert sum(scan.count() for scan in found) == case.rows().num_rows, said


@FEWER
@given(st.data())
def test_O3_O4_O6_files_of_true_rows_are_planned_and_whole_matches_hold_only_such(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = random_iceberg_case(Choices(data.draw), Path(folder), predicates=5)
        check_files(tamis.open(folder), _rows_of_files(case), case.rows(), case.said, case.done)


@FEWER
@given(st.data())
def test_O5_less_known_of_files_never_removes_one(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_iceberg_case(choices, Path(folder), predicates=4)
        kinds = {each["id"]: each["type"] for each in case.table.fields if isinstance(each["type"], str)}
        if not case.table.manifests_in_metadata:
            check_less_known(folder, choices, case.said, kinds)


@FEWEST
@given(st.data())
def test_O1_O2_tables_that_pyiceberg_wrote(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_pyiceberg_case(choices, Path(folder), predicates=2)
        table = tamis.open(case.metadata)
        check_rows(table.scan().to_arrow(), case.rows, case.done)
        assert table.scan().count() == case.rows.num_rows, case.done
        for said, expected in zip(case.said, true_rows(case.rows, case.said), strict=True):
            for levels in (LEVELS, choices.one_of(SUBSETS)):
                check_rows(table.scan(said.expr, levels=levels).to_arrow(), expected, said, levels, case.done)
                assert table.scan(said.expr, levels=levels).count() == expected.num_rows, (said, levels, case.done)
            rest = [table.scan(where).count() for where in (not_(said.expr), Call("is_null", (said.expr,)))]
            assert expected.num_rows + sum(rest) == case.rows.num_rows, (said, case.done)


@FEWEST
@given(st.data())
def test_O3_O4_O5_O6_tables_that_pyiceberg_wrote(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_pyiceberg_case(choices, Path(folder), predicates=3)
        table = tamis.open(folder)
        live = set(case.rows[ROW].to_pylist())
        ids = {
            path: [row for row in pq.ParquetFile(path).read(columns=[ROW])[ROW].to_pylist() if row in live]
            for path in table.files()["path"].to_pylist()
        }
        assert Counter(each for own in ids.values() for each in own) == row_ids(case.rows), case.done
        check_files(table, ids, case.rows, case.said, case.done)
        # Names of files are other ones each time, and Hypothesis would see other choices.
        check_less_known(folder, SeededChoices(choices.number(0, 1_000_000)), case.said, {1: "long"})


def planned_files(table: tamis.Table, said: Said) -> dict[str, bool]:
    """The files that a scan plans, and whether each matches whole."""
    listing = planner_of(table.scan(said.expr)).listing
    assert listing.matched is not None
    return dict(zip(listing.files["path"].to_pylist(), listing.matched.tolist(), strict=True))


def check_files(
    table: tamis.Table, ids: dict[str, list[int]], rows: pa.Table, said: list[Said], done: list[str]
) -> None:
    """`ids` are the rows of each file that are not deleted, by their numbers."""
    numbers = rows[ROW].to_pylist()
    for each, answers in zip(said, truths(rows, [one.sql for one in said]), strict=True):
        answer = dict(zip(numbers, answers, strict=True))
        kept = planned_files(table, each)
        needed = {path for path, own in ids.items() if any(answer[row] is True for row in own)}
        assert needed <= kept.keys(), (each, done)
        for path in (path for path, is_whole in kept.items() if is_whole):
            assert all(answer[row] is True for row in ids[path]), (each, path, done)
        other = planned_files(table, negated(each))
        for path in ids.keys() - kept.keys() - other.keys():
            assert all(answer[row] is None for row in ids[path]), (each, path, done)


def check_less_known(folder: str, choices: Choices, said: list[Said], kinds: dict[int, str]) -> None:
    table = tamis.open(folder)
    before = [planned_files(table, each) for each in said]
    know_less(Path(folder), choices, kinds)
    table = tamis.open(folder)
    for each, known in zip(said, before, strict=True):
        found = planned_files(table, each)
        assert known.keys() <= found.keys(), each
        # A file that was skipped before may be kept now and match whole: one without rows, say.
        assert all(known[path] or not found[path] for path in known), each


def _rows_of_files(case: IcebergCase) -> dict[str, list[int]]:
    """Paths are those in the folder, whatever place metadata names."""
    return {
        stored.file.path.replace(case.table.location, str(case.table.folder), 1): stored.live_rows[ROW].to_pylist()
        for stored in case.live
    }
