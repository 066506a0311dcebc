"""Random Iceberg tables of few rows, written by hand, and the rows of every snapshot.

Files have columns under other names, of older types or not at all, without ids, in three formats; several specs with
every transform; counts and bounds with parts missing; rows deleted by position, by value and by vector.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from builders.delta.cases import LONG_TEXTS, ROW, list_subjects
from builders.iceberg import values as iceberg_values
from builders.iceberg.case_deletes import Deletion, StoredFile, draw_deletes
from builders.iceberg.tables import Field, IcebergFolder, SpecField
from builders.iceberg.values import (
    Leaf,
    apply_transform,
    compute_metrics,
    encode_single_value,
    list_leaves,
    to_arrow_type,
)
from builders.values.by_type import is_extreme, list_special_values, list_values, make_array
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate, draw_predicate
from builders.values.random_rows import draw_column

KINDS = (
    "double", "string", "timestamptz", "timestamp", "decimal(5, 2)", "decimal(19, 2)", "float", "int", "long", "date",
    "boolean", "binary",
)  # fmt: skip
OLDER = {"long": "int", "double": "float", "decimal(19, 2)": "decimal(5, 2)", "timestamp": "date"}
"""The types that files may have from before the table promoted a column. Dates only in version 3."""

TRANSFORMS: dict[str, tuple[str, ...]] = {
    "string": ("truncate[2]", "bucket[3]"),
    "binary": ("truncate[2]", "bucket[3]"),
    "int": ("truncate[4]", "bucket[3]"),
    "long": ("truncate[4]", "bucket[3]"),
    "decimal(5, 2)": ("truncate[50]", "bucket[3]"),
    "decimal(19, 2)": ("truncate[50]", "bucket[3]"),
    "date": ("day", "month", "year", "bucket[3]"),
    "timestamp": ("day", "month", "year", "hour", "bucket[3]"),
    "timestamptz": ("day", "month", "year", "hour", "bucket[3]"),
}
ANY_KIND = ("identity", "identity", "void", "of_nobody[7]")

FORMATS = ("parquet",) * 10 + ("avro", "orc")
CODECS = ("deflate", "null", "snappy", "zstandard")


@dataclass
class IcebergCase:
    """A table in a folder, its files after every commit, and predicates about the newest."""

    table: IcebergFolder
    states: list[tuple[int, list[StoredFile]]]
    predicates: list[OraclePredicate] = field(default_factory=list)
    done: list[str] = field(default_factory=list)

    @property
    def live(self) -> list[StoredFile]:
        return self.states[-1][1]

    def rows(self, state: int = -1) -> pa.Table:
        parts = [stored.live_rows for stored in self.states[state][1]]
        return pa.concat_tables([self.table.arrow_schema.empty_table(), *parts]).sort_by(ROW)


def draw_iceberg_case(
    choices: Choices, folder: Path, predicates: int, formats: tuple[str, ...] = FORMATS
) -> IcebergCase:
    writer = _Writer(choices, folder, formats)
    for _ in range(choices.number(1, 3)):
        writer.commit()
    case = IcebergCase(writer.table, writer.states, done=writer.done)
    subjects = list_subjects(case.rows())
    case.predicates = [draw_predicate(choices, subjects) for _ in range(predicates)]
    return case


class _Writer:
    def __init__(self, choices: Choices, folder: Path, formats: tuple[str, ...]) -> None:
        self._choices = choices
        self._formats = formats
        version = choices.one_of([2, 2, 3, 3, 1])
        fields = _draw_fields(choices, version)
        specs = _draw_specs(choices, fields)
        self._is_mapped = choices.flag(3)
        self.table = IcebergFolder(
            folder,
            fields,
            specs=specs,
            version=version,
            properties={"schema.name-mapping.default": json.dumps(_make_mapping(fields))} if self._is_mapped else {},
            location=choices.one_of([None, None, "s3://elsewhere/warehouse/t", "t"]),
            codec=choices.one_of(CODECS),
            per_block=choices.one_of([1000, 1, 2]),
            dates_as_ints=choices.flag(3),
        )
        self.table.manifests_in_metadata = version == 1 and choices.flag(3)
        self._values = {each["name"]: _draw_values(choices, each, specs) for each in fields[1:]}
        self.states: list[tuple[int, list[StoredFile]]] = []
        self.done: list[str] = []
        self._live: list[StoredFile] = []
        self._files = 0

    def commit(self) -> None:
        choices = self._choices
        is_later = bool(self.states)
        gone = [each for each in self._live if is_later and choices.flag(6)]
        self._live = [each for each in self._live if each not in gone]
        sequence = len(self.states) + 1 if self.table.version > 1 else 0
        added = [self._draw_file(sequence) for _ in range(choices.number(0 if is_later else 1, 2))]
        deletions: list[Deletion] = []
        if self.table.version > 1 and choices.flag():
            deletions = draw_deletes(choices, self.table, [*self._live, *added], sequence)
        files = [each.file for each in added] + [file for each in deletions for file in each.files]
        number = self.table.commit(
            *files, removed=[each.file.path for each in gone], per_manifest=choices.one_of([1000, 1])
        )
        self._live = [_delete_from(each, deletions) for each in [*self._live, *added]]
        self.states.append((number, list(self._live)))
        self.done += [f"{number}: +{[each.file.path for each in added]} -{[each.file.path for each in gone]}"]
        self.done += [f"{number}: {each.description}" for each in deletions]

    def _draw_file(self, sequence: int) -> StoredFile:
        choices, table = self._choices, self.table
        spec = choices.number(0, len(table.specs) - 1)
        sources = {source: transform for source, transform, _ in table.specs[spec]}
        count = choices.number(1, 8) if sources else choices.one_of([*range(1, 9), 0])
        fixed = {each["name"]: self._draw_source_values(each, count) for each in table.fields if each["id"] in sources}
        partition, kept = self._draw_partition(spec, fixed, count)
        count = len(kept)
        self._files += 1
        file_format = choices.one_of(self._formats)
        if file_format == "orc" and not self._is_mapped:
            file_format = "parquet"
        with_ids = file_format != "orc" and not (self._is_mapped and choices.flag())
        odd = with_ids and choices.flag()
        made: list[tuple[Field, pa.Array | None, pa.Array]] = []
        for each in table.fields:
            if each["name"] == ROW:
                numbers = pa.array(range(self._files * 100, self._files * 100 + count), pa.int64())
                made.append((each, numbers, numbers))
            elif each["name"] in fixed:
                values = [fixed[each["name"]][row] for row in kept]
                made.append(self._make_source_column(each, values, is_identity=sources[each["id"]] == "identity"))
            else:
                made.append(self._draw_column(each, self._values[each["name"]], count))
        own = [_rename_field(each, odd, f"odd {each['id']}") for each, stored, _ in made if stored is not None]
        stored_rows = pa.table(
            [_rename_children(stored, each) for each, (_, stored, _) in zip(own, _skip_absent(made), strict=True)],
            names=[each["name"] for each in own],
        )
        if choices.flag(4):
            order = sorted(range(len(own)), key=lambda index: own[index]["name"], reverse=True)
            stored_rows = stored_rows.select([own[index]["name"] for index in order])
        name = f"f{self._files} é.{file_format}" if choices.flag(4) else f"f{self._files}.{file_format}"
        file = table.data_file(
            name,
            stored_rows,
            fields=own,
            spec=spec,
            partition=partition,
            with_ids=with_ids,
            metrics=self._draw_metrics(own, stored_rows),
            options=_draw_options(choices) if file_format == "parquet" else None,
        )
        shown = pa.table([shown for _, _, shown in made], schema=table.arrow_schema)
        return StoredFile(file, shown, sequence)

    def _draw_partition(self, spec: int, fixed: dict[str, list[Any]], count: int) -> tuple[tuple[Any, ...], list[int]]:
        """Return the partition of the first row, and the rows that share it. Other rows are dropped."""
        rows = [{name: values[row] for name, values in fixed.items()} for row in range(count)]
        found = [self.table.partition_of(spec, row) for row in rows]
        first = found[0] if found else self.table.partition_of(spec, {})
        return first, [row for row in range(count) if repr(found[row]) == repr(first)]

    def _draw_source_values(self, source: Field, count: int) -> list[Any]:
        """Return the values of a column that a file is partitioned by, often a single one."""
        if self._choices.flag():
            return [self._choices.one_of([*self._values[source["name"]], None])] * count
        return draw_column(self._choices, self._values[source["name"]], count)

    def _make_source_column(
        self, source: Field, values: list[Any], *, is_identity: bool
    ) -> tuple[Field, pa.Array | None, pa.Array]:
        shown = make_array(to_arrow_type(source["type"]), values)
        # Files of migrated tables lack the columns that are in their partition.
        is_absent = is_identity and self._choices.flag(3)
        return source, None if is_absent else shown, shown

    def _draw_column(self, each: Field, values: Any, count: int) -> tuple[Field, pa.Array | None, pa.Array]:
        """Return a field as a file has it, the file's column (or None), and the column that the table returns."""
        choices = self._choices
        data_type = to_arrow_type(each["type"])
        if choices.flag(6):
            return each, None, _make_default_column(each, count)
        if pa.types.is_struct(data_type):
            return self._draw_struct_column(each, values, count)
        older = OLDER.get(each["type"])
        if older == "date" and self.table.version < 3:
            older = None
        if older is not None and choices.flag(3):
            narrow = to_arrow_type(older)
            stored = make_array(narrow, draw_column(choices, choices.some_of(list_values(narrow), 1, 3), count))
            try:
                return {**each, "type": older}, stored, stored.cast(data_type)
            except pa.ArrowInvalid:
                # The day is out of range for a timestamp in microseconds.
                pass
        made = make_array(data_type, draw_column(choices, values, count))
        return each, made, made

    def _draw_struct_column(self, each: Field, values: Any, count: int) -> tuple[Field, pa.Array | None, pa.Array]:
        absent = pa.array([self._choices.flag(4) for _ in range(count)], pa.bool_())
        inner = [
            self._draw_column(child, own, count) for child, own in zip(each["type"]["fields"], values, strict=True)
        ]
        shown = _make_struct([(child["name"], array) for child, _, array in inner], absent)
        stored = [(child, array) for child, array, _ in inner if array is not None]
        if not stored:
            return each, None, _make_default_column(each, count)
        kind = {"type": "struct", "fields": [child for child, _ in stored]}
        return {**each, "type": kind}, _make_struct([(child["name"], array) for child, array in stored], absent), shown

    def _draw_metrics(self, fields: list[Field], rows: pa.Table) -> dict[str, Any]:
        choices = self._choices
        columns = {name: rows[name].combine_chunks() for name in rows.column_names}
        if choices.flag(10):
            return {}
        found = list(list_leaves(fields, columns))
        metrics = compute_metrics(iter(found), choices.one_of([16, 16, 2, None]))
        for leaf in found:
            if choices.flag(8):
                _spoil_floats(choices, leaf, metrics)
            for name in metrics:
                if choices.flag(12):
                    metrics[name].pop(leaf.number, None)
        return {name: values for name, values in metrics.items() if not choices.flag(15)}


