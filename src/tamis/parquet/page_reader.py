"""Chosen rows of one row group: the pages that hold them are fetched, decoded and trimmed to the rows.

Each leaf is fetched and decoded by itself, since its pages begin at rows of its own. A leaf without an offset index
is one page: its whole chunk. Rows of all leaves come out in the same order, that of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.errors import UnsupportedFeature, one_line
from tamis.io.ranges import RangedFile
from tamis.parquet.assemble import assemble
from tamis.parquet.chunks import PLAIN_DICTIONARY, RLE_DICTIONARY, ByteRange, ChunkLayout
from tamis.parquet.decode import as_bytes, decode_pages, plain_texts
from tamis.parquet.old_calendar import OldCalendar, in_new_calendar
from tamis.parquet.page_header import decode_page_header
from tamis.parquet.page_index import PageLocations, dictionary_range
from tamis.parquet.schema_path import LeafSchema, narrowed_field
from tamis.parquet.selection import RowSelection

Rows = npt.NDArray[np.int64]

FEW_ROWS = 8
"""Of one row in so many, texts in a dictionary are looked up after the rows were chosen."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafPages:
    """Where the pages of one leaf in one row group are, and how they are decoded."""

    layout: ChunkLayout
    schema: LeafSchema
    field: pa.Field
    """The Arrow field narrowed to this leaf, as the file has it."""
    named_type: pa.DataType
    """Its type with the names that are wanted."""
    row_count: int
    """Of the row group."""
    locations: PageLocations | None
    """None where the file has no offset index: then the chunk is one page."""
    calendar: OldCalendar | None = None
    """The one that old values are in, if it is not that of today."""

    @property
    def first_rows(self) -> Rows:
        return np.zeros(1, np.int64) if self.locations is None else self.locations.first_rows

    @property
    def ends(self) -> Rows:
        return np.array([self.row_count]) if self.locations is None else self.locations.ends

    @property
    def dictionary(self) -> ByteRange | None:
        """Where the dictionary is, if it is not read with the pages: a chunk that is one page has it inside."""
        return None if self.locations is None else dictionary_range(self.layout, self.locations)

    def pages_with(self, selection: RowSelection) -> Rows:
        """The pages that hold a selected row."""
        if selection.is_empty:
            return np.empty(0, np.int64)
        starts, ends = self.first_rows, self.ends
        # Pages cover all rows, so all between the first and the last selected one do that are not empty, but for gaps.
        first = int(np.searchsorted(ends, selection.starts[0], side="right"))
        last = int(np.searchsorted(starts, selection.ends[-1], side="left"))
        pages = np.arange(first, last)
        if len(pages) <= 1:
            return pages
        starts, ends = starts[pages], ends[pages]
        return pages[selection.overlaps(starts, ends) if selection.num_runs > 1 else starts < ends]

    def ranges(self, pages: Rows) -> list[ByteRange]:
        """The bytes of these pages."""
        if self.locations is None:
            return [self.layout.byte_range] * len(pages)
        return list(zip(self.locations.offsets[pages].tolist(), self.locations.lengths[pages].tolist(), strict=True))

    def probable_dictionary(self, pages: Rows) -> ByteRange | None:
        """Where the dictionary is, if these pages seem to need it.

        Writers that give a dictionary up do so once, so that the pages which use it come first. Whether that is so
        shows in the headers of the pages.
        """
        if not len(pages) or (self.layout.dictionary_pages is not None and pages[0] >= self.layout.dictionary_pages):
            return None
        return self.dictionary

    def bytes_for(self, selection: RowSelection) -> int:
        """How many bytes the selected rows take, gaps between pages apart."""
        pages = self.pages_with(selection)
        dictionary = self.probable_dictionary(pages)
        return sum(length for _, length in self.ranges(pages)) + (dictionary[1] if dictionary is not None else 0)


