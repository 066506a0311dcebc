"""Bloom filters from another source than the file: a cache, a sidecar file, a service.

A provider is called once per file, for all filters that could skip a row group.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager
from inspect import iscoroutinefunction
from threading import Lock
from typing import Protocol, TypeAlias

import pyarrow as pa

from tamis.errors import InvalidArgument, add_article, make_argument_error
from tamis.parquet.indexes.bloom_filter import MAX_HEADER_BYTES, BloomFilter, Unavailable, parse_header

Chunk: TypeAlias = tuple[int, int]
"""The numbers of a row group and of a leaf column, in the order of the footer."""

StoredFilter: TypeAlias = BloomFilter | bytes | bytearray | memoryview | pa.Buffer
"""A filter, or its bytes as in a Parquet file: the header and the bitset."""


class BloomFilterProvider(Protocol):
    """A source of Bloom filters."""

    def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, StoredFilter | None]:
        """Return the filters of these column chunks; a chunk without one is missing or None."""
        ...


class AsyncBloomFilterProvider(Protocol):
    """A source of Bloom filters that is awaited on the event loop of `prune_async`."""

    async def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, StoredFilter | None]:
        """Return the filters of these column chunks; a chunk without one is missing or None."""
        ...


def check_provider(provider: BloomFilterProvider | AsyncBloomFilterProvider | None) -> BloomFilterProvider | None:
    """Return a provider that can be called here; one that must be awaited is an error, and so is any other object."""
    method = getattr(provider, "bloom_filters", None)
    if provider is not None and not callable(method):
        raise make_argument_error("bloom_filters", "a provider with a method bloom_filters(chunks)", provider)
    if iscoroutinefunction(method):
        kind = type(provider).__name__
        raise InvalidArgument(f"the provider {kind} is asynchronous: await prune_async() instead of calling prune()")
    return provider  # type: ignore[return-value]  # the asynchronous ones were refused


def fetch_filters(provider: BloomFilterProvider, chunks: Sequence[Chunk]) -> dict[Chunk, BloomFilter | Unavailable]:
    """Return the filters of the chunks that a provider has, from one call."""
    found = provider.bloom_filters(chunks)
    if not isinstance(found, Mapping):
        raise InvalidArgument(
            f"bloom_filters() of {type(provider).__name__} must return a mapping of (row group, column) to filters, "
            f"found {add_article(type(found).__name__)}"
        )
    return {chunk: _to_filter(chunk, given) for chunk in chunks if (given := found.get(chunk)) is not None}


def _to_filter(chunk: Chunk, given: object) -> BloomFilter | Unavailable:
    if isinstance(given, BloomFilter):
        return given
    if not isinstance(given, bytes | bytearray | memoryview | pa.Buffer):
        raise InvalidArgument(
            f"the Bloom filter of row group {chunk[0]}, column {chunk[1]} must be a BloomFilter or bytes, "
            f"found {add_article(type(given).__name__)}"
        )
    content = memoryview(given).cast("B")
    header = parse_header(bytes(content[:MAX_HEADER_BYTES]))
    if isinstance(header, Unavailable):
        return header
    if len(content) != header.size + header.bitset_size:
        expected = header.size + header.bitset_size
        return Unavailable(f"the Bloom filter has {len(content)} bytes, expected {expected} by its header")
    return BloomFilter.from_bytes(content[header.size :])


@contextmanager
def call_from_threads(
    provider: BloomFilterProvider | AsyncBloomFilterProvider | None,
) -> Iterator[BloomFilterProvider | AsyncBloomFilterProvider | None]:
    """Yield a provider that other threads may call while the running event loop awaits an asynchronous one.

    On exit, a call that still runs is cancelled.
    """
    if not iscoroutinefunction(getattr(provider, "bloom_filters", None)):
        yield provider
        return
    awaited = _AwaitedProvider(provider, asyncio.get_running_loop())  # type: ignore[arg-type]
    try:
        yield awaited
    finally:
        awaited.cancel()


class _AwaitedProvider:
    """A provider for threads beside an event loop, on which it awaits an asynchronous provider."""

    def __init__(self, provider: AsyncBloomFilterProvider, loop: asyncio.AbstractEventLoop) -> None:
        self._provider = provider
        self._loop = loop
        self._lock = Lock()
        self._running: Future[Mapping[Chunk, StoredFilter | None]] | None = None
        self._is_cancelled = False

    def bloom_filters(self, chunks: Sequence[Chunk]) -> Mapping[Chunk, StoredFilter | None]:
        with self._lock:
            if self._is_cancelled:
                raise CancelledError
            self._running = asyncio.run_coroutine_threadsafe(self._provider.bloom_filters(chunks), self._loop)
        return self._running.result()

    def cancel(self) -> None:
        with self._lock:
            self._is_cancelled = True
            if self._running is not None:
                self._running.cancel()
