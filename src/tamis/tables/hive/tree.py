"""The directories of a table, listed lazily and each at most once, with the visibility rules of Spark.

Hidden names are ignored: names that start with `.`, names that start with `_` and have no `=`, and files of unfinished
copies (`._COPYING_`). Empty files and Parquet's summary files (`_metadata`, `_common_metadata`) are ignored too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import PartitionLayoutError
from tamis.io.links import leads_outside
from tamis.io.listing import Listing
from tamis.io.storage import Storage
from tamis.tables.hive.listing_job import Lister
from tamis.tables.hive.names import split_directory_names
from tamis.tables.planning import Planning

_HIDDEN = r"(?s)^\.|^_[^=]*$|\._COPYING_$"
_HIDDEN_FILE = rf"{_HIDDEN}|^_(?:common_)?metadata"
_DIRECTORY_PART = r"(?s)^.*/"

DEEPEST_PLAIN = 8
"""The most levels of plain directories below a leaf; a link that leads back up would nest without end."""

FILES_BESIDE_PARTITIONS = "data files are beside partition directories"


@dataclass(frozen=True, slots=True)
class Children:
    """The entries of several directories, one row each; `parent` is the position of the directory of an entry.

    | table        | columns                                                                                      |
    |--------------|----------------------------------------------------------------------------------------------|
    | `partitions` | `path`, `parent`, `column` and `value` (an unescaped string; null for NULL)                   |
    | `plain`      | `path`, `parent`: directories that are not `column=value`                                     |
    | `files`      | `path`, `parent`, `size`, `modified_ns`                                                       |
    """

    partitions: pa.Table
    plain: pa.Table
    files: pa.Table

    @property
    def is_empty(self) -> bool:
        return not (self.partitions.num_rows or self.plain.num_rows or self.files.num_rows)


class DirectoryTree:
    """Cached listings of one table's directories, so that all plans see the same state."""

    def __init__(self, storage: Storage, planning: Planning | None = None) -> None:
        self.storage = storage
        self._lister = Lister(storage, planning)
        self._listings: dict[str, Listing] = {}
        self._children: dict[str, Children] = {}

    @property
    def num_listed(self) -> int:
        """The number of directories listed so far."""
        return len(self._listings)

    def is_listed(self, path: str) -> bool:
        return path in self._listings

    def list(self, paths: Sequence[str]) -> list[Listing]:
        missing = [path for path in dict.fromkeys(paths) if path not in self._listings]
        for path, listing in zip(missing, self._lister.list(missing), strict=True):
            # If two threads list a directory concurrently, both use the first result.
            self._listings.setdefault(path, listing)
        return [self._listings[path] for path in paths]

    def list_children(self, paths: Sequence[str]) -> Children:
        """Return the entries of directories. Those of a single directory are cached: every query visits the root, and
        most follow one branch."""
        if len(paths) != 1:
            return self._read_children(paths)
        found = self._children.get(paths[0])
        if found is None:
            found = self._children.setdefault(paths[0], self._read_children(paths))
        return found

    def _read_children(self, paths: Sequence[str]) -> Children:
        listings = self.list(paths)
        directories = pa.table(
            {
                "path": _concatenate([listing.directory_paths for listing in listings], pa.string()),
                "parent": _make_parents([len(listing.directory_paths) for listing in listings]),
            }
        )
        files = pa.table(
            {
                "path": _concatenate([listing.file_paths for listing in listings], pa.string()),
                "parent": _make_parents([len(listing.file_paths) for listing in listings]),
                "size": _concatenate([listing.file_sizes for listing in listings], pa.int64()),
                "modified_ns": _concatenate([listing.file_modified_ns for listing in listings], pa.int64()),
            }
        )
        found = self._classify(directories, files)
        self._check_links(paths, found)
        return found

    def _check_links(self, paths: Sequence[str], found: Children) -> None:
        outside = frozenset().union(*(self.storage.links_outside(path) for path in paths))
        if outside:
            # Links among hidden names are not followed.
            for entries in (found.partitions, found.plain, found.files):
                for path in entries["path"].to_pylist():
                    if path in outside:
                        raise leads_outside(path)

    def make_conflict_error(self, problem: str, first: str, second: str) -> PartitionLayoutError:
        locate = self.storage.place
        return PartitionLayoutError(
            f"{problem}: '{locate(first)}' and '{locate(second)}'. "
            "Move one of them out of the table, or open its directory as a table of its own"
        )

    def make_depth_error(self, path: str) -> PartitionLayoutError:
        return PartitionLayoutError(
            f"more than {DEEPEST_PLAIN} levels of directories below a partition: '{self.storage.place(path)}'. "
            "If it is a link that leads back up, remove it"
        )

    def _classify(self, directories: pa.Table, files: pa.Table) -> Children:
        is_hidden = pc.match_substring_regex(extract_base_names(files["path"].combine_chunks()), _HIDDEN_FILE)
        # A size that the file system does not know may be any.
        has_bytes = pc.not_equal(pc.fill_null(files["size"].combine_chunks(), 1), 0)
        files = files.filter(pc.and_not(has_bytes, is_hidden))

        names = extract_base_names(directories["path"].combine_chunks())
        is_seen = pc.invert(pc.match_substring_regex(names, _HIDDEN))
        directories, names = directories.filter(is_seen), names.filter(is_seen)
        is_partition = pc.match_substring(names, "=")
        columns, values = split_directory_names(names.filter(is_partition))
        partitions = directories.filter(is_partition)
        self._check_column_names(partitions["path"], columns)
        partitions = partitions.append_column("column", columns).append_column("value", values)
        return Children(partitions, directories.filter(pc.invert(is_partition)), files)

    def _check_column_names(self, paths: pa.ChunkedArray, columns: pa.StringArray) -> None:
        is_empty = pc.equal(columns, "")
        if pc.any(is_empty, min_count=0).as_py():
            path = paths.filter(is_empty)[0].as_py()
            raise PartitionLayoutError(
                f"the directory '{self.storage.place(path)}' has no column name before '=': rename it to column=value"
            )


def extract_base_names(paths: pa.StringArray) -> pa.StringArray:
    return pc.replace_substring_regex(paths, _DIRECTORY_PART, "")


def _concatenate(arrays: list[pa.Array], data_type: pa.DataType) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], data_type)


def _make_parents(lengths: list[int]) -> pa.Int64Array:
    return pa.array(np.repeat(np.arange(len(lengths), dtype=np.int64), lengths))
