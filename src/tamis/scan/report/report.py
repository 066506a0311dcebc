"""The report of a scan: the metrics of each level and what was read, also as text and as HTML."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from html import escape
from typing import Any

from tamis.errors import format_count, suggest_method_arguments
from tamis.skipping.metrics import LevelReport, is_not_needed, label_outcomes
from tamis.skipping.prune import ConjunctOutcome


@suggest_method_arguments("Report")
@dataclass(slots=True)
class Report:
    """The metrics of each level of a scan, in order, and the bytes and requests once it was read."""

    table: str
    format: str
    where: str | None
    columns: tuple[str, ...]
    levels: list[LevelReport] = field(default_factory=list)
    bytes_read: int | None = None
    requests: int | None = None
    note: str | None = None
    """Text instead of levels, where a policy hides them."""
    _labels: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)
    """The `Predicate.labels` of the filter."""
    _implied: Mapping[str, str] = field(default_factory=dict, compare=False, repr=False)

    def level(self, name: str) -> LevelReport | None:
        """Return the metrics of a level; None if the scan does not have it."""
        return next((level for level in self.levels if level.level == name), None)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain values, as `--json` prints it."""
        return {
            "table": self.table,
            "format": self.format,
            "where": self.where,
            "columns": list(self.columns),
            "levels": [level.to_dict() for level in self.levels],
            "bytes_read": self.bytes_read,
            "requests": self.requests,
        } | ({} if self.note is None else {"note": self.note})

    def __str__(self) -> str:
        return format_funnel(self)

    def _repr_html_(self) -> str:
        return format_funnel_html(self)


def add_level(report: Report, level: LevelReport) -> None:
    """Add the metrics of some units to their level, by the conditions that the user wrote. A level that is not in the
    report is appended."""
    level = replace(level, by_predicate=label_outcomes(level.by_predicate, report._labels, report._implied))
    known = report.level(level.level)
    if known is None:
        report.levels.append(level)
    else:
        known.add(level)


# --- The funnel: a report as aligned text and as HTML -----------------------------------------------------------------
#
# flights (hive) where origin = 'JFK' AND dep_delay > 60
# level            total       kept          bytes       kept bytes
# partitions          36         12              –                –
# files               12         12        1.9 MiB          1.9 MiB
# row_groups          48         31        1.1 MiB        812.4 KiB
#
# partitions    origin = 'JFK'   skipped 24
#               dep_delay > 60   not used: not a partition column

_UNITS = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def format_bytes(count: int | None) -> str:
    """Return a number of bytes as text with a unit.

    >>> format_bytes(512), format_bytes(1536), format_bytes(None)
    ('512 B', '1.5 KiB', '–')
    """
    if count is None:
        return "–"
    value, unit = float(count), 0
    while value >= 1024 and unit < len(_UNITS) - 1:
        value, unit = value / 1024, unit + 1
    return f"{count} B" if unit == 0 else f"{value:.1f} {_UNITS[unit]}"


def describe_outcome(outcome: ConjunctOutcome) -> str:
    """Describe the effect of a conjunct."""
    if outcome.skipped:
        return f"skipped {outcome.skipped:,}"
    if outcome.unused_because is None:
        return "checked, nothing to skip"
    if is_not_needed(outcome):
        return outcome.unused_because
    return f"not used: {outcome.unused_because}"


_HEADINGS = ("level", "total", "kept", "bytes", "kept bytes")


def _format_cells(level: LevelReport) -> tuple[str, ...]:
    return (
        level.level,
        f"{level.total:,}",
        f"{level.kept:,}",
        format_bytes(level.bytes_total),
        format_bytes(level.bytes_kept),
    )


def _format_title(report: Report) -> str:
    return f"{report.table} ({report.format})" + (f" where {report.where}" if report.where else ", all rows")


def _format_read(report: Report) -> str | None:
    if report.bytes_read is None:
        return None
    return f"read {format_bytes(report.bytes_read)} in {format_count(report.requests or 0, 'request')}"


def format_funnel(report: Report) -> str:
    """Return the report as aligned lines."""
    if report.note is not None:
        return f"{_format_title(report)}\n\n{report.note}"
    rows = [_HEADINGS, *(_format_cells(level) for level in report.levels)]
    widths = [max(len(row[index]) for row in rows) for index in range(len(_HEADINGS))]
    lines = [_format_title(report), ""]
    for row in rows:
        first, *rest = (cell.ljust(width) if index == 0 else cell.rjust(width)
                        for index, (cell, width) in enumerate(zip(row, widths, strict=True)))  # fmt: skip
        lines.append("   ".join((first, *rest)).rstrip())
    longest = max((len(outcome.predicate) for level in report.levels for outcome in level.by_predicate), default=0)
    details = [line for level in report.levels for line in _format_details(level, widths[0], longest)]
    if details:
        lines += ["", *details]
    if (read := _format_read(report)) is not None:
        lines += ["", read]
    return "\n".join(lines)


def _format_details(level: LevelReport, width: int, longest: int) -> list[str]:
    entries = [f"{outcome.predicate:<{longest}}   {describe_outcome(outcome)}" for outcome in level.by_predicate]
    if level.note:
        # A note is a sentence: it must not widen the columns.
        entries.append(level.note)
    return [f"{'' if index else level.level:<{width}}   {entry}".rstrip() for index, entry in enumerate(entries)]


def format_funnel_html(report: Report) -> str:
    """Return the report as an HTML table, for notebooks. All text from the data is escaped."""
    if report.note is not None:
        return f"<p>{escape(_format_title(report))}</p><p>{escape(report.note)}</p>"
    head = "".join(f"<th>{escape(heading)}</th>" for heading in (*_HEADINGS, "by predicate"))
    body = []
    for level in report.levels:
        cells = "".join(f'<td style="text-align:right">{escape(cell)}</td>' for cell in _format_cells(level)[1:])
        details = "<br>".join(
            f"<code>{escape(outcome.predicate)}</code> {escape(describe_outcome(outcome))}"
            for outcome in level.by_predicate
        )
        body.append(f"<tr><th>{escape(level.level)}</th>{cells}<td>{details}</td></tr>")
    read = _format_read(report)
    caption = escape(_format_title(report)) + (f" — {escape(read)}" if read else "")
    return (
        f'<table><caption style="text-align:left">{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"
    )
