"""Random Hive-style tables whose files differ: in partitions, or with narrower types and without some columns."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from builders.hive.tables import write_hive_table
from builders.values.by_type import list_narrower_types, list_values_that_fit, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, Subject, draw_predicate
from builders.values.random_rows import draw_column, draw_schema, draw_type, draw_values, make_subject
from tamis.expr.evaluate import to_physical_value

ROW = "row_id"
PARTITION_TEXTS = ["eu", "us", "a=b", "x%y", "é", "1", "01", "", None]
PARTITION_TYPES = {"region": pa.string(), "day": pa.int32()}


@dataclass
class HiveCase:
    """A table: its files, the rows that a scan must return, and predicates about it."""

    parts: list[tuple[dict[str, str | None], pa.Table]]
    rows: pa.Table
    predicates: list[OraclePredicate]
    options: dict[str, Any]
    choices: Choices

    @property
    def partitioning(self) -> dict[str, str]:
        """The types of the partition columns."""
        return {name: {"region": "string", "day": "int"}[name] for name in self.parts[0][0]}

    def write(self, root: Path) -> None:
        write_hive_table(root, self.parts, **self.options)


def draw_scan_case(choices: Choices, predicates: int) -> HiveCase:
    """Return a table of one to three files, with structs and lists, in partitions or with narrower types in some."""
    fields = list(draw_schema(choices))
    if choices.flag(3):
        fields.append(pa.field("st", pa.struct([("x", draw_type(choices)), ("y", pa.string())])))
    if choices.flag(4):
        fields.append(pa.field("li", pa.list_(pa.int32())))
    names = ["region", "day"][: choices.one_of([0, 0, 1, 2])]
    values = {field.name: _draw_values(choices, field.type) for field in fields}
    parts: list[tuple[dict[str, str | None], pa.Table]] = []
    expected_parts: list[pa.Table] = []
    for index in range(choices.number(1, 3)):
        count = choices.one_of([*range(1, 13), 0])
        texts = {"region": choices.one_of(PARTITION_TEXTS), "day": choices.one_of(["1", "2", "10", None])}
        used = {name: texts[name] for name in names}
        numbers = pa.array(range(sum(map(len, expected_parts)), sum(map(len, expected_parts)) + count), pa.int64())
        stored = {field.name: _draw_column(choices, field.type, values[field.name], count) for field in fields}
        expected = dict(stored)
        if index and not names:
            # The first file defines the types; the others may have narrower ones, or lack the column.
            _vary(choices, fields, stored, expected, count)
        parts.append((used, pa.table(stored | {ROW: numbers})))
        partition = {name: _make_partition_column(name, texts[name] or None, count) for name in names}
        expected_parts.append(pa.table(expected | {ROW: numbers} | partition))
    rows = pa.concat_tables(expected_parts)
    subjects = list(_list_subjects(rows))
    options = {
        "row_group_size": choices.number(1, 6),
        "data_page_version": choices.one_of(["1.0", "2.0"]),
        "use_dictionary": choices.flag(),
        "write_statistics": choices.one_of([True, True, True, ["c0"], False]),
        "write_page_index": choices.flag(),
        "max_rows_per_page": choices.one_of([1, 2, 3, 1000]),
        "write_batch_size": 1,
    }
    if all("c0" in part.column_names for _, part in parts) and not pa.types.is_boolean(fields[0].type):
        # Bloom filters so small that they have many false positives.
        options["bloom_filter_options"] = choices.one_of([None, {"c0": {"ndv": 1, "fpp": 0.2}}])
    drawn = [draw_predicate(choices, subjects) for _ in range(predicates)]
    return HiveCase(parts, rows, drawn, options, choices)


def _draw_values(choices: Choices, data_type: pa.DataType) -> list[Any]:
    if pa.types.is_struct(data_type):
        return [_draw_values(choices, child.type) for child in data_type]
    if pa.types.is_list(data_type):
        return [[], [1], [None, -3], [2, 2, 2]]
    return draw_values(choices, data_type)


def _draw_column(choices: Choices, data_type: pa.DataType, values: list[Any], count: int) -> pa.Array:
    if pa.types.is_struct(data_type):
        children = [_draw_column(choices, child.type, own, count) for child, own in zip(data_type, values, strict=True)]
        absent = pa.array([choices.flag(4) for _ in range(count)], pa.bool_())
        return pa.StructArray.from_arrays(children, fields=list(data_type), mask=absent)
    if pa.types.is_list(data_type):
        return pa.array([choices.one_of([*values, None]) for _ in range(count)], data_type)
    return make_array(data_type, draw_column(choices, values, count))


def _vary(
    choices: Choices, fields: list[pa.Field], stored: dict[str, pa.Array], expected: dict[str, pa.Array], count: int
) -> None:
    for field in fields:
        narrower = list_narrower_types(field.type)
        if choices.flag(8):
            del stored[field.name]
            expected[field.name] = pa.nulls(count, field.type)
        elif narrower and choices.flag(3):
            narrow = choices.one_of(narrower)
            own = choices.some_of(list_values_that_fit(narrow, field.type), 1, 3)
            stored[field.name] = make_array(narrow, draw_column(choices, own, count))
            expected[field.name] = stored[field.name].cast(field.type)


def _make_partition_column(name: str, text: str | None, count: int) -> pa.Array:
    # In Hive an empty text is NULL.
    value = text if text is None or name == "region" else int(text)
    return pa.array([value] * count, PARTITION_TYPES[name])


def _list_subjects(rows: pa.Table) -> list[Subject]:
    found = []
    for field in rows.schema:
        if pa.types.is_struct(field.type):
            for child in field.type:
                values = pa.concat_arrays(rows[field.name].chunks).field(child.name)
                found.append(make_subject((field.name, child.name), child.type, map(to_physical_value, values)))
        elif not pa.types.is_list(field.type) and field.name != ROW:
            found.append(make_subject((field.name,), field.type, map(to_physical_value, rows[field.name])))
    return found
