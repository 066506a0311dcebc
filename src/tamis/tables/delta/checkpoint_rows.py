"""Rows of the Parquet files of checkpoints: chosen columns of chosen row groups, batch by batch.

To read a part is a plain function of its place and of what is wanted, so that it can run anywhere. Memory follows the
batch: the bytes of one row group are fetched, and only those of the columns that are asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, MissingFile, one_line
from tamis.io.listing import find_file
from tamis.io.ranges import file_of_ranges, read_ranges
from tamis.io.storage import Storage
from tamis.parquet.arrow_reader import open_reader
from tamis.parquet.batches import MOST_ROWS, rows_of_a_batch
from tamis.parquet.footer import Footer, load_footer
from tamis.parquet.leaves import FieldPath, leaf_indices
from tamis.parquet.old_calendar import batch_in_new_calendar
from tamis.parquet.statistics import chunk_ranges
from tamis.tables.delta.actions import ADD, LOGGED_NAMES, deletion_vectors, field_or_nulls
from tamis.tables.delta.checkpoint_schema import check_columns, naming
from tamis.tables.delta.replay import still_holds
from tamis.tables.delta.replay_keys import replay_keys

FEW_ROWS = 32 * 1024
"""A row group of so few rows is decoded faster by one thread than it takes to wake others."""

KeepRowGroup = Callable[[Footer, int], bool]
"""Whether a row group of a checkpoint may hold a file that is wanted."""

Column = str | FieldPath
"""A column of live files, or a field inside of one: `("stats_parsed", "minValues", "id")`."""

PARSED = ("partition_values_parsed", "stats_parsed")
"""Columns that have the types of the table, and that only some checkpoints have."""

_KEY_COLUMNS = ("path", "deletion_vector")

_PATH = ("add", "path")
"""What every action has that adds a file, and no other."""


def read_checkpoint_part(
    storage: Storage,
    path: str,
    columns: Collection[Column] = tuple(ADD.names),
    *,
    size: int | None = None,
    modified_ns: int | None = None,
    touched: pa.Array | None = None,
    keep_row_group: KeepRowGroup | None = None,
) -> Iterator[pa.RecordBatch]:
    """The files that a Parquet part of a checkpoint, or a sidecar, adds.

    The columns are those asked for, in the order of `ADD`, and behind them the parsed ones, which are left out where
    the part does not have them. `touched` are the keys of files of which newer commits speak: see
    `tamis.tables.delta.replay`. Where `size` is not given it is looked up.
    """
    if size is None:
        found = find_file(storage, path)
        if found is None:
            raise MissingFile(f"the part of a checkpoint '{storage.place(path)}' is gone")
        size, modified_ns = found.size, found.modified_ns
    footer, content = load_footer(storage, path, size, modified_ns)
    check_columns(footer.schema.arrow, storage.place(path))
    wanted = [(column,) if isinstance(column, str) else tuple(column) for column in columns]
    needed = {*wanted, *([(name,) for name in _KEY_COLUMNS] if touched is not None else [])}
    logged = [("add", LOGGED_NAMES[name], *rest) for name, *rest in needed]
    names = {name for name, *_ in wanted}
    adds = _adds(storage, path, size, footer, logged, content, keep_row_group)
    with naming(storage.place(path)):
        for add in adds if touched is None or not len(touched) else _untouched(adds, touched):
            yield live_columns(add, names)


def _adds(
    storage: Storage,
    path: str,
    size: int,
    footer: Footer,
    columns: Sequence[FieldPath],
    content: pa.Buffer | None,
    keep_row_group: KeepRowGroup | None,
) -> Iterator[pa.StructArray]:
    """The actions that add files, batch by batch."""
    for row_group in range(footer.metadata.num_row_groups):
        if all_null(footer, row_group, _PATH):
            continue
        if keep_row_group is not None and not keep_row_group(footer, row_group):
            continue
        adds_only = _has_no_null(footer, row_group, _PATH) and bool(leaf_indices(footer.schema.arrow, columns))
        needed = columns if adds_only else [*columns, _PATH]
        for batch in read_row_group(storage, path, size, footer, row_group, needed, content):
            add = batch.column("add")
            if not adds_only:
                is_add = pc.struct_field(add, "path").is_valid()
                add = add if is_add.true_count == len(add) else add.filter(is_add)
            if len(add):
                yield add


def _untouched(adds: Iterator[pa.StructArray], touched: pa.Array) -> Iterator[pa.StructArray]:
    """The actions about files of which no newer commit speaks.

    To look up any number of keys takes a table of all that are touched, which is made for each look-up: so where many
    are touched, so many actions are looked up together.
    """
    waiting: list[pa.StructArray] = []
    for add in adds:
        waiting.append(add)
        if sum(map(len, waiting)) >= min(MOST_ROWS, len(touched) // 4):
            yield from _look_up(waiting, touched)
            waiting = []
    if waiting:
        yield from _look_up(waiting, touched)


def _look_up(adds: list[pa.StructArray], touched: pa.Array) -> Iterator[pa.StructArray]:
    keys = [replay_keys(field_or_nulls(add, "path", pa.string()), deletion_vectors(add)) for add in adds]
    holds = still_holds(pa.chunked_array(keys), touched)
    start = 0
    for add in adds:
        mask = holds.slice(start, len(add)).combine_chunks()
        start += len(add)
        found = add if mask.true_count == len(add) else add.filter(mask)
        if len(found):
            yield found


def live_columns(add: pa.StructArray, names: Collection[str]) -> pa.RecordBatch:
    """Columns of live files out of the actions that add them."""
    arrays: dict[str, pa.Array] = {}
    for field in ADD:
        if field.name not in names:
            continue
        if field.name == "deletion_vector":
            arrays[field.name] = deletion_vectors(add)
        else:
            arrays[field.name] = field_or_nulls(add, LOGGED_NAMES[field.name], field.type)
    for name in PARSED:
        if name in names and add.type.get_field_index(LOGGED_NAMES[name]) >= 0:
            arrays[name] = pc.struct_field(add, LOGGED_NAMES[name])
    if not arrays:
        # A batch needs some column to know its length.
        return pa.record_batch({"path": field_or_nulls(add, "path", pa.string())})
    return pa.record_batch(arrays)


def all_null(footer: Footer, row_group: int, path: FieldPath) -> bool:
    """Whether the statistics of a row group say that a column has no value in it."""
    leaf = footer.schema.leaves.get(path)
    if leaf is None:
        return footer.schema.lacks(path)
    chunk = footer.metadata.row_group(row_group).column(leaf.index)
    statistics = chunk.statistics
    return bool(
        statistics is not None
        and statistics.has_null_count
        and statistics.null_count == chunk.num_values
        and not statistics.has_min_max
    )


def _has_no_null(footer: Footer, row_group: int, path: FieldPath) -> bool:
    """Whether the statistics of a row group say that a column has a value in every row."""
    leaf = footer.schema.leaves.get(path)
    statistics = None if leaf is None else footer.metadata.row_group(row_group).column(leaf.index).statistics
    return bool(
        leaf is not None
        # Writers of Arrow count only the NULLs of the dictionary itself, and none of the rows without an action.
        and not pa.types.is_dictionary(leaf.arrow_type)
        and statistics is not None
        and statistics.has_null_count
        and statistics.null_count == 0
    )


@lru_cache(maxsize=1)
def _reading_pool() -> pa.MemoryPool | None:
    """Where batches are decoded that come and go by the hundred.

    mimalloc, Arrow's default, seems to give their memory back to the system each time: single plans over a million
    files on a busy machine took 2.5 s of processor time and 550 MB with it, 1.8 to 2.3 s and 470 to 510 MB with
    jemalloc.
    """
    return pa.jemalloc_memory_pool() if "jemalloc" in pa.supported_memory_backends() else None


def read_row_group(
    storage: Storage,
    path: str,
    size: int,
    footer: Footer,
    row_group: int,
    columns: Sequence[FieldPath],
    content: pa.Buffer | None = None,
) -> Iterator[pa.RecordBatch]:
    """Some columns of a row group, in batches of rows that do not hang on the columns; `content` is the whole file,
    where it is in memory."""
    place = storage.place(path)
    leaves = leaf_indices(footer.schema.arrow, columns)
    group = footer.metadata.row_group(row_group)
    ranges = chunk_ranges(footer.metadata, row_group, leaves, size=size, place=place)
    if content is None:
        buffers = read_ranges(storage, path, ranges, size=size)
        fetched = [(start, buffer) for (start, _), buffer in zip(ranges, buffers, strict=True)]
        source = file_of_ranges(fetched, size, place)
    else:
        source = pa.BufferReader(content)
    # By all columns, so that batches of other columns have the same rows.
    rows = rows_of_a_batch(group.num_rows, group.total_byte_size)
    decoded = 0
    calendar = footer.schema.calendar
    is_old = [leaf in footer.schema.old_leaves for leaf in leaves]
    try:
        options = {"metadata": footer.metadata, "pre_buffer": False, "page_checksum_verification": True}
        reader = open_reader(source, pool=_reading_pool(), **options)
        for batch in reader.iter_batches(
            rows, row_groups=[row_group], column_indices=leaves, use_threads=group.num_rows > FEW_ROWS
        ):
            decoded += batch.num_rows
            # Typed bounds and partition values may be dates in the calendar of their time.
            yield batch if calendar is None else batch_in_new_calendar(batch, calendar, is_old, place)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"row group {row_group} of '{place}' cannot be decoded: {one_line(error)}") from error
    if decoded != group.num_rows:
        raise CorruptFile(
            f"row group {row_group} of '{place}' has {group.num_rows} rows by its footer, and {decoded} in its pages"
        )
