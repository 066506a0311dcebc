"""Column chunk metadata of footers: compared with pyarrow on files of many writers, and of damaged footers."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.page_files import (
    FILE_PATH,
    OpenedFile,
    damage_bytes,
    get_footer,
    parquet_bytes,
    write_with_duckdb,
    write_with_polars,
)
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.footer.chunks import (
    BIT_PACKED,
    CODECS,
    DATA_PAGE,
    DATA_PAGE_V2,
    DICTIONARY_PAGE,
    PLAIN,
    PLAIN_DICTIONARY,
    RLE,
    RLE_DICTIONARY,
    TOTAL_ORDER,
    TYPE_ORDER,
    ChunkLayout,
    FooterMemory,
    map_footer,
    read_chunk_layouts,
)
from tamis.parquet.footer.footer import footer_from_bytes
from tamis.parquet.footer.thrift import BINARY, BOOLEAN, I32, I64, LIST, STRUCT, encode_list, encode_struct
from tamis.parquet.reading.decode import decode_page_header

ROWS = 250
TABLE = pa.table(
    {
        "id": pa.array(range(ROWS)),
        "text": [f"value {row % 7}" for row in range(ROWS)],
        "unlike": [f"value {row}" for row in range(ROWS)],
        "real": pa.array([None if row % 3 else row / 7 for row in range(ROWS)]),
        "nested": [{"numbers": [row] * (row % 3), "name": None if row % 5 else "x"} for row in range(ROWS)],
    }
)


def check_against_pyarrow(file: OpenedFile) -> None:
    metadata = file.pyarrow.metadata
    assert file.footer.rows.tolist() == [metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
    assert len(file.layouts) == file.num_row_groups * file.num_leaves
    for (group, leaf), layout in file.layouts.items():
        chunk = metadata.row_group(group).column(leaf)
        assert (layout.row_group, layout.leaf) == (group, leaf)
        assert CODECS[layout.codec].removesuffix("_RAW") == chunk.compression
        assert layout.num_values == chunk.num_values
        assert layout.data_page_offset == chunk.data_page_offset
        assert layout.dictionary_page_offset == (chunk.dictionary_page_offset or None)
        assert layout.total_compressed_size == chunk.total_compressed_size
        assert layout.total_uncompressed_size == chunk.total_uncompressed_size
        assert (layout.column_index is not None) == chunk.has_column_index
        assert (layout.offset_index is not None) == chunk.has_offset_index
        filter_range = (chunk.bloom_filter_offset, chunk.bloom_filter_length)
        assert layout.bloom_filter == (None if filter_range[0] is None else filter_range)
        statistics = chunk.statistics
        if statistics is not None:
            assert layout.null_count == (statistics.null_count if statistics.has_null_count else None)
        assert len(layout.encodings) == len(chunk.encodings)
        check_dictionary_claim(file, layout)


def check_dictionary_claim(file: OpenedFile, layout: ChunkLayout) -> None:
    """Check `all_dictionary` against the pages themselves."""
    position, end = layout.byte_range[0], sum(layout.byte_range)
    kinds = set()
    while position < end - layout.slack:
        header = decode_page_header(file.content, FILE_PATH, position)
        kinds.add((header.is_data, header.encoding))
        position += header.page_length
    assert end - layout.slack <= position <= end
    if layout.all_dictionary:
        assert {encoding for is_data, encoding in kinds if is_data} <= {PLAIN_DICTIONARY, RLE_DICTIONARY}


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"use_dictionary": False},
        {"data_page_version": "2.0", "compression": "zstd"},
        {"version": "1.0", "compression": "gzip"},
        {"write_page_index": False, "compression": "none"},
        {"compression": "lz4", "write_statistics": False},
        {"compression": "brotli", "dictionary_pagesize_limit": 100},
    ],
    ids=str,
)
def test_layouts_of_files_by_pyarrow(options: dict[str, Any]) -> None:
    check_against_pyarrow(OpenedFile(parquet_bytes(TABLE, **options)))


@pytest.mark.parametrize("options", ["", ", parquet_version v2, codec zstd"])
def test_layouts_of_files_by_duckdb(tmp_path: Path, options: str) -> None:
    check_against_pyarrow(OpenedFile(write_with_duckdb(tmp_path / "f.parquet", options)))


def test_layouts_of_files_by_polars() -> None:
    check_against_pyarrow(OpenedFile(write_with_polars()))


def test_layouts_of_golden_files(golden: Path) -> None:
    paths = sorted((golden / "parquet").glob("*.parquet"))
    assert len(paths) > 15
    for path in paths:
        check_against_pyarrow(OpenedFile(path.read_bytes()))


def test_only_requested_chunks_are_decoded() -> None:
    content = parquet_bytes(TABLE)
    file = OpenedFile(content)
    found = read_chunk_layouts(get_footer(content), [1, 3], [2], len(content), FILE_PATH)
    assert found == {(2, 1): file.layouts[2, 1], (2, 3): file.layouts[2, 3]}
    assert read_chunk_layouts(get_footer(content), [], None, len(content), FILE_PATH) == {}


@pytest.mark.parametrize(("leaves", "groups"), [([5], [3]), ([6], None), ([-1], None), ([0], [-1]), ([0], [3])])
def test_chunks_missing_from_the_footer_are_an_error(leaves: list[int], groups: list[int] | None) -> None:
    content = parquet_bytes(TABLE)
    with pytest.raises(CorruptFile, match=r"'f.parquet' has 3 row groups of 6 columns"):
        read_chunk_layouts(get_footer(content), leaves, groups, len(content), FILE_PATH)


def test_files_without_row_groups_or_rows() -> None:
    out = io.BytesIO()
    with pq.ParquetWriter(out, TABLE.schema):
        pass
    nothing = OpenedFile(out.getvalue())
    assert (nothing.num_row_groups, nothing.footer.rows.tolist()) == (0, [])
    with pytest.raises(CorruptFile, match="0 row groups"):
        read_chunk_layouts(nothing.footer, [0], [0], len(nothing.content), FILE_PATH)
    # pyarrow records an offset before the magic for chunks without values.
    empty = OpenedFile(parquet_bytes(TABLE.slice(0, 0)))
    assert empty.footer.rows.tolist() == [0]
    assert {layout.byte_range for layout in empty.layouts.values()} == {(4, 0)}


def test_validation_finds_the_same_chunks(golden: Path) -> None:
    footers = [get_footer(path.read_bytes()) for path in sorted((golden / "parquet").glob("*.parquet"))]
    footers += [get_footer(parquet_bytes(TABLE, **options)) for options in ({}, {"use_dictionary": False})]
    maps = 0
    for footer in footers:
        try:
            # The third time, nearly all parts are known.
            memory = FooterMemory(walked_first=0)
            found = [footer_from_bytes(footer, FILE_PATH, memory).map for _ in range(3)]
        except UnsupportedFeature:
            continue
        plain = map_footer(footer, FILE_PATH)
        for each in found:
            assert each.chunks.tolist() == plain.chunks.tolist()
            assert each.rows.tolist() == plain.rows.tolist()
            assert (each.schema, each.column_orders, each.created_by) == (
                plain.schema,
                plain.column_orders,
                plain.created_by,
            )
        maps += 1
    assert maps > 2


def test_column_orders(golden: Path) -> None:
    assert OpenedFile(parquet_bytes(TABLE)).footer.read_column_order(3) == TYPE_ORDER
    floats = OpenedFile((golden / "parquet" / "floating_orders_nan_count.parquet").read_bytes()).footer
    assert [floats.read_column_order(leaf) for leaf in range(6)] == [TOTAL_ORDER, TYPE_ORDER] * 3
    assert floats.read_column_order(6) is None
    assert map_footer(make_footer([CHUNK]), FILE_PATH).read_column_order(0) is None


def test_NaN_counts_where_the_file_has_them(golden: Path) -> None:
    file = OpenedFile((golden / "parquet" / "floating_orders_nan_count.parquet").read_bytes())
    for (group, leaf), layout in file.layouts.items():
        values = file.pyarrow.read_row_group(group).column(leaf).combine_chunks().cast(pa.float64()).to_numpy()
        assert layout.nan_count == np.isnan(values).sum()


# --- Footers made by hand ---------------------------------------------------------------------------------------------

Fields = dict[int, tuple[int, Any]]

METADATA: Fields = {
    1: (I32, 2),
    2: (LIST, encode_list(I32, [PLAIN, RLE])),
    3: (LIST, encode_list(BINARY, [b"a"])),
    4: (I32, 0),
    5: (I64, 10),
    6: (I64, 100),
    7: (I64, 100),
    9: (I64, 4),
}
CHUNK: Fields = {2: (I64, 0), 3: (STRUCT, METADATA)}
SIZE = 1000


def encode(fields: Fields) -> bytes:
    return encode_struct(
        [
            (identifier, kind, encode(value) if isinstance(value, dict) else value)
            for identifier, (kind, value) in sorted(fields.items())
        ]
    )


def make_footer(columns: list[Fields], rows: int = 10) -> bytes:
    group = {1: (LIST, encode_list(STRUCT, [encode(column) for column in columns])), 2: (I64, 100), 3: (I64, rows)}
    schema = [encode_struct([(4, BINARY, b"root"), (5, I32, len(columns))])]
    schema += [encode_struct([(1, I32, 2), (3, I32, 0), (4, BINARY, b"a")]) for _ in columns]
    return encode(
        {
            1: (I32, 1),
            2: (LIST, encode_list(STRUCT, schema)),
            3: (I64, rows),
            4: (LIST, encode_list(STRUCT, [encode(group)])),
        }
    )


def read_layout(metadata: Fields | None = None, chunk: Fields | None = None) -> ChunkLayout:
    made = make_footer([CHUNK | {3: (STRUCT, METADATA | (metadata or {}))} | (chunk or {})])
    return read_chunk_layouts(made, [0], None, SIZE + len(made) + 8, FILE_PATH)[0, 0]


@pytest.mark.parametrize(("stated", "found"), [(None, None), (0, None), (-1, None), (50, 50), (60, None), (90, None)])
def test_P9_invalid_dictionary_offsets_are_ignored(stated: int | None, found: int | None) -> None:
    layout = read_layout({9: (I64, 60), 11: (I64, stated)})
    assert layout.dictionary_page_offset == found
    assert layout.byte_range == (60 if found is None else 50, 100)


def make_page_counts(*counts: tuple[int, int, int]) -> tuple[int, bytes]:
    return LIST, encode_list(STRUCT, [encode_struct([(1, I32, a), (2, I32, b), (3, I32, c)]) for a, b, c in counts])


@pytest.mark.parametrize(
    ("encodings", "counted", "expected"),
    [
        # With encoding statistics, each data page is counted.
        (
            [PLAIN, RLE, RLE_DICTIONARY],
            make_page_counts((DICTIONARY_PAGE, PLAIN, 1), (DATA_PAGE, RLE_DICTIONARY, 3)),
            True,
        ),
        (
            [PLAIN, RLE, RLE_DICTIONARY],
            make_page_counts((DICTIONARY_PAGE, PLAIN, 1), (DATA_PAGE_V2, RLE_DICTIONARY, 3)),
            True,
        ),
        ([PLAIN_DICTIONARY], make_page_counts((DATA_PAGE, PLAIN_DICTIONARY, 3)), True),
        ([PLAIN_DICTIONARY], make_page_counts((DATA_PAGE, PLAIN_DICTIONARY, 3), (DATA_PAGE, PLAIN, 0)), True),
        ([RLE_DICTIONARY], make_page_counts((DATA_PAGE, RLE_DICTIONARY, 3), (DATA_PAGE, PLAIN, 1)), False),
        ([RLE_DICTIONARY], make_page_counts((DATA_PAGE, RLE_DICTIONARY, 3), (DATA_PAGE_V2, PLAIN, 1)), False),
        ([RLE_DICTIONARY], make_page_counts((DATA_PAGE, RLE_DICTIONARY, 3), (DATA_PAGE, PLAIN, -1)), False),
        ([RLE_DICTIONARY], make_page_counts((DATA_PAGE, RLE_DICTIONARY, -3)), False),
        ([RLE_DICTIONARY], make_page_counts((DICTIONARY_PAGE, PLAIN, 1)), False),
        ([PLAIN_DICTIONARY, RLE], make_page_counts(), False),
        # Without encoding statistics, only format version 1 is conclusive.
        ([PLAIN_DICTIONARY], None, True),
        ([PLAIN_DICTIONARY, RLE, BIT_PACKED], None, True),
        ([PLAIN_DICTIONARY, RLE, PLAIN], None, False),
        ([PLAIN_DICTIONARY, 7], None, False),
        ([RLE_DICTIONARY, RLE], None, False),
        ([RLE_DICTIONARY, RLE, PLAIN], None, False),
        ([RLE, BIT_PACKED], None, False),
        ([], None, False),
    ],
)
def test_B6_chunks_of_dictionary_pages_only(
    encodings: list[int], counted: tuple[int, bytes] | None, expected: bool
) -> None:
    fields: Fields = {2: (LIST, encode_list(I32, encodings))}
    if counted is not None:
        fields[13] = counted
    assert read_layout(fields).all_dictionary is expected


@pytest.mark.parametrize(
    ("counted", "expected"),
    [
        (None, None),
        (make_page_counts((DICTIONARY_PAGE, PLAIN, 1), (DATA_PAGE, RLE_DICTIONARY, 3), (DATA_PAGE, PLAIN, 2)), 3),
        (make_page_counts((DATA_PAGE, PLAIN_DICTIONARY, 3), (DATA_PAGE_V2, RLE_DICTIONARY, 2)), 5),
        (make_page_counts((DATA_PAGE, PLAIN, 2)), 0),
        (make_page_counts((DATA_PAGE, RLE_DICTIONARY, 3), (DATA_PAGE, RLE_DICTIONARY, -1)), None),
    ],
)
def test_dictionary_encoded_pages_are_counted(counted: tuple[int, bytes] | None, expected: int | None) -> None:
    assert read_layout({} if counted is None else {13: counted}).dictionary_pages == expected


def test_B6_a_chunk_that_fell_back_to_plain_pages_is_detected() -> None:
    file = OpenedFile(parquet_bytes(TABLE.select(["unlike"]), dictionary_pagesize_limit=200, row_group_size=ROWS))
    assert not file.layouts[0, 0].all_dictionary
    assert RLE_DICTIONARY in file.layouts[0, 0].encodings


def test_exactness_and_counts_of_statistics() -> None:
    assert (read_layout().min_exact, read_layout().max_exact, read_layout().null_count) == (None, None, None)
    stated: Fields = {3: (I64, 4), 7: (BOOLEAN, False), 8: (BOOLEAN, True), 9: (I64, 2)}
    layout = read_layout({12: (STRUCT, stated)})
    assert (layout.min_exact, layout.max_exact, layout.null_count, layout.nan_count) == (True, False, 4, 2)
    layout = read_layout({12: (STRUCT, {3: (I64, -4), 9: (I64, -1)})})
    assert (layout.null_count, layout.nan_count) == (None, None)


@pytest.mark.parametrize(
    "metadata",
    [
        {9: (I64, -1)},
        {9: (I64, 3)},
        {9: (I64, SIZE - 99)},
        {9: (I64, 2**62)},
        {7: (I64, SIZE - 3)},
        {7: (I64, 2**63 - 1)},
        {7: (I64, -1)},
        {6: (I64, -1)},
        {5: (I64, -1)},
        {9: (I64, 500), 11: (I64, 4)},
    ],
    ids=str,
)
def test_X3_chunks_outside_the_file_are_an_error(metadata: Fields) -> None:
    with pytest.raises(CorruptFile, match=r"column 0 in row group 0 of 'f\.parquet'"):
        read_layout(metadata)


def test_chunks_may_fill_the_file() -> None:
    assert read_layout({7: (I64, SIZE - 4)}).byte_range == (4, SIZE - 4)
    assert read_layout({5: (I64, 0), 9: (I64, 0)}).byte_range == (4, 0)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({4: (I64, 500), 5: (I32, 20)}, (500, 20)),
        ({4: (I64, SIZE - 20), 5: (I32, 20)}, (SIZE - 20, 20)),
        ({4: (I64, SIZE - 19), 5: (I32, 20)}, None),
        ({4: (I64, 500), 5: (I32, 0)}, None),
        ({4: (I64, 500), 5: (I32, -20)}, None),
        ({4: (I64, -500), 5: (I32, 20)}, None),
        ({4: (I64, 0), 5: (I32, 20)}, None),
        ({4: (I64, 500)}, None),
        ({5: (I32, 20)}, None),
    ],
    ids=str,
)
def test_indexes_outside_the_file_are_ignored(fields: Fields, expected: tuple[int, int] | None) -> None:
    assert read_layout(chunk=fields).offset_index == expected
    assert read_layout(chunk={identifier + 2: field for identifier, field in fields.items()}).column_index == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({14: (I64, 500)}, (500, None)),
        ({14: (I64, 500), 15: (I32, 47)}, (500, 47)),
        ({14: (I64, 500), 15: (I32, SIZE)}, None),
        ({14: (I64, 500), 15: (I32, -1)}, None),
        ({14: (I64, 500), 15: (I32, 0)}, None),
        ({14: (I64, 0), 15: (I32, 47)}, None),
        ({14: (I64, -1), 15: (I32, 47)}, None),
        ({14: (I64, SIZE), 15: (I32, 47)}, None),
    ],
    ids=str,
)
def test_B8_X4_offsets_of_Bloom_filters(fields: Fields, expected: tuple[int, int | None] | None) -> None:
    assert read_layout(fields).bloom_filter == expected


def test_external_or_encrypted_chunks_are_unsupported() -> None:
    with pytest.raises(UnsupportedFeature, match="is stored in another file"):
        read_layout(chunk={1: (BINARY, b"other.parquet")})
    with pytest.raises(UnsupportedFeature, match="is encrypted"):
        read_layout(chunk={8: (STRUCT, {})})
    assert read_layout(chunk={1: (BINARY, b"")}).codec == 0


@pytest.mark.parametrize("identifier", [2, 4, 5, 6, 7, 9])
def test_chunks_without_required_fields_are_an_error(identifier: int) -> None:
    metadata = {key: value for key, value in METADATA.items() if key != identifier}
    made = make_footer([CHUNK | {3: (STRUCT, metadata)}])
    with pytest.raises(CorruptFile, match=r"column 0 in row group 0 of 'f\.parquet' is damaged: it has no"):
        read_chunk_layouts(made, [0], None, SIZE + len(made), FILE_PATH)


def test_invalid_row_groups_are_an_error() -> None:
    with pytest.raises(CorruptFile, match="negative number of rows"):
        map_footer(make_footer([CHUNK], rows=-1), FILE_PATH)
    with pytest.raises(CorruptFile, match="no list of row groups"):
        map_footer(encode({1: (I32, 1), 2: (LIST, encode_list(STRUCT, []))}), FILE_PATH)
    group = {1: (LIST, encode_list(STRUCT, [])), 3: (I64, 1)}
    other = {1: (LIST, encode_list(STRUCT, [encode(CHUNK)])), 3: (I64, 1)}
    groups = encode_list(STRUCT, [encode(group), encode(other)])
    with pytest.raises(CorruptFile, match="different numbers of columns"):
        map_footer(encode({2: (LIST, encode_list(STRUCT, [])), 4: (LIST, groups)}), FILE_PATH)


def test_X1_damaged_footers_give_layouts_or_CorruptFile() -> None:
    content = parquet_bytes(TABLE, row_group_size=ROWS)
    found = 0
    for footer in damage_bytes(get_footer(content), times=1500):
        try:
            layouts = read_chunk_layouts(footer, [0, 3], None, len(content), FILE_PATH)
        except (CorruptFile, UnsupportedFeature):
            continue
        found += 1
        for layout in layouts.values():
            start, length = layout.byte_range
            assert length == 0 or 4 <= start <= start + length <= len(content)
            for byte_range in (layout.column_index, layout.offset_index):
                assert byte_range is None or 4 <= byte_range[0] < sum(byte_range) <= len(content)
    assert found > 50
