"""Pages decoded separately: equal to what pyarrow reads from the whole file, or an error with the reason."""

from __future__ import annotations

import random
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders.parquet.page_files import (
    FILE_PATH,
    OpenedFile,
    damage_bytes,
    has_same_values,
    parquet_bytes,
    write_with_duckdb,
    write_with_polars,
)
from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.footer.thrift import I32, STRUCT, encode_struct
from tamis.parquet.reading.decode import (
    MAX_UNSTATED_BYTES,
    decode_dictionary,
    decode_dictionary_texts,
    decode_page_header,
    decode_pages,
    encode_plain_page_header,
    find_leaf_value_field,
)

ROWS = 230


def make_some_null(value: Any, row: int, every: int = 7) -> Any:
    return None if row % every == 0 else value


def make_flat_columns() -> dict[str, pa.Array]:
    rows = range(ROWS)
    day = 86_400_000
    return {
        "long": pa.array([make_some_null(row, row) for row in rows]),
        "required": pa.array(rows, pa.int64()),
        "tiny": pa.array([row % 256 for row in rows], pa.uint8()),
        "flag": pa.array([make_some_null(row % 3 == 0, row) for row in rows]),
        "half": pa.array(np.arange(ROWS, dtype=np.float16)),
        "text": pa.array([make_some_null(f"text {row % 13}", row) for row in rows]),
        "large": pa.array([f"text {row}" for row in rows], pa.large_string()),
        "view": pa.array([f"text {row % 13}" for row in rows], pa.string_view()),
        "bytes": pa.array([bytes([row % 256]) * (row % 5) for row in rows]),
        "fixed": pa.array([bytes([row % 256] * 5) for row in rows], pa.binary(5)),
        "decimal": pa.array([make_some_null(row, row) for row in rows], pa.int64()).cast(pa.decimal128(30, 2)),
        "short_decimal": pa.array(rows, pa.int32()).cast(pa.decimal128(12, 1)),
        "date": pa.array(rows, pa.date32()),
        "date64": pa.array([row * day for row in rows], pa.date64()),
        "time": pa.array(rows, pa.time64("us")),
        "duration": pa.array(rows, pa.duration("ms")),
        "zoned": pa.array(rows, pa.timestamp("us", "Europe/Berlin")),
        "nanos": pa.array([make_some_null(row, row) for row in rows], pa.timestamp("ns")),
        "coded": pa.array([f"text {row % 13}" for row in rows]).dictionary_encode(),
        "nothing": pa.nulls(ROWS),
        "uuid": pa.ExtensionArray.from_storage(pa.uuid(), pa.array([bytes([row % 256] * 16) for row in rows])
                                               .cast(pa.binary(16))),
    }  # fmt: skip


def make_nested_columns() -> dict[str, pa.Array]:
    rows = range(ROWS)
    pairs = pa.struct({"x": pa.int64(), "y": pa.string()})
    deep = pa.struct({"p": pa.int32(), "q": pa.list_(pa.int64())})

    def make_structs(row: int) -> Any:
        return make_some_null(
            [make_some_null({"x": at, "y": make_some_null(f"y{at}", at, 2)}, at + row, 4) for at in range(row % 4)], row
        )

    return {
        "list": pa.array(
            [make_some_null([make_some_null(at, at + row, 3) for at in range(row % 4)], row) for row in rows]
        ),
        "large_list": pa.array([make_some_null(list(range(row % 3)), row) for row in rows], pa.large_list(pa.int16())),
        "fixed_list": pa.array([[row, row + 1] for row in rows], pa.list_(pa.int32(), 2)),
        "list_of_lists": pa.array([[[at] * at for at in range(row % 3)] for row in rows]),
        "list_of_structs": pa.array([make_structs(row) for row in rows], pa.list_(pairs)),
        "struct": pa.array(
            [
                make_some_null({"a": row, "b": make_some_null({"c": str(row), "e": [row] * (row % 3)}, row, 4)}, row)
                for row in rows
            ]
        ),
        "map": pa.array(
            [
                make_some_null(
                    [(f"k{at}", make_some_null({"p": at, "q": [at] * at}, at, 2)) for at in range(row % 4)], row
                )
                for row in rows
            ],
            pa.map_(pa.string(), deep),
        ),
        "map_of_maps": pa.array(
            [make_some_null([(f"k{at}", [(at, "v")] * at) for at in range(row % 3)], row) for row in rows],
            pa.map_(pa.string(), pa.map_(pa.int32(), pa.string())),
        ),
        "list_of_maps": pa.array(
            [[[("a", row)]] * (row % 3) for row in rows], pa.list_(pa.map_(pa.string(), pa.int32()))
        ),
    }


