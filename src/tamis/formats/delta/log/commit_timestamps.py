"""Timestamps of versions, and the version at a timestamp.

If a table has in-commit timestamps, the timestamp of a commit is its `inCommitTimestamp`, from the version that enabled
them on. The timestamp of any other commit is the modification time of its file. Clocks differ and files are copied, so
modification times may go backwards: each counts as at least a millisecond later than the one before it.
"""

from __future__ import annotations

import json
import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, UnsupportedFeature, VersionNotFound
from tamis.formats.delta.log.commits import load_json_stream, read_whole
from tamis.formats.delta.log.log_segment import LogFile, LogListing
from tamis.formats.errors import make_corrupt_log_error
from tamis.formats.time_travel import EPOCH, format_milliseconds
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads

COMMIT_INFO_BYTES = 64 * 1024
"""`commitInfo` is searched first in this many bytes at the start and at the end of a large commit."""


def timestamp_from_milliseconds(milliseconds: int) -> datetime:
    try:
        return EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError as error:
        raise make_corrupt_log_error(f"a commit has the timestamp {milliseconds} ms, which is out of range") from error


def find_in_commit_timestamp_version(configuration: Mapping[str, str]) -> int | None:
    """Return the first version with in-commit timestamps; None if they are not enabled."""
    if str(configuration.get("delta.enableInCommitTimestamps", "false")).lower() != "true":
        return None
    text = configuration.get("delta.inCommitTimestampEnablementVersion", "0")
    try:
        return int(text)
    except ValueError as error:
        raise make_corrupt_log_error(
            f"delta.inCommitTimestampEnablementVersion is {text!r}, expected a version number"
        ) from error


def compute_modification_times(listing: LogListing) -> npt.NDArray[np.int64]:
    """Return the modification time of each commit of a listing in milliseconds, made strictly increasing."""
    if listing.modified_ns.null_count:
        raise UnsupportedFeature(
            f"the file system of '{listing.storage.uri}' has no modification times: open the table by version"
        )
    written = pc.divide(listing.modified_ns, 1_000_000).to_numpy()
    # Each time is at least one more than the previous one: adjusted[i] = max over j <= i of (written[j] + i - j).
    steps = np.arange(len(written))
    return np.maximum.accumulate(written - steps) + steps


def find_version_at(listing: LogListing, configuration: Mapping[str, str], milliseconds: int) -> int:
    """Return the newest version at a timestamp; `configuration` is that of the newest version."""
    if _is_after_latest(listing, milliseconds):
        return listing.latest
    versions = listing.versions
    enabled = find_in_commit_timestamp_version(configuration)
    split = len(versions) if enabled is None else int(np.searchsorted(versions, enabled))
    if split < len(versions):

        def read_timestamp(position: int) -> int:
            return read_in_commit_timestamp(listing.storage, _get_commit(listing, position))

        found = bisect_right(range(split, len(versions)), milliseconds, key=read_timestamp)
        if found:
            return int(versions[split + found - 1])
    times = compute_modification_times(listing)[:split] if split else np.empty(0, np.int64)
    found = int(np.searchsorted(times, milliseconds, side="right"))
    if found:
        return int(versions[found - 1])
    raise _make_too_early_error(listing, milliseconds, int(times[0]) if split else None)


def _is_after_latest(listing: LogListing, milliseconds: int) -> bool:
    """Return whether a timestamp is after the newest version, if only the checkpoint of that version is left. The
    checkpoint is never older than the commit."""
    if len(listing.versions) and listing.versions[-1] == listing.latest:
        return False
    files = [file for each in listing.checkpoints if each.version == listing.latest for file in each.files]
    times = [file.modified_ns for file in files if file.modified_ns is not None]
    return bool(times) and max(times) <= milliseconds * 1_000_000


def _get_commit(listing: LogListing, position: int) -> LogFile:
    found = listing.get_commit(int(listing.versions[position]))
    assert found is not None
    return found


def _make_too_early_error(listing: LogListing, milliseconds: int, first_time: int | None) -> VersionNotFound:
    timestamp = format_milliseconds(milliseconds)
    if not len(listing.versions):
        return VersionNotFound(
            f"no version of '{listing.storage.uri}' at {timestamp}: its log has no commits any more. "
            "Open it by version, or restore the log from a backup"
        )
    if first_time is None:
        first_time = read_in_commit_timestamp(listing.storage, _get_commit(listing, 0))
    oldest = f"the oldest version, {listing.versions[0]}, has the timestamp {format_milliseconds(first_time)}"
    return VersionNotFound(f"no version of '{listing.storage.uri}' at {timestamp}: {oldest}. Choose a later one")


def find_timestamp(listing: LogListing, configuration: Mapping[str, str], version: int) -> int | None:
    """Return the timestamp of a version in milliseconds; None if its commit no longer exists."""
    commit = listing.get_commit(version)
    if commit is None:
        return None
    enabled = find_in_commit_timestamp_version(configuration)
    if enabled is not None and version >= enabled:
        return read_in_commit_timestamp(listing.storage, commit)
    return int(compute_modification_times(listing)[np.searchsorted(listing.versions, version)])


def read_in_commit_timestamp(storage: Storage, commit: LogFile) -> int:
    """Read the in-commit timestamp of a commit, in milliseconds."""
    info = read_commit_info(storage, commit) or {}
    found = parse_in_commit_timestamp(info)
    if found is None:
        raise CorruptFile(
            f"'{storage.format_path(commit.path)}' has no inCommitTimestamp, which the table's properties require: "
            "open the table by version instead of by timestamp"
        )
    return found


