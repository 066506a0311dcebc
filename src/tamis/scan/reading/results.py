"""Conversion of rows for pandas, polars and DuckDB, which are imported on first use.

A type that the library lacks is converted to one that holds the same values. If there is none, or a value does not
fit, the error names the column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from tamis.errors import UnsupportedFeature, make_missing_package_error, to_one_line
from tamis.types import type_name_with_article

if TYPE_CHECKING:
    import pandas
    import polars

_INTERVAL = np.dtype([("months", "<i4"), ("days", "<i4"), ("nanoseconds", "<i8")])
_MICROSECONDS_PER_DAY = 86_400_000_000
_POLARS_DIGITS = 38

_HINT = "leave it out, cast it in a query, or use to_arrow()"


def to_pandas_frame(rows: pa.Table) -> pandas.DataFrame:
    """Return the rows as a pandas DataFrame."""
    try:
        import pandas  # noqa: F401  # pyarrow's own error does not say how to install it
    except ImportError as error:
        raise make_missing_package_error("to_pandas()", "pandas") from error
    # Values or time zones that Python lacks: a day in the year 10000, a nanosecond of a time.
    conversion_errors = (pa.ArrowException, ValueError, OverflowError, LookupError)
    try:
        return rows.to_pandas()
    except conversion_errors as error:
        for name, column in zip(rows.column_names, rows.columns, strict=True):
            try:
                column.to_pandas()
            except conversion_errors as reason:
                raise _make_conversion_error("pandas", name, column.type, to_one_line(reason)) from error
        raise UnsupportedFeature(f"pandas cannot hold the rows: {to_one_line(error)}. Use to_arrow()") from error


def to_polars_frame(rows: pa.Table) -> polars.DataFrame:
    """Return the rows as a polars DataFrame."""
    try:
        import polars
    except ImportError as error:
        raise make_missing_package_error("to_polars()", "polars") from error
    repeated = [name for index, name in enumerate(rows.column_names) if name in rows.column_names[:index]]
    if repeated:
        raise UnsupportedFeature(
            f"polars does not allow duplicate column names, found {repeated[0]!r} twice: rename one of them "
            "with AS, or use to_arrow()"
        )
    columns = [_convert_for_polars(column, name) for name, column in zip(rows.column_names, rows.columns, strict=True)]
    converted = pa.table(columns, names=rows.column_names)
    try:
        frame = polars.from_arrow(converted)
    except polars.exceptions.PolarsError as error:
        for name in converted.column_names:
            try:
                polars.from_arrow(converted.select([name]))
            except polars.exceptions.PolarsError as reason:
                raise _make_conversion_error(
                    "polars", name, rows.schema.field(name).type, to_one_line(reason)
                ) from error
        raise UnsupportedFeature(f"polars cannot hold the rows: {to_one_line(error)}. Use to_arrow()") from error
    assert isinstance(frame, polars.DataFrame)
    return frame


def _convert_for_polars(column: pa.ChunkedArray, name: str) -> pa.ChunkedArray:
    """Return a column in a type that polars supports. For some others polars panics instead of raising an error."""
    data_type = column.type
    if pa.types.is_interval(data_type):
        return pa.chunked_array([_to_duration(chunk, name) for chunk in column.chunks], pa.duration("us"))
    if pa.types.is_decimal256(data_type) and data_type.precision <= _POLARS_DIGITS:
        return column.cast(pa.decimal128(data_type.precision, data_type.scale))
    inner = _find_unsupported_type(data_type)
    if inner is not None:
        raise _make_conversion_error("polars", name, data_type, f"it has no type for {inner}")
    return column


def _find_unsupported_type(data_type: pa.DataType) -> pa.DataType | None:
    """Return the first type, nested ones included, that polars does not support; None if it supports all."""
    if pa.types.is_decimal256(data_type) or pa.types.is_interval(data_type) or pa.types.is_union(data_type):
        return data_type
    inner = (data_type.field(index).type for index in range(data_type.num_fields))
    return next((found for each in inner if (found := _find_unsupported_type(each)) is not None), None)


def _to_duration(intervals: pa.Array, name: str) -> pa.Array:
    """Return intervals as durations with days of 24 hours. Months have no fixed length."""
    values = np.frombuffer(intervals.buffers()[1], _INTERVAL, len(intervals), intervals.offset * _INTERVAL.itemsize)
    is_null = np.asarray(intervals.is_null())
    if np.any(values["months"][~is_null]):
        raise _make_conversion_error("polars", name, intervals.type, "an interval with months has no fixed length")
    if np.any(values["nanoseconds"][~is_null] % 1000):
        raise _make_conversion_error("polars", name, intervals.type, "an interval has nanoseconds")
    # The ranges of days and nanoseconds are too small for the sum to overflow.
    microseconds = values["days"].astype(np.int64) * _MICROSECONDS_PER_DAY + values["nanoseconds"] // 1000
    return pa.array(microseconds, mask=is_null).cast(pa.duration("us"))


def _make_conversion_error(library: str, column: str, data_type: pa.DataType, reason: str) -> UnsupportedFeature:
    return UnsupportedFeature(
        f"{library} cannot hold the column {column!r}, {type_name_with_article(data_type)}: {reason}. "
        f"{_HINT.capitalize()}"
    )
