"""Runs benchmarks: rounds in which the contenders take turns, ratios, and the report of a run.

In every round the contenders of a comparison run one after another; each round begins with another contender. A ratio
is taken within a round, and the median of the rounds is reported. So a machine that becomes slower or faster during the
run changes both sides of a ratio. Times are for orientation; ratios are the result.

Every contender returns what it found, for example a number of rows. Different results are an error: a fast wrong result
does not count.
"""

from __future__ import annotations

import datetime
import gc
import importlib.metadata
import importlib.util
import os
import platform
import re
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
RESULTS = ROOT / "benchmarks" / "RESULTS.md"
PACKAGES = ("tamis", "pyarrow", "duckdb", "polars", "datafusion", "deltalake", "pyiceberg", "numpy")

MIB = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of a run."""

    data: Path
    """The folder for tables, which is created if it is missing."""
    quick: bool = False
    """Small tables and one round: shows that everything works, but the times mean nothing."""
    keep: bool = False
    """Do not delete the 100,000 files, the tables of 4 GB and the largest logs."""
    large: bool = False
    """Also run what takes much more time and disk space."""

    @property
    def rounds(self) -> int:
        return 1 if self.quick else 11


@dataclass(frozen=True, slots=True)
class Measured:
    """One run of one contender."""

    seconds: float
    cpu_seconds: float
    found: object
    process_seconds: float | None = None
    """From the start of the contender's own process to its end, with the interpreter and the imports."""
    peak_memory: int | None = None
    """The peak memory of the contender's own process."""
    memory_before: int | None = None
    """The part of it that is due to the interpreter and the imports."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A program that does the work. `run` measures the work, which may happen in another process."""

    name: str
    run: Callable[[], Measured]


@dataclass(frozen=True, slots=True)
class Timings:
    """All rounds of one contender, in the order of the rounds."""

    name: str
    rounds: tuple[Measured, ...]

    @property
    def seconds(self) -> float:
        return statistics.median(each.seconds for each in self.rounds)

    @property
    def cpu_seconds(self) -> float:
        return statistics.median(each.cpu_seconds for each in self.rounds)

    @property
    def peak_memory(self) -> float:
        return statistics.median(each.peak_memory or 0 for each in self.rounds)

    @property
    def memory_before(self) -> float:
        return statistics.median(each.memory_before or 0 for each in self.rounds)


@dataclass(frozen=True, slots=True)
class Ratio:
    """The median of the ratios of all rounds, the smallest and the largest of them, and the ratio of the median times.

    On a quiet machine the median and the ratio of the medians agree. If they do not, the rounds differ too much.
    """

    median: float
    least: float
    largest: float
    of_medians: float

    def __str__(self) -> str:
        return f"{_format_number(self.median)} ({_format_number(self.least)}–{_format_number(self.largest)})"

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)


