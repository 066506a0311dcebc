"""Directories listed one at a time, without going deeper: what lies below is listed only if it is wanted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.fs as pafs

from tamis.errors import MissingFile, TableNotFound
from tamis.io.ranges import RangedFile
from tamis.io.retries import with_retries
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads


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
    try:
        return with_retries(partial(_list, storage, path), storage.retries, "list", storage.place(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        if path == storage.root:
            raise TableNotFound(f"no directory at '{storage.uri}'") from error
        raise MissingFile(f"no directory '{storage.place(path)}': it is gone, or was never there") from error


def list_directories(storage: Storage, paths: Sequence[str], threads: int | None = None) -> list[Listing]:
    """The listing of each directory, in the order of the paths, several at the same time."""
    return run_in_threads(partial(list_directory, storage), paths, threads or storage.threads)


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
