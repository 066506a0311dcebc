"""Batches of a file in the shape of the table: names, order, types, columns that the file does not have."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import CorruptFile, one_line
from tamis.parquet.field_names import ELEMENT, KEY, VALUE, FieldNames
from tamis.parquet.leaves import FieldPath
from tamis.parquet.matching import can_convert, find_name, misfit


def conform_batch(
    batch: pa.RecordBatch,
    schema: pa.Schema,
    constants: Mapping[str, pa.Scalar],
    place: str,
    names: FieldNames | None = None,
) -> pa.RecordBatch:
    """The batch with exactly the columns of a schema: constants where given, else the file's, else what `names` says
    of columns that a file does not have, else NULL. Where there are `names`, those of the batch are in their words."""
    shape = _Shape(place) if names is None else _Shape(place, names.defaults, exact=True)
    arrays = []
    for each in schema:
        if each.name in constants:
            arrays.append(pa.repeat(constants[each.name], batch.num_rows))
            continue
        index = find_name(batch.schema.names, each.name, exact=shape.exact)
        values = None if index is None else batch.column(index)
        arrays.append(shape.conform(values, each.type, (each.name,), batch.num_rows))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def _loses_digits(values: pa.Array, cast: pa.Array) -> bool:
    """Whether Arrow rounded without a word, as it does from wider floats to narrower ones."""
    if not (pa.types.is_floating(values.type) and pa.types.is_floating(cast.type)):
        return False
    if cast.type.bit_width >= values.type.bit_width:
        return False
    changed = pc.and_(pc.not_equal(cast.cast(values.type), values), pc.invert(pc.is_nan(values)))
    return bool(pc.any(changed, min_count=0).as_py())


@dataclass(frozen=True, slots=True)
class _Shape:
    """How the values of one file become those of the table."""

    place: str
    defaults: Mapping[FieldPath, pa.Scalar] = field(default_factory=dict)
    exact: bool = False

    def conform(self, values: pa.Array | None, target: pa.DataType, path: FieldPath, count: int) -> pa.Array:
        """The values of a field, or of none, in the table's type."""
        if values is None:
            return self._absent(target, path, count)
        if values.type == target:
            return values
        if pa.types.is_struct(target) and pa.types.is_struct(values.type):
            return self._struct(values, target, path)
        if self.defaults and pa.types.is_nested(target):
            if pa.types.is_list(target) and pa.types.is_large_list(values.type):
                values = self._cast(values, pa.list_(values.type.value_field), path)
            if pa.types.is_list(target) and pa.types.is_list(values.type):
                return self._list(values, target, path)
            if pa.types.is_map(target) and pa.types.is_map(values.type):
                return self._map(values, target, path)
        return self._cast(values, target, path)

    def _absent(self, target: pa.DataType, path: FieldPath, count: int) -> pa.Array:
        default = self.defaults.get(path)
        if default is None:
            return pa.nulls(count, target)
        if not pa.types.is_struct(target):
            return pa.repeat(default.cast(target), count)
        # It is there, and what is inside has defaults of its own.
        children = [self._absent(each.type, (*path, each.name), count) for each in target]
        return pa.StructArray.from_arrays(children, fields=list(target), mask=pa.repeat(False, count))

    def _struct(self, values: pa.StructArray, target: pa.StructType, path: FieldPath) -> pa.Array:
        names = [child.name for child in values.type]
        children = []
        for child in target:
            index = find_name(names, child.name, exact=self.exact)
            inner = None if index is None else values.field(index)
            children.append(self.conform(inner, child.type, (*path, child.name), len(values)))
        return pa.StructArray.from_arrays(children, fields=list(target), mask=values.is_null())

    # Arrow's cast gives NULL to the fields that structs within lists and maps lack, where the table may know better.

    def _list(self, values: pa.ListArray, target: pa.ListType, path: FieldPath) -> pa.Array:
        inner = self.conform(values.values, target.value_type, (*path, ELEMENT), len(values.values))
        return _like(values, target, [inner])

    def _map(self, values: pa.MapArray, target: pa.MapType, path: FieldPath) -> pa.Array:
        keys = self.conform(values.keys, target.key_type, (*path, KEY), len(values.keys))
        items = self.conform(values.items, target.item_type, (*path, VALUE), len(values.items))
        entries = pa.StructArray.from_arrays([keys, items], fields=[target.key_field, target.item_field])
        return _like(values, target, [entries])

    def _cast(self, values: pa.Array, target: pa.DataType, path: FieldPath) -> pa.Array:
        if not can_convert(target, values.type):
            raise CorruptFile(self._misfit(values, target, path))
        try:
            cast = values.cast(target)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            raise CorruptFile(f"{self._misfit(values, target, path)} ({one_line(error)})") from error
        if _loses_digits(values, cast):
            raise CorruptFile(f"{self._misfit(values, target, path)} (a value would be rounded)")
        return cast

    def _misfit(self, values: pa.Array, target: pa.DataType, path: FieldPath) -> str:
        return misfit(".".join(path), self.place, target, values.type)


def _like(values: pa.Array, target: pa.DataType, children: list[pa.Array]) -> pa.Array:
    """A list or a map with the same lengths and NULLs, and other contents."""
    validity, offsets = values.buffers()[:2]
    return pa.Array.from_buffers(
        target, len(values), [validity, offsets], null_count=values.null_count, offset=values.offset, children=children
    )
