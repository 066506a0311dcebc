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

from tamis.errors import CorruptFile, UnsupportedFeature, to_one_line
from tamis.io.ranges import RangedFile
from tamis.parquet.footer.chunks import PLAIN_DICTIONARY, RLE_DICTIONARY, ByteRange, ChunkLayout
from tamis.parquet.footer.datetime_rebase import LegacyCalendar, rebase_array
from tamis.parquet.footer.leaves import count_leaves
from tamis.parquet.footer.schema_path import LeafSchema, narrow_field
from tamis.parquet.indexes.page_index import PageLocations, find_dictionary_range
from tamis.parquet.reading.decode import as_bytes, decode_dictionary_texts, decode_page_header, decode_pages
from tamis.parquet.selection.row_selection import RowSelection

# --- Assemble -------------------------------------------------------------------------------------------------------
#
# Assembly of structs, lists and maps from leaf columns that were decoded separately.
#
# Each leaf arrives as its field narrowed to that leaf (see `schema_path.narrow_field`), for example a list of structs
# with one child. All leaves of a field share the same enclosing structure, so the first leaf supplies list offsets and
# NULLs, and the values of all leaves are combined below it. Leaves that disagree mean a damaged file.


LeafArrays = Sequence[tuple[int, pa.Array]]
"""Leaf numbers, counted from 0 within a type, with their arrays, in ascending order."""


def can_assemble(data_type: pa.DataType) -> bool:
    """Return whether `assemble` supports fields of this type."""
    if count_leaves(data_type) == 1:
        return True
    if isinstance(data_type, pa.BaseExtensionType):
        return can_assemble(data_type.storage_type)
    is_supported = (
        pa.types.is_struct(data_type)
        or pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_map(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )
    return is_supported and all(
        can_assemble(data_type.field(position).type) for position in range(data_type.num_fields)
    )


def assemble(data_type: pa.DataType, leaves: LeafArrays, what: str) -> pa.Array:
    """Return an array of the type from its leaves; structs omit missing leaves. `what` names the field in errors."""
    if count_leaves(data_type) == 1:
        return leaves[0][1]
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, assemble(data_type.storage_type, leaves, what))
    arrays = [_remove_offset(array) for _, array in leaves]
    first = arrays[0]
    mask = first.is_null() if first.null_count else None
    if any(not _has_same_nulls(array, len(first), mask) for array in arrays[1:]):
        raise _make_inconsistent_leaves_error(what)
    numbers = [number for number, _ in leaves]
    if pa.types.is_struct(data_type):
        children, fields = _assemble_children(data_type, list(zip(numbers, arrays, strict=True)), what)
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    inner = list(zip(numbers, (array.values for array in arrays), strict=True))
    if pa.types.is_fixed_size_list(data_type):
        values = assemble(data_type.value_type, inner, what)
        list_type = pa.list_(data_type.value_field.with_type(values.type), data_type.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=list_type, mask=mask)
    if any(not array.offsets.equals(first.offsets) for array in arrays):
        raise _make_inconsistent_leaves_error(what)
    if pa.types.is_map(data_type):
        entries = pa.struct([data_type.key_field, data_type.item_field])
        (keys, items), _ = _assemble_children(entries, inner, what)
        return pa.MapArray.from_arrays(first.offsets, keys, items, type=data_type, mask=mask)
    values = assemble(data_type.value_type, inner, what)
    field = data_type.value_field.with_type(values.type)
    if pa.types.is_large_list(data_type):
        return pa.LargeListArray.from_arrays(first.offsets, values, type=pa.large_list(field), mask=mask)
    return pa.ListArray.from_arrays(first.offsets, values, type=pa.list_(field), mask=mask)


def _assemble_children(data_type: pa.DataType, leaves: LeafArrays, what: str) -> tuple[list[pa.Array], list[pa.Field]]:
    """Return the struct's children that have at least one leaf. Each input array is a struct with a single child."""
    children: list[pa.Array] = []
    fields: list[pa.Field] = []
    start = 0
    for field in data_type:
        end = start + count_leaves(field.type)
        own = [(number - start, array.field(0)) for number, array in leaves if start <= number < end]
        if own:
            children.append(assemble(field.type, own, what))
            fields.append(field.with_type(children[-1].type))
        start = end
    return children, fields


def _has_same_nulls(array: pa.Array, length: int, mask: pa.BooleanArray | None) -> bool:
    """Return whether an array is NULL exactly where the mask is true; a mask of None means nowhere."""
    if mask is None:
        return len(array) == length and array.null_count == 0
    return bool(array.is_null().equals(mask))


def _remove_offset(array: pa.Array) -> pa.Array:
    """Return the same values without an offset into larger buffers, because child arrays would ignore the offset."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def _make_inconsistent_leaves_error(what: str) -> CorruptFile:
    return CorruptFile(f"the leaves of {what} disagree on its rows; write the file again")


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
        if dictionary is None and leaf.dictionary is not None:
            encodings = (decode_page_header(as_bytes(page), "a page").encoding for page in data)
            if any(encoding in (PLAIN_DICTIONARY, RLE_DICTIONARY) for encoding in encodings):
                found = file.read([leaf.dictionary])[0]
        fetched.append(FetchedPages(leaf, selection, pages, found, data))
    return fetched


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
