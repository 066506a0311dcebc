"""The files of a table as a cached Spark DataFrame, and scan planning in Spark.

Executors read the statistics once. Each plan is then one pass of the JVM over the cached rows, with the same rewritten
predicate that prunes locally. Only the remaining files are sent to the driver, so that it needs no more memory for five
million files than for fifty.

The rows of a version are cached once in a session: all that ask for the same columns share them, and so do scans that
are planned on Spark.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from threading import Lock
from types import TracebackType
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.engines.spark.file_rows import ERROR, INTERNAL, KINDS, PARQUET_FILES, TEXTS, FileLayout, FileRowsRunner
from tamis.engines.spark.handler import SparkExpressionHandler, quote_name
from tamis.engines.spark.jobs import balance_tasks, name_jobs
from tamis.engines.spark.sessions import (
    check_session,
    import_functions,
    is_connect,
    is_stopped,
    make_observation,
    translate_errors,
)
from tamis.engines.spark.spark_types import to_spark_schema
from tamis.engines.spark.worker import error_from_bytes
from tamis.errors import (
    CorruptFile,
    EvaluationError,
    InvalidArgument,
    format_count,
    make_argument_error,
    suggest_method_arguments,
)
from tamis.expr.builder import split_name
from tamis.expr.names import resolve
from tamis.expr.nodes import TRUE, Column, Name
from tamis.formats.constants import add_partitions, list_constants
from tamis.formats.file_funnel import DATA, LIMIT, SKIPPING_NOTES, Sizes, choose_skipping, find_files_for_limit
from tamis.formats.file_rows import KEY, FileRowsReader, HasFileRows, ListsFileRows
from tamis.formats.jobs import Item, storage_to_arguments
from tamis.formats.source import LEVELS, MODIFIED, FileListing, TableSource, Versioned, make_table_predicate, name_state
from tamis.parquet.footer.leaves import list_flat_paths
from tamis.scan.planning.plan import describe_files
from tamis.scan.planning.scan_planner import check_levels, check_limit
from tamis.scan.scan import Scan, ScanRequest, make_scan
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.metrics import NOT_A_PARTITION_COLUMN, SWITCHED_OFF, LevelReport
from tamis.skipping.predicate import Predicate, make_partition_text
from tamis.skipping.prune import NO_STATISTICS, OVERLAPS, ConjunctOutcome
from tamis.skipping.rewrite import Conjunct

FOOTERS_PER_CALL = 256
"""The number of footers that one call reads."""

MAX_TASKS = 512

MAX_FILES_FOR_LIMIT = 10_000
"""Up to this limit, no more files than the limit are sent to the driver: each holds a row, or is not needed."""

NO_EQUIVALENT = "no equivalent in Spark"
CACHED_NOTE = "files cached in Spark"

_FAILED, _WITHOUT_TEXTS, _MATCHED = "failed", "without_texts", "fully_matched"
"""The metrics that count rows with an error and rows without texts, and the column of files that are fully matched."""

_PARTITION_LEVELS = ("partitions", "manifests")


@suggest_method_arguments("FilesForScan")
@dataclass(frozen=True)
class FilesForScan:
    """A plan: the files that may hold a matching row, and the sizes before and after each pruning step."""

    files: pa.Table
    """As in a plan of a scan: path, size, row count if known, partition values."""
    skipping: str
    """How files were skipped: `none`, `partition`, `data` or `limit`."""
    total: Sizes
    after_partitions: Sizes
    after_statistics: Sizes
    """The size of `files`: also after a limit."""
    unused: tuple[str, ...]
    """The conjuncts without an equivalent in Spark. They kept every file; a scan still tests its rows with them."""
    _make_scan: Callable[[Sequence[str] | None], Scan] = field(repr=False, compare=False)
    _spark: Any = field(repr=False, compare=False)

    def scan(self, columns: Sequence[str] | None = None) -> Scan:
        """Return a lazy scan of these files, and no others, with the filter that remains and the limit.

        It may be used after `unpersist`.
        """
        return self._make_scan(columns)

    def to_spark(self, columns: Sequence[str] | None = None, *, reader: str = "auto") -> Any:
        """Return the matching rows of these files as a lazy DataFrame: see `Scan.to_spark`."""
        return self.scan(columns).to_spark(self._spark, reader=reader)


@dataclass(frozen=True)
class _FoundFiles:
    """What Spark found for a filter."""

    rows: pa.Table
    """The rows of the files, without statistics."""
    skipping: str
    total: Sizes
    after_partitions: Sizes
    after_statistics: Sizes
    unused: tuple[str, ...]
    levels: tuple[LevelReport, ...]


@dataclass(eq=False)
class _CachedRows:
    """The cached rows of a table at one version, under a temporary view. All users hold the same object."""

    source: TableSource
    layout: FileLayout
    name: str = ""
    """The name of the view; empty until it was created."""
    users: int = 0
    lock: Lock = field(default_factory=Lock)

    def is_of(self, source: TableSource) -> bool:
        """Return whether these are the rows of a table in the same state."""
        mine = self.source
        return mine is source or (isinstance(mine, Versioned) and mine.is_same_state(source))


_CACHED: WeakKeyDictionary[Any, list[_CachedRows]] = WeakKeyDictionary()
"""The cached rows of each session. They do not refer to the session, so that it can be collected."""

_LOCK = Lock()
"""Guards `_CACHED`, and the numbers of users in it."""


@suggest_method_arguments("FilesDataFrame")
class FilesDataFrame:
    """The files of a table at one version, cached in a Spark session until `unpersist`. It is a context manager."""

    def __init__(
        self,
        spark: Any,
        source: TableSource,
        columns: Sequence[str] | None = None,
        *,
        cached: _CachedRows | None = None,
    ) -> None:
        self._spark = check_session(spark)
        self._functions = import_functions(spark)
        self._source = source
        self._file_rows = source.file_rows() if isinstance(source, HasFileRows) else None
        if cached is None:
            with_statistics = _resolve_columns(source, columns)
            if self._file_rows is not None:
                with_statistics = self._file_rows.list_columns(with_statistics)
            texts = tuple(dict.fromkeys(source.partition_texts))
            cached = _join_users(spark, source, FileLayout(_make_partition_schema(source), with_statistics, texts))
        self.layout = cached.layout
        self._cached = cached
        self._is_released = False
        self.name = ""
        """The name of the temporary view, which the storage page of Spark's UI shows."""
        with ExitStack() as undo:
            undo.callback(self.unpersist)
            with cached.lock:
                if not cached.name or not spark.catalog.tableExists(quote_name(cached.name)):
                    self._create(cached)
                self.name = cached.name
            undo.pop_all()

    @staticmethod
    def find(spark: Any, source: TableSource, columns: Collection[Column]) -> FilesDataFrame | None:
        """Return the files of a table if they are cached with statistics of data columns; None if they are not."""
        wanted = {column.path for column in columns}
        with _LOCK:
            for cached in _CACHED.get(spark, ()):
                known = {column.path for column in cached.layout.columns}
                if cached.name and wanted <= known and cached.is_of(source):
                    cached.users += 1
                    break
            else:
                return None
        return FilesDataFrame(spark, source, cached=cached)

    def _create(self, cached: _CachedRows) -> None:
        """Create the view, and cache its rows."""
        source, spark = self._source, self._spark
        what = f"tamis: files of {source.name}" + ("" if source.version is None else f"@{source.version}")
        with translate_errors(what), name_jobs(spark, what), ExitStack() as undo:
            cached.name = _create_view(spark, self._read_files(), source)
            undo.callback(self._drop_view, cached)
            spark.catalog.cacheTable(quote_name(cached.name))
            _name_cached_rows(spark, cached.name)
            self._raise_failure(cached.name)
            undo.pop_all()

    def _drop_view(self, cached: _CachedRows) -> None:
        name, catalog = quote_name(cached.name), self._spark.catalog
        if cached.name and catalog.tableExists(name):
            if catalog.isCached(name):
                catalog.uncacheTable(name)
            # The only method that takes a name as it is, and not as SQL.
            catalog.dropTempView(cached.name)
        cached.name = ""

    @property
    def dataframe(self) -> Any:
        """A DataFrame with one row for each file: see `tamis.engines.spark.file_rows`."""
        f = self._functions
        # Cached rows may be evicted and read again, and then reading may fail.
        broken = f.raise_error(f.lit(f"cannot read the files of {self._source.name} again: create the DataFrame again"))
        is_read = f.when(f.col(ERROR).isNull(), f.lit(True)).otherwise(broken.cast("boolean"))
        return self._get_table().where(is_read).drop(*INTERNAL)

    def _get_table(self) -> Any:
        check_session(self._spark)
        if self._is_released or not self._spark.catalog.tableExists(quote_name(self.name)):
            raise InvalidArgument(
                f"the files of {self._source.name} were released by unpersist(): create them again with files_dataframe"
            )
        return self._spark.table(quote_name(self.name))

    def files_for_scan(
        self,
        filters: object = None,
        limit: int | None = None,
        levels: Collection[str] = LEVELS,
        keep_num_records: bool = True,
    ) -> FilesForScan:
        """Return the files that may hold a row for which `filters` are TRUE, found by Spark in its cached rows.

        `filters` is a filter as of `Table.scan`, or a list of filters that all apply. With a `limit`, files with that
        many matching rows are enough. `levels` are the pruning levels to use. Without `keep_num_records`, the files
        have no row counts.
        """
        limit = check_limit(limit)
        check_levels(levels)
        if not isinstance(keep_num_records, bool):
            raise make_argument_error("keep_num_records", "True or False", keep_num_records)
        predicate = make_table_predicate(filters, self._source)
        found = self._find_files(predicate, levels, limit)
        files = self._describe_files(found.rows)
        if not keep_num_records:
            position = files.column_names.index("num_records")
            files = files.set_column(position, "num_records", pa.nulls(files.num_rows, types.LONG))

        def scan(columns: Sequence[str] | None) -> Scan:
            listing = self._make_listing(found, predicate)
            return make_scan(self._source, ScanRequest.parse(filters, columns, limit, levels), lambda _: listing)

        return FilesForScan(
            files,
            found.skipping,
            found.total,
            found.after_partitions,
            found.after_statistics,
            found.unused,
            scan,
            self._spark,
        )

    def find_listing(self, predicate: Predicate, levels: Collection[str], limit: int | None) -> FileListing | None:
        """Return the files for a filter as a listing; None if a plan from the table's metadata may skip more."""
        if not isinstance(self._source, ListsFileRows) or not self._has_all_partitions:
            return None
        found = self._find_files(predicate, levels, limit)
        return None if found.unused else self._list_rows(found, predicate)

    def _raise_failure(self, name: str) -> None:
        """Raise the first error of an executor, if there is one."""
        frame = self._spark.table(quote_name(name))
        failed = frame.where(f"{ERROR} IS NOT NULL").select(ERROR).limit(1).collect()
        if failed:
            raise error_from_bytes(bytes(failed[0][0]))

    def unpersist(self) -> None:
        """Release the files: the last user frees the memory. Calling it again, or after Spark was stopped, is safe."""
        if self._is_released:
            return
        self._is_released = True
        cached = self._cached
        with _LOCK:
            cached.users -= 1
            if cached.users:
                return
            _CACHED[self._spark].remove(cached)
        if not is_stopped(self._spark):
            self._drop_view(cached)

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
        everything = Predicate(TRUE, tuple(map(make_partition_text, self.layout.texts)))
        listing = self._source.list_files(everything, LEVELS).require(self._source.partition_columns)
        table = listing.files.select(["path", "size", "modified_ns", *list_constants(listing.files.column_names)])
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

    def _find_files(self, predicate: Predicate, levels: Collection[str], limit: int | None) -> _FoundFiles:
        skipping = choose_skipping(predicate, self._source.partition_columns, levels, limit)
        on_partitions, on_statistics = self._split_conjuncts(predicate)
        one = self._functions.lit(1).cast("bigint")
        steps = _PruningSteps(SparkExpressionHandler(self._spark))
        if "partitions" in levels:
            steps.add("partitions", on_partitions, self._make_partition_metadata(one), NOT_A_PARTITION_COLUMN)
        after_partitions = steps.kept
        if "files" in levels and (skipping == DATA or not predicate.columns):
            # A filter without columns may be FALSE, which needs no metadata.
            steps.add("files", on_statistics, self._make_metadata(), NO_STATISTICS)
        known = [self._make_partition_metadata(one), *([self._make_metadata()] if skipping == DATA else [])]
        is_matched = steps.compile_matches(predicate.conjuncts, known)
        stages = {"total": None, "partitions": after_partitions, "statistics": steps.kept}
        with_texts = bool(predicate.partition_texts)
        title = f"tamis: plan {self._source.name}" + (f" where {predicate.text}" if predicate.text else "")
        with translate_errors(title), name_jobs(self._spark, title[:200]):
            most = max(limit, 1) if skipping == LIMIT and limit is not None and limit <= MAX_FILES_FOR_LIMIT else None
            rows, measured = self._collect_files(stages, steps, is_matched, most, with_texts=with_texts)
        total, between, left = (_to_sizes(measured, name) for name in stages)
        outcomes = steps.make_outcomes(measured)
        if skipping == LIMIT and limit is not None:
            # A file that is not fully matched may hold no matching row.
            counts = pc.if_else(rows[_MATCHED], rows["logical_rows"], pa.scalar(None, types.LONG)).combine_chunks()
            rows = rows.take(pa.array(np.sort(find_files_for_limit(counts, limit))))
            if rows.num_rows < left.files:
                outcomes["files"] += (ConjunctOutcome(f"limit {limit}", left.files - rows.num_rows, None),)
            left = _measure(rows)
        reports = self._make_reports(skipping, levels, (total, between, left), outcomes, predicate)
        unused = tuple(dict.fromkeys(predicate.labels.get(text, text) for text in steps.unused))
        return _FoundFiles(rows, skipping, total, between, left, unused, reports)

    def _collect_files(
        self, stages: Mapping[str, Any], steps: _PruningSteps, is_matched: Any, most: int | None, *, with_texts: bool
    ) -> tuple[pa.Table, Mapping[str, int]]:
        """Return the rows of the files that remain, and what was measured.

        With `most`, only files that are fully matched are returned if they hold so many rows: no more than `most`.
        """
        f = self._functions
        if most is not None:
            has_rows = is_matched & (f.coalesce(f.col("logical_rows"), f.lit(0)) > 0)
            rows, measured = self._collect(stages, steps, is_matched, has_rows, most, with_texts=with_texts)
            if (pc.sum(rows["logical_rows"]).as_py() or 0) >= most:
                return rows, measured
        return self._collect(stages, steps, is_matched, with_texts=with_texts)

    def _collect(
        self,
        stages: Mapping[str, Any],
        steps: _PruningSteps,
        is_matched: Any,
        is_wanted: Any = None,
        most: int | None = None,
        *,
        with_texts: bool,
    ) -> tuple[pa.Table, Mapping[str, int]]:
        f = self._functions
        sizes = make_observation(self._spark)
        measures = [each for name, kept in stages.items() for each in self._measure_files(name, kept)]
        failed = [f.count(ERROR).alias(_FAILED)]
        if with_texts:
            failed.append(f.count(f.when(f.col(TEXTS).isNull(), 1)).alias(_WITHOUT_TEXTS))
        needs_keys = isinstance(self._source, ListsFileRows) and self._source.needs_keys
        frame = (
            self._get_table().drop(*(() if needs_keys else (KEY,))).observe(sizes, *measures, *steps.measures, *failed)
        )
        # Spark would optimize away a frame with a constant FALSE filter, and lose the observed metrics.
        never = f.col("size") < f.lit(-1)
        is_left = stages["statistics"] if is_wanted is None else stages["statistics"] & is_wanted
        frame = frame.where(f.col(ERROR).isNull() & (is_left | never)).withColumn(_MATCHED, is_matched)
        frame = frame.drop(ERROR, *KINDS, *(() if with_texts else (TEXTS,)))
        rows = (frame if most is None else frame.orderBy("path").limit(most)).toArrow().sort_by("path")
        if sizes.get[_FAILED]:
            self._raise_failure(self.name)
        if with_texts and sizes.get[_WITHOUT_TEXTS]:
            raise CorruptFile(
                f"the metadata of {self._source.name} has typed partition values only, and no texts for a "
                "PartitionFilter to compare: filter with SQL"
            )
        return rows, sizes.get

    def _make_reports(
        self,
        skipping: str,
        levels: Collection[str],
        sizes: tuple[Sizes, Sizes, Sizes],
        outcomes: Mapping[str, tuple[ConjunctOutcome, ...]],
        predicate: Predicate,
    ) -> tuple[LevelReport, ...]:
        total, between, left = sizes
        reports = []
        if self._source.partition_columns or outcomes["partitions"]:
            note = None if "partitions" in levels else SWITCHED_OFF
            reports.append(_make_report("partitions", total, between, outcomes["partitions"], note))
        is_off = "files" not in levels and bool(predicate.list_data_columns(self._source.partition_columns))
        note = SWITCHED_OFF if is_off else f"{SKIPPING_NOTES[skipping]}; {CACHED_NOTE}"
        return (*reports, _make_report("files", between, left, outcomes["files"], note))

    def _split_conjuncts(self, predicate: Predicate) -> tuple[Sequence[Conjunct], Sequence[Conjunct]]:
        if self._file_rows is not None:
            return self._file_rows.split_conjuncts(predicate)
        return predicate.partition_conjuncts if self._source.partition_columns else (), predicate.conjuncts

    def _make_partition_metadata(self, rows: Any) -> dict[str, Any]:
        """Return metadata from partition values, for files with these numbers of rows: see `make_constant_bounds`."""
        functions = self._functions
        found = {ROW_COUNT.name: rows}
        none = functions.lit(0).cast("bigint")
        typed = {name: f"partition.{quote_name(inner)}" for name, inner in self.layout.partition_fields.items()}
        texts = {name: f"{TEXTS}.{quote_name(inner)}" for name, inner in self.layout.text_fields.items()}
        for name, column in {**typed, **texts}.items():
            value = functions.col(column)
            path = (name,)
            found[metadata_name("null_count", path)] = functions.when(value.isNull(), rows).otherwise(none)
            if name in typed and pa.types.is_floating(self.layout.partitions.field(name).type):
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
            for name, inner in self.layout.fields(kind).items():
                found[name] = functions.col(f"{kind}.{quote_name(inner)}")
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

    @property
    def _has_all_partitions(self) -> bool:
        """Return whether the rows have the values of all partition columns: those of some types are left out."""
        return len(self.layout.partition_fields) == len(self.layout.partitions)

    def _list_rows(self, found: _FoundFiles, predicate: Predicate) -> FileListing | None:
        """Return the files as a listing; None if scans need more of these files than their rows have."""
        source = self._source
        if not isinstance(source, ListsFileRows) or not self._has_all_partitions:
            return None
        values = self._read_partitions(found.rows, predicate.partition_texts)
        listing = source.list_file_rows(add_partitions(found.rows, values))
        if listing is None:
            return None
        matched = np.asarray(found.rows[_MATCHED].combine_chunks())
        return replace(
            listing, levels=found.levels, matched=np.repeat(matched[:, None], len(predicate.conjuncts), axis=1)
        )

    def _make_listing(self, found: _FoundFiles, predicate: Predicate) -> FileListing:
        """Return the files as a listing for a scan."""
        listing = self._list_rows(found, predicate)
        if listing is not None:
            return listing
        whole = self._source.list_files(predicate, _PARTITION_LEVELS, with_rows=True)
        paths = self._describe_files(found.rows)["path"].combine_chunks()
        wanted = np.flatnonzero(np.asarray(pc.is_in(whole.files["path"], paths)))
        return replace(whole.take(wanted), levels=found.levels, matched=None)

    def _describe_files(self, found: pa.Table) -> pa.Table:
        """Return files in the layout of a plan."""
        files = found.select(["path", "size", "num_records", "modified"])
        files = files.set_column(3, "modified", files["modified"].cast(MODIFIED))
        if self._file_rows is not None:
            files = self._file_rows.resolve_paths(files)
        return describe_files(add_partitions(files, self._read_partitions(found)))

    def _read_partitions(self, found: pa.Table, texts: Sequence[Column] = ()) -> pa.Table:
        """Return the typed partition values of files, and some of their texts."""
        values: dict[str, Any] = {}
        for name, inner in self.layout.partition_fields.items():
            column = found["partition"].combine_chunks().field(inner)
            values[name] = column.cast(self.layout.partitions.field(name).type)
        for text in texts:
            values[text.name] = found[TEXTS].combine_chunks().field(self.layout.text_fields[text.name])
        return pa.table(values) if values else found.select([])


