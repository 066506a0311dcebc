"""Scans of Delta tables with an index against the oracle: deletes, mapped columns, wider types, every version."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.oracle import evaluate_predicates
from builders.answers.same_rows import has_same_rows
from builders.delta.cases import ROW, draw_delta_case
from builders.values.choices import Choices

EXAMPLES = max(5, settings().max_examples // 6)


def list_filter_columns(table: tamis.Table) -> list[str]:
    return [
        f"`{field.name}`"
        for field in table.schema
        if field.name not in table.partition_columns
        and not pa.types.is_nested(field.type)
        and not pa.types.is_boolean(field.type)
    ]


@settings(max_examples=EXAMPLES)
@given(st.data())
def test_O1_D6_D16_D17_D19_rows_with_an_index_are_those_of_a_full_scan_at_every_version(data: st.DataObject) -> None:
    choices = Choices(data.draw)
    with tempfile.TemporaryDirectory() as folder:
        case = draw_delta_case(choices, Path(folder), predicates=3)
        newest = tamis.open(folder)
        result = tamis.index.build(
            folder, bloom=[name for name in list_filter_columns(newest) if choices.flag()], false_positives=0.3
        )
        assert result.left_out == 0, result.left_out_because
        for version in {len(case.versions) - 1, choices.number(0, len(case.versions) - 1)}:
            rows = case.rows(version)
            table = tamis.open(folder, version=version)
            for predicate, answers in zip(
                case.predicates, evaluate_predicates(rows, [each.sql for each in case.predicates]), strict=True
            ):
                expected = rows.filter(pa.array([answer is True for answer in answers], pa.bool_()))
                assert has_same_rows(table.scan(predicate.expr).to_arrow().sort_by(ROW), expected), (predicate, version)
                assert table.scan(predicate.expr).count() == expected.num_rows, (predicate, version)
