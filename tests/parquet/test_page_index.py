"""The page index: locations and statistics, compared with the pages themselves, and inconsistent indexes."""

from __future__ import annotations

import io
import math
import re
import struct
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders.parquet.page_files import FILE_PATH, OpenedFile, damage_bytes, parquet_bytes, write_with_polars
from tamis import types
from tamis.errors import CorruptFile
from tamis.expr.nodes import Column
from tamis.parquet.footer.bounds import make_bounds_reader
from tamis.parquet.footer.chunks import ChunkLayout
from tamis.parquet.footer.leaves import Leaf, get_file_schema
from tamis.parquet.footer.statistics import read_row_group_metadata
from tamis.parquet.footer.thrift import BINARY, I32, I64, LIST, STRUCT, encode_list, encode_struct
from tamis.parquet.indexes.page_index import (
    ASCENDING,
    DESCENDING,
    UNORDERED,
    ColumnIndex,
    PageLocations,
    convert_raw_bounds,
    decode_column_index,
    decode_offset_index,
    find_dictionary_range,
    make_pages_metadata,
    try_decode_column_index,
)
from tamis.parquet.reading.decode import decode_page_header

ROWS = 200

LAYOUT = ChunkLayout(
    row_group=0,
    leaf=0,
    codec=0,
    encodings=(0, 3, 8),
    data_page_offset=150,
    dictionary_page_offset=100,
    total_compressed_size=900,
    total_uncompressed_size=900,
    num_values=100,
    column_index=None,
    offset_index=None,
    bloom_filter=None,
    all_dictionary=False,
    dictionary_pages=None,
    min_exact=None,
    max_exact=None,
    null_count=None,
    nan_count=None,
    byte_range=(100, 900),
)


# --- Page locations ---------------------------------------------------------------------------------------------------


def check_locations(file: OpenedFile) -> int:
    """Check every offset index against the page headers, and return the number of indexes."""
    checked = 0
    for (row_group, leaf), layout in file.layouts.items():
        if layout.offset_index is None:
            continue
        pages = file.locations(row_group, leaf)
        position, end = layout.byte_range[0], sum(layout.byte_range)
        found = []
        while position < end:
            header = decode_page_header(file.content, FILE_PATH, position)
            if header.is_data:
                found.append((position, header.page_length, header.num_values))
            position += header.page_length
        assert pages.num_pages == len(found)
        assert pages.offsets.tolist() == [offset for offset, _, _ in found]
        assert pages.lengths.tolist() == [length for _, length, _ in found]
        assert pages.row_counts.sum() == pages.row_count == file.footer.rows[row_group]
        if not file.schemas[leaf].is_repeated:
            assert pages.row_counts.tolist() == [values for _, _, values in found]
        checked += 1
    return checked


def make_lists_and_numbers() -> pa.Table:
    numbers = pa.array([None if row % 5 == 0 else row for row in range(ROWS)])
    return pa.table({"n": numbers, "l": [[row] * (row % 3) for row in range(ROWS)]})


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("rows", [1, 17, 1000])
def test_pages_are_where_their_headers_are(version: str, rows: int) -> None:
    content = parquet_bytes(make_lists_and_numbers(), data_page_version=version, max_rows_per_page=rows)
    assert check_locations(OpenedFile(content)) == 4


def test_pages_of_polars_and_golden_files_are_where_their_headers_are(golden: Path) -> None:
    assert check_locations(OpenedFile(write_with_polars())) > 5
    paths = sorted((golden / "parquet").glob("*.parquet"))
    assert sum(check_locations(OpenedFile(path.read_bytes())) for path in paths) > 20


def encode_offset_index(*locations: tuple[int, int, int]) -> bytes:
    made = [encode_struct([(1, I64, offset), (2, I32, length), (3, I64, row)]) for offset, length, row in locations]
    return encode_struct([(1, LIST, encode_list(STRUCT, made)), (2, LIST, encode_list(I64, [1] * len(made)))])


def test_locations_of_any_encoding_are_read() -> None:
    expected = decode_offset_index(encode_offset_index((150, 10, 0), (200, 300, 7)), LAYOUT, 10, FILE_PATH)
    odd = [
        encode_struct([(3, I64, 0), (9, BINARY, b"new"), (2, I32, None), (1, I64, None)])[:-1]
        + bytes([I32]) + b"\x04" + b"\x14" + bytes([I64]) + b"\x02" + b"\xac\x02" + b"\x00",
        encode_struct([(1, I64, 200), (2, I32, 300), (3, I64, 7), (4, I32, 1)]),
    ]  # fmt: skip
    found = decode_offset_index(encode_struct([(1, LIST, encode_list(STRUCT, odd))]), LAYOUT, 10, FILE_PATH)
    for name in ("offsets", "lengths", "first_rows"):
        assert getattr(found, name).tolist() == getattr(expected, name).tolist()


