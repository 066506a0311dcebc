"""Row group pruning with Bloom filters: which row groups contain none of a predicate's values."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pyarrow as pa

from tamis.parquet.bloom import Array, BloomFilter, Unavailable, might_contain_any
from tamis.parquet.bloom_hash import hash_stored_values
from tamis.parquet.bloom_read import NO_FILTER, Chunk, Found
from tamis.parquet.leaves import FieldPath, Leaf
from tamis.skipping.membership import Question


@dataclass(frozen=True)
class BloomQuestions:
    """The membership tests of a predicate that Bloom filters can answer, with the hashes of their items.

    Items are hashed once per physical representation of a column among the table's files, usually one.
    """

    questions: tuple[Question, ...]
    _hash_cache: dict[Hashable, Array | Unavailable] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(questions: Sequence[Question]) -> BloomQuestions:
        return BloomQuestions(tuple(question for question in questions if question.items is not None))

    def for_file(
        self, leaves: Mapping[FieldPath, Leaf], names: Mapping[FieldPath, FieldPath] | None = None
    ) -> FileQuestions:
        """Bind the questions to the leaf columns of a file.

        `names` maps table paths to paths in the file; without it both are the same.
        """
        found = []
        for question in self.questions:
            path = question.column.path
            in_file = path if names is None else names.get(path)
            leaf = None if in_file is None else leaves.get(in_file)
            if leaf is not None:
                found.append((question, leaf, self._hash_items(question, leaf)))
        return FileQuestions(tuple(found))

    def _hash_items(self, question: Question, leaf: Leaf) -> Array | Unavailable:
        stored = (leaf.physical, leaf.logical, tuple(leaf.parameters.items()), leaf.length, leaf.scale, leaf.arrow_type)
        key = (question.number, leaf.needs_rebase, *stored)
        if key not in self._hash_cache:
            # Two threads may both hash the items; their results are equal.
            self._hash_cache[key] = hash_stored_values(question.values, leaf)
        return self._hash_cache[key]


@dataclass(frozen=True)
class FileQuestions:
    """The questions bound to one file: each with its leaf and the hashes to look up, or why there are none."""

    asked: tuple[tuple[Question, Leaf, Array | Unavailable], ...]

    @cached_property
    def leaves(self) -> tuple[int, ...]:
        """The leaves whose filters are needed. Items that the file's type cannot represent need no filter."""
        return tuple(dict.fromkeys(leaf.index for _, leaf, hashes in self._usable if len(hashes)))

    @property
    def hashes(self) -> dict[int, Array]:
        """All hashes to look up, by leaf, so that only the needed blocks of the filters are read."""
        by_leaf: dict[int, list[Array]] = {}
        for _, leaf, hashes in self._usable:
            by_leaf.setdefault(leaf.index, []).append(hashes)
        return {leaf: np.concatenate(found) for leaf, found in by_leaf.items()}

    def answers(self, filters: Mapping[Chunk, Found], row_groups: Sequence[int]) -> dict[str, pa.BooleanArray]:
        """Return the metadata columns `true:…`: whether a row group may contain an item; null without a filter."""
        found = {}
        for question, leaf, hashes in self._usable:
            may_be_true = np.zeros(len(row_groups), bool)
            is_unknown = np.zeros(len(row_groups), bool)
            if len(hashes):
                given = [filters.get((group, leaf.index)) for group in row_groups]
                readable = [each for each in given if isinstance(each, BloomFilter)]
                is_unknown[:] = [not isinstance(each, BloomFilter) for each in given]
                may_be_true[~is_unknown] = might_contain_any(readable, hashes)
            found[question.true_name] = pa.array(may_be_true, pa.bool_(), mask=is_unknown)
        return found

    def reasons(self, read: Mapping[Chunk, Found | None], row_groups: Sequence[int]) -> dict[int, str]:
        """Return why questions, by number, have no answer in any of the row groups.

        Only the unavailable entries of `read` matter.
        """
        found = {}
        for question, leaf, hashes in self.asked:
            given = [read.get((group, leaf.index), NO_FILTER) for group in row_groups]
            if isinstance(hashes, Unavailable):
                found[question.number] = hashes.reason
            elif len(hashes) and (missing := [each for each in given if isinstance(each, Unavailable)]) == given:
                found[question.number] = missing[0].reason if missing else NO_FILTER.reason
        return found

    @cached_property
    def _usable(self) -> list[tuple[Question, Leaf, Array]]:
        return [(question, leaf, found) for question, leaf, found in self.asked if not isinstance(found, Unavailable)]
