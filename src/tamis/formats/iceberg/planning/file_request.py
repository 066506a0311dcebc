"""A scan's request for the files of a snapshot, and the table layout that it needs. Both are serializable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyiceberg.table.metadata import TableMetadata

from tamis.expr.nodes import Column
from tamis.formats.file_funnel import FileRequest
from tamis.formats.iceberg.partitioning.partition_bounds import project_conjuncts
from tamis.formats.iceberg.partitioning.specs import (
    Spec,
    check_filter_name,
    find_field_chain,
    make_specs,
    map_columns_by_id,
    name_former,
)
from tamis.formats.iceberg.schema import arrow_schema
from tamis.parquet.footer.leaves import FieldPath
from tamis.skipping.predicate import Predicate, get_partition_name
from tamis.skipping.rewrite import Conjunct


@dataclass(frozen=True)
class Layout:
    """The columns and the partition specs of a table."""

    schema: Mapping[str, Any]
    specs_json: Sequence[Mapping[str, Any]]
    former: Sequence[Mapping[str, Any]] = ()
    """Dropped columns that are partition sources, each from the newest schema that has it."""

    @staticmethod
    def of(table: TableMetadata, schemas: Sequence[Mapping[str, Any]]) -> Layout:
        """Create the layout of a table; `schemas` are all its schemas, the one that is read first."""
        specs = [
            {
                "spec_id": spec.spec_id,
                "fields": [
                    {
                        "field_id": field.field_id,
                        "source_id": field.source_id,
                        "name": field.name,
                        "transform": str(field.transform),
                    }
                    for field in spec.fields
                ],
            }
            for spec in table.specs().values()
        ]
        sources = {
            field["source_id"]: None for spec in specs for field in spec["fields"] if field["transform"] == "identity"
        }
        dropped = [each for each in sources if find_field_chain(schemas[:1], each) is None]
        former = [chain[-1] for each in dropped if (chain := find_field_chain(schemas[1:], each)) is not None]
        return Layout(schemas[0], specs, former)

    def to_json(self) -> dict[str, Any]:
        return {"schema": dict(self.schema), "specs": list(self.specs_json), "former": list(self.former)}

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> Layout:
        return Layout(given["schema"], given["specs"], given["former"])

    @cached_property
    def arrow(self) -> pa.Schema:
        return arrow_schema(self.schema)

    @cached_property
    def columns(self) -> dict[int, Column]:
        """The columns by field id."""
        return map_columns_by_id(self.schema, self.arrow)

    @cached_property
    def ids(self) -> dict[tuple[str, ...], int]:
        return {column.path: field_id for field_id, column in self.columns.items()}

    @cached_property
    def specs(self) -> dict[int, Spec]:
        dropped = arrow_schema({"fields": self.former})
        former = {
            given["id"]: Column(name_former(given["id"]), type=own.type)
            for given, own in zip(self.former, dropped, strict=True)
        }
        return make_specs(self.specs_json, self.columns, former)

    @cached_property
    def identity_columns(self) -> dict[FieldPath, Column]:
        """The columns, also inside structs, that are identity-partitioned in some spec, by path."""
        return {column.path: column for spec in self.specs.values() for _, column in spec.identity}

    @property
    def absent_columns(self) -> list[Column]:
        """The columns whose values in files that lack them are known: also dropped ones, for equality deletes."""
        dropped = {column.path: column for spec in self.specs.values() for _, column in spec.former_identity}
        return [*self.identity_columns.values(), *dropped.values()]


@dataclass(frozen=True)
class Request:
    """A scan's request for the files of a snapshot, with the layout of the table."""

    layout: Layout
    asked: FileRequest

    def __post_init__(self) -> None:
        for column in self.predicate.partition_texts:
            check_filter_name(get_partition_name(column), self.layout.specs, "the table")

    def to_json(self) -> dict[str, Any]:
        return {"layout": self.layout.to_json(), "asked": self.asked.to_json()}

    @staticmethod
    def from_json(given: Mapping[str, Any]) -> Request:
        return Request(Layout.from_json(given["layout"]), FileRequest.from_json(given["asked"]))

    @property
    def predicate(self) -> Predicate:
        return self.asked.predicate

    @property
    def by_manifests(self) -> bool:
        return "manifests" in self.asked.levels

    @property
    def by_partitions(self) -> bool:
        return "partitions" in self.asked.levels

    @property
    def by_statistics(self) -> bool:
        return "files" in self.asked.levels and bool(self.predicate.columns)

    @cached_property
    def tested(self) -> dict[int, Column]:
        """The columns of the filter that may have statistics, by field id."""
        ids = self.layout.ids
        return {ids[column.path]: column for column in self.predicate.columns if column.path in ids}

    @cached_property
    def statistics_ids(self) -> dict[int, Column]:
        """The columns among `statistics_columns` that may have statistics, by field id."""
        ids = self.layout.ids
        return {ids[column.path]: column for column in self.asked.statistics_columns if column.path in ids}

    @cached_property
    def _conjuncts(self) -> dict[int, tuple[Conjunct, ...]]:
        return {spec_id: project_conjuncts(self.predicate, spec) for spec_id, spec in self.layout.specs.items()}

    def get_conjuncts(self, spec: Spec) -> tuple[Conjunct, ...]:
        """Return the conjuncts of the filter, projected to the partition values of a spec."""
        return self._conjuncts[spec.spec_id]
