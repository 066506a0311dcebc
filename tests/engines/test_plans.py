"""O8 over random tables and predicates: plans by workers equal local plans.

The workers are functions of this process that receive and return bytes, as workers of Spark do. Tests with Spark are
in `tests/engines/spark`.
"""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.delta.cases import draw_delta_case
from builders.engines.worker_engine import InProcessEngine, assert_same_plans, make_fresh_plan
from builders.hive.cases import PARTITIONING, draw_hive_case
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices
from tamis import PartitionFilter
from tamis.formats.jobs import Planning
from tamis.formats.open_source import open_source
from tamis.formats.source import LEVELS
from tamis.io.storage import open_storage
from tamis.tuning import DEFAULT_TUNING, Tuning

FEWER = settings(max_examples=max(1, settings().max_examples // 4))
"""A whole table is written for each example."""

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


def choose_small_slices(choices: Choices) -> Tuning:
    """Return thresholds with which a table of few files is planned in several parts."""
    return replace(
        BY_PAGES,
        files_per_slice=choices.number(1, 4),
        directories_per_call=choices.number(1, 4),
        max_files_while_reading=choices.one_of([BY_PAGES.max_files_while_reading, 1, 3]),
    )


@FEWER
@given(st.data())
def test_O8_D1_D6_D15_D16_plans_of_delta_tables_equal_local_plans(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    tuning = choose_small_slices(choices)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(choices, Path(folder), predicates=3)
        version = choices.number(0, len(case.versions) - 1)
        planning = Planning(InProcessEngine(), "spark")
        elsewhere = tamis.Table(open_source(folder, version=version, planning=planning, tuning=tuning))
        here = tamis.open(folder, version=version, tuning=tuning)
        for where in (None, *(said.expr for said in case.predicates)):
            options = {"levels": choices.one_of([LEVELS, choices.one_of(SUBSETS)]), "limit": choices.one_of([None, 3])}
            for depth in ("files", "pages"):
                plans = [make_fresh_plan(table, where, depth, **options) for table in (elsewhere, here)]
                assert_same_plans(*plans)
            assert elsewhere.scan(where, **options).count() == here.scan(where, **options).count()


@FEWER
@given(st.data())
def test_O8_plans_of_hive_tables_equal_local_plans(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    tuning = choose_small_slices(choices)
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder) / "t"
        said = draw_hive_case(choices, root, predicates=3)
        worker = InProcessEngine()
        planning = Planning(worker, "spark")
        elsewhere = tamis.Table(open_source(root, partitioning=PARTITIONING, planning=planning, tuning=tuning))
        here = tamis.open(root, partitioning=PARTITIONING, tuning=tuning)
        for where in (None, PartitionFilter.eq("region", "eu"), *(each.expr for each in said)):
            levels = choices.one_of([LEVELS, choices.one_of(SUBSETS)])
            for depth in ("files", "row_groups", "pages"):
                plans = [make_fresh_plan(table, where, depth, levels=levels) for table in (elsewhere, here)]
                assert_same_plans(*plans)
        assert any(what.startswith("read ") for what, _ in worker.jobs)


def test_auto_planning_uses_workers_for_many_bytes_in_several_parts(tmp_path: Path) -> None:
    planning = Planning(InProcessEngine(), "auto")
    for tuning in (DEFAULT_TUNING, Tuning(spark_planning_min_parts=2, spark_planning_min_bytes=10)):
        storage = open_storage(tmp_path).with_tuning(tuning)
        parts, size = tuning.spark_planning_min_parts, tuning.spark_planning_min_bytes
        assert planning.choose_engine(storage, parts, size) is planning.engine
        assert planning.choose_engine(storage, parts - 1, size) is None
        assert planning.choose_engine(storage, parts, size - 1) is None
        assert Planning(planning.engine, "spark").choose_engine(storage, 1, 0) is planning.engine
        assert Planning(planning.engine, "local").choose_engine(storage, 1000, 2 * size) is None
