"""The plan of a scan: manifests by their summaries, files by partition values and statistics, then their deletes.

Delete manifests are pruned like those of data where all files that are left have their spec: a delete is for files of
its own partition, so that where no file of a partition is left no delete of it is needed. One that is for the files of
all partitions has a spec that says nothing of any; and one that names its data file is for that one, also where the
file has another spec. Nothing else rules out a delete: whether its rows could match the filter does not matter, they
are gone.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis import types
from tamis.errors import CorruptFile, TableError, counted
from tamis.io.ranges import NEVER_CHANGES
from tamis.io.storage import Storage
from tamis.io.threads import run_in_threads
from tamis.skipping.account import LevelReport
from tamis.tables.arrays import one_array
from tamis.tables.iceberg.account import Account, level_reports
from tamis.tables.iceberg.deletes_index import PATH_ID, assign_deletes
from tamis.tables.iceberg.file_request import Request
from tamis.tables.iceberg.files import (
    DESCRIBED,
    FORMER_VALUES,
    UNREADABLE,
    FilePruner,
    Manifest,
    chosen_schema,
    joined_entries,
    pieces_of,
    read_entries,
)
from tamis.tables.iceberg.manifest_job import prune_in
from tamis.tables.iceberg.manifest_list import DATA, DELETES, ManifestList
from tamis.tables.iceberg.manifest_pruning import prune_manifests, spec_of
from tamis.tables.iceberg.relocation import Relocation
from tamis.tables.planning import Planning
from tamis.tables.source import IDENTITY_VALUES, FileListing


@dataclass(frozen=True)
class Plan:
    """The files that may hold a matching row, with their deletes."""

    files: pa.Table
    """What `chosen_schema` says, `deletes` besides."""
    rows: pa.Array
    levels: Sequence[LevelReport]

    @property
    def matched(self) -> npt.NDArray[np.bool_]:
        return np.asarray(one_array(self.files["matched"]))


def plan_files(
    manifests: ManifestList, request: Request, relocation: Relocation, planning: Planning | None = None, name: str = ""
) -> Plan:
    """Prune the manifests of a snapshot, then their files, and assign deletes to those that are left.

    Manifests are read where `planning` says; `name` is what an engine calls the table.
    """
    storage = relocation.storage
    place = f"a manifest of '{storage.uri}'"
    data = prune_manifests(manifests.of(DATA), request, place)
    of_deletes = _delete_manifests(manifests.of(DELETES), data.table, request, place)
    deletes, wrong_lengths = _read_deletes(storage, Manifest.all_of(of_deletes), request)
    compared = _compared(deletes, request)
    pieces = pieces_of(Manifest.all_of(data.table))
    size = sum(max(manifest.length, 0) for piece in pieces for manifest in piece)
    engine = None if planning is None or request.described else planning.engine_for(storage, len(pieces), size)
    if engine is None:
        pruner = FilePruner(request, compared)
        found = run_in_threads(lambda piece: _pruned(pruner, storage, piece), pieces, _at_once(storage))
    else:
        found = prune_in(engine, storage, request, compared, pieces, name)
    nothing = chosen_schema(request.layout, compared).empty_table()
    # Of manifests without statistics of a column there is nothing to come along.
    files = pa.concat_tables([nothing, *(table for table, _ in found)], promote_options="default").combine_chunks()
    account = sum((each for _, each in found), Account(wrong_lengths=wrong_lengths))
    # They were copied, and are as large.
    del found
    specs = request.layout.specs
    paths = relocation.resolve_all(deletes["location"])
    sizes = relocation.sizes(paths, one_array(deletes["size"]))
    assigned = assign_deletes(
        files,
        deletes.set_column(deletes.column_names.index("size"), "size", sizes),
        paths,
        request.layout.columns,
        {spec_id: spec.is_unpartitioned for spec_id, spec in specs.items()},
    )
    rows = _rows_left(files, assigned.deleted)
    levels = level_reports(
        data.account,
        account,
        has_partitions=any(spec.fields for spec in specs.values()),
        by_manifests=request.by_manifests,
        by_partitions=request.by_partitions,
        by_statistics=request.by_statistics or not request.predicate.columns,
        note=relocation.note,
        rows=(None, None if rows.null_count else pc.sum(rows).as_py() or 0),
    )
    return Plan(files.append_column("deletes", assigned.deletes), rows, levels)


def _pruned(pruner: FilePruner, storage: Storage, piece: Sequence[Manifest]) -> tuple[pa.Table, Account]:
    found = pruner.prune(storage, piece)
    _release_unused_memory()
    return found


def _release_unused_memory() -> None:
    """Give back what Arrow's allocator holds: what was decoded is many times what is left of it.

    Of a million files the peak is 780 MB instead of 1,060 MB, for a hundredth of the time.
    """
    pa.default_memory_pool().release_unused()


def _rows_left(files: pa.Table, deleted: pa.Array) -> pa.Array:
    """How many rows files have after deletes, null where nobody knows."""
    rows = pc.subtract(one_array(files["record_count"]), deleted)
    is_wrong = pc.fill_null(pc.less(rows, 0), False)
    if pc.any(is_wrong, min_count=0).as_py():
        first = is_wrong.index(True).as_py()
        location, count = (files[name][first].as_py() for name in ("location", "record_count"))
        raise CorruptFile(
            f"the manifests say that '{location}' has {counted(count, 'row')}, of which {deleted[first].as_py()} are "
            "deleted: one of the numbers is wrong"
        )
    return rows


def _at_once(storage: Storage) -> int:
    """How many pieces are read at the same time. Of a local table nearly all of it is decoding, and what was decoded is
    large: on two processors four at once took 60 MB more than two, and longer."""
    return (os.cpu_count() or 1) if storage.is_local else storage.threads


def _delete_manifests(deletes: pa.Table, data: pa.Table, request: Request, place: str) -> pa.Table:
    """The delete manifests that may be for a file of the data manifests that are left."""
    is_of_all = np.ones(deletes.num_rows, bool)
    for spec_id in pc.unique(data["spec_id"]).to_pylist():
        is_of_all &= deletes["spec_id"].to_numpy() == spec_id
    kept = prune_manifests(deletes.filter(pa.array(is_of_all)), request, place).table
    return pa.concat_tables([kept, deletes.filter(pa.array(~is_of_all))])


def _read_deletes(storage: Storage, manifests: Sequence[Manifest], request: Request) -> tuple[pa.Table, int]:
    """All delete files of manifests, with statistics that assign them; and how many manifests' lengths are wrong."""
    layout = request.layout
    found = []
    wrong_lengths = 0
    for piece in pieces_of(manifests):
        spec = spec_of(layout.specs, piece[0].spec_id, f"'{storage.place(piece[0].path)}'")
        entries = run_in_threads(
            lambda each: read_entries(storage, each, (PATH_ID,), of_compared=True), piece, _at_once(storage)
        )
        wrong_lengths += sum(own.is_length_wrong for own in entries)
        tuples = joined_entries(spec, entries, storage.place(piece[0].path))
        spec_ids = pa.repeat(pa.scalar(spec.spec_id, pa.int32()), tuples.files.num_rows)
        keys = {"spec_id": spec_ids, "partition_key": tuples.keys, "gone_key": tuples.gone_keys}
        found.append(reduce(lambda files, key: files.append_column(*key), keys.items(), tuples.files))
    if not found:
        nothing = chosen_schema(layout, ()).empty_table()
        columns = {"equality_ids": pa.list_(pa.int32()), "referenced": types.STRING, "offset": types.LONG}
        for name, kind in columns.items():
            nothing = nothing.append_column(name, pa.array([], kind))
        return nothing.append_column("length", pa.array([], types.LONG)), 0
    return pa.concat_tables(found, promote_options="permissive").combine_chunks(), wrong_lengths


