"""A snapshot: an immutable view of a Delta table at one version.

Loading a snapshot lists the log and reads the commits after the checkpoint and the footers of the checkpoint. The live
files are determined lazily. Later commits do not change a snapshot; `refresh` derives a newer one from it and reads
only the commits that were added since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa

from tamis.errors import CorruptFile, InvalidArgument, MissingFile, UnsupportedFeature, VersionNotFound
from tamis.formats.delta.checkpoint import OpenedCheckpoint, open_checkpoint
from tamis.formats.delta.log.actions import decode_file_actions
from tamis.formats.delta.log.commit_timestamps import (
    find_timestamp,
    find_version_at,
    read_history,
    timestamp_from_milliseconds,
)
from tamis.formats.delta.log.commits import ActionLines, read_actions
from tamis.formats.delta.log.log_segment import (
    LogFile,
    LogListing,
    LogSegment,
    find_candidate_segments,
    find_deltas,
    list_log,
)
from tamis.formats.delta.log.replay import FileChanges, reconcile
from tamis.formats.delta.planning.file_batches import FilePart
from tamis.formats.delta.schema import TableMetadata, parse_configuration, parse_metadata
from tamis.formats.errors import make_corrupt_log_error
from tamis.formats.time_travel import to_milliseconds
from tamis.io.storage import Storage
from tamis.io.weighted_cache import WeightedCache

# --- Protocol -------------------------------------------------------------------------------------------------------
#
# The protocol of a Delta table: the reader version and the table features that a reader must support.
#
# | reader version | requires                                     |
# |----------------|----------------------------------------------|
# | 1              | nothing                                      |
# | 2              | column mapping, where the table enables it   |
# | 3              | every feature of the list `readerFeatures`   |
#
# A reader that ignores a required feature returns wrong rows, so an unsupported feature is an error. Features that only
# writers must support do not matter here.


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


@dataclass(frozen=True, slots=True)
class Protocol:
    """The `protocol` action of a table."""

    min_reader_version: int
    reader_features: frozenset[str] | None = None
    """None below version 3, which has no feature list."""

    @property
    def has_column_mapping(self) -> bool:
        """Return whether the protocol allows column mapping; if not, the property that enables it has no effect."""
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
    for key in ("minReaderVersion", "minWriterVersion"):
        if not isinstance(action.get(key), int) or isinstance(action[key], bool):
            raise make_corrupt_log_error(
                f"the protocol action of {location} has an invalid {key}: found {action.get(key)!r}"
            )
    for key in ("readerFeatures", "writerFeatures"):
        names = action.get(key)
        if names is not None and not (isinstance(names, list | tuple) and all(isinstance(each, str) for each in names)):
            raise make_corrupt_log_error(
                f"{key} in the protocol action of {location} is not a list of names: found {names!r}"
            )
    features = action.get("readerFeatures")
    return Protocol(action["minReaderVersion"], None if features is None else frozenset(features))


logger = logging.getLogger("tamis")

Loaded = TypeVar("Loaded")


CHANGES_CACHE = WeightedCache(capacity=32 * 1024 * 1024)
"""Small sets of decoded commits, cached for this process."""


class _Lazy:
    """File changes that are computed on first use, by one thread; their inputs are released then."""

    def __init__(self, compute: Callable[[], FileChanges], links: Sequence[_Lazy] = ()) -> None:
        self._lock = Lock()
        self._compute: Callable[[], FileChanges] | None = compute
        self._found: FileChanges | None = None
        self._links = tuple(links) or (self,)

    def __call__(self) -> FileChanges:
        with self._lock:
            if self._found is None:
                assert self._compute is not None
                self._found = self._compute()
                self._compute, self._links = None, (self,)
            return self._found

    def merge_newer(self, newer: _Lazy) -> _Lazy:
        """Return these changes followed by newer ones. Chains of any length are computed without recursion."""
        links = (*self._links, newer)

        def compute() -> FileChanges:
            found = links[0]()
            for link in links[1:]:
                found = found.merge_newer(link())
            return found

        return _Lazy(compute, links)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A table at one version. It is thread-safe."""

    storage: Storage
    version: int
    segment: LogSegment
    protocol: Protocol
    metadata: TableMetadata
    _listing: LogListing = field(repr=False)
    _opened: OpenedCheckpoint | None = field(repr=False)
    _changes: _Lazy = field(repr=False)
    _top: _Lazy = field(repr=False)
    """The files that a JSON top file of the checkpoint adds itself."""
    _actions: Mapping[str, dict[str, Any]] = field(repr=False)
    """The actions that `protocol` and `metadata` were parsed from."""
    domains: Mapping[str, object] = field(default_factory=dict, repr=False)
    """The configuration of each domain, such as `delta.clustering`, as its writer wrote it."""

    @staticmethod
    def load(storage: Storage, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """Load the newest version, a given one, or the newest one at a timestamp (without a zone: UTC)."""
        if version is not None and timestamp is not None:
            raise InvalidArgument("expected a version or a timestamp, found both: give one of them")
        if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 0):
            raise InvalidArgument(f"a version must be an integer >= 0, found {version!r}")
        try:
            return _load_wanted(storage, version, timestamp)
        except MissingFile:
            # A listed file may have been cleaned up before it was read.
            return _load_wanted(storage, version, timestamp)

    def refresh(self) -> Snapshot:
        """Return the newest version, which is this same snapshot if there are no new commits.

        Reads new commits only.
        """
        listing = list_log(self.storage)
        if listing.latest == self.version and self._is_same_table(listing):
            return self
        if listing.latest < self.version or not self._is_same_table(listing):
            return _load(listing, None)  # the table was replaced by another
        if self.segment.checkpoint is not None and self.segment.checkpoint not in listing.checkpoints:
            return _load(listing, None)  # the checkpoint was cleaned up or rewritten: a newer one replaces it
        if len(self.segment.deltas) > self.storage.tuning.max_commits_since_checkpoint and any(
            checkpoint.version >= self.version for checkpoint in listing.checkpoints
        ):
            return _load(listing, None)  # otherwise the commits since the checkpoint would grow without limit
        try:
            deltas = find_deltas(listing, self.version, listing.latest)
            lines = read_actions(self.storage, deltas)
            actions = {name: lines.get_newest(name) or self._actions[name] for name in self._actions}
            protocol, metadata = _parse(self.storage, actions)
            if get_physical_partition_names(metadata) != get_physical_partition_names(self.metadata):
                return _load(listing, None)  # older commits were decoded for other partition columns
            newer = _make_lazy_changes(lines, metadata)
        except (CorruptFile, MissingFile):
            # The commits were cleaned up meanwhile, and a newer checkpoint replaces them. Or one is damaged, and other
            # files have the same actions.
            return _load(list_log(self.storage), None)
        segment = LogSegment(listing.latest, self.segment.checkpoint, (*self.segment.deltas, *deltas))
        return replace(
            self,
            version=listing.latest,
            segment=segment,
            protocol=protocol,
            metadata=metadata,
            _listing=listing,
            _changes=self._changes.merge_newer(newer),
            _actions=actions,
            domains=_update_domains(self.domains, lines.all("domainMetadata")),
        )

    def _is_same_table(self, listing: LogListing) -> bool:
        """Return whether a listing is of the same table: its commit of this version is unchanged, or was cleaned up."""
        was, now = self._listing.get_commit(self.version), listing.get_commit(self.version)
        return was is None or now is None or (was.size, was.modified_ns) == (now.size, now.modified_ns)

    @property
    def timestamp(self) -> datetime | None:
        """The in-commit timestamp or modification time of the version's commit; None if the commit no longer exists."""
        return self.find_timestamp(self.version)

    @property
    def changes(self) -> FileChanges:
        """The reconciled file actions of the commits after the checkpoint."""
        return self._changes()

    def list_parts(self) -> list[FilePart]:
        """Return the parts that hold the live files: the commits first, then the files of the checkpoint."""
        changes = self.changes
        found: list[FilePart] = []
        if self.segment.deltas:
            source: Hashable = ("commits", self.storage.uri, changes.identity)
            size = sum(file.size for file in self.segment.deltas)
            found.append(FilePart(self.storage, source, None, size, changes=changes))
        if self._opened is None:
            return found
        touched, newer = changes.touched, self.segment.deltas
        top = self._opened.lines
        if top is not None and top.num_file_actions:
            file = top.files[0]
            source = self._make_source_key(file)
            found.append(FilePart(self.storage, source, newer, file.size, file, self._top(), touched))
        for file in self._opened.parts:
            found.append(FilePart(self.storage, self._make_source_key(file), newer, file.size, file, None, touched))
        return found

    @property
    def note(self) -> str | None:
        """A note on the checkpoint for the report."""
        return None if self._opened is None else self._opened.note

    def _make_source_key(self, file: LogFile) -> Hashable:
        return ("checkpoint", self.storage.uri, file)

    def read_commits(self, first: int, last: int) -> ActionLines:
        """Return the lines of the commits of some versions up to this one."""
        files = [self._listing.get_commit(version) for version in range(first, last + 1)]
        if None in files:
            raise VersionNotFound(
                f"commit {first + files.index(None)} of {self.storage.uri} is gone: the log was cleaned up. Start at a "
                "later version"
            )
        return read_actions(self.storage, [file for file in files if file is not None])

    def find_timestamp(self, version: int) -> datetime | None:
        """Return the in-commit timestamp or modification time of a version; None if its commit no longer exists."""
        found = find_timestamp(self._listing, self.metadata.configuration, version)
        return None if found is None else timestamp_from_milliseconds(found)

    def history(self, limit: int | None = None) -> pa.Table:
        """Return the commits up to this version that still exist, newest first: see
        `tamis.formats.delta.log.commit_timestamps`."""
        return read_history(self._listing, self.metadata.configuration, self.version, limit)


