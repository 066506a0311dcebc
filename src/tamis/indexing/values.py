"""What only the values of a file tell: Bloom filters, and how many NaN there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.indexing.bloom_bits import ascending, bits_of, canonical_leaf, hashes_of_values, most_distinct
from tamis.indexing.spec import IndexedColumn, IndexSpec
from tamis.parquet.bloom import Array
from tamis.scan.read import TaskReader
from tamis.scan.tasks import ScanTask

FEW_HASHES = 256 * 1024
"""So many hashes wait before they are sorted into those that are known, or as many as are known."""


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
    most = most_distinct(spec.false_positives)
    hashed = {column: _Hashes(column, most) for column in spec.valued if column.has_bloom}
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
                    hashed[column].add(values)
    for column, collected in hashed.items():
        hashes = collected.all()
        found.filters[column] = None if hashes is None else bits_of(hashes, spec.false_positives)
    return found


class _Hashes:
    """The hashes of the values of a column, each once; none where there are too many, or some have no certain form."""

    def __init__(self, column: IndexedColumn, most: int) -> None:
        self._leaf = canonical_leaf(column.type)
        self._most = most
        self._known: Array | None = None if self._leaf is None else np.empty(0, np.uint64)
        self._waiting: list[Array] = []

    def add(self, values: pa.Array) -> None:
        if self._known is None or self._leaf is None:
            return
        more = hashes_of_values(values, self._leaf)
        if more is None:
            self._known, self._waiting = None, []
            return
        self._waiting.append(more)
        if sum(map(len, self._waiting)) > max(FEW_HASHES, len(self._known)):
            self.all()

    def all(self) -> Array | None:
        """All of them, ascending."""
        if self._known is not None and self._waiting:
            joined = ascending(np.concatenate([self._known, *self._waiting]))
            self._known = joined if len(joined) <= self._most else None
        self._waiting = []
        return self._known


def _values(batch: pa.RecordBatch, column: IndexedColumn) -> pa.Array:
    found = batch.column(column.path[0])
    for name in column.path[1:]:
        # Unlike `field`, `struct_field` makes the fields of a null struct null.
        found = pc.struct_field(found, [found.type.get_field_index(name)])
    if pa.types.is_dictionary(found.type):
        found = found.dictionary_decode()
    found = found.cast(types.replace_view_types(found.type))
    assert found.type == column.type, f"{column.path} was read as {found.type}"
    return found
