"""A plan run on the embedded engine: scans stream into DuckDB as Arrow batches, and its answer streams out.

Nothing is held of a scan but what the engine needs for its answer. Text means what it means in Spark; functions of
which the engine has only its own idea are computed in that way rather than refused, because a query is read by people
who can look at it, while a filter drops rows unseen.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot.errors import SqlglotError

from tamis.errors import EvaluationError, one_line
from tamis.expr.sql_syntax import DEEPEST, with_large_stack
from tamis.pushdown.connector import Connector, as_told
from tamis.pushdown.connectors.lake_sums import whole_sums
from tamis.pushdown.engine_words import plain
from tamis.pushdown.nodes import Node, TableScan, Values, outputs_of
from tamis.pushdown.own_files import OwnFiles, all_own_files, engine_name
from tamis.pushdown.plan_sql import Printed, print_plan
from tamis.pushdown.policies.reach import refuse_other_tables
from tamis.pushdown.policies.reading import check_protected, is_protected, protected_batches, protected_schema
from tamis.pushdown.rules.sizes import MOST_ROWS_HELD
from tamis.pushdown.set_operations import Described, describe_relation, with_common_types
from tamis.pushdown.spark_syntax import in_duckdb_syntax
from tamis.scan.embedded import text_for_engine
from tamis.scan.engine_types import cast_for_engine, for_engine
from tamis.scan.spark_functions import macros_of, to_duckdb

BATCH_ROWS = 65_536
"""How many rows of an answer make a batch."""

MOST_FILES_HELD = 2 * 1024 * 1024
"""Of so many bytes of files the engine makes a table first: it orders joins better by what it finds there than by what
files tell."""

_NO_COLUMN = "nothing"


class CannotTranslate(Exception):
    """A text that the engine does not take: it never began to run."""


class Running:
    """One run of a plan. Its batches can be taken once."""

    def __init__(
        self,
        plan: Node,
        names: Sequence[str] | None,
        connectors: Mapping[str, Connector],
        explain: Callable[[BaseException], BaseException] | None = None,
        *,
        is_guarded: bool = False,
    ) -> None:
        """`explain` makes an error about the query of one that the engine raises while it runs. A query that
        `is_guarded` by policies reads from its leaves and nothing else."""
        self._explain = explain or _unexplained
        self._failures: list[BaseException] = []
        check_protected(plan)
        printed = print_plan(plan, expression=text_for_engine, is_leaf=is_protected)
        text = _translated_plan(printed, connectors)
        own = all_own_files(printed.leaves, connectors)
        queries = "; ".join((text, *(files.query for files in own.values())))
        self._connection = _connection([path for files in own.values() for path in files.paths], queries)
        try:
            self._register_all(printed.leaves, own, connectors)
            if is_guarded:
                self._refuse_other_tables(text, [name for name, _ in printed.leaves])
            self._reader = self._started(text)
        except BaseException:
            self._connection.close()
            raise
        self.schema = _named(self._reader.schema, names)

    def _refuse_other_tables(self, text: str, leaves: Sequence[str]) -> None:
        read: set[str] | None = None
        # Here the engine knows no types, by which it would pick the overloads of macros. Macros read no tables, so that
        # a row of their arguments tells the same.
        for asked in (text, re.sub(r"\bspark_\w+\(", "row(", text, flags=re.IGNORECASE)):
            try:
                read = self._connection.get_table_names(asked)
                break
            except duckdb.Error as error:
                reason = error
        if read is None:
            raise CannotTranslate(one_line(reason)) from reason
        refuse_other_tables(read, leaves)

    def _register_all(
        self, leaves: Sequence[tuple[str, Node]], own: Mapping[str, OwnFiles], connectors: Mapping[str, Connector]
    ) -> None:
        """Let the engine know all leaves. One whose rows it holds already is held once, under the names of each."""
        held: dict[tuple[str, object], tuple[str, Node]] = {}
        beside = len(leaves) - 1
        for name, leaf in leaves:
            key = (leaf.connector, leaf.handle) if isinstance(leaf, TableScan) and not leaf.protects else None
            if key is not None and key in held:
                self._create("VIEW", name, _under_names(leaf, *held[key]))
                continue
            if name in own:
                is_held = own[name].size <= MOST_FILES_HELD and beside > 1
                self._create("TABLE" if is_held else "VIEW", name, own[name].query)
            else:
                is_held = self._register(name, leaf, connectors, beside=beside)
            if is_held and key is not None:
                held[key] = name, leaf

    def _create(self, kind: str, name: str, query: str) -> None:
        try:
            with interruptible():
                self._connection.execute(f"CREATE TEMP {kind} {name} AS {query}")
        except duckdb.Error as error:
            raise self._failure(error) from error

    def _register(self, name: str, leaf: Node, connectors: Mapping[str, Connector], *, beside: int) -> bool:
        """Let the engine know a leaf, and so many others `beside` it; whether it holds all rows of it now.

        Where it joins two it needs to know which is larger; where it joins more, also how many values columns have,
        which it knows of its own tables.
        """
        relation = _relation(leaf, connectors, self._failures)
        rows = _likely_rows(leaf, connectors) if beside else None
        sums = whole_sums(leaf)
        if rows is None and not sums:
            self._connection.register(name, relation)
            return False
        self._connection.register(f"{name}_stream", relation)
        stream = _with_whole_sums(f"{name}_stream", sums)
        is_held = rows is not None and rows <= MOST_ROWS_HELD and beside > 1
        if is_held:
            self._create("TABLE", name, stream)
        else:
            self._create("VIEW", name, stream if rows is None else _with_estimate(stream, leaf, rows))
        return is_held

    def _started(self, text: str) -> pa.RecordBatchReader:
        try:
            with interruptible():
                found = self._connection.sql(text).to_arrow_reader(BATCH_ROWS)
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
            raise CannotTranslate(one_line(error)) from error
        except duckdb.Error as error:
            raise self._failure(error) from error
        assert found is not None
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The answer. The engine is let go when it was taken, or is not wanted any more."""
        try:
            while True:
                try:
                    with interruptible():
                        batch = self._reader.read_next_batch()
                except StopIteration:
                    return
                except (duckdb.Error, pa.ArrowException, OSError) as error:
                    raise self._failure(error) from error
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema) if batch.num_columns else batch
        finally:
            self.close()

    def close(self) -> None:
        self._connection.close()

    def _failure(self, error: BaseException) -> BaseException:
        if self._failures:
            # The engine has passed on what a scan said, in words of its own.
            return self._failures[0]
        return self._explain(error)


