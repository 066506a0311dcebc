"""The directory layout of a Hive-style table: partition columns, their types, and the data files.

Directories are listed level by level, and a directory that a filter rejects is never listed:

    region=eu ── day=2024-03-03 ── part-0.parquet      keep(region) once for all regions,
    region=us    day=2024-03-04    part-1.parquet      keep(region, day) once for all days of the kept regions

The layout is the one that Spark reads. Layouts that Spark rejects are errors that name both paths: different columns at
one level, files beside partition directories, leaves at different depths. Only listed directories are checked. Files in
plain directories below a leaf belong to the leaf, at any depth.
"""

from __future__ import annotations

import difflib
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, PartitionLayoutError, TableNotFound
from tamis.expr.nodes import Column
from tamis.formats.constants import name_partition
from tamis.formats.detect import find_nested_format, reject_other_formats
from tamis.formats.hive.partition_types import (
    Branch,
    PartitionTypes,
    find_branch,
    infer_types,
    parse_values,
    resolve_declared_types,
)
from tamis.formats.hive.tree import DEEPEST_PLAIN, FILES_BESIDE_PARTITIONS, Children, DirectoryTree
from tamis.formats.jobs import Planning
from tamis.io.listing import FileEntry, find_file
from tamis.io.storage import Storage
from tamis.parquet.footer.footer import FILE_SUFFIXES, describe_empty_file
from tamis.skipping.predicate import get_partition_name

logger = logging.getLogger("tamis")

Keep = Callable[[pa.Table], pa.BooleanArray]
"""A function from partition columns, one row per directory, to a mask of the directories to keep; null keeps."""

_NAME_IN_CATALOG = re.compile(r"(?:^|/)\w+(?:\.\w+)+(?<!\.parquet)$")

FILE_COLUMNS = ("path", "size", "modified_ns")
"""The first columns of `HiveLayout.files`; partition columns follow, and may have the same names."""


@dataclass(frozen=True, slots=True)
class LevelCount:
    """The directories of one level: the number found below kept parents, and the number kept."""

    column: str
    total: int
    kept: int


@dataclass(frozen=True, slots=True)
class PartitionDirectories:
    """The leaf directories that were kept, one row each in `paths`, `values` and `raw`.

    `values` has the typed partition columns, `raw` their strings. Without partitions there is one path and no column. A
    column with a string that is invalid for its type is not in `values`, but in `unreadable`.
    """

    paths: pa.StringArray
    values: pa.Table
    raw: pa.Table
    levels: tuple[LevelCount, ...]
    unreadable: Mapping[str, PartitionLayoutError] = field(default_factory=dict)

    @property
    def num_directories(self) -> int:
        return len(self.paths)

    def slice(self, start: int, count: int | None = None) -> PartitionDirectories:
        """Return some of the directories, by default all from `start` on."""
        paths, values, raw = (each.slice(start, count) for each in (self.paths, self.values, self.raw))
        return replace(self, paths=paths, values=values, raw=raw)


