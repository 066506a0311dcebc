"""Leaf columns: which columns of a Parquet file hold the values of which fields of the table.

Parquet stores every leaf of a nested schema as a column of its own, in the order of the schema, and writes its path
with dots: `a.b` is the field b of the struct a, or a column with a dot in its name. So paths are never taken from
that text: the Arrow schema of the file is walked in the same order and its leaves are counted.
"""

from __future__ import annotations

import json
from collections import OrderedDict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from threading import Lock
from typing import Any, Literal, TypeVar

import pyarrow as pa
import pyarrow.parquet as pq

from tamis.errors import CorruptFile, UnsupportedFeature
from tamis.parquet.matching import find_path, path_to_read
from tamis.parquet.old_calendar import OldCalendar, old_calendar
from tamis.parquet.vetting import LeafType

T = TypeVar("T")

FieldPath = tuple[str, ...]

Int96 = Literal["instant", "local"]
"""What timestamps of 96 bits mean: instants (of UTC), or wall clocks without a zone."""


@dataclass(frozen=True, slots=True)
class Leaf:
    """A column of the file that is reached through structs only: it has one value, or NULL, for each row."""

    index: int
    path: FieldPath
    physical: str
    """Parquet's physical type: INT32, BYTE_ARRAY, …"""
    logical: str
    """Parquet's logical type: INT, TIMESTAMP, STRING, …, and NONE."""
    parameters: Mapping[str, Any]
    """Of the logical type: `{"timeUnit": "microseconds", "isAdjustedToUTC": True, …}`."""
    length: int
    precision: int
    scale: int
    nullable: bool
    """Whether it, or a struct around it, is optional."""
    arrow_type: pa.DataType
    """The type that pyarrow reads it as."""
    is_old: bool = False
    """Whether old values are in the calendar of their time: see `tamis.parquet.old_calendar`."""

    @staticmethod
    def of_column(
        index: int,
        path: FieldPath,
        column: pq.ColumnSchema,
        arrow_type: pa.DataType,
        calendar: OldCalendar | None = None,
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
            is_old=calendar is not None and calendar.covers(column),
        )


