"""PostgreSQL through ADBC.

Numbers, strings, dates, timestamps, intervals and booleans keep their types. Every other type (uuid, json, arrays,
times, …) is fetched as PostgreSQL's text representation and is never part of a pushed-down condition. timetz is
unsupported, because its text has another order. Strings compare by their bytes: in a database whose encoding is UTF-8,
queries add `COLLATE "C"` wherever a column's collation could differ.
"""

from __future__ import annotations

import weakref
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import StorageError, TableError, to_one_line
from tamis.formats.database.connection import conform, make_query_error, redact_password, require_driver
from tamis.formats.database.database_query import DatabaseColumn, DatabaseTable, Query
from tamis.formats.database.dialects import POSTGRESQL, find_type_family, quote_identifier

_SETTINGS = (
    "SET TIME ZONE 'UTC'",
    # Otherwise a backslash in a string literal would start an escape sequence.
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
"""The earliest date of PostgreSQL, in days since 1970."""

_MICROSECONDS_PER_DAY = 86_400_000_000

_WIDEST_NUMERIC = pa.decimal128(38, 18)
"""The type as which Spark reads a numeric without precision and scale."""

_CASTS = {"oid": ("bigint", types.LONG), "money": ("numeric", _WIDEST_NUMERIC)}
"""PostgreSQL types whose text has another order, the type that they are cast to, and their Arrow type."""

_UNSUPPORTED = ("timetz",)

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
        self.location = redact_password(uri)
        self._uri = uri
        with require_driver("a PostgreSQL database", "adbc-driver-postgresql"):
            from adbc_driver_postgresql import dbapi
        self._driver = dbapi
        self._idle: list[Any] = []
        weakref.finalize(self, _close_all, self._idle)
        self._compares_texts = self._fetch_rows("SELECT current_setting('server_encoding')") == [("UTF8",)]

    def identity(self) -> Hashable:
        # Every role may read these: the start time of the server, and the oid of the database.
        return tuple(
            self._fetch_rows(
                "SELECT pg_catalog.pg_postmaster_start_time()::text, oid::bigint FROM pg_catalog.pg_database "
                "WHERE datname = pg_catalog.current_database()"
            )
        )

    def find_table(self, name: Sequence[str]) -> DatabaseTable | None:
        if len(name) > 2:
            return None
        # An exact match comes first; then names match case-insensitively, as in Tamis SQL.
        for operand in ("{}", "lower({})"):
            found = self._find_tables(name, operand)
            if found:
                schema, table, oid = found[0]
                rows = self._fetch_rows(_COLUMNS.format(oid=int(oid)))
                return DatabaseTable(schema, table, tuple(self._make_column(*each) for each in rows))
        return None

    def list_tables(self) -> list[str]:
        of_users = "n.nspname NOT IN ('pg_catalog', 'information_schema') AND n.nspname NOT LIKE 'pg\\_%'"
        is_visible = f"{of_users} AND pg_catalog.pg_table_is_visible(c.oid)"
        short = {(schema, table) for schema, table, _ in self._fetch_rows(_TABLES.format(condition=is_visible))}
        found = ((schema, table) for schema, table, _ in self._fetch_rows(_TABLES.format(condition=of_users)))
        return sorted(str(each[1]) if each in short else ".".join(each) for each in found)

    def close(self) -> None:
        _close_all(self._idle)

    def _find_tables(self, name: Sequence[str], operand: str) -> list[tuple[Any, ...]]:
        is_named = f"{operand.format('c.relname')} = {operand.format(_quote_text(name[-1]))}"
        if len(name) == 1:
            condition = f"{is_named} AND pg_catalog.pg_table_is_visible(c.oid)"
        else:
            condition = f"{is_named} AND {operand.format('n.nspname')} = {operand.format(_quote_text(name[0]))}"
        return self._fetch_rows(_TABLES.format(condition=condition))

    def _make_column(self, name: str, kind: str, modifier: int, is_deterministic: bool) -> DatabaseColumn:
        if kind == "numeric":
            return DatabaseColumn(name, _decode_numeric(modifier), is_comparable=True)
        if kind in _CASTS:
            cast, data_type = _CASTS[kind]
            return DatabaseColumn(name, data_type, is_comparable=True, casts=(cast,))
        if kind in _UNSUPPORTED:
            return DatabaseColumn(name, types.UnsupportedType(kind))
        data_type = _TYPES.get(kind)
        if data_type is None:
            return DatabaseColumn(name, types.STRING, reads_as_text=True)
        if data_type == types.STRING:
            return DatabaseColumn(name, data_type, self._compares_texts, is_bytewise=is_deterministic)
        return DatabaseColumn(name, data_type, is_comparable=find_type_family(data_type) is not None)

    def estimate_row_count(self, table: DatabaseTable) -> int | None:
        qualified_name = f"{quote_identifier(table.schema)}.{quote_identifier(table.name)}"
        found = self._fetch_rows(
            "SELECT reltuples::bigint FROM pg_catalog.pg_class "
            f"WHERE oid = {_quote_text(qualified_name)}::pg_catalog.regclass"
        )
        # A table that was never analysed has no estimate.
        return next((int(rows) for (rows,) in found if rows > 0), None)

    def check(self, query: Query) -> None:
        """Do nothing: every value has the type of its column."""

    def run(self, text: str, columns: Sequence[DatabaseColumn]) -> Iterator[pa.RecordBatch]:
        with self._run_query(text) as cursor:
            for batch in cursor.fetch_record_batch():
                rows = conform(batch, columns, self.location)
                self._reject_infinity(rows)
                yield rows

    def _reject_infinity(self, rows: pa.RecordBatch) -> None:
        """Raise if a date or a timestamp is infinite.

        The driver's epoch differs from PostgreSQL's, so that infinity overflows to a value before the earliest date.
        """
        for field, array in zip(rows.schema, rows.columns, strict=True):
            if pa.types.is_date(field.type) or pa.types.is_timestamp(field.type):
                counts = array.view(pa.int32() if pa.types.is_date(field.type) else pa.int64())
                first = _FIRST_DAY * (1 if pa.types.is_date(field.type) else _MICROSECONDS_PER_DAY)
                if (pc.min(counts).as_py() or 0) < first:
                    raise TableError(
                        f"the column {field.name!r} in {self.location} holds infinity, or a date or timestamp that is "
                        "too late for Arrow: filter such rows out, or read it through a view that casts it to text"
                    )

    def _fetch_rows(self, text: str) -> list[tuple[Any, ...]]:
        with self._run_query(text) as cursor:
            return list(cursor.fetchall())

    @contextmanager
    def _run_query(self, text: str) -> Iterator[Any]:
        """Run a query and yield its cursor. Connecting takes a tenth of a second, so idle connections are reused."""
        connection, cursor = self._start_query(text)
        is_done = False
        try:
            yield cursor
            is_done = True
        except self._driver.Error as error:
            raise make_query_error(self.location, error) from error
        finally:
            cursor.close()
            # A connection whose result was not read to the end cannot be reused.
            if is_done:
                self._idle.append(connection)
            else:
                connection.close()

    def _start_query(self, text: str) -> tuple[Any, Any]:
        try:
            connection = self._idle.pop()
        except IndexError:
            return self._execute(self._connect(), text)
        try:
            return self._execute(connection, text)
        except TableError:
            # The server may have closed the idle connection.
            return self._execute(self._connect(), text)

    def _execute(self, connection: Any, text: str) -> tuple[Any, Any]:
        cursor = connection.cursor()
        try:
            cursor.execute(text)
        except self._driver.Error as error:
            cursor.close()
            connection.close()
            raise make_query_error(self.location, error) from error
        return connection, cursor

    def _connect(self) -> Any:
        try:
            connection = self._driver.connect(self._uri, autocommit=True)
        except self._driver.Error as error:
            reason = to_one_line(error).replace(self._uri, self.location)
            raise StorageError(f"{self.location} cannot be reached: {reason}") from error
        with connection.cursor() as cursor:
            for setting in _SETTINGS:
                cursor.execute(setting)
        return connection


def _close_all(connections: list[Any]) -> None:
    while connections:
        connections.pop().close()


def _decode_numeric(modifier: int) -> pa.DataType:
    """Return the type of a numeric column: PostgreSQL packs precision and scale into its type modifier."""
    if modifier < 4:
        return _WIDEST_NUMERIC
    precision, scale = ((modifier - 4) >> 16) & 0xFFFF, (modifier - 4) & 0x7FF
    return pa.decimal128(precision, scale) if precision <= 38 and scale <= precision else _WIDEST_NUMERIC


def _quote_text(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
