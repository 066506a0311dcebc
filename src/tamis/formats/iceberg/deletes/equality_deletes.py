"""Equality deletes: finding the positions of rows whose values in the compared columns equal those of a delete.

| values                  | equal                                                      |
|-------------------------|------------------------------------------------------------|
| NULL and NULL           | yes                                                        |
| NaN and NaN             | yes                                                        |
| 0.0 and -0.0            | no, as in Iceberg's own implementation, which compares bits |

The columns are identified by field id. Since the delete was written they may have been renamed, promoted or dropped:
the delete applies nevertheless.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.files.data_files import DataFile
from tamis.formats.iceberg.partitioning.specs import find_field_chain, name_former
from tamis.formats.iceberg.schema import Json, arrow_schema, make_field_names
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.leaves import FieldPath
from tamis.parquet.reading.conform import Constants

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
