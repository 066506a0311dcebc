"""O8 over random Iceberg tables: plans of manifests by workers equal local plans."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.engines.worker_engine import WorkerHere, assert_same_plans, fresh_plan
from builders.iceberg.cases import random_iceberg_case
from builders.parquet.by_pages import read_by_pages
from builders.values.choices import Choices
from tamis.formats.jobs import Planning
from tamis.formats.open_source import open_source
from tamis.formats.source import LEVELS
from tamis.scan.planning import slices

FEWEST = settings(max_examples=max(1, settings().max_examples // 12))
"""A whole table is written for each example."""

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@pytest.fixture(autouse=True, scope="module")
def _by_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_by_pages(patch)
        yield


@FEWEST
@given(st.data())
def test_O8_I1_I6_plans_of_iceberg_tables_equal_local_plans(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(slices, "FILES_PER_SLICE", choices.number(1, 4))
        case = random_iceberg_case(choices, Path(folder), predicates=3)
        number, _ = choices.one_of(case.states)
        worker = WorkerHere()
        elsewhere = tamis.Table(open_source(folder, snapshot_id=number, planning=Planning(worker, "spark")))
        here = tamis.open(folder, snapshot_id=number)
        for where in (None, *(said.expr for said in case.said)):
            options = {"levels": choices.one_of([LEVELS, choices.one_of(SUBSETS)]), "limit": choices.one_of([None, 3])}
            for depth in ("files", "pages"):
                plans = [fresh_plan(table, where, depth, **options) for table in (elsewhere, here)]
                assert_same_plans(*plans)
            assert elsewhere.scan(where, **options).count() == here.scan(where, **options).count()
        assert worker.jobs
