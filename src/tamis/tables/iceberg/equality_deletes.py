"""Equality deletes: rows whose values in some columns are those of a deleted row, found by their positions.

| values                  | equal                                                      |
|-------------------------|------------------------------------------------------------|
| NULL and NULL           | yes                                                        |
| NaN and NaN             | yes                                                        |
| 0.0 and -0.0            | no, as in Iceberg's own implementation, which compares bits |

The columns are known by ids. They may have other names today, other types, or be gone from the table: what was deleted
by them is deleted all the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile
from tamis.parquet.conform import Constants
from tamis.parquet.field_names import FieldNames
from tamis.parquet.leaves import FieldPath
from tamis.tables.iceberg.arrow_schema import Json, arrow_schema
from tamis.tables.iceberg.data_files import DataFile
from tamis.tables.iceberg.field_names import field_names_of
from tamis.tables.iceberg.specs import chain_to

Codes = npt.NDArray[np.int64]

ROWS_AT_ONCE = 1024 * 1024
"""So many rows are looked up together: to prepare what is looked for costs as much each time."""


@dataclass(frozen=True)
class EqualityColumns:
    """Columns of a table by their ids, each as its newest schema has it, and how they are found in files.

    `schemas` are those that the table has or had, the newest first.
    """

    schemas: Sequence[Json]
    ids: tuple[int, ...]
    name_mapping: str | None
    place: str

    @cached_property
    def schema(self) -> pa.Schema:
        """With ids for names: a name may be that of another field by now."""
        return arrow_schema(self._pruned, self.place)

    @cached_property
    def names(self) -> FieldNames:
        return field_names_of(self._pruned, self.name_mapping)

    @cached_property
    def _today(self) -> dict[str | FieldPath, str | FieldPath]:
        """The columns by their names, or paths, of today."""
        chains = [chain for number in self.ids if (chain := chain_to(self.schemas[:1], number)) is not None]
        return {_key(each["name"] for each in chain): _key(str(each["id"]) for each in chain) for chain in chains}

    @cached_property
    def _by_id(self) -> dict[str | FieldPath, str | FieldPath]:
        return {str(chain[-1]["id"]): _key(str(each["id"]) for each in chain) for chain in self._chains}

    @cached_property
    def _chains(self) -> list[list[Json]]:
        """For each id the fields from the outermost to its own."""
        return [self._chain(number) for number in self.ids]

    def _chain(self, number: int) -> list[Json]:
        chain = chain_to(self.schemas, number)
        if chain is None:
            raise CorruptFile(
                f"rows of {self.place} are deleted by the field {number}, which no schema of the table has: its "
                "metadata is damaged"
            )
        kind = chain[-1]["type"]
        if not isinstance(kind, str):
            name = ".".join(each["name"] for each in chain)
            raise CorruptFile(
                f"rows of {self.place} are deleted by the column '{name}', which is a {kind['type']}: only plain "
                "values are compared, so the metadata is damaged"
            )
        return chain

    @cached_property
    def _pruned(self) -> dict[str, Any]:
        """A schema of nothing but the columns and the structs around them, under ids in place of names."""
        fields: dict[int, dict[str, Any]] = {}
        for chain in self._chains:
            level = fields
            for each in chain:
                kept = level.setdefault(each["id"], {**each, "name": str(each["id"]), "required": False, "inner": {}})
                level = kept["inner"]
        return {"fields": _as_fields(fields)}

    def read(
        self, file: DataFile, where_absent: Constants, former: Constants, row_groups: Collection[int] | None
    ) -> Iterator[tuple[int, pa.RecordBatch]]:
        """The columns of a data file, or of some of its row groups, and the position of the first row of each batch.

        Columns that the file lacks have the values that are given: by names of today, or, of those that are gone from
        the table, by their ids.
        """
        absent = {
            keys[key]: value
            for keys, given in ((self._today, where_absent), (self._by_id, former))
            for key, value in given.items()
            if key in keys
        }
        for start, batch in file.read_places(self.schema, self.names, absent, row_groups=row_groups):
            yield start, self._flat(batch)

    def read_deletes(self, file: DataFile) -> pa.Table:
        """The columns of a file of deletes."""
        batches = [self._flat(batch) for batch in file.read(self.schema, self.names, must_have_all=True)]
        return pa.Table.from_batches(batches or [self._flat(pa.RecordBatch.from_pylist([], self.schema))])

    def _flat(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns one beside the other, in the order of the ids."""
        arrays = []
        for chain in self._chains:
            values = batch.column(str(chain[0]["id"]))
            for each in chain[1:]:
                # What is inside a struct that is NULL is NULL.
                values = values.flatten()[values.type.get_field_index(str(each["id"]))]
            arrays.append(values)
        return pa.RecordBatch.from_arrays(arrays, names=list(map(str, self.ids)))


def _key(names: Iterable[str]) -> str | FieldPath:
    path = tuple(names)
    return path if len(path) > 1 else path[0]


