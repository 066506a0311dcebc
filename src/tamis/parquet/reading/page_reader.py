"""Reads selected rows of one row group: fetches and decodes the pages that hold them, and trims the result.

Each leaf is fetched and decoded separately, because its page boundaries differ. A leaf without an offset index is
treated as one page, its whole chunk. All leaves return their rows in file order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.errors import UnsupportedFeature, to_one_line
from tamis.io.ranges import RangedFile
from tamis.parquet.footer.chunks import PLAIN_DICTIONARY, RLE_DICTIONARY, ByteRange, ChunkLayout
from tamis.parquet.footer.datetime_rebase import LegacyCalendar, rebase_array
from tamis.parquet.footer.schema_path import LeafSchema, narrow_field
from tamis.parquet.indexes.page_index import PageLocations, find_dictionary_range
from tamis.parquet.reading.assemble import assemble
from tamis.parquet.reading.decode import as_bytes, decode_dictionary_texts, decode_pages
from tamis.parquet.reading.page_header import decode_page_header
from tamis.parquet.selection.row_selection import RowSelection

Rows = npt.NDArray[np.int64]

FEW_ROWS = 8
"""If at most one row in this many is selected, dictionary-encoded strings are decoded after the selection."""


@dataclass(frozen=True, slots=True, eq=False)
class LeafPages:
    """The pages of one leaf in one row group: their locations, and how to decode them."""

    layout: ChunkLayout
    schema: LeafSchema
    field: pa.Field
    """The file's Arrow field, narrowed to this leaf."""
    named_type: pa.DataType
    """The type of that field with logical names."""
    row_count: int
    """The number of rows of the row group."""
    locations: PageLocations | None
    """None if the file has no offset index; the chunk is then one page."""
    calendar: LegacyCalendar | None = None
    """The legacy calendar of the values, if they need a datetime rebase."""

    @property
    def first_rows(self) -> Rows:
        return np.zeros(1, np.int64) if self.locations is None else self.locations.first_rows

    @property
    def ends(self) -> Rows:
        return np.array([self.row_count]) if self.locations is None else self.locations.ends

    @property
    def dictionary(self) -> ByteRange | None:
        """The range of the dictionary page; None if the leaf has none, or reads it with the whole chunk."""
        return None if self.locations is None else find_dictionary_range(self.layout, self.locations)

    def find_pages(self, selection: RowSelection) -> Rows:
        """Return the numbers of the pages that hold a selected row."""
        if selection.is_empty:
            return np.empty(0, np.int64)
        starts, ends = self.first_rows, self.ends
        # Pages cover all rows, so the pages from the first to the last selected row hold one, except empty pages and
        # pages in the gaps of the selection.
        first = int(np.searchsorted(ends, selection.starts[0], side="right"))
        last = int(np.searchsorted(starts, selection.ends[-1], side="left"))
        pages = np.arange(first, last)
        if len(pages) <= 1:
            return pages
        starts, ends = starts[pages], ends[pages]
        return pages[selection.overlaps(starts, ends) if selection.num_runs > 1 else starts < ends]

    def ranges(self, pages: Rows) -> list[ByteRange]:
        """Return the byte ranges of these pages."""
        if self.locations is None:
            return [self.layout.byte_range] * len(pages)
        return list(zip(self.locations.offsets[pages].tolist(), self.locations.lengths[pages].tolist(), strict=True))

    def guess_dictionary_range(self, pages: Rows) -> ByteRange | None:
        """Return the range of the dictionary if these pages probably need it.

        A writer falls back from dictionary encoding at most once, so dictionary-encoded pages come first. The page
        headers show later whether that was right.
        """
        if not len(pages) or (self.layout.dictionary_pages is not None and pages[0] >= self.layout.dictionary_pages):
            return None
        return self.dictionary

    def count_bytes_for(self, selection: RowSelection) -> int:
        """Return the number of bytes to read for the selected rows, without gaps between pages."""
        pages = self.find_pages(selection)
        dictionary = self.guess_dictionary_range(pages)
        return sum(length for _, length in self.ranges(pages)) + (dictionary[1] if dictionary is not None else 0)


