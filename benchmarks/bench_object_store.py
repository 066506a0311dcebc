"""The lookups of `pages` in an object store, where each request takes 30 ms: who makes fewest, how many in a row."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench_pages import questions, write
from harness import Contender, Measured, Section, Settings, Target, interleave, markdown_table, mebibytes, milliseconds
from harness import ratio as time_ratio
from lookups import READERS, Lookup, installed_readers, prepare, prepare_again
from new_process import Work, measure
from object_store_server import BUCKET, CONTROL, DELAY, Request, Server, dependent_round_trips, serve
from table_writers import PAGED_FILE, size_on_disk

NAME = "object_store"

FULL = (5_000_000, 1_000_000, 20_000)
QUICK = (40_000, 20_000, 1_000)
"""Rows in all, in a row group and in a page."""

MOST_ROUNDS = 5
MOST_TRIPS = 4


@dataclass(slots=True)
class Watched:
    """What a contender asked of the server, run by run."""

    runs: list[list[Request]] = field(default_factory=list)

    @property
    def trips(self) -> int:
        """Of the run with fewest: a busy machine may begin late what could have been asked earlier, never sooner."""
        return min(map(dependent_round_trips, self.runs))

    @property
    def requests(self) -> int:
        return int(statistics.median(map(len, self.runs)))

    @property
    def bytes(self) -> int:
        return int(statistics.median(sum(request.bytes for request in requests) for requests in self.runs))

    def kinds(self) -> str:
        """How many of each kind the last run made."""
        last = self.runs[-1]
        heads = sum(request.method == "HEAD" for request in last)
        lists = sum(request.method == "GET" and "list-type" in request.path for request in last)
        parts = [("HEAD", heads), ("list", lists), ("GET", len(last) - heads - lists)]
        return ", ".join(f"{count} {name}" for name, count in parts if count)


def duckdb_can_reach(install: bool) -> Work:
    """Why DuckDB has no extension for object stores, which it downloads where it may install it; None if it has."""

    def work() -> str | None:
        import duckdb

        try:
            duckdb.connect().execute("INSTALL httpfs; LOAD httpfs" if install else "LOAD httpfs")
        except duckdb.Error as error:
            return str(error).splitlines()[0]
        return None

    return work


def _contender(name: str, server: Server, watched: Watched, lookup: Lookup, before: Lookup | None = None) -> Contender:
    """A reader in a new process; with `before`, one that has already answered that."""
    arguments = {
        "reader": name,
        "place": f"s3://{BUCKET}/{PAGED_FILE}",
        "lookup": lookup.arguments(),
        "storage_options": server.storage_options(),
    }

    def run() -> Measured:
        server.forget()
        if before is None:
            measured = measure(prepare, **arguments)
        else:
            measured = measure(prepare_again, **arguments, before=before.arguments(), ready=server.endpoint + CONTROL)
        watched.runs.append(server.requests())
        return Measured(measured.seconds, measured.cpu_seconds, measured.found, measured.process_seconds)

    return Contender(name, run)


def _compare(
    server: Server, readers: list[str], rounds: int, lookup: Lookup, before: Lookup | None = None
) -> tuple[str, dict[str, Watched]]:
    """A table of what each reader took, and what it asked."""
    watched = {name: Watched() for name in readers}
    contenders = [_contender(name, server, watched[name], lookup, before) for name in readers]
    timings = interleave(contenders, rounds, warm_up=False)
    head = ["contender", "time", "tamis is × as fast", "dependent round trips", "requests", "bytes served", ""]
    rows = [
        [
            name,
            milliseconds(timings[name].seconds),
            "" if name == "tamis" else str(time_ratio(timings[name], timings["tamis"])),
            str(watched[name].trips),
            str(watched[name].requests),
            mebibytes(watched[name].bytes),
            watched[name].kinds(),
        ]
        for name in readers
    ]
    return markdown_table(head, rows), watched


def run(settings: Settings) -> Section:
    rows, rows_per_group, rows_per_page = QUICK if settings.quick else FULL
    rounds = min(settings.rounds, MOST_ROUNDS)
    folder = write(settings, rows, rows_per_group, rows_per_page)
    readers = installed_readers()
    unreachable = measure(duckdb_can_reach, install=not settings.quick).found
    if unreachable is not None:
        readers.remove("DuckDB")
    section = Section(
        NAME,
        "The same in an object store",
        f"A file as in `pages`, of {rows:,} rows, {mebibytes(size_on_disk(folder))}, in an S3 server on this machine "
        f"(moto) that answers each request {DELAY * 1000:.0f} ms after it came. Each run is a new process. Requests "
        "and bytes are those that the server saw. *Dependent round trips* are the longest chain of requests of which "
        f"each began after the one before was answered; {rounds} rounds, the fewest trips of them.",
    )
    missing = [name for name in READERS if name not in readers and name != "DuckDB"]
    if missing:
        section.remark(f"Not installed, and so not measured: {', '.join(missing)}.")
    if unreachable is not None:
        section.remark(f"DuckDB is not available here, as it could not load its extension httpfs: {unreachable}")
    asked = questions(rows, quick=settings.quick)
    with serve(folder) as server:
        # Moto is slow with the first request of a kind.
        _contender("tamis", server, Watched(), asked[0]).run()
        for lookup in asked:
            table, watched = _compare(server, readers, rounds, lookup)
            section.add(f"{lookup.title}, new process", table)
            ours = watched["tamis"]
            if lookup.is_point:
                section.targets.append(
                    Target(f"{lookup.title}: dependent round trips", ours.trips, at_most=MOST_TRIPS, unit="trips")
                )
            others = [each for name, each in watched.items() if name != "tamis"]
            section.targets += [
                Target(
                    f"{lookup.title}: bytes, in percent of the fewest of any other",
                    100 * ours.bytes / min(each.bytes for each in others),
                    at_most=100,
                    unit="%",
                ),
                Target(
                    f"{lookup.title}: dependent round trips, in percent of the fewest of any other",
                    100 * ours.trips / min(each.trips for each in others),
                    at_most=100,
                    unit="%",
                ),
            ]
            if lookup is asked[0]:
                cold = ours.runs[-1]
        other = questions(rows - 2 * rows_per_page)[0]
        table, _ = _compare(server, readers, rounds, asked[0], before=other)
        section.add(f"{asked[0].title}, by a reader that has answered another one", table)
    section.add(f"What Tamis asks for: {asked[0].title}, new process", _told(cold))
    return section


def _told(requests: list[Request]) -> str:
    """The requests of one run in their order."""
    begin = min(request.began for request in requests)
    head = ["request", "range", "bytes", "from, ms", "to, ms"]
    rows = [
        [
            f"{request.method} {request.path}",
            request.range or "",
            f"{request.bytes:,}",
            f"{(request.began - begin) * 1000:.0f}",
            f"{(request.answered - begin) * 1000:.0f}",
        ]
        for request in sorted(requests, key=lambda request: request.began)
    ]
    return markdown_table(head, rows)