def parse_in_commit_timestamp(info: Mapping[str, Any]) -> int | None:
    """Return the in-commit timestamp of a `commitInfo` in milliseconds; None if it is absent or not a number."""
    found = info.get("inCommitTimestamp")
    try:
        number = None if found is None or isinstance(found, bool) else int(found)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if number is not None and -(2**63) <= number < 2**63 else None


def read_commit_info(storage: Storage, commit: LogFile) -> dict[str, Any] | None:
    """Return the `commitInfo` of a commit. It is the first or the last action, so a large commit is not read whole."""
    if commit.size > 4 * COMMIT_INFO_BYTES:
        with RangedFile(storage, commit.path, commit.size) as file:
            for start in (0, commit.size - COMMIT_INFO_BYTES):
                found = _find_info(file.read([(start, COMMIT_INFO_BYTES)])[0].to_pybytes())
                if found is not None:
                    return found
    content = read_whole(storage, commit).to_pybytes()
    return _find_info(content) or _find_info_on_several_lines(content)


def _find_info_on_several_lines(content: bytes) -> dict[str, Any] | None:
    """Return the `commitInfo` of a commit of pretty-printed JSON."""
    if b'"commitInfo"' not in content or not re.search(rb"^\s*[^\s{]", content, re.MULTILINE):
        return None
    try:
        for value in load_json_stream(str(content, "utf-8-sig")):
            if isinstance(value, dict) and isinstance(value.get("commitInfo"), dict):
                return dict(value["commitInfo"])
    except (ValueError, RecursionError):
        return None  # damaged: an error is raised where the commit's file actions are read
    return None


def _find_info(content: bytes) -> dict[str, Any] | None:
    start = content.find(b'"commitInfo"')
    while start >= 0:
        begin, end = content.rfind(b"\n", 0, start) + 1, content.find(b"\n", start)
        end = end if end >= 0 else len(content)
        try:
            parsed = json.loads(content[begin:end])
        except (ValueError, RecursionError):
            parsed = None  # truncated by the range that was read, or the name occurs within a string
        if isinstance(parsed, dict) and isinstance(parsed.get("commitInfo"), dict):
            return dict(parsed["commitInfo"])
        start = content.find(b'"commitInfo"', end)
    return None


# --- The history of a table, from the `commitInfo` actions of its commits ---------------------------------------------

HISTORY_SCHEMA = pa.schema(
    [
        ("version", pa.int64()),
        ("timestamp", pa.timestamp("ms", "UTC")),
        ("operation", pa.string()),
        ("operation_parameters", pa.string()),
        ("operation_metrics", pa.string()),
        ("user_id", pa.string()),
        ("user_name", pa.string()),
        ("user_metadata", pa.string()),
        ("engine_info", pa.string()),
        ("read_version", pa.int64()),
        ("isolation_level", pa.string()),
        ("is_blind_append", pa.bool_()),
        ("written_at", pa.timestamp("ms", "UTC")),
    ]
)
"""`timestamp` is the one that time travel uses, `written_at` the one in `commitInfo`. Maps are JSON strings."""

_NAMES = {name: re.sub("_(.)", lambda match: match[1].upper(), name) for name in HISTORY_SCHEMA.names[2:]}
_NAMES["written_at"] = "timestamp"
"""The fields of `commitInfo`, which are in camel case there."""


def read_history(
    listing: LogListing, configuration: Mapping[str, str], version: int, limit: int | None = None
) -> pa.Table:
    """Return a row for each commit up to a version that is still in the log, newest first, with the columns
    `HISTORY_SCHEMA`.

    Fields that a writer left out, or wrote with an unexpected type, are null.
    """
    storage = listing.storage
    commits = listing.list_commits(0, version)[::-1]
    if limit is not None:
        commits = commits[: max(limit, 0)]
    patience = LOCAL_SOLO_SECONDS if storage.is_local else 0.0
    read = partial(read_commit_info, storage)
    infos = [info or {} for info in run_in_threads(read, commits, storage.threads, patience=patience)]
    versions = [commit.first for commit in commits]
    columns: dict[str, Sequence[Any]] = {
        name: [_to_type(info.get(logged), HISTORY_SCHEMA.field(name).type) for info in infos]
        for name, logged in _NAMES.items()
    }
    columns["version"] = versions
    columns["timestamp"] = _find_timestamps(listing, configuration, versions, infos)
    return pa.table([pa.array(columns[field.name], field.type) for field in HISTORY_SCHEMA], schema=HISTORY_SCHEMA)


def _find_timestamps(
    listing: LogListing, configuration: Mapping[str, str], versions: Sequence[int], infos: Sequence[Mapping[str, Any]]
) -> list[int | None]:
    enabled = find_in_commit_timestamp_version(configuration)
    if listing.modified_ns.null_count:
        written: list[int | None] = [None] * len(versions)
    else:
        written = compute_modification_times(listing)[np.searchsorted(listing.versions, versions)].tolist()
    return [
        parse_in_commit_timestamp(info) if enabled is not None and version >= enabled else time
        for version, info, time in zip(versions, infos, written, strict=True)
    ]


def _to_type(value: Any, data_type: pa.DataType) -> Any:
    if value is None:
        return None
    if pa.types.is_boolean(data_type):
        return value if isinstance(value, bool) else None
    if pa.types.is_integer(data_type) or pa.types.is_timestamp(data_type):
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole and -(2**63) <= value < 2**63 else None
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    # JSON can hold half of a surrogate pair, which UTF-8 cannot encode.
    return text.encode("utf-8", "replace").decode()
