"""The error for a damaged file in Avro or ORC. It says what to do."""

from __future__ import annotations

from tamis.errors import CorruptFile


def make_corrupt_file_error(problem: str) -> CorruptFile:
    """Return the error for a file that cannot be decoded.

    >>> str(make_corrupt_file_error("'a.orc' cannot be decoded"))
    "'a.orc' cannot be decoded. Restore the file from a backup, or write it again"
    """
    return CorruptFile(f"{problem.rstrip('.')}. Restore the file from a backup, or write it again")
