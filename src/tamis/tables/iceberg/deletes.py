"""Deleted rows of data files, as positions: what deletion vectors, position deletes and equality deletes say together.

Which of them are about which file is known from the manifests, see `tamis.tables.iceberg.deletes_index`.
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

from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.roaring import bitmap64_of_runs
from tamis.parquet.runs import runs_of_sorted
from tamis.tables.iceberg.arrow_schema import Json
from tamis.tables.iceberg.data_files import DataFile
from tamis.tables.iceberg.equality_deletes import DeletedKeys, EqualityColumns, Looked, find_deleted
from tamis.tables.iceberg.files import FORMER_VALUES
from tamis.tables.iceberg.position_deletes import PositionDeletes
from tamis.tables.iceberg.puffin import Vector, read_vectors
from tamis.tables.source import known_otherwise


class _Measured(Protocol):
    @property
    def nbytes(self) -> int: ...


Kept = TypeVar("Kept", bound=_Measured)

Ids = tuple[int, ...]
Place = tuple[str, int, str]
"""A file of deletes: path, size, format."""

POSITIONS, EQUALITY = 1, 2
"""What the manifests call the content of files of deletes."""

KEPT_BYTES = 64 * 1024 * 1024
"""So much of what was read of files of deletes is kept: they are about many data files, which are planned in parts."""

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True)
class DeleteReader:
    """Reads the deletes of one table. Any number of threads may use it."""

    schemas: Sequence[Json]
    """Those that the table has or had, the one that is read first."""
    name_mapping: str | None = None
    place: str = "the table"
    _known_columns: dict[tuple[int, ...], EqualityColumns] = field(default_factory=dict, compare=False, repr=False)
    _locks: dict[Hashable, Lock] = field(default_factory=dict, compare=False, repr=False)
    _kept: WeightedCache = field(default_factory=lambda: WeightedCache(KEPT_BYTES), compare=False, repr=False)

    def deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """The positions of deleted rows of some files of a listing, by the indices of the files.

        Values are compared in the row groups that matter, where those are given.
        """
        given = files["deletes"].combine_chunks()
        if given.null_count == len(given):
            return {}
        pairs = _Pairs.of(given)
        is_vector = pc.is_valid(pairs.deletes["offset"])
        by_equality = pc.equal(pairs.deletes["content"], EQUALITY)
        by_position = pc.and_(pc.equal(pairs.deletes["content"], POSITIONS), pc.invert(is_vector))
        found: dict[int, list[BitMap64]] = {}
        for file, rows in (
            *self._of_vectors(storage, pairs.where(is_vector)),
            *self._of_positions(storage, pairs.where(by_position), files),
            *self._of_equality(storage, pairs.where(by_equality), files, row_groups),
        ):
            found.setdefault(file, []).append(rows)
        return {file: BitMap64.union(*own) if len(own) > 1 else own[0] for file, own in sorted(found.items())}

    # --- Each kind --------------------------------------------------------------------------------------------------

    @staticmethod
    def _of_vectors(storage: Storage, pairs: _Pairs) -> Iterable[tuple[int, BitMap64]]:
        names = ("path", "size", "offset", "length", "cardinality")
        entries = pairs.deletes.take(pa.array(pairs.delete))
        vectors = [Vector(*row) for row in zip(*(entries[name].to_pylist() for name in names), strict=True)]
        return zip(pairs.file.tolist(), read_vectors(storage, vectors), strict=True)

    def _of_positions(self, storage: Storage, pairs: _Pairs, files: pa.Table) -> Iterable[tuple[int, BitMap64]]:
        if not len(pairs.file):
            return []
        places = pairs.places
        # The files that each file of deletes is about.
        ends = np.cumsum(np.bincount(pairs.delete, minlength=len(places)))
        owners = np.split(pairs.file[np.argsort(pairs.delete, kind="stable")], ends[:-1])
        read = run_in_threads(lambda each: self._position_deletes(storage, each), places, storage.threads)
        positions: dict[int, list[Numbers]] = {}
        locations = files["location"].combine_chunks()
        for own, deletes in zip(owners, read, strict=True):
            for place, rows in deletes.of_paths(locations.take(pa.array(own))):
                positions.setdefault(int(own[place]), []).append(rows)
        return [(file, bitmap_of(np.concatenate(rows))) for file, rows in positions.items()]

    def _position_deletes(self, storage: Storage, file: Place) -> PositionDeletes:
        return self._once((POSITIONS, file), lambda: PositionDeletes.read(DataFile(storage, *file)))

    def _of_equality(
        self, storage: Storage, pairs: _Pairs, files: pa.Table, row_groups: Sequence[Collection[int]] | None
    ) -> Iterable[tuple[int, BitMap64]]:
        if not len(pairs.file):
            return []
        ids_of = [tuple(sorted(set(ids))) for ids in pairs.deletes["equality_ids"].to_pylist()]
        # The values of all files of deletes are put in order once, however many data files they are about.
        places: dict[Ids, dict[Place, int]] = {}
        number_of = np.zeros(len(ids_of), np.int64)
        for position, (ids, place) in enumerate(zip(ids_of, pairs.places, strict=True)):
            numbers = places.setdefault(ids, {})
            number_of[position] = numbers.setdefault(place, len(numbers))
        keys = {ids: self._deleted_keys(storage, ids, tuple(numbers)) for ids, numbers in places.items()}
        kinds = list(places)
        kind_of = np.array([kinds.index(ids) for ids in ids_of], np.int64)
        wanted: dict[int, list[Looked]] = {}
        for file, kind, own in pairs.grouped(kind_of):
            wanted.setdefault(file, []).append(Looked(kinds[kind], keys[kinds[kind]], number_of[own]))
        indices = list(wanted)
        data = files.drop_columns("deletes").take(pa.array(indices))
        known = known_otherwise(data)
        former = known_otherwise(data, FORMER_VALUES)

        def find(number: int) -> BitMap64:
            row = {name: data[name][number].as_py() for name in ("path", "size", "file_format", "num_records")}
            file = DataFile(storage, row["path"], row["size"], row["file_format"], row["num_records"])
            looked = wanted[indices[number]]
            union = self._columns(tuple(sorted({each for one in looked for each in one.ids})))
            own_groups = None if row_groups is None else row_groups[indices[number]]
            return bitmap_of(find_deleted(union.read(file, known[number], former[number], own_groups), looked))

        return zip(indices, run_in_threads(find, range(len(indices)), storage.threads), strict=True)

    def _columns(self, ids: tuple[int, ...]) -> EqualityColumns:
        found = self._known_columns.get(ids)
        if found is None:
            found = self._known_columns[ids] = EqualityColumns(self.schemas, ids, self.name_mapping, self.place)
        return found

    def _deleted_keys(self, storage: Storage, ids: Ids, files: tuple[Place, ...]) -> DeletedKeys:
        columns = self._columns(ids)

        def read(file: Place) -> pa.Table:
            found: pa.Table = self._once((EQUALITY, ids, file), lambda: columns.read_deletes(DataFile(storage, *file)))
            return found

        # Parts of a plan may need other files of deletes each, of which most are the same.
        return self._once((EQUALITY, ids, files), lambda: DeletedKeys(run_in_threads(read, files, storage.threads)))

    def _once(self, key: Hashable, read: Callable[[], Kept]) -> Kept:
        """What is kept under a key, read by the first thread that asks while others wait for it."""
        with self._locks.setdefault(key, Lock()):
            try:
                kept: Kept = self._kept.get(key)
            except KeyError:
                kept = read()
                self._kept.put(key, kept, kept.nbytes)
        self._locks.pop(key, None)
        return kept


def bitmap_of(positions: Numbers) -> BitMap64:
    """The bitmap of rows, in any order."""
    return bitmap64_of_runs(*runs_of_sorted(np.sort(positions)))


@dataclass(frozen=True)
class _Pairs:
    """Data files and deletes that are for them. There may be many more pairs than deletes."""

    deletes: pa.Table
    """`DELETE`, those that are for some of the files."""
    file: Numbers
    delete: Numbers
    """For each pair the index of the file, and that of the delete."""

    @staticmethod
    def of(given: pa.ListArray) -> _Pairs:
        """Of the lists that a listing has: see `deletes_index`."""
        values = pc.list_flatten(given)
        used, delete = np.unique(values.indices.to_numpy(), return_inverse=True)
        deletes = pa.Table.from_struct_array(values.dictionary.take(pa.array(used)))
        return _Pairs(deletes, pc.list_parent_indices(given).to_numpy(), delete)

    def where(self, chosen: pa.ChunkedArray) -> _Pairs:
        """The pairs of some of the deletes."""
        is_chosen = np.asarray(chosen)
        own = is_chosen[self.delete]
        renumbered = np.cumsum(is_chosen) - 1
        return _Pairs(self.deletes.filter(chosen), self.file[own], renumbered[self.delete[own]])

    @property
    def places(self) -> list[Place]:
        return list(zip(*(self.deletes[name].to_pylist() for name in ("path", "size", "file_format")), strict=True))

    def grouped(self, kind_of: Numbers) -> Iterator[tuple[int, int, Numbers]]:
        """For each file, and each kind of the deletes that are for it: those deletes."""
        kinds = kind_of[self.delete]
        order = np.lexsort((kinds, self.file))
        files, kinds = self.file[order], kinds[order]
        is_first = (np.diff(files, prepend=-1) != 0) | (np.diff(kinds, prepend=-1) != 0)
        starts = np.flatnonzero(is_first)
        own = np.split(self.delete[order], starts[1:]) if len(starts) else []
        return zip(files[starts].tolist(), kinds[starts].tolist(), own, strict=True)
