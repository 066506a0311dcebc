from __future__ import annotations

import datetime
import io
import math
import os
from collections.abc import Callable
from decimal import Context, Decimal
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tamis.expr.nodes import Column
from tamis.parquet.footer.footer import Footer, footer_from_bytes
from tamis.parquet.footer.leaves import find_leaf_indices
from tamis.parquet.footer.statistics import (
    MANY_ROW_GROUPS,
    collect_column_metadata,
    find_chunk_ranges,
    get_compressed_sizes,
    group_similar_footers,
    list_row_counts,
    read_row_group_metadata,
    sum_compressed_sizes,
)

GOLDEN = Path(os.environ.get("TAMIS_GOLDEN", Path(__file__).parents[2] / "../shared/golden")) / "parquet"
needs_golden = pytest.mark.skipif(not GOLDEN.is_dir(), reason="no golden files: set TAMIS_GOLDEN to their folder")

NAN = math.nan


def write_metadata(table: pa.Table, **options: Any) -> pq.FileMetaData:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return pq.read_metadata(sink)


def describe(metadata: pq.FileMetaData, data_type: pa.DataType | None, *path: str, **options: Any) -> dict[str, Any]:
    """Return the metadata of one column, without its name: {"lower": array, …}."""
    column = Column(path or ("x",), type=data_type)
    batch = read_row_group_metadata(metadata, [column], **options)
    batch.validate(full=True)
    return {name.partition(":")[0]: batch[name] for name in batch.schema.names}


def describe_values(values: pa.Array, table_type: pa.DataType | None = None, **options: Any) -> dict[str, Any]:
    return describe(write_metadata(pa.table({"x": values}), **options), table_type or values.type)


def to_plain(values: pa.Array) -> list[Any]:
    """Return values that Python compares exactly: times and dates as counts, others unchanged."""
    data_type = values.type
    if pa.types.is_temporal(data_type):
        values = values.view(pa.int32() if data_type.bit_width == 32 else pa.int64())
    return list(values.to_pylist())


def list_bounds(found: dict[str, Any]) -> list[tuple[Any, Any]]:
    return list(zip(to_plain(found["lower"]), to_plain(found["upper"]), strict=True))


# --- Types, as three writers store them -------------------------------------------------------------------------------

CASES: dict[str, tuple[pa.Array, tuple[Any, Any]]] = {
    "boolean": (pa.array([True, None, False]), (False, True)),
    "boolean_true": (pa.array([True, None, True]), (True, True)),
    "int8": (pa.array([-128, None, 127], pa.int8()), (-128, 127)),
    "int16": (pa.array([-(2**15), None, 2**15 - 1], pa.int16()), (-(2**15), 2**15 - 1)),
    "int32": (pa.array([-(2**31), None, 2**31 - 1], pa.int32()), (-(2**31), 2**31 - 1)),
    "int64": (pa.array([-(2**63), None, 2**63 - 1], pa.int64()), (-(2**63), 2**63 - 1)),
    "T1_uint8": (pa.array([1, None, 255], pa.uint8()), (1, 255)),
    "T1_uint16": (pa.array([1, None, 2**16 - 1], pa.uint16()), (1, 2**16 - 1)),
    "T1_uint32": (pa.array([1, None, 2**32 - 1], pa.uint32()), (1, 2**32 - 1)),
    "T1_uint64": (pa.array([1, None, 2**64 - 1], pa.uint64()), (1, 2**64 - 1)),
    "float": (pa.array([-1.5, None, 2.5], pa.float32()), (-1.5, 2.5)),
    "double": (pa.array([-1.5, None, math.inf]), (-1.5, math.inf)),
    "T6_date": (pa.array([-719162, None, 19000], pa.date32()), (-719162, 19000)),
    "time_us": (pa.array([1, None, 86_399_999_999], pa.time64("us")), (1, 86_399_999_999)),
    "T6_timestamp_ms": (pa.array([-1, None, 5], pa.timestamp("ms")), (-1, 5)),
    "T6_timestamp_us": (pa.array([-1, None, 5], pa.timestamp("us")), (-1, 5)),
    "T6_timestamp_ns": (pa.array([-1, None, 5], pa.timestamp("ns")), (-1, 5)),
    "T7_timestamp_utc": (pa.array([-1, None, 5], pa.timestamp("us", "UTC")), (-1, 5)),
    "T2_decimal_9": (
        pa.array([Decimal("-1.23"), None, Decimal("99.99")], pa.decimal128(9, 2)),
        (Decimal("-1.23"), Decimal("99.99")),
    ),
    "T2_decimal_18": (
        pa.array([Decimal("-1.23"), None, Decimal("99.99")], pa.decimal128(18, 2)),
        (Decimal("-1.23"), Decimal("99.99")),
    ),
    "T2_decimal_38": (
        pa.array([Decimal(-(10**37)), None, Decimal(10**37)], pa.decimal128(38, 0)),
        (Decimal(-(10**37)), Decimal(10**37)),
    ),
    "string": (pa.array(["é", None, "z", ""]), ("", "é")),
    "S6_binary": (pa.array([b"\xff", None, b"\x01"], pa.binary()), (b"\x01", b"\xff")),
}  # fmt: skip