@dataclass(frozen=True, slots=True, eq=False)
class FileSchema:
    """The columns of a file. Files with the same ones share one object: what follows from them is worked out once."""

    parquet: pq.ParquetSchema
    own_arrow: pa.Schema
    """With the names that the file has."""
    arrow: pa.Schema
    """With the names that are wanted, which mostly are the same."""
    types: tuple[LeafType, ...]
    """Of all leaves, in order."""
    leaves: dict[FieldPath, Leaf]
    """Those that are not inside lists or maps. A path that two columns have is left out: either may be meant."""
    structs: frozenset[FieldPath]
    others: frozenset[FieldPath]
    """What is there, and is neither a leaf of the above nor a struct: lists, maps, names that come twice."""
    defaults: Mapping[FieldPath, pa.Scalar] = field(default_factory=dict)
    """What fields of the table are where the file does not have them; where nothing is said, NULL."""
    is_renamed: bool = False
    """Whether the names are the table's own, so that another case is another column."""
    calendar: OldCalendar | None = None
    old_leaves: frozenset[int] = frozenset()
    """Those of all leaves whose old values are in that calendar."""
    _kept: dict[Hashable, Any] = field(default_factory=dict, repr=False)

    def arrow_with(self, int96: Int96) -> pa.Schema:
        """The Arrow schema in the file's own names, where timestamps of 96 bits mean what `int96` says."""
        if int96 == "instant":
            return self.own_arrow

        def read() -> pa.Schema:
            columns = [self.parquet.column(index) for index in range(len(self.parquet))]
            return _in_microseconds(self.parquet.to_arrow_schema(), columns, zone=None)

        return self._keep(("arrow", int96), read)

    @property
    def columns(self) -> tuple[tuple[pa.Field, range], ...]:
        """The columns of the Arrow schema, each with the leaves that hold it."""
        return self._keep("columns", lambda: fields_with_leaves(self.arrow))

    def find(self, path: FieldPath) -> FieldPath | None:
        """See `matching.find_path`."""
        return self._keep(("find", path), lambda: find_path(self.arrow, path, exact=self.is_renamed))

    def leaves_at(self, paths: Iterable[FieldPath]) -> list[int]:
        """See `leaf_indices`."""
        found: set[int] = set()
        for path in paths:
            found.update(self._keep(("leaves", path), partial(leaf_indices, self.arrow, [path])))
        return sorted(found)

    def leaves_to_read(self, path: FieldPath) -> list[int]:
        """The leaves to read for a path of the table: see `matching.path_to_read`."""

        def read() -> list[int]:
            found = path_to_read(self.arrow, path, exact=self.is_renamed)
            return [] if found is None else leaf_indices(self.arrow, [found])

        return self._keep(("to read", path), read)

    def _keep(self, key: Hashable, work_out: Callable[[], T]) -> T:
        """What `work_out` returns, worked out once. Keys are paths of a table, of which there are not many."""
        try:
            found: T = self._kept[key]
        except KeyError:
            # Two threads may both work it out: they find the same.
            found = self._kept[key] = work_out()
        return found

    def lacks(self, path: FieldPath) -> bool:
        """Whether a file has nothing at a path: the column came later than the file, and `value_lacking` is its value.

        False where there is something at the path, or where a part of the path is there and is no struct.
        """
        for depth in range(1, len(path) + 1):
            part = path[:depth]
            if part not in self.structs:
                return part not in self.leaves and part not in self.others
        return False

    def value_lacking(self, path: FieldPath) -> tuple[pa.Scalar | None, bool]:
        """What rows have at a path that the file lacks (None: NULL), and whether all of them have it.

        What is inside a struct is NULL where the struct is, which the file may have as NULL.
        """
        depth = next(depth for depth in range(1, len(path) + 1) if path[:depth] not in self.structs)
        # Structs that the file lacks themselves are NULL too, unless the table says that they are there.
        if any(path[:end] not in self.defaults for end in range(depth, len(path))):
            return None, True
        found = self.defaults.get(path)
        return found, found is None or depth == 1


