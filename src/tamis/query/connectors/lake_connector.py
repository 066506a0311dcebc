"""The lake connector: Delta, Iceberg and Hive-style tables, and single files.

| pushed      | effect                                                                                                 |
|-------------|--------------------------------------------------------------------------------------------------------|
| filter      | prunes, and the scan tests every row; conjuncts with unsupported functions stay above                  |
| projection  | columns and struct fields are pushed; expressions stay above                                           |
| aggregation | count, min, max and sum, by keys that are constant within files                                   |
| limit       | that many rows, from as few files as hold them                                                         |
| top-n       | a few more rows than that, read in the order of bounds; the node stays above                       |
| sort        | all rows in order, if the bounds of files prove that a few at a time need to be sorted                 |
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import EvaluationError, ExpressionError, TamisError
from tamis.expr.evaluate import can_evaluate
from tamis.expr.functions.table import FUNCTIONS, type_of
from tamis.expr.nodes import TRUE, Call, Column, Expr, Literal, and_, find_columns, split_conjuncts, walk
from tamis.expr.sql.printer import to_display_sql
from tamis.formats.source import (
    FILE_FORMAT,
    PARQUET,
    FileListing,
    HasCollations,
    HasPartitionFields,
    TableSource,
    make_table_predicate,
)
from tamis.parquet.inspection.clustering import measure_overlap
from tamis.parquet.inspection.column_facts import format_path
from tamis.parquet.inspection.inspect_file import ColumnInspection, inspect_file
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.query.connectors.connector import (
    Connector,
    Handle,
    Properties,
    PushedAggregation,
    PushedFilter,
    PushedProjection,
    PushedRows,
)
from tamis.query.connectors.lake_handle import Aggregation, LakeColumn, LakeHandle, OrderKey, Path, TopRows
from tamis.query.connectors.lake_reading import (
    ListingCache,
    build_row_scan,
    build_scan,
    find_constant_columns,
    find_properties,
    find_satisfied_predicate,
    is_cheap_to_sort,
    read_handle,
)
from tamis.query.plan.column_ids import ColumnIds, collect_paths, is_deterministic, replace_paths
from tamis.query.plan.nodes import AggregateCall, Named, Output, SortKey
from tamis.query.sql.table_versions import split_table_state
from tamis.scan.aggregation.measures import Function, Measure, can_compare, can_group, can_sum
from tamis.scan.reading.bloom_join_filter import BloomJoinFilter
from tamis.scan.reading.residual import Residual
from tamis.scan.scan import Scan
from tamis.skipping.metadata import metadata_name
from tamis.types import LONG, STRING, type_name

# --- Lake clustering ------------------------------------------------------------------------------------------------
#
# Detect whether a table is clustered by a column, so that a filter on a few of its values prunes much.
#
# | column                                                         | a few of its values                           |
# |----------------------------------------------------------------|-----------------------------------------------|
# | a partition column, or a source column of a partition          | are in few files                              |
# | files have bounds that overlap little                          | are in few files                              |
# | row groups or pages have bounds that overlap little, or        | are in few row groups or pages (a sample of   |
# | Bloom filters                                                  | files is inspected, if the table is large)    |
# | none of these                                                  | may be anywhere, so everything is read        |
#
# Without statistics of the column, the answer is unknown. In object stores, inspecting files would take longer than it
# saves, so only partitions are considered there.


MAX_OVERLAP = 0.5
"""If a typical value is within more than this share of all ranges, a filter on it prunes too little."""

MAX_COMPARED_FILES = 10_000
"""The overlap is estimated from the bounds of at most this many files."""

MAX_INSPECTED_FILES = 4
"""The number of files that are inspected, spread from the first to the last: each costs a few milliseconds."""


def is_clustered(handle: LakeHandle, column: Column, listings: ListingCache) -> bool | None:
    """Return whether the rows that a handle reads are clustered by a column of the table; None if that is unknown."""
    source = handle.source
    if column.type is None or pa.types.is_nested(column.type):
        return None
    if column.path[0] in source.partition_columns:
        return True
    if isinstance(source, HasPartitionFields) and column.path in source.partition_sources:
        return True
    if not source.storage.is_local:
        return None
    statistics = listings.find_statistics(handle, column)
    if statistics is not None:
        overlap = _estimate_overlap(statistics, column)
        if overlap is not None and overlap <= MAX_OVERLAP:
            return True
    return _is_clustered_in_files(handle, column, listings)


def _estimate_overlap(statistics: pa.Table, column: Column) -> float | None:
    """Return the share of the files that may hold a typical value; None without bounds."""
    lower, upper, nulls = (metadata_name(kind, column.path) for kind in ("lower", "upper", "null_count"))
    if not {lower, upper} <= set(statistics.column_names):
        return None
    if statistics.num_rows > MAX_COMPARED_FILES:
        statistics = statistics.take(pa.array(_choose_sample(statistics.num_rows, MAX_COMPARED_FILES)))
    is_empty = np.zeros(statistics.num_rows, bool)
    if nulls in statistics.column_names:
        is_empty = np.asarray(pc.fill_null(pc.equal(statistics[nulls], statistics["num_records"]), False), bool)
    return measure_overlap(statistics[lower].combine_chunks(), statistics[upper].combine_chunks(), is_empty)


def _is_clustered_in_files(handle: LakeHandle, column: Column, listings: ListingCache) -> bool | None:
    """Return whether a sample of the files is clustered by a column, in row groups or pages; None if unknown."""
    files = listings.of(handle).files
    if FILE_FORMAT in files.column_names and not pc.all(pc.equal(files[FILE_FORMAT], PARQUET)).as_py():
        return None
    if not files.num_rows or pc.sum(files["size"]).as_py() < handle.source.storage.tuning.min_bytes_to_check_clustering:
        return False
    chosen = pa.array(_choose_sample(files.num_rows, MAX_INSPECTED_FILES))
    sample = files.select(["path", "size", "modified_ns"]).take(chosen).to_pylist()
    try:
        found = [each for file in sample for each in _inspect_column(handle.source, column, **file)]
    except TamisError:
        # The scan may not read this file. If it does, it raises the error.
        return None
    if len(found) != len(sample):
        # In some file, another field has this name, for example a struct.
        return None
    if any(pc.any(each.row_groups["bloom_filter"]).as_py() for each in found):
        return True
    ranges = [each.ranges for each in found]
    if len({each.lower.type for each in ranges}) > 1:
        return None
    lower, upper = (
        pa.concat_arrays(bounds) for bounds in zip(*((each.lower, each.upper) for each in ranges), strict=True)
    )
    overlap = measure_overlap(lower, upper, np.concatenate([each.has_no_values for each in ranges]))
    return None if overlap is None else overlap <= MAX_OVERLAP


def _choose_sample(count: int, most: int) -> npt.NDArray[np.int64]:
    """Return at most `most` positions below `count`, spread from the first to the last."""
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def _inspect_column(
    source: TableSource, column: Column, path: str, size: int, modified_ns: int | None
) -> Sequence[ColumnInspection]:
    # By the physical name: if the logical name differs, nothing is found and the answer is unknown.
    return inspect_file(ParquetFile.load(source.storage, path, size, modified_ns), format_path(column.path)).columns


MAX_CACHED_HANDLES = 1000
"""The number of handles whose properties are cached."""


class LakeConnector(Connector):
    """A connector for opened lake tables, by name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tables: dict[tuple[str, ...], LakeHandle] = {}
        self._properties: dict[LakeHandle, tuple[TableSource, Properties]] = {}
        self._clustering: dict[tuple[LakeHandle, Column], tuple[TableSource, bool | None]] = {}
        self._listings = ListingCache()

    def add(self, name: tuple[str, ...], source: TableSource) -> LakeHandle:
        """Register a table under a name, and replace the one that had this name."""
        handle = self._tables[name] = LakeHandle.of(name, source)
        return handle

    def table(self, name: tuple[str, ...]) -> LakeHandle | None:
        return self._tables.get(name)

    def columns(self, handle: Handle) -> pa.Schema:
        return _as_lake(handle).schema

    def describe(self, handle: Handle) -> str:
        given = _as_lake(handle)
        state = "" if split_table_state(given.name[-1]) is None else f" at version {given.version}"
        parts = [f"{given.source.format} table {given.source.name!r}{state}"]
        if given.aggregation is not None:
            parts.append("summed while reading" if given.sums_rows else "aggregated from metadata where possible")
        parts.append(f"columns {', '.join(each.name for each in given.columns) or 'none'}")
        if given.predicate != TRUE:
            parts.append(f"where {to_display_sql(given.predicate)}")
        if given.pruning != TRUE:
            shown = to_display_sql(given.pruning)
            parts.append(f"pruned by {shown if len(shown) <= 100 else f'{shown[:100]}…'}")
        if given.bloom_filters:
            parts.append(f"Bloom join filter on {', '.join(column.name for column, _ in given.bloom_filters)}")
        if given.limit is not None:
            parts.append(f"at most {given.limit} rows")
        if given.order:
            parts.append(f"in the order of {', '.join(map(_describe_key, given.order))}")
        if given.top is not None:
            parts.append(f"about the first {given.top.count} rows by {given.top.column.name}")
        return "; ".join(parts)

    def enforced_predicate(self, handle: Handle) -> Expr:
        return find_satisfied_predicate(_as_lake(handle))

    def properties(self, handle: Handle) -> Properties:
        """Return the properties of a handle, from a listing of its files, cached for each handle."""
        given = _as_lake(handle)
        source, known = self._properties.get(given, (None, None))
        # A directory that is opened again has equal handles, but its files may differ.
        if known is None or source is not given.source:
            if len(self._properties) >= MAX_CACHED_HANDLES:
                self._properties.clear()
            known = find_properties(given, self._listings)
            self._properties[given] = given.source, known
        return known

    def is_clustered(self, handle: Handle, column: Expr) -> bool | None:
        given = _as_lake(handle)
        found = given.find(column)
        if found is None or given.aggregation is not None:
            return None
        key = given, found.column
        source, known = self._clustering.get(key, (None, None))
        if source is not given.source:
            if len(self._clustering) >= MAX_CACHED_HANDLES:
                self._clustering.clear()
            known = is_clustered(given, found.column, self._listings)
            self._clustering[key] = given.source, known
        return known

    def list_files(self, handle: LakeHandle) -> FileListing:
        """Return the files that may hold a row of a handle; the listing is cached."""
        return self._listings.of(handle)

    # --- Pushdown -----------------------------------------------------------------------------------------------------

    def push_filter(self, handle: Handle, predicate: Expr) -> PushedFilter | None:
        given = _as_lake(handle)
        if given.is_limited:
            return None
        own, others = [], []
        for conjunct in split_conjuncts(predicate):
            found = _to_table_columns(conjunct, given)
            if found is None:
                others.append(conjunct)
            else:
                own.append(found)
        if not own:
            return None
        before = [] if given.predicate == TRUE else split_conjuncts(given.predicate)
        both = and_(*dict.fromkeys((*before, *(each for each in own if each != TRUE))))
        return PushedFilter(replace(given, predicate=both), and_(*others))

    def push_pruning(self, handle: Handle, predicate: Expr) -> LakeHandle | None:
        given = _as_lake(handle)
        if given.is_limited or given.aggregation is not None:
            return None
        own = _to_table_columns(predicate, given)
        if own is None:
            return None
        return replace(given, pruning=own if given.pruning == TRUE else and_(given.pruning, own))

    def push_join_keys(self, handle: Handle, column: Expr, keys: BloomJoinFilter) -> LakeHandle | None:
        given = _as_lake(handle)
        found = given.find(column)
        if given.is_limited or given.aggregation is not None or found is None or found.type != keys.type:
            return None
        return replace(given, bloom_filters=(*given.bloom_filters, (found, keys)))

    def push_projection(self, handle: Handle, outputs: Sequence[Named]) -> PushedProjection | None:
        given = _as_lake(handle)
        if given.aggregation is not None:
            return None
        wanted = [_resolve_path(path, given) for path in collect_paths(output.expr for output in outputs)]
        if given.top is not None and not any(_is_inside(given.top.column.path, each.path) for each in wanted):
            # The top-n needs its sort column, even if the outputs do not.
            wanted.append(given.top.column)
        wanted += [key.column for key in given.order if not any(each.path == key.column.path for each in wanted)]
        columns = tuple(dict.fromkeys(wanted))
        if columns == given.columns:
            return None
        names = map(ColumnIds().allocate, (each.name for each in columns))
        named = tuple(replace(each, name=name) for each, name in zip(columns, names, strict=True))
        by_path = {_to_handle_path(given, each.path): each for each in named}
        replacements = {path: Column((each.name,), type=each.type) for path, each in by_path.items()}
        return PushedProjection(
            replace(given, columns=named),
            tuple(Output(each.name, each.type) for each in named),
            tuple(Named(output.name, replace_paths(output.expr, replacements)) for output in outputs),
        )

    def push_aggregation(
        self, handle: Handle, partial: bool, keys: Sequence[Named], aggregates: Sequence[AggregateCall]
    ) -> PushedAggregation | None:
        given = _as_lake(handle)
        if given.is_limited or given.order or given.aggregation is not None or not (keys or aggregates):
            return None
        if any(map(is_average, aggregates)):
            parts = PartialAggregates.of(aggregates)
            pushed = self.push_aggregation(handle, partial, keys, parts.calls)
            return None if pushed is None else replace(pushed, values=parts.values(pushed.columns[len(keys) :]))
        own_keys = [_find_key(key, given) for key in keys]
        measures = [_to_measure(call, given) for call in aggregates]
        if None in own_keys or None in measures:
            return None
        keys_of_table = [key for key in own_keys if key is not None]
        known = tuple(measure for measure in measures if measure is not None)
        names = list(map(ColumnIds().allocate, (*(key.name for key in keys), *(call.name for call in aggregates))))
        columns = [
            *(LakeColumn(name, key.path, key.type) for name, key in zip(names, keys_of_table, strict=False)),
            *(
                LakeColumn(name, (), call.type if each.function == "sum" and call.type is not None else each.type)
                for name, call, each in zip(names[len(keys) :], aggregates, known, strict=True)
            ),
        ]
        made = replace(given, columns=tuple(columns), aggregation=Aggregation(tuple(keys_of_table), known))
        return PushedAggregation(made, tuple(Output(each.name, each.type) for each in columns))

    def must_read_rows(self, handle: Handle) -> bool:
        return True

    def push_limit(self, handle: Handle, count: int) -> PushedRows | None:
        given = _as_lake(handle)
        if given.aggregation is not None or given.top is not None:
            return None
        if given.limit is not None and given.limit <= count:
            return PushedRows(given, guaranteed=True)
        return PushedRows(replace(given, limit=count), guaranteed=True)

    def push_top_n(self, handle: Handle, keys: Sequence[SortKey], count: int) -> PushedRows | None:
        given = _as_lake(handle)
        if given.is_limited or given.order or given.aggregation is not None or not keys:
            return None
        first = keys[0]
        column = given.find(first.expr)
        if column is None or not can_compare(column.type) or _has_collation(column, given):
            return None
        top = TopRows(column, first.descending, first.nulls_first, count, with_ties=len(keys) > 1)
        return PushedRows(replace(given, top=top), guaranteed=False)

    def push_sort(self, handle: Handle, keys: Sequence[SortKey]) -> LakeHandle | None:
        given = _as_lake(handle)
        if given.is_limited or given.order or given.aggregation is not None:
            return None
        order = [_find_order_key(key, given) for key in keys]
        known = tuple(key for key in order if key is not None)
        if not known or len(known) < len(order):
            return None
        ordered = replace(given, order=known)
        return ordered if is_cheap_to_sort(ordered) else None

    # --- Reading ------------------------------------------------------------------------------------------------------

    def to_scan(self, handle: Handle) -> Scan | None:
        """Return the scan that reads a handle, with the columns of the table.

        Return None for aggregations, top-n and sorted reads, which need more than a scan.
        """
        given = _as_lake(handle)
        if given.aggregation is not None or given.top is not None or given.order:
            return None
        return build_scan(given, self._listings)

    def to_row_scan(self, handle: LakeHandle) -> Scan:
        """Return a scan of the rows that a handle sorts or cuts, for an engine that does these itself."""
        return build_row_scan(handle, self._listings)

    def read(self, handle: Handle) -> Iterator[pa.RecordBatch]:
        return read_handle(_as_lake(handle), self._listings)


