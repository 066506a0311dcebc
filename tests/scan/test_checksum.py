"""The checksum of rows ignores order and batches, and depends on everything else."""

from __future__ import annotations

import datetime
import math
import random
import struct
from decimal import Decimal
from itertools import combinations
from typing import Any

import pyarrow as pa
import pytest

from tamis.scan.reading.pipeline import coalesce_batches
from tamis.scan.verify import RowChecksum


def compute_checksum(rows: pa.Table) -> int:
    found = RowChecksum()
    found.add_all(rows.to_batches())
    assert found.rows == rows.num_rows
    return found.value


def test_order_and_batches_do_not_matter() -> None:
    rows = pa.table({"a": range(1_000), "b": [f"text {number % 7}" for number in range(1_000)]})
    shuffled = list(range(1_000))
    random.Random(5).shuffle(shuffled)
    parts = [rows.take(shuffled).slice(start, 100) for start in range(0, 1_000, 100)]
    assert compute_checksum(pa.concat_tables(parts)) == compute_checksum(rows)


def test_missing_repeated_and_moved_values_are_detected() -> None:
    rows = pa.table({"a": [1, 2, 3, 3], "b": [4, 5, 6, 6]})
    different = {
        "missing": rows.slice(1),
        "missing repetition": rows.slice(0, 3),
        "repeated": pa.concat_tables([rows, rows.slice(0, 1)]),
        "other repetition": rows.take([0, 1, 1, 3]),
        "twice": pa.concat_tables([rows, rows]),
        "columns swapped": pa.table({"a": rows["b"], "b": rows["a"]}),
        "moved between rows": pa.table({"a": [2, 1, 3, 3], "b": [4, 5, 6, 6]}),
        "moved between columns": pa.table({"a": [4, 2, 3, 3], "b": [1, 5, 6, 6]}),
    }
    found = {name: compute_checksum(table) for name, table in different.items()}
    assert len({compute_checksum(rows), *found.values()}) == len(found) + 1


def make_float(bits: int) -> float:
    found: float = struct.unpack("<d", struct.pack("<Q", bits))[0]
    return found


@pytest.mark.parametrize(
    ("values", "data_type"),
    [
        ([None, 0, 1, -1, 2**62], pa.int64()),
        ([None, 0, 1, 255], pa.uint8()),
        ([None, True, False], pa.bool_()),
        ([None, 0.0, -0.0, math.nan, -math.nan, math.inf, make_float(0x7FF8000000000001)], pa.float64()),
        ([None, 0.0, -0.0, 1.5], pa.float16()),
        ([None, "", " ", "a", "b", "\0", "\0\0", "a" * 100, "a" * 101], pa.string()),
        ([None, "", "a"], pa.string_view()),
        ([None, b"", b"\0", b"\xff"], pa.binary()),
        ([None, b"ab", b"ba"], pa.binary(2)),
        ([None, "a", "b"], pa.dictionary(pa.int8(), pa.string())),
        ([None, Decimal("0.00"), Decimal("1.10"), Decimal("-1.10")], pa.decimal128(38, 2)),
        ([None, Decimal("0.00"), Decimal("1.10")], pa.decimal256(60, 2)),
        ([None, datetime.date(1970, 1, 1), datetime.date(1969, 12, 31)], pa.date32()),
        ([None, 0, 1], pa.timestamp("ns", "UTC")),
        ([None, (0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1)], pa.month_day_nano_interval()),
        ([None, [], [None], [None, None], [0], [0, 0], [0, 1], [1, 0]], pa.list_(pa.int64())),
        ([None, [], [[]], [[], []], [None], [[0]], [[0], []], [[], [0]]], pa.list_(pa.list_(pa.int8()))),
        ([None, [None, None], [0, 1], [1, 0]], pa.list_(pa.int8(), 2)),
        ([None, [], [("a", 1)], [("a", None)], [("b", 1)]], pa.map_(pa.string(), pa.int8())),
        (
            [None, {"a": None, "A": None}, {"a": 1, "A": 2}, {"a": 2, "A": 1}],
            pa.struct({"a": pa.int8(), "A": pa.int8()}),
        ),
        ([None, [{"a": 1}], [{"a": None}], [None], []], pa.list_(pa.struct({"a": pa.int8()}))),
        ([None, {}], pa.struct([])),
    ],
    ids=lambda given: str(given) if isinstance(given, pa.DataType) else "",
)
def test_values_that_differ_in_anything_have_other_checksums(values: list[Any], data_type: pa.DataType) -> None:
    array = pa.array(values, data_type)
    found = {compute_checksum(pa.table({"value": array.slice(index, 1)})) for index in range(len(array))}
    assert len(found) == len(values)
    # Every pair of values differs, so that swapping two of them changes the checksum.
    pairs = [compute_checksum(pa.table({"value": pa.array(pair, data_type)})) for pair in combinations(values, 2)]
    assert len(set(pairs)) == len(pairs)


def test_rows_without_columns_and_columns_without_values_have_a_checksum() -> None:
    assert compute_checksum(pa.table({"a": pa.nulls(3)})) == compute_checksum(pa.table({"b": pa.nulls(3)}))
    assert compute_checksum(pa.table({"a": pa.array([], pa.string())})) == 0


def test_batches_are_joined_until_they_are_large_enough() -> None:
    batches = [pa.record_batch({"a": [number]}) for number in range(10)]
    joined = list(coalesce_batches(batches, enough_rows=4))
    assert [batch.num_rows for batch in joined] == [4, 4, 2]
    assert pa.Table.from_batches(joined)["a"].to_pylist() == list(range(10))
    assert [batch.num_rows for batch in coalesce_batches(batches, enough_bytes=16)] == [2, 2, 2, 2, 2]
    assert list(coalesce_batches([])) == []


def test_joining_reads_only_the_batches_that_it_needs() -> None:
    drawn = []

    def draw() -> Any:
        for number in range(10):
            drawn.append(number)
            yield pa.record_batch({"a": [number]})

    next(coalesce_batches(draw(), enough_rows=3))
    assert drawn == [0, 1, 2]
