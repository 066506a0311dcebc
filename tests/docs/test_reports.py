"""docs/reference/reports.md lists every field, level, reason and note of a report."""

from __future__ import annotations

from pathlib import Path

from tamis.formats.file_funnel import SKIPPING_NOTES
from tamis.formats.source import LEVELS
from tamis.parquet.indexes import page_pruning
from tamis.parquet.indexes.bloom_pruning import NO_FILTER
from tamis.scan.planning.slices import describe_whole_read
from tamis.scan.report.report import Report
from tamis.skipping import prune
from tamis.skipping.metrics import SWITCHED_OFF, LevelReport
from tamis.tuning import DEFAULT_TUNING

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "reports.md"
TEXT = PAGE.read_text(encoding="utf-8")


def test_every_field_is_listed() -> None:
    level = LevelReport("files", 1, 1)
    report = Report("t", "hive", None, (), [level], note="hidden").to_dict()
    fields = {*report, *report["levels"][0], "predicate", "skipped", "unused_because"}
    assert {field for field in fields if f"`{field}`" not in TEXT} == set()


def test_every_level_is_listed() -> None:
    assert [level for level in LEVELS if f"| `{level}` |" not in TEXT] == []


def test_every_constant_reason_and_note_is_listed() -> None:
    reasons = [
        prune.NO_STATISTICS,
        prune.OVERLAPS,
        prune.UNKNOWN_NAN_COUNT,
        page_pruning.NOT_AVAILABLE,
        page_pruning.NO_EQUALITY,
        page_pruning.SEVERAL_COLUMNS,
        page_pruning.MAY_BE_PRESENT,
        page_pruning.TOO_COSTLY,
        NO_FILTER.reason,
        SWITCHED_OFF,
        describe_whole_read(DEFAULT_TUNING.min_bytes_to_prune_pages),
        *SKIPPING_NOTES.values(),
    ]
    assert [reason for reason in reasons if f"`{reason}`" not in TEXT] == []
