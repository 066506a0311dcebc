"""Random Delta tables that deltalake writes: appended to, deleted from, overwritten, compacted, checkpointed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from deltalake import DeltaTable, write_deltalake
from hypothesis import reject

from builders.delta.cases import LONG_TEXTS, ROW, list_subjects
from builders.values.by_type import is_extreme, list_special_values, list_values, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, draw_predicate
from builders.values.random_rows import draw_column
from tamis import types

COLUMN_TYPES: tuple[pa.DataType, ...] = (
    types.DOUBLE, pa.string(), types.TIMESTAMP, types.TIMESTAMP_NTZ, pa.decimal128(5, 2), pa.decimal128(19, 2),
    pa.float32(), pa.int8(), pa.int32(), pa.int64(), pa.date32(), pa.bool_(), pa.binary(),
)  # fmt: skip
PARTITION_VALUES: dict[pa.DataType, tuple[Any, ...]] = {
    pa.string(): ("eu", "a=b/c d", "é%20", "null", None),
    pa.int32(): (1, -7, 10, None),
    pa.date32(): (0, -1, 19783, None),
    types.TIMESTAMP: (0, 500_000, -1, 1_700_000_000_000_000, None),
    pa.bool_(): (True, False, None),
}
CONFIGURATIONS = (
    {},
    {"delta.checkpoint.writeStatsAsStruct": "true", "delta.checkpoint.writeStatsAsJson": "false"},
    {"delta.checkpoint.writeStatsAsStruct": "true"},
    {"delta.dataSkippingNumIndexedCols": "1"},
)
MAPPED = {"delta.columnMapping.mode": "name"}


@dataclass
class DeltalakeCase:
    """The final rows of a table, the steps that made them, and predicates about it."""

    rows: pa.Table
    done: list[str]
    predicates: list[OraclePredicate]


class _Writer:
    def __init__(self, choices: Choices, folder: Path) -> None:
        self._choices = choices
        self._folder = folder
        self.done: list[str] = []
        types_of = [choices.one_of(COLUMN_TYPES) for _ in range(choices.number(1, 3))]
        self._fields = [pa.field(f"c{index}", each) for index, each in enumerate(types_of)]
        if choices.flag(3):
            self._fields.append(pa.field("st", pa.struct([("x", choices.one_of(COLUMN_TYPES)), ("y", pa.string())])))
        names = ("p", "q")[: choices.one_of([0, 1, 1, 2])]
        self._partitions = [pa.field(name, choices.one_of(list(PARTITION_VALUES))) for name in names]
        self._values = {each.name: self._draw_values(each.type) for each in self._fields}
        self._next = 0
        self.rows = self._draw_rows()
        # Deltalake cannot delete or update rows of tables with column mapping.
        self._is_mapped = choices.flag(4)
        self._write(self.rows, configuration=MAPPED if self._is_mapped else choices.one_of(CONFIGURATIONS))

    def step(self) -> None:
        """Change the table once more, at random."""
        match self._choices.number(0, 8):
            case 0 | 1 | 2:
                self._append()
            case 3 if not self._is_mapped:
                self._delete()
            case 4 if not self._is_mapped:
                self._add_column()
            case 5:
                self._overwrite()
            case 6 if not self._is_mapped:
                DeltaTable(self._folder).optimize.compact()
                self.done.append("compact")
            case _:
                DeltaTable(self._folder).create_checkpoint()
                self.done.append("checkpoint")

    def _append(self) -> None:
        more = self._draw_rows()
        self._write(more, mode="append")
        self.rows = pa.concat_tables([self.rows, more.select(self.rows.column_names)])

    def _delete(self) -> None:
        gone = [row for row in self.rows[ROW].to_pylist() if self._choices.flag(3)]
        if gone:
            DeltaTable(self._folder).delete(f"{ROW} IN ({', '.join(map(str, gone))})")
            self.rows = self.rows.filter(pc.invert(pc.is_in(self.rows[ROW], pa.array(gone, pa.int64()))))
            self.done.append(f"delete {gone}")

    def _add_column(self) -> None:
        added = pa.field(f"c{len(self._fields)}", self._choices.one_of(COLUMN_TYPES))
        self._fields.append(added)
        self._values[added.name] = self._draw_values(added.type)
        more = self._draw_rows()
        self._write(more, mode="append", schema_mode="merge")
        self.rows = pa.concat_tables([self.rows, more], promote_options="default")

    def _overwrite(self) -> None:
        self.rows = self._draw_rows()
        self._write(self.rows, mode="overwrite")

    def _write(self, rows: pa.Table, **options: Any) -> None:
        write_deltalake(self._folder, rows, partition_by=[each.name for each in self._partitions] or None, **options)
        self.done.append(f"write {rows.num_rows} rows {options}")

    def _draw_rows(self) -> pa.Table:
        choices = self._choices
        count = choices.number(1, 8)
        columns = {each.name: self._draw_column(each.type, self._values[each.name], count) for each in self._fields}
        columns[ROW] = pa.array(range(self._next, self._next + count), pa.int64())
        self._next += count
        for each in self._partitions:
            few = choices.some_of(PARTITION_VALUES[each.type], 1, 2)
            columns[each.name] = make_array(each.type, [choices.one_of(few) for _ in range(count)])
        return pa.table(columns)

    def _draw_values(self, data_type: pa.DataType) -> Any:
        if pa.types.is_struct(data_type):
            return [self._draw_values(each.type) for each in data_type]
        found = list_values(data_type)
        if types.is_text(data_type):
            found = (*found, *LONG_TEXTS)
        if pa.types.is_timestamp(data_type):
            found = tuple(each for each in found if not is_extreme(each, data_type))
        return self._choices.some_of((*found, *list_special_values(data_type) * 2), 1, 4)

    def _draw_column(self, data_type: pa.DataType, values: Any, count: int) -> pa.Array:
        choices = self._choices
        if pa.types.is_struct(data_type):
            absent = pa.array([choices.flag(4) for _ in range(count)], pa.bool_())
            children = [self._draw_column(each.type, own, count) for each, own in zip(data_type, values, strict=True)]
            shown = [pc.if_else(absent, pa.scalar(None, each.type), each) for each in children]
            return pa.StructArray.from_arrays(shown, fields=list(data_type), mask=absent)
        return make_array(data_type, draw_column(choices, values, count))


def draw_deltalake_case(choices: Choices, folder: Path, predicates: int) -> DeltalakeCase:
    writer = _Writer(choices, folder)
    for _ in range(choices.number(0, 4)):
        writer.step()
    if not writer.rows.num_rows:
        reject()
    # Any column may be newer than some rows.
    rows = writer.rows.sort_by(ROW)
    subjects = list_subjects(rows)
    return DeltalakeCase(rows, writer.done, [draw_predicate(choices, subjects) for _ in range(predicates)])