@contextmanager
def interruptible() -> Iterator[None]:
    """The engine says that it was interrupted where Python would."""
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise


def schema_of(plan: Node, names: Sequence[str] | None, connectors: Mapping[str, Connector]) -> pa.Schema:
    """The columns that a run of a plan returns; `CannotTranslate` where the engine does not take it.

    Nothing is read: its leaves are empty here.
    """
    check_protected(plan)
    printed = print_plan(plan, expression=text_for_engine, is_leaf=is_protected)
    with _bound(_translated_plan(printed, connectors), printed, connectors) as relation:
        # Functions that make rows would run.
        return _named(relation.limit(0).to_arrow_reader().schema, names)


@contextmanager
def _bound(text: str, printed: Printed, connectors: Mapping[str, Connector]) -> Iterator[duckdb.DuckDBPyRelation]:
    """A text of the engine over leaves without rows."""
    connection = _connection((), text)
    try:
        for name, leaf in printed.leaves:
            connection.register(name, empty_leaf(leaf, connectors))
        yield connection.sql(text)
    except duckdb.Error as error:
        raise CannotTranslate(one_line(error)) from error
    finally:
        connection.close()


def _translated_plan(printed: Printed, connectors: Mapping[str, Connector]) -> str:
    """The text of a plan in the engine's words, whose set operations have Spark's types."""

    has_nested = any(
        output.type is None or pa.types.is_nested(output.type)
        for _, leaf in printed.leaves
        for output in outputs_of(leaf)
    )

    def describe(text: str) -> Described | None:
        try:
            with _bound(translated(text, has_nested=has_nested), printed, connectors) as relation:
                return describe_relation(relation)
        except CannotTranslate:
            return None

    return translated(with_common_types(printed.text, describe), has_nested=has_nested)


def empty_leaf(leaf: Node, connectors: Mapping[str, Connector]) -> pa.Table:
    """A leaf without its rows."""
    if isinstance(leaf, Values):
        return leaf.rows.rename_columns([output.name for output in leaf.columns]).slice(0, 0)
    schema = for_engine(leaf_schema(leaf, connectors))
    return (schema if len(schema) else pa.schema([(_NO_COLUMN, pa.bool_())])).empty_table()


