"""What all benchmarks share: rounds in which the contenders take turns, ratios, and the report of a run.

The contenders of one comparison run one after another in every round, each round beginning with another of them. A
ratio is taken within a round and the median of the rounds is reported, so that a machine that becomes slower or
faster on the way changes both sides of a ratio alike. Times are for the eye; ratios are the result.

Every contender returns what it found (a number of rows, say), and all must have found the same: a fast wrong answer
is an error and no result.
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
    """How a run was asked for."""

    data: Path
    """The folder for tables; made where it is missing."""
    quick: bool = False
    """Small tables and few rounds: shows that everything works, measures nothing worth telling."""
    keep: bool = False
    """Leave the tree of a hundred thousand files, the tables of 4 GB and the largest logs in place."""
    large: bool = False
    """Also what takes much longer than the rest, and more of the disk."""

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
    """From the start of a process of its own to its end: the interpreter and the imports too."""
    peak_memory: int | None = None
    """The most memory that a process of its own had at once."""
    memory_before: int | None = None
    """Of that, what it had before the work began: the interpreter and the imports."""


@dataclass(frozen=True, slots=True)
class Contender:
    """Someone who does the work. `run` measures itself, since not all work happens in this process."""

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
    """The median of the ratios of single rounds, the least and the largest of them, and the ratio of the medians.

    On a quiet machine both ways to a median agree. Where they do not, the rounds were too different to decide.
    """

    median: float
    least: float
    largest: float
    of_medians: float

    def __str__(self) -> str:
        return f"{_short(self.median)} ({_short(self.least)}–{_short(self.largest)})"

    def __format__(self, specification: str) -> str:
        return format(str(self), specification)


def _short(number: float) -> str:
    return f"{number:.2f}" if number < 10 else f"{number:.1f}" if number < 100 else f"{number:.0f}"


def here(name: str, work: Callable[[], object]) -> Contender:
    """A contender that works in this process. What it returns is compared with what the others return."""

    def run() -> Measured:
        gc.collect()
        started, cpu_started = time.perf_counter(), time.process_time()
        found = work()
        return Measured(time.perf_counter() - started, time.process_time() - cpu_started, found)

    return Contender(name, run)


def interleave(contenders: Sequence[Contender], rounds: int, *, warm_up: bool = True) -> dict[str, Timings]:
    """Let the contenders take turns. With `warm_up`, a first round is run and forgotten."""
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
    """How many times as long one took as the other."""
    each = [
        (one.cpu_seconds / max(other.cpu_seconds, 1e-9)) if cpu else (one.seconds / max(other.seconds, 1e-9))
        for one, other in zip(numerator.rounds, denominator.rounds, strict=True)
    ]
    of_medians = numerator.cpu_seconds / denominator.cpu_seconds if cpu else numerator.seconds / denominator.seconds
    return Ratio(statistics.median(each), min(each), max(each), of_medians)


def memory_ratio(numerator: Timings, denominator: Timings) -> Ratio:
    """How many times as much memory one had at its peak as the other, both in processes of their own."""
    each = [
        (one.peak_memory or 0) / max(other.peak_memory or 0, 1)
        for one, other in zip(numerator.rounds, denominator.rounds, strict=True)
    ]
    of_medians = numerator.peak_memory / max(denominator.peak_memory, 1)
    return Ratio(statistics.median(each), min(each), max(each), of_medians)


def milliseconds(seconds: float) -> str:
    thousandths = seconds * 1000
    return f"{thousandths:,.1f} ms" if thousandths < 100 else f"{thousandths:,.0f} ms"


def mebibytes(count: float | None) -> str:
    if count is None:
        return "–"
    return f"{count / MIB:,.2f} MiB" if count < 10 * MIB else f"{count / MIB:,.0f} MiB"


def speed_table(timings: Mapping[str, Timings], ours: Sequence[str], extra: Mapping[str, str] | None = None) -> str:
    """Contenders as rows, and for each of ours how many times as fast it is as everyone else."""
    lines = []
    peers = [name for name in timings if name not in ours]
    head = ["contender", "time", "CPU time", *(f"{name} is × as fast" for name in ours), "× by CPU time"]
    head += [] if extra is None else [""]
    for name in (*ours, *peers):
        timing = timings[name]
        row = [name, milliseconds(timing.seconds), milliseconds(timing.cpu_seconds)]
        row += ["" if name in ours else str(ratio(timing, timings[our])) for our in ours]
        row += ["" if name in ours else ", ".join(_short(ratio(timing, timings[our], cpu=True).median) for our in ours)]
        row += [] if extra is None else [extra.get(name, "")]
        lines.append(row)
    return markdown_table(head, lines)


def markdown_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table of Markdown, its columns aligned for whoever reads it as text; all but the first to the right."""
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
    """What a benchmark was meant to reach, and what it did.

    A ratio meets or misses its target only where both ways to a median say so; else it is unsettled.
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
        met = {self._admits(figure) for figure in figures}
        return "**unsettled**" if len(met) > 1 else "met" if met == {True} else "**missed**"

    def _admits(self, figure: float) -> bool:
        low = self.at_least is None or figure >= self.at_least
        return low and (self.at_most is None or figure <= self.at_most)

    def __str__(self) -> str:
        reached = self.reached
        if isinstance(reached, Ratio):
            return f"- {self.text}: {self.verdict}, {reached} {self.unit}, of the medians {_short(reached.of_medians)}"
        figure = f"{reached:,.0f}" if reached >= 100 else f"{reached:,.3g}"
        return f"- {self.text}: {self.verdict}, {figure} {self.unit}"


@dataclass(slots=True)
class Section:
    """The account of one benchmark, as RESULTS.md shows it."""

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
        pieces = [f"## {self.title}", self.about]
        if self.targets:
            pieces.append("\n".join(map(str, self.targets)))
        pieces += self.parts
        pieces.append(f"`{command}` · {run_facts(self.load_before)}")
        return "\n\n".join(pieces) + "\n"


def run_facts(load_before: tuple[float, float, float]) -> str:
    """When, on what kind of machine and with which versions: no names of hosts, users or folders."""
    installed = [name for name in PACKAGES if importlib.util.find_spec(name) is not None]
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in installed)
    load = f"load {load_before[0]:.1f} before and {os.getloadavg()[0]:.1f} after"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    return (
        f"{today} · Python {platform.python_version()}, {versions} · {platform.system()} {platform.machine()}, "
        f"{os.cpu_count()} processors, {_memory_gib()} GiB of memory · {load}"
    )


def _memory_gib() -> int:
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1024**3)


HEADER = """# Results

Written by `python benchmarks/run.py`, a section a benchmark; [README.md](README.md) says what each of them does.
A ratio is the median over rounds in which the contenders took turns, in brackets the least and the largest of a round.
A target is *unsettled* where that median and the ratio of the median times fall on different sides of it.
Times depend on the machine and on whoever else uses it; the ratios are what to compare. The operating system had the
files in its cache throughout: *new process* means that the reader had seen nothing yet, *warm* that it had.
"""


def write_section(section: Section, command: str, path: Path) -> None:
    """Put a section into the file of results, in the place of an older one of the same name."""
    text = path.read_text() if path.exists() else HEADER
    block = f"<!-- {section.name} -->\n{section.markdown(command)}<!-- /{section.name} -->\n"
    older = re.compile(rf"<!-- {section.name} -->\n.*?<!-- /{section.name} -->\n", re.DOTALL)
    text = older.sub(lambda _: block, text) if older.search(text) else f"{text.rstrip()}\n\n{block}"
    path.write_text(text)
