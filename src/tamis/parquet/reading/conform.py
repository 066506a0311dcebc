"""Conversion of a file's batches to the table's schema: names, order, types, and columns missing from the file."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, UnsupportedFeature, to_one_line
from tamis.parquet.footer.field_names import ELEMENT, KEY, VALUE, ColumnMapping
from tamis.parquet.footer.leaves import FieldPath
from tamis.parquet.footer.matching import can_convert, describe_type_mismatch, find_name
from tamis.types import type_name_with_article

_MAX_NULL_BYTES = 2**32
"""The maximum number of bytes that the NULLs of one column may take in a batch."""


Constants = Mapping[FieldPath, pa.Scalar]
"""The values of constant columns by path. Those of fields inside structs are for files that lack the field."""


def conform_batch(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    constants: Constants,
    location: str,
    names: ColumnMapping | None = None,
) -> pa.RecordBatch:
    """Return the batch with exactly the columns of a schema.

    A column comes from the constants, else from the file, else from the defaults of `names`. Else it is NULL. With
    `names`, the batch already has the table's column names.
    """
    inside = _find_nested_constants(constants)
    converter = (
        _Converter(location, inside)
        if names is None
        else _Converter(location, {**names.defaults, **inside}, exact=True)
    )
    arrays = []
    for each in schema:
        constant = constants.get((each.name,))
        if constant is not None:
            value = constant if constant.type == each.type else constant.cast(each.type)
            arrays.append(pa.repeat(value, batch.num_rows))
            continue
        index = find_name(batch.schema.names, each.name, exact=converter.exact)
        values = None if index is None else batch.column(index)
        arrays.append(converter.conform(values, each.type, (each.name,), batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def describe_shredded_variant(column: str) -> str:
    """Return the error message for shredded variants, whose typed columns the table's schema does not have."""
    return (
        f"column '{column}' has shredded variants, which are not supported: leave it out with columns=…, "
        "or write its files again with spark.sql.variant.writeShredding.enabled=false"
    )


def _find_nested_constants(constants: Constants) -> dict[FieldPath, pa.Scalar]:
    """Return the constants of fields inside structs; structs around a non-NULL constant are not NULL either."""
    found: dict[FieldPath, pa.Scalar] = {}
    for path, value in constants.items():
        if len(path) > 1:
            found[path] = value
            if value.is_valid:
                found |= {path[:depth]: value for depth in range(1, len(path))}
    return found


def _loses_digits(values: pa.Array, cast: pa.Array) -> bool:
    """Return whether Arrow rounded silently, as it does from wider floats to narrower ones."""
    if not (pa.types.is_floating(values.type) and pa.types.is_floating(cast.type)):
        return False
    if cast.type.bit_width >= values.type.bit_width:
        return False
    changed = pc.and_(pc.not_equal(cast.cast(values.type), values), pc.invert(pc.is_nan(values)))
    return bool(pc.any(changed, min_count=0).as_py())


