"""Row group skipping in checkpoints: the Parquet statistics of a row group may rule out all files that it lists.

Some checkpoints also have typed partition values and statistics of files (`partitionValues_parsed`, `stats_parsed`),
and Parquet has min/max bounds of these columns for each row group. They are reliable only for:

- Partition values that are integers, dates or strings, where every file of the row group has one that is not NULL.
  Timestamps are not reliable, because the checkpoint's writer may have parsed them in another time zone.
- Statistics of integers and dates, where every file of the row group has them. Statistics of other types are rounded,
  truncated, or ignore NaN.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tamis.expr.nodes import Column, find_columns
from tamis.formats.delta.schema import TableMetadata
from tamis.parquet.footer.footer import Footer
from tamis.parquet.footer.leaves import FieldPath
from tamis.parquet.footer.statistics import read_row_group_metadata
from tamis.skipping.handler import ExpressionHandler
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.predicate import is_partition_text
from tamis.skipping.prune import prune
from tamis.skipping.rewrite import Conjunct
from tamis.types import is_text

_PARTITIONS = ("add", "partitionValues_parsed")
_MIN_VALUES = ("add", "stats_parsed", "minValues")
_MAX_VALUES = ("add", "stats_parsed", "maxValues")


class RowGroupSkipper:
    """Decides which row groups of one checkpoint part to read, and records the skipped ones."""

    def __init__(
        self,
        metadata: TableMetadata,
        conjuncts: Sequence[Conjunct],
        handler: ExpressionHandler,
        *,
        by_partitions: bool,
        by_statistics: bool,
    ) -> None:
        self._metadata = metadata
        self._conjuncts = conjuncts
        self._handler = handler
        self._by_partitions = by_partitions
        self._by_statistics = by_statistics
        self._columns = list(dict.fromkeys(column for each in conjuncts for column in find_columns(each.predicate)))
        self._keeps: npt.NDArray[np.bool_] | None = None
        self._skipped_by: tuple[npt.NDArray[np.bool_], ...] = ()
        self.skipped: set[int] = set()

    def keeps(self, footer: Footer, row_group: int) -> bool:
        """Whether a row group may hold a file that the filter keeps."""
        if self._keeps is None:
            self._prune(footer)
        assert self._keeps is not None
        if not self._keeps[row_group]:
            self.skipped.add(row_group)
        return bool(self._keeps[row_group])

    def list_skipped_by_conjunct(self) -> list[tuple[str, set[int]]]:
        """Return the text of each conjunct with the skipped row groups that are attributed to it."""
        return [
            (conjunct.text, self.skipped & set(np.flatnonzero(groups).tolist()))
            for conjunct, groups in zip(self._conjuncts, self._skipped_by, strict=True)
        ]

    def _prune(self, footer: Footer) -> None:
        groups = footer.metadata.num_row_groups
        bounds = self._collect_bounds(footer)
        if not bounds:
            self._keeps = np.ones(groups, bool)
            return
        pruned = prune(pa.record_batch(bounds), self._conjuncts, handler=self._handler, with_matches=False)
        self._skipped_by = tuple(np.asarray(each) for each in pruned.skipped_by)
        self._keeps = np.asarray(pruned.selection)

    def _collect_bounds(self, footer: Footer) -> dict[str, pa.Array]:
        """Return bounds of columns in all row groups, without row counts: rows of a checkpoint are actions, not rows of
        the table."""
        found: dict[str, pa.Array] = {}
        for column in self._columns:
            if column.type is None or is_partition_text(column.path[0]):
                continue
            physical = self._metadata.to_physical_path(column.path)
            if column.path[0] in self._metadata.partition_columns:
                path = (*_PARTITIONS, *physical)
                is_safe = is_text(column.type) or _is_integer_or_date(column.type)
                if self._by_partitions and is_safe and _have_all_files(footer, path):
                    found |= _read_bounds(footer, column, path, ("lower", "upper"))
            elif self._by_statistics and _is_integer_or_date(column.type):
                for path, kind in (((*_MIN_VALUES, *physical), "lower"), ((*_MAX_VALUES, *physical), "upper")):
                    if _have_all_files(footer, path):
                        found |= _read_bounds(footer, column, path, (kind,))
        return found


def _is_integer_or_date(data_type: pa.DataType) -> bool:
    return bool(pa.types.is_integer(data_type) or pa.types.is_date(data_type))


def _read_bounds(footer: Footer, column: Column, path: FieldPath, kinds: Iterable[str]) -> dict[str, pa.Array]:
    if path not in footer.schema.leaves:
        return {}
    units = read_row_group_metadata(footer.metadata, [column], names={column.path: path})
    names = [metadata_name(kind, column.path) for kind in kinds]
    return {name: units.column(name) for name in names if name in units.schema.names and name != ROW_COUNT.name}


def _have_all_files(footer: Footer, path: FieldPath) -> bool:
    """Whether a column is NULL only in rows without an `add` action."""
    nulls, others = _read_null_counts(footer, path), _read_null_counts(footer, ("add", "path"))
    return nulls is not None and others is not None and None not in nulls and nulls == others


def _read_null_counts(footer: Footer, path: FieldPath) -> list[int | None] | None:
    leaf = footer.schema.leaves.get(path)
    if leaf is None:
        return None
    found = []
    for group in range(footer.metadata.num_row_groups):
        statistics = footer.metadata.row_group(group).column(leaf.index).statistics
        has_count = statistics is not None and statistics.has_null_count
        found.append(statistics.null_count if has_count else None)
    return found
