"""PostgreSQL through ADBC.

Numbers, texts, dates, timestamps, intervals and truth values have types here. Anything else (uuid, json, arrays, times,
…) is fetched as the text that PostgreSQL has for it, and not asked about; a timetz is not read, because its text has
another order. Texts compare by their bytes: `COLLATE "C"` says so wherever the collation of a column could say
otherwise, in a database whose encoding is UTF-8.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import MissingDependency, StorageError, TableError, one_line
from tamis.tables.database.connection import conform
from tamis.tables.database.dialects import POSTGRESQL, family_of
from tamis.tables.database.query import DatabaseColumn, DatabaseTable, Query

_SETTINGS = (
    "SET TIME ZONE 'UTC'",
    # Else a backslash in a text would begin an escape.
    "SET standard_conforming_strings = on",
    "SET default_transaction_read_only = on",
)

_TYPES = {
    "bool": types.BOOLEAN,
    "int2": pa.int16(),
    "int4": pa.int32(),
    "int8": types.LONG,
    "float4": pa.float32(),
    "float8": types.DOUBLE,
    "text": types.STRING,
    "varchar": types.STRING,
    "date": types.DATE,
    "timestamp": types.TIMESTAMP_NTZ,
    "timestamptz": types.TIMESTAMP,
    "bytea": types.BINARY,
    "interval": types.INTERVAL,
}

_FIRST_DAY = -2440588
"""The first day that PostgreSQL has, counted from 1970."""

_MICROSECONDS_PER_DAY = 86_400_000_000

_WIDEST_NUMERIC = pa.decimal128(38, 18)
"""As Spark reads a numeric without digits."""

_CAST = {"oid": ("bigint", types.LONG), "money": ("numeric", _WIDEST_NUMERIC)}
"""By type, what its values are cast to there, and their type here: as texts they would have another order."""

_NOT_READ = ("timetz",)

_TABLES = """
SELECT n.nspname, c.relname, c.oid::bigint
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND {condition}
"""

_COLUMNS = """
SELECT a.attname, t.typname, a.atttypmod::bigint, COALESCE(l.collisdeterministic, true)
FROM pg_catalog.pg_attribute a
JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_collation l ON l.oid = a.attcollation
WHERE a.attrelid = {oid} AND a.attnum > 0 AND NOT a.attisdropped
ORDER BY a.attnum
"""


class PostgreSQLDatabase:
    """A PostgreSQL database."""

    dialect = POSTGRESQL

    def __init__(self, uri: str) -> None:
        self.place = _without_password(uri)
        self._uri = uri
        self._driver = _driver()
        self._idle: list[Any] = []
        weakref.finalize(self, _close, self._idle)
        self._compares_texts = self._values("SELECT current_setting('server_encoding')") == [("UTF8",)]

    def identity(self) -> Hashable:
        # What every role may ask: the moment at which the server was started, and the number of the database.
        return tuple(
            self._values(
                "SELECT pg_catalog.pg_postmaster_start_time()::text, oid::bigint FROM pg_catalog.pg_database "
                "WHERE datname = pg_catalog.current_database()"
            )
        )

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        if len(name) > 2:
            return None
        # A name is looked for as it is written, then without regard to case, as SQL has it here.
        for operand in ("{}", "lower({})"):
            found = self._find(name, operand)
            if found:
                schema, table, oid = found[0]
                described = self._values(_COLUMNS.format(oid=int(oid)))
                return DatabaseTable(schema, table, tuple(self._column(*each) for each in described))
        return None

    def table_names(self) -> list[str]:
        of_users = "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'"
        is_visible = f"{of_users} AND pg_catalog.pg_table_is_visible(c.oid)"
        short = {(schema, table) for schema, table, _ in self._values(_TABLES.format(condition=is_visible))}
        found = ((schema, table) for schema, table, _ in self._values(_TABLES.format(condition=of_users)))
        return sorted(str(each[1]) if each in short else ".".join(each) for each in found)

    def close(self) -> None:
        _close(self._idle)

    def _find(self, name: Sequence[str], operand: str) -> list[tuple[Any, ...]]:
        is_named = f"{operand.format('c.relname')} = {operand.format(_text(name[-1]))}"
        if len(name) == 1:
            condition = f"{is_named} AND pg_catalog.pg_table_is_visible(c.oid)"
        else:
            condition = f"{is_named} AND {operand.format('n.nspname')} = {operand.format(_text(name[0]))}"
        return self._values(_TABLES.format(condition=condition))

    def _column(self, name: str, kind: str, modifier: int, is_deterministic: bool) -> DatabaseColumn:
        if kind == "numeric":
            return DatabaseColumn(name, _numeric(modifier), compares=True)
        if kind in _CAST:
            cast, data_type = _CAST[kind]
            return DatabaseColumn(name, data_type, compares=True, casts=(cast,))
        if kind in _NOT_READ:
            return DatabaseColumn(name, types.NotRead(kind))
        data_type = _TYPES.get(kind)
        if data_type is None:
            return DatabaseColumn(name, types.STRING, reads_as_text=True)
        if data_type == types.STRING:
            return DatabaseColumn(name, data_type, self._compares_texts, is_bytewise=is_deterministic)
        return DatabaseColumn(name, data_type, compares=family_of(data_type) is not None)

    def rows_of(self, table: DatabaseTable) -> int | None:
        place = f"{_identifier(table.schema)}.{_identifier(table.name)}"
        found = self._values(
            f"SELECT reltuples::bigint FROM pg_catalog.pg_class WHERE oid = {_text(place)}::pg_catalog.regclass"
        )
        # What was never analysed is not known.
        return next((int(rows) for (rows,) in found if rows > 0), None)

    def check(self, query: Query) -> None:
        """Every value has the type of its column."""

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        with self._answer(text) as cursor:
            for batch in cursor.fetch_record_batch():
                rows = conform(batch, columns, self.place)
                self._refuse_infinity(rows)
                yield rows

    def _refuse_infinity(self, rows: pa.RecordBatch) -> None:
        """The driver counts from another day than PostgreSQL: what is beyond all days comes out before all of them."""
        for field, array in zip(rows.schema, rows.columns, strict=True):
            if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
                counts = array.view(pa.int32() if pa.types.is_date(field.type) else pa.int64())
                first = _FIRST_DAY * (1 if pa.types.is_date(field.type) else _MICROSECONDS_PER_DAY)
                if (pc.min(counts).as_py() or 0) < first:
                    raise TableError(
                        f"the column {field.name!r} in {self.place} holds infinity, or a moment that is too late to be "
                        "counted: leave such rows out, or read it through a view that casts it to text"
                    )

    def _values(self, text: str) -> list[tuple[Any, ...]]:
        with self._answer(text) as cursor:
            return list(cursor.fetchall())

    @contextmanager
    def _answer(self, text: str) -> Iterator[Any]:
        """A query under way. It takes a tenth of a second to connect, so connections that are done are kept."""
        connection, cursor = self._asked(text)
        is_done = False
        try:
            yield cursor
            is_done = True
        except self._driver.Error as error:
            raise self._failure(error) from error
        finally:
            cursor.close()
            # One that was left in the middle of an answer is of no further use.
            if is_done:
                self._idle.append(connection)
            else:
                connection.close()

    def _asked(self, text: str) -> tuple[Any, Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._execute(self._connect(), text)
        try:
            return self._execute(connection, text)
        except TableError:
            # It was kept for a while: the server may have let it go.
            return self._execute(self._connect(), text)

    def _execute(self, connection: Any, text: str) -> tuple[Any, Any]:
        cursor = connection.cursor()
        try:
            cursor.execute(text)
        except self._driver.Error as error:
            cursor.close()
            connection.close()
            raise self._failure(error) from error
        return connection, cursor

    def _failure(self, error: Exception) -> TableError:
        return TableError(f"{self.place} did not answer a query: {one_line(error)}")

    def _connect(self) -> Any:
        try:
            connection = self._driver.connect(self._uri, autocommit=True)
        except self._driver.Error as error:
            reason = one_line(error).replace(self._uri, self.place)
            raise StorageError(f"{self.place} cannot be reached: {reason}") from error
        with connection.cursor() as cursor:
            for setting in _SETTINGS:
                cursor.execute(setting)
        return connection


def _close(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


def _numeric(modifier: int) -> pa.DataType:
    """The type of a numeric, whose digits PostgreSQL packs into one number."""
    if modifier < 4:
        return _WIDEST_NUMERIC
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
    return pa.decimal128(precision, scale) if precision <= 38 and scale <= precision else _WIDEST_NUMERIC


def _text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"


def _identifier(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _without_password(uri: str) -> str:
    parts = urlsplit(uri)
    host = parts.netloc.rpartition("@")[2]
    user = parts.username
    # What follows a question mark may hold a password too.
    return f"{parts.scheme}://{f'{user}@' if user else ''}{host}{parts.path}"


def _driver() -> Any:
    try:
        from adbc_driver_postgresql import dbapi
    except ImportError as error:
        raise MissingDependency("PostgreSQL is read through ADBC: pip install 'tamis[database]'") from error
    return dbapi
