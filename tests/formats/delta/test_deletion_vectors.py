"""Deletion vectors: every storage type, both bitmap formats, and every kind of damage."""

from __future__ import annotations

import json
import re
import struct
import uuid
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyroaring import BitMap, BitMap64

from builders.delta.tables import encode_z85
from tamis.errors import CorruptFile, MissingFile, UnsupportedFeature
from tamis.formats.delta.deletion_vectors import (
    DeletionVectorDescriptor,
    decode_z85,
    parse_descriptors,
    read_deletion_bitmaps,
    resolve_deletion_vector_path,
)
from tamis.io.storage import Storage, open_storage
from tamis.scan.planning.row_groups import select_live_rows

PORTABLE, NATIVE = 1681511377, 1681511376


def encode_portable(rows: list[int]) -> bytes:
    return struct.pack("<I", PORTABLE) + BitMap64(rows).serialize()


def encode_native(rows: list[int], order: str = "<") -> bytes:
    groups = max(rows, default=0) // 2**32 + 1
    content = struct.pack(f"{order}II", NATIVE, groups)
    for group in range(groups):
        bitmap = BitMap([row % 2**32 for row in rows if row // 2**32 == group]).serialize()
        content += struct.pack(f"{order}I", len(bitmap)) + bitmap
    return content


def make_inline_descriptor(content: bytes, cardinality: int) -> DeletionVectorDescriptor:
    return DeletionVectorDescriptor("i", encode_z85(content), None, len(content), cardinality)


def add_frame(content: bytes) -> bytes:
    return struct.pack(">I", len(content)) + content + struct.pack(">I", zlib.crc32(content))


class VectorFile:
    """A deletion vector file in a table's directory, and the descriptors of its vectors."""

    def __init__(self, table: Path, prefix: str = "", version: int = 1) -> None:
        self.uuid = uuid.uuid4()
        self.path = table / prefix / f"deletion_vector_{self.uuid}.bin"
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.write_bytes(bytes([version]))
        self.text = prefix + encode_z85(self.uuid.bytes)

    def add(self, content: bytes, cardinality: int, gap: int = 0) -> DeletionVectorDescriptor:
        offset = self.path.stat().st_size + gap
        with self.path.open("ab") as file:
            file.write(b"\xee" * gap + add_frame(content))
        return DeletionVectorDescriptor("u", self.text, offset, len(content), cardinality)


def read(table: Path, *descriptors: DeletionVectorDescriptor | None, **options: bool) -> list[list[int]]:
    return [list(rows) for rows in read_deletion_bitmaps(open_storage(table), descriptors, **options)]


# --- Storage types ----------------------------------------------------------------------------------------------------


def test_D16_the_inline_examples_of_the_protocol() -> None:
    storage = open_storage("table")
    big_endian_native = DeletionVectorDescriptor("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6)
    little_endian_portable = DeletionVectorDescriptor(
        "i", "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 44, 6
    )
    for descriptor in (big_endian_native, little_endian_portable):
        assert list(read_deletion_bitmaps(storage, [descriptor])[0]) == [3, 4, 7, 11, 18, 29]


def test_D16_the_relative_path_of_the_protocol() -> None:
    storage = open_storage("/some/table")
    descriptor = DeletionVectorDescriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6)
    expected = "/some/table/ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert resolve_deletion_vector_path(storage, descriptor) == expected


@pytest.mark.parametrize(
    "form", [encode_portable, encode_native, lambda rows: encode_native(rows, ">")], ids=["portable", "native", "big"]
)
@pytest.mark.parametrize(
    "rows",
    [[], [0], [2**32 - 1, 2**32], [5, 2**33 + 1], list(range(100_000)), list(range(0, 200_000, 3))],
    ids=["none", "first", "edge", "groups", "run", "every third"],
)
def test_D16_both_forms_inline_and_in_a_file(
    tmp_path: Path, form: Callable[[list[int]], bytes], rows: list[int]
) -> None:
    content = form(rows)
    assert read(tmp_path, make_inline_descriptor(content, len(rows)), VectorFile(tmp_path).add(content, len(rows))) == [
        rows,
        rows,
    ]


@pytest.mark.parametrize("spelling", ["{path}", "file:{path}", "file://{path}", "file://localhost{path}"])
def test_D16_absolute_paths_are_percent_decoded(tmp_path: Path, spelling: str) -> None:
    file = VectorFile(tmp_path / "t", "a b%")
    descriptor = file.add(encode_portable([1, 7]), 2)
    encoded = str(file.path).replace("%", "%25").replace(" ", "%20")
    absolute = replace(descriptor, storage_type="p", path_or_inline=spelling.format(path=encoded))
    assert read(tmp_path / "t", absolute) == [[1, 7]]


def test_D16_absolute_paths_outside_the_table_need_permission(tmp_path: Path) -> None:
    file = VectorFile(tmp_path / "other")
    absolute = replace(file.add(encode_portable([4]), 1), storage_type="p", path_or_inline=file.path.as_uri())
    (tmp_path / "t").mkdir()
    with pytest.raises(UnsupportedFeature, match=r"outside of the table's directory.*allow_outside=True"):
        read(tmp_path / "t", absolute)
    assert read(tmp_path / "t", absolute, allow_outside=True) == [[4]]


@pytest.mark.parametrize("prefix", ["..", "a/../..", "../t-sibling"])
def test_X7_a_relative_path_does_not_leave_the_table(tmp_path: Path, prefix: str) -> None:
    descriptor = DeletionVectorDescriptor("u", prefix + encode_z85(uuid.uuid4().bytes), 1, 4, 0)
    with pytest.raises(CorruptFile, match="must not contain"):
        read(tmp_path, descriptor, allow_outside=True)


def test_a_file_without_deletion_vector_has_no_deleted_rows(tmp_path: Path) -> None:
    descriptor = VectorFile(tmp_path).add(encode_portable([3]), 1)
    assert read(tmp_path, None, descriptor, None) == [[], [3], []]


def test_vectors_of_one_file_are_read_together_and_in_the_order_asked_for(tmp_path: Path) -> None:
    one, other = VectorFile(tmp_path), VectorFile(tmp_path, "xy")
    rows = [[number, number + 10] for number in range(20)]
    descriptors = [(one if number % 2 else other).add(encode_portable(each), 2) for number, each in enumerate(rows)]
    storage = open_storage(tmp_path)
    found = read_deletion_bitmaps(storage, reversed(descriptors))
    assert [list(each) for each in found] == rows[::-1]
    assert storage.counters.requests == 2


def test_bytes_between_vectors_do_not_matter(tmp_path: Path) -> None:
    file = VectorFile(tmp_path)
    descriptors = [file.add(encode_portable([number]), 1, gap=3 * number) for number in range(5)]
    assert read(tmp_path, *descriptors) == [[0], [1], [2], [3], [4]]


def test_descriptors_come_from_the_column_of_live_files() -> None:
    fields = {"storage_type": "u", "path_or_inline": "x", "offset": 1, "size": 34, "cardinality": 2}
    types = [pa.string(), pa.string(), pa.int32(), pa.int32(), pa.int64()]
    column_type = pa.struct(list(zip(fields, types, strict=True)))
    column = pa.array([None, fields], column_type)
    assert parse_descriptors(column) == [None, DeletionVectorDescriptor("u", "x", 1, 34, 2)]
    assert parse_descriptors(pa.chunked_array([column, column])) == parse_descriptors(column) * 2
    with pytest.raises(CorruptFile, match="without storage type, path, size or cardinality"):
        parse_descriptors(pa.array([fields | {"size": None}], column_type))


# --- Invalid vectors --------------------------------------------------------------------------------------------------


def overwrite_bytes(file: VectorFile, offset: int, value: bytes) -> None:
    content = bytearray(file.path.read_bytes())
    content[offset : offset + len(value)] = value
    file.path.write_bytes(content)


def test_D16_wrong_checksum(tmp_path: Path) -> None:
    file = VectorFile(tmp_path)
    file.add(encode_portable([1]), 1)
    descriptor = file.add(encode_portable([1, 2, 3]), 3)
    overwrite_bytes(file, descriptor.offset + 4 + descriptor.size - 2, b"\x09")
    named = re.escape(f"at offset {descriptor.offset} of '{file.path}' is damaged: its checksum is")
    with pytest.raises(CorruptFile, match=named):
        read(tmp_path, descriptor)


@pytest.mark.parametrize("difference", [-1, 1])
def test_D16_a_size_that_differs_from_the_stored_one(tmp_path: Path, difference: int) -> None:
    file = VectorFile(tmp_path)
    descriptor = file.add(encode_portable([1, 2, 3]), 3)
    file.add(encode_portable([1, 2, 3]), 3)
    wrong = replace(descriptor, size=descriptor.size + difference)
    with pytest.raises(CorruptFile, match=f"has {descriptor.size} bytes, expected {wrong.size} by the log"):
        read(tmp_path, wrong)


def test_D16_a_size_of_zero_differs_from_the_stored_one(tmp_path: Path) -> None:
    descriptor = VectorFile(tmp_path).add(encode_portable([1, 2, 3]), 3)
    with pytest.raises(CorruptFile, match=f"has {descriptor.size} bytes, expected 0 by the log"):
        read(tmp_path, replace(descriptor, size=0))


@pytest.mark.parametrize(("offset", "size"), [(1, 2**31 - 1), (2**31 - 1, 10), (0, 10), (-5, 10), (1, -1), (None, 10)])
def test_D16_a_size_or_offset_beyond_the_file_is_rejected_before_reading(
    tmp_path: Path, offset: int | None, size: int
) -> None:
    file = VectorFile(tmp_path)
    descriptor = file.add(encode_portable([1, 2, 3]), 3)
    storage = open_storage(tmp_path)
    with pytest.raises(CorruptFile, match=r"is not within '.*', which has \d+ bytes"):
        read_deletion_bitmaps(storage, [replace(descriptor, offset=offset, size=size)])
    assert storage.counters.bytes_read == 0


@pytest.mark.parametrize("form", [encode_portable, encode_native], ids=["portable", "native"])
@pytest.mark.parametrize("difference", [-1, 1])
def test_D16_wrong_cardinality(tmp_path: Path, form: Callable[[list[int]], bytes], difference: int) -> None:
    with pytest.raises(CorruptFile, match=f"deletes 3 rows, expected {3 + difference} by the log"):
        read(tmp_path, make_inline_descriptor(form([1, 2, 3]), 3 + difference))
    with pytest.raises(CorruptFile, match=r"deletes 3 rows.* open a version of the table that does not need it"):
        read(tmp_path, VectorFile(tmp_path).add(form([1, 2, 3]), 3 + difference))


@pytest.mark.parametrize("magic", [0, PORTABLE + 1, NATIVE - 1])
def test_D16_wrong_magic(tmp_path: Path, magic: int) -> None:
    content = struct.pack("<I", magic) + encode_portable([1])[4:]
    with pytest.raises(
        CorruptFile, match=f"unknown magic number .*, expected {PORTABLE} .portable. or {NATIVE} .native."
    ):
        read(tmp_path, make_inline_descriptor(content, 1))
    with pytest.raises(CorruptFile, match="unknown magic number"):
        read(tmp_path, VectorFile(tmp_path).add(content, 1))


@pytest.mark.parametrize(
    "form", [encode_portable, encode_native, lambda rows: encode_native(rows, ">")], ids=["portable", "native", "big"]
)
def test_D16_every_truncation_of_a_bitmap_is_an_error(tmp_path: Path, form: Callable[[list[int]], bytes]) -> None:
    content = form([1, 2, 3, 2**32 + 9])
    for length in range(len(content)):
        with pytest.raises(CorruptFile):
            read(tmp_path, make_inline_descriptor(content[:length], 4))


def test_D16_every_truncation_of_a_file_is_an_error(tmp_path: Path) -> None:
    file = VectorFile(tmp_path)
    descriptor = file.add(encode_portable([1, 2, 3]), 3)
    content = file.path.read_bytes()
    for length in range(len(content)):
        file.path.write_bytes(content[:length])
        with pytest.raises(CorruptFile, match="is not within"):
            read(tmp_path, descriptor)


def test_D16_an_inline_size_that_its_text_cannot_have(tmp_path: Path) -> None:
    descriptor = make_inline_descriptor(encode_portable([1, 2, 3]), 3)
    for wrong in (descriptor.size + 3, descriptor.size - 4, -1, 0):
        with pytest.raises(CorruptFile, match=r"bytes inline, expected .* by its descriptor"):
            read(tmp_path, replace(descriptor, size=wrong))


@pytest.mark.parametrize("text", ["abcd", "ab\x00de", "ab\\de", "ab;de", "ab~de", "äbcd", "#####", "$" * 5, "ab de"])
def test_D16_text_that_is_not_z85(tmp_path: Path, text: str) -> None:
    with pytest.raises(CorruptFile, match="is not valid Z85"):
        decode_z85(text, "table")
    with pytest.raises(CorruptFile, match="is not valid Z85"):
        read(tmp_path, DeletionVectorDescriptor("i", text, None, 4, 0))


def test_D16_a_truncated_uuid(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="expected a UUID of 20 characters"):
        read(tmp_path, DeletionVectorDescriptor("u", "abc", 1, 4, 0))


def test_an_unknown_storage_type_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="storage type 'x'"):
        read(tmp_path, DeletionVectorDescriptor("x", "abc", 1, 4, 0))


def test_an_unknown_version_of_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedFeature, match="deletion vectors of format version 2"):
        read(tmp_path, VectorFile(tmp_path, version=2).add(encode_portable([1]), 1))


