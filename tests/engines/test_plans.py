"""O8 over random tables and predicates: plans by workers equal local plans.

The workers are functions of this process, which get and give bytes as those of Spark do; `tests/engines/spark` has the
others.
"""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.delta.cases import random_delta_case
from builders.engines.worker_engine import WorkerHere, assert_same_plans, fresh_plan
from builders.hive.cases import PARTITIONING, random_hive_case
from builders.parquet.by_pages import read_by_pages
from builders.values.choices import Choices
from tamis import PartitionFilter
from tamis.formats.delta.planning import prune_files as files
from tamis.formats.hive import tree as listing_job
from tamis.formats.jobs import AUTO_BYTES, AUTO_PARTS, Planning
from tamis.formats.open_source import open_source
from tamis.formats.source import LEVELS
from tamis.io.storage import open_storage
from tamis.scan.planning import slices

FEWER = settings(max_examples=max(1, settings().max_examples // 4))
"""A whole table is written for each example."""

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@pytest.fixture(autouse=True, scope="module")
def _by_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_by_pages(patch)
        yield


@contextmanager
def small_slices(choices: Choices) -> Iterator[None]:
    """Use small slices, so that a table of few files is planned in several parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "FILES_PER_SLICE", choices.number(1, 4))
        patch.setattr(listing_job, "DIRECTORIES_PER_CALL", choices.number(1, 4))
        patch.setattr(files, "MOST_FILES_WHILE_READING", choices.one_of([files.MOST_FILES_WHILE_READING, 1, 3]))
        yield


@FEWER
@given(st.data())
def test_O8_D1_D6_D15_D16_plans_of_delta_tables_equal_local_plans(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder, small_slices(choices):
        case = random_delta_case(choices, Path(folder), predicates=3)
        version = choices.number(0, len(case.versions) - 1)
        elsewhere = tamis.Table(open_source(folder, version=version, planning=Planning(WorkerHere(), "spark")))
        here = tamis.open(folder, version=version)
        for where in (None, *(said.expr for said in case.said)):
            options = {"levels": choices.one_of([LEVELS, choices.one_of(SUBSETS)]), "limit": choices.one_of([None, 3])}
            for depth in ("files", "pages"):
                plans = [fresh_plan(table, where, depth, **options) for table in (elsewhere, here)]
                assert_same_plans(*plans)
            assert elsewhere.scan(where, **options).count() == here.scan(where, **options).count()


@FEWER
@given(st.data())
def test_O8_plans_of_hive_tables_equal_local_plans(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder, small_slices(choices):
        root = Path(folder) / "t"
        said = random_hive_case(choices, root, predicates=3)
        worker = WorkerHere()
        elsewhere = tamis.Table(open_source(root, partitioning=PARTITIONING, planning=Planning(worker, "spark")))
        here = tamis.open(root, partitioning=PARTITIONING)
        for where in (None, PartitionFilter.eq("region", "eu"), *(each.expr for each in said)):
            levels = choices.one_of([LEVELS, choices.one_of(SUBSETS)])
            for depth in ("files", "row_groups", "pages"):
                plans = [fresh_plan(table, where, depth, levels=levels) for table in (elsewhere, here)]
                assert_same_plans(*plans)
        assert any(what.startswith("read ") for what, _ in worker.jobs)


def test_auto_planning_uses_workers_for_many_bytes_in_several_parts(tmp_path: Path) -> None:
    storage = open_storage(tmp_path)
    planning = Planning(WorkerHere(), "auto")
    assert planning.choose_engine(storage, AUTO_PARTS, AUTO_BYTES) is planning.engine
    assert planning.choose_engine(storage, AUTO_PARTS - 1, AUTO_BYTES) is None
    assert planning.choose_engine(storage, AUTO_PARTS, AUTO_BYTES - 1) is None
    assert Planning(planning.engine, "spark").choose_engine(storage, 1, 0) is planning.engine
    assert Planning(planning.engine, "local").choose_engine(storage, 1000, 2 * AUTO_BYTES) is None
