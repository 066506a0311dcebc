"""What only the values of a file tell: Bloom filters, and how many NaN there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.indexing.bloom_bits import bits_of, canonical_leaf, hashes_of_values, most_distinct
from tamis.indexing.spec import IndexedColumn, IndexSpec
from tamis.parquet.bloom import Array
from tamis.scan.read import TaskReader
from tamis.scan.tasks import ScanTask

_NO_HASHES = np.empty(0, np.uint64)


@dataclass
class ValuesOfFile:
    """What the values of one file tell of the columns that were asked for."""

    nan_counts: dict[IndexedColumn, list[int]] = field(default_factory=dict)
    """For each row group."""
    filters: dict[IndexedColumn, bytes | None] = field(default_factory=dict)
    """The bits of a Bloom filter of the whole file; None where it has none."""


def read_values(
    reader: TaskReader,
    spec: IndexSpec,
    file: tuple[str, int, int | None],
    rows: Sequence[int],
    content: pa.Buffer | None = None,
) -> ValuesOfFile:
    """Read the columns of `spec.valued`, which are the reader's projection, one row group after another.

    `file` is its path, size and time of change, `rows` how many each row group has, `content` all of it where it is at
    hand.
    """
    found = ValuesOfFile({column: [] for column in spec.valued if column.counts_nan})
    hashed: dict[IndexedColumn, Array | None] = {column: _NO_HASHES for column in spec.valued if column.has_bloom}
    most = most_distinct(spec.false_positives)
    for row_group, count in enumerate(rows):
        task = ScanTask(*file, row_group, count, 0, {}, (), None, content)  # type: ignore[arg-type]
        for counts in found.nan_counts.values():
            counts.append(0)
        for batch in reader.read([task]):
            for column in spec.valued:
                values = _values(batch, column)
                if column in found.nan_counts:
                    found.nan_counts[column][-1] += pc.is_nan(values).true_count
                if column.has_bloom:
                    hashed[column] = _joined(hashed[column], values, column, most)
    for column, hashes in hashed.items():
        found.filters[column] = None if hashes is None else bits_of(hashes, spec.false_positives)
    return found


def _joined(known: Array | None, values: pa.Array, column: IndexedColumn, most: int) -> Array | None:
    leaf = canonical_leaf(column.type)
    more = None if known is None or leaf is None else hashes_of_values(values, leaf)
    if known is None or more is None:
        return None
    joined = np.union1d(known, more)
    return joined if len(joined) <= most else None


def _values(batch: pa.RecordBatch, column: IndexedColumn) -> pa.Array:
    found = batch.column(column.path[0])
    for name in column.path[1:]:
        # Unlike `field`, `struct_field` makes the fields of a null struct null.
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    found = found.cast(types.without_views(found.type))
    assert found.type == column.type, f"{column.path} was read as {found.type}"
    return found