def test_a_file_that_is_gone_is_named(tmp_path: Path) -> None:
    file = VectorFile(tmp_path)
    descriptor = file.add(encode_portable([1]), 1)
    file.path.unlink()
    with pytest.raises(MissingFile, match=re.escape(file.path.name)):
        read(tmp_path, descriptor)


def test_rows_beyond_63_bits_are_rejected(tmp_path: Path) -> None:
    with pytest.raises(CorruptFile, match="which no file can have"):
        read(tmp_path, make_inline_descriptor(encode_portable([2**63]), 1))


@pytest.mark.parametrize("count", [2**31, 2**32 - 1])
def test_X1_a_claimed_number_of_bitmaps_beyond_the_bytes(tmp_path: Path, count: int) -> None:
    for content in (
        struct.pack("<II", NATIVE, count) + b"\0" * 40,
        struct.pack("<IQ", PORTABLE, count) + b"\0" * 40,
        struct.pack("<IQ", PORTABLE, 2**64 - 1),
    ):
        with pytest.raises(CorruptFile):
            read(tmp_path, make_inline_descriptor(content, 1))


def test_X1_all_rows_of_a_group_deleted_stay_compressed(tmp_path: Path) -> None:
    # The bitmap holds four billion rows in less than a megabyte; as positions they would take 32 GB.
    whole = BitMap64()
    whole.add_range(0, 2**32)
    whole.run_optimize()
    content = struct.pack("<I", PORTABLE) + whole.serialize()
    (bitmap,) = read_deletion_bitmaps(open_storage(tmp_path), [VectorFile(tmp_path).add(content, 2**32)])
    assert select_live_rows(bitmap, [2**32, 5], "f").ranges() == [(2**32, 2**32 + 5)]


