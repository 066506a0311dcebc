"""The data source `tamis`, for `spark.read.format("tamis")`, `spark.readStream.format("tamis")` and `CREATE TEMPORARY
VIEW … USING tamis`.

Spark runs it in separate Python processes: one plans the query, others read. Spark keeps the filters it pushed into a
DataFrame or view, and applies them again to other queries of the same DataFrame: after `df.where("k = 3")`, a
`df.count()` would count only the rows with k = 3. So filters are pushed only if the option `pushdown` declares that a
DataFrame is used for one query; the option `filter` belongs to the DataFrame and is always safe. With `pushdown`, later
versions of Spark also push limits and columns; until then a schema given by the user prunes columns.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import tempfile
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, Filter, InputPartition
from pyspark.sql.types import StructType

from tamis.engines.spark.handler import quote_name
from tamis.engines.spark.sessions import check_session, translate_errors
from tamis.engines.spark.spark_types import convert_rows, to_requested_schema, to_row_schema, to_spark_schema
from tamis.engines.spark.worker import raise_in_one_line, read_packed, serialize_reader, serialize_task_groups
from tamis.errors import (
    ExpressionError,
    InvalidArgument,
    TamisError,
    UnsupportedFeature,
    VersionNotFound,
    make_argument_error,
    suggest_arguments,
)
from tamis.expr.bind import bind
from tamis.expr.functions.table import find_foreign_function
from tamis.expr.literals import literal
from tamis.expr.nodes import FALSE, TRUE, Call, Name, Unbound, not_
from tamis.expr.sql.parse import parse_sql
from tamis.expr.wire.expression_json import expression_from_json, expression_to_json
from tamis.formats.open_source import open_source
from tamis.formats.source import (
    LEVELS,
    HasCommits,
    TableSource,
    Versioned,
    make_table_predicate,
    name_state,
    to_single_array,
)
from tamis.formats.time_travel import to_milliseconds
from tamis.index.finding import find_index
from tamis.scan.planning.task_data import get_task_reader
from tamis.scan.scan import Scan, ScanRequest, get_planner, make_scan
from tamis.skipping.predicate import Predicate


class TamisDataSource(DataSource):  # type: ignore[misc]  # mypy does not look into pyspark
    """The data source `tamis`."""

    @classmethod
    def name(cls) -> str:
        return "tamis"

    @raise_in_one_line()
    def schema(self) -> StructType:
        return to_spark_schema(to_row_schema(SourceOptions.of(self.options).open().schema))

    @raise_in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        options = SourceOptions.of(self.options)
        return PushdownReader(options, schema) if options.pushdown else PlainReader(options, schema)

    # Its errors have a traceback: PySpark shows another error, and this one only as the cause.
    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        return StreamReader(SourceOptions.of(self.options), schema)


class PlainReader(DataSourceReader):  # type: ignore[misc]
    """Reads the columns of a schema, and the rows that match the option `filter`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        # All attributes are plain data, because Spark sends the reader to other processes.
        self.options = options
        self.schema_text = schema.json()
        self.pushed: list[dict[str, Any]] = []
        self.limit: int | None = None

    @raise_in_one_line()
    def partitions(self) -> Sequence[InputPartition]:
        table = self.options.open()
        where: list[Any] = [expression_from_json(each) for each in self.pushed]
        if self.options.filter is not None:
            where.append(parse_sql(self.options.filter))
        columns = resolve_schema_columns(_parse_schema(self.schema_text), table)
        return make_partitions(make_scan(table, ScanRequest.parse(where, columns, self.limit)), self.limit)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.schema_text)


def make_partitions(scan: Scan, limit: int | None = None) -> list[InputPartition]:
    """Return the tasks of a scan, packed as Spark sends them to the processes that read."""
    reader = get_task_reader(scan)
    text = serialize_reader(reader, get_planner(scan).source)
    packed = serialize_task_groups(reader, limit_tasks(scan.plan().tasks, limit))
    return [InputPartition((text, each)) for each in packed]


def read_partition(partition: InputPartition, schema_text: str) -> Iterator[pa.RecordBatch]:
    """Yield the rows of packed tasks in the types of a schema."""
    if partition.value is None:
        return  # Spark creates an empty partition if there are none
    asked = _parse_schema(schema_text)
    for batch in read_packed(*partition.value):
        yield convert_rows(batch, to_requested_schema(batch.schema, asked))