# Only Arrow stores these in their own type.
ARROW_CASES: dict[str, tuple[pa.Array, tuple[Any, Any]]] = {
    "F6_float16": (pa.array([-1.5, None, 2.5], pa.float16()), (-1.5, 2.5)),
    "date64": (pa.array([-86_400_000, None, 86_400_000], pa.date64()), (-86_400_000, 86_400_000)),
    "time_s": (pa.array([1, None, 86_399], pa.time32("s")), (1, 86_399)),
    "time_ms": (pa.array([1, None, 86_399_999], pa.time32("ms")), (1, 86_399_999)),
    "time_ns": (pa.array([1, None, 5], pa.time64("ns")), (1, 5)),
    "timestamp_s": (pa.array([-1, None, 5], pa.timestamp("s")), (-1, 5)),
    "duration": (pa.array([-1, None, 5], pa.duration("us")), (-1, 5)),
    "decimal32": (pa.array([Decimal("-1.23"), None], pa.decimal32(5, 2)), (Decimal("-1.23"), Decimal("-1.23"))),
    "decimal256": (pa.array([Decimal(-(10**60)), None], pa.decimal256(70, 2)), (Decimal(-(10**60)),) * 2),
    "large_string": (pa.array(["a", None, "b"], pa.large_string()), ("a", "b")),
    "string_view": (pa.array(["a", None, "b"], pa.string_view()), ("a", "b")),
    "large_binary": (pa.array([b"a", None, b"b"], pa.large_binary()), (b"a", b"b")),
    "fixed_binary": (pa.array([b"\xff\x00", None, b"\x01\x00"], pa.binary(2)), (b"\x01\x00", b"\xff\x00")),
}  # fmt: skip


def write_with_arrow(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path)


def write_with_arrow_integers(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, store_decimal_as_integer=True, store_schema=False)


def write_with_duckdb(table: pa.Table, path: Path) -> None:
    with duckdb.connect() as connection:
        connection.register("t", table)
        connection.execute(f"COPY t TO '{path}' (FORMAT parquet)")


def write_with_polars(table: pa.Table, path: Path) -> None:
    pl.from_arrow(table).write_parquet(path)  # type: ignore[union-attr]


WRITERS = (write_with_arrow, write_with_arrow_integers, write_with_duckdb, write_with_polars)


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("case", CASES)
def test_T1_T2_T6_S6_bounds_of_each_type_by_each_writer(
    case: str, write: Callable[[pa.Table, Path], None], tmp_path: Path
) -> None:
    values, expected = CASES[case]
    write(pa.table({"x": values}), tmp_path / "f.parquet")
    found = describe(pq.read_metadata(tmp_path / "f.parquet"), values.type)
    assert found["lower"].type == found["upper"].type == values.type
    assert list_bounds(found) == [expected]
    assert found["null_count"].to_pylist() == [1]
    assert found["row_count"].to_pylist() == [len(values)]
    exact = not (pa.types.is_string(values.type) or pa.types.is_binary(values.type))
    assert found["lower_exact"].to_pylist() == found["upper_exact"].to_pylist() == [exact]


@pytest.mark.parametrize("case", ARROW_CASES)
def test_F6_bounds_of_types_that_arrow_alone_writes(case: str) -> None:
    values, expected = ARROW_CASES[case]
    found = describe_values(values)
    assert found["lower"].type == found["upper"].type == values.type
    assert list_bounds(found) == [expected]


