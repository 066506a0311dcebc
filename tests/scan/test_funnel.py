"""The funnel: units skipped at each level add up to total − kept, and the text stays aligned."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.delta.cases import draw_delta_case
from builders.hive.cases import draw_hive_case
from builders.hive.indexed import write_files
from builders.iceberg.cases import draw_iceberg_case
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate
from tamis import PartitionFilter
from tamis.expr.nodes import Column, and_
from tamis.formats.source import LEVELS
from tamis.scan.aggregation.aggregate_scan import aggregate
from tamis.scan.aggregation.measures import Measure
from tamis.scan.aggregation.top_n import read_top_rows
from tamis.scan.report.report import Report, add_level, format_funnel
from tamis.scan.scan import get_planner
from tamis.skipping.metrics import LevelReport, merge_outcomes
from tamis.skipping.prune import NO_UNITS_LEFT, ConjunctOutcome

FEWER = settings(max_examples=max(1, settings().max_examples // 4))
"""A whole table is written for each example."""

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]

NOTE = "a sentence that is much longer than every part of the filter"


def check_sums(report: Report | None, *context: object) -> None:
    """Check that the outcomes of each level explain every unit that it skips."""
    assert report is not None
    for level in report.to_dict()["levels"]:
        skipped = sum(each["skipped"] for each in level["by_predicate"])
        assert skipped == level["total"] - level["kept"], (level, *context)
        shown = [each["predicate"] for each in level["by_predicate"]]
        assert len(shown) == len(set(shown)), (level, *context)


def check_scans(table: tamis.Table, choices: Choices, said: list[OraclePredicate]) -> None:
    """Check plans and reads with several conjuncts, partition filters, limits and any subset of levels."""
    others = ("path", "size", "num_records", "modified")
    columns = [name for name in table.files().column_names if name not in others and "." not in name]
    filters: list[object] = [
        None,
        and_(*(each.expr for each in said)),
        *(each.expr for each in said),
        *(PartitionFilter.is_not_null(column) for column in columns),
        *(PartitionFilter.or_(PartitionFilter.eq(column, "eu"), PartitionFilter.gt(column, "1")) for column in columns),
    ]
    for where in (filters[1], choices.one_of(filters)):
        for limit in (None, choices.number(0, 6)):
            for levels in (LEVELS, choices.one_of(SUBSETS)):
                scan = table.scan(where, limit=limit, levels=levels)
                context = (where, limit, levels)
                for depth in ("files", "row_groups", "pages"):
                    check_sums(scan.plan(depth).report, depth, *context)
                if isinstance(where, PartitionFilter) or choices.flag():
                    scan = table.scan(where, limit=limit, levels=levels)
                scan.to_arrow()
                check_sums(scan.report, "read", *context)
                scan.count()
                check_sums(scan.report, "count", *context)


@FEWER
@given(st.data())
def test_skipped_units_of_a_delta_table_add_up(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(choices, Path(folder), predicates=2)
        tuning = replace(BY_PAGES, max_files_while_reading=choices.one_of([64 * 1024, 1, 3]))
        check_scans(tamis.open(folder, tuning=tuning), choices, case.predicates)


@FEWER
@given(st.data())
def test_skipped_units_of_an_iceberg_table_add_up(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_iceberg_case(choices, Path(folder), predicates=2)
        check_scans(tamis.open(folder, tuning=BY_PAGES), choices, case.predicates)


@FEWER
@given(st.data())
def test_skipped_units_of_a_hive_table_add_up(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        said = draw_hive_case(choices, Path(folder), predicates=2)
        check_scans(tamis.open(folder, tuning=BY_PAGES), choices, said)


@pytest.mark.parametrize("where", ["id > 25 AND name = 'n7'", "id BETWEEN 12 AND 25", "x > 3 AND id < 15"])
def test_skipped_units_of_an_indexed_table_add_up(tmp_path: Path, where: str) -> None:
    root = write_files(tmp_path / "table", range(4))
    tamis.index.build(root, bloom=["name"])
    for limit in (None, 2):
        scan = tamis.open(root, tuning=BY_PAGES).scan(where, limit=limit)
        check_sums(scan.plan().report, where, limit)
        scan.to_arrow()
        check_sums(scan.report, where, limit)


@pytest.mark.parametrize("is_indexed", [False, True])
def test_a_report_names_the_conditions_of_the_user(tmp_path: Path, is_indexed: bool) -> None:
    root = write_files(tmp_path / "table", range(4))
    if is_indexed:
        tamis.index.build(root, bloom=["name"])
    conditions = ["ID BETWEEN 12 AND 25", "NOT (x > 1000 OR name = 'n7')", "x > 3"]
    scan = tamis.open(root, tuning=BY_PAGES).scan(" AND ".join(conditions))
    scan.to_arrow()
    for report in (scan.report, *(scan.plan(depth).report for depth in ("files", "row_groups", "pages"))):
        check_sums(report)
        assert report is not None
        assert report.where == " AND ".join(conditions)
        shown = {each.predicate for level in report.levels for each in level.by_predicate if level.level != "rows"}
        assert shown == set(conditions)


def test_skipped_files_of_a_delta_checkpoint_add_up(tmp_path: Path) -> None:
    deltalake = pytest.importorskip("deltalake")
    for number in range(6):
        rows = pa.table({"p": [f"p{number % 3}"], "x": [number], "y": [number * 10]})
        deltalake.write_deltalake(tmp_path / "t", rows, mode="append", partition_by=["p"])
    table = deltalake.DeltaTable(tmp_path / "t")
    table.create_checkpoint()
    table.delete("x = 1")
    for where in ("p = 'p1' AND x > 1", "x > 2 AND y > 30", "p > 'p0' AND y < 20 AND x < 5"):
        scan = tamis.open(str(tmp_path / "t"), tuning=BY_PAGES).scan(where)
        check_sums(scan.plan().report, where)


def test_skipped_rows_of_aggregations_and_top_rows_add_up(tmp_path: Path) -> None:
    root = write_files(tmp_path / "table", range(4))
    planner = get_planner(tamis.open(root, tuning=BY_PAGES).scan("x > 2 AND id < 28", columns=["id"]))
    column = Column(("id",), type=pa.int64())
    for measures in ([Measure("max", column), Measure("count")], [Measure("min", column)], [Measure("sum", column)]):
        aggregate(planner, [], measures)
        check_sums(planner.report, measures)
    for _ in read_top_rows(planner, column, 3, descending=True, nulls_first=False, with_ties=False):
        pass
    check_sums(planner.report, "top")
    scan = tamis.open(root, tuning=BY_PAGES).scan("x > 2")
    batches = scan.to_batches()
    next(batches)
    assert isinstance(batches, Generator)
    batches.close()
    check_sums(scan.report, "stopped")


def test_conjuncts_without_units_say_so(tmp_path: Path) -> None:
    for region in ("eu", "us"):
        (tmp_path / f"region={region}").mkdir()
        pq.write_table(pa.table({"id": [1, 2], "n": [3, 3]}), tmp_path / f"region={region}" / "a.parquet")
    table = tamis.open(tmp_path)
    found = []
    for where in ("region = 'ap' AND id < 5", "id > 5 AND n = 3"):
        scan = table.scan(where)
        assert scan.count() == 0
        found.append(str(scan.report).splitlines())
    assert [line.split("   ")[-1].strip() for line in found[0] if line.startswith("files")] == ["0 B", "no units left"]
    assert "             n = 3    no units left" in found[1]


def test_merged_units_have_the_reason_of_those_that_are_left() -> None:
    merged = [
        merge_outcomes((ConjunctOutcome("a", 0, one),), (ConjunctOutcome("a", 0, other),))[0].unused_because
        for one, other in [(NO_UNITS_LEFT, None), (None, NO_UNITS_LEFT), (NO_UNITS_LEFT, "overlaps")]
    ]
    assert merged == [None, None, "overlaps"]


def test_a_note_is_a_separate_line_and_keeps_columns_aligned() -> None:
    parts = (ConjunctOutcome("a = 1", 3, None), ConjunctOutcome("bcd > 5", 0, None))
    report = Report("t", "hive", "a = 1 AND bcd > 5", ("a",))
    add_level(report, LevelReport("files", 5, 2, by_predicate=parts))
    add_level(report, LevelReport("row_groups", 5, 2, by_predicate=parts[:1], note=NOTE))
    add_level(report, LevelReport("pages", 5, 5, note="switched off"))
    _, details = format_funnel(report).split("\n\nfiles ", 1)
    assert f"files {details}".splitlines() == [
        "files        a = 1     skipped 3",
        "             bcd > 5   checked, nothing to skip",
        "row_groups   a = 1     skipped 3",
        f"             {NOTE}",
        "pages        switched off",
    ]