def _as_lake(handle: Handle) -> LakeHandle:
    assert isinstance(handle, LakeHandle), f"expected a LakeHandle, found {handle!r}"
    return handle


# --- Filters ----------------------------------------------------------------------------------------------------------


def _to_table_columns(conjunct: Expr, handle: LakeHandle) -> Expr | None:
    """Return a conjunct over columns of the table; None if the scan cannot evaluate it."""
    if not is_deterministic(conjunct):
        return None
    calls = (node for node in walk(conjunct) if isinstance(node, Call))
    if any(call.function not in FUNCTIONS for call in calls):
        return None
    keys = None if handle.aggregation is None else {key.path for key in handle.aggregation.keys}
    columns = find_columns(conjunct)
    if keys is not None and not columns:
        # Such a conjunct drops groups, not rows: without keys there is one group even for no rows.
        return None
    replacements: dict[Path, Column] = {}
    for column in columns:
        found = handle.column(column.path[0])
        if found is None or (keys is not None and found.path not in keys):
            return None
        replacements[found.name,] = found.column
    own = replace_paths(conjunct, replacements)
    try:
        source = handle.source
        predicate = make_table_predicate(own, source)
    except ExpressionError:
        # The engine above the scan may support it.
        return None
    return own if _can_evaluate(predicate.expr, source.schema) else None