@dataclass(frozen=True, slots=True, eq=False)
class FetchedPages:
    """The pages of a leaf that hold the selected rows, in memory."""

    leaf: LeafPages
    selection: RowSelection
    pages: Rows
    dictionary: pa.Buffer | None
    data: Sequence[pa.Buffer]

    def rows(self, location: str, created_by: bytes | None) -> pa.Array:
        """Decode the selected rows."""
        leaf, row_count = self.leaf, self.selection.row_count
        starts, ends = leaf.first_rows[self.pages], leaf.ends[self.pages]
        counts = (ends - starts).tolist()
        positions = None if sum(counts) == row_count else pa.array(self._find_positions(starts, ends))
        try:
            chosen = self._decode_rows_at(positions, counts, location, created_by)
            rows = chosen.chunk(0) if chosen.num_chunks == 1 else chosen.combine_chunks()
        except pa.ArrowException as error:
            # One array holds at most 2 GiB of text.
            what = f"{row_count} rows of column '{leaf.field.name}' of '{location}'"
            raise UnsupportedFeature(f"{what} cannot be one batch: {to_one_line(error)}") from error
        if leaf.calendar is not None:
            rows = rebase_array(rows, leaf.calendar, f"column {leaf.field.name!r} of '{location}'")
        return rows if rows.type == leaf.named_type else rows.view(leaf.named_type)

    def _decode_rows_at(
        self, positions: pa.Array | None, row_counts: list[int], location: str, created_by: bytes | None
    ) -> pa.ChunkedArray:
        """Decode the rows at some positions of the concatenated pages; None means all. `row_counts` is per page."""
        leaf = self.leaf
        decode = partial(
            decode_pages,
            leaf.schema,
            leaf.field,
            leaf.layout,
            self.dictionary,
            self.data,
            sum(row_counts),
            location,
            row_counts=None if leaf.locations is None else row_counts,
            created_by=created_by,
        )
        if positions is None:
            return decode()
        chosen = decode(may_stay_coded=FEW_ROWS * len(positions) <= sum(row_counts)).take(positions)
        if chosen.type == leaf.field.type:
            return chosen
        texts = decode_dictionary_texts(chosen, leaf.field.type)
        # Decoding everything raises the right error if the dictionary is damaged.
        return decode().take(positions) if texts is None else texts

    def _find_positions(self, starts: Rows, ends: Rows) -> Rows:
        """Return the positions of the selected rows in the concatenated pages."""
        if (starts[1:] == ends[:-1]).all():
            found: Rows = self.selection.to_indices() - starts[0]
            return found
        return self.selection.positions_within(np.column_stack((starts, ends)))


def fetch_pages(file: RangedFile, leaves: Iterable[LeafPages], selection: RowSelection) -> list[FetchedPages]:
    """Fetch the pages of some leaves that hold selected rows, in one round of requests."""
    wanted = [
        (leaf, pages, leaf.guess_dictionary_range(pages)) for leaf in leaves for pages in [leaf.find_pages(selection)]
    ]
    ranges = [[*leaf.ranges(pages), *((dictionary,) if dictionary else ())] for leaf, pages, dictionary in wanted]
    buffers = iter(file.read([each for leaf_ranges in ranges for each in leaf_ranges]))
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
"""The fields of a file's Arrow schema with the numbers of their leaves, see `leaves.list_fields_with_leaves`."""


def read_rows(
    columns: Columns, fetched: Sequence[FetchedPages], location: str, created_by: bytes | None
) -> pa.RecordBatch:
    """Decode the selected rows of the fetched leaves as columns of the file, narrowed to those leaves."""
    return assemble_columns(columns, decode_rows(fetched, location, created_by), location)


def decode_rows(fetched: Sequence[FetchedPages], location: str, created_by: bytes | None) -> dict[int, pa.Array]:
    """Decode the selected rows of each fetched leaf."""
    return {each.leaf.layout.leaf: each.rows(location, created_by) for each in fetched}


def assemble_columns(columns: Columns, leaves: Mapping[int, pa.Array], location: str) -> pa.RecordBatch:
    """Assemble leaves into columns of the file, narrowed to those leaves."""
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    for field, numbers in columns:
        own = [(number - numbers.start, leaves[number]) for number in numbers if number in leaves]
        if own:
            arrays.append(assemble(field.type, own, f"column '{field.name}' of '{location}'"))
            fields.append(field.with_type(arrays[-1].type))
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def find_leaf_field(columns: Columns, leaf: int) -> pa.Field:
    """Return the field of a file that contains this leaf, narrowed to it."""
    for field, numbers in columns:
        if leaf in numbers:
            return narrow_field(field, leaf - numbers.start)
    raise IndexError(leaf)