def test_X1_inconsistent_bitmaps_are_rejected(tmp_path: Path) -> None:
    bits_that_say_4097 = struct.pack("<IIHHI", 12346, 1, 0, 4096, 16) + b"\xff" * 8192
    unsorted = struct.pack("<IIHHI", 12346, 1, 0, 2, 16) + struct.pack("<HHH", 9, 5, 7)
    for lie, cardinality in ((bits_that_say_4097, 4097), (unsorted, 3)):
        content = struct.pack("<IQI", PORTABLE, 1, 0) + lie
        with pytest.raises(CorruptFile, match="is not a valid Roaring bitmap"):
            read(tmp_path, VectorFile(tmp_path).add(content, cardinality))


# --- Rows that are kept -----------------------------------------------------------------------------------------------


def test_kept_rows_of_row_groups() -> None:
    deleted = BitMap64([0, 1, 99, 100, 250])
    assert select_live_rows(deleted, [100, 0, 151], "f").ranges() == [(2, 99), (101, 250)]
    assert select_live_rows(BitMap64(), [], "f").is_all
    assert select_live_rows(BitMap64(), [3, 4], "f").is_all
    assert select_live_rows(BitMap64(range(7)), [3, 4], "f").is_empty


def test_P5_rows_of_dropped_row_groups_are_counted() -> None:
    kept = select_live_rows(BitMap64([5, 205]), [100, 100, 100], "f")
    assert kept.in_row_groups([2], [100, 100, 100]).ranges() == [(0, 5), (6, 100)]


