"""The files of an Iceberg table as rows of a DataFrame: executors read manifests, with statistics and partition tuples.

A partition value bounds its source column, so these bounds are combined with the statistics of the file. Further
information in it (buckets, truncated strings) becomes a column of its own. Files of other specs lack this column: it is
unknown there, and skips nothing.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from tamis.expr.nodes import Column
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct
from tamis.spark.file_rows import layout_of
from tamis.tables.iceberg.file_request import Layout
from tamis.tables.iceberg.files import Manifest, group_manifests, join_entries, read_entries
from tamis.tables.iceberg.manifest_list import DATA, DELETES
from tamis.tables.iceberg.manifest_pruning import get_spec
from tamis.tables.iceberg.partition_bounds import compute_partition_bounds, tighten_bounds
from tamis.tables.iceberg.projection import project_conjuncts
from tamis.tables.iceberg.specs import PartitionField, Spec
from tamis.tables.iceberg.statistics import compute_statistics_bounds
from tamis.tables.iceberg.table import IcebergTable
from tamis.tables.jobs import Arguments, Item


@dataclass(frozen=True)
class IcebergFiles:
    """The files of an Iceberg table, as a `FilesDataFrame` needs them."""

    table: IcebergTable

    @cached_property
    def _fields(self) -> tuple[PartitionField, ...]:
        """The partition fields of all specs, without those that share their id with a different field.

        Tables of version 1 numbered the fields of each spec from the start, so such ids are ambiguous.
        """
        by_id: dict[int, list[PartitionField]] = {}
        for spec in self.table.layout.specs.values():
            for each in spec.fields:
                by_id.setdefault(each.field_id, []).append(each)
        unambiguous = [own[0] for own in by_id.values() if len({(each.transform, each.source) for each in own}) == 1]
        return tuple(unambiguous)

    def columns(self, own: Sequence[Column]) -> tuple[Column, ...]:
        """Return the columns with metadata: the given ones, the source columns of partitions, and partition values."""
        useful = Spec(-1, self._fields).prunable_fields
        more = [
            each.source for spec in self.table.layout.specs.values() for each in spec.prunable_fields if each.source
        ]
        found = {each.path: each for each in (*own, *more, *(field.column for field in useful))}
        return tuple(found.values())

    def conjuncts(self, predicate: Predicate) -> Sequence[Conjunct]:
        return project_conjuncts(predicate, Spec(-1, self._fields))

    def items(self) -> list[Item]:
        groups = group_manifests(Manifest.from_table(self.table.manifests.select_content(DATA)))
        return [Item.from_json([astuple(each) for each in own], sum(each.length for each in own)) for own in groups]

    def arguments(self) -> dict[str, Any]:
        has_deletes = self.table.manifests.select_content(DELETES).num_rows > 0
        return {"table": self.table.layout.to_json(), "has_deletes": has_deletes}

    def resolved(self, files: pa.Table) -> pa.Table:
        """Return files with their paths resolved in the file system."""
        relocation = self.table.opened.relocation
        paths = relocation.resolve_all(files["path"])
        sizes = relocation.look_up_sizes(paths, files["size"].combine_chunks())
        return files.set_column(0, "path", paths).set_column(1, "size", sizes)


def manifest_files(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """Yield the data files of some manifests of one spec. It is the function of a job."""
    storage, layout, table = arguments.storage, arguments.memoise(layout_of), arguments.memoise(_parse_layout)
    manifests = [Manifest(*each) for each in json.loads(item)]
    location = storage.place(manifests[0].path)
    spec = get_spec(table.specs, manifests[0].spec_id, f"'{location}'")
    columns = {table.ids[each.path]: each for each in layout.columns if each.path in table.ids}
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
    yield layout.batch(files, pa.table({}), known)


def _parse_layout(arguments: Arguments) -> Layout:
    return Layout.from_json(arguments["table"])
