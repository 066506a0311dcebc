"""The files of a Delta log: their names, and which of them make up a version.

| name in `_delta_log`                          | what it is                                                       |
|-----------------------------------------------|------------------------------------------------------------------|
| `<version>.json`                              | a commit: the actions that lead from the version before to this  |
| `<from>.<to>.compacted.json`                  | several commits as one                                           |
| `<version>.checkpoint.parquet`                | the whole table at a version, in one file                        |
| `<version>.checkpoint.<part>.<of>.parquet`    | the same in several files, which are good only together          |
| `<version>.checkpoint.<uuid>.{json,parquet}`  | the same, most of it in files of `_sidecars`                     |

A version is put together of the newest checkpoint that is not newer than it and all commits between the two. The log
is always listed whole, since no file system of pyarrow lists from a name onwards; so `_last_checkpoint`, which says
where a listing could begin, is never read, and cannot mislead anybody by being stale or damaged.
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

FOLDER = "_delta_log"

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
    """One file of the log, or of `_sidecars`: a path in the file system, its bytes, when it was written."""

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


MOST_MISSED = 64
"""Where more commits than this are missing, that is how the log is."""


class CheckpointKind(IntEnum):
    """In the order in which checkpoints of one version are preferred, the best last: parts are read side by side."""

    CLASSIC = 0
    """One Parquet file. Where the table has V2 checkpoints it may name sidecars nevertheless."""
    MULTI_PART = 1
    WITH_SIDECARS = 2
    """A V2 checkpoint, whose top file is JSON or Parquet."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A checkpoint that has all of its own files; sidecars are named inside of it."""

    version: int
    kind: CheckpointKind
    files: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True)
class LogSegment:
    """The files that make up a version: a checkpoint, and commits and compactions for every version after it."""

    version: int
    checkpoint: Checkpoint | None
    deltas: tuple[LogFile, ...]


@dataclass(frozen=True, slots=True, eq=False)
class LogListing:
    """What a log held at one moment. Commits are columns, in the order of their versions: there may be many."""

    storage: Storage
    versions: npt.NDArray[np.int64]
    sizes: npt.NDArray[np.int64]
    modified_ns: pa.Int64Array
    compactions: tuple[LogFile, ...]
    checkpoints: tuple[Checkpoint, ...]
    """From old to new, and of one version the best one last."""

    @property
    def folder(self) -> str:
        return f"{self.storage.root}/{FOLDER}"

    @property
    def place(self) -> str:
        return self.storage.place(self.folder)

    @property
    def latest(self) -> int:
        """The newest version of which anything is there."""
        ends = [file.last for file in self.compactions] + [checkpoint.version for checkpoint in self.checkpoints]
        return max([*ends, int(self.versions[-1])] if len(self.versions) else ends)

    @property
    def oldest(self) -> int | None:
        """The oldest version that can be put together, as far as the names of files tell."""
        starts = [checkpoint.version for checkpoint in self.checkpoints]
        if len(self.versions) and self.versions[0] == 0:
            starts.append(0)
        return min(starts, default=None)

    def commit(self, version: int) -> LogFile | None:
        position = int(np.searchsorted(self.versions, version))
        if position == len(self.versions) or self.versions[position] != version:
            return None
        return self._commit_at(position)

    def _commit_at(self, position: int) -> LogFile:
        version = int(self.versions[position])
        path = f"{self.folder}/{version:020}.json"
        return LogFile(path, int(self.sizes[position]), self.modified_ns[position].as_py(), version, version)

    def commits(self, first: int, last: int) -> list[LogFile]:
        """The commits from one version to another, of those that are there."""
        start, stop = np.searchsorted(self.versions, [first, last + 1])
        return [self._commit_at(position) for position in range(start, stop)]


