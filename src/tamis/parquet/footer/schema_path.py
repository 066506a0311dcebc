"""The path from the root of a file's schema to one leaf, as the schema elements of the footer.

A footer stores its schema as a list: each group before its children, the root first. The schema of a file with only one
leaf is the path to that leaf, with one child per group. Dropping the other children would change the meaning of two
groups, so they are changed first:

- a repeated group in a LIST that is a struct only because it has several children: it is renamed `array`, the name by
  which readers recognise that the group itself is the element;
- a map: its key or its value alone is not a map, so it becomes a list of structs with that one child.

Readers infer nothing else from the children of a group.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import lru_cache

import pyarrow as pa

from tamis.errors import CorruptFile
from tamis.parquet.footer.chunks import FooterMap
from tamis.parquet.footer.leaves import count_leaves
from tamis.parquet.footer.thrift import (
    BINARY,
    BYTES,
    I32,
    INTEGER32,
    RAW_STRUCT,
    STRUCT,
    Kind,
    Malformed,
    Struct,
    decode_or_raise,
    encode_struct,
    get_required,
    make_struct_kind,
    read_list_header,
    read_struct,
)
from tamis.parquet.footer.validation import PHYSICAL_TYPES

REQUIRED, OPTIONAL, REPEATED = range(3)

# Converted types, and the corresponding field ids in the union of logical types.
_MAP, _MAP_KEY_VALUE, _LIST = 1, 2, 3
_LOGICAL_MAP, _LOGICAL_LIST = 2, 3

_FIXED_LENGTH = PHYSICAL_TYPES.index("FIXED_LEN_BYTE_ARRAY")
# Byte arrays have a length prefix.
_PLAIN_WIDTHS: dict[int | None, int] = {
    PHYSICAL_TYPES.index(name): width
    for name, width in (("INT32", 4), ("INT64", 8), ("INT96", 12), ("FLOAT", 4), ("DOUBLE", 8), ("BYTE_ARRAY", 4))
}

MAX_SCHEMA_DEPTH = 200
"""The maximum nesting depth of groups. Arrow itself rejects schemas that are much deeper."""


@dataclass(frozen=True, slots=True)
class SchemaElement:
    """A group or a leaf of the schema."""

    name: bytes
    repetition: int | None
    """None for the root."""
    children: int
    """0 for a leaf."""
    physical: int | None
    type_length: int | None
    converted: int | None
    scale: int | None
    precision: int | None
    logical: bytes | None
    """The encoded logical type."""

    @property
    def is_leaf(self) -> bool:
        # A group may have no children.
        return self.children == 0 and self.physical is not None

    @property
    def is_list(self) -> bool:
        return self.converted == _LIST or _read_union_field(self.logical) == _LOGICAL_LIST

    @property
    def is_map(self) -> bool:
        return self.converted in (_MAP, _MAP_KEY_VALUE) or _read_union_field(self.logical) == _LOGICAL_MAP

    @property
    def min_plain_bytes(self) -> int:
        """The minimum number of bytes of a value in PLAIN encoding; 0 for a bit."""
        if self.physical == _FIXED_LENGTH:
            return max(0, self.type_length or 0)
        return _PLAIN_WIDTHS.get(self.physical, 0)

    def encode(self) -> bytes:
        return encode_struct(
            (
                (1, I32, self.physical),
                (2, I32, self.type_length),
                (3, I32, self.repetition),
                (4, BINARY, self.name),
                (5, I32, self.children or None),
                (6, I32, self.converted),
                (7, I32, self.scale),
                (8, I32, self.precision),
                (10, STRUCT, self.logical),
            )
        )


@dataclass(frozen=True, slots=True)
class LeafSchema:
    """A leaf and the groups around it, outermost first, each with one child; without the root."""

    elements: tuple[SchemaElement, ...]

    @property
    def leaf(self) -> SchemaElement:
        return self.elements[-1]

    @property
    def is_repeated(self) -> bool:
        """Return whether a row may have any number of values."""
        return any(element.repetition == REPEATED for element in self.elements)

    @property
    def max_definition_level(self) -> int:
        return sum(element.repetition in (OPTIONAL, REPEATED) for element in self.elements)


def read_leaf_schemas(footer: FooterMap, leaves: Collection[int], location: str) -> dict[int, LeafSchema]:
    """Return the schema paths to these leaves."""

    def read(data: bytes, position: int) -> tuple[dict[int, LeafSchema], int]:
        tree = _parse_tree(data)
        return {leaf: LeafSchema(_narrow_path(tree.path(leaf))) for leaf in leaves}, len(data)

    return decode_or_raise(read, footer.schema, 0, f"the schema of '{location}'")


_ELEMENT: dict[int, Kind] = {**dict.fromkeys((1, 2, 3, 5, 6, 7, 8), INTEGER32), 4: BYTES, 10: RAW_STRUCT}


def _make_element(found: Struct) -> SchemaElement:
    children = found.get(5, 0)
    if children < 0:
        raise Malformed(f"a group has {children} children")
    others = (found.get(identifier) for identifier in (1, 2, 6, 7, 8, 10))
    return SchemaElement(get_required(found, 4, "name of a column"), found.get(3), children, *others)


@dataclass(frozen=True, slots=True)
class _Tree:
    """All elements in order, the index of each one's parent, and the indexes of the leaves."""

    elements: list[SchemaElement]
    parents: list[int]
    leaves: list[int]

    def path(self, leaf: int) -> tuple[SchemaElement, ...]:
        """Return the elements from the outermost group, without the root, to the leaf."""
        if not 0 <= leaf < len(self.leaves):
            raise Malformed(f"it has no leaf {leaf}")
        found = []
        index = self.leaves[leaf]
        while index:
            found.append(self.elements[index])
            index = self.parents[index]
        return tuple(reversed(found))


