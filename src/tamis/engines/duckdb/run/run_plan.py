"""Execution of plans on DuckDB, the embedded engine: scans stream in as Arrow batches, and the result streams out.

The engine holds no more of a scan than its result needs. SQL has Spark's semantics. A function that only has DuckDB's
semantics is computed rather than refused: the user sees the values of a query, while a filter would drop rows unseen.
"""

from __future__ import annotations

import atexit
import os
import re
import tempfile
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
from sqlglot import exp
from sqlglot.errors import SqlglotError

from tamis.engines.duckdb.native_scan import NativeScan, collect_macros, plan_native_scans, quote_duckdb_name
from tamis.engines.duckdb.run.evaluate import to_engine_tree
from tamis.engines.duckdb.translate.functions import DuckdbSql, to_duckdb, write_macro_statements
from tamis.engines.duckdb.translate.set_operations import DescribedQuery, cast_to_common_types, describe_relation
from tamis.engines.duckdb.translate.syntax import translate_syntax
from tamis.errors import EvaluationError, UnsupportedFeature, to_one_line
from tamis.expr.sql.syntax import retry_with_large_stack
from tamis.query.connectors.connector import Connector, conform_batch
from tamis.query.connectors.lake_handle import find_integer_sums
from tamis.query.engine import UntranslatableQuery
from tamis.query.plan.nodes import Node, TableScan, Values, get_outputs
from tamis.query.plan.to_sql import build_plan_tree
from tamis.query.policies.protected_reading import (
    check_protected,
    is_protected,
    make_protected_schema,
    read_protected_batches,
)
from tamis.query.policies.reach import refuse_other_tables
from tamis.tuning import DEFAULT_TUNING, Tuning
from tamis.types import type_name

BATCH_ROWS = 65_536
"""The number of rows in a batch of the result."""

_NO_COLUMN = "nothing"

_Leaves = Sequence[tuple[str, Node]]


