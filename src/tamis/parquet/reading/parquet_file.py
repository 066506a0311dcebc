"""One Parquet file with its footer, column chunks and leaf columns, for readers of row groups and pages.

Everything derived from the footer is cached with it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass

import pyarrow as pa

from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.parquet.footer.chunks import ChunkLayout, FooterMap, read_chunk_layouts
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer
from tamis.parquet.footer.leaves import list_fields_with_leaves
from tamis.parquet.footer.schema_path import LeafSchema, read_leaf_schemas
from tamis.parquet.indexes.page_index import PageLocations, get_readable_range
from tamis.parquet.reading.page_reader import LeafPages, find_leaf_field
from tamis.parquet.reading.row_group_reader import choose_batch_rows, estimate_decoded_size
from tamis.types import replace_view_types


@dataclass(frozen=True)
class ParquetFile:
    """A file at a path with a fixed content. It is thread-safe."""

    storage: Storage
    path: str
    size: int
    modified_ns: int | None
    footer: Footer

    @staticmethod
    def load(
        storage: Storage, path: str, size: int, modified_ns: int | None, names: ColumnMapping | None = None
    ) -> ParquetFile:
        """Load the footer of the file at a path; with `names` its schema has logical names."""
        return ParquetFile(storage, path, size, modified_ns, load_footer(storage, path, size, modified_ns, names)[0])

    @property
    def location(self) -> str:
        return self.storage.format_path(self.path)

    @property
    def schema(self) -> pa.Schema:
        return self.footer.schema.arrow

    @property
    def identity(self) -> Hashable:
        """A cache key for this content: another file at the same path has another footer, and so another key."""
        return self.footer.get_cached("identity", object)

    @property
    def created_by(self) -> bytes | None:
        return self.map.created_by

    def open(self) -> RangedFile:
        return RangedFile(self.storage, self.path, self.size, self.modified_ns)

    @property
    def map(self) -> FooterMap:
        return self.footer.map

    def count_rows(self, row_group: int) -> int:
        return int(self.map.rows[row_group])

    def chunk(self, row_group: int, leaf: int) -> ChunkLayout:
        def read() -> ChunkLayout:
            return read_chunk_layouts(self.map, [leaf], [row_group], self.size, self.location)[row_group, leaf]

        return self.footer.get_cached(("chunk", row_group, leaf), read)

    def choose_batch_rows(self, row_group: int, leaves: Iterable[int]) -> int:
        """Return the number of rows per batch for some leaves."""
        size = sum(estimate_decoded_size(self.chunk(row_group, leaf)) for leaf in leaves)
        return choose_batch_rows(self.count_rows(row_group), size, self.storage.tuning)

    def has_page_locations(self, row_group: int, leaves: Iterable[int]) -> bool:
        """Return whether single pages of all these leaves can be read."""
        return all(get_readable_range(self.chunk(row_group, leaf).offset_index) is not None for leaf in leaves)

    def get_leaf_pages(self, row_group: int, leaf: int, locations: PageLocations | None) -> LeafPages:
        """Return a reader for a leaf's pages at these locations, or for its whole chunk if locations are unknown."""
        schema, field, named = self.footer.get_cached(("leaf", leaf), lambda: self._read_leaf(leaf))
        calendar = self.footer.schema.calendar if leaf in self.footer.schema.leaves_to_rebase else None
        return LeafPages(
            self.chunk(row_group, leaf), schema, field, named, self.count_rows(row_group), locations, calendar
        )

    def _read_leaf(self, leaf: int) -> tuple[LeafSchema, pa.Field, pa.DataType]:
        schema = self.footer.schema
        named = find_leaf_field(schema.columns, leaf)
        field = (
            named
            if self.footer.names is None
            else find_leaf_field(list_fields_with_leaves(schema.physical_arrow), leaf)
        )
        # Arrow cannot `take` rows from string or binary views.
        field, named_type = field.with_type(replace_view_types(field.type)), replace_view_types(named.type)
        return read_leaf_schemas(self.map, [leaf], self.location)[leaf], field, named_type