def _parse_schema(text: str) -> StructType:
    return StructType.fromJson(json.loads(text))


# --- Streams --------------------------------------------------------------------------------------------------------
#
# A stream reads the files of the table as it first sees it, then those that each later version added. Files have an
# order, that of their paths, so that a batch may end between two of them. Spark stores an offset in the checkpoint of
# the query for each batch, and repeats a failed batch with the same two offsets; the rows between two offsets never
# change, so each row is read once.
#
# | offset                                                | what was read                                    |
# |-------------------------------------------------------|--------------------------------------------------|
# | `{"version": null, "whole": true, "files": null, …}`  | nothing                                          |
# | `{"version": 17, "whole": true, "files": 40, …}`      | the first 40 files of the table at version 17    |
# | `{"version": 17, "whole": false, "files": null, …}`   | all versions up to 17                            |
# | `{"version": 18, "whole": false, "files": 3, …}`      | all before 18, and the first 3 files it added    |
#
# `table` is the id of the table: versions of another table at the same place mean nothing.


@dataclass(frozen=True)
class Offset:
    """What a stream has read of a table."""

    version: int | None
    whole: bool
    files: int | None
    table: str | None

    @staticmethod
    def parse(given: Mapping[str, Any]) -> Offset:
        # Earlier versions wrote neither files nor the table.
        return Offset(given["version"], given["whole"], given.get("files"), given.get("table"))

    def is_at(self, other: Offset) -> bool:
        """Return whether two offsets of a table mean the same rows."""
        return (self.version, self.whole, self.files) == (other.version, other.whole, other.files)


@dataclass(frozen=True)
class Step:
    """The files of the table as the stream first sees it, or those that a version added, after those that were read."""

    version: int
    whole: bool
    read: int
    """How many files came before."""
    paths: pa.Array | None
    """None for all files of the table."""

    def cut(self, most: int) -> Step:
        return replace(self, paths=None if self.paths is None else self.paths[:most])


HAS_READ_LIMITS = hasattr(DataSourceStreamReader, "getDefaultReadLimit")
"""PySpark 4.1 asks a Python data source for all rows at once."""

if HAS_READ_LIMITS:
    from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
