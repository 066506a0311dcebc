from __future__ import annotations

import base64
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import polars
import pyarrow as pa
import pyarrow.fs as pafs
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as encryption
import pytest

import tamis
from tamis.errors import CorruptFile, MissingFile, TamisError, UnsupportedFeature
from tamis.expr.nodes import Column
from tamis.io.ranges import IMMUTABLE
from tamis.io.storage import Storage, open_storage
from tamis.parquet.footer.footer import FOOTERS, LOCAL_TAIL_LENGTH, MEMORY_PER_BYTE, TAIL_LENGTH, load_footer
from tamis.parquet.footer.leaves import get_file_schema
from tamis.parquet.footer.statistics import find_chunk_ranges, read_row_group_metadata

GOLDEN = Path(os.environ.get("TAMIS_GOLDEN", Path(__file__).parents[2] / "../shared/golden")) / "parquet"
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden files: set TAMIS_GOLDEN to their folder")


@pytest.fixture(autouse=True)
def _empty_cache() -> Iterator[None]:
    FOOTERS.clear()
    yield
    FOOTERS.clear()


def write_small_file(folder: Path, name: str = "small.parquet") -> Path:
    path = folder / name
    pq.write_table(pa.table({"a": [1, 2, 3], "b": ["x", None, "z"]}), path, row_group_size=2)
    return path


def write_wide_file(folder: Path) -> Path:
    path = folder / "wide.parquet"
    pq.write_table(pa.table({f"column_{index}": [index] for index in range(1500)}), path)
    return path


def read(path: Path, storage: Storage | None = None, modified_ns: int | None = 1) -> pq.FileMetaData:
    """Return the metadata of a file with the given modification time."""
    if modified_ns is not None:
        os.utime(path, ns=(modified_ns, modified_ns))
    return load_footer(storage or open_storage(path.parent), str(path), path.stat().st_size, modified_ns)[0].metadata


# --- Reading ----------------------------------------------------------------------------------------------------------


def test_a_small_footer_takes_one_read(tmp_path: Path) -> None:
    path, storage = write_small_file(tmp_path), open_storage(tmp_path)
    metadata = read(path, storage)
    assert (metadata.num_rows, metadata.num_row_groups, metadata.num_columns) == (3, 2, 2)
    assert metadata.equals(pq.read_metadata(path))
    assert (storage.counters.requests, storage.counters.bytes_read) == (1, path.stat().st_size)


def test_only_the_tail_of_a_large_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "large.parquet"
    pq.write_table(pa.table({"a": list(range(100_000))}), path, compression="none", use_dictionary=False)
    storage = open_storage(tmp_path)
    assert read(path, storage).num_rows == 100_000
    assert (storage.counters.requests, storage.counters.bytes_read) == (1, LOCAL_TAIL_LENGTH)


def test_only_the_missing_bytes_of_a_large_footer_are_read(tmp_path: Path) -> None:
    path, storage = write_wide_file(tmp_path), open_storage(tmp_path)
    length = int.from_bytes(path.read_bytes()[-8:-4], "little")
    assert length > TAIL_LENGTH
    assert read(path, storage).equals(pq.read_metadata(path))
    assert (storage.counters.requests, storage.counters.bytes_read) == (2, length + 8)


# --- The cache --------------------------------------------------------------------------------------------------------


def test_a_footer_is_read_once_for_a_size_and_a_time(tmp_path: Path) -> None:
    path, storage = write_small_file(tmp_path), open_storage(tmp_path)
    first = read(path, storage, modified_ns=5)
    assert read(path, storage, modified_ns=5) is first
    assert storage.counters.requests == 1
    # Another storage of the same location shares the footer.
    other = open_storage(tmp_path)
    assert read(path, other, modified_ns=5) is first
    assert other.counters.requests == 0


def test_a_changed_file_is_read_again(tmp_path: Path) -> None:
    path, storage = write_small_file(tmp_path), open_storage(tmp_path)
    read(path, storage, modified_ns=5)
    pq.write_table(pa.table({"a": [1, 2, 3, 4], "b": ["x", None, "z", "w"]}), path, row_group_size=2)
    assert read(path, storage, modified_ns=6).num_rows == 4