def test_a_deleted_row_beyond_the_file_is_an_error() -> None:
    with pytest.raises(CorruptFile, match=r"row 10 of 'x.parquet' is recorded as deleted, but the file has 10 rows"):
        select_live_rows(BitMap64([1, 10]), [4, 6], "x.parquet")


# --- Properties -------------------------------------------------------------------------------------------------------

row_numbers = st.one_of(
    st.integers(0, 200_000), st.integers(0, 3).map(lambda group: group * 2**32), st.integers(0, 2**34)
)


@st.composite
def row_sets(draw: st.DrawFn) -> BitMap64:
    """Draw single rows and runs, so that all three kinds of containers occur."""
    bitmap = BitMap64(draw(st.lists(row_numbers, max_size=20)))
    for start, length, step in draw(
        st.lists(st.tuples(row_numbers, st.integers(1, 70_000), st.sampled_from((1, 1, 2, 7))), max_size=3)
    ):
        bitmap |= BitMap64(range(start, start + length, step))
    if draw(st.booleans()):
        bitmap.run_optimize()
    return bitmap


@given(bitmaps=st.lists(row_sets(), min_size=1, max_size=4), forms=st.lists(st.sampled_from("pnf"), min_size=4))
def test_round_trips(tmp_path_factory: pytest.TempPathFactory, bitmaps: list[BitMap64], forms: list[str]) -> None:
    folder = tmp_path_factory.mktemp("table")
    file = VectorFile(folder)
    descriptors = []
    for bitmap, form in zip(bitmaps, forms, strict=False):
        content = struct.pack("<I", PORTABLE) + bitmap.serialize()
        if form == "n":
            content = encode_native(list(bitmap))
        made = file.add(content, len(bitmap)) if form != "p" else make_inline_descriptor(content, len(bitmap))
        descriptors.append(made)
    found = read(folder, *descriptors)
    assert found == [list(bitmap) for bitmap in bitmaps]


