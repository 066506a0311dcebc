"""A least-recently-used cache, bounded by bytes."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable
from threading import Lock
from typing import Any


class WeightedCache:
    """A cache that evicts the least recently used entries above a number of bytes. It is thread-safe."""

    ENTRY_WEIGHT = 1024
    """The approximate bytes of an entry besides its arrays."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self._weight = 0
        self._entries: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self._lock = Lock()

    def get(self, key: Hashable) -> Any:
        """Return the value of a key, which may be None; raise a KeyError if it is not cached."""
        with self._lock:
            self._entries.move_to_end(key)
            return self._entries[key][0]

    def put(self, key: Hashable, value: object, weight: int, capacity: int | None = None) -> None:
        """Cache a value, and evict others until all fit into the capacity (None: that of the cache)."""
        weight += self.ENTRY_WEIGHT
        capacity = self.capacity if capacity is None else capacity
        if weight > capacity:
            return
        with self._lock:
            _, before = self._entries.pop(key, (None, 0))
            self._entries[key] = (value, weight)
            self._weight += weight - before
            while self._weight > capacity:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._weight -= dropped

    def has_room(self, weight: int, capacity: int) -> bool:
        """Return whether so many more bytes fit into the capacity without evicting anything."""
        with self._lock:
            return self._weight + weight <= capacity

    def clear(self) -> None:
        with self._lock:
            self._entries.clear()
            self._weight = 0