def test_a_file_of_unknown_time_is_read_each_time(tmp_path: Path) -> None:
    path, storage = write_small_file(tmp_path), open_storage(tmp_path)
    read(path, storage, modified_ns=None)
    read(path, storage, modified_ns=None)
    assert storage.counters.requests == 2
    assert not FOOTERS._entries


def test_A7_another_file_system_with_the_same_paths_shares_nothing(tmp_path: Path) -> None:
    for folder, rows in (("one", 1), ("two", 2)):
        (tmp_path / folder).mkdir()
        pq.write_table(pa.table({"a": [0] * rows}), tmp_path / folder / "f.parquet")
    found = []
    for folder in ("one", "two", "one"):
        tree = pafs.SubTreeFileSystem(str(tmp_path / folder), pafs.LocalFileSystem())
        size = (tmp_path / folder / "f.parquet").stat().st_size
        # The keys differ only in the file system, even if the sizes are equal.
        found.append(load_footer(Storage(tree, "", "memory"), "f.parquet", size, IMMUTABLE)[0].metadata.num_rows)
    assert found == [1, 2, 1]


def test_the_cache_counts_each_footer_once_under_many_threads(tmp_path: Path) -> None:
    paths = [write_small_file(tmp_path, f"{index}.parquet") for index in range(8)]
    storage = open_storage(tmp_path)
    expected = pq.read_metadata(paths[0])

    def work(turn: int) -> bool:
        return bool(read(paths[turn % 8], storage).equals(expected))

    with ThreadPoolExecutor(8) as threads:
        assert all(threads.map(work, range(400)))
    assert len(FOOTERS._entries) == 8
    assert FOOTERS._weight == 8 * (expected.serialized_size * MEMORY_PER_BYTE + FOOTERS.ENTRY_WEIGHT)


# --- Invalid footers --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda raw: b"", CorruptFile, "is empty: it has 0 bytes"),
        (lambda raw: b"PAR1PAR1", CorruptFile, "8 bytes"),
        (lambda raw: b"PAR1\x00\x00\x00\x00PAR1", CorruptFile, "its footer has 0 bytes"),
        (lambda raw: raw[:-1], CorruptFile, "or is truncated"),
        (lambda raw: raw[: len(raw) // 2], CorruptFile, "or is truncated"),
        (lambda raw: raw[:-4] + b"NOPE", CorruptFile, "it does not end in PAR1"),
        (lambda raw: raw[:-4] + b"PARE", UnsupportedFeature, "encrypted footer"),
        (lambda raw: raw[:-8] + b"\xff\xff\xff\xff" + b"PAR1", CorruptFile, "4294967295 bytes in a file of"),
        (lambda raw: raw[:-8] + (len(raw) - 11).to_bytes(4, "little") + b"PAR1", CorruptFile, "in a file of"),
        (lambda raw: raw[:-8] + (3).to_bytes(4, "little") + b"PAR1", CorruptFile, "damaged"),
        (lambda raw: raw[:-8] + (len(raw) - 12).to_bytes(4, "little") + b"PAR1", CorruptFile, "damaged"),
        (lambda raw: b"\n".join([b"a,b,c"] * 20), CorruptFile, "not a Parquet file"),
    ],
)
def test_X1_an_invalid_footer_is_an_error_that_names_the_file(
    tmp_path: Path, change: Any, error: type[TamisError], message: str
) -> None:
    path = write_small_file(tmp_path)
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(error, match=r"small\.parquet") as caught:
        read(path)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_of_another_size_than_listed_was_replaced(tmp_path: Path) -> None:
    path = write_small_file(tmp_path)
    with pytest.raises(CorruptFile, match=r"was replaced: it has \d+ bytes, expected 5000"):
        load_footer(open_storage(tmp_path), str(path), 5000, 1)


def test_E2_a_deleted_file_is_missing(tmp_path: Path) -> None:
    with pytest.raises(MissingFile, match=r"gone\.parquet"):
        load_footer(open_storage(tmp_path), str(tmp_path / "gone.parquet"), 5000, 1)


