"""Storage: a file system, a root path in it, counters, retries and the guard against symbolic links.

`open_storage` accepts what users pass to other libraries: paths, URIs, and `storage_options` in the spellings of
deltalake (`AWS_REGION`, short keys), polars (`aws_region`) and pyiceberg (`s3.region`). It makes no request, except to
look up the region of an S3 bucket if it is not configured.
"""

from __future__ import annotations

import os
import re
import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from threading import Lock
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.fs as pafs

from tamis.errors import (
    InvalidArgument,
    MissingDependency,
    StorageError,
    UnsupportedFeature,
    add_article,
    make_argument_error,
)
from tamis.io.counters import IoCounters
from tamis.io.retries import RetryPolicy
from tamis.io.storage_options import S3Options, check_storage_options
from tamis.io.threads import choose_threads
from tamis.tuning import DEFAULT_TUNING, Tuning

if TYPE_CHECKING:  # a storage only carries the handler, and few programs bring one
    from tamis.skipping.handler import ExpressionHandler

# --- A cache of open files of object stores, shared by the steps of a scan --------------------------------------------
#
# Opening such a file takes a round trip, which requests its size. An open file holds no connection, but it holds the
# size of the file, so it is dropped at the end of a scan or after some time: then a replaced file is detected. Files of
# other file systems may hold a connection or a buffer, and are closed after each use.

OBJECT_STORES = frozenset({"s3", "gcs", "abfs"})
"""The pyarrow file systems whose open files are only a name and a size."""

MAX_OPEN_FILES = 512
MAX_AGE_SECONDS = 60.0


@dataclass(slots=True)
class OpenFile:
    """An open file with its size, and its tail if that was read."""

    file: pa.NativeFile
    size: int
    tail: pa.Buffer | None = None
    looked_up_ns: int | None = None
    """The modification time, if opening did not return it and it was looked up."""
    opened_at: float = field(default_factory=monotonic)

    def keep_tail(self, tail: pa.Buffer) -> None:
        if self.tail is None or self.tail.size < tail.size:
            self.tail = tail

    def read_from_tail(self, start: int, length: int) -> pa.Buffer | None:
        """Return the bytes of a range if the cached tail has all of them, else None."""
        if self.tail is None or start < (first := self.size - self.tail.size):
            return None
        return self.tail.slice(start - first, length)


class OpenFiles:
    """The most recently opened files of one storage, by path. It is thread-safe."""

    __slots__ = ("_files", "_lock")

    def __init__(self) -> None:
        self._lock = Lock()
        self._files: OrderedDict[str, OpenFile] = OrderedDict()

    def __reduce__(self) -> tuple[type[OpenFiles], tuple[()]]:
        # Another process opens its own files.
        return OpenFiles, ()

    def get(self, path: str) -> OpenFile | None:
        with self._lock:
            found = self._files.get(path)
            if found is None or monotonic() - found.opened_at > MAX_AGE_SECONDS:
                return None
            self._files.move_to_end(path)
            return found

    def put(self, path: str, file: OpenFile) -> None:
        with self._lock:
            self._files[path] = file
            while len(self._files) > MAX_OPEN_FILES:
                self._files.popitem(last=False)

    def clear(self) -> None:
        """Drop all files. A file that is being read stays open until its reader is done."""
        with self._lock:
            self._files.clear()


# --- Symbolic links ---------------------------------------------------------------------------------------------------
#
# A link out of a table is refused like `..` in a path, unless allowed: it could make a reader read any file that it has
# the rights for. A root that is a link is followed, and so are links from one part of a table to another.


