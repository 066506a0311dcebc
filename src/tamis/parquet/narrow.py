"""Below the row groups of one file: Bloom filters, pages, dictionaries, each narrowing what the one before left.

| level        | asked about                 | tells of          | read for it                       |
|--------------|-----------------------------|-------------------|-----------------------------------|
| `bloom`      | `=`, IN, `<=>`              | row groups        | a block of each filter            |
| `pages`      | whatever bounds can answer  | stretches of rows | column and offset indexes         |
| `dictionary` | any predicate of one column | row groups        | dictionary pages, where that pays |

All of them answer by `tamis.skipping`, over the metadata of the units at hand. What a file does not have leaves
everything as it is, and the report says so.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.nodes import Column, Expr, columns_of
from tamis.io.ranges import RangedFile
from tamis.parquet.bloom_answers import BloomQuestions
from tamis.parquet.bloom_read import read_bloom_filters
from tamis.parquet.decode import decode_dictionary, leaf_value_field
from tamis.parquet.file import ParquetFile
from tamis.parquet.indexes import Described, PageIndexes, read_indexes
from tamis.parquet.leaves import FieldPath, Leaf
from tamis.parquet.page_index import PageLocations, dictionary_range
from tamis.parquet.page_units import ColumnPages, Stretches, cut_into_stretches
from tamis.parquet.selection import RowSelection
from tamis.skipping.account import LevelReport
from tamis.skipping.membership import Question, Questioned, ask, could_skip
from tamis.skipping.metadata import ROW_COUNT
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.skipping.rewrite import Conjunct

NOT_AVAILABLE = "not available"
NO_EQUALITY = "no equality and no list of values"
SEVERAL_COLUMNS = "no predicate of one column"
MAY_BE_THERE = "may be there"
TOO_COSTLY = "the dictionary costs more than it could save"

DICTIONARY_SHARE = 4
"""A dictionary is read where the bytes that it could save are at least so many times its own."""

Bits = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Filter:
    """A normalised predicate, made ready for levels that know more than bounds. Good for all files of a table."""

    predicate: Expr
    conjuncts: tuple[Conjunct, ...]

    @cached_property
    def questioned(self) -> Questioned:
        return ask(self.predicate)

    @cached_property
    def bloom(self) -> BloomQuestions:
        return BloomQuestions.of(self.questioned.questions)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(columns_of(self.predicate))


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """What is left to read of a file: stretches of rows, in the order of the file. At first each is a row group."""

    row_groups: Rows
    """The row group of each stretch."""
    starts: Rows
    ends: Rows
    """Rows, counted within the row group."""
    unmatched: Bits
    """`unmatched[i, j]`: rows of stretch i must still be tested by conjunct j."""
    units: pa.RecordBatch
    """The metadata of the stretches."""
    row_counts: Mapping[int, int]
    """How many rows the row groups have."""

    @staticmethod
    def of_row_groups(row_groups: Sequence[int], units: pa.RecordBatch, unmatched: Bits) -> Remaining:
        """Whole row groups, whose metadata are `units`."""
        rows = np.asarray(units.column(ROW_COUNT.name), np.int64)
        counts = dict(zip(row_groups, rows.tolist(), strict=True))
        return Remaining(np.array(row_groups, np.int64), np.zeros(len(rows), np.int64), rows, unmatched, units, counts)

    @property
    def kept_row_groups(self) -> tuple[int, ...]:
        return tuple(np.unique(self.row_groups).tolist())

    def keep(self, mask: Bits) -> Remaining:
        if mask.all():
            return self
        return Remaining(
            self.row_groups[mask],
            self.starts[mask],
            self.ends[mask],
            self.unmatched[mask],
            self.units.filter(pa.array(mask)),
            self.row_counts,
        )

    def selection(self, row_group: int) -> RowSelection:
        """The rows of a row group that are left."""
        own = self.row_groups == row_group
        runs = np.column_stack((self.starts[own], self.ends[own]))
        return RowSelection.from_ranges(runs, self.row_counts[row_group])

    def unmatched_in(self, row_group: int) -> Bits:
        """For each conjunct, whether rows of a row group must still be tested by it."""
        found: Bits = self.unmatched[self.row_groups == row_group].any(axis=0)
        return found


class FileNarrower:
    """Narrows what is left of one file, level by level."""

    def __init__(
        self,
        source: ParquetFile,
        file: RangedFile,
        given: Filter,
        needed: Sequence[int],
        names: Mapping[FieldPath, FieldPath],
    ) -> None:
        """`names` are the columns of the filter that the file is asked about, with their paths in it.

        A partition column is none of them, whatever the file has under its name.
        """
        self._source = source
        self._file = file
        self._filter = given
        self._needed = needed
        self._names = names
        self._locations: dict[tuple[int, int], PageLocations | None] = {}
        self._sized: tuple[Remaining, dict[int, int]] | None = None

    def narrow(self, remaining: Remaining, levels: Collection[str]) -> tuple[Remaining, list[LevelReport]]:
        """Ask the levels in their order. Rows that match whole need no further question."""
        reports = []
        for level, ask_level in (("bloom", self._bloom), ("pages", self._pages), ("dictionary", self._dictionary)):
            asked: Bits = np.any(remaining.unmatched, axis=1, keepdims=False)
            if level not in levels or not asked.any():
                continue
            narrowed, report = ask_level(remaining.keep(asked))
            if report is not None:
                others = remaining.keep(~asked)
                report.pass_by(len(others.starts), sum(self.bytes_of(others).values()))
                reports.append(report)
                remaining = _joined(others, narrowed)
        return remaining, reports

    def bytes_of(self, remaining: Remaining) -> dict[int, int]:
        """The bytes of the needed columns that hold the remaining rows, by row group."""
        return {
            row_group: self._bytes(row_group, remaining.selection(row_group)) for row_group in remaining.kept_row_groups
        }

    def _bytes(self, row_group: int, selection: RowSelection) -> int:
        if selection.is_all:
            return sum(self._source.chunk(row_group, leaf).total_compressed_size for leaf in self._needed)
        pages = [
            self._source.leaf_pages(row_group, leaf, self._locations.get((row_group, leaf))) for leaf in self._needed
        ]
        return sum(each.bytes_for(selection) for each in pages)

    def _leaf(self, column: Column) -> Leaf | None:
        path = self._names.get(column.path)
        return None if path is None else self._source.footer.schema.leaves.get(path)

    def _ask(
        self, level: str, remaining: Remaining, answers: Mapping[str, pa.Array]
    ) -> tuple[Remaining, list[ConjunctOutcome], LevelReport]:
        """What is left when more is known of the remaining stretches."""
        known = {name: remaining.units.column(name) for name in remaining.units.schema.names}
        # What one level does not know another may have told.
        told = {name: pc.coalesce(found, known[name]) if name in known else found for name, found in answers.items()}
        units = pa.record_batch(known | told)
        pruned = prune(units, self._filter.questioned.conjuncts)
        after = replace(remaining, units=units).keep(np.asarray(pruned.selection))
        matched = np.column_stack([np.zeros((len(after.starts), 0), bool), *map(np.asarray, pruned.matched)])
        after = replace(after, unmatched=after.unmatched & ~matched)
        sizes = sum(self.bytes_of(remaining).values()), sum(self.bytes_of(after).values())
        report = LevelReport(level, len(remaining.starts), len(after.starts), *sizes)
        return after, list(pruned.outcomes), report

    def _not_asked(self, level: str, remaining: Remaining, reasons: Sequence[str | None]) -> LevelReport:
        """The account of a level that has nothing to say of the remaining rows."""
        size = sum(self.bytes_of(remaining).values())
        conjuncts = self._filter.questioned.conjuncts
        outcomes = [ConjunctOutcome(each.text, 0, reason) for each, reason in zip(conjuncts, reasons, strict=True)]
        count = len(remaining.starts)
        return LevelReport(level, count, count, size, size, tuple(outcomes))

    # --- Bloom filters --------------------------------------------------------------------------------------------

    def _bloom(self, remaining: Remaining) -> tuple[Remaining, LevelReport | None]:
        questions = self._filter.bloom
        if not questions.questions:
            return remaining, None
        own = questions.for_file(self._source.footer.schema.leaves, self._names)
        groups = remaining.row_groups.tolist()
        asked_by = self._filter.questioned.asked_by
        asked = [
            [question for question in asked_by(conjunct) if question.items is not None]
            for conjunct in self._filter.questioned.conjuncts
        ]
        known = {question.number for question, *_ in own.asked}
        chunks = {(group, leaf): self._source.chunk(group, leaf) for group in groups for leaf in own.leaves}
        if own.leaves and not any(chunk.bloom_filter for chunk in chunks.values()):
            reasons = own.reasons({}, groups)
            return remaining, self._not_asked(
                "bloom", remaining, [_reason_of_bloom(each, reasons, known) for each in asked]
            )
        layouts = {
            (group, leaf.index): chunks[group, leaf.index]
            for question, leaf, _ in own.asked
            if leaf.index in own.leaves
            for group in remaining.row_groups[self._could_skip(remaining, question, by_bloom=True)].tolist()
        }
        filters = read_bloom_filters(self._source.storage, self._source.path, layouts, own.hashes, file=self._file)
        after, outcomes, report = self._ask("bloom", remaining, own.answers(filters, groups))
        reasons = own.reasons(filters, groups)
        report.by_predicate = tuple(
            outcome if outcome.skipped else replace(outcome, unused_because=_reason_of_bloom(each, reasons, known))
            for outcome, each in zip(outcomes, asked, strict=True)
        )
        return after, report

    # --- Pages ----------------------------------------------------------------------------------------------------

    def _pages(self, remaining: Remaining) -> tuple[Remaining, LevelReport | None]:
        leaves = [(column, leaf) for column in self._filter.columns if (leaf := self._leaf(column)) is not None]
        if not leaves:
            return remaining, None
        groups = remaining.row_groups.tolist()
        described: list[Described] = [(group, column, leaf) for group in groups for column, leaf in leaves]
        chunks = [(group, leaf) for group in groups for leaf in self._needed]
        indexes = read_indexes(self._source, self._file, chunks, described)
        self._locations.update(indexes.locations)
        cut = self._cut(remaining, indexes)
        after, outcomes, report = self._ask("pages", cut, {})
        if all(pages is None for pages in indexes.columns.values()):
            outcomes = [replace(each, unused_because=NOT_AVAILABLE) for each in outcomes]
        report.by_predicate = tuple(outcomes)
        return after, report

    def _cut(self, remaining: Remaining, indexes: PageIndexes) -> Remaining:
        """Row groups cut into stretches. What has no page index is known as the row group knows it."""
        stretches = []
        for index, group in enumerate(remaining.row_groups.tolist()):
            of_group = {name: remaining.units.column(name).slice(index, 1) for name in remaining.units.schema.names}
            paged = [pages for (own, _), pages in indexes.columns.items() if own == group and pages is not None]
            names = {name for pages in paged for name in pages.metadata}
            others = {name: array for name, array in of_group.items() if name not in names}
            columns = [*paged, ColumnPages(np.zeros(1, np.int64), others)]
            stretches.append(cut_into_stretches(columns, self._source.rows_of(group)))
        counts = [len(each.starts) for each in stretches]
        return Remaining(
            np.repeat(remaining.row_groups, counts),
            np.concatenate([each.starts for each in stretches]),
            np.concatenate([each.ends for each in stretches]),
            np.repeat(remaining.unmatched, counts, axis=0),
            _concatenated(stretches),
            remaining.row_counts,
        )

    # --- Dictionaries ---------------------------------------------------------------------------------------------

    def _dictionary(self, remaining: Remaining) -> tuple[Remaining, LevelReport | None]:
        asked = [
            (question, leaf)
            for question in self._filter.questioned.questions
            if (leaf := self._leaf(question.column)) is not None
        ]
        if not asked:
            return remaining, None
        worth, unavailable = self._worth_reading(remaining, asked)
        known = {question.number for question, _ in asked}
        reasons = [
            _reason_of_dictionary([question.number for question in questions], unavailable, known)
            for questions in map(self._filter.questioned.asked_by, self._filter.questioned.conjuncts)
        ]
        if not worth:
            return remaining, self._not_asked("dictionary", remaining, reasons)
        answers: dict[str, list[bool | None]] = {
            name: [None] * len(remaining.starts) for question, _ in asked for name in question.names
        }
        for row_group, leaf, values in self._read_dictionaries(worth):
            own = np.flatnonzero(remaining.row_groups == row_group).tolist()
            for question, tested in asked:
                if tested.index == leaf.index and (judged := _judge(question, values)) is not None:
                    for name, answer in zip(question.names, judged, strict=True):
                        for index in own:
                            answers[name][index] = answer
        columns = {name: pa.array(found, pa.bool_()) for name, found in answers.items()}
        after, outcomes, report = self._ask("dictionary", remaining, columns)
        report.by_predicate = tuple(
            outcome if outcome.skipped else replace(outcome, unused_because=reason)
            for outcome, reason in zip(outcomes, reasons, strict=True)
        )
        return after, report

    def _worth_reading(
        self, remaining: Remaining, asked: Sequence[tuple[Question, Leaf]]
    ) -> tuple[list[tuple[int, Leaf]], dict[int, str]]:
        """The dictionaries to read, by row group and leaf; and why questions have none."""
        saved = self.bytes_of(remaining)
        worth: dict[tuple[int, int], tuple[int, Leaf]] = {}
        unavailable: dict[int, str] = {}
        groups = remaining.kept_row_groups
        for question, leaf in asked:
            places = {group: self._dictionary_range(group, leaf) for group in groups}
            cheap = [
                group
                for group, place in places.items()
                if place is not None and place[1] * DICTIONARY_SHARE <= saved[group]
            ]
            if not cheap:
                is_there = any(place is not None for place in places.values())
                unavailable[question.number] = TOO_COSTLY if is_there else NOT_AVAILABLE
                continue
            could = set(remaining.row_groups[self._could_skip(remaining, question)].tolist())
            worth |= {(group, leaf.index): (group, leaf) for group in cheap if group in could}
        return list(worth.values()), unavailable

    def _could_skip(self, remaining: Remaining, question: Question, *, by_bloom: bool = False) -> Bits:
        """The stretches for which an answer to a question may matter, with the best answers to all others."""
        could = np.zeros(len(remaining.starts), bool)
        for conjunct in self._filter.questioned.conjuncts:
            asked = self._filter.questioned.asked_by(conjunct)
            if question in asked:
                if by_bloom:
                    names = [each.true_name for each in asked if each.items is not None]
                else:
                    names = [name for each in asked for name in each.names]
                could |= np.asarray(could_skip(remaining.units, conjunct, names))
        return could

    def _dictionary_range(self, row_group: int, leaf: Leaf) -> tuple[int, int] | None:
        chunk = self._source.chunk(row_group, leaf.index)
        if not chunk.all_dictionary:
            return None
        return dictionary_range(chunk, self._locations.get((row_group, leaf.index)))

    def _read_dictionaries(self, worth: Sequence[tuple[int, Leaf]]) -> Iterator[tuple[int, Leaf, pa.Array]]:
        ranges = [self._dictionary_range(row_group, leaf) for row_group, leaf in worth]
        buffers = self._file.read([each for each in ranges if each is not None])
        for (row_group, leaf), page in zip(worth, buffers, strict=True):
            pages = self._source.leaf_pages(row_group, leaf.index, None)
            field = leaf_value_field(pages.field)
            values = decode_dictionary(
                page, pages.layout, pages.schema, field, self._source.place, created_by=self._source.created_by
            )
            yield row_group, leaf, values


def _judge(question: Question, values: pa.Array) -> tuple[bool, bool, bool] | None:
    """The answers for the values of a dictionary, if they can be had in the type that the predicate is about."""
    try:
        return question.judge(values if values.type == question.column.type else values.cast(question.column.type))
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _reason_of_bloom(asked: Sequence[Question], reasons: Mapping[int, str], known: Collection[int]) -> str | None:
    if not asked:
        return NO_EQUALITY
    if all(question.number in reasons or question.number not in known for question in asked):
        return next((reasons[each.number] for each in asked if each.number in reasons), NOT_AVAILABLE)
    return MAY_BE_THERE


def _reason_of_dictionary(
    numbers: Collection[int], unavailable: Mapping[int, str], known: Collection[int]
) -> str | None:
    if not numbers:
        return SEVERAL_COLUMNS
    answered = [number for number in numbers if number in known and number not in unavailable]
    if answered:
        return MAY_BE_THERE
    return next((unavailable[number] for number in sorted(numbers) if number in unavailable), NOT_AVAILABLE)


def _concatenated(stretches: Sequence[Stretches]) -> pa.RecordBatch:
    """What is known of the stretches of several row groups: what one of them lacks is unknown there."""
    table = pa.concat_tables([pa.table(dict(each.metadata)) for each in stretches], promote_options="default")
    return _as_batch(table)


def _joined(one: Remaining, other: Remaining) -> Remaining:
    """The stretches of both, in the order of the file."""
    if not len(one.starts):
        return other
    order = np.lexsort((np.concatenate([one.starts, other.starts]), np.concatenate([one.row_groups, other.row_groups])))
    units = pa.concat_tables(
        [pa.Table.from_batches([each.units]) for each in (one, other)], promote_options="default"
    ).take(pa.array(order))
    return Remaining(
        np.concatenate([one.row_groups, other.row_groups])[order],
        np.concatenate([one.starts, other.starts])[order],
        np.concatenate([one.ends, other.ends])[order],
        np.concatenate([one.unmatched, other.unmatched])[order],
        _as_batch(units),
        {**one.row_counts, **other.row_counts},
    )


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