def test_a_damaged_arrow_schema_is_corrupt(tmp_path: Path) -> None:
    path, table = tmp_path / "odd.parquet", pa.table({"a": [1]})
    with pq.ParquetWriter(path, table.schema, store_schema=False) as writer:
        writer.write_table(table)
        writer.add_key_value_metadata({"ARROW:schema": "garbage!"})
    with pytest.raises(CorruptFile, match=r"odd\.parquet' is damaged"):
        read(path)


class _Keys(encryption.KmsClient):  # type: ignore[misc]
    def __init__(self, config: Any) -> None:
        super().__init__()

    def wrap_key(self, key: bytes, master: str) -> bytes:
        return base64.b64encode(key)

    def unwrap_key(self, wrapped: bytes, master: str) -> bytes:
        return base64.b64decode(wrapped)


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_encrypted_files_are_unsupported(tmp_path: Path, plaintext_footer: bool) -> None:
    factory = encryption.CryptoFactory(_Keys)
    keys = encryption.EncryptionConfiguration(
        footer_key="footer", column_keys={"column": ["b"]}, plaintext_footer=plaintext_footer
    )
    properties = factory.file_encryption_properties(encryption.KmsConnectionConfig(), keys)
    path = tmp_path / "secret.parquet"
    table = pa.table({"a": [1], "b": ["x"]})
    with pq.ParquetWriter(path, table.schema, encryption_properties=properties) as writer:
        writer.write_table(table)
    with pytest.raises(UnsupportedFeature, match=r"secret\.parquet.*encrypted"):
        read(path)


# --- Files of other writers -------------------------------------------------------------------------------------------


def list_golden_files() -> list[Path]:
    return sorted(GOLDEN.glob("**/*.parquet")) if GOLDEN.is_dir() else []


@needs_golden
@pytest.mark.parametrize("path", list_golden_files(), ids=lambda path: path.name)
def test_golden_files_give_a_right_answer_or_a_TamisError(path: Path) -> None:
    if path.name == "PARQUET-1481.parquet":
        with pytest.raises(CorruptFile, match=path.name):
            read(path)
        return
    metadata = read(path)
    theirs = pq.read_metadata(path)
    assert (metadata.num_rows, metadata.num_row_groups) == (theirs.num_rows, theirs.num_row_groups)
    columns = [Column(leaf_path, type=leaf.arrow_type) for leaf_path, leaf in get_file_schema(metadata).leaves.items()]
    batch = read_row_group_metadata(metadata, columns)
    assert batch["row_count"].to_pylist() == [theirs.row_group(index).num_rows for index in range(len(batch))]
    for group in range(metadata.num_row_groups):
        ranges = find_chunk_ranges(metadata, group, range(metadata.num_columns), size=path.stat().st_size)
        assert all(start >= 4 for start, _ in ranges)


@needs_golden
def test_S4_deprecated_bounds_of_decimals_are_removed_and_the_rest_is_unchanged() -> None:
    path = GOLDEN / "fixed_length_decimal.parquet"
    assert pq.read_metadata(path).row_group(0).column(0).statistics.has_min_max
    statistics = read(path).row_group(0).column(0).statistics
    assert (statistics.has_min_max, statistics.null_count) == (False, 0)
    assert read(path).schema.equals(pq.read_metadata(path).schema)


def test_integers_of_128_bits_are_refused_with_the_names_of_their_columns(tmp_path: Path) -> None:
    wide = polars.Series([1, 2], dtype=polars.Int128)
    frame = polars.DataFrame({"id": [1, 2], "big": wide, "list": [[1], [2]]}).cast({"list": polars.List(polars.Int128)})
    frame.write_parquet(tmp_path / "f.parquet")
    with pytest.raises(UnsupportedFeature, match=r"integers of 128 bits \('big' and 'list'\).*Decimal\(38, 0\)"):
        tamis.open(tmp_path / "f.parquet")
    frame.select("id", polars.col("big").cast(polars.Decimal(38, 0))).write_parquet(tmp_path / "f.parquet")
    assert tamis.open(tmp_path / "f.parquet").scan("big > 1").to_arrow()["id"].to_pylist() == [2]
