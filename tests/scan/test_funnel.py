"""The funnel as text: columns that stay in line whatever stands between them."""

from __future__ import annotations

from tamis.scan.report.funnel import funnel_text
from tamis.scan.report.report import Report, add_level
from tamis.skipping.metrics import LevelReport
from tamis.skipping.prune import ConjunctOutcome

NOTE = "a sentence that is much longer than every part of the filter"


def test_a_note_is_a_line_of_its_own_that_pushes_nothing_aside() -> None:
    parts = (ConjunctOutcome("a = 1", 3, None), ConjunctOutcome("bcd > 5", 0, None))
    report = Report("t", "hive", "a = 1 AND bcd > 5", ("a",))
    add_level(report, LevelReport("files", 5, 2, by_predicate=parts))
    add_level(report, LevelReport("row_groups", 5, 2, by_predicate=parts[:1], note=NOTE))
    add_level(report, LevelReport("pages", 5, 5, note="switched off"))
    _, details = funnel_text(report).split("\n\nfiles ", 1)
    assert f"files {details}".splitlines() == [
        "files        a = 1     skipped 3",
        "             bcd > 5   checked, nothing to skip",
        "row_groups   a = 1     skipped 3",
        f"             {NOTE}",
        "pages        switched off",
    ]
