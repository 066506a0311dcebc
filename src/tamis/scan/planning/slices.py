"""Planning of files in slices, down to row groups and pages, in this process or in an engine's executors.

The slices do not depend on where they are planned, so that plans and reports are the same.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import format_count
from tamis.expr.nodes import Column
from tamis.formats.constants import list_constants
from tamis.formats.file_funnel import MATCHED_TYPE, decode_matches, encode_matches
from tamis.formats.jobs import (
    SMALL_READ,
    Arguments,
    Engine,
    Item,
    Job,
    Planning,
    read_table,
    run_job,
    storage_to_arguments,
)
from tamis.formats.source import FILE_FORMAT, FileIndex, FileListing
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.indexes.page_pruning import Filter, Remaining, RowRangePruner
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.parquet.selection.row_selection import RowSelection
from tamis.scan.planning.projection import Path
from tamis.scan.planning.row_groups import RowGroups, Units, concatenate_units, is_parquet, plan_row_groups, take_rows
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.metrics import LevelReport
from tamis.skipping.predicate import Predicate, predicate_from_json, predicate_to_json
from tamis.skipping.prune import ConjunctOutcome

FUNCTION = "tamis.scan.planning.slices:plan_slice"

_NUMBERS = pa.list_(types.LONG)
_UNIT = pa.struct(
    [
        *((name, types.LONG) for name in ("file", "row_group", "row_count", "bytes")),
        *(("residual", MATCHED_TYPE), ("starts", _NUMBERS), ("ends", _NUMBERS)),
    ]
)
_SCHEMA = pa.schema([("metrics", types.STRING), ("group_rows", _NUMBERS), ("unit", _UNIT)])
"""The result of a slice: its metrics, then the row counts of every file, then the remaining units."""

Planned = tuple[RowGroups, list[LevelReport]]


@dataclass(frozen=True)
class SlicePlanner:
    """Plans files of one scan. It is thread-safe."""

    storage: Storage
    predicate: Predicate
    needed: tuple[Path, ...]
    """The columns to read, including those of the filter."""
    partition_columns: Collection[str]
    levels: Collection[str]
    names: ColumnMapping | None = None
    to_pages: bool = True
    index: FileIndex | None = None
    """Indexed metadata of files, whose footers are not read for a plan."""
    with_statistics: tuple[Column, ...] = ()
    """Columns besides those of the filter whose metadata is returned with row groups."""

    def plan(self, listing: FileListing, *, keep_contents: bool = False) -> Planned:
        """Return the row groups and pages to read from some files, and the metrics of the levels below row groups."""
        row_groups = self.plan_row_groups(listing, keep_contents=keep_contents)
        return self.plan_pages(listing.files, row_groups) if self.to_pages else (row_groups, [])

    def plan_row_groups(self, listing: FileListing, *, keep_contents: bool = False) -> RowGroups:
        """Return the row groups to read from some files."""
        return plan_row_groups(
            self.storage,
            listing,
            self.predicate,
            self.needed,
            names=self.names,
            enabled="row_groups" in self.levels,
            keep_contents=keep_contents,
            index=self.index,
            with_statistics=self.with_statistics,
        )

    def plan_pages(self, files: pa.Table, row_groups: RowGroups) -> Planned:
        """Return the parts of row groups to read, and the metrics of the levels below them."""
        return self._below.narrow(files, row_groups)

    @cached_property
    def _below(self) -> PageLevels:
        given = Filter(self.predicate.expr, self.predicate.conjuncts, self.predicate.handler)
        return PageLevels(self.storage, given, self.needed, self.partition_columns, self.levels, self.names)


def plan_in_slices(planner: SlicePlanner, listing: FileListing, planning: Planning | None, name: str) -> Planned:
    """Plan all files of a listing, in the engine that `planning` chooses or in this process."""
    count = listing.files.num_rows
    most = planner.storage.tuning.files_per_slice
    slices = [listing.slice(start, most) for start in range(0, count, most)]
    engine = None
    # Indexed files cost almost nothing to plan.
    unknown = count if planner.index is None else count - int(planner.index.has_entries(listing.files).sum())
    if planning is not None and unknown:
        count_of_slices = -(-unknown // most)
        engine = planning.choose_engine(planner.storage, count_of_slices, unknown * SMALL_READ)
    if engine is not None:
        return _concatenate_plans(_plan_in_engine(engine, planner, slices, name))
    if len(slices) <= 1:
        return planner.plan(listing)
    return _concatenate_plans([_drop_metadata(planner.plan(each)) for each in slices])


def _plan_in_engine(engine: Engine, planner: SlicePlanner, slices: Sequence[FileListing], name: str) -> list[Planned]:
    count = sum(each.files.num_rows for each in slices)
    arguments = {**storage_to_arguments(planner.storage), "planner": planner_to_json(planner)}
    what = f"read {format_count(count, 'footer')} of {name}"
    job = Job(FUNCTION, arguments, _SCHEMA, what, planner.storage.counters)
    batches = run_job(engine, job, [_make_item(each) for each in slices])
    return [_decode_plan(own, len(planner.predicate.conjuncts)) for own in batches]


def plan_slice(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Plan the files of one slice in an executor, and yield the result as batches."""
    planner = arguments.memoise(_make_planner)
    yield from _encode_plan(planner.plan(table_to_listing(read_table(item), len(planner.predicate.conjuncts))))


