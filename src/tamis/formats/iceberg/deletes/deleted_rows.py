"""The positions of deleted rows of data files, from deletion vectors, position deletes and equality deletes.

`tamis.formats.iceberg.deletes.deletes_index` assigns deletes to data files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis.formats.constants import read_constants
from tamis.formats.files.data_files import DataFile
from tamis.formats.iceberg.deletes.equality_deletes import DeletedKeys, EqualityColumns, EqualityLookup, find_deleted
from tamis.formats.iceberg.deletes.position_deletes import DeletionVector, PositionDeletes, read_deletion_vectors
from tamis.formats.iceberg.schema import Json
from tamis.formats.jobs import Arguments
from tamis.formats.source import DeletedValues, FilesWithDeletedValues
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.selection.runs import bitmap64_from_runs, runs_from_sorted_rows


class _Measured(Protocol):
    @property
    def nbytes(self) -> int: ...


Cached = TypeVar("Cached", bound=_Measured)

Ids = tuple[int, ...]
DeleteFile = tuple[str, int, str]
"""A delete file: path, size, format."""

POSITIONS, EQUALITY = 1, 2
"""The `content` of delete files in manifests."""

CACHE_BYTES = 64 * 1024 * 1024
"""The size of the cache of delete files: each applies to many data files, which are planned in parts."""

Numbers = npt.NDArray[np.int64]


DELETES_FUNCTION = "tamis.formats.iceberg.deletes.deleted_rows:make_delete_reader"


def make_delete_reader(arguments: Arguments) -> DeleteReader:
    """Return the reader of a table's deletes, in an executor."""
    return DeleteReader(arguments["schemas"], arguments["name_mapping"], arguments["name"])


