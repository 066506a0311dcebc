"""Planning Delta tables of a million files: cold, warm, after one more commit, and the memory that it takes."""

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
    addition,
    addition_to_archive,
    append_commit,
    day_of,
    linked_copy,
    region_of,
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
    here,
    interleave,
    markdown_table,
    mebibytes,
    memory_ratio,
    milliseconds,
    ratio,
    speed_table,
)
from new_process import Work, in_new_process, measure
from table_writers import made_once

NAME = "delta"

CHECKPOINTED = (20, 50_000)
"""Parts of the checkpoint, and files of each."""

MOST_ROUNDS = 5
"""Of new processes, each of which reads a whole log."""

ARCHIVE = "300k-add-files-100-col-partitioned.tar.zst"
"""A log of 300,000 files that others wrote, without statistics. It is among the golden tables of the tests."""

OURS, PEER = "tamis", "deltalake"

# --- Preparations: imports are made here, the work is what is measured ------------------------------------------------


def tamis_plan(path: str, where: str) -> Work:
    import tamis

    return lambda: tamis.open(path).scan(where).plan(depth="files").num_files


def deltalake_plan(path: str, where: str) -> Work:
    import deltalake

    return lambda: len(deltalake.DeltaTable(path).file_uris(file_pruning_predicate=where))


# --- What is asked: of a file by its number, so that every question has an answer ------------------------------------

