"""Planning of Iceberg tables with 100,000 and a million files, with and without delete files: time and memory."""

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
    compare_memory,
    format_mebibytes,
    here,
    interleave,
    make_speed_table,
    ratio,
)
from iceberg_metadata import ROWS, Shape, get_region, write_table
from new_process import Work, make_process_contender
from table_writers import ensure_table

NAME = "iceberg"

OURS, PEER = "tamis", "pyiceberg"
MAX_ROUNDS = 3
"""The maximum number of rounds with new processes, since pyiceberg takes long."""
LARGE_ROUNDS = 1
"""The number of rounds with a million files, for which only new processes are measured."""

# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare_tamis(path: str, where: str) -> Work:
    import tamis
    import tamis.formats.iceberg

    # Plans import these on first use. Times exclude imports.
    parts = [module.name for module in pkgutil.walk_packages(tamis.formats.iceberg.__path__, "tamis.formats.iceberg.")]
    for name in ("polars", *parts):
        importlib.import_module(name)
    return lambda: tamis.open(path).scan(where).plan(depth="files").num_files


def prepare_pyiceberg(path: str, where: str) -> Work:
    from pyiceberg.table import StaticTable

    metadata = f"{path}/metadata/v1.metadata.json"
    return lambda: len(list(StaticTable.from_metadata(metadata).scan(row_filter=where).plan_files()))


# --- Filters: each selects a file by its number, so that every filter has a match -------------------------------------

MakeFilter = Callable[[Shape, int], str]


def filter_partition_and_ids(shape: Shape, number: int) -> str:
    """Return a filter on one partition and on ids up to a limit, in a text that both contenders understand."""
    day = shape.get_day(number)
    return (
        f"ts >= '{day}T00:00:00+00:00' AND ts <= '{day}T23:59:59+00:00' AND region = '{get_region(number)}' "
        f"AND id <= {number * ROWS}"
    )


def filter_id(shape: Shape, number: int) -> str:
    return f"id = {number * ROWS + ROWS // 2}"


def filter_nothing(shape: Shape, number: int) -> str:
    return "id >= 0"


FILTERS: Mapping[str, MakeFilter] = {
    "every file": filter_nothing,
    "partition and ids": filter_partition_and_ids,
    "one id": filter_id,
}


@dataclass(frozen=True, slots=True)
class IcebergTable:
    """A table to plan."""

    title: str
    path: Path
    shape: Shape
    rounds: int

    @property
    def is_ours_alone(self) -> bool:
        """Whether the peer does not support the table."""
        return self.shape.by_values

    def make_filter(self, make_filter: MakeFilter, position: int) -> str:
        """Return the filter on another file for each position."""
        shape = self.shape
        return make_filter(shape, (shape.files * 2 // 3 + position * 17) % shape.files)


def ensure_iceberg_table(settings: Settings, title: str, shape: Shape, rounds: int) -> IcebergTable:
    kind = "-by-values" if shape.by_values else ""
    location = settings.data / f"iceberg-{shape.files}-{shape.manifests}-{shape.deletes}-{shape.per_block}{kind}"
    path = ensure_table(location, lambda folder: write_table(folder, str(location), shape))
    return IcebergTable(title, path, shape, rounds)


# --- Measurements ----------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    few, deletes = (200, 20) if settings.quick else (100_000, 10_000)
    manifests = 2 if settings.quick else 20
    section = Section(
        NAME,
        "Iceberg tables, plans",
        "From a filter to the files that may hold a matching row. The tables have metadata but no data. pyiceberg is "
        "`StaticTable.from_metadata(…).scan(row_filter=…).plan_files()` with the same text. The tables are partitioned "
        "by day and region (10,000 partitions) and have bounds and counts of six columns. Each manifest has the files "
        "of some days, in deflated blocks of 100 entries as Iceberg on Java writes them, or of one entry as pyiceberg "
        "writes them. The filters are "
        f"`{filter_partition_and_ids(Shape(1000, 1), 666)}` (*partition and ids*), "
        f"`{filter_id(Shape(1000, 1), 666)}` (*one id*, which reads every manifest) and "
        f"`{filter_nothing(Shape(1000, 1), 666)}` (*every file*). Each delete file deletes rows of one data file, "
        "by position or (*equality deletes*) by the values of ids. pyiceberg does not plan equality deletes.",
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
        rounds = 1 if settings.quick else MAX_ROUNDS if shape.files == few else LARGE_ROUNDS
        found[title] = _measure(section, ensure_iceberg_table(settings, title, shape, rounds), settings)
    if not settings.quick:
        growth = found[f"{few * 10:,} files"].seconds / found[f"{few:,} files"].seconds
        text = f"{few * 10:,} files: one id, new process: at most 12 × the time of {few:,} files"
        section.targets.append(Target(text, growth, at_most=12))
    return section


def _measure(section: Section, table: IcebergTable, settings: Settings) -> Timings:
    """Measure plans in new processes and warm, and return the times of Tamis for the last filter in new processes."""
    filters = {"one id": filter_id} if settings.quick else FILTERS
    for name, make_filter in filters.items():
        where = table.make_filter(make_filter, 0)
        plans = {OURS: prepare_tamis} if table.is_ours_alone else {OURS: prepare_tamis, PEER: prepare_pyiceberg}
        cold = interleave(
            [make_process_contender(each, plan, path=str(table.path), where=where) for each, plan in plans.items()],
            table.rounds,
            warm_up=False,
        )
        extra = {
            name: f"peak {format_mebibytes(each.peak_memory)}, {format_mebibytes(each.memory_before)} after imports"
            for name, each in cold.items()
        }
        section.add(f"{table.title}: {name}, new process", make_speed_table(cold, [OURS], extra))
        section.targets += _make_targets(table, name, cold)
        if name != "every file" and (settings.quick or table.rounds > LARGE_ROUNDS):
            warm = interleave(_make_warm_contenders(table, make_filter), table.rounds)
            section.add(f"{table.title}: {name}, warm, another each round", make_speed_table(warm, [OURS]))
    return cold[OURS]


def _make_warm_contenders(table: IcebergTable, make_filter: MakeFilter) -> list[Contender]:
    from pyiceberg.table import StaticTable

    import tamis

    ours = tamis.open(table.path)

    def prepare(plan: Callable[[str], int]) -> Work:
        positions = itertools.count(1)
        return lambda: plan(table.make_filter(make_filter, next(positions)))

    contenders = [here(OURS, prepare(lambda where: ours.scan(where).plan(depth="files").num_files))]
    if table.is_ours_alone:
        return contenders
    theirs = StaticTable.from_metadata(f"{table.path}/metadata/v1.metadata.json")
    return [*contenders, here(PEER, prepare(lambda where: len(list(theirs.scan(row_filter=where).plan_files()))))]


def _make_targets(table: IcebergTable, name: str, timings: Mapping[str, Timings]) -> list[Target]:
    if table.is_ours_alone:
        return []
    where = f"{table.title}: {name}, new process"
    faster = Target(f"{where}: 15 × as fast as {PEER}", ratio(timings[PEER], timings[OURS]), at_least=15)
    memory = compare_memory(timings[PEER], timings[OURS])
    smaller = Target(f"{where}: {PEER} has 3 × the peak memory", memory, at_least=3)
    above = {each: timings[each].peak_memory - timings[each].memory_before for each in (OURS, PEER)}
    text = f"{where}: {PEER} has 3 × the memory above that of the imports"
    smaller_above = Target(text, above[PEER] / max(above[OURS], 1), at_least=3)
    return {"one id": [faster], "every file": [faster, smaller, smaller_above]}.get(name, [])
