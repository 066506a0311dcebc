"""Hand-made footers that no writer here produces, but that exist because of age, damage or malice."""

from __future__ import annotations

import datetime
import io
import math
import random
import struct
import subprocess
import sys
import textwrap
from collections.abc import Sequence
from decimal import Decimal
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tamis.errors import CorruptFile, TamisError, UnsupportedFeature
from tamis.expr.nodes import Column
from tamis.parquet.footer import validation
from tamis.parquet.footer.chunks import FooterMemory
from tamis.parquet.footer.footer import footer_from_bytes
from tamis.parquet.footer.leaves import get_file_schema
from tamis.parquet.footer.statistics import find_chunk_ranges, read_row_group_metadata
from tamis.parquet.footer.validation import validate_footer

# --- Thrift's compact protocol, written: a struct is {id: (type, value)} ----------------------------------------------

KINDS = {"i32": 5, "i64": 6, "binary": 8, "list": 9, "struct": 12}


def parse_footer(footer: bytes) -> pq.FileMetaData:
    """Return the metadata of a footer, which is the same with and without the shapes of chunks; or raise the error."""
    memory = FooterMemory(walked_first=0)
    found: list[pq.FileMetaData | TamisError] = []
    # With a memory, the shapes of all chunks are known from the third time on.
    for each in (FooterMemory(), memory, memory, memory):
        try:
            found.append(footer_from_bytes(footer, "made.parquet", each).metadata)
        except TamisError as error:
            found.append(error)
    first, *others = found
    if isinstance(first, TamisError):
        assert {type(each) for each in others} == {type(first)}, found
        raise first
    assert all(isinstance(each, pq.FileMetaData) and each.equals(first) for each in others), found
    return first


def encode_varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def encode(kind: str, value: Any) -> bytes:
    match kind:
        case "i32" | "i64":
            return encode_varint((value << 1) ^ (value >> 63))
        case "binary":
            return encode_varint(len(value)) + value
        case "list":
            element, items = value
            size = bytes([min(len(items), 15) << 4 | KINDS[element]]) + (
                encode_varint(len(items)) if len(items) > 14 else b""
            )
            return size + b"".join(encode(element, item) for item in items)
    out, last = b"", 0
    for identifier, (field_kind, field_value) in value.items():
        step = identifier - last
        code = (1 if field_value else 2) if field_kind == "bool" else KINDS[field_kind]
        out += bytes([step << 4 | code]) if 0 < step < 16 else bytes([code]) + encode("i32", identifier)
        out += b"" if field_kind == "bool" else encode(field_kind, field_value)
        last = identifier
    return out + b"\x00"


BOOLEAN, INT32, INT64, INT96, FLOAT, DOUBLE, BYTE_ARRAY, FIXED = range(8)
UTF8, DECIMAL, TIMESTAMP_MICROS, UINT_32, INTERVAL = 0, 5, 10, 13, 21
ROWS = 10


def make_footer(
    physical: int,
    statistics: Sequence[dict[int, Any] | None],
    *,
    converted: int | None = None,
    length: int | None = None,
    digits: tuple[int, int] | None = None,
    created_by: bytes | None = b"some-writer version 1.0.0",
    ordered: bool = True,
    required: bool = False,
    in_metadata: dict[int, Any] | None = None,
    in_chunk: dict[int, Any] | None = None,
    in_row_group: dict[int, Any] | None = None,
    chunks: int = 1,
) -> bytes:
    """A file of one column `x`, with a row group of ten rows for each of the statistics."""
    leaf: dict[int, Any] = {1: ("i32", physical)}
    if length is not None:
        leaf[2] = ("i32", length)
    leaf |= {3: ("i32", 0 if required else 1), 4: ("binary", b"x")}
    if converted is not None:
        leaf[6] = ("i32", converted)
    if digits is not None:
        leaf |= {7: ("i32", digits[1]), 8: ("i32", digits[0])}
    row_groups = []
    for values in statistics:
        metadata: dict[int, Any] = {
            1: ("i32", physical),
            2: ("list", ("i32", [0])),
            3: ("list", ("binary", [b"x"])),
            4: ("i32", 0),
            5: ("i64", ROWS),
            6: ("i64", 30),
            7: ("i64", 30),
            9: ("i64", 4),
        }
        if values is not None:
            metadata[12] = ("struct", values)
        chunk = {2: ("i64", 4), 3: ("struct", metadata | (in_metadata or {}))} | (in_chunk or {})
        row_group = {1: ("list", ("struct", [chunk] * chunks)), 2: ("i64", 30), 3: ("i64", ROWS)}
        row_groups.append(row_group | (in_row_group or {}))
    footer: dict[int, Any] = {
        1: ("i32", 2),
        2: ("list", ("struct", [{4: ("binary", b"schema"), 5: ("i32", 1)}, leaf])),
        3: ("i64", ROWS * len(row_groups)),
        4: ("list", ("struct", row_groups)),
    }
    if created_by is not None:
        footer[6] = ("binary", created_by)
    if ordered:
        footer[7] = ("list", ("struct", [{1: ("struct", {})}]))
    return encode("struct", footer)


