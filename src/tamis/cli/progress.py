"""A progress bar on stderr, for people who wait: only on a terminal, and only once a second has passed."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import monotonic
from typing import TYPE_CHECKING

from tamis.scan.funnel import format_bytes
from tamis.scan.rows import LazyScan

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE_SECONDS = 1.0
_BAR_WIDTH = 40
_UPDATES_PER_SECOND = 5


class Meter:
    """Work under way: `done` of `total`, which may be unknown. The bar asks for `done` whenever it is drawn."""

    def __init__(self, title: str, done: Callable[[], int], describe: Callable[[int], str] = "{:,}".format) -> None:
        self.title = title
        self.total: int | None = None
        self._done = done
        self._describe = describe
        self._started = monotonic()

    def __rich__(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        done, total = self._done(), self.total
        # What is read may exceed the plan a little, where gaps between ranges are read too.
        done = done if total is None else min(done, total)
        bar = ProgressBar(total, done, width=_BAR_WIDTH, pulse=not total)
        parts = [self._describe(done) if not total else f"{self._describe(done)} of {self._describe(total)}"]
        seconds = int(monotonic() - self._started)
        grid = Table.grid(padding=(0, 2))
        grid.add_row(self.title, bar, *parts, f"{seconds // 60}:{seconds % 60:02}")
        return grid


@contextmanager
def show_progress(meter: Meter, *, is_wanted: bool) -> Iterator[Meter]:
    """Draw the meter while the body runs, once it has run for a second; it is gone afterwards."""
    if not is_wanted:
        yield meter
        return
    # Not in a pipe, where it is of no use.
    from rich.console import Console
    from rich.live import Live

    live = Live(meter, console=Console(stderr=True), refresh_per_second=_UPDATES_PER_SECOND, transient=True)
    lock = Lock()
    is_over = False

    def start() -> None:
        with lock:
            if not is_over:
                live.start()

    timer = Timer(PATIENCE_SECONDS, start)
    timer.daemon = True
    timer.start()
    try:
        yield meter
    finally:
        timer.cancel()
        with lock:
            is_over = True
            live.stop()


def bytes_meter(title: str, scan: LazyScan) -> Meter:
    """A meter of the bytes that a scan reads."""
    return Meter(title, lambda: scan.bytes_read, format_bytes)


def expect_bytes(meter: Meter, scan: LazyScan) -> None:
    """Plan a scan to the end, which tells how much it will read."""
    plan = scan.plan()
    meter.total = scan.bytes_read + plan.bytes


def is_watched() -> bool:
    """Whether somebody looks at stderr, and nothing that scrolls by on stdout would tear the bar apart."""
    return sys.stderr.isatty() and sys.stdout.isatty()
