"""The specification of an index: its columns, their types, and which of them have statistics from values.

Columns are identified by a *key*: their physical path in files, which never changes. For most tables it is the logical
path; with column mapping, a renamed column keeps its key, and a column that was dropped and added again under its old
name has another.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
import xxhash

from tamis import types
from tamis.errors import InvalidArgument, make_argument_error
from tamis.expr.builder import to_name
from tamis.expr.names import resolve
from tamis.expr.nodes import Column
from tamis.expr.wire.expression_json import types_from_text, types_to_text
from tamis.parquet.footer.leaves import FieldPath
from tamis.skipping.metadata import KINDS, metadata_name

FORMAT = 1
"""The format version of an index. A later version is not read."""

DEFAULT_FALSE_POSITIVES = 0.01


@dataclass(frozen=True, slots=True)
class IndexRequest:
    """The requested columns of an index, with names as given, so that the next build uses the same."""

    columns: tuple[str, ...] | None = None
    """None for every column whose type has an order."""
    bloom: tuple[str, ...] = ()
    count_nan: tuple[str, ...] = ()
    false_positives: float = DEFAULT_FALSE_POSITIVES

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> IndexRequest:
        columns = given["columns"]
        return IndexRequest(
            None if columns is None else tuple(columns),
            tuple(given["bloom"]),
            tuple(given["count_nan"]),
            float(given["false_positives"]),
        )


@dataclass(frozen=True, slots=True)
class IndexedColumn:
    """A column of the table, in the table's type."""

    key: FieldPath
    path: FieldPath
    """The path in the table when the index was built."""
    type: pa.DataType
    has_bloom: bool = False
    counts_nan: bool = False

    @property
    def column(self) -> Column:
        return Column(self.path, type=self.type)

    def metadata_name(self, kind: str) -> str:
        """Return the name of one kind of its metadata in the index: `lower:a.b`."""
        return metadata_name(kind, self.key)


@dataclass(frozen=True)
class IndexSpec:
    """The columns of an index."""

    columns: tuple[IndexedColumn, ...]
    false_positives: float = DEFAULT_FALSE_POSITIVES
    """The share of false positives of a Bloom filter."""
    table_id: str | None = None
    """The id of a Delta table: another table at the same location has another."""

    @cached_property
    def by_key(self) -> dict[FieldPath, IndexedColumn]:
        return {column.key: column for column in self.columns}

    @property
    def columns_with_values(self) -> tuple[IndexedColumn, ...]:
        """The columns with statistics from values."""
        return tuple(column for column in self.columns if column.has_bloom or column.counts_nan)

    def to_dict(self) -> dict[str, Any]:
        return {
            "columns": [
                {
                    "key": list(column.key),
                    "path": list(column.path),
                    "bloom": column.has_bloom,
                    "count_nan": column.counts_nan,
                }
                for column in self.columns
            ],
            "types": types_to_text([column.type for column in self.columns]),
            "false_positives": self.false_positives,
            "table_id": self.table_id,
        }

    @staticmethod
    def from_dict(given: Mapping[str, Any]) -> IndexSpec:
        columns = tuple(
            IndexedColumn(tuple(each["key"]), tuple(each["path"]), kind, bool(each["bloom"]), bool(each["count_nan"]))
            for each, kind in zip(given["columns"], types_from_text(given["types"]), strict=True)
        )
        return IndexSpec(columns, float(given["false_positives"]), given["table_id"])

    @cached_property
    def fingerprint(self) -> str:
        """A hash of the specification without logical column names: equal for indexes with the same entries."""
        content = self.to_dict() | {"format": FORMAT}
        content["columns"] = [
            {name: value for name, value in each.items() if name != "path"} for each in content["columns"]
        ]
        return xxhash.xxh64_hexdigest(json.dumps(content, sort_keys=True).encode())


