"""Tables as people hold them: opened by location, described, scanned."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any, NoReturn

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import (
    InvalidArgument,
    UnsupportedFeature,
    add_article,
    make_argument_error,
    suggest_arguments,
    suggest_method_arguments,
)
from tamis.expr.builder import split_name
from tamis.expr.names import resolve
from tamis.expr.nodes import FALSE, NULL, TRUE, Name
from tamis.formats.open_source import check_timestamp, open_source
from tamis.formats.source import (
    LEVELS,
    HasPartitionFields,
    HasRefs,
    HasStatisticsColumns,
    TableSource,
    Versioned,
)
from tamis.index.finding import find_index
from tamis.parquet.footer.leaves import Int96, list_flat_paths
from tamis.scan.engine import spark_scans
from tamis.scan.planning.plan import describe_files
from tamis.scan.planning.scan_planner import check_limit
from tamis.scan.scan import Scan, ScanRequest, get_planner, make_scan
from tamis.skipping.handler import ExpressionHandler
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import Predicate
from tamis.tuning import Tuning, check_tuning
from tamis.types import is_ordered, type_name

if TYPE_CHECKING:
    from tamis.scan.verify import VerifyResult

NUM_RECORDS = "num_records"

_STATISTICS = {"min": "lower", "max": "upper", "null_count": "null_count", NUM_RECORDS: ROW_COUNT.name}
"""The kinds of metadata in `tamis.skipping.metadata`, by the names of statistics in Delta."""


@dataclass(frozen=True, slots=True)
class TableDescription:
    """A summary of a table, from its metadata."""

    name: str
    format: str
    uri: str
    version: int | None
    schema: pa.Schema
    partition_columns: tuple[str, ...]
    files: int | None
    """None if a policy hides it."""
    bytes: int | None
    """The size of all files; None if a policy hides it."""
    rows: int | None
    """None if the metadata has no row count, or if a policy hides it."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain values; `columns` has the types by name."""
        return {
            "name": self.name,
            "format": self.format,
            "uri": self.uri,
            "version": self.version,
            "columns": {field.name: type_name(field.type) for field in self.schema},
            "partition_columns": list(self.partition_columns),
            "files": self.files,
            "bytes": self.bytes,
            "rows": self.rows,
        }

    def __str__(self) -> str:
        values = self.to_dict()
        columns = values.pop("columns")
        values["partition_columns"] = ", ".join(self.partition_columns) or None
        lines = [f"{name.replace('_', ' '):<18} {value}" for name, value in values.items() if value is not None]
        return "\n".join([*lines, "columns", *(f"  {name:<16} {kind}" for name, kind in columns.items())])


_ELSEWHERE = {
    **{name: f"table.scan().{name}()" for name in ("to_arrow", "to_pandas", "to_polars", "to_batches", "to_reader")},
    "to_duckdb": "table.scan().to_duckdb(connection)",
    "to_spark": "table.scan().to_spark(spark)",
    **dict.fromkeys(("filter", "where"), "table.scan('id < 5')"),
    "select": "table.scan(columns=['id'])",
    "columns": "table.schema.names",
    "sql": "tamis.connect().register('t', table).sql('SELECT … FROM t')",
    "limit": "table.scan(limit=5)",
    "shape": "table.count() and table.schema.names",
}
"""What to write instead of attributes that tables of other libraries have."""