class RunningQuery:
    """One run of a plan. Its batches can be read once."""

    def __init__(
        self,
        plan: Node,
        names: Sequence[str] | None,
        connectors: Mapping[str, Connector],
        explain: Callable[[BaseException], BaseException],
        *,
        is_guarded: bool = False,
        tuning: Tuning = DEFAULT_TUNING,
    ) -> None:
        """`explain` turns an error that the engine raises while running into one about the query. A query that
        `is_guarded` by policies may read its leaves and nothing else."""
        self._explain = explain
        self._tuning = tuning
        self._failures: list[BaseException] = []
        check_protected(plan)
        query, leaves = _translate_plan(plan, connectors)
        own = plan_native_scans(leaves, connectors)
        macros = query.macros | collect_macros(own)
        self._connection = _connect([path for files in own.values() for path in files.paths], macros)
        try:
            self._register_all(leaves, own, connectors)
            if is_guarded:
                self._refuse_other_tables(query, [name for name, _ in leaves])
            self._reader = self._start(query.text)
        except BaseException:
            self._connection.close()
            raise
        self.schema = _rename_columns(self._reader.schema, names)

    def _refuse_other_tables(self, query: DuckdbSql, leaves: Sequence[str]) -> None:
        read: set[str] | None = None
        # get_table_names() does not know the types by which the engine picks the overloads of macros.
        for has_macros in (True, False):
            try:
                read = self._connection.get_table_names(query.text if has_macros else query.write_without_macros())
                break
            except duckdb.Error as error:
                reason = error
        if read is None:
            raise UntranslatableQuery(to_one_line(reason)) from reason
        refuse_other_tables(read, leaves)

    def _register_all(
        self, leaves: Sequence[tuple[str, Node]], own: Mapping[str, NativeScan], connectors: Mapping[str, Connector]
    ) -> None:
        """Register all leaves in the engine. Leaves with the same handle share one materialised table, each with its
        own column names."""
        held: dict[tuple[str, object], tuple[str, Node]] = {}
        beside = len(leaves) - 1
        for name, leaf in leaves:
            key = (leaf.connector, leaf.handle) if isinstance(leaf, TableScan) and not leaf.is_protected else None
            if key is not None and key in held:
                self._create("VIEW", name, _write_query_with_names(leaf, *held[key]))
                continue
            if name in own:
                is_held = own[name].size <= self._tuning.max_materialised_bytes and beside > 1
                self._create("TABLE" if is_held else "VIEW", name, own[name].query)
            else:
                is_held = self._register(name, leaf, connectors, beside=beside)
            if is_held and key is not None:
                held[key] = name, leaf

    def _create(self, kind: str, name: str, query: str) -> None:
        try:
            with raise_keyboard_interrupt():
                self._connection.execute(f"CREATE TEMP {kind} {name} AS {query}")
        except duckdb.Error as error:
            raise self._explain_failure(error) from error

    def _register(self, name: str, leaf: Node, connectors: Mapping[str, Connector], *, beside: int) -> bool:
        """Register a leaf that has `beside` other leaves in the plan; return whether the engine materialised its rows.

        A join of two leaves needs to know which is larger. A join of more leaves also needs the distinct counts of
        columns, and the engine has them only for its own tables.
        """
        relation = _make_relation(leaf, connectors, self._failures)
        rows = _estimate_rows(leaf, connectors) if beside else None
        sums = find_integer_sums(leaf)
        if rows is None and not sums:
            self._connection.register(name, relation)
            return False
        self._connection.register(f"{name}_stream", relation)
        stream = _write_query_with_integer_sums(f"{name}_stream", sums)
        is_held = rows is not None and rows <= self._tuning.max_materialised_rows and beside > 1
        if is_held:
            self._create("TABLE", name, stream)
        else:
            self._create("VIEW", name, stream if rows is None else _write_query_with_row_estimate(stream, leaf, rows))
        return is_held

    def _start(self, text: str) -> pa.RecordBatchReader:
        try:
            with raise_keyboard_interrupt():
                found = _cast_sums(self._connection.sql(text)).to_arrow_reader(BATCH_ROWS)
        except (duckdb.ParserException, duckdb.BinderException, duckdb.CatalogException) as error:
            raise UntranslatableQuery(to_one_line(error)) from error
        except duckdb.Error as error:
            raise self._explain_failure(error) from error
        assert found is not None
        return found

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the result. The connection is closed after the last batch, or when the iterator is dropped."""
        try:
            while True:
                try:
                    with raise_keyboard_interrupt():
                        batch = self._reader.read_next_batch()
                except StopIteration:
                    return
                except (duckdb.Error, pa.ArrowException, OSError) as error:
                    raise self._explain_failure(error) from error
                yield pa.RecordBatch.from_arrays(batch.columns, schema=self.schema) if batch.num_columns else batch
        finally:
            self.close()

    def close(self) -> None:
        self._connection.close()

    def _explain_failure(self, error: BaseException) -> BaseException:
        if self._failures:
            # The engine only wrapped an error that a scan raised.
            return self._failures[0]
        return self._explain(error)


@contextmanager
def raise_keyboard_interrupt() -> Iterator[None]:
    """Turn the engine's error about an interrupt into KeyboardInterrupt."""
    try:
        yield
    except RuntimeError as error:
        if "interrupted" in str(error).lower():
            raise KeyboardInterrupt from error
        raise


def find_result_schema(plan: Node, names: Sequence[str] | None, connectors: Mapping[str, Connector]) -> pa.Schema:
    """Return the columns that a run of a plan returns; raise `UntranslatableQuery` if the engine rejects the plan.

    Nothing is read: the leaves are empty tables here.
    """
    check_protected(plan)
    query, leaves = _translate_plan(plan, connectors)
    with _bind_query(query, leaves, connectors) as relation:
        # Table functions would run without a limit.
        return _rename_columns(_cast_sums(relation).limit(0).to_arrow_reader().schema, names)


_UNQUOTED_HUGEINT = re.compile(r'("[^"]*")|\bHUGEINT\b')


