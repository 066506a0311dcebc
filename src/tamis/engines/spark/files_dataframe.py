"""The files of a table as a cached Spark DataFrame, and scan planning in Spark.

Executors read the statistics once. Each plan is then one pass of the JVM over the cached rows, with the same rewritten
predicate that prunes locally. Only the remaining files are sent to the driver, so that it needs no more memory for five
million files than for fifty.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from types import TracebackType
from typing import Any

import pyarrow as pa

from tamis import types
from tamis.engines.spark.file_rows import ERROR, KINDS, PARQUET_FILES, FileLayout, FileRowsRunner
from tamis.engines.spark.handler import SparkExpressionHandler, quote_name
from tamis.engines.spark.jobs import balance_tasks, name_jobs
from tamis.engines.spark.sessions import check_session, import_functions, is_stopped, make_observation, translate_errors
from tamis.engines.spark.spark_types import to_spark_schema
from tamis.engines.spark.worker import error_from_bytes
from tamis.errors import EvaluationError, InvalidArgument, format_count
from tamis.expr.builder import split_name
from tamis.expr.names import resolve
from tamis.expr.nodes import TRUE, Column
from tamis.formats.file_funnel import Sizes
from tamis.formats.file_rows import KEY, FileRowsReader, HasFileRows
from tamis.formats.jobs import Item, storage_to_arguments
from tamis.formats.source import LEVELS, TableSource
from tamis.parquet.footer.leaves import list_flat_paths
from tamis.scan.planning.plan import describe_files
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.skipping.rewrite import Conjunct

FOOTERS_PER_CALL = 256
"""The number of footers that one call reads."""

MAX_TASKS = 512

_FAILED = "failed"
"""The metric that counts rows with an error."""


@dataclass(frozen=True)
class FilesForScan:
    """The files that may hold a matching row, and the sizes before and after each pruning step."""

    files: pa.Table
    """As in a plan: path, size, row count if known, partition values; ordered by path."""
    total: Sizes
    after_partitions: Sizes
    after_statistics: Sizes
    unused: tuple[str, ...] = ()
    """The conjuncts without an equivalent in Spark. They kept every file; a scan still tests its rows with them."""


class FilesDataFrame:
    """The files of a table at one version, cached in a Spark session until `unpersist`. It is a context manager."""

    def __init__(self, spark: Any, source: TableSource, columns: Sequence[str] | None = None) -> None:
        self._spark = check_session(spark)
        self._functions = import_functions(spark)
        self._source = source
        self._file_rows = source.file_rows() if isinstance(source, HasFileRows) else None
        with_statistics = _resolve_columns(source, columns)
        if self._file_rows is not None:
            with_statistics = self._file_rows.list_columns(with_statistics)
        self.layout = FileLayout(_make_partition_schema(source), with_statistics)
        self.name = ""
        """The name of the temporary view, which the storage page of Spark's UI shows."""
        what = f"tamis: files of {source.name}" + ("" if source.version is None else f"@{source.version}")
        with ExitStack() as undo:
            with translate_errors(what), name_jobs(spark, what):
                self.name = _create_view(spark, self._read_files(), source)
                undo.callback(self.unpersist)
                spark.catalog.cacheTable(self.name)
                self._raise_failure()
            undo.pop_all()

    @property
    def dataframe(self) -> Any:
        """A DataFrame with one row for each file: see `tamis.engines.spark.file_rows`."""
        f = self._functions
        # Cached rows may be evicted and read again, and then reading may fail.
        broken = f.raise_error(f.lit(f"cannot read the files of {self._source.name} again: create the DataFrame again"))
        is_read = f.when(f.col(ERROR).isNull(), f.lit(True)).otherwise(broken.cast("boolean"))
        return self._get_table().where(is_read).drop(KEY, ERROR)

    def _get_table(self) -> Any:
        check_session(self._spark)
        if not self._spark.catalog.tableExists(self.name):
            raise InvalidArgument(f"{self.name} was released by unpersist(): create it again with files_dataframe")
        return self._spark.table(self.name)

    def files_for_scan(self, where: object = None) -> FilesForScan:
        """Return the files that may hold a row for which `where` is TRUE, found by Spark in its cached rows."""
        predicate, on_partitions, on_statistics = self._split_conjuncts(where)
        by_partitions, unused = self._compile_conjuncts(
            on_partitions, self._make_partition_metadata(self._functions.lit(1).cast("bigint"))
        )
        by_statistics, more = self._compile_conjuncts(on_statistics, self._make_metadata())
        sizes = make_observation(self._spark)
        stages = {"total": None, "partitions": by_partitions, "statistics": by_partitions & by_statistics}
        measured = [each for name, kept in stages.items() for each in self._measure_files(name, kept)]
        title = f"tamis: plan {self._source.name}" + (f" where {predicate.text}" if predicate.text else "")
        with translate_errors(title), name_jobs(self._spark, title[:200]):
            failed = self._functions.count(ERROR).alias(_FAILED)
            frame = self._get_table().drop(KEY).observe(sizes, *measured, failed)
            # Spark would optimize away a frame with a constant FALSE filter, and lose the observed metrics.
            never = self._functions.col("size") < self._functions.lit(-1)
            is_left = self._functions.col(ERROR).isNull() & (stages["statistics"] | never)
            found = frame.where(is_left).drop(ERROR, *KINDS).toArrow().sort_by("path")
            if sizes.get[_FAILED]:
                self._raise_failure()
        total, after_partitions, after_statistics = (_to_sizes(sizes.get, name) for name in stages)
        unused_parts = tuple(dict.fromkeys((*unused, *more)))
        return FilesForScan(self._describe_files(found), total, after_partitions, after_statistics, unused_parts)

    def _raise_failure(self) -> None:
        """Raise the first error of an executor, if there is one."""
        failed = self._get_table().where(f"{ERROR} IS NOT NULL").select(ERROR).limit(1).collect()
        if failed:
            raise error_from_bytes(bytes(failed[0][0]))

    def unpersist(self) -> None:
        """Free the memory and drop the view. Calling it again, or after Spark was stopped, is safe."""
        if not is_stopped(self._spark) and self._spark.catalog.tableExists(self.name):
            if self._spark.catalog.isCached(self.name):
                self._spark.catalog.uncacheTable(self.name)
            self._spark.catalog.dropTempView(self.name)

    def __enter__(self) -> FilesDataFrame:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.unpersist()

    def __repr__(self) -> str:
        return f"<tamis.FilesDataFrame {self.name}>"

    # --- Reading --------------------------------------------------------------------------------------------------

    def _read_files(self) -> Any:
        return self._from_footers() if self._file_rows is None else self._from_metadata(self._file_rows)

    def _from_metadata(self, file_rows: FileRowsReader) -> Any:
        """Read the format's metadata in executors; an anti join drops the files that newer metadata replaces."""
        job = file_rows.plan(self.layout.columns)
        known = pa.Table.from_batches(map(self.layout.batch, job.known), self.layout.schema)
        if not job.items:
            return self._to_frame(known)
        frame = self._run(job.function, job.arguments, job.items, f"tamis: {job.description}")
        if job.replaced is not None and len(job.replaced):
            keys = pa.table({"replaced": job.replaced.cast(pa.binary())})
            gone = self._functions.broadcast(self._spark.createDataFrame(keys, to_spark_schema(keys.schema)))
            is_same = self._functions.col(KEY) == self._functions.col("replaced")
            frame = frame.join(gone, is_same, "left_anti")
        return self._to_frame(known).unionAll(frame) if job.known else frame

    def _from_footers(self) -> Any:
        listing = self._source.list_files(Predicate(TRUE), LEVELS).require(self._source.partition_columns)
        columns = [listing.files[name] for name in ("path", "size", "modified_ns")]
        values = listing.partitions.columns
        names = ["path", "size", "modified_ns", *(str(number) for number in range(len(values)))]
        table = pa.table([*columns, *values], names=names)
        items = [
            Item.from_table(table.slice(start, FOOTERS_PER_CALL), FOOTERS_PER_CALL)
            for start in range(0, table.num_rows, FOOTERS_PER_CALL)
        ]
        title = f"tamis: read {format_count(table.num_rows, 'footer')} of {self._source.name}"
        return self._run(PARQUET_FILES, {}, items, title) if items else self._to_frame(self.layout.schema.empty_table())

    def _run(self, function: str, more: Mapping[str, Any], items: Sequence[Item], title: str) -> Any:
        arguments = {**storage_to_arguments(self._source.storage), **self.layout.to_arguments(), **more}
        tasks = balance_tasks([item.size for item in items], MAX_TASKS)
        given = pa.table(
            {"task": pa.array(tasks, pa.int32()), "item": pa.array([item.value for item in items], pa.binary())}
        )
        runner = FileRowsRunner(function, json.dumps(arguments, allow_nan=False), re.sub(r"\W+", "_", title))
        frame = self._spark.createDataFrame(given, to_spark_schema(given.schema)).repartitionById(
            max(tasks) + 1, "task"
        )
        return frame.mapInArrow(runner, to_spark_schema(self.layout.schema))

    def _to_frame(self, table: pa.Table) -> Any:
        # Spark does not accept an empty Arrow table.
        return self._spark.createDataFrame(table if table.num_rows else [], to_spark_schema(self.layout.schema))

    # --- Pruning --------------------------------------------------------------------------------------------------

    def _split_conjuncts(self, where: object) -> tuple[Predicate, Sequence[Conjunct], Sequence[Conjunct]]:
        source = self._source
        predicate = make_predicate(where, source.schema, source.name, source.partition_columns)
        if predicate.partition_filter is not None:
            raise InvalidArgument("files_for_scan does not support PartitionFilter: write the filter as SQL")
        if self._file_rows is not None:
            return predicate, *self._file_rows.split_conjuncts(predicate)
        return predicate, predicate.partition_conjuncts if source.partition_columns else (), predicate.conjuncts

    def _compile_conjuncts(self, conjuncts: Sequence[Conjunct], known: Mapping[str, Any]) -> tuple[Any, list[str]]:
        """Return a Column that is TRUE for the files to keep, and the conjuncts without an equivalent in Spark."""
        handler = SparkExpressionHandler(self._spark)
        kept = self._functions.lit(True)
        unused = []
        for conjunct in conjuncts:
            if conjunct.metadata_names and conjunct.metadata_names.isdisjoint(known):
                continue
            try:
                kept = kept & handler.compile_keep(conjunct.may_be_true, known)
            except EvaluationError:
                unused.append(conjunct.text)
        return kept, unused

    def _make_partition_metadata(self, rows: Any) -> dict[str, Any]:
        """Return metadata from partition values, for files with these numbers of rows: see `make_constant_bounds`."""
        functions = self._functions
        found = {ROW_COUNT.name: rows}
        none = functions.lit(0).cast("bigint")
        for name, field in self.layout.partition_fields.items():
            value = functions.col(f"partition.{quote_name(field)}")
            path = (name,)
            found[metadata_name("null_count", path)] = functions.when(value.isNull(), rows).otherwise(none)
            if pa.types.is_floating(self.layout.partitions.field(name).type):
                is_nan = functions.coalesce(functions.isnan(value), functions.lit(False))
                found[metadata_name("nan_count", path)] = functions.when(is_nan, rows).otherwise(none)
                value = functions.when(~is_nan, value)
            found[metadata_name("lower", path)] = found[metadata_name("upper", path)] = value
        return found

    def _make_metadata(self) -> dict[str, Any]:
        functions = self._functions
        rows = functions.col("num_records")
        found = self._make_partition_metadata(rows)
        for kind in KINDS:
            for name, field in self.layout.fields(kind).items():
                found[name] = functions.col(f"{kind}.{quote_name(field)}")
        return found

    def _measure_files(self, name: str, kept: Any) -> list[Any]:
        """Return Columns that measure the files that a condition keeps."""
        f = self._functions

        def total(value: Any) -> Any:
            return f.coalesce(f.sum(value if kept is None else f.when(kept, value)), f.lit(0).cast("bigint"))

        one = f.lit(1).cast("bigint")
        return [
            total(one).alias(f"{name}_files"),
            total(f.col("size")).alias(f"{name}_bytes"),
            total(f.col("logical_rows")).alias(f"{name}_rows"),
            total(f.when(f.col("logical_rows").isNull(), one)).alias(f"{name}_unknown"),
        ]

    def _describe_files(self, found: pa.Table) -> pa.Table:
        """Return files in the layout of a plan."""
        files = found.select(["path", "size", "num_records"])
        if self._file_rows is not None:
            files = self._file_rows.resolve_paths(files)
        values: dict[str, Any] = {}
        for name, field in self.layout.partition_fields.items():
            column = found["partition"].combine_chunks().field(field)
            values[name] = column.cast(self.layout.partitions.field(name).type)
        return describe_files(files, pa.table(values) if values else pa.table({}))


