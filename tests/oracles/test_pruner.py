"""`Pruner` over single files against the oracle: its row selection and its bitmap contain all matching rows."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from builders.answers.oracle import evaluate_predicates
from builders.parquet.page_cases import draw_page_case
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices
from builders.values.predicates import make_unknown_test, negate_predicate
from oracles.formats.pages import SUBSETS_BELOW
from tamis.parquet import PruneOptions, Pruner, TriState


@given(st.data())
def test_O3_O6_no_row_is_pruned_by_a_predicate_that_is_true_of_it(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    case = draw_page_case(choices, predicates=2)
    answers = evaluate_predicates(case.oracle_rows, [predicate.sql for predicate in case.predicates])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.parquet"
        path.write_bytes(case.content)
        counts = [group.num_rows for group in _read_row_groups(path)]
        levels = choices.one_of(SUBSETS_BELOW)
        options = PruneOptions.from_levels(levels, emit_roaring=True)
        for predicate, found in zip(case.predicates, answers, strict=True):
            for form, wanted in (
                (predicate, True),
                (negate_predicate(predicate), False),
                (make_unknown_test(predicate), None),
            ):
                result = Pruner(case.rows.schema, form.expr, options, tuning=BY_PAGES).prune(path)
                kept = result.row_selection.in_file(result.row_groups, counts).to_indices().tolist()
                lost = {row for row, answer in enumerate(found) if answer is wanted} - set(kept)
                assert not lost, (form, levels, case.written_by)
                assert result.roaring_bitmap is not None
                assert list(result.roaring_bitmap) == kept
                for rows, answer in zip(_split(found, counts), result.row_group_answers, strict=True):
                    if answer is TriState.TRUE:
                        assert all(row is wanted for row in rows), (form, levels)
                    elif answer is TriState.FALSE:
                        assert all(row is not wanted for row in rows), (form, levels)


def _split(rows: Sequence[bool | None], counts: list[int]) -> list[Sequence[bool | None]]:
    starts = [0, *accumulate(counts)]
    return [rows[start : start + count] for start, count in zip(starts, counts, strict=False)]


def _read_row_groups(path: Path) -> list[pq.RowGroupMetaData]:
    metadata = pq.read_metadata(path)
    return [metadata.row_group(index) for index in range(metadata.num_row_groups)]
