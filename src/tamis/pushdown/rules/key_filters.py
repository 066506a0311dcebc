"""Dynamic filters of joins: predicates on a join column, built from the key values of the other side."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import FALSE, Call, Column, Expr, Literal, and_, or_
from tamis.scan.key_sieve import KeySieve

MAX_LISTED_KEYS = 1000
"""Up to this many keys become an IN list. More become ranges: comparing each with row group bounds costs too much."""

MAX_TESTED_KEYS = 100
"""Rows are tested with IN lists of up to this many keys. More keys only prune, and feed a Bloom join filter."""

MAX_KEY_RANGES = 16
"""The most ranges of a predicate. Building each takes about 2 ms, before anything is pruned."""


def build_key_predicate(column: Column, keys: pa.Array | pa.ChunkedArray) -> Expr | None:
    """Return a predicate that is TRUE wherever a column equals one of the keys; None if the type is not supported.

    NULL keys match nothing. Floats are not supported, because 0.0 equals -0.0 and NaN equals itself.
    """
    values = _cast_keys(keys, column.type)
    if values is None:
        return None
    distinct = pc.unique(values.drop_null())
    if isinstance(distinct, pa.ChunkedArray):
        distinct = distinct.combine_chunks()
    if not len(distinct):
        return FALSE
    ordered = distinct.take(pc.array_sort_indices(distinct))
    if len(ordered) <= MAX_LISTED_KEYS:
        items = tuple(_to_literal(value) for value in ordered)
        return Call("=", (column, items[0])) if len(items) == 1 else Call("in", (column, *items))
    return or_(*(_between(column, ordered[first], ordered[last]) for first, last in _split_into_ranges(ordered)))


def build_bloom_filter(column: Column, keys: pa.Array | pa.ChunkedArray) -> KeySieve | None:
    """Return a Bloom join filter of the keys; None if an IN list suffices or the type is not supported."""
    values = _cast_keys(keys, column.type)
    if values is None or not KeySieve.can_hold(values.type):
        return None
    distinct = pc.unique(values)
    return KeySieve(distinct) if len(distinct) > MAX_TESTED_KEYS else None


def _cast_keys(keys: pa.Array | pa.ChunkedArray, data_type: pa.DataType | None) -> pa.Array | None:
    """Return the keys in the type of the column, without keys that this type cannot represent.

    Return None if the types are not supported.
    """
    if data_type is None or not types.is_ordered(data_type) or pa.types.is_floating(data_type):
        return None
    if pa.types.is_boolean(data_type):
        return None
    values = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if values.type == data_type:
        return values
    if types.is_text(values.type) and types.is_text(data_type):
        return values.cast(data_type)
    if not (pa.types.is_integer(values.type) and pa.types.is_integer(data_type)):
        return None
    if pa.types.is_uint64(values.type) or pa.types.is_uint64(data_type):
        return None
    smallest, largest = types.integer_range(data_type)
    values = values.cast(types.LONG)
    fits = pc.and_(pc.greater_equal(values, smallest), pc.less_equal(values, largest))
    return values.filter(fits).cast(data_type)


def _to_literal(value: pa.Scalar) -> Literal:
    return Literal(to_physical_value(value), value.type)


def _between(column: Column, first: pa.Scalar, last: pa.Scalar) -> Expr:
    if first == last:
        return Call("=", (column, _to_literal(first)))
    return and_(Call(">=", (column, _to_literal(first))), Call("<=", (column, _to_literal(last))))


def _split_into_ranges(ordered: pa.Array) -> list[tuple[int, int]]:
    """Return the positions of the first and last key of each range, split at the widest gaps."""
    cuts = np.zeros(0, np.int64)
    numbers = _to_numbers(ordered)
    if numbers is not None:
        gaps = np.diff(numbers)
        widest = np.argsort(-gaps, kind="stable")[: MAX_KEY_RANGES - 1]
        # Adjacent integers are never split.
        cuts = np.sort(widest[gaps[widest] > 1])
    firsts = [0, *(cuts + 1).tolist()]
    lasts = [*cuts.tolist(), len(ordered) - 1]
    return list(zip(firsts, lasts, strict=True))


def _to_numbers(ordered: pa.Array) -> np.ndarray[tuple[int], np.dtype[np.float64]] | None:
    """Return keys as numbers with about the same distances; None for strings and binary, which have no distance."""
    if pa.types.is_decimal(ordered.type):
        numbers: np.ndarray[tuple[int], np.dtype[np.float64]] = np.array([float(each) for each in ordered.to_pylist()])
        return numbers
    if pa.types.is_integer(ordered.type) or pa.types.is_temporal(ordered.type):
        plain = (
            ordered.cast(pa.int32()) if ordered.type.bit_width == 32 and pa.types.is_temporal(ordered.type) else ordered
        )
        return np.asarray(plain.cast(types.LONG) if not pa.types.is_uint64(plain.type) else plain, np.float64)
    return None
