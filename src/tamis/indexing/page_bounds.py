"""Bounds out of page indexes, for row groups of whose statistics a column is left out.

Some writers describe pages and not whole chunks. What the pages of a chunk say together is known of the chunk.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile
from tamis.indexing.aggregate import FileRows
from tamis.indexing.cut import cut_bounds
from tamis.indexing.spec import IndexedColumn
from tamis.indexing.types_of_kinds import types_of_kinds
from tamis.io.threads import run_in_threads
from tamis.parquet.file import ParquetFile
from tamis.parquet.indexes import read_page_indexes
from tamis.parquet.leaves import Leaf
from tamis.skipping.metadata import ROW_COUNT, metadata_name


@dataclass(frozen=True, slots=True)
class _Silent:
    """A column of which the statistics of a row group say nothing, though its pages are described."""

    position: int
    """Of the row group, among those of all files."""
    row_group: int
    column: IndexedColumn
    leaf: Leaf


def with_bounds_of_pages(
    groups: Mapping[str, pa.Array], files: Sequence[ParquetFile], columns: Sequence[IndexedColumn], threads: int
) -> Mapping[str, pa.Array]:
    """What is known of the row groups of files, one file after another, and what their page indexes add to it."""
    silent = _silent(groups, files, columns)
    if not silent:
        return groups
    wanted = list(silent.items())
    each = run_in_threads(lambda one: _read(files[one[0]], one[1]), wanted, threads)
    found = dict(groups)
    for column in columns:
        known = {position: said for one in each for (position, about), said in one.items() if about == column}
        if not known:
            continue
        rows = sorted(known)
        mask = np.zeros(len(groups[ROW_COUNT.name]), np.bool_)
        mask[rows] = True
        for kind, data_type in types_of_kinds(column.type).items():
            name = column.name(kind)
            values = [known[row].get(name, pa.nulls(1, data_type)).cast(data_type) for row in rows]
            found[name] = pc.replace_with_mask(found[name], pa.array(mask), pa.concat_arrays(values))
    return found


def _silent(
    groups: Mapping[str, pa.Array], files: Sequence[ParquetFile], columns: Sequence[IndexedColumn]
) -> dict[int, list[_Silent]]:
    """By the number of the file."""
    counts = [file.footer.metadata.num_row_groups for file in files]
    owner = np.repeat(np.arange(len(files)), counts)
    first = np.cumsum([0, *counts])
    found: dict[int, list[_Silent]] = {}
    for column in columns:
        lower, nulls = groups[column.name("lower")], groups[column.name("null_count")]
        has_values = pc.fill_null(pc.not_equal(nulls, groups[ROW_COUNT.name]), True)
        for position in np.flatnonzero(np.asarray(pc.and_(lower.is_null(), has_values))).tolist():
            number = int(owner[position])
            footer = files[number].footer
            leaf = footer.schema.leaves.get(footer.schema.find(column.path) or column.path)
            row_group = position - int(first[number])
            if leaf is None or not footer.metadata.row_group(row_group).column(leaf.index).has_column_index:
                continue
            found.setdefault(number, []).append(_Silent(position, row_group, column, leaf))
    return found


def _read(file: ParquetFile, silent: Sequence[_Silent]) -> dict[tuple[int, IndexedColumn], dict[str, pa.Array]]:
    """What the page indexes of a file say of whole row groups."""
    try:
        with file.open() as opened:
            asked = [(each.row_group, each.column.column, each.leaf) for each in silent]
            indexes = read_page_indexes(file, opened, (), asked)
    except CorruptFile:
        # Whoever reads such pages says so; for an index it is as if there were none.
        return {}
    found = {}
    for each in silent:
        pages = indexes.columns[each.row_group, each.column.column]
        if pages is None:
            continue
        column = each.column
        named = {metadata_name(kind, column.path): column.name(kind) for kind in types_of_kinds(column.type)}
        metadata = {named.get(name, name): array for name, array in pages.metadata.items()}
        count = len(metadata[ROW_COUNT.name])
        described = FileRows(np.array([count])).describe(metadata, (column,))
        if column.name("lower") in described:
            found[each.position, column] = cut_bounds(described, column)
    return found