def _can_evaluate(expr: Expr, schema: pa.Schema) -> bool:
    """Return whether the scan supports the argument types: an engine may convert where it does not (`upper(7)`)."""
    if can_evaluate(expr):
        return True
    names = {column.path[0] for column in find_columns(expr)}
    fields = [each for each in schema if each.name in names]
    one_row = pa.RecordBatch.from_arrays([pa.nulls(1, each.type) for each in fields], [each.name for each in fields])
    try:
        Residual(split_conjuncts(expr)).filter(one_row)
    except EvaluationError:
        return False
    return True


# --- Projections ------------------------------------------------------------------------------------------------------


def _resolve_path(path: Path, handle: LakeHandle) -> LakeColumn:
    """Return the column or struct field that a path names; the innermost struct if the path continues into a list."""
    column = handle.column(path[0])
    assert column is not None, f"no column {path[0]!r} in {handle}"
    found = column
    for name in path[1:]:
        index = found.type.get_field_index(name) if pa.types.is_struct(found.type) else -1
        if index < 0:
            break
        found = LakeColumn(f"{found.name}.{name}", (*found.path, name), found.type.field(index).type)
    return found


def _to_handle_path(handle: LakeHandle, path: Path) -> Path:
    """Return the path of a table column or field, under the column names of a handle."""
    column = next(each for each in handle.columns if _is_inside(path, each.path))
    return (column.name, *path[len(column.path) :])


