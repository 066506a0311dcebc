"""A Hive-style table: directories `name=value` with Parquet files, a flat directory of them, or a single file."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.errors import PartitionLayoutError, UnsupportedFeature, format_count
from tamis.expr.nodes import find_columns
from tamis.formats.constants import add_partitions, list_constants, read_partitions
from tamis.formats.file_funnel import (
    LOGICAL_ROWS,
    FileMetrics,
    PrunedFiles,
    Sizes,
    limit_files,
    mark_data_conjuncts,
)
from tamis.formats.hive.layout import (
    FILE_COLUMNS,
    HiveLayout,
    PartitionDirectories,
    list_data_files,
    make_no_files_error,
)
from tamis.formats.hive.partition_types import add_partition_columns
from tamis.formats.hive.tree import DirectoryTree
from tamis.formats.jobs import SMALL_READ, Arguments, Item, Planning, read_table, storage_to_arguments
from tamis.formats.listing_parts import ListingJob
from tamis.formats.source import FileIndex, FileListing, FilteredFiles, IndexSupport
from tamis.io.listing import FileEntry
from tamis.io.storage import OpenFiles, Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.footer import load_footer
from tamis.parquet.footer.leaves import Int96
from tamis.skipping.metadata import ROW_COUNT, make_partition_bounds
from tamis.skipping.metrics import SWITCHED_OFF, LevelReport, merge_outcomes
from tamis.skipping.predicate import Predicate, predicate_from_json, predicate_to_json
from tamis.skipping.prune import NO_STATISTICS, NO_UNITS_LEFT, ConjunctOutcome, prune
from tamis.skipping.rewrite import Conjunct
from tamis.tuning import Tuning
from tamis.types import replace_view_types, type_name


@dataclass(frozen=True)
class HiveTable:
    """A table whose only metadata are its directories. Each directory is listed once and then cached."""

    storage: Storage
    layout: HiveLayout
    schema: pa.Schema
    version: int | None = None
    planning: Planning | None = None
    """The engine that lists directories and reads footers; None: this process."""
    index: FileIndex | None = None
    has_all_columns: bool = True
    """Whether the schema is that of all files, or only of the first one."""
    reopen: Callable[[], HiveTable] | None = field(default=None, compare=False, repr=False)

    @staticmethod
    def open(
        storage: Storage,
        partitioning: Mapping[str, str | pa.DataType] | None = None,
        *,
        merge_schema: bool = False,
        int96: Int96 = "instant",
        planning: Planning | None = None,
        find_index: Callable[[], FileIndex | None] | None = None,
    ) -> HiveTable:
        layout = HiveLayout.discover(storage, partitioning, planning)
        sample = layout.sample_file
        if sample is None:
            raise make_no_files_error(storage)
        index = None if find_index is None or layout.is_single_file else find_index()
        # An index has the schema without physical types, so it does not show which columns are INT96.
        data_schema = None if index is None or int96 != "instant" else index.find_schema(sample)
        if data_schema is None:
            footer, _ = load_footer(storage, sample.path, sample.size, sample.modified_ns)
            data_schema = footer.schema.get_arrow_schema(int96)
        if merge_schema:
            others = _read_schemas(storage, layout, int96)
            data_schema = merge_schemas([(data_schema, storage.format_path(sample.path)), *others])
        layout = layout.adopt_stored_types(data_schema)
        schema = add_partition_columns(data_schema, layout.partition_schema)
        repeated = [name for name, count in Counter(schema.names).items() if count > 1]
        if repeated:
            raise UnsupportedFeature(
                f"'{storage.format_path(sample.path)}' has several columns named {repeated[0]!r}: rename all but one"
            )

        def reopen() -> HiveTable:
            # Files that are open may have been replaced.
            return HiveTable.open(
                replace(storage, open_files=OpenFiles()),
                partitioning,
                merge_schema=merge_schema,
                int96=int96,
                planning=planning,
                find_index=find_index,
            )

        has_all_columns = merge_schema or layout.is_single_file
        return HiveTable(
            storage,
            layout,
            schema,
            planning=planning,
            index=index,
            has_all_columns=has_all_columns,
            reopen=reopen,
        )

    def with_tuning(self, tuning: Tuning) -> HiveTable:
        storage = self.storage.with_tuning(tuning)
        return replace(self, storage=storage, layout=self.layout.with_storage(storage))

    def refresh(self) -> HiveTable:
        """Open the table again, with its current directories and files."""
        assert self.reopen is not None, "not made with HiveTable.open"
        return self.reopen()

    @property
    def name(self) -> str:
        return self.storage.root.rstrip("/").rsplit("/", 1)[-1] or self.storage.uri

    @property
    def format(self) -> str:
        return "parquet" if self.layout.is_single_file else "hive"

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return tuple(self.layout.partition_schema.names)

    @property
    def partition_texts(self) -> tuple[str, ...]:
        return self.partition_columns

    @property
    def sample_file(self) -> FileEntry | None:
        return self.layout.sample_file

    @property
    def index_support(self) -> IndexSupport:
        refusal = "is a single file, whose footer has all statistics: index a folder"
        return IndexSupport(refusal if self.layout.is_single_file else None)

    @property
    def field_names(self) -> None:
        """None: files have the table's column names."""
        return None

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        return {}

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        """Prune directories before they are listed, then list the files of those that remain."""
        if self.planning is not None and self.index is None:
            cached = self.planning.find_listing(self, predicate, levels, limit)
            if cached is not None:
                return cached
        pruner = DirectoryPruner(predicate, self.partition_columns, enabled="partitions" in levels)
        directories = self._list_directories(pruner, predicate)
        found, note = self._prune_files(directories, pruner, predicate, limit)
        reports = [pruner.report(directories, self.layout.partition_types.note)] if self.partition_columns else []
        is_on = "files" in levels
        outcomes = _make_file_outcomes(predicate, read_partitions(found.files)) if is_on else ()
        metrics = replace(found.metrics, of_statistics=outcomes + found.metrics.of_statistics)
        reports.append(metrics.describe_files([None if is_on else SWITCHED_OFF, self.layout.note, note]))
        files, matched = found.files.drop_columns([LOGICAL_ROWS]), found.matched
        listing = FileListing(files, tuple(reports), matched=matched, unreadable=directories.unreadable)
        return (
            listing if self.index is None else self.index.prune_listing(listing, predicate, levels, with_rows=with_rows)
        )

    def filter_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None
    ) -> Iterator[FilteredFiles]:
        listed = self.list_files(predicate, levels, limit).files["path"].combine_chunks()
        directories, step = self.layout.list_directories(), self.storage.tuning.directories_per_call
        for start in range(0, directories.num_directories, step):
            files = self.layout.list_files(directories.slice(start, step))
            # The path of a file in a folder is its identity.
            yield FilteredFiles(files, np.asarray(pc.is_in(files["path"], value_set=listed)))

    def _list_directories(self, pruner: DirectoryPruner, predicate: Predicate) -> PartitionDirectories:
        directories = self.layout.list_directories(pruner.keep, predicate.partition_texts)
        for column in predicate.mentioned:
            if column.path[0] in directories.unreadable:
                raise directories.unreadable[column.path[0]]
        return directories

    def plan_listing(self, predicate: Predicate, levels: Collection[str], min_files: int) -> ListingJob | None:
        """Return the job that lists the files of partitions; None if these are few by a sample of the directories."""
        if self.index is not None or not self.partition_columns:
            return None
        enabled = "partitions" in levels
        pruner = DirectoryPruner(predicate, self.partition_columns, enabled=enabled)
        directories = self._list_directories(pruner, predicate)
        count, step = directories.num_directories, self.storage.tuning.directories_per_call
        sampled = [directories.slice(start, 1) for start in range(0, count, -(-count // SAMPLED_DIRECTORIES) or 1)]
        files = sum(self.layout.list_files(each).num_rows for each in sampled)
        if not count or files * count <= min_files * len(sampled):
            return None
        arguments = {
            **storage_to_arguments(self.storage),
            "predicate": predicate_to_json(predicate),
            "partition_columns": list(self.partition_columns),
            "enabled": enabled,
            "unreadable": {name: str(error) for name, error in directories.unreadable.items()},
        }
        items = []
        for start in range(0, count, step):
            some = directories.slice(start, step)
            table = add_partitions(pa.table({"path": some.paths}), some.values)
            items.append(Item.from_table(table, some.num_directories * SMALL_READ))
        return ListingJob(LIST_FUNCTION, arguments, items, f"list {format_count(count, 'partition')} of {self.name}")

    def describe_deletes(self) -> None:
        """Return None: no rows are deleted."""

    def _prune_files(
        self, directories: PartitionDirectories, pruner: DirectoryPruner, predicate: Predicate, limit: int | None
    ) -> tuple[PrunedFiles, str | None]:
        """Return the files of directories, and a note; if partition values prove the filter, only those for a limit."""
        total, conjuncts = directories.num_directories, predicate.conjuncts
        may_stop = bool(limit) and total > 1 and self.planning is None and self.index is None
        if limit is None or not may_stop or not pruner.find_matches(directories.values, conjuncts, total).all():
            files, listed, limit = _add_row_counts(self.layout.list_files(directories), ()), total, None
        else:
            files, listed = self._list_files_for_limit(directories, limit)
        sizes = Sizes.of(files["size"])
        matched = pruner.find_matches(read_partitions(files), conjuncts, len(files))
        note = f"limit {limit}: {total - listed:,} of {total:,} partitions were not listed" if listed < total else None
        return limit_files(PrunedFiles(files, matched, FileMetrics(sizes, sizes, sizes)), limit), note

    def _list_files_for_limit(self, directories: PartitionDirectories, limit: int) -> tuple[pa.Table, int]:
        """Return the files of the first directories, in which footers count `limit` rows, and how many these are.

        If `Tuning.max_footers_for_limit` footers are not enough, the files of all directories are returned.
        """
        most, found = self.storage.tuning.max_footers_for_limit, list[pa.Table]()
        rows = footers = listed = 0
        while listed < directories.num_directories and rows < limit:
            # Twice as many each time, so that a large limit takes few rounds; without footers, all that are left.
            some = directories.slice(listed, max(1, listed) if footers < most else None)
            files = self.layout.list_files(some)
            counts = self._count_rows(files, limit - rows, most - footers)
            found.append(_add_row_counts(files, counts))
            rows, footers, listed = rows + sum(counts), footers + len(counts), listed + some.num_directories
        files = pa.concat_tables(found)
        return files.take(pc.sort_indices(files["path"])), listed

    def _count_rows(self, files: pa.Table, limit: int, most: int) -> list[int]:
        """Return the row counts of the first files, until `limit` rows are found or `most` footers were read."""

        def count(file: dict[str, Any]) -> int:
            footer, _ = load_footer(self.storage, file["path"], file["size"], file["modified_ns"])
            return int(footer.metadata.num_rows)

        wanted = files.select(list(FILE_COLUMNS)).slice(0, most).to_pylist()
        counts: list[int] = []
        while len(counts) < len(wanted) and sum(counts) < limit:
            some = wanted[len(counts) : 2 * len(counts) + 1]
            counts += run_in_threads(count, some, self.storage.threads)
        return counts

    needs_keys: ClassVar[bool] = False

    def list_file_rows(self, files: pa.Table) -> FileListing:
        """Return files that were listed before as a listing without reports."""
        names = [*FILE_COLUMNS, *list_constants(files.column_names)]
        return FileListing(files.select(names), (), files[LOGICAL_ROWS].combine_chunks())


LIST_FUNCTION = "tamis.formats.hive.table:list_partitions"

SAMPLED_DIRECTORIES = 16
"""About so many directories are listed to estimate the number of files."""


def list_partitions(arguments: Arguments, item: bytes) -> Iterator[FileListing]:
    """Yield the files of some leaf directories."""
    given = read_table(item)
    paths, values = given["path"].combine_chunks(), read_partitions(given)
    files = list_data_files(DirectoryTree(arguments.storage), paths, values, descend=True)
    predicate = arguments.memoise(_parse_predicate)
    pruner = DirectoryPruner(predicate, arguments["partition_columns"], enabled=arguments["enabled"])
    matched = pruner.find_matches(read_partitions(files), predicate.conjuncts, len(files))
    unreadable = {name: PartitionLayoutError(text) for name, text in arguments["unreadable"].items()}
    yield FileListing(files, (), matched=matched, unreadable=unreadable)


def _parse_predicate(arguments: Arguments) -> Predicate:
    return predicate_from_json(arguments["predicate"])


def _add_row_counts(files: pa.Table, counts: Sequence[int]) -> pa.Table:
    """Return files with the row counts of the first ones; those of the others are unknown."""
    unknown = pa.nulls(len(files) - len(counts), types.LONG)
    return files.append_column(LOGICAL_ROWS, pa.concat_arrays([pa.array(counts, types.LONG), unknown]))


def _read_schemas(storage: Storage, layout: HiveLayout, int96: Int96) -> list[tuple[pa.Schema, str]]:
    """Return the distinct schemas of all files, each with the location of the first file that has it."""

    def read(file: dict[str, Any]) -> pa.Schema:
        footer, _ = load_footer(storage, file["path"], file["size"], file["modified_ns"])
        return footer.schema.get_arrow_schema(int96).remove_metadata()

    files = layout.list_files(layout.list_directories()).select(list(FILE_COLUMNS)).to_pylist()
    distinct: dict[pa.Schema, str] = {}
    for schema, file in zip(run_in_threads(read, files, storage.threads), files, strict=True):
        distinct.setdefault(schema, storage.format_path(file["path"]))
    return list(distinct.items())


def _make_file_outcomes(predicate: Predicate, partitions: pa.Table) -> tuple[ConjunctOutcome, ...]:
    """Return outcomes without skipped files: a listing has partition values only, which have pruned directories."""
    known = set(partitions.column_names)

    def explain_unused(conjunct: Conjunct) -> str | None:
        if not partitions.num_rows:
            return NO_UNITS_LEFT
        names = {column.path[0] for column in find_columns(conjunct.predicate)}
        return None if names <= known else NO_STATISTICS

    return tuple(ConjunctOutcome(each.text, 0, explain_unused(each)) for each in predicate.conjuncts)


class DirectoryPruner:
    """Decides level by level which directories to list, and records the outcome of each conjunct."""

    def __init__(self, predicate: Predicate, partition_columns: Collection[str], *, enabled: bool = True) -> None:
        self._conjuncts = predicate.partition_conjuncts
        self._handler = predicate.handler
        self._columns = (*partition_columns, *(column.name for column in predicate.partition_texts))
        self._enabled = enabled
        self._outcomes: tuple[ConjunctOutcome, ...] = ()

    def keep(self, values: pa.Table) -> pa.BooleanArray:
        """Return a mask of the directories to keep, by the partition values known at their level."""
        if not self._enabled or not values.num_rows:
            return pa.repeat(pa.scalar(True), values.num_rows)
        pruned = prune(self._make_units(values), self._conjuncts, handler=self._handler, with_matches=False)
        self._outcomes = merge_outcomes(self._outcomes, pruned.outcomes)
        return pruned.selection

    def find_matches(self, partitions: pa.Table, conjuncts: Sequence[Conjunct], files: int) -> npt.NDArray[np.bool_]:
        """Return for each file and conjunct whether the partition values prove it for every row."""
        matched = np.zeros((files, len(conjuncts)), bool)
        if self._enabled and conjuncts and partitions.num_columns:
            pruned = prune(self._make_units(partitions), conjuncts, handler=self._handler)
            matched[np.asarray(pruned.selection)] = pruned.matched
        return matched

    def _make_units(self, values: pa.Table) -> pa.RecordBatch:
        one_row = pa.repeat(pa.scalar(1, types.LONG), values.num_rows)
        return pa.record_batch({ROW_COUNT.name: one_row} | make_partition_bounds(values, self._columns, one_row))

    def report(self, directories: PartitionDirectories, note: str | None) -> LevelReport:
        """Return the report of the partition level. A skipped directory counts once: what is below it is not listed."""
        skipped = sum(level.total - level.kept for level in directories.levels)
        kept = directories.num_directories
        by_predicate = mark_data_conjuncts(self._outcomes, self._conjuncts, {(name,) for name in self._columns})
        notes = [each for each in (None if self._enabled else SWITCHED_OFF, note) if each]
        return LevelReport("partitions", kept + skipped, kept, by_predicate=by_predicate, note="; ".join(notes) or None)


# --- Schema merging: one schema with every column that some file has, in a type that holds the values of all files
#
# Types are widened as by Arrow's permissive promotion: int to bigint, int to double, decimals to more digits. A column
# that is a string in one file and a number in another has no common type, and is an error that names both files.


def merge_schemas(schemas: Iterable[tuple[pa.Schema, str]]) -> pa.Schema:
    """Return the columns of all schemas in order of appearance. Each schema comes with the location of a file.

    Names are matched without regard to case; the first spelling is used.
    """
    fields: dict[str, pa.Field] = {}
    locations: dict[str, str] = {}
    for schema, location in schemas:
        folded = [name.lower() for name in schema.names]
        repeated = [name for name, key in zip(schema.names, folded, strict=True) if folded.count(key) > 1]
        if repeated:
            raise UnsupportedFeature(
                f"'{location}' has columns {', '.join(map(repr, repeated))} that differ only by case, and names are "
                "matched without regard to it: open the table without merge_schema, or rename one"
            )
        for found in schema:
            key = found.name.lower()
            # Nullable: the column is NULL for a file that lacks it.
            plain = pa.field(found.name, replace_view_types(found.type))
            if key not in fields:
                fields[key], locations[key] = plain, location
            elif plain.type != fields[key].type:
                fields[key] = _merge_fields(fields[key], plain, locations[key], location)
    return pa.schema(fields.values())


def _merge_fields(known: pa.Field, found: pa.Field, known_location: str, location: str) -> pa.Field:
    try:
        merged = pa.unify_schemas(
            [pa.schema([known]), pa.schema([found.with_name(known.name)])], promote_options="permissive"
        )
    except (pa.ArrowTypeError, pa.ArrowInvalid) as error:
        raise UnsupportedFeature(
            f"column {known.name!r} is {type_name(known.type)} in '{known_location}' and {type_name(found.type)} in "
            f"'{location}': no type holds both, so rewrite one of the files"
        ) from error
    return merged.field(0)
