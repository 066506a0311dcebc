"""A file system that also opens files of other stores by their full URI, for tables that refer to such files.

Paths without a scheme are those of the table's own file system; `s3://bucket/a.parquet` is a file of another one. Each
other store is opened lazily, with its first file.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from threading import Lock
from typing import Any

import pyarrow as pa
import pyarrow.fs as pafs

from tamis.io.storage import Storage, open_storage

_URI = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://([^/]*)/", re.DOTALL)


def with_other_stores(storage: Storage) -> Storage:
    """Return the storage with a file system that also accepts URIs of other stores. It cannot be serialised."""
    if isinstance(storage.filesystem, pafs.PyFileSystem) and isinstance(storage.filesystem.handler, OtherStores):
        return storage
    options = {} if storage.given is None else storage.given[1]
    return replace(storage, filesystem=pafs.PyFileSystem(OtherStores(storage.filesystem, options)), given=None)


class OtherStores(pafs.FileSystemHandler):  # type: ignore[misc]  # pyarrow has no types
    """Dispatches each path to its file system."""

    def __init__(self, own: pafs.FileSystem, options: Mapping[str, Any]) -> None:
        self.own = own
        self._options = dict(options)
        self._lock = Lock()
        self._others: dict[tuple[str, str], Storage] = {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OtherStores) and self.own == other.own and self._options == other._options

    def __hash__(self) -> int:
        return hash(self.own.type_name)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def _find_file_system(self, path: str) -> tuple[pafs.FileSystem, str]:
        match = _URI.match(path)
        if match is None:
            return self.own, path
        scheme, host = match[1].lower(), match[2]
        if scheme == "file":
            return pafs.LocalFileSystem(), path[match.end() - 1 :]
        with self._lock:
            found = self._others.get((scheme, host))
            if found is None:
                found = open_storage(f"{match[1]}://{host}", self._options if scheme.startswith("s3") else None)
                self._others[scheme, host] = found
        return found.filesystem, f"{found.root.rstrip('/')}/{path[match.end() :]}"

    def get_type_name(self) -> str:
        return f"{self.own.type_name}-and-others"

    def normalize_path(self, path: str) -> str:
        return path if _URI.match(path) else str(self.own.normalize_path(path))

    def get_file_info(self, paths: Sequence[str]) -> list[pafs.FileInfo]:
        found = []
        for path in paths:
            filesystem, own = self._find_file_system(path)
            info = filesystem.get_file_info(own)
            found.append(pafs.FileInfo(path, info.type, size=info.size, mtime_ns=info.mtime_ns))
        return found

    def get_file_info_selector(self, selector: pafs.FileSelector) -> list[pafs.FileInfo]:
        return list(self.own.get_file_info(selector))

    def open_input_file(self, path: str) -> pa.NativeFile:
        filesystem, own = self._find_file_system(path)
        return filesystem.open_input_file(own)

    def open_input_stream(self, path: str) -> pa.NativeFile:
        filesystem, own = self._find_file_system(path)
        return filesystem.open_input_stream(own)

    # Writes, for example of an index, go to the table's own store.

    def open_output_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        return self.own.open_output_stream(path, metadata=metadata)

    def open_append_stream(self, path: str, metadata: Mapping[str, str]) -> pa.NativeFile:
        return self.own.open_append_stream(path, metadata=metadata)

    def create_dir(self, path: str, recursive: bool) -> None:
        self.own.create_dir(path, recursive=recursive)

    def delete_dir(self, path: str) -> None:
        self.own.delete_dir(path)

    def delete_dir_contents(self, path: str, missing_dir_ok: bool = False) -> None:
        self.own.delete_dir_contents(path, missing_dir_ok=missing_dir_ok)

    def delete_root_dir_contents(self) -> None:
        self.own.delete_dir_contents("", accept_root_dir=True)

    def delete_file(self, path: str) -> None:
        self.own.delete_file(path)

    def move(self, src: str, dest: str) -> None:
        self.own.move(src, dest)

    def copy_file(self, src: str, dest: str) -> None:
        self.own.copy_file(src, dest)
