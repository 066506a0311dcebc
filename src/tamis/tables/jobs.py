"""Jobs: one plain function over many things of a table, in threads of this process or in Spark's executors alike.

A function is found by its name and everything it needs is data, so that nothing but JSON and Arrow travels:

    def count_rows(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
        storage = arguments.storage
        …
        yield pa.record_batch({"rows": [rows]})

    job = Job("tamis.tables.example:count_rows", storage_arguments(storage), SCHEMA, "count rows of orders@17")
    for number, batch in engine.run(job, [Item.of_json({"path": path}, size) for path, size in files]):
        …

An engine runs it over the items. What a function raises arrives at the caller as it was raised.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from threading import RLock
from typing import Any, Protocol, TypeVar, cast

import pyarrow as pa

from tamis.errors import InvalidArgument
from tamis.io.counters import IoCounters, IoCounts
from tamis.io.storage import Storage, open_storage

Prepared = TypeVar("Prepared")

OURS = "tamis."
"""Only functions of this package run in a job: a name is data, and data must not choose code."""


class Arguments(Mapping[str, Any]):
    """What all calls of a job share: JSON values. One object serves every call of a task."""

    def __init__(self, text: str) -> None:
        self._values: dict[str, Any] = json.loads(text)
        self._prepared: dict[Callable[[Arguments], Any], Any] = {}
        # A preparation may need another one.
        self._lock = RLock()

    def __getitem__(self, name: str) -> Any:
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def once(self, prepare: Callable[[Arguments], Prepared]) -> Prepared:
        """What a module-level function makes of the arguments, made by the first call that asks for it."""
        with self._lock:
            if prepare not in self._prepared:
                self._prepared[prepare] = prepare(self)
            return cast(Prepared, self._prepared[prepare])

    @property
    def storage(self) -> Storage:
        """The place that `storage_arguments` described."""
        return self.once(_open_storage)

    def counts(self) -> IoCounts:
        """What was read so far through `storage`."""
        with self._lock:
            is_open = _open_storage in self._prepared
        return self.storage.counters.counts() if is_open else IoCounts()


JobFunction = Callable[[Arguments, bytes], Iterator[pa.RecordBatch]]


@dataclass(frozen=True)
class Job:
    """A plain function over many things of a table."""

    function: str
    """Its name, as `tamis.tables.delta.part_job:prune_part`: a function at the top level of one of our modules."""
    arguments: Mapping[str, Any]
    """JSON: what all calls share."""
    schema: pa.Schema
    """Of the batches that it yields."""
    what: str
    """As people see it in the Spark UI: `read 40 checkpoint parts of orders@17`."""
    counters: IoCounters | None = field(default=None, compare=False, repr=False)
    """Where to count what the calls read through `Arguments.storage`, wherever they run."""
    progress: Callable[[float], None] | None = field(default=None, compare=False, repr=False)
    """Told about how much is done, from 0 to 1, by an engine that gives no batch before it has all of them."""

    @cached_property
    def arguments_text(self) -> str:
        return json.dumps(dict(self.arguments), allow_nan=False)


@dataclass(frozen=True, slots=True)
class Item:
    """What one call is about."""

    value: bytes
    """JSON text, or an Arrow IPC stream."""
    size: int = 0
    """How many bytes the call will read, so that tasks can be balanced."""

    @staticmethod
    def of_json(value: object, size: int = 0) -> Item:
        return Item(json.dumps(value, allow_nan=False).encode(), size)

    @staticmethod
    def of_table(table: pa.Table | pa.RecordBatch, size: int = 0) -> Item:
        """An item that `read_table` reads."""
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write(table)
        return Item(sink.getvalue().to_pybytes(), size)


class Engine(Protocol):
    """Runs jobs somewhere."""

    @property
    def name(self) -> str:
        """`local` or `spark`, as reports name it."""
        ...

    def run(self, job: Job, items: Sequence[Item]) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The batches of every call with the number of their item, in the order of the items."""
        ...


def read_table(item: bytes) -> pa.Table:
    """The table of an item made with `Item.of_table`."""
    with pa.ipc.open_stream(item) as reader:
        return reader.read_all()


def find_function(name: str) -> JobFunction:
    """The function that a job names.

    >>> find_function("os:system")
    Traceback (most recent call last):
        ...
    tamis.errors.InvalidArgument: a job runs a function of this package, as tamis.module:function, not 'os:system'
    """
    module, _, function = name.partition(":")
    if not module.startswith(OURS) or not function.isidentifier():
        raise InvalidArgument(f"a job runs a function of this package, as tamis.module:function, not {name!r}")
    found = getattr(import_module(module), function, None)
    if not callable(found) or getattr(found, "__module__", None) != module:
        raise InvalidArgument(f"there is no function {function!r} in {module}")
    return cast(JobFunction, found)


def can_travel(storage: Storage) -> bool:
    """Whether other processes can open the same place."""
    return storage.given is not None


def storage_arguments(storage: Storage) -> dict[str, Any]:
    """A place as data, which `Arguments.storage` opens."""
    if storage.given is None:
        raise InvalidArgument(
            f"'{storage.uri}' was opened with a file system object, which cannot be sent to other processes: "
            "open it by its URI and storage options, or use planning='local'"
        )
    uri, options = storage.given
    return {"storage": {"uri": uri, "options": dict(options), "allow_outside": storage.links.allow_outside}}


def _open_storage(arguments: Arguments) -> Storage:
    place = arguments["storage"]
    return open_storage(place["uri"], place["options"] or None).allowing_outside(place["allow_outside"])