def test_P9_pages_without_rows_and_row_groups_without_rows() -> None:
    pages = decode_offset_index(
        encode_offset_index((150, 10, 0), (160, 10, 5), (170, 10, 5), (180, 10, 8)), LAYOUT, 8, FILE_PATH
    )
    assert pages.row_counts.tolist() == [5, 0, 3, 0]
    assert decode_offset_index(encode_offset_index((150, 10, 0)), LAYOUT, 0, FILE_PATH).row_counts.tolist() == [0]
    assert decode_offset_index(encode_offset_index(), LAYOUT, 0, FILE_PATH).num_pages == 0


def test_P9_more_rows_than_32_bits_count() -> None:
    pages = decode_offset_index(encode_offset_index((150, 10, 0), (160, 10, 2**40)), LAYOUT, 2**41, FILE_PATH)
    assert pages.row_counts.tolist() == [2**40, 2**40]


@pytest.mark.parametrize(
    ("locations", "message"),
    [
        ([], "no page"),
        ([(150, 10, 1)], "starts at row 1"),
        ([(150, 10, -1)], "starts at row -1"),
        ([(150, 10, 0), (160, 10, 8), (170, 10, 4)], "first rows that are not ascending"),
        ([(150, 10, 0), (160, 10, 2**63 - 1), (170, 10, -5)], "first rows that are not ascending"),
        ([(150, 10, 0), (160, 10, 11)], "a page at row 11"),
        ([(150, 10, 0), (160, 0, 5)], "a page of 0 bytes"),
        ([(150, 10, 0), (160, -10, 5)], "a page of -10 bytes"),
        ([(99, 10, 0)], "outside the chunk"),
        ([(-1, 10, 0)], "outside the chunk"),
        ([(2**63 - 1, 10, 0)], "outside the chunk"),
        ([(150, 10, 0), (995, 10, 5)], "outside the chunk"),
        ([(150, 10, 0), (159, 10, 5)], "overlap"),
        ([(150, 10, 0), (140, 10, 5)], "overlap"),
        ([(150, 10, 0), (150, 10, 5)], "overlap"),
    ],
)
def test_X3_inconsistent_offset_indexes_are_an_error(locations: list[tuple[int, int, int]], message: str) -> None:
    with pytest.raises(CorruptFile, match=message) as error:
        decode_offset_index(encode_offset_index(*locations), LAYOUT, 10, FILE_PATH)
    assert "the offset index of column 0 in row group 0 of 'f.parquet'" in str(error.value)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x19\xfc\xff\xff\xff\xff\x0f",
        b"\x19\x15\x02\x00",
        encode_struct([(1, LIST, encode_list(STRUCT, [encode_struct([(1, I64, 150), (2, I32, 10)])]))]),
        encode_struct([(1, LIST, encode_list(STRUCT, [b"\x16\x00\x15" + b"\xff" * 5 + b"\x7f\x16\x00\x00"]))]),
        encode_struct([(1, I64, 5)]),
    ],
)
def test_X1_invalid_offset_indexes_are_an_error(data: bytes) -> None:
    with pytest.raises(CorruptFile, match="the offset index of column 0"):
        decode_offset_index(data, LAYOUT, 10, FILE_PATH)


def test_damaged_offset_indexes_give_pages_of_the_chunk_or_CorruptFile() -> None:
    good = encode_offset_index(*((150 + 10 * page, 10, 2 * page) for page in range(40)))
    found = 0
    for data in damage_bytes(good, times=3000):
        try:
            pages = decode_offset_index(data, LAYOUT, 80, FILE_PATH)
        except CorruptFile:
            continue
        found += 1
        assert pages.row_counts.sum() in (80, 0)
        assert (pages.row_counts >= 0).all()
        assert ((pages.offsets >= 100) & (pages.offsets + pages.lengths <= 1000)).all()
    assert found > 20