def test_S6_uuid_is_ordered_as_unsigned_bytes(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        values = "('80000000-0000-0000-0000-000000000000'::UUID), ('7fffffff-0000-0000-0000-000000000000'::UUID)"
        connection.execute(f"COPY (FROM (VALUES {values}) t(x)) TO '{tmp_path / 'u.parquet'}' (FORMAT parquet)")
    found = describe(pq.read_metadata(tmp_path / "u.parquet"), pa.binary(16))
    assert list_bounds(found) == [(b"\x7f\xff\xff\xff" + bytes(12), b"\x80" + bytes(15))]


def test_T9_intervals_and_enums_of_duckdb(tmp_path: Path) -> None:
    with duckdb.connect() as connection:
        query = "SELECT INTERVAL 1 DAY AS i, 'b'::ENUM('z', 'b') AS e, '{}'::JSON AS j"
        connection.execute(f"COPY ({query}) TO '{tmp_path / 'i.parquet'}' (FORMAT parquet)")
    metadata = pq.read_metadata(tmp_path / "i.parquet")
    assert "lower" not in describe(metadata, pa.month_day_nano_interval(), "i")
    assert "lower" not in describe(metadata, pa.binary(12), "i")
    assert list_bounds(describe(metadata, pa.string(), "e")) == [("b", "b")]
    assert list_bounds(describe(metadata, pa.string(), "j")) == [("{}", "{}")]


# --- NULL -------------------------------------------------------------------------------------------------------------


def test_N5_a_column_of_nulls_has_counts_and_no_bounds() -> None:
    for data_type in (pa.int64(), pa.string(), pa.float64(), pa.decimal128(10, 2), pa.timestamp("us")):
        found = describe_values(pa.nulls(5, data_type), row_group_size=3)
        assert found["null_count"].to_pylist() == found["row_count"].to_pylist() == [3, 2]
        assert found["lower"].to_pylist() == found["upper"].to_pylist() == [None, None]
        assert found["lower_exact"].to_pylist() == [None, None]


def test_N5_a_column_of_type_null_is_null_in_every_row() -> None:
    found = describe(write_metadata(pa.table({"x": pa.nulls(4)})), pa.int64())
    assert found["null_count"].to_pylist() == [4]


def test_N9_a_null_struct_makes_its_fields_null() -> None:
    inner = pa.struct({"b": pa.int64(), "c": pa.struct({"d": pa.string()})})
    values = [{"b": 1, "c": {"d": "p"}}, None, {"b": None, "c": None}, {"b": 3, "c": {"d": None}}]
    metadata = write_metadata(pa.table({"a": pa.array(values, inner)}))
    found = describe(metadata, pa.int64(), "a", "b")
    assert (list_bounds(found), found["null_count"].to_pylist()) == ([(1, 3)], [2])
    found = describe(metadata, pa.string(), "a", "c", "d")
    assert (list_bounds(found), found["null_count"].to_pylist()) == ([("p", "p")], [3])
    assert list(describe(metadata, inner, "a")) == ["row_count"]


@pytest.mark.parametrize("write", WRITERS)
def test_N9_all_writers_count_nulls_of_structs_alike(write: Callable[[pa.Table, Path], None], tmp_path: Path) -> None:
    values = [{"b": 1, "c": {"d": 1}}, None, {"b": None, "c": None}, {"b": 3, "c": {"d": None}}]
    write(pa.table({"a": values}), tmp_path / "f.parquet")
    metadata = pq.read_metadata(tmp_path / "f.parquet")
    assert describe(metadata, pa.int64(), "a", "b")["null_count"].to_pylist() == [2]
    assert describe(metadata, pa.int64(), "a", "c", "d")["null_count"].to_pylist() == [3]


def test_N9_lists_and_maps_are_unknown_and_not_null() -> None:
    table = pa.table({"l": [[1], None], "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64()))})
    columns = [Column(("l",), table["l"].type), Column(("l", "element"), pa.int64()), Column(("m",), table["m"].type)]
    assert read_row_group_metadata(write_metadata(table), columns).schema.names == ["row_count"]


def test_P8_N1_columns_written_without_statistics_are_unknown() -> None:
    table = pa.table({"x": [1, 2], "y": [1, None]})
    metadata = write_metadata(table, write_statistics=["x"])
    batch = read_row_group_metadata(metadata, [Column(("x",), type=pa.int64()), Column(("y",), type=pa.int64())])
    assert batch["null_count:x"].to_pylist() == [0]
    assert batch["lower:x"].to_pylist() == [1]
    assert batch["null_count:y"].to_pylist() == [None]
    assert batch["lower:y"].to_pylist() == [None]


# --- Columns and names ------------------------------------------------------------------------------------------------


def test_a_column_missing_from_the_file_is_null_in_every_row() -> None:
    metadata = write_metadata(pa.table({"x": [1, 2, 3], "s": [{"y": 1}] * 3}), row_group_size=2)
    for path, data_type in ((("new",), pa.string()), (("s", "new"), pa.float64()), (("a", "b"), pa.list_(pa.int8()))):
        found = describe(metadata, data_type, *path)
        assert found["null_count"].to_pylist() == found["row_count"].to_pylist() == [2, 1]
        assert found["lower"].to_pylist() == found["upper"].to_pylist() == [None, None]
        assert found["lower"].type == data_type
    assert describe(metadata, pa.float64(), "new")["nan_count"].to_pylist() == [0, 0]


def test_a_column_that_exists_as_another_type_is_unknown() -> None:
    metadata = write_metadata(pa.table({"x": [1], "s": [{"y": 1}]}))
    assert list(describe(metadata, pa.int64(), "x", "deeper")) == ["row_count"]
    assert list(describe(metadata, pa.int64(), "s")) == ["row_count"]
    found = describe(metadata, pa.string(), "x")
    assert "lower" not in found
    assert found["null_count"].to_pylist() == [0]


def test_names_in_the_file_may_differ_from_the_table() -> None:
    metadata = write_metadata(pa.table({"AMOUNT": [1, 2], "Point": [{"X": 5}, {"X": 6}]}))
    columns = [Column(("amount",), type=pa.int64()), Column(("point", "x"), type=pa.int64())]
    names = {("amount",): ("AMOUNT",), ("point", "x"): ("Point", "X")}
    batch = read_row_group_metadata(metadata, columns, names=names)
    assert batch["lower:amount"].to_pylist() == [1]
    assert batch["upper:point.x"].to_pylist() == [6]


def test_H8_names_with_dots_are_not_fields_of_structs() -> None:
    metadata = write_metadata(pa.table({"a.b": [1, 2], "a": [{"b": 10}, {"b": 20}]}))
    columns = [Column(("a.b",), type=pa.int64()), Column(("a", "b"), type=pa.int64())]
    batch = read_row_group_metadata(metadata, columns)
    assert batch["lower:`a.b`"].to_pylist() == [1]
    assert batch["lower:a.b"].to_pylist() == [10]


def test_chosen_row_groups_come_in_the_order_given() -> None:
    metadata = write_metadata(pa.table({"x": list(range(10))}), row_group_size=3)
    found = describe(metadata, pa.int64(), row_groups=[3, 1])
    assert (list_bounds(found), found["row_count"].to_pylist()) == ([(9, 9), (3, 5)], [1, 3])
    found = describe(metadata, pa.int64(), row_groups=[])
    assert list_bounds(found) == []
    assert found["lower"].type == pa.int64()


def test_a_file_without_rows_or_columns() -> None:
    found = describe(write_metadata(pa.schema({"x": pa.int64()}).empty_table()), pa.int64())
    assert found["row_count"].to_pylist() in ([], [0])
    assert read_row_group_metadata(write_metadata(pa.table({"x": [1]})), []).to_pydict() == {"row_count": [1]}


@pytest.mark.parametrize("data_type", [None, pa.struct({"a": pa.int8()}), pa.dictionary(pa.int8(), pa.string())])
def test_a_type_without_order_has_counts_only(data_type: pa.DataType | None) -> None:
    assert list(describe(write_metadata(pa.table({"x": ["a"]})), data_type)) == ["row_count", "null_count"]


# --- Floats -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("data_type", [pa.float32(), pa.float64()])
def test_F1_F3_NaN_is_in_no_bound_and_its_count_is_unknown(
    data_type: pa.DataType, write: Callable[[pa.Table, Path], None], tmp_path: Path
) -> None:
    write(pa.table({"x": pa.array([1.0, NAN, 2.0], data_type)}), tmp_path / "f.parquet")
    found = describe(pq.read_metadata(tmp_path / "f.parquet"), data_type)
    assert list_bounds(found) in ([(1.0, 2.0)], [(None, None)])
    assert found["nan_count"].to_pylist() == [None]


def test_F3_the_count_of_NaN_is_known_where_there_is_no_value() -> None:
    found = describe_values(pa.array([None, None, 1.0]), row_group_size=2)
    assert found["nan_count"].to_pylist() == [0, None]


@pytest.mark.parametrize("write", WRITERS)
@pytest.mark.parametrize("values", [[0.0, -0.0], [-0.0, 0.0], [0.0], [-0.0], [0.0, 1.0], [-1.0, -0.0]])
def test_F4_bounds_at_zero_hold_both_zeros(
    values: list[float], write: Callable[[pa.Table, Path], None], tmp_path: Path
) -> None:
    write(pa.table({"x": values}), tmp_path / "f.parquet")
    found = describe(pq.read_metadata(tmp_path / "f.parquet"), pa.float64())
    (lower, upper) = list_bounds(found)[0]
    assert (lower, upper) == (min(values), max(values))
    assert lower != 0 or (math.copysign(1, lower) == -1 and found["lower_exact"].to_pylist() == [False])
    assert upper != 0 or (math.copysign(1, upper) == 1 and found["upper_exact"].to_pylist() == [False])


def test_F6_float16_is_ordered_by_value_and_not_by_bytes() -> None:
    values = pa.array([-2.0, 0.5, -0.25, 60000.0, None], pa.float16())
    assert list_bounds(describe_values(values)) == [(-2.0, 60000.0)]
    assert list_bounds(describe_values(values, pa.float64())) == [(-2.0, 60000.0)]


# --- From the file's type to the table's ------------------------------------------------------------------------------


def make_decimals(scale: int, *texts: str) -> pa.Array:
    return pa.array([Decimal(text) for text in texts], pa.decimal128(20, scale))


UNKNOWN = (None, None)


@pytest.mark.parametrize(
    ("values", "table_type", "expected", "exact"),
    [
        (pa.array([-5, 5], pa.int8()), pa.int64(), (-5, 5), (True, True)),
        (pa.array([-5, 5], pa.int32()), pa.int64(), (-5, 5), (True, True)),
        (pa.array([1, 2**32 - 1], pa.uint32()), pa.int64(), (1, 2**32 - 1), (True, True)),
        # The table is narrower than the file: bounds that do not fit are unknown.
        (pa.array([-5, 2**40], pa.int64()), pa.int32(), (-5, None), (True, None)),
        (pa.array([-(2**40), 5], pa.int64()), pa.int32(), (None, 5), (None, True)),
        (pa.array([1, 2**64 - 1], pa.uint64()), pa.int64(), (1, None), (True, None)),
        (pa.array([-5, 5], pa.int64()), pa.uint64(), (None, 5), (None, True)),
        (pa.array([-5, 5], pa.int32()), pa.float64(), (-5.0, 5.0), (True, True)),
        (pa.array([-(2**53) - 1, 2**53 + 1]), pa.float64(), (-(2.0**53) - 2, 2.0**53 + 2), (False, False)),
        (pa.array([2**24 + 3, 2**24 + 5]), pa.float32(), (2.0**24 + 2, 2.0**24 + 6), (False, False)),
        (pa.array([-5, 5], pa.int32()), pa.decimal128(12, 2), (Decimal(-5), Decimal(5)), (True, True)),
        (pa.array([-5, 12345], pa.int32()), pa.decimal128(6, 2), (Decimal(-5), None), (True, None)),
        (make_decimals(2, "-1.25", "1.25"), pa.decimal128(30, 4), (Decimal("-1.25"), Decimal("1.25")), (True, True)),
        (
            make_decimals(3, "-1.251", "1.251"),
            pa.decimal128(20, 2),
            (Decimal("-1.26"), Decimal("1.26")),
            (False, False),
        ),
        (make_decimals(3, "-1.250", "1.250"), pa.decimal128(20, 2), (Decimal("-1.25"), Decimal("1.25")), (True, True)),
        (make_decimals(2, "-1.25", "123.25"), pa.decimal128(3, 2), (Decimal("-1.25"), None), (True, None)),
        (pa.array([-1.5, 2.5], pa.float32()), pa.float64(), (-1.5, 2.5), (True, True)),
        (pa.array([-1500, 1500], pa.timestamp("us")), pa.timestamp("ms"), (-2, 2), (False, False)),
        (pa.array([-2000, 2000], pa.timestamp("us")), pa.timestamp("ms"), (-2, 2), (True, True)),
        (pa.array([-1, 1], pa.timestamp("ns")), pa.timestamp("us"), (-1, 1), (False, False)),
        (pa.array([-2, 2], pa.timestamp("ms")), pa.timestamp("ns"), (-2_000_000, 2_000_000), (True, True)),
        (pa.array([-(2**62), 5], pa.timestamp("ms")), pa.timestamp("ns"), (None, 5_000_000), (None, True)),
        (pa.array([-2, 2], pa.timestamp("ms", "UTC")), pa.timestamp("us", "Asia/Tokyo"), (-2000, 2000), (True, True)),
        (pa.array([-1, 1], pa.date32()), pa.timestamp("us"), (-86_400_000_000, 86_400_000_000), (True, True)),
        (pa.array([-1, 106752], pa.date32()), pa.timestamp("ns"), (-86_400_000_000_000, None), (True, None)),
        (pa.array([1, 1500], pa.time64("us")), pa.time32("ms"), (0, 2), (False, False)),
        (pa.array([1, 86_399_999_999], pa.time64("us")), pa.time32("s"), (0, None), (False, None)),
        (pa.array([-1, 1], pa.duration("ms")), pa.duration("us"), (-1000, 1000), (True, True)),
        (pa.array(["a", "é"]), pa.large_string(), ("a", "é"), (False, False)),
        (pa.array(["a", "é"]), pa.binary(), (b"a", "é".encode()), (False, False)),
        (pa.array([b"a", b"\xc3\xa9"]), pa.string(), ("a", "é"), (False, False)),
        (pa.array([b"ab", b"yz"], pa.binary(2)), pa.binary(), (b"ab", b"yz"), (False, False)),
        (pa.array([b"ab", b"xyz"]), pa.binary(2), (b"ab", None), (False, None)),
    ],
    ids=lambda value: str(value.type) if isinstance(value, pa.Array) else None,
)
def test_T5_T11_conversions_round_outwards_or_are_unknown(
    values: pa.Array, table_type: pa.DataType, expected: tuple[Any, Any], exact: tuple[Any, Any]
) -> None:
    found = describe_values(values, table_type)
    assert found["lower"].type == found["upper"].type == table_type
    assert list_bounds(found) == [expected]
    assert (found["lower_exact"][0].as_py(), found["upper_exact"][0].as_py()) == exact


@pytest.mark.parametrize(
    ("values", "table_type"),
    [
        (pa.array([1, 2], pa.timestamp("us")), pa.timestamp("us", "UTC")),
        (pa.array([1, 2], pa.timestamp("us", "UTC")), pa.timestamp("us")),
        (pa.array([1, 2], pa.date32()), pa.timestamp("us", "UTC")),
        (pa.array([1, 2], pa.timestamp("us")), pa.date32()),
        (pa.array([1.5, 2.5], pa.float64()), pa.float32()),
        (pa.array([1.5, 2.5], pa.float64()), pa.int64()),
        (pa.array([1.5, 2.5], pa.float64()), pa.decimal128(10, 2)),
        (make_decimals(2, "1.25", "2.5"), pa.float64()),
        (make_decimals(0, "1", "2"), pa.int64()),
        (pa.array([1, 2], pa.int64()), pa.timestamp("us")),
        (pa.array([1, 2], pa.int32()), pa.date32()),
        (pa.array([1, 2], pa.int32()), pa.bool_()),
        (pa.array([True, False]), pa.int32()),
        (pa.array([1, 2], pa.int64()), pa.string()),
        (pa.array(["1", "2"]), pa.int64()),
        (pa.array([b"ab"], pa.binary(2)), pa.string()),
        (pa.array([1, 2], pa.time64("us")), pa.duration("us")),
    ],
)
def test_T5_T7_what_cannot_be_converted_is_unknown_and_counts_stay(values: pa.Array, table_type: pa.DataType) -> None:
    found = describe_values(values, table_type)
    assert "lower" not in found
    assert found["null_count"].to_pylist() == [0]


def test_T11_whole_numbers_promoted_to_floats_have_no_NaN() -> None:
    found = describe_values(pa.array([1, 2, None], pa.int32()), pa.float64())
    assert found["nan_count"].to_pylist() == [0]


# --- Bounds bound -----------------------------------------------------------------------------------------------------


def numbers(bits: int, signed: bool = True) -> st.SearchStrategy[int]:
    return st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else st.integers(0, 2**bits - 1)


WIDE = Context(prec=100)


def decimals_of(precision: int, scale: int) -> st.SearchStrategy[Decimal]:
    largest = 10**precision - 1
    return st.integers(-largest, largest).map(lambda number: WIDE.scaleb(Decimal(number), -scale))


FLOATS = [st.sampled_from([0.0, -0.0, NAN, math.inf, -math.inf])]
TYPES: list[tuple[pa.DataType, st.SearchStrategy[Any], list[pa.DataType]]] = [
    (pa.bool_(), st.booleans(), []),
    (pa.int8(), numbers(8), [pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.decimal128(5, 1)]),
    (pa.int16(), numbers(16), [pa.int32(), pa.int64(), pa.float64(), pa.decimal128(10, 2)]),
    (pa.int32(), numbers(32), [pa.int64(), pa.float32(), pa.float64(), pa.decimal128(20, 2)]),
    (pa.int64(), numbers(64), [pa.float32(), pa.float64(), pa.decimal128(38, 4)]),
    (pa.uint8(), numbers(8, False), [pa.int16(), pa.uint64()]),
    (pa.uint16(), numbers(16, False), [pa.int32()]),
    (pa.uint32(), numbers(32, False), [pa.int64(), pa.float32()]),
    (pa.uint64(), numbers(64, False), [pa.float64(), pa.decimal128(20, 0)]),
    (pa.float16(), st.floats(width=16) | FLOATS[0], [pa.float32(), pa.float64()]),
    (pa.float32(), st.floats(width=32) | FLOATS[0], [pa.float64()]),
    (pa.float64(), st.floats() | FLOATS[0], []),
    (pa.date32(), st.integers(-100_000, 100_000), [pa.timestamp("ms"), pa.timestamp("us"), pa.date64()]),
    (pa.time32("ms"), st.integers(0, 86_399_999), [pa.time64("us"), pa.time64("ns")]),
    (pa.time64("us"), st.integers(0, 86_399_999_999), [pa.time64("ns")]),
    (pa.timestamp("s"), st.integers(-(2**40), 2**40), [pa.timestamp("us")]),
    (pa.timestamp("ms"), st.integers(-(2**43), 2**43), [pa.timestamp("us"), pa.timestamp("ns"), pa.timestamp("s")]),
    (pa.timestamp("us"), st.integers(-(2**50), 2**50), [pa.timestamp("ms"), pa.timestamp("ns")]),
    (pa.timestamp("ns"), numbers(63), [pa.timestamp("us"), pa.timestamp("ms")]),
    (pa.timestamp("us", "UTC"), st.integers(-(2**50), 2**50), [pa.timestamp("ms", "Europe/Paris")]),
    (pa.duration("us"), st.integers(-(2**50), 2**50), [pa.duration("ns"), pa.duration("ms")]),
    (pa.decimal128(5, 2), decimals_of(5, 2), [pa.decimal128(12, 4), pa.decimal128(10, 2), pa.decimal256(50, 2)]),
    (pa.decimal128(18, 3), decimals_of(18, 3), [pa.decimal128(30, 3)]),
    (pa.decimal128(38, 10), decimals_of(38, 10), [pa.decimal256(60, 12)]),
    (pa.decimal256(70, 5), decimals_of(70, 5), []),
    (pa.string(), st.text(), [pa.large_string(), pa.binary()]),
    (pa.binary(), st.binary(), [pa.large_binary()]),
    (pa.binary(3), st.binary(min_size=3, max_size=3), [pa.binary()]),
]  # fmt: skip


@st.composite
def columns(draw: st.DrawFn) -> tuple[pa.Array, pa.DataType, int]:
    data_type, elements, promoted = draw(st.sampled_from(TYPES))
    values = draw(st.lists(st.none() | elements, min_size=1, max_size=12))
    if pa.types.is_float16(data_type):
        values = [None if value is None else np.float16(value) for value in values]
    return pa.array(values, data_type), draw(st.sampled_from([data_type, *promoted])), draw(st.integers(1, 5))


def is_value(value: Any) -> bool:
    return value is not None and value == value


@settings(max_examples=400, deadline=None)
@given(columns(), st.booleans(), st.booleans())
def test_T5_T11_F1_S1_bounds_bound_every_value(
    column: tuple[pa.Array, pa.DataType, int], dictionary: bool, integers: bool
) -> None:
    values, table_type, rows = column
    metadata = write_metadata(
        pa.table({"x": values}), row_group_size=rows, use_dictionary=dictionary, store_decimal_as_integer=integers
    )
    found = describe(metadata, table_type)
    as_read = pc.cast(values, table_type, safe=False) if table_type != values.type else values
    start = 0
    for index in range(metadata.num_row_groups):
        count = found["row_count"][index].as_py()
        group = as_read.slice(start, count)
        start += count
        assert found["null_count"][index].as_py() == group.null_count
        present = [value for value in to_plain(group) if is_value(value)]
        lower, upper = to_plain(found["lower"])[index], to_plain(found["upper"])[index]
        if present:
            assert lower is None or lower <= min(present)
            assert upper is None or max(present) <= upper
        if found["lower_exact"][index].as_py():
            assert lower in present
        if found["upper_exact"][index].as_py():
            assert upper in present
        if "nan_count" in found and found["nan_count"][index].as_py() is not None:
            assert found["nan_count"][index].as_py() == sum(value != value for value in to_plain(group))
        # Without any bounds this test would prove nothing.
        if present and table_type == values.type and not pa.types.is_floating(table_type):
            assert lower is not None
            assert upper is not None
    assert start == len(values)


# --- Sizes and offsets ------------------------------------------------------------------------------------------------


def test_sizes_and_ranges_of_chunks_are_where_the_pages_are(tmp_path: Path) -> None:
    path = tmp_path / "f.parquet"
    table = pa.table({"a": list(range(1000)), "s": [{"x": str(i), "y": [i]} for i in range(1000)]})
    pq.write_table(table, path, row_group_size=400)
    metadata = pq.read_metadata(path)
    leaves = find_leaf_indices(metadata.schema.to_arrow_schema(), [("s",)])
    assert leaves == [1, 2]
    sizes = sum_compressed_sizes(metadata, leaves)
    raw = path.read_bytes()
    for group in range(metadata.num_row_groups):
        ranges = find_chunk_ranges(metadata, group, leaves, size=len(raw))
        assert sum(length for _, length in ranges) == sizes[group]
        # Only these bytes are needed to read those columns.
        kept = bytearray(b"\xaa" * len(raw))
        footer = len(raw) - 8 - int.from_bytes(raw[-8:-4], "little")
        for start, length in [*ranges, (0, 4), (footer, len(raw) - footer)]:
            kept[start : start + length] = raw[start : start + length]
        read = pq.ParquetFile(pa.BufferReader(bytes(kept))).read_row_group(group, columns=["s"])
        assert read["s"].to_pylist() == table["s"].slice(group * 400, 400).to_pylist()
    assert sum_compressed_sizes(metadata, []) == [0, 0, 0]


# --- Files of other writers -------------------------------------------------------------------------------------------


def describe_golden(name: str, data_type: pa.DataType, *path: str) -> dict[str, Any]:
    return describe(pq.read_metadata(GOLDEN / name), data_type, *path)


@needs_golden
def test_golden_S4_S5_no_statistics_at_all() -> None:
    found = describe_golden("alltypes_plain.parquet", pa.int32(), "id")
    assert (list_bounds(found), found["null_count"].to_pylist()) == ([UNKNOWN], [None])


@needs_golden
def test_golden_S1_truncated_text_is_a_bound_and_never_a_value() -> None:
    for name in ("utf8_full_truncation", "utf8_no_truncation"):
        found = describe_golden("binary_truncated_min_max.parquet", pa.string(), name)
        values = pq.read_table(GOLDEN / "binary_truncated_min_max.parquet")[name].to_pylist()
        ((lower, upper),) = list_bounds(found)
        assert lower <= min(values) <= max(values) <= upper
        assert found["lower_exact"].to_pylist() == found["upper_exact"].to_pylist() == [False]


@needs_golden
def test_golden_F2_NaN_as_the_largest_value() -> None:
    assert list_bounds(describe_golden("nan_in_stats.parquet", pa.float64(), "x")) == [UNKNOWN]


@needs_golden
def test_golden_F1_F2_F6_orders_of_floats() -> None:
    for name, data_type in (("float", pa.float32()), ("double", pa.float64()), ("float16", pa.float16())):
        for order in ("typedef", "ieee754"):
            column = f"{name}_{order}"
            found = describe_golden("floating_orders_nan_count.parquet", data_type, column)
            values = pq.read_table(GOLDEN / "floating_orders_nan_count.parquet")[column].to_pylist()
            assert len(found["lower"]) == 5
            for index, (lower, upper) in enumerate(list_bounds(found)):
                present = [value for value in values[index * 10 : index * 10 + 10] if is_value(value)]
                assert lower is None or lower <= min(present)
                assert upper is None or max(present) <= upper
    assert list_bounds(describe_golden("floating_orders_nan_count.parquet", pa.float32(), "float_typedef"))[0] == (
        -2.0,
        5.0,
    )


@needs_golden
def test_golden_F6_float16() -> None:
    assert list_bounds(describe_golden("float16_nonzeros_and_nans.parquet", pa.float16(), "x")) == [(-2.0, 2.0)]


@needs_golden
def test_golden_T3_INT96() -> None:
    found = describe_golden("int96_from_spark.parquet", pa.timestamp("ns"), "a")
    assert "lower" not in found
    assert found["null_count"].to_pylist() == [1]


@needs_golden
def test_golden_T2_S4_decimals_of_an_old_writer() -> None:
    # The file says that 2.00 is the smallest value; it compared bytes as signed, and 1.00 is in it.
    smallest = pc.min(pq.read_table(GOLDEN / "fixed_length_decimal.parquet")["value"]).as_py()
    assert smallest == Decimal("1.00")
    found = describe_golden("fixed_length_decimal.parquet", pa.decimal128(25, 2), "value")
    assert "lower" not in found or list_bounds(found) == [UNKNOWN]
    # For 32-bit values the same writer is right.
    found = describe_golden("int32_decimal.parquet", pa.decimal128(4, 2), "value")
    assert list_bounds(found) == [(Decimal("1.00"), Decimal("24.00"))]
    assert list_bounds(describe_golden("int32_decimal.parquet", pa.decimal128(10, 4), "value")) == [
        (Decimal(1), Decimal(24))
    ]


def test_T6_dates_before_1970_by_their_days() -> None:
    values = pa.array([datetime.date(1582, 10, 4), datetime.date(1969, 12, 31)])
    found = describe_values(values)
    assert [value.as_py() for value in (found["lower"][0], found["upper"][0])] == values.to_pylist()


# --- Many files at once -----------------------------------------------------------------------------------------------


def write_footer(table: pa.Table, **options: Any) -> Footer:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    raw = sink.getvalue()
    return footer_from_bytes(raw[-8 - int.from_bytes(raw[-8:-4], "little") : -8], "made.parquet")


def test_metadata_of_grouped_files_equals_that_of_single_files() -> None:
    many = MANY_ROW_GROUPS
    footers = [
        write_footer(pa.table({"x": [1, 2], "y": ["a", "b"]})),
        write_footer(pa.table({"x": [3, None, 5], "y": ["c", "d", None]}), row_group_size=2),
        write_footer(pa.table({"x": [7], "y": ["e"]}), write_statistics=False),
        write_footer(pa.table({"x": range(many), "y": ["f"] * many}), row_group_size=1),
        write_footer(pa.table({"x": range(many), "y": ["g"] * many}), row_group_size=1),
        write_footer(pa.table({"y": ["h"]})),
    ]
    runs = group_similar_footers(footers)
    assert [len(run) for run in runs] == [3, 1, 1, 1]
    assert [footer for run in runs for footer in run] == footers
    for column in (Column(("x",), type=pa.int64()), Column(("y",), type=pa.string())):
        for run in runs:
            # Read twice: the cached metadata must be equal.
            for _ in range(2):
                found = collect_column_metadata(run, column, column.path)
                one_by_one = [
                    read_row_group_metadata(footer.metadata, [column]).drop_columns("row_count") for footer in run
                ]
                expected = pa.Table.from_batches(one_by_one)
                assert pa.table(found).select(expected.column_names) == expected
    for footer in footers:
        leaves = range(footer.metadata.num_columns)
        for _ in range(2):
            assert get_compressed_sizes(footer, leaves) == sum_compressed_sizes(footer.metadata, leaves)
            assert list_row_counts(footer) == read_row_group_metadata(footer.metadata, [])["row_count"].to_pylist()


def test_files_of_an_untrusted_writer_are_grouped_separately() -> None:
    trusted = write_footer(pa.table({"x": ["a", "b"]}))
    content = trusted.content
    assert content.count(b"parquet-cpp-arrow version") == 1
    other = footer_from_bytes(
        content.replace(b"parquet-cpp-arrow version", b"parquet-cpp-arrow vorsion"), "other.parquet"
    )
    assert trusted.schema is other.schema
    runs = group_similar_footers([trusted, other, trusted])
    assert [len(run) for run in runs] == [1, 1, 1]
    column = Column(("x",), type=pa.string())
    assert ["lower:x" in collect_column_metadata(run, column, ("x",)) for run in runs] == [True, False, True]