class HiveLayout:
    """The directories of one table when they were first listed; made with `discover`."""

    def __init__(
        self,
        tree: DirectoryTree,
        partition_types: PartitionTypes,
        branch: Branch,
        single_file: FileEntry | None = None,
    ) -> None:
        self.storage = tree.storage
        self.partition_types = partition_types
        self.sample_file = branch.sample
        self._tree = tree
        self._branch = branch
        self._single_file = single_file

    @classmethod
    def discover(
        cls,
        storage: Storage,
        partitioning: Mapping[str, str | pa.DataType] | None = None,
        planning: Planning | None = None,
    ) -> HiveLayout:
        """Find the partition columns from the first branch with a file, and their types from more directory names.

        If every type is declared, only that branch is listed. Other types are inferred from all names of a level, or
        from a sample of them if all would take more than `Tuning.inference_listings` listings.
        """
        tree = DirectoryTree(storage, planning)
        if not storage.is_local and storage.root.endswith(FILE_SUFFIXES):
            # Saves a remote listing. A directory may have such a name too, with an empty object beside it.
            file = find_file(storage, storage.root)
            if file is not None and file.size:
                return cls._from_single_file(tree, partitioning, file)
        root: Children | None = None
        with suppress(TableNotFound):
            root = tree.list_children([storage.root])
        if root is None:
            return cls._from_single_file(tree, partitioning, find_file(storage, storage.root))
        reject_other_formats(storage, tree.list([storage.root])[0], has_data=bool(root.files.num_rows))
        if not root.partitions.num_rows:
            _check_flat(storage, root)
        branch = find_branch(tree)
        declared = resolve_declared_types(branch.columns, partitioning)
        return cls(tree, infer_types(tree, branch, declared), branch)

    @classmethod
    def _from_single_file(
        cls, tree: DirectoryTree, partitioning: Mapping[str, str | pa.DataType] | None, file: FileEntry | None
    ) -> HiveLayout:
        storage = tree.storage
        if file is None:
            raise make_not_found_error(storage)
        if file.size == 0:
            raise TableNotFound(describe_empty_file(storage.uri))
        resolve_declared_types((), partitioning)
        return cls(tree, PartitionTypes(pa.schema([]), {}), Branch((), (storage.root,), file), file)

    @classmethod
    def discover_below(cls, tree: DirectoryTree, directory: str) -> HiveLayout:
        """Find the partition columns below a directory of a table, which stay strings."""
        branch = find_branch(tree, directory)
        schema = pa.schema([(column, types.STRING) for column in branch.columns])
        return cls(tree, PartitionTypes(schema, {}), branch)

    def adopt_stored_types(self, stored: pa.Schema) -> HiveLayout:
        """Return the layout with the types of files that also store partition columns: see `partition_types`."""
        return HiveLayout(self._tree, self.partition_types.adopt_stored_types(stored), self._branch, self._single_file)

    def with_storage(self, storage: Storage) -> HiveLayout:
        """Return the same layout, read through another storage of the same files."""
        return HiveLayout(self._tree.with_storage(storage), self.partition_types, self._branch, self._single_file)

    @property
    def partition_schema(self) -> pa.Schema:
        return self.partition_types.schema

    @property
    def is_single_file(self) -> bool:
        return self._single_file is not None

    @property
    def note(self) -> str | None:
        """A note for the report on directories that are ignored in a flat directory of files."""
        if self._single_file is not None or self._branch.columns:
            return None
        plain = self._tree.list_children([self.storage.root]).plain["path"]
        if not len(plain):
            return None
        first = self.storage.format_path(plain[0].as_py())
        return f"not read: {len(plain):,} of its subdirectories, such as '{first}'; open it as a table of its own"

    def list_directories(self, keep: Keep | None = None, texts: Sequence[Column] = ()) -> PartitionDirectories:
        """Return the leaf directories that `keep` keeps at every level.

        It is called once per level, with the typed columns of that level and of the levels above, and their strings
        that `texts` name. It must keep a directory if a column of a deeper level could still decide. It is not called
        for a table without partitions. A column with a string that does not parse is never among the typed values.
        """
        paths = pa.array([self._branch.directories[0]], pa.string())
        raw: dict[str, pa.Array] = {}
        values: dict[str, pa.Array] = {}
        unreadable: dict[str, PartitionLayoutError] = {}
        levels: list[LevelCount] = []
        for level, column in enumerate(self.partition_schema):
            found = self._list_partitions(paths, level)
            parent, text = (found[name].combine_chunks() for name in ("parent", "value"))
            if not types.is_text(column.type):
                text = pc.if_else(pc.equal(text, ""), pa.scalar(None, text.type), text)
            raw = {**{name: each.take(parent) for name, each in raw.items()}, column.name: text}
            values = {name: each.take(parent) for name, each in values.items()}
            try:
                values[column.name] = parse_values(text, column.type, column.name)
            except PartitionLayoutError as error:
                unreadable[column.name] = error
            for each in texts:
                if get_partition_name(each) == column.name:
                    values[each.name] = text
            paths = found["path"].combine_chunks()
            total = len(paths)
            if keep is not None and values:
                mask = keep(_make_table(values))
                if len(mask) != total:
                    raise InvalidArgument(
                        f"keep() returned {len(mask)} booleans, expected {total}: one for each directory"
                    )
                mask = pc.fill_null(mask, True)
                paths = paths.filter(mask)
                raw = {name: each.filter(mask) for name, each in raw.items()}
                values = {name: each.filter(mask) for name, each in values.items()}
            levels.append(LevelCount(column.name, total, len(paths)))
        return PartitionDirectories(paths, _make_table(values), _make_table(raw), tuple(levels), unreadable)

    def list_files(self, directories: PartitionDirectories) -> pa.Table:
        """Return the data files of leaf directories, ordered by path: `FILE_COLUMNS`, then typed partition values."""
        if self._single_file is not None:
            return make_file_table([self._single_file])
        descend = bool(self.partition_schema.names)
        return list_data_files(self._tree, directories.paths, directories.values, descend=descend)

    def _list_partitions(self, paths: pa.StringArray, level: int) -> pa.Table:
        """Return the partition directories of one level, after checking their columns against the first branch."""
        parents = paths.to_pylist()
        children = self._tree.list_children(parents)
        expected = self._branch.directories[level + 1]
        if children.files.num_rows:
            raise self._tree.make_conflict_error(FILES_BESIDE_PARTITIONS, children.files["path"][0].as_py(), expected)
        if children.plain.num_rows:
            below = self._tree.list_children(children.plain["path"].to_pylist())
            if not below.is_empty:
                raise self._tree.make_conflict_error(
                    "a directory that is not named column=value is beside partition directories",
                    children.plain["path"][0].as_py(),
                    expected,
                )
        column = self._branch.columns[level]
        is_other = pc.not_equal(pc.utf8_lower(children.partitions["column"]), column.lower())
        if pc.any(is_other, min_count=0).as_py():
            odd = children.partitions["path"].filter(is_other)[0].as_py()
            raise self._tree.make_conflict_error("partition columns differ at one level", odd, expected)
        return children.partitions


