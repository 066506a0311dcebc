"""Errors about damaged Iceberg tables. Each says what to do."""

from __future__ import annotations

from tamis.errors import CorruptFile


def make_corrupt_metadata_error(problem: str) -> CorruptFile:
    """Return the error for damaged table metadata."""
    return CorruptFile(
        f"{problem.rstrip('.')}. Restore the metadata file from a backup, or open an older one by its path"
    )


def make_corrupt_snapshot_error(problem: str) -> CorruptFile:
    """Return the error for a damaged file of a snapshot: a manifest list, a manifest or a delete file.

    >>> str(make_corrupt_snapshot_error("'m.avro' is a data manifest, but contains delete files"))[-74:]
    'Restore the file from a backup, or open another snapshot with snapshot_id='
    """
    return CorruptFile(
        f"{problem.rstrip('.')}. Restore the file from a backup, or open another snapshot with snapshot_id="
    )
