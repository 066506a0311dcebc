"""Files older than what their table is now, against the judge: renamed, promoted and added fields, defaults, ids or
names in files, values that are known only of whole files. O1 for all of them."""

from __future__ import annotations

import itertools
import tempfile
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings

from builders.answers.judge import truths
from builders.parquet.evolved_files import ROW, EvolvedCase, evolved_cases
from tamis.formats.source import LEVELS
from tamis.scan.scan import Scan

SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]


@pytest.fixture(autouse=True)
def small_row_groups_are_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tamis.scan.planning.slices.SMALLEST", 0)


@settings(max_examples=max(10, settings().max_examples // 2))
@given(evolved_cases())
def test_O1_I5_T11_levels_do_not_change_the_rows_of_evolved_files(case: EvolvedCase) -> None:
    answers = truths(case.rows, [said.sql for said in case.said])
    with tempfile.TemporaryDirectory() as folder:
        table = case.write(Path(folder))
        for said, truth in zip(case.said, answers, strict=True):
            expected = case.rows.filter(pa.array([answer is True for answer in truth], pa.bool_()))
            for levels in (LEVELS, case.choices.one_of(SUBSETS)):
                scan = Scan(table, said.expr, levels=levels)
                found = scan.to_arrow()
                assert Counter(found[ROW].to_pylist()) == Counter(expected[ROW].to_pylist()), said
                assert texts_of(found.sort_by(ROW)) == texts_of(expected.select(found.column_names))
                assert scan.count() == expected.num_rows
                planned = Scan(table, said.expr, levels=levels)
                planned.plan()
                assert planned.to_arrow().num_rows == expected.num_rows


def texts_of(rows: pa.Table) -> list[str]:
    """Columns as texts, which tell NaN and the sign of zero, and NULL in a struct from a struct that is NULL."""

    def text(values: pa.Array) -> str:
        if pa.types.is_struct(values.type):
            return repr([values.is_valid().to_pylist(), *map(text, values.flatten())])
        return repr((values.cast(pa.int64()) if pa.types.is_timestamp(values.type) else values).to_pylist())

    return [text(pa.concat_arrays(column.chunks)) for column in rows.columns] if rows.num_rows else []