def make_table(columns: dict[str, pa.Array]) -> pa.Table:
    fields = [pa.field(name, column.type, nullable=name != "required") for name, column in columns.items()]
    return pa.table(columns, schema=pa.schema(fields))


FLAT, NESTED = make_table(make_flat_columns()), make_table(make_nested_columns())


def check_pages(file: OpenedFile, row_group: int, leaf: int, pages: Sequence[int]) -> None:
    assert has_same_values(file.decode(row_group, leaf, pages), file.expected_pages(row_group, leaf, pages))


def check_file(file: OpenedFile, seed: int = 0) -> None:
    """Check every leaf of every row group: the whole chunk, and some of its pages if there is an offset index."""
    generator = random.Random(seed)
    for (row_group, leaf), layout in file.layouts.items():
        assert has_same_values(file.decode_chunk(row_group, leaf), file.expected(row_group, leaf)), file.fields[leaf]
        if layout.offset_index is not None:
            count = file.locations(row_group, leaf).num_pages
            pages = sorted(generator.sample(range(count), generator.randint(min(count, 1), count)))
            check_pages(file, row_group, leaf, pages)


# --- Files of pyarrow -------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {},
    {"data_page_version": "2.0"},
    {"use_dictionary": False, "compression": "none"},
    {"use_dictionary": False, "data_page_version": "2.0", "compression": "none"},
    {"version": "1.0", "compression": "gzip"},
    {"compression": "zstd", "data_page_version": "2.0", "write_page_checksum": True},
    {"compression": "lz4", "write_page_checksum": True},
    {"compression": "brotli", "dictionary_pagesize_limit": 60},
    {"store_schema": False},
    {"write_page_index": False},
    {"max_rows_per_page": 1, "row_group_size": 40},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("table", [FLAT, NESTED], ids=["flat", "nested"])
def test_pages_of_files_by_pyarrow(table: pa.Table, options: dict[str, Any]) -> None:
    if options.get("version") == "1.0":
        table = table.drop_columns([name for name in ("nanos", "half") if name in table.column_names])
    check_file(OpenedFile(parquet_bytes(table, **options)))


@pytest.mark.parametrize(
    "encoding", ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"]
)
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_pages_of_every_encoding(encoding: str, version: str) -> None:
    names = ["text", "bytes"] if encoding.endswith("BYTE_ARRAY") else ["long", "date"]
    options = {"use_dictionary": False, "column_encoding": encoding, "data_page_version": version}
    check_file(OpenedFile(parquet_bytes(FLAT.select(names), **options)))


def test_consecutive_pages_may_share_a_buffer() -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["text"])))
    locations = file.locations(0, 0)
    start, end = int(locations.offsets[1]), int(locations.offsets[4])
    found = decode_pages(
        file.schemas[0],
        file.fields[0],
        file.layouts[0, 0],
        file.dictionary(0, 0),
        [file.buffer.slice(start, end - start)],
        51,
        FILE_PATH,
        row_counts=[17, 17, 17],
    )
    assert found.equals(file.expected_pages(0, 0, [1, 2, 3]))


def test_without_pages_there_are_no_rows() -> None:
    file = OpenedFile(parquet_bytes(NESTED))
    for leaf in range(file.num_leaves):
        found = file.decode(0, leaf, [])
        assert (len(found), found.type) == (0, file.fields[leaf].type)


def test_large_pages_are_not_copied_into_a_wrong_answer() -> None:
    table = pa.table({"a": np.random.default_rng(0).integers(0, 2**60, 400_000)})
    content = parquet_bytes(table, row_group_size=400_000, max_rows_per_page=300_000, data_page_size=1 << 30,
                            use_dictionary=False, compression="none")  # fmt: skip
    file = OpenedFile(content)
    assert file.locations(0, 0).num_pages == 2
    check_pages(file, 0, 0, [0])
    check_pages(file, 0, 0, [0, 1])
    assert file.decode_chunk(0, 0).equals(table["a"])


