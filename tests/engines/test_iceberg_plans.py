"""O8 over random Iceberg tables: plans of manifests by workers equal local plans."""

from __future__ import annotations

import itertools
import tempfile
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.engines.worker_engine import InProcessEngine, assert_same_plans, make_fresh_plan
from builders.iceberg.cases import draw_iceberg_case
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices
from tamis.formats.jobs import Planning
from tamis.formats.open_source import open_source
from tamis.formats.source import LEVELS

FEWEST = settings(max_examples=max(1, settings().max_examples // 12))
"""A whole table is written for each example."""

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@FEWEST
@given(st.data())
def test_O8_I1_I6_plans_of_iceberg_tables_equal_local_plans(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        tuning = replace(BY_PAGES, files_per_slice=choices.number(1, 4))
        case = draw_iceberg_case(choices, Path(folder), predicates=3)
        number, _ = choices.one_of(case.states)
        worker = InProcessEngine()
        planning = Planning(worker, "spark")
        elsewhere = tamis.Table(open_source(folder, snapshot_id=number, planning=planning, tuning=tuning))
        here = tamis.open(folder, snapshot_id=number, tuning=tuning)
        for where in (None, *(said.expr for said in case.predicates)):
            options = {"levels": choices.one_of([LEVELS, choices.one_of(SUBSETS)]), "limit": choices.one_of([None, 3])}
            for depth in ("files", "pages"):
                plans = [make_fresh_plan(table, where, depth, **options) for table in (elsewhere, here)]
                assert_same_plans(*plans)
            assert elsewhere.scan(where, **options).count() == here.scan(where, **options).count()
        assert worker.jobs
