"""Listing of directories, not recursive, and look-ups of single files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from tamis.errors import MissingFile, TableNotFound
from tamis.io.ranges import RangedFile, make_replaced_error, may_change
from tamis.io.retries import run_with_retries
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads

_SECOND = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FileEntry:
    """One file: its path in the file system, its size in bytes, and its modification time (None: unknown)."""

    path: str
    size: int
    modified_ns: int | None


@dataclass(frozen=True, slots=True)
class Listing:
    """The files and subdirectories of one directory, ordered by name, with full paths in the file system."""

    file_paths: pa.StringArray
    file_sizes: pa.Int64Array
    file_modified_ns: pa.Int64Array
    directory_paths: pa.StringArray

    def list_entries(self) -> list[FileEntry]:
        columns = (self.file_paths, self.file_sizes, self.file_modified_ns)
        return [FileEntry(*each) for each in zip(*(column.to_pylist() for column in columns), strict=True)]


def list_directory(storage: Storage, path: str) -> Listing:
    """List a directory in one call. If it does not exist: TableNotFound for the root, MissingFile below it."""
    storage.check_links(path)
    try:
        return run_with_retries(partial(_list_once, storage, path), storage.retries, "list", storage.format_path(path))
    except (FileNotFoundError, NotADirectoryError) as error:
        if path == storage.root:
            raise TableNotFound(f"no directory at '{storage.uri}'") from error
        raise MissingFile(f"no directory '{storage.format_path(path)}': it was removed, or never existed") from error


def list_directories(storage: Storage, paths: Sequence[str], threads: int | None = None) -> list[Listing]:
    """List directories concurrently, and return the listings in the order of the paths."""
    return run_in_threads(partial(list_directory, storage), paths, threads or storage.threads)


def check_unchanged(storage: Storage, files: pa.Table) -> None:
    """Raise an error if a file was removed or replaced since it was listed; `files` has path, size and modified_ns.

    Answers from cached metadata need this check, because no file is opened for them. Files that a log names never
    change and are not checked. Several files of a remote folder are checked with one listing.
    """
    rows = files.select(["path", "size", "modified_ns"]).filter(may_change(files["modified_ns"]))
    if not rows.num_rows:
        return
    listed = {path: (size, modified) for path, size, modified in zip(*rows.to_pydict().values(), strict=True)}
    for path, now in _look_up_files(storage, list(listed)).items():
        size, modified = listed[path]
        if now is None:
            raise MissingFile(f"the file '{storage.format_path(path)}' is gone")
        if now.size != size:
            raise make_replaced_error(storage.format_path(path), f"it has {now.size} bytes, expected {size} as listed")
        if not _is_same_time(modified, now.modified_ns, is_exact=storage.is_local):
            raise make_replaced_error(storage.format_path(path), "it was rewritten after it was listed")


def look_up_sizes(storage: Storage, paths: pa.Array, recorded: pa.Array) -> pa.Array:
    """Return the sizes of files: the recorded ones, or looked up where these are null or not positive."""
    is_unknown = pc.fill_null(pc.less_equal(recorded, 0), True)
    unknown = paths.filter(is_unknown).to_pylist()
    found = _look_up_files(storage, unknown)
    sizes = (found[path] for path in unknown)
    looked_up = pa.array([None if each is None else each.size for each in sizes], pa.int64())
    return pc.replace_with_mask(recorded, is_unknown, pc.coalesce(looked_up, recorded.filter(is_unknown)))


def _is_same_time(listed: int | None, now: int | None, *, is_exact: bool) -> bool:
    """Return whether two modification times are the same, as far as known.

    A look-up of an object returns seconds, a listing may return fractions.
    """
    if listed is None or now is None or listed == now:
        return True
    has_seconds = 0 in (listed % _SECOND, now % _SECOND)
    return not is_exact and has_seconds and listed // _SECOND == now // _SECOND


def _look_up_files(storage: Storage, paths: Sequence[str]) -> dict[str, FileEntry | None]:
    """Return the current state of the files at paths; None for a path without a file."""
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
    for entries in run_in_threads(partial(_list_files_if_any, storage), folders, storage.threads):
        found |= {entry.path: entry for entry in entries}
    single = [path for own in by_folder.values() if len(own) == 1 for path in own]
    found |= dict(zip(single, run_in_threads(partial(_look_up_file, storage), single, storage.threads), strict=True))
    return {path: found.get(path) for path in paths}


def _list_files_if_any(storage: Storage, folder: str) -> list[FileEntry]:
    try:
        return list_directory(storage, folder).list_entries()
    except (MissingFile, TableNotFound):
        return []


def _look_up_file(storage: Storage, path: str) -> FileEntry | None:
    info = _look_up(storage, path)
    return FileEntry(path, info.size, info.mtime_ns) if info.is_file else None


def find_file(storage: Storage, path: str) -> FileEntry | None:
    """Return the file at a path; None if there is none, or a directory."""
    if storage.filesystem.type_name == "s3" and "/" in path:
        return _find_by_opening(storage, path)
    return _look_up_file(storage, path)


def has_directory(storage: Storage, path: str) -> bool:
    """Return whether there is a directory at a path."""
    return bool(_look_up(storage, path).type == pafs.FileType.Directory)


def _find_by_opening(storage: Storage, path: str) -> FileEntry | None:
    """Find an object by opening it: that returns as much as a look-up, and the file stays open for its reader."""
    try:
        file = RangedFile(storage, path)
    except MissingFile:
        return None
    return FileEntry(path, file.size, file.modified_ns)


def _list_once(storage: Storage, path: str) -> Listing:
    storage.counters.add(listing_calls=1, requests=1)
    infos = storage.filesystem.get_file_info(pafs.FileSelector(path))
    # A FileInfo computes each attribute on access, so each is accessed once.
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
    def look_up_once() -> pafs.FileInfo:
        storage.counters.add(requests=1)
        return storage.filesystem.get_file_info(path)

    return run_with_retries(look_up_once, storage.retries, "look up", storage.format_path(path))
