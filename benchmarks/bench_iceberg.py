"""Planning Iceberg tables of 100,000 and of a million files, with and without delete files: time and memory."""

from __future__ import annotations

import importlib
import itertools
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from harness import (
    Contender,
    Section,
    Settings,
    Target,
    Timings,
    here,
    interleave,
    mebibytes,
    memory_ratio,
    ratio,
    speed_table,
)
from iceberg_metadata import ROWS, Shape, region_of, write_table
from new_process import Work, in_new_process
from table_writers import made_once

NAME = "iceberg"

OURS, PEER = "tamis", "pyiceberg"
MOST_ROUNDS = 3
"""Of new processes: pyiceberg takes its time for each."""
LARGE_ROUNDS = 1
"""Of a million files, which are planned from nothing alone."""

# --- Preparations: imports are made here, the work is what is measured ------------------------------------------------


def tamis_plan(path: str, where: str) -> Work:
    import tamis
    import tamis.formats.iceberg

    # Plans import these when they are needed, and imports are in nobody's time.
    parts = [module.name for module in pkgutil.walk_packages(tamis.formats.iceberg.__path__, "tamis.formats.iceberg.")]
    for name in ("polars", *parts):
        importlib.import_module(name)
    return lambda: tamis.open(path).scan(where).plan(depth="files").num_files


def pyiceberg_plan(path: str, where: str) -> Work:
    from pyiceberg.table import StaticTable

    metadata = f"{path}/metadata/v1.metadata.json"
    return lambda: len(list(StaticTable.from_metadata(metadata).scan(row_filter=where).plan_files()))


# --- What is asked: of a file by its number, so that every question has an answer ------------------------------------

Question = Callable[[Shape, int], str]


def by_partition_and_bounds(shape: Shape, number: int) -> str:
    """One partition, and of its files those with ids below one: both contenders understand the text."""
    day = shape.day_of(number)
    return (
        f"ts >= '{day}T00:00:00+00:00' AND ts <= '{day}T23:59:59+00:00' AND region = '{region_of(number)}' "
        f"AND id <= {number * ROWS}"
    )


def by_bounds(shape: Shape, number: int) -> str:
    return f"id = {number * ROWS + ROWS // 2}"


def every_file(shape: Shape, number: int) -> str:
    return "id >= 0"


QUESTIONS: Mapping[str, Question] = {
    "every file": every_file,
    "partition and ids": by_partition_and_bounds,
    "one id": by_bounds,
}