def planner_to_json(planner: SlicePlanner) -> dict[str, Any]:
    """Return what another process needs to plan files of a scan, as JSON values. It plans without an index."""
    return {
        "predicate": predicate_to_json(planner.predicate),
        "needed": [list(path) for path in planner.needed],
        "partition_columns": list(planner.partition_columns),
        "levels": sorted(planner.levels),
        "names": None if planner.names is None else planner.names.to_json(),
        "to_pages": planner.to_pages,
    }


def planner_from_json(storage: Storage, given: Mapping[str, Any]) -> SlicePlanner:
    return SlicePlanner(
        storage,
        predicate_from_json(given["predicate"]),
        tuple(tuple(path) for path in given["needed"]),
        tuple(given["partition_columns"]),
        frozenset(given["levels"]),
        None if given["names"] is None else ColumnMapping.from_json(given["names"]),
        given["to_pages"],
    )


def _make_planner(arguments: Arguments) -> SlicePlanner:
    return planner_from_json(arguments.storage, arguments["planner"])


# --- Concatenating slices -------------------------------------------------------------------------------------------


def _concatenate_plans(planned: Sequence[Planned]) -> Planned:
    if len(planned) == 1:
        return planned[0]
    each = [row_groups for row_groups, _ in planned]
    starts = np.cumsum([0, *(len(one.group_rows) for one in each)]).tolist()
    report = _sum_reports([one.report for one in each])
    below: dict[str, list[LevelReport]] = {}
    for _, levels in planned:
        for level in levels:
            below.setdefault(level.level, []).append(level)
    joined = RowGroups(
        concatenate_units(
            [replace(one.units, file=one.units.file + start) for one, start in zip(each, starts, strict=False)]
        ),
        [rows for one in each for rows in one.group_rows],
        np.concatenate([one.residual for one in each]),
        report,
        [content for one in each for content in one.contents],
        pa.concat_batches([one.metadata for one in each]),
        {
            (file + start, group): selection
            for one, start in zip(each, starts, strict=False)
            for (file, group), selection in one.selections.items()
        },
    )
    return joined, [_sum_reports(levels) for levels in below.values()]


def _sum_reports(reports: Sequence[LevelReport]) -> LevelReport:
    first, *others = reports
    total = replace(first)
    for other in others:
        total.add(other)
    return total


def _drop_metadata(planned: Planned) -> Planned:
    """Drop the metadata of units: the levels that need it are done."""
    row_groups, below = planned
    return replace(row_groups, metadata=_make_row_count_metadata(row_groups.units)), below


def _make_row_count_metadata(units: Units) -> pa.RecordBatch:
    return pa.record_batch({ROW_COUNT.name: pa.array(units.row_count)})


# --- Serialisation --------------------------------------------------------------------------------------------------


def _make_item(listing: FileListing) -> Item:
    names = listing.files.column_names
    of_formats = [name for name in (FILE_FORMAT, "num_records") if name in names and FILE_FORMAT in names]
    files = listing.files.select(["path", "size", "modified_ns", *of_formats, *list_constants(names)])
    table = listing_to_table(replace(listing, files=files))
    return Item.from_table(table, table.num_rows * SMALL_READ)