def test_P9_the_range_of_the_dictionary() -> None:
    pages = decode_offset_index(encode_offset_index((150, 10, 0)), LAYOUT, 10, FILE_PATH)
    assert find_dictionary_range(LAYOUT, pages) == (100, 50)
    assert find_dictionary_range(LAYOUT, None) == (100, 50)
    without_offset = ChunkLayout(**{name: getattr(LAYOUT, name) for name in LAYOUT.__slots__}
                          | {"dictionary_page_offset": None, "data_page_offset": 100})  # fmt: skip
    assert find_dictionary_range(without_offset, pages) == (100, 50)
    assert find_dictionary_range(without_offset, None) is None
    plain = ChunkLayout(**{name: getattr(LAYOUT, name) for name in LAYOUT.__slots__} | {"encodings": (0, 3)})
    assert find_dictionary_range(plain, pages) is None


# --- Metadata of pages ------------------------------------------------------------------------------------------------


def read_index(file: OpenedFile, row_group: int, leaf: int) -> ColumnIndex:
    byte_range = file.layouts[row_group, leaf].column_index
    assert byte_range is not None
    return decode_column_index(file.part(byte_range), file.locations(row_group, leaf).num_pages, FILE_PATH)


def find_leaf(file: OpenedFile, name: str) -> Leaf:
    return get_file_schema(file.pyarrow.metadata).leaves[(name,)]


def read_metadata(file: OpenedFile, name: str, target: pa.DataType | None = None) -> pa.Table:
    """Return the metadata of the pages of all row groups."""
    leaf = find_leaf(file, name)
    groups = range(file.num_row_groups)
    chunks = [(read_index(file, group, leaf.index), file.locations(group, leaf.index)) for group in groups]
    return pa.table(make_pages_metadata(chunks, Column((name,), type=target or leaf.arrow_type), leaf))


def add_nulls(values: list[Any], data_type: pa.DataType) -> pa.Array:
    """Return each value followed by a NULL, then a run of only nulls."""
    mixed = [each for value in values for each in (value, None)]
    return pa.array(mixed + [None] * (ROWS - len(mixed)), data_type)


NUMBERS = [((row * 7919) % 201) - 100 for row in range(60)]
TYPES: dict[str, pa.Array] = {
    "tiny": add_nulls(NUMBERS, pa.int8()),
    "int": add_nulls([number * 10_000_000 for number in NUMBERS], pa.int32()),
    "long": add_nulls([number * 2**50 for number in NUMBERS], pa.int64()),
    "utiny": add_nulls([number + 100 for number in NUMBERS], pa.uint8()),
    "uint": add_nulls([(number + 100) * 2**24 for number in NUMBERS], pa.uint32()),
    "ulong": add_nulls([(number + 100) * 2**56 for number in NUMBERS], pa.uint64()),
    "half": add_nulls([np.float16(number / 8) for number in NUMBERS], pa.float16()),
    "float": add_nulls([number / 8 for number in NUMBERS], pa.float32()),
    "double": add_nulls([number / 7 for number in NUMBERS], pa.float64()),
    "flag": add_nulls([number > 0 for number in NUMBERS], pa.bool_()),
    "text": add_nulls([f"äöü {number}" for number in NUMBERS], pa.string()),
    "large": add_nulls([f"{number}" for number in NUMBERS], pa.large_string()),
    "bytes": add_nulls([struct.pack(">i", number) for number in NUMBERS], pa.binary()),
    "fixed": add_nulls([struct.pack(">i", number) for number in NUMBERS], pa.binary(4)),
    "decimal": add_nulls([Decimal(number) / 4 for number in NUMBERS], pa.decimal128(9, 2)),
    "long_decimal": add_nulls([Decimal(number) / 4 for number in NUMBERS], pa.decimal128(18, 2)),
    "wide_decimal": add_nulls([Decimal(number) / 4 for number in NUMBERS], pa.decimal128(30, 2)),
    "date": add_nulls([number * 300 for number in NUMBERS], pa.date32()),
    "time": add_nulls([number + 100 for number in NUMBERS], pa.time32("ms")),
    "time_us": add_nulls([number + 100 for number in NUMBERS], pa.time64("us")),
    "instant": add_nulls([number * 10**14 for number in NUMBERS], pa.timestamp("us", "UTC")),
    "zoned": add_nulls([number * 10**11 for number in NUMBERS], pa.timestamp("ms", "Europe/Berlin")),
    "clock": add_nulls([number * 10**16 for number in NUMBERS], pa.timestamp("ns")),
    "duration": add_nulls(NUMBERS, pa.duration("us")),
}
PROMOTED: list[tuple[str, pa.DataType]] = [
    ("tiny", pa.int64()), ("int", pa.float64()), ("long", pa.float64()), ("long", pa.int32()),
    ("int", pa.decimal128(20, 3)), ("uint", pa.int64()), ("ulong", pa.int64()), ("float", pa.float64()),
    ("half", pa.float32()), ("decimal", pa.decimal128(38, 10)), ("date", pa.timestamp("us")),
    ("date", pa.timestamp("us", "UTC")), ("instant", pa.timestamp("ns", "UTC")), ("instant", pa.timestamp("ms", "UTC")),
    ("instant", pa.timestamp("us", "Asia/Tokyo")), ("clock", pa.timestamp("us")), ("clock", pa.timestamp("us", "UTC")),
    ("text", pa.binary()), ("text", pa.large_string()), ("text", pa.string_view()), ("bytes", pa.string()),
    ("bytes", pa.large_binary()), ("fixed", pa.binary()), ("bytes", pa.binary(4)), ("time", pa.time64("ns")),
    ("flag", pa.int32()), ("text", pa.int64()), ("int", pa.string()), ("date", pa.date64()),
]  # fmt: skip


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_have_the_metadata_of_row_groups_of_the_same_rows(version: str) -> None:
    """With one page in each row group, the column index holds what the statistics do."""
    content = parquet_bytes(pa.table(TYPES), row_group_size=17, data_page_version=version)
    file = OpenedFile(content)
    wanted = [(name, column.type) for name, column in TYPES.items()] + PROMOTED
    for name, target in wanted:
        leaf = find_leaf(file, name)
        column = Column((name,), type=leaf.arrow_type if target == TYPES[name].type else target)
        found = read_metadata(file, name, column.type)
        expected = read_row_group_metadata(file.pyarrow.metadata, [column])
        assert found.schema.equals(expected.schema), (name, target)
        if target == TYPES[name].type:
            assert found[f"lower:{name}"].null_count < found.num_rows / 2
        for kind, array in zip(found.column_names, found.columns, strict=True):
            assert array.combine_chunks().equals(expected[kind]), (kind, target)


