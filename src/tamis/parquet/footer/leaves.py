"""Leaf columns: the columns of a Parquet file that hold the values of each field.

Parquet stores every leaf of a nested schema as a separate column, in schema order, and writes its path with dots: `a.b`
is the field b of the struct a, or a column with a dot in its name. So paths are never parsed from that text. Instead,
the Arrow schema of the file is walked in the same order and its leaves are counted.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal, TypeVar, get_args

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import CorruptFile, InvalidArgument, UnsupportedFeature
from tamis.io.weighted_cache import WeightedCache
from tamis.parquet.footer.chunks import FooterMemory
from tamis.parquet.footer.datetime_rebase import LegacyCalendar, detect_legacy_calendar
from tamis.parquet.footer.matching import find_path, find_path_to_read
from tamis.parquet.footer.validation import LeafType

T = TypeVar("T")

FieldPath = tuple[str, ...]

Int96 = Literal["instant", "local"]
"""The meaning of INT96 timestamps: UTC instants, or local timestamps without a zone."""


def check_int96(given: object) -> None:
    if given not in get_args(Int96):
        raise InvalidArgument(f"int96 must be {' or '.join(map(repr, get_args(Int96)))}, found {given!r}")


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of the file that is nested in structs only: it has one value, or NULL, per row."""

    index: int
    path: FieldPath
    physical: str
    """Parquet's physical type: INT32, BYTE_ARRAY, …"""
    logical: str
    """Parquet's logical type: INT, TIMESTAMP, STRING, …, and NONE."""
    parameters: Mapping[str, Any]
    """The parameters of the logical type: `{"timeUnit": "microseconds", "isAdjustedToUTC": True, …}`."""
    length: int
    precision: int
    scale: int
    nullable: bool
    """Whether it, or a struct around it, is optional."""
    arrow_type: pa.DataType
    """The type that pyarrow reads it as."""
    needs_rebase: bool = False
    """Whether old values are in the Julian calendar: see `tamis.parquet.footer.datetime_rebase`."""

    @staticmethod
    def from_column(
        index: int,
        path: FieldPath,
        column: pq.ColumnSchema,
        arrow_type: pa.DataType,
        calendar: LegacyCalendar | None = None,
    ) -> Leaf:
        logical = column.logical_type
        return Leaf(
            index=index,
            path=path,
            physical=column.physical_type,
            logical=logical.type,
            parameters=json.loads(logical.to_json()) if logical.type in _PARAMETRIC else {},
            length=column.length,
            precision=column.precision,
            scale=column.scale,
            nullable=column.max_definition_level > 0,
            arrow_type=arrow_type,
            needs_rebase=calendar is not None and calendar.covers(column),
        )


