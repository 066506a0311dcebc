"""All leaf columns of a file for inspection, including those inside lists and maps, which pruning ignores."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tamis import types
from tamis.parquet.bounds import get_stored_type
from tamis.parquet.leaves import FieldPath, FileSchema, Leaf

_UNITS = {"milliseconds": "ms", "microseconds": "us", "nanoseconds": "ns"}
_WIDEST_DECIMAL128 = 38


@dataclass(frozen=True, slots=True)
class InspectedLeaf:
    """A leaf column, and whether it is repeated: a row may have any number of its values."""

    leaf: Leaf
    is_repeated: bool

    @property
    def name(self) -> str:
        """The dotted path, as `--column` and filters accept it.

        >>> name_of(("a", "b")), name_of(("a.b", "c"))
        ('a.b', '`a.b`.c')
        """
        return format_path(self.leaf.path)

    @property
    def physical(self) -> str:
        fixed = self.leaf.physical == "FIXED_LEN_BYTE_ARRAY"
        return f"{self.leaf.physical}({self.leaf.length})" if fixed else self.leaf.physical

    @property
    def logical(self) -> str | None:
        """The logical type with its parameters, as in `TIMESTAMP(us, UTC)`; None if the leaf has none."""
        leaf = self.leaf
        match leaf.logical:
            case "NONE":
                return None
            case "DECIMAL":
                return f"DECIMAL({leaf.precision}, {leaf.scale})"
            case "INT":
                return f"INT({leaf.parameters['bitWidth']}, {'signed' if leaf.parameters['isSigned'] else 'unsigned'})"
            case "TIME" | "TIMESTAMP" as kind:
                unit = _UNITS.get(leaf.parameters["timeUnit"], leaf.parameters["timeUnit"])
                return f"{kind}({unit}{', UTC' if leaf.parameters['isAdjustedToUTC'] else ''})"
            case other:
                return other

    @property
    def display_type(self) -> pa.DataType | None:
        """The type in which bounds are shown; None if the column has no order."""
        stored = get_stored_type(self.leaf)
        if stored is None:
            return None
        if self.leaf.logical in ("STRING", "ENUM", "JSON"):
            return types.STRING
        if pa.types.is_float16(stored):
            # Arrow has few kernels for float16.
            return pa.float32()
        if pa.types.is_decimal(stored):
            wide = stored.precision > _WIDEST_DECIMAL128
            return (pa.decimal256 if wide else pa.decimal128)(stored.precision, stored.scale)
        return stored


def list_leaves(schema: FileSchema) -> list[InspectedLeaf]:
    """Return all leaf columns of a file in schema order.

    A leaf inside a list or a map has its Parquet path, with the groups of the list encoding: `tags.list.element`.
    """
    found = []
    for index, (path, arrow_type) in enumerate(_walk_leaves(schema.arrow)):
        column = schema.parquet.column(index)
        leaf = Leaf.from_column(index, _complete_path(path, column.path), column, arrow_type, schema.calendar)
        found.append(InspectedLeaf(leaf, column.max_repetition_level > 0))
    return found


def format_path(path: FieldPath) -> str:
    quoted = ("`" + part.replace("`", "``") + "`" if "." in part or "`" in part or not part else part for part in path)
    return ".".join(quoted)


def _walk_leaves(schema: pa.Schema) -> Iterator[tuple[FieldPath, pa.DataType]]:
    """Yield the leaves in order: the path through structs to the leaf or the first list or map, and the leaf type."""
    stack: list[tuple[FieldPath, bool, pa.DataType]] = [
        ((field.name,), True, field.type) for field in reversed(list(schema))
    ]
    while stack:
        path, is_in_structs, data_type = stack.pop()
        if isinstance(data_type, pa.BaseExtensionType):
            stack.append((path, is_in_structs, data_type.storage_type))
        elif pa.types.is_dictionary(data_type):
            stack.append((path, is_in_structs, data_type.value_type))
        elif pa.types.is_nested(data_type):
            is_in_structs = is_in_structs and pa.types.is_struct(data_type)
            # Arrow counts the entries of a map as its only child, a struct of key and value.
            for position in reversed(range(data_type.num_fields)):
                field = data_type.field(position)
                stack.append(((*path, field.name) if is_in_structs else path, is_in_structs, field.type))
        else:
            yield path, data_type


def _complete_path(path: FieldPath, parquet: str) -> FieldPath:
    # Dots in Parquet's path may be part of a name, so only its parts inside a list or a map are used.
    known = ".".join(path)
    if parquet == known:
        return path
    if parquet.startswith(f"{known}."):
        return (*path, *parquet[len(known) + 1 :].split("."))
    return tuple(parquet.split("."))