def test_bounds_of_pages_are_those_of_their_values() -> None:
    file = OpenedFile(parquet_bytes(pa.table(TYPES), row_group_size=ROWS, max_rows_per_page=11))
    for name in TYPES:
        leaf = find_leaf(file, name)
        found = read_metadata(file, name)
        column = file.expected(0, leaf.index).combine_chunks()
        pages = file.locations(0, leaf.index)
        assert pages.num_pages > 10
        if name in ("half", "duration"):
            # Arrow cannot compute the minimum of these types.
            column = column.cast(pa.float32() if name == "half" else pa.int64())
        for page, (start, rows) in enumerate(zip(pages.first_rows.tolist(), pages.row_counts.tolist(), strict=True)):
            values = column.slice(start, rows)
            assert found["row_count"][page].as_py() == rows
            assert found[f"null_count:{name}"][page].as_py() == values.null_count
            for kind, extreme in (("lower", pc.min), ("upper", pc.max)):
                bound = found[f"{kind}:{name}"][page]
                expected = extreme(values).cast(bound.type).as_py()
                assert bound.as_py() == expected, (name, page)
                # Bytes may be cut, and zeros have two signs.
                may_differ = types.is_bytes(values.type) or types.is_text(values.type)
                may_differ |= pa.types.is_floating(values.type) and expected == 0
                assert found[f"{kind}_exact:{name}"][page].as_py() is (None if expected is None else not may_differ)


def test_P1_null_pages_have_no_bounds_and_only_nulls(golden: Path) -> None:
    file = OpenedFile((golden / "parquet" / "int32_with_null_pages.parquet").read_bytes())
    index = read_index(file, 0, 0)
    assert index.null_pages.any()
    assert not index.null_pages.all()
    found = read_metadata(file, "int32_field")
    for page, is_null in enumerate(index.null_pages.tolist()):
        nulls, rows = found["null_count:int32_field"][page].as_py(), found["row_count"][page].as_py()
        assert (nulls == rows) == is_null
        assert (found["lower:int32_field"][page].as_py() is None) == is_null
    assert found["null_count:int32_field"].combine_chunks().sum().as_py() == file.expected(0, 0).null_count


