"""Random files of a few rows in many pages, whose page boundaries differ by column, and their rows."""

from __future__ import annotations

import io
import math
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import arro3.io
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import reject

from builders.values.by_type import list_narrower_types, list_values_that_fit, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, Subject, draw_predicate
from builders.values.random_rows import draw_column, draw_type, draw_values, make_subject
from tamis.expr.evaluate import to_physical_value

PARTITION = "part"
PAIR = pa.struct([("a", pa.int32()), ("b", pa.string())])
LISTS = {
    pa.list_(pa.int32()): ([], [1], [None, -3], [2, 2, 2]),
    pa.list_(PAIR): ([], [None], [{"a": 1, "b": "é"}], [{"a": None, "b": None}, {"a": 2, "b": ""}]),
    pa.struct([("l", pa.list_(pa.string())), ("n", pa.int8())]): (
        {"l": ["x", None], "n": 1},
        {"l": None, "n": None},
        {"l": [], "n": 3},
    ),
    pa.map_(pa.string(), pa.int64()): ([], [("k", 1)], [("k", None), ("日", 2)]),
}


@dataclass(frozen=True)
class PageCase:
    """A file, its rows as pyarrow reads them, and predicates about them."""

    content: bytes
    rows: pa.Table
    predicates: tuple[OraclePredicate, ...]
    choices: Choices
    written_by: str

    @property
    def oracle_rows(self) -> pa.Table:
        """The columns that predicates may test, for the oracle."""
        return self.rows.select([field.name for field in self.rows.schema if _is_oracle_type(field.type)])


def draw_page_case(choices: Choices, predicates: int) -> PageCase:
    rows = draw_rows(choices)
    writer = choices.one_of(
        [
            _write_with_pyarrow,
            _write_with_pyarrow,
            _write_with_pyarrow,
            _write_with_arro3,
            _write_with_arro3,
            _write_with_polars,
            _write_with_duckdb,
        ]
    )
    try:
        content, described = writer(choices, rows)
        read = _read(content)
    except (duckdb.ConversionException, pa.ArrowInvalid, OSError):
        # DuckDB has no such timestamps. pyarrow cannot read pages of NULL that DuckDB left empty, nor a list in a row
        # group of its own that an empty page follows.
        reject()
    if read.num_rows != rows.num_rows:
        reject()
    subjects = list_subjects(read)
    drawn = tuple(draw_predicate(choices, subjects) for _ in range(predicates))
    return PageCase(content, read, drawn, choices, described)


@dataclass(frozen=True)
class TableCase:
    """Files of one table by their paths, its rows, and predicates about them."""

    contents: dict[str, bytes]
    rows: pa.Table
    predicates: tuple[OraclePredicate, ...]
    choices: Choices


