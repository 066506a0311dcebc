"""Single files of few rows in many pages, by several writers, and tables of such files, for the oracles."""

from __future__ import annotations

import itertools
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

import tamis
from builders.answers.same_rows import has_same_rows
from builders.parquet.page_cases import PageCase, draw_page_case, draw_table_case
from builders.parquet.tuning import BY_PAGES
from builders.values.choices import Choices
from builders.values.predicates import OraclePredicate
from oracles.frame import Format, Kept, RowTable, Unit
from tamis.expr.nodes import Expr
from tamis.formats.source import LEVELS
from tamis.io.storage import open_storage
from tamis.parquet.footer.leaves import find_leaf_indices
from tamis.parquet.footer.matching import find_path
from tamis.parquet.footer.statistics import read_row_group_metadata, sum_compressed_sizes
from tamis.parquet.indexes import page_pruning as narrow
from tamis.parquet.indexes.page_pruning import Filter, Remaining, RowRangePruner
from tamis.parquet.indexes.page_units import ColumnPages, PageIndexes
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.scan.scan import Scan
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import Predicate, make_predicate
from tamis.tuning import Tuning

BELOW = ("bloom", "pages", "dictionary")
"""The levels below row groups."""

SUBSETS_BELOW = [subset for size in range(1, len(BELOW) + 1) for subset in itertools.combinations(BELOW, size)]

Bits = np.ndarray[tuple[int], np.dtype[np.bool_]]


# --- Rows -------------------------------------------------------------------------------------------------------------


def vary_reading(choices: Choices, tuning: Tuning) -> Tuning:
    """Return a tuning that reads all columns at once or filter columns first, in small batches or in one."""
    return replace(
        tuning,
        max_batch_rows=choices.one_of([tuning.max_batch_rows, 1, 3, 7]),
        max_selectivity_to_filter_first=choices.one_of([1.0, -1.0]),
        max_share_by_pages=choices.one_of([1.0, 1.0, 0.5]),
        min_bytes_for_second_read=choices.one_of([0, 2**40]),
        min_local_bytes_for_second_read=choices.one_of([0, 2**40]),
    )


def draw_projection(choices: Choices, rows: pa.Table) -> tuple[list[str], pa.Table]:
    """Return some columns, or fields of structs, and the rows with just these."""
    names: list[str] = []
    columns: dict[str, pa.ChunkedArray] = {}
    for name in dict.fromkeys(choices.some_of(rows.column_names, 1, 4)):
        column = rows[name]
        if pa.types.is_struct(column.type) and choices.flag():
            field = choices.one_of(list(column.type))
            values = column.combine_chunks()
            child = pc.struct_field(values, field.name)
            column = pa.chunked_array([pa.StructArray.from_arrays([child], fields=[field], mask=values.is_null())])
            names.append(f"`{name}`.`{field.name}`")
        else:
            names.append(f"`{name}`")
        columns[name] = column
    return names, pa.table(columns)


@dataclass
class PageRows(RowTable):
    """The rows of one or several files in their order, without ids."""

    table: tamis.Table = None  # type: ignore[assignment]
    case: PageCase | None = None
    """The single file. A scan reads random columns and fields of it."""

    @property
    def oracle_rows(self) -> pa.Table:
        return self.rows if self.case is None else self.case.oracle_rows

    def scan(self, where: Expr | None = None, **options: Any) -> Scan:
        return self.table.scan(where, **options)

    def project(self, choices: Choices) -> tuple[list[str] | None, pa.Table]:
        if self.case is None:
            return [f"`{name}`" for name in self.rows.column_names], self.rows
        return draw_projection(choices, self.rows)

    def is_same(self, found: pa.Table, expected: pa.Table) -> bool:
        return has_same_rows(found, expected)

    def identify(self, rows: pa.Table) -> list[Hashable]:
        return list(_format_rows(rows))

    def check_plan(self, scan: Scan) -> None:
        _check_bytes(scan.plan())


def _check_bytes(plan: tamis.ScanPlan) -> None:
    """Check that each level starts with the bytes that the one before kept, and the last keeps what is read."""
    levels = [level for level in plan.report.levels if level.level not in ("partitions", "files")]
    for one, next_one in itertools.pairwise(levels):
        assert one.bytes_kept == next_one.bytes_total, (one, next_one)
    assert levels[-1].bytes_kept == plan.bytes


def _format_rows(rows: pa.Table) -> list[str]:
    columns = [
        [column.slice(index, 1).combine_chunks().to_string(container_window=10**6) for index in range(rows.num_rows)]
        for column in rows.columns
    ]
    return list(map("".join, zip(*columns, strict=True)))


def write_file(choices: Choices, folder: Path, predicates: int) -> PageRows:
    case = draw_page_case(choices, predicates)
    (folder / "f.parquet").write_bytes(case.content)
    return PageRows(case.rows, case.predicates, case.written_by, tamis.open(folder / "f.parquet"), case)


def write_files(choices: Choices, folder: Path, predicates: int) -> PageRows:
    case = draw_table_case(choices, predicates)
    for name, content in case.contents.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_bytes(content)
    return PageRows(case.rows, case.predicates, "", tamis.open(folder))