def test_NaN_counts_of_pages(golden: Path) -> None:
    file = OpenedFile((golden / "parquet" / "floating_orders_nan_count.parquet").read_bytes())
    checked = 0
    for (group, leaf), layout in file.layouts.items():
        if layout.column_index is None:
            continue
        index = read_index(file, group, leaf)
        assert index.nan_counts is not None
        values = file.expected(group, leaf).combine_chunks().cast(pa.float64()).to_numpy()
        assert index.nan_counts.sum() == np.isnan(values).sum()
        checked += 1
    assert checked > 5


# --- Column indexes made by hand --------------------------------------------------------------------------------------


def encode_column_index(
    nulls: list[bool],
    minima: list[bytes],
    maxima: list[bytes],
    null_counts: list[int] | None = None,
    nan_counts: list[int] | None = None,
    order: int = UNORDERED,
) -> bytes:
    return encode_struct(
        [
            (1, LIST, bytes([len(nulls) << 4 | 1, *(1 if is_null else 2 for is_null in nulls)])),
            (2, LIST, encode_list(BINARY, minima)),
            (3, LIST, encode_list(BINARY, maxima)),
            (4, I32, order),
            (5, LIST, None if null_counts is None else encode_list(I64, null_counts)),
            (6, LIST, encode_list(I64, [1, 2, 3])),
            (8, LIST, None if nan_counts is None else encode_list(I64, nan_counts)),
        ]
    )


def make_locations(*row_counts: int) -> PageLocations:
    starts = np.concatenate([[0], np.cumsum(row_counts)]).astype(np.int64)
    count = len(row_counts)
    return PageLocations(np.arange(count) * 10 + 4, np.full(count, 10), starts[:-1], int(starts[-1]))


def make_leaf(data_type: pa.DataType, nullable: bool = True) -> Leaf:
    out = io.BytesIO()
    schema = pa.schema([pa.field("c", data_type, nullable)])
    pq.write_table(schema.empty_table(), out)
    return get_file_schema(pq.read_metadata(out)).leaves[("c",)]


def describe_pages(
    data_type: pa.DataType, bounds: list[tuple[bytes, bytes]], *, target: pa.DataType | None = None, **options: Any
) -> dict[str, list[Any]]:
    """Return the metadata of pages of 10 rows with these bounds."""
    count = len(bounds)
    fields = {"null_counts": [1] * count, "nan_counts": None} | {
        name: options.pop(name) for name in ("null_counts", "nan_counts") if name in options
    }
    data = encode_column_index([False] * count, [low for low, _ in bounds], [high for _, high in bounds], **fields)
    pages = make_locations(*[10] * count)
    index, reason = try_decode_column_index(data, pages, FILE_PATH)
    assert reason is None
    column = Column(("c",), type=target or data_type)
    found = make_pages_metadata([(index, pages)], column, make_leaf(data_type), **options)
    return {name.partition(":")[0]: array.to_pylist() for name, array in found.items()}


def encode_double(value: float) -> bytes:
    return struct.pack("<d", value)


def test_F2_F4_bounds_of_floats() -> None:
    pairs = [(1.0, 2.0), (math.nan, 2.0), (1.0, math.nan), (0.0, -0.0), (-0.0, 0.0), (2.0, 1.0), (-math.inf, math.inf)]
    found = describe_pages(pa.float64(), [(encode_double(low), encode_double(high)) for low, high in pairs])
    assert found["lower"] == [1.0, None, None, 0.0, 0.0, None, -math.inf]
    assert found["upper"] == [2.0, None, None, 0.0, 0.0, None, math.inf]
    assert [math.copysign(1, found[kind][at]) for kind in ("lower", "upper") for at in (3, 4)] == [-1, -1, 1, 1]
    assert found["lower_exact"] == [True, None, None, False, False, None, True]
    assert found["nan_count"] == [None] * 7


def test_F3_possible_NaN_counts_are_used() -> None:
    pair = [(encode_double(1.0), encode_double(2.0))] * 5
    found = describe_pages(pa.float64(), pair, null_counts=[1, 0, 2, 0, 0], nan_counts=[3, 0, -1, 11, 10])
    assert found["nan_count"] == [3, 0, None, None, 10]


def test_F6_bounds_of_float16() -> None:
    pairs = [(-1.0, 2.0), (2.0, -1.0), (math.nan, 1.0), (0.0, 0.0)]
    found = describe_pages(pa.float16(), [(struct.pack("<e", low), struct.pack("<e", high)) for low, high in pairs])
    assert found["lower"] == [-1.0, None, None, 0.0]