cells = st.one_of(st.none(), st.integers(-(2**40), 2**40))
lists = st.one_of(st.none(), st.lists(cells, max_size=5))
records = st.one_of(st.none(), st.fixed_dictionaries({"u": cells, "v": lists}))
RECORD = pa.struct({"u": pa.int64(), "v": pa.list_(pa.int64())})


@settings(max_examples=30)
@given(
    st.lists(st.tuples(cells, st.text(max_size=4) | st.none(), lists, records, st.lists(records, max_size=3)),
             min_size=1, max_size=60),
    st.sampled_from(["1.0", "2.0"]),
    st.booleans(),
    st.integers(1, 20),
    st.integers(20, 60),
    st.randoms(use_true_random=False),
)  # fmt: skip
def test_chosen_pages_of_any_file_are_the_slices_of_its_columns(
    rows: list[Any], version: str, dictionary: bool, rows_per_page: int, rows_per_group: int, generator: random.Random
) -> None:
    kinds = [pa.int64(), pa.string(), pa.list_(pa.int64()), RECORD, pa.list_(RECORD)]
    columns = [pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), kinds, strict=True)]
    table = pa.table(columns, ["a", "b", "c", "d", "e"])
    options = {"data_page_version": version, "use_dictionary": dictionary, "max_rows_per_page": rows_per_page}
    check_file(OpenedFile(parquet_bytes(table, row_group_size=rows_per_group, **options)), generator.randrange(10**9))


# --- Other writers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("options", ["", ", parquet_version v2, codec zstd", ", codec lz4_raw"])
def test_chunks_of_files_by_duckdb(tmp_path: Path, options: str) -> None:
    check_file(OpenedFile(write_with_duckdb(tmp_path / "f.parquet", options)))


def test_pages_of_files_by_polars() -> None:
    file = OpenedFile(write_with_polars())
    assert file.locations(0, 0).num_pages > 1
    check_file(file)


def test_golden_files(golden: Path) -> None:
    paths = sorted((golden / "parquet").glob("*.parquet"))
    assert len(paths) > 15
    for path in paths:
        check_file(OpenedFile(path.read_bytes()))


# --- Dictionaries -----------------------------------------------------------------------------------------------------


def decode_leaf_dictionary(file: OpenedFile, leaf: int, page: pa.Buffer | None = None) -> pa.Array:
    page = file.dictionary(0, leaf) if page is None else page
    assert page is not None
    field = find_leaf_value_field(file.fields[leaf])
    return decode_dictionary(page, file.layouts[0, leaf], file.schemas[leaf], field, FILE_PATH)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd", "gzip", "lz4", "brotli"])
def test_dictionaries_hold_the_values_of_their_chunks(version: str, codec: str) -> None:
    checksum = codec == "zstd"
    options = {"data_page_version": version, "compression": codec, "write_page_checksum": checksum}
    table = FLAT.drop_columns(["flag", "nothing"])
    file = OpenedFile(parquet_bytes(table, row_group_size=ROWS, **options))
    for leaf, name in enumerate(table.column_names):
        column = table[name].combine_chunks()
        if isinstance(column, pa.DictionaryArray):
            column = column.cast(pa.string())
        found = decode_leaf_dictionary(file, leaf)
        stored = column.cast(found.type) if column.type != found.type else column
        assert found.equals(stored.drop_null().unique() if not isinstance(found, pa.ExtensionArray) else found)
        assert set(map(str, found.to_pylist())) == set(map(str, stored.drop_null().to_pylist()))


def test_B7_null_is_in_no_dictionary_of_nested_leaves() -> None:
    file = OpenedFile(parquet_bytes(NESTED, row_group_size=ROWS))
    for leaf, field in enumerate(file.fields):
        found = decode_leaf_dictionary(file, leaf)
        assert found.type == find_leaf_value_field(field).type
        assert found.null_count == 0
        assert len(found) == len(found.unique()) > 0