else:
    SupportsTriggerAvailableNow = object


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):  # type: ignore[misc]
    """Reads the rows that were added to a table since a version."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema_text = schema.json()
        self.last: Offset | None = None
        """What a query with the trigger "available now" reads at most."""
        if options.max_files_per_trigger is not None and not HAS_READ_LIMITS:
            raise UnsupportedFeature("the option max_files_per_trigger needs PySpark 4.2 or newer")
        table = self._open()
        columns = to_row_schema(table.schema).names
        self.has_all_columns = schema.fieldNames() == columns

    @raise_in_one_line()
    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names
        table = self._open()
        found = Offset(None, whole=True, files=None, table=table.table_id)
        start, timestamp = self.options.starting_version, self.options.starting_timestamp
        if start is not None and timestamp is not None:
            raise InvalidArgument("starting_version and starting_timestamp exclude each other: give one of them")
        if timestamp is not None:
            start = _find_version_since(table, timestamp)
        if start is not None:
            versions = [None, *table.list_versions_after(None)]
            if start not in versions:
                raise VersionNotFound(
                    f"starting_version {start} is not a version of {table.name}. Versions: {versions[1]} to "
                    f"{versions[-1]}"
                    if len(versions) > 1
                    else f"starting_version {start}: {table.name} has no version yet"
                )
            found = replace(found, version=versions[versions.index(start) - 1], whole=False)
        return asdict(found)

    @raise_in_one_line()
    def latestOffset(  # noqa: N802
        self, start: dict[str, Any] | None = None, limit: Any = None
    ) -> dict[str, Any]:
        """Return the offset of all rows, or of as many files after `start` as a limit allows.

        PySpark 4.1 passes no arguments.
        """
        table = self._open()
        last = self.last or _find_last_offset(table)
        if start is None:
            return asdict(last)
        begin = Offset.parse(start)
        self._check_table(table, begin)
        left: int | None = getattr(limit, "max_files", None)
        if left is not None and last.version is not None:
            for step in self._list_steps(table, begin, last.version):
                count = 0 if step.paths is None else len(step.paths)
                if count > left:
                    return asdict(Offset(step.version, step.whole, step.read + left, table.table_id))
                left -= count
        # Spark compares the texts of offsets.
        return start if begin.is_at(last) else asdict(last)

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxFiles

        most = self.options.max_files_per_trigger
        return ReadAllAvailable() if most is None else ReadMaxFiles(most)

    @raise_in_one_line()
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """Read no later versions than the newest of this time."""
        self.last = _find_last_offset(self._open())

    @raise_in_one_line()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []  # a restarted query asks for what it has read, which may be gone
        table = self._open()
        begin, last = Offset.parse(start), Offset.parse(end)
        self._check_table(table, begin)
        self._check_table(table, last)
        self._check_columns(table)
        if last.version is None:
            return []
        found = []
        for step in self._list_steps(table, begin, last.version, with_all=last.files is None):
            if last.files is not None and (step.version, step.whole) == (last.version, last.whole):
                step = step.cut(last.files - step.read)
            if step.paths is None or len(step.paths):
                found += make_partitions(self._make_scan(table, step))
        return found

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_partition(partition, self.schema_text)

    def commit(self, end: dict[str, Any]) -> None:
        """Keep nothing: a table needs not know who read it."""

    def stop(self) -> None:
        """Keep nothing: tables are opened anew for each batch."""

    def _open(self) -> Any:
        table = self.options.open()
        if not isinstance(table, HasCommits):
            raise UnsupportedFeature(
                f"{table.name} is a {table.format} table, which has no versions: a stream needs Delta or Iceberg"
            )
        return table

    def _list_steps(self, table: Any, begin: Offset, last: int, *, with_all: bool = False) -> Iterator[Step]:
        """Yield the steps from an offset to a version. `with_all` allows a step that does not list its files."""
        version, read = begin.version, begin.files or 0
        versions = []
        if begin.whole:
            version = last if version is None else version
            is_all = with_all and not read
            yield Step(version, True, read, None if is_all else _list_paths(_open_at(table, version))[read:])
            read = 0
        elif version is not None and begin.files is not None:
            versions = [version]
        versions += table.list_versions_after(version)
        for each in versions[: versions.index(last) + 1 if last in versions else 0]:
            commit = table.read_commit(each)
            if commit.changes_rows and not self.options.skip_change_commits:
                raise UnsupportedFeature(
                    f"version {each} of {table.name} changed or deleted rows that the stream has read. Use the "
                    "option skip_change_commits to pass over such versions, or start again without the checkpoint"
                )
            yield Step(each, False, read, commit.added.sort()[read:] if not commit.changes_rows else commit.added[:0])
            read = 0

    def _make_scan(self, table: Any, step: Step) -> Scan:
        """Return the scan of the files of a step."""
        where = None if self.options.filter is None else parse_sql(self.options.filter)
        request = ScanRequest.parse(where, resolve_schema_columns(_parse_schema(self.schema_text), table), None)
        then = _open_with_files_of(table, step)
        if step.paths is None and then is table:
            return make_scan(table, request)
        # A filter may use columns that the table did not have then.
        is_same = then.schema.equals(table.schema)
        predicate = make_table_predicate(where, table) if is_same else Predicate(TRUE)
        listing = then.list_files(predicate, LEVELS if is_same else ())
        if step.paths is not None:
            listing = listing.take(np.flatnonzero(np.asarray(pc.is_in(listing.files["path"], value_set=step.paths))))
        chosen = replace(listing, matched=None)
        return make_scan(table, request, lambda _: chosen)

    def _check_table(self, table: Any, offset: Offset) -> None:
        if offset.table is not None and table.table_id is not None and offset.table != table.table_id:
            raise VersionNotFound(
                f"{table.name} is not the table that the stream has read: its id was {offset.table}, and is "
                f"{table.table_id}, so it was replaced. Start again with a new checkpoint"
            )
        if offset.version is not None:
            # It raises an error if the table does not have this version, as after it was rolled back.
            table.list_versions_after(offset.version)

    def _check_columns(self, table: TableSource) -> None:
        known = _parse_schema(self.schema_text).fieldNames()
        new = [name for name in to_row_schema(table.schema).names if name not in known]
        if new and self.has_all_columns:
            raise UnsupportedFeature(
                f"{name_state(table)} has the new column {new[0]!r}: start the query again, with the same checkpoint"
            )


def _find_last_offset(table: Any) -> Offset:
    return Offset(table.version, whole=table.version is None, files=None, table=table.table_id)


def _find_version_since(table: Any, timestamp: str) -> int:
    """Return the first version that was committed at a timestamp or later."""
    wanted = to_milliseconds(timestamp)
    history = table.history()
    versions = history.column(0).to_pylist()[::-1]
    times = history["timestamp"].cast(pa.int64()).to_pylist()[::-1]
    found = next((number for number, time in enumerate(times) if time is not None and time >= wanted), None)
    if found is None:
        raise VersionNotFound(f"no version of {table.name} was committed at {timestamp} or later")
    if found == 0 and next(iter(table.list_versions_after(None))) != versions[0]:
        raise VersionNotFound(
            f"the commits of {table.name} before version {versions[0]} were cleaned up, and some of them may be of "
            f"{timestamp} or later. Use starting_version={versions[0]}"
        )
    return int(versions[found])


def _open_at(table: Any, version: int) -> Any:
    return table if table.version == version else table.at(str(version))


def _open_with_files_of(table: Any, step: Step) -> Any:
    """Return the table at the version of a step; or the table itself, if it has these files as that version has them.

    The log may be cleaned up so far that the commits after a version exist, but not all that make up the version.
    """
    try:
        return _open_at(table, step.version)
    except VersionNotFound:
        later = table.list_versions_after(step.version)
        if step.whole or step.paths is None or any(table.read_commit(each).changes_rows for each in later):
            raise
        if not pc.all(pc.is_in(step.paths, value_set=_list_paths(table)), min_count=0).as_py():
            raise
        return table


def _list_paths(table: Any) -> pa.Array:
    return to_single_array(table.list_files(Predicate(TRUE), ()).files["path"]).sort()


class NoRows(DataSource):  # type: ignore[misc]
    """A source without rows, whose size Spark does not know: see `sessions.hide_size`."""

    @classmethod
    def name(cls) -> str:
        return "tamis_no_rows"

    @raise_in_one_line()
    def reader(self, schema: StructType) -> DataSourceReader:
        return NoRowsReader()


class NoRowsReader(DataSourceReader):  # type: ignore[misc]
    """Reads nothing."""

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield from ()


class PushdownReader(PlainReader):
    """Accepts each of Spark's filters that the table supports: for a single query."""

    @raise_in_one_line()
    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        table = self.options.open()
        # This query must not see commits between this call and the next one.
        self.options = self.options.pin(table)
        for each in filters:
            expression = expression_from_filter(each)
            if expression is None or not _can_bind(expression, table):
                yield each  # Spark applies it
            else:
                self.pushed.append(expression_to_json(expression))

    if hasattr(DataSourceReader, "pushLimit"):

        def pushLimit(self, limit: int) -> bool:  # noqa: N802
            """Accept a limit, as later versions of Spark push it; Spark still applies it itself."""
            self.limit = limit
            return True

    if hasattr(DataSourceReader, "pruneColumns"):

        def pruneColumns(self, required: StructType) -> StructType:  # noqa: N802
            """Accept the required columns, as later versions of Spark push them."""
            self.schema_text = required.json()
            return required