# --- Units: every row of a file ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Narrowing:
    """One predicate and one file, pruned by any levels."""

    source: ParquetFile
    oracle_predicate: OraclePredicate

    @cached_property
    def before(self) -> Remaining:
        """All row groups, before any pruning."""
        units = read_row_group_metadata(self.source.footer.metadata, self.predicate.columns, names=self._names)
        shape = (units.num_rows, len(self.predicate.conjuncts))
        return Remaining.from_row_groups(range(units.num_rows), units, np.ones(shape, bool))

    @cached_property
    def predicate(self) -> Predicate:
        return make_predicate(self.oracle_predicate.expr, self.source.schema, "the file")

    @property
    def _names(self) -> dict[tuple[str, ...], tuple[str, ...]]:
        found = {column.path: find_path(self.source.schema, column.path) for column in self.predicate.columns}
        return {path: name for path, name in found.items() if name is not None}

    def after(self, levels: Sequence[str]) -> Remaining:
        needed = find_leaf_indices(self.source.schema, list(self._names.values()))
        given_filter = Filter(self.predicate.expr, self.predicate.conjuncts)
        with self.source.open() as file:
            sizes = dict(enumerate(sum_compressed_sizes(self.source.footer.metadata, needed)))
            narrower = RowRangePruner(self.source, file, given_filter, needed, self._names, sizes)
            return narrower.narrow(self.before, levels)[0]

    def rows(self, remaining: Remaining) -> tuple[Bits, Bits]:
        """Return which rows of the file are kept, and which of these are fully matched."""
        starts = np.cumsum([0, *self.before.ends[:-1]])
        kept, fully_matched = (np.zeros(int(self.before.ends.sum()), bool) for _ in range(2))
        for index, group in enumerate(remaining.row_groups.tolist()):
            at = slice(starts[group] + remaining.starts[index], starts[group] + remaining.ends[index])
            assert not kept[at].any(), "stretches overlap"
            kept[at] = True
            fully_matched[at] = not remaining.residual[index].any()
        return kept, fully_matched


@dataclass
class PageUnits:
    """The rows of a file as units. Each is kept, or skipped with the range of rows around it."""

    oracle_rows: pa.Table
    predicates: Sequence[OraclePredicate]
    notes: object
    source: ParquetFile
    spoiled_by: Choices | None = None

    def list_units(self) -> Mapping[Unit, Sequence[int]]:
        return {row: [row] for row in range(self.oracle_rows.num_rows)}

    def prune(self, predicate: OraclePredicate, levels: Sequence[str], tuning: Tuning) -> Kept:
        narrowing = Narrowing(replace(self.source, storage=self.source.storage.with_tuning(tuning)), predicate)
        plainly = narrow.read_page_indexes
        with pytest.MonkeyPatch.context() as patch:
            if self.spoiled_by is not None:
                patch.setattr(narrow, "read_page_indexes", lambda *given: self._spoil(plainly(*given)))
            kept, fully_matched = narrowing.rows(narrowing.after(levels))
        return {row: bool(fully_matched[row]) for row in np.flatnonzero(kept).tolist()}

    def weaken(self, choices: Choices) -> None:
        self.spoiled_by = choices

    def _spoil(self, indexes: PageIndexes) -> PageIndexes:
        assert self.spoiled_by is not None
        columns = {
            key: None if pages is None else replace(pages, metadata=_weaken_pages(self.spoiled_by, pages))
            for key, pages in indexes.columns.items()
        }
        return PageIndexes(indexes.locations, columns)


def _weaken_pages(choices: Choices, pages: ColumnPages) -> dict[str, pa.Array]:
    """Return the metadata of pages with wider, unknown or missing bounds."""
    found = {}
    forgotten = set()
    for name, values in pages.metadata.items():
        kind = choices.number(0, 4)
        if name == ROW_COUNT.name or kind == 0:
            found[name] = values
        elif kind <= 2:
            hidden = pa.array([choices.flag(3) for _ in range(len(values))], pa.bool_())
            found[name] = pc.if_else(hidden, pa.scalar(None, values.type), values)
        elif kind == 3 and name.startswith(("lower_exact:", "upper_exact:")):
            found[name] = pc.if_else(pc.is_valid(values), pa.scalar(False), values)
        elif kind == 3 and name.startswith(("lower:", "upper:")):
            side = name.split(":")[0]
            found[name] = pc.if_else(pc.is_valid(values), _find_widest(values, is_lower=side == "lower"), values)
            # A bound that is no longer the value of some row is not exact.
            forgotten.add(f"{side}_exact:{name.split(':', 1)[1]}")
    return {name: values for name, values in found.items() if name not in forgotten}


def _find_widest(values: pa.Array, *, is_lower: bool) -> pa.Scalar:
    return pc.min_max(values)["min" if is_lower else "max"]


def write_units(choices: Choices, folder: Path, predicates: int) -> PageUnits:
    case = draw_page_case(choices, predicates)
    path = folder / "f.parquet"
    path.write_bytes(case.content)
    storage = open_storage(path)
    source = ParquetFile.load(storage, storage.root, path.stat().st_size, None)
    return PageUnits(case.oracle_rows, case.predicates, case.written_by, source)


def choose_levels(choices: Choices) -> Iterable[Sequence[str]]:
    return (BELOW, choices.one_of(SUBSETS_BELOW))


PAGES = Format(
    "pages",
    write_file,
    tuning=BY_PAGES,
    vary=vary_reading,
    fixed_levels=(LEVELS, ()),
    predicates={"O1": 2, "O2": 1},
)
PAGES_OF_TABLES = Format(
    "pages of several files B2 T11 H6", write_files, one_in=2, fewest=10, tuning=BY_PAGES, vary=vary_reading
)
PAGE_ROWS = Format(
    "rows of pages F7", write_units, tuning=BY_PAGES, unit_levels=choose_levels, weaker_levels=("pages",)
)