def _delete_from(stored: StoredFile, deletions: list[Deletion]) -> StoredFile:
    gone = set(stored.deleted)
    for each in deletions:
        gone |= each.rows_of.get(stored.file.path, set())
    return replace(stored, deleted=frozenset(gone))


def _spoil_floats(choices: Choices, leaf: Leaf, metrics: dict[str, dict[int, Any]]) -> None:
    """Make metrics like those of old writers: NaN as a bound, and no NaN count."""
    if leaf.kind in ("float", "double") and any(value is not None and value != value for value in leaf.values):
        metrics["nan_value_counts"].pop(leaf.number, None)
        name = choices.one_of(["upper_bounds", "lower_bounds"])
        metrics[name][leaf.number] = encode_single_value(leaf.kind, float("nan"))


def _skip_absent(made: list[tuple[Field, pa.Array | None, pa.Array]]) -> Iterator[tuple[Field, pa.Array, pa.Array]]:
    return ((each, stored, shown) for each, stored, shown in made if stored is not None)


def _rename_field(each: Field, odd: bool, name: str) -> Field:
    """Return a field with its name in a file: files with field ids may use any name."""
    if not odd:
        return each
    if isinstance(each["type"], dict):
        inner = [_rename_field(child, True, f"odd {child['id']}") for child in each["type"]["fields"]]
        return {**each, "name": name, "type": {"type": "struct", "fields": inner}}
    return {**each, "name": name}


