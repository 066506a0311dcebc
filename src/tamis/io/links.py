"""Symbolic links on a local disk: one that leads out of a table is as `..` in a path, and refused unless allowed.

A table whose root is a link is where the link leads, and links from one part of a table to another are followed. A link
out of the root could have any file read that the reader has rights for, whatever the owner of the table meant.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import UnsupportedFeature

FEW_PATHS = 1000
"""So many paths are looked at one by one, in some two milliseconds; of more, their folders are listed."""


class LinkGuard:
    """Refuses paths below the root of a local table that a symbolic link leads out of it."""

    def __init__(self, *, allow_outside: bool = False) -> None:
        self.allow_outside = allow_outside
        self._lock = Lock()
        self._known: set[tuple[str, str]] = set()
        self._looked_through: set[tuple[str, str]] = set()

    def __reduce__(self) -> tuple[object, ...]:
        return _make_guard, (self.allow_outside,)

    def check(self, root: str, path: str) -> None:
        """An error where a path below the root leads out of it. A path that is not below it is not judged here."""
        top = root.rstrip("/")
        if self.allow_outside or not path.startswith(f"{top}/"):
            return
        self._check_folder(top, path.rpartition("/")[0])
        if os.path.islink(path):  # noqa: PTH114 - a Path for every file takes longer than to look
            self._check_resolved(top, path)

    def check_all(self, root: str, paths: pa.Array | pa.ChunkedArray) -> None:
        """The same for many paths. Of many, whole folders are looked through, each once."""
        if self.allow_outside:
            return
        if len(paths) <= FEW_PATHS:
            for path in paths.to_pylist():
                self.check(root, path)
            return
        top = root.rstrip("/")
        folders = pc.unique(pc.replace_substring_regex(paths, r"(?s)/[^/]*$", "")).to_pylist()
        for folder in folders:
            if (folder == top or folder.startswith(f"{top}/")) and (top, folder) not in self._looked_through:
                self._check_folder(top, folder)
                outside = pa.array(sorted(self.find_outside(root, folder)), pa.string())
                if not len(outside):
                    with self._lock:
                        self._looked_through.add((top, folder))
                    continue
                named = paths.filter(pc.is_in(paths, value_set=outside))
                if len(named):
                    raise leads_outside(named[0].as_py())

    def _check_folder(self, top: str, folder: str) -> None:
        if len(folder) > len(top) and (top, folder) not in self._known:
            self._check_resolved(top, folder)
            with self._lock:
                self._known.add((top, folder))

    def find_outside(self, root: str, folder: str) -> frozenset[str]:
        """The paths of the links in a folder that lead out of the root; none where that is allowed."""
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
            raise leads_outside(path)


def leads_outside(path: str) -> UnsupportedFeature:
    """The error for a link out of a table."""
    return UnsupportedFeature(
        f"'{path}' leads out of the table's folder, to '{os.path.realpath(path)}', by a symbolic link: such a file is "
        "read only where that is allowed (allow_outside=True)"
    )


def _is_inside(top: str, path: str) -> bool:
    return Path(os.path.realpath(path)).is_relative_to(os.path.realpath(top or "/"))


def _make_guard(allow_outside: bool) -> LinkGuard:
    return LinkGuard(allow_outside=allow_outside)
