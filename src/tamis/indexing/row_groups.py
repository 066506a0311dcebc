"""What an index has noted of row groups, in place of footers: the same facts, so that plans are the same.

A file is planned by its footer where the index does not know all that is asked for: a column that is not in it, bounds
that were cut, files of so many columns that their sizes are not noted.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.indexing.cut import LONGEST_BOUND
from tamis.indexing.entries import Entries, Rows
from tamis.indexing.harvest import GROUP, SIZES
from tamis.indexing.spec import IndexedColumn
from tamis.indexing.types_of_kinds import types_of_kinds
from tamis.parquet.leaves import FieldPath, find_leaf_indices
from tamis.parquet.matching import check_compatible_types, find_path
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.tables.source import IndexedRowGroups

Bits = npt.NDArray[np.bool_]


def noted_row_groups(
    entries: Entries,
    rows: Rows,
    columns: dict[Column, IndexedColumn],
    needed: Sequence[FieldPath],
    mentioned: Sequence[Column],
) -> IndexedRowGroups | None:
    """The row groups of files by their entries (-1: none), which are asked about some columns and read for others."""
    is_noted = rows >= 0
    if not is_noted.any():
        return None
    numbers, schemas = entries.schemas()
    leaves = [_leaves(schema, needed, mentioned) for schema in schemas]
    is_noted[is_noted] = np.array([each is not None for each in leaves], np.bool_)[numbers[rows[is_noted]]]
    row_counts = entries.lists(f"{GROUP}{ROW_COUNT.name}", types.LONG, rows[is_noted])
    sizes = entries.lists(SIZES, types.LONG, rows[is_noted])
    described = _described(entries, rows[is_noted], columns)
    is_whole = np.asarray(pc.and_(row_counts.is_valid(), sizes.is_valid())) & _lists_agree(row_counts, described)
    is_whole &= _are_uncut(described, columns)
    if not is_whole.all():
        is_noted[np.flatnonzero(is_noted)] = is_whole
        kept = pa.array(is_whole)
        row_counts, sizes = row_counts.filter(kept), sizes.filter(kept)
        described = {name: lists.filter(kept) for name, lists in described.items()}
    found = _sums(sizes, leaves, numbers[rows[is_noted]], row_counts)
    if found is None:
        return None
    metadata = {
        metadata_name(kind, column.path): described[f"{GROUP}{indexed.name(kind)}"].flatten()
        for column, indexed in columns.items()
        for kind in types_of_kinds(indexed.type)
    }
    return IndexedRowGroups(is_noted, row_counts.to_pylist(), found, metadata)


def _leaves(
    schema: pa.Schema | None, needed: Sequence[FieldPath], mentioned: Sequence[Column]
) -> tuple[int, list[int]] | None:
    """How many leaves a file of a schema has, and which are read; None where its footer must say what is wrong."""
    if schema is None:
        return None
    try:
        check_compatible_types(schema, mentioned, "")
        paths = [found for path in needed if (found := find_path(schema, path)) is not None]
    except CorruptFile:
        return None
    everything = find_leaf_indices(schema, [(name,) for name in schema.names])
    return len(everything), find_leaf_indices(schema, paths)


def _described(entries: Entries, rows: Rows, columns: dict[Column, IndexedColumn]) -> dict[str, pa.Array]:
    return {
        f"{GROUP}{indexed.name(kind)}": entries.lists(f"{GROUP}{indexed.name(kind)}", data_type, rows)
        for indexed in columns.values()
        for kind, data_type in types_of_kinds(indexed.type).items()
    }


def _lists_agree(row_counts: pa.Array, described: dict[str, pa.Array]) -> Bits:
    """For which files everything is noted of every row group."""
    count = pc.list_value_length(row_counts)
    found = np.ones(len(row_counts), np.bool_)
    for lists in described.values():
        found &= np.asarray(pc.fill_null(pc.equal(pc.list_value_length(lists), count), False))
    return found


def _are_uncut(described: dict[str, pa.Array], columns: dict[Column, IndexedColumn]) -> Bits:
    """For which files no bound is so long that it may have been cut: its footer knows more."""
    count = len(next(iter(described.values()))) if described else 0
    found = np.ones(count, np.bool_) if described else np.ones(1, np.bool_)
    for indexed in columns.values():
        if not (types.is_text(indexed.type) or types.is_bytes(indexed.type)):
            continue
        for kind in ("lower", "upper"):
            lists = described[f"{GROUP}{indexed.name(kind)}"]
            values = lists.flatten()
            length = pc.utf8_length(values) if types.is_text(indexed.type) else pc.binary_length(values)
            is_long = np.asarray(pc.fill_null(pc.greater_equal(length, LONGEST_BOUND), False))
            owners = np.asarray(pc.list_parent_indices(lists))
            found[owners[is_long]] = False
    return found


def _sums(
    sizes: pa.Array, leaves: Sequence[tuple[int, list[int]] | None], schema_of_file: Rows, row_counts: pa.Array
) -> npt.NDArray[np.int64] | None:
    """The bytes to read of every row group; None where what is noted contradicts itself."""
    groups = np.asarray(pc.list_value_length(row_counts), np.int64)
    lengths = np.asarray(pc.list_value_length(sizes), np.int64)
    widths = np.array([0 if each is None else each[0] for each in leaves], np.int64)[schema_of_file]
    if not np.array_equal(groups * widths, lengths):
        return None
    values = np.asarray(sizes.flatten(), np.int64)
    file_of_group = np.repeat(np.arange(len(groups)), groups)
    number_in_file = np.arange(len(file_of_group)) - np.repeat(np.cumsum(groups) - groups, groups)
    first = (np.cumsum(lengths) - lengths)[file_of_group] + widths[file_of_group] * number_in_file
    schema_of_group = schema_of_file[file_of_group]
    found = np.zeros(len(file_of_group), np.int64)
    for number in np.unique(schema_of_file).tolist():
        own = np.flatnonzero(schema_of_group == number)
        known = leaves[number]
        if known is not None and len(known[1]):
            found[own] = values[first[own][:, None] + np.array(known[1])].sum(axis=1)
    return found
