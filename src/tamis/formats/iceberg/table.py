"""An Iceberg table at one snapshot, as the source of a scan."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cached_property
from itertools import takewhile
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc
from pyroaring import BitMap64

from tamis import types
from tamis.errors import VersionNotFound
from tamis.expr.nodes import TRUE, Column
from tamis.formats.constants import add_partitions, read_partitions
from tamis.formats.file_funnel import FileRequest, limit_batches
from tamis.formats.file_rows import KEY
from tamis.formats.iceberg.deletes.deleted_rows import DELETES_FUNCTION, DeleteReader
from tamis.formats.iceberg.manifests.manifest_list import DATA, ManifestList, read_manifest_list
from tamis.formats.iceberg.metadata.open_metadata import OpenedTable
from tamis.formats.iceberg.metadata.table_metadata import Metadata, SelectedSnapshot, choose_snapshot, read_history
from tamis.formats.iceberg.partitioning.partition_keys import partition_field_names, read_partition_fields
from tamis.formats.iceberg.partitioning.specs import Spec, find_filter_sources, list_filter_names
from tamis.formats.iceberg.planning.file_request import Layout, Request
from tamis.formats.iceberg.planning.plan_files import (
    IcebergFileRows,
    make_listing,
    plan_files,
    plan_listing_job,
    prune_file_batches,
)
from tamis.formats.iceberg.schema import arrow_schema, make_field_names
from tamis.formats.jobs import Planning
from tamis.formats.listing_parts import ListingJob
from tamis.formats.source import (
    LEVELS,
    Commit,
    FileIndex,
    FileListing,
    FilesWithDeletedValues,
    FilteredFiles,
    IndexSupport,
    to_single_array,
)
from tamis.io.storage import Storage
from tamis.parquet.footer.field_names import ColumnMapping
from tamis.parquet.footer.leaves import FieldPath, list_flat_paths
from tamis.skipping.predicate import Predicate
from tamis.tuning import Tuning

_KEEPS_ORDER = re.compile(r"identity|year|month|day|hour|truncate\[\d+\]")
"""Transforms of a sort order by which a table is clustered by the column itself."""
METRICS = "write.metadata.metrics."
"""The prefix of the properties that tell writers which metrics to record."""

MAX_INFERRED_METRICS = 100
"""Writers record metrics of so many leaf columns, unless a property of the table names others."""


@dataclass(frozen=True)
class IcebergTable:
    """An Iceberg table at a snapshot. Later commits do not change it."""

    opened: OpenedTable
    chosen: SelectedSnapshot
    planning: Planning | None = None
    """Decides whether executors prune the manifests; None: this process does."""
    index: FileIndex | None = None

    @staticmethod
    def open(
        opened: OpenedTable,
        snapshot_id: int | None = None,
        ref: str | None = None,
        timestamp: datetime | str | None = None,
        *,
        planning: Planning | None = None,
    ) -> IcebergTable:
        return IcebergTable(opened, choose_snapshot(opened.metadata, snapshot_id, ref, timestamp), planning)

    @property
    def metadata(self) -> Metadata:
        return self.opened.metadata

    @property
    def storage(self) -> Storage:
        return self.opened.storage

    @property
    def name(self) -> str:
        return self.opened.name

    @property
    def names_in_catalog(self) -> tuple[str, ...]:
        return self.opened.names_in_catalog

    @property
    def format(self) -> str:
        return "iceberg"

    def file_rows(self) -> IcebergFileRows:
        return IcebergFileRows(self.layout, lambda: self.manifests, self.opened.relocation, self.name)

    @property
    def index_support(self) -> IndexSupport:
        refusal = "is an Iceberg table, whose manifests have the statistics of its files: it needs no index"
        return IndexSupport(refusal, is_useful=False)

    @cached_property
    def schema(self) -> pa.Schema:
        return arrow_schema(self.chosen.schema)

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Empty: files contain all columns, and a listing has the values of those that they lack."""
        return ()

    @property
    def partition_texts(self) -> list[str]:
        return list_filter_names(self.layout.specs)

    def find_text_sources(self, name: str) -> Collection[str] | None:
        return find_filter_sources(name, self.layout.specs)

    @property
    def partition_fields(self) -> tuple[str, ...]:
        """The fields of the current partition spec: see `tamis.formats.iceberg.partitioning.partition_keys`."""
        return partition_field_names(self._specs[0])

    def read_partition_fields(self, files: pa.Table) -> pa.Table:
        return read_partition_fields(files, self._specs)

    @property
    def identity_columns(self) -> Collection[FieldPath]:
        return self.layout.identity_columns

    @cached_property
    def partition_sources(self) -> frozenset[FieldPath]:
        layout = self.layout
        ids = {field["source_id"] for spec in layout.specs_json for field in spec["fields"]}
        return frozenset(layout.columns[each].path for each in ids if each in layout.columns)

    @cached_property
    def clustering_columns(self) -> tuple[FieldPath, ...]:
        """The columns of the default sort order, up to the first field that does not keep the order of its column."""
        fields = takewhile(lambda field: _KEEPS_ORDER.fullmatch(field[1]), self.metadata.sort_fields)
        columns = (self.layout.columns.get(source_id) for source_id, _ in fields)
        return tuple(column.path for column in columns if column is not None)

    @property
    def _specs(self) -> list[Spec]:
        current = self.metadata.table.default_spec_id
        return sorted(self.layout.specs.values(), key=lambda spec: spec.spec_id != current)

    @property
    def version(self) -> int | None:
        """The snapshot id; None if the table has no snapshot."""
        return self.chosen.snapshot_id

    @cached_property
    def field_names(self) -> ColumnMapping:
        return make_field_names(self.chosen.schema, self.metadata.name_mapping)

    @cached_property
    def manifests(self) -> ManifestList:
        return read_manifest_list(self.metadata, self.chosen.snapshot, self.opened.relocation)

    @cached_property
    def layout(self) -> Layout:
        return Layout.of(self.metadata.table, self._schemas)

    def list_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None, *, with_rows: bool = False
    ) -> FileListing:
        """Return the files that may hold a matching row, pruned by manifests, partition values and statistics."""
        if self.planning is not None:
            cached = self.planning.find_listing(self, predicate, levels, limit)
            if cached is not None:
                return cached
        return self._make_listing(FileRequest(predicate, frozenset(levels), limit, with_rows))

    def list_files_with_statistics(
        self, predicate: Predicate, levels: Collection[str], columns: Sequence[Column]
    ) -> FileListing:
        """Return the files that may hold a matching row, with statistics of columns."""
        return self._make_listing(FileRequest(predicate, frozenset(levels), statistics_columns=tuple(columns)))

    def filter_files(
        self, predicate: Predicate, levels: Collection[str], limit: int | None = None
    ) -> Iterator[FilteredFiles]:
        request = Request(self.layout, FileRequest(predicate, frozenset(levels), limit, with_skipped=True))
        relocation = self.opened.relocation
        for found in limit_batches(lambda: prune_file_batches(self.manifests, request, relocation), limit):
            assert found.selection is not None
            yield FilteredFiles(make_listing(found, (), relocation).files, found.selection)

    def _make_listing(self, asked: FileRequest) -> FileListing:
        request = Request(self.layout, asked)
        relocation = self.opened.relocation
        found, levels = plan_files(self.manifests, request, relocation, self.planning, self.name)
        notes = (self.metadata.note, self.field_names.mapping_error)
        listing = make_listing(found, levels, relocation, "; ".join(each for each in notes if each) or None)
        self.storage.check_all_links(listing.files["path"])
        return listing

    def plan_listing(self, predicate: Predicate, levels: Collection[str], min_files: int) -> ListingJob | None:
        """Return the job that lists the files of manifests; None if delete files apply to some of them."""
        request = Request(self.layout, FileRequest(predicate, frozenset(levels)))
        return plan_listing_job(self.manifests, request, self.opened.relocation, self.name, min_files)

    def describe_deletes(self) -> tuple[str, Mapping[str, Any]]:
        arguments = {"schemas": self._schemas, "name_mapping": self.metadata.name_mapping, "name": self.name}
        return DELETES_FUNCTION, arguments

    needs_keys: ClassVar[bool] = True

    def list_file_rows(self, files: pa.Table) -> FileListing | None:
        """Return files as a listing without reports, from the manifests that have them and all delete manifests.

        None if these are all manifests.
        """
        manifests = self.manifests.table
        named = pc.is_in(manifests["path"], pc.unique(files[KEY]).cast(types.STRING))
        kept = manifests.filter(pc.or_(named, pc.not_equal(manifests["content"], DATA)))
        if kept.num_rows == manifests.num_rows and files.num_rows:
            return None
        whole = Request(self.layout, FileRequest(Predicate(TRUE), frozenset(LEVELS)))
        relocation = self.opened.relocation
        listing = make_listing(plan_files(ManifestList(kept), whole, relocation)[0], (), relocation)
        locations = listing.files["location"].combine_chunks()
        found = pc.index_in(files["path"].combine_chunks(), locations)
        if found.null_count or pc.count_distinct(locations).as_py() < len(locations):
            # Two entries of one file cannot be distinguished.
            return None
        listing = listing.take(found.to_numpy())
        # The manifests have partition values in their types, and rows have the texts that a filter compares.
        listing = replace(listing, files=add_partitions(listing.files, read_partitions(files)))
        self.storage.check_all_links(listing.files["path"])
        return listing

    def has_statistics(self, kind: str, column: Column) -> bool:
        """Return whether the table's properties tell writers to record a kind of metrics of a column."""
        properties = self.metadata.table.properties
        default = properties.get(f"{METRICS}default")
        if default is None:
            given = properties.get(f"{METRICS}max-inferred-column-defaults", "")
            most = int(given) if given.isdecimal() else MAX_INFERRED_METRICS
            default = "truncate(16)" if column.path in list_flat_paths(self.schema)[:most] else "none"
        mode = properties.get(f"{METRICS}column.{'.'.join(column.path)}", default).lower()
        return bool(mode != "none" and (kind == "null_count" or mode != "counts"))

    def read_deleted_rows(
        self, storage: Storage, files: pa.Table, row_groups: Sequence[Collection[int]] | None = None
    ) -> Mapping[int, BitMap64]:
        """Return the rows that deletion vectors and delete files delete."""
        return self._deletes.read_deleted_rows(storage, files, row_groups)

    def read_deleted_positions(self, storage: Storage, files: pa.Table) -> Mapping[int, BitMap64]:
        """Return the rows that deletion vectors and position deletes delete."""
        return self._deletes.read_deleted_positions(storage, files)

    def read_deleted_values(self, storage: Storage, files: pa.Table) -> Sequence[FilesWithDeletedValues]:
        """Return the values of equality deletes."""
        return self._deletes.read_deleted_values(storage, files)

    @cached_property
    def _deletes(self) -> DeleteReader:
        return DeleteReader(self._schemas, self.metadata.name_mapping, self.name)

    @property
    def _schemas(self) -> list[Mapping[str, Any]]:
        return [self.chosen.schema, *(schema for _, schema in sorted(self.metadata.schemas.items(), reverse=True))]

    def history(self, limit: int | None = None) -> pa.Table:
        return read_history(self.metadata, self.version, limit)

    @property
    def table_id(self) -> str | None:
        return str(self.metadata.table.table_uuid)

    def list_versions_after(self, version: int | None) -> Sequence[int]:
        found: list[int] = self.history()["snapshot_id"].to_pylist()
        if version is not None and version not in found:
            raise VersionNotFound(
                f"snapshot {version} of {self.name} is not an ancestor of snapshot {self.version}: it expired, or the "
                "table was rolled back. Start again, at a snapshot that exists"
            )
        return found[: None if version is None else found.index(version)][::-1]

    def read_commit(self, version: int) -> Commit:
        history = self.history()
        row = history.slice(history["snapshot_id"].to_pylist().index(version), 1).to_pylist()[0]
        if row["operation"] == "replace":
            return Commit(pa.array([], types.STRING), changes_rows=False)
        added = to_single_array(self.at(str(version)).list_files(Predicate(TRUE), ()).files["path"])
        if row["parent_id"] is not None:
            before = self.at(str(row["parent_id"])).list_files(Predicate(TRUE), ()).files["path"]
            added = added.filter(pc.invert(pc.is_in(added, value_set=to_single_array(before))))
        return Commit(added, changes_rows=row["operation"] != "append")

    def with_tuning(self, tuning: Tuning) -> IcebergTable:
        relocation = replace(self.opened.relocation, storage=self.storage.with_tuning(tuning))
        return replace(self, opened=replace(self.opened, relocation=relocation))

    def refresh(self) -> IcebergTable:
        """Return the table at the newest snapshot of its branch."""
        newest = self.opened.reopen()
        branch = self.chosen.branch
        chosen = choose_snapshot(newest.metadata, ref=branch)
        new, old = newest.metadata, self.metadata
        is_same = chosen.snapshot_id == self.version and (new.table, new.schemas) == (old.table, old.schemas)
        return self if is_same else replace(self, opened=newest, chosen=chosen)

    def at(self, version: str | None = None, timestamp: datetime | str | None = None) -> IcebergTable:
        """Return the table at a snapshot id, a branch, a tag or a timestamp."""
        newest = self.opened.reopen()
        is_id = version is not None and version.isdecimal() and version not in newest.metadata.table.refs
        chosen = choose_snapshot(
            newest.metadata,
            snapshot_id=int(version) if is_id and version is not None else None,
            ref=None if is_id else version,
            timestamp=timestamp,
        )
        return replace(self, opened=newest, chosen=chosen)

    def at_ref(self, ref: str) -> IcebergTable:
        """Return the table at the snapshot of a branch or a tag."""
        newest = self.opened.reopen()
        return replace(self, opened=newest, chosen=choose_snapshot(newest.metadata, ref=ref))

    def pin(self) -> Mapping[str, Any]:
        """Return arguments with the metadata file: it never changes, and the schema of a snapshot may differ."""
        given = self.storage.given
        options = {} if given is None else {"storage_options": given[1]}
        return {"uri": self.metadata.file_location, "format": self.format, **options}

    def is_same_state(self, other: object) -> bool:
        if not isinstance(other, IcebergTable) or self.storage.uri != other.storage.uri:
            return False
        mine, theirs = self.metadata.table, other.metadata.table
        is_same_table = (mine.table_uuid, self.metadata.schemas) == (theirs.table_uuid, other.metadata.schemas)
        return is_same_table and (self.version, self.chosen.schema) == (other.version, other.chosen.schema)
