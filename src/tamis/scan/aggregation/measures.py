"""Measures (count, min, max, sum) of the rows of a scan, and their partial results.

A *partial result* is a table: the group keys, then for each measure the columns that are needed to merge it with
others. NaN is larger than every number, but Arrow's minima and maxima ignore it, so NaN is counted separately:

| measure         | columns                                   | merged by | result                            |
|-----------------|-------------------------------------------|-----------|-----------------------------------|
| `count`         | `m0`: the count                           | sum       | `m0`, 0 if there is no row        |
| `min`, `max`    | `m0`: the value, NULL if there is none    | min, max  | `m0`                              |
| `min` of floats | and `n0`: the NaN count                   | and sum   | `m0`; NaN if all values are NaN   |
| `max` of floats | and `n0`: the NaN count                   | and sum   | NaN if there is one, else `m0`    |
| `sum`           | `m0`: the sum, NULL if there is none      | sum       | `m0`                              |

Sums have DuckDB's types. Sums of integers and decimals are exact, with 38 digits, and cannot overflow: see `can_sum`.
Arrow adds integers in 64 bits and overflows silently, so a batch of large integers is widened first.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Literal as OneOf
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column
from tamis.scan.planning.projection import read_path

Function: TypeAlias = OneOf["count", "min", "max", "sum"]

MAX_SUM_DIGITS = 38
"""The digits of a sum. The row count is below 2^63 and takes 19 digits; the others are for a value."""

_MAX_SUMMED_DIGITS = MAX_SUM_DIGITS - 19

_MAX_DIGITS_IN_64_BITS = 18
"""The digits of a decimal that fits the lower 64 of its 128 bits; the upper half is then only the sign."""

_ROWS = "rows"
"""The column with the number of rows of a group. A group without rows is dropped."""


@dataclass(frozen=True, slots=True)
class Measure:
    """`count(*)` if there is no column, else a function of the values of one."""

    function: Function
    column: Column | None = None

    @property
    def type(self) -> pa.DataType:
        if self.function == "count":
            return types.LONG
        assert self.column is not None
        own = self.column.type
        assert own is not None
        if self.function != "sum":
            return own
        if pa.types.is_floating(own):
            return types.DOUBLE
        return pa.decimal128(MAX_SUM_DIGITS, own.scale if pa.types.is_decimal(own) else 0)

    @property
    def is_extreme(self) -> bool:
        return self.function in ("min", "max")

    @property
    def counts_nan(self) -> bool:
        return self.is_extreme and pa.types.is_floating(self.type)


def can_compare(data_type: pa.DataType | None) -> bool:
    """Return whether minima and maxima of a type are the same here as in SQL."""
    if data_type is None or not types.is_ordered(data_type):
        return False
    return not (
        pa.types.is_float16(data_type)
        or pa.types.is_duration(data_type)
        or pa.types.is_decimal256(data_type)
        or pa.types.is_string_view(data_type)
        or pa.types.is_binary_view(data_type)
        or pa.types.is_fixed_size_binary(data_type)
    )


def can_group(data_type: pa.DataType | None) -> bool:
    """Return whether values of a type can be group keys: floats have two zeros, and many NaN."""
    return can_compare(data_type) and not pa.types.is_floating(data_type)


def can_sum(data_type: pa.DataType | None) -> bool:
    """Return whether sums of a type are the same here as in DuckDB, and never fail.

    A sum of wider decimals may overflow, which is an error of DuckDB.
    """
    if data_type is None:
        return False
    if pa.types.is_decimal128(data_type):
        return bool(data_type.precision <= _MAX_SUMMED_DIGITS)
    return pa.types.is_signed_integer(data_type) or data_type in (pa.float32(), types.DOUBLE)


def needs_rows(measures: Sequence[Measure], partition_columns: Collection[str]) -> bool:
    """Return whether a sum needs the rows because metadata cannot answer it."""
    return any(
        measure.function == "sum" and measure.column is not None and measure.column.path[0] not in partition_columns
        for measure in measures
    )


@dataclass(frozen=True)
class PartialResults:
    """Computes, merges and finishes partial results of measures by keys."""

    keys: tuple[Column, ...]
    measures: tuple[Measure, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        fields = [(f"k{number}", key.type) for number, key in enumerate(self.keys)]
        fields.append((_ROWS, types.LONG))
        for number, measure in enumerate(self.measures):
            fields.append((f"m{number}", measure.type))
            if measure.counts_nan:
                fields.append((f"n{number}", types.LONG))
        return pa.schema(fields)

    def from_rows(self, batch: pa.RecordBatch) -> pa.Table:
        """Return the partial result of a batch, one row per group."""
        keys = [read_path(batch, key.path) for key in self.keys]
        if batch.num_rows and all(map(_is_one_value, keys)):
            # Most batches are of one partition, and grouping them takes thirty times as long.
            found = [value for measure in self.measures for value in _measure_all(measure, batch)]
            values = [pa.scalar(batch.num_rows), *found]
            return self._to_partial([*(key.slice(0, 1) for key in keys), *(pa.repeat(each, 1) for each in values)])
        columns: dict[str, pa.Array] = {f"k{number}": values for number, values in enumerate(keys)}
        columns[_ROWS] = pa.array(np.ones(batch.num_rows, np.int64))
        for number, measure in enumerate(self.measures):
            columns |= _measure_rows(number, measure, batch)
        return self._group(pa.table(columns))

    def from_units(
        self, keys: Sequence[pa.Array], rows: pa.Array, answers: Sequence[Mapping[str, pa.Array]]
    ) -> pa.Table:
        """Return the partial result of units that metadata answers; `answers` are `value`, and `nan` if NaN counts."""
        columns: dict[str, pa.Array] = {f"k{number}": values for number, values in enumerate(keys)}
        columns[_ROWS] = rows
        for number, (measure, answer) in enumerate(zip(self.measures, answers, strict=True)):
            columns[f"m{number}"] = answer["value"]
            if measure.counts_nan:
                columns[f"n{number}"] = answer["nan"]
        return self.merge([pa.table(columns, schema=self.schema)])

    def merge(self, parts: Sequence[pa.Table]) -> pa.Table:
        return self._group(pa.concat_tables([self.schema.empty_table(), *parts]).combine_chunks())

    def _group(self, rows: pa.Table) -> pa.Table:
        """Return one row per group. Summed columns may be narrower than the sums, if these fit."""
        names = [f"k{number}" for number in range(len(self.keys))]
        functions = [(_ROWS, "sum")]
        for number, measure in enumerate(self.measures):
            functions.append((f"m{number}", measure.function if measure.is_extreme else "sum"))
            if measure.counts_nan:
                functions.append((f"n{number}", "sum"))
        found = rows.group_by(names, use_threads=False).aggregate(functions)
        columns = [found[name] for name in names] + [found[f"{name}_{function}"] for name, function in functions]
        return self._to_partial(columns)

    def _to_partial(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
        pairs = zip(columns, self.schema, strict=True)
        wide = [column if column.type == field.type else column.cast(field.type) for column, field in pairs]
        return pa.table(wide, schema=self.schema)

    def finish(self, partial: pa.Table) -> pa.Table:
        """Return the results of a merged partial result: columns `k0`, … and `m0`, …; one row if there are no keys."""
        if self.keys:
            partial = partial.filter(pc.greater(partial[_ROWS], 0))
        columns: dict[str, pa.Array] = {f"k{number}": partial[f"k{number}"] for number in range(len(self.keys))}
        for number, measure in enumerate(self.measures):
            values = partial[f"m{number}"]
            if measure.function == "count":
                values = pc.fill_null(values, 0)
            elif measure.counts_nan:
                has_nan = pc.fill_null(pc.greater(partial[f"n{number}"], 0), False)
                is_nan = has_nan if measure.function == "max" else pc.and_(has_nan, values.is_null())
                values = pc.if_else(is_nan, pa.scalar(float("nan"), measure.type), values)
            columns[f"m{number}"] = values
        return pa.table(columns)


def _is_one_value(values: pa.Array) -> bool:
    if values.null_count:
        return bool(values.null_count == len(values))
    return bool(pc.all(pc.equal(values, values[0])).as_py())


def _measure_all(measure: Measure, batch: pa.RecordBatch) -> list[pa.Scalar]:
    """Return a measure of all rows of a batch, and its NaN count if NaN counts."""
    if measure.column is None:
        return [pa.scalar(batch.num_rows)]
    if measure.function == "count":
        return [pc.count(read_path(batch, measure.column.path))]
    reduce = {"sum": pc.sum, "min": pc.min, "max": pc.max}[measure.function]
    if measure.is_extreme and pa.types.is_decimal128(measure.type) and measure.type.precision <= _MAX_DIGITS_IN_64_BITS:
        number = reduce(_to_unscaled_integers(read_path(batch, measure.column.path))).as_py()
        value = None if number is None else Decimal(number).scaleb(-measure.type.scale)
        return [pa.scalar(value, measure.type)]
    first, *rest = _measure_rows(0, measure, batch).values()
    return [reduce(first), *map(pc.sum, rest)]


def _to_unscaled_integers(values: pa.Array) -> pa.Array:
    """Return the unscaled values of decimals as 64-bit integers, which Arrow compares twenty times as fast."""
    words = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values)) : 2]
    return pa.array(words, mask=np.asarray(values.is_null()) if values.null_count else None)


def _measure_rows(number: int, measure: Measure, batch: pa.RecordBatch) -> dict[str, pa.Array]:
    if measure.column is None:
        return {f"m{number}": pa.array(np.ones(batch.num_rows, np.int64))}
    values = read_path(batch, measure.column.path)
    if measure.function == "count":
        return {f"m{number}": values.is_valid().cast(types.LONG)}
    if measure.function == "sum":
        return {f"m{number}": _widen_for_sum(values)}
    if not measure.counts_nan:
        return {f"m{number}": values}
    is_nan = pc.fill_null(pc.is_nan(values), False)
    return {
        f"m{number}": pc.if_else(is_nan, pa.scalar(None, values.type), values),
        f"n{number}": is_nan.cast(types.LONG),
    }


def _widen_for_sum(values: pa.Array) -> pa.Array:
    """Return the values in a type in which no sum of them overflows."""
    if values.type != types.LONG:
        # Arrow adds smaller integers in 64 bits, which suffice for the rows of a batch.
        return values
    found = pc.min_max(values).as_py()
    largest = max(abs(found["min"] or 0), abs(found["max"] or 0))
    return values if largest * len(values) < 2**63 else values.cast(pa.decimal128(MAX_SUM_DIGITS, 0))
