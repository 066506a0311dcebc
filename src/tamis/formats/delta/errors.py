"""Errors about the log of a Delta table. Each says what to do."""

from __future__ import annotations

from tamis.errors import CorruptFile, MissingFile


def make_corrupt_log_error(problem: str) -> CorruptFile:
    """Return the error for a damaged file of a log.

    >>> str(make_corrupt_log_error("'t/_delta_log/1.json' has an action add that is not a JSON object"))[-69:]
    'Restore the log from a backup, or open an older version with version='
    """
    return CorruptFile(f"{problem.rstrip('.')}. Restore the log from a backup, or open an older version with version=")


def make_missing_log_file_error(problem: str) -> MissingFile:
    """Return the error for a file of a log that was there when the log was listed, or that a checkpoint lists."""
    return MissingFile(f"{problem}. Open the table again, or restore the file from a backup")
