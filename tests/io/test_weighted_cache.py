"""The cache keeps the most recently used entries within its capacity."""

from __future__ import annotations

import pytest

from tamis.io.weighted_cache import WeightedCache

WEIGHT = 5_000
FULL = WEIGHT + WeightedCache.ENTRY_WEIGHT


def has(cache: WeightedCache, key: str) -> bool:
    try:
        return cache.get(key) is not None
    except KeyError:
        return False


def test_the_least_recently_used_entry_is_evicted() -> None:
    cache = WeightedCache(capacity=2 * FULL)
    cache.put("a", "first", WEIGHT)
    cache.put("b", "second", WEIGHT)
    assert cache.get("a") == "first"
    cache.put("c", "third", WEIGHT)
    assert [has(cache, key) for key in "abc"] == [True, False, True]
    # An entry that is put again is counted once.
    cache.put("c", "fourth", WEIGHT)
    assert [has(cache, key) for key in "abc"] == [True, False, True]
    cache.clear()
    assert not has(cache, "a")


@pytest.mark.parametrize("weight", [WEIGHT + 1, 10 * WEIGHT])
def test_an_entry_larger_than_the_capacity_is_not_kept_and_evicts_nothing(weight: int) -> None:
    cache = WeightedCache(capacity=FULL)
    cache.put("small", "kept", WEIGHT)
    cache.put("large", "dropped", weight)
    assert [has(cache, key) for key in ("small", "large")] == [True, False]