def test_dictionaries_of_golden_files(golden: Path) -> None:
    decoded = 0
    for path in sorted((golden / "parquet").glob("*.parquet")):
        file = OpenedFile(path.read_bytes())
        for leaf in range(file.num_leaves):
            page = file.dictionary(0, leaf)
            if (
                page is not None
                and not file.schemas[leaf].is_repeated
                and pa.types.is_primitive(file.fields[leaf].type)
            ):
                values = decode_leaf_dictionary(file, leaf).to_string(window=10**6).split()
                column = file.expected(0, leaf).combine_chunks().drop_null().unique()
                assert set(column.to_string(window=10**6).split()) <= {*values, "[", "]"} | {
                    f"{each}," for each in values
                }
                decoded += 1
    assert decoded > 10


@pytest.mark.parametrize("change", ["count", "too many", "size", "type", "encoding", "cut off", "checksum"])
def test_X5_inconsistent_dictionaries_are_an_error(change: str) -> None:
    codec = "none" if change == "size" else "snappy"
    file = OpenedFile(parquet_bytes(FLAT.select(["long"]), compression=codec, write_page_checksum=True))
    page = file.dictionary(0, 0)
    assert page is not None
    header = decode_page_header(page.to_pybytes(), FILE_PATH)
    kind, uncompressed, count, encoding, crc = 2, header.uncompressed_size, header.num_values, 0, header.crc
    match change:
        case "count":
            count -= 1
        case "too many":
            count = 2**31 - 1
        case "size":
            uncompressed += 1
        case "type":
            kind = 0
        case "encoding":
            encoding = 5
        case "checksum":
            crc = (crc or 0) ^ 1
    inner = encode_struct([(1, I32, count), (2, I32, encoding)])
    made = encode_struct(
        [
            (1, I32, kind),
            (2, I32, uncompressed),
            (3, I32, header.compressed_size),
            (4, I32, crc),
            (5 if kind == 0 else 7, STRUCT, inner),
        ]
    )
    body = page.to_pybytes()[header.length :][: header.compressed_size - (change == "cut off")]
    if change == "count":
        # The page claims fewer values than it has bytes for: the claimed values exist.
        assert len(decode_leaf_dictionary(file, 0, pa.py_buffer(made + body))) == count
        return
    with pytest.raises(CorruptFile, match=r"the dictionary of column 0 in row group 0 of 'f\.parquet'|a page"):
        decode_leaf_dictionary(file, 0, pa.py_buffer(made + body))


# --- Inconsistent pages -----------------------------------------------------------------------------------------------


def decode_with(file: OpenedFile, **changes: Any) -> pa.ChunkedArray:
    locations = file.locations(0, 0)
    arguments: dict[str, Any] = {
        "schema": file.schemas[0],
        "field": file.fields[0],
        "layout": file.layouts[0, 0],
        "dictionary": file.dictionary(0, 0),
        "data": [file.buffer.slice(int(locations.offsets[page]), int(locations.lengths[page])) for page in (0, 2)],
        "num_rows": 34,
        "location": FILE_PATH,
        "row_counts": [17, 17],
    }
    return decode_pages(**arguments | changes)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_X3_pages_with_a_wrong_number_of_rows_are_an_error(version: str) -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["text"]), data_page_version=version))
    assert len(decode_with(file)) == 34
    assert len(decode_with(file, row_counts=None)) == 34
    for changes in (
        {"num_rows": 33},
        {"num_rows": 35},
        {"num_rows": 33, "row_counts": None},
        {"num_rows": 35, "row_counts": None},
        {"row_counts": [16, 18]},
        {"row_counts": [34]},
    ):
        with pytest.raises(CorruptFile, match=r"column 0 in row group 0 of 'f\.parquet' has"):
            decode_with(file, **changes)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_X3_lists_with_a_wrong_number_of_rows_are_an_error(version: str) -> None:
    file = OpenedFile(parquet_bytes(NESTED.select(["list"]), data_page_version=version))
    assert len(decode_with(file)) == 34
    for rows in (33, 35):
        with pytest.raises(CorruptFile, match=r"column 0 in row group 0 of 'f\.parquet'"):
            decode_with(file, num_rows=rows, row_counts=[17, rows - 17])


