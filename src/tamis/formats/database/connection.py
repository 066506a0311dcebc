"""The interface of a database: it describes its tables and runs each query on its own connection."""

from __future__ import annotations

import os
import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import TableError, make_missing_package_error, to_one_line
from tamis.formats.database.database_query import DatabaseColumn, DatabaseTable, Query
from tamis.formats.database.dialects import Dialect


class Database(Protocol):
    """One database, opened read-only. Its messages never contain a password."""

    dialect: Dialect
    location: str
    """The location of the database, for messages."""

    def identity(self) -> Hashable:
        """Return a value that is equal for two handles to the same database, however they were opened.

        If this cannot be determined, two databases that look alike may compare equal. Callers use it to apply policies,
        and then protect both databases alike.
        """
        ...

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        """Return the table or view with this name, which may include a schema; None if it does not exist."""
        ...

    def list_tables(self) -> list[str]:
        """Return the names of tables and views for messages, schema-qualified unless the bare name resolves."""
        ...

    def estimate_row_count(self, table: DatabaseTable) -> int | None:
        """Return an estimate of a table's row count, or None if the estimate would be expensive."""
        ...

    def check(self, query: Query) -> None:
        """Raise if a column that a query evaluates holds values of another type than the column's."""
        ...

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        """Run a query that returns these columns, and yield its rows."""
        ...

    def close(self) -> None:
        """Close the connections that are not in use."""
        ...


@contextmanager
def require_driver(what: str, package: str) -> Iterator[None]:
    """Turn a failed import of a driver into an error that says how to install it."""
    try:
        yield
    except ImportError as error:
        raise make_missing_package_error(what, "database", package) from error


def make_query_error(location: str, error: Exception) -> TableError:
    return TableError(f"{location} did not answer a query: {to_one_line(error)}")


def identify_file(path: str) -> Hashable:
    """Return a value that identifies a file, whichever links lead to it."""
    try:
        found = Path(path).stat()
    except OSError:
        return os.path.realpath(path)  # the file was deleted, so it cannot be read
    # Not every file system has inode numbers.
    return (found.st_dev, found.st_ino) if found.st_ino else os.path.realpath(path)


def conform(batch: pa.RecordBatch, columns: Sequence[DatabaseColumn], location: str) -> pa.RecordBatch:
    """Cast a batch to the types of its columns. A value that the type cannot hold exactly raises an error."""
    if not columns:
        return batch.select([])
    arrays = [_conform_array(array, column, location) for array, column in zip(batch.columns, columns, strict=True)]
    schema = pa.schema([pa.field(column.name, column.type) for column in columns])
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _conform_array(array: pa.Array, column: DatabaseColumn, location: str) -> pa.Array:
    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if array.type == column.type:
        return array
    try:
        return pc.cast(array, column.type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        raise TableError(
            f"the column {column.name!r} in {location} holds a value that cannot be cast to {column.type}: "
            "read it through a view that casts it"
        ) from error


def redact_password(uri: str) -> str:
    """Return a URI without its password and its query string, which may contain another one."""
    scheme, sign, rest = uri.partition("://")
    if not sign:
        return uri
    before, at, after = rest.rpartition("@")
    if re.search("[/?#]", before):
        # Either in a password that is not escaped, or the @ is in the query string: any part may be the password.
        return f"{scheme}://…"
    user = before.partition(":")[0]
    return f"{scheme}://{user}{at if user else ''}{re.split('[?#]', after)[0]}"
