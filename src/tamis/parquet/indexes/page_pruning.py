"""Pruning below the row groups of one file: Bloom filters, pages, dictionaries, each narrowing the previous result.

| level        | predicates                  | prunes     | reads                             |
|--------------|-----------------------------|------------|-----------------------------------|
| `bloom`      | `=`, IN, `<=>`              | row groups | a block of each filter            |
| `pages`      | all that bounds can answer  | row ranges | column and offset indexes         |
| `dictionary` | any predicate on one column | row groups | dictionary pages, if that pays    |

All levels are evaluated by `tamis.skipping` over the metadata of the remaining units. A level that the file does not
support keeps everything, and the report records it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import compress

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tamis.expr.nodes import Call, Column, Expr, and_, find_columns, walk
from tamis.io.ranges import RangedFile, split_by_bytes
from tamis.io.threads import run_in_threads
from tamis.parquet.footer.chunks import ChunkLayout
from tamis.parquet.footer.footer import Footer
from tamis.parquet.footer.leaves import FieldPath, Leaf
from tamis.parquet.indexes.bloom_filter import Array, BloomFilterProvider, Chunk, Unavailable, fetch_filters
from tamis.parquet.indexes.bloom_pruning import NO_FILTER, BloomQuestions, Found, read_bloom_filters
from tamis.parquet.indexes.page_index import PageLocations, find_dictionary_range
from tamis.parquet.indexes.page_units import (
    ColumnPages,
    PageIndexes,
    RowRanges,
    read_page_indexes,
    split_into_row_ranges,
)
from tamis.parquet.reading.decode import decode_dictionary, find_leaf_value_field
from tamis.parquet.reading.parquet_file import ParquetFile
from tamis.parquet.selection.row_selection import RowSelection
from tamis.skipping.handler import ARROW, ExpressionHandler
from tamis.skipping.membership import Question, QuestionedPredicate, collect_questions, find_skippable_units
from tamis.skipping.metadata import ROW_COUNT, metadata_name
from tamis.skipping.metrics import MATCHED_BY_ROW_GROUP, LevelReport, add_matched_conjuncts
from tamis.skipping.prune import SKIPPED_BEFORE, ConjunctOutcome, prune
from tamis.skipping.rewrite import Conjunct

NOT_AVAILABLE = "not available"
NO_EQUALITY = "not an equality or IN predicate"
SEVERAL_COLUMNS = "not a predicate on one column"
MAY_BE_PRESENT = "the values may be present"
TOO_COSTLY = "reading the dictionary costs more than it could save"

_EQUALITIES = frozenset(("=", "<=>", "in", "like"))

MAX_PREFETCHED_CHUNKS = 256
"""The maximum number of column chunks whose page locations are read before it is known which chunks are needed.