@dataclass(frozen=True)
class DeleteReader:
    """The reader of one table's deletes. It is thread-safe."""

    schemas: Sequence[Json]
    """All schemas of the table, the one that is read first."""
    name_mapping: str | None = None
    table_name: str = "the table"
    _known_columns: dict[tuple[int, ...], EqualityColumns] = field(default_factory=dict, compare=False, repr=False)
    _locks: dict[Hashable, Lock] = field(default_factory=dict, compare=False, repr=False)
    _cache: WeightedCache = field(default_factory=lambda: WeightedCache(CACHE_BYTES), compare=False, repr=False)

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """Return the positions of deleted rows of some files of a listing, by the indices of the files.

        With `row_groups`, equality deletes are only evaluated in those row groups.
        """
        pairs = _Pairs.of_files(files)
        if pairs is None:
            return {}
        by_equality = pairs.filter(pc.equal(pairs.deletes["content"], EQUALITY))
        return _unite_bitmaps(
            (
                *self._read_all_positions(storage, pairs, files),
                *self._find_equality_deleted(storage, by_equality, files, row_groups),
            )
        )

    def read_deleted_positions(self, storage: Storage, files: pa.Table) -> Mapping[int, BitMap64]:
        """Return what `read_deleted_rows` returns, without the rows that equality deletes delete."""
        pairs = _Pairs.of_files(files)
        return {} if pairs is None else _unite_bitmaps(self._read_all_positions(storage, pairs, files))

    def read_deleted_values(self, storage: Storage, files: pa.Table) -> list[FilesWithDeletedValues]:
        """Return the values of equality deletes, for each group of files that the same delete files apply to."""
        pairs = _Pairs.of_files(files)
        if pairs is None:
            return []
        pairs = pairs.filter(pc.equal(pairs.deletes["content"], EQUALITY))
        groups: dict[tuple[int, ...], list[int]] = {}
        for file, _, own in pairs.group_by_kind(np.zeros(pairs.deletes.num_rows, np.int64)):
            groups.setdefault(tuple(sorted(own.tolist())), []).append(file)
        ids_of = [tuple(sorted(set(ids))) for ids in pairs.deletes["equality_ids"].to_pylist()]
        delete_files = pairs.delete_files
        found = []
        for applied, members in groups.items():
            by_ids: dict[Ids, list[DeleteFile]] = {}
            for position in applied:
                by_ids.setdefault(ids_of[position], []).append(delete_files[position])
            deleted = [self._read_values(storage, ids, each) for ids, each in by_ids.items()]
            known = tuple(each for each in deleted if each is not None)
            is_known = len(known) == len(deleted)
            found.append(FilesWithDeletedValues(np.array(members, np.int64), known if is_known else None))
        return found

    # --- Each kind --------------------------------------------------------------------------------------------------

    def _read_all_positions(self, storage: Storage, pairs: _Pairs, files: pa.Table) -> list[tuple[int, BitMap64]]:
        is_vector = pc.is_valid(pairs.deletes["offset"])
        by_position = pc.and_(pc.equal(pairs.deletes["content"], POSITIONS), pc.invert(is_vector))
        return [
            *self._read_vectors(storage, pairs.filter(is_vector)),
            *self._read_positions(storage, pairs.filter(by_position), files),
        ]

    @staticmethod
    def _read_vectors(storage: Storage, pairs: _Pairs) -> Iterable[tuple[int, BitMap64]]:
        names = ("path", "size", "offset", "length", "cardinality")
        entries = pairs.deletes.take(pa.array(pairs.delete))
        vectors = [DeletionVector(*row) for row in zip(*(entries[name].to_pylist() for name in names), strict=True)]
        return zip(pairs.file.tolist(), read_deletion_vectors(storage, vectors), strict=True)

    def _read_positions(self, storage: Storage, pairs: _Pairs, files: pa.Table) -> Iterable[tuple[int, BitMap64]]:
        if not len(pairs.file):
            return []
        delete_files = pairs.delete_files
        # The data files that each delete file applies to.
        ends = np.cumsum(np.bincount(pairs.delete, minlength=len(delete_files)))
        owners = np.split(pairs.file[np.argsort(pairs.delete, kind="stable")], ends[:-1])

        def read(file: DeleteFile) -> PositionDeletes:
            return self._get_cached((POSITIONS, file), lambda: PositionDeletes.read(DataFile(storage, *file)))

        found = run_in_threads(read, delete_files, storage.threads)
        positions: dict[int, list[Numbers]] = {}
        locations = files["location"].combine_chunks()
        for own, deletes in zip(owners, found, strict=True):
            for index, rows in deletes.find_positions(locations.take(pa.array(own))):
                positions.setdefault(int(own[index]), []).append(rows)
        return [(file, make_bitmap(np.concatenate(rows))) for file, rows in positions.items()]

    def _find_equality_deleted(
        self, storage: Storage, pairs: _Pairs, files: pa.Table, row_groups: Sequence[Collection[int]] | None
    ) -> Iterable[tuple[int, BitMap64]]:
        if not len(pairs.file):
            return []
        ids_of = [tuple(sorted(set(ids))) for ids in pairs.deletes["equality_ids"].to_pylist()]
        # The values of all delete files are indexed once, however many data files they apply to.
        files_by_ids: dict[Ids, dict[DeleteFile, int]] = {}
        number_of = np.zeros(len(ids_of), np.int64)
        for position, (ids, delete_file) in enumerate(zip(ids_of, pairs.delete_files, strict=True)):
            numbers = files_by_ids.setdefault(ids, {})
            number_of[position] = numbers.setdefault(delete_file, len(numbers))
        keys = {ids: self._read_deleted_keys(storage, ids, tuple(numbers)) for ids, numbers in files_by_ids.items()}
        kinds = list(files_by_ids)
        kind_of = np.array([kinds.index(ids) for ids in ids_of], np.int64)
        wanted: dict[int, list[EqualityLookup]] = {}
        for file, kind, own in pairs.group_by_kind(kind_of):
            wanted.setdefault(file, []).append(EqualityLookup(kinds[kind], keys[kinds[kind]], number_of[own]))
        indices = list(wanted)
        data = files.drop_columns("deletes").take(pa.array(indices))
        constants = read_constants(data)

        def find(number: int) -> BitMap64:
            row = {name: data[name][number].as_py() for name in ("path", "size", "file_format", "num_records")}
            file = DataFile(storage, row["path"], row["size"], row["file_format"], row["num_records"])
            lookups = wanted[indices[number]]
            union = self._get_columns(tuple(sorted({each for one in lookups for each in one.ids})))
            own_groups = None if row_groups is None else row_groups[indices[number]]
            return make_bitmap(find_deleted(union.read(file, constants[number], own_groups), lookups))

        return zip(indices, run_in_threads(find, range(len(indices)), storage.threads), strict=True)

    def _get_columns(self, ids: tuple[int, ...]) -> EqualityColumns:
        found = self._known_columns.get(ids)
        if found is None:
            found = self._known_columns[ids] = EqualityColumns(self.schemas, ids, self.name_mapping, self.table_name)
        return found

    def _read_deleted_keys(self, storage: Storage, ids: Ids, files: tuple[DeleteFile, ...]) -> DeletedKeys:
        # Parts of a plan need mostly the same delete files, but not always all of them.
        return self._get_cached((EQUALITY, ids, files), lambda: DeletedKeys(self._read_keys(storage, ids, files)))

    def _read_values(self, storage: Storage, ids: Ids, files: Sequence[DeleteFile]) -> DeletedValues | None:
        """Return the values of delete files; None if a compared column is no longer in the table."""
        paths = self._get_columns(ids).current_paths
        if paths is None:
            return None
        keys = pa.concat_tables(self._read_keys(storage, ids, files))
        return DeletedValues(paths, keys.group_by(keys.column_names, use_threads=False).aggregate([]))

    def _read_keys(self, storage: Storage, ids: Ids, files: Sequence[DeleteFile]) -> list[pa.Table]:
        columns = self._get_columns(ids)

        def read(file: DeleteFile) -> pa.Table:
            found: pa.Table = self._get_cached(
                (EQUALITY, ids, file), lambda: columns.read_deletes(DataFile(storage, *file))
            )
            return found

        return run_in_threads(read, files, storage.threads)

    def _get_cached(self, key: Hashable, read: Callable[[], Cached]) -> Cached:
        """Return the cached value of a key; the first thread reads it, and others wait."""
        with self._locks.setdefault(key, Lock()):
            try:
                cached: Cached = self._cache.get(key)
            except KeyError:
                cached = read()
                self._cache.put(key, cached, cached.nbytes)
        self._locks.pop(key, None)
        return cached


