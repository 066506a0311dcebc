"""Native scans: DuckDB's own Parquet reader reads local files whose schema is that of the table.

That reader decodes three times as fast as Arrow's, straight into DuckDB's vectors. If a scan reads most of a table
anyway, DuckDB receives the files that pruning left and the filter. Every other scan is an Arrow stream:

| native scan                                    | Arrow stream                                                     |
|------------------------------------------------|------------------------------------------------------------------|
| local Parquet files with the types of the      | other storage; deleted rows; columns missing in a file; other    |
| table, at least `min_native_bytes`, and the    | types; many partitions or many physical column names; selective  |
| scan reads at least `min_native_share` of them | filters; limits, top-n, metadata-only aggregation; tables under  |
| (thresholds of `tamis.Tuning`)                 | a policy                                                         |

If DuckDB opens the files of one scan, it also opens those of the other scans of the plan, even small ones. It computes
sums over such files while it reads them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import pyarrow as pa
import pyarrow.compute as pc

from tamis.engines.duckdb.run.evaluate import to_duckdb_sql
from tamis.expr.evaluate import to_physical_value
from tamis.expr.nodes import FALSE, TRUE, Call, Column, Expr, Literal, find_columns, split_conjuncts
from tamis.formats.source import FILE_FORMAT, PARQUET, FileListing, TableSource, has_deleted_rows
from tamis.io.listing import check_unchanged
from tamis.io.threads import LOCAL_SOLO_SECONDS, run_in_threads
from tamis.parquet.footer.footer import load_footer
from tamis.parquet.footer.leaves import FileSchema
from tamis.parquet.footer.statistics import has_ordered_bounds, has_short_chunks
from tamis.query.connectors.connector import Connector
from tamis.query.connectors.lake_connector import LakeConnector
from tamis.query.connectors.lake_handle import Aggregation, LakeHandle
from tamis.query.plan.nodes import Node, Output, TableScan
from tamis.scan.aggregation.measures import Measure
from tamis.scan.planning.physical_names import NativeScanColumns, find_columns_with_values
from tamis.scan.planning.projection import narrow_schema
from tamis.skipping.predicate import reads_partition_text
from tamis.types import STRING, replace_view_types, type_name

_OPTIONS = "hive_partitioning = false, can_have_nan = true"
"""Without `can_have_nan` DuckDB trusts the maximum of a float column, and loses rows with NaN."""

_PATTERN = re.compile(r"[*?\[\]{}']")
"""Characters in paths that DuckDB reads as glob patterns, or that would have to be quoted."""

_TYPES = frozenset((
    pa.bool_(), pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
    pa.date32(), pa.timestamp("us"), pa.timestamp("us", "UTC"),
))  # fmt: skip
"""Types that both readers read alike; decimals are checked separately."""


@dataclass(frozen=True, slots=True)
class NativeScan:
    """The files of a native scan, and the query over them that returns the columns of the scan."""

    paths: tuple[str, ...]
    query: str
    size: int
    """The total size of the files in bytes."""
    macros: frozenset[str]
    """The macros that the query calls."""


def collect_macros(scans: Mapping[str, NativeScan]) -> frozenset[str]:
    """Return the macros that the queries of native scans call."""
    return frozenset().union(*(scan.macros for scan in scans.values()))


def plan_native_scan(scan: TableScan, connector: Connector, *, is_beside: bool = False) -> NativeScan | None:
    """Return the native scan for a scan; None if the engine must not read the files, or if it does not pay off.

    With `is_beside` another scan of the plan is native already, so small scans pay off too. Large ones were decided
    before and are not considered again.
    """
    handle = scan.handle
    if scan.is_protected or not isinstance(connector, LakeConnector) or not isinstance(handle, LakeHandle):
        return None
    if handle.aggregation is not None:
        return (
            _find_native_aggregation(scan, handle, handle.aggregation, connector, is_beside)
            if handle.sums_rows
            else None
        )
    if FALSE in (*split_conjuncts(handle.predicate), *split_conjuncts(handle.pruning)):
        return None
    is_plain = not handle.is_limited and not handle.order and bool(handle.columns)
    source = handle.source
    if not is_plain or source.storage.filesystem.type_name != "local":
        return None
    asked = {*(each.path for each in handle.columns), *(each.path for each in find_columns(handle.predicate))}
    needed = sorted(path[0] for path in asked)
    if any(len(path) > 1 for path in asked):
        return None
    if not all(can_round_trip(source.schema.field(name).type) for name in needed):
        return None
    if reads_partition_text(handle.predicate):
        return None
    if any(_has_doubtful_bounds(column) for column in find_columns(handle.predicate)):
        return None
    compares_bytes = any(_is_of_bytes(column) for column in find_columns(handle.predicate))
    size = connector.properties(handle).bytes
    enough = source.storage.tuning.min_native_bytes
    worth = 1 if is_beside else enough
    if size is not None and (size < worth or (is_beside and size >= enough)):
        # The size of most handles is known by now; listing the files of a large table again would take long.
        return None
    readable = _find_readable_files(connector, handle, needed, worth, compares_bytes=compares_bytes)
    macros: set[str] = set()
    groups = None if readable is None else _write_queries(source, readable, needed, macros)
    if readable is None or not groups:
        return None
    if (size is None or size >= enough) and not _reads_most(connector, handle):
        return None
    columns = zip(handle.columns, scan.columns, strict=True)
    selected = ", ".join(
        f"{quote_duckdb_name(own.path[0])} AS {quote_duckdb_name(output.name)}" for own, output in columns
    )
    where = "" if handle.predicate == TRUE else f" WHERE {_write_expression(handle.predicate, macros)}"
    files = readable.listing.files
    query = f"SELECT {selected} FROM ({' UNION ALL '.join(groups)}){where}"
    return NativeScan(tuple(files["path"].to_pylist()), query, pc.sum(files["size"]).as_py() or 0, frozenset(macros))


def plan_native_scans(leaves: Sequence[tuple[str, Node]], connectors: Mapping[str, Connector]) -> dict[str, NativeScan]:
    """Return the native scans among the leaves of a plan, by leaf name."""
    scans = {name: leaf for name, leaf in leaves if isinstance(leaf, TableScan)}
    found: dict[str, NativeScan] = {}
    for is_beside in (False, True):
        for name, scan in scans.items():
            connector = connectors[scan.connector]
            if name not in found and (files := plan_native_scan(scan, connector, is_beside=is_beside)) is not None:
                found[name] = files
        if not found:
            break
    return found


def _find_native_aggregation(
    scan: TableScan, handle: LakeHandle, aggregation: Aggregation, connector: LakeConnector, is_beside: bool
) -> NativeScan | None:
    rows = handle.without_aggregation(aggregation)
    columns = tuple(Output(each.name) for each in rows.columns)
    found = plan_native_scan(replace(scan, handle=rows, columns=columns), connector, is_beside=is_beside)
    if found is None:
        return None
    names = {each.path: quote_duckdb_name(each.name) for each in rows.columns}
    keys = [names[key.path] for key in aggregation.keys]
    calls = [
        _write_call(each, "*" if each.column is None else names[each.column.path], output.type)
        for each, output in zip(aggregation.measures, scan.columns[len(keys) :], strict=True)
    ]
    pairs = zip((*keys, *calls), scan.columns, strict=True)
    selected = ", ".join(f"{value} AS {quote_duckdb_name(output.name)}" for value, output in pairs)
    grouped = f" GROUP BY {', '.join(keys)}" if keys else ""
    return replace(found, query=f"SELECT {selected} FROM ({found.query}){grouped}")


def _write_call(measure: Measure, argument: str, wanted: pa.DataType | None) -> str:
    call = f"{measure.function}({argument})"
    # DuckDB's sums are wider than Spark's.
    return call if wanted in (None, measure.type) else f"CAST({call} AS {type_name(wanted)})"


@dataclass(frozen=True, slots=True)
class _ReadableFiles:
    """Files that DuckDB reads correctly, and for each file its physical names of the non-partition columns."""

    listing: FileListing
    names: Sequence[tuple[str, ...]]


def _write_queries(
    source: TableSource, readable: _ReadableFiles, needed: Sequence[str], macros: set[str]
) -> list[str] | None:
    """Return one query for each group of files with the same partition values and physical column names.

    None if there are too many groups. The macros that they call are added to `macros`.
    """
    of_files = [name for name in needed if name not in source.partition_columns]
    partitions = [name for name in needed if name in source.partition_columns]
    listing = readable.listing
    values = [listing.partitions[name] for name in partitions]
    groups: dict[tuple[str, ...], list[str]] = {}
    for row, (path, names) in enumerate(zip(listing.files["path"].to_pylist(), readable.names, strict=True)):
        stored = zip(names, of_files, strict=True)
        constants = (
            (_write_constant(column[row], macros), name) for name, column in zip(partitions, values, strict=True)
        )
        key = (
            *(f"{quote_duckdb_name(own)} AS {quote_duckdb_name(name)}" for own, name in stored),
            *(f"{constant} AS {quote_duckdb_name(name)}" for constant, name in constants),
        )
        groups.setdefault(key, []).append(f"'{path}'")
        if len(groups) > source.storage.tuning.max_native_partitions:
            return None
    return [
        f"SELECT {', '.join(columns) or '1'} FROM read_parquet([{', '.join(own)}], {_OPTIONS})"
        for columns, own in groups.items()
    ]


def _write_constant(value: pa.Scalar, macros: set[str]) -> str:
    data_type = value.type
    literal = Literal(to_physical_value(value), data_type)
    return _write_expression(Call("cast", (literal, Literal(type_name(data_type), STRING))), macros)


def _write_expression(expr: Expr, macros: set[str]) -> str:
    found = to_duckdb_sql(expr)
    macros |= found.macros
    return found.text


def _has_doubtful_bounds(column: Column) -> bool:
    """Return whether min/max bounds of a column may be NaN or unordered. DuckDB would trust them, unlike Tamis."""
    data_type = column.type
    return data_type is None or not (
        pa.types.is_integer(data_type)
        or pa.types.is_date32(data_type)
        or pa.types.is_timestamp(data_type)
        or _is_of_bytes(column)
    )


def _is_of_bytes(column: Column) -> bool:
    """Return whether files may store a column's bounds as bytes, which some writers order differently."""
    data_type = column.type
    return data_type is not None and (pa.types.is_string(data_type) or pa.types.is_decimal128(data_type))