def listing_to_table(listing: FileListing) -> pa.Table:
    """Return the files of a listing, and what the filter proves for them, as one table."""
    if listing.matched is None:
        return listing.files
    return listing.files.append_column("matched", encode_matches(listing.matched))


def table_to_listing(table: pa.Table, conjuncts: int) -> FileListing:
    """Return the listing of `listing_to_table`, for a filter with this number of conjuncts."""
    if "matched" not in table.column_names:
        return FileListing(table, ())
    matched = decode_matches(table["matched"], conjuncts)
    return FileListing(table.drop_columns(["matched"]), (), matched=matched)


def _encode_plan(planned: Planned) -> Iterator[pa.RecordBatch]:
    row_groups, below = planned
    units = row_groups.units
    metrics = json.dumps([asdict(report) for report in (row_groups.report, *below)])
    yield _make_batch(metrics=pa.array([metrics]))
    yield _make_batch(group_rows=pa.array([list(rows) for rows in row_groups.group_rows], _NUMBERS))
    keys = zip(units.file.tolist(), units.row_group.tolist(), strict=True)
    selections = [row_groups.selections.get(key) for key in keys]
    starts = pa.array([None if each is None else each.starts for each in selections], _NUMBERS)
    ends = pa.array([None if each is None else each.ends for each in selections], _NUMBERS)
    yield _make_batch(
        unit=pa.StructArray.from_arrays(
            [
                *map(pa.array, units.columns),
                encode_matches(row_groups.residual),
                starts,
                ends,
            ],
            fields=list(_UNIT),
        )
    )


def _make_batch(**columns: pa.Array) -> pa.RecordBatch:
    (rows,) = {len(column) for column in columns.values()}
    return pa.record_batch([columns.get(field.name, pa.nulls(rows, field.type)) for field in _SCHEMA], schema=_SCHEMA)


def _decode_plan(batches: Sequence[pa.RecordBatch], conjuncts: int) -> Planned:
    metrics, *others = batches
    report, *below = (
        LevelReport(**{**each, "by_predicate": tuple(ConjunctOutcome(**own) for own in each["by_predicate"])})
        for each in json.loads(metrics.column("metrics")[0].as_py())
    )
    found = pa.Table.from_batches(others, _SCHEMA)
    is_unit = found["unit"].is_valid()
    group_rows: list[list[int]] = found.filter(pc.invert(is_unit))["group_rows"].to_pylist()
    columns = found.filter(is_unit)["unit"].combine_chunks().flatten()
    numbers = [column.to_numpy() for column in columns[:4]]
    units = Units(*numbers)
    residual = decode_matches(columns[4], conjuncts)
    selections = {}
    for index in np.flatnonzero(np.asarray(columns[5].is_valid())).tolist():
        file, group = int(units.file[index]), int(units.row_group[index])
        rows = group_rows[file][group]
        starts, ends = (np.asarray(column[index].values) for column in columns[5:])
        selections[file, group] = RowSelection(starts, ends, rows)
    contents = [None] * len(group_rows)
    return RowGroups(units, group_rows, residual, report, contents, _make_row_count_metadata(units), selections), below


# --- Levels below row groups: Bloom filters, pages, dictionaries ------------------------------------------------------

LEVELS_BELOW = ("bloom", "pages", "dictionary")


def describe_whole_read(threshold: int) -> str:
    """Return the note of a report whose row groups need fewer bytes than the threshold of page pruning.

    >>> describe_whole_read(256 * 1024)
    'read whole: row groups under 256 KiB'
    """
    return f"read whole: row groups under {f'{threshold // 1024} KiB' if threshold >= 1024 else f'{threshold} B'}"


