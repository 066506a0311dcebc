"""Where a plan is computed: in this process, or in the executors of an engine."""

from __future__ import annotations

from dataclasses import dataclass

from tamis.errors import InvalidArgument
from tamis.io.storage import Storage
from tamis.tables.jobs import Engine, can_serialise

AUTO, LOCAL, SPARK = "auto", "local", "spark"
MODES = (AUTO, LOCAL, SPARK)

AUTO_BYTES = 32 * 1024 * 1024
"""From this many bytes of metadata on, `auto` plans in executors. A checkpoint of 27 MiB, with 800,000 files, took this
process two seconds of one processor; a Spark job with new workers takes about as long to start."""

AUTO_PARTS = 4
"""From this many parts on, `auto` plans in executors: a single part is read by one executor, which gains nothing."""

SMALL_READ = 64 * 1024
"""The bytes that a footer or the listing of a directory counts for: as many as are read of a file to find its
footer."""


@dataclass(frozen=True)
class Planning:
    """An engine for plans, and when to use it. One rule covers all metadata that a plan reads.

    Checkpoint parts, directories and footers are read in executors where `mode` is `spark`, or where it is `auto` and
    there are at least AUTO_PIECES units of work with at least AUTO_BYTES together. A checkpoint part is one unit of
    work; directories and footers are read some hundreds at a time.
    """

    engine: Engine
    mode: str = AUTO

    def __post_init__(self) -> None:
        check_mode(self.mode)

    def choose_engine(self, storage: Storage, parts: int, size: int) -> Engine | None:
        """Return the engine that reads `parts` parts of metadata of `size` bytes together; None for this process."""
        if self.mode == LOCAL or not parts:
            return None
        if self.mode == SPARK:
            return self.engine
        is_worth_it = parts >= AUTO_PARTS and size >= AUTO_BYTES
        return self.engine if is_worth_it and can_serialise(storage) else None


def check_mode(mode: object) -> None:
    if mode not in MODES:
        raise InvalidArgument(f"unknown planning mode {mode!r}: expected {', '.join(MODES)}")
