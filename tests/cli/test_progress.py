"""The progress bar appears after a second, on a terminal only, and is removed at the end."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.console import Console

import tamis
from tamis.cli import progress
from tamis.cli.progress import Meter, make_bytes_meter, set_total_bytes, show_progress


class Clock:
    """A timer that fires when the test calls it."""

    def __init__(self, seconds: float, ring: object) -> None:
        self.seconds = seconds
        self.ring = ring
        self.is_cancelled = False
        clocks.append(self)

    def start(self) -> None:
        pass

    def cancel(self) -> None:
        self.is_cancelled = True


clocks: list[Clock] = []


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks.clear()
    monkeypatch.setattr(progress, "Timer", Clock)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("FORCE_COLOR", "1")


def print_meter(meter: Meter) -> str:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(meter)
    return capture.get()


def test_nothing_is_shown_without_a_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Meter("scanning", lambda: 1), is_wanted=False):
        pass
    assert clocks == []
    assert capsys.readouterr().err == ""


def test_short_work_shows_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Meter("scanning", lambda: 1), is_wanted=True):
        pass
    (clock,) = clocks
    assert clock.seconds == 1.0
    assert clock.is_cancelled
    assert capsys.readouterr().err == ""


def test_work_of_more_than_a_second_shows_a_bar_that_goes_away(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Meter("scanning", lambda: 5), is_wanted=True) as meter:
        meter.total = 10
        assert callable(clocks[0].ring)
        clocks[0].ring()
    shown = capsys.readouterr().err
    assert "scanning" in shown
    assert "5 of 10" in shown
    assert shown.endswith("\x1b[2K")


def test_a_timer_that_fires_too_late_starts_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with show_progress(Meter("scanning", lambda: 5), is_wanted=True):
        pass
    assert callable(clocks[0].ring)
    clocks[0].ring()
    assert capsys.readouterr().err == ""


def test_meter_shows_progress() -> None:
    meter = Meter("reading", lambda: 1_500, "{:,} rows".format)
    assert "1,500 rows" in print_meter(meter)
    meter.total = 1_000
    assert "1,000 rows of 1,000 rows" in print_meter(meter)


def test_meter_of_a_scan_ends_at_what_it_read(folder: Path) -> None:
    scan = tamis.open(folder / "orders").scan("id < 320", columns=["amount"])
    meter = make_bytes_meter("scanning", scan)
    set_total_bytes(meter, scan)
    before = print_meter(meter)
    scan.to_arrow()
    assert scan.report is not None
    assert meter.total is not None
    assert 0 < (scan.report.bytes_read or 0) <= meter.total
    assert print_meter(meter) != before
