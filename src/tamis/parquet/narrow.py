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

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.nodes import Call, Column, Expr, columns_of, walk
from tamis.io.ranges import RangedFile, batches_of_bytes
from tamis.io.threads import run_in_threads
from tamis.parquet.bloom import Array, Unavailable
from tamis.parquet.bloom_answers import BloomQuestions
from tamis.parquet.bloom_read import NO_FILTER, Chunk, Found, read_bloom_filters
from tamis.parquet.chunks import ChunkLayout
from tamis.parquet.decode import decode_dictionary, leaf_value_field
from tamis.parquet.file import ParquetFile
from tamis.parquet.indexes import Described, PageIndexes, read_indexes
from tamis.parquet.leaves import FieldPath, Leaf
from tamis.parquet.page_index import PageLocations, dictionary_range
from tamis.parquet.page_units import ColumnPages, cut_into_stretches
from tamis.parquet.remaining import Bits, Remaining, concatenated, joined
from tamis.parquet.selection import RowSelection
from tamis.skipping.account import LevelReport
from tamis.skipping.membership import Question, Questioned, ask, could_skip
from tamis.skipping.prune import ConjunctOutcome, prune
from tamis.skipping.rewrite import Conjunct

NOT_AVAILABLE = "not available"
NO_EQUALITY = "no equality and no list of values"
SEVERAL_COLUMNS = "no predicate of one column"
MAY_BE_THERE = "may be there"
TOO_COSTLY = "the dictionary costs more than it could save"

_EQUALITIES = frozenset(("=", "<=>", "in", "like"))

MOST_AHEAD = 256
"""Of so many column chunks it is looked up where their pages are before anybody knows which of them are read: that
saves a round of requests. Of more it is looked up afterwards."""

DICTIONARY_SHARE = 4
"""A dictionary is read where the bytes that it could save are at least so many times its own."""


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

    @cached_property
    def has_equality(self) -> tuple[bool, ...]:
        """For each conjunct, whether something in it may be an equality or a list of values."""
        return tuple(
            any(isinstance(node, Call) and node.function in _EQUALITIES for node in walk(each.predicate))
            for each in self.conjuncts
        )


@dataclass(frozen=True, slots=True)
class _Narrowed:
    """What a level left of the stretches that it was asked about."""

    remaining: Remaining
    total: int
    """How many stretches there were, after the level had cut them."""
    outcomes: Sequence[ConjunctOutcome]

    def because(self, reasons: Sequence[str | None]) -> _Narrowed:
        """The same with the reasons why conjuncts did not skip anything."""
        outcomes = [
            outcome if outcome.skipped else replace(outcome, unused_because=reason)
            for outcome, reason in zip(self.outcomes, reasons, strict=True)
        ]
        return replace(self, outcomes=outcomes)