def make_bounds(low: bytes, high: bytes, null_count: int | None = 0) -> dict[int, Any]:
    counted = {} if null_count is None else {3: ("i64", null_count)}
    return counted | {5: ("binary", high), 6: ("binary", low)}


def make_deprecated_bounds(low: bytes, high: bytes) -> dict[int, Any]:
    return {1: ("binary", high), 2: ("binary", low), 3: ("i64", 0)}


def describe(footer: bytes, data_type: pa.DataType) -> dict[str, list[Any]]:
    batch = read_row_group_metadata(parse_footer(footer), [Column(("x",), type=data_type)])
    return {name.removesuffix(":x"): values for name, values in batch.to_pydict().items()}


def read_bounds(footer: bytes, data_type: pa.DataType) -> tuple[Any, Any]:
    found = describe(footer, data_type)
    return found.get("lower", [None])[0], found.get("upper", [None])[0]


def encode_int32(value: int) -> bytes:
    return struct.pack("<i", value)


# --- Statistics that would crash pyarrow ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("physical", "length", "data_type"),
    [
        (BOOLEAN, None, pa.bool_()),
        (INT32, None, pa.int32()),
        (INT64, None, pa.int64()),
        (FLOAT, None, pa.float32()),
        (DOUBLE, None, pa.float64()),
        (FIXED, 16, pa.binary(16)),
        (FIXED, 200, pa.binary(200)),
    ],
)
@pytest.mark.parametrize("value", [b"", b"\x01\x00\x00", b"\x01" * 201], ids=["empty", "short", "long"])
def test_statistics_of_a_wrong_width_are_unknown_and_the_null_count_stays(
    physical: int, length: int | None, data_type: pa.DataType, value: bytes
) -> None:
    footer = make_footer(physical, [make_bounds(value, value, null_count=3)], length=length)
    found = describe(footer, data_type)
    assert (found["lower"], found["upper"], found["null_count"]) == ([None], [None], [3])


def test_S1_truncated_bounds_of_a_fixed_length_column_are_unknown_beside_full_ones() -> None:
    full, cut = make_bounds(b"a" * 100, b"b" * 100), make_bounds(b"a" * 64, b"b" * 63 + b"c")
    found = describe(make_footer(FIXED, [full, cut, full], length=100), pa.binary(100))
    assert found["lower"] == [b"a" * 100, None, b"a" * 100]
    assert found["lower_exact"] == [False, None, False]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"in_metadata": {1: ("i32", BYTE_ARRAY)}}, "column of BYTE_ARRAY in row group 0, expected INT32"),
        ({"in_metadata": {1: ("i32", 77)}}, "unknown type"),
        ({"in_metadata": {1: ("i32", -1)}}, "unknown type"),
        ({"chunks": 2}, "has 2 columns in row group 0 and 1 in its schema"),
        ({"chunks": 0}, "has 0 columns in row group 0 and 1 in its schema"),
        ({"in_row_group": {3: ("i64", -5)}}, "negative number of rows in row group 0"),
    ],
)
def test_X3_row_groups_that_contradict_the_schema_are_corrupt(change: dict[str, Any], message: str) -> None:
    footer = make_footer(INT32, [make_bounds(encode_int32(1), encode_int32(2))], **change)
    with pytest.raises(CorruptFile, match=message):
        parse_footer(footer)


