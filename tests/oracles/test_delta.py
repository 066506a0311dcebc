"""Scans of Delta tables against the judge: O1 to O6 over random tables, written by hand and by deltalake."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.judge import truths
from builders.answers.same_rows import same_rows
from builders.delta.cases import ROW, DeltaCase, random_delta_case
from builders.delta.deltalake_cases import random_deltalake_case
from builders.delta.less_known import know_less
from builders.parquet.by_pages import read_by_pages
from builders.values.choices import Choices, SeededChoices
from builders.values.predicates import Said, negated
from tamis import PartitionFilter
from tamis.errors import UnknownColumn
from tamis.expr.nodes import Call, not_
from tamis.formats.delta.planning import file_batches
from tamis.formats.delta.planning import prune_files as files
from tamis.formats.source import LEVELS
from tamis.scan.scan import planner_of

FEWER = settings(max_examples=max(1, settings().max_examples // 4))
"""A whole table is written for each example."""

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@pytest.fixture(autouse=True, scope="module")
def _by_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_by_pages(patch)
        yield


@contextmanager
def some_way_of_planning(choices: Choices) -> Iterator[None]:
    """Files of a log one by one or together, with much room in memory or little, or out of memory."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files, "MOST_FILES_WHILE_READING", choices.one_of([files.MOST_FILES_WHILE_READING, 1, 3]))
        patch.setattr(files, "MOST_CACHED_FILES_TOGETHER", choices.one_of([files.MOST_CACHED_FILES_TOGETHER, 1, 3]))
        patch.setattr(
            file_batches, "MIN_SHARE_TO_DECODE_ALL", choices.one_of([file_batches.MIN_SHARE_TO_DECODE_ALL, 0.0, 2.0])
        )
        patch.setattr(
            file_batches.FILE_BATCH_CACHE, "capacity", choices.one_of([file_batches.FILE_BATCH_CACHE.capacity, 0, 5000])
        )
        yield


def true_rows(rows: pa.Table, said: list[Said]) -> list[pa.Table]:
    """The rows for which each predicate is TRUE."""
    found = truths(rows, [each.sql for each in said])
    return [rows.filter(pa.array([answer is True for answer in answers], pa.bool_())) for answers in found]


def row_ids(rows: pa.Table) -> Counter[int]:
    return Counter(rows[ROW].to_pylist())


def check_rows(found: pa.Table, expected: pa.Table, *context: object) -> None:
    assert found.schema.names == expected.schema.names
    assert same_rows(found.sort_by(ROW), expected), (*context, found.to_pylist(), expected.to_pylist())


