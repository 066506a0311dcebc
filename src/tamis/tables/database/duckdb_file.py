"""DuckDB, which speaks Arrow by itself: a file, or a connection that is open already."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from tamis import types
from tamis.errors import StorageError, TableError, one_line
from tamis.tables.database.connection import conform, file_identity
from tamis.tables.database.dialects import DUCKDB, family_of
from tamis.tables.database.query import DatabaseColumn, DatabaseTable, Query
from tamis.types import is_text

if TYPE_CHECKING:
    import duckdb

_FETCHED_AS_TEXT = ("UUID", "BIT", "INTERVAL", "TIME WITH TIME ZONE", "TIMETZ", "HUGEINT", "UHUGEINT", "ENUM", "VARINT")


class DuckDBDatabase:
    """A DuckDB database."""

    dialect = DUCKDB

    def __init__(self, given: str | duckdb.DuckDBPyConnection) -> None:
        import duckdb

        self.place = given if isinstance(given, str) else "the DuckDB connection"
        self._is_own = isinstance(given, str)
        try:
            self._connection = duckdb.connect(given, read_only=True) if isinstance(given, str) else given
        except duckdb.Error as error:
            raise StorageError(f"{self.place} cannot be opened: {one_line(error)}") from error

    def identity(self) -> Hashable:
        ((path,),) = self._rows("SELECT path FROM duckdb_databases() WHERE database_name = current_database()")
        if path is not None and Path(str(path)).is_file():
            return file_identity(str(path))
        # What is in memory has no place, and connections to it do not tell of each other: they see the same tables.
        return tuple(
            self._rows(
                "SELECT database_name, schema_name, table_name, table_oid, sql FROM duckdb_tables() UNION ALL "
                "SELECT database_name, schema_name, view_name, view_oid, sql FROM duckdb_views() WHERE NOT internal "
                "ORDER BY ALL"
            )
        )

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        if len(name) > 2:
            return None
        schema = name[0] if len(name) == 2 else None
        found = self._rows(
            "SELECT schema_name, table_name FROM (SELECT database_name, schema_name, table_name FROM duckdb_tables() "
            "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal) "
            "WHERE database_name = current_database() AND lower(table_name) = lower(?) "
            "AND lower(schema_name) = lower(coalesce(?, current_schema()))",
            [name[-1], schema],
        )
        if not found:
            return None
        owner, table = map(str, found[0])
        place = f"{_identifier(owner)}.{_identifier(table)}"
        described = self._rows(f"DESCRIBE SELECT * FROM {place}")
        kinds = {str(row[0]): str(row[1]) for row in described}
        fields = self._schema(place, kinds)
        columns = tuple(_column(field, kinds[field.name]) for field in fields)
        return DatabaseTable(owner, table, columns)

    def close(self) -> None:
        # A connection that was given is its owner's.
        if self._is_own:
            self._connection.close()

    def table_names(self) -> list[str]:
        found = self._rows(
            "SELECT if(schema_name = current_schema(), table_name, schema_name || '.' || table_name) AS name "
            "FROM (SELECT database_name, schema_name, table_name FROM duckdb_tables() "
            "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal) "
            "WHERE database_name = current_database() ORDER BY name",
            [],
        )
        return [str(name) for (name,) in found]

    def _schema(self, place: str, kinds: dict[str, str]) -> pa.Schema:
        selected = ", ".join(
            f"{_identifier(name)}::VARCHAR AS {_identifier(name)}" if _is_fetched_as_text(kind) else _identifier(name)
            for name, kind in kinds.items()
        )
        with self._telling_place():
            return self._cursor().sql(f"SELECT {selected} FROM {place} LIMIT 0").to_arrow_table().schema

    def rows_of(self, table: DatabaseTable) -> int | None:
        found = self._rows(
            "SELECT estimated_size FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = ? AND table_name = ?",
            [table.schema, table.name],
        )
        return next((int(str(rows)) for (rows,) in found), None)

    def check(self, query: Query) -> None:
        """Every value has the type of its column."""

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        with self._telling_place():
            for batch in self._cursor().sql(text).to_arrow_reader():
                yield conform(batch, columns, self.place)

    def _cursor(self) -> duckdb.DuckDBPyConnection:
        """A connection of its own to the same database, so that queries run side by side."""
        cursor = self._connection.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        return cursor

    def _rows(self, text: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        with self._telling_place():
            return self._cursor().execute(text, list(parameters)).fetchall()

    @contextmanager
    def _telling_place(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except duckdb.Error as error:
            raise TableError(f"{self.place} did not answer a query: {one_line(error)}") from error


def _is_fetched_as_text(kind: str) -> bool:
    return kind.upper().startswith(_FETCHED_AS_TEXT)


def _column(field: pa.Field, kind: str) -> DatabaseColumn:
    if _is_fetched_as_text(kind):
        return DatabaseColumn(field.name, types.STRING, reads_as_text=True)
    data_type = types.STRING if is_text(field.type) else field.type
    return DatabaseColumn(field.name, data_type, compares=family_of(data_type) is not None)


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
