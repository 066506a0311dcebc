"""The code that runs in Spark's executors: a job over the items of a task, which returns results as rows of bytes.

Spark imports `JobRunner` by name; it carries the name of the job's function and JSON arguments, never code. Each result
is a row with an Arrow batch as bytes, so that types arrive which Spark does not support. A Tamis error is a row too:
otherwise Spark would report a failed task, retry it, and wrap the error in a Java stack trace.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from tamis import errors
from tamis.errors import TamisError
from tamis.io.counters import IoCounts
from tamis.tables.jobs import Arguments, find_function

BATCH, ERROR, DONE = "batch", "error", "done"

RESULT_SCHEMA = (
    "number bigint, position bigint, kind string, payload binary, listings bigint, requests bigint, bytes_read bigint"
)
_RESULT = pa.schema(
    [
        ("number", pa.int64()),
        ("position", pa.int64()),
        ("kind", pa.string()),
        ("payload", pa.binary()),
        ("listings", pa.int64()),
        ("requests", pa.int64()),
        ("bytes_read", pa.int64()),
    ]
)
"""`build_position` orders the batches of an item. The last row of each item has its I/O counts."""

MOST_ROWS = 256 * 1024
"""The number of rows in one result value: Spark's limit is 2 GiB, and much less is better."""


@dataclass(frozen=True)
class JobRunner:
    """Runs a job over the items of a task: a function for `mapInArrow`."""

    function: str
    arguments: str = field(repr=False)
    __name__: str = "tamis"
    """The name that Spark shows in its plans."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        function = find_function(self.function)
        arguments = Arguments(self.arguments)
        for batch in batches:
            for number, item in zip(batch["number"].to_pylist(), batch["item"].to_pylist(), strict=True):
                before = arguments.counts()
                position = 0
                try:
                    for found in function(arguments, item):
                        for start in range(0, max(1, found.num_rows), MOST_ROWS):
                            yield _make_row(number, position, BATCH, _to_bytes(found.slice(start, MOST_ROWS)))
                            position += 1
                except TamisError as error:
                    yield _make_row(number, position, ERROR, error_to_bytes(error))
                    return
                yield _make_row(number, position, DONE, b"", arguments.counts() - before)


def _make_row(number: int, position: int, kind: str, payload: bytes, spent: IoCounts | None = None) -> pa.RecordBatch:
    spent = spent or IoCounts()
    values = (number, position, kind, payload, spent.listing_calls, spent.requests, spent.bytes_read)
    return pa.record_batch(
        [pa.array([value], field.type) for value, field in zip(values, _RESULT, strict=True)], schema=_RESULT
    )


def _to_bytes(batch: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="lz4")) as writer:
        writer.write_batch(batch)
    return bytes(sink.getvalue())


def batch_from_bytes(payload: pa.Buffer) -> pa.RecordBatch:
    """Return the batch in the payload of a result row."""
    with pa.ipc.open_stream(payload) as reader:
        return reader.read_next_batch()


def error_to_bytes(error: TamisError) -> bytes:
    """Return an error as JSON: the nearest class in `tamis.errors`, its message and its attributes."""
    name = next(each.__name__ for each in type(error).__mro__ if vars(errors).get(each.__name__) is each)
    facts = {key: value for key, value in vars(error).items() if isinstance(value, str | int | float | None)}
    return json.dumps({"class": name, "message": str(error), "facts": facts}).encode()


def error_from_bytes(payload: bytes) -> TamisError:
    """Return the error that `error_to_bytes` serialised."""
    fields = json.loads(payload)
    kind = vars(errors).get(fields["class"])
    if not (isinstance(kind, type) and issubclass(kind, TamisError)):
        kind = TamisError
    # Bypass the constructor, which would add its attributes to the message again.
    error = kind.__new__(kind, fields["message"])
    Exception.__init__(error, fields["message"])
    vars(error).update(fields["facts"])
    return error
