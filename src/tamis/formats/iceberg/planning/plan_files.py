"""Scan planning: prune manifests by summaries, files by partition values and statistics, then assign deletes.

Delete manifests are pruned like data manifests if all kept data manifests have their spec: a delete applies to files of
its own partition, so it is not needed once all files of that partition are pruned. A delete that applies to all
partitions has an unpartitioned spec, which prunes nothing; and a delete that references a data file applies to it even
if the file has another spec. Nothing else prunes a delete: its rows are deleted whether or not they match the filter.
"""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, TableError, format_count
from tamis.formats.errors import make_corrupt_snapshot_error
from tamis.formats.iceberg.deletes.deletes_index import assign_deletes
from tamis.formats.iceberg.deletes.position_deletes import PATH_ID
from tamis.formats.iceberg.manifests.manifest_list import DATA, DELETES, ManifestList
from tamis.formats.iceberg.manifests.manifest_pruning import get_spec, prune_manifests
from tamis.formats.iceberg.metadata.relocation import Relocation
from tamis.formats.iceberg.planning.file_request import Request
from tamis.formats.iceberg.planning.manifest_files import (
    FORMER_VALUES,
    STATISTICS_PREFIX,
    UNREADABLE,
    FilePruner,
    Manifest,
    group_manifests,
    join_entries,
    make_file_schema,
    read_entries,
)
from tamis.formats.iceberg.planning.plan_metrics import FileMetrics, describe_levels
from tamis.formats.jobs import Arguments, Engine, Item, Job, Planning, storage_to_arguments
from tamis.formats.source import IDENTITY_VALUES, FileListing, to_single_array
from tamis.io.ranges import IMMUTABLE
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.skipping.metrics import LevelReport


@dataclass(frozen=True)
class Plan:
    """The files that may hold a matching row, with their deletes."""

    files: pa.Table
    """The columns are those of `make_file_schema`, and `deletes`."""
    rows: pa.Array
    levels: Sequence[LevelReport]

    @property
    def matched(self) -> npt.NDArray[np.bool_]:
        return np.asarray(to_single_array(self.files["matched"]))


def plan_files(
    manifests: ManifestList, request: Request, relocation: Relocation, planning: Planning | None = None, name: str = ""
) -> Plan:
    """Prune the manifests of a snapshot, then their files, and assign deletes to the kept files.

    `planning` decides whether executors read the manifests; `name` is the table's name in their jobs.
    """
    storage = relocation.storage
    location = f"a manifest of '{storage.uri}'"
    data = prune_manifests(manifests.select_content(DATA), request, location)
    of_deletes = _prune_delete_manifests(manifests.select_content(DELETES), data.table, request, location)
    deletes, wrong_lengths = _read_deletes(storage, Manifest.from_table(of_deletes), request)
    compared = _find_compared_ids(deletes, request)
    groups = group_manifests(Manifest.from_table(data.table))
    size = sum(max(manifest.length, 0) for group in groups for manifest in group)
    engine = (
        None if planning is None or request.statistics_columns else planning.choose_engine(storage, len(groups), size)
    )
    if engine is None:
        pruner = FilePruner(request, compared)
        found = run_in_threads(lambda group: _prune_group(pruner, storage, group), groups, _choose_concurrency(storage))
    else:
        found = prune_on_engine(engine, storage, request, compared, groups, name)
    nothing = make_file_schema(request.layout, compared).empty_table()
    # Manifests without statistics of a column lack its columns here.
    files = pa.concat_tables([nothing, *(table for table, _ in found)], promote_options="default").combine_chunks()
    metrics = sum((each for _, each in found), FileMetrics(wrong_lengths=wrong_lengths))
    # The tables were copied, and are as large.
    del found
    specs = request.layout.specs
    paths = relocation.resolve_all(deletes["location"])
    sizes = relocation.look_up_sizes(paths, to_single_array(deletes["size"]))
    assigned = assign_deletes(
        files,
        deletes.set_column(deletes.column_names.index("size"), "size", sizes),
        paths,
        request.layout.columns,
        {spec_id: spec.is_unpartitioned for spec_id, spec in specs.items()},
    )
    rows = _count_remaining_rows(files, assigned.deleted)
    levels = describe_levels(
        data.metrics,
        metrics,
        has_partitions=any(spec.fields for spec in specs.values()),
        by_manifests=request.by_manifests,
        by_partitions=request.by_partitions,
        by_statistics=request.by_statistics or not request.predicate.columns,
        note=relocation.note,
        rows=(None, None if rows.null_count else pc.sum(rows).as_py() or 0),
    )
    return Plan(files.append_column("deletes", assigned.deletes), rows, levels)