def draw_table_case(choices: Choices, predicates: int) -> TableCase:
    """Return two or three files. The first defines the types; the others have narrower ones, or lack a column.

    They may be in partitions. Then they also have a column with the partition's name, but other values.
    """
    first = draw_rows(choices, nested=False)
    is_partitioned = choices.flag()
    hidden = {PARTITION: pa.array([7] * len(first), pa.int32())} if is_partitioned and choices.flag() else {}
    contents = [
        _write_with_pyarrow(choices, pa.table(dict(zip(first.column_names, first.columns, strict=True)) | hidden))[0]
    ]
    parts = [_read(contents[0]).select(first.column_names)]
    for _ in range(choices.number(1, 2)):
        count = choices.number(1, 20)
        stored = {
            field.name: _vary_column(choices, field.type, count) for field in parts[0].schema if not choices.flag(6)
        }
        # A file without columns has no rows.
        stored = stored or {"other": pa.nulls(count, pa.int8())}
        contents.append(_write_with_pyarrow(choices, pa.table(stored))[0])
        read = _read(contents[-1])
        parts.append(
            pa.table(
                {
                    field.name: read[field.name].cast(field.type)
                    if field.name in stored
                    else pa.nulls(count, field.type)
                    for field in parts[0].schema
                }
            )
        )
    if is_partitioned:
        parts = [
            part.append_column(PARTITION, pa.array([number // 2] * part.num_rows, pa.int32()))
            for number, part in enumerate(parts)
        ]
    folders = [f"{PARTITION}={number // 2}/" if is_partitioned else "" for number in range(len(parts))]
    rows = pa.concat_tables(parts)
    subjects = list_subjects(rows)
    return TableCase(
        {f"{folder}{number}.parquet": contents[number] for number, folder in enumerate(folders)},
        rows,
        tuple(draw_predicate(choices, subjects) for _ in range(predicates)),
        choices,
    )


def _vary_column(choices: Choices, data_type: pa.DataType, count: int) -> pa.Array:
    narrower = list_narrower_types(data_type)
    if not narrower or choices.flag(3):
        return _draw_column(choices, data_type, count)
    narrow = choices.one_of(narrower)
    return _draw_column(choices, narrow, count, choices.some_of(list_values_that_fit(narrow, data_type), 1, 3))


def _read(content: bytes) -> pa.Table:
    return pq.ParquetFile(pa.BufferReader(content)).read()


def draw_rows(choices: Choices, *, nested: bool = True) -> pa.Table:
    """Return one to three columns of values, perhaps also a struct and a list."""
    count = choices.one_of([12, *range(1, 41), 0])
    types = [draw_type(choices)]
    for _ in range(choices.number(0, 2)):
        types.append(types[0] if choices.flag() else draw_type(choices))
    columns = {f"c{index}": _draw_column(choices, each, count) for index, each in enumerate(types)}
    if nested and choices.flag():
        children = [_draw_column(choices, each, count) for each in (draw_type(choices), pa.string())]
        absent = _draw_column(choices, pa.bool_(), count).fill_null(False)
        columns["st"] = pa.StructArray.from_arrays(children, names=["x", "y"], mask=absent)
    if nested and choices.flag():
        data_type = choices.one_of(list(LISTS))
        columns["li"] = pa.array([choices.one_of([*LISTS[data_type], None]) for _ in range(count)], data_type)
    return pa.table(columns)


def _draw_column(choices: Choices, data_type: pa.DataType, count: int, values: list[Any] | None = None) -> pa.Array:
    """Return a few runs of rows. Each run is NULL, of one value, sorted or mixed."""
    values = list(values or draw_values(choices, data_type))
    if pa.types.is_floating(data_type) and choices.flag():
        # Bounds of a page with other values show neither NaN nor the other zero.
        values += (math.nan, 0.0, -0.0)
    found: list[Any] = []
    while len(found) < count:
        found += draw_column(choices, values, choices.number(1, 9))
    return make_array(data_type, found[:count])


def list_subjects(rows: pa.Table) -> list[Subject]:
    found = []
    for field in rows.schema:
        if not _is_oracle_type(field.type):
            continue
        column = rows[field.name].combine_chunks()
        if pa.types.is_struct(field.type):
            for child in field.type:
                values = map(to_physical_value, pc.struct_field(column, child.name))
                found.append(make_subject((field.name, child.name), child.type, values))
        else:
            found.append(make_subject((field.name,), field.type, map(to_physical_value, column)))
    return found


def _is_oracle_type(data_type: pa.DataType) -> bool:
    if pa.types.is_struct(data_type):
        return not any(pa.types.is_nested(child.type) for child in data_type)
    return not pa.types.is_nested(data_type)


# --- Writers ----------------------------------------------------------------------------------------------------------

_ENCODINGS = {
    "INTEGER": ["PLAIN", "DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT"],
    "FLOAT": ["PLAIN", "BYTE_STREAM_SPLIT"],
    "TEXT": ["PLAIN", "DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"],
    "BOOLEAN": ["PLAIN", "RLE"],
}


def _draw_encodings(choices: Choices, rows: pa.Table) -> dict[str, str]:
    found = {}
    for field in rows.schema:
        if pa.types.is_integer(field.type):
            kind = "INTEGER"
        elif pa.types.is_floating(field.type):
            kind = "FLOAT"
        elif pa.types.is_boolean(field.type):
            kind = "BOOLEAN"
        elif pa.types.is_string(field.type) or pa.types.is_binary(field.type):
            kind = "TEXT"
        else:
            continue
        found[field.name] = choices.one_of(_ENCODINGS[kind])
    return found


def _write_with_pyarrow(choices: Choices, rows: pa.Table) -> tuple[bytes, str]:
    flat = [field.name for field in rows.schema if not pa.types.is_nested(field.type)]
    hashed = [name for name in flat if not pa.types.is_boolean(rows.schema.field(name).type)]
    options: dict[str, Any] = {
        "row_group_size": choices.number(1, 25),
        "max_rows_per_page": choices.one_of([1, 2, 3, 5, 100]),
        # A page ends after so many bytes, checked after so many rows, so that boundaries differ by column.
        "data_page_size": choices.one_of([1, 8, 30, 2**20]),
        "write_batch_size": choices.number(1, 5),
        "data_page_version": choices.one_of(["1.0", "2.0"]),
        "write_page_index": not choices.flag(5),
        "write_page_checksum": choices.flag(),
        "write_statistics": choices.one_of([True, True, True, flat[:1], False]),
        "compression": choices.one_of(["none", "snappy", "zstd", "gzip", "lz4", "brotli"]),
        "store_schema": not choices.flag(4),
        "store_decimal_as_integer": choices.flag(),
        "use_dictionary": choices.one_of([True, flat[:1], False]),
    }
    if options["use_dictionary"] is True and choices.flag(3):
        options["dictionary_pagesize_limit"] = choices.one_of([1, 9, 20])
    if options["use_dictionary"] is False and choices.flag():
        options["column_encoding"] = _draw_encodings(choices, rows)
    if hashed and choices.flag():
        options["bloom_filter_options"] = {
            name: {"ndv": choices.one_of([1, 10]), "fpp": 0.01} for name in choices.some_of(hashed, 1, 3)
        }
    out = io.BytesIO()
    pq.write_table(rows, out, **options)
    return out.getvalue(), f"pyarrow {options}"


def _write_with_arro3(choices: Choices, rows: pa.Table) -> tuple[bytes, str]:
    options: dict[str, Any] = {
        "max_row_group_size": choices.number(1, 25),
        "data_page_row_count_limit": choices.one_of([1, 2, 3, 5, 100]),
        "data_page_size_limit": choices.one_of([1, 8, 30, 2**20]),
        "write_batch_size": choices.number(1, 5),
        "writer_version": choices.one_of(["parquet_1_0", "parquet_2_0"]),
        "dictionary_enabled": choices.flag(),
        "compression": choices.one_of(["uncompressed", "snappy", "zstd(1)", "lz4_raw"]),
        "bloom_filter_enabled": choices.flag(),
        "bloom_filter_ndv": choices.one_of([1, 100]),
        "dictionary_page_size_limit": choices.one_of([2**20, 1, 9]),
        "max_statistics_size": choices.one_of([4096, 1]),
        "skip_arrow_metadata": choices.flag(4),
    }
    out = io.BytesIO()
    arro3.io.write_parquet(rows, out, **options)
    return out.getvalue(), f"arro3 {options}"


def _write_with_polars(choices: Choices, rows: pa.Table) -> tuple[bytes, str]:
    options: dict[str, Any] = {
        "row_group_size": choices.number(1, 25),
        "data_page_size": choices.one_of([1, 8, 30, 2**20]),
        "statistics": choices.one_of([True, "full", False]),
        "compression": choices.one_of(["uncompressed", "snappy", "zstd"]),
    }
    # Polars has no maps.
    kept = rows.select([field.name for field in rows.schema if not pa.types.is_map(field.type)])
    out = io.BytesIO()
    pl.DataFrame(kept).write_parquet(out, **options)
    return out.getvalue(), f"polars {options}"


def _write_with_duckdb(choices: Choices, rows: pa.Table) -> tuple[bytes, str]:
    version = choices.one_of(["V1", "V2"])
    compression = choices.one_of(["uncompressed", "snappy", "zstd"])
    with tempfile.TemporaryDirectory() as folder, duckdb.connect() as connection:
        path = Path(folder) / "f.parquet"
        connection.register("rows", rows)
        connection.execute(
            f"COPY rows TO '{path}' (FORMAT parquet, PARQUET_VERSION {version}, COMPRESSION {compression})"
        )
        return path.read_bytes(), f"duckdb {version} {compression}"