class _SchemaCache:
    """The leaves of the schemas seen last: the files of a table mostly share one."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._entries: OrderedDict[tuple[Any, ...], FileSchema] = OrderedDict()
        self._lock = Lock()

    def known(self, metadata: pq.FileMetaData, place: str) -> FileSchema:
        schema = metadata.schema
        try:
            # To pyarrow two schemas are equal where their leaves are, whatever the groups around them are called.
            # Types restored from the writer's Arrow schema (durations, time zones) are in no Parquet type.
            notes = metadata.metadata or {}
            calendar = old_calendar(notes)
            key = (_text_of(schema), notes.get(b"ARROW:schema"), calendar)
            with self._lock:
                found = self._entries.get(key)
                if found is not None and found.parquet.equals(schema):
                    self._entries.move_to_end(key)
                    return found
            found = _read_schema(schema, calendar, place)
        except NotImplementedError as error:
            raise UnsupportedFeature(f"the schema of '{place}' cannot be read: {error}") from error
        except (pa.ArrowException, OSError, ValueError) as error:
            raise CorruptFile(f"the schema of '{place}' is damaged: {error}") from error
        with self._lock:
            self._entries[key] = found
            while len(self._entries) > self._capacity:
                self._entries.popitem(last=False)
        return found


_SCHEMAS = _SchemaCache(capacity=64)


def _text_of(schema: pq.ParquetSchema) -> str:
    """The schema in words, groups included, without the first line, which names the object in memory."""
    return repr(schema).partition("\n")[2]


def file_schema(metadata: pq.FileMetaData, place: str = "the file") -> FileSchema:
    """The schema of a file, the same object for files that have the same."""
    return _SCHEMAS.known(metadata, place)


def leaf_columns(metadata: pq.FileMetaData, place: str = "the file") -> dict[FieldPath, Leaf]:
    """The leaves of a file that are not inside lists or maps, by their paths. Not to be changed: files share it."""
    return _SCHEMAS.known(metadata, place).leaves


def lacks_column(metadata: pq.FileMetaData, path: FieldPath, place: str = "the file") -> bool:
    """Whether a file has nothing at a path: see `FileSchema.lacks`."""
    return _SCHEMAS.known(metadata, place).lacks(path)


def leaf_types(metadata: pq.FileMetaData, place: str = "the file") -> tuple[LeafType, ...]:
    """The physical types of all leaves of a file, in order."""
    return _SCHEMAS.known(metadata, place).types


def leaf_indices(arrow_schema: pa.Schema, paths: Sequence[FieldPath]) -> list[int]:
    """The leaves to read for these paths, in order: all that lie under a struct, a list or a map.

    `arrow_schema` is the file's own. A path that it lacks needs no leaf; a path that goes on inside a list or a
    map needs all of them, as lists cannot be read in part.

    >>> schema = pa.schema({"id": pa.int64(), "s": pa.struct({"x": pa.int8(), "y": pa.list_(pa.int8())})})
    >>> leaf_indices(schema, [("s",)]), leaf_indices(schema, [("s", "y"), ("id",)])
    ([1, 2], [0, 2])
    """
    wanted = set(paths)
    above = {path[:depth] for path in wanted for depth in range(1, len(path))}
    found: set[int] = set()
    for path, leaves, _ in _walk(arrow_schema):
        # The walk goes into structs: a path that ends above one of ours goes on inside a list or a map.
        if path in above or any(path[:depth] in wanted for depth in range(1, len(path) + 1)):
            found.update(leaves)
    return sorted(found)


def _walk(schema: pa.Schema) -> Iterator[tuple[FieldPath, range, pa.DataType]]:
    """The fields of a schema that are no structs, in order: path, leaves, type."""
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


def fields_with_leaves(schema: pa.Schema) -> tuple[tuple[pa.Field, range], ...]:
    """The fields of a file's Arrow schema, each with the leaves that hold it."""
    found: list[tuple[pa.Field, range]] = []
    start = 0
    for each in schema:
        end = start + count_leaves(each.type)
        found.append((each, range(start, end)))
        start = end
    return tuple(found)


def flat_paths(fields: Iterable[pa.Field]) -> list[FieldPath]:
    """The paths of all leaves that are reached through structs alone, in the order of the fields."""
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
    """How many columns of a file hold a field of this type."""
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


def _read_schema(schema: pq.ParquetSchema, calendar: OldCalendar | None, place: str) -> FileSchema:
    columns = [schema.column(index) for index in range(len(schema))]
    types = tuple(
        LeafType(column.physical_type, column.length, column.max_definition_level, column.max_repetition_level)
        for column in columns
    )
    leaves: dict[FieldPath, Leaf] = {}
    others: set[FieldPath] = set()
    structs: set[FieldPath] = set()
    end = 0
    arrow = _in_microseconds(schema.to_arrow_schema(), columns, zone="UTC")
    for path, indices, arrow_type in _walk(arrow):
        structs.update(path[:depth] for depth in range(1, len(path)))
        end = indices.stop
        if pa.types.is_timestamp(arrow_type) and not (arrow_type.tz or "").isprintable():
            raise CorruptFile(f"'{place}' has a column '{'.'.join(path)}' in a time zone that has no name")
        if path in leaves or len(indices) != 1 or end > len(columns) or columns[end - 1].max_repetition_level > 0:
            others.add(path)
            continue
        column = columns[end - 1]
        if column.path != ".".join(path):
            raise UnsupportedFeature(f"'{place}': pyarrow reads the column '{column.path}' as '{'.'.join(path)}'")
        leaves[path] = Leaf.of_column(end - 1, path, column, arrow_type, calendar)
    if end != len(columns):
        raise UnsupportedFeature(f"'{place}': pyarrow reads {len(columns)} columns as {end} fields")
    old = () if calendar is None else (number for number, column in enumerate(columns) if calendar.covers(column))
    more = {"calendar": calendar, "old_leaves": frozenset(old)}
    return _file_schema(schema, arrow, arrow, types, leaves, structs, others, **more)


