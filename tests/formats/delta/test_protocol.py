"""Which tables may be read: reader versions, and features by name."""

from __future__ import annotations

from typing import Any

import pytest

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.formats.delta.snapshot import READER_FEATURES, Protocol, parse_protocol


def make_protocol(*features: str) -> Protocol:
    return parse_protocol({"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": list(features)})


@pytest.mark.parametrize("version", [1, 2])
def test_versions_without_features_are_readable(version: int) -> None:
    protocol = parse_protocol({"minReaderVersion": version, "minWriterVersion": 2, "readerFeatures": None})
    assert protocol.reader_features is None
    protocol.check_readable("t")


def test_every_known_feature_is_readable() -> None:
    make_protocol(*READER_FEATURES).check_readable("t")
    make_protocol().check_readable("t")


@pytest.mark.parametrize(
    "feature", ["columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint"]
)
def test_the_features_of_todays_tables_are_known(feature: str) -> None:
    make_protocol(feature).check_readable("t")


def test_D13_an_unknown_reader_feature_is_named() -> None:
    with pytest.raises(UnsupportedFeature, match=r"s3://lake/t requires 'catalogManaged', 'futureThing'"):
        make_protocol("futureThing", "deletionVectors", "catalogManaged").check_readable("s3://lake/t")


def test_D13_an_unknown_writer_feature_is_ignored() -> None:
    parse_protocol(
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": ["deletionVectors"],
            "writerFeatures": ["deletionVectors", "futureThing"],
        }
    ).check_readable("t")
    parse_protocol({"minReaderVersion": 1, "minWriterVersion": 99}).check_readable("t")


@pytest.mark.parametrize("version", [0, 4, 1000])
def test_D13_another_reader_version_is_named(version: int) -> None:
    with pytest.raises(UnsupportedFeature, match=f"requires reader version {version}; Tamis supports versions 1 to 3"):
        parse_protocol({"minReaderVersion": version, "minWriterVersion": 2}).check_readable("t")


def test_version_3_needs_its_list() -> None:
    with pytest.raises(CorruptFile, match="no list readerFeatures"):
        parse_protocol({"minReaderVersion": 3, "minWriterVersion": 7}).check_readable("t")


@pytest.mark.parametrize(
    "action",
    [
        {},
        {"minReaderVersion": "1", "minWriterVersion": 2},
        {"minReaderVersion": True, "minWriterVersion": 2},
        {"minReaderVersion": 1},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": "deletionVectors"},
        {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": [1]},
    ],
)
def test_an_invalid_protocol_is_corrupt(action: dict[str, Any]) -> None:
    with pytest.raises(CorruptFile, match="t/_delta_log"):
        parse_protocol(action, "t/_delta_log")


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        (Protocol(1), False),
        (Protocol(2), True),
        (Protocol(3, frozenset()), False),
        (Protocol(3, frozenset({"columnMapping"})), True),
    ],
)
def test_which_protocols_allow_column_mapping(protocol: Protocol, expected: bool) -> None:
    assert protocol.has_column_mapping is expected