def make_no_files_error(storage: Storage, hint: str = "") -> TableNotFound:
    """Return the error for a folder without data files."""
    return TableNotFound(
        f"no data files in '{storage.uri}'{hint}. Give a folder with Parquet files: empty files and names that start "
        "with _ or . are ignored"
    )


def make_not_found_error(storage: Storage) -> TableNotFound:
    """Return the error for a location without a table."""
    plain = re.match(r"[^*?\[]*(?=[*?\[])", storage.uri)
    if plain is not None:
        folder = plain[0].rpartition("/")[0]
        return TableNotFound(
            f"nothing at '{storage.uri}': patterns are not supported. Give the directory '{folder}', whose files are "
            "all read"
        )
    in_catalog = ", or catalog= for a table in a catalog" if _NAME_IN_CATALOG.search(storage.uri) else ""
    return TableNotFound(
        f"nothing at '{storage.uri}': give the directory of a table, or a Parquet file{in_catalog}"
        f"{_suggest_sibling(storage)}"
    )


def _suggest_sibling(storage: Storage) -> str:
    """Return the name in the same folder that a missing name may be a misspelling of, as the end of a message."""
    location = Path(storage.uri)
    if not storage.is_local or not location.parent.is_dir():
        return ""
    beside = [each.name for each in location.parent.iterdir()]
    near = difflib.get_close_matches(location.name, beside, n=1, cutoff=0.7)
    return f". Did you mean {near[0]!r}?" if near else ""


def make_file_table(files: Sequence[FileEntry]) -> pa.Table:
    """Return files as a table of `FILE_COLUMNS`."""
    return pa.table(
        {
            "path": pa.array([file.path for file in files], pa.string()),
            "size": pa.array([file.size for file in files], pa.int64()),
            "modified_ns": pa.array([file.modified_ns for file in files], pa.int64()),
        }
    )


def list_data_files(tree: DirectoryTree, paths: pa.StringArray, values: pa.Table, *, descend: bool) -> pa.Table:
    """Return the data files of leaf directories, ordered by path: `FILE_COLUMNS`, then the values of directories."""
    files = list_leaf_files(tree, paths, descend=descend)
    files = files.take(pc.sort_indices(files["path"]))
    columns = {name: files[name].combine_chunks() for name in FILE_COLUMNS}
    parents = files["parent"].combine_chunks()
    for name, own in zip(values.column_names, values.columns, strict=True):
        columns[name_partition(name)] = own.combine_chunks().take(parents)
    return pa.table(columns)


def list_leaf_files(tree: DirectoryTree, paths: pa.StringArray, *, descend: bool) -> pa.Table:
    """Return the data files in leaf directories and, if `descend`, in the plain directories below them.

    The column `parent` is the position of the leaf in `paths`.
    """
    found: list[pa.Table] = []
    leaves = pa.array(range(len(paths)), pa.int64())
    for _ in range(1 + DEEPEST_PLAIN):
        children = tree.list_children(paths.to_pylist())
        if descend and children.partitions.num_rows:
            deeper = children.partitions.slice(0, 1)
            raise tree.make_conflict_error(
                "leaf directories are at different depths",
                deeper["path"][0].as_py(),
                paths[deeper["parent"][0].as_py()].as_py(),
            )
        files = children.files
        parents = leaves.take(files["parent"].combine_chunks())
        found.append(files.set_column(files.schema.get_field_index("parent"), "parent", parents))
        if not descend or not children.plain.num_rows:
            return pa.concat_tables(found)
        leaves = leaves.take(children.plain["parent"].combine_chunks())
        paths = children.plain["path"].combine_chunks()
    raise tree.make_depth_error(paths[0].as_py())


def _make_table(columns: Mapping[str, pa.Array]) -> pa.Table:
    return pa.table(list(columns.values()), names=list(columns))


def _check_flat(storage: Storage, root: Children) -> None:
    plain = root.plain["path"]
    if not root.files.num_rows:
        hint = ""
        if len(plain):
            first = plain[0].as_py()
            table = find_nested_format(storage, first)
            what = f"is {table}: open that" if table else "is not named column=value"
            hint = f": the directory '{storage.format_path(first)}' {what}"
        raise make_no_files_error(storage, hint)
    if len(plain):
        logger.warning(
            "'%s' is a directory of files: its subdirectories are ignored, such as '%s' (%d in all)",
            storage.uri,
            storage.format_path(plain[0].as_py()),
            len(plain),
        )
