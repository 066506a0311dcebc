"""The entries of an index in memory: the columns that were requested so far, of all parts.

A missing, damaged or unreachable part has no entries, and a damaged column is unknown: a file without metadata is kept.
The damage is logged once, and the next build repairs it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from threading import RLock

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, MissingFile, StorageError
from tamis.index.store import FILES_PER_ROW_GROUP, SCHEMA, IndexStore, Part
from tamis.io.threads import run_in_threads
from tamis.io.weighted_cache import WeightedCache
from tamis.skipping.metadata import ROW_COUNT

logger = logging.getLogger("tamis")

Rows = npt.NDArray[np.int64]

RowGroupPosition = tuple[int, int]
"""The position of a part, and of one of its row groups."""

KEYS = ("path", "size", "modified_ns")

_UNUSABLE = (CorruptFile, MissingFile, StorageError)
"""The errors of an unusable part: a query returns the same rows without it, and must not fail."""

COLUMN_CACHE = WeightedCache(capacity=256 * 1024 * 1024)
"""The cache of Bloom filters and row group metadata."""

_REQUIRED_COLUMNS: dict[str, pa.DataType] = {
    "path": types.STRING,
    "size": types.LONG,
    "modified_ns": types.LONG,
    ROW_COUNT.name: types.LONG,
}


class Entries:
    """The entries of an index, one row each. It is thread-safe."""

    def __init__(self, store: IndexStore, parts: Sequence[Part]) -> None:
        self._store = store
        self._lock = RLock()
        self._columns: dict[str, pa.Array] = {}
        self._keys: pa.Array | None = None
        self._schemas: tuple[Rows, list[pa.Schema | None]] | None = None
        self.parts = self._find_usable(parts)
        self._starts = np.cumsum([0, *(part.files for part in self.parts)])
        self.load(_REQUIRED_COLUMNS)

    def __len__(self) -> int:
        return int(self._starts[-1])

    def _find_usable(self, parts: Sequence[Part]) -> list[Part]:
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
        logger.warning("ignored a part of the index at '%s', build it again: %s", self._store.location, error)

    def column(self, name: str) -> pa.Array:
        """Return a loaded column."""
        return self._columns[name]

    def load(self, wanted: Mapping[str, pa.DataType]) -> None:
        """Read columns that are not in memory yet, from all parts concurrently."""
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
        # Without batches everything is unknown, paths included, and no file is found in the part.
        return {name: _make_array(batches, name, data_type, part.files) for name, data_type in wanted.items()}

    def find_rows(self, files: pa.Table, root: str) -> Rows:
        """Return the entry of each file (`path`, `size`, `modified_ns`) of the table at `root`; -1 if there is no
        entry.

        An entry with another size or modification time does not count, and a file without these has no entry.
        """
        found = pc.index_in(make_keys(files, root), value_set=self._get_keys(), skip_nulls=True)
        return np.asarray(pc.fill_null(found, -1), np.int64)

    def _get_keys(self) -> pa.Array:
        with self._lock:
            if self._keys is None:
                self._keys = _join_keys(*(self.column(name) for name in KEYS))
            return self._keys

    def split_by_part(self, rows: Rows) -> list[tuple[Part, Rows]]:
        """Return the parts, each with those of some entries, ascending, that it has, numbered within it."""
        own = np.split(rows, np.searchsorted(rows, self._starts[1:-1]))
        return [(part, each - start) for part, each, start in zip(self.parts, own, self._starts, strict=False)]

    def read_schemas(self) -> tuple[Rows, list[pa.Schema | None]]:
        """Return the schema number of each entry, and the distinct schemas; None if it is not recorded."""
        with self._lock:
            if self._schemas is None:
                self.load({SCHEMA: pa.int32()})
                numbers = np.asarray(pc.fill_null(self.column(SCHEMA), -1), np.int64)
                distinct: dict[bytes | None, int] = {None: 0}
                for part, start, end in zip(self.parts, self._starts, self._starts[1:], strict=False):
                    own = self._read_schemas(part)
                    positions = [distinct.setdefault(schema, len(distinct)) for schema in own]
                    # Numbers out of range, including -1, mean that no schema is recorded.
                    valid = (numbers[start:end] >= 0) & (numbers[start:end] < len(own))
                    known = np.array([*positions, 0], np.int64)
                    numbers[start:end] = known[np.where(valid, numbers[start:end], len(own))]
                self._schemas = numbers, [_parse_schema(each) for each in distinct]
            return self._schemas

    def _read_schemas(self, part: Part) -> list[bytes]:
        try:
            return self._store.read_schemas(part)
        except _UNUSABLE as error:
            self._warn(error)
            return []

    def read_filters(self, name: str, rows: Rows) -> list[pa.Buffer | None]:
        """Return the Bloom filters of entries; None for files without one."""
        groups, within = self._locate(rows)
        columns = self._read_columns(name, groups)
        found: list[pa.Buffer | None] = []
        for group, row in zip(groups, within, strict=True):
            column = columns[group]
            found.append(None if column is None else column[row].as_buffer())
        return found

    def read_lists(self, name: str, data_type: pa.DataType, rows: Rows) -> pa.Array:
        """Return a column of lists over the row groups of entries; null if not recorded."""
        groups, within = self._locate(rows)
        columns = self._read_columns(name, groups)
        wanted = pa.list_(data_type)
        starts: dict[RowGroupPosition, int] = {}
        arrays: list[pa.Array] = [pa.nulls(1, wanted)]
        for group, column in columns.items():
            # A column of another type is unknown.
            with suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
                if column is not None:
                    array = column.cast(wanted)
                    starts[group] = sum(map(len, arrays))
                    arrays.append(array)
        indices = [starts[group] + row if group in starts else 0 for group, row in zip(groups, within, strict=True)]
        return pa.concat_arrays(arrays).take(pa.array(indices, types.LONG))

    def _locate(self, rows: Rows) -> tuple[list[RowGroupPosition], list[int]]:
        owners = np.searchsorted(self._starts, rows, side="right") - 1
        local = rows - self._starts[owners]
        groups, within = local // FILES_PER_ROW_GROUP, local % FILES_PER_ROW_GROUP
        return list(zip(owners.tolist(), groups.tolist(), strict=True)), within.tolist()

    def _read_columns(self, name: str, groups: Sequence[RowGroupPosition]) -> dict[RowGroupPosition, pa.Array | None]:
        wanted = list(dict.fromkeys(groups))
        found = run_in_threads(lambda group: self._read_column(name, group), wanted, self._store.storage.threads)
        return dict(zip(wanted, found, strict=True))

    def _read_column(self, name: str, group: RowGroupPosition) -> pa.Array | None:
        """Return a column of one row group of a part, cached; None if it is missing or damaged."""
        part = self.parts[group[0]]
        key = (part.name, part.footer_hash, group[1], name)
        try:
            kept: pa.Array | None = COLUMN_CACHE.get(key)
        except KeyError:
            pass
        else:
            return kept
        try:
            batches = list(self._store.read_part(part, (name,), (group[1],)))
        except _UNUSABLE as error:
            self._warn(error)
            return None
        if not batches or name not in batches[0].schema.names:
            return None
        array = pa.concat_arrays([batch.column(name) for batch in batches])
        COLUMN_CACHE.put(key, array, array.nbytes)
        return array


def make_keys(files: pa.Table, root: str) -> pa.Array:
    """Return the keys of entries: path, size and modification time; null if one of them is unknown."""
    path, size, modified_ns = (files[name].combine_chunks() for name in KEYS)
    return _join_keys(make_relative(path, root), size, modified_ns)


def make_relative(paths: pa.Array, root: str) -> pa.Array:
    """Return paths relative to the table's folder, so that a moved table keeps its index; others stay absolute."""
    prefix = f"{root.rstrip('/')}/"
    return pc.if_else(pc.starts_with(paths, prefix), pc.utf8_slice_codeunits(paths, len(prefix)), paths)


def _join_keys(paths: pa.Array, sizes: pa.Array, times: pa.Array) -> pa.Array:
    return pc.binary_join_element_wise(paths, sizes.cast(types.STRING), times.cast(types.STRING), "/")


def _make_array(batches: Iterable[pa.RecordBatch], name: str, data_type: pa.DataType, count: int) -> pa.Array:
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


def _parse_schema(given: bytes | None) -> pa.Schema | None:
    if given is None:
        return None
    try:
        return pa.ipc.read_schema(pa.py_buffer(given))
    except (pa.ArrowException, OSError):
        return None