@dataclass(frozen=True, slots=True)
class Planned:
    """A table to plan."""

    title: str
    path: Path
    shape: Shape
    rounds: int

    @property
    def is_ours_alone(self) -> bool:
        """Whether the peer refuses the table."""
        return self.shape.by_values

    def asked(self, question: Question, position: int) -> str:
        """The question of another file for each position."""
        shape = self.shape
        return question(shape, (shape.files * 2 // 3 + position * 17) % shape.files)


def table_of(settings: Settings, title: str, shape: Shape, rounds: int) -> Planned:
    kind = "-by-values" if shape.by_values else ""
    place = settings.data / f"iceberg-{shape.files}-{shape.manifests}-{shape.deletes}-{shape.per_block}{kind}"
    path = made_once(place, lambda folder: write_table(folder, str(place), shape))
    return Planned(title, path, shape, rounds)


# --- What is measured ------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    few, deletes = (200, 20) if settings.quick else (100_000, 10_000)
    manifests = 2 if settings.quick else 20
    section = Section(
        NAME,
        "Iceberg tables, plans",
        "From a predicate to the files that may hold a matching row; no data is read, and there is none. pyiceberg is "
        "`StaticTable.from_metadata(…).scan(row_filter=…).plan_files()` with the same text. The tables are partitioned "
        "by day and region (10,000 partitions) and note bounds and counts of six columns; manifests have the files of "
        "some days each, in deflated blocks of 100 entries as Iceberg on Java writes them, or of one entry as "
        "pyiceberg does. The questions are "
        f"`{by_partition_and_bounds(Shape(1000, 1), 666)}` (*partition and ids*), "
        f"`{by_bounds(Shape(1000, 1), 666)}` (*one id*, for which every manifest is read) and "
        f"`{every_file(Shape(1000, 1), 666)}` (*every file*). Delete files delete rows of one data file each, by "
        "position or (*equality deletes*) by the values of ids; the latter pyiceberg does not plan.",
    )
    shapes = {
        f"{few:,} files": Shape(few, manifests),
        f"{few:,} files, blocks of one entry": Shape(few, manifests, per_block=1),
        f"{few:,} files and {deletes:,} delete files": Shape(few, manifests, deletes),
        f"{few:,} files and {deletes:,} equality deletes": Shape(few, manifests, deletes, by_values=True),
        f"{few * 10:,} files": Shape(few * 10, manifests * 10),
        f"{few * 10:,} files and {deletes:,} delete files": Shape(few * 10, manifests * 10, deletes),
    }
    if settings.quick:
        small = ("files", f"files and {deletes:,} delete files", f"files and {deletes:,} equality deletes")
        shapes = {f"{few:,} {title}": shapes[f"{few:,} {title}"] for title in small}
    found = {}
    for title, shape in shapes.items():
        rounds = 1 if settings.quick else MOST_ROUNDS if shape.files == few else LARGE_ROUNDS
        found[title] = _measure(section, table_of(settings, title, shape, rounds), settings)
    if not settings.quick:
        growth = found[f"{few * 10:,} files"].seconds / found[f"{few:,} files"].seconds
        text = f"{few * 10:,} files: one id, new process: at most 12 × the time of {few:,} files"
        section.targets.append(Target(text, growth, at_most=12))
    return section


def _measure(section: Section, table: Planned, settings: Settings) -> Timings:
    """Plans from nothing and again; what Tamis took from nothing for the last question."""
    asked = {"one id": by_bounds} if settings.quick else QUESTIONS
    for name, question in asked.items():
        where = table.asked(question, 0)
        plans = {OURS: tamis_plan} if table.is_ours_alone else {OURS: tamis_plan, PEER: pyiceberg_plan}
        cold = interleave(
            [in_new_process(each, plan, path=str(table.path), where=where) for each, plan in plans.items()],
            table.rounds,
            warm_up=False,
        )
        extra = {
            each: f"peak {mebibytes(timings.peak_memory)}, imports {mebibytes(timings.memory_before)} of it"
            for each, timings in cold.items()
        }
        section.add(f"{table.title}: {name}, new process", speed_table(cold, [OURS], extra))
        section.targets += _targets(table, name, cold)
        if name != "every file" and (settings.quick or table.rounds > LARGE_ROUNDS):
            warm = interleave(_warm(table, question), table.rounds)
            section.add(f"{table.title}: {name}, warm, another each round", speed_table(warm, [OURS]))
    return cold[OURS]


def _warm(table: Planned, question: Question) -> list[Contender]:
    from pyiceberg.table import StaticTable

    import tamis

    ours = tamis.open(table.path)

    def asked(plan: Callable[[str], int]) -> Work:
        positions = itertools.count(1)
        return lambda: plan(table.asked(question, next(positions)))

    contenders = [here(OURS, asked(lambda where: ours.scan(where).plan(depth="files").num_files))]
    if table.is_ours_alone:
        return contenders
    theirs = StaticTable.from_metadata(f"{table.path}/metadata/v1.metadata.json")
    return [*contenders, here(PEER, asked(lambda where: len(list(theirs.scan(row_filter=where).plan_files()))))]


def _targets(table: Planned, name: str, timings: Mapping[str, Timings]) -> list[Target]:
    if table.is_ours_alone:
        return []
    where = f"{table.title}: {name}, new process"
    faster = Target(f"{where}: 15 × as fast as {PEER}", ratio(timings[PEER], timings[OURS]), at_least=15)
    memory = memory_ratio(timings[PEER], timings[OURS])
    smaller = Target(f"{where}: {PEER} has 3 × the peak memory", memory, at_least=3)
    above = {each: timings[each].peak_memory - timings[each].memory_before for each in (OURS, PEER)}
    text = f"{where}: {PEER} has 3 × the memory above that of the imports"
    smaller_above = Target(text, above[PEER] / max(above[OURS], 1), at_least=3)
    return {"one id": [faster], "every file": [faster, smaller, smaller_above]}.get(name, [])
