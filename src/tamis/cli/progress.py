"""A progress bar on stderr: only on a terminal, and only after a second."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock, Timer
from time import monotonic
from typing import TYPE_CHECKING

from tamis.scan.report.report import format_bytes
from tamis.scan.scan import LazyScan

if TYPE_CHECKING:
    from rich.table import Table

PATIENCE_SECONDS = 1.0
_BAR_WIDTH = 40
_UPDATES_PER_SECOND = 5


class Meter:
    """Progress of some work: `done` of `total`, which may be unknown. The bar reads `done` whenever it is drawn."""

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
        # Gaps between ranges are read too, so that a little more may be read than planned.
        done = done if total is None else min(done, total)
        bar = ProgressBar(total, done, width=_BAR_WIDTH, pulse=not total)
        seconds = monotonic() - self._started
        grid = Table.grid(padding=(0, 2))
        grid.add_row(self.title, bar, *self.list_facts(done, seconds), f"{int(seconds) // 60}:{int(seconds) % 60:02}")
        return grid

    def list_facts(self, done: int, seconds: float) -> list[str]:
        """Return the texts beside the bar."""
        return [self._describe(done) if not self.total else f"{self._describe(done)} of {self._describe(self.total)}"]


@contextmanager
def show_progress(meter: Meter, *, is_wanted: bool) -> Iterator[Meter]:
    """Draw the meter while the body runs, after its first second, and clear it afterwards."""
    if not is_wanted:
        yield meter
        return
    # Imported here, because pipes have no bar.
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


def make_bytes_meter(title: str, scan: LazyScan) -> Meter:
    """Return a meter of the bytes that a scan reads."""
    return Meter(title, lambda: scan.bytes_read, format_bytes)


def set_total_bytes(meter: Meter, scan: LazyScan) -> None:
    """Plan a scan, so that the meter has a total."""
    plan = scan.plan()
    meter.total = scan.bytes_read + plan.bytes


def is_interactive() -> bool:
    """Return whether stderr is a terminal, and stdout too, so that no output breaks the bar."""
    return all(stream is not None and stream.isatty() for stream in (sys.stderr, sys.stdout))