def _load_wanted(storage: Storage, version: int | None, timestamp: datetime | str | None) -> Snapshot:
    listing = list_log(storage)
    return _load(listing, version if timestamp is None else _find_version_at(listing, to_milliseconds(timestamp)))


def _find_version_at(listing: LogListing, milliseconds: int) -> int:
    """Return the newest version at a timestamp. Only the configuration of the newest metadata is parsed, because its
    other parts may use features that the returned version does not need."""
    _, _, _, actions = _retry_without_compactions(_read_segment, listing, None)
    configuration = parse_configuration(actions["metaData"].get("configuration"), f"'{listing.storage.uri}'")
    return find_version_at(listing, configuration, milliseconds)


def get_physical_partition_names(metadata: TableMetadata) -> list[str]:
    """Return the physical names of the partition columns, which are the keys of partition values in the log."""
    return [metadata.to_physical_path((name,))[0] for name in metadata.partition_columns]


def _load(listing: LogListing, version: int | None) -> Snapshot:
    return _retry_without_compactions(_make_snapshot, listing, version)


def _retry_without_compactions(
    load: Callable[[LogListing, int | None], Loaded], listing: LogListing, version: int | None
) -> Loaded:
    """Load a version, without damaged compactions where necessary: they only repeat commits."""
    try:
        return load(listing, version)
    except (CorruptFile, MissingFile) as error:
        if not listing.compactions:
            raise
        damaged = [file for file in listing.compactions if _is_damaged(listing.storage, file)]
        others = tuple(file for file in listing.compactions if file not in damaged) if damaged else ()
        # The newest version stays the same, even if only a compaction reaches it.
        wanted = listing.latest if version is None else version
        try:
            found = _retry_without_compactions(load, replace(listing, compactions=others), wanted)
        except (CorruptFile, MissingFile, VersionNotFound):
            raise error from None
        if not damaged:
            logger.warning("the compactions of '%s' cannot be used: %s", listing.location, error)
        return found


