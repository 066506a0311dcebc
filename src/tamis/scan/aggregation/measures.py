"""What can be counted, compared and summed of the rows of a scan, and how parts of it are put together.

A *partial result* is a table: the keys of groups, then for each measure the columns that it needs to be merged with
others. NaN is larger than every number, and Arrow's own minima and maxima pass over it, so that it is counted apart:

| measure         | columns                                   | merged by | result                            |
|-----------------|-------------------------------------------|-----------|-----------------------------------|
| `count`         | `m0`: how many                            | sum       | `m0`, 0 where there is no row     |
| `min`, `max`    | `m0`: the value, NULL where there is none | min, max  | `m0`                              |
| `min` of floats | and `n0`: how many NaN                    | and sum   | `m0`; NaN where there is only NaN |
| `max` of floats | and `n0`: how many NaN                    | and sum   | NaN where there is one, else `m0` |
| `sum`           | `m0`: the sum, NULL where there is none   | sum       | `m0`                              |

Sums have the types that the embedded engine gives them. Those of whole numbers and decimals are exact, in 38 digits,
and none of them can overflow: see `can_sum`. Arrow adds whole numbers in 64 bits and says nothing where that is not
enough, so that a batch of large ones is made wider before.
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

Function: TypeAlias = OneOf["count", "min", "max", "sum"]

MOST_DIGITS = 38
"""Of a sum. There are fewer than 2^63 rows, which are 19 digits, and so many are left for a value."""

_MOST_SUMMED = MOST_DIGITS - 19

_MOST_IN_A_WORD = 18
"""Digits of a decimal that has room in the lower half of its bytes, of which the upper half is the sign then."""

_MATCHED = "rows"
"""The number of rows of a group, which exists only where there is one."""


@dataclass(frozen=True, slots=True)
class Measure:
    """`count(*)` without a column, else a function of the values of one."""

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
        return pa.decimal128(MOST_DIGITS, own.scale if pa.types.is_decimal(own) else 0)

    @property
    def is_extreme(self) -> bool:
        return self.function in ("min", "max")

    @property
    def counts_nan(self) -> bool:
        return self.is_extreme and pa.types.is_floating(self.type)


def can_compare(data_type: pa.DataType | None) -> bool:
    """Whether minima and maxima of a type are the same here as in the language."""
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
    """Whether values of a type are keys of groups: of floats there are two zeros, and many NaN."""
    return can_compare(data_type) and not pa.types.is_floating(data_type)


def can_sum(data_type: pa.DataType | None) -> bool:
    """Whether sums of a type are the same here as in the embedded engine, and never fail.

    A sum of wider decimals may have too many digits: to say so is for the engine, in its own words.
    """
    if data_type is None:
        return False
    if pa.types.is_decimal128(data_type):
        return bool(data_type.precision <= _MOST_SUMMED)
    return pa.types.is_signed_integer(data_type) or data_type in (pa.float32(), types.DOUBLE)


def needs_rows(measures: Sequence[Measure], partition_columns: Collection[str]) -> bool:
    """Whether something is summed that metadata does not tell of."""
    return any(
        measure.function == "sum" and measure.column is not None and measure.column.path[0] not in partition_columns
        for measure in measures
    )


@dataclass(frozen=True)
class Partials:
    """Partial results of measures by keys, and what becomes of them."""

    keys: tuple[Column, ...]
    measures: tuple[Measure, ...]

    @cached_property
    def schema(self) -> pa.Schema:
        """Of a partial result."""
        fields = [(f"k{number}", key.type) for number, key in enumerate(self.keys)]
        fields.append((_MATCHED, types.LONG))
        for number, measure in enumerate(self.measures):
            fields.append((f"m{number}", measure.type))
            if measure.counts_nan:
                fields.append((f"n{number}", types.LONG))
        return pa.schema(fields)

    def of_rows(self, batch: pa.RecordBatch) -> pa.Table:
        """The partial result of rows, one row a group."""
        keys = [_values(batch, key) for key in self.keys]
        if batch.num_rows and all(map(_is_one_value, keys)):
            # Most of what is read stands in one partition, and to look for groups in it takes thirty times as long.
            found = [value for measure in self.measures for value in _of_group(measure, batch)]
            values = [pa.scalar(batch.num_rows), *found]
            return self._as_partial([*(key.slice(0, 1) for key in keys), *(pa.repeat(each, 1) for each in values)])
        columns: dict[str, pa.Array] = {f"k{number}": values for number, values in enumerate(keys)}
        columns[_MATCHED] = pa.array(np.ones(batch.num_rows, np.int64))
        for number, measure in enumerate(self.measures):
            columns |= _of_rows(number, measure, batch)
        return self._grouped(pa.table(columns))

    def of_units(self, keys: Sequence[pa.Array], rows: pa.Array, answers: Sequence[Mapping[str, pa.Array]]) -> pa.Table:
        """The partial result of units of which all is known; `answers` are `value`, and `nan` where NaN counts."""
        columns: dict[str, pa.Array] = {f"k{number}": values for number, values in enumerate(keys)}
        columns[_MATCHED] = rows
        for number, (measure, answer) in enumerate(zip(self.measures, answers, strict=True)):
            columns[f"m{number}"] = answer["value"]
            if measure.counts_nan:
                columns[f"n{number}"] = answer["nan"]
        return self.merged([pa.table(columns, schema=self.schema)])

    def merged(self, parts: Sequence[pa.Table]) -> pa.Table:
        """One partial result of several."""
        return self._grouped(pa.concat_tables([self.schema.empty_table(), *parts]).combine_chunks())

    def _grouped(self, rows: pa.Table) -> pa.Table:
        """One row a group. What is summed may be narrower than sums are, if they fit all the same."""
        names = [f"k{number}" for number in range(len(self.keys))]
        ways = [(_MATCHED, "sum")]
        for number, measure in enumerate(self.measures):
            ways.append((f"m{number}", measure.function if measure.is_extreme else "sum"))
            if measure.counts_nan:
                ways.append((f"n{number}", "sum"))
        found = rows.group_by(names, use_threads=False).aggregate(ways)
        columns = [found[name] for name in names] + [found[f"{name}_{way}"] for name, way in ways]
        return self._as_partial(columns)

    def _as_partial(self, columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Table:
        pairs = zip(columns, self.schema, strict=True)
        wide = [column if column.type == field.type else column.cast(field.type) for column, field in pairs]
        return pa.table(wide, schema=self.schema)

    def finished(self, partial: pa.Table) -> pa.Table:
        """The results of a merged partial result: columns `k0`, … and `m0`, …; one row where there are no keys."""
        if self.keys:
            partial = partial.filter(pc.greater(partial[_MATCHED], 0))
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


def _of_group(measure: Measure, batch: pa.RecordBatch) -> list[pa.Scalar]:
    """A measure of all rows of a batch, with the NaN among them where they count."""
    if measure.column is None:
        return [pa.scalar(batch.num_rows)]
    if measure.function == "count":
        return [pc.count(_values(batch, measure.column))]
    reduce = {"sum": pc.sum, "min": pc.min, "max": pc.max}[measure.function]
    if measure.is_extreme and pa.types.is_decimal128(measure.type) and measure.type.precision <= _MOST_IN_A_WORD:
        number = reduce(_in_words(_values(batch, measure.column))).as_py()
        value = None if number is None else Decimal(number).scaleb(-measure.type.scale)
        return [pa.scalar(value, measure.type)]
    first, *rest = _of_rows(0, measure, batch).values()
    return [reduce(first), *map(pc.sum, rest)]


def _in_words(values: pa.Array) -> pa.Array:
    """Decimals without their points, as numbers of 64 bits: Arrow compares those twenty times as fast."""
    words = np.frombuffer(values.buffers()[1], np.int64)[2 * values.offset : 2 * (values.offset + len(values)) : 2]
    return pa.array(words, mask=np.asarray(values.is_null()) if values.null_count else None)


def _of_rows(number: int, measure: Measure, batch: pa.RecordBatch) -> dict[str, pa.Array]:
    if measure.column is None:
        return {f"m{number}": pa.array(np.ones(batch.num_rows, np.int64))}
    values = _values(batch, measure.column)
    if measure.function == "count":
        return {f"m{number}": values.is_valid().cast(types.LONG)}
    if measure.function == "sum":
        return {f"m{number}": _addable(values)}
    if not measure.counts_nan:
        return {f"m{number}": values}
    is_nan = pc.fill_null(pc.is_nan(values), False)
    return {
        f"m{number}": pc.if_else(is_nan, pa.scalar(None, values.type), values),
        f"n{number}": is_nan.cast(types.LONG),
    }


def _values(batch: pa.RecordBatch, column: Column) -> pa.Array:
    values = batch.column(column.path[0])
    return pc.struct_field(values, list(column.path[1:])) if len(column.path) > 1 else values


def _addable(values: pa.Array) -> pa.Array:
    """The values in a type in which no sum of some of them overflows."""
    if values.type != types.LONG:
        # Arrow adds smaller numbers in 64 bits, and no batch has so many rows that these are too few.
        return values
    found = pc.min_max(values).as_py()
    largest = max(abs(found["min"] or 0), abs(found["max"] or 0))
    return values if largest * len(values) < 2**63 else values.cast(pa.decimal128(MOST_DIGITS, 0))
