"""Reads selected rows of one file, for example the result of pruning, without a scan."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tamis.errors import InvalidArgument, TableNotFound, UnknownColumn, add_article
from tamis.io.listing import find_file
from tamis.io.storage import open_storage
from tamis.parquet.assemble import can_assemble
from tamis.parquet.file import ParquetFile
from tamis.parquet.indexes import read_page_indexes
from tamis.parquet.page_reader import assemble_columns, decode_rows, fetch_pages
from tamis.parquet.selection import RowSelection


def open_file(file: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> ParquetFile:
    """Open the Parquet file at a path or URI."""
    storage = open_storage(file, storage_options)
    found = find_file(storage, storage.root)
    if found is None:
        raise TableNotFound(f"no file at '{storage.uri}': give the path of one Parquet file")
    return ParquetFile.load(storage, found.path, found.size, found.modified_ns)


def read_selection(
    file: str | os.PathLike[str],
    row_groups: Sequence[int],
    selection: RowSelection,
    columns: Sequence[str] | None = None,
    *,
    positions: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows in batches, in file order, reading only the pages that hold them.

    `selection` counts over the given row groups, as in a `PruneResult`. `positions` is the name of an extra column with
    each row's position in the file, counted from 0, as in positional deletes.
    """
    source = open_file(file, storage_options)
    schema = source.schema
    wanted = schema.names if columns is None else list(columns)
    repeated = [name for name in wanted if schema.names.count(name) > 1]
    if repeated:
        raise InvalidArgument(
            f"'{source.location}' has several columns {repeated[0]!r}: the name is ambiguous, leave it out"
        )
    unknown = [name for name in wanted if name not in schema.names]
    if unknown:
        raise UnknownColumn(f"no column {unknown[0]!r} in '{source.location}'. Columns: {', '.join(schema.names)}")
    if positions is not None and positions in wanted:
        raise InvalidArgument(f"a column {positions!r} already exists: choose another name for the positions")
    unreadable = [name for name in wanted if not can_assemble(schema.field(name).type)]
    if unreadable:
        kind = schema.field(unreadable[0]).type
        raise InvalidArgument(
            f"column {unreadable[0]!r} is {kind}, which is not supported by the page reader: leave it out"
        )
    _check_selection(selection)
    count = len(source.map.rows)
    beyond = [group for group in row_groups if not 0 <= group < count]
    if beyond:
        raise InvalidArgument(
            f"no row group {beyond[0]} in '{source.location}', which has {count} row groups, counted from 0"
        )
    if not wanted:
        raise InvalidArgument("columns is empty: omit it to read all columns")
    counts = [source.count_rows(group) for group in row_groups]
    if selection.total != sum(counts):
        raise InvalidArgument(
            f"the selection has {selection.total} rows in total, and the row groups have {sum(counts)}"
        )
    return _read_batches(source, list(row_groups), selection.split(counts), wanted, positions)


def _check_selection(selection: object) -> None:
    if not isinstance(selection, RowSelection):
        kind = add_article(type(selection).__name__)
        raise InvalidArgument(f"selection must be a RowSelection, such as RowSelection.all(…), not {kind}")


def _read_batches(
    source: ParquetFile,
    row_groups: list[int],
    selections: list[RowSelection],
    columns: list[str],
    positions: str | None,
) -> Iterator[pa.RecordBatch]:
    leaves = source.footer.schema.find_leaves_at([(name,) for name in columns])
    starts = np.concatenate([np.zeros(1, np.int64), np.cumsum(source.map.rows)])
    with source.open() as opened:
        for group, selection in zip(row_groups, selections, strict=True):
            if selection.is_empty:
                continue
            locations = read_page_indexes(source, opened, [(group, leaf) for leaf in leaves]).locations
            pages = [source.get_leaf_pages(group, leaf, locations[group, leaf]) for leaf in leaves]
            # A chunk without page locations is read and decoded once.
            whole = fetch_pages(opened, [each for each in pages if each.locations is None], selection)
            decoded = decode_rows(whole, source.location, source.created_by)
            done = 0
            for part in selection.iter_parts(source.rows_of_a_batch(group, leaves)):
                fetched = fetch_pages(opened, [each for each in pages if each.locations is not None], part)
                found = decode_rows(fetched, source.location, source.created_by)
                found |= {leaf: values.slice(done, part.row_count) for leaf, values in decoded.items()}
                done += part.row_count
                batch = assemble_columns(source.footer.schema.columns, found, source.location)
                arrays = {name: batch.column(name) for name in columns}
                if positions is not None:
                    arrays[positions] = pa.array(starts[group] + part.to_indices(), pa.int64())
                yield pa.record_batch(arrays)