def _is_damaged(storage: Storage, compaction: LogFile) -> bool:
    try:
        lines = read_actions(storage, [compaction])
        for name in ("protocol", "metaData"):
            lines.get_newest(name)
        reconcile(decode_file_actions(lines, ()), lines)
    except (CorruptFile, MissingFile) as error:
        logger.warning("compaction %d to %d cannot be used: %s", compaction.first, compaction.last, error)
        return True
    return False


def _make_snapshot(listing: LogListing, version: int | None) -> Snapshot:
    storage = listing.storage
    segment, opened, lines, actions = _read_segment(listing, version)
    protocol, metadata = _parse(storage, actions)
    changes = _make_lazy_changes(lines, metadata)
    top_lines = opened.lines if opened is not None else None
    top = _Lazy(lambda: FileChanges.none() if top_lines is None else _compute_changes(top_lines, metadata))
    domains = _update_domains(
        _update_domains({}, () if opened is None else opened.domains), lines.all("domainMetadata")
    )
    return Snapshot(
        storage, segment.version, segment, protocol, metadata, listing, opened, changes, top, actions, domains
    )


def _update_domains(known: Mapping[str, object], actions: Iterable[Mapping[str, Any]]) -> dict[str, object]:
    """Return the configurations of domains after some `domainMetadata` actions, from old to new."""
    found = dict(known)
    for action in actions:
        found[str(action.get("domain"))] = None if action.get("removed") else action.get("configuration")
    return found


