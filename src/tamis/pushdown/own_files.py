"""Scans that the embedded engine reads by itself: of local files that hold what the table says, where much is wanted.

Its reader of Parquet decodes three times as fast as Arrow's, and straight into its own vectors; so where a scan wants
most of a table anyway, it is given the files that are left and the filter. All else comes as a stream of ours:

| given to the engine                            | streamed                                                         |
|------------------------------------------------|------------------------------------------------------------------|
| Parquet files on this machine, of the types of | other storage; deleted rows, columns that a file lacks, other    |
| the table, at least `WORTH` bytes of them, of  | types; many partitions, or many names of columns; what a filter  |
| which at least `SHARE` is wanted               | narrows; limits, top-n, aggregation from metadata; whatever is   |
|                                                | under a policy                                                   |

An engine that opens files of one scan may as well open those of others, be they small. Sums over such files the engine
makes while it reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.evaluate import physical_value
from tamis.expr.nodes import FALSE, TRUE, Call, Column, Literal, columns_of, conjuncts_of
from tamis.io.listing import check_unchanged
from tamis.io.threads import LOCAL_PATIENCE, run_in_threads
from tamis.parquet.footer import load_footer
from tamis.parquet.leaves import FileSchema
from tamis.parquet.statistics import has_short_chunks, notes_ordered_bounds
from tamis.pushdown.connector import Connector
from tamis.pushdown.connectors.lake import LakeConnector
from tamis.pushdown.connectors.lake_handle import Aggregation, LakeHandle
from tamis.pushdown.nodes import Node, Output, TableScan
from tamis.scan.embedded import duckdb_sql
from tamis.scan.projection import narrow
from tamis.scan.stored_names import AskedColumns, columns_told_apart
from tamis.tables.source import FILE_FORMAT, PARQUET, FileListing, TableSource
from tamis.types import STRING, type_name, without_views

WORTH = 16 * 1024 * 1024
"""From how many bytes on: to let the engine open files by itself takes some ten milliseconds."""

SHARE = 0.3
"""Where row groups with so much of the bytes are left, to look at single pages gains less than it costs."""

MOST_FILES = 512
"""Of so many files the footers are looked at."""

MOST_PARTITIONS = 64
"""The engine is given the files of each partition by themselves."""

_OPTIONS = "hive_partitioning = false, can_have_nan = true"
"""Without the second the engine takes the largest number in a file for its largest value, and loses rows with NaN."""

_PATTERN = re.compile(r"[*?\[\]{}']")
"""Signs in paths that the engine takes for patterns, or that would have to be quoted."""

_TYPES = frozenset((
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
))  # fmt: skip
"""Types of which both readers have the same idea; decimals are others."""


@dataclass(frozen=True, slots=True)
class OwnFiles:
    """Files that the engine reads, and the query over them that gives the columns of a scan."""

    paths: tuple[str, ...]
    query: str
    size: int
    """The bytes of the files."""


def own_files(scan: TableScan, connector: Connector, *, is_beside: bool = False) -> OwnFiles | None:
    """How the engine reads a scan by itself; None where it must not, or where that is not worth it.

    With `is_beside` the engine opens files of another scan anyway, so that small ones are worth it, and no others are
    asked about again.
    """
    handle = scan.handle
    if scan.protects or not isinstance(connector, LakeConnector) or not isinstance(handle, LakeHandle):
        return None
    if handle.aggregation is not None:
        return _own_groups(scan, handle, handle.aggregation, connector, is_beside) if handle.sums_rows else None
    if FALSE in (*conjuncts_of(handle.predicate), *conjuncts_of(handle.pruning)):
        return None
    is_plain = not handle.has_cut and bool(handle.columns)
    source = handle.source
    if not is_plain or source.storage.filesystem.type_name != "local":
        return None
    asked = {*(each.path for each in handle.columns), *(each.path for each in columns_of(handle.predicate))}
    needed = sorted(path[0] for path in asked)
    if any(len(path) > 1 for path in asked):
        return None
    if not all(is_plain_type(source.schema.field(name).type) for name in needed):
        return None
    if any(_has_doubtful_bounds(column) for column in columns_of(handle.predicate)):
        return None
    compares_bytes = any(_is_of_bytes(column) for column in columns_of(handle.predicate))
    size = connector.properties(handle).bytes
    worth = 1 if is_beside else WORTH
    if size is not None and (size < worth or (is_beside and size >= WORTH)):
        # That is known of most handles by now, and to list the files of a large table once more would take its time.
        return None
    fitting = _fitting(connector, handle, needed, worth, compares_bytes=compares_bytes)
    groups = None if fitting is None else _alike(source, fitting, needed)
    if fitting is None or groups is None:
        return None
    if (size is None or size >= WORTH) and not _is_much(connector, handle):
        return None
    columns = zip(handle.columns, scan.columns, strict=True)
    selected = ", ".join(f"{engine_name(own.path[0])} AS {engine_name(output.name)}" for own, output in columns)
    where = "" if handle.predicate == TRUE else f" WHERE {duckdb_sql(handle.predicate)}"
    files = fitting.listing.files
    query = f"SELECT {selected} FROM ({' UNION ALL '.join(groups)}){where}"
    return OwnFiles(tuple(files["path"].to_pylist()), query, pc.sum(files["size"]).as_py() or 0)


def all_own_files(leaves: Sequence[tuple[str, Node]], connectors: Mapping[str, Connector]) -> dict[str, OwnFiles]:
    """How the engine reads those of some leaves of a plan by itself for which that is worth it, by their names."""
    scans = {name: leaf for name, leaf in leaves if isinstance(leaf, TableScan)}
    found: dict[str, OwnFiles] = {}
    for is_beside in (False, True):
        for name, scan in scans.items():
            connector = connectors[scan.connector]
            if name not in found and (files := own_files(scan, connector, is_beside=is_beside)) is not None:
                found[name] = files
        if not found:
            break
    return found


def _own_groups(
    scan: TableScan, handle: LakeHandle, aggregation: Aggregation, connector: LakeConnector, is_beside: bool
) -> OwnFiles | None:
    rows = handle.of_rows(aggregation)
    columns = tuple(Output(each.name) for each in rows.columns)
    found = own_files(replace(scan, handle=rows, columns=columns), connector, is_beside=is_beside)
    if found is None:
        return None
    names = {each.path: engine_name(each.name) for each in rows.columns}
    keys = [names[key.path] for key in aggregation.keys]
    calls = [
        f"{each.function}({'*' if each.column is None else names[each.column.path]})" for each in aggregation.measures
    ]
    pairs = zip((*keys, *calls), scan.columns, strict=True)
    selected = ", ".join(f"{value} AS {engine_name(output.name)}" for value, output in pairs)
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return replace(found, query=f"SELECT {selected} FROM ({found.query}){grouped}")


@dataclass(frozen=True, slots=True)
class _Fitting:
    """Files that are as the table says, and what each of them calls the columns that are not of partitions."""

    listing: FileListing
    names: Sequence[tuple[str, ...]]


def _alike(source: TableSource, fitting: _Fitting, needed: Sequence[str]) -> list[str] | None:
    """For the files of each partition, and of the same names for columns, the query that reads them.

    None where there are too many of those.
    """
    of_files = [name for name in needed if name not in source.partition_columns]
    partitions = [name for name in needed if name in source.partition_columns]
    listing = fitting.listing
    values = [listing.partitions[name] for name in partitions]
    groups: dict[tuple[str, ...], list[str]] = {}
    for place, (path, names) in enumerate(zip(listing.files["path"].to_pylist(), fitting.names, strict=True)):
        stored = zip(names, of_files, strict=True)
        constants = ((_constant(column[place]), name) for name, column in zip(partitions, values, strict=True))
        key = (
            *(f"{engine_name(own)} AS {engine_name(name)}" for own, name in stored),
            *(f"{constant} AS {engine_name(name)}" for constant, name in constants),
        )
        groups.setdefault(key, []).append(f"'{path}'")
        if len(groups) > MOST_PARTITIONS:
            return None
    return [
        f"SELECT {', '.join(columns) or '1'} FROM read_parquet([{', '.join(own)}], {_OPTIONS})"
        for columns, own in groups.items()
    ]


def _constant(value: pa.Scalar) -> str:
    data_type = value.type
    literal = Literal(physical_value(value), data_type)
    return duckdb_sql(Call("cast", (literal, Literal(type_name(data_type), STRING))))


def _has_doubtful_bounds(column: Column) -> bool:
    """Whether bounds of such a column may have NaN among them, or no order: the engine would trust them, while our own
    scans know better."""
    data_type = column.type
    return data_type is None or not (
        pa.types.is_integer(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_timestamp(data_type)
        or _is_of_bytes(column)
    )


def _is_of_bytes(column: Column) -> bool:
    """Whether files may note bounds of such a column as bytes, which some writers ordered in ways of their own."""
    data_type = column.type
    return data_type is not None and (pa.types.is_string(data_type) or pa.types.is_decimal128(data_type))


def is_plain_type(data_type: pa.DataType) -> bool:
    """Whether values of a type come out of the engine as they went in."""
    return data_type in _TYPES or pa.types.is_decimal128(data_type)


def _fitting(
    connector: LakeConnector, handle: LakeHandle, needed: Sequence[str], worth: int, *, compares_bytes: bool
) -> _Fitting | None:
    """The files to read, if they are as the table says."""
    source = handle.source
    listing = connector.listing(handle).require(needed)
    files = listing.files
    size = pc.sum(files["size"]).as_py() or 0
    if size < worth or files.num_rows > MOST_FILES or not _are_whole(source, files):
        return None
    paths = files["path"].to_pylist()
    if any(_PATTERN.search(path) for path in paths):
        return None
    columns = [(name,) for name in needed if name not in source.partition_columns]
    asked = AskedColumns(narrow(source.schema, columns), columns, source.field_names, columns_told_apart(files))

    for path in paths:
        source.storage.check_links(path)
    # The engine opens whatever is at a path.
    check_unchanged(source.storage, files)

    def names_in(file: tuple[str, int, int | None]) -> tuple[str, ...] | None:
        footer = load_footer(source.storage, *file)[0]
        if has_short_chunks(footer.metadata) or (compares_bytes and not notes_ordered_bounds(footer.metadata)):
            return None
        return _names_in(footer.schema, asked, source.storage.place(file[0]))

    each = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))
    found = run_in_threads(names_in, each, source.storage.threads, patience=LOCAL_PATIENCE)
    names = [own for own in found if own is not None]
    return _Fitting(listing, names) if len(names) == len(found) else None


def _are_whole(source: TableSource, files: pa.Table) -> bool:
    """Whether all are Parquet files of which no row was deleted."""
    if FILE_FORMAT in files.column_names and not pc.all(pc.equal(files[FILE_FORMAT], PARQUET), min_count=0).as_py():
        return False
    if "deletes" in files.column_names and pc.any(pc.greater(pc.list_value_length(files["deletes"]), 0)).as_py():
        # To read which rows they are would be for nothing.
        return False
    return not source.deleted_rows(source.storage, files)


def _names_in(schema: FileSchema, asked: AskedColumns, place: str) -> tuple[str, ...] | None:
    """What a file calls columns; None where the engine would read it as it is not.

    So it does timestamps of 96 bits, and dates in the calendar of their time.
    """
    physical = (schema.parquet.column(number) for number in range(len(schema.parquet)))
    if schema.old_leaves or any(column.physical_type == "INT96" for column in physical):
        return None
    if asked.names is None:
        return tuple(asked.schema.names) if _has_fields(schema, asked.schema) else None
    found = asked.names_in(schema, place)
    names = () if found is None else tuple(name for name in found if name is not None)
    # Where it lacks one, not only NULL may be in its place.
    return names if len(names) == len(asked.schema) else None


def _has_fields(schema: FileSchema, wanted: pa.Schema) -> bool:
    """Whether a file has these columns, spelled like this, in their types, and none that differs only by case."""
    stored = schema.own_arrow
    folded = [name.casefold() for name in stored.names]
    for field in wanted:
        if field.name not in stored.names or folded.count(field.name.casefold()) != 1:
            return False
        if without_views(stored.field(field.name).type) != field.type:
            return False
    return True


def _is_much(connector: LakeConnector, handle: LakeHandle) -> bool:
    """Whether a filter leaves so much that nothing is gained by looking further."""
    if handle.predicate == TRUE and handle.pruning == TRUE:
        return True
    scan = connector.scan_of(handle)
    if scan is None:
        return False
    for level in reversed(scan.plan("row_groups").report.levels):
        if level.level == "row_groups" and level.bytes_total:
            return (level.bytes_kept or 0) >= SHARE * level.bytes_total
    return False


def engine_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
