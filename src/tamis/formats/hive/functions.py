"""Plain functions over a Hive-style table, for programs with planners of their own: in threads or in Spark executors.

`table_info` returns the directories that a filter keeps. `list_partition_files` lists the files below one of them, or
below their first levels, anywhere and in any order. Filters compare the texts of partition values, as `PartitionFilter`
describes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import InvalidArgument, MissingFile, TableNotFound, make_argument_error, suggest_arguments
from tamis.expr.nodes import FALSE, Call, Expr, Literal, or_
from tamis.expr.wire.partition_filter import PartitionFilter, check_partition_filter, resolve_columns
from tamis.formats.function_results import FILE_COLUMNS, UNKNOWN, concat_batches, map_to_json
from tamis.formats.hive.layout import (
    HiveLayout,
    list_leaf_files,
    make_file_table,
    make_no_files_error,
    make_not_found_error,
)
from tamis.formats.hive.partition_types import add_partition_columns
from tamis.formats.hive.table import DirectoryPruner
from tamis.formats.hive.tree import HIVE_NULL, DirectoryTree, split_directory_name
from tamis.io.listing import find_file
from tamis.io.storage import Storage, open_storage
from tamis.parquet.footer.footer import load_footer
from tamis.parquet.footer.leaves import Int96, check_int96
from tamis.skipping.predicate import get_partition_name, make_predicate


@dataclass(frozen=True, slots=True)
class TableInfo:
    """The schema, partition columns and directories of a table.

    `directories` has a row for each leaf directory: its `path` below the table's root (empty for a table without
    partitions), then the text of every partition column, null for NULL.
    """

    schema: pa.Schema
    partition_columns: tuple[str, ...]
    directories: pa.Table


@suggest_arguments("tamis.hive.table_info")
def table_info(
    uri: str | os.PathLike[str],
    filter: PartitionFilter | None = None,
    *,
    partitioning: Mapping[str, str | pa.DataType] | None = None,
    storage_options: Mapping[str, Any] | None = None,
    int96: Int96 = "instant",
) -> TableInfo:
    """Return the schema, the partition columns and the directories that the filter keeps. Others are not listed.

    `int96` is that of `tamis.open`.
    """
    check_partition_filter(filter)
    storage = open_storage(uri, storage_options)
    check_int96(int96)
    layout = HiveLayout.discover(storage, partitioning)
    sample = layout.sample_file
    if sample is None:
        raise make_no_files_error(storage)
    data_schema = load_footer(storage, sample.path, sample.size, sample.modified_ns)[0].schema.get_arrow_schema(int96)
    layout = layout.adopt_stored_types(data_schema)
    columns = tuple(layout.partition_schema.names)
    predicate = make_predicate(filter, layout.partition_schema, f"'{storage.uri}'", partition_texts=columns)
    directories = layout.list_directories(DirectoryPruner(predicate, columns).keep, predicate.partition_texts)
    relative = _extract_last_names(directories.paths, len(columns))
    rows = pa.table([relative, *directories.raw.columns], names=["path", *columns])
    if predicate.expr == FALSE:
        rows = rows.slice(0, 0)
    return TableInfo(add_partition_columns(data_schema, layout.partition_schema), columns, rows)


def _extract_last_names(paths: pa.StringArray, count: int) -> pa.StringArray:
    """Return the last names of each path. A file system may spell the root otherwise than it was given."""
    if count == 0:
        return pa.repeat(pa.scalar("", pa.string()), len(paths))
    return pc.struct_field(pc.extract_regex(paths, rf"(?P<path>[^/]+(?:/[^/]+){{{count - 1}}})$"), "path")


@suggest_arguments("tamis.hive.list_partition_files")
def list_partition_files(
    uri: str | os.PathLike[str],
    prefix: str,
    filter: PartitionFilter | None = None,
    *,
    storage_options: Mapping[str, Any] | None = None,
) -> pa.RecordBatch:
    """Return the data files below a partition directory that the filter keeps, ordered by path.

    `prefix` is a path of partition directories below the table's root: a `path` of `table_info(…).directories`, the
    first directories of one, such as `year=2024`, or an empty text for the whole table. If there is no such directory,
    the last value is the beginning of others, as in `year=20`, unless a slash ends it; no file is below partitions that
    do not exist. Directories that the filter rejects are not listed. Columns: `path` in the file system, `size`,
    `modification_time` in ms, `num_records` (-1: unknown without footers), `partition_values` as JSON.
    """
    check_partition_filter(filter)
    storage = open_storage(uri, storage_options)
    if not isinstance(prefix, str):
        raise make_argument_error("prefix", "partition directories, such as 'year=2024'", prefix)
    given = _parse_directory(prefix)
    whole = given if prefix.endswith("/") else dict(list(given.items())[:-1])
    if _is_decided(filter, whole) and not _is_kept(filter, whole, storage):
        return concat_batches([], FILE_COLUMNS)
    try:
        files, values = _list_files(storage, prefix.removesuffix("/") if given else "", given, filter)
    except (MissingFile, TableNotFound):
        if not given:
            raise
        files, values = _list_others(storage, prefix, given, filter)
    order = pc.sort_indices(files["path"])
    files = files.take(order)
    milliseconds = pc.fill_null(pc.divide(files["modified_ns"].combine_chunks(), 1_000_000), UNKNOWN)
    return pa.record_batch(
        [
            files["path"].combine_chunks(),
            files["size"].combine_chunks(),
            milliseconds,
            pa.repeat(pa.scalar(UNKNOWN, pa.int64()), files.num_rows),
            values.take(order),
        ],
        schema=FILE_COLUMNS,
    )


def _list_others(
    storage: Storage, prefix: str, given: Mapping[str, str | None], filter: PartitionFilter | None
) -> tuple[pa.Table, pa.StringArray]:
    """Return the files of directories that begin with a prefix; raise if the prefix cannot begin one."""
    columns = HiveLayout.discover_below(DirectoryTree(storage), storage.root).partition_schema.names
    if list(given) != columns[: len(given)]:
        raise MissingFile(
            f"'{storage.uri}' has no directory {prefix!r}: expected directories of {', '.join(columns) or 'no column'}"
        )
    nothing = make_file_table([]), pa.array([], types.STRING)
    if prefix.endswith("/"):
        return nothing
    *above, (column, start) = given.items()
    text = Call("partition_text", (Literal(column, types.STRING),))
    begins: Expr = Call("startswith", (text, Literal(start, types.STRING)))
    if start is not None and HIVE_NULL.startswith(start):
        begins = or_(begins, Call("is_null", (text,)))
    try:
        return _list_files(storage, prefix.rpartition("/")[0], dict(above), filter, begins)
    except (MissingFile, TableNotFound):
        return nothing


def _list_files(
    storage: Storage,
    directory: str,
    given: Mapping[str, str | None],
    filter: PartitionFilter | None,
    begins: Expr | None = None,
) -> tuple[pa.Table, pa.StringArray]:
    """Return the files below a directory that the filter keeps, and their partition values as JSON."""
    path = f"{storage.root}/{directory}" if directory else storage.root
    tree = DirectoryTree(storage)
    try:
        layout = HiveLayout.discover_below(tree, path)
    except TableNotFound:
        file = find_file(storage, storage.root)
        if file is None:
            raise make_not_found_error(storage) from None
        return make_file_table([file]), pa.array(["{}"])
    listing = tree.list([path])[0]
    if given and not len(listing.directory_paths) and not len(listing.file_paths):
        # Object stores have no directories, so any may be listed.
        raise MissingFile(f"no directory {directory!r} in '{storage.uri}'")
    if _is_decided(filter, given):
        if not _is_kept(filter, given, storage):
            return make_file_table([]), pa.array([], types.STRING)
        filter = None
    columns = (*given, *layout.partition_schema.names)
    where = [each for each in (filter, begins) if each is not None]
    predicate = make_predicate(where or None, layout.partition_schema, f"'{storage.uri}'", partition_texts=columns)
    pruner = DirectoryPruner(predicate, columns)

    def keep(values: pa.Table) -> pa.BooleanArray:
        for column in predicate.partition_texts:
            name = get_partition_name(column)
            if name in given:
                constant = pa.repeat(pa.scalar(given[name], types.STRING), values.num_rows)
                values = values.append_column(column.name, constant)
        return pruner.keep(values)

    directories = layout.list_directories(keep, predicate.partition_texts)
    paths = directories.paths.slice(0, 0) if predicate.expr == FALSE else directories.paths
    files = list_leaf_files(tree, paths, descend=bool(columns))
    parents = files["parent"].combine_chunks()
    texts = [
        *(pa.repeat(pa.scalar(value, types.STRING), len(files)) for value in given.values()),
        *(column.combine_chunks().take(parents) for column in directories.raw.columns),
    ]
    return files, _write_values(columns, texts, len(files))


def _write_values(columns: Sequence[str], texts: Sequence[pa.StringArray], rows: int) -> pa.StringArray:
    count = len(columns)
    by_row = np.arange(count * rows).reshape(count, rows).T.ravel()
    keys = pa.concat_arrays([pa.array([], types.STRING), *(pa.repeat(pa.scalar(each), rows) for each in columns)])
    items = pa.concat_arrays([pa.array([], types.STRING), *texts])
    offsets = pa.array(np.arange(rows + 1, dtype=np.int32) * count)
    return map_to_json(pa.MapArray.from_arrays(offsets, keys.take(pa.array(by_row)), items.take(pa.array(by_row))))


def _parse_directory(directory: str) -> dict[str, str | None]:
    """Return the partition values in the path of a directory; no values for the table's root, an empty path or `.`.

    Only `column=value` names are accepted: no `..`, encoded or not, no absolute path, nothing that could lead out of
    the table.
    """
    if directory in ("", "."):
        return {}
    parts = [split_directory_name(name) for name in directory.removesuffix("/").split("/")]
    values = {part[0]: part[1] for part in parts if part is not None and part[0]}
    # A backslash is part of a name here, but separates names on other systems.
    if len(values) != len(parts) or "\0" in directory or ".." in re.split(r"[\\/]", directory):
        raise InvalidArgument(
            f"{directory!r} is not a partition directory: give a path below the table's root, such as "
            "'region=eu/day=2024-03-01', from table_info(…).directories"
        )
    return values


def _is_decided(filter: PartitionFilter | None, given: Mapping[str, str | None]) -> TypeGuard[PartitionFilter]:
    """Return whether a filter is about these partition columns alone."""
    return filter is not None and {each.casefold() for each in filter.columns} <= {name.casefold() for name in given}


def _is_kept(filter: PartitionFilter, values: Mapping[str, str | None], storage: Storage) -> bool:
    row = pa.array([values], pa.struct([(column, pa.string()) for column in values]))
    return bool(resolve_columns(filter, values, f"'{storage.uri}'").evaluate(row)[0].as_py())
