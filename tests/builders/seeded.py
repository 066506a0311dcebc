"""Random choices without Hypothesis, for tests in which an example costs a job of Spark."""

from __future__ import annotations

import random

from builders.choices import Choices


class SeededChoices(Choices):
    """The same choices for the same seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def number(self, smallest: int, largest: int) -> int:
        return self._random.randint(smallest, largest)
