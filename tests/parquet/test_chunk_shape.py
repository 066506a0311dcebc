"""Chunks with the shape of the first of their column are recognised quickly, and no other chunks are."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.page_files import get_footer
from tamis.errors import CorruptFile
from tamis.parquet.footer.chunks import ChunkShape, map_footer
from tamis.parquet.footer.footer import footer_from_bytes

GROUPS = 19
NUMBER, TEXT = 0, 1


def write_footer(**options: Any) -> bytes:
    """Return the footer of a file in which the bounds of a string grow from row group to row group."""
    texts = [chr(97 + group) * (1 + group) for group in range(GROUPS) for _ in range(2)]
    table = pa.table({"number": np.arange(2 * GROUPS) * 10**9, "text": texts})
    out = io.BytesIO()
    pq.write_table(table, out, row_group_size=2, **options)
    return get_footer(out.getvalue())


@pytest.mark.parametrize("options", [{}, {"write_page_index": True}, {"write_statistics": False}])
def test_chunks_of_a_column_have_one_shape(options: dict[str, Any]) -> None:
    footer = write_footer(**options)
    chunks = map_footer(footer, "f").chunks.tolist()
    for leaf in (NUMBER, TEXT):
        shape = ChunkShape.of(footer, chunks[0][leaf], any_bounds=leaf == TEXT)
        assert shape is not None
        ends = [shape.match_end(footer, group[leaf]) for group in chunks]
        if leaf == NUMBER:
            assert ends == [group[TEXT] for group in chunks]
        assert None not in ends
        assert all(shape.match_end(footer, group[1 - leaf]) is None for group in chunks)


def test_bounds_of_another_length_are_another_shape_unless_any_length_is_allowed() -> None:
    footer = write_footer()
    chunks = map_footer(footer, "f").chunks.tolist()
    shape = ChunkShape.of(footer, chunks[0][TEXT], any_bounds=False)
    assert shape is not None
    assert shape.match_end(footer, chunks[0][TEXT]) is not None
    assert shape.match_end(footer, chunks[1][TEXT]) is None


def test_an_extra_field_or_another_type_is_another_shape() -> None:
    footer = write_footer()
    chunks = map_footer(footer, "f").chunks.tolist()
    shape = ChunkShape.of(footer, chunks[0][NUMBER], any_bounds=False)
    assert shape is not None
    start, end = chunks[4][NUMBER], chunks[4][TEXT]
    chunk = footer[start:end]
    assert shape.match_end(chunk, 0) == len(chunk)
    # file_offset is a number, then the metadata begin with the physical type.
    offset = chunk.index(b"\x1c\x15") + 2
    other = chunk[:offset] + bytes([chunk[offset] + 2]) + chunk[offset + 1 :]
    assert shape.match_end(other, 0) is None
    assert shape.match_end(chunk[:-1] + b"\x86\x02\x00", 0) is None


def test_positions_are_those_of_a_second_walk() -> None:
    footer = write_footer(write_page_index=True)
    walked, known = map_footer(footer, "f"), footer_from_bytes(footer, "f").map
    assert known.chunks.tolist() == walked.chunks.tolist()
    assert known.rows.tolist() == walked.rows.tolist() == [2] * GROUPS
    assert (known.schema, known.created_by, known.column_orders) == (
        walked.schema,
        walked.created_by,
        walked.column_orders,
    )


def test_a_chunk_of_another_type_is_found_among_many() -> None:
    footer = write_footer()
    start = map_footer(footer, "f").chunks.tolist()[GROUPS - 1][NUMBER]
    offset = footer.index(b"\x1c\x15", start) + 2
    damaged = footer[:offset] + b"\x02" + footer[offset + 1 :]
    with pytest.raises(CorruptFile, match=f"a column of INT32 in row group {GROUPS - 1}, expected INT64"):
        footer_from_bytes(damaged, "f")