class LinkGuard:
    """Rejects paths below the root of a local table that lead out of it through a symbolic link."""

    def __init__(self, *, allow_outside: bool = False) -> None:
        self.allow_outside = allow_outside
        self._lock = Lock()
        self._inside_folders: set[tuple[str, str]] = set()
        self._checked_folders: set[tuple[str, str]] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return partial(LinkGuard, allow_outside=self.allow_outside), ()

    def check(self, root: str, path: str) -> None:
        """Raise an error if a path below the root leads out of it. Other paths are not checked."""
        top = root.rstrip("/")
        if self.allow_outside or not path.startswith(f"{top}/"):
            return
        self._check_folder(top, path.rpartition("/")[0])
        if os.path.islink(path):  # noqa: PTH114 - making a Path for every file takes longer than the check
            self._check_resolved(top, path)

    def check_all(self, root: str, paths: pa.Array | pa.ChunkedArray, max_singly: int) -> None:
        """Check paths like `check`; if there are more than `max_singly`, each folder is listed once."""
        if self.allow_outside:
            return
        if len(paths) <= max_singly:
            for path in paths.to_pylist():
                self.check(root, path)
            return
        top = root.rstrip("/")
        folders = pc.unique(pc.replace_substring_regex(paths, r"(?s)/[^/]*$", "")).to_pylist()
        for folder in folders:
            if (folder == top or folder.startswith(f"{top}/")) and (top, folder) not in self._checked_folders:
                self._check_folder(top, folder)
                outside = pa.array(sorted(self.find_outside_links(root, folder)), pa.string())
                if not len(outside):
                    with self._lock:
                        self._checked_folders.add((top, folder))
                    continue
                named = paths.filter(pc.is_in(paths, value_set=outside))
                if len(named):
                    raise make_outside_link_error(named[0].as_py())

    def _check_folder(self, top: str, folder: str) -> None:
        if len(folder) > len(top) and (top, folder) not in self._inside_folders:
            self._check_resolved(top, folder)
            with self._lock:
                self._inside_folders.add((top, folder))

    def find_outside_links(self, root: str, folder: str) -> frozenset[str]:
        """Return the paths of the links in a folder that lead out of the root; none if that is allowed."""
        if self.allow_outside:
            return frozenset()
        top = root.rstrip("/")
        try:
            with os.scandir(folder) as entries:
                links = [entry.name for entry in entries if entry.is_symlink()]
        except (FileNotFoundError, NotADirectoryError):
            return frozenset()
        paths = (f"{folder.rstrip('/')}/{name}" for name in links)
        return frozenset(path for path in paths if not _is_inside(top, path))

    def _check_resolved(self, top: str, path: str) -> None:
        if not _is_inside(top, path):
            raise make_outside_link_error(path)


def make_outside_link_error(path: str) -> UnsupportedFeature:
    """Return the error for a link out of a table."""
    return UnsupportedFeature(
        f"'{path}' leads out of the table's folder, to '{os.path.realpath(path)}', through a symbolic link: "
        "pass allow_outside=True to read such files"
    )


def _is_inside(top: str, path: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top or "/"))


_SECRET = re.compile(r"(://[^/:@]*):[^/@]*(?=@)")
"""The secret between a name and the host, as in `abfss://container:key@account.dfs.core.windows.net`."""

_SCHEME = re.compile(r"^([A-Za-z][A-Za-z0-9+.-]+)://")  # two letters or more: `C:` is a drive

_S3_SCHEMES = ("s3", "s3a", "s3n")
_ARROW_SCHEMES = ("gs", "gcs", "abfs", "abfss", "hdfs", "viewfs")


