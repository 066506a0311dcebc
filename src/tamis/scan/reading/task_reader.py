"""Reading of tasks: exactly the column chunks that are needed, decoded, made to fit the table, filtered, projected.

Every step has a price of its own, which many small row groups would pay many times. So tasks come in groups: a file is
opened once for all of its row groups, what hangs on the schema of a file is worked out once, and the rows of small
row groups are joined before they are filtered.
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
from tamis.io.ranges import PrefetchedFile, RangedFile, file_of_ranges, read_ranges
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.footer import Footer, load_footer, open_reader
from tamis.parquet.footer.leaves import FileSchema, list_flat_paths
from tamis.parquet.footer.matching import find_path
from tamis.parquet.footer.statistics import find_chunk_ranges
from tamis.parquet.indexes.page_units import read_page_indexes
from tamis.parquet.reading.assemble import can_assemble
from tamis.parquet.reading.conform import Constants, conform_batch, describe_shredded_variant
from tamis.parquet.reading.page_reader import LeafPages, fetch_pages, read_rows
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.parquet.reading.row_group_reader import decode_row_group, make_dummy_batches
from tamis.parquet.selection.row_selection import RowSelection
from tamis.scan.planning.projection import Path, narrow
from tamis.scan.planning.tasks import ScanTask, as_type
from tamis.scan.reading.pipeline import coalesce_batches
from tamis.scan.reading.residual import Residual
from tamis.skipping.predicate import Predicate
from tamis.types import replace_view_types

MOST_BY_PAGES = 0.5
"""Of more rows than this share of a row group all pages are read: one pass over them is faster than many small ones."""

MOST_TO_FILTER_FIRST = 0.02
"""Where a larger share of rows matches, most pages hold one of them, and all columns are read at once."""


@dataclass(frozen=True, slots=True)
class _Fetched:
    """Row groups of one file, with the bytes that they take."""

    tasks: list[ScanTask]
    reading: Reading
    footer: Footer
    leaves: list[int]
    source: pa.NativeFile | PrefetchedFile | None
    """None where no column is needed."""


class _Way(Enum):
    """How a task is read."""

    WHOLE_FILES = auto()
    """What is not Parquet: the columns that are needed, by the reader of the format."""

    ROW_GROUPS = auto()
    """All columns of the whole row group, by pyarrow's own reader."""
    PAGES = auto()
    """Single pages, those of the filter's columns first."""
    FILTER_FIRST = auto()
    """The filter's columns of the whole row group, then single pages of the others."""


class _Tested:
    """How many rows the filter has seen, and how many matched."""

    def __init__(self) -> None:
        self.rows = self.matched = 0

    def add(self, rows: int, matched: int) -> None:
        # Threads may lose a count of each other: this is a guess about what comes next, not an account.
        self.rows += rows
        self.matched += matched


