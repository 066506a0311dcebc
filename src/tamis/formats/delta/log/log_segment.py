"""The files of a Delta log: their names, and the log segment that makes up a version.

| name in `_delta_log`                          | what it is                                                       |
|-----------------------------------------------|------------------------------------------------------------------|
| `<version>.json`                              | a commit: the actions that lead from the previous version to it  |
| `<from>.<to>.compacted.json`                  | a log compaction: several commits as one                         |
| `<version>.checkpoint.parquet`                | a classic checkpoint: the whole table at a version, in one file  |
| `<version>.checkpoint.<part>.<of>.parquet`    | a multi-part checkpoint, usable only if all parts are there      |
| `<version>.checkpoint.<uuid>.{json,parquet}`  | a V2 checkpoint, most of it in files of `_sidecars`              |

A version consists of the newest checkpoint that is not newer than it, and of all commits after that checkpoint. The log
is always listed whole, since no pyarrow file system can list from a name onwards. So `_last_checkpoint`, a hint where a
listing could start, is never read. It may be stale or damaged.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, MissingFile, TableNotFound, VersionNotFound
from tamis.io.listing import find_file, list_directory
from tamis.io.storage import Storage

logger = logging.getLogger("tamis")

LOG_DIRECTORY = "_delta_log"

# Two zeros first: twenty digits do not fit into 64 bits, and no table has 10^18 versions.
_VERSION = r"00\d{18}"
_COMMIT = rf"^{_VERSION}\.json$"
_COMPACTION = rf"^(?P<first>{_VERSION})\.(?P<last>{_VERSION})\.compacted\.json$"
_CHECKPOINT = (
    rf"^(?P<version>{_VERSION})\.checkpoint"
    r"(?:\.(?P<part>\d{10})\.(?P<of>\d{10})|\.(?P<uuid>[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}))?"
    r"\.(?P<format>parquet|json)$"
)


@dataclass(frozen=True, slots=True)
class LogFile:
    """One file of the log, or of `_sidecars`: its path in the file system, size and modification time."""

    path: str
    size: int
    modified_ns: int | None
    first: int
    """The version, or the first one of a compaction."""
    last: int
    """The version, or the last one of a compaction."""

    @property
    def is_compaction(self) -> bool:
        return self.path.endswith(".compacted.json")


MAX_COMMITS_TO_LOOK_UP = 64
"""Above this many missing commits, they are not looked up one by one: the log has a gap."""


class CheckpointKind(IntEnum):
    """The kinds of checkpoints, the preferred one last: parts are read concurrently."""

    CLASSIC = 0
    """One Parquet file. Where the table has V2 checkpoints, it may list sidecars nevertheless."""
    MULTI_PART = 1
    WITH_SIDECARS = 2
    """A V2 checkpoint, whose top file is JSON or Parquet."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that has all of its own files; its sidecars are listed inside it."""

    version: int
    kind: CheckpointKind
    files: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files that make up a version: a checkpoint, and commits or compactions for every version after it."""

    version: int
    checkpoint: Checkpoint | None
    deltas: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LogListing:
    """One listing of a log. Commits are stored as columns, ordered by version, because there may be many."""

    storage: Storage
    versions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    modified_ns: pa.Int64Array
    compactions: tuple[LogFile, ...]
    checkpoints: tuple[Checkpoint, ...]
    """The checkpoints from old to new; those of one version are ordered by preference, the best one last."""

    @property
    def folder(self) -> str:
        return f"{self.storage.root}/{LOG_DIRECTORY}"

    @property
    def location(self) -> str:
        return self.storage.format_path(self.folder)

    @property
    def latest(self) -> int:
        """The newest version that any file belongs to."""
        ends = [file.last for file in self.compactions] + [checkpoint.version for checkpoint in self.checkpoints]
        return max([*ends, int(self.versions[-1])] if len(self.versions) else ends)

    @property
    def oldest(self) -> int | None:
        """The oldest version that can be loaded, according to the names of log files."""
        starts = [checkpoint.version for checkpoint in self.checkpoints]
        if len(self.versions) and self.versions[0] == 0:
            starts.append(0)
        return min(starts, default=None)

    def get_commit(self, version: int) -> LogFile | None:
        position = int(np.searchsorted(self.versions, version))
        if position == len(self.versions) or self.versions[position] != version:
            return None
        return self._commit_at(position)

    def _commit_at(self, position: int) -> LogFile:
        version = int(self.versions[position])
        path = f"{self.folder}/{version:020}.json"
        return LogFile(path, int(self.sizes[position]), self.modified_ns[position].as_py(), version, version)

    def list_commits(self, first: int, last: int) -> list[LogFile]:
        """Return the existing commits from one version to another."""
        start, stop = np.searchsorted(self.versions, [first, last + 1])
        return [self._commit_at(position) for position in range(start, stop)]


def list_log(storage: Storage) -> LogListing:
    """List the log. A directory without one raises TableNotFound."""
    folder = f"{storage.root}/{LOG_DIRECTORY}"
    try:
        listing = list_directory(storage, folder)
    except MissingFile as error:
        raise TableNotFound(f"no Delta table at '{storage.uri}': it has no directory {LOG_DIRECTORY}") from error
    names = pc.replace_substring_regex(listing.file_paths, r"(?s)^.*/", "")
    files = pa.table(
        {
            "path": listing.file_paths,
            "name": names,
            "size": pc.fill_null(listing.file_sizes, 0),
            "modified_ns": listing.file_modified_ns,
        }
    )
    commits = files.filter(pc.match_substring_regex(names, _COMMIT))
    rows = _match_names(files, ".compacted.", _COMPACTION)
    compactions = [_to_log_file(row, str(row["first"]), str(row["last"])) for row in rows]
    found = LogListing(
        storage,
        pc.cast(pc.utf8_slice_codeunits(commits["name"], 0, 20), pa.int64()).to_numpy(),
        commits["size"].to_numpy(),
        commits["modified_ns"].combine_chunks(),
        tuple(file for file in compactions if file.first <= file.last),
        _to_checkpoints(_match_names(files, ".checkpoint", _CHECKPOINT)),
    )
    if not (len(found.versions) or found.checkpoints or found.compactions):
        raise TableNotFound(
            f"no Delta table at '{storage.uri}': its {LOG_DIRECTORY} has neither a commit nor a checkpoint"
        )
    return _add_missed(found)


def _add_missed(listing: LogListing) -> LogListing:
    """Add commits that were written during the listing: some stores list a later commit but not an earlier one."""
    versions = listing.versions
    start = max((checkpoint.version + 1 for checkpoint in listing.checkpoints), default=0)
    if not len(versions) or start > versions[-1]:
        return listing
    start = max(start, int(versions[0]))
    if versions[-1] - start + 1 - np.count_nonzero(versions >= start) not in range(1, MAX_COMMITS_TO_LOOK_UP + 1):
        return listing
    missed = np.setdiff1d(np.arange(start, int(versions[-1])), versions)
    found = [(version, find_file(listing.storage, f"{listing.folder}/{version:020}.json")) for version in missed]
    added = [(int(version), file) for version, file in found if file is not None]
    if not added:
        return listing
    positions = np.searchsorted(versions, [version for version, _ in added])
    order = np.insert(np.arange(len(versions)), positions, range(len(versions), len(versions) + len(added)))
    times = pa.concat_arrays([listing.modified_ns, pa.array([file.modified_ns for _, file in added], pa.int64())])
    return replace(
        listing,
        versions=np.insert(versions, positions, [version for version, _ in added]),
        sizes=np.insert(listing.sizes, positions, [file.size for _, file in added]),
        modified_ns=times.take(pa.array(order)),
    )


def _match_names(files: pa.Table, part: str, pattern: str) -> list[dict[str, object]]:
    # Most logs have few such files: searching for a substring first is faster than matching all names of a long log.
    files = files.filter(pc.match_substring(files["name"], part))
    if not files.num_rows:
        return []
    parts = pc.extract_regex(files["name"], pattern)
    is_match = pc.and_(pc.is_valid(parts), pc.greater(files["size"], 0))
    return [
        row | row.pop("parts")
        for row in files.select(["path", "size", "modified_ns"])
        .append_column("parts", parts)
        .filter(is_match)
        .to_pylist()
    ]


def _to_log_file(row: dict[str, object], first: str, last: str) -> LogFile:
    return LogFile(row["path"], row["size"], row["modified_ns"], int(first), int(last))  # type: ignore[arg-type]


def _to_checkpoints(rows: Sequence[dict[str, object]]) -> tuple[Checkpoint, ...]:
    found: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, LogFile]] = defaultdict(dict)
    for row in rows:
        file = _to_log_file(row, str(row["version"]), str(row["version"]))
        if row["uuid"]:
            found.append(Checkpoint(file.first, CheckpointKind.WITH_SIDECARS, (file,)))
        elif row["format"] == "json":
            continue  # JSON checkpoints always have a UUID
        elif row["part"]:
            parts[file.first, int(str(row["of"]))][int(str(row["part"]))] = file
        else:
            found.append(Checkpoint(file.first, CheckpointKind.CLASSIC, (file,)))
    for (version, of), numbered in parts.items():
        if numbered.keys() == set(range(1, of + 1) if of <= len(numbered) else ()):
            files = tuple(numbered[number] for number in sorted(numbered))
            found.append(Checkpoint(version, CheckpointKind.MULTI_PART, files))
        else:
            logger.info("checkpoint %d is not used: it has %d of %d parts", version, len(numbered), of)
    return tuple(sorted(found, key=lambda checkpoint: (checkpoint.version, checkpoint.kind, len(checkpoint.files))))


def find_candidate_segments(listing: LogListing, version: int | None = None) -> Iterator[LogSegment]:
    """Yield the log segments that make up a version, the one with the newest checkpoint first; raise if there is none.
    The others are used if a checkpoint is damaged: an older checkpoint and more commits hold the same actions.
    """
    wanted = _check_version(listing, version)
    usable = [checkpoint for checkpoint in reversed(listing.checkpoints) if checkpoint.version <= wanted]
    problem: CorruptFile | None = None
    is_any = False
    for checkpoint in [*usable, None]:
        try:
            deltas = find_deltas(listing, -1 if checkpoint is None else checkpoint.version, wanted)
        except CorruptFile as error:
            problem = problem or error
            continue
        is_any = True
        yield LogSegment(wanted, checkpoint, deltas)
    if not is_any:
        assert problem is not None
        if version is not None and not usable and listing.oldest is not None and version < listing.oldest:
            raise _make_version_error(listing, version) from problem
        raise problem


def _check_version(listing: LogListing, version: int | None) -> int:
    if version is None:
        return listing.latest
    exists = (
        listing.get_commit(version) is not None
        or any(checkpoint.version == version for checkpoint in listing.checkpoints)
        or any(file.last == version for file in listing.compactions)
    )
    # A missing version between existing ones is a gap in the log, which is another error.
    oldest = listing.oldest
    if not exists and (oldest is None or not oldest < version < listing.latest):
        raise _make_version_error(listing, version)
    return version


def _make_version_error(listing: LogListing, version: int) -> VersionNotFound:
    oldest = listing.oldest
    if oldest is None:
        advice = "no version is complete. Restore the log from a backup"
    else:
        advice = f"versions {oldest} to {listing.latest} exist. Choose one of them, or omit version= for the newest"
    return VersionNotFound(f"no version {version} of '{listing.storage.uri}': {advice}")


def find_deltas(listing: LogListing, version: int, wanted: int) -> tuple[LogFile, ...]:
    """Return the fewest commits and compactions that cover every version after `version` up to `wanted`."""
    starting: dict[int, list[LogFile]] = defaultdict(list)
    for file in (*listing.list_commits(version + 1, wanted), *listing.compactions):
        if version < file.first and file.last <= wanted:
            starting[file.first].append(file)
    following: dict[int, tuple[int, LogFile]] = {}
    for first in range(wanted, version, -1):
        paths = [
            (1 + (following[file.last + 1][0] if file.last < wanted else 0), file)
            for file in starting[first]
            if file.last == wanted or file.last + 1 in following
        ]
        if paths:
            following[first] = min(paths, key=lambda path: (path[0], -path[1].last))
    deltas: list[LogFile] = []
    while version < wanted:
        if version + 1 not in following:
            raise _make_missing_commit_error(listing, _find_first_missing(starting, version), wanted)
        file = following[version + 1][1]
        if file.size == 0:
            raise CorruptFile(
                f"the commit '{listing.storage.format_path(file.path)}' is empty: it was not written completely. "
                "Remove it if it is the last one and its writer failed"
            )
        deltas.append(file)
        version = file.last
    return tuple(deltas)


def _find_first_missing(starting: Mapping[int, Sequence[LogFile]], version: int) -> int:
    """Return the first version after `version` that no chain of files reaches."""
    reached = {version}
    while reached:
        version = max(version, *reached)
        reached = {file.last for end in reached for file in starting.get(end + 1, ())}
    return version + 1


def _make_missing_commit_error(listing: LogListing, missing: int, wanted: int) -> CorruptFile:
    if missing == 0:
        return CorruptFile(
            f"delta log: version {wanted} needs a complete checkpoint or commit 0, and '{listing.location}' has "
            "neither. Restore one of them from a backup"
        )
    return CorruptFile(
        f"delta log: commit {missing} is missing in '{listing.location}', and version {wanted} needs it. Restore it "
        f"from a backup, or open version {missing - 1}"
    )
