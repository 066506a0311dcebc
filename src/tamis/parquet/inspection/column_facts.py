"""One column of a file as a table with a row per row group: its storage and its footer statistics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tamis import types
from tamis.expr.nodes import Column
from tamis.parquet.footer.bounds import UNKNOWN, Bounds, BoundsReader, get_stored_type, make_bounds_reader
from tamis.parquet.footer.chunks import CODECS, ChunkLayout
from tamis.parquet.footer.leaves import FieldPath, FileSchema, Leaf
from tamis.parquet.footer.statistics import can_trust_bytes
from tamis.parquet.indexes.page_index import ColumnIndex, PageLocations, find_dictionary_range, make_pages_metadata
from tamis.skipping.metadata import metadata_name

_ENCODINGS = (
    "PLAIN",
    "GROUP_VAR_INT",
    "PLAIN_DICTIONARY",
    "RLE",
    "BIT_PACKED",
    "DELTA_BINARY_PACKED",
    "DELTA_LENGTH_BYTE_ARRAY",
    "DELTA_BYTE_ARRAY",
    "RLE_DICTIONARY",
    "BYTE_STREAM_SPLIT",
)
_DICTIONARY_ENCODINGS = {"PLAIN_DICTIONARY", "RLE_DICTIONARY"}


def tabulate_chunks(
    leaf: InspectedLeaf,
    layouts: Sequence[ChunkLayout],
    metadata: pq.FileMetaData,
    located: Sequence[PageLocations | None],
    have_bounds: Sequence[bool],
    filter_sizes: Sequence[int | None],
) -> pa.Table:
    """Return the column chunks of a leaf, one row per row group.

    `located` are the page locations, `have_bounds` says for each chunk whether its pages have valid bounds, and
    `filter_sizes` are the known sizes of the Bloom filters in bytes.
    """
    dictionaries = [find_dictionary_range(layout, pages) for layout, pages in zip(layouts, located, strict=True)]
    columns: dict[str, tuple[Sequence[Any], pa.DataType]] = {
        "row_group": ([layout.row_group for layout in layouts], types.LONG),
        "rows": ([metadata.row_group(layout.row_group).num_rows for layout in layouts], types.LONG),
        "values": ([layout.num_values for layout in layouts], types.LONG),
        "compressed": ([layout.total_compressed_size for layout in layouts], types.LONG),
        "uncompressed": ([layout.total_uncompressed_size for layout in layouts], types.LONG),
        "codec": ([_name_of_number(CODECS, layout.codec, "CODEC") for layout in layouts], types.STRING),
        "encodings": ([_list_encodings(layout) for layout in layouts], pa.list_(types.STRING)),
        "nulls": ([_count_nulls(leaf, layout) for layout in layouts], types.LONG),
        "distinct_count": ([layout.distinct_count for layout in layouts], types.LONG),
        "dictionary": ([_describe_dictionary(layout) for layout in layouts], types.STRING),
        "dictionary_bytes": ([None if found is None else found[1] for found in dictionaries], types.LONG),
        "page_index": (list(map(_describe_page_index, located, have_bounds)), types.STRING),
        "page_count": ([None if pages is None else pages.num_pages for pages in located], types.LONG),
        "bloom_filter": ([layout.bloom_filter is not None for layout in layouts], types.BOOLEAN),
        "bloom_filter_bytes": (filter_sizes, types.LONG),
    }
    arrays = {name: pa.array(values, data_type) for name, (values, data_type) in columns.items()}
    return pa.table(arrays | _read_bounds(leaf, layouts, metadata))


def has_no_values(chunks: pa.Table) -> pa.ChunkedArray:
    """Return for each chunk whether it has only NULLs."""
    return pc.equal(chunks["values"], pc.fill_null(chunks["nulls"], -1))


def _name_of_number(names: Sequence[str], number: int, kind: str) -> str:
    return names[number] if 0 <= number < len(names) else f"{kind}_{number}"


def _list_encodings(layout: ChunkLayout) -> list[str]:
    return list(dict.fromkeys(_name_of_number(_ENCODINGS, encoding, "ENCODING") for encoding in layout.encodings))


def _describe_dictionary(layout: ChunkLayout) -> str:
    if layout.all_dictionary:
        return "all pages"
    return "no" if _DICTIONARY_ENCODINGS.isdisjoint(_list_encodings(layout)) else "yes"


def _describe_page_index(pages: PageLocations | None, has_bounds: bool) -> str:
    return "no" if pages is None else "yes" if has_bounds else "locations only"


def _count_nulls(leaf: InspectedLeaf, layout: ChunkLayout) -> int | None:
    if pa.types.is_null(leaf.leaf.arrow_type):
        return layout.num_values
    if not leaf.leaf.nullable:
        return 0
    return layout.null_count if layout.null_count is not None and layout.null_count <= layout.num_values else None


def _read_bounds(leaf: InspectedLeaf, layouts: Sequence[ChunkLayout], metadata: pq.FileMetaData) -> dict[str, pa.Array]:
    reader = make_bounds_reader(leaf.leaf, leaf.display_type, trust_bytes=can_trust_bytes(metadata))
    if reader is None:
        values, flags = make_unknown_bounds(leaf, len(layouts)), pa.nulls(len(layouts), types.BOOLEAN)
        return {"min": values, "max": values, "min_exact": flags, "max_exact": flags}
    bounds = []
    for layout in layouts:
        statistics = metadata.row_group(layout.row_group).column(leaf.leaf.index).statistics
        has_bounds = statistics is not None and statistics.has_min_max
        raw = (statistics.min_raw, statistics.max_raw) if has_bounds else None
        bounds.append(UNKNOWN if raw is None else _convert_bounds(reader, layout, *raw))
    lower, upper = (reader.array([bound[position] for bound in bounds]) for position in range(2))
    return {
        "min": normalise_zeros(lower),
        "max": normalise_zeros(upper),
        "min_exact": pa.array([bound[2] for bound in bounds], types.BOOLEAN),
        "max_exact": pa.array([bound[3] for bound in bounds], types.BOOLEAN),
    }


def _convert_bounds(reader: BoundsReader, layout: ChunkLayout, smallest: Any, largest: Any) -> Bounds:
    """Convert bounds, with the exactness flags of the file; pruning is stricter and does not rely on these flags."""
    lower, upper, _, _ = reader.bounds(smallest, largest)
    may_be_truncated = types.is_bytes(reader.source)
    exact: list[bool | None] = []
    for value, raw, flag in ((lower, smallest, layout.min_exact), (upper, largest, layout.max_exact)):
        if value is None:
            exact.append(None)
        elif not may_be_truncated:
            # Numbers are never truncated, and most writers omit the flag.
            exact.append(flag is not False)
        else:
            is_as_stored = (value.encode() if isinstance(value, str) else value) == raw
            exact.append(flag if is_as_stored else False)
    return lower, upper, exact[0], exact[1]


def make_unknown_bounds(leaf: InspectedLeaf, count: int) -> pa.Array:
    return pa.nulls(count, pa.null() if leaf.display_type is None else leaf.display_type)


def normalise_zeros(bounds: pa.Array) -> pa.Array:
    """Return the bounds with -0.0 as 0.0: pruning uses the outer zero, which users would mistake for the value."""
    if not pa.types.is_floating(bounds.type):
        return bounds
    unknown = np.asarray(bounds.is_null())
    numbers = np.where(unknown, 0, bounds.fill_null(0).to_numpy(zero_copy_only=False))
    return pa.array(np.where(numbers == 0, np.zeros_like(numbers), numbers), bounds.type, mask=unknown)


# --- One column of a file as a table with a row per page: its location and its page index statistics ------------------

LocatedChunk = tuple[int, PageLocations, ColumnIndex | None]
"""A row group, the page locations of a column in it, and its column index if it is valid."""


def tabulate_pages(
    leaf: InspectedLeaf,
    chunks: Sequence[LocatedChunk],
    first_rows: npt.NDArray[np.int64],
    *,
    trust_bytes: bool,
    is_ordered: bool,
) -> pa.Table:
    """Return the pages of all chunks, in file order. `first_rows` are the first rows of the row groups."""
    column = Column(leaf.leaf.path, type=leaf.display_type)
    metadata = make_pages_metadata(
        [(index, pages) for _, pages, index in chunks],
        column,
        leaf.leaf,
        trust_bytes=trust_bytes,
        is_ordered=is_ordered,
    )
    counts = np.array([pages.num_pages for _, pages, _ in chunks], np.int64)
    nulls = metadata[metadata_name("null_count", column.path)]
    if leaf.is_repeated:
        # The null counts above are capped by the number of rows, but a repeated column has many values per row.
        nulls = pa.concat_arrays(
            [pa.nulls(0, types.LONG), *(_get_stored_nulls(pages, index) for _, pages, index in chunks)]
        )
    lower, upper = (
        metadata.get(metadata_name(kind, column.path), make_unknown_bounds(leaf, int(counts.sum())))
        for kind in ("lower", "upper")
    )
    return pa.table(
        {
            "row_group": pa.array(np.repeat(np.array([group for group, _, _ in chunks], np.int64), counts)),
            "page": pa.array(_concatenate(np.arange(count) for count in counts.tolist())),
            "first_row": pa.array(_concatenate(first_rows[group] + pages.first_rows for group, pages, _ in chunks)),
            "rows": pa.array(_concatenate(pages.row_counts for _, pages, _ in chunks)),
            "offset": pa.array(_concatenate(pages.offsets for _, pages, _ in chunks)),
            "bytes": pa.array(_concatenate(pages.lengths for _, pages, _ in chunks)),
            "nulls": nulls,
            "has_values": pa.array(_has_values(leaf, chunks)),
            "min": normalise_zeros(lower),
            "max": normalise_zeros(upper),
        }
    )


def _concatenate(parts: Iterable[npt.NDArray[np.int64]]) -> npt.NDArray[np.int64]:
    return np.concatenate([np.empty(0, np.int64), *parts])


def _get_stored_nulls(pages: PageLocations, index: ColumnIndex | None) -> pa.Array:
    if index is None or index.null_counts is None:
        return pa.nulls(pages.num_pages, types.LONG)
    return pa.array(index.null_counts, types.LONG)


def _has_values(leaf: InspectedLeaf, chunks: Sequence[LocatedChunk]) -> npt.NDArray[np.bool_]:
    """Return which pages have values other than NULL; pages without statistics count as having values."""
    parts = [np.empty(0, np.bool_)]
    for _, pages, index in chunks:
        has_rows = pages.row_counts > 0
        parts.append(has_rows if index is None else has_rows & ~index.null_pages)
    found = np.concatenate(parts)
    return np.zeros_like(found) if pa.types.is_null(leaf.leaf.arrow_type) else found


# --- All leaf columns of a file for inspection, including those inside lists and maps, which pruning ignores ----------

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_WIDEST_DECIMAL128 = 38


@dataclass(frozen=True, slots=True)
class InspectedLeaf:
    """A leaf column, and whether it is repeated: a row may have any number of its values."""

    leaf: Leaf
    is_repeated: bool

    @property
    def name(self) -> str:
        """The dotted path, as `--column` and filters accept it.

        >>> format_path(("a", "b")), format_path(("a.b", "c"))
        ('a.b', '`a.b`.c')
        """
        return format_path(self.leaf.path)

    @property
    def physical(self) -> str:
        fixed = self.leaf.physical == "FIXED_LEN_BYTE_ARRAY"
        return f"{self.leaf.physical}({self.leaf.length})" if fixed else self.leaf.physical

    @property
    def logical(self) -> str | None:
        """The logical type with its parameters, as in `TIMESTAMP(us, UTC)`; None if the leaf has none."""
        leaf = self.leaf
        match leaf.logical:
            case "NONE":
                return None
            case "DECIMAL":
                return f"DECIMAL({leaf.precision}, {leaf.scale})"
            case "INT":
                return f"INT({leaf.parameters['bitWidth']}, {'signed' if leaf.parameters['isSigned'] else 'unsigned'})"
            case "TIME" | "TIMESTAMP" as kind:
                unit = _UNITS.get(leaf.parameters["timeUnit"], leaf.parameters["timeUnit"])
                return f"{kind}({unit}{', UTC' if leaf.parameters['isAdjustedToUTC'] else ''})"
            case other:
                return other

    @property
    def display_type(self) -> pa.DataType | None:
        """The type in which bounds are shown; None if the column has no order."""
        stored = get_stored_type(self.leaf)
        if stored is None:
            return None
        if self.leaf.logical in ("STRING", "ENUM", "JSON"):
            return types.STRING
        if pa.types.is_float16(stored):
            # Arrow has few kernels for float16.
            return pa.float32()
        if pa.types.is_decimal(stored):
            wide = stored.precision > _WIDEST_DECIMAL128
            return (pa.decimal256 if wide else pa.decimal128)(stored.precision, stored.scale)
        return stored


def list_leaves(schema: FileSchema) -> list[InspectedLeaf]:
    """Return all leaf columns of a file in schema order.

    A leaf inside a list or a map has its Parquet path, with the groups of the list encoding: `tags.list.element`.
    """
    found = []
    for index, (path, arrow_type) in enumerate(_walk_leaves(schema.arrow)):
        column = schema.parquet.column(index)
        leaf = Leaf.from_column(index, _complete_path(path, column.path), column, arrow_type, schema.calendar)
        found.append(InspectedLeaf(leaf, column.max_repetition_level > 0))
    return found


def format_path(path: FieldPath) -> str:
    quoted = ("`" + part.replace("`", "``") + "`" if "." in part or "`" in part or not part else part for part in path)
    return ".".join(quoted)


def _walk_leaves(schema: pa.Schema) -> Iterator[tuple[FieldPath, pa.DataType]]:
    """Yield the leaves in order: the path through structs to the leaf or the first list or map, and the leaf type."""
    stack: list[tuple[FieldPath, bool, pa.DataType]] = [
        ((field.name,), True, field.type) for field in reversed(list(schema))
    ]
    while stack:
        path, is_in_structs, data_type = stack.pop()
        if isinstance(data_type, pa.BaseExtensionType):
            stack.append((path, is_in_structs, data_type.storage_type))
        elif pa.types.is_dictionary(data_type):
            stack.append((path, is_in_structs, data_type.value_type))
        elif pa.types.is_nested(data_type):
            is_in_structs = is_in_structs and pa.types.is_struct(data_type)
            # Arrow counts the entries of a map as its only child, a struct of key and value.
            for position in reversed(range(data_type.num_fields)):
                field = data_type.field(position)
                stack.append(((*path, field.name) if is_in_structs else path, is_in_structs, field.type))
        else:
            yield path, data_type


def _complete_path(path: FieldPath, parquet: str) -> FieldPath:
    # Dots in Parquet's path may be part of a name, so only its parts inside a list or a map are used.
    known = ".".join(path)
    if parquet == known:
        return path
    if parquet.startswith(f"{known}."):
        return (*path, *parquet[len(known) + 1 :].split("."))
    return tuple(parquet.split("."))
