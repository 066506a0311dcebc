"""The files of an Iceberg table as rows of a DataFrame: manifests that executors read, and what their tuples say.

A partition value bounds the column that it is made of, so those bounds are joined with the statistics of the file. What
it answers beyond that (buckets, texts that were cut off) is a column of its own, which files of other specs lack: it is
unknown for them, and so no reason to skip.
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
from tamis.tables.iceberg.files import Manifest, joined_entries, pieces_of, read_entries
from tamis.tables.iceberg.manifest_list import DATA, DELETES
from tamis.tables.iceberg.manifest_pruning import spec_of
from tamis.tables.iceberg.partition_bounds import bounds_of_tuples, tightened
from tamis.tables.iceberg.projection import conjuncts_for
from tamis.tables.iceberg.specs import PartitionField, Spec
from tamis.tables.iceberg.statistics import bounds_of_statistics
from tamis.tables.iceberg.table import IcebergTable
from tamis.tables.jobs import Arguments, Item


@dataclass(frozen=True)
class IcebergFiles:
    """What a DataFrame of files needs to know of an Iceberg table."""

    table: IcebergTable

    @cached_property
    def _fields(self) -> tuple[PartitionField, ...]:
        """The partition fields of all specs. Of those whose id another field has as well, nobody knows which is meant:
        tables of version 1 counted them anew for each spec."""
        by_id: dict[int, list[PartitionField]] = {}
        for spec in self.table.layout.specs.values():
            for each in spec.fields:
                by_id.setdefault(each.field_id, []).append(each)
        alike = [own[0] for own in by_id.values() if len({(each.transform, each.source) for each in own}) == 1]
        return tuple(alike)

    def columns(self, own: Sequence[Column]) -> tuple[Column, ...]:
        """The columns of which something is noted: some of the table's, those it is partitioned by, and the values."""
        useful = Spec(-1, self._fields).useful
        more = [each.source for spec in self.table.layout.specs.values() for each in spec.useful if each.source]
        found = {each.path: each for each in (*own, *more, *(field.column for field in useful))}
        return tuple(found.values())

    def conjuncts(self, predicate: Predicate) -> Sequence[Conjunct]:
        return conjuncts_for(predicate, Spec(-1, self._fields))

    def items(self) -> list[Item]:
        pieces = pieces_of(Manifest.all_of(self.table.manifests.of(DATA)))
        return [Item.of_json([astuple(each) for each in own], sum(each.length for each in own)) for own in pieces]

    def arguments(self) -> dict[str, Any]:
        has_deletes = self.table.manifests.of(DELETES).num_rows > 0
        return {"table": self.table.layout.to_json(), "has_deletes": has_deletes}

    def resolved(self, files: pa.Table) -> pa.Table:
        """Files with their paths in the file system."""
        relocation = self.table.opened.relocation
        paths = relocation.resolve_all(files["path"])
        sizes = relocation.sizes(paths, files["size"].combine_chunks())
        return files.set_column(0, "path", paths).set_column(1, "size", sizes)


def manifest_files(arguments: Arguments, item: bytes) -> Iterator[pa.RecordBatch]:
    """The data files of some manifests of one spec."""
    storage, layout, table = arguments.storage, arguments.once(layout_of), arguments.once(_table)
    piece = [Manifest(*each) for each in json.loads(item)]
    place = storage.place(piece[0].path)
    spec = spec_of(table.specs, piece[0].spec_id, f"'{place}'")
    columns = {table.ids[each.path]: each for each in layout.columns if each.path in table.ids}
    found = joined_entries(spec, [read_entries(storage, each, tuple(columns)) for each in piece], place)
    rows = found.files["record_count"].combine_chunks()
    known = {ROW_COUNT.name: rows, **bounds_of_statistics(found.files, columns, rows)}
    known = tightened(known, bounds_of_tuples(spec, found.typed, rows), tuple(columns.values()))
    files = {
        "path": found.files["location"].combine_chunks().cast(pa.string()),
        "size": found.files["size"].combine_chunks(),
        "num_records": rows,
        # Which rows are deleted is decided for all files at once, when they are read.
        "logical_rows": pa.nulls(len(rows), rows.type) if arguments["has_deletes"] else rows,
    }
    yield layout.batch(files, pa.table({}), known)


def _table(arguments: Arguments) -> Layout:
    return Layout.from_json(arguments["table"])