That saves a round of requests. For more chunks the locations are read afterwards.
"""


@dataclass(frozen=True)
class Filter:
    """A normalised predicate, prepared for the levels below row groups. All files of a table share it."""

    predicate: Expr
    conjuncts: tuple[Conjunct, ...]
    handler: ExpressionHandler = ARROW
    selected_from: tuple[Filter, tuple[bool, ...]] | None = field(default=None, repr=False)
    """The filter that has more conjuncts, and which of them this one has; None if it has all."""
    _selected: dict[tuple[bool, ...], Filter] = field(default_factory=dict, compare=False, repr=False)

    def select(self, is_chosen: tuple[bool, ...]) -> Filter:
        """Return the filter with some of its conjuncts. What follows from all conjuncts together stays known."""
        if all(is_chosen):
            return self
        if is_chosen not in self._selected:
            chosen = tuple(compress(self.conjuncts, is_chosen))
            predicate = and_(*(each.predicate for each in chosen))
            self._selected[is_chosen] = Filter(predicate, chosen, self.handler, (self, is_chosen))
        return self._selected[is_chosen]

    def align(self, conjuncts: Sequence[Conjunct]) -> tuple[Conjunct | None, ...]:
        """Return forms of its conjuncts in the positions of all conjuncts, with None for those that it lacks."""
        own = iter(conjuncts)
        is_chosen = (True,) * len(conjuncts) if self.selected_from is None else self.selected_from[1]
        return tuple(next(own) if is_own else None for is_own in is_chosen)

    @cached_property
    def with_questions(self) -> QuestionedPredicate:
        if self.selected_from is None:
            return collect_questions(self.predicate)
        whole, is_chosen = self.selected_from
        return whole.with_questions.select(is_chosen)

    @cached_property
    def bloom(self) -> BloomQuestions:
        return BloomQuestions.of(self.with_questions.questions)

    @cached_property
    def columns(self) -> tuple[Column, ...]:
        return tuple(find_columns(self.predicate))

    @cached_property
    def has_equality(self) -> tuple[bool, ...]:
        """For each conjunct, whether it contains a possible equality or IN predicate."""
        return tuple(
            any(isinstance(node, Call) and node.function in _EQUALITIES for node in walk(each.predicate))
            for each in self.conjuncts
        )


@dataclass(frozen=True, slots=True)
class _LevelResult:
    remaining: Remaining
    total: int
    """The number of row ranges before pruning, after the level had split them."""
    outcomes: Sequence[ConjunctOutcome]

    def with_reasons(self, reasons: Sequence[str | None]) -> _LevelResult:
        """Return a copy with the reasons why conjuncts skipped nothing."""
        outcomes = [
            outcome
            if outcome.skipped or outcome.unused_because == SKIPPED_BEFORE
            else replace(outcome, unused_because=reason)
            for outcome, reason in zip(self.outcomes, reasons, strict=True)
        ]
        return replace(self, outcomes=outcomes)


class RowRangePruner:
    """Prunes one file below its row groups, level by level."""

    def __init__(
        self,
        source: ParquetFile | Footer,
        file: RangedFile | None,
        given: Filter,
        needed: Sequence[int],
        names: Mapping[FieldPath, FieldPath],
        sizes: Mapping[int, int],
        *,
        bloom_filters: BloomFilterProvider | None = None,
    ) -> None:
        """Prepare the pruning; `names` maps the columns of the filter that are read from the file to their paths in it.

        Partition columns are excluded, even if the file has a column of that name. `sizes` are the bytes of the needed
        leaves in each row group. `bloom_filters` replaces the Bloom filters of the file. A footer without a file
        supports no other level.
        """
        self._given_source = source
        self._opened = file
        self._footer = source if isinstance(source, Footer) else source.footer
        self._provider = bloom_filters
        self._filter = given
        self._needed = needed
        self._names = names
        self._sizes = sizes
        self._locations: dict[tuple[int, int], PageLocations | None] = {}
        self._sized: tuple[Remaining, dict[int, int]] | None = None
        self._has_answers = False
        self._asks_pages = False
        self._row_groups: Remaining
        self._complete: dict[Column, list[int]] = {}
        self.evidence: list[Evidence] = []

    @property
    def _source(self) -> ParquetFile:
        assert isinstance(self._given_source, ParquetFile), "this level reads the file"
        return self._given_source

    @property
    def _file(self) -> RangedFile:
        assert self._opened is not None, "this level reads the file"
        return self._opened

    def narrow(self, remaining: Remaining, levels: Collection[str]) -> tuple[Remaining, list[LevelReport]]:
        """Apply the levels in order. No conjunct is tested again for row ranges that it fully matches.

        The report of a level that was not applied has no outcomes.
        """
        residual = remaining.residual
        is_tested: Bits = np.any(residual, axis=0, keepdims=False)
        if is_tested.all():
            return self._narrow(remaining, levels)
        given, self._filter = self._filter, self._filter.select(tuple(is_tested.tolist()))
        found, reports = self._narrow(replace(remaining, residual=residual[:, is_tested]), levels)
        for report in reports:
            if report.by_predicate:
                report.by_predicate = add_matched_conjuncts(
                    report.by_predicate, given.conjuncts, is_tested.tolist(), MATCHED_BY_ROW_GROUP
                )
        left = np.zeros((len(found.starts), residual.shape[1]), bool)
        left[:, is_tested] = found.residual
        restored = replace(found, residual=left)
        self._sized = restored, self.count_remaining_bytes(found)
        return restored, reports

    def _narrow(self, remaining: Remaining, levels: Collection[str]) -> tuple[Remaining, list[LevelReport]]:
        reports = []
        self._asks_pages = "pages" in levels
        self._row_groups = remaining
        for level, ask_level in (
            ("bloom", self._apply_bloom),
            ("pages", self._apply_pages),
            ("dictionary", self._apply_dictionary),
        ):
            if level not in levels:
                continue
            asked: Bits = np.any(remaining.residual, axis=1, keepdims=False)
            others = None if asked.all() else remaining.keep(~asked)
            narrowed = ask_level(remaining.keep(asked)) if asked.any() else None
            before = self._count_bytes(remaining)
            if narrowed is None:
                count = len(remaining.starts)
                reports.append(LevelReport(level, count, count, before, before))
                continue
            remaining = narrowed.remaining if others is None else merge_remaining(others, narrowed.remaining)
            # A page may hold rows that were tested and others, so the remaining bytes of both are measured together.
            total = narrowed.total + (0 if others is None else len(others.starts))
            outcomes = tuple(narrowed.outcomes)
            reports.append(
                LevelReport(level, total, len(remaining.starts), before, self._count_bytes(remaining), outcomes)
            )
        return remaining, reports

    def count_remaining_bytes(self, remaining: Remaining) -> dict[int, int]:
        """Return the bytes of the needed columns that hold the remaining rows, by row group."""
        if self._sized is None or self._sized[0] is not remaining:
            in_part = set(remaining.partial_row_groups)
            sizes = {
                group: self._count_group_bytes(group, remaining.selection(group))
                if group in in_part
                else self._sizes[group]
                for group in remaining.kept_row_groups
            }
            self._sized = remaining, sizes
        return self._sized[1]

    def _count_bytes(self, remaining: Remaining) -> int:
        return sum(self.count_remaining_bytes(remaining).values())

    def _count_group_bytes(self, row_group: int, selection: RowSelection) -> int:
        locations = self._locations
        pages = (
            self._source.get_leaf_pages(row_group, leaf, locations.get((row_group, leaf))) for leaf in self._needed
        )
        return sum(each.count_bytes_for(selection) for each in pages)

    def _list_leaves(self) -> list[tuple[Column, Leaf]]:
        """Return the columns of the filter that are read from the file, with their leaves."""
        return [(column, leaf) for column in self._filter.columns if (leaf := self._find_leaf(column)) is not None]

    def _find_leaf(self, column: Column) -> Leaf | None:
        path = self._names.get(column.path)
        return None if path is None else self._footer.schema.leaves.get(path)

    def _prune_with(self, remaining: Remaining, answers: Mapping[str, pa.Array]) -> _LevelResult:
        """Prune the remaining row ranges with additional metadata."""
        units = _add_answers(remaining.units, answers) if answers else remaining.units
        self._has_answers = self._has_answers or bool(answers)
        # Predicates with answers are longer, so they are used only if there are answers.
        conjuncts = self._filter.with_questions.conjuncts if self._has_answers else self._filter.conjuncts
        self.evidence.append(Evidence(remaining, units, self._filter.align(conjuncts)))
        pruned = prune(units, conjuncts, handler=self._filter.handler, proven=~remaining.residual)
        after = remaining.keep(np.asarray(pruned.selection), pruned.remaining)
        after = replace(after, residual=after.residual & ~pruned.matched)
        return _LevelResult(after, len(remaining.starts), pruned.outcomes)

    def _keep_all(self, remaining: Remaining, reasons: Sequence[str | None]) -> _LevelResult:
        """Return the result of a level that has no metadata for the remaining rows."""
        conjuncts = self._filter.conjuncts
        outcomes = [ConjunctOutcome(each.text, 0, reason) for each, reason in zip(conjuncts, reasons, strict=True)]
        return _LevelResult(remaining, len(remaining.starts), outcomes)

    # --- Bloom filters --------------------------------------------------------------------------------------------

    def _has_chunk(self, remaining: Remaining, has: Callable[[ChunkLayout], bool]) -> bool:
        """Return whether some chunk of a filter column satisfies `has`, in the remaining row groups."""
        groups = remaining.kept_row_groups
        return any(has(self._source.chunk(group, leaf.index)) for _, leaf in self._list_leaves() for group in groups)

    def _apply_bloom(self, remaining: Remaining) -> _LevelResult | None:
        if not any(self._filter.has_equality):
            return None
        if self._provider is None and not self._has_chunk(remaining, lambda chunk: chunk.bloom_filter is not None):
            has_equality = self._filter.has_equality
            return self._keep_all(remaining, [NO_FILTER.reason if has else NO_EQUALITY for has in has_equality])
        questions = self._filter.bloom
        if not questions.questions:
            return None
        own = questions.for_file(self._footer.schema.leaves, self._names)
        groups = remaining.row_groups.tolist()
        asked = [
            [question for question in of_conjunct if question.items is not None]
            for of_conjunct in self._filter.with_questions.asked
        ]
        known = {question.number for question, *_ in own.asked}
        if self._provider is None and own.leaves:
            chunks = [self._source.chunk(group, leaf) for group in groups for leaf in own.leaves]
            if not any(chunk.bloom_filter for chunk in chunks):
                reasons = own.find_reasons({}, groups)
                return self._keep_all(remaining, [_explain_bloom(each, reasons, known) for each in asked])
        could = self._find_skippable(remaining, [[question.true_name for question in each] for each in asked])
        matters: dict[int, Bits] = {}
        for question, leaf, _ in own.asked:
            if leaf.index in own.leaves and question.number in could:
                matters[leaf.index] = matters.get(leaf.index, could[question.number]) | could[question.number]
        wanted = [(group, leaf) for leaf, bits in matters.items() for group in remaining.row_groups[bits].tolist()]
        answers = own.find_answers({}, groups)
        # Filters that could skip nothing are not read, but they are there.
        unread = set(own.leaves) - {leaf for _, leaf in wanted}
        found: dict[Chunk, Found | None] = {
            (group, leaf): None
            for leaf in unread
            for group in groups
            if self._provider is not None or self._source.chunk(group, leaf).bloom_filter is not None
        }
        for filters in self._read_filters(wanted, own.hashes, remaining):
            new_answers = own.find_answers(filters, groups)
            answers = {name: pc.coalesce(answer, new_answers[name]) for name, answer in answers.items()}
            found |= {chunk: each if isinstance(each, Unavailable) else None for chunk, each in filters.items()}
        narrowed = self._prune_with(remaining, answers)
        reasons = own.find_reasons(found, groups)
        return narrowed.with_reasons([_explain_bloom(each, reasons, known) for each in asked])

    def _read_filters(
        self, wanted: Sequence[Chunk], hashes: Mapping[int, Array], remaining: Remaining
    ) -> Iterator[dict[Chunk, Found]]:
        """Yield the Bloom filters of column chunks.

        A provider is called once. From remote storage, the page indexes are read in the same round: they are small, and
        needed next unless the filters exclude everything.
        """
        if self._provider is not None:
            if wanted:
                yield fetch_filters(self._provider, wanted)
            return
        layouts = {chunk: self._source.chunk(*chunk) for chunk in wanted}
        storage, path = self._source.storage, self._source.path
        groups = remaining.kept_row_groups
        if storage.is_local or not self._asks_pages or len(groups) * len(self._needed) > MAX_PREFETCHED_CHUNKS:
            yield from read_bloom_filters(storage, path, layouts, hashes, file=self._file)
            return

        def read_filters() -> list[dict[Chunk, Found]]:
            return list(read_bloom_filters(storage, path, layouts, hashes, file=self._file))

        def prefetch_indexes() -> list[dict[Chunk, Found]]:
            self._read_page_indexes(groups)
            return []

        found, _ = run_in_threads(lambda read: read(), (read_filters, prefetch_indexes), 2)
        yield from found

    def _read_page_indexes(self, groups: Iterable[int]) -> PageIndexes:
        with_statistics = [(group, column, leaf) for group in groups for column, leaf in self._list_leaves()]
        chunks = [(group, leaf) for group in groups for leaf in self._needed]
        return read_page_indexes(self._source, self._file, chunks, with_statistics)

    # --- Pages ----------------------------------------------------------------------------------------------------

    def _apply_pages(self, remaining: Remaining) -> _LevelResult | None:
        groups = remaining.row_groups.tolist()
        with_statistics = [(group, column, leaf) for group in groups for column, leaf in self._list_leaves()]
        if not with_statistics:
            return None
        chunks = [(group, leaf) for group in groups for leaf in self._needed]
        is_small = len(chunks) <= MAX_PREFETCHED_CHUNKS
        indexes = read_page_indexes(self._source, self._file, chunks if is_small else (), with_statistics)
        self._locations.update(indexes.locations)
        narrowed = self._prune_with(self._split_by_pages(remaining, indexes), {})
        if not is_small:
            left = [(group, leaf) for group in narrowed.remaining.partial_row_groups for leaf in self._needed]
            self._locations.update(read_page_indexes(self._source, self._file, left).locations)
        if all(pages is None for pages in indexes.columns.values()):
            return narrowed.with_reasons([NOT_AVAILABLE] * len(narrowed.outcomes))
        return narrowed

    def _split_by_pages(self, remaining: Remaining, indexes: PageIndexes) -> Remaining:
        """Split row groups into row ranges. Columns without page index keep the metadata of the row group."""
        row_ranges = []
        pages_by_group: dict[int, list[ColumnPages]] = {}
        for (group, _), pages in indexes.columns.items():
            if pages is not None:
                pages_by_group.setdefault(group, []).append(pages)
        for index, group in enumerate(remaining.row_groups.tolist()):
            of_group = {name: remaining.units.column(name).slice(index, 1) for name in remaining.units.schema.names}
            paged = pages_by_group.get(group, [])
            names = {name for pages in paged for name in pages.metadata}
            others = {name: array for name, array in of_group.items() if name not in names}
            columns = [*paged, ColumnPages(np.zeros(1, np.int64), others)]
            row_ranges.append(split_into_row_ranges(columns, self._source.count_rows(group)))
        counts = [len(each.starts) for each in row_ranges]
        return Remaining(
            np.repeat(remaining.row_groups, counts),
            np.concatenate([each.starts for each in row_ranges]),
            np.concatenate([each.ends for each in row_ranges]),
            np.repeat(remaining.residual, counts, axis=0),
            concatenate_metadata(row_ranges),
            remaining.row_counts,
        )

    # --- Dictionaries ---------------------------------------------------------------------------------------------

    def _apply_dictionary(self, remaining: Remaining) -> _LevelResult | None:
        if not self._has_chunk(remaining, lambda chunk: chunk.all_dictionary):
            counts = [len(find_columns(each.predicate)) for each in self._filter.conjuncts]
            return self._keep_all(remaining, [NOT_AVAILABLE if count == 1 else SEVERAL_COLUMNS for count in counts])
        asked = [
            (question, leaf)
            for question in self._filter.with_questions.questions
            if (leaf := self._find_leaf(question.column)) is not None
        ]
        if not asked:
            return None
        chosen, unavailable = self._choose_dictionaries(remaining, asked)
        known = {question.number for question, _ in asked}
        reasons = [
            _explain_dictionary([question.number for question in questions], unavailable, known)
            for questions in self._filter.with_questions.asked
        ]
        if not chosen:
            return self._keep_all(remaining, reasons)
        answers: dict[str, list[bool | None]] = {
            name: [None] * len(remaining.starts) for question, _ in asked for name in question.names
        }
        for row_group, leaf, values in self._read_dictionaries(chosen):
            own = remaining.find_ranges(row_group)
            for question, tested in asked:
                found = _evaluate(question, values, self._filter.handler) if tested.index == leaf.index else None
                if found is not None:
                    for name, answer in zip(question.names, found, strict=True):
                        answers[name][own.start : own.stop] = [answer] * len(own)
        columns = {name: pa.array(each, pa.bool_()) for name, each in answers.items()}
        return self._prune_with(remaining, columns).with_reasons(reasons)

    def _choose_dictionaries(
        self, remaining: Remaining, asked: Sequence[tuple[Question, Leaf]]
    ) -> tuple[list[tuple[int, Leaf]], dict[int, str]]:
        """Return the dictionaries to read, by row group and leaf, and why questions have none."""
        saved = self.count_remaining_bytes(remaining)
        chosen: dict[tuple[int, int], tuple[int, Leaf]] = {}
        unavailable: dict[int, str] = {}
        groups = remaining.kept_row_groups
        of_conjuncts = self._filter.with_questions.asked
        names = [[name for question in each for name in question.names] for each in of_conjuncts]
        skippable = self._find_skippable(remaining, names)
        for question, leaf in asked:
            ranges = {group: self._find_dictionary_range(group, leaf) for group in groups}
            cheap = [
                group
                for group, found in ranges.items()
                if found is not None and found[1] * self._source.storage.tuning.min_dictionary_saving <= saved[group]
            ]
            if not cheap:
                is_there = any(found is not None for found in ranges.values())
                unavailable[question.number] = TOO_COSTLY if is_there else NOT_AVAILABLE
                continue
            if question.number in skippable:
                could = set(remaining.row_groups[skippable[question.number]].tolist())
                chosen |= {(group, leaf.index): (group, leaf) for group in cheap if group in could}
        return list(chosen.values()), unavailable

    def _find_skippable(self, remaining: Remaining, names: Sequence[Sequence[str]]) -> dict[int, Bits]:
        """Return by question number the row ranges that could be skipped if all answers were favourable.

        `names` are the answers that a level may give, for each conjunct.
        """
        questioned = self._filter.with_questions
        found: dict[int, Bits] = {}
        for conjunct, questions, own in zip(questioned.conjuncts, questioned.asked, names, strict=True):
            if own:
                certain = {
                    question.true_name: pa.array(np.isin(remaining.row_groups, self._find_complete(question.column)))
                    for question in questions
                    if question.items is not None and question.true_name in own
                }
                skippable = find_skippable_units(remaining.units, conjunct, own, certain, self._filter.handler)
                could = np.asarray(skippable)
                for question in questions:
                    found[question.number] = found[question.number] | could if question.number in found else could
        return found

    def _find_complete(self, column: Column) -> list[int]:
        """Return the row groups in which every value between the bounds of a column occurs.

        There, no Bloom filter and no dictionary excludes an item of an equality or IN list that the bounds allow, so
        none is read. `distinct_count` decides about nothing else, because it proves less than it seems to:

        - A column with *one* distinct value has exact bounds, and then they are equal and prove it themselves; or it
          has truncated bounds, and then the value is anywhere between them.
        - Bounds ignore NaN, and writers differ in whether they count it. So one distinct value beside equal bounds does
          not exclude NaN, and floats are never complete.
        - `n` distinct integers (or days) in a range of `n` are all of them.

        If a count is too high, filters stay unread, which keeps a row group and loses no row.
        """
        if column in self._complete:
            return self._complete[column]
        leaf, units = self._find_leaf(column), self._row_groups.units
        names = [metadata_name(kind, column.path) for kind in ("lower", "upper")]
        if leaf is None or column.type is None or not set(names) <= set(units.schema.names):
            return []
        if pa.types.is_floating(column.type):
            return []
        lower, upper = (units.column(name) for name in names)
        is_complete = np.asarray(pc.fill_null(pc.equal(lower, upper), False))
        if pa.types.is_integer(column.type) or pa.types.is_date32(column.type):
            ranges = [each.view(pa.int32()) if pa.types.is_date32(each.type) else each for each in (lower, upper)]
            pairs = zip(self._row_groups.row_groups.tolist(), *(each.to_pylist() for each in ranges), strict=True)
            is_complete |= [
                low is not None and high is not None and self._count_distinct(group, leaf) > high - low
                for group, low, high in pairs
            ]
        self._complete[column] = self._row_groups.row_groups[is_complete].tolist()
        return self._complete[column]

    def _count_distinct(self, row_group: int, leaf: Leaf) -> int:
        """Return the number of distinct values of a chunk; 0 if it is unknown."""
        statistics = self._footer.metadata.row_group(row_group).column(leaf.index).statistics
        return 0 if statistics is None else statistics.distinct_count or 0

    def _find_dictionary_range(self, row_group: int, leaf: Leaf) -> tuple[int, int] | None:
        chunk = self._source.chunk(row_group, leaf.index)
        # Values that need a datetime rebase may raise an error, which belongs to the reader of the rows.
        if leaf.needs_rebase or not chunk.all_dictionary:
            return None
        return find_dictionary_range(chunk, self._locations.get((row_group, leaf.index)))

    def _read_dictionaries(self, chosen: Sequence[tuple[int, Leaf]]) -> Iterator[tuple[int, Leaf, pa.Array]]:
        found = [self._find_dictionary_range(row_group, leaf) for row_group, leaf in chosen]
        ranges = [each for each in found if each is not None]
        for batch in split_by_bytes([length for _, length in ranges]):
            buffers = self._file.read(ranges[batch])
            for (row_group, leaf), page in zip(chosen[batch], buffers, strict=True):
                pages = self._source.get_leaf_pages(row_group, leaf.index, None)
                field = find_leaf_value_field(pages.field)
                values = decode_dictionary(
                    page, pages.layout, pages.schema, field, self._source.location, created_by=self._source.created_by
                )
                yield row_group, leaf, values


def _add_answers(units: pa.RecordBatch, answers: Mapping[str, pa.Array]) -> pa.RecordBatch:
    known = {name: units.column(name) for name in units.schema.names}
    # An answer that is unknown at this level may be known from an earlier one.
    merged = {name: pc.coalesce(found, known[name]) if name in known else found for name, found in answers.items()}
    return pa.record_batch(known | merged)


def _evaluate(question: Question, values: pa.Array, handler: ExpressionHandler) -> tuple[bool, bool, bool] | None:
    """Return the answers for the values of a dictionary; None if they cannot be cast to the predicate's type."""
    try:
        return question.evaluate_values(
            values if values.type == question.column.type else values.cast(question.column.type), handler
        )
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        return None


