"""Files of several writers, pruned and read by pages: for every column the rows equal those of the oracle."""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import arro3.io
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from builders.parquet.page_checks import check_by_pages

ROWS = 360
ROWS_PER_GROUP = 120
ROWS_PER_PAGE = 10


def _add_nulls(values: list[Any]) -> list[Any]:
    """Replace some values by NULL, and all values of some pages."""
    return [None if index % 11 == 4 or 150 <= index < 190 else value for index, value in enumerate(values)]


def make_rows() -> pa.Table:
    """Return columns of all types: most ascend, so that pages differ; some have few values, for dictionaries."""
    numbers = list(range(-ROWS // 2, ROWS // 2))
    floats = [each / 2 for each in numbers]
    floats[3], floats[7], floats[200], floats[201] = math.nan, -0.0, math.inf, -math.inf
    half_day = 43_200_000_001
    columns: dict[str, tuple[pa.DataType, list[Any]]] = {
        "i8": (pa.int8(), [each // 2 for each in numbers]),
        "i16": (pa.int16(), [each * 150 for each in numbers]),
        "i32": (pa.int32(), [each * 3 for each in numbers]),
        "i64": (pa.int64(), [each * 2**54 for each in numbers]),
        "u8": (pa.uint8(), [each // 2 + 128 for each in numbers]),
        "u16": (pa.uint16(), [each * 2 + 2**15 for each in numbers]),
        "u32": (pa.uint32(), [each * 2 + 2**31 for each in numbers]),
        "u64": (pa.uint64(), [each * 2 + 2**63 for each in numbers]),
        "f32": (pa.float32(), floats),
        "f64": (pa.float64(), floats),
        "text": (
            pa.string(),
            [f"{'日' * 30} {each + ROWS:04d}" if each % 2 else f"é{each + ROWS}" for each in numbers],
        ),
        "few": (pa.string(), [["ä", "c", "ef", "g\U0010ffff"][each % 4] for each in numbers]),
        "bytes": (pa.binary(), [(each + ROWS).to_bytes(2, "big") + b"\xff" * (each % 90) for each in numbers]),
        "flag": (pa.bool_(), [each > 0 for each in numbers]),
        "day": (pa.date32(), numbers),
        "s": (pa.timestamp("s"), [each * 43_201 for each in numbers]),
        "ms": (pa.timestamp("ms"), [each * 43_200_001 for each in numbers]),
        "us": (pa.timestamp("us", "UTC"), [each * half_day for each in numbers]),
        "ns": (pa.timestamp("ns"), [each * half_day * 1000 for each in numbers]),
        "money": (pa.decimal128(7, 2), [Decimal(each) / 4 for each in numbers]),
        "wide": (pa.decimal128(38, 4), [Decimal(each * 10**27) for each in numbers]),
        "noon": (pa.time64("us"), [each + ROWS for each in numbers]),
        "nothing": (pa.string(), [None] * ROWS),
        "mixed": (pa.int32(), [each * 7919 % 1000 for each in numbers]),
    }
    found = {
        name: pa.array(_add_nulls(values), pa.int32()).cast(data_type)
        if pa.types.is_date(data_type)
        else pa.array(_add_nulls(values), data_type)
        for name, (data_type, values) in columns.items()
    }
    found["inner"] = pa.array(
        [None if index % 50 < 12 else {"x": each, "y": f"y{each}"} for index, each in enumerate(numbers)],
        pa.struct([("x", pa.int64()), ("y", pa.string())]),
    )
    found["list"] = pa.array([None if each % 5 == 0 else [each] * (each % 3) for each in numbers], pa.list_(pa.int32()))
    return pa.table(found)


HASHED = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f32", "f64", "text", "few", "bytes", "day", "money",
          "wide", "us", "mixed")  # fmt: skip


def _write_with_pyarrow(rows: pa.Table, path: Path, **options: Any) -> None:
    pq.write_table(
        rows, path, row_group_size=ROWS_PER_GROUP, max_rows_per_page=ROWS_PER_PAGE, write_page_index=True, **options
    )


def _write_with_pyarrow_filters(rows: pa.Table, path: Path) -> None:
    options = {name: {"ndv": ROWS_PER_GROUP, "fpp": 0.01} for name in HASHED}
    _write_with_pyarrow(rows, path, use_dictionary=False, data_page_version="2.0", bloom_filter_options=options)


def _write_with_pyarrow_uneven_pages(rows: pa.Table, path: Path) -> None:
    pq.write_table(
        rows, path, row_group_size=ROWS_PER_GROUP, write_page_index=True, data_page_size=64, write_batch_size=4,
        use_dictionary=["few"], compression="zstd", store_decimal_as_integer=True, store_schema=False,
    )  # fmt: skip


def _write_with_pyarrow_without_index(rows: pa.Table, path: Path) -> None:
    pq.write_table(rows, path, row_group_size=ROWS_PER_GROUP, data_page_size=64, use_deprecated_int96_timestamps=True)


def _write_with_arro3(rows: pa.Table, path: Path) -> None:
    arro3.io.write_parquet(
        rows, path, max_row_group_size=ROWS_PER_GROUP, data_page_row_count_limit=ROWS_PER_PAGE, write_batch_size=7,
        bloom_filter_enabled=True, bloom_filter_ndv=ROWS_PER_GROUP, max_statistics_size=8,
    )  # fmt: skip


def _write_with_arro3_without_dictionaries(rows: pa.Table, path: Path) -> None:
    arro3.io.write_parquet(
        rows, path, max_row_group_size=ROWS_PER_GROUP, data_page_size_limit=64, write_batch_size=3,
        dictionary_enabled=False, writer_version="parquet_2_0", compression="zstd(1)", skip_arrow_metadata=True,
    )  # fmt: skip


def _write_with_polars(rows: pa.Table, path: Path) -> None:
    pl.DataFrame(rows).write_parquet(path, row_group_size=ROWS_PER_GROUP, data_page_size=256, statistics="full")


def _write_with_duckdb(rows: pa.Table, path: Path, version: str = "V1") -> None:
    with duckdb.connect() as connection:
        connection.execute("SET preserve_insertion_order = true")
        connection.register("rows", rows)
        # The smallest row group of DuckDB has 2048 rows, so the table is repeated with larger values.
        connection.execute(
            "COPY (SELECT rows.* REPLACE (i32 + 2000 * k AS i32, mixed % 10 AS mixed) FROM range(12) AS r(k), rows "
            f"ORDER BY k, i8) TO '{path}' (FORMAT parquet, ROW_GROUP_SIZE 2048, PARQUET_VERSION {version})"
        )


def _write_with_duckdb_v2(rows: pa.Table, path: Path) -> None:
    # pyarrow cannot read a page of delta-encoded values that DuckDB leaves empty.
    _write_with_duckdb(rows.drop_columns(["nothing", "u32"]), path, "V2")


WRITERS: dict[str, tuple[Callable[[pa.Table, Path], None], set[str]]] = {
    "pyarrow": (_write_with_pyarrow, {"row_groups", "pages", "dictionary"}),
    "pyarrow with Bloom filters": (_write_with_pyarrow_filters, {"row_groups", "pages", "bloom"}),
    "pyarrow with uneven pages": (_write_with_pyarrow_uneven_pages, {"row_groups", "pages"}),
    "pyarrow without an index": (_write_with_pyarrow_without_index, {"row_groups", "dictionary"}),
    "arro3": (_write_with_arro3, {"row_groups", "pages", "bloom", "dictionary"}),
    "arro3 without dictionaries": (_write_with_arro3_without_dictionaries, {"row_groups", "pages"}),
    "polars": (_write_with_polars, {"row_groups", "pages"}),
    "duckdb": (_write_with_duckdb, {"row_groups", "bloom"}),
    "duckdb V2": (_write_with_duckdb_v2, {"row_groups"}),
}


EVERY = 13
"""Only one probe in this many is tried: there are about twenty per column, and each costs two scans."""


@pytest.mark.parametrize("name", WRITERS)
@pytest.mark.one_in(3)
def test_O1_every_column_filtered_by_present_and_absent_values(name: str, tmp_path: Path) -> None:
    write, levels = WRITERS[name]
    path = tmp_path / "f.parquet"
    write(make_rows(), path)
    skipped = check_by_pages(path, every=EVERY, columns=["i32", "text", "inner", "list"])
    assert {level for level in levels if skipped[level]} == levels


SPARK = [
    "124-decimal-decode-bug",
    "basic-decimal-table",
    "basic-with-inserts-merge",
    "data-reader-array-primitives",
    "data-reader-date-types-Pst",
    "data-reader-map",
    "data-reader-nested-struct",
    "data-reader-primitives",
    "data-reader-timestamp_ntz",
    "data-skipping-basic-stats-all-types",
    "kernel-timestamp-timestamp_micros",
    "kernel-timestamp-timestamp_millis",
    "parquet-all-types",
    "table-with-columnmapping-mode-name",
]


@pytest.mark.parametrize("name", SPARK)
@pytest.mark.one_in(3)
def test_O1_files_of_spark(golden: Path, name: str) -> None:
    paths = sorted((golden / "delta" / name / "delta").rglob("part-*.parquet"))
    for path in paths[:2]:
        check_by_pages(path, every=29 if name in ("parquet-all-types", "table-with-columnmapping-mode-name") else 5)
    assert paths