@suggest_method_arguments("Table")
class Table:
    """A table at one version. `tamis.open` opens it."""

    def __init__(self, source: TableSource) -> None:
        self._source = source

    def __getattr__(self, name: str) -> NoReturn:
        hint = f": write {_ELSEWHERE[name]}" if name in _ELSEWHERE else ""
        raise AttributeError(f"'Table' object has no attribute {name!r}{hint}", name=name, obj=self)

    @property
    def name(self) -> str:
        """The name of the table: that in its catalog, or the last part of its location."""
        return self._source.name

    @property
    def format(self) -> str:
        """`delta`, `iceberg`, `hive` for a folder of Parquet files, `parquet` for a single file."""
        return self._source.format

    @property
    def uri(self) -> str:
        """The location of the table."""
        return self._source.storage.uri

    @property
    def schema(self) -> pa.Schema:
        """The columns of the table."""
        return self._source.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """What the table is partitioned by, in order; `files()` has a column for each.

        For an Iceberg table these are the fields of its current partition spec: columns for identity partitions, else
        partition fields such as `ts_day` or `id_bucket`.
        """
        source = self._source
        return source.partition_fields if isinstance(source, HasPartitionFields) else source.partition_columns

    @property
    def version(self) -> int | None:
        """The version that was opened; of an Iceberg table the snapshot id. None for formats without versions."""
        return self._source.version

    @property
    def num_files(self) -> int:
        """The number of files, from metadata."""
        return len(self._file_sizes)

    @property
    def size_in_bytes(self) -> int:
        """The size of all files, from metadata. Delete files do not count."""
        return int(pc.sum(self._file_sizes).as_py() or 0)

    @cached_property
    def _file_sizes(self) -> pa.ChunkedArray:
        return self._source.list_files(Predicate(TRUE), LEVELS).files["size"]

    @property
    def column_mapping_mode(self) -> str | None:
        """How files name columns that may be renamed: `name` by a physical name, `id` by a field id; None: as the table
        does."""
        mapping = self._source.field_names
        return None if mapping is None else "id" if mapping.by_id else "name"

    def stats_column(self, kind: str, column: str | None = None) -> str | None:
        """Return the name of the metadata column with a statistic of files, such as `lower:a.b`.

        `kind` is `min`, `max` or `null_count` of a column, or `num_records`, which has no column. None means that the
        table has no such statistic: the type has no order, the column holds others, its values are those of partitions,
        or writers skip it, as those of Delta do after the first 32 columns.
        """
        if kind not in _STATISTICS:
            raise InvalidArgument(f"no statistic {kind!r}. Statistics: {', '.join(_STATISTICS)}")
        if (column is None) != (kind == NUM_RECORDS):
            wanted = "no column" if kind == NUM_RECORDS else "the name of a column"
            raise InvalidArgument(f"stats_column({kind!r}, …) takes {wanted}, found {column!r}")
        if column is None:
            return ROW_COUNT.name
        if not isinstance(column, str):
            raise make_argument_error("column", "the name of a column, as in 'a.b'", column)
        source, name = self._source, _STATISTICS[kind]
        found = resolve(Name(split_name(column)), source.schema, source.name, "stats_column")
        is_flat = found.path in list_flat_paths(source.schema) and found.path[0] not in source.partition_columns
        has_values = found.type is not None and (name == "null_count" or is_ordered(found.type))
        may_lack = isinstance(source, HasStatisticsColumns) and not source.has_statistics(name, found)
        return metadata_name(name, found.path) if is_flat and has_values and not may_lack else None

    def history(self, limit: int | None = None) -> pa.Table:
        """Return the commits of a Delta table, or the snapshots of an Iceberg table, up to this version, newest first.

        At most `limit` entries are returned.
        """
        return self._get_versioned_source("history").history(check_limit(limit))

    def refresh(self) -> Table:
        """Return the table at its newest version; a folder or a file is read as it is now. This object does not change:
        files that were added to a folder since are not read, and a file that was replaced or removed is an error.
        """
        return Table(self._source.refresh())

    def at(self, version: int | None = None, timestamp: datetime | str | None = None, ref: str | None = None) -> Table:
        """Return the table at another version.

        `version` is the number of a Delta version or the id of an Iceberg snapshot, as `history()` lists them;
        `timestamp` chooses the version that was current then; `ref` is a branch or a tag of an Iceberg table.
        """
        given = {"version": version, "timestamp": timestamp, "ref": ref}
        found = [f"{name}=" for name, value in given.items() if value is not None]
        if len(found) != 1:
            raise InvalidArgument(
                f"at() takes one of {', '.join(f'{name}=' for name in given)}, found {' and '.join(found) or 'none'}"
            )
        source = self._get_versioned_source("at")
        if ref is not None:
            if not isinstance(source, HasRefs):
                raise UnsupportedFeature(
                    f"ref= was given, and {add_article(self.format.capitalize())} table has no branches and tags: "
                    "choose a version with version= or timestamp="
                )
            return Table(source.at_ref(ref))
        if version is not None and (not isinstance(version, int) or isinstance(version, bool)):
            raise make_argument_error("version", "a whole number", version)
        return Table(source.at(None if version is None else str(version), check_timestamp(timestamp)))

    def _get_versioned_source(self, what: str) -> Versioned:
        if not isinstance(self._source, Versioned):
            raise UnsupportedFeature(
                f"{add_article(self.format)} table has no versions, so there is no {what}(): refresh() returns it as "
                "it is now"
            )
        return self._source

    def count(self, where: object = None) -> int:
        """Return how many rows the table has, or for how many `where` is TRUE, from metadata where that is enough."""
        return self.scan(where).count()

    def head(self, count: int = 5) -> Scan:
        """Return a scan of at most `count` rows, as `scan(limit=count)` does."""
        return self.scan(limit=count)

    def describe(self) -> TableDescription:
        """Return a summary from metadata: columns, partitions, files, bytes and rows. No file is opened."""
        files = self.files()
        known = files["num_records"].null_count == 0
        return TableDescription(
            self.name,
            self.format,
            self.uri,
            self.version,
            self.schema,
            self.partition_columns,
            files.num_rows,
            int(pc.sum(files["size"]).as_py() or 0),
            int(pc.sum(files["num_records"]).as_py() or 0) if known else None,
        )

    def files(self, where: object = None, *, levels: Collection[str] = LEVELS) -> pa.Table:
        """Return all files of the table, or those that may hold a row for which `where` is TRUE. No file is opened.

        Columns: `path`, `size`, `num_records` and `modified` (null where unknown), and one for each of
        `partition_columns`. Delta records in its log when a file was modified, folders list it, Iceberg does not know.
        """
        predicate = get_planner(self.scan(where, levels=levels)).predicate
        listing = self._source.list_files(predicate, levels, with_rows=True)
        has_own = "num_records" in listing.files.column_names
        found = describe_files(listing.files, None if has_own else listing.rows, source=self._source)
        # A constant filter has no column that a level could prune by.
        return found.slice(0, 0) if predicate.expr in (FALSE, NULL) else found

    def scan(
        self,
        where: object = None,
        columns: Sequence[str] | None = None,
        limit: int | None = None,
        *,
        levels: Collection[str] = LEVELS,
        tuning: Tuning | None = None,
    ) -> Scan:
        """Return a lazy scan of the rows for which `where` is TRUE.

        `where` is SQL text, an expression made with `tamis.col`, a `PartitionFilter`, an expression of pyarrow or
        pyiceberg, or a PySpark Column. `columns` are names of columns, or of fields inside structs (`address.city`);
        None returns all. `levels` are the levels of pruning to use, and `tuning` has the thresholds of planning and
        reading, by default those of the table; the rows are the same with any of them.
        """
        source = self._source if tuning is None else self._source.with_tuning(check_tuning(tuning))
        return make_scan(source, ScanRequest.parse(where, columns, limit, levels))

    def verify(self, where: object = None, columns: Sequence[str] | None = None) -> list[VerifyResult]:
        """Scan with every combination of levels, and return the result of each run; the first is without pruning.

        A run that returned other rows than the first has `same=False`. Nothing is cached but footers, so the rows are
        read as many times as there are combinations, 64 for a Hive-style table.
        """
        # It imports DuckDB, which nothing else of a table needs.
        from tamis.scan.verify import verify

        return verify(self, where, columns)

    def files_dataframe(self, spark: Any, columns: Sequence[str] | None = None) -> Any:
        """Return the files of the table, with partition values and statistics, as a cached Spark DataFrame.

        Executors read the statistics of the named columns, or of all. `files_for_scan` of the result plans on Spark;
        `unpersist` (or the end of a `with`) frees the memory.
        """
        return spark_scans().make_files_dataframe(spark, self._source, columns)

    def __reduce__(self) -> NoReturn:
        raise TypeError("a table cannot be pickled: send its URI, and its version, and open it there with tamis.open")

    def __repr__(self) -> str:
        version = "" if self.version is None else f", version {self.version}"
        return f"<tamis.Table {self.name!r} ({self.format}{version}) at {self.uri}>"