class _PruningSteps:
    """The conjuncts that prune files, one after the other, as Columns."""

    def __init__(self, handler: SparkExpressionHandler) -> None:
        self._handler = handler
        self._functions = handler.functions
        self.kept: Any = self._functions.lit(True)
        """TRUE for the files that all conjuncts so far keep."""
        self.measures: list[Any] = []
        """How many files each conjunct skips."""
        self._steps: list[tuple[str, str, str | None]] = []

    @property
    def unused(self) -> tuple[str, ...]:
        """The conjuncts without an equivalent in Spark."""
        return tuple(text for _, text, reason in self._steps if reason == NO_EQUIVALENT)

    def add(self, level: str, conjuncts: Sequence[Conjunct], known: Mapping[str, Any], if_unknown: str) -> None:
        """Add the conjuncts of a level, which has this metadata."""
        for conjunct in conjuncts:
            keeps = self._functions.lit(True)
            reason: str | None = conjunct.reason or if_unknown
            if not conjunct.metadata_names or not conjunct.metadata_names.isdisjoint(known):
                try:
                    keeps, reason = self._handler.compile_keep(conjunct.may_be_true, known), None
                except EvaluationError:
                    reason = NO_EQUIVALENT
            skipped = self._functions.when(self.kept & ~keeps, self._functions.lit(1))
            self.measures.append(self._functions.count(skipped).alias(f"skipped_{len(self._steps)}"))
            self._steps.append((level, conjunct.text, reason))
            self.kept = self.kept & keeps

    def make_outcomes(self, measured: Mapping[str, int]) -> dict[str, tuple[ConjunctOutcome, ...]]:
        """Return the outcomes of conjuncts by level."""
        found: dict[str, tuple[ConjunctOutcome, ...]] = {"partitions": (), "files": ()}
        for number, (level, text, reason) in enumerate(self._steps):
            skipped = measured[f"skipped_{number}"]
            found[level] += (ConjunctOutcome(text, skipped, reason or (None if skipped else OVERLAPS)),)
        return found

    def compile_matches(self, conjuncts: Sequence[Conjunct], known: Sequence[Mapping[str, Any]]) -> Any:
        """Return a Column that is TRUE for the files that one of these metadata proves to match each conjunct."""
        f = self._functions
        matched = f.lit(True)
        for conjunct in conjuncts:
            proven = f.lit(False)
            for each in known:
                try:
                    compiled = self._handler.compile(conjunct.fully_matches, each)
                except EvaluationError:
                    continue
                value = f.coalesce(compiled.value.cast("boolean"), f.lit(False))
                if compiled.failed is not None:
                    value = value & ~f.coalesce(compiled.failed, f.lit(True))
                proven = proven | value
            matched = matched & proven
        return matched