@dataclass(frozen=True, slots=True)
class Storage:
    """The location of a table. `root` is its path in `filesystem`, without a trailing slash."""

    filesystem: pafs.FileSystem
    root: str
    uri: str
    counters: IoCounters = field(default_factory=IoCounters, compare=False, repr=False)
    retries: RetryPolicy = field(default=RetryPolicy(), compare=False, repr=False)
    open_files: OpenFiles = field(default_factory=OpenFiles, compare=False, repr=False)
    """The cache of open files until the end of a scan."""
    given: tuple[str, Mapping[str, Any]] | None = field(default=None, compare=False, repr=False)
    """The URI and options with which another process opens the same storage; None for a file system object."""
    links: LinkGuard = field(default_factory=LinkGuard, compare=False, repr=False)
    tuning: Tuning = field(default=DEFAULT_TUNING, compare=False, repr=False)
    """The thresholds for planning and reading what is stored here."""
    handler: ExpressionHandler | None = field(default=None, compare=False, repr=False)
    """The user's handler for expressions over the metadata of what is stored here; None for Arrow's."""

    @property
    def is_local(self) -> bool:
        filesystem = self.filesystem
        if isinstance(filesystem, pafs.PyFileSystem):
            # One that also opens files of other stores: see `tamis.io.other_stores`.
            filesystem = getattr(filesystem.handler, "own", filesystem)
        while isinstance(filesystem, pafs.SubTreeFileSystem):
            filesystem = filesystem.base_fs
        return isinstance(filesystem, pafs.LocalFileSystem)

    @property
    def threads(self) -> int:
        """The number of concurrent requests of one call."""
        return choose_threads(is_local=self.is_local)

    def with_outside_links(self, allow_outside: bool) -> Storage:
        """Return a copy in which symbolic links may, or may not, lead out of the root."""
        return replace(self, links=LinkGuard(allow_outside=allow_outside))

    def with_tuning(self, tuning: Tuning) -> Storage:
        """Return a copy with other thresholds."""
        return replace(self, tuning=tuning)

    def with_handler(self, handler: ExpressionHandler | None) -> Storage:
        """Return a copy with another handler for expressions over metadata."""
        return replace(self, handler=handler)

    def check_links(self, path: str) -> None:
        """Raise an error if a path below the root leads out of it through a symbolic link that is not allowed."""
        if isinstance(self.filesystem, pafs.LocalFileSystem):
            self.links.check(self.root, path)

    def check_all_links(self, paths: pa.Array | pa.ChunkedArray) -> None:
        """Check many paths like `check_links`."""
        if isinstance(self.filesystem, pafs.LocalFileSystem):
            self.links.check_all(self.root, paths, self.tuning.max_paths_checked_singly)

    def find_outside_links(self, folder: str) -> frozenset[str]:
        """Return the paths of symbolic links in a folder that lead out of the root and are not allowed."""
        is_local = isinstance(self.filesystem, pafs.LocalFileSystem)
        return self.links.find_outside_links(self.root, folder) if is_local else frozenset()

    def format_path(self, path: str) -> str:
        """Return a path of the file system with its scheme, for messages."""
        match = _SCHEME.match(self.uri)
        return f"{match[1]}://{path}" if match and not self.is_local else path


def open_storage(uri: str | os.PathLike[str], storage_options: Mapping[str, Any] | None = None) -> Storage:
    """Return the storage for a path or URI. The first listing or read finds out whether it exists.

    >>> storage = open_storage("s3://bucket/table/", {"AWS_REGION": "eu-west-1", "AWS_SKIP_SIGNATURE": "true"})
    >>> storage.root, storage.uri, storage.is_local
    ('bucket/table', 's3://bucket/table', False)
    """
    text = os.fspath(uri) if isinstance(uri, str | os.PathLike) else None
    if not isinstance(text, str):
        raise make_argument_error("the location of a table", "a string or a path", uri)
    if not text.strip():
        raise InvalidArgument("the table's location is empty: give a path or a URI such as s3://bucket/table")
    # Hadoop and Java write the URI of a local file with one slash.
    text = re.sub(r"^file:/(?!/)", "file:///", text)
    options = dict(check_storage_options(storage_options))
    if "filesystem" in options:
        return _open_given_file_system(text, options)
    match = _SCHEME.match(text)
    scheme = match[1].lower() if match else "file"
    if scheme == "file":
        local = _open_local(text)
        # A local table may refer to files of other stores: see `tamis.io.other_stores`.
        return replace(local, given=(local.uri, options)) if options else local
    if scheme in _S3_SCHEMES:
        return _open_s3(text, options)
    if scheme in _ARROW_SCHEMES:
        return _open_arrow(text, scheme, options)
    raise InvalidArgument(
        f"no file system for '{scheme}://' ({text!r}). Supported: a local path, file://, "
        + ", ".join(f"{known}://" for known in (*_S3_SCHEMES[:2], *_ARROW_SCHEMES))
        + "; for others pass storage_options={'filesystem': a pyarrow or fsspec file system}"
    )