def can_round_trip(data_type: pa.DataType) -> bool:
    """Return whether values of a type pass through the engine unchanged."""
    return data_type in _TYPES or pa.types.is_decimal128(data_type)


def _find_readable_files(
    connector: LakeConnector, handle: LakeHandle, needed: Sequence[str], worth: int, *, compares_bytes: bool
) -> _ReadableFiles | None:
    """Return the files to read if DuckDB reads all of them correctly, else None."""
    source = handle.source
    listing = connector.list_files(handle).require(needed)
    files = listing.files
    size = pc.sum(files["size"]).as_py() or 0
    if size < worth or files.num_rows > source.storage.tuning.max_native_files or not _have_all_rows(files):
        return None
    paths = files["path"].to_pylist()
    if any(_PATTERN.search(path) for path in paths):
        return None
    columns = [(name,) for name in needed if name not in source.partition_columns]
    asked = NativeScanColumns(
        narrow_schema(source.schema, columns), columns, source.field_names, find_columns_with_values(files)
    )

    for path in paths:
        source.storage.check_links(path)
    # DuckDB does not notice when another file has replaced the listed one.
    check_unchanged(source.storage, files)

    def find_names(file: tuple[str, int, int | None]) -> tuple[str, ...] | None:
        footer = load_footer(source.storage, *file)[0]
        if has_short_chunks(footer.metadata) or (compares_bytes and not has_ordered_bounds(footer.metadata)):
            return None
        return _find_physical_names(footer.schema, asked, source.storage.format_path(file[0]))

    each = list(zip(*(files[name].to_pylist() for name in ("path", "size", "modified_ns")), strict=True))
    found = run_in_threads(find_names, each, source.storage.threads, patience=LOCAL_SOLO_SECONDS)
    names = [own for own in found if own is not None]
    return _ReadableFiles(listing, names) if len(names) == len(found) else None


