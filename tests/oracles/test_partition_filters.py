"""Partition filters of Delta tables, which compare the texts of the log, against the rows of the files they keep."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.delta.cases import ROW, draw_delta_case
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices
from oracles.formats.delta import vary_planning
from tamis import PartitionFilter
from tamis.errors import UnknownColumn


def count_row_ids(rows: pa.Table) -> Counter[int]:
    return Counter(rows[ROW].to_pylist())


@settings(max_examples=max(1, settings().max_examples // 4))
@given(st.data())
def test_O1_D3_partition_filters_see_the_texts_of_the_log(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(choices, Path(folder), predicates=0)
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
            tuning = vary_planning(choices, BY_PAGES)
            assert count_row_ids(table.scan(filter, tuning=tuning).to_arrow()) == count_row_ids(expected), filter
            assert table.scan(filter, tuning=tuning).count() == expected.num_rows, filter
            limit = choices.number(0, 5)
            limited = table.scan(filter, limit=limit, tuning=tuning).to_arrow()
            assert limited.num_rows == min(limit, expected.num_rows), filter