def _prune_group(pruner: FilePruner, storage: Storage, group: Sequence[Manifest]) -> tuple[pa.Table, FileMetrics]:
    found = pruner.prune(storage, group)
    _release_unused_memory()
    return found


def _release_unused_memory() -> None:
    """Return unused memory of Arrow's allocator: decoded manifests are many times larger than the kept files.

    For a million files the peak drops from 1,060 MB to 780 MB, at a hundredth of the time.
    """
    pa.default_memory_pool().release_unused()


def _count_remaining_rows(files: pa.Table, deleted: pa.Array) -> pa.Array:
    """Return the row counts of files after deletes, null if unknown."""
    rows = pc.subtract(to_single_array(files["record_count"]), deleted)
    is_wrong = pc.fill_null(pc.less(rows, 0), False)
    if pc.any(is_wrong, min_count=0).as_py():
        first = is_wrong.index(True).as_py()
        location, count = (files[name][first].as_py() for name in ("location", "record_count"))
        raise make_corrupt_snapshot_error(
            f"the manifests record {format_count(count, 'row')} for '{location}', but {deleted[first].as_py()} deleted "
            "rows: one of the numbers is wrong"
        )
    return rows


def _choose_concurrency(storage: Storage) -> int:
    """Return the number of groups to read concurrently.

    Reading a local table is nearly all decoding, and decoded manifests are large: on two processors, four concurrent
    groups took 60 MB more than two, and longer.
    """
    return (os.cpu_count() or 1) if storage.is_local else storage.threads


def _prune_delete_manifests(deletes: pa.Table, data: pa.Table, request: Request, location: str) -> pa.Table:
    """Return the delete manifests that may apply to a file of the kept data manifests."""
    has_common_spec = np.ones(deletes.num_rows, bool)
    for spec_id in pc.unique(data["spec_id"]).to_pylist():
        has_common_spec &= deletes["spec_id"].to_numpy() == spec_id
    kept = prune_manifests(deletes.filter(pa.array(has_common_spec)), request, location).table
    return pa.concat_tables([kept, deletes.filter(pa.array(~has_common_spec))])


def _read_deletes(storage: Storage, manifests: Sequence[Manifest], request: Request) -> tuple[pa.Table, int]:
    """Read all delete files of manifests with the statistics to assign them, and count the wrong manifest lengths."""
    layout = request.layout
    found = []
    wrong_lengths = 0
    for group in group_manifests(manifests):
        spec = get_spec(layout.specs, group[0].spec_id, f"'{storage.format_path(group[0].path)}'")
        entries = run_in_threads(
            lambda each: read_entries(storage, each, (PATH_ID,), of_compared=True), group, _choose_concurrency(storage)
        )
        wrong_lengths += sum(own.is_length_wrong for own in entries)
        tuples = join_entries(spec, entries, storage.format_path(group[0].path))
        spec_ids = pa.repeat(pa.scalar(spec.spec_id, pa.int32()), tuples.files.num_rows)
        keys = {"spec_id": spec_ids, "partition_key": tuples.keys, "dropped_key": tuples.dropped_keys}
        found.append(reduce(lambda files, key: files.append_column(*key), keys.items(), tuples.files))
    if not found:
        nothing = make_file_schema(layout, ()).empty_table()
        columns = {"equality_ids": pa.list_(pa.int32()), "referenced": types.STRING, "offset": types.LONG}
        for name, kind in columns.items():
            nothing = nothing.append_column(name, pa.array([], kind))
        return nothing.append_column("length", pa.array([], types.LONG)), 0
    return pa.concat_tables(found, promote_options="permissive").combine_chunks(), wrong_lengths


def _find_compared_ids(deletes: pa.Table, request: Request) -> list[int]:
    """Return the field ids of the columns that equality deletes compare."""
    ids = to_single_array(deletes["equality_ids"])
    columns = request.layout.columns
    return [each for each in pc.unique(ids.flatten()).to_pylist() if each in columns]


