"""Deleted rows of data files, as positions: what deletion vectors, position deletes and equality deletes say together.

Which of them are about which file is known from the manifests, see `tamis.tables.iceberg.deletes_index`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
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

Positions = npt.NDArray[np.int64]


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
        deletes = files["deletes"].combine_chunks()
        if deletes.null_count == len(deletes):
            return {}
        entries = pa.Table.from_struct_array(pc.list_flatten(deletes)).append_column(
            "file", pc.list_parent_indices(deletes)
        )
        is_vector = pc.is_valid(entries["offset"])
        by_equality = pc.equal(entries["content"], EQUALITY)
        by_position = pc.and_(pc.equal(entries["content"], POSITIONS), pc.invert(is_vector))
        found: dict[int, list[BitMap64]] = {}
        for file, rows in (
            *self._of_vectors(storage, entries.filter(is_vector)),
            *self._of_positions(storage, entries.filter(by_position), files),
            *self._of_equality(storage, entries.filter(by_equality), files, row_groups),
        ):
            found.setdefault(file, []).append(rows)
        return {file: BitMap64.union(*own) if len(own) > 1 else own[0] for file, own in sorted(found.items())}

    # --- Each kind --------------------------------------------------------------------------------------------------

    @staticmethod
    def _of_vectors(storage: Storage, entries: pa.Table) -> Iterable[tuple[int, BitMap64]]:
        names = ("path", "size", "offset", "length", "cardinality")
        vectors = [Vector(*row) for row in zip(*(entries[name].to_pylist() for name in names), strict=True)]
        return zip(entries["file"].to_pylist(), read_vectors(storage, vectors), strict=True)

    def _of_positions(self, storage: Storage, entries: pa.Table, files: pa.Table) -> Iterable[tuple[int, BitMap64]]:
        if not entries.num_rows:
            return []
        grouped = _by_file_of_deletes(entries)
        read = run_in_threads(lambda each: self._position_deletes(storage, each), grouped, storage.threads)
        positions: dict[int, list[Positions]] = {}
        locations = files["location"].combine_chunks()
        for own, deletes in zip(grouped.values(), read, strict=True):
            found = deletes.of_paths(locations.take(pa.array(own)))
            for file, rows in zip(own, found, strict=True):
                positions.setdefault(file, []).append(rows)
        return [(file, bitmap_of(np.concatenate(rows))) for file, rows in positions.items()]

    def _position_deletes(self, storage: Storage, file: Place) -> PositionDeletes:
        return self._once((POSITIONS, file), lambda: PositionDeletes.read(DataFile(storage, *file)))

    def _of_equality(
        self, storage: Storage, entries: pa.Table, files: pa.Table, row_groups: Sequence[Collection[int]] | None
    ) -> Iterable[tuple[int, BitMap64]]:
        if not entries.num_rows:
            return []
        wanted: dict[int, dict[Ids, list[Place]]] = {}
        columns = (entries[name].to_pylist() for name in ("file", "equality_ids", "path", "size", "file_format"))
        for file, ids, path, size, file_format in zip(*columns, strict=True):
            wanted.setdefault(file, {}).setdefault(tuple(sorted(ids)), []).append((path, size, file_format))
        # The values of all files of deletes are put in order once, however many data files they are about.
        places: dict[Ids, dict[Place, int]] = {}
        for groups in wanted.values():
            for ids, own in groups.items():
                numbers = places.setdefault(ids, {})
                for place in own:
                    numbers.setdefault(place, len(numbers))
        keys = {ids: self._deleted_keys(storage, ids, tuple(numbers)) for ids, numbers in places.items()}
        indices = list(wanted)
        data = files.take(pa.array(indices))
        known = known_otherwise(data)

        def find(number: int) -> BitMap64:
            row = {name: data[name][number].as_py() for name in ("path", "size", "file_format", "num_records")}
            file = DataFile(storage, row["path"], row["size"], row["file_format"], row["num_records"])
            groups = wanted[indices[number]]
            looked = [Looked(ids, keys[ids], [places[ids][place] for place in own]) for ids, own in groups.items()]
            union = self._columns(tuple(sorted({each for ids in groups for each in ids})))
            own_groups = None if row_groups is None else row_groups[indices[number]]
            return bitmap_of(find_deleted(union.read(file, known[number], own_groups), looked))

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


def bitmap_of(positions: Positions) -> BitMap64:
    """The bitmap of rows, in any order."""
    return bitmap64_of_runs(*runs_of_sorted(np.sort(positions)))


def _by_file_of_deletes(entries: pa.Table) -> dict[Place, list[int]]:
    """The files that each file of deletes is about."""
    found: dict[Place, list[int]] = {}
    columns = (entries[name].to_pylist() for name in ("file", "path", "size", "file_format"))
    for file, path, size, file_format in zip(*columns, strict=True):
        found.setdefault((path, size, file_format), []).append(file)
    return found
