"""SQLite through ADBC.

SQLite enforces column types only in STRICT tables: in other tables an INTEGER column may hold strings. In Tamis a
column's declaration determines its type. Fetching a value of another type raises an error. Before a query filters,
groups, orders or joins by a column, all of its values are checked; the result is cached until the file changes.

| declared                   | Tamis    | values                                |
|----------------------------|----------|---------------------------------------|
| …INT…                      | bigint   | integers                              |
| …CHAR…, …CLOB…, …TEXT…     | string   | strings                               |
| …REAL…, …FLOA…, …DOUB…     | double   | floats                                |
| …BLOB…                     | binary   | bytes                                 |
| BOOL…                      | boolean  | 0 and 1                               |
| DATE                       | date     | strings such as 2024-03-01            |
| DATETIME, TIMESTAMP…       | string   | strings                               |
| DEC…, NUM…                 | double   | numbers, integers up to 2^53          |
| nothing, as in views       | the common type of all values            |
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tamis import types
from tamis.errors import TableError
from tamis.formats.database.connection import conform, identify_file, make_query_error, require_driver
from tamis.formats.database.database_query import DatabaseColumn, DatabaseTable, Query, find_evaluated_columns
from tamis.formats.database.dialects import SQLITE, quote_identifier

_SAMPLE_VALUES = {
    types.LONG: "0",
    types.DOUBLE: "0.5",
    types.STRING: "''",
    types.BINARY: "X''",
    types.BOOLEAN: "0",
    types.DATE: "''",
}
"""A value of each type. The driver infers column types from the first rows, whose values may all be NULL."""

_MAX_COUNTED_ROWS = 100_000
"""The largest number of rows that are counted exactly, which takes no noticeable time."""

_ISO_DAY = "[0-9][0-9][0-9][0-9]-[0-9][0-9]-[0-9][0-9]"
_IS_OF_TYPE = {
    types.LONG: "typeof({c}) = 'integer'",
    types.DOUBLE: "(typeof({c}) = 'real' OR (typeof({c}) = 'integer' AND {c} BETWEEN -(1 << 53) AND (1 << 53)))",
    types.STRING: "typeof({c}) = 'text'",
    types.BINARY: "typeof({c}) = 'blob'",
    types.BOOLEAN: "(typeof({c}) = 'integer' AND {c} IN (0, 1))",
    types.DATE: f"(typeof({{c}}) = 'text' AND {{c}} GLOB '{_ISO_DAY}' AND date({{c}}) = {{c}})",
}


class SQLiteDatabase:
    """A SQLite file."""

    dialect = SQLITE

    def __init__(self, path: str) -> None:
        self.location = path
        with require_driver("a SQLite database", "adbc-driver-sqlite"):
            from adbc_driver_sqlite import dbapi
        self._driver = dbapi
        self._has_utf8_encoding = self._fetch_rows("PRAGMA encoding") == [("UTF-8",)]
        self._checked: dict[tuple[str, str], object] = {}

    def identity(self) -> Hashable:
        return identify_file(self.location)

    # --- Tables -------------------------------------------------------------------------------------------------------

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        if len(name) > 2 or (len(name) == 2 and name[0].casefold() != "main"):
            return None
        found = self._fetch_rows(
            "SELECT name, COALESCE((SELECT MAX(strict) FROM pragma_table_list(m.name) WHERE schema = 'main'), 0), "
            "(SELECT COUNT(*) FROM pragma_index_list(m.name) WHERE origin = 'pk') "
            "FROM sqlite_master AS m WHERE type IN ('table', 'view') AND lower(name) = lower(?)",
            name[-1],
        )
        if not found:
            return None
        table, is_strict, key_indexes = found[0]
        rows = self._fetch_rows("SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1", table)
        columns = [
            # A primary key without an index is an alias of the rowid.
            self._make_column(
                table, each, str(declared or ""), is_enforced=bool(is_strict or (key and not key_indexes))
            )
            for each, declared, key in rows
        ]
        return DatabaseTable("main", table, tuple(columns))

    def close(self) -> None:
        """Do nothing: each query opens and closes its own connection."""

    def list_tables(self) -> list[str]:
        found = self._fetch_rows(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%' ORDER BY name"
        )
        return [str(name) for (name,) in found]

    def _make_column(self, table: str, name: str, declared: str, *, is_enforced: bool) -> DatabaseColumn:
        data_type = _parse_declared_type(declared)
        is_checked = is_enforced and data_type in (types.LONG, types.DOUBLE, types.STRING, types.BINARY)
        if data_type is None:
            data_type = self._infer_common_type(table, name)
        compares = data_type != types.BINARY and (data_type != types.STRING or self._has_utf8_encoding)
        return DatabaseColumn(name, data_type, compares, is_type_enforced=is_checked)

    def _infer_common_type(self, table: str, name: str) -> pa.DataType:
        column = quote_identifier(name)
        found = {
            kind for (kind,) in self._fetch_rows(f"SELECT DISTINCT typeof({column}) FROM {quote_identifier(table)}")
        } - {"null"}
        for kinds, data_type in _TYPES_BY_CONTENT:
            if found <= kinds:
                return data_type
        # No type holds all values. Queries that need the column raise an error, as they do if values violate the
        # declared type; other queries run.
        return types.LONG

    def estimate_row_count(self, table: DatabaseTable) -> int | None:
        if any(column.name.casefold() == "_rowid_" for column in table.columns):
            return None
        # Counting reads every row; the range of the rowids is an upper bound that costs nothing.
        ends = (f"(SELECT {end}(_rowid_) FROM {quote_identifier(table.name)})" for end in ("MAX", "MIN"))
        counted = f"(SELECT COUNT(*) FROM {quote_identifier(table.name)})"
        try:
            ((rows,),) = self._fetch_rows(
                f"SELECT CASE WHEN most <= {_MAX_COUNTED_ROWS} THEN {counted} ELSE most END "
                f"FROM (SELECT {' - '.join(ends)} + 1 AS most)"
            )
        except TableError:
            return None  # a view, or a table WITHOUT ROWID
        return rows if isinstance(rows, int) else None

    def check(self, query: Query) -> None:
        version = self._read_version()
        for table, name in find_evaluated_columns(query):
            # A check stays valid until the file changes.
            if self._checked.get((table, name)) != version:
                self._check_column(table, name)
                self._checked[table, name] = version

    def _check_column(self, table: str, name: str) -> None:
        found = self.find_table((table,))
        column = next((each for each in found.columns if each.name == name), None) if found is not None else None
        if column is None:
            raise TableError(f"the column {name!r} of {table!r} in {self.location} no longer exists: reopen the table")
        if column.is_type_enforced:
            return
        quoted = quote_identifier(name)
        condition = _IS_OF_TYPE[column.type].format(c=quoted)
        wrong = self._fetch_rows(
            f"SELECT typeof({quoted}) FROM {quote_identifier(table)} "
            f"WHERE {quoted} IS NOT NULL AND NOT {condition} LIMIT 1"
        )
        if wrong:
            raise TableError(_describe_type_mismatch(name, column.type, self.location))

    def _read_version(self) -> tuple[tuple[int, int] | None, ...]:
        """Return the modification times and sizes of the database file and its write-ahead log."""
        files = (Path(self.location), Path(f"{self.location}-wal"))
        states = [file.stat() if file.exists() else None for file in files]
        return tuple(None if state is None else (state.st_mtime_ns, state.st_size) for state in states)

    # --- Queries ------------------------------------------------------------------------------------------------------

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        first = ", ".join(_SAMPLE_VALUES[column.type] for column in columns) or "0"
        query = f"SELECT {first} UNION ALL SELECT * FROM ({text})"
        try:
            with self._driver.connect(_make_uri(self.location)) as connection, connection.cursor() as cursor:
                cursor.execute(query)
                is_first = True
                for batch in cursor.fetch_record_batch():
                    rows = batch.slice(1) if is_first and batch.num_rows else batch
                    is_first = is_first and not batch.num_rows
                    if rows.num_rows:
                        yield self._conform_batch(rows, columns)
        except self._driver.Error as error:
            raise make_query_error(self.location, error) from error

    def _conform_batch(self, batch: pa.RecordBatch, columns: Sequence[DatabaseColumn]) -> pa.RecordBatch:
        for array, column in zip(batch.columns, columns, strict=bool(columns)):
            if array.type != _FETCHED_TYPES.get(column.type, column.type):
                raise TableError(_describe_type_mismatch(column.name, column.type, self.location))
            if column.type == types.BOOLEAN and not _are_booleans(array):
                raise TableError(_describe_type_mismatch(column.name, column.type, self.location))
        return conform(batch, columns, self.location)

    def _fetch_rows(self, text: str, *parameters: str) -> list[tuple[Any, ...]]:
        try:
            with self._driver.connect(_make_uri(self.location)) as connection, connection.cursor() as cursor:
                cursor.execute(text, parameters or None)
                return list(cursor.fetchall())
        except self._driver.Error as error:
            raise make_query_error(self.location, error) from error


def _make_uri(path: str) -> str:
    return f"file:{quote(str(Path(path).absolute()))}?mode=ro"


_FETCHED_TYPES = {types.BOOLEAN: types.LONG, types.DATE: types.STRING}
"""The types as which the driver fetches values of other types."""

_TYPES_BY_CONTENT = (
    ({"integer"}, types.LONG),
    ({"integer", "real"}, types.DOUBLE),
    ({"text"}, types.STRING),
    ({"blob"}, types.BINARY),
)

_TYPES_BY_DECLARATION = (
    (("int",), types.LONG),
    (("char", "clob", "text"), types.STRING),
    (("blob",), types.BINARY),
    (("real", "floa", "doub"), types.DOUBLE),
    (("bool",), types.BOOLEAN),
    (("datetime", "timestamp"), types.STRING),
    (("dec", "num"), types.DOUBLE),
)


def _parse_declared_type(declared: str) -> pa.DataType | None:
    """Return the type of a declaration, by SQLite's affinity rules where they apply; None if it states none."""
    lowered = declared.casefold()
    if lowered == "date":
        return types.DATE
    return next((kind for words, kind in _TYPES_BY_DECLARATION if any(word in lowered for word in words)), None)


def _are_booleans(array: pa.Array) -> bool:
    values = array.unique().to_pylist()
    return set(values) <= {0, 1, None}


def _describe_type_mismatch(name: str, data_type: pa.DataType, location: str) -> str:
    return (
        f"the column {name!r} in {location} is read as {types.type_name(data_type)}, but holds values of other types: "
        "read it through a view that casts it"
    )
