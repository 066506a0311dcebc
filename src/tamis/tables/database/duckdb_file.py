"""DuckDB, which speaks Arrow by itself: a file, or a connection that is open already.

Most types of DuckDB are types of Arrow. These are cast in every query, also inside of lists, structs and maps, so that
a value compares and orders as what it is:

| in DuckDB                | here            | because                                                           |
|--------------------------|-----------------|-------------------------------------------------------------------|
| HUGEINT, UHUGEINT        | decimal(38,0)   | Arrow has no wider integers; a longer value is an error           |
| BIGNUM                   | decimal(38,0)   | the same; DuckDB casts it by way of its text                      |
| UUID, BIT                | string          | their texts have the same order                                   |
| ENUM                     | string          | its values are texts; the order of its declaration is not kept    |
| TIMETZ, UNION, VARIANT   | not read        | neither Arrow nor a text has their order                          |
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
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
    from duckdb.sqltypes import DuckDBPyType

_WIDEST_INTEGER = "DECIMAL(38,0)"

_CASTS = {
    "hugeint": (_WIDEST_INTEGER,),
    "uhugeint": (_WIDEST_INTEGER,),
    # DuckDB has no cast of it to a decimal.
    "bignum": ("VARCHAR", _WIDEST_INTEGER),
    "uuid": ("VARCHAR",),
    "bit": ("VARCHAR",),
    "enum": ("VARCHAR",),
}
"""By the id of a type, what its values are cast to, one after the other."""

_NOT_READ = ("time with time zone", "union", "variant")

_COLUMN_OF_CAST = re.compile(r'CAST\((?:CAST\()*"t\d+"\."((?:[^"]|"")+)"')


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
        return DatabaseTable(owner, table, self._columns(place))

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

    def _columns(self, place: str) -> tuple[DatabaseColumn, ...]:
        with self._telling_place():
            rows = self._cursor().sql(f"SELECT * FROM {place} LIMIT 0")
            kinds = dict(zip(rows.columns, rows.types, strict=True))
            casts = {name: _casts(kind) for name, kind in kinds.items()}
            selected = ", ".join(_cast(_identifier(name), casts[name]) for name in kinds)
            schema = self._cursor().sql(f"SELECT {selected} FROM {place} LIMIT 0").to_arrow_table().schema
        return tuple(
            _column(name, data_type, kinds[name], casts[name])
            for name, data_type in zip(kinds, schema.types, strict=True)
        )

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
        except duckdb.ConversionException as error:
            column = _column_of_cast(str(error)) if _WIDEST_INTEGER in str(error) else None
            if column is None:
                raise self._failure(error) from error
            raise TableError(
                f"the column {column!r} in {self.place} holds an integer of more than 38 digits, and is read as "
                "decimal(38,0): read it through a view that casts it to VARCHAR or DOUBLE"
            ) from error
        except duckdb.Error as error:
            raise self._failure(error) from error

    def _failure(self, error: Exception) -> TableError:
        return TableError(f"{self.place} did not answer a query: {one_line(error)}")


def _column(name: str, data_type: pa.DataType, kind: DuckDBPyType, casts: tuple[str, ...]) -> DatabaseColumn:
    if _is_not_read(kind):
        return DatabaseColumn(name, types.NotRead(str(kind)))
    data_type = types.STRING if is_text(data_type) else data_type
    return DatabaseColumn(name, data_type, compares=family_of(data_type) is not None, casts=casts)


def _is_not_read(kind: DuckDBPyType) -> bool:
    return kind.id in _NOT_READ or any(map(_is_not_read, _inner(kind)))


def _casts(kind: DuckDBPyType) -> tuple[str, ...]:
    """Return the types that a column of a type is cast to, one after the other; none for one that Arrow has."""
    if _is_not_read(kind):
        return ()
    steps = max(map(len, map(_leaf_casts, _leaves(kind))), default=0)
    return tuple(_type_after(kind, step) for step in range(steps))


def _leaf_casts(kind: DuckDBPyType) -> tuple[str, ...]:
    return _CASTS.get(kind.id, ())


def _leaves(kind: DuckDBPyType) -> Iterator[DuckDBPyType]:
    inner = _inner(kind)
    if not inner:
        yield kind
    for each in inner:
        yield from _leaves(each)


def _inner(kind: DuckDBPyType) -> list[DuckDBPyType]:
    """Return the types inside of a list, an array, a struct or a map."""
    if kind.id not in ("list", "array", "struct", "map"):
        return []
    # An array has its size there too.
    return [each for _, each in kind.children if not isinstance(each, int | list)]


def _type_after(kind: DuckDBPyType, step: int) -> str:
    """Write the type that a type has after one of its casts."""
    inner = [_type_after(each, step) for each in _inner(kind)]
    match kind.id:
        case "list":
            return f"{inner[0]}[]"
        case "array":
            return f"{inner[0]}[{dict(kind.children)['size']}]"
        case "struct":
            fields = zip(kind.children, inner, strict=True)
            return f"STRUCT({', '.join(f'{_identifier(name)} {text}' for (name, _), text in fields)})"
        case "map":
            return f"MAP({inner[0]}, {inner[1]})"
        case _:
            casts = _leaf_casts(kind)
            return casts[min(step, len(casts) - 1)] if casts else str(kind)


def _column_of_cast(message: str) -> str | None:
    """Return the column whose cast failed: DuckDB shows the query, and below it marks the cast."""
    lines = message.splitlines()
    for text, marks in pairwise(lines):
        if text.startswith("LINE ") and set(marks) == {" ", "^"}:
            found = _COLUMN_OF_CAST.match(text, marks.index("^"))
            return None if found is None else found[1].replace('""', '"')
    return None


def _cast(sql: str, casts: tuple[str, ...]) -> str:
    for each in casts:
        sql = f"CAST({sql} AS {each})"
    return sql


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