def _can_bind(expression: Unbound, table: TableSource) -> bool:
    try:
        bind(expression, table.schema, table.name)
    except ExpressionError:
        return False
    return True


def limit_tasks(tasks: Iterable[Any], limit: int | None) -> Iterator[Any]:
    """Yield tasks until they are guaranteed to hold as many rows as the limit."""
    certain = 0
    for task in tasks:
        yield task
        certain += 0 if task.residual else task.row_count
        if limit is not None and certain >= limit:
            return


def resolve_schema_columns(schema: StructType, table: TableSource) -> list[str]:
    """Return the quoted columns of a table that a schema requests, after checking their names and types."""
    stored = to_row_schema(table.schema)
    if not schema.fields:
        raise InvalidArgument("the schema has no columns: name at least one")
    names = []
    for wanted in schema.fields:
        known = [each for each in stored if each.name.casefold() == wanted.name.casefold()]
        exact = [each for each in known if each.name == wanted.name] or known
        if len(exact) != 1:
            raise InvalidArgument(
                f"the schema has the column {wanted.name!r}, which {table.name} does not have. Columns: "
                f"{', '.join(table.schema.names)}"
            )
        own = to_spark_schema(pa.schema(exact)).fields[0]
        if own.dataType.simpleString().casefold() != wanted.dataType.simpleString().casefold():
            raise InvalidArgument(
                f"the schema has {wanted.name} as {wanted.dataType.simpleString()}, but in {table.name} it is "
                f"{own.dataType.simpleString()}: use that type, and cast the column afterwards"
            )
        names.append(quote_name(exact[0].name))
    return names