class FileNarrower:
    """Narrows what is left of one file, level by level."""

    def __init__(
        self,
        source: ParquetFile,
        file: RangedFile,
        given: Filter,
        needed: Sequence[int],
        names: Mapping[FieldPath, FieldPath],
        sizes: Mapping[int, int],
    ) -> None:
        """`names` are the columns of the filter that the file is asked about, with their paths in it.

        A partition column is none of them, whatever the file has under its name. `sizes` are the bytes of the needed
        leaves in each row group.
        """
        self._source = source
        self._file = file
        self._filter = given
        self._needed = needed
        self._names = names
        self._sizes = sizes
        self._locations: dict[tuple[int, int], PageLocations | None] = {}
        self._sized: tuple[Remaining, dict[int, int]] | None = None
        self._has_answers = False
        self._asks_pages = False

    def narrow(self, remaining: Remaining, levels: Collection[str]) -> tuple[Remaining, list[LevelReport]]:
        """Ask the levels in their order. Rows that match whole need no further question.

        The account of a level that was not asked has no outcomes.
        """
        reports = []
        self._asks_pages = "pages" in levels
        for level, ask_level in (("bloom", self._bloom), ("pages", self._pages), ("dictionary", self._dictionary)):
            if level not in levels:
                continue
            asked: Bits = np.any(remaining.unmatched, axis=1, keepdims=False)
            others = None if asked.all() else remaining.keep(~asked)
            narrowed = ask_level(remaining.keep(asked)) if asked.any() else None
            before = self._size(remaining)
            if narrowed is None:
                count = len(remaining.starts)
                reports.append(LevelReport(level, count, count, before, before))
                continue
            remaining = narrowed.remaining if others is None else joined(others, narrowed.remaining)
            # A page may hold rows that were asked about and others, so what is left of both is measured together.
            total = narrowed.total + (0 if others is None else len(others.starts))
            outcomes = tuple(narrowed.outcomes)
            reports.append(LevelReport(level, total, len(remaining.starts), before, self._size(remaining), outcomes))
        return remaining, reports

    def bytes_of(self, remaining: Remaining) -> dict[int, int]:
        """The bytes of the needed columns that hold the remaining rows, by row group."""
        if self._sized is None or self._sized[0] is not remaining:
            in_part = set(remaining.in_part)
            sizes = {
                group: self._bytes(group, remaining.selection(group)) if group in in_part else self._sizes[group]
                for group in remaining.kept_row_groups
            }
            self._sized = remaining, sizes
        return self._sized[1]

    def _size(self, remaining: Remaining) -> int:
        return sum(self.bytes_of(remaining).values())

    def _bytes(self, row_group: int, selection: RowSelection) -> int:
        pages = [
            self._source.leaf_pages(row_group, leaf, self._locations.get((row_group, leaf))) for leaf in self._needed
        ]
        return sum(each.bytes_for(selection) for each in pages)

    def _leaf(self, column: Column) -> Leaf | None:
        path = self._names.get(column.path)
        return None if path is None else self._source.footer.schema.leaves.get(path)

    def _ask(self, remaining: Remaining, answers: Mapping[str, pa.Array]) -> _Narrowed:
        """What is left when more is known of the remaining stretches."""
        units = _with_answers(remaining.units, answers) if answers else remaining.units
        self._has_answers = self._has_answers or bool(answers)
        # To take answers in makes a predicate longer, so that is done where there are some.
        conjuncts = self._filter.questioned.conjuncts if self._has_answers else self._filter.conjuncts
        pruned = prune(units, conjuncts)
        after = remaining.keep(np.asarray(pruned.selection), pruned.remaining)
        matched = np.column_stack([np.zeros((len(after.starts), 0), bool), *map(np.asarray, pruned.matched)])
        after = replace(after, unmatched=after.unmatched & ~matched)
        return _Narrowed(after, len(remaining.starts), pruned.outcomes)

    def _not_asked(self, remaining: Remaining, reasons: Sequence[str | None]) -> _Narrowed:
        """The account of a level that has nothing to say of the remaining rows."""
        conjuncts = self._filter.conjuncts
        outcomes = [ConjunctOutcome(each.text, 0, reason) for each, reason in zip(conjuncts, reasons, strict=True)]
        return _Narrowed(remaining, len(remaining.starts), outcomes)

    # --- Bloom filters --------------------------------------------------------------------------------------------

    def _any_chunk(self, remaining: Remaining, has: Callable[[ChunkLayout], bool]) -> bool:
        """Whether some chunk of a column of the filter has something, in the row groups that are left."""
        leaves = [leaf.index for column in self._filter.columns if (leaf := self._leaf(column)) is not None]
        groups = remaining.kept_row_groups
        return any(has(self._source.chunk(group, leaf)) for leaf in leaves for group in groups)

    def _bloom(self, remaining: Remaining) -> _Narrowed | None:
        if not any(self._filter.has_equality):
            return None
        if not self._any_chunk(remaining, lambda chunk: chunk.bloom_filter is not None):
            has_equality = self._filter.has_equality
            return self._not_asked(remaining, [NO_FILTER.reason if has else NO_EQUALITY for has in has_equality])
        questions = self._filter.bloom
        if not questions.questions:
            return None
        own = questions.for_file(self._source.footer.schema.leaves, self._names)
        groups = remaining.row_groups.tolist()
        asked = [
            [question for question in of_conjunct if question.items is not None]
            for of_conjunct in self._filter.questioned.asked
        ]
        known = {question.number for question, *_ in own.asked}
        chunks = {(group, leaf): self._source.chunk(group, leaf) for group in groups for leaf in own.leaves}
        if own.leaves and not any(chunk.bloom_filter for chunk in chunks.values()):
            reasons = own.reasons({}, groups)
            return self._not_asked(remaining, [_reason_of_bloom(each, reasons, known) for each in asked])
        could = self._could_skip(remaining, [[question.true_name for question in each] for each in asked])
        matters: dict[int, Bits] = {}
        for question, leaf, _ in own.asked:
            if leaf.index in own.leaves and question.number in could:
                matters[leaf.index] = matters.get(leaf.index, could[question.number]) | could[question.number]
        layouts = {
            (group, leaf): chunks[group, leaf]
            for leaf, bits in matters.items()
            for group in remaining.row_groups[bits].tolist()
        }
        answers = own.answers({}, groups)
        found: dict[Chunk, Found | None] = {}
        for filters in self._filters(layouts, own.hashes, remaining):
            told = own.answers(filters, groups)
            answers = {name: pc.coalesce(answer, told[name]) for name, answer in answers.items()}
            found |= {chunk: each if isinstance(each, Unavailable) else None for chunk, each in filters.items()}
        narrowed = self._ask(remaining, answers)
        reasons = own.reasons(found, groups)
        return narrowed.because([_reason_of_bloom(each, reasons, known) for each in asked])

    def _filters(
        self, layouts: Mapping[Chunk, ChunkLayout], hashes: Mapping[int, Array], remaining: Remaining
    ) -> Iterator[dict[Chunk, Found]]:
        """The filters of column chunks. From afar the page indexes come in the same round: they are small, and asked
        for next unless the filters rule everything out."""
        storage, path = self._source.storage, self._source.path
        groups = remaining.kept_row_groups
        if storage.is_local or not self._asks_pages or len(groups) * len(self._needed) > MOST_AHEAD:
            yield from read_bloom_filters(storage, path, layouts, hashes, file=self._file)
            return

        def filters() -> list[dict[Chunk, Found]]:
            return list(read_bloom_filters(storage, path, layouts, hashes, file=self._file))

        def indexes() -> list[dict[Chunk, Found]]:
            self._page_indexes(groups)
            return []

        found, _ = run_in_threads(lambda read: read(), (filters, indexes), 2)
        yield from found

    def _page_indexes(self, groups: Iterable[int]) -> PageIndexes:
        """What there is to know of the pages of some row groups; what was read once is kept."""
        leaves = [(column, leaf) for column in self._filter.columns if (leaf := self._leaf(column)) is not None]
        described: list[Described] = [(group, column, leaf) for group in groups for column, leaf in leaves]
        return read_indexes(
            self._source, self._file, [(group, leaf) for group in groups for leaf in self._needed], described
        )

    # --- Pages ----------------------------------------------------------------------------------------------------

    def _pages(self, remaining: Remaining) -> _Narrowed | None:
        leaves = [(column, leaf) for column in self._filter.columns if (leaf := self._leaf(column)) is not None]
        if not leaves:
            return None
        groups = remaining.row_groups.tolist()
        described: list[Described] = [(group, column, leaf) for group in groups for column, leaf in leaves]
        chunks = [(group, leaf) for group in groups for leaf in self._needed]
        is_small = len(chunks) <= MOST_AHEAD
        indexes = read_indexes(self._source, self._file, chunks if is_small else (), described)
        self._locations.update(indexes.locations)
        narrowed = self._ask(self._cut(remaining, indexes), {})
        if not is_small:
            left = [(group, leaf) for group in narrowed.remaining.in_part for leaf in self._needed]
            self._locations.update(read_indexes(self._source, self._file, left).locations)
        if all(pages is None for pages in indexes.columns.values()):
            return narrowed.because([NOT_AVAILABLE] * len(narrowed.outcomes))
        return narrowed

    def _cut(self, remaining: Remaining, indexes: PageIndexes) -> Remaining:
        """Row groups cut into stretches. What has no page index is known as the row group knows it."""
        stretches = []
        described: dict[int, list[ColumnPages]] = {}
        for (group, _), pages in indexes.columns.items():
            if pages is not None:
                described.setdefault(group, []).append(pages)
        for index, group in enumerate(remaining.row_groups.tolist()):
            of_group = {name: remaining.units.column(name).slice(index, 1) for name in remaining.units.schema.names}
            paged = described.get(group, [])
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
            concatenated(stretches),
            remaining.row_counts,
        )

    # --- Dictionaries ---------------------------------------------------------------------------------------------

    def _dictionary(self, remaining: Remaining) -> _Narrowed | None:
        if not self._any_chunk(remaining, lambda chunk: chunk.all_dictionary):
            counts = [len(columns_of(each.predicate)) for each in self._filter.conjuncts]
            return self._not_asked(remaining, [NOT_AVAILABLE if count == 1 else SEVERAL_COLUMNS for count in counts])
        asked = [
            (question, leaf)
            for question in self._filter.questioned.questions
            if (leaf := self._leaf(question.column)) is not None
        ]
        if not asked:
            return None
        worth, unavailable = self._worth_reading(remaining, asked)
        known = {question.number for question, _ in asked}
        reasons = [
            _reason_of_dictionary([question.number for question in questions], unavailable, known)
            for questions in self._filter.questioned.asked
        ]
        if not worth:
            return self._not_asked(remaining, reasons)
        answers: dict[str, list[bool | None]] = {
            name: [None] * len(remaining.starts) for question, _ in asked for name in question.names
        }
        for row_group, leaf, values in self._read_dictionaries(worth):
            own = remaining.of_row_group(row_group)
            for question, tested in asked:
                if tested.index == leaf.index and (judged := _judge(question, values)) is not None:
                    for name, answer in zip(question.names, judged, strict=True):
                        answers[name][own.start : own.stop] = [answer] * len(own)
        columns = {name: pa.array(found, pa.bool_()) for name, found in answers.items()}
        return self._ask(remaining, columns).because(reasons)

    def _worth_reading(
        self, remaining: Remaining, asked: Sequence[tuple[Question, Leaf]]
    ) -> tuple[list[tuple[int, Leaf]], dict[int, str]]:
        """The dictionaries to read, by row group and leaf; and why questions have none."""
        saved = self.bytes_of(remaining)
        worth: dict[tuple[int, int], tuple[int, Leaf]] = {}
        unavailable: dict[int, str] = {}
        groups = remaining.kept_row_groups
        of_conjuncts = self._filter.questioned.asked
        names = [[name for question in each for name in question.names] for each in of_conjuncts]
        skippable = self._could_skip(remaining, names)
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
            if question.number in skippable:
                could = set(remaining.row_groups[skippable[question.number]].tolist())
                worth |= {(group, leaf.index): (group, leaf) for group in cheap if group in could}
        return list(worth.values()), unavailable

    def _could_skip(self, remaining: Remaining, names: Sequence[Sequence[str]]) -> dict[int, Bits]:
        """By the numbers of questions, the stretches for which an answer may matter, with the best answers to all.

        `names` are the answers that a level may give, for each conjunct.
        """
        questioned = self._filter.questioned
        found: dict[int, Bits] = {}
        for conjunct, questions, own in zip(questioned.conjuncts, questioned.asked, names, strict=True):
            if own:
                could = np.asarray(could_skip(remaining.units, conjunct, own))
                for question in questions:
                    found[question.number] = found[question.number] | could if question.number in found else could
        return found

    def _dictionary_range(self, row_group: int, leaf: Leaf) -> tuple[int, int] | None:
        chunk = self._source.chunk(row_group, leaf.index)
        # Values in the calendar of their time may be an error, which is for those who read the rows.
        if leaf.is_old or not chunk.all_dictionary:
            return None
        return dictionary_range(chunk, self._locations.get((row_group, leaf.index)))

    def _read_dictionaries(self, worth: Sequence[tuple[int, Leaf]]) -> Iterator[tuple[int, Leaf, pa.Array]]:
        places = [self._dictionary_range(row_group, leaf) for row_group, leaf in worth]
        ranges = [place for place in places if place is not None]
        for batch in batches_of_bytes([length for _, length in ranges]):
            buffers = self._file.read(ranges[batch])
            for (row_group, leaf), page in zip(worth[batch], buffers, strict=True):
                pages = self._source.leaf_pages(row_group, leaf.index, None)
                field = leaf_value_field(pages.field)
                values = decode_dictionary(
                    page, pages.layout, pages.schema, field, self._source.place, created_by=self._source.created_by
                )
                yield row_group, leaf, values


def _with_answers(units: pa.RecordBatch, answers: Mapping[str, pa.Array]) -> pa.RecordBatch:
    known = {name: units.column(name) for name in units.schema.names}
    # What one level does not know another may have told.
    told = {name: pc.coalesce(found, known[name]) if name in known else found for name, found in answers.items()}
    return pa.record_batch(known | told)


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