def _measure(rows: pa.Table) -> Sizes:
    return Sizes.of(rows["size"], rows["logical_rows"])


def _make_report(
    level: str, before: Sizes, after: Sizes, outcomes: tuple[ConjunctOutcome, ...], note: str | None
) -> LevelReport:
    sizes = (before.files, after.files, before.bytes, after.bytes)
    return LevelReport(level, *sizes, outcomes, note, before.rows, after.rows)


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
        return tuple(resolve(Name(split_name(name)), source.schema, source.name, "columns") for name in columns)
    own = [field for field in source.schema if field.name not in source.partition_columns]
    found = [resolve(Name(path, exact=True), source.schema, source.name) for path in list_flat_paths(own)]
    return tuple(column for column in found if column.type is not None and types.is_ordered(column.type))


# --- Views ------------------------------------------------------------------------------------------------------------


def _join_users(spark: Any, source: TableSource, layout: FileLayout) -> _CachedRows:
    """Return the cached rows of a table, new ones if there are none, with one more user."""
    with _LOCK:
        of_session = _CACHED.setdefault(spark, [])
        found = next((each for each in of_session if each.layout == layout and each.is_of(source)), None)
        if found is None:
            found = _CachedRows(source, layout)
            of_session.append(found)
        found.users += 1
        return found