# --- The options of the data source `tamis`: the table, its version, and a filter -------------------------------------
#
# | option                        | meaning                                                             |
# |-------------------------------|---------------------------------------------------------------------|
# | `path`                        | the table, as in `load(path)`; with a catalog, its name             |
# | `filter`                      | SQL text, for filters that Spark does not push (OR, functions)      |
# | `version`, `timestamp`        | a version of a Delta table                                          |
# | `snapshot_id`, `ref`, `timestamp` | a snapshot of an Iceberg table                                  |
# | `catalog`, `catalog.…`        | the name, or the properties, of a catalog of Iceberg tables         |
# | `format`                      | `delta`, `iceberg`, `hive` or `parquet`, instead of detecting it    |
# | `pushdown`                    | `true`: Spark's filters prune too; for DataFrames of one query only |
# | `index`                       | the location of the statistics index, or `false` to use none        |
# | `merge_schema`, `allow_outside`, `relocate`, `partitioning.…` | as the arguments of `tamis.open` of these names |
# | `int96`                       | `instant` or `local`, as the argument of `tamis.open`               |
# | `starting_version`            | of a stream: the first version or snapshot whose new rows are read  |
# | `starting_timestamp`          | of a stream: the same, of the first version at or after a timestamp |
# | `max_files_per_trigger`       | of a stream: a batch reads at most so many files                    |
# | `skip_change_commits`         | `true`: a stream passes over versions that changed or deleted rows  |
# | `storage.…`                   | a storage option, such as `storage.aws_region`                      |
#
# Names are case-insensitive, with or without underscores; `versionAsOf` and `timestampAsOf` are accepted too.

_NAMES = (
    "path",
    "filter",
    "version",
    "timestamp",
    "snapshot_id",
    "ref",
    "catalog",
    "format",
    "pushdown",
    "index",
    "merge_schema",
    "allow_outside",
    "relocate",
    "int96",
    "starting_version",
    "starting_timestamp",
    "max_files_per_trigger",
    "skip_change_commits",
)
_STORAGE, _CATALOG, _PARTITIONING = "storage.", "catalog.", "partitioning."

_SPELLINGS = {name.replace("_", ""): name for name in _NAMES} | {"versionasof": "version", "timestampasof": "timestamp"}
"""Accepted option names, in lower case and without underscores: also Spark's `mergeSchema` and `versionAsOf`."""