Question = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Log:
    """A table to plan."""

    title: str
    path: Path
    files: int
    version: int
    questions: Mapping[str, Question]
    """By name; both contenders understand them."""
    addition: Callable[[int, int], Action] = addition
    """A file that a commit can add, by the number of another one and the version."""
    cold_target: float = 1
    warm_target: float = 1
    memory_target: float | None = None
    most_milliseconds: float | None = None

    def number(self, position: int) -> int:
        """The number of a file, another one for each position, of another day each time."""
        return (self.files * 2 // 3 + position * 17) % self.files


def by_partition_and_statistics(files: int) -> Question:
    """One partition, and of its files those with ids in a tenth of the range of all."""
    span = max(files // 20, 1) * ROWS

    def asked(number: int) -> str:
        partition = f"day = DATE '{day_of(number)}' AND region = '{region_of(number)}'"
        return f"{partition} AND id BETWEEN {number * ROWS - span} AND {number * ROWS + span}"

    return asked


def by_statistics(number: int) -> str:
    return f"id = {number * ROWS + ROWS // 2}"


def by_partition_of_the_archive(number: int) -> str:
    return f"partition_col = 'part_{number % ARCHIVE_PARTITIONS}'"


# --- The logs --------------------------------------------------------------------------------------------------------


def checkpointed(settings: Settings, parts: int, files_per_part: int) -> Log:
    files = parts * files_per_part
    path = made_once(
        settings.data / f"delta-{parts}-parts-{files}",
        lambda folder: write_checkpointed_log(folder, parts=parts, files_per_part=files_per_part),
    )
    return Log(
        f"{files:,} files, a checkpoint of {parts} parts",
        path,
        files,
        CHECKPOINT + COMMITS_AFTER,
        {"partition and ids": by_partition_and_statistics(files), "one id": by_statistics},
        cold_target=4,
        warm_target=5,
        memory_target=2,
        most_milliseconds=100,
    )


def _committed(settings: Settings, commits: int, files_per_commit: int) -> Log:
    files = commits * files_per_commit
    path = made_once(
        settings.data / f"delta-{commits}-commits-{files}",
        lambda folder: write_commits(folder, commits=commits, files_per_commit=files_per_commit),
    )
    questions = {"partition and ids": by_partition_and_statistics(files)}
    return Log(f"{files:,} files, {commits:,} commits and no checkpoint", path, files, commits, questions)


def _archived(settings: Settings) -> Log | str:
    """The log of the archive, or why there is none."""
    if settings.quick:
        return "left out with `--quick`"
    archive = Path(os.environ.get("TAMIS_GOLDEN") or ROOT.parent / "shared" / "golden") / ARCHIVE
    if not archive.exists():
        return f"`{ARCHIVE}` is not there: `TAMIS_GOLDEN` names the folder with it"
    path = made_once(settings.data / "delta-archived-300000", lambda folder: unpack(folder, archive))
    questions = {"partition": by_partition_of_the_archive}
    return Log(
        "300,000 files, five commits and no checkpoint, no statistics", path, 300_000, 4, questions, addition_to_archive
    )


# --- What is measured ------------------------------------------------------------------------------------------------


def run(settings: Settings) -> Section:
    section = Section(
        NAME,
        "Delta tables, plans",
        "From a predicate to the files that may hold a matching row; no data is read, and there is none. deltalake is "
        "`DeltaTable(…).file_uris(file_pruning_predicate=…)` with the same text. *New process* opens the table too. "
        "*Warm* plans again on the table that is open: for another partition or id in each round, and for the same. "
        "*After a commit* takes in one new version and plans. The tables of the checkpoint and of the commits are "
        "partitioned by day and region (10,000 partitions) and have statistics of six columns as JSON; four commits "
        "after the checkpoint replace 100 of its files. The questions are "
        f"`{by_partition_and_statistics(1000)(666)}` (*partition and ids*, with bounds that leave a tenth of the "
        f"partition) and `{by_statistics(666)}` (*one id*).",
    )
    _measure(section, checkpointed(settings, *((2, 500) if settings.quick else (20, 50_000))), settings)
    archived = _archived(settings)
    if isinstance(archived, Log):
        _measure(section, archived, settings)
    else:
        section.add("300,000 files, five commits", f"Not measured: {archived}.")
    _measure(section, _committed(settings, *((20, 5) if settings.quick else (10_000, 10))), settings)
    if settings.large:
        _measure_large(section, settings)
    return section


def _measure(section: Section, log: Log, settings: Settings) -> None:
    for name, question in log.questions.items():
        cold = _cold(log, question(log.number(0)), settings)
        extra = {each: f"peak {mebibytes(timings.peak_memory)}" for each, timings in cold.items()}
        section.add(f"{log.title}: {name}, new process", speed_table(cold, [OURS], extra))
        section.targets += _cold_targets(log, name, cold)
        for kind, is_same in (("another each round", False), ("the same", True)):
            warm = interleave(_warm(log, question, is_same=is_same), settings.rounds)
            section.add(f"{log.title}: {name}, warm, {kind}", speed_table(warm, [OURS]))
            section.targets += _warm_targets(log, f"{name}, warm, {kind}", warm)
    name, question = next(iter(log.questions.items()))
    refreshed = _refreshed(log, question, settings)
    section.add(f"{log.title}: {name}, after a commit", speed_table(refreshed, [OURS]))
    section.targets.append(_faster(log, f"{name}, after a commit", refreshed, 1))


def _cold(log: Log, where: str, settings: Settings) -> dict[str, Timings]:
    asked = {"path": str(log.path), "where": where}
    contenders = [in_new_process(OURS, tamis_plan, **asked), in_new_process(PEER, deltalake_plan, **asked)]
    return interleave(contenders, min(settings.rounds, MOST_ROUNDS), warm_up=not settings.quick)


def _warm(log: Log, question: Question, *, is_same: bool) -> list[Contender]:
    import deltalake

    import tamis

    table, peer = tamis.open(log.path), deltalake.DeltaTable(log.path)

    def asked(plan: Callable[[str], int]) -> Work:
        positions = itertools.repeat(0) if is_same else itertools.count()
        return lambda: plan(question(log.number(next(positions))))

    return [
        here(OURS, asked(lambda where: table.scan(where).plan(depth="files").num_files)),
        here(PEER, asked(lambda where: len(peer.file_uris(file_pruning_predicate=where)))),
    ]


def _refreshed(log: Log, question: Question, settings: Settings) -> dict[str, Timings]:
    """Each contender has a copy of the log, to which a commit is added before each of its rounds."""
    import deltalake

    import tamis

    copies = [log.path.with_name(f"{log.path.name}-{name}.unfinished") for name in (OURS, PEER)]
    try:
        of_ours, of_peer = (linked_copy(log.path, copy) for copy in copies)
        where = question(log.number(0))
        table, peer = tamis.open(of_ours), deltalake.DeltaTable(of_peer)

        def by_tamis() -> int:
            nonlocal table
            table = table.refresh()
            return table.scan(where).plan(depth="files").num_files

        def by_deltalake() -> int:
            peer.update_incremental()
            return len(peer.file_uris(file_pruning_predicate=where))

        contenders = [
            _after_a_commit(log, of_ours, here(OURS, by_tamis)),
            _after_a_commit(log, of_peer, here(PEER, by_deltalake)),
        ]
        return interleave(contenders, settings.rounds)
    finally:
        for copy in copies:
            shutil.rmtree(copy, ignore_errors=True)


def _after_a_commit(log: Log, copy: Path, contender: Contender) -> Contender:
    versions = itertools.count(log.version + 1)

    def run() -> Measured:
        version = next(versions)
        append_commit(copy, version, log.addition(log.number(0), version))
        return contender.run()

    return Contender(contender.name, run)


def _measure_large(section: Section, settings: Settings) -> None:
    """The memory of a plan over ten times as many files; nobody is compared with."""
    log = checkpointed(settings, *((4, 500) if settings.quick else (200, 50_000)))
    try:
        rows = []
        for name, question in log.questions.items():
            measured = measure(tamis_plan, path=str(log.path), where=question(log.number(0)))
            rows.append([name, milliseconds(measured.seconds), mebibytes(measured.peak_memory), str(measured.found)])
            section.targets.append(
                Target(f"{log.title}: {name}: under 2 GiB", measured.peak_memory / MIB, at_most=2048, unit="MiB")
            )
        section.add(
            f"{log.title}: new process, tamis alone",
            markdown_table(["question", "time", "peak memory", "files found"], rows),
        )
    finally:
        if not settings.keep:
            shutil.rmtree(log.path)


def _cold_targets(log: Log, name: str, timings: Mapping[str, Timings]) -> list[Target]:
    found = [_faster(log, f"{name}, new process", timings, log.cold_target)]
    if log.memory_target is not None:
        text = f"{log.title}: {name}: {PEER} has {log.memory_target} × the peak memory"
        found.append(Target(text, memory_ratio(timings[PEER], timings[OURS]), at_least=log.memory_target))
    return found


def _warm_targets(log: Log, name: str, timings: Mapping[str, Timings]) -> list[Target]:
    found = [_faster(log, name, timings, log.warm_target)]
    if log.most_milliseconds is not None:
        text = f"{log.title}: {name}: under {log.most_milliseconds} ms"
        found.append(Target(text, timings[OURS].seconds * 1000, at_most=log.most_milliseconds, unit="ms"))
    return found


def _faster(log: Log, name: str, timings: Mapping[str, Timings], times: float) -> Target:
    text = f"{log.title}: {name}: {times} × as fast as {PEER}"
    return Target(text, ratio(timings[PEER], timings[OURS]), at_least=times)