def make_listing(plan: Plan, relocation: Relocation, note: str | None = None) -> FileListing:
    """Convert a plan to the file listing of a scan; `note` is reported with it."""
    _release_unused_memory()
    files = plan.files
    paths = relocation.resolve_all(files["location"])
    columns: Mapping[str, pa.Array | pa.ChunkedArray] = {
        "path": paths,
        "size": relocation.look_up_sizes(paths, to_single_array(files["size"])),
        "modified_ns": pa.repeat(pa.scalar(IMMUTABLE, types.LONG), len(files)),
        "num_records": files["record_count"],
        **{
            name: files[name]
            for name in (
                "location",
                "file_format",
                "spec_id",
                "sequence_number",
                "deletes",
                "partition_values",
                IDENTITY_VALUES,
                FORMER_VALUES,
            )
            if name in files.column_names
        },
        **{
            name.removeprefix(STATISTICS_PREFIX): files[name]
            for name in files.column_names
            if name.startswith(STATISTICS_PREFIX)
        },
    }
    listed = pa.table(dict(columns))
    notes = [each for each in (note, relocation.describe_outside_files(paths)) if each is not None]
    levels = tuple(_add_notes(level, notes) for level in plan.levels)
    unreadable: dict[str, TableError] = {}
    if UNREADABLE in files.column_names:
        for text in pc.unique(files[UNREADABLE].drop_null()).to_pylist():
            unreadable |= {name: CorruptFile(reason) for name, reason in json.loads(text).items()}
    return FileListing(listed, listed.select([]), levels, plan.rows, plan.matched, unreadable)


def _add_notes(level: LevelReport, notes: Sequence[str]) -> LevelReport:
    """Add notes to the level of manifests."""
    if not notes or level.level != "manifests":
        return level
    return replace(level, note="; ".join([*([level.note] if level.note else []), *notes]))


# --- Reading and pruning manifests on an engine's executors: the task function and its result -------------------------
#
# The task arguments contain all that an executor needs: schema and specs of the table, the filter, and the manifests.

FUNCTION = "tamis.formats.iceberg.planning.plan_files:prune_manifest_group"


def prune_on_engine(
    engine: Engine,
    storage: Storage,
    request: Request,
    compared: Collection[int],
    groups: Sequence[Sequence[Manifest]],
    name: str,
) -> list[tuple[pa.Table, FileMetrics]]:
    """Run `FilePruner.prune` on executors, and return its result for each group of manifests."""
    arguments = {**storage_to_arguments(storage), "request": request.to_json(), "compared": list(compared)}
    what = f"read {format_count(sum(map(len, groups)), 'manifest')} of {name}"
    schema = _make_schema(FilePruner(request, compared))
    job = Job(FUNCTION, arguments, schema, what, storage.counters)
    sizes = [sum(max(each.length, 0) for each in group) for group in groups]
    items = [Item.from_json([astuple(each) for each in group], size) for group, size in zip(groups, sizes, strict=True)]
    batches: list[list[pa.RecordBatch]] = [[] for _ in groups]
    for number, batch in engine.run(job, items):
        batches[number].append(batch)
    return [_read_result(own, schema) for own in batches]


def prune_manifest_group(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the files of some manifests of one spec that may hold a matching row."""
    pruner = arguments.memoise(_make_pruner)
    table, metrics = pruner.prune(arguments.storage, [Manifest(*each) for each in json.loads(item)])
    schema = _make_schema(pruner)
    serialized = pa.array([json.dumps(metrics.to_json())], types.STRING)
    yield pa.record_batch([serialized, pa.nulls(1, schema.field("files").type)], schema=schema)
    for batch in table.to_batches():
        files = pa.StructArray.from_arrays(batch.columns, fields=list(batch.schema))
        yield pa.record_batch([pa.nulls(batch.num_rows, types.STRING), files], schema=schema)


def _make_pruner(arguments: Arguments) -> FilePruner:
    return FilePruner(Request.from_json(arguments["request"]), arguments["compared"])


def _make_schema(pruner: FilePruner) -> pa.Schema:
    return pa.schema([("metrics", types.STRING), ("files", pa.struct(list(pruner.schema)))])


def _read_result(batches: Sequence[pa.RecordBatch], schema: pa.Schema) -> tuple[pa.Table, FileMetrics]:
    """Assemble the result of a group; its first batch contains the metrics."""
    metrics = FileMetrics.from_json(json.loads(batches[0].column("metrics")[0].as_py()))
    own = pa.schema(list(schema.field("files").type))
    files = [pa.record_batch(batch.column("files").flatten(), schema=own) for batch in batches[1:]]
    return pa.Table.from_batches(files, own), metrics