def _rename_children(array: pa.Array, each: Field) -> pa.Array:
    """Return a struct with the field names of a file."""
    if not pa.types.is_struct(array.type):
        return array
    names = [child["name"] for child in each["type"]["fields"]]
    return pa.StructArray.from_arrays(array.flatten(), names=names, mask=array.is_null())


def _make_struct(children: list[tuple[str, pa.Array]], absent: pa.Array) -> pa.Array:
    # The fields of a NULL struct are NULL too.
    shown = [pc.if_else(absent, pa.scalar(None, array.type), array) for _, array in children]
    return pa.StructArray.from_arrays(shown, names=[name for name, _ in children], mask=absent)


def _make_default_column(each: Field, count: int) -> pa.Array:
    """Return the values of a field for a file that lacks its column."""
    data_type = to_arrow_type(each["type"])
    return (
        make_array(data_type, [_DEFAULTS[each["type"]][1] if "initial-default" in each else None] * count)
        if (not pa.types.is_struct(data_type))
        else pa.nulls(count, data_type)
    )


_DEFAULTS: dict[str, tuple[Any, Any]] = {
    "double": (2.5, 2.5), "float": (0.5, 0.5), "string": ("ab", "ab"), "int": (3, 3), "long": (5, 5),
    "boolean": (True, True), "date": ("1970-01-02", 1), "binary": ("6162", b"ab"),
    "timestamp": ("1970-01-02T00:00:00.000001", 86_400_000_001),
    "timestamptz": ("1970-01-02T00:00:00+00:00", 86_400_000_000),
    "decimal(5, 2)": ("1.50", Decimal("1.50")), "decimal(19, 2)": ("-0.03", Decimal("-0.03")),
}  # fmt: skip
"""Defaults: their form in metadata, and the value."""


