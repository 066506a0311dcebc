"""Jobs: one plain function applied to many items, in threads of this process or in Spark's executors.

A function is found by name and all its inputs are data, so that only JSON and Arrow are sent:

    def count_rows(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
        storage = arguments.storage
        …
        yield pa.record_batch({"rows": [rows]})

    job = Job("tamis.formats.example:count_rows", storage_to_arguments(storage), SCHEMA, "count rows of orders@17")
    for number, batch in engine.run(job, [Item.from_json({"path": path}, size) for path, size in files]):
        …

An engine applies the function to the items. The caller gets the exceptions that the function raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from threading import RLock
from typing import TYPE_CHECKING, Any, Protocol, TypeVar, cast, runtime_checkable

import pyarrow as pa

from tamis.errors import InvalidArgument
from tamis.formats.engines import load_engine
from tamis.io.counters import IoCounters, IoCounts
from tamis.io.storage import Storage, open_storage
from tamis.tuning import Tuning

if TYPE_CHECKING:
    from tamis.formats.source import FileListing, TableSource
    from tamis.skipping.predicate import Predicate

Prepared = TypeVar("Prepared")

MODULE_PREFIX = "tamis."
"""The prefix of modules whose functions may run in a job: a name is data, and data must not choose foreign code."""


class Arguments(Mapping[str, Any]):
    """The JSON values that all calls of a job share. One object serves all calls of a task."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, Any] = json.loads(text)
        self._prepared: dict[Callable[[Arguments], Any], Any] = {}
        # Reentrant: a preparation may need another one.
        self._lock = RLock()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def memoise(self, prepare: Callable[[Arguments], Prepared]) -> Prepared:
        """Return the result of a module-level function of the arguments, computed on first use."""
        with self._lock:
            if prepare not in self._prepared:
                self._prepared[prepare] = prepare(self)
            return cast(Prepared, self._prepared[prepare])

    @property
    def storage(self) -> Storage:
        """The storage that `storage_to_arguments` described."""
        return self.memoise(_open_storage)

    def counts(self) -> IoCounts:
        """Return the I/O counts of `storage` so far."""
        with self._lock:
            is_open = _open_storage in self._prepared
        return self.storage.counters.counts() if is_open else IoCounts()


