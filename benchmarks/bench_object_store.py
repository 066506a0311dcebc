"""The lookups of `pages` in an object store, where each request takes 30 ms: requests, round trips and bytes."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, field

from bench_pages import ensure_paged_file, make_lookups
from harness import (
    Contender,
    Measured,
    Section,
    Settings,
    Target,
    format_mebibytes,
    format_milliseconds,
    interleave,
    make_markdown_table,
)
from harness import ratio as time_ratio
from lookups import READERS, Lookup, list_readers, prepare, prepare_again
from new_process import Work, measure
from object_store_server import BUCKET, CONTROL, DELAY, Request, Server, dependent_round_trips, serve
from table_writers import PAGED_FILE, measure_size

NAME = "object_store"

FULL = (5_000_000, 1_000_000, 20_000)
QUICK = (40_000, 20_000, 1_000)
"""Rows in all, in a row group and in a page."""

MAX_ROUNDS = 5
MAX_TRIPS = 4


@dataclass(slots=True)
class RequestLog:
    """The requests of a contender, run by run."""

    runs: list[list[Request]] = field(default_factory=list)

    @property
    def trips(self) -> int:
        """The fewest of all runs: a busy machine may delay a request, which then seems to depend on another."""
        return min(map(dependent_round_trips, self.runs))

    @property
    def requests(self) -> int:
        return int(statistics.median(map(len, self.runs)))

    @property
    def bytes(self) -> int:
        return int(statistics.median(sum(request.bytes for request in requests) for requests in self.runs))

    def count_by_kind(self) -> str:
        """Return the number of requests of each kind in the last run, as text."""
        last = self.runs[-1]
        heads = sum(request.method == "HEAD" for request in last)
        lists = sum(request.method == "GET" and "list-type" in request.path for request in last)
        parts = [("HEAD", heads), ("list", lists), ("GET", len(last) - heads - lists)]
        return ", ".join(f"{count} {name}" for name, count in parts if count)


def prepare_httpfs_check(install: bool) -> Work:
    """Return work that gives the reason why DuckDB cannot load its extension for object stores, or None if it can."""

    def work() -> str | None:
        import duckdb

        try:
            duckdb.connect().execute("INSTALL httpfs; LOAD httpfs" if install else "LOAD httpfs")
        except duckdb.Error as error:
            return str(error).splitlines()[0]
        return None

    return work


def _make_contender(
    name: str, server: Server, log: RequestLog, lookup: Lookup, before: Lookup | None = None
) -> Contender:
    """Return a reader in a new process. With `before`, it has run that lookup already."""
    arguments = {
        "reader": name,
        "location": f"s3://{BUCKET}/{PAGED_FILE}",
        "lookup": lookup.to_arguments(),
        "storage_options": server.make_storage_options(),
    }

    def run() -> Measured:
        server.clear_requests()
        if before is None:
            measured = measure(prepare, **arguments)
        else:
            measured = measure(
                prepare_again, **arguments, before=before.to_arguments(), ready=server.endpoint + CONTROL
            )
        log.runs.append(server.get_requests())
        return Measured(measured.seconds, measured.cpu_seconds, measured.found, measured.process_seconds)

    return Contender(name, run)


def _compare(
    server: Server, readers: list[str], rounds: int, lookup: Lookup, before: Lookup | None = None
) -> tuple[str, dict[str, RequestLog]]:
    """Return a table of times and requests of all readers, and the requests."""
    logs = {name: RequestLog() for name in readers}
    contenders = [_make_contender(name, server, logs[name], lookup, before) for name in readers]
    timings = interleave(contenders, rounds, warm_up=False)
    head = ["contender", "time", "tamis is × as fast", "dependent round trips", "requests", "bytes served", ""]
    rows = [
        [
            name,
            format_milliseconds(timings[name].seconds),
            "" if name == "tamis" else str(time_ratio(timings[name], timings["tamis"])),
            str(logs[name].trips),
            str(logs[name].requests),
            format_mebibytes(logs[name].bytes),
            logs[name].count_by_kind(),
        ]
        for name in readers
    ]
    return make_markdown_table(head, rows), logs


def run(settings: Settings) -> Section:
    rows, rows_per_group, rows_per_page = QUICK if settings.quick else FULL
    rounds = min(settings.rounds, MAX_ROUNDS)
    folder = ensure_paged_file(settings, rows, rows_per_group, rows_per_page)
    readers = list_readers()
    unreachable = measure(prepare_httpfs_check, install=not settings.quick).found
    if unreachable is not None:
        readers.remove("DuckDB")
    section = Section(
        NAME,
        "The same in an object store",
        f"A file as in `pages`, of {rows:,} rows, {format_mebibytes(measure_size(folder))}, in an S3 server "
        f"on this machine (moto) that answers each request after {DELAY * 1000:.0f} ms. Each run is a new process. "
        "Requests and bytes are those that the server saw. *Dependent round trips* are the longest chain of requests "
        f"in which each began after the one before was answered: the minimum of {rounds} rounds.",
    )
    missing = [name for name in READERS if name not in readers and name != "DuckDB"]
    if missing:
        section.remark(f"Not measured, because not installed: {', '.join(missing)}.")
    if unreachable is not None:
        section.remark(f"Not measured: DuckDB could not load its extension httpfs: {unreachable}")
    lookups = make_lookups(rows, quick=settings.quick)
    with serve(folder) as server:
        # Moto is slow to answer the first request of a kind.
        _make_contender("tamis", server, RequestLog(), lookups[0]).run()
        for lookup in lookups:
            table, logs = _compare(server, readers, rounds, lookup)
            section.add(f"{lookup.title}, new process", table)
            ours = logs["tamis"]
            if lookup.is_point:
                section.targets.append(
                    Target(f"{lookup.title}: dependent round trips", ours.trips, at_most=MAX_TRIPS, unit="trips")
                )
            others = [each for name, each in logs.items() if name != "tamis"]
            section.targets += [
                Target(
                    f"{lookup.title}: bytes, in percent of the fewest of any other reader",
                    100 * ours.bytes / min(each.bytes for each in others),
                    at_most=100,
                    unit="%",
                ),
                Target(
                    f"{lookup.title}: dependent round trips, in percent of the fewest of any other reader",
                    100 * ours.trips / min(each.trips for each in others),
                    at_most=100,
                    unit="%",
                ),
            ]
            if lookup is lookups[0]:
                cold = ours.runs[-1]
        other = make_lookups(rows - 2 * rows_per_page)[0]
        table, _ = _compare(server, readers, rounds, lookups[0], before=other)
        section.add(f"{lookups[0].title}, by a reader that has run another one", table)
    section.add(f"What Tamis asks for: {lookups[0].title}, new process", _list_requests(cold))
    return section


def _list_requests(requests: list[Request]) -> str:
    """Return a table of the requests of one run, in order."""
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
    return make_markdown_table(head, rows)