@dataclass(frozen=True, slots=True, eq=False)
class FileSchema:
    """The columns of a file. Files with equal schemas share one object, so derived values are computed once."""

    parquet: pq.ParquetSchema
    physical_arrow: pa.Schema
    """The Arrow schema with the physical names of the file."""
    arrow: pa.Schema
    """The Arrow schema with the logical names, which mostly are the same."""
    types: tuple[LeafType, ...]
    """The types of all leaves, in order."""
    leaves: dict[FieldPath, Leaf]
    """The leaves outside lists and maps. A path that two columns share is omitted, because it is ambiguous."""
    structs: frozenset[FieldPath]
    others: frozenset[FieldPath]
    """All other paths that exist: lists, maps, ambiguous names."""
    defaults: Mapping[FieldPath, pa.Scalar] = field(default_factory=dict)
    """The values of table fields that the file lacks; NULL for fields without an entry."""
    is_renamed: bool = False
    """Whether the names are logical names, so that names which differ in case are different columns."""
    calendar: LegacyCalendar | None = None
    leaves_to_rebase: frozenset[int] = frozenset()
    """The leaves whose old values are in that calendar."""
    memory: FooterMemory = field(default_factory=FooterMemory, repr=False)
    """Parts of footers with this schema, to recognise them in other files."""
    _cache: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def get_arrow_schema(self, int96: Int96) -> pa.Schema:
        """Return the Arrow schema in physical names, with INT96 timestamps interpreted as `int96`."""
        if int96 == "instant":
            return self.physical_arrow

        def read() -> pa.Schema:
            columns = [self.parquet.column(index) for index in range(len(self.parquet))]
            return _retype_int96(self.parquet.to_arrow_schema(), columns, zone=None)

        return self._get_cached(("arrow", int96), read)

    @property
    def columns(self) -> tuple[tuple[pa.Field, range], ...]:
        """The columns of the Arrow schema, each with the numbers of its leaves."""
        return self._get_cached("columns", lambda: list_fields_with_leaves(self.arrow))

    def find(self, path: FieldPath) -> FieldPath | None:
        """See `matching.find_path`."""
        return self._get_cached(("find", path), lambda: find_path(self.arrow, path, exact=self.is_renamed))

    def find_leaves_at(self, paths: Iterable[FieldPath]) -> list[int]:
        """See `find_leaf_indices`."""
        found: set[int] = set()
        for path in paths:
            found.update(self._find_leaves(path))
        return sorted(found)

    def _find_leaves(self, path: FieldPath) -> Collection[int]:
        if len(path) == 1:
            return self._leaves_by_column.get(path[0], ())
        return self._get_cached(("leaves", path), partial(find_leaf_indices, self.arrow, [path]))

    @property
    def _leaves_by_column(self) -> Mapping[str, Collection[int]]:
        """The leaves of each column by its name; a name may occur twice."""

        def collect() -> dict[str, list[int]]:
            found: dict[str, list[int]] = {}
            for each, leaves in self.columns:
                found.setdefault(each.name, []).extend(leaves)
            return found

        return self._get_cached("leaves by column", collect)

    def find_leaves_to_read(self, path: FieldPath) -> list[int]:
        """Return the leaves to read for a path of the table: see `matching.find_path_to_read`."""

        def read() -> list[int]:
            found = find_path_to_read(self.arrow, path, exact=self.is_renamed)
            return [] if found is None else sorted(self._find_leaves(found))

        return self._get_cached(("to read", path), read)

    def _get_cached(self, key: Hashable, compute: Callable[[], T]) -> T:
        """Return the cached result of `compute`. Keys are paths of a table, so the cache stays small."""
        try:
            found: T = self._cache[key]
        except KeyError:
            # Two threads may both compute it; their results are equal.
            found = self._cache[key] = compute()
        return found

    def lacks(self, path: FieldPath) -> bool:
        """Return whether the file has nothing at a path: the column is newer, and `get_missing_value` returns its
        value.

        False if something exists at the path, or if a prefix of the path exists and is not a struct.
        """
        for depth in range(1, len(path) + 1):
            part = path[:depth]
            if part not in self.structs:
                return part not in self.leaves and part not in self.others
        return False

    def get_missing_value(self, path: FieldPath) -> tuple[pa.Scalar | None, bool]:
        """Return the value of rows at a path that the file lacks (None: NULL), and whether all rows have it.

        A field inside a struct is NULL where the struct is NULL, and the file may have NULL structs.
        """
        depth = next(depth for depth in range(1, len(path) + 1) if path[:depth] not in self.structs)
        # Structs that the file lacks are NULL too, unless the table has a default for them.
        if any(path[:end] not in self.defaults for end in range(depth, len(path))):
            return None, True
        found = self.defaults.get(path)
        return found, found is None or depth == 1


_SCHEMAS = WeightedCache(capacity=32 * 1024 * 1024)
"""The schemas of files by their texts: the files of a table mostly share one."""

_MEMORY_PER_CHARACTER = 50
"""The approximate memory of a schema in bytes per character of its text, with what is remembered of its footers."""


def get_file_schema(metadata: pq.FileMetaData, location: str = "the file") -> FileSchema:
    """Return the schema of a file: the same object for files with equal schemas."""
    schema = metadata.schema
    try:
        key_values = metadata.metadata or {}
        calendar = detect_legacy_calendar(key_values)
        # pyarrow compares only the leaves of two schemas, not the names of the groups around them. Types that are
        # restored from the writer's Arrow schema (durations, time zones) are not in the Parquet types. The first line
        # of the text has the memory address.
        key = (repr(schema).partition("\n")[2], key_values.get(b"ARROW:schema"), calendar)
        with suppress(KeyError):
            found: FileSchema = _SCHEMAS.get(key)
            if found.parquet.equals(schema):
                return found
        found = _read_schema(schema, calendar, location)
    except NotImplementedError as error:
        raise UnsupportedFeature(f"the schema of '{location}' cannot be read: {error}") from error
    except (pa.ArrowException, OSError, ValueError) as error:
        raise CorruptFile(f"the schema of '{location}' is damaged: {error}") from error
    _SCHEMAS.put(key, found, _MEMORY_PER_CHARACTER * len(key[0]))
    return found