def test_S2_S3_bounds_of_text() -> None:
    pairs = [(b"a", b"b"), (b"b", b"a"), (b"", b""), (b"ab\xc3", b"ac\xc3"), (b"a", b"\xff"), (b"\xff", b"\xff")]
    found = describe_pages(pa.string(), pairs)
    assert found["lower"] == ["a", None, "", "ab", "a", ""]
    assert found["upper"] == ["b", None, "", "ad", None, None]
    assert found["lower_exact"] == [False, None, False, False, False, False]
    assert found["upper_exact"] == [False, None, False, False, None, None]


def test_S5_S9_bounds_of_bytes_that_are_not_trusted() -> None:
    found = describe_pages(pa.string(), [(b"a", b"b")], trust_bytes=False)
    assert found == {"row_count": [10], "null_count": [1]}
    assert describe_pages(pa.int32(), [(b"\x01\0\0\0", b"\x02\0\0\0")], trust_bytes=False)["lower"] == [1]


def test_bounds_without_an_order_are_unknown() -> None:
    found = describe_pages(pa.int32(), [(b"\x01\0\0\0", b"\x02\0\0\0")], is_ordered=False)
    assert found["lower"] == found["upper"] == found["lower_exact"] == [None]
    assert found["null_count"] == [1]


def test_T1_bounds_of_unsigned_numbers() -> None:
    found = describe_pages(pa.uint32(), [(b"\x01\0\0\0", b"\xff\xff\xff\xff"), (b"\xff\xff\xff\xff", b"\x01\0\0\0")])
    assert (found["lower"], found["upper"]) == ([1, None], [2**32 - 1, None])
    found = describe_pages(pa.uint64(), [(b"\0" * 7 + b"\x80", b"\xff" * 8)])
    assert (found["lower"], found["upper"]) == ([2**63], [2**64 - 1])


def test_T2_bounds_of_decimals_in_bytes() -> None:
    wide = pa.decimal128(30, 2)
    low, high = (-12345).to_bytes(13, "big", signed=True), (678).to_bytes(13, "big", signed=True)
    found = describe_pages(wide, [(low, high), (high, low), (low[1:], high), (b"\x7f" * 13, b"\x7f" * 13)])
    assert found["lower"] == [Decimal("-123.45"), None, None, None]
    assert found["upper"] == [Decimal("6.78"), None, None, None]


def test_bounds_of_another_width_are_unknown() -> None:
    for wrong in (b"", b"\x01", b"\x01" * 5):
        found = describe_pages(pa.int32(), [(wrong, b"\x02\0\0\0"), (b"\x01\0\0\0", wrong), (wrong, wrong)])
        assert found["lower"] == found["upper"] == [None] * 3
    assert describe_pages(pa.bool_(), [(b"\0", b"\x01"), (b"\x02", b"\x03"), (b"\x01", b"\0")])["upper"] == [
        True,
        None,
        None,
    ]
    assert describe_pages(pa.int8(), [(b"\x01\0\0\0", b"\xff\0\0\0")])["lower"] == [None]
    # parquet-rs cuts bounds of fixed length.
    assert describe_pages(pa.binary(4), [(b"ab", b"ac"), (b"abcd", b"abce")])["lower"] == [None, b"abcd"]


def test_T10_lower_above_upper_is_unknown() -> None:
    found = describe_pages(pa.int64(), [(struct.pack("<q", 5), struct.pack("<q", -5))])
    assert (found["lower"], found["upper"]) == ([None], [None])


def test_times_out_of_range_are_unknown() -> None:
    smallest = struct.pack("<q", -(2**63))
    found = describe_pages(pa.timestamp("us"), [(smallest, struct.pack("<q", 5))])
    assert (found["lower"], found["upper"][0] is not None) == ([None], True)
    day = struct.pack("<i", 86_400_000)
    found = describe_pages(pa.time32("ms"), [(struct.pack("<i", 0), day)])
    assert (found["lower"][0] is not None, found["upper"]) == (True, [None])


def test_a_required_column_has_no_nulls_and_a_column_of_nulls_only_those() -> None:
    pages = make_locations(10, 5)
    column = Column(("c",), type=pa.int32())
    for leaf, expected in ((make_leaf(pa.int32(), nullable=False), [0, 0]), (make_leaf(pa.null()), [10, 5])):
        assert make_pages_metadata([(None, pages)], column, leaf)["null_count:c"].to_pylist() == expected


