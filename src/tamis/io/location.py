"""Locations in a normal form: `s3a://a/b/` is `s3://a/b`, `file:/a` is `/a`, `./a` is `a`."""

from __future__ import annotations

import re
from dataclasses import dataclass

FILE_SCHEME = "file"

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+):(.*)", re.DOTALL)
_ALIASES = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfss": "abfs", "wasb": "abfs", "wasbs": "abfs"}


def has_scheme(text: str) -> bool:
    """Return whether a location has a scheme, and is not a plain path."""
    return _SCHEME.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Location:
    """A location in a normal form, so that equivalent spellings compare equal."""

    scheme: str
    path: str

    @staticmethod
    def of(text: str) -> Location:
        """
        >>> Location.of("s3a://bucket/table/"), Location.of("file:/data/t"), Location.of("./t")
        (Location(scheme='s3', path='bucket/table'), Location(scheme='file', path='/data/t'), Location(scheme='file', path='t'))
        """  # noqa: E501 - the output of a doctest is one line
        match = _SCHEME.fullmatch(text)
        scheme, rest = (match[1].lower(), match[2]) if match else (FILE_SCHEME, text)
        scheme = _ALIASES.get(scheme, scheme)
        if rest.startswith("//"):
            rest = rest[2:]
        if scheme == FILE_SCHEME:
            rest = rest.removeprefix("localhost") if rest.startswith("localhost/") and match else rest
            rest = f"/{rest.lstrip('/')}" if rest.startswith("/") else rest
        while rest.startswith("./"):
            rest = rest[2:]
        return Location(scheme, rest.rstrip("/") or rest[:1])

    def relative_to(self, other: Location) -> str | None:
        """Return the path relative to another location; None if this location is not below it."""
        prefix = f"{other.path}/"
        return self.path[len(prefix) :] if self.scheme == other.scheme and self.path.startswith(prefix) else None
