"""The positions of deleted rows of data files, from deletion vectors, position deletes and equality deletes.

`tamis.formats.iceberg.deletes.deletes_index` assigns deletes to data files.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from threading import Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis.formats.constants import read_constants
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.files.data_files import DataFile
from tamis.formats.iceberg.deletes.position_deletes import DeletionVector, PositionDeletes, read_deletion_vectors
from tamis.formats.iceberg.partitioning.specs import find_field_chain, name_former
from tamis.formats.iceberg.schema import Json, arrow_schema, make_field_names
from tamis.formats.jobs import Arguments
from tamis.formats.source import DeletedValues, FilesWithDeletedValues
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.leaves import FieldPath
from tamis.parquet.reading.conform import Constants
from tamis.parquet.selection.runs import bitmap64_from_runs, runs_from_sorted_rows

Cached = TypeVar("Cached", "pa.Table", "PositionDeletes", "DeletedKeys")

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
        columns = EqualityColumns(self.schemas, ids, self.name_mapping, self.table_name)
        return self._known_columns.setdefault(ids, columns)

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


# --- Equality deletes: finding the positions of rows whose values in the compared columns equal those of a delete -----
#
# | values                  | equal                                                      |
# |-------------------------|------------------------------------------------------------|
# | NULL and NULL           | yes                                                        |
# | NaN and NaN             | yes                                                        |
# | 0.0 and -0.0            | no, as in Iceberg's own implementation, which compares bits |
#
# The columns are identified by field id. Since the delete was written they may have been renamed, promoted or dropped:
# the delete applies nevertheless.

Codes = npt.NDArray[np.int64]

LOOKUP_ROWS = 1024 * 1024
"""The number of rows that are looked up at a time: each lookup has a fixed cost."""


@dataclass(frozen=True)
class EqualityColumns:
    """The compared columns, by field id, each from the newest schema that has it.

    `schemas` are all schemas of the table, the newest first.
    """

    schemas: Sequence[Json]
    ids: tuple[int, ...]
    name_mapping: str | None
    table_name: str

    @cached_property
    def schema(self) -> pa.Schema:
        """The schema of the columns with field ids as names, because a name may belong to another field now."""
        return arrow_schema(self._pruned, self.table_name)

    @cached_property
    def names(self) -> ColumnMapping:
        return make_field_names(self._pruned, self.name_mapping)

    @cached_property
    def current_paths(self) -> tuple[FieldPath, ...] | None:
        """The paths of the columns in the schema that is read, in the order of the ids; None if it lacks one."""
        chains = [find_field_chain(self.schemas[:1], number) for number in self.ids]
        found = [tuple(each["name"] for each in chain) for chain in chains if chain is not None]
        return tuple(found) if len(found) == len(chains) else None

    @cached_property
    def _paths(self) -> dict[FieldPath, FieldPath]:
        """The paths in ids by the columns' current paths, or as dropped columns."""
        current = [chain for number in self.ids if (chain := find_field_chain(self.schemas[:1], number)) is not None]
        known = {name_former(chain[-1]["id"]): chain for chain in self._chains}
        known |= {tuple(each["name"] for each in chain): chain for chain in current}
        return {path: tuple(str(each["id"]) for each in chain) for path, chain in known.items()}

    @cached_property
    def _chains(self) -> list[list[Json]]:
        """The fields from the outermost to the compared one, for each id."""
        return [self._find_chain(number) for number in self.ids]

    def _find_chain(self, number: int) -> list[Json]:
        chain = find_field_chain(self.schemas, number)
        if chain is None:
            raise make_corrupt_snapshot_error(
                f"equality deletes of {self.table_name} compare the field {number}, which no schema of the table has: "
                "its metadata is damaged"
            )
        kind = chain[-1]["type"]
        if not isinstance(kind, str):
            name = ".".join(each["name"] for each in chain)
            raise make_corrupt_snapshot_error(
                f"equality deletes of {self.table_name} compare the column '{name}' of the type {kind['type']}, "
                "expected a primitive type: the metadata is damaged"
            )
        return chain

    @cached_property
    def _pruned(self) -> dict[str, Any]:
        """A schema with only the columns and the structs around them, with ids as names."""
        fields: dict[int, dict[str, Any]] = {}
        for chain in self._chains:
            level = fields
            for each in chain:
                kept = level.setdefault(each["id"], {**each, "name": str(each["id"]), "required": False, "inner": {}})
                level = kept["inner"]
        return {"fields": _list_fields(fields)}

    def read(
        self, file: DataFile, constants: Constants, row_groups: Collection[int] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Read the columns of a data file or some of its row groups, with the position of each batch's first row."""
        own = {self._paths[path]: value for path, value in constants.items() if path in self._paths}
        for start, batch in file.read_with_positions(self.schema, self.names, own, row_groups=row_groups):
            yield start, self._flatten(batch)

    def read_deletes(self, file: DataFile) -> pa.Table:
        """Read the columns of an equality delete file."""
        batches = [self._flatten(batch) for batch in file.read(self.schema, self.names, must_have_all=True)]
        return pa.Table.from_batches(batches or [self._flatten(pa.RecordBatch.from_pylist([], self.schema))])

    def _flatten(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns as top-level columns, in the order of the ids."""
        arrays = []
        for chain in self._chains:
            values = batch.column(str(chain[0]["id"]))
            for each in chain[1:]:
                # A field of a NULL struct is NULL.
                values = values.flatten()[values.type.get_field_index(str(each["id"]))]
            arrays.append(values)
        return pa.RecordBatch.from_arrays(arrays, names=list(map(str, self.ids)))


def _list_fields(fields: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**each, "inner": None, "type": {"type": "struct", "fields": _list_fields(each["inner"])}}
        if each["inner"]
        else dict(each)
        for each in fields.values()
    ]


class DeletedKeys:
    """The deleted keys of several equality delete files, as an index. It is thread-safe.

    Column by column, each value becomes a code, and the codes of a row's prefix and of its next value become the code
    of the longer prefix: as many vectorized steps as there are columns.

    Only some of the delete files may apply to a data file: those that were written after it.
    """

    def __init__(self, deleted: Sequence[pa.Table]) -> None:
        """Index the rows of each delete file; `deleted` has at least one table."""
        together = pa.concat_tables(deleted)
        self._file_of_row = np.repeat(np.arange(len(deleted)), [each.num_rows for each in deleted])
        self._file_count = len(deleted)
        self._values: list[pa.Array] = []
        self._pairs: list[Codes] = []
        found = np.zeros(together.num_rows, np.int64)
        for column in together.columns:
            plain = _to_comparable(column.combine_chunks())
            values = plain.unique()
            self._values.append(values)
            pairs = found * len(values) + _find_codes(plain, values)
            known, found = np.unique(pairs, return_inverse=True)
            self._pairs.append(known)
        self._row_codes = found

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (*self._values, *self._pairs, self._row_codes, self._file_of_row))

    def find(self, rows: pa.Table, files: Codes | None = None) -> Codes:
        """Return the indices of the rows whose key is in some of the delete files, given by number; None: in any."""
        indices = np.arange(rows.num_rows)
        found = np.zeros(rows.num_rows, np.int64)
        for column, values, pairs in zip(rows.columns, self._values, self._pairs, strict=True):
            codes = _find_codes(_to_comparable(column.combine_chunks()).take(pa.array(indices)), values)
            is_known = codes >= 0
            indices, wanted = indices[is_known], found[is_known] * len(values) + codes[is_known]
            position = np.minimum(np.searchsorted(pairs, wanted), max(len(pairs) - 1, 0))
            is_there = pairs[position] == wanted if len(pairs) else np.zeros(len(wanted), bool)
            indices, found = indices[is_there], position[is_there]
        if files is None or len(np.unique(files)) == self._file_count:
            return indices
        return indices[self._is_in_files(files)[found]]

    def _is_in_files(self, files: Codes) -> npt.NDArray[np.bool_]:
        """Return, for each distinct key, whether it is in some of the delete files."""
        is_wanted = np.zeros(self._file_count, bool)
        is_wanted[files] = True
        found = np.zeros(len(self._pairs[-1]), bool)
        found[self._row_codes[is_wanted[self._file_of_row]]] = True
        return found


@dataclass(frozen=True, slots=True)
class EqualityLookup:
    """A lookup in a data file: the compared field ids, their deleted keys, and the delete files that apply."""

    ids: tuple[int, ...]
    keys: DeletedKeys
    files: Codes | None = None
    """The numbers of the delete files; None: all."""


def _find_codes(values: pa.Array, known: pa.Array) -> Codes:
    """Return the index of each value among the known values, -1 if it is not among them."""
    return np.asarray(pc.fill_null(pc.index_in(values, value_set=known, skip_nulls=False), -1), np.int64)


def _to_comparable(values: pa.Array) -> pa.Array:
    """Convert values so that Arrow's equality matches Iceberg's."""
    if not pa.types.is_floating(values.type):
        return values
    nan = pa.scalar(float("nan"), values.type)
    one_nan = pc.if_else(pc.is_nan(values), nan, values)
    return one_nan.view(pa.int32() if values.type.bit_width == 32 else pa.int64())


def find_deleted(batches: Iterator[tuple[int, pa.RecordBatch]], lookups: Sequence[EqualityLookup]) -> Codes:
    """Return the positions of deleted rows of a file.

    `batches` are its columns, named by field id, with the position of each batch's first row.
    """
    found: list[Codes] = [np.zeros(0, np.int64)]
    for positions, rows in _combine_batches(batches):
        found += [
            positions[each.keys.find(rows.select([str(number) for number in each.ids]), each.files)] for each in lookups
        ]
    return np.sort(np.concatenate(found))


def _combine_batches(batches: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[Codes, pa.Table]]:
    """Combine batches to larger tables, with the position of each row."""
    pending: list[tuple[int, pa.RecordBatch]] = []
    for each in batches:
        pending.append(each)
        if sum(batch.num_rows for _, batch in pending) >= LOOKUP_ROWS:
            yield _combine(pending)
            pending = []
    if pending:
        yield _combine(pending)


def _combine(batches: Sequence[tuple[int, pa.RecordBatch]]) -> tuple[Codes, pa.Table]:
    positions = np.concatenate([np.arange(start, start + batch.num_rows) for start, batch in batches])
    return positions, pa.Table.from_batches([batch for _, batch in batches])
