"""Vectorised conversion of page bounds from the bytes in a column index to arrays of the table's type.

The rules are those of `tamis.parquet.bounds`, which converts one pair at a time. If the table has the type of the file,
as nearly always, whole columns are converted here by the same rules; all other pairs are converted there.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.parquet.bounds import UNKNOWN, BoundsReader
from tamis.parquet.leaves import Leaf

Mask = npt.NDArray[np.bool_]


class BoundsArrays(NamedTuple):
    """Bounds with one row per page; null is unknown."""

    lower: pa.Array
    upper: pa.Array
    lower_exact: pa.Array
    upper_exact: pa.Array


_STORED = {"BOOLEAN": "u1", "INT32": "<i4", "INT64": "<i8", "FLOAT": "<f4", "DOUBLE": "<f8"}


def convert_raw_bounds(
    reader: BoundsReader, leaf: Leaf, minima: Sequence[bytes], maxima: Sequence[bytes], known: Mask
) -> BoundsArrays:
    """Return the bounds of the pages; pages that are not `known` have none."""
    stored = "<f2" if pa.types.is_float16(reader.source) else _STORED.get(leaf.physical)
    if leaf.physical == "BYTE_ARRAY":
        found = _convert_bytes(reader, minima, maxima, known)
        return found if found is not None else _convert_each(reader, minima, maxima, known)
    width = leaf.length if stored is None else np.dtype(stored).itemsize
    # Bounds of another length have another type, or are truncated.
    fits = np.array([len(low) == width == len(high) for low, high in zip(minima, maxima, strict=True)], np.bool_)
    known = known & fits
    if stored is None:
        return _convert_each(reader, minima, maxima, known)
    lows, highs = (_decode_fixed(values, known, width, stored) for values in (minima, maxima))
    if leaf.physical == "BOOLEAN":
        known = known & (lows <= 1) & (highs <= 1)
    if leaf.needs_rebase or not _has_same_storage(reader.source, reader.target):
        # `reader` expects what pyarrow returns for a statistic: the bytes of a float16, otherwise the number.
        if pa.types.is_float16(reader.source):
            return _convert_each(reader, minima, maxima, known)
        return _convert_each(reader, lows.tolist(), highs.tolist(), known)
    if pa.types.is_floating(reader.source):
        return _convert_floats(reader, lows, highs, known)
    return _convert_integers(reader, lows, highs, known)


def _convert_each(reader: BoundsReader, lows: Sequence[Any], highs: Sequence[Any], known: Mask) -> BoundsArrays:
    pairs = zip(lows, highs, known.tolist(), strict=True)
    bounds = [reader.bounds(low, high) if is_known else UNKNOWN for low, high, is_known in pairs]
    return BoundsArrays(
        reader.array([bound[0] for bound in bounds]),
        reader.array([bound[1] for bound in bounds]),
        pa.array([bound[2] for bound in bounds], types.BOOLEAN),
        pa.array([bound[3] for bound in bounds], types.BOOLEAN),
    )


def _decode_fixed(values: Sequence[bytes], known: Mask, width: int, stored: str) -> npt.NDArray[Any]:
    zeros = bytes(width)
    joined = b"".join([value if is_known else zeros for value, is_known in zip(values, known.tolist(), strict=True)])
    return np.frombuffer(joined, stored)


def _has_same_storage(source: pa.DataType, target: pa.DataType) -> bool:
    """Return whether a value has the same stored number in both types."""
    if pa.types.is_timestamp(source) and pa.types.is_timestamp(target):
        # The compatibility of the zones was checked when the reader was created.
        return bool(source.unit == target.unit)
    return bool(source == target) and not pa.types.is_decimal(source)


def _make_array(values: npt.NDArray[Any], unknown: Mask, target: pa.DataType) -> pa.Array:
    storage = target
    if pa.types.is_temporal(target):
        storage = pa.int32() if target.bit_width == 32 else types.LONG
    return pa.array(values.astype(storage.to_pandas_dtype()), storage, mask=unknown).view(target)


def _make_exact(exact: Mask, unknown: Mask) -> pa.Array:
    return pa.array(exact, types.BOOLEAN, mask=unknown)


def _convert_floats(reader: BoundsReader, lows: npt.NDArray[Any], highs: npt.NDArray[Any], known: Mask) -> BoundsArrays:
    # A comparison with NaN is false, so a NaN drops the pair too.
    unknown = ~(known & (lows <= highs))
    # Writers that treat both zeros as equal may write either, so each bound uses the outer zero.
    low_is_zero, high_is_zero = lows == 0, highs == 0
    lows, highs = (
        np.where(low_is_zero, lows.dtype.type(-0.0), lows),
        np.where(high_is_zero, lows.dtype.type(0.0), highs),
    )
    return BoundsArrays(
        _make_array(lows, unknown, reader.target),
        _make_array(highs, unknown, reader.target),
        _make_exact(~low_is_zero, unknown),
        _make_exact(~high_is_zero, unknown),
    )


def _convert_integers(
    reader: BoundsReader, lows: npt.NDArray[Any], highs: npt.NDArray[Any], known: Mask
) -> BoundsArrays:
    source, target = reader.source, reader.target
    low_in_range = high_in_range = np.ones(len(known), np.bool_)
    if pa.types.is_integer(source):
        if pa.types.is_unsigned_integer(source):
            # Parquet has no unsigned physical types, so the bytes are reinterpreted.
            lows, highs = lows.view(f"<u{lows.itemsize}"), highs.view(f"<u{highs.itemsize}")
        smallest, largest = types.integer_range(source)
        known = known & (lows >= smallest) & (lows <= largest) & (highs >= smallest) & (highs <= largest)
    elif not pa.types.is_boolean(source):
        smallest, largest = _time_range(target)
        low_in_range = (lows >= smallest) & (lows <= largest)
        high_in_range = (highs >= smallest) & (highs <= largest)
    known = known & (lows <= highs)
    no_lower, no_upper = ~(known & low_in_range), ~(known & high_in_range)
    exact = np.ones(len(known), np.bool_)
    return BoundsArrays(
        _make_array(lows, no_lower, target),
        _make_array(highs, no_upper, target),
        _make_exact(exact, no_lower),
        _make_exact(exact, no_upper),
    )


_PER_DAY = {"s": 86_400, "ms": 86_400_000, "us": 86_400_000_000, "ns": 86_400_000_000_000}


def _time_range(target: pa.DataType) -> tuple[int, int]:
    if pa.types.is_time(target):
        return 0, _PER_DAY[target.unit] - 1
    # Some libraries use the smallest integer as NaT ("not a time").
    largest = int(2 ** (target.bit_width - 1) - 1)
    return -largest, largest


def _convert_bytes(
    reader: BoundsReader, minima: Sequence[bytes], maxima: Sequence[bytes], known: Mask
) -> BoundsArrays | None:
    """Convert string and binary bounds; None for other types, or if a bound is not valid UTF-8."""
    target = reader.target
    if not (types.is_text(target) or pa.types.is_binary(target) or pa.types.is_large_binary(target)):
        return None
    if not pa.types.is_binary(reader.source):
        return None
    lows, highs = (pa.array(values, types.BINARY, mask=~known) for values in (minima, maxima))
    ordered = pc.less_equal(lows, highs)
    unknown = ~np.asarray(ordered.fill_null(False).to_numpy(zero_copy_only=False), np.bool_)
    if unknown.any():
        nothing = pa.scalar(None, types.BINARY)
        lows, highs = pc.if_else(ordered, lows, nothing), pc.if_else(ordered, highs, nothing)
    try:
        lower, upper = (values.cast(target) for values in (lows, highs))
    except pa.ArrowInvalid:
        # A bound was truncated within a character.
        return None
    # Bounds of bytes may be truncated, and the index does not record it.
    inexact = _make_exact(np.zeros(len(known), np.bool_), unknown)
    return BoundsArrays(lower, upper, inexact, inexact)