def test_X5_pages_larger_than_their_chunk_are_not_decompressed() -> None:
    rows = MAX_UNSTATED_BYTES // 16 + 1
    zeros = pa.table({"zero": pa.array(np.zeros(3 * rows, np.int64))})
    options = {"use_dictionary": False, "compression": "zstd", "data_page_size": 2**30, "row_group_size": 3 * rows}
    file = OpenedFile(parquet_bytes(zeros, **options, max_rows_per_page=rows))
    start, length = (int(each[0]) for each in (file.locations(0, 0).offsets, file.locations(0, 0).lengths))
    both = {"num_rows": 2 * rows, "row_counts": [rows] * 2}
    one = {"num_rows": rows, "row_counts": [rows], "data": [file.buffer.slice(start, length)]}
    assert file.layouts[0, 0].byte_range[1] < 10_000
    assert len(decode_with(file, **both)) == 2 * rows
    for claimed in (0, 1000, 16 * rows - 1):
        layout = replace(file.layouts[0, 0], total_uncompressed_size=claimed)
        # One page is small enough to be harmless, whatever the footer claims.
        assert len(decode_with(file, **one, layout=layout)) == rows
        with pytest.raises(CorruptFile, match=rf"pages of \d+ uncompressed bytes in a chunk of {claimed};"):
            decode_with(file, **both, layout=layout)


@pytest.mark.parametrize("codec", ["snappy", "zstd", "gzip"])
@pytest.mark.parametrize("by", [1, -1, 2**20, 2**31 - 10_000])
def test_X5_pages_with_a_wrong_uncompressed_size_are_an_error(codec: str, by: int) -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["required"]), use_dictionary=False, compression=codec))
    locations = file.locations(0, 0)
    page = file.buffer.slice(int(locations.offsets[0]), int(locations.lengths[0])).to_pybytes()
    header = decode_page_header(page, FILE_PATH)
    made = encode_plain_page_header(header._replace(uncompressed_size=header.uncompressed_size + by))
    with pytest.raises(CorruptFile, match="column 0 in row group 0"):
        decode_with(file, data=[pa.py_buffer(made + page[header.length :])], num_rows=17, row_counts=[17])


def test_X5_a_dictionary_larger_than_its_chunk_is_not_decompressed() -> None:
    text = "a" * MAX_UNSTATED_BYTES
    options = {"compression": "zstd", "dictionary_pagesize_limit": 2**30}
    file = OpenedFile(parquet_bytes(pa.table({"text": [text] * 3}), **options))
    assert decode_leaf_dictionary(file, 0).to_pylist() == [text]
    file.layouts[0, 0] = replace(file.layouts[0, 0], total_uncompressed_size=1000)
    with pytest.raises(CorruptFile, match=r"the dictionary of column 0 .* in a chunk of 1000;"):
        decode_leaf_dictionary(file, 0)


def test_pages_with_extra_or_missing_bytes_are_an_error() -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["required"]), use_dictionary=False))
    locations = file.locations(0, 0)
    start, length = int(locations.offsets[0]), int(locations.lengths[0])
    for wrong in ((start, length - 1), (start, length + 1), (start + 1, length), (start, 3)):
        with pytest.raises(CorruptFile, match="column 0 in row group 0"):
            decode_with(file, data=[file.buffer.slice(*wrong)], num_rows=17, row_counts=[17])


def test_pages_without_their_dictionary_are_an_error() -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["text"])))
    with pytest.raises(CorruptFile, match="cannot be decoded"):
        decode_with(file, dictionary=None)
    locations = file.locations(0, 0)
    with pytest.raises(CorruptFile, match="expected its dictionary page"):
        decode_with(file, dictionary=file.buffer.slice(int(locations.offsets[0]), int(locations.lengths[0])))


def test_codecs_without_pyarrow_support_are_unsupported() -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["text"])))
    for codec in (3, 99, -1):
        with pytest.raises(UnsupportedFeature, match=r"column 0 in row group 0 of 'f\.parquet' is compressed with"):
            decode_with(file, layout=replace(file.layouts[0, 0], codec=codec))