def _is_inside(path: Path, other: Path) -> bool:
    return path[: len(other)] == other


# --- Aggregation ------------------------------------------------------------------------------------------------------


def _find_key(key: Named, handle: LakeHandle) -> Column | None:
    """Return the column of a key if metadata can group by it: it has one value within each file. Else None."""
    column = _find_groupable(key.expr, handle)
    is_constant = column is not None and column.path in find_constant_columns(handle.source)
    return column.column if column is not None and is_constant else None


def _find_order_key(key: SortKey, handle: LakeHandle) -> OrderKey | None:
    """Return the column of a sort key if values of its type sort here as in SQL, else None."""
    column = _find_groupable(key.expr, handle)
    return None if column is None else OrderKey(column, key.descending, key.nulls_first)


def _find_groupable(expr: Expr, handle: LakeHandle) -> LakeColumn | None:
    """Return the column of the table that an expression is, if its values group and sort byte by byte; else None."""
    column = handle.find(expr)
    if column is None or len(column.path) != 1 or not can_group(column.type) or _has_collation(column, handle):
        return None
    return column


def _describe_key(key: OrderKey) -> str:
    return f"{key.column.name}{' descending' if key.descending else ''}"


def _to_measure(call: AggregateCall, handle: LakeHandle) -> Measure | None:
    if call.filter is not None:
        return None
    match call.function, call.args:
        case "count", ():
            return Measure("count")
        case "count", (Literal() as value,) if not value.is_null and not call.distinct:
            return Measure("count")
        case ("count" | "min" | "max" | "sum") as function, (Column() as argument,):
            column = handle.column(argument.path[0])
            if column is None:
                return None
            found = _resolve_path(argument.path, handle)
            if len(found.path) != len(column.path) + len(argument.path) - 1:
                return None
            return _measure_column(function, found, handle, is_distinct=call.distinct)
        case _:
            return None


