"""Pruning and reading by pages against the judge: O1 to O6 over random files of few rows in many pages."""

from __future__ import annotations

import itertools
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tamis
from builders.answers.judge import truths
from builders.answers.same_rows import same_rows
from builders.parquet.by_pages import read_by_pages
from builders.parquet.page_cases import PageCase, TableCase, random_page_case, random_table_case
from builders.values.choices import Choices
from builders.values.predicates import Said, is_unknown, negated
from tamis.expr.nodes import not_
from tamis.formats.source import LEVELS
from tamis.io.storage import open_storage
from tamis.parquet import Pruner
from tamis.parquet.footer.leaves import find_leaf_indices
from tamis.parquet.footer.matching import find_path
from tamis.parquet.footer.statistics import read_row_group_metadata, sum_compressed_sizes
from tamis.parquet.indexes import page_pruning as narrow
from tamis.parquet.indexes.page_pruning import Filter, Remaining, RowRangePruner
from tamis.parquet.indexes.page_units import ColumnPages, PageIndexes
from tamis.parquet.reading import batch_sizes as batches
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.scan.reading import task_reader as paged
from tamis.scan.reading import task_reader as read
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.predicate import make_predicate

BELOW = ("bloom", "pages", "dictionary")
SUBSETS = [subset for size in range(len(LEVELS) + 1) for subset in itertools.combinations(LEVELS, size)]
SUBSETS_BELOW = [subset for size in range(1, len(BELOW) + 1) for subset in itertools.combinations(BELOW, size)]

Bits = np.ndarray[tuple[int], np.dtype[np.bool_]]


@pytest.fixture(autouse=True, scope="module")
def _by_pages() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        read_by_pages(patch)
        yield


@st.composite
def page_cases(draw: st.DrawFn, predicates: int = 2) -> PageCase:
    return random_page_case(Choices(draw), predicates)


@contextmanager
def written(case: PageCase) -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "f.parquet"
        path.write_bytes(case.content)
        yield path


