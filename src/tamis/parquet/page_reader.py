"""Chosen rows of one row group: the pages that hold them are fetched, decoded and trimmed to the rows.

Each leaf is fetched and decoded by itself, since its pages begin at rows of its own. A leaf without an offset index
is one page: its whole chunk. Rows of all leaves come out in the same order, that of the file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.errors import UnsupportedFeature, one_line
from tamis.io.ranges import RangedFile
from tamis.parquet.assemble import assemble
from tamis.parquet.chunks import PLAIN_DICTIONARY, RLE_DICTIONARY, ByteRange, ChunkLayout
from tamis.parquet.decode import as_bytes, decode_pages
from tamis.parquet.leaves import count_leaves
from tamis.parquet.page_header import decode_page_header
from tamis.parquet.page_index import PageLocations, dictionary_range
from tamis.parquet.schema_path import LeafSchema, narrowed_field
from tamis.parquet.selection import RowSelection

Rows = npt.NDArray[np.int64]


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

    @property
    def first_rows(self) -> Rows:
        return np.zeros(1, np.int64) if self.locations is None else self.locations.first_rows

    @property
    def ends(self) -> Rows:
        return np.append(self.first_rows[1:], self.row_count)

    @property
    def dictionary(self) -> ByteRange | None:
        """Where the dictionary is, if it is not read with the pages: a chunk that is one page has it inside."""
        return None if self.locations is None else dictionary_range(self.layout, self.locations)

    def pages_with(self, selection: RowSelection) -> npt.NDArray[np.int64]:
        """The pages that hold a selected row."""
        return np.flatnonzero(selection.overlaps(self.first_rows, self.ends))

    def ranges(self, pages: npt.NDArray[np.int64]) -> list[ByteRange]:
        """The bytes of these pages."""
        if self.locations is None:
            return [self.layout.byte_range] * len(pages)
        return list(zip(self.locations.offsets[pages].tolist(), self.locations.lengths[pages].tolist(), strict=True))

    def probable_dictionary(self, pages: npt.NDArray[np.int64]) -> ByteRange | None:
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
    """Pages of a leaf in memory."""

    leaf: LeafPages
    pages: npt.NDArray[np.int64]
    dictionary: pa.Buffer | None
    data: Sequence[pa.Buffer]

    def rows(self, selection: RowSelection, place: str, created_by: bytes | None) -> pa.Array:
        """The selected rows, all of which must lie in the fetched pages."""
        leaf = self.leaf
        starts, ends = leaf.first_rows[self.pages], leaf.ends[self.pages]
        wanted = np.flatnonzero(selection.overlaps(starts, ends))
        starts, ends = starts[wanted], ends[wanted]
        decoded = decode_pages(
            leaf.schema,
            leaf.field,
            leaf.layout,
            self.dictionary,
            [self.data[index] for index in wanted.tolist()],
            int((ends - starts).sum()),
            place,
            row_counts=None if leaf.locations is None else (ends - starts).tolist(),
            created_by=created_by,
        )
        positions = selection.positions_within(np.column_stack((starts, ends)))
        try:
            chosen = decoded if len(positions) == len(decoded) else decoded.take(pa.array(positions))
            rows = chosen.chunk(0) if chosen.num_chunks == 1 else chosen.combine_chunks()
        except pa.ArrowException as error:
            # One array holds at most 2 GiB of text.
            what = f"{len(positions)} rows of column '{leaf.field.name}' of '{place}'"
            raise UnsupportedFeature(f"{what} cannot be one batch: {one_line(error)}") from error
        return rows if rows.type == leaf.named_type else rows.view(leaf.named_type)


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
        fetched.append(FetchedPages(leaf, pages, found, data))
    return fetched


def _uses_dictionary(page: pa.Buffer) -> bool:
    encoding = decode_page_header(as_bytes(page), "a page").encoding
    return encoding is not None and encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY)


def read_rows(
    schema: pa.Schema, fetched: Sequence[FetchedPages], selection: RowSelection, place: str, created_by: bytes | None
) -> pa.RecordBatch:
    """The selected rows of the fetched leaves as columns of the file's Arrow schema, narrowed to those leaves."""
    return put_together(schema, decode_rows(fetched, selection, place, created_by), place)


def decode_rows(
    fetched: Sequence[FetchedPages], selection: RowSelection, place: str, created_by: bytes | None
) -> dict[int, pa.Array]:
    """The selected rows of each of the fetched leaves."""
    return {each.leaf.layout.leaf: each.rows(selection, place, created_by) for each in fetched}


def put_together(schema: pa.Schema, leaves: Mapping[int, pa.Array], place: str) -> pa.RecordBatch:
    """Leaves as columns of the file's Arrow schema, narrowed to those leaves."""
    arrays: list[pa.Array] = []
    fields: list[pa.Field] = []
    start = 0
    for field in schema:
        end = start + count_leaves(field.type)
        own = [(number - start, leaves[number]) for number in range(start, end) if number in leaves]
        if own:
            arrays.append(assemble(field.type, own, f"column '{field.name}' of '{place}'"))
            fields.append(field.with_type(arrays[-1].type))
        start = end
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


def leaf_field(schema: pa.Schema, leaf: int) -> pa.Field:
    """The field of a file's Arrow schema that has this leaf, narrowed to it."""
    start = 0
    for field in schema:
        end = start + count_leaves(field.type)
        if leaf < end:
            return narrowed_field(field, leaf - start)
        start = end
    raise IndexError(leaf)
