"""The row-group level: footers of the surviving files, and which of their row groups may hold a matching row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer import read_footer
from tamis.parquet.leaves import leaf_indices
from tamis.parquet.statistics import row_group_metadata, row_group_sizes
from tamis.scan.conform import check_fits, find_path
from tamis.scan.projection import Path
from tamis.skipping.account import LevelReport
from tamis.skipping.metadata import constant_bounds
from tamis.skipping.predicate import Predicate
from tamis.skipping.prune import prune


@dataclass(frozen=True)
class RowGroups:
    """The row groups to read of some files.

    `units` has `file` (the index of the file), `row_group` (its index in the file), `row_count` and `bytes`
    (compressed, of the columns that are needed). `unmatched[i, j]` says that rows of unit i must still be tested by
    conjunct j.
    """

    units: pa.Table
    file_rows: pa.Array
    """How many rows each of the files has."""
    unmatched: np.ndarray[Any, Any]
    report: LevelReport


def plan_row_groups(
    storage: Storage,
    files: pa.Table,
    partitions: pa.Table,
    predicate: Predicate,
    needed: tuple[Path, ...],
    *,
    enabled: bool = True,
) -> RowGroups:
    """Read the footers of files (in threads) and prune their row groups in one pass."""
    mentioned = [column for column in predicate.mentioned if column.path[0] not in partitions.column_names]
    tested = [column for column in predicate.columns if column.path[0] not in partitions.column_names]

    def read(file: dict[str, Any]) -> pa.RecordBatch:
        return read_row_groups(storage, file["path"], file["size"], file["modified_ns"], tested, needed, mentioned)

    batches = run_in_threads(read, files.to_pylist(), storage.threads)
    counts = [batch.num_rows for batch in batches]
    units = _concatenate(batches)
    file_index = pa.array(np.repeat(np.arange(len(counts)), counts), types.LONG)
    values = partitions.take(file_index)
    metadata = {name: units.column(name) for name in units.schema.names}
    for field in values.schema:
        column = Column((field.name,), type=field.type)
        metadata |= constant_bounds(column, values[field.name].combine_chunks(), metadata["row_count"])
    pruned = prune(pa.record_batch(metadata), predicate.conjuncts)
    selection = pruned.selection
    if not enabled:
        selection = pa.repeat(pa.scalar(True), len(selection))
    kept = pa.table(
        {"file": file_index, "row_group": metadata["row_group"], "row_count": metadata["row_count"],
         "bytes": metadata["bytes"]}
    ).filter(selection)  # fmt: skip
    unmatched = np.ones((len(kept), len(predicate.conjuncts)), dtype=bool)
    if enabled:
        for index, matched in enumerate(pruned.matched):
            unmatched[:, index] = ~np.asarray(matched)
    report = LevelReport(
        "row_groups",
        len(selection),
        len(kept),
        pc.sum(metadata["bytes"]).as_py() or 0,
        pc.sum(kept["bytes"]).as_py() or 0,
        pruned.outcomes if enabled else (),
        None if enabled else "switched off",
    )
    file_rows = pa.array([pc.sum(batch["row_count"]).as_py() or 0 for batch in batches], types.LONG)
    return RowGroups(kept, file_rows, unmatched, report)


def read_row_groups(
    storage: Storage,
    path: str,
    size: int,
    modified_ns: int,
    tested: list[Column],
    needed: tuple[Path, ...],
    mentioned: list[Column],
) -> pa.RecordBatch:
    """The metadata of the row groups of one file: bounds of the tested columns, bytes of the needed ones."""
    footer = read_footer(storage, path, size, modified_ns)
    schema = footer.schema.to_arrow_schema()
    check_fits(schema, mentioned, storage.place(path))
    spelled = {column.path: found for column in tested if (found := find_path(schema, column.path)) is not None}
    bounds = row_group_metadata(footer, tested, names=spelled, place=storage.place(path))
    paths = [found for wanted in needed if (found := find_path(schema, wanted)) is not None]
    sizes = row_group_sizes(footer, leaf_indices(schema, paths))
    return bounds.append_column("row_group", pa.array(range(footer.num_row_groups), types.LONG)).append_column(
        "bytes", pa.array(sizes, types.LONG)
    )


def _concatenate(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Files may lack columns or statistics: what one of them does not have is unknown there."""
    if not batches:
        empty = {name: pa.array([], types.LONG) for name in ("row_count", "row_group", "bytes")}
        return pa.record_batch(empty)
    table = pa.concat_tables([pa.Table.from_batches([batch]) for batch in batches], promote_options="default")
    return table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
