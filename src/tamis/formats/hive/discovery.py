"""Discovery of a table's partition columns and their types, with as few listings as possible."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, PartitionLayoutError, suggest_name
from tamis.formats.hive.partition_types import (
    can_parse,
    check_declared,
    has_leading_zeros,
    infer_type,
    to_partition_type,
)
from tamis.formats.hive.tree import DEEPEST_PLAIN, FILES_BESIDE_PARTITIONS, DirectoryTree
from tamis.io.listing import FileEntry
from tamis.types import type_from_name


@dataclass(frozen=True, slots=True)
class Branch:
    """The path from the root to the first leaf: its directories, starting with the root, and one column fewer.

    `sample` is the first data file of the leaf; None if the table has no files.
    """

    columns: tuple[str, ...]
    directories: tuple[str, ...]
    sample: FileEntry | None = None

    def step(self, column: str, path: str) -> Branch:
        """Return the branch one directory further down. Column names must differ by more than case."""
        for known, directory in zip(self.columns, self.directories[1:], strict=True):
            if known.lower() == column.lower():
                raise PartitionLayoutError(
                    f"a partition column occurs twice, as {known!r} in '{directory}' and as {column!r} in '{path}': "
                    "rename one of the directories"
                )
        return Branch((*self.columns, column), (*self.directories, path))


def find_branch(tree: DirectoryTree, directory: str | None = None) -> Branch:
    """Return the first branch, by name, that ends in a data file; from the table's root, or from another directory.

    Empty directories are skipped, one by one at first; if that takes many listings, whole levels are listed together. A
    table without files has the columns of its deepest branch.
    """
    root = Branch((), (tree.storage.root if directory is None else directory,))
    waiting = [(root, root.directories[0])]
    deepest = root
    while waiting and tree.num_listed < tree.storage.tuning.inference_listings:
        branch, path = waiting.pop()
        found, below = _search_directories(tree, [(branch, path)])
        if found is not None:
            return found
        deepest = max(deepest, branch, key=lambda candidate: len(candidate.columns))
        waiting.extend(reversed(below))
    while waiting:
        found, below = _search_directories(tree, waiting)
        if found is not None:
            return found
        deepest = max(deepest, *(branch for branch, _ in waiting), key=lambda candidate: len(candidate.columns))
        waiting = below
    return deepest


def _search_directories(
    tree: DirectoryTree, positions: list[tuple[Branch, str]]
) -> tuple[Branch | None, list[tuple[Branch, str]]]:
    """Return the branch of the first data file in the given directories, else the directories below them.

    A position is a branch and the directory of the search: the end of the branch, or a plain directory below it.
    """
    children = tree.list_children([path for _, path in positions])
    files, partitions = children.files, children.partitions
    if files.num_rows:
        branch, path = positions[files["parent"][0].as_py()]
        beside = partitions.filter(pc.equal(partitions["parent"], files["parent"][0]))
        if beside.num_rows:
            raise tree.make_conflict_error(FILES_BESIDE_PARTITIONS, files["path"][0].as_py(), beside["path"][0].as_py())
        sample = FileEntry(*(files[name][0].as_py() for name in ("path", "size", "modified_ns")))
        return Branch(branch.columns, branch.directories, sample), []
    below: list[tuple[Branch, str]] = []
    for column, path, parent in zip(
        *(partitions[name].to_pylist() for name in ("column", "path", "parent")), strict=True
    ):
        branch, above = positions[parent]
        if above != branch.directories[-1]:
            raise tree.make_conflict_error(FILES_BESIDE_PARTITIONS, above, path)
        below.append((branch.step(column, path), path))
    for path, parent in zip(*(children.plain[name].to_pylist() for name in ("path", "parent")), strict=True):
        branch, _ = positions[parent]
        # The root of a partitioned table has no plain directories with data; plain directories of a leaf belong to it.
        if branch.columns:
            if path.count("/") - branch.directories[-1].count("/") > DEEPEST_PLAIN:
                raise tree.make_depth_error(path)
            below.append((branch, path))
    return None, below


def check_partitioning(partitioning: object) -> Mapping[str, str | pa.DataType]:
    """Return the declared types, which may be empty; raise InvalidArgument unless they map names to types."""
    if partitioning is None:
        return {}
    if not isinstance(partitioning, Mapping):
        raise InvalidArgument(
            f"partitioning must be a mapping of columns to types, as in {{'day': 'date'}}, found {partitioning!r}"
        )
    for name, given in partitioning.items():
        if not isinstance(name, str):
            raise InvalidArgument(f"partitioning has the column {name!r}: a name is a string, as in {{'day': 'date'}}")
        if not isinstance(given, str | pa.DataType):
            raise InvalidArgument(
                f"partitioning has the type {given!r} for {name!r}: give its name, as in {{{name!r}: 'int'}}, or an "
                "Arrow type"
            )
    return partitioning


def resolve_declared_types(
    columns: tuple[str, ...], partitioning: Mapping[str, str | pa.DataType] | None
) -> dict[str, pa.DataType]:
    """Return the types that the user declared, by the column names of the directories."""
    declared: dict[str, pa.DataType] = {}
    for name, given in check_partitioning(partitioning).items():
        matches = [column for column in columns if column.lower() == name.lower()]
        if not matches:
            known = f"Partition columns: {', '.join(columns)}" if columns else "The table has no partition columns"
            hint = suggest_name(name, columns)
            raise InvalidArgument(f"partitioning declares {name!r}, which is not a partition column.{hint} {known}")
        data_type = type_from_name(given) if isinstance(given, str) else given
        check_declared(name, data_type)
        declared[matches[0]] = data_type
    return declared


@dataclass(frozen=True)
class PartitionTypes:
    """The partition columns of a table with their types, and the strings that these were inferred from."""

    schema: pa.Schema
    seen: Mapping[str, pa.StringArray]
    """The strings from which the type of a column was inferred, without declared columns."""

    def adopt_stored_types(self, stored: pa.Schema) -> PartitionTypes:
        """Return the columns with the file's type for a partition column that files store too, if it fits all its
        strings."""
        by_name = {field.name.lower(): field.type for field in stored}
        types = {field.name: field.type for field in self.schema}
        for column, raw in self.seen.items():
            found = by_name.get(column.lower())
            wanted = None if found is None else to_partition_type(found)
            if wanted is not None and can_parse(raw, wanted):
                types[column] = wanted
        return PartitionTypes(pa.schema(list(types.items())), self.seen)

    @property
    def note(self) -> str | None:
        """A note for the report on columns whose strings have leading zeros that their numbers lose."""
        columns = [name for name, raw in self.seen.items() if has_leading_zeros(raw, self.schema.field(name).type)]
        if not columns:
            return None
        names = " and ".join(f"'{name}'" for name in columns)
        declared = ", ".join(f'"{name}": "string"' for name in columns)
        return (
            f"directories of {names} have leading zeros, which their numbers lose: declare strings to keep them, with "
            f"partitioning={{{declared}}} or --partitioning {columns[0]}=string"
        )


def infer_types(tree: DirectoryTree, branch: Branch, declared: Mapping[str, pa.DataType]) -> PartitionTypes:
    """Return the partition columns with their types: declared, or inferred from directory names."""
    undeclared = [level for level, column in enumerate(branch.columns) if column not in declared]
    inferred: dict[str, pa.DataType] = {}
    seen: dict[str, pa.StringArray] = {}
    paths = [tree.storage.root]
    for level in range(max(undeclared, default=-1) + 1):
        levels_left = max(undeclared) - level + 1
        chosen = _sample(tree, paths, (tree.storage.tuning.inference_listings - tree.num_listed) // levels_left)
        partitions = tree.list_children(chosen).partitions
        if level in undeclared:
            texts = pc.drop_null(pc.unique(partitions["value"]))
            seen[branch.columns[level]] = texts
            inferred[branch.columns[level]] = infer_type(texts)
        paths = partitions["path"].to_pylist()
    types = {**inferred, **declared}
    return PartitionTypes(pa.schema([pa.field(column, types[column]) for column in branch.columns]), seen)


def _sample(tree: DirectoryTree, paths: list[str], budget: int) -> list[str]:
    """Return evenly spread directories within the budget of listings, and all directories that are listed already."""
    unlisted = [path for path in paths if not tree.is_listed(path)]
    if len(unlisted) <= budget:
        return paths
    spread = np.linspace(0, len(unlisted) - 1, max(0, budget)).astype(int).tolist()
    chosen = {unlisted[position] for position in spread}
    return [path for path in paths if path in chosen or tree.is_listed(path)]