@given(bitmap=row_sets(), data=st.data())
def test_damaged_inline_bitmaps_never_crash(bitmap: BitMap64, data: st.DataObject) -> None:
    content = bytearray(struct.pack("<I", PORTABLE) + bitmap.serialize())
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(0, min(len(content), 64) - 1))] = data.draw(st.integers(0, 255))
    try:
        (found,) = read_deletion_bitmaps(open_storage("table"), [make_inline_descriptor(bytes(content), len(bitmap))])
    except CorruptFile:
        return
    assert len(found) == len(bitmap)


# --- Tables by other writers ------------------------------------------------------------------------------------------


def replay_live_files(log: Path) -> list[dict[str, object]]:
    """Return the live files by a naive replay of JSON commits, for tables with all commits."""
    live: dict[object, dict[str, object]] = {}
    for commit in sorted(log.glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "remove" in action:
                live.pop(make_key(action["remove"]), None)
        for action in actions:
            if "add" in action:
                live[make_key(action["add"])] = action["add"]
    return list(live.values())


def make_key(action: dict[str, object]) -> object:
    return action["path"], json.dumps(action.get("deletionVector"), sort_keys=True)


def parse_descriptor(action: dict[str, object]) -> DeletionVectorDescriptor | None:
    written = action.get("deletionVector")
    if not isinstance(written, dict):
        return None
    names = ("storageType", "pathOrInlineDv", "offset", "sizeInBytes", "cardinality")
    return DeletionVectorDescriptor(*(written.get(name) for name in names))


def read_live_rows(table: Path, storage: Storage, files: list[dict[str, object]]) -> list[pa.Table]:
    found = []
    for action, deleted in zip(files, read_deletion_bitmaps(storage, map(parse_descriptor, files)), strict=True):
        file = pq.ParquetFile(table / str(action["path"]))
        row_groups = [file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)]
        found.append(file.read().filter(select_live_rows(deleted, row_groups, "f").to_mask()))
    return found


def test_golden_table_of_one_small_vector(golden: Path) -> None:
    table = golden / "delta-unlabelled" / "table-with-dv-small"
    if not table.is_dir():
        pytest.skip(f"no golden table {table}: set TAMIS_GOLDEN to the folder of golden tables")
    (rows,) = read_live_rows(table, open_storage(table), replay_live_files(table / "_delta_log"))
    assert rows["value"].to_pylist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_golden_table_of_partitions_with_vectors(golden: Path) -> None:
    folder = golden / "delta" / "dv-partitioned-with-checkpoint"
    if not folder.is_dir():
        pytest.skip(f"no golden table {folder}: set TAMIS_GOLDEN to the folder of golden tables")
    table = folder / "delta"
    files = replay_live_files(table / "_delta_log")
    assert sum(parse_descriptor(each) is not None for each in files) >= 2
    rows = []
    for action, kept in zip(files, read_live_rows(table, open_storage(table), files), strict=True):
        part = int(action["partitionValues"]["part"])
        rows += [(part, *row.values()) for row in kept.to_pylist()]
    expected = pq.read_table(sorted((folder / "expected").glob("*.parquet"))).select(["part", *kept.schema.names])
    assert sorted(rows) == sorted(tuple(row.values()) for row in expected.to_pylist())