def test_without_an_index_only_rows_are_known() -> None:
    found = make_pages_metadata(
        [(None, make_locations(10, 5))], Column(("c",), type=pa.float64()), make_leaf(pa.float64())
    )
    assert {name: array.to_pylist() for name, array in found.items()} == {
        "row_count": [10, 5],
        **{f"{kind}:c": [None, None] for kind in ("null_count", "nan_count", "lower", "upper")},
        **{f"{kind}:c": [None, None] for kind in ("lower_exact", "upper_exact")},
    }
    for data_type in (pa.string(), pa.int32(), pa.float64(), pa.decimal128(30, 2)):
        column, leaf = Column(("c",), type=data_type), make_leaf(data_type)
        assert make_pages_metadata([(None, make_locations())], column, leaf)["lower:c"].to_pylist() == []
        assert make_pages_metadata([], column, leaf)["upper:c"].to_pylist() == []


def test_N8_null_counts_are_unknown_where_they_are_missing() -> None:
    found = describe_pages(pa.int32(), [(b"\x01\0\0\0", b"\x02\0\0\0")], null_counts=None)
    assert (found["null_count"], found["lower"]) == ([None], [1])


def test_P7_the_boundary_order_is_ignored() -> None:
    values = [(b"\x05\0\0\0", b"\x06\0\0\0"), (b"\x01\0\0\0", b"\x02\0\0\0"), (b"\x03\0\0\0", b"\x09\0\0\0")]
    pages = make_locations(10, 10, 10)
    found = []
    for order in (UNORDERED, ASCENDING, DESCENDING, 77, -1):
        data = encode_column_index([False] * 3, [low for low, _ in values], [high for _, high in values], order=order)
        index, reason = try_decode_column_index(data, pages, FILE_PATH)
        assert reason is None
        found.append(
            pa.table(make_pages_metadata([(index, pages)], Column(("c",), type=pa.int32()), make_leaf(pa.int32())))
        )
    assert all(each.equals(found[0]) for each in found)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (encode_column_index([True, False], [b"", b"a"], [b"", b"b"], [9, 1]), "is inconsistent"),
        (encode_column_index([True, False], [b"", b"a"], [b"", b"b"], [0, 1]), "is inconsistent"),
        (encode_column_index([False, False], [b"a", b"a"], [b"b", b"b"], [10, 1]), "is inconsistent"),
        (encode_column_index([False, False], [b"a", b"a"], [b"b", b"b"], [11, 1]), "more nulls than rows"),
        (encode_column_index([False, False], [b"a", b"a"], [b"b", b"b"], [-1, 1]), "negative null count"),
        (encode_column_index([False], [b"a", b"a"], [b"b", b"b"], [1, 1]), r"has \[1, 2\] pages"),
        (encode_column_index([False, False], [b"a"], [b"b", b"b"], [1, 1]), "pages, expected"),
        (encode_column_index([False, False], [b"a", b"a"], [b"b"] * 3, [1, 1]), "pages, expected"),
        (encode_column_index([False, False], [b"a", b"a"], [b"b", b"b"], [1]), "pages, expected"),
        (encode_column_index([False, False], [b"a", b"a"], [b"b", b"b"], [1, 1], [1]), "pages, expected"),
        (encode_column_index([False] * 3, [b"a"] * 3, [b"b"] * 3, [1] * 3), r"has \[3\] pages, expected 2"),
        (encode_struct([(1, LIST, encode_list(STRUCT, []))]), "no list of lower bounds"),
        (b"", "truncated"),
        (b"\x19\xf1\xff\xff\xff\xff\x0f", "but only"),
    ],
)
def test_P2_inconsistent_column_indexes_are_not_used(data: bytes, message: str) -> None:
    index, reason = try_decode_column_index(data, make_locations(10, 10), FILE_PATH)
    assert index is None
    assert reason is not None
    assert re.search(message, reason)