@dataclass(frozen=True)
class SourceOptions:
    """The parsed options of a read."""

    path: str
    filter: str | None = None
    version: int | None = None
    timestamp: str | None = None
    format: str | None = None
    storage: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    snapshot_id: int | None = None
    ref: str | None = None
    catalog: str | None = None
    catalog_properties: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    pushdown: bool = False
    index: str | bool | None = None
    merge_schema: bool = False
    allow_outside: bool = False
    relocate: bool = True
    partitioning: tuple[tuple[str, str], ...] = ()
    int96: Any = "instant"
    starting_version: int | None = None
    skip_change_commits: bool = False
    starting_timestamp: str | None = None
    max_files_per_trigger: int | None = None

    @staticmethod
    def of(options: Mapping[str, str]) -> SourceOptions:
        if "provider" in options:
            raise UnsupportedFeature(
                "CREATE TABLE … USING tamis cannot work: Spark loses the options of a Python data source when it loads "
                "the table again. Write CREATE TEMPORARY VIEW … USING tamis OPTIONS (path '…'), or call "
                "tamis.spark.create_view(spark, name, path)"
            )
        given: dict[str, Any] = {}
        for name, value in options.items():
            lowered = str(name).lower()
            has_prefix = lowered.startswith((_STORAGE, _CATALOG, _PARTITIONING))
            known = lowered if has_prefix else _SPELLINGS.get(lowered.replace("_", ""))
            if known is None:
                raise InvalidArgument(
                    f"the data source tamis has no option {name!r}. Options: {', '.join(_NAMES)}, {_STORAGE}… for "
                    f"storage options (such as {_STORAGE}aws_region), {_CATALOG}… for catalog properties, and "
                    f"{_PARTITIONING}… for the types of partition columns"
                )
            if known in given:
                raise InvalidArgument(f"the option {known} is given twice, once as {name!r}")
            given[known] = value
        if not given.get("path"):
            raise InvalidArgument("the data source tamis needs the path of a table: .load('s3://bucket/table')")
        index = given.get("index")
        return SourceOptions(
            given["path"],
            given.get("filter"),
            _parse_number(given, "version"),
            given.get("timestamp"),
            given.get("format"),
            _select_prefixed(given, _STORAGE),
            _parse_number(given, "snapshot_id"),
            given.get("ref"),
            given.get("catalog"),
            _select_prefixed(given, _CATALOG),
            _parse_boolean(given, "pushdown", default=False),
            _BOOLEANS.get(str(index).strip().lower(), index),
            _parse_boolean(given, "merge_schema", default=False),
            _parse_boolean(given, "allow_outside", default=False),
            _parse_boolean(given, "relocate", default=True),
            _select_prefixed(given, _PARTITIONING),
            str(given.get("int96", "instant")).strip().lower(),
            _parse_number(given, "starting_version"),
            _parse_boolean(given, "skip_change_commits", default=False),
            given.get("starting_timestamp"),
            _parse_number(given, "max_files_per_trigger", least=1),
        )

    def open(self) -> TableSource:
        properties = dict(self.catalog_properties)
        if properties and self.catalog is not None:
            properties["name"] = self.catalog
        return open_source(
            self.path,
            self.format,
            self.version,
            self.timestamp,
            self.snapshot_id,
            self.ref,
            dict(self.storage) or None,
            properties or self.catalog,
            partitioning=dict(self.partitioning) or None,
            merge_schema=self.merge_schema,
            allow_outside=self.allow_outside,
            relocate=self.relocate,
            index=self.index,
            int96=self.int96,
            find_index=find_index,
        )

    def pin(self, table: TableSource) -> SourceOptions:
        """Return options that open the same version of the table again, regardless of later commits."""
        if not isinstance(table, Versioned):
            return self
        pinned = dict(table.pin())
        options = pinned.pop("storage_options", None)
        if options is not None:
            pinned["storage"] = tuple((name, str(value)) for name, value in options.items())
        if "uri" in pinned:
            pinned |= {"path": pinned.pop("uri"), "catalog": None, "catalog_properties": ()}
        return replace(self, **pinned)


_BOOLEANS = {"true": True, "false": False}


def _parse_boolean(given: Mapping[str, Any], name: str, *, default: bool) -> bool:
    found = _BOOLEANS.get(str(given.get(name, default)).strip().lower())
    if found is None:
        raise InvalidArgument(f"the option {name} must be true or false, found {given[name]!r}")
    return found


def _parse_number(given: Mapping[str, Any], name: str, least: int = 0) -> int | None:
    value = given.get(name)
    if value is not None and not (str(value).strip().isdigit() and int(value) >= least):
        kind = "a positive" if least else "a nonnegative"
        raise InvalidArgument(f"the option {name} must be {kind} integer, found {value!r}")
    return None if value is None else int(value)


def _select_prefixed(given: Mapping[str, Any], start: str) -> tuple[tuple[str, str], ...]:
    """Return the options whose names start with a prefix, without it."""
    return tuple((name.removeprefix(start), value) for name, value in given.items() if name.startswith(start))


# --- Convert the filters that Spark pushes into a data source to expressions ------------------------------------------
#
# They are conjuncts: comparisons of a column with a constant, IN, NULL tests, string prefixes and the like, and NOT of
# one of these. Their semantics are the same as here, including NULL and NaN.


