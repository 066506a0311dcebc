"""Projection: the columns that a scan returns, down to fields of structs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import InvalidArgument, UnsupportedFeature, make_argument_error
from tamis.expr.builder import Expression, to_name
from tamis.expr.names import resolve
from tamis.expr.nodes import Column, Leaf, Name
from tamis.types import find_unsupported_field

Path = tuple[str, ...]


def resolve_projection(columns: Sequence[object] | None, schema: pa.Schema, table: str) -> tuple[Path, ...]:
    """Return the paths that a `columns` argument names, spelled as in the schema, in the order given."""
    if columns is None:
        return tuple((field.name,) for field in schema)
    if isinstance(columns, str):
        names = [name.strip() for name in columns.split(",")]
        raise InvalidArgument(f"columns must be a list of names, found one string: write columns={names!r}")
    if not isinstance(columns, Iterable) or isinstance(columns, Mapping):
        raise make_argument_error("columns", "a list of names", columns)
    columns = list(columns)
    if not columns:
        raise InvalidArgument("columns is empty: omit it for all columns, or use count()")
    paths = []
    for name in columns:
        node = _to_column(name)
        paths.append(resolve(node, schema, table, where="columns").path)
    repeated = [".".join(path) for index, path in enumerate(paths) if path in paths[:index]]
    if repeated:
        raise InvalidArgument(f"the column {repeated[0]!r} is listed twice in columns: name it once")
    return tuple(paths)


def reject_unsupported_types(schema: pa.Schema, paths: Iterable[Path]) -> None:
    """Raise an error for paths whose types are not supported."""
    found = find_unsupported_field(narrow_schema(schema, paths))
    if found is not None:
        name, kind = found
        raise UnsupportedFeature(
            f"column {name!r} has the unsupported type {kind!r}: select the other columns with columns=…, or read it "
            "with Spark"
        )


def _to_column(name: object) -> Leaf:
    node = to_name(name) if isinstance(name, str) else name.node if isinstance(name, Expression) else name
    if not isinstance(node, Name | Column):
        raise InvalidArgument(f"columns takes column names, found {name!r}")
    return node


def read_path(batch: pa.RecordBatch, path: Path) -> pa.Array:
    """Return the values of a column, or of a field inside of it."""
    values = batch.column(path[0])
    return pc.struct_field(values, list(path[1:])) if len(path) > 1 else values


def narrow_schema(schema: pa.Schema, paths: Iterable[Path]) -> pa.Schema:
    """Return the schema with only the given paths, top-level columns in the order of their first mention.

    A struct keeps only the named fields, in its own order.
    """
    wanted: dict[str, list[Path]] = {}
    for path in paths:
        wanted.setdefault(path[0], []).append(path[1:])
    return pa.schema([_narrow_field(schema.field(name), inner) for name, inner in wanted.items()])


def _narrow_field(field: pa.Field, paths: list[Path]) -> pa.Field:
    if any(not path for path in paths):
        return field
    wanted: dict[str, list[Path]] = {}
    for path in paths:
        wanted.setdefault(path[0], []).append(path[1:])
    children = [_narrow_field(child, wanted[child.name]) for child in field.type if child.name in wanted]
    return pa.field(field.name, pa.struct(children), field.nullable)