def find_leaf_indices(arrow_schema: pa.Schema, paths: Sequence[FieldPath]) -> list[int]:
    """Return the leaves to read for these paths, in order: all leaves below a struct, a list or a map.

    `arrow_schema` is that of the file. A path that it lacks needs no leaf. A path into a list or a map needs all of its
    leaves, because lists cannot be read partially.

    >>> schema = pa.schema({"id": pa.int64(), "s": pa.struct({"x": pa.int8(), "y": pa.list_(pa.int8())})})
    >>> find_leaf_indices(schema, [("s",)]), find_leaf_indices(schema, [("s", "y"), ("id",)])
    ([1, 2], [0, 2])
    """
    wanted = set(paths)
    above = {path[:depth] for path in wanted for depth in range(1, len(path))}
    found: set[int] = set()
    for path, leaves, _ in _walk_fields(arrow_schema):
        # The walk descends into structs, so a path in `above` belongs to a list or a map that a wanted path enters.
        if path in above or any(path[:depth] in wanted for depth in range(1, len(path) + 1)):
            found.update(leaves)
    return sorted(found)


def _walk_fields(schema: pa.Schema) -> Iterator[tuple[FieldPath, range, pa.DataType]]:
    """Yield the fields of a schema that are not structs, in order: path, leaves, type."""
    start = 0
    stack: list[tuple[FieldPath, pa.DataType]] = [((field.name,), field.type) for field in reversed(list(schema))]
    while stack:
        path, data_type = stack.pop()
        if pa.types.is_struct(data_type):
            stack.extend(((*path, field.name), field.type) for field in reversed(list(data_type)))
            continue
        end = start + count_leaves(data_type)
        yield path, range(start, end), data_type
        start = end


def list_fields_with_leaves(schema: pa.Schema) -> tuple[tuple[pa.Field, range], ...]:
    """Return the fields of a file's Arrow schema, each with the numbers of its leaves."""
    found: list[tuple[pa.Field, range]] = []
    start = 0
    for each in schema:
        end = start + count_leaves(each.type)
        found.append((each, range(start, end)))
        start = end
    return tuple(found)


def list_flat_paths(fields: Iterable[pa.Field]) -> list[FieldPath]:
    """Return the paths of all leaves that are nested in structs only, in the order of the fields."""
    found: list[FieldPath] = []
    stack: list[tuple[FieldPath, pa.Field]] = [((), field) for field in reversed(list(fields))]
    while stack:
        prefix, field = stack.pop()
        path = (*prefix, field.name)
        if pa.types.is_struct(field.type) and field.type.num_fields:
            stack.extend((path, child) for child in reversed(list(field.type)))
        else:
            found.append(path)
    return found


def count_leaves(data_type: pa.DataType) -> int:
    """Return the number of leaf columns of a field of this type."""
    count = 0
    stack = [data_type]
    while stack:
        data_type = stack.pop()
        if isinstance(data_type, pa.BaseExtensionType):
            stack.append(data_type.storage_type)
        elif pa.types.is_dictionary(data_type):
            stack.append(data_type.value_type)
        elif pa.types.is_nested(data_type):
            # Arrow counts the entries of a map as its only child, a struct of key and value.
            stack.extend(data_type.field(position).type for position in range(data_type.num_fields))
        else:
            count += 1
    return count


_PARAMETRIC = ("INT", "TIME", "TIMESTAMP")


def _read_schema(schema: pq.ParquetSchema, calendar: LegacyCalendar | None, location: str) -> FileSchema:
    columns = [schema.column(index) for index in range(len(schema))]
    types = tuple(
        LeafType(column.physical_type, column.length, column.max_definition_level, column.max_repetition_level)
        for column in columns
    )
    leaves: dict[FieldPath, Leaf] = {}
    others: set[FieldPath] = set()
    structs: set[FieldPath] = set()
    end = 0
    arrow = _retype_int96(schema.to_arrow_schema(), columns, zone="UTC")
    for path, indices, arrow_type in _walk_fields(arrow):
        structs.update(path[:depth] for depth in range(1, len(path)))
        end = indices.stop
        if pa.types.is_timestamp(arrow_type) and not (arrow_type.tz or "").isprintable():
            raise CorruptFile(f"'{location}' has a column '{'.'.join(path)}' with an invalid time zone name")
        if path in leaves or len(indices) != 1 or end > len(columns) or columns[end - 1].max_repetition_level > 0:
            others.add(path)
            continue
        column = columns[end - 1]
        if column.path != ".".join(path):
            raise UnsupportedFeature(f"'{location}': pyarrow reads the column '{column.path}' as '{'.'.join(path)}'")
        leaves[path] = Leaf.from_column(end - 1, path, column, arrow_type, calendar)
    if end != len(columns):
        raise UnsupportedFeature(f"'{location}': pyarrow reads {len(columns)} columns as {end} fields")
    old = () if calendar is None else (number for number, column in enumerate(columns) if calendar.covers(column))
    more = {"calendar": calendar, "leaves_to_rebase": frozenset(old)}
    return _make_file_schema(schema, arrow, arrow, types, leaves, structs, others, **more)