def choose_columns(
    asked: IndexRequest,
    schema: pa.Schema,
    partition_columns: Collection[str],
    table: str,
    *,
    key_of: Callable[[FieldPath], FieldPath] = tuple,
    unordered: Collection[FieldPath] = (),
    table_id: str | None = None,
) -> IndexSpec:
    """Return the specification for the requested columns. `unordered` are those whose order is not that of bounds."""
    known = {
        column.path: column
        for column in _find_ordered_leaves(schema, partition_columns)
        if column.path not in unordered
    }

    def resolve_column(name: str, where: str) -> FieldPath:
        path = resolve(to_name(name), schema, table, where=where).path
        if path[0] in partition_columns:
            raise InvalidArgument(f"{name!r} is a partition column, which needs no index: leave it out of {where}")
        if path not in known:
            raise InvalidArgument(f"column {name!r} has a type without bounds: leave it out of {where}")
        return path

    chosen = list(known) if asked.columns is None else [resolve_column(name, "columns") for name in asked.columns]
    bloom = [resolve_column(name, "bloom") for name in asked.bloom]
    counted = [resolve_column(name, "count_nan") for name in asked.count_nan]
    for path in bloom:
        if pa.types.is_boolean(known[path].type):
            raise InvalidArgument(
                f"column {'.'.join(path)!r} is a boolean, which needs no Bloom filter: leave it out of bloom"
            )
    for path in counted:
        if not pa.types.is_floating(known[path].type):
            raise InvalidArgument(
                f"column {'.'.join(path)!r} is {types.type_name_with_article(known[path].type)}, which has no NaN: "
                "leave it out of count_nan"
            )
    if not isinstance(asked.false_positives, int | float) or isinstance(asked.false_positives, bool):
        raise make_argument_error("false_positives", "a share between 0 and 1", asked.false_positives)
    if not 0.0 < asked.false_positives < 1.0:
        raise InvalidArgument(f"false_positives must be a share between 0 and 1, found {asked.false_positives!r}")
    paths = dict.fromkeys([*chosen, *bloom, *counted])
    if not paths:
        raise InvalidArgument(f"'{table}' has no column whose type has an order: there is nothing to index")
    return IndexSpec(
        tuple(
            IndexedColumn(
                key_of(path),
                path,
                known[path].type,
                has_bloom=path in bloom,
                # A Bloom filter reads the values, so NaN are counted too.
                counts_nan=path in counted or (path in bloom and bool(pa.types.is_floating(known[path].type))),
            )
            for path in paths
        ),
        asked.false_positives,
        table_id,
    )


def _find_ordered_leaves(schema: pa.Schema, partition_columns: Collection[str]) -> list[IndexedColumn]:
    """Return the columns that may have bounds: not inside lists or maps, and of a type with an order."""
    found = []
    stack: list[tuple[FieldPath, pa.DataType]] = [
        ((field.name,), field.type) for field in reversed(list(schema)) if field.name not in partition_columns
    ]
    while stack:
        path, data_type = stack.pop()
        if pa.types.is_dictionary(data_type):
            data_type = data_type.value_type
        if pa.types.is_struct(data_type):
            stack.extend(((*path, child.name), child.type) for child in reversed(list(data_type)))
        elif types.is_ordered(data_type):
            found.append(IndexedColumn(path, path, types.replace_view_types(data_type)))
    return found


def check_names(names: Sequence[str] | str | None, what: str) -> tuple[str, ...] | None:
    """Return column names as a tuple. A single string is an error: its letters would be names."""
    if isinstance(names, str):
        raise InvalidArgument(f"{what} must be a list of names, found one string: write {what}=[{names!r}]")
    if names is None:
        return None
    if not isinstance(names, Iterable) or isinstance(names, Mapping):
        raise make_argument_error(what, "a list of names", names)
    found = tuple(names)
    for name in found:
        if not isinstance(name, str):
            raise make_argument_error(f"each item of {what}", "the name of a column", name)
    return found


# --- Kinds of metadata and their types --------------------------------------------------------------------------------


def list_metadata_types(data_type: pa.DataType) -> Mapping[str, pa.DataType]:
    """Return the type of each kind of metadata of a column: only floats have NaN counts.

    >>> [kind for kind in list_metadata_types(pa.int8())]
    ['lower', 'upper', 'null_count', 'lower_exact', 'upper_exact']
    """
    by_kind = {"lower": data_type, "upper": data_type, "null_count": types.LONG, "nan_count": types.LONG}
    kinds = [kind for kind in KINDS if kind != "nan_count" or pa.types.is_floating(data_type)]
    return {kind: by_kind.get(kind, types.BOOLEAN) for kind in kinds}
