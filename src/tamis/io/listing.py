"""Directories listed one at a time, without going deeper: what lies below is listed only if it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from tamis.errors import MissingFile, TableNotFound
from tamis.io.ranges import RangedFile, may_change, replaced_file
from tamis.io.retries import with_retries
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: its path in the file system, its bytes, and when it was last written (None: unknown)."""

    path: str
    size: int
    modified_ns: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """What one directory holds, ordered by name; every path is a whole path in the file system."""

    file_paths: pa.StringArray
    file_sizes: pa.Int64Array
    file_modified_ns: pa.Int64Array
    directory_paths: pa.StringArray


def list_directory(storage: Storage, path: str) -> Listing:
    """One listing call. Nothing there: TableNotFound for the root, MissingFile below it."""
    storage.check_links(path)
    try:
        return with_retries(partial(_list, storage, path), storage.retries, "list", storage.place(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        if path == storage.root:
            raise TableNotFound(f"no directory at '{storage.uri}'") from error
        raise MissingFile(f"no directory '{storage.place(path)}': it is gone, or was never there") from error


def list_directories(storage: Storage, paths: Sequence[str], threads: int | None = None) -> list[Listing]:
    """The listing of each directory, in the order of the paths, several at the same time."""
    return run_in_threads(partial(list_directory, storage), paths, threads or storage.threads)


def check_unchanged(storage: Storage, files: pa.Table) -> None:
    """An error for a file that is gone, or is not the one that was listed; `files` has path, size and modified_ns.

    For answers that metadata in memory gives, so that they are of the files that a reader would open. Files that
    a log names are never written again, and are not looked at. For several files of a remote folder, one listing does.
    """
    rows = files.select(["path", "size", "modified_ns"]).filter(may_change(files["modified_ns"]))
    if not rows.num_rows:
        return
    listed = {path: (size, modified) for path, size, modified in zip(*rows.to_pydict().values(), strict=True)}
    for path, now in _look_again(storage, list(listed)).items():
        size, modified = listed[path]
        if now is None:
            raise MissingFile(f"the file '{storage.place(path)}' is gone")
        if now.size != size:
            raise replaced_file(storage.place(path), f"it has {now.size} bytes, it had {size} when listed")
        if not _is_same_time(modified, now.modified_ns, is_exact=storage.is_local):
            raise replaced_file(storage.place(path), "it was written again after it was listed")


def look_up_sizes(storage: Storage, paths: pa.Array, told: pa.Array) -> pa.Array:
    """How many bytes files have: as told, except where that is null or not above 0, and the file is there."""
    is_unknown = pc.fill_null(pc.less_equal(told, 0), True)
    unknown = paths.filter(is_unknown).to_pylist()
    found = _look_again(storage, unknown)
    sizes = (found[path] for path in unknown)
    looked_up = pa.array([None if each is None else each.size for each in sizes], pa.int64())
    return pc.replace_with_mask(told, is_unknown, pc.coalesce(looked_up, told.filter(is_unknown)))


def _is_same_time(listed: int | None, now: int | None, *, is_exact: bool) -> bool:
    """Whether a file was last written then, as far as that is known.

    To look up an object tells seconds, where to list it may tell more.
    """
    if listed is None or now is None or listed == now:
        return True
    has_seconds = 0 in (listed % _SECOND, now % _SECOND)
    return not is_exact and has_seconds and listed // _SECOND == now // _SECOND


def _look_again(storage: Storage, paths: Sequence[str]) -> dict[str, FileEntry | None]:
    """The files at paths as they are now; None for a path without a file."""
    if storage.is_local:
        infos = storage.filesystem.get_file_info(list(paths))
        return {
            path: FileEntry(path, info.size, info.mtime_ns) if info.is_file else None
            for path, info in zip(paths, infos, strict=True)
        }
    by_folder: dict[str, list[str]] = {}
    for path in paths:
        by_folder.setdefault(path.rpartition("/")[0], []).append(path)
    folders = [folder for folder, own in by_folder.items() if len(own) > 1]
    found: dict[str, FileEntry | None] = {}
    for listing in run_in_threads(partial(_list_if_there, storage), folders, storage.threads):
        columns = (listing.file_paths, listing.file_sizes, listing.file_modified_ns)
        entries = (FileEntry(*each) for each in zip(*(column.to_pylist() for column in columns), strict=True))
        found |= {entry.path: entry for entry in entries}
    single = [path for own in by_folder.values() if len(own) == 1 for path in own]
    found |= dict(zip(single, run_in_threads(partial(_look_up_file, storage), single, storage.threads), strict=True))
    return {path: found.get(path) for path in paths}


def _list_if_there(storage: Storage, folder: str) -> Listing:
    try:
        return list_directory(storage, folder)
    except (MissingFile, TableNotFound):
        nothing = pa.array([], pa.string())
        return Listing(nothing, pa.array([], pa.int64()), pa.array([], pa.int64()), nothing)


def _look_up_file(storage: Storage, path: str) -> FileEntry | None:
    info = with_retries(partial(_look_up, storage, path), storage.retries, "look up", storage.place(path))
    return FileEntry(path, info.size, info.mtime_ns) if info.is_file else None


def find_file(storage: Storage, path: str) -> FileEntry | None:
    """The file at a path; None where there is none, or a directory."""
    if storage.filesystem.type_name == "s3" and "/" in path:
        return _find_by_opening(storage, path)
    info = with_retries(partial(_look_up, storage, path), storage.retries, "look up", storage.place(path))
    if not info.is_file:
        return None
    return FileEntry(info.path, info.size, info.mtime_ns)


def has_directory(storage: Storage, path: str) -> bool:
    """Whether there is a directory at a path."""
    info = with_retries(partial(_look_up, storage, path), storage.retries, "look up", storage.place(path))
    return bool(info.type == pafs.FileType.Directory)


def _find_by_opening(storage: Storage, path: str) -> FileEntry | None:
    """To open an object tells all that a look-up does, in the same request, and whoever reads it next has it open."""
    try:
        file = RangedFile(storage, path)
    except MissingFile:
        return None
    return FileEntry(path, file.size, file.modified_ns)


def _list(storage: Storage, path: str) -> Listing:
    storage.counters.add(listing_calls=1, requests=1)
    infos = storage.filesystem.get_file_info(pafs.FileSelector(path))
    # Each attribute of a FileInfo is made when asked for, so each is asked for once.
    kinds = [info.type for info in infos]
    files = sorted(
        (info.path, info.size, info.mtime_ns)
        for info, kind in zip(infos, kinds, strict=True)
        if kind is pafs.FileType.File
    )
    directories = sorted(info.path for info, kind in zip(infos, kinds, strict=True) if kind is pafs.FileType.Directory)
    paths, sizes, times = zip(*files, strict=True) if files else ((), (), ())
    return Listing(
        pa.array(paths, pa.string()),
        pa.array(sizes, pa.int64()),
        pa.array(times, pa.int64()),
        pa.array(directories, pa.string()),
    )


def _look_up(storage: Storage, path: str) -> pafs.FileInfo:
    storage.counters.add(requests=1)
    return storage.filesystem.get_file_info(path)