def _measure_column(function: Function, column: LakeColumn, handle: LakeHandle, *, is_distinct: bool) -> Measure | None:
    if function == "count":
        # The null counts of leaf columns do not reveal whether a struct is NULL.
        return None if is_distinct or pa.types.is_nested(column.type) else Measure("count", column.column)
    if function == "sum":
        return Measure("sum", column.column) if can_sum(column.type) and not is_distinct else None
    is_ordered = can_compare(column.type) and not _has_collation(column, handle)
    return Measure(function, column.column) if is_ordered else None


def _has_collation(column: LakeColumn, handle: LakeHandle) -> bool:
    """Return whether strings of a column compare by a collation instead of byte by byte."""
    return isinstance(handle.source, HasCollations) and column.path in handle.source.collated_columns


# --- Averages from sums and counts, which can be combined across files ------------------------------------------------
#
#     avg(x)  ─▶  CAST(sum(x) AS double) / CAST(count(x) AS double)
#
# The average of decimals has four more digits after the decimal point than they have, as in Spark.
# DuckDB computes averages without keys like this; averages of groups may differ in their last bit.
# The sum of an average has 38 digits, so it does not overflow. A sum beside it is cast to its type in Spark.


def is_average(call: AggregateCall) -> bool:
    return call.function == "avg" and not call.distinct and len(call.args) == 1


