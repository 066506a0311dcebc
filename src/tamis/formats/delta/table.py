"""A Delta table at one version, as a source of a scan."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.errors import InvalidArgument, VersionNotFound, format_count
from tamis.expr.builder import split_name
from tamis.expr.nodes import Column
from tamis.formats.constants import name_partition
from tamis.formats.delta.log.actions import decode_changes
from tamis.formats.delta.paths import resolve_paths
from tamis.formats.delta.planning.checkpoint_job import (
    DELETES_FUNCTION,
    DeltaFileRows,
    VectorReader,
    count_files,
    find_unread_parts,
    plan_listing_job,
    prune_commits,
    prune_files_in,
)
from tamis.formats.delta.planning.prune_files import Request, prune_file_batches, prune_files, resolve_files
from tamis.formats.delta.schema import DeltaField
from tamis.formats.delta.snapshot import Snapshot
from tamis.formats.file_funnel import (
    LOGICAL_ROWS,
    SKIPPING_NOTES,
    FileRequest,
    PrunedFiles,
    limit_batches,
    limit_files,
)
from tamis.formats.file_rows import DELETION_VECTOR
from tamis.formats.jobs import SPARK, Planning
from tamis.formats.listing_parts import ListingJob
from tamis.formats.source import (
    Commit,
    FileIndex,
    FileListing,
    FilteredFiles,
    IndexSupport,
    to_single_array,
)
from tamis.io.ranges import make_immutable_marker
from tamis.io.storage import Storage
from tamis.parquet.footer.field_names import ColumnMapping, MappedField
from tamis.parquet.footer.leaves import FieldPath, list_flat_paths
from tamis.skipping.metrics import SWITCHED_OFF
from tamis.skipping.predicate import Predicate
from tamis.tuning import Tuning


@dataclass(frozen=True)
class DeltaTable:
    """A Delta table at the version of a snapshot; later commits do not change it."""

    snapshot: Snapshot
    allow_outside: bool = False
    """Whether to read files that are outside of the table's directory."""
    planning: Planning | None = None
    """The engine that prunes checkpoint parts; None: this process."""
    index: FileIndex | None = None
    """An index with more statistics of the files than the log has."""

    @staticmethod
    def open(
        storage: Storage,
        version: int | None = None,
        timestamp: datetime | str | None = None,
        *,
        allow_outside: bool = False,
        planning: Planning | None = None,
    ) -> DeltaTable:
        return DeltaTable(
            Snapshot.load(storage.with_outside_links(allow_outside), version, timestamp), allow_outside, planning
        )

    @property
    def storage(self) -> Storage:
        return self.snapshot.storage

    @property
    def name(self) -> str:
        return self.snapshot.metadata.name or self.storage.root.rstrip("/").rsplit("/", 1)[-1] or self.storage.uri

    @property
    def format(self) -> str:
        return "delta"

    @property
    def schema(self) -> pa.Schema:
        return self.snapshot.metadata.schema

    @property
    def partition_columns(self) -> tuple[str, ...]:
        return self.snapshot.metadata.partition_columns

    @property
    def partition_texts(self) -> tuple[str, ...]:
        return self.partition_columns

    @property
    def version(self) -> int:
        return self.snapshot.version

    @cached_property
    def field_names(self) -> ColumnMapping | None:
        metadata = self.snapshot.metadata
        if metadata.mapping_mode == "none":
            return None
        by_id = metadata.mapping_mode == "id"
        return _make_field_names(metadata.schema_text, by_id, metadata.fields, metadata.partition_columns)

    def file_rows(self) -> DeltaFileRows:
        return DeltaFileRows(self.snapshot, self.name, self.allow_outside)

    @property
    def index_support(self) -> IndexSupport:
        metadata = self.snapshot.metadata
        return IndexSupport(table_id=metadata.id, to_physical_path=metadata.to_physical_path)

    @property
    def has_uniform_files(self) -> bool:
        """Return whether writers guarantee types and names: not of widened columns, nor of columns mapped by id."""
        features = self.snapshot.protocol.reader_features or ()
        is_stable = not any(feature.startswith(_CHANGING_FEATURES) for feature in features)
        return is_stable and (self.field_names is None or not self.field_names.by_id)

    def has_statistics(self, kind: str, column: Column) -> bool:
        """Return whether the table's properties let writers record statistics of a column. JSON cannot hold bytes."""
        if kind != "null_count" and column.type is not None and types.is_bytes(column.type):
            return False
        metadata = self.snapshot.metadata
        named = metadata.configuration.get("delta.dataSkippingStatsColumns")
        if named is not None:
            folded = tuple(part.lower() for part in column.path)
            chosen = [split_name(each.strip().lower()) for each in _STATISTICS_COLUMN.findall(named)]
            return any(folded[: len(path)] == path for path in chosen)
        given = metadata.configuration.get("delta.dataSkippingNumIndexedCols", "")
        first = int(given) if re.fullmatch(r"-1|\d{1,9}", given) else DEFAULT_INDEXED_COLUMNS
        paths = list_flat_paths(field for field in self.schema if field.name not in self.partition_columns)
        return column.path in (paths if first < 0 else paths[:first])

    @property
    def collated_columns(self) -> Collection[FieldPath]:
        return self.snapshot.metadata.collations.keys()

    @cached_property
    def clustering_columns(self) -> tuple[FieldPath, ...]:
        """The columns of liquid clustering, from the domain `delta.clustering`; none if that cannot be read."""
        configuration = self.snapshot.domains.get("delta.clustering")
        try:
            columns = json.loads(configuration)["clusteringColumns"] if isinstance(configuration, str) else ()
            paths = [self.snapshot.metadata.to_logical_path(column) for column in columns]
        except (ValueError, KeyError, TypeError):
            # It only describes the table, so a reader needs nothing of it.
            return ()
        return tuple(path for path in paths if path is not None)

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        """Return the files that may hold a matching row, pruned by partition values and then by statistics."""
        request = Request.of(FileRequest(predicate, frozenset(levels), limit, with_rows), self.snapshot.metadata)
        if self.planning is not None and self.index is None:
            cached = self.planning.find_listing(self, predicate, levels, limit)
            if cached is not None:
                return cached
        return self._make_listing(limit_files(self._choose_files(request), limit), request, levels)

    def list_files_with_statistics(
        self, predicate: Predicate, levels: Collection[str], columns: Sequence[Column]
    ) -> FileListing:
        """Return the files that may hold a matching row, with their statistics of `columns`."""
        asked = FileRequest(predicate, frozenset(levels), with_rows=True, statistics_columns=tuple(columns))
        request = Request.of(asked, self.snapshot.metadata)
        return self._make_listing(prune_files(self.snapshot, request), request, levels)

    def filter_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None
    ) -> Iterator[FilteredFiles]:
        asked = FileRequest(predicate, frozenset(levels), limit, with_skipped=True)
        request = Request.of(asked, self.snapshot.metadata)
        for found in limit_batches(lambda: prune_file_batches(self.snapshot, request), limit):
            listing = FileListing(self._resolve_files(found.files)[0], (), matched=found.matched)
            yield FilteredFiles.of(listing, found.selection, lambda own: self._prune_by_index(own, request, levels))

    def plan_listing(self, predicate: Predicate, levels: Collection[str], min_files: int) -> ListingJob | None:
        """Return the job that lists the files of checkpoint parts; the commits after it are listed here."""
        if self.index is not None or count_files(self.snapshot) <= min_files:
            return None
        request = Request.of(FileRequest(predicate, frozenset(levels)), self.snapshot.metadata)
        commits = prune_commits(self.snapshot, request)
        arguments = {"mark": self.mark, "allow_outside": self.allow_outside}
        job = plan_listing_job(self.snapshot, request, self.name, arguments)
        return replace(job, known=self._make_listing(commits, request, levels))

    def describe_deletes(self) -> tuple[str, Mapping[str, Any]]:
        return DELETES_FUNCTION, {"allow_outside": self.allow_outside}

    needs_keys: ClassVar[bool] = False

    def list_file_rows(self, files: pa.Table) -> FileListing:
        """Return files, as rows of `DeltaFileRows` have them, as a listing without reports."""
        vectors = files["deletion_vector"].cast(DELETION_VECTOR)
        files = files.drop_columns(["deletion_vector"]).append_column("deletion_vector", vectors)
        return FileListing(self._resolve_files(files)[0], (), files[LOGICAL_ROWS].combine_chunks())

    def _make_listing(self, chosen: PrunedFiles, request: Request, levels: Collection[str]) -> FileListing:
        files = chosen.files
        listed, notes = self._resolve_files(files)
        with_rows = request.asked.with_rows
        rows = files[LOGICAL_ROWS].combine_chunks() if with_rows else None
        # A predicate on data columns would have used statistics if they were not switched off.
        is_on = request.by_statistics or not request.data_columns
        notes = [SKIPPING_NOTES[request.skipping] if is_on else SWITCHED_OFF, *notes]
        reports = [chosen.metrics.describe_files(notes, with_rows=with_rows)]
        if self.partition_columns:
            reports.insert(0, chosen.metrics.describe_partitions(enabled=request.by_partitions, with_rows=with_rows))
        listed = listed.drop_columns([name_partition(name) for name in chosen.unreadable])
        listing = FileListing(listed, tuple(reports), rows, chosen.matched, chosen.unreadable)
        return self._prune_by_index(listing, request, levels)

    def _prune_by_index(self, listing: FileListing, request: Request, levels: Collection[str]) -> FileListing:
        if self.index is None or not request.by_statistics:
            return listing
        return self.index.prune_listing(
            listing, request.predicate, levels, key_of=self.snapshot.metadata.to_physical_path
        )

    @property
    def mark(self) -> int:
        """The modification time of all files, which never change."""
        metadata = self.snapshot.metadata
        return make_immutable_marker(f"{metadata.id} {metadata.created_time}")

    def _resolve_files(self, files: pa.Table) -> tuple[pa.Table, list[str]]:
        """Return files of the log as a listing has them, and notes for the report."""
        listed, unsized = resolve_files(self.storage, files, self.mark, allow_outside=self.allow_outside)
        notes = [] if self.snapshot.note is None else [self.snapshot.note]
        if unsized:
            notes.append(f"looked up the size of {format_count(unsized, 'file')}, which the log does not have")
        return listed, notes

    def _choose_files(self, request: Request) -> PrunedFiles:
        engine = None
        if self.planning is not None:
            parts = find_unread_parts(self.snapshot, in_memory=self.planning.mode != SPARK)
            engine = self.planning.choose_engine(self.storage, len(parts), sum(part.size for part in parts))
        if engine is None:
            return prune_files(self.snapshot, request)
        return prune_files_in(engine, self.snapshot, request, self.name)

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """Return the deleted rows of the files with deletion vectors, by position in `files`."""
        return VectorReader(self.allow_outside).read_deleted_rows(storage, files, row_groups)

    def history(self, limit: int | None = None) -> pa.Table:
        return self.snapshot.history(limit)

    @property
    def table_id(self) -> str | None:
        return self.snapshot.metadata.id

    def list_versions_after(self, version: int | None) -> Sequence[int]:
        if version is not None and version > self.version:
            raise VersionNotFound(
                f"{self.name} has no version {version}: its newest is {self.version}, so it was replaced or rolled "
                "back. Start again, at a version that exists"
            )
        return range(0 if version is None else version + 1, self.version + 1)

    def read_commit(self, version: int) -> Commit:
        actions = decode_changes(self.snapshot.read_commits(version, version), ())
        changes = actions.filter(pc.and_(actions["data_change"], pc.not_equal(actions["action"], "cdc")))
        is_add = pc.equal(changes["action"], "add")
        paths = resolve_paths(
            self.storage, to_single_array(changes.filter(is_add)["path"]), allow_outside=self.allow_outside
        )
        return Commit(paths, not pc.all(is_add, min_count=0).as_py())

    def with_tuning(self, tuning: Tuning) -> DeltaTable:
        return replace(self, snapshot=replace(self.snapshot, storage=self.storage.with_tuning(tuning)))

    def refresh(self) -> DeltaTable:
        newest = self.snapshot.refresh()
        return self if newest is self.snapshot else replace(self, snapshot=newest)

    def at(self, version: str | None = None, timestamp: datetime | str | None = None) -> DeltaTable:
        if version is not None and not version.isdecimal():
            raise InvalidArgument(f"the version of a Delta table must be a number, found {version!r}")
        wanted = None if version is None else int(version)
        return replace(self, snapshot=Snapshot.load(self.storage, wanted, timestamp))

    def pin(self) -> Mapping[str, Any]:
        return {"version": self.version, "timestamp": None}

    def is_same_state(self, other: object) -> bool:
        if not isinstance(other, DeltaTable) or self.storage.uri != other.storage.uri:
            return False
        mine, theirs = self.snapshot, other.snapshot
        return (mine.segment, mine.metadata) == (theirs.segment, theirs.metadata)


