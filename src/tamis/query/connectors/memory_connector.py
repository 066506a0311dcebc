"""The in-memory connector: Arrow tables, and DataFrames of Spark, that were registered with a session."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any

import pyarrow as pa

from tamis.errors import InvalidArgument, add_article, to_one_line
from tamis.expr.nodes import find_columns
from tamis.expr.sql.printer import quote_name
from tamis.query.connectors.connector import Connector, Handle, Properties, PushedProjection, PushedRows
from tamis.query.plan.nodes import Named, Output


@dataclass(frozen=True, slots=True)
class MemoryHandle:
    """Columns of a table, and an optional limit of its rows."""

    name: str
    version: int
    """Identifies one of the tables registered under this name, so that a query reads the one it was planned for."""
    columns: tuple[str, ...]
    limit: int | None = None


@dataclass(frozen=True)
class FrameRows:
    """A DataFrame of Spark. Queries on Spark use it as it is, others read its rows."""

    frame: Any
    schema: pa.Schema

    def select(self, columns: Sequence[str], limit: int | None) -> Any:
        """Return a DataFrame of some columns, and of at most `limit` rows."""
        # Rows without columns have one of constants.
        quoted = list(map(quote_name, columns)) or ["1 AS nothing"]
        found = self.frame.selectExpr(*quoted)
        return found if limit is None else found.limit(limit)

    def read(self, columns: Sequence[str], limit: int | None) -> pa.Table:
        """Return the rows as an Arrow table."""
        rows = self.select(columns, limit).toArrow().select(list(columns))
        return rows.cast(pa.schema([self.schema.field(name) for name in columns])) if columns else rows


class MemoryConnector(Connector):
    """A connector for Arrow tables in memory."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tables: list[pa.Table | FrameRows] = []
        self._handles: dict[str, MemoryHandle] = {}
        self._lock = Lock()

    def add(self, name: str, rows: Any) -> MemoryHandle:
        """Register anything that Arrow can read: a table, a DataFrame, a scan."""
        table = rows if isinstance(rows, FrameRows) else _to_arrow_table(rows)
        names = table.schema.names
        repeated = [column for column in dict.fromkeys(names) if names.count(column) > 1]
        if repeated:
            raise InvalidArgument(
                f"{name} has several columns named {repeated[0]!r}: rename them before registering the table"
            )
        with self._lock:
            handle = MemoryHandle(name, len(self._tables), tuple(names))
            self._tables.append(table)
            self._handles[name.casefold()] = handle
        return handle

    def table(self, name: tuple[str, ...]) -> Handle | None:
        return self._handles.get(".".join(name).casefold())

    def columns(self, handle: Handle) -> pa.Schema:
        own = _as_memory(handle)
        schema = self._tables[own.version].schema
        return pa.schema([schema.field(name) for name in own.columns])

    def properties(self, handle: Handle) -> Properties:
        own = _as_memory(handle)
        table = self._tables[own.version]
        if isinstance(table, FrameRows):
            return Properties(rows=own.limit)
        rows = table.num_rows if own.limit is None else min(own.limit, table.num_rows)
        return Properties(rows=rows, rows_are_exact=True, bytes=table.nbytes)

    def describe(self, handle: Handle) -> str:
        own = _as_memory(handle)
        limit = "" if own.limit is None else f", {own.limit} rows at most"
        return f"{own.name} in memory, columns {', '.join(own.columns) or 'none'}{limit}"

    def find_frame(self, handle: Handle) -> Any | None:
        """Return the DataFrame of a handle with its columns and limit; None for Arrow tables."""
        own = _as_memory(handle)
        table = self._tables[own.version]
        return table.select(own.columns, own.limit) if isinstance(table, FrameRows) else None

    def get_frame(self, handle: Handle) -> Any | None:
        """Return the DataFrame that was registered; None for Arrow tables."""
        table = self._tables[_as_memory(handle).version]
        return table.frame if isinstance(table, FrameRows) else None

    def push_projection(self, handle: Handle, outputs: Sequence[Named]) -> PushedProjection | None:
        own = _as_memory(handle)
        needed = {column.path[0] for output in outputs for column in find_columns(output.expr)}
        kept = tuple(name for name in own.columns if name in needed)
        if len(kept) == len(own.columns):
            return None
        narrow = replace(own, columns=kept)
        columns = tuple(Output(field.name, field.type) for field in self.columns(narrow))
        return PushedProjection(narrow, columns, tuple(outputs))

    def push_limit(self, handle: Handle, count: int) -> PushedRows | None:
        own = _as_memory(handle)
        if own.limit is not None and own.limit <= count:
            return None
        return PushedRows(replace(own, limit=count), guaranteed=True)

    def read(self, handle: Handle) -> Iterator[pa.RecordBatch]:
        own = _as_memory(handle)
        table = self._tables[own.version]
        if isinstance(table, FrameRows):
            yield from table.read(own.columns, own.limit).to_batches()
            return
        # Slice before selecting: slicing a table without columns does not limit its rows.
        rows = table if own.limit is None else table.slice(0, own.limit)
        yield from rows.select(list(own.columns)).to_batches()


def _as_memory(handle: Handle) -> MemoryHandle:
    assert isinstance(handle, MemoryHandle)
    return handle


def _to_arrow_table(rows: Any) -> pa.Table:
    if isinstance(rows, pa.Table):
        return rows
    if hasattr(rows, "__arrow_c_stream__"):
        try:
            return pa.table(rows)
        except (pa.ArrowException, ValueError) as error:
            # A column of Python objects, or two columns with the same name.
            kind = add_article(type(rows).__name__)
            raise InvalidArgument(
                f"Arrow cannot convert {kind}: {to_one_line(error)}. Give the column a single type, or leave it out"
            ) from error
    if hasattr(rows, "to_arrow"):
        return _to_arrow_table(rows.to_arrow())
    if hasattr(rows, "to_table"):
        return _to_arrow_table(rows.to_table())
    raise InvalidArgument(
        f"expected a table from tamis.open, or anything Arrow can read, found {add_article(type(rows).__name__)}"
    )
