"""Planning of Delta tables with a million files: cold, warm and after one more commit; time and memory."""

from __future__ import annotations

import itertools
import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from delta_logs import (
    ARCHIVE_PARTITIONS,
    CHECKPOINT,
    COMMITS_AFTER,
    ROWS,
    Action,
    append_commit,
    get_day,
    get_region,
    link_log,
    make_add,
    make_archive_add,
    unpack,
    write_checkpointed_log,
    write_commits,
)
from harness import (
    MIB,
    ROOT,
    Contender,
    Measured,
    Section,
    Settings,
    Target,
    Timings,
    compare_memory,
    format_mebibytes,
    format_milliseconds,
    here,
    interleave,
    make_markdown_table,
    make_speed_table,
    ratio,
)
from new_process import Work, make_process_contender, measure
from table_writers import ensure_table

NAME = "delta"

CHECKPOINTED = (20, 50_000)
"""The number of parts of the checkpoint, and of files in each."""

MAX_ROUNDS = 5
"""The maximum number of rounds with new processes, since each one reads a whole log."""

ARCHIVE = "300k-add-files-100-col-partitioned.tar.zst"
"""A log of 300,000 files without statistics, written by another program. It is one of the tests' golden tables."""

OURS, PEER = "tamis", "deltalake"

# --- Preparations: they import what the work needs; only the work is measured ----------------------------------------


def prepare_tamis(path: str, where: str) -> Work:
    import tamis

    return lambda: tamis.open(path).scan(where).plan(depth="files").num_files


def prepare_deltalake(path: str, where: str) -> Work:
    import deltalake

    return lambda: len(deltalake.DeltaTable(path).file_uris(file_pruning_predicate=where))


# --- Filters: each selects a file by its number, so that every filter has a match -------------------------------------