def _cast_sums(relation: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Cast sums of integers, which are a HUGEINT in DuckDB, to Spark's bigint; values that do not fit are errors."""
    kinds = [str(kind) for kind in relation.types]
    narrow = [_UNQUOTED_HUGEINT.sub(lambda found: found[1] or "BIGINT", kind) for kind in kinds]
    if narrow == kinds:
        return relation
    named = zip(relation.columns, narrow, strict=True)
    return relation.project(
        ", ".join(f"CAST(#{n} AS {kind}) AS {quote_duckdb_name(name)}" for n, (name, kind) in enumerate(named, 1))
    )


@contextmanager
def _bind_query(
    query: DuckdbSql, leaves: _Leaves, connectors: Mapping[str, Connector]
) -> Iterator[duckdb.DuckDBPyRelation]:
    """Bind a query over leaves without rows."""
    connection = _connect((), query.macros)
    try:
        for name, leaf in leaves:
            connection.register(name, make_empty_leaf(leaf, connectors))
        yield connection.sql(query.text)
    except duckdb.Error as error:
        raise UntranslatableQuery(to_one_line(error)) from error
    finally:
        connection.close()


def _translate_plan(plan: Node, connectors: Mapping[str, Connector]) -> tuple[DuckdbSql, _Leaves]:
    """Return a plan in DuckDB's SQL, with Spark's types in its set operations, and the leaves that it reads."""

    def work() -> tuple[DuckdbSql, _Leaves]:
        found = build_plan_tree(plan, to_engine_tree, is_leaf=is_protected)
        has_nested = any(
            output.type is None or pa.types.is_nested(output.type)
            for _, leaf in found.leaves
            for output in get_outputs(leaf)
        )

        def describe(tree: exp.Expr) -> DescribedQuery | None:
            try:
                with _bind_query(_translate(tree, has_nested), found.leaves, connectors) as relation:
                    return describe_relation(relation)
            except UntranslatableQuery:
                return None

        cast_to_common_types(found.tree, describe)
        return _translate(found.tree, has_nested), found.leaves

    return retry_with_large_stack(work)


def _translate(tree: exp.Expr, has_nested: bool) -> DuckdbSql:
    """Translate a query in Spark's dialect to DuckDB's SQL, in place, as far as DuckDB can express its semantics."""
    try:
        translate_syntax(tree)
        return to_duckdb(tree, of_query=True, has_nested=has_nested)
    except (SqlglotError, EvaluationError) as error:
        raise UntranslatableQuery(to_one_line(error)) from error


def make_empty_leaf(leaf: Node, connectors: Mapping[str, Connector]) -> pa.Table:
    """Return an empty table with the columns of a leaf."""
    if isinstance(leaf, Values):
        return leaf.rows.rename_columns([output.name for output in leaf.columns]).slice(0, 0)
    schema = to_engine_schema(find_leaf_schema(leaf, connectors))
    return (schema if len(schema) else pa.schema([(_NO_COLUMN, pa.bool_())])).empty_table()


def _rename_columns(schema: pa.Schema, names: Sequence[str] | None) -> pa.Schema:
    if names is None or len(names) != len(schema):
        return schema
    return pa.schema([field.with_name(name) for field, name in zip(schema, names, strict=True)], schema.metadata)


@dataclass
class _Engine:
    """A DuckDB instance and the macros created in it, which later queries reuse."""

    root: duckdb.DuckDBPyConnection
    macros: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def make_macros(self, names: Collection[str]) -> None:
        with self.lock:
            for macro in write_macro_statements(names):
                if macro not in self.macros:
                    self.root.execute(macro)
                    self.macros.add(macro)


MAX_ENGINES = 4
"""The number of cached engines: a new one takes about 30 ms, much for a query of 100 ms."""

_engines: OrderedDict[tuple[int, tuple[str, ...]], _Engine] = OrderedDict()
_engines_lock = threading.Lock()


@atexit.register
def _close_engines() -> None:
    """Close the engines before the interpreter shuts down: they complain of open connections."""
    with _engines_lock:
        for (process, _), engine in _engines.items():
            if process == os.getpid():
                engine.root.close()
        _engines.clear()


def _connect(paths: Sequence[str], macros: Collection[str] = ()) -> duckdb.DuckDBPyConnection:
    """Open a connection to an engine that can read registered streams and the files at these paths, and nothing else.

    It has the macros of these names.
    """
    # The paths must be allowed before external access is disabled, so each set of paths needs its own engine. A forked
    # process must not share its parent's engine.
    key = os.getpid(), tuple(paths)
    with _engines_lock:
        engine = _engines.pop(key, None) or _Engine(start_engine(paths))
        _engines[key] = engine
        while len(_engines) > MAX_ENGINES:
            # Queries that still run there have their own connections.
            _engines.popitem(last=False)[1].root.close()
        connection = engine.root.cursor()
        engine.make_macros(macros)
    connection.execute("SET TimeZone = 'UTC'; SET python_enable_replacements = false")
    return connection


@contextmanager
def open_parser_connection() -> Iterator[duckdb.DuckDBPyConnection]:
    """Open a connection without tables, to parse SQL but never to run it."""
    connection = _connect(())
    try:
        yield connection
    finally:
        connection.close()


def start_engine(paths: Sequence[str]) -> duckdb.DuckDBPyConnection:
    """Start an engine that can read the files at these paths, and no others."""
    spilled = Path(tempfile.gettempdir()) / f"tamis-{os.getpid()}"
    # Do not cache file contents in memory: they may never be read again.
    config = {"temp_directory": str(spilled), "enable_external_file_cache": "false"}
    engine = duckdb.connect(":memory:", config=dict(config))
    if paths:
        listed = ", ".join(f"'{path}'" for path in paths)
        engine.execute(f"SET allowed_paths = [{listed}]")
    engine.execute("SET enable_external_access = false")
    return engine


# --- Leaves -----------------------------------------------------------------------------------------------------------


class CastStream:
    """Rows in types that DuckDB supports, as an Arrow stream that is read again each time the engine requests it.

    Errors of `read` are added to `failures`, since the engine raises its own.
    """

    def __init__(
        self, schema: pa.Schema, read: Callable[[], Iterator[pa.RecordBatch]], failures: list[BaseException]
    ) -> None:
        self._given = schema
        self._read = read
        self._failures = failures
        # DuckDB has no tables without columns.
        self._schema = to_engine_schema(schema) if len(schema) else pa.schema([(_NO_COLUMN, pa.bool_())])

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
                    columns = [_cast_column(*each) for each in zip(batch.columns, self._schema, strict=True)]
                    yield pa.RecordBatch.from_arrays(columns, schema=self._schema)
        except GeneratorExit:
            raise
        except BaseException as error:
            self._failures.append(error)
            raise


def _make_relation(leaf: Node, connectors: Mapping[str, Connector], failures: list[BaseException]) -> Any:
    match leaf:
        case Values():
            named = leaf.rows.rename_columns([output.name for output in leaf.columns])
            return named.cast(to_engine_schema(named.schema))
        case _:
            return CastStream(find_leaf_schema(leaf, connectors), lambda: read_leaf(leaf, connectors), failures)


FILTER_SELECTIVITY = 0.2
"""The assumed selectivity of a filter. DuckDB assumes the same."""

MAX_RANGE_LENGTH = 1_000_000
"""DuckDB filters a range of this many numbers in negligible time."""

BYTES_PER_ROW = 50
"""The assumed size of a row if a table has no row count."""


def _estimate_rows(leaf: Node, connectors: Mapping[str, Connector]) -> int | None:
    """Estimate the rows of a stream; None if there is no estimate, or if the engine knows the count."""
    if not isinstance(leaf, TableScan) or leaf.is_protected:
        return None
    known = connectors[leaf.connector].properties(leaf.handle)
    rows = known.rows if known.rows is not None else None if known.bytes is None else known.bytes // BYTES_PER_ROW
    return (
        None
        if rows is None
        else int(rows * (FILTER_SELECTIVITY if known.is_filtered and not known.rows_are_exact else 1))
    )


def _write_query_with_row_estimate(stream: str, leaf: Node, rows: int) -> str:
    """Return a query for a stream for which the engine estimates this number of rows.

    DuckDB assumes that a stream has a single row, so it would build a join's hash table from the fact table. The query
    therefore appends an empty relation: a range of known length under a filter that never holds, which the optimizer
    cannot know. DuckDB scans the range, so a large one is a cross product of smaller ranges, and only the first range
    is scanned.
    """
    nothing = ", ".join("NULL" for _ in get_outputs(leaf)) or "NULL"
    numbers = max(1, round(rows / FILTER_SELECTIVITY))
    first = min(numbers, MAX_RANGE_LENGTH)
    others = "" if first == numbers else f", range({numbers // first}) AS others(other)"
    return f"{stream} UNION ALL SELECT {nothing} FROM range({first}) AS numbers(number){others} WHERE number < 0"


def _write_query_with_integer_sums(stream: str, names: Sequence[str]) -> str:
    """Return a query that casts integer sums to HUGEINT, the type DuckDB gives them. Arrow has no such type."""
    if not names:
        return f"FROM {stream}"
    replaced = ", ".join(f"{quote_duckdb_name(name)}::HUGEINT AS {quote_duckdb_name(name)}" for name in names)
    return f"SELECT * REPLACE ({replaced}) FROM {stream}"


def _write_query_with_names(leaf: Node, held: str, first: Node) -> str:
    """Return a query that gives the columns of a materialised scan the names of another scan of the same handle."""
    pairs = zip(get_outputs(first), get_outputs(leaf), strict=True)
    named = ", ".join(f"{quote_duckdb_name(own.name)} AS {quote_duckdb_name(other.name)}" for own, other in pairs)
    return f"SELECT {named or '*'} FROM {held}"


def find_leaf_schema(leaf: Node, connectors: Mapping[str, Connector]) -> pa.Schema:
    """Return the columns of a leaf, named by their column ids."""
    if is_protected(leaf):
        given = make_protected_schema(leaf, connectors)
    else:
        assert isinstance(leaf, TableScan)
        given = connectors[leaf.connector].columns(leaf.handle)
    names = [output.name for output in get_outputs(leaf)]
    return pa.schema([field.with_name(name) for field, name in zip(given, names, strict=True)])


def read_leaf(leaf: Node, connectors: Mapping[str, Connector]) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a leaf, with the columns of `find_leaf_schema`."""
    if is_protected(leaf):
        return read_protected_batches(leaf, connectors)
    assert isinstance(leaf, TableScan)
    names = [output.name for output in leaf.columns]
    batches = connectors[leaf.connector].read(leaf.handle)
    if not names:
        return batches
    schema = find_leaf_schema(leaf, connectors)
    return (conform_batch(batch, schema) for batch in batches)


# --- Replacements for Arrow types that DuckDB does not support --------------------------------------------------------

MAX_DECIMAL_DIGITS = 38


def to_engine_schema(schema: pa.Schema) -> pa.Schema:
    """Return a schema that DuckDB supports; raise `UnsupportedFeature` where no type of DuckDB can hold a column."""
    return pa.schema([field.with_type(_replace_type(field.type, field.name)) for field in schema])


def _cast_column(column: pa.Array, field: pa.Field) -> pa.Array:
    if column.type == field.type:
        return column
    try:
        return column.cast(field.type)
    except pa.ArrowInvalid as error:
        raise UnsupportedFeature(
            f"the column {field.name.rpartition('.')[2]!r} holds a value that cannot be cast to "
            f"{type_name(field.type)}, the type that queries use ({to_one_line(error)}): leave it out, or "
            "read it with scan().to_arrow()"
        ) from error


def _replace_type(data_type: pa.DataType, column: str) -> pa.DataType:
    if pa.types.is_float16(data_type):
        return pa.float32()
    if data_type == pa.duration("ns"):
        # DuckDB would drop the nanoseconds silently.
        return pa.duration("us")
    if pa.types.is_decimal256(data_type):
        if data_type.precision > MAX_DECIMAL_DIGITS:
            raise UnsupportedFeature(
                f"the column {column.rpartition('.')[2]!r} is a decimal of {data_type.precision} digits, and "
                f"queries support at most {MAX_DECIMAL_DIGITS}: leave it out, or read it with scan().to_arrow()"
            )
        return pa.decimal128(data_type.precision, data_type.scale)
    if pa.types.is_struct(data_type):
        return pa.struct([_replace_field(field, column) for field in data_type])
    if pa.types.is_list(data_type):
        return pa.list_(_replace_field(data_type.value_field, column))
    if pa.types.is_large_list(data_type):
        return pa.large_list(_replace_field(data_type.value_field, column))
    if pa.types.is_fixed_size_list(data_type):
        return pa.list_(_replace_field(data_type.value_field, column), data_type.list_size)
    if pa.types.is_map(data_type):
        return pa.map_(_replace_field(data_type.key_field, column), _replace_field(data_type.item_field, column))
    return data_type


def _replace_field(field: pa.Field, column: str) -> pa.Field:
    return field.with_type(_replace_type(field.type, column))