@lru_cache(maxsize=32)
def _parse_tree(data: bytes) -> _Tree:
    """Parse a schema; results are cached because the files of a table mostly share one."""
    kind, size, position = read_list_header(data, 0)
    if size == 0 or kind != STRUCT:
        raise Malformed("it has no root")
    tree = _Tree([], [], [])
    # The groups around the current element, and the number of children of each that are still to come.
    groups: list[int] = []
    open_children: list[int] = []
    for index in range(size):
        if index and not groups:
            raise Malformed("it has elements outside its root")
        found, position = read_struct(data, position, _ELEMENT)
        element = _make_element(found)
        tree.elements.append(element)
        tree.parents.append(groups[-1] if groups else 0)
        if groups:
            open_children[-1] -= 1
        if index and element.is_leaf:
            tree.leaves.append(index)
        else:
            groups.append(index)
            open_children.append(element.children)
            if len(groups) > MAX_SCHEMA_DEPTH:
                raise Malformed(f"it is nested deeper than {MAX_SCHEMA_DEPTH} levels")
        while groups and open_children[-1] == 0:
            groups.pop()
            open_children.pop()
    if groups:
        raise Malformed("it has fewer elements than its groups have children")
    return tree


_UNION_FIELDS: dict[int, Kind] = {_LOGICAL_MAP: make_struct_kind({}), _LOGICAL_LIST: make_struct_kind({})}


def _read_union_field(logical: bytes | None) -> int | None:
    if logical is None:
        return None
    found, _ = read_struct(logical, 0, _UNION_FIELDS)
    return next(iter(found), None)


def _narrow_path(path: tuple[SchemaElement, ...]) -> tuple[SchemaElement, ...]:
    """Return the path with one child per group and with unchanged meaning."""
    elements: list[SchemaElement] = []
    for element in path:
        narrowed = replace(element, children=min(element.children, 1))
        if element.children > 1 and element.repetition == REPEATED and elements:
            around = elements[-1]
            if around.is_map:
                elements[-1] = replace(around, converted=_LIST, logical=None)
                narrowed = replace(narrowed, name=b"array", converted=None, logical=None)
            elif around.is_list:
                narrowed = replace(narrowed, name=b"array")
        elements.append(narrowed)
    return tuple(elements)


# --- The same for Arrow's schema -------------------------------------------------------------------------------------


def narrow_field(field: pa.Field, leaf: int) -> pa.Field:
    """Return a field of the file's Arrow schema with only one of its leaves, counted from 0 within the field.

    >>> field = pa.field("m", pa.map_(pa.string(), pa.struct({"x": pa.int8(), "y": pa.int8()})))
    >>> narrow_field(field, 2).type
    ListType(list<array: struct<value: struct<y: int8>> not null>)
    """
    if not 0 <= leaf < count_leaves(field.type):
        raise CorruptFile(f"the field '{field.name}' has no leaf {leaf}")
    around: list[pa.Field] = []
    while True:
        data_type = field.type
        if isinstance(data_type, pa.BaseExtensionType) and pa.types.is_nested(data_type.storage_type):
            field = pa.field(field.name, data_type.storage_type, field.nullable)
            continue
        if not pa.types.is_nested(data_type) or count_leaves(data_type) == 1:
            break
        around.append(field)
        # The entries of a map are its only child, a struct of key and value.
        for position in range(data_type.num_fields):
            child = data_type.field(position)
            leaves = count_leaves(child.type)
            if leaf < leaves:
                field = child
                break
            leaf -= leaves
    for parent in reversed(around):
        field = pa.field(parent.name, _replace_children(parent.type, field), parent.nullable)
    return field


def _replace_children(parent: pa.DataType, child: pa.Field) -> pa.DataType:
    if pa.types.is_struct(parent):
        return pa.struct([child])
    if pa.types.is_map(parent):
        return pa.list_(pa.field("array", child.type, nullable=False))
    if pa.types.is_fixed_size_list(parent):
        return pa.list_(child, parent.list_size)
    if pa.types.is_large_list(parent):
        return pa.large_list(child)
    if pa.types.is_list_view(parent):
        return pa.list_view(child)
    if pa.types.is_large_list_view(parent):
        return pa.large_list_view(child)
    return pa.list_(child)
