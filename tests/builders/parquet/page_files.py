"""Parquet files in memory, opened down to their pages, and damaged ones."""

from __future__ import annotations

import io
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq

from tamis.parquet.footer.chunks import ChunkLayout, FooterMap, map_footer, read_chunk_layouts
from tamis.parquet.footer.leaves import count_leaves
from tamis.parquet.footer.schema_path import LeafSchema, narrow_field, read_leaf_schemas
from tamis.parquet.indexes.page_index import PageLocations, decode_offset_index, find_dictionary_range
from tamis.parquet.reading.decode import decode_pages

FILE_PATH = "f.parquet"


def parquet_bytes(table: pa.Table, **options: Any) -> bytes:
    """Return a file with a page index and small pages by default."""
    out = io.BytesIO()
    pq.write_table(table, out, **{"write_page_index": True, "max_rows_per_page": 17, "row_group_size": 100} | options)
    return out.getvalue()


def write_with_duckdb(path: Path, options: str = "") -> bytes:
    with duckdb.connect() as connection:
        connection.execute(
            "copy (select i, i % 7 as k, 'text ' || (i % 100) as t, [i, i + 1] as l, {'a': i, 'b': i::varchar} as s, "
            "map {'x': i} as m, i::decimal(12, 2) as d, case when i % 3 = 0 then null else i::double end as f "
            f"from range(5000) as r(i)) to '{path}' (row_group_size 2048 {options})"
        )
    return path.read_bytes()


def write_with_polars() -> bytes:
    out = io.BytesIO()
    rows = range(3000)
    columns = {
        "i": rows,
        "t": [f"text {row % 50}" for row in rows],
        "l": [[row] * (row % 3) for row in rows],
        "s": [{"a": row, "b": str(row)} for row in rows],
    }
    pl.DataFrame(columns).write_parquet(out, row_group_size=1000, data_page_size=2000)
    return out.getvalue()


def get_footer(content: bytes) -> bytes:
    length = int.from_bytes(content[-8:-4], "little")
    return content[-8 - length : -8]


def replace_footer(content: bytes, footer: bytes) -> bytes:
    """Return the same data with another footer."""
    data = content[: -8 - len(get_footer(content))]
    return data + footer + len(footer).to_bytes(4, "little") + b"PAR1"


def damage_bytes(content: bytes, times: int, seed: int = 0) -> Iterator[bytes]:
    """Yield copies of the bytes in which a few are changed, cut off, inserted or removed."""
    generator = random.Random(seed)
    for _ in range(times):
        changed = bytearray(content)
        for _ in range(generator.choice((1, 1, 1, 2, 4))):
            at = generator.randrange(len(changed) or 1)
            match generator.randrange(5):
                case 0:
                    changed[at : at + 1] = bytes([generator.randrange(256)])
                case 1:
                    changed[at : at + 1] = bytes([changed[at] ^ 1 << generator.randrange(8)]) if changed else b""
                case 2:
                    changed[at:at] = generator.choice((b"\x00", b"\xff", b"\xff\xff\xff\xff\x0f", b"\x19\xfc", b"\x1c"))
                case 3:
                    del changed[at : at + generator.randrange(1, 4)]
                case 4:
                    del changed[at:]
        yield bytes(changed)


def has_same_values(found: pa.ChunkedArray, expected: pa.ChunkedArray) -> bool:
    """Return whether types and values are equal. NaN equals NaN."""
    left, right = found.combine_chunks(), expected.combine_chunks()
    if left.type != right.type or len(left) != len(right):
        return False
    if isinstance(left, pa.DictionaryArray):
        # Dictionary codes depend on the pages that were read.
        left, right = left.dictionary_decode(), right.dictionary_decode()
    return left.equals(right) or left.to_string(window=10**9) == right.to_string(window=10**9)