def test_column_indexes_that_are_used() -> None:
    pages = make_locations(10, 10)
    for data in (
        encode_column_index([True, False], [b"", b"a"], [b"", b"b"], [10, 1]),
        encode_column_index([True, False], [b"", b"a"], [b"", b"b"]),
    ):
        index, reason = try_decode_column_index(data, pages, FILE_PATH)
        assert (reason, index is not None) == (None, True)
        found = make_pages_metadata([(index, pages)], Column(("c",), type=pa.string()), make_leaf(pa.string()))
        assert found["null_count:c"].to_pylist()[0] == 10
        assert found["lower:c"].to_pylist() == [None, "a"]
    # A page without rows may be marked either way.
    for is_null in (True, False):
        data = encode_column_index([is_null, False], [b"", b"a"], [b"", b"b"], [0, 1])
        assert try_decode_column_index(data, make_locations(0, 10), FILE_PATH)[1] is None
    # Lists have other numbers of values than rows.
    data = encode_column_index([False, True], [b"a", b""], [b"b", b""], [50, 3])
    assert try_decode_column_index(data, pages, FILE_PATH, is_repeated=True)[1] is None


def test_column_indexes_of_another_number_of_pages_can_be_an_error() -> None:
    with pytest.raises(CorruptFile, match=r"the column index of f\.parquet has \[1\] pages, expected 2"):
        decode_column_index(encode_column_index([False], [b"a"], [b"b"]), 2, FILE_PATH)


def test_damaged_column_indexes_give_metadata_or_a_reason() -> None:
    numbers = [encode_double(page) for page in range(15)]
    data = encode_column_index([False] * 14, numbers[:-1], numbers[1:], [page % 10 for page in range(14)], [0] * 14)
    leaf = make_leaf(pa.float64())
    pages = make_locations(*[10] * 14)
    outcomes = {True: 0, False: 0}
    for changed in damage_bytes(data, times=3000):
        index, reason = try_decode_column_index(changed, pages, FILE_PATH)
        assert (index is None) == (reason is not None)
        outcomes[index is None] += 1
        found = make_pages_metadata([(index, pages)], Column(("c",), type=pa.float64()), leaf)
        assert {len(array) for array in found.values()} == {14}
        for array in found.values():
            array.validate(full=True)
    assert min(outcomes.values()) > 100


# --- Vectorised conversion --------------------------------------------------------------------------------------------

COMPARED_TYPES = [
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(),
    pa.float16(), pa.float32(), pa.float64(), pa.date32(), pa.time32("ms"), pa.time64("us"), pa.time64("ns"),
    pa.timestamp("ms"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.duration("s"), pa.string(), pa.binary(),
    pa.binary(3),
]  # fmt: skip


@pytest.mark.parametrize("data_type", COMPARED_TYPES, ids=str)
def test_bounds_converted_together_equal_those_converted_one_by_one(data_type: pa.DataType) -> None:
    leaf = make_leaf(data_type)
    reader = make_bounds_reader(leaf, leaf.arrow_type)
    assert reader is not None
    widths = {"BOOLEAN": 1, "INT32": 4, "FLOAT": 4, "INT64": 8, "DOUBLE": 8, "FIXED_LEN_BYTE_ARRAY": leaf.length}
    width = widths.get(leaf.physical)
    value = st.binary(max_size=4) if width is None else st.binary(min_size=width, max_size=width)
    if width is not None:
        ends = (b"\0" * width, b"\xff" * width, b"\0" * (width - 1) + b"\x80", b"\x01" + b"\0" * (width - 1))
        value |= st.sampled_from(ends)
    if pa.types.is_boolean(data_type):
        value = st.sampled_from((b"\0", b"\x01"))

    def decode_plain(raw: bytes) -> Any:
        formats = {"BOOLEAN": "<?", "INT32": "<i", "INT64": "<q", "FLOAT": "<f", "DOUBLE": "<d"}
        return struct.unpack(formats[leaf.physical], raw)[0] if leaf.physical in formats else raw

    @given(st.lists(st.tuples(value, value, st.booleans()), max_size=8))
    def check(pairs: list[tuple[bytes, bytes, bool]]) -> None:
        known = np.array([is_known for _, _, is_known in pairs], np.bool_)
        found = convert_raw_bounds(reader, leaf, [low for low, _, _ in pairs], [high for _, high, _ in pairs], known)
        expected = [
            reader.bounds(decode_plain(low), decode_plain(high)) if is_known else (None,) * 4
            for low, high, is_known in pairs
        ]
        for position, array in enumerate(found):
            values = [bounds[position] for bounds in expected]
            made = reader.array(values) if position < 2 else pa.array(values, pa.bool_())
            assert array.equals(made), (array, made)
            # Zeros have a sign that equality does not see.
            assert str(array) == str(made)

    check()