def _retype_int96(arrow: pa.Schema, columns: Sequence[pq.ColumnSchema], *, zone: str | None) -> pa.Schema:
    """Return the schema with INT96 timestamps in microseconds and in `zone`.

    Their range exceeds 64 bits of nanoseconds: as nanoseconds, pyarrow would silently read the year 9999 as 1816.
    Parquet does not define whether they are instants. Spark, Hive and Impala on a cluster write and read them as UTC
    instants, so a local timestamp without a zone would shift by the session's zone.
    """
    if not any(column.physical_type == "INT96" for column in columns):
        return arrow
    leaves = iter(columns)

    def retype(data_type: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(data_type):
            return pa.struct([field.with_type(retype(field.type)) for field in data_type])
        if pa.types.is_map(data_type):
            key, item = data_type.key_field, data_type.item_field
            return pa.map_(key.with_type(retype(key.type)), item.with_type(retype(item.type)))
        if pa.types.is_list(data_type):
            return pa.list_(data_type.value_field.with_type(retype(data_type.value_type)))
        if pa.types.is_large_list(data_type):
            return pa.large_list(data_type.value_field.with_type(retype(data_type.value_type)))
        own = [next(leaves, None) for _ in range(count_leaves(data_type))]
        is_wide = len(own) == 1 and own[0] is not None and own[0].physical_type == "INT96"
        return pa.timestamp("us", zone) if is_wide and pa.types.is_timestamp(data_type) else data_type

    return pa.schema([field.with_type(retype(field.type)) for field in arrow], arrow.metadata)


def _make_file_schema(
    schema: pq.ParquetSchema,
    own_arrow: pa.Schema,
    arrow: pa.Schema,
    types: tuple[LeafType, ...],
    leaves: dict[FieldPath, Leaf],
    structs: set[FieldPath],
    others: set[FieldPath],
    **more: Any,
) -> FileSchema:
    # A path that is both a leaf and something else is ambiguous, and so is a leaf below it.
    ambiguous = others | (structs & leaves.keys())
    unambiguous = {
        path: leaf
        for path, leaf in leaves.items()
        if not any(path[:depth] in ambiguous for depth in range(1, len(path) + 1))
    }
    structs, others = structs - ambiguous, others | ambiguous
    return FileSchema(schema, own_arrow, arrow, types, unambiguous, frozenset(structs), frozenset(others), **more)


def rename_file_schema(
    schema: FileSchema,
    arrow: pa.Schema,
    defaults: Mapping[FieldPath, pa.Scalar] | None = None,
    *,
    has_one_calendar: bool = False,
) -> FileSchema:
    """Return the same file schema with logical names; `arrow` differs from the file's schema only in names.

    With `has_one_calendar`, dates are always Gregorian, even if the file records another calendar.
    """
    by_index = {leaf.index: leaf for leaf in schema.leaves.values()}
    leaves: dict[FieldPath, Leaf] = {}
    others: set[FieldPath] = set()
    structs: set[FieldPath] = set()
    for path, indices, _ in _walk_fields(arrow):
        structs.update(path[:depth] for depth in range(1, len(path)))
        leaf = by_index.get(indices.start) if len(indices) == 1 else None
        if leaf is None or path in leaves:
            others.add(path)
        else:
            leaves[path] = replace(leaf, path=path, needs_rebase=leaf.needs_rebase and not has_one_calendar)
    more = {"defaults": defaults or {}, "is_renamed": True}
    if not has_one_calendar:
        more |= {"calendar": schema.calendar, "leaves_to_rebase": schema.leaves_to_rebase}
    return _make_file_schema(
        schema.parquet, schema.physical_arrow, arrow, schema.types, leaves, structs, others, **more
    )