@contextmanager
def some_way_of_reading(choices: Choices) -> Iterator[None]:
    """All columns at once or those of the filter first, in pieces of a few rows or as a whole."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "MAX_BATCH_ROWS", choices.one_of([batches.MAX_BATCH_ROWS, 1, 3, 7]))
        patch.setattr(read, "MOST_TO_FILTER_FIRST", choices.one_of([1.0, -1.0]))
        patch.setattr(read, "MOST_BY_PAGES", choices.one_of([1.0, 1.0, 0.5]))
        for is_local in paged.WORTH_A_ROUND_TRIP:
            patch.setitem(paged.WORTH_A_ROUND_TRIP, is_local, choices.one_of([0, 2**40]))
        yield


def random_projection(choices: Choices, rows: pa.Table) -> tuple[list[str], pa.Table]:
    """Some columns, or fields of structs, and the rows as they are then."""
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


def mask_of(answers: Sequence[bool | None], wanted: bool | None = True) -> pa.Array:
    return pa.array([answer is wanted for answer in answers], pa.bool_())


# --- Whole scans ------------------------------------------------------------------------------------------------------


@given(page_cases())
def test_O1_every_subset_of_levels_returns_the_rows_of_a_full_scan(case: PageCase) -> None:
    expected = [mask_of(answers) for answers in truths(case.judged, [said.sql for said in case.said])]
    with written(case) as path:
        table = tamis.open(path)
        for said, mask in zip(case.said, expected, strict=True):
            for levels in (LEVELS, (), case.choices.one_of(SUBSETS)):
                names, rows = random_projection(case.choices, case.rows)
                with some_way_of_reading(case.choices):
                    scan = table.scan(said.expr, columns=names, levels=levels)
                    _check_bytes(scan.plan())
                    assert same_rows(scan.to_arrow(), rows.filter(mask)), (said, levels, case.written_by)
                    assert table.scan(said.expr, levels=levels).count() == mask.true_count, (said, levels)


@st.composite
def table_cases(draw: st.DrawFn) -> TableCase:
    return random_table_case(Choices(draw), predicates=3)


@settings(max_examples=max(10, settings().max_examples // 2))
@given(table_cases())
def test_O1_B2_T11_H6_files_of_narrower_types_and_without_some_columns(case: TableCase) -> None:
    expected = [mask_of(answers) for answers in truths(case.rows, [said.sql for said in case.said])]
    with tempfile.TemporaryDirectory() as folder:
        for name, content in case.contents.items():
            (Path(folder) / name).parent.mkdir(exist_ok=True)
            (Path(folder) / name).write_bytes(content)
        table = tamis.open(folder)
        names = [f"`{name}`" for name in case.rows.column_names]
        for said, mask in zip(case.said, expected, strict=True):
            for levels in (LEVELS, case.choices.one_of(SUBSETS)):
                with some_way_of_reading(case.choices):
                    scan = table.scan(said.expr, columns=names, levels=levels)
                    _check_bytes(scan.plan())
                    assert same_rows(scan.to_arrow(), case.rows.filter(mask)), (said, levels)
                    assert table.scan(said.expr, levels=levels).count() == mask.true_count, (said, levels)


def _check_bytes(plan: tamis.scan.planning.plan.ScanPlan) -> None:
    """Each level starts with what the one before left, and the last one leaves what is read."""
    levels = [level for level in plan.report.levels if level.level not in ("partitions", "files")]
    for one, next_one in itertools.pairwise(levels):
        assert one.bytes_kept == next_one.bytes_total, (one, next_one)
    assert levels[-1].bytes_kept == plan.bytes


@given(page_cases(predicates=1))
def test_O2_rows_of_p_and_not_p_and_p_is_null_are_all_rows(case: PageCase) -> None:
    (said,) = case.said
    with written(case) as path:
        table = tamis.open(path)
        for levels in (LEVELS, case.choices.one_of(SUBSETS)):
            with some_way_of_reading(case.choices):
                wheres = (said.expr, not_(said.expr), is_unknown(said).expr)
                found = [table.scan(where, levels=levels).to_arrow() for where in wheres]
                counts = [table.scan(where, levels=levels).count() for where in wheres]
            assert counts == [rows.num_rows for rows in found]
            together = [text for rows in found for text in _row_texts(rows)]
            assert sorted(together) == sorted(_row_texts(case.rows)), (said, levels, case.written_by)


def _row_texts(rows: pa.Table) -> list[str]:
    columns = [
        [column.slice(index, 1).combine_chunks().to_string(container_window=10**6) for index in range(rows.num_rows)]
        for column in rows.columns
    ]
    return list(map("".join, zip(*columns, strict=True)))


# --- Without reading a row --------------------------------------------------------------------------------------------


@given(page_cases())
def test_O3_O6_no_row_is_pruned_by_a_predicate_that_is_true_of_it(case: PageCase) -> None:
    answers = truths(case.judged, [said.sql for said in case.said])
    with written(case) as path:
        counts = [group.num_rows for group in _row_groups(path)]
        levels = frozenset(case.choices.one_of(SUBSETS_BELOW))
        for said, found in zip(case.said, answers, strict=True):
            for form, wanted in ((said, True), (negated(said), False), (is_unknown(said), None)):
                result = Pruner(case.rows.schema, form.expr, levels, with_roaring=True).prune(path)
                kept = result.row_selection.to_file_positions(result.row_groups, counts).tolist()
                lost = {row for row, answer in enumerate(found) if answer is wanted} - set(kept)
                assert not lost, (form, levels, case.written_by)
                assert result.roaring_bitmap is not None
                assert list(result.roaring_bitmap) == kept


def _row_groups(path: Path) -> list[pa.RecordBatch]:
    metadata = pa.parquet.read_metadata(path)
    return [metadata.row_group(index) for index in range(metadata.num_row_groups)]


@dataclass(frozen=True)
class Narrowing:
    """One predicate and one file, narrowed by any levels."""

    source: ParquetFile
    said: Said

    @cached_property
    def before(self) -> Remaining:
        """All row groups, of which nothing was asked yet."""
        units = read_row_group_metadata(self.source.footer.metadata, self.predicate.columns, names=self._names)
        shape = (units.num_rows, len(self.predicate.conjuncts))
        return Remaining.from_row_groups(range(units.num_rows), units, np.ones(shape, bool))

    @cached_property
    def predicate(self) -> tamis.skipping.predicate.Predicate:
        return make_predicate(self.said.expr, self.source.schema, "the file")

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
        """Which rows of the file are left, and which of those are known to match."""
        starts = np.cumsum([0, *self.before.ends[:-1]])
        kept, whole = (np.zeros(int(self.before.ends.sum()), bool) for _ in range(2))
        for index, group in enumerate(remaining.row_groups.tolist()):
            at = slice(starts[group] + remaining.starts[index], starts[group] + remaining.ends[index])
            assert not kept[at].any(), "stretches overlap"
            kept[at] = True
            whole[at] = not remaining.residual[index].any()
        return kept, whole


@contextmanager
def narrowings(case: PageCase) -> Iterator[list[Narrowing]]:
    with written(case) as path:
        storage = open_storage(path)
        source = ParquetFile.load(storage, storage.root, path.stat().st_size, None)
        yield [Narrowing(source, said) for said in case.said]


@given(page_cases(predicates=4))
def test_O4_F7_stretches_that_match_whole_hold_only_true_rows_and_skipped_ones_none(case: PageCase) -> None:
    answers = truths(case.judged, [said.sql for said in case.said])
    with narrowings(case) as found:
        for narrowing, answer in zip(found, answers, strict=True):
            is_true = np.asarray(mask_of(answer), bool)
            for levels in (BELOW, case.choices.one_of(SUBSETS_BELOW)):
                kept, whole = narrowing.rows(narrowing.after(levels))
                assert not (is_true & ~kept).any(), (narrowing.said, levels, case.written_by)
                assert not (whole & ~is_true).any(), (narrowing.said, levels, case.written_by)


@given(page_cases(predicates=4))
def test_O5_less_known_of_pages_never_removes_a_row(case: PageCase) -> None:
    def spoil(indexes: PageIndexes) -> PageIndexes:
        columns = {
            key: None if pages is None else replace(pages, metadata=_less_known(case.choices, pages))
            for key, pages in indexes.columns.items()
        }
        return PageIndexes(indexes.locations, columns)

    plainly = narrow.read_page_indexes
    with narrowings(case) as found:
        for narrowing in found:
            kept, whole = narrowing.rows(narrowing.after(["pages"]))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(narrow, "read_page_indexes", lambda *given: spoil(plainly(*given)))
                kept_by_less, whole_by_less = narrowing.rows(narrowing.after(["pages"]))
            assert not (kept & ~kept_by_less).any(), (narrowing.said, case.written_by)
            assert not (whole_by_less & ~whole).any(), (narrowing.said, case.written_by)


def _less_known(choices: Choices, pages: ColumnPages) -> dict[str, pa.Array]:
    """The metadata of pages with bounds widened, or unknown for some of them, or absent."""
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
            found[name] = pc.if_else(pc.is_valid(values), _widest(values, is_lower=side == "lower"), values)
            # What is no longer the value of some row must not be called so.
            forgotten.add(f"{side}_exact:{name.split(':', 1)[1]}")
    return {name: values for name, values in found.items() if name not in forgotten}


def _widest(values: pa.Array, *, is_lower: bool) -> pa.Scalar:
    return pc.min_max(values)["min" if is_lower else "max"]