DEFAULT_INDEXED_COLUMNS = 32
"""Writers record statistics of so many leaf columns, unless a property of the table has another number."""

_STATISTICS_COLUMN = re.compile(r"(?:`(?:[^`]|``)*`|[^,`])+")
"""One of the comma-separated names in `delta.dataSkippingStatsColumns`."""

_CHANGING_FEATURES = ("typeWidening", "variant")
"""Prefixes of the reader features that allow files to store columns in other types than the schema's."""


@lru_cache(maxsize=64)
def _make_field_names(
    schema_text: str, by_id: bool, fields: tuple[DeltaField, ...], partition_columns: tuple[str, ...]
) -> ColumnMapping:
    """Return the field names of a schema: the same object for the same schema, so that caches keyed by it hit."""
    return ColumnMapping(_map_fields(fields, by_id, from_log=partition_columns), by_id)


def _map_fields(
    fields: Sequence[DeltaField], by_id: bool, from_log: Collection[str] = ()
) -> dict[Hashable, MappedField]:
    """Return the names of fields by key. Fields in `from_log` are never read from files, which may have anything under
    their names."""
    return {
        each.field_id if by_id else each.physical_name: MappedField(
            each.name,
            _map_children(each, by_id),
            physical_name=each.physical_name if by_id and each.name not in from_log else None,
        )
        for each in fields
    }


def _map_children(field: DeltaField, by_id: bool) -> dict[Hashable, MappedField]:
    if field.kind == "struct":
        return _map_fields(field.children, by_id)
    # The parts of lists and maps have fixed names: `element`, `key`, `value`.
    return {each.name: MappedField(each.name, _map_children(each, by_id)) for each in field.children}
