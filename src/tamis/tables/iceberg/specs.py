"""Partition specs: the fields of a table's partitions, each under the spec that wrote them.

A table may have had several specs, and a manifest keeps the one it was written under. Its fields have ids of their own,
and name their source by the id of its column, so that renames do not matter. What a column that is gone was partitioned
by says nothing today.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import AmbiguousColumn, CorruptFile
from tamis.expr.nodes import Column
from tamis.expr.partition_filter import PartitionFilter, resolve_column
from tamis.tables.iceberg.single_values import SECONDS_PER_DAY, decode_values
from tamis.tables.iceberg.transforms import Transform
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

_PSEUDO = "\0partition"


@dataclass(frozen=True)
class PartitionField:
    """A field of a spec."""

    field_id: int
    name: str
    transform: Transform
    source: Column | None
    """The column that it is made of; None where the table has it no longer, or not outside of lists and maps."""
    former: pa.Field | None = None
    """The column that it was made of, where the table has it no longer: under its id in place of a name."""

    @cached_property
    def result_type(self) -> pa.DataType | None:
        """The type of its values; None where nothing can be said of them."""
        if self.source is None or self.source.type is None:
            return None
        return self.transform.result_type(self.source.type)

    @property
    def column(self) -> Column:
        """The partition value itself as a column, by a name that no table has."""
        return Column((_PSEUDO, str(self.field_id)), type=self.result_type)


@dataclass(frozen=True)
class Spec:
    """A partition spec."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    @property
    def is_unpartitioned(self) -> bool:
        """Whether it has one partition only, so that its equality deletes are for the files of all specs."""
        return all(field.transform.kind == "void" for field in self.fields)

    @property
    def useful(self) -> tuple[PartitionField, ...]:
        """The fields that say something of a column."""
        return tuple(field for field in self.fields if field.result_type is not None and field.transform.says_null)

    @property
    def gone(self) -> tuple[PartitionField, ...]:
        """The fields whose column the table has no longer."""
        return tuple(field for field in self.fields if field.source is None and field.transform.kind != "void")

    @property
    def identity(self) -> tuple[tuple[PartitionField, Column], ...]:
        """The fields that have a column as it is, with the column."""
        return tuple(
            (field, field.source)
            for field in self.useful
            if field.transform.kind == "identity" and field.source is not None
        )

    @property
    def former_identity(self) -> tuple[tuple[PartitionField, pa.Field], ...]:
        """The fields that had a column as it was, which is gone, with the column."""
        return tuple(
            (field, field.former)
            for field in self.gone
            if field.transform.kind == "identity" and field.former is not None
        )

    def former_values(self, values: Mapping[int, pa.Array], place: str) -> dict[str, pa.StructArray]:
        """The values of columns that are gone, by their ids: structs with the field `value`, null where unknown."""
        found = {}
        for field, column in self.former_identity:
            own = values[field.field_id]
            typed = _typed(own, column.type, f"'{place}'", field.name)
            is_unknown = pa.repeat(True, len(own)) if is_of_unknown_type(own) else _is_wrong(own, typed)
            found[column.name] = pa.StructArray.from_arrays([typed], ["value"], mask=is_unknown)
        return found

    def typed(self, values: Mapping[int, pa.Array], place: str) -> dict[int, pa.Array]:
        """The values of partition tuples in their types, by the ids of fields; an error where a tuple does not fit.

        A value that its type cannot represent is NULL, and `wrong` tells which.
        """
        expected, found = {field.field_id for field in self.fields}, set(values)
        if expected != found:
            raise CorruptFile(
                f"'{place}' has partition tuples of the fields {sorted(found)}, and the spec {self.spec_id}, under "
                f"which it was written, has {sorted(expected)}: its files cannot be told apart"
            )
        return {
            field.field_id: _typed(values[field.field_id], field.result_type, f"'{place}'", field.name)
            for field in self.useful
            if field.result_type is not None
        }

    def wrong(self, values: Mapping[int, pa.Array], typed: Mapping[int, pa.Array]) -> dict[int, pa.BooleanArray]:
        """Which values of tuples their types cannot represent, by the ids of the fields that have some."""
        found = {}
        for field_id, own in typed.items():
            raw = values[field_id]
            if own.null_count > raw.null_count and not is_of_unknown_type(raw):
                found[field_id] = _is_wrong(raw, own)
        return found


def resolve_filter(
    partition_filter: PartitionFilter, specs: Mapping[int, Spec], table: str
) -> dict[int, PartitionFilter]:
    """The filter for each spec, over the names of its fields.

    A column of the filter is the name of a partition field, or the column as the table calls it today where a field
    has its values unchanged. So a filter still finds files after the column, or its partition field, was renamed.
    """
    fields = [field for spec in specs.values() for field in spec.fields]
    known = [*(field.name for field in fields), *(name for name in map(_identity_column, fields) if name is not None)]
    names = {column: resolve_column(column, known, table) for column in partition_filter.columns}
    for name in names.values():
        others = {_identity_column(field) for field in fields if field.name == name} - {name, None}
        if others and any(_identity_column(field) == name for field in fields):
            raise AmbiguousColumn(
                f"the partition filter's column {name!r} is ambiguous in {table}: a partition field of that name has "
                f"the column {min(map(str, others))!r}, and another one the column {name!r}. Filter with SQL instead"
            )
    return {
        spec_id: partition_filter.with_columns({column: _name_in(spec, name) for column, name in names.items()})
        for spec_id, spec in specs.items()
    }


