"""What a Delta table asks of its readers: a version, and from version 3 on a list of features by name.

| reader version | asks for                                     |
|----------------|----------------------------------------------|
| 1              | nothing                                      |
| 2              | column mapping, where the table turns it on  |
| 3              | every feature of the list `readerFeatures`   |

Whoever reads a table without knowing a feature it asks for gets wrong rows, so an unknown one is an error. What is
asked of writers alone says nothing about reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tamis.errors import CorruptFile, UnsupportedFeature

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
"""The features that may be asked of readers and that Tamis has."""


@dataclass(frozen=True, slots=True)
class Protocol:
    """The `protocol` action of a table."""

    min_reader_version: int
    min_writer_version: int
    reader_features: frozenset[str] | None = None
    """None below version 3, where features have no names."""
    writer_features: frozenset[str] | None = None

    @property
    def has_column_mapping(self) -> bool:
        """Whether the table may map columns: below, the property that turns it on means nothing."""
        if self.min_reader_version >= _FIRST_VERSION_WITH_FEATURES:
            return COLUMN_MAPPING in (self.reader_features or ())
        return self.min_reader_version >= _FIRST_VERSION_WITH_COLUMN_MAPPING

    def check_readable(self, place: str) -> None:
        """An error that names what Tamis lacks to read the table at `place`."""
        if not 1 <= self.min_reader_version <= _FIRST_VERSION_WITH_FEATURES:
            raise UnsupportedFeature(
                f"the Delta table {place} asks for reader version {self.min_reader_version}; Tamis reads versions 1 to "
                f"{_FIRST_VERSION_WITH_FEATURES}. Look for a newer Tamis"
            )
        if self.min_reader_version == _FIRST_VERSION_WITH_FEATURES and self.reader_features is None:
            raise CorruptFile(
                f"the protocol of the Delta table {place} has reader version {self.min_reader_version} and no list of "
                "readerFeatures"
            )
        unknown = sorted((self.reader_features or frozenset()) - READER_FEATURES)
        if unknown:
            named = ", ".join(repr(feature) for feature in unknown)
            raise UnsupportedFeature(
                f"the Delta table {place} asks its readers for {named}, which Tamis does not have. Look for a newer "
                f"Tamis, or drop the feature: ALTER TABLE … DROP FEATURE. Known: {', '.join(sorted(READER_FEATURES))}"
            )


def parse_protocol(action: Mapping[str, Any], place: str = "the log") -> Protocol:
    """The protocol that a `protocol` action declares, from JSON or from a checkpoint's row.

    >>> parse_protocol({"minReaderVersion": 1, "minWriterVersion": 2}).has_column_mapping
    False
    """
    return Protocol(
        _version(action, "minReaderVersion", place),
        _version(action, "minWriterVersion", place),
        _features(action, "readerFeatures", place),
        _features(action, "writerFeatures", place),
    )


def _version(action: Mapping[str, Any], key: str, place: str) -> int:
    match action.get(key):
        case bool():
            pass
        case int() as version:
            return version
    raise CorruptFile(f"the protocol action of {place} has no whole number {key}: found {action.get(key)!r}")


def _features(action: Mapping[str, Any], key: str, place: str) -> frozenset[str] | None:
    match action.get(key):
        case None:
            return None
        case list() | tuple() as names if all(isinstance(name, str) for name in names):
            return frozenset(names)
        case other:
            raise CorruptFile(f"{key} in the protocol action of {place} is no list of names: found {other!r}")