def _create_view(spark: Any, frame: Any, source: TableSource) -> str:
    """Create a temporary view of a DataFrame, and return its name."""
    from pyspark.errors import AnalysisException

    while True:
        name = _find_free_name(spark, source)
        try:
            frame.createTempView(quote_name(name))
        except AnalysisException as error:
            # Another thread used the name in the meantime: its view is not replaced.
            if error.getCondition() != "TEMP_TABLE_OR_VIEW_ALREADY_EXISTS":
                raise
        else:
            return name


def _name_cached_rows(spark: Any, name: str) -> None:
    """Give the cached rows of a view its name, as Delta on Spark does, before they are read.

    The storage page of Spark's UI shows it. Spark itself would name them `In-memory table <name>`, and does so on
    Connect, which has no access to RDDs.
    """
    if is_connect(spark):
        return
    manager = spark._jsparkSession.sharedState().cacheManager()
    found = manager.lookupCachedData(spark.table(quote_name(name))._jdf)
    if found.isDefined():
        found.get().cachedRepresentation().cacheBuilder().cachedColumnBuffers().setName(name)


def _find_free_name(spark: Any, source: TableSource) -> str:
    # Spark cannot format the error for a name with a back-tick.
    wanted = name = name_state(source).replace("`", "'")
    number = 1
    while spark.catalog.tableExists(quote_name(name)):
        number += 1
        name = f"{wanted} ({number})"
    return name
