"""The row-group level: footers of the surviving files, and which of their row groups may hold a matching row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.parquet.field_names import FieldNames
from tamis.parquet.footer import Footer, load_footer
from tamis.parquet.leaves import FieldPath, FileSchema, leaf_indices
from tamis.parquet.matching import check_fits, find_path
from tamis.parquet.selection import RowSelection
from tamis.parquet.statistics import column_metadata, compressed_sizes, described_alike, row_counts
from tamis.scan.projection import Path
from tamis.skipping.account import LevelReport
from tamis.skipping.metadata import ROW_COUNT, constant_bounds
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
    group_rows: Sequence[Sequence[int]]
    """How many rows each row group of each of the files has."""
    unmatched: np.ndarray[Any, Any]
    report: LevelReport
    contents: Sequence[pa.Buffer | None]
    """Small files that came whole with their footers, where they were to be kept; None for the others."""
    metadata: pa.RecordBatch
    """What is known of the units, for the levels below."""
    selections: Mapping[tuple[int, int], RowSelection] = field(default_factory=dict)
    """The rows to read of a file's row group, where they are not all; `row_count` and `bytes` are of those."""


def plan_row_groups(
    storage: Storage,
    files: pa.Table,
    partitions: pa.Table,
    predicate: Predicate,
    needed: tuple[Path, ...],
    *,
    names: FieldNames | None = None,
    enabled: bool = True,
    keep_contents: bool = False,
) -> RowGroups:
    """Read the footers of files (several at the same time) and prune their row groups in one pass.

    `names` are the table's for the columns of its files, where those have others. With `keep_contents`, whoever reads
    the files soon after gets the small ones along.
    """
    footers, contents = _load_footers(storage, files, names, keep_contents=keep_contents)
    in_files = [column for column in predicate.columns if column.path[0] not in partitions.column_names]
    mentioned = [column for column in predicate.mentioned if column.path[0] not in partitions.column_names]
    of_files = tuple(path for path in needed if path[0] not in partitions.column_names)
    found: dict[FileSchema, _Columns] = {}
    for path, footer in zip(files["path"], footers, strict=True):
        # The files of a table mostly share one schema.
        if footer.schema not in found:
            check_fits(footer.schema.arrow, mentioned, storage.place(path.as_py()))
            found[footer.schema] = _find_columns(footer.schema.arrow, in_files, of_files)
    rows = [row_counts(footer) for footer in footers]
    counts = [len(each) for each in rows]
    units = pa.record_batch(
        {
            "file": pa.array(np.repeat(np.arange(len(counts)), counts), types.LONG),
            "row_group": pa.array([index for count in counts for index in range(count)], types.LONG),
            "row_count": pa.array([count for each in rows for count in each], types.LONG),
            "bytes": pa.array(
                [size for footer in footers for size in compressed_sizes(footer, found[footer.schema].needed)],
                types.LONG,
            ),
        }
    )
    metadata = {ROW_COUNT.name: units["row_count"]}
    alike = described_alike(footers)
    metadata |= _concatenated(
        [found[each[0].schema].describe(each) for each in alike],
        [sum(footer.metadata.num_row_groups for footer in each) for each in alike],
    )
    for name in {column.path[0]: None for column in predicate.columns if column not in in_files}:
        values = partitions[name].combine_chunks().take(units["file"])
        metadata |= constant_bounds(Column((name,), type=values.type), values, units["row_count"])
    described = pa.record_batch(metadata)
    pruned = prune(described, predicate.conjuncts)
    kept = units.filter(pruned.selection) if enabled else units
    unmatched = np.ones((len(kept), len(predicate.conjuncts)), dtype=bool)
    if enabled:
        for index, matched in enumerate(pruned.matched):
            unmatched[:, index] = ~np.asarray(matched)
    report = LevelReport(
        "row_groups",
        len(units),
        len(kept),
        pc.sum(units["bytes"]).as_py() or 0,
        pc.sum(kept["bytes"]).as_py() or 0,
        pruned.outcomes if enabled else (),
        None if enabled else "switched off",
    )
    if enabled:
        described = described.filter(pruned.selection)
    return RowGroups(pa.Table.from_batches([kept]), rows, unmatched, report, contents, described)


def _load_footers(
    storage: Storage, files: pa.Table, names: FieldNames | None, *, keep_contents: bool
) -> tuple[list[Footer], list[pa.Buffer | None]]:
    wanted = zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True)

    def load(file: tuple[str, int, int | None]) -> tuple[Footer, pa.Buffer | None]:
        footer, content = load_footer(storage, *file, names)
        return footer, content if keep_contents else None

    loaded = run_in_threads(load, wanted, storage.threads, patience=LOCAL_PATIENCE if storage.is_local else 0.0)
    return [footer for footer, _ in loaded], [content for _, content in loaded]


@dataclass(frozen=True, slots=True)
class _Columns:
    """Where the files of one schema have the columns of a scan."""

    tested: list[tuple[Column, FieldPath]]
    """Columns that the filter is about, with the path in the file (their own where the file has none)."""
    needed: list[int]
    """The leaves to read."""

    def describe(self, footers: Sequence[Footer]) -> dict[str, pa.Array]:
        found: dict[str, pa.Array] = {}
        for column, path in self.tested:
            found |= column_metadata(footers, column, path)
        return found


def _find_columns(schema: pa.Schema, tested: list[Column], needed: tuple[Path, ...]) -> _Columns:
    paths = [found for wanted in needed if (found := find_path(schema, wanted)) is not None]
    return _Columns(
        [(column, find_path(schema, column.path) or column.path) for column in tested], leaf_indices(schema, paths)
    )


def _concatenated(batches: list[dict[str, pa.Array]], counts: list[int]) -> dict[str, pa.Array]:
    """Files may lack columns or statistics: what one of them does not have is unknown there."""
    data_types = {name: array.type for batch in batches for name, array in batch.items()}
    return {
        name: pa.concat_arrays(
            [
                batch[name] if name in batch else pa.nulls(count, data_type)
                for batch, count in zip(batches, counts, strict=True)
            ]
        )
        for name, data_type in data_types.items()
    }
