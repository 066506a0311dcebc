"""Metadata of a few units, computed from their rows, for the oracles of the skipping rewrite itself."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from builders.values.by_type import list_neighbours, list_values, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate
from builders.values.random_rows import draw_column, draw_predicates, draw_schema, draw_values, make_subject
from oracles.frame import Format, Kept, Unit
from tamis.expr.bind import bind
from tamis.expr.normalise import normalise, sort_key
from tamis.skipping.metadata import metadata_name
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import rewrite
from tamis.tuning import DEFAULT_TUNING, Tuning

Rows = dict[str, list[Any]]
Metadata = dict[str, pa.Array]


def describe_units(schema: pa.Schema, units: list[Rows]) -> Metadata:
    """Return the statistics that a perfect writer would write for the units."""
    columns: Metadata = {"row_count": pa.array([len(next(iter(unit.values()))) for unit in units], pa.int64())}
    for field in schema:
        path = (field.name,)
        plain = [
            sorted((v for v in unit[field.name] if v is not None and not _is_nan(v)), key=sort_key) for unit in units
        ]
        columns[metadata_name("lower", path)] = make_array(field.type, [each[0] if each else None for each in plain])
        columns[metadata_name("upper", path)] = make_array(field.type, [each[-1] if each else None for each in plain])
        columns[metadata_name("null_count", path)] = pa.array(
            [sum(v is None for v in unit[field.name]) for unit in units], pa.int64()
        )
        if pa.types.is_floating(field.type):
            columns[metadata_name("nan_count", path)] = pa.array(
                [sum(_is_nan(v) for v in unit[field.name]) for unit in units], pa.int64()
            )
    return columns


def remove_some(metadata: Metadata, choices: Choices) -> Metadata:
    """Return the metadata without some columns, and with gaps in others."""
    found = {}
    for name, array in metadata.items():
        if name.startswith("nan_count:") and choices.flag():
            continue  # like nearly all writers
        match choices.number(0, 3):
            case 0:
                found[name] = array
            case 1 if name != "row_count":
                continue
            case _:
                gaps = pa.array([choices.flag() for _ in range(len(array))], pa.bool_())
                found[name] = pa.array(
                    [None if gap else value for gap, value in zip(gaps.to_pylist(), array, strict=True)], array.type
                )
    return found


def widen_bounds(schema: pa.Schema, units: list[Rows], choices: Choices) -> Metadata:
    """Return metadata with wider bounds, like those of truncated texts, or of files after deletes."""
    found = describe_units(schema, units)
    for field in schema:
        present = [[v for v in unit[field.name] if v is not None and not _is_nan(v)] for unit in units]
        for kind, sign in (("lower", -1), ("upper", 1)):
            bounds: list[Any] = []
            for values in present:
                own = sorted(values, key=sort_key)[0 if sign < 0 else -1] if values else None
                outside = [
                    each
                    for each in (*list_values(field.type), *([] if own is None else list_neighbours(own, field.type)))
                    if not _is_nan(each) and (own is None or (each <= own if sign < 0 else each >= own))
                ]
                bounds.append(own if own is None else choices.one_of([own, own, *outside]))
            found[metadata_name(kind, (field.name,))] = make_array(field.type, bounds)
    return found


def _is_nan(value: Any) -> bool:
    return isinstance(value, float) and math.isnan(value)


@dataclass
class DescribedUnits:
    schema: pa.Schema
    units: list[Rows]
    predicates: Sequence[OraclePredicate]
    less: Callable[[DescribedUnits, Choices], Metadata]
    """Returns the metadata after `weaken`."""
    notes: object = ""

    def __post_init__(self) -> None:
        self.metadata = describe_units(self.schema, self.units)

    @property
    def oracle_rows(self) -> pa.Table:
        columns = [
            make_array(field.type, [v for unit in self.units for v in unit[field.name]]) for field in self.schema
        ]
        return pa.table(columns, schema=self.schema)

    @property
    def union(self) -> DescribedUnits:
        """All units, merged into one."""
        one = {name: [v for unit in self.units for v in unit[name]] for name in self.schema.names}
        return DescribedUnits(self.schema, [one], self.predicates, self.less)

    def list_units(self) -> Mapping[Unit, Sequence[int]]:
        found, start = {}, 0
        for number, unit in enumerate(self.units):
            end = start + len(unit[self.schema.names[0]])
            found[number] = range(start, end)
            start = end
        return found

    def prune(self, predicate: OraclePredicate, levels: Sequence[str] = (), tuning: Tuning = DEFAULT_TUNING) -> Kept:
        pruned = prune(pa.record_batch(self.metadata), rewrite(normalise(bind(predicate.expr, self.schema))))
        kept = [number for number, is_kept in enumerate(pruned.selection.to_pylist()) if is_kept]
        return {
            number: all(matched[index].as_py() for matched in pruned.fully_matched) for index, number in enumerate(kept)
        }

    def weaken(self, choices: Choices) -> None:
        self.metadata = self.less(self, choices)


def draw_units(choices: Choices, less: Callable[[DescribedUnits, Choices], Metadata]) -> DescribedUnits:
    schema = draw_schema(choices)
    values = {field.name: draw_values(choices, field.type) for field in schema}
    units = []
    for _ in range(choices.number(1, 4)):
        count = choices.one_of([1, 2, 3, 4, 0])
        units.append({field.name: draw_column(choices, values[field.name], count) for field in schema})
    subjects = [
        make_subject((field.name,), field.type, (row for unit in units for row in unit[field.name])) for field in schema
    ]
    return DescribedUnits(schema, units, draw_predicates(choices, subjects), less)


def write_some_removed(choices: Choices, folder: Path, predicates: int) -> DescribedUnits:
    return draw_units(choices, lambda units, choices: remove_some(units.metadata, choices))


def write_widened(choices: Choices, folder: Path, predicates: int) -> DescribedUnits:
    return draw_units(choices, lambda units, choices: widen_bounds(units.schema, units.units, choices))


# Units cost little beside scans, so there are more examples.
METADATA = Format("metadata, some of it removed", write_some_removed, times=3, fully_matched_is_monotone=False)
WIDENED_METADATA = Format("metadata, bounds widened", write_widened, times=3, fully_matched_is_monotone=False)
