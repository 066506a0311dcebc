"""A DuckDB database, which returns Arrow natively: a file, or an open connection.

Most DuckDB types are Arrow types. The types below are cast in every query, also inside lists, structs and maps, so that
their values keep their comparisons and their order:

| DuckDB type              | Tamis type      | reason                                                            |
|--------------------------|-----------------|-------------------------------------------------------------------|
| HUGEINT, UHUGEINT        | decimal(38,0)   | Arrow has no wider integers; a longer value is an error           |
| BIGNUM                   | decimal(38,0)   | the same; DuckDB can only cast it through VARCHAR                 |
| UUID, BIT                | string          | their strings have the same order                                 |
| ENUM                     | string          | its values are strings; its declaration order is lost             |
| TIMETZ, UNION, VARIANT   | unsupported     | neither an Arrow type nor a string has their order                |
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
from tamis.errors import StorageError, TableError, to_one_line
from tamis.formats.database.connection import conform, identify_file, make_query_error
from tamis.formats.database.database_query import DatabaseColumn, DatabaseTable, Query
from tamis.formats.database.dialects import DUCKDB, find_type_family, quote_identifier
from tamis.types import is_text

if TYPE_CHECKING:
    import duckdb
    from duckdb.sqltypes import DuckDBPyType

_WIDEST_INTEGER = "DECIMAL(38,0)"

_CASTS = {
    "hugeint": (_WIDEST_INTEGER,),
    "uhugeint": (_WIDEST_INTEGER,),
    # DuckDB cannot cast a BIGNUM to a decimal directly.
    "bignum": ("VARCHAR", _WIDEST_INTEGER),
    "uuid": ("VARCHAR",),
    "bit": ("VARCHAR",),
    "enum": ("VARCHAR",),
}
"""Type ids and the types that their values are cast to, one after the other."""

_UNSUPPORTED = ("time with time zone", "union", "variant")

_FAILED_CAST = re.compile(r'CAST\((?:CAST\()*"t\d+"\."((?:[^"]|"")+)"')


class DuckDBDatabase:
    """A DuckDB database, from a file or an open connection."""

    dialect = DUCKDB

    def __init__(self, source: str | duckdb.DuckDBPyConnection) -> None:
        import duckdb

        self.location = source if isinstance(source, str) else "the DuckDB connection"
        self._owns_connection = isinstance(source, str)
        try:
            self._connection = duckdb.connect(source, read_only=True) if isinstance(source, str) else source
        except duckdb.Error as error:
            raise StorageError(f"{self.location} cannot be opened: {to_one_line(error)}") from error

    def identity(self) -> Hashable:
        ((path,),) = self._fetch_rows("SELECT path FROM duckdb_databases() WHERE database_name = current_database()")
        if path is not None and Path(str(path)).is_file():
            return identify_file(str(path))
        # An in-memory database has no path, and its connections cannot be compared, but they see the same tables.
        return tuple(
            self._fetch_rows(
                "SELECT database_name, schema_name, table_name, table_oid, sql FROM duckdb_tables() UNION ALL "
                "SELECT database_name, schema_name, view_name, view_oid, sql FROM duckdb_views() WHERE NOT internal "
                "ORDER BY ALL"
            )
        )

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        if len(name) > 2:
            return None
        schema = name[0] if len(name) == 2 else None
        found = self._fetch_rows(
            "SELECT schema_name, table_name FROM (SELECT database_name, schema_name, table_name FROM duckdb_tables() "
            "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal) "
            "WHERE database_name = current_database() AND lower(table_name) = lower(?) "
            "AND lower(schema_name) = lower(coalesce(?, current_schema()))",
            [name[-1], schema],
        )
        if not found:
            return None
        owner, table = map(str, found[0])
        qualified_name = f"{quote_identifier(owner)}.{quote_identifier(table)}"
        return DatabaseTable(owner, table, self._describe_columns(qualified_name))

    def close(self) -> None:
        # The caller closes a connection that it opened.
        if self._owns_connection:
            self._connection.close()

    def list_tables(self) -> list[str]:
        found = self._fetch_rows(
            "SELECT if(schema_name = current_schema(), table_name, schema_name || '.' || table_name) AS name "
            "FROM (SELECT database_name, schema_name, table_name FROM duckdb_tables() "
            "UNION ALL SELECT database_name, schema_name, view_name FROM duckdb_views() WHERE NOT internal) "
            "WHERE database_name = current_database() ORDER BY name",
            [],
        )
        return [str(name) for (name,) in found]

    def _describe_columns(self, qualified_name: str) -> tuple[DatabaseColumn, ...]:
        with self._wrap_errors():
            rows = self._open_cursor().sql(f"SELECT * FROM {qualified_name} LIMIT 0")
            kinds = dict(zip(rows.columns, rows.types, strict=True))
            casts = {name: _list_casts(kind) for name, kind in kinds.items()}
            selected = ", ".join(_write_cast(quote_identifier(name), casts[name]) for name in kinds)
            schema = self._open_cursor().sql(f"SELECT {selected} FROM {qualified_name} LIMIT 0").to_arrow_table().schema
        return tuple(
            _make_column(name, data_type, kinds[name], casts[name])
            for name, data_type in zip(kinds, schema.types, strict=True)
        )

    def estimate_row_count(self, table: DatabaseTable) -> int | None:
        found = self._fetch_rows(
            "SELECT estimated_size FROM duckdb_tables() WHERE database_name = current_database() "
            "AND schema_name = ? AND table_name = ?",
            [table.schema, table.name],
        )
        return next((int(str(rows)) for (rows,) in found), None)

    def check(self, query: Query) -> None:
        """Do nothing: every value has the type of its column."""

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        with self._wrap_errors():
            for batch in self._open_cursor().sql(text).to_arrow_reader():
                yield conform(batch, columns, self.location)

    def _open_cursor(self) -> duckdb.DuckDBPyConnection:
        """Open another connection to the same database, so that queries can run concurrently."""
        cursor = self._connection.cursor()
        cursor.execute("SET TimeZone = 'UTC'")
        return cursor

    def _fetch_rows(self, text: str, parameters: Sequence[object] = ()) -> list[tuple[object, ...]]:
        with self._wrap_errors():
            return self._open_cursor().execute(text, list(parameters)).fetchall()

    @contextmanager
    def _wrap_errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except duckdb.ConversionException as error:
            column = _find_failed_column(str(error)) if _WIDEST_INTEGER in str(error) else None
            if column is None:
                raise make_query_error(self.location, error) from error
            raise TableError(
                f"the column {column!r} in {self.location} holds an integer of more than 38 digits, but is read as "
                "decimal(38,0): read it through a view that casts it to VARCHAR or DOUBLE"
            ) from error
        except duckdb.Error as error:
            raise make_query_error(self.location, error) from error


def _make_column(name: str, data_type: pa.DataType, kind: DuckDBPyType, casts: tuple[str, ...]) -> DatabaseColumn:
    if _is_unsupported(kind):
        return DatabaseColumn(name, types.UnsupportedType(str(kind)))
    data_type = types.STRING if is_text(data_type) else data_type
    return DatabaseColumn(name, data_type, is_comparable=find_type_family(data_type) is not None, casts=casts)


def _is_unsupported(kind: DuckDBPyType) -> bool:
    return kind.id in _UNSUPPORTED or any(map(_is_unsupported, _list_inner_types(kind)))


def _list_casts(kind: DuckDBPyType) -> tuple[str, ...]:
    """Return the types that a column is cast to, one after the other; empty if Arrow has its type."""
    if _is_unsupported(kind):
        return ()
    steps = max(map(len, map(_list_leaf_casts, _walk_leaf_types(kind))), default=0)
    return tuple(_render_type_after(kind, step) for step in range(steps))


def _list_leaf_casts(kind: DuckDBPyType) -> tuple[str, ...]:
    return _CASTS.get(kind.id, ())


def _walk_leaf_types(kind: DuckDBPyType) -> Iterator[DuckDBPyType]:
    inner = _list_inner_types(kind)
    if not inner:
        yield kind
    for each in inner:
        yield from _walk_leaf_types(each)


def _list_inner_types(kind: DuckDBPyType) -> list[DuckDBPyType]:
    if kind.id not in ("list", "array", "struct", "map"):
        return []
    # The children of an array include its size.
    return [each for _, each in kind.children if not isinstance(each, int | list)]


def _render_type_after(kind: DuckDBPyType, step: int) -> str:
    """Return the SQL name of a type after one of its casts."""
    inner = [_render_type_after(each, step) for each in _list_inner_types(kind)]
    match kind.id:
        case "list":
            return f"{inner[0]}[]"
        case "array":
            return f"{inner[0]}[{dict(kind.children)['size']}]"
        case "struct":
            fields = zip(kind.children, inner, strict=True)
            return f"STRUCT({', '.join(f'{quote_identifier(name)} {text}' for (name, _), text in fields)})"
        case "map":
            return f"MAP({inner[0]}, {inner[1]})"
        case _:
            casts = _list_leaf_casts(kind)
            return casts[min(step, len(casts) - 1)] if casts else str(kind)


def _find_failed_column(message: str) -> str | None:
    """Return the column whose cast failed. DuckDB prints the query and marks the cast in the line below."""
    lines = message.splitlines()
    for text, marks in pairwise(lines):
        if text.startswith("LINE ") and set(marks) == {" ", "^"}:
            found = _FAILED_CAST.match(text, marks.index("^"))
            return None if found is None else found[1].replace('""', '"')
    return None


def _write_cast(sql: str, casts: tuple[str, ...]) -> str:
    for each in casts:
        sql = f"CAST({sql} AS {each})"
    return sql
