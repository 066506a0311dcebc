"""A scan's request for the files of a snapshot, and which of four skipping strategies answers it."""

from __future__ import annotations

from dataclasses import dataclass, replace

from tamis.expr.nodes import Column
from tamis.formats.delta.generated_columns import derive_partition_predicates
from tamis.formats.delta.planning.file_batches import PARTITION_VALUES, STATISTICS
from tamis.formats.delta.schema import TableMetadata, check_collations
from tamis.formats.file_funnel import DATA, LIMIT, FileRequest, choose_skipping
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct, rewrite


@dataclass(frozen=True)
class Request:
    """A scan's request for the files of a snapshot, with what follows from the table's columns."""

    asked: FileRequest
    partition_conjuncts: tuple[Conjunct, ...]
    """The conjuncts of the filter, then those on partition columns that generated columns imply."""
    data_columns: tuple[Column, ...]
    skipping: str

    @staticmethod
    def of(asked: FileRequest, metadata: TableMetadata) -> Request:
        predicate = asked.predicate
        check_collations(predicate.bound, metadata)
        partition_columns = set(metadata.partition_columns)
        data_columns = predicate.list_data_columns(partition_columns)
        skipping = choose_skipping(predicate, partition_columns, asked.levels, asked.limit)
        conjuncts = (*predicate.conjuncts, *_derive_conjuncts(predicate, metadata)) if partition_columns else ()
        asked = replace(asked, with_rows=asked.with_rows or skipping in (DATA, LIMIT))
        return Request(asked, conjuncts, data_columns, skipping)

    @property
    def predicate(self) -> Predicate:
        return self.asked.predicate

    @property
    def by_partitions(self) -> bool:
        return "partitions" in self.asked.levels

    @property
    def by_statistics(self) -> bool:
        return self.skipping == DATA

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read from the log."""
        with_statistics = STATISTICS if self.asked.with_rows else ()
        return ("path", "size", "deletion_vector", *PARTITION_VALUES, *with_statistics)


def _derive_conjuncts(predicate: Predicate, metadata: TableMetadata) -> list[Conjunct]:
    generated = {name: text for name, text in metadata.generated.items() if name in metadata.partition_columns}
    if not generated or predicate.is_trivial:
        return []
    implied = derive_partition_predicates(
        predicate.expr, generated, metadata.schema, metadata.partition_columns, collated=list(metadata.collations)
    )
    return [conjunct for each in implied for conjunct in rewrite(each)]
