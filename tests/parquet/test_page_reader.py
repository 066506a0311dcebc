"""Selected rows read by pages equal the same rows of the whole file, for every shape, codec and page layout."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.io.ranges import RangedFile
from tamis.io.storage import open_storage
from tamis.parquet.footer.chunks import map_footer, read_chunk_layouts
from tamis.parquet.footer.leaves import list_fields_with_leaves
from tamis.parquet.footer.schema_path import read_leaf_schemas
from tamis.parquet.indexes.page_index import decode_offset_index
from tamis.parquet.reading.page_reader import LeafPages, can_assemble, fetch_pages, find_leaf_field, read_rows
from tamis.parquet.selection.row_selection import RowSelection

ROWS = 400


def make_or_null(random_: random.Random, make: Any, nulls: float = 0.2) -> Any:
    return None if random_.random() < nulls else make()


def make_shapes(seed: int) -> pa.Table:
    """Return a column of every shape, with NULLs and empty lists at every level."""
    r = random.Random(seed)

    def draw_text() -> str:
        return "".join(r.choices("abcdüñ", k=r.randrange(0, 9)))

    def draw_number() -> int:
        return r.randrange(-1000, 1000)

    def draw_pair() -> dict[str, Any]:
        return {"a": make_or_null(r, draw_number), "b": make_or_null(r, draw_text)}

    def make_list_drawer(make: Any) -> Any:
        return lambda: [make_or_null(r, make) for _ in range(r.randrange(0, 4))]

    def make_map_drawer(make: Any) -> Any:
        return lambda: [(f"k{i}", make_or_null(r, make)) for i in range(r.randrange(0, 3))]

    pair_type = pa.struct({"a": pa.int32(), "b": pa.string()})
    columns: dict[str, tuple[pa.DataType, Any]] = {
        "plain": (pa.int64(), draw_number),
        "few": (pa.string(), lambda: r.choice(["x", "y", "z"])),
        "text": (pa.large_string(), draw_text),
        "flag": (pa.bool_(), lambda: r.random() < 0.5),
        "amount": (pa.decimal128(12, 3), lambda: Decimal(draw_number()) / 8),
        "fixed": (pa.binary(3), lambda: r.randbytes(3)),
        "instant": (pa.timestamp("us", "Europe/Berlin"), draw_number),
        "took": (pa.duration("ms"), draw_number),
        "encoded": (pa.dictionary(pa.int32(), pa.string()), lambda: r.choice(["p", "q"])),
        "nothing": (pa.null(), lambda: None),
        "pair": (pair_type, draw_pair),
        "deep": (
            pa.struct({"p": pair_type, "q": pa.float64()}),
            lambda: {"p": make_or_null(r, draw_pair), "q": r.random()},
        ),
        "list": (pa.list_(pa.int32()), make_list_drawer(draw_number)),
        "lists": (pa.list_(pa.list_(pa.string())), make_list_drawer(make_list_drawer(draw_text))),
        "pairs": (pa.list_(pair_type), make_list_drawer(draw_pair)),
        "large": (pa.large_list(pair_type), make_list_drawer(draw_pair)),
        "map": (pa.map_(pa.string(), pa.int64()), make_map_drawer(draw_number)),
        "maps": (pa.map_(pa.string(), pa.list_(pair_type)), make_map_drawer(make_list_drawer(draw_pair))),
        "in_struct": (
            pa.struct({"l": pa.list_(pair_type), "z": pa.int8()}),
            lambda: {"l": make_or_null(r, make_list_drawer(draw_pair)), "z": 1},
        ),
        "three": (pa.list_(pa.int16(), 3), lambda: [draw_number() for _ in range(3)]),
    }
    arrays = [pa.array([make_or_null(r, make) for _ in range(ROWS)], kind) for kind, make in columns.values()]
    required = pa.array(range(ROWS), pa.int32())
    fields = [pa.field(name, kind) for name, (kind, _) in columns.items()]
    return pa.Table.from_arrays([*arrays, required], schema=pa.schema([*fields, pa.field("id", pa.int32(), False)]))


def read_selected(
    path: Path, row_group: int, selection: RowSelection, leaves: list[int] | None = None, *, use_index: bool = True
) -> pa.RecordBatch:
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = map_footer(content[-8 - length : -8], "f")
    metadata = pq.read_metadata(path)
    columns = list_fields_with_leaves(metadata.schema.to_arrow_schema())
    wanted = list(range(len(metadata.schema))) if leaves is None else leaves
    layouts = read_chunk_layouts(footer, wanted, [row_group], len(content), "f")
    paths = read_leaf_schemas(footer, wanted, "f")
    rows = int(footer.rows[row_group])
    pages = []
    for leaf in wanted:
        layout = layouts[row_group, leaf]
        found = layout.offset_index if use_index else None
        locations = (
            None if found is None else decode_offset_index(content[found[0] : found[0] + found[1]], layout, rows, "f")
        )
        field = find_leaf_field(columns, leaf)
        pages.append(LeafPages(layout, paths[leaf], field, field.type, rows, locations))
    with RangedFile(open_storage(path), str(path)) as file:
        fetched = fetch_pages(file, pages, selection)
    return read_rows(columns, fetched, "f", footer.created_by)


def has_same_rows(found: pa.RecordBatch, expected: pa.Table) -> bool:
    """Compare dictionary columns by value: the dictionary of some pages may differ from that of all pages."""
    plain = pa.schema(
        [
            field.with_type(field.type.value_type) if pa.types.is_dictionary(field.type) else field
            for field in expected.schema
        ]
    )
    return found.schema.equals(expected.schema) and pa.Table.from_batches([found]).cast(plain).equals(
        expected.cast(plain)
    )


def make_selections(seed: int, rows: int) -> list[RowSelection]:
    r = np.random.default_rng(seed)
    return [
        RowSelection.none(rows),
        RowSelection.all(rows),
        RowSelection.from_indices([rows // 2], rows),
        RowSelection.from_indices([0, rows - 1], rows),
        RowSelection.from_ranges([(rows // 3, rows // 2)], rows),
        RowSelection.from_mask(r.random(rows) < 0.1),
    ]


@pytest.mark.parametrize(
    ("codec", "version", "dictionary"),
    [
        ("NONE", "1.0", False),
        ("NONE", "2.0", True),
        ("SNAPPY", "1.0", True),
        ("SNAPPY", "2.0", False),
        ("ZSTD", "2.0", True),
        ("GZIP", "1.0", False),
        ("LZ4", "2.0", False),
        ("BROTLI", "1.0", True),
    ],
)
@pytest.mark.one_in(3)
def test_P9_chosen_rows_of_every_shape_equal_those_of_the_whole_file(
    tmp_path: Path, codec: str, version: str, dictionary: bool
) -> None:
    table = make_shapes(seed=7)
    path = tmp_path / "f.parquet"
    pq.write_table(
        table,
        path,
        compression=codec,
        data_page_version=version,
        use_dictionary=dictionary,
        write_page_index=True,
        max_rows_per_page=23,
        row_group_size=150,
    )
    whole = pq.read_table(path)
    start = 0
    for group in range(3):
        rows = min(150, ROWS - start)
        part = whole.slice(start, rows)
        for selection in make_selections(group, rows):
            found = read_selected(path, group, selection)
            expected = part.take(pa.array(selection.to_indices()))
            assert has_same_rows(found, expected), selection
        start += rows


def test_P9_without_an_offset_index_whole_chunks_are_decoded(tmp_path: Path) -> None:
    table = make_shapes(seed=8)
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, max_rows_per_page=50)
    whole = pq.read_table(path)
    for selection in make_selections(1, ROWS):
        assert has_same_rows(read_selected(path, 0, selection), whole.take(pa.array(selection.to_indices())))


def test_some_leaves_of_a_struct_give_a_struct_of_only_those(tmp_path: Path) -> None:
    table = pa.table({"s": [{"a": 1, "b": 2, "c": 3}, None, {"a": 4, "b": None, "c": 6}], "x": [1, 2, 3]})
    path = tmp_path / "f.parquet"
    pq.write_table(table, path, write_page_index=True)
    found = read_selected(path, 0, RowSelection.from_indices([1, 2], 3), [0, 2])
    assert found.to_pylist() == [{"s": None}, {"s": {"a": 4, "c": 6}}]


def test_only_the_pages_with_selected_rows_are_fetched(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    rows = 100_000
    table = pa.table({"x": pa.array(np.random.default_rng(0).integers(0, 2**60, rows))})
    pq.write_table(table, path, write_page_index=True, max_rows_per_page=1000, use_dictionary=False, compression="NONE")
    storage = open_storage(path)
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    footer = map_footer(content[-8 - length : -8], "f")
    layout = read_chunk_layouts(footer, [0], [0], len(content), "f")[0, 0]
    assert layout.offset_index is not None
    start, size = layout.offset_index
    locations = decode_offset_index(content[start : start + size], layout, rows, "f")
    field = table.schema.field(0)
    leaf = LeafPages(layout, read_leaf_schemas(footer, [0], "f")[0], field, field.type, rows, locations)
    selection = RowSelection.from_indices([5_500, 90_000], rows)
    with RangedFile(storage, str(path)) as file:
        fetch_pages(file, [leaf], selection)
    assert storage.counters.counts().bytes_read == leaf.count_bytes_for(selection) < 2 * 1000 * 8 + 200


@pytest.mark.parametrize("kind", [pa.list_view(pa.struct({"a": pa.int8(), "b": pa.int8()}))])
def test_types_that_cannot_be_assembled_are_an_error(kind: pa.DataType) -> None:
    assert not can_assemble(kind)
    assert can_assemble(pa.list_view(pa.int8()))