def _format_number(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def here(name: str, work: Callable[[], object]) -> Contender:
    """Return a contender that works in this process. `work` returns what is compared with the other contenders."""

    def run() -> Measured:
        gc.collect()
        started, cpu_started = time.perf_counter(), time.process_time()
        found = work()
        return Measured(time.perf_counter() - started, time.process_time() - cpu_started, found)

    return Contender(name, run)


def interleave(contenders: Sequence[Contender], rounds: int, *, warm_up: bool = True) -> dict[str, Timings]:
    """Let the contenders take turns, and return their times. With `warm_up`, a first round is not counted."""
    measured: dict[str, list[Measured]] = {contender.name: [] for contender in contenders}
    for number in range(-1 if warm_up else 0, rounds):
        first = number % len(contenders)
        found: dict[str, object] = {}
        for contender in (*contenders[first:], *contenders[:first]):
            result = contender.run()
            found[contender.name] = result.found
            if number >= 0:
                measured[contender.name].append(result)
        if len(set(map(repr, found.values()))) > 1:
            raise SystemExit(f"the contenders found different things: {found}")
    return {name: Timings(name, tuple(runs)) for name, runs in measured.items()}


def ratio(numerator: Timings, denominator: Timings, *, cpu: bool = False) -> Ratio:
    """Return the time of one contender as a multiple of the other's."""
    each = [
        (one.cpu_seconds / max(other.cpu_seconds, 1e-9)) if cpu else (one.seconds / max(other.seconds, 1e-9))
        for one, other in zip(numerator.rounds, denominator.rounds, strict=True)
    ]
    of_medians = numerator.cpu_seconds / denominator.cpu_seconds if cpu else numerator.seconds / denominator.seconds
    return Ratio(statistics.median(each), min(each), max(each), of_medians)


def compare_memory(numerator: Timings, denominator: Timings) -> Ratio:
    """Return the peak memory of one contender as a multiple of the other's."""
    each = [
        (one.peak_memory or 0) / max(other.peak_memory or 0, 1)
        for one, other in zip(numerator.rounds, denominator.rounds, strict=True)
    ]
    of_medians = numerator.peak_memory / max(denominator.peak_memory, 1)
    return Ratio(statistics.median(each), min(each), max(each), of_medians)


def format_milliseconds(seconds: float) -> str:
    thousandths = seconds * 1000
    return f"{thousandths:,.1f} ms" if thousandths < 100 else f"{thousandths:,.0f} ms"


def format_mebibytes(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / MIB:,.2f} MiB" if count < 10 * MIB else f"{count / MIB:,.0f} MiB"


def make_speed_table(
    timings: Mapping[str, Timings], ours: Sequence[str], extra: Mapping[str, str] | None = None
) -> str:
    """Return a table with a row for each contender, which shows how many times as fast each of `ours` is."""
    lines = []
    peers = [name for name in timings if name not in ours]
    head = ["contender", "time", "CPU time", *(f"{name} is × as fast" for name in ours), "× by CPU time"]
    head += [] if extra is None else [""]
    for name in (*ours, *peers):
        timing = timings[name]
        row = [name, format_milliseconds(timing.seconds), format_milliseconds(timing.cpu_seconds)]
        row += ["" if name in ours else str(ratio(timing, timings[our])) for our in ours]
        row += [
            ""
            if name in ours
            else ", ".join(_format_number(ratio(timing, timings[our], cpu=True).median) for our in ours)
        ]
        row += [] if extra is None else [extra.get(name, "")]
        lines.append(row)
    return make_markdown_table(head, lines)


def make_markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table whose columns are aligned in the text, all but the first to the right."""
    cells = [list(head), *map(list, rows)]
    widths = [max(3, *(len(row[index]) for row in cells)) for index in range(len(head))]
    lines = []
    for number, row in enumerate(cells):
        padded = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append(f"| {' | '.join(padded)} |")
        if number == 0:
            rules = ["-" * width if index == 0 else "-" * (width - 1) + ":" for index, width in enumerate(widths)]
            lines.append(f"| {' | '.join(rules)} |")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a benchmark, and the result.

    A ratio meets or misses its target only if the median and the ratio of the medians agree. Otherwise it is unsettled.
    """

    text: str
    reached: Ratio | float
    at_least: float | None = None
    at_most: float | None = None
    unit: str = "×"

    @property
    def verdict(self) -> str:
        reached = self.reached
        figures = (reached.median, reached.of_medians) if isinstance(reached, Ratio) else (reached,)
        met = {self._is_met_by(figure) for figure in figures}
        return "**unsettled**" if len(met) > 1 else "met" if met == {True} else "**missed**"

    def _is_met_by(self, figure: float) -> bool:
        low = self.at_least is None or figure >= self.at_least
        return low and (self.at_most is None or figure <= self.at_most)

    def __str__(self) -> str:
        reached = self.reached
        if isinstance(reached, Ratio):
            of_medians = _format_number(reached.of_medians)
            return f"- {self.text}: {self.verdict}, {reached} {self.unit}, of the medians {of_medians}"
        figure = f"{reached:,.0f}" if reached >= 100 else f"{reached:,.3g}"
        return f"- {self.text}: {self.verdict}, {figure} {self.unit}"


@dataclass(slots=True)
class Section:
    """The results of one benchmark, as RESULTS.md shows them."""

    name: str
    title: str
    about: str
    parts: list[str] = field(default_factory=list)
    targets: list[Target] = field(default_factory=list)
    load_before: tuple[float, float, float] = field(default_factory=os.getloadavg)

    def add(self, title: str, text: str) -> None:
        self.parts.append(f"### {title}\n\n{text}")

    def remark(self, text: str) -> None:
        self.parts.append(text)

    def markdown(self, command: str) -> str:
        blocks = [f"## {self.title}", self.about]
        if self.targets:
            blocks.append("\n".join(map(str, self.targets)))
        blocks += self.parts
        blocks.append(f"`{command}` · {describe_run(self.load_before)}")
        return "\n\n".join(blocks) + "\n"


def describe_run(load_before: tuple[float, float, float]) -> str:
    """Return the date, the kind of machine and the versions, without names of hosts, users or folders."""
    installed = [name for name in PACKAGES if importlib.util.find_spec(name) is not None]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in installed)
    load = f"load {load_before[0]:.1f} before and {os.getloadavg()[0]:.1f} after"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"{today} · Python {platform.python_version()}, {versions} · {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} processors, {_measure_memory_gib()} GiB of memory · {load}"
    )


def _measure_memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3)


HEADER = """# Results

`python benchmarks/run.py` writes this file, with a section for each benchmark. [README.md](README.md) describes them.

- The contenders took turns. A ratio is the median of all rounds; the smallest and the largest are in brackets.
- A target is *unsettled* if the median of the ratios and the ratio of the median times are on different sides of it.
- Compare ratios, not times: times depend on the machine and on what else runs on it.
- The files were always in the cache of the operating system. In a *new process* the reader has read nothing before;
  a *warm* reader has.
"""


def write_section(section: Section, command: str, path: Path) -> None:
    """Write a section to the file of results. It replaces an older section of the same name."""
    text = path.read_text() if path.exists() else HEADER
    block = f"<!-- {section.name} -->\n{section.markdown(command)}<!-- /{section.name} -->\n"
    older = re.compile(rf"<!-- {section.name} -->\n.*?<!-- /{section.name} -->\n", re.DOTALL)
    text = older.sub(lambda _: block, text) if older.search(text) else f"{text.rstrip()}\n\n{block}"
    path.write_text(text)
