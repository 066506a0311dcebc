"""Bloom filters of files by several writers: found, read in few requests, and used only if they are consistent."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import arro3.io
import duckdb
import fsspec
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pytest

from builders.parquet.bloom import list_kept_row_groups, read_filters, read_layouts, read_leaves
from tamis import types
from tamis.io.ranges import LOCAL, RangedFile
from tamis.io.storage import Storage, open_storage
from tamis.parquet.footer.thrift import BINARY, I32, STRUCT, encode_integer, encode_struct
from tamis.parquet.indexes.bloom_filter import BloomFilter, Unavailable, find_blocks, hash_stored_values
from tamis.parquet.indexes.bloom_pruning import NO_FILTER, read_bloom_filters

ROWS, GROUP = 900, 300


def make_columns() -> dict[str, pa.Array]:
    """Return a column of each type that supports Bloom filters, with some NULLs."""
    generator = np.random.default_rng(7)
    columns: dict[str, pa.Array] = {}
    for name in ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"):
        data_type = types.type_from_name(name)
        smallest, largest = types.get_integer_range(data_type)
        columns[name] = pa.array(
            generator.integers(smallest, largest, ROWS, data_type.to_pandas_dtype(), endpoint=True)
        )
    for width in (2, 4, 8):
        columns[f"float{8 * width}"] = pa.array(generator.normal(size=ROWS).astype(f"f{width}"))
    ticks = pa.array(generator.integers(-(10**9), 10**9, ROWS))
    for unit in ("ms", "us", "ns"):
        columns[f"instant_{unit}"] = ticks.view(pa.timestamp(unit, "UTC"))
        columns[f"clock_{unit}"] = ticks.view(pa.timestamp(unit))
    small = pa.array(generator.integers(0, 86_400, ROWS).astype("i4"))
    columns["date"] = small.view(pa.date32())
    columns["time_ms"] = small.view(pa.time32("ms"))
    columns["time_us"] = pa.array(small.to_numpy().astype("i8")).view(pa.time64("us"))
    for precision, scale in ((7, 2), (15, 3), (38, 10)):
        digits = generator.integers(-(10**6), 10**6, ROWS).tolist()
        values = [Decimal(each).scaleb(-scale) for each in digits]
        columns[f"decimal_{precision}"] = pa.array(values, pa.decimal128(precision, scale))
    columns["text"] = pa.array([f"wörd {each}" for each in range(ROWS)])
    columns["binary"] = pa.array([each.to_bytes(3, "big") for each in range(ROWS)])
    columns["fixed"] = pa.array([uuid.UUID(int=each).bytes for each in range(ROWS)], pa.binary(16))
    absent = pa.array([each % 50 == 7 for each in range(ROWS)])
    return {name: pa.compute.if_else(absent, pa.scalar(None, array.type), array) for name, array in columns.items()}


TABLE = pa.table(make_columns())


def write_with_pyarrow(path: Path, table: pa.Table = TABLE, ndv: int = GROUP, **options: Any) -> Path:
    wanted = {name: {"ndv": ndv, "fpp": 0.01} for name in options.pop("columns", table.column_names)}
    options = {"row_group_size": GROUP} | options
    pq.write_table(table, path, bloom_filter_options=wanted, **options)
    return path


def write_with_parquet_rs(path: Path, table: pa.Table = TABLE) -> Path:
    arro3.io.write_parquet(table, path, bloom_filter_enabled=True, max_row_group_size=GROUP)
    return path


def write_with_duckdb(path: Path, table: pa.Table = TABLE) -> Path:
    """Repeat the rows: DuckDB writes filters only for dictionary columns, and dictionaries only for repeated values."""
    rows = pa.concat_tables([table.drop([name for name in ("float16",) if name in table.column_names])] * 4)
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        connection.register("rows", rows)
        connection.execute(f"COPY rows TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, DICTIONARY_SIZE_LIMIT 2000)")
    return path


WRITERS: dict[str, Callable[[Path], Path]] = {
    "pyarrow": write_with_pyarrow,
    "pyarrow, decimals as integers": lambda path: write_with_pyarrow(path, store_decimal_as_integer=True),
    "pyarrow, plain, version 2": lambda path: write_with_pyarrow(path, use_dictionary=False, data_page_version="2.0"),
    "parquet-rs": write_with_parquet_rs,
    "DuckDB": write_with_duckdb,
}
WITHOUT_FILTERS = {"DuckDB": {"decimal_38"}}


@pytest.fixture(scope="module", params=WRITERS)
def written(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[str]]:
    """Return a file by one of the writers, and the columns for which it writes no filters."""
    path = WRITERS[request.param](tmp_path_factory.mktemp("written") / "file.parquet")
    return path, WITHOUT_FILTERS.get(request.param, set())


# --- Filters by writer ------------------------------------------------------------------------------------------------


def test_B1_every_value_of_every_type_is_found_and_most_others_are_not(written: tuple[Path, set[str]]) -> None:
    path, without = written
    filters, leaves = read_filters(path), read_leaves(path)
    others = np.random.default_rng(1).integers(0, 2**64, 2_000, np.uint64)
    with pq.ParquetFile(path) as file:
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            for name, leaf in leaves.items():
                found = filters[group, leaf.index]
                if name in without:
                    assert found == NO_FILTER
                    continue
                assert isinstance(found, BloomFilter), (name, found)
                hashes = hash_stored_values(rows[name].combine_chunks(), leaf)
                assert isinstance(hashes, np.ndarray), (name, hashes)
                assert len(hashes) > 200
                assert found.might_contain_hashes(hashes).all(), name
                assert found.might_contain_hashes(others).mean() < 0.1, name


def test_a_writer_without_filters_has_none(tmp_path: Path) -> None:
    path = tmp_path / "polars.parquet"
    pl.DataFrame({"a": [1, 2, 3]}).write_parquet(path)
    assert read_filters(path) == {(0, 0): NO_FILTER}


@pytest.mark.parametrize("name", ["data_index_bloom_encoding_stats", "data_index_bloom_encoding_with_length"])
def test_filters_of_parquet_java_with_and_without_their_length(golden: Path, name: str) -> None:
    path = golden / "parquet" / f"{name}.parquet"
    ((_, length),) = [each.bloom_filter for each in read_layouts(path).values() if each.bloom_filter is not None]
    assert (length is not None) == name.endswith("with_length")
    (found,) = read_filters(path).values()
    assert isinstance(found, BloomFilter)
    leaf = read_leaves(path)["String"]
    assert found.might_contain_hashes(hash_stored_values(pq.read_table(path)["String"].combine_chunks(), leaf)).all()
    others = hash_stored_values(pa.array([f"absent {number}" for number in range(500)]), leaf)
    assert found.might_contain_hashes(others).mean() < 0.05


# --- How they are read ------------------------------------------------------------------------------------------------


def open_remote(folder: Path) -> Storage:
    """Return a storage over local files that counts as remote."""
    filesystem = pafs.PyFileSystem(pafs.FSSpecHandler(fsspec.filesystem("file")))
    return Storage(filesystem, str(folder), f"remote://{folder}")


def write_one_column(path: Path, rows: int = GROUP, groups: int = 3) -> Path:
    """Write row groups with the numbers 0, 1, 2, … in order."""
    table = pa.table({"k": pa.array(range(rows * groups), pa.int64())})
    return write_with_pyarrow(path, table, ndv=rows, row_group_size=rows)


LARGE = 60_000  # rows whose filter is many times what a local request is worth


def make_probes(path: Path, *values: int) -> dict[int, Any]:
    return {0: hash_stored_values(pa.array(values, pa.int64()), read_leaves(path)["k"])}


def drop_lengths(path: Path) -> dict[Any, Any]:
    return {
        chunk: replace(each, bloom_filter=(each.bloom_filter[0], None)) for chunk, each in read_layouts(path).items()
    }


def test_filters_with_known_lengths_are_read_in_one_round(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    layouts, storage = read_layouts(path), open_storage(tmp_path)
    assert all(each.bloom_filter[1] is not None for each in layouts.values())
    read_filters(path, layouts, storage=storage)
    # Filters are adjacent, so they take one read.
    assert storage.counters.requests == 1
    assert storage.counters.bytes_read == sum(each.bloom_filter[1] for each in layouts.values())


def test_filters_without_lengths_are_read_completely(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet", LARGE)
    storage = open_storage(tmp_path)
    known, unknown = read_filters(path), read_filters(path, drop_lengths(path), storage=storage)
    for chunk, found in unknown.items():
        assert (found.bits == known[chunk].bits).all()
    assert storage.counters.bytes_read < 1.1 * sum(each.bloom_filter[1] for each in read_layouts(path).values())


def test_small_filters_without_lengths_need_no_second_round(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    storage = open_storage(tmp_path)
    assert all(
        isinstance(each, BloomFilter) for each in read_filters(path, drop_lengths(path), storage=storage).values()
    )
    assert storage.counters.requests == 1


@pytest.mark.parametrize("lengths", [read_layouts, drop_lengths])
def test_only_needed_blocks_of_large_filters_are_read(
    tmp_path: Path, lengths: Callable[[Path], dict[Any, Any]]
) -> None:
    path = write_one_column(tmp_path / "file.parquet", LARGE)
    storage, layouts, asked = open_storage(tmp_path), lengths(path), make_probes(path, 5, 299, LARGE + 1)
    whole, some = read_filters(path), read_filters(path, layouts, asked, storage)
    size = read_layouts(path)[0, 0].bloom_filter[1]
    assert size > 10 * LOCAL.gap
    assert storage.counters.bytes_read < len(layouts) * 2 * LOCAL.gap
    for chunk, found in some.items():
        assert found.block_numbers.tolist() == sorted(set(find_blocks(asked[0], found.block_count).tolist()))
        assert found.might_contain_hashes(asked[0]).tolist() == whole[chunk].might_contain_hashes(asked[0]).tolist()
    assert [bool(some[group, 0].might_contain_hashes(asked[0]).any()) for group in range(3)] == [True, True, False]


def test_many_hashes_read_the_whole_filter(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet", LARGE)
    for found in read_filters(path, hashes=make_probes(path, *range(1_000))).values():
        assert found.block_numbers is None


def test_an_open_file_is_not_opened_again(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    storage = open_remote(tmp_path)
    with RangedFile(storage, str(path)) as file:
        list(read_bloom_filters(storage, str(path), read_layouts(path), file=file))
    assert storage.counters.requests == 2  # to open, to read


def test_a_remote_filter_is_read_in_one_round(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet", 5 * LARGE, groups=1)
    storage = open_remote(tmp_path)
    assert read_filters(path, read_layouts(path), make_probes(path, 5), storage)[0, 0].block_numbers is not None
    assert storage.counters.requests <= 3  # to open, the header, the block: the last two together
    assert storage.counters.bytes_read < 1_000


@pytest.mark.parametrize("extra", [0, 3, 12, 20, 40])
@pytest.mark.parametrize("has_length", [True, False])
def test_headers_of_any_length_are_read_with_few_hashes_and_without(
    tmp_path: Path, extra: int, has_length: bool
) -> None:
    """If the guessed length of the header is wrong, another round reads the right blocks."""
    path = write_one_column(tmp_path / "file.parquet", LARGE, groups=1)
    layout = read_layouts(path)[0, 0]
    offset, length = layout.bloom_filter
    bitset = path.read_bytes()[offset + length % 32 : offset + length]
    chosen = encode_struct([(1, STRUCT, encode_struct([]))])
    choices = [(identifier, STRUCT, chosen) for identifier in (2, 3, 4)]
    header = encode_struct([(1, I32, len(bitset)), *choices, (5, BINARY, b"x" * extra if extra else None)])
    path.write_bytes(b"PAR1" + header + bitset + b"more")
    known = len(header) + len(bitset) if has_length else None
    layouts = {(0, 0): replace(layout, bloom_filter=(4, known))}
    asked = np.random.default_rng(0).integers(0, 2**64, 4, np.uint64)
    whole = read_filters(path, layouts)[0, 0]
    some = read_filters(path, layouts, {0: asked})[0, 0]
    assert whole.bits.tobytes() == bitset
    assert some.block_numbers is not None
    assert (some.bits == whole.bits[some.block_numbers]).all()


# --- Inconsistent filters ---------------------------------------------------------------------------------------------


def read_filter(path: Path, offset: int, length: int | None) -> Any:
    layouts = read_layouts(path)
    return read_filters(path, {(0, 0): replace(layouts[0, 0], bloom_filter=(offset, length))})[0, 0]


@pytest.mark.parametrize("offset", [-1, 0, 3, 10**6, 2**62])
def test_X3_a_filter_at_an_invalid_offset_is_unavailable(tmp_path: Path, offset: int) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    assert isinstance(read_filter(path, offset, None), Unavailable)
    assert isinstance(read_filter(path, offset, 272), Unavailable)


@pytest.mark.parametrize("length", [0, -1, 1, 15, 271, 273, 304, 10**6, 2**31 - 1, 2**40])
def test_X4_B8_a_length_that_contradicts_the_header_or_the_file_is_unavailable(tmp_path: Path, length: int) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    offset, true_length = read_layouts(path)[0, 0].bloom_filter
    assert isinstance(read_filter(path, offset, true_length), BloomFilter)
    assert isinstance(read_filter(path, offset, length), Unavailable)


@pytest.mark.parametrize("declared", [0, -32, 33, 64, 10**6, 2**31 - 32])
@pytest.mark.parametrize("has_length", [True, False])
@pytest.mark.parametrize("asked", [None, [5]])
def test_B8_X4_a_header_with_a_wrong_size_keeps_the_row_group(
    tmp_path: Path, declared: int, has_length: bool, asked: list[int] | None
) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    offset, _ = read_layouts(path)[0, 0].bloom_filter
    data = bytearray(path.read_bytes())
    size = encode_integer(declared)
    # The size follows the header of its field. A number of another length shifts the rest of the header.
    data[offset + 1 : offset + 16] = (size + bytes(data[offset + 3 : offset + 16]))[:15].ljust(15, b"\0")
    path.write_bytes(data)
    layouts = read_layouts(path) if has_length else drop_lengths(path)
    found = read_filters(path, layouts, None if asked is None else make_probes(path, *asked))
    if declared == 64 and not has_length:
        # A shorter filter without a stated length is undetectable.
        return
    assert isinstance(found[0, 0], Unavailable)
    if has_length:
        assert 0 in list_kept_row_groups(path, "k = 5")


def test_B8_a_filter_that_reaches_into_the_next_is_unavailable(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    layouts = drop_lengths(path)
    inside = layouts[0, 0].bloom_filter[0] + 100
    shifted = replace(layouts[1, 0], bloom_filter=(inside, None))
    found = read_filters(path, layouts | {(1, 0): shifted})
    assert isinstance(found[0, 0], Unavailable)
    assert isinstance(found[1, 0], Unavailable)
    assert isinstance(found[2, 0], BloomFilter)


def test_B5_a_filter_shared_by_two_chunks_is_unavailable(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    layouts = read_layouts(path)
    found = read_filters(path, layouts | {(1, 0): replace(layouts[1, 0], bloom_filter=layouts[0, 0].bloom_filter)})
    assert [isinstance(found[group, 0], Unavailable) for group in range(3)] == [True, True, False]


def test_B5_each_row_group_is_pruned_by_its_own_filter(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    assert list_kept_row_groups(path, "k = 5") == [0]
    assert list_kept_row_groups(path, "k = 350") == [1]
    assert list_kept_row_groups(path, f"k IN (5, {ROWS - 1})") == [0, 2]


def test_X4_flipped_bits_yield_a_filter_or_a_reason(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet", groups=1)
    layouts, original = read_layouts(path), path.read_bytes()
    offset, _ = layouts[0, 0].bloom_filter
    generator = np.random.default_rng(3)
    available = 0
    for _ in range(300):
        data = bytearray(original)
        position = int(generator.integers(offset, offset + 24))
        data[position] ^= 1 << int(generator.integers(0, 8))
        path.write_bytes(data)
        given = layouts if generator.integers(0, 2) else {(0, 0): replace(layouts[0, 0], bloom_filter=(offset, None))}
        found = read_filters(path, given)[0, 0]
        available += isinstance(found, BloomFilter)
        assert isinstance(found, BloomFilter | Unavailable)
    assert 0 < available < 300


# --- Row group skipping -----------------------------------------------------------------------------------------------


@pytest.mark.one_in(3)
def test_B1_B2_B3_a_row_group_that_holds_the_value_is_kept_for_every_type(written: tuple[Path, set[str]]) -> None:
    path, without = written
    spurious = []
    with pq.ParquetFile(path) as file:
        names = [name for name in read_leaves(path) if not pa.types.is_time(file.schema_arrow.field(name).type)]
        for group in range(file.num_row_groups):
            rows = file.read_row_group(group)
            for name in names:
                where = f"{name} = {format_literal(rows[name].combine_chunks().drop_null()[17])}"
                assert group in list_kept_row_groups(path, where), where
        for name in set(names) - without - {"int8", "uint8"}:
            where = f"{name} = {format_literal(make_absent_value(file.schema_arrow.field(name).type))}"
            spurious += list_kept_row_groups(path, where)
    assert len(spurious) < 0.1 * len(names) * file.num_row_groups


def format_literal(value: pa.Scalar) -> str:
    data_type = value.type
    if pa.types.is_timestamp(data_type):
        text = str(np.datetime64(value.value, data_type.unit).astype("datetime64[ns]")).replace("T", " ")
        return f"TIMESTAMP '{text}{'Z' if data_type.tz else ''}'"
    if pa.types.is_date(data_type):
        return f"DATE '{value.as_py()}'"
    if types.is_bytes(data_type):
        return f"X'{value.as_py().hex()}'"
    if pa.types.is_floating(data_type):
        return repr(float(value.as_py()))
    return f"'{value.as_py()}'" if types.is_text(data_type) else str(value.as_py())


def make_absent_value(data_type: pa.DataType) -> pa.Scalar:
    if types.is_text(data_type):
        return pa.scalar("nowhere", data_type)
    if types.is_bytes(data_type):
        width = data_type.byte_width if pa.types.is_fixed_size_binary(data_type) else 5
        return pa.scalar(b"\xfe" * width, data_type)
    if pa.types.is_decimal(data_type):
        return pa.scalar(Decimal(12_345), data_type)
    return pa.scalar(-5, data_type) if pa.types.is_date(data_type) else pa.scalar(12_345).cast(data_type)


def test_filters_beyond_the_memory_limit_are_read_in_batches(tmp_path: Path) -> None:
    path = write_one_column(tmp_path / "file.parquet")
    storage = open_storage(tmp_path)
    together = read_filters(path)
    batches = list(read_bloom_filters(storage, str(path), read_layouts(path), max_batch_bytes=1))
    assert len(batches) == len(together) > 1
    assert [len(batch) for batch in batches] == [1] * len(batches)