def _unexplained(error: BaseException) -> BaseException:
    return EvaluationError(f"the embedded engine could not finish the query: {plain(error)}")


def _named(schema: pa.Schema, names: Sequence[str] | None) -> pa.Schema:
    if names is None or len(names) != len(schema):
        return schema
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)], schema.metadata)


MOST_REMEMBERED = 64 * 1024
"""Longer texts are not kept: they were made by programs, and are hardly asked again."""


def translated(text: str, *, has_nested: bool) -> str:
    """A text in Spark's dialect in DuckDB's words, with Spark's meaning as far as there are words for it."""
    translate = _translated_before if len(text) <= MOST_REMEMBERED else _translated
    return translate(text, has_nested)


@lru_cache(maxsize=128)
def _translated_before(text: str, has_nested: bool) -> str:
    return _translated(text, has_nested)


def _translated(text: str, has_nested: bool) -> str:
    def work() -> str:
        return to_duckdb(in_duckdb_syntax(text), of_query=True, has_nested=has_nested)

    try:
        return work()
    except RecursionError:
        return with_large_stack(work, DEEPEST)
    except (SqlglotError, EvaluationError) as error:
        raise CannotTranslate(one_line(error)) from error


@dataclass
class _Engine:
    """An engine, and the macros that were made in it: they stay there for the queries that follow."""

    root: duckdb.DuckDBPyConnection
    macros: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def make_macros(self, text: str) -> None:
        with self.lock:
            for macro in macros_of(text):
                if macro not in self.macros:
                    self.root.execute(macro)
                    self.macros.add(macro)


MOST_ENGINES = 4
"""So many engines are kept: a new one takes some thirty milliseconds, which matters to a query of a hundred."""

_engines: OrderedDict[tuple[int, tuple[str, ...]], _Engine] = OrderedDict()
_engines_lock = threading.Lock()


@atexit.register
def _close_engines() -> None:
    """Let the engines go while Python still stands: they complain of connections that are left."""
    with _engines_lock:
        for (process, _), engine in _engines.items():
            if process == os.getpid():
                engine.root.close()
        _engines.clear()


def _connection(paths: Sequence[str], text: str = "") -> duckdb.DuckDBPyConnection:
    """A connection to an engine that reads nothing but what it is given: streams, and files at these paths.

    It has the macros that a text uses.
    """
    # Which files an engine may read must be said before all others are forbidden. A process has engines of its own.
    key = os.getpid(), tuple(paths)
    with _engines_lock:
        engine = _engines.pop(key, None) or _Engine(new_engine(paths))
        _engines[key] = engine
        while len(_engines) > MOST_ENGINES:
            # Queries that still run there have connections of their own.
            _engines.popitem(last=False)[1].root.close()
        connection = engine.root.cursor()
        engine.make_macros(text)
    connection.execute("SET TimeZone = 'UTC'; SET python_enable_replacements = false")
    return connection


