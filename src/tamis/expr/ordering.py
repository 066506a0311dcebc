"""The order of literal values: NaN is the largest number, texts compare by code point, FALSE before TRUE."""

from __future__ import annotations

from typing import Any


def sort_key(value: Any) -> tuple[bool, Any]:
    """Return a key that sorts values of one type, NaN last.

    >>> sorted([2.0, float("nan"), 1.0], key=sort_key)
    [1.0, 2.0, nan]
    """
    is_nan = value != value
    return (is_nan, 0 if is_nan else value)


def is_less(left: Any, right: Any) -> bool:
    return sort_key(left) < sort_key(right)