@dataclass(frozen=True, slots=True)
class _Converter:
    """The conversion of one file's values to the table's types."""

    location: str
    defaults: Mapping[FieldPath, pa.Scalar] = field(default_factory=dict)
    exact: bool = False

    def conform(self, values: pa.Array | None, target: pa.DataType, path: FieldPath, count: int) -> pa.Array:
        """Return the values of a field in the table's type; `values` is None if the file lacks the field."""
        if values is None:
            return self._make_default(target, path, count)
        if values.type == target:
            return values
        if pa.types.is_struct(target) and pa.types.is_struct(values.type):
            return self._convert_struct(values, target, path)
        if pa.types.is_nested(target):
            if pa.types.is_list(target) and pa.types.is_large_list(values.type):
                values = self._cast(values, pa.list_(values.type.value_field), path)
            if pa.types.is_list(target) and pa.types.is_list(values.type):
                return self._convert_list(values, target, path)
            if pa.types.is_map(target) and pa.types.is_map(values.type):
                return self._convert_map(values, target, path)
        return self._cast(values, target, path)

    def _make_default(self, target: pa.DataType, path: FieldPath, count: int) -> pa.Array:
        default = self.defaults.get(path)
        if default is None:
            self._check_size(target, path, count)
            return pa.nulls(count, target)
        if not pa.types.is_struct(target):
            return pa.repeat(default.cast(target), count)
        # The struct is not NULL, and its fields have defaults of their own.
        children = [self._make_default(each.type, (*path, each.name), count) for each in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=pa.repeat(False, count))

    def _check_size(self, target: pa.DataType, path: FieldPath, count: int) -> None:
        """Raise if fixed-length NULLs take too much memory; others take almost none."""
        size = target.byte_width * count if pa.types.is_fixed_size_binary(target) else 0
        if size > _MAX_NULL_BYTES:
            raise UnsupportedFeature(
                f"column {'.'.join(path)!r} of {self.location} is NULL in {count:,} rows, and "
                f"{type_name_with_article(target)} takes {size / 2**30:.1f} GiB for them: leave it out with columns=…"
            )

    def _convert_struct(self, values: pa.StructArray, target: pa.StructType, path: FieldPath) -> pa.Array:
        names = [child.name for child in values.type]
        if "typed_value" in names and {child.name for child in target} == {"metadata", "value"}:
            raise UnsupportedFeature(describe_shredded_variant(".".join(path)))
        children = []
        for child in target:
            index = find_name(names, child.name, exact=self.exact)
            inner = None if index is None else values.field(index)
            children.append(self.conform(inner, child.type, (*path, child.name), len(values)))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())

    # Structs inside lists and maps also may have another field order and missing fields with defaults. Arrow's cast
    # supports neither.

    def _convert_list(self, values: pa.ListArray, target: pa.ListType, path: FieldPath) -> pa.Array:
        own = _slice_elements(values)
        return _replace_elements(values, target, self.conform(own, target.value_type, (*path, ELEMENT), len(own)))

    def _convert_map(self, values: pa.MapArray, target: pa.MapType, path: FieldPath) -> pa.Array:
        own = _slice_elements(values)
        keys = self.conform(own.field(0), target.key_type, (*path, KEY), len(own))
        items = self.conform(own.field(1), target.item_type, (*path, VALUE), len(own))
        entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
        return _replace_elements(values, target, entries)

    def _cast(self, values: pa.Array, target: pa.DataType, path: FieldPath) -> pa.Array:
        if not can_convert(target, values.type):
            raise CorruptFile(self._describe_mismatch(values, target, path))
        try:
            cast = values.cast(target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptFile(f"{self._describe_mismatch(values, target, path)} ({to_one_line(error)})") from error
        if _loses_digits(values, cast):
            raise CorruptFile(f"{self._describe_mismatch(values, target, path)} (a value would be rounded)")
        return cast

    def _describe_mismatch(self, values: pa.Array, target: pa.DataType, path: FieldPath) -> str:
        return describe_type_mismatch(".".join(path), self.location, target, values.type, exact=self.exact)


def _slice_elements(values: pa.Array) -> pa.Array:
    """Return the elements of the lists or maps of an array, which may be a small slice of the decoded values."""
    offsets = values.offsets
    first = offsets[0].as_py()
    return values.values.slice(first, offsets[-1].as_py() - first)


def _replace_elements(values: pa.Array, target: pa.DataType, elements: pa.Array) -> pa.Array:
    """Return lists or maps of the same lengths and NULLs with new elements."""
    offsets = pc.subtract(values.offsets, values.offsets[0])
    lists = pa.ListArray.from_arrays(offsets, elements, mask=values.is_null())
    return pa.Array.from_buffers(
        target, len(lists), lists.buffers()[:2], null_count=lists.null_count, offset=lists.offset, children=[elements]
    )
