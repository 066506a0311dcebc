"""A database as connectors use it: it describes its tables and runs queries, each on a connection of its own."""

from __future__ import annotations

import os
from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import TableError
from tamis.tables.database.dialects import Dialect
from tamis.tables.database.query import DatabaseColumn, DatabaseTable, Query


class Database(Protocol):
    """One database. It only reads, and nothing that it says names a password."""

    dialect: Dialect
    place: str
    """Where it is, for messages."""

    def identity(self) -> Hashable:
        """Equal for two that are the same database, however they were opened.

        Where that cannot be known it may be equal for two that look alike: whoever asks protects one as the other.
        """
        ...

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        """The table, or view, of a name with or without a schema; None where there is none."""
        ...

    def table_names(self) -> list[str]:
        """The tables and views, with their schema where they are not found without, for people who look for one."""
        ...

    def rows_of(self, table: DatabaseTable) -> int | None:
        """About how many rows a table has, where that costs nothing to speak of."""
        ...

    def check(self, query: Query) -> None:
        """Raise where a column that a query relies on holds values that are not of its type."""
        ...

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        """The rows of a query, which returns these columns."""
        ...

    def close(self) -> None:
        """Close the connections that are not in use."""
        ...


def file_identity(path: str) -> Hashable:
    """What a file is known by, whichever links lead to it."""
    try:
        found = Path(path).stat()
    except OSError:
        return os.path.realpath(path)  # it is gone, and nobody reads it
    # Not every file system numbers its files.
    return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)


def conform(batch: pa.RecordBatch, columns: Sequence[DatabaseColumn], place: str) -> pa.RecordBatch:
    """A batch with the types that its columns have here. What does not fit is an error and never another value."""
    if not columns:
        return batch.select([])
    arrays = [_conform(array, column, place) for array, column in zip(batch.columns, columns, strict=True)]
    schema = pa.schema([pa.field(column.name, column.type) for column in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _conform(array: pa.Array, column: DatabaseColumn, place: str) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == column.type:
        return array
    try:
        return pc.cast(array, column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"the column {column.name!r} in {place} holds a value that is no {column.type}: "
            "read it through a view that casts it"
        ) from error
