"""The task reader: reads the needed column chunks or pages of tasks, conforms them to the table, filters, projects.

Each step has a fixed cost, which many small row groups would pay many times. So tasks are read in groups: a file is
opened once for all its row groups, what depends on a file's schema is computed once, and the rows of small row groups
are coalesced before they are filtered.

The last part, `PagedRowReader`, reads selected rows through pages, the pages of the filter's columns first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, auto
from functools import lru_cache
from itertools import chain, groupby

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.errors import CorruptFile, UnsupportedFeature, to_one_line
from tamis.formats.files.data_files import DataFile
from tamis.formats.source import PARQUET
from tamis.io.ranges import PrefetchedFile, RangedFile, make_prefetched_file, read_ranges
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer, open_reader
from tamis.parquet.footer.leaves import FileSchema, list_flat_paths
from tamis.parquet.footer.matching import find_path
from tamis.parquet.footer.statistics import find_chunk_ranges
from tamis.parquet.indexes.page_units import read_page_indexes
from tamis.parquet.reading.conform import Constants, conform_batch, describe_shredded_variant
from tamis.parquet.reading.page_reader import LeafPages, can_assemble, fetch_pages, read_rows
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.parquet.reading.row_group_reader import decode_row_group, make_dummy_batches
from tamis.parquet.selection.row_selection import RowSelection
from tamis.scan.planning.projection import Path, narrow_schema
from tamis.scan.planning.tasks import ScanTask
from tamis.scan.reading.pipeline import coalesce_batches
from tamis.scan.reading.residual import Residual
from tamis.skipping.predicate import Predicate
from tamis.tuning import Tuning
from tamis.types import replace_view_types


@dataclass(frozen=True, slots=True)
class _Fetched:
    """The fetched bytes of row groups of one file."""

    tasks: list[ScanTask]
    reading: ReadSchema
    footer: Footer
    leaves: list[int]
    source: pa.NativeFile | PrefetchedFile | None
    """None if no column is needed."""


class _Strategy(Enum):
    """The strategies for reading a task."""

    WHOLE_FILES = auto()
    """For files that are not Parquet: the needed columns, by the reader of the format."""

    ROW_GROUPS = auto()
    """All needed columns of the whole row group, by pyarrow's reader."""
    PAGES = auto()
    """Selected pages, those of the filter's columns first."""
    FILTER_FIRST = auto()
    """The filter's columns of the whole row group, then selected pages of the others."""


class _Selectivity:
    """The observed selectivity: the rows that the filter has tested, and those that matched."""

    def __init__(self) -> None:
        self.rows = self.matched = 0

    def add(self, rows: int, matched: int) -> None:
        # Threads may lose each other's counts: this is only an estimate for the next tasks.
        self.rows += rows
        self.matched += matched