def get_source(table: Table) -> TableSource:
    """Return the format's implementation of a table, for engines and sessions."""
    return table._source


@suggest_arguments("tamis.open")
def open_table(
    uri: str | os.PathLike[str],
    format: str | None = None,
    version: int | None = None,
    timestamp: object = None,
    snapshot_id: int | None = None,
    ref: str | None = None,
    storage_options: Mapping[str, Any] | None = None,
    catalog: object = None,
    *,
    changes: tuple[int, int | None] | None = None,
    partitioning: Mapping[str, str | pa.DataType] | None = None,
    merge_schema: bool = False,
    allow_outside: bool = False,
    relocate: bool = True,
    index: str | os.PathLike[str] | bool | None = None,
    int96: Int96 = "instant",
    tuning: Tuning | None = None,
    handler: ExpressionHandler | None = None,
) -> Table:
    """Open a table: Delta, Iceberg, a folder of Parquet files, Hive-style partition directories, or a single file.

    `version` or `timestamp` choose a version of a Delta table; `snapshot_id` (or `version`), `ref` (a branch or a tag)
    or `timestamp` choose a snapshot of an Iceberg table. An Iceberg table is opened by its folder, by a metadata file,
    or by its name in a `catalog`: one of pyiceberg's, or the properties or the name of one. If an Iceberg table was
    moved, its files are looked up below the new location; with `relocate=False` it is an error. `allow_outside` allows
    files outside of the table's folder that its log, its metadata or a symbolic link refers to.

    `changes` is a range of versions of a Delta table, as in `(3, 7)`, or `(3, None)` up to the newest. The table then
    has the rows that these versions inserted, updated and deleted: its change data feed, with the columns
    `_change_type`, `_commit_version` and `_commit_timestamp`.

    `partitioning` declares types of Hive partition columns, as in `{"day": "date"}`; others are inferred as Spark does.
    The schema of a folder is that of its first file; `merge_schema` reads the footers of all files instead, and has
    every column of any file, in the widest of its types. Timestamps of 96 bits (INT96) are instants in UTC, as Spark
    writes and reads them; `int96="local"` reads them as local timestamps without a time zone.

    `index` is the location of a statistics index that `tamis.index.build(…, location=…)` made. An index beside the
    table is found automatically; `False` ignores it. Iceberg tables have no index.

    `tuning` has the thresholds of planning and reading; only `inference_listings` may change a result. `handler`
    evaluates the filter over metadata in this process: a `tamis.expressions.ExpressionHandler`, by default Arrow's.
    Executors use Arrow's.
    """
    return Table(
        open_source(
            uri,
            format,
            version,
            timestamp,
            snapshot_id,
            ref,
            storage_options,
            catalog,
            changes=changes,
            partitioning=partitioning,
            merge_schema=merge_schema,
            allow_outside=allow_outside,
            relocate=relocate,
            index=index,
            int96=int96,
            tuning=tuning,
            handler=handler,
            find_index=find_index,
        )
    )
