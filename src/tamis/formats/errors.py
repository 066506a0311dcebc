"""Errors about damaged files of tables. Each says what to do."""

from __future__ import annotations

from importlib.util import find_spec

from tamis.errors import CorruptFile, MissingFile, make_missing_package_error

# --- Dependencies ---------------------------------------------------------------------------------------------------
#
# The optional packages that Iceberg tables need.


_PACKAGES = ("pyiceberg", "polars")


def check_installed() -> None:
    """Raise an error that names the missing packages and how to install them."""
    missing = [name for name in _PACKAGES if find_spec(name) is None]
    if missing:
        raise make_missing_package_error("an Iceberg table", "iceberg", *missing)


def make_corrupt_log_error(problem: str) -> CorruptFile:
    """Return the error for a damaged file of a log.

    >>> str(make_corrupt_log_error("'t/_delta_log/1.json' has an action add that is not a JSON object"))[-69:]
    'Restore the log from a backup, or open an older version with version='
    """
    return CorruptFile(f"{problem.rstrip('.')}. Restore the log from a backup, or open an older version with version=")


def make_missing_log_file_error(problem: str) -> MissingFile:
    """Return the error for a file of a log that was there when the log was listed, or that a checkpoint lists."""
    return MissingFile(f"{problem}. Open the table again, or restore the file from a backup")


# --- Errors about damaged Iceberg tables. Each says what to do --------------------------------------------------------


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


# --- The error for a damaged file in Avro or ORC. It says what to do --------------------------------------------------


def make_corrupt_file_error(problem: str) -> CorruptFile:
    """Return the error for a file that cannot be decoded.

    >>> str(make_corrupt_file_error("'a.orc' cannot be decoded"))
    "'a.orc' cannot be decoded. Restore the file from a backup, or write it again"
    """
    return CorruptFile(f"{problem.rstrip('.')}. Restore the file from a backup, or write it again")
