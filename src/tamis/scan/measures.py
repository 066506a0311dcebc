"""What can be counted and compared of the rows of a scan, and how parts of it are put together.

A *partial result* is a table: the keys of groups, then for each measure the columns that it needs to be merged with
others. NaN is larger than every number, and Arrow's own minima and maxima pass over it, so that it is counted apart:

| measure         | columns                                   | merged by | result                            |
|-----------------|-------------------------------------------|-----------|-----------------------------------|
| `count`         | `m0`: how many                            | sum       | `m0`, 0 where there is no row     |
| `min`, `max`    | `m0`: the value, NULL where there is none | min, max  | `m0`                              |
| `min` of floats | and `n0`: how many NaN                    | and sum   | `m0`; NaN where there is only NaN |
| `max` of floats | and `n0`: how many NaN                    | and sum   | NaN where there is one, else `m0` |
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.nodes import Column

Function: TypeAlias = OneOf["count", "min", "max"]

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
        assert self.column.type is not None
        return self.column.type

    @property
    def counts_nan(self) -> bool:
        return self.function != "count" and pa.types.is_floating(self.type)


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


@dataclass(frozen=True)
class Partials:
    """Partial results of measures by keys, and what becomes of them."""

    keys: tuple[Column, ...]
    measures: tuple[Measure, ...]

    @property
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
        rows = batch.num_rows
        columns: dict[str, pa.Array] = {f"k{number}": _values(batch, key) for number, key in enumerate(self.keys)} | {
            _MATCHED: pa.array(np.ones(rows, np.int64))
        }
        for number, measure in enumerate(self.measures):
            columns |= _of_rows(number, measure, batch)
        return self.merged([pa.table(columns, schema=self.schema)])

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
        joined = pa.concat_tables([self.schema.empty_table(), *parts]).combine_chunks()
        names = [f"k{number}" for number in range(len(self.keys))]
        ways = [(_MATCHED, "sum")]
        for number, measure in enumerate(self.measures):
            ways.append((f"m{number}", "sum" if measure.function == "count" else measure.function))
            if measure.counts_nan:
                ways.append((f"n{number}", "sum"))
        found = joined.group_by(names, use_threads=False).aggregate(ways)
        return pa.table(
            [found[name] for name in names] + [found[f"{name}_{way}"] for name, way in ways], schema=self.schema
        )

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


def _of_rows(number: int, measure: Measure, batch: pa.RecordBatch) -> dict[str, pa.Array]:
    if measure.column is None:
        return {f"m{number}": pa.array(np.ones(batch.num_rows, np.int64))}
    values = _values(batch, measure.column)
    if measure.function == "count":
        return {f"m{number}": values.is_valid().cast(types.LONG)}
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
