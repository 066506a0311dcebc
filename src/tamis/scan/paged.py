"""Reading of chosen rows: the pages that hold them, those of filtered columns first.

Rows are read in pieces, so that memory stays bounded. Of each piece the columns of the filter come first where that
saves more than it costs: the rows that it rejects need no other column (late materialisation).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa

from tamis.io.ranges import RangedFile
from tamis.parquet.conform import Constants, conform_batch
from tamis.parquet.file import ParquetFile
from tamis.parquet.indexes import read_page_indexes
from tamis.parquet.page_reader import LeafPages, fetch_pages, read_rows
from tamis.parquet.selection import RowSelection
from tamis.scan.residual import Residual

WORTH_A_ROUND_TRIP = {True: 64 * 1024, False: 2 * 1024 * 1024}
"""How many bytes of other columns are worth a second round of requests, locally and remotely: a remote one waits some
30 ms, in which a connection moves about as much; a local one costs what decoding such a piece does."""


class PagedRows:
    """Rows of one row group, through pages. `schema` is the table's, narrowed to what is read."""

    def __init__(
        self,
        source: ParquetFile,
        row_group: int,
        schema: pa.Schema,
        leaves: Mapping[str, Sequence[int]],
        constants: Constants,
        residual: Residual | None,
    ) -> None:
        self._source = source
        self._row_group = row_group
        self._schema = schema
        self._leaves = leaves
        """By column of the table, those of the file; a column that the file lacks has none."""
        self._constants = constants
        self._residual = residual

    def read(self, file: RangedFile, selection: RowSelection, most_rows: int) -> Iterator[pa.RecordBatch]:
        """The selected rows that satisfy the rest of the filter, batch by batch in the order of the file."""
        pages = self._pages(file)
        tested = [column.path[0] for column in self._residual.columns] if self._residual is not None else []
        first = [field.name for field in self._schema if field.name in tested]
        others = [field.name for field in self._schema if field.name not in tested]
        for piece in selection.iter_parts(most_rows):
            if self._residual is None:
                yield self._rows(file, pages, self._schema.names, piece)
            elif not self._pays(pages, others, piece):
                yield self._residual.filter(self._rows(file, pages, self._schema.names, piece))
            else:
                batch, positions = self._residual.matching(self._rows(file, pages, first, piece))
                if batch.num_rows:
                    left = piece.and_then(RowSelection.from_indices(positions, piece.row_count))
                    yield _side_by_side(batch, self._rows(file, pages, others, left), self._schema)

    def _pages(self, file: RangedFile) -> dict[int, LeafPages]:
        leaves = [leaf for found in self._leaves.values() for leaf in found]
        indexes = read_page_indexes(self._source, file, [(self._row_group, leaf) for leaf in leaves])
        return {
            leaf: self._source.get_leaf_pages(self._row_group, leaf, indexes.locations[self._row_group, leaf])
            for leaf in leaves
        }

    def _pays(self, pages: Mapping[int, LeafPages], columns: Sequence[str], selection: RowSelection) -> bool:
        """Whether reading these columns after the others may save more than another round costs."""
        size = sum(pages[leaf].count_bytes_for(selection) for name in columns for leaf in self._leaves.get(name, ()))
        return size > WORTH_A_ROUND_TRIP[self._source.storage.is_local]

    def _rows(
        self, file: RangedFile, pages: Mapping[int, LeafPages], columns: Sequence[str], selection: RowSelection
    ) -> pa.RecordBatch:
        wanted = pa.schema([self._schema.field(name) for name in columns])
        leaves = [pages[leaf] for name in columns for leaf in self._leaves.get(name, ())]
        place = self._source.location
        if leaves:
            fetched = fetch_pages(file, leaves, selection)
            batch = read_rows(self._source.footer.schema.columns, fetched, place, self._source.created_by)
        else:
            # A batch needs some column to know its length.
            batch = pa.record_batch({"": pa.nulls(selection.row_count)})
        return conform_batch(batch, wanted, self._constants, f"'{place}'", self._source.footer.names)


def _side_by_side(one: pa.RecordBatch, other: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = {name: batch.column(name) for batch in (one, other) for name in batch.schema.names}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