def expression_from_filter(given: Any) -> Unbound | None:
    """Return the expression of a filter of `pyspark.sql.datasource`; None if it is unsupported."""
    kind = type(given).__name__
    if kind == "Not":
        inner = expression_from_filter(given.child)
        return None if inner is None else not_(inner)
    known = find_foreign_function(kind, lambda row: row.classes)
    if known is None and kind != "In":
        return None
    column = Name(tuple(given.attribute), exact=True)
    if known is not None and known.most == 1:
        return Call(known.name, (column,))
    try:
        items = [literal(item) for item in (given.value if kind == "In" else (given.value,))]
    except TamisError:
        return None  # a constant of an unsupported type
    if known is None:
        return Call("in", (column, *items)) if items else FALSE
    return Call(known.name, (column, *items))


# --- Register -------------------------------------------------------------------------------------------------------
#
# Register the data source `tamis` in a Spark session.


PUSHDOWN = "spark.sql.python.filterPushdown.enabled"

logger = logging.getLogger("tamis")


@suggest_arguments("tamis.spark.register")
def register(spark: Any) -> None:
    """Enable `spark.read.format("tamis")` and `CREATE TEMPORARY VIEW … USING tamis` in a classic or Connect session.

    It sets `spark.sql.python.filterPushdown.enabled`, which the option `pushdown` needs. If this setting cannot be
    changed, only the option `filter` prunes files.
    """
    check_session(spark)
    from pyspark.errors import PySparkException

    # Imported lazily: only the data source needs PySpark at import time.
    from tamis.engines.spark import data_source as sources

    try:
        spark.conf.set(PUSHDOWN, "true")
    except PySparkException as error:
        logger.warning("cannot set %s, so the option pushdown of tamis does not work: %s", PUSHDOWN, error)
    with translate_errors("tamis: register the data source"):
        spark.dataSource.register(sources.TamisDataSource)


@suggest_arguments("tamis.spark.create_view")
def create_view(spark: Any, name: str, table: Any) -> None:
    """Create or replace a temporary view of a table, for `spark.sql`: a path or URI, a `Table`, or a `Scan`.

    The view has the rows of the table's version at this time. Spark's own reader reads them where it is correct, so
    that conditions of a query prune partitions and row groups.
    """
    check_session(spark)
    rows = table
    if isinstance(table, str | os.PathLike):
        rows = make_scan(open_source(table, find_index=find_index), ScanRequest.parse(None, None, None))
    elif hasattr(table, "scan"):
        rows = table.scan()
    if not hasattr(rows, "to_spark"):
        raise make_argument_error("the table of a view", "a path, a Table or a Scan", table)
    with translate_errors(f"tamis: create the view {name}"):
        rows.to_spark(spark).createOrReplaceTempView(name)


# --- Ship Tamis to the workers of a Spark session, if it is not installed there ---------------------------------------

PACKAGE = Path(__file__).parents[2]

_FIXED_DATE = (1980, 1, 1, 0, 0, 0)
"""The modification time of all zip entries, so that the same files result in the same bytes."""


@suggest_arguments("tamis.spark.ship")
def ship(spark: Any) -> str:
    """Send this version of Tamis to the workers of a session, and return the name of the artifact.

    It ships Python code only: pyarrow, numpy, duckdb, sqlglot, pyroaring and xxhash must be installed on the workers.
    Sending the same version again costs nothing.
    """
    check_session(spark)
    path = write_package(Path(_create_directory().name))
    with translate_errors(f"tamis: send {path.name}"):
        spark.addArtifacts(str(path), pyfile=True)
    return path.name


@cache
def _create_directory() -> tempfile.TemporaryDirectory[str]:
    """Create a directory that lasts until this process ends: executors of a classic session fetch the file on start."""
    return tempfile.TemporaryDirectory(prefix="tamis-")


def write_package(folder: Path) -> Path:
    """Write the package as a zip file, named after a hash of its content, unless it exists; return its path."""
    files = sorted(path for path in PACKAGE.rglob("*") if path.suffix == ".py" or path.name == "py.typed")
    content = [(f"{PACKAGE.name}/{path.relative_to(PACKAGE).as_posix()}", path.read_bytes()) for path in files]
    digest = hashlib.sha256(repr(content).encode()).hexdigest()[:16]
    path = folder / f"tamis-{digest}.zip"
    if path.exists():
        return path
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in content:
            archive.writestr(zipfile.ZipInfo(name, _FIXED_DATE), data, zipfile.ZIP_DEFLATED)
    return path
