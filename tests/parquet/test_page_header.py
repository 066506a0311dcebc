"""Page headers of all kinds: valid ones as writers write them, and invalid ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from builders.parquet.page_files import FILE_PATH, OpenedFile, damage_bytes, parquet_bytes
from tamis.errors import CorruptFile
from tamis.parquet.footer.chunks import DATA_PAGE, DATA_PAGE_V2, DICTIONARY_PAGE, INDEX_PAGE, PLAIN, RLE_DICTIONARY
from tamis.parquet.footer.thrift import BOOLEAN, I32, STRUCT, encode_struct
from tamis.parquet.reading.decode import check_page_fits, decode_page_header, encode_plain_page_header

Fields = dict[int, Any]

V1 = {1: 5, 2: PLAIN, 3: 3, 4: 3}
V2: Fields = {1: 5, 2: 1, 3: 4, 4: RLE_DICTIONARY, 5: 3, 6: 2}


def encode_fields(fields: Fields) -> bytes:
    return encode_struct((key, BOOLEAN if isinstance(value, bool) else I32, value) for key, value in fields.items())


def make_header(kind: int | None, uncompressed: int | None, compressed: int | None, crc: int | None = None,
           **details: Fields) -> bytes:  # fmt: skip
    ids = {"v1": 5, "index": 6, "dictionary": 7, "v2": 8}
    fields: list[tuple[int, int, Any]] = [(1, I32, kind), (2, I32, uncompressed), (3, I32, compressed), (4, I32, crc)]
    return encode_struct(fields + [(ids[name], STRUCT, encode_fields(value)) for name, value in details.items()])


def test_a_data_page() -> None:
    data = make_header(DATA_PAGE, 100, 50, crc=-7, v1=V1)
    found = decode_page_header(b"before" + data + b"behind", FILE_PATH, position=6)
    assert (found.type, found.uncompressed_size, found.compressed_size, found.crc) == (DATA_PAGE, 100, 50, -7)
    assert (found.num_values, found.encoding, found.num_rows, found.num_nulls) == (5, PLAIN, None, None)
    assert (found.length, found.page_length, found.is_data) == (len(data), len(data) + 50, True)


def test_a_data_page_of_the_second_version() -> None:
    found = decode_page_header(make_header(DATA_PAGE_V2, 100, 50, v2=V2), FILE_PATH)
    assert (found.num_values, found.num_nulls, found.num_rows, found.encoding) == (5, 1, 4, RLE_DICTIONARY)
    assert (found.is_compressed, found.is_data, found.crc) == (True, True, None)
    assert decode_page_header(make_header(DATA_PAGE_V2, 100, 50, v2=V2 | {7: False}), FILE_PATH).is_compressed is False


def test_dictionary_and_index_pages() -> None:
    found = decode_page_header(make_header(DICTIONARY_PAGE, 100, 50, dictionary={1: 7, 2: PLAIN, 3: True}), FILE_PATH)
    assert (found.type, found.num_values, found.encoding, found.is_data) == (DICTIONARY_PAGE, 7, PLAIN, False)
    found = decode_page_header(make_header(INDEX_PAGE, 100, 50, index={}), FILE_PATH)
    assert (found.type, found.num_values, found.encoding, found.is_data) == (INDEX_PAGE, 0, None, False)


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("checksum", [True, False])
def test_headers_of_a_chunk_lead_from_page_to_page(version: str, checksum: bool) -> None:
    table = pa.table({"a": [None if row % 3 == 0 else f"text {row % 5}" for row in range(100)]})
    file = OpenedFile(parquet_bytes(table, data_page_version=version, write_page_checksum=checksum))
    layout = file.layouts[0, 0]
    position, end = layout.byte_range[0], sum(layout.byte_range)
    headers = []
    while position < end:
        headers.append(decode_page_header(file.content, FILE_PATH, position))
        position += headers[-1].page_length
    assert position == end
    assert [each.type for each in headers] == [DICTIONARY_PAGE] + [DATA_PAGE if version == "1.0" else DATA_PAGE_V2] * 6
    assert headers[0].num_values == 5
    assert [each.num_values for each in headers[1:]] == [17] * 5 + [15]
    assert all((each.crc is not None) == checksum for each in headers)
    if version == "2.0":
        assert sum(each.num_nulls or 0 for each in headers) == table["a"].null_count
        assert sum(each.num_rows or 0 for each in headers) == 100
    assert sum(each.uncompressed_size + each.length for each in headers) == layout.total_uncompressed_size


def test_headers_of_golden_files_fill_their_chunks(golden: Path) -> None:
    pages = 0
    for path in sorted((golden / "parquet").glob("*.parquet")):
        file = OpenedFile(path.read_bytes())
        for layout in file.layouts.values():
            position, values = layout.byte_range[0], 0
            # Chunks of some old writers are a little longer than the footer says.
            while position < sum(layout.byte_range) - layout.slack or values < layout.num_values:
                found = decode_page_header(file.content, FILE_PATH, position)
                values += found.num_values if found.is_data else 0
                position += found.page_length
                pages += 1
            assert values == layout.num_values
            assert sum(layout.byte_range) - layout.slack <= position <= sum(layout.byte_range)
    assert pages > 1000


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (make_header(None, 100, 50, v1=V1), "no type"),
        (make_header(DATA_PAGE, None, 50, v1=V1), "no uncompressed size"),
        (make_header(DATA_PAGE, 100, None, v1=V1), "no compressed size"),
        (make_header(DATA_PAGE, 100, 50), "no header of a data page"),
        (make_header(DATA_PAGE, 100, 50, v2=V2), "no header of a data page"),
        (make_header(DATA_PAGE_V2, 100, 50, v1=V1), "no header of a data page"),
        (make_header(DICTIONARY_PAGE, 100, 50, v1=V1), "no header of a dictionary page"),
        (make_header(4, 100, 50, v1=V1), "page type 4 is not supported"),
        (make_header(-1, 100, 50, v1=V1), "page type -1 is not supported"),
        (make_header(DATA_PAGE, -1, 50, v1=V1), "5 values in 50 bytes of -1"),
        (make_header(DATA_PAGE, 100, -1, v1=V1), "5 values in -1 bytes of 100"),
        (make_header(DATA_PAGE, 100, 50, v1=V1 | {1: -5}), "-5 values"),
        (make_header(DATA_PAGE, 100, 50, v1={2: PLAIN}), "no number of values"),
        (make_header(DATA_PAGE_V2, 100, 50, v2=V2 | {2: 6}), "4 rows and 6 nulls of 5 values"),
        (make_header(DATA_PAGE_V2, 100, 50, v2=V2 | {3: 6}), "6 rows"),
        (make_header(DATA_PAGE_V2, 100, 50, v2=V2 | {3: -1}), "-1 rows"),
        (make_header(DATA_PAGE_V2, 100, 50, v2=V2 | {5: 49}), "levels of 49 and 2 bytes in a page of 50"),
        (make_header(DATA_PAGE_V2, 10, 50, v2=V2 | {5: 9}), "levels of 9 and 2 bytes"),
        (make_header(DATA_PAGE_V2, 100, 50, v2=V2 | {5: -1}), "levels of -1"),
        (b"", "truncated"),
    ],
)
def test_invalid_headers_are_an_error(data: bytes, message: str) -> None:
    with pytest.raises(CorruptFile, match=message) as error:
        decode_page_header(data, "column 1 of 'f.parquet'")
    assert "a page header in column 1 of 'f.parquet' is" in str(error.value)


def test_X1_pages_longer_than_the_available_bytes_are_an_error() -> None:
    found = decode_page_header(make_header(DATA_PAGE, 100, 50, v1=V1), FILE_PATH)
    check_page_fits(found, found.page_length, FILE_PATH)
    with pytest.raises(
        CorruptFile, match=rf"has {found.page_length} bytes in its header, but only {found.length + 49}"
    ):
        check_page_fits(found, found.length + 49, FILE_PATH)


def test_a_dictionary_becomes_a_data_page_of_the_same_bytes() -> None:
    made = make_header(DICTIONARY_PAGE, 100, 50, crc=3, dictionary={1: 7, 2: 2})
    found = decode_page_header(encode_plain_page_header(decode_page_header(made, FILE_PATH)), FILE_PATH)
    assert (found.type, found.uncompressed_size, found.compressed_size, found.crc) == (DATA_PAGE, 100, 50, 3)
    assert (found.num_values, found.encoding) == (7, PLAIN)


def test_damaged_headers_are_headers_or_CorruptFile() -> None:
    for good in (make_header(DATA_PAGE, 100, 50, crc=9, v1=V1), make_header(DATA_PAGE_V2, 100, 50, v2=V2 | {7: True})):
        for data in damage_bytes(good, times=1500):
            with suppress(CorruptFile):
                found = decode_page_header(data, FILE_PATH)
                assert 0 < found.length <= len(data)
                assert min(found.num_values, found.compressed_size, found.uncompressed_size) >= 0
