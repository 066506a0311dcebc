"""The entries of an index in memory: those columns that somebody asked about, of all parts together.

A part that is gone, damaged or out of reach has no entries, and a damaged column of it is unknown: whatever an index
does not tell keeps a file. That is logged once, and the next build makes it good.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from threading import RLock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, MissingFile, StorageError
from tamis.index.store import FILES_OF_A_ROW_GROUP, SCHEMA, IndexStore, Part
from tamis.io.threads import run_in_threads
from tamis.io.weighted_cache import WeightedCache
from tamis.skipping.metadata import ROW_COUNT

logger = logging.getLogger("tamis")

Rows = npt.NDArray[np.int64]

Place = tuple[int, int]
"""A part, and one of its row groups."""

KEYS = ("path", "size", "modified_ns")

_UNUSABLE = (CorruptFile, MissingFile, StorageError)
"""What a part may be: a query returns the same rows without it, and must not fail because of it."""

PIECES = WeightedCache(capacity=256 * 1024 * 1024)
"""The Bloom filters, and what is known of row groups, that were read last."""

_ALWAYS: dict[str, pa.DataType] = {
    "path": types.STRING,
    "size": types.LONG,
    "modified_ns": types.LONG,
    ROW_COUNT.name: types.LONG,
}


class Entries:
    """The entries of an index, a row each. Any number of threads may use it."""

    def __init__(self, store: IndexStore, parts: Sequence[Part]) -> None:
        self._store = store
        self._lock = RLock()
        self._columns: dict[str, pa.Array] = {}
        self._keys: pa.Array | None = None
        self._schemas: tuple[Rows, list[pa.Schema | None]] | None = None
        self.parts = self._usable(parts)
        self._starts = np.cumsum([0, *(part.files for part in self.parts)])
        self.load(_ALWAYS)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _usable(self, parts: Sequence[Part]) -> list[Part]:
        def is_usable(part: Part) -> bool:
            try:
                self._store.open_part(part)
            except _UNUSABLE as error:
                self._warn(error)
                return False
            return True

        usable = run_in_threads(is_usable, parts, self._store.storage.threads)
        return [part for part, is_there in zip(parts, usable, strict=True) if is_there]

    def _warn(self, error: Exception) -> None:
        logger.warning("a part of the index at '%s' is ignored, build it again: %s", self._store.place, error)

    def column(self, name: str) -> pa.Array:
        """A column that was loaded."""
        return self._columns[name]

    def load(self, wanted: Mapping[str, pa.DataType]) -> None:
        """Read columns that are not in memory yet, all parts side by side."""
        with self._lock:
            missing = {name: data_type for name, data_type in wanted.items() if name not in self._columns}
            if not missing:
                return
            each = run_in_threads(lambda part: self._read(part, missing), self.parts, self._store.storage.threads)
            for name, data_type in missing.items():
                arrays = [found[name] for found in each]
                self._columns[name] = pa.concat_arrays(arrays) if arrays else pa.nulls(0, data_type)

    def _read(self, part: Part, wanted: Mapping[str, pa.DataType]) -> dict[str, pa.Array]:
        try:
            batches = list(self._store.read_part(part, wanted))
        except _UNUSABLE as error:
            self._warn(error)
            batches = []
        # Without batches all is unknown, paths too, and nothing of the part is found.
        return {name: _array(batches, name, data_type, part.files) for name, data_type in wanted.items()}

    def rows_of(self, files: pa.Table, root: str) -> Rows:
        """The entry of each file (`path`, `size`, `modified_ns`) of the table at `root`; -1 for none.

        An entry that was made when the file had another size or time is none, and so is one of a file without either.
        """
        found = pc.index_in(keys_of(files, root), value_set=self._own_keys(), skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1), np.int64)

    def _own_keys(self) -> pa.Array:
        with self._lock:
            if self._keys is None:
                self._keys = _joined(*(self.column(name) for name in KEYS))
            return self._keys

    def live_counts(self, rows: Rows) -> npt.NDArray[np.int64]:
        """How many of some entries, ascending, are in each of the parts."""
        counts: npt.NDArray[np.int64] = np.diff(np.searchsorted(rows, self._starts))
        return counts

    def rows_in(self, part: int, rows: Rows) -> Rows:
        """Those of some entries that are in a part, counted within it."""
        start, end = self._starts[part], self._starts[part + 1]
        found: Rows = rows[(rows >= start) & (rows < end)] - start
        return found

    def schemas(self) -> tuple[Rows, list[pa.Schema | None]]:
        """The distinct schemas of files, and which of them each entry has; None where it is not noted."""
        with self._lock:
            if self._schemas is None:
                self.load({SCHEMA: pa.int32()})
                numbers = np.asarray(pc.fill_null(self.column(SCHEMA), -1), np.int64)
                distinct: dict[bytes | None, int] = {None: 0}
                for part, start, end in zip(self.parts, self._starts, self._starts[1:], strict=False):
                    own = self._schemas_of(part)
                    places = [distinct.setdefault(schema, len(distinct)) for schema in own]
                    # Whatever is beyond, -1 included, is no schema.
                    valid = (numbers[start:end] >= 0) & (numbers[start:end] < len(own))
                    known = np.array([*places, 0], np.int64)
                    numbers[start:end] = known[np.where(valid, numbers[start:end], len(own))]
                self._schemas = numbers, [_schema(each) for each in distinct]
            return self._schemas

    def _schemas_of(self, part: Part) -> list[bytes]:
        try:
            return self._store.schemas_of(part)
        except _UNUSABLE as error:
            self._warn(error)
            return []

    def filters(self, name: str, rows: Rows) -> list[pa.Buffer | None]:
        """The Bloom filters of entries; None for those that have none."""
        places, within = self._places(rows)
        pieces = self._pieces(name, places)
        found: list[pa.Buffer | None] = []
        for place, row in zip(places, within, strict=True):
            piece = pieces[place]
            found.append(None if piece is None else piece[row].as_buffer())
        return found

    def lists(self, name: str, data_type: pa.DataType, rows: Rows) -> pa.Array:
        """A column of lists about the row groups of entries; null where it is not noted."""
        places, within = self._places(rows)
        pieces = self._pieces(name, places)
        wanted = pa.list_(data_type)
        starts: dict[Place, int] = {}
        arrays: list[pa.Array] = [pa.nulls(1, wanted)]
        for place, piece in pieces.items():
            array = None if piece is None else _as_list(piece, data_type)
            if array is not None:
                starts[place] = sum(map(len, arrays))
                arrays.append(array)
        taken = [starts[place] + row if place in starts else 0 for place, row in zip(places, within, strict=True)]
        return pa.concat_arrays(arrays).take(pa.array(taken, types.LONG))

    def _places(self, rows: Rows) -> tuple[list[Place], list[int]]:
        """The part and row group in which each entry is, and its number there."""
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        local = rows - self._starts[owners]
        groups, within = local // FILES_OF_A_ROW_GROUP, local % FILES_OF_A_ROW_GROUP
        return list(zip(owners.tolist(), groups.tolist(), strict=True)), within.tolist()

    def _pieces(self, name: str, places: Sequence[Place]) -> dict[Place, pa.Array | None]:
        wanted = list(dict.fromkeys(places))
        found = run_in_threads(lambda place: self._piece(name, place), wanted, self._store.storage.threads)
        return dict(zip(wanted, found, strict=True))

    def _piece(self, name: str, place: Place) -> pa.Array | None:
        """A column of one row group of a part; None where it cannot be had."""
        part = self.parts[place[0]]
        key = (part.name, part.footer_hash, place[1], name)
        try:
            kept: pa.Array | None = PIECES.get(key)
        except KeyError:
            pass
        else:
            return kept
        try:
            batches = list(self._store.read_part(part, (name,), (place[1],)))
        except _UNUSABLE as error:
            self._warn(error)
            return None
        if not batches or name not in batches[0].schema.names:
            return None
        array = pa.concat_arrays([batch.column(name) for batch in batches])
        PIECES.put(key, array, array.nbytes)
        return array


def _as_list(array: pa.Array, data_type: pa.DataType) -> pa.Array | None:
    try:
        return array.cast(pa.list_(data_type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def keys_of(files: pa.Table, root: str) -> pa.Array:
    """What entries are found by: path, size and time of change; null where one of them is not known."""
    path, size, modified_ns = (files[name].combine_chunks() for name in KEYS)
    return _joined(relative_paths(path, root), size, modified_ns)


def relative_paths(paths: pa.Array, root: str) -> pa.Array:
    """Paths below the table's folder, so that a table that is moved keeps its index; others stay whole."""
    prefix = f"{root.rstrip('/')}/"
    return pc.if_else(pc.starts_with(paths, prefix), pc.utf8_slice_codeunits(paths, len(prefix)), paths)


def _joined(paths: pa.Array, sizes: pa.Array, times: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(paths, sizes.cast(types.STRING), times.cast(types.STRING), "/")


def _array(batches: Iterable[pa.RecordBatch], name: str, data_type: pa.DataType, count: int) -> pa.Array:
    arrays = [batch.column(name) for batch in batches if name in batch.schema.names]
    if not arrays:
        return pa.nulls(count, data_type)
    found = pa.concat_arrays(arrays)
    if found.type == data_type:
        return found
    try:
        # Parquet has no seconds, and stores them as milliseconds.
        return found.cast(data_type)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return pa.nulls(count, data_type)


def _schema(given: bytes | None) -> pa.Schema | None:
    if given is None:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(given))
    except (pa.ArrowException, OSError):
        return None