def test_an_encrypted_column_in_a_readable_footer_is_unsupported() -> None:
    encrypted = {8: ("struct", {1: ("struct", {})})}
    footer = make_footer(INT32, [make_bounds(encode_int32(1), encode_int32(2))], in_chunk=encrypted)
    with pytest.raises(UnsupportedFeature, match=r"made\.parquet.* encrypted columns"):
        parse_footer(footer)


def test_fields_of_a_later_format_are_skipped() -> None:
    later = {
        90: ("struct", {1: ("list", ("struct", [{1: ("binary", b"z")}] * 20)), 2: ("bool", True)}),
        700: ("list", ("i64", list(range(40)))),
    }
    footer = make_footer(
        INT32, [make_bounds(encode_int32(1), encode_int32(2))], in_metadata=later, in_chunk=later, in_row_group=later
    )
    assert read_bounds(footer, pa.int32()) == (1, 2)


# --- Damage -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [1_000, 900_000, 2**31 - 1, 2**60])
def test_X1_a_list_longer_than_the_footer_is_corrupt(size: int) -> None:
    footer = b"\x15\x04\x19\xfc" + encode_varint(size)
    with pytest.raises(CorruptFile, match=r"footer of 'made\.parquet' is damaged"):
        parse_footer(footer)


@pytest.mark.parametrize("size", [100, 2**31 - 1, 2**60])
def test_X1_a_string_longer_than_the_footer_is_corrupt(size: int) -> None:
    footer = b"\x15\x04\x58" + encode_varint(size) + b"short"
    with pytest.raises(CorruptFile, match=r"footer of 'made\.parquet' is damaged"):
        parse_footer(footer)


def test_X2_a_deeply_nested_footer_is_corrupt() -> None:
    footer = make_footer(INT32, [])[:-1] + b"\xfc" + b"\x1c" * 100_000 + b"\x00" * 100_002
    with pytest.raises(CorruptFile, match=r"made\.parquet"):
        parse_footer(footer)


@pytest.mark.parametrize("garbage", [b"\x00", b"\xff" * 40, b"not thrift at all"])
def test_garbage_is_corrupt(garbage: bytes) -> None:
    with pytest.raises(CorruptFile, match=r"made\.parquet"):
        parse_footer(garbage)


def test_a_footer_truncated_anywhere_is_corrupt() -> None:
    footer = make_footer(BYTE_ARRAY, [make_bounds(b"a", b"b")] * 2, converted=UTF8)
    for end in range(1, len(footer)):
        with pytest.raises(CorruptFile):
            parse_footer(footer[:end])