@dataclass(frozen=True, slots=True, eq=False)
class FetchedPages:
    """Pages of a leaf in memory: those that hold the selected rows."""

    leaf: LeafPages
    selection: RowSelection
    pages: Rows
    dictionary: pa.Buffer | None
    data: Sequence[pa.Buffer]

    def rows(self, place: str, created_by: bytes | None) -> pa.Array:
        """The selected rows."""
        leaf, row_count = self.leaf, self.selection.row_count
        starts, ends = leaf.first_rows[self.pages], leaf.ends[self.pages]
        counts = (ends - starts).tolist()
        positions = None if sum(counts) == row_count else pa.array(self._positions(starts, ends))
        try:
            chosen = self._chosen(positions, counts, place, created_by)
            rows = chosen.chunk(0) if chosen.num_chunks == 1 else chosen.combine_chunks()
        except pa.ArrowException as error:
            # One array holds at most 2 GiB of text.
            what = f"{row_count} rows of column '{leaf.field.name}' of '{place}'"
            raise UnsupportedFeature(f"{what} cannot be one batch: {one_line(error)}") from error
        if leaf.calendar is not None:
            rows = in_new_calendar(rows, leaf.calendar, f"column {leaf.field.name!r} of '{place}'")
        return rows if rows.type == leaf.named_type else rows.view(leaf.named_type)

    def _chosen(
        self, positions: pa.Array | None, row_counts: list[int], place: str, created_by: bytes | None
    ) -> pa.ChunkedArray:
        """The rows at some positions among those of the pages, which have these numbers of rows; None for all."""
        leaf = self.leaf
        decode = partial(
            decode_pages,
            leaf.schema,
            leaf.field,
            leaf.layout,
            self.dictionary,
            self.data,
            sum(row_counts),
            place,
            row_counts=None if leaf.locations is None else row_counts,
            created_by=created_by,
        )
        if positions is None:
            return decode()
        chosen = decode(may_stay_coded=FEW_ROWS * len(positions) <= sum(row_counts)).take(positions)
        if chosen.type == leaf.field.type:
            return chosen
        texts = plain_texts(chosen, leaf.field.type)
        # What is wrong with the dictionary, if anything, shows when all of it is made use of.
        return decode().take(positions) if texts is None else texts

    def _positions(self, starts: Rows, ends: Rows) -> Rows:
        """Where the selected rows are among those of the pages."""
        if (starts[1:] == ends[:-1]).all():
            found: Rows = self.selection.to_indices() - starts[0]
            return found
        return self.selection.positions_within(np.column_stack((starts, ends)))


def fetch_pages(file: RangedFile, leaves: Iterable[LeafPages], selection: RowSelection) -> list[FetchedPages]:
    """The pages of some leaves that hold selected rows, in one round of requests."""
    wanted = [
        (leaf, pages, leaf.probable_dictionary(pages)) for leaf in leaves for pages in [leaf.pages_with(selection)]
    ]
    ranges = [[*leaf.ranges(pages), *((dictionary,) if dictionary else ())] for leaf, pages, dictionary in wanted]
    buffers = iter(file.read([each for of_leaf in ranges for each in of_leaf]))
    fetched = []
    for leaf, pages, dictionary in wanted:
        data = [next(buffers) for _ in range(len(pages))]
        found = next(buffers) if dictionary is not None else None
        if dictionary is None and leaf.dictionary is not None and any(map(_uses_dictionary, data)):
            found = file.read([leaf.dictionary])[0]
        fetched.append(FetchedPages(leaf, selection, pages, found, data))
    return fetched


def _uses_dictionary(page: pa.Buffer) -> bool:
    encoding = decode_page_header(as_bytes(page), "a page").encoding
    return encoding is not None and encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY)


Columns = Sequence[tuple[pa.Field, range]]
"""Fields of a file's Arrow schema with the leaves that hold them, see `leaves.fields_with_leaves`."""


def read_rows(
    columns: Columns, fetched: Sequence[FetchedPages], place: str, created_by: bytes | None
) -> pa.RecordBatch:
    """The selected rows of the fetched leaves as columns of the file, narrowed to those leaves."""
    return put_together(columns, decode_rows(fetched, place, created_by), place)


def decode_rows(fetched: Sequence[FetchedPages], place: str, created_by: bytes | None) -> dict[int, pa.Array]:
    """The selected rows of each of the fetched leaves."""
    return {each.leaf.layout.leaf: each.rows(place, created_by) for each in fetched}


def put_together(columns: Columns, leaves: Mapping[int, pa.Array], place: str) -> pa.RecordBatch:
    """Leaves as columns of the file, narrowed to those leaves."""
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    for field, numbers in columns:
        own = [(number - numbers.start, leaves[number]) for number in numbers if number in leaves]
        if own:
            arrays.append(assemble(field.type, own, f"column '{field.name}' of '{place}'"))
            fields.append(field.with_type(arrays[-1].type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def leaf_field(columns: Columns, leaf: int) -> pa.Field:
    """The field of a file that has this leaf, narrowed to it."""
    for field, numbers in columns:
        if leaf in numbers:
            return narrowed_field(field, leaf - numbers.start)
    raise IndexError(leaf)