def _read_segment(
    listing: LogListing, version: int | None
) -> tuple[LogSegment, OpenedCheckpoint | None, ActionLines, dict[str, dict[str, Any]]]:
    """Return the segment of a version, its opened checkpoint and commits, and its unparsed protocol and metaData
    actions."""
    segment, opened = _open_segment(listing, version)
    lines = read_actions(listing.storage, segment.deltas)
    found: dict[str, dict[str, Any]] = {}
    known = {} if opened is None else {"protocol": opened.protocol, "metaData": opened.metadata}
    for name in ("protocol", "metaData"):
        action = lines.get_newest(name) or known.get(name)
        if action is None:
            since = "" if segment.checkpoint is None else f", from checkpoint {segment.checkpoint.version} on,"
            raise make_corrupt_log_error(
                f"the log '{listing.location}'{since} has no {name} action up to version {segment.version}: expected "
                "one"
            )
        found[name] = action
    return segment, opened, lines, found


def _open_segment(listing: LogListing, version: int | None) -> tuple[LogSegment, OpenedCheckpoint | None]:
    """Return the first candidate segment whose checkpoint can be opened."""
    problem: CorruptFile | MissingFile | None = None
    for segment in find_candidate_segments(listing, version):
        if segment.checkpoint is None:
            return segment, None
        try:
            return segment, open_checkpoint(listing.storage, segment.checkpoint)
        except (CorruptFile, MissingFile) as error:
            problem = problem or error
            logger.warning("checkpoint %d cannot be used: %s", segment.checkpoint.version, error)
    assert problem is not None
    raise problem


def _parse(storage: Storage, actions: Mapping[str, dict[str, Any]]) -> tuple[Protocol, TableMetadata]:
    location = f"'{storage.uri}'"
    protocol = parse_protocol(actions["protocol"], location)
    protocol.check_readable(location)
    return protocol, parse_metadata(actions["metaData"], location, has_column_mapping=protocol.has_column_mapping)


def _make_lazy_changes(lines: ActionLines, metadata: TableMetadata) -> _Lazy:
    """Return the file changes of lines, computed lazily; but eagerly for compactions, while commits can still replace
    damaged ones."""
    changes = _Lazy(lambda: _compute_changes(lines, metadata))
    if any(file.is_compaction for file in lines.files):
        changes()
    return changes


def _compute_changes(lines: ActionLines, metadata: TableMetadata) -> FileChanges:
    """Return the file changes of lines, cached for programs that open a table repeatedly.

    The cache key is the content: a file may be rewritten within the resolution of its modification time.
    """
    names = tuple(get_physical_partition_names(metadata))
    identity = (lines.digest, lines.files, names)
    try:
        found: FileChanges = CHANGES_CACHE.get(identity)
    except KeyError:
        found = replace(reconcile(decode_file_actions(lines, names), lines), identity=identity)
        CHANGES_CACHE.put(identity, found, found.weight)
    return found