@pytest.mark.one_in(3)
def test_X1_damaged_footers_never_end_the_process() -> None:
    """Run in a separate process, since a crash cannot be caught."""
    script = """
        import io, random
        import pyarrow as pa, pyarrow.parquet as pq
        from tamis.errors import TamisError
        from tamis.expr.nodes import Column
        from tamis.parquet.footer.footer import footer_from_bytes
        from tamis.parquet.footer.leaves import get_file_schema
        from tamis.parquet.footer.statistics import find_chunk_ranges, read_row_group_metadata, sum_compressed_sizes

        table = pa.table({
            "i": pa.array([1, 2, None], pa.int32()), "u": pa.array([1, 2, 3], pa.uint64()), "s": ["a", "é", None],
            "f": [1.5, None, -0.0], "d": pa.array([1, 2, 3], pa.decimal128(30, 2)),
            "b": pa.array([b"ab"] * 3, pa.binary(2)), "t": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
            "n": [{"x": 1, "y": [True]}, None, {"x": 3, "y": None}],
        })
        sink = io.BytesIO()
        pq.write_table(table, sink, row_group_size=2)
        raw = sink.getvalue()
        whole = raw[-8 - int.from_bytes(raw[-8:-4], "little") : -8]
        chance = random.Random(20240303)
        read = 0
        for _ in range(2500):
            footer = bytearray(whole)
            for _ in range(chance.choice((1, 1, 2, 4))):
                offset = chance.randrange(len(footer))
                match chance.randrange(4):
                    case 0: footer[offset] = chance.randrange(256)
                    case 1: footer[offset] ^= 1 << chance.randrange(8)
                    case 2: del footer[offset]
                    case 3: footer.insert(offset, chance.randrange(256))
            try:
                metadata = footer_from_bytes(bytes(footer), "x").metadata
                leaves = get_file_schema(metadata).leaves
                columns = [Column(path, type=leaf.arrow_type) for path, leaf in leaves.items()]
                read_row_group_metadata(metadata, columns).validate(full=True)
                sum_compressed_sizes(metadata, range(metadata.num_columns))
                for group in range(metadata.num_row_groups):
                    find_chunk_ranges(metadata, group, range(metadata.num_columns), size=10**6)
                read += 1
            except TamisError:
                pass
        assert 0 < read < 2500
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.parametrize(
    "sizes",
    [
        {1: ("i64", 7)},
        {2: ("list", ("i64", [10, 0]))},
        {3: ("list", ("i64", [1, 2, 7]))},
        {2: ("list", ("i64", [10])), 3: ("list", ("i64", [1, 9, 0, 0]))},
    ],
    ids=["bytes of a number", "repetition of a flat column", "too many levels", "one right and one wrong"],
)
def test_mismatched_size_statistics_are_removed(sizes: dict[int, Any]) -> None:
    footer = make_footer(INT32, [make_bounds(encode_int32(1), encode_int32(2))], in_metadata={16: ("struct", sizes)})
    assert read_bounds(footer, pa.int32()) == (1, 2)


# --- Shapes and walks -------------------------------------------------------------------------------------------------


def write_footers(tmp_path: Any) -> list[bytes]:
    table = pa.table(
        {
            "i": pa.array([1, 2, None, 4], pa.int32()),
            "s": ["a", "é", None, "x" * 200],
            "f": [1.5, None, -0.0, math.nan],
            "d": pa.array([1, 2, 3, 4], pa.decimal128(30, 2)),
            "b": [True, False, None, True],
            "t": pa.array([1, 2, 3, 4], pa.timestamp("us", "UTC")),
            "n": [{"x": 1, "y": [True]}, None, {"x": 3, "y": None}, {"x": None, "y": []}],
        }
    )
    files = [tmp_path / f"{name}.parquet" for name in ("arrow", "plain", "indexed", "duckdb", "polars")]
    pq.write_table(table, files[0], row_group_size=2)
    pq.write_table(table, files[1], use_dictionary=False, write_statistics=["i", "s"], store_schema=False)
    pq.write_table(table, files[2], write_page_index=True, compression="zstd")
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"COPY t TO '{files[3]}' (FORMAT parquet)")
    pl.from_arrow(table).write_parquet(files[4])  # type: ignore[union-attr]
    raws = [file.read_bytes() for file in files]
    return [raw[-8 - int.from_bytes(raw[-8:-4], "little") : -8] for raw in raws]


def test_real_footers_pass_unchanged(tmp_path: Any) -> None:
    for footer in write_footers(tmp_path):
        schema, memory = get_file_schema(pq.read_metadata(add_frame(footer))), FooterMemory(walked_first=0)
        for _ in range(3):
            assert validate_footer(footer, schema.types, "x", memory)[0] is footer


def test_shapes_match_most_chunks_of_real_writers(tmp_path: Any, monkeypatch: Any) -> None:
    walked: list[int] = []
    original = validation._ChunkValidator._walk

    def count_chunk(self: Any, footer: bytes, position: int, row_group: int, leaf: Any) -> int:
        walked.append(position)
        return original(self, footer, position, row_group, leaf)

    chunks = 0
    for footer in write_footers(tmp_path):
        metadata = pq.read_metadata(add_frame(footer))
        chunks += metadata.num_row_groups * metadata.num_columns
        memory = FooterMemory(walked_first=0)
        for _ in range(2):
            validate_footer(footer, get_file_schema(metadata).types, "x", memory)
        with monkeypatch.context() as patch:
            patch.setattr(validation._ChunkValidator, "_walk", count_chunk)
            validate_footer(footer, get_file_schema(metadata).types, "x", memory)
    assert len(walked) < chunks / 10


def validate_or_error(footer: bytes, leaves: Any, memory: FooterMemory) -> bytes | type[TamisError]:
    try:
        return validate_footer(footer, leaves, "x", memory)[0]
    except TamisError as error:
        return type(error)


def test_parts_seen_before_have_the_same_result(tmp_path: Any) -> None:
    chance = random.Random(7)
    for footer in write_footers(tmp_path):
        leaves = get_file_schema(pq.read_metadata(add_frame(footer))).types
        damaged = [footer] * 3
        for _ in range(300):
            raw = bytearray(footer)
            for _ in range(chance.randint(1, 3)):
                raw[chance.randrange(len(raw))] = chance.randrange(256)
            damaged.append(bytes(raw[: chance.choice([len(raw), chance.randrange(1, len(raw))])]))
        memory = FooterMemory(walked_first=0)
        with_memory = [validate_or_error(each, leaves, memory) for each in damaged]
        assert memory.start is not None
        assert memory.end is not None
        assert with_memory == [validate_or_error(each, leaves, FooterMemory()) for each in damaged]


def add_frame(footer: bytes) -> io.BytesIO:
    return io.BytesIO(footer + len(footer).to_bytes(4, "little") + b"PAR1")


# --- Deprecated statistics, and writers that are not trusted ----------------------------------------------------------

BIG_ENDIAN_200 = (200).to_bytes(11, "big")
BIG_ENDIAN_2400 = (2400).to_bytes(11, "big")


@pytest.mark.parametrize("ordered", [True, False])
def test_S4_deprecated_bounds_are_used_for_signed_numbers_only(ordered: bool) -> None:
    def read_made_bounds(
        physical: int, low: bytes, high: bytes, data_type: pa.DataType, **options: Any
    ) -> tuple[Any, Any]:
        return read_bounds(
            make_footer(physical, [make_deprecated_bounds(low, high)], ordered=ordered, **options), data_type
        )

    unknown = (None, None)
    if not ordered:
        assert read_made_bounds(INT32, encode_int32(-1), encode_int32(5), pa.int32()) == (-1, 5)
    # As a signed byte 0xC3 is less than "z", so these bounds would exclude every string between.
    assert read_made_bounds(BYTE_ARRAY, b"\xc3\xa9", b"z", pa.string(), converted=UTF8) == unknown
    assert read_made_bounds(BYTE_ARRAY, b"a", b"z", pa.string(), converted=UTF8) == unknown
    assert read_made_bounds(BYTE_ARRAY, b"a", b"z", pa.binary()) == unknown
    assert read_made_bounds(INT32, encode_int32(-1), encode_int32(5), pa.uint32(), converted=UINT_32) == unknown
    # 1.00 is 0x64 in its last byte, which signed bytes put above 0xC8, 2.00.
    decimal = {"converted": DECIMAL, "length": 11, "digits": (25, 2)}
    assert read_made_bounds(FIXED, BIG_ENDIAN_200, BIG_ENDIAN_2400, pa.decimal128(25, 2), **decimal) == unknown
    decimal.pop("length")
    assert read_made_bounds(BYTE_ARRAY, BIG_ENDIAN_200, BIG_ENDIAN_2400, pa.decimal128(25, 2), **decimal) == unknown


def test_S4_bounds_beside_deprecated_ones_are_used() -> None:
    both = make_deprecated_bounds(b"a", b"z") | make_bounds(b"b", b"y")
    assert read_bounds(make_footer(BYTE_ARRAY, [both], converted=UTF8), pa.string()) == ("b", "y")


def test_S4_bounds_without_an_order_of_columns_are_unknown() -> None:
    footer = make_footer(BYTE_ARRAY, [make_bounds(b"b", b"y")], converted=UTF8, ordered=False)
    assert read_bounds(footer, pa.string()) == (None, None)


@pytest.mark.parametrize(
    ("created_by", "trusted"),
    [
        (None, False),
        (b"", False),
        (b"someone", False),
        (b"\xff\xfe version 1.2.3", False),
        (b"parquet-mr", False),
        (b"parquet-mr version (build 1)", False),
        (b"parquet-mr version 1.7.0 (build abc)", False),
        (b"parquet-mr version 1.8.0", False),
        (b"parquet-mr version 1.9.1", False),
        (b"parquet-mr version 1.10.0 (build 031a6654009e3b82020012a18434c582bd74c73a)", True),
        (b"parquet-mr version 1.18.0-SNAPSHOT", True),
        (b"parquet-cpp-arrow version 26.0.1", True),
        (b"parquet-rs version 55.1.0", True),
        (b"delta-rs version py-1.6.6", True),
        (b"parquet-mr version py-1.6.6", False),
        (b"DuckDB version v2.0.0 (build d54cbbe3df)", True),
        (b"Polars (python) version 2.1.0 (build 7f902bd)", True),
        (b"Trino version 476 (build n/a)", True),
    ],
)
def test_S5_bounds_of_bytes_need_a_trusted_writer(created_by: bytes | None, trusted: bool) -> None:
    def read_made_bounds(
        physical: int, low: bytes, high: bytes, data_type: pa.DataType, **options: Any
    ) -> tuple[Any, Any]:
        return read_bounds(make_footer(physical, [make_bounds(low, high)], created_by=created_by, **options), data_type)

    assert read_made_bounds(BYTE_ARRAY, b"b", b"y", pa.string(), converted=UTF8) == (
        ("b", "y") if trusted else (None, None)
    )
    assert read_made_bounds(FIXED, b"bb", b"yy", pa.binary(2), length=2) == (
        (b"bb", b"yy") if trusted else (None, None)
    )
    assert read_made_bounds(INT32, encode_int32(1), encode_int32(2), pa.int32()) == (1, 2)


# --- Counts -----------------------------------------------------------------------------------------------------------


def test_N1_a_missing_null_count_is_unknown_and_not_zero() -> None:
    found = describe(make_footer(INT32, [make_bounds(encode_int32(1), encode_int32(2), None), None, {}]), pa.int32())
    assert found["null_count"] == [None, None, None]
    assert found["lower"] == [1, None, None]
    assert found["row_count"] == [10, 10, 10]


def test_N1_a_required_column_has_no_nulls_counted_or_not() -> None:
    found = describe(
        make_footer(INT32, [make_bounds(encode_int32(1), encode_int32(2), None), None], required=True), pa.int32()
    )
    assert found["null_count"] == [0, 0]


def test_N8_a_null_count_without_bounds_counts() -> None:
    found = describe(make_footer(INT32, [{3: ("i64", 4)}, {3: ("i64", 10)}]), pa.int32())
    assert (found["null_count"], found["lower"], found["upper"]) == ([4, 10], [None, None], [None, None])


@pytest.mark.parametrize("count", [-1, 11, 2**62])
def test_an_impossible_null_count_is_unknown(count: int) -> None:
    found = describe(make_footer(INT32, [make_bounds(encode_int32(1), encode_int32(2), count)]), pa.int32())
    assert (found["null_count"], found["lower"]) == ([None], [1])


def test_P8_statistics_on_some_row_groups_only() -> None:
    found = describe(make_footer(INT32, [None, make_bounds(encode_int32(1), encode_int32(2)), None]), pa.int32())
    assert (found["lower"], found["upper"]) == ([None, 1, None], [None, 2, None])
    assert found["lower_exact"] == [None, True, None]


def test_a_bound_without_the_other_is_unknown() -> None:
    found = describe(
        make_footer(INT32, [{5: ("binary", encode_int32(2))}, {6: ("binary", encode_int32(1))}]), pa.int32()
    )
    assert (found["lower"], found["upper"]) == ([None, None], [None, None])


# --- Bounds that cannot be true, or have no order ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("footer", "data_type"),
    [
        (make_footer(INT32, [make_bounds(encode_int32(3), encode_int32(2))]), pa.int32()),
        (make_footer(INT32, [make_bounds(encode_int32(-1), encode_int32(2))], converted=UINT_32), pa.uint32()),
        (make_footer(BYTE_ARRAY, [make_bounds(b"\xc3\xa9", b"z")], converted=UTF8), pa.string()),
        (make_footer(DOUBLE, [make_bounds(struct.pack("<d", 1.5), struct.pack("<d", -1.5))]), pa.float64()),
        (
            make_footer(INT32, [make_bounds(encode_int32(3), encode_int32(2))], converted=DECIMAL, digits=(5, 2)),
            pa.decimal128(5, 2),
        ),
        (
            make_footer(FIXED, [make_bounds(b"\x00\x01", b"\xff\xff")], converted=DECIMAL, length=2, digits=(4, 2)),
            pa.decimal128(4, 2),
        ),
    ],
)
def test_T10_a_lower_bound_above_the_upper_drops_both(footer: bytes, data_type: pa.DataType) -> None:
    assert read_bounds(footer, data_type) == (None, None)


def test_T2_decimals_in_bytes_are_signed_and_big_endian() -> None:
    for physical, length in ((FIXED, 2), (BYTE_ARRAY, None)):
        footer = make_footer(
            physical, [make_bounds(b"\xff\xfe", b"\x01\x00")], converted=DECIMAL, length=length, digits=(4, 2)
        )
        assert read_bounds(footer, pa.decimal128(4, 2)) == (Decimal("-0.02"), Decimal("2.56"))


@pytest.mark.parametrize(
    ("low", "high"), [(b"", b"\x01"), (b"\x01", b"\x7f\xff")], ids=["no bytes", "more digits than the type has"]
)
def test_T2_a_decimal_outside_its_type_drops_both(low: bytes, high: bytes) -> None:
    footer = make_footer(BYTE_ARRAY, [make_bounds(low, high)], converted=DECIMAL, digits=(4, 2))
    assert read_bounds(footer, pa.decimal128(4, 2)) == (None, None)


@pytest.mark.parametrize("pair", [(math.nan, 5.0), (1.0, math.nan), (math.nan, math.nan)])
def test_F2_NaN_in_either_bound_drops_both(pair: tuple[float, float]) -> None:
    for physical, code, data_type in ((FLOAT, "<f", pa.float32()), (DOUBLE, "<d", pa.float64())):
        footer = make_footer(physical, [make_bounds(*(struct.pack(code, value) for value in pair))])
        assert read_bounds(footer, data_type) == (None, None)


def test_F4_bounds_at_zero_take_the_zero_further_out_and_are_not_exact() -> None:
    footer = make_footer(DOUBLE, [make_bounds(struct.pack("<d", 0.0), struct.pack("<d", -0.0))])
    found = describe(footer, pa.float64())
    assert [math.copysign(1, found[kind][0]) for kind in ("lower", "upper")] == [-1, 1]
    assert (found["lower"], found["upper"]) == ([0.0], [0.0])
    assert (found["lower_exact"], found["upper_exact"]) == ([False], [False])


def test_T1_unsigned_numbers_with_the_high_bit_set() -> None:
    footer = make_footer(INT32, [make_bounds(encode_int32(7), encode_int32(-1))], converted=UINT_32)
    assert read_bounds(footer, pa.uint32()) == (7, 2**32 - 1)
    assert read_bounds(footer, pa.int64()) == (7, 2**32 - 1)


def test_T1_a_number_outside_its_logical_type_drops_both() -> None:
    for converted, data_type in ((11, pa.uint8()), (15, pa.int8())):
        footer = make_footer(INT32, [make_bounds(encode_int32(1), encode_int32(300))], converted=converted)
        assert read_bounds(footer, data_type) == (None, None)


def test_T3_INT96_and_T9_interval_have_no_bounds_and_keep_their_null_count() -> None:
    found = describe(make_footer(INT96, [make_bounds(b"\x01" * 12, b"\x02" * 12, 4)]), pa.timestamp("ns"))
    assert (found["null_count"], found.get("lower"), found.get("upper")) == ([4], None, None)
    footer = make_footer(FIXED, [make_bounds(b"\x01" * 12, b"\x02" * 12, 4)], converted=INTERVAL, length=12)
    found = describe(footer, pa.binary(12))
    assert (found["null_count"], found.get("lower"), found.get("upper")) == ([4], None, None)


def test_T7_timestamps_of_old_files_leave_the_zone_to_the_table() -> None:
    # A converted type says "microseconds" but not whether there is a zone.
    footer = make_footer(
        INT64, [make_bounds(struct.pack("<q", -1500), struct.pack("<q", 1500))], converted=TIMESTAMP_MICROS
    )
    for zone in (None, "UTC", "Europe/Paris"):
        found = describe(footer, pa.timestamp("us", zone))
        assert [value.timestamp() for value in (found["lower"][0], found["upper"][0]) if zone] in (
            [],
            [-0.0015, 0.0015],
        )
        assert found["lower_exact"] == [True]
    assert read_bounds(footer, pa.timestamp("ms")) == (
        datetime.datetime(1969, 12, 31, 23, 59, 59, 998_000),
        datetime.datetime(1970, 1, 1, 0, 0, 0, 2_000),
    )


# --- Text that is cut in the middle of a character --------------------------------------------------------------------


@pytest.mark.parametrize(
    ("low", "high", "lower", "upper"),
    [
        (b"a\xc3", b"b\xc3", "a", "c"),
        (b"\xe2\x82", b"\xe2\x82", "", None),
        (b"a\xf0\x9f", "\U0010ffff".encode() + b"\xff", "a", None),
        (b"a", "a\U0010ffff".encode() + b"\xf4", "a", "b"),
        (b"a", b"a\xed\x9f\xbf\xff", "a", "a\ue000"),
        ("é".encode(), "é".encode() + b"\x80", "é", "ê"),
        (b"\xff\xff", b"\xff\xff", "", None),
    ],
)
def test_S3_S8_truncated_text_that_is_not_valid(low: bytes, high: bytes, lower: str, upper: str | None) -> None:
    footer = make_footer(BYTE_ARRAY, [make_bounds(low, high)], converted=UTF8)
    found = describe(footer, pa.string())
    assert (found["lower"], found["upper"]) == ([lower], [upper])
    assert (found["lower_exact"], found["upper_exact"]) == ([False], [None if upper is None else False])
    assert read_bounds(footer, pa.binary()) == (low, high)


# --- Offsets of column chunks -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("data_page", "dictionary_page", "start"), [(104, None, 104), (104, 0, 104), (104, 4, 4), (104, 200, 104)]
)
def test_P9_a_dictionary_offset_counts_only_before_the_data_pages(
    data_page: int, dictionary_page: int | None, start: int
) -> None:
    pages: dict[int, Any] = {9: ("i64", data_page)}
    if dictionary_page is not None:
        pages[11] = ("i64", dictionary_page)
    metadata = parse_footer(make_footer(INT32, [None], in_metadata=pages))
    assert find_chunk_ranges(metadata, 0, [0], size=1000) == [(start, 30)]


@pytest.mark.parametrize("change", [{9: ("i64", -4)}, {7: ("i64", -30)}, {9: ("i64", 971)}, {7: ("i64", 2**62)}])
def test_X3_a_chunk_outside_the_file_is_corrupt(change: dict[int, Any]) -> None:
    metadata = parse_footer(make_footer(INT32, [None], in_metadata=change))
    with pytest.raises(CorruptFile, match=r"row group 0 of made\.parquet has column 0 at bytes .* file of 1000 bytes"):
        find_chunk_ranges(metadata, 0, [0], size=1000, location="made.parquet")


def test_chunks_of_the_oldest_writers_are_longer_than_stated() -> None:
    footer = make_footer(INT32, [None], created_by=b"parquet-mr version 1.2.8 (build x)")
    metadata = parse_footer(footer)
    assert find_chunk_ranges(metadata, 0, [0], size=1000) == [(4, 130)]
    assert find_chunk_ranges(metadata, 0, [0], size=60) == [(4, 56)]
