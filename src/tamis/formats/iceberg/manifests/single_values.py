"""Iceberg's binary single-value serialization, in which bounds are stored: decoding whole columns.

| type                        | bytes                                           | also accepted                        |
|-----------------------------|-------------------------------------------------|--------------------------------------|
| boolean                     | one: 0 or 1                                     |                                      |
| int, date                   | 4, little-endian                                |                                      |
| long                        | 8, little-endian                                | 4: it was an int when it was written |
| timestamp                   | 8, little-endian                                | 4: it was a date                     |
| time                        | 8, little-endian                                |                                      |
| float                       | 4                                               |                                      |
| double                      | 8                                               | 4: it was a float                    |
| decimal                     | as many as needed, big-endian, two's complement | any precision                        |
| string                      | UTF-8, possibly truncated                       |                                      |
| binary, fixed, uuid         | the bytes, possibly truncated                   |                                      |

A value of another length, or one that is invalid for the type, becomes null: unknown, which keeps a unit.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.datetime_text import SECONDS_PER_DAY
from tamis.formats.files.data_files import DECIMAL_BYTES, extend_signs
from tamis.formats.source import decode_texts
from tamis.types import UNITS_PER_SECOND

_UNSCALED = pa.decimal128(38, 0)

Bytes = npt.NDArray[np.uint8]
Numbers = npt.NDArray[np.int64]


def decode_values(values: pa.Array, data_type: pa.DataType) -> pa.Array:
    """Decode binary values of a type; invalid ones become null."""
    values = values.cast(types.BINARY)
    if types.is_text(data_type):
        return decode_texts(values)
    if pa.types.is_fixed_size_binary(data_type):
        return _decode_fixed(values, data_type.byte_width)
    if types.is_bytes(data_type):
        return values
    raw = _Raw.of(values)
    if pa.types.is_decimal(data_type):
        return _decode_decimals(raw, data_type)
    if pa.types.is_boolean(data_type):
        return _decode_booleans(raw)
    if pa.types.is_timestamp(data_type):
        return _decode_timestamps(raw, data_type)
    layouts = _LAYOUTS.get(data_type)
    if layouts is None:
        return pa.nulls(len(values), data_type)
    found: npt.NDArray[Any] = np.zeros(len(values), data_type.to_pandas_dtype() if data_type in _PLAIN else layouts[0])
    is_known = np.zeros(len(values), bool)
    for layout in layouts:
        own = raw.lengths == np.dtype(layout).itemsize
        found[own] = raw.numbers(own, layout)
        is_known |= own
    plain = pa.array(found, mask=~is_known)
    return plain if plain.type == data_type else plain.view(data_type)


_PLAIN = frozenset((pa.int32(), types.LONG, pa.float32(), types.DOUBLE))

_LAYOUTS: dict[pa.DataType, tuple[str, ...]] = {
    pa.int32(): ("<i4",),
    types.LONG: ("<i8", "<i4"),
    pa.float32(): ("<f4",),
    types.DOUBLE: ("<f8", "<f4"),
    types.DATE: ("<i4",),
    types.TIME: ("<i8",),
}


class _Raw:
    """The content, start offsets and lengths of binary values; a null has the length -1."""

    def __init__(self, content: Bytes, starts: Numbers, lengths: Numbers) -> None:
        self.content = content
        self.starts = starts
        self.lengths = lengths

    @staticmethod
    def of(values: pa.BinaryArray) -> _Raw:
        buffers = values.buffers()
        offsets = np.frombuffer(buffers[1], np.int32, len(values) + 1, values.offset * 4).astype(np.int64)
        content = np.frombuffer(buffers[2], np.uint8) if buffers[2] is not None else np.zeros(0, np.uint8)
        lengths = np.diff(offsets)
        if values.null_count:
            lengths[np.asarray(values.is_null())] = -1
        return _Raw(content, offsets[:-1], lengths)

    def bytes(self, chosen: npt.NDArray[np.bool_], width: int) -> Bytes:
        """Return the bytes of some values of equal length, as rows."""
        found: Bytes = self.content[self.starts[chosen][:, None] + np.arange(width)]
        return found

    def numbers(self, chosen: npt.NDArray[np.bool_], layout: str) -> npt.NDArray[Any]:
        return np.ascontiguousarray(self.bytes(chosen, np.dtype(layout).itemsize)).view(layout).reshape(-1)


def _decode_booleans(raw: _Raw) -> pa.Array:
    own = raw.lengths == 1
    values = np.zeros(len(own), np.uint8)
    values[own] = raw.bytes(own, 1)[:, 0]
    return pa.array(values == 1, mask=~own | (values > 1))


def _decode_timestamps(raw: _Raw, data_type: pa.TimestampType) -> pa.Array:
    counts = np.zeros(len(raw.lengths), np.int64)
    own, days = raw.lengths == 8, raw.lengths == 4
    counts[own] = raw.numbers(own, "<i8")
    is_known = own.copy()
    if days.any():
        per_day = SECONDS_PER_DAY * UNITS_PER_SECOND[data_type.unit]
        given = raw.numbers(days, "<i4").astype(np.int64)
        fits = np.abs(given) <= (2**63 - 1) // per_day
        counts[days] = np.where(fits, given, 0) * per_day
        is_known[days] = fits
    return pa.array(counts, mask=~is_known).view(data_type)


def _decode_decimals(raw: _Raw, data_type: pa.Decimal128Type) -> pa.Array:
    is_known = (raw.lengths >= 1) & (raw.lengths <= DECIMAL_BYTES)
    content = pa.py_buffer(extend_signs(raw.content, raw.starts, raw.lengths))
    unscaled = pa.Array.from_buffers(_UNSCALED, len(is_known), [None, content])
    largest = pa.scalar(Decimal(10**data_type.precision - 1), _UNSCALED)
    fits = np.asarray(pc.less_equal(pc.abs(unscaled), largest))
    mask = pa.array(is_known & fits).buffers()[1]
    return pa.Array.from_buffers(data_type, len(is_known), [mask, content])


def _decode_fixed(values: pa.BinaryArray, width: int) -> pa.Array:
    """Decode values of fixed length. Truncated bounds are padded with zeros.

    A padded lower bound is not above any value with its prefix, and values below a padded upper bound stay below it.
    """
    raw = _Raw.of(values)
    found = np.zeros((len(values), width), np.uint8)
    is_known = (raw.lengths >= 0) & (raw.lengths <= width)
    for length in np.unique(raw.lengths[is_known]).tolist():
        own = raw.lengths == length
        found[own, :length] = raw.bytes(own, length)
    mask = pa.array(is_known).buffers()[1]
    return pa.Array.from_buffers(pa.binary(width), len(values), [mask, pa.py_buffer(found)])
