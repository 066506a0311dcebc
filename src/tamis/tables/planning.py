"""Where a plan is made: in this process, or in the executors of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.errors import InvalidArgument
from tamis.io.storage import Storage
from tamis.tables.jobs import Engine, can_travel

AUTO, LOCAL, SPARK = "auto", "local", "spark"
MODES = (AUTO, LOCAL, SPARK)

AUTO_BYTES = 32 * 1024 * 1024
"""From how many bytes of metadata on `auto` plans in executors. A checkpoint of 27 MiB, which told of 800,000 files,
took this process two seconds of one processor; a Spark job with new workers takes about as long to begin."""

AUTO_PIECES = 4
"""From how many pieces on: one piece is read by one executor, and then nothing is gained."""

SMALL_READ = 64 * 1024
"""What a footer or the listing of a directory counts for: as much as is read of a file to find its footer."""


@dataclass(frozen=True)
class Planning:
    """An engine for plans, and when to use it. One rule serves everything that is read to make a plan.

    Checkpoint parts, directories and footers are read in executors where `mode` is `spark`, and where it is `auto` and
    they make at least AUTO_PIECES pieces with at least AUTO_BYTES together. A part is a piece of its own; directories
    and footers are read some hundreds at a time.
    """

    engine: Engine
    mode: str = AUTO

    def __post_init__(self) -> None:
        check_mode(self.mode)

    def engine_for(self, storage: Storage, pieces: int, size: int) -> Engine | None:
        """The engine that reads some pieces of metadata; None where this process does."""
        if self.mode == LOCAL or not pieces:
            return None
        if self.mode == SPARK:
            return self.engine
        is_worth_it = pieces >= AUTO_PIECES and size >= AUTO_BYTES
        return self.engine if is_worth_it and can_travel(storage) else None


def check_mode(mode: object) -> None:
    if mode not in MODES:
        raise InvalidArgument(f"no planning {mode!r}. Planning: {', '.join(MODES)}")