JobFunction = Callable[[Arguments, bytes], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Job:
    """A plain function to apply to many items."""

    function: str
    """Its name, such as `tamis.formats.delta.planning.checkpoint_job:prune_part`: a top-level function of a module of
    this package."""
    arguments: Mapping[str, Any]
    """The JSON values that all calls share."""
    schema: pa.Schema
    """The schema of the batches that the function yields."""
    description: str
    """A description for the Spark UI: `read 40 checkpoint parts of orders@17`."""
    counters: IoCounters | None = field(default=None, compare=False, repr=False)
    """Counters for the I/O of all calls through `Arguments.storage`, in whatever process they run."""
    progress: Callable[[float], None] | None = field(default=None, compare=False, repr=False)
    """Called with the completed share, from 0 to 1, by an engine that returns no batch before it has all of them."""

    @cached_property
    def arguments_text(self) -> str:
        return json.dumps(dict(self.arguments), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Item:
    """The input of one call."""

    value: bytes
    """JSON text, or an Arrow IPC stream."""
    size: int = 0
    """The number of bytes that the call will read, to balance tasks."""

    @staticmethod
    def from_json(value: object, size: int = 0) -> Item:
        return Item(json.dumps(value, allow_nan=False).encode(), size)

    @staticmethod
    def from_table(table: pa.Table | pa.RecordBatch, size: int = 0) -> Item:
        """Make an item that `read_table` reads."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write(table)
        return Item(sink.getvalue().to_pybytes(), size)


class Engine(Protocol):
    """Runs jobs, in this process or in executors."""

    @property
    def name(self) -> str:
        """The engine's name in reports: `local` or `spark`."""
        ...

    def run(self, job: Job, items: Sequence[Item]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield the batches of every call with the position of their item, in the order of the items."""
        ...


def run_job(engine: Engine, job: Job, items: Sequence[Item]) -> list[list[pa.RecordBatch]]:
    """Return the batches of every call, in the order of the items."""
    found: list[list[pa.RecordBatch]] = [[] for _ in items]
    for number, batch in engine.run(job, items):
        found[number].append(batch)
    return found


@runtime_checkable
class HoldsFiles(Protocol):
    """An engine that may hold the files of tables in memory."""

    def find_listing(
        self, source: TableSource, predicate: Predicate, levels: Collection[str], limit: int | None
    ) -> FileListing | None:
        """Return the files that may hold a matching row; None if the table's files are not in memory."""
        ...


class JobEngines(Protocol):
    """The engines that run jobs. `tamis.engines.jobs` implements it."""

    def make_local(self) -> Engine: ...

    def make_spark(self, session: Any | None) -> Engine:
        """Return the engine of a Spark session, by default the active one."""
        ...


def get_job_engines() -> JobEngines:
    return cast(JobEngines, load_engine("jobs"))


def read_table(item: bytes) -> pa.Table:
    """Read the table of an item made with `Item.from_table`."""
    with pa.ipc.open_stream(item) as reader:
        return reader.read_all()


def find_function(name: str) -> JobFunction:
    """Return the function with a name, as in `Job.function`.

    >>> find_function("os:system")
    Traceback (most recent call last):
        ...
    tamis.errors.InvalidArgument: a job must be a function of this package, as tamis.module:function, found 'os:system'
    """
    module, _, function = name.partition(":")
    if not module.startswith(MODULE_PREFIX) or not function.isidentifier():
        raise InvalidArgument(f"a job must be a function of this package, as tamis.module:function, found {name!r}")
    found = getattr(import_module(module), function, None)
    if not callable(found) or getattr(found, "__module__", None) != module:
        raise InvalidArgument(f"there is no function {function!r} in {module}")
    return cast(JobFunction, found)


def can_serialise(storage: Storage) -> bool:
    """Return whether other processes can open the same storage."""
    return storage.given is not None


def storage_to_arguments(storage: Storage) -> dict[str, Any]:
    """Describe a storage as data, which `Arguments.storage` opens."""
    if storage.given is None:
        raise InvalidArgument(
            f"'{storage.uri}' was opened with a file system object, which cannot be sent to other processes: "
            "open it by its URI and storage options, or use planning='local'"
        )
    uri, options = storage.given
    return {
        "storage": {
            "uri": uri,
            "options": dict(options),
            "allow_outside": storage.links.allow_outside,
            "tuning": storage.tuning.to_json(),
        }
    }


def _open_storage(arguments: Arguments) -> Storage:
    given = arguments["storage"]
    opened = open_storage(given["uri"], given["options"] or None)
    return opened.with_outside_links(given["allow_outside"]).with_tuning(Tuning(**given["tuning"]))


# --- Where a plan is computed: in this process, or in the executors of an engine --------------------------------------

AUTO, LOCAL, SPARK = "auto", "local", "spark"
MODES = (AUTO, LOCAL, SPARK)

SMALL_READ = 64 * 1024
"""The bytes that a footer or the listing of a directory counts for: as many as are read of a file to find its
footer."""


@dataclass(frozen=True)
class Planning:
    """An engine for plans, and when to use it. One rule covers all metadata that a plan reads.

    Executors read checkpoint parts, directories and footers if `mode` is `spark`. With `auto` they do so if there are
    at least `spark_planning_min_parts` units of work with `spark_planning_min_bytes` together (see `Tuning`). A
    checkpoint part is one unit of work; directories and footers are read some hundreds at a time.
    """

    engine: Engine
    mode: str = AUTO

    def __post_init__(self) -> None:
        check_mode(self.mode)

    def find_listing(
        self, source: TableSource, predicate: Predicate, levels: Collection[str], limit: int | None
    ) -> FileListing | None:
        """Return the files for a filter if the engine holds those of the table in memory; None if it does not."""
        if self.mode != SPARK or not isinstance(self.engine, HoldsFiles):
            return None
        return self.engine.find_listing(source, predicate, levels, limit)

    def choose_engine(self, storage: Storage, parts: int, size: int) -> Engine | None:
        """Return the engine that reads `parts` parts of metadata of `size` bytes together; None for this process."""
        if self.mode == LOCAL or not parts:
            return None
        if self.mode == SPARK:
            return self.engine
        is_worth_it = (
            parts >= storage.tuning.spark_planning_min_parts and size >= storage.tuning.spark_planning_min_bytes
        )
        return self.engine if is_worth_it and can_serialise(storage) else None


def check_mode(mode: object) -> None:
    if mode not in MODES:
        raise InvalidArgument(f"unknown planning mode {mode!r}: expected {', '.join(MODES)}")
