"""A scan's request for the files of a snapshot, and which of four skipping strategies answers it."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from tamis.expr.nodes import Column
from tamis.expr.wire.partition_filter import resolve_columns
from tamis.formats.delta.generated_columns import derive_partition_predicates
from tamis.formats.delta.planning.file_batches import PARTITION_VALUES, STATISTICS
from tamis.formats.delta.schema import TableMetadata, check_collations
from tamis.formats.source import DATA, LIMIT, choose_skipping
from tamis.skipping.predicate import Predicate
from tamis.skipping.rewrite import Conjunct, rewrite


@dataclass(frozen=True)
class Request:
    """A scan's request for the files of a snapshot."""

    predicate: Predicate
    partition_conjuncts: tuple[Conjunct, ...]
    """The conjuncts of the filter, then those on partition columns that generated columns imply."""
    data_columns: tuple[Column, ...]
    skipping: str
    by_partitions: bool
    by_statistics: bool
    with_rows: bool
    statistics_columns: tuple[Column, ...] = ()
    """Columns whose statistics are returned with the remaining files. They are not sent to other processes."""

    @staticmethod
    def of(
        predicate: Predicate, metadata: TableMetadata, levels: Collection[str], limit: int | None, with_rows: bool
    ) -> Request:
        check_collations(predicate.bound, metadata)
        if predicate.partition_filter is not None:
            resolved = resolve_columns(predicate.partition_filter, metadata.partition_columns, metadata.location)
            predicate = replace(predicate, partition_filter=resolved)
        partition_columns = set(metadata.partition_columns)
        data_columns = tuple(column for column in predicate.columns if column.path[0] not in partition_columns)
        skipping = choose_skipping(predicate, partition_columns, levels, limit)
        conjuncts = (*predicate.conjuncts, *_derive_conjuncts(predicate, metadata)) if partition_columns else ()
        return Request(
            predicate,
            conjuncts,
            data_columns,
            skipping,
            "partitions" in levels,
            skipping == DATA,
            with_rows or skipping in (DATA, LIMIT),
        )

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns to read from the log."""
        with_statistics = STATISTICS if self.with_rows else ()
        return ("path", "size", "deletion_vector", *PARTITION_VALUES, *with_statistics)


def _derive_conjuncts(predicate: Predicate, metadata: TableMetadata) -> list[Conjunct]:
    generated = {name: text for name, text in metadata.generated.items() if name in metadata.partition_columns}
    if not generated or predicate.is_trivial:
        return []
    implied = derive_partition_predicates(
        predicate.expr, generated, metadata.schema, metadata.partition_columns, collated=list(metadata.collations)
    )
    return [conjunct for each in implied for conjunct in rewrite(each)]