@FEWER
@given(st.data())
def test_O1_D1_D6_D15_D16_D19_every_subset_of_levels_returns_the_rows_of_a_full_scan(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(choices, Path(folder), predicates=3)
        rows = case.rows()
        table = tamis.open(folder)
        check_rows(table.scan().to_arrow(), rows)
        assert table.scan().count() == rows.num_rows
        for said, expected in zip(case.said, true_rows(rows, case.said), strict=True):
            for levels in (LEVELS, choices.one_of(SUBSETS)):
                with some_way_of_planning(choices):
                    check_rows(table.scan(said.expr, levels=levels).to_arrow(), expected, said, levels)
                    assert table.scan(said.expr, levels=levels).count() == expected.num_rows, (said, levels)


@FEWER
@given(st.data())
def test_O1_D17_every_version_has_its_rows_however_it_is_reached(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(choices, Path(folder), predicates=1)
        for version in choices.some_of(range(len(case.versions)), 1, 3):
            rows = case.rows(version)
            table = tamis.open(folder, version=version)
            assert table.version == version
            (expected,) = true_rows(rows, case.said)
            check_rows(table.scan(case.said[0].expr).to_arrow(), expected, case.said, version)
            assert table.scan().count() == rows.num_rows
            newest = table.refresh()
            assert newest.version == len(case.versions) - 1
            (expected,) = true_rows(case.rows(), case.said)
            check_rows(newest.scan(case.said[0].expr).to_arrow(), expected, case.said, "refreshed", version)


@FEWER
@given(st.data())
def test_O2_rows_of_p_and_not_p_and_p_is_null_are_all_rows(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(Choices(data.draw), Path(folder), predicates=2)
        table = tamis.open(folder)
        for said in case.said:
            found = [table.scan(where) for where in (said.expr, not_(said.expr), Call("is_null", (said.expr,)))]
            assert sum((row_ids(scan.to_arrow()) for scan in found), Counter()) == row_ids(case.rows()), said
            assert sum(scan.count() for scan in found) == case.rows().num_rows, said


@FEWER
@given(st.data())
def test_O3_the_file_of_a_row_for_which_p_is_true_is_planned(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(Choices(data.draw), Path(folder), predicates=4)
        table = tamis.open(folder)
        for said, expected in zip(case.said, true_rows(case.rows(), case.said), strict=True):
            wanted = set(row_ids(expected))
            needed = {path for path, stored in _live(case) if wanted & set(stored[ROW].to_pylist())}
            plan = table.scan(said.expr).plan("files")
            planned = {path.removeprefix(f"{folder}/") for path in plan.files["path"].to_pylist()}
            assert needed <= planned, said


@FEWER
@given(st.data())
def test_O4_O6_files_that_match_whole_have_only_such_rows_and_both_sides_skip_only_nulls(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(Choices(data.draw), Path(folder), predicates=4)
        ids = {path: stored[ROW].to_pylist() for path, stored in _live(case)}
        check_whole_and_both_sides(tamis.open(folder), ids, case.rows(), case.said)


@FEWER
@given(st.data())
def test_O5_less_known_of_files_never_removes_one(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(choices, Path(folder), predicates=4)
        check_less_known(folder, choices, case.said)


@FEWER
@given(st.data())
def test_O3_O4_O5_O6_tables_that_deltalake_wrote(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_deltalake_case(choices, Path(folder), predicates=3)
        table = tamis.open(folder)
        ids = _stored_ids(table)
        assert Counter(each for own in ids.values() for each in own) == row_ids(case.rows), case.done
        for said, expected in zip(case.said, true_rows(case.rows, case.said), strict=True):
            wanted = set(row_ids(expected))
            needed = {path for path, own in ids.items() if wanted & set(own)}
            assert needed <= planned_files(table, said).keys(), (said, case.done)
        check_whole_and_both_sides(table, ids, case.rows, case.said)
        # What deltalake writes has no order that is the same each time, and Hypothesis would see other choices.
        check_less_known(folder, SeededChoices(choices.number(0, 1_000_000)), case.said)


def planned_files(table: tamis.Table, said: Said) -> dict[str, bool]:
    """The files that a scan plans, below the table, and whether each matches whole."""
    listing = planner_of(table.scan(said.expr)).listing
    assert listing.matched is not None
    paths = [path.removeprefix(f"{table._source.storage.root}/") for path in listing.files["path"].to_pylist()]
    return dict(zip(paths, listing.matched.tolist(), strict=True))


def check_whole_and_both_sides(table: tamis.Table, ids: dict[str, list[int]], rows: pa.Table, said: list[Said]) -> None:
    """`ids` are the rows of each file, by their numbers."""
    numbers = rows[ROW].to_pylist()
    for each, answers in zip(said, truths(rows, [one.sql for one in said]), strict=True):
        answer = dict(zip(numbers, answers, strict=True))
        kept = planned_files(table, each)
        for path in (path for path, is_whole in kept.items() if is_whole):
            assert all(answer[row] is True for row in ids[path]), (each, path)
        other = planned_files(table, negated(each))
        for path in ids.keys() - kept.keys() - other.keys():
            assert all(answer[row] is None for row in ids[path]), (each, path)


def check_less_known(folder: str, choices: Choices, said: list[Said]) -> None:
    table = tamis.open(folder)
    before = [planned_files(table, each) for each in said]
    know_less(Path(folder), choices)
    file_batches.FILE_BATCH_CACHE.clear()
    table = tamis.open(folder)
    for each, known in zip(said, before, strict=True):
        found = planned_files(table, each)
        assert known.keys() <= found.keys(), each
        # A file that was skipped before may be kept now and match whole: one without rows, say.
        assert all(known[path] or not found[path] for path in known), each


@FEWER
@given(st.data())
def test_a_limit_returns_so_many_of_the_rows(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(choices, Path(folder), predicates=2)
        table = tamis.open(folder)
        limit = choices.number(0, 6)
        for where, expected in [
            (None, case.rows()),
            *zip((said.expr for said in case.said), true_rows(case.rows(), case.said), strict=True),
        ]:
            found = row_ids(table.scan(where, limit=limit).to_arrow())
            assert found.total() == min(limit, expected.num_rows), where
            assert found <= row_ids(expected), where
            assert table.scan(where, limit=limit).count() == min(limit, expected.num_rows), where


@FEWER
@given(st.data())
def test_O1_D3_partition_filters_see_the_texts_of_the_log(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_delta_case(choices, Path(folder), predicates=0)
        table = tamis.open(folder)
        for _ in range(3):
            wanted = choices.some_of(["eu", "null", "1", "-7", "true", "1970-01-02", "1.50", ""], 1, 3)
            kept = PartitionFilter.in_("p", wanted)
            filter = kept | PartitionFilter.is_null("q") if choices.flag() else kept
            if not set(filter.columns) <= set(case.schema.names):
                with pytest.raises(UnknownColumn, match="no partition column"):
                    table.scan(filter).to_arrow()
                continue
            live = [
                stored.live_rows
                for stored in case.versions[-1].values()
                if (stored.texts.get("p") or None) in wanted or (filter is not kept and not stored.texts.get("q"))
            ]
            expected = pa.concat_tables([case.schema.empty_table(), *live])
            with some_way_of_planning(choices):
                assert row_ids(table.scan(filter).to_arrow()) == row_ids(expected), filter
                assert table.scan(filter).count() == expected.num_rows, filter
                limit = choices.number(0, 5)
                assert table.scan(filter, limit=limit).to_arrow().num_rows == min(limit, expected.num_rows), filter


@FEWER
@given(st.data())
def test_O1_O2_tables_that_deltalake_wrote(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = random_deltalake_case(choices, Path(folder), predicates=2)
        table = tamis.open(folder)
        names = [f"`{name}`" for name in case.rows.column_names]
        assert set(table.schema.names) == set(case.rows.column_names)
        check_rows(table.scan(columns=names).to_arrow(), case.rows, case.done)
        assert table.scan().count() == case.rows.num_rows, case.done
        for said, expected in zip(case.said, true_rows(case.rows, case.said), strict=True):
            for levels in (LEVELS, choices.one_of(SUBSETS)):
                check_rows(table.scan(said.expr, names, levels=levels).to_arrow(), expected, said, levels, case.done)
                assert table.scan(said.expr, levels=levels).count() == expected.num_rows, (said, levels, case.done)
            rest = [table.scan(where).count() for where in (not_(said.expr), Call("is_null", (said.expr,)))]
            assert expected.num_rows + sum(rest) == case.rows.num_rows, (said, case.done)


def _live(case: DeltaCase) -> list[tuple[str, pa.Table]]:
    return [(path, stored.live_rows) for path, stored in case.versions[-1].items()]


def _stored_ids(table: tamis.Table) -> dict[str, list[int]]:
    """The rows of each file of a table without deletion vectors."""
    source = table._source
    (name,) = source.snapshot.metadata.physical((ROW,))
    paths = table.files()["path"].to_pylist()
    return {
        path.removeprefix(f"{source.storage.root}/"): pq.ParquetFile(path).read(columns=[name])[name].to_pylist()
        for path in paths
    }
