"""Detection of table formats: reading a Delta or Iceberg table as plain files would return deleted rows."""

from __future__ import annotations

import re
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import UnsupportedFeature
from tamis.io.listing import Listing, has_directory, list_directory
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage

_DELTA_LOG = "_delta_log"
_ICEBERG_METADATA = "metadata"
_SMALL = 16 * 1024 * 1024


def is_delta(storage: Storage) -> bool:
    """Return whether there is a Delta table at a location; only its log directory is looked up."""
    if storage.root.endswith(".parquet"):
        # Most likely a single file; a directory of that name costs one more listing.
        return False
    return has_directory(storage, f"{storage.root.rstrip('/')}/{_DELTA_LOG}")


def is_iceberg(storage: Storage) -> bool:
    """Return whether there is an Iceberg table at a location: a directory with metadata files."""
    if storage.root.endswith(".parquet"):
        return False
    if re.search(r"(^|[/.])metadata\.json(\.gz)?$", storage.root) is not None:
        return True
    folder = f"{storage.root.rstrip('/')}/{_ICEBERG_METADATA}"
    return has_directory(storage, folder) and _has_metadata_file(storage, folder)


def find_nested_format(storage: Storage, folder: str) -> str | None:
    """Return the format of a directory that is a Delta or Iceberg table itself: the user may have given its parent."""
    found = list_directory(storage, folder).directory_paths
    if _has(found, _DELTA_LOG):
        return "a Delta table"
    return "an Iceberg table" if _has_iceberg_metadata(storage, folder, found) else None


def reject_other_formats(storage: Storage, root: Listing, *, has_data: bool) -> None:
    """Raise an error that names the format if the root is a Delta or Iceberg table. An Iceberg table has no data files
    in its root, so only a directory without data files costs a second listing.
    """
    if _has(root.directory_paths, _DELTA_LOG):
        raise UnsupportedFeature(
            f"'{storage.uri}' is a Delta table (it has {_DELTA_LOG}), whose files may hold deleted rows: open it "
            "without format=, or with format='delta'"
        )
    if not has_data and _has_iceberg_metadata(storage, storage.root, root.directory_paths):
        raise UnsupportedFeature(
            f"'{storage.uri}' is an Iceberg table (it has {_ICEBERG_METADATA}/*.metadata.json), "
            "whose files may hold deleted rows: open it without format=, or with format='iceberg'"
        )


def reject_nested_directory(storage: Storage) -> None:
    """Raise an error if a directory is inside a Delta or Iceberg table: its files may hold deleted rows.

    Only local directories are checked: on remote storage every parent directory would cost a request.
    """
    if not storage.is_local or not Path(storage.root).is_dir():
        return
    for folder in Path(storage.root).parents:
        is_delta_table = (folder / _DELTA_LOG).is_dir()
        if is_delta_table or next((folder / _ICEBERG_METADATA).glob("*.metadata.json*"), None) is not None:
            kind = "Delta" if is_delta_table else "Iceberg"
            raise UnsupportedFeature(
                f"'{storage.uri}' is inside the {kind} table '{folder}', whose files may hold deleted rows: open the "
                "table and filter it, or pass format='hive' to read all files"
            )


def _has(paths: pa.StringArray, name: str) -> bool:
    return bool(pc.any(pc.ends_with(paths, f"/{name}"), min_count=0).as_py())


def _has_iceberg_metadata(storage: Storage, folder: str, directories: pa.StringArray) -> bool:
    return _has(directories, _ICEBERG_METADATA) and _has_metadata_file(storage, f"{folder}/{_ICEBERG_METADATA}")


def _has_metadata_file(storage: Storage, folder: str) -> bool:
    files = list_directory(storage, folder).file_paths
    if pc.any(pc.match_substring_regex(files, r"\.metadata\.json(\.gz)?$"), min_count=0).as_py():
        return True
    plain = files.filter(pc.match_substring_regex(files, r"/metadata\.json(\.gz)?$")).to_pylist()
    return any(_is_iceberg_metadata(storage, path) for path in plain)


def _is_iceberg_metadata(storage: Storage, path: str) -> bool:
    """Return whether a file with the common name metadata.json is Iceberg metadata."""
    with RangedFile(storage, path) as file:
        content = bytes(file.read([(0, min(file.size, _SMALL))])[0])
    if content.startswith(b"\x1f\x8b"):
        try:
            content = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(content, _SMALL)
        except zlib.error:
            return False
    return b'"format-version"' in content
