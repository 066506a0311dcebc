"""Moments as people give them, for tables that can be read as they were."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from tamis.errors import InvalidArgument

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def to_milliseconds(timestamp: datetime | str) -> int:
    """A moment in milliseconds since 1970, rounded down. Without a zone it is meant in UTC.

    >>> to_milliseconds("1970-01-01T00:00:01.5"), to_milliseconds("1970-01-01T01:00:00+01:00")
    (1500, 0)
    """
    moment = timestamp
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment.strip())
        except ValueError as error:
            raise InvalidArgument(
                f"{timestamp!r} is no timestamp: write it as 2024-03-01T12:30:00Z (without a zone it is UTC)"
            ) from error
    if not isinstance(moment, datetime):
        raise InvalidArgument(f"a timestamp is a datetime or text, not {type(timestamp).__name__}")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return (moment - EPOCH) // timedelta(milliseconds=1)


def moment_text(milliseconds: int) -> str:
    """A moment as messages show it.

    >>> moment_text(1500)
    '1970-01-01T00:00:01.500000Z'
    """
    try:
        return (EPOCH + timedelta(milliseconds=milliseconds)).isoformat().replace("+00:00", "Z")
    except OverflowError:
        return f"{milliseconds} ms"