@dataclass
class TaskReader:
    """Reads the tasks of one scan. Any number of threads may use it."""

    storage: Storage
    schema: pa.Schema
    predicate: Predicate
    projection: tuple[Path, ...]
    partition_columns: tuple[str, ...]
    names: ColumnMapping | None = None
    """How the table calls the columns of its files, where those have other names for them."""
    may_filter_first: bool = True
    """Whether single pages may be read of columns that the filter is not about."""
    output_schema: pa.Schema = field(init=False)

    def __post_init__(self) -> None:
        self.output_schema = narrow(self.schema, self.projection)
        self._reading = lru_cache(maxsize=None)(self._make_reading)
        self._tested = _Tested()
        self._ways = {
            _Way.PAGES: self._selected,
            _Way.FILTER_FIRST: self._filter_first,
            _Way.WHOLE_FILES: self._matching_of_file,
        }

    def _make_reading(self, residual: tuple[int, ...], projection: tuple[Path, ...]) -> Reading:
        conjuncts = [self.predicate.conjuncts[index].predicate for index in residual]
        return Reading(self.schema, projection, self.partition_columns, Residual(conjuncts) if conjuncts else None)

    def read(self, tasks: Sequence[ScanTask]) -> Iterator[pa.RecordBatch]:
        """The rows of tasks that satisfy the filter, batch by batch, with the projected columns."""
        for batch in self._matching(tasks, self.projection):
            if batch.num_rows:
                yield project(batch, self.output_schema)

    def columns(self, tasks: Sequence[ScanTask], projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """The rows of tasks that satisfy the filter, with at least the columns of another projection."""
        for batch in self._matching(tasks, projection):
            if batch.num_rows:
                yield batch

    def count(self, tasks: Sequence[ScanTask]) -> int:
        """How many rows of tasks satisfy the filter; no column is read where all of them do."""
        found = sum(task.row_count for task in tasks if not task.residual)
        for batch in self._matching([task for task in tasks if task.residual], ()):
            found += batch.num_rows
        return found

    def _matching(self, tasks: Sequence[ScanTask], projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        for way, alike in groupby(tasks, lambda task: self._way(task, projection)):
            if way is _Way.ROW_GROUPS:
                yield from self._matching_of_row_groups(list(alike), projection)
            else:
                yield from self._each(list(alike), self._ways[way], projection)

    def _each(
        self,
        tasks: Sequence[ScanTask],
        read: Callable[[ScanTask, tuple[Path, ...]], Iterator[pa.RecordBatch]],
        projection: tuple[Path, ...],
    ) -> Iterator[pa.RecordBatch]:
        if self.storage.is_local or len(tasks) == 1:
            for task in tasks:
                yield from read(task, projection)
            return
        # Tasks that come together are small, and remote requests mostly wait.
        for found in run_in_threads(lambda task: list(read(task, projection)), tasks, self.storage.threads):
            yield from found

    def _way(self, task: ScanTask, projection: tuple[Path, ...]) -> _Way:
        """How a task is read, decided once."""
        if task.file_format != PARQUET:
            return _Way.WHOLE_FILES
        if task.content is not None:
            return _Way.ROW_GROUPS
        if task.selection is not None:
            is_small = task.selection.row_count <= MOST_BY_PAGES * task.selection.total
            return _Way.PAGES if is_small else _Way.ROW_GROUPS
        return _Way.FILTER_FIRST if task.residual and self._pays(task, projection) else _Way.ROW_GROUPS

    def _pays(self, task: ScanTask, projection: tuple[Path, ...]) -> bool:
        """Whether to look for the matching rows of a row group before anything else of it is read.

        So it is where the other columns are worth a round of requests, single pages of them can be read, and the rows
        seen so far say that few match.
        """
        if not projection or not self.may_filter_first:
            return False
        if self._tested.matched > MOST_TO_FILTER_FIRST * self._tested.rows:
            return False
        source = ParquetFile.load(self.storage, task.path, task.size, task.modified_ns, self.names)
        tested = set(self._reading(task.residual, ()).leaves(source.footer.schema))
        others = [leaf for leaf in self._reading((), projection).leaves(source.footer.schema) if leaf not in tested]
        chunks = [source.chunk(task.row_group, leaf) for leaf in others]
        paged = sum(chunk.total_compressed_size for chunk in chunks if chunk.offset_index is not None)
        return paged > WORTH_A_ROUND_TRIP[self.storage.is_local] and _can_assemble(source.footer.schema, others)

    def _filter_first(self, task: ScanTask, projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """Read the columns of the filter, and then of the others only what the matching rows need."""
        reading = self._reading(task.residual, ())
        assert reading.residual is not None
        constants = reading.constants_of(task)
        rows = 0
        found: list[npt.NDArray[np.int64]] = []
        for batch in self._decode(self._fetch([task], ())):
            given = conform_batch(batch, reading.schema, constants, "") if constants else batch
            found.append(reading.residual.matching(given)[1] + rows)
            rows += batch.num_rows
        positions = np.concatenate(found) if found else np.empty(0, np.int64)
        self._tested.add(rows, len(positions))
        if len(positions):
            selection = RowSelection.from_indices(positions, rows)
            matching = replace(task, residual=(), selection=selection, row_count=selection.row_count)
            yield from self._matching([matching], projection)

    def _selected(self, task: ScanTask, projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """The matching ones among chosen rows of a row group."""
        assert task.selection is not None
        source = ParquetFile.load(self.storage, task.path, task.size, task.modified_ns, self.names)
        reading = self._reading(task.residual, projection)
        by_column = reading.leaves_by_column(source.footer.schema)
        leaves = [leaf for found in by_column.values() for leaf in found]
        if not (source.has_page_locations(task.row_group, leaves) and _can_assemble(source.footer.schema, leaves)):
            # Whoever must read whole chunks reads them once.
            yield from self._matching_of_row_groups([task], projection)
            return
        constants: Constants = {**reading.constants_of(task), **reading.lacking(task, source.footer.schema)}
        rows = PagedRows(source, task.row_group, reading.schema, by_column, constants, reading.residual)
        with source.open() as file:
            yield from rows.read(file, task.selection, source.rows_of_a_batch(task.row_group, leaves))

    def _matching_of_file(self, task: ScanTask, projection: tuple[Path, ...]) -> Iterator[pa.RecordBatch]:
        """The matching rows of a file that is not Parquet."""
        reading = self._reading(task.residual, projection)
        constants = reading.constants_of(task)
        rows = task.row_count if task.selection is None else task.selection.total
        file = DataFile(self.storage, task.path, task.size, task.file_format, rows)
        decoded = file.read(reading.of_files, self.names, task.where_absent)
        for batch in decoded if task.selection is None else _select(decoded, task.selection):
            if constants:
                batch = conform_batch(batch, reading.schema, constants, "")
            yield batch if reading.residual is None else reading.residual.filter(batch)

    def _matching_of_row_groups(
        self, tasks: Sequence[ScanTask], projection: tuple[Path, ...]
    ) -> Iterator[pa.RecordBatch]:
        runs = [list(run) for _, run in groupby(tasks, lambda task: (task.path, task.residual))]
        # Remote requests mostly wait, so they do it side by side.
        threads = 1 if self.storage.is_local else self.storage.threads
        files = run_in_threads(lambda run: self._fetch(run, projection), runs, threads)
        # The same values are the same mapping; to compare would take 0.0 for -0.0.
        for _, alike in groupby(files, lambda file: (file.tasks[0].residual, id(file.tasks[0].partition_values))):
            yield from self._filtered(list(alike))

    def _fetch(self, tasks: list[ScanTask], projection: tuple[Path, ...]) -> _Fetched:
        """The bytes of some row groups of one file."""
        first = tasks[0]
        footer, content = load_footer(self.storage, first.path, first.size, first.modified_ns, self.names)
        reading = self._reading(first.residual, projection)
        leaves = reading.leaves(footer.schema)
        if not leaves:
            return _Fetched(tasks, reading, footer, leaves, None)
        place = self.storage.place(first.path)
        ranges = [
            found
            for task in tasks
            for found in find_chunk_ranges(footer.metadata, task.row_group, leaves, size=first.size, place=place)
        ]
        whole = first.content or content
        if whole is not None:
            return _Fetched(tasks, reading, footer, leaves, pa.BufferReader(whole))
        buffers = read_ranges(self.storage, first.path, ranges, size=first.size, modified_ns=first.modified_ns)
        fetched = [(start, buffer) for (start, _), buffer in zip(ranges, buffers, strict=True)]
        return _Fetched(tasks, reading, footer, leaves, file_of_ranges(fetched, first.size, place))

    def _filtered(self, files: list[_Fetched]) -> Iterator[pa.RecordBatch]:
        """The matching rows of files that have the same partition values and the same rest of the filter."""
        reading = files[0].reading
        constants = reading.constants_of(files[0].tasks[0])
        decoded: Iterator[pa.RecordBatch] = chain.from_iterable(self._decode(file) for file in files)
        if reading.can_join and (len(files) > 1 or len(files[0].tasks) > 1):
            decoded = coalesce_batches(decoded)
        for batch in decoded:
            if constants:
                batch = conform_batch(batch, reading.schema, constants, "")
            yield batch if reading.residual is None else reading.residual.filter(batch)

    def _decode(self, file: _Fetched) -> Iterator[pa.RecordBatch]:
        """The rows of row groups of one file, in the shape that the table has but for its partition columns."""
        place = self.storage.place(file.tasks[0].path)
        wanted = file.reading.of_files
        names = None if self.names is None else self.names.for_file(file.footer.schema.physical_arrow, place)
        constants = file.reading.lacking(file.tasks[0], file.footer.schema)
        for decoded in _decode_row_groups(file, place):
            batch = decoded if names is None or not file.leaves else names.rename_batch(decoded)
            # A batch without any column would not know its length.
            fits = not wanted.names or batch.schema.equals(wanted)
            yield batch if fits else conform_batch(batch, wanted, constants, f"'{place}'", self.names)


def _decode_row_groups(file: _Fetched, place: str) -> Iterator[pa.RecordBatch]:
    if file.source is None:
        yield from make_dummy_batches(sum(task.row_count for task in file.tasks))
        return
    row_group = file.tasks[0].row_group
    try:
        options = {"metadata": file.footer.metadata, "pre_buffer": False, "page_checksum_verification": True}
        reader = open_reader(file.source, **options)
        for task in file.tasks:
            row_group = task.row_group
            decoded = decode_row_group(reader, file.footer, row_group, file.leaves, file.source, task.size, place)
            yield from decoded if task.selection is None else _select(decoded, task.selection)
    except (pa.ArrowException, OSError) as error:
        raise CorruptFile(f"row group {row_group} of '{place}' cannot be decoded: {to_one_line(error)}") from error


def _select(decoded: Iterator[pa.RecordBatch], selection: RowSelection) -> Iterator[pa.RecordBatch]:
    """The selected rows of the batches of a row group."""
    start = 0
    for batch in decoded:
        own = selection.slice(start, batch.num_rows)
        start += batch.num_rows
        if not own.is_empty:
            yield batch if own.is_all else _without_views(batch).filter(own.to_mask())


def _without_views(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with plain texts: Arrow cannot choose among views of them."""
    fields = [field.with_type(replace_view_types(field.type)) for field in batch.schema]
    return batch if fields == list(batch.schema) else batch.cast(pa.schema(fields))


def _can_assemble(schema: FileSchema, leaves: Collection[int]) -> bool:
    """Whether the fields with these leaves can be put together of pages."""
    wanted = set(leaves)
    return all(can_assemble(field.type) for field, own in schema.columns if not wanted.isdisjoint(own))


def project(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of a schema, structs narrowed to the fields that it has."""
    arrays = [_narrowed(batch.column(field.name), field.type) for field in schema]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _narrowed(values: pa.Array, target: pa.DataType) -> pa.Array:
    if values.type == target or not pa.types.is_struct(target):
        return values
    children = [_narrowed(values.field(field.name), field.type) for field in target]
    return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())


# --- Which columns of files are read for what a scan returns and tests ------------------------------------------------


class Reading:
    """How tasks are read of which the same part of the filter remains."""

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
        self.schema = narrow(schema, (*projection, *tested))
        self.constants = [name for name in self.schema.names if name in partition_columns]
        self.of_files = pa.schema([field for field in self.schema if field.name not in partition_columns])
        self.can_join = not any(pa.types.is_dictionary(data_type) for data_type in _all_types(self.of_files))
        self._leaves: dict[FileSchema, dict[str, list[int]]] = {}

    def leaves(self, schema: FileSchema) -> list[int]:
        """The leaves to read of files with a schema."""
        return sorted(leaf for found in self.leaves_by_column(schema).values() for leaf in found)

    def leaves_by_column(self, schema: FileSchema) -> dict[str, list[int]]:
        """The leaves to read of files with a schema, by the column of the table that needs them."""
        found = self._leaves.get(schema)
        if found is None:
            found = {field.name: self._find_leaves(schema, field) for field in self.of_files}
            self._leaves[schema] = found
        return found

    def _find_leaves(self, schema: FileSchema, field: pa.Field) -> list[int]:
        paths = list_flat_paths([field])
        _refuse_shredded(self._table, schema, paths)
        return sorted({leaf for path in paths for leaf in schema.find_leaves_to_read(path)})

    def constants_of(self, task: ScanTask) -> Constants:
        """The partition values of a task that are read."""
        values = task.partition_values
        return {name: as_type(values[name], self.schema.field(name).type) for name in self.constants}

    def lacking(self, task: ScanTask, schema: FileSchema) -> Constants:
        """The values of columns that a file of a schema does not have, where they are known otherwise."""
        if not task.where_absent:
            return {}
        found = self.leaves_by_column(schema)
        return {
            key: value
            for key, value in task.where_absent.items()
            if (key in found and not found[key] if isinstance(key, str) else key[0] in found)
        }


def _all_types(schema: pa.Schema) -> Iterator[pa.DataType]:
    waiting = [field.type for field in schema]
    while waiting:
        data_type = waiting.pop()
        yield data_type
        waiting += [data_type.field(index).type for index in range(data_type.num_fields)]


def _refuse_shredded(table: pa.Schema, schema: FileSchema, paths: Collection[Path]) -> None:
    """An error for variants whose values a file has, in part or whole, in columns of their own types.

    Where the table has those columns too, of whatever type, it is a struct to the table, and is read as that.
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


# --- Reading of chosen rows: the pages that hold them, those of filtered columns first --------------------------------
#
# Rows are read in pieces, so that memory stays bounded. Of each piece the columns of the filter come first where that
# saves more than it costs: the rows that it rejects need no other column (late materialisation).

WORTH_A_ROUND_TRIP = {True: 64 * 1024, False: 2 * 1024 * 1024}
"""How many bytes of other columns are worth a second round of requests, locally and remotely: a remote one waits some
30 ms, in which a connection moves about as much; a local one costs what decoding such a piece does."""


class PagedRows:
    """Rows of one row group, through pages. `schema` is the table's, narrowed to what is read."""

    def __init__(
        self,
        source: ParquetFile,
        row_group: int,
        schema: pa.Schema,
        leaves: Mapping[str, Sequence[int]],
        constants: Constants,
        residual: Residual | None,
    ) -> None:
        self._source = source
        self._row_group = row_group
        self._schema = schema
        self._leaves = leaves
        """By column of the table, those of the file; a column that the file lacks has none."""
        self._constants = constants
        self._residual = residual

    def read(self, file: RangedFile, selection: RowSelection, most_rows: int) -> Iterator[pa.RecordBatch]:
        """The selected rows that satisfy the rest of the filter, batch by batch in the order of the file."""
        pages = self._pages(file)
        tested = [column.path[0] for column in self._residual.columns] if self._residual is not None else []
        first = [field.name for field in self._schema if field.name in tested]
        others = [field.name for field in self._schema if field.name not in tested]
        for piece in selection.iter_parts(most_rows):
            if self._residual is None:
                yield self._rows(file, pages, self._schema.names, piece)
            elif not self._pays(pages, others, piece):
                yield self._residual.filter(self._rows(file, pages, self._schema.names, piece))
            else:
                batch, positions = self._residual.matching(self._rows(file, pages, first, piece))
                if batch.num_rows:
                    left = piece.and_then(RowSelection.from_indices(positions, piece.row_count))
                    yield _side_by_side(batch, self._rows(file, pages, others, left), self._schema)

    def _pages(self, file: RangedFile) -> dict[int, LeafPages]:
        leaves = [leaf for found in self._leaves.values() for leaf in found]
        indexes = read_page_indexes(self._source, file, [(self._row_group, leaf) for leaf in leaves])
        return {
            leaf: self._source.get_leaf_pages(self._row_group, leaf, indexes.locations[self._row_group, leaf])
            for leaf in leaves
        }

    def _pays(self, pages: Mapping[int, LeafPages], columns: Sequence[str], selection: RowSelection) -> bool:
        """Whether reading these columns after the others may save more than another round costs."""
        size = sum(pages[leaf].count_bytes_for(selection) for name in columns for leaf in self._leaves.get(name, ()))
        return size > WORTH_A_ROUND_TRIP[self._source.storage.is_local]

    def _rows(
        self, file: RangedFile, pages: Mapping[int, LeafPages], columns: Sequence[str], selection: RowSelection
    ) -> pa.RecordBatch:
        wanted = pa.schema([self._schema.field(name) for name in columns])
        leaves = [pages[leaf] for name in columns for leaf in self._leaves.get(name, ())]
        place = self._source.location
        if leaves:
            fetched = fetch_pages(file, leaves, selection)
            batch = read_rows(self._source.footer.schema.columns, fetched, place, self._source.created_by)
        else:
            # A batch needs some column to know its length.
            batch = pa.record_batch({"": pa.nulls(selection.row_count)})
        return conform_batch(batch, wanted, self._constants, f"'{place}'", self._source.footer.names)


def _side_by_side(one: pa.RecordBatch, other: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    columns = {name: batch.column(name) for batch in (one, other) for name in batch.schema.names}
    return pa.RecordBatch.from_arrays([columns[name] for name in schema.names], schema=schema)