def list_log(storage: Storage) -> LogListing:
    """One listing of the log. A folder without one is no Delta table."""
    folder = f"{storage.root}/{FOLDER}"
    try:
        listing = list_directory(storage, folder)
    except MissingFile as error:
        raise TableNotFound(f"no Delta table at '{storage.uri}': it has no folder {FOLDER}") from error
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
    found = LogListing(
        storage,
        pc.cast(pc.utf8_slice_codeunits(commits["name"], 0, 20), pa.int64()).to_numpy(),
        commits["size"].to_numpy(),
        commits["modified_ns"].combine_chunks(),
        _compactions(_named(files, ".compacted.", _COMPACTION)),
        _checkpoints(_named(files, ".checkpoint", _CHECKPOINT)),
    )
    if not (len(found.versions) or found.checkpoints or found.compactions):
        raise TableNotFound(f"no Delta table at '{storage.uri}': its {FOLDER} has neither a commit nor a checkpoint")
    return _with_missed(found)


def _with_missed(listing: LogListing) -> LogListing:
    """The listing with commits that came to be while it was made: some stores tell a later one and not an earlier."""
    versions = listing.versions
    start = max((checkpoint.version + 1 for checkpoint in listing.checkpoints), default=0)
    if not len(versions) or start > versions[-1]:
        return listing
    start = max(start, int(versions[0]))
    if versions[-1] - start + 1 - np.count_nonzero(versions >= start) not in range(1, MOST_MISSED + 1):
        return listing
    missed = np.setdiff1d(np.arange(start, int(versions[-1])), versions)
    found = [(version, find_file(listing.storage, f"{listing.folder}/{version:020}.json")) for version in missed]
    there = [(int(version), file) for version, file in found if file is not None]
    if not there:
        return listing
    places = np.searchsorted(versions, [version for version, _ in there])
    written = np.insert(np.arange(len(versions)), places, range(len(versions), len(versions) + len(there)))
    times = pa.concat_arrays([listing.modified_ns, pa.array([file.modified_ns for _, file in there], pa.int64())])
    return replace(
        listing,
        versions=np.insert(versions, places, [version for version, _ in there]),
        sizes=np.insert(listing.sizes, places, [file.size for _, file in there]),
        modified_ns=times.take(pa.array(written)),
    )


def _named(files: pa.Table, part: str, pattern: str) -> list[dict[str, object]]:
    """The files whose names have a form, with the parts of their names. Those without a byte hold nothing."""
    # Most logs have none, or few: to match all names of a long one would take longer than to look for a part of them.
    files = files.filter(pc.match_substring(files["name"], part))
    if not files.num_rows:
        return []
    parts = pc.extract_regex(files["name"], pattern)
    has_form = pc.and_(pc.is_valid(parts), pc.greater(files["size"], 0))
    return [
        row | row.pop("parts")
        for row in files.select(["path", "size", "modified_ns"])
        .append_column("parts", parts)
        .filter(has_form)
        .to_pylist()
    ]


def _compactions(rows: Sequence[dict[str, object]]) -> tuple[LogFile, ...]:
    files = [_log_file(row, str(row["first"]), str(row["last"])) for row in rows]
    return tuple(file for file in files if file.first <= file.last)


def _log_file(row: dict[str, object], first: str, last: str) -> LogFile:
    return LogFile(row["path"], row["size"], row["modified_ns"], int(first), int(last))  # type: ignore[arg-type]


def _checkpoints(rows: Sequence[dict[str, object]]) -> tuple[Checkpoint, ...]:
    found: list[Checkpoint] = []
    parts: dict[tuple[int, int], dict[int, LogFile]] = defaultdict(dict)
    for row in rows:
        file = _log_file(row, str(row["version"]), str(row["version"]))
        if row["uuid"]:
            found.append(Checkpoint(file.first, CheckpointKind.WITH_SIDECARS, (file,)))
        elif row["format"] == "json":
            continue  # no writer makes one without a UUID
        elif row["part"]:
            parts[file.first, int(str(row["of"]))][int(str(row["part"]))] = file
        else:
            found.append(Checkpoint(file.first, CheckpointKind.CLASSIC, (file,)))
    for (version, of), numbered in parts.items():
        if numbered.keys() == set(range(1, of + 1) if of <= len(numbered) else ()):
            files = tuple(numbered[number] for number in sorted(numbered))
            found.append(Checkpoint(version, CheckpointKind.MULTI_PART, files))
        else:
            logger.info("checkpoint %d has %d of %d parts, and is not used", version, len(numbered), of)
    return tuple(sorted(found, key=lambda checkpoint: (checkpoint.version, checkpoint.kind, len(checkpoint.files))))