@dataclass(frozen=True)
class OpenedFile:
    content: bytes

    @cached_property
    def buffer(self) -> pa.Buffer:
        return pa.py_buffer(self.content)

    @cached_property
    def footer(self) -> FooterMap:
        return map_footer(get_footer(self.content), FILE_PATH)

    @cached_property
    def pyarrow(self) -> pq.ParquetFile:
        return pq.ParquetFile(pa.BufferReader(self.content), coerce_int96_timestamp_unit="us")

    @property
    def num_leaves(self) -> int:
        return self.pyarrow.metadata.num_columns

    @property
    def num_row_groups(self) -> int:
        return self.pyarrow.metadata.num_row_groups

    @cached_property
    def layouts(self) -> dict[tuple[int, int], ChunkLayout]:
        return read_chunk_layouts(self.footer, range(self.num_leaves), None, len(self.content), FILE_PATH)

    @cached_property
    def schemas(self) -> dict[int, LeafSchema]:
        return read_leaf_schemas(self.footer, range(self.num_leaves), FILE_PATH)

    @cached_property
    def fields(self) -> list[pa.Field]:
        """The field of each leaf, without its siblings."""
        return [
            narrow_field(field, leaf) for field in self.pyarrow.schema_arrow for leaf in range(count_leaves(field.type))
        ]

    def part(self, byte_range: tuple[int, int]) -> bytes:
        return self.content[byte_range[0] : sum(byte_range)]

    def locations(self, row_group: int, leaf: int) -> PageLocations:
        layout = self.layouts[row_group, leaf]
        assert layout.offset_index is not None
        rows = int(self.footer.rows[row_group])
        return decode_offset_index(self.part(layout.offset_index), layout, rows, FILE_PATH)

    def dictionary(self, row_group: int, leaf: int) -> pa.Buffer | None:
        layout = self.layouts[row_group, leaf]
        pages = None if layout.offset_index is None else self.locations(row_group, leaf)
        byte_range = find_dictionary_range(layout, pages)
        return None if byte_range is None else self.buffer.slice(*byte_range)

    def decode(self, row_group: int, leaf: int, pages: Sequence[int]) -> pa.ChunkedArray:
        """Return the values of some pages."""
        page_locations = self.locations(row_group, leaf)
        counts = [int(page_locations.row_counts[page]) for page in pages]
        return decode_pages(
            self.schemas[leaf],
            self.fields[leaf],
            self.layouts[row_group, leaf],
            self.dictionary(row_group, leaf),
            [self.buffer.slice(int(page_locations.offsets[page]), int(page_locations.lengths[page])) for page in pages],
            sum(counts),
            FILE_PATH,
            row_counts=counts,
            created_by=self.footer.created_by,
        )

    def decode_chunk(self, row_group: int, leaf: int) -> pa.ChunkedArray:
        """Return the values of a column chunk, decoded at once."""
        layout = self.layouts[row_group, leaf]
        return decode_pages(
            self.schemas[leaf],
            self.fields[leaf],
            layout,
            None,
            [self.buffer.slice(*layout.byte_range)],
            int(self.footer.rows[row_group]),
            FILE_PATH,
            created_by=self.footer.created_by,
        )

    def expected(self, row_group: int, leaf: int) -> pa.ChunkedArray:
        """Return the values of a column chunk as pyarrow reads them."""
        if (row_group, leaf) not in self._expected:
            column = self.pyarrow.reader.read_row_group(row_group, column_indices=[leaf]).column(0)
            # The reader chooses the names inside lists and maps.
            self._expected[row_group, leaf] = column.cast(self.fields[leaf].type)
        return self._expected[row_group, leaf]

    @cached_property
    def _expected(self) -> dict[tuple[int, int], pa.ChunkedArray]:
        return {}

    def expected_pages(self, row_group: int, leaf: int, pages: Sequence[int]) -> pa.ChunkedArray:
        page_locations = self.locations(row_group, leaf)
        whole = self.expected(row_group, leaf)
        slices = [
            whole.slice(int(page_locations.first_rows[page]), int(page_locations.row_counts[page])) for page in pages
        ]
        return pa.chunked_array([chunk for each in slices for chunk in each.chunks], whole.type)