def _as_fields(fields: Mapping[int, Mapping[str, Any]]) -> list[dict[str, Any]]:
    return [
        {**each, "inner": None, "type": {"type": "struct", "fields": _as_fields(each["inner"])}}
        if each["inner"]
        else dict(each)
        for each in fields.values()
    ]


class DeletedKeys:
    """Values of some columns, of which the rows that have them are deleted. Any number of threads may use it.

    Column by column a value becomes a number, and a row the number of its row so far together with the next:
    as many steps as there are columns, each over whole arrays.

    They are those of several files of deletes, of which a data file may have some: those that were written after it.
    """

    def __init__(self, deleted: Sequence[pa.Table]) -> None:
        """`deleted` are the rows of each file of deletes; there is one at least."""
        together = pa.concat_tables(deleted)
        self._file_of_row = np.repeat(np.arange(len(deleted)), [each.num_rows for each in deleted])
        self._file_count = len(deleted)
        self._values: list[pa.Array] = []
        self._pairs: list[Codes] = []
        found = np.zeros(together.num_rows, np.int64)
        for column in together.columns:
            plain = _comparable(column.combine_chunks())
            values = plain.unique()
            self._values.append(values)
            pairs = found * len(values) + _codes(plain, values)
            known, found = np.unique(pairs, return_inverse=True)
            self._pairs.append(known)
        self._row_codes = found

    @property
    def nbytes(self) -> int:
        return sum(each.nbytes for each in (*self._values, *self._pairs, self._row_codes, self._file_of_row))

    def find(self, rows: pa.Table, files: Codes | None = None) -> Codes:
        """Where the rows are that have values of some files of deletes, by their numbers; None: of all."""
        places = np.arange(rows.num_rows)
        found = np.zeros(rows.num_rows, np.int64)
        for column, values, pairs in zip(rows.columns, self._values, self._pairs, strict=True):
            codes = _codes(_comparable(column.combine_chunks()).take(pa.array(places)), values)
            is_known = codes >= 0
            places, wanted = places[is_known], found[is_known] * len(values) + codes[is_known]
            at = np.minimum(np.searchsorted(pairs, wanted), max(len(pairs) - 1, 0))
            is_there = pairs[at] == wanted if len(pairs) else np.zeros(len(wanted), bool)
            places, found = places[is_there], at[is_there]
        if files is None or len(np.unique(files)) == self._file_count:
            return places
        return places[self._of_files(files)[found]]

    def _of_files(self, files: Codes) -> npt.NDArray[np.bool_]:
        """Which of the different keys are in some files of deletes."""
        is_wanted = np.zeros(self._file_count, bool)
        is_wanted[files] = True
        found = np.zeros(len(self._pairs[-1]), bool)
        found[self._row_codes[is_wanted[self._file_of_row]]] = True
        return found


@dataclass(frozen=True, slots=True)
class Looked:
    """What is looked for in a data file: values of columns with these ids, of some files of deletes."""

    ids: tuple[int, ...]
    keys: DeletedKeys
    files: Codes | None = None
    """Their numbers; None: of all."""


def _codes(values: pa.Array, known: pa.Array) -> Codes:
    """The number of each value among those that are known, -1 where it is none of them."""
    return np.asarray(pc.fill_null(pc.index_in(values, value_set=known, skip_nulls=False), -1), np.int64)


def _comparable(values: pa.Array) -> pa.Array:
    """The values in a form in which those are equal that shall be."""
    if not pa.types.is_floating(values.type):
        return values
    nan = pa.scalar(float("nan"), values.type)
    one_nan = pc.if_else(pc.is_nan(values), nan, values)
    return one_nan.view(pa.int32() if values.type.bit_width == 32 else pa.int64())


def find_deleted(batches: Iterator[tuple[int, pa.RecordBatch]], looked: Sequence[Looked]) -> Codes:
    """The positions of rows of a file that are deleted; `batches` are its columns, by their ids, with the position of
    the first row of each."""
    found: list[Codes] = [np.zeros(0, np.int64)]
    for positions, rows in _in_large_pieces(batches):
        found += [
            positions[each.keys.find(rows.select([str(number) for number in each.ids]), each.files)] for each in looked
        ]
    return np.sort(np.concatenate(found))


def _in_large_pieces(batches: Iterator[tuple[int, pa.RecordBatch]]) -> Iterator[tuple[Codes, pa.Table]]:
    """Batches put together, with the position of each row."""
    waiting: list[tuple[int, pa.RecordBatch]] = []
    for each in batches:
        waiting.append(each)
        if sum(batch.num_rows for _, batch in waiting) >= ROWS_AT_ONCE:
            yield _piece(waiting)
            waiting = []
    if waiting:
        yield _piece(waiting)


def _piece(batches: Sequence[tuple[int, pa.RecordBatch]]) -> tuple[Codes, pa.Table]:
    positions = np.concatenate([np.arange(start, start + batch.num_rows) for start, batch in batches])
    return positions, pa.Table.from_batches([batch for _, batch in batches])