def find_segment(storage: Storage, version: int | None = None) -> LogSegment:
    """The files that make up a version (None: the newest), from one listing."""
    return next(candidate_segments(list_log(storage), version))


def candidate_segments(listing: LogListing, version: int | None = None) -> Iterator[LogSegment]:
    """The ways to put a version together, the one with the newest checkpoint first. At least one, or an error.

    The others are for a checkpoint that turns out to be damaged: an older one and more commits say the same.
    """
    wanted = _known_version(listing, version)
    usable = [checkpoint for checkpoint in reversed(listing.checkpoints) if checkpoint.version <= wanted]
    problem: CorruptFile | None = None
    is_any = False
    for checkpoint in [*usable, None]:
        try:
            deltas = deltas_after(listing, -1 if checkpoint is None else checkpoint.version, wanted)
        except CorruptFile as error:
            problem = problem or error
            continue
        is_any = True
        yield LogSegment(wanted, checkpoint, deltas)
    if not is_any:
        assert problem is not None
        if version is not None and not usable and listing.oldest is not None and version < listing.oldest:
            raise _no_version(listing, version) from problem
        raise problem


def _known_version(listing: LogListing, version: int | None) -> int:
    if version is None:
        return listing.latest
    is_there = (
        listing.commit(version) is not None
        or any(checkpoint.version == version for checkpoint in listing.checkpoints)
        or any(file.last == version for file in listing.compactions)
    )
    # A version in the middle of those that are there is missing from the log, which is another error.
    oldest = listing.oldest
    if not is_there and (oldest is None or not oldest < version < listing.latest):
        raise _no_version(listing, version)
    return version


def _no_version(listing: LogListing, version: int) -> VersionNotFound:
    oldest = listing.oldest
    known = f"versions {oldest} to {listing.latest} are there" if oldest is not None else "no version is whole"
    return VersionNotFound(f"no version {version} of '{listing.storage.uri}': {known}")


def deltas_after(listing: LogListing, version: int, wanted: int) -> tuple[LogFile, ...]:
    """Commits and compactions for every version after one up to another: as few as there can be."""
    starting: dict[int, list[LogFile]] = defaultdict(list)
    for file in (*listing.commits(version + 1, wanted), *listing.compactions):
        if version < file.first and file.last <= wanted:
            starting[file.first].append(file)
    following: dict[int, tuple[int, LogFile]] = {}
    for first in range(wanted, version, -1):
        ways = [
            (1 + (following[file.last + 1][0] if file.last < wanted else 0), file)
            for file in starting[first]
            if file.last == wanted or file.last + 1 in following
        ]
        if ways:
            following[first] = min(ways, key=lambda way: (way[0], -way[1].last))
    deltas: list[LogFile] = []
    while version < wanted:
        if version + 1 not in following:
            raise _gap(listing, _first_missing(starting, version), wanted)
        file = following[version + 1][1]
        if file.size == 0:
            raise CorruptFile(
                f"the commit '{listing.storage.place(file.path)}' has no bytes: it was not written whole; "
                "remove it if it is the last one and its writer failed"
            )
        deltas.append(file)
        version = file.last
    return tuple(deltas)


def _first_missing(starting: Mapping[int, Sequence[LogFile]], version: int) -> int:
    """The first version that no file leads to, from a version on."""
    reached = {version}
    while reached:
        version = max(version, *reached)
        reached = {file.last for end in reached for file in starting.get(end + 1, ())}
    return version + 1


def _gap(listing: LogListing, missing: int, wanted: int) -> CorruptFile:
    if missing == 0:
        return CorruptFile(
            f"the log '{listing.place}' does not begin: version {wanted} needs a whole checkpoint or version 0, "
            "and has neither; restore them from a backup"
        )
    return CorruptFile(
        f"the log '{listing.place}' has a gap: version {missing} is missing, which version {wanted} needs; "
        "restore it from a backup"
    )
