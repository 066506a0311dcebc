"""Is it a Hive-style table at all? Reading the files of a Delta or an Iceberg table would bring back deleted rows."""

from __future__ import annotations

import re
import zlib
from pathlib import Path
from typing import Literal

import pyarrow as pa
import pyarrow.compute as pc

from tamis.errors import UnsupportedFeature
from tamis.io.listing import Listing, has_directory, list_directory
from tamis.io.ranges import RangedFile
from tamis.io.storage import Storage

TableFormat = Literal["delta", "iceberg", "hive"]

_DELTA_LOG = "_delta_log"
_ICEBERG_METADATA = "metadata"
_SMALL = 16 * 1024 * 1024


def looks_like(storage: Storage) -> TableFormat:
    """The format that the names in a directory tell; `hive` where they tell nothing."""
    root = list_directory(storage, storage.root)
    if _has(root.directory_paths, _DELTA_LOG):
        return "delta"
    return "iceberg" if _has_iceberg_metadata(storage, root) else "hive"


def is_delta(storage: Storage) -> bool:
    """Whether there is a Delta table at a place: its log is looked up, and nothing else."""
    if storage.root.endswith(".parquet"):
        # A single file, most likely; a folder of that name costs a listing more.
        return False
    return has_directory(storage, f"{storage.root.rstrip('/')}/{_DELTA_LOG}")


def is_iceberg(storage: Storage) -> bool:
    """Whether there is an Iceberg table at a place: a folder of metadata files."""
    if storage.root.endswith(".parquet"):
        return False
    if re.search(r"(^|[/.])metadata\.json(\.gz)?$", storage.root) is not None:
        return True
    folder = f"{storage.root.rstrip('/')}/{_ICEBERG_METADATA}"
    return has_directory(storage, folder) and _has_metadata_file(storage, folder)


def table_inside(storage: Storage, folder: str) -> str | None:
    """What a folder is, where it is a table with a log: somebody may have named the folder around it."""
    found = list_directory(storage, folder).directory_paths
    if _has(found, _DELTA_LOG):
        return "a Delta table"
    is_iceberg = _has(found, _ICEBERG_METADATA) and _has_metadata_file(storage, f"{folder}/{_ICEBERG_METADATA}")
    return "an Iceberg table" if is_iceberg else None


def refuse_other_formats(storage: Storage, root: Listing, *, has_data: bool) -> None:
    """An error that names the format where the root is one of another format.

    An Iceberg table has no data in its root, so that only a folder without any costs the second listing.
    """
    if _has(root.directory_paths, _DELTA_LOG):
        raise UnsupportedFeature(
            f"'{storage.uri}' is a Delta table (it has {_DELTA_LOG}), whose files alone are not its rows: open it "
            "without format=, or with format='delta'"
        )
    if not has_data and _has_iceberg_metadata(storage, root):
        raise UnsupportedFeature(
            f"'{storage.uri}' is an Iceberg table (it has {_ICEBERG_METADATA}/*.metadata.json), "
            "whose files alone are not its rows: open it without format=, or with format='iceberg'"
        )


def refuse_inside_of_a_table(storage: Storage) -> None:
    """An error where a folder lies inside of a table with a log: it has files of all versions, and deleted rows.

    To look into every folder above costs a request each where the storage is remote, so there nobody does.
    """
    if not storage.is_local or not Path(storage.root).is_dir():
        return
    for folder in Path(storage.root).parents:
        is_delta_table = (folder / _DELTA_LOG).is_dir()
        if is_delta_table or next((folder / _ICEBERG_METADATA).glob("*.metadata.json*"), None) is not None:
            kind = "Delta" if is_delta_table else "Iceberg"
            raise UnsupportedFeature(
                f"'{storage.uri}' lies inside of the {kind} table '{folder}', whose files alone are not its rows: open "
                "the table and filter it, or say format='hive' for the files as they are"
            )


def _has(paths: pa.StringArray, name: str) -> bool:
    return bool(pc.any(pc.ends_with(paths, f"/{name}"), min_count=0).as_py())


def _has_iceberg_metadata(storage: Storage, root: Listing) -> bool:
    if not _has(root.directory_paths, _ICEBERG_METADATA):
        return False
    return _has_metadata_file(storage, f"{storage.root}/{_ICEBERG_METADATA}")


def _has_metadata_file(storage: Storage, folder: str) -> bool:
    files = list_directory(storage, folder).file_paths
    if pc.any(pc.match_substring_regex(files, r"\.metadata\.json(\.gz)?$"), min_count=0).as_py():
        return True
    plain = files.filter(pc.match_substring_regex(files, r"/metadata\.json(\.gz)?$")).to_pylist()
    return any(_is_of_iceberg(storage, path) for path in plain)


def _is_of_iceberg(storage: Storage, path: str) -> bool:
    """Whether a file of a name that others use as well is metadata of Iceberg."""
    with RangedFile(storage, path) as file:
        content = bytes(file.read([(0, min(file.size, _SMALL))])[0])
    if content.startswith(b"\x1f\x8b"):
        try:
            content = zlib.decompressobj(wbits=16 + zlib.MAX_WBITS).decompress(content, _SMALL)
        except zlib.error:
            return False
    return b'"format-version"' in content