def test_a_wrong_checksum_is_an_error() -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["required"]), write_page_checksum=True, compression="none"))
    locations = file.locations(0, 0)
    page = bytearray(file.part((int(locations.offsets[0]), int(locations.lengths[0]))))
    page[-1] ^= 1
    with pytest.raises(CorruptFile, match=r"(?i)crc|checksum"):
        decode_with(file, data=[pa.py_buffer(bytes(page))], num_rows=17, row_counts=[17])


@pytest.mark.parametrize("name", ["text", "long", "flag", "decimal", "list", "map"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_damaged_pages_give_rows_or_CorruptFile(name: str, version: str) -> None:
    table = FLAT if name in FLAT.column_names else NESTED
    file = OpenedFile(parquet_bytes(table.select([name]), data_page_version=version, max_rows_per_page=30))
    locations = file.locations(0, 0)
    page = file.part((int(locations.offsets[0]), int(locations.lengths[0])))
    outcomes = {True: 0, False: 0}
    for changed in damage_bytes(page, times=150):
        try:
            found = decode_with(file, data=[pa.py_buffer(changed)], num_rows=30, row_counts=[30])
        except (CorruptFile, UnsupportedFeature):
            outcomes[False] += 1
            continue
        outcomes[True] += 1
        assert (len(found), found.type) == (30, file.fields[0].type)
    assert outcomes[False] > 10


def test_damaged_dictionaries_give_values_or_CorruptFile() -> None:
    file = OpenedFile(parquet_bytes(FLAT.select(["text"])))
    page = file.dictionary(0, 0)
    assert page is not None
    for changed in damage_bytes(page.to_pybytes(), times=300):
        with suppress(CorruptFile, UnsupportedFeature):
            assert decode_leaf_dictionary(file, 0, pa.py_buffer(changed)).type == pa.string()


# --- Strings that stay dictionary encoded -----------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("data_type", [pa.string(), pa.binary(), pa.list_(pa.string())], ids=str)
def test_dictionary_encoded_texts_are_the_same_texts(data_type: pa.DataType, version: str) -> None:
    texts = ["aa", "b", None, "", "dddd"]
    values = [texts[index % 5] for index in range(100)]
    rows = [None if index % 7 == 0 else values[: index % 4] for index in range(100)]
    array = pa.array(rows if pa.types.is_list(data_type) else values, data_type)
    file = OpenedFile(parquet_bytes(pa.table({"text": array}), data_page_version=version))
    plain, coded = decode_with(file), decode_with(file, may_stay_coded=True)
    assert plain.type == file.fields[0].type != coded.type
    for positions in ([0, 3, 33], [20], []):
        texts_of_some = decode_dictionary_texts(coded.take(pa.array(positions, pa.int64())), plain.type)
        assert texts_of_some is not None
        assert texts_of_some.to_pylist() == plain.take(pa.array(positions, pa.int64())).to_pylist()


def test_only_dictionary_encoded_texts_stay_encoded() -> None:
    for table, options in (
        (pa.table({"text": ["a", "b"] * 50}), {"use_dictionary": False}),
        (pa.table({"number": [1, 2] * 50}), {}),
        (pa.table({"text": pa.array(["a", "b"] * 50, pa.large_string())}), {}),
        (pa.table({"text": pa.array(["a", "b"] * 50).dictionary_encode()}), {}),
    ):
        file = OpenedFile(parquet_bytes(table, **options))
        assert decode_with(file, may_stay_coded=True).equals(decode_with(file))


def test_indices_outside_the_dictionary_have_no_texts() -> None:
    file = OpenedFile(parquet_bytes(pa.table({"text": [f"text {index}" for index in range(100)]}), compression="none"))
    short = OpenedFile(
        parquet_bytes(pa.table({"text": [f"text {index % 2}" for index in range(100)]}), compression="none")
    )
    coded = decode_with(file, dictionary=short.dictionary(0, 0), may_stay_coded=True)
    assert decode_dictionary_texts(coded.slice(20, 1), pa.string()) is None
    found = decode_dictionary_texts(coded.slice(1, 1), pa.string())
    assert found is not None
    assert found.to_pylist() == ["text 1"]
    with pytest.raises(CorruptFile, match="cannot be decoded"):
        decode_with(file, dictionary=short.dictionary(0, 0))
