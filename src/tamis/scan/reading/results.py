"""Rows as other libraries have them, imported when they are asked for.

What a library has no type for is given as a type that holds the same values; where there is none, or where a value does
not fit, the error names the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tamis.errors import MissingDependency, UnsupportedFeature, to_one_line
from tamis.types import type_name_with_article

if TYPE_CHECKING:
    import pandas
    import polars

_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_MICROSECONDS_PER_DAY = 86_400_000_000
_POLARS_DIGITS = 38

_WAY_OUT = "leave it out, cast it in a query, or use to_arrow()"


def pandas_frame(rows: pa.Table) -> pandas.DataFrame:
    """Return the rows as a pandas DataFrame."""
    try:
        import pandas  # noqa: F401  # pyarrow's own error does not say how to get it
    except ImportError as error:
        raise MissingDependency("to_pandas() needs pandas: pip install 'tamis[pandas]'") from error
    # A value without a Python value, or a time zone without one: a day of the year 10000, a nanosecond of a time.
    not_taken = (pa.ArrowException, ValueError, OverflowError, LookupError)
    try:
        return rows.to_pandas()
    except not_taken as error:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            try:
                column.to_pandas()
            except not_taken as reason:
                raise _not_taken("pandas", name, column.type, to_one_line(reason)) from error
        raise UnsupportedFeature(f"pandas does not take the rows: {to_one_line(error)}. Use to_arrow()") from error


def polars_frame(rows: pa.Table) -> polars.DataFrame:
    """Return the rows as a polars DataFrame."""
    try:
        import polars
    except ImportError as error:
        raise MissingDependency("to_polars() needs polars: pip install 'tamis[polars]'") from error
    repeated = [name for index, name in enumerate(rows.column_names) if name in rows.column_names[:index]]
    if repeated:
        raise UnsupportedFeature(
            f"polars has no two columns of one name, and {repeated[0]!r} is there twice: name one of them otherwise "
            "with AS, or use to_arrow()"
        )
    columns = [_for_polars(column, name) for name, column in zip(rows.column_names, rows.columns, strict=True)]
    taken = pa.table(columns, names=rows.column_names)
    try:
        frame = polars.from_arrow(taken)
    except polars.exceptions.PolarsError as error:
        for name in taken.column_names:
            try:
                polars.from_arrow(taken.select([name]))
            except polars.exceptions.PolarsError as reason:
                raise _not_taken("polars", name, rows.schema.field(name).type, to_one_line(reason)) from error
        raise UnsupportedFeature(f"polars does not take the rows: {to_one_line(error)}. Use to_arrow()") from error
    assert isinstance(frame, polars.DataFrame)
    return frame


def _for_polars(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column as a type that polars has. It would not raise an error for some others, but panic."""
    data_type = column.type
    if pa.types.is_interval(data_type):
        return pa.chunked_array([_duration(chunk, name) for chunk in column.chunks], pa.duration("us"))
    if pa.types.is_decimal256(data_type) and data_type.precision <= _POLARS_DIGITS:
        return column.cast(pa.decimal128(data_type.precision, data_type.scale))
    inner = _find_inner(data_type)
    if inner is not None:
        raise _not_taken("polars", name, data_type, f"it has no type for {inner}")
    return column


def _find_inner(data_type: pa.DataType) -> pa.DataType | None:
    """Return the first type that polars has no equal of, also inside of others; None where there is none."""
    if pa.types.is_decimal256(data_type) or pa.types.is_interval(data_type) or pa.types.is_union(data_type):
        return data_type
    inner = (data_type.field(index).type for index in range(data_type.num_fields))
    return next((found for each in inner if (found := _find_inner(each)) is not None), None)


def _duration(intervals: pa.Array, name: str) -> pa.Array:
    """Return intervals as durations, with days of 24 hours. A month is no number of them."""
    values = np.frombuffer(intervals.buffers()[1], _INTERVAL, len(intervals), intervals.offset * _INTERVAL.itemsize)
    is_null = np.asarray(intervals.is_null())
    if np.any(values["months"][~is_null]):
        raise _not_taken("polars", name, intervals.type, "an interval with months has no fixed length")
    if np.any(values["nanoseconds"][~is_null] % 1000):
        raise _not_taken("polars", name, intervals.type, "an interval has nanoseconds")
    # Neither the days nor the nanoseconds of an interval are so many that the sum does not fit.
    microseconds = values["days"].astype(np.int64) * _MICROSECONDS_PER_DAY + values["nanoseconds"] // 1000
    return pa.array(microseconds, mask=is_null).cast(pa.duration("us"))


def _not_taken(library: str, column: str, data_type: pa.DataType, reason: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{library} does not take the column {column!r}, {type_name_with_article(data_type)}: {reason}. "
        f"{_WAY_OUT.capitalize()}"
    )