@contextmanager
def parsing_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection that knows no table: texts are parsed there, and never run."""
    connection = _connection(())
    try:
        yield connection
    finally:
        connection.close()


def new_engine(paths: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """An engine that reads files at these paths, and no others."""
    spilled = Path(tempfile.gettempdir()) / f"tamis-{os.getpid()}"
    # Files that were read are not held in memory: nobody knows whether they are asked for again.
    config = {"temp_directory": str(spilled), "enable_external_file_cache": "false"}
    engine = duckdb.connect(":memory:", config=dict(config))
    if paths:
        listed = ", ".join(f"'{path}'" for path in paths)
        engine.execute(f"SET allowed_paths = [{listed}]")
    engine.execute("SET enable_external_access = false")
    return engine


# --- Leaves -----------------------------------------------------------------------------------------------------------


class _Stream:
    """The rows of a scan as an Arrow stream, which is read anew each time the engine asks for it."""

    def __init__(
        self, schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch]], failures: list[BaseException]
    ) -> None:
        self._given = schema
        self._read = read
        self._failures = failures
        # An engine has no table without columns.
        self._schema = for_engine(schema) if len(schema) else pa.schema([(_NO_COLUMN, pa.bool_())])

    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object:
        reader = pa.RecordBatchReader.from_batches(self._schema, self._batches())
        return reader.__arrow_c_stream__(requested_schema)

    def __arrow_c_schema__(self) -> object:
        return self._schema.__arrow_c_schema__()

    def _batches(self) -> Iterator[pa.RecordBatch]:
        try:
            for batch in self._read():
                if not len(self._given):
                    yield pa.record_batch([pa.nulls(batch.num_rows, pa.bool_())], schema=self._schema)
                elif batch.num_rows:
                    yield pa.RecordBatch.from_arrays(cast_for_engine(batch, self._schema), schema=self._schema)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._failures.append(error)
            raise


def _relation(leaf: Node, connectors: Mapping[str, Connector], failures: list[BaseException]) -> Any:
    match leaf:
        case Values():
            named = leaf.rows.rename_columns([output.name for output in leaf.columns])
            return named.cast(for_engine(named.schema))
        case _:
            return _Stream(leaf_schema(leaf, connectors), lambda: read_leaf(leaf, connectors), failures)


FILTERED = 0.2
"""The share of rows that filters are taken to leave, by the engine too."""

MOST_NUMBERS = 1_000_000
"""So many numbers are looked at in no time."""

BYTES_OF_A_ROW = 50
"""Where a table does not tell how many rows it has."""


def _likely_rows(leaf: Node, connectors: Mapping[str, Connector]) -> int | None:
    """About how many rows a stream has; None where that is not known, or known to the engine."""
    if not isinstance(leaf, TableScan) or leaf.protects:
        return None
    known = connectors[leaf.connector].properties(leaf.handle)
    rows = known.rows if known.rows is not None else None if known.bytes is None else known.bytes // BYTES_OF_A_ROW
    return None if rows is None else int(rows * (FILTERED if known.is_filtered and not known.rows_are_exact else 1))


def _with_estimate(stream: str, leaf: Node, rows: int) -> str:
    """A stream of which the engine knows about how many rows it has.

    It takes a stream for a single row, and would hash a table of facts to look customers up in it. So nothing is added
    to the stream, out of numbers of which the engine does not know that none is negative, and whose count it knows.
    It looks at them all, so that many are pairs of few, of which it looks at the first ones.
    """
    nothing = ", ".join("NULL" for _ in outputs_of(leaf)) or "NULL"
    numbers = max(1, round(rows / FILTERED))
    first = min(numbers, MOST_NUMBERS)
    others = "" if first == numbers else f", range({numbers // first}) AS others(other)"
    return f"{stream} UNION ALL SELECT {nothing} FROM range({first}) AS numbers(number){others} WHERE number < 0"


def _with_whole_sums(stream: str, names: Sequence[str]) -> str:
    """A stream whose sums of whole numbers have the type that the engine gives to them, and Arrow has not."""
    if not names:
        return f"FROM {stream}"
    replaced = ", ".join(f"{engine_name(name)}::HUGEINT AS {engine_name(name)}" for name in names)
    return f"SELECT * REPLACE ({replaced}) FROM {stream}"


def _under_names(leaf: Node, held: str, first: Node) -> str:
    """A table that has the rows of a scan, under the names that another scan of the same handle has for them."""
    pairs = zip(outputs_of(first), outputs_of(leaf), strict=True)
    named = ", ".join(f"{engine_name(own.name)} AS {engine_name(other.name)}" for own, other in pairs)
    return f"SELECT {named or '*'} FROM {held}"


def leaf_schema(leaf: Node, connectors: Mapping[str, Connector]) -> pa.Schema:
    """The columns of a leaf, under their symbols."""
    if is_protected(leaf):
        given = protected_schema(leaf, connectors)
    else:
        assert isinstance(leaf, TableScan)
        given = connectors[leaf.connector].columns(leaf.handle)
    names = [output.name for output in outputs_of(leaf)]
    return pa.schema([field.with_name(name) for field, name in zip(given, names, strict=True)])


def read_leaf(leaf: Node, connectors: Mapping[str, Connector]) -> Iterator[pa.RecordBatch]:
    """The rows of a leaf, with the columns of `leaf_schema`."""
    if is_protected(leaf):
        return protected_batches(leaf, connectors)
    assert isinstance(leaf, TableScan)
    names = [output.name for output in leaf.columns]
    batches = connectors[leaf.connector].read(leaf.handle)
    if not names:
        return batches
    schema = leaf_schema(leaf, connectors)
    return (as_told(batch, schema) for batch in batches)


__all__ = ["CannotTranslate", "Printed", "Running", "leaf_schema", "read_leaf", "schema_of", "translated"]