def _identity_column(field: PartitionField) -> str | None:
    """The column whose values a partition field has unchanged, as the table calls it today."""
    return field.source.name if field.transform.kind == "identity" and field.source is not None else None


def _name_in(spec: Spec, name: str) -> str:
    if any(field.name == name for field in spec.fields):
        return name
    return next((field.name for field in spec.fields if _identity_column(field) == name), name)


def make_specs(
    given: Sequence[Mapping[str, Any]], columns: Mapping[int, Column], former: Mapping[int, pa.Field] | None = None
) -> dict[int, Spec]:
    """The specs of a layout, over the columns of a schema by their ids, and those that it has no longer."""
    return {
        each["spec_id"]: Spec(
            each["spec_id"],
            tuple(_field(field, columns, former or {}) for field in each["fields"]),
        )
        for each in given
    }


def _field(given: Mapping[str, Any], columns: Mapping[int, Column], former: Mapping[int, pa.Field]) -> PartitionField:
    transform = Transform.parse(given["transform"])
    source = given["source_id"]
    return PartitionField(given["field_id"], given["name"], transform, columns.get(source), former.get(source))


def chain_to(schemas: Iterable[Mapping[str, Any]], field_id: int) -> list[Mapping[str, Any]] | None:
    """A field of the first schema that has it, after those around it, the outermost first. Lists and maps hold none."""
    for schema in schemas:
        waiting: list[list[Mapping[str, Any]]] = [[each] for each in schema["fields"]]
        while waiting:
            chain = waiting.pop()
            if chain[-1]["id"] == field_id:
                return chain
            kind = chain[-1]["type"]
            if not isinstance(kind, str) and kind["type"] == "struct":
                waiting += [[*chain, each] for each in kind["fields"]]
    return None


def columns_by_id(schema: Mapping[str, Any], arrow: pa.Schema) -> dict[int, Column]:
    """The columns of a schema, and the fields of its structs, by their ids. Lists and maps hold none."""
    found: dict[int, Column] = {}
    waiting: list[tuple[Sequence[Any], Sequence[pa.Field], tuple[str, ...]]] = [(schema["fields"], list(arrow), ())]
    while waiting:
        fields, arrow_fields, path = waiting.pop()
        for field, arrow_field in zip(fields, arrow_fields, strict=True):
            own = (*path, arrow_field.name)
            found[field["id"]] = Column(own, type=arrow_field.type)
            if pa.types.is_struct(arrow_field.type):
                waiting.append((field["type"]["fields"], list(arrow_field.type), own))
    return found


def is_of_unknown_type(values: pa.Array) -> bool:
    """Whether a manifest has no type for partition values, and so no value besides NULL."""
    return bool(pa.types.is_null(values.type) or (pa.types.is_struct(values.type) and not values.type.num_fields))


def _is_wrong(values: pa.Array, typed: pa.Array) -> pa.BooleanArray:
    return pc.and_(values.is_valid(), typed.is_null())


def _typed(values: pa.Array, result: pa.DataType, place: str, name: str) -> pa.Array:
    """Partition values in their type, NULL where it cannot represent them.

    Avro has bytes, texts, and numbers without a unit for them.
    """
    source = values.type
    if is_of_unknown_type(values):
        return pa.nulls(len(values), result)
    if pa.types.is_integer(source) and _is_counted(result):
        return _counted(values, result)
    if pa.types.is_floating(source) and pa.types.is_floating(result) and source.bit_width <= result.bit_width:
        return values.cast(result)
    if pa.types.is_boolean(source) and pa.types.is_boolean(result):
        return values
    if is_text(source) and is_text(result):
        return values.cast(result)
    if is_bytes(source) and (is_bytes(result) or pa.types.is_decimal(result)):
        return decode_values(values, result)
    raise CorruptFile(
        f"{place} has partition values of the type {source} in '{name}', which is {types.type_name(result)}: "
        "they do not fit the spec under which it was written"
    )


def _is_counted(result: pa.DataType) -> bool:
    return bool(pa.types.is_integer(result) or pa.types.is_temporal(result))


def _counted(values: pa.Array, result: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(result) and values.type == pa.int32():
        # It was a date when the file was written.
        per_day = SECONDS_PER_DAY * UNITS_PER_SECOND[result.unit]
        days = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        fits = np.abs(days) <= (2**63 - 1) // per_day
        return pa.array(np.where(fits, days, 0) * per_day, mask=np.asarray(values.is_null()) | ~fits).view(result)
    wide = types.LONG if result.bit_width == 64 else pa.int32()
    if values.type != wide:
        smallest, largest = types.integer_range(wide)
        fits = pc.and_(pc.greater_equal(values, smallest), pc.less_equal(values, largest))
        values = pc.if_else(fits, values, pa.scalar(None, values.type))
    found = values.cast(wide)
    return found if wide == result else found.view(result)
