"""The files of a table with their statistics, as executors read them from a format's metadata.

A format whose metadata has statistics of files plans a job: a plain function reads one item, such as a checkpoint part
or some manifests, and yields `FilesWithStatistics`. An engine makes rows of them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import pyarrow as pa

from tamis.errors import TamisError
from tamis.expr.nodes import Column
from tamis.expr.wire.expression_json import types_from_text, types_to_text
from tamis.formats.jobs import Arguments, Item
from tamis.formats.source import FileListing
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct

KEY = "key"
"""The column with the key of a file, by which newer metadata replaces it."""

DELETION_VECTOR = pa.struct(
    [
        ("storage_type", pa.string()),
        ("path_or_inline", pa.string()),
        ("offset", pa.int32()),
        ("size", pa.int32()),
        ("cardinality", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True)
class FilesWithStatistics:
    """Some files, one Arrow row each."""

    files: Mapping[str, pa.Array]
    """`path`, `size`, `num_records`, `logical_rows` (after deletes); where known, `modified` or `modified_ns`,
    `deletion_vector`, `key`."""
    statistics: Mapping[str, pa.Array]
    """In the layout of `tamis.skipping.metadata`."""
    partitions: pa.Table = field(default_factory=lambda: pa.table({}))
    """The typed partition values, by column name, and their texts, by the names of `make_partition_text`.

    Without texts, a `PartitionFilter` is an error."""
    errors: Mapping[int, TamisError] = field(default_factory=dict)
    """The files whose rows are wrong, by position: with a partition value that is invalid for its type."""


FileRowsFunction = Callable[[Arguments, bytes], Iterator[FilesWithStatistics]]
"""Reads the files of an item. The arguments have `columns`: see `read_columns`."""


@dataclass(frozen=True)
class FileRowsJob:
    """A function to apply to items in executors, and what need not be read there."""

    function: str
    """The name of a `FileRowsFunction`, as in `tamis.formats.jobs`."""
    arguments: Mapping[str, Any]
    items: Sequence[Item]
    description: str
    """A description for the Spark UI: `read 40 checkpoint parts of orders@17`."""
    known: Sequence[FilesWithStatistics] = ()
    """Files that are already in memory."""
    replaced: pa.Array | None = None
    """The keys of files that executors find and that are no longer part of the table."""


class FileRowsReader(Protocol):
    """Reads the files of a table, at one version, with their statistics."""

    def list_columns(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns with statistics: the given ones, and those that the format computes of them."""
        ...

    def plan(self, columns: Sequence[Column]) -> FileRowsJob:
        """Return the job that reads the files with the statistics of columns."""
        ...

    def split_conjuncts(self, predicate: Predicate) -> tuple[Sequence[Conjunct], Sequence[Conjunct]]:
        """Return the conjuncts that prune by partition values alone, and those that prune by all statistics."""
        ...

    def resolve_paths(self, files: pa.Table) -> pa.Table:
        """Return files with their paths resolved in the file system, and with sizes that match."""
        ...


@runtime_checkable
class HasFileRows(Protocol):
    """A table whose metadata has statistics of files, in parts that executors can read."""

    def file_rows(self) -> FileRowsReader: ...


@runtime_checkable
class ListsFileRows(Protocol):
    """A table that makes a listing of file rows, without planning again."""

    needs_keys: bool
    """Whether it needs the `key` of files, which is otherwise left out."""

    def list_file_rows(self, files: pa.Table) -> FileListing | None:
        """Return files, with the columns of `FilesWithStatistics.files` and constants, as a listing without reports.

        None if a plan of the table would read no more for it.
        """
        ...


# --- The columns with statistics, as arguments of a job ---------------------------------------------------------------


def columns_to_json(columns: Sequence[Column]) -> dict[str, Any]:
    """Convert columns with their types to JSON values."""
    kinds = types_to_text([column.type for column in columns])
    return {"paths": [list(column.path) for column in columns], "types": kinds}


def read_columns(arguments: Arguments) -> tuple[Column, ...]:
    """Return the columns in the arguments of a job, which `columns_to_json` converted."""
    given = arguments["columns"]
    kinds = types_from_text(given["types"])
    return tuple(Column(tuple(path), type=kind) for path, kind in zip(given["paths"], kinds, strict=True))
