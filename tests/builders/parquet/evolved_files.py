"""Files that were written before and after schema evolution, and random tables of such files."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from pyroaring import BitMap64

from builders.values.by_type import list_values_that_fit, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, Subject
from builders.values.random_rows import draw_column, draw_predicate, draw_values, make_subject
from tamis.expr.evaluate import to_physical_value
from tamis.formats.constants import make_absent_values, name_absent
from tamis.formats.jobs import Planning
from tamis.formats.source import FileListing
from tamis.io.ranges import IMMUTABLE
from tamis.io.storage import Storage, open_storage
from tamis.parquet.footer.field_names import ELEMENT, FIELD_ID, ColumnMapping, MappedField
from tamis.skipping.predicate import Predicate
from tamis.tuning import DEFAULT_TUNING, Tuning

ROW = "row_id"

TYPES = (
    pa.bool_(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.decimal128(9, 2), pa.decimal128(20, 2),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"), pa.timestamp("ns"), pa.string(), pa.binary(),
)  # fmt: skip

PROMOTED = {
    pa.int64(): [pa.int32()],
    pa.float64(): [pa.float32()],
    pa.decimal128(20, 2): [pa.decimal128(9, 2)],
    pa.timestamp("us"): [pa.date32()],
    pa.timestamp("ns"): [pa.date32()],
}


@dataclass
class StoredFiles:
    """A table that is a list of files. The test passes the metadata that a format would have."""

    folder: Path
    schema: pa.Schema
    field_names: ColumnMapping | None
    paths: Sequence[str]
    formats: Sequence[str] | None = None
    identity_values: Mapping[str, pa.Array] | None = None
    deleted: Mapping[int, BitMap64] = field(default_factory=dict)
    planning: Planning | None = None
    name: str = "t"
    format: str = "stored"
    partition_columns: tuple[str, ...] = ()
    partition_texts: tuple[str, ...] = ()
    version: int | None = None
    index: None = None
    tuning: Tuning = DEFAULT_TUNING

    @property
    def storage(self) -> Storage:
        return open_storage(self.folder).with_tuning(self.tuning)

    def with_tuning(self, tuning: Tuning) -> StoredFiles:
        return replace(self, tuning=tuning)

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        paths = [self.folder / path for path in self.paths]
        columns: dict[str, Any] = {
            "path": [str(path) for path in paths],
            "size": pa.array([path.stat().st_size for path in paths], pa.int64()),
            "modified_ns": pa.array([IMMUTABLE] * len(paths), pa.int64()),
            "file_format": pa.array(self.formats or ["parquet"] * len(paths), pa.string()),
        }
        if self.formats is not None:
            columns["num_records"] = pa.array(list(map(count_rows, paths)), pa.int64())
        if self.identity_values is not None:
            columns |= self.identity_values
        return FileListing(pa.table(columns), ())

    def read_deleted_rows(self, storage: Storage, files: pa.Table, row_groups: object = None) -> Mapping[int, BitMap64]:
        known = {str(self.folder / self.paths[index]): rows for index, rows in self.deleted.items()}
        paths = files["path"].to_pylist()
        return {index: known[path] for index, path in enumerate(paths) if path in known}


def count_rows(path: Path) -> int:
    if path.suffix == ".orc":
        from pyarrow import orc

        return int(orc.ORCFile(path).nrows)
    return int(pq.read_metadata(path).num_rows)


def set_field_id(given: pa.Field, number: int | None) -> pa.Field:
    return given if number is None else given.with_metadata({FIELD_ID: str(number).encode()})


@dataclass(frozen=True)
class EvolvedField:
    """A field of a table: its id, its current type, its default, and its nested fields."""

    name: str
    id: int
    type: pa.DataType
    default: Any = None
    inner: tuple[EvolvedField, ...] = ()

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, self.type)

    @property
    def default_scalar(self) -> pa.Scalar | None:
        if self.default is None:
            return None
        return (
            pa.scalar({}, pa.struct([])) if pa.types.is_struct(self.type) else make_array(self.type, [self.default])[0]
        )

    def make_default_column(self, count: int) -> pa.Array:
        """Return the column for a file that lacks it."""
        if self.default is None:
            return pa.nulls(count, self.type)
        if pa.types.is_struct(self.type):
            return pa.StructArray.from_arrays(
                [each.make_default_column(count) for each in self.inner], fields=list(self.type)
            )
        return make_array(self.type, [self.default] * count)

    def map_field(self, *, by_id: bool) -> tuple[Hashable, MappedField]:
        inner = dict(each.map_field(by_id=by_id) for each in self.inner)
        if pa.types.is_list(self.type):
            inner = {ELEMENT: MappedField("", inner)}
        return self.id if by_id else get_old_name(self), MappedField(self.name, inner, self.default_scalar)


def get_old_name(field: EvolvedField) -> str:
    return f"old {field.name}"


@dataclass
class EvolvedCase:
    """Files as they are stored, the rows of the table, and predicates about them."""

    fields: list[EvolvedField]
    stored: list[pa.Table]
    identity: Mapping[str, pa.Array] | None
    rows: pa.Table
    predicates: list[OraclePredicate]
    options: dict[str, Any]
    has_filters: bool
    choices: Choices

    def write(self, folder: Path) -> StoredFiles:
        paths = []
        for index, table in enumerate(self.stored):
            paths.append(f"{index}.parquet")
            pq.write_table(table, folder / paths[-1], **self.options, **self._draw_bloom_filters(table))
        names = ColumnMapping(
            dict(each.map_field(by_id=True) for each in self.fields),
            by_id=True,
            without_ids=ColumnMapping(dict(each.map_field(by_id=False) for each in self.fields), by_id=False),
        )
        schema = pa.schema([each.arrow for each in self.fields])
        return StoredFiles(folder, schema, names, paths, identity_values=self.identity)

    def _draw_bloom_filters(self, table: pa.Table) -> dict[str, Any]:
        """Return options for Bloom filters so small that they have many false positives."""
        first = get_old_name(self.fields[0])
        has_filter = self.has_filters and first in table.column_names
        if not has_filter or pa.types.is_boolean(table.schema.field(first).type):
            return {}
        return {"bloom_filter_options": {first: {"ndv": 1, "fpp": 0.2}}}


def draw_evolved_case(choices: Choices, predicates: int) -> EvolvedCase:
    """Return one to three files of different ages, with names or ids, defaults and promoted types."""
    fields = [
        _draw_field(choices, f"c{index}", index + 1, choices.one_of(TYPES)) for index in range(choices.number(1, 3))
    ]
    if choices.flag():
        inner = tuple(_draw_field(choices, name, 10 + at, choices.one_of(TYPES)) for at, name in enumerate("xy"))
        kind = pa.struct([each.arrow for each in inner])
        fields.append(EvolvedField("st", 9, kind, {} if choices.flag() else None, inner))
    if choices.flag(4):
        inner = (EvolvedField("p", 21, pa.int32()), EvolvedField("q", 22, pa.int32(), choices.one_of([None, 7])))
        kind = pa.list_(pa.struct([each.arrow for each in inner]))
        fields.append(EvolvedField("li", 20, kind, None, inner))
    row_id = EvolvedField(ROW, 99, pa.int64())
    values = {each.id: draw_values(choices, each.type) for each in _list_leaves(fields)}
    identity_type = fields[0].type
    stored, expected_parts, known = [], [], []
    for _ in range(choices.number(1, 3)):
        count = choices.number(1, 10)
        start = sum(map(len, expected_parts))
        numbers = pa.array(range(start, start + count), pa.int64())
        is_known = choices.flag()
        value = choices.one_of([*values[fields[0].id], None])
        known.append(None if not is_known else [value])
        has_ids = choices.flag(4) or choices.flag()
        columns, expected = {}, {}
        for each in fields:
            own, table_values = _draw_column(choices, each, values, count, has_ids=has_ids)
            if each is fields[0] and is_known and (own is None or choices.flag()):
                own, table_values = None, make_array(each.type, [value] * count)
            if own is not None:
                columns[own[0]] = own[1]
            expected[each.name] = table_values
        columns[set_field_id(pa.field(get_old_name(row_id), pa.int64()), row_id.id if has_ids else None)] = numbers
        if choices.flag(5):
            columns[set_field_id(pa.field("c0", pa.string()), 77 if has_ids else None)] = pa.array(["dropped"] * count)
        first = choices.number(0, len(columns) - 1)
        order = [*list(columns)[first:], *list(columns)[:first]]
        stored.append(pa.table([columns[key] for key in order], schema=pa.schema(order)))
        expected_parts.append(pa.table(expected | {ROW: numbers}))
    rows = pa.concat_tables(expected_parts)
    identity = None
    if any(each is not None for each in known) or choices.flag():
        identity = _make_identity_values(fields[0].name, identity_type, known)
    options = {
        "row_group_size": choices.number(1, 6),
        "use_dictionary": choices.flag(),
        "write_page_index": choices.flag(),
        "max_rows_per_page": choices.one_of([1, 2, 1000]),
        "write_batch_size": 1,
    }
    drawn = [draw_predicate(choices, list(_list_subjects(rows))) for _ in range(predicates)]
    return EvolvedCase([*fields, row_id], stored, identity, rows, drawn, options, choices.flag(), choices)


def _draw_field(choices: Choices, name: str, number: int, data_type: pa.DataType) -> EvolvedField:
    default = choices.one_of([None, *draw_values(choices, data_type)])
    return EvolvedField(name, number, data_type, default)


def _list_leaves(fields: Sequence[EvolvedField]) -> list[EvolvedField]:
    return [leaf for each in fields for leaf in (_list_leaves(each.inner) if each.inner else [each])]


def _draw_column(
    choices: Choices, field: EvolvedField, values: Mapping[int, list[Any]], count: int, *, has_ids: bool
) -> tuple[tuple[pa.Field, pa.Array] | None, pa.Array]:
    """Return the column of a file for a field, or None, and the column that the table returns for it."""
    if choices.flag(3):
        return None, field.make_default_column(count)
    number = field.id if has_ids else None
    if field.inner:
        found = [_draw_column(choices, each, values, count, has_ids=has_ids) for each in field.inner]
        own = [each for each, _ in found if each is not None]
        if not own:
            return None, field.make_default_column(count)
        mask = pa.array([choices.flag(4) for _ in range(count)], pa.bool_())
        inner = pa.StructArray.from_arrays([each[1] for each in own], fields=[each[0] for each in own], mask=mask)
        children = [values for _, values in found]
        fields = [each.arrow for each in field.inner]
        table = pa.StructArray.from_arrays(children, fields=fields, mask=mask)
        if pa.types.is_list(field.type):
            inner, table = (_wrap_in_lists(each) for each in (inner, table))
        return (set_field_id(pa.field(get_old_name(field), inner.type), number), inner), table
    narrower = PROMOTED.get(field.type)
    if narrower and choices.flag():
        narrow = choices.one_of(narrower)
        own_values = choices.some_of(list_values_that_fit(narrow, field.type), 1, 3)
        array = make_array(narrow, draw_column(choices, own_values, count))
    else:
        array = make_array(field.type, draw_column(choices, values[field.id], count))
    return (set_field_id(pa.field(get_old_name(field), array.type), number), array), array.cast(field.type)


def _wrap_in_lists(values: pa.Array) -> pa.Array:
    """Return each value in its own list, except the last, which joins the list before it."""
    ends = np.minimum(np.arange(1, len(values) + 1), len(values))
    ends[-2:] = len(values)
    offsets = pa.array(np.concatenate([[0], ends]).astype(np.int32))
    return pa.ListArray.from_arrays(offsets, values, type=pa.list_(values.type))


def _make_identity_values(name: str, data_type: pa.DataType, known: list[list[Any] | None]) -> dict[str, pa.Array]:
    values = make_array(data_type, [None if each is None else each[0] for each in known])
    return {name_absent((name,)): make_absent_values(values, pa.array([each is None for each in known]))}


def _list_subjects(rows: pa.Table) -> list[Subject]:
    found = []
    for each in rows.schema:
        if pa.types.is_struct(each.type):
            for child in each.type:
                values = pa.concat_arrays(rows[each.name].chunks).flatten()[each.type.get_field_index(child.name)]
                found.append(make_subject((each.name, child.name), child.type, map(to_physical_value, values)))
        elif not pa.types.is_list(each.type) and each.name != ROW:
            found.append(make_subject((each.name,), each.type, map(to_physical_value, rows[each.name])))
    return found