def _to_sizes(measured: Mapping[str, int], name: str) -> Sizes:
    rows = None if measured[f"{name}_unknown"] else measured[f"{name}_rows"]
    return Sizes(measured[f"{name}_files"], measured[f"{name}_bytes"], rows)


def _make_partition_schema(source: TableSource) -> pa.Schema:
    return pa.schema([pa.field(name, source.schema.field(name).type) for name in source.partition_columns])


def _resolve_columns(source: TableSource, columns: Sequence[str] | None) -> tuple[Column, ...]:
    """Return the columns whose statistics are read: the given ones, or all that are not inside of lists and maps."""
    if isinstance(columns, str):
        raise InvalidArgument(f"columns must be a list of names, as in [{columns!r}]")
    if columns is not None:
        return tuple(resolve(Column(split_name(name)), source.schema, source.name, "columns") for name in columns)
    own = [field for field in source.schema if field.name not in source.partition_columns]
    found = [resolve(Column(path, exact=True), source.schema, source.name) for path in list_flat_paths(own)]
    return tuple(column for column in found if column.type is not None and types.is_ordered(column.type))


def _create_view(spark: Any, frame: Any, source: TableSource) -> str:
    """Create a temporary view of a DataFrame, and return its name."""
    from pyspark.errors import AnalysisException

    while True:
        name = _find_free_name(spark, source)
        try:
            frame.createTempView(name)
        except AnalysisException as error:
            # Another thread used the name in the meantime: its view is not replaced.
            if error.getCondition() != "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
        else:
            return name


def _find_free_name(spark: Any, source: TableSource) -> str:
    version = "" if source.version is None else f"_v{source.version}"
    wanted = name = f"tamis_files_{re.sub(r'[^0-9A-Za-z_]', '_', source.name)}{version}"
    number = 1
    while spark.catalog.tableExists(name):
        number += 1
        name = f"{wanted}_{number}"
    return name