MakeFilter = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Log:
    """A table to plan."""

    title: str
    path: Path
    files: int
    version: int
    filters: Mapping[str, MakeFilter]
    """Filters by name, which both contenders understand."""
    make_add: Callable[[int, int], Action] = make_add
    """Makes the `add` action of a commit from the number of a similar file and the version."""
    cold_target: float = 1
    warm_target: float = 1
    memory_target: float | None = None
    max_milliseconds: float | None = None

    def get_file_number(self, position: int) -> int:
        """Return the number of a file; each position gives another file and another day."""
        return (self.files * 2 // 3 + position * 17) % self.files


def make_partition_filter(files: int) -> MakeFilter:
    """Return a filter on one partition, and on ids in a tenth of their range."""
    span = max(files // 20, 1) * ROWS

    def make_filter(number: int) -> str:
        partition = f"day = DATE '{get_day(number)}' AND region = '{get_region(number)}'"
        return f"{partition} AND id BETWEEN {number * ROWS - span} AND {number * ROWS + span}"

    return make_filter


def filter_id(number: int) -> str:
    return f"id = {number * ROWS + ROWS // 2}"


def filter_archive_partition(number: int) -> str:
    return f"partition_col = 'part_{number % ARCHIVE_PARTITIONS}'"


# --- The logs --------------------------------------------------------------------------------------------------------


def ensure_checkpointed_log(settings: Settings, parts: int, files_per_part: int) -> Log:
    files = parts * files_per_part
    path = ensure_table(
        settings.data / f"delta-{parts}-parts-{files}",
        lambda folder: write_checkpointed_log(folder, parts=parts, files_per_part=files_per_part),
    )
    return Log(
        f"{files:,} files, a checkpoint of {parts} parts",
        path,
        files,
        CHECKPOINT + COMMITS_AFTER,
        {"partition and ids": make_partition_filter(files), "one id": filter_id},
        cold_target=4,
        warm_target=5,
        memory_target=2,
        max_milliseconds=100,
    )


def _ensure_commits(settings: Settings, commits: int, files_per_commit: int) -> Log:
    files = commits * files_per_commit
    path = ensure_table(
        settings.data / f"delta-{commits}-commits-{files}",
        lambda folder: write_commits(folder, commits=commits, files_per_commit=files_per_commit),
    )
    filters = {"partition and ids": make_partition_filter(files)}
    return Log(f"{files:,} files, {commits:,} commits and no checkpoint", path, files, commits, filters)


def _find_archive(settings: Settings) -> Log | str:
    """Return the log of the archive, or the reason why it is not available."""
    if settings.quick:
        return "left out with `--quick`"
    archive = Path(os.environ.get("TAMIS_GOLDEN") or ROOT.parent / "shared" / "golden") / ARCHIVE
    if not archive.exists():
        return f"`{ARCHIVE}` was not found. Set `TAMIS_GOLDEN` to the folder that has it"
    path = ensure_table(settings.data / "delta-archived-300000", lambda folder: unpack(folder, archive))
    filters = {"partition": filter_archive_partition}
    return Log(
        "300,000 files, five commits and no checkpoint, no statistics", path, 300_000, 4, filters, make_archive_add
    )


# --- Measurements ----------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    section = Section(
        NAME,
        "Delta tables, plans",
        "From a filter to the files that may hold a matching row. The tables have a log but no data. deltalake is "
        "`DeltaTable(…).file_uris(file_pruning_predicate=…)` with the same text. *New process* opens the table too. "
        "*Warm* plans again on the open table: for another partition or id in each round, and for the same one. "
        "*After a commit* reads one new version and plans. The tables with a checkpoint and with commits only are "
        "partitioned by day and region (10,000 partitions) and have statistics of six columns as JSON. Four commits "
        "after the checkpoint replace 100 of its files. The filters are "
        f"`{make_partition_filter(1000)(666)}` (*partition and ids*, with bounds that leave a tenth of the "
        f"partition) and `{filter_id(666)}` (*one id*).",
    )
    _measure(section, ensure_checkpointed_log(settings, *((2, 500) if settings.quick else (20, 50_000))), settings)
    archived = _find_archive(settings)
    if isinstance(archived, Log):
        _measure(section, archived, settings)
    else:
        section.add("300,000 files, five commits", f"Not measured: {archived}.")
    _measure(section, _ensure_commits(settings, *((20, 5) if settings.quick else (10_000, 10))), settings)
    if settings.large:
        _measure_large(section, settings)
    return section


def _measure(section: Section, log: Log, settings: Settings) -> None:
    for name, make_filter in log.filters.items():
        cold = _measure_cold(log, make_filter(log.get_file_number(0)), settings)
        extra = {each: f"peak {format_mebibytes(timings.peak_memory)}" for each, timings in cold.items()}
        section.add(f"{log.title}: {name}, new process", make_speed_table(cold, [OURS], extra))
        section.targets += _make_cold_targets(log, name, cold)
        for kind, is_same in (("another each round", False), ("the same", True)):
            warm = interleave(_make_warm_contenders(log, make_filter, is_same=is_same), settings.rounds)
            section.add(f"{log.title}: {name}, warm, {kind}", make_speed_table(warm, [OURS]))
            section.targets += _make_warm_targets(log, f"{name}, warm, {kind}", warm)
    name, make_filter = next(iter(log.filters.items()))
    refreshed = _measure_refresh(log, make_filter, settings)
    section.add(f"{log.title}: {name}, after a commit", make_speed_table(refreshed, [OURS]))
    section.targets.append(_make_speed_target(log, f"{name}, after a commit", refreshed, 1))


def _measure_cold(log: Log, where: str, settings: Settings) -> dict[str, Timings]:
    arguments = {"path": str(log.path), "where": where}
    contenders = [
        make_process_contender(OURS, prepare_tamis, **arguments),
        make_process_contender(PEER, prepare_deltalake, **arguments),
    ]
    return interleave(contenders, min(settings.rounds, MAX_ROUNDS), warm_up=not settings.quick)


def _make_warm_contenders(log: Log, make_filter: MakeFilter, *, is_same: bool) -> list[Contender]:
    import deltalake

    import tamis

    table, peer = tamis.open(log.path), deltalake.DeltaTable(log.path)

    def prepare(plan: Callable[[str], int]) -> Work:
        positions = itertools.repeat(0) if is_same else itertools.count()
        return lambda: plan(make_filter(log.get_file_number(next(positions))))

    return [
        here(OURS, prepare(lambda where: table.scan(where).plan(depth="files").num_files)),
        here(PEER, prepare(lambda where: len(peer.file_uris(file_pruning_predicate=where)))),
    ]


def _measure_refresh(log: Log, make_filter: MakeFilter, settings: Settings) -> dict[str, Timings]:
    """Measure plans after a commit. Each contender has a copy of the log and gets one commit before each round."""
    import deltalake

    import tamis

    copies = [log.path.with_name(f"{log.path.name}-{name}.unfinished") for name in (OURS, PEER)]
    try:
        of_ours, of_peer = (link_log(log.path, copy) for copy in copies)
        where = make_filter(log.get_file_number(0))
        table, peer = tamis.open(of_ours), deltalake.DeltaTable(of_peer)

        def plan_with_tamis() -> int:
            nonlocal table
            table = table.refresh()
            return table.scan(where).plan(depth="files").num_files

        def plan_with_deltalake() -> int:
            peer.update_incremental()
            return len(peer.file_uris(file_pruning_predicate=where))

        contenders = [
            _make_commit_contender(log, of_ours, here(OURS, plan_with_tamis)),
            _make_commit_contender(log, of_peer, here(PEER, plan_with_deltalake)),
        ]
        return interleave(contenders, settings.rounds)
    finally:
        for copy in copies:
            shutil.rmtree(copy, ignore_errors=True)


def _make_commit_contender(log: Log, copy: Path, contender: Contender) -> Contender:
    versions = itertools.count(log.version + 1)

    def run() -> Measured:
        version = next(versions)
        append_commit(copy, version, log.make_add(log.get_file_number(0), version))
        return contender.run()

    return Contender(contender.name, run)


def _measure_large(section: Section, settings: Settings) -> None:
    """Measure the memory of a plan over ten times as many files. No other reader is measured."""
    log = ensure_checkpointed_log(settings, *((4, 500) if settings.quick else (200, 50_000)))
    try:
        rows = []
        for name, make_filter in log.filters.items():
            measured = measure(prepare_tamis, path=str(log.path), where=make_filter(log.get_file_number(0)))
            rows.append(
                [
                    name,
                    format_milliseconds(measured.seconds),
                    format_mebibytes(measured.peak_memory),
                    str(measured.found),
                ]
            )
            section.targets.append(
                Target(f"{log.title}: {name}: under 2 GiB", measured.peak_memory / MIB, at_most=2048, unit="MiB")
            )
        section.add(
            f"{log.title}: new process, tamis alone",
            make_markdown_table(["filter", "time", "peak memory", "files found"], rows),
        )
    finally:
        if not settings.keep:
            shutil.rmtree(log.path)


def _make_cold_targets(log: Log, name: str, timings: Mapping[str, Timings]) -> list[Target]:
    found = [_make_speed_target(log, f"{name}, new process", timings, log.cold_target)]
    if log.memory_target is not None:
        text = f"{log.title}: {name}: {PEER} has {log.memory_target} × the peak memory"
        found.append(Target(text, compare_memory(timings[PEER], timings[OURS]), at_least=log.memory_target))
    return found


def _make_warm_targets(log: Log, name: str, timings: Mapping[str, Timings]) -> list[Target]:
    found = [_make_speed_target(log, name, timings, log.warm_target)]
    if log.max_milliseconds is not None:
        text = f"{log.title}: {name}: under {log.max_milliseconds} ms"
        found.append(Target(text, timings[OURS].seconds * 1000, at_most=log.max_milliseconds, unit="ms"))
    return found


def _make_speed_target(log: Log, name: str, timings: Mapping[str, Timings], times: float) -> Target:
    text = f"{log.title}: {name}: {times} × as fast as {PEER}"
    return Target(text, ratio(timings[PEER], timings[OURS]), at_least=times)
