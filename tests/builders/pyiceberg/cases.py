"""Random Iceberg tables that pyiceberg writes: appended to, deleted from, with columns and specs that change.

Some have columns of lists and maps, whose fields change too. Rows are also deleted by position and by value,
with delete files that are made by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import reject
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.transforms import IdentityTransform, VoidTransform, parse_transform
from pyiceberg.types import LongType, NestedField

from builders.delta.cases import LONG_TEXTS, ROW, list_subjects
from builders.iceberg.cases import ANY_KIND, KINDS, TRANSFORMS
from builders.iceberg.deletes import POSITION_FIELDS
from builders.iceberg.manifests import encode_partition_value
from builders.iceberg.tables import EQUALITY, POSITIONS, File, write_rows
from builders.iceberg.values import (
    compute_metrics,
    field,
    list_leaves,
    parse_primitive_type,
    to_arrow_type,
    to_physical,
)
from builders.pyiceberg.nested_columns import NestedColumns
from builders.pyiceberg.tables import (
    add_deletes,
    create_table,
    find_latest_metadata,
    list_live_files,
    make_catalog,
    make_name,
    make_spec,
    transform_by_value,
)
from builders.values.by_type import is_extreme, list_special_values, list_values, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, combine_predicates, draw_predicate, make_null_test
from builders.values.random_rows import draw_column

WIDER = {"int": "long", "float": "double", "decimal(5, 2)": "decimal(19, 2)"}


@dataclass
class PyicebergCase:
    """The final rows of a table, the steps that made them, and predicates about it."""

    folder: Path
    metadata: Path
    rows: pa.Table
    done: list[str]
    predicates: list[OraclePredicate]


def draw_pyiceberg_case(choices: Choices, folder: Path, predicates: int) -> PyicebergCase:
    with transform_by_value():
        writer = _Writer(choices, folder)
        for _ in range(choices.number(0, 4)):
            writer.step()
    if not writer.rows.num_rows:
        reject()
    rows = writer.read_columns()
    drawn = [draw_predicate(choices, list_subjects(rows)) for _ in range(predicates)]
    if writer.nested and choices.flag():
        one = make_null_test((choices.one_of(writer.nested),), is_null=choices.flag())
        drawn[0] = combine_predicates(choices.one_of(["and", "or"]), [one, drawn[0]])
    return PyicebergCase(folder, find_latest_metadata(folder), rows, writer.done, drawn)


class _Writer:
    def __init__(self, choices: Choices, folder: Path) -> None:
        self._choices = choices
        self._folder = folder
        self.done: list[str] = []
        self._kinds = {f"c{index}": choices.one_of(KINDS) for index in range(choices.number(1, 3))}
        fields = [NestedField(1, ROW, LongType(), required=False)]
        fields += [
            NestedField(index, name, parse_primitive_type(kind), required=False)
            for index, (name, kind) in enumerate(self._kinds.items(), 2)
        ]
        self._nested = NestedColumns(choices)
        schema = Schema(*fields, *self._nested.fields(len(fields) + 1))
        parts = [(name, self._draw_transform(kind)) for name, kind in self._kinds.items() if choices.flag()]
        self._version = choices.one_of([2, 2, 2, 1])
        self._table: Table = create_table(folder, schema, make_spec(schema, *parts[:2]), self._version)
        self.done.append(f"create v{self._version} {self._kinds} by {parts[:2]}, and {self._nested.kinds}")
        self._values = {name: self._draw_values(kind) for name, kind in self._kinds.items()}
        self._next = 0
        self._has_equality_deletes = False
        self.rows = self._draw_rows()
        self._write(self.rows)

    def _draw_transform(self, kind: str) -> str:
        # Pyiceberg fails on partitions of NaN, and writes rows twice where both zeros are there.
        known = ["void"] if kind in ("float", "double") else [each for each in ANY_KIND if each != "of_nobody[7]"]
        return self._choices.one_of((*known, *TRANSFORMS.get(kind, ()) * 2))

    def _draw_values(self, kind: str) -> list[Any]:
        data_type = to_arrow_type(kind)
        found = list_values(data_type)
        if kind == "string":
            found = (*found, *LONG_TEXTS)
        if pa.types.is_timestamp(data_type):
            found = tuple(each for each in found if not is_extreme(each, data_type))
        if kind in ("int", "long") or kind.startswith("decimal"):
            # `truncate` of the smallest integer has no partition value.
            found = tuple(each for each in found if abs(each) < (900 if kind.startswith("decimal") else 2**30))
        return self._choices.some_of((*found, *list_special_values(data_type) * 2), 1, 4)

    def _draw_rows(self) -> pa.Table:
        count = self._choices.number(1, 8)
        columns: dict[str, pa.Array] = {ROW: pa.array(range(self._next, self._next + count), pa.int64())}
        self._next += count
        for name, kind in self._kinds.items():
            columns[name] = make_array(to_arrow_type(kind), draw_column(self._choices, self._values[name], count))
        return pa.table(columns)

    def _write(self, rows: pa.Table) -> None:
        deep = self._nested.draw_columns(self._table, rows[ROW].to_pylist())
        self._table.append(pa.table({name: rows[name] for name in rows.column_names} | deep))

    @property
    def nested(self) -> list[str]:
        """The names of nested columns."""
        return list(self._nested.kinds)

    def read_columns(self) -> pa.Table:
        """Return all rows under the current schema."""
        names = [each.name for each in self._table.schema().fields]
        types = {name: to_arrow_type(kind) for name, kind in self._kinds.items()} | {ROW: pa.int64()}
        rows = self.rows.sort_by(ROW)
        deep = self._nested.read_columns(self._table, rows[ROW].to_pylist())
        columns = {
            name: rows[name].cast(types[name]) if name in rows.column_names else pa.nulls(len(rows), types[name])
            for name in names
            if name not in deep
        }
        return pa.table(columns | deep).select(names)

    def step(self) -> None:
        """Change the table once more, at random. Changes by hand come last, because the catalog does not know them."""
        match self._choices.number(0, 11):
            case 0 | 1 | 2:
                self._append()
            case 3:
                self._delete()
            case 4:
                self._add_column()
            case 5:
                self._rename_column()
            case 6:
                self._change_spec()
            case 7:
                self._widen()
            case 8 | 9 if self._nested.kinds:
                self.done.append(self._nested.change(self._table))
                self._append()
            case _ if self._version > 1:
                self._delete_by_hand()
            case _:
                self._append()

    def _append(self) -> None:
        more = self._draw_rows()
        self._write(more)
        self.rows = pa.concat_tables([self.rows, more], promote_options="permissive")
        self.done.append(f"append {len(more)}")

    def _delete(self) -> None:
        gone = [row for row in self.rows[ROW].to_pylist() if self._choices.flag(3)]
        # Pyiceberg rewrites a file without its equality deletes, so that deleted rows come back.
        if gone and not self._has_equality_deletes:
            self._table.delete(f"{ROW} IN ({', '.join(map(str, gone))})")
            self._forget(gone)
            self.done.append(f"delete {gone}")

    def _forget(self, gone: list[int]) -> None:
        self.rows = self.rows.filter(pc.invert(pc.is_in(self.rows[ROW], pa.array(gone, pa.int64()))))

    def _add_column(self) -> None:
        name, kind = f"n{self._next}", self._choices.one_of(KINDS)
        self._kinds[name] = kind
        self._values[name] = self._draw_values(kind)
        with self._table.update_schema() as update:
            update.add_column(name, parse_primitive_type(kind))
        self.done.append(f"add {name} {kind}")
        self._append()

    def _rename_column(self) -> None:
        """Rename a column, and add another column with the old name."""
        name = self._choices.one_of(list(self._kinds))
        renamed, kind = f"{name}_{self._next}", self._kinds.pop(name)
        with self._table.update_schema() as update:
            update.rename_column(name, renamed)
        self._kinds |= {renamed: kind, name: self._choices.one_of(KINDS)}
        self._values |= {renamed: self._values[name], name: self._draw_values(self._kinds[name])}
        with self._table.update_schema() as update:
            update.add_column(name, parse_primitive_type(self._kinds[name]))
        names = [renamed if each == name else each for each in self.rows.column_names]
        self.rows = self.rows.rename_columns(names)
        self.done.append(f"rename {name} to {renamed}, another {name} {self._kinds[name]}")
        self._append()

    def _change_spec(self) -> None:
        taken = {each.source_id for each in self._table.spec().fields}
        free = [name for name in self._kinds if self._table.schema().find_field(name).field_id not in taken]
        if not free:
            return
        name = self._choices.one_of(free)
        with self._table.update_spec() as update:
            for each in self._table.spec().fields:
                if each.transform != VoidTransform() and self._choices.flag():
                    update.remove_field(each.name)
            update.add_field(name, parse_transform(self._draw_transform(self._kinds[name])), f"q{self._next}")
        self.done.append(f"spec {self._table.spec()}")
        self._append()

    def _widen(self) -> None:
        partitioned = {each.source_id for each in self._table.spec().fields if each.transform != IdentityTransform()}
        known = self._table.schema()
        for name, kind in self._kinds.items():
            # Pyiceberg may compute another bucket for a widened type.
            if kind in WIDER and known.find_field(name).field_id not in partitioned:
                with self._table.update_schema() as update:
                    update.update_column(name, parse_primitive_type(WIDER[kind]))
                self._kinds[name] = WIDER[kind]
                self.rows = self.rows.set_column(
                    self.rows.column_names.index(name), name, self.rows[name].cast(to_arrow_type(WIDER[kind]))
                )
                self.done.append(f"widen {name}")
                self._append()
                return

    def _delete_by_hand(self) -> None:
        """Delete rows by position or by id, and open the table again."""
        gone = [row for row in self.rows[ROW].to_pylist() if self._choices.flag(4)]
        if not gone:
            return
        if self._choices.flag() and self._table.spec().is_unpartitioned():
            add_deletes(self._folder, [self._write_equality_file(gone)])
            self._has_equality_deletes = True
        else:
            self._delete_positions(gone)
        self._forget(gone)
        self.done.append(f"by hand {gone}")
        self._table = _register_table(self._folder)

    def _delete_positions(self, gone: list[int]) -> None:
        """Write position deletes, one file and one snapshot for each partition."""
        specs = self._table.specs()
        entries = {
            entry.data_file.file_path: entry.data_file
            for manifest in self._table.current_snapshot().manifests(self._table.io)
            for entry in manifest.fetch_manifest_entry(self._table.io)
        }
        for path in list_live_files(self._folder):
            stored = pq.ParquetFile(path.removeprefix("file://")).read(columns=[ROW])[ROW].to_pylist()
            positions = [index for index, row in enumerate(stored) if row in gone]
            if not positions:
                continue
            file = entries[path]
            columns = [
                (each.field_id, each.name, str(each.field_type))
                for each in specs[file.spec_id].partition_type(self._table.schema()).fields
            ]
            values = tuple(_to_stored(kind, file.partition[index]) for index, (_, _, kind) in enumerate(columns))
            rows = pa.table({"file_path": [path] * len(positions), "pos": pa.array(positions, pa.int64())})
            made = self._write_delete_file(rows, POSITION_FIELDS, POSITIONS, file.spec_id, values, {})
            add_deletes(self._folder, [made], columns)

    def _write_equality_file(self, gone: list[int]) -> File:
        fields = [field(1, ROW, "long")]
        spec = self._table.spec().spec_id
        return self._write_delete_file(pa.table({ROW: gone}), fields, EQUALITY, spec, (), {"equality_ids": [1]})

    def _write_delete_file(
        self,
        rows: pa.Table,
        fields: list[Any],
        content: int,
        spec: int,
        partition: tuple[Any, ...],
        more: dict[str, Any],
    ) -> File:
        self._next += 1
        file_path = self._folder / "data" / f"deletes-{self._next}.parquet"
        size = write_rows(file_path, rows, fields)
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        metrics = compute_metrics(list_leaves(fields, columns), None)
        return File(str(file_path), "parquet", content, spec, partition, len(rows), size, {**metrics, **more})


def _to_stored(kind: str, value: Any) -> Any:
    return encode_partition_value(kind, to_physical(value))


def _register_table(folder: Path) -> Table:
    """Return the table of a folder, registered in the catalog under a new name."""
    return make_catalog().register_table(make_name(), str(find_latest_metadata(folder)))
