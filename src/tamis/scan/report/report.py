"""The report of a scan: the metrics of each level, and what was read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tamis.errors import suggest_method_arguments
from tamis.skipping.metrics import LevelReport


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
        from tamis.scan.report.funnel import format_funnel

        return format_funnel(self)

    def _repr_html_(self) -> str:
        from tamis.scan.report.funnel import format_funnel_html

        return format_funnel_html(self)


def add_level(report: Report, level: LevelReport) -> None:
    """Add the metrics of some units to their level. A level that is not in the report is appended."""
    known = report.level(level.level)
    if known is None:
        report.levels.append(level)
    else:
        known.add(level)
