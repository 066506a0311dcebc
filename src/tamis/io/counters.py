"""Counters of listings, requests and bytes read, for reports and tests."""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock


@dataclass(frozen=True, slots=True)
class IoCounts:
    """A snapshot of the counters; the difference of two is what happened between them.

    `requests` are round trips: a listing, a look-up of one file, the opening of a remote file (which requests its
    size), and each ranged read. Failed attempts count too.
    """

    listing_calls: int = 0
    requests: int = 0
    bytes_read: int = 0

    def __sub__(self, earlier: IoCounts) -> IoCounts:
        return IoCounts(
            self.listing_calls - earlier.listing_calls,
            self.requests - earlier.requests,
            self.bytes_read - earlier.bytes_read,
        )


class IoCounters:
    """Counters that are shared by threads."""

    __slots__ = ("_counts", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._counts = IoCounts()

    def __reduce__(self) -> tuple[type[IoCounters], tuple[()]]:
        # Another process counts its own work.
        return IoCounters, ()

    def add(self, *, listing_calls: int = 0, requests: int = 0, bytes_read: int = 0) -> None:
        with self._lock:
            counts = self._counts
            self._counts = IoCounts(
                counts.listing_calls + listing_calls, counts.requests + requests, counts.bytes_read + bytes_read
            )

    def add_counts(self, counts: IoCounts) -> None:
        """Add the counts of another process."""
        self.add(listing_calls=counts.listing_calls, requests=counts.requests, bytes_read=counts.bytes_read)

    def counts(self) -> IoCounts:
        """Return a snapshot of all counters."""
        return self._counts

    @property
    def listing_calls(self) -> int:
        return self._counts.listing_calls

    @property
    def requests(self) -> int:
        return self._counts.requests

    @property
    def bytes_read(self) -> int:
        return self._counts.bytes_read
