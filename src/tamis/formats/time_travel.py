"""Timestamps given by users for time travel."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tamis.errors import InvalidArgument

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_milliseconds(timestamp: datetime | str) -> int:
    """Convert a timestamp to milliseconds since 1970, rounded down. Without a zone it is UTC.

    >>> to_milliseconds("1970-01-01T00:00:01.5"), to_milliseconds("1970-01-01T01:00:00+01:00")
    (1500, 0)
    """
    parsed = timestamp
    if isinstance(parsed, str):
        try:
            parsed = datetime.fromisoformat(parsed.strip())
        except ValueError as error:
            raise InvalidArgument(
                f"invalid timestamp {timestamp!r}: write it as 2024-03-01T12:30:00Z (without a zone it is UTC)"
            ) from error
    if not isinstance(parsed, datetime):
        raise InvalidArgument(f"a timestamp must be a datetime or a string, found {type(timestamp).__name__}")
    if parsed.tzinfo is None:
        parsed = parsed.replace(tzinfo=UTC)
    return (parsed - EPOCH) // timedelta(milliseconds=1)


def format_milliseconds(milliseconds: int) -> str:
    """Format a timestamp for messages.

    >>> format_milliseconds(1500)
    '1970-01-01T00:00:01.500000Z'
    """
    try:
        return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{milliseconds} ms"
