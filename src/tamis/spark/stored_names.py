"""What files call columns, read of their footers here or in Spark's executors: see `tamis.scan.stored_names`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tamis import types
from tamis.errors import counted
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.scan.stored_names import AskedColumns, Stored
from tamis.tables.jobs import Arguments, Engine, Item, Job, read_table, storage_arguments

FILES_OF_A_TASK = 512

FUNCTION = "tamis.spark.stored_names:names_of_piece"

_OUTPUT = (("is_readable", types.BOOLEAN), ("names", pa.list_(types.STRING)))


def stored_names(storage: Storage, files: pa.Table, asked: AskedColumns) -> list[Stored | None]:
    """What each file calls the columns; None where Spark would not read it as it is read here."""
    wanted = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))
    return run_in_threads(lambda file: asked.names_in_file(storage, *file), wanted, storage.threads)


def stored_names_in(
    engine: Engine, storage: Storage, files: pa.Table, asked: AskedColumns, name: str
) -> list[Stored | None]:
    """What `stored_names` finds, by an engine's executors."""
    arguments = {**storage_arguments(storage), "asked": asked.to_json()}
    what = f"read {counted(files.num_rows, 'footer')} of {name}"
    job = Job(FUNCTION, arguments, pa.schema(_OUTPUT), what, storage.counters)
    starts = range(0, files.num_rows, FILES_OF_A_TASK)
    pieces = [files.slice(start, FILES_OF_A_TASK).combine_chunks() for start in starts]
    found: list[Stored | None] = []
    for _, batch in engine.run(job, [Item.of_table(piece, piece.num_rows) for piece in pieces]):
        told = zip(batch["is_readable"].to_pylist(), batch["names"].to_pylist(), strict=True)
        found += [tuple(names) if is_readable else None for is_readable, names in told]
    return found


def names_of_piece(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """What some files call the columns."""
    found = stored_names(arguments.storage, read_table(item), arguments.once(_asked))
    columns = [[names is not None for names in found], [None if names is None else list(names) for names in found]]
    yield pa.record_batch(columns, schema=pa.schema(_OUTPUT))


def _asked(arguments: Arguments) -> AskedColumns:
    return AskedColumns.from_json(arguments["asked"])