@dataclass(frozen=True)
class PartialAggregates:
    """The distinct aggregates without averages and, for each requested aggregate, the positions of its inputs."""

    calls: tuple[AggregateCall, ...]
    positions: tuple[tuple[int, ...], ...]
    requested: tuple[AggregateCall, ...]

    @staticmethod
    def of(aggregates: Sequence[AggregateCall]) -> PartialAggregates:
        found: dict[AggregateCall, int] = {}
        positions = []
        for call in aggregates:
            functions = ("sum", "count") if is_average(call) else (call.function,)
            parts = (replace(call, name="", function=function, type=None) for function in functions)
            positions.append(tuple(found.setdefault(part, len(found)) for part in parts))
        calls = tuple(replace(call, name=f"{call.function}({_format_arguments(call)})") for call in found)
        return PartialAggregates(calls, tuple(positions), tuple(aggregates))

    def values(self, columns: Sequence[Output]) -> tuple[Expr, ...]:
        """Return the requested aggregates as expressions over the columns of the partial results."""
        return tuple(
            _to_value([columns[position].column for position in positions], call)
            for positions, call in zip(self.positions, self.requested, strict=True)
        )


def _format_arguments(call: AggregateCall) -> str:
    return ", ".join(each.name if isinstance(each, Column) else to_display_sql(each) for each in call.args) or "*"


def _to_value(parts: Sequence[Column], call: AggregateCall) -> Expr:
    if len(parts) == 1:
        is_wide = call.type is not None and call.type != parts[0].type
        return _cast(parts[0], type_name(call.type)) if is_wide else parts[0]
    quotient = Call("/", tuple(_cast(part, "double") for part in parts))
    averaged = type_of(call.args[0])
    if averaged is None or not pa.types.is_decimal(averaged):
        return quotient
    return Call("round", (quotient, Literal(averaged.scale + 4, LONG)))


def _cast(value: Expr, kind: str) -> Expr:
    return Call("cast", (value, Literal(kind, STRING)))
