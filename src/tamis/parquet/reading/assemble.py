"""Assembly of structs, lists and maps from leaf columns that were decoded separately.

Each leaf arrives as its field narrowed to that leaf (see `schema_path.narrow_field`), for example a list of structs
with one child. All leaves of a field share the same enclosing structure, so the first leaf supplies list offsets and
NULLs, and the values of all leaves are combined below it. Leaves that disagree mean a damaged file.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.parquet.footer.leaves import count_leaves

LeafArrays = Sequence[tuple[int, pa.Array]]
"""Leaf numbers, counted from 0 within a type, with their arrays, in ascending order."""


def can_assemble(data_type: pa.DataType) -> bool:
    """Return whether `assemble` supports fields of this type."""
    if count_leaves(data_type) == 1:
        return True
    if isinstance(data_type, pa.BaseExtensionType):
        return can_assemble(data_type.storage_type)
    is_supported = (
        pa.types.is_struct(data_type)
        or pa.types.is_list(data_type)
        or pa.types.is_large_list(data_type)
        or pa.types.is_map(data_type)
        or pa.types.is_fixed_size_list(data_type)
    )
    return is_supported and all(
        can_assemble(data_type.field(position).type) for position in range(data_type.num_fields)
    )


def assemble(data_type: pa.DataType, leaves: LeafArrays, what: str) -> pa.Array:
    """Return an array of the type from its leaves; structs omit missing leaves. `what` names the field in errors."""
    if count_leaves(data_type) == 1:
        return leaves[0][1]
    if isinstance(data_type, pa.BaseExtensionType):
        return pa.ExtensionArray.from_storage(data_type, assemble(data_type.storage_type, leaves, what))
    arrays = [_remove_offset(array) for _, array in leaves]
    first = arrays[0]
    mask = first.is_null() if first.null_count else None
    if any(not _has_same_nulls(array, len(first), mask) for array in arrays[1:]):
        raise _make_inconsistent_leaves_error(what)
    numbers = [number for number, _ in leaves]
    if pa.types.is_struct(data_type):
        children, fields = _assemble_children(data_type, list(zip(numbers, arrays, strict=True)), what)
        return pa.StructArray.from_arrays(children, fields=fields, mask=mask)
    inner = list(zip(numbers, (array.values for array in arrays), strict=True))
    if pa.types.is_fixed_size_list(data_type):
        values = assemble(data_type.value_type, inner, what)
        list_type = pa.list_(data_type.value_field.with_type(values.type), data_type.list_size)
        return pa.FixedSizeListArray.from_arrays(values, type=list_type, mask=mask)
    if any(not array.offsets.equals(first.offsets) for array in arrays):
        raise _make_inconsistent_leaves_error(what)
    if pa.types.is_map(data_type):
        entries = pa.struct([data_type.key_field, data_type.item_field])
        (keys, items), _ = _assemble_children(entries, inner, what)
        return pa.MapArray.from_arrays(first.offsets, keys, items, type=data_type, mask=mask)
    values = assemble(data_type.value_type, inner, what)
    field = data_type.value_field.with_type(values.type)
    if pa.types.is_large_list(data_type):
        return pa.LargeListArray.from_arrays(first.offsets, values, type=pa.large_list(field), mask=mask)
    return pa.ListArray.from_arrays(first.offsets, values, type=pa.list_(field), mask=mask)


def _assemble_children(data_type: pa.DataType, leaves: LeafArrays, what: str) -> tuple[list[pa.Array], list[pa.Field]]:
    """Return the struct's children that have at least one leaf. Each input array is a struct with a single child."""
    children: list[pa.Array] = []
    fields: list[pa.Field] = []
    start = 0
    for field in data_type:
        end = start + count_leaves(field.type)
        own = [(number - start, array.field(0)) for number, array in leaves if start <= number < end]
        if own:
            children.append(assemble(field.type, own, what))
            fields.append(field.with_type(children[-1].type))
        start = end
    return children, fields


def _has_same_nulls(array: pa.Array, length: int, mask: pa.BooleanArray | None) -> bool:
    """Return whether an array is NULL exactly where the mask is true; a mask of None means nowhere."""
    if mask is None:
        return len(array) == length and array.null_count == 0
    return bool(array.is_null().equals(mask))


def _remove_offset(array: pa.Array) -> pa.Array:
    """Return the same values without an offset into larger buffers, because child arrays would ignore the offset."""
    return array if array.offset == 0 else pa.concat_arrays([array, array.slice(0, 0)])


def _make_inconsistent_leaves_error(what: str) -> CorruptFile:
    return CorruptFile(f"the leaves of {what} disagree on its rows; write the file again")