def _in_microseconds(arrow: pa.Schema, columns: Sequence[pq.ColumnSchema], *, zone: str | None) -> pa.Schema:
    """Return the schema with timestamps of 96 bits in microseconds and in `zone`.

    They reach far beyond what 64 bits of nanoseconds can count: as nanoseconds pyarrow would read the year 9999 as
    1816, without a word. Parquet does not say whether they are instants. Spark, Hive and Impala on a cluster write
    instants of UTC and read them so, so that a wall clock without a zone would shift by the zone of a session.
    """
    if not any(column.physical_type == "INT96" for column in columns):
        return arrow
    leaves = iter(columns)

    def retyped(data_type: pa.DataType) -> pa.DataType:
        if pa.types.is_struct(data_type):
            return pa.struct([field.with_type(retyped(field.type)) for field in data_type])
        if pa.types.is_map(data_type):
            key, item = data_type.key_field, data_type.item_field
            return pa.map_(key.with_type(retyped(key.type)), item.with_type(retyped(item.type)))
        if pa.types.is_list(data_type):
            return pa.list_(data_type.value_field.with_type(retyped(data_type.value_type)))
        if pa.types.is_large_list(data_type):
            return pa.large_list(data_type.value_field.with_type(retyped(data_type.value_type)))
        own = [next(leaves, None) for _ in range(count_leaves(data_type))]
        is_wide = len(own) == 1 and own[0] is not None and own[0].physical_type == "INT96"
        return pa.timestamp("us", zone) if is_wide and pa.types.is_timestamp(data_type) else data_type

    return pa.schema([field.with_type(retyped(field.type)) for field in arrow], arrow.metadata)


def _file_schema(
    schema: pq.ParquetSchema,
    own_arrow: pa.Schema,
    arrow: pa.Schema,
    types: tuple[LeafType, ...],
    leaves: dict[FieldPath, Leaf],
    structs: set[FieldPath],
    others: set[FieldPath],
    **more: Any,
) -> FileSchema:
    # A path that is both a leaf and something else is ambiguous, as is a leaf below such a one.
    doubtful = others | (structs & leaves.keys())
    certain = {
        path: leaf
        for path, leaf in leaves.items()
        if not any(path[:depth] in doubtful for depth in range(1, len(path) + 1))
    }
    structs, others = structs - doubtful, others | doubtful
    return FileSchema(schema, own_arrow, arrow, types, certain, frozenset(structs), frozenset(others), **more)


def with_arrow_schema(
    schema: FileSchema,
    arrow: pa.Schema,
    defaults: Mapping[FieldPath, pa.Scalar] | None = None,
    *,
    has_one_calendar: bool = False,
) -> FileSchema:
    """The same file with the names of a table: `arrow` is its schema in all but those.

    A table that `has_one_calendar` takes days for those of today's, whatever the file notes.
    """
    by_index = {leaf.index: leaf for leaf in schema.leaves.values()}
    leaves: dict[FieldPath, Leaf] = {}
    others: set[FieldPath] = set()
    structs: set[FieldPath] = set()
    for path, indices, _ in _walk(arrow):
        structs.update(path[:depth] for depth in range(1, len(path)))
        leaf = by_index.get(indices.start) if len(indices) == 1 else None
        if leaf is None or path in leaves:
            others.add(path)
        else:
            leaves[path] = replace(leaf, path=path, is_old=leaf.is_old and not has_one_calendar)
    more = {"defaults": defaults or {}, "is_renamed": True}
    if not has_one_calendar:
        more |= {"calendar": schema.calendar, "old_leaves": schema.old_leaves}
    return _file_schema(schema.parquet, schema.own_arrow, arrow, schema.types, leaves, structs, others, **more)
