"""Partition specs and their fields.

A table may have several specs, and a manifest keeps the spec it was written with. Partition fields have their own ids,
and refer to their source column by field id, so renames do not matter. A field whose source column was dropped cannot
prune.
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
from tamis.errors import AmbiguousColumn
from tamis.expr.datetime_text import SECONDS_PER_DAY
from tamis.expr.nodes import Column
from tamis.expr.wire.partition_filter import PartitionFilter, resolve_column
from tamis.formats.constants import make_absent_values
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.iceberg.manifests.single_values import decode_values
from tamis.parquet.footer.leaves import FieldPath
from tamis.skipping.transforms import Transform
from tamis.types import UNITS_PER_SECOND, is_bytes, is_text

_PSEUDO, _FORMER = "\0partition", "\0former"


def name_former(field_id: int) -> FieldPath:
    """Return the path of a dropped column: a name may belong to another column now, its field id does not."""
    return _FORMER, str(field_id)


@dataclass(frozen=True)
class PartitionField:
    """A partition field of a spec."""

    field_id: int
    name: str
    transform: Transform
    source: Column | None
    """The source column; None if it was dropped, or is inside a list or a map."""
    former: Column | None = None
    """The dropped source column, as `name_former` names it."""

    @cached_property
    def result_type(self) -> pa.DataType | None:
        """The type of its partition values; None if they cannot be interpreted."""
        if self.source is None or self.source.type is None:
            return None
        return self.transform.result_type(self.source.type)

    @property
    def identity_column(self) -> Column | None:
        """The source column whose values are the partition values; None with another transform."""
        return self.source if self.transform.kind == "identity" else None

    @property
    def column(self) -> Column:
        """The partition value as a column, with a name that no table column has."""
        return Column((_PSEUDO, str(self.field_id)), type=self.result_type)


@dataclass(frozen=True)
class Spec:
    """A partition spec."""

    spec_id: int
    fields: tuple[PartitionField, ...]

    @property
    def is_unpartitioned(self) -> bool:
        """Return whether the spec has one partition only, so its equality deletes apply to the files of all specs."""
        return all(field.transform.kind == "void" for field in self.fields)

    @property
    def prunable_fields(self) -> tuple[PartitionField, ...]:
        """The fields whose values bound a source column."""
        return tuple(field for field in self.fields if field.result_type is not None and field.transform.preserves_null)

    @property
    def dropped(self) -> tuple[PartitionField, ...]:
        """The fields whose source column was dropped."""
        return tuple(field for field in self.fields if field.source is None and field.transform.kind != "void")

    @property
    def computed(self) -> tuple[PartitionField, ...]:
        """The fields whose values are computed of their source columns."""
        return tuple(field for field in self.prunable_fields if field.transform.kind != "identity")

    @property
    def identity(self) -> tuple[tuple[PartitionField, Column], ...]:
        """The identity-transformed fields, with their source columns."""
        fields = ((field, field.identity_column) for field in self.prunable_fields)
        return tuple((field, column) for field, column in fields if column is not None)

    @property
    def former_identity(self) -> tuple[tuple[PartitionField, Column], ...]:
        """The identity-transformed fields whose source column was dropped, with that column."""
        return tuple(
            (field, field.former)
            for field in self.dropped
            if field.transform.kind == "identity" and field.former is not None
        )

    def read_former_values(self, values: Mapping[int, pa.Array], location: str) -> dict[FieldPath, pa.StructArray]:
        """Return the values of dropped columns in files that lack them: see `tamis.formats.constants`."""
        found = {}
        for field, column in self.former_identity:
            own = values[field.field_id]
            typed = _convert_values(own, column.type, f"'{location}'", field.name)
            is_unknown = pa.repeat(True, len(own)) if is_of_unknown_type(own) else _find_invalid(own, typed)
            found[column.path] = make_absent_values(typed, is_unknown)
        return found

    def convert_values(self, values: Mapping[int, pa.Array], location: str) -> dict[int, pa.Array]:
        """Convert the values of partition tuples to their types, by field id; raise if the fields differ from the spec.

        Values that are invalid for their types become NULL; `find_invalid` returns a mask of them.
        """
        expected, found = {field.field_id for field in self.fields}, set(values)
        if expected != found:
            raise make_corrupt_snapshot_error(
                f"'{location}' has partition tuples with the fields {sorted(found)}, but its partition spec "
                f"{self.spec_id} has {sorted(expected)}: its partition values cannot be read"
            )
        return {
            field.field_id: _convert_values(values[field.field_id], field.result_type, f"'{location}'", field.name)
            for field in self.prunable_fields
            if field.result_type is not None
        }

    def find_invalid(self, values: Mapping[int, pa.Array], typed: Mapping[int, pa.Array]) -> dict[int, pa.BooleanArray]:
        """Return masks of the values that are invalid for their types, by the ids of the fields that have any."""
        found = {}
        for field_id, own in typed.items():
            raw = values[field_id]
            if own.null_count > raw.null_count and not is_of_unknown_type(raw):
                found[field_id] = _find_invalid(raw, own)
        return found


def resolve_filter(
    partition_filter: PartitionFilter, specs: Mapping[int, Spec], table: str
) -> dict[int, PartitionFilter]:
    """Return the partition filter for each spec, over the names of its fields.

    A column of the filter is the name of a partition field, or the current name of an identity-partitioned column. So a
    filter still finds files after the column or its partition field was renamed.
    """
    known = list_filter_names(specs)
    names = {column: resolve_column(column, known, table) for column in partition_filter.columns}
    for name in names.values():
        check_filter_name(name, specs, table)
    return {
        spec_id: partition_filter.with_columns({column: find_field_name(spec, name) for column, name in names.items()})
        for spec_id, spec in specs.items()
    }


def list_filter_names(specs: Mapping[int, Spec]) -> list[str]:
    """Return the names that a partition filter may use: of partition fields, and of identity-partitioned columns."""
    fields = [field for spec in specs.values() for field in spec.fields]
    identity = (name for name in map(_get_identity_column, fields) if name is not None)
    return [*(field.name for field in fields), *identity]


def find_filter_sources(name: str, specs: Mapping[int, Spec]) -> frozenset[str] | None:
    """Return the source columns of all partition fields that a name of `list_filter_names` may mean.

    None if one of them is not a column of the table any more.
    """
    fields = [field for spec in specs.values() for field in spec.fields]
    meant = [field.source for field in fields if name in (field.name, _get_identity_column(field))]
    known = [source.path[0] for source in meant if source is not None]
    return frozenset(known) if len(known) == len(meant) else None


def check_filter_name(name: str, specs: Mapping[int, Spec], table: str) -> None:
    """Raise if a name of `list_filter_names` means one column in one spec and another column in another."""
    fields = [field for spec in specs.values() for field in spec.fields]
    others = {_get_identity_column(field) for field in fields if field.name == name} - {name, None}
    if others and any(_get_identity_column(field) == name for field in fields):
        raise AmbiguousColumn(
            f"the partition filter's column {name!r} is ambiguous in {table}: a partition field of that name has "
            f"the source column {min(map(str, others))!r}, and another has {name!r}. Filter with SQL instead"
        )


def _get_identity_column(field: PartitionField) -> str | None:
    """Return the current name of the source column of an identity-transformed field, or None."""
    return None if field.identity_column is None else field.identity_column.name


def find_field_name(spec: Spec, name: str) -> str:
    """Return the name of the partition field that a name of `list_filter_names` means; the name itself otherwise."""
    if any(field.name == name for field in spec.fields):
        return name
    return next((field.name for field in spec.fields if _get_identity_column(field) == name), name)


def make_specs(
    given: Sequence[Mapping[str, Any]], columns: Mapping[int, Column], former: Mapping[int, Column] | None = None
) -> dict[int, Spec]:
    """Create the specs of a layout; `columns` and the dropped columns `former` are given by field id."""

    def make_field(each: Mapping[str, Any]) -> PartitionField:
        transform, source = Transform.parse(each["transform"]), each["source_id"]
        return PartitionField(
            each["field_id"], each["name"], transform, columns.get(source), (former or {}).get(source)
        )

    return {each["spec_id"]: Spec(each["spec_id"], tuple(map(make_field, each["fields"]))) for each in given}


def find_field_chain(schemas: Iterable[Mapping[str, Any]], field_id: int) -> list[Mapping[str, Any]] | None:
    """Return a field of the first schema that has it, preceded by the structs around it, outermost first.

    Fields inside lists and maps are not found.
    """
    for schema in schemas:
        pending: list[list[Mapping[str, Any]]] = [[each] for each in schema["fields"]]
        while pending:
            chain = pending.pop()
            if chain[-1]["id"] == field_id:
                return chain
            kind = chain[-1]["type"]
            if not isinstance(kind, str) and kind["type"] == "struct":
                pending += [[*chain, each] for each in kind["fields"]]
    return None


def map_columns_by_id(schema: Mapping[str, Any], arrow: pa.Schema) -> dict[int, Column]:
    """Return the columns of a schema and the fields of its structs, by field id; lists and maps are not entered."""
    found: dict[int, Column] = {}
    pending: list[tuple[Sequence[Any], Sequence[pa.Field], tuple[str, ...]]] = [(schema["fields"], list(arrow), ())]
    while pending:
        fields, arrow_fields, path = pending.pop()
        for field, arrow_field in zip(fields, arrow_fields, strict=True):
            own = (*path, arrow_field.name)
            found[field["id"]] = Column(own, type=arrow_field.type)
            if pa.types.is_struct(arrow_field.type):
                pending.append((field["type"]["fields"], list(arrow_field.type), own))
    return found


def is_of_unknown_type(values: pa.Array) -> bool:
    """Return whether a manifest has the unknown type for partition values, and so only NULL."""
    return bool(pa.types.is_null(values.type) or (pa.types.is_struct(values.type) and not values.type.num_fields))


def _find_invalid(values: pa.Array, typed: pa.Array) -> pa.BooleanArray:
    return pc.and_(values.is_valid(), typed.is_null())


def _convert_values(values: pa.Array, result: pa.DataType, location: str, name: str) -> pa.Array:
    """Convert partition values to their type, NULL where they are invalid for it.

    Avro stores them as bytes, strings and plain numbers.
    """
    source = values.type
    if is_of_unknown_type(values):
        return pa.nulls(len(values), result)
    if pa.types.is_integer(source) and (pa.types.is_integer(result) or pa.types.is_temporal(result)):
        return _convert_integers(values, result)
    if pa.types.is_floating(source) and pa.types.is_floating(result) and source.bit_width <= result.bit_width:
        return values.cast(result)
    if pa.types.is_boolean(source) and pa.types.is_boolean(result):
        return values
    if is_text(source) and is_text(result):
        return values.cast(result)
    if is_bytes(source) and (is_bytes(result) or pa.types.is_decimal(result)):
        return decode_values(values, result)
    raise make_corrupt_snapshot_error(
        f"{location} has partition values of the type {source} in '{name}', expected {types.type_name(result)}: "
        "they are incompatible with its partition spec"
    )


def _convert_integers(values: pa.Array, result: pa.DataType) -> pa.Array:
    if pa.types.is_timestamp(result) and values.type == pa.int32():
        # The column was a date when the file was written.
        per_day = SECONDS_PER_DAY * UNITS_PER_SECOND[result.unit]
        days = pc.fill_null(values, 0).to_numpy(zero_copy_only=False).astype(np.int64)
        fits = np.abs(days) <= (2**63 - 1) // per_day
        return pa.array(np.where(fits, days, 0) * per_day, mask=np.asarray(values.is_null()) | ~fits).view(result)
    wide = types.LONG if result.bit_width == 64 else pa.int32()
    if values.type != wide:
        smallest, largest = types.get_integer_range(wide)
        fits = pc.and_(pc.greater_equal(values, smallest), pc.less_equal(values, largest))
        values = pc.if_else(fits, values, pa.scalar(None, values.type))
    found = values.cast(wide)
    return found if wide == result else found.view(result)