def _have_all_rows(files: pa.Table) -> bool:
    """Return whether all files are Parquet files without deleted rows."""
    if FILE_FORMAT in files.column_names and not pc.all(pc.equal(files[FILE_FORMAT], PARQUET), min_count=0).as_py():
        return False
    return not has_deleted_rows(files).any()


def _find_physical_names(schema: FileSchema, asked: NativeScanColumns, location: str) -> tuple[str, ...] | None:
    """Return a file's physical column names; None if DuckDB would read wrong values.

    It does so for INT96 timestamps, and for dates that need a datetime rebase.
    """
    physical = (schema.parquet.column(number) for number in range(len(schema.parquet)))
    if schema.leaves_to_rebase or any(column.physical_type == "INT96" for column in physical):
        return None
    if asked.names is None:
        return tuple(asked.schema.names) if _has_fields(schema, asked.schema) else None
    found = asked.find_fields(schema, location) or {}
    # A missing column may have a default other than NULL. Fields inside a struct keep the names of the file.
    is_same = [each.name in found and found[each.name].type == each.type for each in asked.schema]
    return tuple(found[name].name for name in asked.schema.names) if all(is_same) else None


def _has_fields(schema: FileSchema, wanted: pa.Schema) -> bool:
    """Return whether a file has these columns with the same spelling and types, and none that differs only by case."""
    stored = schema.physical_arrow
    folded = [name.casefold() for name in stored.names]
    for field in wanted:
        if field.name not in stored.names or folded.count(field.name.casefold()) != 1:
            return False
        if replace_view_types(stored.field(field.name).type) != field.type:
            return False
    return True


def _reads_most(connector: LakeConnector, handle: LakeHandle) -> bool:
    """Return whether a filter keeps so many row groups that further pruning does not pay off."""
    if handle.predicate == TRUE and handle.pruning == TRUE:
        return True
    scan = connector.to_scan(handle)
    if scan is None:
        return False
    for level in reversed(scan.plan("row_groups").report.levels):
        if level.level == "row_groups" and level.bytes_total:
            return (level.bytes_kept or 0) >= handle.source.storage.tuning.min_native_share * level.bytes_total
    return False


def quote_duckdb_name(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
