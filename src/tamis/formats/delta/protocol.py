"""The protocol of a Delta table: the reader version and the table features that a reader must support.

| reader version | requires                                     |
|----------------|----------------------------------------------|
| 1              | nothing                                      |
| 2              | column mapping, where the table enables it   |
| 3              | every feature of the list `readerFeatures`   |

A reader that ignores a required feature returns wrong rows, so an unsupported feature is an error. Features that only
writers must support do not matter here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tamis.errors import UnsupportedFeature
from tamis.formats.errors import make_corrupt_log_error

COLUMN_MAPPING = "columnMapping"

_FIRST_VERSION_WITH_COLUMN_MAPPING = 2
_FIRST_VERSION_WITH_FEATURES = 3

READER_FEATURES = frozenset(
    {
        COLUMN_MAPPING,
        "deletionVectors",
        "timestampNtz",
        "typeWidening",
        "typeWidening-preview",
        "v2Checkpoint",
        "vacuumProtocolCheck",
        "variantType",
        "variantType-preview",
        "variantShredding",
        "variantShredding-preview",
    }
)
"""The reader features that Tamis supports."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The `protocol` action of a table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    """None below version 3, which has no feature list."""
    writer_features: frozenset[str] | None = None

    @property
    def has_column_mapping(self) -> bool:
        """Whether the protocol allows column mapping; if not, the table property that enables it has no effect."""
        if self.min_reader_version >= _FIRST_VERSION_WITH_FEATURES:
            return COLUMN_MAPPING in (self.reader_features or ())
        return self.min_reader_version >= _FIRST_VERSION_WITH_COLUMN_MAPPING

    def check_readable(self, location: str) -> None:
        """Raise an error that names what the table at `location` requires and Tamis does not support."""
        if not 1 <= self.min_reader_version <= _FIRST_VERSION_WITH_FEATURES:
            raise UnsupportedFeature(
                f"the Delta table {location} requires reader version {self.min_reader_version}; Tamis supports "
                f"versions 1 to {_FIRST_VERSION_WITH_FEATURES}. Look for a newer Tamis"
            )
        if self.min_reader_version == _FIRST_VERSION_WITH_FEATURES and self.reader_features is None:
            raise make_corrupt_log_error(
                f"the protocol of the Delta table {location} has reader version {self.min_reader_version}, but no list "
                "readerFeatures"
            )
        unknown = sorted((self.reader_features or frozenset()) - READER_FEATURES)
        if unknown:
            named = ", ".join(repr(feature) for feature in unknown)
            raise UnsupportedFeature(
                f"the Delta table {location} requires {named}, which Tamis does not support. Look for a newer Tamis, "
                f"or drop the feature: ALTER TABLE … DROP FEATURE. Supported: {', '.join(sorted(READER_FEATURES))}"
            )


def parse_protocol(action: Mapping[str, Any], location: str = "the log") -> Protocol:
    """Parse a `protocol` action, from JSON or from a checkpoint's row.

    >>> parse_protocol({"minReaderVersion": 1, "minWriterVersion": 2}).has_column_mapping
    False
    """
    return Protocol(
        _parse_version(action, "minReaderVersion", location),
        _parse_version(action, "minWriterVersion", location),
        _parse_features(action, "readerFeatures", location),
        _parse_features(action, "writerFeatures", location),
    )


def _parse_version(action: Mapping[str, Any], key: str, location: str) -> int:
    match action.get(key):
        case bool():
            pass
        case int() as version:
            return version
    raise make_corrupt_log_error(f"the protocol action of {location} has an invalid {key}: found {action.get(key)!r}")


def _parse_features(action: Mapping[str, Any], key: str, location: str) -> frozenset[str] | None:
    match action.get(key):
        case None:
            return None
        case list() | tuple() as names if all(isinstance(name, str) for name in names):
            return frozenset(names)
        case other:
            raise make_corrupt_log_error(
                f"{key} in the protocol action of {location} is not a list of names: found {other!r}"
            )
