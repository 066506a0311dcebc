"""The files of a snapshot with their statistics and partition values: executors read the manifests.

A partition value bounds its source column, so these bounds are combined with the statistics of the file. Further
information in it (buckets, truncated strings) becomes a column of its own. Files of other specs lack this column:
it is unknown there, and skips nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property

import pyarrow as pa

from tamis.errors import format_count
from tamis.expr.nodes import Column
from tamis.formats.file_rows import FileRowsJob, FilesWithStatistics, read_columns
from tamis.formats.iceberg.manifests.manifest_list import DATA, DELETES, ManifestList
from tamis.formats.iceberg.manifests.manifest_pruning import get_spec
from tamis.formats.iceberg.metadata.relocation import Relocation
from tamis.formats.iceberg.partitioning.partition_bounds import (
    compute_partition_bounds,
    project_conjuncts,
    tighten_bounds,
)
from tamis.formats.iceberg.partitioning.specs import PartitionField, Spec
from tamis.formats.iceberg.planning.file_request import Layout
from tamis.formats.iceberg.planning.manifest_files import (
    Manifest,
    compute_statistics_bounds,
    group_manifests,
    join_entries,
    read_entries,
)
from tamis.formats.jobs import Arguments, Item
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct

FUNCTION = "tamis.formats.iceberg.planning.file_rows:read_manifest_files"


@dataclass(frozen=True)
class IcebergFileRows:
    """Reads the files of a snapshot with their statistics."""

    layout: Layout
    read_manifests: Callable[[], ManifestList]
    """Returns the manifest list, which is read on first use."""
    relocation: Relocation
    name: str

    @cached_property
    def _fields(self) -> tuple[PartitionField, ...]:
        """The partition fields of all specs, without those that share their id with a different field.

        Tables of version 1 numbered the fields of each spec from the start, so such ids are ambiguous.
        """
        by_id: dict[int, list[PartitionField]] = {}
        for spec in self.layout.specs.values():
            for each in spec.fields:
                by_id.setdefault(each.field_id, []).append(each)
        unambiguous = [own[0] for own in by_id.values() if len({(each.transform, each.source) for each in own}) == 1]
        return tuple(unambiguous)

    def list_columns(self, columns: Sequence[Column]) -> tuple[Column, ...]:
        """Return the given columns, the source columns of partitions, and partition values."""
        useful = Spec(-1, self._fields).prunable_fields
        more = [each.source for spec in self.layout.specs.values() for each in spec.prunable_fields if each.source]
        found = {each.path: each for each in (*columns, *more, *(field.column for field in useful))}
        return tuple(found.values())

    def plan(self, columns: Sequence[Column]) -> FileRowsJob:
        """Return the job that reads the manifests of data files."""
        manifests = self.read_manifests()
        groups = group_manifests(Manifest.from_table(manifests.select_content(DATA)))
        has_deletes = manifests.select_content(DELETES).num_rows > 0
        return FileRowsJob(
            FUNCTION,
            {"table": self.layout.to_json(), "has_deletes": has_deletes},
            [Item.from_json([astuple(each) for each in own], sum(each.length for each in own)) for own in groups],
            f"read the manifests of {self.name} in {format_count(len(groups), 'part')}",
        )

    def split_conjuncts(self, predicate: Predicate) -> tuple[Sequence[Conjunct], Sequence[Conjunct]]:
        """Return every conjunct as one that prunes by statistics: here partition values are ordinary metadata
        columns."""
        return (), project_conjuncts(predicate, Spec(-1, self._fields))

    def resolve_paths(self, files: pa.Table) -> pa.Table:
        paths = self.relocation.resolve_all(files["path"])
        sizes = self.relocation.look_up_sizes(paths, files["size"].combine_chunks())
        return files.set_column(0, "path", paths).set_column(1, "size", sizes)


def read_manifest_files(arguments: Arguments, item: bytes) -> Iterator[FilesWithStatistics]:
    """Yield the data files of some manifests of one spec."""
    storage, table = arguments.storage, arguments.memoise(_parse_layout)
    manifests = [Manifest(*each) for each in json.loads(item)]
    location = storage.format_path(manifests[0].path)
    spec = get_spec(table.specs, manifests[0].spec_id, f"'{location}'")
    columns = {table.ids[each.path]: each for each in arguments.memoise(read_columns) if each.path in table.ids}
    found = join_entries(spec, [read_entries(storage, each, tuple(columns)) for each in manifests], location)
    rows = found.files["record_count"].combine_chunks()
    known = {ROW_COUNT.name: rows, **compute_statistics_bounds(found.files, columns, rows)}
    known = tighten_bounds(known, compute_partition_bounds(spec, found.typed, rows), tuple(columns.values()))
    files = {
        "path": found.files["location"].combine_chunks().cast(pa.string()),
        "size": found.files["size"].combine_chunks(),
        "num_records": rows,
        # Deletes are matched to files later, when these are read.
        "logical_rows": pa.nulls(len(rows), rows.type) if arguments["has_deletes"] else rows,
    }
    yield FilesWithStatistics(files, known)


def _parse_layout(arguments: Arguments) -> Layout:
    return Layout.from_json(arguments["table"])