def _explain_bloom(asked: Sequence[Question], reasons: Mapping[int, str], known: Collection[int]) -> str | None:
    if not asked:
        return NO_EQUALITY
    if all(question.number in reasons or question.number not in known for question in asked):
        return next((reasons[each.number] for each in asked if each.number in reasons), NOT_AVAILABLE)
    return MAY_BE_PRESENT


def _explain_dictionary(numbers: Collection[int], unavailable: Mapping[int, str], known: Collection[int]) -> str | None:
    if not numbers:
        return SEVERAL_COLUMNS
    answered = [number for number in numbers if number in known and number not in unavailable]
    if answered:
        return MAY_BE_PRESENT
    return next((unavailable[number] for number in sorted(numbers) if number in unavailable), NOT_AVAILABLE)


# --- The row ranges of one file that remain to be read while levels below its row groups prune it ---------------------

Bits = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Remaining:
    """The remaining row ranges of a file, in file order. At first each is a whole row group."""

    row_groups: Rows
    """The row group of each row range."""
    starts: Rows
    ends: Rows
    """The first row and the row after the last of each row range, counted within the row group."""
    residual: Bits
    """`residual[i, j]`: conjunct j is a residual filter for row range i, which is not fully matched by it."""
    units: pa.RecordBatch
    row_counts: Mapping[int, int]
    _selections: dict[int, RowSelection] = field(default_factory=dict, repr=False)

    @staticmethod
    def from_row_groups(row_groups: Sequence[int], units: pa.RecordBatch, residual: Bits) -> Remaining:
        """Start with whole row groups, whose metadata is `units`."""
        rows = np.asarray(units.column(ROW_COUNT.name), np.int64)
        counts = dict(zip(row_groups, rows.tolist(), strict=True))
        return Remaining(np.array(row_groups, np.int64), np.zeros(len(rows), np.int64), rows, residual, units, counts)

    @property
    def kept_row_groups(self) -> tuple[int, ...]:
        groups = self.row_groups
        is_first = np.ones(len(groups), bool)
        is_first[1:] = groups[1:] != groups[:-1]
        return tuple(groups[is_first].tolist())

    def _slice_of_group(self, row_group: int) -> slice:
        first, last = np.searchsorted(self.row_groups, (row_group, row_group + 1))
        return slice(int(first), int(last))

    def keep(self, mask: Bits, units: pa.RecordBatch | None = None) -> Remaining:
        """Return the row ranges selected by a mask; `units` is their metadata, if already computed."""
        if mask.all():
            return self if units is None else replace(self, units=units)
        return Remaining(
            self.row_groups[mask],
            self.starts[mask],
            self.ends[mask],
            self.residual[mask],
            self.units.filter(pa.array(mask)) if units is None else units,
            self.row_counts,
        )

    def selection(self, row_group: int) -> RowSelection:
        """Return the remaining rows of a row group."""
        found = self._selections.get(row_group)
        if found is None:
            own = self._slice_of_group(row_group)
            found = RowSelection(self.starts[own], self.ends[own], self.row_counts[row_group])
            self._selections[row_group] = found
        return found

    @property
    def partial_row_groups(self) -> tuple[int, ...]:
        """The row groups that are partially pruned."""
        groups, first = np.unique(self.row_groups, return_index=True)
        rows = np.add.reduceat(self.ends - self.starts, first) if len(groups) else groups
        return tuple(
            group for group, left in zip(groups.tolist(), rows.tolist(), strict=True) if left < self.row_counts[group]
        )

    def find_residual(self, row_group: int) -> Bits:
        """Return for each conjunct whether it is a residual filter for rows of a row group."""
        found: Bits = np.any(self.residual[self._slice_of_group(row_group)], axis=0, keepdims=False)
        return found

    def find_ranges(self, row_group: int) -> range:
        """Return the positions of a row group's row ranges as a range."""
        own = self._slice_of_group(row_group)
        return range(own.start, own.stop)


@dataclass(frozen=True, slots=True, eq=False)
class Evidence:
    """The metadata that a level evaluated: one row of `units` for each of `ranges`."""

    ranges: Remaining
    units: pa.RecordBatch
    conjuncts: tuple[Conjunct | None, ...]
    """None for a conjunct that the level did not test, because an earlier level proved it."""


def merge_remaining(one: Remaining, other: Remaining) -> Remaining:
    """Merge the row ranges of both, in file order."""
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
        np.concatenate([one.residual, other.residual])[order],
        _as_batch(units),
        {**one.row_counts, **other.row_counts},
    )


def concatenate_metadata(row_ranges: Sequence[RowRanges]) -> pa.RecordBatch:
    """Concatenate the metadata of row ranges of several row groups; columns that one lacks are unknown there."""
    if len(row_ranges) == 1:
        return pa.record_batch(dict(row_ranges[0].metadata))
    table = pa.concat_tables([pa.table(dict(each.metadata)) for each in row_ranges], promote_options="default")
    return _as_batch(table)


def _as_batch(table: pa.Table) -> pa.RecordBatch:
    return table.combine_chunks().to_batches()[0] if table.num_rows else pa.RecordBatch.from_pylist([], table.schema)