@dataclass(frozen=True)
class PageLevels:
    """Applies the levels below row groups for one scan. It is thread-safe."""

    storage: Storage
    given: Filter
    needed: tuple[Path, ...]
    partition_columns: Collection[str]
    levels: Collection[str]
    names: ColumnMapping | None = None

    def narrow(self, files: pa.Table, row_groups: RowGroups) -> tuple[RowGroups, list[LevelReport]]:
        """Return the remaining parts of row groups, and the metrics of each level."""
        enabled = [level for level in LEVELS_BELOW if level in self.levels]
        units = row_groups.units
        asked = row_groups.residual.any(axis=1) & (units.bytes >= self.storage.tuning.min_bytes_to_prune_pages)
        if FILE_FORMAT in files.column_names:
            asked &= is_parquet(files)[units.file]
        if not enabled:
            return row_groups, []
        if not asked.any():
            if row_groups.residual.any():
                row_groups.report.note = describe_whole_read(self.storage.tuning.min_bytes_to_prune_pages)
            return row_groups, []
        wanted = np.unique(units.file[asked])
        chosen = take_rows(files, wanted)
        paths, sizes, times = (chosen[name].to_pylist() for name in ("path", "size", "modified_ns"))

        def narrow_file(index: int) -> tuple[Remaining, dict[int, int], list[LevelReport]]:
            source = ParquetFile.load(self.storage, paths[index], sizes[index], times[index], self.names)
            own = np.flatnonzero(asked & (units.file == wanted[index]))
            return self._narrow_file(source, row_groups, own)

        narrowed = run_in_threads(narrow_file, range(len(wanted)), self.storage.threads)
        return _merge_row_groups(row_groups, asked, dict(zip(wanted.tolist(), narrowed, strict=True)), enabled)

    def _narrow_file(
        self, source: ParquetFile, row_groups: RowGroups, own: npt.NDArray[np.int64]
    ) -> tuple[Remaining, dict[int, int], list[LevelReport]]:
        schema = source.footer.schema
        names = {
            column.path: found
            for column in self._list_data_columns()
            if (found := schema.find(column.path)) is not None
        }
        paths = [
            found
            for path in self.needed
            if path[0] not in self.partition_columns and (found := schema.find(path)) is not None
        ]
        units, metadata = row_groups.units.take(own), row_groups.metadata
        units_metadata = metadata if len(own) == metadata.num_rows else metadata.take(pa.array(own))
        before = Remaining.from_row_groups(units.row_group.tolist(), units_metadata, row_groups.residual[own])
        sizes = dict(zip(units.row_group.tolist(), units.bytes.tolist(), strict=True))
        with source.open() as opened:
            narrower = RowRangePruner(source, opened, self.given, schema.find_leaves_at(paths), names, sizes)
            after, reports = narrower.narrow(before, self.levels)
            return after, narrower.count_remaining_bytes(after), reports

    def _list_data_columns(self) -> list[Column]:
        return [column for column in self.given.columns if column.path[0] not in self.partition_columns]


def _merge_row_groups(
    row_groups: RowGroups,
    asked: npt.NDArray[np.bool_],
    narrowed: Mapping[int, tuple[Remaining, dict[int, int], list[LevelReport]]],
    levels: Sequence[str],
) -> tuple[RowGroups, list[LevelReport]]:
    """Merge the row groups that bypassed the levels with the remaining parts of the others, in file order."""
    kept = [row_groups.units.take(~asked)]
    residual = [row_groups.residual[~asked]]
    selections: dict[tuple[int, int], RowSelection] = {}
    reports: dict[str, LevelReport] = {}
    for file, (remaining, sizes, own_reports) in narrowed.items():
        groups = remaining.kept_row_groups
        rows = []
        for group in groups:
            selection = remaining.selection(group)
            rows.append(selection.row_count)
            if not selection.is_all:
                selections[file, group] = selection
        columns = ([file] * len(groups), groups, rows, list(sizes.values()))
        kept.append(Units(*(np.array(column, np.int64) for column in columns)))
        of_groups = [remaining.find_residual(group) for group in groups]
        residual.append(np.array(of_groups, bool).reshape(len(groups), row_groups.residual.shape[1]))
        for report in own_reports:
            if report.level in reports:
                reports[report.level].add(report)
            else:
                reports[report.level] = report
    for report in reports.values():
        report.add_bypassed(len(kept[0]), kept[0].total_bytes)
    units = concatenate_units(kept)
    order = np.lexsort((units.row_group, units.file))
    merged = replace(
        row_groups,
        units=units.take(order),
        residual=np.concatenate(residual)[order],
        selections=selections,
    )
    return merged, [reports[level] for level in levels if level in reports and _has_effect(reports[level])]


def _has_effect(report: LevelReport) -> bool:
    """Return whether a level was applied or skipped something: row groups without rows have no pages."""
    return bool(report.by_predicate) or (report.kept, report.bytes_kept) != (report.total, report.bytes_total)
