"""SQLite through ADBC.

SQLite holds columns to their types only in STRICT tables: anywhere else an INTEGER column may hold texts. What type a
column has here follows from its declaration. A value that is fetched and is not of it is an error; and before a query
relies on a column, to filter, group, order or join by it, its values are looked through once, until the file changes.

| declared                   | here     | values                                |
|----------------------------|----------|---------------------------------------|
| …INT…                      | bigint   | integers                              |
| …CHAR…, …CLOB…, …TEXT…     | string   | texts                                 |
| …REAL…, …FLOA…, …DOUB…     | double   | floats                                |
| …BLOB…                     | binary   | bytes                                 |
| BOOL…                      | boolean  | 0 and 1                               |
| DATE                       | date     | texts as 2024-03-01                   |
| DATETIME, TIMESTAMP…       | string   | texts                                 |
| DEC…, NUM…                 | double   | numbers, integers up to 2^53          |
| nothing, as in views       | what all values have in common           |
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa

from tamis import types
from tamis.errors import MissingDependency, TableError, one_line
from tamis.tables.database.connection import conform, file_identity
from tamis.tables.database.dialects import SQLITE
from tamis.tables.database.query import DatabaseColumn, DatabaseTable, Query, relied_columns

_FIRST_VALUES = {
    types.LONG: "0",
    types.DOUBLE: "0.5",
    types.STRING: "''",
    types.BINARY: "X''",
    types.BOOLEAN: "0",
    types.DATE: "''",
}
"""A value of each type. The driver takes the types of columns from the first rows, in which all values may be NULL."""

_MOST_COUNTED = 100_000
"""Rows that are counted in no time."""

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
        self.place = path
        self._driver = _driver()
        self._orders_texts = self._values("PRAGMA encoding") == [("UTF-8",)]
        self._checked: dict[tuple[str, str], object] = {}

    def identity(self) -> Hashable:
        return file_identity(self.place)

    # --- Tables -------------------------------------------------------------------------------------------------------

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        if len(name) > 2 or (len(name) == 2 and name[0].casefold() != "main"):
            return None
        found = self._values(
            "SELECT name, COALESCE((SELECT MAX(strict) FROM pragma_table_list(m.name) WHERE schema = 'main'), 0), "
            "(SELECT COUNT(*) FROM pragma_index_list(m.name) WHERE origin = 'pk') "
            "FROM sqlite_master AS m WHERE type IN ('table', 'view') AND lower(name) = lower(?)",
            name[-1],
        )
        if not found:
            return None
        table, is_strict, key_indexes = found[0]
        described = self._values("SELECT name, type, pk FROM pragma_table_xinfo(?) WHERE hidden <> 1", table)
        columns = [
            # A primary key without an index is the number of the row itself.
            self._column(table, each, str(declared or ""), is_sure=bool(is_strict or (key and not key_indexes)))
            for each, declared, key in described
        ]
        return DatabaseTable("main", table, tuple(columns))

    def close(self) -> None:
        """Each query has a connection of its own."""

    def table_names(self) -> list[str]:
        found = self._values(
            "SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite%' ORDER BY name"
        )
        return [str(name) for (name,) in found]

    def _column(self, table: str, name: str, declared: str, *, is_sure: bool) -> DatabaseColumn:
        data_type = _declared_type(declared)
        is_checked = is_sure and data_type in (types.LONG, types.DOUBLE, types.STRING, types.BINARY)
        if data_type is None:
            data_type = self._common_type(table, name)
        compares = data_type != types.BINARY and (data_type != types.STRING or self._orders_texts)
        return DatabaseColumn(name, data_type, compares, is_checked=is_checked)

    def _common_type(self, table: str, name: str) -> pa.DataType:
        column = _quoted(name)
        found = {kind for (kind,) in self._values(f"SELECT DISTINCT typeof({column}) FROM {_quoted(table)}")} - {"null"}
        for kinds, data_type in _BY_CONTENT:
            if found <= kinds:
                return data_type
        # No type holds them all. One that does not hold some is an error for queries that need the column, as where a
        # declared type is not kept; others are answered.
        return types.LONG

    def rows_of(self, table: DatabaseTable) -> int | None:
        if any(column.name.casefold() == "_rowid_" for column in table.columns):
            return None
        # To count rows takes a look at each; their numbers have no more than these between them.
        ends = (f"(SELECT {end}(_rowid_) FROM {_quoted(table.name)})" for end in ("MAX", "MIN"))
        counted = f"(SELECT COUNT(*) FROM {_quoted(table.name)})"
        try:
            ((rows,),) = self._values(
                f"SELECT CASE WHEN most <= {_MOST_COUNTED} THEN {counted} ELSE most END "
                f"FROM (SELECT {' - '.join(ends)} + 1 AS most)"
            )
        except TableError:
            return None  # a view, or a table whose rows have no numbers
        return rows if isinstance(rows, int) else None

    def check(self, query: Query) -> None:
        version = self._version()
        for table, name in relied_columns(query):
            # Nobody looks twice at a file that stayed the same.
            if self._checked.get((table, name)) != version:
                self._check(table, name)
                self._checked[table, name] = version

    def _check(self, table: str, name: str) -> None:
        found = self.find_table((table,))
        column = next((each for each in found.columns if each.name == name), None) if found is not None else None
        if column is None:
            raise TableError(f"the column {name!r} of {table!r} in {self.place} is gone: open the table anew")
        if column.is_checked:
            return
        quoted = _quoted(name)
        condition = _IS_OF_TYPE[column.type].format(c=quoted)
        wrong = self._values(
            f"SELECT typeof({quoted}) FROM {_quoted(table)} WHERE {quoted} IS NOT NULL AND NOT {condition} LIMIT 1"
        )
        if wrong:
            raise TableError(_other_values(name, column.type, self.place))

    def _version(self) -> tuple[tuple[int, int] | None, ...]:
        """What changes when somebody writes: the file and its log."""
        files = (Path(self.place), Path(f"{self.place}-wal"))
        states = [file.stat() if file.exists() else None for file in files]
        return tuple(None if state is None else (state.st_mtime_ns, state.st_size) for state in states)

    # --- Queries ------------------------------------------------------------------------------------------------------

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        first = ", ".join(_FIRST_VALUES[column.type] for column in columns) or "0"
        query = f"SELECT {first} UNION ALL SELECT * FROM ({text})"
        try:
            with self._driver.connect(_uri(self.place)) as connection, connection.cursor() as cursor:
                cursor.execute(query)
                is_first = True
                for batch in cursor.fetch_record_batch():
                    rows = batch.slice(1) if is_first and batch.num_rows else batch
                    is_first = is_first and not batch.num_rows
                    if rows.num_rows:
                        yield self._conformed(rows, columns)
        except self._driver.Error as error:
            raise TableError(f"{self.place} did not answer a query: {one_line(error)}") from error

    def _conformed(self, batch: pa.RecordBatch, columns: Sequence[DatabaseColumn]) -> pa.RecordBatch:
        for array, column in zip(batch.columns, columns, strict=bool(columns)):
            if array.type != _FETCHED.get(column.type, column.type):
                raise TableError(_other_values(column.name, column.type, self.place))
            if column.type == types.BOOLEAN and not _are_truth_values(array):
                raise TableError(_other_values(column.name, column.type, self.place))
        return conform(batch, columns, self.place)

    def _values(self, text: str, *parameters: str) -> list[tuple[Any, ...]]:
        try:
            with self._driver.connect(_uri(self.place)) as connection, connection.cursor() as cursor:
                cursor.execute(text, parameters or None)
                return list(cursor.fetchall())
        except self._driver.Error as error:
            raise TableError(f"{self.place} did not answer a query: {one_line(error)}") from error


def _driver() -> Any:
    try:
        from adbc_driver_sqlite import dbapi
    except ImportError as error:
        raise MissingDependency("SQLite is read through ADBC: pip install 'tamis[database]'") from error
    return dbapi


def _uri(path: str) -> str:
    return f"file:{quote(str(Path(path).absolute()))}?mode=ro"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


_FETCHED = {types.BOOLEAN: types.LONG, types.DATE: types.STRING}
"""The types as which values of others are fetched."""

_BY_CONTENT = (
    ({"integer"}, types.LONG),
    ({"integer", "real"}, types.DOUBLE),
    ({"text"}, types.STRING),
    ({"blob"}, types.BINARY),
)

_BY_DECLARATION = (
    (("int",), types.LONG),
    (("char", "clob", "text"), types.STRING),
    (("blob",), types.BINARY),
    (("real", "floa", "doub"), types.DOUBLE),
    (("bool",), types.BOOLEAN),
    (("datetime", "timestamp"), types.STRING),
    (("dec", "num"), types.DOUBLE),
)


def _declared_type(declared: str) -> pa.DataType | None:
    """The type that a declaration means, by the rules of SQLite where it has one; None where it says nothing."""
    lowered = declared.casefold()
    if lowered == "date":
        return types.DATE
    return next((kind for words, kind in _BY_DECLARATION if any(word in lowered for word in words)), None)


def _are_truth_values(array: pa.Array) -> bool:
    values = array.unique().to_pylist()
    return set(values) <= {0, 1, None}


def _other_values(name: str, data_type: pa.DataType, place: str) -> str:
    return (
        f"the column {name!r} in {place} is read as {types.type_name(data_type)}, and holds other values: "
        "read it through a view that casts it"
    )