def _draw_fields(choices: Choices, version: int) -> list[Field]:
    def one(number: int, name: str, kind: str) -> Field:
        default = {}
        if version > 2 and choices.flag(3):
            default = {"initial-default": _DEFAULTS[kind][0], "write-default": _DEFAULTS[kind][0]}
        return iceberg_values.field(number, name, kind, **default)

    kinds = [choices.one_of(KINDS)]
    for _ in range(choices.number(0, 2)):
        kinds.append(kinds[0] if choices.flag() else choices.one_of(KINDS))
    found = [one(number, f"c{number - 2}", kind) for number, kind in enumerate(kinds, 2)]
    if choices.flag(3):
        inner = [one(21, "x", choices.one_of(KINDS)), one(22, "y", "string")]
        found.append(iceberg_values.field(20, "st", inner))
    return [iceberg_values.field(1, ROW, "long"), *found]


def _draw_specs(choices: Choices, fields: list[Field]) -> list[list[SpecField]]:
    sources = [each for each in fields[1:] if isinstance(each["type"], str)]
    specs: list[list[SpecField]] = []
    for number in range(choices.number(1, 3)):
        spec: list[SpecField] = []
        for index in range(choices.one_of([0, 1, 1, 2])):
            source = choices.one_of(sources)
            transform = choices.one_of((*ANY_KIND, *TRANSFORMS.get(source["type"], ()) * 2))
            # At most one transform of each column in a spec.
            if all(each[0] != source["id"] for each in spec):
                spec.append((source["id"], transform, f"p{number} {index}"))
        specs.append(spec)
    return specs


def _draw_values(choices: Choices, each: Field, specs: list[list[SpecField]]) -> Any:
    if isinstance(each["type"], dict):
        return [_draw_values(choices, child, specs) for child in each["type"]["fields"]]
    data_type = to_arrow_type(each["type"])
    found = list_values(data_type)
    if each["type"] == "string":
        found = (*found, *LONG_TEXTS)
    if pa.types.is_timestamp(data_type):
        found = tuple(value for value in found if not is_extreme(value, data_type))
    own = {transform for spec in specs for source, transform, _ in spec if source == each["id"]}
    found = tuple(value for value in found if all(_has_partition(transform, each["type"], value) for transform in own))
    return choices.some_of((*found, *list_special_values(data_type) * 2), 1, 4)


def _has_partition(transform: str, kind: str, value: Any) -> bool:
    """Return whether the partition value fits its type. `truncate` of the smallest integer does not."""
    if not transform.startswith("truncate"):
        return True
    found = apply_transform(transform, kind, value)
    if isinstance(found, int):
        return abs(found) < 2 ** (31 if kind == "int" else 63)
    return not isinstance(found, Decimal) or len(found.as_tuple().digits) <= to_arrow_type(kind).precision


def _make_mapping(fields: list[Field]) -> list[dict[str, Any]]:
    return [
        {"field-id": each["id"], "names": [f"never seen {each['id']}", each["name"]]}
        | ({"fields": _make_mapping(each["type"]["fields"])} if isinstance(each["type"], dict) else {})
        for each in fields
    ]


def _draw_options(choices: Choices) -> dict[str, Any]:
    return {
        "row_group_size": choices.number(1, 6),
        "use_dictionary": choices.flag(),
        "write_statistics": choices.flag(5) is False,
        "write_page_index": choices.flag(),
        "max_rows_per_page": choices.one_of([1, 2, 1000]),
        "write_batch_size": 1,
    }
