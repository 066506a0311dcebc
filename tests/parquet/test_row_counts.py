"""Footers whose sizes and row counts differ from those of the pages: all rows are read, or an error is raised."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import tamis
from builders.parquet.footers import (
    CHUNK_VALUES,
    COMPRESSED_SIZE,
    CREATED_BY,
    DATA_OFFSET,
    DICTIONARY_OFFSET,
    FILE_ROWS,
    GROUP_ROWS,
    add_to_numbers,
    change_field,
)
from tamis.errors import CorruptFile
from tamis.parquet import RowSelection
from tamis.parquet.pruner import read_selection
from tamis.parquet.reading.decode import count_values

# --- P10: chunks that are longer than their footer says ---------------------------------------------------------------


def make_names(rows: int) -> pa.Table:
    """Return strings in dictionaries; the last rows differ from the value at index 0."""
    names = [f"name {number % 50:03}" for number in range(rows)]
    return pa.table({"id": range(rows), "name": names, "other": names[::-1]})


def encode_text_field(text: str) -> Callable[[bytes], bytes]:
    return lambda value: bytes([len(text)]) + text.encode()


def write_short_chunks(path: Path, rows: int, created_by: str, missing: int) -> pa.Table:
    """Write a file as parquet-mr before 1.2.9 did, without the dictionary offset and with sizes that are too small."""
    table = make_names(rows)
    pq.write_table(table, path, row_group_size=max(rows // 2, 1), data_page_size=2000, compression="none")
    metadata = pq.read_metadata(path)
    chunks = [metadata.row_group(group).column(leaf) for group in range(metadata.num_row_groups) for leaf in range(3)]
    steps = [chunk.dictionary_page_offset - chunk.data_page_offset for chunk in chunks]
    add_to_numbers(path, DATA_OFFSET, *steps, 0)
    change_field(path, DICTIONARY_OFFSET, lambda value: None)
    add_to_numbers(path, COMPRESSED_SIZE, -missing)
    change_field(path, CREATED_BY, encode_text_field(created_by))
    return table


WRITERS = ["parquet-mr", "parquet-mr version 1.2.8 (build 0)", "parquet-mr version unknown"]


@pytest.mark.parametrize("created_by", WRITERS)
@pytest.mark.parametrize("rows", [60, 20_000, 120_000], ids=["with its footer", "laid out", "in ranges"])
def test_P10_the_last_page_is_read_whole(tmp_path: Path, rows: int, created_by: str) -> None:
    path = tmp_path / "f.parquet"
    expected = write_short_chunks(path, rows, created_by, missing=13)
    assert pq.read_table(path).equals(expected)
    table = tamis.open(path)
    assert table.scan().to_arrow().equals(expected)
    assert table.scan().count() == rows
    last = expected.slice(rows - 1)
    for where in (f"id = {rows - 1}", f"id >= {rows - 1} AND name = '{last['name'][0]}'"):
        assert table.scan(where).to_arrow().equals(last)
    # Each column is read alone, so that no neighbour brings the missing bytes.
    for name in expected.column_names:
        assert table.scan(columns=[name]).to_arrow().equals(expected.select([name]))
    query = "SELECT name, count(*) n FROM t GROUP BY name"
    counted = tamis.connect().register("t", table).sql(query).to_arrow()
    assert sorted(counted["n"].to_pylist()) == sorted(
        expected.group_by("name").aggregate([([], "count_all")])["count_all"].to_pylist()
    )


@pytest.mark.parametrize("created_by", WRITERS)
def test_P10_the_page_reader_reads_the_last_page_too(tmp_path: Path, created_by: str) -> None:
    path = tmp_path / "f.parquet"
    expected = write_short_chunks(path, 20_000, created_by, missing=13)
    selection = RowSelection.from_indices([3, 9_999, 10_000, 19_999], 20_000)
    found = pa.Table.from_batches(read_selection(path, [0, 1], selection))
    assert found.equals(expected.take([3, 9_999, 10_000, 19_999]))


def test_P10_a_truncated_chunk_of_another_writer_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    write_short_chunks(path, 20_000, "parquet-mr version 1.10.1 (build 0)", missing=13)
    with pytest.raises(CorruptFile, match="cannot be decoded"):
        tamis.open(path).scan().to_arrow()


def test_P10_golden(golden: Path) -> None:
    path = golden / "parquet" / "nation.dict-malformed.parquet"
    expected = pq.read_table(path)
    table = tamis.open(path)
    assert table.scan().to_arrow().equals(expected)
    assert table.scan("nation_key >= 8", columns=["name"]).to_arrow()["name"].to_pylist()[0] == b"INDIA"
    for name in expected.column_names:
        assert table.scan(columns=[name]).to_arrow().equals(expected.select([name]))
    found = pa.Table.from_batches(read_selection(path, [0], RowSelection.all(25)))
    assert found.equals(expected)


# --- P11: numbers of rows that contradict each other ------------------------------------------------------------------


def write_rows(path: Path, **options: object) -> Path:
    rows = pa.table(
        {"id": range(300), "l": [[n, n] if n % 3 else None for n in range(300)], "s": [str(n) for n in range(300)]}
    )
    pq.write_table(rows, path, row_group_size=100, **options)
    return path


CONTRADICTIONS = {
    "a row group with fewer rows": [(GROUP_ROWS, (0, -100, 0))],
    "a row group with more rows": [(GROUP_ROWS, (0, 7, 0))],
    "a file with fewer rows": [(FILE_ROWS, (-100,))],
    "a file with more rows": [(FILE_ROWS, (1,))],
    "row groups and file with fewer rows": [(GROUP_ROWS, (-50, 0)), (FILE_ROWS, (-50,))],
    "row groups and file with more rows": [(GROUP_ROWS, (50, 0)), (FILE_ROWS, (50,))],
    "rows moved between row groups": [(GROUP_ROWS, (-10, 10, 0))],
    "a column with fewer values": [(CHUNK_VALUES, (-1, 0))],
    "a column with more values": [(CHUNK_VALUES, (1, 0))],
    "no row group with rows": [(GROUP_ROWS, (-100,))],
}


@pytest.fixture(params=CONTRADICTIONS, ids=lambda name: name)
def contradicting(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = write_rows(tmp_path / "f.parquet")
    for field, steps in CONTRADICTIONS[request.param]:
        add_to_numbers(path, field, *steps)
    return path


STRATEGIES: dict[str, Callable[[Path], object]] = {
    "rows": lambda path: tamis.open(path).scan().to_arrow(),
    "one column": lambda path: tamis.open(path).scan(columns=["s"]).to_arrow(),
    "filtered": lambda path: tamis.open(path).scan("id >= 150").to_arrow(),
    "batches": lambda path: list(tamis.open(path).scan().to_batches()),
    "count": lambda path: tamis.open(path).scan().count(),
    "count of a filter": lambda path: tamis.open(path).scan("id >= 0").count(),
    "folder": lambda path: tamis.open(path.parent).scan("id < 100").count(),
    "pages": lambda path: list(read_selection(path, [0, 1, 2], RowSelection.all(300))),
    "SQL": lambda path: tamis.connect().register("t", path).sql("SELECT count(*) FROM t").to_arrow(),
    "SQL rows": lambda path: tamis.connect().register("t", path).sql("SELECT sum(id) FROM t").to_arrow(),
    "index": lambda path: tamis.index.build(path.parent),
}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_P11_rows_that_contradict_each_other_are_an_error(contradicting: Path, strategy: str) -> None:
    with pytest.raises(CorruptFile, match=r"rows|values"):
        STRATEGIES[strategy](contradicting)


def test_P11_files_are_not_given_to_the_engine_unseen(contradicting: Path) -> None:
    session = tamis.connect(tuning=tamis.Tuning(min_native_bytes=1))
    with pytest.raises(CorruptFile, match=r"rows|values"):
        session.register("t", contradicting.parent).sql("SELECT s, id FROM t").to_arrow()


@pytest.mark.parametrize("options", [{}, {"data_page_version": "2.0"}, {"use_dictionary": False}], ids=str)
@pytest.mark.parametrize("column", ["id", "l", "s"])
def test_P11_pages_with_more_rows_than_the_footer_are_an_error(
    tmp_path: Path, column: str, options: dict[str, object]
) -> None:
    path = write_rows(tmp_path / "f.parquet", **options)
    values = [pq.read_metadata(path).row_group(0).column(leaf).num_values for leaf in range(3)]
    # The first row group says 50 of its 100 rows everywhere; lists have two values a row, or one for NULL.
    add_to_numbers(path, GROUP_ROWS, -50, 0)
    add_to_numbers(path, FILE_ROWS, -50)
    add_to_numbers(path, CHUNK_VALUES, -50, -(values[1] // 2), -50, 0)
    with pytest.raises(CorruptFile, match=r"has \d+ values in its footer, and \d+ in its pages"):
        tamis.open(path).scan(columns=[column]).to_arrow()
    with pytest.raises(CorruptFile, match=r"values in its footer, and|rows in its pages, expected"):
        list(read_selection(path, [0], RowSelection.all(50), [column]))


def test_P11_values_are_counted_as_their_headers_say(tmp_path: Path) -> None:
    for options in ({}, {"data_page_version": "2.0"}, {"write_page_checksum": True}, {"write_page_index": True}):
        path = write_rows(tmp_path / "f.parquet", data_page_size=64, **options)
        metadata = pq.read_metadata(path)
        content = path.read_bytes()
        for leaf in range(3):
            chunk = metadata.row_group(1).column(leaf)
            start = chunk.dictionary_page_offset or chunk.data_page_offset
            pages = content[start : start + chunk.total_compressed_size]
            assert count_values(pages) == chunk.num_values
            assert count_values(pages[:-1]) is None
            assert count_values(pages + b"\x01") is None
    assert count_values(b"") == 0


def test_X1_a_number_of_any_length_is_counted() -> None:
    huge = b"\x80" * 12 + b"\x01"
    header = b"\x15\x00\x15\x02\x15\x00\x2c\x15" + huge + b"\x15\x00\x15\x06\x15\x06\x00\x00"
    assert count_values(header) == 1 << 83