def _compared(deletes: pa.Table, request: Request) -> list[int]:
    """The ids of the columns that equality deletes compare."""
    ids = one_array(deletes["equality_ids"])
    columns = request.layout.columns
    return [each for each in pc.unique(ids.flatten()).to_pylist() if each in columns]


def listing_of(plan: Plan, relocation: Relocation, note: str | None = None) -> FileListing:
    """A plan as a scan takes it; `note` is what its report tells of the metadata."""
    _release_unused_memory()
    files = plan.files
    paths = relocation.resolve_all(files["location"])
    columns: Mapping[str, pa.Array | pa.ChunkedArray] = {
        "path": paths,
        "size": relocation.sizes(paths, one_array(files["size"])),
        "modified_ns": pa.repeat(pa.scalar(NEVER_CHANGES, types.LONG), len(files)),
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
        **{name.removeprefix(DESCRIBED): files[name] for name in files.column_names if name.startswith(DESCRIBED)},
    }
    listed = pa.table(dict(columns))
    notes = [each for each in (note, relocation.outside_note(paths)) if each is not None]
    levels = tuple(_with_notes(level, notes) for level in plan.levels)
    unreadable: dict[str, TableError] = {}
    if UNREADABLE in files.column_names:
        for text in pc.unique(files[UNREADABLE].drop_null()).to_pylist():
            unreadable |= {name: CorruptFile(reason) for name, reason in json.loads(text).items()}
    return FileListing(listed, listed.select([]), levels, plan.rows, plan.matched, unreadable)


def _with_notes(level: LevelReport, notes: Sequence[str]) -> LevelReport:
    """The level of manifests with more notes."""
    if not notes or level.level != "manifests":
        return level
    return replace(level, note="; ".join([*([level.note] if level.note else []), *notes]))


def enough(rows: pa.Array, limit: int) -> npt.NDArray[np.int64]:
    """The files that together hold so many rows, those of which the number of rows is known first."""
    is_known = np.asarray(rows.is_valid())
    known = np.flatnonzero(is_known)
    counts = np.asarray(rows.drop_null(), np.int64)
    before = np.cumsum(counts) - counts
    if int(counts.sum()) >= limit:
        return known[before < limit]
    return np.concatenate([known, np.flatnonzero(~is_known)])