def _unite_bitmaps(deleted: Iterable[tuple[int, BitMap64]]) -> dict[int, BitMap64]:
    """Return the deleted rows of each file, in the order of the files."""
    found: dict[int, list[BitMap64]] = {}
    for file, rows in deleted:
        found.setdefault(file, []).append(rows)
    return {file: BitMap64.union(*own) if len(own) > 1 else own[0] for file, own in sorted(found.items())}


def make_bitmap(positions: Numbers) -> BitMap64:
    """Return the bitmap of row positions, which may be in any order."""
    return bitmap64_from_runs(*runs_from_sorted_rows(np.sort(positions)))


@dataclass(frozen=True)
class _Pairs:
    """Pairs of a data file and a delete that applies to it. There may be many more pairs than deletes."""

    deletes: pa.Table
    """The deletes that apply to some of the files; the columns are `DELETE`."""
    file: Numbers
    delete: Numbers
    """The indices of the file and of the delete of each pair."""

    @staticmethod
    def of_files(files: pa.Table) -> _Pairs | None:
        """Build the pairs from the lists of a listing: see `deletes_index`. None if there are no deletes."""
        given = files["deletes"].combine_chunks()
        if given.null_count == len(given):
            return None
        values = pc.list_flatten(given)
        used, delete = np.unique(values.indices.to_numpy(), return_inverse=True)
        deletes = pa.Table.from_struct_array(values.dictionary.take(pa.array(used)))
        return _Pairs(deletes, pc.list_parent_indices(given).to_numpy(), delete)

    def filter(self, chosen: pa.ChunkedArray) -> _Pairs:
        """Return the pairs of some of the deletes."""
        is_chosen = np.asarray(chosen)
        own = is_chosen[self.delete]
        renumbered = np.cumsum(is_chosen) - 1
        return _Pairs(self.deletes.filter(chosen), self.file[own], renumbered[self.delete[own]])

    @property
    def delete_files(self) -> list[DeleteFile]:
        return list(zip(*(self.deletes[name].to_pylist() for name in ("path", "size", "file_format")), strict=True))

    def group_by_kind(self, kind_of: Numbers) -> Iterator[tuple[int, int, Numbers]]:
        """Yield each file and each kind of its deletes, with the deletes of that kind."""
        kinds = kind_of[self.delete]
        order = np.lexsort((kinds, self.file))
        files, kinds = self.file[order], kinds[order]
        is_first = (np.diff(files, prepend=-1) != 0) | (np.diff(kinds, prepend=-1) != 0)
        starts = np.flatnonzero(is_first)
        own = np.split(self.delete[order], starts[1:]) if len(starts) else []
        return zip(files[starts].tolist(), kinds[starts].tolist(), own, strict=True)
