"""Random choices out of plain sequences, drawn by Hypothesis.

Hypothesis examines every strategy that it meets for the first time. A strategy that is made anew for each example, of
the types that the example happens to have, costs ten times what the test itself does. Here all draws are of
integers below a limit, from strategies that are made once.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from typing import TypeVar

from hypothesis import strategies as st

T = TypeVar("T")


@cache
def _make_strategy(largest: int) -> st.SearchStrategy[int]:
    return st.integers(0, largest)


class Choices:
    """The choices of one example. It shrinks to the first option."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def number(self, smallest: int, largest: int) -> int:
        return smallest + self._draw(_make_strategy(largest - smallest))

    def one_of(self, options: Sequence[T]) -> T:
        return options[self.number(0, len(options) - 1)]

    def flag(self, one_in: int = 2) -> bool:
        """Return TRUE once in so many times."""
        return self.number(0, one_in - 1) == one_in - 1

    def some_of(self, options: Sequence[T], fewest: int, most: int) -> list[T]:
        """Return so many options, which may repeat."""
        return [self.one_of(options) for _ in range(self.number(fewest, most))]


class SeededChoices(Choices):
    """Choices without Hypothesis, from a seed: for tests whose examples each run a Spark job."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, smallest: int, largest: int) -> int:
        return self._random.randint(smallest, largest)