@dataclass
class TaskReader:
    """Reads the tasks of one scan. It is thread-safe."""

    storage: Storage
    schema: pa.Schema
    predicate: Predicate
    projection: tuple[Path, ...]
    partition_columns: tuple[str, ...]
    names: ColumnMapping | None = None
    """The mapping from physical to logical column names, if they differ."""
    may_filter_first: bool = True
    """Whether selected pages may be read of columns that are not in the filter."""
    output_schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.output_schema = narrow_schema(self.schema, self.projection)
        self._reading = lru_cache(maxsize=None)(self._make_reading)
        self._selectivity = _Selectivity()
        self._readers_by_strategy = {
            _Strategy.PAGES: self._read_selected,
            _Strategy.FILTER_FIRST: self._read_filtered_first,
            _Strategy.WHOLE_FILES: self._read_whole_file,
        }

    def _make_reading(self, residual: tuple[int, ...], projection: tuple[Path, ...]) -> ReadSchema:
        conjuncts = [self.predicate.conjuncts[index].predicate for index in residual]
        return ReadSchema(self.schema, projection, self.partition_columns, Residual(conjuncts) if conjuncts else None)

    def read(self, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of tasks, batch by batch, with the projected columns."""
        for batch in self._read_matching(tasks, self.projection):
            if batch.num_rows:
                yield project_batch(batch, self.output_schema)

    def read_columns(self, tasks: Sequence[ScanTask], projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of tasks, with at least the columns of another projection."""
        for batch in self._read_matching(tasks, projection):
            if batch.num_rows:
                yield batch

    def count(self, tasks: Sequence[ScanTask]) -> int:
        """Return how many rows of tasks match; no column is read of fully matched tasks."""
        found = sum(task.row_count for task in tasks if not task.residual)
        for batch in self._read_matching([task for task in tasks if task.residual], ()):
            found += batch.num_rows
        return found

    def _read_matching(self, tasks: Sequence[ScanTask], projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        for strategy, alike in groupby(tasks, lambda task: self._choose_strategy(task, projection)):
            if strategy is _Strategy.ROW_GROUPS:
                yield from self._read_row_groups(list(alike), projection)
            else:
                yield from self._read_each(list(alike), self._readers_by_strategy[strategy], projection)

    def _read_each(
        self,
        tasks: Sequence[ScanTask],
        read: Callable[[ScanTask, tuple[Path, ...]], Iterator[pa.RecordBatch]],
        projection: tuple[Path, ...],
    ) -> Iterator[pa.RecordBatch]:
        if self.storage.is_local or len(tasks) == 1:
            for task in tasks:
                yield from read(task, projection)
            return
        # Tasks of a group are small, and remote requests mostly wait.
        for found in run_in_threads(lambda task: list(read(task, projection)), tasks, self.storage.threads):
            yield from found

    def estimate_bytes(self, tasks: list[ScanTask]) -> int:
        """Estimate the bytes that tasks hold while they are read: their chunks, and about three decoded batches."""
        size = sum(task.bytes for task in tasks)
        return size + 3 * min(self.storage.tuning.max_batch_bytes, 8 * size)

    def _choose_strategy(self, task: ScanTask, projection: tuple[Path, ...]) -> _Strategy:
        """Choose the strategy for a task."""
        if task.file_format != PARQUET:
            return _Strategy.WHOLE_FILES
        if task.content is not None:
            return _Strategy.ROW_GROUPS
        if task.selection is not None:
            is_small = task.selection.row_count <= self.storage.tuning.max_share_by_pages * task.selection.total
            return _Strategy.PAGES if is_small else _Strategy.ROW_GROUPS
        return (
            _Strategy.FILTER_FIRST
            if task.residual and self._should_filter_first(task, projection)
            else _Strategy.ROW_GROUPS
        )

    def _should_filter_first(self, task: ScanTask, projection: tuple[Path, ...]) -> bool:
        """Return whether to read the filter's columns of a row group first, and only then the others.

        It pays if the other columns are worth another round of requests, their pages can be read separately, and few of
        the rows so far match.
        """
        if not projection or not self.may_filter_first:
            return False
        if self._selectivity.matched > self.storage.tuning.max_selectivity_to_filter_first * self._selectivity.rows:
            return False
        source = ParquetFile.load(self.storage, task.path, task.size, task.modified_ns, self.names)
        tested = set(self._reading(task.residual, ()).find_leaves(source.footer.schema))
        others = [
            leaf for leaf in self._reading((), projection).find_leaves(source.footer.schema) if leaf not in tested
        ]
        chunks = [source.chunk(task.row_group, leaf) for leaf in others]
        paged = sum(chunk.total_compressed_size for chunk in chunks if chunk.offset_index is not None)
        return paged > get_min_bytes_for_second_read(self.storage) and _can_assemble(source.footer.schema, others)

    def _read_filtered_first(self, task: ScanTask, projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows: read the filter's columns, then only the pages of the others that they need."""
        reading = self._reading(task.residual, ())
        assert reading.residual is not None
        rows = 0
        found: list[npt.NDArray[np.int64]] = []
        for batch in self._decode(self._fetch([task], ())):
            found.append(reading.residual.find_matches(batch)[1] + rows)
            rows += batch.num_rows
        positions = np.concatenate(found) if found else np.empty(0, np.int64)
        self._selectivity.add(rows, len(positions))
        if len(positions):
            selection = RowSelection.from_indices(positions, rows)
            matching = replace(task, residual=(), selection=selection, row_count=selection.row_count)
            yield from self._read_matching([matching], projection)

    def _read_selected(self, task: ScanTask, projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows among the selected rows of a row group, read through pages if possible."""
        assert task.selection is not None
        source = ParquetFile.load(self.storage, task.path, task.size, task.modified_ns, self.names)
        reading = self._reading(task.residual, projection)
        by_column = reading.find_leaves_by_column(source.footer.schema)
        leaves = [leaf for found in by_column.values() for leaf in found]
        if not (source.has_page_locations(task.row_group, leaves) and _can_assemble(source.footer.schema, leaves)):
            # Whole chunks are needed, so they are read once.
            yield from self._read_row_groups([task], projection)
            return
        constants = reading.find_constants(task, source.footer.schema)
        rows = PagedRowReader(source, task.row_group, reading.schema, by_column, constants, reading.residual)
        with source.open() as file:
            yield from rows.read(file, task.selection, source.choose_batch_rows(task.row_group, leaves))

    def _read_whole_file(self, task: ScanTask, projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of a file that is not Parquet."""
        reading = self._reading(task.residual, projection)
        rows = task.row_count if task.selection is None else task.selection.total
        file = DataFile(self.storage, task.path, task.size, task.file_format, rows)
        decoded = file.read(reading.schema, self.names, task.constants)
        for batch in decoded if task.selection is None else _select(decoded, task.selection):
            yield batch if reading.residual is None else reading.residual.filter(batch)

    def _read_row_groups(self, tasks: Sequence[ScanTask], projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        # A change data feed may have a file twice, each time with other constants.
        runs = [list(run) for _, run in groupby(tasks, lambda task: (task.path, task.residual, task.constants))]
        # Remote requests mostly wait, so they run concurrently.
        threads = 1 if self.storage.is_local else self.storage.threads
        files = run_in_threads(lambda run: self._fetch(run, projection), runs, threads)
        for _, alike in groupby(files, lambda file: file.tasks[0].residual):
            yield from self._decode_and_filter(list(alike))

    def _fetch(self, tasks: list[ScanTask], projection: tuple[Path, ...]) -> _Fetched:
        """Fetch the bytes of some row groups of one file."""
        first = tasks[0]
        footer, content = load_footer(self.storage, first.path, first.size, first.modified_ns, self.names)
        reading = self._reading(first.residual, projection)
        leaves = reading.find_leaves(footer.schema)
        if not leaves:
            return _Fetched(tasks, reading, footer, leaves, None)
        location = self.storage.format_path(first.path)
        ranges = [
            found
            for task in tasks
            for found in find_chunk_ranges(footer.metadata, task.row_group, leaves, size=first.size, location=location)
        ]
        whole = first.content or content
        if whole is not None:
            return _Fetched(tasks, reading, footer, leaves, pa.BufferReader(whole))
        buffers = read_ranges(self.storage, first.path, ranges, size=first.size, modified_ns=first.modified_ns)
        fetched = [(start, buffer) for (start, _), buffer in zip(ranges, buffers, strict=True)]
        return _Fetched(tasks, reading, footer, leaves, make_prefetched_file(fetched, first.size, location))

    def _decode_and_filter(self, files: list[_Fetched]) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of files that share their residual filter."""
        reading = files[0].reading
        decoded: Iterator[pa.RecordBatch] = chain.from_iterable(self._decode(file) for file in files)
        if reading.can_coalesce and (len(files) > 1 or len(files[0].tasks) > 1):
            decoded = coalesce_batches(decoded)
        for batch in decoded:
            yield batch if reading.residual is None else reading.residual.filter(batch)

    def _decode(self, file: _Fetched) -> Iterator[pa.RecordBatch]:
        """Yield the rows of row groups of one file, conformed to the table."""
        location = self.storage.format_path(file.tasks[0].path)
        wanted = file.reading.schema
        names = None if self.names is None else self.names.for_file(file.footer.schema.physical_arrow, location)
        constants = file.reading.find_constants(file.tasks[0], file.footer.schema)
        for decoded in _decode_row_groups(file, location, self.storage.tuning):
            batch = decoded if names is None or not file.leaves else names.rename_batch(decoded)
            # A batch without columns would lose its length.
            is_conformed = not wanted.names or batch.schema.equals(wanted)
            yield batch if is_conformed else conform_batch(batch, wanted, constants, f"'{location}'", self.names)


def _decode_row_groups(file: _Fetched, location: str, tuning: Tuning) -> Iterator[pa.RecordBatch]:
    if file.source is None:
        yield from make_dummy_batches(sum(task.row_count for task in file.tasks), tuning)
        return
    row_group = file.tasks[0].row_group
    try:
        options = {"metadata": file.footer.metadata, "pre_buffer": False, "page_checksum_verification": True}
        reader = open_reader(file.source, **options)
        for task in file.tasks:
            row_group = task.row_group
            decoded = decode_row_group(
                reader, file.footer, row_group, file.leaves, file.source, task.size, location, tuning
            )
            yield from decoded if task.selection is None else _select(decoded, task.selection)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(
            f"row group {row_group} of '{location}' cannot be decoded: {to_one_line(error)}; write the file again"
        ) from error


def _select(decoded: Iterator[pa.RecordBatch], selection: RowSelection) -> Iterator[pa.RecordBatch]:
    """Yield the selected rows of the batches of a row group."""
    start = 0
    for batch in decoded:
        own = selection.slice(start, batch.num_rows)
        start += batch.num_rows
        if not own.is_empty:
            yield batch if own.is_all else _replace_views(batch).filter(own.to_mask())


def _replace_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Return the batch with plain strings: Arrow cannot filter string views."""
    fields = [field.with_type(replace_view_types(field.type)) for field in batch.schema]
    return batch if fields == list(batch.schema) else batch.cast(pa.schema(fields))


def _can_assemble(schema: FileSchema, leaves: Collection[int]) -> bool:
    """Return whether the fields with these leaves can be assembled from pages."""
    wanted = set(leaves)
    return all(can_assemble(field.type) for field, own in schema.columns if not wanted.isdisjoint(own))


def project_batch(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return the columns of a schema, with structs narrowed to its fields."""
    arrays = [_narrow_array(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _narrow_array(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target or not pa.types.is_struct(target):
        return values
    children = [_narrow_array(values.field(field.name), field.type) for field in target]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())


# --- The columns to read ----------------------------------------------------------------------------------------------


class ReadSchema:
    """The columns to read for tasks with the same residual filter."""

    def __init__(
        self,
        schema: pa.Schema,
        projection: Iterable[Path],
        partition_columns: tuple[str, ...],
        residual: Residual | None,
    ) -> None:
        self.residual = residual
        self._table = schema
        tested = [column.path for column in residual.columns] if residual is not None else []
        self.schema = narrow_schema(schema, (*projection, *tested))
        self._of_files = [field for field in self.schema if field.name not in partition_columns]
        self.can_coalesce = not any(pa.types.is_dictionary(data_type) for data_type in _iterate_types(self.schema))
        self._leaves: dict[FileSchema, dict[str, list[int]]] = {}

    def find_leaves(self, schema: FileSchema) -> list[int]:
        """Return the leaf columns to read from files with a schema."""
        return sorted(leaf for found in self.find_leaves_by_column(schema).values() for leaf in found)

    def find_leaves_by_column(self, schema: FileSchema) -> dict[str, list[int]]:
        """Return the leaf columns to read from files with a schema, by the table column that needs them."""
        found = self._leaves.get(schema)
        if found is None:
            found = {field.name: self._find_leaves(schema, field) for field in self._of_files}
            self._leaves[schema] = found
        return found

    def _find_leaves(self, schema: FileSchema, field: pa.Field) -> list[int]:
        paths = list_flat_paths([field])
        _reject_shredded_variants(self._table, schema, paths)
        return sorted({leaf for path in paths for leaf in schema.find_leaves_to_read(path)})

    def find_constants(self, task: ScanTask, schema: FileSchema) -> Constants:
        """Return the constants of a file with a schema, without those of columns that are read from it."""
        leaves = self.find_leaves_by_column(schema) if task.constants else {}
        return {path: value for path, value in task.constants.items() if len(path) > 1 or not leaves.get(path[0])}


def _iterate_types(schema: pa.Schema) -> Iterator[pa.DataType]:
    waiting = [field.type for field in schema]
    while waiting:
        data_type = waiting.pop()
        yield data_type
        waiting += [data_type.field(index).type for index in range(data_type.num_fields)]


def _reject_shredded_variants(table: pa.Schema, schema: FileSchema, paths: Collection[Path]) -> None:
    """Raise an error for shredded variants, whose values a file stores in typed columns.

    If the table has those columns too, the column is a struct of the table and is read as such.
    """
    for *parents, name in paths:
        typed = (*parents, "typed_value")
        if (
            name == "metadata"
            and (*parents, "value") in paths
            and find_path(table, typed) is None
            and schema.find(typed) is not None
        ):
            raise UnsupportedFeature(describe_shredded_variant(".".join(parents)))


# --- Reading selected rows through pages ------------------------------------------------------------------------------
#
# Rows are read in parts, so that memory stays bounded. Of each part the filter's columns are read first if that saves
# more than it costs: rows that the filter rejects need no other column (late materialisation).


def get_min_bytes_for_second_read(storage: Storage) -> int:
    """Return the bytes of other columns that are worth a second round of requests."""
    tuning = storage.tuning
    return tuning.min_local_bytes_for_second_read if storage.is_local else tuning.min_bytes_for_second_read


@dataclass(frozen=True, eq=False)
class PagedRowReader:
    """Reads rows of one row group through pages. `schema` is the table's, narrowed to the columns to read."""

    source: ParquetFile
    row_group: int
    schema: pa.Schema
    leaves: Mapping[str, Sequence[int]]
    """The leaf columns of the file by column of the table; empty for a column that the file lacks."""
    constants: Constants
    residual: Residual | None

    def read(self, file: RangedFile, selection: RowSelection, most_rows: int) -> Iterator[pa.RecordBatch]:
        """Yield the selected rows that satisfy the residual filter, batch by batch in file order."""
        pages = self._locate_pages(file)
        tested = [column.path[0] for column in self.residual.columns] if self.residual is not None else []
        first = [field.name for field in self.schema if field.name in tested]
        others = [field.name for field in self.schema if field.name not in tested]
        for part in selection.iter_parts(most_rows):
            if self.residual is None:
                yield self._read_columns(file, pages, self.schema.names, part)
            elif not self._should_filter_first(pages, others, part):
                yield self.residual.filter(self._read_columns(file, pages, self.schema.names, part))
            else:
                batch, positions = self.residual.find_matches(self._read_columns(file, pages, first, part))
                if batch.num_rows:
                    left = part.and_then(RowSelection.from_indices(positions, part.row_count))
                    yield _combine_columns(batch, self._read_columns(file, pages, others, left), self.schema)

    def _locate_pages(self, file: RangedFile) -> dict[int, LeafPages]:
        leaves = [leaf for found in self.leaves.values() for leaf in found]
        indexes = read_page_indexes(self.source, file, [(self.row_group, leaf) for leaf in leaves])
        return {
            leaf: self.source.get_leaf_pages(self.row_group, leaf, indexes.locations[self.row_group, leaf])
            for leaf in leaves
        }

    def _should_filter_first(
        self, pages: Mapping[int, LeafPages], columns: Sequence[str], selection: RowSelection
    ) -> bool:
        """Return whether reading these columns after the others may save more than another round costs."""
        size = sum(pages[leaf].count_bytes_for(selection) for name in columns for leaf in self.leaves.get(name, ()))
        return size > get_min_bytes_for_second_read(self.source.storage)

    def _read_columns(
        self, file: RangedFile, pages: Mapping[int, LeafPages], columns: Sequence[str], selection: RowSelection
    ) -> pa.RecordBatch:
        wanted = pa.schema([self.schema.field(name) for name in columns])
        leaves = [pages[leaf] for name in columns for leaf in self.leaves.get(name, ())]
        location = self.source.location
        if leaves:
            fetched = fetch_pages(file, leaves, selection)
            batch = read_rows(self.source.footer.schema.columns, fetched, location, self.source.created_by)
        else:
            # A batch needs a column to keep its length.
            batch = pa.record_batch({"": pa.nulls(selection.row_count)})
        return conform_batch(batch, wanted, self.constants, f"'{location}'", self.source.footer.names)


def _combine_columns(one: pa.RecordBatch, other: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = {name: batch.column(name) for batch in (one, other) for name in batch.schema.names}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
