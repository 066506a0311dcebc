"""A Delta table at one version: what the log says of it, put together once and never changed afterwards.

To load one lists the log, reads the commits after the checkpoint and the footers of the checkpoint. Which files are
live is worked out when it is asked for. Later commits do not change a snapshot; `refresh` makes a newer one out of it
and reads nothing but the commits that came since.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from threading import Lock
from typing import Any, TypeVar

import pyarrow as pa

from tamis.errors import CorruptFile, InvalidArgument, MissingFile, VersionNotFound
from tamis.io.storage import Storage
from tamis.io.weighted_cache import WeightedCache
from tamis.tables.delta.actions import decode_file_actions
from tamis.tables.delta.checkpoints import OpenedCheckpoint, open_checkpoint
from tamis.tables.delta.commits import ActionLines, read_actions
from tamis.tables.delta.file_parts import FilePart
from tamis.tables.delta.history import read_history
from tamis.tables.delta.log import LogFile, LogListing, LogSegment, candidate_segments, deltas_after, list_log
from tamis.tables.delta.log_time import from_milliseconds, time_of_version, version_at_time
from tamis.tables.delta.protocol import Protocol, parse_protocol
from tamis.tables.delta.replay import FileChanges, reconcile
from tamis.tables.delta.schema import TableMetadata, parse_metadata, table_configuration
from tamis.tables.moments import to_milliseconds

logger = logging.getLogger("tamis")

Made = TypeVar("Made")

MOST_DELTAS = 1000
"""With more commits behind its checkpoint than this, a snapshot is refreshed from a newer one where there is one."""


LAST_CHANGES = WeightedCache(capacity=32 * 1024 * 1024)
"""What this process has decoded of commits, where that is not much."""


class _Once:
    """Something worked out when it is first asked for, by one thread; what it was made of is forgotten then."""

    def __init__(self, work_out: Callable[[], FileChanges], links: Sequence[_Once] = ()) -> None:
        self._lock = Lock()
        self._work_out: Callable[[], FileChanges] | None = work_out
        self._found: FileChanges | None = None
        self._links = tuple(links) or (self,)

    def __call__(self) -> FileChanges:
        with self._lock:
            if self._found is None:
                assert self._work_out is not None
                self._found = self._work_out()
                self._work_out, self._links = None, (self,)
            return self._found

    def then(self, newer: _Once) -> _Once:
        """Both, one after the other. Any number of them can follow each other before somebody asks."""
        links = (*self._links, newer)

        def work_out() -> FileChanges:
            found = links[0]()
            for link in links[1:]:
                found = found.then(link())
            return found

        return _Once(work_out, links)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """A table at one version. Any number of threads may use it."""

    storage: Storage
    version: int
    segment: LogSegment
    protocol: Protocol
    metadata: TableMetadata
    _listing: LogListing = field(repr=False)
    _opened: OpenedCheckpoint | None = field(repr=False)
    _changes: _Once = field(repr=False)
    _top: _Once = field(repr=False)
    """What a JSON top file of the checkpoint adds by itself."""
    _actions: Mapping[str, dict[str, Any]] = field(repr=False)
    """The actions that `protocol` and `metadata` were parsed from."""

    @staticmethod
    def load(storage: Storage, version: int | None = None, timestamp: datetime | str | None = None) -> Snapshot:
        """The newest version, a certain one, or the newest that was there at a moment (without a zone: in UTC)."""
        if version is not None and timestamp is not None:
            raise InvalidArgument("a snapshot is of a version or of a timestamp: give one of them")
        if version is not None and (not isinstance(version, int) or isinstance(version, bool) or version < 0):
            raise InvalidArgument(f"a version is a whole number from 0 on, not {version!r}")
        try:
            return _load_wanted(storage, version, timestamp)
        except MissingFile:
            # What was listed may have been cleaned up before it was read.
            return _load_wanted(storage, version, timestamp)

    def refresh(self) -> Snapshot:
        """The newest version: this very snapshot where nothing is new. Only commits that are new are read."""
        listing = list_log(self.storage)
        if listing.latest == self.version and self._is_of(listing):
            return self
        if listing.latest < self.version or not self._is_of(listing):
            return _load(listing, None)  # the table was replaced by another
        if self.segment.checkpoint is not None and self.segment.checkpoint not in listing.checkpoints:
            return _load(listing, None)  # cleaned up, or written anew: a newer one takes its place
        if len(self.segment.deltas) > MOST_DELTAS and any(
            checkpoint.version >= self.version for checkpoint in listing.checkpoints
        ):
            return _load(listing, None)  # what came since the checkpoint would grow for ever
        try:
            deltas = deltas_after(listing, self.version, listing.latest)
            lines = read_actions(self.storage, deltas)
            actions = {name: lines.newest(name) or self._actions[name] for name in self._actions}
            protocol, metadata = _parse(self.storage, actions)
            if partition_names(metadata) != partition_names(self.metadata):
                return _load(listing, None)  # older commits were decoded for other partition columns
            newer = _changes_of(lines, metadata)
        except (CorruptFile, MissingFile):
            # Cleaned up meanwhile, and a newer checkpoint has what is gone; or damaged, and other files say the same.
            return _load(list_log(self.storage), None)
        segment = LogSegment(listing.latest, self.segment.checkpoint, (*self.segment.deltas, *deltas))
        return replace(
            self,
            version=listing.latest,
            segment=segment,
            protocol=protocol,
            metadata=metadata,
            _listing=listing,
            _changes=self._changes.then(newer),
            _actions=actions,
        )

    def _is_of(self, listing: LogListing) -> bool:
        """Whether a listing is of the same table: its commit of this version is the same, or was cleaned up."""
        was, now = self._listing.commit(self.version), listing.commit(self.version)
        return was is None or now is None or (was.size, was.modified_ns) == (now.size, now.modified_ns)

    @property
    def timestamp(self) -> datetime | None:
        """When the version was made, by its own account or that of its file; None where its commit is gone."""
        found = time_of_version(self._listing, self.metadata.configuration, self.version)
        return None if found is None else from_milliseconds(found)

    @property
    def changes(self) -> FileChanges:
        """What the commits after the checkpoint did to the files of the table."""
        return self._changes()

    def parts(self) -> list[FilePart]:
        """The pieces of which the live files come: commits first, then the files of the checkpoint."""
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
        if top is not None and top.count_about_files:
            file = top.files[0]
            source = self._source(file)
            found.append(FilePart(self.storage, source, newer, file.size, file, self._top(), touched))
        for file in self._opened.parts:
            found.append(FilePart(self.storage, self._source(file), newer, file.size, file, None, touched))
        return found

    @property
    def note(self) -> str | None:
        """What a report says of the checkpoint."""
        return None if self._opened is None else self._opened.note

    def _source(self, file: LogFile) -> Hashable:
        return ("checkpoint", self.storage.uri, file)

    def history(self, limit: int | None = None) -> pa.Table:
        """The commits up to this version that are still there, newest first: see `tamis.tables.delta.history`."""
        return read_history(self._listing, self.metadata.configuration, self.version, limit)


def _load_wanted(storage: Storage, version: int | None, timestamp: datetime | str | None) -> Snapshot:
    listing = list_log(storage)
    return _load(listing, version if timestamp is None else _version_at(listing, to_milliseconds(timestamp)))


def version_at(storage: Storage, timestamp: datetime | str) -> int:
    """The newest version that was there at a moment (without a zone: in UTC)."""
    return _version_at(list_log(storage), to_milliseconds(timestamp))


def _version_at(listing: LogListing, milliseconds: int) -> int:
    """The newest version may have features that nobody knows here, and an older one that is asked for none of them."""
    _, _, _, actions = _passing_over_compactions(_gather, listing, None)
    configuration = table_configuration(actions["metaData"].get("configuration"), f"'{listing.storage.uri}'")
    return version_at_time(listing, configuration, milliseconds)


def partition_names(metadata: TableMetadata) -> list[str]:
    """The names under which the log keeps the values of the partition columns."""
    return [metadata.physical((name,))[0] for name in metadata.partition_columns]


def _load(listing: LogListing, version: int | None) -> Snapshot:
    return _passing_over_compactions(_put_together, listing, version)


def _passing_over_compactions(
    make: Callable[[LogListing, int | None], Made], listing: LogListing, version: int | None
) -> Made:
    """A version put together of what is there. Compactions only repeat commits, so a damaged one is passed over."""
    try:
        return make(listing, version)
    except (CorruptFile, MissingFile) as error:
        if not listing.compactions:
            raise
        damaged = [file for file in listing.compactions if _is_damaged(listing.storage, file)]
        others = tuple(file for file in listing.compactions if file not in damaged) if damaged else ()
        # The newest version stays the same, also where nothing but a compaction leads to it.
        wanted = listing.latest if version is None else version
        try:
            found = _passing_over_compactions(make, replace(listing, compactions=others), wanted)
        except (CorruptFile, MissingFile, VersionNotFound):
            raise error from None
        if not damaged:
            logger.warning("the compactions of '%s' cannot be used: %s", listing.place, error)
        return found


def _is_damaged(storage: Storage, compaction: LogFile) -> bool:
    try:
        lines = read_actions(storage, [compaction])
        for name in ("protocol", "metaData"):
            lines.newest(name)
        reconcile(decode_file_actions(lines, ()), lines)
    except (CorruptFile, MissingFile) as error:
        logger.warning("compaction %d to %d cannot be used: %s", compaction.first, compaction.last, error)
        return True
    return False


def _put_together(listing: LogListing, version: int | None) -> Snapshot:
    storage = listing.storage
    segment, opened, lines, actions = _gather(listing, version)
    protocol, metadata = _parse(storage, actions)
    changes = _changes_of(lines, metadata)
    top_lines = opened.lines if opened is not None else None
    top = _Once(lambda: FileChanges.none() if top_lines is None else _file_changes(top_lines, metadata))
    return Snapshot(storage, segment.version, segment, protocol, metadata, listing, opened, changes, top, actions)


def _gather(
    listing: LogListing, version: int | None
) -> tuple[LogSegment, OpenedCheckpoint | None, ActionLines, dict[str, dict[str, Any]]]:
    """What a version is put together of, and the actions that say what kind of table it is, not yet understood."""
    segment, opened = _open_segment(listing, version)
    lines = read_actions(listing.storage, segment.deltas)
    found = {"protocol": lines.newest("protocol"), "metaData": lines.newest("metaData")}
    if opened is not None:
        found = {
            "protocol": found["protocol"] or opened.protocol,
            "metaData": found["metaData"] or opened.metadata,
        }
    return segment, opened, lines, {name: _required(listing, segment, name, each) for name, each in found.items()}


def _open_segment(listing: LogListing, version: int | None) -> tuple[LogSegment, OpenedCheckpoint | None]:
    """The first way to put a version together whose checkpoint can be opened."""
    problem: CorruptFile | MissingFile | None = None
    for segment in candidate_segments(listing, version):
        if segment.checkpoint is None:
            return segment, None
        try:
            return segment, open_checkpoint(listing.storage, segment.checkpoint)
        except (CorruptFile, MissingFile) as error:
            problem = problem or error
            logger.warning("checkpoint %d cannot be used: %s", segment.checkpoint.version, error)
    assert problem is not None
    raise problem


def _required(listing: LogListing, segment: LogSegment, name: str, action: dict[str, Any] | None) -> dict[str, Any]:
    if action is None:
        since = "" if segment.checkpoint is None else f", from checkpoint {segment.checkpoint.version} on,"
        raise CorruptFile(
            f"the log '{listing.place}'{since} has no action {name} up to version {segment.version}: a table has one"
        )
    return action


def _parse(storage: Storage, actions: Mapping[str, dict[str, Any]]) -> tuple[Protocol, TableMetadata]:
    place = f"'{storage.uri}'"
    protocol = parse_protocol(actions["protocol"], place)
    protocol.check_readable(place)
    return protocol, parse_metadata(actions["metaData"], place, has_column_mapping=protocol.has_column_mapping)


def _changes_of(lines: ActionLines, metadata: TableMetadata) -> _Once:
    """What lines do to files, when it is asked for; of compactions at once, while others can still take their place."""
    changes = _Once(lambda: _file_changes(lines, metadata))
    if any(file.is_compaction for file in lines.files):
        changes()
    return changes


def _file_changes(lines: ActionLines, metadata: TableMetadata) -> FileChanges:
    """What lines do to files. Whoever opens a table again and again finds the same commits, and need not decode them.

    They are told by what is in them: a file may be written anew within the same moment.
    """
    names = tuple(partition_names(metadata))
    identity = (lines.digest, lines.files, names)
    try:
        found: FileChanges = LAST_CHANGES.get(identity)
    except KeyError:
        found = replace(reconcile(decode_file_actions(lines, names), lines), identity=identity)
        LAST_CHANGES.put(identity, found, found.weight)
    return found


def read_changes(storage: Storage, files: Sequence[LogFile], metadata: TableMetadata) -> FileChanges:
    """What some commits did to the files of a table: a plain function, which can run anywhere."""
    return _file_changes(read_actions(storage, files), metadata)
