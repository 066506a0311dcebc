"""Read physical column names from footers, here or in Spark's executors: see `tamis.scan.stored_names`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from tamis import types
from tamis.errors import format_count
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.scan.stored_names import AskedColumns, Stored
from tamis.tables.jobs import Arguments, Engine, Item, Job, read_table, storage_to_arguments

FILES_OF_A_TASK = 512

FUNCTION = "tamis.spark.stored_names:names_of_piece"

_OUTPUT = (("is_readable", types.BOOLEAN), ("names", pa.list_(types.STRING)))


def stored_names(storage: Storage, files: pa.Table, asked: AskedColumns) -> list[Stored | None]:
    """Return the physical column names of each file; None if a native scan would read it differently."""
    wanted = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))
    return run_in_threads(lambda file: asked.names_in_file(storage, *file), wanted, storage.threads)


def stored_names_in(
    engine: Engine, storage: Storage, files: pa.Table, asked: AskedColumns, name: str
) -> list[Stored | None]:
    """Return the same as `stored_names`, computed in an engine's executors."""
    arguments = {**storage_to_arguments(storage), "asked": asked.to_json()}
    what = f"read {format_count(files.num_rows, 'footer')} of {name}"
    job = Job(FUNCTION, arguments, pa.schema(_OUTPUT), what, storage.counters)
    starts = range(0, files.num_rows, FILES_OF_A_TASK)
    slices = [files.slice(start, FILES_OF_A_TASK).combine_chunks() for start in starts]
    found: list[Stored | None] = []
    for _, batch in engine.run(job, [Item.from_table(each, each.num_rows) for each in slices]):
        pairs = zip(batch["is_readable"].to_pylist(), batch["names"].to_pylist(), strict=True)
        found += [tuple(names) if is_readable else None for is_readable, names in pairs]
    return found


def names_of_piece(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the physical column names of some files. It is the function of a job."""
    found = stored_names(arguments.storage, read_table(item), arguments.memoise(_parse_columns))
    columns = [[names is not None for names in found], [None if names is None else list(names) for names in found]]
    yield pa.record_batch(columns, schema=pa.schema(_OUTPUT))


def _parse_columns(arguments: Arguments) -> AskedColumns:
    return AskedColumns.from_json(arguments["asked"])