def _open_local(text: str) -> Storage:
    if _SCHEME.match(text):
        parts = urlsplit(text)
        if parts.netloc not in ("", "localhost"):
            raise InvalidArgument(f"{text!r} names the host '{parts.netloc}': a local URI has three slashes, file:///…")
        # As `Path.as_uri` writes it. A `?` or `#` is part of a name here.
        text = unquote(text.split("://", 1)[1].removeprefix("localhost"))
    if "\0" in text:
        raise InvalidArgument(f"{text!r} has a zero character, which is invalid in a path")
    root = os.path.abspath(Path(text).expanduser())  # noqa: PTH100 - resolve() would follow links, abspath does not
    return Storage(pafs.LocalFileSystem(), root.replace(os.sep, "/"), root, given=(root, {}))


def _open_s3(text: str, options: Mapping[str, Any]) -> Storage:
    settings = S3Options.from_options(options)
    address = text.split("://", 1)[1]
    credentials, has_credentials, location = (
        address.rpartition("@") if "@" in address.split("/")[0] else ("", "", address)
    )
    if has_credentials:
        access_key, _, secret_key = credentials.partition(":")
        settings = settings.with_credentials(unquote(access_key), unquote(secret_key))
    root = location.strip("/")
    if not root:
        raise InvalidArgument("the URI has no bucket: expected s3://bucket/path")
    if not hasattr(pafs, "S3FileSystem"):
        raise MissingDependency("this build of pyarrow has no S3 support: install pyarrow from PyPI or conda-forge")
    try:
        filesystem = pafs.S3FileSystem(**settings.to_arguments(bucket=root.split("/")[0]))
    except (OSError, ValueError, pa.ArrowException) as error:
        raise StorageError(f"cannot open 's3://{root}': {error}") from error
    return Storage(filesystem, root, f"s3://{root}", given=(text, options))


def _open_arrow(text: str, scheme: str, options: Mapping[str, Any]) -> Storage:
    if options:
        raise InvalidArgument(
            f"storage_options for '{scheme}://' are not supported ({', '.join(sorted(options))}): set its environment "
            "variables, or pass storage_options={'filesystem': a pyarrow or fsspec file system}"
        )
    shown = _SECRET.sub(r"\1", text).rstrip("/")
    try:
        filesystem, root = pafs.FileSystem.from_uri(text)
    except (OSError, ValueError, ImportError, pa.ArrowException) as error:
        reason = " ".join(str(error).split()).replace(text, shown)
        raise StorageError(f"cannot open '{shown}': {reason}") from error
    return Storage(filesystem, root.rstrip("/") or "/", shown, given=(text, {}))


def _open_given_file_system(text: str, options: Mapping[str, Any]) -> Storage:
    others = sorted(name for name in options if name != "filesystem")
    if others:
        raise InvalidArgument(
            f"storage_options has both 'filesystem' and {', '.join(map(repr, others))}: a file system object is "
            "already configured, so give it alone"
        )
    filesystem = _to_arrow_file_system(options["filesystem"])
    match = _SCHEME.match(text)
    path = text.split("://", 1)[1] if match else text
    if isinstance(filesystem, pafs.LocalFileSystem):
        local = _open_local(text)
        return Storage(filesystem, local.root, local.uri)
    return Storage(filesystem, path.rstrip("/") or path, text.rstrip("/") or text)


def _to_arrow_file_system(given: object) -> pafs.FileSystem:
    if isinstance(given, pafs.FileSystem):
        return given
    # The caller of an fsspec file system has imported fsspec, so it is not imported here.
    fsspec = sys.modules.get("fsspec")
    if fsspec is not None and isinstance(given, fsspec.AbstractFileSystem):
        return pafs.PyFileSystem(pafs.FSSpecHandler(given))
    raise InvalidArgument(
        f"storage_options['filesystem'] is {add_article(type(given).__name__)}: "
        "give a pyarrow.fs.FileSystem or an fsspec one"
    )
